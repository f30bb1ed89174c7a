"""One HTTP request while it is served: its body in, its answer out, and who still waits.

A visit is served in the task that the web server made for it. Nothing watches a visit that is
answered at once: one timer looks after all of them, and gives a watcher to those that stay.

Rules: knows ASGI and no message. Every wait of a visit has an end: the time for the body, for a
reader that stops reading, for silence. A cancellation of ours never leaves the application.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, Final, TypeAlias

from msgspec import Struct

from portico.errors import ConnectionLost, Fault, FaultKind
from portico.protocol.httprules_gate import (
    BAD_REQUEST,
    MAX_BODY_BYTES,
    Answers,
    Headers,
    Refusal,
    check_size,
    declared_size,
)
from portico.protocol.sse import comment

log = logging.getLogger("portico.transport")

# How often the timer looks. What is answered within a turn or two needs no watcher at all.
TURN_S = 0.05
# What stays is looked after in longer steps: ten thousand idle streams cost a millisecond each.
STEP_S = 1.0
# A larger body than allowed is read to its end up to here, so that its sender reads the refusal
# instead of a broken connection.
FORGIVEN_BODIES = 4

REQUEST_TIMEOUT: Final = 408
UNAVAILABLE: Final = 503

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Pairs: TypeAlias = list[tuple[bytes, bytes]]

JSON_HEADER = (b"content-type", b"application/json")
CLOSE_HEADER = (b"connection", b"close")
EVENT_HEADERS: Pairs = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # R0860
]
_KEEP_ALIVE = comment()


class Limits(Struct, frozen=True, kw_only=True):
    """What a stranger may take of an HTTP server: sizes in bytes, times in seconds.

    Those on connections (headers, silence, unread answers) are the runner's: an application that
    is mounted elsewhere cannot see them.
    """

    # Files travel in base64 inside one message; what is larger belongs behind a link.
    body_bytes: int = MAX_BODY_BYTES
    # Time for a whole body, and the least of it that must arrive each second.
    body_s: float = 30.0
    body_bytes_per_s: int = 1024
    # A reader that takes nothing for so long is gone, or means harm.
    write_s: float = 30.0
    # Proxies cut what is silent for 30 to 60 seconds.
    keep_alive_s: float = 25.0
    # Requests that are worked on at once; more are told to come back.
    visits: int = 25_000
    # Sessions are small, but each is kept until it is idle for so long, or simply old.
    sessions: int = 10_000
    sessions_per_principal: int = 100
    session_idle_s: float = 30 * 60.0
    session_s: float = 24 * 3600.0
    # Streams of one session that somebody reads at once: a client needs one, and some calls.
    session_streams: int = 64
    # What is kept of streams for those who come back: of one stream, of one session, of all.
    stream_bytes: int = 1024 * 1024
    session_bytes: int = 4 * 1024 * 1024
    kept_bytes: int = 256 * 1024 * 1024
    # How long an ended stream can be fetched, and after how long its reader should come for it.
    kept_s: float = 5 * 60.0
    retry_ms: int = 1000


DEFAULT_LIMITS: Final = Limits()


class Gone(Exception):
    """Nobody waits for this visit any more."""


class Visit:
    """One HTTP request, from its headers to the last byte of its answer."""

    __slots__ = (
        "_lock",
        "_receive",
        "_send",
        "_writing_since",
        "answers",
        "ended",
        "gone",
        "headers",
        "last_write",
        "limits",
        "on_silence",
        "reading",
        "received",
        "since",
        "started",
        "streaming",
        "task",
        "told",
        "watcher",
        "working",
    )

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Headers,
        answers: Answers,
        limits: Limits,
        now: float,
    ) -> None:
        self._receive = receive
        self._send = send
        self.headers = headers
        self.answers = answers
        self.limits = limits
        self.task = asyncio.current_task()
        self.since = self.last_write = now
        self.received = 0
        self.reading = False
        self.started = False
        self.streaming = False
        self.ended = False
        self.gone = ""
        self.told = False
        self.working = False
        self.watcher: asyncio.Task[None] | None = None
        self.on_silence: Callable[[], None] | None = None
        self._writing_since = 0.0
        self._lock: asyncio.Lock | None = None

    # ------------------------------------------------------------ in

    async def body(self) -> bytes:
        """The whole body. Raises `Refusal` for one that is too large, `Gone` for none."""
        declared = declared_size(self.headers)
        limit = self.limits.body_bytes
        if declared > limit * FORGIVEN_BODIES:
            check_size(declared, limit)
        self.reading = True
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self.reading = False
            body: bytes = message.get("body", b"")
        else:
            body = await self._rest(message, limit)
        check_size(len(body), limit)
        return body

    async def _rest(self, message: Message, limit: int) -> bytes:
        parts: list[bytes] = []
        while True:
            if message["type"] != "http.request":
                self.ended = True
                raise Gone
            part: bytes = message.get("body", b"")
            self.received += len(part)
            if self.received <= limit:
                parts.append(part)
            else:
                parts.clear()
            if self.received > limit * FORGIVEN_BODIES or not message.get("more_body", False):
                break
            message = await self._receive()
        self.reading = False
        check_size(self.received, limit)
        return b"".join(parts)

    # ------------------------------------------------------------ out

    async def reply(self, status: int, body: bytes, more: Pairs | None = None) -> None:
        """The whole answer at once; JSON, where there is any."""
        length = (b"content-length", b"%d" % len(body))
        headers = [JSON_HEADER, length] if body else [length]
        if more:
            headers += more
        self.started = True
        self._writing_since = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
        self.ended = True

    async def open(self, first: bytes = b"", more: Pairs | None = None) -> None:
        """Begin a stream of events, once."""
        if not self.streaming:
            self.streaming = True
            self._lock = asyncio.Lock()
            async with self._lock:
                headers = EVENT_HEADERS + more if more else EVENT_HEADERS
                self.started = True
                await self._put({"type": "http.response.start", "status": 200, "headers": headers})
                await self._put({"type": "http.response.body", "body": first, "more_body": True})

    async def write(self, chunk: bytes) -> None:
        """More of the stream. Raises `ConnectionLost` where nobody reads it."""
        if self.gone or self.ended:
            raise ConnectionLost(self.gone or "the answer was complete already")
        if self._lock is None:
            await self.open(chunk)
            return
        async with self._lock:
            if not self.ended:
                await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        """The end of the stream, after one more chunk perhaps."""
        if self._lock is None:
            await self.open()
        assert self._lock is not None
        async with self._lock:
            if not self.ended:
                await self._put({"type": "http.response.body", "body": last})
                self.ended = True

    async def _put(self, message: Message) -> None:
        self._writing_since = asyncio.get_running_loop().time()
        await self._send(message)
        self.last_write = self._writing_since
        self._writing_since = 0.0

    async def _keep_alive(self) -> None:
        with contextlib.suppress(ConnectionLost, OSError):
            await self.write(_KEEP_ALIVE)

    # ------------------------------------------------------------ who still waits

    def leave(self, why: str, *, told: bool = False) -> None:
        """Nobody waits any more, or nobody may: stop what is being done for this visit.

        `told` is whether the client is still there, and hears of it.
        """
        if not self.gone and not self.ended:
            self.gone = why
            self.told = told
            if self.task is not None:
                self.task.cancel()

    def is_ours(self) -> bool:
        """Whether the cancellation that was just caught was `leave`'s alone; then it is taken."""
        return bool(self.gone) and self.task is not None and self.task.uncancel() == 0

    async def _watch(self) -> None:
        while not self.ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                # It is also said after an answer is complete.
                self.leave("the client has gone")
                return

    def check(self, now: float) -> "asyncio.Task[None] | None":
        """What is due for a visit that stays; a task, where one was started for it."""
        limits = self.limits
        if self.reading:
            age = now - self.since
            slow = age > 5.0 and self.received < limits.body_bytes_per_s * (age - 5.0)
            if age > limits.body_s or slow:
                self.leave("the body did not arrive in time", told=True)
            return None
        if self._writing_since:
            if now - self._writing_since > limits.write_s:
                self.leave("the client does not read")
            return None
        loop = asyncio.get_running_loop()
        if self.watcher is None and not self.ended:
            self.watcher = loop.create_task(self._watch())
        silent = now - self.last_write > limits.keep_alive_s
        if silent and self.answers.events and not self.ended:
            self.last_write = now
            if self.streaming or self.on_silence is None:
                return loop.create_task(self._keep_alive())
            self.on_silence()
        return None


class Sweep:
    """The one timer that looks after all visits, and after whatever else is due now and then."""

    def __init__(self) -> None:
        self._fresh: set[Visit] = set()
        self._staying: set[Visit] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._chores: list[Callable[[float], bool]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = False
        self._next_step = 0.0

    def __len__(self) -> int:
        return len(self._fresh) + len(self._staying)

    def __iter__(self) -> Iterator[Visit]:
        return iter([*self._fresh, *self._staying])

    def add(self, visit: Visit) -> None:
        """Look after a visit from now on."""
        self._fresh.add(visit)
        loop = asyncio.get_running_loop()
        if not self._hurried or self._loop is not loop:
            self._set_timer(loop, TURN_S)

    def remove(self, visit: Visit) -> None:
        """A visit is over."""
        self._fresh.discard(visit)
        if visit.watcher is not None:
            visit.watcher.cancel()
        self._staying.discard(visit)

    def chore(self, due: Callable[[float], bool]) -> None:
        """Call this with the time every second, as long as it says that it has more to do."""
        self._chores.append(due)

    def stop(self) -> None:
        """The loop ends; the next visit begins anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._loop, self._hurried = None, None, False

    def _set_timer(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        if self._timer is not None and self._loop is loop:  # another loop's timer died with it
            self._timer.cancel()
        self._loop = loop
        self._hurried = delay_s == TURN_S
        self._timer = loop.call_later(delay_s, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for visit in [visit for visit in self._fresh if now - visit.since >= TURN_S]:
            self._fresh.discard(visit)
            self._staying.add(visit)
            self._check(visit, now)
        busy = True
        if now >= self._next_step:
            self._next_step = now + STEP_S
            for visit in list(self._staying):
                self._check(visit, now)
            busy = sum(chore(now) for chore in self._chores) > 0
        self._timer, self._hurried = None, False
        if self._fresh:
            self._set_timer(loop, TURN_S)
        elif self._staying or busy:
            self._set_timer(loop, STEP_S)

    def _check(self, visit: Visit, now: float) -> None:
        task = visit.check(now)
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


def unexpected(error: Exception) -> Fault:
    """For a service that raised what it must not: the log has it, the client hears no more."""
    log.error("the service raised %s", type(error).__name__, exc_info=error)
    return Fault(FaultKind.INTERNAL, "the server failed; its log says why")


def overload(words: str) -> Refusal:
    """503: come back later."""
    return Refusal(UNAVAILABLE, words, kind=FaultKind.INTERNAL, headers=(("Retry-After", "1"),))


def too_slow(words: str) -> Refusal:
    """408: the body did not come."""
    return Refusal(REQUEST_TIMEOUT, words, headers=(("Connection", "close"),))


def malformed(words: str) -> Refusal:
    """400, for what is wrong with the request itself."""
    return Refusal(BAD_REQUEST, words)
