"""Each value says where it came from: through which scopes, and by which reference."""

from pathlib import Path

import pytest

from colonnade.host.config.explain import explain, render
from colonnade.host.config.formats import SETTINGS
from colonnade.host.config.settings import Settings
from host.configured import Place

USER = '{"mcpServers": {"git": {"command": "uvx", "env": {"LOG": "${LOG:-user}"}}}, "projects": {\n'
LOCAL = '"%s": {"mcpServers": {\n"git": {"command": "mine", "env": {"LOG": "${LEVEL}"}}}}}}'
PROJECT = '{"mcpServers": {\n\n"git": {"command": "theirs", "env": {"LOG": "project"}}}}'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    (made.home / ".claude.json").write_text(USER + LOCAL % made.folder)
    made.write(".mcp.json", PROJECT)
    return made


def test_a_value_that_came_through_three_scopes_names_them_all(place: Place) -> None:
    reader = place.reader(trust=True, env={"LEVEL": "debug"})
    reader.read([place.folder / ".mcp.json", place.home / ".claude.json"])
    (git,) = explain(reader)
    value = next(one for one in git.values if one.name == "env.LOG")
    assert value.spot is not None
    found = [(spot.scope, Path(spot.file).name, spot.line) for spot in (value.spot, *value.over)]
    assert found == [
        ("local", ".claude.json", 3),
        ("project", ".mcp.json", 3),
        ("user", ".claude.json", 1),
    ]
    assert [(one.text, one.state) for one in value.references] == [("${LEVEL}", "set")]
    assert render([git], home=str(place.home), folder=str(place.folder)) == (
        "git  mine\n"
        "  command = mine\n"
        "      ~/.claude.json:3 (Claude Code, local)\n"
        "      overrides .mcp.json:3 (Claude Code, project)\n"
        "      overrides ~/.claude.json:1 (Claude Code, user)\n"
        "  env.LOG = ${LEVEL}\n"
        "      ~/.claude.json:3 (Claude Code, local)\n"
        "      overrides .mcp.json:3 (Claude Code, project)\n"
        "      overrides ~/.claude.json:1 (Claude Code, user)\n"
        "      ${LEVEL}: set\n"
        "\n"
    )


def test_a_file_that_is_not_trusted_is_explained_and_nothing_in_it_looked_at(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    place.write(".mcp.json", {"mcpServers": {"a": {"command": "run", "args": ["${LEVEL}"]}}})
    reader, trusting = place.reader(env={"LEVEL": "debug"}), place.reader(trust=True)
    for each in (reader, trusting):
        each.read(place.folder / ".mcp.json")
    assert explain(reader) == []
    (one,) = explain(reader, trusting)
    assert one.state == "untrusted"
    assert [each.state for value in one.values for each in value.references] == ["not checked"]


def test_settings_that_nobody_said_are_shown_for_who_asks(place: Place) -> None:
    place.write("colonnade.toml", '[defaults]\ntimeout_s = 5\n[servers.a]\ncommand = "run"\n')
    reader = place.reader()
    reader.read(place.folder / "colonnade.toml")
    (one,) = explain(reader, everything=True)
    settings = {value.name: value for value in one.values if value.name in SETTINGS}
    assert set(settings) == set(Settings.__struct_fields__)
    assert settings["timeout_s"].spot is not None
    assert settings["start_s"].spot is None
    assert settings["start_s"].value == "60"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("command = 5", "wrong"),
        ('command = "run"\nenabled = false', "off"),
        ('command = "run"', "used"),
    ],
)
def test_a_server_says_whether_it_is_used(place: Place, text: str, state: str) -> None:
    place.write("colonnade.toml", f"[servers.a]\n{text}\n")
    reader = place.reader()
    reader.read(place.folder / "colonnade.toml")
    assert [one.state for one in explain(reader)] == [state]


def test_every_setting_has_a_key_in_our_file() -> None:
    assert set(SETTINGS) == set(Settings.__struct_fields__)
