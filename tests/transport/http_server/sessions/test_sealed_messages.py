"""What replicas of a server send each other, and a program that may publish on their store."""

import asyncio
import json
import logging

import pytest

from colonnade import Server
from colonnade.auth.seal import KeyRing
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.replicas.changes import CHANGES_VERSION, ChangesMessage, SharedChanges
from colonnade.replicas.changes import _encode as encode_changes
from colonnade.replicas.replica import ReplicaMessage, draw_replica_name
from colonnade.replicas.replica import _encode as encode_replica_message
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_server.sessions.shared_session import (
    MESSAGE,
    SESSION_MESSAGE_VERSION,
    SessionMessage,
    encode_message,
)
from http_service import ABLE
from live import live, until
from replica_apps import replica_apps

KEYS = [b"k" * 32]
TOOLS_CHANGED = "notifications/tools/list_changed"


@live
async def test_who_may_publish_on_the_store_cannot_answer_what_a_user_was_asked() -> None:
    async with replica_apps(seal=KeyRing(KEYS, audience="press")) as r:
        await r.caller.open("2025-11-25", **ABLE)
        _, stream = await r.caller.at(0).asking("tools/call", {"name": "ask"}, id="call")
        id = (await stream.message())["id"]
        answer = {"jsonrpc": "2.0", "id": id}
        forged = {**answer, "result": {"action": "accept", "content": {"name": "forged"}}}
        body = encode_message(
            SessionMessage(r.caller.session or "", "", frames=[json.dumps(forged).encode()])
        )
        message = ReplicaMessage(
            1, draw_replica_name(), "message", MESSAGE, 0, body, SESSION_MESSAGE_VERSION
        )
        topic = f"replica {r.apps[0].name}"
        await r.store.publish(SERVER_PRINCIPAL, topic, encode_replica_message(message))
        result = {"action": "accept", "content": {"name": "blue"}}
        response = await r.caller.at(1).post({**answer, "result": result})
        assert response.status == 202
        assert (await stream.message())["result"]["content"][0]["text"] == "answer: blue"


@live
async def test_nothing_that_replicas_with_keys_send_each_other_can_be_read() -> None:
    async with replica_apps(seal=KeyRing(KEYS, audience="press")) as r:
        await r.caller.open("2025-11-25", **ABLE)
        _, stream = await r.caller.at(0).asking("tools/call", {"name": "ask"}, id="call")
        id = (await stream.message())["id"]
        result = {"action": "accept", "content": {"name": "a secret"}}
        await r.caller.at(1).post({"jsonrpc": "2.0", "id": id, "result": result})
        assert "a secret" in json.dumps(await stream.message())
        assert r.store.published
        assert not [one for _, one in r.store.published if b"secret" in one or b"session" in one]


@live
async def test_changes_that_were_not_encrypted_with_the_keys_are_ignored() -> None:
    store, heard, ring = MemoryStore(is_shared=True), [], KeyRing(KEYS, audience="press")
    both: list[SharedChanges] = []
    for name in ("one", "two"):
        both.append(
            SharedChanges(store, "press", lambda method, _, name=name: heard.append(name), ring)
        )
        await both[-1].start()
    forged = encode_changes(ChangesMessage(CHANGES_VERSION, "x", [(TOOLS_CHANGED, "")]))
    await store.publish(SERVER_PRINCIPAL, "changes press", forged)
    await asyncio.sleep(0)
    both[0].publish(TOOLS_CHANGED, t.NotificationParams())
    await until(lambda: heard == ["two"])
    for changes in both:
        await changes.stop()
    await store.close()


@live
async def test_a_server_with_keys_gives_them_to_its_replicas(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    for keys, warned in ((KEYS, False), ([], True)):
        caplog.clear()
        store = MemoryStore(is_shared=True)
        app = Server("press", store=store, keys=keys).asgi()
        await app.start()
        try:
            assert app._replica is not None
            assert (app._replica.seal is None) is warned
            said = [one for one in caplog.messages if "do not encrypt" in one]
            assert len(said) == warned
        finally:
            await app.stop()
            await store.close()
