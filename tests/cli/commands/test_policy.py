"""`colonnade policy`: what is typed, what is written, how it ends."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from cli.process import command
from colonnade.host.config.reader import read_config
from colonnade.host.policy.approvals.remembered import RememberedRule, write_rule
from colonnade.host.policy.request import server_identity

POLICY = """
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
arguments = { path = "/srv/**", size = { max = 10 } }
action = "ask"

[[policy]]
servers = "files"
claims = { groups = "staff" }
action = "allow"

[[policy]]
servers = "files"
annotations = { readOnlyHint = true }
action = "allow"

[[policy]]
requests = "sampling"
action = "deny"

[[policy]]
action = "deny"
"""
TESTS = """
[[policy.test]]
server = "files"
tool = "write"
arguments = { path = "/srv/a", size = 3 }
expect = "ask"

[[policy.test]]
server = "files"
tool = "read"
claims = { groups = ["staff"] }
expect = "allow"

[[policy.test]]
server = "files"
tool = "read"
trusted = false
annotations = { readOnlyHint = true }
expect = "deny"

[[policy.test]]
server = "files"
tool = "read"
request = "sampling"
expect = "deny"

[[policy.test]]
server = "files"
resource = "file:///a"
expect = "deny"

[[policy.test]]
server = "files"
prompt = "p"
principal = "ann"
client = "claude"
expect = "deny"
"""


def write(folder: Path, text: str = POLICY, name: str = "colonnade.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    done = command(folder, "policy", *words, COLONNADE_HOME=str(folder), HOME=str(folder))
    return done.returncode, done.stdout, done.stderr


def test_ls_shows_the_rules_in_their_order(tmp_path: Path) -> None:
    write(tmp_path)
    assert run(tmp_path, "ls", "colonnade.toml") == (
        0,
        """\
1  deny   line 6   'no secrets'  tools = ["files__secret_*","*__delete"]
2  ask    line 11  servers = "files"  tools = "write"  arguments = { path = "/srv/**", size = { max = 10 } }
3  allow  line 17  claims = { groups = "staff" }  servers = "files"
4  allow  line 22  servers = "files"  annotations = { readOnlyHint = true }
5  deny   line 27  requests = "sampling"
6  deny   line 31  everything
""",
        "",
    )


def test_ls_shows_the_default_and_warnings(tmp_path: Path) -> None:
    write(tmp_path, '[[policy]]\nservers = "x"\naction = "allow"\n')
    code, out, _ = run(tmp_path, "ls", "colonnade.toml")
    assert code == 0
    assert out.splitlines()[0] == '1  allow  line 1  servers = "x"'
    assert out.splitlines()[1].split() == ["ask", "everything", "else"]
    assert "no server of these files matches it (warning)" in out


def test_explain_says_which_line_decides_and_why_those_before_do_not(tmp_path: Path) -> None:
    write(tmp_path)
    code, out, err = run(tmp_path, "explain", "colonnade.toml", "files", "read")
    assert (code, err) == (0, "")
    assert (
        out
        == (
            "line 6   deny   no secrets  no: the tool 'files__read' does not match"
            " 'files__secret_*' or '*__delete'\n"
            "line 11  ask                no: the tool 'read' does not match 'write'\n"
            "line 17  allow              no: the claim 'groups' is not there\n"
            "line 22  allow              no: readOnlyHint is false\n"
            "line 27  deny               no: it is about what servers ask, not about tools/call\n"
            "line 31  deny               yes\n"
            "deny: colonnade.toml:31; the call is refused because of its arguments\n"
        )
        or "it is not listed" in out
    )


def last(tmp_path: Path, *words: str) -> str:
    code, out, err = run(tmp_path, "explain", "colonnade.toml", "files", *words)
    assert (code, err) == (0, "")
    return out.splitlines()[-1]


def test_explain_takes_arguments_callers_claims_hints_and_kinds(tmp_path: Path) -> None:
    write(tmp_path, f"{POLICY}\n[approvals]\n")
    asks = "ask: colonnade.toml:11; a person is asked"
    assert last(tmp_path, "write", "path=/srv/a", "size:=3") == asks
    assert last(tmp_path, "write", "path=/srv/a", "size:=30").startswith("deny: colonnade.toml:31")
    refused = "the call is refused because of its arguments"
    assert last(tmp_path, "write", "path=/srv/../a", "size:=3").endswith(refused)
    sent = "the call is sent"
    assert last(tmp_path, "read", "--claim", "groups=a", "--claim", "groups=staff").endswith(sent)
    assert last(tmp_path, "read", "--hint", "readOnlyHint=true").endswith(sent)
    assert "unknown name" in last(tmp_path, "delete", "--principal", "ann", "--client", "c")
    assert last(tmp_path, "read", "--kind", "sampling").startswith("deny: colonnade.toml:27")
    assert last(tmp_path, "read", "--kind", "elicitation").startswith("allow")
    assert last(tmp_path, "file:///x", "--kind", "resource").startswith("deny")


def test_explain_gives_json_for_programs(tmp_path: Path) -> None:
    file = write(tmp_path)
    code, out, _ = run(tmp_path, "explain", "colonnade.toml", "files", "delete", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["action"] == "deny"
    assert said["hidden"] is True
    assert said["rule"] == f"rule 'no secrets' ({file}:6)"
    assert said["steps"] == [
        {"rule": f"rule 'no secrets' ({file}:6)", "decides": "deny", "why": ""}
    ]


def test_explain_says_if_there_is_no_such_server(tmp_path: Path) -> None:
    write(tmp_path)
    code, _, err = run(tmp_path, "explain", "colonnade.toml", "file", "read")
    assert code == 2
    assert "there is no server file in colonnade.toml; did you mean files?" in err


def test_explain_decides_for_any_server_if_the_file_has_none(tmp_path: Path) -> None:
    write(tmp_path, '[[policy]]\nservers = "x"\naction = "allow"\n')
    code, out, err = run(tmp_path, "explain", "colonnade.toml", "x", "read")
    assert code == 0
    assert "allow: " in out
    assert "there is no server x in colonnade.toml" in err


def test_explain_takes_the_qualified_name_of_a_tool(tmp_path: Path) -> None:
    write(tmp_path)
    words = ("path=/srv/a", "size:=3")
    own = run(tmp_path, "explain", "colonnade.toml", "files", "write", *words)
    assert "ask: " in own[1]
    assert run(tmp_path, "explain", "colonnade.toml", "files", "files__write", *words) == own


def remember(folder: Path, **more: Any) -> RememberedRule:
    """Remember a decision about files__write, as a host with this configuration would."""
    entry = read_config(str(folder / "colonnade.toml"), trust=True).entries["files"]
    arguments = '{"path": "/srv/a", "size": 3}'
    given: dict[str, Any] = {
        "id": "4f2a91c0",
        "action": "allow",
        "scope": "always",
        "server": "files",
        "identity": server_identity(entry),
        "method": "tools/call",
        "name": "write",
        "qualified": "files__write",
        "created_at": 1.0,
        "definition_digest": "ab",
        "arguments_digest": hashlib.sha256(arguments.encode()).hexdigest(),
        "arguments": arguments,
    }
    rule = RememberedRule(**{**given, **more})
    write_rule(folder / "remembered", rule)
    return rule


NO_APPROVALS = (
    "  there is no [approvals] in it: without Host(inbox=…), or a terminal of colonnade chat, the "
    "call is refused\n"
)


def explained(folder: Path, *words: str) -> str:
    typed = words or ("path=/srv/a", "size:=3")
    code, shown, errors = run(folder, "explain", "colonnade.toml", "files", "write", *typed)
    assert (code, errors) == (0, "")
    return shown


def test_explain_shows_the_remembered_decision_that_answers_and_how_it_is_removed(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    assert explained(tmp_path).endswith(
        "ask: colonnade.toml:11; a person is asked\n" + NO_APPROVALS
    )
    remember(tmp_path)
    assert explained(tmp_path).endswith(
        "ask: colonnade.toml:11; a remembered decision answers, so the call is sent\n"
        '  rule 4f2a91c0: allow files__write with {"path": "/srv/a", "size": 3} '
        "(remembered: always)\n"
        "  it decides where the policy asks, for all hosts of this user, as long as its definition "
        "is the same\n"
        "  `colonnade policy forget 4f2a91c0` removes it\n"
    )
    remember(tmp_path, id="5f2a91c0", action="deny", scope="project", project=str(tmp_path))
    assert "a remembered decision answers, so the call is refused\n" in explained(tmp_path)
    _, shown, _ = run(
        tmp_path, "explain", "colonnade.toml", "files", "write", "path=/srv/a", "size:=3", "--json"
    )
    assert json.loads(shown)["remembered"]["id"] == "5f2a91c0"
    run(tmp_path, "forget", "5f2a91c0")
    run(tmp_path, "forget", "4f2a91c0")
    assert explained(tmp_path).endswith("a person is asked\n" + NO_APPROVALS)


@pytest.mark.parametrize(
    "other",
    [
        {"identity": "another program"},
        {"principal": "ann"},
        {"name": "read"},
        {"server": "shop"},
        {"method": "prompts/get"},
        {"scope": "project", "project": "/another/folder"},
        {"arguments": '{"path": "/srv/b"}', "arguments_digest": "00"},
        {"arguments": '{"path": "/srv/a", "size": 3.0}', "arguments_digest": "00"},
    ],
)
def test_explain_does_not_show_a_remembered_decision_of_another_call(
    tmp_path: Path, other: dict[str, str]
) -> None:
    write(tmp_path)
    remember(tmp_path, **other)
    assert explained(tmp_path).endswith("a person is asked\n" + NO_APPROVALS)


def test_explain_says_if_there_is_no_way_to_ask(tmp_path: Path) -> None:
    write(tmp_path)
    assert explained(tmp_path).endswith(NO_APPROVALS)
    write(tmp_path, f"{POLICY}\n[approvals]\n")
    assert explained(tmp_path).endswith("ask: colonnade.toml:11; a person is asked\n")
    write(tmp_path, POLICY.replace('action = "ask"', 'action = "deny"'))
    assert "[approvals]" not in explained(tmp_path)


def test_explain_shows_no_remembered_decision_where_a_rule_denies(tmp_path: Path) -> None:
    write(tmp_path, POLICY.replace('action = "ask"', 'action = "deny"'))
    remember(tmp_path)
    assert "remembered" not in explained(tmp_path)


def test_tests_of_a_policy_pass(tmp_path: Path) -> None:
    write(tmp_path, POLICY + TESTS)
    assert run(tmp_path, "test", "colonnade.toml") == (0, "6 of 6 tests passed\n", "")


def test_a_test_that_fails_says_where_and_which_rule_decides(tmp_path: Path) -> None:
    file = write(tmp_path, POLICY + TESTS.replace('expect = "ask"', 'expect = "allow"'))
    code, out, err = run(tmp_path, "test", "colonnade.toml")
    assert (code, err) == (1, "")
    assert out == f"{file}:34:1: expected allow, but {file}:11 says ask\n5 of 6 tests passed\n"
    code, out, _ = run(tmp_path, "test", "colonnade.toml", "--json")
    assert code == 1
    assert json.loads(out)["failures"][0]["action"] == "ask"


def test_tests_can_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, TESTS, "cases.toml")
    assert run(tmp_path, "test", "colonnade.toml", "cases.toml")[:2] == (0, "6 of 6 tests passed\n")
    write(tmp_path, TESTS.replace("expect", "expects"), "cases.toml")
    code, _, err = run(tmp_path, "test", "colonnade.toml", "cases.toml")
    assert code == 1
    assert "unknown key; did you mean expect?" in err


def test_a_file_without_tests_is_a_failure(tmp_path: Path) -> None:
    write(tmp_path)
    code, _, err = run(tmp_path, "test", "colonnade.toml")
    assert code == 1
    assert "has no tests; write tables [[policy.test]]" in err


def test_a_file_without_a_policy_and_one_with_errors_are_failures(tmp_path: Path) -> None:
    write(tmp_path, '[servers.a]\ncommand = "run"\n')
    code, _, err = run(tmp_path, "ls", "colonnade.toml")
    assert code == 1
    assert "colonnade.toml has no policy" in err
    file = write(tmp_path, '[[policy]]\naction = "permit"\n')
    code, _, err = run(tmp_path, "ls", "colonnade.toml")
    assert code == 1
    assert f"{file}:2:1: policy[0].action: expected one of" in err
    code, _, err = run(tmp_path, "explain", "nowhere.toml", "a", "b")
    assert code == 1
    assert "file not found" in err


def test_config_explain_and_check_know_the_policy(tmp_path: Path) -> None:
    write(tmp_path)
    done = command(tmp_path, "config", "check", "colonnade.toml", HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    done = command(tmp_path, "config", "trust", "colonnade.toml", "--yes", HOME=str(tmp_path))
    assert done.returncode == 0
    done = command(tmp_path, "config", "explain", "colonnade.toml", HOME=str(tmp_path))
    assert "colonnade.toml has a policy; colonnade policy ls colonnade.toml shows its rules" in (
        done.stdout
    )
    assert "trusted = true" in done.stdout
