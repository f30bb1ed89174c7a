"""What a browser must be told so that pages of admitted origins may use a server: CORS.

A browser asks first (OPTIONS) whether a page may send what it wants to send, and hands the answer
to the page only where that says so. Who is admitted is decided elsewhere, by the gate.

Rules: no I/O. An origin is named only where the policy admits it, one at a time and never as a
wildcard. No credentials of the browser's own: tokens here are headers that the page sets itself.
What a page asks for is repeated only where it has the form of a header of ours.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from colonnade.protocol.httprules_gate import Headers, HostPolicy, check_origin, passes_origin

# Pages ask again after this long; browsers keep an answer for two hours at most anyway.
MAX_AGE_S = 600
# A tool mirrors few of its arguments in headers, and none of them has a long name.
MAX_ASKED = 64
MAX_ASKED_BYTES = 4096

Pairs: TypeAlias = list[tuple[bytes, bytes]]

# In lower case, as browsers ask for them.
_TAKEN: Final = (
    b"accept",
    b"authorization",
    b"content-type",
    b"dpop",
    b"last-event-id",
    b"mcp-method",
    b"mcp-name",
    b"mcp-protocol-version",
    b"mcp-session-id",
)
# Without this a page sees none of them, and so could not go on with its session.
_SHOWN: Final = (
    b"access-control-expose-headers",
    b"DPoP-Nonce, Mcp-Session-Id, MCP-Protocol-Version, Retry-After, WWW-Authenticate",
)
_VARIES: Final = (b"vary", b"origin")
_PARAM = re.compile(rb"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]{1,128}")


def beside(headers: Headers, policy: HostPolicy) -> Pairs | None:
    """The headers of every answer to a page that is admitted; None for anybody else."""
    origin = headers.get(b"origin")
    if origin is None or not passes_origin(headers, policy):
        return None
    return [(b"access-control-allow-origin", origin), _SHOWN, _VARIES]


def preflight(
    method: str, headers: Headers, policy: HostPolicy, methods: Sequence[str]
) -> Pairs | None:
    """The headers of the answer where a browser asks first; None for any other request.

    Raises `Refusal` for an origin or a host that is not admitted, like any request.
    """
    origin = headers.get(b"origin")
    if method != "OPTIONS" or origin is None or b"access-control-request-method" not in headers:
        return None
    check_origin(headers, policy)
    taken = [*_TAKEN, *_mirrored(headers.get(b"access-control-request-headers", b""))]
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-allow-headers", b", ".join(taken)),
        (b"access-control-max-age", b"%d" % MAX_AGE_S),
        _VARIES,
    ]


def _mirrored(asked: bytes) -> list[bytes]:
    """The headers among those asked for that mirror an argument of a tool."""
    names = asked[:MAX_ASKED_BYTES].lower().split(b",")[:MAX_ASKED]
    return [name for name in map(bytes.strip, names) if _PARAM.fullmatch(name)]
