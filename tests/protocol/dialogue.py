"""A client and a server in memory, for tests: what one says, the other hears.

Rules: no loop, no clock. The lines that a stranger might send are written by hand here; what
our own sides send is written by `portico.protocol` alone.
"""

import json
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import msgspec
from msgspec import Raw

from portico.errors import Fault, FaultKind, PorticoError, RemoteError, ToolError
from portico.protocol import types as t
from portico.protocol.events import Answered, Call, Event, Send
from portico.protocol.exchange import Exchange, read_result
from portico.protocol.identity import Identity
from portico.protocol.interview import Interview, recall, subject_of
from portico.protocol.jsonrpc import RequestId
from portico.protocol.link import Link, sends
from portico.protocol.methods import Side
from portico.protocol.negotiation import Peer
from portico.protocol.questions import AnyAnswer, Question, questions_of, retry
from portico.protocol.reading import read
from portico.protocol.revision import ALL, Asking, Revision, Revisions

JSON = dict[str, Any]

READER = t.Implementation(name="reader", version="1.0")
LIBRARY = t.Implementation(name="library", version="2.0")

ABLE_CLIENT = t.ClientCapabilities(
    roots=t.RootsCapability(list_changed=True),
    sampling=t.SamplingCapability(tools={}, context={}),
    elicitation=t.ElicitationCapability(form={}, url={}),
    tasks=t.ClientTasksCapability(listing={}, cancel={}),
    extensions={t.TASKS_EXTENSION_ID: {}},
)
ABLE_SERVER = t.ServerCapabilities(
    logging={},
    completions={},
    prompts=t.PromptsCapability(list_changed=True),
    resources=t.ResourcesCapability(list_changed=True, subscribe=True),
    tools=t.ToolsCapability(list_changed=True),
    tasks=t.ServerTasksCapability(listing={}, cancel={}),
    extensions={t.TASKS_EXTENSION_ID: {}},
)


# ---------------------------------------------------------------- the sides


def only(revision: Revision) -> Revisions:
    """A side that speaks nothing else."""
    return Revisions([revision])


def client_of(
    revision: Revision, can: t.ClientCapabilities = ABLE_CLIENT, accepts: Revisions | None = None
) -> Link:
    """A client before its first word."""
    return Link(Side.CLIENT, Identity(READER, can), accepts or only(revision))


def server_of(
    revision: Revision, can: t.ServerCapabilities = ABLE_SERVER, accepts: Revisions | None = None
) -> Link:
    """A server that has heard nothing yet."""
    return Link(Side.SERVER, Identity(LIBRARY, can), accepts or only(revision))


def meet(client: Link, server: Link) -> tuple[list[Event], list[Event]]:
    """Open the conversation, and let every line arrive; what each side learned."""
    if not client.accepts.handshakes:
        theirs = server.identity.capabilities
        client.adopt(Peer(client.accepts.enveloped[0], theirs, server.identity.info))
        return [], []
    return hand_over(client, server, from_client=[client.initialize(0.0).data])


def opened(
    revision: Revision,
    client_can: t.ClientCapabilities = ABLE_CLIENT,
    server_can: t.ServerCapabilities = ABLE_SERVER,
) -> tuple[Link, Link]:
    """Both sides, ready."""
    client, server = client_of(revision, client_can), server_of(revision, server_can)
    meet(client, server)
    return client, server


def hand_over(
    client: Link,
    server: Link,
    from_client: list[bytes] | None = None,
    from_server: list[bytes] | None = None,
    now: float = 0.0,
) -> tuple[list[Event], list[Event]]:
    """Carry lines to and fro until both are silent; what the client and the server learned."""
    learned: dict[Side, list[Event]] = {Side.CLIENT: [], Side.SERVER: []}
    lines = deque[tuple[Link, bytes]]()
    lines.extend((server, data) for data in from_client or ())
    lines.extend((client, data) for data in from_server or ())
    while lines:
        link, data = lines.popleft()
        events = link.receive(data, now)
        other = server if link is client else client
        lines.extend((other, line) for line in sends(events))
        learned[link.side] += [event for event in events if not isinstance(event, Send)]
    return learned[Side.CLIENT], learned[Side.SERVER]


def call(server: Link, data: bytes) -> Exchange:
    """What a server makes of a request that it serves."""
    (event,) = server.receive(data, 0.0)
    assert isinstance(event, Call), event
    return event.exchange


# ---------------------------------------------------------------- lines of strangers


def line(**members: Any) -> bytes:
    """A message as anybody might write it."""
    return json.dumps({"jsonrpc": "2.0"} | members).encode()


def envelope(revision: Revision, can: JSON | None = None, **more: Any) -> JSON:
    """What a request says of its sender, where it must."""
    if revision.handshake:
        return dict(more)
    return {
        t.PROTOCOL_VERSION_KEY: revision.date,
        t.CLIENT_CAPABILITIES_KEY: can or {},
        **more,
    }


def request(
    revision: Revision,
    id: Any,
    method: str,
    params: JSON | None = None,
    can: JSON | None = None,
    **meta: Any,
) -> bytes:
    """A request of a stranger at this revision."""
    said = envelope(revision, can, **meta)
    whole = (params or {}) | ({"_meta": said} if said else {})
    return line(id=id, method=method, **({"params": whole} if whole else {}))


def initialize(date: str, id: Any = 0, can: JSON | None = None) -> bytes:
    """The first word of a stranger."""
    info = {"name": "stranger", "version": "0"}
    params = {"protocolVersion": date, "capabilities": can or {}, "clientInfo": info}
    return line(id=id, method="initialize", params=params)


INITIALIZED = line(method="notifications/initialized")


def served(revision: Revision, can: JSON | None = None, **more: Any) -> Link:
    """A server that a stranger has opened a conversation with, as far as that is needed."""
    server = server_of(revision, **more)
    if revision.handshake:
        server.receive(initialize(revision.date, can=can), 0.0)
        server.receive(INITIALIZED, 0.0)
    return server


def said(data: bytes | None) -> Any:
    """A line of ours, read by somebody else."""
    assert data is not None
    return json.loads(data)


def heard(events: list[Event]) -> list[Any]:
    """All that a link answered."""
    return [said(data) for data in sends(events)]


def refusal(events: list[Event]) -> JSON:
    """The one error that a link answered with."""
    (answer,) = heard(events)
    return answer["error"]


def state(link: Link) -> Any:
    """All that a link would remember."""
    running = [exchange.request.id for exchange in link._incoming]
    levels = [exchange.peer.log_level for exchange in link._incoming]
    batches = len(link._incoming._waiting), link._incoming.in_batch
    return msgspec.json.encode(link.record()), running, levels, batches


def earlier(revision: Revision) -> tuple[Revision, ...]:
    """This one and all before it."""
    return ALL[: ALL.index(revision) + 1]


# ---------------------------------------------------------------- handlers that ask

Asked = Generator[list[Question], list[AnyAnswer], t.Noun]
Handler = Callable[[Exchange], Asked]
Answering = Callable[[Question], AnyAnswer | RemoteError]

Paused = tuple[Exchange, Interview, Asked, str, dict[str, AnyAnswer | None]]

STATE_LIVES_S = 300.0


def _sending(found: dict[str, AnyAnswer | None]) -> Callable[[Asked], list[Question]]:
    answers = [answer for answer in found.values() if answer is not None]
    return lambda run: run.send(answers)


def _throwing(error: PorticoError) -> Callable[[Asked], list[Question]]:
    return lambda run: run.throw(error)


class Seal:
    """Stands for the port that seals: keeps what it sealed, and knows nothing else."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def seal(self, memory: bytes) -> str:
        self._kept.append(memory)
        return f"sealed-{len(self._kept) - 1}"

    def open(self, state: str) -> bytes:
        name, _, number = state.partition("-")
        if name != "sealed" or not number.isdigit() or int(number) >= len(self._kept):
            raise Fault(FaultKind.INVALID_PARAMS, "requestState was not sealed here")
        return self._kept[int(number)]


class Table:
    """A server with one handler and a client that answers, talking until the call is over.

    The handler is a generator: it yields the questions of a round and is sent their answers. It
    does not know how they travel; this class does what a server and a client would do.
    """

    def __init__(self, client: Link, server: Link, handler: Handler, answering: Answering) -> None:
        self.client, self.server = client, server
        self.handler, self.answering = handler, answering
        self.seal = Seal()
        self.now = 0.0
        self.runs = 0
        self.lines: list[tuple[Side, JSON]] = []
        self.unused: frozenset[str] = frozenset()
        self.outcome: t.Noun | PorticoError | None = None
        self._paused: dict[RequestId, Paused] = {}
        self._called: dict[RequestId, tuple[str, Any]] = {}

    def call(self, method: str, params: t.InputResponseRequestParams) -> t.Noun | PorticoError:
        """Call, answer, call again: until there is an outcome."""
        self._say(self.client, self._request(method, params))
        assert self.outcome is not None
        return self.outcome

    def _request(self, method: str, params: t.InputResponseRequestParams) -> bytes:
        id, data = self.client.request(method, params, now=self.now)
        self._called[id] = (method, params)
        return data

    def _say(self, link: Link, data: bytes | None) -> None:
        if data is None:
            return
        self.lines.append((link.side, said(data)))
        other = self.server if link is self.client else self.client
        for event in other.receive(data, self.now):
            if isinstance(event, Send):
                self._say(other, event.data)
            elif isinstance(event, Call):
                self._serve(other, event.exchange)
            elif isinstance(event, Answered):
                self._hear(other, event)

    # ------------------------------------------------------------ the server

    def _serve(self, link: Link, exchange: Exchange) -> None:
        if link is self.client:
            self._reply(exchange)
            return
        params = exchange.request.params
        try:
            given = read(t.InputResponseRequestParams, params)
            memory = None
            if given.request_state is not None:
                memory = recall(
                    given.request_state,
                    self.seal.open,
                    principal=exchange.principal,
                    method=exchange.row.name,
                    subject=subject_of(params),
                    now=self.now,
                )
            interview = Interview(exchange.peer, exchange.row, memory, given.input_responses)
            self.runs += 1
            self._go_on(exchange, interview, self.handler(exchange), next)
        except PorticoError as error:
            self._give_up(exchange, error)

    def _go_on(
        self,
        exchange: Exchange,
        interview: Interview,
        run: Asked,
        wake: Callable[[Asked], list[Question]],
    ) -> None:
        """Run the handler as far as the answers reach; what it cannot have, it is told."""
        try:
            while True:
                questions = wake(run)
                try:
                    found = dict(map(interview.ask, questions))
                except (Fault, ToolError) as error:
                    wake = _throwing(error)
                    continue
                if interview.pending:
                    self._ask(exchange, interview, run, found)
                    return
                wake = _sending(found)
        except StopIteration as end:
            self.unused = interview.unused
            self._say(self.server, exchange.settle(end.value))

    def _ask(
        self,
        exchange: Exchange,
        interview: Interview,
        run: Asked,
        found: dict[str, AnyAnswer | None],
    ) -> None:
        if exchange.peer.revision.asking is Asking.BY_RESULT:
            run.close()
            result = interview.result(
                self.seal.seal,
                principal=exchange.principal,
                subject=subject_of(exchange.request.params),
                expires_at=self.now + STATE_LIVES_S,
            )
            self._say(self.server, exchange.settle(result))
            return
        lines: list[bytes] = []
        for key, question in interview.pending.items():
            id, data = self.server.request(question.kind.method, question.params, now=self.now)
            self._paused[id] = (exchange, interview, run, key, found)
            lines.append(data)
        for data in lines:
            self._say(self.server, data)

    def _hear(self, link: Link, event: Answered) -> None:
        if link is self.client:
            self._learn(event)
            return
        exchange, interview, run, key, found = self._paused.pop(event.id)
        try:
            try:
                if not isinstance(event.outcome, Raw):
                    assert isinstance(event.outcome, RemoteError)
                    raise interview.refused(key, event.outcome)
                found[key] = interview.answered(key, event.outcome)
            except (Fault, ToolError, RemoteError) as error:
                self._go_on(exchange, interview, run, _throwing(error))
                return
            if not interview.pending:
                self._go_on(exchange, interview, run, _sending(found))
        except PorticoError as error:
            self._give_up(exchange, error)

    def _give_up(self, exchange: Exchange, error: PorticoError) -> None:
        if isinstance(error, Fault):
            self._say(self.server, exchange.fail(error))
            return
        text = t.TextContent(text=str(error))
        self._say(self.server, exchange.settle(t.CallToolResult(content=[text], is_error=True)))

    # ------------------------------------------------------------ the client

    def _reply(self, exchange: Exchange) -> None:
        assert exchange.question is not None
        answer = self.answering(exchange.question)
        if isinstance(answer, RemoteError):
            kind = FaultKind.USER_REJECTED if answer.code == -1 else FaultKind.INTERNAL
            self._say(self.client, exchange.fail(Fault(kind, answer.message)))
        else:
            self._say(self.client, exchange.settle(answer))

    def _learn(self, event: Answered) -> None:
        method, params = self._called[event.id]
        if not isinstance(event.outcome, Raw):
            self.outcome = event.outcome
            return
        peer = self.client.peer
        assert peer is not None
        row = peer.revision.methods[method]
        result = read_result(row, event.outcome, peer)
        if not isinstance(result, t.InputRequiredResult):
            self.outcome = result
            return
        declared = self.client.identity.capabilities
        assert isinstance(declared, t.ClientCapabilities)
        answers: dict[str, AnyAnswer] = {}
        for key, question in questions_of(result, declared, peer.revision).items():
            answer = self.answering(question)
            if isinstance(answer, RemoteError):  # nobody waits for it: the call is given up
                self.outcome = answer
                return
            answers[key] = answer
        again = retry(params, result, answers, self.client.shaper(peer.revision))
        self._say(self.client, self._request(method, again))
