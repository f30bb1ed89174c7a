"""What `colonnade doctor` finds: one check after another, each with a sentence and its fix.

A check that failed is the last one that was made of a server: whatever comes after it would fail
for the same reason, and is said to be skipped.

Rules: data only; nothing is asked, started or written here. What a check says is for a person, on
one line; what a server wrote is cleaned where it is shown.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, TypeAlias

State: TypeAlias = Literal["ok", "warning", "failed", "skipped"]


class Check(NamedTuple):
    """One thing that can be wrong: whether it is, in which words, and what to do about it.

    `lines` are what somebody else wrote that tells more; `code` is the exit code of a failure.
    """

    name: str
    state: State
    words: str
    mend: str = ""
    lines: tuple[str, ...] = ()
    code: int = 0

    def plain(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "check": self.name,
            "state": self.state,
            "words": self.words,
            **({"mend": self.mend} if self.mend else {}),
            **({"lines": list(self.lines)} if self.lines else {}),
        }


# Checks in the order in which they are made; none comes after one that failed.
Checks: TypeAlias = AsyncGenerator[Check]


def fine(name: str, words: str) -> Check:
    """All is well here."""
    return Check(name, "ok", words)


def warned(name: str, words: str, mend: str, lines: Sequence[str] = ()) -> Check:
    """It works, and somebody may be bitten by it."""
    return Check(name, "warning", words, mend, tuple(lines))


def failed(name: str, code: int, words: str, mend: str, lines: Sequence[str] = ()) -> Check:
    """It does not work; `code` is what the command ends with."""
    return Check(name, "failed", words, mend, tuple(lines), code)


def skipped(name: str, words: str) -> Check:
    """It was not looked at."""
    return Check(name, "skipped", words)


class Report(NamedTuple):
    """All that was found about one server."""

    server: str
    target: str
    checks: tuple[Check, ...]

    @property
    def failure(self) -> Check | None:
        """What does not work, if anything."""
        return next((one for one in self.checks if one.state == "failed"), None)

    def plain(self) -> dict[str, Any]:
        """The same for programs."""
        return {
            "server": self.server,
            "target": self.target,
            "ok": self.failure is None,
            "checks": [one.plain() for one in self.checks],
        }


async def gathered(
    server: str,
    target: str,
    planned: Sequence[str],
    checks: Checks,
    tell: Callable[[Check], None],
) -> Report:
    """Every check of a server, up to the first that fails; what was planned besides is skipped.
    `tell` is told of each when it is made."""
    made: list[Check] = []
    async with aclosing(checks):
        async for check in checks:
            made.append(check)
            tell(check)
            if check.state == "failed":
                why = f"not before {check.name} is mended"
                rest = planned[planned.index(check.name) + 1 :] if check.name in planned else ()
                made += [skipped(name, why) for name in rest]
                break
    return Report(server, target, tuple(made))


def code_of_reports(reports: Sequence[Report]) -> int:
    """The exit code: 0, or that of the first failure."""
    failures = [one.failure for one in reports]
    return next((one.code for one in failures if one is not None), 0)


def summary(reports: Sequence[Report]) -> str:
    """All of it in a few words."""
    states = [check.state for one in reports for check in one.checks]
    counts = {"failed": states.count("failed"), "warning": states.count("warning")}
    words = [
        f"{count} {state}{'s' if state == 'warning' and count > 1 else ''}"
        for state, count in counts.items()
        if count
    ]
    if len(reports) > 1:
        well = sum(one.failure is None for one in reports)
        words.insert(0, f"{well} of {len(reports)} servers work")
    return ", ".join(words) or "all is well"
