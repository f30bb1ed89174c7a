"""What a shell offers for a command that is not typed to its end, in a real bash.

Rules: the function that the command gives to bash is called as bash calls it.
"""

import os
import shlex
import subprocess
import sys

import pytest

from colonnade.cli.app import COMMANDS
from colonnade.cli.commands.config import config

# The command under its own name, as an installation puts it on the path.
PROGRAM = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m colonnade "$@"\n'
# A choice of files is for readline to make; which option of `complete` asks for it is what we see.
SCRIPT = """
eval "$completion" && complete -p colonnade > /dev/null || exit 3
compopt() { [ "$1" = -o ] && echo "<$2>"; }
COMP_CWORD=$(($# - 1)) COMP_WORDS=("$@") COMPREPLY=()
_colonnade_completion "$1" "${@: -1}"
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' "${COMPREPLY[@]}"
"""


def run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "colonnade").write_text(PROGRAM, "utf-8")
    (folder / "colonnade").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


class Bash:
    """A bash that has read what the command gives it."""

    def __init__(self, path: str) -> None:
        program = os.path.join(path.partition(os.pathsep)[0], "colonnade")
        self._env = {"PATH": path}
        self._env["completion"] = run([program], {"_COLONNADE_COMPLETE": "bash_source"})

    def offers(self, words: str) -> list[str]:
        """What it offers for the last of these words."""
        command = ["bash", "--norc", "-c", SCRIPT, "bash", *shlex.split(words)]
        return run(command, self._env).splitlines()


@pytest.fixture(scope="module")
def bash(path: str) -> Bash:
    return Bash(path)


def test_a_command_is_completed(bash: Bash) -> None:
    assert bash.offers("colonnade ins") == ["inspect"]


def test_every_command_is_offered_in_its_order(bash: Bash) -> None:
    assert bash.offers("colonnade ''") == list(COMMANDS)


def test_behind_a_command_that_is_none_nothing_is_complained_of(bash: Bash) -> None:
    assert bash.offers("colonnade no-such-command ''") == list(COMMANDS)


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("colonnade config ''", sorted(config.commands)),
        ("colonnade serve --ssl", ["--ssl-certfile", "--ssl-keyfile"]),
        ("colonnade add server.py --to claude", ["claude-desktop", "claude-code"]),
        ("colonnade remove weather --from v", ["vscode"]),
    ],
)
def test_options_and_clients_are_completed(words: str, completed: list[str], bash: Bash) -> None:
    assert bash.offers(words) == completed


@pytest.mark.parametrize(
    "words",
    [
        "run ser",
        "serve server.py --ssl-certfile ce",
        "call ser",
        "ls ser",
        "add ser",
        "remove weather --file mc",
        "config explain mc",
        "config check mc",
        "config trust mc",
    ],
)
def test_where_a_file_belongs_bash_completes_files(words: str, bash: Bash) -> None:
    assert bash.offers(f"colonnade {words}") == ["<default>"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(shell: str, path: str) -> None:
    env = {"PATH": path, "_COLONNADE_COMPLETE": f"{shell}_source"}
    assert f"_COLONNADE_COMPLETE={shell}_complete" in run(["colonnade"], env)
