"""The conditions of a rule on the caller, the server, the item and its annotations. Conditions on
arguments are in `arguments.py`.

Rules: pure. A condition says in which readings of a string it holds (`patterns`). Annotations count
only if their server is trusted (R0294).
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, cast

from colonnade.errors import InvalidArgument, InvalidArgumentType
from colonnade.host.policy.request import ItemKind, PolicyRequest
from colonnade.host.policy.rules.patterns import EVERY_READING, Glob, TextPattern
from colonnade.protocol import types as t

# Patterns of one condition.
MAX_PATTERNS = 200

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
    with about(what):
        return tuple(Glob(one) for one in as_strings(value, what))


def text_patterns(value: Strings, what: str, *, crosses: bool) -> tuple[TextPattern, ...]:
    """Patterns of values. Raises `InvalidArgument`, with the name of the parameter."""
    with about(what):
        return tuple(TextPattern(one, crosses=crosses) for one in as_strings(value, what))


@contextmanager
def about(what: str, path: str = "") -> Generator[None]:
    """Add the name of the parameter, or a path in it, to the error of a pattern."""
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


# ---------------------------------------------------------------- as they are written


def several(given: Any) -> list[Any]:
    """A list of the given value or values."""
    return list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]


def claim_condition(name: str, given: Any) -> ClaimCondition:
    many = several(given)
    if not many or not all(isinstance(one, str | bool | int | float) for one in many):
        message = f"claims.{name}: expected strings, numbers or booleans"
        raise InvalidArgument(message, argument="claims")
    with about("claims", f"claims.{name}"):
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
