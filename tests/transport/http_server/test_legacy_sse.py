"""HTTP with SSE over real sockets: the stream, where to post, and how both end."""

import asyncio
import json
from typing import Any

import pytest

from colonnade.ports import Caller as Verified
from colonnade.protocol import types as t
from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import EVERY, JULY_2026, NOVEMBER_2025, Revision, Revisions
from colonnade.transport.http_server.legacy_sse import MESSAGES_PATH, SSE_PATH
from colonnade.transport.http_server.request import Limits
from http_client import Caller, Response, Wire
from live import Records, ServedApp, live, served_app, until

ABLE = {"elicitation": {}, "roots": {}, "sampling": {}}


class Client:
    """The old way: listen on one stream, post beside it."""

    def __init__(self, stand: ServedApp) -> None:
        self.caller = Caller(stand.site.port)
        self.endpoint = ""
        self.wire: Wire
        self.stream: Response

    async def __aenter__(self) -> "Client":
        self.wire, self.stream = await self.caller.begin(
            "GET", path=SSE_PATH, accept="text/event-stream"
        )
        if self.stream.status == 200:
            first = await self.stream.event()
            assert first.event == "endpoint"
            self.endpoint = first.text()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.caller.__aexit__()

    async def post(self, message: Any, **headers: Any) -> Response:
        return await self.caller.request(
            "POST", json.dumps(message).encode(), path=self.endpoint, **headers
        )

    async def say(self, message: Any) -> Any:
        """Post, and take what comes next."""
        answer = await self.post(message)
        assert answer.status == 202, answer.body
        return await self.stream.message()

    async def initialize(self, date: str = "2024-11-05") -> Any:
        params = {
            "protocolVersion": date,
            "capabilities": ABLE,
            "clientInfo": {"name": "old", "version": "1.0"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self.say(message)
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    async def call(self, name: str, id: Any = 1, **arguments: Any) -> Any:
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}}
        return await self.say(
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        )


@pytest.mark.spec("R0048", "R0049", "R0050")
@live
async def test_the_first_event_says_where_to_post_and_answers_come_as_messages() -> None:
    async with served_app() as s, Client(s) as client:
        assert client.stream.is_stream
        assert client.endpoint.startswith(f"{MESSAGES_PATH}?session_id=")
        assert (await client.initialize())["result"]["protocolVersion"] == "2024-11-05"
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"}
        accepted = await client.post(message)
        assert (accepted.status, accepted.body) == (202, b"")
        event = await client.stream.event()
        assert event.event == "message"
        assert b"event: message\n" in client.stream.body
        assert json.loads(event.data)["id"] == 7


@pytest.mark.parametrize("revision", EVERY.handshakes, ids=lambda r: r.date)
@live
async def test_every_revision_with_a_handshake_can_be_spoken(revision: Revision) -> None:
    async with served_app() as s, Client(s) as client:
        answer = await client.initialize(revision.date)
        assert answer["result"]["protocolVersion"] == revision.date


@live
async def test_what_is_enveloped_is_not_spoken_here() -> None:
    async with served_app() as s, Client(s) as client:
        meta = {
            "io.modelcontextprotocol/protocolVersion": JULY_2026.date,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"_meta": meta}
        answer = await client.say(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        )
        assert answer["error"]["code"] == -32022
        assert JULY_2026.date not in answer["error"]["data"]["supported"]


@live
async def test_reports_questions_and_answers_share_the_stream() -> None:
    async with served_app() as s, Client(s) as client:
        await client.initialize()
        assert (await client.call("report"))["params"]["progress"] == 1
        assert (await client.stream.message())["params"]["progress"] == 2
        assert (await client.stream.message())["result"]
        question = await client.call("roots", 2)
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        answer = await client.say(reply)
        assert answer["result"]["content"][0]["text"] == "0 roots"


@live
async def test_a_notification_comes_unasked_and_updates_to_those_who_subscribed() -> None:
    async with served_app() as s, Client(s) as client:
        await client.initialize()
        s.service.publish("notifications/tools/list_changed")
        assert (await client.stream.message())["method"] == "notifications/tools/list_changed"
        await client.say(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "resources/subscribe",
                "params": {"uri": "notes://a"},
            }
        )
        for uri in ("notes://b", "notes://a"):
            params = t.ResourceUpdatedNotificationParams(uri=uri)
            s.service.publish("notifications/resources/updated", params)
        assert (await client.stream.message())["params"]["uri"] == "notes://a"


@live
async def test_a_notification_is_heard_and_one_cancels() -> None:
    async with served_app() as s, Client(s) as client:
        await client.initialize()
        params = {"name": "wait", "arguments": {}}
        await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await s.service.marks.reached("wait begun")
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await client.post(gone)).status == 202
        await s.service.marks.reached("wait cancelled")
        assert (await client.say({"jsonrpc": "2.0", "id": 2, "method": "ping"}))["id"] == 2


@live
async def test_a_service_that_raises_what_it_must_not_harms_itself_alone() -> None:
    async with served_app() as s, Client(s) as client:
        await client.initialize()
        with Records("colonnade.transport") as records:
            answer = await client.call("crash")
        assert answer["error"]["code"] == -32603
        assert "secret" not in str(answer)
        assert records.lines == ["ERROR the service raised ZeroDivisionError"]
        assert (await client.call("echo", 2))["result"]


@live
async def test_the_end_of_the_stream_is_the_end_of_everything() -> None:
    async with served_app() as s, Client(s) as client:
        await client.initialize()
        params = {"name": "wait", "arguments": {}}
        await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await s.service.marks.reached("wait begun")
        client.wire.abort()
        await s.service.marks.reached("wait cancelled")
        await s.wait_until_idle()
        assert s.service.watchers == 0
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await client.post(ping)).status == 404


@pytest.mark.parametrize(
    "query", ["", "?session_id=", "?session_id=x", "?x=1&session_id=a&session_id=b"]
)
@live
async def test_a_post_to_no_stream_is_404(query: str) -> None:
    async with served_app() as s:
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        assert (await s.caller.request("POST", ping, path=MESSAGES_PATH + query)).status == 404


async def verify(headers: Headers) -> str:
    return headers.get(b"authorization", b"").decode()


@live
async def test_another_principal_cannot_post() -> None:
    async with served_app(verify=verify) as s, Client(s) as client:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await client.post(ping, authorization="eve")).status == 404
        assert (await client.post(ping)).status == 202
        assert (await client.stream.message())["id"] == 1


@live
async def test_a_body_that_is_no_message_is_400_and_the_stream_goes_on() -> None:
    async with served_app() as s, Client(s) as client:
        answer = await client.caller.request("POST", b"{", path=client.endpoint)
        assert answer.status == 400
        assert (await client.say({"jsonrpc": "2.0", "id": 1, "method": "ping"}))["id"] == 1


@live
async def test_only_a_get_listens_and_only_a_post_posts() -> None:
    async with served_app() as s:
        wrong = await s.caller.request("POST", b"{}", path=SSE_PATH)
        assert (wrong.status, wrong.headers["allow"]) == (405, "GET")
        wrong = await s.caller.request("GET", path=MESSAGES_PATH)
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


@live
async def test_without_the_first_revision_there_is_no_such_path() -> None:
    async with served_app(Revisions((NOVEMBER_2025, JULY_2026))) as s:
        assert (await s.caller.request("GET", path=SSE_PATH)).status == 404
        assert (await s.caller.request("POST", b"{}", path=MESSAGES_PATH)).status == 404


@live
async def test_streams_are_bounded() -> None:
    async with served_app(limits=Limits(max_sessions=1)) as s, Client(s):
        async with Client(s) as second:
            assert second.stream.status == 503
        assert s.service.watchers == 1


@live
async def test_what_runs_on_all_streams_together_is_bounded() -> None:
    async with served_app(limits=Limits(max_concurrent_requests=3)) as s, Client(s) as client:
        await client.initialize()
        statuses: list[int] = []
        for id in range(1, 5):
            call = {"name": "wait", "arguments": {}}
            message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call}
            statuses.append((await client.post(message)).status)
        assert statuses == [202, 202, 202, 503]
        gone = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        assert (await client.post(gone)).status == 202  # which makes room
        await s.service.marks.reached("wait cancelled")
        assert (await client.say({"jsonrpc": "2.0", "id": 9, "method": "ping"}))["id"] == 9


@live
async def test_a_reader_that_falls_far_behind_is_cut() -> None:
    async with served_app() as s, Client(s) as client:
        await client.initialize()
        client.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        params = {"name": "large", "arguments": {"size": 1_000_000}}
        for id in range(40):
            message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            answer = await client.post(message)
            if answer.status == 404:
                break
        else:
            pytest.fail("nobody was cut")
        await s.wait_until_idle()
        assert s.service.watchers == 0


@live
async def test_a_handler_waits_for_a_reader_that_is_behind_until_it_is_cut() -> None:
    async with served_app(limits=Limits(write_timeout_s=0.01)) as s, Client(s) as client:
        await client.initialize("2025-11-25")  # whose progress has a message
        client.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        params = {
            "name": "report",
            "arguments": {"steps": 1000, "size": 100_000},
            "_meta": {"progressToken": "p"},
        }
        await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await s.wait_until_idle()
        assert s.service.marks.log[-1] != "step 1000"
        assert s.service.watchers == 0


@live
async def test_draining_ends_a_stream_after_what_runs_on_it() -> None:
    async with served_app() as s, Client(s) as client, Client(s) as idle:
        await client.initialize()
        params = {"name": "wait", "arguments": {}}
        await client.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        await s.service.marks.reached("wait begun")
        stopping = asyncio.create_task(s.site.stop(5.0))
        assert await idle.stream.rest() == []
        await until(lambda: s.app.draining)
        s.service.go.mark("wait")
        assert (await client.stream.message())["id"] == 1
        assert await client.stream.rest() == []
        await stopping


# ---------------------------------------------------------------- what it holds, who hears of it


@live
async def test_the_body_of_a_call_counts_until_the_call_is_over() -> None:
    async with served_app(limits=Limits(max_running_body_bytes=150_000)) as s, Client(s) as client:
        await client.initialize()
        bodies = s.sessions.shared.bodies
        text = "x" * 100_000
        for id in (1, 2):
            params = {"name": "wait", "arguments": {"text": text}}
            call = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            assert (await client.post(call)).status == 202
        refused = await client.stream.message()
        assert (refused["id"], "try again later" in refused["error"]["message"]) == (2, True)
        assert 100_000 < bodies.used < 150_000
        s.service.go.mark("wait")
        assert (await client.stream.message())["id"] == 1
        await until(lambda: bodies.used == 0)


async def scoped(headers: Headers) -> Verified:
    """One person, with what the header says."""
    return Verified("ada", frozenset(headers.get(b"x-scopes", b"").decode().split()))


@live
async def test_updates_go_only_to_a_stream_whose_reader_may_hear_of_them() -> None:
    async with served_app(verify=scoped) as s, Client(s) as client:
        await client.initialize()
        for id, uri in enumerate(("secret:a", "open:b"), 1):
            params = {"uri": uri}
            message = {
                "jsonrpc": "2.0",
                "id": id,
                "method": "resources/subscribe",
                "params": params,
            }
            assert (await client.post(message, x_scopes="admin")).status == 202
            assert "result" in await client.stream.message()
        subscribed = s.sessions.shared.subscribed
        assert subscribed.used > 0
        for uri in ("secret:a", "open:b"):
            told = t.ResourceUpdatedNotificationParams(uri=uri)
            s.service.publish("notifications/resources/updated", told)
        assert (await client.stream.message())["params"]["uri"] == "open:b"
        client.wire.abort()
        await until(lambda: subscribed.used == 0)
