"""Requests that begin as the one before did: compared, not parsed, and the same in every way."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.connection import (
    KNOWN_BYTES,
    MISSES,
    READ_BYTES,
    KnownHead,
    Reading,
    learn,
)
from colonnade.transport.http_server.request import Receive, Scope, Send
from colonnade.transport.http_server.runner import HttpRunner, listening
from http_client import BOTH, Caller, Wire, opening, written
from http_service import FakeService
from live import live, until

LIMIT = 16 * 1024


async def mirror(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what an application sees of a request, and spoils it then."""
    if scope["type"] != "http":
        return
    seen: dict[str, Any] = {
        name: repr(value)
        for name, value in scope.items()
        if name not in ("client", "colonnade.connection")
    }
    path = scope["path"]
    scope["headers"].append((b"x-added", b"by the application"))
    scope["state"]["spoilt"] = scope["path"] = scope["asgi"]["version"] = "yes"
    body, more = b"", path != "/hasty"
    while more:
        event = await receive()
        assert event["type"] == "http.request"
        body += event.get("body", b"")
        more = event.get("more_body", False)
    seen["body"] = body.decode("latin-1")
    scope["headers"].clear()
    data = json.dumps(seen).encode()
    head = [(b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": data})


def request(body: bytes, path: str = "/mirror", more: bytes = b"", length: str = "") -> bytes:
    """A request whose headers are in an order, and in letters, that nobody expects."""
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nX-A: 1\r\nX-Empty:\r\n".encode()
    return (
        head
        + b"content-LENGTH:  %b\r\n" % (length or str(len(body))).encode()
        + (more + b"X-A: 2\r\n\r\n" + body)
    )


@asynccontextmanager
async def mirrored() -> AsyncGenerator[tuple[HttpRunner, Caller]]:
    async with (
        listening(HttpApp(FakeService(), around=mirror), port=0) as site,
        Caller(site.port) as caller,
    ):
        yield site, caller


async def ask(wire: Wire, *pieces: bytes) -> tuple[int, Any]:
    for piece in pieces:
        await wire.send(piece)
        await asyncio.sleep(0)
    answer = await wire.head()
    await answer.read()
    return answer.status, json.loads(answer.body) if answer.body else None


AGAIN = request(b"first")
LARGE = request(b"y" * 100_000)


@pytest.mark.parametrize(
    "pieces",
    [
        [AGAIN],
        [request(b"")],
        [request(b"other, and longer: 1234567890")],
        [request(b"\r\n\r\n")],
        [request(b"POST / HTTP/1.1\r\n\r\n")],
        [AGAIN[:1], AGAIN[1:]],
        [AGAIN[:-1], AGAIN[-1:]],
        [AGAIN[:-5], AGAIN[-5:]],
        [LARGE],
        [LARGE[:70_000], LARGE[70_000:]],
        [b"\r\n" + AGAIN],
        [request(b"first", "/mirror?x=%20y")],
        [request(b"first", "/mirr%6fr/there")],
        [request(b"first", more=b"X-B: 3\r\n")],
        [request(b"first", more=b"Expect: 100-continue\r\n")],
        [request(b"0123456789", length="010")],
        [AGAIN.replace(b"X-A: 2", b"x-a: 2")],
        [AGAIN.replace(b"POST", b"PUT")],
        [
            AGAIN.replace(b"content-LENGTH:  5", b"Transfer-Encoding: chunked").replace(
                b"first", b"5\r\nfirst\r\n0\r\n\r\n"
            )
        ],
    ],
)
@live
async def test_whatever_comes_after_a_request_is_seen_as_if_it_came_first(
    pieces: list[bytes],
) -> None:
    expects = any(b"100-continue" in piece for piece in pieces)
    async with mirrored() as (_, caller):
        used = await caller.wire()
        for _ in range(3):
            assert (await ask(used, AGAIN))[1]["body"] == "first"
        for _ in range(3):
            alone = await caller.wire()
            if expects:  # it is told to go on first
                assert (await ask(alone, *pieces)) == (await ask(used, *pieces)) == (100, None)
                first, second = await alone.head(), await used.head()
                assert await first.read() == await second.read()
            else:
                expected = await ask(alone, *pieces)
                assert await ask(used, *pieces) == expected
                assert "body" in expected[1]
            assert (await ask(used, AGAIN))[1]["path"] == "'/mirror'"


@pytest.mark.parametrize("rest", [AGAIN, b"x", b"\r\n", b"GET / HTTP/1.1\r\n\r\n"])
@live
async def test_what_follows_a_request_in_the_same_breath_is_never_its_body(rest: bytes) -> None:
    async with mirrored() as (_, caller):
        wire = await caller.wire()
        for _ in range(3):
            assert (await ask(wire, AGAIN))[1]["body"] == "first"
        assert (await ask(wire, AGAIN + rest))[1]["body"] == "first"


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
WAIT = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}'


async def in_session(caller: Caller, *bodies: bytes) -> tuple[str, list[bytes]]:
    """A session, and requests of it that begin alike."""
    opened = await caller.request("POST", json.dumps(opening("2025-11-25")).encode())
    session = opened.headers["mcp-session-id"]
    said: dict[str, str | None] = {
        "host": f"127.0.0.1:{caller.port}",
        "accept": BOTH,
        "content-type": "application/json",
        "mcp-session-id": session,
    }
    return session, [written("POST", "/mcp", said, body) for body in bodies]


@live
async def test_a_session_that_has_ended_is_not_found_by_a_request_that_was_answered_before() -> (
    None
):
    async with listening(HttpApp(FakeService()), port=0) as site, Caller(site.port) as caller:
        session, (ping,) = await in_session(caller, PING)
        wire = await caller.wire()
        for _ in range(4):
            assert (await ask(wire, ping))[0] == 200
        (line,) = [one for one in used(site) if one._known is not None]
        assert line._misses == 0  # the last ones were not parsed
        assert (await caller.request("DELETE", mcp_session_id=session)).status == 200
        assert (await ask(wire, ping))[0] == 404
        assert (await ask(wire, ping.replace(b"127.0.0.1:", b"127.0.0.2:")))[0] == 403


def begun_at_once(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> "asyncio.Future[Any]":
    """A factory of tasks that are begun where they are made, in every version that can do that."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True, **more)
    return asyncio.Task(work, loop=loop, **more)


@live
async def test_what_an_application_makes_of_a_request_never_comes_back_with_the_next() -> None:
    async with mirrored() as (_, caller):
        asyncio.get_running_loop().set_task_factory(begun_at_once)
        wire = await caller.wire()
        seen = [await ask(wire, AGAIN) for _ in range(4)]
        assert all(one == seen[0] for one in seen)
        assert "x-added" not in seen[0][1]["headers"]


def used(site: Any) -> list[Any]:
    return list(site._connections)


@live
async def test_a_connection_that_is_used_once_remembers_nothing() -> None:
    async with mirrored() as (site, caller):
        wire = await caller.wire()
        await ask(wire, AGAIN)
        assert [one._known for one in used(site)] == [None]
        await ask(wire, AGAIN)
        assert [one._known is None for one in used(site)] == [False]
        for number in range(20):  # who never says the same twice is given up
            await ask(wire, request(b"", f"/mirror/{number}"))
        last = used(site)[0]._known
        await ask(wire, request(b"", "/mirror/last"))
        assert used(site)[0]._known is last


@live
async def test_a_connection_whose_request_stays_remembers_nothing_meanwhile() -> None:
    service = FakeService()
    async with listening(HttpApp(service), port=0) as site, Caller(site.port) as caller:
        _, (ping, wait) = await in_session(caller, PING, WAIT)
        wire = await caller.wire()
        for _ in range(3):
            assert (await ask(wire, ping))[0] == 200
        (line,) = [one for one in used(site) if one._known is not None]
        await wire.send(wait)
        await until(lambda: line._known is None)
        assert line._cycle.incoming is not None
        service.go.mark("wait")
        answer = await wire.head()
        await answer.read()
        assert json.loads(answer.body)["result"]["content"][0]["text"] == "waited"
        assert (await ask(wire, ping))[0] == 200
        assert line._known is not None


@live
async def test_in_the_middle_of_a_request_nothing_begins_another() -> None:
    async with mirrored() as (site, caller):
        wire = await caller.wire()
        for _ in range(3):
            await ask(wire, AGAIN)
        (line,) = used(site)
        await wire.send(b"POST /mirror HTTP/1.1\r\n")
        await until(lambda: line.reading is Reading.HEADERS)
        assert (await ask(wire, AGAIN))[0] == 400


@live
async def test_the_rest_of_a_body_that_nobody_waits_for_is_no_request() -> None:
    async with mirrored() as (site, caller):
        wire = await caller.wire()
        for _ in range(3):
            await ask(wire, AGAIN)
        (line,) = used(site)
        length = str(len(AGAIN) + 5)
        assert (await ask(wire, request(b"", "/hasty", length=length)))[0] == 200
        await wire.send(AGAIN)
        await until(lambda: line._body_bytes == len(AGAIN))
        await wire.send(b"12345")
        assert (await ask(wire, request(b"x", "/mirror/last")))[1]["path"] == "'/mirror/last'"


@live
async def test_a_request_that_comes_before_the_last_was_answered_is_not_begun() -> None:
    gate, begun = asyncio.Event(), list[Scope]()

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            begun.append(scope)
            await gate.wait()
        await mirror(scope, receive, send)

    async with (
        listening(HttpApp(FakeService(), around=waiting), port=0) as site,
        Caller(site.port) as caller,
    ):
        wire = await caller.wire()
        gate.set()
        for _ in range(3):
            await ask(wire, AGAIN)
        gate.clear()
        (line,) = used(site)
        await wire.send(AGAIN)
        await until(lambda: len(begun) == 4)
        await wire.send(AGAIN)
        await until(lambda: line.reading is Reading.STOPPED)
        gate.set()
        assert (await wire.head()).status == 200
        assert await wire.closed()
        assert len(begun) == 4


@live
async def test_who_was_told_to_go_on_once_is_not_told_again() -> None:
    async with mirrored() as (_, caller):
        wire = await caller.wire()
        for number in range(MISSES + 1):
            await ask(wire, request(b"first", f"/mirror/{number}"))
        assert (await ask(wire, request(b"first", more=b"Expect: 100-continue\r\n")))[0] == 100
        assert await (await wire.head()).read()
        for _ in range(2):
            assert (await ask(wire, request(b"first", f"/mirror/{MISSES}")))[0] == 200


# ---------------------------------------------------------------- a head alone


def known(data: bytes, size: int, limit: int = LIMIT, **changed: Any) -> KnownHead | None:
    scope: dict[str, Any] = dict.fromkeys(
        ("type", "server", "client", "scheme", "root_path", "path", "raw_path"), None
    )
    scope["asgi"] = {"version": "3.0"}
    lines = [line.split(b":", 1) for line in data.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
    scope |= {"method": "POST", "http_version": "1.1", "query_string": b""}
    scope["headers"] = [(name.lower(), value.strip()) for name, value in lines]
    return learn(data, size, scope | changed, limit)


def test_a_head_is_known_again_by_every_byte_but_the_length() -> None:
    head = known(AGAIN, 5)
    assert head is not None
    for body in (b"x", b"first", b"y" * 10, b"z" * 100_000):
        data = request(body)
        found = head.read(data)
        assert found is not None
        assert found[1] == body
        assert dict(found[0]["headers"])[b"content-length"] == b"%d" % len(body)
        at = len(data) - len(body)
        for end in (len(data) - 1, at - 1, 10, 0):
            assert head.read(data[:end]) is None
        assert head.read(data + b"\n") is None
    assert head.read(request(b"z" * READ_BYTES)) is None
    for place in range(AGAIN.index(b"first")):
        assert head.read(AGAIN[:place] + b"!" + AGAIN[place + 1 :]) is None
    assert head.read(request(b"0123456789", length="010")) is None
    assert head.read(request(b"0123456789", length="+10")) is None
    assert head.read(request(b"0123456789", length="1e1")) is None


@pytest.mark.parametrize(
    "more",
    [
        b"Connection: close\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: h2c\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Content-Length: 5\r\n",
        b"X-Long: " + b"x" * KNOWN_BYTES + b"\r\n",
    ],
)
def test_a_head_that_asks_for_more_than_an_answer_is_always_parsed(more: bytes) -> None:
    assert known(request(b"first", more=more), 5) is None


def test_what_is_no_whole_request_is_not_learnt() -> None:
    assert known(AGAIN, 4) is None
    assert known(AGAIN + b"\r\n", 5) is None
    assert known(b"\r\n\r\n" + AGAIN, 5) is None
    assert known(AGAIN, 5, limit=len(AGAIN)) is None
    assert known(AGAIN, 5, method="GET") is None
    assert known(AGAIN, 5, http_version="1.0") is None
