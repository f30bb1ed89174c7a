"""Requests in flight both ways: answers, cancellations and their races, progress, time."""

from typing import Any

import pytest
from msgspec import Raw

from colonnade.errors import Fault, FaultKind, LocalProtocolError, RemoteError, TimedOut
from colonnade.protocol import types as t
from colonnade.protocol.link.events import (
    MessageIgnored,
    NotificationReceived,
    ProgressReceived,
    RequestCancelled,
    RequestFinished,
    Send,
)
from colonnade.protocol.link.in_flight import MAX_PAUSED_S, MAX_RUNNING
from colonnade.protocol.link.link import MAX_S, TIMEOUT_S, DuplexLink, sends
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, EVERY, Revision, Tasks
from protocol.input_requests import SEAT, text
from protocol.links import (
    call,
    client_of,
    decoded,
    line,
    open_both,
    opened,
    refusal,
    request,
    sent_messages,
    served,
    server_of,
    state,
)

HANDSHAKES = [revision for revision in ALL if revision.handshake]
DONE = text("done")
TOOL = t.CallToolRequestParams(name="n")


def calling(
    link: DuplexLink, progress: bool = False, timeout_s: float = TIMEOUT_S
) -> tuple[int, bytes]:
    """A call of a client; for a server, which calls no tools, the nearest that it has."""
    method, params = ("tools/call", TOOL) if link.side is Side.CLIENT else ("roots/list", None)
    id, data = link.request(method, params, now=0.0, timeout_s=timeout_s, progress=progress)
    assert isinstance(id, int)
    return id, data


def askers(revision: Revision) -> list[tuple[DuplexLink, DuplexLink]]:
    """Who may ask whom, where questions of servers are requests, both ways."""
    client, server = opened(revision)
    if not revision.handshake:
        return [(client, server)]
    other_client, other_server = opened(revision)
    return [(client, server), (other_server, other_client)]


def cancelled(id: Any, **more: Any) -> bytes:
    return line(method="notifications/cancelled", params={"requestId": id} | more)


def kinds(events: list[Any]) -> list[type]:
    return [type(event) for event in events]


# ---------------------------------------------------------------- ids


@pytest.mark.spec("R0031", "R0033", "R0738")
def test_an_id_is_never_used_twice_by_its_sender(revision: Revision) -> None:
    if revision.handshake:
        assert type(decoded(client_of(revision).initialize(0.0).data)["id"]) is int
    for asker, _ in askers(revision):
        ids: list[int] = []
        for n in range(50):
            id, data = calling(asker)
            assert decoded(data)["id"] == id
            assert type(decoded(data)["id"]) is int
            ids.append(id)
            if n % 3 == 0:
                asker.receive(line(id=id, result={}), 0.0)
            elif n % 3 == 1:
                asker.cancel(id)
        assert len(set(ids)) == len(ids)


def test_a_request_that_cannot_be_written_is_not_in_flight(revision: Revision) -> None:
    client, _ = opened(revision)
    before = state(client)
    unwritable = t.CallToolRequestParams(name="n", meta={"a": object()})
    with pytest.raises(LocalProtocolError, match="JSON"):
        client.request("tools/call", unwritable, now=0.0)
    for wrong in (t.PaginatedRequestParams(), None):
        with pytest.raises(LocalProtocolError, match="tools/call"):
            client.request("tools/call", wrong, now=0.0)
    with pytest.raises(LocalProtocolError, match="timeout"):
        client.request("tools/call", TOOL, now=0.0, timeout_s=0)
    assert state(client) == before


def test_an_answer_settles_the_call_that_it_names_and_no_other(revision: Revision) -> None:
    for asker, _ in askers(revision):
        first, second = calling(asker)[0], calling(asker)[0]
        for unknown in (str(first), 0, 99, f"{first}.5"):
            assert kinds(asker.receive(line(id=unknown, result={}), 0.0)) == [MessageIgnored]
        assert len(asker._outgoing) == 2
        (over,) = asker.receive(line(id=second, result={"a": 1}), 0.0)
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, Raw)
        assert (over.id, bytes(over.outcome)) == (second, b'{"a": 1}')
        assert kinds(asker.receive(line(id=second, result={}), 0.0)) == [MessageIgnored]
        assert asker._outgoing.get(first) is not None
        (over,) = asker.receive(line(id=float(first), result={}), 0.0)  # D31
        assert isinstance(over, RequestFinished)
        assert over.id == first


def test_an_error_ends_the_call_that_it_names_with_all_that_it_says(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker)
        error = {"code": -32002, "message": "no such", "data": {"uri": "x"}}
        (over,) = asker.receive(line(id=id, error=error), 0.0)
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, RemoteError)
        outcome = over.outcome
        assert (outcome.code, outcome.message, outcome.data) == (-32002, "no such", {"uri": "x"})
        id, _ = calling(asker)
        (over,) = asker.receive(line(id=id, error={"code": 1, "message": "m"}), 0.0)
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, RemoteError)
        assert over.outcome.data is None
        id, _ = calling(asker)
        body = b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"m","data":1%b}}'
        (over,) = asker.receive(body % (id, b"0" * 5000), 0.0)  # data that nobody can read
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, RemoteError)
        assert over.outcome.data is None


@pytest.mark.spec("R0746")
def test_a_code_of_the_legacy_range_is_passed_on_and_means_nothing(revision: Revision) -> None:
    client, _ = opened(revision)
    for code in range(-32019, -31999):
        id, _ = calling(client)
        before = client.phase, client.peer
        (over,) = client.receive(line(id=id, error={"code": code, "message": "m"}), 0.0)
        assert isinstance(over, RequestFinished)
        assert isinstance(over.outcome, RemoteError)
        assert (over.outcome.code, type(over.outcome)) == (code, RemoteError)
        assert (client.phase, client.peer) == before


def test_an_error_without_an_id_ends_nothing(revision: Revision) -> None:
    for asker, _ in askers(revision):
        calling(asker)
        before = state(asker)
        for error in (
            b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"unreadable"}}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"unreadable"}}',
        ):
            (dropped,) = asker.receive(error, 0.0)
            assert isinstance(dropped, MessageIgnored)
            assert "-32700, unreadable" in dropped.why
        assert state(asker) == before


def test_a_malformed_reply_ends_the_call_that_waits_for_it(revision: Revision) -> None:
    malformed = [
        {"result": 7},
        {"result": {}, "error": {"code": 1, "message": "m"}},
        {"error": {"code": "x", "message": "m"}},
        {"error": {"code": 1.5, "message": "m"}},
        {"error": {}},
        {},
    ]
    for asker, _ in askers(revision):
        for members in malformed:
            id, _ = calling(asker)
            (over,) = asker.receive(line(id=id, **members), 0.0)
            assert isinstance(over, RequestFinished)
            assert over.id == id
            assert isinstance(over.outcome, Fault)
            # and for a call of nobody, it is not answered either: replies never are
            if members:
                assert kinds(asker.receive(line(id=id, **members), 0.0)) == [MessageIgnored]


# ---------------------------------------------------------------- duplicate ids


@pytest.mark.spec("R0456")
def test_an_error_has_the_id_of_its_request_or_none_that_could_be_mistaken(
    revision: Revision,
) -> None:
    server = served(revision)
    answer = sent_messages(server.receive(request(revision, "x", "made/up"), 0.0))[0]
    assert answer["id"] == "x"
    for unreadable in (b"{", b"7", b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', b'"x"'):
        (error,) = sent_messages(server.receive(unreadable, 0.0))
        assert "id" not in error


def test_an_id_that_is_in_use_is_never_answered_twice(revision: Revision) -> None:
    """D3: whatever comes under the id of a running call, that call alone is answered with it."""
    server = served(revision)
    running = call(server, request(revision, 7, "tools/call", {"name": "n"}))
    before = state(server)
    again = [
        request(revision, 7, "tools/call", {"name": "n"}),
        request(revision, 7, "made/up"),
        request(revision, 7, "ping"),
        line(id=7, method="tools/call", params=[1]),
        line(id=7, method=3),
        b'{"jsonrpc":"1.0","id":7,"method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":7,"method":"a","method":"b"}',
        b'{"jsonrpc":"2.0","id":7.0,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"a":1,"a":2}}',
    ]
    for body in again:
        (error,) = sent_messages(server.receive(body, 0.0))
        assert error.get("id") is None
        assert ("id" in error) is (revision.handshake and revision.error_id_required)
        assert error["error"]["code"] == -32600
        assert state(server) == before
    assert decoded(running.settle(DONE))["id"] == 7
    other = call(server, request(revision, 7, "tools/call", {"name": "n"}))  # free again
    assert decoded(other.settle(DONE))["id"] == 7


def test_seven_is_not_its_own_name(revision: Revision) -> None:
    server = served(revision)
    number = call(server, request(revision, 7, "tools/call", {"name": "n"}))
    name = call(server, request(revision, "7", "tools/call", {"name": "n"}))
    assert server.receive(cancelled("7"), 0.0) == [RequestCancelled(name, None)]
    assert decoded(number.settle(DONE))["id"] == 7
    assert name.settle(DONE) is None


def test_more_requests_than_anyone_works_on_are_refused_one_by_one(revision: Revision) -> None:
    server = served(revision)
    exchanges = [
        call(server, request(revision, n, "tools/call", {"name": "n"})) for n in range(MAX_RUNNING)
    ]
    answer = sent_messages(server.receive(request(revision, "more", "tools/list"), 0.0))[0]
    assert (answer["id"], answer["error"]["code"]) == ("more", -32603)
    exchanges[0].settle(DONE)
    assert call(server, request(revision, "more", "tools/list"))


# ---------------------------------------------------------------- cancellation


@pytest.mark.spec("R0055", "R0171", "R0263", "R0667", "R0770", "R0774", "R0837", "R1051")
def test_only_a_call_of_ours_that_runs_is_cancelled_and_by_its_id(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker)
        assert decoded(asker.cancel(id, "enough")) == {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": id, "reason": "enough"},
        }
        assert asker.cancel(id) is None
        answered, _ = calling(asker)
        asker.receive(line(id=answered, result={}), 0.0)
        before = state(asker)
        for unknown in (answered, str(answered), 99, "made up"):
            assert asker.cancel(unknown) is None
        assert state(asker) == before
    server = served(revision)
    theirs = call(server, request(revision, 7, "tools/call", {"name": "n"}))
    assert server.cancel(7) is None  # it is theirs to cancel
    assert not theirs.settled


@pytest.mark.spec("R0056", "R0169")
def test_initialize_is_cancelled_by_nobody(revision: Revision) -> None:
    client, server = client_of(revision), server_of(revision)
    hello = client.initialize(0.0)
    before = state(client)
    with pytest.raises(LocalProtocolError, match="initialize cannot be cancelled"):
        client.cancel(1)
    assert state(client) == before
    assert kinds(client.receive(cancelled(1), 0.0)) == [MessageIgnored]
    (answer,) = sends(server.receive(hello.data, 0.0))
    opening = state(server)
    assert kinds(server.receive(cancelled(1), 0.0)) == [MessageIgnored]
    assert state(server) == opening
    assert client.receive(answer, 0.0)


@pytest.mark.spec("R0057", "R0777", "R0838", "R0862")
def test_a_cancelled_request_is_dropped_and_never_answered(revision: Revision) -> None:
    for asker, answerer in askers(revision):
        id, data = calling(asker, progress=True)
        exchange = call(answerer, data)
        (event,) = answerer.receive(asker.cancel(id, "enough") or b"", 0.0)
        assert event == RequestCancelled(exchange, "enough")
        result = DONE if asker.side is Side.CLIENT else t.ListRootsResult(roots=[])
        assert exchange.progress(1) is None
        assert exchange.log("emergency", "x") is None
        assert exchange.settle(result) is None
        assert exchange.fail(Fault(FaultKind.INTERNAL, "no")) is None
        assert len(answerer._incoming) == 0


@pytest.mark.spec("R0059", "R0778")
def test_an_answer_to_what_we_cancelled_is_ignored(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker)
        asker.cancel(id)
        before = state(asker)
        for late in (line(id=id, result={}), line(id=id, error={"code": 1, "message": "m"})):
            assert kinds(asker.receive(late, 0.0)) == [MessageIgnored]
        assert state(asker) == before


@pytest.mark.spec("R0060", "R0064", "R0167", "R1054")
def test_a_cancellation_and_an_answer_may_cross(revision: Revision) -> None:
    for asker, answerer in askers(revision):
        result = DONE if asker.side is Side.CLIENT else t.ListRootsResult(roots=[])
        id, data = calling(asker)
        answer = call(answerer, data).settle(result)
        gone = asker.cancel(id)
        assert answer is not None
        assert gone is not None
        before = state(answerer)
        assert kinds(answerer.receive(gone, 0.0)) == [MessageIgnored]  # it is finished there
        assert kinds(answerer.receive(gone, 0.0)) == [MessageIgnored]
        assert state(answerer) == before
        assert kinds(asker.receive(answer, 0.0)) == [MessageIgnored]  # and given up here
        id, data = calling(asker)
        call(answerer, data)
        gone = asker.cancel(id)
        assert gone is not None
        assert kinds(answerer.receive(gone, 0.0)) == [RequestCancelled]
        assert kinds(answerer.receive(gone, 0.0)) == [MessageIgnored]  # twice is once


@pytest.mark.spec("R0063", "R0065")
def test_a_cancellation_of_nothing_is_ignored(revision: Revision) -> None:
    server = served(revision)
    running = call(server, request(revision, 7, "tools/call", {"name": "n"}))
    before = state(server)
    strange = [
        cancelled(8),
        cancelled("7"),
        cancelled(7.5),
        cancelled(None),
        cancelled([7]),
        cancelled(True),
        cancelled(7, reason=3),
        line(method="notifications/cancelled"),
        line(method="notifications/cancelled", params={}),
        line(method="notifications/cancelled", params=[7]),
        line(method="notifications/cancelled", params="7"),
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8,"requestId":7}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7},"x":1,"x":2}',
    ]
    for body in strange:
        assert kinds(server.receive(body, 0.0)) == [MessageIgnored]
        assert state(server) == before
    assert running.settle(DONE) is not None


@pytest.mark.spec("R0171")
def test_a_cancellation_is_of_a_request_in_the_same_direction(revision: Revision) -> None:
    """Both sides have a request with the id 1: each cancels its own."""
    client, server = opened(revision)
    mine, data = calling(client)
    theirs, asked = calling(server)
    if theirs != mine:
        theirs, asked = calling(server)
    assert mine == 2
    assert theirs == 2
    at_server, at_client = call(server, data), call(client, asked)
    assert kinds(client.receive(server.cancel(theirs) or b"", 0.0)) == [RequestCancelled]
    assert (at_client.settled, at_server.settled) == (True, False)
    assert client._outgoing.get(mine) is not None
    assert server._incoming.get(mine) is at_server


def test_a_reason_that_cannot_be_written_leaves_the_call_as_it_was(revision: Revision) -> None:
    client, _ = opened(revision)
    id, _ = calling(client)
    with pytest.raises(LocalProtocolError, match="JSON"):
        client.cancel(id, "\ud800")
    assert client.cancel(id) is not None


def test_a_late_answer_does_not_reach_a_new_request_with_the_same_id(revision: Revision) -> None:
    """Cancelled, the id used again by its sender, and only then the first handler is done."""
    server = served(revision)
    first = call(server, request(revision, 7, "tools/call", {"name": "n"}))
    server.receive(cancelled(7), 0.0)
    second = call(server, request(revision, 7, "tools/call", {"name": "n"}))
    assert first.settle(text("first")) is None
    assert server._incoming.get(7) is second
    assert decoded(second.settle(text("second")))["result"]["content"][0]["text"] == "second"


# ---------------------------------------------------------------- progress


def progressed(token: Any, progress: Any = 1, **more: Any) -> bytes:
    params = {"progressToken": token, "progress": progress} | more
    return line(method="notifications/progress", params=params)


@pytest.mark.spec("R0076")
def test_progress_tokens_are_ours_to_choose_and_unique(revision: Revision) -> None:
    for asker, _ in askers(revision):
        tokens = [
            decoded(calling(asker, progress=True)[1])["params"]["_meta"]["progressToken"]
            for _ in range(20)
        ]
        assert len(set(tokens)) == len(tokens)
        assert "progressToken" not in decoded(calling(asker)[1]).get("params", {}).get("_meta", {})
    client, _ = opened(revision)
    before = state(client)
    own = t.CallToolRequestParams(name="n", meta={"progressToken": "mine"})
    with pytest.raises(LocalProtocolError, match="progress=True"):
        client.request("tools/call", own, now=0.0)
    assert state(client) == before


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_progress_of_a_task_is_passed_on_after_the_response_to_its_call(
    revision: Revision,
) -> None:
    related = {"_meta": {t.RELATED_TASK_KEY: {"taskId": "t-1"}}}
    for asker, _ in askers(revision):
        (event,) = asker.receive(progressed(99, **related), 0.0)
        passed_on = asker.side is Side.CLIENT and revision.tasks is Tasks.CORE
        assert isinstance(event, NotificationReceived if passed_on else MessageIgnored)
        assert kinds(asker.receive(progressed(99), 0.0)) == [MessageIgnored]


@pytest.mark.spec("R0084", "R0816")
def test_progress_is_heard_for_the_call_whose_token_it_names(revision: Revision) -> None:
    for asker, answerer in askers(revision):
        id, data = calling(asker, progress=True)
        other, _ = calling(asker, progress=True)
        exchange = call(answerer, data)
        (event,) = asker.receive(exchange.progress(0.5, 1, "half") or b"", 0.0)
        assert isinstance(event, ProgressReceived)
        assert (event.id, event.params.progress, event.params.total) == (id, 0.5, 1)
        assert [call.last_progress for call in asker._outgoing.calls if call.id == other] == [None]


@pytest.mark.spec("R0080")
def test_progress_that_does_not_go_up_is_dropped(revision: Revision) -> None:
    """D32: dropped and reported, never an error."""
    for asker, _ in askers(revision):
        id, _ = calling(asker, progress=True)
        assert kinds(asker.receive(progressed(id, 5), 0.0)) == [ProgressReceived]
        before = state(asker)
        for value in (5, 4.9, -1, 0):
            (dropped,) = asker.receive(progressed(id, value), 0.0)
            assert isinstance(dropped, MessageIgnored)
            assert "did not increase" in dropped.why
        assert state(asker) == before
        assert kinds(asker.receive(progressed(id, 5.1), 0.0)) == [ProgressReceived]


@pytest.mark.spec("R0082", "R0086")
def test_progress_of_no_running_call_is_dropped(revision: Revision) -> None:
    for asker, _ in askers(revision):
        quiet, _ = calling(asker)
        over, _ = calling(asker, progress=True)
        asker.receive(line(id=over, result={}), 0.0)
        given_up, _ = calling(asker, progress=True)
        asker.cancel(given_up)
        running, _ = calling(asker, progress=True)
        before = state(asker)
        for token in (quiet, over, given_up, str(running), 99, "x", None, 1.5, True, []):
            assert kinds(asker.receive(progressed(token), 0.0)) == [MessageIgnored]
        for bad in ("1", None, True, []):
            assert kinds(asker.receive(progressed(running, bad), 0.0)) == [MessageIgnored]
        assert kinds(asker.receive(line(method="notifications/progress"), 0.0)) == [MessageIgnored]
        assert state(asker) == before


def test_where_only_servers_report_progress_a_client_s_is_dropped() -> None:
    for revision in ALL:
        _, server = opened(revision)
        if not revision.handshake:
            assert kinds(server.receive(progressed(1), 0.0)) == [MessageIgnored]


# ---------------------------------------------------------------- time


@pytest.mark.spec("R0029", "R0237", "R0242")
def test_every_request_has_a_time_out_which_ends_it(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker)
        assert asker.next_deadline == TIMEOUT_S
        assert asker.tick(TIMEOUT_S - 0.1) == []
        over, *_ = asker.tick(TIMEOUT_S)
        assert isinstance(over, RequestFinished)
        assert over.id == id
        assert isinstance(over.outcome, TimedOut)
        assert "60 s" in str(over.outcome)
        assert (asker.next_deadline, asker.tick(1e9)) == (None, [])


@pytest.mark.parametrize("levels", [300, 10_000])
def test_a_reply_that_is_too_deep_ends_its_call_at_once(revision: Revision, levels: int) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker)
        inside = b'{"x":' * levels + b"1" + b"}" * levels
        (over,) = asker.receive(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (id, inside), 0.0)
        assert isinstance(over, RequestFinished)
        assert (over.id, type(over.outcome)) == (id, Fault)
        assert asker.next_deadline is None


@pytest.mark.spec("R0238", "R0775")
def test_a_time_out_tells_the_peer_and_stops_waiting(revision: Revision) -> None:
    for asker, answerer in askers(revision):
        id, data = calling(asker)
        exchange = call(answerer, data)
        _, sent = asker.tick(TIMEOUT_S)
        assert isinstance(sent, Send)
        assert decoded(sent.data)["method"] == "notifications/cancelled"
        assert decoded(sent.data)["params"]["requestId"] == id
        assert kinds(answerer.receive(sent.data, 0.0)) == [RequestCancelled]
        assert exchange.settled
        assert kinds(asker.receive(line(id=id, result={}), 0.0)) == [MessageIgnored]


@pytest.mark.spec("R0239")
def test_each_request_may_have_its_own_time_out(revision: Revision) -> None:
    for asker, _ in askers(revision):
        slow, quick = calling(asker, timeout_s=500)[0], calling(asker, timeout_s=2)[0]
        over, _ = asker.tick(2)
        assert isinstance(over, RequestFinished)
        assert over.id == quick
        assert asker.next_deadline == 500
        over, _ = asker.tick(500)
        assert isinstance(over, RequestFinished)
        assert over.id == slow


@pytest.mark.spec("R0241")
def test_progress_gives_more_time_and_never_more_than_the_most(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker, progress=True)
        now = 0.0
        for n in range(1, 100):
            now = n * 50.0
            if now >= MAX_S:
                break
            assert asker.tick(now) == []
            assert kinds(asker.receive(progressed(id, n), now)) == [ProgressReceived]
        assert asker.next_deadline == MAX_S
        over, _ = asker.tick(MAX_S + 5)
        assert isinstance(over, RequestFinished)
        assert over.id == id
        assert "within 600 s" in str(over.outcome)


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_the_time_stands_still_while_a_question_is_answered(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker, timeout_s=10)
        one, other = asker.pause_timeouts(4), asker.pause_timeouts(5)  # two questions at once
        assert one == other == (id,)
        assert asker.tick(300) == []
        assert asker.next_deadline == 10 + MAX_PAUSED_S
        asker.resume_timeouts(one, 300)
        assert asker.tick(310) == []
        asker.resume_timeouts(other, 404)
        assert asker.next_deadline == 410
        assert asker.tick(409) == []
        over, _ = asker.tick(410)
        assert isinstance(over, RequestFinished)
        assert over.id == id


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_a_peer_that_asks_again_and_again_does_not_keep_a_call_for_ever(
    revision: Revision,
) -> None:
    for asker, _ in askers(revision):
        calling(asker, timeout_s=10)
        now, ended = 0.0, False
        while not ended and now < 10 * MAX_PAUSED_S:
            held = asker.pause_timeouts(now)
            now += 9
            asker.resume_timeouts(held, now)
            ended = bool(asker.tick(now))
        assert MAX_PAUSED_S < now < MAX_PAUSED_S + 30


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_even_a_person_does_not_hold_a_call_for_ever(revision: Revision) -> None:
    for asker, _ in askers(revision):
        id, _ = calling(asker, timeout_s=10)
        held = asker.pause_timeouts(0)
        over, _ = asker.tick(10 + MAX_PAUSED_S)
        assert isinstance(over, RequestFinished)
        assert over.id == id
        asker.resume_timeouts(held, 10 + MAX_PAUSED_S)
        assert asker.next_deadline is None


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_a_question_holds_what_it_may_be_about_and_nothing_else(revision: Revision) -> None:
    for asker, _ in askers(revision):
        asked, _ = calling(asker, timeout_s=10)
        beside, _ = calling(asker, timeout_s=10)
        assert asker.pause_timeouts(1, asked) == (asked,)
        assert asker.ends_at(beside) == 10
        asker.cancel(asked)
        later, _ = calling(asker, timeout_s=10)
        assert asker.ends_at(asked) is None
        assert asker.ends_at(later) == asker.ends_at(beside) == asker.next_deadline == 10
        # A question of what was given up holds nothing at all.
        assert asker.pause_timeouts(2, asked) == ()


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_a_question_of_before_does_not_hold_what_is_sent_after_it(revision: Revision) -> None:
    for asker, _ in askers(revision):
        first, _ = calling(asker, timeout_s=10)
        held = asker.pause_timeouts(0)
        later, _ = calling(asker, timeout_s=10)
        (over, _) = asker.tick(10)
        assert isinstance(over, RequestFinished)
        assert over.id == later
        asker.resume_timeouts(held, 30)
        assert asker.ends_at(first) == 40


# ---------------------------------------------------------------- a client is asked


def test_a_question_reaches_the_client_checked_and_is_answered_once() -> None:
    for revision in HANDSHAKES:
        client, server = opened(revision)
        if not revision.elicitation.modes:
            with pytest.raises(LocalProtocolError, match="is not a request"):
                server.request("elicitation/create", SEAT.params, now=0.0)
            error = refusal(client.receive(line(id=1, method="elicitation/create", params={}), 0.0))
            assert error["code"] == -32601
            continue
        id, asked = server.request("elicitation/create", SEAT.params, now=0.0)
        exchange = call(client, asked)
        assert exchange.input_request is not None
        assert exchange.input_request.digest() == SEAT.digest()
        answer = exchange.settle(t.ElicitResult(action="accept", content={"seat": "1A"}))
        (over,) = server.receive(answer or b"", 0.0)
        assert isinstance(over, RequestFinished)
        assert over.id == id


def test_a_client_of_a_server_that_asks_beside_its_session_stays_in_it() -> None:
    """A handshake and enveloped requests on one pipe: neither disturbs the other."""
    modern = [revision for revision in ALL if not revision.handshake][-1]
    for revision in HANDSHAKES:
        client, server = client_of(revision), server_of(revision, accepts=EVERY)
        open_both(client, server)
        session = call(server, calling(client)[1])
        enveloped = call(server, request(modern, "e", "tools/call", {"name": "n"}))
        assert "resultType" not in decoded(session.settle(DONE))["result"]
        assert decoded(enveloped.settle(DONE))["result"]["resultType"] == "complete"
        assert decoded(server.request("roots/list", now=0.0)[1])["method"] == "roots/list"
