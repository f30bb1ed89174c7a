"""Runs a script of a conversation between links, and writes its transcript.

    -->  bytes from the client to the server        .  what an application does
    <--  bytes from the server to the client        !  what a link reports to its application
    @    the clock, in seconds                      --- a new conversation between two others

Bytes of a side that is ours are written by its link; those of the other side stand in the script.
A message that is not printable UTF-8 is written as a Python literal, and `⟨x*9⟩` is nine of `x`.

Rules: no clock, no I/O, nothing random. The same script gives the same text, always.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from colonnade.errors import ColonnadeError, Fault, LocalProtocolError, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, decode_result
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import LineSplitter, RequestId, encode
from colonnade.protocol.link.events import (
    LinkEvent,
    MessageIgnored,
    NotificationReceived,
    PeerIdentified,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import EVERY, Revision, Revisions, Tasks
from script import Script, holds, shown, spelled, tokens

ARROWS = {Side.CLIENT: "-->", Side.SERVER: "<--"}


class Message(NamedTuple):
    """One message that a side of ours wrote; `answers` is the method of the request it answers."""

    side: Side
    members: dict[str, Any]
    revision: Revision
    answers: str | None


class ScriptRunner:
    """One script in one revision, and what came of it."""

    def __init__(self, script: Script, revision: Revision, values: dict[str, Any]) -> None:
        self.script = script
        self.revision = revision
        self.values = values
        self.text: list[str] = []
        self.emitted: list[Message] = []
        self.accepts = {Side.CLIENT: Revisions.of(revision.date), Side.SERVER: EVERY}
        self.can: dict[Side, Any] = {
            Side.CLIENT: decode_as(t.ClientCapabilities, self.value("client-can")),
            Side.SERVER: decode_as(t.ServerCapabilities, self.value("server-can")),
        }
        self.info = {
            Side.CLIENT: decode_as(t.Implementation, self.value("client-info")),
            Side.SERVER: decode_as(t.Implementation, self.value("server-info")),
        }
        self._queue: deque[tuple[Side, bytes]] = deque()
        self._reset()
        self.on_call: Callable[[Side, Exchange], None] | None = None
        self.on_answer: Callable[[Side, RequestFinished], None] | None = None

    def _reset(self) -> None:
        """Begin a new conversation."""
        self.now = 0.0
        self.exchanges: dict[tuple[Side, RequestId], Exchange] = {}
        self._asked: dict[tuple[Side, str], tuple[str, Revision]] = {}
        self._links: dict[Side, DuplexLink] = {}
        self._pipes = {side: LineSplitter() for side in Side}

    def value(self, token: str) -> bytes:
        """A JSON value as it stands in a script, or by its name in `values.json`."""
        if token[0] in '{["' or token.lstrip("-")[:1].isdigit():
            return token.encode()
        return json.dumps(self.values[token], ensure_ascii=False).encode()

    def link(self, side: Side) -> DuplexLink:
        """The link of a side that is ours, made when it is first needed."""
        if side not in self._links:
            assert side in self.script.ours, f"{self.script.name}: the {side.value} is not ours"
            instructions = "Ask before you book." if side is Side.SERVER else None
            identity = Identity(self.info[side], self.can[side], instructions)
            self._links[side] = DuplexLink(side, identity, self.accepts[side])
        return self._links[side]

    def move(self, side: Side) -> None:
        """Another process goes on with a link, from nothing but its record."""
        link = self.link(side)
        self._links[side] = DuplexLink.restore(link.snapshot(), link.identity, link.accepts)

    # ------------------------------------------------------------ messages

    def note(self, sign: str, text: str) -> None:
        self.text.append(f"{sign:>3} {text}")

    def send(self, side: Side, data: bytes | None) -> None:
        """Bytes of a side of ours; None is silence."""
        if data is None:
            self.note("!", f"{side.value}: says nothing")
            return
        assert b"\n" not in data  # R0040: one message, one line
        self.note(ARROWS[side], shown(data))
        self.emitted.extend(self.messages(side, json.loads(data)))
        if side.other in self.script.ours:
            self._queue.append((side.other, data))

    def receive_foreign(self, side: Side, text: str) -> None:
        """Bytes of the side that is not ours, as a pipe would bring them."""
        assert side not in self.script.ours, f"{self.script.name}: the {side.value} is ours"
        text = self.filled(text)
        self.note(ARROWS[side], text)
        for line in self._pipes[side].feed(spelled(text) + b"\n"):
            assert isinstance(line, bytes)
            self._queue.append((side.other, line))
            with suppress(ValueError, RecursionError):
                list(self.messages(side, json.loads(line)))

    def messages(self, side: Side, found: Any) -> Iterator[Message]:
        """The messages in what was said; requests are remembered, so that answers name theirs."""
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, dict):
                members: dict[str, Any] = each
                id, method = json.dumps(members.get("id")), members.get("method")
                if method is not None:
                    spoken = self._spoken(members)
                    self._asked[side, id] = (str(method), spoken)
                    yield Message(side, members, spoken, None)
                else:
                    ours = (None, self.revision)
                    answers, spoken = self._asked.get((side.other, id), ours)
                    if answers == "initialize" and "result" in members:
                        spoken = EVERY.get(members["result"]["protocolVersion"]) or spoken
                    yield Message(side, members, spoken, answers)

    def _spoken(self, members: dict[str, Any]) -> Revision:
        """The revision of a message by its own word, where it says one: a pipe may carry several."""
        try:
            params = members["params"]
            if members["method"] == "initialize":
                named = params["protocolVersion"]
            else:
                named = params["_meta"][t.PROTOCOL_VERSION_KEY]
        except (KeyError, TypeError):
            return self.revision
        return EVERY.get(named) or self.revision

    def filled(self, text: str) -> str:
        """`$date` is the revision; `$meta` is what each request must say of its sender, if it must.

        `$meta{...}` adds to it. A comma behind a `_meta` that stays empty goes with it.
        `$key(elicit-seat)` is the name that a server gives to the answer of that question.
        """

        def meta(found: re.Match[str]) -> str:
            members = self.envelope() | json.loads(found[1] or "{}")
            comma = found[2] or ""
            return f'"_meta":{encode(members).decode()}{comma}' if members else ""

        text = re.sub(r"\$meta(\{[^}]*\})?(,)?", meta, text)
        text = re.sub(r"\$key\(([\w-]+)\)", lambda found: self.key(found[1]), text)
        return text.replace("$date", self.revision.date)

    def question(self, name: str) -> InputRequest:
        """A question of `values.json`; the first word of its name says what it asks for."""
        kinds = {"elicit": t.ElicitRequestParams, "sample": t.CreateMessageRequestParams}
        kind = kinds.get(name.partition("-")[0], t.ListRootsRequestParams)
        return InputRequest(decode_as(kind, self.value(name)))

    def key(self, name: str) -> str:
        question = self.question(name)
        return f"{question.kind.name.lower()}-{question.digest()}-1"

    def envelope(self) -> dict[str, Any]:
        caps, info = self.can[Side.CLIENT], self.info[Side.CLIENT]
        envelope = t.Envelope(version=self.revision.date, capabilities=caps, client_info=info)
        body = Encoder(self.revision, None, envelope).params(t.RequestParams())
        return json.loads(body)["_meta"] if body else {}

    def settle_down(self) -> None:
        """Let every line that is under way arrive."""
        while self._queue:
            side, data = self._queue.popleft()
            self.report(side, self.link(side).receive(data, self.now))

    def report(self, side: Side, events: list[LinkEvent]) -> None:
        for event in events:
            if isinstance(event, Send):
                self.send(side, event.data)
                continue
            self.note("!", f"{side.value}: {''.join(self.described(side, event))}")
            if isinstance(event, RequestReceived):
                exchange = event.exchange
                self.exchanges[side, exchange.request.id] = exchange
                if self.on_call is not None:
                    self.on_call(side, exchange)
            elif isinstance(event, RequestFinished) and self.on_answer is not None:
                self.on_answer(side, event)

    def described(self, side: Side, event: LinkEvent) -> Iterator[str]:
        match event:
            case RequestReceived(exchange):
                yield f"call {shown(exchange.request.raw_id)} of {exchange.method.name}"
            case NotificationReceived(row, _, subscription):
                yield f"told {row.name}"
                yield f" of subscription {encode(subscription).decode()}" if subscription else ""
            case ProgressReceived(id, params):
                yield f"progress of {id}: {params.progress}"
            case RequestCancelled(exchange, reason):
                yield f"cancelled {shown(exchange.request.raw_id)}"
                yield f", {reason}" if reason else ""
            case PeerIdentified(peer):
                name = peer.info.name if peer.info else "nobody"
                yield f"opened {peer.revision.date} with {name}"
            case MessageIgnored(why):
                yield f"dropped, {why}"
            case RequestFinished(id, method, outcome):
                yield f"answered {id} of {method}: {self.outcome(side, method, outcome)}"
            case Send():
                pass

    def outcome(self, side: Side, method: str, outcome: Any) -> str:
        """What a caller reads from an answer: the kind of its result, or the error."""
        if isinstance(outcome, RemoteError):
            return f"error {outcome.code}, {outcome.message}"
        if isinstance(outcome, ColonnadeError):
            return f"{type(outcome).__name__}, {outcome}"
        link = self.link(side)
        peer = link.peer or Peer(self.revision, t.ServerCapabilities())
        row = peer.revision.method(method, frozenset({t.TASKS_EXTENSION_ID}))
        assert row is not None
        try:
            ours = frozenset(self.can[side].extensions or ())
            return type(decode_result(row, outcome, peer, ours)).__name__
        except Fault as fault:
            # Who asked for a task knows to read one; nothing in the result says that it is.
            if peer.revision.tasks is Tasks.CORE and b'{"task":' in bytes(outcome):
                return type(decode_as(t.CreateTaskResult, outcome)).__name__
            return f"unreadable, {fault.message}"

    # ------------------------------------------------------------ the run

    def run(self, verbs: Callable[[list[str]], None]) -> str:
        """The whole conversation. `verbs` does what the applications do."""
        for step in self.script.steps:
            found = re.match(r"\[([^\]]+)\] (.*)", step)
            if found and not holds(tuple(found[1].split()), self.revision):
                continue
            self._step(found[2] if found else step, verbs)
            self.settle_down()
        heads = [f"# {words}" for words in self.script.words]
        who = " and ".join(side.value for side in self.script.ours)
        heads.append(f"# {self.revision.date}. Ours: the {who}.")
        return "\n".join([*heads, *self.text]).replace("\n\n\n", "\n\n") + "\n"

    def _step(self, step: str, verbs: Callable[[list[str]], None]) -> None:
        if not step or step.startswith("#"):
            self.text.append(step)
        elif step == "anew":
            self.text.append("\n--- others meet")
            self._reset()
        elif step.startswith("--> "):
            self.receive_foreign(Side.CLIENT, step[4:])
        elif step.startswith("<-- "):
            self.receive_foreign(Side.SERVER, step[4:])
        elif step.startswith("@ "):
            self.now = float(step[2:])
            self.note("@", step[2:])
            for side in self.script.ours:
                self.report(side, self.link(side).tick(self.now))
        else:
            step = self.filled(step)
            self.note(".", step)
            try:
                verbs(tokens(step))
            except LocalProtocolError as error:
                self.note("!", f"refused here, {error}")
