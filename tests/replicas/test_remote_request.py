"""Requests that another replica runs: what comes back, and what happens if one of the two dies."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from colonnade.errors import ConnectionLost, Fault, FaultKind, Refused, RemoteError
from colonnade.ports import SERVER_PRINCIPAL, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.exchange import CallerLost
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.negotiation import Callers
from colonnade.replicas import remote_request as module
from colonnade.replicas.remote_messages import (
    REMOTE_VERSION,
    WINDOW_MESSAGES,
    RemoteBegin,
    RemoteCall,
    RemoteCancel,
    RemoteEnd,
    RemoteFailure,
    RemoteStarted,
    RunnerMessage,
    describe_request,
    encode_remote,
    restore_exchange,
)
from colonnade.replicas.remote_request import WaitingCall
from colonnade.replicas.remote_run import MAX_FRAME_BYTES, RemoteRequestContext, RemoteRun
from colonnade.replicas.replica import ReplicaMessage, draw_replica_name
from colonnade.testing import words_of
from replicas.remote import (
    JULY_2026,
    NOVEMBER_2025,
    CallerContext,
    RemoteReplica,
    outcome,
    remote_replicas,
)
from replicas.shared_store import ReplicaFixture, run_replicas


def call(
    caller: RemoteReplica, runner: RemoteReplica, context: CallerContext, **options: Any
) -> "asyncio.Task[bytes | None]":
    """Let another replica run a request."""
    name = runner.replica.name
    return asyncio.ensure_future(caller.remote.run(context, name, "key", **options))


# ---------------------------------------------------------------- what comes back


@pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026])
def test_the_result_of_a_call_comes_back_in_the_revision_of_the_client(revision: Any) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "echo", {"text": "hi"}, revision=revision)
        response = await call(a, b, context)
        assert outcome(response) == f"hi for ada at {revision.date}"
        assert context.exchange.settled
        assert (a.effects, b.effects) == ([], ["hi"])

    run_replicas(body)


def test_progress_comes_back_before_the_result_however_much_there_is() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "count", {"to": 1000})
        task = call(a, b, context)
        while not task.done():
            await replicas.clock.advance(0.5)
        assert outcome(await task) == "1000"
        assert context.progress == sorted(context.progress)
        assert context.progress[0] == 1
        assert len(context.progress) > 64

    run_replicas(body)


def test_a_slow_client_slows_the_handler_down_and_loses_nothing() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "count", {"to": 90})
        context.ready.clear()
        task = call(a, b, context)
        await replicas.clock.advance(60.0)
        assert not task.done()
        published = [one for one in replicas.store.published if b"notifications/progress" in one[1]]
        assert len(published) <= 65
        context.ready.set()
        await replicas.clock.advance(5.0)
        assert outcome(await task) == "90"
        assert context.progress == list(range(1, 91))

    run_replicas(body)


def test_an_elicitation_is_sent_to_the_client_and_its_response_to_the_handler() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def answer(request: InputRequest) -> Raw:
            return Raw(b'{"action":"accept","content":{"value":"12A"}}')

        context = CallerContext(a.server, "book", answer=answer)
        assert outcome(await call(a, b, context)) == "booked 12A"
        [asked] = context.asked
        assert words_of(asked.params) == "Which seat?"
        assert b.effects == ["12A"]

    run_replicas(body)


def test_an_input_required_result_comes_back_as_it_is() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "book", revision=JULY_2026)
        result = outcome(await call(a, b, context))
        assert result["resultType"] == "input_required"
        assert not context.asked

    run_replicas(body)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RemoteError(-1, "not now", {"x": 1}), "declined"),
        (ConnectionLost("the client is gone"), "the client is gone"),
    ],
)
def test_an_elicitation_that_fails_fails_in_the_handler(error: Exception, words: str) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def answer(request: InputRequest) -> Raw:
            raise error

        context = CallerContext(a.server, "book", answer=answer)
        found = outcome(await call(a, b, context))
        assert words in str(found)
        assert not b.effects

    run_replicas(body)


def test_an_elicitation_that_the_handler_gives_up_is_cancelled_at_the_client() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        cancelled: list[bool] = []

        async def answer(request: InputRequest) -> Raw:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(True)
            raise AssertionError

        context = CallerContext(a.server, "impatient", answer=answer)
        task = call(a, b, context)
        await replicas.clock.advance(2.0)
        assert outcome(await task) == "too late"
        assert cancelled == [True]

    run_replicas(body)


def test_an_error_comes_back_with_its_fault() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "unheard-of")
        error = outcome(await call(a, b, context))
        assert "unheard-of" in error["message"]
        assert isinstance(context.fault, Fault)
        assert context.fault.kind is FaultKind.INVALID_PARAMS

    run_replicas(body)


def test_who_calls_is_known_there_and_neither_headers_nor_tokens_are() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "about", claims={"tenant": "x"})
        response = await call(a, b, context)
        assert response is not None
        found = msgspec.json.decode(response)["result"]["structuredContent"]
        assert found == {
            "claims": {"tenant": "x"},
            "principal": "ada",
            "client": "test",
            "headers": {},
        }
        assert context.hang_ups == 1

    run_replicas(body)


def test_other_methods_and_two_directions_at_once() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b, c = await remote_replicas(replicas, 3)
        tasks = [
            call(one, other, CallerContext(one.server, "echo", {"text": f"{number}"}))
            for number in range(20)
            for one in (a, b, c)
            for other in (a, b, c)
            if one is not other
        ]
        assert len(await asyncio.gather(*tasks)) == 120
        assert [len(one.effects) for one in (a, b, c)] == [40, 40, 40]
        listing = CallerContext(a.server, "", method="tools/list", params={})
        response = await call(a, b, listing)
        assert response is not None
        assert len(msgspec.json.decode(response)["result"]["tools"]) == 7

    run_replicas(body)


def test_a_response_that_is_too_large_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FRAME_BYTES", 1000)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        error = outcome(await call(a, b, CallerContext(a.server, "large", {"size": 2000})))
        assert "too large" in error["message"]

    run_replicas(body)


# ---------------------------------------------------------------- cancellation and deadlines


def test_a_cancelled_call_is_cancelled_where_it_runs() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        assert b.running.is_set()
        task.cancel()
        await replicas.clock.advance(5.0)
        assert b.cancelled == 1
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [one for one in replicas.store.published if module.END.encode() in one[1]]

    run_replicas(body)


def test_a_cancellation_that_is_lost_is_sent_again() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        lost: list[str] = []

        def lose_once(message: ReplicaMessage) -> bool:
            if message.kind == module.CANCEL and not lost:
                lost.append(message.kind)
                return True
            return False

        replicas.store.loses = lose_once
        task.cancel()
        await replicas.clock.advance(1.5)
        assert lost
        assert b.cancelled == 1

    run_replicas(body)


def test_a_client_that_is_gone_cancels_the_request() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        class Gone(CallerContext):
            async def send(self, frame: bytes) -> None:
                raise CallerLost("the client is gone")

        task = call(a, b, Gone(a.server, "count", {"to": 1000}))
        await replicas.clock.advance(1.0)
        with pytest.raises(ConnectionLost, match="client is gone"):
            await task

    run_replicas(body)


def test_a_deadline_ends_the_request_where_it_runs() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"), timeout_s=10.0)
        await replicas.clock.advance(9.0)
        assert not task.done()
        await replicas.clock.advance(1.5)
        assert b.cancelled == 1
        error = outcome(await task)
        assert "deadline" in error["message"]
        assert error["data"] == {"effectUnknown": True}

    run_replicas(body)


def test_a_long_call_goes_on_as_long_as_both_live() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        for _ in range(4):  # a clock passes a limited number of timers at a time
            await replicas.clock.advance(900.0)
        assert not task.done()
        b.go_on.set()
        await replicas.settle()
        assert outcome(await task) == "held"

    run_replicas(body)


# ---------------------------------------------------------------- a replica dies


async def failed_within(
    replicas: ReplicaFixture, task: "asyncio.Task[bytes | None]", seconds: float
) -> dict[str, Any]:
    """The error of a call that ends within this time."""
    await replicas.clock.advance(seconds)
    assert task.done()
    error = outcome(await task)
    assert error["code"] == -32603
    return error


def test_a_runner_that_dies_while_it_runs_is_noticed_in_five_seconds_and_the_effect_is_unknown() -> (
    None
):
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.clock.advance(10.3)
        replicas.stop(b.replica)
        error = await failed_within(replicas, task, 5.0)
        assert "whether it had an effect is unknown" in error["message"]
        assert error["data"] == {"effectUnknown": True}

    run_replicas(body)


def test_a_runner_that_dies_before_it_begins_certainly_had_no_effect() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.stop(b.replica)
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        error = await failed_within(replicas, task, 5.0)
        assert "not started" in error["message"]
        assert error["data"] == {"effectUnknown": False}
        # It was only stopped, and goes on: what was given up is not run.
        await replicas.resume(b.replica)
        await replicas.clock.advance(5.0)
        assert b.effects == []

    run_replicas(body)


def test_a_runner_that_goes_on_after_a_stop_ends_what_was_given_up() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        replicas.stop(b.replica)
        await failed_within(replicas, task, 5.0)
        await replicas.resume(b.replica)
        await replicas.clock.advance(6.0)
        assert b.cancelled == 1
        assert b.effects == []

    run_replicas(body)


def test_a_runner_without_a_lease_does_not_begin() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        begun: list[RemoteBegin] = []
        context = CallerContext(a.server, "echo", {"text": "x"})
        task = call(a, b, context)
        await replicas.settle()
        await task
        b.effects.clear()
        for _, data in replicas.store.published:
            message = msgspec.msgpack.decode(data, type=ReplicaMessage)
            if message.kind == module.BEGIN and message.form == "request":
                begun.append(msgspec.msgpack.decode(message.body, type=RemoteBegin))
        [begin] = begun
        again = msgspec.structs.replace(begin, id="f" * 32)
        late = msgspec.structs.replace(begin, id="e" * 32, start_until=replicas.clock.time() - 1)
        twice = msgspec.structs.replace(begin)
        over = msgspec.structs.replace(begin, id="d" * 32, deadline=replicas.clock.time() - 1)
        for one, words in ((late, "too late"), (twice, ""), (over, "too late")):
            data = await a.replica.request(b.replica.name, module.BEGIN, encode_remote(one))
            refusal = msgspec.msgpack.decode(data, type=RemoteStarted).refusal
            assert words in refusal if words else not refusal
        replicas.store.renews_leases = False
        await replicas.clock.advance(6.0)
        assert not b.replica.holds_lease
        await b.replica.store.publish(
            SERVER_PRINCIPAL,
            f"replica {b.replica.name}",
            msgspec.msgpack.encode(
                ReplicaMessage(1, a.replica.name, "request", module.BEGIN, 9, encode_remote(again))
            ),
        )
        await replicas.settle()
        assert b.effects == []
        replicas.store.renews_leases = True
        await replicas.clock.advance(2.0)
        refusal = await a.replica.request(b.replica.name, module.BEGIN, encode_remote(again))
        assert b"late" not in refusal
        await replicas.settle()
        assert b.effects == ["x"]

    run_replicas(body)


def test_a_request_that_is_cancelled_while_its_id_is_taken_does_not_begin() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.adds.clear()
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        await replicas.settle()
        task.cancel()
        await replicas.settle()
        replicas.store.adds.set()
        await replicas.clock.advance(5.0)
        assert b.effects == []

    run_replicas(body)


def test_a_run_without_a_lease_sends_nothing() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        context = CallerContext(a.server, "echo")
        begin = describe_request(context, "0" * 32, "key", 0.0, None)
        run = RemoteRun(begin, draw_replica_name(), context.exchange, a.replica, 0.0)
        await run.send("notification", b"{}")
        assert run.sent == 1
        replicas.store.renews_leases = False
        await replicas.clock.advance(6.0)
        with pytest.raises(CallerLost, match="lease"):
            await run.send("notification", b"{}")
        assert run.sent == 1
        with pytest.raises(Refused, match="too large"):
            await run.send("notification", bytes(MAX_FRAME_BYTES + 1))

    run_replicas(body)


def test_a_run_that_cannot_reach_its_caller_has_lost_it() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        context = CallerContext(a.server, "echo")
        begin = describe_request(context, "0" * 32, "key", 0.0, None)
        run = RemoteRun(begin, draw_replica_name(), context.exchange, a.replica, 0.0)
        replicas.store.leave()
        with pytest.raises(CallerLost, match="cannot be reached"):
            await run.send("notification", b"{}")
        assert run.sent == 0

    run_replicas(body)


def test_a_runner_that_does_not_wait_for_its_caller_is_given_up() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        waiting = WaitingCall(RemoteCall("0" * 32, "runner"), CallerContext(a.server, "echo"))
        for number in range(1, 10 * WINDOW_MESSAGES):
            message = RunnerMessage(REMOTE_VERSION, "0" * 32, number, "notification", 0, b"{}")
            waiting.put(message)
            if waiting.outcome is not None:
                break
        assert isinstance(waiting.outcome, RemoteFailure)
        assert waiting.outcome.effect_unknown
        assert len(waiting.queue) <= 2 * WINDOW_MESSAGES + 1

    run_replicas(body)


def test_a_replica_that_stops_tells_its_callers_at_once() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        await b.remote.close()
        error = outcome(await task)
        assert "stopped" in error["message"]
        assert error["data"] == {"effectUnknown": True}
        refused = outcome(await call(a, b, CallerContext(a.server, "echo", {"text": "x"})))
        assert refused["data"] == {"effectUnknown": False}

    run_replicas(body)


def test_a_caller_that_stops_fails_its_calls_and_cancels_them() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        await a.remote.close()
        error = outcome(await task)
        assert "this replica stops" in error["message"]
        late = outcome(await call(a, b, CallerContext(a.server, "echo", {"text": "x"})))
        assert late["data"] == {"effectUnknown": False}
        await replicas.clock.advance(7.0)
        assert b.cancelled == 1

    run_replicas(body)


def test_the_requests_of_a_caller_that_died_are_cancelled() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        replicas.stop(a.replica)
        await replicas.clock.advance(7.0)
        assert b.cancelled == 1
        task.cancel()

    run_replicas(body)


def test_a_request_to_what_is_no_replica_was_not_started() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        context = CallerContext(a.server, "echo", {"text": "x"})
        error = outcome(await a.remote.run(context, draw_replica_name(), "key"))
        assert error["data"] == {"effectUnknown": False}
        with pytest.raises(Refused, match="key"):
            await a.remote.run(context, a.replica.name, "k" * 3000)

    run_replicas(body)


def test_without_the_store_a_request_is_not_started() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.leave()
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        error = await failed_within(replicas, task, 5.0)
        assert error["data"] == {"effectUnknown": False}

    run_replicas(body)


# ---------------------------------------------------------------- lost, repeated and foreign


def losing(*kinds: str, form: str = "", number: int = 1) -> Any:
    """Loses so many messages of these kinds."""
    lost: list[ReplicaMessage] = []

    def loses(message: ReplicaMessage) -> bool:
        if message.kind in kinds and form in ("", message.form) and len(lost) < number:
            lost.append(message)
            return True
        return False

    return loses


def test_a_lost_begin_is_not_started_and_a_lost_acknowledgement_does_not_matter() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.loses = losing(module.BEGIN, form="request")
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        error = await failed_within(replicas, task, 5.0)
        assert error["data"] == {"effectUnknown": False}
        assert b.effects == []
        replicas.store.loses = losing(module.BEGIN, form="response")
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        assert "x for ada" in outcome(await task)
        replicas.store.loses = losing(module.BEGIN, form="response")
        task = call(a, b, CallerContext(a.server, "hold"))
        error = await failed_within(replicas, task, 5.0)
        assert error["data"] == {"effectUnknown": True}
        assert b.cancelled == 1

    run_replicas(body)


def test_a_lost_end_is_sent_again() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.loses = losing(module.END, form="request", number=2)
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        await replicas.clock.advance(2.5)
        assert "x for ada" in outcome(await task)
        assert b.effects == ["x"]

    run_replicas(body)


def test_a_lost_input_response_is_sent_again() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def answer(request: InputRequest) -> Raw:
            return Raw(b'{"action":"accept","content":{"value":"12A"}}')

        replicas.store.loses = losing(module.INPUT, form="request")
        context = CallerContext(a.server, "book", answer=answer)
        task = call(a, b, context)
        await replicas.clock.advance(1.5)
        assert outcome(await task) == "booked 12A"
        assert len(context.asked) == 1

    run_replicas(body)


def test_a_lost_notification_ends_the_request_with_an_unknown_effect() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def answer(request: InputRequest) -> Raw:
            raise AssertionError("it never arrives")

        replicas.store.loses = losing(module.MESSAGE)
        task = call(a, b, CallerContext(a.server, "book", answer=answer))
        error = await failed_within(replicas, task, 5.0)
        assert "lost" in error["message"]
        assert error["data"] == {"effectUnknown": True}
        assert b.effects == []

    run_replicas(body)


def test_a_caller_that_may_have_missed_a_message_finds_out_at_once() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.loses = losing(module.MESSAGE)
        task = call(a, b, CallerContext(a.server, "book"))
        await replicas.clock.advance(0.1)
        assert not task.done()
        replicas.store.cut_listeners()
        error = await failed_within(replicas, task, 0.1)
        assert "lost" in error["message"]

    run_replicas(body)


def test_lost_notifications_do_not_matter_if_the_outcome_is_there() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.loses = losing(module.MESSAGE, number=1000)
        context = CallerContext(a.server, "count", {"to": 3})
        assert outcome(await call(a, b, context)) == "3"
        assert context.progress == []

    run_replicas(body)


def test_a_caller_that_has_missed_messages_checks_at_once_and_goes_on_if_there_were_none() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        replicas.store.cut_listeners()
        await replicas.clock.advance(3.0)
        assert not task.done()
        b.go_on.set()
        await replicas.clock.advance(3.0)
        assert outcome(await task) == "held"

    run_replicas(body)


def test_messages_that_come_twice_count_once() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "hold")
        task = call(a, b, context)
        await replicas.settle()
        for topic, data in list(replicas.store.published):
            await replicas.store.publish(SERVER_PRINCIPAL, topic, data)
        b.go_on.set()
        await replicas.clock.advance(2.0)
        assert outcome(await task) == "held"
        for topic, data in list(replicas.store.published):
            await replicas.store.publish(SERVER_PRINCIPAL, topic, data)
        await replicas.clock.advance(2.0)
        assert b.effects == ["held"]

    run_replicas(body)


def test_what_another_replica_says_of_a_request_is_ignored() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b, c = await remote_replicas(replicas, 3)
        context = CallerContext(a.server, "hold")
        task = call(a, b, context)
        await replicas.settle()
        [name] = await replicas.store.names(SERVER_PRINCIPAL, "remote ", "", 10)
        id = name.removeprefix("remote ")
        cancel = encode_remote(RemoteCancel(REMOTE_VERSION, id))
        end = encode_remote(RemoteEnd(REMOTE_VERSION, id, 0, b"{}", None))
        message = encode_remote(RunnerMessage(REMOTE_VERSION, id, 5, "hang_up", 0, b""))
        await c.replica.send(b.replica.name, module.CANCEL, cancel)
        await c.replica.send(a.replica.name, module.END, end)
        await c.replica.send(a.replica.name, module.MESSAGE, message)
        await replicas.settle()
        assert not task.done()
        b.go_on.set()
        await replicas.settle()
        assert outcome(await task) == "held"

    run_replicas(body)


def test_messages_of_another_release_are_ignored_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        for kind in (module.BEGIN, module.MESSAGE, module.INPUT, module.CHECK, module.CANCEL):
            for data in (b"", b"garbage", encode_remote([REMOTE_VERSION + 1, "new"])):
                await a.replica.send(b.replica.name, kind, data)
                await a.replica.send(b.replica.name, kind, data)
        await a.replica.send(b.replica.name, module.END, b"")
        await replicas.settle()
        assert outcome(await call(a, b, CallerContext(a.server, "echo", {"text": "x"})))

    run_replicas(body)
    lines = [
        r.getMessage() for r in caplog.records if "another release is ignored" in r.getMessage()
    ]
    assert len(lines) == len(set(lines)) == 6


def test_a_runner_that_is_too_busy_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RUNS", 1)
    monkeypatch.setattr(module, "MAX_WAITING_CALLS", 2)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        held = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        error = outcome(await call(a, b, CallerContext(a.server, "echo", {"text": "x"})))
        assert "too busy" in error["message"]
        monkeypatch.setattr(module, "MAX_WAITING_CALLS", 1)
        error = outcome(await call(a, b, CallerContext(a.server, "echo", {"text": "x"})))
        assert "too many requests wait" in error["message"]
        b.go_on.set()
        await replicas.settle()
        assert outcome(await held) == "held"
        assert b.effects == ["held"]

    run_replicas(body)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionLost("a connection of the handler"), "a connection of the handler"),
        (TimeoutError(), "its log says why"),
        (ValueError("secret"), "its log says why"),
    ],
)
def test_a_service_that_raises_leaves_an_error_with_an_unknown_effect(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def respond(request: Any) -> bytes | None:
            raise error

        monkeypatch.setattr(b.server, "respond", respond)
        found = outcome(await call(a, b, CallerContext(a.server, "echo", {"text": "x"})))
        assert words in found["message"]
        assert "secret" not in found["message"]
        assert found["data"] == {"effectUnknown": True}

    run_replicas(body)


def test_a_request_that_the_runner_does_not_know_is_not_started() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        context = CallerContext(a.server, "echo", {"text": "x"})
        begin = describe_request(context, "0" * 32, "key", replicas.clock.time() + 9, None)
        unknown = msgspec.structs.replace(begin, method="unheard/of")
        name = b.replica.name
        refusal = await a.replica.request(name, module.BEGIN, encode_remote(unknown))
        assert b"unheard/of" in refusal
        assert await replicas.store.names(SERVER_PRINCIPAL, "remote ", "", 10) == []

    run_replicas(body)


def test_input_requests_that_cannot_be_carried_fail_in_the_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_FRAME_BYTES", 1000)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def answer(request: InputRequest) -> Raw:
            return Raw(b'{"action":"accept","content":{"value":"%s"}}' % (b"x" * 2000))

        context = CallerContext(a.server, "book", answer=answer)
        assert "too large" in str(outcome(await call(a, b, context)))
        monkeypatch.setattr(module, "decode_input_request", lambda body: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        found = outcome(await call(a, b, CallerContext(a.server, "book", answer=answer)))
        assert "another release" in str(found)
        assert b.effects == []

    run_replicas(body)


def test_an_acknowledgement_of_another_release_leaves_the_effect_unknown() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        b = await replicas.started()

        async def begin(sender: str, body: bytes) -> bytes:
            return b"new"

        b.handle(module.BEGIN, begin)
        context = CallerContext(a.server, "echo", {"text": "x"})
        error = outcome(await a.remote.run(context, b.name, "key"))
        assert error["data"] == {"effectUnknown": True}

    run_replicas(body)


def test_a_replica_without_remote_requests_certainly_did_not_start_one() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        b = await replicas.started()
        context = CallerContext(a.server, "echo", {"text": "x"})
        error = outcome(await a.remote.run(context, b.name, "key"))
        assert error["data"] == {"effectUnknown": False}
        assert "does not know this request" in error["message"]

    run_replicas(body)


def test_a_store_that_fails_in_an_unknown_way_leaves_the_effect_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)

        async def publish(principal: str, topic: str, message: bytes) -> None:
            raise OSError("disk")

        monkeypatch.setattr(replicas.store, "publish", publish)
        task = call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        error = outcome(await task)
        assert error["data"] == {"effectUnknown": True}
        monkeypatch.undo()
        assert "x for ada" in outcome(
            await call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        )

    run_replicas(body)


def test_the_context_of_a_remote_request_is_one_of_the_usual_kind() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await remote_replicas(replicas, 1)
        context = CallerContext(a.server, "echo", {"text": "x"}, claims={"a": 1})
        begin = describe_request(context, "0" * 32, "the key", 0.0, None)
        exchange = restore_exchange(begin, a.server.identity)
        run = RemoteRun(begin, draw_replica_name(), exchange, a.replica, 0.0)
        spawned: list[Any] = []
        remote: RequestContext = RemoteRequestContext(run, spawned.append)
        assert (remote.tool, remote.arguments, remote.principal) == ("echo", {"text": "x"}, "ada")
        assert (dict(remote.claims), dict(remote.headers), remote.session) == ({"a": 1}, {}, None)
        assert remote.callers is Callers.AUTHENTICATED
        assert not remote.post(b"{}")
        assert "tools/call" in repr(remote)
        run.inputs.update(dict.fromkeys(range(1000), asyncio.get_running_loop().create_future()))
        with pytest.raises(Refused, match="open input requests"):
            await remote.ask(InputRequest(t.ListRootsRequestParams()))
        assert not spawned

    run_replicas(body)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_lost_or_repeated_nothing_runs_twice_and_every_call_ends(seed: int) -> None:
    random = Random(seed)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        replicas.store.loses = lambda message: random.random() < 0.25
        tasks = [
            call(a, b, CallerContext(a.server, "echo", {"text": f"{number}"}))
            for number in range(40)
        ]
        for _ in range(10):
            await replicas.clock.advance(1.0)
            for topic, data in random.sample(replicas.store.published[-100:], 10):
                await replicas.store.publish(SERVER_PRINCIPAL, topic, data)
            if random.random() < 0.2:
                replicas.store.cut_listeners()
        assert all(task.done() for task in tasks)
        assert len(b.effects) == len(set(b.effects))
        results = 0
        for number, task in enumerate(tasks):
            found = outcome(await task)
            if isinstance(found, str):
                results += 1
                assert f"{number}" in b.effects
            elif not found["data"]["effectUnknown"]:
                assert f"{number}" not in b.effects
        assert results > 5

    run_replicas(body)


# ---------------------------------------------------------------- copies, and clocks that differ


def test_a_copy_of_a_request_is_not_run_although_its_id_was_deleted_in_the_store() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        response = await call(a, b, CallerContext(a.server, "echo", {"text": "once"}))
        assert outcome(response) is not None
        copies = [one for one in replicas.store.published if b"remote begin" in one[1]]
        assert copies
        for name in await replicas.store.names(SERVER_PRINCIPAL, "remote ", "", 10):
            await replicas.store.delete(SERVER_PRINCIPAL, name)
        for topic, message in copies:
            await replicas.store.publish(SERVER_PRINCIPAL, topic, message)
        await replicas.settle()
        assert b.effects == ["once"]

    run_replicas(body)


def test_ids_of_requests_that_were_begun_are_kept_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_BEGUN", 3)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        for number in range(5):
            await call(a, b, CallerContext(a.server, "echo", {"text": str(number)}))
        assert len(b.remote._begun) == 3
        await replicas.clock.advance(61.0)
        await call(a, b, CallerContext(a.server, "echo", {"text": "later"}))
        assert len(b.remote._begun) == 1

    run_replicas(body)


@pytest.mark.parametrize(("ahead_s", "runs"), [(-300.0, True), (50.0, True), (120.0, False)])
def test_a_replica_whose_clock_is_far_ahead_begins_nothing_and_says_so(
    ahead_s: float, runs: bool
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a = RemoteReplica(await replicas.started(), replicas.clock.time)
        b = RemoteReplica(await replicas.started(), lambda: replicas.clock.time() + ahead_s)
        response = await call(a, b, CallerContext(a.server, "echo", {"text": "x"}))
        assert (b.effects == ["x"]) is runs
        if not runs:
            error = msgspec.json.decode(response or b"")["error"]
            assert "clocks of the two replicas differ" in error["message"]
            assert error["data"] == {"effectUnknown": False}

    run_replicas(body)


def test_a_runner_whose_messages_nobody_receives_has_ended_within_a_second() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        for service in b.replica._services:  # as SIGKILL closes its connections; its lease stays
            service.cancel()
        await replicas.clock.advance(1.0)
        assert task.done()
        error = outcome(await task)
        assert "has ended" in error["message"]
        assert error["data"] == {"effectUnknown": True}

    run_replicas(body)


def test_a_runner_that_listens_again_has_not_ended() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await remote_replicas(replicas, 2)
        task = call(a, b, CallerContext(a.server, "hold"))
        await replicas.settle()
        replicas.store.listens.clear()
        replicas.store.cut_listeners()
        await replicas.clock.advance(0.9)
        replicas.store.listens.set()
        await replicas.clock.advance(3.0)
        assert not task.done()
        task.cancel()
        await asyncio.wait({task})

    run_replicas(body)
