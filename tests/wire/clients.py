"""Clients that speak raw frames: one conversation on one wire, and everything on it written down.

    client = await Pipe.start(transcript, revision, can)
    await client.ask("tools/call", {"name": "order"}, answers={"order": accept(name="Ada")})

Rules: no rule of the protocol is decided here: the script says what is sent, and what comes is kept
as it came. Every wait ends.
"""

import asyncio
import contextlib
import json
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, TextIO

from colonnade.protocol.revision import InputRequests, Revision
from wire.transcript import JSON, Transcript

TESTS = Path(__file__).resolve().parents[1]
# A shared machine may be slow; nothing here takes a tenth of it.
WAIT_S = 60.0
MAX_ROUNDS = 8
# A line of a pipe.
LINE_BYTES = 1024 * 1024

INFO = {"name": "client", "version": "1.0"}
CHANGE_NOTIFICATIONS = ("/list_changed", "resources/updated")
Answers = dict[str, JSON]
KINDS = {"elicitation/create": "action", "sampling/createMessage": "model", "roots/list": "roots"}


class Call(ABC):
    """One request on its way."""

    def __init__(self, id: Any, method: str, params: JSON) -> None:
        self.id = id
        self.method = method
        self.params = params

    @abstractmethod
    async def next(self) -> JSON:
        """The next message that belongs to it, or shares its wire."""

    async def finish(self) -> None:  # noqa: B027  (most have nothing to do)
        """Its answer has come."""


class WireClient(ABC):
    """One conversation of one client."""

    def __init__(self, transcript: Transcript, revision: Revision, can: JSON) -> None:
        self.transcript = transcript
        self.revision = revision
        self.can = can
        self.method_of: dict[Any, str] = {}
        self._next = 0

    # ------------------------------------------------------------ what each wire does

    @abstractmethod
    async def begin(self, method: str, params: JSON | None = None, **how: Any) -> Call:
        """Send a request."""

    @abstractmethod
    async def send(self, message: Any) -> None:
        """Send a message that nobody answers."""

    @abstractmethod
    async def send_bytes(self, data: bytes) -> list[JSON]:
        """Send some bytes, and get what comes back."""

    @abstractmethod
    async def notifications(self, count: int) -> list[JSON]:
        """Wait for so many messages that belong to no request, since the last request."""

    @abstractmethod
    async def give_up(self, call: Call) -> None:
        """Let a request that waits be cancelled, in the way of the wire."""

    @abstractmethod
    async def close(self) -> None:
        """End the conversation."""

    async def opened(self) -> None:  # noqa: B027
        """What the wire does once both sides know each other."""

    # ------------------------------------------------------------ what is the same on all

    def request(self, method: str, params: JSON | None, **how: Any) -> tuple[Any, JSON]:
        """A request, with whatever its revision wants to be said; and its id."""
        id = how.get("id")
        if id is None:
            self._next += 1
            id = self._next
        params = dict(params or {})
        meta = dict(how.get("meta") or {})
        if not self.revision.handshake:
            meta = self.envelope | meta
        if meta:
            params["_meta"] = meta
        message: JSON = {"jsonrpc": "2.0", "id": id, "method": method}
        if params:
            message["params"] = params
        self.method_of[id] = method
        return id, message

    @property
    def envelope(self) -> JSON:
        """What every request says of its sender where there is no handshake."""
        return {
            "io.modelcontextprotocol/protocolVersion": self.revision.date,
            "io.modelcontextprotocol/clientCapabilities": self.can,
            "io.modelcontextprotocol/clientInfo": INFO,
        }

    def note(self, data: bytes) -> None:
        """Remember what is asked in some bytes, so far as they can be read."""
        with contextlib.suppress(ValueError):
            frame: Any = json.loads(data)
            for one in frame if isinstance(frame, list) else [frame]:
                if isinstance(one, dict) and isinstance(one.get("id"), int | str):
                    self.method_of[one["id"]] = one.get("method", "")

    def received(self, text: str) -> list[JSON]:
        return self.transcript.heard(text, self.method_of)

    async def open(self) -> JSON:
        """Begin as the revision begins; what the server says of itself."""
        if not self.revision.handshake:
            answer = await self.ask("server/discover")
        else:
            params = {
                "protocolVersion": self.revision.date,
                "capabilities": self.can,
                "clientInfo": INFO,
            }
            answer = await self.ask("initialize", params)
            await self.notify("notifications/initialized")
        await self.opened()
        return answer["result"]

    async def notify(self, method: str, params: JSON | None = None) -> None:
        """Send a notification."""
        message: JSON = {"jsonrpc": "2.0", "method": method}
        await self.send(message | ({"params": params} if params is not None else {}))

    async def ask(
        self,
        method: str,
        params: JSON | None = None,
        *,
        answers: Answers | None = None,
        **how: Any,
    ) -> JSON:
        """A request and its answer, questions answered on the way or on the next try."""
        call = await self.begin(method, params, **how)
        for _ in range(MAX_ROUNDS):
            answer = await self.outcome(call, answers)
            result = answer.get("result", {})
            if result.get("resultType") != "input_required" or answers is None:
                return answer
            call = await self.begin(method, self.retried(params, result, answers), **how)
        raise AssertionError(f"{method} asks for ever")

    async def call(self, tool: str, arguments: JSON | None = None, **how: Any) -> JSON:
        """Call a tool."""
        params = {"name": tool} | ({"arguments": arguments} if arguments is not None else {})
        return await self.ask("tools/call", params, **how)

    async def outcome(self, call: Call, answers: Answers | None = None) -> JSON:
        """The answer of a call that is on its way."""
        left = dict(answers or {})
        while True:
            message = await call.next()
            if "method" in message and "id" in message:
                assert self.revision.input_requests is InputRequests.AS_REQUEST, message
                await self._answer(message, left)
            elif "method" not in message and message.get("id") == call.id:
                await call.finish()
                return message

    async def _answer(self, question: JSON, left: Answers) -> None:
        fits = KINDS[question["method"]]
        found = (key for key, answer in left.items() if fits in answer or "code" in answer)
        key = next(found, None)
        if key is None:
            return  # no response
        answer = left.pop(key)
        outcome = {"error": answer} if "code" in answer else {"result": answer}
        await self.send({"jsonrpc": "2.0", "id": question["id"], **outcome})

    def retried(self, params: JSON | None, result: JSON, answers: Answers) -> JSON:
        """The params of the next try."""
        asked = result.get("inputRequests", {})
        again = dict(params or {}) | {"inputResponses": {key: answers[key] for key in asked}}
        if "requestState" in result:
            again["requestState"] = result["requestState"]
        return again


# ---------------------------------------------------------------- one channel for everything


class DuplexCall(Call):
    """A request on a channel that carries everything."""

    def __init__(self, client: "Duplex", id: Any, method: str, params: JSON) -> None:
        super().__init__(id, method, params)
        self._client = client

    async def next(self) -> JSON:
        return await self._client.next()


class Duplex(WireClient):
    """A conversation where all that the server says comes on one channel."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._fresh: list[JSON] = []

    @abstractmethod
    async def put(self, data: bytes) -> None:
        """Send a frame."""

    @abstractmethod
    async def take(self) -> list[JSON]:
        """The next frame, written down."""

    async def begin(self, method: str, params: JSON | None = None, **how: Any) -> Call:
        self._fresh.clear()
        id, message = self.request(method, params, **how)
        await self.send(message)
        return DuplexCall(self, id, method, message.get("params", {}))

    async def send(self, message: Any) -> None:
        await self.put(json.dumps(message, ensure_ascii=False).encode())

    async def send_bytes(self, data: bytes) -> list[JSON]:
        self.note(data)
        await self.put(data)
        return await self.take()

    async def next(self) -> JSON:
        (message,) = await self.take()
        if str(message.get("method", "")).endswith(CHANGE_NOTIFICATIONS):
            self._fresh.append(message)
        return message

    async def notifications(self, count: int) -> list[JSON]:
        while len(self._fresh) < count:
            await self.next()
        found, self._fresh = self._fresh, []
        return found

    async def give_up(self, call: Call) -> None:
        await self.notify("notifications/cancelled", {"requestId": call.id, "reason": "enough"})


class Pipe(Duplex):
    """A child process and its standard streams."""

    process: asyncio.subprocess.Process

    @classmethod
    async def start(
        cls, transcript: Transcript, revision: Revision, can: JSON, log: TextIO
    ) -> "Pipe":
        """A talk with a process of its own."""
        client = cls(transcript, revision, can)
        client.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wire.server"),
            cwd=TESTS,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=LINE_BYTES,
        )
        return client

    async def put(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.transcript.said(data)
        self.process.stdin.write(data + b"\n")
        await self.process.stdin.drain()

    async def take(self) -> list[JSON]:
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            line = await self.process.stdout.readline()
        assert line.endswith(b"\n"), f"the server said {line!r} and ended"
        text = line.decode().removesuffix("\n")
        messages = self.received(text)
        self.transcript.said(text, "<--")
        return messages

    async def close(self) -> None:
        """Close its input: it ends by itself, having said nothing more."""
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
            self.transcript.remark("the client closes the server's input")
            async with asyncio.timeout(WAIT_S):
                rest = await process.stdout.read()
                code = await process.wait()
            for line in rest.decode().splitlines():
                self.received(line)
                self.transcript.said(line, "<--")
            self.transcript.remark(f"the server ends with {code}")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
