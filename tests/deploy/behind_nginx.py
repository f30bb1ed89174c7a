"""A server behind a real nginx with TLS, as `examples/deploy` sets it up. `scripts/deploy` runs this.

It is no part of `scripts/test`, which needs no nginx. What a client does here it does by the public
name, https://mcp.example.com/mcp, through a tunnel on loopback.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from colonnade import Client, ColonnadeError, Context, Limits, Server, connect
from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025
from deploy.nginx import NAME, START_S, NginxProxy, nginx_proxy, tunnel

URL = f"https://{NAME}/mcp"
BOTH = [NOVEMBER_2025.date, JULY_2026.date]
KEEP_ALIVE_S = 0.5
SILENCE_S = 3


class Things:
    """A server for these tests, and what its calls wait for."""

    def __init__(self) -> None:
        self.server = Server("weather", version="1.0")
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()
        server = self.server

        @server.tool
        def echo(text: str) -> int:
            return len(text)

        @server.tool
        async def steps(ctx: Context) -> str:
            await ctx.progress(1, 2, "begun")
            await self.go.wait()
            return "done"

        @server.tool
        async def silent(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "after all"

        @server.tool
        async def ask(ctx: Context) -> str:
            return await ctx.elicit("Which city?", str)

        @server.tool
        async def endless(ctx: Context) -> None:
            await ctx.progress(1, 2)
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.set()

        @server.resource("weather://today")
        def today() -> str:
            return "sun"


@contextlib.asynccontextmanager
async def behind(
    folder: Path, things: Things, keep_alive_s: float = KEEP_ALIVE_S, **changed: str
) -> AsyncGenerator[NginxProxy]:
    """The server and nginx in front of it."""
    started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        things.server.serve(
            "http",
            port=0,
            hosts=[NAME],
            limits=Limits(keep_alive_interval_s=keep_alive_s),
            started=started.set_result,
        )
    )
    try:
        site = await asyncio.wait_for(started, START_S)
        async with nginx_proxy({"127.0.0.1:8000": site.port}, folder, **changed) as proxy:
            yield proxy
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def client_through(
    nginx: NginxProxy, revision: str, patch: pytest.MonkeyPatch, url: str = URL, **options: Any
) -> AsyncGenerator[Client]:
    """A client that knows nothing but the public address."""
    async with tunnel(nginx) as proxy:
        for other in ("https_proxy", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
            patch.delenv(other, raising=False)
        patch.setenv("HTTPS_PROXY", proxy)
        patch.setenv("SSL_CERT_FILE", str(nginx.authority.file))
        async with connect(url, revision=revision, **options) as client:
            assert client.revision == revision
            yield client


def play(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 2 * START_S))


@pytest.mark.parametrize("revision", [revision.date for revision in ALL])
def test_every_revision_is_spoken_through_it(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        things = Things()
        first = revision == ALL[0].date
        url = f"https://{NAME}/sse" if first else URL
        async with (
            behind(tmp_path, things) as proxy,
            client_through(proxy, revision, monkeypatch, url) as client,
        ):
            assert (await client.call_tool("echo", {"text": "pear"}, returns=int)).data == 4
            read = await client.read_resource("weather://today")
            assert read.contents[0].text == "sun"

    play(test())


async def reported(
    folder: Path, patch: pytest.MonkeyPatch, revision: str, **changed: str
) -> list[str | None]:
    """What was heard of a call while it still ran."""
    things, heard, begun = Things(), list[str | None](), asyncio.Event()

    def step(done: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        begun.set()

    async with (
        behind(folder, things, KEEP_ALIVE_S, **changed) as proxy,
        client_through(proxy, revision, patch) as client,
    ):
        call = asyncio.create_task(client.call_tool("steps", on_progress=step))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(begun.wait(), 10)
        early = list(heard)
        things.go.set()
        assert (await call).text == "done"
    return early


@pytest.mark.parametrize("revision", BOTH)
def test_progress_arrives_while_the_call_runs(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        assert await reported(tmp_path, monkeypatch, revision) == ["begun"]

    play(test())


@pytest.mark.parametrize("revision", BOTH)
def test_a_silent_call_outlives_the_time_out_of_nginx(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its own 120 s it would take long; with 2 s it is the same."""

    async def test() -> None:
        things = Things()
        async with (
            behind(tmp_path, things, proxy_read_timeout="2s") as proxy,
            client_through(proxy, revision, monkeypatch) as client,
        ):
            assert (await client.call_tool("silent", {"seconds": SILENCE_S})).text == "after all"

    play(test())


def test_a_server_that_keeps_nothing_alive_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        things = Things()
        async with (
            behind(tmp_path, things, 3600.0, proxy_read_timeout="2s") as proxy,
            client_through(proxy, JULY_2026.date, monkeypatch) as client,
        ):
            with pytest.raises(ColonnadeError, match="504"):
                await client.call_tool("silent", {"seconds": SILENCE_S})

    play(test())


@pytest.mark.parametrize("revision", BOTH)
def test_a_question_goes_through_and_its_answer_comes_back(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        things = Things()
        async with (
            behind(tmp_path, things) as proxy,
            client_through(proxy, revision, monkeypatch, on_elicit=lambda _: "Oslo") as client,
        ):
            assert (await client.call_tool("ask")).text == "Oslo"

    play(test())


@pytest.mark.parametrize("revision", BOTH)
def test_whoever_gives_up_is_noticed_by_the_server(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        things, begun = Things(), asyncio.Event()
        async with (
            behind(tmp_path, things) as proxy,
            client_through(proxy, revision, monkeypatch) as client,
        ):
            call = asyncio.create_task(
                client.call_tool("endless", on_progress=lambda *_: begun.set())
            )
            await asyncio.wait_for(begun.wait(), START_S)
            call.cancel()
            await asyncio.wait_for(things.cancelled.wait(), START_S)

    play(test())


@pytest.mark.parametrize("revision", BOTH)
def test_a_notification_arrives(
    revision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        things = Things()
        async with (
            behind(tmp_path, things) as proxy,
            client_through(proxy, revision, monkeypatch) as client,
            client.listen(resources=["weather://today"]) as changes,
        ):
            things.server.updated("weather://today")
            async with asyncio.timeout(START_S):
                change = await anext(aiter(changes))
            assert change.uri == "weather://today"

    play(test())


# ---------------------------------------------------------------- sizes, names, and plain HTTP

META = {
    "io.modelcontextprotocol/protocolVersion": JULY_2026.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def posted(host: str, text: str = "pear", **headers: str) -> bytes:
    """A call as it goes over the wire."""
    params = {"name": "echo", "arguments": {"text": text}, "_meta": META}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(call).encode()
    lines = {
        "Host": host,
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": JULY_2026.date,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo",
        "Content-Length": str(len(body)),
        "Connection": "close",
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (posted(NAME), 200, b'"text":"4"'),
        (posted(NAME, "a" * (4 * 1024 * 1024 - 4096)), 200, b'"text":"4190208"'),
        (posted(NAME, "a" * (4 * 1024 * 1024 + 4096)), 413, b'"jsonrpc"'),
        (posted(NAME, "a" * (6 * 1024 * 1024)), 413, b"<html>"),
        (posted("evil.example"), 403, b"is not this server"),
        (posted("127.0.0.1"), 200, b'"text":"4"'),
        (posted("192.0.2.7"), 403, b"is not this server"),
        (posted(NAME, **{"X-Forwarded-Host": "evil.example"}), 200, b'"text":"4"'),
        (posted("evil.example", **{"X-Forwarded-Host": NAME}), 403, b"is not this server"),
        (posted(NAME, Origin=f"https://{NAME}"), 200, b'"text":"4"'),
        (posted(NAME, Origin="https://evil.example"), 403, b"Origin"),
        (posted(NAME, Filler="x" * 12_000), 200, b'"text":"4"'),
    ],
    ids=[
        "the name",
        "a body as large as it may be",
        "one that is larger",
        "one that is larger than nginx takes",
        "another name",
        "the loopback address",
        "another address",
        "a forwarded name beside the real one",
        "a forwarded name beside another one",
        "a page of its own",
        "a page of somebody else",
        "large headers",
    ],
)
def test_what_gets_through(request_: bytes, status: int, words: bytes, tmp_path: Path) -> None:
    async def test() -> None:
        async with behind(tmp_path, Things()) as proxy:
            said = await proxy.said(request_)
        assert said.split(b" ", 2)[1] == str(status).encode(), said[:400]
        assert words in said

    play(test())


def test_plain_http_is_sent_to_tls(tmp_path: Path) -> None:
    async def test() -> None:
        async with behind(tmp_path, Things()) as proxy:
            said = await proxy.said(posted(NAME), tls=False)
        assert said.startswith(b"HTTP/1.1 308 ")
        assert f"Location: {URL}".encode() in said

    play(test())


# ---------------------------------------------------------------- what the settings are for


def test_without_its_body_size_nginx_refuses_what_the_server_takes(tmp_path: Path) -> None:
    async def test() -> None:
        async with behind(tmp_path, Things(), client_max_body_size="1m") as proxy:
            said = await proxy.said(posted(NAME, "a" * (2 * 1024 * 1024)))
        assert said.startswith(b"HTTP/1.1 413 ")
        assert b"<html>" in said

    play(test())


def test_without_the_name_nothing_gets_through(tmp_path: Path) -> None:
    """nginx would send the name of its upstream."""

    async def test() -> None:
        async with behind(
            tmp_path, Things(), KEEP_ALIVE_S, **{"proxy_set_header Host": "$proxy_host"}
        ) as proxy:
            said = await proxy.said(posted(NAME))
        assert said.startswith(b"HTTP/1.1 403 ")

    play(test())


def test_where_answers_are_buffered_progress_still_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server says so of each stream itself (X-Accel-Buffering): the setting is a second lock."""

    async def test() -> None:
        early = await reported(tmp_path, monkeypatch, JULY_2026.date, proxy_buffering="on")
        assert early == ["begun"]

    play(test())


def test_where_it_is_buffered_in_spite_of_that_progress_comes_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        buffered = "on; proxy_ignore_headers X-Accel-Buffering"
        early = await reported(tmp_path, monkeypatch, JULY_2026.date, proxy_buffering=buffered)
        assert early == []

    play(test())
