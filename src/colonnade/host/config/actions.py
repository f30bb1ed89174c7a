"""What a configuration file makes happen, for the question whether to trust it.

Rules: the list is complete. A key without a line of its own is shown as a setting, so that a new
key of a server or a table is in the question from its first day. Text is shown as written in the
file, made safe for a terminal. Pure: nothing is opened, resolved or started.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os.path import dirname
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

import msgspec

from colonnade.host.config.dangers import (
    command_dangers,
    is_on_another_machine,
    path_dangers,
    place_dangers,
    setting_dangers,
    table_dangers,
    url_dangers,
    variable_dangers,
)
from colonnade.host.config.display import words
from colonnade.host.config.entry import EntryDraft, EntryField, Origin, SourceNode, templates_of
from colonnade.host.config.files import ConfigFile
from colonnade.host.config.formats import NEVER, TYPES
from colonnade.host.config.references import (
    InvalidReference,
    Reference,
    ReferenceKind,
    ValueTemplate,
    template,
)
from colonnade.text import clean
from colonnade.transport.process.sandbox import Sandbox

ActionKind: TypeAlias = Literal[
    "run", "reach", "set", "send", "ask", "read", "in", "sandbox", "use", "setting"
]


class RequestedAction(NamedTuple):
    """One action that a file requests: its server, its kind, its text (safe for a terminal), and
    its dangers. Actions of a table of the file, such as `[gateway]`, have the table instead of a
    server."""

    server: str
    what: ActionKind
    text: str
    dangers: tuple[str, ...] = ()
    table: str = ""


# Fields of an entry that have lines of their own; all others are settings.
_SHOWN_APART: Final = frozenset(
    {"command", "env", "env_file", "cwd", "url", "headers", "headers_helper", "sandbox"}
)
_REFERENCES: Final[dict[ReferenceKind, str]] = {
    "env": "environment variable {}",
    "input": "input {}, which you are asked for",
    "keyring": "password {} of the keyring",
    "file": "first line of file {}",
}


def requested_actions(
    files: Sequence[ConfigFile],
    variables: Mapping[EntryDraft, Sequence[str]],
    root: ConfigFile | None,
) -> list[RequestedAction]:
    """All actions that files request, as written. `.env` files, whose values may be secrets,
    contribute only the names of their variables, by entry.

    `root` is the file whose tables are used; tables of included files are not.
    """
    defaults = root.defaults if root is not None else None
    usual = defaults.get("sandbox") if defaults is not None else None
    found = [
        action
        for file in files
        for draft in file.drafts
        for action in _entry_actions(draft, variables.get(draft, ()), usual)
    ]
    for file in files:
        found += _input_actions(file)
    return [*found, *_root_actions(root)] if root is not None else found


# Kind, text, and what deserves attention.
_Line: TypeAlias = tuple[ActionKind, str, Iterable[str]]


def _entry_actions(
    draft: EntryDraft, names: Sequence[str], usual: EntryField | None
) -> Iterator[RequestedAction]:
    folder = _folder(draft.origin)
    lines = (
        *_target_lines(draft, usual, folder),
        *_value_lines(draft, names, folder),
        *_reference_lines(draft, folder),
        *_setting_lines(draft, folder),
    )
    for what, text, dangers in lines:
        yield _action(what, text, dangers, server=draft.key)


def _action(
    what: ActionKind, text: str, dangers: Iterable[str] = (), *, server: str = "", table: str = ""
) -> RequestedAction:
    found = tuple(map(clean, dict.fromkeys(dangers)))
    return RequestedAction(clean(server), what, clean(text), found, table)


def _target_lines(draft: EntryDraft, usual: EntryField | None, folder: str) -> Iterator[_Line]:
    """The command that is started, or the URL that is connected to."""
    command, url, cwd = (draft.get(name) for name in ("command", "url", "cwd"))
    if command is not None:
        line = words(draft)
        yield "run", shlex.join(line), command_dangers(line, folder)
    sandbox = draft.get("sandbox") or (usual if command is not None else None)
    if sandbox is not None:
        yield "sandbox", *_granted(sandbox.value)
    if url is not None:
        yield "reach", url.value.text, url_dangers(url.value.text)
    if cwd is not None:
        yield "in", cwd.value.text, path_dangers(cwd.value.text, folder)


def _value_lines(draft: EntryDraft, names: Sequence[str], folder: str) -> Iterator[_Line]:
    """Environment variables and headers."""
    file, helper = draft.get("env_file"), draft.get("headers_helper")
    for name, entry_field in draft.table("env").items():
        value = _text(entry_field)
        yield "set", f"{name}={value}", variable_dangers(name, value)
    if file is not None:
        found = [one for name in names for one in variable_dangers(name, "")]
        listed = f" ({', '.join(names)})" if names else ""
        yield "read", f"{_text(file)}{listed}", [*found, *path_dangers(_text(file), folder)]
    for name, entry_field in draft.table("headers").items():
        value = _text(entry_field)
        yield "send", f"{name}={value}", place_dangers(value)
    if helper is not None:
        yield "ask", _text(helper), command_dangers(_text(helper).split(), folder)


def _reference_lines(draft: EntryDraft, folder: str) -> Iterator[_Line]:
    """The references that are looked up, and where their values are sent."""
    command, url = draft.get("command"), draft.get("url")
    references = [
        part
        for entry_field in draft.fields.values()
        for one in templates_of(entry_field)
        for part in one.references
    ]
    for part in references:
        if part.words:
            yield "ask", shlex.join(part.words), command_dangers(part.words, folder)
    place = "given to the server"
    if url is not None:
        place = f"sent to {url.value.text}"
    elif command is not None:
        place = f"given to {command.value.text}"
    for text, dangers in _references(references, folder):
        yield "use", f"{text}, {place}", dangers


def _setting_lines(draft: EntryDraft, folder: str) -> Iterator[_Line]:
    """All settings without a line of their own."""
    has_command = draft.get("command") is not None
    for path, entry_field in draft.fields.items():
        if path[0] in _SHOWN_APART or (path == ("args",) and has_command):
            continue
        if path == ("type",) and TYPES.get(_text(entry_field)) != "sse":
            continue  # the line with the command or the URL says the same
        yield _setting_line(".".join(path), entry_field.value, folder)


def _setting_line(name: str, value: Any, folder: str) -> _Line:
    plain = _plain(value)
    return "setting", f"{name} = {_json(plain)}", setting_dangers(name, plain, folder)


def _folder(origin: Origin) -> str:
    """The project folder of a file."""
    return dirname(origin.file) if origin.file_format == "colonnade" else origin.folder


def _granted(sandbox: Sandbox | Literal[False]) -> tuple[str, list[str]]:
    """R1314: what a sandbox grants, and the dangers of each grant."""
    if sandbox is False:
        return "none", setting_dangers("sandbox", False, "")
    paths = [*sandbox.read, *sandbox.write]
    return sandbox.describe(), [one for path in paths for one in place_dangers(path)]


def _references(parts: Iterable[Reference], folder: str) -> Iterator[tuple[str, list[str]]]:
    """The targets of references, each once, with their dangers."""
    for kind, name in dict.fromkeys((one.kind, one.name) for one in parts):
        if kind in _REFERENCES:
            is_path = kind == "file"
            dangers = path_dangers(name, folder) if is_path else place_dangers(f"{kind} {name}")
            yield _REFERENCES[kind].format(name), list(dangers)


def _text(entry_field: EntryField) -> str:
    return entry_field.value.text if isinstance(entry_field.value, ValueTemplate) else ""


def _plain(value: Any) -> Any:
    """A setting as it is written."""
    if isinstance(value, ValueTemplate):
        return value.text
    if isinstance(value, tuple):
        return [_plain(one) for one in cast("tuple[Any, ...]", value)]
    if isinstance(value, Sandbox):
        return value.describe()
    return False if value is NEVER else value


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


# ---------------------------------------------------------------- tables of a file


def _input_actions(file: ConfigFile) -> Iterator[RequestedAction]:
    """The inputs of VS Code: each question, and the answers it offers."""
    for one in file.inputs.values():
        shown = {
            name: value
            for name, value in msgspec.structs.asdict(one).items()
            if name not in ("id", "file") and value
        }
        yield _action("setting", f"{one.id} = {_json(shown)}", table="inputs")


def _root_actions(root: ConfigFile) -> Iterator[RequestedAction]:
    """The actions of `colonnade.toml` that do not belong to a server."""
    folder = dirname(root.file)
    for path, _ in root.includes:
        yield _action("setting", path, path_dangers(path, folder), table="include")
    for path, entry_field in root.defaults.fields.items() if root.defaults is not None else ():
        yield _action(*_setting_line(".".join(path), entry_field.value, folder), table="[defaults]")
    for table, node in root.tables.items():
        for what, text, dangers in _table_lines(table, node, folder):
            heading = "[[policy]]" if table == "policy" else f"[{table}]"
            yield _action(what, text, dangers, table=heading)


def _table_lines(table: str, node: SourceNode, folder: str) -> Iterator[_Line]:
    if table == "policy" and node.items is not None:
        for rule in node.items:
            yield from _rule_line(rule)
        return
    for name, value in _leaves(node, ""):
        text = f"{name} = {_json(value)}" if name else _json(value)
        yield "setting", text, table_dangers(table, name, value, folder)
    if table == "gateway":
        yield from _gateway_references(node, folder)


def _rule_line(node: SourceNode) -> Iterator[_Line]:
    """A rule of a policy in one line, without its tests: only `colonnade policy test` runs those
    tests."""
    members = {name: one for name, one in (node.members or {}).items() if name != "test"}
    if not members and node.members:
        return
    shown = [f"{name} = {_json(one.value)}" for name, one in members.items()]
    allows = "action" in members and members["action"].value == "allow"
    dangers = ["allows calls without asking"] if allows else []
    yield "setting", ", ".join(shown) or _json(node.value), dangers


def _leaves(node: SourceNode, name: str) -> Iterator[tuple[str, Any]]:
    """Every value of a table by its path: `auth.issuer`."""
    if not node.members:
        yield name, node.value
        return
    for key, member in node.members.items():
        yield from _leaves(member, f"{name}.{key}" if name else key)


def _gateway_references(node: SourceNode, folder: str) -> Iterator[_Line]:
    """The references of a gateway's store and keys, and where their values are sent."""
    for name, one in (("store", node.get("store")), ("keys", node.get("keys"))):
        values = () if one is None else one.items if one.items is not None else (one,)
        for value in values:
            try:
                found = template(str(value.value), "colonnade", [])
            except InvalidReference:
                continue  # it is not used
            place, literal = "to encrypt with", isinstance(found.parts[0], str)
            if name == "store":
                place = f"sent to {found.text}" if literal else "for the store"
            for text, dangers in _references(found.references, folder):
                if name == "store" and literal and is_on_another_machine(found.text):
                    dangers.append("is sent to another machine")
                yield "use", f"{text}, {place}", dangers
