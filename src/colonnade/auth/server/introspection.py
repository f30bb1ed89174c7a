"""Token introspection (RFC 7662): the issuer is asked whether an opaque access token is active.

    Introspection("https://login.example.com", "client-id", "client-secret")

Rules: the token and the client secret are sent to the configured issuer only. The claims of the
response are checked as those of a JWT are.
"""

import base64
from collections.abc import Iterable
from urllib.parse import quote_plus

from colonnade.auth.fetcher import Fetcher
from colonnade.auth.jose import InvalidToken, UnverifiedJwt, decode_json_object, quote_claim
from colonnade.auth.server.issuer_metadata import OK, check_url
from colonnade.auth.server.verifier import SKEW_S, IssuerVerifier, VerifiedToken
from colonnade.auth.urls import same_issuer
from colonnade.errors import ChannelError


class Introspection(IssuerVerifier):
    """Verifies tokens by introspection (RFC 7662), authenticated as the client `client_id`.

    A result is cached for a few seconds, and never beyond the expiry of the token.
    """

    cache_ttl_s: float = 20.0

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str,
        *,
        endpoint: str | None = None,
        audience: str | Iterable[str] = (),
        networks: Iterable[str] = (),
        skew_s: float = SKEW_S,
    ) -> None:
        super().__init__(issuer, audience, networks, skew_s)
        self._endpoint = check_url(endpoint, "endpoint") if endpoint is not None else None
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"  # RFC 6749, 2.3.1
        self._credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def accepts(self, token: str, signed: UnverifiedJwt | None) -> bool:
        """Any token that does not name another issuer."""
        return signed is None or same_issuer(signed.claims.get("iss", self.issuer), self.issuer)

    async def verify(
        self, token: str, signed: UnverifiedJwt | None, resource: str, now: float, fetcher: Fetcher
    ) -> VerifiedToken:
        """Ask the issuer. Raises `InvalidToken`; `ChannelError` without a valid response."""
        wider = self._fetcher_for_issuer(fetcher)
        url = self._endpoint or await self._document.endpoint("introspection_endpoint", now, wider)
        headers = [
            ("authorization", self._credentials),
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
        ]
        body = f"token={quote_plus(token)}&token_type_hint=access_token"
        fetched = await wider.fetch("POST", url, headers, body.encode())
        if fetched.status != OK or fetched.media_type != "application/json":
            raise ChannelError(f"the issuer responded {fetched.status} to an introspection request")
        claims = decode_json_object(fetched.body)
        if claims.get("active") is not True:
            raise InvalidToken("the token is not active")
        if not same_issuer(claims.get("iss", self.issuer), self.issuer):
            detail = f"iss {quote_claim(claims.get('iss'))}, expected {self.issuer}"
            raise InvalidToken("the token is from another issuer", detail)
        return self._check_claims(claims, resource, now)
