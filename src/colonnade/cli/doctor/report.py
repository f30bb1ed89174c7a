"""`colonnade doctor`: check one server, or all servers of a configuration, and print a table.

Rules: a broken server does not affect the checks of others. Stdout has the table, or the JSON, and
nothing else. No browser is opened, nothing is installed, and no tool is called.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import click

from colonnade.cli.commands.inspect import wrap_line
from colonnade.cli.doctor.check import (
    Check,
    ServerReport,
    reports_exit_code,
    run_checks,
    skipped,
    summary,
)
from colonnade.cli.doctor.targets import DoctorTarget, doctor_targets
from colonnade.cli.errors import LOG_FORMAT
from colonnade.cli.options import (
    Action,
    ConnectionOptions,
    ServerCommand,
    optional_connection_options,
    take_connection_options,
)
from colonnade.cli.session import run_async, show_json
from colonnade.cli.terminal import Terminal
from colonnade.text import one_line

# Servers that are checked in parallel; each may be a process, and npx takes a core for a second.
MAX_PARALLEL: Final = 8
# How often the progress line is drawn while nothing ends.
REDRAW_S: Final = 0.5
# Widths of the columns for the state and the name of a check.
STATE_WIDTH, NAME_WIDTH = 7, 13
INDENT: Final = 2 + STATE_WIDTH + 2 + NAME_WIDTH + 2


@click.command(
    cls=ServerCommand,
    epilog="""\b
Examples:
  colonnade doctor server.py
  colonnade doctor https://example.com/mcp
  colonnade doctor mcp.json --json
  colonnade doctor                          the configuration found for this folder
  colonnade doctor -- uvx mcp-server-git
""",
)
@optional_connection_options
def doctor(**options: Any) -> Action:
    """Check everything that can be wrong with a server, and say how to fix it.

    TARGET is a URL, a Python file (FILE[:NAME]), a configuration file (all of its servers), or a
    command line after --. Without TARGET, the configuration files that `colonnade config explain`
    finds are used. No tool is called. The exit status is 0 if no check failed, else that of the
    first failure.
    """
    return partial(doctor_target, take_connection_options(options))


def doctor_target(options: ConnectionOptions) -> int:
    """Check a server, or all of a configuration; return the exit code. Raises `CliError`."""
    terminal = Terminal()
    log = logging.getLogger("colonnade")
    if options.debug:
        logging.basicConfig(format=LOG_FORMAT)
        log.setLevel(logging.DEBUG)
    else:
        log.addHandler(logging.NullHandler())  # warnings are in the table
    targets = doctor_targets(options, terminal)
    return run_async(options, terminal, _doctor(targets, options, terminal))


async def _doctor(
    targets: Sequence[DoctorTarget], options: ConnectionOptions, terminal: Terminal
) -> int:
    reports = await run_doctor(targets, terminal)
    if options.as_json:
        passed = all(one.failure is None for one in reports)
        show_json({"ok": passed, "servers": [one.to_json() for one in reports]}, terminal)
    else:
        terminal.write(format_table(reports, terminal))
    return reports_exit_code(reports)


async def run_doctor(targets: Sequence[DoctorTarget], terminal: Terminal) -> list[ServerReport]:
    """Check all servers in parallel, with a progress line that says what is waited for; the reports
    are in their order."""
    semaphore = asyncio.Semaphore(MAX_PARALLEL)
    finished = 0
    # The check of each server that has not ended.
    waits: dict[int, str] = {}

    def show_progress() -> None:
        names = ", ".join(waits.values())
        terminal.progress(finished, len(targets), f"waiting for {names}" if names else "")

    async def redraw() -> None:
        while True:  # the terminal leaves out lines that come too fast, also the last one
            await asyncio.sleep(REDRAW_S)
            show_progress()

    async def check_server(number: int, target: DoctorTarget) -> ServerReport:
        nonlocal finished

        def wait_for(name: str) -> None:
            waits[number] = f"{one_line(target.server)}: {name}"
            show_progress()

        def ended(check: Check) -> None:
            planned = target.planned
            at = planned.index(check.name) + 1 if check.name in planned else len(planned)
            if at < len(planned):
                wait_for(planned[at])

        async with semaphore:
            wait_for(target.planned[0] if target.planned else "its checks")
            report = await run_checks(
                target.server, target.shown, target.planned, target.checks, ended
            )
            finished += 1
            del waits[number]
            show_progress()
            return report

    async with asyncio.TaskGroup() as group:
        drawing = group.create_task(redraw())
        tasks = [group.create_task(check_server(*one)) for one in enumerate(targets)]
        if tasks:
            await asyncio.wait(tasks)
        drawing.cancel()
    return [task.result() for task in tasks]


# ---------------------------------------------------------------- table


def format_table(reports: Sequence[ServerReport], terminal: Terminal) -> str:
    """Every check of every server, one per row."""
    blocks: list[str] = []
    for report in reports:
        lines = [f"{terminal.heading(one_line(report.server))}\n"]
        for check in _collapse_skipped(report.checks):
            lines += _row(check, terminal)
        blocks.append("".join(lines))
    last_line = summary(reports)
    broken = any(one.failure is not None for one in reports)
    style = terminal.failure if broken else terminal.success
    return "\n".join(blocks) + f"\n{style(last_line)}\n"


def _collapse_skipped(checks: Sequence[Check]) -> list[Check]:
    """The checks, with all that were skipped after a failure in one row."""
    at = next((at for at, one in enumerate(checks) if one.state == "failed"), len(checks)) + 1
    rest = ", ".join(one.name for one in checks[at:])
    return [*checks[:at], *([skipped("others", rest)] if rest else [])]


def _row(check: Check, terminal: Terminal) -> list[str]:
    word = {"ok": "ok", "failed": "FAILED", "warning": "warning", "skipped": "skipped"}[check.state]
    style = {
        "ok": terminal.success,
        "failed": terminal.failure,
        "warning": terminal.warning,
        "skipped": terminal.dim,
    }[check.state]
    line = f"  {word:{STATE_WIDTH}}  {check.name:{NAME_WIDTH}}  {check.message}"
    rows = [wrap_line(line, INDENT, terminal).replace(word, style(word), 1)]
    lead = " " * INDENT
    for output in check.lines:
        wrapped = wrap_line(f"{lead}| {output}", INDENT + 2, terminal)
        rows.append(terminal.dim(wrapped.removesuffix("\n")) + "\n")
    if check.fix:
        rows.append(wrap_line(f"{lead}-> {check.fix}", INDENT + 3, terminal))
    return rows
