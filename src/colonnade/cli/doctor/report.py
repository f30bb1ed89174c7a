"""What `colonnade doctor` does: every check of one server, or of all in a configuration, at once.

Rules: a server that is broken hinders no other. Standard output has the table, or the JSON, and
nothing else. No browser is opened, nothing is installed, and nothing of a server is called.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from colonnade.cli.commands.inspect import wrapped
from colonnade.cli.doctor.check import Check, Report, code_of_reports, gathered, skipped, summary
from colonnade.cli.doctor.targets import Visit, visits_of
from colonnade.cli.options import Terms
from colonnade.cli.session import run, show_json
from colonnade.cli.terminal import Screen
from colonnade.text import one_line

# Servers that are looked at together; each may be a process, and npx takes a core for a second.
AT_ONCE: Final = 8
# Places that the words for a state, and the name of a check, take in the table.
STATE_PLACES, NAME_PLACES = 7, 13
FURTHER: Final = 2 + STATE_PLACES + 2 + NAME_PLACES + 2


def doctor_target(terms: Terms) -> int:
    """Look at a server, or at all of a configuration; the exit code. Raises `Trouble`."""
    screen = Screen()
    log = logging.getLogger("colonnade")
    if terms.debug:
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        log.setLevel(logging.DEBUG)
    else:
        log.addHandler(logging.NullHandler())  # what it would warn of is in the table
    return run(terms, screen, _doctor(visits_of(terms, screen), terms, screen))


async def _doctor(visits: Sequence[Visit], terms: Terms, screen: Screen) -> int:
    reports = await examined(visits, screen)
    if terms.as_json:
        well = all(one.failure is None for one in reports)
        show_json({"ok": well, "servers": [one.plain() for one in reports]}, screen)
    else:
        screen.write(table(reports, screen))
    return code_of_reports(reports)


async def examined(visits: Sequence[Visit], screen: Screen) -> list[Report]:
    """All that is found, in the order of the visits, which are made together; whoever waits sees
    how far it is."""
    room = asyncio.Semaphore(AT_ONCE)
    over = 0

    async def made(visit: Visit) -> Report:
        nonlocal over

        def tell(check: Check) -> None:
            screen.progress(over, len(visits), f"{one_line(visit.server)}: {check.name}")

        async with room:
            server, target, planned, checks = visit
            report = await gathered(server, target, planned, checks, tell)
            over += 1
            return report

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(made(visit)) for visit in visits]
    return [task.result() for task in tasks]


# ---------------------------------------------------------------- the table


def table(reports: Sequence[Report], screen: Screen) -> str:
    """Every check of every server, for people: green and red, and in words."""
    told: list[str] = []
    for report in reports:
        lines = [f"{screen.heading(one_line(report.server))}\n"]
        for check in _shortened(report.checks):
            lines += _row(check, screen)
        told.append("".join(lines))
    whole = summary(reports)
    broken = any(one.failure is not None for one in reports)
    return "\n".join(told) + "\n" + (screen.bad(whole) if broken else screen.good(whole)) + "\n"


def _shortened(checks: Sequence[Check]) -> list[Check]:
    """The same with what comes after a failure in one row."""
    at = next((at for at, one in enumerate(checks) if one.state == "failed"), len(checks)) + 1
    rest = ", ".join(one.name for one in checks[at:])
    return [*checks[:at], *([skipped("the rest", rest)] if rest else [])]


def _row(check: Check, screen: Screen) -> list[str]:
    word = {"ok": "ok", "failed": "FAILED", "warning": "warning", "skipped": "skipped"}[check.state]
    paint = {
        "ok": screen.good,
        "failed": screen.bad,
        "warning": screen.alarm,
        "skipped": screen.quiet,
    }[check.state]
    line = f"  {word:{STATE_PLACES}}  {check.name:{NAME_PLACES}}  {check.words}"
    rows = [wrapped(line, FURTHER, screen).replace(word, paint(word), 1)]
    lead = " " * FURTHER
    for said in check.lines:
        told = wrapped(f"{lead}| {said}", FURTHER + 2, screen)
        rows.append(screen.quiet(told.removesuffix("\n")) + "\n")
    if check.mend:
        rows.append(wrapped(f"{lead}-> {check.mend}", FURTHER + 3, screen))
    return rows
