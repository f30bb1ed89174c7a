"""How far two sides have come with each other, and who the other one is.

Rules: the table is the state machine; a step that is not in it does not exist, and what is
refused changes nothing. Enveloped requests need none of this.
"""

from collections.abc import Callable
from enum import Enum

from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.methods import Method, Side, declares
from colonnade.protocol.negotiation import (
    HANDSHAKE_METHOD,
    Identity,
    Peer,
    agree,
    missing_capability,
    negotiate,
)
from colonnade.protocol.revision import Revision, Revisions


class Phase(Enum):
    """How far the handshake is."""

    NEW = "nothing was said"
    OPENING = "initialize was said"
    OPEN = "both sides are ready"
    CLOSED = "it is over"


# Why a server asks nothing yet: R0012 allows only pings and logs before that.
NOT_INITIALIZED = (
    "it has not sent notifications/initialized, and nothing can be asked of a client before that"
)

# Which step leads where. A step that is missing here does not exist.
TABLE: dict[Side, dict[Phase, dict[str, Phase]]] = {
    Side.SERVER: {
        Phase.NEW: {"initialize": Phase.OPENING, "close": Phase.CLOSED},
        Phase.OPENING: {"notifications/initialized": Phase.OPEN, "close": Phase.CLOSED},
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

# R0011, R0012: what may go before the handshake is done.
ALLOWED_EARLY = frozenset({"ping", "notifications/message"})


class Handshake:
    """The state of one conversation, and the peer as far as it is known.

    `informed` is whether the peer said what it can do, or is only known to speak its revision.
    """

    def __init__(self, side: Side, accepts: Revisions) -> None:
        self.side = side
        self.accepts = accepts
        self.phase: Phase = Phase.NEW
        self.peer: Peer | None = None
        self.informed: bool = True

    def may(self, step: str) -> bool:
        """Whether this step exists now."""
        return step in TABLE[self.side][self.phase]

    def step(self, step: str) -> None:
        """Go on; raises `LocalProtocolError` where the step does not exist."""
        if not self.may(step):
            raise LocalProtocolError(f"{step} does not follow: {self.phase.value}")
        self.phase = TABLE[self.side][self.phase][step]

    def advance(self, step: str) -> bool:
        """Go on if the step exists; it is the peer who takes it, and may take it out of turn."""
        if self.may(step):
            self.step(step)
            return True
        return False

    @property
    def session(self) -> Peer | None:
        """The peer of a handshake that is done, or that a client has begun."""
        if self.peer is not None:
            return self.peer if self.peer.revision.handshake else None
        if self.phase is Phase.OPENING:  # a client, as a server knows its peer by then
            return Peer(self.accepts.handshakes[0], t.ServerCapabilities())
        return None

    # ------------------------------------------------------------ a client

    def begin(self, wanted: Revision | None) -> Revision:
        """The revision to ask for: our newest that has a handshake (R0014), or a chosen one."""
        if self.side is Side.SERVER or not self.may("initialize"):
            raise LocalProtocolError("initialize is the first word of a client, once")
        if not self.accepts.handshakes:
            raise LocalProtocolError("none of our revisions begins with initialize; adopt one")
        if wanted is not None and wanted not in self.accepts.handshakes:
            raise LocalProtocolError(f"{wanted.date} cannot be asked for by initialize here")
        return wanted or self.accepts.handshakes[0]

    def agree(self, result: "t.InitializeResult") -> Peer:
        """The server's answer; raises where we cannot speak so, and must disconnect (D34)."""
        revision = agree(result.protocol_version, self.accepts)
        self.step("agreed")
        self.peer = Peer(revision, result.capabilities, result.server_info)
        return self.peer

    def adopt(self, peer: Peer | Revision) -> None:
        """Speak with a server that needs no handshake."""
        known = peer if isinstance(peer, Peer) else Peer(peer, t.ServerCapabilities())
        if known.revision.handshake or known.revision not in self.accepts:
            raise LocalProtocolError(f"{known.revision.date} cannot be adopted here")
        if self.session is not None:
            raise LocalProtocolError(f"this link speaks {self.session.revision.date} already")
        self.step("adopt")
        self.peer, self.informed = known, isinstance(peer, Peer)

    # ------------------------------------------------------------ a server

    def answer(self, params: "t.InitializeRequestParams") -> Revision:
        """The revision to answer `initialize` with. Raises `Fault`."""
        if not self.may("initialize"):
            raise Fault(FaultKind.INVALID_REQUEST, "initialize was already done")  # D27
        return negotiate(params.protocol_version, self.accepts)

    def opened(self, params: "t.InitializeRequestParams", revision: Revision) -> Peer:
        """It was answered: the peer is known from here on."""
        self.step("initialize")
        self.peer = Peer(revision, params.capabilities, params.client_info)
        return self.peer

    def set_level(self, peer: Peer, level: t.LoggingLevel) -> Peer:
        """What the session wants to hear of the log."""
        self.peer = replace(peer, log_level=level)
        return self.peer

    # ------------------------------------------------------------ either

    def peer_for(self, method: str, probed: Revision | None) -> Peer:
        """Whom a message of ours would reach now. `probed` is a guess, before the peer is known.

        Raises `LocalProtocolError` where it is too early or too late for it.
        """
        if self.phase is Phase.OPEN and self.peer is not None:
            return self.peer
        if self.phase is Phase.CLOSED:
            raise LocalProtocolError("the link is closed")
        session = self.session
        if self.phase is Phase.OPENING and session is not None:
            if method not in ALLOWED_EARLY:
                raise LocalProtocolError(f"{method} before the handshake is done")
            return session
        if probed is None or probed.handshake or probed not in self.accepts:
            raise LocalProtocolError(f"{method} before the peer is known; initialize or adopt")
        return Peer(probed, t.ServerCapabilities())

    def knows(self, peer: Peer) -> bool:
        """Whether this is a peer that has told us what it can do."""
        return self.informed and peer is self.peer


class MethodRules:
    """The terms on which one side speaks, whoever the peer is.

    `current` is who we are by now: it counts for peers that agreed on nothing in a handshake.
    """

    def __init__(self, identity: Identity, current: Callable[[], Identity] | None = None) -> None:
        self._current = current
        self._side = identity.side
        self._mine = identity.capabilities
        self._extensions = frozenset(identity.capabilities.extensions or ())
        # What was found before, and depends on nothing that another request could change.
        self._received: dict[tuple[str, Revision], Method] = {}

    def receivable(self, method: str, peer: Peer) -> Method:
        """The row of a method that the peer may send now. Raises `Fault` where it may not."""
        known = self._received.get((method, peer.revision))
        if known is not None:
            return known
        row = peer.revision.method(method, self._extensions)
        sender = self._side.other
        if row is None or sender not in row.senders:
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"there is no {method[:80]} here")
        own = row.needs is None or row.needed_of(sender) is self._side
        if row.needs is None or declares(self._meant(row, peer, sender), row.needs):
            if own:
                self._received[method, peer.revision] = row
            return row
        if row.needed_of(sender) is self._side:
            if self._offers_now(row.needs, peer):
                return row
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"{method} is not offered here")
        if method not in peer.revision.methods:  # R1207
            extension = row.needs.partition(".")[2]
            raise missing_capability(f"{method} needs {extension}", extensions={extension: {}})
        return row  # what the sender did not say of itself is not for us to miss

    def sendable(self, method: str, peer: Peer, *, notification: bool, informed: bool) -> Method:
        """The row of a method that we may send now. Raises `LocalProtocolError` where not.

        `informed` is whether the peer has said what it can do; else nothing is held against it.
        """
        spoken = self._extensions & peer.extensions if informed else self._extensions
        row = peer.revision.method(method, spoken)
        if (
            row is None
            or method == HANDSHAKE_METHOD
            or self._side not in row.senders
            or row.is_notification is not notification
        ):
            kind = "notification" if notification else "request"
            raise LocalProtocolError(
                f"{method} is no {kind} that a {self._side.value} sends in {peer.revision.date}"
            )
        own = row.needed_of(self._side) is self._side
        if row.needs is None or not (own or informed):
            return row
        if not declares(self._meant(row, peer, self._side), row.needs):
            whose = "this side" if own else "the peer"
            raise LocalProtocolError(f"{method} needs {row.needs}, and {whose} has not declared it")
        return row

    def _offers_now(self, needs: str, peer: Peer) -> bool:
        """Whether what was not offered at first is by now, to a peer that judges each request."""
        if self._current is None or peer.revision.handshake:
            return False
        return declares(self._current().capabilities, needs)

    def _meant(
        self, row: Method, peer: Peer, sender: Side
    ) -> t.ClientCapabilities | t.ServerCapabilities:
        """The capabilities that a row's `needs` means."""
        return self._mine if row.needed_of(sender) is self._side else peer.capabilities


def params_for(row: Method, params: t.ProtocolType | None) -> t.ProtocolType:
    """Params of the kind that a method takes; the empty ones where none are given."""
    if params is None:
        try:
            return row.params()
        except TypeError as error:
            raise LocalProtocolError(f"{row.name} needs {row.params.__name__}: {error}") from error
    if not isinstance(params, row.params):
        raise LocalProtocolError(f"{row.name} takes {row.params.__name__}")
    return params
