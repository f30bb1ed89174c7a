"""`ls`, `doctor` and `chat` without a target: the configuration files of this folder."""

import json
import sys
from pathlib import Path

import pytest

from cli.process import WEATHER, command, written
from host.endpoint import Endpoint
from host.endpoint import said as hello

RUN = ["-P", "-m", "colonnade", "run"]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An empty home for a user."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    own = str(tmp_path / "home")
    return {"HOME": own, "COLONNADE_HOME": f"{own}/colonnade", "XDG_CONFIG_HOME": f"{own}/.config"}


def entry(folder: Path) -> dict[str, object]:
    written(folder, weather=WEATHER)
    return {"command": sys.executable, "args": [*RUN, str(folder / "weather.py")]}


def of_user(home: dict[str, str], folder: Path) -> None:
    """A file in a place of the user's own, which needs no trust."""
    file = Path(home["HOME"]) / ".claude.json"
    file.write_text(json.dumps({"mcpServers": {"mine": entry(folder)}}))


def of_project(folder: Path) -> Path:
    file = folder / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"theirs": entry(folder)}}))
    return file


@pytest.mark.parametrize("verb", ["ls", "doctor", "chat"])
def test_where_nothing_is_configured_it_is_said_what_to_type(
    verb: str, tmp_path: Path, home: dict[str, str]
) -> None:
    more = ["--model", "x", "--url", "http://127.0.0.1:9/v1"] if verb == "chat" else []
    done = command(tmp_path / "work", verb, *more, **home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "missing argument TARGET" in done.stderr


def test_ls_lists_what_is_configured_and_a_file_of_the_project_only_once_it_is_trusted(
    tmp_path: Path, home: dict[str, str]
) -> None:
    folder = tmp_path / "work"
    of_user(home, folder)
    file = of_project(folder)
    done = command(folder, "ls", "--json", **home)
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["servers"]) == ["mine"]
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["server"] == "theirs"
    assert "is not trusted" in problem["message"]
    assert command(folder, "config", "trust", str(file), "--yes", **home).returncode == 0
    done = command(folder, "ls", "--json", **home)
    assert sorted(json.loads(done.stdout)["servers"]) == ["mine", "theirs"]
    done = command(folder, "ls", "--server", "theirs", "--json", **home)
    assert list(json.loads(done.stdout)["servers"]) == ["theirs"]
    done = command(folder, "ls", "--server", "thiers", **home)
    words = "there is no server thiers in the configuration files of this folder; did you mean"
    assert words in done.stderr


def test_doctor_looks_at_what_is_configured(tmp_path: Path, home: dict[str, str]) -> None:
    of_user(home, tmp_path / "work")
    done = command(tmp_path / "work", "doctor", "--json", **home)
    assert done.returncode == 0, done.stdout
    assert [one["server"] for one in json.loads(done.stdout)["servers"]] == ["mine"]


def test_chat_uses_what_is_configured(tmp_path: Path, home: dict[str, str]) -> None:
    of_user(home, tmp_path / "work")
    with Endpoint([(200, {}, hello("Hello."))]) as endpoint:
        flags = ("--model", "tiny", "--url", endpoint.url)
        done = command(tmp_path / "work", "chat", *flags, input="Hello.\n", **home)
    assert (done.returncode, done.stdout) == (0, "Hello.\n"), done.stderr
    assert "may call 1 tool" in done.stderr


def test_an_empty_target_that_was_typed_is_none(tmp_path: Path, home: dict[str, str]) -> None:
    done = command(tmp_path / "work", "ls", "", **home)
    assert done.returncode == 2
    assert "TARGET is empty; leave it out" in done.stderr
