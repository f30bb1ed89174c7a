"""`colonnade add` and `colonnade remove`: what is shown, what is written, and that nothing else is.

    pytest tests/cli/commands/test_add.py --rewrite-transcripts

writes the golden files in `add/` anew; what was written is then read by a person.

Rules: the home is a folder of the test, and no variable of the machine says otherwise.
"""

import json
import os
import shlex
import stat
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.process import WEATHER, command, written
from colonnade.cli.app import start
from colonnade.cli.commands.add import AddOptions, add_target, remove_name
from colonnade.cli.config_file import ConfigFileEditor
from colonnade.cli.errors import CliError
from colonnade.host.config.formats import FORMATS, file_path
from host.odd_files import SERVERS, json_files, toml_files

GOLDEN = Path(__file__).with_name("add")
# What a home may be moved by.
MOVED = ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "APPDATA")
SCRIPT = os.path.join(os.path.dirname(sys.executable), "colonnade")
OTHER = 'import mcp\n\nserver = mcp.FastMCP("x")\nserver.run()\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with servers in it, and a home beside them."""
    for name in MOVED:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    folder = tmp_path / "weather"
    folder.mkdir()
    (folder / "index.js").write_text("")
    return written(folder, server=WEATHER, other=OTHER)


def shown(folder: Path, typed: str, **more: str) -> tuple[int, str, str]:
    """The exit code and both outputs, the same on every machine."""
    done = command(folder, *shlex.split(typed)[1:], **more)
    out, err = _plain(folder, done.stdout, done.stderr)
    return done.returncode, out, err


def _plain(folder: Path, *texts: str) -> list[str]:
    home = str(folder.parent / "home")
    config = os.path.join(home, *_config())
    words = ((SCRIPT, "COLONNADE"), (sys.executable, "PYTHON"), (config, "CONFIG"))
    for long, short in (*words, (home, "HOME"), (str(folder), "FOLDER")):
        texts = tuple(text.replace(long, short) for text in texts)
    return list(texts)


def _config() -> list[str]:
    return ["Library", "Application Support"] if sys.platform == "darwin" else [".config"]


def file_of(folder: Path, client: str) -> Path:
    platform: Any = "darwin" if sys.platform == "darwin" else "linux"
    home = str(folder.parent / "home")
    return Path(
        file_path(FORMATS[client], "user", platform=platform, home=home, folder=str(folder), env={})
    )


# ---------------------------------------------------------------- what is shown

SHOWN = [
    "colonnade add server.py --to CLIENT",
    "colonnade add server.py:server --to CLIENT --name rain --env LOG=debug --env API_KEY",
    "colonnade add other.py --to CLIENT",
    "colonnade add index.js --to CLIENT --name js",
    "colonnade add --to CLIENT -- uvx --from 'a b' mcp-server-git --repository .",
    "colonnade add https://mcp.example.com/mcp --to CLIENT",
    (
        "colonnade add https://example.com/mcp --to CLIENT --name rain -H 'X-Team: a' "
        "--header-env Authorization=TOKEN"
    ),
    "colonnade add server.py --to CLIENT --project",
]


@pytest.mark.parametrize("client", FORMATS)
def test_every_client_is_shown_its_entry_and_where_it_belongs(
    place: Path, client: str, rewrite_transcripts: bool
) -> None:
    text = ""
    tools = place.parent / "tools"
    tools.mkdir()
    (tools / "uvx").write_text("#!/bin/sh\n")
    (tools / "uvx").chmod(0o755)
    for typed in SHOWN:
        typed = typed.replace("CLIENT", client)
        code, out, err = shown(place, typed, API_KEY="s3cret-value", PATH=str(tools))
        text += f"$ {typed}\n{out}{err}" + (f"(exit code {code})\n" if code else "") + "\n"
        assert "s3cret" not in out + err
        if out and FORMATS[client].syntax == "toml":
            assert tomllib.loads(out)
        elif out:
            assert json.loads(out)
    golden = GOLDEN / f"{client}.txt"
    if rewrite_transcripts:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
    assert not list((place.parent / "home").iterdir())


@pytest.mark.parametrize("client", FORMATS)
def test_what_is_shown_starts_a_server(place: Path, client: str) -> None:
    done = command(place, "add", "server.py", "--to", client)
    whole = tomllib.loads(done.stdout) if client == "codex" else json.loads(done.stdout)
    entry = whole[FORMATS[client].servers]["weather"]
    elsewhere = place.parent / "home"
    ran = command(elsewhere, "call", "add", "a=2", "b=3", "--", entry["command"], *entry["args"])
    assert (ran.returncode, ran.stdout) == (0, "5\n")


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("client", FORMATS)
def test_an_entry_is_written_and_taken_out_again(place: Path, client: str) -> None:
    file = file_of(place, client)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = 'model = "x" # mine\r\n' if client == "codex" else '{\r\n\t"a": {"b": [1, 2]}\r\n}'
    file.write_bytes(text.encode())
    os.chmod(file, 0o640)
    code, out, err = shown(place, f"colonnade add server.py --to {client} --write")
    where = str(file).replace(str(place.parent / "home"), "HOME").replace("HOME/.config", "CONFIG")
    where = where.replace("HOME/Library/Application Support", "CONFIG")
    assert (code, out) == (0, "")
    assert err == (
        f"colonnade: added weather to {where} (backup: "
        f"{where}.before-weather); {FORMATS[client].afterwards}\n"
    )
    assert b'"COLONNADE"' in file.read_bytes().replace(SCRIPT.encode(), b"COLONNADE")
    kept = file.with_name(file.name + ".before-weather")
    assert kept.read_bytes() == text.encode()
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(kept.stat().st_mode) == 0o640

    code, out, err = shown(place, f"colonnade remove weather --from {client} --write")
    assert (code, out) == (0, "")
    assert err == f"colonnade: removed weather from {where}, which is as it was before\n"
    assert file.read_bytes() == text.encode()
    assert [one.name for one in file.parent.iterdir() if one.is_file()] == [file.name]


def test_what_somebody_else_wrote_is_kept_when_it_goes(place: Path) -> None:
    text = '{"mcpServers": {"git": {"command": "uvx"}, "time": {"command": "uvx"}}}'
    (place / "mcp.json").write_text(text)
    assert shown(place, "colonnade remove git --from cursor --file mcp.json --write") == (
        0,
        "",
        (
            "colonnade: removed git from FOLDER/mcp.json (backup: "
            "FOLDER/mcp.json.before-git)\n"
            "colonnade: FOLDER/mcp.json was not trusted before, and is not now; review it, "
            "then run colonnade config trust FOLDER/mcp.json\n"
        ),
    )
    assert (place / "mcp.json").read_text() == '{"mcpServers": { "time": {"command": "uvx"}}}'
    assert (place / "mcp.json.before-git").read_text() == text


def test_a_file_that_was_not_there_comes_and_goes(place: Path) -> None:
    file = file_of(place, "cursor")
    code, _, err = shown(place, "colonnade add server.py --to cursor --write")
    assert code == 0
    assert err == (
        "colonnade: added weather to HOME/.cursor/mcp.json; "
        "switch it on in the settings of Cursor, under MCP\n"
        "colonnade: its directory did not exist, and was created: is Cursor installed?\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert shown(place, "colonnade remove weather --from cursor") == (
        0,
        "",
        "colonnade: weather is in HOME/.cursor/mcp.json; --write removes it\n",
    )
    assert file.read_bytes() == before
    assert shown(place, "colonnade remove weather --from cursor --write") == (
        0,
        "",
        (
            "colonnade: removed weather from HOME/.cursor/mcp.json and deleted the file, which had no "
            "other content\n"
        ),
    )
    assert list(file.parent.iterdir()) == []


def test_the_same_entry_twice_is_one_and_another_one_needs_a_word(place: Path) -> None:
    add = "colonnade add server.py --to cursor --write --file mcp.json"
    assert shown(place, add)[0] == 0
    before = (place / "mcp.json").read_bytes()
    assert shown(place, add) == (
        0,
        "",
        "colonnade: weather is already in FOLDER/mcp.json, with the same entry\n",
    )
    code, out, err = shown(place, f"{add} --env LOG=debug")
    assert (code, out) == (2, "")
    assert err == (
        "colonnade: FOLDER/mcp.json already has a server weather; --replace replaces it, "
        "--name adds this one under another name\n"
    )
    assert (place / "mcp.json").read_bytes() == before
    assert shown(place, f"{add} --env LOG=debug --replace")[0] == 0
    assert json.loads((place / "mcp.json").read_text())["mcpServers"]["weather"]["env"] == {
        "LOG": "debug"
    }


def test_several_servers_go_in_any_order(place: Path) -> None:
    text = '{\n  // mine\n  "servers": {\n    "git": {"command": "uvx"}, // keep\n  },\n}\n'
    (place / "mcp.json").write_text(text)
    for name in ("one", "two", "three"):
        done = command(
            place, *f"add server.py --to vscode --file mcp.json --write --name {name}".split()
        )
        assert done.returncode == 0
    for name in ("two", "one", "three"):
        done = command(place, *f"remove {name} --from vscode --file mcp.json --write".split())
        assert done.returncode == 0
    assert (place / "mcp.json").read_text() == text


def test_a_link_is_followed_and_stays_one(place: Path) -> None:
    real = place.parent / "dotfiles.json"
    real.write_text("{}")
    link = place / "mcp.json"
    link.symlink_to(real)
    assert shown(place, "colonnade add server.py --to cursor --write --file mcp.json")[0] == 0
    assert link.is_symlink()
    assert "weather" in json.loads(real.read_text())["mcpServers"]
    assert shown(place, "colonnade remove weather --from cursor --file mcp.json --write")[0] == 0
    assert link.is_symlink()
    assert real.read_text() == "{}"


@pytest.mark.parametrize("linked", ["file", "folder", "new file"])
def test_no_link_leads_out_of_a_project(place: Path, linked: str) -> None:
    outside = place.parent / "outside"
    outside.mkdir()
    real = outside / "mcp.json"
    if linked != "new file":
        real.write_text('{"mcpServers": {"git": {"command": "uvx"}}}')
    if linked == "folder":
        (place / ".cursor").symlink_to(outside)
    else:
        (place / ".cursor").mkdir()
        (place / ".cursor/mcp.json").symlink_to(real)
    before = {file.name: file.read_bytes() for file in outside.iterdir()}
    for typed in ("add server.py --to cursor", "remove git --from cursor"):
        code, out, err = shown(place, f"colonnade {typed} --project --write")
        assert (code, out) == (1, "")
        assert ".cursor/mcp.json is a symbolic link out of this project, to " in err
        assert "use --file " in err
    assert {file.name: file.read_bytes() for file in outside.iterdir()} == before


def test_a_link_within_a_project_is_followed(place: Path) -> None:
    (place / "shared").mkdir()
    (place / ".cursor").symlink_to(place / "shared")
    assert shown(place, "colonnade add server.py --to cursor --project --write")[0] == 0
    assert "weather" in json.loads((place / "shared/mcp.json").read_text())["mcpServers"]


def test_a_value_of_the_environment_is_in_the_file_only_where_it_must_be(place: Path) -> None:
    for client in FORMATS:
        typed = f"colonnade add server.py --to {client} --env API_KEY --write"
        code, out, err = shown(place, typed, API_KEY="s3cret-value")
        assert (code, out) == (0, "")
        assert "s3cret" not in err
        has_it = "s3cret-value" in file_of(place, client).read_text()
        assert has_it == (client == "claude-desktop")
        assert ("plain text" in err) == has_it


# ---------------------------------------------------------------- what is not written


BROKEN = {
    "cursor": (
        '{"mcpServers": {\n  "a": {"command": "x"}\n  "b": {}\n}}',
        "line 3, column 3",
        "expected a comma or }",
    ),
    "claude-desktop": (
        '{"mcpServers": {\n  "a": {"command": "x"},\n}}',
        "line 2, column 24",
        "trailing commas are not allowed in this file",
    ),
    "codex": ("a = 1\nb = [\n", "line 3, column 1", "invalid value"),
}


@pytest.mark.parametrize("client", BROKEN)
@pytest.mark.parametrize("typed", ["add server.py --write --to", "remove weather --from"])
def test_a_broken_file_is_told_with_its_place_and_left_alone(
    place: Path, client: str, typed: str
) -> None:
    text, where, why = BROKEN[client]
    (place / "mcp.json").write_text(text)
    found = shown(place, f"colonnade {typed} {client} --file mcp.json")
    assert found == (
        1,
        "",
        f"colonnade: FOLDER/mcp.json, {where}: {why}; nothing was written\n",
    )
    assert (place / "mcp.json").read_text() == text
    assert not (place / "mcp.json.before-weather").exists()


def test_a_file_that_is_no_text_is_left_alone(place: Path) -> None:
    (place / "mcp.json").write_bytes(b'{\n  "a": "\xff"}')
    found = shown(place, "colonnade add server.py --to cursor --write --file mcp.json")
    assert found == (
        1,
        "",
        "colonnade: FOLDER/mcp.json, line 2, column 9: not valid UTF-8; nothing was written\n",
    )


def test_a_file_that_changed_meanwhile_is_left_alone(place: Path) -> None:
    file = ConfigFileEditor(str(place / "mcp.json"))
    (place / "mcp.json").write_text("{}")
    old = file.read()
    (place / "mcp.json").write_text('{"somebody": "else"}')
    with pytest.raises(CliError, match="was changed by another program; nothing was written"):
        file.replace("weather", "{ }", old=old)
    assert (place / "mcp.json").read_text() == '{"somebody": "else"}'
    assert not list(place.glob(".colonnade-*"))


def test_a_file_that_came_meanwhile_is_left_alone(place: Path) -> None:
    file = ConfigFileEditor(str(place / "mcp.json"))
    assert file.read() is None
    (place / "mcp.json").write_text("{}")
    with pytest.raises(CliError, match="was changed by another program"):
        file.replace("weather", "{ }")
    assert (place / "mcp.json").read_text() == "{}"


TOLD = {
    "colonnade add server.py": (
        "missing option --to; clients are claude-desktop, claude-code, vscode, cursor, codex"
    ),
    "colonnade add --to cursor": "missing argument TARGET; for example: colonnade add server.py",
    "colonnade add sever.py --to cursor": "there is no file sever.py; did you mean server.py?",
    "colonnade add server.py --to curser": "there is no client curser; did you mean cursor?",
    "colonnade add server.py --to emacs": (
        "there is no client emacs; clients are claude-desktop, claude-code, vscode, cursor, codex"
    ),
    "colonnade add tools.server --to cursor": (
        "tools.server is a module, which is found from one directory only, and clients start "
        "servers in any directory; give its file"
    ),
    "colonnade add server.py --to cursor --name 'a b'": (
        "a b is not a name that every client accepts; use letters, digits, - and _, at most 64: "
        "--name a-b"
    ),
    "colonnade add server.py --to cursor --replace": ("--replace is only for --write"),
    "colonnade add server.py --to claude-desktop --project": (
        "Claude Desktop has no project file; leave out --project"
    ),
    "colonnade add server.py --to cursor --project --file x": (
        "--file and --project exclude each other"
    ),
    "colonnade add server.py --to claude-desktop --env NO_SUCH_ONE": (
        "--env NO_SUCH_ONE: the environment variable is not set; give NO_SUCH_ONE=VALUE"
    ),
    "colonnade add server.py --to cursor --env 'a b=c'": "--env: expected NAME or NAME=VALUE",
    "colonnade add server.py --to cursor -H 'a: b'": (
        "--header is for URLs; use --env for a server that is started as a process"
    ),
    "colonnade add https://example.com/mcp --to cursor --env A=b": (
        "--env is for servers that are started as a process; this target is a URL"
    ),
    "colonnade add https://example.com/mcp --to cursor --header-env Authorization": (
        "--header-env: expected NAME=VARIABLE, such as Authorization=TOKEN"
    ),
    "colonnade add --to cursor --": (
        "-- must be followed by the command that starts the server; for example -- uvx mcp-server-git"
    ),
    "colonnade remove": "missing argument NAME; for example: colonnade remove NAME --from claude-code",
    "colonnade remove weather": (
        "missing option --from; clients are claude-desktop, claude-code, vscode, cursor, codex"
    ),
    "colonnade remove weather --from cursor": (
        "there is no file HOME/.cursor/mcp.json, and so no server weather"
    ),
    "colonnade remove wether --from cursor --file has.json": (
        "there is no server wether in FOLDER/has.json; did you mean weather?"
    ),
    "colonnade remove x --from cursor --file has.json": (
        "there is no server x in FOLDER/has.json; servers are weather"
    ),
}


@pytest.mark.parametrize("typed", TOLD)
def test_what_is_typed_wrongly_is_told_what_it_should_be(
    place: Path, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    (place / "has.json").write_text('{"mcpServers": {"weather": {}}}')
    assert start(shlex.split(typed)[1:]) == 2
    said = capsys.readouterr()
    assert _plain(place, said.out, said.err) == ["", f"colonnade: {TOLD[typed]}\n"]


WARNED = {
    "colonnade add server.py --to cursor --env API_KEY=abc": (
        "API_KEY looks like a secret, and is plain text in the file; "
        "--env API_KEY refers to your environment variable"
    ),
    "colonnade add server.py --to claude-desktop --env API_KEY=abc": (
        "API_KEY looks like a secret, and is plain text in the file"
    ),
    "colonnade add --to cursor -- PYTHON -m git --token abcdefgh": (
        "an argument looks like a secret: it is plain text in the file, and visible in the "
        "list of processes; use --env if the server supports it"
    ),
    "colonnade add 'https://example.com/mcp?api_key=abc' --to cursor": (
        "the URL seems to contain a secret, which is plain text in the file; "
        "--header-env NAME=VARIABLE refers to an environment variable"
    ),
    "colonnade add https://example.com/mcp --to cursor -H 'Authorization: Bearer abcdefgh'": (
        "the header Authorization is plain text in the file; "
        "--header-env Authorization=VARIABLE refers to an environment variable"
    ),
    "colonnade add --to cursor -- PYTHON other.py": (
        "other.py is a relative path, and clients start servers in any directory; "
        "use FOLDER/other.py"
    ),
    "colonnade add --to cursor -- nothing-like-this": (
        "there is no command nothing-like-this on PATH"
    ),
}


@pytest.mark.parametrize("typed", WARNED)
def test_what_a_person_should_know_is_said(
    place: Path, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    assert start(shlex.split(typed.replace("PYTHON", sys.executable))[1:]) == 0
    said = capsys.readouterr()
    out, err = _plain(place, said.out, said.err)
    assert out
    assert err.splitlines()[0] == f"colonnade: {WARNED[typed]}"
    assert len(err.splitlines()) == 2


# ---------------------------------------------------------------- any file, on a disk


@pytest.mark.parametrize("client", ["claude-desktop", "vscode", "cursor", "codex"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_add_and_remove_leave_any_file_as_it_was_to_the_byte(client: str, data: Any) -> None:
    texts = (
        toml_files()
        if client == "codex"
        else json_files(SERVERS[client], comments=FORMATS[client].syntax == "jsonc")
    )
    text = data.draw(st.none() | texts)
    envs = data.draw(st.sampled_from([(), ("LOG=debug", 'A="q\\'), ("B=日本",)]))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config")
        if text is not None:
            file.write_bytes(text.encode())
        wish = AddOptions(("server", "--flag"), client, "weather", envs, file=str(file), write=True)
        assert add_target(wish) == 0
        assert remove_name("weather", client, str(file), project=False, write=True) == 0
        assert (file.read_bytes().decode() if file.exists() else None) == text
        assert os.listdir(folder) == ([] if text is None else [file.name])
