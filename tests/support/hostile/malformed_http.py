"""Requests that are wrong as HTTP: their framing, their headers, their first line.

Rules: `PORT` stands for the port of the server, and is filled in by whoever throws.
"""

import gzip
from typing import NamedTuple

from hostile.items import MODERN

BODY = MODERN.frame()
HEAD = {
    "Host": "127.0.0.1:PORT",
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "echo",
}


class Odd(NamedTuple):
    """Bytes, and the statuses that are right for them; None where hanging up is right, too."""

    name: str
    data: bytes
    right: tuple[int | None, ...]

    def __str__(self) -> str:
        return self.name


def request(
    line: str = "POST /mcp HTTP/1.1",
    more: str = "",
    body: bytes = BODY,
    *,
    length: bool = True,
    **changes: str | None,
) -> bytes:
    """A good request, changed: other headers, without some, with more of them."""
    head = dict(HEAD)
    for name, value in changes.items():
        found = next(key for key in head if key.lower().replace("-", "_") == name)
        if value is None:
            del head[found]
        else:
            head[found] = value
    text = line + "\r\n" + "".join(f"{name}: {value}\r\n" for name, value in head.items()) + more
    if length:
        text += f"Content-Length: {len(body)}\r\n"
    return (text + "\r\n").encode("latin-1") + body


def chunked(body: bytes) -> bytes:
    return request(more="Transfer-Encoding: chunked\r\n", body=body, length=False)


def sized(length: object) -> bytes:
    return request(more=f"Content-Length: {length}\r\n", length=False)


SIZE = b"%x" % len(BODY)
BYTES = [BODY[at : at + 1] for at in range(len(BODY))]
FRAMING = [
    Odd("a length that is too short", sized(len(BODY) - 5), (400,)),
    Odd("a length below zero", sized(-5), (400,)),
    Odd("a length with a sign", sized(f"+{len(BODY)}"), (400,)),
    Odd("a length of twenty digits", sized("9" * 20), (400, 413)),
    Odd("a length of a terabyte", sized(2**40), (413,)),
    Odd("two lengths in one", sized(f"{len(BODY)}, {len(BODY)}"), (400,)),
    Odd("the same length twice", request(more=f"Content-Length: {len(BODY)}\r\n"), (400,)),
    Odd("two lengths", request(more="Content-Length: 5\r\n"), (400,)),
    Odd("a length and chunks", request(more="Transfer-Encoding: chunked\r\n"), (400,)),
    Odd("chunked twice", request(more="Transfer-Encoding: chunked\r\n" * 2, length=False), (400,)),
    Odd("chunked, with a space", request(more="Transfer-Encoding : chunked\r\n", length=False), (400,)),
    Odd("chunked, misspelt", request(more="Transfer-Encoding: xchunked\r\n", length=False), (400,)),
    Odd("chunks last but not last", request(more="Transfer-Encoding: chunked, identity\r\n", length=False), (400,)),
    Odd("no chunks", request(more="Transfer-Encoding: identity\r\n"), (400,)),
    Odd("chunks", chunked(b"%b\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)), (200,)),
    Odd("chunks of one byte", chunked(b"".join(b"1\r\n%b\r\n" % one for one in BYTES) + b"0\r\n\r\n"), (200,)),
    Odd("a chunk with an extension", chunked(b"%b;a=b\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)), (200,)),
    Odd("a flood of extensions", chunked(b"%b;%b\r\n%b\r\n0\r\n\r\n" % (SIZE, b"a=b;" * 200_000, BODY)), (400, 431, None)),
    Odd("a chunk below zero", chunked(b"-1\r\n%b\r\n0\r\n\r\n" % BODY), (400,)),
    Odd("a chunk in 0x", chunked(b"0x%b\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)), (400,)),
    Odd("a chunk that is no number", chunked(b"zz\r\n%b\r\n0\r\n\r\n" % BODY), (400,)),
    Odd("a chunk of seventeen digits", chunked(b"f" * 17 + b"\r\nx"), (400,)),
    Odd("a chunk without its end", chunked(b"%b\r\n%bXX0\r\n\r\n" % (SIZE, BODY)), (400,)),
    Odd("a trailer", chunked(b"%b\r\n%b\r\n0\r\nX: y\r\n\r\n" % (SIZE, BODY)), (200,)),
    Odd("a length as a trailer", chunked(b"%b\r\n%b\r\n0\r\nContent-Length: 5\r\n\r\n" % (SIZE, BODY)), (400,)),
    Odd("a flood of trailers", chunked(b"%b\r\n%b\r\n0\r\n%b\r\n" % (SIZE, BODY, b"X: y\r\n" * 200_000)), (431, None)),
    Odd("a trailer of a megabyte", chunked(b"%b\r\n%b\r\n0\r\nX: %b\r\n\r\n" % (SIZE, BODY, b"y" * 2**20)), (431, None)),
]  # fmt: skip
HEADERS = [
    Odd("bare line feeds", request().replace(b"\r\n", b"\n"), (400,)),
    Odd("a bare carriage return", request(more="X: a\rb\r\n"), (400,)),
    Odd("a line that goes on", request(more="X: a\r\n b\r\n"), (400,)),
    Odd("a NUL", request(more="X: a\0b\r\n"), (400,)),
    Odd("no colon", request(more="X\r\n"), (400,)),
    Odd("no name", request(more=": x\r\n"), (400,)),
    Odd("a space in a name", request(more="X Y: z\r\n"), (400,)),
    Odd("Latin-1", request(more="X: \xff\r\n"), (200, 400)),
    Odd("64 KiB", request(more=f"X: {'y' * 65536}\r\n"), (431,)),
    Odd("10,000 of them", request(more="X: y\r\n" * 10_000), (431,)),
    Odd("two hosts", request(more="Host: evil.example\r\n"), (400,)),
    Odd("the same host twice", request(more="Host: 127.0.0.1:PORT\r\n"), (400,)),
    Odd("no host", request(host=None), (400,)),
    Odd("an empty host", request(host=""), (400,)),
    Odd("a host with a path", request(host="127.0.0.1:PORT/x"), (400,)),
    Odd("a host with a user", request(host="127.0.0.1:PORT@evil.example"), (400,)),
    Odd("a foreign host", request(host="evil.example"), (403,)),
    Odd("a host with a zone", request(host="[fe80::1%25eth0]:PORT"), (400, 403)),
    Odd("two origins", request(more="Origin: http://127.0.0.1:PORT\r\nOrigin: https://evil.example\r\n"), (403,)),
    Odd("a foreign origin", request(more="Origin: https://evil.example\r\n"), (403,)),
    Odd("the origin null", request(more="Origin: null\r\n"), (403,)),
    Odd("two content types", request(more="Content-Type: text/plain\r\n"), (415,)),
    Odd("plain text", request(content_type="text/plain"), (415,)),
    Odd("a form", request(content_type="application/x-www-form-urlencoded"), (415,)),
    Odd("no content type", request(content_type=None), (415,)),
    Odd("UTF-16 by its word", request(content_type="application/json; charset=utf-16"), (415,)),
    Odd("only HTML will do", request(accept="text/html"), (406,)),
    Odd("two tokens", request(more="Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), (200, 400, 401)),
    Odd("two names of a tool", request(more="Mcp-Name: nope\r\n"), (400,)),
    Odd("two methods of the protocol", request(more="Mcp-Method: tools/list\r\n"), (400,)),
    Odd("two revisions", request(more="MCP-Protocol-Version: 2025-11-25\r\n"), (400,)),
    Odd("two sessions", request(more="Mcp-Session-Id: a\r\nMcp-Session-Id: b\r\n"), (200, 400, 404)),
    Odd("another name than the body's", request(mcp_name="count"), (400,)),
    Odd("no name", request(mcp_name=None), (400,)),
    Odd("another method than the body's", request(mcp_method="tools/list"), (400,)),
    Odd("another revision than the body's", request(mcp_protocol_version="2025-06-18"), (400,)),
    Odd("a revision that is none", request(mcp_protocol_version="' OR 1=1"), (400,)),
    Odd("a packed body", request(more="Content-Encoding: gzip\r\n", body=gzip.compress(BODY)), (415,)),
    Odd("a bomb", request(more="Content-Encoding: gzip\r\n", body=gzip.compress(b" " * 10**8)), (415,)),
    Odd("brotli, by its word", request(more="Content-Encoding: br\r\n"), (415,)),
    Odd("something else expected", request(more="Expect: 200-maybe\r\n"), (200, 417)),
]  # fmt: skip
TARGETS = [
    Odd("absolute", request("POST http://127.0.0.1:PORT/mcp HTTP/1.1"), (200,)),
    Odd("absolute, and foreign", request("POST http://evil.example/mcp HTTP/1.1"), (400, 403)),
    Odd("absolute, with a user", request("POST http://a@127.0.0.1:PORT/mcp HTTP/1.1"), (400, 403)),
    *(Odd(path, request(f"POST {path} HTTP/1.1"), (404,))
      for path in ("//mcp", "/x/../mcp", "/x/%2e%2e/mcp", "/mcp;x", "/MCP", "/mcp%00", "/%2fmcp", "/mcp/x", "/%ff", "/mcp%20")),
    *(Odd(path, request(f"POST {path} HTTP/1.1"), (400,)) for path in ("mcp", "/mc\xfc")),
    Odd("a query", request("POST /mcp?x=1&x=2 HTTP/1.1"), (200,)),
    Odd("an asterisk", request("OPTIONS * HTTP/1.1"), (400, 404, 405)),
    Odd("20,000 letters", request(f"POST /{'a' * 20_000} HTTP/1.1"), (414, 431)),
    *(Odd(method, request(f"{method} /mcp HTTP/1.1"), (405,))
      for method in ("TRACE", "PUT", "PATCH", "OPTIONS", "PROPFIND")),
    *(Odd(method, request(f"{method} /mcp HTTP/1.1"), (400, 405, 501)) for method in ("BREW", "post")),
    *(Odd(method, request(f"{method} /mcp HTTP/1.1"), (400,)) for method in ("GET", "DELETE")),
    Odd("HEAD", request("HEAD /mcp HTTP/1.1", body=b""), (405,)),
    Odd("CONNECT", request("CONNECT evil.example:80 HTTP/1.1"), (400, 405)),
    Odd("HTTP/0.9", b"GET /mcp\r\n\r\n", (400,)),
    Odd("HTTP/1.0", request("POST /mcp HTTP/1.0"), (200,)),
    Odd("HTTP/1.0 without a host", request("POST /mcp HTTP/1.0", host=None), (400,)),
    *(Odd(f"HTTP/{v}", request(f"POST /mcp HTTP/{v}"), (400, 505)) for v in ("1.2", "2.0", "9.9", "x")),
    Odd("HTTP/2 at once", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505)),
    Odd("h2c", request(more="Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), (200, 400)),
    Odd("a WebSocket", request("GET /mcp HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", b"", length=False), (400, 426)),
    Odd("TLS", bytes.fromhex("16030100a5010000a1") + bytes(160), (400,)),
    Odd("nonsense", bytes(range(256)) * 4, (400,)),
    Odd("line feeds", b"\r\n" * 5000 + request(), (200, 400, 431)),
    Odd("an empty line first", b"\r\n" + request(), (200, 400)),
]  # fmt: skip
ODD = [*FRAMING, *HEADERS, *TARGETS]
