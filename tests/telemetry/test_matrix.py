"""Every method and outcome, in five revisions, over pipes and sockets, compared with the conventions."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from colonnade import Context, Fault, FaultKind, Server, ToolError
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import EVERY, BadToolInput, InputRequests, Revision
from colonnade.transport.http_server.runner import listening
from colonnade.transport.stdio import Pipe, serve_pipe
from http_client import META, Caller, Response
from live import live, until
from telemetry_spans import (
    MISTAKES,
    Recording,
    Situation,
    attributes,
    check,
    check_points,
    parent_id,
    span_id,
    trace_id,
)

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
KINDS = {name: kind for name, kind in vars(FaultKind).items() if isinstance(kind, FaultKind)}
CAPABILITIES = {"elicitation": {}, "sampling": {}, "roots": {}}


def make_server(recording: Recording) -> Server:
    server = Server("matrix", telemetry=recording.telemetry, logging=True, declares=["completions"])

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def fail() -> int:
        raise ToolError("no")

    @server.tool
    async def crash() -> int:
        raise ValueError("secret")

    @server.tool(timeout_s=0.01)
    async def late() -> int:
        await asyncio.Event().wait()
        return 0

    @server.tool
    async def wait() -> int:
        await asyncio.Event().wait()
        return 0

    @server.tool
    async def fault(kind: str) -> int:
        raise Fault(KINDS[kind], "not today")

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("Which?", str)

    @server.prompt
    async def greet(name: str) -> str:
        return name

    @server.prompt
    async def crashing() -> str:
        raise ValueError("secret")

    @server.resource("notes://one")
    async def one() -> str:
        return "one"

    @server.resource("notes://crash")
    async def crashed() -> str:
        raise ValueError("secret")

    @server.resource("notes://{name}/all")
    async def every(name: str) -> str:
        return name

    return server


class Driver(Protocol):
    """Sends requests of one revision over one transport."""

    transport: str
    has_session: bool

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The response to a request."""
        ...

    async def begin(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request that is not waited for."""
        ...

    async def cancel(self, begun: Any) -> None:
        """Cancel it, as the transport and the revision do."""
        ...


def with_meta(revision: Revision, params: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = {"traceparent": TRACEPARENT}
    if not revision.handshake:
        meta |= META | {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
    return {**params, "_meta": meta}


class PipeDriver:
    transport = "pipe"
    has_session = False

    def __init__(self, revision: Revision, writing: int, reader: asyncio.StreamReader) -> None:
        self.revision = revision
        self._writing = writing
        self._reader = reader
        self._ids = 0

    def send(self, message: dict[str, Any]) -> None:
        os.write(self._writing, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def begin(self, method: str, params: dict[str, Any]) -> int:
        self._ids += 1
        self.send({"id": self._ids, "method": method, "params": with_meta(self.revision, params)})
        return self._ids

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        id = await self.begin(method, params)
        while True:
            message = json.loads(await self._reader.readline())
            if message.get("id") == id and "method" not in message:
                return message
            if message.get("method") == "elicitation/create":
                result = {"action": "accept", "content": {"value": "this"}}
                self.send({"id": message["id"], "result": result})

    async def cancel(self, begun: int) -> None:
        self.send({"method": "notifications/cancelled", "params": {"requestId": begun}})


@asynccontextmanager
async def over_pipes(server: Server, revision: Revision) -> AsyncGenerator[PipeDriver]:
    (reading, theirs_out), (theirs_in, writing) = os.pipe(), os.pipe()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    channel, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", 0)
    )
    await server.start()
    serving = asyncio.create_task(serve_pipe(Pipe(theirs_in, theirs_out), server))
    driver = PipeDriver(revision, writing, reader)
    try:
        if revision.handshake:
            await driver.ask("initialize", opening(revision))
            driver.send({"method": "notifications/initialized"})
        yield driver
    finally:
        os.close(writing)
        await serving
        os.close(theirs_out)
        os.close(theirs_in)
        channel.close()
        await server.stop()


def opening(revision: Revision) -> dict[str, Any]:
    info = {"name": "matrix", "version": "1"}
    return {"protocolVersion": revision.date, "capabilities": CAPABILITIES, "clientInfo": info}


class HttpDriver:
    transport = "tcp"

    def __init__(self, revision: Revision, caller: Caller) -> None:
        self.revision = revision
        self.has_session = revision.handshake
        self._caller = caller
        self._ids = 0

    async def _send(self, method: str, params: dict[str, Any]) -> tuple[Any, Response]:
        self._ids += 1
        params = with_meta(self.revision, params)
        if self.revision.handshake:
            return await self._caller.asking(method, params, id=self._ids)
        meta = params.pop("_meta")
        return await self._caller.stream(method, params, id=self._ids, meta=meta)

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        wire, response = await self._send(method, params)
        if not response.is_stream:
            await response.read()
            wire.close()
            return response.json
        while True:
            message = await response.message()
            if message.get("method") == "elicitation/create":
                result = {"action": "accept", "content": {"value": "this"}}
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                await self._caller.post(answer)
            elif message.get("id") == self._ids:
                wire.close()
                return message

    async def begin(self, method: str, params: dict[str, Any]) -> Any:
        return self._ids + 1, asyncio.create_task(self._send(method, params))

    async def cancel(self, begun: Any) -> None:
        id, sending = begun
        if self.revision.handshake:
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
            await self._caller.post({**note, "params": {"requestId": id}})
        self._caller.wires[-1 if not self.revision.handshake else -2].abort()
        sending.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await sending


@asynccontextmanager
async def over_http(server: Server, revision: Revision) -> AsyncGenerator[HttpDriver]:
    async with listening(server.asgi(), port=0) as runner, Caller(runner.port) as caller:
        if revision.handshake:
            opened = await caller.initialize(revision.date, CAPABILITIES)
            assert opened.json["result"]["protocolVersion"] == revision.date
        yield HttpDriver(revision, caller)


OPEN = {"pipe": over_pipes, "http": over_http}
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("tools/list", {}, "tools/list"),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, "tools/call add"),
    ("prompts/list", {}, "prompts/list"),
    ("prompts/get", {"name": "greet", "arguments": {"name": "x"}}, "prompts/get greet"),
    ("resources/list", {}, "resources/list"),
    ("resources/templates/list", {}, "resources/templates/list"),
    ("resources/read", {"uri": "notes://one"}, "resources/read"),
    ("resources/subscribe", {"uri": "notes://one"}, "resources/subscribe"),
    ("resources/unsubscribe", {"uri": "notes://one"}, "resources/unsubscribe"),
    (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": ""},
        },
        "completion/complete",
    ),
    ("ping", {}, "ping"),
    ("logging/setLevel", {"level": "error"}, "logging/setLevel"),
    ("server/discover", {}, "server/discover"),
]
ANSWERED_BY_PROTOCOL = {"ping", "logging/setLevel", "initialize"}
# Of tasks: this server has none, and says so.
NOT_SERVED = {"tasks/cancel", "tasks/get", "tasks/list", "tasks/result"}
# Tried by tests of their own, since they end otherwise.
ELSEWHERE = {"initialize", "subscriptions/listen"}

pytestmark = [
    pytest.mark.parametrize("revision", EVERY, ids=lambda one: one.date),
    pytest.mark.parametrize("transport", ["pipe", "http"]),
]


def situation(driver: Driver, **more: Any) -> Situation:
    return Situation(transport=driver.transport, has_session=driver.has_session, **more)


@live
async def test_every_method_that_succeeds(transport: str, revision: Revision) -> None:
    recording = Recording()
    server = make_server(recording)
    methods = {
        name
        for name, row in revision.methods.items()
        if Side.CLIENT in row.senders and not row.is_notification
    }
    assert methods - {method for method, _, _ in CALLS} <= NOT_SERVED | ELSEWHERE
    async with OPEN[transport](server, revision) as driver:
        if revision.handshake:
            (opened, *_) = recording.take()
            assert opened.name == "initialize"
            check(opened, situation(driver, reached_handler=False))
        for method, params, name in CALLS:
            if method not in methods:
                continue
            recording.take()
            response = await driver.ask(method, params)
            assert "result" in response, (method, response)
            (span,) = recording.take()
            assert (span.name, span.kind) == (name, SpanKind.SERVER)
            assert span.status.status_code is StatusCode.UNSET
            assert attributes(span)["mcp.protocol.version"] == revision.date
            assert (trace_id(span), parent_id(span)) == (int(TRACE, 16), 0xB7AD6B7169203331)
            check(span, situation(driver, reached_handler=method not in ANSWERED_BY_PROTOCOL))
    check_points(recording)
    points = recording.points()
    assert bool(points.get("mcp.server.session.duration")) is revision.handshake


@live
async def test_every_way_to_fail(transport: str, revision: Revision) -> None:
    recording = Recording()
    codes = revision.codes
    bad_input = "-32602" if revision.bad_tool_input is BadToolInput.ERROR else "tool_error"
    missing = str(codes[FaultKind.RESOURCE_MISSING])
    # Over HTTP the header that mirrors the name is missed first.
    mirrored = transport == "http" and not revision.handshake
    nameless = str(codes[FaultKind.HEADER_MISMATCH]) if mirrored else "-32602"
    failures: list[tuple[str, dict[str, Any], str, str]] = [
        ("tools/call", {"name": "fail"}, "tools/call fail", "tool_error"),
        ("tools/call", {"name": "crash"}, "tools/call crash", "tool_error"),
        ("tools/call", {"name": "late"}, "tools/call late", "tool_error"),
        ("tools/call", {"name": "made-up"}, "tools/call _OTHER", "-32602"),
        ("tools/call", {"name": "add", "arguments": {"a": "x"}}, "tools/call add", bad_input),
        ("prompts/get", {"name": "made-up"}, "prompts/get _OTHER", "-32602"),
        ("prompts/get", {"name": "crashing"}, "prompts/get crashing", "-32603"),
        ("resources/read", {"uri": "notes://none"}, "resources/read", missing),
        ("resources/read", {"uri": "notes://crash"}, "resources/read", "-32603"),
        ("resources/read", {}, "resources/read", nameless),
    ]
    failures += [
        (
            "tools/call",
            {"name": "fault", "arguments": {"kind": name}},
            "tools/call fault",
            str(codes[kind]),
        )
        for name, kind in KINDS.items()
    ]
    async with OPEN[transport](make_server(recording), revision) as driver:
        for method, params, name, error in failures:
            recording.take()
            response = await driver.ask(method, params)
            (span,) = recording.take()
            given = attributes(span)
            assert span.name == name
            if error == "tool_error":
                assert response["result"]["isError"] is True
                assert given["error.type"] == "tool_error"
            else:
                assert str(response["error"]["code"]) == error == given["rpc.response.status_code"]
                is_error = int(error) not in MISTAKES
                assert (span.status.status_code is StatusCode.ERROR) is is_error, (name, error)
                if is_error:
                    assert span.status.description == response["error"]["message"]
            assert "secret" not in str(span.to_json())
            crashed = any(word in f"{params}" for word in ("crash", "crashing"))
            assert ("colonnade.error.id" in given) is crashed
            assert [e.name for e in span.events] == (["exception"] if crashed else [])
            handled = bool(params)
            known = handled or not mirrored
            check(span, situation(driver, reached_handler=handled, is_revision_known=known))
    check_points(recording)


@live
async def test_a_method_that_does_not_exist(transport: str, revision: Revision) -> None:
    recording = Recording()
    async with OPEN[transport](make_server(recording), revision) as driver:
        recording.take()
        response = await driver.ask("made/up", {"name": "x" * 1000})
        assert response["error"]["code"] == -32601
        (span,) = recording.take()
        assert (span.name, span.status.status_code) == ("_OTHER", StatusCode.UNSET)
        assert attributes(span)["rpc.response.status_code"] == "-32601"
        check(span, situation(driver, reached_handler=False, is_revision_known=False))
    (point,) = recording.points()["colonnade.refused"]
    assert (dict(point.attributes), point.value) == ({"reason": "method_not_found"}, 1)


@live
async def test_methods_that_this_server_does_not_offer(transport: str, revision: Revision) -> None:
    recording = Recording()
    async with OPEN[transport](make_server(recording), revision) as driver:
        for method in sorted(NOT_SERVED & revision.methods.keys()):
            recording.take()
            response = await driver.ask(method, {"taskId": "1"})
            (span,) = recording.take()
            assert span.name == method
            code = response["error"]["code"]
            assert attributes(span)["rpc.response.status_code"] == str(code)
            check(span, situation(driver, reached_handler=False))


@live
async def test_a_request_that_is_cancelled(transport: str, revision: Revision) -> None:
    recording = Recording()
    server = make_server(recording)
    async with OPEN[transport](server, revision) as driver:
        begun = await driver.begin("tools/call", {"name": "wait"})
        gauge = recording.telemetry.recorder.metrics
        from colonnade.telemetry.conventions import IN_FLIGHT

        await until(lambda: list(gauge.observe(IN_FLIGHT)) == [(1.0, {})])
        recording.take()
        await driver.cancel(begun)
        await until(lambda: bool(recording.named("tools/call wait")))
        (span,) = recording.named("tools/call wait")
        assert span.status.status_code is StatusCode.UNSET  # the caller's wish is no error
        assert [event.name for event in span.events] == ["cancelled"]
        check(span, situation(driver))
        assert list(gauge.observe(IN_FLIGHT)) == [(0.0, {})]


async def check_without_elicitation(transport: str, revision: Revision) -> None:
    """A revision without elicitation: the tool fails, and no request was sent."""
    recording = Recording()
    async with OPEN[transport](make_server(recording), revision) as driver:
        recording.take()
        response = await driver.ask("tools/call", {"name": "ask"})
        assert response["result"]["isError"]
        assert [span.name for span in recording.take()] == ["tools/call ask"]
    assert "colonnade.input_requests" not in recording.points()


async def check_without_listen(transport: str, revision: Revision) -> None:
    """A revision without `subscriptions/listen`: the request has no envelope of a newer one."""
    recording = Recording()
    async with OPEN[transport](make_server(recording), revision) as driver:
        recording.take()
        response = await driver.ask("subscriptions/listen", {"notifications": {}})
        assert response["error"]["code"] == -32602
        (span,) = recording.take()
        assert attributes(span)["rpc.response.status_code"] == "-32602"


@live
async def test_a_tool_that_asks_the_user(transport: str, revision: Revision) -> None:
    if "elicitation/create" not in revision.methods and (
        revision.input_requests is InputRequests.AS_REQUEST
    ):
        await check_without_elicitation(transport, revision)
        return
    recording = Recording()
    async with OPEN[transport](make_server(recording), revision) as driver:
        recording.take()
        params: dict[str, Any] = {"name": "ask"}
        response = await driver.ask("tools/call", params)
        if revision.input_requests is InputRequests.AS_REQUEST:
            asked, call = recording.take()
            assert (asked.name, asked.kind) == ("elicitation/create", SpanKind.CLIENT)
            assert parent_id(asked) == span_id(call)
            assert attributes(asked)["jsonrpc.request.id"] == "1"
            rules = situation(driver)
            assert "server.address" not in attributes(asked)  # the client has none
            check(call, rules)
        else:
            (first,) = recording.take()
            result = response["result"]
            assert result["resultType"] == "input_required"
            (key,) = result["inputRequests"]
            params["requestState"] = result["requestState"]
            params["inputResponses"] = {key: {"action": "accept", "content": {"value": "x"}}}
            response = await driver.ask("tools/call", params)
            (second,) = recording.take()
            (link,) = second.links
            assert link.context.span_id == span_id(first)
            assert trace_id(first) == trace_id(second)
            for span in (first, second):
                check(span, situation(driver))
        assert response["result"]["content"][0]["text"] in ("this", "x")
    (point,) = recording.points()["colonnade.input_requests"]
    assert dict(point.attributes) == {"role": "server", "kind": "elicitation", "outcome": "accept"}
    check_points(recording)


@live
async def test_a_subscription_is_one_span_until_it_ends(transport: str, revision: Revision) -> None:
    if "subscriptions/listen" not in revision.methods:
        await check_without_listen(transport, revision)
        return
    recording = Recording()
    async with OPEN[transport](make_server(recording), revision) as driver:
        begun = await driver.begin("subscriptions/listen", {"notifications": {}})
        from colonnade.telemetry.conventions import IN_FLIGHT

        gauge = recording.telemetry.recorder.metrics
        await until(lambda: list(gauge.observe(IN_FLIGHT)) == [(1.0, {})])
        assert not recording.named("subscriptions/listen")
        await driver.cancel(begun)
        await until(lambda: bool(recording.named("subscriptions/listen")))
        check(recording.one("subscriptions/listen"), situation(driver))
