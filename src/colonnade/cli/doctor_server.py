"""Every check of one server: of one that is started, and of one at an address.

Rules: what was given for a server goes to that server. No browser is opened: a login that is kept
is used, and where there is none it is said how to get one.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from colonnade.auth.addresses import is_this_machine
from colonnade.auth.places import PORTS
from colonnade.cli.doctor import Check, Checks, failed, fine, skipped
from colonnade.cli.doctor_command import COMMAND, PROCESS, command_check
from colonnade.cli.doctor_http import (
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
from colonnade.cli.doctor_line import LINE, Place, line_checks, speaks_tls
from colonnade.cli.doctor_talk import (
    SPOKEN,
    Talk,
    converse,
    lists_check,
    process_check,
    revision_check,
    schema_check,
)
from colonnade.cli.logins import KeptLogin
from colonnade.cli.text import one_line
from colonnade.cli.trouble import code_of
from colonnade.client.authorizing import kept_login
from colonnade.client.targets import PROGRAMS
from colonnade.errors import ColonnadeError, ConnectionLost, RemoteProtocolError
from colonnade.transport.http_client import HttpPool

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
    there = Place(parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme])
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
