"""The keys that an issuer publishes (JWKS): fetched once for all, kept, followed as they change.

Rules: whatever tokens say, an issuer is asked only so often. Keys that cannot be fetched anew are
used for a while and then no more. A key that is not known to us is passed over, never an error.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from colonnade.auth.fetching import Fetcher
from colonnade.auth.jwt import BadToken, Key, read_key, read_object
from colonnade.auth.turnstile import Turnstile
from colonnade.errors import CannotFetch, ChannelError

log: logging.Logger = logging.getLogger("colonnade.auth")

# A key that an issuer took back is trusted for no longer than this.
FRESH_S: Final = 600.0
# An issuer that does not answer may be away for so long; then its tokens are no longer believed.
STALE_S: Final = 3600.0
# A token with a key that nobody knows makes us look again, this often at most: RS-15.
LOOK_AGAIN_S: Final = 30.0
# And an issuer that failed is asked again after this.
RETRY_S: Final = 5.0
# Issuers that serve many tenants have some dozens.
MAX_KEYS: Final = 256
OK = 200


class KeySet:
    """The keys of one issuer; `find` says where they are, and may have to ask for that."""

    def __init__(self, find: Callable[[float, Fetcher], Awaitable[str]]) -> None:
        self._find = find
        self._keys: tuple[Key, ...] = ()
        self._loaded_at: float | None = None
        self._asked_at: float | None = None
        self._failed = False
        self._turnstile = Turnstile()

    async def matching(
        self, key_id: str, algorithm: str, now: float, fetcher: Fetcher
    ) -> list[Key]:
        """The keys that a token may be signed with. Raises `ChannelError` where none are known."""
        if self._is_due(key_id, now):
            turn = self._turnstile()
            # Whoever can be judged by the keys that we have does not wait for others.
            if not (turn.locked() and self._is_known(key_id) and self._is_usable(now)):
                async with turn:
                    if self._is_due(key_id, now):
                        await self._load(now, fetcher)
                        self._asked_at = now
        if not self._is_usable(now):
            raise ChannelError("the keys of the issuer are not known")
        named = [key for key in self._keys if not key_id or key.id == key_id]
        return [key for key in named if key.fits(algorithm)]

    def _is_due(self, key_id: str, now: float) -> bool:
        if self._asked_at is not None and now - self._asked_at < RETRY_S:
            return False
        if self._loaded_at is None or self._failed or now - self._loaded_at > FRESH_S:
            return True
        return not self._is_known(key_id) and now - self._loaded_at > LOOK_AGAIN_S

    def _is_known(self, key_id: str) -> bool:
        return not key_id or any(key.id == key_id for key in self._keys)

    def _is_usable(self, now: float) -> bool:
        return self._loaded_at is not None and now - self._loaded_at <= STALE_S

    async def _load(self, now: float, fetcher: Fetcher) -> None:
        self._failed = True
        try:
            url = await self._find(now, fetcher)
            fetched = await fetcher.fetch("GET", url, [("accept", "application/json")])
            if fetched.status != OK:
                raise ChannelError(f"the issuer answered {fetched.status} for its keys")
            listed = read_object(fetched.body).get("keys")
            if not isinstance(listed, list):
                raise BadToken("no keys")
        except (ChannelError, BadToken) as error:
            why = error.why if isinstance(error, CannotFetch) else error
            log.warning("the keys of an issuer cannot be read: %s: %s", error, why)
            return
        found = [read_key(one) for one in cast("list[Any]", listed)[:MAX_KEYS]]
        self._keys = tuple(key for key in found if key is not None)
        self._loaded_at, self._failed = now, False
