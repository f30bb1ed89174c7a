"""The inbox: the first answer wins, answers are for what was shown, everything has a limit."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from colonnade.errors import InvalidArgument, Refused
from colonnade.host.policy.approvals import inbox as module
from colonnade.host.policy.approvals.inbox import (
    Inbox,
    InboxAnswer,
    InboxItem,
    InboxKind,
    new_item,
    new_key,
)
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from live import live

Put = Callable[[InboxItem, bytes | None], Awaitable[bool]]
YES, NO = InboxAnswer(action="accept"), InboxAnswer(action="decline")
FORM = (
    '{"message":"Which seat?","requestedSchema":{"type":"object","properties":'
    '{"seat":{"type":"string","maxLength":3}},"required":["seat"]}}'
)
SAMPLING = '{"messages":[{"role":"user","content":{"type":"text","text":"Rhyme."}}],"maxTokens":9}'
ROOTS = '{"roots":[{"uri":"file:///a"},{"uri":"file:///b"}]}'


class Time:
    """A time of day that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def item_of(
    inbox: Inbox,
    content: str = "{}",
    kind: InboxKind = "approval",
    principal: str = "",
    match: bytes = b"",
    **more: Any,
) -> InboxItem:
    key = new_key(principal, match)
    now, deadline_s = inbox.clock(), inbox.deadline_s
    item = new_item(kind, "files", content, key=key, now=now, deadline_s=deadline_s)
    return replace(item, principal=principal, **more)


@live
async def test_an_item_waits_until_it_is_answered() -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox))
    waiting = asyncio.ensure_future(inbox.wait(item))
    assert await inbox.items() == [item]
    outcome = await inbox.answer(item.id, YES, serial=item.serial, by="a test")
    assert outcome.won
    assert outcome.sentence == f"{item.id}: accepted"
    answered = await waiting
    assert (answered.state, answered.answer, answered.answered_by) == ("accepted", YES, "a test")
    assert await inbox.items() == []


@live
async def test_of_two_answers_at_once_one_wins_and_the_other_is_told() -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox))
    first, second = await asyncio.gather(
        inbox.answer(item.id, YES, by="one"), inbox.answer(item.id, NO, by="two")
    )
    assert first.won
    assert not second.won
    assert second.item.state == "accepted"
    assert second.sentence == f"{item.id}: already accepted by one"


@live
async def test_of_two_processes_that_answer_at_once_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [SqliteStore(tmp_path / "inbox.db") for _ in range(2)]
    here, there = (Inbox(store) for store in stores)
    item = await here.open(item_of(here))
    both_have_read = asyncio.Barrier(2)

    async def put_later(put: Put, after: InboxItem, before: bytes | None) -> bool:
        await both_have_read.wait()
        return await put(after, before)

    for one in (here, there):
        monkeypatch.setattr(one, "_put", partial(put_later, one._put))
    answers = await asyncio.gather(
        here.answer(item.id, YES, by="here"), there.answer(item.id, NO, by="there")
    )
    winner, loser = sorted(answers, key=lambda one: not one.won)
    assert (winner.won, loser.won) == (True, False)
    assert loser.item.answered_by == winner.item.answered_by
    for store in stores:
        await store.close()


@live
async def test_an_answer_in_another_process_ends_the_wait(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / "inbox.db") for _ in range(2)]
    here, there = (Inbox(store) for store in stores)
    item = await here.open(item_of(here))
    waiting = asyncio.ensure_future(here.wait(item))
    await there.answer(item.id, NO, by="there")
    assert (await waiting).state == "declined"
    for store in stores:
        await store.close()


@live
async def test_open_items_are_found_again_by_the_next_process(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "inbox.db")
    before = Inbox(store)
    item = await before.open(item_of(before, principal="ada"))
    await before.close()
    await store.close()
    store = SqliteStore(tmp_path / "inbox.db")
    after = Inbox(store)
    assert await after.items() == [item]
    assert (await after.answer(item.id, YES)).won
    await store.close()


@live
async def test_an_answer_is_for_the_item_that_was_shown() -> None:
    inbox = Inbox()
    shown = await inbox.open(item_of(inbox, match=b"the same call"))
    await inbox.answer(shown.id, NO)
    again = await inbox.open(item_of(inbox, match=b"the same call"))
    assert again.id == shown.id
    assert again.serial != shown.serial
    late = await inbox.answer(shown.id, YES, serial=shown.serial)
    assert not late.won
    assert await inbox.items() == [again]


@live
async def test_an_open_item_with_the_same_key_is_the_same_item() -> None:
    inbox = Inbox()
    first = await inbox.open(item_of(inbox, match=b"call"))
    assert await inbox.open(item_of(inbox, match=b"call")) == first
    assert len(await inbox.items()) == 1


@live
async def test_each_principal_has_a_queue_of_its_own() -> None:
    inbox = Inbox()
    of_ada = await inbox.open(item_of(inbox, principal="ada", match=b"call"))
    of_eve = await inbox.open(item_of(inbox, principal="eve", match=b"call"))
    assert await inbox.items("ada") == [of_ada]
    assert await inbox.items("eve") == [of_eve]
    assert of_ada.id != of_eve.id
    with pytest.raises(InvalidArgument, match="there is no item"):
        await inbox.answer(of_ada.key.rpartition("/")[2], YES, principal="bob")


@live
async def test_what_waits_has_a_deadline() -> None:
    time = Time()
    inbox = Inbox(clock=time, deadline_s=10)
    item = await inbox.open(item_of(inbox))
    time.now += 10
    assert await inbox.items() == []
    outcome = await inbox.answer(item.id, YES)
    assert not outcome.won
    assert outcome.sentence == f"{item.id}: too late, it is expired"
    assert (await inbox.wait(item)).state == "expired"


@live
async def test_an_accepted_answer_is_used_once() -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox))
    assert not await inbox.use(item)
    granted = (await inbox.answer(item.id, YES)).item
    assert [await inbox.use(granted), await inbox.use(granted)] == [True, False]


@live
async def test_the_process_that_was_later_does_not_use_it() -> None:
    """Both have read that it is accepted before one of them uses it."""
    store = MemoryStore()
    inbox = Inbox(store)
    granted = (await inbox.answer((await inbox.open(item_of(inbox))).id, YES)).item
    reads = 0
    both_read = asyncio.Event()
    get = store.get

    async def slow_get(principal: str, key: str) -> bytes | None:
        nonlocal reads
        value = await get(principal, key)
        reads += 1
        if reads == 2:
            both_read.set()
        await both_read.wait()
        return value

    store.get = slow_get
    used = await asyncio.gather(inbox.use(granted), inbox.use(granted))
    assert sorted(used) == [False, True]


@live
async def test_an_item_whose_call_has_ended_cannot_be_answered() -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox))
    await inbox.withdraw(item)
    outcome = await inbox.answer(item.id, YES)
    assert (outcome.won, outcome.item.state) == (False, "withdrawn")


@live
async def test_a_principal_with_too_many_items_is_refused_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 2)
    inbox = Inbox()
    for _ in range(2):
        await inbox.open(item_of(inbox, principal="eve"))
    with pytest.raises(Refused, match="the inbox is full: 2 items wait"):
        await inbox.open(item_of(inbox, principal="eve"))
    await inbox.open(item_of(inbox, principal="ada"))


@live
async def test_the_bytes_of_a_principal_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 2000)
    inbox = Inbox()
    await inbox.open(item_of(inbox, "x" * 1200))
    with pytest.raises(Refused, match="the inbox is full: its items have"):
        await inbox.open(item_of(inbox, "x" * 1200))


@live
async def test_an_item_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITEM_BYTES", 1000)
    inbox = Inbox()
    with pytest.raises(Refused, match="too large for the inbox"):
        await inbox.open(item_of(inbox, "x" * 1000))
    item = await inbox.open(item_of(inbox, SAMPLING, "sampling"))
    longer = SAMPLING.replace("Rhyme", "x" * 3000)
    with pytest.raises(InvalidArgument, match="the answer is too large"):
        await inbox.answer(item.id, InboxAnswer(action="accept", content=longer))


@live
async def test_a_callback_answers_and_none_leaves_it_to_others() -> None:
    seen: list[str] = []

    async def ask(item: InboxItem) -> InboxAnswer | None:
        seen.append(item.content)
        return YES if item.content == "1" else None

    inbox = Inbox(on_item=ask)
    first, second = await inbox.open(item_of(inbox, "1")), await inbox.open(item_of(inbox, "2"))
    assert (await inbox.wait(first)).state == "accepted"
    assert (await inbox.answer(second.id, NO)).won
    assert seen == ["1", "2"]


@live
async def test_an_open_item_of_a_process_before_is_put_to_the_callbacks_of_this_one() -> None:
    store = MemoryStore()
    before = Inbox(store)
    item = await before.open(item_of(before, match=b"call"))
    after = Inbox(store, on_item=lambda _: YES)
    assert await after.open(item_of(after, match=b"call")) == item
    assert (await after.wait(item)).state == "accepted"


@live
async def test_a_callback_is_cancelled_when_its_item_expires() -> None:
    cancelled, asked = asyncio.Event(), asyncio.Event()

    async def ask(item: InboxItem) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    time = Time()
    inbox = Inbox(MemoryStore(), on_item=ask, clock=time, deadline_s=10)
    item = await inbox.open(item_of(inbox))
    await asked.wait()
    time.now += 10
    assert (await inbox.wait(item)).state == "expired"
    await cancelled.wait()


@live
async def test_a_callback_that_fails_leaves_the_item_open(caplog: pytest.LogCaptureFixture) -> None:
    failed = asyncio.Event()

    def ask(item: InboxItem) -> InboxAnswer:
        asyncio.get_running_loop().call_soon(failed.set)
        raise OSError("the screen is gone")

    inbox = Inbox(on_item=ask)
    item = await inbox.open(item_of(inbox))
    await failed.wait()
    assert await inbox.items() == [item]
    assert "a callback of the inbox failed" in caplog.text


@live
async def test_a_callback_is_cancelled_when_another_has_answered() -> None:
    cancelled = asyncio.Event()

    async def ask(item: InboxItem) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    inbox = Inbox(on_item=ask)
    item = await inbox.open(item_of(inbox))
    await asyncio.sleep(0)
    await inbox.answer(item.id, YES)
    await cancelled.wait()


@live
async def test_an_approver_is_a_callback_or_what_is_attached() -> None:
    inbox = Inbox()
    assert not inbox.has_approver
    detach = inbox.attach()
    assert inbox.has_approver
    detach()
    assert not inbox.has_approver
    assert Inbox(on_item=lambda _: None).has_approver


@live
async def test_the_end_of_a_process_withdraws_what_only_it_can_use() -> None:
    inbox = Inbox(on_item=lambda _: None)
    form = await inbox.open(item_of(inbox, FORM, "form"))
    approval = await inbox.open(item_of(inbox))
    await inbox.close()
    assert await inbox.items() == [approval]
    assert (await inbox.find(form.id)).state == "withdrawn"


@pytest.mark.parametrize(
    ("kind", "asked", "content", "problem"),
    [
        ("form", FORM, "", "needs its content"),
        ("form", FORM, "[]", "a JSON object"),
        ("form", FORM, "{", "a JSON object"),
        ("form", FORM, "{}", "seat"),
        ("form", FORM, '{"seat":"12AB"}', "seat"),
        ("form", FORM, '{"seat":12}', "seat"),
        ("sampling", SAMPLING, "{}", "does not fit the sampling"),
        ("sampling_result", "{}", "{}", "does not fit the sampling_result"),
        ("roots", ROOTS, '{"roots":[{"uri":"file:///etc"}]}', "can only leave out roots"),
        ("approval", "{}", "{}", "without content"),
    ],
)
@live
async def test_an_answer_that_does_not_fit_changes_nothing(
    kind: InboxKind, asked: str, content: str, problem: str
) -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox, asked, kind))
    with pytest.raises(InvalidArgument, match=problem):
        await inbox.answer(item.id, InboxAnswer(action="accept", content=content))
    assert await inbox.items() == [item]


@pytest.mark.spec("R0368")
@pytest.mark.parametrize("kind", ["form", "url", "sampling", "sampling_result", "roots"])
@live
async def test_whatever_a_server_asks_can_be_declined(kind: InboxKind) -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox, FORM, kind))
    assert (await inbox.answer(item.id, NO)).item.state == "declined"


@live
async def test_only_approvals_and_roots_are_remembered() -> None:
    inbox = Inbox()
    item = await inbox.open(item_of(inbox, SAMPLING, "sampling"))
    with pytest.raises(InvalidArgument, match="can be remembered"):
        await inbox.answer(item.id, InboxAnswer(action="accept", remember="always"))


@live
async def test_what_is_no_item_in_the_store_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    inbox = Inbox(store)
    await store.put("", "unrelated", b"1", None)
    item = await inbox.open(item_of(inbox))
    await store.put(module.SERVER_PRINCIPAL, f"{module.PREFIX}0/0", b"{}", None)
    assert await inbox.items() == [item]
    assert "no item of an inbox" in caplog.text


@pytest.mark.parametrize("given", ["wait_s=-1", "usable_s=0", "deadline_s=0"])
def test_a_time_that_cannot_be_is_refused(given: str) -> None:
    name, _, value = given.partition("=")
    times: dict[str, Any] = {name: float(value)}
    with pytest.raises(InvalidArgument, match="wait_s"):
        Inbox(**times)


def test_the_record_of_an_item_is_the_same_after_a_round_trip() -> None:
    inbox = Inbox()
    item = item_of(inbox, '{"a": "\\u202e \\n"}', changes=("a: 1 -> 2",), answer=YES)
    assert msgspec.json.decode(msgspec.json.encode(item), type=InboxItem) == item
