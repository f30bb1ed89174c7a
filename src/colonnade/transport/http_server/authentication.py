"""HTTP authentication: calls the guard, serves its metadata documents, logs refused credentials.

Rules: one log line a minute for each reason and client address, whatever clients send; what was
left out is counted in the next line. No header and no token is ever in a line. A request without a
token is how every login begins, and is not logged.
"""

import asyncio
import logging
import time
from typing import Any, Final

from msgspec.structs import replace

from colonnade.errors import AuthError, Fault
from colonnade.ports import EndpointRequest, EndpointResponse, Guard
from colonnade.protocol.http.challenges import read_challenges
from colonnade.protocol.http.security import OK, HttpError
from colonnade.transport.http_server.request import (
    ENDED,
    RESPONDING,
    IncomingRequest,
    Pairs,
    Scope,
    Send,
)

# Of a request to an authorization server: a registration with all its redirect URIs has less.
MAX_ENDPOINT_BODY_BYTES: Final = 64 * 1024
NO_CONTENT: Final = 204

# The documents are public, also for web pages, and change with the configuration.
PUBLIC_HEADERS: Pairs = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"cache-control", b"max-age=300"),
]
# RS-06: removed, so that a handler cannot pass them on.
_SECRET = (b"authorization", b"dpop")


async def admit(
    incoming: IncomingRequest, guard: Guard, method: str, place: str, root: str
) -> None:
    """Authenticate a request, and note its principal, scopes and claims. Raises `HttpError`."""
    caller = await guard.authenticate(method, place, root, incoming.headers)
    incoming.headers = {name: v for name, v in incoming.headers.items() if name not in _SECRET}
    incoming.principal, incoming.scopes = caller.principal, caller.scopes
    incoming.claims = caller.claims
    if caller.expires_at is not None:
        left_s = max(caller.expires_at - time.time(), 0.0)
        incoming.token_expires_at = asyncio.get_running_loop().time() + left_s
        if method == "GET":  # RS-07: its notifications are for the holder of a valid token
            incoming.ends_at = incoming.token_expires_at


async def respond_metadata(
    incoming: IncomingRequest, guard: Guard, path: str, scope: Scope
) -> bool:
    """Respond with the metadata document at this path; False if there is none."""
    method = scope["method"]
    if method not in ("GET", "HEAD", "OPTIONS"):
        return False
    found = await guard.metadata(path, scope.get("root_path", ""))
    if found is not None:
        await incoming.respond(OK, b"" if method == "OPTIONS" else found, PUBLIC_HEADERS)
    return found is not None


async def respond_endpoint(
    incoming: IncomingRequest, guard: Guard, path: str, scope: Scope, send: Send, behind: bool
) -> None:
    """Respond to a request for an endpoint of the authorization server. `behind` is whether trusted
    proxy servers are configured. Raises `HttpError` if the body is too large, and the errors of the
    guard."""
    limits = incoming.limits
    if limits.max_body_bytes > MAX_ENDPOINT_BODY_BYTES:
        incoming.limits = replace(limits, max_body_bytes=MAX_ENDPOINT_BODY_BYTES)
    method: str = scope["method"]
    body = await incoming.body() if method == "POST" else b""
    query: str = scope.get("query_string", b"").decode("latin-1")
    client = scope.get("client")
    address = str(client[0]) if client else ""
    request = EndpointRequest(method, path, query, incoming.headers, body, address, behind)
    response = await guard.respond(request)
    incoming.state = RESPONDING
    await send_endpoint_response(response, send)
    incoming.state = ENDED


async def send_endpoint_response(response: EndpointResponse, send: Send) -> None:
    """Send the response of an endpoint, as ASGI messages."""
    headers = [(name.encode(), value.encode("latin-1")) for name, value in response.headers]
    if response.status != NO_CONTENT:  # RFC 9110, 8.6
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


log: logging.Logger = logging.getLogger("colonnade.auth")

# A client with a wrong token retries every few seconds; one line is enough.
REFUSAL_LOG_S: Final = 60.0
# Pairs of reason and address that are counted; beyond that all addresses of a reason are one.
MAX_LOGGED_PAIRS: Final = 256


class RefusalLog:
    """Logs refused credentials, at a limited rate."""

    def __init__(self) -> None:
        # For each reason and client: until when it is not logged again, and how often it was left
        # out.
        self._logged: dict[tuple[str, str], list[float]] = {}

    def note(self, refused: Fault | AuthError, client: str, now: float) -> None:
        """Log that credentials were refused, unless the same was logged in the last minute."""
        reason, detail = _reason(refused)
        if not reason:
            return
        key = self._key(reason, client, now)
        until = self._logged.get(key)
        if until is not None and now < until[0]:
            until[1] += 1
            return
        left_out = int(until[1]) if until is not None else 0
        self._logged[key] = [now + REFUSAL_LOG_S, 0]
        more = f"; {left_out} more like it since it was last logged" if left_out else ""
        facts: dict[str, Any] = {"reason": reason, "detail": detail, "client": client}
        facts["left_out"] = left_out
        said = f" ({detail})" if detail else ""
        log.warning("refused %s: %s%s%s", client, reason, said, more, extra={"refusal": facts})

    def _key(self, reason: str, client: str, now: float) -> tuple[str, str]:
        if (reason, client) not in self._logged and len(self._logged) >= MAX_LOGGED_PAIRS:
            for key in [key for key, until in self._logged.items() if now >= until[0]]:
                del self._logged[key]
            if len(self._logged) >= MAX_LOGGED_PAIRS:
                return reason, ""
        return reason, client


def unverified_words(refused: AuthError) -> str:
    """The log entry for a custom verifier: its own message may have the token in it."""
    return f"verify= raised {type(refused).__name__}"


def _reason(refused: Fault | AuthError) -> tuple[str, str]:
    """The reason and the detail of the guard; empty if no credentials were refused."""
    if isinstance(refused, AuthError):
        return unverified_words(refused), ""
    if not isinstance(refused, HttpError):
        return "", ""
    lines = [value for name, value in refused.headers if name.lower() == "www-authenticate"]
    return read_challenges(lines).reason, refused.detail
