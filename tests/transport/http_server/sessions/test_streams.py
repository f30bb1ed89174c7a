"""The streams of sessions over real sockets: coming back, polling, news, batches."""

import asyncio
import json
from typing import Any

import pytest

from colonnade.errors import ConnectionLost
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.revision import (
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2025,
    Revision,
)
from http_client import Caller, cancelled, opening
from http_service import ABLE, REPORT, reporting
from live import live, served_app, until

SESSIONS = [MARCH_2025, JUNE_2025, NOVEMBER_2025]
each_session = pytest.mark.parametrize("revision", SESSIONS, ids=lambda r: r.date)


# ---------------------------------------------------------------- coming back


@pytest.mark.spec("R0281")
@live
async def test_a_lost_stream_goes_on_after_exactly_the_last_event(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        params = reporting(steps=3, wait=True)
        wire, stream = await s.caller.asking("tools/call", params, id=1)
        other_wire, other = await s.caller.asking("tools/call", params, id=2)
        first = await stream.numbered()
        await other.numbered()
        wire.abort()
        for step in (1, 2, 3):
            s.service.go.mark(f"step {step}")
        resumed_wire, resumed = await s.caller.get(last_event_id=first.id)
        events = await resumed.rest()
        messages = [json.loads(event.data) for event in events]
        assert [m["params"]["progress"] for m in messages[:-1]] == [2, 3]
        assert messages[-1]["id"] == 1
        again_wire, again = await s.caller.get(last_event_id=events[0].id)
        assert await again.rest() == events[1:]
        for each in (resumed_wire, other_wire, again_wire):
            each.close()


@live
async def test_an_answer_that_nobody_was_there_for_waits_on_its_stream() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", reporting(steps=1, wait=True))
        event = await stream.numbered()
        wire.abort()
        await s.wait_for_disconnects()
        s.service.go.mark("step 1")
        await until(lambda: s.service.running == 0)
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert (await resumed.message())["result"]["content"][0]["text"] == "done"
        assert await resumed.rest() == []


@pytest.mark.spec("R0489")
@live
async def test_a_handler_can_let_the_connection_go_and_the_client_polls_for_the_rest() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", {"name": "reconnect"})
        events = await stream.rest()
        assert [event.data for event in events] == [b"", b""]
        assert (events[-1].id, events[-1].retry_ms) == (None, 1000)
        wire.close()
        resumed_wire, resumed = await s.caller.get(last_event_id=events[0].id)
        s.service.go.mark("reconnect")
        assert (await resumed.message())["result"]["content"][0]["text"] == "here is the rest"
        assert await resumed.rest() == []
        resumed_wire.close()


@pytest.mark.spec("R0259")
@live
async def test_revisions_that_know_no_polling_keep_the_connection(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        calling = asyncio.create_task(s.caller.ask("tools/call", {"name": "reconnect"}))
        await s.service.marks.reached("hung up")
        s.service.go.mark("reconnect")
        assert (await calling).text == "here is the rest"


@pytest.mark.parametrize(
    "event", ["9-9", "", "x", "-", "1-", "deadbeef-1-1", "0" * 1025, "a-b-99999999999999999999"]
)
@live
async def test_an_event_that_is_not_kept_is_400(event: str) -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        await s.caller.ask("tools/call", REPORT)
        wire, stream = await s.caller.get(last_event_id=event)
        assert stream.status == 400
        wire.close()


@live
async def test_an_event_of_another_session_is_unknown() -> None:
    async with served_app() as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await other.initialize("2025-11-25")
        for caller in (s.caller, other, other, other):
            await caller.ask("tools/call", REPORT)
        _, stream = await s.caller.asking("tools/call", REPORT)
        event = await stream.event()
        wire, foreign = await other.get(last_event_id=event.id)
        assert foreign.status == 400
        wire.close()


@pytest.mark.spec("R0494")
@live
async def test_event_ids_name_their_stream() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        names: list[set[str]] = []
        for id in range(3):
            wire, stream = await s.caller.asking("tools/call", REPORT, id=id)
            names.append({str(event.id).rpartition("-")[0] for event in await stream.rest()})
            wire.close()
        assert [len(each) for each in names] == [1, 1, 1]
        assert len(set.union(*names)) == 3


@pytest.mark.spec("R0493")
@live
async def test_a_stream_of_notifications_that_is_let_go_is_told_when_to_come_back() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.get()
        s.service.publish("notifications/tools/list_changed")
        event = await stream.numbered()
        s.sessions.drain()
        (last,) = await stream.rest()
        assert (last.id, last.data, last.retry_ms) == (None, b"", 1000)
        s.service.publish("notifications/prompts/list_changed")
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert (await resumed.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_a_handler_that_lets_go_of_nobody_changes_nothing() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", {"name": "reconnect"})
        first = (await stream.rest())[0]
        wire.close()
        turn = s.service.turns[-1]
        await turn.hang_up()
        _, resumed = await s.caller.get(last_event_id=first.id)
        s.service.go.mark("reconnect")
        assert (await resumed.message())["result"]


@live
async def test_a_call_whose_client_can_never_come_back_can_ask_nothing() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        wire, calling = await s.begin_wait()
        turn = s.service.turns[-1]
        wire.abort()
        await s.wait_for_disconnects()
        with pytest.raises(ConnectionLost, match="cannot resume"):
            await turn.ask(InputRequest(t.ListRootsRequestParams()))
        await turn.send(b"{}")
        assert not next(iter(s.sessions))._streams
        s.service.go.mark("wait")
        await s.wait_until_idle()
        calling.cancel()


@live
async def test_a_question_to_a_client_that_cannot_come_back_ends_when_it_goes() -> None:
    async with served_app() as s:
        await s.caller.initialize("2024-11-05", ABLE)  # its streams are not resumed
        wire, stream = await s.caller.asking("tools/call", {"name": "roots"})
        await stream.message()
        wire.abort()
        await s.wait_until_idle()


@live
async def test_a_number_that_is_still_to_come_is_unknown() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.asking("tools/call", REPORT)
        last = (await stream.rest())[-1]
        assert last.id is not None
        name, _, number = last.id.rpartition("-")
        wire, ahead = await s.caller.get(last_event_id=f"{name}-{int(number) + 1}")
        assert ahead.status == 400
        wire.close()


@live
async def test_who_comes_back_takes_the_stream_from_a_connection_that_is_dead() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", reporting(steps=1, wait=True))
        event = await stream.numbered()
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert await wire.closed()
        s.service.go.mark("step 1")
        assert (await resumed.message())["result"]


# ---------------------------------------------------------------- news


@pytest.mark.spec("R0244", "R0267")
@live
async def test_a_get_is_a_stream_of_notifications(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        wire, stream = await s.caller.get()
        assert stream.status == 200
        assert stream.is_stream
        s.service.publish("notifications/tools/list_changed")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        wire.close()


@pytest.mark.spec("R0275")
@live
async def test_a_notification_is_on_one_stream_only(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        first_wire, first = await s.caller.get()
        second_wire, second = await s.caller.get()
        s.service.publish("notifications/tools/list_changed")
        assert (await second.message())["method"] == "notifications/tools/list_changed"
        second_wire.abort()
        await until(lambda: len(s.app.reaper) == 1)
        s.service.publish("notifications/prompts/list_changed")
        assert (await first.message())["method"] == "notifications/prompts/list_changed"
        first_wire.close()


@live
async def test_a_notification_that_nobody_was_there_for_is_kept_once() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        for _ in range(5):
            s.service.publish("notifications/tools/list_changed")
        s.service.publish("notifications/prompts/list_changed")
        _, stream = await s.caller.get()
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_updates_reach_those_who_subscribed() -> None:
    async with served_app() as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await other.initialize("2025-11-25")
        assert (await s.caller.ask("resources/subscribe", {"uri": "notes://a"})).status == 200
        _, stream = await s.caller.get()
        _, others = await other.get()
        for uri in ("notes://b", "notes://a", "notes://a/part"):
            params = t.ResourceUpdatedNotificationParams(uri=uri)
            s.service.publish("notifications/resources/updated", params)
        s.service.publish("notifications/tools/list_changed")
        assert (await stream.message())["params"]["uri"] == "notes://a"
        assert (await stream.message())["params"]["uri"] == "notes://a/part"
        assert (await others.message())["method"] == "notifications/tools/list_changed"


@live
async def test_a_lost_stream_of_notifications_goes_on() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.get()
        s.service.publish("notifications/tools/list_changed")
        event = await stream.numbered()
        s.service.publish("notifications/prompts/list_changed")
        wire.abort()
        await s.wait_for_disconnects()
        s.service.publish("notifications/resources/list_changed")
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert (await resumed.message())["method"] == "notifications/prompts/list_changed"
        assert (await resumed.message())["method"] == "notifications/resources/list_changed"


@pytest.mark.spec("R0271")
@live
async def test_no_answer_is_ever_on_the_stream_of_notifications(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        _, stream = await s.caller.get()
        for id in range(5):
            await s.caller.ask("tools/call", REPORT, id=id)
        s.service.publish("notifications/tools/list_changed")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


@live
async def test_what_a_client_may_not_receive_yet_or_at_all_is_not_sent() -> None:
    async with served_app() as s:
        message = opening("2025-11-25")
        s.caller.session = (await s.caller.post(message)).headers["mcp-session-id"]
        s.service.publish("notifications/tools/list_changed")  # before initialized
        await s.caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        s.service.publish("notifications/tasks/status")
        s.service.publish("notifications/prompts/list_changed")
        _, stream = await s.caller.get()
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_a_notification_waits_while_its_reader_is_far_behind() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.get()
        (session,) = s.sessions
        listener = session._listeners[-1]
        listener.unread = 10**9
        s.service.publish("notifications/tools/list_changed")
        s.service.publish("notifications/tools/list_changed")
        assert len(session._backlog) == 1
        listener.unread = 0
        s.service.publish("notifications/prompts/list_changed")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_a_notification_that_nobody_reads_is_bounded() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        (session,) = s.sessions
        session.subscriptions.add("notes://")
        for n in range(1000):
            params = t.ResourceUpdatedNotificationParams(uri=f"notes://{n}")
            s.service.publish("notifications/resources/updated", params)
        assert len(session._backlog) == 256


# ---------------------------------------------------------------- batches


def requests(*names: str) -> list[dict[str, Any]]:
    return [
        {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name}}
        for n, name in enumerate(names)
    ]


@pytest.mark.spec("R0234")
@live
async def test_a_batch_is_answered_with_one_array() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        batch = [*requests("echo", "broken"), {"jsonrpc": "2.0", "method": "notifications/x"}]
        answer = await s.caller.post([*batch, {"jsonrpc": "2.0", "id": "p", "method": "ping"}])
        assert answer.status == 200
        assert {item["id"] for item in answer.json} == {0, 1, "p"}


@live
async def test_a_batch_that_reports_is_a_stream_with_every_answer() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        report = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": REPORT}
        _, stream = await s.caller.begin("POST", json.dumps([*requests("echo"), report]).encode())
        messages = [json.loads(event.data) for event in await stream.rest()]
        assert [m["method"] for m in messages[:-1]] == ["notifications/progress"] * 2
        assert {item["id"] for item in messages[-1]} == {0, 9}


@live
async def test_a_batch_with_nothing_to_answer_is_202() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        answer = await s.caller.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
        assert (answer.status, answer.body) == (202, b"")


@live
async def test_a_call_of_a_batch_can_be_cancelled_and_the_rest_is_answered() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        calls = requests("echo", "wait")
        posting = asyncio.create_task(s.caller.post(calls))
        await s.service.marks.reached("wait begun")
        assert (await s.caller.post(cancelled(1))).status == 202
        answer = await posting
        assert [item["id"] for item in answer.json] == [0]


@pytest.mark.parametrize("revision", [JUNE_2025, NOVEMBER_2025], ids=lambda r: r.date)
@live
async def test_where_there_are_no_batches_none_of_it_runs(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.post(requests("echo"))
        assert (answer.status, answer.code) == (400, -32600)
        assert not s.service.turns


@pytest.mark.spec("R0236")
@live
async def test_a_batch_with_initialize_opens_no_session() -> None:
    async with served_app() as s:
        for batch in ([opening("2025-03-26")], [opening("2025-03-26"), *requests("echo")]):
            answer = await s.caller.post(batch)
            assert (answer.status, answer.code) == (400, -32600)
            assert "mcp-session-id" not in answer.headers
        assert not s.service.turns


@pytest.mark.spec("R0236")
@live
async def test_an_initialize_in_a_batch_is_refused_by_itself() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        init = opening("2025-03-26") | {"id": 5}
        answer = await s.caller.post([*requests("echo"), init])
        by_id = {item["id"]: item for item in answer.json}
        assert by_id[5]["error"]["code"] == -32600
        assert "result" in by_id[0]
