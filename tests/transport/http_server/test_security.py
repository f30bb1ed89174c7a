"""What is let in over real sockets, and what is not: origins, bodies, principals, limits."""

import asyncio
import json
from typing import Any, cast

import pytest

from colonnade.errors import LoginRequired, ScopeRequired
from colonnade.ports import SERVER_PRINCIPAL, Caller, EndpointResponse
from colonnade.protocol.http.security import Headers, HostPolicy
from colonnade.protocol.revision import JULY_2026, Revisions
from colonnade.transport.http_server.request import Limits
from http_client import META
from live import Records, live, served_app, until

MODERN_ONLY = Revisions((JULY_2026,))
PROGRESS = {"progressToken": "p"}
LISTEN = {"notifications": {"toolsListChanged": True}}

# ---------------------------------------------------------------- what is no request


@pytest.mark.spec("R0852")
@live
async def test_a_notification_is_202_with_no_body() -> None:
    async with served_app() as s:
        message = {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": 1},
        }
        answer = await s.caller.post(message, mcp_protocol_version="2026-07-28")
        assert (answer.status, answer.body) == (202, b"")


@pytest.mark.spec("R0853")
@live
async def test_a_reply_cannot_be_posted() -> None:
    async with served_app() as s:
        message = {"jsonrpc": "2.0", "id": 1, "result": {}}
        answer = await s.caller.post(message, mcp_protocol_version="2026-07-28")
        assert (answer.status, answer.code) == (400, -32600)


@pytest.mark.spec("R0850")
@live
async def test_a_batch_is_refused_and_none_of_it_runs() -> None:
    async with served_app() as s:
        answer = await s.caller.post([{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}])
        assert (answer.status, answer.code) == (400, -32600)
        assert not s.service.turns


BAD_BODIES: dict[str, bytes] = {
    "empty": b"",
    "space": b"   ",
    "not JSON": b"{",
    "two objects": b"{}{}",
    "a scalar": b"true",
    "null": b"null",
    "no jsonrpc": b'{"id":1,"method":"a"}',
    "bad version": b'{"jsonrpc":"1.0","id":1,"method":"a"}',
    "bool id": b'{"jsonrpc":"2.0","id":true,"method":"a"}',
    "null id": b'{"jsonrpc":"2.0","id":null,"method":"a"}',
    "array params": b'{"jsonrpc":"2.0","id":1,"method":"a","params":[]}',
    "not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "UTF-16": '{"jsonrpc":"2.0"}'.encode("utf-16"),
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "long number": b'{"jsonrpc":"2.0","id":' + b"7" * 5000 + b',"method":"a"}',
    "twice": b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}',
    "surrogate": b'{"jsonrpc":"2.0","id":"\\ud800","method":"a"}',
    "array meta": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":[]}}',
    "empty batch": b"[]",
    "long method": b'{"jsonrpc":"2.0","id":1,"method":"' + b"a" * 65536 + b'"}',
    "infinite": b'{"jsonrpc":"2.0","id":1e400,"method":"a"}',
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
@live
async def test_a_bad_body_is_400_and_the_next_request_is_served(body: bytes) -> None:
    async with served_app() as s:
        answer = await s.caller.request("POST", body)
        assert answer.status == 400
        assert "error" in answer.json
        assert (await s.caller.call("echo")).status == 200
        assert len(s.service.turns) == 1


# ---------------------------------------------------------------- the gate


@pytest.mark.spec("R0045", "R0484")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT", "HEAD"])
@pytest.mark.parametrize("path", ["/mcp", "/sse", "/messages"])
@live
async def test_a_foreign_origin_or_host_is_403_on_every_path(method: str, path: str) -> None:
    async with served_app() as s:
        foreign: list[dict[str, Any]] = [
            {"origin": "http://evil.example"},
            {"host": "evil.example"},
        ]
        for headers in foreign:
            wire, answer = await s.caller.begin(method, path=path, **headers)
            assert answer.status == 403
            if method != "HEAD":
                words = json.loads(await answer.read())["error"]["message"]
                assert "origins" in words or "hosts" in words
                assert "id" not in answer.json
            wire.close()
        assert not s.service.turns
        assert len(s.app.reaper) == 0


@pytest.mark.parametrize(
    "origin",
    ["null", "http://localhost.evil", "http://localhost:80@evil", "http://127.0.0.1:1", "", "x"],
)
@live
async def test_an_origin_that_only_looks_like_ours_is_403(origin: str) -> None:
    async with served_app() as s:
        assert (await s.caller.modern("tools/list", origin=origin)).status == 403


@live
async def test_our_own_names_are_let_in() -> None:
    async with served_app() as s:
        for name in ("localhost", "127.0.0.1", "[::1]"):
            host = f"{name}:{s.site.port}"
            answer = await s.caller.modern("tools/list", host=host, origin=f"http://{host}")
            assert answer.status == 200


@live
async def test_a_refusal_names_a_setting_that_an_application_has() -> None:
    """Whoever mounts it under a public name reads the refusal, and does what it says."""
    asked: dict[str, Any] = {"host": "mcp.example.com", "origin": "https://app.example.com"}
    async with served_app() as s:
        refused = await s.caller.modern("tools/list", host=asked["host"])
        assert (refused.status, b"add it to hosts" in refused.body) == (403, True)
    async with served_app(hosts=["mcp.example.com"]) as s:
        refused = await s.caller.modern("tools/list", **asked)
        assert (refused.status, b"add it to origins" in refused.body) == (403, True)
    async with served_app(hosts=["mcp.example.com"], origins=["https://app.example.com"]) as s:
        assert (await s.caller.modern("tools/list", **asked)).status == 200
        assert (await s.caller.modern("tools/list")).status == 200  # and this machine still may
        assert (await s.caller.modern("tools/list", host="example.com")).status == 403


@live
async def test_a_policy_that_is_given_is_not_replaced_by_the_bound_port() -> None:
    policy = HostPolicy.of("mcp.example.com", origins=["https://app.example.com"])
    async with served_app(policy=policy) as s:
        fine = await s.caller.modern(
            "tools/list", host="mcp.example.com", origin="https://app.example.com"
        )
        assert fine.status == 200
        assert (await s.caller.modern("tools/list")).status == 403


@pytest.mark.parametrize(
    "content_type",
    [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16"],
)
@live
async def test_a_body_that_is_not_said_to_be_json_is_415(content_type: str | None) -> None:
    async with served_app() as s:
        answer = await s.caller.modern("tools/list", content_type=content_type)
        assert answer.status == 415
        assert not s.service.turns


@live
async def test_two_hosts_are_400() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        host = f"127.0.0.1:{s.site.port}"
        await wire.send(f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n".encode())
        assert (await wire.head()).status == 400
        wire.close()


@live
async def test_other_paths_are_404() -> None:
    async with served_app() as s:
        for path in ("/", "/mcpx", "//mcp", "/mcp/x", "/mcp;x", "/%2e%2e/mcp"):
            wire, answer = await s.caller.begin("POST", b"{}", path=path)
            assert answer.status == 404
            wire.close()
        assert (await s.caller.request("POST", b"{}", path="/mcp/")).status == 400


# ---------------------------------------------------------------- who it is


async def verify(headers: Headers) -> str:
    token = headers.get(b"authorization", b"")
    if not token:
        raise LoginRequired("log in")
    if token == b"Bearer narrow":
        raise ScopeRequired("ask for more")
    return token.removeprefix(b"Bearer ").decode()


@live
async def test_the_verifier_says_who_it_is_on_every_request() -> None:
    async with served_app(verify=verify) as s:
        nobody = await s.caller.modern("tools/list")
        assert nobody.status == 401
        assert nobody.headers["www-authenticate"] == "Bearer"
        assert (await s.caller.modern("tools/list", authorization="Bearer narrow")).status == 403
        assert not s.service.turns
        assert (await s.caller.modern("tools/list", authorization="Bearer ada")).status == 200
        assert s.service.principals == ["ada"]


@live
async def test_a_verifier_that_breaks_lets_nobody_in() -> None:
    async def broken(headers: Headers) -> str:
        raise OSError("a secret of the verifier")

    async with served_app(verify=broken) as s:
        with Records("colonnade.transport") as records:
            answer = await s.caller.modern("tools/list")
        assert answer.status == 503
        assert b"secret" not in answer.body
        (line,) = records.lines
        assert line.startswith("ERROR the verifier raised OSError at ")
        assert "secret" not in line
        assert not s.service.turns


@live
async def test_one_principal_cannot_take_all_there_is() -> None:
    async with served_app(
        verify=verify, limits=Limits(max_concurrent_requests_per_principal=1)
    ) as s:
        params = {"name": "wait", "arguments": {}}
        first = asyncio.create_task(s.caller.modern("tools/call", params, authorization="ada"))
        await s.service.marks.reached("wait begun")
        assert (await s.caller.modern("tools/list", authorization="ada")).status == 503
        assert (await s.caller.modern("tools/list", authorization="bob")).status == 200
        s.service.go.mark("wait")
        assert (await first).status == 200
        assert (await s.caller.modern("tools/list", authorization="ada")).status == 200
        assert not s.app._load


@live
async def test_a_service_that_raises_what_it_must_not_harms_itself_alone() -> None:
    async with served_app() as s:
        with Records("colonnade.transport") as records:
            plain = await s.caller.call("crash")
            await s.caller.initialize("2025-11-25")
            older = await s.caller.ask("tools/call", {"name": "crash"})
        for answer in (plain, older):
            assert (answer.status, answer.code) == (200, -32603)
            assert b"secret" not in answer.body
        assert records.lines == ["ERROR the service raised ZeroDivisionError"] * 2


@live
async def test_host_and_origin_are_checked_before_the_verifier() -> None:
    asked: list[Headers] = []

    async def note(headers: Headers) -> str:
        asked.append(headers)
        return ""

    async with served_app(verify=note) as s:
        assert (await s.caller.modern("tools/list", host="evil.example")).status == 403
        assert not asked


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(("size", "status"), [(-1, 200), (0, 200), (1, 413)])
@live
async def test_a_body_may_have_exactly_so_many_bytes(size: int, status: int) -> None:
    params: dict[str, Any] = {"name": "echo", "arguments": {"say": ""}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with served_app(limits=Limits(max_body_bytes=5000)) as s:
        say = "x" * (5000 + size - len(json.dumps(message)))
        answer = await s.caller.modern("tools/call", {"name": "echo", "arguments": {"say": say}})
        assert answer.status == status


@live
async def test_a_body_without_a_length_is_counted_while_it_is_read() -> None:
    async with served_app(limits=Limits(max_body_bytes=1000)) as s:
        wire = await s.caller.wire()
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{s.site.port}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        await wire.send(head.encode() + (b"100\r\n" + b"x" * 256 + b"\r\n") * 8 + b"0\r\n\r\n")
        answer = await wire.head()
        assert answer.status == 413
        assert await wire.closed()


@pytest.mark.parametrize(("second", "status"), [(20_000, 400), (20_001, 413), (300_000, 413)])
@live
async def test_a_body_that_comes_in_parts_is_counted_as_a_whole(second: int, status: int) -> None:
    async with served_app(limits=Limits(max_body_bytes=100_000)) as s:
        wire = await s.caller.wire()
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{s.site.port}\r\nContent-Type: application/json\r\nContent-Length: {80_000 + second}\r\n\r\n"
        await wire.send(head.encode() + b"x" * 80_000)
        await until(lambda: any(incoming.received_bytes == 80_000 for incoming in s.app.reaper))
        await wire.send(b"x" * second)
        assert (await wire.head()).status == status
        assert s.app._buffered_bodies.size == 0


@live
async def test_a_body_that_is_far_too_large_is_not_read_at_all() -> None:
    async with served_app(limits=Limits(max_body_bytes=1000)) as s:
        wire = await s.caller.wire()
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{s.site.port}\r\nContent-Type: application/json\r\nContent-Length: 1000000000\r\n\r\n"
        await wire.send(head.encode())
        answer = await wire.head()
        assert answer.status == 413
        assert await wire.closed()


@live
async def test_unfinished_bodies_of_all_requests_together_are_bounded() -> None:
    async with served_app(limits=Limits(max_buffered_body_bytes=100_000)) as s:
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{s.site.port}\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n".encode()
        first, second = await s.caller.wire(), await s.caller.wire()
        await first.send(head + b"x" * 80_000)
        await until(lambda: s.app._buffered_bodies.size == 80_000)
        await second.send(head + b"x" * 80_000)
        assert (await second.head()).status == 503
        await first.send(b"x" * 10_000)
        assert (await first.head()).status == 400
        assert s.app._buffered_bodies.size == 0


@live
async def test_a_body_that_does_not_come_is_408_and_leaves_nothing() -> None:
    async with served_app(limits=Limits(body_timeout_s=0.01)) as s:
        wire = await s.caller.wire()
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{s.site.port}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n123"
        await wire.send(head.encode())
        answer = await wire.head()
        assert answer.status == 408
        assert await wire.closed()
        await s.wait_until_idle()


@live
async def test_who_goes_away_in_the_middle_of_a_body_leaves_nothing() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{s.site.port}\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n123"
        await wire.send(head.encode())
        await until(lambda: len(s.app.reaper) == 1)
        wire.abort()
        await s.wait_until_idle()
        assert not s.service.turns


@live
async def test_more_requests_than_allowed_are_told_to_come_back() -> None:
    async with served_app(limits=Limits(max_concurrent_requests=1)) as s:
        first = asyncio.create_task(s.caller.call("wait"))
        await s.service.marks.reached("wait begun")
        refused = await s.caller.call("echo")
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        s.service.go.mark("wait")
        assert (await first).status == 200
        assert (await s.caller.call("echo")).status == 200


@live
async def test_a_reader_that_stops_reading_is_cut() -> None:
    async with served_app(limits=Limits(write_timeout_s=0.01)) as s:
        params = {"name": "report", "arguments": {"steps": 1000, "size": 100_000}}
        _, answer = await s.caller.stream("tools/call", params, meta=PROGRESS)
        assert answer.is_stream
        await s.wait_until_idle()
        assert s.service.marks.log[-1] != "step 1000"
        assert (await s.caller.call("echo")).status == 200


# ---------------------------------------------------------------- modern only


@pytest.mark.spec("R0918")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
@live
async def test_without_sessions_there_is_only_post(method: str) -> None:
    async with served_app(MODERN_ONLY) as s:
        answer = await s.caller.request(method, mcp_session_id="x", last_event_id="1")
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"


@pytest.mark.spec("R0919", "R0920")
@live
async def test_session_headers_are_ignored_and_none_is_made() -> None:
    async with served_app(MODERN_ONLY) as s:
        answer = await s.caller.modern("tools/list", mcp_session_id="no such", last_event_id="9-9")
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers


@live
async def test_a_session_header_on_an_enveloped_request_is_ignored_everywhere() -> None:
    async with served_app() as s:
        answer = await s.caller.modern("tools/list", mcp_session_id="unknown")
        assert answer.status == 200
        assert "mcp-session-id" not in answer.headers


@live
async def test_without_handshakes_initialize_is_told_the_versions() -> None:
    async with served_app(MODERN_ONLY) as s:
        answer = await s.caller.initialize("2025-11-25")
        assert (answer.status, answer.code) == (400, -32022)
        assert answer.json["error"]["data"]["supported"] == ["2026-07-28"]
        assert s.service.watchers == 0
        assert (await s.caller.request("GET", path="/sse")).status == 404


@pytest.mark.spec("R0869")
@live
async def test_without_older_revisions_the_version_header_is_needed() -> None:
    async with served_app(MODERN_ONLY) as s:
        answer = await s.caller.modern("tools/list", mcp_protocol_version=None)
        assert (answer.status, answer.code) == (400, -32020)


# A verifier that passes on a subject which is a number: 7 and "7" would be two principals, or one.
NUMBERED = Caller(cast("str", 7))


@pytest.mark.parametrize("found", [None, 7, b"ada", ("ada",), NUMBERED], ids=repr)
@live
async def test_a_verifier_that_finds_nobody_lets_nobody_in(found: Any) -> None:
    def verify(headers: Headers) -> Any:
        return found

    async with served_app(verify=verify) as s:
        assert (await s.caller.call("echo", say="hi")).status == 401


class BrokenGuard:
    """A guard that raises what no guard may."""

    async def authenticate(self, *given: Any) -> Caller:
        raise OSError("a secret of the guard")

    def check(self, *given: Any) -> None: ...

    async def metadata(self, *given: Any) -> bytes | None:
        raise RuntimeError("a secret of the guard")

    def endpoint_methods(self, path: str) -> tuple[str, ...]:
        return ("GET",) if path == "/oauth/authorize" else ()

    async def respond(self, *given: Any) -> EndpointResponse:
        raise RuntimeError("a secret of the guard")


@live
async def test_a_guard_that_breaks_is_503_and_its_words_are_told_to_none() -> None:
    async with served_app(guard=BrokenGuard()) as s:
        with Records("colonnade.transport") as records:
            answer = await s.caller.call("echo", say="hi")
            document = await s.caller.request(
                "GET", path="/.well-known/oauth-protected-resource/mcp"
            )
            login = await s.caller.request("GET", path="/oauth/authorize")
        for one in (answer, document, login):
            assert one.status == 503
            assert one.headers["retry-after"] == "1"
            assert b"secret" not in one.body
        first, second, third = records.lines
        assert first.startswith("ERROR the guard raised OSError at ")
        assert second.startswith("ERROR the guard raised RuntimeError at ")
        assert third.startswith("ERROR the authorization server raised RuntimeError at ")
        assert "secret" not in first + second + third
        assert not s.service.turns


@live
async def test_no_verifier_can_name_the_servers_own_principal() -> None:
    async def says(headers: Headers) -> str | Caller:
        return Caller(SERVER_PRINCIPAL) if b"x-caller" in headers else SERVER_PRINCIPAL

    async with served_app(verify=says) as s:
        with Records("colonnade.transport") as records:
            assert (await s.caller.modern("tools/list")).status == 401
            assert (await s.caller.modern("tools/list", x_caller="1")).status == 503
        first, second = records.lines
        assert first == "ERROR the verifier returned str, and not the name of a caller"
        assert second.startswith("ERROR the verifier raised InvalidArgument at ")
        assert not s.service.turns


@pytest.mark.parametrize("value", [SERVER_PRINCIPAL, f"Bearer {SERVER_PRINCIPAL}"])
@live
async def test_no_header_can_have_the_name_of_the_servers_own_principal(value: str) -> None:
    async with served_app(verify=verify) as s:
        assert (await s.caller.modern("tools/list", authorization=value)).status == 400
        assert not s.service.turns


@live
async def test_a_verifier_need_not_be_async() -> None:
    async with served_app(verify=lambda headers: "ada") as s:
        assert (await s.caller.call("echo", say="hi")).status == 200
