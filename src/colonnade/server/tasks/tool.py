"""A tool that can run as a task: its options, as its decorator gives them.

Rules: data only; nothing here runs a tool.
"""

from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from colonnade.errors import InvalidArgument
from colonnade.protocol.tasks.record import TaskLimits
from colonnade.server.handlers.tools import BoundTool

if TYPE_CHECKING:
    from colonnade.server.options import ToolOptions

Support = Literal["optional", "required"]


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
