"""Standard library types that are strings in JSON: paths, IP addresses, patterns, bytes.

They mean what pydantic takes them for, whether or not it is installed, and have its schemas: a path
is its string, and `bytes` are the UTF-8 of a string (not base64, which is `str` and a line of the
author's, or pydantic's `Base64Bytes`).

Rules: none of their modules is imported for a server that uses none of them; a type is recognised
by the names of its module and class. A string of a caller is never repeated in an error.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

_FORMATS: dict[str, dict[str, str]] = {
    "pathlib": dict.fromkeys(
        ("Path", "PurePath", "PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"), "path"
    ),
    "ipaddress": {
        "IPv4Address": "ipv4",
        "IPv6Address": "ipv6",
        "IPv4Network": "ipv4network",
        "IPv6Network": "ipv6network",
        "IPv4Interface": "ipv4interface",
        "IPv6Interface": "ipv6interface",
    },
    "re": {"Pattern": "regex"},
}


class _IsBytes(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, bytes)


class Utf8(metaclass=_IsBytes):
    """Stands for `bytes`, which msgspec would decode from base64."""


def text_format(cls: Any) -> str | None:
    """The format of a type that is a string in JSON; None for other types."""
    if cls is Utf8:
        return "binary"
    module, name = getattr(cls, "__module__", ""), getattr(cls, "__name__", "")
    return _FORMATS.get(str(module).partition(".")[0], {}).get(str(name))


def is_decimal(cls: Any) -> bool:
    """Whether this is `decimal.Decimal`."""
    return getattr(cls, "__name__", "") == "Decimal" and cls.__module__ in ("decimal", "_pydecimal")


def read_text(cls: Any, value: Any) -> Any:
    """Decode a value of such a type from its string. Raises `ValueError` without the string."""
    try:
        if cls is Utf8:
            return value.encode()
        if isinstance(value, str):
            return _compile(value) if cls.__module__ == "re" else cls(value)
    except Exception:
        pass
    raise ValueError(f"no a string of the format {text_format(cls)}")


def _compile(text: str) -> Any:
    import re

    return re.compile(text)


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
    from importlib import import_module

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
        for module, kinds in _FORMATS.items()
        for name, format in kinds.items()
        if format != "path"
    },
}
