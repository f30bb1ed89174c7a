"""The initialize handshake: its states, the peer, and which methods each side may send.

Rules: the table is the state machine; a step that is not in it does not exist, and what is refused
changes nothing. Requests with an envelope need none of this.
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
    defined_in,
    negotiate,
    require_declared,
)
from colonnade.protocol.revision import Revision, Revisions


class Phase(Enum):
    """The state of the handshake."""

    NEW = "not initialized"
    OPENING = "initialize was sent"
    OPEN = "initialized"
    CLOSED = "closed"


# Why a server sends no requests yet: R0012 allows only pings and logs before that.
NOT_INITIALIZED = (
    "it has not sent notifications/initialized, and a client gets no requests before that"
)

# The transitions. A step that is missing here does not exist.
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

# R0011, R0012: what may be sent before the handshake is done.
ALLOWED_EARLY = frozenset({"ping", "notifications/message"})


class Handshake:
    """The handshake of one link, and the peer as far as it is known.

    `informed` is whether the peer declared its capabilities, or only its revision is known.
    """

    def __init__(self, side: Side, accepts: Revisions) -> None:
        self.side = side
        self.accepts = accepts
        self.phase: Phase = Phase.NEW
        self.peer: Peer | None = None
        self.informed: bool = True

    def may(self, step: str) -> bool:
        """Whether this step is possible now."""
        return step in TABLE[self.side][self.phase]

    def step(self, step: str) -> None:
        """Take a step; raises `LocalProtocolError` if it is not possible."""
        if not self.may(step):
            raise LocalProtocolError(f"{step} is not possible now: {self.phase.value}")
        self.phase = TABLE[self.side][self.phase][step]

    def advance(self, step: str) -> bool:
        """Take a step of the peer, which may come out of order; False if it is not possible."""
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

    # ------------------------------------------------------------ client

    def begin(self, revision: Revision | None) -> Revision:
        """The revision to request: our newest that has a handshake (R0014), or a chosen one."""
        if self.side is Side.SERVER or not self.may("initialize"):
            raise LocalProtocolError("initialize is sent by a client, first and once")
        if not self.accepts.handshakes:
            raise LocalProtocolError("no accepted revision begins with initialize; call adopt()")
        if revision is not None and revision not in self.accepts.handshakes:
            raise LocalProtocolError(f"{revision.date} cannot be requested by initialize here")
        return revision or self.accepts.handshakes[0]

    def agree(self, result: "t.InitializeResult") -> Peer:
        """Take the result of `initialize`; raises if its revision is not accepted (D34)."""
        revision = agree(result.protocol_version, self.accepts)
        self.step("agreed")
        capabilities = defined_in(revision, result.capabilities)
        self.peer = Peer(revision, capabilities, result.server_info)
        return self.peer

    def adopt(self, peer: Peer | Revision) -> None:
        """Use a server that needs no handshake."""
        known = peer if isinstance(peer, Peer) else Peer(peer, t.ServerCapabilities())
        if known.revision.handshake or known.revision not in self.accepts:
            raise LocalProtocolError(f"{known.revision.date} cannot be adopted here")
        if self.session is not None:
            raise LocalProtocolError(f"this link uses {self.session.revision.date} already")
        self.step("adopt")
        self.peer, self.informed = known, isinstance(peer, Peer)

    # ------------------------------------------------------------ server

    def answer(self, params: "t.InitializeRequestParams") -> Revision:
        """The revision for the result of `initialize`. Raises `Fault`."""
        if not self.may("initialize"):
            raise Fault(FaultKind.INVALID_REQUEST, "initialize was already done")  # D27
        return negotiate(params.protocol_version, self.accepts)

    def opened(self, params: "t.InitializeRequestParams", revision: Revision) -> Peer:
        """Set the peer: the result of `initialize` was sent."""
        self.step("initialize")
        capabilities = defined_in(revision, params.capabilities)
        self.peer = Peer(revision, capabilities, params.client_info)
        return self.peer

    def set_level(self, peer: Peer, level: t.LoggingLevel) -> Peer:
        """Set the log level of the session."""
        self.peer = replace(peer, log_level=level)
        return self.peer

    # ------------------------------------------------------------ both sides

    def peer_for(self, method: str, probed: Revision | None) -> Peer:
        """The peer that a message of ours would reach now. `probed` is a guess, before it is known.

        Raises `LocalProtocolError` if it is too early or too late for the message.
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
            raise LocalProtocolError(
                f"{method} before the peer is known; call initialize() or adopt()"
            )
        return Peer(probed, t.ServerCapabilities())

    def knows(self, peer: Peer) -> bool:
        """Whether this peer has declared its capabilities."""
        return self.informed and peer is self.peer


class MethodRules:
    """Which methods may be sent and received, by capabilities and revision.

    `current` returns our present identity, for peers without a handshake.
    """

    def __init__(self, identity: Identity, current: Callable[[], Identity] | None = None) -> None:
        self._current = current
        self._side = identity.side
        self._identity = identity
        self._mine = identity.capabilities
        # Results that depend on nothing another request could change.
        self._received: dict[tuple[str, Revision], Method] = {}

    def receivable(self, method: str, peer: Peer) -> Method:
        """The definition of a method that the peer may send now. Raises `Fault` if it may not."""
        known = self._received.get((method, peer.revision))
        if known is not None:
            return known
        definition = peer.revision.methods.get(method)
        if definition is None:
            definition = self._extension_method(method, peer)
        sender = self._side.other
        if definition is None or sender not in definition.senders:
            raise Fault(FaultKind.METHOD_NOT_FOUND, f"unknown method {method[:80]!r}")
        own = definition.needs is None or definition.needed_of(sender) is self._side
        if definition.needs is None or declares(
            self._capabilities_for(definition, peer, sender), definition.needs
        ):
            if own:
                self._received[method, peer.revision] = definition
            return definition
        if definition.needed_of(sender) is self._side:
            if self._declares_now(definition.needs, peer):
                return definition
            raise Fault(
                FaultKind.METHOD_NOT_FOUND, f"{method} is not supported by this {self._side.value}"
            )
        require_declared(definition, peer)  # R1207
        return definition  # a capability that the sender did not declare is not enforced here

    def sendable(
        self,
        method: str,
        peer: Peer,
        *,
        notification: bool,
        informed: bool,
        extension: str | None = None,
    ) -> Method:
        """The definition of a method that we may send now. Raises `LocalProtocolError` if not.

        `informed` is whether the peer has declared its capabilities; else they are not checked.
        `extension` is the one that a request belongs to which no revision defines.
        """
        definition = peer.revision.methods.get(method)
        if definition is None:
            mine = frozenset(self._mine.extensions or ())
            shared = mine & peer.extensions if informed else mine
            definition = peer.revision.method(method, shared)
            if definition is None and extension in shared:
                from colonnade.protocol.extensions import extension_request  # on use: few have any

                definition = extension_request(method, extension)
        if (
            definition is None
            or method == HANDSHAKE_METHOD
            or self._side not in definition.senders
            or definition.is_notification is not notification
        ):
            kind = "notification" if notification else "request"
            raise LocalProtocolError(
                f"{method} is not a {kind} that a {self._side.value} sends in {peer.revision.date}"
            )
        own = definition.needed_of(self._side) is self._side
        if definition.needs is None or not (own or informed):
            return definition
        if not declares(self._capabilities_for(definition, peer, self._side), definition.needs):
            whose = "this side" if own else "the peer"
            raise LocalProtocolError(
                f"{method} needs {definition.needs}, and {whose} has not declared it"
            )
        return definition

    def _extension_method(self, method: str, peer: Peer) -> Method | None:
        """A method of the extensions that we declared in the handshake, or of those that we have
        now, for a peer without one."""
        identity = self._identity
        if self._current is not None and not peer.revision.handshake:
            identity = self._current()
        return identity.extension_method(method, peer.revision)

    def _declares_now(self, needs: str, peer: Peer) -> bool:
        """Whether a capability was added since, for a peer without a handshake."""
        if self._current is None or peer.revision.handshake:
            return False
        return declares(self._current().capabilities, needs)

    def _capabilities_for(
        self, definition: Method, peer: Peer, sender: Side
    ) -> t.ClientCapabilities | t.ServerCapabilities:
        """The capabilities that `needs` of a method refers to."""
        return self._mine if definition.needed_of(sender) is self._side else peer.capabilities


def params_for(definition: Method, params: t.ProtocolType | None) -> t.ProtocolType:
    """The params of a method: those given, or empty ones. Raises `LocalProtocolError`."""
    if params is None:
        try:
            return definition.params()
        except TypeError as error:
            raise LocalProtocolError(
                f"{definition.name} needs {definition.params.__name__}: {error}"
            ) from error
    if not isinstance(params, definition.params):
        raise LocalProtocolError(f"{definition.name} takes {definition.params.__name__}")
    return params
