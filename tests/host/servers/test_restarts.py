"""When a server is started again: the waits, the budget, and what makes good again. No loop."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import Output
from colonnade.host.servers.callers import CallerKey
from colonnade.host.servers.restarts import (
    FIRST_S,
    LONGEST_S,
    MAX_COUNTED,
    PAUSE_S,
    SEVERAL,
    STEADY_S,
    Crash,
    CrashCounts,
    RestartPolicy,
    longest_wait,
)

MOST, WITHIN_S = 5, 300.0


def crash(crashes: RestartPolicy, at: float, lived_s: float = 0.0, fraction: float = 1.0) -> None:
    crashes.crashed(Crash(at, "it exited with 1"), lived_s, fraction)


def test_a_first_end_costs_nothing() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    crash(crashes, 10.0)
    assert crashes.health(10.0) == "healthy"
    assert crashes.wait_s(10.0) == 0.0


def test_each_further_one_doubles_what_the_wait_is_taken_from_up_to_a_bound() -> None:
    waits = [longest_wait(number) for number in range(1, 12)]
    assert waits[:4] == [0.0, FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert waits[-1] == LONGEST_S == longest_wait(10**9)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 100))
def test_the_wait_is_a_random_part_of_the_whole(fraction: float, number: int) -> None:
    crashes = RestartPolicy(10**9, WITHIN_S)
    for _ in range(number):
        crash(crashes, 50.0, fraction=fraction)
    assert crashes.wait_s(50.0) == pytest.approx(fraction * longest_wait(number))
    assert crashes.wait_s(50.0) <= LONGEST_S
    assert crashes.health(50.0 + LONGEST_S) == "healthy"


def test_too_many_in_a_while_and_it_is_given_up() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for number in range(MOST):
        assert crashes.health(number * 40.0) != "given_up"
        crash(crashes, number * 40.0)
    last = (MOST - 1) * 40.0
    assert crashes.health(last) == "given_up"
    assert crashes.recent(last) == MOST
    assert crashes.wait_s(last) == WITHIN_S


def test_ends_that_are_far_apart_are_not_added_up() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for number in range(10 * MOST):
        crash(crashes, number * WITHIN_S)
        assert crashes.health(number * WITHIN_S) != "given_up"
    assert crashes.total == 10 * MOST


def test_after_as_long_a_while_it_has_one_try_to_prove_itself() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for _ in range(MOST):
        crash(crashes, 0.0)
    assert crashes.health(WITHIN_S - 1) == "given_up"
    assert crashes.health(WITHIN_S) == "healthy"
    crash(crashes, WITHIN_S + 5)
    assert crashes.health(WITHIN_S + 5) == "given_up"
    assert crashes.wait_s(WITHIN_S + 5) == WITHIN_S


def test_one_that_proved_itself_has_a_whole_budget_again() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for _ in range(MOST):
        crash(crashes, 0.0)
    crash(crashes, 2 * WITHIN_S, lived_s=STEADY_S)
    assert crashes.health(2 * WITHIN_S) == "healthy"


def test_a_start_that_worked_for_a_while_begins_the_waits_anew() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for _ in range(3):
        crash(crashes, 0.0)
    assert crashes.wait_s(0.0) == 2 * FIRST_S
    crash(crashes, 100.0, lived_s=STEADY_S)
    assert crashes.wait_s(100.0) == 0.0


def test_but_one_that_ends_again_and_again_is_given_up_however_long_it_works() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for number in range(MOST):
        crash(crashes, number * 40.0, lived_s=40.0)
    assert crashes.health((MOST - 1) * 40.0) == "given_up"


def test_whoever_restarts_it_forgives_everything_but_the_count() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for _ in range(MOST):
        crash(crashes, 0.0)
    crashes.reset()
    assert (crashes.health(0.0), crashes.recent(0.0), crashes.total) == ("healthy", 0, MOST)
    crash(crashes, 1.0)
    assert crashes.health(1.0) == "healthy"


def test_processes_that_end_together_count_once() -> None:
    crashes = RestartPolicy(MOST, WITHIN_S)
    for number in range(16):
        crash(crashes, 1000.0 + number / 10, lived_s=100.0)
    assert (crashes.health(1002.0), crashes.recent(1002.0), crashes.total) == ("healthy", 1, 16)
    crash(crashes, 1002.0, lived_s=0.1)  # one that was started since
    assert crashes.recent(1002.0) == 2
    crash(crashes, 1010.0, lived_s=100.0)  # one that has outlived it for long
    assert crashes.recent(1010.0) == 3


def test_what_a_server_wrote_for_one_caller_is_told_to_no_other() -> None:
    theirs = Crash(0.0, "it exited with 1", Output(("alice",)), "alice")
    assert theirs.output_for("alice").stderr == ("alice",)
    assert not theirs.output_for("bob")
    assert not theirs.output_for("")
    nobodys = Crash(0.0, "it exited with 1", Output(("no such file",)))
    assert nobodys.output_for("bob").stderr == ("no such file",)


# ---------------------------------------------------------------- counted by caller


def end(counts: CrashCounts, at: float, *suspects: Hashable, lived_s: float = 0.0) -> None:
    counts.crashed(Crash(at, "it exited with 1"), lived_s, frozenset(suspects), 1.0)


def refused(counts: CrashCounts, at: float, *callers: Hashable) -> list[Hashable]:
    """Those of the callers that are refused."""
    return [one for one in callers if counts.refusal(at, one, one) is not None]


def test_a_caller_that_crashes_the_server_is_refused_and_no_other() -> None:
    counts = CrashCounts(MOST, WITHIN_S)
    for number in range(MOST):
        end(counts, float(number), "eve")
    assert refused(counts, 10.0, "ann", "eve", "bob") == ["eve"]
    assert (counts.health(10.0), counts.given_up(10.0), counts.total) == ("given_up", 1, MOST)
    message = str(counts.refusal(10.0, "eve", "eve"))
    assert message.startswith("it failed 5 times within 300 s for this caller and is not tried for")
    assert refused(counts, 4.0 + WITHIN_S, "eve") == []


def test_of_several_suspects_the_one_that_was_there_each_time_is_refused() -> None:
    counts = CrashCounts(MOST, WITHIN_S)
    end(counts, 0.0, "ann", "bob", "eve")
    end(counts, 1.0, "cat", "eve")
    for number in range(2, 6):
        end(counts, float(number), "eve", "bob", "ann")
    assert refused(counts, 6.0, "ann", "bob", "cat", "eve") == ["eve"]


def test_callers_that_are_suspects_of_each_crash_together_are_not_refused() -> None:
    counts = CrashCounts(MOST, WITHIN_S)
    for number in range(10 * MOST):
        end(counts, float(number), "ann", "eve")
        assert refused(counts, float(number), "ann", "eve") == []
        assert counts.pause_s(float(number)) == (PAUSE_S if number else 0.0)


def test_one_principal_in_several_sessions_does_not_shut_a_server_for_all() -> None:
    counts = CrashCounts(MOST, WITHIN_S)
    for number in range(2 * MOST):
        eve = CallerKey("eve", f"session {number}")
        counts.start_failed(Crash(float(number), "it exited with 1"), eve, 1.0)
    assert refused(counts, 10.0, CallerKey("ann"), CallerKey("eve", "another")) == []
    # Without principals each session is a caller, and may be that of another person.
    for number in range(MOST):
        nobody = CallerKey("", f"session {number}")
        counts.start_failed(Crash(10.0 + number, "it exited with 1"), nobody, 1.0)
    assert refused(counts, 15.0, CallerKey("ann")) == [CallerKey("ann")]


def test_suspects_of_a_crash_long_ago_are_no_suspects_of_the_next() -> None:
    counts = CrashCounts(1, WITHIN_S)
    end(counts, 0.0, "ann", "bob")
    end(counts, WITHIN_S, "bob", "cat")
    assert refused(counts, WITHIN_S, "ann", "bob", "cat") == []


def test_crashes_in_no_call_refuse_nobody_and_delay_the_next_start() -> None:
    counts = CrashCounts(1, WITHIN_S)
    end(counts, 0.0)
    assert counts.pause_s(0.0) == 0.0
    end(counts, 1.0)
    assert (counts.pause_s(1.0), counts.pause_s(1.0 + PAUSE_S)) == (PAUSE_S, 0.0)
    end(counts, 2.0 + STEADY_S)
    assert counts.pause_s(2.0 + STEADY_S) == 0.0
    assert refused(counts, 2.0 + STEADY_S, "ann", None) == []
    assert counts.health(2.0 + STEADY_S) == "healthy"


def test_a_server_that_does_not_start_for_several_callers_is_refused_to_all() -> None:
    counts = CrashCounts(MOST, WITHIN_S)
    for number in range(MOST):
        assert refused(counts, 0.0, "zoe") == []
        counts.start_failed(Crash(0.0, "it exited with 1"), number % SEVERAL, 0.0)
    assert refused(counts, 0.0, "zoe", 0) == ["zoe", 0]
    assert "failed 5 times within 300 s for several callers" in str(counts.refusal(0.0, "zoe", ""))
    assert counts.health(0.0) == "given_up"


def test_failed_starts_for_fewer_callers_or_with_one_that_worked_are_of_those_callers() -> None:
    counts = CrashCounts(1, WITHIN_S)
    for number in range(SEVERAL - 1):
        counts.start_failed(Crash(0.0, "it exited with 1"), number, 1.0)
    assert refused(counts, 0.0, "zoe", 0, 1) == [0, 1]
    counts.started()
    counts.start_failed(Crash(0.0, "it exited with 1"), "eve", 1.0)
    assert refused(counts, 0.0, "zoe", "eve") == ["eve"]


def test_failed_starts_with_credentials_of_callers_are_of_those_callers() -> None:
    counts = CrashCounts(1, WITHIN_S, for_all=False)
    for number in range(2 * SEVERAL):
        counts.start_failed(Crash(0.0, "it exited with 1"), number, 1.0)
    assert refused(counts, 0.0, "zoe", 0) == [0]


def test_a_restart_by_hand_forgives_all_callers() -> None:
    counts = CrashCounts(1, WITHIN_S)
    end(counts, 0.0, "eve")
    for number in range(SEVERAL):
        counts.start_failed(Crash(0.0, "it exited with 1"), number, 1.0)
    end(counts, 0.0)
    end(counts, 0.0)
    counts.reset()
    assert refused(counts, 0.0, "eve", "zoe", 0) == []
    assert (counts.pause_s(0.0), counts.health(0.0)) == (0.0, "healthy")


def test_callers_that_crash_a_server_take_a_bounded_memory() -> None:
    counts = CrashCounts(1, WITHIN_S)
    for number in range(2 * MAX_COUNTED):
        end(counts, 0.0, number)
    assert len(counts.by_caller) == MAX_COUNTED
    assert refused(counts, 0.0, 0, 2 * MAX_COUNTED - 1) == [2 * MAX_COUNTED - 1]
    later = 2 * WITHIN_S + 1
    end(counts, later, "eve")
    assert list(counts.by_caller) == ["eve"]
    assert refused(counts, later + 2 * WITHIN_S + 1, "eve") == []
    assert counts.by_caller == {}


def test_a_refusal_quotes_what_a_server_wrote_to_those_who_may_see_it() -> None:
    counts = CrashCounts(1, WITHIN_S)
    crash = Crash(0.0, "it exited with 1", Output(("of eve",)), "eve")
    counts.crashed(crash, 0.0, frozenset({"eve"}), 1.0)
    shown = [counts.refusal(1.0, "eve", to) for to in ("eve", "ann", None)]
    assert [one is not None and one.output.stderr for one in shown] == [("of eve",), (), ()]
