"""TOML editor that preserves the text: a table is appended, or removed where it is.

Rules: an edit changes the lines of its table and the empty line above it, and no others; its result
is parsed again before it is returned.
"""

import json
import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from colonnade.host.config.settings import TOO_LONG, ConfigSyntaxError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_PLACE = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)
_HEADER = re.compile(r"^[ \t]*\[+([^\]\r\n]*)\]", re.MULTILINE)
_ASSIGNED = re.compile(r"""[ \t]*([\w."' -]{1,100})=""")
_KEY = re.compile(
    r"""[ \t]*+("(?:[^"\\]|\\.)*+"|'[^']*+'|[A-Za-z0-9_-]++)[ \t]*+(\.?)""", re.DOTALL
)
# The tokens of a value, as far as its end is concerned: strings, comments, brackets, the rest.
_PIECE = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+"{3,5}|\'\'\'(?:[^']|'(?!''))*+'{3,5}'''
    r"""|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'|#[^\n]*+|[\[{]|[\]}]|\n|[^"'#\[\]{}\n]++""",
    re.DOTALL,
)


class Statement(NamedTuple):
    """A table header or an assignment: its path, and its lines."""

    path: tuple[str, ...]
    start: int
    end: int


def read(text: str, *, floats: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a text. Raises `ConfigSyntaxError`."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"), parse_float=floats)
    except tomllib.TOMLDecodeError as error:
        found = _PLACE.match(str(error))
        why = (found[1] if found else str(error)).strip()
        at = len(text)
        if found and found[2]:
            lines = text.split("\n")[: int(found[2]) - 1]
            at = sum(len(line) + 1 for line in lines) + int(found[3]) - 1
        raise ConfigSyntaxError(text, at, why[:1].lower() + why[1:], _key_at(text, at)) from None
    except ValueError:  # Python does not parse longer numbers, and does not say where
        raise ConfigSyntaxError(text, 0, TOO_LONG) from None
    except RecursionError:
        raise ConfigSyntaxError(text, 0, "its values are nested too deeply") from None


def _key_at(text: str, at: int) -> str:
    """The key at a position of a text that cannot be parsed, by its lines."""
    line = text.rfind("\n", 0, at) + 1
    headers = [found[1].strip() for found in _HEADER.finditer(text, 0, at)]
    named = _ASSIGNED.match(text, line)
    return ".".join([*headers[-1:], *([named[1].strip()] if named else [])])


def put(text: str, keys: Sequence[str], value: dict[str, Any]) -> str:
    """The text with this table; an existing one is removed first. Raises `ConfigSyntaxError`."""
    wanted = inner = read(text, floats=str)
    for key in keys[:-1]:
        below = inner.setdefault(key, {})
        if not isinstance(below, dict):
            raise ConfigSyntaxError(text, _where(text, keys[:1]), f"expected {key} to be a table")
        inner = cast("dict[str, Any]", below)
    is_there = keys[-1] in inner
    inner[keys[-1]] = value
    start = remove(text, keys) if is_there else text
    newline = "\r\n" if "\r\n" in text else "\n"
    body = table(keys, value).replace("\n", newline)
    if not start.strip("\ufeff \t\r\n"):
        new = start + body
    elif start.endswith("\n"):
        new = start + newline + body
    else:
        new = start + newline * 2 + body.removesuffix(newline)
    return _verified(text, new, wanted, keys)


def remove(text: str, keys: Sequence[str]) -> str:
    """The text without this table. Raises `ConfigSyntaxError`, and `KeyError` if there is none."""
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
            runs[-1][1] = one.end  # comments within a table are removed with it
        elif is_ours:
            runs.append([one.start, one.end])
        is_run = is_ours
    new = text
    for start, end in reversed(runs):
        new = new[: _above(new, start, end)] + new[end:]
    try:
        left = read(new, floats=str)
    except ConfigSyntaxError:
        left = None
    parent = tuple(keys[:-1])
    # A table that was defined only by its sub-tables is gone with the last of them.
    for depth in range(len(parent), 0, -1):
        if left is not None and not _at(wanted, parent[:depth]) and not _has(left, parent[:depth]):
            del _at(wanted, parent[: depth - 1])[parent[depth - 1]]
    return _verified(text, new, wanted, keys)


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
    """Where a table begins, with the empty line above it, which is removed as well."""
    before = text[:start]
    found = re.search(r"(?:(?<=\n)|\A)[ \t]*\r?\n\Z", before)
    if found and (end == len(text) or re.match(r"[ \t]*(?:\r?\n|\[)", text[end:])):
        start = found.start()
    if end == len(text) and not text.endswith("\n"):
        # The last line had no line ending, and the new last line needs none.
        start = len(text[:start].removesuffix("\n").removesuffix("\r"))
    return start


def _verified(text: str, new: str, wanted: Any, keys: Sequence[str]) -> str:
    """The new text, if parsing it gives the expected value."""
    try:
        is_right = read(new, floats=str) == wanted  # floats as strings: nan is not equal to nan
    except ConfigSyntaxError:
        is_right = False
    if not is_right:
        why = f"{keys[0]} cannot be edited line by line; edit it by hand"
        raise ConfigSyntaxError(text, _where(text, keys[:1]), why)
    return new


def _where(text: str, path: Sequence[str]) -> int:
    found = [one.start for one in statements(text) if one.path[: len(path)] == tuple(path)]
    return found[0] if found else 0


# ---------------------------------------------------------------- statements


def statements(text: str) -> list[Statement]:
    """The statements of a valid text, in order."""
    result: list[Statement] = []
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
        result.append(Statement(path if is_header else table + path, start, at))
    return result


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
    """Where the line after a value begins; arrays and strings may span lines."""
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
    # The escapes of JSON are valid in TOML, which requires one more.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _written(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value).items()
        return f"{{ {', '.join(f'{_key(name)} = {_written(item)}' for name, item in members)} }}"
    raise TypeError(f"an entry cannot contain a {type(value).__name__}")
