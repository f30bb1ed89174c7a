"""Extensions of a server: declared, used by clients that declare them, refused to others; on every
transport, in every revision."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from colonnade import (
    BlockingContext,
    Client,
    Context,
    Extension,
    Fault,
    FaultKind,
    Handler,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    RequestContext,
    Server,
    ToolError,
    connect,
    sync,
)
from colonnade.protocol import types as t
from colonnade.protocol.extensions import MAX_EXTENSIONS, MAX_SETTINGS_BYTES
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.testing import connect as in_memory
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import live
from server.extension_server import FOUND, QUERY, SEARCH, Hits, library, search_extension
from server.raw_client import Rejected, raw_client

TASKS = t.TASKS_EXTENSION_ID
PROGRAM = Path(__file__).resolve().parents[1] / "support/server/extension_server.py"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
DECLARED: dict[str, dict[str, Any]] = {SEARCH: {}}
MISSING = {"requiredCapabilities": {"extensions": {SEARCH: {}}}}


@asynccontextmanager
async def site(server: Server, **options: Any) -> AsyncGenerator[int]:
    runner = HttpRunner(server.asgi(**options), port=0)
    await runner.start()
    try:
        yield runner.port
    finally:
        await runner.stop(0.0)


async def uses(client: Client) -> None:
    """What a client does that declared the extension."""
    heard: list[dict[str, Any]] = []
    client.add_notification_handler(FOUND, heard.append, extension=SEARCH)
    assert (client.capabilities.extensions or {})[SEARCH] == {"languages": ["en", "fr"]}
    found = await client.request(QUERY, {"words": "tea"}, extension=SEARCH, returns=Hits)
    assert found == Hits(["tea", "tea"])
    plain = await client.request(QUERY, {"words": "tea", "limit": 1}, extension=SEARCH)
    assert plain == {"titles": ["tea"], "caller": ""}
    assert heard == [{"words": "tea"}] * 2
    assert (await client.call_tool("announce")).text == "done"
    assert heard[2:] == [{"words": "tool"}]
    with pytest.raises(RemoteError) as caught:
        await client.request(QUERY, {"words": 1}, extension=SEARCH)
    assert caught.value.code == -32602
    with pytest.raises(RemoteError) as caught:
        await client.request("search/other", extension=SEARCH)
    assert caught.value.code == -32601
    with pytest.raises(RemoteProtocolError, match=r"search/query of server .* is not int"):
        await client.request(QUERY, {"words": "tea"}, extension=SEARCH, returns=int)


# ---------------------------------------------------------------- both sides declared it


@live
async def test_an_extension_is_used_in_memory(revision: Revision) -> None:
    async with in_memory(library(), revision.date, extensions=DECLARED) as client:
        await uses(client)


@live
async def test_an_extension_is_used_on_stdio(revision: Revision) -> None:
    command = [sys.executable, str(PROGRAM)]
    async with connect(command, revision=revision.date, extensions=DECLARED) as client:
        await uses(client)


@live
async def test_an_extension_is_used_over_http(revision: Revision) -> None:
    async with site(library()) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with connect(url, revision=revision.date, extensions=DECLARED) as client:
            await uses(client)


def test_an_extension_is_used_by_a_blocking_client() -> None:
    server = Server("library", extensions=[search := Extension(SEARCH)])

    @search.method(QUERY)
    def query(words: str, ctx: BlockingContext) -> dict[str, str]:
        ctx.notify(FOUND, {"words": words}, extension=SEARCH)
        return {"words": words}

    heard: list[dict[str, Any]] = []
    with sync.connect(server, extensions=DECLARED) as client:
        client.add_notification_handler(FOUND, heard.append, extension=SEARCH)
        assert client.request(QUERY, {"words": "tea"}, extension=SEARCH) == {"words": "tea"}
    assert heard == [{"words": "tea"}]


# ---------------------------------------------------------------- one side did not


@live
async def test_a_caller_that_did_not_declare_it_is_told_which_extension_is_missing(
    revision: Revision,
) -> None:
    ran: list[str] = []
    search = Extension(SEARCH)
    server = Server("library", extensions=[search])

    @search.method(QUERY)
    def query() -> None:
        ran.append("query")

    async with raw_client(
        server, revision, can={"extensions": {"com.example/other": {}}}
    ) as client:
        with pytest.raises(Rejected) as caught:
            await client.ask(QUERY)
        assert (caught.value.code, caught.value.data) == (-32021, MISSING)
        with pytest.raises(Rejected) as caught:
            await client.ask("search/other")
        assert (caught.value.code, ran) == (-32601, [])


@pytest.mark.spec("R0765", "R0927", "R1116")
@live
async def test_over_http_it_is_told_the_same_with_400() -> None:
    async with site(library()) as port, Caller(port) as caller:
        answer = await caller.modern(QUERY, {"words": "tea"})
        assert (answer.status, answer.json["error"]["code"]) == (400, -32021)
        assert answer.json["error"]["data"] == MISSING
        known = {CAPABILITIES: {"extensions": {SEARCH: {}}}}
        answer = await caller.modern(QUERY, {"words": "tea"}, meta=known, accept="application/json")
        assert (answer.status, answer.json["result"]["titles"]) == (200, ["tea", "tea"])
        # Each request is on its own: the last one declared it, this one does not (R1151).
        answer = await caller.modern(QUERY, {"words": "tea"})
        assert (answer.status, answer.json["error"]["code"]) == (400, -32021)
        answer = await caller.modern("search/other", meta=known)
        assert (answer.status, answer.json["error"]["code"]) == (404, -32601)
        answer = await caller.modern(QUERY, {"words": "tea"}, meta=known, mcp_method="tools/list")
        assert (answer.status, answer.json["error"]["code"]) == (400, -32020)


@live
async def test_in_a_session_over_http_it_is_told_the_same() -> None:
    async with site(library()) as port, Caller(port) as caller:
        await caller.initialize(NOVEMBER_2025.date)
        answer = await caller.ask(QUERY, {"words": "tea"})
        assert (answer.status, answer.json["error"]["code"]) == (200, -32021)
        assert answer.json["error"]["data"] == MISSING
        answer = await caller.ask("search/other")
        assert answer.json["error"]["code"] == -32601


@live
async def test_without_sessions_a_caller_of_an_older_revision_has_declared_nothing() -> None:
    async with site(library(), stateless=True) as port, Caller(port) as caller:
        await caller.initialize(NOVEMBER_2025.date)
        answer = await caller.ask(QUERY, {"words": "tea"})
        assert (answer.status, answer.json["error"]["code"]) == (200, -32021)


@pytest.mark.spec("R1205", "R1207", "T02")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@live
async def test_methods_of_tasks_are_refused_over_http_without_the_extension(method: str) -> None:
    server = Server("press", extensions=[Extension(TASKS)])
    params = {"taskId": "t1", "inputResponses": {}}
    async with site(server) as port, Caller(port) as caller:
        answer = await caller.modern(method, params, mcp_name="t1")
        assert (answer.status, answer.json["error"]["code"]) == (400, -32021)
        required = {"extensions": {TASKS: {}}}
        assert answer.json["error"]["data"] == {"requiredCapabilities": required}
        # The capability of 2025-11-25 is none.
        legacy = {CAPABILITIES: {"tasks": {"cancel": {}}}}
        answer = await caller.modern(method, params, meta=legacy, mcp_name="t1")
        assert (answer.status, answer.json["error"]["code"]) == (400, -32021)


@pytest.mark.spec("R1205", "R1206")
@live
async def test_notifications_of_tasks_are_refused_over_http_without_the_extension() -> None:
    server = Server("press", extensions=[Extension(TASKS)])
    async with site(server) as port, Caller(port) as caller:
        wanted = {"notifications": {"taskIds": ["t1"]}}
        answer = await caller.modern("subscriptions/listen", wanted)
        assert (answer.status, answer.json["error"]["code"]) == (400, -32021)


@live
async def test_a_request_is_not_sent_if_one_side_did_not_declare_the_extension(
    revision: Revision,
) -> None:
    async with in_memory(Server("plain"), revision.date, extensions=DECLARED) as client:
        with pytest.raises(
            LocalProtocolError, match=r"'plain' has not declared .*; it declares non"
        ):
            await client.request(QUERY, {"words": "tea"}, extension=SEARCH)
        assert QUERY not in str(client.record)
    for declared in (None, {}, {"com.example/other": {}}):
        async with in_memory(library(), revision.date, extensions=declared) as client:
            with pytest.raises(InvalidArgument, match=r"connect with extensions=\{'com.example/s"):
                await client.request(QUERY, {"words": "tea"}, extension=SEARCH)
            with pytest.raises(InvalidArgument, match="connect with"):
                client.add_notification_handler(FOUND, print, extension=SEARCH)
            assert (await client.call_tool("announce")).text == "done"
            assert FOUND not in str(client.record)


# ---------------------------------------------------------------- handlers


@live
async def test_a_handler_runs_in_middleware_with_scopes_and_its_errors_are_json_rpc_errors(
    revision: Revision,
) -> None:
    search = Extension(SEARCH)
    seen: list[str] = []

    async def watch(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        seen.append(f"{request.method} of {request.principal}")
        return await call_next(request)

    server = Server("library", middleware=[watch], extensions=[search])

    @search.method("search/shut", scopes={"admin"})
    async def shut() -> dict[str, bool]:
        return {"shut": True}

    @search.method("search/none")
    async def none() -> None:
        pass

    @search.method("search/fails")
    async def fails(kind: str, ctx: Context) -> dict[str, int]:
        if kind == "fault":
            raise Fault(FaultKind.INVALID_PARAMS, "no such book", {"book": 1})
        if kind == "tool":
            raise ToolError("the shelf is closed")
        if kind == "ask":
            await ctx.elicit("Sure?", bool)
        raise RuntimeError("secret")

    @search.method("search/wrong")
    async def wrong() -> Any:
        return [1]

    async def refusal(method: str, **params: Any) -> RemoteError:
        async with in_memory(
            server, revision.date, extensions=DECLARED, principal="ann", scopes=[], debug=False
        ) as client:
            with pytest.raises(RemoteError) as caught:
                await client.request(method, params, extension=SEARCH)
            return caught.value

    assert "needs the scope admin" in (await refusal("search/shut")).message
    error = await refusal("search/fails", kind="fault")
    assert (error.code, error.message, error.data) == (-32602, "no such book", {"book": 1})
    error = await refusal("search/fails", kind="tool")
    assert (error.code, error.message) == (-32603, "the shelf is closed")
    for kind in ("crash", "ask"):
        error = await refusal("search/fails", kind=kind)
        assert error.code == -32603
        assert "secret" not in error.message
    assert (await refusal("search/wrong")).code == -32603
    assert "search/fails of ann" in seen
    async with in_memory(
        server, revision.date, extensions=DECLARED, principal="ann", scopes=["admin"]
    ) as client:
        assert await client.request("search/shut", extension=SEARCH) == {"shut": True}
        assert await client.request("search/none", {"_meta": {"a.b/c": 1}}, extension=SEARCH) == {}


@live
async def test_scopes_of_an_extension_are_checked_before_its_handler_over_http() -> None:
    search = Extension(SEARCH)
    server = Server("library", extensions=[search])

    @search.method("search/shut", scopes={"admin"})
    async def shut() -> None:
        raise AssertionError

    async def verify(headers: Mapping[bytes, bytes]) -> str:
        return "ann"

    known = {CAPABILITIES: {"extensions": {SEARCH: {}}}}
    async with site(server, verify=verify) as port, Caller(port) as caller:
        answer = await caller.modern("search/shut", meta=known)
        assert (answer.status, "admin" in answer.json["error"]["message"]) == (403, True)


@live
async def test_a_mounted_server_brings_its_extensions(revision: Revision) -> None:
    outer, inner = Server("outer"), library()
    seen: list[str] = []

    async def watch(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        seen.append(request.method)
        return await call_next(request)

    outer.mount(inner, "shelf")
    inner.add_middleware(watch)
    late = Extension("com.example/late")
    inner.add_extension(late)

    @late.method("late/one")
    def one() -> dict[str, int]:
        return {"one": 1}

    assert [extension.id for extension in outer.extensions] == [SEARCH, "com.example/late"]
    declared = {**DECLARED, "com.example/late": {}}
    async with in_memory(outer, revision.date, extensions=declared) as client:
        assert await client.request(QUERY, {"words": "a", "limit": 0}, extension=SEARCH)
        assert await client.request("late/one", extension=late.id) == {"one": 1}
    assert seen == [QUERY, "late/one"]
    with pytest.raises(InvalidArgument, match="both have the extension"):
        outer.mount(library())
    outer.add_extension(Extension("com.example/own"))
    with pytest.raises(InvalidArgument, match="has the extension com"):
        inner.add_extension(Extension("com.example/own"))
    assert [extension.id for extension in inner.extensions] == [SEARCH, late.id]


# ---------------------------------------------------------------- what is declared


@live
async def test_an_extension_that_is_added_later_is_there_at_once() -> None:
    server = Server("library")
    known = {CAPABILITIES: {"extensions": {SEARCH: {}}}}
    async with site(server) as port, Caller(port) as caller:
        async with in_memory(server, extensions=DECLARED) as client:
            answer = await caller.modern(QUERY, {"words": "tea"}, meta=known)
            assert answer.status == 404
            extension = Extension(SEARCH)
            server.add_extension(extension)
            await client.ping()
            assert client.capabilities.extensions == {SEARCH: {}}
            extension.settings = {"languages": ["no"]}
            await client.ping()
            assert client.capabilities.extensions == {SEARCH: {"languages": ["no"]}}

            @extension.method(QUERY)
            async def query(words: str) -> dict[str, str]:
                return {"words": words}

            assert await client.request(QUERY, {"words": "a"}, extension=SEARCH) == {"words": "a"}
        answer = await caller.modern(QUERY, {"words": "tea"}, meta=known)
        assert (answer.status, answer.json["result"]["words"]) == (200, "tea")
        async with connect(
            f"http://127.0.0.1:{port}/mcp", revision=NOVEMBER_2025.date, extensions=DECLARED
        ) as late:
            assert await late.request(QUERY, {"words": "a"}, extension=SEARCH) == {"words": "a"}


class ByCallers(Extension):
    """Declares who the callers are, and to anonymous ones nothing."""

    def declare(self, capabilities: t.ServerCapabilities, callers: Callers) -> t.ServerCapabilities:
        if callers is Callers.ANONYMOUS:
            return capabilities
        return t.ServerCapabilities(extensions={self.id: {"callers": callers.name}})


@live
async def test_capabilities_differ_by_the_callers_that_a_transport_has(revision: Revision) -> None:
    server = Server("library", extensions=[extension := ByCallers(SEARCH)])

    @extension.method(QUERY)
    async def query() -> dict[str, int]:
        return {"found": 1}

    async def verify(headers: Mapping[bytes, bytes]) -> str:
        return headers.get(b"x-user", b"").decode()

    async with in_memory(server, revision.date, extensions=DECLARED) as client:
        assert client.capabilities.extensions == {SEARCH: {"callers": "SINGLE"}}
        assert await client.request(QUERY, extension=SEARCH) == {"found": 1}
    async with site(server, verify=verify) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        async with connect(
            url, revision=revision.date, extensions=DECLARED, headers={"X-User": "ann"}
        ) as client:
            assert client.capabilities.extensions == {SEARCH: {"callers": "AUTHENTICATED"}}
            assert await client.request(QUERY, extension=SEARCH) == {"found": 1}
        async with connect(url, revision=revision.date, extensions=DECLARED) as client:
            assert client.capabilities.extensions is None
        known = {CAPABILITIES: {"extensions": {SEARCH: {}}}}
        async with Caller(port) as caller:
            assert (await caller.modern(QUERY, meta=known)).status == 404
            assert (await caller.modern(QUERY, meta=known, x_user="ann")).status == 200


@live
async def test_tasks_are_an_extension_in_the_newest_revision_alone(revision: Revision) -> None:
    server = Server("press", extensions=[Extension(TASKS), search_extension()])
    declared: dict[str, dict[str, Any]] = {TASKS: {}, SEARCH: {}}
    async with in_memory(server, revision.date, extensions=declared) as client:
        both = {TASKS, SEARCH} if revision is JULY_2026 else {SEARCH}
        assert set(client.capabilities.extensions or ()) == both
        assert (TASKS in str(client.record)) is (revision is JULY_2026)  # T01


# ---------------------------------------------------------------- mistakes


@dataclass
class Book:
    title: str


@pytest.mark.spec("R0926", "R1139", "R1052")
@pytest.mark.parametrize(
    "id",
    [
        "search",
        "",
        "/search",
        "com.example/",
        "com example/x",
        "1.a/x",
        "com.example/x/y",
        "a/" * 200,
    ],
)
def test_an_identifier_is_a_domain_in_reverse_and_a_name(id: str) -> None:
    with pytest.raises(ValueError, match=r"com\.example/search"):
        Extension(id)
    with pytest.raises(InvalidArgument, match=r"com\.example/search"):
        connect(Server("x"), extensions={id: {}})


@pytest.mark.parametrize("id", ["io.modelcontextprotocol/search", "dev.mcp/x", "com.mcp.tools/x"])
def test_the_prefix_of_official_extensions_is_reserved(id: str) -> None:
    with pytest.raises(InvalidArgument, match="reserved"):
        Extension(id)
    with pytest.raises(InvalidArgument, match="reserved"):
        connect(Server("x"), extensions={id: {}})
    assert Extension("com.example.mcp/x").id == "com.example.mcp/x"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ([], TypeError),
        ("x", TypeError),
        ({"a": object()}, ValueError),
        ({"a": float("nan")}, ValueError),
        ({"a": "x" * MAX_SETTINGS_BYTES}, ValueError),
    ],
)
def test_settings_are_a_small_json_object(settings: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="settings"):
        Extension(SEARCH, settings)
    with pytest.raises(error, match="settings"):
        connect(Server("x"), extensions={SEARCH: settings})
    extension = Extension(SEARCH, {"a": (1, 2)})
    with pytest.raises(error, match="settings"):
        extension.settings = settings
    assert extension.settings == {"a": [1, 2]}


def test_an_extension_that_cannot_work_is_refused_when_it_is_written() -> None:
    search = search_extension()
    server = Server("library", extensions=[search])
    with pytest.raises(InvalidArgument, match="already"):
        server.add_extension(Extension(SEARCH))
    for wrong in ("com.example/x", [Extension("com.example/x")], Extension):
        with pytest.raises(InvalidArgumentType, match="Extension"):
            server.add_extension(wrong)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgumentType, match="takes a list"):
        Server("x", extensions=search)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name in ("query", "", "a b/c", "/x", "search/", "x" * 200 + "/y"):
        with pytest.raises(InvalidArgument, match="not the name of a method"):
            search.method(name)
    with pytest.raises(InvalidArgumentType, match="a string"):
        search.method(print)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name in ("tools/call", "tasks/get", "notifications/message"):
        with pytest.raises(InvalidArgument, match="method of the protocol"):
            search.method(name)
    with pytest.raises(InvalidArgument, match="has 'search/query' already"):
        search.method(QUERY)(lambda: None)
    with pytest.raises(InvalidArgumentType, match="not a function"):
        search.method("search/x")(1)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    for returns in (int, list[Book], str):

        def function() -> Any: ...

        function.__annotations__["return"] = returns
        with pytest.raises(InvalidArgumentType, match="a result is an object"):
            search.method("search/list")(function)
    assert [method.name for method in search.methods] == [QUERY]
    other = Extension("com.example/other")
    other.method(QUERY)(lambda: None)
    with pytest.raises(InvalidArgument, match=r"is a method of com\.example/search already"):
        server.add_extension(other)
    assert server.extensions == [search]
    for n in range(1, MAX_EXTENSIONS):
        server.add_extension(Extension(f"com.example/x{n}"))
    with pytest.raises(InvalidArgument, match="the most"):
        server.add_extension(Extension("com.example/more"))
    with pytest.raises(InvalidArgument, match="at most"):
        connect(server, extensions={f"com.example/x{n}": {} for n in range(MAX_EXTENSIONS + 1)})
    for given in ([SEARCH], {1: {}}):
        with pytest.raises(InvalidArgumentType):
            connect(server, extensions=given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="no revision defines"):
        search.handle("search/x", lambda _: None)  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]
    assert repr(search) == f"Extension({SEARCH!r})"


@live
async def test_a_handler_of_a_method_that_a_revision_defines_returns_its_result() -> None:
    tasks = Extension(TASKS)

    async def cancel(request: RequestContext) -> t.ProtocolType:
        return t.ExtCancelTaskResult()

    tasks.handle("tasks/cancel", cancel)
    known = {"extensions": {TASKS: {}}}
    async with raw_client(Server("press", extensions=[tasks]), JULY_2026, can=known) as client:
        assert (await client.ask("tasks/cancel", {"taskId": "t1"}))["resultType"] == "complete"
        with pytest.raises(Rejected) as caught:  # there is no handler
            await client.ask("tasks/get", {"taskId": "t1"})
        assert caught.value.code == -32601


@live
async def test_a_call_of_the_client_that_cannot_be_sent_is_refused() -> None:
    async with in_memory(library(), extensions=DECLARED) as client:
        for method in ("tools/call", "query"):
            with pytest.raises(InvalidArgument):
                await client.request(method, extension=SEARCH)
        with pytest.raises(InvalidArgumentType):
            await client.request(QUERY, [1], extension=SEARCH)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
        with pytest.raises(InvalidArgumentType):
            client.add_notification_handler(FOUND, None, extension=SEARCH)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
        with pytest.raises(InvalidArgument):
            client.add_notification_handler("ping/x y", print, extension=SEARCH)
        context_errors: list[str] = []
        server = Server("x")

        @server.tool
        async def wrong(ctx: Context) -> str:
            for method, params in (("notifications/message", {}), (FOUND, [1])):
                try:
                    await ctx.notify(method, params, extension=SEARCH)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportCallIssue]
                except LocalProtocolError as error:
                    context_errors.append(str(error))
            return "done"

        async with in_memory(server) as other:
            await other.call_tool("wrong")
        assert len(context_errors) == 2
