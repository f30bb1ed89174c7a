"""The forms of an elicitation: does this content fit that form?

Both sides ask: the client before it sends an answer, the server when one arrives.

Rules: pure. A form is flat, so every check is linear in the answer. Problems name fields, never
values.
"""

import re
from typing import Any, cast
from urllib.parse import urlsplit

from portico.errors import Fault, FaultKind
from portico.protocol import types as t

# Enough to mend an answer by; a form of a thousand fields must not make a page of complaints.
MAX_PROBLEMS = 10
MAX_URL_CHARACTERS = 8192

_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", re.ASCII)
_DATE_TIME = re.compile(
    _DATE.pattern + r"[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,12})?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_EMAIL = re.compile(r"[^@\s]{1,64}@[^@\s]{1,255}")


def check_content(form: t.ElicitSchema, content: dict[str, Any]) -> None:
    """Raise `Fault` where the content of an accepted answer does not fit the form."""
    problems = [f"{name}: missing" for name in form.required or () if content.get(name) is None]
    for name, value in content.items():
        field = form.properties.get(name)
        if field is None:
            problems.append(f"{name[:80]}: not asked for")
        elif words := _problem(field, value):
            problems.append(f"{name}: {words}")
    if problems:
        raise Fault(
            FaultKind.INVALID_PARAMS,
            "the answer does not fit the form: " + "; ".join(problems[:MAX_PROBLEMS]),
        )


def with_defaults(form: t.ElicitSchema, content: dict[str, Any]) -> dict[str, Any]:
    """The content, with the form's defaults where the user left a field alone."""
    defaults = {
        name: field.default for name, field in form.properties.items() if field.default is not None
    }
    return defaults | content


def as_asked(form: t.ElicitSchema, content: dict[str, Any]) -> dict[str, Any]:
    """An answer from a peer that was shown several choices as words: a list again."""
    return {name: _choices(form.properties.get(name), value) for name, value in content.items()}


def _choices(field: t.PrimitiveSchema | None, value: Any) -> Any:
    if field is not None and field.type == "array" and isinstance(value, str):
        return [choice.strip() for choice in value.split(",") if choice.strip()]
    return value


def _problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    match field.type:
        case "boolean":
            return None if isinstance(value, bool) else "expected true or false"
        case "integer" | "number":
            return _number_problem(field, value)
        case "array":
            return _selection_problem(field, value)
        case "string":
            return _text_problem(field, value)


def _number_problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"expected {'an integer' if field.type == 'integer' else 'a number'}"
    if field.type == "integer" and not float(value).is_integer():
        return "expected an integer"
    if field.minimum is not None and value < field.minimum:
        return f"must be at least {field.minimum}"
    if field.maximum is not None and value > field.maximum:
        return f"must be at most {field.maximum}"
    return None


def _text_problem(field: t.PrimitiveSchema, value: Any) -> str | None:
    if not isinstance(value, str):
        return "expected a string"
    choices = field.enum or [option.const for option in field.one_of or ()]
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
    items = field.items or t.EnumItems()
    choices = items.enum or [option.const for option in items.any_of or ()]
    if any(choice not in choices for choice in picked):
        return "expected a list of the choices"
    if field.min_items is not None and len(picked) < field.min_items:
        return f"needs at least {field.min_items} choices"
    if field.max_items is not None and len(picked) > field.max_items:
        return f"takes at most {field.max_items} choices"
    return None


def _fits(format: t.StringFormat, value: str) -> bool:
    match format:
        case "email":
            return _EMAIL.fullmatch(value) is not None
        case "uri":
            return is_url(value, hosted=False)
        case "date":
            return _DATE.fullmatch(value) is not None
        case "date-time":
            return _DATE_TIME.fullmatch(value) is not None


def is_url(text: str, *, hosted: bool = True) -> bool:
    """Whether this is an absolute URI on one line; `hosted`, whether it also names a host."""
    if len(text) > MAX_URL_CHARACTERS or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return False
    return bool(parts.scheme) and bool(host if hosted else parts.netloc or parts.path)
