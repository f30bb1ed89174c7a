"""The way in where a guard stands: who sent a request, and what strangers read about the way.

Rules: decides nothing; the guard does. Credentials end here: nobody behind this sees them.
"""

import asyncio
import time

from colonnade.ports import Guard
from colonnade.protocol.httprules_gate import OK
from colonnade.transport.http_visit import Pairs, Scope, Visit

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
