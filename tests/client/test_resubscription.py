"""Listening that goes on where a connection was lost, and ends where there is nothing to go on with."""

import asyncio
import json
import logging
from typing import Any

import pytest

from client.scripted_server import JSON, Refusal, ScriptedTransport, connected_client
from colonnade import connect
from colonnade.client import subscriptions as following
from colonnade.client.client import Client
from colonnade.client.subscriptions import Change, ChangeStream
from colonnade.errors import CannotConnect, ConnectionLost, RemoteError
from colonnade.protocol.revision import ALL, NEWEST, NOVEMBER_2025, ChangeNotifications, Revision
from live import Records, live, until
from scripted_http_server import (
    AcceptedConnection,
    chunk,
    events,
    http_response,
    scripted_http_server,
    stream,
)

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


def transport_of(revision: Revision) -> ScriptedTransport:
    return ScriptedTransport(revision, {LISTEN: silence, "resources/subscribe": lambda params: {}})


async def agree(transport: ScriptedTransport, times: int = 1, filter: JSON | None = None) -> None:
    """The scripted server acknowledges the subscription, if it is one."""
    if transport.revision.change_notifications is ChangeNotifications.LISTEN:
        id = (await transport.server.wait_for(LISTEN, times))["id"]
        told = {"notifications": ALL_OF_IT if filter is None else filter, "_meta": {TAG: id}}
        transport.server.notify(ACKNOWLEDGED, told)
    else:
        await transport.server.wait_for("resources/subscribe", times)


def tell(transport: ScriptedTransport, method: str, **params: Any) -> None:
    if transport.revision.change_notifications is ChangeNotifications.LISTEN:
        params["_meta"] = {TAG: transport.server.requests(LISTEN)[-1]["id"]}
    transport.server.notify(method, params)


def end_subscription(transport: ScriptedTransport) -> None:
    """The server ends the newest subscription, as it does when it shuts down."""
    id = transport.server.requests(LISTEN)[-1]["id"]
    result = {"resultType": "complete", "_meta": {TAG: id}}
    transport.server.send({"jsonrpc": "2.0", "id": id, "result": result})


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
    transport = transport_of(revision)
    async with connected_client(transport) as client:
        listener = Listener(client)
        await agree(transport)
        await until(lambda: listener.changes is not None)
        tell(transport, "notifications/tools/list_changed")
        await until(lambda: listener.heard == [Change("tools")])
        transport.drop()
        await until(lambda: len(transport.servers) == 2)
        await agree(transport)
        await until(lambda: len(listener.heard) == 3)
        assert listener.heard[1:] == [Change("tools"), Change("resource", "a://b")]
        tell(transport, "notifications/resources/updated", uri="a://b")
        await until(lambda: len(listener.heard) == 4)
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@pytest.mark.spec("R0826")
@live
async def test_a_subscription_that_the_server_ends_is_made_again_after_a_gap() -> None:
    transport = transport_of(NEWEST)
    async with connected_client(transport) as client:
        listener = Listener(client)
        await agree(transport)
        await until(lambda: listener.changes is not None)
        end_subscription(transport)
        await agree(transport, 2)
        await until(lambda: len(listener.heard) == 2 or listener.task.done())
        assert listener.heard == [Change("tools"), Change("resource", "a://b")]
        assert len(transport.servers) == 1
        tell(transport, "notifications/tools/list_changed")
        await until(lambda: len(listener.heard) == 3)
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@live
async def test_listening_ends_if_the_server_ends_every_subscription(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "MAX_TRIES", 3)
    transport = transport_of(NEWEST)
    async with connected_client(transport) as client:
        listener = Listener(client)
        for times in range(1, 4):
            await agree(transport, times)
            end_subscription(transport)
        assert await listener.task == "ended"
        assert len(transport.server.requests(LISTEN)) == 3


@live
async def test_a_call_that_begins_anew_first_does_so_for_who_listens_too(
    revision: Revision,
) -> None:
    transport = transport_of(revision)
    async with connected_client(transport) as client:
        listener = Listener(client)
        await agree(transport)
        await until(lambda: listener.changes is not None)
        transport.drop()
        await until(lambda: client.conversation.link.phase.name == "CLOSED")
        await client.ping()
        assert len(transport.servers) == 2
        await agree(transport)
        await until(lambda: len(listener.heard) == 2)
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@live
async def test_a_server_that_does_not_come_back_is_given_up(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MAX_TRIES", 3)
    transport = transport_of(revision)
    async with connected_client(transport) as client:
        listener = Listener(client)
        await agree(transport)
        await until(lambda: listener.changes is not None)
        transport.open_error = CannotConnect("nobody answers the door")
        transport.drop()
        with pytest.raises(CannotConnect, match="nobody answers the door"):
            await listener.task


@live
async def test_a_server_that_refuses_afterwards_is_an_error_at_once() -> None:
    transport = transport_of(NEWEST)
    async with connected_client(transport) as client:
        listener = Listener(client)
        await agree(transport)
        await until(lambda: listener.changes is not None)

        def refuse(params: JSON) -> JSON:
            raise Refusal(-32603, "not any more")

        transport.replies = {LISTEN: refuse}
        transport.drop()
        with pytest.raises(RemoteError, match="not any more"):
            await listener.task


@live
async def test_a_subscription_that_never_holds_is_given_up_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "MAX_TRIES", 3)
    transport = transport_of(NEWEST)
    async with connected_client(transport) as client:
        listener = Listener(client)
        for times in range(1, 10):
            await until(lambda times=times: len(transport.servers) >= times or listener.task.done())
            if listener.task.done():
                break
            await agree(transport)
            await asyncio.sleep(0)
            transport.drop()
            await until(lambda times=times: len(transport.servers) > times or listener.task.done())
        with pytest.raises(ConnectionLost):
            await listener.task
        assert len(transport.servers) <= 6


@SESSIONS
@live
async def test_a_server_that_speaks_another_way_now_ends_what_listened(revision: Revision) -> None:
    transport = transport_of(revision)
    async with connected_client(transport) as client:
        listener = Listener(client)
        await agree(transport)
        await until(lambda: listener.changes is not None)
        transport.revision = NEWEST
        transport.drop()
        with pytest.raises(ConnectionLost, match="another revision; listen again"):
            await listener.task
        assert client.revision == NEWEST.date


@pytest.mark.spec("R0820")
@live
async def test_what_the_server_does_not_agree_to_tell_is_known() -> None:
    transport = transport_of(NEWEST)
    with Records("colonnade.client") as log:
        logging.getLogger("colonnade.client").setLevel(logging.INFO)
        try:
            async with connected_client(transport) as client:
                listener = Listener(client)
                await agree(transport, filter={"toolsListChanged": True})
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
    opened: list[AcceptedConnection] = []

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            message = request.message
            if message["method"] == "server/discover":
                said = kept | {"supportedVersions": [NEWEST.date], "capabilities": {}}
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": said}
                await connection.send(http_response(200, json.dumps(reply).encode()))
                continue
            told = {"notifications": ALL_OF_IT, "_meta": {TAG: message["id"]}}
            frame = {"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": told}
            await connection.send(stream(), chunk(events(frame)))
            opened.append(connection)
            await connection.wait_closed()

    async with scripted_http_server(handler) as server, connect(server.url) as client:
        listener = Listener(client)
        await until(lambda: listener.changes is not None)
        opened[0].abort()
        await until(lambda: len(listener.heard) == 2)
        assert len(server.posts(LISTEN)) == 2
        first, second = (one["id"] for one in server.posts(LISTEN))
        assert first != second
        await client.close()
        with pytest.raises(ConnectionLost):
            await listener.task


@live
async def test_who_leaves_does_not_begin_anew_to_say_goodbye() -> None:
    transport = transport_of(NOVEMBER_2025)

    def fall(params: JSON) -> None:
        transport.drop()

    transport.replies = {**transport.replies, "resources/unsubscribe": fall}
    async with connected_client(transport) as client:
        async with client.listen(resources=["a://b"]):
            await transport.server.wait_for("resources/subscribe")
        assert len(transport.servers) == 1
        assert len(transport.server.requests("resources/unsubscribe")) == 1
