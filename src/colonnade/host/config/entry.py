"""One server entry of a configuration file: each value validated, with its place in the file.

Rules: pure; nothing is resolved, opened or started. All errors of an entry are reported, each with
file, line, column and key. No value is in a message, since it may be a secret.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from glob import escape
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from colonnade.errors import LocalProtocolError
from colonnade.host.config import json_editor as json_text
from colonnade.host.config import toml_editor as toml_text
from colonnade.host.config.formats import (
    KEYS,
    LOGIN,
    LOGIN_UNUSED,
    NAMED,
    REFERENCE_KEYS,
    SYNONYMS,
    TYPES,
    KeySpec,
    Syntax,
    ValueKind,
    is_number,
    scalar_value,
)
from colonnade.host.config.references import (
    InvalidReference,
    Reference,
    ValueTemplate,
    literal,
    template,
)
from colonnade.host.config.settings import ROOTS_OF_CALLER, ConfigSyntaxError, HostProblem, Place
from colonnade.text import clean, closest
from colonnade.transport.process.sandbox import Sandbox, sandbox_of


class SourceText:
    """The text of a file, and where its lines begin."""

    def __init__(self, file: str, text: str) -> None:
        self.file: str = file
        self.text: str = text
        self._starts: list[int] | None = None

    def place(self, at: int, key: str) -> Place:
        """The line and column of a character."""
        if self._starts is None:
            self._starts = [0]
            found = self.text.find("\n")
            while found >= 0:
                self._starts.append(found + 1)
                found = self.text.find("\n", found + 1)
        line = bisect_right(self._starts, at)
        return Place(self.file, line, at - self._starts[line - 1] + 1, clean(key))


class SourceNode(NamedTuple):
    """A value in a file: the offset of its key, or of itself in a list; its members or items; and
    the members whose key is there twice."""

    document: SourceText
    at: int
    key: str
    value: Any
    members: "Mapping[str, SourceNode] | None" = None
    items: "Sequence[SourceNode] | None" = None
    duplicates: "Sequence[SourceNode]" = ()

    @property
    def place(self) -> Place:
        """Its line and column."""
        return self.document.place(self.at, self.key)

    def get(self, *keys: str) -> "SourceNode | None":
        """The node at this path, if there is one."""
        node: SourceNode | None = self
        for key in keys:
            node = node.members.get(key) if node is not None and node.members else None
        return node


def read(data: bytes, file: str, syntax: Syntax) -> SourceNode | None:
    """Parse a file; None if it is empty. Raises `ConfigSyntaxError`."""
    document = SourceText(file, decode_text(data))
    if syntax == "toml":
        try:
            return _from_toml(document, toml_text.read(document.text))
        except RecursionError:
            raise ConfigSyntaxError(document.text, 0, "its values are nested too deeply") from None
    node = json_text.read(document.text, comments=syntax == "jsonc")
    return None if node is None else _from_json(document, node, node.start, "")


def decode_text(data: bytes) -> str:
    """The text of a file. Raises `ConfigSyntaxError` if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        raise ConfigSyntaxError(before, len(before), "not valid UTF-8") from None


def below(key: str, name: str) -> str:
    """The path of a member, for people."""
    # It cannot be split again: names may contain dots.
    return f"{key}.{name}" if key else name


# ---------------------------------------------------------------- JSON


def _from_json(document: SourceText, node: json_text.JsonNode, at: int, key: str) -> SourceNode:
    if node.members is not None:
        members: dict[str, SourceNode] = {}
        duplicates: list[SourceNode] = []
        for member in node.members:
            made = _from_json(document, member.node, member.at, below(key, member.key))
            if member.key in members:
                duplicates.append(made)
            members[member.key] = made
        return SourceNode(document, at, key, node.value, members, None, duplicates)
    if node.items is not None:
        items = [
            _from_json(document, item, item.start, f"{key}[{number}]")
            for number, item in enumerate(node.items)
        ]
        return SourceNode(document, at, key, node.value, None, items)
    return SourceNode(document, at, key, node.value)


# ---------------------------------------------------------------- TOML


def _from_toml(document: SourceText, data: dict[str, Any]) -> SourceNode:
    places: dict[tuple[str, ...], int] = {}
    # How many `[[tables]]` of each path there are so far.
    tables: dict[tuple[str, ...], int] = {}
    for statement in toml_text.statements(document.text):
        at = statement.start
        while document.text[at] in " \t":
            at += 1
        if document.text.startswith("[[", at):
            tables[statement.path] = tables.get(statement.path, 0) + 1
        path: tuple[str, ...] = ()
        for depth in range(1, len(statement.path) + 1):
            path = (*path, statement.path[depth - 1])
            places.setdefault(path, at)
            if statement.path[:depth] in tables:
                path = (*path, _item(tables[statement.path[:depth]] - 1))
                places.setdefault(path, at)
    return _toml_node(document, data, (), "", 0, places)


def _item(number: int) -> str:
    """The step of a path to an item of a list."""
    return f"\n{number}"


def _toml_node(
    document: SourceText,
    value: Any,
    path: tuple[str, ...],
    key: str,
    at: int,
    places: Mapping[tuple[str, ...], int],
) -> SourceNode:
    """A value of TOML; the place of a value in a list or an inline table is that of the list or
    table, and that of a value in one of several `[[tables]]` its own."""
    at = places.get(path, at)
    if isinstance(value, dict):
        members = {
            name: _toml_node(document, item, (*path, name), below(key, name), at, places)
            for name, item in cast("dict[str, Any]", value).items()
        }
        return SourceNode(document, at, key, cast("Any", value), members)
    if isinstance(value, list):
        items = [
            _toml_node(document, item, (*path, _item(number)), f"{key}[{number}]", at, places)
            for number, item in enumerate(cast("list[Any]", value))
        ]
        return SourceNode(document, at, key, cast("Any", value), None, items)
    return SourceNode(document, at, key, value)


Path: TypeAlias = tuple[str, ...]

MAX_PORT: Final = 65535


class Origin(NamedTuple):
    """Where a value is from: a file, its format, its scope, and the folder that it is for."""

    file: str
    file_format: str
    scope: str
    folder: str
    # Whether the file has to be trusted before it is used.
    needs_trust: bool = False


class EntryField(NamedTuple):
    """A value of an entry, where it is set, and the values that it overrides."""

    value: Any
    node: SourceNode
    origin: Origin
    overridden: tuple["EntryField", ...] = ()

    @property
    def place(self) -> Place:
        """Its line and column."""
        return self.node.place


class EntryDraft:
    """A validated entry, before its references are resolved."""

    def __init__(self, key: str, node: SourceNode, origin: Origin) -> None:
        self.key: str = key
        self.node: SourceNode = node
        self.origin: Origin = origin
        self.fields: dict[Path, EntryField] = {}
        self.problems: list[HostProblem] = []
        self.warnings: list[HostProblem] = []

    @property
    def place(self) -> Place:
        """Where the entry is."""
        return self.node.place

    @property
    def has_target(self) -> bool:
        """Whether it has a command or a URL, and not only settings."""
        return ("command",) in self.fields or ("url",) in self.fields

    def get(self, field: str) -> EntryField | None:
        """A field, if it is set."""
        return self.fields.get((field,))

    def table(self, field: str) -> dict[str, EntryField]:
        """The members of a field that is a table."""
        return {
            p[1]: entry_field
            for p, entry_field in self.fields.items()
            if p[0] == field and len(p) == 2
        }

    def wrong(
        self, node: SourceNode, summary: str, *, hint: str = "", unresolved: bool = False
    ) -> None:
        """Add a problem."""
        problem = HostProblem(self.key, summary, node.place, hint=hint, unresolved=unresolved)
        self.problems.append(problem)

    def warn(self, node: SourceNode, message: str) -> None:
        """Add a warning."""
        self.warnings.append(HostProblem(self.key, message, node.place))


def templates_of(entry_field: EntryField) -> list[ValueTemplate]:
    """Every string of a value: itself, or the items of a list."""
    value: object = entry_field.value
    if isinstance(value, ValueTemplate):
        return [value]
    items = cast("tuple[object, ...]", value) if isinstance(value, tuple) else ()
    return [one for one in items if isinstance(one, ValueTemplate)]


def read_entry(key: str, node: SourceNode, origin: Origin) -> EntryDraft:
    """Validate one entry; errors are in its `problems`."""
    draft = EntryDraft(key, node, origin)
    if node.members is None:
        draft.wrong(node, "expected an object with a command or a url")
        return draft
    for duplicate in node.duplicates:
        draft.wrong(duplicate, "duplicate key", hint="keep one")
    rows = KEYS[origin.file_format]
    for name, member in node.members.items():
        row = rows.get(name)
        if row is None:
            draft.warn(member, _unknown(name, origin.file_format))
        else:
            _take(draft, name, member, row)
    _finish(draft)
    return draft


def merge(upper: EntryDraft, lower: EntryDraft) -> EntryDraft:
    """An entry that two files define: the values of the upper one override those of the lower
    one."""
    made = EntryDraft(upper.key, lower.node if not upper.has_target else upper.node, upper.origin)
    made.fields = dict(lower.fields)
    for path, entry_field in upper.fields.items():
        old = lower.fields.get(path)
        made.fields[path] = (
            entry_field._replace(overridden=(*entry_field.overridden, old, *old.overridden))
            if old
            else entry_field
        )
    made.problems = [*upper.problems, *lower.problems]
    made.warnings = [*upper.warnings, *lower.warnings]
    return made


def shadow(upper: EntryDraft, lower: EntryDraft) -> EntryDraft:
    """The upper entry alone, with the values that it overrides."""
    for path, entry_field in upper.fields.items():
        old = lower.fields.get(path)
        if old is not None:
            upper.fields[path] = entry_field._replace(
                overridden=(*entry_field.overridden, old, *old.overridden)
            )
    return upper


# ---------------------------------------------------------------- keys


def _unknown(name: str, file_format: str) -> str:
    rows = KEYS[file_format]
    if file_format == "codex" and name in ("headers", "header"):
        meant = "http_headers"
    else:
        near = closest(name, [*rows, *SYNONYMS])
        meant = SYNONYMS.get(near, near)
    hint = f"; did you mean {meant}?" if meant in rows else ""
    return f"unknown key, ignored{hint}"


def _take(draft: EntryDraft, name: str, node: SourceNode, row: KeySpec) -> None:
    """Validate one value, and set the field."""
    origin = draft.origin
    read = _ValueReader(draft, name in REFERENCE_KEYS[origin.file_format])
    for path, value in read.value(node, row.kind):
        if row.field == "login":
            _take_login(draft, node)
        elif row.field:
            at = node.get(*path) or node
            draft.fields[(row.field, *path)] = EntryField(value, at, origin)


def _take_login(draft: EntryDraft, node: SourceNode) -> None:
    """Validate the login keys, each of which is a field of its own."""
    names = LOGIN[draft.origin.file_format]
    for key, member in (node.members or {}).items():
        field, value = names.get(key), member.value
        if field is None:
            unused = key in LOGIN_UNUSED
            draft.warn(member, "this key is not used" if unused else "unknown key, ignored")
            continue
        if field == "scopes":
            if isinstance(value, str):
                value = value.split()
            if not isinstance(value, list) or not all(
                isinstance(one, str) for one in cast("list[Any]", value)
            ):
                draft.wrong(member, "expected a list of strings")
                continue
            value = tuple(cast("list[str]", value))
        elif field == "port" and (type(value) is not int or not 0 < value <= MAX_PORT):
            draft.wrong(member, f"expected a port, 1 to {MAX_PORT}")
            continue
        elif field == "client_id" and not isinstance(value, str):
            draft.wrong(member, "expected a string")
            continue
        draft.fields["login", field] = EntryField(value, member, draft.origin)


class _ValueReader:
    """Validates the value of one key."""

    def __init__(self, draft: EntryDraft, looks_up: bool) -> None:
        self._draft = draft
        self._looks_up = looks_up

    def value(self, node: SourceNode, kind: ValueKind) -> Iterator[tuple[Path, Any]]:
        """Each value below a node, by its path; nothing if the type is wrong."""
        if kind in (ValueKind.TABLE, ValueKind.LOOSE_TABLE, ValueKind.VALUE_TABLE):
            yield from self._table(node, kind)
            return
        before = len(self._draft.problems)
        found = self._simple(node, kind)
        if found is not None:
            yield (), found
        elif len(self._draft.problems) == before:
            self._refuse(node, kind)

    def _refuse(self, node: SourceNode, kind: ValueKind) -> None:
        wanted = kind.value
        if node.document.file.endswith(".toml"):
            wanted = wanted.replace("an object", "a table")
        message = f"expected {wanted}"
        if kind is ValueKind.STRING and node.items is not None and node.key.endswith("command"):
            message += ", the program alone; put its arguments in args"
        self._draft.wrong(node, message)

    def _simple(self, node: SourceNode, kind: ValueKind) -> Any:
        value = node.value
        if kind is ValueKind.ANY:
            return value
        if kind is ValueKind.OBJECT:
            return value if node.members is not None else None
        if kind is ValueKind.SANDBOX:
            return self._sandbox(node)
        if kind is ValueKind.STRING:
            return self._text(node)
        if kind is ValueKind.ROOTS and value == ROOTS_OF_CALLER:
            return value
        if kind in (ValueKind.STRINGS, ValueKind.ROOTS, ValueKind.NAMES):
            return self._texts(node, kind)
        return scalar_value(value, kind)

    def _sandbox(self, node: SourceNode) -> Sandbox | Literal[False] | None:
        try:
            return sandbox_of(node.value) or False
        except LocalProtocolError as error:
            self._draft.wrong(node, str(error))
            return None

    def _texts(self, node: SourceNode, kind: ValueKind) -> tuple[Any, ...] | None:
        if node.items is None:
            return None
        found: list[Any] = []
        for item in node.items:
            # Codex may write a name as an object.
            one = item.get("name") or item
            if not isinstance(one.value, str):
                self._draft.wrong(item, "expected a string, in quotes")
                return None
            found.append(one.value if kind is ValueKind.NAMES else self._text(one))
        return tuple(found)

    def _text(self, node: SourceNode) -> ValueTemplate | None:
        if not isinstance(node.value, str):
            return None
        if "\0" in node.value:
            self._draft.wrong(node, "a NUL character is not allowed")
            return None
        if not self._looks_up:
            return literal(node.value)
        remarks: list[str] = []
        try:
            made = template(node.value, self._draft.origin.file_format, remarks)
        except InvalidReference as error:
            self._draft.wrong(node, str(error))
            return literal(node.value)
        for remark in remarks:
            self._draft.warn(node, remark)
        return made

    def _table(self, node: SourceNode, kind: ValueKind) -> Iterator[tuple[Path, Any]]:
        if node.members is None:
            self._refuse(node, kind)
            return
        for duplicate in node.duplicates:
            self._draft.wrong(duplicate, "duplicate key", hint="keep one")
        for name, member in node.members.items():
            if isinstance(member.value, str):
                yield (name,), self._text(member)
            elif kind is ValueKind.LOOSE_TABLE and member.value is None:
                yield (name,), None
            elif kind is ValueKind.LOOSE_TABLE and is_number(member.value):
                yield (name,), literal(_digits(member.value))
            elif kind is ValueKind.VALUE_TABLE and member.members is not None:
                yield from self._command((name,), member)
            else:
                self._draft.wrong(member, "expected a string, in quotes")

    def _command(self, path: Path, node: SourceNode) -> Iterator[tuple[Path, Any]]:
        """A value that a command prints: `{ command = ["op", "read"], prefix = "Bearer " }`."""
        words = node.get("command")
        prefix = node.get("prefix")
        extra = set(node.members or ()) - {"command", "prefix"}
        argv = words.value if words is not None and words.items else None
        if extra or not argv or not all(isinstance(word, str) and word for word in argv):
            words_ = 'expected a string or { command = ["program", "argument"] }'
            self._draft.wrong(node, f'{words_}, with an optional prefix = "Bearer "')
            return
        before = prefix.value if prefix is not None else ""
        if not isinstance(before, str):
            self._draft.wrong(prefix or node, "expected prefix to be a string")
            return
        shown = " ".join(argv)
        reference = Reference("command", argv[0], f"(output of {shown})", words=tuple(argv))
        parts = (before, reference) if before else (reference,)
        yield path, ValueTemplate(f"{before}{reference.text}", parts)


def _digits(value: float) -> str:
    """A number as a string: an integer with all its digits."""
    return str(int(value)) if value == int(value) else f"{value:.15g}"


# ---------------------------------------------------------------- the whole entry


def _finish(draft: EntryDraft) -> None:
    """Validate the entry as a whole, and translate what one format alone has."""
    file_format = draft.origin.file_format
    if file_format == "codex":
        _finish_codex(draft)
    _apply_disabled(draft)
    if file_format != "colonnade":
        _escape_names(draft)
    _check_target(draft)
    command, url, cwd = draft.get("command"), draft.get("url"), draft.get("cwd")
    if command is not None and not command.value.text.strip():
        draft.wrong(command.node, "the command is empty")
    if url is not None and url.value.text == "":
        draft.wrong(url.node, "the url is empty")
    elif url is not None:
        _check_url(draft, url)
    if cwd is not None and not cwd.value.text:
        draft.wrong(cwd.node, "the folder is empty", hint="remove it")
    for name, variable in draft.table("env").items():
        if not name or "=" in name:
            draft.wrong(variable.node, "invalid name of an environment variable")
    is_claudes = file_format == "claude-code" and draft.origin.scope != NAMED
    if is_claudes and url is not None and draft.get("type") is None:
        draft.warn(url.node, 'Claude Code itself needs "type": "http" as well')
    if file_format == "vscode":
        _finish_sandbox(draft)


def _check_target(draft: EntryDraft) -> None:
    """Check that there is either a command or a URL, with a type that fits."""
    command, url, kind = draft.get("command"), draft.get("url"), draft.get("type")
    if command is not None and url is not None:
        draft.wrong(
            url.node, "there is a command as well", hint="a server has either a command or a url"
        )
        return
    if url is not None and draft.origin.file_format == "claude-desktop":
        draft.wrong(url.node, "Claude Desktop does not support URLs in its file")
    if kind is not None:
        named = TYPES.get(kind.value.text)
        if named is None:
            draft.wrong(kind.node, "unknown type", hint='expected "stdio", "http" or "sse"')
        elif named == "stdio" and url is not None:
            draft.wrong(kind.node, 'the type of a server with a url is "http" or "sse"')
        elif named != "stdio" and command is not None:
            draft.wrong(kind.node, 'the type of a server with a command is "stdio"')
    of_commands = [(field, url) for field in ("args", "env", "cwd", "sandbox")]
    for field, other in (*of_commands, ("headers", command)):
        for path, entry_field in draft.fields.items():
            if path[0] == field and other is not None:
                with_ = "command" if other is url else "url"
                draft.warn(
                    entry_field.node, f"this is for a server with a {with_}, and is ignored here"
                )
                break
    if command is not None or url is not None or draft.problems:
        return
    if draft.origin.file_format not in (
        "colonnade",
        "codex",
    ):  # these may extend an entry of another file
        draft.wrong(draft.node, "a command or a url is missing")


def _check_url(draft: EntryDraft, url: EntryField) -> None:
    first = url.value.parts[0]
    if isinstance(first, str) and not first.lower().startswith(("http://", "https://")):
        draft.wrong(url.node, "expected a url that begins with https:// or http://")


def _finish_codex(draft: EntryDraft) -> None:
    """Translate `env_vars`, `env_http_headers` and the like: variables that are named."""
    names = draft.fields.pop(("env_vars",), None)
    if names is not None:
        for name in names.value:
            entry_field = draft.fields.get(("env", name)) or names._replace(value=_variable(name))
            draft.fields["env", name] = entry_field
    for name, entry_field in draft.table("env_headers").items():
        del draft.fields["env_headers", name]
        draft.fields["headers", name] = entry_field._replace(
            value=_variable(entry_field.value.text)
        )
    bearer = draft.fields.pop(("bearer",), None)
    if bearer is not None:
        reference = Reference("env", bearer.value.text, f"the variable {bearer.value.text}")
        made = ValueTemplate(f"Bearer {reference.text}", ("Bearer ", reference))
        draft.fields["headers", "Authorization"] = bearer._replace(value=made)
    scopes = draft.fields.pop(("scopes",), None)
    if scopes is not None:
        names = tuple(one.text for one in cast("tuple[ValueTemplate, ...]", scopes.value))
        draft.fields["login", "scopes"] = scopes._replace(value=names)


def _finish_sandbox(draft: EntryDraft) -> None:
    """Translate the sandbox of VS Code: `filesystem.allowWrite` is granted, `network` as a whole if
    any domain is allowed, and what it denies is not there unless it is granted."""
    enabled = draft.fields.pop(("sandbox_enabled",), None)
    rules = draft.fields.pop(("sandbox_rules",), None)
    if enabled is None or not enabled.value:
        return
    node = rules.node if rules is not None else enabled.node
    writes, domains = node.get("filesystem", "allowWrite"), node.get("network", "allowedDomains")
    folder = draft.origin.folder
    given = {
        "write": [
            one.replace("${workspaceFolder}", folder) if isinstance(one, str) else one
            for one in (writes.value if writes is not None and writes.items is not None else ())
        ],
        "network": domains is not None and bool(domains.value),
    }
    try:
        made = sandbox_of(given)
    except LocalProtocolError as error:
        draft.wrong(node, str(error))
        return
    draft.fields[("sandbox",)] = enabled._replace(value=made)
    if domains is not None and domains.value:
        draft.warn(domains, "domains are not told apart: the sandbox has the whole network")


def _escape_names(draft: EntryDraft) -> None:
    """Turn names of tools into patterns: other programs have names, Colonnade has patterns."""
    for field in ("only", "hidden"):
        entry_field = draft.get(field)
        if entry_field is not None:
            names = cast("tuple[str, ...]", entry_field.value)
            draft.fields[(field,)] = entry_field._replace(
                value=tuple(literal(escape(n)) for n in names)
            )


def _apply_disabled(draft: EntryDraft) -> None:
    """`disabled: true` means `enabled: false`, also if both are set."""
    disabled = draft.fields.pop(("disabled",), None)
    if disabled is not None and (disabled.value or draft.get("enabled") is None):
        draft.fields[("enabled",)] = disabled._replace(value=not disabled.value)


def _variable(name: str) -> ValueTemplate:
    text = f"the variable {name}"
    return ValueTemplate(text, (Reference("env", name, text, optional=True),))
