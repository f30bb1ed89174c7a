"""What a client learns from the answer to its probe: of which era the server is.

Rules: as in `negotiation`. Only clients probe, so only they load this.
"""

from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.jsonrpc import Failure, Reply
from colonnade.protocol.reading import read
from colonnade.protocol.revision import NEWEST
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


LEGACY = Verdict(Era.LEGACY)


def judge(
    outcome: Reply | Failure | None, status: int | None = None, method: str = "server/discover"
) -> Verdict:
    """What the answer to a probe proves (D12, D13). No outcome: silence, or no JSON-RPC body."""
    if isinstance(outcome, Reply):
        return _judge_reply(outcome)
    if isinstance(outcome, Failure):
        verdict = _judge_failure(outcome, status, method)
        if verdict.era is Era.MODERN:
            return verdict
    if status is not None and (status in UNDECIDED_STATUSES or status >= 500):
        return Verdict(Era.UNDECIDED)
    return LEGACY


def _judge_reply(reply: Reply) -> Verdict:
    try:
        found = read(DiscoverResult, reply.result)
    except Fault:
        return LEGACY
    return Verdict(Era.MODERN, tuple(found.supported_versions))


def _judge_failure(failure: Failure, status: int | None, method: str) -> Verdict:
    codes = NEWEST.codes
    try:
        if failure.code == codes[FaultKind.VERSION_UNSUPPORTED]:
            data = read(UnsupportedProtocolVersionData, failure.data)
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
