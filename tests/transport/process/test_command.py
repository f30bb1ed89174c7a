"""Commands: what is one, what a child is given, and why one did not start.

Rules: an error names the first word of a command and no other, and no value of an environment.
"""

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import CannotConnect, ColonnadeError, LocalProtocolError, Refused
from colonnade.transport.process.child import start_child
from colonnade.transport.process.command import (
    MARK,
    UNQUOTABLE,
    Command,
    minimal_environment,
    refuse_batch,
)
from transport.child_processes import child_conversation, nothing_left, on_asyncio

SECRET = "canary-4711"


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ("uvx mcp-server-git; rm -rf /", {}),
        (b"uvx", {}),
        ([], {}),
        ([""], {}),
        (["uvx", "a\0b"], {}),
        (["uvx"], {"": "x"}),
        (["uvx"], {"A=B": "x"}),
        (["uvx"], {"A": "x\0y"}),
    ],
)
@on_asyncio
async def test_what_is_no_command_is_refused_and_never_taken_apart(argv: Any, env: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"a list of strings|a word of|environment"):
        await start_child(argv, env=env)


@on_asyncio
async def test_a_lone_surrogate_is_no_word_either() -> None:
    with nothing_left(), pytest.raises(LocalProtocolError, match="cannot start server 'true'"):
        await start_child(["true", "\ud800"])


def test_a_command_is_called_by_its_name_or_by_its_first_word() -> None:
    assert Command.of(["/usr/bin/uvx", "x"]).label == "server 'uvx'"
    assert Command.of(["uvx"], name="it's\n").label == 'server "it\'s\\n"'
    assert Command.of([Path("/a/b")]).argv == ("/a/b",)


# ---------------------------------------------------------------- the environment


def test_a_child_gets_few_of_our_variables_and_all_of_its_own() -> None:
    ours = {
        *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER", "LANG", "LC_ALL"),
        *("AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "PYTHONPATH", "home", "LD_PRELOAD"),
    }
    found = minimal_environment(dict.fromkeys(ours, "x"), "linux")
    assert set(found) == {name for name in ours if name.isupper() and len(name) < 8} | {"LC_ALL"}
    assert minimal_environment({"PATH": "() { :; }; echo"}, "linux") == {}
    windows = {"Path": "x", "SystemRoot": "x", "APPDATA": "x", "HOME": "x", "TOKEN": "x"}
    assert set(minimal_environment(windows, "win32")) == {"Path", "SystemRoot", "APPDATA"}


def test_what_is_given_comes_last_and_every_child_has_a_mark_of_its_own() -> None:
    one, other = (Command.of(["a"], env={"PATH": "/mine", MARK: "theirs"}) for _ in range(2))
    ours = {"PATH": "/ours", MARK: "outer"}
    assert one.environment(ours) == {"PATH": "/mine", MARK: f"outer {one.mark}"}
    assert one.mark != other.mark


def test_what_may_be_secret_is_known(tmp_path: Path) -> None:
    env = {"A": SECRET, "B": "short", "C": str(tmp_path), "D": f"{tmp_path}{os.pathsep}/nowhere"}
    command = Command.of(
        ["tool", "--api-key", "option-1", "--TOKEN=option-2", "--name", "option-3", "--auth"],
        env=env,
    )
    assert command.secrets() == [SECRET, env["D"], "option-1", "option-2"]


# ---------------------------------------------------------------- why it did not start


def script(path: Path, text: str, *, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


CASES: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "not there": (lambda _: ["no-such-command"], "there is no command 'no-such-command'; install"),
    "not there, by path": (lambda _: ["./no-such-file"], "there is no command './no-such-file'"),
    "not executable": (
        lambda folder: [script(folder / "a", "x", mode=stat.S_IRUSR)],
        r"/a' may not be run; make it executable \(chmod \+x\)",
    ),
    "a folder": (lambda folder: [str(folder)], "is a folder; name the program in it"),
    "no program": (
        lambda folder: [script(folder / "a", "print('no first line')")],
        "is no program for this machine; if it is a script, name its interpreter first",
    ),
    "no interpreter": (
        lambda folder: [script(folder / "a", "#!/no/such/python\n")],
        "the program that the first line of '.*/a' names is not there",
    ),
    "too large": (lambda _: ["true", "x" * 10_000_000], "are too large"),
}


@pytest.mark.parametrize("case", CASES)
@on_asyncio
async def test_a_command_that_does_not_start_says_why_and_what_to_do(
    case: str, tmp_path: Path
) -> None:
    made, words = CASES[case]
    with nothing_left(), pytest.raises(CannotConnect, match=words) as caught:
        await start_child([*made(tmp_path), f"--key={SECRET}"], name="git", env={"A": SECRET})
    said = str(caught.value)
    assert said.startswith("cannot start server 'git': ")
    assert SECRET not in said
    assert "\n" not in said


@on_asyncio
async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "gone"
    with (
        nothing_left(),
        pytest.raises(CannotConnect, match=r"working directory '.*gone' does not exist"),
    ):
        await start_child(["true"], cwd=missing)


@on_asyncio
async def test_a_program_is_looked_for_in_the_path_of_the_child(tmp_path: Path) -> None:
    script(tmp_path / "own-tool", f"#!{sys.executable}\nraise SystemExit(9)\n")
    async with child_conversation("serves"):
        child = await start_child(["own-tool"], env={"PATH": str(tmp_path)})
        assert await child._process.wait(60)
        assert child._process.status == 9
        await child.close()
    with pytest.raises(ColonnadeError, match="no command"):
        await start_child(["own-tool"])


@on_asyncio
async def test_no_shell_ever_reads_a_command(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    words = [
        f"; touch {witness}",
        f"$(touch {witness})",
        f"`touch {witness}`",
        f"&& touch {witness}",
    ]
    child = await start_child([sys.executable, "-c", "", *words])
    assert await child._process.wait(60)
    await child.close()
    assert not witness.exists()


# ---------------------------------------------------------------- Windows, as plain functions


@pytest.mark.parametrize("program", [r"C:\node\npx.CMD", "tool.bat", "tool.bat. ", "a.cmd"])
@pytest.mark.parametrize("sign", sorted(UNQUOTABLE))
def test_a_batch_file_gets_no_words_that_windows_would_run(program: str, sign: str) -> None:
    with pytest.raises(Refused, match="is a batch file") as caught:
        refuse_batch(program, ["--yes", f"{SECRET}{sign}calc.exe"])
    assert SECRET not in str(caught.value)


def test_plain_words_for_a_batch_file_and_any_for_a_program_are_fine() -> None:
    refuse_batch(r"C:\node\npx.cmd", ["-y", "@scope/server-a", r"C:\Program Files (x86)\x"])
    refuse_batch("node.exe", ["a & b"])
