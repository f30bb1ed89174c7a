"""Remembered decisions for `colonnade policy`: in files of the user, and in sessions of hosts that
run.

Rules: a host that does not respond is left out. Nothing but a remembered decision is removed.
"""

import asyncio
import contextlib
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.cli.errors import USAGE, CliError
from colonnade.cli.terminal import Terminal, columns
from colonnade.errors import ColonnadeError
from colonnade.host.policy.approvals.control import ControlClient, ControlRequest, find_sockets
from colonnade.host.policy.approvals.remembered import RememberedRule, RememberedRules
from colonnade.host.policy.request import Decision, PolicyRequest
from colonnade.text import clean, cut, one_line


async def remembered_rules() -> list[RememberedRule]:
    """All remembered decisions, those of running sessions first."""
    found: dict[str, RememberedRule] = {}
    with contextlib.suppress(ColonnadeError):  # without a folder for sockets there is no session
        for path in await find_sockets():
            with contextlib.suppress(ColonnadeError):
                async with ControlClient(path) as client:
                    for rule in (await client.request(ControlRequest(do="rules"))).rules:
                        found.setdefault(rule.id, rule)
    return [*found.values(), *RememberedRules().list()]


def remembered_rows() -> list[list[str]]:
    """A row for each remembered decision: its id, what it decides, about what, and where."""
    return [_row(one) for one in asyncio.run(remembered_rules())]


def _row(rule: RememberedRule) -> list[str]:
    about = f"server = {rule.server}  {rule.method} {rule.qualified or ''}".rstrip()
    if rule.arguments_digest:
        about += f"  arguments = {rule.arguments}"
    if rule.principal:
        about += f"  principal = {rule.principal}"
    where = f"{rule.scope} {rule.project}".rstrip()
    return [rule.id, rule.action, clean(where), clean(about)]


def remembered_to_json() -> list[dict[str, Any]]:
    """Remembered decisions as JSON."""
    return [rule_to_json(one) for one in asyncio.run(remembered_rules())]


def rule_to_json(rule: RememberedRule) -> dict[str, Any]:
    """One of them as JSON."""
    return {
        "id": rule.id,
        "action": rule.action,
        "scope": rule.scope,
        "project": rule.project,
        "server": rule.server,
        "method": rule.method,
        "name": rule.qualified,
        "principal": rule.principal,
        "arguments": rule.arguments,
        "createdAt": rule.created_at,
    }


def said_of(rule: RememberedRule) -> str:
    """The rule that an answer has made, where it holds, and how it is removed."""
    where = {
        "session": "until its host ends",
        "project": f"for hosts in {one_line(rule.project)}",
        "always": "for all hosts of this user",
    }[rule.scope]
    unchanged = ", as long as its definition is the same" if rule.definition_digest else ""
    return (
        f"  rule {rule.id}: {clean(rule.sentence)}\n"
        f"  it decides where the policy asks, {where}{unchanged}\n"
        f"  `colonnade policy forget {rule.id}` removes it\n"
    )


def deciding_rule(request: PolicyRequest, decision: Decision) -> RememberedRule | None:
    """The remembered decision that answers where the rules ask, as a host in this folder would find
    it; a denial before an approval. Those of a session hold for one running host only. It does not
    start the server, so its definition is not known: the rule counts if that is the one that the
    person saw."""
    if decision.action != "ask":
        return None
    rules, project = asyncio.run(remembered_rules()), RememberedRules().project
    fits = [
        one
        for one in rules
        if one.scope != "session" and one.matches(_as_seen(request, one), decision, project)
    ]
    return min(fits, key=lambda one: one.action != "deny", default=None)


def _as_seen(request: PolicyRequest, rule: RememberedRule) -> PolicyRequest:
    """A request with what only a host knows of it: the definition, and how its client has written
    the arguments."""
    arguments = request.arguments
    with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        # As JSON: in Python `true` equals 1, and 1 equals 1.0.
        if rule.arguments and _sorted(msgspec.json.decode(rule.arguments)) == _sorted(
            request.decoded_arguments
        ):
            arguments = Raw(rule.arguments.encode())
    return replace(
        request,
        arguments=arguments,
        identity=request.identity or rule.identity,
        definition_digest=rule.definition_digest,
    )


def _sorted(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def show_remembered(terminal: Terminal) -> None:
    """List the remembered decisions, if there are any."""
    rows = remembered_rows()
    if rows:
        terminal.write("remembered decisions, where the rules ask:\n")
        terminal.write(columns(rows, indent=0, most=terminal.width))


def forget_rule(id: str) -> int:
    """Remove a remembered decision; return the exit code. Raises `CliError`."""
    removed = asyncio.run(_forget(id.strip().lower()))
    if not removed:
        raise CliError(
            f"there is no remembered decision {cut(clean(id), 40)}",
            USAGE,
            hint="colonnade policy ls lists them",
        )
    Terminal().note(f"forgotten: {removed.sentence}\n")
    return 0


async def _forget(id: str) -> RememberedRule | None:
    rules = [one for one in await remembered_rules() if one.id == id]
    if not rules:
        return None
    RememberedRules().remove(id)
    with contextlib.suppress(ColonnadeError):
        for path in await find_sockets():
            with contextlib.suppress(ColonnadeError):
                async with ControlClient(path) as client:
                    await client.request(ControlRequest(do="forget", id=id))
    return rules[0]
