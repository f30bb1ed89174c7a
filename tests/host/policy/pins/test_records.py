"""What a list has become since it was accepted: the same, changed, renamed, swapped, alike."""

import random
from typing import Any

import pytest

from colonnade.host.policy.pins import records as module
from colonnade.host.policy.pins.definitions import Definition, ItemKind, read_definitions
from colonnade.host.policy.pins.records import (
    EMPTY,
    MAX_VARIANTS,
    HeldItem,
    PinnedItem,
    PinRecord,
    Variant,
    accept_pending,
    compare,
    decode_record,
    drop_pending,
    encode_record,
    pending_in,
)
from host.generated_definitions import LISTED, generate, page, rewritten

NOW = 1.0


def tools(*named: tuple[str, str], **members: object) -> dict[str, Definition]:
    """Tools by name and description."""
    made = [
        {"name": name, "description": about, "inputSchema": {}, **members} for name, about in named
    ]
    return read_definitions("tool", [page("tool", *made)])


def accepted(*named: tuple[str, str]) -> PinRecord:
    return compare(EMPTY, tools(*named), first="accept", now=NOW).record


def held(record: PinRecord, found: dict[str, Definition], **options: Any) -> dict[str, HeldItem]:
    given: dict[str, Any] = {"first": "accept", "now": NOW, **options}
    return compare(record, found, **given).held


READ, SEND = ("read", "Reads a file."), ("send", "Sends a mail.")


def test_the_first_definition_is_accepted_and_the_same_one_again() -> None:
    first = compare(EMPTY, tools(READ, SEND), first="accept", now=NOW)
    assert (first.held, first.first_seen) == ({}, ("read", "send"))
    again = compare(first.record, tools(SEND, READ), first="accept", now=NOW)
    assert again.held == {}
    assert again.record is first.record


def test_with_review_the_first_definition_waits_and_is_not_accepted_by_asking_again() -> None:
    first = compare(EMPTY, tools(READ), first="review", now=NOW)
    assert first.held["read"].reason == "not accepted yet"
    again = compare(first.record, tools(READ), first="review", now=NOW)
    assert again.record is first.record
    assert held(again.record, tools(READ), first="accept")["read"].state == "new"


def test_a_changed_definition_is_held_and_names_what_changed() -> None:
    found = held(accepted(READ, SEND), tools(("read", "Reads a file, and sends it."), SEND))
    assert list(found) == ["read"]
    assert found["read"].state == "changed"
    assert found["read"].reason == "its description changed since it was accepted"
    vendor = held(accepted(READ), tools(READ, vendor={"a": 1}))
    assert vendor["read"].reason == "its vendor changed since it was accepted"


def test_what_was_removed_and_comes_back_changed_is_not_new() -> None:
    record = accepted(READ, SEND)
    gone = compare(record, tools(SEND), first="accept", now=NOW)
    assert gone.record is record
    assert held(gone.record, tools(READ, SEND)) == {}
    assert held(gone.record, tools(("read", "Other."), SEND))["read"].state == "changed"


def test_a_renamed_tool_is_shown_as_renamed() -> None:
    found = held(accepted(READ, SEND), tools(("fetch", READ[1]), SEND))
    assert (found["fetch"].state, found["fetch"].other) == ("renamed", "read")
    assert "the accepted tool 'read' under another name" in found["fetch"].reason


def test_a_copy_beside_the_original_is_new_and_one_without_a_description_is_no_rename() -> None:
    assert held(accepted(READ), tools(READ, ("fetch", READ[1]))) == {}
    assert held(accepted(("a", "")), tools(("b", ""))) == {}


def test_swapped_tools_are_shown_as_swapped() -> None:
    found = held(accepted(READ, SEND), tools(("read", SEND[1]), ("send", READ[1])))
    assert {one.state for one in found.values()} == {"swapped"}
    assert found["read"].other == "send"
    assert "swapped with 'send'" in found["read"].reason


def test_a_tool_that_takes_over_the_definition_of_another_is_shown_as_that() -> None:
    found = held(accepted(READ, SEND), tools(("read", SEND[1]), SEND))
    assert (found["read"].state, found["read"].other) == ("copied", "send")


@pytest.mark.parametrize("name", ["rеad", "re\u200bad", "READ".replace("EAD", "ead") + "\u0301"])
def test_a_new_name_that_looks_like_an_accepted_one_waits(name: str) -> None:
    if name == "Read\u0301":  # another letter for a person, too
        assert held(accepted(READ), tools(READ, (name, "x"))) == {}
        return
    found = held(accepted(READ), tools(READ, (name, "x")))
    assert found[name].state == "lookalike"
    assert found[name].reason == "its name looks like 'read'"


def test_a_new_name_that_looks_like_one_of_another_server_waits_and_the_same_name_does_not() -> (
    None
):
    others = {"read": {"read": "files"}}
    found = held(EMPTY, tools(("rеad", "x")), others=others)
    assert found["rеad"].reason == "its name looks like 'read of server files'"
    assert held(EMPTY, tools(READ), others=others) == {}


def test_each_caller_may_have_a_variant_and_each_is_accepted_for_itself() -> None:
    record = accepted(READ)
    for number in range(1, MAX_VARIANTS):
        variant = tools(("read", f"Reads a file for caller {number}."))
        first = compare(record, variant, first="accept", now=NOW)
        assert first.held["read"].state == "changed"
        record, done = accept_pending(first.record, [("read", variant["read"].digest)], NOW)
        assert done
        assert held(record, variant) == {}
        assert held(record, tools(READ)) == {}
    assert len(record.items["read"].accepted) == MAX_VARIANTS
    # One more replaces the oldest.
    last = tools(("read", "Reads a file for the last caller."))
    record, _ = accept_pending(
        compare(record, last, first="accept", now=NOW).record, [("read", last["read"].digest)], NOW
    )
    assert len(record.items["read"].accepted) == MAX_VARIANTS
    assert held(record, last) == {}
    assert held(record, tools(READ))["read"].state == "changed"


@pytest.mark.parametrize("order", [("Second.", "Third."), ("Third.", "Second.")])
def test_only_what_a_person_has_seen_is_accepted(order: tuple[str, str]) -> None:
    record = accepted(READ)
    for text in order:
        record = compare(record, tools(("read", text)), first="accept", now=NOW).record
    seen, later = tools(("read", "Second.")), tools(("read", "Third."))
    record, done = accept_pending(record, [("read", seen["read"].digest), ("x", "y")], NOW)
    assert done == [("read", seen["read"].digest)]
    assert held(record, seen) == {}
    assert held(record, later)["read"].state == "changed"


def test_what_waits_is_bounded_and_can_be_listed_and_dropped() -> None:
    record = accepted(READ)
    for number in range(MAX_VARIANTS * 2):
        record = compare(record, tools(("read", f"{number}")), first="accept", now=NOW).record
    waiting = [one.item for one in pending_in(record, "tool")]
    assert len(waiting) == MAX_VARIANTS
    assert waiting[-1].reason == "its description changed since it was accepted"
    assert drop_pending(record) == accepted(READ)
    only_new = compare(EMPTY, tools(READ), first="review", now=NOW).record
    assert drop_pending(only_new) == EMPTY


def test_more_items_than_can_be_kept_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ITEMS", 1)
    found = compare(EMPTY, tools(READ, SEND), first="accept", now=NOW)
    assert found.held["send"].state == "too many"
    assert list(found.record.items) == ["read"]


# ---------------------------------------------------------------- records


def test_a_record_survives_the_store() -> None:
    record = compare(accepted(READ), tools(SEND), first="review", now=NOW).record
    assert decode_record(encode_record(record)) == record
    assert decode_record(None) == EMPTY


@pytest.mark.parametrize("data", [b"", b"x", encode_record(EMPTY)[:-1], b"\x78\x9c"])
def test_a_damaged_record_is_not_read_as_an_empty_one(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"damaged|incomplete"):
        decode_record(data)


def test_a_record_that_is_too_large_when_decompressed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = encode_record(accepted(READ, SEND))
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", 20)
    with pytest.raises(ValueError, match="too large"):
        decode_record(data)


def test_a_long_text_is_not_kept_and_its_digest_still_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 10)
    record = accepted(READ)
    assert record.items["read"].accepted[0].text == ""
    assert held(record, tools(READ)) == {}
    found = held(record, tools(("read", "Other.")))["read"]
    assert found.reason == "its definition changed since it was accepted"


def test_texts_are_left_out_of_a_record_that_would_be_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_TEXTS_BYTES", 10)
    record = PinRecord({"a": PinnedItem((Variant("1", text="x" * 20),), (Variant("2", text="y"),))})
    kept = decode_record(encode_record(record)).items["a"]
    assert (kept.accepted[0].text, kept.pending[0].text) == ("", "y")


# ---------------------------------------------------------------- no false alarm


@pytest.mark.slow
def test_ten_thousand_lists_of_200_definitions_raise_no_alarm() -> None:
    made: dict[ItemKind, list[dict[str, Any]]] = {kind: [] for kind in LISTED}
    for seed in range(200):
        kind, definition = generate(seed)
        made[kind].append(definition)
    rng = random.Random(3)
    records: dict[ItemKind, PinRecord] = {}
    for kind, definitions in made.items():
        listed = read_definitions(kind, [page(kind, *definitions)])
        first = compare(EMPTY, listed, first="accept", now=NOW)
        assert (len(first.first_seen), first.held) == (len(definitions), {})
        records[kind] = decode_record(encode_record(first.record))
    # Written in so many ways, in any order and on any number of pages.
    written: dict[ItemKind, list[list[str]]] = {
        kind: [[rewritten(one, rng) for one in definitions] for _ in range(20)]
        for kind, definitions in made.items()
    }
    for _ in range(10_000):
        for kind, ways in written.items():
            items = list(rng.choice(ways))
            rng.shuffle(items)
            cut = rng.randrange(len(items) + 1)
            name = next(iter(LIST_MEMBERS[kind]))
            pages = [
                f'{{"{name}": [{",".join(part)}]}}'.encode() for part in (items[:cut], items[cut:])
            ]
            found = compare(records[kind], read_definitions(kind, pages), first="review", now=NOW)
            assert found.held == {}
            assert found.record is records[kind]


LIST_MEMBERS: dict[ItemKind, tuple[str]] = {
    "tool": ("tools",),
    "prompt": ("prompts",),
    "resource": ("resources",),
    "template": ("resourceTemplates",),
}
