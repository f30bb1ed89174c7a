"""Codecs: encoding and decoding values of one annotation; here those that msgspec handles.

Rules: what msgspec would decode differently raises `UnsupportedByMsgspec` when the codec is
created, not later.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
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
from colonnade.signatures.json_schema import schema_of
from colonnade.signatures.type_hints import (
    TEXT_FORMATS,
    MsgspecVisitor,
    Namespace,
    UnsupportedByMsgspec,
    Utf8,
    text_format,
)

ENDLESS = "NaN and Infinity are not JSON; return None or a string for them"

# The names of the members of an Enum, by their values.
Titles: TypeAlias = dict[tuple[Any, ...], list[str]]


# ---------------------------------------------------------------- types that are strings in JSON


def read_text(cls: Any, value: Any) -> Any:
    """Decode a value of such a type from its string. Raises `ValueError` without the string."""
    try:
        if cls is Utf8:
            return value.encode()
        if isinstance(value, str):
            return re.compile(value) if cls.__module__ == "re" else cls(value)
    except Exception:
        pass
    raise ValueError(f"no a string of the format {text_format(cls)}")


def write_text(value: Any) -> str | None:
    """The string of a value of such a type; None for all other values."""
    found = next(filter(None, map(text_format, type(value).__mro__)), None)
    if found is None:
        return None
    return str(value.pattern) if found == "regex" else str(value)


def with_texts(value: Any) -> Any:
    """Builtin values with strings for bytes. Raises `ValueError` for bytes that are not UTF-8."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            words = "bytes that are not UTF-8; return them as File(...), or as base64 in a str"
            raise ValueError(words) from None
    if isinstance(value, dict):
        members = cast("dict[Any, Any]", value).items()
        return {with_texts(name): with_texts(one) for name, one in members}
    if isinstance(value, list | tuple | set | frozenset):
        return [with_texts(one) for one in cast("list[Any]", value)]
    return value


def has_endless_decimal(value: Any) -> bool:
    """Whether there is a NaN or an Infinity among the decimals in builtin values."""
    waiting = [value]
    for one in waiting:
        if isinstance(one, dict):
            members = cast("dict[Any, Any]", one)
            waiting += [*members.keys(), *members.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += cast("list[Any]", one)
        elif hasattr(one, "is_finite") and not one.is_finite():
            return True
    return False


# ---------------------------------------------------------------- format checks for a validator


def _is_converted(kind: Callable[[], Any]) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            msgspec.convert(text, kind(), dec_hook=read_text)
        except Exception:
            return False
        return True

    return fits


def _of(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(import_module(module), name)


# How a string of each format is checked: a validator reports all problems at once, where a decoder
# stops at the first.
CHECKS: dict[str, Callable[[str], bool]] = {
    "date-time": _is_converted(_of("datetime", "datetime")),
    "date": _is_converted(_of("datetime", "date")),
    "time": _is_converted(_of("datetime", "time")),
    "duration": _is_converted(_of("datetime", "timedelta")),
    "uuid": _is_converted(_of("uuid", "UUID")),
    **{
        format: _is_converted(_of(module, name))
        for module, kinds in TEXT_FORMATS.items()
        for name, format in kinds.items()
        if format != "path"
    },
}


# ---------------------------------------------------------------- codecs


class Codec(ABC):
    """Encodes and decodes values of one annotation."""

    # Whether scalars are coerced for it; pydantic does that itself, by its own rules.
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
        """Created when the first value is validated: most tools never need it."""
        return Validator(self.schema, ours=True)

    @cached_property
    def reporter(self) -> Validator:
        """The validator that reports all problems of a value that `decode` refused."""
        return self.validator

    def further(
        self, error: Exception, value: Any, found: list[ValidationProblem]
    ) -> list[ValidationProblem]:
        """The problems of a failed `decode` beyond those of the schema."""
        return []

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Encode a value, which fits the schema. Raises `LocalProtocolError`."""

    @abstractmethod
    def problems_of(self, error: Exception, value: Any) -> list[ValidationProblem]:
        """The problems of a failed `decode`, without the value."""

    def misfit(self, problems: list[ValidationProblem]) -> LocalProtocolError:
        """The error for a returned value that does not fit the declared type."""
        return LocalProtocolError(f"{self.where}: {join_problems(problems)}")


# Messages of msgspec about strings of a format, and the format.
_FORMAT_WORDS = {
    "Invalid RFC3339 encoded datetime": "date-time",
    "Invalid RFC3339 encoded date": "date",
    "Invalid RFC3339 encoded time": "time",
    "Invalid ISO8601 duration": "duration",
    "Only units 'D', 'H', 'M', and 'S' are supported": "duration",
    "Invalid UUID": "uuid",
    "Invalid decimal string": "decimal",
}
# Compiled on use: most arguments are valid.
_WHERE = r"(?s)^(.*?) - at (?:`key` in )?`\$(.*)`$"
_STEP = r"\.(\w+)|\[(\d+)\]"

_EXACT = (str, int, bool)


class MsgspecCodec(Codec):
    """An annotation that msgspec decodes. Raises `UnsupportedByMsgspec` for others."""

    coerces = True

    def __init__(
        self, annotation: Any, where: str, names: Namespace, outgoing: bool = False
    ) -> None:
        visitor = MsgspecVisitor(where, names)
        visitor.notes.outgoing = outgoing
        self.type: Any = visitor.visit(annotation)
        # Whether msgspec needs no help from here, so that the type may be part of another.
        self.alone: bool = not (visitor.notes.strings or visitor.notes.decimals)
        self._has_bytes = visitor.notes.bytes
        try:
            info = msgspec.inspect.type_info(self.type)
            decode = msgspec.json.Decoder(self.type, dec_hook=read_text).decode
        except Exception as error:  # what it cannot build: TypeError, NameError, RecursionError, …
            raise UnsupportedByMsgspec(truncate(str(error), MAX_TEXT_CHARS)) from None
        # Types whose values are all valid, and encoded as they are: whatever their length or size.
        self._exact = self.type if self.type in _EXACT else None
        schema = inline_references(schema_of(info, visitor.notes))
        if visitor.notes.decimals:
            decode = _finite(decode)
        super().__init__(where, schema, decode, visitor.notes.titles)

    @cached_property
    def reporter(self) -> Validator:
        return Validator(self.schema, ours=True, formats=CHECKS)

    def encode(self, value: Any) -> bytes:
        try:
            if self._has_bytes:
                value = with_texts(
                    msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=to_json_value)
                )
            encoded = _encode(value)
            if type(value) is self._exact:
                return encoded  # always valid
            # msgspec encodes NaN and Infinity as null, which would go unnoticed.
            if b"null" in encoded and has_non_finite(
                msgspec.to_builtins(value, enc_hook=to_json_value)
            ):
                raise ValueError(ENDLESS)
        except Exception as error:  # properties of the author may raise anything
            raise LocalProtocolError(f"{self.where}: cannot be encoded as JSON: {error}") from None
        try:
            self.decode(encoded)
        except Exception as error:
            from colonnade.signatures.coerce import parse  # on use: most values are valid

            found = self.validator.check(parse(encoded)) or self.problems_of(error, None)
            raise self.misfit(found) from None
        return encoded

    def problems_of(self, error: Exception, value: Any) -> list[ValidationProblem]:
        return [_translated(error)]


# Types that `to_builtins` leaves as they are.
_KEPT = (bytes,)


def _finite(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A decoder without NaN and Infinity in decimals, which msgspec accepts and pydantic does
    not."""
    from decimal import Decimal  # loaded by the module of the annotation

    def checked(raw: bytes) -> Any:
        value = decode(raw)
        plain = msgspec.to_builtins(value, builtin_types=(Decimal,), enc_hook=to_json_value)
        if has_endless_decimal(plain):
            raise msgspec.ValidationError("Expected a finite number")
        return value

    return checked


def to_json_value(value: Any) -> Any:
    """Convert types that msgspec does not know: paths, and models inside of `Any`."""
    text = write_text(value)
    if text is not None:
        return text
    serializer = getattr(cast(Any, type(value)), "__pydantic_serializer__", None)
    if serializer is None:
        raise NotImplementedError(
            f"{type(value).__name__} cannot be encoded as JSON; return a plain type"
        )
    return serializer.to_python(value, mode="json", by_alias=True)


_encode = msgspec.json.Encoder(enc_hook=to_json_value).encode


def _translated(error: Exception) -> ValidationProblem:
    """The problem that msgspec, or a validator of the author, found; without the value."""
    found = re.match(_WHERE, str(error))
    words, place = found.groups() if found else (str(error), "")
    path = tuple(_steps(place))
    if not isinstance(error, msgspec.ValidationError):
        return ValidationProblem(path, "is invalid")
    for start, name in _FORMAT_WORDS.items():
        if words.startswith(start):
            return ValidationProblem(path, expected_format(name))
    if words.startswith("Invalid enum value"):
        words = "expected another value"
    return ValidationProblem(path, truncate(words.replace("`", ""), MAX_TEXT_CHARS))


def _steps(place: str) -> Iterator[str | int]:
    for name, index in re.findall(_STEP, place):
        yield name or int(index)
