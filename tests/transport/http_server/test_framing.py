"""How a request is framed, where HTTP has traps: another protocol asked for, and older versions."""

import json

import pytest

from http_client import META, Caller, Response, Wire
from live import ServedApp, live, served_app

BODY = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "echo", "arguments": {"say": "heard"}, "_meta": META},
    }
).encode()
HALF = len(BODY) // 2


def head(port: int, *lines: str, version: str = "1.1") -> bytes:
    """The head of a call, with these lines more."""
    said = [
        f"POST /mcp HTTP/{version}",
        f"Host: 127.0.0.1:{port}",
        "Accept: application/json",
        "Content-Type: application/json",
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Method: tools/call",
        "Mcp-Name: echo",
        *lines,
    ]
    return "\r\n".join([*said, "", ""]).encode()


def chunked(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (HALF, body[:HALF], len(body) - HALF, body[HALF:])


async def sent(wire: Wire, *parts: bytes) -> Response:
    for part in parts:
        await wire.send(part)
    response = await wire.head()
    await response.read()
    return response


UPGRADES = {
    "h2c": ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
    "websocket": ("Connection: Upgrade", "Upgrade: websocket"),
}


async def upgraded(s: ServedApp, asked: tuple[str, ...], framing: str) -> None:
    wire = await s.caller.wire()
    lines = [*asked, f"Content-Length: {len(BODY)}"]
    if framing == "chunks":
        lines[-1] = "Transfer-Encoding: chunked"
    first = head(s.site.port, *lines)
    match framing:
        case "chunks":
            parts = [first, chunked(BODY)]
        case "one piece":
            parts = [first + BODY]
        case _:
            parts = [first[:100], first[100:], BODY[:HALF], BODY[HALF:]]
    response = await sent(wire, *parts)
    assert (response.status, response.text) == (200, "heard")
    assert await wire.closed()


@pytest.mark.parametrize("framing", ["one piece", "pieces", "chunks"])
@pytest.mark.parametrize("asked", UPGRADES.values(), ids=UPGRADES)
def test_a_request_that_asks_for_another_protocol_keeps_its_body(
    asked: tuple[str, ...], framing: str
) -> None:
    @live
    async def run() -> None:
        async with served_app() as s:
            await upgraded(s, asked, framing)

    run()


@live
async def test_the_limits_on_headers_hold_for_a_request_that_asks_for_another_protocol() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        long = f"X-Long: {'x' * 20_000}"
        response = await sent(wire, head(s.site.port, *UPGRADES["h2c"], long))
        assert response.status == 431


@live
async def test_chunks_in_http_1_0_are_refused() -> None:
    async with served_app() as s:
        for lines in (
            ("Transfer-Encoding: chunked",),
            ("Transfer-Encoding: chunked", f"Content-Length: {len(BODY)}"),
            ("Transfer-Encoding: identity",),
        ):
            wire = await s.caller.wire()
            first = head(s.site.port, *lines, version="1.0")
            response = await sent(wire, first + chunked(BODY))
            assert response.status == 400, lines
            assert await wire.closed()
        assert not s.service.turns
        async with Caller(s.site.port) as caller:
            plain = head(s.site.port, f"Content-Length: {len(BODY)}", version="1.0")
            assert (await sent(await caller.wire(), plain + BODY)).text == "heard"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Transfer-Encoding: chunked",), 200),
        (("Transfer-Encoding: Chunked",), 200),
        (("Transfer-Encoding: gzip, chunked",), 501),
        (("Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), 501),
        (("Transfer-Encoding: x-own;a=1, chunked",), 501),
        (("Transfer-Encoding: gzip",), 400),
        (("Transfer-Encoding: chunked, gzip",), 400),
        (("Transfer-Encoding: chunked, chunked",), 400),
        (("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400),
    ],
)
def test_a_body_with_another_transfer_coding_than_chunked_is_refused(
    lines: tuple[str, ...], status: int
) -> None:
    @live
    async def exercise() -> None:
        async with served_app() as s:
            wire = await s.caller.wire()
            response = await sent(wire, head(s.site.port, *lines), chunked(BODY))
            assert response.status == status
            if status != 200:
                assert s.service.running == 0
                assert response.headers["connection"] == "close"
                await wire.closed()

    exercise()
