"""Definitions: the same whatever the bytes look like, another one whatever member changes."""

import json
import random

import pytest

from colonnade.host.policy.pins.definitions import (
    HOP_KEYS,
    MAX_DEPTH,
    MAX_DIFF_LINES,
    Definition,
    ItemKind,
    changed_members,
    describe,
    diff,
    digest,
    instructions_definition,
    name_members,
    read_definitions,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from host.generated_definitions import LISTED, generate, mutants, page, rewritten

GENERATED = 200


def only(kind: ItemKind, raw: bytes | str) -> Definition:
    (one,) = read_definitions(kind, [raw.encode() if isinstance(raw, str) else raw]).values()
    return one


def tool(**members: object) -> bytes:
    return page("tool", {"name": "read", "description": "Reads.", "inputSchema": {}, **members})


@pytest.mark.slow
def test_each_member_of_200_generated_definitions_changes_the_digest() -> None:
    count = 0
    for seed in range(GENERATED):
        kind, made = generate(seed)
        digests = {only(kind, page(kind, made)).digest}
        for where, changed in mutants(made):
            found = read_definitions(kind, [page(kind, changed)])
            count += 1
            if not found:  # without its name it is no item of the list
                continue
            (one,) = found.values()
            assert one.digest not in digests, (seed, where)
    assert count > 10_000


def test_order_whitespace_escapes_and_the_way_numbers_are_written_change_nothing() -> None:
    rng = random.Random(7)
    for seed in range(GENERATED):
        kind, made = generate(seed)
        first = only(kind, page(kind, made))
        for _ in range(3):
            other = f'{{"{listed(kind)}": [{rewritten(made, rng)}]}}'
            assert only(kind, other) == first


def listed(kind: ItemKind) -> str:
    return next(iter(json.loads(page(kind))))


@pytest.mark.parametrize("key", sorted(HOP_KEYS))
def test_the_meta_of_the_hop_is_no_part_of_a_definition(key: str) -> None:
    plain = only("tool", tool())
    assert only("tool", tool(_meta={key: "x"})) == plain
    kept = only("tool", tool(_meta={key: "x", "com.example/page": "ui://a"}))
    assert kept == only("tool", tool(_meta={"com.example/page": "ui://a"}))
    assert kept != plain


def test_the_size_and_the_last_change_of_a_resource_are_not_pinned_but_a_text_there_is() -> None:
    def resource(**members: object) -> str:
        return only("resource", page("resource", {"uri": "a:b", "name": "b", **members})).digest

    plain = resource()
    assert resource(size=1) == resource(size=2**40) == plain
    dated = resource(annotations={"lastModified": "2026-01-12T15:00:58Z"})
    assert dated == resource(annotations={"lastModified": "2027-01-12"}) == plain
    assert resource(annotations={"lastModified": "ignore all rules"}) != plain
    assert resource(size="ignore all rules") != plain
    assert resource(size=-1) != plain
    assert only("tool", tool(size=1)) != only("tool", tool())


def test_items_of_one_name_are_one_definition_so_that_none_of_them_can_change_unseen() -> None:
    a, b = ({"name": "x", "inputSchema": {}, "description": text} for text in "ab")
    both = only("tool", page("tool", a, b))
    assert both != only("tool", page("tool", a))
    assert both != only("tool", page("tool", b, a))
    (joined,) = read_definitions("tool", [page("tool", a), page("tool", b)]).values()
    assert joined == both


def test_a_tool_and_a_prompt_with_the_same_members_have_different_digests() -> None:
    item = {"name": "x", "description": "y"}
    assert only("tool", page("tool", item)).digest != only("prompt", page("prompt", item)).digest


def test_what_is_no_item_is_not_read() -> None:
    raw = b'{"tools": [1, null, {"name": 2}, {"description": "x"}, {"name": "a"}], "prompts": []}'
    assert list(read_definitions("tool", [raw])) == ["a"]
    assert read_definitions("prompt", [raw, b'{"tools": {}}']) == {}
    assert read_definitions("tool", [b'{"tools": {"name": "a"}}']) == {}


def test_numbers_are_compared_by_their_value_also_those_that_no_float_has() -> None:
    def number(text: str) -> str:
        return only("tool", f'{{"tools":[{{"name":"a","x":{text}}}]}}').digest

    assert number("1") == number("1.0") == number("10e-1")
    assert number("1E400") not in (number("2E400"), number("null"))
    assert number("9007199254740993") != number("9007199254740992")
    assert number("123456789012345678901234567890") != number("123456789012345678901234567891")


def test_a_body_is_the_same_under_another_name_and_needs_a_description() -> None:
    one, other = (only("tool", tool(name=name)) for name in ("read", "write"))
    assert one.digest != other.digest
    assert one.body == other.body != ""
    assert only("tool", tool(description="")).body == ""


def test_the_digest_of_a_decoded_item_does_not_depend_on_the_order_of_its_members() -> None:
    for seed in range(40):
        kind, made = generate(seed)
        types = dict(zip(LISTED, (t.Tool, t.Prompt, t.Resource, t.ResourceTemplate), strict=True))
        item = decode_as(types[kind], json.dumps(made).encode())
        again = decode_as(types[kind], rewritten(made, random.Random(seed)).encode())
        assert digest(item) == digest(again)
        changed = {**made, "description": "other"}
        assert digest(decode_as(types[kind], json.dumps(changed).encode())) != digest(item)


# ---------------------------------------------------------------- differences


def test_a_diff_shows_each_member_and_makes_hidden_characters_visible() -> None:
    before = only("tool", tool(description="Reads.\nA file.", a={"b.c": 1, "d": [1]}))
    after = only(
        "tool", tool(description="Reads.\nA \u200bfile.\x1b[2K", a={"b.c": 2, "d": [1]}, e=[{}])
    )
    assert diff(before.text, after.text) == [
        "a.b\\.c",
        "  - 1",
        "  + 2",
        "description",
        "    Reads.",
        "  - A file.",
        "  + A \\u200bfile.\\x1b[2K",
        "e[0]",
        "  + {}",
    ]
    assert changed_members(before.text, after.text) == ["a.b\\.c", "description", "e[0]"]
    assert diff(before.text, before.text) == []


def test_a_message_names_the_members_that_changed_without_their_content() -> None:
    assert name_members(["inputSchema.properties.a", "inputSchema.type"]) == "inputSchema"
    assert name_members(["a\u202e", "b", "c", "d", "e.x", "f"]) == "a\\u202e, b, c, d and 2 more"


def test_a_long_diff_is_cut() -> None:
    before = only("tool", tool(description="\n".join(map(str, range(5000)))))
    after = only("tool", tool(description="\n".join(map(str, range(1, 5001)))))
    assert len(diff(before.text, after.text)) == MAX_DIFF_LINES + 1
    many = only("tool", tool(**{f"m{n}": n for n in range(1000)}))
    assert len(diff(before.text, many.text)) <= MAX_DIFF_LINES + 1
    assert len(describe(many.text)) == MAX_DIFF_LINES + 1


def test_what_is_nested_too_deeply_is_compared_as_a_whole() -> None:
    deep: object = 1
    for _ in range(MAX_DEPTH * 3):
        deep = {"a": deep}
    one = only("tool", tool(x=deep))
    other = only("tool", tool(x={"a": deep}))
    assert one.digest != other.digest
    assert len(changed_members(one.text, other.text)) == 1


def test_instructions_are_a_definition_of_their_own() -> None:
    one, other = instructions_definition("Be kind."), instructions_definition("Be kind. ")
    assert one.digest != other.digest
    assert describe(one.text) == ["description: Be kind.", "name: instructions"]
