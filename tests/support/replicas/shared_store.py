"""Replicas on one store in one event loop, whose clock a test advances; a store that can fail."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

from colonnade.errors import CannotConnect
from colonnade.ports import Store
from colonnade.replicas.replica import Replica, ReplicaMessage, decode_message
from colonnade.store.memory import MemoryStore
from colonnade.testing import Clock


class SharedStore(MemoryStore):
    """A store in memory; while it is away, every operation fails and no message arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.published: list[tuple[str, bytes]] = []
        # Whether leases can be renewed, and ids be taken.
        self.renews_leases = True
        self.adds = asyncio.Event()
        self.adds.set()
        # Whether topics can be listened to; those who listen already go on.
        self.listens = asyncio.Event()
        self.listens.set()
        # Messages that are lost on the way.
        self.loses: Callable[[ReplicaMessage], bool] = lambda message: False

    def leave(self) -> None:
        """Fail from now on."""
        self.away = True
        self.cut_listeners()

    def cut_listeners(self) -> None:
        """Lose the connections of all listeners, once."""
        for listener in self._topics.everyone():
            listener.cut("the connection was lost")

    def _enter(self, principal: str, name: str) -> None:
        if self.away:
            raise CannotConnect("the store is away")
        super()._enter(principal, name)

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        if key.startswith("replica ") and not self.renews_leases:
            raise CannotConnect("the store takes no leases")
        await super().put(principal, key, value, ttl_s)

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        if key.startswith("replica ") and not self.renews_leases:
            raise CannotConnect("the store takes no leases")
        return await super().swap(principal, key, before, after, ttl_s)

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        added = await super().add(principal, key, value, ttl_s)
        await self.adds.wait()
        return added

    @asynccontextmanager
    async def listen(
        self, principal: str, topic: str
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        await self.listens.wait()
        async with super().listen(principal, topic) as messages:
            yield messages

    async def publish(self, principal: str, topic: str, message: bytes) -> int | None:
        self._enter(principal, topic)
        self.published.append((topic, message))
        decoded = decode_message(message)
        if not isinstance(decoded, str) and self.loses(decoded):
            return 1  # on its way to one who listens
        return await super().publish(principal, topic, message)


class ReplicaStore:
    """The store as one replica sees it; `stop` and `resume` do what SIGSTOP and SIGCONT do."""

    def __init__(self, shared: SharedStore) -> None:
        self._shared = shared
        self._runs = asyncio.Event()
        self._runs.set()

    def stop(self) -> None:
        """Let nothing pass, in both directions; what arrives waits."""
        self._runs.clear()

    def resume(self) -> None:
        """Let everything pass, first what waits."""
        self._runs.set()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            await self._runs.wait()
            return await getattr(self._shared, name)(*arguments)

        return call

    @asynccontextmanager
    async def listen(
        self, principal: str, topic: str
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        await self._runs.wait()
        async with self._shared.listen(principal, topic) as messages:
            yield self._pass_on(messages)

    async def _pass_on(self, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for message in messages:
            await self._runs.wait()
            yield message


class ReplicaFixture:
    """Replicas on one store in one loop."""

    def __init__(self, clock: Clock, ending: AsyncExitStack) -> None:
        self.clock = clock
        self.store = SharedStore()
        self._ending = ending
        self._stores: dict[Replica, ReplicaStore] = {}

    def make(self, **options: Any) -> Replica:
        """A replica that is not started, and is closed with the test."""
        store = ReplicaStore(self.store)
        replica = Replica(cast("Store", store), clock=self.clock.monotonic, **options)
        self._stores[replica] = store
        self._ending.push_async_callback(replica.close)
        self._ending.callback(store.resume)
        return replica

    async def started(self, **options: Any) -> Replica:
        """A replica that is started."""
        replica = self.make(**options)
        await replica.start()
        return replica

    def stop(self, replica: Replica) -> None:
        """Stop a replica without notice, as SIGSTOP does."""
        self._stores[replica].stop()

    async def resume(self, replica: Replica) -> None:
        """Let it go on, as SIGCONT does."""
        self._stores[replica].resume()
        await self.settle()

    async def settle(self) -> None:
        """Wait until everything that can happen now has happened."""
        await self.clock.advance(0)


def run_replicas(body: Callable[[ReplicaFixture], Awaitable[None]]) -> None:
    """Run a test in a loop of its own, in which no time passes by itself."""

    async def whole() -> None:
        with Clock() as clock:
            async with AsyncExitStack() as ending:
                fixture = ReplicaFixture(clock, ending)
                await body(fixture)
            await fixture.store.close()

    asyncio.run(whole())
