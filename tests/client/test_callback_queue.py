"""Handlers of news: in order, one after the other, and never a reason to stop."""

import asyncio

import pytest

from colonnade.client import input_callbacks as hearing_module
from colonnade.client.input_callbacks import CallbackQueue
from live import Records, live, until


@live
async def test_a_plain_handler_is_called_at_once() -> None:
    hearing, heard = CallbackQueue(), list[int]()
    for number in range(3):
        hearing.call(heard.append, number)
    assert heard == [0, 1, 2]
    await hearing.close()


@live
async def test_what_comes_while_a_handler_waits_waits_for_its_turn() -> None:
    hearing, heard, gate = CallbackQueue(), list[str](), asyncio.Event()

    async def slow(word: str) -> None:
        await gate.wait()
        heard.append(word)

    hearing.call(slow, "a")
    hearing.call(heard.append, "b")
    hearing.call(slow, "c")
    hearing.call(heard.append, "d")
    await asyncio.sleep(0)
    assert heard == []
    gate.set()
    await until(lambda: heard == ["a", "b", "c", "d"])
    hearing.call(heard.append, "e")
    assert heard[-1] == "e"
    await hearing.close()


@live
async def test_a_handler_that_raises_is_logged_and_the_next_is_called() -> None:
    hearing, heard = CallbackQueue(), list[str]()

    def fail(word: str) -> None:
        raise ValueError(word)

    async def fail_later(word: str) -> None:
        raise KeyError(word)

    with Records("colonnade.client") as records:
        hearing.call(fail, "a")
        hearing.call(fail_later, "b")
        hearing.call(heard.append, "c")
        await until(lambda: heard == ["c"])
    assert records.lines == [
        "ERROR a callback raised ValueError",
        "ERROR a callback raised KeyError",
    ]
    await hearing.close()


@live
async def test_what_a_slow_handler_makes_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hearing_module, "MAX_WAITING", 2)
    hearing, heard, gate = CallbackQueue(), list[int](), asyncio.Event()

    async def slow(number: int) -> None:
        await gate.wait()
        heard.append(number)

    with Records("colonnade.client") as records:
        for number in range(6):
            hearing.call(slow, number)
    assert len(records.lines) == 1
    assert "too slow: messages are dropped" in records.lines[0]
    gate.set()
    await until(lambda: heard == [0, 1, 2])
    await hearing.close()


@live
async def test_what_a_slow_handler_makes_wait_is_bounded_in_bytes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hearing_module, "MAX_WAITING_BYTES", 10)
    hearing, heard, gate = CallbackQueue(), list[int](), asyncio.Event()

    async def slow(number: int) -> None:
        await gate.wait()
        heard.append(number)

    with Records("colonnade.client") as records:
        for number, size in enumerate([100, 100, 1, 0]):  # one that is too large waits alone
            hearing.call(slow, number, size=size)
        gate.set()
        await until(lambda: heard == [0, 1, 3])
        gate.clear()
        for number, size in enumerate([0, 5, 5, 1], start=4):
            hearing.call(slow, number, size=size)
        gate.set()
        await until(lambda: heard == [0, 1, 3, 4, 5, 6])
    assert len(records.lines) == 1
    assert "too slow: messages are dropped" in records.lines[0]
    await hearing.close()


@live
async def test_closing_stops_what_is_at_work_and_hears_no_more() -> None:
    hearing, log = CallbackQueue(), list[str]()

    async def wait() -> None:
        log.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            log.append("stopped")

    hearing.call(wait)
    hearing.call(log.append, "late")
    await hearing.close()
    hearing.call(log.append, "after the end")
    await hearing.close()
    assert log == ["begun", "stopped"]


@live
async def test_who_wants_to_catch_up_waits_for_what_came_before_and_for_nothing_else() -> None:
    hearing, told, gate = CallbackQueue(), list[int](), asyncio.Event()

    async def slow(number: int) -> None:
        await gate.wait()
        told.append(number)

    await hearing.wait_for_callbacks()  # nothing is going on
    hearing.call(slow, 1)
    hearing.call(slow, 2)
    catching = asyncio.ensure_future(hearing.wait_for_callbacks())
    await asyncio.sleep(0)
    assert not catching.done()

    async def endless() -> None:
        await asyncio.Event().wait()

    hearing.call(endless)
    gate.set()
    await catching
    assert told == [1, 2]
    last = asyncio.ensure_future(hearing.wait_for_callbacks())
    await asyncio.sleep(0)
    await hearing.close()
    await last
