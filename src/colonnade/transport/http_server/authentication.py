"""Refused credentials in the log: why, from where, and how many more like it.

Rules: one line for each reason and client address in a minute, whatever a stranger sends; what was
left out is counted in the next line. No header and no token is ever in a line. A request without a
token is how every login begins, and is not logged.
"""

import asyncio
import logging
import time
from typing import Any, Final

from colonnade.errors import AuthError, Fault
from colonnade.ports import Guard
from colonnade.protocol.http.challenges import read_challenges
from colonnade.protocol.http.security import OK, HttpError
from colonnade.transport.http_server.request import Pairs, Scope, Visit

# The documents are for everybody, web pages too, and change with the configuration.
PUBLIC_HEADERS: Pairs = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-headers", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"cache-control", b"max-age=300"),
]
# RS-06: what a handler does not have, it cannot pass on.
_SECRET = (b"authorization", b"dpop")


async def admit(visit: Visit, guard: Guard, method: str, place: str, root: str) -> None:
    """Note who sent this, and what they may. Raises `Refusal`."""
    caller = await guard.admit(method, place, root, visit.headers)
    visit.headers = {name: v for name, v in visit.headers.items() if name not in _SECRET}
    visit.principal, visit.scopes = caller.principal, caller.scopes
    visit.claims = caller.claims
    if caller.expires_at is not None:
        left_s = max(caller.expires_at - time.time(), 0.0)
        visit.expires = asyncio.get_running_loop().time() + left_s
        if method == "GET":  # RS-07: it waits for news, which are for whom the token is
            visit.until = visit.expires


async def described(visit: Visit, guard: Guard, path: str, scope: Scope) -> bool:
    """Answer with a document about the way in; False where there is none at this path."""
    method = scope["method"]
    if method not in ("GET", "HEAD", "OPTIONS"):
        return False
    found = await guard.document(path, scope.get("root_path", ""))
    if found is not None:
        await visit.reply(OK, b"" if method == "OPTIONS" else found, PUBLIC_HEADERS)
    return found is not None


log: logging.Logger = logging.getLogger("colonnade.auth")

# A client with a wrong token tries again every few seconds; an operator needs to read of it once.
REFUSAL_LOG_S: Final = 60.0
# Reasons and addresses that are told apart; beyond that the addresses of one reason are one.
MAX_TOLD_APART: Final = 256


class RefusalLog:
    """What was logged of refused credentials, and when."""

    def __init__(self) -> None:
        # Until when nothing more is logged of a reason and a client, and what was left out.
        self._told: dict[tuple[str, str], list[float]] = {}

    def note(self, refused: Fault | AuthError, client: str, now: float) -> None:
        """Log that credentials were refused, unless the same was logged a moment ago."""
        reason, detail = _reason(refused)
        if not reason:
            return
        key = self._key(reason, client, now)
        until = self._told.get(key)
        if until is not None and now < until[0]:
            until[1] += 1
            return
        left_out = int(until[1]) if until is not None else 0
        self._told[key] = [now + REFUSAL_LOG_S, 0]
        more = f"; {left_out} more like it since it was last logged" if left_out else ""
        facts: dict[str, Any] = {"reason": reason, "detail": detail, "client": client}
        facts["left_out"] = left_out
        said = f" ({detail})" if detail else ""
        log.warning("refused %s: %s%s%s", client, reason, said, more, extra={"refusal": facts})

    def _key(self, reason: str, client: str, now: float) -> tuple[str, str]:
        if (reason, client) not in self._told and len(self._told) >= MAX_TOLD_APART:
            for key in [key for key, until in self._told.items() if now >= until[0]]:
                del self._told[key]
            if len(self._told) >= MAX_TOLD_APART:
                return reason, ""
        return reason, client


def unverified_words(refused: AuthError) -> str:
    """What a log says of a verifier of the program's own: its words may have the token in them."""
    return f"verify= raised {type(refused).__name__}"


def _reason(refused: Fault | AuthError) -> tuple[str, str]:
    """Why, and what the guard says of it; an empty reason where no credentials were refused."""
    if isinstance(refused, AuthError):
        return unverified_words(refused), ""
    if not isinstance(refused, HttpError):
        return "", ""
    lines = [value for name, value in refused.headers if name.lower() == "www-authenticate"]
    return read_challenges(lines).reason, refused.detail
