"""Elicitation forms: whether a schema is a valid form, and whether content fits it.

Both sides use it: the client before it sends a response, the server when one arrives.

Rules: pure. A form is flat, so every check is linear in the response. Problems name fields, never
values.
"""

import re
from datetime import date
from math import isfinite
from typing import Any, cast

from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t

# Enough to correct a response; a form of a thousand fields must not produce a page of problems.
MAX_PROBLEMS = 10
MAX_NAME_CHARACTERS = 80
MAX_URL_CHARACTERS = 8192

# Schemes that a browser runs or reads from the disk.
UNSAFE_SCHEMES = frozenset({"javascript", "vbscript", "data", "blob", "file", "about"})

_DATE = re.compile(r"(\d{4}-\d\d-\d\d)", re.ASCII)
_DATE_TIME = re.compile(
    _DATE.pattern
    + r"[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,12})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")


def check_form(form: t.ElicitSchema) -> None:
    """Raise `Fault` for a form that cannot be filled in, or whose defaults do not fit it."""
    problems = [
        f"{_short(name)}: required, but not a field"
        for name in form.required or ()
        if name not in form.properties
    ]
    for name, field in form.properties.items():
        if field.type == "array" and not _choices(field):
            problems.append(f"{_short(name)}: a selection without choices")
        elif field.default is not None and (words := field_problem(field, field.default)):
            problems.append(f"{_short(name)}: the default is invalid, {words}")
    _refuse(problems, "not a form")


def check_content(form: t.ElicitSchema, content: dict[str, Any]) -> None:
    """Raise `Fault` if the content of an accepted response does not fit the form."""
    problems = [
        f"{_short(name)}: missing" for name in form.required or () if content.get(name) is None
    ]
    for name, value in content.items():
        field = form.properties.get(name)
        if field is None:
            problems.append(f"{_short(name)}: not a field of the form")
        elif words := field_problem(field, value):
            problems.append(f"{_short(name)}: {words}")
    _refuse(problems, "the content does not fit the form")


def _refuse(problems: list[str], what: str) -> None:
    if problems:
        raise Fault(FaultKind.INVALID_PARAMS, f"{what}: {'; '.join(problems[:MAX_PROBLEMS])}")


def _short(name: str) -> str:
    return name[:MAX_NAME_CHARACTERS]


def with_defaults(form: t.ElicitSchema, content: dict[str, Any]) -> dict[str, Any]:
    """Return the content, with the defaults of the form for absent fields."""
    defaults = {
        name: field.default for name, field in form.properties.items() if field.default is not None
    }
    return defaults | content


def split_selections(form: t.ElicitSchema, content: dict[str, Any]) -> dict[str, Any]:
    """Split the selections that a peer without multi-select sent as a string into lists."""
    return {name: _listed(form.properties.get(name), value) for name, value in content.items()}


def _listed(field: t.PrimitiveSchema | None, value: Any) -> Any:
    if field is None or field.type != "array" or not isinstance(value, str):
        return value
    if value.strip() in _choices(field):  # one choice, perhaps with a comma in it
        return [value.strip()]
    return [choice.strip() for choice in value.split(",") if choice.strip()]


def _choices(field: t.PrimitiveSchema) -> frozenset[str]:
    """The values that may be picked; empty if the field leaves them open."""
    items = field.items or t.EnumItems()
    bare = field.enum or items.enum or ()
    titled = field.one_of or items.any_of or ()
    return frozenset(bare).union(option.const for option in titled)


def field_problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    """What is wrong with the value of one field of an accepted form; None if it is valid."""
    if field.type == "boolean":
        return None if isinstance(value, bool) else "expected true or false"
    if field.type == "string":
        return _string_problem(field, value)
    if field.type == "array":
        return _selection_problem(field, value)
    return _number_problem(field, value)


def _number_problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected {'an integer' if field.type == 'integer' else 'a number'}"
    if isinstance(value, float) and not isfinite(value):
        return "expected a finite number"
    if field.type == "integer" and isinstance(value, float) and not value.is_integer():
        return "expected an integer"
    if field.minimum is not None and value < field.minimum:
        return f"must be at least {field.minimum}"
    if field.maximum is not None and value > field.maximum:
        return f"must be at most {field.maximum}"
    return None


def _string_problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    if not isinstance(value, str):
        return "expected a string"
    choices = _choices(field)
    if choices:
        return None if value in choices else "expected one of the choices"
    if field.min_length is not None and len(value) < field.min_length:
        return f"needs at least {field.min_length} characters"
    if field.max_length is not None and len(value) > field.max_length:
        return f"takes at most {field.max_length} characters"
    if field.format is not None and not _fits(field.format, value):
        return f"expected the format {field.format}"
    return None


def _selection_problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    if not isinstance(value, list):
        return "expected a list of choices"
    picked = cast("list[Any]", value)
    choices = _choices(field)
    if not all(isinstance(choice, str) and choice in choices for choice in picked):
        return "expected a list of the choices"
    if field.min_items is not None and len(picked) < field.min_items:
        return f"needs at least {field.min_items} choices"
    if field.max_items is not None and len(picked) > field.max_items:
        return f"takes at most {field.max_items} choices"
    return None


def _fits(format: t.StringFormat, value: str) -> bool:
    if format == "email":
        return _EMAIL.fullmatch(value) is not None
    if format == "uri":
        return _split(value) is not None
    return _is_day((_DATE if format == "date" else _DATE_TIME).fullmatch(value))


def _is_day(found: re.Match[str] | None) -> bool:
    """Whether the date that was matched is on the calendar."""
    if found is None:
        return False
    try:
        date.fromisoformat(found[1])
    except ValueError:
        return False
    return True


def is_url(text: str) -> bool:
    """Whether this is an absolute URL on one line that names a host and is safe to open (R0601)."""
    parts = _split(text)
    return parts is not None and bool(parts[1]) and parts[0] not in UNSAFE_SCHEMES


def _split(text: str) -> tuple[str, str] | None:
    """The scheme and the host (which may be empty) of an absolute URI; None if it is not one."""
    if len(text) > MAX_URL_CHARACTERS or not text.isprintable() or " " in text or "\\" in text:
        return None
    from urllib.parse import urlsplit  # on use: few forms ask for a URL

    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return None
    if not parts.scheme or not (parts.netloc or parts.path):
        return None
    return parts.scheme, host or ""
