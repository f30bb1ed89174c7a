"""One trace through client, host and server, over real pipes and sockets, and through rounds of input."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.trace import SpanKind, StatusCode

from colonnade import Context, Host, RemoteError, Server, TimedOut, connect
from colonnade.protocol.revision import EVERY, Revision
from colonnade.sync import connect as connect_blocking
from colonnade.transport.http_server.runner import listening
from live import live, until
from telemetry_spans import (
    Recording,
    Situation,
    attributes,
    check,
    check_points,
    parent_id,
    span_id,
    trace_id,
)

ECHO = Path(__file__).parent / "echo_server.py"
revisions = pytest.mark.parametrize("revision", EVERY, ids=lambda one: one.date)


class EchoProcess:
    """The echo server: where to connect to, and the spans that it has exported."""

    def __init__(self, target: Any, env: dict[str, str] | None, file: Path) -> None:
        self.target = target
        self.env = env
        self._file = file

    @property
    def spans(self) -> list[dict[str, Any]]:
        text = self._file.read_text("utf-8") if self._file.exists() else ""
        return [json.loads(line) for line in text.splitlines()]


@asynccontextmanager
async def echo_server(transport: str, folder: Path) -> AsyncGenerator[EchoProcess]:
    """The echo server in a process of its own, over a pipe or a socket."""
    file = folder / "spans"
    env = {"SPANS": str(file)}
    command = [sys.executable, str(ECHO)]
    if transport == "pipe":
        yield EchoProcess(command, env, file)
        return
    process = await asyncio.create_subprocess_exec(
        *command, "http", env=env, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).split()[-1].decode()
        yield EchoProcess(url, None, file)
    finally:
        process.terminate()
        await process.wait()


@live
@pytest.mark.parametrize("transport", ["pipe", "tcp"])
@revisions
async def test_requests_of_a_client_are_recorded_as_the_conventions_say(
    transport: str, revision: Revision, tmp_path: Path
) -> None:
    recording = Recording()
    async with (
        echo_server(transport, tmp_path) as echo,
        connect(
            echo.target, env=echo.env, revision=revision.date, telemetry=recording.telemetry
        ) as client,
    ):
        await client.list_tools()
        result = await client.call_tool("current_trace")
        await client.call_tool("current_trace_in_a_thread")
        await client.call_tool("fail")
        await client.list_prompts()
        await client.get_prompt("greet", {"name": "x"})
        await client.read_resource("notes://one")
        with pytest.raises(RemoteError):
            await client.call_tool("made-up")
        with pytest.raises(TimedOut):
            await client.call_tool("wait", timeout_s=0.05)
        waiting = asyncio.create_task(client.call_tool("wait"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    own = trace_id(recording.one("tools/call current_trace"))
    assert result.text == f"{own:032x}"
    errors = {
        span.name: attributes(span)["error.type"]
        for span in recording.spans
        if span.status.status_code is StatusCode.ERROR
    }
    waits = [attributes(span)["error.type"] for span in recording.named("tools/call wait")]
    assert errors["tools/call fail"] == "tool_error"
    assert errors["tools/call made-up"] == "-32602"
    assert waits == ["timeout", "cancelled"]
    for span in recording.spans:
        opening = span.name in ("initialize", "server/discover")
        has_session = transport == "tcp" and revision.handshake and not opening
        assert span.kind is SpanKind.CLIENT
        note = span.name.startswith("notifications/")
        check(span, Situation(transport=transport, has_session=has_session, is_notification=note))
    check_points(recording)
    named = {
        point.attributes.get("gen_ai.tool.name")
        for point in recording.points()["mcp.client.operation.duration"]
    }
    assert "made-up" not in named  # a model may make up any number of names
    assert bool(recording.points().get("mcp.client.session.duration")) is revision.handshake
    # The server's spans are in the same traces, below those of the client.
    theirs = {span["context"]["trace_id"]: span for span in echo.spans}
    opening = "initialize" if revision.handshake else "server/discover"
    assert f"0x{trace_id(recording.named(opening)[-1]):032x}" in theirs
    call = theirs[f"0x{own:032x}"]
    assert call["parent_id"] == f"0x{span_id(recording.one('tools/call current_trace')):016x}"


@live
async def test_one_trace_runs_through_client_host_and_server(tmp_path: Path) -> None:
    """A client over a socket, a server whose tool uses a host, and a server in a child process."""
    recording = Recording()
    async with echo_server("pipe", tmp_path) as echo:
        entry = {"command": echo.target[0], "args": echo.target[1:], "env": echo.env}
        front = Server("front", telemetry=recording.telemetry)
        async with Host({"echo": entry}, telemetry=recording.telemetry) as host:

            @front.tool
            async def forward() -> str:
                return (await host.call_tool("echo__current_trace")).text

            async with (
                listening(front.asgi(), port=0) as runner,
                connect(runner.url, telemetry=recording.telemetry) as client,
            ):
                with recording.tracers.get_tracer("test").start_as_current_span("app") as app:
                    result = await client.call_tool("forward")
        own = app.get_span_context().trace_id
        assert result.text == f"{own:032x}"
        sent = recording.one("tools/call forward", SpanKind.CLIENT)
        received = recording.one("tools/call forward", SpanKind.SERVER)
        upstream = recording.one("tools/call current_trace", SpanKind.CLIENT)
        (last,) = [s for s in echo.spans if s["name"] == "tools/call current_trace"]
        assert {trace_id(s) for s in (sent, received, upstream)} == {own}
        assert last["context"]["trace_id"] == f"0x{own:032x}"
        parents = [parent_id(sent), parent_id(received), parent_id(upstream), last["parent_id"]]
        assert parents == [
            app.get_span_context().span_id,
            span_id(sent),
            span_id(received),
            f"0x{span_id(upstream):016x}",
        ]


def asking_server(recording: Recording) -> Server:
    server = Server("asking", telemetry=recording.telemetry)

    @server.tool
    async def ask(ctx: Context) -> str:
        return await ctx.elicit("First?", str) + await ctx.elicit("Second?", str)

    return server


@live
@pytest.mark.parametrize("date", ["2025-11-25", "2026-07-28"])
async def test_the_rounds_of_an_elicitation_are_one_trace(date: str) -> None:
    recording = Recording()
    async with connect(
        asking_server(recording),
        telemetry=recording.telemetry,
        revision=date,
        on_elicit=lambda _: {"value": "x"},
    ) as client:
        recording.take()
        assert (await client.call_tool("ask")).text == "xx"
    calls = recording.named("tools/call ask")
    asked = recording.named("elicitation/create")
    assert len({trace_id(span) for span in (*calls, *asked)}) == 1
    if date == "2025-11-25":
        assert (len(calls), len(asked)) == (2, 4)
    else:
        assert (len(calls), len(asked)) == (6, 0)
        for kind in (SpanKind.CLIENT, SpanKind.SERVER):
            first, *later = recording.named("tools/call ask", kind)
            assert [span.links[0].context.span_id for span in later] == [span_id(first)] * 2
    counted = recording.points()["colonnade.input_requests"]
    assert {(p.attributes["role"], p.attributes["kind"]): p.value for p in counted} == {
        ("client", "elicitation"): 2,
        ("server", "elicitation"): 2,
    }


@live
async def test_rounds_of_a_client_without_telemetry_are_linked() -> None:
    recording = Recording()
    async with connect(asking_server(recording), on_elicit=lambda _: {"value": "x"}) as client:
        await client.call_tool("ask")
    first, second, third = recording.named("tools/call ask")
    for later in (second, third):
        assert [link.context.span_id for link in later.links] == [span_id(first)]


@live
async def test_a_span_of_the_web_framework_is_a_link_and_the_clients_the_parent() -> None:
    recording = Recording()
    server = Server("linked", telemetry=recording.telemetry)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    inner = server.asgi()
    tracer = recording.tracers.get_tracer("framework")

    async def framework(scope: Any, receive: Any, send: Any) -> None:
        with tracer.start_as_current_span("POST /mcp"):
            await inner(scope, receive, send)

    outer = Server("outer").asgi(path="/other", around=framework)
    async with listening(outer, port=0) as runner:
        url = runner.url.replace("/other", "/mcp")
        async with connect(url, telemetry=recording.telemetry) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        async with connect(url) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
    linked, alone = recording.named("tools/call add", SpanKind.SERVER)
    sent = recording.one("tools/call add", SpanKind.CLIENT)
    posts = {span_id(span) for span in recording.named("POST /mcp")}
    assert parent_id(linked) == span_id(sent)
    assert [link.context.span_id in posts for link in linked.links] == [True]
    assert parent_id(alone) in posts
    assert not alone.links


@live
async def test_baggage_reaches_the_handler_and_foreign_fields_are_replaced() -> None:
    recording = Recording()
    server = Server("baggage", telemetry=recording.telemetry)

    @server.tool
    async def user() -> str:
        return str(baggage.get_baggage("user"))

    host = Host({"it": server}, telemetry=recording.telemetry)
    async with host:
        token = context.attach(baggage.set_baggage("user", "ann"))
        stale = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        result = await host.call_tool("it__user", meta=stale)
        context.detach(token)
    assert result.text == "ann"
    assert trace_id(recording.one("tools/call user", SpanKind.SERVER)) == trace_id(
        recording.one("tools/call user", SpanKind.CLIENT)
    )


@live
async def test_arguments_and_results_are_recorded_only_if_they_are_asked_for() -> None:
    for content in (False, True):
        recording = Recording(content=content)
        server = Server("content", telemetry=recording.telemetry)

        @server.tool
        async def login(password: str) -> str:
            return f"welcome {password}"

        @server.prompt
        async def greet(name: str) -> str:
            return name

        @server.resource("notes://{name}{?key}")
        async def note(name: str, key: str = "") -> str:
            return name

        async with connect(server, telemetry=recording.telemetry) as client:
            await client.call_tool("login", {"password": "hunter2"})
            await client.get_prompt("greet", {"name": "hunter2"})
            await client.read_resource("notes://one?key=hunter2")
        text = " ".join(str(span.to_json()) for span in recording.spans)
        assert ("hunter2" in text) is content
        if content:
            for kind in (SpanKind.CLIENT, SpanKind.SERVER):
                given = attributes(recording.one("tools/call login", kind))
                assert json.loads(given["gen_ai.tool.call.arguments"]) == {"password": "hunter2"}
                assert "welcome hunter2" in given["gen_ai.tool.call.result"]
                prompt = attributes(recording.one("prompts/get greet", kind))
                assert prompt["gen_ai.prompt.variable.name"] == "hunter2"
        else:
            span = recording.one("resources/read", SpanKind.SERVER)
            assert attributes(span)["mcp.resource.uri"] == "notes://one"


def test_a_blocking_client_is_in_the_trace_of_its_thread() -> None:
    recording = Recording()
    server = Server("blocking", telemetry=recording.telemetry)

    @server.tool
    async def current() -> str:
        return f"{trace.get_current_span().get_span_context().trace_id:032x}"

    with (
        recording.tracers.get_tracer("test").start_as_current_span("app") as app,
        connect_blocking(server, telemetry=recording.telemetry) as client,
    ):
        found = client.call_tool("current").text
    assert found == f"{app.get_span_context().trace_id:032x}"


@live
async def test_a_subscription_of_a_client_is_recorded_until_it_ends() -> None:
    recording = Recording()
    server = Server("changes", telemetry=recording.telemetry, declares=["tools"])
    async with connect(server, telemetry=recording.telemetry) as client:
        async with client.listen(tools=True):
            assert not recording.named("subscriptions/listen")
        await until(lambda: len(recording.named("subscriptions/listen")) == 2)
    for span in recording.named("subscriptions/listen"):
        assert span.status.status_code is StatusCode.UNSET
