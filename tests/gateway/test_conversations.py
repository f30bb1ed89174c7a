"""Golden conversations through a gateway: calls, progress, log messages, cancellation, changes,
subscriptions, completion, pages and tasks, between clients and servers of both generations.

Each test is run in four cells, and compares every frame on both wires with a recorded file;
see `tests/support/gateway/conversations.py`.
"""

import asyncio
from typing import Any

import pytest

from colonnade import Context, RemoteError, Server, ToolError
from colonnade.client.client import Client
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL
from gateway.conversations import Golden, crosses
from gateway.press import Press, ids_of
from gateway.recorded import NEW, OLD, Cell, recorded
from live import live, until

LEVELS: tuple[t.LoggingLevel, ...] = ("debug", "info", "warning")


class Everything:
    """A server with all that a server has but input requests, and what happened in it."""

    def __init__(self, page_size: int = 100) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.server = server = Server("everything", page_size=page_size)
        server.tool(self.add)
        server.tool(self.fail)
        server.tool(self.count)
        server.tool(self.chatter)
        server.tool(self.wait)
        server.prompt(self.greet)
        server.resource("notes://{name}")(self.note)
        server.completion(self.greet, "who")(self.names)
        server.completion(self.note, "name")(self.names)

    def add(self, a: int, b: int) -> int:
        return a + b

    def fail(self) -> str:
        raise ToolError("not today")

    async def count(self, ctx: Context) -> str:
        for number in range(1, 4):
            await ctx.progress(number, 3, f"step {number}")
        return "counted"

    async def chatter(self, ctx: Context) -> str:
        for level in LEVELS:
            await ctx.log(level, {"said": level}, logger="chatter")
        return "said"

    async def wait(self) -> str:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ""

    def greet(self, who: str) -> str:
        return f"hello {who}"

    def note(self, name: str) -> str:
        return name

    def names(self, typed: str) -> list[str]:
        return [one for one in ("Ada", "Alan", "Grace") if one.startswith(typed)]


@crosses("call")
@live
async def test_a_call_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    server = Everything().server
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        client = await cell.connect()
        assert (await client.call_tool("s__add", {"a": 1, "b": 2})).text == "3"
        prompt = await client.get_prompt("s__greet", {"who": "Ada"})
        assert getattr(prompt.messages[0].content, "text", None) == "hello Ada"
        assert (await client.read_resource("notes://a")).contents[0].text == "a"
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("errors")
@live
async def test_errors_cross(golden: Golden, rewrite_transcripts: bool) -> None:
    server = Everything().server
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        await check_errors(await cell.connect(), cell.downstream.date)
        golden.compare(cell, rewrite=rewrite_transcripts)


async def check_errors(client: Client, downstream: str) -> None:
    failed = await client.call_tool("s__fail")
    assert failed.is_error
    assert failed.text == "not today"
    with pytest.raises(RemoteError) as unknown:
        await client.call_tool("s__none")
    assert unknown.value.code == -32602
    with pytest.raises(RemoteError) as missing:
        await client.read_resource("other://a")
    assert missing.value.code == (-32602 if downstream == NEW else -32002)


@crosses("progress")
@live
async def test_progress_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    server = Everything().server
    heard: list[tuple[float, float | None, str | None]] = []
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        client = await cell.connect(on_progress=lambda *one: heard.append(one))
        assert (await client.call_tool("s__count")).text == "counted"
        await client.wait_for_callbacks()
        assert heard == [(number, 3, f"step {number}") for number in (1, 2, 3)]
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("log messages")
@live
async def test_log_messages_cross_from_the_level_that_the_client_wants(
    golden: Golden, rewrite_transcripts: bool
) -> None:
    server = Everything().server
    heard: list[str] = []
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        client = await cell.connect(on_log=lambda one: heard.append(one.level))
        wanted: list[tuple[t.LoggingLevel, list[str]]] = [
            ("debug", list(LEVELS)),
            ("warning", ["warning"]),
        ]
        for level, expected in wanted:
            await client.set_log_level(level)
            assert (await client.call_tool("s__chatter")).text == "said"
            await client.wait_for_callbacks()
            assert heard == expected
            heard.clear()
        # A server with one level for a session has the lowest that was wanted.
        levels = [one["level"] for one in cell.server_wire.said(Side.CLIENT, "logging/setLevel")]
        assert levels == (["debug"] if golden.upstream == OLD else [])
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("cancellation")
@live
async def test_a_cancellation_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    everything = Everything()
    async with recorded(
        everything.server, upstream=golden.upstream, downstream=golden.downstream
    ) as cell:
        client = await cell.connect()
        call = asyncio.ensure_future(client.call_tool("s__wait"))
        await everything.begun.wait()
        call.cancel()
        await everything.cancelled.wait()
        # Each hop names the request by its own id.
        for wire in (cell.client_wire, cell.server_wire):
            (cancelled,) = wire.said(Side.CLIENT, "notifications/cancelled")
            ids = [frame["id"] for _, frame in wire.frames if frame.get("method") == "tools/call"]
            assert [cancelled["requestId"]] == ids
        # The session goes on.
        assert (await client.call_tool("s__add", {"a": 1, "b": 2})).text == "3"
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("changes of lists")
@live
async def test_a_change_of_a_list_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    server = Everything().server
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        client = await cell.connect()
        before = {tool.name for tool in await client.list_tools()}
        async with client.listen(tools=True) as changes:
            await until(lambda: cell.listens())

            def later() -> str:
                return "later"

            server.tool(later)
            change = await anext(changes)
            assert change.kind == "tools"
            after = {tool.name for tool in await client.list_tools()}
            assert after - before == {"s__later"}
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("updates of resources")
@live
async def test_an_update_of_a_resource_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    server = Everything().server
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        client = await cell.connect()
        async with client.listen(resources=["notes://a"]) as changes:
            await until(lambda: cell.follows("notes://a"))
            server.updated("notes://b")
            server.updated("notes://a")
            assert (await anext(changes)).uri == "notes://a"
        await until(lambda: not cell.follows("notes://a"))
        assert (await client.call_tool("s__add", {"a": 1, "b": 2})).text == "3"
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("completion")
@live
async def test_a_completion_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    server = Everything().server
    async with recorded(server, upstream=golden.upstream, downstream=golden.downstream) as cell:
        client = await cell.connect()
        found = await client.complete("who", "A", prompt="s__greet")
        assert found.values == ["Ada", "Alan"]
        found = await client.complete("name", "G", template="notes://{name}", context={"x": "y"})
        assert found.values == ["Grace"]
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("three pages")
@live
async def test_three_pages_cross(golden: Golden, rewrite_transcripts: bool) -> None:
    """The server has pages of its own, which the gateway reads; clients get those of the
    gateway."""
    server = Everything(page_size=2).server
    async with recorded(
        server, upstream=golden.upstream, downstream=golden.downstream, page_size=2
    ) as cell:
        client = await cell.connect()
        names: list[list[str]] = []
        cursor: str | None = None
        while True:
            page: Any = await client.ask("tools/list", t.PaginatedRequestParams(cursor=cursor))
            names.append([tool.name for tool in page.tools])
            cursor = page.next_cursor
            if cursor is None:
                break
        assert names == [["s__add", "s__fail"], ["s__count", "s__chatter"], ["s__wait"]]
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("a task")
@live
async def test_a_task_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    """Within a generation the client has the task under an id of the gateway; across them the
    gateway waits for the task, and the client sees a call that takes long."""
    press = Press()
    async with recorded(
        press.server, upstream=golden.upstream, downstream=golden.downstream
    ) as cell:
        client = await cell.connect(tasks=True)
        await client.list_tools()
        if golden.upstream != golden.downstream:
            press.go.set()
            assert (await client.call_tool("s__must")).data == {"pages": 7}
        elif golden.downstream == OLD:
            task = await client.start_task("s__must")
            press.go.set()
            await until(lambda: has_completed(cell, "notifications/tasks/status"))
            assert (await task.result()).data == {"pages": 7}
        else:
            await client.start_task("s__must")
            id, _ = ids_of(cell)
            async with client.listen_to_tasks([id]):
                press.go.set()
                await until(lambda: has_completed(cell, "notifications/tasks"))
            await until(lambda: has_ended(cell))
            state = await client.ask("tasks/get", t.ExtGetTaskRequestParams(task_id=id))
            assert isinstance(state, t.ExtGetTaskResult)
            assert state.status == "completed"
        golden.compare(cell, rewrite=rewrite_transcripts)


def has_completed(cell: Cell, method: str) -> bool:
    """Whether the client was notified that its task has completed."""
    states = cell.client_wire.said(Side.SERVER, method)
    return any(state["status"] == "completed" for state in states)


def has_ended(cell: Cell) -> bool:
    """Whether the gateway has ended its subscription at the server."""
    return bool(cell.server_wire.said(Side.CLIENT, "notifications/cancelled"))


# ---------------------------------------------------------------- all pairs of revisions

DATES = [revision.date for revision in ALL]


@pytest.mark.parametrize("upstream", DATES)
@pytest.mark.parametrize("downstream", DATES)
@live
async def test_calls_and_errors_cross_between_all_revisions(downstream: str, upstream: str) -> None:
    server = Everything().server
    async with recorded(server, upstream=upstream, downstream=downstream) as cell:
        client = await cell.connect()
        result = await client.call_tool("s__add", {"a": 1, "b": 2})
        assert result.text == "3"
        prompt = await client.get_prompt("s__greet", {"who": "Ada"})
        assert getattr(prompt.messages[0].content, "text", None) == "hello Ada"
        assert (await client.read_resource("notes://a")).contents[0].text == "a"
        await check_errors(client, downstream)
        for listed in (client.list_tools, client.list_prompts, client.list_resource_templates):
            assert await listed()
        cell.check()
