"""The server object: its capabilities, its lifespan, what it says of itself, and its types."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import assert_type

import pytest

from colonnade import Context, LocalProtocolError, Server
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from live import live
from server.raw_client import Rejected, raw_client


def capabilities(server: Server) -> t.ServerCapabilities:
    found = server.identity.capabilities
    assert isinstance(found, t.ServerCapabilities)
    return found


@pytest.mark.spec("R0114", "R0127", "R0142", "R0153", "R0955")
@live
async def test_capabilities_are_what_is_registered_and_nothing_else(revision: Revision) -> None:
    server = Server("s")
    assert capabilities(server) == t.ServerCapabilities()
    server.tool(name="a")(lambda: "x")
    assert capabilities(server).tools == t.ToolsCapability(list_changed=True)
    assert capabilities(server).logging is None
    async with raw_client(server, revision) as client:
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            with pytest.raises(Rejected) as caught:
                await client.ask(method)
            assert caught.value.code == -32601

    @server.tool
    async def logs(ctx: Context) -> None: ...

    assert capabilities(server).logging == {}
    assert capabilities(Server("s", logging=True)).logging == {}
    server.resource("r://a")(lambda: "x")
    server.prompt(name="p")(lambda: "x")
    assert capabilities(server).resources == t.ResourcesCapability(
        subscribe=True, list_changed=True
    )
    assert capabilities(server).prompts == t.PromptsCapability(list_changed=True)


@live
async def test_a_server_that_declares_no_logging_sends_no_log(revision: Revision) -> None:
    server = Server("s", logging=False)

    @server.tool
    async def loud(ctx: Context) -> None:
        await ctx.emergency("fire")
        await ctx.alert("fire")
        await ctx.critical("fire")
        await ctx.error("fire")
        await ctx.notice("fire")

    meta = {} if revision.handshake else {"io.modelcontextprotocol/logLevel": "debug"}
    async with raw_client(server, revision, meta=meta) as client:
        await client.call("loud")
        assert client.notifications("notifications/message") == []
    async with raw_client(Server("s"), revision) as client:
        pass


@live
async def test_a_server_says_who_it_is_and_what_to_do_with_it(revision: Revision) -> None:
    server = Server(
        "weather",
        version="2",
        title="Weather",
        description="All weather",
        website_url="https://example.com",
        instructions="Ask for a city.",
    )
    async with raw_client(server, revision) as client:
        if revision.handshake:
            first = client.received[0]["result"]
            info = first["serverInfo"]
        else:
            first = await client.ask("server/discover")
            info = first["_meta"]["io.modelcontextprotocol/serverInfo"]
        assert (info["name"], info["version"]) == ("weather", "2")
        assert ("description" in info) is revision.knows("2025-11-25", None)
        assert first["instructions"] == "Ask for a city."
    assert repr(server) == "Server('weather')"


@pytest.mark.spec("R1059")
@live
async def test_every_server_answers_discover_with_its_versions_and_capabilities(
    revision: Revision,
) -> None:
    server = Server("s")
    server.tool(name="a")(lambda: "x")
    async with raw_client(server, revision) as client:
        found = await client.ask("server/discover")
    assert revision.date in found["supportedVersions"]
    assert found["capabilities"]["tools"] == {"listChanged": True}


@live
async def test_a_server_may_speak_fewer_revisions(revision: Revision) -> None:
    server = Server("s", revisions=[revision.date])
    server.tool(name="a")(lambda: "x")
    async with raw_client(server, revision) as client:
        assert await client.text("a") == "x"
    with pytest.raises(ValueError, match="no such revision"):
        Server("s", revisions=["2020-01-01"])


# ---------------------------------------------------------------- lifespan


@live
async def test_the_lifespan_is_entered_once_and_left_at_the_end(revision: Revision) -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[str]:
        log.append(f"enter {server.info.name}")
        yield f"state of {server.info.name}"
        log.append(f"leave {server.info.name}")

    inner, server = Server("inner", lifespan=lifespan), Server("outer", lifespan=lifespan)

    @inner.tool
    async def state(ctx: Context) -> str:
        return str(ctx.state)

    server.mount(inner, "i")
    async with raw_client(server, revision) as client:
        await asyncio.gather(server.start(), server.start())
        await asyncio.gather(server.stop(), server.stop())
        assert await client.text("i_state") == "state of inner"  # one who started is still there
        assert server.state == "state of outer"
    assert log == ["enter inner", "enter outer", "leave outer", "leave inner"]


@live
async def test_a_lifespan_that_fails_fails_everybody_who_waits_and_is_tried_again() -> None:
    tries: list[int] = []
    gate = asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None]:
        tries.append(1)
        await gate.wait()
        if len(tries) == 1:
            raise OSError("no database")
        yield

    server = Server("s", lifespan=lifespan)
    both = [asyncio.ensure_future(server.start()) for _ in range(2)]
    await asyncio.sleep(0)
    gate.set()
    found = await asyncio.gather(*both, return_exceptions=True)
    assert [str(one) for one in found] == ["no database", "no database"]
    await server.start()
    await server.stop()
    assert len(tries) == 2


def test_a_server_whose_loop_ended_without_a_word_starts_anew() -> None:
    log: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[None]:
        log.append("enter")
        yield
        log.append("leave")

    server = Server("s", lifespan=lifespan)

    async def begun_and_ended() -> None:
        await server.start()
        await server.stop()

    asyncio.run(server.start())
    asyncio.run(begun_and_ended())
    assert log == ["enter", "enter", "leave"]


@live
async def test_run_inside_a_loop_says_what_to_do() -> None:
    with pytest.raises(LocalProtocolError, match=r"await server\.serve"):
        Server("s").run()
    with pytest.raises(LocalProtocolError, match="there are 'stdio' and 'http'"):
        await Server("s").serve("carrier pigeon")  # type: ignore[arg-type]


def test_a_port_in_use_is_raised_without_the_frames_of_the_event_loop() -> None:
    in_use = pytest.raises(LocalProtocolError, match="is in use; choose another")
    with socket.create_server(("127.0.0.1", 0)) as taken, in_use as raised:
        Server("s").run("http", port=taken.getsockname()[1])
    assert [frame.name for frame in raised.traceback][1:] == ["run"]
    assert raised.value.__context__ is None or raised.value.__suppress_context__


def test_an_unknown_transport_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="unknown transport 'x'"):
        Server("s").run("x")  # type: ignore[arg-type]


# ---------------------------------------------------------------- types


def test_decorators_keep_the_type_of_a_function() -> None:
    server = Server("s")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(title="Mul", timeout_s=1)
    async def mul(a: int) -> float:
        return a

    @server.resource("a://{name}")
    def read(name: str) -> str:
        return name

    @server.prompt
    def ask(name: str) -> str:
        return name

    @server.prompt(tags={"x"})
    def ask_more(name: str, n: int = 1) -> list[str]:
        return [name] * n

    @server.completion(read, "name")
    def names(prefix: str) -> list[str]:
        return [prefix]

    assert_type(add(1, 2), int)
    assert_type(read("x"), str)
    assert_type(ask("x"), str)
    assert_type(ask_more("x"), list[str])
    assert_type(names("x"), list[str])
    typed: Callable[[int, int], int] = add
    assert typed(1, 2) == 3
    assert asyncio.run(mul(2)) == 2


def test_a_lifespan_that_could_not_be_entered_is_refused_when_it_is_given() -> None:
    @contextmanager
    def blocking(server: Server) -> Generator[None]:
        yield

    @asynccontextmanager  # type: ignore[arg-type]
    async def returning(server: Server) -> int:
        return 1

    for wrong, words in ((blocking, "blocking is not async"), (returning, "does not yield")):
        with pytest.raises(LocalProtocolError, match=words):
            Server("s", lifespan=wrong)  # type: ignore[arg-type]


@live
async def test_a_lifespan_need_not_take_the_server(revision: Revision) -> None:
    @asynccontextmanager
    async def opened() -> AsyncGenerator[str]:
        yield "db"

    server = Server("s", lifespan=opened)

    @server.tool
    async def state(ctx: Context) -> str:
        return ctx.state

    async with raw_client(server, revision) as client:
        assert await client.text("state") == "db"
