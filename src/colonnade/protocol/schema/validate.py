"""JSON Schema: validating values, the types that a schema admits, and inlining of references.

Supported dialects: 2020-12 (the default) and draft-07, by `$schema`. R0459, R0464

Rules: nothing is ever fetched, and a schema that would need it is refused. A schema or a value that
would cost too much to validate is refused before. The validation library is imported here alone,
when the first value is validated. A value is never repeated in a message.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, NoReturn, TypeAlias, cast

from colonnade.errors import Fault, FaultKind, InvalidArgument
from colonnade.protocol.schema.bounds import (
    DRAFT_07,
    DRAFT_2020_12,
    Schema,
    UnusableSchema,
    dialect,
    estimate_costs,
    map_subschemas,
    measure,
    subschemas,
)
from colonnade.protocol.schema.error_messages import (
    MAX_PROBLEMS,
    ValidationProblem,
    ValidatorError,
    explain,
    format_path,
    json_type,
)

__all__ = [
    "DRAFT_07",
    "DRAFT_2020_12",
    "Schema",
    "UnusableSchema",
    "ValidationProblem",
    "Validator",
    "admitted_types",
    "dialect",
    "inline_references",
]

# One step is 20 to 50 ns: about a tenth of a second for the worst value that is allowed.
MAX_WORK = 4_000_000
# Locating problems costs some 10 µs a step; beyond this only the verdict is given.
MAX_EXPLAINED_WORK = 20_000
# A compiled pattern; `\w{500}` takes 200 KiB, so real ones fit.
MAX_PATTERN_BYTES = 1 << 20
# Look-around needs a backtracking engine; after this many steps back the string counts as invalid.
MAX_BACKTRACKS = 10_000
# Copies of definitions in place of references: past this the references stay.
MAX_INLINED_SUBSCHEMAS = 2_000

Types: TypeAlias = frozenset[str]

_ALL_TYPES = frozenset({"string", "integer", "number", "boolean", "object", "array", "null"})
_OBJECT = frozenset({"object"})
_HOLDERS = ("$defs", "definitions")
_NOTES = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}
)


# ---------------------------------------------------------------- validation


class Validator:
    """A schema that values can be validated against.

    Raises `Fault` for a schema that cannot be used, `LocalProtocolError` if it is `ours`. It is
    compiled for the first value (or by `compile`), and the validation library is loaded then.
    """

    def __init__(
        self,
        document: Any,
        *,
        ours: bool = False,
        name: str = "schema",
        formats: dict[str, Callable[[str], bool]] | None = None,
    ) -> None:
        self.document = document
        self._ours = ours
        self._name = name
        self._formats = formats
        self._compiled: Any = None
        self._square = False
        try:
            self._dialect = dialect(document)
            self._costs = estimate_costs(document)
        except UnusableSchema as error:
            raise self._refusal(str(error)) from None

    def compile(self) -> None:
        """Compile now: for a schema that is checked when it is registered, not when it is used."""
        if self._compiled is None:
            self._compiled = self._compile()

    def check(self, value: Any) -> list[ValidationProblem]:
        """The problems of a JSON value, at most `MAX_PROBLEMS`; empty if it is valid."""
        self.compile()
        try:
            weights = measure(value, square=self._square)
        except UnusableSchema as error:
            return [ValidationProblem((), str(error))]
        work = sum(weight * (1 + self._costs[depth]) for depth, weight in enumerate(weights))
        if work > MAX_WORK:
            return [ValidationProblem((), "too large or too deeply nested to be validated")]
        try:
            if self._compiled.is_valid(value):
                return []
            if work > MAX_EXPLAINED_WORK:
                return [
                    ValidationProblem(
                        (), "does not fit the schema, and is too large to locate the problem"
                    )
                ]
            return _explained(list(self._compiled.iter_errors(value)))
        except ValueError:  # a lone surrogate, bytes, a key that is not a string
            return [ValidationProblem((), "contains a value that JSON cannot hold")]

    def _compile(self) -> Any:
        import jsonschema_rs

        size = MAX_PATTERN_BYTES
        try:
            return self._make(jsonschema_rs.RegexOptions(size, size))
        except ValueError:
            # Deployed servers have look-ahead in patterns (pydantic writes it, for decimals), which
            # no linear engine supports. They get the other one, and strings count by the square of
            # their length.
            self._square = True
        try:
            return self._make(jsonschema_rs.FancyRegexOptions(MAX_BACKTRACKS, size, size))
        except ValueError as error:
            words = str(error).partition("\n")[0][:200]
            where = format_path(getattr(error, "instance_path", ())) or "its root"
            raise self._refusal(f"not a valid JSON Schema, at {where}: {words}") from None  # R0465

    def _make(self, pattern_options: Any) -> Any:
        import jsonschema_rs

        if self._dialect == DRAFT_07:
            make = jsonschema_rs.Draft7Validator
        else:
            make = jsonschema_rs.Draft202012Validator
        return make(
            self.document,
            retriever=_never_fetch,  # R0756
            pattern_options=pattern_options,
            # Deployed servers use "date-time" for dates without an offset, too.
            validate_formats=self._formats is not None,
            formats=self._formats,
            mask="a value",
        )

    def _refusal(self, problem: str) -> Exception:
        if self._ours:
            return InvalidArgument(f"{self._name}: {problem}")
        return Fault(FaultKind.INVALID_PARAMS, f"{self._name}: {problem}")


def _explained(errors: list[ValidatorError]) -> list[ValidationProblem]:
    """The problems; a wrong type is left out if the choices are listed."""
    listed = [c.instance_path for c in errors if c.kind.name in ("enum", "const")]
    reported = (c for c in errors if c.kind.name != "type" or c.instance_path not in listed)
    return list(islice((problem for one in reported for problem in explain(one)), MAX_PROBLEMS))


def _never_fetch(uri: str) -> NoReturn:
    raise ValueError(f"{uri[:200]} is never fetched")


# ---------------------------------------------------------------- admitted types


def admitted_types(document: Any, root: Any) -> Types:
    """The JSON types that a schema admits, derived from its keywords; all if it does not say.

    `root` is the document that its references start from.
    """
    return _admitted(document, _definitions(root), {})


def _admitted(document: Any, definitions: Schema, seen: dict[str, Types]) -> Types:
    if not isinstance(document, dict):
        return frozenset() if document is False else _ALL_TYPES
    schema, types = cast(Schema, document), _ALL_TYPES
    if "type" in schema:
        named = schema["type"]
        types &= frozenset(cast(list[str], named) if isinstance(named, list) else [str(named)])
    for options in (schema.get("enum"), [schema["const"]] if "const" in schema else None):
        if isinstance(options, list):
            types &= frozenset(json_type(option) for option in cast(list[Any], options))
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            parts = (_admitted(one, definitions, seen) for one in schema[keyword])
            types &= frozenset[str]().union(*parts)
    for one in schema.get("allOf", ()):
        types &= _admitted(one, definitions, seen)
    reference = schema.get("$ref")
    if reference in definitions:
        if reference not in seen:
            seen[reference] = _ALL_TYPES  # while it is being derived: a cycle says nothing
            seen[reference] = _admitted(definitions[reference], definitions, seen)
        types &= seen[reference]
    return types


def _definitions(root: Any) -> Schema:
    found: Schema = {}
    if isinstance(root, dict):
        for holder in _HOLDERS:
            for name, one in cast(Schema, root).get(holder, {}).items():
                found[f"#/{holder}/{name.replace('~', '~0').replace('/', '~1')}"] = one
    return found


# ---------------------------------------------------------------- inlining of references


def inline_references(document: Schema) -> Schema:
    """The same schema with definitions in place of references, so that the root has its type.

    Recursive definitions stay, under their names. Many hosts do not support references, and reject
    a tool, or every tool of a server, whose root is one.
    """
    inliner = _Inliner(_definitions(document))
    body = inliner.opened({k: v for k, v in document.items() if k not in _HOLDERS})
    try:
        body = inliner.expand(body)
        kept = inliner.kept()
    except _TooMany:
        kept = inliner.definitions
    for reference, one in kept.items():
        _, holder, name = reference.split("/", 2)
        body.setdefault(holder, {})[name.replace("~1", "/").replace("~0", "~")] = one
    if "type" not in body and admitted_types(body, body) == _OBJECT:
        body = {"type": "object", **body}  # a union of objects: older revisions require the keyword
    return body


class _TooMany(Exception):
    """The copies would be larger than the references."""


class _Inliner:
    """Puts definitions in place of references, except recursive ones."""

    def __init__(self, definitions: Schema) -> None:
        self.definitions = definitions
        self._recursive = _circular(definitions)
        self._used: dict[str, None] = {}
        self._budget = MAX_INLINED_SUBSCHEMAS

    def opened(self, body: Schema) -> Schema:
        """The root without a reference at its top, followed as often as there are definitions."""
        for _ in self.definitions:
            if body.get("$ref") not in self.definitions:
                break
            body = _merged(self.definitions[body["$ref"]], body)
        return body

    def expand(self, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        self._budget -= 1
        if self._budget < 0:
            raise _TooMany
        schema = cast(Schema, document)
        body = map_subschemas(schema, lambda _, child: self.expand(child))
        reference = body.get("$ref")
        if reference in self._recursive:
            self._used[reference] = None
        elif reference in self.definitions:
            return _merged(self.expand(self.definitions[reference]), body)
        return body

    def kept(self) -> Schema:
        """The recursive definitions that are still referred to."""
        kept: Schema = {}
        while waiting := [name for name in self._used if name not in kept]:
            for name in waiting:
                kept[name] = self.expand(self.definitions[name])
        return kept


def _merged(target: Any, referring: Schema) -> Schema:
    """A definition in place of the reference to it; keywords beside the reference stay."""
    beside = {key: one for key, one in referring.items() if key != "$ref"}
    if isinstance(target, bool):
        target = {} if target else {"not": {}}
    if beside.keys() <= _NOTES:
        return {**target, **beside}
    return {"allOf": [target], **beside}


def _circular(definitions: Schema) -> set[str]:
    """The definitions that lead back to themselves, and those between two of them."""
    if not definitions:
        return set()
    leads = {name: _references(one) & definitions.keys() for name, one in definitions.items()}
    endless = _blocked(leads)
    led: dict[str, set[str]] = {name: set() for name in endless}
    for name in endless:
        for ahead in leads[name] & endless:
            led[ahead].add(name)
    return _blocked(led)


def _blocked(leads: dict[str, set[str]]) -> set[str]:
    """The names from which some path never ends."""
    from graphlib import CycleError, TopologicalSorter  # on use: few schemas have definitions

    sorter = TopologicalSorter(leads)
    with suppress(CycleError):
        sorter.prepare()
    blocked = set(leads)
    while ready := sorter.get_ready():
        sorter.done(*ready)
        blocked.difference_update(ready)
    return blocked


def _references(document: Any) -> set[str]:
    found: set[str] = set()
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            schema = cast(Schema, one)
            if isinstance(schema.get("$ref"), str):
                found.add(schema["$ref"])
            waiting.extend(child for _, _, child in subschemas(schema))
    return found
