"""A configuration file as data that knows where it stands: every value has a file, line and column.

JSON and TOML become the same tree, so that whoever reads servers out of it asks neither.

Rules: bytes in, tree out; no file is opened here. What is not UTF-8, or breaks the rules of its
language, is `Broken`. Nothing of a value is in an error: it may be a secret.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from colonnade.client.text import clean
from colonnade.host import json_text, toml_text
from colonnade.host.broken import Broken
from colonnade.host.dialects import Syntax
from colonnade.host.settings import Place


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
