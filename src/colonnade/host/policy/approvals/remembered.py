"""Remembered decisions: the answers of a person that are rules from then on.

A person who is asked about a call may remember the answer for the session, for the project or for
always. It is a rule for that tool of that server with the definition that the person saw, and is
used where the policy says `ask`; a rule that says `deny` is never overruled.

Rules: a remembered decision is never written to a file of a project. Each is a file of its own that
only the user can read, and counts only if no other user could have written it. If the arguments
made the policy ask, the decision is for exactly these arguments.
"""

import contextlib
import hashlib
import logging
import os
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Refused
from colonnade.host.policy.approvals.inbox import InboxItem
from colonnade.host.policy.request import Decision, PolicyRequest
from colonnade.text import one_line

log: logging.Logger = logging.getLogger("colonnade.host")

FOLDER: Final = "remembered"
ID_CHARACTERS: Final = 8
# Rules of one scope: a person has seen each of them.
MAX_RULES: Final = 1000
# A record has names and digests.
MAX_RULE_BYTES: Final = 64 * 1024
# Of the arguments of a rule for exactly these arguments, in characters.
MAX_SHOWN: Final = 200
# A folder that was changed within this time is read each time: another change may have the same
# time, which file systems keep in steps of up to two seconds.
SETTLED_NS: Final = 3_000_000_000

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH

KeptScope: TypeAlias = Literal["session", "project", "always"]


class RememberedRule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A remembered decision. `project` is its folder, for the scope `project`; `arguments_digest`
    is empty for all arguments, and `arguments` is what is shown of them."""

    id: str
    action: Literal["allow", "deny"]
    scope: KeptScope
    server: str
    identity: str
    method: str
    name: str
    qualified: str
    created_at: float
    definition_digest: str = ""
    principal: str = ""
    project: str = ""
    arguments_digest: str = ""
    arguments: str = ""

    @property
    def sentence(self) -> str:
        """The rule, for people."""
        about = one_line(self.qualified or self.method)
        exactly = f" with {one_line(self.arguments)}" if self.arguments_digest else ""
        whom = f" for {one_line(self.principal)}" if self.principal else ""
        where = f" in {one_line(self.project)}" if self.project else ""
        return f"{self.action} {about}{exactly}{whom} (remembered: {self.scope}{where})"

    def matches(self, request: PolicyRequest, decision: Decision, project: str) -> bool:
        """Whether this rule decides a request that the policy asks about."""
        exactly = request.arguments_digest + request.meta_digest if decision.by_arguments else ""
        return (
            self.principal == request.principal
            and self.identity == request.identity
            and self.server == request.server
            and self.method == request.method
            and self.name == request.name
            and self.definition_digest == request.definition_digest
            and self.arguments_digest == exactly
            and (self.scope != "project" or self.project == project)
        )


_decoder = msgspec.json.Decoder(RememberedRule)


def rule_of(item: InboxItem, scope: KeptScope, project: str, now: float) -> RememberedRule:
    """The rule that remembers the answer to an item."""
    exactly = ""
    if item.by_arguments:
        exactly = hashlib.sha256(item.content.encode()).hexdigest()
        exactly += hashlib.sha256(item.meta.encode()).hexdigest() if item.meta else ""
    folder = project if scope == "project" else ""
    parts = (scope, folder, item.principal, item.server, item.identity)
    digest = hashlib.sha256(msgspec.json.encode((*parts, item.method, item.own_name, exactly)))
    return RememberedRule(
        id=digest.hexdigest()[:ID_CHARACTERS],
        action="allow" if item.state in ("accepted", "used") else "deny",
        scope=scope,
        server=item.server,
        identity=item.identity,
        method=item.method,
        name=item.own_name,
        qualified=item.name,
        created_at=now,
        definition_digest=item.definition_digest,
        principal=item.principal,
        project=folder,
        arguments_digest=exactly,
        arguments=item.content[:MAX_SHOWN] if exactly else "",
    )


class RememberedRules:
    """The remembered decisions: those of this session, and those in files of the user.

    `project` is the folder that `project` stands for, by default the current one; `folder` is where
    the files are, by default in the user's folder of state.
    """

    def __init__(self, *, project: str | None = None, folder: Path | None = None) -> None:
        self.project: str = os.path.realpath(project or os.getcwd())
        self._folder = folder
        self._session: dict[str, RememberedRule] = {}
        self._read_at = -1
        self._kept: tuple[RememberedRule, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        if self._folder is not None:
            return self._folder
        from colonnade.client.auth import storage_folder  # on use: it loads what logins need

        return storage_folder() / FOLDER

    def find(self, request: PolicyRequest, decision: Decision) -> RememberedRule | None:
        """The rule that decides a request; a denial before an approval."""
        fits = [one for one in self.list() if one.matches(request, decision, self.project)]
        return min(fits, key=lambda one: one.action != "deny", default=None)

    def list(self) -> list[RememberedRule]:
        """All rules, those of the session first."""
        return [*self._session.values(), *self._files()]

    def _files(self) -> tuple[RememberedRule, ...]:
        """The rules in files, which are read again if the folder has changed."""
        try:
            changed_at = self.folder.stat().st_mtime_ns
        except OSError:
            return ()
        if changed_at != self._read_at:
            self._kept = tuple(read_rules(self.folder))
            self._read_at = changed_at if time.time_ns() - changed_at > SETTLED_NS else -1
        return self._kept

    def add(self, item: InboxItem, scope: KeptScope) -> RememberedRule:
        """Remember the answer to an item. Raises `Refused` if it cannot be stored."""
        rule = rule_of(item, scope, self.project, time.time())
        if scope == "session":
            if len(self._session) >= MAX_RULES and rule.id not in self._session:
                raise Refused(f"this session remembers {MAX_RULES} decisions; remove some")
            self._session[rule.id] = rule
        else:
            if len(self._files()) >= MAX_RULES:
                raise Refused(f"{MAX_RULES} decisions are remembered; remove some")
            write_rule(self.folder, rule)
            self._read_at = -1
        return rule

    def made_by(self, item: InboxItem) -> RememberedRule | None:
        """The rule that an answer has made; None if it made none, or could not be remembered."""
        scope = item.answer.remember if item.answer is not None else ""
        if not scope:
            return None
        made = rule_of(item, scope, self.project, 0.0)
        for one in self.list():
            if replace(one, created_at=0.0) == made:
                return one
        return None

    def remove(self, id: str) -> bool:
        """Remove a rule by its id; whether there was one."""
        self._read_at = -1
        in_session = self._session.pop(id, None) is not None
        return remove_rule(self.folder, id) or in_session

    def forget_session(self) -> None:
        """Remove the rules of the session."""
        self._session.clear()


# ---------------------------------------------------------------- files


def read_rules(folder: Path) -> Iterable[RememberedRule]:
    """The rules of a folder, the oldest first. What another user could have written is skipped."""
    found: list[RememberedRule] = []
    with contextlib.suppress(OSError):
        if not is_own(folder.stat()):
            log.warning("%s is not used: another user can write to it", folder)
            return found
        for path in sorted(folder.glob("*.json"))[:MAX_RULES]:
            rule = _read_rule(path)
            if rule is not None:
                found.append(rule)
    return sorted(found, key=lambda one: one.created_at)


def _read_rule(path: Path) -> RememberedRule | None:
    try:
        with open(path, "rb") as opened:
            seen = os.fstat(opened.fileno())
            rule = _decoder.decode(opened.read(MAX_RULE_BYTES + 1))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if not is_own(seen):
        log.warning("%s is not used: another user could have written it", path)
        return None
    return rule if rule.scope != "session" and path.stem == rule.id else None


def is_own(seen: os.stat_result) -> bool:
    """Whether only the user of this process could have written a file or to a folder."""
    if sys.platform == "win32":
        return True
    return seen.st_uid == os.getuid() and not seen.st_mode & _OTHERS_WRITE


def write_rule(folder: Path, rule: RememberedRule) -> None:
    """Write a rule to its file. Raises `Refused`."""
    from colonnade.client.auth import write_private  # on use

    try:
        write_private(folder / f"{rule.id}.json", msgspec.json.encode(rule))
    except OSError as error:
        raise Refused(f"it cannot be remembered in {folder}: {error.strerror}") from None


def remove_rule(folder: Path, id: str) -> bool:
    """Delete the file of a rule; whether there was one. Raises `Refused`."""
    if not (id.isascii() and id.isalnum()):
        return False
    try:
        (folder / f"{id}.json").unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Refused(f"it cannot be forgotten: {error.strerror}") from None
    return True
