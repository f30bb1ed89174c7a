"""`colonnade tasks ls`, `show`, `wait`, `answer` and `cancel`: tasks that `colonnade call` started.

Rules: the server is asked about a task, and no other request is sent to it. Headers and environment
variables are not kept, and are given again.
"""

import os
import time
from functools import partial
from typing import Any, Final

import click

from colonnade.cli.commands.call import OutputDirectory, show_result
from colonnade.cli.errors import CliError
from colonnade.cli.options import (
    OUT,
    Action,
    ConnectionOptions,
    is_configuration,
    take_connection_options,
    task_options,
)
from colonnade.cli.session import CommandSession, run_connected, show_json
from colonnade.cli.task_records import (
    KeptTask,
    chat_tasks,
    find_task,
    forget_task,
    kept_tasks,
    wait_for_task,
)
from colonnade.cli.terminal import Terminal, columns
from colonnade.text import cut, one_line

# The width of a target in a table.
MAX_TARGET = 60

JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(epilog="Example: colonnade tasks wait 4f2a91c0")
def tasks() -> None:
    """Tasks: calls that go on while no command waits for them.

    `colonnade call` waits for the task that a call becomes. If it is interrupted, the task goes on,
    and is listed here until its result was printed.
    """


@tasks.command(
    short_help="List the tasks.",
    epilog="""\b
Examples:
  colonnade tasks ls
  colonnade tasks ls --json
""",
)
@JSON
def ls(as_json: bool) -> Action:
    """List the tasks whose result was not printed yet, the oldest first, also those of `colonnade
    chat`. No server is asked."""
    return partial(list_tasks, as_json=as_json)


@tasks.command(
    short_help="Show the status of a task.", epilog="Example: colonnade tasks show 4f2a91c0"
)
@task_options
def show(id: str, **options: Any) -> Action:
    """Ask the server of a task for its status, and print it. ID may be a handle."""
    return partial(run_with_task, id, _take(options), _show)


@tasks.command(
    short_help="Wait for a task and print its result.",
    epilog="""\b
Examples:
  colonnade tasks wait 4f2a91c0
  colonnade tasks wait 4f2a91c0 --header-env Authorization=TOKEN
""",
)
@task_options
@OUT
def wait(id: str, out: str, **options: Any) -> Action:
    """Wait for the end of a task and print its result, as `colonnade call` does. ID may be a
    handle."""
    connection = _take(options)
    return partial(run_with_task, id, connection, partial(_wait, folder=OutputDirectory(out)))


@tasks.command(
    short_help="Answer the questions of a task.", epilog="Example: colonnade tasks answer 4f2a91c0"
)
@task_options
def answer(id: str, **options: Any) -> Action:
    """Answer the elicitation requests of a task in the terminal. ID may be a handle."""
    return partial(run_with_task, id, _take(options), _answer)


@tasks.command(short_help="Cancel a task.", epilog="Example: colonnade tasks cancel 4f2a91c0")
@task_options
def cancel(id: str, **options: Any) -> Action:
    """Cancel a task at its server. ID may be a handle."""
    return partial(run_with_task, id, _take(options), _cancel)


def _take(options: dict[str, Any]) -> ConnectionOptions:
    return take_connection_options({"target": "", **options})


# ---------------------------------------------------------------- ls


def list_tasks(*, as_json: bool) -> int:
    """List the kept tasks; return the exit code."""
    terminal = Terminal()
    kept = sorted([*kept_tasks(), *chat_tasks()], key=lambda one: one.created_at)
    if as_json:
        show_json({"tasks": [_to_json(one) for one in kept]}, terminal)
        return 0
    if not kept:
        terminal.write("there are no tasks\n")
        return 0
    now = time.time()
    rows = [
        [one.id, one_line(one.tool), cut(one_line(one.shown_target), MAX_TARGET), _age(one, now)]
        for one in kept
    ]
    terminal.write(columns(rows, indent=0, most=terminal.width))
    return 0


def _to_json(kept: KeptTask) -> dict[str, Any]:
    return {
        "id": kept.id,
        "tool": kept.tool,
        "target": kept.shown_target,
        "folder": kept.folder,
        "createdAt": kept.created_at,
        "handle": kept.handle,
    }


def _age(kept: KeptTask, now: float) -> str:
    minutes = max(now - kept.created_at, 0.0) / 60
    if minutes < 60:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 60 / 24:.0f} days"


# ---------------------------------------------------------------- one task


def run_with_task(id: str, options: ConnectionOptions, action: Any) -> int:
    """Connect to the server of a task and run an action with it; return the exit code."""
    kept = find_task(id)
    try:
        os.chdir(kept.folder)  # a file or a command is relative to it
    except OSError as error:
        raise CliError(f"{kept.folder}, where it was started: {error.strerror}") from None
    revision = options.revision or kept.revision
    options = options._replace(target=kept.target, revision=revision)
    name = kept.tool if is_configuration(kept.target) else ""
    return run_connected(options, partial(action, kept=kept, options=options), name=name)


async def _show(session: CommandSession, *, kept: KeptTask, options: ConnectionOptions) -> int:
    task = session.servers.resume_task(kept.handle, kept.tool)
    await task.refresh()
    if options.as_json:
        about = {"status": task.status, "statusMessage": task.message}
        show_json(_to_json(kept) | about, session.terminal)
        return 0
    lines = [["tool", one_line(kept.tool)], ["status", task.status or "unknown"]]
    if task.message:
        lines.append(["message", one_line(task.message)])
    lines += [["target", one_line(kept.shown_target)], ["handle", kept.handle]]
    session.terminal.write(columns(lines, indent=0))
    return 0


async def _wait(
    session: CommandSession, *, kept: KeptTask, options: ConnectionOptions, folder: OutputDirectory
) -> int:
    task = session.servers.resume_task(kept.handle, kept.tool)
    result = await wait_for_task(task, kept, session.terminal)
    return show_result(result, kept.tool, options, session.terminal, folder)


async def _answer(session: CommandSession, *, kept: KeptTask, options: ConnectionOptions) -> int:
    task = session.servers.resume_task(kept.handle, kept.tool)
    if not await task.respond():
        session.terminal.note(f"colonnade: {kept.id} asks nothing; it is {task.status}\n")
    return 0


async def _cancel(session: CommandSession, *, kept: KeptTask, options: ConnectionOptions) -> int:
    await session.servers.resume_task(kept.handle, kept.tool).cancel()
    forget_task(kept)
    return 0
