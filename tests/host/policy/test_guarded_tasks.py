"""What servers say about tasks is contained, and a handle with another tool in it opens nothing."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade import Context, Host, Policy, Rule, Server, TaskEnded
from colonnade.errors import ColonnadeError, Fault, FaultKind, RemoteProtocolError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Config, Settings
from colonnade.host.policy.containment import CONTAINED_KEY, Containment
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import NOTHING
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision, Tasks
from colonnade.protocol.tasks.client import TaskHandle, TaskState
from colonnade.store.memory import MemoryStore
from live import live

BOTH = pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)
BAD, SHOWN = "x\u202ey", "x\\u202ey"
NOTE = "[Hidden text in what the server sent: 1 bidi controls]"
ALLOW = Policy(default="allow")
HIDING = Policy([Rule("deny", tools="press__secret")], default="allow")


class Press:
    """A server with two tools that run as tasks until a test lets them go on."""

    def __init__(self, revision: Revision) -> None:
        self.go = asyncio.Event()
        self.is_lost = False
        self.server = server = Server("press", middleware=[self._change])
        self._settings = Settings(revision=revision.date)

        @server.tool(task=True)
        async def book(ctx: Context) -> str:
            await ctx.progress(1, 2, BAD)
            await self.go.wait()
            return BAD

        @server.tool(task=True)
        async def secret() -> str:
            await self.go.wait()
            return "the secret"

        _ = book, secret

    async def _change(self, request: RequestContext, call_next: Handler) -> t.ProtocolType:
        """Words for the model in what creates a task; lost tasks with words about them."""
        if self.is_lost and request.exchange.method.name == "tasks/get":
            raise Fault(FaultKind.INVALID_PARAMS, BAD)
        result = await call_next(request)
        if isinstance(result, t.CreateTaskResult | t.ExtCreateTaskResult):
            return replace(result, meta={t.MODEL_IMMEDIATE_RESPONSE_KEY: BAD})
        return result

    def config(self, policy: Policy = ALLOW) -> Config:
        entries = {"press": entry_of("press", self.server, self._settings)}
        return Config(entries=entries, policy=policy)


def with_tool(handle: str | None, tool: str) -> str:
    """A handle in which another tool is written."""
    return replace(TaskHandle.decode(handle or ""), tool=tool).encode()


# ---------------------------------------------------------------- hidden text


@BOTH
@live
async def test_what_a_server_says_about_a_task_is_contained(revision: Revision) -> None:
    press, store, progress = Press(revision), MemoryStore(), list[str | None]()

    def on_progress(_: float, __: float | None, message: str | None) -> None:
        progress.append(message)

    async with Host(press.config(), store=store) as host:
        task = await host.start_task("press__book", on_progress=on_progress)
        assert task.immediate_response == SHOWN
        while task.message is None:
            await task.refresh()
        assert task.message == SHOWN
        async for state in task:
            assert state.message == SHOWN
            break
        assert [one.message for one in await host.tasks()] == [SHOWN]
        again = host.resume_task(task.handle or "", "press", on_progress=on_progress)
        press.go.set()
        async for state in again:
            assert BAD not in str(state)
            assert b"\\u202e" not in bytes(state.result).replace(b"\\\\u202e", b"")
        assert (await again.result()).text == SHOWN
    assert progress
    assert set(progress) <= {SHOWN, None}


@BOTH
@live
async def test_the_words_about_a_task_that_is_lost_are_contained(revision: Revision) -> None:
    press = Press(revision)
    async with Host(press.config()) as host:
        task = await host.start_task("press__book")
        press.is_lost = True
        with pytest.raises(TaskEnded) as raised:
            await task.refresh()
        press.go.set()
    assert SHOWN in str(raised.value)
    assert BAD not in str(raised.value)


def state_with(**members: Any) -> TaskState:
    return TaskState("1", "working", Tasks.EXTENSION, **members)


def test_every_part_of_a_state_is_contained() -> None:
    contain = Containment().task_state
    assert contain(state_with(message=BAD)).message == SHOWN
    failed = contain(state_with(error=t.ErrorObject(code=1, message=BAD, data=[BAD]))).error
    assert failed == t.ErrorObject(code=1, message=SHOWN, data=[SHOWN])
    asked = t.ElicitRequestParams(message=BAD, mode="url", url="https://x", elicitation_id="1")
    requests = contain(state_with(input_requests={"a": t.ElicitRequest(params=asked)}))
    params: Any = requests.input_requests["a"].params
    assert params.message == SHOWN
    sent = Raw(b'{"content":[{"type":"text","text":"x\\u202ey"}]}')
    result = bytes(contain(state_with(result=sent)).result)
    assert b'"x\\\\u202ey"' in result
    assert CONTAINED_KEY.encode() in result
    assert contain(state_with(result=Raw(b'{"content":7}'))).result == NOTHING


def test_a_state_without_hidden_text_is_the_same() -> None:
    state = state_with(
        message="a",
        error=t.ErrorObject(code=1, message="b"),
        input_requests={"a": t.ListRootsRequest()},
        result=Raw(b'{"content":[]}'),
    )
    assert Containment().task_state(state) is state
    hidden = state_with(message=BAD)
    assert Containment("off").task_state(hidden) is hidden


def test_an_error_with_words_of_a_server_is_contained_once() -> None:
    ended = TaskEnded(f"it ended: {BAD}", reason="expired")
    contained = Containment().failure(ended)
    assert isinstance(contained, TaskEnded)
    assert (str(contained), contained.reason) == (f"it ended: {SHOWN}", "expired")
    assert Containment().failure(contained) is contained
    marked = Containment("mark").failure(ended)
    assert str(marked) == f"{NOTE}\n\nit ended: {BAD}"
    assert Containment("mark").failure(marked) is marked
    for plain in (RemoteProtocolError("plain"), ColonnadeError()):
        assert Containment().failure(plain) is plain
    assert Containment("off").failure(ended) is ended


# ---------------------------------------------------------------- handles


@BOTH
@live
async def test_a_handle_in_which_another_tool_is_written_does_not_open_a_hidden_task(
    revision: Revision,
) -> None:
    press = Press(revision)
    async with Host(press.config()) as host:
        task = await host.start_task("press__secret")
        press.go.set()
        await host.reload(press.config(HIDING))
        edited = with_tool(task.handle, "book")
        for caller in (None, "another"):
            for use in ("result", "refresh", "respond", "cancel"):
                resumed = host.resume_task(edited, "press", caller=caller)
                with pytest.raises(ColonnadeError, match="no tool"):
                    await getattr(resumed, use)()
            with pytest.raises(ColonnadeError, match="no tool"):
                _ = [state async for state in host.resume_task(edited, "press", caller=caller)]
        await host.reload(press.config())
        assert (await host.resume_task(edited, "press").result()).text == "the secret"
        assert await host.tasks() == []


@BOTH
@live
async def test_a_task_that_is_not_in_the_store_is_unknown_where_tools_are_hidden(
    revision: Revision,
) -> None:
    press = Press(revision)
    async with Host(press.config()) as host:
        secret = await host.start_task("press__secret")
        book = await host.start_task("press__book")
        press.go.set()
        await secret.forget()
        await book.forget()
        await host.reload(press.config(HIDING))
        for handle in (with_tool(secret.handle, "book"), book.handle or ""):
            for use in ("result", "refresh", "respond", "cancel"):
                with pytest.raises(TaskEnded) as raised:
                    await getattr(host.resume_task(handle, "press"), use)()
                assert raised.value.reason == "unknown"
        kept = host.resume_task(book.handle or "", "press", tool="press__book")
        assert (await kept.result()).text == SHOWN
        with pytest.raises(ColonnadeError, match="no tool"):
            await host.resume_task(secret.handle or "", "press", tool="press__secret").result()


@BOTH
@live
async def test_without_hidden_tools_a_handle_is_all_that_is_needed(revision: Revision) -> None:
    press = Press(revision)
    async with Host(press.config()) as host:
        task = await host.start_task("press__secret")
        press.go.set()
        await task.forget()
        assert (await host.resume_task(task.handle or "", "press").result()).text == "the secret"
