"""Remembered decisions for `colonnade policy`: in files of the user, and in sessions of hosts that
run.

Rules: a host that does not respond is left out. Nothing but a remembered decision is removed.
"""

import asyncio
import contextlib
from typing import Any

from colonnade.cli.errors import USAGE, CliError
from colonnade.cli.terminal import Terminal, columns
from colonnade.errors import ColonnadeError
from colonnade.host.policy.approvals.control import ControlClient, ControlRequest, find_sockets
from colonnade.host.policy.approvals.remembered import RememberedRule, RememberedRules
from colonnade.text import clean, cut


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
    return [
        {
            "id": one.id,
            "action": one.action,
            "scope": one.scope,
            "project": one.project,
            "server": one.server,
            "method": one.method,
            "name": one.qualified,
            "principal": one.principal,
            "arguments": one.arguments,
            "createdAt": one.created_at,
        }
        for one in asyncio.run(remembered_rules())
    ]


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
