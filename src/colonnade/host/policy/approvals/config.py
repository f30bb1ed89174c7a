"""`[approvals]` of `colonnade.toml`: where a host asks, and how long it waits.

    [approvals]
    socket = true          # `colonnade inbox` answers; the default
    store = "inbox.db"     # SQLite, beside this file: survives a restart. Without it, in memory
    wait_s = 120           # how long a call waits for its approval
    usable_s = 600         # how long the identical call can use one that was granted later
    deadline_s = 600       # how long an item waits for an answer

Rules: nothing is opened here but by `make_inbox`. A table with an error is not used at all: then
nothing can be asked, and what needs an approval is refused.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from colonnade.host.config.entry import SourceNode
from colonnade.host.config.files import ConfigFile
from colonnade.host.config.settings import HostProblem
from colonnade.host.policy.approvals.inbox import DEADLINE_S, USABLE_S, WAIT_S, Inbox
from colonnade.text import closest

# A day: longer than that a person has forgotten what the call was for.
MAX_S: Final = 24 * 3600.0

HINT: Final = "what needs an approval is refused until this is fixed"


class ApprovalSettings(Struct, frozen=True, kw_only=True):
    """The settings of `[approvals]`. `store` is a path, empty for memory."""

    socket: bool = sys.platform != "win32"
    store: str = ""
    wait_s: float = WAIT_S
    usable_s: float = USABLE_S
    deadline_s: float = DEADLINE_S


def approvals_of(
    files: Sequence[ConfigFile], problems: list[HostProblem], warnings: list[HostProblem]
) -> ApprovalSettings | None:
    """The settings of the first file that has them; None if they have an error, which is added to
    `problems`."""
    first, *others = [one for one in files if one.approvals is not None]
    for one in others:
        assert one.approvals is not None
        message = f"ignored: {first.file} has [approvals] already"
        warnings.append(HostProblem("", message, one.approvals.place))
    assert first.approvals is not None
    found = list(_problems(first.approvals))
    problems += found
    if found:
        return None
    given: dict[str, Any] = dict(first.approvals.value)
    if given.get("store"):
        given["store"] = os.path.join(
            os.path.dirname(first.file), os.path.expanduser(given["store"])
        )
    return ApprovalSettings(**given)


def _problems(node: SourceNode) -> list[HostProblem]:
    if node.members is None:
        return [HostProblem("", "expected a table", node.place, hint=HINT)]
    found: list[HostProblem] = []
    for key, one in node.members.items():
        summary, hint = _problem(key, one.value)
        if summary:
            found.append(HostProblem("", summary, one.place, hint=hint or HINT))
    return found


def _problem(key: str, value: object) -> tuple[str, str]:
    known = ApprovalSettings.__struct_fields__
    if key not in known:
        near = closest(key, known)
        hint = f"did you mean {near}?" if near else f"known keys: {', '.join(known)}"
        return "unknown key", hint
    if key == "socket":
        return ("", "") if isinstance(value, bool) else ("expected true or false", "")
    if key == "store":
        return ("", "") if isinstance(value, str) else ("expected the path of a file", "")
    least = 0.0 if key == "wait_s" else 1.0
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= MAX_S:
        return "", ""
    return f"expected seconds, {least:g} to {MAX_S:g}", ""


def make_inbox(settings: ApprovalSettings) -> Inbox:
    """The inbox of these settings. Its owner closes it and its store."""
    store = None
    if settings.store:
        from colonnade.store.sqlite import SqliteStore

        store = SqliteStore(settings.store)
    return Inbox(
        store,
        socket=settings.socket,
        wait_s=settings.wait_s,
        usable_s=settings.usable_s,
        deadline_s=settings.deadline_s,
    )
