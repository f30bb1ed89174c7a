"""A tool's input schema as model providers accept it: a plain one, and a strict one if it can be.

`accepted` is for every provider: an object at the root, references written out. `strict` is for
the mode in which a provider lets its model write nothing else; `without_fillers` undoes on the way
back what that mode adds.

Rules: pure. What a provider is told may let more through than the tool's own schema, never less
than the tool needs: the server checks the arguments in any case. A schema is whatever a server
wrote, so every depth and count has a bound, and what cannot be turned stays as it is.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias, cast

from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.schema.bounds import ANNOTATIONS, MAX_DEPTH, map_subschemas, subschemas

Schema: TypeAlias = dict[str, Any]

# Written out, references multiply; what is larger than the largest real schemas stays as it is.
MAX_INLINED: Final = 5_000
# OpenAI's own limits for strict schemas: levels, members in all, values to choose from in all.
MAX_LEVELS: Final = 10
MAX_MEMBERS: Final = 5_000
MAX_CHOICES: Final = 1_000
# Of a keyword that is told in words, where strict mode does not know it.
MAX_KEYWORD_CHARACTERS: Final = 200

# A provider refuses the whole request for one of these at the root of a schema.
ROOT_FORBIDDEN: Final = ("anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else")
_UNIONS = ("anyOf", "oneOf")
_REFERENCES = ("$ref", "$dynamicRef")
_DEFINITIONS = ("$defs", "definitions")
_FORBIDDEN = (
    *_REFERENCES,
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "prefixItems",
    "contains",
)
_ANNOTATIONS = ANNOTATIONS
_SCALARS = frozenset({"string", "integer", "number", "boolean", "null"})


class StrictMode(NamedTuple):
    """What a provider's strict mode knows."""

    # Narrowing keywords that it keeps; others are told in the description.
    keeps: frozenset[str]
    # Whether a member that may be left out is required there, and null where it is not given.
    fills: bool


OPENAI: Final = StrictMode(
    frozenset({"pattern", "format", "multipleOf", "minItems", "maxItems"})
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    fills=True,
)
ANTHROPIC: Final = StrictMode(frozenset({"format"}), fills=False)


class NoStrictForm(ValueError):
    """There is no strict form; the words say what is in its way."""


def provider_schema(schema: Schema) -> Schema:
    """The schema as every provider takes it: an object at the root, with no references if possible.

    A union at the root becomes one object with the members of all its branches, of which only
    those are required that all of them require.
    """
    found = inline_references(schema)
    found = {key: value for key, value in found.items() if key not in ("$schema", "$id")}
    branches = [as_dict(one) for word in (*_UNIONS, "allOf") for one in as_list(found.get(word))]
    kept = {key: value for key, value in found.items() if key not in ROOT_FORBIDDEN}
    properties: Schema = {}
    for branch in branches:
        properties.update(as_dict(branch.get("properties")))
    properties.update(as_dict(kept.get("properties")))
    kept["type"] = "object"
    kept["properties"] = properties
    if branches:
        kept.pop("additionalProperties", None)  # it spoke of the root's own members
        needed = {*_strings(kept.get("required")), *_required_by_all(found)}
        kept["required"] = [name for name in properties if name in needed]
    return kept


def _required_by_all(schema: Schema) -> set[str]:
    """What is required whichever branch is taken."""
    found: set[str] = set()
    for word in _UNIONS:
        sets = [_strings(as_dict(branch).get("required")) for branch in as_list(schema.get(word))]
        found |= set[str].intersection(*sets) if sets else set()
    for branch in as_list(schema.get("allOf")):
        found |= _strings(as_dict(branch).get("required"))
    return found


def _strings(found: object) -> set[str]:
    return {one for one in as_list(found) if isinstance(one, str)}


# ---------------------------------------------------------------- references


def inline_references(schema: Schema) -> Schema:
    """The schema with what its references mean in their place; as it is where they have no end."""
    if not any(True for _ in references(schema)):
        return _without_definitions(schema)
    try:
        found = _ReferenceInliner(schema).out(schema, (), 0)
    except NoStrictForm:
        return schema
    return _without_definitions(found)


def _without_definitions(schema: Schema) -> Schema:
    if schema.keys().isdisjoint(_DEFINITIONS):
        return schema
    return {key: value for key, value in schema.items() if key not in _DEFINITIONS}


def references(schema: Schema) -> Iterator[str]:
    """Every reference in a schema, of definitions in those that something refers to."""
    for document in reachable_subschemas(schema):
        for word in _REFERENCES:
            if isinstance(document.get(word), str):
                yield document[word]


def reachable_subschemas(schema: Schema) -> Iterator[Schema]:
    """A schema and all subschemas that a value may meet, each once: a definition only where
    something refers to it."""
    finding = _ReferenceInliner(schema)
    waiting: list[object] = [schema]
    followed: set[str] = set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, dict):
            continue
        document = cast("Schema", one)
        yield document
        reference = document.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            with contextlib.suppress(NoStrictForm):  # it is elsewhere
                waiting.append(finding.find(reference))
        waiting += [child for word, _, child in subschemas(document) if word not in _DEFINITIONS]


class _ReferenceInliner:
    """References of one document, on their way out of it."""

    def __init__(self, document: Schema) -> None:
        self._document = document
        self._left = MAX_INLINED

    def out(self, schema: Any, within: tuple[str, ...], level: int) -> Any:
        if not isinstance(schema, dict):
            return schema
        self._left -= 1
        if self._left < 0 or level > MAX_DEPTH:
            raise NoStrictForm("its references become too much, written out")
        document = cast("Schema", schema)
        reference = document.get("$ref")
        if isinstance(reference, str):
            if reference in within:
                raise NoStrictForm(f"{reference} refers to itself")
            beside = {key: value for key, value in document.items() if key != "$ref"}
            meant = self.out(self.find(reference), (*within, reference), level + 1)
            return {**as_dict(meant), **self.out(beside, within, level + 1)}
        if "$dynamicRef" in document or ("$id" in document and document is not self._document):
            raise NoStrictForm("its references depend on where they stand")

        def change(word: str, one: Any) -> Any:
            # A definition is written where it is meant; here it only waits.
            return one if word in _DEFINITIONS else self.out(one, within, level + 1)

        return map_subschemas(document, change)

    def find(self, reference: str) -> Schema:
        """What a reference means. Raises `NoStrictForm` for one that leads elsewhere."""
        if not reference.startswith("#/"):
            raise NoStrictForm(f"{reference[:80]!r} is not in the schema")
        found: Any = self._document
        for part in reference[2:].split("/"):
            found = as_dict(found).get(part.replace("~1", "/").replace("~0", "~"))
        if not isinstance(found, dict):
            raise NoStrictForm(f"{reference[:80]!r} is not in the schema")
        return cast("Schema", found)


# ---------------------------------------------------------------- strict


def strict_schema(schema: Schema, mode: StrictMode) -> Schema:
    """The schema as a provider's strict mode wants it. Raises `NoStrictForm`."""
    for word in ROOT_FORBIDDEN:
        if word in inline_references(schema):
            raise NoStrictForm(f"{word} at its root")
    return _StrictConverter(mode).object(provider_schema(schema), 0, "it")


class _StrictConverter:
    """One schema on its way into a strict mode."""

    def __init__(self, mode: StrictMode) -> None:
        self._mode = mode
        self._members = 0
        self._choices = 0

    def any(self, schema: object, level: int, where: str) -> Schema:
        document = as_dict(schema)
        if level > MAX_LEVELS:
            raise NoStrictForm(f"{where} is nested deeper than {MAX_LEVELS} levels")
        for word in _FORBIDDEN:
            if word in document:
                raise NoStrictForm(f"{where} has {word}")
        if "const" in document:
            document = {**document, "enum": [document["const"]]}
        if "enum" in document:
            return self._choice(document, where)
        for word in (*_UNIONS, "allOf"):
            if word in document:
                return self._union(document, word, level, where)
        named = document.get("type")
        if isinstance(named, list):
            return self._several(document, cast("list[Any]", named), level, where)
        if named == "object":
            if not as_dict(document.get("properties")):
                raise NoStrictForm(f"{where} may have any members")
            return self.object(document, level, where)
        if named == "array":
            if not isinstance(document.get("items"), dict):
                raise NoStrictForm(f"{where} is a list of anything")
            items = self.any(document["items"], level + 1, f"an item of {where}")
            return self._told(document, {"type": "array", "items": items})
        if isinstance(named, str) and named in _SCALARS:
            return self._told(document, {"type": named})
        raise NoStrictForm(f"{where} may be anything")

    def object(self, schema: Schema, level: int, where: str) -> Schema:
        if schema.get("additionalProperties") not in (None, False):
            raise NoStrictForm(f"{where} may have any other members")
        needed = as_list(schema.get("required"))
        members: Schema = {}
        for name, one in as_dict(schema.get("properties")).items():
            self._members += 1
            if self._members > MAX_MEMBERS:
                raise NoStrictForm(f"it has more than {MAX_MEMBERS} members")
            made = self.any(one, level + 1, name)
            members[name] = nullable(made) if self._mode.fills and name not in needed else made
        required = [name for name in members if self._mode.fills or name in needed]
        closed = {"type": "object", "properties": members, "required": required}
        return self._told(schema, {**closed, "additionalProperties": False})

    def _choice(self, document: Schema, where: str) -> Schema:
        values = as_list(document["enum"])
        self._choices += len(values)
        if not values or self._choices > MAX_CHOICES:
            raise NoStrictForm(f"{where} has no values, or it has more than {MAX_CHOICES} in all")
        kinds = list(dict.fromkeys(_json_type(one) for one in values))
        if not _SCALARS.issuperset(kinds):
            raise NoStrictForm(f"{where} is one of several lists or objects")
        named = kinds[0] if len(kinds) == 1 else kinds
        return self._told(document, {"type": named, "enum": values})

    def _union(self, document: Schema, word: str, level: int, where: str) -> Schema:
        beside = document.keys() - _ANNOTATIONS - {word}
        branches = as_list(document[word])
        if beside or not branches or (word == "allOf" and len(branches) > 1):
            raise NoStrictForm(f"{where} has {word}" + (f" beside {min(beside)}" if beside else ""))
        made = [self.any(one, level + 1, where) for one in branches]
        within = [one for branch in made for one in _branches(branch)]
        if self._mode.fills and any(
            sum(word in one for one in within) > 1 for word in ("properties", "items")
        ):
            # Which of them a value is would decide what a null in it means.
            raise NoStrictForm(f"{where} is one of several objects or lists")
        return self._told(document, made[0] if len(made) == 1 else {"anyOf": made})

    def _several(self, document: Schema, kinds: list[Any], level: int, where: str) -> Schema:
        if not all(isinstance(one, str) for one in kinds):
            raise NoStrictForm(f"{where} is of no type that there is")
        if _SCALARS.issuperset(kinds):
            return self._told(document, {"type": kinds})
        rest = {key: value for key, value in document.items() if key not in _ANNOTATIONS}
        made = [self.any({**rest, "type": one}, level + 1, where) for one in kinds]
        return self._told(
            {key: document[key] for key in _ANNOTATIONS & document.keys()}, {"anyOf": made}
        )

    def _told(self, document: Schema, made: Schema) -> Schema:
        """What a schema says besides: kept where the mode knows it, else in words."""
        known = ("title", "description", "examples", "const", "$comment", "deprecated", *_UNIONS)
        handled = {*made, *known, "allOf", "$defs", "definitions"}
        words: list[str] = []
        for key, value in document.items():
            if key in handled or key.startswith("x-"):
                continue
            if key in self._mode.keeps:
                made[key] = value
            else:
                words.append(f"{key} {encode(value).decode()[:MAX_KEYWORD_CHARACTERS]}")
        said = str(document.get("description") or made.get("description") or "")
        if words:
            said = f"{said} ({', '.join(words)})".strip()
        return {**made, "description": said} if said else made


def nullable(schema: Schema) -> Schema:
    """The same schema, with null let through as well."""
    if takes_null(schema):
        return schema
    named = schema.get("type")
    if isinstance(named, str) and named in _SCALARS:
        choices = {"enum": [*as_list(schema["enum"]), None]} if "enum" in schema else {}
        return {**schema, "type": [named, "null"], **choices}
    if isinstance(named, list):
        choices = {"enum": [*as_list(schema["enum"]), None]} if "enum" in schema else {}
        return {**schema, "type": [*cast("list[Any]", named), "null"], **choices}
    null = {"type": "null"}
    said = {"description": schema["description"]} if "description" in schema else {}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*as_list(schema["anyOf"]), null]}
    bare = {key: value for key, value in schema.items() if key != "description"}
    return {"anyOf": [bare, null], **said}


def takes_null(schema: object) -> bool:
    """Whether null is one of the values that a schema lets through, as far as it is easily seen."""
    document = as_dict(schema)
    if schema is True or (isinstance(schema, dict) and not document.keys() - _ANNOTATIONS):
        return True
    if "const" in document:
        return document["const"] is None
    if "enum" in document:
        return None in as_list(document["enum"])
    for word in _UNIONS:
        if word in document:
            return any(map(takes_null, as_list(document[word])))
    named = document.get("type")
    if named is None:
        return not any(word in document for word in (*_REFERENCES, "allOf", "properties", "items"))
    return named == "null" or (isinstance(named, list) and "null" in named)


# ---------------------------------------------------------------- the way back


def remove_null_fillers(value: Any, schema: Schema) -> Any:
    """What a model wrote, without the nulls that stand for what it left out.

    A null goes where the tool's own schema lets the member be left out, and lets it be no null.
    """
    return _remove_nulls(value, provider_schema(schema), 0)


def _remove_nulls(value: Any, schema: object, level: int) -> Any:
    if level > 2 * MAX_LEVELS:
        return value
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        found = _object_branch(as_dict(schema), members)
        properties, needed = as_dict(found.get("properties")), as_list(found.get("required"))
        kept: dict[str, Any] = {}
        for name, one in members.items():
            own = properties.get(name)
            if one is None and own is not None and name not in needed and not takes_null(own):
                continue
            kept[name] = _remove_nulls(one, own, level + 1)
        return kept
    if isinstance(value, list):
        items = _array_branch(as_dict(schema)).get("items")
        return [_remove_nulls(one, items, level + 1) for one in cast("list[Any]", value)]
    return value


def _branches(schema: Schema) -> list[Schema]:
    """A schema and all that its unions are made of."""
    found = [schema]
    for one in found:  # it grows
        for word in (*_UNIONS, "allOf"):
            found += [as_dict(branch) for branch in as_list(one.get(word))]
    return found


def _object_branch(schema: Schema, value: dict[str, Any]) -> Schema:
    """The one branch that speaks of such an object; none where that is not clear."""
    found = [one for one in _branches(schema) if as_dict(one.get("properties"))]
    if len(found) > 1:
        found = [one for one in found if value.keys() <= as_dict(one.get("properties")).keys()]
    return found[0] if len(found) == 1 else {}


def _array_branch(schema: Schema) -> Schema:
    found = [one for one in _branches(schema) if isinstance(one.get("items"), dict)]
    return found[0] if len(found) == 1 else {}


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "other"


def as_dict(found: object) -> dict[str, Any]:
    """An object where there is one; else an empty one."""
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def as_list(found: object) -> list[Any]:
    """A list where there is one; else an empty one."""
    return cast("list[Any]", found) if isinstance(found, list) else []
