"""A client that speaks raw frames to a server in memory, in every revision, and hides nothing.

    async with raw_client(server, revision, can={"elicitation": {}}, answer=reply) as client:
        result = await client.call("forecast", {"city": "Oslo"})

Input requests that are requests are answered as they arrive; if they are in a result, the request is
sent again with the responses. `client.received` has every message of the server.

Rules: every message of the server is held against the closed official schema of its revision,
where that is at hand. No rule of the protocol is decided here; every wait ends.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Callers, Identity
from colonnade.protocol.revision import BadToolInput, InputRequests, Revision
from colonnade.server.server import Server
from colonnade.transport.duplex import Duplex
from official import DATES, available
from official_lines import complaints
from script_runner import Message

JSON = dict[str, Any]
Reply = Callable[[str, JSON], JSON | None]
WAIT_S = 60.0
MAX_ROUNDS = 12

EVERYTHING: JSON = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Rejected(Exception):
    """The server answered with an error."""

    def __init__(self, error: JSON) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class Refusal(Exception):
    """Raised by a test's `answer`: the client answers the question with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def accept(**content: Any) -> Reply:
    """Fill in every form like this."""
    return lambda method, params: {"action": "accept", "content": content}


def decline(method: str, params: JSON) -> JSON:
    return {"action": "decline"}


def no_input_expected(method: str, params: JSON) -> JSON:
    raise AssertionError(f"unexpected input request {method}: {params}")


class Client:
    """The other side of a server's link."""

    def __init__(self, revision: Revision, can: JSON, answer: Reply, meta: JSON) -> None:
        self.revision = revision
        self.can = can
        self.answer = answer
        self.meta = meta
        self.received: list[JSON] = []
        self.asked: list[tuple[str, JSON]] = []
        self.rounds = 0
        self.duplex: Duplex
        self._next = 100
        self._methods: dict[Any, str] = {}
        self._waiting: dict[Any, asyncio.Future[JSON]] = {}
        self._arrival = asyncio.Condition()
        self._background: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ the channel

    def write(self, frame: bytes) -> None:
        """The server says something."""
        message = json.loads(frame)
        messages: list[JSON] = message if isinstance(message, list) else [message]
        for one in messages:
            self._check(one)
            self.received.append(one)
            if "method" in one and "id" in one:
                self._question(one)
            elif "id" in one and one["id"] in self._waiting:
                self._waiting.pop(one["id"]).set_result(one)
        task = asyncio.get_running_loop().create_task(self._wake())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def drain(self) -> None:
        """There is always room."""

    async def _wake(self) -> None:
        async with self._arrival:
            self._arrival.notify_all()

    def _check(self, message: JSON) -> None:
        if available() and self.revision.date in DATES:
            answers = self._methods.get(message.get("id"))
            found = complaints(Message(Side.SERVER, message, self.revision, answers))
            assert not found, (message, found)

    # ------------------------------------------------------------ what it says

    def send_raw(self, message: Any) -> None:
        """Say something, whatever it is."""
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.duplex.receive(data)

    def notify(self, method: str, params: JSON | None = None) -> None:
        message: JSON = {"jsonrpc": "2.0", "method": method}
        self.send_raw(message | ({"params": params} if params is not None else {}))

    def send(self, method: str, params: JSON | None = None, *, id: Any = None) -> Any:
        """A request, with whatever its revision wants to be said; its id."""
        if id is None:
            self._next += 1
            id = self._next
        params = dict(params or {})
        meta = dict(self.meta) | dict(params.pop("_meta", {}))
        if not self.revision.handshake:
            meta |= {
                "io.modelcontextprotocol/protocolVersion": self.revision.date,
                "io.modelcontextprotocol/clientCapabilities": self.can,
            }
        if meta:
            params["_meta"] = meta
        self._methods[id] = method
        self._waiting[id] = asyncio.get_running_loop().create_future()
        self.send_raw({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id

    async def outcome(self, id: Any) -> JSON:
        """The answer to a request; raises `Rejected` for an error."""
        future = self._waiting.get(id)
        if future is None:
            message = next(
                one for one in self.received if one.get("id") == id and "method" not in one
            )
        else:
            async with asyncio.timeout(WAIT_S):
                message = await future
        if "error" in message:
            raise Rejected(message["error"])
        return message["result"]

    async def ask(self, method: str, params: JSON | None = None) -> JSON:
        """A request and its result; questions by result are answered, and it is sent again."""
        for _ in range(MAX_ROUNDS):
            result = await self.outcome(self.send(method, params))
            if result.get("resultType") != "input_required":
                return result
            self.rounds += 1
            answers: JSON = {}
            for key, question in result.get("inputRequests", {}).items():
                answer = self._answer(question["method"], question.get("params") or {})
                if answer is not None:
                    answers[key] = answer
            params = dict(params or {}) | {"inputResponses": answers}
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise AssertionError("it asks for ever")

    def _answer(self, method: str, params: JSON) -> JSON | None:
        self.asked.append((method, params))
        return self.answer(method, params)

    def _question(self, message: JSON) -> None:
        assert self.revision.input_requests is InputRequests.AS_REQUEST
        try:
            answer = self._answer(message["method"], message.get("params") or {})
        except Refusal as refusal:
            error = {"code": refusal.code, "message": str(refusal)}
            self._later({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        if answer is not None:
            self._later({"jsonrpc": "2.0", "id": message["id"], "result": answer})

    def _later(self, message: JSON) -> None:
        # Not inside the server's own write: it has not said that it waits yet.
        asyncio.get_running_loop().call_soon(self.send_raw, message)

    # ------------------------------------------------------------ the usual things

    async def call(self, tool: str, arguments: JSON | None = None, **params: Any) -> JSON:
        """The result of a tool."""
        body: JSON = {"name": tool, **params}
        if arguments is not None:
            body["arguments"] = arguments
        return await self.ask("tools/call", body)

    async def text(self, tool: str, arguments: JSON | None = None) -> str:
        """The text of a tool's result, which is no error."""
        result = await self.call(tool, arguments)
        assert not result.get("isError"), result
        return text_content(result)

    async def failure(self, tool: str, arguments: JSON | None = None) -> str:
        """The text of a tool's error."""
        result = await self.call(tool, arguments)
        assert result.get("isError") is True, result
        return text_content(result)

    async def refused(self, tool: str, arguments: Any) -> str:
        """The error message for bad arguments, as the revision carries it (D16)."""
        if self.revision.bad_tool_input is BadToolInput.RESULT:
            return await self.failure(tool, arguments)
        with pytest.raises(Rejected) as caught:
            await self.call(tool, arguments)
        assert caught.value.code == -32602
        return caught.value.message

    async def read(self, uri: str) -> list[JSON]:
        return (await self.ask("resources/read", {"uri": uri}))["contents"]

    def notifications(self, method: str) -> list[JSON]:
        """The params of all notifications of a method so far."""
        return [one.get("params", {}) for one in self.received if one.get("method") == method]

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait until something that the server says makes this true."""
        async with asyncio.timeout(WAIT_S), self._arrival:
            await self._arrival.wait_for(true)


def text_content(result: JSON) -> str:
    return "".join(block.get("text", "") for block in result["content"])


@asynccontextmanager
async def raw_client(
    server: Server,
    revision: Revision,
    *,
    can: JSON | None = None,
    answer: Reply = no_input_expected,
    meta: Mapping[str, Any] | None = None,
    principal: str = "",
    callers: Callers = Callers.ANONYMOUS,
) -> AsyncGenerator[Client]:
    """A client of a server that is started for it, opened as its revision opens."""
    client = Client(revision, EVERYTHING if can is None else can, answer, dict(meta or {}))
    await server.start()
    try:

        def identity() -> Identity:
            return server.identity.for_callers(callers)

        link = DuplexLink(Side.SERVER, identity(), server.accepts, principal, identity)
        duplex = Duplex(link, client, server.respond)
        client.duplex = duplex
        unwatch = server.watch_changes(duplex.notify_change)
        if revision.handshake:
            params = {
                "protocolVersion": revision.date,
                "capabilities": client.can,
                "clientInfo": {"name": "client", "version": "1"},
            }
            await client.outcome(client.send("initialize", params))
            client.notify("notifications/initialized")
        try:
            yield client
        finally:
            unwatch()
            duplex.close("the test is over")
            await duplex.ended(WAIT_S)
    finally:
        await server.stop()
