"""Sessions over real sockets: how they begin, how they are named, answers, questions."""

import asyncio
import json
from typing import Any

import pytest

from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import (
    EVERY,
    JUNE_2025,
    MARCH_2025,
    NOVEMBER_2024,
    NOVEMBER_2025,
    Revision,
)
from http_client import Caller, cancelled, opening
from http_service import ABLE, REPORT, waiting
from live import live, served_app

SESSIONS = [MARCH_2025, JUNE_2025, NOVEMBER_2025]
each_session = pytest.mark.parametrize("revision", SESSIONS, ids=lambda r: r.date)


# ---------------------------------------------------------------- the handshake


@pytest.mark.spec("R0283", "R0284")
@live
async def test_initialize_opens_a_session_with_a_name_that_nobody_guesses(
    revision: Revision,
) -> None:
    async with served_app() as s:
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
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.ask("tools/list")
        assert answer.json["result"]["tools"][0]["name"] == "echo"
        assert (await s.caller.ask("ping")).json["result"] == {}


@pytest.mark.spec("R0355")
@live
async def test_a_batch_in_a_session_is_refused_and_none_of_it_runs(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.post(
            [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in (1, 2)]
        )
        assert (answer.status, answer.code) == (400, -32600)
        assert not s.service.turns


@live
async def test_an_unknown_version_is_answered_with_our_newest_handshake() -> None:
    async with served_app() as s:
        answer = await s.caller.initialize("2099-01-01")
        assert answer.json["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": 1}, {"protocolVersion": "2025-11-25"}])
@live
async def test_a_bad_initialize_opens_nothing(params: dict[str, Any]) -> None:
    async with served_app() as s:
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await s.caller.post(message)
        assert (answer.status, answer.code) == (400, -32602)
        assert "mcp-session-id" not in answer.headers
        assert len(s.sessions) == 0
        assert s.service.watchers == 0


@live
async def test_a_name_that_the_client_chose_is_never_taken() -> None:
    async with served_app() as s:
        answer = await s.caller.initialize("2025-11-25", mcp_session_id="chosen")
        assert answer.status == 404
        assert len(s.sessions) == 0


@live
async def test_a_second_initialize_inside_a_session_is_refused_and_changes_nothing() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-06-18")
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
        message = {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": params}
        answer = await s.caller.post(message)
        assert (answer.status, answer.code) == (400, -32600)
        assert len(s.sessions) == 1
        assert (await s.caller.ask("tools/list")).status == 200


# ---------------------------------------------------------------- naming the session


@pytest.mark.spec("R0286")
@live
async def test_without_its_name_a_session_is_not_found(revision: Revision) -> None:
    async with served_app() as s:
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
    async with served_app() as s:
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
    async with served_app(verify=verify) as s:
        await s.caller.initialize("2025-11-25", authorization=None)
        s.caller.session = None
        s.caller.revision = None
        answer = await s.caller.post(
            opening("2025-11-25"),
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
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        answer = await s.caller.ask("tools/list", mcp_protocol_version="1999-01-01")
        assert answer.status == 400
        # Clients of other SDKs look for these words.
        assert answer.json["error"]["message"].startswith("Unsupported protocol version: ")
        wire, stream = await s.caller.get(mcp_protocol_version="1999-01-01")
        assert stream.status == 400
        wire.close()


@live
async def test_a_bad_body_inside_a_session_has_the_id_that_its_revision_wants() -> None:
    async with served_app() as s:
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
    async with served_app() as s:
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
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        plain = await s.caller.ask("tools/call", {"name": "echo"})
        assert plain.headers["content-type"] == "application/json"
        stream = await s.caller.ask("tools/call", REPORT)
        assert stream.is_stream


@pytest.mark.spec("R0254", "R0257", "R0270", "R0278")
@live
async def test_reports_come_on_the_stream_of_their_own_request(revision: Revision) -> None:
    async with served_app() as s:
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
    async with served_app() as s:
        await s.caller.initialize(NOVEMBER_2025.date)
        stream = await s.caller.ask("tools/call", REPORT)
        first = stream.body.split(b"\n\n")[0]
        assert b"id: " in first
        assert first.endswith(b"data: ")
        assert b"retry: " in first


@pytest.mark.parametrize("revision", [NOVEMBER_2024, MARCH_2025, JUNE_2025], ids=lambda r: r.date)
@live
async def test_revisions_that_know_no_empty_event_get_none(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        wire, stream = await s.caller.asking("tools/call", REPORT)
        events = await stream.rest()
        assert all(event.data for event in events)
        assert all((event.id is not None) is revision.http.resumable for event in events)
        wire.close()


@pytest.mark.spec("R0260", "R0492")
@live
async def test_the_stream_of_a_request_ends_after_its_answer(revision: Revision) -> None:
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        wire, stream = await s.caller.asking("tools/call", REPORT)
        events = await stream.rest()
        assert json.loads(events[-1].data)["result"]
        wire.close()


@live
async def test_who_takes_no_events_gets_the_answer_alone_and_cannot_be_asked() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        answer = await s.caller.ask("tools/call", REPORT, accept="application/json")
        assert answer.text == "done"
        answer = await s.caller.ask("tools/call", {"name": "ask"}, accept="application/json")
        assert answer.text.startswith("lost: this client accepts no event stream")


@live
async def test_who_takes_events_alone_gets_everything_as_events() -> None:
    async with served_app() as s:
        answer = await s.caller.request(
            "POST",
            json.dumps(opening("2025-11-25")).encode(),
            accept="text/event-stream",
        )
        assert answer.is_stream
        s.caller.session = answer.headers["mcp-session-id"]
        wire, stream = await s.caller.asking("tools/list", accept="text/event-stream")
        assert (await stream.message())["result"]["tools"]
        wire.close()


@live
async def test_an_id_that_is_in_use_is_400_and_the_first_call_goes_on() -> None:
    async with served_app() as s:
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
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        for params in ({"name": "nobody"}, {"name": "broken"}, {"name": "needs_sampling"}):
            answer = await s.caller.ask("tools/call", params)
            assert answer.status == 200
            assert "error" in answer.json
        unknown = await s.caller.ask("no/such")
        assert (unknown.status, unknown.code) == (200, -32601)


@live
async def test_an_enveloped_request_beside_a_session_is_answered_in_its_own_way() -> None:
    async with served_app() as s:
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
    async with served_app() as s:
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
    async with served_app() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        question = await stream.message()
        error = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no"}}
        assert (await s.caller.post(error)).status == 202
        assert (await s.caller.post(error)).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "refused: no"


@live
async def test_another_session_cannot_answer_a_question() -> None:
    async with served_app() as s, Caller(s.site.port) as other:
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
    async with served_app() as s:
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
    async with served_app() as s:
        await s.caller.initialize(revision.date)
        wire, _ = await s.begin_wait()
        wire.abort()
        await s.wait_for_disconnects()
        assert s.service.running == 1
        s.service.go.mark("wait")
        await s.service.marks.reached("wait done")
        assert "wait cancelled" not in s.service.marks.log


@live
async def test_a_notification_cancels_and_the_call_gets_no_answer() -> None:
    async with served_app() as s:
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
    async with served_app() as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await other.initialize("2025-11-25")
        calling = asyncio.create_task(s.caller.ask("tools/call", waiting(), id=7))
        await s.service.marks.reached("wait begun")
        assert (await other.post(cancelled(7))).status == 202
        s.service.go.mark("wait")
        assert (await calling).text == "waited"
