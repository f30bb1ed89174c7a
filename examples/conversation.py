"""One conversation in each of the five revisions, between a client and a server in memory.

    python examples/conversation.py [DATE ...]

Both sides follow a script here; every line that is printed was written by one side and read by
the other with `portico.protocol`. What differs between revisions is asked of the revision.
"""

import sys
from typing import Any

from portico.protocol import jsonrpc
from portico.protocol.jsonrpc import Failure, Notification, Reply, Request
from portico.protocol.revision import ALL, Asking, Revision

JSON = dict[str, Any]

CLIENT_INFO = {"name": "reader", "version": "1.0"}
SERVER_INFO = {"name": "library", "version": "1.0"}
PREFIX = "io.modelcontextprotocol/"
SEAT_FORM = {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]}
TOOLS = [
    {
        "name": "book",
        "inputSchema": {"type": "object", "properties": {"flight": {"type": "string"}}},
    },
    {"name": "count", "inputSchema": {"type": "object"}},
]


class Conversation:
    """What the two sides say, line by line: printed, and read back by the other side."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.lines = 0
        self._next = {"client": 1, "server": 1}
        self._waiting: dict[str, list[str]] = {"client": [], "server": []}

    def request(self, side: str, method: str, params: JSON | None = None) -> str:
        """One side asks; the id that the answer will carry."""
        raw_id = str(self._next[side])
        self._next[side] += 1
        self._waiting[side].append(raw_id)
        params = self._enveloped(params or {}) if side == "client" else params or {}
        self._say(side, jsonrpc.encode_request(raw_id.encode(), method, jsonrpc.encode(params)))
        return raw_id

    def notify(self, side: str, method: str, params: JSON | None = None) -> None:
        """One side says something that is not answered."""
        body = jsonrpc.encode(params) if params else b""
        self._say(side, jsonrpc.encode_notification(method, body))

    def reply(self, side: str, raw_id: str, result: JSON) -> None:
        """One side answers what the other asked."""
        if side == "server":
            result = self._stamped(result)
        self._say(side, jsonrpc.encode_reply(raw_id.encode(), jsonrpc.encode(result)))

    def drop(self, raw_id: str) -> None:
        """The client gave up on a call: no answer will come."""
        self._waiting["client"].remove(raw_id)

    def finish(self) -> None:
        """Nothing may be left open."""
        assert not any(self._waiting.values()), self._waiting

    def _enveloped(self, params: JSON) -> JSON:
        if self.revision.handshake:
            return params
        meta = {
            PREFIX + "protocolVersion": self.revision.date,
            PREFIX + "clientInfo": CLIENT_INFO,
            PREFIX + "clientCapabilities": self.client_capabilities,
        }
        return {**params, "_meta": meta | params.get("_meta", {})}

    def _stamped(self, result: JSON) -> JSON:
        if not self.revision.stamped:
            return result
        return {"resultType": "complete", **result, "_meta": {PREFIX + "serverInfo": SERVER_INFO}}

    @property
    def client_capabilities(self) -> JSON:
        return {"elicitation": {}} if self.revision.elicitation.modes else {"sampling": {}}

    def _say(self, side: str, line: bytes) -> None:
        other = "server" if side == "client" else "client"
        frame = jsonrpc.decode(line)
        assert isinstance(frame, Request | Notification | Reply | Failure)
        if isinstance(frame, Reply):
            self._waiting[other].remove(str(frame.id))
        self.lines += 1
        print(f"  {'client ->' if side == 'client' else '<- server'}  {line.decode()}")


def open_up(talk: Conversation) -> None:
    """A handshake, or a first request that says everything itself."""
    server: JSON = {"capabilities": {"tools": {}}, "instructions": "Books seats."}
    if talk.revision.handshake:
        ours = {"capabilities": talk.client_capabilities, "clientInfo": CLIENT_INFO}
        version = {"protocolVersion": talk.revision.date}
        id = talk.request("client", "initialize", version | ours)
        talk.reply("server", id, version | server | {"serverInfo": SERVER_INFO})
        talk.notify("client", "notifications/initialized")
    else:
        id = talk.request("client", "server/discover")
        versions = {"supportedVersions": [revision.date for revision in reversed(ALL)]}
        talk.reply("server", id, {**versions, **server, **cache_hints(talk)})


def list_tools(talk: Conversation) -> None:
    id = talk.request("client", "tools/list")
    talk.reply("server", id, {"tools": TOOLS, **cache_hints(talk)})


def cache_hints(talk: Conversation) -> JSON:
    return {"ttlMs": 60_000, "cacheScope": "public"} if talk.revision.stamped else {}


def call_with_progress(talk: Conversation) -> None:
    id = talk.request("client", "tools/call", {"name": "count", "_meta": {"progressToken": "p1"}})
    for done in (1, 2):
        progress = {"progressToken": "p1", "progress": done, "total": 2}
        talk.notify("server", "notifications/progress", progress)
    talk.reply("server", id, text("2 flights"))


def call_with_a_question(talk: Conversation) -> None:
    """The tool needs something from the user: asked by request, or by result and a retry."""
    call = {"name": "book", "arguments": {"flight": "DY 620"}}
    method, params, answer = question(talk.revision)
    id = talk.request("client", "tools/call", call)
    if talk.revision.asking is Asking.BY_REQUEST:
        asked = talk.request("server", method, params)
        talk.reply("client", asked, answer)
    else:
        asks = {"seat": {"method": method, "params": params}}
        state = {"resultType": "input_required", "requestState": "sealed by the server"}
        talk.reply("server", id, {**state, "inputRequests": asks})
        again = {"inputResponses": {"seat": answer}, "requestState": "sealed by the server"}
        id = talk.request("client", "tools/call", call | again)
    talk.reply("server", id, text("DY 620, seat 12A"))


def question(revision: Revision) -> tuple[str, JSON, JSON]:
    """Ask the user where that is possible, else a model on the client's side."""
    if revision.elicitation.modes:
        form = {"message": "Which seat?", "requestedSchema": SEAT_FORM}
        return "elicitation/create", form, {"action": "accept", "content": {"seat": "12A"}}
    said = [{"role": "user", "content": {"type": "text", "text": "Pick a seat on DY 620."}}]
    answer = {"role": "assistant", "model": "any", "content": {"type": "text", "text": "12A"}}
    return "sampling/createMessage", {"messages": said, "maxTokens": 10}, answer


def call_and_cancel(talk: Conversation) -> None:
    id = talk.request("client", "tools/call", {"name": "count"})
    given_up = {"requestId": int(id), "reason": "the user moved on"}
    talk.notify("client", "notifications/cancelled", given_up)
    talk.drop(id)


def text(words: str) -> JSON:
    return {"content": [{"type": "text", "text": words}]}


STEPS = {
    "open": open_up,
    "list the tools": list_tools,
    "call one, with progress": call_with_progress,
    "call one that asks": call_with_a_question,
    "call one, and give up": call_and_cancel,
}


def main(dates: list[str]) -> int:
    """Play the conversation in each revision, or in those with these dates."""
    known = {revision.date: revision for revision in ALL}
    strangers = [date for date in dates if date not in known]
    if strangers:
        print(f"no revision {', '.join(strangers)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    for date in dates or known:
        talk = Conversation(known[date])
        print(f"\nMCP {date}")
        for name, step in STEPS.items():
            print(f" {name}")
            step(talk)
        talk.finish()
        print(f" {talk.lines} lines, every request settled")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
