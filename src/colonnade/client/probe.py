"""Revision negotiation of a client: probe with `server/discover`, fall back to `initialize`.

A generator without I/O: it yields what to try, is sent the outcome, and returns an opening or
raises the error for the user.

Rules: no I/O, no clock. A response about the connection and not from the server (401, 503, a
network error) decides nothing (D13). The revisions that a server names are checked, never assumed
from the fact that it responded (D11). The cache saves a probe, and gives way to evidence.
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

# HTTP statuses that say nothing about the revision of the server (D13).
UNDECIDED_STATUSES = frozenset({401, 403, 407, 408, 425, 429})


class Era(Enum):
    """What the response to a probe proves."""

    MODERN = "no handshake: each request has the revision"
    LEGACY = "handshake with initialize"
    UNDECIDED = "unknown, try again later"


class Verdict(Struct, frozen=True):
    """The era of a server, and the versions that it named, if any."""

    era: Era
    supported: tuple[str, ...] = ()


def judge(
    outcome: ResultResponse | ErrorResponse | None,
    status: int | None = None,
    method: str = "server/discover",
) -> Verdict:
    """What the response to a probe proves (D12, D13). None: a timeout, or no JSON-RPC body."""
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


# Servers whose era is cached in one process; the oldest entry is removed.
MAX_REMEMBERED = 1024

UNDECIDED = Verdict(Era.UNDECIDED)
LEGACY = Verdict(Era.LEGACY)


class Discover(Struct, frozen=True):
    """Send `server/discover` in this revision, with a short timeout; `patient` with the full one,
    if nothing else is left to try."""

    revision: Revision
    patient: bool


class Initialize(Struct, frozen=True):
    """Send `initialize` with this revision, with `legacy_sse` over the HTTP+SSE transport."""

    revision: Revision
    legacy_sse: bool = False


Attempt: TypeAlias = Discover | Initialize
Outcome: TypeAlias = Raw | ColonnadeError


class Opening(Struct, frozen=True):
    """The result of a negotiation: the revision, and the `initialize` or `discover` result.

    Not `sure` if the probe timed out: the server may have ignored it, or have been too slow.
    """

    revision: Revision
    result: t.InitializeResult | t.DiscoverResult
    legacy_sse: bool = False
    sure: bool = True


class KnownServer(Struct, frozen=True):
    """A cached negotiation. One that is not `sure` is probed once more, and trusted if the outcome
    is the same."""

    handshake: bool
    legacy_sse: bool = False
    sure: bool = True


class ProbeOptions(Struct, frozen=True):
    """What the transport supports: restarting the server, the HTTP+SSE transport."""

    restarts: bool = False
    legacy_sse: bool = False


Negotiation: TypeAlias = Generator[Attempt, Outcome, Opening]


def negotiate(
    accepts: Revisions, options: ProbeOptions, known: KnownServer | None = None
) -> Negotiation:
    """Negotiate the newest common revision. Raises `ColonnadeError` if there is none."""
    if known is not None and known.handshake and known.sure and accepts.handshakes:
        outcome = yield Initialize(
            accepts.handshakes[0], legacy_sse=known.legacy_sse and options.legacy_sse
        )
        if isinstance(outcome, Raw):
            return _agreed(outcome, accepts, known.legacy_sse)
        if _judge_outcome(outcome, options) is UNDECIDED or isinstance(outcome, TimedOut):
            raise outcome
    if accepts.enveloped:
        return (yield from _probe(accepts, options))
    return (yield from _fall_back(accepts, options))


def _probe(accepts: Revisions, options: ProbeOptions) -> Negotiation:
    """R0844, R0932, R0951: `server/discover` first, and only a modern response counts."""
    newest = accepts.enveloped[0]
    outcome = yield Discover(newest, patient=not accepts.handshakes)
    verdict = _judge_outcome(outcome, options)
    if verdict.era is Era.MODERN:
        return (yield from _modern(accepts, options, newest, outcome, verdict))
    if verdict.era is Era.UNDECIDED or not accepts.handshakes:
        raise _no_common_revision(outcome, accepts)
    silent = isinstance(outcome, TimedOut)
    try:
        opening = yield from _fall_back(accepts, options)
        return replace(opening, sure=not silent)
    except ConnectionLost as lost:
        if not silent or not options.restarts or lost.status is not None:
            raise
        # D13: a server on Python `mcp` 1.0 to 1.8 stops reading at an unknown method, stays alive,
        # and exits at the next message. The next process gets `initialize` as its first message.
        # If that succeeds, it is certain that this server must not be probed.
        return (yield from _fall_back(accepts, options))
    except RemoteError as refused:
        if not silent:
            raise
        # It may have been starting still, and support no handshake.
        late = yield Discover(newest, patient=True)
        verdict = _judge_outcome(late, options)
        if verdict.era is not Era.MODERN:
            raise refused from None
        return (yield from _modern(accepts, options, newest, late, verdict))


def _modern(
    accepts: Revisions, options: ProbeOptions, tried: Revision, outcome: Outcome, verdict: Verdict
) -> Negotiation:
    """Use a revision that the modern server named; there is no fallback (D12)."""
    if isinstance(outcome, ColonnadeError) and not verdict.supported:
        raise outcome
    revision = choose(verdict.supported, accepts)
    if revision.handshake:  # D11
        greeted = yield Initialize(revision)
        if isinstance(greeted, ColonnadeError):
            raise greeted
        return _agreed(greeted, accepts, False)
    if revision is not tried or isinstance(outcome, ColonnadeError):
        # Once, also if it has just refused this one: it may have been updated meanwhile.
        outcome = yield Discover(revision, patient=True)
        again = _judge_outcome(outcome, options)
        if isinstance(outcome, ColonnadeError) and not again.supported:
            raise outcome
        choose(again.supported, Revisions([revision]))
    if isinstance(outcome, ColonnadeError):
        raise RemoteProtocolError(f"it refuses {revision.date}, but lists it as supported")
    return Opening(revision, decode_as(t.DiscoverResult, outcome))


def _fall_back(accepts: Revisions, options: ProbeOptions) -> Negotiation:
    """`initialize`, and if even that is unknown, the HTTP+SSE transport."""
    revision = accepts.handshakes[0]
    outcome = yield Initialize(revision)
    if isinstance(outcome, Raw):
        return _agreed(outcome, accepts, False)
    if options.legacy_sse and _rejects_post(outcome):
        legacy_sse = yield Initialize(revision, legacy_sse=True)
        if isinstance(legacy_sse, Raw):
            return _agreed(legacy_sse, accepts, True)
        if isinstance(legacy_sse, AuthError):  # it exists, and requires authentication
            raise legacy_sse
    raise outcome


def _agreed(answer: Raw, accepts: Revisions, legacy_sse: bool) -> Opening:
    result = decode_as(t.InitializeResult, answer)
    revision = accepts.get(result.protocol_version)
    assert revision is not None, "the link has agreed to it (D34)"
    return Opening(revision, result, legacy_sse)


def _rejects_post(error: ColonnadeError) -> bool:
    """D13: any 4xx about the request; 2025-03-26 says any, later revisions name three."""
    status = error.status
    if status is None or not 400 <= status < 500 or status in UNDECIDED_STATUSES:
        return False
    return not (
        isinstance(error, RemoteError) and _judge_outcome(error, ProbeOptions()).era is Era.MODERN
    )


def _judge_outcome(outcome: Outcome, options: ProbeOptions) -> Verdict:
    """What the response to a probe proves, or the error instead of one."""
    if isinstance(outcome, Raw):
        return judge(ResultResponse(0, outcome))
    if isinstance(outcome, RemoteError):
        data = Raw(encode(outcome.data)) if outcome.data is not None else NOTHING
        failure = ErrorResponse(None, outcome.code, outcome.message, data)
        verdict = judge(failure, outcome.status)
    elif isinstance(outcome, AuthError | CannotConnect | LocalProtocolError):
        return UNDECIDED
    elif isinstance(outcome, ConnectionLost) and outcome.status is None:
        # D13: some servers exit at the first message that is not `initialize`.
        return LEGACY if options.restarts else UNDECIDED
    else:
        verdict = judge(None, outcome.status)
    return UNDECIDED if verdict.era is Era.UNDECIDED else verdict


def _no_common_revision(outcome: Outcome, accepts: Revisions) -> ColonnadeError:
    """The error if no older revision may be tried."""
    unknown = NEWEST.codes[FaultKind.METHOD_NOT_FOUND], NEWEST.codes[FaultKind.INVALID_PARAMS]
    dates = ", ".join(accepts.dates)
    if isinstance(outcome, Raw):
        return RemoteProtocolError(
            f"its server/discover result is invalid, so it does not support {dates}; "
            "connect without revision= to allow older revisions"
        )
    if isinstance(outcome, RemoteError) and outcome.code in unknown and not accepts.handshakes:
        return RemoteProtocolError(
            f"it has no server/discover, so it does not support {dates}; "
            "connect without revision= to allow older revisions"
        )
    return outcome


# ---------------------------------------------------------------- cache


class EraCache:
    """Negotiation outcomes by server, for the lifetime of the process (R0930)."""

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._known: dict[Hashable, KnownServer] = {}

    def get(self, key: Hashable | None) -> KnownServer | None:
        """The cached outcome of a server; None without a key."""
        return self._known.get(key) if key is not None else None

    def put(self, key: Hashable | None, known: KnownServer) -> None:
        """Cache the outcome of a server."""
        if key is None:
            return
        self._known.pop(key, None)
        while len(self._known) >= self._most:
            self._known.pop(next(iter(self._known)))
        self._known[key] = known


ERA_CACHE = EraCache()
