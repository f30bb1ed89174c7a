"""Listening that goes on where a connection was lost, and ends where there is nothing to go on with."""

import asyncio
import json
import logging
from typing import Any

import pytest

from client.scripted_server import JSON, Door, Refusal, through
from colonnade import connect
from colonnade.client import subscriptions as following
from colonnade.client.client import Client
from colonnade.client.subscriptions import Change, ChangeStream
from colonnade.errors import CannotConnect, ConnectionLost, RemoteError
from colonnade.protocol.revision import ALL, NEWEST, NOVEMBER_2025, ChangeNotifications, Revision
from live import Records, live, until
from scripted_http_server import Visitor, by_hand, chunk, events, stream, whole

LISTEN = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TAG = "io.modelcontextprotocol/subscriptionId"
SESSIONS = pytest.mark.parametrize(
    "revision",
    [one for one in ALL if one.change_notifications is ChangeNotifications.SESSION],
    ids=lambda one: one.date,
)
ALL_OF_IT: JSON = {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits half a second for the next try."""
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    monkeypatch.setattr(following, "MAX_RETRY_S", 0.02)


def silence(params: JSON) -> None:
    """It stays open."""


def door_of(revision: Revision) -> Door:
    return Door(revision, {LISTEN: silence, "resources/subscribe": lambda params: {}})


async def agree(door: Door, times: int = 1, filter: JSON | None = None) -> None:
    """The one at the door acknowledges the subscription, where it is one."""
    if door.revision.change_notifications is ChangeNotifications.LISTEN:
        id = (await door.hand.hears(LISTEN, times))["id"]
        told = {"notifications": ALL_OF_IT if filter is None else filter, "_meta": {TAG: id}}
        door.hand.tell(ACKNOWLEDGED, told)
    else:
        await door.hand.hears("resources/subscribe", times)


def tell(door: Door, method: str, **params: Any) -> None:
    if door.revision.change_notifications is ChangeNotifications.LISTEN:
        params["_meta"] = {TAG: door.hand.requests(LISTEN)[-1]["id"]}
    door.hand.tell(method, params)


class Listener:
    """Listens in a task of its own; `heard` is what it was told."""

    def __init__(self, client: Client) -> None:
        self.heard: list[Change] = []
        self.changes: ChangeStream | None = None
        self.task = asyncio.ensure_future(self._run(client))

    async def _run(self, client: Client) -> str:
        async with client.listen(tools=True, resources=["a://b"]) as self.changes:
            async for change in self.changes:
                self.heard.append(change)
        return "ended"


@pytest.mark.spec("R0826")
@live
async def test_who_listens_is_told_of_everything_after_a_gap_and_goes_on(
    revision: Revision,
) -> None:
    door = door_of(revision)
    async with through(door) as client:
        listener = Listener(client)
        await agree(door)
        await until(lambda: listener.changes is not None)
        tell(door, "notifications/tools/list_changed")
        await until(lambda: listener.heard == [Change("tools")])
        door.fall()
        await until(lambda: len(door.hands) == 2)
        await agree(door)
        await until(lambda: len(listener.heard) == 3)
        assert listener.heard[1:] == [Change("tools"), Change("resource", "a://b")]
        tell(door, "notifications/resources/updated", uri="a://b")
        await until(lambda: len(listener.heard) == 4)
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@live
async def test_a_call_that_begins_anew_first_does_so_for_who_listens_too(
    revision: Revision,
) -> None:
    door = door_of(revision)
    async with through(door) as client:
        listener = Listener(client)
        await agree(door)
        await until(lambda: listener.changes is not None)
        door.fall()
        await until(lambda: client.conversation.link.phase.name == "CLOSED")
        await client.ping()
        assert len(door.hands) == 2
        await agree(door)
        await until(lambda: len(listener.heard) == 2)
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@live
async def test_a_server_that_does_not_come_back_is_given_up(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_TRIES", 3)
    door = door_of(revision)
    async with through(door) as client:
        listener = Listener(client)
        await agree(door)
        await until(lambda: listener.changes is not None)
        door.locked = CannotConnect("nobody answers the door")
        door.fall()
        with pytest.raises(CannotConnect, match="nobody answers the door"):
            await listener.task


@live
async def test_a_server_that_refuses_afterwards_is_an_error_at_once() -> None:
    door = door_of(NEWEST)
    async with through(door) as client:
        listener = Listener(client)
        await agree(door)
        await until(lambda: listener.changes is not None)

        def refuse(params: JSON) -> JSON:
            raise Refusal(-32603, "not any more")

        door.replies = {LISTEN: refuse}
        door.fall()
        with pytest.raises(RemoteError, match="not any more"):
            await listener.task


@live
async def test_a_subscription_that_never_holds_is_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "MAX_TRIES", 3)
    door = door_of(NEWEST)
    async with through(door) as client:
        listener = Listener(client)
        for times in range(1, 10):
            await until(lambda times=times: len(door.hands) >= times or listener.task.done())
            if listener.task.done():
                break
            await agree(door)
            await asyncio.sleep(0)
            door.fall()
            await until(lambda times=times: len(door.hands) > times or listener.task.done())
        with pytest.raises(ConnectionLost):
            await listener.task
        assert len(door.hands) <= 6


@SESSIONS
@live
async def test_a_server_that_speaks_another_way_now_ends_what_listened(revision: Revision) -> None:
    door = door_of(revision)
    async with through(door) as client:
        listener = Listener(client)
        await agree(door)
        await until(lambda: listener.changes is not None)
        door.revision = NEWEST
        door.fall()
        with pytest.raises(ConnectionLost, match="another revision; listen again"):
            await listener.task
        assert client.revision == NEWEST.date


@pytest.mark.spec("R0820")
@live
async def test_what_the_server_does_not_agree_to_tell_is_known() -> None:
    door = door_of(NEWEST)
    with Records("colonnade.client") as log:
        logging.getLogger("colonnade.client").setLevel(logging.INFO)
        try:
            async with through(door) as client:
                listener = Listener(client)
                await agree(door, filter={"toolsListChanged": True})
                await until(lambda: listener.changes is not None)
                assert listener.changes is not None
                assert listener.changes.not_agreed == ["a://b"]
                await client.close()
                with pytest.raises(ConnectionLost):
                    await listener.task
        finally:
            logging.getLogger("colonnade.client").setLevel(logging.NOTSET)
    assert "INFO the server does not send changes of a://b" in log.lines


@live
async def test_a_stream_over_http_that_was_cut_is_opened_again() -> None:
    kept = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    opened: list[Visitor] = []

    async def play(visitor: Visitor) -> None:
        while True:
            heard = await visitor.hears()
            message = heard.message
            if message["method"] == "server/discover":
                said = kept | {"supportedVersions": [NEWEST.date], "capabilities": {}}
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": said}
                await visitor.say(whole(200, json.dumps(reply).encode()))
                continue
            told = {"notifications": ALL_OF_IT, "_meta": {TAG: message["id"]}}
            frame = {"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": told}
            await visitor.say(stream(), chunk(events(frame)))
            opened.append(visitor)
            await visitor.gone()

    async with by_hand(play) as hand, connect(hand.url) as client:
        listener = Listener(client)
        await until(lambda: listener.changes is not None)
        opened[0].abort()
        await until(lambda: len(listener.heard) == 2)
        assert len(hand.posts(LISTEN)) == 2
        first, second = (one["id"] for one in hand.posts(LISTEN))
        assert first != second
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@live
async def test_who_leaves_does_not_begin_anew_to_say_goodbye() -> None:
    door = door_of(NOVEMBER_2025)

    def fall(params: JSON) -> None:
        door.fall()

    door.replies = {**door.replies, "resources/unsubscribe": fall}
    async with through(door) as client:
        async with client.listen(resources=["a://b"]):
            await door.hand.hears("resources/subscribe")
        assert len(door.hands) == 1
        assert len(door.hand.requests("resources/unsubscribe")) == 1
