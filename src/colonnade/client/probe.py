"""Which revision a server speaks: what to try next, and what each answer proves.

A generator that does nothing itself: it says what to try, is told what came of it, and ends with
an opening or with the error that a person should see.

Rules: no I/O, no clock. What was answered about the way, not by the server (401, 503, a broken
network), decides nothing (D13). What a server says that it speaks is checked, never assumed from
the fact that it answered (D11). What is remembered saves a question, and is given up for proof.
"""

from collections.abc import Generator, Hashable
from enum import Enum
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from colonnade.errors import (
    AuthError,
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.jsonrpc import NOTHING, ErrorResponse, ResultResponse, encode
from colonnade.protocol.negotiation import choose
from colonnade.protocol.revision import NEWEST, Revision, Revisions
from colonnade.protocol.types import DiscoverResult, UnsupportedProtocolVersionData

# What an HTTP answer says about the way, not about the server at its end (D13).
UNDECIDED_STATUSES = frozenset({401, 403, 407, 408, 425, 429})


class Era(Enum):
    """What the answer to a probe proves."""

    MODERN = "each request says it all"
    LEGACY = "begin with initialize"
    UNDECIDED = "ask again later"


class Verdict(Struct, frozen=True):
    """The era of a server, and the versions that it named, if it did."""

    era: Era
    supported: tuple[str, ...] = ()


def judge(
    outcome: ResultResponse | ErrorResponse | None,
    status: int | None = None,
    method: str = "server/discover",
) -> Verdict:
    """What the answer to a probe proves (D12, D13). No outcome: silence, or no JSON-RPC body."""
    if isinstance(outcome, ResultResponse):
        return _judge_reply(outcome)
    if isinstance(outcome, ErrorResponse):
        verdict = _judge_failure(outcome, status, method)
        if verdict.era is Era.MODERN:
            return verdict
    if status is not None and (status in UNDECIDED_STATUSES or status >= 500):
        return Verdict(Era.UNDECIDED)
    return LEGACY


def _judge_reply(reply: ResultResponse) -> Verdict:
    try:
        found = decode_as(DiscoverResult, reply.result)
    except Fault:
        return LEGACY
    return Verdict(Era.MODERN, tuple(found.supported_versions))


def _judge_failure(failure: ErrorResponse, status: int | None, method: str) -> Verdict:
    codes = NEWEST.codes
    try:
        if failure.code == codes[FaultKind.VERSION_UNSUPPORTED]:
            data = decode_as(UnsupportedProtocolVersionData, failure.data)
            return Verdict(Era.MODERN, tuple(data.supported))
        if failure.code == codes[FaultKind.CAPABILITY_MISSING]:
            _required.decode(failure.data)
            return Verdict(Era.MODERN)
    except (Fault, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LEGACY
    if failure.code == codes[FaultKind.HEADER_MISMATCH]:
        return Verdict(Era.MODERN)
    unknown = failure.code == codes[FaultKind.METHOD_NOT_FOUND]
    if unknown and status == 404 and method != "server/discover":
        return Verdict(Era.MODERN)
    return LEGACY


class _Required(Struct):
    required: dict[str, Any] = msgspec.field(name="requiredCapabilities")


_required = msgspec.json.Decoder(_Required)


# Servers whose era is remembered in one process; the one used longest ago makes room.
MAX_REMEMBERED = 1024

UNDECIDED = Verdict(Era.UNDECIDED)
LEGACY = Verdict(Era.LEGACY)


class Discover(Struct, frozen=True):
    """Ask `server/discover` in this revision. Where something else is left to try, the wait for
    it is short; `patient` is where nothing is."""

    revision: Revision
    patient: bool


class Greet(Struct, frozen=True):
    """Send `initialize` and ask for this revision, `older` by the transport of the first one."""

    revision: Revision
    older: bool = False


Attempt: TypeAlias = Discover | Greet
Outcome: TypeAlias = Raw | ColonnadeError


class Opening(Struct, frozen=True):
    """How a conversation began: in which revision, and what the server said of itself.

    It is not `sure` that there is no newer one where the probe was not answered in time: a server
    may have ignored it, or have been too slow that day.
    """

    revision: Revision
    result: t.InitializeResult | t.DiscoverResult
    older: bool = False
    sure: bool = True


class Known(Struct, frozen=True):
    """What is remembered of a server: how it wants to be spoken to. What is not `sure` is asked
    once more, and believed if it is so again."""

    handshake: bool
    older: bool = False
    sure: bool = True


class Means(Struct, frozen=True):
    """What can be done to reach a server: start it again, use the older transport."""

    restarts: bool = False
    older: bool = False


Finding: TypeAlias = Generator[Attempt, Outcome, Opening]


def find(accepts: Revisions, means: Means, known: Known | None = None) -> Finding:
    """Find the newest revision that both sides speak. Raises `ColonnadeError` if there is none."""
    if known is not None and known.handshake and known.sure and accepts.handshakes:
        outcome = yield Greet(accepts.handshakes[0], older=known.older and means.older)
        if isinstance(outcome, Raw):
            return _agreed(outcome, accepts, known.older)
        if _judged(outcome, means) is UNDECIDED or isinstance(outcome, TimedOut):
            raise outcome
    if accepts.enveloped:
        return (yield from _probe(accepts, means))
    return (yield from _fall_back(accepts, means))


def _probe(accepts: Revisions, means: Means) -> Finding:
    """R0844, R0932, R0951: discover first, and believe only what is a modern server's answer."""
    newest = accepts.enveloped[0]
    outcome = yield Discover(newest, patient=not accepts.handshakes)
    verdict = _judged(outcome, means)
    if verdict.era is Era.MODERN:
        return (yield from _modern(accepts, means, newest, outcome, verdict))
    if verdict.era is Era.UNDECIDED or not accepts.handshakes:
        raise _too_old(outcome, accepts)
    silent = isinstance(outcome, TimedOut)
    try:
        opening = yield from _fall_back(accepts, means)
        return replace(opening, sure=not silent)
    except ConnectionLost as lost:
        if not silent or not means.restarts or lost.status is not None:
            raise
        # D13: a server on Python `mcp` 1.0 to 1.8 stops reading at an unknown method, stays alive,
        # and exits at the next message. The next process gets `initialize` as its first message.
        # If that succeeds, it is certain that this server must not be probed.
        return (yield from _fall_back(accepts, means))
    except RemoteError as refused:
        if not silent:
            raise
        # It was still starting, perhaps, and knows no handshake; by now it is awake.
        late = yield Discover(newest, patient=True)
        verdict = _judged(late, means)
        if verdict.era is not Era.MODERN:
            raise refused from None
        return (yield from _modern(accepts, means, newest, late, verdict))


def _modern(
    accepts: Revisions, means: Means, tried: Revision, outcome: Outcome, verdict: Verdict
) -> Finding:
    """A modern server is spoken to in what it named, and is not fallen back from (D12)."""
    if isinstance(outcome, ColonnadeError) and not verdict.supported:
        raise outcome
    revision = choose(verdict.supported, accepts)
    if revision.handshake:  # D11
        greeted = yield Greet(revision)
        if isinstance(greeted, ColonnadeError):
            raise greeted
        return _agreed(greeted, accepts, False)
    if revision is not tried or isinstance(outcome, ColonnadeError):
        # Once, and also where it has just refused this one: it may have learned of it meanwhile.
        outcome = yield Discover(revision, patient=True)
        again = _judged(outcome, means)
        if isinstance(outcome, ColonnadeError) and not again.supported:
            raise outcome
        choose(again.supported, Revisions([revision]))
    if isinstance(outcome, ColonnadeError):
        raise RemoteProtocolError(f"it refuses {revision.date}, and says that it speaks it")
    return Opening(revision, decode_as(t.DiscoverResult, outcome))


def _fall_back(accepts: Revisions, means: Means) -> Finding:
    """A handshake, and where even that is unknown the transport of the first revision."""
    revision = accepts.handshakes[0]
    outcome = yield Greet(revision)
    if isinstance(outcome, Raw):
        return _agreed(outcome, accepts, False)
    if means.older and _knows_no_post(outcome):
        older = yield Greet(revision, older=True)
        if isinstance(older, Raw):
            return _agreed(older, accepts, True)
        if isinstance(older, AuthError):  # it is there, and wants to know who comes
            raise older
    raise outcome


def _agreed(answer: Raw, accepts: Revisions, older: bool) -> Opening:
    result = decode_as(t.InitializeResult, answer)
    revision = accepts.get(result.protocol_version)
    assert revision is not None, "the link has agreed to it (D34)"
    return Opening(revision, result, older)


def _knows_no_post(error: ColonnadeError) -> bool:
    """D13: any 4xx that speaks of the request; 2025-03-26 says any, later pages name three."""
    status = error.status
    if status is None or not 400 <= status < 500 or status in UNDECIDED_STATUSES:
        return False
    return not (isinstance(error, RemoteError) and _judged(error, Means()).era is Era.MODERN)


def _judged(outcome: Outcome, means: Means) -> Verdict:
    """What the answer to a probe proves, or what came instead of one."""
    if isinstance(outcome, Raw):
        return judge(ResultResponse(0, outcome))
    if isinstance(outcome, RemoteError):
        data = Raw(encode(outcome.data)) if outcome.data is not None else NOTHING
        failure = ErrorResponse(None, outcome.code, outcome.message, data)
        verdict = judge(failure, outcome.status)
    elif isinstance(outcome, AuthError | CannotConnect | LocalProtocolError):
        return UNDECIDED
    elif isinstance(outcome, ConnectionLost) and outcome.status is None:
        # D13: some children exit at the first word that is not initialize.
        return LEGACY if means.restarts else UNDECIDED
    else:
        verdict = judge(None, outcome.status)
    return UNDECIDED if verdict.era is Era.UNDECIDED else verdict


def _too_old(outcome: Outcome, accepts: Revisions) -> ColonnadeError:
    """What to raise where nothing older may be tried."""
    unknown = NEWEST.codes[FaultKind.METHOD_NOT_FOUND], NEWEST.codes[FaultKind.INVALID_PARAMS]
    dates = ", ".join(accepts.dates)
    if isinstance(outcome, Raw):
        return RemoteProtocolError(
            f"it gave server/discover an answer that is none, so that it does not speak {dates}; "
            "connect without revision= to let an older one be tried"
        )
    if isinstance(outcome, RemoteError) and outcome.code in unknown and not accepts.handshakes:
        return RemoteProtocolError(
            f"it knows no server/discover, so that it does not speak {dates}; "
            "connect without revision= to let an older one be tried"
        )
    return outcome


# ---------------------------------------------------------------- memory


class Memory:
    """How servers wanted to be spoken to, for as long as this process lives (R0930)."""

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._known: dict[Hashable, Known] = {}

    def recall(self, key: Hashable | None) -> Known | None:
        """What is remembered of a server; None for what has no name to be remembered under."""
        return self._known.get(key) if key is not None else None

    def keep(self, key: Hashable | None, known: Known) -> None:
        """Remember this of it from now on."""
        if key is None:
            return
        self._known.pop(key, None)
        while len(self._known) >= self._most:
            self._known.pop(next(iter(self._known)))
        self._known[key] = known


MEMORY = Memory()
