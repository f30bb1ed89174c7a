"""What a link reports and what it is made of: its phases, its events, its record.

Rules: plain data. The table is the state machine; what is not in it does not exist.
"""

from enum import Enum
from typing import TypeAlias

from msgspec import Raw, Struct

from portico.errors import PorticoError
from portico.protocol import types as t
from portico.protocol.exchange import Exchange
from portico.protocol.flight import Sent
from portico.protocol.jsonrpc import RequestId
from portico.protocol.methods import Method, Side
from portico.protocol.negotiation import Peer


class Phase(Enum):
    """How far the handshake is. Enveloped requests do not care."""

    NEW = "nothing was said"
    OPENING = "initialize was said"
    OPEN = "both sides are ready"
    CLOSED = "it is over"


# Which step leads where. A step that is missing here does not exist.
TABLE: dict[Side, dict[Phase, dict[str, Phase]]] = {
    Side.SERVER: {
        Phase.NEW: {"initialize": Phase.OPENING, "close": Phase.CLOSED},
        Phase.OPENING: {"initialized": Phase.OPEN, "close": Phase.CLOSED},
        Phase.OPEN: {"close": Phase.CLOSED},
        Phase.CLOSED: {},
    },
    Side.CLIENT: {
        Phase.NEW: {
            "initialize": Phase.OPENING,
            "adopt": Phase.OPEN,
            "close": Phase.CLOSED,
        },
        Phase.OPENING: {"agreed": Phase.OPEN, "refused": Phase.NEW, "close": Phase.CLOSED},
        Phase.OPEN: {"adopt": Phase.OPEN, "close": Phase.CLOSED},
        Phase.CLOSED: {},
    },
}


class Identity(Struct, frozen=True):
    """Who we are and what we offer."""

    info: t.Implementation
    capabilities: t.ServerCapabilities | t.ClientCapabilities
    instructions: str | None = None


class Send(Struct, frozen=True):
    """Write this."""

    data: bytes


class Call(Struct, frozen=True):
    """The peer wants something: answer the exchange with `settle` or `fail`."""

    exchange: Exchange


class Told(Struct, frozen=True):
    """The peer has news; `subscription` is the listen request that it belongs to."""

    row: Method
    params: Raw
    subscription: RequestId | None = None


class Answered(Struct, frozen=True):
    """One of our requests is over: its raw result, or what went wrong."""

    id: RequestId
    method: str
    outcome: Raw | PorticoError


class Progressed(Struct, frozen=True):
    """One of our requests is getting on."""

    id: RequestId
    params: t.ProgressNotificationParams


class Cancelled(Struct, frozen=True):
    """The peer no longer wants an answer; the exchange is settled already."""

    exchange: Exchange
    reason: str | None


class Opened(Struct, frozen=True):
    """The handshake is done, or has come far enough to know the peer."""

    peer: Peer


class Dropped(Struct, frozen=True):
    """Something was ignored, as it must be; worth a line in the log."""

    why: str


Event: TypeAlias = Send | Call | Told | Answered | Progressed | Cancelled | Opened | Dropped


class Record(Struct, frozen=True, kw_only=True):
    """A link as plain data, so that another process can go on with it."""

    side: Side
    phase: Phase
    revision: str | None
    capabilities: Raw
    info: t.Implementation | None
    log_level: t.LoggingLevel | None
    next_id: int
    sent: tuple[Sent, ...]
