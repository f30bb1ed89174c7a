"""What a link reports, and what another process must know to go on with it.

Rules: plain data.
"""

from typing import TypeAlias

from msgspec import Raw, Struct

from colonnade.errors import ColonnadeError, Fault
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.in_flight import OutgoingRequest
from colonnade.protocol.methods import Method, Side
from colonnade.protocol.negotiation import Peer


class Send(Struct, frozen=True):
    """Write this. `fault` is why, where it is a refusal: HTTP has a status for each."""

    data: bytes
    fault: Fault | None = None


class RequestReceived(Struct, frozen=True, gc=False):
    """The peer wants something: answer the exchange with `settle` or `fail`."""

    exchange: Exchange


class NotificationReceived(Struct, frozen=True):
    """The peer has news; `subscription` is the listen request that it belongs to.

    The params are as they came: read them as the row says.
    """

    method: Method
    params: Raw
    subscription: RequestId | None = None


class RequestFinished(Struct, frozen=True):
    """One of our requests is over: its raw result, or what went wrong."""

    id: RequestId
    method: str
    outcome: Raw | ColonnadeError


class ProgressReceived(Struct, frozen=True):
    """One of our requests is getting on."""

    id: RequestId
    params: "t.ProgressNotificationParams"


class RequestCancelled(Struct, frozen=True):
    """The peer no longer wants an answer; the exchange is settled already."""

    exchange: Exchange
    reason: str | None


class PeerIdentified(Struct, frozen=True):
    """The handshake is done, or has come far enough to know the peer."""

    peer: Peer


class MessageIgnored(Struct, frozen=True):
    """Something was ignored, as it must be; worth a line in the log."""

    why: str


LinkEvent: TypeAlias = (
    Send
    | RequestReceived
    | NotificationReceived
    | RequestFinished
    | ProgressReceived
    | RequestCancelled
    | PeerIdentified
    | MessageIgnored
)


class LinkSnapshot(Struct, frozen=True, kw_only=True):
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
    sent: tuple[OutgoingRequest, ...]
