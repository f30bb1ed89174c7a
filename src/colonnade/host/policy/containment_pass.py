"""One pass over a result, a definition or a request of a server: hidden text is counted and shown,
as the table of `members` says.

Rules: pure. The given value is not changed; a contained value is a copy. Each step is short, since
large values are contained in a thread.
"""

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.errors import Fault
from colonnade.host.policy.hidden_text import (
    find_hidden,
    hides_text,
    is_plain,
    neutralise,
    percent_encoded,
)
from colonnade.host.policy.members import Treatment, rows_of
from colonnade.protocol import types as t
from colonnade.protocol.schema.validate import Validator
from colonnade.text import hidden_in

ContainMode: TypeAlias = Literal["neutralise", "mark", "off"]

# Maximum depth of a JSON value that is searched. Deeper values are refused elsewhere.
MAX_DEPTH: Final = 64
# Maximum characters of a URI; longer values are contained as text.
MAX_URI: Final = 32_768

P = TypeVar("P", bound=t.ProtocolType)
_END: Final = object()


class TooLarge(Exception):
    """Something is too large to be contained in the event loop."""


class LeftOut(Exception):
    """Structured content cannot be shown. Its argument is the reason."""


class HiddenExact(Exception):
    """Text is hidden in a member that is sent back unchanged. The arguments are the path of this
    member."""


class ContainmentPass:
    """One pass over the text of a result or a definition: contains each string, and counts.

    `most` is the number of characters of each text that are shown. After `room` characters and
    values the pass raises `TooLarge`.
    """

    def __init__(self, mode: ContainMode, most: int, room: float = inf) -> None:
        self._neutralises = mode == "neutralise"
        self._most = self._left = most
        self._room = room
        self.found: dict[str, int] = {}

    def _look_at(self, characters: int) -> None:
        self._room -= 1 + characters
        if self._room < 0:
            raise TooLarge

    def text(self, text: str) -> str:
        """A string for people and models."""
        kept = text[: max(self._left, 0)] if len(text) > self._left else text
        over = len(text) - len(kept)
        self._left -= len(text)
        self._look_at(len(kept))
        if not over and is_plain(text):
            return text
        if over:
            self._add("cut" if self._neutralises else "oversized", over)
        for name, count in find_hidden(kept).items():
            self._add(name, count)
        if not self._neutralises:
            return text
        shown = neutralise(kept)
        return f"{shown}… [{over} more characters were cut]" if over else shown

    def uri(self, uri: str) -> str:
        """A URI with its hidden characters percent-encoded, which is the same URI."""
        if len(uri) > MAX_URI:
            return self.text(uri)
        self._look_at(len(uri))
        if is_plain(uri):
            return uri
        for name, count in find_hidden(uri).items():
            self._add(name, count)
        return percent_encoded(uri) if self._neutralises else uri

    def value(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """A JSON value with all its strings."""
        if isinstance(value, str):
            return self.text(value)
        self._look_at(0)
        if isinstance(value, dict) and depth:
            members = cast("dict[str, Any]", value)
            return {self.text(key): self.value(one, depth - 1) for key, one in members.items()}
        if isinstance(value, list) and depth:
            return [self.value(one, depth - 1) for one in cast("list[Any]", value)]
        if isinstance(value, t.UnknownMembers):
            return t.UnknownMembers(self.value(value.members))
        return cast("Any", value)

    def base64(self, text: str) -> str:
        """Data in base64, which is never cut."""
        self._look_at(len(text))
        if is_plain(text):
            return text
        for name, count in find_hidden(text).items():
            self._add(name, count)
        return neutralise(text) if self._neutralises else text

    def choices(self, values: list[str]) -> list[str]:
        """Suggestions, without those that hide text."""
        kept = [one for one in values if not self._hides(one)]
        if len(kept) == len(values):
            return values
        self._add("exact", len(values) - len(kept))
        return kept if self._neutralises else values

    def exact(self, value: Any) -> Any:
        """A value that is sent back unchanged. Raises `HiddenExact`."""
        if isinstance(value, list):
            for one in cast("list[Any]", value):
                self.exact(one)
        elif isinstance(value, str) and self._hides(value):
            self._add("exact", len(hidden_in(value)))
            if self._neutralises:
                raise HiddenExact
        return cast("Any", value)

    def _hides(self, text: str) -> bool:
        """Whether text is hidden in a string. ASCII control characters hide nothing: JSON has them
        as escapes, so a model sees a line end or an escape character in a choice."""
        self._look_at(len(text))
        return not is_plain(text) and any(one >= "\x7f" for one in hidden_in(text))

    def schema(self, schema: Any, depth: int = MAX_DEPTH, *, is_value: bool = False) -> Any:
        """A JSON Schema: titles and descriptions are contained, and all other members are exact.
        `is_value` is whether `schema` is part of a choice or a default, not a schema."""
        self._look_at(0)
        if isinstance(schema, dict) and depth:
            shown: dict[str, Any] = {}
            for key, one in cast("dict[str, Any]", schema).items():
                if key in _WORDS and isinstance(one, str) and not is_value:
                    shown[key] = self.text(one)
                else:
                    self.exact(key)
                    inner = is_value or key in _VALUES
                    shown[key] = self.schema(one, depth - 1, is_value=inner)
            return shown
        if isinstance(schema, list) and depth:
            listed = cast("list[Any]", schema)
            return [self.schema(one, depth - 1, is_value=is_value) for one in listed]
        return self.exact(schema)

    def words(self, given: Any) -> Any:
        """Text, or a list of texts."""
        if isinstance(given, list):
            return [self.text(one) for one in cast("list[str]", given)]
        return self.text(cast("str", given))

    def parts(self, given: Any) -> Any:
        """A value whose type has rows of its own, a list of such values, or a dict of such
        values."""
        self._look_at(0)
        if isinstance(given, t.ProtocolType):
            return self.part(given)
        if isinstance(given, list):
            return [self.parts(one) for one in cast("list[Any]", given)]
        if isinstance(given, dict):
            named = cast("dict[str, Any]", given)
            return {self.exact(name): self.parts(one) for name, one in named.items()}
        return given

    def part(self, given: P) -> P:
        """A type of the protocol, each member by its row. Raises `HiddenExact`."""
        changed: dict[str, Any] = {}
        for name, contain in _plan(type(given)):
            value = getattr(given, name)
            if value is None or value is UNSET:
                continue
            try:
                shown = contain(self, value)
            except HiddenExact as hidden:
                raise HiddenExact(name, *hidden.args) from None
            if shown is not value:
                changed[name] = shown
        return replace(given, **changed) if changed else given

    def structured(self, given: Any, tool: t.Tool | None) -> Any:
        """Structured content. Raises `LeftOut`."""
        if isinstance(given, Raw):
            self._look_at(len(given))
            if not hides_text(given):
                return given
            if self._neutralises and len(given) > self._most:
                self._add("structured", 1)
                raise LeftOut("it is too large to show hidden text in it")
            value: Any = msgspec.json.decode(given)
        else:
            value = given
        size = self._count(value)
        if "structured" not in self.found or not self._neutralises:
            return given
        if size > self._most:
            raise LeftOut("it is too large to show hidden text in it")
        shown = _shown(value)
        if tool is not None and tool.output_schema is not None and not _fits(tool, shown):
            raise LeftOut("it does not fit its output schema once hidden text is shown")
        return shown

    def _count(self, value: object) -> int:
        """Count the hidden characters in the strings of a JSON value; returns the length of these
        strings."""
        left, size = [iter((value,))], 0
        while left:
            one = next(left[-1], _END)
            if isinstance(one, str):
                size += len(one)
                self._look_at(len(one))
                if not is_plain(one) and (hidden := find_hidden(one)):
                    self._add("structured", sum(hidden.values()))
                continue
            self._look_at(0)
            if one is _END:
                left.pop()
            elif isinstance(one, dict):
                members = cast("dict[str, object]", one)
                left += (iter(members.values()), iter(members))
            elif isinstance(one, list):
                left.append(iter(cast("list[object]", one)))
        return size

    def _add(self, name: str, count: int) -> None:
        self.found[name] = self.found.get(name, 0) + count


def _shown(value: Any) -> Any:
    """A JSON value whose strings and names are neutralised. Raises `LeftOut` if two names of one
    object become the same."""
    if isinstance(value, str):
        return neutralise(value)
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        shown = {neutralise(key): _shown(one) for key, one in members.items()}
        if len(shown) < len(members):
            raise LeftOut("two members get the same name once hidden text is shown")
        return shown
    if isinstance(value, list):
        return [_shown(one) for one in cast("list[Any]", value)]
    return value


def _fits(tool: t.Tool, value: Any) -> bool:
    try:
        return not Validator(tool.output_schema).check(value)
    except Fault:  # an invalid schema, which nobody validates against
        return True


# Members of a schema that people and models read, and members that are values.
_WORDS: Final = frozenset({"description", "title", "$comment"})
_VALUES: Final = frozenset({"enum", "const", "default", "examples"})

_TREATMENTS: Final[dict[Treatment, Callable[[ContainmentPass, Any], Any]]] = {
    Treatment.TEXT: ContainmentPass.words,
    Treatment.URI: ContainmentPass.uri,
    Treatment.DATA: ContainmentPass.value,
    Treatment.SCHEMA: ContainmentPass.schema,
    Treatment.EXACT: ContainmentPass.exact,
    Treatment.CHOICES: ContainmentPass.choices,
    Treatment.BASE64: ContainmentPass.base64,
    Treatment.PARTS: ContainmentPass.parts,
}


@cache
def _plan(
    kind: type[t.ProtocolType],
) -> tuple[tuple[str, Callable[[ContainmentPass, Any], Any]], ...]:
    """The members of a type that may hide text."""
    rows = rows_of(kind) or {}
    return tuple((name, _TREATMENTS[how]) for name, how in rows.items() if how in _TREATMENTS)
