"""A replica of an identity provider without registration, with one client, for `OAuthProxy`.

    replica = UpstreamReplica()
    url = replica.log_in(authorization_url, "ann")     # the callback URL that the browser goes to

Rules: what is not exactly right is refused: the client, the redirect URI, PKCE, a code or a refresh
token that was used before. Every token contains the word CANARY and the name of its user.
"""

import base64
import hashlib
import secrets
from collections import Counter
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from colonnade.auth.server.proxy.provider import (
    Provider,
    UpstreamRefused,
    UpstreamTokens,
    UpstreamUser,
)
from colonnade.auth.ssrf import Fetcher
from colonnade.errors import ChannelError

LOGIN_PAGE = "https://login.provider.example/authorize"
ISSUER = "https://login.provider.example"
CANARY = "CANARY"


class UpstreamReplica:
    """The provider, and the object that a proxy knows it by."""

    name = "Example ID"
    issuer = ISSUER
    token_issuers: tuple[str, ...] = ()
    client_id = "proxy-client"
    client_secret = "proxy-secret"
    scopes: tuple[str, ...] = ("openid", "profile")

    def __init__(self, redirect_uri: str, *, life_s: float | None = 60.0) -> None:
        self.redirect_uri = redirect_uri
        self.life_s = life_s
        self.gives_refresh_tokens = True
        self.reachable = True
        self.counts: Counter[str] = Counter()
        self.codes: dict[str, dict[str, str]] = {}
        self.access: dict[str, str] = {}
        self.refreshes: dict[str, str] = {}
        self.ended: set[str] = set()
        # Called while a refresh is under way.
        self.during_refresh: Any = None

    def provider(self) -> Provider:
        return cast("Provider", self)

    # ------------------------------------------------------------ what the browser does there

    def log_in(self, url: str, user: str = "ann", **more: str) -> str:
        """Log in as a user at the page of this URL; the URL that the browser is sent to."""
        page, _, query = url.partition("?")
        asked = dict(parse_qsl(query, strict_parsing=True))
        assert page == LOGIN_PAGE
        assert asked["client_id"] == self.client_id
        assert asked["redirect_uri"] == self.redirect_uri
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        self.counts["logins"] += 1
        code = secrets.token_urlsafe(16)
        self.codes[code] = {**asked, "user": user}
        answer = {"code": code, "state": asked["state"], **more}
        return f"{asked['redirect_uri']}?{urlencode({k: v for k, v in answer.items() if v})}"

    def end_logins(self, user: str) -> None:
        """End all logins of a user."""
        self.ended.add(user)

    # ------------------------------------------------------------ what the proxy asks it

    async def authorization_url(
        self,
        fetcher: Fetcher,
        now: float,
        *,
        redirect_uri: str,
        state: str,
        code_challenge: str,
        nonce: str,
    ) -> str:
        self._reach()
        asked = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": code_challenge,
            "code_challenge_method": "S256",
        }
        return f"{LOGIN_PAGE}?{urlencode(asked)}"

    async def exchange_code(
        self,
        fetcher: Fetcher,
        now: float,
        *,
        code: str,
        redirect_uri: str,
        code_verifier: str,
        nonce: str,
    ) -> UpstreamTokens:
        self._reach()
        asked = self.codes.pop(code, None)
        hashed = hashlib.sha256(code_verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(hashed).decode().rstrip("=")
        if (
            asked is None
            or asked["redirect_uri"] != redirect_uri
            or asked["code_challenge"] != challenge
            or asked["nonce"] != nonce
        ):
            raise UpstreamRefused("refused", provider=self.name, error="invalid_grant")
        self.counts["codes"] += 1
        return self._give(asked["user"], now)

    async def identify(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> UpstreamUser:
        self._reach()
        self.counts["identified"] += 1
        user = self.access.get(tokens.access_token)
        if user is None or user in self.ended:
            raise UpstreamRefused("refused", provider=self.name, error="invalid_token")
        return UpstreamUser(user, user.title(), {"email": f"{user}@example.com"})

    async def confirm(
        self, fetcher: Fetcher, now: float, tokens: UpstreamTokens, subject: str
    ) -> None:
        if (await self.identify(fetcher, now, tokens)).subject != subject:
            raise UpstreamRefused("refused", provider=self.name, error="other_user")

    async def refresh(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> UpstreamTokens:
        if self.during_refresh is not None:
            await self.during_refresh()
        self._reach()
        self.counts["refreshes"] += 1
        user = self.refreshes.pop(tokens.refresh_token, None)
        if user is None or user in self.ended:
            raise UpstreamRefused("refused", provider=self.name, error="invalid_grant")
        return self._give(user, now)

    async def revoke(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> None:
        self._reach()
        self.counts["revoked"] += 1
        self.refreshes.pop(tokens.refresh_token, None)

    def _reach(self) -> None:
        if not self.reachable:
            raise ChannelError("the provider does not respond")

    def _give(self, user: str, now: float) -> UpstreamTokens:
        access = f"{CANARY}-access-{user}-{secrets.token_hex(8)}"
        self.access[access] = user
        refresh = ""
        if self.gives_refresh_tokens:
            refresh = f"{CANARY}-refresh-{user}-{secrets.token_hex(8)}"
            self.refreshes[refresh] = user
        expires_at = None if self.life_s is None else now + self.life_s
        return UpstreamTokens(access, expires_at, refresh, frozenset(self.scopes))


def query_of(url: str) -> dict[str, str]:
    """The parameters of a URL."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
