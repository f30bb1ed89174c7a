"""The provider behind an `OAuthProxy`: what it is asked for, and its tokens."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from colonnade.auth.ssrf import Fetcher
from colonnade.errors import AuthError


class UpstreamRefused(AuthError):
    """The provider refused for good; `error` is its error code."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class UpstreamTokens(Struct, frozen=True):
    """The tokens of the provider for one login; `expires_at` is None if that is unknown."""

    access_token: str
    expires_at: float | None
    refresh_token: str = ""
    scopes: frozenset[str] = frozenset()
    id_token: str = ""

    def __repr__(self) -> str:
        return "UpstreamTokens(...)"


class UpstreamUser(Struct, frozen=True):
    """The user that a provider has authenticated."""

    subject: str
    name: str = ""
    claims: Mapping[str, Any] = {}


class Provider:
    """A provider with one fixed client."""

    name: str
    issuer: str
    client_id: str
    client_secret: str
    scopes: tuple[str, ...]

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
        """The URL of the login page. Raises `ChannelError`."""
        raise NotImplementedError

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
        """The tokens for a code. Raises `UpstreamRefused`, `ChannelError`."""
        raise NotImplementedError

    async def identify(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> UpstreamUser:
        """The user of the tokens. Raises `UpstreamRefused`, `ChannelError`."""
        raise NotImplementedError

    async def refresh(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> UpstreamTokens:
        """New tokens. Raises `UpstreamRefused`, `ChannelError`."""
        raise NotImplementedError

    async def revoke(self, fetcher: Fetcher, now: float, tokens: UpstreamTokens) -> None:
        """Revoke tokens. Raises `UpstreamRefused`, `ChannelError`."""
        raise NotImplementedError
