"""What a document shows, run as it stands: Python in files, commands at a prompt.

- A block of Python (```` ```python ````) runs in a fresh interpreter, in a folder of its document.
  One that begins with the comment `# name.py` is kept there under that name, so that later ones may
  use it; one whose name begins with `test_` is given to pytest.
- A comment behind a `print(…)` is what it prints, to the letter (`…` is anything). It is compared with
  what that line printed first; a line that is never reached is wrong, too.
- A block that fails on purpose says so in its last statement: `… # raises colonnade.errors.Fault`.
- A line of shell (```` ```sh ````) names a command that is ours, with options that it has, or one
  that everybody knows. It is not run.
- A conversation with a prompt (```` ```console ````) is run in the same folder: `$ ` begins a
  command, and what stands below it is what it prints; `…` is anything, alone on a line any lines. A
  file that the document does not have is an example. A server that it starts (`colonnade serve`, `colonnade gateway`) runs until the end of the document, on a port of its own
  that takes the place of the one that is shown.

Rules: nothing is left out because it is hard to run; what cannot run is not shown as Python, and not
at a prompt. All that was started is ended.
"""

import ast
import contextlib
import json
import os
import re
import select
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WAIT_S = 60.0

FENCED = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([a-z_]+\.py)\n")
NAMED_TOML = re.compile(r"# ([a-z_]+\.toml)\n")
RAISES = re.compile(r"# raises ([\w.]+)$", re.MULTILINE)
PORT = re.compile(r"--port (\d+)")
ANYTHING = "…"
PYTHON = ("python", "py")
SHELL = ("sh", "bash", "shell")
PROMPT = ("console",)
# Not ours, and known to whoever reads this.
_KNOWN = (
    "pip uv uvx uvicorn granian git cd curl python docker nginx systemctl cp mkdir eval "
    "opentelemetry-instrument"
)
KNOWN = frozenset(_KNOWN.split())
# What is typed at a prompt that is run.
TYPED = {
    "colonnade": [sys.executable, "-m", "colonnade"],
    "python": [sys.executable],
    "pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
    "cat": ["cat"],
    "ls": ["ls"],
}


class Block(NamedTuple):
    """A fenced piece of a document."""

    language: str
    text: str

    @property
    def name(self) -> str | None:
        """The file that it is kept as."""
        found = NAMED.match(self.text)
        return found[1] if found else None


class Typed(NamedTuple):
    """A command at a prompt, and what is shown below it."""

    command: str
    shown: list[str]


def blocks(text: str, *languages: str) -> list[Block]:
    found = [Block(language, inside) for _, language, inside in FENCED.findall(text)]
    return [block for block in found if block.language in languages]


# ---------------------------------------------------------------- Python


# Runs a file as a program, and keeps what each of its calls of `print` prints, by line.
RECORDER = """
import builtins, io, json, runpy, sys
path, kept = sys.argv[1:]
really, printed = builtins.print, {}
def print_(*values, **options):
    text = io.StringIO()
    really(*values, **{**options, "file": text, "flush": False})
    frame = sys._getframe(1)
    if frame.f_code.co_filename == path:
        printed.setdefault(frame.f_lineno, text.getvalue().rstrip("\\n"))
    really(*values, **options)
builtins.print = print_
sys.argv = [path]
try:
    runpy.run_path(path, run_name="__main__")
finally:
    with open(kept, "w", encoding="utf-8") as file:
        json.dump(printed, file)
"""


def ran(block: Block, folder: Path, number: int) -> str:
    """What is wrong with a block of Python; nothing, if it does what it says."""
    path = folder / (block.name or f"block_{number}.py")
    path.write_text(block.text, "utf-8")
    said = said_to_be_printed(block.text)
    if path.name.startswith("test_"):
        if said:
            return f"what a test prints is not compared: {', '.join(said.values())}"
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-Werror", path.name]
    else:
        command = ["-Werror", "-c", RECORDER, path.name, f"{path.name}.printed"]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
    )
    promised = RAISES.findall(block.text)
    if promised:
        *_, last = done.stderr.strip().splitlines() or [""]
        line = len(block.text.rstrip().splitlines())
        if not last.startswith(promised[0]) or f"line {line}, in <module>" not in done.stderr:
            return f"it promised {promised[0]} at its end, and:\n{done.stderr}"
    elif done.returncode:
        return f"{done.stdout}\n{done.stderr}"
    if not said:
        return ""
    printed: dict[str, str] = json.loads((folder / f"{path.name}.printed").read_text("utf-8"))
    return "\n".join(
        f"line {line} says that it prints {shown!r}, and prints {printed.get(str(line))!r}"
        for line, shown in said.items()
        if not fits(printed.get(str(line), "").splitlines(), [shown])
    )


def said_to_be_printed(text: str) -> dict[int, str]:
    """The comment behind each call of `print`, by the line where the call begins."""
    lines = text.splitlines()
    found: dict[int, str] = {}
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        behind = (
            lines[(node.end_lineno or node.lineno) - 1].encode()[node.end_col_offset :].decode()
        )
        comment = behind.strip()
        if node.func.id == "print" and comment.startswith("# ") and not RAISES.search(comment):
            found[node.lineno] = comment[2:]
    return found


# ---------------------------------------------------------------- lines of shell


def complaint(command: str) -> str:
    """What is wrong with a line of shell; nothing, if whoever types it gets somewhere."""
    words = shlex.split(command, comments=True)
    while words and (re.fullmatch(r"\w+=.*", words[0]) or words[0] == "sudo"):
        words.pop(0)
    if not words:
        return ""
    first, rest = words[0], words[1:]
    if first == "colonnade":
        return _of_ours(rest)
    if first.startswith("scripts/"):
        path = ROOT / first
        return "" if path.is_file() and path.stat().st_mode & 0o100 else f"there is no {first}"
    if first == ".venv/bin/python" or first == "python":
        missing = [word for word in rest if "/" in word and not (ROOT / word).exists()]
        return f"there is no {missing[0]}" if missing else ""
    return "" if first in KNOWN else f"nobody knows {first}"


def _of_ours(rest: list[str]) -> str:
    if "colonnade" not in PROJECT.get("scripts", {}):
        return "there is no command colonnade"
    verb = next((word for word in rest if not word.startswith("-")), "")
    shown = subprocess.run(
        [*TYPED["colonnade"], *([verb] if verb else []), "--help"],
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
    )
    if shown.returncode:
        return f"there is no colonnade {verb}"
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    unknown = [option for option in options if f"{option} " not in shown.stdout.replace("\n", " ")]
    return f"colonnade {verb} has no {unknown[0]}" if unknown else ""


# ---------------------------------------------------------------- a prompt


def typed(text: str) -> Iterator[Typed]:
    """The commands of a conversation, each with what is shown below it."""
    lines = text.splitlines()
    assert lines[:1], "a conversation begins with a command"
    while lines:
        line = lines.pop(0)
        assert line.startswith("$ "), f"{line!r} is below no command"
        while line.endswith("\\"):
            line = line[:-1] + lines.pop(0).strip()
        shown: list[str] = []
        while lines and not lines[0].startswith("$ "):
            shown.append(lines.pop(0))
        while shown and not shown[-1]:
            shown.pop()
        yield Typed(line[2:], shown)


def fits(printed: list[str], shown: list[str]) -> bool:
    """Whether what was printed is what is shown."""
    if not shown:
        return not printed
    if shown[0] == ANYTHING:
        return any(fits(printed[skipped:], shown[1:]) for skipped in range(len(printed) + 1))
    if not printed:
        return False
    parts = [re.escape(part) for part in shown[0].split(ANYTHING)]
    same = re.fullmatch(".*".join(parts), printed[0]) is not None
    return same and fits(printed[1:], shown[1:])


class Prompt:
    """Somebody at a prompt in a folder, for as long as a document goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[subprocess.Popen[str]] = []
        self._ports: dict[str, str] = {}

    def __enter__(self) -> "Prompt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(WAIT_S)
            if server.poll() is None:
                server.kill()
            server.communicate()

    def wrong(self, block: Block) -> list[str]:
        """What does not go as it is shown."""
        return [words for one in typed(block.text) if (words := self._wrong_with(one))]

    def _wrong_with(self, one: Typed) -> str:
        words = shlex.split(self._here(one.command), comments=True)
        program = TYPED.get(words[0]) if words else None
        if program is None:
            return f"{one.command!r} is not run here; there are {', '.join(TYPED)}"
        if words[:2] in (["colonnade", "serve"], ["colonnade", "gateway"]):
            printed = self._served([*program, *words[1:]], one.command)
        else:
            printed = self._done([*program, *words[1:]])
        shown = [self._here(line) for line in one.shown]
        if fits(printed, shown):
            return ""
        return "\n".join([f"$ {one.command}", "shows:", *shown, "and prints:", *printed])

    def _here(self, line: str) -> str:
        """A line with the ports of those servers that run here."""
        for shown, port in self._ports.items():
            line = re.sub(rf"\b{shown}\b", port, line)
        return line

    def _surroundings(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if "COLOR" not in name}
        # `colonnade` in a configuration file is this one, and what is trusted here is not elsewhere.
        path = os.pathsep.join([str(Path(sys.executable).parent), plain.get("PATH", "")])
        own = {"PATH": path, "COLONNADE_HOME": str(self._folder / "home")}
        return {**plain, **own, "NO_COLOR": "1", "COLUMNS": "100", "PYTHONWARNINGS": "error"}

    def _where(self, command: list[str]) -> Path:
        """The document's own folder, or that of the examples for a file that is only there."""
        files = [word for word in command if word.endswith(".py") and "/" not in word]
        shown = [name for name in files if not (self._folder / name).exists()]
        there = ROOT / "examples"
        return there if shown and all((there / name).exists() for name in shown) else self._folder

    def _done(self, command: list[str]) -> list[str]:
        done = subprocess.run(
            command,
            cwd=self._where(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=WAIT_S,
            env=self._surroundings(),
        )
        return done.stdout.splitlines()

    def _served(self, command: list[str], typed: str) -> list[str]:
        """Start a server on a port that is free; the line that it prints."""
        shown = PORT.search(typed)
        port = shown[1] if shown else "8000"
        command = [*command, "--port", "0"]
        server = subprocess.Popen(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            env=self._surroundings(),
        )
        self._servers.append(server)
        assert server.stdout is not None
        ready, _, _ = select.select([server.stdout], [], [], WAIT_S)
        line = server.stdout.readline().rstrip() if ready else ""
        found = re.search(r"http://[\w.]+:(\d+)", line)
        if found is not None:
            self._ports[port] = found[1]
        return [line]


# ---------------------------------------------------------------- a document


def problems(text: str, folder: Path) -> list[str]:
    """Everything in a document that does not work, in its order."""
    found: list[str] = []
    with Prompt(folder) as prompt:
        for number, block in enumerate(blocks(text, *PYTHON, *SHELL, *PROMPT, "toml"), start=1):
            if block.language == "toml" and (named := NAMED_TOML.match(block.text)):
                (folder / named[1]).write_text(block.text, "utf-8")
            elif block.language in PYTHON and (wrong := ran(block, folder, number)):
                found.append(f"block {number}: {wrong}")
            elif block.language in SHELL:
                lines = block.text.replace("\\\n", "").splitlines()
                found += [wrong for line in lines if (wrong := complaint(line))]
            elif block.language in PROMPT:
                found += prompt.wrong(block)
    return found
