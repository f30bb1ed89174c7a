"""Calls and errors over real sockets, between any two revisions: a client over HTTP, and a server
over HTTP or on a pipe."""

import asyncio
import sys
from pathlib import Path

import pytest

from colonnade import Context, Gateway, Host, RemoteError, Server, ToolError, connect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from gateway.raw_server import REVISIONS
from gateway.served import served
from gateway.tcp_record import recorded_port
from live import live

SOURCE = Path(__file__)


def everything() -> Server:
    server = Server("everything")

    @server.tool
    async def add(a: int, b: int, ctx: Context) -> int:
        await ctx.progress(0.5, 1.0, "half")
        await ctx.info("adding")
        return a + b

    @server.tool
    def fail() -> str:
        raise ToolError("not today")

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def greet(who: str) -> str:
        return f"hello {who}"

    _ = add, fail, note, greet
    return server


async def converse(gateway_url: str, downstream: str) -> None:
    progress: list[float] = []
    logs: list[str] = []
    async with connect(
        gateway_url,
        revision=downstream,
        on_progress=lambda one, *_: progress.append(one),
        on_log=lambda one: logs.append(one.level),
    ) as client:
        assert client.peer.revision.date == downstream
        assert sorted(tool.name for tool in await client.list_tools()) == ["s__add", "s__fail"]
        result = await client.call_tool("s__add", {"a": 1, "b": 2})
        assert result.text == "3"
        await client.wait_for_callbacks()
        assert (progress, logs) == ([0.5], ["info"])
        failed = await client.call_tool("s__fail")
        assert failed.is_error
        assert failed.text == "not today"
        with pytest.raises(RemoteError) as unknown:
            await client.call_tool("s__none")
        assert unknown.value.code == -32602
        assert (await client.read_resource("notes://a")).contents[0].text == "a"
        with pytest.raises(RemoteError) as missing:
            await client.read_resource("other://a")
        assert missing.value.code == (-32602 if downstream == REVISIONS[-1] else -32002)
        prompt = await client.get_prompt("s__greet", {"who": "Ann"})
        assert getattr(prompt.messages[0].content, "text", None) == "hello Ann"


@pytest.mark.parametrize("upstream", REVISIONS)
def test_every_client_calls_a_server_of_this_revision_over_http(upstream: str) -> None:
    @live
    async def exercise() -> None:
        async with served(everything()) as target:
            entry = entry_of("s", target, Settings(revision=upstream))
            async with Host({"s": entry}) as host, served(Gateway(host)) as url:
                for downstream in REVISIONS:
                    await converse(url, downstream)
                assert host.status()[0].revision == upstream

    exercise()


@pytest.mark.parametrize("upstream", REVISIONS)
def test_every_client_calls_a_server_of_this_revision_on_a_pipe(upstream: str) -> None:
    @live
    async def exercise() -> None:
        code = (
            f"import sys; sys.path[:0] = {[str(one) for one in sys.path]!r}; "
            "from gateway_wires import everything; everything().run()"
        )
        code = code.replace("gateway_wires", SOURCE.stem)
        path = str(SOURCE.parent)
        command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); {code}"]
        entry = entry_of("s", command, Settings(revision=upstream))
        for downstream in REVISIONS:
            async with Host({"s": entry}) as host, served(Gateway(host)) as url:
                await converse(url, downstream)

    exercise()


@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", [REVISIONS[3], REVISIONS[4]])
def test_a_cancellation_reaches_a_server_over_http_as_its_revision_has_it(
    downstream: str, upstream: str
) -> None:
    """2026-07-28 closes the connection of the request; others send a notification."""

    @live
    async def exercise() -> None:
        begun, cancelled, sent = asyncio.Event(), asyncio.Event(), list[bytes]()
        server = Server("waiting")

        @server.tool
        async def wait() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise
            return ""

        _ = wait
        async with served(server) as target:
            port = int(target.partition("127.0.0.1:")[2].partition("/")[0])
            async with recorded_port(port, sent) as relay:
                entry = entry_of("s", f"http://127.0.0.1:{relay}/mcp", Settings(revision=upstream))
                async with (
                    Host({"s": entry}) as host,
                    served(Gateway(host)) as url,
                    connect(url, revision=downstream) as client,
                ):
                    call = asyncio.ensure_future(client.call_tool("s__wait"))
                    await begun.wait()
                    call.cancel()
                    await cancelled.wait()
        is_notified = b"notifications/cancelled" in b"".join(sent)
        assert is_notified == (upstream != REVISIONS[-1])

    exercise()
