"""A host whose callers have credentials of their own, its connect pages, and a browser.

Rules: the issuer, the server and the pages are on real sockets. The browser is a thread with the
session cookie of one user.
"""

import asyncio
import re
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import urlencode

from msgspec.structs import replace

from auth.issuer import Issuer
from auth.tap import Tap, tapped
from colonnade import Context, Host, Jwt, Protection, Server
from colonnade.auth.server.protection import ProtectedRequest
from colonnade.auth.server.verifier import ProtectionContext
from colonnade.host.credentials import UpstreamCredentials
from colonnade.ports import Caller, EndpointRequest
from colonnade.transport.http_server.runner import AppListener, HttpRunner

COOKIE = re.compile(r"who=(\w+)")
FORM = re.compile(r'name="form" value="([^"]+)"')
NEXT = re.compile(r'content="0;url=([^"]+)"')
LINK = re.compile(r"http://127\.0\.0\.1:\d+/connect/\S+")


def who_is_there(request: EndpointRequest) -> str | None:
    """The user of the session cookie."""
    found = COOKIE.search(request.headers.get(b"cookie", b"").decode())
    return found[1] if found is not None else None


class Page:
    """A page that a browser has loaded."""

    def __init__(self, status: int, text: str, headers: Any) -> None:
        self.status = status
        self.text = text
        self.headers = headers

    @property
    def form(self) -> str:
        found = FORM.search(self.text)
        assert found is not None, self.text
        return unescape(found[1])

    @property
    def next(self) -> str:
        found = NEXT.search(self.text)
        assert found is not None, self.text
        return unescape(found[1])


class UserBrowser:
    """The browser of one user, with its session."""

    def __init__(self, user: str) -> None:
        self.user = user

    async def load(
        self, url: str, form: dict[str, str] | None = None, *, follow: bool = True, **headers: str
    ) -> Page:
        """Load a page; with a form it is sent there."""
        return await asyncio.to_thread(self._load, url, form, follow, headers)

    def _load(
        self, url: str, form: dict[str, str] | None, follow: bool, headers: dict[str, str]
    ) -> Page:
        data = urlencode(form).encode() if form is not None else None
        made = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.user:
            made["cookie"] = f"who={self.user}"
        request = urllib.request.Request(url, data, made)
        opener = urllib.request.build_opener(*([] if follow else [_Stay()]))
        try:
            with opener.open(request, timeout=60) as page:
                return Page(page.status, page.read().decode(), page.headers)
        except urllib.error.HTTPError as error:
            with error:
                return Page(error.code, error.read().decode(), error.headers)

    async def confirm(self, link: str) -> str:
        """Open a link and confirm; the URL of the issuer's page."""
        page = await self.load(link)
        assert page.status == 200, page.text
        return (await self.load(link, {"form": page.form})).next

    async def connect(self, link: str) -> Page:
        """Open a link, confirm, log in at the issuer, and come back."""
        return await self.load(await self.confirm(link))


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any
    ) -> None:
        return None


def notes(auth: Protection) -> Server:
    """A server with a tool for all, and one that only its user sees."""
    server = Server("notes", version="1", auth=auth, instructions="Of your account.")

    @server.tool
    def whoami(ctx: Context) -> str:
        return ctx.principal

    @server.tool(scopes={"notes:write"})
    def erase() -> str:
        return "erased"

    return server


class EndingProtection(Protection):
    """Protection that accepts no token any more when a test says so."""

    is_over = False

    async def authenticate(self, request: ProtectedRequest, context: ProtectionContext) -> Caller:
        if self.is_over:
            request = replace(request, headers={})
        return await super().authenticate(request, context)


class UpstreamSetup:
    """The server behind a relay, its issuer, and hosts in front of it."""

    def __init__(self, issuer: Issuer, tap: Tap, **protection: Any) -> None:
        self.issuer = issuer
        self.tap = tap
        self.url = f"http://127.0.0.1:{tap.port}/mcp"
        self.protection = EndingProtection(self.url, Jwt(issuer.url), **protection)
        self.stack = AsyncExitStack()

    @property
    def sent(self) -> bytes:
        """Everything that was sent to the server."""
        return b"\n".join(bytes(one) for one in self.tap.sent)

    async def upstream(self, **options: Any) -> UpstreamCredentials:
        """The credentials of callers, with their connect pages on a port of their own."""
        made: list[UpstreamCredentials] = []

        def make(host: str, port: int) -> Any:
            url = f"http://{host}:{port}/connect"
            made.append(UpstreamCredentials(url, identify=who_is_there, **options))
            return made[0]

        await self.stack.enter_async_context(AppListener(make, ("127.0.0.1", 0)))
        return made[0]

    async def host(
        self,
        upstream: UpstreamCredentials,
        mode: str = "login",
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> Host:
        """A host with this one server."""
        entry = {"url": self.url, "credentials": mode, **(settings or {})}
        return await self.stack.enter_async_context(
            Host({"notes": entry}, upstream=upstream, **options)
        )


@asynccontextmanager
async def upstream_setup(
    issuer: Issuer, *, tool: Callable[..., Any] | None = None, **protection: Any
) -> AsyncGenerator[UpstreamSetup]:
    """A protected server that trusts an issuer, behind a relay that records. `tool` is one more
    tool, which runs as a task."""
    async with tapped() as tap:
        setup = UpstreamSetup(issuer, tap, **protection)
        server = notes(setup.protection)
        if tool is not None:
            server.tool(task=True)(tool)
        site = HttpRunner(server.asgi(), port=0)
        await site.start()
        tap.target = site.port
        try:
            async with setup.stack:
                yield setup
        finally:
            await site.stop(0.0)
