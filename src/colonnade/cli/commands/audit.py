"""`colonnade audit ls`, `show` and `verify`: the audit log of a host.

Rules: files are read and never changed, and nothing is started. What is shown cannot control a
terminal. `verify` exits with status 1 if anything is wrong.
"""

import asyncio
import os
import re
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

import click
import msgspec

from colonnade.cli.errors import FAILED, CliError
from colonnade.cli.options import Action
from colonnade.cli.terminal import Terminal, columns
from colonnade.errors import ColonnadeError
from colonnade.host.policy.audit.lines import AuditLine, StoredHead
from colonnade.host.policy.audit.verify import (
    PERSON,
    AuditFinding,
    CallSummary,
    VerifyReport,
    lines_of_call,
    read_calls,
)
from colonnade.host.policy.audit.verify import verify as verify_folder
from colonnade.host.policy.request import REMEMBERED
from colonnade.text import clean, cut, one_line

# Rows that are aligned together; more are printed as they are read.
ROWS = 500
# The width of a name in a table.
MAX_NAME = 40
JSON_INDENT = 2

JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FOLDER: Final = click.argument("folder", metavar="[DIR]", required=False, default="")

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"(\d{1,6})([smhd])")
# What became of a call whose approval got no answer.
_NO_ANSWER: Final = {
    "expired": "expired without an answer",
    "withdrawn": "withdrawn without an answer",
    "waiting": "no answer in time",
    "dismissed": "dismissed without an answer",
    "cancelled": "cancelled before an answer",
    "no_approver": "no way to ask for an approval",
    "failed": "could not be asked about",
}
# Members that the first line of `show` has, or that only a program needs.
_COMMON: Final = frozenset(
    [
        *("time", "run", "seq", "event", "prev", "call"),
        *("principal", "client", "server", "method", "name"),
    ]
)


class CallFilter(NamedTuple):
    """Which calls are listed; what is empty is not compared."""

    server: str = ""
    principal: str | None = None
    tool: str = ""
    since_ns: int = 0

    def matches(self, line: AuditLine) -> bool:
        """Whether a call is listed, by its first line."""
        if self.server and line.server != self.server:
            return False
        if self.principal is not None and line.principal != self.principal:
            return False
        names = line.name, f"{line.server}__{line.name}"
        if self.tool and not any(fnmatchcase(name, self.tool) for name in names):
            return False
        return not self.since_ns or line.time >= _format_time(self.since_ns)


@click.group(epilog="Example: colonnade audit verify /var/log/colonnade")
def audit() -> None:
    """The audit log of a host: list calls, show one, find out whether the log was changed.

    DIR is the path in [audit] of colonnade.toml; by default the folder that is used without one.
    """


@audit.command(
    short_help="List calls.",
    epilog="""\b
Examples:
  colonnade audit ls
  colonnade audit ls /var/log/colonnade --since 2h --server github
  colonnade audit ls --tool 'delete_*' --principal alex --json
""",
)
@FOLDER
@click.option("--server", default="", metavar="NAME", help="Only calls of this server.")
@click.option("--principal", default=None, metavar="NAME", help="Only calls of this principal.")
@click.option("--tool", default="", metavar="PATTERN", help="Only calls of these tools: 'read_*'.")
@click.option("--since", default="", metavar="TIME", help="Only calls since 2h, 7d or 2026-11-18.")
@JSON
def ls(
    folder: str, server: str, principal: str | None, tool: str, since: str, as_json: bool
) -> Action:
    """List calls with their decision and outcome, by run and in the order in which they ended."""
    wanted = CallFilter(server, principal, tool, parse_since(since, time.time_ns()))
    return partial(list_calls, folder, wanted, as_json=as_json)


@audit.command(
    short_help="Show every line of a call.",
    epilog="Example: colonnade audit show 5d0c1f2a9b7e4c33-12",
)
@click.argument("call", metavar="CALL")
@FOLDER
@JSON
def show(call: str, folder: str, as_json: bool) -> Action:
    """Show every line of a call. With --json, the lines as they are in the log."""
    return partial(show_call, call, folder, as_json=as_json)


@audit.command(
    short_help="Find out whether the log was changed.",
    epilog="""\b
Examples:
  colonnade audit verify /var/log/colonnade
  colonnade audit verify /var/log/colonnade --heads heads.db
""",
)
@FOLDER
@click.option("--heads", default="", metavar="FILE", help="The file that 'heads' of [audit] names.")
@click.option("--archived", is_flag=True, help="The oldest files were moved elsewhere.")
@click.option("--strict", is_flag=True, help="Exit with status 1 for notes as well.")
@JSON
def verify(folder: str, heads: str, archived: bool, strict: bool, as_json: bool) -> Action:
    """Report lines that were altered, removed, added or moved, and files that are missing.

    Removed newest lines or files, and forged runs, are found only with --heads. A run without an
    end is a note, since its process may still be running or have been killed.
    """
    return partial(
        verify_log, folder, heads=heads, archived=archived, strict=strict, as_json=as_json
    )


# ---------------------------------------------------------------- arguments


def parse_since(text: str, now_ns: int) -> int:
    """A time in nanoseconds; 0 for none. Raises `CliError`."""
    if not text:
        return 0
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(now_ns - int(ago[1]) * _UNITS[ago[2]] * 1_000_000_000, 0)
    try:
        found = datetime.fromisoformat(text)
        given = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return max(int(given.timestamp()) * 1_000_000_000, 0)
    except (ValueError, OverflowError):
        hint = "write 30m, 2h, 7d, 2026-11-18 or 2026-11-18T02:00, in UTC"
        raise CliError(f"--since {text}: not a time", hint=hint) from None


def _format_time(time_ns: int) -> str:
    second, fraction = divmod(time_ns, 1_000_000_000)
    whole = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{fraction:09d}Z"


def _folder(given: str) -> str:
    if given:
        return given
    from colonnade.host.policy.audit.log import default_folder  # on use

    return default_folder()


@contextmanager
def _reading(folder: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        hint = "name the folder, which is path in [audit] of colonnade.toml"
        raise CliError(f"there is no audit log in {folder}", hint=hint) from None
    except OSError as error:
        raise CliError(f"{folder}: {error.strerror or error}") from None


# ---------------------------------------------------------------- ls


def list_calls(given: str, wanted: CallFilter, *, as_json: bool) -> int:
    """List calls; return the exit code."""
    folder, terminal = _folder(given), Terminal()
    with _reading(folder):
        calls = read_calls(folder, wanted.matches, wanted.since_ns)
        if as_json:
            for call in calls:
                terminal.write(msgspec.json.encode(call).decode() + "\n")
            return 0
        is_empty = True
        while rows := [_row(call) for call in islice(calls, ROWS)]:
            is_empty = False
            terminal.write(columns(rows, indent=0, most=terminal.width))
    if is_empty:
        terminal.write("there are no such calls\n")
    return 0


def _row(call: CallSummary) -> list[str]:
    method = "" if call.method == "tools/call" else f" ({one_line(call.method)})"
    return [
        one_line(call.time[:19].replace("T", " ")),
        one_line(call.call),
        cut(one_line(call.principal), MAX_NAME) or "-",
        cut(one_line(call.server), MAX_NAME),
        cut(one_line(call.name), MAX_NAME) + method,
        _outcome(call),
    ]


def _outcome(call: CallSummary) -> str:
    rule = one_line(call.rule)
    if call.unanswered:
        asked = f", asked by {rule}" if rule else ""
        return f"{_NO_ANSWER.get(call.unanswered, 'no answer')}{asked}"
    if call.decision == "deny" and call.answered_by == REMEMBERED:
        return f"denied by {REMEMBERED}: {rule}"
    if call.decision == "deny" and call.answered_by:
        by = one_line(call.answered_by)
        return "denied by a person" if by == PERSON else f"denied by a person: {by}"
    if call.decision == "deny":
        return f"denied by {rule}" if rule else "denied"
    if call.outcome == "returned":
        return "returned an error" if call.is_error else "returned"
    if call.outcome:
        return f"{call.outcome}: {one_line(call.error)}"
    return "no outcome" if call.was_sent else "not sent"


# ---------------------------------------------------------------- show


def show_call(call: str, given: str, *, as_json: bool) -> int:
    """Show the lines of a call; return the exit code."""
    folder, terminal = _folder(given), Terminal()
    found = 0
    with _reading(folder):
        for line, raw in lines_of_call(folder, call):
            found += 1
            if as_json:
                terminal.show(raw.decode("utf-8", "replace"))
                continue
            if found == 1:
                terminal.write(_heading(line))
            terminal.write(f"{one_line(line.time)}  {terminal.heading(one_line(line.event))}\n")
            terminal.write(columns(list(_members(raw)), indent=4))
    if not found:
        hint = "colonnade audit ls lists them"
        raise CliError(f"there is no call {one_line(call)} in {folder}", FAILED, hint=hint)
    return 0


def _heading(line: AuditLine) -> str:
    rows = [
        ["call", line.call],
        ["principal", line.principal or "-"],
        ["client", line.client or "-"],
        ["server", line.server],
        ["method", line.method],
        ["name", line.name],
    ]
    return columns([[name, one_line(text)] for name, text in rows], indent=0) + "\n"


def _members(raw: bytes) -> Iterator[Sequence[str]]:
    found: dict[str, Any] = msgspec.json.decode(raw)
    for name, value in found.items():
        if name not in _COMMON and value != "":
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            yield clean(name), clean(text)


# ---------------------------------------------------------------- verify


def verify_log(given: str, *, heads: str, archived: bool, strict: bool, as_json: bool) -> int:
    """Verify a log; return the exit code."""
    folder, terminal = _folder(given), Terminal()
    from colonnade.host.policy.audit.file import host_name  # on use

    def read() -> VerifyReport:
        # Read the heads before the files: each line that the store names is already in its file.
        stored = _stored_heads(heads) if heads else None
        with _reading(folder):
            return verify_folder(folder, stored, host=host_name(), archived=archived)

    report = read()
    if any(finding.kind == "unknown" for finding in report.findings):
        report = read()  # a run may have begun after the heads were read
    is_wrong = bool(report.findings) or (strict and bool(report.notes))
    if as_json:
        value = msgspec.json.format(msgspec.json.encode(_to_json(report)), indent=JSON_INDENT)
        terminal.write(value.decode() + "\n")
        return FAILED if is_wrong else 0
    for finding in report.findings:
        terminal.write(f"{one_line(str(finding))}\n")
    for note in report.notes:
        terminal.write(f"{one_line(str(note))} (note)\n")
    terminal.write(_summary(report) + "\n")
    return FAILED if is_wrong else 0


def _summary(report: VerifyReport) -> str:
    count = len(report.findings)
    state = "valid" if not count else f"{count} finding" + ("s" if count > 1 else "")
    lost = f"; {report.dropped} events could not be written" if report.dropped else ""
    return f"{report.runs} runs, {report.files} files, {report.lines} lines: {state}{lost}"


def _to_json(report: VerifyReport) -> dict[str, Any]:
    def each(found: Iterable[AuditFinding]) -> list[dict[str, Any]]:
        return [one._asdict() for one in found]

    return {
        "valid": report.is_valid,
        "runs": report.runs,
        "files": report.files,
        "lines": report.lines,
        "dropped": report.dropped,
        "findings": each(report.findings),
        "notes": each(report.notes),
    }


def _stored_heads(file: str) -> list[StoredHead]:
    if not os.path.isfile(file):
        raise CliError(f"there is no file {file}", hint="it is 'heads' in [audit]")
    from colonnade.host.policy.audit.file import stored_heads  # on use
    from colonnade.store.sqlite import SqliteStore

    async def read() -> list[StoredHead]:
        store = SqliteStore(file)
        try:
            return await stored_heads(store)
        finally:
            await store.close()

    try:
        return asyncio.run(read())
    except ColonnadeError as error:
        raise CliError(f"{file}: {error}", FAILED) from None
