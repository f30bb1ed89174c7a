"""Where requests go and how they are written: what would break one is refused."""

import pytest

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_client.connect import RequestTarget, encode_request


@pytest.mark.parametrize(
    "header",
    [
        ("x", "a\r\nb: c"),
        ("x", "a\nb"),
        ("x", "a\rb"),
        ("x", "a\0b"),
        ("x", "a\x7fb"),
        ("x\r\ny", "a"),
        ("x: y", "a"),
        ("x y", "a"),
        ("", "a"),
        ("x:", "a"),
        ("ü", "a"),
        ("x", "€"),
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("HOST", "elsewhere"),
        ("Connection", "close"),
    ],
)
def test_what_would_break_the_frame_of_a_request_is_refused(header: tuple[str, str]) -> None:
    target = RequestTarget("http://127.0.0.1/mcp", {})
    with pytest.raises(LocalProtocolError, match="a header has") as raised:
        encode_request("POST", target, [("fine", "yes"), header], b"")
    assert "elsewhere" not in str(raised.value)
    assert encode_request("POST", target, [("fine", "yes"), ("hostess", "a\tb")], b"").endswith(
        b"\r\n"
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp",
        "ftp://example.com/x",
        "//example.com/x",
        "http://",
        "http:///x",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:s3cret/",
        "http://[::1/",
        "http://ann:s3cret@example.com/",
        "http://ann:s3cret",
        "http://example.com/a b",
        "http://example.com/a\r\nx: y",
        "http://example.com/\tx",
        "http://exämple.com/",
        "http://example.com/\x7f",
        "stdio:server",
    ],
)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        RequestTarget(url, {})
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "authority", "path", "origin"),
    [
        ("http://Example.COM", "example.com", "/", ("http", "example.com", 80)),
        ("https://example.com:443/a?b", "example.com", "/a?b", ("https", "example.com", 443)),
        ("http://example.com:443/", "example.com:443", "/", ("http", "example.com", 443)),
        ("http://[::1]:8000/x#y", "[::1]:8000", "/x", ("http", "::1", 8000)),
    ],
)
def test_a_url_is_an_origin_and_a_path(
    url: str, authority: str, path: str, origin: tuple[str, str, int]
) -> None:
    target = RequestTarget(url, {})
    assert (target.authority, target.path, target.origin) == (authority, path, origin)
