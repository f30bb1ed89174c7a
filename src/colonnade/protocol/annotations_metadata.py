"""What the items in `Annotated[…]` say: bounds, descriptions, and what only pydantic can do.

Rules: every item is accounted for; one that nobody understands is refused, not ignored. The
metadata of other libraries is recognised by its class: nothing is imported to read it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias, cast

from msgspec import Meta

from colonnade.errors import LocalProtocolError

# The bounds that annotated_types and msgspec both know, by the former's class names.
_BOUNDS = {
    "Gt": "gt",
    "Ge": "ge",
    "Lt": "lt",
    "Le": "le",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}
BOUNDS = frozenset({*_BOUNDS.values(), "pattern", "tz"})
_META = (*_BOUNDS.values(), *("pattern", "tz", "title", "description", "examples"))
_META_EXTRA = ("extra_json_schema", "extra")
# What a pydantic Field may say and msgspec can say as well.
_FIELD_NOTES = ("title", "description", "examples")
_FIELD_READ = frozenset(
    {*_FIELD_NOTES, "annotation", "metadata", "deprecated", "json_schema_extra"}
)


class Unfit(Exception):
    """msgspec cannot read this as it is meant; the words say what it is."""


# The items of one `Annotated`: bounds and notes that msgspec knows, and the rest.
Facts: TypeAlias = tuple[dict[str, Any], dict[str, Any], list[Any]]


def gather(items: Iterable[Any], where: str) -> Facts:
    """Account for each item. Raises `LocalProtocolError` for one that nobody understands."""
    bounds: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    foreign: list[Any] = []
    for item in items:
        for name, value in _say(item, where):
            kind = bounds if name in BOUNDS else notes
            if name == "foreign" or kind.get(name, value) != value:
                foreign.append(item)
            else:
                kind[name] = value
    return bounds, notes, foreign


def _say(item: Any, where: str) -> Iterator[tuple[str, Any]]:
    """What one item says, as arguments of `Meta`; `foreign` where msgspec cannot say it."""
    if item is None:  # pydantic's conint() and its kin leave some
        return
    whose, name = family(item), type(item).__name__
    if isinstance(item, Meta):
        for attribute in (*_META, *_META_EXTRA):
            if (value := getattr(item, attribute)) is not None:
                yield attribute, value
    elif isinstance(item, str):
        yield "description", item
    elif whose == "pydantic":
        yield from _say_field(item, where)
    elif hasattr(item, "__is_annotated_types_grouped_metadata__"):
        for inner in item:
            yield from _say(inner, where)
    elif whose == "annotated_types" and name in _BOUNDS:
        yield _BOUNDS[name], getattr(item, _BOUNDS[name])
    elif whose == "annotated_types" and name == "Timezone" and item.tz in (None, ...):
        yield "tz", item.tz is ...
    elif whose == "annotated_types" and name in ("Predicate", "Not"):
        yield "foreign", item
    elif isinstance(documentation := getattr(item, "documentation", None), str):
        yield "description", documentation
    else:
        refuse(
            where,
            f"{name!r} in Annotated means nothing here; leave it out, or say it with a string, "
            "msgspec.Meta, annotated_types or pydantic.Field",
        )


def _say_field(item: Any, where: str) -> Iterator[tuple[str, Any]]:
    """A pydantic Field that only bounds and describes is as good as `Meta`; more is foreign."""
    field_info = next((one for one in type(item).__mro__ if one.__name__ == "FieldInfo"), None)
    if field_info is None:
        yield "foreign", item
        return
    blank = field_info()
    said = [slot for slot in field_slots(item) if getattr(item, slot) != getattr(blank, slot)]
    extra: Any = item.json_schema_extra
    if not _FIELD_READ.issuperset(said) or callable(extra):
        yield "foreign", item
        return
    for inner in item.metadata:
        yield from _say(inner, where)
    for name in _FIELD_NOTES:
        if (value := getattr(item, name)) is not None:
            yield name, value
    if item.deprecated:
        extra = {"deprecated": True, **cast(dict[str, Any], extra or {})}
    if extra:
        yield "extra_json_schema", extra


def field_slots(field: Any) -> list[str]:
    """The public attributes of a pydantic Field."""
    owner: Any = next(one for one in type(field).__mro__ if one.__name__ == "FieldInfo")
    return [slot for slot in cast(Sequence[str], owner.__slots__) if not slot.startswith("_")]


def family(item: Any) -> str:
    """Whose metadata this is, without importing anyone."""
    kinds = item.__mro__ if isinstance(item, type) else type(item).__mro__
    roots = {kind.__module__.partition(".")[0] for kind in kinds}
    hooks = ("__get_pydantic_core_schema__", "__get_pydantic_json_schema__")
    if roots & {"pydantic", "pydantic_core"} or any(hasattr(item, hook) for hook in hooks):
        return "pydantic"
    return "annotated_types" if "annotated_types" in roots else ""


def refuse(where: str, words: str) -> NoReturn:
    """The author's annotation cannot be used: say where, why, and what to do."""
    raise LocalProtocolError(f"{where}: {words}")
