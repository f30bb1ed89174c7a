"""The gate before the body: who may come in, by which name, with what, and wanting what."""

import contextlib
import timeit
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol.http.rules import status_of
from colonnade.protocol.http.security import (
    MAX_ACCEPT_BYTES,
    MAX_BODY_BYTES,
    MAX_CONTENT_TYPE_BYTES,
    MAX_REMEMBERED,
    MAX_REMEMBERED_BYTES,
    AcceptedTypes,
    AuthorizationChecks,
    EndpointChecks,
    Headers,
    HostPolicy,
    HttpError,
    RouteChecks,
    check_content_type,
    check_origin,
    check_size,
    combine_headers,
    cors_headers,
    declared_size,
    endpoint_methods,
    is_health_check_allowed,
    lowercase_headers,
    parse_accept,
    require_events,
)
from colonnade.protocol.revision import EVERY, JULY_2026, Revision, Revisions

LOCAL = HostPolicy.for_bind("127.0.0.1", 8000)
GOOD = {
    b"host": b"127.0.0.1:8000",
    b"accept": b"application/json, text/event-stream",
    b"content-type": b"application/json",
}


def gate(revision: Revision | None = None, policy: HostPolicy = LOCAL) -> EndpointChecks:
    return EndpointChecks(
        policy, endpoint_methods(EVERY if revision is None else Revisions((revision,)))
    )


def refused(check: EndpointChecks, method: str, headers: Headers) -> int:
    with pytest.raises(HttpError) as caught:
        check.check(method, headers)
    assert caught.value.status == status_of(caught.value)
    assert caught.value.raw_id == b""
    return caught.value.status


def origin_status(origin: bytes, policy: HostPolicy = LOCAL) -> int:
    """200 where a page of this origin may come in."""
    try:
        check_origin({**GOOD, b"origin": origin}, policy)
    except HttpError as refusal:
        return refusal.status
    return 200


def host_status(host: bytes | None, policy: HostPolicy = LOCAL) -> int:
    """200 where the server may be called by this name."""
    try:
        check_origin({} if host is None else {b"host": host}, policy)
    except HttpError as refusal:
        return refusal.status
    return 200


# ---------------------------------------------------------------- headers


def test_headers_that_come_once_are_kept_as_they_came() -> None:
    assert combine_headers([(b"host", b"a"), (b"x", b" b ")]) == {b"host": b"a", b"x": b" b "}


@pytest.mark.spec("R0908")
def test_header_names_have_no_case() -> None:
    pairs = [
        (b"Host", b"LOCALHOST:8000"),
        (b"ACCEPT", b"*/*"),
        (b"Content-TYPE", b"application/json"),
    ]
    assert gate().check("POST", lowercase_headers(pairs)) == AcceptedTypes(json=True, events=True)
    assert (
        refused(gate(), "POST", lowercase_headers([*pairs, (b"oRiGiN", b"http://evil.example")]))
        == 403
    )


def test_headers_that_are_lists_are_joined() -> None:
    headers = combine_headers(
        [(b"accept", b"application/json"), (b"accept", b"text/event-stream"), (b"a", b"b")]
    )
    assert headers == {b"accept": b"application/json, text/event-stream", b"a": b"b"}


@pytest.mark.parametrize(
    "name", [b"mcp-method", b"mcp-param-region", b"content-type", b"authorization"]
)
def test_a_header_with_one_value_may_repeat_it_and_not_change_it(name: bytes) -> None:
    assert combine_headers([(name, b"a"), (name, b"a")]) == {name: b"a"}
    assert combine_headers([(name, b"a"), (name, b"b")]) == {name: b"\x00"}


@pytest.mark.parametrize(
    ("name", "status"), [(b"origin", 403), (b"host", 400), (b"content-type", 415)]
)
def test_a_header_sent_twice_is_refused_in_its_own_place(name: bytes, status: int) -> None:
    first, second = {
        b"origin": (b"http://127.0.0.1:8000", b"http://localhost:8000"),
        b"host": (b"127.0.0.1:8000", b"localhost:8000"),
        b"content-type": (b"application/json", b"Application/JSON"),
    }[name]
    others = [(other, value) for other, value in GOOD.items() if other != name]
    assert (
        refused(gate(), "POST", combine_headers([*others, (name, first), (name, second)])) == status
    )
    with pytest.raises(HttpError, match="two values"):
        gate().check("POST", combine_headers([*others, (name, first), (name, second)]))


@pytest.mark.parametrize(("name", "status"), [(b"origin", 403), (b"host", 400)])
def test_even_the_same_host_or_origin_must_not_come_twice(name: bytes, status: int) -> None:
    value = b"http://127.0.0.1:8000" if name == b"origin" else b"127.0.0.1:8000"
    others = [(other, kept) for other, kept in GOOD.items() if other != name]
    assert (
        refused(gate(), "POST", combine_headers([*others, (name, value), (name, value)])) == status
    )


# ---------------------------------------------------------------- Origin


@pytest.mark.spec("R0045", "R0484")
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
def test_a_page_of_another_origin_is_refused_whatever_it_sends(
    revision: Revision, method: str
) -> None:
    assert refused(gate(revision), method, GOOD | {b"origin": b"http://evil.example"}) == 403
    assert refused(gate(revision), method, {b"origin": b"http://evil.example"}) == 403


@pytest.mark.spec("R0045")
def test_a_page_of_the_server_itself_and_no_page_at_all_pass(revision: Revision) -> None:
    check = gate(revision)
    for headers in (GOOD, GOOD | {b"origin": b"http://127.0.0.1:8000"}):
        assert check.check("POST", headers) == AcceptedTypes(json=True, events=True)


@pytest.mark.spec("R0045", "R0484")
@pytest.mark.parametrize(
    "origin",
    [
        b"null",
        b"",
        b" ",
        b"\x00",
        b"localhost:8000",
        b"http://localhost",
        b"http://localhost:8001",
        b"http://localhost:08000",
        b"http://localhost:800000",
        b"http://localhost:99999",
        b"http://localhost:",
        b"http://localhost:*",
        b"http://localhost:8000/",
        b"http://localhost:8000 ",
        b"http://localhost:8000\n",
        b"http://localhost.:8000",
        b"http://localhost.evil:8000",
        b"http://evil/localhost:8000",
        b"http://localhost:8000@evil",
        b"http://user@localhost:8000",
        b"http://localhost:8000, http://evil",
        b"http://localhost:8000 http://evil",
        b"http://127.1:8000",
        b"http://2130706433:8000",
        b"http://0x7f.0.0.1:8000",
        b"http://0.0.0.0:8000",
        b"http://[::]:8000",
        b"http://[::1]:8001",
        b"http://[::1:8000",
        b"http://[:::1]:8000",
        b"http://[::1%25lo]:8000",
        b"http://[::ffff:127.0.0.1]:8000",
        "http://löcalhost:8000".encode(),
        "http://ⓛocalhost:8000".encode(),
        b"http://\xffocalhost:8000",
        b"ftp://localhost:8000",
        b"file://",
        b"javascript:alert(1)",
        b"http://" + b"a" * 254 + b":8000",
    ],
)
def test_no_trick_makes_a_foreign_origin_ours(revision: Revision, origin: bytes) -> None:
    assert refused(gate(revision), "POST", GOOD | {b"origin": origin}) == 403


@pytest.mark.parametrize(
    "origin",
    [
        b"http://localhost:8000",
        b"HTTP://LocalHost:8000",
        b"https://127.0.0.1:8000",
        b"http://[::1]:8000",
        b"http://[0:0:0:0:0:0:0:1]:8000",
    ],
)
def test_one_origin_has_several_spellings(origin: bytes) -> None:
    assert origin_status(origin) == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (b"https://app.example.com", 200),
        (b"https://app.example.com:443", 200),
        (b"http://app.example.com", 403),
        (b"https://app.example.com:8443", 403),
        (b"https://example.com", 403),
        (b"https://app.example.com.evil", 403),
        (b"https://mcp.example.com", 200),
        (b"http://mcp.example.com", 200),
        (b"http://localhost:1", 200),
        (b"http://localhost:65535", 200),
        (b"http://localhost", 200),
        (b"http://localhost:*", 403),
        (b"https://localhost:1", 403),
        (b"vscode-webview://0f3a-b1", 200),
        (b"vscode-webview://0f3a-b1:7", 403),
        (b"vscode-webview://0f3a-b2", 403),
    ],
)
def test_origins_are_allowed_by_scheme_name_and_port(origin: bytes, status: int) -> None:
    policy = HostPolicy.of(
        "mcp.example.com",
        "127.0.0.1:8000",
        origins=["https://App.example.com", "http://localhost:*", "vscode-webview://0f3a-b1"],
    )
    assert origin_status(origin, policy) == status


def test_one_string_in_place_of_a_list_of_hosts_or_origins_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match=r"write hosts=\['mcp\.example\.com'\]$"):
        HostPolicy.for_bind("0.0.0.0", 8000, hosts="mcp.example.com")
    with pytest.raises(LocalProtocolError, match=r"write origins=\['https://a\.example'\]$"):
        HostPolicy.of("mcp.example.com", origins="https://a.example")


def test_the_words_of_a_refusal_show_no_control_characters_and_are_short() -> None:
    with pytest.raises(HttpError) as caught:
        check_origin({b"origin": b"\x1b[2J" + b"x" * 5000}, LOCAL)
    assert "\x1b" not in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.kind is FaultKind.INVALID_REQUEST


# ---------------------------------------------------------------- Host


@pytest.mark.spec("R0045")
@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:8000", b"localhost.evil", b"127.0.0.2:8000"]
)
def test_a_name_that_is_not_ours_is_refused_without_an_origin_too(
    revision: Revision, host: bytes
) -> None:
    assert refused(gate(revision), "POST", GOOD | {b"host": host}) == 403


@pytest.mark.parametrize(
    "host",
    [
        None,
        b"",
        b"*",
        b"localhost:*",
        b"localhost:",
        b"localhost:0",
        b"localhost:8000:8000",
        b"localhost:99999",
        b"user@localhost:8000",
        b"localhost:8000/mcp",
        b"localhost:8000?x",
        b"localhost:8000#x",
        b"localhost:8000, evil",
        b" localhost:8000",
        b"[::1",
        b"[1:2:3]:8000",
        "löcalhost:8000".encode(),
        b"\x00",
        b"a" * 254,
    ],
)
def test_what_is_not_one_host_is_a_bad_request(host: bytes | None) -> None:
    assert host_status(host) == 400


@pytest.mark.parametrize(
    "host", [b"localhost:8000", b"LOCALHOST:8000", b"127.0.0.1:8000", b"[::1]:8000"]
)
def test_the_names_of_loopback_are_allowed_on_every_port_since_a_port_may_be_forwarded(
    host: bytes,
) -> None:
    for bind in ("127.0.0.1", "localhost", "LOCALHOST", "::1"):
        assert host_status(host, HostPolicy.for_bind(bind, 8000)) == 200
        assert host_status(host, HostPolicy.for_bind(bind, 8001)) == 200
    published = HostPolicy.for_bind("0.0.0.0", 8001, hosts=["mcp.example.com"])
    assert host_status(host, published) == 200
    assert host_status(host.partition(b":8000")[0], published) == 200


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (b"localhost:9000", b"http://localhost:9000", 200),
        (b"localhost", b"http://localhost", 200),
        (b"[::1]:9000", b"http://[::1]:9000", 200),
        (b"localhost:9000", b"http://localhost:3000", 403),
        (b"localhost:8000", b"http://localhost:3000", 403),
        (b"localhost:9000", b"http://127.0.0.1:9000", 403),
        (b"localhost:9000", b"vscode-webview://localhost:9000", 403),
        (b"localhost:9000", b"http://localhost:*", 403),
        (b"evil.example:9000", b"http://evil.example:9000", 403),
        (b"loc alhost", b"http://localhost:3000", 403),
    ],
)
def test_a_page_may_use_the_server_through_a_forwarded_port_only_where_it_came_from_there(
    host: bytes, origin: bytes, status: int
) -> None:
    headers = GOOD | {b"host": host, b"origin": origin}
    if status == 200:
        EndpointChecks(LOCAL, ("POST",)).check("POST", headers)
        assert cors_headers(headers, LOCAL)
    else:
        assert refused(EndpointChecks(LOCAL, ("POST",)), "POST", headers) == status
        assert cors_headers(headers, LOCAL) is None


@pytest.mark.parametrize(
    ("hosts", "host", "origin", "status"),
    [
        ([], b"localhost:9000", None, 200),
        ([], b"[::1]", None, 200),
        ([], b"mcp.example.com", None, 403),
        ([], b"localhost:9000", b"http://localhost:9000", 200),
        ([], b"localhost:9000", b"http://localhost:3000", 403),
        ([], b"localhost:9000", b"http://localhost", 403),
        ([], b"localhost:9000", b"https://app.example", 200),
        (["mcp.example.com"], b"localhost:9000", b"http://localhost:3000", 403),
        (["mcp.example.com"], b"localhost:9000", b"http://localhost:9000", 200),
        (["mcp.example.com"], b"mcp.example.com", b"https://mcp.example.com", 200),
        (["mcp.example.com"], b"mcp.example.com", b"https://app.example", 200),
        (["localhost:*"], b"localhost:9000", b"http://localhost:3000", 200),
    ],
)
def test_an_application_that_does_not_know_its_port_admits_the_pages_that_serve_admits(
    hosts: list[str], host: bytes, origin: bytes | None, status: int
) -> None:
    policy = HostPolicy.for_mount(*hosts, origins=["https://app.example"])
    headers = GOOD | {b"host": host} | ({b"origin": origin} if origin is not None else {})
    if status == 200:
        EndpointChecks(policy, ("POST",)).check("POST", headers)
    else:
        assert refused(EndpointChecks(policy, ("POST",)), "POST", headers) == status


def test_any_other_address_of_loopback_is_a_name_too() -> None:
    policy = HostPolicy.for_bind("127.0.0.9", 80)
    assert host_status(b"127.0.0.9", policy) == host_status(b"localhost", policy) == 200
    assert host_status(b"127.0.0.8", policy) == 403


def test_more_names_can_be_added_on_loopback() -> None:
    policy = HostPolicy.for_bind(
        "127.0.0.1", 8000, hosts=["dev.test:8000"], origins=["http://ui.test"]
    )
    assert host_status(b"dev.test:8000", policy) == host_status(b"localhost:8000", policy) == 200
    assert origin_status(b"http://ui.test", policy) == 200


@pytest.mark.parametrize(
    "bind", ["0.0.0.0", "::", "192.168.1.5", "mcp.example.com", "", "127.0.0.1.evil"]
)
def test_a_server_on_another_address_must_be_told_its_names(bind: str) -> None:
    """1F-63: what others reach is served by nobody who has not said so."""
    with pytest.raises(LocalProtocolError, match="the names by which it is reached"):
        HostPolicy.for_bind(bind, 8000)
    policy = HostPolicy.for_bind(bind, 8000, hosts=["mcp.example.com"], origins=["https://a.test"])
    assert host_status(b"mcp.example.com", policy) == 200
    assert host_status(b"10.0.0.1:8000", policy) == 403
    assert (
        origin_status(
            b"https://a.test", HostPolicy.of("127.0.0.1:8000", origins=["https://a.test"])
        )
        == 200
    )


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_policy_needs_the_port_that_was_bound(port: int) -> None:
    with pytest.raises(LocalProtocolError, match="after the server has bound"):
        HostPolicy.for_bind("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"mcp.example.com", 200),
        (b"MCP.example.com:443", 200),
        (b"mcp.example.com:80", 200),
        (b"mcp.example.com:8080", 403),
        (b"lan.example.com:8080", 200),
        (b"lan.example.com", 403),
        (b"any.example.com", 200),
        (b"any.example.com:12345", 200),
        (b"any.example.com:*", 400),
        (b"[2001:DB8::1]:9000", 200),
        (b"[2001:db8:0:0::1]:9000", 200),
        (b"[2001:db8::1]", 403),
    ],
)
def test_hosts_are_allowed_by_name_and_port(host: bytes, status: int) -> None:
    policy = HostPolicy.of(
        "MCP.example.com", "lan.example.com:8080", "any.example.com:*", "[2001:db8::1]:9000"
    )
    assert host_status(host, policy) == status


def test_any_host_can_be_allowed_and_that_allows_no_origin() -> None:
    policy = HostPolicy.of("*", origins=["https://app.example.com"])
    assert host_status(b"whatever.test:1", policy) == 200
    assert host_status(b"what/ever", policy) == 400
    assert origin_status(b"http://whatever.test:1", policy) == 403
    assert origin_status(b"https://app.example.com", policy) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "http://a",
        "a/b",
        "a:0",
        "a:70000",
        "a b",
        "bücher.example",
        "::1",
        "[::g]",
        "a,b",
        "u@a",
    ],
)
def test_a_host_that_is_none_cannot_be_allowed(host: str) -> None:
    with pytest.raises(LocalProtocolError, match="is not a host"):
        HostPolicy.of(host)


@pytest.mark.parametrize(
    "origin", ["", "*", "null", "a.example", "http://", "http://a/b", "http://a:70000"]
)
def test_an_origin_that_is_none_cannot_be_allowed(origin: str) -> None:
    with pytest.raises(LocalProtocolError, match="is not an origin"):
        HostPolicy.of("a.example", origins=[origin])


def test_a_policy_without_a_host_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="no client could connect"):
        HostPolicy.of()


# ---------------------------------------------------------------- methods


@pytest.mark.spec("R0918")
@pytest.mark.parametrize(
    "method", ["GET", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "post"]
)
def test_where_no_revision_has_sessions_all_but_post_is_refused(method: str) -> None:
    with pytest.raises(HttpError) as caught:
        gate(JULY_2026).check(method, GOOD)
    assert caught.value.status == 405
    assert caught.value.headers == (("Allow", "POST"),)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "x" * 9999])
def test_where_there_are_sessions_other_methods_are_refused(method: str) -> None:
    with pytest.raises(HttpError) as caught:
        gate().check(method, GOOD)
    assert caught.value.status == 405
    assert caught.value.headers == (("Allow", "GET, POST, DELETE"),)
    assert len(caught.value.message) < 100


def test_where_there_are_sessions_get_and_delete_pass() -> None:
    assert gate().check("GET", {b"host": b"localhost:8000", b"accept": b"text/event-stream"}).events
    assert gate().check("DELETE", {b"host": b"localhost:8000", b"accept": b"image/png"})


def test_the_order_is_origin_host_method_accept_type() -> None:
    bad = {
        b"origin": b"null",
        b"host": b"evil.example",
        b"accept": b"image/png",
        b"content-type": b"text/plain",
    }
    check = gate(JULY_2026)
    assert refused(check, "PUT", bad) == 403
    bad[b"origin"] = b"http://localhost:8000"
    assert refused(check, "PUT", bad) == 403
    bad[b"host"] = b"localhost:8000"
    assert refused(check, "PUT", bad) == 405
    assert refused(check, "POST", bad) == 406
    bad[b"accept"] = b"*/*"
    assert refused(check, "POST", bad) == 415
    bad[b"content-type"] = b"application/json"
    assert check.check("POST", bad)


def test_a_packed_body_is_refused_before_it_is_read_and_after_who_sent_it() -> None:
    check = gate()
    for encoding in (b"gzip", b"br", b"deflate", b"zstd", b"identity, gzip", b"GZIP", b"\x00"):
        assert refused(check, "POST", GOOD | {b"content-encoding": encoding}) == 415
    assert refused(check, "POST", {**GOOD, b"host": b"evil", b"content-encoding": b"br"}) == 403
    for encoding in (b"identity", b" Identity ", b""):
        assert check.check("POST", GOOD | {b"content-encoding": encoding})


# ---------------------------------------------------------------- Accept

BOTH, JSON, EVENTS, NONE = (
    AcceptedTypes(json=json, events=events)
    for json, events in ((True, True), (True, False), (False, True), (False, False))
)


@pytest.mark.parametrize(
    ("accept", "answers"),
    [
        (None, BOTH),
        (b"", BOTH),
        (b"  ", BOTH),
        (b"*/*", BOTH),
        (b"application/json, text/event-stream", BOTH),
        (b"text/event-stream,application/json", BOTH),
        (b"Application/JSON ,\tTEXT/Event-Stream", BOTH),
        (b"application/*, text/*", BOTH),
        (b"text/html, */*;q=0.1", BOTH),
        (b"application/json", JSON),
        (b"application/*", JSON),
        (b"application/json;charset=utf-8;q=0.5", JSON),
        (b'application/json; a="x,y;\\"z"; q=1', JSON),
        (b"application/json;q=0, */*", EVENTS),
        (b"*/*, application/json; Q=0.000", EVENTS),
        (b"application/*;q=0, */*", EVENTS),
        (b"application/*;q=0, */*, application/json;q=0.001", BOTH),
        (b"text/event-stream", EVENTS),
        (b"text/event-stream;q=0,text/event-stream", EVENTS),
        (b"text/event-stream,text/event-stream;q=0", EVENTS),
        (b"*/*;q=0", NONE),
        (b"*/*;q=0.0", NONE),
        (b"text/html", NONE),
        (b"application/jsonx, application/json-seq", NONE),
        (b"application/json/x", NONE),
        (b"application", NONE),
        (b"json", NONE),
        (b",,,", NONE),
        (b"application/json;q=2", NONE),
        (b"application/json;q=-1", NONE),
        (b"application/json;q=", NONE),
        (b"application/json;q=0.0001", NONE),
        (b'"application/json', NONE),
        (b'"application/json, text/event-stream"', NONE),
        (b'application/json;a="unterminated, text/event-stream', NONE),
        (b"application/json;;;", JSON),
        (b"application/json\x00", NONE),
        ("application/jsön".encode(), NONE),
    ],
)
def test_an_accept_header_is_read_as_http_says(
    accept: bytes | None, answers: AcceptedTypes
) -> None:
    assert parse_accept(accept) == answers


def test_an_endless_accept_header_accepts_nothing() -> None:
    assert parse_accept(b"*/*," * (MAX_ACCEPT_BYTES // 4)) == BOTH
    assert parse_accept(b"*/*," * (MAX_ACCEPT_BYTES // 4) + b"*/*") == NONE


def test_what_excludes_every_answer_is_not_acceptable() -> None:
    check = gate()
    assert refused(check, "POST", GOOD | {b"accept": b"text/html"}) == 406
    assert refused(check, "GET", GOOD | {b"accept": b"application/json"}) == 406
    assert check.check("POST", GOOD | {b"accept": b"application/json"}) == JSON
    assert check.check("POST", GOOD | {b"accept": b"text/event-stream"}) == EVENTS
    assert check.check("GET", GOOD | {b"accept": b"text/event-stream"}) == EVENTS


def test_an_answer_that_must_be_a_stream_needs_a_client_that_takes_one() -> None:
    require_events(EVENTS)
    with pytest.raises(HttpError, match="list text/event-stream") as caught:
        require_events(JSON)
    assert caught.value.status == 406


# ---------------------------------------------------------------- Content-Type


@pytest.mark.parametrize(
    "value",
    [
        b"application/json",
        b"Application/JSON",
        b" application/json ",
        b"application/json;charset=utf-8",
        b"application/json; charset=UTF-8",
        b'application/json;Charset="utf-8"',
        b'application/json;charset="u\\tf-8"',
        b"application/json; x=y; charset=utf-8;",
        b"application/json;x=".ljust(MAX_CONTENT_TYPE_BYTES, b"y"),
    ],
)
def test_json_in_utf_8_is_read(value: bytes) -> None:
    check_content_type(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"text/plain",
        b"text/plain; application/json",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"application/json-rpc",
        b"application/jsonx",
        b"application/vnd.api+json",
        b"text/json",
        b"application/json, text/plain",
        b"application/json text/plain",
        b"application/json;charset=utf-16",
        b"application/json;charset=utf-8;charset=utf-16",
        b"application/json;charset",
        b'application/json;charset="utf-8',
        b"application/*",
        b"\x00",
        b"application/json\n",
        b"application/json;x=".ljust(MAX_CONTENT_TYPE_BYTES + 1, b"y"),
    ],
)
def test_any_other_type_is_refused(value: bytes | None) -> None:
    with pytest.raises(HttpError) as caught:
        check_content_type(value)
    assert caught.value.status == 415


# ---------------------------------------------------------------- size


def test_a_body_over_the_limit_is_too_large() -> None:
    check_size(MAX_BODY_BYTES)
    check_size(10, limit=10)
    with pytest.raises(HttpError, match="more than 10 bytes") as caught:
        check_size(11, limit=10)
    assert caught.value.status == 413


def test_the_declared_size_is_read_before_the_body() -> None:
    assert declared_size({}) == 0
    assert declared_size({b"content-length": b"12"}) == 12
    with pytest.raises(HttpError) as caught:
        check_size(declared_size({b"content-length": b"9" * 20}))
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "value", [b"", b"-1", b"+1", b"1_0", b"1, 2", b"\x00", b"x", b"9" * 21, "١".encode()]
)
def test_a_size_that_is_no_number_is_a_bad_request(value: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        declared_size({b"content-length": value})
    assert caught.value.status == 400


# ---------------------------------------------------------------- memory and rubbish


def test_who_passed_once_passes_again_and_who_did_not_never_does() -> None:
    check = gate()
    assert check.check("POST", GOOD) is check.check("POST", dict(GOOD))
    for _ in range(3):
        assert refused(check, "POST", GOOD | {b"origin": b"null"}) == 403
    assert check.check("POST", GOOD)


def test_each_method_and_each_static_header_is_judged_by_itself() -> None:
    check = gate()
    check.check("POST", GOOD)
    for changed in (b"host", b"origin", b"accept", b"content-type"):
        assert refused(check, "POST", GOOD | {changed: b"none/such:x"}) in (400, 403, 406, 415)
    assert check.check("DELETE", {b"host": b"localhost:8000"})
    assert refused(check, "POST", {b"host": b"localhost:8000"}) == 415


def test_clients_cannot_fill_the_memory_of_the_checks() -> None:
    check = gate()
    check.check("POST", GOOD)
    for number in range(3 * MAX_REMEMBERED):
        check.check("POST", GOOD | {b"accept": b"*/*;x=%d" % number})
        assert len(check._passed) <= MAX_REMEMBERED
    for spare, remembered in ((0, True), (1, False)):
        others = len(b"POST") + sum(map(len, GOOD.values())) - len(GOOD[b"accept"])
        check = gate()
        long = b"*/*;x=".ljust(MAX_REMEMBERED_BYTES - others + spare, b"y")
        assert check.check("POST", GOOD | {b"accept": long}) == BOTH
        assert bool(check._passed) is remembered
    assert check.check("POST", GOOD) == BOTH


VALUES = st.binary(max_size=60) | st.sampled_from(
    [b"localhost:8000", b"http://localhost:8000", b"*/*", b"application/json", b"null", b"\x00"]
)


@given(
    st.text(max_size=8) | st.sampled_from(["GET", "POST", "DELETE"]),
    st.lists(st.tuples(st.sampled_from([*GOOD, b"origin", b"content-length"]), VALUES), max_size=8),
)
def test_whatever_is_sent_it_passes_or_is_refused_and_the_same_each_time(
    method: str, pairs: list[tuple[bytes, bytes]]
) -> None:
    def verdict(check: EndpointChecks) -> object:
        try:
            declared_size(combine_headers(pairs))
            return check.check(method, combine_headers(pairs))
        except Fault as fault:
            return status_of(fault)

    check = gate()
    assert verdict(check) == verdict(check) == verdict(gate())


@pytest.mark.parametrize(
    "part", [b'"\\', b'"\\"', b'a/b;c="', b"a/b;", b" ", b" ;", b"a/b;q=1 ,", b"[:", b"1."]
)
def test_no_value_makes_the_checks_slow(part: bytes) -> None:
    """A reader that tries each start anew needs 20 ms and more for the longest of these."""
    value = b"a/b" + part * (MAX_ACCEPT_BYTES // len(part) - 3)

    def once() -> None:
        parse_accept(value)
        for name in GOOD:
            with contextlib.suppress(HttpError):
                gate().check("POST", GOOD | {name: value[:MAX_CONTENT_TYPE_BYTES]})

    assert min(timeit.repeat(once, timer=process_time, number=1, repeat=5)) < 0.02


# ---------------------------------------------------------------- health checks


@pytest.mark.parametrize(
    "host",
    [None, b"10.0.0.1", b"10.0.0.1:8000", b"[fd00::1]:8000", b"localhost:1", b"mcp.example.com"],
)
def test_a_health_check_names_an_address_an_admitted_name_or_no_host(host: bytes | None) -> None:
    policy = HostPolicy.of("mcp.example.com")
    assert is_health_check_allowed({} if host is None else {b"host": host}, policy)
    own = {b"origin": b"https://mcp.example.com"}
    assert is_health_check_allowed(own if host is None else {b"host": host, **own}, policy)
    foreign = {b"origin": b"https://evil.example"}
    assert not is_health_check_allowed(
        foreign if host is None else {b"host": host, **foreign}, policy
    )


@pytest.mark.parametrize(
    "host",
    [
        *(b"evil.example", b"127.0.0.1.evil.example", b"2130706433.evil.example", b"", b"a b"),
        *(b"10.0.0.1:*", b"10.0.0.1:70000", b"\x00", b"[::1", b"[:::]"),
    ],
)
def test_a_health_check_by_another_name_is_refused(host: bytes) -> None:
    assert not is_health_check_allowed({b"host": host}, HostPolicy.of("mcp.example.com"))


# ---------------------------------------------------------------- routes of the program's own


def test_a_route_is_checked_for_its_name_its_pages_and_its_methods_and_nothing_else() -> None:
    check = RouteChecks(LOCAL, ("GET", "HEAD"))
    assert check.public
    assert not gate().public
    assert check.check("GET", {b"host": b"localhost:8000", b"accept": b"text/html"}).json
    assert refused(check, "GET", {b"host": b"evil.example"}) == 403
    assert refused(check, "GET", GOOD | {b"origin": b"http://evil.example"}) == 403
    assert refused(check, "POST", GOOD) == 405


def test_an_authorization_server_is_checked_for_its_name_and_method_and_not_for_its_pages() -> None:
    check = AuthorizationChecks(LOCAL, ("POST", "OPTIONS"))
    assert check.public
    assert check.any_origin
    assert not gate().any_origin
    assert check.check("POST", GOOD | {b"origin": b"http://app.example"}).json
    assert refused(check, "POST", {b"host": b"evil.example"}) == 403
    assert refused(check, "POST", {}) == 400
    assert refused(check, "GET", GOOD) == 405
