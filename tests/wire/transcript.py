"""The messages of one conversation: as text to read, and as values to check.

    === A step: what happens in it
    --> {"jsonrpc":"2.0","id":2,"method":"ping"}        from the client
    <-- {"jsonrpc":"2.0","id":2,"result":{}}            from the server
    <== {"jsonrpc":"2.0","method":"notifications/…"}    from the server, on a stream of its own
      . the client closes its end                       what happens without a word

Rules: nothing is left out but what no two runs have in common, which gets a name: `<session>`.
What is checked is what came, never what was written here.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from colonnade.protocol.methods import Side
from colonnade.protocol.revision import Revision
from script_runner import Message

JSON = dict[str, Any]
WIDTH = 110
STEP = 2
CRASH = re.compile(r"\(id ([0-9a-f]{6})\)")
HANDLE = re.compile(r"\bbasket_[A-Za-z0-9_-]{22}\b")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
    CLIENT_INFO,
}
# What is the server's own business, or ours, and no word of the protocol.
PLUMBING = frozenset({"date", "content-length", "transfer-encoding", "connection", "server"})


@dataclass
class Frame:
    """One event of a stream as its lines were: `data` is None where there was no such line."""

    id: str | None = None
    event: str | None = None
    retry: str | None = None
    data: str | None = None
    other: list[str] = field(default_factory=list[str])


@dataclass
class HttpExchange:
    """One HTTP request and all that came back."""

    method: str
    path: str
    body: bytes
    said: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    frames: list[Frame] = field(default_factory=list[Frame])
    answer: bytes = b""
    # Whether the client stayed to the end.
    whole: bool = False

    @property
    def sent(self) -> Any:
        """The message of its body, None where that is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"


class Transcript:
    """Everything that was said in one play."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.lines: list[str] = []
        self.messages: list[Message] = []
        self.http_exchanges: list[HttpExchange] = []
        self.crashes: list[str] = []
        self._names: dict[str, str] = {}
        self._shown: set[str] = set()
        self._counts: dict[str, int] = {}

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip() + "\n"

    def step(self, words: str) -> None:
        self.lines += ["", f"=== {words}", ""]

    def remark(self, words: str) -> None:
        """Something that happened without a word."""
        self.lines.append(f"  . {words}")

    # ------------------------------------------------------------ messages

    def said(self, text: str | bytes, arrow: str = "-->", lead: str = "") -> None:
        """What somebody said, message or not."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "backslashreplace")
        try:
            shown = laid_out(self._brief(json.loads(text)), 4 + len(lead))
        except ValueError:
            shown = text if len(text) <= WIDTH else f"{text[:60]}… ({len(text)} characters)"
        self.line(arrow, lead + shown)

    def line(self, arrow: str, text: str) -> None:
        for secret, name in self._names.items():
            text = text.replace(secret, name)
        text = HANDLE.sub("<basket>", CRASH.sub("(id <crash>)", text))
        self.lines.append(f"{arrow} {text}".rstrip())

    def heard(self, text: str, method_of: dict[Any, str]) -> list[JSON]:
        """A frame of the server's: its messages, kept for those who check."""
        frame: Any = json.loads(text)
        messages: list[JSON] = frame if isinstance(frame, list) else [frame]
        for one in messages:
            answered = None if "method" in one else method_of.get(one.get("id"))
            self.messages.append(Message(Side.SERVER, one, self.revision, answered))
            result = one.get("result", {})
            for member, name in (("requestState", "state"), ("nextCursor", "cursor")):
                if member in result:
                    self.name(result[member], name, numbered=True)
        self.crashes += CRASH.findall(text)
        return messages

    def name(self, secret: str, name: str, *, numbered: bool = False) -> None:
        """Write a name wherever this stands."""
        if secret not in self._names:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            self._names[secret] = f"<{name} {count}>" if numbered or count > 1 else f"<{name}>"

    # ------------------------------------------------------------ what is said again and again

    def _brief(self, value: Any) -> Any:
        """Who is who, which every message of some revisions says, is written out once."""
        if isinstance(value, list):
            return [self._brief(item) for item in value]
        if not isinstance(value, dict):
            return value
        members: JSON = {}
        for key, item in value.items():
            if key in (SERVER_INFO, *ENVELOPE):
                once = f"{key} {json.dumps(item)}"
                members[key] = "as before" if once in self._shown else item
                self._shown.add(once)
            else:
                members[key] = self._brief(item)
        if all(members.get(key) == "as before" for key in ENVELOPE):
            members = {"(envelope)": "as before"} | {
                key: item for key, item in members.items() if key not in ENVELOPE
            }
        return members

    # ------------------------------------------------------------ HTTP

    def exchange(self, exchange: HttpExchange, said: dict[str, str | None]) -> None:
        """The client's side of a request."""
        self.http_exchanges.append(exchange)
        shown = [f"{name}: {value}" for name, value in said.items() if value is not None]
        self.line("-->", f"{exchange.method} {exchange.path}{_bracketed(shown)}")
        if exchange.body:
            self.said(exchange.body, "   ")

    def answered(self, exchange: HttpExchange, arrow: str = "<--") -> None:
        """The head of the answer, and its body where it is no stream."""
        shown = [
            f"{name}: {value}" for name, value in exchange.headers.items() if name not in PLUMBING
        ]
        self.line(arrow, f"{exchange.status}{_bracketed(shown)}")

    def framed(self, frame: Frame, arrow: str = "   ") -> None:
        """One event of a stream."""
        for name, value in (("id", frame.id), ("event", frame.event), ("retry", frame.retry)):
            if value is not None:
                self.line(arrow, f"{name}: {value}")
                arrow = "   "
        for line in frame.other:
            self.line(arrow, line)
        if frame.data is not None:
            self.said(frame.data, arrow, "data: ")


def _bracketed(headers: list[str]) -> str:
    return f" [{'; '.join(headers)}]" if headers else ""


def laid_out(value: Any, column: int, indent: int = 4) -> str:
    """JSON that can be read: on one line where it fits, else filled, in the order of its members.

    It begins at a column; its further lines are indented. A list that does not fit has each of its
    items on a line of its own, unless they are words.
    """
    flat = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if column + len(flat) <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    indent += STEP
    if isinstance(value, list):
        parts, brackets = [("", item) for item in value], "[]"
        apart = isinstance(value[0], dict | list)
    else:
        parts, brackets = [(f"{json.dumps(key)}:", item) for key, item in value.items()], "{}"
        apart = False
    text, column = brackets[0], column + 1
    for number, (name, item) in enumerate(parts):
        whole = name + json.dumps(item, ensure_ascii=False, separators=(",", ":"))
        if number:
            text, column = f"{text},", column + 1
            if apart or column + len(whole) > WIDTH:
                text, column = f"{text}\n{' ' * indent}", indent
        part = name + laid_out(item, column + len(name), indent)
        text += part
        column = len(part) + column if "\n" not in part else WIDTH
    return text + brackets[1]
