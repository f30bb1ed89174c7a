"""Whatever is in a file: a configuration comes out, each problem has its place, nothing is raised."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.host.config.explain import explain, line, render
from colonnade.host.config.formats import KEYS
from colonnade.host.config.reader import ConfigReader
from host.odd_files import json_files, toml_files

NAMES = [
    "claude_desktop_config.json",
    ".claude.json",
    ".mcp.json",
    ".vscode/mcp.json",
    ".cursor/mcp.json",
    "mcp.json",
]
TEXTS = st.sampled_from(
    ["run", "", "${A}", "${A:-b}", "${env:A}", "${input:a}", "${", "}${}", "a\0b", "\x1b", "日本"]
)
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([1e308, 10**400]) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)
EVERY_KEY = sorted({key for rows in KEYS.values() for key in rows})
SERVERS = st.dictionaries(
    TEXTS, st.dictionaries(st.sampled_from(EVERY_KEY), VALUES, max_size=6) | VALUES, max_size=3
)


def checked(name: str, data: bytes) -> None:
    with TemporaryDirectory() as root:
        file = Path(root, name)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        reader = ConfigReader(trust=True, env={"A": "a"}, home=root, folder=root)
        config = reader.read(file)
        for problem in (*config.problems, *config.warnings):
            assert problem.place is not None
            assert problem.place.line >= 1
            assert problem.place.column >= 1
            assert line(problem).isprintable()
        shown = render(explain(reader, everything=True), home=root, folder=root)
        assert shown.replace("\n", "").isprintable()


@given(st.sampled_from(NAMES), st.binary(max_size=60))
def test_any_bytes(name: str, data: bytes) -> None:
    checked(name, data)


@given(st.sampled_from(NAMES), json_files("mcpServers", comments=True))
def test_any_json(name: str, text: str) -> None:
    checked(name, text.encode())


@given(st.sampled_from([".codex/config.toml", "colonnade.toml", "x.toml"]), toml_files())
def test_any_toml(name: str, text: str) -> None:
    checked(name, text.encode())


@given(st.sampled_from(NAMES), st.sampled_from(["mcpServers", "servers"]), SERVERS, VALUES)
def test_any_server(name: str, key: str, servers: Any, inputs: Any) -> None:
    checked(name, json.dumps({key: servers, "inputs": inputs}).encode())


@pytest.mark.parametrize("digits", [500, 5000])
def test_a_number_that_is_too_long_is_a_problem(digits: int) -> None:
    number = "1" * digits
    for name in NAMES:
        checked(name, f'{{"mcpServers": {{"a": {{"command": {number}}}}}}}'.encode())
    for key in ("timeout_s", "max_sessions", "args"):
        checked("colonnade.toml", f"[servers.a]\n{key} = {number}\n".encode())


@pytest.mark.parametrize("text", ["[" * 5000, "a = " + "[" * 900 + "]" * 900, '{"a":' * 5000])
def test_what_is_too_deep_is_a_problem(text: str) -> None:
    checked("mcp.json", text.encode())
    checked("colonnade.toml", text.encode())
