"""`Mcp-Param-*` headers: arguments mirrored into headers, by `x-mcp-header` in a tool's schema.

Proxies route by the headers and servers act on the body, so the two must never disagree: a client
derives the headers from the body, a server refuses a request if they differ.

Rules: no I/O. A value is encoded so that nothing in it can end its header or begin another one.
Nothing here takes more than linear time, or raises anything but our own errors.
"""

import binascii
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import Fault, FaultKind, LocalProtocolError, ProtocolError
from colonnade.protocol.http.security import Headers
from colonnade.protocol.json_checks import refuse_duplicate_members
from colonnade.protocol.jsonrpc import MAX_DEPTH

# Servers in use accept 8 to 64 KiB of headers; one value gets less than that.
MAX_VALUE_BYTES = 8 * 1024
# Servers in use accept 100 headers, and the client has some 20 of its own.
MAX_PARAM_HEADERS = 64
# The longest header name in the HTTP registry has 50 characters.
MAX_NAME_LENGTH = 128
# Objects and arrays in one schema; the largest published tools have some thousands.
MAX_SCHEMA_NODES = 100_000

# JavaScript's Number.MAX_SAFE_INTEGER: every proxy parses these to the same number (R0880, R0989).
MAX_SAFE_INTEGER = 2**53 - 1

ANNOTATION: Final = "x-mcp-header"

_PREFIX, _SUFFIX = "=?base64?", "?="
# RFC 9110, 5.5: visible ASCII, space and tab.
_FIELD_BYTES = bytes([0x09, *range(0x20, 0x7F)])
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Integer values only, and no spelling that another parser takes for octal.
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,15}))(?:\.0{1,16})?")


# ---------------------------------------------------------------- values


def encode_text(text: str) -> str:
    """A string as a header value: itself if that is safe, else marked base64 of its UTF-8.

    Raises `LocalProtocolError` for a string that is too long, or that has no UTF-8.
    """
    if not (text.isascii() and text.isprintable() and text.strip(" ") == text) or _marked(text):
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            raise LocalProtocolError("a lone surrogate cannot be sent in a header") from None
        # R0888, R0893: also what would be taken for encoded though it is not.
        text = f"{_PREFIX}{binascii.b2a_base64(raw, newline=False).decode()}{_SUFFIX}"
    if len(text) > MAX_VALUE_BYTES:
        raise LocalProtocolError(f"longer than a header value may be ({MAX_VALUE_BYTES} bytes)")
    return text


def read_text(header: str, value: bytes) -> str:
    """A header value without the whitespace around it. Raises `Fault` for an invalid value."""
    value = value.strip(b" \t")
    if len(value) > MAX_VALUE_BYTES:
        raise _mismatch(header, f"is longer than {MAX_VALUE_BYTES} bytes")
    if value.translate(None, _FIELD_BYTES):  # R0901
        raise _mismatch(header, "has invalid characters, or was sent twice")
    return value.decode("ascii")


def decode_text(header: str, value: bytes) -> str:
    """Decode a header value. Raises `Fault` for an invalid value, or bad base64."""
    text = read_text(header, value)
    if not _marked(text):
        return text
    payload = text[len(_PREFIX) : -len(_SUFFIX)]
    try:
        raw = binascii.a2b_base64(payload, strict_mode=True)
        # One string has one encoding: spare bits or overlapping markers would make it two.
        if _PREFIX + binascii.b2a_base64(raw, newline=False).decode() + _SUFFIX == text:
            return raw.decode()
    except ValueError:
        pass
    raise _mismatch(header, "is marked as base64, but is not base64 of UTF-8")


def _marked(text: str) -> bool:
    return text.startswith(_PREFIX) and text.endswith(_SUFFIX)  # R0890: case counts


def _mismatch(header: str, problem: str) -> Fault:
    # Without the values: an argument may be a secret, and errors are logged on both sides.
    return Fault(FaultKind.HEADER_MISMATCH, f"Header mismatch: {header} {problem}")


# ---------------------------------------------------------------- x-mcp-header


class ParamType(Enum):
    """The types of a mirrored parameter."""

    STRING = "string"
    INTEGER = "integer"
    BOOLEAN = "boolean"


class ParamHeader(Struct, frozen=True):
    """A mirrored parameter: its header name, its path and its type.

    `key` is the name of its header as `Headers` has it.
    """

    name: str
    path: tuple[str, ...]
    type: ParamType
    key: bytes

    @property
    def header(self) -> str:
        """The name of its header as it is sent."""
        return f"Mcp-Param-{self.name}"


_KEY_PREFIX: Final = b"mcp-param-"
_TYPES = {kind.value: kind for kind in ParamType}
# Keywords that hold values, in which a member with the name of the annotation is not one.
_DATA = frozenset({"default", "const", "enum", "examples", "example", ANNOTATION})
# Keywords that hold schemas, or lists, under names of the author.
_NAMED = frozenset(
    {
        "$defs",
        "definitions",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "patternProperties",
        "properties",
    }
)


def param_headers(input_schema: object) -> tuple[ParamHeader, ...]:
    """The parameters that the input schema of a tool mirrors into headers.

    Raises `ProtocolError` if an annotation is invalid. The whole tool is invalid then: a client
    leaves it out of its list and logs the message, a server does not register it.
    """
    found: dict[bytes, ParamHeader] = {}
    for schema, path in _schemas(input_schema):
        if ANNOTATION not in schema:
            continue
        param = _param(schema, path)
        if param.key in found:  # R0878, R0987
            other = ".".join(found[param.key].path)
            raise _invalid(path, f"{param.name!r} is taken by {other[:80]!r}; case does not count")
        found[param.key] = param
        if len(found) > MAX_PARAM_HEADERS:
            raise _invalid(path, f"is one of more than {MAX_PARAM_HEADERS}")
    return tuple(found.values())


_Node = tuple[object, tuple[str, ...] | None, int]


def _schemas(root: object) -> Iterator[tuple[dict[str, Any], tuple[str, ...] | None]]:
    """Every object that may be a schema, and the path of properties that leads to it, if there
    is one."""
    queue: list[_Node] = [(root, (), 0)]
    for node, path, depth in queue:
        if depth > MAX_DEPTH or len(queue) > MAX_SCHEMA_NODES:
            raise ProtocolError(
                f"the input schema nests deeper than {MAX_DEPTH} levels or has more than "
                f"{MAX_SCHEMA_NODES} parts; make it smaller"
            )
        if isinstance(node, dict):
            schema = cast("dict[str, Any]", node)
            yield schema, path
            for keyword, value in schema.items():
                queue.extend(_below(keyword, value, path, depth + 1))
        elif isinstance(node, list):
            queue.extend((item, None, depth + 1) for item in cast("list[object]", node))


def _below(
    keyword: str, value: object, path: tuple[str, ...] | None, depth: int
) -> Iterator[_Node]:
    if keyword in _DATA:
        return
    if keyword in _NAMED and isinstance(value, dict):
        straight = path if keyword == "properties" else None
        for name, member in cast("dict[str, object]", value).items():
            if isinstance(member, dict | list):
                # R0881, R0882: any other keyword on the way breaks the path.
                yield member, None if straight is None else (*straight, name), depth
    elif isinstance(value, dict | list):
        yield value, None, depth


def _param(schema: dict[str, Any], path: tuple[str, ...] | None) -> ParamHeader:
    name: object = schema[ANNOTATION]
    if not path:
        raise _invalid(path, "must be on a parameter that is reached through `properties` only")
    if not isinstance(name, str) or not name:  # R0875, R0984
        raise _invalid(path, "must be a non-empty string")
    # R0876, R0877: a token has no control characters either.
    if not _TOKEN.fullmatch(name) or len(name) > MAX_NAME_LENGTH:
        raise _invalid(path, f"{name[:80]!r} is not a header name (RFC 9110, 5.1), or too long")
    declared: object = schema.get("type")
    kinds = cast("list[object]", declared) if isinstance(declared, list) else [declared]
    kinds = [kind for kind in kinds if kind != "null"]  # D14: may be left out, so may be null
    kind = _TYPES.get(kinds[0]) if len(kinds) == 1 and isinstance(kinds[0], str) else None
    if kind is None:  # R0879, R0988
        raise _invalid(path, "needs a parameter of type string, integer or boolean")
    return ParamHeader(name, path, kind, f"mcp-param-{name.lower()}".encode())


def _invalid(path: tuple[str, ...] | None, problem: str) -> ProtocolError:
    where = f" at {'.'.join(path)[:80]!r}" if path else ""
    return ProtocolError(f"{ANNOTATION}{where} {problem}")


# ---------------------------------------------------------------- client


def encode_param(value: object) -> str:
    """Encode a value for a header. Raises `LocalProtocolError` if that is impossible."""
    text = _text(value)
    if text is None:
        raise LocalProtocolError(f"not a string, a boolean or an integer up to {MAX_SAFE_INTEGER}")
    return encode_text(text)


def headers_for_call(
    params: tuple[ParamHeader, ...], arguments: Mapping[str, object] | None
) -> list[tuple[str, str]]:
    """The headers that mirror these arguments, which are JSON values; null gets none.

    Raises `LocalProtocolError`, with the name of the parameter, if a value cannot be mirrored.
    """
    headers: list[tuple[str, str]] = []
    for param in params:
        value = _at(arguments, param.path)
        if value is None:  # R0905, R0906
            continue
        try:
            headers.append((param.header, encode_param(value)))
        except LocalProtocolError as error:
            where = ".".join(param.path)
            raise LocalProtocolError(f"{where!r} goes into {param.header}: {error}") from None
    return headers


def _at(arguments: object, path: tuple[str, ...]) -> object:
    """The value at this path; None for null and if it is absent."""
    for name in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = cast("Mapping[str, object]", arguments).get(name)
    return arguments


def _text(value: object) -> str | None:
    """The one string for a value. Exact types: an enum has one value here and another in JSON."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    number = _integer(value)
    return None if number is None else str(number)


def _integer(value: object) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)  # D31
    return value if type(value) is int and abs(value) <= MAX_SAFE_INTEGER else None


# ---------------------------------------------------------------- server


def check_params(params: tuple[ParamHeader, ...], headers: Headers, arguments: Raw) -> None:
    """Raise `Fault` unless the headers match the arguments of this call (R0902, R0909).

    `params` come with the tool; other headers are not checked.
    """
    if not params:
        return
    given = _decode(arguments)
    for param in params:
        value = _at(given, param.path)
        header = headers.get(param.key)
        if value is None and _hides(given, param.path):
            raise _mismatch(
                param.header, "mirrors a member of an object that is a string in the body"
            )
        if header is None:
            if value is not None:  # R0907
                raise _mismatch(param.header, "is missing, but the body has a value")
            continue
        text = decode_text(param.header, header)  # R0892: decoded before it is compared
        if value is None:  # D14
            raise _mismatch(param.header, "is present, but the body has no value")
        if not _agree(param.type, text, value):
            raise _mismatch(param.header, "differs from the body")


def unknown_params(headers: Headers, known: tuple[ParamHeader, ...]) -> list[tuple[str, str]]:
    """The `Mcp-Param` headers of a request that mirror none of these parameters: an intermediary
    forwards them (R0900), at most `MAX_PARAM_HEADERS`. Invalid values are left out."""
    found: list[tuple[str, str]] = []
    if _KEY_PREFIX not in b"\n".join(headers):  # as in nearly all requests
        return found
    keys = {param.key for param in known}
    for key, value in headers.items():
        if key.startswith(_KEY_PREFIX) and key not in keys and len(found) < MAX_PARAM_HEADERS:
            name = key.removeprefix(_KEY_PREFIX).decode("latin-1")
            header = f"Mcp-Param-{name}"
            try:
                found += [(header, read_text(header, value))] if _TOKEN.fullmatch(name) else []
            except Fault:
                continue
    return found


def _hides(arguments: object, path: tuple[str, ...]) -> bool:
    """Whether JSON in a string stands where an object is expected on the path to a value.

    Models write objects that way, and they are parsed later; no proxy looks into them, so that a
    value in there would bypass its header.
    """
    steps = (_at(arguments, path[:end]) for end in range(1, len(path)))
    return any(isinstance(step, str) and step.lstrip().startswith("{") for step in steps)


def _decode(arguments: Raw) -> object:
    if not arguments:
        return None
    refuse_duplicate_members(arguments)  # and whatever cannot be read
    return _any.decode(arguments)


_any = msgspec.json.Decoder()


def _agree(type_: ParamType, text: str, value: object) -> bool:
    number = _integer(value)
    if type_ is ParamType.INTEGER and number is not None:  # R0910
        found = _INTEGER.fullmatch(text)
        return found is not None and int(found[1]) == number
    return _text(value) == text
