"""Reads the configuration of a host: files of any supported program become server entries and
problems.

    config = read_config(".mcp.json")
    config.entries["git"].shown        # uvx mcp-server-git
    config.problems                    # file, line, column, key, and a message

Rules: nothing is started, and no secret is read: an entry resolves its secrets when its server is
about to be started. An invalid entry affects no other one. A file that has to be trusted and is not
has no influence at all: none of its servers is used, none of its references is resolved, and it
overrides no entry of another file.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from shlex import quote
from typing import Any, TypeAlias

from msgspec.structs import replace

from colonnade.host.config.actions import requested_actions
from colonnade.host.config.entry import EntryDraft, decode_text, merge, shadow
from colonnade.host.config.files import ConfigFile, ReadContext, load, read_bytes
from colonnade.host.config.formats import NAMED, RANKS
from colonnade.host.config.gateway_table import resolve_gateway
from colonnade.host.config.lookups import Inputs, LookupContext, OnInput
from colonnade.host.config.references import InvalidEnvLine, parse_env_file
from colonnade.host.config.resolve import check_env_file, entry_of, env_path
from colonnade.host.config.settings import (
    AuditSettings,
    Config,
    ConfigSyntaxError,
    GatewaySettings,
    HostProblem,
    PinsTable,
    Place,
    ServerEntry,
)
from colonnade.host.config.trust import Trust, digest_of, is_trusted

File: TypeAlias = str | os.PathLike[str]


def read_config(
    paths: File | Sequence[File],
    *,
    trust: Trust = None,
    on_input: OnInput | Inputs | None = None,
    env: Mapping[str, str] | None = None,
    home: str | None = None,
    folder: File | None = None,
    strict: bool = False,
) -> Config:
    """The servers of one file, or of several: of two of one name the first wins.

    Each file is read as its program reads it: Claude Desktop, Claude Code (`.mcp.json`,
    `~/.claude.json`), VS Code, Cursor, Codex, and `colonnade.toml`; the format of any other file is
    detected by its content. Files of one program are ordered by its scopes, not by their order
    here.

    A project's file (`.mcp.json`, `.vscode/mcp.json` …) is used only if it is trusted: `trust` is
    called with the actions that it requests, unless its content was trusted before; True trusts
    everything, None only what was trusted before. With `strict`, every file has to be trusted that
    is not in a place of the user's own. `on_input` answers the inputs of VS Code; an `Inputs` keeps
    the answers for the next time.

    Raises nothing for the content of a file, or for a missing file: that is in `problems`.
    """
    return ConfigReader(
        trust=trust, on_input=on_input, env=env, home=home, folder=folder, strict=strict
    ).read(paths)


class ConfigReader:
    """One pass over the files of a configuration, and its results."""

    def __init__(
        self,
        *,
        trust: Trust = None,
        on_input: OnInput | Inputs | None = None,
        env: Mapping[str, str] | None = None,
        home: str | None = None,
        folder: File | None = None,
        strict: bool = False,
    ) -> None:
        env = os.environ if env is None else env
        home = os.path.expanduser("~") if home is None else home
        where = os.path.abspath(folder if folder is not None else os.getcwd())
        self._trust = trust
        self._read_context = ReadContext(home, where, env, strict)
        inputs = on_input if isinstance(on_input, Inputs) else Inputs(on_input)
        self.context: LookupContext = LookupContext(env, home, inputs, {})
        self.sources: list[ConfigFile] = []
        # Those that were named and may be used.
        self.used: list[ConfigFile] = []
        self.drafts: dict[str, EntryDraft] = {}
        # The problems of the entries that would be used if their file was trusted, by file.
        self.untrusted: dict[str, list[HostProblem]] = {}
        # Of a file that has to be trusted: its path and those of the files that it includes, each
        # with its digest.
        self.included: dict[str, tuple[tuple[str, str], ...]] = {}
        self.problems: list[HostProblem] = []
        self.warnings: list[HostProblem] = []
        # Of the first file that has one and may be used.
        self.gateway: GatewaySettings | None = None
        # The digests and the variable names of `.env` files.
        self._digests: dict[str, str] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def read(self, paths: File | Sequence[File]) -> Config:
        """Read all files."""
        named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        groups = [self._root(self._absolute(os.fspath(path))) for path in named]
        self.drafts = self._join(self._by_program(groups))
        entries: dict[str, ServerEntry] = {}
        for key, draft in self.drafts.items():
            entry = entry_of(draft, self.context, self._digests)
            if entry is not None:
                entries[key] = entry
            self.problems += draft.problems
            self.warnings += draft.warnings
        policy = self._policy(entries)
        audit = self._audit()
        approvals = self._approvals()
        return Config(
            entries=entries,
            problems=_unique(self.problems),
            warnings=_unique(self.warnings),
            gateway=self.gateway,
            policy=policy,
            audit=audit,
            approvals=approvals,
            pins=self._pins(),
        )

    def _audit(self) -> AuditSettings | None:
        """The settings of the audit log, of the first file that has some: first of those that need
        no trust, then of those that are trusted."""
        sources = [one for one in self.sources if one.audit is not None]
        if not sources:
            return None
        from colonnade.host.policy.audit.config import chosen, read_audit_table  # on use

        found: list[AuditSettings] = []
        for source in sorted(sources, key=lambda one: one.needs_trust):
            assert source.audit is not None
            if source not in self.used:
                message = "not used: its file is not trusted, or is included by another one"
                self.warnings.append(HostProblem("", message, source.audit.place))
                continue
            home = self._read_context.home
            settings = read_audit_table(source.audit, home=home, problems=self.problems)
            found += [settings] if settings is not None else []
        return chosen(found, self.warnings)

    def _pins(self) -> PinsTable | None:
        """`[pins]` of all files that may be used: the strictest counts."""
        found: PinsTable | None = None
        for one in self.used:
            if one.pins is not None:
                found = one.pins if found is None else found.combine(one.pins)
        return found

    def _policy(self, servers: Iterable[str]) -> Any:
        """The rules of all files that may be used; None if there are none."""
        files = [one for one in self.used if one.policy is not None or one.has_broken_policy]
        if not files:
            return None
        from colonnade.host.policy.rules.config import policy_of

        return policy_of(files, servers, self.problems, self.warnings)

    def _approvals(self) -> Any:
        """The `[approvals]` of the files that may be used; None if there are none."""
        files = [one for one in self.used if one.approvals is not None]
        if not files:
            return None
        from colonnade.host.policy.approvals.config import approvals_of

        return approvals_of(files, self.problems, self.warnings)

    def _absolute(self, path: str) -> str:
        if path == "~" or path.startswith(("~/", "~\\")):
            path = self._read_context.home + path[1:]
        return os.path.normpath(os.path.join(self._read_context.folder, path))

    # ------------------------------------------------------------ one file

    def _root(self, file: str) -> list[EntryDraft]:
        """The entries of a file that was named, if it may be used."""
        source = load(file, self._read_context)
        parts = [
            load(
                self.context.path(path, source.origin("colonnade", NAMED)),
                self._read_context,
                needs_trust=True if source.needs_trust else None,
            )
            for path, _ in source.includes
        ]
        for one in (source, *parts):
            self.sources.append(one)
            self.problems += one.problems
            self.warnings += one.warnings
            self.context = self.context._replace(
                declared_inputs={**self.context.declared_inputs, one.file: one.inputs}
            )
        for part, (_, node) in zip(parts, source.includes, strict=True):
            if not part.digest:
                self.problems.append(HostProblem("", f"{part.file} cannot be read", node.place))
            if part.includes or part.defaults:
                self.problems.append(
                    HostProblem(
                        "", "an included file cannot include others or have defaults", node.place
                    )
                )
            if part.policy is not None:
                message = "an included file cannot have a policy; name both files instead"
                self.problems.append(HostProblem("", message, part.policy.place))
            if part.approvals is not None:
                message = "an included file cannot have [approvals]; name both files instead"
                self.problems.append(HostProblem("", message, part.approvals.place))
            if part.pins is not None:
                message = "an included file cannot have pins; name both files instead"
                self.problems.append(HostProblem("", message, node.place))
        if source.needs_trust:
            if not self._is_trusted([source, *parts], root=source):
                return []
            usable = parts
        else:
            usable = [part for part in parts if not part.needs_trust or self._is_trusted([part])]
        self.used.append(source)
        self._check_env_files(source, *usable)
        if self.gateway is None and source.gateway is not None:
            assert source.gateway_origin is not None
            found = source.gateway
            look_up = partial(resolve_gateway, found, source.gateway_origin, self.context)
            self.gateway = replace(found, resolve=look_up)
        return self._own(source, usable) if source.includes or source.defaults else source.drafts

    def _own(self, source: ConfigFile, parts: Sequence[ConfigFile]) -> list[EntryDraft]:
        """The entries of `colonnade.toml`, over those that it includes, over its defaults."""
        drafts = self._join(self._by_program([part.drafts for part in parts]))
        for draft in source.drafts:
            lower = drafts.get(draft.key)
            if lower is None or draft.problems:
                drafts[draft.key] = draft
            elif draft.has_target:
                drafts[draft.key] = shadow(draft, lower)
            else:
                drafts[draft.key] = merge(draft, lower)
        if source.defaults is not None and not source.defaults.problems:
            for key, draft in drafts.items():
                made = merge(draft, source.defaults)
                made.node, made.problems, made.warnings = draft.node, draft.problems, draft.warnings
                drafts[key] = made
        broken = source.defaults.node.get("sandbox") if source.defaults is not None else None
        if source.defaults is not None and source.defaults.problems and broken is not None:
            # Without the defaults, a command would run without its sandbox.
            for draft in drafts.values():
                if draft.get("command") is not None and draft.get("sandbox") is None:
                    draft.wrong(
                        broken, "not used: the defaults, which have a sandbox, are not valid"
                    )
        for draft in drafts.values():
            draft.origin = source.origin("colonnade", NAMED)
        return list(drafts.values())

    # ------------------------------------------------------------ trust

    def _is_trusted(self, parts: Sequence[ConfigFile], root: ConfigFile | None = None) -> bool:
        """Whether a file (the first of these) and the files that it includes may be used. `root` is
        that file if the user named it, None if another file included it."""
        source = parts[0]
        drafts = [draft for part in parts for draft in part.drafts]
        files = dict(self._env_files(*parts))  # of servers, two of which may have one name
        read = {path: self._digest(path) for path in files.values()}
        included = (*((part.file, part.digest) for part in parts), *read.items())
        self.included[source.file] = included
        names = {draft: self._names[path] for draft, path in files.items()}
        wanted = requested_actions(parts, names, root)
        if not wanted:
            return True
        if is_trusted(source.file, digest_of(included), wanted, self._trust):
            return True
        unused = "its servers are not used" if drafts else "it is not used"
        message = f"{source.file} is not trusted, so {unused}; review the file, then run"
        message += f" colonnade config trust {quote(source.file)}"
        places = [(draft.key, draft.place) for draft in drafts]
        places = places or [("", Place(source.file, 1, 1, ""))]
        found = [HostProblem(key, message, place, untrusted=True) for key, place in places]
        self.untrusted[source.file] = found
        self.problems += found
        return False

    def _env_files(self, *sources: ConfigFile) -> Iterable[tuple[EntryDraft, str]]:
        for source in sources:
            for draft in source.drafts:
                entry_field = draft.get("env_file")
                if entry_field is not None:
                    yield draft, env_path(entry_field, self.context)

    def _digest(self, path: str) -> str:
        """The digest of a `.env` file, read once; the names of its variables are kept, their values
        are not."""
        if path not in self._digests:
            self._digests[path], self._names[path] = "", ()
            with contextlib.suppress(OSError, ConfigSyntaxError, InvalidEnvLine):
                data = read_bytes(path)
                self._digests[path] = hashlib.sha256(data).hexdigest()
                self._names[path] = tuple(parse_env_file(decode_text(data)))
        return self._digests[path]

    def _check_env_files(self, *sources: ConfigFile) -> None:
        for draft, path in self._env_files(*sources):
            self._digest(path)
            check_env_file(draft, path)

    # ------------------------------------------------------------ many files

    def _join(self, groups: Iterable[Iterable[EntryDraft]]) -> dict[str, EntryDraft]:
        """The entries of several programs: of two of one name the first wins."""
        found: dict[str, EntryDraft] = {}
        for group in groups:
            for draft in group:
                first = found.setdefault(draft.key, draft)
                if first is not draft:
                    place = f"{first.place.file}:{first.place.line}"
                    message = f"not used: {place} has a server of the same name"
                    self.warnings.append(HostProblem(draft.key, message, draft.place))
        return found

    def _by_program(self, groups: Iterable[Iterable[EntryDraft]]) -> list[list[EntryDraft]]:
        """Group the entries by program."""
        programs: dict[str, list[EntryDraft]] = {}
        for group in groups:
            for draft in group:
                origin = draft.origin
                is_scoped = origin.scope in RANKS
                programs.setdefault(origin.file_format if is_scoped else origin.file, []).append(
                    draft
                )
        return [_ranked(self._managed(drafts)) for drafts in programs.values()]

    def _managed(self, drafts: list[EntryDraft]) -> list[EntryDraft]:
        """Where an administrator manages the servers, others are ignored."""
        managed = [draft for draft in drafts if draft.origin.scope == "managed"]
        if not managed:
            return drafts
        for draft in drafts:
            if draft not in managed:
                message = f"not used: the servers are managed in {managed[0].place.file}"
                self.warnings.append(HostProblem(draft.key, message, draft.place))
        return managed


def _unique(problems: Iterable[HostProblem]) -> tuple[HostProblem, ...]:
    return tuple(dict.fromkeys(problems))


def _ranked(drafts: list[EntryDraft]) -> list[EntryDraft]:
    """The entries of one program, in the order of its scopes."""
    ordered = sorted(drafts, key=lambda draft: RANKS.get(draft.origin.scope, 0))
    merged: dict[str, EntryDraft] = {}
    for draft in ordered:
        upper = merged.get(draft.key)
        if upper is None:
            merged[draft.key] = draft
        elif draft.origin.file_format == "codex":  # which merges tables
            merged[draft.key] = merge(upper, draft)
        else:
            merged[draft.key] = shadow(upper, draft)
    return list(merged.values())
