"""What sessions may take, what is kept of them, and how they end, over real sockets."""

import asyncio
import json
import tracemalloc
from typing import Any

from colonnade.ports import Caller as Verified
from colonnade.protocol import types as t
from colonnade.protocol.http.security import Headers
from colonnade.protocol.link.in_flight import ByteBudget
from colonnade.protocol.revision import (
    JUNE_2025,
    Revisions,
)
from colonnade.protocol.subscriptions import STRING_BYTES
from colonnade.transport.duplex import BROADCASTS
from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.sessions.streams import (
    QUEUE_BYTES,
    STREAM_BYTES,
    ResumableBytes,
    Stream,
)
from http_client import Caller, cancelled, opening
from http_service import ABLE, FakeService, reporting, waiting
from live import Records, ServedApp, live, served_app, until

# ---------------------------------------------------------------- limits and ends


@live
async def test_deleting_a_session_answers_what_runs_and_ends_its_streams() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        _, notification = await s.caller.get()
        calling = asyncio.create_task(s.caller.ask("tools/call", waiting()))
        await s.service.marks.reached("wait begun")
        _, stream = await s.caller.asking("tools/call", reporting(wait=True), id=2)
        await stream.message()
        assert (await s.caller.request("DELETE")).status == 200
        assert (await calling).code == -32603
        assert (await stream.message())["error"]["code"] == -32603
        assert all(not event.data for event in await notification.rest())
        await s.service.marks.reached("wait cancelled")
        await s.wait_until_idle()
        assert not s.sessions.shared.tasks


@live
async def test_deleting_a_session_ends_the_questions_that_wait_in_it() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        await stream.message()
        assert (await s.caller.request("DELETE")).status == 200
        assert (await stream.message())["error"]["code"] == -32603
        await s.wait_until_idle()


@live
async def test_the_longest_unused_session_makes_room_for_a_new_one() -> None:
    async with served_app(limits=Limits(max_sessions=2)) as s:
        callers = [Caller(s.site.port) for _ in range(3)]
        for caller in callers[:2]:
            await caller.initialize("2025-11-25")
        wire, _ = await callers[0].get()
        assert (await callers[2].initialize("2025-11-25")).status == 200
        assert (await callers[1].ask("ping")).status == 404
        assert (await callers[0].ask("ping")).status == 200
        assert len(s.sessions) == 2
        wire.abort()


@live
async def test_where_every_session_is_in_use_there_is_no_room() -> None:
    async with served_app(limits=Limits(max_sessions=1)) as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        await s.caller.get()
        answer = await other.initialize("2025-11-25")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert len(s.sessions) == 1
        assert s.service.watchers == 1


async def verify(headers: Headers) -> str:
    return headers.get(b"authorization", b"").decode()


@live
async def test_one_principal_cannot_take_all_places() -> None:
    async with served_app(verify=verify, limits=Limits(max_sessions_per_principal=2)) as s:
        for _ in range(10):
            s.caller.session = None
            message = opening("2025-11-25")
            assert (await s.caller.post(message, authorization="ada")).status == 200
        assert len(s.sessions) == 2


@live
async def test_sessions_end_when_they_are_idle_or_old_or_never_used() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        table = s.sessions
        (session,) = table
        limits = s.app.limits
        now = session.used
        table.check(session, now + limits.session_idle_timeout_s - 1)
        assert len(table) == 1
        table.check(session, now + limits.session_idle_timeout_s + 1)
        assert len(table) == 0
        s.caller.session = None
        await s.caller.initialize("2025-11-25")
        (session,) = table
        session.created -= limits.max_session_age_s + 1
        assert (await s.caller.ask("ping")).status == 404
        s.caller.session = None
        await s.caller.initialize("2025-11-25")
        (session,) = table
        table._unused[session.id] = session
        table.check(session, session.used + 61)
        assert len(table) == 0
        assert s.service.watchers == 0


@live
async def test_the_timer_looks_at_sessions() -> None:
    async with served_app(limits=Limits(session_idle_timeout_s=0)) as s:
        await s.caller.initialize("2025-11-25")
        await until(lambda: len(s.sessions) == 0)


@live
async def test_a_session_with_a_connection_is_not_idle() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        await s.caller.get()
        table = s.sessions
        (session,) = table
        table.check(session, table.shared.clock() + 10 * s.app.limits.session_idle_timeout_s)
        assert len(table) == 1


@live
async def test_streams_of_one_session_are_bounded() -> None:
    async with served_app(limits=Limits(max_streams_per_session=3)) as s:
        await s.caller.initialize("2025-11-25")
        for _ in range(3):
            _, stream = await s.caller.get()
            assert stream.status == 200
        _, stream = await s.caller.get()
        assert stream.status == 503


@live
async def test_what_is_kept_for_those_who_come_back_is_bounded_and_ends() -> None:
    async with served_app(limits=Limits(max_resumable_bytes_per_session=10_000)) as s:
        await s.caller.initialize("2025-11-25")
        for id in range(20):
            await s.caller.ask("tools/call", reporting(steps=2, size=1000), id=id)
        table = s.sessions
        (session,) = table
        assert 0 < session.size <= 10_000
        assert table.shared.ledger.size == session.size
        table.check(session, table.shared.clock() + s.app.limits.resume_window_s + 1)
        assert session.size == table.shared.ledger.size == 0


@live
async def test_what_is_kept_for_all_sessions_together_is_bounded() -> None:
    async with served_app(limits=Limits(max_resumable_bytes=10_000)) as s:
        for _ in range(10):
            s.caller.session = None
            await s.caller.initialize("2025-11-25")
            await s.caller.ask("tools/call", reporting(steps=2, size=1000))
        table = s.sessions
        assert len(table) == 10
        assert 0 < table.shared.ledger.size <= 13_000
        first, *_, last = table
        assert (first.size, last.size > 2000) == (0, True)


def test_the_limits_on_kept_events_count_all_the_memory_that_small_ones_take() -> None:
    kept = ResumableBytes()
    stream = Stream("s", kept, streamable=True)
    tracemalloc.start()
    try:
        for number in range(10_000):
            stream.put_response(b"%d" % number)
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * allocated < kept.size < 1.5 * allocated
    stream.trim(1000)
    assert stream.size == kept.size <= 1000
    stream.forget()
    assert kept.size == 0


@live
async def test_json_answers_are_not_kept() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        for id in range(5):
            await s.caller.ask("tools/list", id=id)
        (session,) = s.sessions
        assert not session._streams


@live
async def test_an_unread_stream_that_nobody_reads_forgets_its_oldest_messages() -> None:
    async with served_app(limits=Limits(max_resumable_bytes_per_stream=5_000)) as s:
        await s.caller.initialize("2025-11-25")
        params = reporting(steps=20, size=1000, wait=True)
        wire, stream = await s.caller.asking("tools/call", params)
        event = await stream.numbered()
        wire.abort()
        await s.wait_for_disconnects()
        for step in range(1, 21):
            s.service.go.mark(f"step {step}")
        await until(lambda: s.service.running == 0)
        (session,) = s.sessions
        assert session.size < 7_000
        _, resumed = await s.caller.get(last_event_id=event.id)
        assert resumed.status == 200  # the oldest progress is gone, the response is not
        messages = [json.loads(event.data) for event in await resumed.rest()]
        steps = [one["params"]["progress"] for one in messages[:-1]]
        assert steps == list(range(21 - len(steps), 21))
        assert len(steps) < 19
        assert messages[-1]["id"] == 1


@live
async def test_a_handler_waits_for_a_reader_that_is_behind_and_goes_on_when_it_is_cut() -> None:
    async with served_app(
        limits=Limits(write_timeout_s=0.01, max_resumable_bytes_per_stream=2_000_000)
    ) as s:
        await s.caller.initialize("2025-11-25")
        params = reporting(steps=200, size=100_000)
        wire, stream = await s.caller.asking("tools/call", params)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: s.service.running == 0)
        await s.wait_until_idle()
        (session,) = s.sessions
        assert session.size < 2_300_000
        assert stream.is_stream


@live
async def test_a_handler_waits_for_a_reader_that_is_behind_and_goes_on_when_it_reads() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        params = reporting(steps=200, size=100_000)
        wire, stream = await s.caller.asking("tools/call", params)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        (session,) = s.sessions
        await until(lambda: any(each.unread > QUEUE_BYTES for each in session._streams.values()))
        assert s.service.running == 1
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert len([event for event in await stream.rest() if event.data]) == 201


@live
async def test_nothing_is_lost_between_a_handler_and_a_reader_that_reads() -> None:
    async with served_app(limits=Limits(max_resumable_bytes_per_stream=100_000)) as s:
        await s.caller.initialize("2025-11-25")
        wire, stream = await s.caller.asking("tools/call", reporting(steps=100, size=20_000))
        events = [json.loads(event.data) for event in await stream.rest() if event.data]
        assert [m["params"]["progress"] for m in events[:-1]] == list(range(1, 101))
        wire.close()


@live
async def test_what_runs_in_all_sessions_together_is_bounded() -> None:
    async with served_app(limits=Limits(max_concurrent_requests=2)) as s:
        await s.caller.initialize("2025-11-25")
        for id in range(2):
            wire, _ = await s.begin_wait(id)
            wire.abort()
            await s.wait_for_disconnects()
        assert (await s.caller.ask("tools/list", id=9)).status == 503
        s.service.go.mark("wait")
        await s.wait_until_idle()
        assert (await s.caller.ask("tools/list", id=9)).status == 200


@live
async def test_what_runs_in_batches_is_bounded_too() -> None:
    async with served_app(limits=Limits(max_concurrent_requests=2)) as s:
        await s.caller.initialize("2025-03-26")
        batch = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": waiting()}
            for id in range(2)
        ]
        posting = asyncio.create_task(s.caller.post(batch))
        await until(lambda: s.service.running == 2)
        refused = await s.caller.post([{"jsonrpc": "2.0", "id": 9, "method": "tools/list"}])
        assert refused.status == 503
        s.service.go.mark("wait")
        assert len((await posting).json) == 2
        again = await s.caller.post([{"jsonrpc": "2.0", "id": 9, "method": "tools/list"}])
        assert again.status == 200


@live
async def test_a_flood_of_handshakes_ends_none_of_the_sessions_that_are_used() -> None:
    async with served_app(limits=Limits(max_sessions=5)) as s, Caller(s.site.port) as other:
        await s.caller.initialize("2025-11-25")
        for _ in range(50):
            assert (await other.post(opening("2025-11-25"))).status == 200
            for session in s.sessions:
                session.created -= 1.1  # nothing more came for so long
        assert len(s.sessions) == 5
        assert s.service.watchers == 5
        assert (await s.caller.ask("ping")).status == 200


@live
async def test_a_session_that_was_just_opened_keeps_its_place_before_one_that_idles() -> None:
    async with served_app(limits=Limits(max_sessions=2)) as s:
        callers = [Caller(s.site.port) for _ in range(3)]
        await callers[0].initialize("2025-11-25")
        opened = await callers[1].post(opening("2025-11-25"))
        await callers[2].initialize("2025-11-25")
        callers[1].session = opened.headers["mcp-session-id"]
        assert (await callers[0].ask("ping")).status == 404
        assert (await callers[1].ask("ping")).status == 200


@live
async def test_a_header_that_names_another_revision_is_forgiven_and_logged_once() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        with Records("colonnade.transport") as records:
            for id in range(3):
                answer = await s.caller.ask("tools/list", id=id, mcp_protocol_version="2025-06-18")
                assert answer.status == 200
        assert records.lines == [
            "WARNING MCP-Protocol-Version is 2025-06-18, the session uses 2025-11-25"
        ]


@live
async def test_a_long_call_becomes_a_stream_that_can_be_resumed() -> None:
    async with served_app(limits=Limits(keep_alive_interval_s=0.01)) as s:
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
    async with served_app() as s:
        await s.caller.initialize("2025-11-25", ABLE)
        _, stream = await s.caller.asking("tools/call", {"name": "ask"})
        question = await stream.message()
        table = s.sessions
        table._tick(table.shared.clock() + 601)
        gone = await stream.message()
        assert gone["params"]["requestId"] == question["id"]
        assert "lost: no answer" in (await stream.message())["result"]["content"][0]["text"]


@live
async def test_sessions_are_left_when_the_server_stops() -> None:
    async with served_app() as s:
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
    async with served_app(Revisions((JUNE_2025,))) as s:
        assert (await s.caller.modern("tools/list")).status == 400
        await s.caller.initialize("2025-06-18")
        assert (await s.caller.ask("tools/list")).status == 200


# ---------------------------------------------------------------- streams that were left


async def left_stream(s: ServedApp) -> str:
    """Open a stream by GET and hang up; the id of its first event."""
    wire, stream = await s.caller.get()
    event = await stream.event()
    wire.abort()
    await s.wait_until_idle()
    return event.id or ""


@live
async def test_streams_that_are_kept_for_a_client_to_come_back_are_bounded() -> None:
    async with served_app(limits=Limits(max_resumable_streams_per_session=3)) as s:
        await s.caller.initialize("2025-11-25")
        ids = [await left_stream(s) for _ in range(6)]
        (session,) = s.sessions
        assert (len(session._resumable), len(session._streams)) == (3, 0)
        for id in ids[3:]:
            _, stream = await s.caller.get(last_event_id=id)
            assert stream.status == 200
        assert (len(session._resumable), len(session._streams)) == (0, 3)
        for id in ids[:3]:  # the oldest are forgotten: all may have changed meanwhile
            _, stream = await s.caller.get(last_event_id=id)
            methods = {(await stream.message())["method"] for _ in range(3)}
            assert methods == BROADCASTS
        assert (len(session._resumable), len(session._streams)) == (0, 6)


@live
async def test_a_request_whose_stream_is_forgotten_gets_an_error_with_its_id() -> None:
    async with served_app(limits=Limits(max_resumable_streams_per_session=1)) as s:
        await s.caller.initialize("2025-11-25")
        _, stream = await s.caller.asking("tools/call", reporting(steps=1), id="x-1")
        first = (await stream.rest())[0]
        await left_stream(s)
        _, resumed = await s.caller.get(last_event_id=first.id)
        (error,) = [json.loads(event.data) for event in await resumed.rest()]
        assert (error["id"], error["error"]["code"]) == ("x-1", -32603)
        assert error["error"]["data"] == {"effectUnknown": True}
        (session,) = s.sessions
        name = str(first.id).rpartition(".")[0]
        for never in (f"{name}9.31-1", f"x{name}.31-1", f"{name}.zz-1", f"{name}-1"):
            _, refused = await s.caller.get(last_event_id=never)
            assert refused.status == 400
        assert not session._streams


class Untouched(dict[str, Stream]):
    """Streams that nothing may walk through."""

    walked = 0

    def values(self) -> Any:
        self.walked += 1
        return super().values()

    def items(self) -> Any:
        self.walked += 1
        return super().items()


@live
async def test_a_request_does_not_walk_through_the_streams_that_are_kept() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-11-25")
        await left_stream(s)
        (session,) = s.sessions
        kept = session._resumable = Untouched(session._resumable)
        for id in range(3):
            assert (await s.caller.ask("ping", id=id)).status == 200
            assert (await s.caller.ask("tools/call", {"name": "echo"}, id=id)).status == 200
        assert session.size > 0
        assert not session.busy
        assert kept.walked == 0
        await left_stream(s)
        assert kept.walked == 1  # for the oldest one alone


@live
async def test_an_empty_stream_counts_for_what_is_kept() -> None:
    async with served_app(limits=Limits(max_resumable_bytes_per_session=3 * STREAM_BYTES)) as s:
        await s.caller.initialize("2025-11-25")
        for _ in range(6):
            await left_stream(s)
        (session,) = s.sessions
        assert len(session._resumable) == 3
        assert session.size == s.sessions.shared.ledger.size == 3 * STREAM_BYTES
        await s.caller.request("DELETE")
        assert s.sessions.shared.ledger.size == 0


# ---------------------------------------------------------------- bodies of running requests

LARGE = 100_000


def large(name: str, **arguments: Any) -> dict[str, Any]:
    """The params of a call with a large body."""
    return {"name": name, "arguments": {"text": "x" * LARGE, **arguments}}


@live
async def test_bodies_of_running_requests_are_bounded() -> None:
    async with served_app(limits=Limits(max_running_body_bytes=2 * LARGE + 5000)) as s:
        await s.caller.initialize("2025-11-25")
        bodies = s.sessions.shared.bodies
        calls = [
            asyncio.create_task(s.caller.ask("tools/call", large("wait"), id=id)) for id in range(2)
        ]
        await until(lambda: s.service.running == 2)
        assert 2 * LARGE < bodies.used <= 2 * LARGE + 5000
        refused = await s.caller.ask("tools/call", large("echo"), id=3)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await s.caller.modern("tools/call", large("echo"))).status == 503
        assert (await s.caller.ask("tools/call", {"name": "echo"}, id=4)).status == 200
        s.service.go.mark("wait")
        assert [(await call).status for call in calls] == [200, 200]
        await s.wait_until_idle()
        assert bodies.used == 0
        assert (await s.caller.ask("tools/call", large("echo"), id=3)).status == 200
        assert (await s.caller.modern("tools/call", large("echo"))).status == 200
        await s.wait_until_idle()
        assert bodies.used == 0


@live
async def test_the_bodies_of_one_principal_leave_room_for_others() -> None:
    limits = Limits(max_running_body_bytes_per_principal=LARGE + 5000)
    async with served_app(verify=verify, limits=limits) as s:
        params = large("wait")
        first = asyncio.create_task(s.caller.modern("tools/call", params, authorization="ada"))
        await until(lambda: s.service.running == 1)
        params = large("echo")
        refused = await s.caller.modern("tools/call", params, authorization="ada")
        assert refused.status == 503
        assert (await s.caller.modern("tools/call", params, authorization="bob")).status == 200
        s.service.go.mark("wait")
        assert (await first).status == 200
        assert (await s.caller.modern("tools/call", params, authorization="ada")).status == 200


@live
async def test_a_call_whose_client_hung_up_makes_room_for_those_who_are_there() -> None:
    async with served_app(limits=Limits(max_running_body_bytes=2 * LARGE + 5000)) as s:
        await s.caller.initialize("2025-11-25", ABLE)
        bodies = s.sessions.shared.bodies
        events: list[str] = []
        for id in range(2):
            wire, stream = await s.caller.asking("tools/call", large("ask"), id=id)
            events.append((await stream.numbered()).id or "")
            wire.abort()
            await s.wait_for_disconnects()
        # They run on, and may be fetched; so their bodies still count.
        assert (s.service.running, bodies.used > 2 * LARGE) == (2, True)
        assert len(s.sessions.shared.disconnected) == 2
        assert (await s.caller.ask("tools/call", large("echo"), id=3)).status == 503
        await until(lambda: s.service.running == 1)  # the oldest one gave way, and no other
        assert (await s.caller.ask("tools/call", large("echo"), id=3)).status == 200
        _, stream = await s.caller.get(last_event_id=events[0])
        assert "disconnected" in (await stream.message())["error"]["message"]
        await s.caller.request("DELETE")
        await s.wait_until_idle()
        assert (bodies.used, s.sessions.shared.disconnected) == (0, {})


@live
async def test_the_body_of_a_batch_counts_until_its_last_call_is_over() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        batch = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": large("wait")}
            for id in range(2)
        ]
        posting = asyncio.create_task(s.caller.post(batch))
        posting.add_done_callback(lambda task: task.cancelled() or task.exception())
        await until(lambda: s.service.running == 2)
        bodies = s.sessions.shared.bodies
        assert bodies.used > 2 * LARGE
        s.caller.wires[-1].abort()
        await until(lambda: len(s.app.reaper) == 0)
        assert (s.service.running, bodies.used > 2 * LARGE) == (2, True)
        s.service.go.mark("wait")
        await s.wait_until_idle()
        assert (bodies.used, s.sessions.shared.disconnected) == (0, {})


@live
async def test_a_batch_that_cancels_its_own_calls_is_answered_and_leaves_nothing_behind() -> None:
    async with served_app() as s:
        await s.caller.initialize("2025-03-26")
        first, second = (
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            for id, params in ((1, large("wait")), (2, {"name": "echo"}))
        )
        answer = await s.caller.post([first, second, cancelled(1)])
        assert [one["id"] for one in answer.json] == [2]
        assert (await s.caller.post([first, cancelled(1)])).body == b""
        await s.wait_until_idle()
        (session,) = s.sessions
        assert (session.busy, s.sessions.shared.bodies.used) == (False, 0)


@live
async def test_a_batch_whose_client_hung_up_makes_room_too() -> None:
    async with served_app(limits=Limits(max_running_body_bytes=2 * LARGE + 5000)) as s:
        await s.caller.initialize("2025-03-26")
        batch = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
            for id, params in enumerate([large("wait"), waiting()])
        ]
        posting = asyncio.create_task(s.caller.post(batch))
        posting.add_done_callback(lambda task: task.cancelled() or task.exception())
        await until(lambda: s.service.running == 2)
        s.caller.wires[-1].abort()
        await until(lambda: len(s.app.reaper) == 0)
        second = {"name": "echo", "arguments": {"text": "x" * 2 * LARGE}}
        assert (await s.caller.ask("tools/call", second, id=8)).status == 503
        await s.wait_until_idle()
        assert s.sessions.shared.bodies.used == 0
        assert (await s.caller.ask("tools/call", second, id=8)).status == 200


# ---------------------------------------------------------------- what sessions follow


@live
async def test_what_all_sessions_follow_is_bounded() -> None:
    async with served_app() as s:
        s.sessions.shared.subscribed = ByteBudget(1000, 1000)
        await s.caller.initialize("2025-11-25")
        followed = 0
        while (
            "error"
            not in (
                answer := await s.caller.ask("resources/subscribe", {"uri": f"a://{followed}"})
            ).json
        ):
            followed += 1
        assert "unsubscribe from some" in answer.json["error"]["message"]
        (session,) = s.sessions
        assert followed == len(session.subscriptions) == 1000 // (STRING_BYTES + len("a://0"))
        used = s.sessions.shared.subscribed.used
        session.subscriptions.add("a://0")
        assert s.sessions.shared.subscribed.used == used
        session.subscriptions.discard("a://0")
        session.subscriptions.discard("a://0")
        assert s.sessions.shared.subscribed.used == used - STRING_BYTES - len("a://0")
        await s.caller.request("DELETE")
        assert s.sessions.shared.subscribed.used == 0


# ---------------------------------------------------------------- scopes at delivery


async def scoped(headers: Headers) -> Verified:
    """One person, with what the header says."""
    return Verified("ada", frozenset(headers.get(b"x-scopes", b"").decode().split()))


def updated(uri: str) -> t.ResourceUpdatedNotificationParams:
    return t.ResourceUpdatedNotificationParams(uri=uri)


UPDATED = "notifications/resources/updated"


async def following(s: ServedApp, *uris: str) -> None:
    """A session of a caller with all scopes, that follows these."""
    answer = await s.caller.post(opening("2025-11-25"), x_scopes="admin")
    s.caller.session, s.caller.revision = answer.headers["mcp-session-id"], "2025-11-25"
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await s.caller.post(told, x_scopes="admin")).status == 202
    for uri in uris:
        said = await s.caller.ask("resources/subscribe", {"uri": uri}, x_scopes="admin")
        assert "result" in said.json


@live
async def test_a_session_tells_of_a_resource_only_where_the_reader_may_hear_of_it() -> None:
    async with served_app(verify=scoped) as s:
        await following(s, "secret:a", "open:b")
        _, narrow = await s.caller.get()
        for uri in ("secret:a", "open:b"):
            s.service.publish(UPDATED, updated(uri))
        assert (await narrow.message())["params"]["uri"] == "open:b"
        # It waits for a reader who may hear of it, and goes to nobody else.
        _, wide = await s.caller.get(x_scopes="admin")
        assert (await wide.message())["params"]["uri"] == "secret:a"
        _, newest = await s.caller.get()
        s.service.publish(UPDATED, updated("secret:a"))
        assert (await wide.message())["params"]["uri"] == "secret:a"
        s.service.publish(UPDATED, updated("open:b"))
        assert (await newest.message())["params"]["uri"] == "open:b"


@live
async def test_what_a_reader_may_not_hear_of_keeps_nothing_else_from_it() -> None:
    async with served_app(verify=scoped) as s:
        await following(s, "secret:", "open:b")
        _, narrow = await s.caller.get()
        for n in range(300):
            s.service.publish(UPDATED, updated(f"secret:/{n}"))
        s.service.publish(UPDATED, updated("open:b"))
        assert (await narrow.message())["params"]["uri"] == "open:b"
        (session,) = s.sessions
        assert len(session._backlog) == 256


@live
async def test_a_stream_is_not_taken_up_with_fewer_scopes_than_it_was_opened_with() -> None:
    async with served_app(verify=scoped) as s:
        await following(s, "secret:a")
        wire, wide = await s.caller.get(x_scopes="admin")
        s.service.publish(UPDATED, updated("secret:a"))
        first = await wide.event()
        await wide.message()
        wire.abort()
        await s.wait_until_idle()
        _, again = await s.caller.get(last_event_id=first.id)
        assert again.status == 403
        assert "more scopes" in json.loads(await again.read())["error"]["message"]
        _, again = await s.caller.get(last_event_id=first.id, x_scopes="admin write")
        assert (await again.message())["params"]["uri"] == "secret:a"
