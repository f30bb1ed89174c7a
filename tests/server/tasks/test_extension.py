"""Tasks of the extension: created, read, answered, cancelled; and calls that become none."""

import asyncio
from typing import Annotated, Any

import pytest

from colonnade import Ask, BlockingContext, Context, Fault, FaultKind, Server, ToolError
from colonnade.protocol.revision import JULY_2026
from live import live
from server.raw_client import Rejected, accept, raw_client, text_content
from server.tasks import (
    EXTENSION,
    RELATED,
    accepted,
    client_of,
    ended,
    get,
    reached,
    start,
    update,
)


def workshop() -> Server:
    """Tools that behave in every way that a task can."""
    server = Server("workshop")
    server.state = asyncio.Event()

    @server.tool
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    @server.tool(task=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(task=True)
    def add_in_a_thread(a: int, b: int) -> int:
        return a + b

    @server.tool(task=True)
    async def wait(ctx: Context) -> str:
        await ctx.state.wait()
        return "waited"

    @server.tool(task="required")
    async def fail() -> str:
        raise ToolError("no tea")

    @server.tool(task=True)
    async def crash() -> str:
        raise KeyError("secret")

    @server.tool(task=True)
    async def refuse() -> str:
        raise Fault(FaultKind.INVALID_PARAMS, "not like this", {"why": 1})

    @server.tool(task=True)
    async def confirm(ctx: Context) -> str:
        return "deleted" if await ctx.elicit("Delete it?", bool) else "kept"

    @server.tool(task=True)
    def confirm_in_a_thread(ctx: BlockingContext) -> str:
        return "deleted" if ctx.elicit("Delete it?", bool) else "kept"

    @server.tool(task=True)
    async def two(ctx: Context) -> str:
        first, second = await ctx.ask(Ask("First?", str, key="1"), Ask("Second?", str, key="2"))
        return f"{first} {second}"

    @server.tool(task="required")
    async def named(name: Annotated[str, Ask("Who?", key="user_name")]) -> str:
        return f"for {name}"

    return server


@pytest.mark.spec("R1155", "R1156", "R1160")
@live
async def test_a_call_becomes_a_task_that_can_be_read_at_once() -> None:
    server = workshop()
    async with client_of(server) as client:
        created = await start(client, "wait")
        assert created["resultType"] == "task"
        assert created["status"] == "working"
        assert created["ttlMs"] is None
        assert created["pollIntervalMs"] == 1000
        assert not created.keys() & {"task", "result", "error", "inputRequests", "requestState"}
        state = await get(client, created["taskId"])
        assert state["status"] == "working"
        assert state["resultType"] == "complete"
        server.state.set()
        state = await ended(client, created["taskId"])
        assert state["status"] == "completed"
        assert text_content(state["result"]) == "waited"
        assert RELATED not in state["result"].get("_meta", {})
        assert state["ttlMs"] >= 3600_000


@pytest.mark.spec("R1151")
@live
async def test_a_client_that_did_not_declare_tasks_gets_the_result_of_the_call() -> None:
    async with raw_client(workshop(), JULY_2026) as client:
        result = await client.call("add", {"a": 1, "b": 2})
        assert result["structuredContent"] == 3
        assert "taskId" not in result


@pytest.mark.spec("R1154")
@live
async def test_a_tool_that_must_be_a_task_is_refused_to_others() -> None:
    async with raw_client(workshop(), JULY_2026) as client:
        with pytest.raises(Rejected) as caught:
            await client.call("fail", {})
        assert caught.value.code == -32021
        assert caught.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}


@pytest.mark.parametrize("tool", ["add", "add_in_a_thread"])
@live
async def test_functions_with_and_without_async_run_as_tasks(tool: str) -> None:
    async with client_of(workshop()) as client:
        created = await start(client, tool, {"a": 1, "b": 2})
        state = await ended(client, created["taskId"])
        assert state["result"]["structuredContent"] == 3


@pytest.mark.spec("R1158", "R1171", "R1210", "R1211", "R1213")
@live
async def test_an_error_of_the_tool_is_a_completed_task_with_its_result() -> None:
    async with client_of(workshop()) as client:
        state = await ended(client, (await start(client, "fail"))["taskId"])
        assert state["status"] == "completed"
        assert state["result"]["isError"] is True
        assert text_content(state["result"]) == "no tea"
        state = await ended(client, (await start(client, "crash"))["taskId"])
        assert state["status"] == "completed"
        assert text_content(state["result"]).startswith("crash failed (id ")
        assert "secret" not in text_content(state["result"])


@pytest.mark.spec("R1208", "R1212")
@live
async def test_a_json_rpc_error_is_a_failed_task_with_the_error() -> None:
    async with client_of(workshop()) as client:
        state = await ended(client, (await start(client, "refuse"))["taskId"])
        assert state["status"] == "failed"
        assert state["statusMessage"] == "not like this"
        assert state["error"] == {"code": -32602, "message": "not like this", "data": {"why": 1}}
        assert "result" not in state


@pytest.mark.spec("R1169")
@pytest.mark.parametrize("tool", ["confirm", "confirm_in_a_thread"])
@live
async def test_a_task_asks_and_goes_on_with_the_response(tool: str) -> None:
    async with client_of(workshop()) as client:
        id = (await start(client, tool))["taskId"]
        state = await reached(client, id, "input_required")
        [(key, asked)] = state["inputRequests"].items()
        assert asked["method"] == "elicitation/create"
        assert asked["params"]["message"] == "Delete it?"
        assert await update(client, id, {key: accepted(value=True)}) == {
            "resultType": "complete",
            "_meta": state["_meta"],
        }
        state = await ended(client, id)
        assert text_content(state["result"]) == "deleted"


@pytest.mark.spec("R1187")
@live
async def test_some_of_the_responses_leave_the_others_open() -> None:
    async with client_of(workshop()) as client:
        id = (await start(client, "two"))["taskId"]
        state = await reached(client, id, "input_required")
        while len(state["inputRequests"]) < 2:
            state = await get(client, id)
        await update(client, id, {"1": accepted(value="a"), "unknown": {"ignored": True}})
        state = await get(client, id)
        assert list(state["inputRequests"]) == ["2"]
        await update(client, id, {"1": accepted(value="other")})  # it is answered already
        await update(client, id, {"2": accepted(value="b")})
        assert text_content((await ended(client, id))["result"]) == "a b"


@live
async def test_a_response_that_does_not_fit_changes_nothing() -> None:
    async with client_of(workshop()) as client:
        id = (await start(client, "confirm"))["taskId"]
        state = await reached(client, id, "input_required")
        [key] = state["inputRequests"]
        with pytest.raises(Rejected) as caught:
            await update(client, id, {key: accepted(value="maybe")})
        assert caught.value.code == -32602
        assert key in caught.value.message
        assert list((await get(client, id))["inputRequests"]) == [key]
        await update(client, id, {key: {"action": "decline"}})
        state = await ended(client, id)
        assert state["result"]["isError"] is True


@pytest.mark.spec("R1161")
@live
async def test_declared_input_requests_are_settled_before_there_is_a_task() -> None:
    async with client_of(workshop(), answer=accept(value="Alice")) as client:
        first = await client.outcome(client.send("tools/call", {"name": "named"}))
        assert first["resultType"] == "input_required"
        assert list(first["inputRequests"]) == ["user_name"]
        created = await start(client, "named")
        assert client.rounds == 1
        assert created["resultType"] == "task"
        assert "requestState" not in created
        state = await ended(client, created["taskId"])
        assert text_content(state["result"]) == "for Alice"
        assert len(client.asked) == 1


@live
async def test_invalid_arguments_make_no_task() -> None:
    async with client_of(workshop()) as client:
        result = await client.call("add", {"a": "x"})
        assert result["isError"] is True
        assert "taskId" not in result


@live
async def test_cancelling_is_acknowledged_and_stops_the_handler() -> None:
    stopped = asyncio.Event()
    server = Server("s")

    @server.tool(task=True)
    async def forever() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async with client_of(server) as client:
        id = (await start(client, "forever"))["taskId"]
        assert set(await client.ask("tasks/cancel", {"taskId": id})) == {"resultType", "_meta"}
        assert (await get(client, id))["status"] == "cancelled"
        async with asyncio.timeout(30):
            await stopped.wait()
        await client.ask("tasks/cancel", {"taskId": id})  # again, which is acknowledged, too
        assert (await get(client, id))["status"] == "cancelled"


@live
async def test_the_result_of_a_thread_that_was_cancelled_is_dropped() -> None:
    import threading

    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    server = Server("s")

    @server.tool(task=True)
    def slow() -> str:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(30)
        return "too late"

    async with client_of(server) as client:
        id = (await start(client, "slow"))["taskId"]
        await begun.wait()
        await client.ask("tasks/cancel", {"taskId": id})
        go_on.set()
        state = await get(client, id)
        assert state["status"] == "cancelled"
        assert "result" not in state


@pytest.mark.spec("R1185", "R1192", "R1201", "R1202", "R1203")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@live
async def test_an_unknown_id_is_invalid(method: str) -> None:
    async with client_of(workshop()) as client:
        for id in ("", "x", "0" * 12 + "-" + "0" * 32):
            with pytest.raises(Rejected) as caught:
                await client.ask(method, {"taskId": id, "inputResponses": {}})
            assert caught.value.code == -32602
            assert caught.value.message == "there is no such task, or it has expired"


@pytest.mark.spec("R1207")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@live
async def test_a_client_that_did_not_declare_tasks_cannot_use_them(method: str) -> None:
    async with raw_client(workshop(), JULY_2026) as client:
        with pytest.raises(Rejected) as caught:
            await client.ask(method, {"taskId": "x", "inputResponses": {}})
        assert caught.value.code == -32021


@pytest.mark.parametrize("method", ["tasks/result", "tasks/list"])
@live
async def test_the_methods_of_core_are_unknown_here(method: str) -> None:
    async with client_of(workshop()) as client:
        with pytest.raises(Rejected) as caught:
            await client.ask(method, {"taskId": "x"})
        assert caught.value.code == -32601


@live
async def test_a_task_param_is_ignored_here() -> None:
    async with client_of(workshop()) as client:
        result = await client.call("greet", {"name": "Ann"}, task={"ttl": 1000})
        assert text_content(result) == "Hello, Ann!"


@live
async def test_progress_is_the_status_message() -> None:
    server = Server("s")
    go_on = asyncio.Event()

    @server.tool(task=True)
    async def count(ctx: Context) -> str:
        await ctx.progress(1, 3, "one third")
        await go_on.wait()
        return "done"

    async with client_of(server) as client:
        created = await start(client, "count", _meta={"progressToken": "p"})
        id = created["taskId"]
        while (state := await get(client, id)).get("statusMessage") is None:
            await asyncio.sleep(0.005)
        assert state["statusMessage"] == "one third"
        go_on.set()
        await ended(client, id)
        assert not client.notifications("notifications/progress")


@live
async def test_the_task_of_a_mounted_tool_belongs_to_the_outer_server() -> None:
    outer, inner = Server("outer"), Server("inner")

    @inner.tool(task=True)
    async def greet(ctx: Context) -> str:
        return f"from {ctx.state}"

    inner.state = "inner"
    outer.mount(inner, namespace="in")
    async with client_of(outer) as client:
        state = await ended(client, (await start(client, "in_greet"))["taskId"])
        assert text_content(state["result"]) == "from inner"


@live
async def test_a_server_without_such_a_tool_declares_no_tasks() -> None:
    server = Server("s")
    server.tool(name="plain")(lambda: "x")
    async with client_of(server) as client:
        found = await client.ask("server/discover")
        assert "extensions" not in found["capabilities"]
    server.tool(name="later", task=True)(lambda: "x")
    async with client_of(server) as client:
        found = await client.ask("server/discover")
        assert found["capabilities"]["extensions"] == {EXTENSION: {}}
        assert "tasks" not in found["capabilities"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "optional?"}, 'task=True or task="required"'),
        ({"keep_s": 10}, "add task=True"),
        ({"task": True, "keep_s": -1}, "keep_s must be a positive number"),
        ({"task": True, "max_run_s": float("nan")}, "max_run_s must be a positive number"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Server("s").tool(name="f", **options)(lambda: "x")
