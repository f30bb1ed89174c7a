"""What people type who come from FastMCP or the official SDK: it works, or they are told what to
write. And middleware, as it is spelled."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import colonnade
import colonnade.testing
from colonnade import (
    BlockingContext,
    Context,
    Handler,
    LocalProtocolError,
    RequestContext,
    Server,
    connect,
)
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from colonnade.server.options import ATTRIBUTES, KEYWORDS, SERVE_KEYWORDS
from colonnade.transport.http_server.runner import AddressError, bind
from live import live
from server.raw_client import raw_client, text_content


def said(do: Callable[[], object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        do()
    return str(caught.value)


# ---------------------------------------------------------------- names that are not here


@pytest.mark.parametrize("name", sorted(ATTRIBUTES["Server"]))
def test_an_attribute_of_other_libraries_is_answered_with_what_to_write(name: str) -> None:
    words = said(lambda: getattr(Server("s"), name), AttributeError)
    assert words.startswith(f"'Server' object has no attribute {name!r}; ")
    assert not hasattr(Server("s"), name)


# Named here as well as in the table, so that none of them is lost with its row.
BEST_KNOWN = {
    "custom_route": "write @server.route('/version') above an async function of the request",
    "http_app": "write server.asgi(path='/mcp')",
    "streamable_http_app": "write server.asgi(path='/mcp')",
    "sse_app": "write server.asgi(path='/mcp')",
    "add_tool": "write server.tool(function)",
    "import_server": "write server.mount(other, namespace='maps')",
    "run_async": "write await server.serve('http', port=8000), or server.run('http', port=8000)",
}


@pytest.mark.parametrize("name", BEST_KNOWN)
def test_the_best_known_attributes_of_other_libraries_have_a_hint(name: str) -> None:
    words = said(lambda: getattr(Server("s"), name), AttributeError)
    assert words == f"'Server' object has no attribute {name!r}; {BEST_KNOWN[name]}"


def test_an_attribute_that_nobody_knows_is_a_plain_error_or_a_guess() -> None:
    server: Any = Server("s")
    assert said(lambda: server.moutn, AttributeError).endswith("; did you mean 'mount'?")
    assert said(lambda: server.zzz, AttributeError) == "'Server' object has no attribute 'zzz'"


def test_keywords_of_other_libraries_are_answered_with_what_to_write() -> None:
    make: Any = Server
    server: Any = Server("s")
    for name in KEYWORDS["Server"]:
        if name != "prefix":
            assert f"no keyword {name!r}; " in said(
                lambda name=name: make("s", **{name: 1}), TypeError
            )
    assert said(lambda: make("s", versoin="1"), TypeError) == (
        "Server() has no keyword 'versoin'; did you mean 'version'?"
    )
    assert said(lambda: server.mount(Server("o"), prefix="o"), TypeError) == (
        "Server.mount() has no keyword 'prefix'; write namespace="
    )
    assert "server.mount(other, namespace='maps')" in said(
        lambda: server.mount("maps", Server("o")), LocalProtocolError
    )
    assert said(make, LocalProtocolError) == (
        "missing a required argument: 'name'; write Server('weather', version='1.0')"
    )
    assert said(lambda: make("s", "1.0"), LocalProtocolError) == (
        "too many positional arguments; write Server('weather', version='1.0')"
    )
    assert "missing 1 required" in said(lambda: server.mount(), TypeError)


@pytest.mark.parametrize("name", sorted(SERVE_KEYWORDS))
def test_an_option_of_other_libraries_is_answered_with_what_to_write(name: str) -> None:
    server: Any = Server("s")
    given: dict[str, Any] = {name: True}
    for options in (given, {"transport": "http", **given}):
        words = said(lambda options=options: asyncio.run(server.serve(**options)), TypeError)
        assert words == f"Server.serve() has no keyword {name!r}; {SERVE_KEYWORDS[name]}"
    assert said(lambda: server.asgi(**given), TypeError) == (
        f"Server.asgi() has no keyword {name!r}; {SERVE_KEYWORDS[name]}"
    )


def test_an_unknown_option_of_run_is_refused_before_anything_is_served() -> None:
    server: Any = Server("s")
    assert said(lambda: server.run(transport="http", stateless_http=True), TypeError) == (
        "Server.run() has no keyword 'stateless_http'; write stateless=True"
    )
    assert said(lambda: server.run(show_banner=False), TypeError) == (
        "Server.run() has no keyword 'show_banner'; remove it: there is no banner"
    )
    assert said(lambda: server.run(port=8000), TypeError) == (
        "Server.run() has no keyword 'port'; write server.run('http', port=...)"
    )
    assert said(lambda: server.run("http", prot=8000), TypeError).endswith("did you mean 'port'?")
    assert "; there are access_log, around, " in said(lambda: server.asgi(zzz=1), TypeError)
    assert "unknown transport 'pigeon'" in said(
        lambda: server.run("pigeon", x=1), LocalProtocolError
    )
    assert said(lambda: server.run(transport="sse"), LocalProtocolError).endswith(
        "there are 'stdio' and 'http': 'http' serves clients of HTTP+SSE, too, at /sse"
    )


@pytest.mark.parametrize("name", ["hosts", "origins"])
def test_one_string_in_place_of_a_list_of_names_is_refused_where_it_is_served(name: str) -> None:
    server: Any = Server("s")
    options = {name: "https://mcp.example.com"}
    words = f"{name}= takes a list: write {name}=['https://mcp.example.com']"
    assert said(lambda: server.asgi(**options), LocalProtocolError) == words
    assert said(lambda: server.run("http", port=0, **options), LocalProtocolError) == words


def test_a_route_without_its_path_is_refused_with_what_to_write() -> None:
    server: Any = Server("s")

    async def version(request: Any) -> str:
        return "1"

    assert said(lambda: server.route(version), LocalProtocolError) == (
        "@server.route needs a path, not version: "
        'write @server.route("/version") above the function'
    )


def test_a_client_that_is_made_by_hand_is_answered_with_connect() -> None:
    make: Any = colonnade.Client
    for options in ({}, {"timeout": 5}):
        words = said(lambda options=options: make(Server("s"), **options), TypeError)
        assert "write connect(server)" in words


def test_annotations_of_a_tool_are_spelled_out() -> None:
    tool: Any = Server("s").tool
    assert said(lambda: tool(annotations={"readOnlyHint": True}), LocalProtocolError) == (
        "@server.tool has no keyword 'annotations'; write @server.tool(read_only=True)"
    )

    class Theirs:
        title = "T"

    theirs: Any = Theirs()
    theirs.readOnlyHint, theirs.destructiveHint = None, False
    assert "write @server.tool(destructive=False, title='T')" in said(
        lambda: tool(annotations=theirs), LocalProtocolError
    )
    assert "write read_only=, destructive=" in said(
        lambda: tool(annotations={}), LocalProtocolError
    )
    assert "write timeout_s=" in said(lambda: tool(timeout=3), LocalProtocolError)


def test_annotations_of_a_resource_may_be_a_dict() -> None:
    server: Any = Server("s")
    server.resource("x://a", annotations={"audience": ["user"], "priority": 1})(lambda: "x")
    assert server.resources["x://a"].definition.annotations == t.Annotations(
        audience=["user"], priority=1
    )
    wrong = server.resource("x://b", name="b", annotations={"audience": 5})
    assert "b: annotations: " in said(lambda: wrong(lambda: "x"), LocalProtocolError)


@pytest.mark.parametrize(
    "name",
    [
        "FastMCP",
        "MCPServer",
        "ClientSession",
        "get_context",
        "ToolResult",
        "get_http_headers",
        "get_access_token",
        "StaticTokenVerifier",
        "JWTVerifier",
        "tool",
    ],
)
def test_what_other_libraries_export_is_answered_with_what_to_write(name: str) -> None:
    words = said(lambda: exec(f"from colonnade import {name}"), ImportError)
    assert words.startswith(f"'colonnade' has no {name}: ")
    assert "cannot import name" in said(lambda: exec("from colonnade import Nothing"), ImportError)
    assert name not in dir(colonnade)


def test_a_port_that_is_no_number_and_a_configuration_that_is_no_server_are_told() -> None:
    port: Any = "x"
    assert said(lambda: bind("127.0.0.1", port), AddressError).startswith("'x' is no port; ")
    assert "use Host.from_config('mcp.json')" in said(
        lambda: connect("mcp.json"), LocalProtocolError
    )


@pytest.mark.parametrize("name", sorted(KEYWORDS["connect"]))
def test_a_keyword_of_a_client_of_other_libraries_is_answered_in_tests(name: str) -> None:
    open_client: Any = colonnade.testing.connect
    words = said(lambda: open_client(Server("s"), **{name: 1}), TypeError)
    assert words == f"connect() has no keyword {name!r}; {KEYWORDS['connect'][name]}"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (["a", "b"], r"write Literal\['a', 'b'\]$"),
        ([["a", "b"]], r"write list\[Literal\['a', 'b'\]\]$"),
        ({"a": {"title": "A"}}, r"write Literal\['a'\]$"),
        ([], "write Literal"),
        (None, "needs a message and the type of the value: ctx.elicit"),
    ],
)
@live
async def test_a_choice_of_other_libraries_is_answered_with_its_type(
    choice: Any, words: str
) -> None:
    server = Server("s")

    @server.tool
    async def pick(ctx: Context) -> str:
        with pytest.raises(TypeError, match=words) as wrong:
            await ctx.elicit("Pick", choice)
        assert wrong.value.__context__ is None  # one short traceback in the log
        return "told"

    async with colonnade.testing.connect(server, on_elicit=lambda asked: "a") as client:
        assert (await client.call_tool("pick")).data == "told"


@live
async def test_a_context_says_what_to_write_instead(revision: Revision) -> None:
    server = Server("s")
    found: list[str] = []

    def collect(ctx: Any) -> None:
        for name in ATTRIBUTES["Context"]:
            with pytest.raises(AttributeError, match=name) as wrong:
                getattr(ctx, name)
            assert "; " in str(wrong.value)
        calls = (
            lambda: ctx.elicit("Who?", response_type=str),
            lambda: ctx.sample("x", system_prompt="y"),
            lambda: ctx.info("x", extra={"a": 1}),
            lambda: ctx.warning(message="x"),
            lambda: ctx.info("x", colour="red"),
        )
        found.extend(said(call, TypeError) for call in calls)

    @server.tool
    async def waits(ctx: Context) -> None:
        collect(ctx)

    @server.tool
    def blocks(ctx: BlockingContext) -> None:
        collect(ctx)

    async with raw_client(server, revision) as client:
        for name in ("waits", "blocks"):
            assert not (await client.call(name, {})).get("isError")
            assert found[-5:] == [
                "Context.elicit() has no keyword 'response_type'; "
                + KEYWORDS["Context.elicit"]["response_type"],
                "Context.sample() has no keyword 'system_prompt'; write system=",
                (
                    "Context.info() has no keyword 'extra'; "
                    "put it into the data: ctx.info({'message': 'done', 'user': 7})"
                ),
                (
                    "Context.warning() has no keyword 'message'; "
                    "pass it as the first argument: ctx.info('done')"
                ),
                "Context.info() has no keyword 'colour'; there are data, logger",
            ]


# ---------------------------------------------------------------- middleware


@live
async def test_middleware_is_added_in_three_ways_and_the_first_is_the_outermost(
    revision: Revision,
) -> None:
    seen: list[str] = []

    def noting(name: str) -> Any:
        async def note(request: RequestContext, call_next: Handler) -> t.ProtocolType:
            seen.append(name)
            return await call_next(request)

        return note

    server = Server("s", middleware=[noting("one")])
    server.add_middleware(noting("two"))

    @server.middleware
    async def three(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        seen.append("three")
        return await call_next(request)

    server.tool(name="a")(lambda: "x")
    assert three.__name__ == "three"
    async with raw_client(server, revision) as client:
        assert text_content(await client.call("a")) == "x"
    assert seen == ["one", "two", "three"]


@live
async def test_middleware_reads_what_a_request_says(revision: Revision) -> None:
    server = Server("s")
    seen: list[Any] = []

    @server.middleware
    async def look(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        request.arguments["city"] = "changed for nobody"
        seen.append((request.method, request.tool, request.arguments, request.principal))
        assert request.peer.revision is revision
        assert "name" in request.params or not request.tool
        return await call_next(request)

    server.tool(name="forecast")(lambda city: city)
    server.prompt(name="review")(lambda code: code)
    async with raw_client(server, revision) as client:
        assert text_content(await client.call("forecast", {"city": "Oslo"})) == "Oslo"
        await client.ask("tools/list")
        await client.ask("prompts/get", {"name": "review", "arguments": {"code": "x"}})
    assert seen == [
        ("tools/call", "forecast", {"city": "Oslo"}, ""),
        ("tools/list", None, {}, ""),
        ("prompts/get", None, {"code": "x"}, ""),
    ]


def test_what_is_no_middleware_is_refused_with_what_to_write() -> None:
    server: Any = Server("s")

    class Hooks:
        async def __call__(self, context: Any, call_next: Any) -> Any: ...
        async def on_request(self, context: Any, call_next: Any) -> Any: ...

    async def one(request: Any) -> None: ...

    for wrong in (1, Hooks, Hooks(), one):
        assert "async def timing(request, call_next)" in said(
            lambda wrong=wrong: server.add_middleware(wrong), LocalProtocolError
        )
    assert "one does not take two arguments" in said(
        lambda: server.middleware(one), LocalProtocolError
    )
    with pytest.raises(LocalProtocolError, match="not a middleware"):
        Server("s", middleware=[server])
    make: Any = Server
    for alone in (one, None, 1):
        assert "write middleware=[timing]" in said(
            lambda alone=alone: make("s", middleware=alone), LocalProtocolError
        )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "MiddlewareContext",
            "write async def timing(request: RequestContext, call_next: Handler)",
        ),
        ("create_proxy", "write Gateway(Host({'weather': 'https://example.com/mcp'}))"),
    ],
)
def test_an_import_of_another_library_gets_a_hint(name: str, hint: str) -> None:
    words = said(lambda: getattr(colonnade, name), ImportError)
    assert words == f"'colonnade' has no {name}: {hint}"


def test_hints_are_of_names_that_are_there() -> None:
    """A hint that names something else than what there is would be worse than none."""
    import re

    here = {"Server": set(dir(Server)), "Context": set(dir(Context))}
    for owner, table in ATTRIBUTES.items():
        for hint in table.values():
            word = "server" if owner == "Server" else "ctx"
            for name in re.findall(rf"\b{word}\.([a-z_]+)", hint):
                assert name in here[owner], hint


def test_a_request_is_not_logged_by_its_headers_or_claims(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caller = colonnade.Caller("ann", frozenset({"a"}), None, {"email": "ann@example.com"})
    with caplog.at_level(logging.INFO):
        logging.getLogger("colonnade.server").info("%r", caller)
    assert "Caller('ann', scopes=['a'])" in caplog.text
    assert "example.com" not in caplog.text
