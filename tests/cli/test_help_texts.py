"""Text, names of files, signatures and arguments: what is made of whatever a server wrote."""

import contextlib
import os
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.commands.call import (
    OutputDirectory,
    TypedArguments,
    parse_arguments,
    safe_file_name,
    suffix_of,
    tool_arguments,
)
from colonnade.cli.elicitation import choices, choose, format_value, hint, parse_value, warnings
from colonnade.cli.errors import CliError
from colonnade.cli.terminal import bar, columns
from colonnade.client.tools import names_of, prompt_signature, tool_signature, type_name
from colonnade.protocol import types as t
from colonnade.text import clean, cut, first_line, one_line, width

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-1, 1) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "enum",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "required",
        "default",
        "const",
        "format",
        "minimum",
        "maximum",
        "additionalProperties",
        "patternProperties",
        "a",
    ]
)
# Documents that look like schemas, and are nearly never.
SCHEMAS = st.recursive(
    st.sampled_from(["object", "string", "integer", "array", "#/$defs/a", True, None, 3, "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4) | JSON,
    max_leaves=12,
)


# ---------------------------------------------------------------- text

CLEANED = {
    "plain": "plain",
    "Zoë 日本 👩‍💻 naïve\u00a0x": "Zoë 日本 👩‍💻 naïve\u00a0x",
    "\x1b[2J": "\\x1b[2J",
    "a\rb": "a\\rb",
    "a\x00\x7f\x9b": "a\\x00\\x7f\\x9b",
    "\u202eabc\u2066": "\\u202eabc\\u2066",
    "\u2028": "\\u2028",
    "\U000e0041": "\\U000e0041",
    "a\U000e0100\ufe00": "a\\U000e0100\\ufe00",
    "☀\ufe0f": "☀\ufe0f",
    "\ud800": "\\ud800",
}


@pytest.mark.parametrize("text", CLEANED, ids=ascii)
def test_what_acts_on_a_terminal_is_shown_as_its_escape(text: str) -> None:
    assert clean(text) == CLEANED[text]
    assert clean(f"{text}\n\tmore", lines=True) == f"{CLEANED[text]}\n\tmore"


@given(st.text())
def test_no_text_leaves_a_control_behind(text: str) -> None:
    assert not any(ord(one) < 32 or ord(one) == 127 for one in one_line(text))
    assert "\n" not in one_line(text)


def test_line_breaks_of_windows_are_line_breaks() -> None:
    assert clean("a\r\nb", lines=True) == "a\nb"


def test_widths_are_those_of_a_terminal() -> None:
    assert [width(one) for one in ("abc", "日本", "e\u0301", "👍", "")] == [3, 4, 1, 2, 0]
    assert cut("日本語", 5) == "日本…"
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("abcd", 0) == ""
    assert first_line("\n  one\n two") == "one"
    assert first_line(None) == ""


def test_columns_stand_below_each_other() -> None:
    rows = [["a", "", "日本", "x"], ["long", "", "b", "y"]]
    assert columns(rows) == "  a     日本  x\n  long  b     y\n"
    assert columns(rows, indent=0, most=9) == "a     日…\nlong  b…\n"
    assert columns([]) == ""


def test_a_bar_says_how_far_it_is() -> None:
    assert bar(1, 4, "fry") == "[#####...............]  25%  fry"
    assert bar(1, 4, None) == "[#####...............]  25%  1 of 4"
    assert bar(9, 4, None) == "[####################] 100%  9 of 4"
    assert bar(-1, 4, "\x1b") == "[....................]   0%  \\x1b"
    assert bar(7, None, "fry") == "7  fry"
    assert bar(7, 0, None) == "7"


# ---------------------------------------------------------------- files

NAMES = {
    "report": "report",
    "file:///etc/passwd": "passwd",
    "a://b/../../.ssh/authorized_keys": "authorized_keys",
    "a://..": "file",
    "a://b/..": "file",
    "/": "file",
    ".bashrc": "bashrc",
    "-rf": "rf",
    "a b\x1b\0ü.txt": "a-b-.txt",
    "a\\..\\b.exe": "a-..-b.exe",
    "a://b/c.png?key=1#d": "c.png",
    "a" * 200 + ".txt": "a" * 76 + ".txt",
    "": "file",
}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:40]))
def test_a_name_that_a_server_chose_is_a_name_and_no_path(name: str) -> None:
    assert safe_file_name(name) == NAMES[name]


@given(st.text())
def test_no_name_leads_out_of_its_folder(name: str) -> None:
    safe = safe_file_name(name)
    assert os.path.basename(safe) == safe
    assert safe not in ("", ".", "..")
    assert not safe.startswith((".", "-"))


def test_nothing_that_is_there_is_overwritten_or_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.txt").symlink_to(elsewhere)
    (out / "a-2.txt").write_text("mine")
    assert OutputDirectory(str(out)).save("a", "text/plain", b"theirs") == str(out / "a-3.txt")
    assert not elsewhere.exists()
    assert (out / "a-2.txt").read_text() == "mine"
    assert (out / "a-3.txt").read_bytes() == b"theirs"


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CliError, match="cannot be created"):
        OutputDirectory(str(tmp_path / "file" / "below"))
    assert not OutputDirectory("")


def test_files_end_as_their_type_does() -> None:
    kinds = ["image/png", "audio/wav; rate=1", "text/markdown", "x/unlike", None]
    assert [suffix_of(one) for one in kinds] == [".png", ".wav", ".md", ".bin", ".bin"]


# ---------------------------------------------------------------- signatures

KINDS: list[tuple[Any, str]] = [
    ({"type": "string"}, "string"),
    ({"type": "string", "format": "date"}, "date"),
    ({"type": "integer", "minimum": 1}, "integer from 1"),
    ({"type": "number", "maximum": 2.5}, "number to 2.5"),
    ({"type": "integer", "minimum": 0, "maximum": 9}, "integer 0 to 9"),
    ({"type": ["string", "null"]}, "string | null"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string | null"),
    ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
    ({"const": "x"}, '"x"'),
    ({"type": "array"}, "list"),
    ({"type": "array", "items": {"type": "integer"}}, "list of integer"),
    ({"type": "array", "items": {"enum": ["a", "b"]}}, 'list of ("a" | "b")'),
    ({"type": "object", "properties": {"a": {}, "b": {}}}, "{a, b}"),
    ({"type": "object", "additionalProperties": {"type": "number"}}, "object of number"),
    ({"type": "object"}, "object"),
    ({"$ref": "#/$defs/Seat"}, "Seat"),
    ({"type": "boolean"}, "boolean"),
    ({}, "any"),
    (True, "any"),
    (False, "nothing"),
    ({"enum": list(range(20))}, "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | …"),
    ({"const": "x" * 100}, '"' + "x" * 38 + "…"),
]


@pytest.mark.parametrize(("schema", "words"), KINDS, ids=[words[:30] for _, words in KINDS])
def test_a_schema_is_told_in_a_few_words(schema: Any, words: str) -> None:
    assert type_name(schema) == words


def test_a_schema_inside_a_schema_ends_somewhere() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    for _ in range(1000):
        deep = {"type": "array", "items": deep}
    assert type_name(deep) == "list of list of list of list"


def test_what_must_be_given_comes_first() -> None:
    schema = {
        "type": "object",
        "properties": {"b": {"default": [1]}, "a": {"type": "string"}, "c": {}},
        "required": ["a"],
    }
    tool = t.Tool(name="do", input_schema=schema, output_schema={"type": "boolean"})
    assert tool_signature(tool) == "do(a: string, b: any = [1], c: any = …) -> boolean"
    assert names_of(schema) == "a [b] [c]"
    prompt = t.Prompt(name="p", arguments=[t.PromptArgument(name="x", required=True)])
    assert prompt_signature(prompt) == "p(x)"


@given(SCHEMAS)
def test_no_schema_breaks_what_is_said_of_it(schema: Any) -> None:
    assert "\n" not in type_name(schema)
    document: Any = schema if isinstance(schema, dict) else {"properties": schema}
    tool = t.Tool(name="x", input_schema=cast("dict[str, Any]", document), output_schema=document)
    assert "\n" not in tool_signature(tool)
    assert "\n" not in names_of(tool.input_schema)


@given(SCHEMAS, st.lists(st.sampled_from(["a=1", "a=x", "a:=[1]", "type=1", "b=", "a=true"])))
def test_no_schema_breaks_what_is_typed(schema: Any, typed: list[str]) -> None:
    document: Any = schema if isinstance(schema, dict) else {"properties": schema}
    tool = t.Tool(name="x", input_schema=cast("dict[str, Any]", document))
    with contextlib.suppress(CliError):
        assert isinstance(tool_arguments(tool, parse_arguments(typed)), dict)


def test_a_reference_at_the_top_is_followed() -> None:
    schema = {
        "$ref": "#/$defs/Args",
        "$defs": {"Args": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    tool = t.Tool(name="x", input_schema=schema)
    assert tool_arguments(tool, parse_arguments(["n=4"])) == {"n": 4}


def test_a_value_is_of_the_type_that_a_reference_leads_to() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "n": {"$ref": "#/$defs/N"},
            "m": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        },
        "$defs": {"N": {"type": "integer"}},
    }
    tool = t.Tool(name="x", input_schema=schema)
    assert tool_arguments(tool, parse_arguments(["n=4", "m=null"])) == {"n": 4, "m": None}
    assert tool_arguments(tool, TypedArguments([], [{"n": 1}])) == {"n": 1}


# ---------------------------------------------------------------- forms

SINGLE = t.PrimitiveSchema(type="string", enum=["r", "g"], enum_names=["Red", "Green"])
TITLED = t.PrimitiveSchema(
    type="string",
    one_of=[t.EnumOption(const="1", title="One"), t.EnumOption(const="2", title="Two")],
)
SEVERAL = t.PrimitiveSchema(type="array", items=t.EnumItems(enum=["a", "b", "c"]))


def test_choices_have_words() -> None:
    assert choices(SINGLE) == [("r", "Red"), ("g", "Green")]
    assert choices(TITLED) == [("1", "One"), ("2", "Two")]
    assert choices(SEVERAL) == [("a", "a"), ("b", "b"), ("c", "c")]
    assert hint(SEVERAL) == "numbers or names, separated by commas"


def test_a_choice_is_meant_by_itself_by_its_words_or_by_its_number() -> None:
    options = choices(SINGLE)
    assert [choose(one, options) for one in ("g", "Green", "green", "2", "9", "x")] == [
        "g", "g", "g", "g", "9", "x",
    ]  # fmt: skip
    # By itself comes first: these are numbers, too.
    assert choose("2", [("2", "two"), ("1", "one")]) == "2"
    assert parse_value("3, a", SEVERAL, choices(SEVERAL)) == ["c", "a"]


def test_a_choice_is_shown_by_its_words() -> None:
    assert format_value("g", choices(SINGLE)) == "Green"
    assert format_value(["1", "2"], choices(TITLED)) == "One, Two"
    assert [format_value(one, []) for one in (True, 2.5, "a\x1b")] == ["yes", "2.5", "a\\x1b"]


def test_what_is_typed_is_of_the_type_of_the_field() -> None:
    integer, number = t.PrimitiveSchema(type="integer"), t.PrimitiveSchema(type="number")
    assert parse_value("5.0", integer, []) == 5
    assert parse_value("x", integer, []) == "x"
    assert parse_value("1e2", number, []) == 100
    assert parse_value("YES", t.PrimitiveSchema(type="boolean"), []) is True
    assert parse_value("maybe", t.PrimitiveSchema(type="boolean"), []) == "maybe"
    assert parse_value("5", t.PrimitiveSchema(type="string"), []) == "5"


def test_an_address_that_no_browser_understands_is_odd() -> None:
    assert warnings("https://[") == ["this is not a valid URL"]
    assert warnings("https://b\u00fccher.example/") == [
        "the host has characters that may look like others (Punycode)"
    ]
