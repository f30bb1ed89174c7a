"""TOML as a text that people wrote: a table is put at its end, or taken out where it stands.

Rules: an edit changes the lines of its table and the empty line above it, and no other one; what
comes out was read again before it is given.
"""

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from colonnade.host.config.settings import TOO_LONG, Broken

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLACE = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)
_HEADER = re.compile(r"^[ \t]*\[+([^\]\r\n]*)\]", re.MULTILINE)
_ASSIGNED = re.compile(r"""[ \t]*([\w."' -]{1,100})=""")
_KEY = re.compile(
    r"""[ \t]*+("(?:[^"\\]|\\.)*+"|'[^']*+'|[A-Za-z0-9_-]++)[ \t]*+(\.?)""", re.DOTALL
)
# What a value is made of, as far as its end is in question: strings, comments, brackets, the rest.
_PIECE = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}|\'\'\'(?:[^']|'(?!''))*+'{3,5}'''
    r"""|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|#[^\n]*+|[\[{]|[\]}]|\n|[^"'#\[\]{}\n]++""",
    re.DOTALL,
)


class Statement(NamedTuple):
    """A header or an assignment: the path of what it is about, and its lines."""

    path: tuple[str, ...]
    start: int
    end: int


def read(text: str, *, floats: Callable[[str], Any] = float) -> dict[str, Any]:
    """What the text says. Raises `Broken`."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"), parse_float=floats)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.match(str(error))
        why = (found[1] if found else str(error)).strip()
        at = len(text)
        if found and found[2]:
            lines = text.split("\n")[: int(found[2]) - 1]
            at = sum(len(line) + 1 for line in lines) + int(found[3]) - 1
        raise Broken(text, at, why[:1].lower() + why[1:], _key_at(text, at)) from None
    except ValueError:  # Python reads no longer ones, and does not say where
        raise Broken(text, 0, TOO_LONG) from None
    except RecursionError:
        raise Broken(text, 0, "its values are too deep") from None


def _key_at(text: str, at: int) -> str:
    """What a place in a text that cannot be read is about, as far as lines tell."""
    line = text.rfind("\n", 0, at) + 1
    headers = [found[1].strip() for found in _HEADER.finditer(text, 0, at)]
    named = _ASSIGNED.match(text, line)
    return ".".join([*headers[-1:], *([named[1].strip()] if named else [])])


def put(text: str, keys: Sequence[str], value: dict[str, Any]) -> str:
    """The text with this table; one that is there goes first. Raises `Broken`."""
    wanted = inner = read(text, floats=str)
    for key in keys[:-1]:
        below = inner.setdefault(key, {})
        if not isinstance(below, dict):
            raise Broken(text, _where(text, keys[:1]), f"{key} should be a table")
        inner = cast("dict[str, Any]", below)
    is_there = keys[-1] in inner
    inner[keys[-1]] = value
    start = take(text, keys) if is_there else text
    newline = "\r\n" if "\r\n" in text else "\n"
    body = table(keys, value).replace("\n", newline)
    if not start.strip("\ufeff \t\r\n"):
        new = start + body
    elif start.endswith("\n"):
        new = start + newline + body
    else:
        new = start + newline * 2 + body.removesuffix(newline)
    return _proven(text, new, wanted, keys)


def take(text: str, keys: Sequence[str]) -> str:
    """The text without this table. Raises `Broken`, and `KeyError` if it is not there."""
    wanted = inner = read(text, floats=str)
    for key in keys[:-1]:
        below = inner.get(key)
        if not isinstance(below, dict):
            raise KeyError(keys[-1])
        inner = cast("dict[str, Any]", below)
    del inner[keys[-1]]
    path, runs = tuple(keys), cast("list[list[int]]", [])
    is_run = False
    for one in statements(text):
        is_ours = one.path[: len(path)] == path
        if is_ours and is_run:
            runs[-1][1] = one.end  # comments between two lines of a table go with it
        elif is_ours:
            runs.append([one.start, one.end])
        is_run = is_ours
    new = text
    for start, end in reversed(runs):
        new = new[: _above(new, start, end)] + new[end:]
    try:
        left = read(new, floats=str)
    except Broken:
        left = None
    parent = tuple(keys[:-1])
    # A table that only its own tables spoke of is gone with the last of them.
    for depth in range(len(parent), 0, -1):
        if left is not None and not _at(wanted, parent[:depth]) and not _has(left, parent[:depth]):
            del _at(wanted, parent[: depth - 1])[parent[depth - 1]]
    return _proven(text, new, wanted, keys)


def _at(data: dict[str, Any], path: Sequence[str]) -> Any:
    for key in path:
        data = data[key]
    return data


def _has(data: dict[str, Any], path: Sequence[str]) -> bool:
    for key in path:
        if key not in data:
            return False
        data = data[key]
    return True


def _above(text: str, start: int, end: int) -> int:
    """Where a table begins with the empty line above it, which is not needed without it."""
    before = text[:start]
    found = re.search(r"(?:(?<=\n)|\A)[ \t]*\r?\n\Z", before)
    if found and (end == len(text) or re.match(r"[ \t]*(?:\r?\n|\[)", text[end:])):
        start = found.start()
    if end == len(text) and not text.endswith("\n"):
        # The last line had no end, and the one that is last now needs none.
        start = len(text[:start].removesuffix("\n").removesuffix("\r"))
    return start


def _proven(text: str, new: str, wanted: Any, keys: Sequence[str]) -> str:
    """The new text, if it says what it should."""
    try:
        is_right = read(new, floats=str) == wanted  # as texts: one nan is not like another
    except Broken:
        is_right = False
    if not is_right:
        why = f"{keys[0]} is written in a way that cannot be edited line by line; do it by hand"
        raise Broken(text, _where(text, keys[:1]), why)
    return new


def _where(text: str, path: Sequence[str]) -> int:
    found = [one.start for one in statements(text) if one.path[: len(path)] == tuple(path)]
    return found[0] if found else 0


# ---------------------------------------------------------------- statements


def statements(text: str) -> list[Statement]:
    """The statements of a text that was read without an error, in their order."""
    found: list[Statement] = []
    table: tuple[str, ...] = ()
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        start = at
        while text[at : at + 1] in (" ", "\t"):
            at += 1
        if text[at : at + 1] in ("", "\n", "\r", "#"):
            at = _line_end(text, at)
            continue
        is_header = text[at] == "["
        path, after = _path(text, at + len(text[at : at + 2]) - len(text[at : at + 2].lstrip("[")))
        at = _line_end(text, after) if is_header else _value_end(text, after)
        if is_header:
            table = path
        found.append(Statement(path if is_header else table + path, start, at))
    return found


def _path(text: str, at: int) -> tuple[tuple[str, ...], int]:
    parts: list[str] = []
    while found := _KEY.match(text, at):
        word = found[1]
        parts.append(next(iter(tomllib.loads(f"{word} = 0"))))
        at = found.end()
        if not found[2]:
            break
    return tuple(parts), at


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _value_end(text: str, at: int) -> int:
    """Where the line after a value begins; a list goes over many lines, and so does a string."""
    depth = 0
    while piece := _PIECE.match(text, at):
        at = piece.end()
        if piece[0] in ("[", "{"):
            depth += 1
        elif piece[0] in ("]", "}"):
            depth -= 1
        elif piece[0] == "\n" and depth <= 0:
            return at
    return len(text)


# ---------------------------------------------------------------- writing


def table(keys: Sequence[str], value: dict[str, Any]) -> str:
    """A table with its header."""
    lines = [f"[{'.'.join(map(_key, keys))}]"]
    lines += [f"{_key(name)} = {_written(item)}" for name, item in value.items()]
    return "".join(f"{line}\n" for line in lines)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    # The escapes of JSON are among those of TOML, which has one character more to escape.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return f"{{ {', '.join(f'{_key(name)} = {_written(item)}' for name, item in members)} }}"
    raise TypeError(f"an entry has no {type(value).__name__} in it")
