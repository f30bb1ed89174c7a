"""A client's conversation over HTTP: giving up, subscriptions, leaving; a scripted server."""

import asyncio
import json
from typing import Any

import pytest

from client.misbehaving_http_server import (
    PATIENT_S,
    SESSION,
    conversation_of,
    misbehaving_server,
    no_response,
    outcome,
    result,
    tool_result,
)
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import (
    ColonnadeError,
    ConnectionLost,
    TimedOut,
)
from colonnade.protocol import types as t
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.transport.http_client import conversation as http_conversation
from live import live, until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    chunk,
    events,
    http_response,
    stream,
)

# The last revision with sessions and streams that can be taken up again, and the one without.
TWO = [NOVEMBER_2025, JULY_2026]
both = pytest.mark.parametrize("revision", TWO, ids=lambda one: one.date)
# For what never answers: short, since it is waited for.
SOON_S = 0.2
ASK_ROOTS = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}


# ---------------------------------------------------------------- giving up


@both
@live
async def test_an_answer_after_giving_up_is_nobodys(revision: Revision) -> None:
    arrived = asyncio.Event()
    late = asyncio.Event()

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message["params"]["name"] == "slow":
            await connection.send(stream(), chunk(b": wait\n\n"))
            arrived.set()
            await late.wait()
            await connection.send(chunk(events(result(request, {"content": []}))))
        await tool_result(connection, request)

    async with misbehaving_server(revision, handler) as (client, server):
        calling = asyncio.create_task(client.call_tool("slow"))
        await arrived.wait()
        calling.cancel()
        await asyncio.wait([calling])
        assert calling.cancelled()
        late.set()
        assert (await client.call_tool("quick")).text == "done"
        if revision.handshake:  # R0061; elsewhere closing the connection says it
            await until(lambda: bool(server.posts("notifications/cancelled")))
            (notice,) = server.posts("notifications/cancelled")
            assert notice["params"]["requestId"] == server.posts("tools/call")[0]["id"]
        else:
            await until(lambda: server.connection_count >= 2)
            assert server.posts("notifications/cancelled") == []


@both
@live
async def test_a_time_out_closes_the_connection_and_is_told_as_giving_up_is(
    revision: Revision,
) -> None:
    async with misbehaving_server(revision, no_response) as (client, server):
        error = await outcome(client.call_tool("t", timeout_s=0.5))
        assert isinstance(error, TimedOut)
        await until(server.client_closed.is_set)
        if revision.handshake:
            await until(lambda: bool(server.posts("notifications/cancelled")))
        else:
            assert server.posts("notifications/cancelled") == []


@pytest.mark.parametrize("status", [200, 401, 503])
@live
async def test_what_the_server_has_refused_is_not_cancelled_too(status: int) -> None:
    async def refuse(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(http_response(status))

    async with misbehaving_server(NOVEMBER_2025, refuse) as (client, server):
        assert isinstance(await outcome(client.call_tool("t")), ColonnadeError)
    assert server.posts("notifications/cancelled") == []


# ---------------------------------------------------------------- subscriptions


def notification(
    request: ReceivedRequest, method: str, params: dict[str, Any] | None = None
) -> dict[str, Any]:
    """News of a subscription."""
    meta = {"io.modelcontextprotocol/subscriptionId": request.message["id"]}
    return {"jsonrpc": "2.0", "method": method, "params": {**(params or {}), "_meta": meta}}


def acknowledged(request: ReceivedRequest) -> dict[str, Any]:
    wanted = {"notifications": {"toolsListChanged": True}}
    return notification(request, "notifications/subscriptions/acknowledged", wanted)


LISTEN = t.SubscriptionsListenRequestParams(
    notifications=t.SubscriptionFilter(tools_list_changed=True)
)
ENDINGS = ["cancelled", "result", "both", "lost"]


@pytest.mark.parametrize("ending", ENDINGS)
@live
async def test_a_subscription_ends_as_the_server_ends_it(ending: str) -> None:
    """D1: whichever word comes first is the end; a stream that is lost without one is lost."""
    end = asyncio.Event()

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream(), chunk(events(acknowledged(request))))
        await end.wait()
        gone = notification(
            request, "notifications/cancelled", {"requestId": request.message["id"]}
        )
        last = result(request, {"resultType": "complete"})
        said = {"cancelled": [gone], "result": [last], "both": [gone, last], "lost": []}[ending]
        await connection.send(chunk(events(*said)) if said else b"", b"0\r\n\r\n")

    async with misbehaving_server(JULY_2026, handler) as (client, _):
        _, future = client.conversation.start_request("subscriptions/listen", LISTEN, PATIENT_S)
        held = conversation_of(client)
        assert held is not None
        (call,) = held._calls.values()
        # Once it is acknowledged it may last, longer than its time-out.
        await until(lambda: call.deadline is None)
        assert not future.done()
        end.set()
        if ending == "lost":
            with pytest.raises(ConnectionLost, match="the stream ended without a response"):
                await future
        else:
            assert json.loads(bytes(await future)) in ({}, {"resultType": "complete"})
        assert held._calls == {}


@live
async def test_a_subscription_that_is_not_acknowledged_times_out() -> None:
    async with misbehaving_server(JULY_2026, no_response) as (client, server):
        _, future = client.conversation.start_request("subscriptions/listen", LISTEN, SOON_S)
        with pytest.raises(TimedOut, match="no answer to subscriptions/listen"):
            await future
        await until(server.client_closed.is_set)


@pytest.mark.parametrize("when", ["before it began", "after that"])
@live
async def test_a_subscription_that_is_given_up_is_closed_and_forgotten(when: str) -> None:
    async with misbehaving_server(JULY_2026, no_response) as (client, server):
        id, future = client.conversation.start_request("subscriptions/listen", LISTEN, PATIENT_S)
        if when == "after that":
            await until(lambda: bool(server.posts("subscriptions/listen")))
        client.conversation.cancel_request(id)
        client.conversation.cancel_request(id)
        await asyncio.wait([future], timeout=60)
        assert future.cancelled()
        held = conversation_of(client)
        assert held is not None
        assert (held._calls, len(held.link._outgoing)) == ({}, 0)
        if when == "after that":
            await until(server.client_closed.is_set)
        else:
            assert server.posts("subscriptions/listen") == []


# ---------------------------------------------------------------- the end


@both
@live
async def test_leaving_ends_whoever_waits_at_once_and_a_session_with_it(
    revision: Revision,
) -> None:
    async with misbehaving_server(revision, no_response) as (client, server):
        calls = [asyncio.create_task(client.call_tool("t")) for _ in range(3)]
        begun = [
            client.conversation.start_request("subscriptions/listen", LISTEN, PATIENT_S)[1]
            for _ in range(0 if revision.handshake else 2)
        ]
        await until(lambda: len(server.posts("tools/call")) == 3)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(client.conversation.aclose("it is late") for _ in range(3)))
        assert asyncio.get_running_loop().time() - began < 5
        for waiting in (*calls, *begun):
            assert waiting.done()
            with pytest.raises(ConnectionLost, match="it is late during"):
                await waiting
        await client.conversation.aclose("again")
        deleted = [one for one in server.received if one.method == "DELETE"]
        assert len(deleted) == (1 if revision.handshake else 0)
        assert all(one.headers["mcp-session-id"] == SESSION for one in deleted)
        assert client.conversation.link.phase is Phase.CLOSED
        with pytest.raises(ConnectionLost):
            await client.conversation.request("ping", t.RequestParams(), 1)
        with pytest.raises(ConnectionLost):
            await client.conversation.notify("notifications/roots/list_changed")


@pytest.mark.parametrize("way", ["refused", "silent", "lost"])
@live
async def test_a_session_is_left_whatever_the_server_says_to_that(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_conversation, "BEST_EFFORT_S", SOON_S)

    async def refuse(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if way == "refused":
            await connection.send(http_response(405))
        elif way == "silent":
            await connection.wait_closed()
        else:
            connection.abort()

    async with misbehaving_server(NOVEMBER_2025, overrides={"DELETE": refuse}) as (client, server):
        await client.call_tool("t")
    assert [one.method for one in server.received].count("DELETE") == 1


@live
async def test_a_handler_may_leave_while_it_answers() -> None:
    left = asyncio.Event()

    async def roots() -> list[str]:
        await client.conversation.aclose("enough")
        left.set()
        return ["/"]

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        await connection.send(stream(), chunk(events(ASK_ROOTS)))
        await connection.wait_closed()

    async with misbehaving_server(NOVEMBER_2025, handler, answers=InputCallbacks(roots=roots)) as (
        client,
        server,
    ):
        error = await outcome(client.call_tool("t"))
        assert isinstance(error, ConnectionLost)
        await asyncio.wait_for(left.wait(), 60)
    assert all("method" in one.message for one in server.received if one.body)


@live
async def test_whoever_gave_up_just_before_the_end_is_still_told_to_the_server() -> None:
    async with misbehaving_server(NOVEMBER_2025, no_response) as (client, server):
        calling = asyncio.create_task(client.call_tool("t"))
        await until(lambda: bool(server.posts("tools/call")))
        calling.cancel()
        await asyncio.wait([calling])
    names = [one.message.get("method") if one.body else one.method for one in server.received]
    assert names[-2:] == ["notifications/cancelled", "DELETE"]


@live
async def test_leaving_that_is_given_up_goes_on_and_can_be_waited_for_again() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        asked.set()
        await answer.wait()
        await connection.send(http_response(200))

    async with misbehaving_server(NOVEMBER_2025, overrides={"DELETE": slow}) as (client, server):
        leaving = asyncio.create_task(client.conversation.aclose("it is late"))
        await asked.wait()
        leaving.cancel()
        await asyncio.wait([leaving])
        assert leaving.cancelled()
        answer.set()
        await client.conversation.aclose("it is late")
        assert [one.method for one in server.received].count("DELETE") == 1


@live
async def test_an_opening_that_is_given_up_ends_the_conversation() -> None:
    async with misbehaving_server(
        NOVEMBER_2025, opened=False, overrides={"initialize": no_response}
    ) as (
        client,
        server,
    ):
        opened = asyncio.create_task(client.open(NOVEMBER_2025))
        await server.wait_for_requests(1)
        opened.cancel()
        await asyncio.wait([opened])
        await until(server.client_closed.is_set)
        assert client.conversation.link.phase is Phase.CLOSED
        assert len(server.received) == 1
