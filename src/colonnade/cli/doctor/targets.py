"""The servers that doctor checks, and the sequence of checks for each.

Rules: nothing is started and no URL is opened here; the checks do that. A problem of one server in
a configuration file does not affect the checks of others.
"""

import ast
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlsplit

from colonnade.auth.ssrf import is_loopback_host
from colonnade.auth.urls import DEFAULT_PORTS
from colonnade.cli.config_target import TrustPrompt, configuration
from colonnade.cli.connections import NonInteractiveLogin
from colonnade.cli.doctor.check import Check, Checks, failed, ok, skipped, warned
from colonnade.cli.doctor.command import COMMAND, PROCESS, command_check
from colonnade.cli.doctor.conversation import (
    CONVERSATION_CHECKS,
    ConversationResult,
    lists_check,
    open_conversation,
    process_check,
    revision_check,
    schema_check,
)
from colonnade.cli.doctor.network import (
    AUTHORIZATION_CHECK,
    HTTP,
    METADATA,
    NETWORK_CHECKS,
    HostPort,
    HttpProbe,
    SentCredentials,
    at_usual_path,
    authorization_check,
    http_check,
    http_failure,
    metadata_check,
    network_checks,
    probe,
    speaks_tls,
)
from colonnade.cli.errors import USAGE, CliError, exit_code
from colonnade.cli.loader import parse_server_file
from colonnade.cli.options import (
    SCRIPT_SUFFIXES,
    ConnectionOptions,
    ResolvedTarget,
    is_configuration,
    locate_target,
    resolve_target,
    shown_configuration,
)
from colonnade.cli.terminal import Terminal
from colonnade.client.auth import stored_login
from colonnade.client.connect import PROGRAMS, ConnectContext, transport_for
from colonnade.errors import ColonnadeError, ConnectionLost, LocalProtocolError, RemoteProtocolError
from colonnade.host.config.settings import Config, HostProblem, Place, ServerEntry
from colonnade.host.servers.supervisor import sandbox_for
from colonnade.text import one_line
from colonnade.transport.http_client.pool import HttpPool

URL_PLAN: Final = (*NETWORK_CHECKS, HTTP, METADATA, AUTHORIZATION_CHECK, *CONVERSATION_CHECKS)
COMMAND_PLAN: Final = (COMMAND, PROCESS, *CONVERSATION_CHECKS)


class CheckedServer(NamedTuple):
    """A server to check: its target, and the commands that show more about it."""

    target: Any
    transport_options: dict[str, Any]
    timeout_s: float
    # The arguments of `colonnade inspect` for it, and the command line that runs it.
    inspect_arguments: str
    command_line: str = ""
    revision: str = ""

    @property
    def inspect(self) -> str:
        """The fix for lint findings."""
        return f"see colonnade inspect {self.inspect_arguments}"

    @property
    def fix(self) -> str:
        """The fix for a process that exited without a known error."""
        return f"run it in a terminal: {self.command_line}"

    @property
    def url(self) -> str:
        """The URL; empty for a process."""
        target: object = self.target
        if isinstance(target, Mapping):
            return str(cast("Mapping[str, Any]", target).get("url") or "")
        return target if isinstance(target, str) and "://" in target else ""


# ---------------------------------------------------------------- process


async def command_checks(server: CheckedServer) -> Checks:
    """All checks of a server that is started as a process."""
    argv, env, cwd = _process_arguments(server)
    yield command_check(argv, env, cwd)
    result = await _converse(server, server.transport_options)
    yield process_check(result, server.fix)
    for check in _conversation_checks(result, server):
        yield check


def _process_arguments(server: CheckedServer) -> tuple[list[str], Mapping[str, str], str | None]:
    """The command line, the environment and the directory of the process."""
    target, transport_options = server.target, server.transport_options
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        message = [str(word) for word in (entry["command"], *(entry.get("args") or ()))]
        return (
            message,
            {**(entry.get("env") or {}), **transport_options.get("env", {})},
            entry.get("cwd"),
        )
    env: Mapping[str, str] = transport_options.get("env") or {}
    if isinstance(target, str):
        path = os.path.abspath(target)
        return [PROGRAMS[os.path.splitext(path)[1].lower()], path], env, None
    return list(target), env, None


async def _converse(
    server: CheckedServer, transport_options: Mapping[str, Any]
) -> ConversationResult:
    wanted = server.revision or None
    return await open_conversation(server.target, transport_options, wanted, server.timeout_s)


def _conversation_checks(result: ConversationResult, server: CheckedServer) -> list[Check]:
    made = [revision_check(result, server.revision)]
    if result.error is None:
        made.append(lists_check(result))
        if result.listing is not None:
            made.append(schema_check(result.listing, server.inspect))
    return made


# ---------------------------------------------------------------- URL


async def url_checks(server: CheckedServer) -> Checks:
    """All checks of a server at a URL."""
    url, headers = _url_and_headers(server)
    parts = urlsplit(url)
    there = HostPort(parts.scheme, parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme])
    timeout_s = server.timeout_s
    async with aclosing(network_checks(there, timeout_s)) as checks:
        async for check in checks:
            yield check
    pool = HttpPool()
    try:
        try:
            found = await probe(pool, url, headers, timeout_s)
        except ColonnadeError as error:
            warnings = isinstance(error, RemoteProtocolError | ConnectionLost)
            plain = parts.scheme == "http" and warnings
            yield http_failure(error, plain and await speaks_tls(there, timeout_s))
            return
        async with aclosing(_response_checks(server, pool, found, headers)) as checks:
            async for check in checks:
                yield check
    finally:
        await pool.close()


def _url_and_headers(server: CheckedServer) -> tuple[str, list[tuple[str, str]]]:
    """The URL of a server, and the headers for it."""
    target = server.target
    given: list[tuple[str, str]] = list(server.transport_options.get("headers") or [])
    if isinstance(target, Mapping):
        entry = cast("Mapping[str, Any]", target)
        return str(entry["url"]), [*(entry.get("headers") or {}).items(), *given]
    return target, given


async def _response_checks(
    server: CheckedServer, pool: HttpPool, probe: HttpProbe, headers: Sequence[tuple[str, str]]
) -> Checks:
    url = probe.url
    http = http_check(probe)
    if http.state == "failed" and not 400 <= probe.status < 500:
        yield await _try_default_path(pool, http, probe, server)
        return
    own_token = any(name.lower() == "authorization" for name, _ in headers)
    secure = url.startswith("https:") or is_loopback_host(urlsplit(url).hostname or "")
    auth = None if own_token or not secure else NonInteractiveLogin(keep=True)
    stored = storage_error = None
    try:
        stored = await stored_login(auth, url) if auth is not None else None
    except ColonnadeError as error:  # the stored login cannot be read
        storage_error = error
    result = await _converse(
        server, {**server.transport_options, "auth": auth} if auth else server.transport_options
    )
    if http.state == "failed":  # a server of the first revision rejects this request
        if result.error is not None and result.refused is None:
            yield await _try_default_path(pool, http, probe, server)
            return
        http = ok(HTTP, f"it responds, after {probe.status} to the first request")
    yield http
    asked = probe.unauthorized or result.refused is not None
    if own_token or not probe.unauthorized:
        why = "you send a token of your own" if own_token else "no authentication required"
        yield skipped(METADATA, why)
    else:
        yield await metadata_check(pool, probe)
    if storage_error is not None:
        message, fix = one_line(storage_error.summary), one_line(storage_error.hint)
        code = exit_code(storage_error)
        yield failed(AUTHORIZATION_CHECK, code, message, fix or "log in again")
    yield authorization_check(
        url, asked, SentCredentials(own_token, stored is not None), result.refused
    )
    for check in _conversation_checks(result, server):
        yield check


async def _try_default_path(
    pool: HttpPool, http: Check, probe: HttpProbe, server: CheckedServer
) -> Check:
    if 300 <= probe.status < 400 or probe.status >= 500:
        return http
    return await at_usual_path(pool, http, probe.url, server.timeout_s)


FILE, TRUST, VARIABLES = "file", "trust", "variables"


class DoctorTarget(NamedTuple):
    """A server to check: its name, and its checks."""

    server: str
    shown: str
    # The names of the checks; more are added when the entry of a file is resolved.
    planned: list[str]
    checks: Checks


def doctor_targets(options: ConnectionOptions, terminal: Terminal) -> list[DoctorTarget]:
    """All servers of the target. Raises `CliError`.

    Call it outside of an event loop: it may prompt for trust.
    """
    if is_configuration(options.target):
        trust_prompt = TrustPrompt()
        return _config_targets(
            configuration(options, terminal, trust_prompt), options, trust_prompt
        )
    return [_single_target(options)]


# ---------------------------------------------------------------- one server


def _single_target(options: ConnectionOptions) -> DoctorTarget:
    target = options.target
    if isinstance(target, str) and "://" not in target:
        return _file_target(target, options)
    resolved = resolve_target(options)
    shown, transport_options = resolved.shown, _transport_options(resolved)
    if isinstance(resolved.target, str):
        server = CheckedServer(
            resolved.target,
            transport_options,
            options.timeout_s,
            shlex.quote(shown),
            revision=options.revision,
        )
        return DoctorTarget(shown, shown, [*URL_PLAN], url_checks(server))
    message = shlex.join(resolved.target)
    server = CheckedServer(
        resolved.target,
        transport_options,
        options.timeout_s,
        f"-- {message}",
        message,
        revision=options.revision,
    )
    return DoctorTarget(shown, message, [*COMMAND_PLAN], command_checks(server))


def _transport_options(resolved: ResolvedTarget) -> dict[str, Any]:
    names = {"headers": "headers", "env": "env", "server_name": "name"}
    return {names[key]: value for key, value in resolved.options.items() if key in names}


def _file_target(typed: str, options: ConnectionOptions) -> DoctorTarget:
    planned = [FILE, *COMMAND_PLAN]
    try:
        target, shown, uses_colonnade = locate_target(options)
    except CliError as error:
        return DoctorTarget(typed, typed, planned, _missing_file_check(error))
    file = (
        parse_server_file(typed).path
        if uses_colonnade
        else target[-1]
        if isinstance(target, list)
        else target
    )
    interpreter = "node" if file.endswith(SCRIPT_SUFFIXES) else "python"
    program = "colonnade run" if uses_colonnade else interpreter
    quoted = shlex.quote(shown)
    transport_options = _transport_options(resolve_target(options))
    server = CheckedServer(
        target,
        transport_options,
        options.timeout_s,
        quoted,
        f"{program} {quoted}",
        options.revision,
    )
    return DoctorTarget(typed, typed, planned, _file_checks(file, shown, server))


async def _missing_file_check(error: CliError) -> Checks:
    fix = one_line(error.hint) or "check the name"
    yield failed(FILE, USAGE, one_line(error.summary), fix)


async def _file_checks(file: str, shown: str, server: CheckedServer) -> Checks:
    yield file_check(os.path.relpath(file)) if file else ok(FILE, f"{shown} is a module")
    async with aclosing(command_checks(server)) as checks:
        async for check in checks:
            yield check


def file_check(path: str) -> Check:
    """Check that a file can be read, and that Python can parse it."""
    shown = one_line(path)
    if not path.endswith((".py", ".pyw")):
        return ok(FILE, f"{shown} exists")
    try:
        with open(path, "rb") as file:
            ast.parse(file.read(), path)
    except SyntaxError as error:
        where = f"{shown}:{error.lineno or 1}:{error.offset or 1}"
        fix = "fix the syntax of that line"
        return failed(FILE, USAGE, f"{where}: {one_line(error.msg)}", fix)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        message = f"{shown} cannot be read: {one_line(why).lower()}"
        return failed(FILE, USAGE, message, "check its permissions")
    return ok(FILE, f"{shown} is valid Python")


# ---------------------------------------------------------------- configuration file


def _config_targets(
    config: Config, options: ConnectionOptions, trust_prompt: TrustPrompt
) -> list[DoctorTarget]:
    """A target for each server of a file; one for the file itself if it is broken, and one for all
    of its servers if it is not trusted."""
    file = shown_configuration(options)
    wrong: dict[str, list[HostProblem]] = {}
    for problem in config.problems:
        wrong.setdefault(problem.server, []).append(problem)
    by_line: list[tuple[int, DoctorTarget]] = []
    for key, problems in wrong.items():
        refused = trust_prompt.refused.get(key)
        alike = [
            one for one in wrong if refused is not None and trust_prompt.refused.get(one) == refused
        ]
        if alike[1:] and key != alike[0]:
            continue
        checks = _untrusted_checks(refused) if refused is not None else _problem_checks(problems)
        target = DoctorTarget(
            ", ".join(alike) or key or file, file, [FILE, TRUST, VARIABLES], checks
        )
        by_line.append((_line(problems[0].place) if key else 0, target))
    for key, entry in config.entries.items():
        warnings = [one for one in config.warnings if one.server == key]
        planned = [FILE, VARIABLES]
        checks = _entry_checks(entry, options, warnings, key in trust_prompt.agreed, planned)
        by_line.append((_line(entry.place), DoctorTarget(key, entry.shown, planned, checks)))
    targets = [target for _, target in sorted(by_line, key=lambda one: one[0])]
    if not targets:
        targets.append(DoctorTarget(file, file, [FILE], _empty_checks(file)))
    return targets


def _line(locate_target: Place | None) -> int:
    return locate_target.line if locate_target is not None else 0


async def _problem_checks(problems: Iterable[HostProblem]) -> Checks:
    """The problems of an entry or a file: the first as a failure, with the others below."""
    first, *others = problems
    where = f"{_relative(first)}: " if first.place is not None else ""
    name = VARIABLES if first.unresolved else FILE
    if name == VARIABLES:
        yield ok(FILE, f"{first.place.file if first.place is not None else 'the file'} is valid")
    lines = [one_line(str(one)) for one in others]
    fix = one_line(first.hint) or "fix the file at that place"
    yield failed(name, USAGE, f"{where}{one_line(first.summary)}", fix, lines)


def _relative(problem: HostProblem) -> str:
    """The place of a problem, relative to the working directory."""
    assert problem.place is not None
    file, line, column, key = problem.place
    near = os.path.relpath(file)
    shown = near if not near.startswith("..") else file
    return one_line(f"{shown}:{line}:{column}: {key}" if key else f"{shown}:{line}:{column}")


async def _untrusted_checks(file: str) -> Checks:
    yield ok(FILE, f"{one_line(file)} is valid")
    message = "the file is not trusted in its current content, so it is not used"
    fix = f"review it, then run colonnade config trust {shlex.quote(file)}"
    yield failed(TRUST, USAGE, message, fix)


async def _empty_checks(file: str) -> Checks:
    yield failed(
        FILE, USAGE, f"{one_line(file)} has no servers", "add one with colonnade add --file"
    )


async def _entry_checks(
    entry: ServerEntry,
    options: ConnectionOptions,
    warnings: list[HostProblem],
    trusted: bool,
    planned: list[str],
) -> Checks:
    """All checks of one server of a configuration file."""
    yield _entry_check(entry, warnings)
    if trusted:
        yield ok(TRUST, "you have just trusted it")
    if not entry.settings.enabled:
        yield Check(VARIABLES, "skipped", "it is disabled")
        return
    try:
        resolved = await entry.resolve()
        around: dict[str, Any] = {"name": entry.key, "sandbox": sandbox_for(entry, resolved)}
        transport_for(resolved, ConnectContext(**around))  # raises for an invalid entry
    except LocalProtocolError as error:
        yield failed(VARIABLES, USAGE, one_line(str(error)), "fix the entry")
        return
    except ColonnadeError as error:
        yield failed(
            VARIABLES, exit_code(error), one_line(str(error)), "set what the entry refers to"
        )
        return
    yield ok(VARIABLES, "all references are resolved")
    settings = entry.settings
    server = CheckedServer(
        resolved,
        around,
        settings.timeout_s,
        f"{_typed_target(options)}--server {shlex.quote(entry.key)}",
        entry.shown,
        settings.revision or "",
    )
    planned += URL_PLAN if server.url else COMMAND_PLAN
    made = url_checks(server) if server.url else command_checks(server)
    async with aclosing(made) as checks:
        async for check in checks:
            yield check


def _typed_target(options: ConnectionOptions) -> str:
    """The target as given before an option; empty if there is none."""
    return f"{shlex.quote(str(options.target))} " if options.target else ""


def _entry_check(entry: ServerEntry, warnings: list[HostProblem]) -> Check:
    where = _relative(HostProblem("", "", entry.place)) if entry.place is not None else "a program"
    if warnings:
        lines = [one_line(str(one)) for one in warnings]
        return warned(FILE, f"{where} is valid, with warnings", "fix the warnings", lines)
    return ok(FILE, f"{where} is valid")
