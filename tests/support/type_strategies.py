"""Hypothesis strategies for instances of the protocol types.

Rules: what is drawn is what a careful application could build; the shape does the rest. Fractions
and nulls inside any-JSON values are left out here: `tests/support/exceptions.py` says why, and has tests
of its own.
"""

from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw, inspect
from msgspec.inspect import type_info

from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=8)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)
VALUES = st.recursive(
    WORDS | INTEGERS | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=2)
META = st.dictionaries(st.builds("com.example/{}".format, NAMES), VALUES, max_size=2)

SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            NAMES,
            st.fixed_dictionaries({"type": st.sampled_from(["string", "integer"])}) | st.booleans(),
            max_size=2,
        ),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.booleans(),
    },
)
ANY_SCHEMAS = SCHEMAS | st.sampled_from([{"type": "array"}, {"type": "integer"}, {"enum": ["a"]}])

ANSWERS = st.sampled_from(
    [
        Raw(b'{"action":"accept","content":{"name":"x"}}'),
        Raw(b'{"roots":[{"uri":"file:///a"}]}'),
        Raw(b'{"role":"assistant","model":"m","content":{"type":"text","text":"a"}}'),
    ]
)

# Fields whose type says less than the protocol does.
BY_FIELD: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("Tool", "input_schema"): SCHEMAS,
    ("Tool", "output_schema"): ANY_SCHEMAS,
    ("CallToolRequestParams", "arguments"): OBJECTS.map(
        lambda value: Raw(msgspec.json.encode(value))
    ),
    ("ElicitRequestParams", "elicitation_id"): NAMES,
    ("Root", "uri"): NAMES.map("file:///{}".format),
    ("CacheableResult", "ttl_ms"): st.integers(0, 10_000),
    ("Result", "result_type"): st.just("complete"),
    # Only who speaks the tasks extension may ask for these.
    ("SubscriptionFilter", "task_ids"): st.none(),
    # Fractions are one of the differences.
    ("ElicitResult", "content"): st.dictionaries(
        NAMES, WORDS | st.integers(-9, 9) | st.booleans() | st.lists(WORDS, max_size=2), max_size=2
    ),
    ("Completion", "values"): st.lists(WORDS, max_size=3),
    ("ExtGetTaskResult", "result"): st.just(Raw(b"{}")),
    ("ExtDetailedTask", "result"): st.just(Raw(b"{}")),
}

# Members that hold an address or base64 wherever they stand.
BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "uri": NAMES.map("file:///{}".format),
    "url": NAMES.map("https://example.com/{}".format),
    "src": NAMES.map("https://example.com/{}".format),
    "website_url": NAMES.map("https://example.com/{}".format),
    "uri_template": NAMES.map("notes://{{{}}}".format),
    "data": st.just("AA=="),
    "blob": st.just("AA=="),
}

CHOICES = st.lists(NAMES, min_size=1, max_size=3, unique=True)
TITLED = CHOICES.map(lambda names: [t.EnumOption(const=name, title=name.upper()) for name in names])
BOUNDS = st.integers(0, 99)
FRACTIONS = st.floats(-1e9, 1e9)


def half(
    kind: type[Any], required: dict[str, Any], optional: dict[str, Any]
) -> st.SearchStrategy[Any]:
    """`kind` with each optional field there half of the time, which hypothesis alone is not."""

    @st.composite
    def made(draw: st.DrawFn) -> Any:
        chosen = {name: strategy for name, strategy in optional.items() if draw(st.booleans())}
        return kind(**{name: draw(strategy) for name, strategy in (required | chosen).items()})

    return made()


def _primitive(kind: str, default: Any, **facts: Any) -> st.SearchStrategy[Any]:
    """A field of a form: what it must have, and half of what it may."""
    needed = {name: facts.pop(name) for name in ("enum", "one_of", "items") if name in facts}
    said = {"title": WORDS, "description": WORDS, "default": default}
    return half(t.PrimitiveSchema, {"type": st.just(kind)} | needed, said | facts)


PRIMITIVES = st.one_of(
    _primitive(
        "string",
        WORDS,
        format=st.sampled_from(["email", "uri", "date", "date-time"]),
        min_length=BOUNDS,
        max_length=BOUNDS,
    ),
    _primitive("integer", BOUNDS, minimum=BOUNDS, maximum=BOUNDS),
    _primitive("number", FRACTIONS, minimum=FRACTIONS, maximum=FRACTIONS),
    _primitive("boolean", st.booleans()),
    _primitive("string", NAMES, enum=CHOICES),
    _primitive("string", NAMES, enum=st.just(["a", "b"]), enum_names=st.just(["A", "B"])),
    _primitive("string", NAMES, one_of=TITLED),
    _primitive(
        "array",
        CHOICES,
        items=CHOICES.map(lambda names: t.EnumItems(type="string", enum=names)),
        min_items=BOUNDS,
        max_items=BOUNDS,
    ),
    _primitive(
        "array",
        CHOICES,
        items=TITLED.map(lambda options: t.EnumItems(any_of=options)),
        min_items=BOUNDS,
        max_items=BOUNDS,
    ),
)


def _contents() -> st.SearchStrategy[Any]:
    said = {"mime_type": WORDS, "meta": META}
    where = {"uri": NAMES.map("a:{}".format)}
    return half(t.ResourceContents, where | {"text": WORDS}, said) | half(
        t.ResourceContents, where | {"blob": st.just("AA==")}, said
    )


BY_TYPE: dict[type[t.ProtocolType], st.SearchStrategy[Any]] = {
    t.PrimitiveSchema: PRIMITIVES,
    t.ResourceContents: _contents(),
}

# Fields that another field decides about: they are not there or absent by choice.
DECIDED: dict[type[t.ProtocolType], frozenset[str]] = {
    t.PrimitiveSchema: frozenset(t.PrimitiveSchema.__struct_fields__)
    - {"title", "description", "default"},
    t.ResourceContents: frozenset({"text", "blob"}),
    t.EnumItems: frozenset({"type", "enum", "any_of"}),
    t.ElicitRequestParams: frozenset({"requested_schema", "url", "elicitation_id"}),
    t.SubscriptionFilter: frozenset({"task_ids"}),
    t.ExtGetTaskResult: frozenset({"input_requests", "result", "error"}),
    t.ExtTaskStatusNotificationParams: frozenset({"input_requests", "result", "error"}),
}


class Presence:
    """How many optional fields there could have been, and how many there were."""

    def __init__(self) -> None:
        self.there = 0
        self.possible = 0

    def note(self, there: bool) -> None:
        self.possible += 1
        self.there += there

    @property
    def share(self) -> float | None:
        return self.there / self.possible if self.possible else None


@cache
def instances(kind: type[t.ProtocolType]) -> st.SearchStrategy[Any]:
    """Protocol types of this kind, each optional field there half of the time."""
    if kind in BY_TYPE:
        return BY_TYPE[kind]
    if kind is t.ElicitRequestParams:
        return _elicitations()
    if kind is t.InputRequiredResult:
        questions = (
            instances(t.ElicitRequest)
            | instances(t.CreateMessageRequest)
            | instances(t.ListRootsRequest)
        )
        asked = st.dictionaries(NAMES, questions, max_size=2)
        said = {"result_type": st.just("input_required"), "meta": META}
        return half(
            t.InputRequiredResult, {"request_state": WORDS}, said | {"input_requests": asked}
        ) | half(t.InputRequiredResult, {"input_requests": asked}, said | {"request_state": WORDS})
    info = type_info(kind)
    assert isinstance(info, inspect.StructType)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in info.fields:
        strategy = _field(kind, field)
        (required if field.required else optional)[field.name] = strategy
    return half(kind, required, optional)


def _elicitations() -> st.SearchStrategy[Any]:
    said = {"meta": META, "task": instances(t.TaskMetadata)}
    form = {"message": WORDS, "requested_schema": instances(t.ElicitSchema)}
    url = {
        "message": WORDS,
        "mode": st.just("url"),
        "url": NAMES.map("https://example.com/{}".format),
        "elicitation_id": NAMES,
    }
    forms = half(t.ElicitRequestParams, form, said | {"mode": st.just("form")})
    return forms | half(t.ElicitRequestParams, url, said)


def _field(kind: type[t.ProtocolType], field: inspect.Field) -> st.SearchStrategy[Any]:
    for base in kind.__mro__:
        if (base.__name__, field.name) in BY_FIELD:
            return BY_FIELD[base.__name__, field.name]
    if field.name == "meta":
        return META
    if field.name in BY_NAME and _holds_text(field.type):
        return BY_NAME[field.name]
    if field.encode_name in ("experimental", "extensions"):
        return st.dictionaries(NAMES.map("com.example/{}".format), OBJECTS, max_size=1)
    return _value(field.type)


def _value(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.Metadata():
            return _value(kind.type)
        case inspect.UnionType():
            options = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
            options = [option for option in options if not _unknown(option)]
            return st.one_of([_value(option) for option in options])
        case inspect.StrType():
            return WORDS
        case inspect.IntType():
            return st.integers(
                kind.ge if kind.ge is not None else -(2**31),
                kind.le if kind.le is not None else 2**31,
            )
        case inspect.FloatType():
            return st.floats(
                kind.ge if kind.ge is not None else -1e9, kind.le if kind.le is not None else 1e9
            )
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.ListType():
            return st.lists(_value(kind.item_type), max_size=2)
        case inspect.DictType():
            if isinstance(kind.value_type, inspect.RawType):
                return st.dictionaries(NAMES, ANSWERS, max_size=2)
            return st.dictionaries(NAMES, _value(kind.value_type), max_size=2)
        case inspect.StructType():
            return instances(kind.cls)
        case inspect.AnyType():
            return VALUES
        case inspect.RawType():
            return OBJECTS.map(lambda value: Raw(msgspec.json.encode(value)))
        case inspect.NoneType():
            return st.none()
        case _:
            raise AssertionError(f"no strategy for {kind}")


def _holds_text(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _holds_text(kind.type)
    if isinstance(kind, inspect.UnionType):
        return any(_holds_text(option) for option in kind.types)
    return isinstance(kind, inspect.StrType)


def _unknown(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StructType) and kind.cls is t.UnknownContent


def count(made: Any, seen: Presence, revision: Revision) -> None:
    """Take note of which optional fields are there, of those that the revision knows."""
    if isinstance(made, t.ProtocolType):
        decided, marks = DECIDED.get(type(made), frozenset()), t.field_ranges(type(made))
        for field in msgspec.structs.fields(made):
            value = getattr(made, field.name)
            known = revision.knows(*marks.get(field.name, t.RevisionRange()))
            if known and not field.required and field.name not in decided:
                seen.note(value is not field.default)
            count(value, seen, revision)
    elif isinstance(made, list):
        for item in made:
            count(item, seen, revision)
    elif isinstance(made, dict):
        for item in made.values():
            count(item, seen, revision)
