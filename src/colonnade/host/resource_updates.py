"""Updates of resources: one subscription to some resources of one server, for one caller; the same
of tasks.

    updates = ResourceUpdates(runtime.session, "files", {"file:///a"}, make_request, on_update)
    agreed = await updates.start()
    ...
    await updates.close()

Rules: the session of the subscription stays open as long as it lasts. A subscription that is lost
is made again, and then all of its resources count as updated.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from colonnade.client.subscriptions import MAX_TRIES, ChangeStream, retry_delay_s
from colonnade.errors import ColonnadeError, Fault, FaultKind
from colonnade.host.servers.session import SessionCall
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.revision import ChangeNotifications

log: logging.Logger = logging.getLogger("colonnade.host")

OpenSession: TypeAlias = Callable[[str, RequestContext], AbstractAsyncContextManager[SessionCall]]


class ResourceUpdates:
    """Calls `on_update` with the URI of each resource that was updated, until it is closed."""

    def __init__(
        self,
        open_session: OpenSession,
        server: str,
        uris: frozenset[str],
        make_request: Callable[[], RequestContext],
        on_update: Callable[[str], None],
    ) -> None:
        self._open_session = open_session
        self._server = server
        self._uris = uris
        self._make_request = make_request
        self._on_update = on_update
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> frozenset[str]:
        """Subscribe; returns the resources that the server agreed to send updates of. Raises what
        the server or the connection to it raises, and `Fault` if it has no subscriptions."""
        agreed: asyncio.Future[frozenset[str]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._run(agreed))
        try:
            return await asyncio.shield(agreed)
        except BaseException:
            if agreed.done() and not agreed.cancelled():
                agreed.exception()
            await self.close()
            raise

    async def close(self) -> None:
        """Unsubscribe."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, agreed: "asyncio.Future[frozenset[str]]") -> None:
        tries = 0
        while True:
            try:
                await self._subscribe(agreed)
            except (ColonnadeError, Fault) as error:
                if not agreed.done():
                    agreed.set_exception(error)
                    return
                log.info("server %r: the subscription has ended: %s", self._server, error)
            tries += 1
            if tries > MAX_TRIES:
                log.warning("server %r sends no updates of resources any more", self._server)
                return
            await asyncio.sleep(retry_delay_s(tries))

    async def _subscribe(self, agreed: "asyncio.Future[frozenset[str]]") -> None:
        """Subscribe until the subscription ends."""
        async with self._open_session(self._server, self._make_request()) as call:
            call.is_background = True
            client = call.client
            in_session = client.peer.revision.change_notifications is ChangeNotifications.SESSION
            if in_session and not client.peer.offers("resources.subscribe"):
                message = f"server {self._server!r} sends no updates of resources"
                raise Fault(FaultKind.METHOD_NOT_FOUND, message)
            async with client.listen(resources=sorted(self._uris)) as changes:
                found = self._uris.intersection(changes.agreed.resource_subscriptions or ())
                await self._pass_on(changes, found, agreed)

    async def _pass_on(
        self,
        changes: ChangeStream,
        found: frozenset[str],
        agreed: "asyncio.Future[frozenset[str]]",
    ) -> None:
        if not agreed.done():
            agreed.set_result(found)
        else:
            for uri in sorted(found):  # some may have been missed
                self._on_update(uri)
        async for change in changes:
            if change.uri is not None:
                self._on_update(change.uri)


class TaskUpdates(ResourceUpdates):
    """Calls `on_update` with the id of each task of the extension that has changed."""

    async def _subscribe(self, agreed: "asyncio.Future[frozenset[str]]") -> None:
        async with self._open_session(self._server, self._make_request()) as call:
            call.is_background = True
            if t.TASKS_EXTENSION_ID not in call.client.peer.extensions:
                message = f"server {self._server!r} sends no states of tasks"
                raise Fault(FaultKind.METHOD_NOT_FOUND, message)
            async with call.client.listen_to_tasks(sorted(self._uris)) as changes:
                found = self._uris.intersection(changes.agreed.task_ids or ())
                await self._pass_on(changes, found, agreed)
