"""Input requests for tests, and `Table`, which runs a handler whichever way its requests are carried.

Rules: no loop, no clock; this is what a server and a client would do with the protocol, and no
more. Handlers are generators that yield the questions of a round and are sent their answers.
"""

from collections.abc import Callable, Generator
from typing import Any

from msgspec import Raw

from colonnade.errors import ColonnadeError, Fault, FaultKind, RemoteError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange, decode_result
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    InputRequest,
    accepted_content,
    checked_input_requests,
    retry_params,
)
from colonnade.protocol.input_rounds import InputRounds, open_request_state, subject_of
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.link.events import RequestFinished, RequestReceived, Send
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import InputRequests
from protocol.links import JSON, decoded


def sample(words: str) -> InputRequest:
    text = t.SamplingMessage(role="user", content=t.TextContent(text=words))
    return InputRequest(t.CreateMessageRequestParams(messages=[text], max_tokens=9))


def elicit(words: str) -> InputRequest:
    form = t.ElicitSchema(
        properties={"seat": t.PrimitiveSchema(type="string", max_length=3)}, required=["seat"]
    )
    return InputRequest(t.ElicitRequestParams(message=words, requested_schema=form))


ROOTS = InputRequest(t.ListRootsRequestParams())
SEAT = elicit("Which seat?")
BOOK = t.CallToolRequestParams(name="book", arguments=Raw(b'{"flight":"DY 620"}'))


def url_elicitation(url: str = "https://example.com/in", id: str | None = "e1") -> InputRequest:
    return InputRequest(
        t.ElicitRequestParams(message="log in", mode="url", url=url, elicitation_id=id)
    )


def sampling(*messages: t.SamplingMessage, **more: Any) -> InputRequest:
    turns = list(messages) or [sampling_message("user", t.TextContent(text="hi"))]
    return InputRequest(t.CreateMessageRequestParams(messages=turns, max_tokens=1, **more))


def sampling_message(role: t.Role, *blocks: Any) -> t.SamplingMessage:
    content = list(blocks)
    return t.SamplingMessage(role=role, content=content if len(content) > 1 else content[0])


def use(id: str) -> t.ToolUseContent:
    return t.ToolUseContent(id=id, name="n", input={})


def result(id: str) -> t.ToolResultContent:
    return t.ToolResultContent(tool_use_id=id, content=[])


def text_of(answer: AnyInputResponse | Any) -> str:
    if isinstance(answer, t.CreateMessageResult):
        assert isinstance(answer.content, t.TextContent)
        return answer.content.text
    if isinstance(answer, t.ListRootsResult):
        return answer.roots[0].uri
    return str(accepted_content(answer)["seat"])


def reply(question: InputRequest) -> AnyInputResponse:
    """A client that repeats what it was asked, so that mixed-up answers would show."""
    params = question.params
    if isinstance(params, t.CreateMessageRequestParams):
        block = params.messages[0].content
        assert isinstance(block, t.TextContent)
        said_back = t.TextContent(text=f"<{block.text}>")
        return t.CreateMessageResult(role="assistant", content=said_back, model="m")
    if isinstance(params, t.ElicitRequestParams):
        return t.ElicitResult(action="accept", content={"seat": params.message[-2:]})
    return t.ListRootsResult(roots=[t.Root(uri="file:///home")])


def text(*words: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=" ".join(words))])


def texts(outcome: t.ProtocolType | ColonnadeError) -> str:
    assert isinstance(outcome, t.CallToolResult), outcome
    (block,) = outcome.content
    assert isinstance(block, t.TextContent)
    return block.text


# ---------------------------------------------------------------- handlers that ask

Asked = Generator[list[InputRequest], list[AnyInputResponse], t.ProtocolType]
Handler = Callable[[Exchange], Asked]
Answering = Callable[[InputRequest], AnyInputResponse | RemoteError]

Paused = tuple[Exchange, InputRounds, Asked, str, dict[str, AnyInputResponse | None]]

STATE_LIVES_S = 300.0


def _sending(found: dict[str, AnyInputResponse | None]) -> Callable[[Asked], list[InputRequest]]:
    answers = [answer for answer in found.values() if answer is not None]
    return lambda run: run.send(answers)


def _throwing(error: ColonnadeError) -> Callable[[Asked], list[InputRequest]]:
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

    def __init__(
        self, client: DuplexLink, server: DuplexLink, handler: Handler, answering: Answering
    ) -> None:
        self.client, self.server = client, server
        self.handler, self.answering = handler, answering
        self.seal = Seal()
        self.now = 0.0
        self.runs = 0
        self.lines: list[tuple[Side, JSON]] = []
        self.unused: frozenset[str] = frozenset()
        self.outcome: t.ProtocolType | ColonnadeError | None = None
        self._paused: dict[RequestId, Paused] = {}
        self._called: dict[RequestId, tuple[str, Any]] = {}

    def call(
        self, method: str, params: t.InputResponseRequestParams
    ) -> t.ProtocolType | ColonnadeError:
        """Call, answer, call again: until there is an outcome."""
        self._say(self.client, self._request(method, params))
        assert self.outcome is not None
        return self.outcome

    def _request(self, method: str, params: t.InputResponseRequestParams) -> bytes:
        id, data = self.client.request(method, params, now=self.now)
        self._called[id] = (method, params)
        return data

    def _say(self, link: DuplexLink, data: bytes | None) -> None:
        if data is None:
            return
        self.lines.append((link.side, decoded(data)))
        other = self.server if link is self.client else self.client
        for event in other.receive(data, self.now):
            if isinstance(event, Send):
                self._say(other, event.data)
            elif isinstance(event, RequestReceived):
                self._serve(other, event.exchange)
            elif isinstance(event, RequestFinished):
                self._hear(other, event)

    # ------------------------------------------------------------ the server

    def _serve(self, link: DuplexLink, exchange: Exchange) -> None:
        if link is self.client:
            self._reply(exchange)
            return
        params = exchange.request.params
        try:
            given = decode_as(t.InputResponseRequestParams, params)
            memory = None
            if given.request_state is not None:
                memory = open_request_state(
                    given.request_state,
                    self.seal.open,
                    principal=exchange.principal,
                    method=exchange.method.name,
                    subject=subject_of(params),
                    now=self.now,
                )
            interview = InputRounds(exchange.peer, exchange.method, memory, given.input_responses)
            self.runs += 1
            self._go_on(exchange, interview, self.handler(exchange), next)
        except ColonnadeError as error:
            self._give_up(exchange, error)

    def _go_on(
        self,
        exchange: Exchange,
        interview: InputRounds,
        run: Asked,
        wake: Callable[[Asked], list[InputRequest]],
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
        interview: InputRounds,
        run: Asked,
        found: dict[str, AnyInputResponse | None],
    ) -> None:
        if exchange.peer.revision.input_requests is InputRequests.IN_RESULT:
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

    def _hear(self, link: DuplexLink, event: RequestFinished) -> None:
        if link is self.client:
            self._learn(event)
            return
        exchange, interview, run, key, found = self._paused.pop(event.id)
        try:
            try:
                if not isinstance(event.outcome, Raw):
                    assert isinstance(event.outcome, RemoteError)
                    raise interview.receive_error(key, event.outcome)
                found[key] = interview.receive_response(key, event.outcome)
            except (Fault, ToolError, RemoteError) as error:
                self._go_on(exchange, interview, run, _throwing(error))
                return
            if not interview.pending:
                self._go_on(exchange, interview, run, _sending(found))
        except ColonnadeError as error:
            self._give_up(exchange, error)

    def _give_up(self, exchange: Exchange, error: ColonnadeError) -> None:
        if isinstance(error, Fault):
            self._say(self.server, exchange.fail(error))
            return
        text = t.TextContent(text=str(error))
        self._say(self.server, exchange.settle(t.CallToolResult(content=[text], is_error=True)))

    # ------------------------------------------------------------ the client

    def _reply(self, exchange: Exchange) -> None:
        assert exchange.input_request is not None
        answer = self.answering(exchange.input_request)
        if isinstance(answer, RemoteError):
            kind = FaultKind.USER_REJECTED if answer.code == -1 else FaultKind.INTERNAL
            self._say(self.client, exchange.fail(Fault(kind, answer.message)))
        else:
            self._say(self.client, exchange.settle(answer))

    def _learn(self, event: RequestFinished) -> None:
        method, params = self._called[event.id]
        if not isinstance(event.outcome, Raw):
            self.outcome = event.outcome
            return
        peer = self.client.peer
        assert peer is not None
        row = peer.revision.methods[method]
        result = decode_result(row, event.outcome, peer)
        if not isinstance(result, t.InputRequiredResult):
            self.outcome = result
            return
        declared = self.client.identity.capabilities
        assert isinstance(declared, t.ClientCapabilities)
        answers: dict[str, AnyInputResponse] = {}
        for key, question in checked_input_requests(result, declared, peer.revision).items():
            answer = self.answering(question)
            if isinstance(answer, RemoteError):  # nobody waits for it: the call is given up
                self.outcome = answer
                return
            answers[key] = answer
        again = retry_params(params, result, answers, self.client.encoder(peer.revision))
        self._say(self.client, self._request(method, again))
