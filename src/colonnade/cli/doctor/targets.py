"""Which servers a doctor looks at: the one that was named, or all of a configuration.

Rules: nothing is started here, and no address reached. What is wrong with one server of a file is
a visit to that server, and hinders no other.
"""

import ast
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from colonnade.auth.ssrf import is_this_machine
from colonnade.auth.urls import PORTS
from colonnade.cli.config_target import Trusting, configuration
from colonnade.cli.credentials import KeptLogin
from colonnade.cli.doctor.check import Check, Checks, failed, fine, skipped, warned
from colonnade.cli.doctor.command import COMMAND, PROCESS, command_check
from colonnade.cli.doctor.conversation import (
    SPOKEN,
    Talk,
    converse,
    lists_check,
    process_check,
    revision_check,
    schema_check,
)
from colonnade.cli.doctor.network import (
    AUTHORIZED,
    DOCUMENTS,
    HTTP,
    LINE,
    Endpoint,
    Probe,
    Shown,
    authorization_check,
    documents_check,
    found_beside,
    http_check,
    http_failure,
    line_checks,
    probe,
    speaks_tls,
)
from colonnade.cli.errors import USAGE, Trouble, code_of
from colonnade.cli.loader import read
from colonnade.cli.options import (
    SCRIPTS,
    Reach,
    Terms,
    is_configuration,
    place,
    reach,
    shown_configuration,
)
from colonnade.cli.terminal import Screen
from colonnade.client.auth import kept_login
from colonnade.client.connect import PROGRAMS, Surroundings, way_to
from colonnade.errors import ColonnadeError, ConnectionLost, LocalProtocolError, RemoteProtocolError
from colonnade.host.config.settings import Config, HostProblem, Place, ServerEntry
from colonnade.text import one_line
from colonnade.transport.http_client.pool import HttpPool

ADDRESS_PLAN: Final = (*LINE, HTTP, DOCUMENTS, AUTHORIZED, *SPOKEN)
COMMAND_PLAN: Final = (COMMAND, PROCESS, *SPOKEN)


class Patient(NamedTuple):
    """A server that is looked at: what reaches it, and what tells more of it."""

    target: Any
    around: dict[str, Any]
    timeout_s: float
    # What a person types after `colonnade inspect` to see all of it, and to see it run by itself.
    inspected: str
    started: str = ""
    revision: str = ""

    @property
    def inspect(self) -> str:
        """What shows all that is to mend."""
        return f"colonnade inspect {self.inspected} shows all of it"

    @property
    def mend(self) -> str:
        """What to do about a process that is gone, where it did not say."""
        return f"see what it says by itself: {self.started}"

    @property
    def url(self) -> str:
        """The address, of one that has one."""
        target: object = self.target
        if isinstance(target, Mapping):
            return str(cast("Mapping[str, Any]", target).get("url") or "")
        return target if isinstance(target, str) and "://" in target else ""


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
    env: Mapping[str, str] = around.get("env") or {}
    if isinstance(target, str):
        path = os.path.abspath(target)
        return [PROGRAMS[os.path.splitext(path)[1].lower()], path], env, None
    return list(target), env, None


async def _talk(patient: Patient, around: Mapping[str, Any]) -> Talk:
    wanted = patient.revision or None
    return await converse(patient.target, around, wanted, patient.timeout_s)


def _spoken(talk: Talk, patient: Patient) -> list[Check]:
    made = [revision_check(talk, patient.revision)]
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
    there = Endpoint(parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme])
    timeout_s = patient.timeout_s
    async with aclosing(line_checks(there, timeout_s)) as checks:
        async for check in checks:
            yield check
    pool = HttpPool()
    try:
        try:
            found = await probe(pool, url, headers, timeout_s)
        except ColonnadeError as error:
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
    secure = url.startswith("https:") or is_this_machine(urlsplit(url).hostname or "")
    auth = None if own or not secure else KeptLogin(keep=True)
    held = locked = None
    try:
        held = await kept_login(auth, url) if auth is not None else None
    except ColonnadeError as error:  # what is kept cannot be read, or must not be
        locked = error
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
    if locked is not None:
        words, _, mend = str(locked).partition("; ")
        yield failed(AUTHORIZED, code_of(locked), one_line(words), one_line(mend) or "mend it")
    yield authorization_check(url, asked, Shown(own, held is not None), talk.refused)
    for check in _spoken(talk, patient):
        yield check


async def _at_another_path(pool: HttpPool, http: Check, found: Probe, patient: Patient) -> Check:
    if 300 <= found.status < 400 or found.status >= 500:
        return http
    return await found_beside(pool, http, found.url, patient.timeout_s)


FILE, TRUST, VARIABLES = "file", "trust", "variables"


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
    wrong: dict[str, list[HostProblem]] = {}
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


async def _broken(problems: Iterable[HostProblem]) -> Checks:
    """What is wrong with an entry, or a file; the first of it."""
    told, *others = problems
    where = f"{_relative(told)}: " if told.place is not None else ""
    name = VARIABLES if told.unresolved else FILE
    if name == VARIABLES:
        yield fine(FILE, f"{told.place.file if told.place is not None else 'it'} can be read")
    lines = [one_line(str(one)) for one in others]
    mend = one_line(told.hint) or "mend the file at that place"
    yield failed(name, USAGE, f"{where}{one_line(told.summary)}", mend, lines)


def _relative(problem: HostProblem) -> str:
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
    entry: ServerEntry, terms: Terms, odd: list[HostProblem], agreed: bool, planned: list[str]
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


def _said(entry: ServerEntry, odd: list[HostProblem]) -> Check:
    where = _relative(HostProblem("", "", entry.place)) if entry.place is not None else "a program"
    if odd:
        lines = [one_line(str(one)) for one in odd]
        return warned(FILE, f"{where} can be read, and says odd things", "mend them", lines)
    return fine(FILE, f"{where} can be read")
