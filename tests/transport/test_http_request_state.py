"""The states of one HTTP request: each transition is one of the table."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from colonnade.errors import ConnectionLost
from colonnade.protocol.http.security import AcceptedTypes, HttpError
from colonnade.transport.http_server.request import (
    ENDED,
    RECEIVED,
    TRANSITIONS,
    ClientDisconnected,
    HttpRequestState,
    IncomingRequest,
    Limits,
    Message,
)
from live import live

READ, RESPOND = HttpRequestState.READING_BODY, HttpRequestState.RESPONDING
STREAM, WRITE, HELD = HttpRequestState.STREAMING, HttpRequestState.WRITING, HttpRequestState.HELD


class Checked(IncomingRequest):
    """A request that refuses a transition which is not in the table, and remembers the others."""

    def __init__(self, *messages: Message, limits: Limits | None = None) -> None:
        self.states: list[HttpRequestState] = []
        self.sent: list[Message] = []
        self._messages = list(messages)
        super().__init__(self._next, self._take, {}, limits or Limits())
        self.accept = AcceptedTypes(json=True, events=True)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state":
            assert value in TRANSITIONS[self.state], (self.state, value)
            self.states.append(value)
        super().__setattr__(name, value)

    async def _next(self) -> Message:
        return self._messages.pop(0)

    async def _take(self, message: Message) -> None:
        await asyncio.sleep(0)
        self.sent.append(message)


def part(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def whole(request: Checked) -> None:
    assert await request.body() == b"a"
    await request.respond(200, b"{}")


async def in_parts(request: Checked) -> None:
    assert await request.body() == b"ab"
    await request.respond(200, b"{}")


async def disconnected(request: Checked) -> None:
    with pytest.raises(ClientDisconnected):
        await request.body()


async def too_much(request: Checked) -> None:
    with pytest.raises(HttpError):
        await request.body()
    await request.respond(503, b"")


async def streamed(request: Checked) -> None:
    await request.write(b"one")
    await request.write(b"two")
    await request.keep_alive()
    await request.end_stream(b"three")
    await request.end_stream(b"never")
    with pytest.raises(ConnectionLost, match="complete"):
        await request.write(b"never")


async def held_open(request: Checked) -> None:
    task = asyncio.get_running_loop().create_task(asyncio.sleep(0.01))
    request.before_stream_end = lambda: task
    await request.start_stream()
    ending = asyncio.get_running_loop().create_task(request.end_stream(b"last"))
    while request.state is not HELD:
        await asyncio.sleep(0)
    request.abort("too late")
    handled = request.handled()
    assert handled is not None
    assert handled.done()
    await ending
    assert request.abort_reason == ""


TINY = Limits(max_buffered_body_bytes=1)


@pytest.mark.parametrize(
    ("exercise", "request_", "states"),
    [
        (whole, lambda: Checked(part(b"a")), [READ, RECEIVED, RESPOND, ENDED]),
        (
            in_parts,
            lambda: Checked(part(b"a", more=True), part(b"b")),
            [READ, RECEIVED, RESPOND, ENDED],
        ),
        (
            disconnected,
            lambda: Checked(part(b"a", more=True), {"type": "http.disconnect"}),
            [READ, ENDED],
        ),
        (
            too_much,
            lambda: Checked(part(b"ab", more=True), limits=TINY),
            [READ, RESPOND, ENDED],
        ),
        (
            streamed,
            Checked,
            [STREAM, *[WRITE, STREAM] * 5, ENDED],
        ),
        (held_open, Checked, [STREAM, *[WRITE, STREAM] * 3, HELD, ENDED]),
    ],
)
@live
async def test_a_request_goes_from_state_to_state_as_the_table_says(
    exercise: Callable[[Checked], Awaitable[None]],
    request_: Callable[[], Checked],
    states: list[HttpRequestState],
) -> None:
    request = request_()
    assert (request.state, request.has_started, request.has_ended) == (RECEIVED, False, False)
    await exercise(request)
    assert request.states == states
    assert request.has_ended


def test_every_state_can_be_reached_and_only_the_last_has_no_way_on() -> None:
    assert set(TRANSITIONS) == set(HttpRequestState)
    reached = {state for states in TRANSITIONS.values() for state in states}
    assert reached == set(HttpRequestState)
    assert [state for state, states in TRANSITIONS.items() if not states] == [ENDED]
