"""One annotation, both ways: its schema, JSON to a value of it, a value of it to JSON.

An annotation is classified once, when it is registered: msgspec reads it exactly, or pydantic has
to (and must be installed), or it is refused with a way out. Rules: whatever the bytes are, reading
raises `Unreadable` and nothing else; the bytes are never repeated in its words.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import PurePath
from typing import Any, Protocol, TypeAlias, cast

import msgspec

from portico.errors import LocalProtocolError
from portico.protocol import signature_models
from portico.protocol.annotations import PlainWalk
from portico.protocol.annotations_metadata import Unfit, refuse
from portico.protocol.annotations_names import Names
from portico.protocol.problems import (
    MAX_PROBLEMS,
    MAX_WORDS,
    Problem,
    cut,
    endless,
    expected_format,
    told,
)
from portico.protocol.schema import Schema, Validator, inlined
from portico.protocol.schema_types import describe
from portico.protocol.signature_loose import loosen, parse

ENDLESS = signature_models.ENDLESS

# What msgspec says about text of a format, and the format.
_FORMAT_WORDS = {
    "Invalid RFC3339 encoded datetime": "date-time",
    "Invalid RFC3339 encoded date": "date",
    "Invalid RFC3339 encoded time": "time",
    "Invalid ISO8601 duration": "duration",
    "Only units 'D', 'H', 'M', and 'S' are supported": "duration",
    "Invalid UUID": "uuid",
}
_WHERE = re.compile(r"^(.*?) - at (?:`key` in )?`\$(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


Titles: TypeAlias = dict[tuple[Any, ...], list[str]]


class Unreadable(Exception):
    """These bytes are no value of the annotation; the problems say why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(told(problems))
        self.problems = problems


class Codec(Protocol):
    """What reads and writes the values of one annotation."""

    @property
    def schema(self) -> Schema: ...
    @property
    def validator(self) -> Validator: ...
    @property
    def loosens(self) -> bool:
        """Whether scalars are to be put right; pydantic does that itself, by its own rules."""
        ...

    @property
    def titles(self) -> Titles:
        """The names of the members of each Enum, by their values."""
        ...

    def decode(self, raw: bytes, /) -> Any: ...
    def encode(self, value: Any) -> bytes: ...
    def complain(self, error: Exception, value: Any) -> list[Problem]: ...


class PlainCodec:
    """An annotation that msgspec reads. Raises `Unfit` for others."""

    loosens = True

    def __init__(self, annotation: Any, where: str, names: Names) -> None:
        walk = PlainWalk(where, names)
        self.type = walk.walk(annotation)
        try:
            info = msgspec.inspect.type_info(self.type)
            self.decode = msgspec.json.Decoder(self.type).decode
        except Exception as error:  # what it cannot build: TypeError, NameError, RecursionError, …
            raise Unfit(cut(str(error), MAX_WORDS)) from None
        self.schema = inlined(describe(info, walk.notes))
        self.titles: Titles = walk.notes.titles
        self._where = where

    @cached_property
    def validator(self) -> Validator:
        """Made when something is wrong for the first time: most tools never need it."""
        return Validator(self.schema, ours=True)

    def encode(self, value: Any) -> bytes:
        try:
            encoded = _encode(value)
            # msgspec writes null for NaN and Infinity, and nobody would notice.
            if b"null" in encoded and endless(msgspec.to_builtins(value, enc_hook=show)):
                raise ValueError(ENDLESS)
        except Exception as error:  # also what properties of the author raise
            raise LocalProtocolError(f"{self._where}: JSON cannot carry it: {error}") from None
        try:
            self.decode(encoded)
        except Exception as error:
            found = self.validator.check(parse(encoded)) or self.complain(error, None)
            raise LocalProtocolError(f"{self._where}: {told(found)}") from None
        return encoded

    def complain(self, error: Exception, value: Any) -> list[Problem]:
        return [_translated(error)]


def choose(annotation: Any, where: str, names: Names, *, outgoing: bool = False) -> Codec:
    """The codec for an annotation. Raises `LocalProtocolError` with a way out if there is none."""
    try:
        return PlainCodec(annotation, where, names)
    except Unfit as unfit:
        if signature_models.installed():
            return signature_models.ModelCodec(annotation, where, names, str(unfit), outgoing)
        refuse(
            where,
            f"this needs pydantic ({unfit}); pip install 'portico[pydantic]', or use plain types: "
            "str, int, float, bool, datetime, list, dict, Literal, a dataclass or a TypedDict",
        )


def read(codec: Codec, raw: bytes) -> Any:
    """A value of the annotation from bytes: as they stand, else put right. Raises `Unreadable`."""
    value = parse(raw)
    if value is msgspec.UNSET:
        raise Unreadable([Problem((), "not JSON that can be read")])
    with suppress(Exception):
        return codec.decode(raw)
    try:
        loose = loosen(value, codec.schema, scalars=codec.loosens)
        return codec.decode(msgspec.json.encode(loose))
    except Exception as error:  # also what checks of the author raise, whatever it is
        found = codec.validator.check(loosen(value, codec.schema))
        raise Unreadable(found or codec.complain(error, value)[:MAX_PROBLEMS]) from None


def show(value: Any) -> Any:
    """What JSON has for things that msgspec does not know: paths, and models inside of `Any`."""
    if isinstance(value, PurePath):
        return str(value)
    serializer = getattr(cast(Any, type(value)), "__pydantic_serializer__", None)
    if serializer is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON; return a plain type")
    return serializer.to_python(value, mode="json", by_alias=True)


_encode = msgspec.json.Encoder(enc_hook=show).encode


def _translated(error: Exception) -> Problem:
    """What msgspec, or a check of the author, found wrong; without the value."""
    found = _WHERE.match(str(error))
    words, place = found.groups() if found else (str(error), "")
    path = tuple(_steps(place))
    if not isinstance(error, msgspec.ValidationError):
        return Problem(path, "was refused")
    for start, name in _FORMAT_WORDS.items():
        if words.startswith(start):
            return Problem(path, expected_format(name))
    if words.startswith("Invalid enum value"):
        words = "expected another value"
    return Problem(path, cut(words.replace("`", ""), MAX_WORDS))


def _steps(place: str) -> Iterator[str | int]:
    for name, index in _STEP.findall(place):
        yield name or int(index)
