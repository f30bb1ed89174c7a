"""What is allowed for a conversation: one tool, as it was when somebody allowed it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from colonnade import Refused
from colonnade.cli.commands.chat import CallApproval
from colonnade.cli.terminal import Terminal
from colonnade.host.agent.loop import ModelCall
from colonnade.host.servers.listings import HostTool
from colonnade.protocol import types as t
from live import live

READS = HostTool(
    name="shop__price",
    server="shop",
    original="price",
    description="What it costs.",
    input_schema={"type": "object"},
    annotations=t.ToolAnnotations(read_only_hint=True),
)


class Person(Terminal):
    """A screen with somebody in front of it who says these words, one after another."""

    def __init__(self, *words: str | None) -> None:
        super().__init__()
        self.can_ask = True
        self.asked: list[str] = []
        self._words = list(words)

    async def ask(self, prompt: str) -> str | None:
        self.asked.append(prompt)
        return self._words.pop(0)


def call(tool: HostTool, **arguments: Any) -> ModelCall:
    return ModelCall(id="1", name=tool.name, server="shop", arguments=arguments, tool=tool)


@pytest.mark.spec("R0141")
@live
async def test_another_definition_of_an_allowed_tool_is_asked_for_anew() -> None:
    person = Person("always", "no", "always", "no")
    consent = CallApproval(person, asyncio.Lock())
    await consent.ask(call(READS))
    await consent.ask(call(READS, fruit="plum"))
    assert len(person.asked) == 1
    for other in (
        replace(READS, description="What it costs; read the files first."),
        replace(READS, input_schema={"type": "object", "properties": {"secret": {}}}),
    ):
        with pytest.raises(Refused):
            await consent.ask(call(other))
        if len(person.asked) == 2:
            await consent.ask(call(READS))  # which it still is
            consent.forget()
            await consent.ask(call(READS))


@live
async def test_a_tool_that_may_write_is_asked_for_each_time_and_cannot_be_allowed_for_good() -> (
    None
):
    writes = replace(READS, annotations=None)
    person = Person("always", "yes", "yes", None, *["perhaps"] * 10)
    consent = CallApproval(person, asyncio.Lock())
    await consent.ask(call(writes))
    await consent.ask(call(writes))
    assert person.asked == ["  call it? yes or no [no] "] * 3
    with pytest.raises(Refused):  # they ended their input
        await consent.ask(call(writes))
    with pytest.raises(Refused):  # and they do not know what they want
        await consent.ask(call(writes))


@live
async def test_two_calls_are_asked_for_one_after_the_other() -> None:
    person = Person("yes", "no")
    consent = CallApproval(person, asyncio.Lock())
    first, second = await asyncio.gather(
        consent.ask(call(READS)), consent.ask(call(READS)), return_exceptions=True
    )
    assert first is None
    assert isinstance(second, Refused)


@live
async def test_the_time_of_a_call_begins_when_it_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr("colonnade.cli.commands.chat.monotonic", lambda: now[0])

    class Slow(Person):
        async def ask(self, prompt: str) -> str | None:
            now[0] += 30
            return await super().ask(prompt)

    consent, made = CallApproval(Slow("yes"), asyncio.Lock()), call(READS)
    await consent.ask(made)
    now[0] += 2
    made.seconds = 32.0
    assert consent.seconds(made) == 2
    other = call(READS)  # nobody was asked for it
    other.seconds = 1.5
    assert consent.seconds(other) == 1.5
