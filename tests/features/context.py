"""What a handler may know and do while it runs: progress, log, the caller, state that lasts."""

import asyncio
from dataclasses import dataclass, field

from colonnade import BlockingContext, Context, Server
from colonnade.protocol.revision import LogControl, Revision
from colonnade.store.memory import MemoryStore
from features.feature import JSON, WORKS, Group, Verdict, failure, refusal, refused, told, tried
from server.talk import Client, Rejected, talk, words

CONTEXT = Group("Context")
PROGRESS = "notifications/progress"
LOG = "notifications/message"
LEVEL = "io.modelcontextprotocol/logLevel"


def working() -> Server:
    """A server whose tools report and log."""
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


@CONTEXT.feature("progress, for a caller that wants it", WORKS)
async def progress(revision: Revision) -> Verdict:
    async with talk(working(), revision) as client:
        await client.call("work")
        assert client.told(PROGRESS) == []
        for tool in ("work", "work_in_a_thread"):
            await client.call(tool, _meta={"progressToken": tool})
    said = [(one["progressToken"], one["progress"], one["total"]) for one in client.told(PROGRESS)]
    assert said == [("work", 1, 3), ("work", 2.5, 3), ("work_in_a_thread", 1, 3)]
    return WORKS


@CONTEXT.feature("progress in words", told("the numbers alone"), *4 * [WORKS])
async def progress_in_words(revision: Revision) -> Verdict:
    async with talk(working(), revision) as client:
        await client.call("work", _meta={"progressToken": 1})
    first, second = client.told(PROGRESS)
    assert "message" not in second
    if "message" not in first:
        return told("the numbers alone")
    assert first["message"] == "one of three"
    return WORKS


# ---------------------------------------------------------------- log


async def call_at(client: Client, level: str, tool: str) -> JSON:
    """Call a tool, and want this much of its log, in whichever way the revision says that."""
    if client.revision.log_control is LogControl.BY_METHOD:
        await client.ask("logging/setLevel", {"level": level})
        return await client.call(tool)
    return await client.call(tool, _meta={LEVEL: level})


@CONTEXT.feature("log messages, at the level that the session or the request wants", WORKS)
async def log(revision: Revision) -> Verdict:
    async with talk(working(), revision) as client:
        await call_at(client, "error", "work")
        assert client.told(LOG) == []
        await call_at(client, "warning", "work_in_a_thread")
        loud = {"level": "warning", "data": {"loud": True}, "logger": "tools"}
        assert client.told(LOG) == [loud]
        await call_at(client, "debug", "work")
        assert client.told(LOG)[1:] == [{"level": "debug", "data": "quiet"}, loud]
    return WORKS


@CONTEXT.feature(
    "log messages, where nothing was said about a level", *4 * [WORKS], told("nothing")
)
async def log_unasked(revision: Revision) -> Verdict:
    async with talk(working(), revision) as client:
        await client.call("work")
    if not client.told(LOG):
        return told("nothing")
    assert [one["level"] for one in client.told(LOG)] == ["warning"]
    return WORKS


@CONTEXT.feature("`logging/setLevel`", *4 * [WORKS], refused(-32601))
async def set_level(revision: Revision) -> Verdict:
    async with talk(working(), revision) as client:
        found = await tried(client.ask("logging/setLevel", {"level": "debug"}))
        if isinstance(found, Rejected):
            return refused(found.code)
        assert found == {}
        await client.call("work")
    assert [one["level"] for one in client.told(LOG)] == ["debug", "warning"]
    return WORKS


@CONTEXT.feature("a level that there is not", refused(-32602))
async def bad_level(revision: Revision) -> Verdict:
    async with talk(working(), revision) as client:
        return await refusal(call_at(client, "loud", "work"), "send one of alert")


@CONTEXT.feature("a credential in a log message is left out", WORKS)
async def secrets(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def leak(ctx: Context) -> None:
        await ctx.error({"user": "ann", "password": "swordfish", "nested": [{"api_key": "k-123"}]})
        await ctx.error("Authorization: Bearer abcdef0123456789")

    async with talk(server, revision) as client:
        await call_at(client, "debug", "leak")
    assert len(client.told(LOG)) == 2
    said = str(client.told(LOG))
    assert "ann" in said
    assert not any(secret in said for secret in ("swordfish", "k-123", "abcdef0123456789"))
    return WORKS


# ---------------------------------------------------------------- who, and what is there


@CONTEXT.feature("the caller: principal, client, capabilities, revision", WORKS)
async def caller(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def who(ctx: Context) -> str:
        name = ctx.client.name if ctx.client is not None else None
        return f"{ctx.principal} {name} {ctx.capabilities.roots is not None} {ctx.revision}"

    info = {"name": "talk", "version": "1"}
    meta = {} if revision.handshake else {"io.modelcontextprotocol/clientInfo": info}
    async with talk(server, revision, principal="ann", meta=meta) as client:
        assert await client.text("who") == f"ann talk True {revision.date}"
    async with talk(server, revision, can={}, meta=meta) as client:
        assert await client.text("who") == f" talk False {revision.date}"
    return WORKS


@CONTEXT.feature("reading one of the server's own resources", WORKS)
async def read(revision: Revision) -> Verdict:
    server = Server("s")
    server.resource("notes://{name}")(lambda name: f"note {name}")

    @server.tool
    async def show(name: str, ctx: Context) -> str:
        return str((await ctx.read(f"notes://{name}")).contents[0].text)

    async with talk(server, revision) as client:
        assert await client.text("show", {"name": "a"}) == "note a"
    return WORKS


@CONTEXT.feature("a cancellation reaches the handler, and nothing is answered", WORKS)
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
    async with talk(server, revision) as client:
        id = client.send("tools/call", {"name": "slow"})
        await begun.wait()
        client.tell("notifications/cancelled", {"requestId": id, "reason": "enough"})
        async with asyncio.timeout(60):
            await stopped.wait()
        assert await client.text("other") == "fine"
        assert not [one for one in client.heard if one.get("id") == id]
    return WORKS


# ---------------------------------------------------------------- state that lasts


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


@CONTEXT.feature("a state handle, from one call and connection to the next", WORKS)
async def handle(revision: Revision) -> Verdict:
    server = shop(Clock())
    async with talk(server, revision, principal="ann") as client:
        basket = await client.text("create")
        assert await client.text("add", {"basket": basket, "item": "hat"}) == '["hat"]'
    async with talk(server, revision, principal="ann") as client:
        assert await client.text("add", {"basket": basket, "item": "coat"}) == '["hat","coat"]'
    return WORKS


@CONTEXT.feature("a state handle of another principal, or expired", told("isError, in words"))
async def foreign_handle(revision: Revision) -> Verdict:
    clock = Clock()
    server = shop(clock)
    async with talk(server, revision, principal="ann") as client:
        arguments = {"basket": await client.text("create"), "item": "hat"}
    async with talk(server, revision, principal="eve") as client:
        foreign = await failure(client.call("add", arguments), "there is no basket")
        other = words(await client.call("add", arguments))
    clock.now += 61
    async with talk(server, revision, principal="ann") as client:
        expired = await failure(client.call("add", arguments), "create a new one")
        # Who asks for another's cannot tell that there is one.
        assert words(await client.call("add", arguments)) == other
    assert foreign == expired
    return expired
