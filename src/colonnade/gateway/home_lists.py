"""Changed lists of a caller, for the replicas that are not connected to the home of its session.

A replica that has no session of a caller shows the lists that it has read before, or those of a
manifest, since a process that is not started changes nothing. If the process runs at another
replica, that one says when its lists have changed.

Rules: only the home of a session announces. However often lists change, each is announced at once
and then at most every `INTERVAL_S`.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from colonnade.errors import ColonnadeError
from colonnade.host.runtime import ListChanges
from colonnade.host.servers.listings import ListKind
from colonnade.replicas.remote_messages import REMOTE_VERSION, decode_remote, encode_remote
from colonnade.replicas.replica import Replica

log: logging.Logger = logging.getLogger("colonnade.gateway")

INTERVAL_S = 0.1
# Lists that wait to be announced; of further ones other replicas are not told.
MAX_WAITING = 10_000
CLOSE_S = 1.0

KIND = "gateway lists"

# Called with the key of a server, a caller, and the lists that have changed.
OnLists: TypeAlias = Callable[[str, str, Sequence[ListKind]], None]
# Whether this replica has the session of a caller, by the key of the server and the principal.
IsHome: TypeAlias = Callable[[str, str], bool]


class ListsAnnounced(Struct, frozen=True, array_like=True):
    """Lists of a server have changed for a caller."""

    version: int
    server: str
    caller: str
    kinds: Annotated[tuple[ListKind, ...], Meta(max_length=4)]


class HomeLists:
    """Announces the changed lists of homes at this replica, and receives those of others."""

    def __init__(self, replica: Replica, is_home: IsHome, on_lists: OnLists) -> None:
        self._replica = replica
        self._is_home = is_home
        self._on_lists = on_lists
        self._waiting: dict[tuple[str, str, tuple[ListKind, ...]], None] = {}
        self._sender: asyncio.Task[None] | None = None
        replica.handle(KIND, self._on_announced)

    def announce(self, changes: ListChanges) -> None:
        """Let other replicas know of changed lists, if the session of their caller is here."""
        if changes.caller is None:
            return  # all replicas notice those themselves
        for server in changes.servers:
            if self._is_home(server, changes.caller) and len(self._waiting) < MAX_WAITING:
                self._waiting[server, changes.caller, changes.kinds] = None
        if self._waiting and self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, {}
                for server, caller, kinds in waiting:
                    announced = ListsAnnounced(REMOTE_VERSION, server, caller, kinds)
                    await self._replica.broadcast(KIND, encode_remote(announced))
                await asyncio.sleep(INTERVAL_S)
        except ColonnadeError as error:
            log.info("changed lists were not announced to other replicas: %s", error)
        finally:
            self._sender = None

    async def _on_announced(self, sender: str, body: bytes) -> None:
        announced = decode_remote(ListsAnnounced, body)
        if announced is not None:
            self._on_lists(announced.server, announced.caller, announced.kinds)

    async def close(self) -> None:
        """Announce nothing any more."""
        sender = self._sender
        if sender is not None:
            sender.cancel()
            await asyncio.wait((sender,), timeout=CLOSE_S)
