"""What keeps a listening going: its subscription or its session, and the next one after that.

Rules: what a server refuses is the listener's to know, at once. What is only lost is tried again,
less often each time and never in step with others, and given up in the end.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import Raw

from colonnade.client.listening import Listening, Listenings
from colonnade.client.speaking import Speaker
from colonnade.errors import ChannelError, ColonnadeError, ConnectionLost, LocalProtocolError
from colonnade.ports import Conversation
from colonnade.protocol import types as t
from colonnade.protocol.exchange import LISTEN
from colonnade.protocol.jsonrpc import RequestId

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
        id: RequestId = conversation.link.record().next_id
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
