"""The table `[audit]` of `colonnade.toml`: where the audit log is, and what is in it.

    [audit]
    path = "/var/log/colonnade"    # a folder; by default one in the folder of the user
    required = true                # a call is sent only once it is recorded
    contents = "arguments"         # "none", "arguments" or "all"
    redact = ["iban"]              # further names of members that are not recorded
    heads = "heads.db"             # a file that has the last line of each run

Rules: an invalid value is a problem with its place, and never makes the log say or demand less than
a valid one would. The table of a file that has to be trusted and is not has no influence, and one
of a file that is trusted none if another file has one that needs no trust: a project does not
decide what the user can find out later.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from colonnade.host.config.entry import SourceNode
from colonnade.host.config.settings import AuditSettings, HostProblem
from colonnade.host.policy.audit.lines import CONTENTS
from colonnade.text import closest

# Of a path that is in the home folder of the user.
HOME: Final = "~/"
KEYS: Final = ("path", "required", "contents", "redact", "heads")

Wrong: TypeAlias = Callable[[SourceNode, str], None]


def read_audit_table(
    node: SourceNode, *, home: str, problems: list[HostProblem]
) -> AuditSettings | None:
    """The settings of a table; None if it is not a table."""

    def wrong(at: SourceNode, summary: str) -> None:
        problems.append(HostProblem("", summary, at.place))

    if node.members is None:
        wrong(node, "expected a table: [audit]")
        return None
    for key, member in node.members.items():
        if key not in KEYS:
            near = closest(key, KEYS)
            hint = f"did you mean {near}?" if near else f"keys are {', '.join(KEYS)}"
            wrong(member, f"unknown key; {hint}")
    folder = os.path.dirname(node.place.file)
    return AuditSettings(
        path=_path(node.get("path"), folder, home, wrong),
        required=_required(node.get("required"), wrong),
        contents=_contents(node.get("contents"), wrong),
        redact=_names(node.get("redact"), wrong),
        heads=_path(node.get("heads"), folder, home, wrong),
        place=node.place,
    )


def _path(node: SourceNode | None, folder: str, home: str, wrong: Wrong) -> str:
    if node is None:
        return ""
    value: Any = node.value
    if not isinstance(value, str) or not value or "\0" in value:
        wrong(node, "expected a path")
        return ""
    if value.startswith(HOME):
        return os.path.join(home, value[len(HOME) :])
    return os.path.normpath(os.path.join(folder, value))


def _required(node: SourceNode | None, wrong: Wrong) -> bool:
    if node is None:
        return False
    if not isinstance(node.value, bool):
        wrong(node, "expected true or false; taken as true")
        return True
    return node.value


def _contents(node: SourceNode | None, wrong: Wrong) -> str:
    if node is None or node.value in CONTENTS:
        return "none" if node is None else node.value
    wrong(node, f"expected one of {', '.join(map(repr, CONTENTS))}; taken as 'none'")
    return "none"


def _names(node: SourceNode | None, wrong: Wrong) -> tuple[str, ...]:
    if node is None:
        return ()
    value: Any = node.value
    names = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not all(isinstance(one, str) and one for one in names):
        wrong(node, "expected a list of names")
    return tuple(one for one in names if isinstance(one, str) and one)


def chosen(found: Sequence[AuditSettings], warnings: list[HostProblem]) -> AuditSettings | None:
    """The settings of the first file that has some; there is one log."""
    for other in found[1:]:
        first = found[0].place
        message = f"not used: {first.file}:{first.line} has a table of the same name"
        warnings.append(HostProblem("", message, other.place))
    return found[0] if found else None
