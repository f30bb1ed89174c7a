"""What `portico doctor` does: every check of one server, or of all in a configuration, at once.

Rules: a server that is broken hinders no other. Standard output has the table, or the JSON, and
nothing else. No browser is opened, nothing is installed, and nothing of a server is called.
"""

import ast
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from portico.auth.places import PORTS, is_loopback
from portico.cli.doctor import (
    Check,
    Checks,
    Report,
    code_of_reports,
    failed,
    fine,
    gathered,
    skipped,
    summary,
)
from portico.cli.doctor_command import COMMAND, PROCESS, command_check
from portico.cli.doctor_http import (
    AUTHORIZED,
    DOCUMENTS,
    HTTP,
    Probe,
    Shown,
    authorization_check,
    documents_check,
    found_beside,
    http_check,
    http_failure,
    probe,
)
from portico.cli.doctor_line import LINE, Place, line_checks, speaks_tls
from portico.cli.doctor_talk import (
    SPOKEN,
    Talk,
    converse,
    lists_check,
    process_check,
    revision_check,
    schema_check,
)
from portico.cli.inspecting import wrapped
from portico.cli.logins import KeptLogin
from portico.cli.reaching import SCRIPTS, Reach, Terms, place, reach
from portico.cli.screen import Screen
from portico.cli.talking import run, show_json
from portico.cli.target import read
from portico.cli.text import one_line
from portico.cli.trouble import USAGE, Trouble
from portico.client.authorizing import kept_login
from portico.errors import ConnectionLost, PorticoError, RemoteProtocolError
from portico.transport.http_client import HttpPool

FILE: Final = "file"
ADDRESS_PLAN: Final = (*LINE, HTTP, DOCUMENTS, AUTHORIZED, *SPOKEN)
COMMAND_PLAN: Final = (COMMAND, PROCESS, *SPOKEN)
# Places that the words for a state, and the name of a check, take in the table.
STATE_PLACES, NAME_PLACES = 7, 13
FURTHER: Final = 2 + STATE_PLACES + 2 + NAME_PLACES + 2


class Patient(NamedTuple):
    """A server that is looked at: what reaches it, and what tells more of it."""

    target: Any
    around: dict[str, Any]
    terms: Terms
    # What a person types after `portico inspect` to see all of it, and to see it run by itself.
    inspected: str
    started: str = ""

    @property
    def inspect(self) -> str:
        """What shows all that is to mend."""
        return f"portico inspect {self.inspected} shows all of it"

    @property
    def mend(self) -> str:
        """What to do about a process that is gone, where it did not say."""
        return f"see what it says by itself: {self.started}" if self.started else "see its log"


def doctor_target(terms: Terms) -> int:
    """Look at a server, or at all of a configuration; the exit code. Raises `Trouble`."""
    screen = Screen()
    log = logging.getLogger("portico")
    if terms.debug:
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
        log.setLevel(logging.DEBUG)
    else:
        log.addHandler(logging.NullHandler())  # what it would warn of is in the table
    return run(terms, screen, _doctor(terms, screen))


async def _doctor(terms: Terms, screen: Screen) -> int:
    reports = await examined(terms)
    if terms.as_json:
        well = all(one.failure is None for one in reports)
        show_json({"ok": well, "servers": [one.plain() for one in reports]}, screen)
    else:
        screen.write(table(reports, screen))
    return code_of_reports(reports)


async def examined(terms: Terms) -> list[Report]:
    """All that is found about a target. Raises `Trouble` for what cannot be one."""
    planned, server, checks = _single(terms)
    return [await gathered(server, server, planned, checks)]


# ---------------------------------------------------------------- one server


def _single(terms: Terms) -> tuple[Sequence[str], str, Checks]:
    """What is planned for a target, what it is called, and the checks."""
    target = terms.target
    if isinstance(target, str) and "://" not in target:
        shown = target
        return (FILE, *COMMAND_PLAN), shown, _of_file(terms)
    found = reach(terms)
    if isinstance(found.target, str):
        patient = Patient(found.target, _around(found), terms, shlex.quote(found.shown))
        return ADDRESS_PLAN, found.shown, address_checks(patient)
    words = shlex.join(found.target)
    patient = Patient(found.target, _around(found), terms, f"-- {words}", words)
    return COMMAND_PLAN, found.shown, command_checks(patient)


def _around(found: Reach) -> dict[str, Any]:
    names = ("headers", "env", "name")
    return {name: found.options[name] for name in names if name in found.options}


async def _of_file(terms: Terms) -> Checks:
    assert isinstance(terms.target, str)
    try:
        target, shown, own = place(terms)
    except Trouble as trouble:
        what, _, mend = trouble.words.partition("; ")
        yield failed(FILE, USAGE, one_line(what), one_line(mend) or "mend its name")
        return
    found = reach(terms)
    file = read(terms.target).path if own else target[-1] if isinstance(target, list) else target
    yield file_check(os.path.relpath(file)) if file else fine(FILE, f"{shown} is a module")
    program = "portico run" if own else "node" if file.endswith(SCRIPTS) else "python"
    started = f"{program} {shlex.quote(shown)}"
    patient = Patient(target, _around(found), terms, shlex.quote(shown), started)
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


# ---------------------------------------------------------------- a command


async def command_checks(patient: Patient) -> Checks:
    """Everything about a server that is started."""
    argv, env, cwd = _started(patient)
    yield command_check(argv, env, cwd)
    talk = await _talk(patient, patient.around)
    yield process_check(talk, patient.mend)
    for check in _spoken(talk, patient):
        yield check


def _started(patient: Patient) -> tuple[list[str], Mapping[str, str], str | None]:
    """The words, the variables and the folder of what is started."""
    target, around = patient.target, patient.around
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        words = [str(word) for word in (entry["command"], *(entry.get("args") or ()))]
        return words, {**(entry.get("env") or {}), **around.get("env", {})}, entry.get("cwd")
    from portico.client.targets import PROGRAMS

    env: Mapping[str, str] = around.get("env") or {}
    if isinstance(target, str):
        path = os.path.abspath(target)
        return [PROGRAMS[os.path.splitext(path)[1].lower()], path], env, None
    return list(target), env, None


async def _talk(patient: Patient, around: Mapping[str, Any]) -> Talk:
    wanted = patient.terms.revision or None
    return await converse(patient.target, around, wanted, patient.terms.timeout_s)


def _spoken(talk: Talk, patient: Patient) -> list[Check]:
    made = [revision_check(talk, patient.terms.revision)]
    if talk.error is None:
        made.append(lists_check(talk))
        if talk.found is not None:
            made.append(schema_check(talk.found, patient.inspect))
    return made


# ---------------------------------------------------------------- an address


async def address_checks(patient: Patient) -> Checks:
    """Everything about a server at an address."""
    url, headers = _addressed(patient)
    parts = urlsplit(url)
    there = Place(parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme])
    timeout_s = patient.terms.timeout_s
    async with aclosing(line_checks(there, timeout_s)) as checks:
        async for check in checks:
            yield check
    pool = HttpPool()
    try:
        try:
            found = await probe(pool, url, headers, timeout_s)
        except PorticoError as error:
            odd = isinstance(error, RemoteProtocolError | ConnectionLost)
            plain = parts.scheme == "http" and odd
            yield http_failure(error, plain and await speaks_tls(there, timeout_s))
            return
        async with aclosing(_answered(patient, pool, found, headers)) as checks:
            async for check in checks:
                yield check
    finally:
        await pool.close()


def _addressed(patient: Patient) -> tuple[str, list[tuple[str, str]]]:
    """The address of a server, and the headers that were given for it."""
    target = patient.target
    given: list[tuple[str, str]] = list(patient.around.get("headers") or [])
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        return str(entry["url"]), [*(entry.get("headers") or {}).items(), *given]
    return target, given


async def _answered(
    patient: Patient, pool: HttpPool, found: Probe, headers: Sequence[tuple[str, str]]
) -> Checks:
    url = found.url
    http = http_check(found)
    if http.state == "failed" and not 400 <= found.status < 500:
        yield await _at_another_path(pool, http, found, patient)
        return
    own = any(name.lower() == "authorization" for name, _ in headers)
    secure = url.startswith("https:") or is_loopback(urlsplit(url).hostname or "")
    auth = None if own or not secure else KeptLogin(keep=True)
    held = await kept_login(auth, url) if auth is not None else None
    talk = await _talk(patient, {**patient.around, "auth": auth} if auth else patient.around)
    if http.state == "failed":  # a server of the first revision takes no such question
        if talk.error is not None and talk.refused is None:
            yield await _at_another_path(pool, http, found, patient)
            return
        http = fine(HTTP, f"it answers, after {found.status} for a first question")
    yield http
    asked = found.asks_who or talk.refused is not None
    if own or not found.asks_who:
        why = "you send a token of your own" if own else "it asks nobody who they are"
        yield skipped(DOCUMENTS, why)
    else:
        yield await documents_check(pool, found)
    yield authorization_check(url, asked, Shown(own, held is not None), talk.refused)
    for check in _spoken(talk, patient):
        yield check


async def _at_another_path(pool: HttpPool, http: Check, found: Probe, patient: Patient) -> Check:
    if 300 <= found.status < 400 or found.status >= 500:
        return http
    return await found_beside(pool, http, found.url, patient.terms.timeout_s)


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
