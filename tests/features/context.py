"""The context of a handler: progress, logging, caller, cancellation, state handles."""

import asyncio
from dataclasses import dataclass, field

from colonnade import BlockingContext, Context, Server
from colonnade.protocol.revision import LogControl, Revision
from colonnade.store.memory import MemoryStore
from features.feature import JSON, WORKS, Group, Verdict, failure, fallback, refusal, refused, tried
from server.raw_client import Client, Rejected, raw_client, text_content

CONTEXT = Group("Context: progress, logging, cancellation, state")
PROGRESS = "notifications/progress"
LOG = "notifications/message"
LEVEL = "io.modelcontextprotocol/logLevel"


def working() -> Server:
    """A server whose tools send progress and log messages."""
    server = Server("s")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, 3, "one of three")
        await ctx.progress(2.5, 3)
        await ctx.debug("quiet")
        await ctx.warning({"loud": True}, "tools")
        return "done"

    @server.tool
    def work_in_a_thread(ctx: BlockingContext) -> str:
        ctx.progress(1, 3, "one of three")
        ctx.warning({"loud": True}, "tools")
        return "done"

    return server


# ---------------------------------------------------------------- progress


@CONTEXT.feature("progress, if the request has a progress token", WORKS)
async def progress(revision: Revision) -> Verdict:
    async with raw_client(working(), revision) as client:
        await client.call("work")
        assert client.notifications(PROGRESS) == []
        for tool in ("work", "work_in_a_thread"):
            await client.call(tool, _meta={"progressToken": tool})
    said = [
        (one["progressToken"], one["progress"], one["total"])
        for one in client.notifications(PROGRESS)
    ]
    assert said == [("work", 1, 3), ("work", 2.5, 3), ("work_in_a_thread", 1, 3)]
    return WORKS


@CONTEXT.feature("progress with a message", fallback("without the message"), *4 * [WORKS])
async def progress_in_words(revision: Revision) -> Verdict:
    async with raw_client(working(), revision) as client:
        await client.call("work", _meta={"progressToken": 1})
    first, second = client.notifications(PROGRESS)
    assert "message" not in second
    if "message" not in first:
        return fallback("without the message")
    assert first["message"] == "one of three"
    return WORKS


# ---------------------------------------------------------------- logging


async def call_at(client: Client, level: str, tool: str) -> JSON:
    """Call a tool with this logging level, as the revision sets it."""
    if client.revision.log_control is LogControl.BY_METHOD:
        await client.ask("logging/setLevel", {"level": level})
        return await client.call(tool)
    return await client.call(tool, _meta={LEVEL: level})


@CONTEXT.feature("log messages, at the logging level of the session or the request", WORKS)
async def log(revision: Revision) -> Verdict:
    async with raw_client(working(), revision) as client:
        await call_at(client, "error", "work")
        assert client.notifications(LOG) == []
        await call_at(client, "warning", "work_in_a_thread")
        loud = {"level": "warning", "data": {"loud": True}, "logger": "tools"}
        assert client.notifications(LOG) == [loud]
        await call_at(client, "debug", "work")
        assert client.notifications(LOG)[1:] == [{"level": "debug", "data": "quiet"}, loud]
    return WORKS


@CONTEXT.feature("log messages, without a logging level", *4 * [WORKS], fallback("not sent"))
async def log_unasked(revision: Revision) -> Verdict:
    async with raw_client(working(), revision) as client:
        await client.call("work")
    if not client.notifications(LOG):
        return fallback("not sent")
    assert [one["level"] for one in client.notifications(LOG)] == ["warning"]
    return WORKS


@CONTEXT.feature("`logging/setLevel`", *4 * [WORKS], refused(-32601))
async def set_level(revision: Revision) -> Verdict:
    async with raw_client(working(), revision) as client:
        found = await tried(client.ask("logging/setLevel", {"level": "debug"}))
        if isinstance(found, Rejected):
            return refused(found.code)
        assert found == {}
        await client.call("work")
    assert [one["level"] for one in client.notifications(LOG)] == ["debug", "warning"]
    return WORKS


@CONTEXT.feature("unknown logging level", refused(-32602))
async def bad_level(revision: Revision) -> Verdict:
    async with raw_client(working(), revision) as client:
        return await refusal(call_at(client, "loud", "work"), "send one of alert")


@CONTEXT.feature("redaction of credentials in log messages", WORKS)
async def secrets(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def leak(ctx: Context) -> None:
        await ctx.error({"user": "ann", "password": "swordfish", "nested": [{"api_key": "k-123"}]})
        await ctx.error("Authorization: Bearer abcdef0123456789")

    async with raw_client(server, revision) as client:
        await call_at(client, "debug", "leak")
    assert len(client.notifications(LOG)) == 2
    said = str(client.notifications(LOG))
    assert "ann" in said
    assert not any(secret in said for secret in ("swordfish", "k-123", "abcdef0123456789"))
    return WORKS


# ---------------------------------------------------------------- caller, resources, cancellation


@CONTEXT.feature("caller: principal, client, capabilities, revision", WORKS)
async def caller(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def who(ctx: Context) -> str:
        name = ctx.client.name if ctx.client is not None else None
        return f"{ctx.principal} {name} {ctx.capabilities.roots is not None} {ctx.revision}"

    info = {"name": "client", "version": "1"}
    meta = {} if revision.handshake else {"io.modelcontextprotocol/clientInfo": info}
    async with raw_client(server, revision, principal="ann", meta=meta) as client:
        assert await client.text("who") == f"ann client True {revision.date}"
    async with raw_client(server, revision, can={}, meta=meta) as client:
        assert await client.text("who") == f" client False {revision.date}"
    return WORKS


@CONTEXT.feature("reading one of the server's own resources (`ctx.read`)", WORKS)
async def read(revision: Revision) -> Verdict:
    server = Server("s")
    server.resource("notes://{name}")(lambda name: f"note {name}")

    @server.tool
    async def show(name: str, ctx: Context) -> str:
        return str((await ctx.read(f"notes://{name}")).contents[0].text)

    async with raw_client(server, revision) as client:
        assert await client.text("show", {"name": "a"}) == "note a"
    return WORKS


@CONTEXT.feature("cancellation of the handler, without a response", WORKS)
async def cancelled(revision: Revision) -> Verdict:
    server, begun, stopped = Server("s"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> str:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    server.tool(name="other")(lambda: "fine")
    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "slow"})
        await begun.wait()
        client.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})
        async with asyncio.timeout(60):
            await stopped.wait()
        assert await client.text("other") == "fine"
        assert not [one for one in client.received if one.get("id") == id]
    return WORKS


# ---------------------------------------------------------------- state handles


@dataclass
class Basket:
    items: list[str] = field(default_factory=list[str])


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def shop(clock: Clock) -> Server:
    server = Server("shop", store=MemoryStore(clock=clock))
    baskets = server.handles("basket", Basket, ttl_s=60)

    @server.tool
    async def create(ctx: Context) -> str:
        return await baskets.create(ctx, Basket())

    @server.tool
    async def add(basket: str, item: str, ctx: Context) -> list[str]:
        found = await baskets.get(ctx, basket)
        found.items.append(item)
        await baskets.put(ctx, basket, found)
        return found.items

    return server


@CONTEXT.feature("state handle, across calls and connections", WORKS)
async def handle(revision: Revision) -> Verdict:
    server = shop(Clock())
    async with raw_client(server, revision, principal="ann") as client:
        basket = await client.text("create")
        assert await client.text("add", {"basket": basket, "item": "hat"}) == '["hat"]'
    async with raw_client(server, revision, principal="ann") as client:
        assert await client.text("add", {"basket": basket, "item": "coat"}) == '["hat","coat"]'
    return WORKS


@CONTEXT.feature("state handle of another principal, or expired", fallback("`isError` result"))
async def foreign_handle(revision: Revision) -> Verdict:
    clock = Clock()
    server = shop(clock)
    async with raw_client(server, revision, principal="ann") as client:
        arguments = {"basket": await client.text("create"), "item": "hat"}
    async with raw_client(server, revision, principal="eve") as client:
        foreign = await failure(client.call("add", arguments), "there is no basket")
        other = text_content(await client.call("add", arguments))
    clock.now += 61
    async with raw_client(server, revision, principal="ann") as client:
        expired = await failure(client.call("add", arguments), "create a new one")
        # The handle of another principal and an unknown one have the same error.
        assert text_content(await client.call("add", arguments)) == other
    assert foreign == expired
    return expired
