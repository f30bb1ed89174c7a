"""Which servers a doctor looks at: the one that was named, or all of a configuration.

Rules: nothing is started here, and no address reached. What is wrong with one server of a file is
a visit to that server, and hinders no other.
"""

import ast
import os
import re
import shlex
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from colonnade.cli.configured import Trusting, configuration
from colonnade.cli.doctor import Check, Checks, failed, fine, warned
from colonnade.cli.doctor_server import (
    ADDRESS_PLAN,
    COMMAND_PLAN,
    Patient,
    address_checks,
    command_checks,
)
from colonnade.cli.reaching import (
    SCRIPTS,
    Reach,
    Terms,
    is_configuration,
    place,
    reach,
    shown_configuration,
)
from colonnade.cli.screen import Screen
from colonnade.cli.target import read
from colonnade.cli.text import one_line
from colonnade.cli.trouble import USAGE, Trouble, code_of
from colonnade.client.targets import Surroundings, way_to
from colonnade.errors import ColonnadeError, LocalProtocolError
from colonnade.host.settings import Config, Entry, Place, Problem

FILE, TRUST, VARIABLES = "file", "trust", "variables"
# What is wrong with an entry for want of something outside of the file.
_WANTING: Final = re.compile(r"the variable |nobody is there to answer the input")


class Visit(NamedTuple):
    """A server that is to be looked at: what it is called, and the checks that are to be made."""

    server: str
    target: str
    # Which checks are planned; what depends on an entry is known when its variables are.
    planned: list[str]
    checks: Checks


def visits_of(terms: Terms, screen: Screen) -> list[Visit]:
    """All visits to a target. Raises `Trouble` for what cannot be one.

    To be called where no loop runs: somebody may be asked whether they trust a file.
    """
    if is_configuration(terms.target):
        trusting = Trusting()
        return _of_config(configuration(terms, screen, trusting), terms, trusting)
    return [_single(terms)]


# ---------------------------------------------------------------- one server


def _single(terms: Terms) -> Visit:
    target = terms.target
    if isinstance(target, str) and "://" not in target:
        return _to_file(target, terms)
    found = reach(terms)
    shown, around = found.shown, _around(found)
    if isinstance(found.target, str):
        patient = Patient(
            found.target, around, terms.timeout_s, shlex.quote(shown), revision=terms.revision
        )
        return Visit(shown, shown, [*ADDRESS_PLAN], address_checks(patient))
    words = shlex.join(found.target)
    patient = Patient(
        found.target, around, terms.timeout_s, f"-- {words}", words, revision=terms.revision
    )
    return Visit(shown, words, [*COMMAND_PLAN], command_checks(patient))


def _around(found: Reach) -> dict[str, Any]:
    names = {"headers": "headers", "env": "env", "server_name": "name"}
    return {names[key]: value for key, value in found.options.items() if key in names}


def _to_file(typed: str, terms: Terms) -> Visit:
    planned = [FILE, *COMMAND_PLAN]
    try:
        target, shown, own = place(terms)
    except Trouble as trouble:
        return Visit(typed, typed, planned, _missing(trouble.words))
    file = read(typed).path if own else target[-1] if isinstance(target, list) else target
    program = "colonnade run" if own else "node" if file.endswith(SCRIPTS) else "python"
    quoted = shlex.quote(shown)
    around = _around(reach(terms))
    patient = Patient(
        target, around, terms.timeout_s, quoted, f"{program} {quoted}", terms.revision
    )
    return Visit(typed, typed, planned, _of_file(file, shown, patient))


async def _missing(words: str) -> Checks:
    what, _, mend = words.partition("; ")
    yield failed(FILE, USAGE, one_line(what), one_line(mend) or "mend its name")


async def _of_file(file: str, shown: str, patient: Patient) -> Checks:
    yield file_check(os.path.relpath(file)) if file else fine(FILE, f"{shown} is a module")
    async with aclosing(command_checks(patient)) as checks:
        async for check in checks:
            yield check


def file_check(path: str) -> Check:
    """Whether a file can be read; one of Python, whether Python can read it."""
    shown = one_line(path)
    if not path.endswith((".py", ".pyw")):
        return fine(FILE, f"{shown} is there")
    try:
        with open(path, "rb") as file:
            ast.parse(file.read(), path)
    except SyntaxError as error:
        where = f"{shown}:{error.lineno or 1}:{error.offset or 1}"
        mend = "mend that line; it is where Python stopped to understand"
        return failed(FILE, USAGE, f"{where}: {one_line(error.msg)}", mend)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        words = f"{shown} cannot be read: {one_line(why).lower()}"
        return failed(FILE, USAGE, words, "look at who may read it")
    return fine(FILE, f"{shown} can be read, and is Python")


# ---------------------------------------------------------------- a configuration


def _of_config(config: Config, terms: Terms, trusting: Trusting) -> list[Visit]:
    """A visit to each server of a file, and one to the file itself where it is broken, or to all
    of its servers where nobody trusts it."""
    file = shown_configuration(terms)
    wrong: dict[str, list[Problem]] = {}
    for problem in config.problems:
        wrong.setdefault(problem.server, []).append(problem)
    found: list[tuple[int, Visit]] = []
    for key, problems in wrong.items():
        refused = trusting.refused.get(key)
        alike = [
            one for one in wrong if refused is not None and trusting.refused.get(one) == refused
        ]
        if alike[1:] and key != alike[0]:
            continue
        checks = _distrusted(refused) if refused is not None else _broken(problems)
        visit = Visit(", ".join(alike) or key or file, file, [FILE, TRUST, VARIABLES], checks)
        found.append((_line(problems[0].place) if key else 0, visit))
    for key, entry in config.entries.items():
        odd = [one for one in config.warnings if one.server == key]
        planned = [FILE, VARIABLES]
        checks = _of_entry(entry, terms, odd, key in trusting.agreed, planned)
        found.append((_line(entry.place), Visit(key, entry.shown, planned, checks)))
    visits = [visit for _, visit in sorted(found, key=lambda one: one[0])]
    if not visits:
        visits.append(Visit(file, file, [FILE], _empty(file)))
    return visits


def _line(place: Place | None) -> int:
    return place.line if place is not None else 0


async def _broken(problems: Iterable[Problem]) -> Checks:
    """What is wrong with an entry, or a file; the first of it."""
    told, *others = problems
    words, _, mend = told.words.partition("; ")
    where = f"{_relative(told)}: " if told.place is not None else ""
    name = VARIABLES if _WANTING.match(told.words) else FILE
    if name == VARIABLES:
        yield fine(FILE, f"{told.place.file if told.place is not None else 'it'} can be read")
    lines = [one_line(str(one)) for one in others]
    mend = one_line(mend) or "mend the file at that place"
    yield failed(name, USAGE, f"{where}{one_line(words)}", mend, lines)


def _relative(problem: Problem) -> str:
    """Where it is, for a person who sits in a folder."""
    assert problem.place is not None
    file, line, column, key = problem.place
    near = os.path.relpath(file)
    shown = near if not near.startswith("..") else file
    return one_line(f"{shown}:{line}:{column}: {key}" if key else f"{shown}:{line}:{column}")


async def _distrusted(file: str) -> Checks:
    yield fine(FILE, f"{one_line(file)} can be read")
    words = "nobody has trusted this file as it is now, so nothing of it is used"
    mend = f"look at it, and then: colonnade config trust {shlex.quote(file)}"
    yield failed(TRUST, USAGE, words, mend)


async def _empty(file: str) -> Checks:
    yield failed(FILE, USAGE, f"{one_line(file)} has no servers", "add one: colonnade add --file")


async def _of_entry(
    entry: Entry, terms: Terms, odd: list[Problem], agreed: bool, planned: list[str]
) -> Checks:
    """All of one server of a configuration."""
    yield _said(entry, odd)
    if agreed:
        yield fine(TRUST, "you have just trusted it")
    if not entry.settings.enabled:
        yield Check(VARIABLES, "skipped", "it is switched off, and not looked at")
        return
    try:
        resolved = await entry.resolve()
        way_to(resolved, Surroundings(name=entry.key))  # which says what is wrong with it
    except LocalProtocolError as error:
        yield failed(VARIABLES, USAGE, one_line(str(error)), "mend the entry")
        return
    except ColonnadeError as error:
        yield failed(VARIABLES, code_of(error), one_line(str(error)), "give it what it refers to")
        return
    yield fine(VARIABLES, "all that it refers to is there")
    settings = entry.settings
    patient = Patient(
        resolved,
        {"name": entry.key},
        settings.timeout_s,
        f"{_typed(terms)}--server {shlex.quote(entry.key)}",
        entry.shown,
        settings.revision or "",
    )
    planned += ADDRESS_PLAN if patient.url else COMMAND_PLAN
    made = address_checks(patient) if patient.url else command_checks(patient)
    async with aclosing(made) as checks:
        async for check in checks:
            yield check


def _typed(terms: Terms) -> str:
    """The target as it is typed before a flag; nothing where none was."""
    return f"{shlex.quote(str(terms.target))} " if terms.target else ""


def _said(entry: Entry, odd: list[Problem]) -> Check:
    where = _relative(Problem("", "", entry.place)) if entry.place is not None else "a program"
    if odd:
        lines = [one_line(str(one)) for one in odd]
        return warned(FILE, f"{where} can be read, and says odd things", "mend them", lines)
    return fine(FILE, f"{where} can be read")
