"""Facts about JSON text: nesting and repeated members, against readings that take their time."""

import json
from random import Random
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from colonnade.errors import Fault, FaultKind
from colonnade.protocol.json_checks import (
    decode_unique,
    depth,
    duplicate_members,
    has_duplicate_members,
    refuse_duplicate_members,
)
from colonnade.protocol.jsonrpc import Request, decode
from frames import CALL, LONG, cases

# A tree of JSON in which an object is its list of members, so that a name can be there twice.
Members: TypeAlias = tuple[tuple[str, "Tree"], ...]
Tree: TypeAlias = "Members | list[Tree] | str | int | float | bool | None"

# Few names, so that they meet; with all that a quote or a backslash can do.
names = st.sampled_from(
    ["", "a", "b", "é", '"', '""', "\\", '\\"', "u0022", "\\u0022", "_meta", "🙂"]
)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | names | st.text(max_size=5)
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.lists(st.tuples(names, inner), max_size=4).map(tuple)
    ),
    max_leaves=15,
)


def has_twice(tree: object) -> bool:
    """Whether an object anywhere in the tree has a name twice."""
    if isinstance(tree, tuple):
        seen = [name for name, _ in tree]
        return len(set(seen)) < len(seen) or any(has_twice(value) for _, value in tree)
    return isinstance(tree, list) and any(has_twice(item) for item in tree)


def written(tree: object, chance: Random) -> str:
    """The tree as JSON text, with spaces and escapes at will."""
    space = chance.choice(["", "", "", " ", "\n\t"])
    if isinstance(tree, tuple):
        members = (
            quoted(name, chance) + space + ":" + written(value, chance) for name, value in tree
        )
        return space + "{" + space + ",".join(members) + "}" + space
    if isinstance(tree, list):
        return "[" + ("," + space).join(written(item, chance) for item in tree) + space + "]"
    if isinstance(tree, str):
        return quoted(tree, chance)
    return space + json.dumps(tree)


def quoted(text: str, chance: Random) -> str:
    return '"' + "".join(spelled(letter, chance) for letter in text) + '"'


def spelled(letter: str, chance: Random) -> str:
    short = json.dumps(letter, ensure_ascii=False)[1:-1]
    escaped = "".join(f"\\u{unit:04x}" for unit in units(letter))
    return (
        escaped.upper().replace("\\U", "\\u")
        if chance.random() < 0.1
        else chance.choice([short, short, escaped])
    )


def units(letter: str) -> list[int]:
    wide = letter.encode("utf-16-be")
    return [int.from_bytes(wide[at : at + 2], "big") for at in range(0, len(wide), 2)]


def depth_of(tree: object) -> int:
    if isinstance(tree, tuple):
        return 1 + max((depth_of(value) for _, value in tree), default=0)
    if isinstance(tree, list):
        return 1 + max(map(depth_of, tree), default=0)
    return 0


def split(raw: bytes) -> dict[str, Raw]:
    return msgspec.json.decode(raw, type=dict[str, Raw])


@given(trees, st.randoms(use_true_random=False))
def test_repeated_members_are_found_wherever_and_however_they_are_written(
    tree: object, chance: Random
) -> None:
    text = written(tree, chance).encode()
    assert has_duplicate_members(text) is has_twice(tree)
    assert has_duplicate_members(Raw(text)) is has_twice(tree)


def test_a_value_is_decoded_if_no_member_is_repeated() -> None:
    assert decode_unique(b'{"a": [1, {"b": "x"}]}') == {"a": [1, {"b": "x"}]}
    assert decode_unique(Raw(b"7")) == 7
    refuse_duplicate_members(b"")
    for text in (b'{"a":1,"a":2}', b'[{"a":1,"\\u0061":2}]', b"{", b""):
        with pytest.raises(Fault):
            decode_unique(text)


@given(st.lists(st.tuples(names, trees), max_size=5), st.randoms(use_true_random=False))
def test_the_members_of_one_object_are_compared_apart_from_what_is_inside_them(
    members: list[tuple[str, object]], chance: Random
) -> None:
    text = written(tuple(members), chance).strip().encode()
    seen = [name for name, _ in members]
    assert duplicate_members(text, split(text)) == {name for name in seen if seen.count(name) > 1}


@given(trees, st.randoms(use_true_random=False))
def test_depth_counts_the_brackets_that_are_open_at_once(tree: object, chance: Random) -> None:
    assert depth(written(tree, chance).encode()) == depth_of(tree)


REPEATED = {
    "at the top": b'{"a":1,"a":2}',
    "the same value": b'{"a":1,"a":1}',
    "strings for values": b'{"a":"1","b":"2","a":"3"}',
    "empty names": b'{"":1,"":2}',
    "in _meta": b'{"_meta":{"a":1,"a":2},"name":"x"}',
    "in arguments": b'{"name":"x","arguments":{"a":1,"a":2}}',
    "far inside": b'{"x":[1,{"y":{"z":[{"a":1,"a":2}]}}]}',
    "in an array": b'[{"a":1,"a":2}]',
    "the first an object": b'{"a":{"b":1},"a":{}}',
    "with an escape": b'{"a":1,"\\u0061":2}',
    "with an escape both times": b'{"\\u0061":1,"\\u0061":2}',
    "with spaces": b' { "a" : 1 ,\n "a" : 2 } ',
    "an escaped quote that makes up for the lost ones": b'{"a":1,"a":2,"b":"\\u0022\\u0022"}',
    "a name that is a quote": b'{"\\"":1,"\\u0022":2}',
    "a long one": b'{"a":1,"a":"%b"}' % (b"x" * 100_000),
}


@cases(REPEATED)
def test_two_readers_who_could_read_two_things_are_spared_it(case: bytes) -> None:
    assert has_duplicate_members(case)
    with pytest.raises(Fault) as caught:
        refuse_duplicate_members(case)
    assert caught.value.kind is FaultKind.INVALID_PARAMS


UNIQUE = {
    "nothing": b"{}",
    "one member": b'{"a":1}',
    "the same name on two levels": b'{"a":{"a":{"a":1}}}',
    "the same name side by side": b'[{"a":1},{"a":1}]',
    "a name as a value": b'{"a":"a","b":"a"}',
    "names that differ in case": b'{"a":1,"A":2}',
    "names that only look alike": '{"é":1,"e\u0301":2}'.encode(),
    "quotes in strings": b'{"a":"\\"","b":"\\u0022","c":"\\\\u0022"}',
    "a name as text in a string": b'{"a":"\\"a\\":1,","b":"{\\"a\\":1,\\"a\\":2}"}',
    "a string": b'"aaaa \\" \\" \\" \\""',
    "a number": b"1",
}


@cases(UNIQUE)
def test_what_is_there_once_is_left_alone(case: bytes) -> None:
    assert not has_duplicate_members(case)
    refuse_duplicate_members(case)


@pytest.mark.parametrize("number", [LONG, b"1e400", b"-1e999"])
def test_a_number_that_nobody_can_read_is_refused_with_its_params(number: bytes) -> None:
    with pytest.raises(Fault) as caught:
        refuse_duplicate_members(b'{"a":"x","b":%b}' % number)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    assert "out of range" in caught.value.message


@pytest.mark.parametrize(
    "raw", [b'{"a":"b","c":NaN}', b'"a" "b"', b'{"a":"\xff","b":1}', b'{"a":"b' + b"[" * 20_000 + b'"']
)  # fmt: skip
def test_what_is_not_json_is_a_fault_here_too(raw: bytes) -> None:
    with pytest.raises(Fault) as caught:
        has_duplicate_members(raw)
    assert caught.value.kind is FaultKind.PARSE


@pytest.mark.parametrize("bracket", [(b"[", b"]"), (b'{"":', b"}")])
def test_more_than_the_stack_bears_is_a_fault_too(bracket: tuple[bytes, bytes]) -> None:
    opening, closing = bracket
    with pytest.raises(Fault) as caught:
        has_duplicate_members(opening * 100_000 + b'["","",""]' + closing * 100_000)
    assert caught.value.kind is FaultKind.PARSE


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (b"", 0),
        (b"1", 0),
        (b'"[[["', 0),
        (b"[]", 1),
        (b"[[],[],{}]", 2),
        (b"[[[", 3),
        (b"]]]", 0),
        (b"]]][[", 0),
        (b'"\\"[[["[', 1),
        (b'"\\\\"[[', 2),
        (b'"never closed [[[', 0),
        (b'[["never closed \\', 2),
        (b'["\n["]', 1),
        ('["é["]'.encode(), 1),
    ],
)
def test_depth_is_defined_for_malformed_text_as_well(text: bytes, levels: int) -> None:
    assert depth(text) == levels


@pytest.mark.parametrize("size", [1_000, 100_000, 2_000_000])
@pytest.mark.parametrize("piece", [b'\\"', b'"', b"\\", b'"\\', b'"\\"', b'"x', b'{"', b'":['])
def test_depth_ends_for_text_made_to_keep_it_busy(piece: bytes, size: int) -> None:
    # With any step that looks back, the largest of these would take days.
    assert depth(b'{"' + piece * (size // len(piece))) >= 0


def test_an_object_of_many_members_is_compared_in_one_pass() -> None:
    many = b"{%b}" % b",".join(b'"n%d":"%d"' % (n, n) for n in range(100_000))
    assert not has_duplicate_members(many)
    assert not duplicate_members(many, split(many))
    once_more = many[:-1] + b',"n0":0}'
    assert has_duplicate_members(once_more)
    assert duplicate_members(once_more, split(once_more)) == {"n0"}


def test_what_is_decoded_as_a_frame_can_be_asked_for_repeats() -> None:
    request = decode(CALL % b'{"x":{"a":1,"\\u0061":2}}')
    assert isinstance(request, Request)
    assert has_duplicate_members(request.params)
