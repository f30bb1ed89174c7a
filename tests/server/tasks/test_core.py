"""Tasks of 2025-11-25: created on request, read by `tasks/result`, listed, cancelled."""

import asyncio
from typing import Annotated, Any

import pytest

from colonnade import Ask, Context, Fault, FaultKind, Server, ToolError
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import JUNE_2025, NOVEMBER_2025
from colonnade.protocol.tasks.record import is_task_id
from colonnade.store.memory import MemoryStore
from live import live
from server.raw_client import (
    EVERYTHING,
    Refusal,
    Rejected,
    accept,
    decline,
    raw_client,
    text_content,
)
from server.tasks import RELATED, client_of, ended, get, reached, start

CORE = NOVEMBER_2025


def workshop() -> Server:
    server = Server("workshop")
    server.state = asyncio.Event()

    @server.tool
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    @server.tool(task=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(task="required")
    async def fail() -> str:
        raise ToolError("no tea")

    @server.tool(task=True)
    async def refuse() -> str:
        raise Fault(FaultKind.INVALID_PARAMS, "not like this", {"why": 1})

    @server.tool(task=True)
    async def wait(ctx: Context) -> str:
        await ctx.state.wait()
        return "waited"

    @server.tool(task=True)
    async def confirm(ctx: Context) -> str:
        return "deleted" if await ctx.elicit("Delete it?", bool) else "kept"

    @server.tool(task=True)
    async def named(name: Annotated[str, Ask("Who?")]) -> str:
        return f"for {name}"

    return server


async def payload(client: Any, id: str) -> dict[str, Any]:
    return await client.ask("tasks/result", {"taskId": id})


@pytest.mark.spec("R0501", "R0580", "R0666")
@live
async def test_the_server_declares_tasks_and_lists_them_to_known_callers_only() -> None:
    for callers in Callers.members():
        async with client_of(workshop(), CORE, callers=callers) as client:
            opened = client.received[0]["result"]["capabilities"]["tasks"]
            listed = {} if callers is Callers.ANONYMOUS else {"list": {}}
            assert opened == {"cancel": {}, "requests": {"tools": {"call": {}}}, **listed}
            if callers is Callers.ANONYMOUS:
                with pytest.raises(Rejected) as caught:
                    await client.ask("tasks/list")
                assert caught.value.code == -32601


@live
async def test_tools_say_whether_they_run_as_tasks() -> None:
    async with client_of(workshop(), CORE) as client:
        tools = {tool["name"]: tool for tool in (await client.ask("tools/list"))["tools"]}
        assert "execution" not in tools["greet"]
        assert tools["add"]["execution"] == {"taskSupport": "optional"}
        assert tools["fail"]["execution"] == {"taskSupport": "required"}
    async with raw_client(workshop(), JUNE_2025) as client:
        assert not [one for one in (await client.ask("tools/list"))["tools"] if "execution" in one]


@pytest.mark.spec("R0524", "R0526", "R0536", "R0537", "R0539", "R0543", "R0544")
@live
async def test_a_call_with_task_becomes_a_task_at_once() -> None:
    async with client_of(workshop(), CORE) as client:
        created = await start(client, "wait", task={"ttl": 90_000})
        assert is_task_id(created["taskId"])  # of the server's own making
        assert created["status"] == "working"
        assert created["ttl"] == 90_000
        assert created["createdAt"].endswith("Z")
        state = await get(client, created["taskId"])
        assert state["ttl"] == 90_000
        assert state["lastUpdatedAt"] == created["lastUpdatedAt"]
        assert RELATED not in state.get("_meta", {})


@pytest.mark.spec("R0525")
@live
async def test_ids_are_unique_and_chosen_by_the_server() -> None:
    async with client_of(workshop(), CORE) as client:
        made = [await start(client, "add", {"a": 1, "b": n}) for n in range(20)]
        assert len({one["taskId"] for one in made}) == 20


@live
async def test_a_call_without_task_runs_as_ever() -> None:
    async with client_of(workshop(), CORE) as client:
        result = await client.call("add", {"a": 1, "b": 2})
        assert result["structuredContent"] == {"result": 3}


@pytest.mark.spec("R0506", "R0509")
@live
async def test_a_call_that_a_tool_does_not_run_as_is_an_unknown_method() -> None:
    async with client_of(workshop(), CORE) as client:
        with pytest.raises(Rejected) as caught:
            await client.call("fail", {})
        assert caught.value.code == -32601
        with pytest.raises(Rejected) as caught:
            await client.call("greet", {"name": "Ann"}, task={})
        assert caught.value.code == -32601


@pytest.mark.spec("R0521")
@live
async def test_a_server_without_tasks_ignores_the_wish_for_one() -> None:
    server = Server("s")
    server.tool(name="greet")(lambda: "Hello!")
    async with raw_client(server, CORE) as client:
        assert text_content(await client.call("greet", {}, task={"ttl": 1000})) == "Hello!"


@pytest.mark.spec("R0671", "R0674", "R0676", "R0685")
@live
async def test_input_requests_never_ask_the_client_for_a_task() -> None:
    """Not even if it declares that it takes them as tasks."""
    server = Server("s")

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Go on?", bool)
        await ctx.elicit_url("Log in.", "https://example.com/login")
        await ctx.sample("Say tea.")
        return "done"

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "sampling/createMessage":
            content = {"type": "text", "text": "tea"}
            return {"role": "assistant", "content": content, "model": "m"}
        content = {"content": {"value": True}} if params.get("mode") != "url" else {}
        return {"action": "accept", **content}

    requests = {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}
    can = EVERYTHING | {"tasks": {"list": {}, "cancel": {}, "requests": requests}}
    async with raw_client(server, CORE, can=can, answer=answer) as client:
        assert text_content(await client.call("ask", {})) == "done"
        methods = [method for method, _ in client.asked]
        assert methods == ["elicitation/create", "elicitation/create", "sampling/createMessage"]
        assert not any("task" in params for _, params in client.asked)


@live
async def test_a_tool_that_must_be_a_task_says_so_where_there_are_none() -> None:
    async with raw_client(workshop(), JUNE_2025) as client:
        with pytest.raises(Rejected, match="runs as a task only, and 2025-06-18 has no tasks"):
            await client.call("fail", {})
        assert text_content(await client.call("add", {"a": 1, "b": 2})) == "3"


@live
async def test_invalid_arguments_are_an_error_and_make_no_task() -> None:
    async with client_of(workshop(), CORE) as client:
        with pytest.raises(Rejected) as caught:
            await start(client, "add", {"a": "x"})
        assert caught.value.code == -32602
        assert (await client.ask("tasks/list"))["tasks"] == []


@pytest.mark.spec("R0545", "R0546", "R0547", "R0548", "R0576")
@live
async def test_the_result_is_that_of_the_call_and_is_waited_for() -> None:
    server = workshop()
    async with client_of(server, CORE) as client:
        created = await start(client, "wait")
        asked = client.send("tasks/result", {"taskId": created["taskId"]})
        assert (await get(client, created["taskId"]))["status"] == "working"
        assert not [one for one in client.received if one.get("id") == asked]
        server.state.set()
        result = await client.outcome(asked)
        assert text_content(result) == "waited"
        assert result["_meta"][RELATED] == {"taskId": created["taskId"]}
        again = await payload(client, created["taskId"])
        assert again == result
        added = await start(client, "add", {"a": 1, "b": 2})
        result = await client.ask("tasks/result", {"taskId": added["taskId"], "name": "add"})
        assert result["structuredContent"] == {"result": 3}


@pytest.mark.spec("R0573", "R0574")
@live
async def test_an_error_of_the_tool_is_a_failed_task_whose_result_says_so() -> None:
    async with client_of(workshop(), CORE) as client:
        id = (await start(client, "fail"))["taskId"]
        state = await ended(client, id)
        assert state["status"] == "failed"
        assert state["statusMessage"] == "no tea"
        result = await payload(client, id)
        assert result["isError"] is True


@pytest.mark.spec("R0547", "R0575")
@live
async def test_the_json_rpc_error_of_the_call_is_that_of_tasks_result() -> None:
    async with client_of(workshop(), CORE) as client:
        id = (await start(client, "refuse"))["taskId"]
        with pytest.raises(Rejected) as caught:
            await payload(client, id)
        assert (caught.value.code, caught.value.message) == (-32602, "not like this")
        assert caught.value.data == {"why": 1}


@pytest.mark.spec("R0533", "R0535", "R0548", "R0549", "R0565")
@pytest.mark.parametrize("answer", [accept(value=True), decline])
@live
async def test_input_is_requested_on_the_request_for_the_result(answer: Any) -> None:
    async with client_of(workshop(), CORE, answer=answer) as client:
        id = (await start(client, "confirm"))["taskId"]
        assert (await reached(client, id, "input_required"))["status"] == "input_required"
        assert client.asked == []
        result = await payload(client, id)
        assert bool(result.get("isError")) is (answer is decline)
        [(method, params)] = client.asked
        assert method == "elicitation/create"
        assert params["_meta"][RELATED] == {"taskId": id}
        assert (await get(client, id))["status"] == ("failed" if answer is decline else "completed")


@live
async def test_a_client_may_answer_an_input_request_with_an_error() -> None:
    def refuse(method: str, params: Any) -> Any:
        raise Refusal(-32603, "no window")

    async with client_of(workshop(), CORE, answer=refuse) as client:
        id = (await start(client, "confirm"))["taskId"]
        result = await payload(client, id)
        assert result["isError"] is True
        assert "no window" in text_content(result)


@live
async def test_declared_input_requests_are_sent_inside_the_task() -> None:
    async with client_of(workshop(), CORE, answer=accept(value="Ann")) as client:
        id = (await start(client, "named"))["taskId"]
        assert text_content(await payload(client, id)) == "for Ann"


@live
async def test_two_requests_for_the_result_both_ask_and_the_first_response_counts() -> None:
    async with client_of(workshop(), CORE, answer=lambda *_: None) as client:
        id = (await start(client, "confirm"))["taskId"]
        waiting = [client.send("tasks/result", {"taskId": id}) for _ in range(2)]
        await client.until(lambda: len(client.asked) == 2)
        first = next(one for one in client.received if one.get("method") == "elicitation/create")
        yes = {"action": "accept", "content": {"value": True}}
        client.send_raw({"jsonrpc": "2.0", "id": first["id"], "result": yes})
        for one in waiting:
            assert text_content(await client.outcome(one)) == "deleted"
        [cancelled] = client.notifications("notifications/cancelled")
        assert cancelled["requestId"] != first["id"]


@pytest.mark.spec("R0560", "R0561", "R0562", "R0570")
@live
async def test_a_cancelled_task_stays_cancelled() -> None:
    server = workshop()
    async with client_of(server, CORE) as client:
        id = (await start(client, "wait"))["taskId"]
        after = await client.ask("tasks/cancel", {"taskId": id})
        assert after["status"] == "cancelled"
        assert RELATED not in after.get("_meta", {})
        server.state.set()
        assert (await get(client, id))["status"] == "cancelled"
        with pytest.raises(Rejected) as caught:
            await client.ask("tasks/cancel", {"taskId": id})
        assert caught.value.code == -32602
        with pytest.raises(Rejected) as caught:
            await payload(client, id)
        assert (caught.value.code, caught.value.data) == (-32603, {"status": "cancelled"})


@live
async def test_cancelling_ends_a_request_for_the_result() -> None:
    async with client_of(workshop(), CORE) as client:
        id = (await start(client, "wait"))["taskId"]
        waiting = client.send("tasks/result", {"taskId": id})
        await client.ask("tasks/cancel", {"taskId": id})
        with pytest.raises(Rejected, match="cancelled"):
            await client.outcome(waiting)


@pytest.mark.spec("R0568")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@live
async def test_an_unknown_id_is_invalid(method: str) -> None:
    async with client_of(workshop(), CORE) as client:
        for id in ("", "x", "0" * 12 + "-" + "0" * 32):
            with pytest.raises(Rejected) as caught:
                await client.ask(method, {"taskId": id})
            assert caught.value.code == -32602
            assert caught.value.message == "there is no such task, or it has expired"


@pytest.mark.spec("R0550", "R0551", "R0552", "R0566")
@live
async def test_the_id_in_params_counts_and_not_the_metadata() -> None:
    async with client_of(workshop(), CORE) as client:
        one = (await start(client, "add", {"a": 1, "b": 1}))["taskId"]
        other = (await start(client, "add", {"a": 2, "b": 2}))["taskId"]
        meta = {RELATED: {"taskId": other}}
        state = await client.ask("tasks/get", {"taskId": one, "_meta": meta})
        assert state["taskId"] == one
        result = await client.ask("tasks/result", {"taskId": one, "_meta": meta})
        assert result["_meta"][RELATED] == {"taskId": one}


@pytest.mark.spec("R0556", "R0557", "R0559", "R0569")
@live
async def test_tasks_are_listed_in_pages_each_once() -> None:
    server = workshop()
    async with client_of(server, CORE) as client:
        made = [await start(client, "add", {"a": 1, "b": n}) for n in range(60)]
        ids: list[str] = []
        params: dict[str, Any] = {}
        pages = 0
        while True:
            page = await client.ask("tasks/list", params)
            pages += 1
            assert RELATED not in page.get("_meta", {})
            ids += [one["taskId"] for one in page["tasks"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert sorted(ids) == sorted(one["taskId"] for one in made)
        assert pages == 2
        with pytest.raises(Rejected) as caught:
            await client.ask("tasks/list", {"cursor": "x"})
        assert caught.value.code == -32602


@pytest.mark.spec("R0498", "R0499", "R0500", "R0548", "R0565")
@live
async def test_progress_uses_the_token_of_the_call_and_names_the_task() -> None:
    server = Server("s")

    @server.tool(task=True)
    async def count(ctx: Context) -> str:
        for n in range(3):
            await ctx.progress(n + 1, 3)
        await ctx.info("counted")
        return "done"

    async with client_of(server, CORE) as client:
        id = (await start(client, "count", _meta={"progressToken": "p"}))["taskId"]
        await client.ask("tasks/result", {"taskId": id})
        await client.until(lambda: client.notifications("notifications/tasks/status"))
        told = client.notifications("notifications/progress")
        assert [one["progress"] for one in told] == [1, 2, 3]
        assert {one["progressToken"] for one in told} == {"p"}
        assert [one["_meta"][RELATED] for one in told] == [{"taskId": id}] * 3
        [logged] = client.notifications("notifications/message")
        assert logged["_meta"][RELATED] == {"taskId": id}


@pytest.mark.spec("R0555")
@live
async def test_the_session_that_made_a_task_is_told_of_its_status() -> None:
    server = workshop()
    async with client_of(server, CORE) as client, client_of(server, CORE) as other:
        id = (await start(client, "confirm"))["taskId"]
        await client.until(lambda: client.notifications("notifications/tasks/status"))
        [told] = client.notifications("notifications/tasks/status")
        assert (told["taskId"], told["status"]) == (id, "input_required")
        assert RELATED not in told.get("_meta", {})
        await client.ask("tasks/cancel", {"taskId": id})
        await client.until(lambda: len(client.notifications("notifications/tasks/status")) == 2)
        assert not other.notifications("notifications/tasks/status")


@pytest.mark.spec("R0571")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
@live
async def test_a_task_that_cannot_be_read_is_an_internal_error(method: str) -> None:
    store = MemoryStore()
    server = Server("s", store=store)
    server.tool(name="add", task=True)(lambda: "x")
    async with client_of(server, CORE) as client:
        id = (await start(client, "add"))["taskId"]
        await ended(client, id)
        [name] = await store.names("", "task/", "", 10)
        await store.put("", name, b"not a record", None)
        with pytest.raises(Rejected) as caught:
            await client.ask(method, {"taskId": id})
        assert caught.value.code == -32603
