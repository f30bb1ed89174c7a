"""Three applications on one store behind a client that sends each request to the next of them."""

import asyncio
import json
from typing import Any

import pytest

from colonnade.ports import Caller as Verified
from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import JUNE_2025, MARCH_2025, NOVEMBER_2025, Revision
from colonnade.replicas.replica import ReplicaMessage
from colonnade.transport.duplex import BROADCASTS
from colonnade.transport.http_server.legacy_sse import SSE_PATH
from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.sessions.record import ANONYMOUS_SESSIONS
from colonnade.transport.http_server.sessions.shared_registry import MAX_RENEWALS
from colonnade.transport.http_server.sessions.shared_session import MAX_SUBSCRIBED_BYTES
from colonnade.transport.http_server.sessions.store_outage import WITHOUT_STORE_S
from http_client import Response, cancelled, opening
from http_service import ABLE, REPORT, reporting, waiting
from live import live, until
from replica_apps import Replicas, replica_apps

SESSIONS = [MARCH_2025, JUNE_2025, NOVEMBER_2025]
UPDATED = "notifications/resources/updated"
TOOLS_CHANGED = "notifications/tools/list_changed"

each_session = pytest.mark.parametrize("revision", SESSIONS, ids=lambda r: r.date)


def initialized() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/initialized"}


# ---------------------------------------------------------------- requests


@each_session
@live
async def test_any_replica_serves_any_request_of_a_session(revision: Revision) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        for id in range(1, 7):
            response = await r.caller.say("tools/call", {"name": "echo"}, id=id)
            assert (response.status, response.text) == (200, "hello")
        assert [len(app.service.turns) for app in r.apps] == [2, 2, 2]
        assert [t.peer.revision for app in r.apps for t in app.service.turns] == [revision] * 6
        assert {t.peer.info.name for app in r.apps for t in app.service.turns if t.peer.info} == {
            "caller"
        }


@live
async def test_a_request_with_a_copy_of_its_session_needs_no_store() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for id in range(3):
            await r.caller.say("tools/call", {"name": "echo"}, id=id)
        before = r.store.operations
        for id in range(3, 12):
            assert (await r.caller.say("tools/call", {"name": "echo"}, id=id)).status == 200
        lease_operations = 6
        assert r.store.operations - before <= lease_operations


@live
async def test_requests_that_meet_make_one_copy() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        registry = r.apps[2].app._shared_sessions
        assert registry is not None
        get, met = registry._get, asyncio.Barrier(8)

        async def together(id: str, principal: str) -> bytes | None:
            data = await get(id, principal)
            await met.wait()
            return data

        registry._get = together
        # Each goes to the next replica, so eight of them to this one.
        calls = [r.caller.say("tools/call", {"name": "echo"}, id=id) for id in range(24)]
        assert {response.status for response in await asyncio.gather(*calls)} == {200}
        assert len(r.apps[2].sessions) == 1
        copy = r.copies()[2]
        assert copy is not None
        assert copy.generation == registry.generation  # so the next needs no store
        assert not registry._restoring


@live
async def test_a_batch_may_reach_any_replica() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-03-26")
        for index in range(3):
            batch = [
                {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "echo"}}
                for id in ("a", "b")
            ]
            response = await r.caller.at(index).post(batch)
            assert {one["id"] for one in response.json} == {"a", "b"}


# ---------------------------------------------------------------- responses and cancellations


async def _asked(r: Replicas, at: int) -> tuple[Response, str]:
    """A call at one application that elicits; its stream, and the id of the elicitation."""
    _, stream = await r.caller.at(at).asking("tools/call", {"name": "ask"}, id="call")
    question = await stream.message()
    assert question["method"] == "elicitation/create"
    assert question["id"].startswith(r.apps[at].name + ".")
    return stream, question["id"]


@pytest.mark.parametrize("revision", [JUNE_2025, NOVEMBER_2025], ids=lambda r: r.date)
@pytest.mark.parametrize("to", [0, 1, 2])
@live
async def test_the_response_to_an_elicitation_finds_its_replica(
    revision: Revision, to: int
) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date, **ABLE)
        stream, id = await _asked(r, at=1)
        result = {"action": "accept", "content": {"name": "blue"}}
        response = await r.caller.at(to).post({"jsonrpc": "2.0", "id": id, "result": result})
        assert response.status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: blue"


@live
async def test_an_error_response_finds_its_replica() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        stream, id = await _asked(r, at=0)
        error = {"code": -1, "message": "not now", "data": {"why": 1}}
        await r.caller.at(2).post({"jsonrpc": "2.0", "id": id, "error": error})
        assert (await stream.message())["result"]["content"][0]["text"] == "refused: not now"


@live
async def test_a_response_in_a_batch_finds_its_replica() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-03-26", **ABLE)
        _, stream = await r.caller.at(0).asking("tools/call", {"name": "roots"}, id="call")
        question = await stream.message()
        batch = [
            {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}},
            cancelled("unknown"),
        ]
        assert (await r.caller.at(1).post(batch)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "0 roots"


@live
async def test_a_response_of_another_client_settles_nothing() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        stream, id = await _asked(r, at=0)
        mine = r.caller.session
        await r.caller.open("2025-11-25", **ABLE)
        wrong = {"action": "accept", "content": {"name": "wrong"}}
        await r.caller.at(1).post({"jsonrpc": "2.0", "id": id, "result": wrong})
        r.caller.session = mine
        right = {"action": "accept", "content": {"name": "right"}}
        await r.caller.at(2).post({"jsonrpc": "2.0", "id": id, "result": right})
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: right"


@live
async def test_a_response_that_names_no_replica_is_accepted_and_ignored() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for id in (1, "7", "nothing.1", "a" * 16 + ".1", "."):
            response = await r.caller.post({"jsonrpc": "2.0", "id": id, "result": {}})
            assert response.status == 202


@each_session
@live
async def test_a_cancellation_finds_the_replica_where_the_request_runs(revision: Revision) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        calling = asyncio.create_task(r.caller.at(1).say("tools/call", waiting(), id=5))
        await r.apps[1].service.marks.reached("wait begun")
        assert (await r.caller.at(2).post(cancelled(5))).status == 202
        await r.apps[1].service.marks.reached("wait cancelled")
        assert (await calling).status == 200


@live
async def test_a_large_cancellation_is_not_sent_to_all_replicas() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        sent: list[str] = []
        r.store.loses = lambda message: sent.append(message.kind) is not None
        for reason, kinds in (("x" * 100_000, []), ("x", ["session-message"])):
            params = {"requestId": 7, "reason": reason}
            notification = {"method": "notifications/cancelled", "params": params}
            response = await r.caller.at(1).post({"jsonrpc": "2.0", **notification})
            assert (response.status, sent) == (202, kinds)


@live
async def test_progress_of_the_client_is_for_the_replica_that_asked() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        stream, id = await _asked(r, at=0)
        progress = {"progressToken": id, "progress": 1}
        note: dict[str, Any] = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": progress,
        }
        assert (await r.caller.at(1).post(note)).status == 202
        note["params"] = {"progressToken": []}
        assert (await r.caller.at(1).post(note)).status == 202
        result = {"action": "accept", "content": {"name": "x"}}
        await r.caller.at(2).post({"jsonrpc": "2.0", "id": id, "result": result})
        assert (await stream.message())["id"] == "call"


# ---------------------------------------------------------------- changes of a session


@live
async def test_a_server_asks_nothing_before_initialized_wherever_that_arrives() -> None:
    async with replica_apps() as r:
        response = await r.caller.at(0).post(opening("2025-11-25", ABLE))
        r.caller.session, r.caller.revision = response.headers["mcp-session-id"], "2025-11-25"
        early = await r.caller.at(2).say("tools/call", {"name": "ask"})
        assert early.text.startswith("lost: it has not sent notifications/initialized")
        assert (await r.caller.at(1).post(initialized())).status == 202
        stream, id = await _asked(r, at=2)
        result = {"action": "accept", "content": {"name": "x"}}
        await r.caller.at(0).post({"jsonrpc": "2.0", "id": id, "result": result})
        assert (await stream.message())["id"] == "call"


@each_session
@live
async def test_the_log_level_holds_in_every_replica(revision: Revision) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        for id in range(3):
            await r.caller.say("tools/call", {"name": "echo"}, id=id)
        response = await r.caller.at(1).say("logging/setLevel", {"level": "error"}, id=7)
        assert response.json["result"] == {}
        await until(lambda: all(c and c.peer.log_level == "error" for c in r.copies()))
        await r.caller.at(2).say("logging/setLevel", {"level": "debug"}, id=8)
        await until(lambda: all(c and c.peer.log_level == "debug" for c in r.copies()))


@live
async def test_changes_that_meet_are_all_kept() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for id in range(3):
            await r.caller.say("tools/call", {"name": "echo"}, id=id)
        uris = {f"file:///{n}" for n in range(9)}
        await asyncio.gather(
            *(r.caller.say("resources/subscribe", {"uri": uri}, id=uri) for uri in uris),
            r.caller.say("logging/setLevel", {"level": "error"}, id="level"),
        )
        await until(lambda: all(c and set(c.subscriptions) == uris for c in r.copies()))
        assert {c.peer.log_level for c in r.copies() if c} == {"error"}


@live
async def test_the_record_of_a_session_is_bounded_and_more_subscriptions_are_refused() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        long = "x" * (MAX_SUBSCRIBED_BYTES // 3)
        for id, error in enumerate([None, None, "too many", None], 1):
            name = "b" if id == 4 else "abc"[id - 1]
            response = await r.caller.say("resources/subscribe", {"uri": f"{name}:{long}"}, id=id)
            said = json.loads(response.body).get("error", {}).get("message")
            assert said is None if error is None else error in said
        copy = r.copies()[0]
        assert copy is not None
        assert len(copy.record.subscriptions) == 2


@live
async def test_a_batch_that_subscribes_is_recorded() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-03-26")
        request = {"id": 1, "method": "resources/subscribe", "params": {"uri": "file:///a"}}
        assert (await r.caller.at(0).post([{"jsonrpc": "2.0", **request}])).status == 200
        await r.caller.at(2).say("tools/call", {"name": "echo"})
        copy = r.copies()[2]
        assert copy is not None
        assert set(copy.subscriptions) == {"file:///a"}


@live
async def test_a_change_of_the_client_is_kept_at_a_replica_that_has_not_heard_of_the_last() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for index in range(3):
            await r.caller.at(index).say("tools/call", {"name": "echo"})
        r.store.loses = lambda message: message.kind == "session-changed"
        await r.caller.at(0).say("resources/subscribe", {"uri": "file:///a"})
        await r.caller.at(1).say("resources/unsubscribe", {"uri": "file:///a"})
        assert not (await r.record()).subscriptions
        await r.caller.at(0).say("resources/subscribe", {"uri": "file:///a"})
        assert (await r.record()).subscriptions == {"file:///a"}
        await r.caller.at(0).say("logging/setLevel", {"level": "debug"})
        await r.caller.at(1).say("logging/setLevel", {"level": "error"})
        await r.caller.at(0).say("logging/setLevel", {"level": "debug"})
        assert (await r.record()).log_level == "debug"


@live
async def test_a_batch_is_handled_with_the_record_as_it_is_stored() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-03-26")
        for index in range(2):
            await r.caller.at(index).say("tools/call", {"name": "echo"})
        r.store.loses = lambda message: message.kind == "session-changed"
        await r.caller.at(0).say("resources/subscribe", {"uri": "file:///a"})
        request = {"id": 1, "method": "resources/unsubscribe", "params": {"uri": "file:///a"}}
        assert (await r.caller.at(1).post([{"jsonrpc": "2.0", **request}])).status == 200
        assert not (await r.record()).subscriptions


# ---------------------------------------------------------------- streams for notifications


@each_session
@live
async def test_a_subscription_at_one_replica_is_notified_on_the_stream_of_another(
    revision: Revision,
) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        await r.caller.at(1).say("resources/subscribe", {"uri": "file:///a"})
        _, stream = await r.caller.at(2).get()
        assert stream.status == 200
        await r.listening(2)
        r.publish(UPDATED, uri="file:///a")
        r.publish(TOOLS_CHANGED)
        assert (await stream.message())["params"]["uri"] == "file:///a"
        assert (await stream.message())["method"] == TOOLS_CHANGED


@live
async def test_subscribing_and_unsubscribing_are_known_at_the_stream_before_they_are_acknowledged() -> (
    None
):
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(2).get()
        await r.listening(2)
        r.store.loses = lambda message: message.form == "message"
        for uri in ("file:///a", "file:///b"):
            await r.caller.at(1).say("resources/subscribe", {"uri": uri})
        await r.caller.at(1).say("resources/unsubscribe", {"uri": "file:///a"})
        r.publish(UPDATED, uri="file:///a")
        r.publish(UPDATED, uri="file:///b")
        assert (await stream.message())["params"]["uri"] == "file:///b"


@live
async def test_only_the_newest_stream_of_all_replicas_is_notified() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, older = await r.caller.at(0).get()
        await r.listening(0)
        _, newer = await r.caller.at(1).get()
        await r.listening(1)
        r.publish(TOOLS_CHANGED)
        assert (await newer.message())["method"] == TOOLS_CHANGED
        _, again = await r.caller.at(0).get()
        await r.listening(0)
        r.publish("notifications/prompts/list_changed")
        assert (await again.message())["method"] == "notifications/prompts/list_changed"
        assert TOOLS_CHANGED.encode() not in older.body


@live
async def test_what_waited_for_a_stream_is_handed_to_the_replica_that_has_one_once() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(1).say("resources/subscribe", {"uri": "file:///a"})
        await until(lambda: sum(bool(c and c.subscriptions) for c in r.copies()) == 2)
        r.publish(UPDATED, uri="file:///a")
        _, stream = await r.caller.at(2).get()
        assert (await stream.message())["params"]["uri"] == "file:///a"
        await r.listening(2)
        r.publish(TOOLS_CHANGED)
        assert (await stream.message())["method"] == TOOLS_CHANGED


@live
async def test_a_change_that_waited_in_every_replica_is_sent_once() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for index in range(3):
            await r.caller.at(index).say("tools/call", {"name": "echo"})
        r.publish(TOOLS_CHANGED)
        replica = r.apps[2].app._replica
        assert replica is not None
        take_over, sent, senders = replica._handlers["session-notify"], asyncio.Event(), set[str]()

        async def later(sender: str, body: bytes) -> None:
            await sent.wait()
            await take_over(sender, body)
            senders.add(sender)

        replica._handlers["session-notify"] = later
        _, stream = await r.caller.at(2).get()
        assert (await stream.message())["method"] == TOOLS_CHANGED
        sent.set()
        await until(lambda: len(senders) == 2)
        await r.listening(2)
        r.publish("notifications/prompts/list_changed")
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_a_change_that_is_handed_over_before_this_replica_is_notified_is_sent_once() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        r.apps[0].service.publish(TOOLS_CHANGED)
        replica = r.apps[2].app._replica
        assert replica is not None
        take_over = replica._handlers["session-notify"]

        async def notified_after(sender: str, body: bytes) -> None:
            await take_over(sender, body)
            r.apps[2].service.publish(TOOLS_CHANGED)

        replica._handlers["session-notify"] = notified_after
        _, stream = await r.caller.at(2).get()
        assert (await stream.message())["method"] == TOOLS_CHANGED
        copy = r.copies()[2]
        assert copy is not None
        await until(lambda: not copy._held)
        r.publish("notifications/prompts/list_changed")
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_a_change_that_is_handed_over_after_a_second_stream_was_opened_is_sent_once() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        r.publish(TOOLS_CHANGED)
        replica = r.apps[2].app._replica
        assert replica is not None
        take_over, sent, taken = (
            replica._handlers["session-notify"],
            asyncio.Event(),
            asyncio.Event(),
        )

        async def later(sender: str, body: bytes) -> None:
            await sent.wait()
            await take_over(sender, body)
            taken.set()

        replica._handlers["session-notify"] = later
        _, stream = await r.caller.at(2).get()
        r.apps[2].service.publish(TOOLS_CHANGED)
        assert (await stream.message())["method"] == TOOLS_CHANGED
        _, second = await r.caller.at(2).get()
        sent.set()
        await taken.wait()
        copy = r.copies()[2]
        assert copy is not None
        await until(lambda: not copy._held)
        r.publish("notifications/prompts/list_changed")
        assert (await second.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_what_waited_while_a_replica_seemed_to_have_ended_is_handed_to_it() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(0).get()
        await r.listening(0)
        registry, copy = r.apps[1].app._shared_sessions, r.copies()[1]
        assert registry is not None
        assert copy is not None
        registry._listeners_lost[r.apps[0].name] = True  # it did not renew its lease
        copy.post_notification(b'{"jsonrpc":"2.0","method":"x"}', "task 1", frozenset())
        await registry._maintain()
        assert (await stream.message())["method"] == "x"


@live
async def test_a_notification_of_a_request_elsewhere_goes_to_the_stream() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(2).get()
        await r.listening(2)
        copy = r.copies()[0]
        assert copy is not None
        copy.post_notification(b'{"jsonrpc":"2.0","method":"x"}', "task 1", frozenset())
        assert (await stream.message())["method"] == "x"


@each_session
@live
async def test_a_stream_for_notifications_is_resumed_elsewhere(revision: Revision) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        wire, stream = await r.caller.at(0).get()
        await r.listening(0)
        r.publish(TOOLS_CHANGED)
        first = await stream.numbered()
        wire.abort()
        r.publish("notifications/prompts/list_changed")
        await until(lambda: not r.copies()[0]._backlog)  # pyright: ignore[reportOptionalMemberAccess]
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert resumed.status == 200
        missed = await resumed.numbered()
        assert json.loads(missed.data)["method"] == "notifications/prompts/list_changed"
        assert str(missed.id).rpartition("-")[0] == str(first.id).rpartition("-")[0]
        await r.listening(1)
        r.publish(TOOLS_CHANGED)
        assert (await resumed.message())["method"] == TOOLS_CHANGED


# ---------------------------------------------------------------- streams of requests


@each_session
@live
async def test_the_stream_of_a_request_is_resumed_at_another_replica(revision: Revision) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        params = reporting(steps=3, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id=1)
        first = await stream.numbered()
        wire.abort()
        service = r.apps[0].service
        service.go.mark("step 1")
        await service.marks.reached("step 2")
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert resumed.status == 200
        assert (await resumed.message())["params"]["progress"] == 2
        for step in (2, 3):
            service.go.mark(f"step {step}")
        rest = [json.loads(event.data) for event in await resumed.rest()]
        assert [rest[0]["params"]["progress"], rest[1]["id"]] == [3, 1]
        _, again = await r.caller.at(2).get(last_event_id=first.id)
        assert [json.loads(e.data).get("id") for e in await again.rest()] == [None, None, 1]


@live
async def test_an_event_to_resume_from_is_sent_when_every_replica_can_resume_there() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        r.store.appends.clear()
        asking = asyncio.create_task(
            r.caller.at(0).asking("tools/call", {"name": "reconnect", "arguments": {}}, id=1)
        )
        await r.apps[0].service.marks.reached("hung up")
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"}, id=2)).text == "hello"
        assert not asking.done()
        r.store.appends.set()
        _, stream = await asking
        first, _ = await stream.rest()
        r.apps[0].service.go.mark("reconnect")
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert resumed.status == 200
        assert (await resumed.message())["id"] == 1


LOST = {"effectUnknown": True}


@each_session
@live
async def test_a_request_whose_replica_has_ended_gets_an_error_on_its_stream(
    revision: Revision,
) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        params = reporting(steps=3, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id="a")
        first = await stream.numbered()
        wire.abort()
        service = r.apps[0].service
        service.go.mark("step 1")
        await service.marks.reached("step 2")
        await r.apps[0].kill()
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        progress, error = [json.loads(event.data) for event in await resumed.rest()]
        assert progress["params"]["progress"] == 2
        assert (error["id"], error["error"]["code"]) == ("a", -32603)
        assert error["error"]["data"] == LOST
        assert "whether it had an effect is unknown" in error["error"]["message"]


@live
async def test_a_replica_that_ends_while_its_stream_is_read_elsewhere_leaves_an_error() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        params = reporting(steps=3, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id=1)
        first = await stream.numbered()
        wire.abort()
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        service = r.apps[0].service
        service.go.mark("step 1")
        assert (await resumed.message())["params"]["progress"] == 2
        await r.apps[0].kill()
        (error,) = [json.loads(event.data) for event in await resumed.rest()]
        assert (error["id"], error["error"]["data"]) == (1, LOST)


@live
async def test_each_request_of_a_batch_whose_replica_has_ended_gets_an_error() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-03-26")
        calls = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            for id, params in (
                ("done", {"name": "echo", "arguments": {}}),  # the responses are sent together
                ("runs", reporting(steps=2, wait=True)),
            )
        ]
        _, stream = await r.caller.at(0).begin("POST", json.dumps(calls).encode())
        first = await stream.numbered()
        await r.apps[0].kill()
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        messages = [json.loads(event.data) for event in await resumed.rest()]
        assert [(m["id"], m["error"]["data"]) for m in messages] == [("done", LOST), ("runs", LOST)]


@pytest.mark.parametrize("event", ["x-y-1-1", "a-b-c-d", "1-1", "-", "a" * 900 + "-b-1-2"])
@live
async def test_an_event_that_no_replica_has_is_400(event: str) -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.get(last_event_id=event)
        assert stream.status == 400


@live
async def test_an_event_that_was_not_sent_yet_is_400_elsewhere() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(0).asking("tools/call", REPORT)
        last = (await stream.rest())[-1]
        beyond = str(last.id).rpartition("-")[0] + "-99"
        _, resumed = await r.caller.at(1).get(last_event_id=beyond)
        assert resumed.status == 400


async def _scoped(headers: Headers) -> Verified:
    scopes = headers.get(b"authorization", b"").decode().split()
    return Verified("ada", frozenset(scopes))


@live
async def test_a_stream_is_not_resumed_elsewhere_with_fewer_scopes() -> None:
    async with replica_apps(verify=_scoped) as r:
        opened = await r.caller.at(0).post(opening("2025-11-25"), authorization="read write")
        r.caller.session, r.caller.revision = opened.headers["mcp-session-id"], "2025-11-25"
        _, stream = await r.caller.at(0).asking("tools/call", REPORT, authorization="read write")
        first = (await stream.rest())[0]
        for scopes, status in (("read", 403), ("read write", 200)):
            wire, resumed = await r.caller.at(1).get(last_event_id=first.id, authorization=scopes)
            assert resumed.status == status
            wire.close()


@live
async def test_a_request_with_fewer_scopes_elsewhere_disturbs_no_reader() -> None:
    async with replica_apps(verify=_scoped) as r:
        opened = await r.caller.at(0).post(opening("2025-11-25"), authorization="read write")
        r.caller.session, r.caller.revision = opened.headers["mcp-session-id"], "2025-11-25"
        params = reporting(steps=2, wait=True)
        _, stream = await r.caller.at(0).asking("tools/call", params, authorization="read write")
        first = await stream.numbered()
        _, refused = await r.caller.at(1).get(last_event_id=first.id, authorization="read")
        assert refused.status == 403
        for step in (1, 2):
            r.apps[0].service.go.mark(f"step {step}")
        assert [json.loads(e.data).get("id") for e in await stream.rest()] == [None, 1]


@live
async def test_a_stream_that_is_resumed_twice_goes_on_for_the_second() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        params = reporting(steps=3, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id=1)
        first = await stream.numbered()
        wire.abort()
        _, lost = await r.caller.at(1).get(last_event_id=first.id)
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert (lost.status, resumed.status) == (200, 200)
        for step in (1, 2, 3):
            r.apps[0].service.go.mark(f"step {step}")
        assert [json.loads(e.data).get("id") for e in await resumed.rest()] == [None, None, 1]


@live
async def test_events_that_no_stream_has_leave_nothing_behind() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for number in range(5):
            _, stream = await r.caller.at(1).get(last_event_id=f"{number}-{r.apps[0].name}-1-2")
            assert stream.status == 400
        registry = r.apps[1].app._shared_sessions
        assert registry is not None
        assert not registry._grown


@live
async def test_a_batch_whose_stream_starts_late_is_resumed_elsewhere() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-03-26")
        names = [("echo", {}), ("report", {"wait": True})]
        batch = [
            {
                "jsonrpc": "2.0",
                "id": name,
                "method": "tools/call",
                "params": {**REPORT, "name": name, "arguments": arguments},
            }
            for name, arguments in names
        ]
        body = json.dumps(batch).encode()
        _, stream = await r.caller.at(0).begin("POST", body)
        first = await stream.numbered()
        for step in (1, 2):
            r.apps[0].service.go.mark(f"step {step}")
        rest = [json.loads(event.data) for event in await stream.rest()]
        assert {m["id"] for m in [json.loads(first.data), *rest] if "id" in m} <= {"echo", "report"}
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert [json.loads(event.data) for event in await resumed.rest()] == rest


@live
async def test_a_stream_that_the_owner_has_forgotten_is_resumed_from_its_log() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(0).asking("tools/call", REPORT)
        events = await stream.rest()
        copy = r.copies()[0]
        assert copy is not None
        await until(lambda: bool(copy._resumable))
        copy.shrink(0)
        _, resumed = await r.caller.at(0).get(last_event_id=events[0].id)
        assert await resumed.rest() == events[1:]


# ---------------------------------------------------------------- end


@live
async def test_a_session_that_is_used_is_renewed_and_one_that_is_not_expires() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        registry = r.apps[1].app._shared_sessions
        copy = r.copies()[1]
        assert registry is not None
        assert copy is not None
        used = copy.renewed_at
        registry.check(copy, used + copy.ttl_s / 2)  # not used since
        assert copy.renewed_at == used
        copy.used = used + 1
        registry.check(copy, used + copy.ttl_s / 2)
        assert copy.renewed_at > used
        await until(lambda: not registry.shared.tasks)
        await r.store.delete(ANONYMOUS_SESSIONS, f"session {copy.id}")
        copy.used, later = copy.renewed_at + 1, copy.renewed_at + copy.ttl_s
        registry.check(copy, later)  # it has expired, so there is nothing to renew
        await until(lambda: r.copies()[1] is None)
        assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 404


@live
async def test_of_the_copies_of_a_session_one_renews_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for index in range(3):
            await r.caller.at(index).say("tools/call", {"name": "echo"})
        swap, writes = r.store.swap, 0

        async def counted(*arguments: Any) -> bool:
            nonlocal writes
            writes += 1
            return await swap(*arguments)

        monkeypatch.setattr(r.store, "swap", counted)
        for app, copy in zip(r.apps, r.copies(), strict=True):
            registry = app.app._shared_sessions
            assert registry is not None
            assert copy is not None
            copy.used = copy.renewed_at + 1
            registry.check(copy, copy.renewed_at + copy.ttl_s / 2)
            await until(lambda registry=registry: not registry.shared.tasks)
        assert writes == 1


@live
async def test_sessions_that_are_due_at_once_are_renewed_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica_apps(1, limits=Limits(max_sessions_per_principal=1000)) as r:
        for _ in range(2 * MAX_RENEWALS + 1):
            await r.caller.open("2025-11-25")
        registry = r.apps[0].app._shared_sessions
        assert registry is not None
        swap, running, most, renewed = r.store.swap, 0, 0, 0

        async def counted(*arguments: Any) -> bool:
            nonlocal running, most, renewed
            running, renewed = running + 1, renewed + 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return await swap(*arguments)

        monkeypatch.setattr(r.store, "swap", counted)
        for session in r.apps[0].sessions:
            session.used = session.renewed_at + 1
            registry.check(session, session.renewed_at + session.ttl_s / 2)
        await until(lambda: not registry.shared.tasks)
        assert renewed == 2 * MAX_RENEWALS + 1
        assert most == MAX_RENEWALS


@live
async def test_notifications_wait_here_when_the_replica_with_the_stream_has_ended() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        wire, _ = await r.caller.at(0).get()
        await r.listening(0)
        copy = r.copies()[1]
        registry = r.apps[1].app._shared_sessions
        assert copy is not None
        assert registry is not None
        assert not registry.is_lost(r.apps[0].name)
        wire.abort()
        await r.apps[0].kill()
        await until(lambda: registry.is_lost(r.apps[0].name))
        copy.post_notification(b'{"jsonrpc":"2.0","method":"x"}', "task 1", frozenset())
        assert list(copy._backlog) == [("", "task 1")]
        _, stream = await r.caller.at(2).get()
        methods = [(await stream.message())["method"] for _ in range(4)]
        assert methods == [*sorted(BROADCASTS), "x"]


@each_session
@live
async def test_delete_at_one_replica_ends_the_session_in_all(revision: Revision) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        _, stream = await r.caller.at(0).get()
        await r.caller.at(1).say("tools/call", {"name": "echo"})
        assert (await r.caller.at(2).request("DELETE")).status == 200
        await stream.rest()
        for index in range(3):
            response = await r.caller.at(index).say("tools/call", {"name": "echo"})
            assert response.status == 404
        assert [app.sessions for app in r.apps] == [[], [], []]


@live
async def test_a_stream_is_not_opened_in_a_session_that_ends_meanwhile() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(1).say("tools/call", {"name": "echo"})
        copy = r.copies()[1]
        assert copy is not None

        def end(message: ReplicaMessage) -> bool:
            if message.kind == "session-changed":
                r.apps[1].app._sessions.end(copy, "the client ended the session")
            return False

        r.store.loses = end
        assert (await r.caller.at(1).get())[1].status == 503


@pytest.mark.parametrize("at", [1, 2], ids=["a copy", "no copy"])
@live
async def test_a_session_that_ends_while_it_is_read_is_read_again(at: int) -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        registry = r.apps[at].app._shared_sessions
        assert registry is not None
        registry._on_missed()
        get, session = registry._get, r.caller.session

        async def late(id: str, principal: str) -> bytes | None:
            data = await get(id, principal)
            registry._get = get
            assert (await r.caller.at(0).request("DELETE")).status == 200
            await until(lambda: registry._restoring[id][0].is_set())
            return data

        registry._get = late
        assert (await r.caller.at(at).say("tools/call", {"name": "echo"})).status == 200
        assert r.caller.session == session
        assert (await r.caller.at(at).say("tools/call", {"name": "echo"})).status == 404


@live
async def test_a_session_survives_the_replica_that_opened_it() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.apps[0].kill()
        for id in range(4):
            response = await r.caller.at(1 + id % 2).say("tools/call", {"name": "echo"}, id=id)
            assert response.status == 200


@live
async def test_a_session_survives_the_shutdown_of_a_replica() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.apps[0].site.stop(0.0)
        assert (await r.caller.at(1).say("tools/call", {"name": "echo"})).status == 200


@live
async def test_a_copy_that_is_evicted_is_read_again() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(2).say("resources/subscribe", {"uri": "file:///a"})
        registry = r.apps[2].app._sessions
        for session in registry:
            registry.end(session, "evicted by a newer session")
        assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 200
        copy = r.copies()[2]
        assert copy is not None
        assert set(copy.subscriptions) == {"file:///a"}


async def _verify(headers: Headers) -> Verified:
    return Verified(headers.get(b"authorization", b"").decode())


@live
async def test_another_principal_finds_no_session() -> None:
    async with replica_apps(verify=_verify) as r:
        response = await r.caller.at(0).post(opening("2025-11-25"), authorization="ada")
        r.caller.session, r.caller.revision = response.headers["mcp-session-id"], "2025-11-25"
        for index in range(3):
            for name, status in (("bob", 404), ("", 404), ("ada", 200)):
                call = await r.caller.at(index).say(
                    "tools/call", {"name": "echo"}, authorization=name
                )
                assert call.status == status
            assert (await r.caller.at(index).request("DELETE", authorization="bob")).status == 404
        key = f"session {r.caller.session}"
        assert await r.store.get("ada", key) is not None
        assert await r.store.get("bob", key) is None


# ---------------------------------------------------------------- without the store


@live
async def test_without_the_store_known_sessions_go_on_and_new_ones_are_refused() -> None:
    async with replica_apps(limits=Limits(store_wait_s=0.0)) as r:
        await r.caller.open("2025-11-25", **ABLE)
        await r.caller.at(1).say("tools/call", {"name": "echo"})
        r.store.leave()
        for index in (0, 1):
            response = await r.caller.at(index).say("tools/call", {"name": "echo"}, id=index)
            assert response.status == 200
        unknown = await r.caller.at(2).say("tools/call", {"name": "echo"})
        assert (unknown.status, unknown.headers["retry-after"]) == (503, "1")
        assert (await r.caller.at(0).request("DELETE")).status == 503
        assert (await r.caller.at(0).get())[1].status == 503
        response = {"jsonrpc": "2.0", "id": "a" * 16 + ".1", "result": {}}
        assert (await r.caller.at(0).post(response)).status == 503
        mine = r.caller.session
        r.caller.session = None
        refused = await r.caller.at(0).post(opening("2025-11-25"))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        r.caller.session = mine
        # An elicitation that stays in its process, and a stream that cannot be logged, go on.
        stream, id = await _asked(r, at=0)
        result = {"action": "accept", "content": {"name": "x"}}
        answer = {"jsonrpc": "2.0", "id": id, "result": result}
        assert (await r.caller.at(0).post(answer)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: x"


@live
async def test_without_the_store_for_long_copies_that_may_be_out_of_date_are_refused() -> None:
    async with replica_apps(limits=Limits(store_wait_s=0.0)) as r:
        await r.caller.open("2025-11-25")
        registry = r.apps[0].app._shared_sessions
        assert registry is not None
        r.store.leave()
        registry._on_missed()
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"})).status == 200
        now = registry.shared.clock()
        registry.shared.clock = lambda: now + WITHOUT_STORE_S + 1
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"})).status == 503
        r.store.away = False
        registry.shared.clock = lambda: now + WITHOUT_STORE_S + 3
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"})).status == 200


@live
async def test_without_a_lease_for_long_every_copy_is_read_before_it_is_used() -> None:
    async with replica_apps(limits=Limits(store_wait_s=0.0)) as r:
        await r.caller.open("2025-11-25")
        registry, replica = r.apps[0].app._shared_sessions, r.apps[0].app._replica
        assert registry is not None
        assert replica is not None
        r.store.leave()
        replica._lease_until = 0.0
        now = registry.shared.clock()
        registry._tick(now - WITHOUT_STORE_S - 2)
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"})).status == 200
        registry._tick(now)
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"})).status == 503
        r.store.away = False
        registry._outage._failed_last = 0.0
        assert (await r.caller.at(0).say("tools/call", {"name": "echo"})).status == 200


@live
async def test_subscriptions_that_do_not_fit_here_leave_nothing_behind() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        for name in "ab":
            await r.caller.at(0).say("resources/subscribe", {"uri": f"file:///{name}"})
        registry, service = r.apps[2].app._shared_sessions, r.apps[2].service
        assert registry is not None
        budget = registry.shared.subscribed
        budget.total = 150
        for _ in range(3):
            assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 503
        assert (budget.used, service.watchers) == (0, 0)
        budget.total = 10_000
        assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 200
        budget.total = budget.used
        await r.caller.at(0).say("resources/subscribe", {"uri": "file:///c"})
        await until(lambda: r.copies()[2] is None)
        assert (budget.used, service.watchers) == (0, 0)
        copy = r.copies()[0]
        assert copy is not None
        assert len(copy.record.subscriptions) == 3


@live
async def test_a_change_without_the_store_is_written_when_it_is_back() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        r.store.leave()
        response = await r.caller.at(0).say("resources/subscribe", {"uri": "file:///a"})
        assert response.status == 200
        r.store.away = False
        async with asyncio.timeout(60):
            while not ((copy := r.copies()[1]) and copy.subscriptions):
                assert (await r.caller.at(1).say("tools/call", {"name": "echo"})).status == 200


@live
async def test_copies_are_read_again_after_messages_were_missed() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(2).say("tools/call", {"name": "echo"})
        r.store.loses = lambda message: message.kind.startswith("session-")
        assert (await r.caller.at(0).request("DELETE")).status == 200
        assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 200
        r.store.loses = lambda message: False
        registry = r.apps[2].app._shared_sessions
        assert registry is not None
        before = registry.generation
        r.store.cut_listeners()
        await until(lambda: registry.generation > before)
        assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 404


# ---------------------------------------------------------------- HTTP+SSE


@live
async def test_a_post_reaches_the_http_sse_stream_of_another_replica() -> None:
    async with replica_apps() as r:
        _, stream = await r.caller.at(0).begin("GET", path=SSE_PATH, accept="text/event-stream")
        path = (await stream.event()).text()
        posts: list[Any] = [
            opening("2024-11-05"),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}},
        ]
        for message in posts:
            response = await r.caller.request("POST", json.dumps(message).encode(), path=path)
            assert response.status == 202
        assert [(await stream.message())["id"] for _ in range(2)] == [0, 1]
        assert (await r.caller.at(1).request("POST", b"{", path=path)).status == 400


@live
async def test_a_post_for_a_stream_that_no_replica_has_is_404() -> None:
    async with replica_apps() as r:
        _, stream = await r.caller.at(0).begin("GET", path=SSE_PATH, accept="text/event-stream")
        path = (await stream.event()).text()
        body = json.dumps(opening("2024-11-05")).encode()
        for wrong in (path + "x", path.replace(r.apps[0].name, "a" * 16), path.partition("?")[0]):
            assert (await r.caller.at(1).request("POST", body, path=wrong)).status == 404
        await r.apps[0].kill()
        assert (await r.caller.at(2).request("POST", body, path=path)).status == 404


@live
async def test_another_principal_cannot_post_to_a_stream_elsewhere() -> None:
    async with replica_apps(verify=_verify) as r:
        _, stream = await r.caller.at(0).begin(
            "GET", path=SSE_PATH, accept="text/event-stream", authorization="ada"
        )
        path = (await stream.event()).text()
        body = json.dumps(opening("2024-11-05")).encode()
        for name, status in (("bob", 404), ("ada", 202)):
            response = await r.caller.at(1).request("POST", body, path=path, authorization=name)
            assert response.status == status


@live
async def test_large_posts_that_meet_all_reach_the_stream_of_another_replica() -> None:
    async with replica_apps() as r:
        _, stream = await r.caller.at(0).begin("GET", path=SSE_PATH, accept="text/event-stream")
        path = (await stream.event()).text()
        for message in (opening("2024-11-05"), initialized()):
            await r.caller.at(1).request("POST", json.dumps(message).encode(), path=path)
        params = {"name": "echo", "arguments": {"x": "y" * 1024 * 1024}}
        bodies = [
            json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            for id in range(1, 7)
        ]
        posts = [r.caller.at(1).request("POST", body.encode(), path=path) for body in bodies]
        assert [response.status for response in await asyncio.gather(*posts)] == [202] * 6
