"""Sessions during and right after an outage of the store that their replicas share."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from colonnade.store.limits import store_full
from colonnade.transport.http_server.legacy_sse import SSE_PATH
from colonnade.transport.http_server.request import Limits
from colonnade.transport.http_server.sessions.record import ANONYMOUS_SESSIONS, record_key
from colonnade.transport.http_server.sessions.shared_registry import SharedSessionRegistry
from http_client import Response, opening
from http_service import ABLE
from live import live, until
from replica_apps import Replicas, replica_apps


async def _asked(r: Replicas, at: int) -> tuple[Response, dict[str, Any]]:
    """A call at one application that elicits; its stream, and the response to the elicitation."""
    _, stream = await r.caller.at(at).asking("tools/call", {"name": "ask"}, id="call")
    question = await stream.message()
    result = {"action": "accept", "content": {"name": "blue"}}
    return stream, {"jsonrpc": "2.0", "id": question["id"], "result": result}


@live
async def test_a_response_waits_until_its_replica_listens_again() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        stream, answer = await _asked(r, at=1)
        r.store.listens.clear()
        r.store.cut_listeners()
        posted = asyncio.create_task(r.caller.at(2).post(answer))
        before = len(r.store.published)
        await until(lambda: posted.done() or len(r.store.published) > before)
        r.store.listens.set()
        assert (await posted).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: blue"


@live
async def test_a_response_for_a_replica_that_has_ended_is_accepted() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        _, answer = await _asked(r, at=1)
        await r.apps[1].kill()
        assert (await r.caller.at(2).post(answer)).status == 202


@live
async def test_a_response_whose_replica_stays_away_is_refused_and_may_be_sent_again() -> None:
    async with replica_apps(limits=Limits(store_wait_s=0.2)) as r:
        await r.caller.open("2025-11-25", **ABLE)
        stream, answer = await _asked(r, at=1)
        r.store.listens.clear()
        r.store.cut_listeners()
        refused = await r.caller.at(2).post(answer)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        r.store.listens.set()
        while (await r.caller.at(2).post(answer)).status == 503:
            pass
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: blue"


@live
async def test_a_lease_that_lapsed_in_an_outage_is_no_sign_that_its_replica_has_ended() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        stream, answer = await _asked(r, at=1)
        r.store.renews_leases = False
        r.store.cut_listeners()
        await r.store.delete("\x01server", f"replica {r.apps[1].name}")
        replica = r.apps[2].app._replica
        assert replica is not None
        await until(lambda: replica._disturbed_at > 0)
        posted = asyncio.create_task(r.caller.at(2).post(answer))
        operations = r.store.operations
        await until(lambda: r.store.operations > operations)
        r.store.renews_leases = True
        assert (await posted).status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: blue"


@live
async def test_progress_without_the_store_is_accepted_and_may_be_lost() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        token = f"{r.apps[0].name}.1"
        await r.caller.at(1).say("ping")
        r.store.leave()
        params = {"progressToken": token, "progress": 1}
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        assert (await r.caller.at(1).post(progress)).status == 202


async def _back_after(r: Replicas, work: Any) -> Any:
    """What a message gets that was sent during an outage, which then ends."""
    task = asyncio.create_task(work)
    registries: list[SharedSessionRegistry] = []
    for app in r.apps:
        assert app.app._shared_sessions is not None
        registries.append(app.app._shared_sessions)
    await until(lambda: task.done() or any(one._outage._waiting for one in registries))
    r.store.away = False
    return await task


@live
async def test_messages_wait_for_a_store_that_is_back_in_time() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        r.store.leave()
        called = await _back_after(r, r.caller.at(2).say("tools/call", {"name": "echo"}))
        assert (called.status, called.text) == (200, "hello")
        mine, r.caller.session = r.caller.session, None
        r.store.leave()
        opened = await _back_after(r, r.caller.at(0).post(opening("2025-11-25")))
        assert opened.status == 200
        r.caller.session = mine
        r.store.leave()
        _, stream = await _back_after(r, r.caller.at(1).get())
        assert stream.status == 200
        r.store.leave()
        assert (await _back_after(r, r.caller.at(0).request("DELETE"))).status == 200


@live
async def test_a_stream_is_resumed_when_the_store_is_back() -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25", **ABLE)
        wire, stream = await r.caller.at(1).asking("tools/call", {"name": "ask"}, id="call")
        event = await stream.event()
        await r.caller.at(2).say("ping", id="known")
        wire.abort()
        r.store.leave()
        _, rest = await _back_after(r, r.caller.at(2).get(last_event_id=event.id))
        assert rest.status == 200


@live
async def test_a_post_of_http_sse_waits_until_its_replica_listens_again() -> None:
    async with replica_apps() as r:
        _, stream = await r.caller.at(0).begin("GET", path=SSE_PATH, accept="text/event-stream")
        path = (await stream.event()).text()
        r.store.listens.clear()
        r.store.cut_listeners()
        body = json.dumps(opening("2024-11-05")).encode()
        posted = asyncio.create_task(r.caller.at(1).request("POST", body, path=path))
        before = len(r.store.published)
        await until(lambda: posted.done() or len(r.store.published) > before)
        r.store.listens.set()
        assert (await posted).status == 202
        assert (await stream.message())["id"] == 0


@live
async def test_a_store_that_is_full_is_not_reported_as_too_many_sessions() -> None:
    async with replica_apps() as r:
        put = r.store.put

        async def full(principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
            if key.startswith("session "):
                raise store_full()
            await put(principal, key, value, ttl_s)

        r.store.put = full
        refused = await r.caller.at(0).post(opening("2025-11-25"))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        words = refused.json["error"]["message"]
        assert words == "no session can be stored now; try again later"


DAMAGES: list[Callable[[dict[str, Any]], Any]] = [
    lambda record: None,
    lambda record: record | {"link": record["link"] | {"revision": None}},
    lambda record: record | {"link": record["link"] | {"capabilities": "none"}},
    lambda record: record | {"subscriptions": 1},
]


@pytest.mark.parametrize("damage", DAMAGES, ids=["no record", "revision", "capabilities", "uris"])
@live
async def test_a_session_whose_record_is_damaged_is_not_found(
    damage: Callable[[dict[str, Any]], Any],
) -> None:
    async with replica_apps() as r:
        await r.caller.open("2025-11-25")
        key = record_key(r.caller.session or "")
        data = await r.store.get(ANONYMOUS_SESSIONS, key)
        damaged = json.dumps(damage(json.loads(data or b""))).encode()
        await r.store.put(ANONYMOUS_SESSIONS, key, damaged, 60.0)
        assert (await r.caller.at(2).say("tools/call", {"name": "echo"})).status == 404
