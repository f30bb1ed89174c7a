"""How things are thrown at a live server over sockets, and how its answers are looked at.

Rules: every wait has an end. A connection that the server keeps open is used again: what was thrown
must not have broken it.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from colonnade.ports import Handler, RequestContext
from colonnade.protocol.types import ProtocolType
from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.runner import DEFAULT_LIMITS, RunLimits, listening
from hostile.items import ERROR, Era, Want
from hostile.target import make
from http_client import BOTH, Caller, Response, Wire, written

# What no answer to a stranger may have in it.
LEAKS = (b"Traceback", b"colonnade/", b'File "', b"site-packages", b"a secret of the author")


class HostileSender:
    """A client of one era that sends bytes as they are."""

    def __init__(self, port: int, era: Era) -> None:
        self.port = port
        self.era = era
        self.caller = Caller(port)
        self.calls = 0

    async def count(self, request: RequestContext, handler: Handler) -> ProtocolType:
        """A layer of the server: whatever gets this far has been let in."""
        self.calls += 1
        return await handler(request)

    async def open(self) -> None:
        if not self.era.modern:
            assert (await self.caller.initialize(self.era.date)).status == 200

    async def close(self) -> None:
        if self.caller.session is not None:
            assert (await self.caller.request("DELETE")).status == 200
        for wire in self.caller.wires:
            wire.abort()

    def head(self, method: str = "tools/call", name: str | None = "echo") -> dict[str, str | None]:
        """The headers of a good request."""
        said: dict[str, str | None] = {
            "host": f"127.0.0.1:{self.port}",
            "accept": BOTH,
            "content-type": "application/json",
            "mcp-protocol-version": self.era.date,
        }
        if self.era.modern:
            return said | {"mcp-method": method, "mcp-name": name}
        return said | {"mcp-session-id": self.caller.session}

    async def post(
        self, body: bytes, wire: Wire | None = None, **changes: str | None
    ) -> tuple[Wire, Response]:
        """Send a body with good headers, some of them changed, and get the whole answer."""
        wire = wire or await self.caller.wire()
        head = self.head() | {name.replace("_", "-"): value for name, value in changes.items()}
        await wire.send(written("POST", "/mcp", head, body))
        response = await wire.head()
        await response.read()
        return wire, response

    async def is_served(self, wire: Wire | None = None) -> Wire:
        """A good request is answered well, on this connection or on a new one."""
        wire, response = await self.post(self.era.frame(b'"fine"'), wire)
        assert (response.status, response.text) == (200, '"fine"'), response.body
        return wire

    async def throw(self, body: bytes, want: Want) -> Response:
        """Throw a body; check its answer, and that the next ones are served."""
        wire, response = await self.post(body)
        self.check(response, want)
        if response.headers.get("connection") != "close":
            await self.is_served(wire)
        else:
            assert await wire.closed()
        wire.close()
        (await self.is_served()).close()
        return response

    def look(self, body: bytes) -> None:
        """Nothing of ours may be told."""
        assert not any(leak in body for leak in LEAKS), body[:500]

    def check(self, response: Response, want: Want) -> None:
        assert response.status == want.status, (response.status, response.body[:500])
        self.look(response.body)
        if response.body:
            check_answer(response.json, want)
        else:
            assert want.code is None


def check_answer(answer: Any, want: Want) -> None:
    """Whether a message is the answer that was wanted."""
    assert answer["jsonrpc"] == "2.0"
    if "error" in answer:
        assert answer["error"]["code"] == want.code, str(answer)[:500]
        assert isinstance(answer["error"]["message"], str)
        assert len(answer["error"]["message"]) < 1000
        return
    assert want.code in (None, ERROR), str(answer)[:500]
    assert bool(answer["result"].get("isError")) is (want.code == ERROR), str(answer)[:500]
    if want.text is not None:
        assert answer["result"]["content"][0]["text"] == want.text


@asynccontextmanager
async def hostile_sender(
    era: Era, *, run: RunLimits = DEFAULT_LIMITS, limits: Limits | None = None
) -> AsyncGenerator[HostileSender]:
    """A live server on a free port, and somebody who means it harm."""
    server = make()
    app = server.asgi(limits=limits) if limits is not None else server.asgi()
    async with listening(app, port=0, run_limits=run) as site:
        found = HostileSender(site.port, era)
        await found.open()
        server.add_middleware(found.count)
        try:
            yield found
        finally:
            await found.close()


def call(era: Era, tool: str, **arguments: Any) -> bytes:
    """A call as bytes."""
    frame = era.frame(tool=tool.encode())
    return frame.replace(b'{"value":1}', json.dumps(arguments).encode())


def name_header(era: Era, name: str) -> str | None:
    """What is mirrored in the header of a modern request."""
    return name if era.modern else None
