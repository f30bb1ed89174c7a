"""Tasks as a client sees them: a call that becomes one, polls, input requests, cancellation, and
servers that go away. The server is `client.task_server`, and the clock stands still."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from client.task_server import DONE, FORM, TaskServer
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.tasks.requests import MAX_EARLY
from colonnade.client.tasks.task import LISTENING_POLL_S, MAX_ANSWERED, MAX_AWAY_S
from colonnade.errors import (
    ChannelError,
    Declined,
    FaultKind,
    InvalidArgument,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    TaskEnded,
    TimedOut,
)
from colonnade.protocol.revision import JULY_2026, JUNE_2025, NOVEMBER_2025, Revision
from colonnade.protocol.tasks.record import short_digest
from colonnade.testing import Clock, played

BOTH = pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)
CALL, GET, CANCEL = "tools/call", "tasks/get", "tasks/cancel"


def on_clock(test: Callable[..., Awaitable[None]]) -> Any:
    """A test in a loop of its own, whose clock stands still."""

    @functools.wraps(test)
    async def run(**given: Any) -> None:
        with Clock() as clock:
            await test(clock, **given)
            with clock.flowing():
                await asyncio.sleep(0)

    made = played(run)
    made.__signature__ = _without_clock(test)  # type: ignore[attr-defined]
    return made


def _without_clock(test: Callable[..., Any]) -> Any:
    import inspect

    signature = inspect.signature(test)
    first, *rest = signature.parameters.values()
    assert first.name == "clock"
    return signature.replace(parameters=rest)


def begin(work: Awaitable[Any]) -> "asyncio.Task[Any]":
    return asyncio.ensure_future(work)


@asynccontextmanager
async def call_of_book(
    server: TaskServer, callbacks: InputCallbacks | None = None, **options: Any
) -> AsyncGenerator["asyncio.Task[Any]"]:
    """A call of the tool that runs as a task, by a client that stays open meanwhile."""
    async with server.client(callbacks, **options) as client:
        yield begin(client.call_tool("book"))


async def end_after(
    clock: Clock, seconds: float, server: TaskServer, call: "asyncio.Task[Any]"
) -> None:
    """Complete the task; its result is that of the call after these seconds."""
    server.end()
    await clock.advance(seconds)
    assert (await call).text == "a book"


def pages(count: int = 20) -> tuple[InputCallbacks, list[str]]:
    """Callbacks that respond to the form, and the messages that were shown."""
    shown: list[str] = []

    def on_elicit(params: Any) -> Any:
        shown.append(params.message)
        return {"pages": count}

    return InputCallbacks(on_elicit=on_elicit), shown


# ---------------------------------------------------------------- calls


@BOTH
@on_clock
async def test_a_call_that_becomes_a_task_just_takes_longer(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with server.client() as client:
        call = begin(client.call_tool("book", {"topic": "tea"}))
        await clock.advance(10)
        assert not call.done()
        await end_after(clock, 1, server, call)


@on_clock
async def test_every_request_declares_the_extension_and_none_does_if_the_client_is_told_so(
    clock: Clock,
) -> None:
    declared: list[Any] = []
    for tasks in (True, False):
        server = TaskServer(JULY_2026, as_task=False)
        async with server.client(tasks=tasks) as client:
            await client.call_tool("book")
        meta = server.sent(CALL)[0]["params"]["_meta"]
        declared.append(meta["io.modelcontextprotocol/clientCapabilities"].get("extensions"))
    assert declared == [{"io.modelcontextprotocol/tasks": {}}, None]


@on_clock
async def test_a_task_for_a_client_without_the_extension_is_an_invalid_response(
    clock: Clock,
) -> None:
    server = TaskServer(JULY_2026)
    async with server.client(tasks=False) as client:
        with pytest.raises(RemoteProtocolError, match="resultType"):
            await client.call_tool("book")


@on_clock
async def test_a_task_in_place_of_a_list_is_an_invalid_response(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    server._on_tools_list = lambda *_: {"resultType": "task"} | server.task()  # type: ignore[method-assign]
    async with server.client() as client:
        with pytest.raises(RemoteProtocolError, match="resultType"):
            await client.list_tools()


@BOTH
@on_clock
async def test_an_invalid_response_to_a_call_names_its_server_once(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    server._on_tools_call = lambda *_: {"content": 1}  # type: ignore[method-assign]
    async with server.client() as client:
        with pytest.raises(RemoteProtocolError) as raised:
            await client.start_task("book")
    assert str(raised.value).count("server 'press'") == 1
    assert raised.value.server == "press"


@pytest.mark.spec("R0513", "R0514", "R0542", "R1162", "R1165")
@BOTH
@on_clock
async def test_polls_come_at_most_once_in_the_interval_of_the_server(
    clock: Clock, revision: Revision
) -> None:
    """Counted over ten minutes, with an interval that changes."""
    server = TaskServer(revision, poll_ms=5000)
    async with call_of_book(server) as call:
        await clock.advance(60)
        assert len(server.sent(GET)) == 12
        server.poll_ms = 60_000
        await clock.advance(600)
        assert len(server.sent(GET)) in (22, 23)
        times = server.times(GET)
        assert min(b - a for a, b in pairwise(times)) >= 5
        await end_after(clock, 60, server, call)


@on_clock
async def test_without_an_interval_the_polls_become_rarer(clock: Clock) -> None:
    server = TaskServer(JULY_2026, poll_ms=None)
    async with call_of_book(server) as call:
        await clock.advance(600)
        gaps = [round(b - a, 3) for a, b in pairwise(server.times(GET))]
        assert gaps == sorted(gaps)
        assert gaps[-1] == 30
        await end_after(clock, 30, server, call)


@BOTH
@on_clock
async def test_a_call_of_an_hour_outlives_its_timeout_and_a_server_that_is_away(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision, poll_ms=5000)
    async with call_of_book(server, timeout_s=60.0) as call:
        await clock.advance(1800)
        await server.leave()
        await clock.advance(120)
        assert not call.done()
        server.away = False
        await clock.advance(1680)
        assert not call.done()
        await end_after(clock, 60, server, call)


@on_clock
async def test_a_server_that_does_not_come_back_is_given_up_with_a_sentence(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    async with call_of_book(server) as call:
        await clock.advance(2)
        await server.leave()
        await clock.advance(MAX_AWAY_S + 120)
        with pytest.raises(ChannelError, match="resume it by its handle"):
            await call
        assert not server.sent(CANCEL)


@on_clock
async def test_a_poll_without_a_response_is_sent_again(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    server.deaf_to.add(GET)
    async with call_of_book(server, timeout_s=5.0) as call:
        await clock.advance(10)
        server.deaf_to.clear()
        await end_after(clock, 60, server, call)


@BOTH
@on_clock
async def test_what_the_server_says_about_a_task_goes_to_on_progress(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    said: list[Any] = []
    async with server.client() as client:
        call = begin(client.call_tool("book", on_progress=lambda *one: said.append(one)))
        await clock.advance(1)
        server.say("chapter 1")
        await clock.advance(2)
        server.say("chapter 2")
        await clock.advance(2)
        await end_after(clock, 1, server, call)
    assert said == [(1.0, None, "chapter 1"), (2.0, None, "chapter 2")]


@on_clock
async def test_progress_notifications_of_an_older_task_go_to_on_progress(clock: Clock) -> None:
    """They have the token of the call, which was responded to long ago, and name the task."""
    server = TaskServer(NOVEMBER_2025)
    said: list[Any] = []

    def progress(done: float, task_id: str = "t-1") -> None:
        meta = {"io.modelcontextprotocol/related-task": {"taskId": task_id}}
        token = server.sent(CALL)[-1]["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": done, "total": 9, "_meta": meta}
        server._readers[-1].say({"method": "notifications/progress", "params": params})

    async with server.client() as client:
        call = begin(client.call_tool("book", on_progress=lambda *one: said.append(one)))
        await clock.advance(1)
        for number in range(MAX_EARLY + 3):
            progress(1, f"other-{number}")
        progress(1)
        progress(1)
        progress(2)
        progress(5, "t-2")
        server.say("not said twice")
        await clock.advance(2)
        server.end()
        await clock.advance(1)
        progress(9)
        await call
    assert said == [(1, 9, None), (2, 9, None)]


@BOTH
@on_clock
async def test_an_error_of_the_tool_is_a_result_and_a_protocol_error_is_raised(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with server.client() as client:
        call = begin(client.call_tool("book"))
        await clock.advance(1)
        server.end({"content": [{"type": "text", "text": "no paper"}], "isError": True})
        await clock.advance(1)
        assert (await call).is_error
        server.status, server.result = "working", None
        call = begin(client.call_tool("book"))
        await clock.advance(1)
        server.fail(-32050, "the press is broken")
        await clock.advance(2)
        with pytest.raises(RemoteError, match="the press is broken") as raised:
            await call
        assert raised.value.code == -32050


@BOTH
@on_clock
async def test_a_task_that_its_server_does_not_know_any_more_is_an_error_with_a_sentence(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with call_of_book(server) as call:
        await clock.advance(1)
        server.forget()
        await clock.advance(2)
        with pytest.raises(TaskEnded, match="does not know the task of 'book' any more") as raised:
            await call
        assert raised.value.reason == "unknown"


@on_clock
async def test_a_task_is_not_waited_for_beyond_its_ttl(clock: Clock) -> None:
    """And a minute more, for clocks that differ."""
    server = TaskServer(JULY_2026, ttl_ms=600_000)
    server.task = _created_now(server, clock)  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await clock.advance(600)
        assert not call.done()
        await clock.advance(120)
        with pytest.raises(TaskEnded, match="has not ended within its time") as raised:
            await call
        assert raised.value.reason == "expired"


def _created_now(server: TaskServer, clock: Clock) -> Any:
    from datetime import UTC, datetime

    created = datetime.fromtimestamp(clock.time(), UTC).isoformat()
    plain = server.task
    return lambda: plain() | {"createdAt": created}


@BOTH
@on_clock
async def test_a_task_that_another_party_cancelled_is_an_error(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with call_of_book(server) as call:
        await clock.advance(1)
        server.message = "by the operator"
        server.cancel()
        await clock.advance(2)
        with pytest.raises(TaskEnded, match="was cancelled: by the operator"):
            await call


@on_clock
async def test_internal_errors_of_polls_are_passed_on_after_some(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    wrong = {"code": -32603, "message": "out of order"}
    server._on_tasks_get = lambda *_: wrong  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await clock.advance(60)
        with pytest.raises(RemoteError, match="out of order"):
            await call
        assert len(server.sent(GET)) == 3


@on_clock
async def test_the_state_of_another_task_is_refused(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    server._on_tasks_get = lambda *_: server.task() | {"taskId": "t-2"}  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await clock.advance(2)
        with pytest.raises(RemoteProtocolError, match="another task"):
            await call


# ---------------------------------------------------------------- cancellation


@pytest.mark.spec("R0497", "R1190")
@BOTH
@on_clock
async def test_cancelling_a_call_cancels_its_task_and_nothing_else(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with call_of_book(server) as call:
        await clock.advance(3)
        call.cancel()
        await clock.advance(0)
        assert call.cancelled()
        assert [one["params"]["taskId"] for one in server.sent(CANCEL)] == ["t-1"]
        call_id = server.sent(CALL)[-1]["id"]
        cancelled = [one["params"]["requestId"] for one in server.sent("notifications/cancelled")]
        assert call_id not in cancelled
        polls = len(server.sent(GET))
        await clock.advance(60)
        assert len(server.sent(GET)) == polls


@on_clock
async def test_a_server_that_does_not_respond_to_a_cancellation_does_not_hold_up_the_caller(
    clock: Clock,
) -> None:
    server = TaskServer(JULY_2026)
    server.deaf_to.add(CANCEL)
    async with call_of_book(server) as call:
        await clock.advance(3)
        call.cancel()
        await clock.advance(2)
        assert call.cancelled()


@pytest.mark.spec("R0668")
@on_clock
async def test_a_call_that_is_cancelled_before_its_task_has_an_id_cancels_it_by_the_id(
    clock: Clock,
) -> None:
    """2025-11-25 has `tasks/cancel` for that, and no other way."""
    server = TaskServer(NOVEMBER_2025)
    async with server.client() as client:
        await client.list_tools()
        server.deaf_to.add(CALL)
        call = begin(client.call_tool("book"))
        await clock.advance(1)
        call.cancel()
        await clock.advance(0.5)
        server.deaf_to.clear()
        server.answer(server._readers[-1], server.sent(CALL)[-1])
        await clock.advance(1)
        assert call.cancelled()
        assert [one["params"]["taskId"] for one in server.sent(CANCEL)] == ["t-1"]
        assert not server.sent("notifications/cancelled")


# ---------------------------------------------------------------- input requests


@pytest.mark.spec("R0534", "R1177", "R1178", "R1180", "R1186", "T06")
@BOTH
@on_clock
async def test_input_requests_of_a_task_go_through_the_callbacks_each_once(
    clock: Clock, revision: Revision
) -> None:
    """The server repeats them in every poll."""
    server = TaskServer(revision)
    answers, shown = pages()
    async with call_of_book(server, answers) as call:
        await clock.advance(1)
        server.ask(pages=FORM)
        await clock.advance(10)
        assert shown == ["How many pages?"]
        assert server.responses == {"pages": {"action": "accept", "content": {"pages": 20}}}
        if revision is JULY_2026:
            assert len(server.sent("tasks/update")) == 1
        else:
            assert len(server.sent("tasks/result")) == 1
        polls = len(server.sent(GET))
        server.work()
        await clock.advance(5)
        assert len(server.sent(GET)) == polls + 5
        await end_after(clock, 1, server, call)


@pytest.mark.spec("R1179")
@on_clock
async def test_a_callback_is_called_for_a_task_as_for_a_request_of_its_own(clock: Clock) -> None:
    """With the same params, and its refusal is sent as it would be for a request."""
    seen: list[Any] = []
    sent: list[Any] = []

    def on_elicit(params: Any) -> Any:
        seen.append(params)
        raise Declined("not today")

    for revision in (NOVEMBER_2025, JULY_2026):  # a request of the server, and part of a task
        server = TaskServer(revision)
        async with server.client(InputCallbacks(on_elicit=on_elicit)) as client:
            call = begin(client.call_tool("book"))
            await clock.advance(1)
            server.ask(pages=FORM)
            await clock.advance(5)
            sent.append(server.responses)
            await end_after(clock, 5, server, call)
    direct, of_task = ((type(one), one.mode, one.message, one.requested_schema) for one in seen)
    assert direct == of_task
    assert sent == [{"pages": {"action": "decline"}}] * 2


@pytest.mark.spec("R0671", "R0674", "R0676", "R0685")
@on_clock
async def test_a_client_declares_no_tasks_of_its_own(clock: Clock) -> None:
    """A server may not ask it for one then, and `task` in a request has no effect (D61)."""
    server = TaskServer(NOVEMBER_2025)
    callbacks = InputCallbacks(on_elicit=lambda _: {"pages": 1}, on_sample=lambda _: "tea")
    async with call_of_book(server, callbacks) as call:
        await clock.advance(1)
        server.ask(pages=FORM | {"params": FORM["params"] | {"task": {"ttl": 1000}}})
        await clock.advance(5)
        assert server.responses == {"pages": {"action": "accept", "content": {"pages": 1}}}
        await end_after(clock, 5, server, call)
    declared = server.sent("initialize")[0]["params"]["capabilities"]
    assert {"elicitation", "sampling"} <= declared.keys()
    assert "tasks" not in declared


@on_clock
async def test_a_later_input_request_is_shown_and_earlier_ones_are_not(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    answers, shown = pages()
    async with call_of_book(server, answers) as call:
        server.ask(pages=FORM)
        await clock.advance(3)
        more = {**FORM, "params": FORM["params"] | {"message": "How many copies?"}}
        server.ask(copies=more)
        await clock.advance(3)
        assert shown == ["How many pages?", "How many copies?"]
        assert [list(one["params"]["inputResponses"]) for one in server.sent("tasks/update")] == [
            ["pages"],
            ["copies"],
        ]
        await end_after(clock, 1, server, call)


@on_clock
async def test_a_declined_form_is_a_response_too(clock: Clock) -> None:
    server = TaskServer(JULY_2026)

    def on_elicit(params: Any) -> Any:
        raise Declined("no")

    async with call_of_book(server, InputCallbacks(on_elicit=on_elicit)) as call:
        server.ask(pages=FORM)
        await clock.advance(2)
        assert server.responses == {"pages": {"action": "decline"}}
        await end_after(clock, 1, server, call)


@on_clock
async def test_a_callback_that_fails_ends_the_call_and_cancels_its_task(clock: Clock) -> None:
    server = TaskServer(JULY_2026)

    def on_elicit(params: Any) -> Any:
        raise ValueError("the form is upside down")

    async with call_of_book(server, InputCallbacks(on_elicit=on_elicit)) as call:
        server.ask(pages=FORM)
        await clock.advance(2)
        with pytest.raises(ValueError, match="upside down"):
            await call
        assert len(server.sent(CANCEL)) == 1


@pytest.mark.spec("R1217")
@on_clock
async def test_a_task_that_asks_what_this_client_did_not_declare_is_refused(clock: Clock) -> None:
    """As any other input request is."""
    server = TaskServer(JULY_2026)
    async with server.client() as client:
        call = begin(client.call_tool("book"))
        server.ask(pages=FORM)
        await clock.advance(2)
        with pytest.raises(RemoteProtocolError, match="input that this client does not support"):
            await call


@on_clock
async def test_responses_are_sent_again_if_the_server_was_away(clock: Clock) -> None:
    server = TaskServer(JULY_2026)

    async def on_elicit(params: Any) -> Any:
        await server.leave()
        return {"pages": 3}

    async with call_of_book(server, InputCallbacks(on_elicit=on_elicit)) as call:
        server.ask(pages=FORM)
        await clock.advance(30)
        server.away = False
        await clock.advance(60)
        assert server.responses == {"pages": {"action": "accept", "content": {"pages": 3}}}
        await end_after(clock, 60, server, call)


@on_clock
async def test_a_response_that_the_server_refuses_is_an_error(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    wrong = {"code": -32602, "message": "pages: too many"}
    server._on_tasks_update = lambda *_: wrong  # type: ignore[method-assign]
    answers, _ = pages()
    async with call_of_book(server, answers) as call:
        server.ask(pages=FORM)
        await clock.advance(2)
        with pytest.raises(RemoteError, match="too many"):
            await call


@on_clock
async def test_a_response_that_came_too_late_is_no_error(clock: Clock) -> None:
    server = TaskServer(JULY_2026)

    def refuse(*_: Any) -> Any:
        server.end()
        return {"code": -32602, "message": "the task has ended"}

    server._on_tasks_update = refuse  # type: ignore[method-assign]
    answers, _ = pages()
    async with call_of_book(server, answers) as call:
        server.ask(pages=FORM)
        await clock.advance(2)
        assert (await call).text == "a book"


# ---------------------------------------------------------------- tasks that are started


@BOTH
@on_clock
async def test_a_started_task_shows_its_states_and_then_its_result(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision, support="optional")
    seen: list[Any] = []
    async with server.client() as client:
        task = await client.start_task("book", {"topic": "tea"})
        assert (task.status, task.message, task.done) == ("working", None, False)

        async def watch() -> None:
            seen.extend([(state.status, state.message) async for state in task])

        watching = begin(watch())
        await clock.advance(2)
        server.say("chapter 1")
        await clock.advance(2)
        server.end()
        await clock.advance(1)
        await watching
        assert seen == [("working", None), ("working", "chapter 1"), ("completed", "chapter 1")]
        result = begin(task.result(returns=str))
        await clock.advance(1)
        assert (await result).data == "a book"
        assert (await task.result()).text == "a book"


@BOTH
@on_clock
async def test_several_waiters_share_the_polls(clock: Clock, revision: Revision) -> None:
    server = TaskServer(revision)
    async with server.client() as client:
        task = await client.start_task("book")
        waiting = [begin(task.result()) for _ in range(5)]
        await clock.advance(10)
        assert len(server.sent(GET)) == 10
        server.end()
        await clock.advance(1)
        assert [(await one).text for one in waiting] == ["a book"] * 5


@pytest.mark.spec("R1166")
@BOTH
@on_clock
async def test_a_task_is_found_again_by_its_handle_in_another_client(
    clock: Clock, revision: Revision
) -> None:
    """The handle is what a program keeps."""
    server = TaskServer(revision)
    async with server.client() as client:
        task = await client.start_task("book")
        handle = task.handle
        assert handle is not None
    await server.leave()
    server.away = False
    async with server.client() as client:
        task = client.resume_task(handle)
        assert (task.tool, task.status, task.handle) == ("book", None, handle)
        result = begin(task.result())
        await clock.advance(3)
        server.end()
        await clock.advance(1)
        assert (await result).text == "a book"
    assert len(server.sent(CALL)) == 1


@on_clock
async def test_a_handle_of_one_generation_is_used_in_the_other(clock: Clock) -> None:
    older, newer = TaskServer(NOVEMBER_2025), TaskServer(JULY_2026)
    async with older.client() as client:
        handle = (await client.start_task("book")).handle
    assert handle is not None
    newer.end()
    async with newer.client() as client:
        assert (await client.resume_task(handle).result()).text == "a book"


@on_clock
async def test_a_handle_of_another_server_is_refused(clock: Clock) -> None:
    server, other = TaskServer(JULY_2026), TaskServer(JULY_2026)
    other.key = "https://other.example/mcp"
    async with server.client() as client:
        handle = (await client.start_task("book")).handle
    assert handle is not None
    async with other.client() as client:
        with pytest.raises(InvalidArgument, match=r"another server, 'https://press.example/mcp'"):
            client.resume_task(handle)
        with pytest.raises(InvalidArgument, match="not a task handle"):
            client.resume_task("anything")
    assert not other.sent(GET)


@on_clock
async def test_a_handle_is_of_no_use_where_there_are_no_tasks(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    async with server.client() as client:
        handle = (await client.start_task("book")).handle
    assert handle is not None
    async with server.client(tasks=False) as client:
        with pytest.raises(LocalProtocolError, match="tasks=False"):
            client.resume_task(handle)
    server.revision = JUNE_2025
    async with server.client() as client:
        with pytest.raises(LocalProtocolError, match="2025-06-18, which has no tasks"):
            client.resume_task(handle)


def test_a_handle_holds_no_credentials() -> None:
    from colonnade.client.tasks.requests import endpoint_of
    from colonnade.client.transports import HttpTransport, ProcessTransport

    url = HttpTransport("https://ada:secret@press.example:8443/mcp?key=secret#there")
    assert endpoint_of(url).startswith("https://press.example:8443/mcp?")
    other = HttpTransport("https://press.example:8443/mcp?key=other")
    command = ProcessTransport(["press", "--token=secret"], env={"KEY": "secret"})
    assert endpoint_of(other) != endpoint_of(url)
    for transport in (url, other, command):
        assert "secret" not in endpoint_of(transport)


@pytest.mark.spec("R0505")
@pytest.mark.parametrize("support", [None, "forbidden"])
@on_clock
async def test_a_tool_that_does_not_run_as_a_task_is_called_without(
    clock: Clock, support: str | None
) -> None:
    server = TaskServer(NOVEMBER_2025, support=support)
    async with server.client() as client:
        await client.list_tools()
        assert (await client.start_task("book")).done
        assert (await client.call_tool("book")).text == "a book"
    assert ["task" in one["params"] for one in server.sent(CALL)] == [False, False]


@pytest.mark.spec("R0502", "R0503", "R0504")
@pytest.mark.parametrize("declared", [None, {}, {"requests": {}}, {"requests": {"tools": {}}}])
@pytest.mark.parametrize("support", ["optional", "required"])
@on_clock
async def test_a_server_that_does_not_declare_tasks_of_tools_is_not_asked_for_one(
    clock: Clock, declared: Any, support: str
) -> None:
    """Whatever its tools say."""
    server = TaskServer(NOVEMBER_2025, support=support, as_task=False)
    server.tasks = declared
    async with server.client() as client:
        await client.list_tools()
        assert (await client.start_task("book")).done
        assert (await client.call_tool("book")).text == "a book"
    assert ["task" in one["params"] for one in server.sent(CALL)] == [False, False]


@pytest.mark.spec("R0558")
@BOTH
@on_clock
async def test_no_list_of_tasks_is_requested(clock: Clock, revision: Revision) -> None:
    """So there is no cursor that could be read or changed: handles find tasks again."""
    server = TaskServer(revision)
    async with server.client() as client:
        task = await client.start_task("book")
        again = client.resume_task(str(task.handle))
        server.end()
        await clock.advance(5)
        assert (await again.result()).text == "a book"
        await task.cancel()
    assert not server.sent("tasks/list")


@pytest.mark.parametrize(
    "revision", [JUNE_2025, NOVEMBER_2025, JULY_2026], ids=lambda one: one.date
)
@on_clock
async def test_against_a_server_without_tasks_a_started_task_is_done_already(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision, support=None, as_task=False)
    async with server.client() as client:
        task = await client.start_task("book")
        assert (task.done, task.status, task.handle) == (True, "completed", None)
        assert [state async for state in task] == []
        assert (await task.result()).text == "a book"
        assert await task.refresh() is None
        await task.cancel()
    assert not server.sent(GET)
    assert not server.sent(CANCEL)
    assert "task" not in server.sent(CALL)[0]["params"]


@on_clock
async def test_an_optional_task_of_2025_is_asked_for_by_start_task_only(clock: Clock) -> None:
    server = TaskServer(NOVEMBER_2025, support="optional")
    async with server.client() as client:
        await client.list_tools()
        assert (await client.call_tool("book")).text == "a book"
        await client.start_task("book")
    assert ["task" in one["params"] for one in server.sent(CALL)] == [False, True]


@on_clock
async def test_a_server_of_2025_that_ignores_task_just_runs_the_tool(clock: Clock) -> None:
    server = TaskServer(NOVEMBER_2025, as_task=False)
    async with server.client() as client:
        task = await client.start_task("book")
        assert (await task.result()).text == "a book"


@pytest.mark.spec("R0508")
@on_clock
async def test_a_tool_that_runs_as_a_task_only_is_called_so_from_its_listing_on(
    clock: Clock,
) -> None:
    server = TaskServer(NOVEMBER_2025, immediate="It is being printed.")
    async with server.client() as client:
        await client.list_tools()
        server.end()
        assert (await client.call_tool("book")).text == "a book"
        task = await client.start_task("book")
        assert task.immediate_response == "It is being printed."
    assert all("task" in one["params"] for one in server.sent(CALL))


@BOTH
@on_clock
async def test_a_wait_that_is_cancelled_leaves_the_task_alone(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with server.client() as client:
        task = await client.start_task("book")
        waiting = begin(task.result())
        await clock.advance(3)
        waiting.cancel()
        await clock.advance(3)
        assert not server.sent(CANCEL)
        polls = len(server.sent(GET))
        await clock.advance(60)
        assert len(server.sent(GET)) == polls
        await task.cancel()
        assert len(server.sent(CANCEL)) == 1
        again = begin(task.result())
        await clock.advance(2)
        with pytest.raises(TaskEnded, match="was cancelled"):
            await again
        await task.cancel()
        assert len(server.sent(CANCEL)) == 1


@on_clock
async def test_an_iteration_ends_with_a_cancelled_state_and_raises_for_a_lost_task(
    clock: Clock,
) -> None:
    server = TaskServer(JULY_2026)

    async def statuses(task: Any) -> list[str]:
        return [state.status async for state in task]

    async with server.client() as client:
        watching = begin(statuses(await client.start_task("book")))
        await clock.advance(1)
        server.cancel()
        await clock.advance(2)
        assert await watching == ["working", "cancelled"]
        server.status = "working"
        watching = begin(statuses(await client.start_task("book")))
        await clock.advance(1)
        server.forget()
        await clock.advance(2)
        with pytest.raises(TaskEnded, match="does not know"):
            await watching


@on_clock
async def test_a_resumed_task_leaves_input_requests_to_a_program_that_can_respond(
    clock: Clock,
) -> None:
    server = TaskServer(JULY_2026)
    answers, shown = pages()
    async with server.client(answers) as client:
        task = await client.start_task("book")
        handle = task.handle
        assert handle is not None
        server.ask(pages=FORM)
        async with server.client() as other:
            watched = other.resume_task(handle)
            watching = begin(watched.result())
            await clock.advance(5)
            assert not watching.done()
            assert watched.status == "input_required"
            with pytest.raises(RemoteProtocolError, match="does not support"):
                await other.resume_task(handle).respond()
            assert await task.respond()
            assert shown == ["How many pages?"]
            server.end()
            await clock.advance(60)
            assert (await watching).text == "a book"
        assert not await task.respond()


@on_clock
async def test_the_input_requests_of_an_older_task_are_responded_to_on_tasks_result(
    clock: Clock,
) -> None:
    server = TaskServer(NOVEMBER_2025)
    answers, shown = pages()
    async with server.client(answers) as client:
        task = await client.start_task("book")
        server.ask(pages=FORM)
        responding = begin(task.respond())
        await clock.advance(2)
        assert shown == ["How many pages?"]
        server.work()
        await clock.advance(2)
        assert await responding


# ---------------------------------------------------------------- subscriptions and open requests


@on_clock
async def test_states_arrive_on_a_subscription_if_the_server_offers_it(clock: Clock) -> None:
    server = TaskServer(JULY_2026, listens=True)
    async with call_of_book(server) as call:
        await clock.advance(LISTENING_POLL_S)
        assert server.sent("subscriptions/listen")[0]["params"]["notifications"] == {
            "taskIds": ["t-1"]
        }
        assert len(server.sent(GET)) == 1
        await end_after(clock, 0, server, call)
    assert len(server.sent(GET)) == 1


@on_clock
async def test_input_requests_that_arrive_on_a_subscription_are_responded_to_once(
    clock: Clock,
) -> None:
    server = TaskServer(JULY_2026, listens=True)
    answers, shown = pages()
    async with call_of_book(server, answers) as call:
        await clock.advance(2)
        server.ask(pages=FORM)
        server.say("waiting")
        await clock.advance(0)
        assert shown == ["How many pages?"]
        await end_after(clock, 0, server, call)
    assert len(server.sent("tasks/update")) == 1


@on_clock
async def test_a_lost_subscription_is_replaced_by_polls(clock: Clock) -> None:
    server = TaskServer(JULY_2026, listens=True)
    async with call_of_book(server) as call:
        await clock.advance(2)
        polls = len(server.sent(GET))
        await server.leave()
        server.away, server.listens = False, False
        await clock.advance(30)
        assert len(server.sent(GET)) > polls + 10
        await end_after(clock, 1, server, call)


@on_clock
async def test_what_was_missed_while_a_subscription_was_lost_is_polled(clock: Clock) -> None:
    server = TaskServer(JULY_2026, listens=True)
    async with call_of_book(server) as call:
        await clock.advance(2)
        await server.leave()
        server.end()
        server.away = False
        await clock.advance(5)
        assert (await call).text == "a book"
    assert len(server.sent("subscriptions/listen")) == 2


@pytest.mark.spec("R0515", "R0519", "R0520", "R0554")
@on_clock
async def test_the_result_of_an_older_task_arrives_between_two_polls(clock: Clock) -> None:
    """By the open `tasks/result`; status notifications are neither needed nor enough."""
    server = TaskServer(NOVEMBER_2025, poll_ms=60_000)
    async with call_of_book(server) as call:
        await clock.advance(61)
        assert len(server.sent("tasks/result")) == 1
        status = {"method": "notifications/tasks/status"}
        server._readers[-1].say(status | {"params": server.task() | {"status": "completed"}})
        await clock.advance(1)
        assert not call.done()
        await end_after(clock, 0, server, call)
    assert len(server.sent(GET)) == 1


@on_clock
async def test_an_open_request_that_is_lost_is_sent_again_after_the_next_poll(
    clock: Clock,
) -> None:
    server = TaskServer(NOVEMBER_2025)
    async with call_of_book(server) as call:
        await clock.advance(2)
        await server.leave()
        server.away = False
        await clock.advance(30)
        held = len(server.sent("tasks/result"))
        assert 2 <= held <= 4
        await end_after(clock, 2, server, call)


@pytest.mark.spec("R0586")
@on_clock
async def test_what_becomes_of_a_task_is_logged(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="colonnade.client")
    server = TaskServer(NOVEMBER_2025)
    async with call_of_book(server) as call:
        await clock.advance(2)
        server.say("chapter 1")
        await clock.advance(2)
        server.cancel()
        await clock.advance(2)
        with pytest.raises(TaskEnded):
            await call
    name = short_digest("t-1")
    lines = [one.getMessage() for one in caplog.records if f"task {name}" in one.getMessage()]
    assert lines[0] == f"server 'press': task {name} is working"
    assert lines[-1] == f"server 'press': task {name} is cancelled"
    assert "t-1" not in caplog.text


@pytest.mark.spec("R0564")
@on_clock
async def test_a_result_is_fetched_before_a_task_is_cancelled(clock: Clock) -> None:
    """A task whose end is known keeps its result in the client, and is not cancelled."""
    server = TaskServer(NOVEMBER_2025)
    async with server.client() as client:
        task = await client.start_task("book")
        server.end()
        assert (await task.result()).text == DONE["content"][0]["text"]
        await task.cancel()
        server.forget()
        assert (await task.result()).text == "a book"
    assert not server.sent(CANCEL)


# ---------------------------------------------------------------- trouble


@on_clock
async def test_a_task_is_resumed_as_soon_as_its_server_is_back(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    async with server.client() as client:
        handle = (await client.start_task("book")).handle
        assert handle is not None
        await server.leave()
        result = begin(client.resume_task(handle).result())
        await clock.advance(300)
        server.away = False
        server.end()
        await clock.advance(30)
        assert (await result).text == "a book"


@on_clock
async def test_a_server_that_has_too_many_polls_is_polled_less(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    plain, code = server._on_tasks_get, JULY_2026.codes[FaultKind.TOO_MANY]
    server._on_tasks_get = lambda *_: {"code": code, "message": "slow down"}  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await clock.advance(60)
        assert 2 < len(server.sent(GET)) < 10
        server._on_tasks_get = plain  # type: ignore[method-assign]
        await end_after(clock, 60, server, call)


@on_clock
async def test_a_state_that_comes_after_the_last_one_is_dropped(clock: Clock) -> None:
    server = TaskServer(JULY_2026, listens=True)
    async with server.client() as client:
        task = await client.start_task("book")
        watching = begin(task.result())
        await clock.advance(2)
        server.end()
        server.status, server.result = "working", None
        server._changed()
        await clock.advance(0)
        assert (await watching).text == "a book"
        assert task.status == "completed"


@on_clock
async def test_a_user_who_does_not_respond_ends_the_call(clock: Clock) -> None:
    server = TaskServer(JULY_2026)

    async def on_elicit(params: Any) -> Any:
        await asyncio.sleep(1e6)

    async with call_of_book(server, InputCallbacks(on_elicit=on_elicit)) as call:
        server.ask(pages=FORM)
        await clock.advance(700)
        with pytest.raises(TimedOut, match="input requests of 'book' got no response within 600 s"):
            await call
        assert len(server.sent(CANCEL)) == 1


@on_clock
async def test_a_timeout_of_a_callback_is_its_own(clock: Clock) -> None:
    server = TaskServer(JULY_2026)

    def on_elicit(params: Any) -> Any:
        raise TimeoutError("the user's database")

    async with call_of_book(server, InputCallbacks(on_elicit=on_elicit)) as call:
        server.ask(pages=FORM)
        await clock.advance(2)
        with pytest.raises(TimeoutError, match="database"):
            await call


@on_clock
async def test_a_task_that_never_stops_asking_is_refused(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    answers, shown = pages()
    async with call_of_book(server, answers) as call:
        for number in range(0, MAX_ANSWERED + 50, 50):
            server.questions = {}
            server.ask(**{str(number + one): FORM for one in range(50)})
            await clock.advance(1)
        await clock.advance(1)
        with pytest.raises(RemoteProtocolError, match=f"more than {MAX_ANSWERED} input requests"):
            await call
        assert len(shown) == MAX_ANSWERED


@BOTH
@on_clock
async def test_a_result_that_is_none_is_an_invalid_response(
    clock: Clock, revision: Revision
) -> None:
    server = TaskServer(revision)
    async with call_of_book(server) as call:
        await clock.advance(1)
        server.end({"content": 3})
        await clock.advance(2)
        with pytest.raises(RemoteProtocolError, match="content"):
            await call


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        ("cancelled", TaskEnded, "was cancelled: out of ink"),
        ("failed", RemoteProtocolError, "the task of 'book' failed: out of ink"),
    ],
)
@on_clock
async def test_an_ended_task_of_2025_whose_result_is_empty_is_what_its_status_says(
    clock: Clock, status: str, error: type[Exception], words: str
) -> None:
    # As `mcp` 1.30 returns it (D72).
    server = TaskServer(NOVEMBER_2025)
    server._result = lambda reader, key: reader.say({"id": key, "result": {}})  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await clock.advance(1)
        server.message = "out of ink"
        server.cancel() if status == "cancelled" else server.fail(-32603, "")
        await clock.advance(3)
        with pytest.raises(error, match=words):
            await call


@on_clock
async def test_a_state_that_is_none_is_an_invalid_response(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    server._on_tasks_get = lambda *_: {"status": "working"}  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await clock.advance(2)
        with pytest.raises(RemoteProtocolError, match="taskId"):
            await call


@on_clock
async def test_the_result_of_an_ended_task_of_2025_is_fetched_again_if_it_was_lost(
    clock: Clock,
) -> None:
    server = TaskServer(NOVEMBER_2025)
    server.deaf_to.add("tasks/result")
    async with call_of_book(server) as call:
        await clock.advance(1)
        server.end()
        await clock.advance(2)
        await server.leave()
        await clock.advance(60)
        server.deaf_to.clear()
        server.away = False
        await clock.advance(60)
        assert (await call).text == "a book"


@on_clock
async def test_a_server_that_never_returns_the_result_is_given_up(clock: Clock) -> None:
    server = TaskServer(NOVEMBER_2025)
    server.deaf_to.add("tasks/result")
    async with call_of_book(server, timeout_s=20.0) as call:
        await clock.advance(1)
        server.end()
        await clock.advance(30)
        with pytest.raises(TimedOut, match="did not return the result of 'book' within 20 s"):
            await call


@on_clock
async def test_a_server_that_returns_results_of_ended_tasks_only_is_asked_again(
    clock: Clock,
) -> None:
    server = TaskServer(NOVEMBER_2025)
    plain = server._on_tasks_result
    early = {"code": -32600, "message": "it has not ended"}
    server._on_tasks_result = lambda *_: early  # type: ignore[method-assign]
    answers, shown = pages()
    async with server.client(answers) as client:
        call = begin(client.call_tool("book"))
        await clock.advance(5)
        assert len(server.sent("tasks/result")) == 1
        server.ask(pages=FORM)
        await clock.advance(2)
        server._on_tasks_result = plain  # type: ignore[method-assign]
        await clock.advance(2)
        assert shown == ["How many pages?"]
        await end_after(clock, 2, server, call)
    server = TaskServer(NOVEMBER_2025)
    server._on_tasks_result = lambda *_: early  # type: ignore[method-assign]
    async with server.client() as client:
        call = begin(client.call_tool("book"))
        await clock.advance(1)
        server.end()
        await clock.advance(5)
        with pytest.raises(RemoteError, match="it has not ended"):
            await call


@on_clock
async def test_a_call_returns_after_the_callbacks_of_its_task(clock: Clock) -> None:
    server = TaskServer(JULY_2026)
    said: list[str | None] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        await asyncio.sleep(3)
        said.append(message)

    async with server.client() as client:
        call = begin(client.call_tool("book", on_progress=on_progress))
        await clock.advance(0)
        server.message = "chapter 1"
        server.end()
        await clock.advance(2)
        assert not call.done()
        await clock.advance(3)
        await call
        assert said == ["chapter 1"]


@on_clock
async def test_a_state_with_the_result_type_of_an_example_of_the_specification_is_read(
    clock: Clock,
) -> None:
    """The text requires `complete`, and an example has `task` (D69)."""
    server = TaskServer(JULY_2026)
    plain = server._on_tasks_get
    server._on_tasks_get = lambda *given: {"resultType": "task"} | plain(*given)  # type: ignore[method-assign]
    async with call_of_book(server) as call:
        await end_after(clock, 2, server, call)
