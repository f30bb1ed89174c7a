"""The messages of a request at another replica, and the caller's state of it: no loop, no store."""

from typing import Any

import msgspec
import pytest

from colonnade import Server
from colonnade.errors import ConnectionLost, Fault, FaultKind, RemoteError
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.protocol.http.security import HttpError
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import EVERY, Revision
from colonnade.replicas.remote_messages import (
    MAX_CHECKED,
    MAX_FAILED_CHECKS,
    MAX_OPEN_INPUTS,
    REMOTE_VERSION,
    CheckedRequest,
    RemoteBegin,
    RemoteCall,
    RemoteCheck,
    RemoteEnd,
    RemoteFailure,
    RemoteFault,
    RemotePhase,
    RemoteStarted,
    RunnerMessage,
    callers_named,
    decode_input_request,
    decode_remote,
    describe_request,
    encode_input_request,
    encode_remote,
    input_error,
    restore_exchange,
)
from replicas.remote import CallerContext

ID = "0123456789abcdef" * 2
RUNNER = "abcdefghijklmn27"


def message(number: int, form: Any = "notification", input: int = 0) -> RunnerMessage:
    return RunnerMessage(REMOTE_VERSION, ID, number, form, input, b"")


def running() -> RemoteCall:
    call = RemoteCall(ID, RUNNER)
    call.on_started()
    return call


# ---------------------------------------------------------------- the caller's state


def test_messages_are_delivered_in_their_order_and_once() -> None:
    call = running()
    assert call.accepts(message(1)) is True
    assert call.accepts(message(1)) is False
    assert call.accepts(message(2)) is True
    assert call.accepts(message(1)) is False
    assert call.received == 2


def test_a_gap_ends_the_request_and_its_effect_is_unknown() -> None:
    call = running()
    assert call.accepts(message(1)) is True
    failure = call.accepts(message(3))
    assert isinstance(failure, RemoteFailure)
    assert failure.effect_unknown
    assert call.phase is RemotePhase.ENDED
    assert call.accepts(message(2)) is False
    assert call.on_end() is False


def test_a_message_shows_that_the_request_has_started() -> None:
    call = RemoteCall(ID, RUNNER)
    assert call.phase is RemotePhase.STARTING
    assert call.accepts(message(1)) is True
    assert call.phase is RemotePhase.RUNNING


def test_the_outcome_is_taken_once() -> None:
    call = running()
    assert call.on_end() is True
    assert call.on_end() is False
    call.on_started()
    assert call.phase is RemotePhase.ENDED
    assert call.accepts(message(1)) is False


def test_too_many_open_input_requests_end_the_request() -> None:
    call = running()
    for number in range(1, MAX_OPEN_INPUTS + 1):
        assert call.accepts(message(number, "input_request", number)) is True
    call.on_input_settled(7)
    assert call.accepts(message(MAX_OPEN_INPUTS + 1, "input_request", 7)) is True
    failure = call.accepts(message(MAX_OPEN_INPUTS + 2, "input_request", 99))
    assert isinstance(failure, RemoteFailure)


def test_a_check_finds_lost_messages_and_forgotten_requests() -> None:
    call = running()
    assert call.accepts(message(1)) is True
    assert call.on_check(1) is None
    assert call.on_check(0) is None  # it was sent after the check
    failure = call.on_check(2)
    assert failure is not None
    assert "lost" in failure.reason
    forgotten = running().on_check(None)
    assert forgotten is not None
    assert forgotten.effect_unknown


def test_a_runner_is_given_up_without_a_lease_or_after_some_checks() -> None:
    failure = running().on_failed_check(alive=False)
    assert failure is not None
    assert failure.effect_unknown
    call = running()
    for _ in range(MAX_FAILED_CHECKS - 1):
        assert call.on_failed_check(alive=True) is None
    assert call.on_check(0) is None  # it responds again
    for _ in range(MAX_FAILED_CHECKS - 1):
        assert call.on_failed_check(alive=True) is None
    assert call.on_failed_check(alive=True) is not None


def test_checks_say_nothing_of_a_request_that_has_not_started_or_has_ended() -> None:
    starting, ended = RemoteCall(ID, RUNNER), running()
    ended.on_end()
    for call in (starting, ended):
        assert call.on_check(None) is None
        assert call.on_check(9) is None
        assert [call.on_failed_check(alive=False) for _ in range(9)] == [None] * 9


def test_whether_there_may_be_an_effect_depends_on_who_took_the_id() -> None:
    refused = RemoteCall(ID, RUNNER).on_refused("busy")
    given_up = RemoteCall(ID, RUNNER).on_unacknowledged("silent", given_up=True)
    taken = RemoteCall(ID, RUNNER).on_unacknowledged("silent", given_up=False)
    assert [one.effect_unknown for one in (refused, given_up, taken)] == [False, False, True]
    assert given_up.fault().data == {"effectUnknown": False}
    assert "not started" in str(given_up.fault())
    assert "whether it had an effect is unknown" in str(taken.fault())


# ---------------------------------------------------------------- on the wire


@pytest.mark.parametrize("revision", list(EVERY))
def test_a_request_is_the_same_after_its_journey(revision: Revision) -> None:
    server = Server("s")
    context = CallerContext(
        server,
        "n",
        {"a": 1},
        revision=revision,
        scopes=frozenset({"b", "a"}),
        claims={"tenant": "x"},
    )
    begin = describe_request(context, ID, "key", 5.0, None)
    begin = decode_remote(RemoteBegin, encode_remote(begin))
    assert begin is not None
    exchange, before = restore_exchange(begin, server.identity), context.exchange
    assert bytes(exchange.request.params) == bytes(before.request.params)
    assert (exchange.request.id, exchange.request.raw_id) == ("id-7", b'"id-7"')
    assert exchange.method is before.method
    assert exchange.peer == before.peer
    assert exchange.principal == "ada"
    assert exchange.scopes == {"a", "b"}
    assert exchange.progress_token == "p"
    assert msgspec.json.decode(begin.claims) == {"tenant": "x"}
    assert callers_named(begin.callers) is Callers.AUTHENTICATED
    assert callers_named("new ones") is Callers.ANONYMOUS


def test_a_request_without_params_or_scopes_is_the_same_too() -> None:
    context = CallerContext(Server("s"), "", method="tools/list", params={})
    begin = describe_request(context, ID, "key", 5.0, 9.0)
    begin = msgspec.structs.replace(begin, params=b"")
    exchange = restore_exchange(begin, Server("s").identity)
    assert exchange.scopes is None
    assert not exchange.request.params


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peer": b"{"}, "malformed"),
        ({"peer": b'{"revision":"2031-01-01"}'}, "2031-01-01"),
        ({"principal": SERVER_PRINCIPAL}, "malformed"),
        ({"method": "unheard/of"}, "unheard/of"),
        ({"method": "notifications/cancelled"}, "notifications/cancelled"),
        ({"raw_id": b"[]"}, "id"),
        ({"params": b"{"}, "params"),
    ],
)
def test_a_request_that_cannot_be_run_here_is_refused(changes: dict[str, Any], words: str) -> None:
    begin = describe_request(CallerContext(Server("s"), "n"), ID, "key", 5.0, None)
    with pytest.raises(Fault, match=words):
        restore_exchange(msgspec.structs.replace(begin, **changes), Server("s").identity)


def test_what_is_malformed_or_of_a_newer_version_is_not_read() -> None:
    good = encode_remote(RemoteStarted(REMOTE_VERSION, ""))
    assert decode_remote(RemoteStarted, good) == RemoteStarted(REMOTE_VERSION, "")
    longer = encode_remote([REMOTE_VERSION, "", "added later"])
    assert decode_remote(RemoteStarted, longer) == RemoteStarted(REMOTE_VERSION, "")
    for bad in (b"", b"garbage", b"\x91" * 100_000, encode_remote([REMOTE_VERSION + 1, ""])):
        assert decode_remote(RemoteStarted, bad) is None
    for id in ("", "x", ID + "0", "../" + ID[3:], ID + "\n"):
        bad = encode_remote(RunnerMessage(REMOTE_VERSION, id, 1, "hang_up", 0, b""))
        assert decode_remote(RunnerMessage, bad) is None
    many = [CheckedRequest(ID, 0)] * (MAX_CHECKED + 1)
    assert decode_remote(RemoteCheck, encode_remote(RemoteCheck(REMOTE_VERSION, many))) is None


def test_an_input_request_is_the_same_after_its_journey() -> None:
    for params in (
        t.ElicitRequestParams(message="Which?", requested_schema=t.ElicitSchema(properties={})),
        t.CreateMessageRequestParams(messages=[], max_tokens=7),
        t.ListRootsRequestParams(),
    ):
        request = InputRequest(params)
        assert decode_input_request(encode_input_request(request)) == request
    assert decode_input_request(b'{"method":"roots/list"}') == InputRequest(
        t.ListRootsRequestParams()
    )
    for bad in (b"", b"{}", b'{"method":"new/one","params":{}}', b"[" * 100_000):
        assert decode_input_request(bad) is None


def test_an_error_of_the_client_keeps_its_code_and_any_other_has_none() -> None:
    error = input_error(ID, 3, RemoteError(-7, "no", {"x": 1}))
    assert (error.code, error.message, error.data) == (-7, "no", b'{"x":1}')
    assert input_error(ID, 3, RemoteError(-7, "no")).data == b""
    lost = input_error(ID, 3, ConnectionLost("gone"))
    assert (lost.code, lost.message) == (None, "gone")
    assert input_error(ID, 3, ConnectionLost()).message == "ConnectionLost"


def test_a_fault_comes_back_with_its_status_and_headers() -> None:
    limited = HttpError(429, "slow down", kind=FaultKind.TOO_MANY, headers=(("Retry-After", "1"),))
    end = RemoteEnd(REMOTE_VERSION, ID, 0, b"{}", RemoteFault.of(limited))
    read = decode_remote(RemoteEnd, encode_remote(end))
    assert read is not None
    assert read.fault is not None
    fault = read.fault.fault()
    assert isinstance(fault, HttpError)
    assert (fault.status, fault.headers, fault.kind) == (
        429,
        (("Retry-After", "1"),),
        FaultKind.TOO_MANY,
    )
    plain = RemoteFault.of(Fault(FaultKind.INVALID_PARAMS, "bad")).fault()
    assert type(plain) is Fault
    assert plain.kind is FaultKind.INVALID_PARAMS
    assert RemoteFault("NEW_KIND", "x", 0, []).fault().kind is FaultKind.INTERNAL
