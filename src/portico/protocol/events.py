"""What a link reports and what it is made of: its phases, its events, its record.

Rules: plain data. The table is the state machine; what is not in it does not exist.
"""

from enum import Enum
from typing import TypeAlias

from msgspec import Raw, Struct

from portico.errors import LocalProtocolError, PorticoError
from portico.protocol import types as t
from portico.protocol.exchange import Exchange
from portico.protocol.flight import Sent
from portico.protocol.jsonrpc import RequestId, encode
from portico.protocol.methods import Method, Side
from portico.protocol.negotiation import Peer
from portico.protocol.revision import Revision, Revisions
from portico.protocol.shape import Shaper


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
    """Who we are and what we offer. `named` is whether to say it where a revision leaves it open.

    Raises `LocalProtocolError` for what could not be told to anybody.
    """

    info: t.Implementation
    capabilities: t.ServerCapabilities | t.ClientCapabilities
    instructions: str | None = None
    named: bool = True

    def __post_init__(self) -> None:
        encode([self.info, self.capabilities, self.instructions])
        for identifier in self.capabilities.extensions or ():
            if not t.valid_extension_id(identifier):  # R0926
                raise LocalProtocolError(f"{identifier!r} is no extension: name it a.b/c")

    @property
    def side(self) -> Side:
        """The side that has such capabilities."""
        server = isinstance(self.capabilities, t.ServerCapabilities)
        return Side.SERVER if server else Side.CLIENT

    def shaper(self, revision: Revision) -> Shaper:
        """A writer for peers of this revision, which signs as us."""
        info = self.info if self.named else None
        if isinstance(self.capabilities, t.ServerCapabilities):
            return Shaper(revision, info)
        envelope = t.Envelope(
            version=revision.date, capabilities=self.capabilities, client_info=info
        )
        return Shaper(revision, None, envelope)

    def greeting(self, revision: Revision) -> t.InitializeRequestParams:
        """The first word of a client."""
        if not isinstance(self.capabilities, t.ClientCapabilities):
            raise LocalProtocolError("initialize is the first word of a client")
        return t.InitializeRequestParams(
            protocol_version=revision.date, capabilities=self.capabilities, client_info=self.info
        )

    def welcome(self, revision: Revision) -> t.InitializeResult:
        """A server's answer to it."""
        return t.InitializeResult(
            protocol_version=revision.date,
            capabilities=self._offered,
            server_info=self.info,
            instructions=self.instructions,
        )

    def discovery(self, accepts: Revisions) -> t.DiscoverResult:
        """A server's answer to `server/discover`, which it always has (R0924)."""
        return t.DiscoverResult(
            supported_versions=accepts.dates,  # D11: newest first
            capabilities=self._offered,
            instructions=self.instructions,
        )

    @property
    def _offered(self) -> t.ServerCapabilities:
        if not isinstance(self.capabilities, t.ServerCapabilities):
            raise LocalProtocolError("only a server says what it offers")
        return self.capabilities


class Send(Struct, frozen=True):
    """Write this."""

    data: bytes


class Call(Struct, frozen=True):
    """The peer wants something: answer the exchange with `settle` or `fail`."""

    exchange: Exchange


class Told(Struct, frozen=True):
    """The peer has news; `subscription` is the listen request that it belongs to.

    The params are as they came: read them as the row says.
    """

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
    """A link as plain data, so that another process can go on with it.

    `informed` is whether the peer said what it can do, or is only known to speak this revision.
    """

    side: Side
    phase: Phase
    revision: str | None
    capabilities: Raw
    informed: bool
    info: t.Implementation | None
    log_level: t.LoggingLevel | None
    next_id: int
    sent: tuple[Sent, ...]
