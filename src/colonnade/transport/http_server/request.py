"""One HTTP request while it is served: its body in, its answer out, and who still waits.

A visit is served in the task that the web server made for it, and reads no clock: `http_sweep`
looks after all that stay, and ends what lasts too long.

Rules: knows ASGI and no message. Whoever leaves is remembered by why, and a cancellation of ours
never leaves the application.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from colonnade.errors import (
    ConnectionLost,
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
)
from colonnade.protocol.http.security import (
    BAD_REQUEST,
    MAX_BODY_BYTES,
    UNAVAILABLE,
    AcceptedTypes,
    Headers,
    HttpError,
    check_size,
    declared_size,
)
from colonnade.protocol.http.sse import comment

log: logging.Logger = logging.getLogger("colonnade.transport")

# A larger body than allowed is read to its end up to here, so that its sender reads the refusal
# instead of a broken connection.
FORGIVEN_BODIES = 4
# A length with so many digits is looked at before the body is read; others while it is.
LONG_LENGTH = 7
# Up to here a body takes no more than the request around it, and is not counted: with 25,000
# requests at once these are 100 MiB.
SMALL_BODY_BYTES = 4 * 1024

REQUEST_TIMEOUT: Final = 408

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
NO_CLAIMS: Final[Mapping[str, Any]] = {}
JSON_ALONE: Final = AcceptedTypes(json=True, events=False)


class Limits(Struct, frozen=True, kw_only=True):
    """What a stranger may take of an HTTP server: sizes in bytes, times in seconds.

    Those on connections (headers, silence, unread answers) are the runner's: an application that
    is mounted elsewhere cannot see them.
    """

    # Files travel in base64 inside one message; what is larger belongs behind a link.
    max_body_bytes: int = MAX_BODY_BYTES
    # Time for a whole body, and the least of it that must arrive each second.
    body_timeout_s: float = 30.0
    min_body_bytes_per_s: int = 1024
    # Unfinished bodies of all requests together.
    max_buffered_body_bytes: int = 256 * 1024 * 1024
    # Bodies of all requests that are being answered, and of those of one principal. In memory a
    # call takes two to three times its body.
    max_running_body_bytes: int = 128 * 1024 * 1024
    max_running_body_bytes_per_principal: int = 32 * 1024 * 1024
    # A reader that takes nothing for so long is gone, or means harm.
    write_timeout_s: float = 30.0
    # Proxies cut what is silent for 30 to 60 seconds.
    keep_alive_interval_s: float = 25.0
    # Requests and streams that are served at once; more are told to come back.
    max_concurrent_requests: int = 25_000
    max_concurrent_requests_per_principal: int = 1_024
    # Sessions are small, but each is kept until it is idle for so long, or simply old.
    max_sessions: int = 10_000
    max_sessions_per_principal: int = 100
    session_idle_timeout_s: float = 30 * 60.0
    max_session_age_s: float = 24 * 3600.0
    # Streams of one session that are open at once, read or with a call that still runs: a client
    # needs one, and some calls.
    max_streams_per_session: int = 64
    # Streams of one session that are kept for a client that comes back for the rest.
    max_resumable_streams_per_session: int = 64
    # What is kept of streams for those who come back: of one stream, of one session, of all.
    max_resumable_bytes_per_stream: int = 1024 * 1024
    max_resumable_bytes_per_session: int = 4 * 1024 * 1024
    max_resumable_bytes: int = 256 * 1024 * 1024
    # How long an ended stream can be fetched, and after how long its reader should come for it.
    resume_window_s: float = 5 * 60.0
    retry_ms: int = 1000
    # For calls in flight after a wish to end.
    drain_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        check_numbers(self)


def check_numbers(limits: Struct) -> None:
    """Refuse limits that are not numbers from 0: they would fail at the first request, or never
    apply. Raises `InvalidArgument` and `InvalidArgumentType`."""
    for name, default in zip(limits.__struct_fields__, limits.__struct_defaults__, strict=True):
        value, whole = getattr(limits, name), isinstance(default, int)
        kind = "a whole number" if whole else "a number"
        words = f"{type(limits).__name__}: {name} is {value!r}; give {kind} from 0"
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise InvalidArgumentType(words, argument=name)
        if not value >= 0:  # which NaN is not, either
            raise InvalidArgument(words, argument=name)


DEFAULT_LIMITS: Final = Limits()


class Line(Protocol):
    """A request on a connection of our own server (`RequestCycle`): it tells its visit at once when
    the client goes, and takes an answer in one piece."""

    visit: "Visit | None"
    loop: asyncio.AbstractEventLoop

    @property
    def lost(self) -> bool:
        """Whether the client has gone."""
        ...

    def whole_body(self, receive: Receive) -> bytes | None:
        """The body, where all of it has come already; None where it must be awaited."""
        ...

    def answer(self, send: Send, status: int, body: bytes, more: Pairs | None) -> bool:
        """Write a whole answer at once, of JSON where there is any; False where it must go the
        usual way, by `send`."""
        ...

    def begin(self, send: Send, headers: Pairs, first: bytes) -> bool:
        """Begin a stream; False where it must go the usual way."""
        ...

    def piece(self, send: Send, data: bytes, *, last: bool = False) -> bool:
        """One more piece of it; False where it must go the usual way."""
        ...

    def drop(self, send: Send) -> None:
        """End the connection as it is, if this answer is still on it."""
        ...


class Way(Protocol):
    """The way back of a request that is worked on even where its client has gone."""

    def lose(self) -> None:
        """The client has gone; instead of a cancellation."""
        ...

    def commit(self) -> None:
        """Nothing was said for long, and no stream has begun; instead of a comment."""
        ...


CLIENT_GONE: Final = "the client has gone"
# Where the scope of a request has it.
LINE_KEY: Final = "colonnade.line"


class Intake:
    """How many bytes of unfinished bodies are held at the moment, of all visits together."""

    def __init__(self) -> None:
        self.size = 0


class Gone(Exception):
    """Nobody waits for this visit any more."""


class Stay:
    """A visit that is not over in a moment: since when it is here, and its last sign of life."""

    __slots__ = ("alive_at", "since", "writes")

    def __init__(self, now: float) -> None:
        self.since: float = now
        self.alive_at: float = now
        self.writes: int = 0


class Visit:
    """One HTTP request, from its headers to the last byte of its answer.

    What most visits never change are defaults of the class: this is the hot path.
    """

    # What is going on: reading the body, doing the work itself, beginning to answer, streaming,
    # waiting for the reader, done. How many bytes came, and how many writes were taken.
    reading: bool = False
    working: bool = False
    started: bool = False
    streaming: bool = False
    writing: bool = False
    ended: bool = False
    received: int = 0
    writes: int = 0
    # Why nobody waits any more, and whether the client is still there to hear of it.
    gone: str = ""
    told: bool = False
    principal: str = ""
    # What the credentials allow, None where nobody looks at any; and what a browser is told.
    scopes: frozenset[str] | None = None
    # What else the credentials say of who sent this, after they were verified.
    claims: Mapping[str, Any] = NO_CLAIMS
    # When the credentials end, by the loop's clock, and when this visit ends for that; 0 is never.
    expires: float = 0.0
    until: float = 0.0
    beside: Pairs | None = None
    cancelled: bool = False
    # Who is told where the client goes, or has waited long for a first event.
    way: "Way | None" = None
    # Kept by the sweep: who watches for its end.
    watcher: "asyncio.Task[None] | None" = None
    intake: Intake | None = None
    # The size of its body, where that is counted while it is answered.
    body_bytes: int = 0
    # What must be done before a stream may end, if anything; and whether that is waited for.
    leaving: "Callable[[], asyncio.Task[None] | None] | None" = None
    held: bool = False
    _resting: "asyncio.Future[None] | None" = None
    _lock: asyncio.Lock | None = None

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Headers,
        limits: Limits,
        line: Line | None = None,
    ) -> None:
        self._receive = receive
        self._send = send
        self.headers = headers
        self.limits = limits
        self.answers = JSON_ALONE
        self.line = line
        # To ask for the loop is a system call before Python 3.12.
        loop = line.loop if line is not None else None
        self.task: asyncio.Task[Any] | None = asyncio.current_task(loop)
        # What the sweep knows of one that stays. Here and not of the class: an attribute that
        # comes later makes every idle stream a kilobyte larger.
        self.stay: Stay | None = None

    # ------------------------------------------------------------ in

    async def body(self) -> bytes:
        """The whole body. Raises `Refusal` for one that is too large, `Gone` for none."""
        if (
            len(self.headers.get(b"content-length", b"")) >= LONG_LENGTH
            or b"expect" in self.headers
        ):
            self._check_declared()  # before anything of it is asked for
        line = self.line
        whole = line.whole_body(self._receive) if line is not None else None
        if whole is not None:
            if len(whole) > self.limits.max_body_bytes:
                check_size(len(whole), self.limits.max_body_bytes)
            return whole
        self.reading = True
        message = await self._receive()
        if message["type"] != "http.request" or message.get("more_body", False):
            return await self._rest(message)
        self.reading = False
        body: bytes = message.get("body", b"")
        if len(body) > self.limits.max_body_bytes:
            check_size(len(body), self.limits.max_body_bytes)
        return body

    def _check_declared(self) -> None:
        declared, limit = declared_size(self.headers), self.limits.max_body_bytes
        if declared > limit * FORGIVEN_BODIES:
            check_size(declared, limit)

    async def _rest(self, message: Message) -> bytes:
        intake = self.intake or Intake()
        parts: list[bytes] = []
        try:
            while True:
                if message["type"] != "http.request":
                    self.ended = True
                    raise Gone
                part: bytes = message.get("body", b"")
                more: bool = message.get("more_body", False)
                self._keep(parts, part, intake)
                if not more or self.received > self.limits.max_body_bytes * FORGIVEN_BODIES:
                    break
                message = await self._receive()
        finally:
            intake.size -= sum(map(len, parts))
        self.reading = False
        check_size(self.received, self.limits.max_body_bytes)
        return b"".join(parts)

    def _keep(self, parts: list[bytes], part: bytes, intake: Intake) -> None:
        """One more part of a body; of one that is too large nothing is kept."""
        self.received += len(part)
        if self.received > self.limits.max_body_bytes:
            intake.size -= sum(map(len, parts))
            parts.clear()
        elif intake.size + len(part) > self.limits.max_buffered_body_bytes:
            raise overload("too many large requests at once; try again later")
        else:
            intake.size += len(part)
            parts.append(part)

    # ------------------------------------------------------------ out

    async def reply(self, status: int, body: bytes, more: Pairs | None = None) -> None:
        """The whole answer at once; JSON, where there is any."""
        if self.reply_at_once(status, body, more):
            return
        length = (b"content-length", b"%d" % len(body))
        headers = [JSON_HEADER, length] if body else [length]
        headers += [*(more or ()), *(self.beside or ())]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
        self.ended = True

    def reply_at_once(self, status: int, body: bytes, more: Pairs | None = None) -> bool:
        """The same without waiting; False where it must be awaited."""
        if self.beside:
            more = [*(more or ()), *self.beside]
        self.started = self.writing = True
        line = self.line
        if line is None or not line.answer(self._send, status, body, more):
            return False
        self.ended = True
        return True

    async def open(self, first: bytes = b"", more: Pairs | None = None) -> None:
        """Begin a stream of events, once."""
        if not self.streaming:
            self.started = self.streaming = True
            headers = [*EVENT_HEADERS, *(more or ()), *(self.beside or ())]
            if self.line is not None and self.line.begin(self._send, headers, first):
                self.writes += 1
                return
            self._lock = asyncio.Lock()
            async with self._lock:
                await self._put({"type": "http.response.start", "status": 200, "headers": headers})
                await self._put({"type": "http.response.body", "body": first, "more_body": True})

    async def write(self, chunk: bytes) -> None:
        """More of the stream. Raises `ConnectionLost` where nobody reads it."""
        if self.gone or self.ended:
            raise ConnectionLost(self.gone or "the answer was complete already")
        if not self.streaming:
            await self.open(chunk)
            return
        if self.write_at_once(chunk):
            return
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if not self.ended:
                await self._put({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        """The end of the stream, after one more chunk perhaps."""
        if not self.streaming:
            await self.open()
        line = self._free_line()
        if line is not None and line.piece(self._send, last, last=True):
            self.ended = True
            return
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self.ended:
                return
            leaving = self.leaving() if self.leaving is not None else None
            if leaving is not None:
                if last:
                    await self._put({"type": "http.response.body", "body": last, "more_body": True})
                    last = b""
                await self._hold(leaving)
            await self._put({"type": "http.response.body", "body": last})
            self.ended = True

    async def _hold(self, leaving: "asyncio.Task[None]") -> None:
        """All is said, and yet the stream stays open until something else is done."""
        self.held = True
        if self._resting is not None and not self._resting.done():
            self._resting.set_result(None)
        await asyncio.wait({leaving}, timeout=self.limits.drain_timeout_s)

    def rest(self) -> "asyncio.Future[Any] | None":
        """Done when nothing is done for this visit any more, even if its stream is held open."""
        if self.leaving is None or self.task is None:
            return self.task
        if self._resting is None:
            rest = self._resting = asyncio.get_running_loop().create_future()
            if self.held:
                rest.set_result(None)
            self.task.add_done_callback(lambda _: rest.done() or rest.set_result(None))
        return self._resting

    def write_at_once(self, chunk: bytes) -> bool:
        """The same without waiting; False where the reader has not kept up, or nobody can tell."""
        line = self._free_line()
        if line is None or not line.piece(self._send, chunk):
            return False
        self.writes += 1
        return True

    def _free_line(self) -> Line | None:
        """A connection of our own server, on which nobody waits to write."""
        busy = self._lock is not None and self._lock.locked()
        return self.line if self.streaming and not (busy or self.ended or self.gone) else None

    async def _put(self, message: Message) -> None:
        self.writing = True
        await self._send(message)
        self.writing = False
        self.writes += 1

    async def keep_alive(self) -> None:
        """A sign of life where nothing is to be said."""
        with contextlib.suppress(ConnectionLost, OSError):
            await self.write(_KEEP_ALIVE)

    # ------------------------------------------------------------ who still waits

    def leave(self, why: str, *, told: bool = False) -> None:
        """Nobody waits any more, or nobody may: stop what is being done for this visit."""
        if self.gone or self.ended or self.held:
            return
        self.gone = why
        self.told = told
        if self.way is not None and not told:
            self.way.lose()
        else:
            self.stop()

    def stop(self) -> None:
        """Cancel what is being done for this visit, in our own name."""
        if self.task is not None:
            self.cancelled = True
            self.task.cancel()

    def is_ours(self) -> bool:
        """Whether the cancellation that was just caught was ours alone; then it is taken."""
        return self.cancelled and self.task is not None and self.task.uncancel() == 0

    def drop(self) -> None:
        """Nobody reads the rest of the answer: let go of the connection, where it is ours."""
        if self.line is not None and not self.ended:
            self.line.drop(self._send)

    async def watch(self) -> None:
        """Wait until the client goes, and leave then."""
        while not self.ended:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                # It is also said after an answer is complete.
                self.leave(CLIENT_GONE)
                return


def unexpected(error: BaseException) -> Fault:
    """For a service that raised what it must not: the log has it, the client hears no more."""
    log.error("the service raised %s", type(error).__name__, exc_info=error)
    return Fault(FaultKind.INTERNAL, "the server failed; its log says why")


def overload(words: str) -> HttpError:
    """503: come back later."""
    return HttpError(UNAVAILABLE, words, kind=FaultKind.INTERNAL, headers=(("Retry-After", "1"),))


def too_slow(words: str) -> HttpError:
    """408: the body did not come."""
    return HttpError(REQUEST_TIMEOUT, words, headers=(("Connection", "close"),))


def malformed(words: str) -> HttpError:
    """400, for what is wrong with the request itself."""
    return HttpError(BAD_REQUEST, words)


# How often new visits are looked at: what is answered within one or two turns needs no watcher.
TURN_S = 0.05
# What stays is looked at in longer steps: ten thousand idle streams cost some milliseconds each.
STEP_S = 1.0
# A body may begin slowly; from then on it must keep a least speed.
BODY_GRACE_S = 5.0
# A turn that comes this late was not late by itself: a handler held everybody up.
HELD_S = 3.0


class Sweep:
    """Every visit that is not over, and whatever else is due now and then."""

    def __init__(self) -> None:
        self.count: int = 0
        self._fresh: set[Visit] = set()
        self._staying: set[Visit] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._chores: list[Callable[[float], bool]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = False
        self._next_step = 0.0
        self._due = 0.0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Visit]:
        return iter([*self._fresh, *self._staying])

    def add(self, visit: Visit) -> None:
        """Look after a visit from now on."""
        self.count += 1
        self._fresh.add(visit)
        if not self._hurried:
            self._set_timer(TURN_S)

    def remove(self, visit: Visit) -> None:
        """A visit is over."""
        self.count -= 1
        self._fresh.discard(visit)
        if visit.stay is not None:
            self._staying.discard(visit)
            if visit.watcher is not None:
                visit.watcher.cancel()
            elif visit.line is not None and visit.line.visit is visit:
                visit.line.visit = None

    def chore(self, due: Callable[[float], bool]) -> None:
        """Call this with the time every second, as long as it says that it has more to do."""
        self._chores.append(due)

    def stop(self) -> None:
        """The loop ends; the next visit begins anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._hurried = None, False

    # ------------------------------------------------------------ the timer

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._hurried = delay_s == TURN_S
        loop = asyncio.get_running_loop()
        self._due = loop.time() + delay_s
        self._timer = loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        now = asyncio.get_running_loop().time()
        held_s = now - self._due
        if held_s > HELD_S:
            log.warning(
                "something held the loop for %.1f s, and every client with it; a tool that blocks "
                "is written as def, not async def",
                held_s,
            )
        for visit in list(self._fresh):
            if visit.stay is not None:
                self._fresh.discard(visit)
                self._staying.add(visit)
                self._look_at(visit, visit.stay, now)
            else:
                visit.stay = Stay(now)
        busy = True
        if now >= self._next_step:
            self._next_step = now + STEP_S
            for visit in list(self._staying):
                if visit.stay is not None:
                    self._look_at(visit, visit.stay, now)
            busy = sum(chore(now) for chore in self._chores) > 0
        self._timer, self._hurried = None, False
        if self._fresh:
            self._set_timer(TURN_S)
        elif self._staying or busy:
            self._set_timer(STEP_S)

    def _look_at(self, visit: Visit, stay: Stay, now: float) -> None:
        """What is due for a visit that stays."""
        limits = visit.limits
        if stay.writes != visit.writes:
            stay.writes, stay.alive_at = visit.writes, now
        silence = now - stay.alive_at
        if visit.ended or visit.gone:
            return
        if visit.until and now >= visit.until:  # RS-07
            visit.leave("the token has expired; come back with a new one", told=True)
        elif visit.reading:
            age = now - stay.since
            least = limits.min_body_bytes_per_s * (age - BODY_GRACE_S)
            if age > limits.body_timeout_s or visit.received < least:
                visit.leave("the body did not arrive in time", told=True)
        elif visit.writing:
            if silence > limits.write_timeout_s:
                visit.leave("the client does not read")
        else:
            if visit.line is not None:
                visit.line.visit = visit
                if visit.line.lost:
                    visit.leave(CLIENT_GONE)
            elif visit.watcher is None:
                visit.watcher = asyncio.get_running_loop().create_task(visit.watch())
            if silence > limits.keep_alive_interval_s and visit.answers.events:
                stay.alive_at = now
                self._keep_alive(visit)

    def _keep_alive(self, visit: Visit) -> None:
        if visit.way is not None and not visit.streaming:
            visit.way.commit()
            return
        task = asyncio.get_running_loop().create_task(visit.keep_alive())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
