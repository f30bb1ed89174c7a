"""Annotations that msgspec reads exactly as they are meant, in one pass.

Rules: what msgspec would read differently raises `Unfit` when the codec is made, not later.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, cast

import msgspec

from colonnade.errors import LocalProtocolError
from colonnade.protocol.schema.error_messages import (
    MAX_TEXT_CHARS,
    ValidationProblem,
    expected_format,
    has_non_finite,
    join_problems,
    truncate,
)
from colonnade.protocol.schema.validate import Schema, Validator, inline_references
from colonnade.signatures.coerce import parse
from colonnade.signatures.json_schema import schema_of
from colonnade.signatures.string_types import (
    CHECKS,
    has_endless_decimal,
    read_text,
    with_texts,
    write_text,
)
from colonnade.signatures.type_hints import MsgspecVisitor, Namespace, UnsupportedByMsgspec

ENDLESS = "NaN and Infinity are not JSON; return None or a string for them"

# The names of the members of an Enum, by their values.
Titles: TypeAlias = dict[tuple[Any, ...], list[str]]


class Codec(ABC):
    """One annotation, both ways."""

    # Whether scalars are to be put right for it; pydantic does that itself, by its own rules.
    coerces: ClassVar[bool]

    def __init__(
        self, where: str, schema: Schema, decode: Callable[[bytes], Any], titles: Titles
    ) -> None:
        self.where = where
        self.schema = schema
        self.decode = decode
        self.titles = titles

    @cached_property
    def validator(self) -> Validator:
        """Made when the first value is checked: most tools never need it."""
        return Validator(self.schema, ours=True)

    @cached_property
    def reporter(self) -> Validator:
        """What says all that is wrong with a value that `decode` refused."""
        return self.validator

    def further(
        self, error: Exception, value: Any, found: list[ValidationProblem]
    ) -> list[ValidationProblem]:
        """What a failed `decode` says beyond what the schema says already."""
        return []

    @cached_property
    def takes_any_string(self) -> bool:
        """Whether every text fits, and is written as it is."""
        return self.schema == {"type": "string"}

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The JSON of a value, which fits the schema. Raises `LocalProtocolError`."""

    @abstractmethod
    def problems_of(self, error: Exception, value: Any) -> list[ValidationProblem]:
        """What a failed `decode` says, in our words and without the value."""

    def misfit(self, problems: list[ValidationProblem]) -> LocalProtocolError:
        """A value that was returned does not fit the type that was promised."""
        return LocalProtocolError(f"{self.where}: {join_problems(problems)}")


# What msgspec says about text of a format, and the format.
_FORMAT_WORDS = {
    "Invalid RFC3339 encoded datetime": "date-time",
    "Invalid RFC3339 encoded date": "date",
    "Invalid RFC3339 encoded time": "time",
    "Invalid ISO8601 duration": "duration",
    "Only units 'D', 'H', 'M', and 'S' are supported": "duration",
    "Invalid UUID": "uuid",
    "Invalid decimal string": "decimal",
}
# Compiled on use: most arguments are right as they come.
_WHERE = r"(?s)^(.*?) - at (?:`key` in )?`\$(.*)`$"
_STEP = r"\.(\w+)|\[(\d+)\]"

_EXACT = (str, int, bool)


class MsgspecCodec(Codec):
    """An annotation that msgspec reads. Raises `Unfit` for others."""

    coerces = True

    def __init__(
        self, annotation: Any, where: str, names: Namespace, outgoing: bool = False
    ) -> None:
        walk = MsgspecVisitor(where, names)
        walk.notes.outgoing = outgoing
        self.type: Any = walk.walk(annotation)
        # Whether msgspec needs no help from here, so that it may read the type inside of another.
        self.alone: bool = not (walk.notes.texts or walk.notes.decimals)
        self._octets = walk.notes.octets
        try:
            info = msgspec.inspect.type_info(self.type)
            decode = msgspec.json.Decoder(self.type, dec_hook=read_text).decode
        except Exception as error:  # what it cannot build: TypeError, NameError, RecursionError, …
            raise UnsupportedByMsgspec(truncate(str(error), MAX_TEXT_CHARS)) from None
        # Whose values all fit, and are written as they are: whatever their length or size.
        self._exact = self.type if self.type in _EXACT else None
        schema = inline_references(schema_of(info, walk.notes))
        if walk.notes.decimals:
            decode = _finite(decode)
        super().__init__(where, schema, decode, walk.notes.titles)

    @cached_property
    def reporter(self) -> Validator:
        return Validator(self.schema, ours=True, formats=CHECKS)

    def encode(self, value: Any) -> bytes:
        try:
            if self._octets:
                value = with_texts(msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=show))
            encoded = _encode(value)
            if type(value) is self._exact:
                return encoded  # nothing could be wrong with it
            # msgspec writes null for NaN and Infinity, and nobody would notice.
            if b"null" in encoded and has_non_finite(msgspec.to_builtins(value, enc_hook=show)):
                raise ValueError(ENDLESS)
        except Exception as error:  # also what properties of the author raise
            raise LocalProtocolError(f"{self.where}: JSON cannot carry it: {error}") from None
        try:
            self.decode(encoded)
        except Exception as error:
            found = self.validator.check(parse(encoded)) or self.problems_of(error, None)
            raise self.misfit(found) from None
        return encoded

    def problems_of(self, error: Exception, value: Any) -> list[ValidationProblem]:
        return [_translated(error)]


# What `to_builtins` leaves as it is.
_KEPT = (bytes,)


def _finite(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Decimals without NaN and Infinity, which msgspec lets through and pydantic does not."""
    from decimal import Decimal  # the module of the annotation has loaded it

    def checked(raw: bytes) -> Any:
        value = decode(raw)
        plain = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=show)
        if has_endless_decimal(plain):
            raise msgspec.ValidationError("Expected a finite number")
        return value

    return checked


def show(value: Any) -> Any:
    """What JSON has for things that msgspec does not know: paths, and models inside of `Any`."""
    text = write_text(value)
    if text is not None:
        return text
    serializer = getattr(cast(Any, type(value)), "__pydantic_serializer__", None)
    if serializer is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON; return a plain type")
    return serializer.to_python(value, mode="json", by_alias=True)


_encode = msgspec.json.Encoder(enc_hook=show).encode


def _translated(error: Exception) -> ValidationProblem:
    """What msgspec, or a check of the author, found wrong; without the value."""
    found = re.match(_WHERE, str(error))
    words, place = found.groups() if found else (str(error), "")
    path = tuple(_steps(place))
    if not isinstance(error, msgspec.ValidationError):
        return ValidationProblem(path, "was refused")
    for start, name in _FORMAT_WORDS.items():
        if words.startswith(start):
            return ValidationProblem(path, expected_format(name))
    if words.startswith("Invalid enum value"):
        words = "expected another value"
    return ValidationProblem(path, truncate(words.replace("`", ""), MAX_TEXT_CHARS))


def _steps(place: str) -> Iterator[str | int]:
    for name, index in re.findall(_STEP, place):
        yield name or int(index)
