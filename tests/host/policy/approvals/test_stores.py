"""The inbox and its approvals in each kind of store: memory, SQLite, Redis."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from colonnade.errors import Refused
from colonnade.host.policy.approvals import inbox as module
from colonnade.host.policy.approvals.approvals import Approvals
from colonnade.host.policy.approvals.inbox import Inbox, InboxAnswer, InboxItem
from colonnade.host.policy.approvals.remembered import RememberedRules
from colonnade.ports import Store
from host.policy.approvals.test_approvals import ASK, CALL
from host.policy.approvals.test_inbox import FORM, item_of
from store.store_fixture import StoreFixture

YES, NO = InboxAnswer(action="accept"), InboxAnswer(action="decline")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No decisions of the user are read."""
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))


def test_an_item_waits_until_it_is_answered(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        inbox = Inbox(store, clock=stores.clock)
        item = await inbox.open(item_of(inbox, FORM, "form"))
        waiting = asyncio.ensure_future(inbox.wait(item))
        assert await inbox.items() == [item]
        answer = InboxAnswer(action="accept", content='{"seat": "4A"}')
        assert (await inbox.answer(item.id, answer, serial=item.serial, by="a test")).won
        answered = await waiting
        assert (answered.state, answered.answer) == ("accepted", answer)
        assert await inbox.items() == []

    stores.run(body)


def test_of_two_answers_at_once_one_wins_and_the_other_is_told(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        inbox = Inbox(store, clock=stores.clock)
        item = await inbox.open(item_of(inbox))
        answers = await asyncio.gather(
            inbox.answer(item.id, YES, by="one"), inbox.answer(item.id, NO, by="two")
        )
        winner, loser = sorted(answers, key=lambda one: not one.won)
        assert (winner.won, loser.won) == (True, False)
        assert loser.item.answered_by == winner.item.answered_by
        assert "already" in loser.sentence

    stores.run(body)


def test_an_item_ends_at_its_deadline(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        inbox = Inbox(store, clock=stores.clock, deadline_s=10)
        item = await inbox.open(item_of(inbox))
        stores.clock.now += 11
        assert await inbox.items() == []
        assert not (await inbox.answer(item.id, YES)).won

    stores.run(body)


def test_an_approval_is_for_one_exact_call_and_used_once(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        inbox = Inbox(store, clock=stores.clock, wait_s=0)
        inbox.attach()
        made = Approvals(inbox, RememberedRules(project="/"))
        with pytest.raises(Refused, match="waiting for approval"):
            await made.approve(CALL, ASK)
        (item,) = await inbox.items("ada")
        await inbox.answer(item.id, YES, by="a test")
        with pytest.raises(Refused, match="waiting for approval"):
            await made.approve(replace(CALL, definition_digest="other"), ASK)
        assert (await made.approve(CALL, ASK)).by == "a test"
        with pytest.raises(Refused):
            await made.approve(CALL, ASK)

    stores.run(body)


def test_a_grant_is_of_no_use_after_its_time(stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        inbox = Inbox(store, clock=stores.clock, wait_s=0, usable_s=100)
        inbox.attach()
        made = Approvals(inbox, RememberedRules(project="/"))
        with pytest.raises(Refused):
            await made.approve(CALL, ASK)
        (item,) = await inbox.items("ada")
        await inbox.answer(item.id, YES)
        stores.clock.now += 101
        with pytest.raises(Refused, match="waiting for approval"):
            await made.approve(CALL, ASK)

    stores.run(body)


def test_an_answer_in_another_process_ends_the_wait(shared_stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        other = shared_stores.make()
        here, there = (Inbox(one, clock=shared_stores.clock) for one in (store, other))
        item = await here.open(item_of(here))
        waiting = asyncio.ensure_future(here.wait(item))
        assert (await there.answer(item.id, NO, by="there")).won
        assert (await waiting).state == "declined"
        await other.close()

    shared_stores.run(body)


def test_of_two_processes_one_uses_a_grant(shared_stores: StoreFixture) -> None:
    async def body(store: Store) -> None:
        other = shared_stores.make()
        inboxes = [Inbox(one, clock=shared_stores.clock, wait_s=0) for one in (store, other)]
        both = [Approvals(one, RememberedRules(project="/")) for one in inboxes]
        for one in inboxes:
            one.attach()
        with pytest.raises(Refused):
            await both[0].approve(CALL, ASK)
        (item,) = await inboxes[1].items("ada")
        await inboxes[1].answer(item.id, YES)
        found = await asyncio.gather(
            *(one.approve(CALL, ASK) for one in both), return_exceptions=True
        )
        assert sorted(isinstance(one, Refused) for one in found) == [False, True]
        await other.close()

    shared_stores.run(body)


def test_a_form_of_a_process_that_was_killed_is_not_listed_any_more(
    shared_stores: StoreFixture,
) -> None:
    async def body(store: Store) -> None:
        other = shared_stores.make()
        killed, there = (Inbox(one, clock=shared_stores.clock) for one in (store, other))
        form = await killed.open(item_of(killed, FORM, "form"))
        approval = await killed.open(item_of(killed))
        assert {one.id for one in await there.items()} == {form.id, approval.id}
        shared_stores.clock.now += module.LEASE_S + 1  # and nothing renews it
        assert await there.items() == [approval]
        await other.close()

    shared_stores.run(body)


def test_a_form_stays_for_as_long_as_its_process_waits(
    shared_stores: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.001)

    async def body(store: Store) -> None:
        other = shared_stores.make()
        here, there = (Inbox(one, clock=shared_stores.clock) for one in (store, other))
        item = await here.open(item_of(here, FORM, "form"))
        waiting = asyncio.ensure_future(here.wait(item))
        for _ in range(3):
            await _renewed(store)
            shared_stores.clock.now += module.LEASE_S * 0.7
            assert await there.items() == [item]
        assert (await there.answer(item.id, NO)).won
        assert (await waiting).state == "declined"
        await other.close()

    shared_stores.run(body)


def test_a_form_is_there_again_after_its_process_was_suspended(
    shared_stores: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.001)

    async def body(store: Store) -> None:
        inbox = Inbox(store, clock=shared_stores.clock)
        item = await inbox.open(item_of(inbox, FORM, "form"))
        waiting = asyncio.ensure_future(inbox.wait(item))
        shared_stores.clock.now += module.LEASE_S + 1
        found: list[InboxItem] = []
        while not found:
            await _renewed(store)
            found = await inbox.items()
        assert found == [item]
        assert (await inbox.answer(item.id, NO)).won
        assert (await waiting).state == "declined"

    shared_stores.run(body)


async def _renewed(store: Store) -> None:
    """Wait for the end of a swap that begins from now on, of a task that renews a lease."""
    ended = asyncio.Event()
    swap = store.swap

    async def watched(*given: object) -> bool:
        try:
            return await swap(*given)  # pyright: ignore[reportArgumentType]
        finally:
            ended.set()

    store.swap = watched  # pyright: ignore[reportAttributeAccessIssue]
    try:
        await ended.wait()
    finally:
        store.swap = swap  # pyright: ignore[reportAttributeAccessIssue]
