"""The events of a link, and its state as plain data.

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
    """Send these bytes. `fault` is set for an error response: HTTP maps it to a status."""

    data: bytes
    fault: Fault | None = None


class RequestReceived(Struct, frozen=True, gc=False):
    """The peer sent a request: respond to the exchange with `settle` or `fail`."""

    exchange: Exchange


class NotificationReceived(Struct, frozen=True):
    """The peer sent a notification; `subscription` is the listen request that it belongs to.

    `owner` is whom it belongs to, as far as the transport knows: for a client, the owner of the
    request on whose stream it came; for a server, the session of the client (its id, or the
    connection).

    The params are raw: decode them with `method.params`.
    """

    method: Method
    params: Raw
    subscription: RequestId | None = None
    owner: object = None


class RequestFinished(Struct, frozen=True):
    """One of our requests is over: its raw result, or an error."""

    id: RequestId
    method: str
    outcome: Raw | ColonnadeError


class ProgressReceived(Struct, frozen=True):
    """The peer reported progress of one of our requests."""

    id: RequestId
    params: "t.ProgressNotificationParams"


class RequestCancelled(Struct, frozen=True):
    """The peer cancelled its request; the exchange is settled already."""

    exchange: Exchange
    reason: str | None


class PeerIdentified(Struct, frozen=True):
    """The handshake is done, or far enough to know the peer."""

    peer: Peer


class MessageIgnored(Struct, frozen=True):
    """A message was ignored, as the protocol requires; worth a line in the log."""

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
    """A link as plain data, so that another process can continue it.

    `informed` is whether the peer declared its capabilities, or only its revision is known.
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
