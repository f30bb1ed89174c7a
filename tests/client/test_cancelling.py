"""Giving up at every await of every operation: one outcome, nothing is left, and the client works.

Each operation is done again and again, and given up one await later each time, until it is done
before that: once as it begins to wait there, and once when what it waited for has just come. How
many awaits were reached is printed.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from client.bench import EXTENSION, RESOURCE, ROOT, joining, reachable
from client.giving_up import (
    REST_S,
    Moment,
    Walked,
    at_rest,
    give_up_after,
    held,
    owned,
    rests,
    walk,
)
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
Stop = Callable[[Awaitable[Any], int], Awaitable[Walked]]


class Way(NamedTuple):
    """A transport, and the revision that is spoken on it."""

    transport: str
    revision: Revision

    def __str__(self) -> str:
        return f"{self.transport} {self.revision.date}"


FAST = [Way("memory", ALL[0]), Way("memory", NEWEST)]
SLOW = [
    Way("sse", ALL[0]),
    Way("http", NOVEMBER_2025),
    Way("http", JULY_2026),
    Way("child", NOVEMBER_2025),
    Way("child", JULY_2026),
]
EVERY_WAY = [*FAST, *(pytest.param(way, marks=pytest.mark.slow) for way in SLOW)]
# A child takes as many turns of our loop as it likes.
EVERY_WAY_IN_THIS_LOOP = [
    *FAST,
    *(pytest.param(way, marks=pytest.mark.slow) for way in SLOW if way.transport != "child"),
]


class Scene:
    """A client of the bench, and what an operation needs beside it."""

    def __init__(self, target: Any, way: Way, client: Client) -> None:
        self.target = target
        self.revision = way.revision
        self.client = client
        self.other: Any = None
        self.changes: Any = None
        self.touching: asyncio.Task[Any] | None = None

    def joining(self) -> Any:
        return joining(self.target, self.revision)


async def _nothing(scene: Scene) -> None:
    pass


async def _no_look(scene: Scene, walked: Walked) -> None:
    pass


class Operation(NamedTuple):
    """What is done; what must be there before, and what is looked at after it."""

    run: Callable[[Scene], Awaitable[Any]]
    of: str
    before: Callable[[Scene], Awaitable[None]] = _nothing
    after: Callable[[Scene, Walked], Awaitable[None]] = _no_look
    exists: Callable[[Revision], bool] = lambda revision: True
    result: Any = None
    # It waits for a clock, and so for as many turns of the loop as fit.
    by_clock: bool = False


def in_session(revision: Revision) -> bool:
    return revision.change_notifications is ChangeNotifications.SESSION


def has_forms(revision: Revision) -> bool:
    return bool(revision.elicitation.modes)


# ---------------------------------------------------------------- beside the operations


async def invalidate(scene: Scene) -> None:
    """How servers want to be spoken to, which is remembered."""
    ERA_CACHE._known.clear()


async def fall_over(scene: Scene) -> None:
    """The conversation ends; whoever asks next begins another one."""
    await scene.client.conversation.aclose("it fell over")


async def begin_joining(scene: Scene) -> None:
    scene.other = scene.joining()


async def join_other(scene: Scene) -> None:
    scene.other = await scene.joining()


async def leave_result(scene: Scene, walked: Walked) -> None:
    if walked.result is not None:
        await walked.result.close()


async def leave_other(scene: Scene, walked: Walked) -> None:
    await scene.other.close()
    scene.other = None


async def enter_other(scene: Scene) -> None:
    scene.other = scene.joining()
    await scene.other.__aenter__()


async def left_other(scene: Scene, walked: Walked) -> None:
    await scene.other.__aexit__(None, None, None)
    scene.other = None


def listening(scene: Scene) -> Any:
    return scene.client.listen(tools=True, resources=[RESOURCE])


async def begin_listening(scene: Scene) -> None:
    scene.other = listening(scene)


async def listen(scene: Scene) -> None:
    scene.other = listening(scene)
    scene.changes = await scene.other.__aenter__()


async def leave_listening(scene: Scene, walked: Walked) -> None:
    if not walked.given_up:
        await scene.other.__aexit__(None, None, None)


async def listen_and_touch(scene: Scene) -> None:
    await listen(scene)
    scene.touching = asyncio.ensure_future(scene.client.call_tool("touch"))


async def no_change_is_lost(scene: Scene, walked: Walked) -> None:
    async with asyncio.timeout(REST_S):
        change = await anext(scene.changes) if walked.result is None else walked.result
    assert change == Change("resource", RESOURCE)
    assert scene.touching is not None
    await scene.touching
    await scene.other.__aexit__(None, None, None)


async def left_listening(scene: Scene, walked: Walked) -> None:
    assert not scene.client._change_streams.subscribed_uris - {RESOURCE}


async def subscribe(scene: Scene) -> None:
    await scene.client.subscribe(RESOURCE)


async def unsubscribe(scene: Scene, walked: Walked) -> None:
    await scene.client.unsubscribe(RESOURCE)


async def count_apart(scene: Scene) -> None:
    """Progress that its handler has not seen yet."""
    await scene.client.call_tool("count", {"to": 3})


def completing(scene: Scene) -> Awaitable[Any]:
    return scene.client.completer("stone", prompt="sharpen")("f")


def tool(name: str, returns: Any, **arguments: Any) -> Callable[[Scene], Awaitable[Any]]:
    async def call(scene: Scene) -> Any:
        return (await scene.client.call_tool(name, arguments, returns=returns)).data

    return call


# The same call, as two models ask for it.
OPENAI = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}
ANTHROPIC = {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 1, "b": 2}}
# And as somebody passes it on.
ADD = t.CallToolRequestParams(name="add", arguments=Raw(b'{"a":1,"b":2}'))

OPERATIONS: dict[str, Operation] = {
    "connect": Operation(lambda scene: scene.joining(), "connect", after=leave_result),
    "connect, and find out": Operation(
        lambda scene: joining(scene.target, None), "connect", before=invalidate, after=leave_result
    ),
    "async with connect": Operation(
        lambda scene: scene.other.__aenter__(),
        "connect",
        before=begin_joining,
        after=left_other,
    ),
    "leave async with": Operation(
        lambda scene: scene.other.__aexit__(None, None, None),
        "connect",
        before=enter_other,
        after=left_other,
    ),
    "close": Operation(
        lambda scene: scene.other.close(), "close", before=join_other, after=leave_other
    ),
    "list_tools": Operation(lambda scene: scene.client.list_tools(fresh=True), "list_tools"),
    "list_tools, begun anew": Operation(
        lambda scene: scene.client.list_tools(fresh=True), "list_tools", before=fall_over
    ),
    "list_resources": Operation(
        lambda scene: scene.client.list_resources(fresh=True), "list_resources"
    ),
    "list_resource_templates": Operation(
        lambda scene: scene.client.list_resource_templates(fresh=True), "list_resource_templates"
    ),
    "list_prompts": Operation(lambda scene: scene.client.list_prompts(fresh=True), "list_prompts"),
    "ask": Operation(lambda scene: scene.client.ask("tools/call", ADD), "ask"),
    "call_tool": Operation(tool("add", int, a=1, b=2), "call_tool", result=3),
    "call_tool with progress": Operation(tool("count", str, to=3), "call_tool", result="counted"),
    "call_tool asking for roots": Operation(
        tool("ask_roots", list[str]), "call_tool", result=[ROOT]
    ),
    "call_tool asking a form": Operation(
        tool("ask_colour", str), "call_tool", exists=has_forms, result="red"
    ),
    "start_task": Operation(
        lambda scene: scene.client.start_task("add", {"a": 1, "b": 2}), "start_task"
    ),
    "call_tool as a task": Operation(tool("glue", str), "call_tool", result="glued"),
    "request": Operation(
        lambda scene: scene.client.request("bench/measure", {"length": 2}, extension=EXTENSION),
        "request",
        result={"length": 2},
    ),
    "call_openai": Operation(lambda scene: scene.client.call_openai(OPENAI), "call_openai"),
    "call_anthropic": Operation(
        lambda scene: scene.client.call_anthropic(ANTHROPIC), "call_anthropic"
    ),
    "read_resource": Operation(
        lambda scene: scene.client.read_resource(RESOURCE, fresh=True), "read_resource"
    ),
    "subscribe": Operation(
        lambda scene: scene.client.subscribe(RESOURCE),
        "subscribe",
        after=unsubscribe,
        exists=in_session,
    ),
    "unsubscribe": Operation(
        lambda scene: scene.client.unsubscribe(RESOURCE),
        "unsubscribe",
        before=subscribe,
        exists=in_session,
    ),
    "get_prompt": Operation(
        lambda scene: scene.client.get_prompt("sharpen", {"angle": "30"}), "get_prompt"
    ),
    "complete": Operation(
        lambda scene: scene.client.complete("stone", "f", prompt="sharpen"), "complete"
    ),
    "completer": Operation(completing, "complete", by_clock=True),
    "ping": Operation(lambda scene: scene.client.ping(), "ping"),
    "set_log_level": Operation(lambda scene: scene.client.set_log_level("info"), "set_log_level"),
    "roots_changed": Operation(lambda scene: scene.client.roots_changed(), "roots_changed"),
    "wait_for_callbacks": Operation(
        lambda scene: scene.client.wait_for_callbacks(), "wait_for_callbacks", before=count_apart
    ),
    "listen, enter": Operation(
        lambda scene: scene.other.__aenter__(),
        "listen",
        before=begin_listening,
        after=leave_listening,
    ),
    "listen, next": Operation(
        lambda scene: anext(scene.changes),
        "listen",
        before=listen_and_touch,
        after=no_change_is_lost,
        result=Change("resource", RESOURCE),
    ),
    "listen, leave": Operation(
        lambda scene: scene.other.__aexit__(None, None, None),
        "listen",
        before=listen,
        after=left_listening,
    ),
}


# ---------------------------------------------------------------- the proof


async def is_well(client: Client) -> None:
    assert (await client.call_tool("add", {"a": 2, "b": 2}, returns=int)).data == 4
    await client.wait_for_callbacks()


async def walk_through(scene: Scene, operation: Operation, stop: Stop, most: int) -> int:
    """Give the operation up at one stop after the other; how many there are."""
    client = scene.client
    for _ in range(WARM):
        await operation.before(scene)
        await operation.after(scene, await walk(operation.run(scene), 0, Moment.BEFORE))
        await is_well(client)
    before = await at_rest(lambda: held(client))
    for at in range(1, most):
        await operation.before(scene)
        walked = await stop(operation.run(scene), at)
        await operation.after(scene, walked)
        await is_well(client)
        await rests(lambda: held(client), before)
        if not walked.given_up:
            assert operation.result is None or walked.result == operation.result
            return at - 1
    raise AssertionError(f"it can be given up at {most} places and more")


@pytest.fixture(scope="module")
def awaits(pytestconfig: pytest.Config) -> Generator[Awaits]:
    """How many were reached, by operation and way; shown in the end."""
    reached: Awaits = {}
    yield reached
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + "\n".join(table(reached)))


def table(reached: Awaits) -> list[str]:
    ways = list(dict.fromkeys(way for _, way in reached))
    names = list(dict.fromkeys(name for name, _ in reached))
    lines = [" ".join([f"{'awaits given up at':26}", *(f"{way:>17}" for way in ways)])]
    for name in names:
        cells = [f"{reached.get((name, way), '-'):>17}" for way in ways]
        lines.append(" ".join([f"{name:26}", *cells]))
    total = sum(reached.values())
    lines.append(f"{len(names)} operations on {len(ways)} ways: {total} awaits, each in 2 moments")
    return lines


@live_for(TEST_S)
async def given_up_everywhere(
    way: Way, operation: Operation, stops: dict[Stop, int], most: int
) -> None:
    """Fills in how often each kind of stop was reached."""
    before = owned()
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(reachable(way.transport, way.revision))
        client = await stack.enter_async_context(joining(target, way.revision))
        assert client.revision == way.revision.date
        scene = Scene(target, way, client)
        for stop in stops:
            stops[stop] = await walk_through(scene, operation, stop, most)
    await rests(owned, before)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("way", EVERY_WAY, ids=str)
def test_an_operation_is_given_up_at_every_await(way: Way, name: str, awaits: Awaits) -> None:
    operation = OPERATIONS[name]
    if operation.exists(way.revision):
        stops: dict[Stop, int] = {partial(walk, moment=moment): 0 for moment in Moment}
        given_up_everywhere(way, operation, stops, MAX_AWAITS)
        awaits[name, str(way)] = max(stops.values())


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("way", EVERY_WAY_IN_THIS_LOOP, ids=str)
def test_an_operation_is_given_up_at_every_turn_of_the_loop(way: Way, name: str) -> None:
    operation = OPERATIONS[name]
    if operation.exists(way.revision) and not operation.by_clock:
        given_up_everywhere(way, operation, {give_up_after: 0}, MAX_TURNS)


def test_every_public_operation_is_among_them() -> None:
    public = {
        name
        for name, member in inspect.getmembers(Client)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(member) or hasattr(member, "__wrapped__"))
    }
    made_by_connect = {"open"}
    assert public - made_by_connect == {one.of for one in OPERATIONS.values()} - {"connect"}
