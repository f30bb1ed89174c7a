"""A server's URL as a client reaches it: our headers, where it has moved, what a refusal means.

Rules: a redirect is followed only inside the origin, and only where it keeps the request as it is:
credentials go nowhere else. Errors name the server and the status, never a header of ours or the
query of a URL, which may hold a key.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from urllib.parse import urljoin

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
from colonnade.protocol.http.challenges import INSUFFICIENT_SCOPE, read_challenges
from colonnade.protocol.http.security import JSON_TYPE
from colonnade.protocol.jsonrpc import ErrorResponse, decode
from colonnade.transport.http_client.connect import Target
from colonnade.transport.http_client.pool import Answer, HttpPool

# Of an answer that is no message, for the words of an error.
SHOWN_CHARACTERS = 200
# Of an answer that is a refusal: an error of the protocol, or a page that says so.
MAX_REFUSAL_BYTES = 1024 * 1024
# Its status says enough, so nobody waits long for its body.
REFUSAL_S = 2.0
# A server that adds a slash to the path, behind another that does something else.
MAX_REDIRECTS = 5

# Those that keep the method and the body; after any other one the request would be another.
KEEPING: Final = frozenset({307, 308})
# What a person sees at an address that is none of ours.
PAGE_TYPE: Final = "text/html"
# What stands on the way, or is busy: another time it may be different.
PASSING: Final = frozenset({408, 425, 429})
# What every request of ours says of itself, unless the caller says otherwise.
USUAL: Final = (("user-agent", "colonnade"), ("accept-encoding", "identity"))
# What belongs to the protocol, and is written with each message.
OURS: Final = frozenset(
    {"accept", "content-type", "last-event-id", "mcp-session-id", "mcp-protocol-version"}
    | {"mcp-method", "mcp-name"}
)

# How a server says that it wants to know who we are, or that we may not do this.
REFUSALS: Final = frozenset({401, 403})

Headers = Iterable[tuple[str, str]]
# Entered while somebody logs in: whose time should stand still meanwhile.
Patience = Callable[[], AbstractContextManager[None]]


class Endpoint:
    """One URL, with the headers that each request to it has, and a passport where it asks for it.

    A request that was refused for what it showed was not heard, and is sent again with more.
    """

    def __init__(
        self,
        pool: HttpPool,
        url: str,
        headers: Headers = (),
        credentials: Credentials | None = None,
        patience: Patience = nullcontext,
    ) -> None:
        self._pool = pool
        self._credentials = credentials
        self._patience = patience
        self._use(url)
        own = list(headers)
        names = {name.lower() for name, _ in own}
        if taken := sorted(names & OURS) + sorted(n for n in names if n.startswith("mcp-param-")):
            raise InvalidArgument(
                f"{taken[0]} is written with each message; leave it out", argument="headers"
            )
        self._shows_token = "authorization" in names
        self._own = own + [pair for pair in USUAL if pair[0] not in names]

    def _use(self, url: str) -> None:
        target = Target(url, {})
        self.url = url
        self.where: str = target.authority
        self._origin = target.origin

    @property
    def shown(self) -> str:
        """The URL for people, without its query."""
        return self.url.partition("?")[0].partition("#")[0]

    def within(self, reference: str, base: str | None = None) -> str:
        """A URL of the same origin, from what the server said. Raises `RemoteProtocolError`."""
        try:
            if not reference.isprintable():  # which would be repaired in silence
                raise ValueError
            url = urljoin(base or self.url, reference)
            target = Target(url, {})
        except (LocalProtocolError, ValueError):
            words = f"{self.where} names a place that is no URL"
            raise RemoteProtocolError(words, server=self.where) from None
        if target.origin != self._origin:
            elsewhere = f"{target.origin[0]}://{target.authority}"[:SHOWN_CHARACTERS]
            raise RemoteProtocolError(
                f"{self.where} sends us to {elsewhere}, which is another server",
                server=self.where,
                hint="if you trust it, connect there",
            )
        return url

    async def send(
        self, method: str, lines: Headers, data: bytes = b"", url: str | None = None
    ) -> Answer:
        """Send a request, here or to another URL `within`; the answer, its body unread.

        Raises what `HttpPool.send` raises, and `RemoteProtocolError` for a server that has moved
        to another one; with a passport `AuthError`, where nobody could log in.
        """
        headers = [*self._own, *lines]
        if self._credentials is not None:
            return await self._shown(self._credentials, method, headers, data, url)
        return await self._sent(method, headers, data, url)

    async def _shown(
        self, credentials: Credentials, method: str, headers: Headers, data: bytes, url: str | None
    ) -> Answer:
        """Send a request with what says who we are, again where that was not enough."""
        so_far: list[RequestCredentials] = []
        while True:
            shown = credentials.cached(method, url or self.url)
            if shown is None:
                with self._patience():
                    shown = await credentials.obtain(method, url or self.url)
            so_far.append(shown)
            answer = await self._sent(method, [*headers, *shown.headers], data, url)
            nonce = answer.header("dpop-nonce") or ""
            if answer.status not in REFUSALS:
                if nonce:
                    credentials.set_nonce(nonce)
                return answer
            asked = answer.header("www-authenticate")
            try:
                with self._patience():
                    again = await credentials.handle_rejection(
                        so_far, answer.status, [asked] if asked else [], nonce
                    )
            except BaseException:
                answer.close()
                raise
            if not again:
                return answer
            answer.linger()

    async def _sent(self, method: str, headers: Headers, data: bytes, url: str | None) -> Answer:
        answer = await self._pool.send(method, url or self.url, headers, data)
        if 300 <= answer.status < 400:
            return await self._followed(answer, method, headers, data, url)
        return answer

    async def _followed(
        self, answer: Answer, method: str, headers: Headers, data: bytes, url: str | None
    ) -> Answer:
        for _ in range(MAX_REDIRECTS):
            location = answer.header("location")
            if answer.status not in KEEPING or location is None:
                break
            answer.linger()
            there = self.within(location, url)
            answer = await self._pool.send(method, there, headers, data)
            if url is None:
                self.url: str = there  # so that the next request goes there at once
            else:
                url = there
            if not 300 <= answer.status < 400:
                return answer
        answer.linger()
        to = (answer.header("location") or "nowhere").partition("?")[0][:SHOWN_CHARACTERS]
        error = RemoteProtocolError(
            f"{self.where} answered {method} with {answer.status}: it has moved to {to!r}, "
            "which is not followed",
            server=self.where,
            hint="connect there",
        )
        error.status = answer.status
        raise error

    # ------------------------------------------------------------ refusals

    def check_plain(self, answer: Answer) -> None:
        """Raise `RemoteProtocolError` for a body that is packed, as nobody asked for."""
        packed = answer.header("content-encoding") or "identity"
        if packed.lower() != "identity":
            raise RemoteProtocolError(
                f"{self.where} packed its answer, and was not asked to: "
                f"{packed[:SHOWN_CHARACTERS]}",
                server=self.where,
            )

    async def refused(self, answer: Answer) -> bytes:
        """The body of a refusal, as much of it as comes soon and can be read."""
        body = b""
        if (answer.header("content-encoding") or "identity").lower() != "identity":
            return body
        try:
            async with asyncio.timeout(REFUSAL_S):
                while len(body) < MAX_REFUSAL_BYTES and (data := await answer.read()):
                    body += data
        except (TimeoutError, ConnectionLost, RemoteProtocolError):
            pass
        return body

    def refusal(self, method: str, answer: Answer, body: bytes) -> ColonnadeError:
        """The error for an answer to `method` that holds no answer of the protocol."""
        error = self._refusal(method, answer, body)
        error.status = answer.status
        return error

    def objection(self, method: str, answer: Answer, body: bytes) -> ColonnadeError:
        """The same, where the body may be an error of the protocol that speaks of this request."""
        refusal = self.refusal(method, answer, body)
        if answer.media != JSON_TYPE or isinstance(refusal, AuthError):
            return refusal
        with contextlib.suppress(Fault):
            frame = decode(body)
            if isinstance(frame, ErrorResponse):
                refusal = error_of(frame)
                refusal.status = answer.status
        return refusal

    def _unauthorized(self, where: str, answer: Answer) -> AuthError:
        asked = answer.header("www-authenticate")
        challenges = read_challenges([asked] if asked else [])
        reason = challenges.reason
        kind = AuthError
        if answer.status == 401:
            kind = LoginRequired
        elif any(one.error == INSUFFICIENT_SCOPE for one in challenges.token_challenges):
            kind = ScopeRequired
        words = f"{where}: {_why(answer.status, reason, self._shows_token)}"
        error = kind(words, server=self.where)
        error.reason, error.scopes = reason, challenges.scopes or ()
        error.token_sent = self._shows_token or reason.startswith("invalid_token")
        return error

    def _refusal(self, method: str, answer: Answer, body: bytes) -> ColonnadeError:
        status = answer.status
        where = f"{self.where} answered {method} with {status}"
        if status in REFUSALS:
            return self._unauthorized(where, answer)
        if status == 407:
            words = f"{where}: the proxy wants another name or password"
            return CannotConnect(words, server=self.where)
        if status >= 500 or status in PASSING:
            pause = answer.header("retry-after") or ""
            soon = f"in {pause} s" if pause.isdecimal() and len(pause) < 6 else "later"
            return ConnectionLost(where, server=self.where, hint=f"try again {soon}")
        if status == 202:
            words = f"{where}, as if nobody waited for what it says to it"
            return RemoteProtocolError(words, server=self.where)
        media = answer.media or "no type"
        if status == 200 and media == JSON_TYPE:
            return RemoteProtocolError(f"{self.where}: its body is no answer to {method}")
        is_page = media == PAGE_TYPE
        what = "no MCP but a web page" if is_page else "no MCP"
        words = f"{where} and {media}, which is {what}; is {self.shown} the endpoint?"
        words += " Its path is often /mcp." if is_page else ""
        shown = body[:SHOWN_CHARACTERS].decode("utf-8", "replace").strip()
        words = f"{words} It begins: {shown!r}" if shown else words
        return RemoteProtocolError(words, server=self.where)


def _why(status: int, reason: str, token_sent: bool) -> str:
    """Why a server refused a request: in its own words, where it has any."""
    if reason:
        return reason
    if status == 401:
        return "it refuses the token" if token_sent else "it wants to know who you are"
    return "you may not do this"


def error_of(failure: ErrorResponse) -> RemoteError:
    """An error of the protocol that names no request."""
    data: Any = None
    with contextlib.suppress(Fault):
        data = decode_as(object, failure.data) if failure.data else None
    return RemoteError(failure.code, failure.message, data)
