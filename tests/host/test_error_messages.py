"""Error messages for mistakes in configuration files: file, line, column, key, and the problem.

    pytest tests/host/test_error_messages.py --rewrite-transcripts

writes `mistakes.md` anew; what was written is then read by a person before it is kept.

Rules: no text has a value of the file in it, since any of them may be a secret.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from colonnade.host.config.reader import read_config
from host.configured import Place

GOLDEN = Path(__file__).with_name("mistakes.md")
HEAD = """\
# Mistakes in configuration files and their error messages

Written by `test_error_messages.py`, and reviewed. Every line says where: file, line, column, key.
A server with a mistake is not used, and the others are.
"""
CANARY = "canary-value"


class Mistake(NamedTuple):
    """A file with something wrong in it."""

    title: str
    name: str
    text: str


MISTAKES = [
    Mistake(
        "A trailing comma",
        "claude_desktop_config.json",
        '{"mcpServers": {\n  "a": {"command": "run"},\n}}',
    ),
    Mistake("A comment in plain JSON", ".mcp.json", '{\n  // mine\n  "mcpServers": {}\n}'),
    Mistake(
        "A missing comma",
        ".vscode/mcp.json",
        '{"servers": {\n  "a": {"command": "run"}\n  "b": {"command": "run"}\n}}',
    ),
    Mistake("An unterminated string", "mcp.json", '{"mcpServers": {\n  "a": {"command": "run}\n}}'),
    Mistake("A missing bracket", "mcp.json", '{"mcpServers": {"a": {"command": "run"}'),
    Mistake("Invalid TOML", ".codex/config.toml", "[mcp_servers.a]\ncommand = run\n"),
    Mistake(
        "A duplicate key in TOML",
        "colonnade.toml",
        '[servers.a]\ncommand = "run"\ncommand = "walk"\n',
    ),
    Mistake("A file that is not UTF-8", "mcp.json", "\udcff\udcfe"),
    Mistake("A file without servers", "mcp.json", '{"name": "package"}'),
    Mistake("An array instead of an object", "mcp.json", '["mcpServers"]'),
    Mistake("Servers as an array", "mcp.json", '{"mcpServers": [{"name": "a", "command": "run"}]}'),
    Mistake(
        "The key of another program",
        ".vscode/mcp.json",
        '{"mcpServers": {"a": {"command": "run"}}}',
    ),
    Mistake(
        "The key of VS Code elsewhere", ".cursor/mcp.json", '{"servers": {"a": {"command": "run"}}}'
    ),
    Mistake("A server that is not an object", "mcp.json", '{"mcpServers": {"a": "run --now"}}'),
    Mistake(
        "Neither a command nor a url", ".mcp.json", '{"mcpServers": {\n  "a": {"args": ["x"]}\n}}'
    ),
    Mistake(
        "Both a command and a url",
        "mcp.json",
        '{"mcpServers": {"a": {\n  "command": "run",\n  "url": "https://example.com"\n}}}',
    ),
    Mistake(
        "A whole command line as the command",
        "mcp.json",
        '{"mcpServers": {"a": {"command": ["uvx", "server"]}}}',
    ),
    Mistake("An empty command", "mcp.json", '{"mcpServers": {"a": {"command": " "}}}'),
    Mistake(
        "Arguments as one string",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run", "args": "--port 80"}}}',
    ),
    Mistake(
        "A number among the arguments",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run", "args": ["--port", 80]}}}',
    ),
    Mistake(
        "A number as an environment variable",
        ".mcp.json",
        '{"mcpServers": {"a": {"command": "run", "env": {"PORT": 80}}}}',
    ),
    Mistake(
        "Environment variables as an array",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run", "env": ["A=canary-value"]}}}',
    ),
    Mistake(
        "An invalid name of an environment variable",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run", "env": {"A=B": "canary-value"}}}}',
    ),
    Mistake(
        "An unknown type",
        "mcp.json",
        '{"mcpServers": {"a": {"type": "websocket", "url": "https://example.com"}}}',
    ),
    Mistake(
        "A type that contradicts the keys",
        "mcp.json",
        '{"mcpServers": {"a": {"type": "stdio", "url": "https://example.com"}, "b": {"type": "http", "command": "run"}}}',
    ),
    Mistake(
        "A URL without its scheme",
        "mcp.json",
        '{"mcpServers": {"a": {"url": "example.com/mcp"}}}',
    ),
    Mistake(
        "A URL with another scheme",
        ".vscode/mcp.json",
        '{"servers": {"a": {"url": "unix:///run/a.sock"}}}',
    ),
    Mistake(
        "A URL for Claude Desktop",
        "claude_desktop_config.json",
        '{"mcpServers": {"a": {"url": "https://example.com"}}}',
    ),
    Mistake(
        "A key of another type of server",
        "mcp.json",
        '{"mcpServers": {"a": {"url": "https://example.com", "args": ["x"]}}}',
    ),
    Mistake(
        "Unknown keys, with suggestions",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run", "arguments": [], "enviroment": {}, "disabled": true, "autoApprove": []}}}',
    ),
    Mistake(
        "A duplicate key",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run",\n "command": "walk"}}}',
    ),
    Mistake(
        "A duplicate server",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run"},\n "a": {"command": "walk"},\n "b": {"command": "run"}}}',
    ),
    Mistake(
        "A duplicate environment variable",
        "mcp.json",
        '{"mcpServers": {"a": {"command": "run", "env": {"A": "1",\n "A": "2"}}}}',
    ),
    Mistake(
        "A variable that is not set",
        ".mcp.json",
        '{"mcpServers": {"a": {"command": "run", "args": ["x",\n "${NOBODY_SET_THIS}"]}}}',
    ),
    Mistake(
        "A variable as VS Code writes it",
        ".mcp.json",
        '{"mcpServers": {"a": {"command": "run", "args": ["${env:SET}"]}}}',
    ),
    Mistake(
        "A variable as Claude Code writes it",
        ".cursor/mcp.json",
        '{"mcpServers": {"a": {"command": "run", "args": ["${SET}"]}}}',
    ),
    Mistake(
        "An unknown input",
        ".vscode/mcp.json",
        '{"inputs": [{"id": "key", "type": "promptString"}], "servers": {"a": {"command": "run", "args": ["${input:kye}"]}}}',
    ),
    Mistake(
        "Invalid inputs",
        ".vscode/mcp.json",
        '{"inputs": [\n {"id": "a"},\n {"type": "promptString"},\n {"id": "b", "type": "command", "command": "x"},\n {"id": "c", "type": "pickString"},\n 5], "servers": {}}',
    ),
    Mistake(
        "A missing env file",
        ".vscode/mcp.json",
        '{"servers": {"a": {"command": "run", "envFile": "${workspaceFolder}/.env"}}}',
    ),
    Mistake(
        "An invalid line in an env file",
        ".vscode/mcp.json",
        '{"servers": {"a": {"command": "run", "envFile": "${workspaceFolder}/odd.env"}}}',
    ),
    Mistake(
        "An invalid login",
        ".mcp.json",
        '{"mcpServers": {"a": {"type": "http", "url": "https://example.com", "oauth": {"clientId": 5, "callbackPort": 99999, "scopes": [1], "other": 1}}}}',
    ),
    Mistake(
        "Timeouts of Codex",
        ".codex/config.toml",
        '[mcp_servers.a]\ncommand = "run"\nstartup_timeout_sec = -1\ntool_timeout_sec = "60"\nenabled = "yes"\n',
    ),
    Mistake(
        "Headers of Codex",
        ".codex/config.toml",
        '[mcp_servers.a]\nurl = "https://example.com"\nheaders = { A = "canary-value" }\nhttp_headers = { B = 1 }\n',
    ),
    Mistake(
        "Settings of Colonnade",
        "colonnade.toml",
        '[servers.a]\ncommand = "run"\ntimeout_s = 0\nidle_s = "never"\nsharing = "everybody"\nmax_sessions = 1.5\nrevision = "2024-01-01"\nonly = "read_*"\nsampling = 1\naliases = ["x"]\ntimout_s = 5\n',
    ),
    Mistake(
        "References of Colonnade",
        "colonnade.toml",
        '[servers.a]\ncommand = "run"\n[servers.a.env]\nA = "${TOKEN}"\nB = "${keyring:only-one-part}"\nC = "${file:not-there}"\nD = "${env:NOBODY_SET_THIS}"\nE = "${oops"\nF = { command = "op read canary-value" }\nG = { run = ["x"] }\n',
    ),
    Mistake(
        "Tables of Colonnade",
        "colonnade.toml",
        'include = "a.json"\n[server.a]\ncommand = "run"\n[defaults]\nnamespace = "x"\ncommand = "run"\n',
    ),
    Mistake(
        "Rules of a policy",
        "colonnade.toml",
        """[[policy]]
action = "permit"
tool = "canary-value"

[[policy]]
tools = ["files__*", 5]

[[policy]]
action = "deny"
tools = "[canary-value"
servers = []
effect = "deny"
requests = ["canary-value"]
claims = "canary-value"
annotations = { readonlyHint = true, destructiveHint = "canary-value" }

[[policy]]
action = "ask"
[policy.arguments]
path = { least = 5 }
user = { name = "canary-value" }
amount = { min = "canary-value" }

[[policy]]
action = "deny"
tools = "[canary-value"
""",
    ),
    Mistake(
        "Arguments of a rule",
        "colonnade.toml",
        """[[policy]]
action = "deny"
tools = "files__[canary-value"

[[policy]]
action = "deny"
arguments = { amount = { min = "canary-value" } }

[[policy]]
action = "deny"
arguments = { amount = { min = 5, present = true }, "a..b" = 5 }
""",
    ),
    Mistake("A policy that is one table", "colonnade.toml", '[policy]\naction = "deny"\n'),
    Mistake(
        "A policy in a file with a syntax error",
        "colonnade.toml",
        "[[policy]]\naction = deny\n",
    ),
    Mistake(
        "A rule that is not reached, and one for a server that is not there",
        "colonnade.toml",
        '[servers.a]\ncommand = "run"\n[[policy]]\nservers = "b"\naction = "deny"\n'
        '[[policy]]\naction = "ask"\n[[policy]]\naction = "deny"\n',
    ),
    Mistake(
        "Tests of a policy",
        "colonnade.toml",
        """[[policy]]
action = "deny"
[[policy.test]]
server = "a"
expects = "deny"
[[policy.test]]
server = "a"
tool = "x"
expect = "canary-value"
trusted = "canary-value"
arguments = "canary-value"
""",
    ),
    Mistake(
        "An included file that does not exist", "colonnade.toml", 'include = ["not-there.json"]\n'
    ),
    Mistake(
        "Settings for an unknown server",
        "colonnade.toml",
        "[servers.gti]\ntimeout_s = 5\n",
    ),
]


def said(mistake: Mistake, place: Place) -> list[str]:
    file = place.folder / mistake.name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(mistake.text.encode("utf-8", "surrogateescape"))
    (place.folder / "odd.env").write_text(f"A=1\n{CANARY}\n")
    config = read_config(
        file,
        trust=True,
        on_input=lambda _: "",
        env={"SET": "1"},
        home=str(place.home),
        folder=place.folder,
    )
    lines = [*map(str, config.problems), *(f"{one} (a warning)" for one in config.warnings)]
    return [line.replace(f"{place.folder}/", "") for line in lines]


def test_every_mistake_has_its_place_and_its_words(
    tmp_path: Path, rewrite_transcripts: bool
) -> None:
    told = HEAD
    for number, mistake in enumerate(MISTAKES):
        root = tmp_path / str(number)
        root.mkdir()
        lines = said(mistake, Place(root))
        shown = mistake.text.encode("utf-8", "backslashreplace").decode()
        told += f"\n## {mistake.title}\n\n`{mistake.name}`\n\n```\n{shown.rstrip()}\n```\n\n"
        told += "".join(f"> {line}\n" for line in lines)
        assert lines
        for line in lines:
            place, *_ = line.split(": ")
            assert len(place.rsplit(":", 2)) == 3, line
            assert CANARY not in line
    if rewrite_transcripts:
        GOLDEN.write_text(told, "utf-8")
    assert told == GOLDEN.read_text("utf-8")


def test_a_file_that_is_not_there_is_a_problem_and_no_end(tmp_path: Path) -> None:
    config = read_config([tmp_path / "mcp.json", tmp_path])
    assert [problem.message for problem in config.problems] == [
        "file not found",
        "it cannot be read: Is a directory",
    ]


@pytest.mark.parametrize("name", ["mcp.json", ".claude.json", "colonnade.toml"])
def test_an_empty_file_has_no_servers(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    config = read_config(tmp_path / name)
    assert not config.problems
    assert not config.entries


def test_keys_of_servers_may_be_anything(tmp_path: Path) -> None:
    place = Place(tmp_path)
    keys = ["a b", "x.y", "時計", "", "a" * 300, 'quo"te', "__", "\x1b[2J"]
    servers: dict[str, Any] = {key: {"command": "run"} for key in keys}
    place.write("mcp.json", {"mcpServers": servers})
    assert list(place.read("mcp.json").entries) == keys
