"""A queue that delivers tasks to workers: what travels, and what becomes of a task."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Server, TaskOptions
from colonnade.errors import ConnectionLost, InvalidArgument, InvalidArgumentType
from colonnade.ports import Store
from colonnade.server.tasks import runner
from colonnade.server.tasks.docket import DocketQueue
from colonnade.server.tasks.queue import TaskQueue, TaskReference, decode_reference
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from live import Records, live, until
from server.memory_queue import MemoryQueue
from server.tasks import accepted, client_of, ended, reached, start, update
from store.redis_server import redis_server


class Place:
    """What the tools of all servers of a test share."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.go = asyncio.Event()


def press(name: str, place: Place, store: Store, queue: TaskQueue, **options: Any) -> Server:
    tasks = TaskOptions(queue=queue, requests_per_s=None, **options)
    server = Server("press", store=store, tasks=tasks)

    @server.tool(task=True)
    async def book(topic: str) -> str:
        place.ran.append(name)
        return f"a book about {topic}"

    @server.tool(task=True)
    async def hold() -> str:
        place.ran.append(name)
        await place.go.wait()
        return name

    @server.tool(task=True)
    async def order(ctx: Context) -> str:
        place.ran.append(name)
        copies = await ctx.elicit("How many?", int)
        return f"{copies} by {name}"

    return server


@asynccontextmanager
async def started(*servers: Server) -> AsyncGenerator[None]:
    for server in servers:
        await server.start()
    try:
        yield
    finally:
        for server in servers:
            await server.stop()


# ---------------------------------------------------------------- any queue


@live
async def test_a_process_that_runs_none_submits_one_string_and_a_worker_runs_the_task() -> None:
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue()
    front = press("front", place, store, queue, max_running=0)
    worker = press("worker", place, store, queue)
    async with started(worker), client_of(front, principal="ada") as client:
        id = (await start(client, "book", {"topic": "tea"}))["taskId"]
        state = await ended(client, id)
        assert state["result"]["content"][0]["text"] == "a book about tea"
        assert place.ran == ["worker"]
        assert queue.submitted == [
            ("press", json.dumps(["press", "ada", id], separators=(",", ":")))
        ]


@live
async def test_what_is_delivered_several_times_runs_once() -> None:
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue(copies=3)
    workers = [press(f"w{n}", place, store, queue, lease_s=0.3) for n in range(2)]
    front = press("front", place, store, queue, max_running=0)
    async with started(*workers), client_of(front) as client:
        id = (await start(client, "hold"))["taskId"]
        await until(lambda: bool(place.ran))
        await until(lambda: queue.finished == 2)  # they have seen that the lease is renewed
        place.go.set()
        assert (await ended(client, id))["status"] == "completed"
        assert len(place.ran) == 1


@live
async def test_a_task_that_waits_for_input_is_submitted_again_with_the_response() -> None:
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue()
    front = press("front", place, store, queue, max_running=0)
    worker = press("worker", place, store, queue, hold_s=0.01)
    async with started(worker), client_of(front) as client:
        id = (await start(client, "order"))["taskId"]
        [key] = (await reached(client, id, "input_required"))["inputRequests"]
        await until(lambda: worker._tasks is not None and not worker._tasks._runner._runs)
        await update(client, id, {key: accepted(value=3)})
        state = await ended(client, id)
        assert state["result"]["content"][0]["text"] == "3 by worker"
        assert len(queue.submitted) == 2
        assert queue.submitted[0] == queue.submitted[1]


@live
async def test_a_worker_that_stops_gives_its_tasks_to_the_queue() -> None:
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue()
    front = press("front", place, store, queue, max_running=0)
    one, two = (press(name, place, store, queue) for name in ("one", "two"))
    async with client_of(front) as client:
        async with started(one):
            id = (await start(client, "hold"))["taskId"]
            await until(lambda: place.ran == ["one"])
        place.go.set()
        async with started(two):
            assert (await ended(client, id))["result"]["content"][0]["text"] == "two"
        assert queue.serving == 0


@live
async def test_a_cancelled_task_ends_in_its_worker() -> None:
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue()
    front = press("front", place, store, queue, max_running=0)
    worker = press("worker", place, store, queue)
    async with started(worker), client_of(front) as client:
        id = (await start(client, "hold"))["taskId"]
        await until(lambda: bool(place.ran))
        await client.ask("tasks/cancel", {"taskId": id})
        await until(lambda: worker._tasks is not None and not worker._tasks._runner._runs)
        assert (await ended(client, id))["status"] == "cancelled"


@live
async def test_what_the_queue_lost_is_found_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "QUEUE_CHECK_S", 0.2)
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue()
    queue.fails = True
    front = press("front", place, store, queue, max_running=0)
    worker = press("worker", place, store, queue)
    with Records("colonnade.tasks") as log:
        async with started(worker), client_of(front) as client:
            id = (await start(client, "book", {"topic": "tea"}))["taskId"]
            assert (await ended(client, id))["status"] == "completed"
    assert any("is not in the queue" in line for line in log.lines)


@live
async def test_what_is_no_task_of_the_server_is_not_run() -> None:
    place, store, queue = Place(), MemoryStore(is_shared=True), MemoryQueue()
    worker = press("worker", place, store, queue)
    with Records("colonnade.tasks") as log:
        async with started(worker):
            for text in ("", "{}", '["press"]', '["other","","1"]', '["press","","1"]'):
                await queue.submit("press", text)
            await until(lambda: len(log.lines) == 4)
    assert place.ran == []


def test_a_reference_is_one_string() -> None:
    reference = TaskReference("press", 'a "b"', "01")
    assert decode_reference(reference.encode()) == reference


def test_what_is_no_queue_is_refused() -> None:
    with pytest.raises(InvalidArgumentType, match="queue takes a TaskQueue"):
        TaskOptions(queue="redis://127.0.0.1")  # pyright: ignore[reportArgumentType]


# ---------------------------------------------------------------- pydocket


@live
async def test_docket_delivers_tasks_responses_and_what_is_given_back(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis:
        place, path = Place(), tmp_path / "press.db"
        queues = [DocketQueue(redis.url) for _ in range(3)]
        front = press("front", place, SqliteStore(path), queues[0], max_running=0)
        one = press("one", place, SqliteStore(path), queues[1], hold_s=0.01)
        two = press("two", place, SqliteStore(path), queues[2], hold_s=0.01)
        async with client_of(front, principal="ada") as client:
            async with started(one):
                id = (await start(client, "book", {"topic": "tea"}))["taskId"]
                state = await ended(client, id)
                assert state["result"]["content"][0]["text"] == "a book about tea"
                id = (await start(client, "order"))["taskId"]
                [key] = (await reached(client, id, "input_required"))["inputRequests"]
                await until(lambda: one._tasks is not None and not one._tasks._runner._runs)
                held = (await start(client, "hold"))["taskId"]
                await until(lambda: len(place.ran) == 3)
            async with started(two):
                await update(client, id, {key: accepted(value=3)})
                assert (await ended(client, id))["result"]["content"][0]["text"] == "3 by two"
                await until(lambda: place.ran[-1] == "two")
                place.go.set()
                assert (await ended(client, held))["result"]["content"][0]["text"] == "two"
        stored = b" ".join(redis.client().keys("*"))
        assert b"tea" not in stored
        for server in (front, one, two):
            await server.store.close()


@live
async def test_a_docket_that_does_not_respond_is_an_error_of_the_channel(tmp_path: Path) -> None:
    with redis_server(tmp_path) as redis:
        url = redis.url
    queue = DocketQueue(url)
    with pytest.raises(ConnectionLost, match="the task queue failed"):
        await queue.submit("press", "x")
    await queue.close()


@pytest.mark.parametrize(
    ("url", "options"),
    [("127.0.0.1", {}), ("redis://x", {"redelivery_s": 0}), ("redis://x", {"redelivery_s": -1.0})],
)
def test_what_is_no_url_or_no_time_is_refused(url: str, options: Any) -> None:
    with pytest.raises(InvalidArgument):
        DocketQueue(url, **options)
