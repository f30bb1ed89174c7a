"""Sessions over real sockets: handshake, streams, questions, resumption, and how they end."""

import asyncio
import json
from typing import Any

import pytest

from http_client import Caller
from http_service import FakeService
from live import Records, Stand, live, stand, until
from portico.errors import ConnectionLost
from portico.protocol import types as t
from portico.protocol.httprules_gate import Headers
from portico.protocol.questions import Question
from portico.protocol.revision import (
    EVERY,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2024,
    NOVEMBER_2025,
    Revision,
    Revisions,
)
from portico.transport.http_server import HttpApp
from portico.transport.http_sessions import Sessions
from portico.transport.http_visit import Limits

REPORT = {"name": "report", "_meta": {"progressToken": "p"}}
ABLE = {"elicitation": {}, "roots": {}, "sampling": {}}
SESSIONS = [MARCH_2025, JUNE_2025, NOVEMBER_2025]
each_session = pytest.mark.parametrize("revision", SESSIONS, ids=lambda r: r.date)


def sessions(app: HttpApp) -> Sessions:
    return app._sessions


def reporting(**arguments: Any) -> dict[str, Any]:
    return {**REPORT, "arguments": arguments}


def waiting(name: str = "wait") -> dict[str, Any]:
    return {"name": "wait", "arguments": {"name": name}}


def cancelled(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


# ---------------------------------------------------------------- the handshake


@pytest.mark.spec("R0283", "R0284")
@live
async def test_initialize_opens_a_session_with_a_name_that_nobody_guesses(
    revision: Revision,
) -> None:
    async with stand() as s:
        names: set[str] = set()
        for _ in range(10):
            answer = await s.caller.initialize(revision.date)
            assert answer.status == 200
            assert answer.json["result"]["protocolVersion"] == revision.date
            names.add(answer.headers["mcp-session-id"])
            s.caller.session = None
        assert len(names) == 10
        assert all(len(name) >= 32 for name in names)
        assert all("!" <= sign <= "~" for name in names for sign in name)


@pytest.mark.parametrize("revision", EVERY.handshakes, ids=lambda r: r.date)
@live
async def test_every_revision_with_a_handshake_can_be_spoken_here(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.ask("tools/list")
        assert answer.json["result"]["tools"][0]["name"] == "echo"
        assert (await s.caller.ask("ping")).json["result"] == {}


@live
async def test_an_unknown_version_is_answered_with_our_newest_handshake() -> None:
    async with stand() as s:
        answer = await s.caller.initialize("2099-01-01")
        assert answer.json["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 1}, {"protocolVersion": "2025-11-25"}])
@live
async def test_a_bad_initialize_opens_nothing(params: dict[str, Any]) -> None:
    async with stand() as s:
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await s.caller.post(message)
        assert (answer.status, answer.code) == (400, -32602)
        assert "mcp-session-id" not in answer.headers
        assert len(sessions(s.app)) == 0
        assert s.service.watchers == 0


@live
async def test_a_name_that_the_client_chose_is_never_taken() -> None:
    async with stand() as s:
        answer = await s.caller.initialize("2025-11-25", mcp_session_id="chosen")
        assert answer.status == 404
        assert len(sessions(s.app)) == 0


@live
async def test_a_second_initialize_inside_a_session_is_refused_and_changes_nothing() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-06-18")
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        message = {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": params}
        answer = await s.caller.post(message)
        assert (answer.status, answer.code) == (400, -32600)
        assert len(sessions(s.app)) == 1
        assert (await s.caller.ask("tools/list")).status == 200


# ---------------------------------------------------------------- naming the session


@pytest.mark.spec("R0286")
@live
async def test_without_its_name_a_session_is_not_found(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        s.caller.session = None
        assert (await s.caller.ask("tools/list")).status == 400
        told = await s.caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert told.status == 400
        wire, stream = await s.caller.get()
        assert stream.status == 400
        wire.close()
        assert (await s.caller.request("DELETE")).status == 400


@pytest.mark.spec("R0287")
@live
async def test_after_its_end_a_session_is_404_for_everything(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        assert (await s.caller.request("DELETE")).status == 200
        assert (await s.caller.ask("tools/list")).status == 404
        told = await s.caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert told.status == 404
        wire, stream = await s.caller.get()
        assert stream.status == 404
        wire.close()
        assert (await s.caller.request("DELETE")).status == 404
        assert s.service.watchers == 0
        assert (await s.caller.initialize(revision.date, mcp_session_id=None)).status == 200


async def verify(headers: Headers) -> str:
    return headers.get(b"authorization", b"").decode()


@live
async def test_another_principals_session_does_not_exist() -> None:
    async with stand(verify=verify) as s:
        await s.caller.initialize("2025-11-25", authorization=None)
        s.caller.session = None
        s.caller.revision = None
        answer = await s.caller.post(
            {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "a", "version": "1"},
                },
            },
            authorization="ada",
        )
        s.caller.session = answer.headers["mcp-session-id"]
        own = await s.caller.ask("ping", authorization="ada")
        assert own.status == 200
        stolen = await s.caller.ask("ping", authorization="eve")
        unknown = await s.caller.ask("ping", authorization="eve", mcp_session_id="x" * 32)
        assert (stolen.status, stolen.body) == (unknown.status, unknown.body)
        assert stolen.status == 404
        assert (await s.caller.request("DELETE", authorization="eve")).status == 404
        wire, stream = await s.caller.get(authorization="eve")
        assert stream.status == 404
        wire.close()
        assert (await s.caller.ask("ping", authorization="ada")).status == 200


@pytest.mark.spec("R0359")
@live
async def test_an_unsupported_version_header_is_400(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.ask("tools/list", mcp_protocol_version="1999-01-01")
        assert answer.status == 400
        wire, stream = await s.caller.get(mcp_protocol_version="1999-01-01")
        assert stream.status == 400
        wire.close()


@live
async def test_a_bad_body_inside_a_session_has_the_id_that_its_revision_wants() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-03-26")
        old = await s.caller.request("POST", b"{")
        assert (old.status, old.json["id"]) == (400, None)
        s.caller.session = None
        await s.caller.initialize("2025-11-25")
        new = await s.caller.request("POST", b"{")
        assert new.status == 400
        assert "id" not in new.json


# ---------------------------------------------------------------- answers


@pytest.mark.spec("R0249")
@live
async def test_what_needs_no_answer_is_202_with_no_body(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        for message in (
            {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"},
            {"jsonrpc": "2.0", "id": 99, "result": {}},
            {"jsonrpc": "2.0", "id": 99, "error": {"code": -1, "message": "no"}},
            cancelled(99),
        ):
            answer = await s.caller.post(message)
            assert (answer.status, answer.body) == (202, b"")
        assert s.service.heard == ["notifications/initialized", "notifications/roots/list_changed"]


@pytest.mark.spec("R0252")
@live
async def test_a_request_is_answered_with_json_or_a_stream(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        plain = await s.caller.ask("tools/call", {"name": "echo"})
        assert plain.headers["content-type"] == "application/json"
        stream = await s.caller.ask("tools/call", REPORT)
        assert stream.is_stream


@pytest.mark.spec("R0254", "R0257", "R0270", "R0278")
@live
async def test_reports_come_on_the_stream_of_their_own_request(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        get, listening = await s.caller.get()
        wire, stream = await s.caller.asking("tools/call", REPORT, id=7)
        events = await stream.rest()
        ids = [event.id for event in events]
        assert len(set(ids)) == len(ids)
        assert None not in ids
        messages = [json.loads(event.data) for event in events if event.data]
        assert [m.get("method", "answer") for m in messages] == [
            "notifications/progress",
            "notifications/progress",
            "answer",
        ]
        assert messages[-1]["id"] == 7
        s.service.publish("notifications/tools/list_changed")
        assert (await listening.message())["method"] == "notifications/tools/list_changed"
        wire.close()
        get.close()


@pytest.mark.spec("R0486")
@live
async def test_a_stream_begins_with_an_event_to_come_back_to() -> None:
    async with stand() as s:
        await s.caller.initialize(NOVEMBER_2025.date)
        stream = await s.caller.ask("tools/call", REPORT)
        first = stream.body.split(b"\n\n")[0]
        assert b"id: " in first
        assert first.endswith(b"data: ")
        assert b"retry: " in first


@pytest.mark.parametrize("revision", [NOVEMBER_2024, MARCH_2025, JUNE_2025], ids=lambda r: r.date)
@live
async def test_revisions_that_know_no_empty_event_get_none(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        wire, stream = await s.caller.asking("tools/call", REPORT)
        events = await stream.rest()
        assert all(event.data for event in events)
        assert all((event.id is not None) is revision.http.resumable for event in events)
        wire.close()


@pytest.mark.spec("R0260", "R0492")
@live
async def test_the_stream_of_a_request_ends_after_its_answer(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        wire, stream = await s.caller.asking("tools/call", REPORT)
        events = await stream.rest()
        assert json.loads(events[-1].data)["result"]
        wire.close()


@live
async def test_who_takes_no_events_gets_the_answer_alone_and_cannot_be_asked() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        answer = await s.caller.ask("tools/call", REPORT, accept="application/json")
        assert answer.text == "done"
        answer = await s.caller.ask("tools/call", {"name": "ask"}, accept="application/json")
        assert answer.text.startswith("lost: this client takes no event stream")


@live
async def test_who_takes_events_alone_gets_everything_as_events() -> None:
    async with stand() as s:
        answer = await s.caller.request(
            "POST",
            json.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 0,
                    "method": "initialize",
                    "params": {
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "clientInfo": {"name": "a", "version": "1"},
                    },
                }
            ).encode(),
            accept="text/event-stream",
        )
        assert answer.is_stream
        s.caller.session = answer.headers["mcp-session-id"]
        wire, stream = await s.caller.asking("tools/list", accept="text/event-stream")
        assert (await stream.message())["result"]["tools"]
        wire.close()


@live
async def test_an_id_that_is_in_use_is_400_and_the_first_call_goes_on() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        first = asyncio.create_task(s.caller.ask("tools/call", waiting(), id=7))
        await s.service.marks.reached("wait begun")
        assert (await s.caller.ask("tools/list", id="7")).status == 200
        second = await s.caller.ask("tools/list", id=7)
        assert (second.status, second.code) == (400, -32600)
        s.service.go.mark("wait")
        assert (await first).text == "waited"
        assert (await s.caller.ask("tools/list", id=7)).status == 200


@live
async def test_errors_in_a_session_have_200() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        for params in ({"name": "nobody"}, {"name": "broken"}, {"name": "needs_sampling"}):
            answer = await s.caller.ask("tools/call", params)
            assert answer.status == 200
            assert "error" in answer.json
        unknown = await s.caller.ask("no/such")
        assert (unknown.status, unknown.code) == (200, -32601)


@live
async def test_an_enveloped_request_beside_a_session_is_answered_in_its_own_way() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        answer = await s.caller.modern("tools/list")
        assert answer.json["result"]["resultType"] == "complete"
        assert s.service.turns[-1].session is None


# ---------------------------------------------------------------- questions


@each_session
@live
async def test_a_question_goes_on_the_stream_of_its_call_and_its_answer_comes_by_post(
    revision: Revision,
) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date, ABLE)
        get, listening = await s.caller.get()
        wire, stream = await s.caller.asking("tools/call", {"name": "roots"})
        question = await stream.message()
        assert question["method"] == "roots/list"
        reply = {
            "jsonrpc": "2.0",
            "id": question["id"],
            "result": {"roots": [{"uri": "file:///a"}]},
        }
        assert (await s.caller.post(reply)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "1 roots"
        s.service.publish("notifications/tools/list_changed")
        # R0275: nothing of it was on the other stream.
        assert (await listening.message())["method"] == "notifications/tools/list_changed"
        wire.close()
        get.close()


@live
async def test_a_question_that_is_refused_or_answered_twice() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        question = await stream.message()
        error = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}
        assert (await s.caller.post(error)).status == 202
        assert (await s.caller.post(error)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "refused: no"


@live
async def test_another_session_cannot_answer_a_question() -> None:
    async with stand() as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25", ABLE)
        await other.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        question = await stream.message()
        answer = {"action": "accept", "content": {"name": "forged"}}
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
        assert (await other.post(reply)).status == 202
        answer["content"] = {"name": "real"}
        assert (await s.caller.post(reply)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: real"


@live
async def test_a_cancelled_call_takes_its_question_back() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"}, id=7)
        question = await stream.message()
        assert (await s.caller.post(cancelled(7))).status == 202
        gone = await stream.message()
        assert gone["method"] == "notifications/cancelled"
        assert gone["params"]["requestId"] == question["id"]
        assert await stream.rest() == []
        assert s.service.running == 0


# ---------------------------------------------------------------- cancelling


@pytest.mark.spec("R0262")
@live
async def test_losing_the_connection_is_not_cancelling(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        wire, _ = await _begin_wait(s)
        wire.abort()
        await until(lambda: len(s.app.sweep) == 0)
        assert s.service.running == 1
        s.service.go.mark("wait")
        await s.service.marks.reached("wait done")
        assert "wait cancelled" not in s.service.marks.log


async def _begin_wait(s: Stand, id: Any = 1) -> tuple[Any, asyncio.Task[Any]]:
    before = s.service.running
    calling = asyncio.create_task(s.caller.ask("tools/call", waiting(), id=id))
    await until(lambda: s.service.running > before)
    calling.add_done_callback(lambda task: task.cancelled() or task.exception())
    return s.caller.wires[-1], calling


@live
async def test_a_notification_cancels_and_the_call_gets_no_answer() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        calling = asyncio.create_task(s.caller.ask("tools/call", waiting(), id="a"))
        await s.service.marks.reached("wait begun")
        assert (await s.caller.post(cancelled("a"))).status == 202
        answer = await calling
        assert answer.status == 200
        assert answer.body == b""
        await s.service.marks.reached("wait cancelled")


@live
async def test_one_session_cannot_cancel_in_another() -> None:
    async with stand() as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await other.initialize("2025-11-25")
        calling = asyncio.create_task(s.caller.ask("tools/call", waiting(), id=7))
        await s.service.marks.reached("wait begun")
        assert (await other.post(cancelled(7))).status == 202
        s.service.go.mark("wait")
        assert (await calling).text == "waited"


# ---------------------------------------------------------------- coming back


@pytest.mark.spec("R0281")
@live
async def test_a_lost_stream_goes_on_after_exactly_the_last_event(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        params = reporting(steps=3, wait=True)
        wire, stream = await s.caller.asking("tools/call", params, id=1)
        other_wire, other = await s.caller.asking("tools/call", params, id=2)
        first = await _numbered(stream)
        await _numbered(other)
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


async def _numbered(stream: Any) -> Any:
    """The next event with a message in it."""
    while not (event := await stream.event()).data:
        pass
    return event


@live
async def test_an_answer_that_nobody_was_there_for_waits_on_its_stream() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", reporting(steps=1, wait=True))
        event = await _numbered(stream)
        wire.abort()
        await until(lambda: len(s.app.sweep) == 0)
        s.service.go.mark("step 1")
        await until(lambda: s.service.running == 0)
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert (await resumed.message())["result"]["content"][0]["text"] == "done"
        assert await resumed.rest() == []


@pytest.mark.spec("R0489")
@live
async def test_a_handler_can_let_the_connection_go_and_the_client_polls_for_the_rest() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", {"name": "reconnect"})
        events = await stream.rest()
        assert [event.data for event in events] == [b"", b""]
        assert events[-1].retry_ms == 1000
        wire.close()
        resumed_wire, resumed = await s.caller.get(last_event_id=events[-1].id)
        s.service.go.mark("reconnect")
        assert (await resumed.message())["result"]["content"][0]["text"] == "here is the rest"
        assert await resumed.rest() == []
        resumed_wire.close()


@pytest.mark.spec("R0259")
@live
async def test_revisions_that_know_no_polling_keep_the_connection(revision: Revision) -> None:
    async with stand() as s:
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
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        await s.caller.ask("tools/call", REPORT)
        wire, stream = await s.caller.get(last_event_id=event)
        assert stream.status == 400
        wire.close()


@live
async def test_an_event_of_another_session_is_unknown() -> None:
    async with stand() as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await other.initialize("2025-11-25")
        for caller in (s.caller, other):
            await caller.ask("tools/call", REPORT)
        _, stream = await s.caller.asking("tools/call", REPORT)
        event = await stream.event()
        wire, foreign = await other.get(last_event_id=event.id)
        assert foreign.status == 400
        wire.close()


@pytest.mark.spec("R0494")
@live
async def test_event_ids_name_their_stream() -> None:
    async with stand() as s:
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
async def test_a_stream_of_news_that_is_let_go_is_told_when_to_come_back() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.get()
        s.service.publish("notifications/tools/list_changed")
        event = await _numbered(stream)
        sessions(s.app).drain()
        (last,) = await stream.rest()
        assert (last.data, last.retry_ms) == (b"", 1000)
        s.service.publish("notifications/prompts/list_changed")
        assert last.id == event.id
        _, resumed = await s.caller.get(last_event_id=last.id)
        assert (await resumed.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_a_handler_that_lets_go_of_nobody_changes_nothing() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", {"name": "reconnect"})
        last = (await stream.rest())[-1]
        wire.close()
        turn = s.service.turns[-1]
        await turn.wire.hang_up()
        _, resumed = await s.caller.get(last_event_id=last.id)
        s.service.go.mark("reconnect")
        assert (await resumed.message())["result"]


@live
async def test_a_call_whose_client_can_never_come_back_can_ask_nothing() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        wire, calling = await _begin_wait(s)
        turn = s.service.turns[-1]
        wire.abort()
        await until(lambda: len(s.app.sweep) == 0)
        with pytest.raises(ConnectionLost, match="cannot come back"):
            await turn.wire.ask(Question(t.ListRootsRequestParams()))
        await turn.wire.send(b"{}")
        assert not next(iter(sessions(s.app)))._streams
        s.service.go.mark("wait")
        await s.settled()
        calling.cancel()


@live
async def test_a_question_to_a_client_that_cannot_come_back_ends_when_it_goes() -> None:
    async with stand() as s:
        await s.caller.initialize("2024-11-05", ABLE)  # its streams are not resumed
        wire, stream = await s.caller.asking("tools/call", {"name": "roots"})
        await stream.message()
        wire.abort()
        await s.settled()


@live
async def test_a_number_that_is_still_to_come_is_unknown() -> None:
    async with stand() as s:
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
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", reporting(steps=1, wait=True))
        event = await _numbered(stream)
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert await wire.closed()
        s.service.go.mark("step 1")
        assert (await resumed.message())["result"]


# ---------------------------------------------------------------- news


@pytest.mark.spec("R0244", "R0267")
@live
async def test_a_get_is_a_stream_of_news(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        wire, stream = await s.caller.get()
        assert stream.status == 200
        assert stream.is_stream
        s.service.publish("notifications/tools/list_changed")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        wire.close()


@pytest.mark.spec("R0275")
@live
async def test_news_is_on_one_stream_only(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        first_wire, first = await s.caller.get()
        second_wire, second = await s.caller.get()
        s.service.publish("notifications/tools/list_changed")
        assert (await second.message())["method"] == "notifications/tools/list_changed"
        second_wire.abort()
        await until(lambda: len(s.app.sweep) == 1)
        s.service.publish("notifications/prompts/list_changed")
        assert (await first.message())["method"] == "notifications/prompts/list_changed"
        first_wire.close()


@live
async def test_news_that_nobody_was_there_for_is_kept_once() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        for _ in range(5):
            s.service.publish("notifications/tools/list_changed")
        s.service.publish("notifications/prompts/list_changed")
        _, stream = await s.caller.get()
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_updates_reach_those_who_subscribed() -> None:
    async with stand() as s, Caller(s.site.port) as other:
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
async def test_a_lost_stream_of_news_goes_on() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.get()
        s.service.publish("notifications/tools/list_changed")
        event = await _numbered(stream)
        s.service.publish("notifications/prompts/list_changed")
        wire.abort()
        await until(lambda: len(s.app.sweep) == 0)
        s.service.publish("notifications/resources/list_changed")
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert (await resumed.message())["method"] == "notifications/prompts/list_changed"
        assert (await resumed.message())["method"] == "notifications/resources/list_changed"


@pytest.mark.spec("R0271")
@live
async def test_no_answer_is_ever_on_the_stream_of_news(revision: Revision) -> None:
    async with stand() as s:
        await s.caller.initialize(revision.date)
        _, stream = await s.caller.get()
        for id in range(5):
            await s.caller.ask("tools/call", REPORT, id=id)
        s.service.publish("notifications/tools/list_changed")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


@live
async def test_what_a_client_may_not_hear_yet_or_at_all_is_no_news() -> None:
    async with stand() as s:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "caller", "version": "1.0"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        s.caller.session = (await s.caller.post(message)).headers["mcp-session-id"]
        s.service.publish("notifications/tools/list_changed")  # before initialized
        await s.caller.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        s.service.publish("notifications/tasks/status")
        s.service.publish("notifications/prompts/list_changed")
        _, stream = await s.caller.get()
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


@live
async def test_news_waits_while_its_reader_is_far_behind() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.get()
        (session,) = sessions(s.app)
        listener = session._listeners[-1]
        listener.unread = 10**9
        s.service.publish("notifications/tools/list_changed")
        s.service.publish("notifications/tools/list_changed")
        assert len(session._backlog) == 1
        listener.unread = 0
        s.service.publish("notifications/prompts/list_changed")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"


# ---------------------------------------------------------------- batches


def requests(*names: str) -> list[dict[str, Any]]:
    return [
        {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name}}
        for n, name in enumerate(names)
    ]


@live
async def test_a_batch_is_answered_with_one_array() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-03-26")
        batch = [*requests("echo", "broken"), {"jsonrpc": "2.0", "method": "notifications/x"}]
        answer = await s.caller.post([*batch, {"jsonrpc": "2.0", "id": "p", "method": "ping"}])
        assert answer.status == 200
        assert {item["id"] for item in answer.json} == {0, 1, "p"}


@live
async def test_a_batch_that_reports_is_a_stream_with_every_answer() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-03-26")
        report = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": REPORT}
        _, stream = await s.caller.begin("POST", json.dumps([*requests("echo"), report]).encode())
        messages = [json.loads(event.data) for event in await stream.rest()]
        assert [m["method"] for m in messages[:-1]] == ["notifications/progress"] * 2
        assert {item["id"] for item in messages[-1]} == {0, 9}


@live
async def test_a_batch_with_nothing_to_answer_is_202() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-03-26")
        answer = await s.caller.post([{"jsonrpc": "2.0", "method": "notifications/initialized"}])
        assert (answer.status, answer.body) == (202, b"")


@live
async def test_a_call_of_a_batch_can_be_cancelled_and_the_rest_is_answered() -> None:
    async with stand() as s:
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
    async with stand() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.post(requests("echo"))
        assert (answer.status, answer.code) == (400, -32600)
        assert not s.service.turns


@live
async def test_an_initialize_in_a_batch_is_refused_by_itself() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-03-26")
        init = {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {}}
        answer = await s.caller.post([*requests("echo"), init])
        by_id = {item["id"]: item for item in answer.json}
        assert by_id[5]["error"]["code"] == -32600
        assert "result" in by_id[0]


# ---------------------------------------------------------------- limits and ends


@live
async def test_deleting_a_session_answers_what_runs_and_ends_its_streams() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        _, news = await s.caller.get()
        calling = asyncio.create_task(s.caller.ask("tools/call", waiting()))
        await s.service.marks.reached("wait begun")
        _, stream = await s.caller.asking("tools/call", reporting(wait=True), id=2)
        await stream.message()
        assert (await s.caller.request("DELETE")).status == 200
        assert (await calling).code == -32603
        assert (await stream.message())["error"]["code"] == -32603
        assert all(not event.data for event in await news.rest())
        await s.service.marks.reached("wait cancelled")
        await s.settled()
        assert not sessions(s.app).shared.tasks


@live
async def test_deleting_a_session_ends_the_questions_that_wait_in_it() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        await stream.message()
        assert (await s.caller.request("DELETE")).status == 200
        assert (await stream.message())["error"]["code"] == -32603
        await s.settled()


@live
async def test_the_longest_unused_session_makes_room_for_a_new_one() -> None:
    async with stand(limits=Limits(sessions=2)) as s:
        callers = [Caller(s.site.port) for _ in range(3)]
        for caller in callers[:2]:
            await caller.initialize("2025-11-25")
        wire, _ = await callers[0].get()
        assert (await callers[2].initialize("2025-11-25")).status == 200
        assert (await callers[1].ask("ping")).status == 404
        assert (await callers[0].ask("ping")).status == 200
        assert len(sessions(s.app)) == 2
        wire.abort()


@live
async def test_where_every_session_is_in_use_there_is_no_room() -> None:
    async with stand(limits=Limits(sessions=1)) as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await s.caller.get()
        answer = await other.initialize("2025-11-25")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert len(sessions(s.app)) == 1
        assert s.service.watchers == 1


@live
async def test_one_principal_cannot_take_all_places() -> None:
    async with stand(verify=verify, limits=Limits(sessions_per_principal=2)) as s:
        for _ in range(10):
            s.caller.session = None
            message = {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "a", "version": "1"},
                },
            }
            assert (await s.caller.post(message, authorization="ada")).status == 200
        assert len(sessions(s.app)) == 2


@live
async def test_sessions_end_when_they_are_idle_or_old_or_never_used() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        table = sessions(s.app)
        (session,) = table
        limits = s.app.limits
        now = session.used
        table.look_at(session, now + limits.session_idle_s)
        assert len(table) == 1
        table.look_at(session, now + limits.session_idle_s + 1)
        assert len(table) == 0
        s.caller.session = None
        await s.caller.initialize("2025-11-25")
        (session,) = table
        session.created -= limits.session_s + 1
        assert (await s.caller.ask("ping")).status == 404
        s.caller.session = None
        await s.caller.initialize("2025-11-25")
        (session,) = table
        table._unused[session.id] = session
        table.look_at(session, session.used + 61)
        assert len(table) == 0
        assert s.service.watchers == 0


@live
async def test_the_timer_looks_at_sessions() -> None:
    async with stand(limits=Limits(session_idle_s=-1)) as s:
        await s.caller.initialize("2025-11-25")
        await until(lambda: len(sessions(s.app)) == 0)


@live
async def test_a_session_with_a_connection_is_not_idle() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        await s.caller.get()
        table = sessions(s.app)
        (session,) = table
        table.look_at(session, table.shared.clock() + 10 * s.app.limits.session_idle_s)
        assert len(table) == 1


@live
async def test_streams_of_one_session_are_bounded() -> None:
    async with stand(limits=Limits(session_streams=3)) as s:
        await s.caller.initialize("2025-11-25")
        for _ in range(3):
            _, stream = await s.caller.get()
            assert stream.status == 200
        _, stream = await s.caller.get()
        assert stream.status == 503


@live
async def test_what_is_kept_for_those_who_come_back_is_bounded_and_ends() -> None:
    async with stand(limits=Limits(session_bytes=10_000)) as s:
        await s.caller.initialize("2025-11-25")
        for id in range(20):
            await s.caller.ask("tools/call", reporting(steps=2, size=1000), id=id)
        table = sessions(s.app)
        (session,) = table
        assert 0 < session.size <= 10_000
        assert table.shared.ledger.size == session.size
        table.look_at(session, table.shared.clock() + s.app.limits.kept_s + 1)
        assert session.size == table.shared.ledger.size == 0


@live
async def test_what_is_kept_for_all_sessions_together_is_bounded() -> None:
    async with stand(limits=Limits(kept_bytes=10_000)) as s:
        for _ in range(10):
            s.caller.session = None
            await s.caller.initialize("2025-11-25")
            await s.caller.ask("tools/call", reporting(steps=2, size=1000))
        table = sessions(s.app)
        assert len(table) == 10
        assert 0 < table.shared.ledger.size <= 13_000
        first, *_, last = table
        assert (first.size, last.size > 2000) == (0, True)


@live
async def test_json_answers_are_not_kept() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        for id in range(5):
            await s.caller.ask("tools/list", id=id)
        (session,) = sessions(s.app)
        assert not session._streams


@live
async def test_an_unread_stream_that_nobody_reads_forgets_its_oldest_messages() -> None:
    async with stand(limits=Limits(stream_bytes=5_000)) as s:
        await s.caller.initialize("2025-11-25")
        params = reporting(steps=20, size=1000, wait=True)
        wire, stream = await s.caller.asking("tools/call", params)
        event = await _numbered(stream)
        wire.abort()
        await until(lambda: len(s.app.sweep) == 0)
        for step in range(1, 21):
            s.service.go.mark(f"step {step}")
        await until(lambda: s.service.running == 0)
        (session,) = sessions(s.app)
        assert session.size < 7_000
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert resumed.status == 400  # what came after it is gone, and that must be said


@live
async def test_a_handler_waits_for_a_reader_that_is_behind_and_goes_on_when_it_is_cut() -> None:
    async with stand(limits=Limits(write_s=0.01, stream_bytes=2_000_000)) as s:
        await s.caller.initialize("2025-11-25")
        params = reporting(steps=200, size=100_000)
        wire, stream = await s.caller.asking("tools/call", params)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: s.service.running == 0)
        await s.settled()
        (session,) = sessions(s.app)
        assert session.size < 2_300_000
        assert stream.is_stream


@live
async def test_nothing_is_lost_between_a_handler_and_a_reader_that_reads() -> None:
    async with stand(limits=Limits(stream_bytes=100_000)) as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", reporting(steps=100, size=20_000))
        events = [json.loads(event.data) for event in await stream.rest() if event.data]
        assert [m["params"]["progress"] for m in events[:-1]] == list(range(1, 101))
        wire.close()


@live
async def test_what_runs_in_all_sessions_together_is_bounded() -> None:
    async with stand(limits=Limits(visits=2)) as s:
        await s.caller.initialize("2025-11-25")
        for id in range(2):
            wire, _ = await _begin_wait(s, id)
            wire.abort()
            await until(lambda: len(s.app.sweep) == 0)
        assert (await s.caller.ask("tools/list", id=9)).status == 503
        s.service.go.mark("wait")
        await s.settled()
        assert (await s.caller.ask("tools/list", id=9)).status == 200


@live
async def test_a_flood_of_handshakes_ends_none_of_the_sessions_that_are_used() -> None:
    async with stand(limits=Limits(sessions=5)) as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "flood", "version": "1.0"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        for _ in range(50):
            assert (await other.post(message)).status == 200
        assert len(sessions(s.app)) == 5
        assert s.service.watchers == 5
        assert (await s.caller.ask("ping")).status == 200


@live
async def test_a_header_that_names_another_revision_is_forgiven_and_logged_once() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        with Records("portico.transport") as records:
            for id in range(3):
                answer = await s.caller.ask("tools/list", id=id, mcp_protocol_version="2025-06-18")
                assert answer.status == 200
        assert records.lines == [
            "WARNING MCP-Protocol-Version is 2025-06-18, the session speaks 2025-11-25"
        ]


@live
async def test_a_long_call_becomes_a_stream_that_can_be_resumed() -> None:
    async with stand(limits=Limits(keep_alive_s=0.01)) as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", waiting())
        assert stream.is_stream
        event = await stream.event()
        assert event.data == b""
        wire.abort()
        _, resumed = await s.caller.get(last_event_id=event.id)
        s.service.go.mark("wait")
        assert (await resumed.message())["result"]["content"][0]["text"] == "waited"


@live
async def test_a_question_that_nobody_answers_ends() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        question = await stream.message()
        table = sessions(s.app)
        table._tick(table.shared.clock() + 601)
        gone = await stream.message()
        assert gone["params"]["requestId"] == question["id"]
        assert "lost: no answer" in (await stream.message())["result"]["content"][0]["text"]


@live
async def test_sessions_are_left_when_the_server_stops() -> None:
    async with stand() as s:
        await s.caller.initialize("2025-11-25")
        await s.caller.get()
        calling = asyncio.create_task(s.caller.ask("tools/call", waiting()))
        await s.service.marks.reached("wait begun")
        await s.site.stop(0.0)
        assert (await calling).code == -32603
        assert s.service.watchers == 0
        assert isinstance(s.service, FakeService)
        assert s.service.stops == 1


@live
async def test_a_server_of_one_revision_with_sessions_has_no_other() -> None:
    async with stand(Revisions((JUNE_2025,))) as s:
        assert (await s.caller.modern("tools/list")).status == 400
        await s.caller.initialize("2025-06-18")
        assert (await s.caller.ask("tools/list")).status == 200
