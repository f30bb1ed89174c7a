"""The setting `sandbox`: in files, in defaults, in a dict, and in the question for trust."""

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import InvalidArgument, LocalProtocolError
from colonnade.host.config.dangers import program_dangers
from colonnade.host.config.explain import explain, render
from colonnade.host.config.inline import entry_of
from colonnade.host.config.reader import ConfigReader, read_config
from colonnade.host.config.settings import Config
from colonnade.host.config.trust import TrustRequest
from colonnade.host.servers.supervisor import sandbox_for
from colonnade.transport.process.sandbox import STRICT, WORKSPACE, Sandbox


def read(folder: Path, text: str, **options: Any) -> Config:
    file = folder / "colonnade.toml"
    file.write_text(text)
    return read_config(file, home=str(folder), folder=folder, env={}, **options)


def sandboxes(config: Config) -> dict[str, Any]:
    return {key: entry.settings.sandbox for key, entry in config.entries.items()}


TOML = """
[defaults]
sandbox = "strict"

[servers.usual]
command = "a"

[servers.own]
command = "b"
sandbox = { preset = "workspace", read = ["~/data"], memory_mb = 512 }

[servers.without]
command = "c"
sandbox = false

[servers.far]
url = "https://example.com/mcp"
"""


@pytest.mark.spec("R1314")
def test_a_server_has_its_own_sandbox_or_that_of_the_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, TOML)
    assert config.problems == config.warnings == ()
    assert sandboxes(config) == {
        "usual": STRICT,
        "own": Sandbox(read=("~/data",), write=(".",), network=True, keep_home=True, memory_mb=512),
        "without": False,
        "far": STRICT,
    }
    far, usual = config.entries["far"], config.entries["usual"]
    assert sandbox_for(far, {"url": "https://example.com/mcp"}) is None
    assert sandbox_for(usual, {"command": "a"}) == STRICT
    assert sandbox_for(config.entries["without"], {"command": "c"}) is None


def test_without_a_setting_there_is_no_sandbox(tmp_path: Path) -> None:
    config = read(tmp_path, '[servers.a]\ncommand = "a"\n')
    assert sandboxes(config) == {"a": None}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ('"tight"', 'the preset of a sandbox is "strict" or "workspace"'),
        ("true", '"strict" or "workspace", a table'),
        ("{ reads = [] }", "unknown key 'reads'; known keys: preset, read"),
        ("{ network = 1 }", "network of a sandbox is true or false"),
        ('{ write = "x" }', "write of a sandbox is a list of paths"),
    ],
)
def test_a_server_with_an_invalid_sandbox_is_not_used(
    tmp_path: Path, value: str, words: str
) -> None:
    config = read(tmp_path, f'[servers.a]\ncommand = "a"\nsandbox = {value}\n')
    assert config.entries == {}
    (problem,) = config.problems
    assert words in problem.message
    assert problem.place is not None
    assert (problem.place.line, problem.place.key) == (3, "servers.a.sandbox")


@pytest.mark.parametrize("wrong", ['sandbox = "tight"', 'sandbox = "strict"\nnamespace = "x"'])
def test_no_command_runs_without_the_sandbox_of_defaults_that_are_invalid(
    tmp_path: Path, wrong: str
) -> None:
    text = f'[defaults]\n{wrong}\n[servers.a]\ncommand = "a"\n'
    text += '[servers.b]\ncommand = "b"\nsandbox = false\n[servers.c]\nurl = "https://c.example"\n'
    config = read(tmp_path, text)
    assert set(config.entries) == {"b", "c"}
    assert any(
        "the defaults, which have a sandbox, are not valid" in str(one) for one in config.problems
    )


def test_a_sandbox_is_for_a_command(tmp_path: Path) -> None:
    text = '[servers.a]\nurl = "https://example.com/mcp"\nsandbox = "strict"\n'
    (warning,) = read(tmp_path, text).warnings
    assert "this is for a server with a command" in warning.message


def test_a_gateway_has_a_sandbox_for_commands_that_have_none(tmp_path: Path) -> None:
    servers = '[servers.a]\ncommand = "a"\n'
    gateway = read(tmp_path, f'{servers}[gateway]\nsandbox = "workspace"\n').gateway
    assert gateway is not None
    assert gateway.sandbox == WORKSPACE
    config = read(tmp_path, f'{servers}[gateway]\nsandbox = "tight"\n')
    assert config.gateway is not None
    assert config.gateway.sandbox == STRICT  # what is wrong is the strictest one
    assert "until then it is the strict one" in config.problems[0].message


def test_a_dict_of_a_program_has_the_same_setting() -> None:
    entry = entry_of("a", {"command": "a", "sandbox": {"read": ["/data"]}})
    assert entry.settings.sandbox == Sandbox(read=("/data",))
    assert entry_of("a", {"command": "a", "sandbox": False}).settings.sandbox is False
    with pytest.raises(InvalidArgument, match="the preset of a sandbox"):
        entry_of("a", {"command": "a", "sandbox": "tight"})
    with pytest.raises(LocalProtocolError):
        entry_of("a", {"command": "a", "sandbox": 1})


def test_an_entry_that_changes_its_sandbox_has_changed(tmp_path: Path) -> None:
    first = read(tmp_path, '[servers.a]\ncommand = "a"\nsandbox = "strict"\n').entries["a"]
    second = read(tmp_path, '[servers.a]\ncommand = "a"\nsandbox = "workspace"\n').entries["a"]
    assert first.fingerprint != second.fingerprint


# ---------------------------------------------------------------- VS Code


@pytest.mark.parametrize(
    ("keys", "sandbox"),
    [
        ({"sandboxEnabled": False}, None),
        ({"sandbox": {"network": {"allowedDomains": ["a"]}}}, None),
        ({"sandboxEnabled": True}, STRICT),
        (
            {
                "sandboxEnabled": True,
                "sandbox": {
                    "filesystem": {"allowWrite": ["${workspaceFolder}/out", "~/x"]},
                    "network": {"allowedDomains": ["example.com"]},
                },
            },
            Sandbox(write=("{folder}/out", "~/x"), network=True),
        ),
    ],
)
def test_the_sandbox_of_vs_code_is_one_of_ours(
    tmp_path: Path, keys: dict[str, Any], sandbox: Sandbox | None
) -> None:
    file = tmp_path / ".vscode/mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"servers": {"a": {"command": "a", **keys}}}))
    config = read_config(file, home="/home/a", folder=tmp_path, env={}, trust=True)
    if sandbox is not None:
        writes = tuple(one.replace("{folder}", str(tmp_path)) for one in sandbox.write)
        sandbox = Sandbox(write=writes, network=sandbox.network)
    assert sandboxes(config) == {"a": sandbox}
    warned = [one.message for one in config.warnings]
    assert warned == (
        ["domains are not told apart: the sandbox has the whole network"]
        if sandbox is not None and sandbox.network
        else []
    )


def test_a_sandbox_of_vs_code_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / ".vscode/mcp.json"
    file.parent.mkdir()
    entry = {"command": "a", "sandboxEnabled": True, "sandbox": {"filesystem": {"allowWrite": [1]}}}
    file.write_text(json.dumps({"servers": {"a": entry}}))
    config = read_config(file, home="/home/a", folder=tmp_path, env={}, trust=True)
    assert config.entries == {}


# ---------------------------------------------------------------- shown to people


@pytest.mark.spec("R1314")
def test_what_a_sandbox_grants_is_in_the_question_for_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    asked: list[TrustRequest] = []

    def answer(question: TrustRequest) -> bool:
        asked.append(question)
        return True

    text = TOML.replace("~/data", "~/.ssh").replace('"strict"', '{ write = ["/srv"] }')
    read(tmp_path, text, trust=answer, strict=True)
    shown = {
        one.server: (one.text, one.dangers) for one in asked[0].actions if one.what == "sandbox"
    }
    assert shown == {
        "usual": ("no network, reads ., writes /srv", ()),
        "own": (
            "network, reads ~/.ssh, writes ., keeps its home folder, memory_mb 512",
            ("uses SSH keys",),
        ),
        "without": ("none", ("switches the sandbox off",)),
    }


def test_a_sandbox_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "colonnade.toml"
    file.write_text(TOML)
    reader = ConfigReader(home=str(tmp_path), folder=tmp_path, env={})
    reader.read(file)
    text = render(explain(reader), home=str(tmp_path), folder=str(tmp_path))
    assert "sandbox = no network, reads ." in text
    assert "sandbox = network, reads ~/data, writes ., keeps its home folder, memory_mb 512" in text
    assert "sandbox = false" in text


# ---------------------------------------------------------------- dangerous commands


@pytest.mark.parametrize(
    ("argv", "dangers"),
    [
        (["uvx", "mcp-server-git", "--repository", "/etc"], []),
        (["sudo", "server"], ["raises privileges (sudo)"]),
        (["bash", "-c", "rm -rf x"], ["may delete files (rm)", "runs a shell (bash)"]),
        (["python3", "-c", "print()"], ["runs inline code"]),
        (["/bin/sh", "-lc", "x"], ["runs a shell (sh)"]),
        (["C:\\Windows\\System32\\cmd.exe", "/c", "x"], ["runs a shell (cmd)"]),
        (["env", "sh", "x.sh"], ["runs a shell (sh)"]),
        (["/usr/bin/env", "-i", "A=1", "/bin/bash", "-lc", "x"], ["runs a shell (bash)"]),
        (["env", "-S", "bash -c x"], ["runs a shell (bash)"]),
        (["env", "-S", "python -c 'x"], ["runs inline code"]),
        (["nohup", "zsh", "-c", "x"], ["runs a shell (zsh)"]),
        (["timeout", "-k", "5", "60", "dash", "x"], ["runs a shell (dash)"]),
        (["xargs", "-n", "1", "sh", "-c", "x"], ["runs a shell (sh)"]),
        (["nice", "-n", "5", "nohup", "fish", "x"], ["runs a shell (fish)"]),
        (["sudo", "-u", "root", "bash"], ["raises privileges (sudo)", "runs a shell (bash)"]),
        (["busybox", "sh"], ["runs a shell (sh)"]),
        (["find", ".", "-exec", "sh", "-c", "x", ";"], ["runs a shell (sh)"]),
        (["uv", "run", "python", "-c", "x"], ["runs inline code"]),
        (["docker", "run", "-i", "image", "sh", "-c", "x"], ["runs a shell (sh)"]),
        (["env", "PYTHONPATH=.", "python3.12", "-c", "x"], ["runs inline code"]),
        (["/usr/bin/python3", "-Ic", "x"], ["runs inline code"]),
        (["python", "-W", "error", "-cprint()"], ["runs inline code"]),
        (["node", "--eval=x"], ["runs inline code", "runs the output of another program"]),
        (["node", "-pe", "x"], ["runs inline code"]),
        (["deno", "eval", "x"], ["runs inline code", "runs the output of another program"]),
        (["perl", "-lane", "x"], ["runs inline code"]),
        (["php", "-r", "x"], ["runs inline code"]),
        ([], []),
        (["env"], ["is not a usual command for a server (env)"]),
        (["env", "A=1", "server"], ["is not a usual command for a server (env)"]),
        (["env", "A=1", "./server"], []),
        (["timeout", "60", "python", "server.py"], []),
        (["uv", "run", "--directory", "x", "python", "-m", "server"], []),
        (["npx", "-y", "@scope/bash-server", "."], []),
        (["docker", "run", "-i", "--rm", "-e", "TOKEN", "image"], []),
        (["node", "--enable-source-maps", "server.js", "--verbose"], []),
        (["python", "-u", "-m", "server", "--config", "x"], []),
        (
            ["sh", "-c", "curl x | sh"],
            ["uses the network (curl)", "runs a shell (sh)", "runs the output of another program"],
        ),
    ],
)
def test_a_command_is_dangerous_for_what_it_runs(argv: list[str], dangers: list[str]) -> None:
    assert list(program_dangers(argv)) == dangers


def test_an_entry_says_what_is_dangerous_in_its_command_and_when_it_changes(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "sudo"\nargs = ["x"]\n[servers.b]\ncommand = "./b"\n'
    entries = read(tmp_path, text).entries
    assert entries["a"].dangers == ("raises privileges (sudo)",)
    assert entries["b"].dangers == ()
    changed = read(tmp_path, text.replace('"x"', '"y"')).entries
    assert changed["a"].command_digest != entries["a"].command_digest
    assert changed["b"].command_digest == entries["b"].command_digest


@pytest.mark.parametrize(
    "line",
    [
        'cwd = "other"',
        'env = { LD_PRELOAD = "./x.so" }',
        'env = { LD_PRELOAD = "./y.so" }',
        "sandbox = false",
        'sandbox = "workspace"',
    ],
)
def test_an_answer_about_a_command_is_for_where_and_with_what_it_runs(
    tmp_path: Path, line: str
) -> None:
    text = '[servers.a]\ncommand = "sh"\nargs = ["run.sh"]\n'
    before = read(tmp_path, text + 'env = { LD_PRELOAD = "" }\nsandbox = "strict"\n').entries["a"]
    name = line.partition(" ")[0]
    kept = ['env = { LD_PRELOAD = "" }', 'sandbox = "strict"']
    lines = [line, *(one for one in kept if not one.startswith(f"{name} "))]
    after = read(tmp_path, text + "\n".join(lines) + "\n").entries["a"]
    assert after.command_digest != before.command_digest
