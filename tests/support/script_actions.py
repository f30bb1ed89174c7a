"""What the applications of a script do with their links, in a few verbs.

    open                                     a handshake, or asking the server what it is
    client can {...} · is {...} · accepts DATE ...      before anything is said
    client request METHOD [VALUE] [progress] [timeout=9] [max=9] · notify METHOD [VALUE]
    server settle ID VALUE [Type] [wrap] · fail ID KIND "words" [DATA] · refuse ID "words"
    server progress ID N [TOTAL] ["words"] · log ID LEVEL VALUE
    client initialize · cancel ID ["why"] · ping · close · move (to another process)
    client probe                             asks server/discover and says what that proves
    server wants ID required                 a tool that runs as a task, or not
    server listen ID OFFERED · publish ID METHOD [VALUE] · end ID ["why"]
    server handler A+B C -> VALUE            asks A and B at once, then C, then answers
    client answer VALUE ...                  every open question, in their order

Rules: as little as an application needs; everything that decides is in `colonnade.protocol`.
"""

import json
from collections.abc import Callable
from typing import Any, cast

from msgspec import Raw

from colonnade.client.probe import judge
from colonnade.errors import Fault, FaultKind, RemoteError, RemoteProtocolError, ToolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange, check_task_support, decode_result
from colonnade.protocol.input_requests import (
    InputRequest,
    checked_input_requests,
    retry_params,
)
from colonnade.protocol.input_rounds import InputRounds, open_request_state, subject_of
from colonnade.protocol.jsonrpc import ErrorResponse, RequestId, ResultResponse, encode
from colonnade.protocol.link.events import RequestFinished
from colonnade.protocol.methods import Method, Side
from colonnade.protocol.negotiation import Peer, choose
from colonnade.protocol.revision import EVERY, NEWEST, InputRequests, Revisions
from colonnade.protocol.subscriptions import Subscription
from script_runner import ScriptRunner

PRINCIPAL = "ada"
STATE_LIVES_S = 600.0
ANSWERS = {
    "elicitation/create": t.ElicitResult,
    "sampling/createMessage": t.CreateMessageResult,
    "roots/list": t.ListRootsResult,
}
INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'


class Run:
    """A handler at work on one call."""

    def __init__(self, exchange: Exchange, interview: InputRounds) -> None:
        self.exchange = exchange
        self.interview = interview
        self.rounds_done = 0


class ScriptActions:
    """The two applications, as far as a side is ours."""

    def __init__(self, runner: ScriptRunner) -> None:
        self.runner = runner
        self.rounds: list[list[InputRequest]] = []
        self.last_word: str | None = None
        self.sealed: dict[str, bytes] = {}
        self.asked: dict[RequestId, tuple[Run, str]] = {}
        self.open_questions: list[Exchange] = []
        self.called: dict[RequestId, tuple[Method, t.ProtocolType]] = {}
        self.demand: tuple[RequestId, t.InputRequiredResult] | None = None
        self.subscriptions: dict[RequestId, Subscription] = {}
        self.probe: RequestId | None = None
        runner.on_call = self.on_call
        runner.on_answer = self.on_answer

    def act(self, words: list[str]) -> None:
        if words == ["open"]:
            self.open()
            return
        verb: Callable[..., None] = getattr(self, f"do_{words[1]}")
        verb(Side(words[0]), *words[2:])

    # ------------------------------------------------------------ opening and ending

    def open(self) -> None:
        runner, revision = self.runner, self.runner.revision
        date, can, info = revision.date, runner.can, runner.info
        shaper = Encoder(revision)
        if Side.CLIENT not in runner.script.ours:
            if revision.handshake:
                hello = t.InitializeRequestParams(
                    protocol_version=date,
                    capabilities=can[Side.CLIENT],
                    client_info=info[Side.CLIENT],
                )
                body = shaper.params(hello).decode()
                line = f'{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{body}}}'
                runner.receive_foreign(Side.CLIENT, line)
                runner.receive_foreign(Side.CLIENT, INITIALIZED)
            return
        welcome: t.Result = t.InitializeResult(
            protocol_version=date, capabilities=can[Side.SERVER], server_info=info[Side.SERVER]
        )
        if revision.handshake:
            self.do_initialize(Side.CLIENT)
        else:
            self.do_probe(Side.CLIENT)
            welcome = t.DiscoverResult(
                supported_versions=[date], capabilities=can[Side.SERVER], ttl_ms=0
            )
        if Side.SERVER not in runner.script.ours:
            body = shaper.result(welcome).decode()
            runner.receive_foreign(Side.SERVER, f'{{"jsonrpc":"2.0","id":1,"result":{body}}}')

    def do_can(self, side: Side, value: str) -> None:
        instance = t.ClientCapabilities if side is Side.CLIENT else t.ServerCapabilities
        self.runner.can[side] = decode_as(instance, self.runner.value(value))

    def do_is(self, side: Side, value: str) -> None:
        self.runner.info[side] = decode_as(t.Implementation, self.runner.value(value))

    def do_accepts(self, side: Side, *dates: str) -> None:
        self.runner.accepts[side] = EVERY if dates == ("all",) else Revisions.of(*dates)

    def do_initialize(self, side: Side) -> None:
        self.runner.report(side, [self.runner.link(side).initialize(self.runner.now)])

    def do_move(self, side: Side) -> None:
        self.runner.move(side)

    def do_close(self, side: Side) -> None:
        self.runner.report(side, self.runner.link(side).close())

    # ------------------------------------------------------------ calling

    def do_request(self, side: Side, method: str, *rest: str) -> None:
        value, options = self._split(rest)
        link, revision = self.runner.link(side), self.runner.revision
        row = revision.method(method, frozenset({t.TASKS_EXTENSION_ID})) or NEWEST.method(method)
        params = cast("t.RequestParams", decode_as(row.params if row else t.RequestParams, value))
        times: dict[str, Any] = {
            f"{name}_s": float(options[name]) for name in ("timeout", "max") if name in options
        }
        unknown = None if link.peer else revision
        id, data = link.request(
            method,
            params,
            now=self.runner.now,
            progress="progress" in options,
            revision=unknown,
            **times,
        )
        if row is not None:
            self.called[id] = (row, params)
        self.runner.send(side, data)

    def _split(self, rest: tuple[str, ...]) -> tuple[bytes, dict[str, str]]:
        options = {"progress", "wrap"}
        values = [word for word in rest if word not in options and "=" not in word]
        pairs = [word.partition("=") for word in rest if word in options or "=" in word]
        value = self.runner.value(values[0]) if values else b"{}"
        return value, {name: text for name, _, text in pairs}

    def do_notify(self, side: Side, method: str, *rest: str) -> None:
        row = self.runner.revision.method(method, frozenset({t.TASKS_EXTENSION_ID}))
        instance = row.params if row else t.NotificationParams
        params = cast("t.NotificationParams", decode_as(instance, self._split(rest)[0]))
        self.runner.send(side, self.runner.link(side).notify(method, params))

    def do_cancel(self, side: Side, id: str, reason: str = "null") -> None:
        self.runner.send(side, self.runner.link(side).cancel(json.loads(id), json.loads(reason)))

    def do_ping(self, side: Side) -> None:
        self.runner.send(side, self.runner.link(side).ping(self.runner.now)[1])

    def do_probe(self, side: Side) -> None:
        link = self.runner.link(side)
        self.probe, data = link.request("server/discover", now=self.runner.now, revision=NEWEST)
        self.runner.send(side, data)

    # ------------------------------------------------------------ answering

    def exchange(self, side: Side, id: str) -> Exchange:
        return self.runner.exchanges[side, json.loads(id)]

    def do_settle(self, side: Side, id: str, value: str, *rest: str) -> None:
        exchange = self.exchange(side, id)
        kinds = [word for word in rest if word != "wrap"]
        kind = cast(
            "type[t.ProtocolType]", getattr(t, kinds[0]) if kinds else exchange.method.result
        )
        result = decode_as(kind, self.runner.value(value))
        wrap = True if "wrap" in rest else None
        self.runner.send(side, exchange.settle(result, wrap))

    def do_fail(self, side: Side, id: str, kind: str, words: str, *data: str) -> None:
        about = json.loads(self.runner.value(data[0])) if data else None
        fault = Fault(getattr(FaultKind, kind), json.loads(words), about)
        self.runner.send(side, self.exchange(side, id).fail(fault))

    def do_refuse(self, side: Side, id: str, words: str) -> None:
        fault = Fault(FaultKind.INVALID_PARAMS, json.loads(words))
        self.runner.send(side, self.exchange(side, id).refuse_arguments(fault))

    def do_wants(self, side: Side, id: str, support: Any) -> None:
        exchange = self.exchange(side, id)
        try:
            check_task_support(exchange, support)
        except Fault as fault:
            self.runner.send(side, exchange.fail(fault))

    def do_progress(self, side: Side, id: str, done: str, *rest: str) -> None:
        values = [json.loads(word) for word in (done, *rest)]
        self.runner.send(side, self.exchange(side, id).progress(*values))

    def do_log(self, side: Side, id: str, level: Any, data: str) -> None:
        self.runner.send(side, self.exchange(side, id).log(level, json.loads(data)))

    # ------------------------------------------------------------ subscriptions

    def do_listen(self, side: Side, id: str, offered: str) -> None:
        exchange = self.exchange(side, id)
        offer = decode_as(t.SubscriptionFilter, self.runner.value(offered))
        subscription = self.subscriptions[exchange.request.id] = Subscription(exchange, offer)
        self.runner.send(side, subscription.acknowledge())

    def do_publish(self, side: Side, id: str, method: str, *rest: str) -> None:
        row = self.runner.revision.method(method, frozenset({t.TASKS_EXTENSION_ID}))
        assert row is not None
        params = cast("t.NotificationParams", decode_as(row.params, self._split(rest)[0]))
        self.runner.send(side, self.subscriptions[json.loads(id)].notification(method, params))

    def do_end(self, side: Side, id: str, reason: str = "null") -> None:
        for data in self.subscriptions[json.loads(id)].end(json.loads(reason)):
            self.runner.send(side, data)

    # ------------------------------------------------------------ asking

    def do_handler(self, side: Side, *words: str) -> None:
        *rounds, arrow, self.last_word = words
        assert arrow == "->", words
        self.rounds = [[self.runner.question(name) for name in word.split("+")] for word in rounds]

    def on_call(self, side: Side, exchange: Exchange) -> None:
        if side is Side.CLIENT:
            self.open_questions += [exchange] if exchange.input_request else []
        elif exchange.method.name == "server/discover":
            link = self.runner.link(side)
            self.runner.send(side, exchange.settle(link.identity.discover_result(link.accepts)))
        elif exchange.method.may_require_input and self.last_word is not None:
            try:
                self._begin(exchange)
            except (Fault, ToolError) as error:
                self._give_up(exchange, error)

    def _begin(self, exchange: Exchange) -> None:
        params = exchange.request.params
        asked = cast("t.InputResponseRequestParams", decode_as(exchange.method.params, params))
        memory = None
        if asked.request_state is not None:
            memory = open_request_state(
                asked.request_state,
                self._unseal,
                principal=PRINCIPAL,
                method=exchange.method.name,
                subject=subject_of(params),
                now=self.runner.now,
            )
        interview = InputRounds(exchange.peer, exchange.method, memory, asked.input_responses)
        self._go_on(Run(exchange, interview))

    def _unseal(self, state: str) -> bytes:
        if state not in self.sealed:
            raise Fault(FaultKind.INVALID_PARAMS, "requestState is not ours")
        return self.sealed[state]

    def _seal(self, memory: bytes) -> str:
        name = f"state-{len(self.sealed) + 1}"
        self.sealed[name] = memory
        self.runner.note("!", f"server: seals as {name} {memory.decode()}")
        return name

    def _go_on(self, run: Run) -> None:
        """The handler's rounds, from the one that it has come to."""
        interview, exchange = run.interview, run.exchange
        for questions in self.rounds[run.rounds_done :]:
            for question in questions:
                key, answer = interview.ask(question)
                if answer is not None:
                    self.runner.note(
                        "!", f"server: {key} was answered with {encode(answer).decode()}"
                    )
            if interview.pending:
                self._put(run)
                return
            run.rounds_done += 1
        assert self.last_word is not None
        assert exchange.method.result is not None
        for key in sorted(interview.unused):
            self.runner.note("!", f"server: nobody asked for {key}")
        result = decode_as(exchange.method.result, self.runner.value(self.last_word))
        self.runner.send(Side.SERVER, exchange.settle(result))

    def _put(self, run: Run) -> None:
        """The open questions, the way that the revision wants them."""
        link, exchange = self.runner.link(Side.SERVER), run.exchange
        if exchange.peer.revision.input_requests is InputRequests.AS_REQUEST:
            for key, question in run.interview.pending.items():
                method = question.kind.method
                id, data = link.request(method, question.params, now=self.runner.now)
                self.asked[id] = (run, key)
                self.runner.send(Side.SERVER, data)
            return
        result = run.interview.result(
            self._seal,
            principal=PRINCIPAL,
            subject=subject_of(exchange.request.params),
            expires_at=self.runner.now + STATE_LIVES_S,
        )
        self.runner.send(Side.SERVER, exchange.settle(result))

    def _give_up(self, exchange: Exchange, error: Fault | ToolError) -> None:
        if isinstance(error, Fault):
            self.runner.send(Side.SERVER, exchange.fail(error))
            return
        result = t.CallToolResult(content=[t.TextContent(text=str(error))], is_error=True)
        self.runner.send(Side.SERVER, exchange.settle(result))

    # ------------------------------------------------------------ being asked

    def do_answer(self, side: Side, *values: str) -> None:
        if self.demand is not None:
            self._retry(side, *values)
            return
        questions, self.open_questions = self.open_questions, []
        for exchange, value in zip(questions, values, strict=True):
            self.do_settle(side, json.dumps(exchange.request.id), value)

    def _retry(self, side: Side, *values: str) -> None:
        assert self.demand is not None
        (called, demand), self.demand = self.demand, None
        row, params = self.called[called]
        link, revision = self.runner.link(side), self.runner.revision
        asked = checked_input_requests(demand, self.runner.can[side], revision)
        answers = {
            key: decode_as(ANSWERS[question.kind.method], self.runner.value(value))
            for (key, question), value in zip(asked.items(), values, strict=True)
        }
        shaper = link.encoder(revision)
        again = retry_params(cast("t.InputResponseRequestParams", params), demand, answers, shaper)
        id, data = link.request(row.name, again, now=self.runner.now)
        self.called[id] = (row, params)
        self.runner.send(side, data)

    def on_answer(self, side: Side, event: RequestFinished) -> None:
        outcome = event.outcome
        if event.id == self.probe and side is Side.CLIENT:
            self._judge(event)
        elif event.id in self.asked and side is Side.SERVER:
            self._hear(*self.asked.pop(event.id), outcome)
        elif isinstance(outcome, Raw) and event.id in self.called and side is Side.CLIENT:
            peer = self.runner.link(side).peer
            row = self.called[event.id][0]
            if peer is None or b"input_required" not in bytes(outcome):
                return
            try:
                result = decode_result(row, outcome, peer)
            except Fault:
                return
            if isinstance(result, t.InputRequiredResult):
                self.demand = (event.id, result)

    def _hear(self, run: Run, key: str, outcome: Any) -> None:
        try:
            if isinstance(outcome, RemoteError):
                refused = run.interview.receive_error(key, outcome)
                raise refused if isinstance(refused, ToolError) else ToolError(str(refused))
            assert isinstance(outcome, Raw)
            answer = run.interview.receive_response(key, outcome)
            self.runner.note("!", f"server: {key} was answered with {encode(answer).decode()}")
            if not run.interview.pending:
                run.rounds_done += 1
                self._go_on(run)
        except (Fault, ToolError) as error:
            self._give_up(run.exchange, error)

    def _judge(self, event: RequestFinished) -> None:
        outcome, frame = event.outcome, None
        if isinstance(outcome, RemoteError):
            data = Raw(encode(outcome.data)) if outcome.data is not None else Raw(b"")
            frame = ErrorResponse(event.id, outcome.code, outcome.message, data)
        elif isinstance(outcome, Raw):
            frame = ResultResponse(event.id, outcome)
        verdict = judge(frame)
        self.runner.note("!", f"client: {verdict.era.name}, {verdict.era.value}")
        if verdict.supported:
            try:
                revision = choose(verdict.supported, self.runner.accepts[Side.CLIENT])
            except RemoteProtocolError as error:
                self.runner.note("!", f"client: gives up, {error}")
                return
            self.runner.note("!", f"client: chooses {revision.date}")
            if isinstance(outcome, Raw) and not revision.handshake:
                found = decode_as(t.DiscoverResult, outcome)
                self.runner.link(Side.CLIENT).adopt(Peer(revision, found.capabilities))
