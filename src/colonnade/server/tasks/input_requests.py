"""Input requests of tasks of 2025-11-25, as requests to the client.

They are sent while the client holds `tasks/result` open. For a client that does not call it, they
are sent on the stream that it reads beside its requests, after some seconds (D73).

Rules: an input request is sent in one place at a time, and cancelled when it has a response, or is
sent elsewhere. A client that cannot be asked leaves it open for another request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial

from msgspec import Raw

from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
)
from colonnade.ports import Session
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.revision import Revision
from colonnade.protocol.tasks.lifecycle import InputReceived, InputRefused, TaskEvent
from colonnade.protocol.tasks.record import TaskError, TaskRecord
from colonnade.protocol.tasks.results import related_input_requests
from colonnade.server.tasks.storage import ChangeWaiter, TaskStorage

log: logging.Logger = logging.getLogger("colonnade.tasks")

# How long the client of a task that waits for input may take to call `tasks/result`.
UNCLAIMED_S = 5.0
# A change that was not noticed is found after this time at the latest.
CHECK_S = 15.0

# Sends an input request and waits for its result.
SendInput = Callable[[InputRequest], Awaitable[Raw]]
# Applies a response to a task.
TakeResponse = Callable[[TaskRecord, TaskEvent], Awaitable[None]]


class InputSender:
    """Sends the input requests of one task in one place, each once."""

    def __init__(self, send: SendInput, revision: Revision, take: TakeResponse) -> None:
        self._send = send
        self._revision = revision
        self._take = take
        self._sent: dict[str, asyncio.Task[None]] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether one that was sent has no response yet."""
        return any(not one.done() for one in self._sent.values())

    def update(self, record: TaskRecord) -> None:
        """Send the input requests that are new; cancel those that have a response."""
        for key in self._sent.keys() - record.pending.keys():
            self._sent[key].cancel()  # answered elsewhere, or withdrawn
        for key, input_request in related_input_requests(record).items():
            if key not in self._sent:
                work = self._send_one(record, key, input_request)
                self._sent[key] = asyncio.get_running_loop().create_task(work)

    async def close(self) -> None:
        """Cancel those that have no response."""
        for one in self._sent.values():
            one.cancel()
        if self._sent:
            await asyncio.wait(self._sent.values())

    async def _send_one(self, record: TaskRecord, key: str, input_request: InputRequest) -> None:
        try:
            raw = await self._send(input_request)
            await self._take(record, InputReceived({key: raw}, self._revision))
        except RemoteError as error:
            await self._take(record, InputRefused(key, TaskError.of(error)))
        except Fault as fault:  # the response does not fit
            error = TaskError(fault.message, code=self._revision.codes[FaultKind.INVALID_PARAMS])
            await self._take(record, InputRefused(key, error))
        except (ChannelError, LocalProtocolError) as error:
            # This client cannot be asked here; the input request stays open for another request.
            log.debug("task %s: an input request could not be sent: %s", record.id, error)


class UnclaimedInput:
    """The tasks that wait for input while their clients do not call `tasks/result`."""

    def __init__(self, storage: TaskStorage, take: TakeResponse) -> None:
        self._storage = storage
        self._take = take
        # By task: how many `tasks/result` are open.
        self._claims: dict[str, int] = {}
        self._offers: dict[str, asyncio.Task[None]] = {}

    @contextmanager
    def claimed(self, id: str) -> Generator[None]:
        """`tasks/result` of this task is open."""
        self._claims[id] = self._claims.get(id, 0) + 1
        offer = self._offers.get(id)
        if offer is not None:
            offer.cancel()
        try:
            yield
        finally:
            self._claims[id] -= 1
            if not self._claims[id]:
                del self._claims[id]

    def offer(
        self,
        record: TaskRecord,
        revision: Revision,
        sessions: Iterable[Session],
        scopes: frozenset[str],
    ) -> None:
        """A client can see that the task waits for input. Its sessions are asked if it does not
        call `tasks/result`; `scopes` are those that a reader needs."""
        if record.id not in self._offers and record.id not in self._claims:
            work = self._offer(record, revision, sessions, scopes)
            offer = self._offers[record.id] = asyncio.get_running_loop().create_task(work)
            offer.add_done_callback(lambda _: self._offers.pop(record.id, None))

    async def _offer(
        self,
        record: TaskRecord,
        revision: Revision,
        sessions: Iterable[Session],
        scopes: frozenset[str],
    ) -> None:
        await asyncio.sleep(UNCLAIMED_S)
        for session in list(sessions):
            sender = InputSender(
                partial(session.request_input, scopes=scopes), revision, self._take
            )
            try:
                await self._send(record, sender)
            except ColonnadeError as error:
                log.warning("tasks: the store failed: %s", error)
            finally:
                await sender.close()

    async def _send(self, record: TaskRecord, sender: InputSender) -> None:
        """Send the input requests of a task until none waits for a response."""
        with ChangeWaiter(self._storage.changes, record.id) as changed:
            while True:
                found = await self._storage.read(record.principal, record.id)
                if found is None or found.record.status != "input_required":
                    return
                sender.update(found.record)
                await asyncio.sleep(0)  # what cannot be sent has failed then
                if not sender.is_waiting:
                    return
                await changed.wait(CHECK_S)

    def close(self) -> None:
        """Send nothing more."""
        for offer in list(self._offers.values()):
            offer.cancel()
