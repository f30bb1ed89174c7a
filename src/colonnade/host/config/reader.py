"""The configuration of a host: files of any program become servers, and what is wrong with others.

    config = read_config(".mcp.json")
    config.entries["git"].shown        # uvx mcp-server-git
    config.problems                    # file, line, column, key, and a sentence

Rules: nothing is started, and no secret is read: an entry looks its secrets up when it is about to
be reached. One wrong server harms no other. What has to be trusted and is not has no influence at
all: none of its servers is used, nothing in it is looked up, and it hides no other file's server.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import TypeAlias

from colonnade.host.config.entry import Draft, decoded, merged, shadowing
from colonnade.host.config.files import Source, Terms, content, load
from colonnade.host.config.formats import NAMED, RANKS
from colonnade.host.config.lookups import Inputs, OnInput, Surroundings
from colonnade.host.config.references import OddLine, variables
from colonnade.host.config.resolve import check_env_file, entry_of, env_path
from colonnade.host.config.settings import Broken, Config, Entry, Problem
from colonnade.host.config.trust import Trust, digest_of, is_trusted, wishes

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
    """The servers of one file, or of several: of two of one name the first counts.

    Each file is read as its program reads it: Claude Desktop, Claude Code (`.mcp.json`,
    `~/.claude.json`), VS Code, Cursor, Codex, and our own `colonnade.toml`; any other one by what
    is in it. Files of one program come in the order of its scopes, whichever is named first.

    A project's file (`.mcp.json`, `.vscode/mcp.json` …) is used only as far as somebody trusts it:
    `trust` is called with what it wants, unless its content is known already; True is for all, None
    for what is known alone. With `strict` this goes for every file that is not in a place of the
    user's own. `on_input` answers VS Code's inputs; an `Inputs` remembers them for a next time.

    Raises nothing for what is in a file, or for one that is not there: that is in `problems`.
    """
    return Reader(
        trust=trust, on_input=on_input, env=env, home=home, folder=folder, strict=strict
    ).read(paths)


class Reader:
    """One reading of a configuration, and all that was seen on the way."""

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
        self._terms = Terms(home, where, env, strict)
        inputs = on_input if isinstance(on_input, Inputs) else Inputs(on_input)
        self.around: Surroundings = Surroundings(env, home, inputs, {})
        self.sources: list[Source] = []
        self.drafts: dict[str, Draft] = {}
        # What would be used, if somebody trusted the file: its problems.
        self.untrusted: dict[str, list[Problem]] = {}
        # Of a file that has to be trusted: itself and all that it draws in, each with its digest.
        self.drawn: dict[str, tuple[tuple[str, str], ...]] = {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        # Of files with variables.
        self._digests: dict[str, str] = {}
        self._names: dict[str, tuple[str, ...]] = {}

    def read(self, paths: File | Sequence[File]) -> Config:
        """Read them all."""
        named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        groups = [self._root(self._absolute(os.fspath(path))) for path in named]
        self.drafts = self._joined(self._by_program(groups))
        entries: dict[str, Entry] = {}
        for key, draft in self.drafts.items():
            entry = entry_of(draft, self.around, self._digests)
            if entry is not None:
                entries[key] = entry
            self.problems += draft.problems
            self.warnings += draft.warnings
        return Config(entries=entries, problems=_once(self.problems), warnings=_once(self.warnings))

    def _absolute(self, path: str) -> str:
        if path == "~" or path.startswith(("~/", "~\\")):
            path = self._terms.home + path[1:]
        return os.path.normpath(os.path.join(self._terms.folder, path))

    # ------------------------------------------------------------ one file

    def _root(self, file: str) -> list[Draft]:
        """The servers of a file that was named, as far as it may be used."""
        source = load(file, self._terms)
        parts = [
            load(
                self.around.path(path, source.origin("colonnade", NAMED)),
                self._terms,
                guarded=True if source.guarded else None,
            )
            for path, _ in source.includes
        ]
        for one in (source, *parts):
            self.sources.append(one)
            self.problems += one.problems
            self.warnings += one.warnings
            self.around = self.around._replace(
                questions={**self.around.questions, one.file: one.questions}
            )
        for part, (_, node) in zip(parts, source.includes, strict=True):
            if not part.digest:
                self.problems.append(Problem("", f"{part.file} cannot be read", node.place))
            if part.includes or part.defaults:
                self.problems.append(
                    Problem("", "an included file cannot include others", node.place)
                )
        if source.guarded:
            if not self._is_trusted(source, [source, *parts]):
                return []
            usable = parts
        else:
            usable = [part for part in parts if not part.guarded or self._is_trusted(part, [part])]
        self._check_env_files(source, *usable)
        return self._own(source, usable) if source.includes or source.defaults else source.drafts

    def _own(self, source: Source, parts: Sequence[Source]) -> list[Draft]:
        """Servers of our own file over those that it includes, over what goes for all."""
        found = self._joined(self._by_program([part.drafts for part in parts]))
        for draft in source.drafts:
            lower = found.get(draft.key)
            if lower is None or draft.problems:
                found[draft.key] = draft
            elif draft.reaches:
                found[draft.key] = shadowing(draft, lower)
            else:
                found[draft.key] = merged(draft, lower)
        if source.defaults is not None and not source.defaults.problems:
            for key, draft in found.items():
                made = merged(draft, source.defaults)
                made.node, made.problems, made.warnings = draft.node, draft.problems, draft.warnings
                found[key] = made
        for draft in found.values():
            draft.origin = source.origin("colonnade", NAMED)
        return list(found.values())

    # ------------------------------------------------------------ trust

    def _is_trusted(self, source: Source, parts: Sequence[Source]) -> bool:
        drafts = [draft for part in parts for draft in part.drafts]
        files = dict(self._env_files(*parts))  # of servers, two of which may have one name
        read = {path: self._digest(path) for path in files.values()}
        drawn = (*((part.file, part.digest) for part in parts), *read.items())
        self.drawn[source.file] = drawn
        if not drafts:
            return True
        digest = digest_of(drawn)
        names = {draft: self._names[path] for draft, path in files.items()}
        if is_trusted(source.file, digest, wishes(drafts, names), self._trust):
            return True
        words = f"{source.file} is not trusted, so this is not used; look at it, and then"
        words += f": colonnade config trust {quote(source.file)}"
        found = [Problem(draft.key, words, draft.place, untrusted=True) for draft in drafts]
        self.untrusted[source.file] = found
        self.problems += found
        return False

    def _env_files(self, *sources: Source) -> Iterable[tuple[Draft, str]]:
        for source in sources:
            for draft in source.drafts:
                said = draft.get("env_file")
                if said is not None:
                    yield draft, env_path(said, self.around)

    def _digest(self, path: str) -> str:
        """The digest of a file with variables, read once; their names are kept, no value is."""
        if path not in self._digests:
            self._digests[path], self._names[path] = "", ()
            with contextlib.suppress(OSError, Broken, OddLine):
                data = content(path)
                self._digests[path] = hashlib.sha256(data).hexdigest()
                self._names[path] = tuple(variables(decoded(data)))
        return self._digests[path]

    def _check_env_files(self, *sources: Source) -> None:
        for draft, path in self._env_files(*sources):
            self._digest(path)
            check_env_file(draft, path)

    # ------------------------------------------------------------ many files

    def _joined(self, groups: Iterable[Iterable[Draft]]) -> dict[str, Draft]:
        """Servers of several programs: of two of one name the first counts."""
        found: dict[str, Draft] = {}
        for group in groups:
            for draft in group:
                first = found.setdefault(draft.key, draft)
                if first is not draft:
                    place = f"{first.place.file}:{first.place.line}"
                    words = f"this is not used: {place} has a server of this name"
                    self.warnings.append(Problem(draft.key, words, draft.place))
        return found

    def _by_program(self, groups: Iterable[Iterable[Draft]]) -> list[list[Draft]]:
        """Files of one program as one group."""
        programs: dict[str, list[Draft]] = {}
        for group in groups:
            for draft in group:
                origin = draft.origin
                is_scoped = origin.scope in RANKS
                programs.setdefault(origin.dialect if is_scoped else origin.file, []).append(draft)
        return [_ranked(self._managed(drafts)) for drafts in programs.values()]

    def _managed(self, drafts: list[Draft]) -> list[Draft]:
        """Where somebody manages a machine, nobody else adds to it."""
        managed = [draft for draft in drafts if draft.origin.scope == "managed"]
        if not managed:
            return drafts
        for draft in drafts:
            if draft not in managed:
                words = f"this is not used: {managed[0].place.file} says which servers there are"
                self.warnings.append(Problem(draft.key, words, draft.place))
        return managed


def _once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))


def _ranked(drafts: list[Draft]) -> list[Draft]:
    """Servers of one program, in the order of its scopes."""
    ordered = sorted(drafts, key=lambda draft: RANKS.get(draft.origin.scope, 0))
    found: dict[str, Draft] = {}
    for draft in ordered:
        upper = found.get(draft.key)
        if upper is None:
            found[draft.key] = draft
        elif draft.origin.dialect == "codex":  # which lays tables over each other
            found[draft.key] = merged(upper, draft)
        else:
            found[draft.key] = shadowing(upper, draft)
    return list(found.values())
