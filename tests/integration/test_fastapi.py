"""MCP in a FastAPI application, around it and inside it, on web servers that know nothing of us.

Rules: each web server is a real process on a free port, asked over sockets, ended by SIGTERM.
"""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from http_client import Caller, Response
from live import live_for

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parent.parent / "examples" / "fastapi_app.py"
# Two interpreters and a web server start on a machine that does other things, too.
WAIT_S = 60.0
WELL_KNOWN = "/.well-known/oauth-protected-resource"
CALL = {"name": "look_up", "arguments": {"key": "emma"}}
LISTEN = {"notifications": {"toolsListChanged": True}}
NO_MOUNT = "Starlette itself redirects a path to the mount at it, before the mount is asked"


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as knocking:
        return knocking.connect_ex(("127.0.0.1", port)) == 0


class WebServer:
    """A web server's process, its port, and what was printed in it."""

    def __init__(self, command: list[str], port: int | None = None) -> None:
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._port = port
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())
            found = re.search(r" on http://127\.0\.0\.1:(\d+)", line)
            if found:
                self._port = int(found[1])
            if found or "Started worker" in line:
                self._ready.set()
        self._ready.set()  # or never

    @property
    def port(self) -> int:
        """Where it listens, once it does."""
        assert self._ready.wait(WAIT_S), self.lines
        assert self._port is not None, self.lines
        ends = time.monotonic() + WAIT_S
        while not accepts(self._port):  # a worker says that it has started a little before it has
            assert time.monotonic() < ends, self.lines
            time.sleep(0.02)
        return self._port

    def said(self, count: int = 0) -> list[str]:
        """When the two lifespans were entered and left, once there are so many lines of it: they are
        read in a thread, and may come after a response."""
        ends = time.monotonic() + WAIT_S
        while len(self._said()) < count and time.monotonic() < ends:
            time.sleep(0.02)
        return self._said()

    def _said(self) -> list[str]:
        # Two processes write there, and one line may begin within another.
        return re.findall(r"(?:api|server) (?:entered|left)", "\n".join(self.lines))

    def end(self) -> int:
        """What the process returned, after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code


def uvicorn(app: str) -> WebServer:
    directory = str(HERE)
    return WebServer(
        [
            sys.executable,
            "-m",
            "uvicorn",
            "--app-dir",
            directory,
            f"fastapi_books:{app}",
            "--port=0",
        ]
    )


def granian(app: str) -> WebServer:
    with socket.socket() as free:  # it does not say which port it got, so it is told one
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "granian", "--interface=asgi", f"--port={port}"]
    return WebServer([*command, f"--working-dir={HERE}", f"fastapi_books:{app}"], port)


# uvicorn ends as the signal would have ended it, after all is done; granian says that all is well.
SERVERS = {"uvicorn": (uvicorn, -signal.SIGTERM), "granian": (granian, 0)}


@contextmanager
def served(by: str, app: str) -> Generator[WebServer]:
    """A web server with one of the applications, which has ended well afterwards."""
    start, code = SERVERS[by]
    server = start(app)
    try:
        assert server.port
        yield server
        assert server.end() == code, server.lines
    finally:
        _kill(server.process)
        server._reader.join(WAIT_S)
        assert server.process.stdout is not None
        server.process.stdout.close()


def _kill(process: "subprocess.Popen[str]") -> None:
    """The process, if it is still there, and those that it started."""
    if process.poll() is None:
        found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True)
        for child in found.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        process.kill()
    process.wait()


async def calls_in_both_eras(caller: Caller) -> None:
    book = {"title": "Emma", "pages": 474}
    modern = await caller.modern("tools/call", CALL)
    assert (modern.status, modern.json["result"]["structuredContent"]) == (200, book)
    opened = await caller.initialize("2025-11-25")
    assert opened.status == 200
    legacy = await caller.ask("tools/call", CALL)
    assert (legacy.status, legacy.json["result"]["structuredContent"]) == (200, book)
    assert (await caller.request("DELETE")).status == 200
    caller.session = caller.revision = None


async def got(caller: Caller, path: str) -> Response:
    return await caller.request("GET", path=path, accept="*/*")


@pytest.mark.parametrize("by", SERVERS)
@live_for(5 * WAIT_S)
async def test_around_an_application_our_paths_are_ours_and_the_rest_is_theirs(by: str) -> None:
    with served(by, "around") as server:
        async with Caller(server.port) as caller:
            assert server.said(2) == ["server entered", "api entered"]
            await calls_in_both_eras(caller)
            caller.path = "/mcp/"
            await calls_in_both_eras(caller)
            assert (await got(caller, "/hello")).json == {"hello": "you"}
            assert b"<html>elsewhere</html>" in (await got(caller, "/elsewhere")).body
            ours = await got(caller, f"{WELL_KNOWN}/mcp")
            assert (ours.status, ours.headers["content-type"]) == (404, "application/json")
            assert ours.json["error"]["message"] == "this resource has no metadata document"
            # The one of the root is about their own resource, if they have one.
            assert b"<html>" in (await got(caller, WELL_KNOWN)).body
    assert server.said() == ["server entered", "api entered", "api left", "server left"]


@pytest.mark.parametrize("by", SERVERS)
@live_for(5 * WAIT_S)
async def test_mounted_last_at_the_root_nothing_is_redirected(by: str) -> None:
    with served(by, "mounted") as server:
        async with Caller(server.port) as caller:
            assert server.said(1) == ["api entered"]
            await calls_in_both_eras(caller)
            caller.path = "/mcp/"
            await calls_in_both_eras(caller)
            assert server.said(2) == ["api entered", "server entered"]
            assert (await got(caller, "/hello")).json == {"hello": "you"}
            ours = await got(caller, f"{WELL_KNOWN}/mcp")
            assert (ours.status, "error" in ours.json) == (404, True)
    assert sorted(server.said()) == ["api entered", "api left", "server entered", "server left"]


@pytest.mark.parametrize("by", SERVERS)
@live_for(5 * WAIT_S)
async def test_mounted_at_its_own_path_it_is_there_and_only_their_router_redirects(
    by: str,
) -> None:
    with served(by, "at_path") as server:
        async with Caller(server.port, "/mcp/") as caller:
            await calls_in_both_eras(caller)
            redirected = await caller.modern("tools/call", CALL, path="/mcp")
            assert (redirected.status, redirected.headers["location"][-5:]) == (307, "/mcp/"), (
                NO_MOUNT
            )
            assert (await got(caller, "/hello")).json == {"hello": "you"}
            assert (await got(caller, "/elsewhere")).json == {"detail": "Not Found"}
    assert sorted(server.said()) == ["api entered", "api left", "server entered", "server left"]


@pytest.mark.parametrize("app", ["around", "mounted"])
@pytest.mark.parametrize("by", SERVERS)
@live_for(5 * WAIT_S)
async def test_sigterm_ends_a_stream_that_would_last_for_ever(by: str, app: str) -> None:
    with served(by, app) as server:
        async with Caller(server.port) as caller:
            _, stream = await caller.stream("subscriptions/listen", LISTEN)
            await stream.message()
            server.process.send_signal(signal.SIGTERM)
            last = (await stream.rest())[-1]
            assert b'"resultType":"complete"' in last.data
            await asyncio.to_thread(server.process.wait, WAIT_S)
    assert sorted(server.said()) == ["api entered", "api left", "server entered", "server left"]


@live_for(5 * WAIT_S)
async def test_the_example_runs_on_our_own_server_and_ends_with_0() -> None:
    server = WebServer([sys.executable, "-W", "error", str(EXAMPLE), "0"])
    try:
        async with Caller(server.port) as caller:
            found = await caller.call("look_up", key="emma")
            assert found.json["result"]["structuredContent"] == {"title": "Emma", "pages": 474}
            assert (await caller.call("add", book={"title": "Ulysses", "pages": 730})).text
            assert (await got(caller, "/books/ulysses")).json["pages"] == 730
            missing = await caller.call("look_up", key="dune")
            assert missing.json["result"]["isError"] is True
        assert await asyncio.to_thread(server.end) == 0
        assert server.lines[0] == "the API has started"
        assert server.lines[-1] == "the API has ended"
    finally:
        _kill(server.process)
        server._reader.join(WAIT_S)
        assert server.process.stdout is not None
        server.process.stdout.close()
