"""Giving up at every await of every operation: one outcome, nothing is left, and the client works.

Each operation is done again and again, and given up one await later each time, until it is done
before that: once as it begins to wait there, and once when what it waited for has just come. How
many awaits were reached is printed.
"""

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from client.cancellation import (
    REST_S,
    CancelledRun,
    Moment,
    cancel_after,
    cancel_at_await,
    client_resources,
    process_resources,
    settled_counts,
    wait_until_released,
)
from client.full_server import EXTENSION, RESOURCE, ROOT, joining, reachable
from colonnade import Client
from colonnade.client.probe import ERA_CACHE
from colonnade.client.subscriptions import Change
from colonnade.protocol import types as t
from colonnade.protocol.revision import (
    ALL,
    JULY_2026,
    NEWEST,
    NOVEMBER_2025,
    ChangeNotifications,
    Revision,
)
from live import live_for

# More awaits than any operation has; a list of three pages over HTTP has a dozen.
MAX_AWAITS = 100
# The same for turns of the loop: sockets take some.
MAX_TURNS = 1000
# One operation in both moments, with a new child for each try, on the slowest machine.
TEST_S = 600.0
# Done so often before what is there is counted: some things are loaded on first use.
WARM = 2

Awaits = dict[tuple[str, str], int]
# Does something, and gives it up at a place of this number.
Stop = Callable[[Awaitable[Any], int], Awaitable[CancelledRun]]


class TransportCase(NamedTuple):
    """A transport, and the revision that is spoken on it."""

    transport: str
    revision: Revision

    def __str__(self) -> str:
        return f"{self.transport} {self.revision.date}"


FAST = [TransportCase("memory", ALL[0]), TransportCase("memory", NEWEST)]
SLOW = [
    TransportCase("sse", ALL[0]),
    TransportCase("http", NOVEMBER_2025),
    TransportCase("http", JULY_2026),
    TransportCase("child", NOVEMBER_2025),
    TransportCase("child", JULY_2026),
]
EVERY_TRANSPORT = [
    *FAST,
    *(pytest.param(transport_case, marks=pytest.mark.slow) for transport_case in SLOW),
]
# A child takes as many turns of our loop as it likes.
EVERY_TRANSPORT_IN_THIS_LOOP = [
    *FAST,
    *(
        pytest.param(transport_case, marks=pytest.mark.slow)
        for transport_case in SLOW
        if transport_case.transport != "child"
    ),
]


class ClientSetup:
    """A client of the bench, and what an operation needs beside it."""

    def __init__(self, target: Any, transport_case: TransportCase, client: Client) -> None:
        self.target = target
        self.revision = transport_case.revision
        self.client = client
        self.other: Any = None
        self.changes: Any = None
        self.touching: asyncio.Task[Any] | None = None

    def joining(self) -> Any:
        return joining(self.target, self.revision)


async def _nothing(setup: ClientSetup) -> None:
    pass


async def _no_check(setup: ClientSetup, cancelled: CancelledRun) -> None:
    pass


class Operation(NamedTuple):
    """What is done; what must be there before, and what is looked at after it."""

    run: Callable[[ClientSetup], Awaitable[Any]]
    of: str
    before: Callable[[ClientSetup], Awaitable[None]] = _nothing
    after: Callable[[ClientSetup, CancelledRun], Awaitable[None]] = _no_check
    exists: Callable[[Revision], bool] = lambda revision: True
    result: Any = None
    # It waits for a clock, and so for as many turns of the loop as fit.
    by_clock: bool = False


def in_session(revision: Revision) -> bool:
    return revision.change_notifications is ChangeNotifications.SESSION


def by_subscription(revision: Revision) -> bool:
    return not in_session(revision)


def has_forms(revision: Revision) -> bool:
    return bool(revision.elicitation.modes)


# ---------------------------------------------------------------- beside the operations


async def invalidate(setup: ClientSetup) -> None:
    """How servers want to be spoken to, which is remembered."""
    ERA_CACHE._known.clear()


async def fall_over(setup: ClientSetup) -> None:
    """The conversation ends; whoever asks next begins another one."""
    await setup.client.conversation.aclose("it fell over")


async def begin_joining(setup: ClientSetup) -> None:
    setup.other = setup.joining()


async def join_other(setup: ClientSetup) -> None:
    setup.other = await setup.joining()


async def leave_result(setup: ClientSetup, cancelled: CancelledRun) -> None:
    if cancelled.result is not None:
        await cancelled.result.close()


async def leave_other(setup: ClientSetup, cancelled: CancelledRun) -> None:
    await setup.other.close()
    setup.other = None


async def enter_other(setup: ClientSetup) -> None:
    setup.other = setup.joining()
    await setup.other.__aenter__()


async def left_other(setup: ClientSetup, cancelled: CancelledRun) -> None:
    await setup.other.__aexit__(None, None, None)
    setup.other = None


def listening(setup: ClientSetup) -> Any:
    return setup.client.listen(tools=True, resources=[RESOURCE])


async def begin_listening(setup: ClientSetup) -> None:
    setup.other = listening(setup)


async def begin_listening_to_tasks(setup: ClientSetup) -> None:
    setup.other = setup.client.listen_to_tasks(["1"])


async def listen(setup: ClientSetup) -> None:
    setup.other = listening(setup)
    setup.changes = await setup.other.__aenter__()


async def leave_listening(setup: ClientSetup, cancelled: CancelledRun) -> None:
    if not cancelled.given_up:
        await setup.other.__aexit__(None, None, None)


async def listen_and_touch(setup: ClientSetup) -> None:
    await listen(setup)
    setup.touching = asyncio.ensure_future(setup.client.call_tool("touch"))


async def no_change_is_lost(setup: ClientSetup, cancelled: CancelledRun) -> None:
    async with asyncio.timeout(REST_S):
        change = await anext(setup.changes) if cancelled.result is None else cancelled.result
    assert change == Change("resource", RESOURCE)
    assert setup.touching is not None
    await setup.touching
    await setup.other.__aexit__(None, None, None)


async def left_listening(setup: ClientSetup, cancelled: CancelledRun) -> None:
    assert not setup.client._change_streams.subscribed_uris - {RESOURCE}


async def subscribe(setup: ClientSetup) -> None:
    await setup.client.subscribe(RESOURCE)


async def unsubscribe(setup: ClientSetup, cancelled: CancelledRun) -> None:
    await setup.client.unsubscribe(RESOURCE)


async def count_apart(setup: ClientSetup) -> None:
    """Progress that its handler has not seen yet."""
    await setup.client.call_tool("count", {"to": 3})


def completing(setup: ClientSetup) -> Awaitable[Any]:
    return setup.client.completer("stone", prompt="sharpen")("f")


def tool(name: str, returns: Any, **arguments: Any) -> Callable[[ClientSetup], Awaitable[Any]]:
    async def call(setup: ClientSetup) -> Any:
        return (await setup.client.call_tool(name, arguments, returns=returns)).data

    return call


# The same call, as two models ask for it.
OPENAI = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
ANTHROPIC = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1, "b": 2}}
# And as somebody passes it on.
ADD = t.CallToolRequestParams(name="add", arguments=Raw(b'{"a":1,"b":2}'))

OPERATIONS: dict[str, Operation] = {
    "connect": Operation(lambda setup: setup.joining(), "connect", after=leave_result),
    "connect, and find out": Operation(
        lambda setup: joining(setup.target, None), "connect", before=invalidate, after=leave_result
    ),
    "async with connect": Operation(
        lambda setup: setup.other.__aenter__(),
        "connect",
        before=begin_joining,
        after=left_other,
    ),
    "leave async with": Operation(
        lambda setup: setup.other.__aexit__(None, None, None),
        "connect",
        before=enter_other,
        after=left_other,
    ),
    "close": Operation(
        lambda setup: setup.other.close(), "close", before=join_other, after=leave_other
    ),
    "list_tools": Operation(lambda setup: setup.client.list_tools(fresh=True), "list_tools"),
    "list_tools, begun anew": Operation(
        lambda setup: setup.client.list_tools(fresh=True), "list_tools", before=fall_over
    ),
    "list_resources": Operation(
        lambda setup: setup.client.list_resources(fresh=True), "list_resources"
    ),
    "list_resource_templates": Operation(
        lambda setup: setup.client.list_resource_templates(fresh=True), "list_resource_templates"
    ),
    "list_prompts": Operation(lambda setup: setup.client.list_prompts(fresh=True), "list_prompts"),
    "ask": Operation(lambda setup: setup.client.ask("tools/call", ADD), "ask"),
    "call_tool": Operation(tool("add", int, a=1, b=2), "call_tool", result=3),
    "call_tool with progress": Operation(tool("count", str, to=3), "call_tool", result="counted"),
    "call_tool asking for roots": Operation(
        tool("ask_roots", list[str]), "call_tool", result=[ROOT]
    ),
    "call_tool asking a form": Operation(
        tool("ask_colour", str), "call_tool", exists=has_forms, result="red"
    ),
    "start_task": Operation(
        lambda setup: setup.client.start_task("add", {"a": 1, "b": 2}), "start_task"
    ),
    "call_tool as a task": Operation(tool("glue", str), "call_tool", result="glued"),
    "request": Operation(
        lambda setup: setup.client.request("bench/measure", {"length": 2}, extension=EXTENSION),
        "request",
        result={"length": 2},
    ),
    "call_openai": Operation(lambda setup: setup.client.call_openai(OPENAI), "call_openai"),
    "call_anthropic": Operation(
        lambda setup: setup.client.call_anthropic(ANTHROPIC), "call_anthropic"
    ),
    "read_resource": Operation(
        lambda setup: setup.client.read_resource(RESOURCE, fresh=True), "read_resource"
    ),
    "subscribe": Operation(
        lambda setup: setup.client.subscribe(RESOURCE),
        "subscribe",
        after=unsubscribe,
        exists=in_session,
    ),
    "unsubscribe": Operation(
        lambda setup: setup.client.unsubscribe(RESOURCE),
        "unsubscribe",
        before=subscribe,
        exists=in_session,
    ),
    "get_prompt": Operation(
        lambda setup: setup.client.get_prompt("sharpen", {"angle": "30"}), "get_prompt"
    ),
    "complete": Operation(
        lambda setup: setup.client.complete("stone", "f", prompt="sharpen"), "complete"
    ),
    "completer": Operation(completing, "complete", by_clock=True),
    "ping": Operation(lambda setup: setup.client.ping(), "ping"),
    "set_log_level": Operation(lambda setup: setup.client.set_log_level("info"), "set_log_level"),
    "roots_changed": Operation(lambda setup: setup.client.roots_changed(), "roots_changed"),
    "wait_for_callbacks": Operation(
        lambda setup: setup.client.wait_for_callbacks(), "wait_for_callbacks", before=count_apart
    ),
    "listen, enter": Operation(
        lambda setup: setup.other.__aenter__(),
        "listen",
        before=begin_listening,
        after=leave_listening,
    ),
    "listen, next": Operation(
        lambda setup: anext(setup.changes),
        "listen",
        before=listen_and_touch,
        after=no_change_is_lost,
        result=Change("resource", RESOURCE),
    ),
    "listen, leave": Operation(
        lambda setup: setup.other.__aexit__(None, None, None),
        "listen",
        before=listen,
        after=left_listening,
    ),
    "listen_to_tasks, enter": Operation(
        lambda setup: setup.other.__aenter__(),
        "listen_to_tasks",
        before=begin_listening_to_tasks,
        after=leave_listening,
        exists=by_subscription,
    ),
}


# ---------------------------------------------------------------- the proof


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_not_counted() -> None:
    """What earlier tests have loaded stays: no count walks through it, and there are hundreds."""
    gc.collect()
    gc.freeze()


async def is_well(client: Client) -> None:
    assert (await client.call_tool("add", {"a": 2, "b": 2}, returns=int)).data == 4
    await client.wait_for_callbacks()


async def cancel_everywhere(setup: ClientSetup, operation: Operation, stop: Stop, most: int) -> int:
    """Give the operation up at one stop after the other; how many there are."""
    client = setup.client
    for _ in range(WARM):
        await operation.before(setup)
        await operation.after(setup, await cancel_at_await(operation.run(setup), 0, Moment.BEFORE))
        await is_well(client)
    before = await settled_counts(lambda: client_resources(client))
    for at in range(1, most):
        await operation.before(setup)
        cancelled = await stop(operation.run(setup), at)
        await operation.after(setup, cancelled)
        await is_well(client)
        await wait_until_released(lambda: client_resources(client), before)
        if not cancelled.given_up:
            assert operation.result is None or cancelled.result == operation.result
            return at - 1
    raise AssertionError(f"it can be given up at {most} places and more")


@pytest.fixture(scope="module")
def awaits(pytestconfig: pytest.Config) -> Generator[Awaits]:
    """How many were reached, by operation and transport_case; shown in the end."""
    reached: Awaits = {}
    yield reached
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + "\n".join(table(reached)))


def table(reached: Awaits) -> list[str]:
    transport_cases = list(dict.fromkeys(transport_case for _, transport_case in reached))
    names = list(dict.fromkeys(name for name, _ in reached))
    lines = [
        " ".join(
            [
                f"{'awaits given up at':26}",
                *(f"{transport_case:>17}" for transport_case in transport_cases),
            ]
        )
    ]
    for name in names:
        cells = [
            f"{reached.get((name, transport_case), '-'):>17}" for transport_case in transport_cases
        ]
        lines.append(" ".join([f"{name:26}", *cells]))
    total = sum(reached.values())
    lines.append(
        f"{len(names)} operations on {len(transport_cases)} transport_cases: {total} awaits, each in 2 moments"
    )
    return lines


@live_for(TEST_S)
async def given_up_everywhere(
    transport_case: TransportCase, operation: Operation, stops: dict[Stop, int], most: int
) -> None:
    """Fills in how often each kind of stop was reached."""
    before = process_resources()
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(
            reachable(transport_case.transport, transport_case.revision)
        )
        client = await stack.enter_async_context(joining(target, transport_case.revision))
        assert client.revision == transport_case.revision.date
        setup = ClientSetup(target, transport_case, client)
        for stop in stops:
            stops[stop] = await cancel_everywhere(setup, operation, stop, most)
    await wait_until_released(process_resources, before)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("transport_case", EVERY_TRANSPORT, ids=str)
def test_an_operation_is_given_up_at_every_await(
    transport_case: TransportCase, name: str, awaits: Awaits
) -> None:
    operation = OPERATIONS[name]
    if operation.exists(transport_case.revision):
        stops: dict[Stop, int] = {partial(cancel_at_await, moment=moment): 0 for moment in Moment}
        given_up_everywhere(transport_case, operation, stops, MAX_AWAITS)
        awaits[name, str(transport_case)] = max(stops.values())


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("transport_case", EVERY_TRANSPORT_IN_THIS_LOOP, ids=str)
def test_an_operation_is_given_up_at_every_turn_of_the_loop(
    transport_case: TransportCase, name: str
) -> None:
    operation = OPERATIONS[name]
    if operation.exists(transport_case.revision) and not operation.by_clock:
        given_up_everywhere(transport_case, operation, {cancel_after: 0}, MAX_TURNS)


def test_every_public_operation_is_among_them() -> None:
    public = {
        name
        for name, member in inspect.getmembers(Client)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(member) or hasattr(member, "__wrapped__"))
    }
    made_by_connect = {"open"}
    assert public - made_by_connect == {one.of for one in OPERATIONS.values()} - {"connect"}
