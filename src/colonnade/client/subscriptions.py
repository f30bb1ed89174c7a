"""News of a server as one stream of changes, whichever way its revision tells them.

Where news comes on subscriptions, a listening is one; where it comes in the session, it picks what
it wants from there. `following` keeps it going. Rules: the same news twice is one, as long as
nobody has looked. What waits is bounded: who falls too far behind is told so, and looks at
everything anew. After a gap all that may have changed in it counts as changed.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Raw

from colonnade.client.connection import Speaker
from colonnade.errors import ChannelError, ColonnadeError, ConnectionLost, LocalProtocolError
from colonnade.ports import Conversation
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import LISTEN
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import ACKNOWLEDGED
from colonnade.transport.duplex import is_covered

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
                return change.uri is not None and is_covered(change.uri, self.uris)

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

    def hear(self, told: NotificationReceived) -> None:
        """Pass on what the server told. Raises `Fault` for what cannot be read."""
        if told.subscription is not None:
            listening = self._subscribed.get(told.subscription)
            hearers: Iterable[Listening] = () if listening is None else (listening,)
        else:
            hearers = tuple(self._in_session)
        if told.method.name == ACKNOWLEDGED:
            params = decode_as(t.SubscriptionsAcknowledgedNotificationParams, told.params)
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


def change_of(told: NotificationReceived) -> Change | None:
    """The change that a notification tells of, if it does. Raises `Fault`."""
    if told.method.name == UPDATED:
        return Change("resource", decode_as(t.ResourceUpdatedNotificationParams, told.params).uri)
    kind = LISTS.get(told.method.name)
    return Change(kind) if kind is not None else None


SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"

# To begin anew: at first, and at most.
RETRY_S = 0.5
MAX_RETRY_S = 30.0
# A subscription that held for so long was a good one, and is not counted as a failure.
HELD_S = 60.0
# All in all some three minutes: a server that is exchanged for a newer one takes less.
MAX_TRIES = 10
# To say that news is not wanted any more: whoever leaves does not wait long for that.
FAREWELL_S = 2.0


def pause_s(tries: int) -> float:
    """How long to wait before the next try: longer each time, never in step with others."""
    return min(RETRY_S * 2.0**tries, MAX_RETRY_S) * (0.5 + random.random() / 2)


class Following:
    """One listening, and what it takes to keep it going."""

    def __init__(
        self, speaker: Speaker, listenings: Listenings, listening: Listening, timeout_s: float
    ) -> None:
        self._speaker = speaker
        self._listenings = listenings
        self._listening = listening
        self._timeout_s = timeout_s
        self._held: tuple[Conversation, RequestId, asyncio.Future[Raw]] | None = None

    # ------------------------------------------------------------ on subscriptions

    @asynccontextmanager
    async def subscribed(self) -> AsyncGenerator[None]:
        """Listen on a subscription, for as long as this is entered."""
        watch: asyncio.Task[None] | None = None
        try:
            error = await self._subscribe()
            if error is not None:
                raise error
            watch = asyncio.get_running_loop().create_task(self._watch_subscription())
            yield
        finally:
            _cancel(watch)  # and nothing waits before all is given up: the wait may be, too
            self._give_up()
            await _ended(watch)

    async def _subscribe(self) -> BaseException | None:
        """Begin a subscription, and wait until it has begun; what ended it before, if it did."""
        params = t.SubscriptionsListenRequestParams(notifications=self._listening.wanted)
        conversation = await self._speaker.ready(LISTEN)
        self._give_up()
        self._listening.await_anew()
        id: RequestId = conversation.link.snapshot().next_id
        self._listenings.add(self._listening, id)  # before: a server in memory may answer at once
        try:
            id, answer = conversation.begin(LISTEN, params, self._timeout_s)
        except BaseException:
            self._listenings.discard(self._listening, id)
            raise
        self._held = conversation, id, answer
        answer.add_done_callback(lambda _: self._listening.rouse())
        await self._listening.begun()
        return _failure(answer) if answer.done() else None

    def _give_up(self) -> None:
        if self._held is None:
            return
        conversation, id, answer = self._held
        self._held = None
        self._listenings.discard(self._listening, id)
        conversation.give_up(id)
        if answer.done():
            _failure(answer)  # which is looked at, so that nobody misses it
        answer.cancel()

    async def _watch_subscription(self) -> None:
        loop = asyncio.get_running_loop()
        tries = 0
        while self._held is not None:
            since = loop.time()
            answer = self._held[2]
            await asyncio.wait([answer])
            error = _failure(answer)
            tries = 0 if loop.time() - since >= HELD_S else tries + 1
            while error is not None and self._worth_it(error, tries):
                await asyncio.sleep(pause_s(tries))
                try:
                    error = await self._subscribe()
                except LocalProtocolError:
                    words = "the server speaks another revision now: listen anew"
                    self._listening.end(ConnectionLost(words))
                    return
                except ColonnadeError as failed:
                    error = failed
                tries += 1
            if error is not None or answer is self._held[2]:
                self._listening.end(error)
                return
            self._listenings.missed(self._listening)

    def _worth_it(self, error: BaseException, tries: int) -> bool:
        repeats = self._speaker.way.repeats and not self._speaker.closed
        return repeats and isinstance(error, ChannelError) and tries <= MAX_TRIES

    # ------------------------------------------------------------ in the session

    @asynccontextmanager
    async def in_session(self) -> AsyncGenerator[None]:
        """Pick from what the session tells, for as long as this is entered."""
        watch: asyncio.Task[None] | None = None
        self._listenings.add(self._listening)
        asked: list[str] = []
        try:
            for uri in self._listening.wanted.resource_subscriptions or ():
                params = t.SubscribeRequestParams(uri=uri)
                await self._speaker.request(SUBSCRIBE, params, self._timeout_s)
                asked.append(uri)
            if self._speaker.way.repeats:
                watch = asyncio.get_running_loop().create_task(self._watch_session())
            yield
        finally:
            _cancel(watch)
            self._listenings.discard(self._listening)
            await _ended(watch)
            if not self._speaker.over:
                await self._unsubscribe(asked)

    async def _unsubscribe(self, asked: list[str]) -> None:
        with contextlib.suppress(ColonnadeError):  # then it is over by itself
            for uri in asked:
                if uri not in self._listenings.followed:
                    params = t.UnsubscribeRequestParams(uri=uri)
                    seconds = min(FAREWELL_S, self._timeout_s)
                    # In this conversation alone: in the next one nobody asks for it.
                    await self._speaker.conversation.request(UNSUBSCRIBE, params, seconds)

    async def _watch_session(self) -> None:
        """Whoever asks for anything begins the session anew; where nobody does, this does."""
        tries = 0
        while True:
            await self._listening.lost.wait()
            error: ColonnadeError = ConnectionLost("the session ended")
            while self._listening.lost.is_set():
                if not self._worth_it(error, tries):
                    self._listening.end(error)
                    return
                await asyncio.sleep(pause_s(tries))
                tries += 1
                try:
                    await self._speaker.ready(LISTEN)
                except ColonnadeError as failed:
                    error = failed
                else:
                    tries = 0
                    self._listening.lost.clear()


def _failure(answer: "asyncio.Future[Raw]") -> BaseException | None:
    return ConnectionLost("the connection ended") if answer.cancelled() else answer.exception()


def _cancel(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()


async def _ended(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        await asyncio.wait([task])
