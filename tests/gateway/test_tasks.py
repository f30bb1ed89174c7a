"""Tasks through a gateway: relayed between a client and a server that have the same generation of
them, awaited in every other cell. Both wires are recorded."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade import Gateway, Host, Policy, RemoteError, Rule, Server, connect
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import Fault
from colonnade.gateway import task_followers
from colonnade.gateway.tasks import TaskIds
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.router import LocalRequestContext, local_exchange
from colonnade.host.servers.callers import SamplingRates
from colonnade.host.servers.session_input import SessionInputRequests, send_to_latest_call
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import NO_INPUT
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskHandle
from colonnade.store.memory import MemoryStore
from gateway.press import Press, about, ids_of, pages
from gateway.recorded import NEW, OLD, Cell, recorded, revision_of
from gateway.served import served
from live import live, until

BOTH = pytest.mark.parametrize("date", [OLD, NEW])
ACROSS = pytest.mark.parametrize(("downstream", "upstream"), [(OLD, NEW), (NEW, OLD)])
KEYS = [bytes(range(32))]
HIDING = Policy([Rule("deny", tools="s__book")], default="allow")
UNKNOWN = (-32602, "there is no such task, or it has expired")


async def connected(cell: Cell, principal: str = "ada", **options: Any) -> Client:
    answers = InputCallbacks(on_elicit=pages)
    return await cell.connect(answers, principal=principal, tasks=True, **options)


async def refused(client: Client, method: str, params: Any) -> tuple[int, str]:
    with pytest.raises(RemoteError) as error:
        await client.ask(method, params)
    return error.value.code, error.value.message


# ---------------------------------------------------------------- the same generation on both sides


@BOTH
@live
async def test_a_task_is_relayed_with_an_id_of_the_gateway(date: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        task = await client.start_task("s__must")
        given, own = ids_of(cell)
        assert own not in given
        assert (await task.refresh()).task_id == given  # type: ignore[union-attr]
        press.go.set()
        result = await task.result()
        assert result.data == {"pages": 7}
        cell.check()
        front = encode(cell.client_wire.frames).decode()
        back = encode(cell.server_wire.frames).decode()
        assert own not in front
        assert given not in back


@BOTH
@live
async def test_the_call_of_a_client_with_tasks_waits_for_its_task(date: str) -> None:
    press = Press()
    press.go.set()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        assert (await client.call_tool("s__must")).data == {"pages": 7}
        assert (await client.call_tool("s__plain")).text == "at once"
        failed = await client.call_tool("s__fail")
        assert failed.is_error
        assert failed.text == "no paper"
        cell.check()


@BOTH
@live
async def test_a_task_is_cancelled_at_its_server(date: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        task = await client.start_task("s__book")
        await task.cancel()
        await press.cancelled.wait()
        assert (await task.refresh()).status == "cancelled"  # type: ignore[union-attr]
        assert cell.server_wire.said(Side.CLIENT, "tasks/cancel")
        assert not cell.server_wire.said(Side.CLIENT, "notifications/cancelled")
        cell.check()


@BOTH
@live
async def test_input_requests_of_a_task_cross(date: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        task = await client.start_task("s__ask")
        assert (await task.result()).text == "20 pages"
        cell.check()
        given, own = ids_of(cell)
        related = {t.RELATED_TASK_KEY: {"taskId": given}}
        if date == OLD:
            (asked,) = cell.client_wire.said(Side.SERVER, "elicitation/create")
            assert asked["_meta"] == related
        else:
            (update,) = cell.server_wire.said(Side.CLIENT, "tasks/update")
            assert update["taskId"] == own
            assert cell.client_wire.said(Side.CLIENT, "tasks/update")[0]["taskId"] == given


@live
async def test_the_result_names_the_task_of_the_client() -> None:
    press = Press()
    press.go.set()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        client = await connected(cell)
        await (await client.start_task("s__must")).result()
        given, _ = ids_of(cell)
        results = [one for one in cell.client_wire.results(Side.SERVER) if "content" in one]
        assert [one["_meta"] for one in results] == [{t.RELATED_TASK_KEY: {"taskId": given}}]


@live
async def test_the_wish_for_a_ttl_reaches_the_server() -> None:
    press = Press()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        client = await connected(cell)
        await client.list_tools()
        params = t.CallToolRequestParams(name="s__book", task=t.TaskMetadata(ttl=90_000))
        await client.conversation.request("tools/call", params, 30.0)
        assert cell.server_wire.said(Side.CLIENT, "tools/call")[0]["task"] == {"ttl": 90_000}
        (made,) = [one["task"] for one in cell.client_wire.results(Side.SERVER) if "task" in one]
        assert made["ttl"] == 90_000
        cell.check()


@live
async def test_the_session_that_created_a_task_is_notified_of_it() -> None:
    press = Press()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        client = await connected(cell)
        progress: list[Any] = []
        task = await client.start_task("s__book", on_progress=lambda *one: progress.append(one))
        given, own = ids_of(cell)
        wire = cell.client_wire
        followers = cell.gateway._tasks.followers
        assert len(followers) == 1
        press.go.set()
        assert (await task.result()).text == "a book"
        await until(lambda: any(one["status"] == "completed" for one in statuses(cell)))
        assert {one["taskId"] for one in statuses(cell)} == {given}
        for said in wire.said(Side.SERVER, "notifications/progress"):
            assert said["_meta"] == {t.RELATED_TASK_KEY: {"taskId": given}}
        assert (2, 2, "chapter 2") in progress
        await until(lambda: len(followers) == 0)
        assert own not in encode(wire.frames).decode()
        cell.check()


def statuses(cell: Cell) -> list[Any]:
    return cell.client_wire.said(Side.SERVER, "notifications/tasks/status")


@live
async def test_a_subscription_has_the_states_of_a_task() -> None:
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW) as cell:
        client = await connected(cell)
        task = await client.start_task("s__book")
        given, own = ids_of(cell)
        async with client.listen_to_tasks([given, "none", own]) as changes:
            assert changes.agreed.task_ids == [given]
            press.go.set()
            await until(lambda: any(one["status"] == "completed" for one in shown(cell)))
        (last,) = [one for one in shown(cell) if one["status"] == "completed"]
        assert last["taskId"] == given
        assert last["result"]["content"] == [{"type": "text", "text": "a book"}]
        assert (await task.result()).text == "a book"
        await until(lambda: len(cell.gateway._tasks.followers) == 0)
        cell.check()


def shown(cell: Cell) -> list[Any]:
    return cell.client_wire.said(Side.SERVER, "notifications/tasks")


# ---------------------------------------------------------------- what is declared


@BOTH
@live
async def test_tasks_are_declared_if_a_server_has_them(date: str) -> None:
    async with recorded(Press().server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        await client.list_tools()
        later = await connected(cell)
        declared = later.capabilities
        assert (declared.tasks is not None) == (date == OLD)
        assert (t.TASKS_EXTENSION_ID in (declared.extensions or {})) == (date == NEW)


@BOTH
@live
async def test_tasks_are_not_declared_if_no_server_has_them(date: str) -> None:
    server = Server("plain")

    @server.tool
    def plain() -> str:
        return "at once"

    _ = plain
    async with recorded(server, upstream=date, downstream=date) as cell:
        await (await connected(cell)).list_tools()
        later = await connected(cell)
        assert later.capabilities.tasks is None
        assert not later.capabilities.extensions


@live
async def test_a_tool_that_requires_a_task_can_be_called_without_one_too() -> None:
    press = Press()
    press.go.set()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        client = await connected(cell)
        support = {
            tool.name: tool.execution and tool.execution.task_support
            for tool in await client.list_tools()
        }
        assert support == {
            "s__book": "optional",
            "s__must": "optional",
            "s__ask": "optional",
            "s__fail": "optional",
            "s__plain": None,
        }
        params = t.CallToolRequestParams(name="s__must")
        raw = await client.conversation.request("tools/call", params, 30.0)
        assert b'"pages":7' in bytes(raw).replace(b" ", b"")
        cell.check()


@pytest.mark.spec("R0506")
@live
async def test_a_tool_that_runs_at_once_refuses_to_be_a_task() -> None:
    async with recorded(Press().server, upstream=OLD, downstream=OLD) as cell:
        client = await connected(cell)
        await client.list_tools()
        params = t.CallToolRequestParams(name="s__plain", task=t.TaskMetadata())
        with pytest.raises(RemoteError) as error:
            await client.conversation.request("tools/call", params, 30.0)
        assert error.value.code == -32601
        assert not cell.server_wire.said(Side.CLIENT, "tools/call")


@live
async def test_an_awaited_task_asks_what_its_own_caller_has_declared() -> None:
    press = Press()
    press.go.set()
    async with recorded(press.server, upstream=NEW, downstream=NEW) as cell:
        # The session at the server is opened for a client that can be asked nothing.
        silent = await cell.connect(InputCallbacks(), principal="ada", tasks=True)
        await silent.call_tool("s__book")
        client = await cell.connect(
            InputCallbacks(on_elicit=pages), revision=OLD, principal="ada", tasks=False
        )
        assert not (await client.call_tool("s__ask")).is_error


@live
async def test_a_process_of_a_pool_has_no_tasks_that_outlast_their_call() -> None:
    press = Press()
    press.go.set()
    async with recorded(press.server, upstream=OLD, downstream=OLD, sharing="pooled") as cell:
        client = await connected(cell)
        assert {tool.execution for tool in await client.list_tools()} == {None}
        for name in ("s__book", "s__must"):
            params = t.CallToolRequestParams(name=name, task=t.TaskMetadata())
            with pytest.raises(RemoteError) as error:
                await client.conversation.request("tools/call", params, 30.0)
            assert error.value.code == -32601
        raw = await client.conversation.request(
            "tools/call", t.CallToolRequestParams(name="s__must"), 30.0
        )
        assert b'"pages":7' in bytes(raw).replace(b" ", b"")


# ---------------------------------------------------------------- other cells: awaited


@ACROSS
@live
async def test_a_task_of_another_generation_is_awaited(downstream: str, upstream: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=upstream, downstream=downstream) as cell:
        client = await connected(cell)
        progress: list[Any] = []

        def on_progress(*one: Any) -> None:
            progress.append(one)
            press.go.set()

        tools = await client.list_tools()
        assert {tool.execution for tool in tools} == {None}
        called = await client.call_tool("s__book", on_progress=on_progress)
        assert called.text == "a book"
        assert progress
        assert (await client.call_tool("s__must")).data == {"pages": 7}
        assert (await client.call_tool("s__ask")).text == "20 pages"
        assert not any("task" in one for one in cell.client_wire.results(Side.SERVER))
        cell.check()


@BOTH
@pytest.mark.parametrize("downstream", ["2025-06-18", OLD, NEW])
@live
async def test_a_client_without_tasks_gets_the_result(date: str, downstream: str) -> None:
    press = Press()
    press.go.set()
    async with recorded(press.server, upstream=date, downstream=downstream) as cell:
        client = await cell.connect(InputCallbacks(on_elicit=pages), principal="ada")
        params = t.CallToolRequestParams(name="s__must")
        raw = await client.ask("tools/call", params)
        assert isinstance(raw, t.CallToolResult)
        assert raw.structured_content == {"pages": 7}
        assert (await client.call_tool("s__ask")).text == "20 pages"
        cell.check()


@ACROSS
@live
async def test_a_call_that_is_cancelled_cancels_the_task_that_it_waits_for(
    downstream: str, upstream: str
) -> None:
    press = Press()
    async with recorded(press.server, upstream=upstream, downstream=downstream) as cell:
        client = await connected(cell)
        calling = asyncio.ensure_future(client.call_tool("s__must"))
        await press.begun.wait()
        calling.cancel()
        await press.cancelled.wait()
        assert [wire for wire in cell.back if wire.said(Side.CLIENT, "tasks/cancel")]
        with pytest.raises(asyncio.CancelledError):
            await calling


# ---------------------------------------------------------------- principals


@BOTH
@live
async def test_a_task_is_unknown_to_everyone_but_its_principal(date: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        ada = await connected(cell)
        await ada.start_task("s__book")
        given, own = ids_of(cell)
        bob = await connected(cell, "bob")
        altered = given[:-3] + ("A" if given[-3] != "A" else "B") + given[-2:]
        handle = TaskHandle("s", own, "book", revision_of(date).tasks)
        ids = TaskIds(lambda: cell.gateway.keys)
        gone = ids.seal("bob", TaskHandle("s", "none", "book", handle.generation))
        elsewhere = ids.seal("bob", TaskHandle("gone", own, "book", handle.generation))
        long = "x" * 5000
        for id in (given, own, altered, handle.encode(), "", gone, elsewhere, long):
            for method, params in about(bob, id).items():
                assert await refused(bob, method, params) == UNKNOWN, (method, id)
        assert not press.cancelled.is_set()
        assert (await ada.ask("tasks/get", about(ada, given)["tasks/get"])) is not None
        cell.check()


@BOTH
@live
async def test_an_id_is_of_one_generation(date: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        ada = await connected(cell)
        await ada.start_task("s__book")
        _, own = ids_of(cell)
        other = Tasks.EXTENSION if date == OLD else Tasks.CORE
        id = TaskIds(lambda: cell.gateway.keys).seal("ada", TaskHandle("s", own, "book", other))
        for method, params in about(ada, id).items():
            assert await refused(ada, method, params) == UNKNOWN


@live
async def test_a_cursor_is_not_the_id_of_a_task() -> None:
    press = Press()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        ada = await connected(cell)
        await ada.start_task("s__book")
        given, _ = ids_of(cell)
        params = t.PaginatedRequestParams(cursor=given)
        assert (await refused(ada, "tasks/list", params))[0] == -32602


async def listed(client: Client, cursor: str | None = None) -> t.ListTasksResult:
    result = await client.ask("tasks/list", t.PaginatedRequestParams(cursor=cursor))
    assert isinstance(result, t.ListTasksResult)
    return result


@live
async def test_a_list_has_the_tasks_of_its_principal_in_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("colonnade.gateway.tasks.PAGE_SIZE", 2)
    press = Press()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        ada, bob = await connected(cell), await connected(cell, "bob")
        mine = [(await ada.start_task("s__book")).state for _ in range(3)]
        theirs = (await bob.start_task("s__must")).state
        first = await listed(ada)
        second = await listed(ada, first.next_cursor)
        assert second.next_cursor is None
        found = {one.task_id for one in (*first.tasks, *second.tasks)}
        assert found == {one.task_id for one in mine if one is not None}
        assert len(first.tasks) == 2
        assert [one.task_id for one in (await listed(bob)).tasks] == [theirs and theirs.task_id]
        assert first.next_cursor is not None
        foreign = t.PaginatedRequestParams(cursor=first.next_cursor)
        assert (await refused(bob, "tasks/list", foreign))[0] == -32602
        for one in first.tasks:
            await ada.ask("tasks/get", t.GetTaskRequestParams(task_id=one.task_id))
        cell.check()


@live
async def test_a_principal_is_notified_of_its_own_tasks_only() -> None:
    press = Press()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        ada, bob = await connected(cell), await connected(cell, "bob")
        await bob.list_tools()
        task = await ada.start_task("s__book")
        press.go.set()
        await task.result()
        await until(lambda: any(one["status"] == "completed" for one in statuses(cell)))
        front = cell.front[1]
        assert not front.said(Side.SERVER, "notifications/tasks/status")
        assert not front.said(Side.SERVER, "notifications/progress")


@live
async def test_a_subscription_leaves_the_tasks_of_others_out() -> None:
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW) as cell:
        ada, bob = await connected(cell), await connected(cell, "bob")
        task = await ada.start_task("s__book")
        given, _ = ids_of(cell)
        async with bob.listen_to_tasks([given]) as changes:
            assert not changes.agreed.task_ids
            press.go.set()
            await task.result()
            await bob.list_tools()
            assert not cell.front[1].said(Side.SERVER, "notifications/tasks")


# ---------------------------------------------------------------- limits


@live
async def test_followed_tasks_of_a_principal_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_followers, "MAX_TASKS_PER_PRINCIPAL", 2)
    press = Press()
    async with recorded(press.server, upstream=OLD, downstream=OLD) as cell:
        ada, bob = await connected(cell), await connected(cell, "bob")
        for _ in range(4):
            await ada.start_task("s__book")
        await bob.start_task("s__book")
        assert len(cell.gateway._tasks.followers) == 3


@live
async def test_a_subscription_follows_as_many_tasks_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_followers, "MAX_TASKS_PER_PRINCIPAL", 2)
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW) as cell:
        ada = await connected(cell)
        made = [(await ada.start_task("s__book")).state for _ in range(3)]
        ids = [one.task_id for one in made if one is not None]
        async with ada.listen_to_tasks(ids) as changes:
            assert changes.agreed.task_ids == ids[:2]
        async with ada.listen_to_tasks(ids[2:]) as changes:
            assert changes.agreed.task_ids == ids[2:]


# ---------------------------------------------------------------- policy


@BOTH
@live
async def test_the_task_of_a_tool_that_is_hidden_is_unknown(date: str) -> None:
    press = Press()
    async with recorded(
        press.server, upstream=date, downstream=date, policy=Policy(default="allow")
    ) as cell:
        ada = await connected(cell)
        await ada.start_task("s__book")
        given, _ = ids_of(cell)
        cell.host._own_policy = HIDING
        await cell.host.reload(cell.entries)
        for method, params in about(ada, given).items():
            assert await refused(ada, method, params) == UNKNOWN, method
        if date == OLD:
            assert (await listed(ada)).tasks == []
        else:
            async with ada.listen_to_tasks([given]) as changes:
                assert not changes.agreed.task_ids
        cell.check()


@live
async def test_progress_of_a_task_ends_when_rules_hide_its_tool() -> None:
    press = Press()
    async with recorded(
        press.server, upstream=OLD, downstream=OLD, policy=Policy(default="allow")
    ) as cell:
        ada = await connected(cell)
        progress: list[Any] = []
        await ada.start_task("s__book", on_progress=lambda *one: progress.append(one))
        await until(lambda: (1, 2, "chapter 1") in progress)
        cell.host._own_policy = HIDING
        await cell.host.reload(cell.entries)
        press.go.set()
        server_said = cell.server_wire.said
        await until(lambda: len(server_said(Side.SERVER, "notifications/progress")) == 2)
        await until(lambda: len(cell.gateway._tasks.followers) == 0)
        await ada.ping()
        assert len(cell.client_wire.said(Side.SERVER, "notifications/progress")) == 1
        assert progress == [(1, 2, "chapter 1")]


@live
async def test_progress_of_a_task_goes_on_after_rules_have_changed_that_do_not_hide_it() -> None:
    press = Press()
    async with recorded(
        press.server, upstream=OLD, downstream=OLD, policy=Policy(default="allow")
    ) as cell:
        ada = await connected(cell)
        progress: list[Any] = []
        task = await ada.start_task("s__book", on_progress=lambda *one: progress.append(one))
        await until(lambda: (1, 2, "chapter 1") in progress)
        cell.host._own_policy = Policy([Rule("deny", tools="s__must")], default="allow")
        await cell.host.reload(cell.entries)
        followed = next(iter(cell.gateway._tasks.followers._in_sessions.values()))
        await until(lambda: not followed.is_in_doubt)
        press.go.set()
        assert (await task.result()).text == "a book"
        await until(lambda: (2, 2, "chapter 2") in progress)


# ---------------------------------------------------------------- replicas


@BOTH
@live
async def test_a_task_is_read_at_another_replica(date: str) -> None:
    press, store = Press(), MemoryStore(is_shared=True)
    options = {"upstream": date, "downstream": date, "store": store, "keys": KEYS}
    async with recorded(press.server, **options) as one, recorded(press.server, **options) as two:  # type: ignore[arg-type]
        first, second = await connected(one), await connected(two)
        await first.start_task("s__must")
        given, _ = ids_of(one)
        state = await second.ask("tasks/get", about(second, given)["tasks/get"])
        assert getattr(state, "status", "") == "working"
        if date == OLD:
            assert [task.task_id for task in (await listed(second)).tasks] == [given]
        press.go.set()
        await until_completed(second, given)
        one.check()
        two.check()


@live
async def test_an_input_request_of_a_task_at_its_home_names_the_task_at_another_replica() -> None:
    press, store = Press(), MemoryStore(is_shared=True)
    options = {"upstream": OLD, "downstream": OLD, "store": store, "keys": KEYS}
    async with recorded(press.server, **options) as one, recorded(press.server, **options) as two:  # type: ignore[arg-type]
        first = await connected(one, session="shared")
        await first.call_tool("s__plain")  # its home is the first one
        second = await connected(two, session="shared")
        assert (await (await second.start_task("s__ask")).result()).text == "20 pages"
        assert not two.back[-1].frames if two.back else True
        made = [one.get("task", one) for one in two.client_wire.results(Side.SERVER)]
        given = next(one["taskId"] for one in made if "taskId" in one)
        (asked,) = two.client_wire.said(Side.SERVER, "elicitation/create")
        assert asked["_meta"] == {t.RELATED_TASK_KEY: {"taskId": given}}
        one.check()
        two.check()


async def until_completed(client: Client, id: str) -> None:
    status = ""
    while status != "completed":
        state = await client.ask("tasks/get", about(client, id)["tasks/get"])
        status = str(getattr(state, "status", ""))
        await asyncio.sleep(0.005)


@BOTH
@live
async def test_another_gateway_does_not_know_the_task(date: str) -> None:
    press = Press()
    async with (
        recorded(press.server, upstream=date, downstream=date) as one,
        recorded(press.server, upstream=date, downstream=date) as two,
    ):
        first, second = await connected(one), await connected(two)
        await first.start_task("s__must")
        given, _ = ids_of(one)
        for method, params in about(second, given).items():
            assert await refused(second, method, params) == UNKNOWN


# ---------------------------------------------------------------- servers that do not behave


@BOTH
@live
async def test_a_task_that_its_server_has_lost_is_refused_in_the_same_words(date: str) -> None:
    press = Press()
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        await client.start_task("s__book")
        given, _ = ids_of(cell)
        press.is_lost = True
        for method, params in about(client, given).items():
            assert await refused(client, method, params) == UNKNOWN, method


def test_followed_tasks_of_all_principals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_followers, "MAX_TASKS", 3)
    room = task_followers.TaskRoom()
    assert [room.reserve("ada", 2), room.reserve("bob", 2), room.reserve("eve", 1)] == [2, 1, 0]
    room.release("ada", 2)
    assert room.reserve("eve", 5) == 2


@BOTH
@live
async def test_the_id_of_a_server_that_is_too_long_is_refused_and_the_task_cancelled(
    date: str,
) -> None:
    press = Press()
    tidy = press.change

    def change(result: t.ProtocolType) -> t.ProtocolType:
        if isinstance(result, t.CreateTaskResult):
            return replace(result, task=replace(result.task, task_id="x" * 600))
        if type(result) is t.ExtCreateTaskResult:
            return replace(result, task_id="x" * 600)
        return result

    press.change = change
    async with recorded(press.server, upstream=date, downstream=date) as cell:
        client = await connected(cell)
        task = await client.start_task("s__must")
        assert "the id of a task" in (await task.result()).text
        assert [wire for wire in cell.back if wire.said(Side.CLIENT, "tasks/cancel")]
        press.change = tidy
        long = about(client, "x" * 5000)["tasks/get"]
        assert await refused(client, "tasks/get", long) == UNKNOWN


@live
async def test_an_id_that_is_too_long_is_not_decrypted() -> None:
    unsealed: list[str] = []
    ids = TaskIds(lambda: SimpleNamespace(unseal=unsealed.append))  # type: ignore[arg-type,return-value]
    with pytest.raises(Fault):
        ids.open("ada", "x" * 5000, Tasks.CORE)
    assert not unsealed


@live
async def test_the_result_in_a_state_has_no_meta_of_the_hop() -> None:
    press = Press()
    press.go.set()

    def change(result: t.ProtocolType) -> t.ProtocolType:
        if isinstance(result, t.ExtGetTaskResult) and result.result:
            inner = msgspec.json.decode(result.result)
            info = {"name": "press", "version": "0"}
            inner["_meta"] = {t.SERVER_INFO_KEY: info, "example.com/kept": 1}
            return replace(result, result=Raw(encode(inner)))
        return result

    press.change = change
    async with recorded(press.server, upstream=NEW, downstream=NEW) as cell:
        client = await connected(cell)
        await (await client.start_task("s__must")).result()
        given, _ = ids_of(cell)
        await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=given))
        inner = cell.client_wire.results(Side.SERVER)[-1]["result"]
        assert inner["_meta"] == {"example.com/kept": 1}
        cell.check()


@live
async def test_a_task_asks_nothing_that_its_caller_did_not_declare() -> None:
    press = Press()
    message = t.SamplingMessage(role="user", content=t.TextContent(text="a rhyme"))
    sampling = t.CreateMessageRequestParams(messages=[message], max_tokens=9)

    def change(result: t.ProtocolType) -> t.ProtocolType:
        if not isinstance(result, t.ExtGetTaskResult):
            return result
        requests: Any = {"a": t.CreateMessageRequest(params=sampling)}
        return replace(result, status="input_required", input_requests=requests)

    press.change = change
    async with recorded(press.server, upstream=NEW, downstream=NEW, sampling=True) as cell:
        client = await connected(cell)
        await client.start_task("s__book")
        given, _ = ids_of(cell)
        params = t.ExtGetTaskRequestParams(task_id=given)
        code, words = await refused(client, "tasks/get", params)
        assert code == -32603
        assert "does not support" in words


@live
async def test_a_tool_is_no_task_at_a_server_without_the_capability() -> None:
    server = Server("plain")
    optional = t.ToolExecution(task_support="optional")

    async def change(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        if isinstance(result, t.ListToolsResult):
            tools = [replace(tool, execution=optional) for tool in result.tools]
            return replace(result, tools=tools)
        return result

    @server.tool
    def plain() -> str:
        return "at once"

    _ = plain
    server.add_middleware(change)
    async with recorded(server, upstream=OLD, downstream=OLD) as cell:
        client = await connected(cell)
        assert [tool.execution for tool in await client.list_tools()] == [None]


@live
async def test_no_request_about_a_task_goes_around_the_gateway() -> None:
    press = Press()
    async with recorded(press.server, upstream=NEW, downstream=NEW) as cell:
        ada = await connected(cell)
        await ada.start_task("s__book")
        _, own = ids_of(cell)
        handle = TaskHandle("s", own, "book", Tasks.EXTENSION).encode()
        for id in (own, handle):
            params = t.ExtGetTaskRequestParams(task_id=id)
            exchange = local_exchange("tasks/get", params, ada.peer, "ada")
            request = LocalRequestContext(exchange, cell.host._runtime.input_requests)
            with pytest.raises(Fault):
                await cell.host.handler(request)


def call_about(task: str) -> Any:
    target = TaskHandle("s", task, "ask", Tasks.CORE)
    relay = SimpleNamespace(tasks=SimpleNamespace(target=target, task_id=f"our {task}"))
    return SimpleNamespace(may_be_asked=True, context=SimpleNamespace(input_relay=relay))


@live
async def test_an_input_request_of_a_task_waits_for_a_request_about_it() -> None:
    calls = [call_about("1")]
    requests = SessionInputRequests(
        lambda: calls, NO_INPUT, send_to_latest_call, (), SamplingRates()
    )
    waiting = asyncio.ensure_future(requests._calls_about("2"))
    await asyncio.sleep(0)
    assert not waiting.done()
    calls.append(call_about("2"))
    requests.call_added()
    assert await waiting == (calls[1],)


@live
async def test_callers_that_are_not_known_get_no_list() -> None:
    press = Press()
    entry = entry_of("s", press.server, Settings(revision=OLD))
    async with (
        Host({"s": entry}) as host,
        served(Gateway(host)) as url,
        connect(url, revision=OLD) as client,
    ):
        tasks = client.capabilities.tasks
        assert tasks is not None
        assert tasks.listing is None
        press.go.set()
        assert (await client.call_tool("s__must")).data == {"pages": 7}
        assert await (await client.start_task("s__book")).result()


@BOTH
@live
async def test_a_task_is_relayed_over_http(date: str) -> None:
    press = Press()
    async with (
        served(press.server) as target,
        Host({"s": entry_of("s", target, Settings(revision=date))}) as host,
        served(Gateway(host)) as url,
        connect(url, revision=date, on_elicit=pages) as client,
    ):
        task = await client.start_task("s__ask")
        assert (await task.result()).text == "20 pages"
        book = await client.start_task("s__book")
        press.go.set()
        assert (await book.result()).text == "a book"
