"""The same conversations over HTTP: sessions, streams beside posts, and posts that say it all.

Rules: as in `clients`. What is on the socket is what is written down: heads, and events line by line.
"""

import asyncio
import json
from typing import Any

from colonnade.protocol.revision import Revision
from http_client import Response, Wire, written
from wire.clients import WAIT_S, Call, Duplex, WireClient
from wire.transcript import JSON, Frame, HttpExchange, Transcript

JSON_TYPE = "application/json"
EVENTS_TYPE = "text/event-stream"
BOTH = f"{JSON_TYPE}, {EVENTS_TYPE}"
# What every request says, and so is not written down each time.
USUAL = ("host", "accept", "content-type")


class Stream:
    """The answer to one request, as it comes."""

    def __init__(
        self, transcript: Transcript, exchange: HttpExchange, wire: Wire, response: Response
    ) -> None:
        self.visit = exchange
        self.wire = wire
        self._transcript = transcript
        self._response = response
        self._rest = b""

    @property
    def last_id(self) -> str | None:
        """Where to go on from: the last id that an event had."""
        return next((one.id for one in reversed(self.visit.frames) if one.id is not None), None)

    async def body(self) -> bytes:
        """All of an answer that is no stream."""
        async with asyncio.timeout(WAIT_S):
            self.visit.answer = await self._response.read()
        self.visit.whole = True
        self.wire.close()
        return self.visit.answer

    async def frame(self, arrow: str = "   ") -> Frame | None:
        """The next event, written down; None at the end of the stream."""
        async with asyncio.timeout(WAIT_S):
            while b"\n\n" not in self._rest:
                chunk = await self._response._chunk()
                if not chunk:
                    assert not self._rest, f"the stream ends within {self._rest!r}"
                    self.visit.whole = True
                    self.wire.close()
                    return None
                self._rest += chunk
        block, _, self._rest = self._rest.partition(b"\n\n")
        frame = framed(block.decode())
        self.visit.frames.append(frame)
        return frame

    async def message(self, client: WireClient, arrow: str = "   ") -> JSON | None:
        """The next message, which comes alone; None at the end."""
        messages = await self.messages(client, arrow)
        assert len(messages) <= 1, messages
        return messages[0] if messages else None

    async def messages(self, client: WireClient, arrow: str = "   ") -> list[JSON]:
        """What the next event carries; nothing at the end. Empty ones are only written down."""
        while (frame := await self.frame()) is not None:
            messages = client.received(frame.data) if frame.data else []
            if frame.id is not None:
                client.transcript.name(frame.id.rpartition("-")[0].rpartition("-")[0], "tag")
            client.transcript.framed(frame, arrow)
            if messages:
                return messages
        self._transcript.remark("the stream ends")
        return []

    def leave(self) -> None:
        """Go away in the middle."""
        self.wire.abort()
        self._transcript.remark("the client drops the connection")


def framed(block: str) -> Frame:
    """The lines of an event."""
    frame = Frame()
    for line in block.split("\n"):
        name, _, value = line.partition(": ")
        if name.rstrip(":") in ("id", "event", "retry", "data"):
            name = name.rstrip(":")
            assert getattr(frame, name) is None, f"two lines of {name} in {block!r}"
            setattr(frame, name, value)
        else:
            frame.other.append(line)
    return frame


class PostCall(Call):
    """A request that was posted, and the answer to its POST."""

    def __init__(
        self, client: WireClient, stream: Stream, id: Any, method: str, params: JSON
    ) -> None:
        super().__init__(id, method, params)
        self.stream = stream
        self._talk = client

    async def next(self) -> JSON:
        message = await self.maybe()
        assert message is not None, f"{self.method} was not answered"
        return message

    async def maybe(self) -> JSON | None:
        """The next message; None where there is no more."""
        stream = self.stream
        if stream.visit.is_stream:
            return await stream.message(self._talk)
        text = (await stream.body()).decode()
        (message,) = self._talk.received(text)
        self._talk.transcript.said(text, "   ")
        return message

    async def finish(self) -> None:
        if self.stream.visit.is_stream:
            left = await self.stream.message(self._talk)
            assert left is None, f"{left} came after the answer"


class HttpClient(WireClient):
    """What all talks over HTTP have in common."""

    def __init__(self, transcript: Transcript, revision: Revision, can: JSON, port: int) -> None:
        super().__init__(transcript, revision, can)
        self.port = port
        self.session: str | None = None
        self._wires: list[Wire] = []

    async def exchange(
        self, method: str, path: str, body: bytes = b"", /, **headers: str | None
    ) -> Stream:
        """One HTTP request and the head of its answer."""
        said: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}", "accept": BOTH}
        if method == "POST":
            said["content-type"] = JSON_TYPE
        usual = dict(said)
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        wire = await Wire.open(self.port)
        self._wires.append(wire)
        exchange = HttpExchange(method, path, body, said)
        shown = {
            name: "(none)" if value is None else value
            for name, value in said.items()
            if name not in usual or usual[name] != value
        }
        self.transcript.exchange(
            exchange, {k: v for k, v in shown.items() if k in usual or said[k]}
        )
        await wire.send(written(method, path, said, body))
        async with asyncio.timeout(WAIT_S):
            response = await wire.head()
        exchange.status, exchange.headers = response.status, response.headers
        assigned = response.headers.get("mcp-session-id")
        if assigned is not None:
            self.transcript.name(assigned, "session")
        self.transcript.answered(exchange)
        return Stream(self.transcript, exchange, wire, response)

    async def whole(
        self, method: str, path: str, body: bytes = b"", /, **headers: str | None
    ) -> HttpExchange:
        """One HTTP request and its whole answer, which is no stream."""
        stream = await self.exchange(method, path, body, **headers)
        answer = await stream.body()
        if answer:
            self.received(answer.decode())
            self.transcript.said(answer, "   ")
        return stream.visit

    async def close(self) -> None:
        for wire in self._wires:
            wire.abort()


# ---------------------------------------------------------------- sessions and single posts


class Posts(HttpClient):
    """Streamable HTTP: each message is a POST; what belongs to none comes on the stream of a GET,
    or of a request that listens."""

    path = "/mcp"
    listening: Stream | None = None

    def headers_for(self, message: Any) -> dict[str, str | None]:
        """The headers of a POST: those of the session, or those that repeat the message."""
        http = self.revision.http
        said: dict[str, str | None] = {}
        known = self.session is not None or not self.revision.handshake
        if http.version_header and known:
            said["mcp-protocol-version"] = self.revision.date
        if self.session is not None:
            said["mcp-session-id"] = self.session
        if http.routing_headers and isinstance(message, dict):
            params = message.get("params") or {}
            said["mcp-method"] = message.get("method")
            said["mcp-name"] = params.get("name") or params.get("uri")
            if params.get("name") == "region":
                said["mcp-param-region"] = params["arguments"]["where"]
        return said

    async def begin(self, method: str, params: JSON | None = None, **how: Any) -> PostCall:
        id, message = self.request(method, params, **how)
        body = json.dumps(message, ensure_ascii=False).encode()
        headers = self.headers_for(message) | how.get("headers", {})
        stream = await self.exchange("POST", self.path, body, **headers)
        if self.revision.http.sessions or self.revision.handshake:
            self.session = self.session or stream.visit.headers.get("mcp-session-id")
        return PostCall(self, stream, id, method, message.get("params", {}))

    async def send(self, message: Any) -> None:
        body = json.dumps(message, ensure_ascii=False).encode()
        await self.whole("POST", self.path, body, **self.headers_for(message))

    async def send_bytes(self, data: bytes) -> list[JSON]:
        self.note(data)
        try:
            message = json.loads(data)
        except ValueError:
            message = None
        before = len(self.transcript.messages)
        await self.whole("POST", self.path, data, **self.headers_for(message))
        return [message.members for message in self.transcript.messages[before:]]

    async def opened(self) -> None:
        if self.revision.handshake:
            self.listening = await self.get()
            if self.revision.http.prime_and_poll:
                frame = await self.listening.frame()
                assert frame is not None
                self.transcript.name(str(frame.id).rpartition("-")[0].rpartition("-")[0], "tag")
                self.transcript.framed(frame)

    async def get(self, **headers: str | None) -> Stream:
        """Open a stream."""
        said = {"accept": EVENTS_TYPE, **self.headers_for(None), **headers}
        return await self.exchange("GET", self.path, **said)

    async def notifications(self, count: int) -> list[JSON]:
        assert self.listening is not None
        found = [await self.listening.message(self, "<==") for _ in range(count)]
        return [message for message in found if message is not None]

    async def give_up(self, call: Call) -> None:
        assert isinstance(call, PostCall)
        if not self.revision.handshake:
            call.stream.leave()
            return
        await self.notify("notifications/cancelled", {"requestId": call.id, "reason": "enough"})
        assert await call.maybe() is None, "a cancelled call was answered"

    async def close(self) -> None:
        if self.session is not None:
            await self.whole("DELETE", self.path, **self.headers_for(None))
            if self.listening is not None:
                while await self.listening.message(self, "<==") is not None:
                    pass
        await super().close()


# ---------------------------------------------------------------- the first revision's own way


class Events(HttpClient, Duplex):
    """HTTP+SSE: a GET opens the stream that carries all that the server says."""

    endpoint = ""
    stream: Stream

    @classmethod
    async def start(
        cls, transcript: Transcript, revision: Revision, can: JSON, port: int
    ) -> "Events":
        """A talk whose stream has said where to post."""
        client = cls(transcript, revision, can, port)
        client.stream = await client.exchange("GET", "/sse", accept=EVENTS_TYPE)
        frame = await client.stream.frame()
        assert frame is not None
        client.endpoint = frame.data or ""
        transcript.name(client.endpoint.partition("session_id=")[2], "session")
        transcript.framed(frame, "<==")
        return client

    async def put(self, data: bytes) -> None:
        await self.whole("POST", self.endpoint, data)

    async def send_bytes(self, data: bytes) -> list[JSON]:
        self.note(data)
        before = len(self.transcript.messages)
        exchange = await self.whole("POST", self.endpoint, data)
        if exchange.status < 300:
            return await self.take()
        return [message.members for message in self.transcript.messages[before:]]

    async def take(self) -> list[JSON]:
        frame = await self.stream.frame()
        assert frame is not None
        assert frame.data is not None
        messages = self.received(frame.data)
        self.transcript.framed(frame, "<==")
        return messages

    async def close(self) -> None:
        self.stream.leave()
        await HttpClient.close(self)
