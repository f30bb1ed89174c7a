"""Configuration files as odd as people and programs leave them, made by hypothesis.

Rules: each is one that its program reads; what is broken has tests of its own.
"""

import json
from typing import Any

from hypothesis import strategies as st

SERVERS = {"claude-desktop": "mcpServers", "vscode": "servers", "cursor": "mcpServers"}
NAMES = st.sampled_from(["git", "time", "a b", "ünïcode", "weather2", "x.y", 'quo"te', ""])
SCALARS = st.sampled_from(
    ['"a"', '"// no comment"', '"}, {"', '"\\u00e9\\n"', "1", "-0.5e3", "true", "null", '"日本"']
)


class Pen:
    """Writes one file in one style."""

    def __init__(self, draw: Any, *, comments: bool) -> None:
        self.draw = draw
        self.comments = comments
        self.newline: str = draw(st.sampled_from(["\n", "\r\n"]))
        indent = draw(st.sampled_from(["", "\t", "  ", "    "]))
        gaps = ["", " ", self.newline, self.newline + indent, f"{self.newline}{indent}{indent}"]
        if comments:
            gaps += [
                " /* one */ ",
                f" // two{self.newline}",
                f"{indent}// two{self.newline}{indent}",
            ]
            gaps += [f"/* over{self.newline} lines */"]
        self.gaps = st.sampled_from(gaps)

    def gap(self) -> str:
        return self.draw(self.gaps)

    def joined(self, items: list[str], left: str, right: str) -> str:
        text = left + self.gap()
        for number, item in enumerate(items):
            is_last = number == len(items) - 1
            ends = self.comments and is_last and self.draw(st.booleans())
            text += item + self.gap() + ("," if ends or not is_last else "") + self.gap()
        return text + right

    def value(self, depth: int = 2) -> str:
        kind = self.draw(st.integers(0, 3 if depth else 1))
        if kind < 2:
            return self.draw(SCALARS)
        count = self.draw(st.integers(0, 2))
        if kind == 2:
            return self.joined([self.value(depth - 1) for _ in range(count)], "[", "]")
        return self.object([(f"k{number}", self.value(depth - 1)) for number in range(count)])

    def object(self, members: list[tuple[str, str]]) -> str:
        items = [
            f"{json.dumps(key, ensure_ascii=False)}{self.gap()}:{self.gap()}{value}"
            for key, value in members
        ]
        return self.joined(items, "{", "}")


@st.composite
def json_files(draw: Any, servers: str, *, comments: bool) -> str:
    """A file of JSON: empty, or an object with or without servers in it, among other things."""
    pen = Pen(draw, comments=comments)
    bom = draw(st.sampled_from(["", "", "", "\ufeff"]))
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return bom + draw(st.sampled_from(["", " ", "\n", "\r\n\r\n"]))
    if kind == 1 and comments:
        return bom + draw(st.sampled_from(["// nothing yet", "/* nothing yet */\r\n"]))
    members = [(key, pen.value()) for key in draw(st.lists(st.sampled_from("pqr"), unique=True))]
    if draw(st.booleans()):
        inner = [(name, pen.value()) for name in draw(st.lists(NAMES, unique=True, max_size=3))]
        at = draw(st.integers(0, len(members)))
        members.insert(at, (servers, pen.object(inner)))
    return bom + pen.gap() + pen.object(members) + pen.gap()


TOML = [
    ("model", 'model = "gpt"'),
    ("limit", "limit = nan  # not a number"),
    ("list", 'list = [\n  "[mcp_servers.weather]", # no header\n  """]"""\n]'),
    ("text", 'text = """\n[mcp_servers.weather]\ncommand = 1\n"""'),
    ("raw", "raw = '''\n# \"\"\"\n'''"),
    ("quoted", '"a.b" = { c = "}" , d = [1, 2] }'),
    ("when", "when = 2026-01-31T12:00:00Z"),
]
TABLES = [
    ("profile", "[profile]\nname = 'x'"),
    ("deep", "[ profile . 'deep one' ]\nkey = 1"),
    ("rows", "[[rows]]\na = 1\n[[rows]]\na = 2"),
    (
        "git",
        '[mcp_servers.git]\ncommand = "uvx"\nargs = [\n  "git",\n]\n[mcp_servers.git.env]\nA = "b"',
    ),
    ("time", '[mcp_servers."time"]\ncommand = "uvx"'),
    ("near", '[mcp_servers.weather2]\nurl = "https://example.com"'),
    ("own", "[mcp_servers]\n"),
]


@st.composite
def toml_files(draw: Any) -> str:
    """A file of TOML, with tables of servers or without."""
    between = st.sampled_from(["", "\n", "\n\n", "# a comment\n", "  \t\n# two\n\n"])
    text = draw(between)
    for pool in (TOML, TABLES):
        keys = draw(st.lists(st.sampled_from(pool), unique_by=lambda one: one[0], max_size=4))
        # A table can be named after those below it, but not two times.
        keys.sort(key=lambda one: one[0] == "profile", reverse=True)
        for _, lines in keys:
            text += lines + draw(st.sampled_from(["\n", " # why\n"])) + draw(between)
    if draw(st.booleans()):
        text = text.rstrip("\n")
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return text
