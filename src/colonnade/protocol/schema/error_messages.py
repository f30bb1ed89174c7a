"""What is wrong with a value, in messages that a model can act on.

Rules: say where, what is expected and what came instead: its type, its size, a number; strings from
the value are never repeated. Everything is bounded: the number of problems, the options listed, the
length of a name from a peer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

# A model corrects a handful of mistakes at once; the rest it meets on the next attempt.
MAX_PROBLEMS = 10
# Past this many options the list is no longer read.
MAX_OPTIONS = 20
# Options that are searched for a suggestion.
MAX_SUGGESTED_FROM = 200
# Larger integers are not written out: Python itself stops at 4,300 digits.
MAX_SHOWN_NUMBER = 10**20
# Names of members come from the peer; long ones are cut.
MAX_NAME_CHARS = 80
# Patterns, and messages of the author's own checks.
MAX_TEXT_CHARS = 300

_TYPE_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_FORMATS = {
    "date-time": "a date and time such as 2026-01-31T09:30:00Z",
    "date": "a date such as 2026-01-31",
    "time": "a time such as 09:30:00",
    "duration": "an ISO 8601 duration such as PT1H30M",
    "uuid": "a UUID such as 123e4567-e89b-42d3-a456-426614174000",
    "decimal": "a number, or a string such as '12.50'",
    "ipv4": "an IPv4 address such as 192.0.2.1",
    "ipv6": "an IPv6 address such as 2001:db8::1",
    "ipv4network": "an IPv4 network such as 192.0.2.0/24",
    "ipv6network": "an IPv6 network such as 2001:db8::/32",
    "ipv4interface": "an IPv4 interface such as 192.0.2.1/24",
    "ipv6interface": "an IPv6 interface such as 2001:db8::1/32",
    "regex": "a regular expression",
    "path": "a path",
}


class ValidationProblem(Struct, frozen=True):
    """One problem: where, as member names and indexes, and what is wrong."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        where = format_path(self.path)
        return f"{where}: {self.message}" if where else self.message


class ValidatorError(Protocol):
    """The fields of an error of the JSON Schema library that are used here."""

    @property
    def instance_path(self) -> list[str | int]: ...
    @property
    def instance(self) -> Any: ...
    @property
    def kind(self) -> Any: ...


def join_problems(problems: Sequence[ValidationProblem]) -> str:
    """All problems in one line, and how many there are beyond the limit."""
    words = [str(problem) for problem in problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        words.append(f"and {len(problems) - MAX_PROBLEMS} more")
    return "; ".join(words)


def format_path(path: Iterable[str | int]) -> str:
    """The path of a value: `a.b[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{truncate(part)}" if text else truncate(part)
    return text


def truncate(text: str, limit: int = MAX_NAME_CHARS) -> str:
    """At most `limit` characters of a string."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def json_type(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    for python, name in (
        (bool, "boolean"), (int, "integer"), (float, "number"),
        (str, "string"), (dict, "object"),
    ):  # fmt: skip
        if isinstance(value, python):
            return name
    return "array"


def expected(types: Iterable[str], got: str) -> str:
    """`expected an integer or null, got a string`."""
    named = set(types)
    words = f"expected {' or '.join(text for name, text in _TYPE_NAMES.items() if name in named)}"
    return f"{words}, got {'a boolean' if got == 'boolean' else _TYPE_NAMES[got]}"


def expected_format(name: str) -> str:
    """What a string of this format looks like."""
    example = _FORMATS.get(name, f"a string of the format {truncate(name)!r}")
    return f"expected {example}, got another string"


def describe_value(value: Any) -> str:
    """What came, as far as it may be said: numbers are written out, strings never are."""
    if isinstance(value, str):
        return "another string"
    if isinstance(value, bool) or value is None:
        return _json(value)
    if isinstance(value, int | float):
        return "a number of many digits" if abs(value) > MAX_SHOWN_NUMBER else repr(value)
    return _TYPE_NAMES[json_type(value)]


def suggestion(text: str, options: Sequence[Any]) -> str:
    """`; did you mean 'celsius'?`, if a string comes close to an option, or to two of them."""
    from colonnade.text import nearest  # on use: most values are valid

    known = [option for option in options[:MAX_SUGGESTED_FROM] if isinstance(option, str)]
    near = nearest(text[:MAX_NAME_CHARS], known)
    return f"; did you mean {' or '.join(repr(truncate(one)) for one in near)}?" if near else ""


def expected_one_of(options: Sequence[Any]) -> str:
    """`expected one of 'a', 'b'`."""
    shown = [truncate(_json(option)) for option in options[:MAX_OPTIONS]]
    if len(options) > MAX_OPTIONS:
        shown.append("…")
    return f"expected {shown[0]}" if len(shown) == 1 else f"expected one of {', '.join(shown)}"


def _json(value: Any) -> str:
    names = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return names[value]
    return repr(value)


def has_non_finite(value: Any) -> bool:
    """Whether there is a NaN or an Infinity in a value of plain types."""
    waiting = [value]
    for one in waiting:
        if isinstance(one, float) and one - one != 0:
            return True
        if isinstance(one, dict):
            waiting.extend(cast(dict[Any, Any], one).values())
        elif isinstance(one, list | tuple):
            waiting.extend(cast(list[Any], one))
    return False


def explain(error: ValidatorError) -> list[ValidationProblem]:
    """One error of the validator as problems; of a union, those of the closest alternative."""
    path, kind = tuple(error.instance_path), error.kind
    facts: dict[str, Any] = kind.as_dict()
    if kind.name in ("anyOf", "oneOf"):
        return _explain_union(path, error, facts["context"])
    if kind.name == "type":
        return [ValidationProblem(path, expected(facts["types"], json_type(error.instance)))]
    if kind.name == "propertyNames":
        return [
            ValidationProblem(
                path, f"a member name is invalid: {explain(facts['error'])[0].message}"
            )
        ]
    write = _WORDS.get(kind.name)
    if write is None:
        return [ValidationProblem(path, f"does not satisfy {kind.name!r} of the schema")]
    return [ValidationProblem(path, write(facts, error.instance))]


def _explain_union(
    path: tuple[str | int, ...], error: ValidatorError, branches: list[list[ValidatorError]]
) -> list[ValidationProblem]:
    if not all(branches):
        return [ValidationProblem(path, "fits more than one alternative, which exclude each other")]
    near = [branch for branch in branches if not _wrong_type(branch, path)]
    if near:
        best = min(near, key=len)
        return [problem for inner in best for problem in explain(inner)]
    types = [name for branch in branches for name in branch[0].kind.as_dict()["types"]]
    return [ValidationProblem(path, expected(dict.fromkeys(types), json_type(error.instance)))]


def _wrong_type(branch: list[ValidatorError], path: tuple[str | int, ...]) -> bool:
    first = branch[0]
    return first.kind.name == "type" and tuple(first.instance_path) == path


# Writes the message of one error, from its facts and the value.
_Write: TypeAlias = Callable[[dict[str, Any], Any], str]


def _count(unit: str, direction: str) -> _Write:
    def write(facts: dict[str, Any], value: Any) -> str:
        limit = facts["limit"]
        return f"expected {direction} {limit} {unit}{'' if limit == 1 else 's'}, got {len(value)}"

    return write


def _bound(direction: str) -> _Write:
    return lambda facts, value: (
        f"expected {direction} {facts['limit']}, got {describe_value(value)}"
    )


def _fixed(words: str) -> _Write:
    return lambda facts, value: words


def _unknown(facts: dict[str, Any], value: Any) -> str:
    names = ", ".join(repr(truncate(str(name))) for name in facts["unexpected"][:MAX_OPTIONS])
    return f"unknown {names}"


def _choice(options: Sequence[Any], value: Any) -> str:
    words = f"{expected_one_of(options)}, got {describe_value(value)}"
    return words + suggestion(value, options) if isinstance(value, str) else words


def _pattern(facts: dict[str, Any]) -> str:
    pattern = truncate(facts.get("pattern", "its pattern"), MAX_TEXT_CHARS)
    return f"expected a string that matches {pattern}, got another string"


_WORDS: dict[str, _Write] = {
    "required": lambda facts, _: f"missing required {truncate(facts['property'])!r}",
    "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown,
    "enum": lambda facts, value: _choice(facts["options"], value),
    "const": lambda facts, value: _choice([facts["expected_value"]], value),
    "minimum": _bound("at least"),
    "maximum": _bound("at most"),
    "exclusiveMinimum": _bound("more than"),
    "exclusiveMaximum": _bound("less than"),
    "multipleOf": lambda facts, value: (
        f"expected a multiple of {facts['multiple_of']}, got {describe_value(value)}"
    ),
    "minLength": _count("character", "at least"),
    "maxLength": _count("character", "at most"),
    "minItems": _count("item", "at least"),
    "maxItems": _count("item", "at most"),
    "minProperties": _count("member", "at least"),
    "maxProperties": _count("member", "at most"),
    "uniqueItems": _fixed("expected unique items, got duplicates"),
    "pattern": lambda facts, _: _pattern(facts),
    "format": lambda facts, _: expected_format(facts["format"]),
    "falseSchema": _fixed("not allowed here"),
    "not": _fixed("a value of this kind is not allowed here"),
    "contains": _fixed("lacks an item that the schema requires"),
}
