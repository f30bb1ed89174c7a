"""An entry is put into a file and taken out again, and nothing else in the file moves."""

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.host.config import json_editor as json_text
from colonnade.host.config import toml_editor as toml_text
from colonnade.host.config.formats import FORMATS, find, is_before, put, remove, snippet
from colonnade.host.config.settings import ConfigSyntaxError
from host.odd_files import SERVERS, json_files, toml_files

ENTRY: dict[str, Any] = {"command": "colonnade", "args": ["run", "/x/server.py"], "env": {"A": "b"}}
COMMENT = re.compile(r"/\*.*?\*/|// (?:two|nothing yet)|# (?:a comment|two|why|not|no)", re.DOTALL)


def files(client: str) -> "st.SearchStrategy[str]":
    dialect = FORMATS[client]
    if dialect.syntax == "toml":
        return toml_files()
    return json_files(SERVERS[client], comments=dialect.syntax == "jsonc")


# ---------------------------------------------------------------- any file


@pytest.mark.parametrize("client", ["claude-desktop", "vscode", "codex"])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_what_is_put_in_is_there_and_all_else_is_as_it_was(client: str, data: Any) -> None:
    dialect, text = FORMATS[client], data.draw(files(client))
    before = find(dialect, text)
    new = put(dialect, text, "weather", ENTRY)
    assert find(dialect, new) == {**before, "weather": ENTRY}
    assert COMMENT.findall(new) == COMMENT.findall(text)
    assert is_before(dialect, text, new, "weather")
    assert new.startswith("\ufeff") == text.startswith("\ufeff")
    if "\r\n" in text:
        assert "\n" not in new.replace("\r\n", "")
    # Every character that was there is there, in its order: only new ones came.
    rest = iter(new)
    assert all(one in rest for one in re.sub(r"\s", "", text))


@pytest.mark.parametrize("client", ["claude-desktop", "vscode", "codex"])
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_what_is_taken_out_is_gone_and_all_else_is_as_it_was(client: str, data: Any) -> None:
    dialect, text = FORMATS[client], data.draw(files(client))
    before = find(dialect, text)
    new = put(dialect, text, "weather", ENTRY)
    name = data.draw(st.sampled_from(sorted(find(dialect, new))))
    after = remove(dialect, new, name)
    assert find(dialect, after) == {k: v for k, v in find(dialect, new).items() if k != name}
    if name == "weather":
        assert COMMENT.findall(after) == COMMENT.findall(text)
    if name == "weather" and before and dialect.syntax != "toml":
        assert after == text


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_an_entry_takes_the_place_of_another_one(data: Any) -> None:
    for client in ("vscode", "codex"):
        dialect, text = FORMATS[client], data.draw(files(client))
        first = put(dialect, text, "weather", {"command": "other", "args": []})
        second = put(dialect, first, "weather", ENTRY)
        assert find(dialect, second) == {**find(dialect, text), "weather": ENTRY}
        assert COMMENT.findall(second) == COMMENT.findall(text)


# ---------------------------------------------------------------- how it looks

LOOKS = {
    "a comment stays with its own line": (
        '{\n\t"servers": {\n\t\t"git": {"command": "x"} // mine\n\t}\n}\n',
        '{\n\t"servers": {\n\t\t"git": {"command": "x"}, // mine\n\t\t"w": {\n\t\t\t"url": "u"\n\t\t}\n\t}\n}\n',
    ),
    "a comma at the end stays the custom": (
        '{\n  "servers": {\n    "git": {},\n  },\n}',
        '{\n  "servers": {\n    "git": {},\n    "w": {\n      "url": "u"\n    },\n  },\n}',
    ),
    "what is on one line stays on one": (
        '{"servers": {"git": {}}, "inputs": []}',
        '{"servers": {"git": {}, "w": {"url": "u"}}, "inputs": []}',
    ),
    "an empty object opens": (
        '{\r\n    "servers": {},\r\n    "inputs": []\r\n}',
        '{\r\n    "servers": {\r\n        "w": {\r\n            "url": "u"\r\n        }\r\n    },\r\n    "inputs": []\r\n}',
    ),
    "an empty file begins": (
        "",
        '{\n  "servers": {\n    "w": {\n      "url": "u"\n    }\n  }\n}\n',
    ),
    "what is missing on the way is made": (
        '{\n  "inputs": [] // none\n}\n',
        '{\n  "inputs": [], // none\n  "servers": {\n    "w": {\n      "url": "u"\n    }\n  }\n}\n',
    ),
}


@pytest.mark.parametrize("text", LOOKS)
def test_an_entry_looks_like_what_is_around_it(text: str) -> None:
    before, after = LOOKS[text]
    assert put(FORMATS["vscode"], before, "w", {"url": "u"}) == after


GONE = {
    "a comment behind it keeps its line": (
        '{"servers": {\n  "a": 1, // of a\n  "w": 2, // of w\n  "b": 3\n}}',
        '{"servers": {\n  "a": 1, // of a\n   // of w\n  "b": 3\n}}',
    ),
    "a comment before it swallows nothing": (
        '{"servers": {\n  "a": 1, // of a\n  "w": 2 }}',
        '{"servers": {\n  "a": 1 // of a\n   }}',
    ),
    "the last one takes the comma before it along": (
        '{"servers": {"a": 1, "w": 2}}',
        '{"servers": {"a": 1}}',
    ),
    "the only one leaves nothing": ('{"servers": {\n  "w": 2,\n}}', '{"servers": {}}'),
}


@pytest.mark.parametrize("text", GONE)
def test_an_entry_that_is_gone_leaves_order(text: str) -> None:
    before, after = GONE[text]
    assert remove(FORMATS["vscode"], before, "w") == after


def test_a_table_is_gone_with_its_own_tables_and_comments_and_no_other_ones() -> None:
    text = (
        'a = 1\n\n# ours\n[mcp_servers.w]\ncommand = "x"\n# inside\n[mcp_servers.w.env]\nA = "b"\n'
        "\n# of c\n[c]\n"
    )
    assert remove(FORMATS["codex"], text, "w") == "a = 1\n\n# ours\n\n# of c\n[c]\n"


def test_a_table_that_is_an_assignment_goes_too() -> None:
    text = '[mcp_servers]\nw = { command = "x" }\nv.command = "y"\nv.args = [\n]\n'
    assert remove(FORMATS["codex"], text, "w") == text.replace('w = { command = "x" }\n', "")
    assert remove(FORMATS["codex"], text, "v") == '[mcp_servers]\nw = { command = "x" }\n'


def test_every_character_can_be_written() -> None:
    odd = {"command": 'a"\\\n\t\x7f\x00é日\U0001f600', "env": {"A.b c": "'"}}
    for dialect in FORMATS.values():
        assert find(dialect, snippet(dialect, "w", odd)) == {"w": odd}


# ---------------------------------------------------------------- broken files

BROKEN = {
    "{": (1, 2, "unexpected end of file"),
    '{"a": 1\n  "b": 2}': (2, 3, "expected a comma or }"),
    '{"a": }': (1, 7, "expected a value"),
    '{"a" 1}': (1, 6, "expected a colon"),
    "{a: 1}": (1, 2, 'expected a key in "quotes"'),
    '{"a": 01}': (1, 7, "expected a value"),
    '{"a": tru}': (1, 7, "expected a value"),
    '{"a": "x\ny"}': (
        1,
        7,
        "unterminated string, or a character in it that must be escaped",
    ),
    "{} {}": (1, 4, "unexpected text after the value"),
    "[]": (1, 1, "expected an object"),
    '{"mcpServers": []}': (1, 16, "expected an object"),
    '{"mcpServers": {},\n "mcpServers": {}}': (2, 2, '"mcpServers" is a duplicate key'),
    "{\n  // mine\n}": (2, 3, "comments are not allowed in this file"),
    '{"a": [1,\n2,]}': (2, 2, "trailing commas are not allowed in this file"),
    "[" * 200: (1, 102, "more than 100 levels of arrays and objects"),
}


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:20])
def test_a_broken_file_is_told_with_its_place(text: str) -> None:
    line, column, why = BROKEN[text]
    with pytest.raises(ConfigSyntaxError) as caught:
        put(FORMATS["claude-desktop"], text, "weather", ENTRY)
    assert (caught.value.line, caught.value.column, caught.value.why) == (line, column, why)


def test_a_comment_without_an_end_is_told() -> None:
    with pytest.raises(ConfigSyntaxError, match="line 1, column 3: unterminated comment"):
        json_text.read("{ /* }", comments=True)


BROKEN_TOML = {
    "a = 1\nb = \n": (2, 5, "invalid value"),
    "a = 1\na = 2\n": (2, 6, "cannot overwrite a value"),
    'a = "': (1, 6, "unterminated string"),
    "mcp_servers = 1\n": (1, 1, "expected mcp_servers to be a table"),
    "[[mcp_servers]]\na = 1\n": (1, 1, "expected mcp_servers to be a table"),
    "x = 1\nmcp_servers = { git = {} }\n": (
        2,
        1,
        "mcp_servers cannot be edited line by line; edit it by hand",
    ),
}


@pytest.mark.parametrize("text", BROKEN_TOML)
def test_a_broken_table_is_told_with_its_place(text: str) -> None:
    line, column, why = BROKEN_TOML[text]
    with pytest.raises(ConfigSyntaxError) as caught:
        put(FORMATS["codex"], text, "weather", ENTRY)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.why == why


@given(st.text(alphabet='{}[]",: /*\n\\1at', max_size=12), st.booleans())
def test_no_text_is_read_otherwise_than_json_reads_it(text: str, comments: bool) -> None:
    try:
        node = json_text.read(text, comments=comments)
    except ConfigSyntaxError:
        node = None
        with pytest.raises(ValueError):
            json.loads(text)
    else:
        if node is not None and not comments:
            assert node.value == json.loads(text)


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader_of_tables(text: str) -> None:
    with contextlib.suppress(ConfigSyntaxError):
        assert isinstance(toml_text.read(text), dict)
