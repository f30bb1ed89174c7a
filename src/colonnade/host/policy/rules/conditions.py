"""The conditions of a rule: on the caller, the server, the item, its annotations and its arguments.

Rules: pure. A condition says in which readings of a string it holds (`patterns`). Annotations count
only if their server is trusted (R0294). `allow` needs that every value at a path matches, `deny`
and `ask` that one does, also inside of arrays and objects, and in a string that is a number.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import ge, gt, le, lt
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from msgspec import Struct

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.host.policy.request import ItemKind, PolicyRequest
from colonnade.host.policy.rules.patterns import EVERY_READING, Glob, TextPattern
from colonnade.protocol import types as t

# Patterns of one condition.
MAX_PATTERNS = 200
# Values below one path of the arguments; with more the condition is met for `deny` and `ask`.
MAX_VALUES = 10_000
# Of a number that a string is compared as.
MAX_NUMBER_CHARACTERS = 100

InputName: TypeAlias = Literal["elicitation", "sampling", "roots"]
INPUT_METHODS: Final[Mapping[str, str]] = {
    "elicitation": "elicitation/create",
    "sampling": "sampling/createMessage",
    "roots": "roots/list",
}
# The defaults of the specification, for a tool that does not say.
HINTS: Final[Mapping[str, bool]] = {
    "readOnlyHint": False,
    "destructiveHint": True,
    "idempotentHint": False,
    "openWorldHint": True,
}
COMPARISONS: Final = ("min", "max", "above", "below", "not", "present")

_SCALARS = (str, int, float)
_NUMBERS = (int, float)
NO_BOUNDS: Final = (None, None, None, None)

Strings: TypeAlias = str | Sequence[str]


def as_strings(value: Strings, what: str) -> tuple[str, ...]:
    """One string or several. Raises `InvalidArgumentType`."""
    given: object = value
    is_several = isinstance(given, list | tuple | set | frozenset)
    many = tuple(value) if is_several else cast("tuple[str, ...]", (value,))
    if not all(isinstance(cast("object", one), str) for one in many):
        raise InvalidArgumentType(f"{what}: expected a string or several", argument=what)
    if not many:
        raise InvalidArgument(f"{what}: an empty list matches nothing", argument=what)
    if len(many) > MAX_PATTERNS:
        raise InvalidArgument(f"{what}: at most {MAX_PATTERNS} patterns", argument=what)
    return many


def globs(value: Strings, what: str) -> tuple[Glob, ...]:
    """Patterns of names. Raises `InvalidArgument`, with the name of the parameter."""
    with _about(what):
        return tuple(Glob(one) for one in as_strings(value, what))


def text_patterns(value: Strings, what: str, *, crosses: bool) -> tuple[TextPattern, ...]:
    """Patterns of values. Raises `InvalidArgument`, with the name of the parameter."""
    with _about(what):
        return tuple(TextPattern(one, crosses=crosses) for one in as_strings(value, what))


@contextmanager
def _about(what: str, path: str = "") -> Generator[None]:
    try:
        yield
    except InvalidArgument as error:
        if error.argument:
            raise
        message = f"{path or what}: {error}"
        raise InvalidArgument(message, argument=what) from None


def _shown(patterns: Sequence[Glob | TextPattern]) -> str:
    return " or ".join(repr(one.text) for one in patterns[:3]) + (" …" if len(patterns) > 3 else "")


# ---------------------------------------------------------------- caller, server and item


class Condition(Protocol):
    """One condition of a rule."""

    @property
    def on_arguments(self) -> bool:
        """Whether it is about the arguments, which are not known when items are listed."""
        ...

    @property
    def on_item(self) -> bool:
        """Whether it is about the tool, prompt or resource, which is not known of a server."""
        ...

    def readings(self, request: PolicyRequest) -> int:
        """The readings in which it holds, as bits."""
        ...

    def may_hold(self, request: PolicyRequest) -> bool:
        """Whether it can hold for an item of this server; the request has none."""
        ...

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold, for people."""
        ...


class FactCondition(NamedTuple):
    """A fact of the caller or the server: `principals`, `clients`, `servers`."""

    what: str
    patterns: tuple[Glob, ...]
    on_arguments: bool = False
    on_item: bool = False

    def readings(self, request: PolicyRequest) -> int:
        """All or none."""
        fact = self._fact(request)
        return EVERY_READING if any(one.matches(fact) for one in self.patterns) else 0

    def may_hold(self, request: PolicyRequest) -> bool:
        """Whether it holds: it is known."""
        return bool(self.readings(request))

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold."""
        fact = self._fact(request)
        return f"the {self.what} {fact!r} does not match {_shown(self.patterns)}"

    def _fact(self, request: PolicyRequest) -> str:
        if self.what == "principal":
            return request.principal
        return request.client if self.what == "client" else request.server


class ClaimCondition(NamedTuple):
    """A claim of the caller's token; of an array, one member is enough."""

    name: str
    expected: tuple["Glob | bool | int | float", ...]
    on_arguments: bool = False
    on_item: bool = False

    def readings(self, request: PolicyRequest) -> int:
        """All or none."""
        values = _claim_values(request.claims, self.name)
        holds = any(_is_claim(one, value) for one in self.expected for value in values)
        return EVERY_READING if holds else 0

    def may_hold(self, request: PolicyRequest) -> bool:
        """Whether it holds: it is known."""
        return bool(self.readings(request))

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold. The value is not shown: a claim may be private."""
        has = bool(_claim_values(request.claims, self.name))
        return f"the claim {self.name!r} {'does not match' if has else 'is not there'}"


def _claim_values(claims: Mapping[str, Any], name: str) -> list[Any]:
    """The value of a claim, by its name or by a path of names: `realm_access.roles`."""
    found: Any = claims
    for part in (name,) if name in claims else name.split("."):
        found = cast("Mapping[str, Any]", found).get(part) if isinstance(found, Mapping) else None
    if found is None:
        return []
    return cast("list[Any]", found) if isinstance(found, list | tuple) else [found]


def _is_claim(expected: "Glob | bool | float", value: Any) -> bool:
    if isinstance(expected, Glob):
        return isinstance(value, str) and expected.matches(value)
    return isinstance(value, bool) is isinstance(expected, bool) and value == expected


class ItemCondition(NamedTuple):
    """`tools`, `prompts` and `resources`: one of them must match. With `is_own`, names are those on
    the server; otherwise they are qualified names, which may be shortened and then lack what a
    pattern is about. With `strict`, as in `deny` and `ask`, it is enough if the qualified or the
    full name matches; otherwise both must, or the qualified name is written out."""

    names: Mapping[ItemKind, tuple[Glob, ...]]
    uris: tuple[TextPattern, ...]
    is_own: bool
    strict: bool
    on_arguments: bool = False
    on_item: bool = True

    def readings(self, request: PolicyRequest) -> int:
        """The readings of a URI; all or none for a name."""
        if request.kind in ("resource", "template"):
            found = 0
            for one in self.uris:
                found |= one.readings(request.name)
            return found
        patterns = self.names.get(request.kind, ())
        return EVERY_READING if patterns and self._holds(request, patterns) else 0

    def _holds(self, request: PolicyRequest, patterns: tuple[Glob, ...]) -> bool:
        name = request.name if self.is_own else request.qualified
        found = any(one.matches(name) for one in patterns)
        # An input request without a call has no name.
        if self.is_own or not name or found is self.strict:
            return found
        full = request.full_name
        if full == name:
            return found
        if self.strict:
            return any(one.matches(full) for one in patterns)
        is_written_out = any(one.is_plain and one.matches(name) for one in patterns)
        return is_written_out or any(one.matches(full) for one in patterns)

    def may_hold(self, request: PolicyRequest) -> bool:
        """Whether an item of this server can match: by the prefix of qualified names."""
        if self.uris or self.is_own:
            return True
        prefixes = (request.qualified, request.full_name)
        patterns = [one for many in self.names.values() for one in many]
        return any(one.may_begin_with(prefix) for one in patterns for prefix in prefixes)

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold."""
        is_uri = request.kind in ("resource", "template")
        patterns = self.uris if is_uri else self.names.get(request.kind, ())
        if not patterns:
            return f"it is about {_kinds(self)}, not about a {request.kind}"
        name = request.name if self.is_own or is_uri else request.qualified
        full = "" if self.is_own or is_uri else request.full_name
        shown = f"{name!r}, in full {full!r}," if full and full != name else repr(name)
        return f"the {request.kind} {shown} does not match {_shown(patterns)}"


def _kinds(condition: ItemCondition) -> str:
    names = [f"{kind}s" for kind in condition.names]
    return " and ".join([*names, *(["resources"] if condition.uris else [])])


class InputCondition(NamedTuple):
    """`requests`: what a server asks."""

    methods: frozenset[str]
    on_arguments: bool = False
    on_item: bool = False

    def readings(self, request: PolicyRequest) -> int:
        """All or none."""
        return EVERY_READING if request.method in self.methods else 0

    def may_hold(self, request: PolicyRequest) -> bool:
        """Never: an item is not an input request."""
        return False

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold."""
        return f"it is about {', '.join(sorted(self.methods))}, not about {request.method}"


class AnnotationCondition(NamedTuple):
    """Annotations of a tool of a trusted server; what a tool does not say has the default of the
    specification."""

    hints: Mapping[str, bool]
    on_arguments: bool = False
    on_item: bool = True

    def readings(self, request: PolicyRequest) -> int:
        """All or none."""
        return 0 if self.problem(request) else EVERY_READING

    def may_hold(self, request: PolicyRequest) -> bool:
        """Only a trusted server has annotations that count."""
        return request.trusted

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold; empty if it does."""
        if not request.trusted:  # R0294
            return f"server {request.server!r} is not trusted, so its annotations do not count"
        if not isinstance(request.definition, t.Tool):
            return "there is no definition of a tool"
        annotations = request.definition.annotations
        for hint, expected in self.hints.items():
            said = _hint(annotations, hint)
            if said is not expected:
                return f"{hint} is {str(said).lower()}"
        return ""


def _hint(annotations: t.ToolAnnotations | None, hint: str) -> bool:
    said: object = None
    if annotations is not None:
        field = "".join(f"_{one.lower()}" if one.isupper() else one for one in hint)
        said = getattr(annotations, field, None)
    return said if isinstance(said, bool) else HINTS[hint]


# ---------------------------------------------------------------- arguments


class ValueComparison:
    """What a value must be: one of `equal` (patterns, numbers, booleans), within the bounds, and
    none of `excluded`. `present` alone is about whether there is a value."""

    __slots__ = ("_bounds", "_equal", "_excluded", "_only_pattern", "present")

    def __init__(
        self,
        equal: tuple["TextPattern | bool | int | float", ...] = (),
        bounds: tuple[float | None, float | None, float | None, float | None] = NO_BOUNDS,
        excluded: tuple["TextPattern | bool | int | float", ...] = (),
        present: bool | None = None,
    ) -> None:
        self._equal = equal
        # Those that there are, each with its comparison.
        pairs = zip((ge, le, gt, lt), bounds, strict=True)
        self._bounds = [(holds, bound) for holds, bound in pairs if bound is not None]
        self._excluded = excluded
        self.present: bool | None = present
        # As most are: one pattern for a string.
        only = equal[0] if len(equal) == 1 and not excluded and not self._bounds else None
        self._only_pattern = only if isinstance(only, TextPattern) else None

    def readings(self, value: Any, *, strict: bool) -> int:
        """The readings in which a value meets it; with `strict` a string counts as the number that
        it is, since a server may read it so."""
        if self._only_pattern is not None:
            return self._only_pattern.readings(value) if isinstance(value, str) else 0
        found = EVERY_READING
        if self._equal:
            found = _equal(self._equal, value, strict=strict)
        if self._excluded:
            found &= ~_equal(self._excluded, value, strict=not strict)
        if self._bounds:
            number = _number(value, strict=strict)
            for holds, bound in self._bounds:
                if number is None or not holds(number, bound):
                    return 0
        return found


def _equal(expected: tuple[Any, ...], value: Any, *, strict: bool) -> int:
    found = 0
    for one in expected:
        if isinstance(one, TextPattern):
            found |= one.readings(value) if isinstance(value, str) else 0
        elif isinstance(one, bool) or isinstance(value, bool):
            same = one is value
            if strict and isinstance(one, bool) and isinstance(value, str):
                same = value.strip().lower() == str(one).lower()
            found |= EVERY_READING * same
        else:
            number = _number(value, strict=strict)
            found |= EVERY_READING * (number is not None and number == one)
    return found


def _number(value: Any, *, strict: bool) -> float | None:
    if isinstance(value, _NUMBERS) and not isinstance(value, bool):
        return value
    if not strict or not isinstance(value, str) or len(value) > MAX_NUMBER_CHARACTERS:
        return None
    try:
        return float(value)
    except ValueError:
        return None


class ArgumentCondition(Struct, frozen=True):
    """A condition on the values at a path of the arguments. With `strict`, as in `deny` and `ask`,
    one value is enough, and values inside of arrays and objects count; otherwise all must match."""

    path: str
    steps: tuple[str, ...]
    comparison: ValueComparison
    strict: bool
    # Whether the path is the name of one member.
    is_plain: bool
    on_arguments: bool = True
    on_item: bool = True

    @classmethod
    def of(cls, path: str, comparison: ValueComparison, *, strict: bool) -> "ArgumentCondition":
        """The condition on a path. Raises `InvalidArgument`."""
        steps = argument_steps(path)
        is_plain = len(steps) == 1 and steps[0] != "*" and comparison.present is None
        return cls(path, steps, comparison, strict, is_plain)

    def readings(self, request: PolicyRequest) -> int:
        """The readings in which the values meet it."""
        return self.readings_of(request.decoded_arguments)

    def readings_of(self, arguments: dict[str, Any]) -> int:
        """The same for these arguments."""
        if self.is_plain:  # as most are: one member, with a string or a number
            value = arguments.get(self.steps[0])
            if isinstance(value, _SCALARS):
                return self.comparison.readings(value, strict=self.strict)
        values = list(_values(arguments, self.steps))
        if self.comparison.present is not None:
            return EVERY_READING if bool(values) is self.comparison.present else 0
        if self.strict:
            found = 0
            for number, value in enumerate(_leaves(values)):
                if number >= MAX_VALUES:
                    return EVERY_READING
                found |= self.comparison.readings(value, strict=True)
            return found
        if not values or len(values) > MAX_VALUES:
            return 0
        found = EVERY_READING
        for value in values:
            found &= self.comparison.readings(value, strict=False)
        return found

    def may_hold(self, request: PolicyRequest) -> bool:
        """Always: the arguments are not known."""
        return True

    def problem(self, request: PolicyRequest) -> str:
        """Why it does not hold."""
        if not any(True for _ in _values(request.decoded_arguments, self.steps)):
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


def _values(value: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        if step in members:
            yield from _values(members[step], rest)
        elif step == "*":
            for one in members.values():
                yield from _values(one, rest)
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        if step == "*":
            for one in items:
                yield from _values(one, rest)
        elif step.isdecimal() and len(step) < 10 and int(step) < len(items):
            yield from _values(items[int(step)], rest)


def _leaves(values: Iterable[Any]) -> Iterator[Any]:
    """Values, and those inside of arrays and objects; the depth of messages is limited."""
    for value in values:
        if isinstance(value, dict):
            yield from _leaves(cast("dict[str, Any]", value).values())
        elif isinstance(value, list):
            yield from _leaves(cast("list[Any]", value))
        else:
            yield value


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
    # What is excluded decides the other way round, so its `*` must not be narrower.
    excluded = _expected(table["not"], path, strict=not strict) if "not" in table else ()
    present = table.get("present")
    if present is not None and not isinstance(present, bool):
        raise InvalidArgument(f"{path}.present: expected true or false", argument="arguments")
    if present is not None and len(table) > 1:
        raise InvalidArgument(f"{path}: 'present' stands alone", argument="arguments")
    return ValueComparison((), (low, high, above, below), excluded, present)


def _several(given: Any) -> list[Any]:
    return list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]


def _bound(table: Mapping[str, Any], name: str, path: str) -> float | None:
    given = table.get(name)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or given != given:
        raise InvalidArgument(f"{path}.{name}: expected a number", argument="arguments")
    return given


def _expected(
    given: Any, path: str, *, strict: bool
) -> tuple["TextPattern | bool | int | float", ...]:
    many = _several(given)
    if not many or len(many) > MAX_PATTERNS:
        message = f"{path}: expected 1 to {MAX_PATTERNS} values"
        raise InvalidArgument(message, argument="arguments")
    found: list[TextPattern | bool | int | float] = []
    for one in many:
        if isinstance(one, str):
            with _about("arguments", path):
                found.append(TextPattern(one, crosses=strict))
        elif isinstance(one, bool | int | float):
            found.append(one)
        else:
            message = f"{path}: expected strings, numbers or booleans"
            raise InvalidArgument(message, argument="arguments")
    return tuple(found)


# ---------------------------------------------------------------- as they are written


def claim_condition(name: str, given: Any) -> ClaimCondition:
    many = _several(given)
    if not many or not all(isinstance(one, str | bool | int | float) for one in many):
        message = f"claims.{name}: expected strings, numbers or booleans"
        raise InvalidArgument(message, argument="claims")
    with _about("claims", f"claims.{name}"):
        expected = tuple(Glob(one) if isinstance(one, str) else one for one in many)
    return ClaimCondition(name, expected)


def input_condition(names: tuple[str, ...]) -> InputCondition:
    for one in names:
        if one not in INPUT_METHODS:
            known = ", ".join(map(repr, INPUT_METHODS))
            raise InvalidArgument(f"requests: {one!r}; known are {known}", argument="requests")
    return InputCondition(frozenset(INPUT_METHODS[one] for one in names))


def annotation_condition(hints: Mapping[str, bool]) -> AnnotationCondition:
    for name, value in hints.items():
        if name not in HINTS:
            known = ", ".join(HINTS)
            message = f"annotations: unknown hint {name!r}; known are {known}"
            raise InvalidArgument(message, argument="annotations")
        if not isinstance(cast("object", value), bool):
            message = f"annotations.{name}: expected true or false"
            raise InvalidArgument(message, argument="annotations")
    return AnnotationCondition(dict(hints))
