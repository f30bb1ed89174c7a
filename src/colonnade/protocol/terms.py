"""What each side may say to the other: the methods of the revision, as far as they are offered.

Rules: pure. What a peer may not send is a `Fault`, what we may not is a `LocalProtocolError`.
"""

from collections.abc import Callable

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.identity import Identity
from colonnade.protocol.methods import Method, Side, declares
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Peer, incapable
from colonnade.protocol.revision import Revision


class Terms:
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

    def received(self, method: str, peer: Peer) -> Method:
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
            raise incapable(f"{method} needs {extension}", extensions={extension: {}})
        return row  # what the sender did not say of itself is not for us to miss

    def sent(self, method: str, peer: Peer, *, notification: bool, informed: bool) -> Method:
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


def fitting(row: Method, params: t.Noun | None) -> t.Noun:
    """Params of the kind that a method takes; the empty ones where none are given."""
    if params is None:
        try:
            return row.params()
        except TypeError as error:
            raise LocalProtocolError(f"{row.name} needs {row.params.__name__}: {error}") from error
    if not isinstance(params, row.params):
        raise LocalProtocolError(f"{row.name} takes {row.params.__name__}")
    return params
