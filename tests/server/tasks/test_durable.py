"""Tasks that outlive the process which created them: hand-over, parked tasks, effects done once."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import BlockingContext, Context, Server, TaskOptions
from colonnade.errors import CannotConnect, ChannelError, ConnectionLost
from colonnade.ports import SERVER_PRINCIPAL, Store, Swap
from colonnade.protocol.codec.encode import encode_finite
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025
from colonnade.protocol.tasks.lifecycle import LeaseTaken, TaskCompleted, apply
from colonnade.protocol.tasks.record import encode_record
from colonnade.protocol.types import CallToolResult, TextContent
from colonnade.server.tasks.runner import Ending
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from colonnade.testing import Clock
from live import live, live_for
from server.raw_client import Rejected, accept, text_content
from server.tasks import accepted, client_of, ended, get, reached, start, until, update

QUICK = TaskOptions(lease_s=0.5, hold_s=0.02)


@asynccontextmanager
async def replicas(path: Path, number: int = 2) -> AsyncGenerator[list[Store]]:
    """Stores of several processes on one file."""
    stores = [SqliteStore(path / "tasks.db") for _ in range(number)]
    try:
        yield list(stores)
    finally:
        for store in stores:
            await store.close()


class Effects:
    """What handlers did, in all processes together."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.go_on = asyncio.Event()
        self.begun = asyncio.Event()
        self.loop = asyncio.get_running_loop()


def works(store: Store, effects: Effects, options: TaskOptions = QUICK) -> Server:
    server = Server("works", store=store, tasks=options)

    @server.tool(task=True)
    async def build(ctx: Context) -> str:
        first = await ctx.once("first", lambda: _did(effects, "first"))
        effects.begun.set()
        await effects.go_on.wait()
        second = await ctx.once("second", lambda: _did(effects, "second"))
        return f"{first} {second}"

    @server.tool(task=True)
    def build_in_a_thread(ctx: BlockingContext) -> str:
        ctx.once("first", lambda: _did(effects, "first"))
        effects.loop.call_soon_threadsafe(effects.begun.set)
        asyncio.run_coroutine_threadsafe(effects.go_on.wait(), effects.loop).result()
        ctx.once("second", lambda: _did(effects, "second"))
        return "built"

    @server.tool(task=True)
    async def wait() -> str:
        effects.begun.set()
        await effects.go_on.wait()
        return "late"

    @server.tool(task=True)
    async def confirm(ctx: Context) -> str:
        await ctx.once("before", lambda: _did(effects, "before"))
        answer = await ctx.elicit("Sure?", bool)
        await ctx.once("after", lambda: _did(effects, "after"))
        return "yes" if answer else "no"

    @server.tool(task=True)
    def confirm_in_a_thread(ctx: BlockingContext) -> str:
        ctx.once("before", lambda: _did(effects, "before"))
        return "yes" if ctx.elicit("Sure?", bool) else "no"

    return server


def _did(effects: Effects, what: str) -> str:
    effects.done.append(what)
    return what


@live
async def test_another_process_reads_answers_and_cancels(tmp_path: Path) -> None:
    effects = Effects()
    async with replicas(tmp_path, 3) as stores:
        one, two, three = (works(store, effects, TaskOptions()) for store in stores)
        async with client_of(one) as a, client_of(two) as b, client_of(three) as c:
            id = (await start(a, "confirm"))["taskId"]
            state = await reached(b, id, "input_required")
            [key] = state["inputRequests"]
            await update(c, id, {key: accepted(value=True)})
            state = await ended(b, id)
            assert text_content(state["result"]) == "yes"
            assert effects.done == ["before", "after"]
            id = (await start(b, "build"))["taskId"]
            await effects.begun.wait()
            await c.ask("tasks/cancel", {"taskId": id})
            assert (await get(a, id))["status"] == "cancelled"
            await reached(b, id, "cancelled")  # also where it runs, a moment later


class UnheardStore(MemoryStore):
    """A store of several processes whose messages take too long."""

    async def publish(self, principal: str, topic: str, message: bytes) -> None:
        pass


@pytest.mark.spec("R1169")
@live
async def test_a_response_that_another_process_has_taken_is_no_longer_requested_by_the_first() -> (
    None
):
    store, options = UnheardStore(is_shared=True), TaskOptions()
    effects = Effects()
    async with (
        client_of(works(store, effects, options)) as first,
        client_of(works(store, effects, options)) as second,
    ):
        id = (await start(first, "confirm"))["taskId"]
        state = await reached(first, id, "input_required")
        [key] = state["inputRequests"]
        await update(second, id, {key: accepted(value=True)})
        assert (await get(first, id))["status"] == "working"


@live
async def test_a_process_that_stops_hands_its_tasks_over(tmp_path: Path) -> None:
    effects = Effects()
    async with replicas(tmp_path) as stores:
        # A lease that the test would not survive: only a release lets the other one go on.
        options = TaskOptions(lease_s=600.0)
        one, two = (works(store, effects, options) for store in stores)
        async with client_of(two) as b:
            async with client_of(one) as a:
                id = (await start(a, "build"))["taskId"]
                await effects.begun.wait()
                effects.begun.clear()
            await effects.begun.wait()  # begun again, in the other process
            effects.go_on.set()
            state = await ended(b, id)
            assert text_content(state["result"]) == "first second"
            assert effects.done == ["first", "second"]


@pytest.mark.parametrize("tool", ["confirm", "confirm_in_a_thread"])
@live
async def test_a_task_that_waits_long_is_unwound_and_goes_on_with_the_response(
    tmp_path: Path, tool: str
) -> None:
    effects = Effects()
    async with replicas(tmp_path) as stores:
        one, two = (works(store, effects) for store in stores)
        async with client_of(one) as a:
            id = (await start(a, tool))["taskId"]
            state = await reached(a, id, "input_required")
        async with client_of(two) as b:  # the first process is gone
            assert (await get(b, id))["inputRequests"] == state["inputRequests"]
            [key] = state["inputRequests"]
            await update(b, id, {key: accepted(value=True)})
            state = await ended(b, id)
            assert text_content(state["result"]) == "yes"
            assert effects.done.count("before") == 1


@pytest.mark.spec("R1182")
@live
async def test_a_task_that_waits_long_is_given_back_on_disk_and_does_not_count_as_a_dead_worker(
    tmp_path: Path,
) -> None:
    async with replicas(tmp_path, 1) as [store]:
        server = works(store, Effects(), TaskOptions(lease_s=600.0, hold_s=0.02))
        async with client_of(server) as client:
            id = (await start(client, "confirm"))["taskId"]
            [key] = (await reached(client, id, "input_required"))["inputRequests"]
            assert server._tasks is not None
            storage, runner = server._tasks._storage, server._tasks._runner
            async with asyncio.timeout(60.0):
                while runner._runs:
                    await asyncio.sleep(0.005)
            record = (await storage.find("", id)).record
            assert (record.parked, record.lease_until) == (True, None)
            await update(client, id, {key: accepted(value=True)})
            await ended(client, id)
            assert (await storage.find("", id)).record.attempt == 0


@live
async def test_a_task_asks_under_the_same_key_whenever_it_is_run_again(tmp_path: Path) -> None:
    effects = Effects()
    async with replicas(tmp_path, 1) as stores:
        keys: set[str] = set()
        id = ""
        for _ in range(3):
            async with client_of(works(stores[0], effects)) as client:
                id = id or (await start(client, "confirm"))["taskId"]
                keys |= (await reached(client, id, "input_required"))["inputRequests"].keys()
        assert len(keys) == 1
        assert effects.done == ["before"]


@live
async def test_a_named_input_request_that_changes_gets_another_key() -> None:
    words_of_run = iter(["Which seat?", "Which row?"])
    server = Server("s", tasks=QUICK)

    @server.tool(task=True)
    async def book(ctx: Context) -> str:
        seat = await ctx.elicit(next(words_of_run), str, key="seat")
        return f"{seat}"

    store = MemoryStore()
    server = Server("s", tasks=QUICK, store=store)
    server.tool(task=True)(book)
    async with client_of(server) as client:
        id = (await start(client, "book"))["taskId"]
        await reached(client, id, "input_required")
    async with client_of(server) as client:  # run from the top, with other words
        await update(client, id, {"seat": accepted(value="12A")})
        state = await until(client, id, lambda state: "seat.2" in state.get("inputRequests", {}))
        assert list(state["inputRequests"]) == ["seat.2"]
        await update(client, id, {"seat.2": accepted(value="9")})
        assert text_content((await ended(client, id))["result"]) == "9"


@live_for(None)
async def test_a_task_that_ran_too_long_fails() -> None:
    clock = Clock()
    server = Server("s")

    @server.tool(task=True, max_run_s=3600, keep_s=60)
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    with clock:
        clock.rule(server)
        async with client_of(server) as client:
            id = (await start(client, "forever"))["taskId"]
            await clock.advance(3599)
            assert (await get(client, id))["status"] == "working"
            await clock.advance(3)
            state = await get(client, id)
            assert state["status"] == "failed"
            assert state["error"]["code"] == -32603
            assert state["ttlMs"] >= 3_660_000
            await clock.advance(61)
            with pytest.raises(Rejected, match="no such task"):
                await get(client, id)


@live_for(None)
async def test_nothing_is_left_in_the_store_when_tasks_have_expired() -> None:
    clock = Clock()
    with clock:
        store = MemoryStore()
        effects = Effects()
        effects.go_on.set()
        server = works(store, effects, TaskOptions())
        clock.rule(server)
        async with client_of(server) as client:
            made = [(await start(client, "build"))["taskId"] for _ in range(10)]
            for id in made:
                await ended(client, id)
            assert len(await store.names("", "task", "", 100)) == 20
            assert await store.names(SERVER_PRINCIPAL, "task", "", 100) == []
            await clock.advance(3600 + 120)
            assert await store.names("", "task", "", 100) == []


@pytest.mark.parametrize("tool", ["build", "build_in_a_thread"])
@live
async def test_a_worker_that_was_stopped_beyond_its_lease_does_nothing_that_another_one_does(
    tool: str,
) -> None:
    store, effects = MemoryStore(), Effects()
    server = works(store, effects, TaskOptions(lease_s=600.0))
    async with client_of(server) as client:
        await start(client, tool)
        await effects.begun.wait()
        assert server._tasks is not None
        storage, runner = server._tasks._storage, server._tasks._runner
        [run] = runner._runs.values()
        # As if another worker had taken it, and this process knew nothing yet.
        [name] = await store.names("", "task/", "", 10)
        later = time.time() + 3600.0
        taken = apply(run.record, LeaseTaken("another", later + 600.0), later).record
        await store.put("", name, encode_record(taken), None)
        storage.clock = lambda: later
        effects.go_on.set()
        assert run.worker is not None
        await asyncio.wait([run.worker])
        assert run.ending is Ending.LOST
        assert effects.done == ["first"]


@live
async def test_a_worker_that_was_stopped_leaves_the_result_of_another_one_alone() -> None:
    store, effects = MemoryStore(), Effects()
    server = works(store, effects, TaskOptions(lease_s=600.0))
    async with client_of(server) as client:
        id = (await start(client, "wait"))["taskId"]
        await effects.begun.wait()
        assert server._tasks is not None
        storage, runner = server._tasks._storage, server._tasks._runner
        [run] = runner._runs.values()
        [name] = await store.names("", "task/", "", 10)
        later = time.time() + 3600.0
        record = apply(run.record, LeaseTaken("another", later + 600.0), later).record
        record = apply(record, TaskCompleted(record.lease_number, False, None), later).record
        result = CallToolResult(content=[TextContent(text="in time")])
        await storage.put_result(record, record.lease_number, encode_finite(result))
        await store.put("", name, encode_record(record), None)
        effects.go_on.set()
        assert run.worker is not None
        await asyncio.wait([run.worker])
        assert text_content((await get(client, id))["result"]) == "in time"
        assert len(await store.names("", "task-result/", "", 10)) == 1


class InterruptedStore(MemoryStore):
    """A store whose next changes of tasks fail; each takes place, and its reply is lost."""

    failures = 0
    error: type[ChannelError] = ConnectionLost

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        done = await super().swap_all(swaps)
        if self.failures:
            self.failures -= 1
            raise self.error("the store was lost")
        return done

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        done = await super().swap(principal, key, before, after, ttl_s)
        if self.failures and key.startswith("task"):
            self.failures -= 1
            raise self.error("the store was lost")
        return done


@live
async def test_a_task_whose_store_is_lost_for_a_moment_is_run_again_and_does_not_fail() -> None:
    store, effects = InterruptedStore(), Effects()
    server = works(store, effects)
    async with client_of(server) as client:
        id = (await start(client, "build"))["taskId"]
        await effects.begun.wait()
        store.failures = 1
        effects.go_on.set()
        state = await ended(client, id)
        assert text_content(state["result"]) == "first second"
        assert effects.done == ["first", "second"]


@pytest.mark.parametrize(
    ("error", "words"),
    [(ConnectionLost, "whether the task was created is unknown"), (CannotConnect, "try again")],
)
@live
async def test_a_call_that_cannot_become_a_task_gets_an_error(
    error: type[ChannelError], words: str
) -> None:
    store = InterruptedStore()
    server = works(store, Effects())
    async with client_of(server) as client:
        store.failures, store.error = 1, error
        with pytest.raises(Rejected, match=words):
            await start(client, "build")


@live
async def test_a_worker_that_was_stopped_goes_on_with_what_is_still_its_own() -> None:
    store, effects = MemoryStore(), Effects()
    server = works(store, effects, TaskOptions(lease_s=600.0))
    async with client_of(server) as client:
        id = (await start(client, "build"))["taskId"]
        await effects.begun.wait()
        assert server._tasks is not None
        later = time.time() + 3600.0
        server._tasks._storage.clock = lambda: later
        effects.go_on.set()
        state = await ended(client, id)
        assert text_content(state["result"]) == "first second"


@live
async def test_a_task_whose_workers_die_again_and_again_is_given_up() -> None:
    from msgspec.structs import replace

    from colonnade.protocol.tasks.record import decode_record, encode_record

    store, effects = MemoryStore(), Effects()
    server = works(store, effects)
    async with client_of(server) as client:
        id = (await start(client, "build"))["taskId"]
        await effects.begun.wait()
    [name] = await store.names("", "task/", "", 10)
    data = await store.get("", name)
    assert data is not None
    record = replace(decode_record(data), attempt=2, lease_until=1.0)  # as if it had died twice
    await store.put("", name, encode_record(record), None)
    async with client_of(server) as client:
        state = await ended(client, id)
        assert state["status"] == "failed"
        assert "stopped 3 times" in state["error"]["message"]


@live_for(None)
async def test_a_record_without_a_client_is_of_no_use_and_an_entry_without_a_record_goes() -> None:
    clock = Clock()
    with clock:
        store, effects = MemoryStore(), Effects()
        server = works(store, effects)
        clock.rule(server)
        async with client_of(server) as client:
            await start(client, "build")
        [name] = await store.names("", "task/", "", 10)
        await store.delete("", name)
        assert len(await store.names(SERVER_PRINCIPAL, "task", "", 10)) == 1
        async with client_of(server):
            await clock.advance(1200)
            assert await store.names(SERVER_PRINCIPAL, "task", "", 10) == []


@live
async def test_two_servers_with_other_names_share_a_store_and_no_task() -> None:
    store, effects = MemoryStore(), Effects()
    one, two = works(store, effects), Server("other", store=store)
    two.tool(name="build", task=True)(lambda: "x")
    async with client_of(one) as a, client_of(two) as b:
        id = (await start(a, "build"))["taskId"]
        with pytest.raises(Rejected, match="no such task"):
            await get(b, id)


@pytest.mark.parametrize("revisions", [(NOVEMBER_2025, JULY_2026), (JULY_2026, NOVEMBER_2025)])
@live
async def test_a_task_of_one_generation_can_be_read_in_the_other(revisions: Any) -> None:
    store, effects = MemoryStore(), Effects()
    server = works(store, effects)
    effects.go_on.set()
    made_in, read_in = revisions
    async with client_of(server, made_in) as a, client_of(server, read_in) as b:
        id = (await start(a, "build"))["taskId"]
        state = await ended(b, id)
        assert state["status"] == "completed"
        if read_in is NOVEMBER_2025:
            result = await b.ask("tasks/result", {"taskId": id})
        else:
            result = state["result"]
        assert text_content(result) == "first second"
    async with (
        client_of(server, made_in) as a,
        client_of(server, read_in, answer=accept(value=True)) as b,
    ):
        id = (await start(a, "confirm"))["taskId"]
        state = await reached(b, id, "input_required")
        if read_in is NOVEMBER_2025:
            result = await b.ask("tasks/result", {"taskId": id})
        else:
            [key] = state["inputRequests"]
            await update(b, id, {key: accepted(value=True)})
            result = (await ended(b, id))["result"]
        assert text_content(result) == "yes"
