"""One server as a file says it: each value checked, in words of ours, with the place it is from.

Rules: pure; nothing is looked up, opened or started. All that is wrong with a server is said, with
file, line, column and key; no value is ever in a sentence, since it may be a secret.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from glob import escape
from typing import Any, Final, NamedTuple, TypeAlias, cast

from colonnade.host.config import json_editor as json_text
from colonnade.host.config import toml_editor as toml_text
from colonnade.host.config.formats import (
    KEYS,
    LOGIN,
    LOGIN_UNUSED,
    LOOKED_UP,
    MEANT,
    NAMED,
    TYPES,
    Kind,
    Row,
    Syntax,
)
from colonnade.host.config.references import Odd, Reference, Template, plain, template
from colonnade.host.config.settings import Broken, Place, Problem
from colonnade.text import clean


class Document:
    """The text of one file: where its lines begin, and so where everything in it stands."""

    def __init__(self, file: str, text: str) -> None:
        self.file: str = file
        self.text: str = text
        self._starts: list[int] | None = None

    def place(self, at: int, key: str) -> Place:
        """The line and column of a character, for people."""
        if self._starts is None:
            self._starts = [0]
            found = self.text.find("\n")
            while found >= 0:
                self._starts.append(found + 1)
                found = self.text.find("\n", found + 1)
        line = bisect_right(self._starts, at)
        return Place(self.file, line, at - self._starts[line - 1] + 1, clean(key))


class Node(NamedTuple):
    """A value: where its key begins, or itself in a list; what it holds; what is there twice."""

    document: Document
    at: int
    key: str
    value: Any
    members: "Mapping[str, Node] | None" = None
    items: "Sequence[Node] | None" = None
    twice: "Sequence[Node]" = ()

    @property
    def place(self) -> Place:
        """Where a person finds it."""
        return self.document.place(self.at, self.key)

    def get(self, *keys: str) -> "Node | None":
        """What is at this path, if there is anything."""
        node: Node | None = self
        for key in keys:
            node = node.members.get(key) if node is not None and node.members else None
        return node


def read(data: bytes, file: str, syntax: Syntax) -> Node | None:
    """The tree of a file; nothing, where it is empty. Raises `Broken`."""
    document = Document(file, decoded(data))
    if syntax == "toml":
        try:
            return _from_toml(document, toml_text.read(document.text))
        except RecursionError:
            raise Broken(document.text, 0, "its values are too deep") from None
    node = json_text.read(document.text, comments=syntax == "jsonc")
    return None if node is None else _from_json(document, node, node.start, "")


def decoded(data: bytes) -> str:
    """The text of a file. Raises `Broken` where it is none."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        raise Broken(before, len(before), "this is no UTF-8") from None


def below(key: str, name: str) -> str:
    """The path of a member, as people read it."""
    # Not to be taken apart again: names may have dots.
    return f"{key}.{name}" if key else name


# ---------------------------------------------------------------- JSON


def _from_json(document: Document, node: json_text.Node, at: int, key: str) -> Node:
    if node.members is not None:
        members: dict[str, Node] = {}
        twice: list[Node] = []
        for member in node.members:
            made = _from_json(document, member.node, member.at, below(key, member.key))
            if member.key in members:
                twice.append(made)
            members[member.key] = made
        return Node(document, at, key, node.value, members, None, twice)
    if node.items is not None:
        items = [
            _from_json(document, item, item.start, f"{key}[{number}]")
            for number, item in enumerate(node.items)
        ]
        return Node(document, at, key, node.value, None, items)
    return Node(document, at, key, node.value)


# ---------------------------------------------------------------- TOML


def _from_toml(document: Document, data: dict[str, Any]) -> Node:
    places: dict[tuple[str, ...], int] = {}
    for statement in toml_text.statements(document.text):
        at = statement.start
        while document.text[at] in " \t":
            at += 1
        for depth in range(1, len(statement.path) + 1):
            places.setdefault(statement.path[:depth], at)
    return _toml_node(document, data, (), "", 0, places)


def _toml_node(
    document: Document,
    value: Any,
    path: tuple[str, ...],
    key: str,
    at: int,
    places: Mapping[tuple[str, ...], int],
) -> Node:
    """A value of TOML; what stands inside a list or an inline table is where that begins."""
    at = places.get(path, at)
    if isinstance(value, dict):
        members = {
            name: _toml_node(document, item, (*path, name), below(key, name), at, places)
            for name, item in cast("dict[str, Any]", value).items()
        }
        return Node(document, at, key, cast("Any", value), members)
    if isinstance(value, list):
        items = [
            _toml_node(document, item, (*path, ""), f"{key}[{number}]", at, {})
            for number, item in enumerate(cast("list[Any]", value))
        ]
        return Node(document, at, key, cast("Any", value), None, items)
    return Node(document, at, key, value)


Path: TypeAlias = tuple[str, ...]

MAX_PORT: Final = 65535
# From here on VS Code writes a number otherwise, and nobody counts or waits for so long.
TOO_MUCH: Final = 1e21
SHARING: Final = ("caller", "pooled", "shared")


class Origin(NamedTuple):
    """What a value is from: a file, as which program's, in which scope, and for which folder."""

    file: str
    dialect: str
    scope: str
    folder: str
    # Whether a person has to say that this may be started.
    guarded: bool = False


class Said(NamedTuple):
    """A value, where it is said, and where the same is said in vain."""

    value: Any
    node: Node
    origin: Origin
    over: tuple["Said", ...] = ()

    @property
    def place(self) -> Place:
        """Where a person finds it."""
        return self.node.place


class Draft:
    """A server on its way from a file to an entry."""

    def __init__(self, key: str, node: Node, origin: Origin) -> None:
        self.key: str = key
        self.node: Node = node
        self.origin: Origin = origin
        self.fields: dict[Path, Said] = {}
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    @property
    def place(self) -> Place:
        """Where the server stands."""
        return self.node.place

    @property
    def reaches(self) -> bool:
        """Whether it says what is started or reached, and not only how it is kept."""
        return ("command",) in self.fields or ("url",) in self.fields

    def get(self, field: str) -> Said | None:
        """A field, if it is said."""
        return self.fields.get((field,))

    def table(self, field: str) -> dict[str, Said]:
        """The members of a field that is a table."""
        return {p[1]: said for p, said in self.fields.items() if p[0] == field and len(p) == 2}

    def wrong(self, node: Node, summary: str, *, hint: str = "", unresolved: bool = False) -> None:
        """Record what is wrong at a place."""
        problem = Problem(self.key, summary, node.place, hint=hint, unresolved=unresolved)
        self.problems.append(problem)

    def warn(self, node: Node, words: str) -> None:
        """Say what is odd at a place, and does no harm."""
        self.warnings.append(Problem(self.key, words, node.place))


def texts(said: Said) -> list[Template]:
    """Every text of a value: itself, or the words of a list."""
    if isinstance(said.value, Template):
        return [said.value]
    if not isinstance(said.value, tuple):
        return []
    words = cast("tuple[Any, ...]", said.value)  # pyright: ignore[reportUnknownMemberType]
    return [one for one in words if isinstance(one, Template)]


def drafted(key: str, node: Node, origin: Origin) -> Draft:
    """The server of one node; what is wrong with it is in its `problems`."""
    draft = Draft(key, node, origin)
    if node.members is None:
        draft.wrong(node, "a server is an object, with a command or a url in it")
        return draft
    for twice in node.twice:
        draft.wrong(twice, "this is there for the second time", hint="keep one")
    rows = KEYS[origin.dialect]
    for name, member in node.members.items():
        row = rows.get(name)
        if row is None:
            draft.warn(member, _unknown(name, origin.dialect))
        else:
            _take(draft, name, member, row)
    _finish(draft)
    return draft


def merged(upper: Draft, lower: Draft) -> Draft:
    """What two files say of one server: the upper one counts, value by value."""
    made = Draft(upper.key, lower.node if not upper.reaches else upper.node, upper.origin)
    made.fields = dict(lower.fields)
    for path, said in upper.fields.items():
        old = lower.fields.get(path)
        made.fields[path] = said._replace(over=(*said.over, old, *old.over)) if old else said
    made.problems = [*upper.problems, *lower.problems]
    made.warnings = [*upper.warnings, *lower.warnings]
    return made


def shadowing(upper: Draft, lower: Draft) -> Draft:
    """The upper one alone, which remembers what the lower one says of the same values."""
    for path, said in upper.fields.items():
        old = lower.fields.get(path)
        if old is not None:
            upper.fields[path] = said._replace(over=(*said.over, old, *old.over))
    return upper


# ---------------------------------------------------------------- keys


def _unknown(name: str, dialect: str) -> str:
    rows = KEYS[dialect]
    if dialect == "codex" and name in ("headers", "header"):
        meant = "http_headers"
    else:
        near = get_close_matches(name, [*rows, *MEANT], n=1)
        meant = MEANT.get(near[0], near[0]) if near else ""
    hint = f"; did you mean {meant}?" if meant in rows else ""
    return f"there is no such key, and nothing is done with it{hint}"


def _take(draft: Draft, name: str, node: Node, row: Row) -> None:
    """Check one value, and keep what it means."""
    origin = draft.origin
    read = _Reading(draft, name in LOOKED_UP[origin.dialect])
    for path, value in read.value(node, row.kind):
        if row.field == "login":
            _take_login(draft, node)
        elif row.field:
            at = node.get(*path) or node
            draft.fields[(row.field, *path)] = Said(value, at, origin)


def _take_login(draft: Draft, node: Node) -> None:
    """The terms of a login, each a field of its own."""
    names = LOGIN[draft.origin.dialect]
    for key, member in (node.members or {}).items():
        field, value = names.get(key), member.value
        if field is None:
            unused = key in LOGIN_UNUSED
            draft.warn(member, "nothing is done with this" if unused else "there is no such key")
            continue
        if field == "scopes":
            if isinstance(value, str):
                value = value.split()
            if not isinstance(value, list) or not all(
                isinstance(one, str) for one in cast("list[Any]", value)
            ):
                draft.wrong(member, "this should be a list of texts")
                continue
            value = tuple(cast("list[str]", value))
        elif field == "port" and (type(value) is not int or not 0 < value <= MAX_PORT):
            draft.wrong(member, f"this should be a port, 1 to {MAX_PORT}")
            continue
        elif field == "client_id" and not isinstance(value, str):
            draft.wrong(member, "this should be a text")
            continue
        draft.fields["login", field] = Said(value, member, draft.origin)


class _Reading:
    """The values of one key."""

    def __init__(self, draft: Draft, looks_up: bool) -> None:
        self._draft = draft
        self._looks_up = looks_up

    def value(self, node: Node, kind: Kind) -> Iterator[tuple[Path, Any]]:
        """Each value below a node, by its path; nothing for one that is of another kind."""
        if kind in (Kind.TABLE, Kind.LOOSE, Kind.VALUES):
            yield from self._table(node, kind)
            return
        before = len(self._draft.problems)
        found = self._simple(node, kind)
        if found is not None:
            yield (), found
        elif len(self._draft.problems) == before:
            self._refuse(node, kind)

    def _refuse(self, node: Node, kind: Kind) -> None:
        wanted = kind.value
        if node.document.file.endswith(".toml"):
            wanted = wanted.replace("an object", "a table")
        words = f"this should be {wanted}"
        if kind is Kind.TEXT and node.items is not None and node.key.endswith("command"):
            words += ", the program alone; what follows it is a list in args"
        self._draft.wrong(node, words)

    def _simple(self, node: Node, kind: Kind) -> Any:
        value = node.value
        if kind is Kind.ANY:
            return value
        if kind is Kind.OBJECT:
            return value if node.members is not None else None
        if kind is Kind.TEXT:
            return self._text(node)
        if kind in (Kind.TEXTS, Kind.NAMES):
            return self._texts(node, kind)
        if kind is Kind.FLAG:
            return value if isinstance(value, bool) else None
        if kind is Kind.SHARING:
            return value if value in SHARING else None
        return _number(value, kind)

    def _texts(self, node: Node, kind: Kind) -> tuple[Any, ...] | None:
        if node.items is None:
            return None
        found: list[Any] = []
        for item in node.items:
            # Codex has names with where they are from; all are from here.
            one = item.get("name") or item
            if not isinstance(one.value, str):
                self._draft.wrong(item, "this should be a text, in quotes")
                return None
            found.append(one.value if kind is Kind.NAMES else self._text(one))
        return tuple(found)

    def _text(self, node: Node) -> Template | None:
        if not isinstance(node.value, str):
            return None
        if "\0" in node.value:
            self._draft.wrong(node, "this has a NUL in it, which nothing can be given")
            return None
        if not self._looks_up:
            return plain(node.value)
        remarks: list[str] = []
        try:
            made = template(node.value, self._draft.origin.dialect, remarks)
        except Odd as error:
            self._draft.wrong(node, str(error))
            return plain(node.value)
        for remark in remarks:
            self._draft.warn(node, remark)
        return made

    def _table(self, node: Node, kind: Kind) -> Iterator[tuple[Path, Any]]:
        if node.members is None:
            self._refuse(node, kind)
            return
        for twice in node.twice:
            self._draft.wrong(twice, "this is there for the second time", hint="keep one")
        for name, member in node.members.items():
            if isinstance(member.value, str):
                yield (name,), self._text(member)
            elif kind is Kind.LOOSE and member.value is None:
                yield (name,), None
            elif kind is Kind.LOOSE and _is_number(member.value):
                yield (name,), plain(_digits(member.value))
            elif kind is Kind.VALUES and member.members is not None:
                yield from self._command((name,), member)
            else:
                self._draft.wrong(member, "this should be a text, in quotes")

    def _command(self, path: Path, node: Node) -> Iterator[tuple[Path, Any]]:
        """`{ command = ["op", "read", "…"], prefix = "Bearer " }`: a program says it."""
        words = node.get("command")
        prefix = node.get("prefix")
        extra = set(node.members or ()) - {"command", "prefix"}
        texts = words.value if words is not None and words.items else None
        if extra or not texts or not all(isinstance(word, str) and word for word in texts):
            words_ = 'this should be a text, or { command = ["program", "argument"] }'
            self._draft.wrong(node, f'{words_}, with prefix = "Bearer " where one is needed')
            return
        before = prefix.value if prefix is not None else ""
        if not isinstance(before, str):
            self._draft.wrong(prefix or node, "prefix should be a text")
            return
        shown = " ".join(texts)
        reference = Reference("command", texts[0], f"(what {shown} prints)", words=tuple(texts))
        parts = (before, reference) if before else (reference,)
        yield path, Template(f"{before}{reference.text}", parts)


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < TOO_MUCH  # and neither infinite nor none at all
    )


def _digits(value: float) -> str:
    """A number as text: a whole one with all its digits, as who wrote it expects."""
    return str(int(value)) if value == int(value) else f"{value:.15g}"


def _number(value: Any, kind: Kind) -> Any:
    if kind is Kind.SECONDS_OR_NEVER and value is False:
        return NEVER
    if not _is_number(value) or value <= 0:
        return None
    if kind is Kind.COUNT:
        return value if isinstance(value, int) else None
    return float(value) / 1000 if kind is Kind.MILLISECONDS else float(value)


class _Never:
    """Stands for a time that never comes, where None is for what is wrong."""

    def __repr__(self) -> str:
        return "never"


NEVER: Final = _Never()


# ---------------------------------------------------------------- the whole server


def _finish(draft: Draft) -> None:
    """What is wrong with a server as a whole; and what a dialect says in a way of its own."""
    dialect = draft.origin.dialect
    if dialect == "codex":
        _finish_codex(draft)
    _switch_off(draft)
    if dialect != "colonnade":
        _escape_names(draft)
    _check_way(draft)
    command, url, cwd = draft.get("command"), draft.get("url"), draft.get("cwd")
    if command is not None and not command.value.text.strip():
        draft.wrong(command.node, "the command is empty", hint="it is the program to start")
    if url is not None and url.value.text == "":
        draft.wrong(url.node, "the url is empty", hint="it is the address of the server")
    elif url is not None:
        _check_url(draft, url)
    if cwd is not None and not cwd.value.text:
        draft.wrong(cwd.node, "the folder is empty", hint="leave it out")
    for said in draft.table("env"):
        if not said or "=" in said:
            draft.wrong(draft.table("env")[said].node, "no variable can have such a name")
    is_claudes = dialect == "claude-code" and draft.origin.scope != NAMED
    if is_claudes and url is not None and draft.get("type") is None:
        draft.warn(url.node, 'Claude Code itself wants a "type": "http" beside this')
    sandbox = draft.fields.pop(("sandbox",), None)
    if sandbox is not None and sandbox.value:
        draft.warn(sandbox.node, "here it is started without a sandbox")


def _check_way(draft: Draft) -> None:
    """Either a command or a url, and a type that goes with it."""
    command, url, kind = draft.get("command"), draft.get("url"), draft.get("type")
    if command is not None and url is not None:
        draft.wrong(url.node, "there is a command, too", hint="a server has one or the other")
        return
    if url is not None and draft.origin.dialect == "claude-desktop":
        draft.wrong(url.node, "Claude Desktop takes no addresses from its file")
    if kind is not None:
        named = TYPES.get(kind.value.text)
        if named is None:
            draft.wrong(
                kind.node, "there is no such type", hint='there are "stdio", "http" and "sse"'
            )
        elif named == "stdio" and url is not None:
            draft.wrong(kind.node, 'a server with a url has the type "http" or "sse"')
        elif named != "stdio" and command is not None:
            draft.wrong(kind.node, 'a server with a command has the type "stdio"')
    for field, other in (("args", url), ("env", url), ("cwd", url), ("headers", command)):
        for path, said in draft.fields.items():
            if path[0] == field and other is not None:
                with_ = "command" if other is url else "url"
                draft.warn(said.node, f"this is for a server with a {with_}, and does nothing here")
                break
    if command is not None or url is not None or draft.problems:
        return
    if draft.origin.dialect not in ("colonnade", "codex"):  # which may add to another file's server
        draft.wrong(draft.node, "it has neither a command nor a url")


def _check_url(draft: Draft, url: Said) -> None:
    first = url.value.parts[0]
    if isinstance(first, str) and not first.lower().startswith(("http://", "https://")):
        draft.wrong(url.node, "the url should begin with https:// or http://")


def _finish_codex(draft: Draft) -> None:
    """Variables by name: those that are passed on, and those that headers are made of."""
    names = draft.fields.pop(("env_vars",), None)
    if names is not None:
        for name in names.value:
            said = draft.fields.get(("env", name)) or names._replace(value=_variable(name))
            draft.fields["env", name] = said
    for name, said in draft.table("env_headers").items():
        del draft.fields["env_headers", name]
        draft.fields["headers", name] = said._replace(value=_variable(said.value.text))
    bearer = draft.fields.pop(("bearer",), None)
    if bearer is not None:
        reference = Reference("env", bearer.value.text, f"the variable {bearer.value.text}")
        made = Template(f"Bearer {reference.text}", ("Bearer ", reference))
        draft.fields["headers", "Authorization"] = bearer._replace(value=made)
    scopes = draft.fields.pop(("scopes",), None)
    if scopes is not None:
        texts = tuple(one.text for one in cast("tuple[Template, ...]", scopes.value))
        draft.fields["login", "scopes"] = scopes._replace(value=texts)


def _escape_names(draft: Draft) -> None:
    """Which tools are offered: names in the files of others, and patterns in ours."""
    for field in ("only", "hidden"):
        said = draft.get(field)
        if said is not None:
            names = cast("tuple[str, ...]", said.value)
            draft.fields[(field,)] = said._replace(value=tuple(plain(escape(n)) for n in names))


def _switch_off(draft: Draft) -> None:
    """`disabled: true` is `enabled: false`, and counts also where both are said."""
    disabled = draft.fields.pop(("disabled",), None)
    if disabled is not None and (disabled.value or draft.get("enabled") is None):
        draft.fields[("enabled",)] = disabled._replace(value=not disabled.value)


def _variable(name: str) -> Template:
    text = f"the variable {name}"
    return Template(text, (Reference("env", name, text, optional=True),))
