"""Homes of sessions: which of several replicas of a host has the session of a caller.

A server that keeps state for a connection has one session for a caller, however many replicas the
requests of that caller reach. The replica that has it is its home; the others are connected to it.

Rules: no I/O here, and nothing without replicas: a host has homes only if it was given them.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from colonnade.errors import ChannelError, ConnectionLost
from colonnade.host.servers.callers import CallerKey
from colonnade.ports import ClientTransport, RequestContext
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.revision import Revision

if TYPE_CHECKING:
    from colonnade.host.servers.session import HostedSession
    from colonnade.host.servers.supervisor import ServerSupervisor


class HomeLost(ConnectionLost):
    """The home of a session is another one now, or has ended. With `not_sent` the request was not
    started there, and is sent again to the next home."""


class StateLost(ChannelError):
    """The process with the state of a caller has ended with its replica. Its caller is told once,
    and nothing was started."""

    not_sent: bool = True


class SessionHome(Protocol):
    """The right of this replica to have the session of a caller."""

    def opened(self, supervisor: "ServerSupervisor", session: "HostedSession") -> None:
        """The session is open: it may be used by other replicas, too."""
        ...

    async def check(self, *, lists: bool) -> None:
        """Make sure that this is the home still, right before a request is sent. `lists` is for
        one that reads a list. Raises `HomeLost` if another replica is, `StateLost` for the first
        call after another home has ended, and `ChannelError` if it cannot be known."""
        ...

    def notified(self, notification: NotificationReceived) -> None:
        """The server has sent a notification that belongs to no call."""
        ...

    async def release(self, *, is_stateless: bool = False) -> None:
        """Let another replica be the home: the session has ended, or `is_stateless` and so needs
        none. Raises nothing."""
        ...


class HomeElsewhere(NamedTuple):
    """A session that another replica has: how to use it from here, and the server's revision."""

    transport: ClientTransport
    revision: Revision


class SessionHomes(Protocol):
    """Finds the homes of sessions."""

    async def find(self, server: str, caller: CallerKey) -> "SessionHome | HomeElsewhere | None":
        """Be the home of a caller's session of a server, or use it where it is. None if no home is
        needed. Raises `ChannelError`."""
        ...

    def is_carried(self, request: RequestContext) -> bool:
        """Whether a request was sent here by another replica, which has reviewed it."""
        ...
