"""Our client and our server over real HTTP: every revision, by each transport that can carry it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from colonnade import Context, Server, ToolError, connect
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import CannotConnect, ChannelError, ConnectionLost, RemoteError, TimedOut
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, EVERY, InputRequests, Revision, Revisions
from colonnade.transport.http_client.conversation import HttpConversation, SessionEnded
from colonnade.transport.http_client.legacy_sse import SseStream
from colonnade.transport.http_client.pool import HttpPool
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from live import live, until
from scripted_http_server import descriptors, either_loop

INFO = t.Implementation(name="battery", version="1")
BIG = 1024 * 1024


@dataclass
class Reply:
    """What the user filled in."""

    word: str


class TransportCase(NamedTuple):
    """A transport, and a revision that it can carry (D8)."""

    transport: str
    revision: Revision

    def __str__(self) -> str:
        return f"{self.transport}-{self.revision.date}"


TRANSPORT_CASES = [TransportCase("http", one) for one in ALL] + [
    TransportCase("sse", one) for one in EVERY.handshakes
]
each_transport = pytest.mark.parametrize("transport_case", TRANSPORT_CASES, ids=str)


class Shop:
    """A server with one of everything, and what it has seen."""

    def __init__(self) -> None:
        self.server = Server("shop", version="1", instructions="be kind", page_size=2)
        self.started = asyncio.Event()
        self.stopped = asyncio.Event()
        self.running = 0
        server = self.server

        @server.tool
        async def echo(say: str) -> str:
            return say

        @server.tool
        async def big() -> str:
            return "x" * BIG

        @server.tool
        async def steps(ctx: Context) -> str:
            for number in range(3):
                await ctx.progress(number + 1, 3, f"step {number + 1}")
            return "done"

        @server.tool
        async def log(ctx: Context) -> str:
            await ctx.info("hello from the shop")
            return "logged"

        @server.tool
        async def seat(ctx: Context) -> str:
            return f"seat {await ctx.elicit('Which seat?', str)}"

        @server.tool
        async def poem(ctx: Context) -> str:
            return f"it says: {(await ctx.sample('Write a poem')).text}"

        @server.tool
        async def where(ctx: Context) -> str:
            return ", ".join(root.uri for root in await ctx.roots())

        @server.tool
        async def fail() -> str:
            raise ToolError("no such thing")

        @server.tool
        async def wait() -> str:
            self.running += 1
            self.started.set()
            try:
                await asyncio.sleep(3600)
            finally:
                self.running -= 1
                self.stopped.set()
            return "never"

        @server.resource("shop://list")
        def listed() -> str:
            return "apples"

        @server.prompt
        def greet(name: str) -> str:
            return f"Hello {name}"


class Stall:
    """A shop that is open at a port, and can be closed and opened there again."""

    def __init__(self) -> None:
        self.shop = Shop()
        self.port = 0
        self.site: HttpRunner

    async def start(self) -> None:
        self.site = HttpRunner(HttpApp(self.shop.server), port=self.port)
        await self.site.start()
        self.port = self.site.port

    async def restart(self) -> None:
        await self.site.stop(0.0)
        await self.start()


@asynccontextmanager
async def stall() -> AsyncGenerator[Stall]:
    made = Stall()
    await made.start()
    try:
        yield made
    finally:
        await made.site.stop(0.0)


@asynccontextmanager
async def client_of(
    stall: Stall,
    transport_case: TransportCase,
    answers: InputCallbacks | None = None,
    **options: Any,
) -> AsyncGenerator[Client]:
    """A client that is open; nothing of it is left when it is over."""
    pool = HttpPool(environ={})
    url = stall.site.url
    options.setdefault("timeout_s", 15.0)
    carry: Callable[..., Any] = lambda link, hearer: HttpConversation(link, hearer, pool, url)  # noqa: E731
    if transport_case.transport == "sse":
        carry = (await SseStream.open(pool, url.replace("/mcp", "/sse"))).open_conversation
    client = Client(
        carry, answers, info=INFO, accepts=Revisions([transport_case.revision]), **options
    )
    try:
        await client.open(transport_case.revision)
        yield client
    finally:
        await client.close()
        await pool.close()
    assert repr(pool) == "HttpPool(0 connections, 0 idle)"


# ---------------------------------------------------------------- asking


@each_transport
@live
async def test_everything_can_be_listed_read_and_called(transport_case: TransportCase) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        assert client.revision == transport_case.revision.date
        assert client.instructions == "be kind"
        names = {tool.name for tool in await client.list_tools()}
        assert {"echo", "big", "steps", "wait", "fail"} < names
        assert [one.uri for one in await client.list_resources()] == ["shop://list"]
        assert [one.name for one in await client.list_prompts()] == ["greet"]
        read = await client.read_resource("shop://list")
        assert read.contents[0].text == "apples"
        prompt = await client.get_prompt("greet", {"name": "Ann"})
        assert isinstance(prompt.messages[0].content, t.TextContent)
        assert prompt.messages[0].content.text == "Hello Ann"
        assert (await client.call_tool("echo", {"say": "hi ü €"})).data == "hi ü €"
        failed = await client.call_tool("fail")
        assert (failed.is_error, failed.text) == (True, "no such thing")
        with pytest.raises(RemoteError):
            await client.call_tool("unheard of")
        await client.ping()


@each_transport
@live
async def test_progress_arrives_in_its_order(transport_case: TransportCase) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        seen: list[tuple[float, float | None]] = []
        result = await client.call_tool(
            "steps", on_progress=lambda done, total, words: seen.append((done, total))
        )
        assert result.text == "done"
        assert seen == [(1, 3), (2, 3), (3, 3)]


@each_transport
@live
async def test_what_a_tool_logs_arrives(transport_case: TransportCase) -> None:
    said: list[Any] = []
    async with (
        stall() as s,
        client_of(s, transport_case, on_log=lambda params: said.append(params.data)) as client,
    ):
        assert (await client.call_tool("log")).text == "logged"
        await until(lambda: said == ["hello from the shop"])


@each_transport
@live
async def test_questions_are_answered_in_the_way_of_the_revision(
    transport_case: TransportCase,
) -> None:
    answers = InputCallbacks(
        on_elicit=lambda asked: "12A", on_sample=lambda asked: "roses", roots=["/tmp"]
    )
    async with stall() as s, client_of(s, transport_case, answers) as client:
        assert (await client.call_tool("poem")).text == "it says: roses"
        assert (await client.call_tool("where")).text == "file:///tmp"
        seat = await client.call_tool("seat")
        if transport_case.revision.elicitation.modes:
            assert seat.text == "seat 12A"
        else:
            assert seat.is_error


@each_transport
@live
async def test_several_questions_at_once_do_not_mix(transport_case: TransportCase) -> None:
    going = 0

    async def sample(asked: t.CreateMessageRequestParams) -> str:
        nonlocal going
        going += 1
        mine = str(going)
        await asyncio.sleep(0)
        return mine

    async with (
        stall() as s,
        client_of(s, transport_case, InputCallbacks(on_sample=sample)) as client,
    ):
        results = await asyncio.gather(*(client.call_tool("poem") for _ in range(10)))
        assert sorted(int(one.text.rpartition(" ")[2]) for one in results) == list(range(1, 11))


@each_transport
@live
async def test_a_notification_is_heard_from_the_moment_it_is_asked_for(
    transport_case: TransportCase,
) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        async with client.listen(tools=True, resources=["shop://list"]) as changes:
            s.shop.server.updated("shop://list")
            change = await asyncio.wait_for(anext(changes), 60)
            assert (change.kind, change.uri) == ("resource", "shop://list")

            @s.shop.server.tool
            def late() -> str:
                return "late"

            change = await asyncio.wait_for(anext(changes), 60)
            assert change.kind == "tools"
        assert "late" in {tool.name for tool in await client.list_tools(fresh=True)}


# ---------------------------------------------------------------- giving up


@each_transport
@either_loop
async def test_giving_up_reaches_the_handler(transport_case: TransportCase) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        calling = asyncio.create_task(client.call_tool("wait"))
        await s.shop.started.wait()
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        await asyncio.wait_for(s.shop.stopped.wait(), 60)
        assert (await client.call_tool("echo", {"say": "on"})).text == "on"


@each_transport
@live
async def test_a_time_out_reaches_the_handler(transport_case: TransportCase) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        with pytest.raises(TimedOut, match="no answer to tools/call within 2 s"):
            await client.call_tool("wait", timeout_s=2)
        await asyncio.wait_for(s.shop.stopped.wait(), 60)
        assert (await client.call_tool("echo", {"say": "on"})).text == "on"


@each_transport
@live
async def test_leaving_reaches_the_handlers(transport_case: TransportCase) -> None:
    async with stall() as s:
        async with client_of(s, transport_case) as client:
            calls = [asyncio.create_task(client.call_tool("wait")) for _ in range(3)]
            await until(lambda: s.shop.running == 3)
            await client.close()
            for call in calls:
                with pytest.raises(ConnectionLost, match="the client was closed"):
                    await call
        await until(lambda: s.shop.running == 0)


# ---------------------------------------------------------------- much


@each_transport
@live
async def test_a_result_of_a_mebibyte_arrives_whole(transport_case: TransportCase) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        assert (await client.call_tool("big")).text == "x" * BIG
        assert (await client.call_tool("echo", {"say": "y" * BIG})).text == "y" * BIG


@each_transport
@either_loop
async def test_256_calls_at_once_are_each_answered_with_their_own(
    transport_case: TransportCase,
) -> None:
    async with stall() as s:
        before = descriptors()
        async with client_of(s, transport_case) as client:
            said = [str(number) for number in range(256)]
            results = await asyncio.gather(
                *(client.call_tool("echo", {"say": one}) for one in said)
            )
            assert [one.text for one in results] == said
        await until(lambda: descriptors() <= before)


# ---------------------------------------------------------------- the server goes away


@each_transport
@live
async def test_a_server_that_restarts_ends_what_ran_and_is_spoken_to_again(
    transport_case: TransportCase,
) -> None:
    async with stall() as s, client_of(s, transport_case) as client:
        assert (await client.call_tool("echo", {"say": "before"})).text == "before"
        calling = asyncio.create_task(client.call_tool("wait"))
        await s.shop.started.wait()
        await s.restart()
        done, _ = await asyncio.wait([calling], timeout=60)
        assert done, "a call waits for a server that has forgotten it"
        # A server that stops says that the call was cancelled, or closes the connection.
        error = calling.exception()
        assert isinstance(error, ChannelError | RemoteError) or calling.result().is_error
        if not transport_case.revision.handshake:
            assert (await client.call_tool("echo", {"say": "after"})).text == "after"
        elif transport_case.transport == "http" and transport_case.revision.http.sessions:
            with pytest.raises((SessionEnded, ConnectionLost)):
                await client.call_tool("echo", {"say": "after"})
        else:
            with pytest.raises((ConnectionLost, RemoteError, ChannelError)):
                await client.call_tool("echo", {"say": "after"})


@pytest.mark.parametrize(
    "revision", [one for one in ALL if one.input_requests is InputRequests.IN_RESULT]
)
@live
async def test_a_server_that_is_gone_is_said_to_be(revision: Revision) -> None:
    async with stall() as s, client_of(s, TransportCase("http", revision)) as client:
        await s.site.stop(0.0)
        with pytest.raises(CannotConnect, match="cannot be reached: Connection refused"):
            await client.call_tool("echo", {"say": "x"})
        with contextlib.suppress(CannotConnect):
            await client.list_tools(fresh=True)


@live
async def test_a_round_that_cannot_be_sent_may_follow_one_that_had_an_effect() -> None:
    effects: list[str] = []
    server = Server("desk", keys=[b"k" * 32])

    @server.tool
    async def book(ctx: Context) -> str:
        await ctx.once("booked", lambda: effects.append("booked"))
        return (await ctx.elicit("Is it right?", Reply)).word

    site = HttpRunner(server.asgi(), port=0)
    await site.start()

    async def stop_server(_: object) -> dict[str, str]:
        await site.stop(0.0)
        return {"word": "yes"}

    async with connect(site.url, revision="2026-07-28", on_elicit=stop_server) as client:
        with pytest.raises(ChannelError) as raised:
            await client.call_tool("book")
    assert effects == ["booked"]
    assert (raised.value.not_sent, raised.value.effect_unknown) == (False, True)
