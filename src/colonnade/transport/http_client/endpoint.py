"""An MCP endpoint URL of the HTTP client: headers, redirects, authentication, refusals as errors.

Rules: a redirect is followed only within the origin, and only if it keeps method and body:
credentials are sent nowhere else. Errors name the server and the status, never a header of ours or
the query of a URL, which may hold a key.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from colonnade.errors import (
    AuthError,
    CannotConnect,
    ColonnadeError,
    ConnectionLost,
    Fault,
    InvalidArgument,
    LocalProtocolError,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    ScopeRequired,
)
from colonnade.ports import Credentials, RequestCredentials
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Network
from colonnade.protocol.http.challenges import INSUFFICIENT_SCOPE, read_challenges
from colonnade.protocol.http.security import JSON_TYPE
from colonnade.protocol.jsonrpc import ErrorResponse, decode
from colonnade.transport.http_client.connect import HeaderLines, RequestTarget
from colonnade.transport.http_client.pool import ClientResponse, HttpPool

# Of a response that is not JSON-RPC, for the message of an error.
SHOWN_CHARACTERS = 200
# Of the body of a refusal: a JSON-RPC error, or a page.
MAX_REFUSAL_BYTES = 1024 * 1024
# Its status says enough, so its body is not awaited for long.
REFUSAL_S = 2.0
# A server that adds a slash to the path, behind another that does something else.
MAX_REDIRECTS = 5

# Redirects that keep the method and the body.
PRESERVING_REDIRECTS: Final = frozenset({307, 308})
# The media type of a web page at a URL that is not an MCP endpoint.
PAGE_TYPE: Final = "text/html"
# Transient statuses, beside 5xx: the request may be sent again.
TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
# Headers of every request, unless the caller sets others.
DEFAULT_HEADERS: Final = (("user-agent", "colonnade"), ("accept-encoding", "identity"))
# Headers that the protocol sets for each message.
PROTOCOL_HEADERS: Final = frozenset(
    {"accept", "content-type", "last-event-id", "mcp-session-id", "mcp-protocol-version"}
    | {"mcp-method", "mcp-name"}
)

# Authentication or more scopes are required.
REFUSALS: Final = frozenset({401, 403})

Headers = Iterable[tuple[str, str]]
# Sets of headers that are kept as they are written: those of a session, and one for each tool.
MAX_KEPT_HEADERS = 256
# Entered while a user logs in: timeouts are paused meanwhile.
PauseTimeouts = Callable[[], AbstractContextManager[None]]


def network_of(url: str, session_id: str = "") -> Network:
    """How the server at a URL is connected."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Network("tcp", "http", "1.1", parts.hostname or "", port, session_id)


class HttpEndpoint:
    """One URL, with the headers of each request to it and the credentials for it.

    A request whose credentials were refused was not handled, and is sent again with others.
    """

    def __init__(
        self,
        pool: HttpPool,
        url: str,
        headers: Headers = (),
        credentials: Credentials | None = None,
        pause_timeouts: PauseTimeouts = nullcontext,
    ) -> None:
        self._pool = pool
        self._credentials = credentials
        self._pause_timeouts = pause_timeouts
        self._use(url)
        own = list(headers)
        names = {name.lower() for name, _ in own}
        if taken := sorted(names & PROTOCOL_HEADERS) + sorted(
            n for n in names if n.startswith("mcp-param-")
        ):
            raise InvalidArgument(
                f"{taken[0]} is set for each message; remove it", argument="headers"
            )
        self._sends_token = "authorization" in names
        self._own = own + [pair for pair in DEFAULT_HEADERS if pair[0] not in names]
        self._kept: dict[tuple[tuple[str, str], ...], HeaderLines] = {}

    def _use(self, url: str) -> None:
        target = RequestTarget(url, {})
        self.url = url
        self.where: str = target.authority
        self._origin = target.origin

    @property
    def shown(self) -> str:
        """The URL without its query, for messages."""
        return self.url.partition("?")[0].partition("#")[0]

    def within(self, reference: str, base: str | None = None) -> str:
        """A URL of the same origin, from a reference of the server. Raises
        `RemoteProtocolError`."""
        try:
            if not reference.isprintable():  # urljoin would drop such characters silently
                raise ValueError
            url = urljoin(base or self.url, reference)
            target = RequestTarget(url, {})
        except (LocalProtocolError, ValueError):
            words = f"{self.where} sent a reference that is not a URL"
            raise RemoteProtocolError(words, server=self.where) from None
        if target.origin != self._origin:
            elsewhere = f"{target.origin[0]}://{target.authority}"[:SHOWN_CHARACTERS]
            raise RemoteProtocolError(
                f"{self.where} redirects to {elsewhere}, which is another server",
                server=self.where,
                hint="if you trust it, connect there",
            )
        return url

    def send(
        self, method: str, lines: Headers, data: bytes = b"", url: str | None = None
    ) -> Coroutine[Any, Any, ClientResponse]:
        """Send a request, to this URL or another one of its origin; the response, its body unread.

        Raises what `HttpPool.send` raises, `RemoteProtocolError` for a redirect to another origin,
        and `AuthError` if there are no valid credentials.
        """
        headers = self.header_lines(lines)
        if self._credentials is not None:
            return self._send_authorized(self._credentials, method, headers, data, url)
        return self._send_once(method, headers, data, url)

    def post(self, headers: HeaderLines, data: bytes) -> Coroutine[Any, Any, ClientResponse]:
        """POST to this URL, as `send`; a redirect is returned, and is for `follow_post`."""
        if self._credentials is not None:
            return self._send_authorized(self._credentials, "POST", headers, data, None)
        return self._pool.send("POST", self.url, headers, data)

    async def follow_post(
        self, response: ClientResponse, headers: HeaderLines, data: bytes
    ) -> ClientResponse:
        """Follow the redirect that `post` has returned."""
        return await self._follow(response, "POST", headers, data, None)

    def header_lines(self, lines: Headers) -> HeaderLines:
        """The headers of requests: these, after those that the endpoint sends with each."""
        key = tuple(lines)
        headers = self._kept.get(key)
        if headers is None:
            headers = HeaderLines([*self._own, *key])
            if len(self._kept) >= MAX_KEPT_HEADERS:
                self._kept.clear()
            self._kept[key] = headers
        return headers

    async def _send_authorized(
        self,
        credentials: Credentials,
        method: str,
        headers: HeaderLines,
        data: bytes,
        url: str | None,
    ) -> ClientResponse:
        """Send a request with credentials, again with others if they were refused."""
        so_far: list[RequestCredentials] = []
        while True:
            current = credentials.cached(method, url or self.url)
            if current is None:
                with self._pause_timeouts():
                    current = await credentials.obtain(method, url or self.url)
            so_far.append(current)
            sent = headers.with_more(current.headers)
            response = await self._send_once(method, sent, data, url)
            nonce = response.header("dpop-nonce") or ""
            if response.status not in REFUSALS:
                if nonce:
                    credentials.set_nonce(nonce)
                return response
            challenge = response.header("www-authenticate")
            try:
                with self._pause_timeouts():
                    again = await credentials.handle_rejection(
                        so_far, response.status, [challenge] if challenge else [], nonce
                    )
            except BaseException:
                response.close()
                raise
            if not again:
                return response
            response.linger()

    async def _send_once(
        self, method: str, headers: HeaderLines, data: bytes, url: str | None
    ) -> ClientResponse:
        response = await self._pool.send(method, url or self.url, headers, data)
        if 300 <= response.status < 400:
            return await self._follow(response, method, headers, data, url)
        return response

    async def _follow(
        self,
        response: ClientResponse,
        method: str,
        headers: HeaderLines,
        data: bytes,
        url: str | None,
    ) -> ClientResponse:
        for _ in range(MAX_REDIRECTS):
            location = response.header("location")
            if response.status not in PRESERVING_REDIRECTS or location is None:
                break
            response.linger()
            there = self.within(location, url)
            response = await self._pool.send(method, there, headers, data)
            if url is None:
                self.url: str = there  # for the next request
            else:
                url = there
            if not 300 <= response.status < 400:
                return response
        response.linger()
        to = (response.header("location") or "nowhere").partition("?")[0][:SHOWN_CHARACTERS]
        error = RemoteProtocolError(
            f"{self.where} answered {method} with {response.status}: it has moved to {to!r}, "
            "which is not followed",
            server=self.where,
            hint="connect there",
        )
        error.status = response.status
        raise error

    # ------------------------------------------------------------ refusals

    def check_plain(self, response: ClientResponse) -> None:
        """Raise `RemoteProtocolError` for a compressed body, which was not accepted."""
        encoding = response.header("content-encoding")
        if encoding and encoding.lower() != "identity":
            raise RemoteProtocolError(
                f"{self.where} compressed its response, which was not accepted: "
                f"{encoding[:SHOWN_CHARACTERS]}",
                server=self.where,
            )

    async def read_refusal(self, response: ClientResponse) -> bytes:
        """The body of a refusal, as much of it as arrives soon and can be read."""
        body = b""
        if (response.header("content-encoding") or "identity").lower() != "identity":
            return body
        try:
            async with asyncio.timeout(REFUSAL_S):
                while len(body) < MAX_REFUSAL_BYTES and (data := await response.read()):
                    body += data
        except (TimeoutError, ConnectionLost, RemoteProtocolError):
            pass
        return body

    def refusal(self, method: str, response: ClientResponse, body: bytes) -> ColonnadeError:
        """The error for an HTTP response to `method` without a JSON-RPC response."""
        error = self._refusal(method, response, body)
        error.status = response.status
        return error

    def message_error(self, method: str, response: ClientResponse, body: bytes) -> ColonnadeError:
        """The same, if the body may be a JSON-RPC error about this request."""
        refusal = self.refusal(method, response, body)
        if response.media != JSON_TYPE or isinstance(refusal, AuthError):
            return refusal
        with contextlib.suppress(Fault):
            frame = decode(body)
            if isinstance(frame, ErrorResponse):
                refusal = error_of(frame)
                refusal.status = response.status
        return refusal

    def _unauthorized(self, where: str, response: ClientResponse) -> AuthError:
        challenge = response.header("www-authenticate")
        challenges = read_challenges([challenge] if challenge else [])
        reason = challenges.reason
        kind = AuthError
        if response.status == 401:
            kind = LoginRequired
        elif any(one.error == INSUFFICIENT_SCOPE for one in challenges.token_challenges):
            kind = ScopeRequired
        words = f"{where}: {_describe_refusal(response.status, reason, self._sends_token)}"
        error = kind(words, server=self.where)
        error.reason, error.scopes = reason, challenges.scopes or ()
        error.token_sent = self._sends_token or reason.startswith("invalid_token")
        return error

    def _refusal(self, method: str, response: ClientResponse, body: bytes) -> ColonnadeError:
        status = response.status
        where = f"{self.where} answered {method} with {status}"
        if status in REFUSALS:
            return self._unauthorized(where, response)
        if status == 407:
            message = f"{where}: the proxy requires other credentials"
            return CannotConnect(message, server=self.where)
        if status >= 500 or status in TRANSIENT_STATUSES:
            pause = response.header("retry-after") or ""
            soon = f"in {pause} s" if pause.isdecimal() and len(pause) < 6 else "later"
            return ConnectionLost(where, server=self.where, hint=f"try again {soon}")
        if status == 202:
            message = f"{where}, and a request needs a response"
            return RemoteProtocolError(message, server=self.where)
        media = response.media or "no type"
        if status == 200 and media == JSON_TYPE:
            return RemoteProtocolError(f"{self.where}: the body is not a response to {method}")
        is_page = media == PAGE_TYPE
        what = "a web page and not MCP" if is_page else "not MCP"
        message = f"{where} and {media}, which is {what}; is {self.shown} the endpoint?"
        message += " Its path is often /mcp." if is_page else ""
        shown = body[:SHOWN_CHARACTERS].decode("utf-8", "replace").strip()
        message = f"{message} It begins: {shown!r}" if shown else message
        return RemoteProtocolError(message, server=self.where)


def _describe_refusal(status: int, reason: str, token_sent: bool) -> str:
    """Why a server refused a request: its own message, if it sent one."""
    if reason:
        return reason
    if status == 401:
        return "it refuses the token" if token_sent else "authentication required"
    return "permission denied"


def error_of(failure: ErrorResponse) -> RemoteError:
    """A JSON-RPC error without a request id."""
    data: Any = None
    with contextlib.suppress(Fault):
        data = decode_as(object, failure.data) if failure.data else None
    return RemoteError(failure.code, failure.message, data)
