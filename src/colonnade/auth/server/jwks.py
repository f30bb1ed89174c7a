"""JSON Web Key Set (JWKS, RFC 7517) of an issuer: fetched, cached, refreshed.

Rules: a key that the issuer has withdrawn is trusted for `KEYS_FRESH_S` at most. If the issuer
cannot be reached, its keys are used for `STALE_S`, then its tokens are rejected. An unknown key id
causes one refresh in `LOOK_AGAIN_S`, so that made-up tokens cannot cause a stream of requests.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from colonnade.auth.fetcher import Fetcher
from colonnade.auth.jose import InvalidToken, JsonWebKey, decode_json_object, parse_jwk
from colonnade.auth.server.issuer_metadata import OK, LoopLock
from colonnade.errors import CannotFetch, ChannelError

log: logging.Logger = logging.getLogger("colonnade.auth")

# A key that the issuer has withdrawn is trusted for this long at most.
FRESH_S: Final = 600.0
# If the issuer does not respond, its keys are used for this long; then its tokens are rejected.
STALE_S: Final = 3600.0
# An unknown key id causes a refresh, this often at most: RS-15.
UNKNOWN_KEY_RETRY_S: Final = 30.0
# After a failed fetch.
RETRY_S: Final = 5.0
# Multi-tenant issuers publish some dozens.
MAX_KEYS: Final = 256


class KeySet:
    """The keys of one issuer. `find` returns the URL of the key set."""

    def __init__(self, find: Callable[[float, Fetcher], Awaitable[str]]) -> None:
        self._find = find
        self._keys: tuple[JsonWebKey, ...] = ()
        self._loaded_at: float | None = None
        self._asked_at: float | None = None
        self._failed = False
        self._lock = LoopLock()

    async def matching(
        self, key_id: str, algorithm: str, now: float, fetcher: Fetcher
    ) -> list[JsonWebKey]:
        """Keys that fit a key id and an algorithm. Raises `ChannelError` if no keys are known."""
        if self._is_due(key_id, now):
            lock = self._lock()
            # A token whose key is cached does not wait for a refresh that is under way.
            if not (lock.locked() and self._is_known(key_id) and self._is_usable(now)):
                async with lock:
                    if self._is_due(key_id, now):
                        await self._load(now, fetcher)
                        self._asked_at = now
        if not self._is_usable(now):
            raise ChannelError("the keys of the issuer are not available")
        named = [key for key in self._keys if not key_id or key.id == key_id]
        return [key for key in named if key.fits(algorithm)]

    def _is_due(self, key_id: str, now: float) -> bool:
        if self._asked_at is not None and now - self._asked_at < RETRY_S:
            return False
        if self._loaded_at is None or self._failed or now - self._loaded_at > FRESH_S:
            return True
        return not self._is_known(key_id) and now - self._loaded_at > UNKNOWN_KEY_RETRY_S

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
                raise ChannelError(
                    f"the issuer responded {fetched.status} to the request for its keys"
                )
            listed = decode_json_object(fetched.body).get("keys")
            if not isinstance(listed, list):
                raise InvalidToken("the key set has no array of keys")
        except (ChannelError, InvalidToken) as error:
            why = error.why if isinstance(error, CannotFetch) else error
            log.warning("cannot fetch the keys of an issuer: %s: %s", error, why)
            return
        found = [parse_jwk(one) for one in cast("list[Any]", listed)[:MAX_KEYS]]
        self._keys = tuple(key for key in found if key is not None)
        self._loaded_at, self._failed = now, False
