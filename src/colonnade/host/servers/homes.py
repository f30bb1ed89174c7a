"""Homes of sessions: which of several replicas of a host has the session of a caller.

A server that keeps state for a connection has one session for a caller, however many replicas the
requests of that caller reach. The replica that has it is its home; the others are connected to it.

Rules: no I/O here, and nothing without replicas: a host has homes only if it was given them.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from colonnade.client.client import Client
from colonnade.client.request import OnProgress
from colonnade.client.tasks.task import ClientTask
from colonnade.errors import ChannelError, ConnectionLost
from colonnade.host.servers.callers import CallerKey
from colonnade.ports import ClientTransport, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.forwarded import ResultOrigin
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.revision import Revision


class HomeLost(ConnectionLost):
    """The home of a session is another one now, or has ended. With `not_sent` the request was not
    started there, and is sent again to the next home."""


class StateLost(ChannelError):
    """The process with the state of a caller has ended with its replica. Its caller is told once,
    and nothing was started."""

    not_sent: bool = True


class HomeCall(Protocol):
    """One call on the session of a home."""

    async def request(
        self,
        method: str,
        params: t.RequestParams,
        *,
        on_progress: OnProgress | None = None,
        wants_task: bool = False,
        on_task: Callable[[str, ClientTask], Awaitable[bool]] | None = None,
        origin: ResultOrigin | None = None,
    ) -> t.ProtocolType:
        """Send a request for this call and return the result. `on_task` is called with the task
        that a call has become, and returns whether the caller waits for it."""
        ...


class HomeSession(Protocol):
    """The session of a home, as other replicas use it."""

    had_calls: bool

    @property
    def client(self) -> Client: ...

    @property
    def accepts_calls(self) -> bool: ...


class OpenedSession(NamedTuple):
    """An open session: `carry` begins a call on it for a request of another replica, and `close`
    closes it and returns the error for a request to it."""

    session: HomeSession
    carry: Callable[[RequestContext], AbstractAsyncContextManager[HomeCall]]
    close: Callable[[], ConnectionLost]


class SessionHome(Protocol):
    """The right of this replica to have the session of a caller."""

    def opened(self, opened: OpenedSession) -> None:
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
