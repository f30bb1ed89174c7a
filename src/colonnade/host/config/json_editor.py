"""JSON and JSONC parser and editor that preserves the text: values with their positions, edited in
place.

With `comments` the text may have comments and trailing commas.

Rules: an edit changes the characters of its member and of the comma next to it, and no others; its
result is parsed again before it is returned. Only the member itself is formatted. The depth is
limited, so that no text exhausts the stack.
"""

import copy
import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from colonnade.host.config.settings import TOO_LONG, ConfigSyntaxError

# Deeper than any configuration, and far below the recursion limit.
MAX_DEPTH: Final = 100
# For a file without indentation.
INDENT: Final = "  "

_SPACE = re.compile(r"[ \t\r\n]*+")
_LINE_COMMENT = re.compile(r"//[^\r\n]*+")
_BLOCK_COMMENT = re.compile(r"/\*(?:[^*]|\*(?!/))*+\*/")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.])")
_WORD = re.compile(r"(?:true|false|null)(?!\w)")
# The rest of a line: spaces, and a comment that begins on it.
_SAME_LINE = re.compile(rf"(?:[ \t]*+(?:{_LINE_COMMENT.pattern}|{_BLOCK_COMMENT.pattern}))*+")
_FOLLOWED = re.compile(r"[ \t]*+(?://|/\*)")
_LINE_ENDS = re.compile(r"[ \t]*+(?:\r?\n|\Z)")
_BLANK = re.compile(r"[ \t]*+")


class Member(NamedTuple):
    """A key with its value: where it begins, where the whitespace before it begins, and its
    comma."""

    key: str
    at: int
    lead: int
    after_line_comment: bool
    node: "JsonNode"
    comma: int | None


class JsonNode(NamedTuple):
    """A value and its position; the members of an object, the items of an array."""

    start: int
    end: int
    value: Any
    members: list[Member] | None = None
    items: "list[JsonNode] | None" = None


def read(text: str, *, comments: bool = False) -> JsonNode | None:
    """Parse a text with positions; None if it is empty. Raises `ConfigSyntaxError`."""
    parser = _JsonParser(text, comments)
    try:
        at = parser.skip(1 if text.startswith("\ufeff") else 0)
        if at == len(text):
            return None
        node = parser.value(at, 0)
        rest = parser.skip(node.end)
    except ConfigSyntaxError as error:
        error.key = ".".join(parser.path)
        raise
    if rest < len(text):
        raise ConfigSyntaxError(text, rest, "unexpected text after the value")
    return node


class _JsonParser:
    """One pass over a text."""

    def __init__(self, text: str, comments: bool) -> None:
        self._text = text
        self._comments = comments
        # The keys of the current value.
        self.path: list[str] = []
        # Of what was skipped last: where its last whitespace begins, and whether that follows a
        # line comment.
        self._lead = 0
        self._after_line_comment = False

    def skip(self, at: int) -> int:
        """The position after whitespace and comments."""
        self._after_line_comment = False
        while True:
            self._lead = at
            at = cast("re.Match[str]", _SPACE.match(self._text, at)).end()
            if not self._text.startswith(("//", "/*"), at):
                return at
            if not self._comments:
                raise ConfigSyntaxError(self._text, at, "comments are not allowed in this file")
            line = _LINE_COMMENT.match(self._text, at)
            found = line or _BLOCK_COMMENT.match(self._text, at)
            if found is None:
                raise ConfigSyntaxError(self._text, at, "unterminated comment")
            self._after_line_comment = line is not None
            at = found.end()

    def value(self, at: int, depth: int) -> JsonNode:
        """Parse the value at this position."""
        if depth > MAX_DEPTH:
            raise ConfigSyntaxError(
                self._text, at, f"more than {MAX_DEPTH} levels of arrays and objects"
            )
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._list(at, depth)
        found = _NUMBER.match(self._text, at) or _WORD.match(self._text, at)
        if first == '"' or found is None:
            found = self._string(at) if first == '"' else None
        if found is None:
            raise ConfigSyntaxError(self._text, at, _no_value(first))
        try:
            return JsonNode(at, found.end(), json.loads(found[0]))
        except ValueError:  # Python does not parse longer numbers
            raise ConfigSyntaxError(self._text, at, TOO_LONG) from None

    def _string(self, at: int) -> "re.Match[str]":
        found = _STRING.match(self._text, at)
        if found is None:
            why = "unterminated string, or a character in it that must be escaped"
            raise ConfigSyntaxError(self._text, at, why)
        return found

    def _object(self, start: int, depth: int) -> JsonNode:
        members: list[Member] = []
        at = self.skip(start + 1)
        while not self._text.startswith("}", at):
            lead, after = self._lead, self._after_line_comment
            if self._text[at : at + 1] != '"':
                raise ConfigSyntaxError(self._text, at, _no_key(self._text[at : at + 1]))
            name = self._string(at)
            colon = self.skip(name.end())
            if not self._text.startswith(":", colon):
                raise ConfigSyntaxError(self._text, colon, "expected a colon")
            key = json.loads(name[0])
            self.path.append(key)
            node = self.value(self.skip(colon + 1), depth + 1)
            self.path.pop()
            comma, next = self._next(node.end, "}")
            members.append(Member(key, at, lead, after, node, comma))
            at = next
        value = {member.key: member.node.value for member in members}
        return JsonNode(start, at + 1, value, members)

    def _list(self, start: int, depth: int) -> JsonNode:
        items: list[JsonNode] = []
        at = self.skip(start + 1)
        while not self._text.startswith("]", at):
            items.append(self.value(at, depth + 1))
            _, at = self._next(items[-1].end, "]")
        return JsonNode(start, at + 1, [item.value for item in items], None, items)

    def _next(self, at: int, end: str) -> tuple[int | None, int]:
        """The comma after a value, if there is one, and the position of what follows."""
        at = self.skip(at)
        if self._text.startswith(end, at):
            return None, at
        if not self._text.startswith(",", at):
            raise ConfigSyntaxError(self._text, at, f"expected a comma or {end}")
        following = self.skip(at + 1)
        if self._text.startswith(end, following) and not self._comments:
            raise ConfigSyntaxError(self._text, at, "trailing commas are not allowed in this file")
        return at, following


def _no_value(first: str) -> str:
    return "expected a value" if first else "unexpected end of file"


def _no_key(first: str) -> str:
    return 'expected a key in "quotes"' if first else "unexpected end of file"


# ---------------------------------------------------------------- editing


def put(text: str, keys: Sequence[str], value: Any, *, comments: bool = False) -> str:
    """The text with a value at this path; missing objects are added. Raises `ConfigSyntaxError`."""
    style = _Style(text)
    root = read(text, comments=comments)
    if root is None:
        gap = style.newline if text.strip("\ufeff") and not text.endswith("\n") else ""
        new = text + gap + style.written(_nested(keys, value), "") + style.newline
        return _verified(text, new, _nested(keys, value), comments)
    node, rest = root, list(keys)
    while rest:
        found = _member(text, node, rest[0])
        if found is None:
            edits = _inserted(text, node, rest[0], _nested(rest[1:], value), style)
            break
        node, rest = found.node, rest[1:]
        if not rest:
            edits = [(node.start, node.end, style.written(value, _indent(text, found.at)))]
            break
    else:
        edits = [(root.start, root.end, style.written(value, ""))]
    wanted = copy.deepcopy(root.value)
    inner: Any = wanted
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    return _verified(text, _edited(text, edits), wanted, comments)


def remove(text: str, keys: Sequence[str], *, comments: bool = False) -> str:
    """The text without the value at this path. Raises `ConfigSyntaxError`, and `KeyError` if there
    is none."""
    root = node = read(text, comments=comments)
    if root is None or node is None:
        raise KeyError(keys[-1])
    for key in keys[:-1]:
        found = _member(text, node, key)
        if found is None:
            raise KeyError(keys[-1])
        node = found.node
    member = _member(text, node, keys[-1])
    if member is None or node.members is None:
        raise KeyError(keys[-1])
    wanted = copy.deepcopy(root.value)
    inner: Any = wanted
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    return _verified(text, _edited(text, _removed(text, node, member)), wanted, comments)


def _verified(text: str, new: str, wanted: Any, comments: bool) -> str:
    """The new text, if parsing it gives the expected value."""
    node = read(new, comments=comments)
    if node is None or node.value != wanted:
        raise ConfigSyntaxError(
            text, 0, "this file cannot be edited automatically; edit it by hand"
        )
    return new


def _nested(keys: Sequence[str], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _member(text: str, node: JsonNode, key: str) -> Member | None:
    """The member of this key. Raises `ConfigSyntaxError` if it is there twice, or if the node is no
    object."""
    if node.members is None:
        raise ConfigSyntaxError(text, node.start, "expected an object")
    found = [member for member in node.members if member.key == key]
    if len(found) > 1:
        raise ConfigSyntaxError(text, found[1].at, f"{json.dumps(key)} is a duplicate key")
    return found[0] if found else None


def _inserted(
    text: str, node: JsonNode, key: str, value: Any, style: "_Style"
) -> list[tuple[int, int, str]]:
    """The edits that append a member."""
    name = json.dumps(key, ensure_ascii=False)
    if not node.members:
        return [_first(text, node, name, value, style)]
    last = node.members[-1]
    indent = _indent(text, last.at)
    after = last.node.end if last.comma is None else last.comma + 1
    spot = cast("re.Match[str]", _SAME_LINE.match(text, after)).end()
    if _own_line(text, last.at) or text[spot : spot + 1] in "\r\n":
        member = f"{style.newline}{indent}{name}: {style.written(value, indent)}"
    else:
        member = f" {name}: {json.dumps(value, ensure_ascii=False)}"
    if last.comma is None:
        return [(last.node.end, last.node.end, ","), (spot, spot, member)]
    return [(spot, spot, member + ",")]


def _first(
    text: str, node: JsonNode, name: str, value: Any, style: "_Style"
) -> tuple[int, int, str]:
    """The edit that adds the first member of an object, below its comments."""
    outer = _indent(text, node.start)
    inner = outer + style.unit
    inside = text[node.start + 1 : node.end - 1]
    spot = node.start + 1 + len(inside.rstrip())
    member = f"{style.newline}{inner}{name}: {style.written(value, inner)}"
    if "\n" in text[spot : node.end - 1]:
        return (spot, spot, member)
    return (spot, node.end - 1, f"{member}{style.newline}{outer}")


def _removed(text: str, node: JsonNode, member: Member) -> list[tuple[int, int, str]]:
    """The edits that remove a member."""
    members = cast("list[Member]", node.members)
    end = member.node.end if member.comma is None else member.comma + 1
    if len(members) == 1 and not text[node.start + 1 : member.at].strip():
        rest = text[end : node.end - 1]
        if not rest.strip():
            return [(node.start + 1, node.end - 1, "")]
    # Comments are kept: they neither comment out what follows nor move to another member's line.
    keeps_line = _FOLLOWED.match(text, end) is not None or (
        member.after_line_comment and _LINE_ENDS.match(text, end) is None
    )
    edits = [(member.at if keeps_line else member.lead, end, "")]
    if member.comma is None and len(members) > 1:
        before = cast("int", members[-2].comma)
        edits.insert(0, (before, before + 1, ""))
    return edits


def _edited(text: str, edits: list[tuple[int, int, str]]) -> str:
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


def _line(text: str, at: int) -> int:
    """Where the line of a position begins."""
    start = text.rfind("\n", 0, at) + 1
    return 1 if start == 0 and text.startswith("\ufeff") else start


def _indent(text: str, at: int) -> str:
    """The indentation of the line of a position."""
    return cast("re.Match[str]", _BLANK.match(text, _line(text, at)))[0]


def _own_line(text: str, at: int) -> bool:
    """Whether there is only whitespace before a position on its line."""
    return not text[_line(text, at) : at].strip(" \t")


class _Style:
    """The line ending and the indentation of a file."""

    def __init__(self, text: str) -> None:
        at = text.find("\n")
        self.newline: str = "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"
        found = re.search(r'\n([ \t]+)"', text)
        self.unit: str = found[1] if found else INDENT

    def written(self, value: Any, indent: str) -> str:
        """A value as text: members on lines of their own, arrays on one line."""
        if not isinstance(value, dict) or not value:
            return json.dumps(value, ensure_ascii=False)
        inner = indent + self.unit
        members = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {self.written(item, inner)}"
            for key, item in cast("dict[str, Any]", value).items()
        ]
        joined = f",{self.newline}".join(members)
        return f"{{{self.newline}{joined}{self.newline}{indent}}}"
