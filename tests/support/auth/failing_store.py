"""A store of which some writes fail, as if its connection were lost."""

from collections.abc import Callable

from colonnade.errors import ConnectionLost
from colonnade.store.memory import MemoryStore


class FailingStore(MemoryStore):
    """Writes of keys that contain `failing` raise; with none set, it is a store as others."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock=clock, is_shared=True)
        self.failing = ""

    def _fail(self, key: str) -> None:
        if self.failing and self.failing in key:
            raise ConnectionLost("the connection to the store was lost")

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        self._fail(key)
        await super().put(principal, key, value, ttl_s)

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        self._fail(key)
        return await super().swap(principal, key, before, after, ttl_s)
