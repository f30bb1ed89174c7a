"""Nouns at random: hypothesis strategies from our own types.

Rules: what is drawn is what a careful application could build; the shape does the rest. Fractions
and nulls inside any-JSON values are left out here: `tests/exceptions.py` says why, and has tests
of its own.
"""

from collections import Counter
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw, inspect
from msgspec.inspect import type_info

from portico.protocol import types as t

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
    ("CallToolRequestParams", "arguments"): OBJECTS.map(lambda value: Raw(msgspec.json.encode(value))),
    ("ElicitRequestParams", "elicitation_id"): NAMES,
    ("Root", "uri"): NAMES.map("file:///{}".format),
    ("CacheableResult", "ttl_ms"): st.integers(0, 10_000),
    ("Result", "result_type"): st.just("complete"),
    # Only who speaks the tasks extension may ask for these.
    ("SubscriptionFilter", "task_ids"): st.none(),
    ("Completion", "values"): st.lists(WORDS, max_size=3),
    ("CreateMessageRequestParams", "temperature"): st.integers(0, 2),
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

PRIMITIVES = st.sampled_from(
    [
        t.PrimitiveSchema(type="string", min_length=1, max_length=9, format="email", title="T"),
        t.PrimitiveSchema(type="string", default="a", description="d"),
        t.PrimitiveSchema(type="integer", minimum=0, maximum=9, default=3),
        t.PrimitiveSchema(type="number", minimum=0, title="N"),
        t.PrimitiveSchema(type="boolean", default=True),
        t.PrimitiveSchema(type="string", enum=["a", "b"], default="a"),
        t.PrimitiveSchema(type="string", enum=["a", "b"], enum_names=["A", "B"]),
        t.PrimitiveSchema(type="string", one_of=[t.EnumOption(const="a", title="A")], default="a"),
        t.PrimitiveSchema(
            type="array",
            items=t.EnumItems(type="string", enum=["a", "b"]),
            min_items=1,
            max_items=2,
            default=["a"],
        ),
        t.PrimitiveSchema(
            type="array", items=t.EnumItems(any_of=[t.EnumOption(const="a", title="A")])
        ),
    ]
)

BY_NOUN: dict[type[t.Noun], st.SearchStrategy[Any]] = {
    t.PrimitiveSchema: PRIMITIVES,
    t.ResourceContents: st.builds(
        t.ResourceContents, uri=NAMES.map("a:{}".format), text=WORDS, mime_type=st.none() | WORDS
    )
    | st.builds(t.ResourceContents, uri=NAMES.map("a:{}".format), blob=st.just("AA==")),
}


class Presence(Counter[tuple[str, bool]]):
    """How often an optional field was drawn, and how often it could have been."""

    def share(self, noun: str) -> float:
        there, absent = self[noun, True], self[noun, False]
        return there / (there + absent) if there + absent else 1.0


@cache
def noun(kind: type[t.Noun]) -> st.SearchStrategy[Any]:
    """Nouns of this kind, each optional field there half of the time."""
    if kind in BY_NOUN:
        return BY_NOUN[kind]
    if kind is t.ElicitRequestParams:
        return _elicitations()
    if kind is t.InputRequiredResult:
        questions = noun(t.ElicitRequest) | noun(t.CreateMessageRequest) | noun(t.ListRootsRequest)
        asked = st.dictionaries(NAMES, questions, max_size=2)
        return st.builds(
            t.InputRequiredResult,
            result_type=st.just("input_required"),
            input_requests=st.none() | asked,
            request_state=WORDS,
        )
    info = type_info(kind)
    assert isinstance(info, inspect.StructType)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in info.fields:
        strategy = _field(kind, field)
        (required if field.required else optional)[field.name] = strategy
    return st.deferred(
        lambda: st.fixed_dictionaries(required, optional=optional).map(lambda made: kind(**made))
    )


def _elicitations() -> st.SearchStrategy[Any]:
    forms = noun(t.ElicitSchema)
    form = st.builds(
        t.ElicitRequestParams, message=WORDS, requested_schema=forms, mode=st.none() | st.just("form")
    )
    url = st.builds(
        t.ElicitRequestParams,
        message=WORDS,
        mode=st.just("url"),
        url=NAMES.map("https://example.com/{}".format),
        elicitation_id=NAMES,
    )
    return form | url


def _field(kind: type[t.Noun], field: inspect.Field) -> st.SearchStrategy[Any]:
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


def _value(kind: inspect.Type) -> st.SearchStrategy[Any]:  # noqa: C901
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
                kind.ge if kind.ge is not None else -(2**31), kind.le if kind.le is not None else 2**31
            )
        case inspect.FloatType():
            return st.integers(
                int(kind.ge) if kind.ge is not None else 0, int(kind.le) if kind.le is not None else 99
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
            return noun(kind.cls)
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


def count(made: Any, seen: Presence) -> None:
    """Take note of which optional fields of a noun, and of those inside it, are there."""
    if isinstance(made, t.Noun):
        for field in msgspec.structs.fields(made):
            value = getattr(made, field.name)
            if not field.required:
                seen[type(made).__name__, value is not field.default] += 1
            count(value, seen)
    elif isinstance(made, list):
        for item in made:
            count(item, seen)
    elif isinstance(made, dict):
        for item in made.values():
            count(item, seen)
