"""What is sent and what must come back: requests as bytes, made before a clock starts.

The same bytes go to every server of a row, but for the id, which is always new and always of eight
digits. Rules: does no I/O; imports nothing of ours.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MODERN = "2026-07-28"
SESSIONS = "2025-11-25"
# Eight digits, so that all requests of a row are of one length.
FIRST_ID = 10_000_000
CLIENT = {"name": "bench", "version": "1.0"}
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE: dict[str, Any] = {
    "protocolVersion": SESSIONS,
    "capabilities": {},
    "clientInfo": CLIENT,
}

# Says what is wrong with a result, if anything.
Check = Callable[[dict[str, Any]], str | None]


class Wrong(Exception):
    """An answer that is not what was asked for: the figure of such a server is worth nothing."""


@dataclass(frozen=True)
class Ask:
    """One request: its method and params, what its result must be, and how many notices come."""

    method: str
    params: dict[str, Any]
    check: Check
    notices: int = 0

    @property
    def name(self) -> str | None:
        """What the `Mcp-Name` header says."""
        return self.params.get("name") or self.params.get("taskId")


def text_of(result: dict[str, Any]) -> str:
    """The text of a result's first content."""
    content = result.get("content") or [{}]
    return str(content[0].get("text"))


def says(expected: str) -> Check:
    """A check of a tool's text."""

    def check(result: dict[str, Any]) -> str | None:
        found = text_of(result)
        if result.get("isError") or found != expected:
            return f"{found[:200]!r} instead of {expected[:50]!r}"
        return None

    return check


def lists(count: int) -> Check:
    """A check of a list of tools: all of them, in one answer."""

    def check(result: dict[str, Any]) -> str | None:
        names = {tool["name"] for tool in result.get("tools", [])}
        return None if len(names) >= count else f"{len(names)} tools instead of {count}"

    return check


def call(name: str, expected: str, *, notices: int = 0, **arguments: Any) -> Ask:
    """Call a tool."""
    params: dict[str, Any] = {"name": name, "arguments": arguments}
    if notices:
        params["_meta"] = {"progressToken": "bench"}
    return Ask("tools/call", params, says(expected), notices)


def body(ask: Ask, era: str) -> tuple[bytes, bytes]:
    """A request as JSON, before and after its id."""
    params = dict(ask.params)
    if era == MODERN:
        params["_meta"] = {**ENVELOPE, **params.get("_meta", {})}
    frame = {"jsonrpc": "2.0", "id": FIRST_ID, "method": ask.method, "params": params}
    before, after = json.dumps(frame, separators=(",", ":")).encode().split(b"%d" % FIRST_ID, 1)
    return before, after


def verify(ask: Ask, id: int, frames: list[Any]) -> None:
    """Raise `Wrong` unless these are the notices and the answer to a request."""
    *notices, answer = frames or [None]
    if not isinstance(answer, dict) or answer.get("id") != id or "result" not in answer:
        raise Wrong(f"{ask.method} {id} was answered with {str(answer)[:300]}")
    if wrong := ask.check(answer["result"]):
        raise Wrong(f"{ask.method} {ask.name}: {wrong}")
    progress = [one for one in notices if one.get("method") == "notifications/progress"]
    if len(progress) != ask.notices:
        raise Wrong(f"{ask.method} {ask.name}: {len(progress)} notices instead of {ask.notices}")


@dataclass
class Answer:
    """One answer over HTTP, whole."""

    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    size: int = 0

    @property
    def frames(self) -> list[Any]:
        """The messages in it: one of JSON, or those of an event stream."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [json.loads(self.body)]
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        said = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [json.loads(one) for one in said if one]


def read_answer(data: bytes | bytearray) -> Answer | None:
    """The answer that begins these bytes; None where it is not whole yet."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    status, *lines = bytes(data[:end]).decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    answer = Answer(int(status.split(" ", 2)[1]), headers)
    if "chunked" in headers.get("transfer-encoding", ""):
        return _read_chunks(answer, data, end + 4)
    answer.size = end + 4 + int(headers.get("content-length", "0"))
    if len(data) < answer.size:
        return None
    answer.body = bytes(data[end + 4 : answer.size])
    return answer


def _read_chunks(answer: Answer, data: bytes | bytearray, at: int) -> Answer | None:
    pieces: list[bytes] = []
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(bytes(data[at:end]).split(b";")[0], 16)
        if len(data) < end + 2 + size + 2:
            return None
        if not size:
            answer.body, answer.size = b"".join(pieces), end + 4
            return answer
        pieces.append(bytes(data[end + 2 : end + 2 + size]))
        at = end + 2 + size + 2
