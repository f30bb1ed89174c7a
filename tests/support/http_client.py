"""An HTTP client for tests that hides nothing: what it writes and reads is what is on the socket.

Rules: no rule of the protocol is decided here. Every wait ends.
"""

import asyncio
import json
from typing import Any

from colonnade.protocol.http.sse import EventStreamParser, ServerSentEvent

WAIT_S = 60.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
BOTH = "application/json, text/event-stream"


def opening(date: str, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """An `initialize`."""
    params = {
        "protocolVersion": date,
        "capabilities": capabilities or {},
        "clientInfo": {"name": "caller", "version": "1.0"},
    }
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def cancelled(id: Any) -> dict[str, Any]:
    """A wish to cancel."""
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


class Response:
    """The head of an answer, and its body as it comes."""

    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader
        self._parser = EventStreamParser()
        self._events: list[ServerSentEvent] = []
        self.body = b""
        self.ended = False

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        return self.json["error"]["code"]

    @property
    def text(self) -> str:
        """The text of a tool's result."""
        return self.json["result"]["content"][0]["text"]

    async def read(self) -> bytes:
        """The whole body."""
        async with asyncio.timeout(WAIT_S):
            while chunk := await self._chunk():
                self.body += chunk
        return self.body

    async def _chunk(self) -> bytes:
        """The next piece of the body; empty at its end."""
        if self.ended:
            return b""
        if self.headers.get("transfer-encoding") != "chunked":
            length = int(self.headers.get("content-length", "0"))
            self.ended = True
            return await self._reader.readexactly(length)
        line = await self._reader.readline()
        size = int(line or b"0", 16)
        data = await self._reader.readexactly(size)
        await self._reader.readline()
        self.ended = size == 0
        return data

    async def event(self) -> ServerSentEvent:
        """The next event; raises EOFError at the end of the stream."""
        async with asyncio.timeout(WAIT_S):
            while not self._events:
                chunk = await self._chunk()
                if not chunk:
                    raise EOFError
                self.body += chunk
                self._events = self._parser.feed(chunk)
        return self._events.pop(0)

    async def message(self) -> Any:
        """The next event that carries a message, decoded."""
        while True:
            event = await self.event()
            if event.data:
                return json.loads(event.data)

    async def numbered(self) -> ServerSentEvent:
        """The next event that carries a message, as it came."""
        while not (event := await self.event()).data:
            pass
        return event

    async def rest(self) -> list[ServerSentEvent]:
        """Every event until the stream ends."""
        found: list[ServerSentEvent] = []
        try:
            while True:
                found.append(await self.event())
        except EOFError:
            return found


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> "Wire":
        async with asyncio.timeout(WAIT_S):
            return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Response:
        """The head of the next answer."""
        async with asyncio.timeout(WAIT_S):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.strip().split("\r\n")
        headers = {n.lower(): v for n, v in (line.split(": ", 1) for line in lines)}
        return Response(int(first.split()[1]), headers, self.reader)

    async def closed(self) -> bool:
        """Wait until the other side closes."""
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
        return True

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """Close as rudely as it gets."""
        self.writer.transport.abort()


def written(method: str, path: str, headers: dict[str, str | None], body: bytes = b"") -> bytes:
    """A request as bytes; a header that is None is left out."""
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


class Caller:
    """A client of one port. Requests that are not asked for by hand have the usual headers."""

    def __init__(self, port: int, path: str = "/mcp") -> None:
        self.port = port
        self.path = path
        self.session: str | None = None
        self.revision: str | None = None
        self.wires: list[Wire] = []

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *_: object) -> None:
        for wire in self.wires:
            wire.abort()

    async def wire(self) -> Wire:
        """A connection that nothing was said on."""
        wire = await Wire.open(self.port)
        self.wires.append(wire)
        return wire

    async def begin(
        self, method: str, body: bytes = b"", path: str | None = None, **headers: Any
    ) -> tuple[Wire, Response]:
        """Send a request and get the head of its answer; `mcp_name=` stands for `Mcp-Name:`."""
        wire = await self.wire()
        said: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}", "accept": BOTH}
        if method == "POST":
            said["content-type"] = "application/json"
        if self.session is not None:
            said["mcp-session-id"] = self.session
        if self.revision is not None:
            said["mcp-protocol-version"] = self.revision
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        await wire.send(written(method, path or self.path, said, body))
        return wire, await wire.head()

    async def request(
        self, method: str, body: bytes = b"", path: str | None = None, **headers: Any
    ) -> Response:
        """The whole answer to a request."""
        wire, response = await self.begin(method, body, path, **headers)
        await response.read()
        wire.close()
        return response

    async def post(self, message: Any, **headers: Any) -> Response:
        return await self.request("POST", json.dumps(message).encode(), **headers)

    # ------------------------------------------------------------ modern

    async def modern(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        id: Any = 1,
        meta: dict[str, Any] | None = None,
        **headers: Any,
    ) -> Response:
        """One enveloped request and its whole answer."""
        wire, response = await self.stream(method, params, id=id, meta=meta, **headers)
        await response.read()
        wire.close()
        return response

    async def stream(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        id: Any = 1,
        meta: dict[str, Any] | None = None,
        **headers: Any,
    ) -> tuple[Wire, Response]:
        """One enveloped request and the head of its answer."""
        members = {**(params or {}), "_meta": META | (meta or {})}
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": members}
        said: dict[str, Any] = {
            "mcp_protocol_version": META["io.modelcontextprotocol/protocolVersion"],
            "mcp_method": method,
            "mcp_name": members.get("name") or members.get("uri"),
        }
        return await self.begin("POST", json.dumps(body).encode(), **(said | headers))

    async def call(self, tool: str, **arguments: Any) -> Response:
        return await self.modern("tools/call", {"name": tool, "arguments": arguments})

    # ------------------------------------------------------------ handshakes

    async def initialize(
        self, date: str, capabilities: dict[str, Any] | None = None, **headers: Any
    ) -> Response:
        """Open a session and remember it."""
        response = await self.post(opening(date, capabilities), **headers)
        self.session = response.headers.get("mcp-session-id")
        if self.session is not None:
            self.revision = response.json["result"]["protocolVersion"]
            told = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            assert told.status == 202, told.body
        return response

    async def ask(
        self, method: str, params: dict[str, Any] | None = None, *, id: Any = 1, **headers: Any
    ) -> Response:
        """One request of the session and its whole answer."""
        wire, response = await self.asking(method, params, id=id, **headers)
        await response.read()
        wire.close()
        return response

    async def asking(
        self, method: str, params: dict[str, Any] | None = None, *, id: Any = 1, **headers: Any
    ) -> tuple[Wire, Response]:
        """One request of the session and the head of its answer."""
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
        return await self.begin("POST", json.dumps(body).encode(), **headers)

    async def get(self, **headers: Any) -> tuple[Wire, Response]:
        """Open a stream."""
        said: dict[str, Any] = {"accept": "text/event-stream", **headers}
        return await self.begin("GET", **said)
