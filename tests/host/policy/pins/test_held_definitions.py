"""Held definitions in the inbox: one item for each server and list, accepted as it was shown."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from colonnade import Gateway, Host, connect
from colonnade.errors import ConnectionLost, InvalidArgument
from colonnade.host.policy.approvals.inbox import (
    MAX_ITEM_BYTES,
    MAX_ITEMS,
    Inbox,
    InboxAnswer,
    InboxItem,
)
from colonnade.host.policy.pins.held_definitions import (
    MAX_CHANGES,
    MAX_DEFINITIONS,
    WAITS_S,
    shown_definitions,
)
from colonnade.host.policy.pins.pins import Pins
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from host.drifting import Drifting
from host.policy.approvals.test_inbox import Time, item_of
from host.policy.pins.test_pins import accept_all, names
from live import live, until

YES, NO = InboxAnswer(action="accept"), InboxAnswer(action="decline")
OBJECT = {"type": "object"}


def hosted(server: Any, inbox: Inbox, pins: Pins, key: str = "a") -> Host:
    return Host({key: server}, inbox=inbox, pins=pins)


def shown_names(item: InboxItem) -> list[str]:
    return [one.item.name for one in shown_definitions(item).definitions]


async def changed(host: Host, server: Drifting, text: str = "Reads, and mails it.") -> None:
    """Let the host see another description of `read`."""
    server.lists["tools"][0]["description"] = text
    await host.list_tools(fresh=True)


@live
async def test_a_change_is_one_item_that_says_what_changed_and_an_approval_accepts_it() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore())) as host:
        assert names(await host.list_tools()) == ["a__read", "a__send"]
        assert await inbox.items() == []
        await changed(host, server)
        (item,) = await inbox.items()
        assert (item.kind, item.server, item.principal) == ("definitions", "a", "")
        assert item.changes == ("tool 'read': its description changed since it was accepted",)
        (one,) = shown_definitions(item).definitions
        assert "Reads a file." in one.before
        assert "Reads, and mails it." in one.text
        await host.list_tools(fresh=True)
        assert await inbox.items() == [item]
        assert names(await host.list_tools()) == ["a__send"]
        outcome = await inbox.answer(item.id, YES, serial=item.serial)
        assert outcome.won
        assert names(await host.list_tools()) == ["a__read", "a__send"]
        assert (await host.call_tool("a__read")).text == "text"
        assert await inbox.items() == []
        await host.list_tools(fresh=True)
        assert await inbox.items() == []


@live
async def test_with_review_each_list_and_the_instructions_are_one_item() -> None:
    inbox, server = Inbox(), Drifting(instructions="Be kind.")
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        await host.list_prompts()
        await host.list_resources()
        await host.list_resource_templates()
        items = {one.method: one for one in await inbox.items()}
        assert {method: shown_names(one) for method, one in items.items()} == {
            "tools/list": ["read", "send"],
            "prompts/list": ["review"],
            "resources/list": ["notes://a"],
            "resources/templates/list": ["people://{name}"],
            "initialize": ["instructions"],
        }
        for one in items.values():
            assert (await inbox.answer(one.id, YES, serial=one.serial)).won
        assert names(await host.list_tools()) == ["a__read", "a__send"]
        assert (await host.read_resource("people://ada")).contents[0].text == "ada"
        assert host.instructions == {"a": "Be kind."}


@live
async def test_an_answer_to_what_has_changed_again_is_refused_and_told() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore())) as host:
        await host.list_tools()
        await changed(host, server)
        (first,) = await inbox.items()
        await changed(host, server, "Reads, and deletes it.")
        outcome = await inbox.answer(first.id, YES, serial=first.serial)
        assert not outcome.won
        assert outcome.sentence.endswith("it has changed since it was shown; look at it again")
        assert names(await host.list_tools()) == ["a__send"]
        (second,) = await inbox.items()
        assert second.serial != first.serial
        assert len(shown_definitions(second).definitions) == 2  # as `colonnade pins diff` has


@live
async def test_what_is_no_longer_pending_is_not_accepted_and_nothing_beside_it() -> None:
    inbox, pins, server = Inbox(), Pins(MemoryStore(), first="review"), Drifting()
    async with hosted(server, inbox, pins) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        pinned = host._runtime.generation.servers["a"]
        guard = host._runtime.guard
        assert guard is not None
        assert guard.pins is not None
        (held,) = [one for one in await host.held_definitions("a") if one.name == "read"]
        await pins.accept(guard.pins.server(pinned), [held])  # as `colonnade pins accept a read`
        outcome = await inbox.answer(item.id, YES, serial=item.serial)
        assert not outcome.won
        assert "nothing was accepted" in outcome.sentence
        assert names(await host.list_tools()) == ["a__read"]
        (again,) = await inbox.items()
        assert shown_names(again) == ["send"]


@live
async def test_a_definition_that_is_accepted_elsewhere_is_withdrawn() -> None:
    inbox, pins, server = Inbox(), Pins(MemoryStore(), first="review"), Drifting()
    async with hosted(server, inbox, pins) as host:
        await host.list_tools()
        assert len(await inbox.items()) == 1
        assert await accept_all(host, pins) == 2
        await host.list_tools()
        assert await inbox.items() == []


@live
async def test_of_two_answers_one_wins_and_a_denial_that_won_accepts_nothing() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore())) as host:
        await host.list_tools()
        await changed(host, server)
        (item,) = await inbox.items()
        no, yes = await asyncio.gather(
            inbox.answer(item.id, NO, serial=item.serial, by="one"),
            inbox.answer(item.id, YES, serial=item.serial, by="two"),
        )
        assert (no.won, yes.won) == (True, False)
        assert yes.sentence == f"{item.id}: already declined by one"
        assert names(await host.list_tools()) == ["a__send"]


@live
async def test_what_was_declined_is_not_asked_about_again_until_it_is_something_else() -> None:
    asked: list[InboxItem] = []

    def decline(item: InboxItem) -> InboxAnswer:
        asked.append(item)
        return NO

    store, server = MemoryStore(), Drifting()
    inbox = Inbox(on_item=decline)
    async with hosted(server, inbox, Pins(store)) as host:
        await host.list_tools()
        await changed(host, server)
        await until(lambda: len(asked) == 1)
        await host.list_tools(fresh=True)
    async with hosted(server, inbox, Pins(store)) as host:  # as after a restart
        await host.list_tools()
        assert len(asked) == 1
        await changed(host, server, "Reads, and deletes it.")
        await until(lambda: len(asked) == 2)


@live
async def test_a_callback_accepts_and_callers_are_told_that_the_list_has_changed() -> None:
    inbox, server = Inbox(on_item=lambda item: YES), Drifting()
    heard: list[object] = []
    async with hosted(server, inbox, Pins(MemoryStore())) as host:
        host.watch(heard.append)
        await host.list_tools()
        heard.clear()
        await changed(host, server)
        await until(lambda: any("tools" in one.kinds for one in heard))  # type: ignore[attr-defined]
        assert names(await host.list_tools()) == ["a__read", "a__send"]


@live
async def test_a_callback_that_leaves_an_item_sees_it_once() -> None:
    seen: list[InboxItem] = []
    inbox, server, store = Inbox(on_item=seen.append), Drifting(), MemoryStore()
    for _ in range(2):  # the second host has the same inbox and pins
        async with hosted(server, inbox, Pins(store, first="review")) as host:
            await host.list_tools()
            for _ in range(3):
                await host.list_tools(fresh=True)
    assert len(seen) == 1


@live
async def test_thousands_of_definitions_are_one_item_after_another() -> None:
    inbox, server = Inbox(), Drifting()
    count = 3 * MAX_DEFINITIONS
    server.lists["tools"] = [{"name": f"t{n}", "inputSchema": OBJECT} for n in range(count)]
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        accepted = 0
        for left in (2 * MAX_DEFINITIONS, MAX_DEFINITIONS, 0):
            (item,) = await inbox.items()
            shown = shown_definitions(item)
            assert (len(shown.definitions), shown.left_off) == (MAX_DEFINITIONS, left)
            assert item.changes[-1] == f"and {MAX_DEFINITIONS - MAX_CHANGES + left} more"
            assert (await inbox.answer(item.id, YES, serial=item.serial)).won
            accepted += len(shown.definitions)
            assert len(await host.list_tools()) == accepted
        assert await inbox.items() == []


@pytest.mark.parametrize("text", ['"', "\\", "\x01", "é", "\U0001f600"])
@live
async def test_definitions_of_any_size_fit_into_an_item(text: str) -> None:
    inbox, server = Inbox(), Drifting()
    large = text * 15_000
    server.lists["tools"] = [
        {"name": f"t{n}", "description": large, "inputSchema": OBJECT} for n in range(20)
    ]
    server.lists["tools"].insert(0, {"name": text * 420_000, "inputSchema": OBJECT})
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        seen: set[str] = set()
        while items := await inbox.items():
            (item,) = items
            assert len(item.content) < MAX_ITEM_BYTES
            assert not seen & set(shown_names(item))
            seen |= set(shown_names(item))
            assert (await inbox.answer(item.id, YES, serial=item.serial)).won
        assert seen == {f"t{n}" for n in range(20)}


@live
async def test_definitions_take_no_room_of_calls_and_are_limited_themselves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    inbox = Inbox()
    servers = {f"s{n}": Drifting() for n in range(MAX_ITEMS + 1)}
    with caplog.at_level(logging.WARNING, "colonnade.host"):
        async with Host(servers, inbox=inbox, pins=Pins(MemoryStore(), first="review")) as host:
            assert await host.list_tools() == []
            assert len(await inbox.items()) == MAX_ITEMS
            await inbox.open(item_of(inbox, principal=""))
            assert len(await inbox.items()) == MAX_ITEMS + 1
    assert "are not in the inbox: the inbox is full" in caplog.text


@live
async def test_an_item_survives_a_restart_and_is_answered_before_a_list_is_read(
    tmp_path: Path,
) -> None:
    server = Drifting()
    store = SqliteStore(tmp_path / "inbox.db")
    pins = SqliteStore(tmp_path / "pins.db")
    inbox = Inbox(store)
    async with hosted(server, inbox, Pins(pins, first="review")) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        assert not item.is_of_process  # so it has no lease that ends with this one
        await inbox.close()
    await store.close()
    store = SqliteStore(tmp_path / "inbox.db")
    inbox = Inbox(store)
    async with hosted(server, inbox, Pins(pins, first="review")) as host:
        assert await inbox.items() == [item]
        assert (await inbox.answer(item.id, YES, serial=item.serial)).won
        assert names(await host.list_tools()) == ["a__read", "a__send"]
    await store.close()
    await pins.close()


@live
async def test_an_item_is_answered_only_where_the_pins_of_its_server_are() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        other = Inbox(inbox.store)
        async with hosted(Drifting(), other, Pins(MemoryStore()), key="b"):
            with pytest.raises(InvalidArgument, match="this host has no pins of server 'a'"):
                await other.answer(item.id, YES, serial=item.serial)
        assert await inbox.items() == [item]
    with pytest.raises(InvalidArgument, match="no pins of server 'a'"):
        await inbox.answer(item.id, YES, serial=item.serial)


@live
async def test_an_item_of_a_server_with_another_command_is_not_accepted_here() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        value = await inbox.store.get(SERVER_PRINCIPAL, item.key)
        assert value is not None
        other = value.replace(item.identity.encode(), b"0" * 64)
        await inbox.store.put(SERVER_PRINCIPAL, item.key, other, 60)
        with pytest.raises(InvalidArgument, match="no pins of server 'a'"):
            await inbox.answer(item.id, YES, serial=item.serial)


@live
async def test_an_item_waits_for_days_and_is_shown_again_after_them() -> None:
    time, server, store = Time(), Drifting(), MemoryStore()
    inbox = Inbox(clock=time)
    async with hosted(server, inbox, Pins(store, first="review")) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        time.now += WAITS_S - 1
        assert await inbox.items() == [item]
        time.now += 2
        assert await inbox.items() == []
        await host.list_tools(fresh=True)
        assert shown_names((await inbox.items())[0]) == shown_names(item)
        time.now += WAITS_S + 1
    async with hosted(server, inbox, Pins(store, first="review")) as host:
        await host.list_tools()
        assert shown_names((await inbox.items())[0]) == shown_names(item)


@live
async def test_what_a_store_that_fails_did_not_accept_is_shown_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inbox, pins, server = Inbox(), Pins(MemoryStore(), first="review"), Drifting()

    async def fail(*_: object, **__: object) -> None:
        raise ConnectionLost("the store is away")

    async with hosted(server, inbox, pins) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        with monkeypatch.context() as away:
            away.setattr(pins, "accept", fail)
            with pytest.raises(ConnectionLost, match="away"):
                await inbox.answer(item.id, YES, serial=item.serial)
        await host.list_tools(fresh=True)
        assert shown_names((await inbox.items())[0]) == shown_names(item)


@live
async def test_a_server_without_strict_pins_has_no_item() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore(), mode="warn", first="review")) as host:
        assert names(await host.list_tools()) == ["a__read", "a__send"]
        assert await inbox.items() == []


@live
async def test_a_list_does_not_fail_because_the_inbox_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(MemoryStore):
        is_away = True

        async def get(self, principal: str, key: str) -> bytes | None:
            if self.is_away:
                raise ConnectionLost("the store is away")
            return await super().get(principal, key)

    away = Away()
    inbox, server = Inbox(away), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        assert await host.list_tools() == []
        assert "are not in the inbox: the store is away" in caplog.text
        away.is_away = False
        await host.list_tools(fresh=True)
        assert len(await inbox.items()) == 1


@live
async def test_an_item_that_another_program_has_written_accepts_nothing() -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        value = await inbox.store.get(SERVER_PRINCIPAL, item.key)
        assert value is not None
        odd = value.replace(b'\\"definitions\\"', b'\\"other\\"')
        assert odd != value
        await inbox.store.put(SERVER_PRINCIPAL, item.key, odd, 60)
        with pytest.raises(InvalidArgument, match="no definitions that can be read"):
            await inbox.answer(item.id, YES, serial=item.serial)
        assert await host.list_tools() == []


@pytest.mark.parametrize(
    "answer",
    [InboxAnswer(action="accept", content="{}"), InboxAnswer(action="accept", remember="always")],
)
@live
async def test_definitions_are_answered_with_yes_or_no_alone(answer: InboxAnswer) -> None:
    inbox, server = Inbox(), Drifting()
    async with hosted(server, inbox, Pins(MemoryStore(), first="review")) as host:
        await host.list_tools()
        (item,) = await inbox.items()
        with pytest.raises(InvalidArgument):
            await inbox.answer(item.id, answer, serial=item.serial)
        assert await inbox.items() == [item]


@live
async def test_a_client_of_a_gateway_has_no_definitions_in_its_queue_and_cannot_accept_them() -> (
    None
):
    inbox, server = Inbox(), Drifting()

    def on_elicit(params: t.ElicitRequestParams) -> str:
        raise AssertionError("an acceptance is no elicitation")

    host = hosted(server, inbox, Pins(MemoryStore(), first="review"))
    async with host, connect(Gateway(host), on_elicit=on_elicit) as client:
        assert await client.list_tools() == []
        assert len(await inbox.items()) == 1
        assert await inbox.items("ann") == []
