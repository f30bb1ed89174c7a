"""What an application does with a link: reads what it is given, answers, asks, gives up.

It trusts nothing, and neither may what it calls: on whatever a stranger sent, only our own errors.

Rules: what it does depends on how often it was asked, on nothing else.
"""

import json
from collections.abc import Callable
from typing import Final

from msgspec import Raw

from colonnade.errors import ColonnadeError, Fault, FaultKind, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import Exchange, check_task_support, decode_result
from colonnade.protocol.input_requests import (
    InputRequest,
    checked_input_requests,
    decode_url_elicitations,
    retry_params,
)
from colonnade.protocol.input_rounds import (
    InputRounds,
    RequestState,
    open_request_state,
    subject_of,
)
from colonnade.protocol.jsonrpc import Batch, ErrorResponse, RequestId, ResultResponse, encode
from colonnade.protocol.link.events import (
    LinkEvent,
    NotificationReceived,
    RequestFinished,
    RequestReceived,
)
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, Revision
from colonnade.protocol.subscriptions import Subscription
from fuzz.corpus import ANSWERS, FORM, results_of, rows
from fuzz.target import Finding, check_sent, held, ours

REFUSAL: Final = Fault(FaultKind.INTERNAL, "it did not work; try again")
QUESTION: Final = InputRequest(decode_as(t.ElicitRequestParams, json.dumps(FORM).encode()))
OFFERED: Final = t.SubscriptionFilter(
    tools_list_changed=True, resource_subscriptions=[], task_ids=[]
)
CALL: Final = t.CallToolRequestParams(name="forecast")
# Calls that an application of ours has waiting, about.
BUSY: Final = 5
CHANGED: Final = "notifications/tools/list_changed"


def _results() -> dict[tuple[str, str], t.ProtocolType]:
    found: dict[tuple[str, str], t.ProtocolType] = {}
    for revision in ALL:
        for row in rows(revision):
            if row.result is not None:
                body = json.dumps(results_of(row, revision)[0]).encode()
                found.setdefault((revision.date, row.name), decode_as(row.result, body))
    return found


RESULTS: Final = _results()


class Application:
    """The code on our side of a link."""

    def __init__(self, link: DuplexLink) -> None:
        self.link = link
        self.now = 0.0
        self._calls = 0
        self._acts = 0

    def hear(self, event: LinkEvent) -> None:
        """Do something about an event."""
        if isinstance(event, RequestReceived):
            self._calls += 1
            self._serve(event.exchange)
        elif isinstance(event, NotificationReceived):
            ours(lambda: decode_as(event.method.params, event.params))
        elif isinstance(event, RequestFinished):
            self._take(event)

    def act(self) -> None:
        """Something of our own, now and then."""
        self._acts += 1
        link = self.link
        if self._acts % 7 == 3:
            for event in link.tick(self.now):
                self.hear(event)
        elif self._acts % 7 == 5:
            self._request(lambda: link.ping(self.now))
        elif self._acts % 7 == 6 and (calls := link.snapshot().sent):
            self._say(lambda: link.cancel(calls[-1].id, "no longer needed"))

    # ------------------------------------------------------------ answering

    def _serve(self, exchange: Exchange) -> None:
        row, way = exchange.method, self._calls % 5
        params = ours(lambda: decode_as(row.params, exchange.request.params))
        if isinstance(params, Fault):
            self._end(exchange, lambda: exchange.fail(params))
        elif row.name == "subscriptions/listen":
            self._push(exchange, way)
        elif way == 1:
            self._say(lambda: exchange.progress(0.5, 1, "half"))
            self._say(lambda: exchange.log("error", {"what": "lost"}))
            self._end(exchange, lambda: exchange.fail(REFUSAL))
        elif way == 2 and row.name == "tools/call":
            ours(lambda: check_task_support(exchange, "required"))
            self._end(exchange, lambda: exchange.refuse_arguments(REFUSAL))
        elif (
            way == 3 and row.may_require_input and isinstance(params, t.InputResponseRequestParams)
        ):
            self._ask(exchange, params)
        elif way:
            result = RESULTS[exchange.peer.revision.date, row.name]
            self._end(exchange, lambda: exchange.settle(result))

    def _push(self, exchange: Exchange, way: int) -> None:
        subscription = ours(lambda: Subscription(exchange, OFFERED))
        if isinstance(subscription, ColonnadeError):
            self._end(exchange, lambda: exchange.fail(REFUSAL))
            return
        self._say(subscription.acknowledge)
        self._say(lambda: subscription.notification(CHANGED, t.NotificationParams()))
        if way > 2:
            for data in subscription.end("enough"):
                check_sent(data)

    def _ask(self, exchange: Exchange, params: t.InputResponseRequestParams) -> None:
        """Ask, with whatever answers and state came along; nobody sealed that state."""
        subject = ours(lambda: subject_of(exchange.request.params))
        if not isinstance(subject, str):
            return
        state, method = params.request_state or "", exchange.method.name
        ours(
            lambda: open_request_state(
                state, str.encode, principal="", method=method, subject=subject, now=0
            )
        )
        key = f"elicit-{QUESTION.digest()}-1"
        memory = RequestState("", method, subject, 9.0, 1, (key, *ANSWERS), {}, {})
        responses = params.input_responses or {}
        answers = dict(responses)
        if responses:  # whatever came last is the answer to our question
            answers[key] = list(responses.values())[-1]
        interview = InputRounds(exchange.peer, exchange.method, memory, answers)
        asked = ours(lambda: interview.ask(QUESTION))
        if isinstance(asked, tuple) and asked[1] is None:
            result = ours(
                lambda: interview.result(_seal, principal="", subject=subject, expires_at=9.0)
            )
            if isinstance(result, t.InputRequiredResult):
                self._end(exchange, lambda: exchange.settle(result))

    # ------------------------------------------------------------ being answered

    def _take(self, event: RequestFinished) -> None:
        peer = self.link.peer
        if peer is None:
            return
        self._go_on()
        row = peer.revision.method(event.method)
        if isinstance(event.outcome, RemoteError) and isinstance(
            peer.capabilities, t.ServerCapabilities
        ):
            data, mine = event.outcome.data, self.link.identity.capabilities
            if isinstance(mine, t.ClientCapabilities):
                ours(lambda: decode_url_elicitations(Raw(encode(data)), mine, peer))
        if row is None or isinstance(event.outcome, ColonnadeError):
            return
        raw = event.outcome
        result = ours(lambda: decode_result(row, raw, peer, peer.extensions))
        if isinstance(result, t.InputRequiredResult):
            self._reply(result, peer.revision)

    def _go_on(self) -> None:
        """Something is always in flight, so that an answer may meet a call."""
        call = self.link.side is Side.CLIENT and len(self.link.snapshot().sent) < BUSY
        if call:
            self._request(
                lambda: self.link.request("tools/call", CALL, now=self.now, progress=True)
            )
        self._request(lambda: self.link.ping(self.now))

    def _request(self, write: Callable[[], tuple[RequestId, bytes]]) -> None:
        sent = ours(write)
        if isinstance(sent, tuple):
            check_sent(sent[1])

    def _reply(self, result: t.InputRequiredResult, revision: Revision) -> None:
        mine = self.link.identity.capabilities
        if not isinstance(mine, t.ClientCapabilities):
            raise Finding("a server was answered with questions")
        questions = ours(lambda: checked_input_requests(result, mine, revision))
        if isinstance(questions, dict):
            answers = {
                key: RESULTS["2025-11-25", question.kind.method]
                for key, question in questions.items()
            }
            params = t.CallToolRequestParams(name="book")
            ours(lambda: retry_params(params, result, answers, self.link.encoder(revision)))  # type: ignore[arg-type]

    # ------------------------------------------------------------ saying it

    def _say(self, write: Callable[[], bytes | None]) -> None:
        data = ours(write)
        if isinstance(data, bytes):
            check_sent(data)

    def _end(self, exchange: Exchange, write: Callable[[], bytes | None]) -> None:
        """Answer: under the id as it was written, once, and to nobody else."""
        data = ours(write)
        if not isinstance(data, bytes):
            return
        frame = check_sent(data)
        raw_id, id = exchange.request.raw_id, exchange.request.id
        if isinstance(frame, Batch):
            ids = [
                (type(item.id), item.id)
                for item in frame.items
                if isinstance(item, ResultResponse | ErrorResponse)
            ]
            held(ids.count((type(id), id)) == 1, "a batch without its last answer, or with two")
        else:
            held(
                isinstance(frame, ResultResponse | ErrorResponse) and frame.id == id,
                "another call was answered",
            )
            held(b'"id":%b,' % raw_id in data, "an id was not echoed as it was written")
        held(ours(write) is None, "a call was answered twice")


def _seal(state: bytes) -> str:
    return state.decode()
