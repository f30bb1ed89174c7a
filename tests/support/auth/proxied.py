"""A server with an `OAuthProxy`, driven in process: browsers with cookies, clients, a clock.

    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser(), "ann")
        assert (await setup.call(tokens["access_token"])).status == 200

Rules: every request goes through the ASGI application, with all its checks. The clock is the test's.
"""

import asyncio
import base64
import hashlib
import html
import http.client
import json
import re
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

from auth.upstream import LOGIN_PAGE, UpstreamReplica, query_of
from colonnade import Context, Login, Protection, Server
from colonnade.auth.server.proxy.provider import Provider
from colonnade.auth.server.proxy.proxy import OAuthProxy
from colonnade.ports import Store
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from http_client import META

ORIGIN = "https://notes.example"
RESOURCE = f"{ORIGIN}/mcp"
REDIRECT = "https://app.example/callback"
READ, WRITE = "notes:read", "notes:write"
FORM = "application/x-www-form-urlencoded"


class Clock:
    """The time of a test."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += seconds


class HttpReply:
    """A whole response."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def cookies(self) -> dict[str, str]:
        """The whole lines of the cookies that it sets, by name."""
        lines = [value for key, value in self.headers if key == "set-cookie"]
        return {line.partition("=")[0]: line for line in lines}

    @property
    def next_url(self) -> str:
        """Where the browser goes next: by a redirect, or by a page that leads on."""
        found = re.search(r'http-equiv="refresh" content="0;url=([^"]+)"', self.text)
        return html.unescape(found[1]) if found else self.header("location")

    @property
    def action(self) -> str:
        """Where its form goes."""
        found = re.search(r'<form method="post" action="([^"]+)"', self.text)
        return html.unescape(found[1]) if found else ""

    @property
    def form(self) -> dict[str, str]:
        """The hidden fields of its form."""
        fields = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', self.text)
        return {name: html.unescape(value) for name, value in fields}


async def send(
    app: HttpApp,
    method: str,
    url: str,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    client: str = "192.0.2.1",
) -> HttpReply:
    """The response of an application to one request."""
    parts = urlsplit(url)
    given = {"host": parts.netloc, **(headers or {})}
    if body:
        given["content-length"] = str(len(body))
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": parts.path or "/",
        "query_string": parts.query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": (client, 1),
    }
    messages: list[dict[str, Any]] = []

    received = False

    async def receive() -> dict[str, Any]:
        nonlocal received
        if received:  # the client waits for the response
            await asyncio.get_running_loop().create_future()
        received = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def keep(message: Any) -> None:
        messages.append(dict(message))

    await app(scope, receive, keep)
    start = messages[0]
    pairs = [(name.decode(), value.decode()) for name, value in start["headers"]]
    return HttpReply(start["status"], pairs, b"".join(m.get("body", b"") for m in messages[1:]))


Send = Callable[[str, str, dict[str, str], bytes], Awaitable[HttpReply]]


class Browser:
    """A browser of one user: cookies, forms, the origin of its pages."""

    def __init__(self, send: Send, replica: UpstreamReplica, origin: str = ORIGIN) -> None:
        self._send = send
        self._replica = replica
        self.origin = origin
        self.cookies: dict[str, str] = {}

    async def get(self, url: str, **headers: str) -> HttpReply:
        return await self.request("GET", url, headers)

    async def request(
        self, method: str, url: str, headers: dict[str, str], body: bytes = b""
    ) -> HttpReply:
        jar = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given = {**({"cookie": jar} if jar else {}), **headers}
        reply = await self._send(method, url, given, body)
        for name, line in reply.cookies.items():
            value, _, rest = line.partition("=")[2].partition(";")
            if "Max-Age=0" in rest:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return reply

    async def decide(self, page: HttpReply, decision: str = "approve", **headers: str) -> HttpReply:
        """Send the form of a consent page."""
        fields = {**page.form, "decision": decision}
        given = {"content-type": FORM, "origin": self.origin, **headers}
        kept = {name: value for name, value in given.items() if value}
        return await self.request("POST", page.action, kept, urlencode(fields).encode())

    async def authorize(self, url: str, user: str = "ann", decision: str = "approve") -> str:
        """Do what a user does with an authorization URL; the URL of the client's callback."""
        reply = await self.get(url)
        for _ in range(6):
            if reply.form:
                assert reply.status == 200
                reply = await self.decide(reply, decision)
            else:
                target = reply.next_url
                if target.startswith(LOGIN_PAGE):
                    target = self._replica.log_in(target, user)
                if not target.startswith(self.origin + "/"):
                    assert target, reply.text
                    return target
                reply = await self.get(target)
        raise AssertionError("the login goes around in circles")


class ProxySetup:
    """The application, its provider, its clock and its store."""

    def __init__(
        self, app: HttpApp, replica: UpstreamReplica, clock: Clock, store: Store, proxy: OAuthProxy
    ) -> None:
        self.app = app
        self.replica = replica
        self.clock = clock
        self.store = store
        self.proxy = proxy

    def browser(self) -> Browser:
        return Browser(partial(send, self.app), self.replica)

    # ------------------------------------------------------------ a client

    async def register(self, *uris: str, **stated: Any) -> dict[str, Any]:
        """Register a client; the response."""
        reply = await self.try_register(*uris, **stated)
        assert reply.status == 201, reply.text
        return reply.json

    async def try_register(self, *uris: str, **stated: Any) -> HttpReply:
        wanted = {
            "redirect_uris": uris or [REDIRECT],
            "client_name": "App",
            "token_endpoint_auth_method": "none",
            **stated,
        }
        body = json.dumps(wanted).encode()
        kind = {"content-type": "application/json"}
        return await send(self.app, "POST", f"{ORIGIN}/oauth/register", kind, body)

    def authorization_url(
        self, client: dict[str, Any], verifier: str = "v" * 43, **more: str
    ) -> str:
        """The URL that a client opens in a browser; an empty parameter is left out."""
        asked = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": client["redirect_uris"][0],
            "code_challenge": challenge_of(verifier),
            "code_challenge_method": "S256",
            "state": "client-state",
            "resource": RESOURCE,
            "scope": READ,
            **more,
        }
        kept = {name: value for name, value in asked.items() if value}
        return f"{ORIGIN}/oauth/authorize?{urlencode(kept)}"

    async def code(
        self,
        client: dict[str, Any],
        browser: Browser,
        user: str = "ann",
        verifier: str = "v" * 43,
        **more: str,
    ) -> str:
        """Log in; the authorization code that the client gets."""
        url = self.authorization_url(client, verifier, **more)
        answer = query_of(await browser.authorize(url, user))
        assert answer["state"] == "client-state"
        assert answer["iss"] == ORIGIN
        return answer["code"]

    async def token(self, client: dict[str, Any], **form: str) -> HttpReply:
        """Send a token request of a client."""
        return await self.post_form("token", client, **form)

    async def post_form(
        self, endpoint: str, client: dict[str, Any], *, proof: str = "", **form: str
    ) -> HttpReply:
        fields = {"client_id": client["client_id"], **form}
        if client.get("client_secret"):
            fields["client_secret"] = client["client_secret"]
        body = urlencode({name: value for name, value in fields.items() if value}).encode()
        headers = {"content-type": FORM, **({"dpop": proof} if proof else {})}
        return await send(self.app, "POST", f"{ORIGIN}/oauth/{endpoint}", headers, body)

    async def exchange(
        self, client: dict[str, Any], code: str, verifier: str = "v" * 43, **more: str
    ) -> HttpReply:
        """Exchange a code for tokens."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": client["redirect_uris"][0],
            "code_verifier": verifier,
            "resource": RESOURCE,
            **more,
        }
        return await self.token(client, **form)

    async def refresh(self, client: dict[str, Any], token: str, **more: str) -> HttpReply:
        form = {"grant_type": "refresh_token", "refresh_token": token, "resource": RESOURCE}
        return await self.token(client, **form, **more)

    async def log_in(
        self, client: dict[str, Any], browser: Browser, user: str = "ann", **more: str
    ) -> dict[str, Any]:
        """The tokens of a whole login."""
        verifier = secrets.token_urlsafe(32)
        code = await self.code(client, browser, user, verifier, **more)
        reply = await self.exchange(client, code, verifier)
        assert reply.status == 200, reply.text
        return reply.json

    # ------------------------------------------------------------ the server behind it

    async def call(self, token: str, tool: str = "whoami") -> HttpReply:
        """Call a tool with a token."""
        message = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": {}, "_meta": META},
        }
        headers = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": tool,
        }
        return await send(self.app, "POST", RESOURCE, headers, json.dumps(message).encode())

    async def whoami(self, token: str) -> str:
        reply = await self.call(token)
        assert reply.status == 200, reply.text
        return reply.json["result"]["content"][0]["text"]


def challenge_of(verifier: str) -> str:
    hashed = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(hashed).decode().rstrip("=")


def notes(protection: Protection, **settings: Any) -> Server:
    """The server behind the proxy."""
    server = Server("notes", version="1", title="Notes", auth=protection, **settings)

    @server.tool
    def whoami(ctx: Context) -> str:
        return ctx.principal

    @server.tool
    def claims(ctx: Context) -> dict[str, Any]:
        return dict(ctx.claims)

    @server.tool(scopes={WRITE})
    def erase() -> str:
        return "erased"

    return server


KEY = b"k" * 32


@asynccontextmanager
async def proxied(
    *,
    resource: str = RESOURCE,
    clock: Clock | None = None,
    store: Store | None = None,
    replica: UpstreamReplica | None = None,
    life_s: float | None = 3600.0,
    keys: tuple[bytes, ...] = (KEY,),
    options: dict[str, Any] | None = None,
    **proxy: Any,
) -> AsyncGenerator[ProxySetup]:
    """A server with a proxy; with the same `store`, `clock` and `replica`, one more replica of it."""
    clock = clock or Clock()
    store = store or MemoryStore(clock=clock, is_shared=True)
    issuer = proxy.get("issuer") or ORIGIN
    replica = replica or UpstreamReplica(f"{issuer}/oauth/callback", life_s=life_s)
    proxy.setdefault("scopes", [WRITE])
    made = OAuthProxy(replica.provider(), **proxy)
    protection = Protection(resource, made, scopes=[READ], clock=clock)
    server = notes(protection, store=store, keys=keys)
    settings: Any = {"hosts": ["notes.example"], **(options or {})}
    app = server.asgi(**settings)
    app.handles_signals = False
    await app.start()
    try:
        yield ProxySetup(app, replica, clock, store, made)
    finally:
        await app.stop()


# ---------------------------------------------------------------- over sockets


async def send_http(method: str, url: str, headers: dict[str, str], body: bytes) -> HttpReply:
    """The response to one request over a socket."""
    return await asyncio.to_thread(_send_http, method, url, headers, body)


def _send_http(method: str, url: str, headers: dict[str, str], body: bytes) -> HttpReply:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, path, body or None, headers)
        reply = connection.getresponse()
        pairs = [(name.lower(), value) for name, value in reply.getheaders()]
        return HttpReply(reply.status, pairs, reply.read())
    finally:
        connection.close()


class LiveProxy:
    """A server with a proxy on a loopback port."""

    def __init__(self, url: str, replica: UpstreamReplica) -> None:
        self.url = url
        self.replica = replica
        self.origin = url.removesuffix("/mcp")
        self.logins = 0
        self.task: asyncio.Task[None] | None = None

    def login(self, user: str = "ann", **options: Any) -> Login:
        """A login whose user has a browser of their own."""
        browser = Browser(send_http, self.replica, self.origin)
        loop = asyncio.get_running_loop()

        async def use(url: str) -> None:
            target = await browser.authorize(url, user)
            assert (await send_http("GET", target, {}, b"")).status == 200

        def show(url: str) -> None:
            self.logins += 1
            self.task = loop.create_task(use(url))

        return Login(browser=False, on_show=show, **options)


@asynccontextmanager
async def live_proxy(
    *,
    provider: Provider | None = None,
    protection_options: dict[str, Any] | None = None,
    **proxy: Any,
) -> AsyncGenerator[LiveProxy]:
    """A server with a proxy, at its own URL; `provider` takes the place of the replica."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    replica = UpstreamReplica(f"http://127.0.0.1:{port}/oauth/callback")
    proxy.setdefault("scopes", [WRITE])
    made = OAuthProxy(provider or replica.provider(), **proxy)
    protection = Protection(url, made, scopes=[READ], **(protection_options or {}))
    site = HttpRunner(notes(protection).asgi(), port=port, bound=bound)
    await site.start()
    try:
        yield LiveProxy(url, replica)
    finally:
        await site.stop()
