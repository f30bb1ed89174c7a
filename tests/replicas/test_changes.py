"""Changes of one replica reach the listeners of all: merged, once, and never in a circle."""

import asyncio
import subprocess
import sys
import threading

import msgspec
import pytest

from colonnade import Server
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.replicas import changes as module
from colonnade.replicas.changes import (
    CHANGES_VERSION,
    MAX_MESSAGE_SUBJECTS,
    MAX_SUBJECTS,
    MAX_URI_CHARACTERS,
    RESOURCE_UPDATED,
    WINDOW_S,
    ChangesMessage,
    ChangeWindow,
    SharedChanges,
)
from colonnade.store.memory import MemoryStore
from replicas.shared_store import ReplicaFixture, run_replicas

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
A, B = (TOOLS, ""), (RESOURCE_UPDATED, "file:///b")


# ---------------------------------------------------------------- the window


def test_the_first_change_passes_at_once_and_repeated_ones_once_at_the_end_of_the_window() -> None:
    window = ChangeWindow(0.05)
    assert window.next_end is None
    assert window.add(A, 10.0) is True
    assert window.add(A, 10.01) is False
    assert window.add(A, 10.02) is False
    assert window.add(B, 10.03) is True
    assert window.next_end == 10.05
    assert window.due(10.04) == []
    assert window.due(10.05) == [A]
    assert window.add(A, 10.06) is False  # what has just passed opens a window, too
    assert window.due(10.2) == [A]
    assert window.due(10.3) == []
    assert window.next_end is None
    assert window.add(A, 11.0) is True


def test_the_last_change_always_passes_after_it_happened() -> None:
    window = ChangeWindow(0.05)
    passed: list[float] = []
    changes = [0.0, 0.01, 0.049, 0.05, 0.07, 0.11, 0.3]
    for step in range(1000):
        now = step / 1000
        if window.due(now):
            passed.append(now)
        if now in changes and window.add(A, now):
            passed.append(now)
    for change in changes:
        assert any(change <= one <= change + 0.051 for one in passed)
    assert len(passed) < len(changes)


def test_the_subjects_of_a_window_are_bounded() -> None:
    window = ChangeWindow()
    for number in range(MAX_SUBJECTS):
        assert window.add((RESOURCE_UPDATED, f"u:{number}"), 0.0) is True
    assert window.add((RESOURCE_UPDATED, "u:more"), 0.0) is None
    assert window.add((RESOURCE_UPDATED, "u:1"), 0.0) is False
    assert window.flush() == [(RESOURCE_UPDATED, "u:1")]
    assert window.flush() == []


# ---------------------------------------------------------------- between replicas


class Follower:
    """The changes that the listeners of one replica hear."""

    def __init__(self, replicas: ReplicaFixture, server: str = "shop") -> None:
        self.heard: list[tuple[str, str]] = []
        self.shared = SharedChanges(replicas.store, server, self._deliver)

    def _deliver(self, method: str, params: t.NotificationParams) -> None:
        self.heard.append((method, getattr(params, "uri", "")))


async def followers(replicas: ReplicaFixture, number: int) -> list[Follower]:
    found = [Follower(replicas) for _ in range(number)]
    for one in found:
        await one.shared.start()
    return found


def updated(uri: str) -> t.NotificationParams:
    return t.ResourceUpdatedNotificationParams(uri=uri)


def test_a_change_reaches_all_others_and_comes_not_back() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b, c = await followers(replicas, 3)
        other = Follower(replicas, "another server")
        await other.shared.start()
        a.shared.publish(TOOLS, t.NotificationParams())
        a.shared.publish(RESOURCE_UPDATED, updated("file:///b"))
        await replicas.settle()
        assert b.heard == c.heard == [A, B]
        assert a.heard == other.heard == []
        assert len(replicas.store.published) <= 2
        for one in (a, b, c, other):
            await one.shared.stop()

    run_replicas(body)


def test_repeated_changes_are_merged_and_none_is_forgotten() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await followers(replicas, 2)
        for _ in range(1000):
            a.shared.publish(RESOURCE_UPDATED, updated("file:///b"))
        await replicas.settle()
        assert b.heard == [B]
        await replicas.clock.advance(3 * WINDOW_S)
        assert b.heard == [B, B]
        await replicas.clock.advance(10.0)
        assert b.heard == [B, B]
        for one in (a, b):
            await one.shared.stop()

    run_replicas(body)


def test_the_same_change_of_many_replicas_is_merged_where_it_arrives() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        *many, last = await followers(replicas, 20)
        for one in many:
            one.shared.publish(TOOLS, t.NotificationParams())
        await replicas.clock.advance(1.0)
        assert last.heard == [A, A]
        for one in (*many, last):
            await one.shared.stop()

    run_replicas(body)


def test_many_changes_are_split_into_messages_that_a_listener_can_take() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await followers(replicas, 2)
        uris = [f"file:///{number}/{'x' * 900}" for number in range(1000)]
        for uri in uris:
            a.shared.publish(RESOURCE_UPDATED, updated(uri))
        a.shared.publish(RESOURCE_UPDATED, updated("x" * (MAX_URI_CHARACTERS + 1)))
        a.shared.publish("notifications/new", t.NotificationParams())
        await replicas.clock.advance(2.0)
        assert b.heard == [(RESOURCE_UPDATED, uri) for uri in uris]
        assert all(len(data) < 100_000 for _, data in replicas.store.published)
        for one in (a, b):
            await one.shared.stop()

    run_replicas(body)


def test_changes_may_be_published_by_any_thread() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await followers(replicas, 2)
        thread = threading.Thread(target=a.shared.publish, args=(TOOLS, t.NotificationParams()))
        thread.start()
        await asyncio.to_thread(thread.join)
        await replicas.settle()
        assert b.heard == [A]
        for one in (a, b):
            await one.shared.stop()
        a.shared.publish(TOOLS, t.NotificationParams())  # does nothing any more
        await replicas.settle()
        assert b.heard == [A]

    run_replicas(body)


def test_what_waits_is_published_when_a_replica_stops() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await followers(replicas, 2)
        a.shared.publish(TOOLS, t.NotificationParams())
        await replicas.settle()
        a.shared.publish(TOOLS, t.NotificationParams())
        await a.shared.stop()
        await replicas.clock.advance(1.0)
        assert b.heard == [A, A]
        await b.shared.stop()

    run_replicas(body)


def test_after_missed_messages_the_lists_that_ever_changed_are_announced() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        a, b = await followers(replicas, 2)
        replicas.store.cut_listeners()
        await replicas.settle()
        assert a.heard == b.heard == []  # nothing has ever changed, so nothing was missed
        a.shared.publish(PROMPTS, t.NotificationParams())
        await replicas.clock.advance(1.0)
        b.heard.clear()
        replicas.store.leave()
        a.shared.publish(RESOURCE_UPDATED, updated("file:///lost"))
        await replicas.clock.advance(10.0)
        replicas.store.away = False
        await replicas.clock.advance(4.0)
        assert a.heard == b.heard == [(PROMPTS, "")]
        for one in (a, b):
            await one.shared.stop()

    run_replicas(body)


def test_messages_of_another_release_are_ignored_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(replicas: ReplicaFixture) -> None:
        [a] = await followers(replicas, 1)
        newer = ChangesMessage(CHANGES_VERSION + 1, "x", [A])
        unknown = ChangesMessage(CHANGES_VERSION, "x", [("notifications/new", ""), A])
        many = ChangesMessage(CHANGES_VERSION, "x", [A] * (MAX_MESSAGE_SUBJECTS + 1))
        for message in (b"garbage", newer, many, unknown, newer):
            data = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
            await replicas.store.publish(SERVER_PRINCIPAL, "changes shop", data)
        await replicas.settle()
        assert a.heard == [A]
        await a.shared.stop()

    run_replicas(body)
    assert caplog.text.count("another release") == 1


def test_too_many_changes_at_once_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SUBJECTS", 2)

    async def body(replicas: ReplicaFixture) -> None:
        a, b = await followers(replicas, 2)
        for number in range(5):
            a.shared.publish(RESOURCE_UPDATED, updated(f"u:{number}"))
        await replicas.settle()
        assert len(b.heard) == 2
        for one in (a, b):
            await one.shared.stop()

    run_replicas(body)
    assert caplog.text.count("resources change at once") == 1


# ---------------------------------------------------------------- servers


def test_servers_on_a_shared_store_tell_each_other_of_changes() -> None:
    async def body(replicas: ReplicaFixture) -> None:
        store = MemoryStore(is_shared=True)
        servers = [Server("shop", store=store) for _ in range(3)]
        inner = Server("inner", store=store)
        servers[0].mount(inner)
        heard: list[list[str]] = [[], [], []]
        for server, own in zip(servers, heard, strict=True):
            await server.start()

            def on_change(method: str, _: t.NotificationParams, own: list[str] = own) -> None:
                own.append(method)

            server.watch_changes(on_change)

        @servers[0].tool
        def one() -> str:
            return ""

        @inner.prompt
        def two() -> str:
            return ""

        assert one is not None
        assert two is not None
        await replicas.settle()
        assert [set(own) for own in heard] == [{TOOLS, PROMPTS}] * 3
        assert [len(own) for own in heard] == [2, 2, 2]
        for server in servers:
            await server.stop()
            await server.start()  # once more
            await server.stop()
        await store.close()

    run_replicas(body)


def test_a_server_goes_on_in_another_loop_if_the_first_was_closed_without_a_stop() -> None:
    server = Server("shop", store=MemoryStore(is_shared=True))

    async def start_only() -> None:
        await server.start()

    heard: list[str] = []

    async def whole() -> None:
        await server.start()
        server.watch_changes(lambda method, _: heard.append(method))

        @server.tool
        def one() -> str:
            return ""

        assert one is not None
        await asyncio.sleep(0.1)
        await server.stop()

    asyncio.run(start_only())
    asyncio.run(whole())
    assert heard == [TOOLS]


def test_a_server_without_a_shared_store_loads_nothing_of_replicas() -> None:
    code = (
        "import asyncio, sys\n"
        "from colonnade import Server\n"
        "from colonnade.store.memory import MemoryStore\n"
        "async def main():\n"
        "    server = Server('s', store=MemoryStore())\n"
        "    await server.start()\n"
        "    server.asgi()\n"
        "    await server.stop()\n"
        "asyncio.run(main())\n"
        "assert not [name for name in sys.modules if name.startswith('colonnade.replicas')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
