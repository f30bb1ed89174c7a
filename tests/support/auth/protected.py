"""A protected server on loopback, its issuer, and callers with tokens."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from auth.token_issuer import Issuer, Json, SigningKey, issuing
from colonnade import Context, Jwt, Protection, Server
from colonnade.auth.server.verifier import TokenVerifier
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller, Response, Wire

# As clients see it, behind a proxy; it is served elsewhere.
RESOURCE = "https://notes.example/mcp"
METADATA = "https://notes.example/.well-known/oauth-protected-resource/mcp"
READ, WRITE = "notes:read", "notes:write"


def notes(**settings: Any) -> Server:
    """A server with items for every authenticated caller, and items that need a scope."""
    server = Server("notes", version="1", title="Notes", **settings)

    @server.tool
    def whoami(ctx: Context) -> str:
        return ctx.principal

    @server.tool(scopes={WRITE})
    def erase(name: str) -> str:
        return f"erased {name}"

    @server.resource("notes://open")
    def opened() -> str:
        return "open"

    @server.resource("notes://shut", scopes={WRITE, "notes:see"})
    def shut() -> str:
        return "shut"

    @server.prompt(scopes={WRITE})
    def plan() -> str:
        return "plan"

    return server


class Bearer(Caller):
    """A caller that sends the same token with every request."""

    def __init__(self, port: int, token: str | None, path: str = "/mcp") -> None:
        super().__init__(port, path)
        self.token = token

    async def begin(
        self, method: str, body: bytes = b"", path: str | None = None, **headers: Any
    ) -> tuple[Wire, Response]:
        if self.token is not None:
            headers.setdefault("authorization", f"Bearer {self.token}")
        return await super().begin(method, body, path, **headers)


class ProtectedSetup:
    """The server, its issuer, and where they are."""

    def __init__(
        self, server: Server, site: HttpRunner, issuer: Issuer, protection: Protection
    ) -> None:
        self.server = server
        self.site = site
        self.issuer = issuer
        self.protection = protection
        self.resource = protection.resource
        self.callers: list[Bearer] = []

    @property
    def signing_key(self) -> SigningKey:
        return self.issuer.signing_keys[0]

    def claims(self, **more: Any) -> Json:
        return self.issuer.claims(**{"audience": self.resource, **more})

    def token(self, **more: Any) -> str:
        """A good token, but for what is said."""
        header = more.pop("header", {})
        return self.signing_key.sign(self.claims(**more), **header)

    def caller(self, token: str | None = None) -> Bearer:
        made = Bearer(self.site.port, token)
        self.callers.append(made)
        return made

    async def status(self, token: str | None) -> int:
        """What a plain request with this token is answered with."""
        return (await self.caller(token).modern("tools/list")).status


Make = Callable[[Issuer], TokenVerifier | tuple[TokenVerifier, ...]]


@asynccontextmanager
async def protected(
    *,
    trust: Make | None = None,
    path: str = "",
    server: Server | None = None,
    options: dict[str, Any] | None = None,
    **protection: Any,
) -> AsyncGenerator[ProtectedSetup]:
    """A server that believes an issuer; `trust` makes something else of the issuer than `Jwt`."""
    made: Make = trust or (lambda issuer: Jwt(issuer.url))
    async with issuing(path) as issuer:
        offered = server or notes()
        trusted = made(issuer)
        trusts = trusted if isinstance(trusted, tuple) else (trusted,)
        guarded = offered._auth = Protection(RESOURCE, *trusts, **protection)
        settings: Any = options or {}
        site = HttpRunner(offered.asgi(**settings), port=0)
        await site.start()
        setup = ProtectedSetup(offered, site, issuer, guarded)
        try:
            yield setup
        finally:
            for caller in setup.callers:
                await caller.__aexit__()
            await site.stop(0.0)
