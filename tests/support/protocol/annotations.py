"""A table of annotations: each with its schema, values that it reads, and values that it refuses.

`good` maps JSON to what arrives in the function; `bad` is JSON that is refused when the function is
called; `refused` is part of the sentence with which the annotation is refused when it is
registered. `plain` rows need no pydantic. `differs` names each value about which pydantic's
`TypeAdapter` thinks otherwise, and says why we do not follow; `lenient` the values that our schema
and pydantic's judge differently.

Rules: a row is data. The tests that read it are in test_annotations.py.
"""

# The table names types in every spelling that people use, old ones too.
# ruff: noqa: DTZ001, UP006, UP035, UP045
# pyright: reportDeprecated=false

import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
    Set,
)
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Interface
from pathlib import Path
from re import Pattern
from typing import (
    Annotated,
    Any,
    Final,
    List,
    Literal,
    LiteralString,
    Optional,
)
from uuid import UUID

from annotated_types import (
    Ge,
    Gt,
    Interval,
    Le,
    Len,
    Lt,
    MaxLen,
    MinLen,
    MultipleOf,
    Predicate,
    Timezone,
    Unit,
)
from msgspec import Meta
from pydantic import (
    UUID4,
    AfterValidator,
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    BeforeValidator,
    Field,
    Json,
    JsonValue,
    PositiveInt,
    SecretStr,
    StrictInt,
    StringConstraints,
    conint,
)
from typing_extensions import Doc

from protocol.annotation_types import (
    Access,
    Account,
    Aliased,
    Bounded,
    Box,
    Cat,
    Checked,
    Circle,
    Closed,
    Color,
    Computed,
    Converted,
    Described,
    Disc,
    Dog,
    Event,
    Fielded,
    Frozen,
    Initialised,
    Labelled,
    Lenient,
    Level,
    LinkedWithMeta,
    Located,
    MetaBounded,
    MetadataBounded,
    Mixed,
    Movie,
    Nested,
    Node,
    Numbers,
    Opaque,
    Packed,
    Pair,
    Percent,
    Pixel,
    Plain,
    Point,
    Positive,
    Priced,
    Ratio,
    Reading,
    Rights,
    Segment,
    Size,
    Square,
    Station,
    Strange,
    StrictUser,
    T,
    TBound,
    Team,
    TEither,
    Tree,
    User,
    UserId,
    Worded,
    double,
    split,
)


@dataclass(frozen=True)
class Row:
    name: str
    annotation: Any
    schema: dict[str, Any] | None = None
    good: dict[str, Any] = field(default_factory=dict[str, Any])
    bad: list[str] = field(default_factory=list[str])
    refused: str = ""
    plain: bool = True
    differs: dict[str, str] = field(default_factory=dict[str, str])
    lenient: dict[str, str] = field(default_factory=dict[str, str])


# Why a value is judged otherwise than pydantic's TypeAdapter judges it.
JSON_IN_TEXT = "models send objects and lists as text; the type has no string, so it is meant"
NO_NUMBER = "true is not 1: a boolean for a number is a mistake that the model should hear of (D31)"
NOT_FINITE = "NaN and Infinity are not JSON, under any spelling"
YES_AND_ONE = "'yes', 'on' and 1 are words for true that no schema admits; true and 'true' are"
UNDERSCORES = "digits with underscores are Python, not what a model means by a number"
NO_TIME = "a bare number is no time: seconds, milliseconds and years would have to be guessed"
MONTHS = "months and years have no fixed length; days and weeks do"
AN_ARRAY = "the schema of a NamedTuple, pydantic's too, is an array; an object does not fit it"
NUMBER_IN_TEXT = "a number in text is a number where there is no text to choose, also for a Literal"
WHOLE_KEYS = "an integer as a name is written without a fraction"
READ_AT_ONCE = "an Iterable is checked before the function runs, and arrives as a list"
MUTABLE_SET = "an AbstractSet arrives as a set, which is equal to the frozenset"
OUR_META = "msgspec.Meta is enforced here; pydantic does not know it and reads past it"
ZONES = "annotated_types.Timezone is enforced here; pydantic reads past it"
NAMED_KEYS = "the schema says that the names must be integers; pydantic's leaves it out"
IN_THE_SCHEMA = "bounds on a union are in our schema; in pydantic's they are under words of its own"
TEXT_KEYS = "names are text in JSON, and '1' is the key 1; pydantic, or its schema, misses that"
COMBINED = "flags can be combined; pydantic reads that too, but its schema forbids it"
NOT_THERE = "pydantic has no schema for this annotation; here it works"


# One row, one line: it is read across.
# fmt: off
TABLE: list[Row] = [
    Row('none', None, {'type': 'null'}, good={'null': None}, bad=['1', '"x"']),
    Row('bool', bool, {'type': 'boolean'}, good={'true': True, 'false': False, '"true"': True, '"False"': False}, bad=['"x"', '2', 'null', '1.5', '1', '"yes"'], differs={'1': YES_AND_ONE, '"yes"': YES_AND_ONE}),
    Row('int', int, {'type': 'integer'}, good={'5': 5, '-3': -3, '5.0': 5, '1e3': 1000, '"5"': 5, '"-7"': -7, '"5.0"': 5, '" 6 "': 6, '123456789012345678901234567890': 123456789012345678901234567890}, bad=['5.5', '"x"', 'null', '[]', 'true', '"5.5"', '""', '"1_000"'], differs={'true': NO_NUMBER, '"1_000"': UNDERSCORES}),
    Row('float', float, {'type': 'number'}, good={'5': 5.0, '5.5': 5.5, '"5.5"': 5.5, '"1e3"': 1000.0, '-0.0': -0.0}, bad=['"x"', 'null', 'true', '"NaN"', '[]'], differs={'true': NO_NUMBER, '"NaN"': NOT_FINITE}),
    Row('str', str, {'type': 'string'}, good={'"x"': 'x', '""': '', '"5"': '5', '"[1]"': '[1]', '"true"': 'true', '"Zürich ☃"': 'Zürich ☃'}, bad=['5', 'null', 'true', '[]', '{}']),
    Row('any', Any, {}, good={'5': 5, '"5"': '5', 'null': None, '[1,"2"]': [1, '2'], '{"a":{"b":1}}': {'a': {'b': 1}}, '"[1]"': '[1]'}),
    Row('object', object, {}, good={'5': 5, '"5"': '5', '[1]': [1]}),
    Row('unbound TypeVar', T, {}, good={'5': 5, '"x"': 'x'}),
    Row('bounded TypeVar', TBound, {'type': 'integer'}, good={'5': 5, '"5"': 5}, bad=['"x"']),
    Row('constrained TypeVar', TEither, {'anyOf': [{'type': 'integer'}, {'type': 'string'}]}, good={'5': 5, '"x"': 'x'}, bad=['null', '[]']),
    Row('NewType', UserId, {'type': 'integer'}, good={'5': 5, '"5"': 5}, bad=['"x"']),
    Row('NewType with bounds', Percent, {'type': 'integer', 'minimum': 0, 'maximum': 100}, good={'5': 5}, bad=['101', '"x"']),
    Row('LiteralString', LiteralString, {'type': 'string'}, good={'"x"': 'x'}, bad=['5'], differs={'*': NOT_THERE}),
    Row('Final', Final[int], {'type': 'integer'}, good={'5': 5}, bad=['"x"']),
    Row('list', list, {'type': 'array', 'items': {}}, good={'[]': [], '[1,"a"]': [1, 'a'], '"[1, 2]"': [1, 2]}, bad=['{}', '5', '"x"'], differs={'"[1, 2]"': JSON_IN_TEXT}),
    Row('list of int', list[int], {'type': 'array', 'items': {'type': 'integer'}}, good={'[1,2]': [1, 2], '[1.0]': [1], '["1","2"]': [1, 2], '"[1, 2]"': [1, 2], '[]': []}, bad=['["x"]', '{}', '5', '[1.5]', '"[1.5]"'], differs={'"[1, 2]"': JSON_IN_TEXT}),
    Row('typing.List', List[str], {'type': 'array', 'items': {'type': 'string'}}, good={'["a"]': ['a']}, bad=['[1]']),
    Row('nested lists', list[list[int]], {'type': 'array', 'items': {'type': 'array', 'items': {'type': 'integer'}}}, good={'[[1],[2,3]]': [[1], [2, 3]], '"[[1]]"': [[1]], '["[1]"]': [[1]]}, bad=['[1]'], differs={'"[[1]]"': JSON_IN_TEXT, '["[1]"]': JSON_IN_TEXT}),
    Row('tuple', tuple, {'type': 'array', 'items': {}}, good={'[1,"a"]': (1, 'a')}, bad=['{}']),
    Row('tuple of two', tuple[int, str], {'type': 'array', 'prefixItems': [{'type': 'integer'}, {'type': 'string'}], 'items': {'anyOf': [{'type': 'integer'}, {'type': 'string'}]}, 'minItems': 2, 'maxItems': 2}, good={'[1,"a"]': (1, 'a'), '["1","a"]': (1, 'a')}, bad=['[1]', '[1,"a",2]', '["x","a"]']),
    Row('tuple of any length', tuple[int, ...], {'type': 'array', 'items': {'type': 'integer'}}, good={'[]': (), '[1,2]': (1, 2)}, bad=['["x"]']),
    Row('empty tuple', tuple[()], {'type': 'array', 'items': {}, 'minItems': 0, 'maxItems': 0}, good={'[]': ()}, bad=['[1]']),
    Row('set', set[int], {'type': 'array', 'items': {'type': 'integer'}, 'uniqueItems': True}, good={'[1,2]': {1, 2}, '[1,1]': {1}}, bad=['["x"]', '{}']),
    Row('bare set', set, {'type': 'array', 'items': {}, 'uniqueItems': True}, good={'[1,"a"]': {1, 'a'}}, bad=['[[1]]', '{}']),
    Row('frozenset', frozenset[str], {'type': 'array', 'items': {'type': 'string'}, 'uniqueItems': True}, good={'["a"]': frozenset({'a'})}, bad=['[1]']),
    Row('Sequence', Sequence[int], {'type': 'array', 'items': {'type': 'integer'}}, good={'[1]': [1], '"[1]"': [1]}, bad=['"ab"', '["x"]'], differs={'"[1]"': JSON_IN_TEXT}),
    Row('MutableSequence', MutableSequence[int], {'type': 'array', 'items': {'type': 'integer'}}, good={'[1]': [1]}, bad=['["x"]']),
    Row('Collection', Collection[int], {'type': 'array', 'items': {'type': 'integer'}}, good={'[1]': [1]}, bad=['["x"]'], differs={'*': NOT_THERE}),
    Row('Iterable', Iterable[int], {'type': 'array', 'items': {'type': 'integer'}}, good={'[1]': [1]}, bad=['["x"]'], differs={'[1]': READ_AT_ONCE, '["x"]': READ_AT_ONCE}),
    Row('AbstractSet', Set[int], {'type': 'array', 'items': {'type': 'integer'}, 'uniqueItems': True}, good={'[1]': {1}}, bad=['["x"]'], differs={'[1]': MUTABLE_SET}),
    Row('MutableSet', MutableSet[int], {'type': 'array', 'items': {'type': 'integer'}, 'uniqueItems': True}, good={'[1,1]': {1}}, bad=['["x"]']),
    Row('dict', dict, {'type': 'object'}, good={'{}': {}, '{"a":1}': {'a': 1}, '"{\\"a\\":1}"': {'a': 1}}, bad=['[]', '5', '"x"'], differs={'"{\\"a\\":1}"': JSON_IN_TEXT}),
    Row('dict of int', dict[str, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}}, good={'{"a":1}': {'a': 1}, '{"a":"1"}': {'a': 1}}, bad=['{"a":"x"}', '[]']),
    Row('dict by int', dict[int, str], {'type': 'object', 'additionalProperties': {'type': 'string'}, 'propertyNames': {'pattern': '^-?[0-9]+$'}}, good={'{"1":"a"}': {1: 'a'}}, bad=['{"x":"a"}', '{"1":1}', '{"1.0":"a"}'], differs={'{"1.0":"a"}': WHOLE_KEYS}, lenient={'{"x":"a"}': NAMED_KEYS, '{"1.0":"a"}': NAMED_KEYS}),
    Row('dict by float', dict[float, str], {'type': 'object', 'additionalProperties': {'type': 'string'}}, good={'{"1.5":"a"}': {1.5: 'a'}}, bad=['{"x":"a"}']),
    Row('dict by date', dict[date, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'format': 'date'}}, good={'{"2026-01-31":1}': {date(2026, 1, 31): 1}}, bad=['{"x":1}']),
    Row('dict by UUID', dict[UUID, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'format': 'uuid'}}, good={'{"123e4567-e89b-42d3-a456-426614174000":1}': {UUID('123e4567-e89b-42d3-a456-426614174000'): 1}}, bad=['{"x":1}']),
    Row('dict by Literal', dict[Literal["a", "b"], int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'enum': ['a', 'b']}}, good={'{"a":1}': {'a': 1}}, bad=['{"c":1}']),
    Row('dict by Enum', dict[Color, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'enum': ['red', 'blue']}}, good={'{"red":1}': {Color.RED: 1}}, bad=['{"c":1}']),
    Row('dict by bounded str', dict[Annotated[str, MaxLen(2)], int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'maxLength': 2}}, good={'{"ab":1}': {'ab': 1}}, bad=['{"abc":1}']),
    Row('dict by Literal of int', dict[Literal[1, 2], int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'enum': ['1', '2']}}, good={'{"1":5}': {1: 5}}, bad=['{"3":1}', '{"x":1}'], differs={'{"1":5}': TEXT_KEYS}, lenient={'{"3":1}': TEXT_KEYS, '{"x":1}': TEXT_KEYS}),
    Row('dict by IntEnum', dict[Level, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'enum': ['1', '2']}}, good={'{"1":5}': {Level.LOW: 5}}, bad=['{"3":1}'], lenient={'{"1":5}': TEXT_KEYS}),
    Row('dict by tuple', dict[tuple[int, int], int], refused="a key in JSON is a string"),
    Row('dict by dataclass', Mapping[Frozen, int], refused="a key in JSON is a string"),
    Row('dict by int or str', dict[int | str, int], {'additionalProperties': {'type': 'integer'}, 'type': 'object'}, good={'{"a":1}': {'a': 1}, '{"1":1}': {'1': 1}}, bad=['[]'], plain=False),
    Row('dict by bool', dict[bool, int], {'additionalProperties': {'type': 'integer'}, 'type': 'object'}, good={'{"true":1}': {True: 1}}, bad=['{"x":1}'], plain=False),
    Row('Mapping', Mapping[str, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}}, good={'{"a":1}': {'a': 1}}, bad=['{"a":"x"}']),
    Row('MutableMapping', MutableMapping[str, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}}, good={'{"a":1}': {'a': 1}}, bad=['{"a":"x"}']),
    Row('OrderedDict', OrderedDict[str, int], {'additionalProperties': {'type': 'integer'}, 'type': 'object'}, good={'{"a":1}': OrderedDict({'a': 1})}, bad=['{"a":"x"}'], plain=False),
    Row('defaultdict', defaultdict[str, list[int]], {'additionalProperties': {'items': {'type': 'integer'}, 'type': 'array'}, 'type': 'object'}, good={'{"a":[1]}': defaultdict(list, {'a': [1]})}, bad=['{"a":"x"}'], plain=False),
    Row('Counter', Counter[str], {'additionalProperties': {'type': 'integer'}, 'type': 'object'}, good={'{"a":1}': Counter({'a': 1})}, bad=['{"a":"x"}'], plain=False),
    Row('deque', deque[int], {'items': {'type': 'integer'}, 'type': 'array'}, good={'[1]': deque([1]), '"[1]"': deque([1])}, bad=['["x"]'], plain=False, differs={'"[1]"': JSON_IN_TEXT}),
    Row('Literal of str', Literal["b", "a"], {'type': 'string', 'enum': ['b', 'a']}, good={'"a"': 'a', '"b"': 'b'}, bad=['"c"', '1', 'null']),
    Row('Literal of int', Literal[2, 1], {'type': 'integer', 'enum': [2, 1]}, good={'1': 1, '1.0': 1, '"1"': 1}, bad=['3', '"x"', 'null', 'true'], differs={'"1"': NUMBER_IN_TEXT, 'true': NO_NUMBER}),
    Row('Literal of one', Literal["a"], {'type': 'string', 'enum': ['a']}, good={'"a"': 'a'}, bad=['"b"']),
    Row('Literal of bool', Literal[True], {'type': 'boolean', 'enum': [True]}, good={'true': True}, bad=['false', '"x"']),
    Row('mixed Literal', Literal["a", 1, None], {'enum': ['a', 1, None]}, good={'"a"': 'a', '1': 1, 'null': None}, bad=['"b"', '2', 'false']),
    Row('Literal with Enum', Literal[Color.RED], refused="never matches JSON; write the plain value, or the Enum"),
    Row('Literal with bytes', Literal[b"x"], refused="never matches JSON; write the plain value, or the Enum"),
    Row('Enum of str', Color, {'type': 'string', 'enum': ['red', 'blue']}, good={'"red"': Color.RED}, bad=['"RED"', '1', 'null']),
    Row('StrEnum', Size, {'type': 'string', 'enum': ['small', 'large']}, good={'"small"': Size.SMALL}, bad=['"x"']),
    Row('IntEnum', Level, {'type': 'integer', 'enum': [1, 2]}, good={'1': Level.LOW, '2.0': Level.HIGH, '"1"': Level.LOW}, bad=['3', '"x"']),
    Row('Enum of both', Mixed, {'enum': [1, 'b']}, good={'1': Mixed.ONE, '"b"': Mixed.B}, bad=['2', '"x"'], plain=False),
    Row('Enum of float', Ratio, {'enum': [0.5], 'type': 'number'}, good={'0.5': Ratio.HALF}, bad=['0.7'], plain=False),
    Row('Enum of tuples', Pair, refused="give the members strings or numbers"),
    Row('Enum with _missing_', Lenient, {'type': 'string', 'enum': ['a']}, good={'"a"': Lenient.A, '"ALPHA"': Lenient.A}, bad=['"b"']),
    Row('Flag', Access, {'type': 'integer'}, good={'1': Access(1), '3': Access(3)}, bad=['4', '"x"'], lenient={'3': COMBINED, '4': COMBINED}),
    Row('IntFlag', Rights, {'type': 'integer'}, good={'1': Rights(1), '3': Rights(3), '0': Rights(0), '4': Rights(4)}, bad=['"x"', 'null'], lenient={'3': COMBINED, '0': COMBINED, '4': COMBINED}),
    Row('optional int', int | None, {'anyOf': [{'type': 'integer'}, {'type': 'null'}]}, good={'5': 5, 'null': None, '"5"': 5, '5.0': 5}, bad=['"x"', '"null"', '[]']),
    Row('optional str', str | None, {'anyOf': [{'type': 'string'}, {'type': 'null'}]}, good={'"5"': '5', 'null': None, '"null"': 'null', '"[1]"': '[1]'}, bad=['5']),
    Row('optional bool', bool | None, {'anyOf': [{'type': 'boolean'}, {'type': 'null'}]}, good={'true': True, 'null': None, '"true"': True}, bad=['"x"']),
    Row('int or str', int | str, {'anyOf': [{'type': 'integer'}, {'type': 'string'}]}, good={'5': 5, '"5"': '5', '5.0': 5}, bad=['null', '[]']),
    Row('int or float', int | float, {'anyOf': [{'type': 'integer'}, {'type': 'number'}]}, good={'5': 5, '5.5': 5.5, '5.0': 5.0, '"5"': 5, '"5.5"': 5.5}, bad=['"x"']),
    Row('bool or int', bool | int, {'anyOf': [{'type': 'boolean'}, {'type': 'integer'}]}, good={'true': True, '1': 1, '"true"': True, '"7"': 7}, bad=['"x"', 'null']),
    Row('float or str', float | str, {'anyOf': [{'type': 'number'}, {'type': 'string'}]}, good={'5': 5.0, '"5"': '5'}, bad=['null']),
    Row('list or str', list[int] | str, {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'string'}]}, good={'[1]': [1], '"[1]"': '[1]'}, bad=['5']),
    Row('list or dict', list[int] | dict[str, int], {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'object', 'additionalProperties': {'type': 'integer'}}]}, good={'[1]': [1], '{"a":1}': {'a': 1}, '"[1]"': [1], '"{\\"a\\":1}"': {'a': 1}}, bad=['"x"', '5'], differs={'"[1]"': JSON_IN_TEXT, '"{\\"a\\":1}"': JSON_IN_TEXT}),
    Row('list or set', list[int] | set[str], {'anyOf': [{'items': {'type': 'integer'}, 'type': 'array'}, {'items': {'type': 'string'}, 'type': 'array', 'uniqueItems': True}]}, good={'[1]': [1], '["a"]': {'a'}}, bad=['5'], plain=False),
    Row('two lists', list[int] | list[str], {'anyOf': [{'items': {'type': 'integer'}, 'type': 'array'}, {'items': {'type': 'string'}, 'type': 'array'}]}, good={'[1]': [1], '["a"]': ['a']}, bad=['5'], plain=False),
    Row('list of unions', list[int | None], {'type': 'array', 'items': {'anyOf': [{'type': 'integer'}, {'type': 'null'}]}}, good={'[1,null,"2"]': [1, None, 2]}, bad=['["x"]']),
    Row('date or datetime', date | datetime, {'anyOf': [{'format': 'date', 'type': 'string'}, {'format': 'date-time', 'type': 'string'}]}, good={'"2026-01-31"': date(2026, 1, 31), '"2026-01-31T09:30:00"': datetime(2026, 1, 31, 9, 30)}, bad=['"x"', '5e30'], plain=False),
    Row('str or datetime', str | datetime, {'anyOf': [{'type': 'string'}, {'format': 'date-time', 'type': 'string'}]}, good={'"2026-01-31T09:30:00"': '2026-01-31T09:30:00', '"x"': 'x'}, bad=['null'], plain=False),
    Row('Enum or str', Color | str, {'anyOf': [{'enum': ['red', 'blue'], 'type': 'string'}, {'type': 'string'}]}, good={'"red"': 'red', '"x"': 'x'}, bad=['5'], plain=False),
    Row('Literal or int', Literal["auto"] | int, {'anyOf': [{'type': 'string', 'enum': ['auto']}, {'type': 'integer'}]}, good={'"auto"': 'auto', '5': 5, '"5"': 5}, bad=['"x"', 'null']),
    Row('Literal or float', Literal[1] | float, {'anyOf': [{'const': 1, 'type': 'integer'}, {'type': 'number'}]}, good={'1': 1, '2': 2.0, '"3"': 3.0}, bad=['"x"', 'null'], plain=False),
    Row('IntEnum or float', Level | float, {'anyOf': [{'enum': [1, 2], 'type': 'integer'}, {'type': 'number'}]}, good={'3': 3.0, '"3"': 3.0}, bad=['"x"', 'null'], plain=False),
    Row('date or float', date | float, {'anyOf': [{'type': 'string', 'format': 'date'}, {'type': 'number'}]}, good={'"2026-01-31"': date(2026, 1, 31), '5': 5.0, '"5"': 5.0}, bad=['"x"']),
    Row('time or bool', time | bool, {'anyOf': [{'type': 'string', 'format': 'time'}, {'type': 'boolean'}]}, good={'"09:30:00"': time(9, 30), 'true': True, '"true"': True}, bad=['"x"']),
    Row('Any or float', Any | float, {'anyOf': [{}, {'type': 'number'}]}, good={'5': 5, '"x"': 'x'}, plain=False),
    Row('float or Any', float | Any, {'anyOf': [{'type': 'number'}, {}]}, good={'5': 5.0, '"x"': 'x'}, plain=False),
    Row('optional Any', Any | None, {'anyOf': [{}, {'type': 'null'}]}, good={'5': 5, 'null': None}),
    Row('bounds on a member', Annotated[str, MaxLen(2)] | str, {'anyOf': [{'maxLength': 2, 'type': 'string'}, {'type': 'string'}]}, good={'"a"': 'a', '"abc"': 'abc'}, bad=['5'], plain=False),
    Row('bounds on two members', Annotated[int, Ge(1)] | Annotated[str, MaxLen(2)], {'anyOf': [{'minimum': 1, 'type': 'integer'}, {'maxLength': 2, 'type': 'string'}]}, good={'1': 1, '"a"': 'a'}, bad=['0', '"abc"'], plain=False),
    Row('tuple or a bounded int', tuple[int, str] | Annotated[int, Ge(1)], {'anyOf': [{'maxItems': 2, 'minItems': 2, 'prefixItems': [{'type': 'integer'}, {'type': 'string'}], 'items': {'anyOf': [{'type': 'integer'}, {'type': 'string'}]}, 'type': 'array'}, {'minimum': 1, 'type': 'integer'}]}, good={'[1,"a"]': (1, 'a'), '1': 1}, bad=['0', '[1]'], plain=False),
    Row('dataclass or a patterned str', Point | Annotated[str, Field(pattern="^a")], {'anyOf': [{'properties': {'x': {'type': 'integer'}, 'y': {'default': 0.0, 'type': 'number'}}, 'required': ['x'], 'type': 'object'}, {'pattern': '^a', 'type': 'string'}]}, good={'{"x":1}': Point(x=1, y=0.0), '"a"': 'a'}, bad=['"b"'], plain=False),
    Row('Literal or str', Literal["auto"] | str, {'anyOf': [{'type': 'string', 'enum': ['auto']}, {'type': 'string'}]}, good={'"auto"': 'auto', '"x"': 'x'}, bad=['5']),
    Row('Path or None', Path | None, {'anyOf': [{'format': 'path', 'type': 'string'}, {'type': 'null'}]}, good={'"a/b"': Path('a/b'), 'null': None}, bad=['5']),
    Row('datetime', datetime, {'type': 'string', 'format': 'date-time'}, good={'"2026-01-31T09:30:00Z"': datetime(2026, 1, 31, 9, 30, tzinfo=UTC), '"2026-01-31T09:30:00"': datetime(2026, 1, 31, 9, 30), '"2026-01-31"': datetime(2026, 1, 31, 0, 0), '"2026-01-31T09:30"': datetime(2026, 1, 31, 9, 30), '"2026-01-31 09:30:00"': datetime(2026, 1, 31, 9, 30), '"2026-01-31T09:30:00+02:00"': datetime(2026, 1, 31, 9, 30, tzinfo=timezone(timedelta(seconds=7200))), '"2026-01-31T09:30:00.5Z"': datetime(2026, 1, 31, 9, 30, 0, 500000, tzinfo=UTC)}, bad=['"x"', '"2026-02-31"', 'null', '"31.1.2026"', 'true', '1769851800', '"1769851800"'], differs={'1769851800': NO_TIME, '"1769851800"': NO_TIME}),
    Row('date', date, {'type': 'string', 'format': 'date'}, good={'"2026-01-31"': date(2026, 1, 31), '"2026-01-31T00:00:00"': date(2026, 1, 31)}, bad=['"2026-01-31T09:30:00"', '"x"', '"2026-02-31"', 'null']),
    Row('time', time, {'type': 'string', 'format': 'time'}, good={'"09:30:00"': time(9, 30), '"09:30"': time(9, 30), '"09:30:00Z"': time(9, 30, tzinfo=UTC)}, bad=['"x"', '"25:00"', 'null', '3600'], differs={'3600': NO_TIME}),
    Row('timedelta', timedelta, {'type': 'string', 'format': 'duration'}, good={'"PT1H30M"': timedelta(seconds=5400), '"P1D"': timedelta(days=1), '"-PT1H"': timedelta(days=-1, seconds=82800), '"P1W"': timedelta(days=7), '"01:30:00"': timedelta(seconds=5400)}, bad=['"x"', 'null', '90', '"P1M"'], differs={'90': NO_TIME, '"P1M"': MONTHS}),
    Row('UUID', UUID, {'type': 'string', 'format': 'uuid'}, good={'"123e4567-e89b-42d3-a456-426614174000"': UUID('123e4567-e89b-42d3-a456-426614174000'), '"123e4567e89b42d3a456426614174000"': UUID('123e4567-e89b-42d3-a456-426614174000'), '"urn:uuid:123e4567-e89b-42d3-a456-426614174000"': UUID('123e4567-e89b-42d3-a456-426614174000')}, bad=['"x"', 'null', '5']),
    Row('Decimal', Decimal, {'anyOf': [{'type': 'number'}, {'type': 'string'}]}, good={'"1.5"': Decimal('1.5'), '1.5': Decimal('1.5'), '5': Decimal('5')}, bad=['"x"', '"NaN"', 'null']),
    Row('bytes', bytes, {'format': 'binary', 'type': 'string'}, good={'"hi"': b'hi'}, bad=['5', 'null']),
    Row('Path', Path, {'format': 'path', 'type': 'string'}, good={'"a/b"': Path('a/b')}, bad=['5', 'null']),
    Row('Pattern', Pattern, {'format': 'regex', 'type': 'string'}, good={'"a+"': re.compile('a+')}, bad=['"("', '5']),
    Row('Pattern of text', Pattern[str], {'format': 'regex', 'type': 'string'}, good={'"a+"': re.compile('a+')}, bad=['"("', '5']),
    Row('Fraction', Fraction, {'anyOf': [{'type': 'number'}, {'format': 'fraction', 'type': 'string'}]}, good={'"1/2"': Fraction(1, 2)}, bad=['"x"'], plain=False),
    Row('complex', complex, {'type': 'string'}, good={'"1+2j"': (1+2j)}, bad=['"x"'], plain=False),
    Row('IPv6Address', IPv6Address, {'format': 'ipv6', 'type': 'string'}, good={'"::1"': IPv6Address('::1')}, bad=['"x"', '"127.0.0.1"', 'null']),
    Row('IPv4Network', IPv4Network, {'format': 'ipv4network', 'type': 'string'}, good={'"192.0.2.0/24"': IPv4Network('192.0.2.0/24')}, bad=['"192.0.2.1/24"', 'null']),
    Row('IPv6Interface', IPv6Interface, {'format': 'ipv6interface', 'type': 'string'}, good={'"2001:db8::1/32"': IPv6Interface('2001:db8::1/32')}, bad=['"x"', 'null']),
    Row('list of bytes', list[bytes], {'type': 'array', 'items': {'format': 'binary', 'type': 'string'}}, good={'["hi","ä"]': [b'hi', 'ä'.encode()], '[]': []}, bad=['[5]', '"hi"']),
    Row('described bytes', Annotated[bytes, "What to send."], {'format': 'binary', 'type': 'string', 'description': 'What to send.'}, good={'"hi"': b'hi'}, bad=['5']),
    Row('dict of decimals', dict[str, Decimal | None], {'type': 'object', 'additionalProperties': {'anyOf': [{'anyOf': [{'type': 'number'}, {'type': 'string'}]}, {'type': 'null'}]}}, good={'{"a":"1.5","b":null}': {'a': Decimal('1.5'), 'b': None}}, bad=['{"a":"NaN"}', '{"a":[]}']),
    Row('list of decimals', list[Decimal], {'type': 'array', 'items': {'anyOf': [{'type': 'number'}, {'type': 'string'}]}}, good={'["1.5",2]': [Decimal('1.5'), Decimal('2')]}, bad=['["-Infinity"]', '[true]']),
    Row('dict by Path', dict[Path, int], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'propertyNames': {'format': 'path'}}, good={'{"a":1}': {Path('a'): 1}}, bad=['{"a":"x"}'], plain=False),
    Row('IPv4Address', IPv4Address, {'format': 'ipv4', 'type': 'string'}, good={'"127.0.0.1"': IPv4Address('127.0.0.1')}, bad=['"x"']),
    Row('bounded int', Annotated[int, Ge(1), Le(9)], {'type': 'integer', 'minimum': 1, 'maximum': 9}, good={'1': 1, '9': 9, '"5"': 5}, bad=['0', '10', '"10"', '"x"']),
    Row('exclusive bounds', Annotated[int, Gt(0), Lt(9)], {'type': 'integer', 'exclusiveMinimum': 0, 'exclusiveMaximum': 9}, good={'1': 1, '8': 8}, bad=['0', '9']),
    Row('interval', Annotated[float, Interval(gt=0, le=1)], {'type': 'number', 'exclusiveMinimum': 0, 'maximum': 1}, good={'0.5': 0.5, '1': 1.0}, bad=['0', '1.1']),
    Row('multiple', Annotated[int, MultipleOf(3)], {'type': 'integer', 'multipleOf': 3}, good={'3': 3}, bad=['4']),
    Row('bounded optional', Annotated[int | None, Ge(1)], {'anyOf': [{'type': 'integer', 'minimum': 1}, {'type': 'null'}]}, good={'1': 1, 'null': None}, bad=['0']),
    Row('bounded inside optional', Optional[Annotated[int, Ge(1)]], {'anyOf': [{'type': 'integer', 'minimum': 1}, {'type': 'null'}]}, good={'1': 1, 'null': None}, bad=['0']),
    Row('bounded union', Annotated[int | float, Ge(1)], {'anyOf': [{'type': 'integer'}, {'type': 'number'}], 'minimum': 1}, good={'1': 1, '1.5': 1.5}, bad=['0'], plain=False, lenient={'0': IN_THE_SCHEMA}),
    Row('length of a union', Annotated[str | list[str], Len(1, 2)], {'anyOf': [{'type': 'string'}, {'items': {'type': 'string'}, 'type': 'array'}], 'maxLength': 2, 'minLength': 1}, good={'"a"': 'a', '["a"]': ['a']}, bad=['""', '[]', '"abc"'], plain=False),
    Row('two bounds of a kind', Annotated[Annotated[int, Gt(0)], Ge(5)], {'exclusiveMinimum': 0, 'minimum': 5, 'type': 'integer'}, good={'5': 5}, bad=['4'], plain=False),
    Row('length of str', Annotated[str, Len(1, 3)], {'type': 'string', 'minLength': 1, 'maxLength': 3}, good={'"a"': 'a', '"äöü"': 'äöü'}, bad=['""', '"abcd"']),
    Row('length of list', Annotated[list[int], MinLen(1)], {'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1}, good={'[1]': [1]}, bad=['[]']),
    Row('length of dict', Annotated[dict[str, int], MaxLen(1)], {'type': 'object', 'additionalProperties': {'type': 'integer'}, 'maxProperties': 1}, good={'{"a":1}': {'a': 1}}, bad=['{"a":1,"b":2}']),
    Row('bounds on items', list[Annotated[int, Ge(0)]], {'type': 'array', 'items': {'type': 'integer', 'minimum': 0}}, good={'[0,1]': [0, 1]}, bad=['[-1]']),
    Row('bounds on values', dict[str, Annotated[int, Ge(0)]], {'type': 'object', 'additionalProperties': {'type': 'integer', 'minimum': 0}}, good={'{"a":0}': {'a': 0}}, bad=['{"a":-1}']),
    Row('bounded date', Annotated[date, Ge(date(2026, 1, 1))], {'format': 'date', 'type': 'string'}, good={'"2026-01-31"': date(2026, 1, 31)}, bad=['"2025-01-31"'], plain=False),
    Row('predicate', Annotated[str, Predicate(str.islower)], {'type': 'string'}, good={'"a"': 'a'}, bad=['"A"'], plain=False),
    Row('timezone aware', Annotated[datetime, Timezone(...)], {'type': 'string', 'format': 'date-time'}, good={'"2026-01-31T09:30:00Z"': datetime(2026, 1, 31, 9, 30, tzinfo=UTC)}, bad=['"2026-01-31T09:30:00"'], differs={'"2026-01-31T09:30:00"': ZONES}),
    Row('timezone naive', Annotated[datetime, Timezone(None)], {'type': 'string', 'format': 'date-time'}, good={'"2026-01-31T09:30:00"': datetime(2026, 1, 31, 9, 30)}, bad=['"2026-01-31T09:30:00Z"'], differs={'"2026-01-31T09:30:00Z"': ZONES}),
    Row('named timezone', Annotated[datetime, Timezone("UTC")], refused="is not supported; leave it out"),
    Row('unit', Annotated[float, Unit("m")], refused="is not supported; leave it out"),
    Row('described', Annotated[int, "How many."], {'type': 'integer', 'description': 'How many.'}, good={'5': 5}, bad=['"x"']),
    Row('documented', Annotated[int, Doc("How many.")], {'type': 'integer', 'description': 'How many.'}, good={'5': 5}, bad=['"x"']),
    Row('Meta bounds', Annotated[int, Meta(ge=1, description="How many.")], {'type': 'integer', 'minimum': 1, 'description': 'How many.'}, good={'1': 1}, bad=['0'], differs={'0': OUR_META}, lenient={'0': OUR_META}),
    Row('Meta pattern', Annotated[str, Meta(pattern="^a+$")], {'type': 'string', 'pattern': '^a+$'}, good={'"aa"': 'aa'}, bad=['"b"'], differs={'"b"': OUR_META}, lenient={'"b"': OUR_META}),
    Row('Meta on a Path', Annotated[Path, Meta(description="Where.", extra_json_schema={"examples": ["a"]})], {'description': 'Where.', 'examples': ['a'], 'format': 'path', 'type': 'string'}, good={'"a"': Path('a')}, bad=['5']),
    Row('Meta on a type of pydantic', Annotated[AnyUrl, Meta(description="Where.", extra_json_schema={"examples": ["a"]})], {'description': 'Where.', 'examples': ['a'], 'format': 'uri', 'minLength': 1, 'type': 'string'}, good={'"https://example.com/"': AnyUrl('https://example.com/')}, bad=['"x"'], plain=False),
    Row('Meta bounds for pydantic', Annotated[Decimal, Meta(ge=1)], {'anyOf': [{'minimum': 1.0, 'type': 'number'}, {'type': 'string'}]}, good={'1': Decimal('1')}, bad=['0'], plain=False, differs={'0': OUR_META}, lenient={'0': OUR_META}),
    Row('unknown metadata', Annotated[int, object()], refused="is not supported; leave it out"),
    Row('Callable', Callable[[int], str], refused="take its name"),
    Row('a class itself', type[int], refused="take its name"),
    Row('Generator', Generator[int, None, None], refused="validated too late; use list"),
    Row('a class of no kind', Opaque, refused="(pydantic: Unable"),
    Row('dataclass', Point, {'type': 'object', 'properties': {'x': {'type': 'integer'}, 'y': {'type': 'number', 'default': 0.0}}, 'required': ['x']}, good={'{"x":1}': Point(x=1, y=0.0), '{"x":1,"y":2.5}': Point(x=1, y=2.5), '{"x":"1"}': Point(x=1, y=0.0), '{"x":1,"z":0}': Point(x=1, y=0.0), '"{\\"x\\": 1}"': Point(x=1, y=0.0)}, bad=['{}', '{"x":"a"}', '[]', 'null'], differs={'"{\\"x\\": 1}"': JSON_IN_TEXT}),
    Row('dataclass with words', Worded, {'type': 'object', 'description': 'Where it is.', 'properties': {'x': {'type': 'integer', 'description': 'To the right.'}}, 'required': ['x']}, good={'{"x":1}': Worded(x=1)}, bad=['{"x":"a"}']),
    Row('frozen dataclass in a set', set[Frozen], {'type': 'array', 'items': {'type': 'object', 'properties': {'a': {'type': 'integer'}}, 'required': ['a']}, 'uniqueItems': True}, good={'[{"a":1}]': {Frozen(a=1)}}, bad=['[{}]']),
    Row('nested dataclass', Segment, {'type': 'object', 'properties': {'a': {'type': 'object', 'properties': {'x': {'type': 'integer'}, 'y': {'type': 'number', 'default': 0.0}}, 'required': ['x']}, 'b': {'type': 'object', 'properties': {'x': {'type': 'integer'}, 'y': {'type': 'number', 'default': 0.0}}, 'required': ['x']}}, 'required': ['a', 'b']}, good={'{"a":{"x":1},"b":{"x":2}}': Segment(a=Point(x=1, y=0.0), b=Point(x=2, y=0.0)), '{"a":"{\\"x\\":1}","b":{"x":2}}': Segment(a=Point(x=1, y=0.0), b=Point(x=2, y=0.0))}, bad=['{"a":{"x":1}}', '{"a":1,"b":{"x":2}}'], differs={'{"a":"{\\"x\\":1}","b":{"x":2}}': JSON_IN_TEXT}),
    Row('recursive dataclass', Tree, {'type': 'object', 'properties': {'value': {'type': 'integer'}, 'children': {'type': 'array', 'items': {'$ref': '#/$defs/Tree'}}}, 'required': ['value'], '$defs': {'Tree': {'type': 'object', 'properties': {'value': {'type': 'integer'}, 'children': {'type': 'array', 'items': {'$ref': '#/$defs/Tree'}}}, 'required': ['value']}}}, good={'{"value":1}': Tree(value=1, children=[]), '{"value":1,"children":[{"value":2}]}': Tree(value=1, children=[Tree(value=2, children=[])])}, bad=['{"value":1,"children":[{}]}']),
    Row('generic dataclass', Box[int], {'type': 'object', 'properties': {'item': {'type': 'integer'}}, 'required': ['item']}, good={'{"item":1}': Box(item=1), '{"item":"1"}': Box(item=1)}, bad=['{"item":"x"}']),
    Row('generic of a bounded type', Box[Annotated[int, Ge(1)]], {'type': 'object', 'properties': {'item': {'type': 'integer', 'minimum': 1}}, 'required': ['item']}, good={'{"item":1}': Box(item=1)}, bad=['{"item":0}']),
    Row('two dataclasses', Point | Circle, {'type': 'object', 'anyOf': [{'properties': {'x': {'type': 'integer'}, 'y': {'default': 0.0, 'type': 'number'}}, 'required': ['x'], 'type': 'object'}, {'properties': {'radius': {'type': 'number'}}, 'required': ['radius'], 'type': 'object'}]}, good={'{"x":1}': Point(x=1, y=0.0), '{"radius":1}': Circle(radius=1.0)}, bad=['{}', '5'], plain=False),
    Row('dataclass that checks', Positive, {'type': 'object', 'properties': {'x': {'type': 'integer'}}, 'required': ['x']}, good={'{"x":1}': Positive(x=1)}, bad=['{"x":-1}', '{"x":0}']),
    Row('dataclass with bounds', Bounded, {'properties': {'x': {'minimum': 1, 'type': 'integer'}}, 'required': ['x'], 'type': 'object'}, good={'{"x":1}': Bounded(x=1)}, bad=['{"x":0}'], plain=False),
    Row('dataclass with Meta', MetaBounded, {'type': 'object', 'properties': {'x': {'type': 'integer', 'minimum': 1, 'description': 'How many.'}}, 'required': ['x']}, good={'{"x":1}': MetaBounded(x=1)}, bad=['{"x":0}'], differs={'{"x":0}': OUR_META}, lenient={'{"x":0}': OUR_META}),
    Row('dataclass with Field', Fielded, {'properties': {'x': {'default': 2, 'minimum': 1, 'type': 'integer'}}, 'type': 'object'}, good={'{"x":1}': Fielded(x=1), '{}': Fielded(x=2)}, bad=['{"x":0}'], plain=False),
    Row('dataclass with bounds in metadata', MetadataBounded, {'properties': {'x': {'minimum': 1, 'type': 'integer'}}, 'required': ['x'], 'type': 'object'}, good={'{"x":1}': MetadataBounded(x=1)}, bad=['{"x":0}'], plain=False),
    Row('dataclass with init=False', Computed, {'properties': {'x': {'type': 'integer'}, 'double': {'default': 0, 'type': 'integer'}}, 'required': ['x'], 'type': 'object'}, good={'{"x":1}': Computed(x=1)}, bad=['{}'], plain=False),
    Row('dataclass with InitVar', Initialised, {'properties': {'x': {'type': 'integer'}, 'scale': {'default': 1, 'type': 'integer'}}, 'required': ['x'], 'type': 'object'}, good={'{"x":1,"scale":2}': Initialised(x=2)}, bad=['{}'], plain=False),
    Row('dataclass with Path', Located, {'properties': {'path': {'format': 'path', 'type': 'string'}}, 'required': ['path'], 'type': 'object'}, good={'{"path":"a"}': Located(path=Path('a'))}, bad=['{"path":5}']),
    Row('dataclass with Decimal', Priced, {'properties': {'price': {'anyOf': [{'type': 'number'}, {'type': 'string'}]}}, 'required': ['price'], 'type': 'object'}, good={'{"price":"1.50"}': Priced(Decimal('1.50')), '{"price":2}': Priced(Decimal('2'))}, bad=['{"price":"NaN"}', '{"price":"Infinity"}', '{"price":null}', '{"price":"x"}']),
    Row('dataclass with bytes', Packed, {'properties': {'data': {'format': 'binary', 'type': 'string'}}, 'required': ['data'], 'type': 'object'}, good={'{"data":"hi"}': Packed(b'hi')}, bad=['{"data":5}'], plain=False),
    Row('dataclass with a pydantic type and Meta', LinkedWithMeta, refused="is ignored by pydantic; use its Field"),
    Row('dataclass with metadata', Described, {'type': 'object', 'properties': {'x': {'type': 'integer', 'description': 'To the right.'}}, 'required': ['x']}, good={'{"x":1}': Described(x=1)}, bad=['{"x":"a"}']),
    Row('TypedDict', Movie, {'type': 'object', 'properties': {'title': {'type': 'string'}, 'year': {'type': 'integer'}, 'kind': {'type': 'string', 'enum': ['short', 'feature']}}, 'required': ['title']}, good={'{"title":"x"}': {'title': 'x'}, '{"title":"x","year":1999}': {'title': 'x', 'year': 1999}, '{"title":"x","other":1}': {'title': 'x'}}, bad=['{}', '{"title":5}']),
    Row('closed TypedDict', Closed, {'additionalProperties': False, 'properties': {'a': {'type': 'integer'}}, 'required': ['a'], 'type': 'object'}, good={'{"a":1}': {'a': 1}}, bad=['{"a":1,"b":2}'], plain=False),
    Row('generic TypedDict', Labelled[int], {'type': 'object', 'properties': {'label': {'type': 'string'}, 'value': {'type': 'integer'}}, 'required': ['label', 'value']}, good={'{"label":"a","value":1}': {'label': 'a', 'value': 1}}, bad=['{"label":"a","value":"x"}']),
    Row('NamedTuple', Pixel, {'type': 'array', 'prefixItems': [{'title': 'x', 'type': 'integer'}, {'title': 'y', 'type': 'integer'}, {'title': 'color', 'type': 'string', 'enum': ['red', 'blue'], 'default': 'red'}], 'items': {'anyOf': [{'type': 'integer'}, {'type': 'string', 'enum': ['red', 'blue']}]}, 'minItems': 2, 'maxItems': 3}, good={'[1,2]': Pixel(1, 2, Color.RED), '[1,2,"red"]': Pixel(1, 2, Color.RED)}, bad=['[1]', '[1,2,"red",4]', '["x",2]', '{"x":1,"y":2}'], differs={'{"x":1,"y":2}': AN_ARRAY}),
    Row('namedtuple', Plain, {'type': 'array', 'prefixItems': [{'title': 'a'}, {'title': 'b'}], 'items': {}, 'minItems': 2, 'maxItems': 2}, good={'[1,"a"]': Plain(1, 'a')}, bad=['[1]']),
    Row('attrs class', Account, {'type': 'object', 'properties': {'owner': {'type': 'string'}, 'cents': {'type': 'integer', 'default': 0}}, 'required': ['owner']}, good={'{"owner":"a"}': Account(owner='a', cents=0), '{"owner":"a","cents":5}': Account(owner='a', cents=5)}, bad=['{}', '{"owner":"a","cents":-1}'], differs={'*': NOT_THERE}),
    Row('attrs with converter', Converted, refused="has a converter, an alias or no init"),
    Row('Struct', Station, {'type': 'object', 'properties': {'name': {'type': 'string'}, 'openSince': {'anyOf': [{'type': 'integer'}, {'type': 'null'}], 'default': None}}, 'required': ['name'], 'additionalProperties': False}, good={'{"name":"x"}': Station(name='x', open_since=None), '{"name":"x","openSince":1900}': Station(name='x', open_since=1900)}, bad=['{}', '{"name":"x","zip":1}'], differs={'*': NOT_THERE}),
    Row('Struct as array', Reading, {'type': 'array', 'prefixItems': [{'title': 'value', 'type': 'number'}, {'title': 'unit', 'type': 'string', 'default': 'K'}], 'items': {}, 'minItems': 1}, good={'[1.5]': Reading(value=1.5, unit='K'), '[1.5,"C"]': Reading(value=1.5, unit='C')}, bad=['[]'], differs={'*': NOT_THERE}),
    Row('two tagged Structs', Cat | Dog, {'type': 'object', 'anyOf': [{'type': 'object', 'properties': {'kind': {'type': 'string', 'enum': ['cat']}, 'lives': {'type': 'integer'}}, 'required': ['kind', 'lives']}, {'type': 'object', 'properties': {'kind': {'type': 'string', 'enum': ['dog']}, 'age': {'type': 'integer'}}, 'required': ['kind', 'age']}]}, good={'{"kind":"cat","lives":9}': Cat(lives=9), '{"kind":"dog","age":3}': Dog(age=3)}, bad=['{"kind":"cow"}', '{}'], differs={'*': NOT_THERE}),
    Row('tagged Struct as array', Event, {'type': 'array', 'prefixItems': [{'type': 'string', 'enum': ['event']}, {'title': 'number', 'type': 'integer'}], 'items': {}, 'minItems': 2}, good={'["event",1]': Event(number=1)}, bad=['[1]', '["x",1]'], differs={'*': NOT_THERE}),
    Row('Struct with annotated_types', Strange, refused="metadata of another library than msgspec, inside Strange"),
    Row('model', User, {'properties': {'id': {'type': 'integer'}, 'tags': {'default': [], 'items': {'type': 'string'}, 'type': 'array'}}, 'required': ['id'], 'type': 'object'}, good={'{"id":1}': User(id=1, tags=[]), '{"id":"1","tags":["a"]}': User(id=1, tags=['a']), '"{\\"id\\": 1}"': User(id=1, tags=[]), '{"id":1,"tags":"[\\"a\\"]"}': User(id=1, tags=['a'])}, bad=['{}', '{"id":"x"}', '5'], plain=False, differs={'"{\\"id\\": 1}"': JSON_IN_TEXT, '{"id":1,"tags":"[\\"a\\"]"}': JSON_IN_TEXT}),
    Row('recursive model', Node, {'properties': {'name': {'type': 'string'}, 'children': {'default': [], 'items': {'$ref': '#/$defs/Node'}, 'type': 'array'}}, 'required': ['name'], 'type': 'object', '$defs': {'Node': {'properties': {'name': {'type': 'string'}, 'children': {'default': [], 'items': {'$ref': '#/$defs/Node'}, 'type': 'array'}}, 'required': ['name'], 'type': 'object'}}}, good={'{"name":"a","children":[{"name":"b"}]}': Node(name='a', children=[Node(name='b', children=[])])}, bad=['{"name":"a","children":[{}]}'], plain=False),
    Row('two models', User | Team, {'type': 'object', 'anyOf': [{'properties': {'id': {'type': 'integer'}, 'tags': {'default': [], 'items': {'type': 'string'}, 'type': 'array'}}, 'required': ['id'], 'type': 'object'}, {'properties': {'members': {'items': {'properties': {'id': {'type': 'integer'}, 'tags': {'default': [], 'items': {'type': 'string'}, 'type': 'array'}}, 'required': ['id'], 'type': 'object'}, 'type': 'array'}}, 'required': ['members'], 'type': 'object'}]}, good={'{"id":1}': User(id=1, tags=[]), '{"members":[]}': Team(members=[])}, bad=['{"x":1}'], plain=False),
    Row('models by discriminator', Annotated[Disc | Square, Field(discriminator="kind")], {'type': 'object', 'oneOf': [{'properties': {'kind': {'const': 'disc', 'type': 'string'}, 'r': {'type': 'number'}}, 'required': ['kind', 'r'], 'type': 'object'}, {'properties': {'kind': {'const': 'square', 'type': 'string'}, 'side': {'type': 'number'}}, 'required': ['kind', 'side'], 'type': 'object'}]}, good={'{"kind":"disc","r":1}': Disc(kind='disc', r=1.0)}, bad=['{"kind":"x"}'], plain=False),
    Row('list of models', list[User], {'items': {'properties': {'id': {'type': 'integer'}, 'tags': {'default': [], 'items': {'type': 'string'}, 'type': 'array'}}, 'required': ['id'], 'type': 'object'}, 'type': 'array'}, good={'[{"id":1}]': [User(id=1, tags=[])], '"[{\\"id\\":1}]"': [User(id=1, tags=[])]}, bad=['[{}]'], plain=False, differs={'"[{\\"id\\":1}]"': JSON_IN_TEXT}),
    Row('strict model', StrictUser, {'properties': {'id': {'type': 'integer'}}, 'required': ['id'], 'type': 'object'}, good={'{"id":1}': StrictUser(id=1)}, bad=['{"id":"1"}'], plain=False),
    Row('model with alias', Aliased, {'properties': {'userId': {'type': 'integer'}}, 'required': ['userId'], 'type': 'object'}, good={'{"userId":1}': Aliased(userId=1)}, bad=['{"user_id":1}'], plain=False),
    Row('pydantic dataclass', Checked, {'properties': {'x': {'minimum': 1, 'type': 'integer'}}, 'required': ['x'], 'type': 'object'}, good={'{"x":1}': Checked(x=1)}, bad=['{"x":0}'], plain=False),
    Row('Field bounds', Annotated[int, Field(ge=1, description="How many.")], {'type': 'integer', 'minimum': 1, 'description': 'How many.'}, good={'1': 1, '"5"': 5}, bad=['0']),
    Row('Field pattern', Annotated[str, Field(pattern="^a+$")], {'pattern': '^a+$', 'type': 'string'}, good={'"aa"': 'aa'}, bad=['"b"'], plain=False),
    Row('Field extras', Annotated[int, Field(title="T", examples=[1], deprecated=True, json_schema_extra={"x-mcp-header": "Count"})], {'type': 'integer', 'title': 'T', 'examples': [1], 'deprecated': True, 'x-mcp-header': 'Count'}, good={'5': 5}, bad=['"x"']),
    Row('Field strict', Annotated[int, Field(strict=True)], {'type': 'integer'}, good={'5': 5}, bad=['"5"', '5.5'], plain=False),
    Row('nested Field alias', list[Annotated[int, Field(alias="x")]], refused="which has no effect in the context it was used"),
    Row('conint', conint(ge=3), {'type': 'integer', 'minimum': 3}, good={'3': 3}, bad=['2']),
    Row('PositiveInt', PositiveInt, {'type': 'integer', 'exclusiveMinimum': 0}, good={'1': 1}, bad=['0']),
    Row('StrictInt', StrictInt, {'type': 'integer'}, good={'5': 5}, bad=['"5"'], plain=False),
    Row('StringConstraints', Annotated[str, StringConstraints(to_upper=True, max_length=2)], {'maxLength': 2, 'type': 'string'}, good={'"ab"': 'AB'}, bad=['"abc"'], plain=False),
    Row('AfterValidator', Annotated[int, AfterValidator(double)], {'type': 'integer'}, good={'5': 10}, bad=['"x"'], plain=False),
    Row('BeforeValidator', Annotated[list[str], BeforeValidator(split)], {'items': {'type': 'string'}, 'type': 'array'}, good={'"a,b"': ['a', 'b'], '["a"]': ['a']}, bad=['5'], plain=False),
    Row('AwareDatetime', AwareDatetime, {'format': 'date-time', 'type': 'string'}, good={'"2026-01-31T09:30:00Z"': datetime(2026, 1, 31, 9, 30, tzinfo=UTC)}, bad=['"2026-01-31T09:30:00"'], plain=False),
    Row('Base64Bytes', Base64Bytes, {'format': 'base64', 'type': 'string'}, good={'"aGk="': b'hi'}, bad=['5'], plain=False),
    Row('SecretStr', SecretStr, {'format': 'password', 'type': 'string', 'writeOnly': True}, good={'"x"': SecretStr('x')}, bad=['5'], plain=False),
    Row('AnyUrl', AnyUrl, {'format': 'uri', 'minLength': 1, 'type': 'string'}, good={'"https://example.com/"': AnyUrl('https://example.com/')}, bad=['"x"'], plain=False),
    Row('Json', Json[list[int]], {'contentMediaType': 'application/json', 'contentSchema': {'items': {'type': 'integer'}, 'type': 'array'}, 'type': 'string'}, good={'"[1]"': [1]}, bad=['"x"'], plain=False),
    Row('JsonValue', JsonValue, {}, good={'{"a":[1]}': {'a': [1]}, '"x"': 'x', 'null': None}, plain=False),
    Row('UUID4', UUID4, {'format': 'uuid4', 'type': 'string'}, good={'"123e4567-e89b-42d3-a456-426614174000"': UUID('123e4567-e89b-42d3-a456-426614174000')}, bad=['"123e4567-e89b-12d3-a456-426614174000"'], plain=False),
    Row('alias statement', Numbers, {'type': 'array', 'items': {'type': 'integer'}}, good={'[1]': [1]}, bad=['["x"]']),
    Row('recursive alias', Nested, {'anyOf': [{'items': {'$ref': '#/$defs/Nested'}, 'type': 'array'}, {'type': 'integer'}], '$defs': {'Nested': {'anyOf': [{'items': {'$ref': '#/$defs/Nested'}, 'type': 'array'}, {'type': 'integer'}]}}}, good={'1': 1, '[1,[2]]': [1, [2]]}, bad=['"x"'], plain=False),
]
# fmt: on
