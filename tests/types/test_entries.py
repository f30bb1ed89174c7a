"""What a type checker makes of a server beside its decorators: state, composition, transports.

pyright reads this file in `scripts/check`; pytest runs what can run without a port.

Rules: `assert_type` says the type as it is, never a wider one.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, assert_type

import colonnade
from colonnade import (
    Ask,
    Audio,
    AuthError,
    BlockingContext,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Context,
    Declined,
    Depends,
    File,
    HttpRequest,
    HttpResponse,
    Image,
    InvalidArgument,
    InvalidArgumentType,
    Link,
    LocalProtocolError,
    LoginRequired,
    Message,
    ProtocolError,
    Refused,
    RemoteError,
    RemoteProtocolError,
    Roots,
    Sample,
    ScopeRequired,
    Server,
    TimedOut,
    ToolError,
    ToolReturn,
)
from colonnade.errors import Fault, FaultKind
from colonnade.ports import Handler, Middleware, RequestContext, Store
from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import Revisions
from colonnade.protocol.types import ProtocolType
from colonnade.server.context.handles import Handles
from colonnade.server.extensions import Extension
from colonnade.server.tasks.options import TaskOptions
from colonnade.telemetry.telemetry import Telemetry
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.connection import RunLimits
from colonnade.transport.http_server.request import Limits, Receive, Scope, Send


@dataclass
class Basket:
    items: list[str]


@dataclass
class Seat:
    row: int


class Db:
    async def close(self) -> None: ...


# ---------------------------------------------------------------- a server and its state


@asynccontextmanager
async def opened(server: Server) -> AsyncGenerator[Db]:
    yield Db()


server = Server("entries", lifespan=opened, revisions=["2026-07-28"], ttl_s=1.5, logging=True)


def test_a_server_is_typed() -> None:
    assert_type(server.accepts, Revisions)
    assert_type(server.store, Store)
    assert_type(server.state, Any)
    assert_type(server.enable(tags=["x"]), None)
    assert_type(server.disable(tags=["x"]), None)
    assert_type(server.updated("notes://a"), None)
    assert_type(colonnade.__version__, str)


def test_handles_are_of_the_type_that_they_name() -> None:
    baskets = server.handles("basket", Basket, ttl_s=60)
    assert_type(baskets, Handles[Basket])
    assert_type(server.handles("number", int), Handles[int])
    assert_type(baskets.kind, str)


async def types_of_handles(ctx: Context, blocking: BlockingContext) -> None:
    baskets = server.handles("basket", Basket)
    handle = baskets.create(ctx, Basket([]))
    later: Coroutine[Any, Any, str] = handle
    assert_type(await later, str)
    assert_type(await baskets.get(ctx, "h"), Basket)
    assert_type(await baskets.put(ctx, "h", Basket([])), None)
    assert_type(await baskets.drop(ctx, "h"), None)
    assert_type(baskets.create(blocking, Basket([])), str)
    assert_type(baskets.get(blocking, "h"), Basket)
    assert_type(baskets.put(blocking, "h", Basket([])), None)
    assert_type(baskets.drop(blocking, "h"), None)


# ---------------------------------------------------------------- dependencies and questions


def db() -> Generator[Db]:
    yield Db()


@server.tool
async def needs(
    a: int,
    *,
    one: Annotated[Db, Depends(db)],
    two: Annotated[Db, Depends(db, scope="server")],
    seat: Annotated[Seat | None, Ask("Which seat for {a}?")],
    summary: Annotated[str, Sample("Summarise {a}", max_tokens=10)],
    roots: Annotated[list[colonnade.Root], Roots()],
    three: Db = Depends(db),
) -> int:
    assert_type(one, Db)
    assert_type(two, Db)
    assert_type(three, Db)
    assert_type(seat, Seat | None)
    assert_type(summary, str)
    assert_type(roots, list[colonnade.Root])
    return a


def words(a: int) -> str | None:
    return None if a else "Which?"


def test_marks_are_typed() -> None:
    assert_type(Depends(db), Any)
    assert_type(Ask("Which seat?", Seat), Ask[Seat])
    assert_type(Ask("How many?", int, key="n"), Ask[int])
    assert_type(Ask("Which?"), Ask[Any])
    assert_type(Ask(words), Ask[Any])
    assert_type(Sample("x", system="s", temperature=0.5, stop=["."]), Sample)
    assert_type(Roots(), Roots)


def test_overrides_and_mounts_are_typed() -> None:
    overridden: AbstractContextManager[None] = server.overrides({db: Db})
    with overridden as nothing:
        assert_type(nothing, None)
    other = Server("other")
    assert_type(other.mount(Server("third"), namespace="third"), None)
    assert_type(other.mounted, list[Server])


# ---------------------------------------------------------------- layers and transports


async def layer(request: RequestContext, handler: Handler) -> ProtocolType:
    assert_type(request.exchange.principal, str)
    return await handler(request)


async def around(scope: Scope, receive: Receive, send: Send) -> None: ...


async def verify(headers: Headers) -> str:
    return headers.get(b"authorization", b"").decode()


def test_middleware_and_applications_are_typed() -> None:
    other = Server("layers")
    typed: Middleware = layer
    other.add_middleware(typed)
    other = Server("layers", middleware=[layer])
    same: Middleware = other.middleware(layer)
    assert same is layer
    assert_type(other.asgi(), HttpApp)
    app = other.asgi(path="/mcp", around=around, verify=verify, limits=Limits(max_sessions=5))
    assert_type(app, HttpApp)
    called: Callable[[Scope, Receive, Send], Awaitable[None]] = app
    assert callable(called)


def runs_until_the_end() -> None:
    assert_type(server.run(), None)
    assert_type(server.run("stdio"), None)
    assert_type(server.run("http", host="127.0.0.1", port=0, path="/mcp", hosts=["a"]), None)


async def serves_until_the_end() -> None:
    assert_type(await server.serve(), None)
    assert_type(await server.serve("http", port=0, origins=["https://a"], verify=verify), None)
    assert_type(await server.start(), None)
    assert_type(await server.stop(), None)


# ---------------------------------------------------------------- what is returned and raised


def test_results_are_typed(tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"x")
    assert_type(ToolReturn("words", data={"a": 1}, meta={"x": 1}, is_error=True).is_error, bool)
    assert_type(Image(path=picture), Image)
    assert_type(Image(str(picture)), Image)
    assert_type(Image(b"x", format="png"), Image)
    assert_type(Audio(b"x", format="wav"), Audio)
    assert_type(File("text", uri="notes://a", mime_type="text/plain"), File)
    assert_type(Link("notes://a", "a", title="A"), Link)
    assert_type(Message(Image(b"x"), role="assistant"), Message)


def test_errors_form_one_tree() -> None:
    protocol: list[type[ProtocolError]] = [LocalProtocolError, RemoteProtocolError]
    values: list[type[LocalProtocolError] | type[ValueError]] = [InvalidArgument]
    types: list[type[LocalProtocolError] | type[TypeError]] = [InvalidArgumentType]
    assert_type(InvalidArgument("no", argument="port").argument, str)
    channel: list[type[ChannelError]] = [CannotConnect, ConnectionLost, TimedOut]
    auth: list[type[AuthError]] = [LoginRequired, ScopeRequired]
    tool: list[type[ToolError]] = [ToolError, Declined]
    every: list[type[ColonnadeError]] = [*protocol, *channel, *auth, *tool, RemoteError, Refused]
    assert len({*every, *values, *types}) == 13
    assert_type(RemoteError(-32602, "no").code, int)


def test_a_route_takes_a_request_and_stays_the_function_that_it_was() -> None:
    server = Server("routed")

    @server.route("/version", methods=["GET", "POST"])
    async def version(request: HttpRequest) -> HttpResponse:
        assert_type(request.path_params, dict[str, str])
        assert_type(await request.body(), bytes)
        return HttpResponse({"version": 1}, status_code=201)

    kept: Callable[[HttpRequest], Coroutine[Any, Any, HttpResponse]] = version
    assert kept is version


def test_limits_are_numbers_with_names() -> None:
    assert_type(Limits().max_body_bytes, int)
    assert_type(RunLimits(header_timeout_s=1).header_timeout_s, float)
    assert_type(TaskOptions(max_unfinished=20).max_unfinished, int)
    assert_type(TaskOptions().requests_per_s, float | None)


def test_telemetry_is_a_switch_or_an_object() -> None:
    telemetry = Telemetry(metrics="127.0.0.1:9464")
    assert_type(telemetry.metrics_address, tuple[str, int] | None)
    assert_type(Server("recorded", telemetry=telemetry), Server)
    assert_type(Server("recorded", telemetry=True), Server)


def test_a_tool_that_runs_as_a_task_stays_the_function_that_it_was() -> None:
    server = Server("tasks", tasks=TaskOptions())

    @server.tool(task="required", keep_s=60, max_run_s=3600)
    async def add(a: int, b: int) -> int:
        return a + b

    kept: Callable[[int, int], Coroutine[Any, Any, int]] = add
    assert kept is add


def test_an_extension_has_methods_that_stay_functions() -> None:
    search = Extension("com.example/search", {"languages": ["en"]})

    @search.method("search/query")
    def query(words: str) -> dict[str, str]:
        if not words:
            raise Fault(FaultKind.INVALID_PARAMS, "no words")
        return {"words": words}

    assert_type(query("tea"), dict[str, str])
    assert_type(search.settings, dict[str, Any])
