"""What a tool or a prompt takes and gives, as one line that people can read.

    forecast(city: string, days: integer = 3, unit: "C" | "F" = "C") -> {city, unit, days}

Rules: a schema is whatever a server wrote, so nothing in it is taken for granted, and every depth
and length has a bound.
"""

from typing import Any, cast

from colonnade.client.text import ELLIPSIS, clean, cut, one_line
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode

# A type inside a type inside a type; what is deeper is named by its kind alone.
MAX_DEPTH = 3
# Choices or members that are listed; more are for `--json`.
MAX_LISTED = 8
# A default, a choice, a name: longer ones are for `--json`.
MAX_PLACES = 40

Schema = dict[str, Any]


def members(schema: object) -> dict[str, Any]:
    """The members of an object schema, by name; none where it does not say so."""
    return _dict(_dict(schema).get("properties"))


def required(schema: object) -> list[str]:
    """The names that must be given."""
    found = _dict(schema).get("required")
    names = cast("list[object]", found) if isinstance(found, list) else []
    return [name for name in names if isinstance(name, str)]


def tool_signature(tool: t.Tool) -> str:
    """A tool as a function."""
    gives = f" -> {kind(tool.output_schema)}" if tool.output_schema is not None else ""
    return taken(tool) + gives


def taken(tool: t.Tool) -> str:
    """A tool as a function, without what it gives."""
    return f"{one_line(tool.name)}({parameters(tool.input_schema)})"


def parameters(schema: Schema) -> str:
    """What a schema takes, the required first, as they would be written in a signature."""
    needed = required(schema)
    found = members(schema)
    named = [name for name in found if name in needed] + [n for n in found if n not in needed]
    return ", ".join(_parameter(name, found[name], name in needed) for name in named)


def _parameter(name: str, schema: object, is_needed: bool) -> str:
    words = f"{one_line(name)}: {kind(schema)}"
    if "default" in _dict(schema):
        return f"{words} = {value(_dict(schema)['default'])}"
    return words if is_needed else f"{words} = {ELLIPSIS}"


def prompt_signature(prompt: t.Prompt) -> str:
    """A prompt as a function; every argument is text."""
    given = prompt.arguments or []
    words = [one_line(one.name) + ("" if one.required else f" = {ELLIPSIS}") for one in given]
    return f"{one_line(prompt.name)}({', '.join(words)})"


def names_of(schema: Schema) -> str:
    """The names that a schema takes, those that may be left out in brackets."""
    needed = required(schema)
    found = members(schema)
    named = [n for n in found if n in needed] + [f"[{n}]" for n in found if n not in needed]
    return one_line(" ".join(named))


# ---------------------------------------------------------------- types


def kind(schema: object, depth: int = 0) -> str:
    """What a schema lets through, in a few words."""
    if schema is False:
        return "nothing"
    document = _dict(schema)
    if "const" in document:
        return value(document["const"])
    for keyword, write in (("enum", value), ("anyOf", kind), ("oneOf", kind)):
        listed = document.get(keyword)
        if isinstance(listed, list) and listed:
            return _either(cast("list[object]", listed), write, depth)
    if isinstance(document.get("$ref"), str):
        return one_line(document["$ref"].rpartition("/")[2])[:MAX_PLACES] or "any"
    named = document.get("type")
    if isinstance(named, list):
        each = [{**document, "type": one} for one in cast("list[object]", named)]
        return _either(cast("list[object]", each), kind, depth)
    write = _KINDS.get(named) if isinstance(named, str) else None
    if write is not None:
        return write(document, depth)
    return one_line(named)[:MAX_PLACES] if isinstance(named, str) else "any"


def _either(listed: list[object], write: Any, depth: int) -> str:
    if depth >= MAX_DEPTH:
        return ELLIPSIS
    if write is value:
        words = [value(one) for one in listed[:MAX_LISTED]]
    else:
        words = [kind(one, depth + 1) for one in listed[:MAX_LISTED]]
    more = [ELLIPSIS] if len(listed) > MAX_LISTED else []
    return " | ".join([*dict.fromkeys(words), *more])


def _text(schema: Schema, depth: int) -> str:
    form = schema.get("format")
    return one_line(form)[:MAX_PLACES] if isinstance(form, str) and form else "string"


def _number(schema: Schema, depth: int) -> str:
    word = str(schema["type"])
    low, high = (
        bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None
        for bound in (schema.get("minimum"), schema.get("maximum"))
    )
    if low is None and high is None:
        return word
    if high is None:
        return f"{word} from {value(low)}"
    return f"{word} to {value(high)}" if low is None else f"{word} {value(low)} to {value(high)}"


def _list(schema: Schema, depth: int) -> str:
    if depth >= MAX_DEPTH or "items" not in schema:
        return "list"
    inner = kind(schema["items"], depth + 1)
    return f"list of {inner}" if " | " not in inner else f"list of ({inner})"


def _object(schema: Schema, depth: int) -> str:
    names = list(members(schema))
    if names:
        more = [ELLIPSIS] if len(names) > MAX_LISTED else []
        shown = [cut(one_line(name), MAX_PLACES) for name in names[:MAX_LISTED]]
        return "{" + ", ".join([*shown, *more]) + "}"
    rest = schema.get("additionalProperties")
    if isinstance(rest, dict) and depth < MAX_DEPTH:
        return f"object of {kind(cast('object', rest), depth + 1)}"
    return "object"


_KINDS: dict[str, Any] = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "array": _list,
    "object": _object,
}


def value(found: object) -> str:
    """A value as JSON, as much of it as is read."""
    return cut(clean(encode(found).decode("utf-8", "replace")), MAX_PLACES)


def _dict(found: object) -> dict[str, Any]:
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
