"""Cancels work at one of its awaits, and counts what is held before and after.

    run = await cancel_at_await(client.list_tools(), at=3, moment=Moment.AFTER)

Rules: it is cancelled in its own task, at that very await and at no other: no clock decides. What
is counted is all that a client, its way and this process hold, by kind.
"""

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable, Generator
from enum import Enum
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from colonnade import Client

T = TypeVar("T")
Counts = dict[str, int]

# For what must come to rest, on a machine that does other things, too.
REST_S = 60.0
# Looks at which nothing has changed before it is taken for rest.
QUIET_CHECKS = 20
# What a conversation keeps while something goes on, whichever transport it is of.
KEPT = ("_waiting", "_progress_callbacks", "_tasks", "_calls", "_exchanges", "_best_effort_posts")


class Moment(Enum):
    """When it is given up: as it begins to wait, or when what it waited for has just come."""

    BEFORE = "before"
    AFTER = "after"


class CancelledRun(NamedTuple):
    """How it went: at how many awaits it waited, whether it was given up, and its result if not."""

    awaits: int
    given_up: bool
    result: Any


class CancelAtAwait(Generic[T]):
    """Work whose awaits are counted as it waits at them; at one of them it is cancelled."""

    def __init__(self, work: Awaitable[T], at: int, moment: Moment) -> None:
        self._work = work
        self._at = at
        self._moment = moment
        self.awaits = 0
        self.reached = False

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[], Any] = partial(steps.send, None)
        while True:
            try:
                waited = step()
            except StopIteration as end:
                return cast("T", end.value)
            self.awaits += 1
            if self.awaits == self._at:
                self._give_up(waited)
            try:
                step = partial(steps.send, (yield waited))
            except BaseException as error:
                step = partial(steps.throw, error)

    def _give_up(self, waited: "asyncio.Future[Any] | None") -> None:
        self.reached = True
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        if waited is None or self._moment is Moment.BEFORE:
            task.cancel()
        else:
            # Called before the task is woken: it is cancelled with its answer in its hand.
            waited.add_done_callback(lambda _: task.cancel())


async def cancel_at_await(work: Awaitable[Any], at: int, moment: Moment) -> CancelledRun:
    """Do this, and give it up at one of its awaits. Raises what is neither its result nor that."""
    steps = CancelAtAwait(work, at, moment)

    async def walking() -> Any:
        return await steps

    task = asyncio.ensure_future(walking())
    await asyncio.wait([task])
    if task.cancelled():
        assert steps.reached, "it was cancelled, and nobody had given it up"
        return CancelledRun(steps.awaits, True, None)
    result = task.result()
    assert not steps.reached, "it was given up, and gave its result all the same"
    return CancelledRun(steps.awaits, False, result)


async def cancel_after(work: Awaitable[Any], turns: int) -> CancelledRun:
    """Do this, and give it up after so many turns of the loop, whatever is going on by then."""

    async def working() -> Any:
        return await work

    task = asyncio.ensure_future(working())
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    given_up = not task.done() and task.cancel()
    await asyncio.wait([task])
    if task.cancelled():
        assert given_up, "it was cancelled, and nobody had given it up"
        return CancelledRun(0, True, None)
    return CancelledRun(0, given_up, task.result())


# ---------------------------------------------------------------- what is at rest


def client_resources(client: Client) -> Counts:
    """What goes on in a client, in its conversation and on its way; and in this process."""
    conversation: Any = client.conversation
    counts = {name: len(getattr(conversation, name, ())) for name in KEPT}
    listenings = client._change_streams
    counts |= {
        "in flight": len(conversation.link._outgoing),
        "asked of us": len(conversation.link._incoming),
        "busy": client._connection.busy,
        "listening": len(listenings._subscribed) + len(listenings._in_session),
        "handlers": len(client._callback_queue._waiting)
        + (client._callback_queue.task is not None),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": _descriptors(),
    }
    pool: Any = getattr(client._transport, "_pool", None)
    if pool is not None:
        counts["connections at work"] = len(pool._all) - pool.idle
        counts["connecting"] = len(pool._connecting)
        # One more or less is kept for the next request, and each has two ends in this process.
        counts["descriptors"] -= 2 * len(pool._all)
    return counts


def process_resources() -> Counts:
    """What this process holds in all, with what nobody can reach any more thrown away."""
    gc.collect()
    loop: Any = asyncio.get_running_loop()
    pending = [
        one for one in gc.get_objects() if isinstance(one, asyncio.Future) and not one.done()
    ]
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": _descriptors(),
        "futures": len(pending),
        "alarms": sum(not alarm.cancelled() for alarm in loop._scheduled),
        "threads": threading.active_count(),
        "children": sum(
            len(_words(f"/proc/self/task/{task}/children")) for task in _listed("/proc/self/task")
        ),
    }


def _descriptors() -> int:
    return len(_listed("/dev/fd"))


def _listed(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _words(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except (FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
        return []


async def settled_counts(look: Callable[[], Counts]) -> Counts:
    """What is there once nothing changes any more."""
    counts, same = look(), 0
    while same < QUIET_CHECKS:
        await asyncio.sleep(0.001)
        before, counts = counts, look()
        same = same + 1 if counts == before else 0
    return counts


async def wait_until_released(look: Callable[[], Counts], before: Counts) -> None:
    """Wait until there is no more than before; fails with what is, where it does not go away."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + REST_S  # no alarm of our own: alarms are counted
    while more := {name: (before[name], now) for name, now in look().items() if now > before[name]}:
        if loop.time() > latest:
            raise AssertionError(f"it did not come to rest, before and now: {more}")
        await asyncio.sleep(0.001)
