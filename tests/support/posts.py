"""POSTs to try the HTTP rules with: a body, the headers that go with it, what it is refused with.

Rules: a test changes what it is about; all the rest is right.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from colonnade.errors import Fault
from colonnade.protocol.http.rules import AdmittedRequest, admit, status_of
from colonnade.protocol.http.security import Headers
from colonnade.protocol.jsonrpc import Request, decode
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import (
    JULY_2026,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2024,
    NOVEMBER_2025,
    Revision,
    Revisions,
    error_code,
)
from colonnade.protocol.types import ClientCapabilities

MODERN_ONLY = Revisions((JULY_2026,))
HANDSHAKES = Revisions((NOVEMBER_2024, MARCH_2025, JUNE_2025, NOVEMBER_2025))
TASKS = "io.modelcontextprotocol/tasks"
META = {
    "io.modelcontextprotocol/protocolVersion": JULY_2026.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}
VERSION, CAPABILITIES = META
CALL = {"name": "weather", "arguments": {"city": "Oslo"}}


def request(
    method: str = "tools/call", params: Mapping[str, object] = CALL, meta: object = META
) -> Request:
    """A request as it comes out of a body; without `_meta` where that is None."""
    members = dict(params) if meta is None else {**params, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": members}
    frame = decode(json.dumps(body).encode())
    assert isinstance(frame, Request)
    return frame


def modern(method: str = "tools/call", name: str | None = "weather", **more: str) -> Headers:
    """The headers of a modern POST; an underscore stands for a dash."""
    said = {"mcp_protocol_version": JULY_2026.date, "mcp_method": method, "mcp_name": name} | more
    return {k.replace("_", "-").encode(): v.encode() for k, v in said.items() if v is not None}


def without(headers: Headers, *names: bytes) -> Headers:
    return {name: value for name, value in headers.items() if name not in names}


def session(revision: Revision) -> Peer:
    return Peer(revision, ClientCapabilities())


def refusal(call: Callable[..., object], *args: Any, **kwargs: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        call(*args, **kwargs)
    return caught.value


def answer(
    call: Callable[..., object], *args: Any, revision: Revision | None = None, **kwargs: Any
) -> tuple[int, int]:
    """The status and the code that a request is refused with before it is let in."""
    fault = refusal(call, *args, **kwargs)
    return status_of(fault, revision, admitted=False), error_code(fault, revision)


def let_in(*args: Any, **kwargs: Any) -> AdmittedRequest:
    admission = admit(*args, **kwargs)
    assert admission is not None
    return admission
