"""Explains a configuration: the file and line of every value, what it overrides, and its
references.

Rules: nothing is started, opened or resolved, beyond whether a variable is set. A reference is
shown as it is written, never its value.
"""

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from colonnade.host.config.display import names, reference, safe_value, shown
from colonnade.host.config.entry import EntryDraft, EntryField, Origin, Path, templates_of
from colonnade.host.config.formats import FORMATS, NAMED, SETTINGS, TARGET_FIELDS, default_settings
from colonnade.host.config.lookups import LookupContext
from colonnade.host.config.reader import ConfigReader
from colonnade.host.config.references import Reference
from colonnade.host.config.settings import HostProblem
from colonnade.text import clean


class ValueSource(Struct, frozen=True, kw_only=True):
    """Where a value is set: the file, its program and its scope."""

    file: str
    line: int
    column: int
    key: str
    program: str
    scope: str


class ReferenceState(Struct, frozen=True, kw_only=True):
    """A reference in a value, and its state."""

    text: str
    kind: str
    name: str
    state: str


class ExplainedValue(Struct, frozen=True, kw_only=True):
    """One value of a server; one without a spot is a default."""

    name: str
    value: str
    spot: ValueSource | None = None
    over: tuple[ValueSource, ...] = ()
    references: tuple[ReferenceState, ...] = ()


class ExplainedServer(Struct, frozen=True, kw_only=True):
    """One server: its state, its command or URL, and its values."""

    server: str
    # used, off, wrong or untrusted
    state: str
    shown: str
    spot: ValueSource
    values: tuple[ExplainedValue, ...]
    problems: tuple[str, ...] = ()


def explain(
    reader: ConfigReader, trusting: ConfigReader | None = None, *, everything: bool = False
) -> list[ExplainedServer]:
    """Every server of a configuration; with `everything` also the defaults.

    `trusting` has read the same files as if they were all trusted: entries that only it has are
    shown as untrusted.
    """
    found = [_server(draft, reader.context, everything) for draft in reader.drafts.values()]
    files = {one.place.file for many in reader.untrusted.values() for one in many if one.place}
    others = trusting.drafts.values() if trusting is not None else ()
    found += [_server(draft, None, everything) for draft in others if _files(draft) & files]
    return found


def _files(draft: EntryDraft) -> set[str]:
    return {draft.place.file, *(entry_field.origin.file for entry_field in draft.fields.values())}


def _server(draft: EntryDraft, context: LookupContext | None, everything: bool) -> ExplainedServer:
    enabled = draft.get("enabled")
    state = "untrusted" if context is None else "wrong" if draft.problems else "used"
    if state == "used" and enabled is not None and enabled.value is False:
        state = "off"
    reach, entry_field = (
        draft.get("command") or draft.get("url"),
        EntryField(None, draft.node, draft.origin),
    )
    values = list(_values(draft, context))
    if everything:
        named = {value.name for value in values}
        usual = default_settings()
        values += [
            ExplainedValue(name=name, value=_plain(usual[name]))
            for name in SETTINGS
            if name not in named
        ]
    return ExplainedServer(
        server=draft.key,
        state=state,
        shown=shown(draft) if draft.has_target else "",
        spot=_spot(reach._replace(node=draft.node) if reach else entry_field),
        values=tuple(values),
        problems=tuple(str(problem) for problem in draft.problems),
    )


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value or "none")


def _values(draft: EntryDraft, context: LookupContext | None) -> Iterator[ExplainedValue]:
    order = {name: number for number, name in enumerate((*TARGET_FIELDS, *SETTINGS))}
    for path, entry_field in sorted(draft.fields.items(), key=lambda one: order.get(one[0][0], 0)):
        yield ExplainedValue(
            name=".".join(path),
            value=safe_value(path, entry_field),
            spot=_spot(entry_field),
            over=tuple(map(_spot, entry_field.overridden)),
            references=tuple(_references(path, entry_field, context)),
        )


def _spot(entry_field: EntryField) -> ValueSource:
    place, origin = entry_field.place, entry_field.origin
    return ValueSource(
        file=place.file,
        line=place.line,
        column=place.column,
        key=place.key,
        program=_program(origin),
        scope="" if origin.scope == NAMED else origin.scope,
    )


def _program(origin: Origin) -> str:
    return FORMATS[origin.file_format].title if origin.file_format in FORMATS else "Colonnade"


def _references(
    path: Path, entry_field: EntryField, context: LookupContext | None
) -> Iterator[ReferenceState]:
    found = templates_of(entry_field)
    called = names(found) if path == ("args",) else [path[-1]] * len(found)
    for one, name in zip(found, called, strict=True):
        for part in one.references:
            state = "not checked" if context is None else _state(part, entry_field.origin, context)
            text = reference(part, name)
            yield ReferenceState(text=text, kind=part.kind, name=part.name, state=state)


def _state(part: Reference, origin: Origin, context: LookupContext) -> str:
    if part.kind == "env":
        if part.name in context.env:
            return "set"
        if part.optional:
            return "not set; left out"
        if part.default is not None:
            return "not set; its default is used" if part.default else "not set; empty"
        return "not set"
    if part.kind == "folder":
        return context.folder(part.name, origin)
    if part.kind == "input":
        known = part.name in context.declared_inputs.get(origin.file, {})
        return "prompted for when needed" if known else "no such input"
    if part.kind == "file":
        path = context.path(part.name, origin)
        return "read when needed" if os.path.isfile(path) else "no such file"
    return "resolved when needed"


# ---------------------------------------------------------------- as text


def render(servers: list[ExplainedServer], *, home: str, folder: str) -> str:
    """The explanation as text, safe for a terminal."""
    lines: list[str] = []
    for one in servers:
        state = "" if one.state == "used" else f"  ({_STATES[one.state]})"
        lines += [clean(f"{one.server}  {one.shown}".rstrip()) + state]
        for value in one.values:
            lines.append(clean(f"  {value.name} = {value.value}"))
            where = _where(value.spot, home, folder) if value.spot else "default"
            lines.append(clean(f"      {where}"))
            lines += [clean(f"      overrides {_where(spot, home, folder)}") for spot in value.over]
            lines += [clean(f"      {each.text}: {each.state}") for each in value.references]
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


_STATES = {
    "off": "disabled",
    "wrong": "not used: it has errors",
    "untrusted": "not used: its file is not trusted",
}


def _where(spot: ValueSource, home: str, folder: str) -> str:
    scope = f", {spot.scope}" if spot.scope else ""
    return f"{short(spot.file, home, folder)}:{spot.line} ({spot.program}{scope})"


def short(file: str, home: str, folder: str) -> str:
    """A path relative to the working folder or the home folder, if it is below one."""
    for start, sign in ((folder, ""), (home, "~" + os.sep)):
        if start and file.startswith(start.rstrip(os.sep) + os.sep):
            return sign + file[len(start.rstrip(os.sep)) + 1 :]
    return file


def line(problem: HostProblem) -> str:
    """A problem in one line for scripts: `file:line:column: key: message`."""
    return clean(str(problem))
