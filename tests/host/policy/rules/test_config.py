"""`[[policy]]` of `colonnade.toml`: what is read from it, and that an error in it denies."""

import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade import Host, RemoteError, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import (
    Config,
    ServerEntry,
    Settings,
)
from colonnade.host.policy.request import RuleSet
from colonnade.host.policy.rules.rules import CombinedPolicy, Policy, Rule
from colonnade.protocol import types as t
from host.policies import asked
from live import live

RULES = """
[servers.files]
command = "run"
trusted = true

[[policy]]
name = "no secrets"
tools = ["files__secret_*", "*__delete"]
action = "deny"

[[policy]]
servers = "files"
tools = "write"
action = "ask"
[policy.arguments]
path = "/srv/**"
amount = { max = 5 }
"user.name" = ["ann", "bob"]

[[policy]]
principals = "ann"
clients = "claude*"
claims = { groups = ["staff"] }
annotations = { readOnlyHint = true }
action = "allow"

[[policy]]
action = "deny"
"""


def policy_in(folder: Path, text: str, **options: Any) -> Any:
    file = folder / "colonnade.toml"
    file.write_text(text)
    return read_config(file, **options)


def action(policy: RuleSet, request: Any) -> str:
    return policy.decide(request).action


def test_rules_are_read_from_a_file_with_their_place(tmp_path: Path) -> None:
    config = policy_in(tmp_path, RULES)
    assert config.problems == ()
    assert config.warnings == ()
    policy = config.policy
    assert isinstance(policy, Policy)
    file = tmp_path / "colonnade.toml"
    assert policy.rules[0].label == f"rule 'no secrets' ({file}:6)"
    assert [one.label for one in policy.rules[1:]] == [f"{file}:{line}" for line in (11, 20, 27)]
    assert action(policy, asked("files__secret_x")) == "deny"
    arguments = {"path": "/srv/a", "amount": 3, "user": {"name": "bob"}}
    assert action(policy, asked("files__write", arguments)) == "ask"
    assert action(policy, asked("files__write", arguments | {"amount": 9})) == "deny"
    facts: Any = {
        "principal": "ann",
        "client": "claude-code",
        "claims": {"groups": ["staff"]},
        "annotations": t.ToolAnnotations(read_only_hint=True),
    }
    assert action(policy, asked("files__read", **facts, trusted=True)) == "allow"
    assert action(policy, asked("files__read", **facts, trusted=False)) == "deny"


def test_a_file_without_rules_has_no_policy(tmp_path: Path) -> None:
    assert policy_in(tmp_path, '[servers.a]\ncommand = "run"\n').policy is None


def test_without_a_last_rule_for_everything_the_default_is_ask(tmp_path: Path) -> None:
    policy = policy_in(tmp_path, '[[policy]]\ntools = "x"\naction = "deny"\n').policy
    assert action(policy, asked()) == "ask"


def test_a_policy_with_an_error_denies_everything(tmp_path: Path) -> None:
    config = policy_in(tmp_path, '[[policy]]\naction = "allow"\n[[policy]]\ntools = "x"\n')
    assert config.problems
    assert action(config.policy, asked()) == "deny"


def test_a_file_with_a_syntax_error_and_a_policy_denies_everything(tmp_path: Path) -> None:
    config = policy_in(tmp_path, '[[policy]]\naction = "deny"\ntools = oops\n')
    assert action(config.policy, asked()) == "deny"
    assert policy_in(tmp_path, "[servers.a]\ncommand = oops\n").policy is None


def test_an_error_in_a_test_leaves_the_policy_as_it_is(tmp_path: Path) -> None:
    text = '[[policy]]\naction = "allow"\n[[policy.test]]\nserver = "a"\n'
    config = policy_in(tmp_path, text)
    assert config.problems
    assert action(config.policy, asked()) == "allow"


def test_of_two_files_the_strictest_decision_counts(tmp_path: Path) -> None:
    own, project = tmp_path / "own", tmp_path / "project"
    own.mkdir()
    project.mkdir()
    (own / "colonnade.toml").write_text(
        '[[policy]]\ntools = "files__write"\naction = "deny"\n[[policy]]\naction = "allow"\n'
    )
    (project / "colonnade.toml").write_text(
        '[[policy]]\ntools = "files__read"\naction = "ask"\n[[policy]]\naction = "allow"\n'
    )
    for order in ([own, project], [project, own]):
        policy = read_config([folder / "colonnade.toml" for folder in order]).policy
        assert isinstance(policy, CombinedPolicy)
        assert action(policy, asked("files__write")) == "deny"
        assert action(policy, asked("files__read")) == "ask"
        assert action(policy, asked("git__log")) == "allow"


def test_a_file_that_is_not_trusted_has_no_influence(tmp_path: Path) -> None:
    text = '[servers.a]\ncommand = "run"\n[[policy]]\naction = "deny"\n'
    config = policy_in(tmp_path, text, strict=True)
    assert config.policy is None
    assert not config.entries
    assert policy_in(tmp_path, text, strict=True, trust=True).policy is not None


def test_an_included_file_has_no_policy(tmp_path: Path) -> None:
    (tmp_path / "more.toml").write_text(
        '[servers.a]\ncommand = "run"\n[[policy]]\naction = "allow"\n'
    )
    config = policy_in(tmp_path, 'include = ["more.toml"]\n')
    assert config.policy is None
    assert any("cannot have a policy" in str(problem) for problem in config.problems)


def test_a_policy_of_another_program_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"mcpServers": {}, "policy": [{"action": "allow"}]}')
    assert read_config(file, trust=True).policy is None


TINY = [
    sys.executable,
    "-m",
    "colonnade",
    "run",
    str(Path(__file__).parents[3] / "support/host/tiny.py"),
]
SERVERS = f"""
[servers.tiny]
command = '{TINY[0]}'
args = {TINY[1:]}
"""


@live
async def test_a_host_obeys_its_file_and_reads_it_again(tmp_path: Path) -> None:
    file = tmp_path / "colonnade.toml"
    file.write_text(SERVERS + '[[policy]]\ntools = "tiny__*"\naction = "allow"\n')
    async with Host.from_config(
        file, policy=Policy([Rule("deny", tools="*__secret")], "allow")
    ) as host:
        names = [one.name for one in await host.list_tools()]
        assert names
        version = host.policy.version if host.policy is not None else ""
        file.write_text(SERVERS + '[[policy]]\naction = "deny"\n')
        await host.reload()
        assert host.policy is not None
        assert host.policy.version != version
        assert await host.list_tools() == []
        with pytest.raises(RemoteError, match="there is no tool"):
            await host.call_tool(names[0])
        file.write_text(SERVERS + "[[policy]]\naction = permit\n")
        await host.reload()  # an error leaves the last valid policy
        assert await host.list_tools() == []
        file.write_text(SERVERS + '[[policy]]\naction = "allow"\n')
        await host.reload()
        assert [one.name for one in await host.list_tools()] == names


# ---------------------------------------------------------------- tables that need a restart


def one_server(reply: str = "reply", settings: Settings | None = None) -> dict[str, ServerEntry]:
    server = Server("a")

    @server.tool
    def look() -> str:
        return reply

    _ = look
    return {"a": entry_of("a", server, settings)}


@live
async def test_hidden_text_is_contained_after_a_reload_that_brings_rules() -> None:
    entries = one_server("re\u202eply")
    async with Host(Config(entries=entries)) as host:
        assert "\u202e" in (await host.call_tool("a__look")).text
        await host.reload(Config(entries=entries, policy=Policy(default="allow")))
        assert "\u202e" not in (await host.call_tool("a__look")).text
