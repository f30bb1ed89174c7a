"""Test a server in memory, without a process and without a socket.

    from colonnade.testing import Clock, connect, every_revision

    @every_revision(since="2025-06-18")         # pytest runs it once in each of the three
    async def test_booking(revision: str) -> None:
        async with connect(server, revision, answers=[{"seat": "12A"}]) as client:
            result = await client.call_tool("book", {"flight": "SK1"})
            assert result.text == "12A on SK1"
            assert client.asked[0].message == "Which seat on SK1?"

- `connect` is a client of a server in memory, in the newest revision of the server or a chosen one.
  It shows exceptions: `book failed (id 4f2a91): KeyError('SK1')`.
- `answers` are the responses to the server's elicitation and sampling requests, in their order, or
  by a part of the message: `{"Which seat": "12A"}`. A request without an answer fails the test, and
  so does an answer that was not used.
- `client.record` has every message, both ways; printed, it is a transcript.
- `Clock` stands still until `await clock.advance(60)`: timeouts, handles and sealed states expire
  without a wait.

Rules: nothing is patched in other modules, and pytest is imported only by `every_revision`. What a
test changes of a server or a loop is restored when the test is over.
"""

import asyncio
import contextlib
import functools
import inspect
import threading
import time
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, cast, overload

import msgspec

from colonnade.client.client import Client, OnLog, OnProgress
from colonnade.client.input_callbacks import GivenRoots, InputCallbacks, OnElicit, OnSample
from colonnade.errors import Declined, InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import AnyInputResponse, InputRequest, InputRequestParams
from colonnade.protocol.link.link import TIMEOUT_S
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, Revision, Revisions
from colonnade.server.hints import with_hints
from colonnade.server.server import Server
from colonnade.transport.memory import connected_pair, serve_end

__all__ = ["Clock", "MemoryClient", "Record", "Said", "connect", "every_revision"]

# A test that takes longer hangs: nothing here waits for anything outside.
TEST_S = 60.0
# A record keeps the last messages.
MAX_RECORDED = 100_000
# Iterations of the loop until what a timer has woken is done: through a handler, both ends of a
# connection and back.
SETTLING_TURNS = 32
# Timers that one `advance` runs; more are an endless loop.
MAX_ALARMS = 10_000
# How much of an unexpected request, or an unused answer, is shown.
MAX_SHOWN = 200

INFO = t.Implementation(name="colonnade.testing", version="1")

# Answers in order, or by a part of the message: what `on_elicit` and `on_sample` may return, an
# exception to raise, such as `Declined`, or a function that is called with the request.
Script: TypeAlias = Sequence[Any] | Mapping[str, Any]
Sender: TypeAlias = Literal["client", "server"]
Test: TypeAlias = Callable[..., Coroutine[Any, Any, None] | None]


# ---------------------------------------------------------------- the transcript


class Said(NamedTuple):
    """One message: its sender, and its JSON."""

    by: Sender
    message: Any


class Record:
    """Every message of a connection in order. Printed, it is a transcript."""

    def __init__(self) -> None:
        self._frames: deque[tuple[Side, bytes]] = deque(maxlen=MAX_RECORDED)

    def add(self, side: Side, frame: bytes) -> None:
        """Add a message."""
        self._frames.append((side, frame))

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Said]:
        for side, frame in tuple(self._frames):
            yield Said(side.value, msgspec.json.decode(frame))

    def said(self, by: Sender | None = None, method: str | None = None) -> list[Any]:
        """The messages of one side, or of both; those of one method, or all."""
        return [
            message
            for sender, message in self
            if by in (None, sender) and (method is None or _method(message) == method)
        ]

    def __str__(self) -> str:
        return "\n".join(f"{side.value}: {frame.decode()}" for side, frame in self._frames)


def _method(message: Any) -> Any:
    return cast("dict[str, Any]", message).get("method") if isinstance(message, dict) else None


# ---------------------------------------------------------------- scripted answers


class Rehearsed(InputCallbacks):
    """Answers from a script, or from callbacks whose exceptions fail the test."""

    def __init__(
        self,
        script: Script | None,
        on_elicit: OnElicit | None,
        on_sample: OnSample | None,
        roots: GivenRoots | None,
    ) -> None:
        scripted = self._next if script is not None else None
        super().__init__(
            on_elicit=on_elicit or scripted,
            on_sample=on_sample or scripted,
            roots=roots,
            model="colonnade.testing",
        )
        self._named = dict(script) if isinstance(script, Mapping) else None
        self._ordered = deque(() if script is None or self._named is not None else script)
        self._used: set[str] = set()
        self.asked: list[InputRequestParams] = []
        self.failure: Exception | None = None

    async def respond(self, request: InputRequest) -> AnyInputResponse:
        self.asked.append(request.params)
        return await super().respond(request)

    def log_failure(self, method: str, error: Exception) -> None:
        self.failure = self.failure or error

    def _next(self, asked: t.ElicitRequestParams | t.CreateMessageRequestParams) -> Any:
        """The scripted answer to a request."""
        if self._named is not None:
            name = next((name for name in self._named if name in words_of(asked)), None)
            if name is None:
                self._refuse(asked, f"no scripted answer matches it: {list(self._named)}")
            self._used.add(name)
            return _answered(self._named[name], asked)
        if not self._ordered:
            number = len(self.asked) - 1
            self._refuse(asked, f"all scripted answers are used up ({number} requests before)")
        return _answered(self._ordered.popleft(), asked)

    def _refuse(self, asked: InputRequestParams, why: str) -> NoReturn:
        message = shown(words_of(asked))
        self.failure = AssertionError(f"unexpected request of the server, {message}: {why}")
        raise self.failure

    def check_used(self) -> None:
        """Raise `AssertionError` for unused answers."""
        left = list(self._ordered)
        if self._named is not None:
            left = [name for name in self._named if name not in self._used]
        if left:
            listed = ", ".join(shown(one) for one in left)
            raise AssertionError(
                f"{len(left)} scripted answers were not used: {listed}; "
                f"the server sent {len(self.asked)} requests"
            )


def words_of(asked: InputRequestParams) -> str:
    """The message of a request: that to the user, or the last one to the model."""
    if isinstance(asked, t.ElicitRequestParams):
        return asked.message
    if isinstance(asked, t.CreateMessageRequestParams) and asked.messages:
        content = asked.messages[-1].content
        blocks = content if isinstance(content, list) else [content]
        return "\n".join(block.text for block in blocks if isinstance(block, t.TextContent))
    return ""


def _answered(answer: Any, asked: InputRequestParams) -> Any:
    if isinstance(answer, Exception) or answer is Declined:
        raise answer
    return answer(asked) if inspect.isroutine(answer) else answer


def shown(value: Any) -> str:
    """The repr of a value, shortened."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


# ---------------------------------------------------------------- the clock


class Clock:
    """A clock that stands still until `await clock.advance(60)`.

    `connect(server, clock=clock)` installs it, and so does `with clock:` inside a loop. From then
    on it is the clock of this loop: of timeouts, `asyncio.sleep`, what is kept in memory, and of
    states that the server seals. Objects with a clock of their own, such as
    `SqliteStore(path, clock=clock.time)`, can be given `time` (of the day) or `monotonic`. It is
    the clock of earlier timers, too: a timeout around the test itself belongs to pytest.
    """

    def __init__(self) -> None:
        self._now = self._began = time.monotonic()
        self._day = time.time()
        self._entered = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarms: set[float] = set()
        self._servers: dict[Server, Callable[[], float]] = {}
        self._flows = 0
        self._since = 0.0

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return self._now + (time.monotonic() - self._since if self._flows else 0.0)

    def time(self) -> float:
        """Seconds since 1970."""
        return self._day + self.monotonic() - self._began

    async def advance(self, seconds: float) -> None:
        """Let time pass: every timer on the way runs at its own time, with what it wakes.

        Threads are not waited for.
        """
        if self._loop is None:
            raise LocalProtocolError("this clock is not in use: connect(server, clock=clock)")
        if seconds < 0:
            raise InvalidArgument("advance() needs seconds from 0", argument="seconds")
        await self._settle()
        end = self.monotonic() + seconds
        for _ in range(MAX_ALARMS):
            due = min((alarm for alarm in self._alarms if alarm <= end), default=None)
            if due is None:
                break
            self._alarms.discard(due)
            self._now = max(self._now, due)
            await self._settle()
        else:
            raise LocalProtocolError(f"more than {MAX_ALARMS} timers within {seconds:g} s")
        self._now = max(self._now, end)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)

    def __enter__(self) -> "Clock":
        loop = asyncio.get_running_loop()
        if self._loop is None:
            kind = type(loop)
            if not isinstance(loop, asyncio.BaseEventLoop):
                name = f"{kind.__module__}.{kind.__name__}"
                raise LocalProtocolError(f"a Clock needs a loop of asyncio's own; this is {name}")
            if "time" in vars(loop):
                raise LocalProtocolError("this loop already has a clock; share that one")
            self._now = max(self._now, loop.time())
            self._loop = loop
            # On this one loop, not on its class: the rest of the process keeps its time.
            vars(loop).update(time=self.monotonic, call_at=functools.partial(self._call_at, loop))
        elif loop is not self._loop:
            raise LocalProtocolError("this clock is in use by another loop")
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._entered -= 1
        if self._entered or self._loop is None:
            return
        del vars(self._loop)["time"], vars(self._loop)["call_at"]
        self._loop = None
        self._alarms.clear()
        for server, before in self._servers.items():
            server.clock = before
        self._servers.clear()

    def _call_at(
        self,
        loop: asyncio.BaseEventLoop,
        when: float,
        callback: Any,
        *args: Any,
        context: Any = None,
    ) -> asyncio.TimerHandle:
        self._alarms.add(when)
        return type(loop).call_at(loop, when, callback, *args, context=context)

    def rule(self, server: Server) -> None:
        """Be the time of day of a server, and of those mounted in it, until this clock is left."""
        for one in (server, *server.mounted):
            if one not in self._servers:
                self._servers[one] = one.clock
                one.clock = self.time

    @contextlib.contextmanager
    def flowing(self) -> Generator[None]:
        """Let time pass by itself: for the end of a test, which waits for clean-up."""
        if not self._flows:
            self._since = time.monotonic()
        self._flows += 1
        try:
            yield
        finally:
            now = self.monotonic()
            self._flows -= 1
            if not self._flows:
                self._now = now


# ---------------------------------------------------------------- a client in memory


class MemoryClient(Client):
    """A client of a server in the same process. `record` has all messages, `asked` the requests of
    the server."""

    record: Record
    asked: Sequence[Any]


@with_hints
@contextlib.asynccontextmanager
async def connect(
    server: Server,
    revision: str | None = None,
    *,
    answers: Script | None = None,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    roots: GivenRoots | None = None,
    on_log: OnLog | None = None,
    on_progress: OnProgress | None = None,
    timeout_s: float = TIMEOUT_S,
    extensions: Mapping[str, Mapping[str, Any]] | None = None,
    tasks: bool = True,
    principal: str = "",
    scopes: Iterable[str] | None = None,
    debug: bool = True,
    clock: Clock | None = None,
) -> AsyncGenerator[MemoryClient]:
    """A client of this server, which is started unless it is running.

    The client declares the capabilities that there are `answers` or callbacks for, these
    `extensions`, and tasks unless `tasks=False`. Its requests have this `principal` and these
    `scopes`. With `debug=False` exceptions are hidden as in
    production.

    >>> async with connect(server, "2025-06-18", answers=[{"seat": "12A"}]) as client:
    ...     assert (await client.call_tool("book", {"flight": "SK1"})).data == "12A on SK1"
    """
    spoken = server.accepts[-1] if revision is None else Revisions.of(revision)[0]
    if spoken not in server.accepts:
        dates = ", ".join(server.accepts.dates)
        raise InvalidArgument(
            f"{server!r} does not speak {spoken.date}; it speaks {dates}", argument="revision"
        )
    record, rehearsed = Record(), Rehearsed(answers, on_elicit, on_sample, roots)
    near, far = connected_pair(record.add)
    client = MemoryClient(
        near.open_conversation,
        rehearsed,
        info=INFO,
        accepts=Revisions([spoken]),
        timeout_s=timeout_s,
        on_log=on_log,
        on_progress=on_progress,
        extensions=extensions,
        tasks=tasks,
    )
    client.record, client.asked = record, rehearsed.asked
    with clock or contextlib.nullcontext():
        if clock is not None:
            clock.rule(server)
        await server.start()
        try:
            serve_end(far, server, principal=principal, scopes=scopes, debug=debug)
            async with _opened(client, spoken, clock):
                with _judged(rehearsed):
                    yield client
        finally:
            with _flowing(clock):
                await server.stop()


@contextlib.asynccontextmanager
async def _opened(client: Client, revision: Revision, clock: Clock | None) -> AsyncGenerator[None]:
    try:
        await client.open(revision)
        yield
    finally:
        with _flowing(clock):
            await client.close()


def _flowing(clock: Clock | None) -> contextlib.AbstractContextManager[None]:
    return clock.flowing() if clock is not None else contextlib.nullcontext()


@contextlib.contextmanager
def _judged(rehearsed: Rehearsed) -> Generator[None]:
    """Fail the test for what went wrong with a request of the server."""
    try:
        yield
    except Exception as error:
        if rehearsed.failure is None or rehearsed.failure is error:
            raise
        raise rehearsed.failure from error
    if rehearsed.failure is not None:
        raise rehearsed.failure
    rehearsed.check_used()


# ---------------------------------------------------------------- pytest


@overload
def every_revision(test: Test, /) -> Callable[..., None]: ...
@overload
def every_revision(
    *, since: str | None = None, until: str | None = None
) -> Callable[[Test], Callable[..., None]]: ...
def every_revision(
    test: Test | None = None, /, *, since: str | None = None, until: str | None = None
) -> Any:
    """Run a pytest test once for each revision, which is the parameter `revision`.

    `@every_revision(since="2025-06-18")` leaves out older ones, `until` newer ones. An `async` test
    runs in an event loop of its own, without a plugin; one that hangs fails. Fixtures and other
    parameters work as usual.
    """
    for date in filter(None, (since, until)):
        Revisions.of(date)  # raises for an unknown revision
    dates = [one.date for one in ALL if one.knows(since, until)]

    def made(test: Test) -> Callable[..., None]:
        import pytest

        if "revision" not in inspect.signature(test).parameters:
            raise InvalidArgumentType(
                f"{test.__name__} has no parameter `revision`, and would run once; add it, "
                f"and pass it on: {test.__name__}(revision: str), "
                "connect(server, revision)"
            )
        return pytest.mark.parametrize("revision", dates)(played(test))

    return made if test is None else made(test)


def played(test: Test) -> Callable[..., None]:
    """A test as a function that runs to its end, in a loop of its own if it is async."""

    @functools.wraps(test)
    def play(*args: Any, **kwargs: Any) -> None:
        made = test(*args, **kwargs)
        if made is not None:
            asyncio.run(_bounded(made, test.__name__))

    return play


async def _bounded(test: Awaitable[None], name: str) -> None:
    # By a thread: the loop's own timers may depend on a clock that stands still.
    loop, late = asyncio.get_running_loop(), threading.Event()
    task = cast("asyncio.Task[Any]", asyncio.current_task())

    def end() -> None:
        late.set()
        with contextlib.suppress(RuntimeError):  # the loop was closed at this very moment
            loop.call_soon_threadsafe(task.cancel)

    timer = threading.Timer(TEST_S, end)
    timer.daemon = True
    timer.start()
    try:
        await test
    except asyncio.CancelledError:
        if not late.is_set():
            raise
        raise AssertionError(
            f"{name} did not end within {TEST_S:g} s; if it waits for a Clock that stands "
            "still, run the call as a task, and await clock.advance(...)"
        ) from None
    finally:
        timer.cancel()
