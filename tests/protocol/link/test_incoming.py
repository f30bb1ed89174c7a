"""The peer's requests in work: one for an id, bounded, and batches answered as a whole."""

import json

import pytest
from msgspec import Raw

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Request, RequestId, SplitParams
from colonnade.protocol.link.in_flight import MAX_BATCHES, MAX_RUNNING, IncomingRequests
from colonnade.protocol.methods import CALL_TOOL
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import MARCH_2025

DONE = t.CallToolResult(content=[])


def exchange(incoming: IncomingRequests, id: RequestId) -> Exchange:
    raw_id = json.dumps(id).encode()
    made = Exchange(
        Request(id, "tools/call", Raw(b"{}"), raw_id),
        SplitParams(),
        CALL_TOOL,
        Peer(MARCH_2025, t.ClientCapabilities()),
        Encoder(MARCH_2025),
        deliver=incoming.close,
    )
    incoming.open(made)
    return made


def ids(data: bytes | None) -> list[RequestId]:
    assert data is not None
    return [answer["id"] for answer in json.loads(data)]


def test_a_request_runs_until_it_is_settled() -> None:
    incoming = IncomingRequests()
    one = exchange(incoming, 1)
    assert (len(incoming), incoming.get(1), incoming.get("1")) == (1, one, None)
    assert incoming.uses(1)
    assert not incoming.uses("1")
    assert one.settle(DONE) is not None
    assert (len(incoming), incoming.uses(1)) == (0, False)


def test_a_late_answer_does_not_end_another_request_under_the_same_id() -> None:
    incoming = IncomingRequests()
    first = exchange(incoming, 1)
    assert first.abandon() is None
    second = exchange(incoming, 1)
    assert incoming.close(first, b"late") is None
    assert list(incoming) == [second]
    assert second.settle(DONE) is not None


def test_running_requests_are_bounded() -> None:
    incoming = IncomingRequests()
    for n in range(MAX_RUNNING):
        exchange(incoming, n)
    with pytest.raises(Fault, match="too many requests") as caught:
        exchange(incoming, "more")
    assert caught.value.kind is FaultKind.INTERNAL
    assert not incoming.uses("more")


def test_the_answers_to_a_batch_go_out_when_the_last_is_there() -> None:
    incoming = IncomingRequests()
    box = incoming.begin_batch()
    assert incoming.batch is box
    one, two = exchange(incoming, 1), exchange(incoming, 2)
    assert incoming.answer(b'{"id":0}') is None
    assert incoming.end_batch(box) is None
    assert incoming.batch is None
    assert two.settle(DONE) is None
    assert ids(one.settle(DONE)) == [0, 2, 1]


def test_a_batch_that_is_answered_at_once_is_not_waited_for() -> None:
    incoming = IncomingRequests()
    box = incoming.begin_batch()
    one = exchange(incoming, 1)
    assert one.settle(DONE) is None  # not before the batch was read to its end
    assert ids(incoming.end_batch(box)) == [1]
    box = incoming.begin_batch()
    assert incoming.end_batch(box) is None  # nothing was asked, nothing is answered
    assert incoming.answer(b"x") == b"x"


def test_what_was_cancelled_is_missing_from_the_answers_to_its_batch() -> None:
    incoming = IncomingRequests()
    box = incoming.begin_batch()
    one, two = exchange(incoming, 1), exchange(incoming, 2)
    incoming.end_batch(box)
    assert one.settle(DONE) is None
    assert ids(two.abandon()) == [1]
    box = incoming.begin_batch()
    alone = exchange(incoming, 3)
    incoming.end_batch(box)
    assert alone.abandon() is None


def test_an_answer_reaches_the_batch_of_its_own_request() -> None:
    incoming = IncomingRequests()
    first = incoming.begin_batch()
    one = exchange(incoming, 1)
    incoming.end_batch(first)
    second = incoming.begin_batch()
    two = exchange(incoming, 2)
    assert ids(one.settle(DONE)) == [1]  # while another batch is being read
    assert incoming.end_batch(second) is None
    assert ids(two.settle(DONE)) == [2]


def test_an_id_is_taken_for_the_rest_of_its_batch() -> None:
    incoming = IncomingRequests()
    incoming.claim(1)
    assert not incoming.uses(1)
    box = incoming.begin_batch()
    incoming.claim(1)
    assert incoming.uses(1)
    incoming.end_batch(box)
    assert not incoming.uses(1)


def test_batches_that_wait_are_bounded() -> None:
    incoming = IncomingRequests()
    waiting: list[Exchange] = []
    for n in range(MAX_BATCHES):
        box = incoming.begin_batch()
        waiting.append(exchange(incoming, n))
        incoming.end_batch(box)
    box = incoming.begin_batch()
    with pytest.raises(Fault, match="too many batches"):
        exchange(incoming, "more")
    assert incoming.get("more") is None
    assert incoming.answer(b"{}") is None
    assert incoming.end_batch(box) == b"[{}]"
    exchange(incoming, "alone")
    waiting[0].settle(DONE)
    incoming.begin_batch()
    exchange(incoming, "more")


def test_after_the_end_nothing_is_left() -> None:
    incoming = IncomingRequests()
    box = incoming.begin_batch()
    one = exchange(incoming, 1)
    incoming.end_batch(box)
    assert incoming.clear() == [one]
    assert (len(incoming), list(incoming), len(incoming._waiting)) == (0, [], 0)
    assert one.settle(DONE) is None
