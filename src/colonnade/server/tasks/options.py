"""The options of tasks: of a server, the limits of each caller and how tasks are run; of a tool,
those that its decorator takes.

Rules: data, and the reasons for the numbers; nothing here runs a tool.
"""

from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.protocol.tasks.record import TaskLimits
from colonnade.server.handlers.tools import BoundTool
from colonnade.server.tasks.queue import TaskQueue

if TYPE_CHECKING:
    from colonnade.server.options import ToolOptions

Support = Literal["optional", "required"]


class TaskOptions(Struct, frozen=True, kw_only=True):
    """Limits on the tasks of one caller, and how the tasks of a server are run.

    Callers without authentication are one caller. Raises `InvalidArgument` and
    `InvalidArgumentType`.
    """

    # Tasks of one caller that have not ended: more than a model starts in one conversation.
    max_unfinished: int = 100
    # All tasks of one caller that can still be read. With its result a task has two entries of the
    # store, which allows 10,000 to one caller.
    max_kept: int = 1000
    # Arguments of a call, and its result; in JSON.
    max_argument_bytes: int = 1024 * 1024
    max_result_bytes: int = 4 * 1024 * 1024
    # Tasks that run in this process at once; others wait, or run elsewhere. With 0 it runs none:
    # `colonnade work` does.
    max_running: int = 500
    # A worker that has not renewed its leases for so long has died; its tasks are run by another.
    lease_s: float = 10.0
    # A task that waits for input is held in memory for so long, and is then run again from its
    # beginning when the response arrives.
    hold_s: float = 30.0
    max_held: int = 200
    # Workers that may die while they run a task, one after another, before it is given up: it may
    # be what kills them.
    max_attempts: int = 3
    # Requests about tasks, each second, of one caller (R0581); None is no limit.
    requests_per_s: float | None = 1000.0
    # How a task gets to a worker; None: workers look for tasks in the store.
    queue: TaskQueue | None = None

    def __post_init__(self) -> None:
        if self.queue is not None and not callable(getattr(self.queue, "submit", None)):
            words = f"TaskOptions: queue takes a TaskQueue, such as DocketQueue, not {self.queue!r}"
            raise InvalidArgumentType(words, argument="queue")
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            value = getattr(self, name)
            if name == "queue" or (value is None and name == "requests_per_s"):
                continue
            whole = isinstance(default, int)
            may_be_zero = name == "max_running"
            least = "from 0" if may_be_zero else "above 0"
            words = f"TaskOptions: {name} is {value!r}; give a number {least}"
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise InvalidArgumentType(words, argument=name)
            if not (isfinite(value) and (value > 0 or (value == 0 and may_be_zero))):
                raise InvalidArgument(words, argument=name)


class TaskTool(Struct, frozen=True, eq=False):
    """A function that is registered as a tool with `task=`."""

    bound: BoundTool
    support: Support
    limits: TaskLimits


def task_tool(bound: BoundTool, options: "ToolOptions") -> TaskTool:
    """The task options of a tool. Raises `InvalidArgument`."""
    task: Any = options.get("task", False)
    if task not in (True, *get_args(Support)) or not task:
        words = f'{bound.name}: task is {task!r}; write task=True or task="required"'
        if not task:
            words = f"{bound.name}: keep_s and max_run_s are for tasks; add task=True"
        raise InvalidArgument(words, argument="task")
    given: dict[str, Any] = {
        name: value for name, value in options.items() if name in ("max_run_s", "keep_s")
    }
    try:
        limits = TaskLimits(**given)
    except InvalidArgument as error:
        raise InvalidArgument(f"{bound.name}: {error}", argument=error.argument) from None
    return TaskTool(bound, "optional" if task is True else task, limits)
