"""What is typed after a name becomes arguments: `city=Oslo days:=3 tags=a tags=b @more.json -`.

- `key=value` is of the type that the tool wants: text, a number, true or false, JSON for an object.
- `key:=json` is JSON, whatever the tool wants.
- `@file` and `-` (standard input) are a JSON object with any number of arguments.

Rules: what does not fit is told before anything is sent, with what is wanted. Values are never
repeated in words: they may be nobody's business.
"""

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, cast

import msgspec

from colonnade.cli.text import clean, cut, one_line
from colonnade.cli.trouble import Trouble
from colonnade.client.signatures import members, prompt_signature, required, taken
from colonnade.errors import Fault
from colonnade.protocol import types as t
from colonnade.protocol.problems import kind_of, told
from colonnade.protocol.schema import Validator, admitted, inlined

# Of a word that is no argument, and of a name that is none.
MAX_PLACES = 60
# More arguments than anybody types, or reads from a file by intent.
MAX_INPUT_BYTES = 64 * 1024 * 1024
# Names of arguments that are listed where one is wrong.
MAX_NEEDED = 20

_SAID = {"true": True, "false": False, "yes": True, "no": False}


class Word(NamedTuple):
    """One `key=value` or `key:=json`."""

    key: str
    text: str
    is_json: bool


class Words(NamedTuple):
    """All that was typed: single arguments, and whole objects of them."""

    words: list[Word]
    objects: list[dict[str, Any]]


def read_words(typed: Sequence[str]) -> Words:
    """Understand what was typed. Raises `Trouble`."""
    words: list[Word] = []
    objects: list[dict[str, Any]] = []
    for word in typed:
        key, equals, text = word.partition("=")
        if word == "-":
            objects.append(_object(_from_input(), "standard input"))
        elif word.startswith("@"):
            objects.append(_object(_from_file(word[1:]), clean(word[1:])))
        elif not equals or not key.removesuffix(":"):
            shown = cut(clean(word), MAX_PLACES)
            raise Trouble(f"{shown} is no argument; write key=value, key:=json, @file or -")
        else:
            words.append(Word(key.removesuffix(":"), text, key.endswith(":")))
    return Words(words, objects)


def _from_input() -> bytes:
    return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)


def _from_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise Trouble(f"@{clean(path)} cannot be read: {why}") from None


def _object(data: bytes, source: str) -> dict[str, Any]:
    if len(data) > MAX_INPUT_BYTES:
        raise Trouble(f"{source} has more than {MAX_INPUT_BYTES >> 20} MiB")
    found = _json(data, source)
    if not isinstance(found, dict):
        raise Trouble(f"{source} must hold a JSON object, with a member for each argument")
    return cast("dict[str, Any]", found)


def _json(data: bytes | str, source: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Trouble(f"{source} is no JSON: {error}") from None


# ---------------------------------------------------------------- tools


def tool_arguments(tool: t.Tool, typed: Words) -> dict[str, Any]:
    """The arguments of a call, as the tool wants them. Raises `Trouble` where they do not fit."""
    schema, validator = _opened(tool.input_schema)
    problems = _strangers([word.key for word in typed.words], schema)
    given: dict[str, Any] = {}
    for whole in typed.objects:
        given.update(whole)
    given.update(_typed(typed.words, schema, is_usable=validator is not None))
    problems += _absent(given, schema)
    if not problems and validator is not None:
        found = validator.check(given)
        problems = [told(found)] if found else []
    if problems:
        raise Trouble(f"{one_line(tool.name)}: {'; '.join(problems)}; it is {taken(tool)}")
    return given


def _opened(schema: dict[str, Any]) -> tuple[dict[str, Any], Validator | None]:
    """The schema without a reference at its top, and what checks it, if it can be used at all."""
    try:
        validator = Validator(schema)
        validator.compile()
        return inlined(schema), validator
    except (Fault, AttributeError, TypeError, ValueError, RecursionError):
        return schema, None  # the server will say what it thinks of the arguments


def _strangers(keys: list[str], schema: dict[str, Any]) -> list[str]:
    """Names that the tool has not. A schema that names none, or says that there may be more, has
    no strangers."""
    known = members(schema)
    more = schema.get("additionalProperties")
    says_so = isinstance(schema.get("properties"), dict) or more is False
    if more or "patternProperties" in schema or not says_so:
        return []
    return [_stranger(key, list(known)) for key in dict.fromkeys(keys) if key not in known]


def _stranger(key: str, known: list[str]) -> str:
    near = get_close_matches(key, known, n=1)
    hint = f" (did you mean {one_line(near[0])}?)" if near else ""
    return f"it has no {cut(clean(key), MAX_PLACES)}{hint}"


def _absent(given: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    names = [name for name in required(schema) if name not in given]
    return [f"it needs {one_line(', '.join(names[:MAX_NEEDED]))}"] if names else []


def _typed(words: list[Word], schema: dict[str, Any], *, is_usable: bool) -> dict[str, Any]:
    known = members(schema)
    more = schema.get("additionalProperties")
    made: dict[str, Any] = {}
    for word in words:
        own: Any = known.get(word.key, more if isinstance(more, dict) else True)
        types = _admitted(own, schema) if is_usable else frozenset({"string"})
        if word.is_json:
            value: Any = _json(word.text, f"{cut(clean(word.key), MAX_PLACES)}:=")
        else:
            value = _value(word.text, own, types, schema)
        before = made.get(word.key)
        if word.key not in made:
            made[word.key] = value
        elif isinstance(before, list) and isinstance(value, list) and "string" not in types:
            made[word.key] = [*cast("list[Any]", before), *cast("list[Any]", value)]
        else:
            raise Trouble(f"{cut(clean(word.key), MAX_PLACES)} is given twice")
    return made


def _admitted(own: Any, root: dict[str, Any]) -> frozenset[str]:
    try:
        return admitted(own, root)
    except (AttributeError, TypeError, RecursionError):
        return frozenset({"string"})


def _value(text: str, own: Any, types: frozenset[str], root: dict[str, Any]) -> Any:
    """What a text is where these types may be. What fits none of them stays text, and is told so
    by the schema."""
    if "string" in types:
        return text
    if "boolean" in types and text.lower() in _SAID:
        return _SAID[text.lower()]
    try:
        found: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = text
    if isinstance(found, float) and found.is_integer() and "number" not in types:
        found = int(found)
    kind = kind_of(found)
    if kind in types or (kind == "integer" and "number" in types):
        return found
    if "array" in types:
        items: Any = cast("dict[str, Any]", own).get("items", True) if _is_dict(own) else True
        return [_value(text, items, _admitted(items, root), root)]
    return text


def _is_dict(found: object) -> bool:
    return isinstance(found, dict)


# ---------------------------------------------------------------- prompts


def prompt_arguments(prompt: t.Prompt, typed: Words) -> dict[str, str]:
    """The arguments of a prompt, all of which are text. Raises `Trouble` where they do not fit."""
    known = [one.name for one in prompt.arguments or []]
    given = texts(typed)
    problems = [_stranger(key, known) for key in given if key not in known]
    absent = [a.name for a in prompt.arguments or [] if a.required and a.name not in given]
    if absent:
        problems.append(f"it needs {one_line(', '.join(absent[:MAX_NEEDED]))}")
    if problems:
        words = f"{one_line(prompt.name)}: {'; '.join(problems)}"
        raise Trouble(f"{words}; it is {prompt_signature(prompt)}")
    return given


def texts(typed: Words) -> dict[str, str]:
    """Arguments where each is text. Raises `Trouble` for what is not, or is there twice."""
    given: dict[str, Any] = {}
    for whole in typed.objects:
        given.update(whole)
    seen: set[str] = set()
    for word in typed.words:
        key = cut(clean(word.key), MAX_PLACES)
        if word.key in seen:
            raise Trouble(f"{key} is given twice")
        seen.add(word.key)
        given[word.key] = _json(word.text, f"{key}:=") if word.is_json else word.text
    for name, value in given.items():
        if not isinstance(value, str):
            raise Trouble(f"{cut(clean(name), MAX_PLACES)} must be text: all arguments here are")
    return cast("dict[str, str]", given)
