"""Messages that callers can cause are logged once a minute, with a count."""

from colonnade.log_rate import INTERVAL_S, MAX_KINDS, LogRate


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_message_is_logged_and_the_next_ones_are_counted() -> None:
    time = Time()
    rate = LogRate(time)
    assert rate.admit("full") == ""
    assert [rate.admit("full") for _ in range(3)] == [None, None, None]
    time.now += INTERVAL_S
    assert rate.admit("full") == " (3 more like it since it was last logged)"
    assert rate.admit("full") is None
    time.now += INTERVAL_S
    assert rate.admit("full") == " (1 more like it since it was last logged)"


def test_each_kind_of_message_is_counted_by_itself() -> None:
    rate = LogRate(Time())
    assert rate.admit("full") == rate.admit("away") == ""
    assert rate.admit("full") is None


def test_kinds_that_callers_invent_are_counted_together_when_there_are_too_many() -> None:
    time = Time()
    rate = LogRate(time)
    logged = [rate.admit(f"kind {number}") for number in range(10 * MAX_KINDS)]
    assert logged.count("") <= MAX_KINDS + 1
    time.now += INTERVAL_S
    assert rate.admit("kind 0") == ""
