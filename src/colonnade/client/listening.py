"""News of a server as one stream of changes, whichever way its revision tells them.

Where news comes on subscriptions, a listening is one; where it comes in the session, it picks what
it wants from there. `following` keeps it going. Rules: the same news twice is one, as long as
nobody has looked. What waits is bounded: who falls too far behind is told so, and looks at
everything anew. After a gap all that may have changed in it counts as changed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias

from colonnade.errors import ConnectionLost
from colonnade.protocol import types as t
from colonnade.protocol.events import Told
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link import ACKNOWLEDGED
from colonnade.protocol.reading import read
from colonnade.transport.news import within

log: logging.Logger = logging.getLogger("colonnade.client")

# Changes that nobody has looked at: lists are three, so these are different resources.
MAX_WAITING = 1000
# Of their addresses together: what is below a resource that is followed may have a long one.
MAX_WAITING_CHARS = 1024 * 1024

Kind: TypeAlias = Literal["tools", "prompts", "resources", "resource"]

UPDATED = "notifications/resources/updated"
LISTS: dict[str, Kind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}


class Change(NamedTuple):
    """What changed: a list (`tools`, `prompts`, `resources`), or the `resource` at `uri`."""

    kind: Kind
    uri: str | None = None


class Listening:
    """Changes as they come: `async for change in changes`. Ends when the server ends it.

    A connection that is lost is made anew where it can be, and everything counts as changed then.
    Raises `ConnectionLost` where it cannot, or where nobody looked for too long.
    """

    def __init__(self, wanted: t.SubscriptionFilter) -> None:
        self.wanted = wanted
        self.uris: frozenset[str] = frozenset(wanted.resource_subscriptions or ())
        # What the server will tell of all that is wanted.
        self.agreed: t.SubscriptionFilter = wanted
        self._waiting: dict[Change, None] = {}
        self._chars = 0
        self._wake = asyncio.Event()
        self._ready = asyncio.Event()
        # Set where the session that told the changes is gone.
        self.lost: asyncio.Event = asyncio.Event()
        self._over = False
        self._error: BaseException | None = None

    def __aiter__(self) -> "Listening":
        return self

    async def __anext__(self) -> Change:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        change = next(iter(self._waiting))
        del self._waiting[change]
        self._chars -= len(change.uri or "")
        return change

    def wants(self, change: Change) -> bool:
        """Whether this is what it listens for."""
        wanted = self.wanted
        match change.kind:
            case "tools":
                return bool(wanted.tools_list_changed)
            case "prompts":
                return bool(wanted.prompts_list_changed)
            case "resources":
                return bool(wanted.resources_list_changed)
            case "resource":
                return change.uri is not None and within(change.uri, self.uris)

    def hear(self, change: Change) -> None:
        """Keep a change until somebody looks."""
        if change in self._waiting:
            return
        self._chars += len(change.uri or "")
        if len(self._waiting) >= MAX_WAITING or self._chars > MAX_WAITING_CHARS:
            self._waiting.clear()
            self._chars = 0
            self.end(ConnectionLost("changes were missed: nobody looked; listen and read anew"))
            return
        self._waiting[change] = None
        self._wake.set()

    def begin(self, agreed: t.SubscriptionFilter) -> None:
        """From here on nothing is missed of what the server agreed to tell."""
        self.agreed = agreed
        if self.untold:  # R0820
            log.info("the server will not tell of %s", ", ".join(self.untold))
        self._ready.set()

    @property
    def untold(self) -> list[str]:
        """What was wanted, and the server did not agree to tell."""
        agreed = self.agreed
        told = {
            "tools": agreed.tools_list_changed,
            "prompts": agreed.prompts_list_changed,
            "resource_list": agreed.resources_list_changed,
        }
        wanted = {
            "tools": self.wanted.tools_list_changed,
            "prompts": self.wanted.prompts_list_changed,
            "resource_list": self.wanted.resources_list_changed,
        }
        lists = [name for name in wanted if wanted[name] and not told[name]]
        return lists + sorted(self.uris.difference(agreed.resource_subscriptions or ()))

    async def begun(self) -> None:
        """Wait until nothing is missed any more, or it has ended before that."""
        await self._ready.wait()

    def await_anew(self) -> None:
        """It begins once more."""
        self._ready.clear()

    def rouse(self) -> None:
        """Whoever waits for the beginning looks again."""
        self._ready.set()

    def missed(self) -> None:
        """Nobody knows what changed in the meantime: all of it may have."""
        kinds: tuple[Kind, ...] = ("tools", "prompts", "resources")
        lists = [Change(kind) for kind in kinds]
        for change in [*lists, *(Change("resource", uri) for uri in sorted(self.uris))]:
            if self.wants(change):
                self.hear(change)

    def end(self, error: BaseException | None = None) -> None:
        """There will be no more."""
        if not self._over:
            self._over, self._error = True, error
        self._wake.set()
        self._ready.set()


class Listenings:
    """Everybody in a client who listens."""

    def __init__(self, stale: Callable[[], None] = lambda: None) -> None:
        self._stale = stale
        self._subscribed: dict[RequestId, Listening] = {}
        self._in_session: set[Listening] = set()
        # Resources that somebody asked for without listening.
        self.by_hand: set[str] = set()

    def add(self, listening: Listening, subscription: RequestId | None = None) -> None:
        """Tell this one from now on: what belongs to its subscription, or all that it wants."""
        if subscription is not None:
            self._subscribed[subscription] = listening
        else:
            self._in_session.add(listening)

    def discard(self, listening: Listening, subscription: RequestId | None = None) -> None:
        """Tell this one no more."""
        if subscription is not None:
            self._subscribed.pop(subscription, None)
        self._in_session.discard(listening)

    def hear(self, told: Told) -> None:
        """Pass on what the server told. Raises `Fault` for what cannot be read."""
        if told.subscription is not None:
            listening = self._subscribed.get(told.subscription)
            hearers: Iterable[Listening] = () if listening is None else (listening,)
        else:
            hearers = tuple(self._in_session)
        if told.row.name == ACKNOWLEDGED:
            params = read(t.SubscriptionsAcknowledgedNotificationParams, told.params)
            for one in hearers:
                one.begin(params.notifications)
            return
        change = change_of(told)
        for one in hearers:
            if change is not None and one.wants(change):
                one.hear(change)

    def missed(self, listening: Listening) -> None:
        """This one has a gap: nothing that was kept is known to be fresh."""
        self._stale()
        listening.missed()

    @property
    def followed(self) -> set[str]:
        """The resources that the session is to tell of."""
        return self.by_hand.union(*(listening.uris for listening in self._in_session))

    def lose(self) -> None:
        """The session is gone, and another one may follow."""
        for listening in tuple(self._in_session):
            listening.lost.set()

    def resume(self) -> None:
        """Another session has followed: who listened in the one before has missed something."""
        for listening in tuple(self._in_session):
            listening.lost.clear()
        self.missed_in_session()

    def missed_in_session(self) -> None:
        """Whoever listens in the session has missed something."""
        for listening in tuple(self._in_session):
            listening.missed()

    def end(self, error: ConnectionLost, *, subscribed: bool = True) -> None:
        """There will be no more news; for those in the session alone, or for all."""
        for listening in (*(self._subscribed.values() if subscribed else ()), *self._in_session):
            listening.end(error)


def change_of(told: Told) -> Change | None:
    """The change that a notification tells of, if it does. Raises `Fault`."""
    if told.row.name == UPDATED:
        return Change("resource", read(t.ResourceUpdatedNotificationParams, told.params).uri)
    kind = LISTS.get(told.row.name)
    return Change(kind) if kind is not None else None
