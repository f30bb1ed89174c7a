"""One conversation over a channel that carries everything: tasks, questions, batches, its end."""

import asyncio
import contextlib
import contextvars
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade.errors import ConnectionLost, TimedOut
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.link.events import NotificationReceived, PeerIdentified
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, NEWEST, InputRequests, Revision
from colonnade.transport.duplex import INPUT_TIMEOUT_S, Duplex
from http_service import FakeService
from live import live, until

BY_REQUEST = pytest.mark.parametrize(
    "revision",
    [one for one in ALL if one.input_requests is InputRequests.AS_REQUEST],
    ids=lambda one: one.date,
)


class Clock:
    """A time that moves when it is told to; alarms are rung by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class MemoryDuplex:
    """A duplex over memory: `wrote` is what it wrote, decoded."""

    def __init__(
        self, revision: Revision, service: FakeService, clock: Callable[[], float]
    ) -> None:
        self.revision = revision
        self.service = service
        self.wrote: list[Any] = []
        self.told: list[str] = []
        self.opened: list[PeerIdentified] = []
        self.drained = asyncio.Event()
        self.drained.set()
        link = DuplexLink(Side.SERVER, service.identity, service.accepts)
        self.duplex = Duplex(
            link,
            self,
            service.respond,
            on_notification=self._told,
            on_peer_identified=self.opened.append,
            clock=clock,
        )

    def _told(self, told: NotificationReceived) -> None:
        self.told.append(told.method.name)

    def write(self, frame: bytes) -> None:
        self.wrote.append(json.loads(frame))

    async def drain(self) -> None:
        await self.drained.wait()

    def say(self, message: Any) -> None:
        self.duplex.receive(json.dumps(message).encode())

    def request(self, id: Any, method: str, **params: Any) -> dict[str, Any]:
        if not self.revision.handshake:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": self.revision.date,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def call(self, id: Any, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.request(id, "tools/call", name=tool, arguments=arguments)

    async def answer(self, id: Any) -> Any:
        """The answer under an id, when it is there."""

        def found() -> list[Any]:
            answers = [one for one in self.wrote if isinstance(one, dict) and "method" not in one]
            return [one for one in answers if one.get("id") == id]

        await until(lambda: bool(found()))
        return found()[0]

    async def said(self, method: str) -> Any:
        """Wait until the last thing that was written is of this method."""
        await until(lambda: bool(self.wrote) and self.wrote[-1].get("method") == method)
        return self.wrote[-1]

    def open(self) -> None:
        if self.revision.handshake:
            params = {
                "protocolVersion": self.revision.date,
                "capabilities": {"elicitation": {}, "roots": {}, "sampling": {}},
                "clientInfo": {"name": "c", "version": "1"},
            }
            self.say({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})


@asynccontextmanager
async def open_memory_duplex(
    revision: Revision,
    clock: Callable[[], float] | None = None,
    service: FakeService | None = None,
) -> AsyncGenerator[MemoryDuplex]:
    memory_duplex = MemoryDuplex(
        revision, service or FakeService(), clock or asyncio.get_running_loop().time
    )
    memory_duplex.open()
    try:
        yield memory_duplex
    finally:
        memory_duplex.duplex.close("the test is over")
        await memory_duplex.duplex.ended(5)


@live
async def test_calls_are_answered_side_by_side(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "wait", name="slow"))
        await memory_duplex.service.marks.reached("slow begun")
        memory_duplex.say(memory_duplex.call("1", "echo", say="quick"))
        assert (await memory_duplex.answer("1"))["result"]["content"][0]["text"] == "quick"
        memory_duplex.service.go.mark("slow")
        assert (await memory_duplex.answer(1))["result"]["content"][0]["text"] == "waited"
        assert bool(memory_duplex.opened) is revision.handshake


# ---------------------------------------------------------------- a task for each call

# Where Python has eager tasks, a call that never waits is answered while it is read.
EAGER = sys.version_info >= (3, 12)
SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("SEEN", default="nothing")


class Taskmaster(FakeService):
    """Tools that show in which task and in which context they run."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[object] = []
        self.woken = asyncio.Event()

    async def tool_task(self, request: RequestContext, arguments: dict[str, Any]) -> t.ProtocolType:
        self.tasks.append(asyncio.current_task())
        return said(SEEN.get())

    async def tool_later(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        task = asyncio.current_task()
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        assert asyncio.current_task() is task
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        return await self.tool_task(request, arguments)

    async def tool_cancel_itself(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if arguments.get("wait"):
            await asyncio.Event().wait()
        return await self.tool_task(request, arguments)

    async def tool_crash_later(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        await asyncio.sleep(0)
        raise KeyError("a secret")

    async def tool_leave(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        SEEN.set("what another one left")
        return await self.tool_task(request, arguments)

    async def tool_rest(self, request: RequestContext, arguments: dict[str, Any]) -> t.ProtocolType:
        self.tasks.append(asyncio.current_task())
        await self.woken.wait()
        return said("rested")

    async def tool_wake(self, request: RequestContext, arguments: dict[str, Any]) -> t.ProtocolType:
        self.woken.set()
        return await self.tool_task(request, arguments)

    async def tool_stubborn(
        self, request: RequestContext, arguments: dict[str, Any]
    ) -> t.ProtocolType:
        self.marks.mark("stubborn begun")
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await self.tool_task(request, arguments)


def said(text: str) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)])


def words(answer: Any) -> str:
    return str(answer["result"]["content"][0]["text"])


@live
async def test_each_call_has_a_task_of_its_own_and_answers_keep_their_order(
    revision: Revision,
) -> None:
    service = Taskmaster()
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        own = asyncio.current_task()
        for id in range(1, 17):
            memory_duplex.say(memory_duplex.call(id, "task"))
        assert asyncio.current_task() is own
        await memory_duplex.answer(16)
        results = [one for one in memory_duplex.wrote if one.get("id")]
        assert [one["id"] for one in results] == list(range(1, 17))
        assert {words(one) for one in results} == {"nothing"}
        assert len({*service.tasks, own}) == 17


@live
async def test_a_call_that_never_waits_is_answered_at_once_where_python_can(
    revision: Revision,
) -> None:
    async with open_memory_duplex(revision, service=Taskmaster()) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "task"))
        assert (memory_duplex.wrote[-1:] != [] and memory_duplex.wrote[-1]["id"] == 1) is EAGER
        await memory_duplex.answer(1)
        assert not memory_duplex.duplex._tasks


@live
async def test_a_loop_with_a_task_factory_makes_the_tasks(revision: Revision) -> None:
    made: list[str | None] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> Any:
        task = asyncio.Task(work, loop=loop, **more)
        made.append(more.get("name"))
        return task

    loop = asyncio.get_running_loop()
    async with open_memory_duplex(revision, service=Taskmaster()) as memory_duplex:
        # Python 3.11 has no eager tasks, and takes None for its own.
        for id, chosen in ((1, factory), (3, getattr(asyncio, "eager_task_factory", None))):
            loop.set_task_factory(chosen)
            memory_duplex.say(memory_duplex.call(id, "task"))
            memory_duplex.say(memory_duplex.call(id + 1, "later"))
            await memory_duplex.answer(id + 1)
            loop.set_task_factory(None)
            assert [one["id"] for one in memory_duplex.wrote[-2:]] == [id, id + 1]
    assert len(made) > 1


@live
async def test_what_a_call_waits_for_and_how_long_concerns_its_own_task(
    revision: Revision,
) -> None:
    service = Taskmaster()
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        for id in (1, 2):
            memory_duplex.say(memory_duplex.call(id, "later"))
        memory_duplex.say(memory_duplex.call(3, "task"))
        for id in (1, 2, 3):
            assert words(await memory_duplex.answer(id)) == "nothing"
        assert len(set(service.tasks)) == 3


@pytest.mark.parametrize("wait", [True, False])
@live
async def test_a_handler_that_cancels_its_own_task_ends_that_alone(
    revision: Revision, wait: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_memory_duplex(revision, service=Taskmaster()) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "cancel_itself", wait=wait))
        memory_duplex.say(memory_duplex.call(2, "task"))
        answer = await memory_duplex.answer(1)
        assert ("error" in answer) is wait
        assert ("CancelledError" in caplog.text) is wait
        assert words(await memory_duplex.answer(2)) == "nothing"


@live
async def test_a_handler_that_crashes_after_a_while_is_answered_and_logged(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_memory_duplex(revision, service=Taskmaster()) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "crash_later"))
        assert "secret" not in (await memory_duplex.answer(1))["error"]["message"]
        assert "KeyError" in caplog.text


@live
async def test_each_call_sees_the_context_in_which_it_was_read(revision: Revision) -> None:
    async with open_memory_duplex(revision, service=Taskmaster()) as memory_duplex:
        for id, note in enumerate(("a", "b", "b", "c"), 1):
            context = contextvars.copy_context()
            context.run(SEEN.set, note)
            context.run(memory_duplex.say, memory_duplex.call(id, "task"))
            context.run(memory_duplex.say, memory_duplex.call(10 * id, "later"))
        found = [words(await memory_duplex.answer(id)) for id in (1, 2, 3, 4, 10, 20, 30, 40)]
        assert found == ["a", "b", "b", "c"] * 2


@live
async def test_one_that_waits_holds_up_nobody_even_if_it_waits_for_a_later_one(
    revision: Revision,
) -> None:
    service = Taskmaster()
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        for id, tool in ((1, "rest"), (2, "rest"), (3, "wake"), (4, "task")):
            memory_duplex.say(memory_duplex.call(id, tool))
        for id in (1, 2, 3, 4):
            await memory_duplex.answer(id)


@live
async def test_no_call_sees_what_another_left_in_its_context(revision: Revision) -> None:
    service = Taskmaster()
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        for id, tool in ((1, "task"), (2, "leave"), (3, "task")):
            memory_duplex.say(memory_duplex.call(id, tool))
        assert words(await memory_duplex.answer(2)) == "what another one left"
        assert words(await memory_duplex.answer(3)) == "nothing"


@live
async def test_a_cancellation_that_a_handler_swallowed_does_not_reach_the_next(
    revision: Revision,
) -> None:
    service = Taskmaster()
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "stubborn"))
        memory_duplex.say(memory_duplex.call(2, "task"))
        await memory_duplex.answer(2)
        memory_duplex.say(memory_duplex.call(3, "stubborn"))
        memory_duplex.say(memory_duplex.call(4, "rest"))
        await service.marks.reached("stubborn begun")
        for id in (1, 3):
            memory_duplex.say(cancelling(id))
        memory_duplex.say(memory_duplex.call(5, "wake"))
        for id in (4, 5):
            await memory_duplex.answer(id)
        assert [one.get("id") for one in memory_duplex.wrote if one.get("id") in (1, 3)] == []


@live
async def test_at_the_end_of_the_input_those_are_answered_who_came_behind_one_that_waits(
    revision: Revision,
) -> None:
    service = Taskmaster()
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        for id, tool in ((1, "rest"), (2, "task"), (3, "rest"), (4, "wake")):
            memory_duplex.say(memory_duplex.call(id, tool))
        await memory_duplex.duplex.finish("the input ended", 5)
        answered = {one["id"] for one in memory_duplex.wrote if "result" in one}
        assert answered >= {1, 2, 3, 4}


@live
async def test_a_call_that_is_cancelled_before_its_task_begins_never_begins(
    revision: Revision,
) -> None:
    service = Taskmaster()
    loop = asyncio.get_running_loop()
    # Tasks that begin in a later turn of the loop, in every Python.
    loop.set_task_factory(lambda loop, work, **more: asyncio.Task(work, loop=loop, **more))
    async with open_memory_duplex(revision, service=service) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "task"))
        memory_duplex.say(memory_duplex.call(2, "task"))
        memory_duplex.say(cancelling(2))
        await memory_duplex.answer(1)
        memory_duplex.say(memory_duplex.call(3, "task"))
        await memory_duplex.answer(3)
        assert len(service.tasks) == 2
    loop.set_task_factory(None)


@live
async def test_a_subscription_does_not_hold_up_the_end_of_the_input() -> None:
    listening = {"notifications": {"toolsListChanged": True}}
    async with open_memory_duplex(NEWEST) as memory_duplex:
        memory_duplex.say(memory_duplex.request(1, "subscriptions/listen", **listening))
        await memory_duplex.said("notifications/subscriptions/acknowledged")
        memory_duplex.say(memory_duplex.call(2, "echo"))
        async with asyncio.timeout(30):
            await memory_duplex.duplex.finish("the input ended", 60)
        assert words(await memory_duplex.answer(2)) == "hello"


def cancelling(id: int) -> dict[str, Any]:
    params = {"requestId": id}
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}


@live
async def test_a_cancelled_call_is_stopped_and_not_answered(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "wait", name="w"))
        await memory_duplex.service.marks.reached("w begun")
        params = {"requestId": 1}
        memory_duplex.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await memory_duplex.service.marks.reached("w cancelled")
        memory_duplex.say(memory_duplex.call(1, "echo"))  # the id is free again
        assert (await memory_duplex.answer(1))["result"]["content"][0]["text"] == "hello"


@live
async def test_a_batch_is_answered_in_one_piece_also_if_part_of_it_is_cancelled() -> None:
    (revision,) = [one for one in ALL if one.batches]
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.say(
            [
                memory_duplex.call(1, "echo"),
                memory_duplex.call(2, "wait", name="w"),
                memory_duplex.call(3, "echo"),
            ]
        )
        await memory_duplex.service.marks.reached("w begun")
        params = {"requestId": 2}
        memory_duplex.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await until(lambda: isinstance(memory_duplex.wrote[-1], list))
        assert sorted(one["id"] for one in memory_duplex.wrote[-1]) == [1, 3]


@live
async def test_who_reports_waits_for_a_slow_reader(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.drained.clear()
        call = memory_duplex.call(1, "report", steps=2)
        call["params"].setdefault("_meta", {})["progressToken"] = 7
        memory_duplex.say(call)
        await memory_duplex.said("notifications/progress")
        assert "step 1" not in memory_duplex.service.marks.log
        memory_duplex.drained.set()
        await memory_duplex.answer(1)


@live
async def test_a_notification_reaches_who_opened_a_session_and_follows(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        changed = t.NotificationParams()
        memory_duplex.duplex.notify_change("notifications/tools/list_changed", changed)
        updated = t.ResourceUpdatedNotificationParams(uri="a://b/c")
        memory_duplex.duplex.notify_change("notifications/resources/updated", updated)
        if revision.handshake:
            memory_duplex.say(memory_duplex.request(1, "resources/subscribe", uri="a://b"))
            await memory_duplex.answer(1)
        memory_duplex.duplex.notify_change("notifications/resources/updated", updated)
        methods = [one["method"] for one in memory_duplex.wrote if "method" in one]
        notification = ["notifications/tools/list_changed", "notifications/resources/updated"]
        assert methods == (notification if revision.handshake else [])


@live
async def test_other_notifications_are_passed_on(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.say({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
        wanted = ["notifications/roots/list_changed"] if revision.handshake else []
        assert [name for name in memory_duplex.told if "roots" in name] == wanted


@BY_REQUEST
@live
async def test_a_question_waits_for_its_answer_or_its_error(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.say(memory_duplex.call("good", "roots"))
        asked = await memory_duplex.said("roots/list")
        result = {"roots": [{"uri": "file:///a"}]}
        memory_duplex.say({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        assert (await memory_duplex.answer("good"))["result"]["content"][0]["text"] == "1 roots"
        memory_duplex.say(memory_duplex.call("bad", "roots"))
        asked = await memory_duplex.said("roots/list")
        error = {"code": -32603, "message": "no"}
        memory_duplex.say({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        # A service that lets it pass has failed, and its caller is told.
        assert (await memory_duplex.answer("bad"))["error"]["code"] == -32603


@BY_REQUEST
@live
async def test_a_question_that_nobody_answers_ends_in_time_and_is_called_off(
    revision: Revision,
) -> None:
    clock = Clock()
    async with open_memory_duplex(revision, clock) as memory_duplex:
        asking = asyncio.ensure_future(
            memory_duplex.duplex.request("roots/list", t.ListRootsRequestParams(), INPUT_TIMEOUT_S)
        )
        await memory_duplex.said("roots/list")
        clock.now = INPUT_TIMEOUT_S - 1
        memory_duplex.duplex._on_timer()
        assert not asking.done()
        clock.now = INPUT_TIMEOUT_S
        memory_duplex.duplex._on_timer()
        with pytest.raises(TimedOut):
            await asking
        assert memory_duplex.wrote[-1]["method"] == "notifications/cancelled"


@BY_REQUEST
@live
async def test_a_question_that_is_no_longer_wanted_is_called_off(revision: Revision) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        asking = asyncio.ensure_future(memory_duplex.duplex.request("ping", t.RequestParams()))
        await memory_duplex.said("ping")
        id = memory_duplex.wrote[-1]["id"]
        asking.cancel()
        await asyncio.wait([asking])
        assert memory_duplex.wrote[-1]["params"]["requestId"] == id
        memory_duplex.say(
            {"jsonrpc": "2.0", "id": id, "result": {}}
        )  # too late, and nothing to anybody


@BY_REQUEST
@live
async def test_after_the_end_of_the_input_calls_finish_and_questions_fail(
    revision: Revision,
) -> None:
    async with open_memory_duplex(revision) as memory_duplex:
        memory_duplex.say(memory_duplex.call(1, "wait", name="w"))
        await memory_duplex.service.marks.reached("w begun")
        asking = asyncio.ensure_future(memory_duplex.duplex.request("ping", t.RequestParams()))
        await memory_duplex.said("ping")
        finishing = asyncio.ensure_future(memory_duplex.duplex.finish("the input ended", 5))
        with pytest.raises(ConnectionLost, match="the input ended"):
            await asking
        with pytest.raises(ConnectionLost, match="the input ended"):
            await memory_duplex.duplex.request("ping", t.RequestParams())
        memory_duplex.service.go.mark("w")
        await finishing
        assert (await memory_duplex.answer(1))["result"]["content"][0]["text"] == "waited"


@live
async def test_at_the_end_everything_is_stopped_and_what_does_not_stop_is_left(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    class Stubborn(FakeService):
        async def respond(self, request: RequestContext) -> bytes | None:
            begun.set()
            while not gate.is_set():
                try:
                    await gate.wait()
                except asyncio.CancelledError:
                    continue
            raise ConnectionLost("gone")

    memory_duplex = MemoryDuplex(revision, Stubborn(), asyncio.get_running_loop().time)
    memory_duplex.open()
    memory_duplex.say(memory_duplex.call(1, "echo"))
    await begun.wait()
    memory_duplex.duplex.close("the test is over")
    await memory_duplex.duplex.ended(0.01)
    assert "ignored their cancellation" in caplog.text
    gate.set()
    await memory_duplex.duplex.ended(5)
    memory_duplex.say(memory_duplex.call(2, "echo"))
    assert not [one for one in memory_duplex.wrote if one.get("id") in (1, 2)]
