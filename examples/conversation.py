"""One connection in each of the five revisions, between two protocol cores in memory.

    python examples/conversation.py [DATE ...]

A client and a server, each a `DuplexLink`, are connected by function calls. The server accepts all
five revisions; the client is limited to one at a time. The tool is written once: the revision
decides whether its input request is a request of the server or an `input_required` result.
"""

import signal
import sys
from collections.abc import Callable, Generator
from typing import Any

import msgspec
from msgspec import Raw

from colonnade.auth.seal import KeyRing
from colonnade.errors import ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange, decode_result
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    InputRequest,
    checked_input_requests,
    retry_params,
)
from colonnade.protocol.input_rounds import InputRounds, open_request_state, subject_of
from colonnade.protocol.link.events import (
    LinkEvent,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    RequestReceived,
    Send,
)
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import ALL, InputRequests, Revision, Revisions

SERVER = Identity(
    t.Implementation(name="airline", version="1.0", title="An airline"),
    t.ServerCapabilities(tools=t.ToolsCapability(list_changed=True)),
    instructions="Books seats.",
)
CLIENT = Identity(
    t.Implementation(name="traveller", version="1.0"),
    t.ClientCapabilities(
        elicitation=t.ElicitationCapability(form={}), sampling=t.SamplingCapability()
    ),
)
TOOLS = [
    t.Tool(
        name="book",
        title="Book a seat",
        description="Asks for the seat.",
        input_schema={"type": "object", "properties": {"flight": {"type": "string"}}},
        output_schema={"type": "string"},
    ),
    t.Tool(name="count", description="Counts flights.", input_schema={"type": "object"}),
]
FORM = t.ElicitSchema(properties={"seat": t.PrimitiveSchema(type="string")}, required=["seat"])
NOW = 0.0
KEYS = KeyRing()

Tool = Generator[InputRequest, AnyInputResponse, t.CallToolResult]


def book(peer: Peer, arguments: dict[str, Any]) -> Tool:
    """The tool: it yields an input request and receives the response."""
    if peer.revision.elicitation.modes:
        params = t.ElicitRequestParams(message="Which seat?", requested_schema=FORM)
    else:  # revisions without elicitation have sampling
        words = t.SamplingMessage(role="user", content=t.TextContent(text="Pick a seat."))
        params = t.CreateMessageRequestParams(messages=[words], max_tokens=5)
    answer = yield InputRequest(params)
    seat = "?"
    if isinstance(answer, t.ElicitResult) and answer.content:
        seat = str(answer.content["seat"])
    elif isinstance(answer, t.CreateMessageResult) and isinstance(answer.content, t.TextContent):
        seat = answer.content.text
    booked = f"{arguments['flight']}, seat {seat}"
    return t.CallToolResult(content=[t.TextContent(text=booked)], structured_content=booked)


class Conversation:
    """Two links, and a printer between them."""

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.server = DuplexLink(Side.SERVER, SERVER)
        self.client = DuplexLink(Side.CLIENT, CLIENT, Revisions.of(revision.date))
        self.results: dict[object, Raw] = {}
        self.asking: dict[object, tuple[Exchange, InputRounds, str, Tool]] = {}
        self.lines = 0

    def to_server(self, data: bytes) -> None:
        """Pass a message of the client to the server."""
        self._print("client ->", data)
        for event in self.server.receive(data, NOW):
            self._serve(event)

    def to_client(self, data: bytes | None) -> None:
        """Pass a message of the server, if any, to the client."""
        if data is None:
            return
        self._print("<- server", data)
        for event in self.client.receive(data, NOW):
            if isinstance(event, Send):
                self.to_server(event.data)
            elif isinstance(event, RequestFinished) and isinstance(event.outcome, Raw):
                self.results[event.id] = event.outcome
            elif isinstance(event, RequestReceived):  # an input request of the server
                assert event.exchange.input_request is not None
                self.to_server(
                    event.exchange.settle(response_to(event.exchange.input_request)) or b""
                )
            elif isinstance(event, ProgressReceived):
                print(f"             {event.params.progress:g} of {event.params.total:g}")

    def _print(self, arrow: str, data: bytes) -> None:
        self.lines += 1
        print(f"  {arrow}  {data.decode()}")

    def _serve(self, event: LinkEvent) -> None:
        if isinstance(event, Send):
            self.to_client(event.data)
        elif isinstance(event, RequestFinished) and isinstance(event.outcome, Raw):
            exchange, rounds, key, tool = self.asking.pop(event.id)
            self._run(exchange, rounds, tool, rounds.receive_response(key, event.outcome))
        elif isinstance(event, RequestCancelled):
            print(f"             cancelled: {event.reason}")
        elif isinstance(event, RequestReceived):
            self._call(event.exchange)

    def _call(self, exchange: Exchange) -> None:
        if exchange.method.name == "tools/list":
            tools = t.ListToolsResult(tools=TOOLS, ttl_ms=60_000, cache_scope="public")
            return self.to_client(exchange.settle(tools))
        if exchange.method.name != "tools/call":
            found = self.server.identity.discover_result(self.server.accepts)
            return self.to_client(exchange.settle(found))
        params = decode_as(t.CallToolRequestParams, exchange.request.params)
        if params.name == "count":
            return self._count(exchange)
        memory = None
        if params.request_state is not None:
            memory = open_request_state(
                params.request_state,
                KEYS.unseal,
                principal="",
                method=exchange.method.name,
                subject=subject_of(exchange.request.params),
                now=NOW,
            )
        rounds = InputRounds(exchange.peer, exchange.method, memory, params.input_responses)
        arguments = decode_as(dict[str, Any], params.arguments)
        return self._run(exchange, rounds, book(exchange.peer, arguments), None)

    def _run(
        self,
        exchange: Exchange,
        rounds: InputRounds,
        tool: Tool,
        answer: AnyInputResponse | None,
    ) -> None:
        """Run the tool until its next input request without a response, or to its end."""
        try:
            while True:
                request = tool.send(answer) if answer is not None else next(tool)
                key, answer = rounds.ask(request)
                if answer is None:
                    return self._ask(exchange, rounds, key, request, tool)
        except StopIteration as done:
            self.to_client(exchange.settle(done.value, wrap=True))
        except ToolError as error:
            sorry = t.CallToolResult(content=[t.TextContent(text=str(error))], is_error=True)
            self.to_client(exchange.settle(sorry))

    def _ask(
        self,
        exchange: Exchange,
        rounds: InputRounds,
        key: str,
        request: InputRequest,
        tool: Tool,
    ) -> None:
        if self.revision.input_requests is InputRequests.AS_REQUEST:
            id, data = self.server.request(request.kind.method, request.params, now=NOW)
            self.asking[id] = exchange, rounds, key, tool
            return self.to_client(data)
        subject = subject_of(exchange.request.params)
        demand = rounds.result(KEYS.seal, principal="", subject=subject, expires_at=600.0)
        return self.to_client(exchange.settle(demand))

    def _count(self, exchange: Exchange) -> None:
        if exchange.progress_token is None:
            return None  # it never ends; the caller will cancel it
        for done in (1, 2):
            self.to_client(exchange.progress(done, 2, "counting"))
        result = t.CallToolResult(content=[t.TextContent(text="2 flights")])
        return self.to_client(exchange.settle(result))

    # ------------------------------------------------------------ the client

    def call(self, params: t.CallToolRequestParams, *, progress: bool = False) -> object:
        """Send a tool call; returns its id."""
        id, data = self.client.request("tools/call", params, now=NOW, progress=progress)
        self.to_server(data)
        return id

    def result(self, id: object, method: str) -> t.ProtocolType:
        """The result of a request."""
        assert self.client.peer is not None
        return decode_result(self.revision.methods[method], self.results.pop(id), self.client.peer)


def response_to(request: InputRequest) -> AnyInputResponse:
    """The response of the user, or of the model."""
    if isinstance(request.params, t.ElicitRequestParams):
        return t.ElicitResult(action="accept", content={"seat": "12A"})
    said = t.TextContent(text="12A")
    return t.CreateMessageResult(role="assistant", model="any", content=said)


def open_up(talk: Conversation) -> None:
    """The handshake, or `server/discover` in revisions without one."""
    client = talk.client
    if talk.revision.handshake:
        return talk.to_server(client.initialize(NOW).data)
    id, data = client.request("server/discover", now=NOW, revision=talk.revision)
    talk.to_server(data)
    found = msgspec.json.decode(talk.results.pop(id), type=t.DiscoverResult)
    assert talk.revision.date in found.supported_versions
    return client.adopt(Peer(talk.revision, found.capabilities))


def list_tools(talk: Conversation) -> None:
    id, data = talk.client.request("tools/list", now=NOW)
    talk.to_server(data)
    listed = talk.result(id, "tools/list")
    assert isinstance(listed, t.ListToolsResult)
    assert [tool.name for tool in listed.tools] == ["book", "count"]


def call_with_progress(talk: Conversation) -> None:
    id = talk.call(t.CallToolRequestParams(name="count"), progress=True)
    assert isinstance(talk.result(id, "tools/call"), t.CallToolResult)


def call_with_input_request(talk: Conversation) -> None:
    """The same tool in every revision: a request of the server, or a result and a retry."""
    params = t.CallToolRequestParams(name="book", arguments=Raw(b'{"flight":"DY 620"}'))
    outcome = talk.result(talk.call(params), "tools/call")
    if isinstance(outcome, t.InputRequiredResult):
        declared = talk.client.identity.capabilities
        assert isinstance(declared, t.ClientCapabilities)
        asked = checked_input_requests(outcome, declared, talk.revision)
        answers = {key: response_to(request) for key, request in asked.items()}
        again = retry_params(params, outcome, answers, talk.client.encoder(talk.revision))
        outcome = talk.result(talk.call(again), "tools/call")
    assert isinstance(outcome, t.CallToolResult)
    assert outcome.content == [t.TextContent(text="DY 620, seat 12A")]


def call_and_cancel(talk: Conversation) -> None:
    id = talk.call(t.CallToolRequestParams(name="count"))
    assert isinstance(id, int)
    talk.to_server(talk.client.cancel(id, "the user moved on") or b"")


STEPS: dict[str, Callable[[Conversation], None]] = {
    "open": open_up,
    "list the tools": list_tools,
    "call one, with progress": call_with_progress,
    "call one, with an input request": call_with_input_request,
    "call one, and cancel it": call_and_cancel,
}


def main(dates: list[str]) -> int:
    """Run it in each revision, or in those with these dates."""
    known = {revision.date: revision for revision in ALL}
    unknown = [date for date in dates if date not in known]
    if unknown:
        print(f"no revision {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    for date in dates or known:
        talk = Conversation(known[date])
        print(f"\nMCP {date}")
        for name, step in STEPS.items():
            print(f" {name}")
            step(talk)
        assert talk.client.next_deadline is None, "a request was never settled"
        print(f" {talk.lines} lines, every request settled")
    return 0


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `… | head` is no failure
    sys.exit(main(sys.argv[1:]))
