"""A login at the replica of a provider, as the proxy does it: redirect, code, user."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import msgspec

from auth.provider_replicas import ProviderReplica, replicated
from colonnade.auth.jose import base64url_encode
from colonnade.auth.server.proxy.provider import Provider, UpstreamTokens, UpstreamUser
from colonnade.auth.ssrf import Fetcher
from colonnade.transport.http_client.pool import HttpPool
from scripted_http_server import pooled

REDIRECT_URI = "https://notes.example/auth/callback"
VERIFIER = "verifier-canary-0123456789-0123456789-0123456789"
NONCE = "nonce-of-this-login"


class ProviderLogin:
    """A provider, its replica, and the fetcher that reaches it."""

    def __init__(self, replica: ProviderReplica, pool: HttpPool, total_s: float) -> None:
        self.replica = replica
        self.pool = pool
        self.fetcher = Fetcher(pool.send, total_s=total_s)
        self.provider = replica.provider

    @property
    def now(self) -> float:
        return self.replica.now

    def change(self, **settings: object) -> Provider:
        """Give the provider other settings."""
        self.provider = msgspec.structs.replace(self.provider, **settings)
        return self.provider

    async def authorize(self, state: str = "state-1") -> dict[str, str]:
        """Send a browser to the provider; the query of its redirect back."""
        challenge = base64url_encode(hashlib.sha256(VERIFIER.encode()).digest())
        url = await self.provider.authorization_url(
            self.fetcher,
            self.now,
            redirect_uri=REDIRECT_URI,
            state=state,
            code_challenge=challenge,
            nonce=NONCE,
        )
        async with await self.pool.send("GET", url, []) as answer:
            await answer.read_all(1 << 20)
            assert answer.status == 302, answer.status
            place = answer.headers["location"]
        assert place.startswith(REDIRECT_URI + "?")
        back = dict(parse_qsl(urlsplit(place).query))
        assert back["state"] == state
        return back

    async def exchange(self, code: str, nonce: str = NONCE) -> UpstreamTokens:
        return await self.provider.exchange_code(
            self.fetcher,
            self.now,
            code=code,
            redirect_uri=REDIRECT_URI,
            code_verifier=VERIFIER,
            nonce=nonce,
        )

    async def log_in(self, user: str = "ann") -> UpstreamTokens:
        self.replica.user = user
        return await self.exchange((await self.authorize())["code"])

    async def identify(self, tokens: UpstreamTokens) -> UpstreamUser:
        return await self.provider.identify(self.fetcher, self.now, tokens)

    async def refresh(self, tokens: UpstreamTokens) -> UpstreamTokens:
        return await self.provider.refresh(self.fetcher, self.now, tokens)

    async def revoke(self, tokens: UpstreamTokens) -> None:
        await self.provider.revoke(self.fetcher, self.now, tokens)


@asynccontextmanager
async def provider_login(name: str, total_s: float = 10.0) -> AsyncGenerator[ProviderLogin]:
    """The replica of a provider, and everything for a login there."""
    async with replicated(name) as replica, pooled() as pool:
        yield ProviderLogin(replica, pool, total_s)
