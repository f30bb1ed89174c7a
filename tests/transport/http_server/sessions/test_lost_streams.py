"""Streams that are resumed at another replica after faults: events that the log lacks, a log that is
gone, and changes that happened while no replica had the stream."""

import json

import pytest

from colonnade.protocol.revision import JUNE_2025, MARCH_2025, NOVEMBER_2025, Revision
from colonnade.transport.duplex import BROADCASTS
from colonnade.transport.http_server.sessions.record import ANONYMOUS_SESSIONS, stream_key
from http_client import Response
from http_service import reporting
from live import live, until
from replica_apps import replica_apps

TOOLS_CHANGED = "notifications/tools/list_changed"
LOST = {"effectUnknown": True}

each_session = pytest.mark.parametrize(
    "revision", [MARCH_2025, JUNE_2025, NOVEMBER_2025], ids=lambda r: r.date
)


@live
async def test_events_that_could_not_be_logged_are_logged_when_the_store_is_back() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        params = reporting(steps=3, wait=True)
        _, stream = await r.caller.at(0).asking("tools/call", params, id=1)
        first = await stream.numbered()
        r.store.leave()
        for step in (1, 2, 3):
            r.apps[0].service.go.mark(f"step {step}")
        rest = await stream.rest()
        r.store.away = False
        for app in r.apps:
            assert app.app._shared_sessions is not None
            app.app._shared_sessions._outage._failed_at = None
            await until(lambda app=app: app.app._replica.holds_lease)  # type: ignore[union-attr]
        copy = r.copies()[0]
        assert copy is not None
        for at in (1, 2):  # also the one that asks before they are there
            _, resumed = await r.caller.at(at).get(last_event_id=first.id)
            assert await resumed.rest() == rest


@live
async def test_a_log_is_completed_though_no_client_resumes_its_stream() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(0).asking("tools/call", reporting(steps=2, wait=True), id=1)
        first = await stream.numbered()
        r.store.leave()
        for step in (1, 2):
            r.apps[0].service.go.mark(f"step {step}")
        rest = await stream.rest()
        r.store.away = False
        registry = r.apps[0].app._shared_sessions
        assert registry is not None
        assert len(registry._behind) == 1
        registry._outage._failed_at = None
        await until(lambda: not registry._behind and registry._maintaining is None)
        await r.apps[0].kill()
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert await resumed.rest() == rest


@each_session
@live
async def test_a_replica_can_be_asked_for_an_event_before_it_has_the_acknowledgement(
    revision: Revision,
) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        params = reporting(steps=2, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id=1)
        first = await stream.numbered()
        wire.abort()
        await r.apps[0].service.marks.reached("step 1")
        copy = r.copies()[0]
        assert copy is not None
        (owned,) = copy._streams.values()
        # The next entry is in the log, and its acknowledgement does not come.
        r.store.acknowledges.clear()
        r.apps[0].service.go.mark("step 1")
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        second = await resumed.numbered()
        assert owned.last_number < int(str(second.id).rpartition("-")[2])
        _, again = await r.caller.at(0).get(last_event_id=second.id)
        assert again.status == 200
        r.store.acknowledges.set()
        r.apps[0].service.go.mark("step 2")
        assert [json.loads(event.data).get("id") for event in await again.rest()] == [1]


@each_session
@live
async def test_a_request_of_which_nothing_is_left_gets_an_error_with_its_id(
    revision: Revision,
) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        params = reporting(steps=2, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id='a"-.,')
        first = await stream.numbered()
        wire.abort()
        name = str(first.id).rpartition("-")[0]
        await r.apps[0].kill()
        await r.store.drop(ANONYMOUS_SESSIONS, stream_key(r.caller.session or "", name))
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        (error,) = [json.loads(event.data) for event in await resumed.rest()]
        assert (error["id"], error["error"]["code"]) == ('a"-.,', -32603)
        assert error["error"]["data"] == LOST


@live
async def test_a_request_whose_log_has_expired_gets_its_response_from_the_replica_that_runs_it() -> (
    None
):
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        params = reporting(steps=2, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id=1)
        first = await stream.numbered()
        wire.abort()
        name = str(first.id).rpartition("-")[0]
        await r.store.drop(ANONYMOUS_SESSIONS, stream_key(r.caller.session or "", name))
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        assert resumed.status == 200
        for step in (1, 2):
            r.apps[0].service.go.mark(f"step {step}")
        messages = [json.loads(event.data) for event in await resumed.rest()]
        assert messages[-1]["id"] == 1
        assert "result" in messages[-1]


@live
async def test_an_event_of_another_session_is_unknown_at_each_replica() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        _, stream = await r.caller.at(0).asking("tools/call", reporting(steps=1), id=1)
        first = (await stream.rest())[0]
        await r.caller.open("2025-11-25")
        for at in range(3):
            _, refused = await r.caller.at(at).get(last_event_id=first.id)
            assert refused.status == 400


@live
async def test_a_request_with_a_long_id_of_which_nothing_is_left_is_410() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        params = reporting(steps=2, wait=True)
        wire, stream = await r.caller.at(0).asking("tools/call", params, id="i" * 300)
        first = await stream.numbered()
        wire.abort()
        name = str(first.id).rpartition("-")[0]
        await r.apps[0].kill()
        await r.store.drop(ANONYMOUS_SESSIONS, stream_key(r.caller.session or "", name))
        wire, refused = await r.caller.at(1).get(last_event_id=first.id)
        await refused.read()
        assert (refused.status, refused.code) == (410, -32603)
        assert refused.json["error"]["data"] == LOST


# ---------------------------------------------------------------- changes that may be lost


async def _announced(stream: Response, uri: str) -> None:
    """Wait for the announcement of all lists, and of this resource."""
    messages = [await stream.message() for _ in range(4)]
    assert {one["method"] for one in messages[:3]} == BROADCASTS
    assert messages[3]["params"]["uri"] == uri


@each_session
@pytest.mark.parametrize("has_event", [False, True])
@live
async def test_what_may_have_changed_is_announced_if_the_replica_with_the_stream_has_ended(
    revision: Revision, has_event: bool
) -> None:
    async with replica_apps() as r:
        await r.caller.open(revision.date)
        await r.caller.at(1).say("resources/subscribe", {"uri": "a://b"})
        wire, stream = await r.caller.at(0).get()
        await r.listening(0)
        after: dict[str, str | None] = {}
        if has_event:
            r.publish(TOOLS_CHANGED)
            after["last_event_id"] = (await stream.numbered()).id
        wire.abort()
        await r.apps[0].kill()
        _, resumed = await r.caller.at(1).get(**after)
        assert resumed.status == 200
        await _announced(resumed, "a://b")
        r.apps[1].service.publish(TOOLS_CHANGED)
        assert (await resumed.message())["method"] == TOOLS_CHANGED


@live
async def test_what_may_have_changed_is_announced_if_the_log_of_the_stream_has_expired() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(1).say("resources/subscribe", {"uri": "a://b"})
        wire, stream = await r.caller.at(0).get()
        first = await stream.event()
        wire.abort()
        name = str(first.id).rpartition("-")[0]
        await r.apps[0].kill()
        await r.store.drop(ANONYMOUS_SESSIONS, stream_key(r.caller.session or "", name))
        _, resumed = await r.caller.at(1).get(last_event_id=first.id)
        await _announced(resumed, "a://b")


@live
async def test_what_may_have_changed_is_announced_on_a_stream_that_is_resumed_where_it_was() -> (
    None
):
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(1).say("resources/subscribe", {"uri": "a://b"})
        wire, stream = await r.caller.at(0).get()
        first = await stream.event()
        wire.abort()
        wire, _ = await r.caller.at(1).get()
        await r.listening(1)
        wire.abort()
        await r.apps[1].kill()
        _, resumed = await r.caller.at(0).get(last_event_id=first.id)
        await _announced(resumed, "a://b")


@live
async def test_nothing_is_announced_if_the_replica_with_the_stream_hands_it_over() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        await r.caller.at(1).say("resources/subscribe", {"uri": "a://b"})
        wire, stream = await r.caller.at(0).get()
        first = await stream.event()
        await r.listening(0)
        wire.abort()
        wire, resumed = await r.caller.at(1).get(last_event_id=first.id)
        await r.listening(1)
        _, resumed = await r.caller.at(2).get()
        await r.listening(2)
        r.publish(TOOLS_CHANGED)
        assert (await resumed.message())["method"] == TOOLS_CHANGED
