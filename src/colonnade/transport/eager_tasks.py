"""The tasks that answer what a conversation is asked, one thing after the other.

Most handlers never wait, and a task for each of them, or a turn of the loop, costs more than they
do. So one task answers as long as nothing waits; and when it has nothing to do it rests, and what
comes then is begun at once, in its name. Whatever has to wait goes on in that task by itself.

Rules: one owner: everything here happens in the loop that runs it. A handler always has a task that
is nobody else's while it runs, and the context of whoever called. What it leaves behind, in the
context or by swallowing a cancellation, is for nobody: its task then ends.
"""

import asyncio
import types
from asyncio import current_task

# For whoever makes tasks of their own kind ("Extending asyncio" in Python's documentation).
from asyncio.tasks import _enter_task as enter_task  # pyright: ignore[reportPrivateUsage]
from asyncio.tasks import _leave_task as leave_task  # pyright: ignore[reportPrivateUsage]
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, Generic, TypeAlias, TypeVar, cast

J = TypeVar("J")
Task: TypeAlias = "asyncio.Task[None]"
Work: TypeAlias = "Coroutine[Any, Any, bytes | None]"

# How many may be begun at once inside of each other, where a handler is a client of a server in
# this process: each takes some twenty frames of Python's stack.
MAX_NESTED = 8
# Those that are being begun, by the task in whose name, and inside of how many others.
_nested: "dict[asyncio.Task[Any] | None, int]" = {}


def _same(one: Context, other: Context) -> bool:
    """Whether these hold the very same things. Equal is not enough: two callers may each have a
    list of their own, empty so far; and some things cannot even be compared."""
    if not one:  # as most are
        return not other
    if len(one) != len(other):
        return False
    for variable, value in one.items():  # a handful at most
        if variable not in other or other[variable] is not value:
            return False
    return True


class Hand:
    """One task that answers. While it rests, `door` is what it waits for; `begun` is what was
    begun in its name, and what that waits for."""

    __slots__ = ("begun", "context", "door", "loop", "own", "task")

    def __init__(self, context: Context) -> None:
        self.context: Context = context
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        # The context as it was, to see what a handler has left in it.
        self.own: Context = context.copy()
        self.task: Task
        self.door: asyncio.Future[None] | None = None
        self.begun: tuple[Work, Any] | None = None

    @property
    def spoiled(self) -> bool:
        """Whether what ran in it has left something behind."""
        return bool(self.task.cancelling()) or not _same(self.context, self.own)

    def fits(self, outer: "asyncio.Task[Any] | None") -> bool:
        """Whether something can be begun in its name now, inside of this task."""
        door = self.door
        return (
            door is not None
            and not door.done()
            and _same(copy_context(), self.own)
            and (outer not in _nested or _nested[outer] < MAX_NESTED)
        )

    def let_go(self) -> None:
        """Nobody needs it any more."""
        if self.door is not None and not self.door.done():
            self.door.set_result(None)


class Crew(Generic[J]):
    """The hands of one conversation. `answer` does one job in a task, and never raises; `deliver`
    is given what came of it, where anything did."""

    def __init__(self, answer: Callable[[J, Task], Work], deliver: Callable[[bytes], None]) -> None:
        self._answer = answer
        self._deliver = deliver
        # What is to be done and in which context, whether somebody is about to, and who does.
        self._called: deque[tuple[J, Context]] = deque()
        self._led = False
        self.tasks: set[Task] = set()
        self._resting: Hand | None = None
        # The context of all that is called right now, while nothing begins.
        self._held: Context | None = None
        self._ending = False

    @property
    def busy(self) -> list[Task]:
        """The tasks that have something to do."""
        resting = self._resting.task if self._resting is not None else None
        return [task for task in self.tasks if task is not resting and not task.done()]

    def call(self, job: J) -> None:
        """Do this: now, where somebody rests who can; else in a turn of the loop soon."""
        data = self.begin(job)
        if data is not None:
            self._deliver(data)

    def begin(self, job: J) -> bytes | None:
        """The same; but what came of it, where it is done by now, is for whoever calls this."""
        hand = self._resting
        held = self._held
        if hand is not None and held is None and not self._called:
            outer = current_task(hand.loop)
            if hand.fits(outer):
                return self._begin(hand, self._answer(job, hand.task), outer)
            self._dismiss()
        self._called.append((job, copy_context() if held is None else held))
        if held is None and not self._led:
            self._lead()
        return None

    def hold(self) -> None:
        """More is called right now: nothing begins before `release`."""
        self._held = copy_context()

    def release(self) -> None:
        """Begin what was called meanwhile."""
        self._held = None
        if not self._called:
            return
        hand = self._resting
        if hand is not None:
            outer = current_task(hand.loop)
            if hand.fits(outer):
                self._begin(hand, self._answers(hand), outer)
                if not self._called:
                    return
            else:
                self._dismiss()
        if not self._led:
            self._lead()

    def end(self) -> None:
        """Nobody rests any more."""
        self._ending = True
        self._dismiss()

    def _dismiss(self) -> None:
        if self._resting is not None:
            self._resting.let_go()
            self._resting = None

    # ------------------------------------------------------------ at once

    def _begin(self, hand: Hand, work: Work, outer: "asyncio.Task[Any] | None") -> bytes | None:
        """Begin in the name of one who rests, and leave it to them where it has to wait.

        To the loop, and so to whatever a handler uses of asyncio, this is that task, and no more
        the one that runs now.
        """
        loop, task = hand.loop, hand.task
        self._resting = None
        _nested[task] = _nested[outer] + 1 if outer in _nested else 1
        if outer is not None:
            leave_task(loop, outer)
        enter_task(loop, task)
        try:
            hand.begun = work, hand.context.run(work.send, None)
        except StopIteration as done:
            if (
                self._resting is None
                and not self._ending
                and not task.cancelling()
                and _same(hand.context, hand.own)
            ):
                self._resting = hand
            else:
                hand.let_go()
            return done.value
        finally:
            del _nested[task]
            leave_task(loop, task)
            if outer is not None:
                enter_task(loop, outer)
        hand.let_go()
        return None

    # ------------------------------------------------------------ in a turn of the loop

    def _lead(self) -> None:
        """Begin a task that does what is to be done, as long as nothing waits."""
        self._led = True
        context = self._called[0][1].copy()
        hand = Hand(context)
        work = self._live(hand)
        # Whatever makes tasks in this loop: one that began at once would not know its own hand.
        hand.task = asyncio.Task(work, loop=hand.loop, context=context)
        self.tasks.add(hand.task)

    def _follow(self) -> None:
        """Whoever answered has to wait, or is not for what is left: somebody else does that."""
        if self._called and not self._led:
            self._lead()

    async def _live(self, hand: Hand) -> None:
        self._led = False
        try:
            while True:
                if len(self._called) > 1:
                    hand.loop.call_soon(self._follow)
                await self._answers(hand)
                if hand.spoiled:
                    return
                self._follow()
                if self._ending or self._resting is not None or not await self._rest(hand):
                    return
        finally:
            self.tasks.discard(hand.task)
            self._follow()

    async def _answers(self, hand: Hand) -> None:
        """Do what is to be done in this context, as long as nothing waits."""
        called, answer, task = self._called, self._answer, hand.task
        while called and _same(called[0][1], hand.own):
            data = await answer(called.popleft()[0], task)
            if data is not None:
                self._deliver(data)
            if hand.spoiled:
                return

    async def _rest(self, hand: Hand) -> bool:
        """Wait until something was begun in its name, and end that. False for no more: who is let
        go has another context than what is called now."""
        self._resting = hand
        hand.door = hand.loop.create_future()
        given_up: asyncio.CancelledError | None = None
        try:
            await hand.door
        except asyncio.CancelledError as error:
            given_up = error
        if self._resting is hand:
            self._resting = None
        if hand.begun is None:
            return False
        work, waited = hand.begun
        hand.begun = None
        data = await _continued(work, waited, given_up)
        if data is not None:
            self._deliver(data)
        return not hand.spoiled


@types.coroutine
def _continued(
    work: Work, waited: Any, given_up: BaseException | None
) -> Generator[Any, Any, bytes | None]:
    """Go on with what was begun elsewhere, and waits for something."""
    if given_up is not None and (waited is None or not waited.cancel()):
        try:
            waited = work.throw(given_up)
        except StopIteration as done:
            return done.value
    while True:
        try:
            yield waited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            try:
                waited = work.throw(error)
            except StopIteration as done:
                return done.value
        else:
            return cast("bytes | None", (yield from work))
