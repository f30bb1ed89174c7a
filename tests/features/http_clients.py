"""HTTP clients on real sockets, one per revision.

    async with serving(server) as port, http_client(port, revision) as client:
        result = await client.call("forecast", city="Oslo")

2024-11-05 has one SSE stream and POST requests beside it; revisions with sessions have POST requests
and an optional GET stream; the newest has only POST. `client.say` sends one raw POST.

Rules: no rule of the protocol is decided here. Every message of the server is validated against the closed
official schema of its revision, if available; every wait has a timeout.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from colonnade import Server
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import HttpBinding, Revision
from colonnade.transport.http_server.runner import HttpRunner
from features.feature import JSON
from http_client import META, Caller, Response, Wire, opening
from official import DATES, available
from official_lines import complaints
from script_runner import Message

CAN: JSON = {"roots": {}, "sampling": {}}
ROOTS: JSON = {"roots": [{"uri": "file:///a"}]}


class HttpClient:
    """A client of one revision. `heard` is all that the server said."""

    status = 0  # of the last POST that was a request

    def __init__(self, port: int, revision: Revision, can: JSON = CAN, **headers: str) -> None:
        self.revision = revision
        self.can = can
        self.caller = Caller(port)
        self.headers: dict[str, Any] = headers
        self.heard: list[JSON] = []
        self._methods: dict[Any, str] = {}
        self._next = 0

    async def open(self) -> Response:
        """Open the conversation, where there is one."""
        raise NotImplementedError

    async def say(self, message: Any, **headers: Any) -> Response:
        """Post something, whatever it is."""
        raise NotImplementedError

    async def messages(self, response: Response) -> AsyncGenerator[JSON]:
        """What comes back for a request that was posted, as it comes."""
        raise NotImplementedError
        yield {}

    async def listen(self) -> Response:
        """The stream on which the revision tells of changes."""
        raise NotImplementedError

    def request(self, method: str, params: JSON | None = None, id: Any = None) -> JSON:
        """A request as its revision writes it."""
        if id is None:
            self._next += 1
            id = self._next
        self._methods[id] = method
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": dict(params or {})}

    def noted(self, response: Response) -> Response:
        """The whole answer to a POST, after a look at what it holds."""
        if response.headers.get("content-type") == "application/json":
            for one in response.json if isinstance(response.json, list) else [response.json]:
                self.check(one)
        return response

    def check(self, message: JSON) -> JSON:
        """Note a message, after a look at it."""
        if available() and self.revision.date in DATES:
            answers = self._methods.get(message.get("id"))
            found = complaints(Message(Side.SERVER, message, self.revision, answers))
            assert not found, (message, found)
        self.heard.append(message)
        return message

    async def ask(self, method: str, params: JSON | None = None, id: Any = None) -> JSON:
        """A request and its answer, error or not; for roots it is answered, too."""
        message = self.request(method, params, id)
        response = await self.post(message)
        self.status = response.status
        async for one in self.messages(response):
            if one.get("method") == "roots/list":
                reply = {"jsonrpc": "2.0", "id": one["id"], "result": ROOTS}
                assert (await self.say(reply)).status == 202
            if "method" not in one and one.get("id") == message["id"]:
                return one
        raise AssertionError("there was no answer")

    async def post(self, message: JSON) -> Response:
        """Post a request; the head of what comes back."""
        raise NotImplementedError

    async def call(self, tool: str, **arguments: Any) -> str:
        """The words of a tool's result."""
        answer = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        return answer["result"]["content"][0]["text"]

    def lose(self) -> None:
        """Lose the connection that was opened last."""
        self.caller.wires[-1].abort()


class SseClient(HttpClient):
    """2024-11-05: one stream for all that the server says, and posts beside it."""

    stream: Response
    endpoint = ""
    wire: Wire

    async def connect(self) -> Response:
        """The stream, and where to post."""
        self.wire, self.stream = await self.get()
        if self.stream.status == 200:
            first = await self.stream.event()
            assert first.event == "endpoint"
            self.endpoint = first.text()
        return self.stream

    async def open(self) -> Response:
        stream = await self.connect()
        if stream.status == 200:
            self._methods[0] = "initialize"
            await self.say(opening(self.revision.date, self.can))
            self.check(await stream.message())
            await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return stream

    async def get(self, **headers: Any) -> tuple[Wire, Response]:
        said: dict[str, Any] = {"accept": "text/event-stream", **self.headers, **headers}
        return await self.caller.begin("GET", path="/sse", **said)

    async def say(self, message: Any, **headers: Any) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        said = {**self.headers, **headers}
        response = await self.caller.request("POST", body, path=self.endpoint, **said)
        return self.noted(response)

    async def post(self, message: JSON) -> Response:
        response = await self.say(message)
        assert (response.status, response.body) == (202, b""), response.body
        return response

    async def messages(self, response: Response) -> AsyncGenerator[JSON]:
        while True:
            yield self.check(await self.stream.message())

    async def listen(self) -> Response:
        return self.stream

    def lose(self) -> None:
        self.wire.abort()


class PostClient(HttpClient):
    """One answer for each POST: JSON, or a stream."""

    async def messages(self, response: Response) -> AsyncGenerator[JSON]:
        if not response.is_stream:
            await response.read()
            for one in self._each(response.json):
                yield one
            return
        while True:
            try:
                found = await response.message()
            except EOFError:
                return
            for one in self._each(found):
                yield one

    def _each(self, found: Any) -> list[JSON]:
        return [self.check(one) for one in (found if isinstance(found, list) else [found])]


class SessionClient(PostClient):
    """Opened by `initialize`, and in a session from then on."""

    async def open(self) -> Response:
        self._methods[0] = "initialize"
        response = await self.say(opening(self.revision.date, self.can))
        if response.status == 200:
            self.caller.session = response.headers["mcp-session-id"]
            self.caller.revision = self.revision.date
            await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return response

    async def say(self, message: Any, **headers: Any) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        said = {**self.headers, **headers}
        return self.noted(await self.caller.request("POST", body, **said))

    async def post(self, message: JSON) -> Response:
        body = json.dumps(message).encode()
        _, response = await self.caller.begin("POST", body, **self.headers)
        return response

    async def get(self, **headers: Any) -> Response:
        _, response = await self.caller.get(**{**self.headers, **headers})
        return response

    async def listen(self) -> Response:
        return await self.get()


class EnvelopeClient(PostClient):
    """Each request says it all itself."""

    async def open(self) -> Response:
        return await self.say(self.request("server/discover"))

    def request(self, method: str, params: JSON | None = None, id: Any = None) -> JSON:
        message = super().request(method, params, id)
        capabilities = {"io.modelcontextprotocol/clientCapabilities": self.can}
        meta = META | capabilities | message["params"].get("_meta", {})
        message["params"]["_meta"] = meta
        return message

    def routed(self, message: Any) -> JSON:
        """The headers that repeat what a request says."""
        said: JSON = {"mcp_protocol_version": self.revision.date, **self.headers}
        if isinstance(message, dict) and "method" in message:
            params = message.get("params", {})
            said |= {
                "mcp_method": message["method"],
                "mcp_name": params.get("name") or params.get("uri"),
            }
        return said

    async def say(self, message: Any, **headers: Any) -> Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        said = {**self.routed(message), **headers}
        return self.noted(await self.caller.request("POST", body, **said))

    async def post(self, message: JSON) -> Response:
        body = json.dumps(message).encode()
        _, response = await self.caller.begin("POST", body, **self.routed(message))
        return response

    async def ask(self, method: str, params: JSON | None = None, id: Any = None) -> JSON:
        answer = await super().ask(method, params, id)
        result = answer.get("result", {})
        if result.get("resultType") != "input_required":
            return answer
        answers = dict.fromkeys(result["inputRequests"], ROOTS)
        retry = dict(params or {}) | {"inputResponses": answers}
        return await self.ask(method, retry | {"requestState": result["requestState"]})

    async def listen(self) -> Response:
        wanted = {"notifications": {"toolsListChanged": True}}
        response = await self.post(self.request("subscriptions/listen", wanted))
        first = self.check(await response.message())
        assert first["method"] == "notifications/subscriptions/acknowledged"
        return response


KINDS: dict[HttpBinding, type[HttpClient]] = {
    HttpBinding.HTTP_SSE: SseClient,
    HttpBinding.STREAMABLE: SessionClient,
    HttpBinding.POST_ONLY: EnvelopeClient,
}


@asynccontextmanager
async def http_client(
    port: int, revision: Revision, *, opened: bool = True, can: JSON = CAN, **headers: str
) -> AsyncGenerator[Any]:
    """A client of this revision, in the transport that is its own."""
    client = KINDS[revision.http.binding](port, revision, can, **headers)
    async with client.caller:
        if opened:
            response = await client.open()
            assert response.status == 200, (response.status, response.body)
        yield client


@asynccontextmanager
async def serving(server: Server, **options: Any) -> AsyncGenerator[HttpRunner]:
    """A server on a free port of this machine."""
    site = HttpRunner(server.asgi(**options), port=0)
    await site.start()
    try:
        yield site
    finally:
        await site.stop(0.0)


async def settled(event: asyncio.Event) -> None:
    """Wait for something that must happen."""
    async with asyncio.timeout(60):
        await event.wait()
