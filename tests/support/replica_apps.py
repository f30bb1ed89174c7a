"""Several applications on one store in one event loop, and a client whose every request goes to the
next of them, as behind a round-robin balancer."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from colonnade.ports import Seal
from colonnade.protocol import types as t
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.http_server.sessions.record import (
    ANONYMOUS_SESSIONS,
    SessionRecord,
    decode_record,
    record_key,
)
from colonnade.transport.http_server.sessions.shared_session import SharedSession
from http_client import Caller, Response, Wire
from http_service import FakeService
from live import until
from replicas.shared_store import SharedStore


class ReplicasStore(SharedStore):
    """A store in memory that counts its operations, that can be away, and whose logs can be slow."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        # Logs grow when the first is set; who adds to them is told so when the second is.
        self.appends = asyncio.Event()
        self.appends.set()
        self.acknowledges = asyncio.Event()
        self.acknowledges.set()

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        await self.appends.wait()
        number = await super().append(principal, log, entry, ttl_s)
        await self.acknowledges.wait()
        return number

    @property
    def is_shared(self) -> bool:
        return True

    def _enter(self, principal: str, name: str) -> None:
        self.operations += 1
        super()._enter(principal, name)


class ReplicaApp:
    """One of the applications."""

    def __init__(self, store: ReplicasStore, seal: Seal | None = None, **settings: Any) -> None:
        self.service = FakeService()
        self.service.shared_seal = seal
        self.service.shared_store = store
        self.app = HttpApp(self.service, **settings)
        self.site = HttpRunner(self.app, port=0)

    @property
    def name(self) -> str:
        assert self.app._replica is not None
        return self.app._replica.name

    @property
    def sessions(self) -> list[SharedSession]:
        return [session for session in self.app._sessions if isinstance(session, SharedSession)]

    async def kill(self) -> None:
        """End without notice: the lease lapses, connections break, nothing is written."""
        replica = self.app._replica
        assert replica is not None
        store = replica.store
        await store.delete("\x01server", f"replica {replica.name}")
        for task in [*replica._services, *replica._running]:
            task.cancel()
        replica._services.clear()


class RoundRobin(Caller):
    """A client whose every request goes to the next application."""

    def __init__(self, apps: list[ReplicaApp]) -> None:
        super().__init__(apps[0].site.port)
        self.apps = apps
        self.next = 0

    async def wire(self) -> Wire:
        self.port = self.apps[self.next % len(self.apps)].site.port
        self.next += 1
        return await super().wire()

    def at(self, index: int) -> "RoundRobin":
        """The next request goes to this application."""
        self.next = index
        return self

    async def open(self, date: str, **capabilities: Any) -> None:
        """Open a session: `initialize` to the first, `initialized` to the second application."""
        self.next, self.session, self.revision = 0, None, None
        await self.initialize(date, capabilities or None)
        assert self.session is not None

    async def say(self, method: str, params: dict[str, Any] | None = None, **more: Any) -> Response:
        return await self.ask(method, params, **more)


class Replicas:
    """The applications, their store, and a client."""

    def __init__(self, store: ReplicasStore, apps: list[ReplicaApp]) -> None:
        self.store = store
        self.apps = apps
        self.caller = RoundRobin(apps)

    def publish(self, method: str, **params: Any) -> None:
        """A change that every process hears."""
        news = t.ResourceUpdatedNotificationParams(**params) if params else None
        for app in self.apps:
            app.service.publish(method, news)

    def copies(self) -> list[SharedSession | None]:
        """The copies of the client's session, in each application."""
        return [
            next((s for s in app.sessions if s.id == self.caller.session), None)
            for app in self.apps
        ]

    async def record(self) -> SessionRecord:
        """The record of the client's session in the store."""
        data = await self.store.get(ANONYMOUS_SESSIONS, record_key(self.caller.session or ""))
        record = decode_record(data or b"")
        assert record is not None
        return record

    async def listening(self, index: int) -> None:
        """Wait until all copies know that this application has the stream for notifications."""
        name = self.apps[index].name
        await until(lambda: all(c is None or c.record.listener == name for c in self.copies()))


@asynccontextmanager
async def replica_apps(count: int = 3, **settings: Any) -> AsyncGenerator[Replicas]:
    """Serve applications on free ports for as long as this is entered."""
    store = ReplicasStore()
    async with AsyncExitStack() as ending:
        apps = [ReplicaApp(store, **settings) for _ in range(count)]
        for app in apps:
            await app.site.start()
            ending.push_async_callback(app.site.stop, 0.0)
        replicas = Replicas(store, apps)
        await ending.enter_async_context(replicas.caller)
        yield replicas
    await store.close()


def parsed(event_data: bytes) -> Any:
    return json.loads(event_data)
