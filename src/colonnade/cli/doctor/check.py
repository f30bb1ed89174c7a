"""The result of a check of `colonnade doctor`: a state, a message, and a fix.

The first check that fails is the last one that runs for a server: those after it would fail for the
same reason, and are reported as skipped.

Rules: data only; nothing is started, sent or printed here. A message is one line; text from a
server is cleaned before it is put in.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, TypeAlias

State: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


class Check(NamedTuple):
    """One check: its name, state, message, and how to fix what is wrong.

    `lines` are output of a server that explains it; `code` is the exit code of a failure.
    """

    name: str
    state: State
    message: str
    fix: str = ""
    lines: tuple[str, ...] = ()
    code: int = 0

    def to_json(self) -> dict[str, Any]:
        """The check as JSON."""
        return {
            "check": self.name,
            "state": self.state,
            "message": self.message,
            **({"fix": self.fix} if self.fix else {}),
            **({"lines": list(self.lines)} if self.lines else {}),
        }


# Checks in the order in which they run; none comes after one that failed.
Checks: TypeAlias = AsyncGenerator[Check]


def ok(name: str, message: str) -> Check:
    """A check that passed."""
    return Check(name, "ok", message)


def warned(name: str, message: str, fix: str, lines: Sequence[str] = ()) -> Check:
    """A check that found something that works, but may cause trouble."""
    return Check(name, "warning", message, fix, tuple(lines))


def failed(name: str, code: int, message: str, fix: str, lines: Sequence[str] = ()) -> Check:
    """A check that failed; `code` is the exit code of the command."""
    return Check(name, "failed", message, fix, tuple(lines), code)


def skipped(name: str, message: str) -> Check:
    """A check that did not run."""
    return Check(name, "skipped", message)


class ServerReport(NamedTuple):
    """All checks of one server."""

    server: str
    target: str
    checks: tuple[Check, ...]

    @property
    def failure(self) -> Check | None:
        """The check that failed, if any."""
        return next((one for one in self.checks if one.state == "failed"), None)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "server": self.server,
            "target": self.target,
            "ok": self.failure is None,
            "checks": [one.to_json() for one in self.checks],
        }


async def run_checks(
    server: str,
    target: str,
    planned: Sequence[str],
    checks: Checks,
    on_check: Callable[[Check], None],
) -> ServerReport:
    """Run the checks of a server up to the first that fails; the other planned ones are skipped."""
    made: list[Check] = []
    async with aclosing(checks):
        async for check in checks:
            made.append(check)
            on_check(check)
            if check.state == "failed":
                why = f"{check.name} failed"
                rest = planned[planned.index(check.name) + 1 :] if check.name in planned else ()
                made += [skipped(name, why) for name in rest]
                break
    return ServerReport(server, target, tuple(made))


def reports_exit_code(reports: Sequence[ServerReport]) -> int:
    """0, or the exit code of the first failure."""
    failures = [one.failure for one in reports]
    return next((one.code for one in failures if one is not None), 0)


def summary(reports: Sequence[ServerReport]) -> str:
    """The last line of the report."""
    states = [check.state for one in reports for check in one.checks]
    counts = {"failed": states.count("failed"), "warning": states.count("warning")}
    parts = [
        f"{count} {state}{'s' if state == 'warning' and count > 1 else ''}"
        for state, count in counts.items()
        if count
    ]
    if len(reports) > 1:
        working = sum(one.failure is None for one in reports)
        parts.insert(0, f"{working} of {len(reports)} servers work")
    return ", ".join(parts) or "all checks passed"
