"""Plain HTTP beside MCP: `@server.route`, in what `run`, `serve` and `asgi` serve."""

import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade import HttpRequest, HttpResponse, Limits, Protection, Server, StaticTokens
from colonnade.errors import LocalProtocolError
from colonnade.transport.http_server.runner import listening
from http_client import Caller, Response
from live import live


def served() -> Server:
    server = Server("routed", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.route("/version")
    async def version(request: HttpRequest) -> dict[str, str]:
        return {"version": "1", "path": request.path}

    @server.route("/text")
    async def text(request: HttpRequest) -> str:
        return "hällo"

    @server.route("/bytes")
    async def raw(request: HttpRequest) -> bytes:
        return b"\x00\x01"

    @server.route("/nothing")
    async def nothing(request: HttpRequest) -> None:
        return None

    @server.route("/teapot")
    async def teapot(request: HttpRequest) -> HttpResponse:
        page = "<b>short and stout</b>"
        return HttpResponse(page, 418, headers={"X-Pot": "tea"}, media_type="text/html")

    @server.route("/items/{kind}/{id}")
    async def item(request: HttpRequest) -> list[Any]:
        return [request.path_params, request.query_params, request.headers["X-One"], request.client]

    @server.route("/echo", methods=["POST"])
    async def echo(request: HttpRequest) -> Any:
        return {"json": await request.json(), "again": await request.text()}

    @server.route("/blocking")
    def blocking(request: HttpRequest) -> str:
        return threading.current_thread().name

    @server.route("/broken")
    async def broken(request: HttpRequest) -> str:
        raise RuntimeError("s3cret")

    return server


@asynccontextmanager
async def up(server: Server | None = None, **settings: Any) -> AsyncGenerator[Caller]:
    app = (server or served()).asgi(**settings)
    async with listening(app, port=0) as site, Caller(site.port) as caller:
        yield caller


async def get(caller: Caller, path: str, **headers: Any) -> Response:
    return await caller.request("GET", path=path, accept="*/*", **headers)


@live
async def test_what_a_handler_returns_becomes_the_response() -> None:
    async with up() as caller:
        answer = await get(caller, "/version")
        assert (answer.status, answer.json) == (200, {"version": "1", "path": "/version"})
        assert answer.headers["content-type"] == "application/json"
        answer = await get(caller, "/text")
        assert (answer.body.decode(), answer.headers["content-type"]) == (
            "hällo",
            "text/plain; charset=utf-8",
        )
        answer = await get(caller, "/bytes")
        assert (answer.body, answer.headers["content-type"]) == (
            b"\x00\x01",
            "application/octet-stream",
        )
        answer = await get(caller, "/nothing")
        assert (answer.status, answer.body) == (204, b"")
        answer = await get(caller, "/teapot")
        assert (answer.status, answer.body, answer.headers["x-pot"]) == (
            418,
            b"<b>short and stout</b>",
            "tea",
        )
        assert answer.headers["content-type"] == "text/html; charset=utf-8"


@live
async def test_a_handler_sees_path_query_headers_client_and_body() -> None:
    async with up() as caller:
        answer = await get(caller, "/items/note/7?q=a%20b&q=c&empty=", x_one="1")
        assert answer.json == [
            {"kind": "note", "id": "7"},
            {"q": "c", "empty": ""},
            "1",
            "127.0.0.1",
        ]
        assert (await get(caller, "/items/note")).status == 404
        body = json.dumps({"a": [1]}).encode()
        answer = await caller.request("POST", body, path="/echo")
        assert answer.json == {"json": {"a": [1]}, "again": '{"a": [1]}'}
        answer = await caller.request("POST", b"{", path="/echo")
        assert (answer.status, answer.body) == (400, b"the body is not JSON")
        answer = await get(caller, "/version?" + "&".join(f"a{n}=" for n in range(2000)))
        assert answer.status == 200  # which looks at no query
        answer = await get(
            caller, "/items/a/b?" + "&".join(f"a{n}" for n in range(1200)), x_one="1"
        )
        assert answer.status == 400


@live
async def test_a_function_that_blocks_runs_in_a_thread() -> None:
    async with up() as caller:
        answer = await get(caller, "/blocking")
        assert answer.status == 200
        assert answer.body.decode() != threading.current_thread().name


@live
async def test_the_response_of_a_web_framework_is_taken_as_it_is() -> None:
    """What Starlette's and Django's responses are: an ASGI application."""
    server = Server("framed")

    class Redirect:
        status_code = 307

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            headers = [(b"location", b"/elsewhere"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 307, "headers": headers})
            await send({"type": "http.response.body", "body": b""})

    @server.route("/moved")
    async def moved(request: HttpRequest) -> Any:
        return Redirect()

    async with up(server) as caller:
        answer = await get(caller, "/moved")
        assert (answer.status, answer.headers["location"]) == (307, "/elsewhere")


@live
async def test_the_client_of_a_route_is_the_one_behind_a_trusted_proxy_server() -> None:
    for trusted, client in ((["127.0.0.0/8"], "8.8.8.8"), (["10.0.0.0/8"], "127.0.0.1")):
        async with up(trusted_proxies=trusted) as caller:
            answer = await get(caller, "/items/note/7", x_one="1", x_forwarded_for="8.8.8.8")
            assert answer.json[3] == client
            # The head of this request is known by now; another client is behind it.
            answer = await get(caller, "/items/note/7", x_one="1", x_forwarded_for="1.1.1.1")
            assert answer.json[3] == (client if client == "127.0.0.1" else "1.1.1.1")


@live
async def test_other_methods_are_refused_and_head_is_get_without_a_body() -> None:
    async with up() as caller:
        answer = await caller.request("POST", b"{}", path="/version")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        wire, head = await caller.begin("HEAD", path="/version")
        assert (head.status, head.headers["content-type"]) == (200, "application/json")
        wire.close()
        assert (await get(caller, "/none")).status == 404


@live
async def test_a_foreign_host_or_page_reaches_no_route() -> None:
    async with up() as caller:
        assert (await get(caller, "/version", host="evil.example")).status == 403
        assert (await get(caller, "/version", origin="http://evil.example")).status == 403


@live
async def test_an_application_of_asgi_admits_no_page_of_another_port_of_localhost() -> None:
    assert not served().asgi().policy.allows_origin("http", "localhost", "3000")
    async with up(hosts=["mcp.example.com"]) as caller:
        assert (await get(caller, "/version", host="localhost:9000")).status == 200
        for port, status in ((9000, 200), (3000, 403)):
            page = f"http://localhost:{port}"
            answer = await get(caller, "/version", host="localhost:9000", origin=page)
            assert answer.status == status


@live
async def test_a_route_that_fails_says_nothing_of_why_to_strangers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with up() as caller:
        answer = await get(caller, "/broken")
        assert (answer.status, b"s3cret" in answer.body) == (500, False)
        assert "the route /broken raised RuntimeError" in caplog.text
        assert (await get(caller, "/version")).status == 200


@live
async def test_bodies_of_routes_have_the_limit_of_the_server() -> None:
    async with up(limits=Limits(max_body_bytes=100)) as caller:
        answer = await caller.request("POST", b"1" * 200, path="/echo")
        assert answer.status == 413


@live
async def test_a_route_is_public_where_the_endpoint_is_not_and_probes_are_still_there() -> None:
    server = served()
    resource = "http://127.0.0.1:8000/mcp"
    server._auth = Protection(resource, StaticTokens({"word": "ann"}))
    async with up(server) as caller:
        assert (await caller.modern("tools/list")).status == 401
        assert (await get(caller, "/version")).status == 200
        for path in ("/health", "/ready"):
            answer = await get(caller, path)
            assert (answer.status, answer.body) == (200, b"ok")
        allowed = await caller.modern("tools/list", authorization="Bearer word")
        assert allowed.status == 200


@live
async def test_a_route_of_ones_own_takes_the_place_of_a_probe() -> None:
    server = served()

    @server.route("/health")
    async def health(request: HttpRequest) -> dict[str, bool]:
        return {"database": True}

    async with up(server) as caller:
        assert (await get(caller, "/health")).json == {"database": True}
        assert (await get(caller, "/ready")).body == b"ok"


@live
async def test_routes_of_mounted_servers_are_served_and_come_before_another_application() -> None:
    async def around(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"theirs"})

    outer = Server("outer")
    outer.mount(served(), namespace="inner")
    async with up(outer, around=around) as caller:
        assert (await get(caller, "/version")).json["version"] == "1"
        wire, answer = await caller.begin("GET", path="/health", accept="*/*", connection="close")
        assert answer.status == 200
        assert b"theirs" in await wire.reader.read()
        wire.close()


def test_what_could_not_be_served_is_refused_at_the_decorator() -> None:
    server = served()

    async def one(request: HttpRequest) -> None: ...
    async def none() -> None: ...

    for path, methods, function, words in (
        ("version", ["GET"], one, "begin it with /"),
        ("/a b", ["GET"], one, "is not a path"),
        ("/a/{b", ["GET"], one, "is not a path"),
        ("/a?b", ["GET"], one, "is not a path"),
        ("/{a}/{a}", ["GET"], one, "parameter twice"),
        ("/a", ["get"], one, "write \\['GET'"),
        ("/a", [], one, "methods= is empty"),
        ("/a", ["GET"], none, "takes the request"),
        ("/version", ["GET"], one, "is already registered"),
    ):
        handler: Any = function
        with pytest.raises(LocalProtocolError, match=words):
            server.route(path, methods=methods)(handler)
    server.route("/version", methods=["POST"])(one)
    server.route("/mcp")(one)
    with pytest.raises(LocalProtocolError, match="the path of the endpoint"):
        server.asgi()


def test_a_response_that_is_none_is_refused_where_it_is_made() -> None:
    with pytest.raises(LocalProtocolError, match="200 to 599"):
        HttpResponse("", 99)
    with pytest.raises(LocalProtocolError, match="is not a valid header"):
        HttpResponse("", headers={"X": "a\r\nSet-Cookie: b"})
    assert repr(HttpResponse("ab", 201)) == "HttpResponse(201, 2 bytes)"


def test_a_route_where_the_server_answers_itself_is_refused_since_it_would_never_be_asked() -> None:
    for path in ("/sse", "/messages/"):
        server = Server("routed")
        server.route(path)(print)
        with pytest.raises(LocalProtocolError, match="which this server uses for clients"):
            server.asgi()
        server.asgi(stateless=True)


@live
async def test_a_route_with_a_parameter_leaves_the_endpoint_where_it_is() -> None:
    server = Server("routed")

    @server.route("/{page}")
    async def show(request: HttpRequest) -> str:
        return request.path_params["page"]

    async with up(server, stateless=True) as caller:
        assert (await get(caller, "/about")).body == b"about"
        assert (await get(caller, "/mcp")).status == 405
