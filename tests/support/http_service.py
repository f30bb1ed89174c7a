"""A small service to try transports with: tools that report, ask, wait, fail and crash.

Rules: no transport is imported here. What a test waits for is an event, never a time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from colonnade.errors import ChannelError, Fault, FaultKind, LocalProtocolError, RemoteError
from colonnade.ports import RequestContext, Seal, ServerTelemetry, Store
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import LISTEN
from colonnade.protocol.http.param_headers import ParamHeader, param_headers
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode_notification
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.negotiation import Identity, Peer, missing_capability
from colonnade.protocol.revision import EVERY, Revisions
from colonnade.protocol.subscriptions import Subscription

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
}
OFFERED = t.SubscriptionFilter(
    tools_list_changed=True, prompts_list_changed=True, resource_subscriptions=[]
)
# A call that reports twice; where its caller wants it, by progress.
REPORT: dict[str, Any] = {"name": "report", "_meta": {"progressToken": "p"}}
ABLE: dict[str, Any] = {"elicitation": {}, "roots": {}, "sampling": {}}


def reporting(**arguments: Any) -> dict[str, Any]:
    """The params of a call that reports."""
    return {**REPORT, "arguments": arguments}


def waiting(name: str = "wait") -> dict[str, Any]:
    """The params of a call that waits for `go`."""
    return {"name": "wait", "arguments": {"name": name}}


Tool = Callable[[RequestContext, dict[str, Any]], Awaitable[t.ProtocolType]]


def text(words: str, *, error: bool = False) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=words)], is_error=error or None)


class Marks:
    """Named events: `mark` sets one, `reached` waits for it."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}
        self.log: list[str] = []

    def __getitem__(self, name: str) -> asyncio.Event:
        return self._events.setdefault(name, asyncio.Event())

    def mark(self, name: str) -> None:
        self.log.append(name)
        self[name].set()

    async def reached(self, name: str) -> None:
        async with asyncio.timeout(60):
            await self[name].wait()


class FakeService:
    """A service that a test can look into: `marks` says how far it is, `go` lets it go on."""

    def __init__(self, accepts: Revisions = EVERY) -> None:
        self.accepts = accepts
        self.telemetry: ServerTelemetry | None = None
        self.identity = Identity(
            t.Implementation(name="fake", version="1.0"),
            t.ServerCapabilities(
                tools=t.ToolsCapability(list_changed=True),
                prompts=t.PromptsCapability(list_changed=True),
                resources=t.ResourcesCapability(subscribe=True, list_changed=True),
                logging={},
            ),
        )
        self.marks = Marks()
        self.go = Marks()
        self.running = 0
        self.heard: list[str] = []
        self.principals: list[str] = []
        self.turns: list[RequestContext] = []
        self.starts = self.stops = 0
        self.fail_start = False
        self._watchers: list[Callable[[str, t.NotificationParams], None]] = []
        self._subscriptions: dict[Subscription, asyncio.Queue[list[bytes]]] = {}
        self.shared_store: Store | None = None
        self.shared_seal: Seal | None = None

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    # ------------------------------------------------------------ the port

    async def respond(self, request: RequestContext) -> bytes | None:
        exchange = request.exchange
        self.running += 1
        self.turns.append(request)
        self.principals.append(exchange.principal)
        try:
            if exchange.method.name == LISTEN:
                return await self._listen(request)
            return exchange.settle(await self._handle(request))
        except Fault as fault:
            request.fault = fault
            return exchange.fail(fault)
        finally:
            self.running -= 1

    def on_notification(self, told: NotificationReceived, peer: Peer | None) -> None:
        self.heard.append(told.method.name)

    def param_headers(self, tool: str) -> tuple[ParamHeader, ...]:
        return param_headers(SCHEMA) if tool == "mirrored" else ()

    def may_subscribe(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """What is below `secret:` needs the scope "admin"."""
        return scopes is None or not uri.startswith("secret:") or "admin" in scopes

    def watch_changes(
        self, on_change: Callable[[str, t.NotificationParams], None], principal: str = ""
    ) -> Callable[[], None]:
        self._watchers.append(on_change)
        return lambda: self._watchers.remove(on_change)

    async def start(self) -> None:
        self.starts += 1
        if self.fail_start:
            raise LocalProtocolError("the database is away")

    def drain(self) -> None:
        for subscription, queue in self._subscriptions.items():
            queue.put_nowait(subscription.end("shutting down"))

    async def stop(self) -> None:
        self.stops += 1

    # ------------------------------------------------------------ what it does

    def publish(self, method: str, params: t.NotificationParams | None = None) -> None:
        """News for everybody who wants it."""
        news = params or t.NotificationParams()
        for watcher in list(self._watchers):
            watcher(method, news)
        for subscription, queue in self._subscriptions.items():
            frame = subscription.notification(method, news)
            if frame is not None:
                queue.put_nowait([frame])

    async def _listen(self, request: RequestContext) -> bytes | None:
        subscription = Subscription(request.exchange, OFFERED)
        first = subscription.acknowledge()
        queue = self._subscriptions[subscription] = asyncio.Queue()
        try:
            await request.send(first or b"")
            self.marks.mark("listening")
            while not request.exchange.settled:
                frames = await queue.get()
                last = frames.pop() if request.exchange.settled else None
                for frame in frames:
                    await request.send(frame)
                if last is not None:
                    return last
            return None
        except asyncio.CancelledError:
            self.marks.mark("listen cancelled")
            raise
        finally:
            del self._subscriptions[subscription]

    async def _handle(self, request: RequestContext) -> t.ProtocolType:
        exchange = request.exchange
        name = exchange.method.name
        if name == "server/discover":
            return self.identity.discover_result(self.accepts)
        if name == "tools/list":
            return t.ListToolsResult(tools=[t.Tool(name="echo", input_schema={"type": "object"})])
        if name == "resources/subscribe":
            uri = decode_as(t.SubscribeRequestParams, exchange.request.params).uri
            assert request.session is not None
            request.session.subscriptions.add(uri)
            return t.EmptyResult()
        if name == "resources/unsubscribe":
            uri = decode_as(t.UnsubscribeRequestParams, exchange.request.params).uri
            assert request.session is not None
            request.session.subscriptions.discard(uri)
            return t.EmptyResult()
        if name == "tools/call":
            params = decode_as(t.CallToolRequestParams, exchange.request.params)
            arguments: dict[str, Any] = msgspec.json.decode(exchange.params.arguments or b"{}")
            tool = getattr(self, f"tool_{params.name}", None)
            if tool is None:
                raise Fault(FaultKind.INVALID_PARAMS, f"there is no tool {params.name}")
            return await tool(request, arguments)
        raise Fault(FaultKind.METHOD_NOT_FOUND, f"{name} is not offered")

    async def tool_echo(self, request: RequestContext, arguments: dict[str, Any]) -> t.ProtocolType:
        return text(str(arguments.get("say", "hello")))

    tool_mirrored = tool_echo

    async def tool_large(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        return text("x" * int(arguments["size"]))

    async def tool_report(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        """Report `steps` times; before each step after the first wait for `go`, if asked to."""
        for step in range(1, int(arguments.get("steps", 2)) + 1):
            frame = request.exchange.progress(step, message="." * int(arguments.get("size", 1)))
            if frame is None:
                frame = encode_notification("notifications/message", b'{"level":"info","data":1}')
            await request.send(frame)
            self.marks.mark(f"step {step}")
            if arguments.get("wait"):
                await self.go.reached(f"step {step}")
        if arguments.get("fail"):
            raise Fault(FaultKind.INTERNAL, "it failed")
        return text("done")

    async def tool_wait(self, request: RequestContext, arguments: dict[str, Any]) -> t.ProtocolType:
        name = str(arguments.get("name", "wait"))
        try:
            self.marks.mark(f"{name} begun")
            await self.go[name].wait()
        except asyncio.CancelledError:
            self.marks.mark(f"{name} cancelled")
            raise
        self.marks.mark(f"{name} done")
        return text("waited")

    async def tool_ask(self, request: RequestContext, arguments: dict[str, Any]) -> t.ProtocolType:
        question = InputRequest(
            t.ElicitRequestParams(
                message="Which one?",
                requested_schema=t.ElicitSchema(
                    properties={"name": t.PrimitiveSchema(type="string")}
                ),
            )
        )
        try:
            raw = await request.ask(question)
        except RemoteError as error:
            return text(f"refused: {error.message}", error=True)
        except ChannelError as error:
            self.marks.mark("ask failed")
            return text(f"lost: {error}", error=True)
        answer = msgspec.json.decode(raw)
        return text(f"answer: {answer['content']['name']}")

    async def tool_roots(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        try:
            raw = await request.ask(InputRequest(t.ListRootsRequestParams()))
        except ChannelError as error:
            return text(f"lost: {error}", error=True)
        return text(f"{len(msgspec.json.decode(raw)['roots'])} roots")

    async def tool_reconnect(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        await request.hang_up()
        self.marks.mark("hung up")
        await self.go.reached("reconnect")
        return text("here is the rest")

    async def tool_needs_sampling(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        raise missing_capability("this tool samples", sampling={})

    async def tool_crash(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        raise ZeroDivisionError("a secret of the service")

    async def tool_silent(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        request.exchange.abandon()
        return text("nobody hears this")

    async def tool_broken(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        raise Fault(FaultKind.INTERNAL, "broken failed (id 4f2a91)")
