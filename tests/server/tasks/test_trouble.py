"""Tasks when something goes wrong: clients that leave, handlers that give up, stores that fail."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from colonnade import ChannelError, Context, Server, TaskOptions
from colonnade.ports import SERVER_PRINCIPAL, Swap
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import live
from server.raw_client import accept, text_content
from server.tasks import DECLARED, accepted, client_of, ended, get, reached, start, until, update

META = {"io.modelcontextprotocol/clientCapabilities": DECLARED}


class SlowStore(MemoryStore):
    """A store whose changes wait, or fail, as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.failures = 0

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        if self.failures:
            self.failures -= 1
            raise ChannelError("the disk is gone")
        self.entered.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await super().swap_all(swaps)


@live
async def test_a_client_that_leaves_before_it_is_told_of_the_task_leaves_none_behind() -> None:
    store = SlowStore()
    server = Server("s", store=store)
    ran: list[str] = []
    server.tool(name="run", task=True)(lambda: ran.append("x"))
    runner = HttpRunner(server.asgi(), port=0)
    await runner.start()
    async with Caller(runner.port) as caller:
        store.go_on.clear()
        params = {"name": "run", "arguments": {}}
        calling = asyncio.ensure_future(caller.stream("tools/call", params, meta=META))
        await store.entered.wait()
        for wire in caller.wires:
            wire.abort()
        calling.cancel()
        await store.cancelled.wait()
        store.go_on.set()
        for _ in range(100):
            await asyncio.sleep(0)
        assert await store.names("", "task", "", 10) == []
        assert await store.names(SERVER_PRINCIPAL, "task", "", 10) == []
        assert ran == []
    await runner.stop(0.0)
    with contextlib.suppress(asyncio.CancelledError, OSError, EOFError):
        await calling


@live
async def test_an_input_request_that_the_handler_gives_up_is_withdrawn() -> None:
    server = Server("s")
    go_on = asyncio.Event()

    @server.tool(task=True)
    async def hurry(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.01):
                return await ctx.elicit("Quick?", str)
        except TimeoutError:
            await go_on.wait()
            return "too slow"

    async with client_of(server) as client:
        id = (await start(client, "hurry"))["taskId"]
        await reached(client, id, "input_required")
        state = await reached(client, id, "working")
        assert "inputRequests" not in state
        await update(client, id, {"elicit": accepted(value="x")})  # acknowledged, and ignored
        go_on.set()
        assert text_content((await ended(client, id))["result"]) == "too slow"


@live
async def test_a_task_is_run_again_if_the_store_failed_meanwhile() -> None:
    store = SlowStore()
    server = Server("s", store=store, tasks=TaskOptions(lease_s=0.2))
    runs: list[int] = []

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        runs.append(1)
        if len(runs) == 1:
            store.failures = 1
        return "done"

    async with client_of(server) as client:
        id = (await start(client, "work"))["taskId"]
        state = await ended(client, id)
        assert text_content(state["result"]) == "done"
        assert len(runs) == 2


@live
async def test_a_task_whose_effect_could_not_be_recorded_is_run_again() -> None:
    store = SlowStore()
    server = Server("s", store=store)
    done: list[int] = []

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        store.failures = 0 if done else 1
        await ctx.once("a", lambda: done.append(1))
        return "done"

    async with client_of(server) as client:
        state = await ended(client, (await start(client, "work"))["taskId"])
        assert text_content(state["result"]) == "done"
        assert len(done) == 2  # the store did not know that it was done


@live
async def test_only_so_many_tasks_wait_for_input_in_memory() -> None:
    begun: list[int] = []
    server = Server("s", tasks=TaskOptions(max_held=2))

    @server.tool(task=True)
    async def ask(n: int, ctx: Context) -> str:
        begun.append(n)
        return await ctx.elicit(f"Number {n}?", str)

    async with client_of(server) as client:
        made = [(await start(client, "ask", {"n": n}))["taskId"] for n in range(6)]
        for id in made:
            [key] = (await reached(client, id, "input_required"))["inputRequests"]
        for id in made:
            [key] = (await get(client, id))["inputRequests"]
            await update(client, id, {key: accepted(value="x")})
            assert text_content((await ended(client, id))["result"]) == "x"
        assert len(begun) > len(made)  # some were unwound, and run again


@live
async def test_a_task_tool_that_is_registered_while_the_server_runs_works_at_once() -> None:
    server = Server("s")
    server.tool(name="plain")(lambda: "x")
    async with client_of(server) as client:
        server.tool(name="late", task=True)(lambda: "late")
        state = await ended(client, (await start(client, "late"))["taskId"])
        assert text_content(state["result"]) == "late"


@pytest.mark.parametrize("first", [True, False])
@live
async def test_servers_with_tasks_of_their_own_can_be_mounted(first: bool) -> None:
    outer, inner = Server("outer"), Server("inner")
    outer.tool(name="own", task=True)(lambda: "own")
    if first:
        inner.tool(name="inside", task=True)(lambda: "inside")
    outer.mount(inner, namespace="in")
    if not first:
        inner.tool(name="inside", task=True)(lambda: "inside")
    async with client_of(outer) as client:
        for name, text in (("own", "own"), ("in_inside", "inside")):
            state = await ended(client, (await start(client, name))["taskId"])
            assert text_content(state["result"]) == text


@live
async def test_a_server_can_be_started_again_and_goes_on_with_its_tasks() -> None:
    server = Server("s", store=MemoryStore())
    go_on = asyncio.Event()

    @server.tool(task=True)
    async def wait() -> str:
        await go_on.wait()
        return "waited"

    async with client_of(server) as client:
        id = (await start(client, "wait"))["taskId"]
    go_on.set()
    async with client_of(server) as client:
        assert text_content((await ended(client, id))["result"]) == "waited"


def test_a_server_whose_loop_was_closed_runs_tasks_in_the_next_one() -> None:
    server = Server("s", store=MemoryStore())
    server.tool(name="run", task=True)(lambda: "x")

    async def abandoned() -> None:
        await server.start()  # and never stopped

    async def used() -> str:
        async with client_of(server) as client:
            return (await ended(client, (await start(client, "run"))["taskId"]))["status"]

    asyncio.run(abandoned())
    assert asyncio.run(used()) == "completed"


@live
async def test_questions_one_after_another_and_more_than_rounds_allow() -> None:
    server = Server("s", tasks=TaskOptions(hold_s=0.001))

    @server.tool(task=True)
    async def quiz(ctx: Context) -> int:
        right = 0
        for n in range(15):
            right += await ctx.elicit(f"Question {n}?", bool)
        return right

    async with client_of(server) as client:
        id = (await start(client, "quiz"))["taskId"]
        seen: set[str] = set()
        for _ in range(15):
            state = await until(
                client, id, lambda state: bool(state.get("inputRequests", {}).keys() - seen)
            )
            [key] = state["inputRequests"].keys() - seen
            seen.add(key)
            await update(client, id, {key: accepted(value=True)})
        assert (await ended(client, id))["result"]["structuredContent"] == 15
        assert len(seen) == 15


@live
async def test_sampling_and_roots_work_inside_a_task() -> None:
    server = Server("s")

    @server.tool(task=True)
    async def both(ctx: Context) -> str:
        reply = await ctx.sample("Hello?")
        roots = await ctx.roots()
        return f"{reply.text} {roots[0].uri}"

    def answer(method: str, params: Any) -> Any:
        if method == "roots/list":
            return {"roots": [{"uri": "file:///a"}]}
        content = {"type": "text", "text": "Hi"}
        return {"role": "assistant", "content": content, "model": "m"}

    async with client_of(server, NOVEMBER_2025, answer=answer) as client:
        id = (await start(client, "both"))["taskId"]
        assert text_content(await client.ask("tasks/result", {"taskId": id})) == "Hi file:///a"
    async with client_of(server, answer=accept()) as client:
        id = (await start(client, "both"))["taskId"]
        for method in ("sampling/createMessage", "roots/list"):
            state = await until(
                client,
                id,
                lambda state, method=method: any(
                    one["method"] == method for one in state.get("inputRequests", {}).values()
                ),
            )
            [(key, asked)] = state["inputRequests"].items()
            await update(client, id, {key: answer(asked["method"], {})})
        assert text_content((await ended(client, id))["result"]) == "Hi file:///a"
