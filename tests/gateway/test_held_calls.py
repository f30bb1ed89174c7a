"""Held calls: a client that is asked in results, and a server that sends requests of its own."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import (
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Refused,
    RemoteError,
)
from colonnade.gateway.held_calls import HeldLimits, describe_outcome, restore_outcome
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.host.policy.rules.rules import Policy
from colonnade.protocol import types as t
from colonnade.protocol.methods import CALL_TOOL, Side
from colonnade.testing import Clock
from colonnade.transport.memory import End, connected_pair, serve_end
from gateway.recorded import NEW, OLD, Cell, recorded, server_started
from gateway.rounds import Desk, Rounds, answered, can_elicit, text
from live import live, live_for

# By the clock of a test that it advances itself.
FAKE_S = 1_000_000


def held(cell: Cell) -> int:
    return cell.gateway._bridge.held.count


def desk(**options: Any) -> tuple[Desk, Any]:
    made = Desk()
    return made, recorded(made.server, upstream=OLD, downstream=NEW, **options)


@live
async def test_a_call_with_two_rounds_runs_once() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("trip")
        assert held(cell) == 1
        given = answered(first, lambda _: "12A")
        second = await rounds.send("trip", {}, first.request_state, given)
        assert isinstance(second, t.InputRequiredResult)
        given = answered(second, lambda asked: "soup" if "12A" in asked else "wrong")
        last = await rounds.send("trip", {}, second.request_state, given)
        assert text(last) == "12A, soup"
        assert held(cell) == 0
        assert len(cell.server_wire.said(Side.CLIENT, "tools/call")) == 1
        cell.check()


@live
async def test_input_requests_that_are_sent_together_are_one_round() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("pair")
        assert len(first.input_requests or {}) == 2
        given = answered(first, lambda asked: asked.removesuffix("?").lower())
        assert text(await rounds.send("pair", {}, first.request_state, given)) == "one two"
        cell.check()


@live
async def test_what_has_no_response_is_asked_again() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("pair")
        given = answered(first, lambda asked: asked.removesuffix("?").lower())
        one = dict([given.popitem()])
        second = await rounds.send("pair", {}, first.request_state, one)
        assert isinstance(second, t.InputRequiredResult)
        assert set(second.input_requests or {}) == set(given)
        assert text(await rounds.send("pair", {}, second.request_state, given)) == "one two"


@pytest.mark.spec("R0811")
@pytest.mark.parametrize("upstream", [OLD, NEW])
def test_responses_to_what_was_not_asked_are_ignored(upstream: str) -> None:
    @live
    async def exercise() -> None:
        made = Desk()
        async with recorded(made.server, upstream=upstream, downstream=NEW) as cell:
            rounds = Rounds(await cell.connect(can_elicit()))
            first = await rounds.begin("book", who="ada")
            given = answered(first, lambda _: "12A")
            extra = {
                "unknown_extra_key": {"action": "accept", "content": {"foo": "bar"}},
                "another_unexpected": {"action": "accept", "content": {"baz": 123}},
            }
            last = await rounds.send("book", {"who": "ada"}, first.request_state, given | extra)
            assert text(last) == "ada: 12A"

    exercise()


@live
async def test_two_calls_of_one_caller_on_one_pipe_are_asked_and_answered_interleaved() -> None:
    made, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        await rounds.client.list_tools()
        calls = {
            who: asyncio.create_task(rounds.send("later", {"who": who})) for who in ("ada", "bob")
        }
        while len(made.begun) < 2:
            await asyncio.sleep(0)
        states: dict[str, str | None] = dict.fromkeys(calls)
        results: dict[str, str] = {}
        for who in ("ada", "bob"):
            made.go[who].set()
        while len(results) < 2:
            done, _ = await asyncio.wait(calls.values(), return_when=asyncio.FIRST_COMPLETED)
            for who, call in list(calls.items()):
                if call not in done:
                    continue
                result = await call
                if isinstance(result, t.CallToolResult):
                    results[who] = text(result)
                    del calls[who]
                    continue
                # Whoever's form it is: the response goes to the call that it belongs to.
                given = answered(result, lambda asked: f"seat of {asked.split()[-1]}")
                again = rounds.send("later", {"who": who}, result.request_state, given)
                calls[who] = asyncio.create_task(again)
                states[who] = result.request_state
        assert results == {"ada": "ada: seat of ada?", "bob": "bob: seat of bob?"}
        assert len(cell.back) == 1
        assert held(cell) == 0


@pytest.mark.parametrize("action", ["decline", "cancel"])
@live
async def test_the_server_gets_a_form_that_was_declined_or_cancelled(action: str) -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        given = answered(first, lambda _: {"action": action})
        result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert text(result) == f"ada: {action}"
        cell.check()


@live
async def test_a_retry_that_is_sent_twice_in_parallel_has_one_effect_and_one_result() -> None:
    made, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        given = answered(first, lambda _: "12A")
        other = answered(first, lambda _: "99Z")
        sending = [
            rounds.send("book", {"who": "ada"}, first.request_state, responses)
            for responses in (given, other, given)
        ]
        assert [text(one) for one in await asyncio.gather(*sending)] == ["ada: 12A"] * 3
        # And once more when it is over: the outcome is kept.
        again = await rounds.send("book", {"who": "ada"}, first.request_state, other)
        assert text(again) == "ada: 12A"
        assert made.ended == ["ada"]


@live
async def test_a_response_that_does_not_fit_is_refused_and_can_be_sent_again() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        wrong = answered(first, lambda _: {"action": "accept", "content": {}})
        with pytest.raises(RemoteError) as refused:
            await rounds.send("book", {"who": "ada"}, first.request_state, wrong)
        assert refused.value.code == -32602
        given = answered(first, lambda _: "12A")
        result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert text(result) == "ada: 12A"


@live
async def test_the_eleventh_round_is_not_given_and_the_call_ends() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        result: Any = await rounds.begin("many", times=12)
        count = 0
        while isinstance(result, t.InputRequiredResult):
            count += 1
            given = answered(result, lambda _: "yes")
            result = await rounds.send("many", {"times": 12}, result.request_state, given)
        assert count == 10
        assert text(result) == " ".join(["yes"] * 10 + ["cancel"] * 2)
        assert held(cell) == 0


# ---------------------------------------------------------------- abandoned calls


@live_for(FAKE_S)
async def test_an_abandoned_call_is_cancelled_for_its_server_and_forgotten() -> None:
    clock = Clock()
    with clock:
        made, making = desk(clock=clock.time)
        async with making as cell:
            rounds = Rounds(await cell.connect(can_elicit()))
            first = await rounds.begin("book", who="ada")
            await clock.advance(569)
            assert held(cell) == 1
            assert made.cancelled == []
            await clock.advance(2)
            assert made.cancelled == ["ada cancel"]
            assert held(cell) == 0
            given = answered(first, lambda _: "12A")
            with pytest.raises(RemoteError, match="has expired"):
                await rounds.send("book", {"who": "ada"}, first.request_state, given)


@live_for(FAKE_S)
async def test_a_server_that_does_not_finish_after_that_is_sent_a_cancellation() -> None:
    clock = Clock()
    with clock:
        made, making = desk(clock=clock.time)
        async with making as cell:
            rounds = Rounds(await cell.connect(can_elicit()))
            await rounds.begin("stubborn")
            await clock.advance(571)
            assert made.cancelled == ["cancel"]
            assert held(cell) == 1
            await clock.advance(30)
            assert made.cancelled == ["cancel", "notifications/cancelled"]
            assert held(cell) == 0


@live_for(FAKE_S)
async def test_the_time_without_a_request_counts_over_all_rounds() -> None:
    clock = Clock()
    with clock:
        _, making = desk(clock=clock.time)
        async with making as cell:
            rounds = Rounds(await cell.connect(can_elicit()))
            result: Any = await rounds.begin("many", times=5)
            for _ in range(2):
                await clock.advance(250)
                given = answered(result, lambda _: "yes")
                result = await rounds.send("many", {"times": 5}, result.request_state, given)
                assert isinstance(result, t.InputRequiredResult)
            await clock.advance(100)
            assert held(cell) == 0


@live
async def test_a_client_that_goes_away_while_it_waits_cancels_the_call() -> None:
    made, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        await rounds.client.list_tools()
        call = asyncio.create_task(rounds.send("later", {"who": "ada"}))
        while not made.begun:
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        for _ in range(1000):  # far less than the timeout of the call, which would cancel it, too
            await asyncio.sleep(0)
        assert len(cell.server_wire.said(Side.CLIENT, "notifications/cancelled")) == 1
        assert held(cell) == 0


@live
async def test_the_end_of_the_server_is_the_outcome() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        await cell.ends[-1].close("the server has crashed")
        while held(cell):
            await asyncio.sleep(0)
        given = answered(first, lambda _: "12A")
        result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert result.is_error
        assert "server 's'" in text(result)


@live
async def test_a_gateway_that_stops_interrupts_what_it_holds() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("stubborn")
        await cell.gateway._bridge.held.close()
        assert held(cell) == 0
        given = answered(first, lambda _: "12A")
        result = await rounds.send("stubborn", {}, first.request_state, given)
        assert result.is_error
        assert "was interrupted while it waited for input" in text(result)


# ---------------------------------------------------------------- limits


@live
async def test_the_ninth_call_of_a_principal_is_refused_before_it_begins() -> None:
    made, making = desk()
    async with making as cell:
        ada = Rounds(await cell.connect(can_elicit(), principal="ada"))
        bob = Rounds(await cell.connect(can_elicit(), principal="bob"))
        first = [await ada.begin("book", who=f"ada {number}") for number in range(8)]
        with pytest.raises(RemoteError, match="too many calls wait for input"):
            await ada.begin("book", who="ada 9")
        assert "ada 9" not in made.begun
        await bob.begin("book", who="bob")
        given = answered(first[0], lambda _: "12A")
        await ada.send("book", {"who": "ada 0"}, first[0].request_state, given)
        await ada.begin("book", who="ada 10")
        assert held(cell) == 9


@live
async def test_calls_that_begin_together_and_ask_are_not_held_beyond_the_limit() -> None:
    made, making = desk(limits=HeldLimits(per_principal=1), sampling=True)
    async with making as cell:
        more = InputCallbacks(on_elicit=lambda _: None, on_sample=lambda _: "")
        clients = [
            Rounds(await cell.connect(answers, principal="ada")) for answers in (can_elicit(), more)
        ]
        calls = [
            asyncio.create_task(one.send("later", {"who": f"{number}"}))
            for number, one in enumerate(clients)
        ]
        while len(made.begun) < 2:
            await asyncio.sleep(0)
        assert len(cell.back) == 2  # one conversation for each capability set
        made.go["0"].set()
        assert isinstance(await calls[0], t.InputRequiredResult)
        made.go["1"].set()
        result = await calls[1]
        assert result.is_error
        assert "cancelled" in text(result)
        assert held(cell) == 1


@live_for(600)
async def test_a_thousand_calls_are_held_and_nothing_is_left_of_them() -> None:
    made, making = desk(limits=HeldLimits(per_principal=1000))
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        given = [await rounds.begin("book", who=f"{number}") for number in range(1000)]
        assert held(cell) == 1000
        calls = [weakref.ref(one) for one in cell.gateway._bridge.held._calls.values()]
        assert len(calls) == 1000
        with pytest.raises(RemoteError, match="too many calls wait for input"):
            await rounds.begin("book", who="one more")
        for number, result in enumerate(given):
            responses = answered(result, lambda _: "12A")
            arguments = {"who": f"{number}"}
            ended = await rounds.send("book", arguments, result.request_state, responses)
            assert text(ended) == f"{number}: 12A"
        assert held(cell) == 0
        assert len(made.ended) == 1000
        while any(
            one() is not None for one in calls
        ):  # the task of the last request may not be over
            gc.collect()
            await asyncio.sleep(0)


@live
async def test_an_input_request_that_is_too_large_is_cancelled() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        assert text(await rounds.send("large", {"size": 100_000})) == "cancel"
        assert isinstance(await rounds.send("large", {"size": 10_000}), t.InputRequiredResult)


@live
async def test_an_outcome_that_is_too_large_to_be_kept_is_said_to_be() -> None:
    _, making = desk(limits=HeldLimits(outcome_bytes=100))
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        given = answered(first, lambda _: "x" * 200)
        result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert text(result) == "ada: " + "x" * 200
        again = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert again.is_error
        assert "too large to be kept" in text(again)


@live_for(FAKE_S)
async def test_an_outcome_is_kept_for_two_minutes() -> None:
    clock = Clock()
    with clock:
        _, making = desk(clock=clock.time)
        async with making as cell:
            rounds = Rounds(await cell.connect(can_elicit()))
            first = await rounds.begin("book", who="ada")
            given = answered(first, lambda _: "12A")
            for wait_s, outcome in ((0, "ada: 12A"), (119, "ada: 12A"), (2, "was interrupted")):
                await clock.advance(wait_s)
                result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
                assert outcome in text(result)


# ---------------------------------------------------------------- states


REFUSAL = "requestState was not given for this request, or has expired"


@pytest.mark.parametrize("upstream", [OLD, NEW])
@live_for(FAKE_S)
async def test_a_foreign_altered_or_expired_state_is_refused_always_in_the_same_words(
    upstream: str,
) -> None:
    clock = Clock()
    with clock:
        made = Desk()
        making = recorded(made.server, upstream=upstream, downstream=NEW, clock=clock.time)
        async with making as cell:
            ada = Rounds(await cell.connect(can_elicit(), principal="ada"))
            bob = Rounds(await cell.connect(can_elicit(), principal="bob"))
            first = await ada.begin("book", who="ada")
            state = first.request_state
            assert state is not None
            given = answered(first, lambda _: "12A")
            middle = len(state) // 2
            altered = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
            errors: set[tuple[int, str]] = set()
            seen = len(made.begun)
            attempts = [
                (bob, "book", {"who": "ada"}, state),
                (ada, "book", {"who": "eve"}, state),
                (ada, "later", {"who": "ada"}, state),
                (ada, "book", {"who": "ada"}, altered),
                (ada, "book", {"who": "ada"}, "a state that was made up"),
                (ada, "book", {"who": "ada"}, state + "A"),
            ]
            for rounds, tool, arguments, used in attempts:
                with pytest.raises(RemoteError) as refused:
                    await rounds.send(tool, arguments, used, given)
                errors.add((refused.value.code, refused.value.message))
            await clock.advance(700)
            with pytest.raises(RemoteError) as refused:
                await ada.send("book", {"who": "ada"}, state, given)
            errors.add((refused.value.code, refused.value.message))
            ((code, message),) = errors
            assert (code, REFUSAL in message) == (-32602, True)
            assert len(made.begun) == seen  # and nothing has reached the server


@live
async def test_a_state_of_the_server_is_wrapped_and_one_of_the_client_never_reaches_it() -> None:
    made = Desk()
    async with recorded(made.server, upstream=NEW, downstream=NEW) as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        (own,) = [
            result["requestState"]
            for result in cell.server_wire.results(Side.SERVER)
            if "requestState" in result
        ]
        assert first.request_state is not None
        assert own not in first.request_state
        with pytest.raises(RemoteError, match=REFUSAL):
            await rounds.send("book", {"who": "ada"}, own, answered(first, lambda _: "12A"))
        # Responses without a state belong to nothing: they are not passed on.
        again = await rounds.send("book", {"who": "ada"}, None, answered(first, lambda _: "12A"))
        assert isinstance(again, t.InputRequiredResult)
        calls = cell.server_wire.said(Side.CLIENT, "tools/call")
        assert not any("inputResponses" in call or "requestState" in call for call in calls)
        given = answered(first, lambda _: "12A")
        result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert text(result) == "ada: 12A"
        assert cell.server_wire.said(Side.CLIENT, "tools/call")[-1]["requestState"] == own
        cell.check()


@live
async def test_ten_rounds_are_relayed_and_no_more() -> None:
    made = Desk()
    async with recorded(made.server, upstream=NEW, downstream=NEW) as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        result: Any = await rounds.begin("many", times=12)
        for _ in range(9):
            given = answered(result, lambda _: "yes")
            result = await rounds.send("many", {"times": 12}, result.request_state, given)
            assert isinstance(result, t.InputRequiredResult)
        given = answered(result, lambda _: "yes")
        with pytest.raises(RemoteError):
            await rounds.send("many", {"times": 12}, result.request_state, given)


# ---------------------------------------------------------------- notifications


@live
async def test_progress_reaches_the_request_that_waits() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        seen: list[tuple[float, str | None]] = []

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append((progress, message))

        first = await rounds.send("steps", on_progress=on_progress)
        assert seen == [(1, "before")]
        given = answered(first, lambda _: "12A")
        last = await rounds.send("steps", {}, first.request_state, given, on_progress=on_progress)
        assert text(last) == "12A"
        assert seen == [(1, "before"), (2, "after")]
        cell.check()


# ---------------------------------------------------------------- what no request can reach


@live
async def test_a_call_and_its_outcome_are_found_by_their_principal_only() -> None:
    _, making = desk()
    async with making as cell:
        calls = cell.gateway._bridge.held
        rounds = Rounds(await cell.connect(can_elicit(), principal="ada"))
        first = await rounds.begin("book", who="ada")
        (id,) = calls._calls
        assert calls.get(id, "ada") is not None
        assert calls.get(id, "bob") is None
        given = answered(first, lambda _: "12A")
        await rounds.send("book", {"who": "ada"}, first.request_state, given)
        method = cell.downstream.methods["tools/call"]
        assert isinstance(await calls.outcome(id, "ada", method), t.CallToolResult)
        assert await calls.outcome(id, "bob", method) is None


@live
async def test_an_outcome_that_the_store_does_not_take_is_kept_here_for_its_principal() -> None:
    _, making = desk()
    async with making as cell:
        calls = cell.gateway._bridge.held
        rounds = Rounds(await cell.connect(can_elicit(), principal="ada"))
        first = await rounds.begin("book", who="ada")
        (id,) = calls._calls

        async def refuse(*_: Any) -> None:
            raise CannotConnect("the store is away")

        cell.gateway.store.put = refuse  # type: ignore[method-assign]
        given = answered(first, lambda _: "12A")
        for _ in range(2):
            result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
            assert text(result) == "ada: 12A"
        method = cell.downstream.methods["tools/call"]
        assert await calls.outcome(id, "bob", method) is None


@live
async def test_a_call_with_large_params_is_not_held() -> None:
    _, making = desk()
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        assert text(await rounds.send("keep", {"note": "x" * 1024 * 1024})) == "cancel"
        assert held(cell) == 0
        assert isinstance(await rounds.send("keep", {"note": "short"}), t.InputRequiredResult)


@live
async def test_a_state_of_one_server_is_not_sent_to_another_that_has_its_name_now() -> None:
    made, other = Desk(), Desk()
    frames: list[bytes] = []

    async def resolve() -> End:
        near, far = connected_pair(lambda _, frame: frames.append(frame))
        serve_end(far, other.server)
        return near

    making = recorded(made.server, upstream=NEW, downstream=NEW)
    async with server_started(other.server), making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        named = Settings(revision=NEW, namespace="s")
        hidden = Settings(revision=NEW, namespace="elsewhere")
        entry = ServerEntry(key="t", resolve=resolve, fingerprint="t", settings=named)
        await cell.host.reload({"s": entry_of("s", made.server, hidden), "t": entry})
        given = answered(first, lambda _: "12A")
        with pytest.raises(RemoteError, match=REFUSAL):
            await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert frames  # it was reached, for its list of tools
        assert not any(b"tools/call" in frame for frame in frames)


@live
async def test_a_call_that_waits_while_the_policy_changes_is_cancelled() -> None:
    made, making = desk(policy=Policy(default="allow"))
    async with making as cell:
        rounds = Rounds(await cell.connect(can_elicit()))
        first = await rounds.begin("book", who="ada")
        guard = cell.host._runtime.guard
        assert guard is not None
        guard.set_rules(Policy(default="deny"))
        given = answered(first, lambda _: "12A")
        result = await rounds.send("book", {"who": "ada"}, first.request_state, given)
        assert result.is_error
        assert "the policy has changed while the call waited" in text(result)
        while held(cell):
            await asyncio.sleep(0)
        assert made.cancelled == ["ada cancel"]


def test_the_outcome_that_is_kept_has_the_words_for_the_operator_and_those_for_others() -> None:
    refused = Refused("no, by /home/operator/colonnade.toml:3", public="no, by a rule")
    found = restore_outcome(describe_outcome(refused), CALL_TOOL)
    assert isinstance(found, ColonnadeError)
    assert (str(found), found.public) == (str(refused), refused.public)


def test_a_kept_outcome_still_says_whether_the_call_may_have_had_an_effect() -> None:
    lost, unsent = ConnectionLost("it ended"), CannotConnect("it does not start")
    for error, expected in (
        (lost, {"notSent": False, "effectUnknown": True}),
        (unsent, {"notSent": True, "effectUnknown": False}),
        (ValueError("a defect"), {"notSent": False, "effectUnknown": True}),
        (Refused("no"), None),
    ):
        found = restore_outcome(describe_outcome(error), CALL_TOOL)
        effect = found.effect(is_call=True) if isinstance(found, ChannelError) else None
        assert effect == expected
