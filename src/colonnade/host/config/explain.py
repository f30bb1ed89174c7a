"""Where every value of a configuration came from: which file and line, over which others, by what.

Rules: nothing is started, opened or looked up beyond whether a variable is set. A reference is
shown as it is written, and never what it stands for.
"""

import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from colonnade.host.config.display import names, reference, safe_value, shown
from colonnade.host.config.entry import Draft, Origin, Path, Said, texts
from colonnade.host.config.formats import DIALECTS, NAMED, REACHING, SETTINGS, defaults
from colonnade.host.config.lookups import Surroundings
from colonnade.host.config.reader import Reader
from colonnade.host.config.references import Reference
from colonnade.host.config.settings import Problem
from colonnade.text import clean


class Spot(Struct, frozen=True, kw_only=True):
    """Where a value is said: the file, and which scope of which program that is."""

    file: str
    line: int
    column: int
    key: str
    program: str
    scope: str


class Referred(Struct, frozen=True, kw_only=True):
    """A reference in a value, and what becomes of it."""

    text: str
    kind: str
    name: str
    state: str


class Value(Struct, frozen=True, kw_only=True):
    """One value of a server; without a spot it is what goes without saying."""

    name: str
    value: str
    spot: Spot | None = None
    over: tuple[Spot, ...] = ()
    references: tuple[Referred, ...] = ()


class Explained(Struct, frozen=True, kw_only=True):
    """One server: whether it is used, what it is, and each of its values."""

    server: str
    # used, off, wrong or untrusted
    state: str
    shown: str
    spot: Spot
    values: tuple[Value, ...]
    problems: tuple[str, ...] = ()


def explained(
    reader: Reader, trusting: Reader | None = None, *, everything: bool = False
) -> list[Explained]:
    """Every server of a reading; with `everything` also settings that nobody said.

    `trusting` is a reading of the same files by somebody who trusts them all: what only that one
    has is shown, too, as what would be.
    """
    found = [_server(draft, reader.around, everything) for draft in reader.drafts.values()]
    files = {one.place.file for many in reader.untrusted.values() for one in many if one.place}
    others = trusting.drafts.values() if trusting is not None else ()
    found += [_server(draft, None, everything) for draft in others if _files(draft) & files]
    return found


def _files(draft: Draft) -> set[str]:
    return {draft.place.file, *(said.origin.file for said in draft.fields.values())}


def _server(draft: Draft, around: Surroundings | None, everything: bool) -> Explained:
    enabled = draft.get("enabled")
    state = "untrusted" if around is None else "wrong" if draft.problems else "used"
    if state == "used" and enabled is not None and enabled.value is False:
        state = "off"
    reach, said = draft.get("command") or draft.get("url"), Said(None, draft.node, draft.origin)
    values = list(_values(draft, around))
    if everything:
        named = {value.name for value in values}
        usual = defaults()
        values += [
            Value(name=name, value=_plain(usual[name])) for name in SETTINGS if name not in named
        ]
    return Explained(
        server=draft.key,
        state=state,
        shown=shown(draft) if draft.reaches else "",
        spot=_spot(reach._replace(node=draft.node) if reach else said),
        values=tuple(values),
        problems=tuple(str(problem) for problem in draft.problems),
    )


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value or "none")


def _values(draft: Draft, around: Surroundings | None) -> Iterator[Value]:
    order = {name: number for number, name in enumerate((*REACHING, *SETTINGS))}
    for path, said in sorted(draft.fields.items(), key=lambda one: order.get(one[0][0], 0)):
        yield Value(
            name=".".join(path),
            value=safe_value(path, said),
            spot=_spot(said),
            over=tuple(map(_spot, said.over)),
            references=tuple(_references(path, said, around)),
        )


def _spot(said: Said) -> Spot:
    place, origin = said.place, said.origin
    return Spot(
        file=place.file,
        line=place.line,
        column=place.column,
        key=place.key,
        program=_program(origin),
        scope="" if origin.scope == NAMED else origin.scope,
    )


def _program(origin: Origin) -> str:
    return DIALECTS[origin.dialect].title if origin.dialect in DIALECTS else "Colonnade"


def _references(path: Path, said: Said, around: Surroundings | None) -> Iterator[Referred]:
    found = texts(said)
    called = names(found) if path == ("args",) else [path[-1]] * len(found)
    for one, name in zip(found, called, strict=True):
        for part in one.references:
            state = "not looked at" if around is None else _state(part, said.origin, around)
            text = reference(part, name)
            yield Referred(text=text, kind=part.kind, name=part.name, state=state)


def _state(part: Reference, origin: Origin, around: Surroundings) -> str:
    if part.kind == "env":
        if part.name in around.env:
            return "set"
        if part.optional:
            return "not set, and left out"
        if part.default is not None:
            return "not set: its default" if part.default else "not set: empty"
        return "not set"
    if part.kind == "folder":
        return around.folder(part.name, origin)
    if part.kind == "input":
        known = part.name in around.questions.get(origin.file, {})
        return "asked when it is needed" if known else "no such input"
    if part.kind == "file":
        path = around.path(part.name, origin)
        return "its first line, when it is needed" if os.path.isfile(path) else "no such file"
    return "looked up when it is needed"


# ---------------------------------------------------------------- for people


def told(servers: list[Explained], *, home: str, folder: str) -> str:
    """The same as text, made safe for a terminal."""
    lines: list[str] = []
    for one in servers:
        state = "" if one.state == "used" else f"  ({_STATES[one.state]})"
        lines += [clean(f"{one.server}  {one.shown}".rstrip()) + state]
        for value in one.values:
            lines.append(clean(f"  {value.name} = {value.value}"))
            where = _where(value.spot, home, folder) if value.spot else "as it is by default"
            lines.append(clean(f"      {where}"))
            lines += [clean(f"      over {_where(spot, home, folder)}") for spot in value.over]
            lines += [clean(f"      {each.text}: {each.state}") for each in value.references]
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


_STATES = {
    "off": "switched off",
    "wrong": "not used: something is wrong with it",
    "untrusted": "not used: its file is not trusted",
}


def _where(spot: Spot, home: str, folder: str) -> str:
    scope = f", {spot.scope}" if spot.scope else ""
    return f"{short(spot.file, home, folder)}:{spot.line} ({spot.program}{scope})"


def short(file: str, home: str, folder: str) -> str:
    """A path as short as it can be said from here."""
    for start, sign in ((folder, ""), (home, "~" + os.sep)):
        if start and file.startswith(start.rstrip(os.sep) + os.sep):
            return sign + file[len(start.rstrip(os.sep)) + 1 :]
    return file


def line(problem: Problem) -> str:
    """A problem for scripts: `file:line:column: key: words`, always in one line."""
    return clean(str(problem))
