"""Tasks of a host: calls that become one, and those that are found again after a restart."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Host, Server, TaskEnded
from colonnade.errors import LocalProtocolError, RemoteError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.tasks import HostTask
from colonnade.ports import Handler, RequestContext, Store, WrappedRequest
from colonnade.protocol import types as t
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from live import live

BOTH = pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)


class Press:
    """A server whose tools run as tasks, and what a test does to it."""

    def __init__(self, store: Store | None = None) -> None:
        self.go = asyncio.Event()
        self.runs = 0
        self.server = server = Server("press", store=store) if store else Server("press")

        @server.tool(task=True)
        async def book(topic: str, ctx: Context) -> dict[str, str]:
            self.runs += 1
            await ctx.progress(1, 2, "chapter 1")
            await self.go.wait()
            return {"about": topic}

        @server.tool(task="required")
        async def ask(ctx: Context) -> str:
            return f"{await ctx.elicit('How many pages?', int)} pages"

        @server.tool(task="required")
        async def fail() -> str:
            raise KeyError("secret")

        @server.tool
        def plain() -> str:
            return "at once"


@asynccontextmanager
async def hosting(
    press: Press, revision: Revision, store: Store | None = None, **options: Any
) -> AsyncGenerator[Host]:
    settings = Settings(revision=revision.date)
    entry = entry_of("press", press.server, settings)
    async with Host({"press": entry}, store=store, **options) as host:
        yield host


async def reached(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await true():
            await asyncio.sleep(0)


@BOTH
@live
async def test_a_call_that_becomes_a_task_is_waited_for_and_not_kept_after(
    revision: Revision,
) -> None:
    press = Press()
    async with hosting(press, revision) as host:
        if revision is NOVEMBER_2025:
            task = await host.start_task("press__book", {"topic": "tea"})
            call = asyncio.ensure_future(task.result())
        else:
            call = asyncio.ensure_future(host.call_tool("press__book", {"topic": "tea"}))
        await reached(lambda: _any_task(host))
        (kept,) = await host.tasks()
        assert (kept.server, kept.tool, kept.caller) == ("press", "press__book", "")
        assert (kept.status, kept.done) == ("working", False)
        press.go.set()
        assert (await call).data == {"about": "tea"}
        assert await host.tasks() == []


@BOTH
@live
async def test_a_middleware_that_passes_on_another_request_does_not_prevent_a_task(
    revision: Revision,
) -> None:
    async def wrap(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        return await call_next(WrappedRequest(request))

    press = Press()
    async with hosting(press, revision, middleware=[wrap]) as host:
        task = await host.start_task("press__book", {"topic": "tea"})
        assert not task.done
        press.go.set()
        assert (await task.result()).data == {"about": "tea"}


async def _any_task(host: Host) -> bool:
    return bool(await host.tasks(refresh=False))


@BOTH
@live
async def test_a_started_task_is_found_again_by_another_host_with_the_same_store(
    revision: Revision, tmp_path: Path
) -> None:
    press, store = Press(), SqliteStore(tmp_path / "host.db")
    await press.server.start()
    try:
        async with hosting(press, revision, store) as host:
            task = await host.start_task("press__book", {"topic": "tea"}, caller="ada")
            assert (task.done, task.handle is not None) == (False, True)
        await store.close()
        store = SqliteStore(tmp_path / "host.db")
        async with hosting(press, revision, store) as host:
            assert await host.tasks(caller="bob") == []
            (task,) = await host.caller("ada").tasks()
            assert (task.tool, task.caller, task.status) == ("press__book", "ada", "working")
            press.go.set()
            result = await task.result(returns=dict[str, str])
            assert result.data == {"about": "tea"}
            assert task.done
            assert await host.tasks() == []
        await store.close()
    finally:
        await press.server.stop()
    assert press.runs == 1


@BOTH
@pytest.mark.spec("R1217")
@live
async def test_input_requests_of_a_task_look_like_any_other(revision: Revision) -> None:
    asked: list[Any] = []

    def on_input_request(request: Any) -> Any:
        asked.append(request)
        return 20

    async with hosting(Press(), revision, on_input_request=on_input_request) as host:
        assert (await host.call_tool("press__ask", caller="ada")).data == "20 pages"
        task = await host.start_task("press__ask", caller="ada")
        assert (await task.result()).data == "20 pages"
    for request in asked:
        assert (request.server, request.kind) == ("press", "elicit")
        assert request.params.message == "How many pages?"
        assert [(call.name, call.caller) for call in request.calls] == [("press__ask", "ada")]
    assert len(asked) == 2


@BOTH
@live
async def test_a_task_is_cancelled_and_forgotten(revision: Revision) -> None:
    async with hosting(Press(), revision) as host:
        task = await host.start_task("press__book", {"topic": "tea"})
        assert await task.refresh() == "working"
        states = aiter(task)
        assert (await anext(states)).status == "working"
        await task.cancel()
        await states.aclose()  # type: ignore[attr-defined]
        assert await host.tasks() == []
        with pytest.raises(TaskEnded, match="was cancelled"):
            await task.result()


@BOTH
@live
async def test_an_error_of_the_tool_is_a_result_of_its_task(revision: Revision) -> None:
    async with hosting(Press(), revision) as host:
        task = await host.start_task("press__fail")
        assert (await task.result()).is_error
        assert await host.tasks() == []


@BOTH
@live
async def test_a_call_that_is_no_task_is_done_already(revision: Revision) -> None:
    async with hosting(Press(), revision) as host:
        task = await host.start_task("press__plain")
        assert (task.done, task.status, task.handle) == (True, "completed", None)
        assert (await task.result()).data == "at once"
        assert (await task.result(returns=str)).data == "at once"
        assert await task.refresh() == "completed"
        assert not await task.respond()
        assert [state async for state in task] == []
        await task.cancel()
        assert await host.tasks() == []


@live
async def test_results_of_tasks_pass_through_the_middleware() -> None:
    seen: list[tuple[str, type]] = []

    async def note(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        result = await call_next(request)
        seen.append((request.method, type(result)))
        return result

    press = Press()
    press.go.set()
    async with hosting(press, JULY_2026, middleware=[note]) as host:
        task = await host.start_task("press__book", {"topic": "tea"})
        assert (await task.result()).data == {"about": "tea"}
    assert seen == [("tools/call", t.CallToolResult), ("tasks/get", t.CallToolResult)]


@live
async def test_a_cancelled_call_is_not_kept() -> None:
    async with hosting(Press(), JULY_2026) as host:
        call = asyncio.ensure_future(host.call_tool("press__book", {"topic": "tea"}))
        await reached(lambda: _any_task(host))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await host.tasks() == []


@live
async def test_a_task_of_a_server_that_is_gone_is_listed_as_it_was_last_known() -> None:
    press, store = Press(), MemoryStore()
    async with hosting(press, JULY_2026, store) as host:
        await host.start_task("press__book", {"topic": "tea"})
    async with Host({}, store=store) as host:
        (task,) = await host.tasks()
        assert task.status == "working"
        with pytest.raises(LocalProtocolError, match="press"):
            await task.refresh()


@live
async def test_a_task_that_its_server_does_not_know_any_more_is_forgotten() -> None:
    store = MemoryStore()
    async with hosting(Press(), JULY_2026, store) as host:
        await host.start_task("press__book", {"topic": "tea"})
    async with hosting(Press(), JULY_2026, store) as host:
        assert len(await host.tasks(refresh=False)) == 1
        assert await host.tasks() == []
        assert await host.tasks(refresh=False) == []


@live
async def test_an_entry_that_is_no_record_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    from colonnade.host.tasks import PREFIX
    from colonnade.ports import SERVER_PRINCIPAL

    store = MemoryStore()
    await store.put(SERVER_PRINCIPAL, f"{PREFIX}1", b"{", None)
    async with Host({}, store=store) as host:
        assert await host.tasks() == []
    assert "no record of a task" in caplog.text


@live
async def test_clients_of_a_host_have_no_tasks_of_it() -> None:
    from colonnade.host.router import LocalRequestContext, local_exchange

    async with hosting(Press(), JULY_2026) as host:
        params = t.ExtGetTaskRequestParams(task_id="t-1")
        peer = host._runtime.input_requests.peer
        context = LocalRequestContext(
            local_exchange("tasks/get", params, peer), host._runtime.input_requests
        )
        with pytest.raises(Exception, match="method not found"):
            await host.handler(context)
        assert isinstance(await host.start_task("press__plain"), HostTask)
        with pytest.raises(RemoteError):
            await host.start_task("press__nothing")


CHILD = """
import asyncio
import os
import sys

from colonnade import Server, TaskOptions
from colonnade.store.sqlite import SqliteStore

store = SqliteStore("press.db") if sys.argv[1] == "durable" else None
server = Server("press", store=store, tasks=TaskOptions(lease_s=1.0))


@server.tool(task=True)
async def book(topic: str) -> str:
    while not os.path.exists("printed"):
        await asyncio.sleep(0.02)
    return f"a book about {topic}"


server.run()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@pytest.mark.parametrize("kind", ["durable", "in memory"])
@live
async def test_a_call_goes_on_if_the_process_of_its_server_is_killed_and_keeps_tasks(
    kind: str, tmp_path: Path
) -> None:
    (tmp_path / "press.py").write_text(CHILD)
    entry: dict[str, Any] = {"command": sys.executable, "args": ["press.py", kind]}
    entry |= {"cwd": str(tmp_path)}
    entry["env"] = {"PYTHONPATH": os.pathsep.join(sys.path)}
    async with Host({"press": entry}) as host:
        call = asyncio.ensure_future(host.call_tool("press__book", {"topic": "tea"}))
        await reached(lambda: _any_task(host))
        pid = host.status()[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "printed").touch()
        if kind == "durable":
            assert (await call).data == "a book about tea"
        else:
            with pytest.raises(TaskEnded, match="does not know the task of 'book' any more"):
                await call
        assert await host.tasks() == []
