"""JWT access tokens (RFC 9068): signature by the published keys of the issuer, then claims.

    Jwt("https://login.example.com")                                   # keys found by discovery

Rules: a key is found by the configured issuer, never by a header of the token.
"""

from collections.abc import Iterable
from typing import Final, TypeGuard

from colonnade.auth.fetcher import Fetcher
from colonnade.auth.jose import (
    ALGORITHMS,
    InvalidToken,
    UnverifiedJwt,
    check_algorithms,
    quote_claim,
    verify_signature,
)
from colonnade.auth.server.issuer_metadata import check_url
from colonnade.auth.server.jwks import KeySet
from colonnade.auth.server.verifier import SKEW_S, IssuerVerifier, VerifiedToken
from colonnade.auth.urls import same_issuer

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
        detail = f"kid {quote_claim(signed.header.get('kid'))}, issuer {self.issuer}"
        problem = InvalidToken(
            "the token is signed with a key that the issuer does not publish", detail
        )
        for key in keys[:MAX_KEYS_TRIED]:
            try:
                verify_signature(signed, key, self._algorithms)
            except InvalidToken as error:
                problem = error
            else:
                return self._check_claims(signed.claims, resource, now)
        raise problem
