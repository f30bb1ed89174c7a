"""The identity of a server, which pins, approvals and remembered decisions are bound to: the same
words of a command are another server if they name files of another folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli.commands.chat import servers_of
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.terminal import Terminal
from colonnade.host.config.inline import entry_of
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import ServerEntry
from colonnade.host.policy.pins.pin_guard import pinned_identity
from colonnade.host.policy.request import server_identity


@pytest.fixture
def projects(tmp_path: Path) -> tuple[Path, Path]:
    """Two projects with files of the same names."""
    made = tmp_path / "one", tmp_path / "other"
    for folder in made:
        (folder / "market").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "npx").mkdir()
        for file in ("shop.py", "market/stall.py", "bin/shop"):
            (folder / file).write_text("")
    return made


def from_toml(folder: Path, words: list[str], more: str = "") -> ServerEntry:
    path = folder / "colonnade.toml"
    path.write_text(f"[servers.a]\ncommand = {words[0]!r}\nargs = {words[1:]!r}\n{more}")
    return read_config(path, trust=True).entries["a"]


def from_vscode(folder: Path, words: list[str]) -> ServerEntry:
    path = folder / ".vscode" / "mcp.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"servers": {"a": {"command": words[0], "args": words[1:]}}}))
    return read_config(path, trust=True).entries["a"]


def from_dict(folder: Path, words: list[str]) -> ServerEntry:
    return entry_of("a", {"command": words[0], "args": words[1:], "cwd": str(folder)})


def same(one: ServerEntry, other: ServerEntry) -> bool:
    found = server_identity(one) == server_identity(other)
    assert found == (pinned_identity(one) == pinned_identity(other))
    return found


makers = pytest.mark.parametrize("make", [from_toml, from_dict])


@makers
@pytest.mark.parametrize(
    "words",
    [
        ["python", "shop.py"],
        ["python", "./shop.py"],
        ["python", "./market"],
        ["python", "-m", "shop"],
        ["python", "-m", "market"],
        ["python", "-m", "market.stall"],
        ["colonnade", "run", "shop.py"],
        ["colonnade", "run", "shop.py:server"],
        ["uv", "--directory=./market", "run", "server"],
        ["bin/shop"],
    ],
    ids=" ".join,
)
def test_the_same_words_in_two_folders_are_two_servers(
    projects: tuple[Path, Path], make: Any, words: list[str]
) -> None:
    one, other = (make(folder, words) for folder in projects)
    assert not same(one, other)
    assert same(one, make(projects[0], words))


@makers
@pytest.mark.parametrize(
    "words",
    [
        ["npx", "-y", "server"],
        ["npx", "-y", "market"],
        ["uvx", "server", "--db", "shop.db"],
        ["npx", "-y", "@scope/server"],
        ["uvx", "server", "https://shop.example/a:b"],
        ["python", "-m", "installed.server"],
        ["python", "/nowhere/shop.py"],
        ["python", "--verbose=", ":x", ""],
    ],
    ids=" ".join,
)
def test_words_that_look_like_no_program_of_the_folder_are_one_server_everywhere(
    projects: tuple[Path, Path], make: Any, words: list[str]
) -> None:
    one, other = (make(folder, words) for folder in projects)
    assert one.local_paths == ()
    assert same(one, other)


@makers
def test_a_file_that_a_server_makes_does_not_make_it_another_one(
    projects: tuple[Path, Path], make: Any
) -> None:
    words = ["npx", "-y", "stall", "--db", "stall.db"]
    before = make(projects[0], words)
    for name in ("-y", "stall", "--db", "stall.db"):
        (projects[0] / name).write_text("")
    assert same(before, make(projects[0], words))


def test_an_absolute_path_is_the_same_in_each_folder(projects: tuple[Path, Path]) -> None:
    words = ["python", str(projects[0] / "shop.py")]
    assert same(*(from_toml(folder, words) for folder in projects))


def test_the_working_folder_of_an_entry_counts_and_not_the_folder_of_its_file(
    projects: tuple[Path, Path],
) -> None:
    cwd = f"cwd = {str(projects[0])!r}\n"
    assert same(*(from_toml(folder, ["python", "shop.py"], cwd) for folder in projects))
    own = from_toml(projects[1], ["python", "shop.py"])
    assert not same(own, from_toml(projects[1], ["python", "shop.py"], cwd))


def test_a_reference_to_the_folder_is_the_path_that_it_names(projects: tuple[Path, Path]) -> None:
    words = ["python", "${workspaceFolder}/shop.py"]
    one, other = (from_vscode(folder, words) for folder in projects)
    assert one.local_paths == (str(projects[0] / "shop.py"),)
    assert not same(one, other)


def test_a_reference_to_a_variable_counts_only_if_it_names_a_file(
    projects: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["npx", "server", "${env:SHOP_TOKEN}"]
    monkeypatch.setenv("SHOP_TOKEN", "/b64/token")
    one, other = (from_vscode(folder, words) for folder in projects)
    assert one.local_paths == ()
    assert same(one, other)


def test_a_list_and_a_file_of_a_program_are_in_its_own_folder(
    projects: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for target in (["python", "shop.py"], "shop.py", Path("shop.py")):
        made: list[ServerEntry] = []
        for folder in projects:
            monkeypatch.chdir(folder)
            made.append(entry_of("a", target))
        assert not same(*made)


def test_a_url_and_a_server_in_this_process_have_no_paths() -> None:
    assert entry_of("a", {"url": "https://shop.example/mcp"}).local_paths == ()
    assert entry_of("a", "https://shop.example/mcp").local_paths == ()


@pytest.mark.parametrize("target", [("python", "shop.py"), "shop.py"])
def test_so_it_is_in_a_chat(
    projects: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, target: Any
) -> None:
    made: list[ServerEntry] = []
    for folder in projects:
        monkeypatch.chdir(folder)
        (entry,) = servers_of(ConnectionOptions(target=target), Terminal()).entries.values()
        made.append(entry)
    assert not same(*made)


def test_each_command_of_a_chat_is_a_server_of_its_own() -> None:
    made: list[ServerEntry] = []
    for name in ("one", "other"):
        options = ConnectionOptions(target=("npx", name))
        made += servers_of(options, Terminal()).entries.values()
    assert not same(*made)
