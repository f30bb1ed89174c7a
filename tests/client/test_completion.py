"""Completion for somebody who types."""

import asyncio

import pytest

from client.scripted_server import JSON, ScriptedTransport, connected_client
from colonnade.client import client as completing
from colonnade.client.client import Completer
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL
from colonnade.testing import Clock, every_revision, played


class Words:
    """What is asked, and what becomes of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wait: asyncio.Event | None = None

    async def __call__(self, value: str) -> t.Completion:
        self.asked.append(value)
        if self.wait is not None:
            await self.wait.wait()
        return t.Completion(values=[value + "!"], has_more=True)


@pytest.mark.spec("R0148")
@every_revision
async def test_letters_that_come_quickly_are_one_question_and_the_same_one_is_asked_once(
    revision: str,
) -> None:
    clock = Clock()
    asked: list[str] = []

    def answer(params: JSON) -> JSON:
        asked.append(params["argument"]["value"])
        return {"completion": {"values": ["paris"], "hasMore": True}}

    of = next(one for one in ALL if one.date == revision)
    transport = ScriptedTransport(of, {"completion/complete": answer})
    with clock:
        async with connected_client(transport) as client:
            completer = client.completer("city", prompt="travel")
            typed = [asyncio.ensure_future(completer("paris"[:end])) for end in (1, 2, 3)]
            await clock.advance(1)
            first, second, third = [await one for one in typed]
            assert (first, second) == (None, None)
            assert third is not None
            assert (third.values, third.has_more, third.total) == (["paris"], True, None)
            again = asyncio.ensure_future(completer("par"))
            await clock.advance(0)
            assert await again == third
            assert asked == ["par"]


@played
async def test_an_answer_that_nobody_waits_for_any_more_is_none_and_is_kept() -> None:
    clock, words = Clock(), Words()
    completer = Completer(words)
    with clock:
        words.wait = asyncio.Event()
        old = asyncio.ensure_future(completer("a"))
        await clock.advance(1)
        new = asyncio.ensure_future(completer("ab"))
        words.wait.set()
        await clock.advance(1)
        assert await old is None
        assert (await new or t.Completion(values=[])).values == ["ab!"]
        back = await completer("a")
        assert back is not None
        assert words.asked == ["a", "ab"]
        await clock.advance(completing.CACHE_S)
        fresh = asyncio.ensure_future(completer("a"))
        await clock.advance(1)
        assert await fresh is not None
        assert words.asked == ["a", "ab", "a"]


@played
async def test_what_is_kept_is_bounded() -> None:
    clock, words = Clock(), Words()
    completer = Completer(words)
    with clock:
        for number in range(completing.MAX_CACHED + 1):
            asking = asyncio.ensure_future(completer(str(number)))
            await clock.advance(completing.DEBOUNCE_S)
            await asking
        assert await completer("1") is not None
        asking = asyncio.ensure_future(completer("0"))
        await clock.advance(completing.DEBOUNCE_S)
        await asking
        assert words.asked[-1] == "0"


@played
async def test_an_answer_that_is_large_is_not_kept() -> None:
    clock, asked = Clock(), list[str]()

    async def large(value: str) -> t.Completion:
        asked.append(value)
        return t.Completion(values=["x" * completing.MAX_CACHED_CHARS, "y"])

    completer = Completer(large)
    with clock:
        for _ in range(2):
            asking = asyncio.ensure_future(completer("a"))
            await clock.advance(completing.DEBOUNCE_S)
            assert await asking is not None
    assert asked == ["a", "a"]
