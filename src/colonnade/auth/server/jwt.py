"""JWT access tokens (RFC 9068): signature by the published keys of the issuer, then claims.

    Jwt("https://login.example.com")                                   # keys found by discovery

Rules: a key is found by the configured issuer, never by a header of the token.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeGuard, cast

from colonnade.auth.jose import (
    ALGORITHMS,
    InvalidToken,
    JsonWebKey,
    UnverifiedJwt,
    check_algorithms,
    decode_json_object,
    parse_jwk,
    quote_claim,
    verify_signature,
)
from colonnade.auth.server.verifier import (
    OK,
    SKEW_S,
    IssuerVerifier,
    LoopLock,
    VerifiedToken,
    check_url,
)
from colonnade.auth.ssrf import Fetcher
from colonnade.auth.urls import same_issuer
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


# ---------------------------------------------------------------- jwt


# A token without a key id is verified with this many keys at most: each attempt takes time.
MAX_KEYS_TRIED: Final = 8

# RFC 9068, and what issuers used before it. Others are not access tokens: `oauth-id-jag+jwt` is
# a grant, `dpop+jwt` a proof, `logout+jwt` an event.
_TYPES = frozenset({"at+jwt", "application/at+jwt", "jwt", "application/jwt"})


class Jwt(IssuerVerifier):
    """Verifies JWT access tokens; the keys are found through the metadata, or at `jwks_url`.

    `audience` is the expected `aud` claim if it is not the server's URL (`api://notes`).
    `algorithms` are the accepted signature algorithms. `networks` are private ranges in which the
    issuer may be: `["10.0.0.0/8"]`. Raises `LocalProtocolError` for invalid settings.
    """

    cache_ttl_s: float = 60.0

    def __init__(
        self,
        issuer: str,
        *,
        audience: str | Iterable[str] = (),
        jwks_url: str | None = None,
        algorithms: Iterable[str] = ALGORITHMS,
        networks: Iterable[str] = (),
        skew_s: float = SKEW_S,
    ) -> None:
        super().__init__(issuer, audience, networks, skew_s)
        self._jwks_url = check_url(jwks_url, "jwks_url") if jwks_url is not None else None
        self._algorithms = check_algorithms(algorithms)
        self._keys = KeySet(self._find_keys)

    async def _find_keys(self, now: float, fetcher: Fetcher) -> str:
        return self._jwks_url or await self._document.endpoint("jwks_uri", now, fetcher)

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Whether the claim `iss` names this issuer; the signature is checked by `verify`."""
        return self._is_from_issuer(signed)

    def _is_from_issuer(self, signed: UnverifiedJwt | None) -> TypeGuard[UnverifiedJwt]:
        return signed is not None and same_issuer(signed.claims.get("iss"), self.issuer)

    async def verify(
        self, token: str, signed: UnverifiedJwt | None, resource: str, now: float, fetcher: Fetcher
    ) -> VerifiedToken:
        """Verify signature and claims. Raises `InvalidToken`; `ChannelError` without any keys."""
        if not self._is_from_issuer(signed):
            raise InvalidToken("the token is from another issuer")
        kind = signed.header.get("typ", "jwt")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise InvalidToken("this is not an access token")
        wider = self._fetcher_for_issuer(fetcher)
        keys = await self._keys.matching(signed.key_id, signed.algorithm, now, wider)
        verify_with_any(signed, keys, self._algorithms, self.issuer)
        return self._check_claims(signed.claims, resource, now)


def verify_with_any(
    signed: UnverifiedJwt, keys: Sequence[JsonWebKey], algorithms: Iterable[str], issuer: str
) -> None:
    """Raise `InvalidToken` unless one of the keys of its issuer signed it."""
    detail = f"kid {quote_claim(signed.header.get('kid'))}, issuer {issuer}"
    problem = InvalidToken(
        "the token is signed with a key that the issuer does not publish", detail
    )
    for key in keys[:MAX_KEYS_TRIED]:
        try:
            verify_signature(signed, key, algorithms)
        except InvalidToken as error:
            problem = error
        else:
            return
    raise problem
