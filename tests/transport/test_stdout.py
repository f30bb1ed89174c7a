"""Lines into a descriptor: one by one, or some at once where much is answered."""

import asyncio
import os
from collections.abc import Generator

import pytest

from colonnade.transport.stdio import MAX_GROUPED_BYTES, WRITE_GROUP, LineWriter


class Ends:
    """A pipe: what is written into it through an outlet, and what has left."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)
        self.outlet = LineWriter(self.writing)

    def left(self) -> list[bytes]:
        try:
            return os.read(self.reading, 1 << 20).splitlines()
        except BlockingIOError:
            return []


@pytest.fixture
def ends() -> Generator[Ends]:
    made = Ends()
    yield made
    os.close(made.reading)
    os.close(made.writing)


def test_a_line_leaves_at_once(ends: Ends) -> None:
    for line in (b"one", b"two"):
        ends.outlet.write(line)
        assert ends.left() == [line]


def test_where_much_is_answered_some_lines_leave_at_once_and_all_in_order(ends: Ends) -> None:
    lines = [b"%d" % number for number in range(2 * WRITE_GROUP + 1)]
    ends.outlet.start_group()
    for line in lines[: WRITE_GROUP - 1]:
        ends.outlet.write(line)
    assert ends.left() == []
    for line in lines[WRITE_GROUP - 1 :]:
        ends.outlet.write(line)
    assert ends.left() == lines[:-1]
    ends.outlet.start_group()  # as where more has come meanwhile
    ends.outlet.end_group()
    assert ends.left() == lines[-1:]
    ends.outlet.end_group()
    ends.outlet.write(b"next")
    assert ends.left() == [b"next"]


def test_a_long_line_waits_for_nothing_and_takes_those_before_it_along(ends: Ends) -> None:
    long = b"x" * (MAX_GROUPED_BYTES + 1)
    ends.outlet.start_group()
    ends.outlet.write(b"short")
    ends.outlet.write(long)
    assert ends.left() == [b"short", long]


def test_what_is_gathered_leaves_at_the_end(ends: Ends) -> None:
    ends.outlet.start_group()
    ends.outlet.write(b"one")
    asyncio.run(ends.outlet.flush(1.0))
    assert ends.left() == [b"one"]


def test_nothing_is_written_after_the_end(ends: Ends) -> None:
    ends.outlet.start_group()
    ends.outlet.write(b"one")
    ends.outlet.stop_writing("over")
    ends.outlet.end_group()
    assert ends.left() == []
