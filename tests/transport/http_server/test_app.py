"""Requests that stand for themselves, over real sockets: answers, streams, who goes away."""

import asyncio
import json
from typing import Any

import pytest

from colonnade.errors import ConnectionLost, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.revision import JULY_2026, Revisions
from colonnade.transport.http_server.request import Limits
from http_client import BOTH, written
from live import Records, live, served_app

MODERN_ONLY = Revisions((JULY_2026,))
PROGRESS = {"progressToken": "p"}
LISTEN = {"notifications": {"toolsListChanged": True}}

# ---------------------------------------------------------------- answers


@pytest.mark.spec("R0847", "R0854")
@live
async def test_a_request_is_answered_with_one_json_object() -> None:
    async with served_app() as s:
        answer = await s.caller.call("echo", say="hi")
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.text == "hi"


@pytest.mark.spec("R0854", "R0859", "R0860")
@live
async def test_a_handler_that_reports_is_answered_with_a_stream_that_ends_with_its_result() -> None:
    async with served_app() as s:
        params = {"name": "report", "arguments": {"steps": 3}}
        wire, answer = await s.caller.stream("tools/call", params, meta=PROGRESS)
        assert answer.status == 200
        assert answer.is_stream
        assert answer.headers["x-accel-buffering"] == "no"
        events = [json.loads(event.data) for event in await answer.rest()]
        assert [m["params"]["progress"] for m in events[:-1]] == [1, 2, 3]
        assert events[-1]["result"]["content"][0]["text"] == "done"
        assert all(event.get("id") in (None, 1) for event in events)
        wire.close()


@live
async def test_a_report_arrives_before_the_handler_goes_on() -> None:
    async with served_app() as s:
        params = {"name": "report", "arguments": {"steps": 1, "wait": True}}
        _, answer = await s.caller.stream("tools/call", params, meta=PROGRESS)
        assert (await answer.message())["params"]["progress"] == 1
        s.service.go.mark("step 1")
        assert (await answer.message())["result"]["content"][0]["text"] == "done"


@live
async def test_who_takes_no_events_gets_the_result_alone() -> None:
    async with served_app() as s:
        params = {"name": "report", "arguments": {}}
        answer = await s.caller.modern(
            "tools/call", params, meta=PROGRESS, accept="application/json"
        )
        assert answer.headers["content-type"] == "application/json"
        assert answer.text == "done"


@live
async def test_who_takes_events_alone_gets_the_result_as_one() -> None:
    async with served_app() as s:
        params = {"name": "echo", "arguments": {}}
        _, answer = await s.caller.stream("tools/call", params, accept="text/event-stream")
        assert answer.is_stream
        assert [json.loads(e.data)["id"] for e in await answer.rest()] == [1]


@live
async def test_who_can_take_neither_is_told() -> None:
    async with served_app() as s:
        answer = await s.caller.modern("tools/list", accept="text/html")
        assert answer.status == 406
        assert not s.service.turns


@live
async def test_callers_with_the_same_id_do_not_meet() -> None:
    async with served_app() as s:
        answers = await asyncio.gather(*(s.caller.call("echo", say=str(n)) for n in range(20)))
        assert [answer.text for answer in answers] == [str(n) for n in range(20)]


@live
async def test_one_connection_carries_many_requests() -> None:
    async with served_app() as s:
        wire = await s.caller.wire()
        body = b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
        head: dict[str, str | None] = {
            "host": f"127.0.0.1:{s.site.port}",
            "content-type": "application/json",
            "accept": BOTH,
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "server/discover",
        }
        for _ in range(50):
            await wire.send(written("POST", "/mcp", head, body))
            answer = await wire.head()
            await answer.read()
            assert answer.status == 200
        wire.close()


# ---------------------------------------------------------------- statuses of errors


@pytest.mark.spec("R0867")
@live
async def test_an_unknown_method_is_404_with_the_code() -> None:
    async with served_app() as s:
        answer = await s.caller.modern("unknown/method", id="abc")
        assert (answer.status, answer.code, answer.json["id"]) == (404, -32601, "abc")


@live
async def test_a_method_that_the_service_does_not_offer_is_404_too() -> None:
    async with served_app() as s:
        answer = await s.caller.modern("prompts/list")
        assert (answer.status, answer.code) == (404, -32601)


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "logging/setLevel", "resources/subscribe"]
)
@live
async def test_what_the_newest_revision_no_longer_has_is_404(method: str) -> None:
    async with served_app() as s:
        answer = await s.caller.modern(method)
        assert (answer.status, answer.code) == (404, -32601)


@pytest.mark.spec("R1116")
@live
async def test_a_missing_capability_is_400_and_says_which() -> None:
    async with served_app() as s:
        answer = await s.caller.call("needs_sampling")
        assert (answer.status, answer.code) == (400, -32021)
        assert answer.json["error"]["data"]["requiredCapabilities"] == {"sampling": {}}


@live
async def test_any_other_error_of_a_handler_is_200() -> None:
    async with served_app() as s:
        broken = await s.caller.call("broken")
        missing = await s.caller.call("nobody")
        assert (broken.status, broken.code) == (200, -32603)
        assert (missing.status, missing.code) == (200, -32602)


@live
async def test_an_error_after_the_stream_began_is_its_last_event() -> None:
    async with served_app() as s:
        params = {"name": "report", "arguments": {"fail": True}}
        _, answer = await s.caller.stream("tools/call", params, meta=PROGRESS)
        assert answer.status == 200
        last = (await answer.rest())[-1]
        assert json.loads(last.data)["error"]["code"] == -32603


@pytest.mark.spec("R0863", "R0864", "R0865", "R0903", "R0911")
@pytest.mark.parametrize(
    "headers",
    [
        {"mcp_protocol_version": "2025-11-25"},
        {"mcp_protocol_version": None},
        {"mcp_method": "tools/list"},
        {"mcp_method": None},
        {"mcp_method": "TOOLS/CALL"},
        {"mcp_name": "other"},
        {"mcp_name": None},
        {"mcp_name": "=?base64?ZWNobw=?="},
    ],
    ids=str,
)
@live
async def test_headers_that_differ_from_the_body_are_400_with_their_code(
    headers: dict[str, Any],
) -> None:
    async with served_app() as s:
        params = {"name": "echo", "arguments": {}}
        answer = await s.caller.modern("tools/call", params, **headers)
        assert (answer.status, answer.code, answer.json["id"]) == (400, -32020, 1)
        assert not s.service.turns


@pytest.mark.spec("R0908", "R0912")
@live
async def test_header_names_in_any_case_and_encoded_values_are_understood() -> None:
    async with served_app() as s:
        params = {"name": "echo", "arguments": {}}
        answer = await s.caller.modern(
            "tools/call", params, mcp_name=None, MCP_NAME="  =?base64?ZWNobw==?=  "
        )
        assert answer.status == 200


@pytest.mark.spec("R0866")
@live
async def test_an_unknown_version_is_400_and_lists_the_known_ones() -> None:
    async with served_app() as s:
        meta = {"io.modelcontextprotocol/protocolVersion": "v999"}
        answer = await s.caller.modern("tools/list", meta=meta, mcp_protocol_version="v999")
        assert (answer.status, answer.code) == (400, -32022)
        data = answer.json["error"]["data"]
        assert data["requested"] == "v999"
        assert data["supported"][0] == "2026-07-28"


@pytest.mark.spec("R0902", "R0904", "R0907")
@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("north", 200),
        ("=?base64?bm9ydGg=?=", 200),
        (None, 400),
        ("south", 400),
        ("=?base64?x?=", 400),
    ],
)
@live
async def test_mirrored_arguments_must_agree(header: str | None, status: int) -> None:
    async with served_app() as s:
        params = {"name": "mirrored", "arguments": {"region": "north"}}
        answer = await s.caller.modern("tools/call", params, mcp_param_region=header)
        assert answer.status == status
        if status != 200:
            assert answer.code == -32020
            assert not s.service.turns


@pytest.mark.spec("R0905", "R0906")
@pytest.mark.parametrize("arguments", [{}, {"region": None}])
@live
async def test_an_argument_that_is_not_given_needs_no_header(arguments: dict[str, Any]) -> None:
    async with served_app() as s:
        answer = await s.caller.modern("tools/call", {"name": "mirrored", "arguments": arguments})
        assert answer.status == 200


# ---------------------------------------------------------------- who goes away


@pytest.mark.spec("R0773", "R0861", "R0862")
@live
async def test_closing_before_the_answer_cancels_the_call() -> None:
    async with served_app() as s:
        with Records("colonnade.transport") as records:
            calling = asyncio.create_task(s.caller.call("wait"))
            await s.service.marks.reached("wait begun")
            s.caller.wires[-1].abort()
            await s.service.marks.reached("wait cancelled")
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await calling
            await s.wait_until_idle()
        assert not [line for line in records.lines if not line.startswith("DEBUG")]
        assert (await s.caller.call("echo")).status == 200


@pytest.mark.spec("R0773", "R0861", "R0862")
@live
async def test_closing_a_stream_cancels_the_call() -> None:
    async with served_app() as s:
        params = {"name": "report", "arguments": {"steps": 1, "wait": True}}
        wire, answer = await s.caller.stream("tools/call", params, meta=PROGRESS)
        await answer.message()
        wire.close()
        await s.wait_until_idle()
        assert s.service.turns[-1].exchange.settled
        assert (await s.caller.call("echo")).status == 200


@live
async def test_a_cancellation_from_outside_is_answered_and_not_swallowed() -> None:
    with Records("colonnade.transport") as records:
        async with served_app() as s:
            calling = asyncio.create_task(s.caller.call("wait"))
            await s.service.marks.reached("wait begun")
            (turn,) = s.app.reaper
            assert turn.task is not None
            turn.task.cancel()
            await s.service.marks.reached("wait cancelled")
            answer = await calling
            assert (answer.status, answer.json["error"]["code"]) == (200, -32603)
            await s.wait_until_idle()
        assert any("the application raised CancelledError" in line for line in records.lines)


@live
async def test_no_request_ever_goes_to_the_client() -> None:
    async with served_app() as s:
        await s.caller.call("echo")
        turn = s.service.turns[-1]
        with pytest.raises(LocalProtocolError, match="in an input_required result"):
            await turn.ask(InputRequest(t.ListRootsRequestParams()))
        await turn.hang_up()
        assert turn.session is None
        with pytest.raises(ConnectionLost):
            await turn.send(b"{}")


@live
async def test_a_handler_that_says_nothing_ends_the_request_all_the_same() -> None:
    async with served_app() as s:
        answer = await s.caller.call("silent")
        assert (answer.status, answer.body) == (202, b"")


# ---------------------------------------------------------------- subscriptions


@live
async def test_a_subscription_is_acknowledged_told_and_ended_with_its_result() -> None:
    async with served_app() as s:
        _, answer = await s.caller.stream("subscriptions/listen", LISTEN)
        first = await answer.message()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        s.service.publish("notifications/prompts/list_changed")
        s.service.publish("notifications/tools/list_changed")
        notification = await answer.message()
        assert notification["method"] == "notifications/tools/list_changed"
        s.service.drain()
        assert (await answer.message())["method"] == "notifications/cancelled"
        assert (await answer.message())["result"]["resultType"] == "complete"
        assert await answer.rest() == []


@live
async def test_a_subscription_needs_a_stream() -> None:
    async with served_app() as s:
        answer = await s.caller.modern("subscriptions/listen", LISTEN, accept="application/json")
        assert answer.status == 406
        assert not s.service.turns


@live
async def test_a_subscriber_that_goes_is_forgotten() -> None:
    async with served_app() as s:
        wire, answer = await s.caller.stream("subscriptions/listen", LISTEN)
        await answer.message()
        wire.abort()
        await s.service.marks.reached("listen cancelled")
        await s.wait_until_idle()


@live
async def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    async with served_app(limits=Limits(keep_alive_interval_s=0.01)) as s:
        _, answer = await s.caller.stream("subscriptions/listen", LISTEN)
        await answer.message()
        async with asyncio.timeout(60):
            assert await answer._chunk() == b":\n\n"


@live
async def test_a_call_that_takes_long_becomes_a_stream_so_that_nobody_cuts_it() -> None:
    async with served_app(limits=Limits(keep_alive_interval_s=0.01)) as s:
        _, answer = await s.caller.stream("tools/call", {"name": "wait", "arguments": {}})
        assert answer.is_stream
        s.service.go.mark("wait")
        assert (await answer.message())["result"]["content"][0]["text"] == "waited"
