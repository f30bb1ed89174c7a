"""A client and a server in memory, who open a conversation as the specification wants it.

Rules: nothing but the public names of the protocol; what decides anything is there, not here.
"""

import json
from typing import Any

from msgspec import Raw

from colonnade.client.probe import Era, judge
from colonnade.errors import ColonnadeError, RemoteError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import ErrorResponse, RequestId, ResultResponse, encode
from colonnade.protocol.link.events import LinkEvent, RequestFinished, RequestReceived, Send
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer, choose
from colonnade.protocol.revision import EVERY, Revision, Revisions

CLIENT = Identity(
    t.Implementation(name="client", version="1", title="Client", website_url="https://c.example/"),
    t.ClientCapabilities(
        roots=t.RootsCapability(list_changed=True),
        sampling=t.SamplingCapability(tools={}),
        elicitation=t.ElicitationCapability(form={}, url={}),
    ),
)
SERVER = Identity(
    t.Implementation(name="server", version="1", title="Server", website_url="https://s.example/"),
    t.ServerCapabilities(
        tools=t.ToolsCapability(list_changed=True), completions={}, logging={}, extensions={}
    ),
    "Be kind.",
)
ADD = t.Tool(
    name="add",
    title="Add",
    input_schema={"type": "object", "properties": {"a": True, "b": {"type": "integer"}}},
    output_schema={"type": "integer"},
    annotations=t.ToolAnnotations(read_only_hint=True),
    icons=[t.Icon(src="data:,")],
    execution=t.ToolExecution(task_support="optional"),
)


class Pair:
    """Two links and the wire between them; `wire` keeps every message, in order."""

    def __init__(
        self,
        client: Revisions = EVERY,
        server: Revisions = EVERY,
        who: Identity = CLIENT,
        offers: Identity = SERVER,
    ) -> None:
        self.links = {
            Side.CLIENT: DuplexLink(Side.CLIENT, who, client),
            Side.SERVER: DuplexLink(Side.SERVER, offers, server),
        }
        self.wire: list[tuple[Side, bytes]] = []
        self.events: list[tuple[Side, LinkEvent]] = []

    @property
    def client(self) -> DuplexLink:
        return self.links[Side.CLIENT]

    @property
    def server(self) -> DuplexLink:
        return self.links[Side.SERVER]

    def send(self, side: Side, data: bytes | None) -> None:
        """A message from one side, and all that comes of it."""
        if data is None:
            return
        self.wire.append((side, data))
        for event in self.links[side.other].receive(data, 0.0):
            self.events.append((side.other, event))
            if isinstance(event, Send):
                self.send(side.other, event.data)
            elif isinstance(event, RequestReceived):
                self.send(side.other, self.answer(event.exchange))

    def answer(self, exchange: Exchange) -> bytes | None:
        """What the server's application does."""
        match exchange.method.name:
            case "server/discover":
                return exchange.settle(SERVER.discover_result(self.server.accepts))
            case "tools/list":
                return exchange.settle(t.ListToolsResult(tools=[ADD]))
            case "tools/call":
                done = exchange.progress(0.5)
                if done is not None:
                    self.send(Side.SERVER, done)
                result = t.CallToolResult(content=[t.TextContent(text="5")], structured_content=5)
                return exchange.settle(result, exchange.encoder.wraps(ADD))
            case _:
                return None

    # ------------------------------------------------------------ the client's application

    def outcome(self, id: RequestId) -> Raw | ColonnadeError | None:
        """What one of the client's requests came to, if it did."""
        for side, event in self.events:
            if side is Side.CLIENT and isinstance(event, RequestFinished) and event.id == id:
                return event.outcome
        return None

    def ask(self, method: str, params: t.RequestParams | None = None, **options: Any) -> Any:
        """A request of the client: its result, as plain values. Raises what it failed with."""
        id, data = self.client.request(method, params, now=0.0, **options)
        self.send(Side.CLIENT, data)
        outcome = self.outcome(id)
        if isinstance(outcome, Raw):
            return json.loads(bytes(outcome))
        raise outcome or RemoteProtocolError("silence")

    def open(self) -> Revision:
        """As the stdio page says: probe where there is something to probe for, then choose."""
        accepts = self.client.accepts
        if not accepts.enveloped:
            return self.handshake()
        verdict = self.probe()
        if verdict.era is Era.MODERN:
            revision = choose(verdict.supported, accepts)
            if not revision.handshake:
                self.client.adopt(Peer(revision, SERVER.discover_result(EVERY).capabilities))
                return revision
        if not accepts.handshakes:
            raise RemoteProtocolError("an older server; use one that speaks a newer revision")
        return self.handshake()

    def probe(self) -> Any:
        newest = self.client.accepts.enveloped[0]
        id, data = self.client.request("server/discover", now=0.0, revision=newest)
        self.send(Side.CLIENT, data)
        outcome = self.outcome(id)
        if isinstance(outcome, Raw):
            return judge(ResultResponse(id, outcome))
        if isinstance(outcome, RemoteError):
            told = Raw(encode(outcome.data)) if outcome.data is not None else Raw(b"")
            return judge(ErrorResponse(id, outcome.code, outcome.message, told))
        return judge(None)

    def handshake(self) -> Revision:
        first = self.client.initialize(0.0)
        self.send(Side.CLIENT, first.data)
        if self.client.peer is None:
            raise next(
                event.outcome
                for _, event in self.events
                if isinstance(event, RequestFinished) and isinstance(event.outcome, ColonnadeError)
            )
        return self.client.peer.revision

    def said(self, side: Side) -> list[dict[str, Any]]:
        """All that one side wrote, as plain values."""
        return [json.loads(data) for sender, data in self.wire if sender is side]


def result_of(kind: type[t.ProtocolType], value: Any) -> t.ProtocolType:
    """A result that was asked for, as its protocol type."""
    return decode_as(kind, encode(value))
