"""The official Python SDK, 1.x or 2.x, as a client that logs in and stays logged in.

    python client_mcp.py '{"url": "http://...", "era": "2026-07-28", "clock": "/..."}'

Run by the Python of the SDK's environment. The file of the clock has the seconds by which time.time
is ahead of real time. Reads a command from each line of its input, JSON with `do` (connect, call or
close) and `calls` (how many at once), and prints {"done"} or {"failed"}. For a login it prints
{"open": URL} and reads {"callback": URL}.

The provider of credentials is one object for all connections: after a restart the SDK does not know
when a token expires, and begins a login instead of a refresh.

It begins one after every 401 (`OAuthClientProvider._auth_flow`), also for the stream that it opens
again by itself a second after a process was restarted. The clock moves by minutes between calls: if
it did so after the SDK has found its token valid and before the server has, there would be a login
that no real clock causes. So each request of the SDK, with its check of the token, locks the clock.

Rules: judges nothing. Imports nothing of ours.
"""

# pyright: reportMissingImports=false

import asyncio
import contextlib
import fcntl
import json
import mmap
import struct
import sys
import time
import traceback
from importlib.metadata import version
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import mcp
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata

SECOND = version("mcp").startswith("2.")
REDIRECT = "http://127.0.0.1:43117/callback"
TIMEOUT_S = 60.0

SPEC = json.loads(sys.argv[1])
with open(SPEC["clock"], "rb") as file:
    _shared = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
_real_time = time.time
time.time = lambda: _real_time() + struct.unpack("<d", _shared[:8])[0]


def report(**line: Any) -> None:
    print(json.dumps(line), flush=True)


async def read() -> dict[str, Any]:
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else {}


class Storage:
    """Tokens and the client in memory."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def open_page(url: str) -> None:
    report(open=url)


async def wait_for_callback() -> Any:
    found = dict(parse_qsl(urlsplit((await read())["callback"]).query))
    if not SECOND:
        return found["code"], found["state"]
    from mcp.shared.auth import AuthorizationCodeResult

    return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found["iss"])


class Driver:
    """The provider of credentials, and a connection, which is a task: 1.x cancels the task that has
    opened a connection if a request gets an error status."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        metadata = OAuthClientMetadata(
            client_name=f"mcp {version('mcp')}",
            redirect_uris=[REDIRECT],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
        )
        self.auth = OAuthClientProvider(
            spec["url"], metadata, Storage(), open_page, wait_for_callback
        )
        self.calls: asyncio.Queue[tuple[int, asyncio.Future[Any]] | None] = asyncio.Queue()
        self.connection: asyncio.Task[None] | None = None

    async def do(self, what: str, calls: int) -> Any:
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if what == "connect":
            self.calls = asyncio.Queue()
            self.connection = asyncio.create_task(self.serve(result))
        assert self.connection is not None
        if what == "close":
            self.calls.put_nowait(None)
            await asyncio.wait({self.connection})
            return "closed"
        if what == "call":
            self.calls.put_nowait((calls, result))
        await asyncio.wait({self.connection, result}, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        await self.connection
        raise RuntimeError("the connection ended")

    async def serve(self, connected: "asyncio.Future[Any]") -> None:
        """Connect, and call until there is nothing more to call."""
        async with contextlib.AsyncExitStack() as stack:
            api = await self.connect(stack)
            connected.set_result(self.spec["era"])
            while (wanted := await self.calls.get()) is not None:
                calls, result = wanted
                said = await asyncio.gather(*(api.call_tool("whoami", {}) for _ in range(calls)))
                result.set_result([one.content[0].text for one in said])

    async def connect(self, stack: contextlib.AsyncExitStack) -> Any:
        enter = stack.enter_async_context
        if SECOND:
            import httpx2 as httpx
        else:
            import httpx
        async_client: Any = httpx.AsyncClient

        class ClockedClient(async_client):
            """Sends each request at one time, from the check of its token to its response."""

            async def send(self, *request: Any, **more: Any) -> Any:
                with open(SPEC["clock"], "rb") as clock:
                    fcntl.flock(clock, fcntl.LOCK_SH)  # the battery has it for an instant
                    return await super().send(*request, **more)

        http = await enter(ClockedClient(auth=self.auth, timeout=TIMEOUT_S))
        transport = streamable_http_client(self.spec["url"], http_client=http)
        if SECOND:
            mode = "auto" if self.spec["era"] == "2026-07-28" else "legacy"
            return await enter(mcp.Client(transport, mode=mode))
        streams = await enter(transport)
        session = await enter(ClientSession(*streams[:2]))
        await session.initialize()
        return session


async def main(spec: dict[str, Any]) -> None:
    driver = Driver(spec)
    while command := await read():
        try:
            report(done=await driver.do(command["do"], command["calls"]))
        except (Exception, asyncio.CancelledError):  # of the connection
            report(failed=traceback.format_exc())


if __name__ == "__main__":
    asyncio.run(main(SPEC))
