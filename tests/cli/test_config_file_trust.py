"""Whether a file is trusted after `colonnade add` and `colonnade remove` wrote into it.

Rules: the home is a folder of the test, and so is what is kept.
"""

from pathlib import Path

import pytest

from cli.commands.test_add import MOVED, OTHER, file_of, shown
from cli.process import WEATHER, written
from colonnade.cli.config_file import FileTrust
from colonnade.host.config.formats import FORMATS, file_path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with servers in it, a home beside them, and nothing that is trusted."""
    for name in MOVED:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "kept"))
    folder = tmp_path / "weather"
    folder.mkdir()
    return written(folder, server=WEATHER, other=OTHER)


ADD = "colonnade add server.py --to cursor --write --file mcp.json"
STAYS = (
    "colonnade: FOLDER/mcp.json was not trusted before, and is not now; review it, then run "
    "colonnade config trust FOLDER/mcp.json\n"
)
GIT = '{"mcpServers": {"git": {"command": "git-server"}}}'


def is_trusted(folder: Path, file: str = "mcp.json") -> bool:
    """Whether somebody would not be asked any more."""
    code, _, err = shown(folder, f"colonnade config trust {file}")
    assert (code, "already trusted" in err) in ((0, True), (1, False))
    return code == 0


@pytest.mark.parametrize("client", ["claude-code", "vscode", "cursor", "codex"])
def test_what_somebody_typed_into_a_new_file_needs_no_second_question(
    place: Path, client: str
) -> None:
    for typed in ("server.py", "other.py --env LOG=debug", "https://example.com/mcp"):
        add = f"colonnade add {typed} --to {client} --project --write"
        code, _, err = shown(place, add)
        assert (code, "trust" in err.replace("and trust it", "")) == (0, False)
        file = file_path(
            FORMATS[client], "project", platform="linux", home="", folder=str(place), env={}
        )
        assert is_trusted(place, file)
    code, _, err = shown(place, f"colonnade remove other --from {client} --project --write")
    assert (code, "trust" in err, is_trusted(place, file)) == (0, False, True)


def test_what_was_written_is_started_and_what_was_changed_since_is_not(place: Path) -> None:
    assert shown(place, ADD)[0] == 0
    call = "colonnade call mcp.json weather__add a=2 b=3"
    assert shown(place, call) == (0, "5\n", "")
    with (place / "mcp.json").open("a") as file:
        file.write(" ")
    code, _, err = shown(place, call)
    assert (code, "is not trusted" in err) == (2, True)


def test_adding_to_a_file_that_nobody_trusted_does_not_trust_it(place: Path) -> None:
    (place / "mcp.json").write_text(GIT)
    code, _, err = shown(place, ADD)
    assert (code, err.endswith(STAYS), is_trusted(place)) == (0, True, False)
    code, _, err = shown(place, ADD)  # which changes nothing
    assert (code, err.endswith(STAYS), is_trusted(place)) == (0, True, False)
    code, _, err = shown(place, "colonnade remove weather --from cursor --file mcp.json --write")
    assert (code, err.endswith(STAYS), is_trusted(place)) == (0, True, False)
    assert (place / "mcp.json").read_text() == GIT


def test_adding_to_a_file_that_was_trusted_as_it_was_keeps_the_trust(place: Path) -> None:
    (place / "mcp.json").write_text(GIT)
    assert shown(place, "colonnade config trust mcp.json --yes")[0] == 0
    code, _, err = shown(place, ADD)
    assert (code, "trust" in err, is_trusted(place)) == (0, False, True)
    code, _, err = shown(place, "colonnade remove weather --from cursor --file mcp.json --write")
    assert (code, "trust" in err, is_trusted(place)) == (0, False, True)


def test_adding_to_a_file_that_changed_since_it_was_trusted_does_not_trust_it(place: Path) -> None:
    assert shown(place, ADD)[0] == 0
    text = (place / "mcp.json").read_text()
    (place / "mcp.json").write_text(text.replace("run", "running"))
    code, _, err = shown(place, f"{ADD} --name more")
    assert (code, err.endswith(STAYS), is_trusted(place)) == (0, True, False)


def test_a_server_that_comes_to_light_by_a_removal_is_not_trusted(place: Path) -> None:
    hidden = '{"servers": {"evil": {"command": "evil"}}}'
    (place / "mcp.json").write_text(hidden)
    assert shown(place, ADD)[0] == 0
    code, _, err = shown(place, "colonnade config trust mcp.json --yes")
    assert (code, "evil" in err) == (0, False)  # it is not used, as long as there is another list
    code, _, err = shown(place, "colonnade remove weather --from cursor --file mcp.json --write")
    assert (place / "mcp.json").read_text() == hidden
    assert (code, err.endswith(STAYS), is_trusted(place)) == (0, True, False)


def test_what_another_wrote_meanwhile_is_not_trusted(place: Path) -> None:
    file = place / "mcp.json"
    standing = FileTrust(str(file), None)
    file.write_text(GIT)
    assert "was not trusted before" in standing.keep("{}", {"git": {"command": "git-server"}})
    assert not is_trusted(place)
    for read in (None, "{}"):  # and then it became this
        assert "was not trusted before" in FileTrust(str(file), read).keep(GIT)
        assert not is_trusted(place)


def test_an_env_file_that_changed_meanwhile_is_not_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    file = place / "mcp.json"
    file.write_text('{"servers": {"git": {"command": "git-server", "envFile": "x.env"}}}')
    (place / "x.env").write_text("A=1\n")
    assert shown(place, "colonnade config trust mcp.json --yes")[0] == 0
    assert FileTrust(str(file), file.read_text()).keep(file.read_text()) == ""
    standing = FileTrust(str(file), file.read_text())
    (place / "x.env").write_text("LD_PRELOAD=evil.so\n")
    assert "was not trusted before" in standing.keep(file.read_text())
    assert not is_trusted(place)


def test_a_file_in_a_place_of_the_users_own_is_not_spoken_of(place: Path) -> None:
    file = file_of(place, "cursor")
    file.parent.mkdir()
    file.write_text(GIT)
    code, _, err = shown(place, "colonnade add server.py --to cursor --write")
    assert (code, "trust" in err) == (0, False)
    assert not (place.parent / "kept").exists()


def test_trust_that_cannot_be_kept_is_told(place: Path) -> None:
    (place.parent / "kept").write_text("a file")
    code, _, err = shown(place, ADD)
    assert code == 0
    assert "FOLDER/mcp.json is not trusted: it cannot be stored in " in err
