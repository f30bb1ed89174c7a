"""Ready-made middleware: rate and concurrency limits, timeouts, and one log record a request.

    server.add_middleware(log())       # the first is the outermost, and logs refused requests too
    server.add_middleware(rate_limit(20, at_once=8))  # per caller: calls a second, concurrent
    server.add_middleware(timeout(30))

Middleware sees the requests that reach a handler. What a transport or the protocol refuses before
(a foreign origin, an unknown method) and what it answers by itself (`ping`) does not get here.

Rules: middleware knows a request and a handler, and neither server nor transport. A refused request
changes nothing and leaves nothing behind. Counts are those of this process, unless `rate_limit` is
given a store: then replicas share them. Neither arguments nor results are ever logged.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Generator, Hashable
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import ref

from msgspec import Raw, Struct, ValidationError, field
from msgspec.json import Decoder

from colonnade.errors import (
    ConnectionLost,
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    Refused,
    ToolError,
)
from colonnade.ports import Handler, Middleware, RequestContext, Session, Store, WrappedRequest
from colonnade.protocol import types as t
from colonnade.protocol.exchange import LISTEN, Exchange
from colonnade.protocol.http.security import TOO_MANY_REQUESTS, HttpError
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.revision import InputRequests, error_code

if TYPE_CHECKING:  # loaded by limits that replicas share
    from colonnade.replicas.shared_tokens import SharedTokens

# Callers that have a bucket of their own, as many as a server keeps sessions; further ones share
# one. A bucket that is full again is dropped.
MAX_CALLERS = 10_000
# Buckets that one call checks to drop them: more than it can add, so they never pile up.
FORGET_AT_ONCE = 2
# Names come from clients; no real one is longer.
MAX_NAME_CHARACTERS = 128

Clock: TypeAlias = Callable[[], float]
Each: TypeAlias = Callable[[RequestContext], Hashable]


# ---------------------------------------------------------------- limits


def by_caller(request: RequestContext) -> Hashable:
    """Count by principal; without one by session or connection, and all others together.

    Requests without a session or a principal are not distinguished. Any client can open sessions:
    if clients are not authenticated, put `rate_limit(..., each=by_server)` around it.
    """
    principal = request.exchange.principal
    if principal:
        return principal
    session = request.session
    return ref(session) if session is not None else ""


def by_server(request: RequestContext) -> Hashable:
    """Count all callers together."""
    return ""


def _is_gone(key: Hashable) -> bool:
    return isinstance(key, ref) and cast("ref[Session]", key)() is None


class TokenBucket:
    """A token bucket: `rate` tokens a second, `burst` at the most."""

    __slots__ = ("_at", "_left")

    def __init__(self, burst: float, now: float) -> None:
        self._left = burst
        self._at = now

    def take(self, rate: float, burst: float, now: float) -> float:
        """Take one token; returns 0, or how long until there is one, and then none is taken."""
        left = self._left
        if now > self._at:
            left += (now - self._at) * rate
            if left > burst:
                left = burst
        if left < 1.0:
            return (1.0 - left) / rate
        self._left, self._at = left - 1.0, now
        return 0.0

    def is_full(self, rate: float, burst: float, now: float) -> bool:
        """Whether it has all of its tokens: a new one would be the same."""
        return self._left + (now - self._at) * rate >= burst


class _CallerBucket(TokenBucket):
    """The bucket of one caller, and how many of its calls are running."""

    __slots__ = ("running",)

    def __init__(self, burst: float, now: float) -> None:
        super().__init__(burst, now)
        self.running: int = 0


class _Callers:
    """The buckets of recent callers; full ones are dropped."""

    def __init__(self, rate: float, burst: float, places: int) -> None:
        self.rate = rate
        self.burst = burst
        self._places = places
        # The least recently used come first.
        self._buckets: OrderedDict[Hashable, _CallerBucket] = OrderedDict()
        self._others: _CallerBucket | None = None

    def __len__(self) -> int:
        return len(self._buckets)

    def find(self, key: Hashable, now: float) -> _CallerBucket:
        """The bucket of a caller: its own, or the shared one if there are too many."""
        bucket = self._buckets.get(key)
        if bucket is not None and len(self._buckets) == 1:
            return bucket  # the only caller; its bucket need not be dropped and made again
        self._forget(now)
        bucket = self._buckets.get(key)
        if bucket is not None:
            self._buckets.move_to_end(key)
            return bucket
        if len(self._buckets) < self._places:
            bucket = self._buckets[key] = _CallerBucket(self.burst, now)
            return bucket
        if self._others is None:
            self._others = _CallerBucket(self.burst, now)
        return self._others

    def leave(self, key: Hashable, bucket: _CallerBucket, now: float) -> None:
        """A call is over; a bucket that is not needed any more is dropped at once."""
        if bucket.running or self._buckets.get(key) is not bucket:
            return
        if bucket.is_full(self.rate, self.burst, now):
            del self._buckets[key]

    def _forget(self, now: float) -> None:
        for _ in range(min(FORGET_AT_ONCE, len(self._buckets))):
            key = next(iter(self._buckets))
            bucket = self._buckets[key]
            if bucket.running:
                self._buckets.move_to_end(key)  # or it would hide those behind it
            elif _is_gone(key) or bucket.is_full(self.rate, self.burst, now):
                del self._buckets[key]
            else:
                return


def rate_limit(
    per_s: float | None = None,
    *,
    burst: int | None = None,
    at_once: int | None = None,
    methods: Collection[str] | None = None,
    each: Each = by_caller,
    places: int = MAX_CALLERS,
    store: Store | None = None,
    name: str = "",
    clock: Clock | None = None,
) -> Middleware:
    """Middleware that limits the calls a second and the concurrent calls of each caller.

    `burst` is how many calls may come at once after a pause; the default is `per_s`. `methods` are
    those that count, by default all; `subscriptions/listen` is open for hours, and counts for
    `at_once` only if it is named. A tool call is refused with an error result for the model,
    anything else with an error (429, over HTTP too); both say when to try again.

    With a `store` that replicas share, the calls a second are those of all of them together, within
    a tenth of the burst for each; without the store for a while, each admits its share. That is for
    callers with a principal, and those that are counted together; a session without a principal,
    and the concurrent calls, are counted by each replica. Limits of the same caller in one store
    need different names: `name="search"`. `clock` is a monotonic clock, and the time of the day
    with a store.
    """
    counting = _Limits(per_s, burst, at_once, places, clock or time.monotonic)
    chosen = frozenset(methods) if methods is not None else None
    tokens = counting.share(store, name, clock or time.time) if store is not None else None

    async def limited(request: RequestContext, handler: Handler) -> t.ProtocolType:
        name = request.exchange.method.name
        if chosen is not None and name not in chosen:
            return await handler(request)
        holds = at_once is not None and (name != LISTEN or chosen is not None)
        if not holds and per_s is None:
            return await handler(request)
        key = each(request)
        shared = tokens if isinstance(key, str) else None
        bucket = counting.enter(key, holds=holds, rated=shared is None)
        if isinstance(bucket, _Wait):
            return _refused(request.exchange, bucket)
        try:
            if shared is not None and (wait_s := await shared.take(cast("str", key))):
                return _refused(request.exchange, counting.too_many(wait_s))
            return await handler(request)
        finally:
            counting.leave(key, bucket, holds=holds)

    return limited


class _Wait(Struct, frozen=True):
    """Why a call is refused, and after how many seconds to try again."""

    message: str
    seconds: float


class _Limits:
    """The counts of one `rate_limit` middleware."""

    def __init__(
        self,
        per_s: float | None,
        burst: int | None,
        at_once: int | None,
        places: int,
        clock: Clock,
    ) -> None:
        if per_s is None and at_once is None:
            raise InvalidArgument("rate_limit() needs per_s=, at_once= or both")
        for name, value in (("per_s", per_s), ("burst", burst), ("at_once", at_once)):
            if value is not None and not isinstance(value, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgumentType(
                    f"{name} is {value!r}; give a number, as in rate_limit(20, at_once=8)",
                    argument=name,
                )
        if per_s is not None and not (isfinite(per_s) and per_s > 0):
            raise InvalidArgument(
                f"per_s is {per_s}; give calls a second, above 0", argument="per_s"
            )
        if per_s is None and burst is not None:
            raise InvalidArgument(
                "burst is how many come at once; it needs per_s", argument="burst"
            )
        if any(count is not None and count < 1 for count in (burst, at_once, places)):
            raise InvalidArgument("burst, at_once and places are numbers of calls above 0")
        self._per_s = per_s
        self._at_once = at_once
        self._places = places
        self._clock = clock
        # Without a rate a bucket only counts running calls, and is full when there are none.
        size = self._burst = burst if burst is not None else max(1, ceil(per_s or 1))
        self._callers = _Callers(per_s or 1.0, size if per_s is not None else 0, places)

    def share(self, store: Store, name: str, clock: Clock) -> "SharedTokens | None":
        """The tokens that replicas share; None without a rate."""
        if self._per_s is None:
            return None
        from colonnade.replicas.shared_tokens import SharedTokens

        return SharedTokens(store, name, self._per_s, self._burst, clock, self._places)

    def too_many(self, wait_s: float) -> _Wait:
        """The refusal of a call beyond the rate."""
        return _Wait(f"too many calls; at most {self._per_s:g} a second", wait_s)

    def enter(self, key: Hashable, *, holds: bool, rated: bool = True) -> _CallerBucket | _Wait:
        """Admit a call, or return why not; then nothing has changed. The rate is not checked
        unless it is `rated` here."""
        callers, now = self._callers, self._clock()
        bucket = callers.find(key, now)
        if holds and self._at_once is not None and bucket.running >= self._at_once:
            message = f"{self._at_once} calls are running already; wait for one of them to finish"
            return _Wait(message, 1.0)
        if self._per_s is not None and rated:
            wait_s = bucket.take(callers.rate, callers.burst, now)
            if wait_s:
                return self.too_many(wait_s)
        bucket.running += holds
        return bucket

    def leave(self, key: Hashable, bucket: _CallerBucket, *, holds: bool) -> None:
        """An admitted call is over."""
        bucket.running -= holds
        if self._per_s is None:
            self._callers.leave(key, bucket, self._clock())


def _refused(exchange: Exchange, wait: _Wait) -> t.ProtocolType:
    """Refuse a call: with an error result for a model, else with an error."""
    if exchange.record is not None:
        exchange.record.refused = "rate_limit"
    seconds = max(1, ceil(wait.seconds))
    message = f"{wait.message}; try again in {seconds} s"
    if exchange.method.params is t.CallToolRequestParams:
        return _failed(message)
    data = {"retryAfterMs": ceil(wait.seconds * 1000)}
    headers = (("Retry-After", str(seconds)),)
    raise HttpError(TOO_MANY_REQUESTS, message, kind=FaultKind.TOO_MANY, headers=headers, data=data)


def _failed(message: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=message)], is_error=True)


# ---------------------------------------------------------------- timeouts


def timeout(seconds: float, *, methods: Collection[str] | None = None) -> Middleware:
    """Middleware that cancels what takes longer. A tool call gets an error result, anything else an
    error.

    The timeout is paused while an elicitation or another request to the client is open. `methods`
    are those that it applies to, by default all; never `subscriptions/listen`.
    """
    if not (isfinite(seconds) and seconds > 0):
        raise InvalidArgument(f"timeout({seconds}): give seconds above 0", argument="seconds")
    chosen = frozenset(methods) if methods is not None else None

    async def timed(request: RequestContext, handler: Handler) -> t.ProtocolType:
        exchange = request.exchange
        name = exchange.method.name
        if name == LISTEN or (chosen is not None and name not in chosen):
            return await handler(request)
        deadline = asyncio.timeout(seconds)
        if exchange.peer.revision.input_requests is InputRequests.AS_REQUEST:
            request = _Paused(request, deadline)
        try:
            async with deadline:
                return await handler(request)
        except TimeoutError:
            if not deadline.expired():
                raise
        message = f"{_name(exchange) or name} did not finish within {seconds:g} s; try less"
        if exchange.method.params is t.CallToolRequestParams:
            return _failed(message)
        raise Fault(FaultKind.INTERNAL, message)

    return timed


class _Paused(WrappedRequest):
    """A request whose timeout is paused while a request to the client is open."""

    def __init__(self, request: RequestContext, deadline: asyncio.Timeout) -> None:
        super().__init__(request)
        self._deadline = deadline
        self._asking = 0
        self._left_s = 0.0

    async def ask(self, input_request: InputRequest) -> Raw:
        with self._paused():
            return await self._request.ask(input_request)

    @contextlib.contextmanager
    def _paused(self) -> Generator[None]:
        now = asyncio.get_running_loop().time
        when = self._deadline.when()
        if not self._asking and when is not None and not self._deadline.expired():
            self._left_s = when - now()
            self._deadline.reschedule(None)
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking and self._deadline.when() is None:
                with contextlib.suppress(RuntimeError):  # the deadline or the event loop is over
                    self._deadline.reschedule(now() + self._left_s)


# ---------------------------------------------------------------- the log


def log(
    logger: logging.Logger | str = "colonnade.requests",
    *,
    level: int = logging.INFO,
    clock: Clock = time.monotonic,
) -> Middleware:
    """Middleware that logs one record for each request: principal, method, name, duration, outcome.

    The message has them as text, and `record.request` as a dict, for JSON lines.
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger

    async def logged(request: RequestContext, handler: Handler) -> t.ProtocolType:
        if not target.isEnabledFor(level):
            return await handler(request)
        began = clock()
        outcome, fault = "crash", Fault(FaultKind.INTERNAL, "")
        try:
            result = await handler(request)
            outcome, fault = _outcome(result), None
            return result
        except Fault as error:
            outcome, fault = "fault", error
            raise
        except asyncio.CancelledError:
            outcome, fault = "cancelled", None
            raise
        except ConnectionLost:
            outcome, fault = "gone", None
            raise
        except (Refused, ToolError):  # of middleware further in; a tool call has a result then
            outcome = "refused"
            fault = None if request.method == "tools/call" else fault
            raise
        finally:
            took_ms = round((clock() - began) * 1000, 3)
            facts = _facts(request.exchange, outcome, fault, took_ms)
            target.log(level, "%s", _LogLine(facts), extra={"request": facts})

    return logged


def _outcome(result: t.ProtocolType) -> str:
    if isinstance(result, t.InputRequiredResult):
        return "asks"
    failed = isinstance(result, t.CallToolResult) and result.is_error
    return "tool error" if failed else "ok"


def _facts(exchange: Exchange, outcome: str, fault: Fault | None, took_ms: float) -> dict[str, Any]:
    """The facts of a request for the log; empty ones are left out."""
    peer = exchange.peer
    client = peer.info
    trace_id, span_id = _trace(exchange)
    facts: dict[str, Any] = {
        "method": exchange.method.name,
        "name": _name(exchange),
        "principal": exchange.principal[:MAX_NAME_CHARACTERS],
        "revision": peer.revision.date,
        "client": f"{client.name} {client.version}"[:MAX_NAME_CHARACTERS] if client else "",
        "trace": trace_id,
        "span": span_id,
        "outcome": outcome,
        "code": error_code(fault, peer.revision) if fault is not None else None,
        "ms": took_ms,
    }
    return {name: value for name, value in facts.items() if value not in ("", None)}


class _Traced(Struct):
    parent: str = field(name=t.TRACEPARENT_KEY, default="")


_traced = Decoder(_Traced)
_TRACE = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?"
)


def _trace(exchange: Exchange) -> tuple[str, str]:
    """The trace id and the span id of a request: those of its span, if telemetry records one; else
    those of the caller's span, from the W3C `traceparent` that it sent."""
    traceparent = exchange.record.traceparent if exchange.record is not None else ""
    if not traceparent:
        meta = exchange.params.meta
        if bytes(meta).find(t.TRACEPARENT_KEY.encode()) < 0:
            return "", ""
        try:
            traceparent = _traced.decode(meta).parent
        except ValidationError:
            return "", ""
    match = _TRACE.fullmatch(traceparent)
    return (match[1], match[2]) if match is not None else ("", "")


def _name(exchange: Exchange) -> str:
    """The name or URI of a request, without the parts of a URI that may be secret."""
    head = exchange.params
    if isinstance(head.name, str):
        return head.name[:MAX_NAME_CHARACTERS]
    if not isinstance(head.uri, str):
        return ""
    scheme, mark, rest = head.uri[: 4 * MAX_NAME_CHARACTERS].partition("://")
    path = (rest if mark else scheme).partition("?")[0].partition("#")[0]
    host, slash, tail = path.partition("/")
    path = host.rpartition("@")[2] + slash + tail
    return (f"{scheme}{mark}{path}" if mark else path)[:MAX_NAME_CHARACTERS]


class _LogLine:
    """The facts as one line, formatted only if the record is written."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts

    def __str__(self) -> str:
        facts = self._facts
        about = f" {facts['name']!r}" if "name" in facts else ""
        who = f" by {facts['principal']!r}" if "principal" in facts else ""
        code = f" {facts['code']}" if "code" in facts else ""
        end = f"{facts['outcome']}{code}, {facts['ms']:g} ms"
        return f"{facts['method']}{about}{who} ({facts['revision']}): {end}"
