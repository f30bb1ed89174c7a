"""Where credentials live: a store of one principal, sealed where it outlives this process.

A lease says who is renewing or logging in now, in all processes that share the store: it is no
lock, nobody who has a good token waits for it, and it ends by itself where its holder has died.

Rules: nothing that is kept can be read or moved without the key: each value is sealed for its own
name. What does not open is as good as nothing. No value is ever in a log or an error.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from colonnade.auth.seal import KeyRing
from colonnade.errors import ColonnadeError, Fault
from colonnade.ports import Store

log: logging.Logger = logging.getLogger("colonnade.auth")

# A process that died while it renewed keeps the others waiting for this long.
LEASE_S = 20.0
# How often its holder says that it is still at it.
BEAT_S = 5.0


class Vault:
    """What one principal keeps. Without keys nothing is sealed: for a store in memory."""

    def __init__(
        self, store: Store, principal: str = "", keys: Sequence[bytes] = (), *, own: bool = False
    ) -> None:
        self._store = store
        self._principal = principal
        self._keys = tuple(keys)
        # Whether the store is nobody else's, and ends with this.
        self._own = own

    def __repr__(self) -> str:
        return f"Vault({type(self._store).__name__})"

    async def load(self, name: str) -> bytes | None:
        """What is kept under a name. Raises what the store raises."""
        value = await self._store.get(self._principal, name)
        if value is None or not self._keys:
            return value
        try:
            return self._ring(name).unseal(value.decode("ascii", "replace"))
        except Fault:
            log.warning("something kept of a login does not open with this key; log in again")
            return None

    async def save(self, name: str, value: bytes) -> None:
        """Keep this under a name."""
        kept = self._ring(name).seal(value).encode() if self._keys else value
        await self._store.put(self._principal, name, kept, None)

    async def erase(self, name: str) -> None:
        """Keep nothing under a name."""
        await self._store.delete(self._principal, name)

    async def close(self) -> None:
        """Let the store go, where it is ours."""
        if self._own:
            await self._store.close()

    def _ring(self, name: str) -> KeyRing:
        return KeyRing(self._keys, audience=f"{self._principal}\0{name}")

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[bool, None]:
        """Whether it is ours to do what this name stands for, for as long as this is entered."""
        owner = secrets.token_bytes(16)
        if not await self.claim(name, owner):
            yield False
            return
        beating = asyncio.get_running_loop().create_task(self._beat(name, owner))
        try:
            yield True
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError, ColonnadeError):
                await beating
            with contextlib.suppress(ColonnadeError):  # then it ends by itself
                if await self._store.get(self._principal, name) == owner:
                    await self._store.delete(self._principal, name)

    async def claim(self, name: str, owner: bytes) -> bool:
        """Take a lease where nobody has it."""
        return await self._store.add(self._principal, name, owner, LEASE_S)

    async def _beat(self, name: str, owner: bytes) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if await self._store.get(self._principal, name) != owner:
                return  # we were away for too long, and it is somebody else's
            await self._store.put(self._principal, name, owner, LEASE_S)
