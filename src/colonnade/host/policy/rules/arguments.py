"""The conditions of a rule on arguments: values at a path, in each reading that a server may make.

A rule does not know how a server reads `"5"` or `'{"name": "ann"}'`. So one value is several here:
the table of readings (`signatures/readings.py`) says which.

    rule                           sent                            judged
    deny user.name = "admin"       {"user": "{\\"name\\": …}"}       the name inside of the string
    deny amount = { above = 5 }    {"amount": " 1_0 "}             10
    deny force = true              {"force": "yes"}                true
    deny mode = "all"              {}                              the default of `mode`, if the
                                                                   input schema has one

`deny` and `ask` match if one reading of one value does, also inside of arrays and objects. `allow`
needs that every value at the path matches, as it is written and in every other reading.

Rules: pure, and no exception for a request, whatever it contains. A value that two servers may read
differently (`UNREADABLE`) meets every condition of `deny` and `ask`, and none of `allow`.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from operator import ge, gt, le, lt
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET, Struct

from colonnade.errors import InvalidArgument
from colonnade.host.policy.request import PolicyRequest
from colonnade.host.policy.rules.conditions import MAX_PATTERNS, about, several
from colonnade.host.policy.rules.patterns import EVERY_READING, TextPattern
from colonnade.signatures.readings import (
    UNREADABLE,
    Numbers,
    boolean_of,
    forms_of,
    has_forms,
    may_be_json,
    numbers_of,
    structure_in,
    texts_of,
)

# Maximum values below one path of the arguments. With more, `deny` and `ask` match.
MAX_VALUES: Final = 10_000
# Maximum levels of JSON in a string inside JSON in a string. No known server decodes more levels,
# and each level may be as deep as a message.
MAX_STRINGS: Final = 4
# Alternatives of a schema in which the default of one member is looked for; and levels, more than a
# message has.
MAX_ALTERNATIVES: Final = 64
MAX_LEVELS: Final = 100

COMPARISONS: Final = ("min", "max", "above", "below", "not", "present")
NO_BOUNDS: Final = (None, None, None, None)
_NUMBERS = (int, float)
_WILDCARDS = frozenset("*?[")

Expected: TypeAlias = TextPattern | bool | int | float


# ---------------------------------------------------------------- one value


class ValueComparison:
    """What a value must be: one of `equal` (patterns, numbers, booleans), within the bounds, and
    none of `excluded`. `present` alone is about whether there is a value."""

    __slots__ = ("_bounds", "_equal", "_excluded", "_only_pattern", "present")

    def __init__(
        self,
        equal: tuple[Expected, ...] = (),
        bounds: tuple[float | None, float | None, float | None, float | None] = NO_BOUNDS,
        excluded: tuple[Expected, ...] = (),
        present: bool | None = None,
    ) -> None:
        self._equal = equal
        # The bounds that the rule sets, each with its comparison.
        pairs = zip((ge, le, gt, lt), bounds, strict=True)
        self._bounds = [(holds, bound) for holds, bound in pairs if bound is not None]
        self._excluded = excluded
        self.present: bool | None = present
        # The common case: one pattern for a string.
        only = equal[0] if len(equal) == 1 and not excluded and not self._bounds else None
        self._only_pattern = only if isinstance(only, TextPattern) else None

    def readings_of_any(self, value: Any) -> int:
        """The readings in which a value meets this condition for `deny` and `ask`: at least one
        form of the value does. The caller decodes JSON in strings."""
        only = self._only_pattern
        if only is not None and isinstance(value, str) and not has_forms(value):
            return only.readings(value)
        if value is UNREADABLE:
            return EVERY_READING
        found = EVERY_READING
        if self._equal:
            found = _equals_any(self._equal, value)
        if self._excluded:
            found &= ~_equals(self._excluded, value)
        if found and self._bounds:
            numbers = numbers_of(value)
            if numbers is UNREADABLE:
                return found
            for number in numbers:
                for holds, bound in self._bounds:
                    if not holds(number, bound):
                        break
                else:
                    return found
            return 0
        return found

    def readings_of_all(self, value: Any) -> int:
        """The readings in which a value meets this condition for `allow`: the value as written
        does, and so does the JSON in a string."""
        if self._only_pattern is not None and not isinstance(value, str):
            return 0
        found = EVERY_READING
        if self._equal:
            found = _equals(self._equal, value)
        if self._bounds:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not all(map(self._is_within, _numbers(value))):
                return 0
        if found and self._excluded:
            found &= ~self.excluded_readings((value,))
        if found and isinstance(value, str):
            inner = structure_in(value)
            if inner is not UNSET:
                found &= self.readings_of_all(inner)  # none of `UNREADABLE`
        return found

    def excluded_readings(self, values: Iterable[Any]) -> int:
        """The readings in which one of these values, or one inside of them, is excluded."""
        found = 0
        for number, one in enumerate(_leaves(values) if self._excluded else ()):
            if one is UNREADABLE or number >= MAX_VALUES:
                return EVERY_READING
            found |= _equals_any(self._excluded, one)
        return found

    def _is_within(self, number: Any) -> bool:
        return all(holds(number, bound) for holds, bound in self._bounds)


def _numbers(value: Any) -> Iterable[Any]:
    numbers = numbers_of(value)
    return () if numbers is UNREADABLE else numbers


def _equals(expected: tuple[Expected, ...], value: Any) -> int:
    """The readings in which a value, as written, is one of these."""
    found = 0
    for one in expected:
        if isinstance(one, TextPattern):
            found |= one.readings(value) if isinstance(value, str) else 0
        elif isinstance(one, bool) or isinstance(value, bool):
            found |= EVERY_READING * (one is value)
        else:
            found |= EVERY_READING * (isinstance(value, int | float) and value == one)
    return found


def _equals_any(expected: tuple[Expected, ...], value: Any) -> int:
    """The readings in which some form of a value is one of these."""
    found = 0
    for one in expected:
        if found == EVERY_READING:
            break
        if isinstance(one, TextPattern):
            found |= one.readings(value) if isinstance(value, str) else 0
            for text in texts_of(value, moments=one.may_be_moment):
                found |= one.readings(text)
        elif isinstance(one, bool):
            found |= EVERY_READING * (boolean_of(value) is one)
        else:
            numbers = numbers_of(value)
            found |= EVERY_READING * (numbers is UNREADABLE or one in numbers)
    return found


# ---------------------------------------------------------------- the values at a path


class ArgumentCondition(Struct, frozen=True):
    """A condition on the values at a path of the arguments. With `strict`, as in `deny` and `ask`,
    one value is enough, and values inside of arrays and objects count; otherwise all must match."""

    path: str
    steps: tuple[str, ...]
    comparison: ValueComparison
    strict: bool
    # The path if it is a single member name; otherwise empty.
    name: str
    on_arguments: bool = True
    on_item: bool = True

    @classmethod
    def of(cls, path: str, comparison: ValueComparison, *, strict: bool) -> "ArgumentCondition":
        """The condition on a path. Raises `InvalidArgument`."""
        steps = argument_steps(path)
        is_plain = len(steps) == 1 and steps[0] != "*" and comparison.present is None
        return cls(path, steps, comparison, strict, steps[0] if is_plain else "")

    def readings(self, request: PolicyRequest) -> int:
        """The readings in which the arguments of a request meet this condition."""
        return self.readings_of(request.decoded_arguments, SchemaDefaults.of(request))

    def readings_of(self, arguments: dict[str, Any], defaults: "SchemaDefaults | None") -> int:
        """The same for these arguments of a tool with these defaults."""
        if self.name:  # the common case: one member, with a string or a number
            value = arguments.get(self.name, UNSET)
            if isinstance(value, _NUMBERS) or (isinstance(value, str) and not may_be_json(value)):
                if self.strict:
                    return self.comparison.readings_of_any(value)
                return self.comparison.readings_of_all(value)
            if value is UNSET and (defaults is None or not defaults.has(self.name)):
                return 0
        if self.strict:
            return self._readings_of_any(arguments, defaults)
        return self._readings_of_all(arguments, defaults)

    def _readings_of_any(self, arguments: dict[str, Any], defaults: "SchemaDefaults | None") -> int:
        if self.comparison.present is not None:
            has_value = any(True for _ in self._sent(arguments, self.comparison.present))
            return EVERY_READING if has_value is self.comparison.present else 0
        values = _values(arguments, self.steps, MAX_STRINGS)
        if defaults is not None:
            values = chain(values, defaults.find(arguments, self.steps))
        found = 0
        for number, value in enumerate(_leaves(values)):
            if number >= MAX_VALUES:
                return EVERY_READING
            found |= self.comparison.readings_of_any(value)
            if found == EVERY_READING:
                break
        return found

    def _readings_of_all(self, arguments: dict[str, Any], defaults: "SchemaDefaults | None") -> int:
        present = self.comparison.present
        if present is not None:
            has_value = any(True for _ in self._sent(arguments, not present))
            return EVERY_READING if has_value is present else 0
        values = list(islice(_values(arguments, self.steps), MAX_VALUES + 1))
        if not values or len(values) > MAX_VALUES:
            return 0
        found = EVERY_READING
        for value in values:
            found &= self.comparison.readings_of_all(value)
        if found and defaults is not None:
            unsent = defaults.find(arguments, self.steps)
            found &= ~self.comparison.excluded_readings(unsent)
        return found

    def _sent(self, arguments: dict[str, Any], in_strings: bool) -> Iterator[Any]:
        """The values at the path. With `strict`, values in JSON in strings are included."""
        return _values(arguments, self.steps, MAX_STRINGS if in_strings else None)

    def may_hold(self, request: PolicyRequest) -> bool:
        """Always True: the arguments are not known."""
        return True

    def problem(self, request: PolicyRequest) -> str:
        """Why this condition does not match."""
        if not any(True for _ in self._sent(request.decoded_arguments, in_strings=True)):
            return f"there is no argument {self.path!r}"
        return f"the argument {self.path!r} does not match"


def argument_steps(path: str) -> tuple[str, ...]:
    """The steps of a path: `user.name`, `paths.*`, or a JSON pointer, `/user/name`. Raises
    `InvalidArgument`."""
    if path.startswith("/"):
        return tuple(
            one.replace("~1", "/").replace("~0", "~") for one in path.removeprefix("/").split("/")
        )
    steps = tuple(path.split("."))
    if not all(steps):
        raise InvalidArgument(f"the path {path!r} has an empty step", argument="arguments")
    return steps


def _values(value: Any, steps: tuple[str, ...], strings: int | None = None) -> Iterator[Any]:
    """The values at a path. `strings` is how many levels of JSON in strings are searched as
    well."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        for one in _members(members, step, loosely=strings is not None):
            yield from _values(one, rest, strings)
    elif isinstance(value, list):
        for one in _items(cast("list[Any]", value), step):
            yield from _values(one, rest, strings)
    elif isinstance(value, str) and strings is not None:
        inner = _structure(value, strings)
        if inner is UNREADABLE:
            yield inner
        elif inner is not UNSET:
            yield from _values(inner, steps, strings - 1)


def _structure(text: str, strings: int) -> Any:
    found = structure_in(text)
    return found if strings or found is UNSET else UNREADABLE


def _members(members: dict[str, Any], step: str, *, loosely: bool) -> Iterable[Any]:
    if step == "*":
        yield from members.values()
        return
    if step in members:
        yield members[step]
    # A server may read the names as numbers: `01` is 1. Or it takes a tuple with names: the place
    # of a member is not known then.
    if step.isdecimal() and (loosely or step in members):
        expected = numbers_of(step)
        for index, (name, one) in enumerate(members.items()):
            if index >= MAX_VALUES:
                yield UNREADABLE
                return
            if name != step and _is_index(numbers_of(name), expected, loosely=loosely):
                yield one


def _is_index(numbers: Numbers, expected: Numbers, *, loosely: bool) -> bool:
    if numbers is UNREADABLE or expected is UNREADABLE:
        return True
    return any(one in expected for one in numbers) or (loosely and not numbers)


def _items(items: list[Any], step: str) -> Iterable[Any]:
    if step == "*":
        return items
    is_index = step.isdecimal() and len(step) < 10 and int(step) < len(items)
    return (items[int(step)],) if is_index else ()


def _leaves(values: Iterable[Any], strings: int = MAX_STRINGS) -> Iterator[Any]:
    """These values, and all values inside of arrays, objects and JSON in strings; the depth of each
    is limited. An empty array or object is a value of its own."""
    for value in values:
        if isinstance(value, dict | list) and value:
            inner = cast("dict[str, Any] | list[Any]", value)
            yield from _leaves(inner.values() if isinstance(inner, dict) else inner, strings)
            continue
        yield value
        if isinstance(value, str):
            found = _structure(value, strings)
            if found is not UNSET:
                yield from _leaves((found,), strings - 1)


# ---------------------------------------------------------------- defaults


class SchemaDefaults:
    """The defaults that an input schema names for members that were not sent. A schema that costs
    too much to search counts as `UNREADABLE`."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = 0
        # Cache by name: whether a member of the arguments has a default. One entry for each name in
        # a rule.
        self._known: dict[str, bool] = {}

    @classmethod
    def of(cls, request: PolicyRequest) -> "SchemaDefaults | None":
        """The defaults of the tool of a request; None if its schema names none."""
        schema = request.input_schema
        if schema is None or b'"default"' not in msgspec.json.encode(schema):
            return None
        return cls(schema)

    def has(self, name: str) -> bool:
        """Whether a member of the arguments has a default."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = any(True for _ in self.find({}, (name,)))
        return known

    def find(self, arguments: dict[str, Any], steps: tuple[str, ...]) -> Iterator[Any]:
        """The defaults at a path and below."""
        self._left = MAX_VALUES
        return self._find(arguments, steps, [self._root], MAX_LEVELS)

    def _find(
        self, value: Any, steps: tuple[str, ...], schemas: list[Any], levels: int
    ) -> Iterator[Any]:
        places = self._alternatives(schemas)
        self._left -= 1
        if places is None or not levels or self._left < 0:
            yield UNREADABLE
            return
        if value is UNSET:
            defaults = [one["default"] for one in places if "default" in one]
            for default in defaults:
                yield from _values(default, steps, MAX_STRINGS)
                if steps:  # it may lack a nested member that has a default
                    yield from self._find(default, steps, schemas, levels - 1)
            if defaults or not steps:
                return
            value = {}
        while isinstance(value, str):
            value = structure_in(value)
        if isinstance(value, dict):
            yield from self._in_members(cast("dict[str, Any]", value), steps, places, levels)
        elif isinstance(value, list) and (not steps or steps[0] == "*" or steps[0].isdecimal()):
            # Which schema is for which item is not looked at: any may be.
            inner: list[Any] = [one["items"] for one in places if "items" in one]
            for one in places:
                first = one.get("prefixItems")
                inner += cast("list[Any]", first) if isinstance(first, list) else ()
            for item in cast("list[Any]", value) if inner else ():
                yield from self._find(item, steps[1:], inner, levels - 1)

    def _in_members(
        self,
        members: dict[str, Any],
        steps: tuple[str, ...],
        places: list[dict[str, Any]],
        levels: int,
    ) -> Iterator[Any]:
        properties = [cast("Any", one.get("properties")) for one in places]
        known = [cast("dict[str, Any]", one) for one in properties if isinstance(one, dict)]
        rest: list[Any] = []
        for one in places:
            more, named = one.get("additionalProperties"), one.get("patternProperties")
            rest += [more] if isinstance(more, dict) else ()
            rest += cast("dict[str, Any]", named).values() if isinstance(named, dict) else ()
        names = dict.fromkeys(name for one in known for name in one)
        if rest:
            names |= dict.fromkeys(members)
        for name in names if not steps or steps[0] == "*" else steps[:1]:
            inner = [one[name] for one in known if name in one]
            inner += rest if name in members else ()
            if inner:
                yield from self._find(members.get(name, UNSET), steps[1:], inner, levels - 1)

    def _alternatives(self, schemas: list[Any]) -> list[dict[str, Any]] | None:
        """These schemas with `$ref` resolved and unions split into alternatives. None if there are
        too many."""
        waiting, found = list(schemas), dict[int, dict[str, Any]]()
        for one in waiting:
            if not isinstance(one, dict) or id(cast("object", one)) in found:
                continue
            if len(waiting) > MAX_ALTERNATIVES:
                return None
            schema = cast("dict[str, Any]", one)
            found[id(schema)] = schema
            for keyword in ("anyOf", "oneOf", "allOf"):
                inner = schema.get(keyword)
                waiting += cast("list[Any]", inner) if isinstance(inner, list) else []
            reference = schema.get("$ref")
            if reference == "#":
                waiting.append(self._root)
            elif isinstance(reference, str) and reference.startswith("#/"):
                waiting += _values(self._root, argument_steps(reference[1:]))
        return list(found.values())


# ---------------------------------------------------------------- as they are written


def comparison_of(given: Any, path: str, *, strict: bool) -> ValueComparison:
    """What an argument must be, as it is written in a rule. Raises `InvalidArgument`."""
    if not isinstance(given, Mapping):
        return ValueComparison(equal=_expected(given, path, strict=strict))
    table = cast("Mapping[str, Any]", given)
    unknown = [one for one in table if one not in COMPARISONS]
    if unknown or not table:
        known = ", ".join(COMPARISONS)
        what = f"unknown key {unknown[0]!r}" if unknown else "an empty table"
        raise InvalidArgument(f"{path}: {what}; known keys: {known}", argument="arguments")
    low, high, above, below = (_bound(table, one, path) for one in ("min", "max", "above", "below"))
    # `not` decides the other way round, so its `*` must not be narrower.
    excluded = _expected(table["not"], path, strict=not strict) if "not" in table else ()
    present = table.get("present")
    if present is not None and not isinstance(present, bool):
        raise InvalidArgument(f"{path}.present: expected true or false", argument="arguments")
    if present is not None and len(table) > 1:
        raise InvalidArgument(f"{path}: 'present' stands alone", argument="arguments")
    return ValueComparison((), (low, high, above, below), excluded, present)


def _bound(table: Mapping[str, Any], name: str, path: str) -> float | None:
    given = table.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        raise InvalidArgument(f"{path}.{name}: expected a number", argument="arguments")
    return given


def _expected(given: Any, path: str, *, strict: bool) -> tuple[Expected, ...]:
    many = several(given)
    if not many or len(many) > MAX_PATTERNS:
        message = f"{path}: expected 1 to {MAX_PATTERNS} values"
        raise InvalidArgument(message, argument="arguments")
    found: list[Expected] = []
    for one in many:
        if isinstance(one, str):
            texts = dict.fromkeys([one, *_forms(one)] if strict else [one])
            with about("arguments", path):
                found += [TextPattern(text, crosses=strict) for text in texts]
        elif isinstance(one, bool | int | float):
            found.append(one)
        else:
            message = f"{path}: expected strings, numbers or booleans"
            raise InvalidArgument(message, argument="arguments")
    return tuple(found)


def _forms(pattern: str) -> Iterable[str]:
    """Other forms of a date, an id or an address. `deny` applies to each form."""
    return () if _WILDCARDS & set(pattern) else forms_of(pattern)
