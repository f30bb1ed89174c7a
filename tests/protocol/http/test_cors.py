"""CORS: what a browser is told, for pages that the policy admits and for no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.protocol.http.security import (
    MAX_REQUESTED_HEADER_BYTES,
    MAX_REQUESTED_HEADERS,
    HostPolicy,
    HttpError,
    combine_headers,
    cors_headers,
    preflight_headers,
)

POLICY = HostPolicy.of("mcp.example.com", origins=["https://app.example.com", "http://dev:*"])
METHODS = ("GET", "POST", "DELETE")
HOST = (b"host", b"mcp.example.com")
APP = b"https://app.example.com"


def asked(origin: bytes | None = APP, wanted: bytes = b"", *more: tuple[bytes, bytes]):
    pairs = [HOST, (b"access-control-request-method", b"POST"), *more]
    if origin is not None:
        pairs.append((b"origin", origin))
    if wanted:
        pairs.append((b"access-control-request-headers", wanted))
    return combine_headers(pairs)


def told(wanted: bytes = b"", origin: bytes = APP) -> dict[bytes, bytes]:
    found = preflight_headers("OPTIONS", asked(origin, wanted), POLICY, METHODS)
    assert found is not None
    assert len(dict(found)) == len(found)
    return dict(found)


def taken(wanted: bytes) -> list[bytes]:
    return told(wanted)[b"access-control-allow-headers"].split(b", ")


# ---------------------------------------------------------------- asking first


def test_a_page_of_an_admitted_origin_is_told_what_it_may_send() -> None:
    found = told(b"content-type, mcp-protocol-version")
    assert found == {
        b"access-control-allow-origin": APP,
        b"access-control-allow-methods": b"GET, POST, DELETE",
        b"access-control-allow-headers": b"accept, authorization, content-type, dpop, last-event-id, "
        b"mcp-method, mcp-name, mcp-protocol-version, mcp-session-id",
        b"access-control-max-age": b"600",
        b"vary": b"origin",
    }
    assert b"access-control-allow-credentials" not in found
    assert told(origin=b"http://dev:5173")[b"access-control-allow-origin"] == b"http://dev:5173"


def test_headers_that_mirror_arguments_are_taken_by_their_names() -> None:
    wanted = b"content-type,Mcp-Param-Region , mcp-param-a_b.c,x-other,mcp-paramx,mcp-param-"
    assert taken(wanted)[-2:] == [b"mcp-param-region", b"mcp-param-a_b.c"]
    assert b"x-other" not in taken(wanted)


@pytest.mark.parametrize(
    "wanted",
    [b"*", b"mcp-param-a\r\nx: y", b"mcp-param-a b", b"mcp-param-\xff", b"mcp-param-a;b", b",,,"],
)
def test_nothing_is_repeated_that_is_no_header_of_ours(wanted: bytes) -> None:
    assert len(taken(wanted)) == 9


def test_a_page_that_asks_for_very_much_gets_an_answer_of_bounded_size() -> None:
    many = b",".join(b"mcp-param-%d" % n for n in range(1000))
    assert len(taken(many)) <= 9 + MAX_REQUESTED_HEADERS
    assert sum(map(len, taken(b"mcp-param-" + b"a" * 10_000))) < MAX_REQUESTED_HEADER_BYTES


@pytest.mark.parametrize(
    "origin",
    [b"https://evil.example", b"null", b"https://app.example.com.evil", b"*", b"", b"\xff"],
)
def test_a_foreign_origin_is_refused_and_never_named(origin: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        preflight_headers("OPTIONS", asked(origin), POLICY, METHODS)
    assert caught.value.status == 403
    assert not any(name.lower().startswith("access-control") for name, _ in caught.value.headers)
    assert cors_headers(asked(origin), POLICY) is None


def test_a_foreign_host_is_refused_though_the_origin_is_admitted() -> None:
    headers = {**asked(), b"host": b"evil.example"}
    with pytest.raises(HttpError) as caught:
        preflight_headers("OPTIONS", headers, POLICY, METHODS)
    assert caught.value.status == 403


def test_where_any_host_is_served_no_origin_is_admitted_by_that() -> None:
    policy = HostPolicy.of("*")
    with pytest.raises(HttpError):
        preflight_headers("OPTIONS", asked(b"https://mcp.example.com"), policy, METHODS)
    assert cors_headers(asked(b"https://mcp.example.com"), policy) is None


def test_what_is_no_question_of_a_browser_is_not_answered_as_one() -> None:
    assert preflight_headers("POST", asked(), POLICY, METHODS) is None
    assert preflight_headers("OPTIONS", asked(None), POLICY, METHODS) is None
    plain = combine_headers([HOST, (b"origin", APP)])
    assert preflight_headers("OPTIONS", plain, POLICY, METHODS) is None


# ---------------------------------------------------------------- beside an answer


def test_an_answer_names_the_origin_and_shows_the_session() -> None:
    found = cors_headers(asked(), POLICY)
    assert found is not None
    assert dict(found) == {
        b"access-control-allow-origin": APP,
        b"access-control-expose-headers": b"DPoP-Nonce, Mcp-Session-Id, MCP-Protocol-Version, Retry-After, "
        b"WWW-Authenticate",
        b"vary": b"origin",
    }


def test_who_is_no_browser_is_told_nothing() -> None:
    assert cors_headers(combine_headers([HOST]), POLICY) is None


@given(st.binary(max_size=60), st.binary(max_size=200))
def test_whatever_is_sent_only_admitted_origins_are_named(origin: bytes, wanted: bytes) -> None:
    headers = asked(origin, wanted)
    named = cors_headers(headers, POLICY)
    try:
        found = preflight_headers("OPTIONS", headers, POLICY, METHODS)
    except HttpError:
        assert named is None
        return
    assert found is not None
    assert named is not None
    for _, value in (*found, *named):
        assert b"\r" not in value
        assert b"\n" not in value
        assert value != b"*"
