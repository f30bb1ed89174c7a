"""Change notifications of a gateway, for the principals that they concern.

Lists of a server that each caller sees differently change for one caller; those of all others
change for all principals.

Rules: a principal is notified of changes that it can see, and of no others. What belongs to a
principal is dropped with its last watcher. However often a server says that something has changed,
it is published at once and then at most every `INTERVAL_S`: each is sent to every client and every
replica.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypeAlias

from colonnade.ports import Seal, Store
from colonnade.protocol import types as t
from colonnade.server.notifications import ChangeCallback, ChangeNotifier

if TYPE_CHECKING:
    from colonnade.host.runtime import CallerFilter

# What requests of one principal had for the rules: clients, and claims of its tokens. Of more, the
# oldest are forgotten.
MAX_FILTERS = 32
# Between two notifications of the same change: a client that lists again would take longer.
INTERVAL_S = 0.1
# Changes within that time. An update may name any resource below one that is followed.
MAX_RECENT = 10_000

# Whether a watcher may be notified of an updated resource. It is asked for each update, since the
# rules may change while it watches, and an update may name a resource below the one it follows.
ShowsUri: TypeAlias = Callable[[str], bool]

# Whether a watcher may be notified of changed lists of one of some servers; of unknown ones if
# there are none, because another process has noticed the change.
ShowsServers: TypeAlias = Callable[[tuple[str, ...]], bool]


class ServerLists(t.NotificationParams):
    """Inside a gateway: lists of these servers have changed; None if the rules have, which is for
    all callers. It is never sent."""

    servers: tuple[str, ...] | None = None

    @property
    def uri(self) -> str:
        """Tells changes of different servers apart, as the URI does those of resources."""
        return "\n".join(self.servers) if self.servers is not None else "*"


class RecentChange:
    """A change that was published, and the same one again that waits for its time."""

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.timer = timer
        self.again: t.NotificationParams | None = None


# What a change is about: the method, the resource, and the principal.
ChangeKey: TypeAlias = tuple[str, str | None, str | None]


class PrincipalChanges:
    """The changes that one principal is notified of."""

    def __init__(
        self,
        changes: "GatewayChanges",
        principal: str,
        shows: "ShowsUri | None" = None,
        shows_servers: "ShowsServers | None" = None,
    ) -> None:
        self._changes = changes
        self._principal = principal
        self._shows = shows
        self._shows_servers = shows_servers

    def watch(self, callback: ChangeCallback) -> Callable[[], None]:
        """Call `callback` for every change until the returned function is called."""
        return self._changes.watch(callback, self._principal, self._shows, self._shows_servers)


class GatewayChanges:
    """Publishes the changes of all servers of a gateway."""

    def __init__(self) -> None:
        self._common = ChangeNotifier()
        # By principal: its notifier, and how many watch it.
        self._own: dict[str, tuple[ChangeNotifier, int]] = {}
        # By principal that is watched: what its requests may see.
        self._filters: dict[str, OrderedDict[CallerFilter, None]] = {}
        self._recent: dict[ChangeKey, RecentChange] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Deliver changes in this event loop from now on."""
        self._loop = loop
        self._common.start(loop)
        for notifier, _ in self._own.values():
            notifier.start(loop)

    def stop(self) -> None:
        """Drop pending changes and deliver no more."""
        self._loop = None
        for recent in self._recent.values():
            recent.timer.cancel()
        self._recent.clear()
        self._common.stop()
        for notifier, _ in self._own.values():
            notifier.stop()

    async def share(
        self, store: Store, seal: Seal | None, name: str, exit_stack: AsyncExitStack
    ) -> None:
        """Pass changes for all principals on to other processes of this gateway, and theirs to the
        watchers here, until the stack is closed."""
        await self._common.share(store, seal, name, exit_stack)

    def of(
        self,
        principal: str,
        shows: "ShowsUri | None" = None,
        shows_servers: "ShowsServers | None" = None,
    ) -> PrincipalChanges:
        """The changes that a principal is notified of; the functions as for `watch`."""
        return PrincipalChanges(self, principal, shows, shows_servers)

    def note(self, principal: str, caller: "CallerFilter") -> None:
        """A principal that is watched has made a request, which may see this."""
        if principal in self._own:
            filters = self._filters.setdefault(principal, OrderedDict())
            filters[caller] = None
            filters.move_to_end(caller)
            if len(filters) > MAX_FILTERS:
                filters.popitem(last=False)

    def shows_servers(self, principal: str, servers: tuple[str, ...]) -> bool:
        """Whether the sessions of a principal may be notified of changed lists. They are not told
        apart here: what all of its requests may see; before the first there is nothing to read
        again."""
        filters = self._filters.get(principal)
        return bool(filters) and all(one.shows_servers(servers) for one in filters)

    def watch(
        self,
        callback: ChangeCallback,
        principal: str,
        shows: "ShowsUri | None" = None,
        shows_servers: "ShowsServers | None" = None,
    ) -> Callable[[], None]:
        """Call `callback` for every change that a principal can see, until the returned function is
        called. Updates of resources that `shows` is false for are left out, and changes of lists
        that `shows_servers` is false for."""
        callback = _only_shown(callback, shows, shows_servers)
        notifier, watchers = self._own.get(principal, (None, 0))
        if notifier is None:
            notifier = ChangeNotifier()
            if self._loop is not None:
                notifier.start(self._loop)
        self._own[principal] = (notifier, watchers + 1)
        ends = [self._common.watch(callback), notifier.watch(callback)]

        def unwatch() -> None:
            if not ends:
                return
            for end in ends:
                end()
            ends.clear()
            notifier, left = self._own[principal]
            if left > 1:
                self._own[principal] = (notifier, left - 1)
            else:
                del self._own[principal]
                self._filters.pop(principal, None)

        return unwatch

    def publish(self, method: str, params: t.NotificationParams, principal: str | None) -> None:
        """Notify those who watch as this principal, now or after `INTERVAL_S`; None for all
        principals."""
        loop, key = self._loop, (method, getattr(params, "uri", None), principal)
        if loop is None:
            return  # not served: later clients list the current state
        recent = self._recent.get(key)
        if recent is not None:
            recent.again = params
            return
        if len(self._recent) < MAX_RECENT:
            self._recent[key] = RecentChange(loop.call_later(INTERVAL_S, self._expire, key))
        self._send(method, params, principal)

    def _expire(self, key: ChangeKey) -> None:
        again = self._recent.pop(key).again
        if again is not None:
            self.publish(key[0], again, key[2])

    def _send(self, method: str, params: t.NotificationParams, principal: str | None) -> None:
        if principal is None:
            self._common.publish(method, params)
        elif principal in self._own:
            self._own[principal][0].publish(method, params)


def _only_shown(
    callback: ChangeCallback, shows: ShowsUri | None, shows_servers: ShowsServers | None
) -> ChangeCallback:
    def on_change(method: str, params: t.NotificationParams) -> None:
        if isinstance(params, t.ResourceUpdatedNotificationParams):
            if shows is None or shows(params.uri):
                callback(method, params)
            return
        servers = params.servers if isinstance(params, ServerLists) else ()
        if shows_servers is None or servers is None or shows_servers(servers):
            callback(method, t.NotificationParams())

    return on_change
