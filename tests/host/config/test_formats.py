"""Where each program keeps its servers, on each platform, and how it wants them told."""

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.host.config.formats import FORMATS, HttpEntry, StdioEntry, encode_entry, file_path
from colonnade.host.config.reader import read_config

HOMES: dict[Any, str] = {"linux": "/home/you", "darwin": "/Users/you", "win32": r"C:\Users\you"}
PATHS = {
    ("claude-desktop", "linux"): "/home/you/.config/Claude/claude_desktop_config.json",
    ("claude-desktop", "darwin"): (
        "/Users/you/Library/Application Support/Claude/claude_desktop_config.json"
    ),
    ("claude-desktop", "win32"): (
        r"C:\Users\you\AppData\Roaming\Claude\claude_desktop_config.json"
    ),
    ("claude-code", "linux"): "/home/you/.claude.json",
    ("claude-code", "darwin"): "/Users/you/.claude.json",
    ("claude-code", "win32"): r"C:\Users\you\.claude.json",
    ("vscode", "linux"): "/home/you/.config/Code/User/mcp.json",
    ("vscode", "darwin"): "/Users/you/Library/Application Support/Code/User/mcp.json",
    ("vscode", "win32"): r"C:\Users\you\AppData\Roaming\Code\User\mcp.json",
    ("cursor", "linux"): "/home/you/.cursor/mcp.json",
    ("cursor", "darwin"): "/Users/you/.cursor/mcp.json",
    ("cursor", "win32"): r"C:\Users\you\.cursor\mcp.json",
    ("codex", "linux"): "/home/you/.codex/config.toml",
    ("codex", "darwin"): "/Users/you/.codex/config.toml",
    ("codex", "win32"): r"C:\Users\you\.codex\config.toml",
}
PROJECTS = {
    "claude-code": "/code/.mcp.json",
    "vscode": "/code/.vscode/mcp.json",
    "cursor": "/code/.cursor/mcp.json",
    "codex": "/code/.codex/config.toml",
}


def test_every_dialect_has_a_place_on_every_platform() -> None:
    assert set(PATHS) == {(client, platform) for client in FORMATS for platform in HOMES}


@pytest.mark.parametrize(("client", "platform"), PATHS)
def test_a_file_is_where_the_program_looks_for_it(client: str, platform: Any) -> None:
    home = HOMES[platform]
    found = file_path(FORMATS[client], "user", platform=platform, home=home, folder="x", env={})
    assert found == PATHS[client, platform]


@pytest.mark.parametrize("client", PROJECTS)
def test_a_project_has_its_own_file(client: str) -> None:
    found = file_path(
        FORMATS[client], "project", platform="linux", home="x", folder="/code", env={}
    )
    assert found == PROJECTS[client]


MOVED = {
    ("claude-desktop", "linux", "XDG_CONFIG_HOME"): "/else/Claude/claude_desktop_config.json",
    ("vscode", "linux", "XDG_CONFIG_HOME"): "/else/Code/User/mcp.json",
    ("vscode", "win32", "APPDATA"): r"/else\Code\User\mcp.json",
    ("claude-code", "darwin", "CLAUDE_CONFIG_DIR"): "/else/.claude.json",
    ("codex", "linux", "CODEX_HOME"): "/else/config.toml",
}


@pytest.mark.parametrize(("client", "platform", "variable"), MOVED)
def test_a_variable_moves_the_file(client: str, platform: Any, variable: str) -> None:
    env = {variable: "/else"}
    found = file_path(
        FORMATS[client], "user", platform=platform, home="/home/you", folder="x", env=env
    )
    assert found == MOVED[client, platform, variable]


STARTED = StdioEntry("run", ("a",), (("LOG", "debug"), ("TOKEN", None)))
REACHED = HttpEntry("https://example.com/mcp", (("X", "y"),), (("Authorization", "TOKEN"),))
ENTRIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "claude-code": (
        {
            "type": "stdio",
            "command": "run",
            "args": ["a"],
            "env": {"LOG": "debug", "TOKEN": "${TOKEN}"},
        },
        {
            "type": "http",
            "url": "https://example.com/mcp",
            "headers": {"X": "y", "Authorization": "${TOKEN}"},
        },
    ),
    "vscode": (
        {
            "type": "stdio",
            "command": "run",
            "args": ["a"],
            "env": {"LOG": "debug", "TOKEN": "${env:TOKEN}"},
        },
        {
            "type": "http",
            "url": "https://example.com/mcp",
            "headers": {"X": "y", "Authorization": "${env:TOKEN}"},
        },
    ),
    "cursor": (
        {"command": "run", "args": ["a"], "env": {"LOG": "debug", "TOKEN": "${env:TOKEN}"}},
        {
            "url": "https://example.com/mcp",
            "headers": {"X": "y", "Authorization": "${env:TOKEN}"},
        },
    ),
    "codex": (
        {"command": "run", "args": ["a"], "env": {"LOG": "debug"}, "env_vars": ["TOKEN"]},
        {
            "url": "https://example.com/mcp",
            "http_headers": {"X": "y"},
            "env_http_headers": {"Authorization": "TOKEN"},
        },
    ),
}


@pytest.mark.parametrize("client", ENTRIES)
def test_a_server_is_told_as_the_program_wants_it(client: str) -> None:
    started, reached = ENTRIES[client]
    assert encode_entry(FORMATS[client], STARTED) == started
    assert encode_entry(FORMATS[client], REACHED) == reached
    assert encode_entry(FORMATS[client], StdioEntry("run"))["command"] == "run"


def test_what_a_dialect_cannot_say_is_refused() -> None:
    desktop = FORMATS["claude-desktop"]
    with pytest.raises(ValueError, match="does not support URLs"):
        encode_entry(desktop, REACHED)
    with pytest.raises(ValueError, match="cannot refer to a variable"):
        encode_entry(desktop, STARTED)
    assert encode_entry(desktop, STARTED._replace(variables=(("A", "b"),))) == {
        "command": "run",
        "args": ["a"],
        "env": {"A": "b"},
    }


# ---------------------------------------------------------------- switched off

OFF = {
    "claude-desktop": ("Claude/claude_desktop_config.json", "mcpServers"),
    "claude-code": (".mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "cline": ("cline_mcp_settings.json", "mcpServers"),
}
SWITCHES: dict[str, tuple[dict[str, bool], bool]] = {
    "disabled": ({"disabled": True}, False),
    "not enabled": ({"enabled": False}, False),
    "both, which contradict each other": ({"disabled": True, "enabled": True}, False),
    "neither": ({}, True),
    "not disabled": ({"disabled": False}, True),
}


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("program", OFF)
def test_a_server_that_is_switched_off_in_any_file_is_not_used(
    program: str, switch: str, tmp_path: Path
) -> None:
    name, servers = OFF[program]
    said, used = SWITCHES[switch]
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    entry = {"command": "clock", **said, "autoApprove": ["now"], "alwaysAllow": []}
    file.write_text(json.dumps({servers: {"clock": entry}}))
    config = read_config(file, trust=True, home=str(tmp_path), folder=tmp_path, env={})
    assert [config.problems, config.warnings] == [(), ()]
    assert config.entries["clock"].settings.enabled is used


@pytest.mark.parametrize(
    ("name", "table"), [("colonnade.toml", "servers"), ("config.toml", "mcp_servers")]
)
def test_a_server_that_is_switched_off_in_a_file_of_toml_is_not_used(
    name: str, table: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(f'[{table}.clock]\ncommand = "clock"\ndisabled = true\n')
    config = read_config(file, trust=True, home=str(tmp_path), folder=tmp_path, env={})
    assert [config.problems, config.warnings] == [(), ()]
    assert config.entries["clock"].settings.enabled is False
