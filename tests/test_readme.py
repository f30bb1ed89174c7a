"""What README and docs show works as it stands: code runs, commands and files are there.

- A block of Python runs in a fresh interpreter, in a folder of its document. One that begins with
  the comment `# name.py` is kept there under that name, so that later ones may import it; one whose
  name begins with `test_` is given to pytest.
- A block that fails on purpose says so in its last statement: `… # raises portico.errors.Fault`.
- A command is one of ours, with options that it has, or one that everybody knows.
- What `portico ls` and `portico inspect` are shown to print of a file, they print: of one that the
  document has, or of an example.

Rules: nothing is left out because it is hard to run; what cannot run is not shown as Python.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
IDS = [str(path.relative_to(ROOT)) for path in DOCUMENTS]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WAIT_S = 60.0

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([a-z_]+\.py)\n")
RAISES = re.compile(r"# raises ([\w.]+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")
MENTIONED = re.compile(r"`((?:scripts|examples|tests|docs|decisions|src)/[\w./-]+)`")
PRINTED = re.compile(r"^\$ portico ((?:ls|inspect) [\w.]+\.py.*)$", re.MULTILINE)
# Not ours, and known to whoever reads this.
KNOWN = {"pip", "uv", "uvx", "uvicorn", "granian", "git", "cd", "curl", "python"}


class Block(NamedTuple):
    """A fenced piece of a document."""

    language: str
    text: str

    @property
    def name(self) -> str | None:
        """The file that it is kept as."""
        found = NAMED.match(self.text)
        return found[1] if found else None


def blocks(text: str, *languages: str) -> list[Block]:
    return [Block(*found) for found in FENCED.findall(text) if found[0] in languages]


def run(block: Block, folder: Path, number: int) -> str:
    """What is wrong with a block of Python; nothing, if it does what it says."""
    path = folder / (block.name or f"block_{number}.py")
    path.write_text(block.text, "utf-8")
    is_test = path.name.startswith("test_")
    pytest_too = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if is_test else []
    ran = subprocess.run(
        [sys.executable, *pytest_too, "-Werror", path.name],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
    )
    promised = RAISES.findall(block.text)
    if not promised:
        return f"{ran.stdout}\n{ran.stderr}" if ran.returncode else ""
    *_, last = ran.stderr.strip().splitlines() or [""]
    line = len(block.text.rstrip().splitlines())
    if not last.startswith(promised[0]) or f"line {line}, in <module>" not in ran.stderr:
        return f"it promised {promised[0]} at its end, and:\n{ran.stderr}"
    return ""


def complaint(command: str) -> str:
    """What is wrong with a line of shell; nothing, if whoever types it gets somewhere."""
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"\w+=.*", words[0]):
        words.pop(0)
    if not words:
        return ""
    first, rest = words[0], words[1:]
    if first == "portico":
        return _of_ours(rest)
    if first.startswith("scripts/"):
        path = ROOT / first
        return "" if path.is_file() and path.stat().st_mode & 0o100 else f"there is no {first}"
    if first == ".venv/bin/python" or first == "python":
        missing = [word for word in rest if "/" in word and not (ROOT / word).exists()]
        return f"there is no {missing[0]}" if missing else ""
    return "" if first in KNOWN else f"nobody knows {first}"


def _of_ours(rest: list[str]) -> str:
    if "portico" not in PROJECT.get("scripts", {}):
        return "there is no command portico"
    verb = next((word for word in rest if not word.startswith("-")), "")
    shown = subprocess.run(
        [sys.executable, "-m", "portico.cli.main", *([verb] if verb else []), "--help"],
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
    )
    if shown.returncode:
        return f"there is no portico {verb}"
    options = [word.partition("=")[0] for word in rest if word.startswith("--")]
    unknown = [option for option in options if f"{option} " not in shown.stdout.replace("\n", " ")]
    return f"portico {verb} has no {unknown[0]}" if unknown else ""


def printed(block: Block, folder: Path) -> list[str]:
    """What is wrong with what a block says that our commands print."""
    found: list[str] = []
    _, *pieces = PRINTED.split(block.text)
    for typed, promised in zip(pieces[::2], pieces[1::2], strict=True):
        words = shlex.split(typed)
        here = folder if (folder / words[1]).exists() else ROOT / "examples"
        ran = subprocess.run(
            [sys.executable, "-m", "portico.cli.main", *words],
            cwd=here,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=WAIT_S,
        )
        if ran.stdout.strip() != promised.partition("\n\n$ ")[0].strip():
            found.append(f"portico {typed} prints:\n{ran.stdout}{ran.stderr}")
    return found


def problems(text: str, folder: Path) -> list[str]:
    """Everything in a document that does not work."""
    found = [
        f"block {number}: {wrong}"
        for number, block in enumerate(blocks(text, "python", "py"), start=1)
        if (wrong := run(block, folder, number))
    ]
    for block in blocks(text, "sh", "bash", "shell", "console"):
        found += [wrong for line in block.text.splitlines() if (wrong := complaint(line))]
    for block in blocks(text, ""):
        found += printed(block, folder)
    return found


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_code_and_commands_work_as_they_stand(path: Path, tmp_path: Path) -> None:
    assert problems(path.read_text("utf-8"), tmp_path) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_what_is_linked_or_named_is_there(path: Path) -> None:
    text = path.read_text("utf-8")
    for target in LINK.findall(text):
        if "://" not in target:
            assert (path.parent / target).exists(), target
    for name in MENTIONED.findall(text):
        assert (ROOT / name).exists(), name


def test_something_is_checked() -> None:
    readme = DOCUMENTS[0].read_text("utf-8")
    assert len(blocks(readme, "python")) >= 3
    assert blocks(readme, "sh")


# ---------------------------------------------------------------- the checks themselves

BAD = {
    "code that fails": "```python\n1 / 0\n```\n",
    "a name that is nowhere": "```python\nfrom portico import Sevrer\n```\n",
    "a warning": "```python\nimport warnings\nwarnings.warn('old')\n```\n",
    "a promise that is not kept": "```python\n1 + 1  # raises ZeroDivisionError\n```\n",
    "a failure before the promised one": "```python\n1 / 0\nint('')  # raises ValueError\n```\n",
    "a test that fails": "```python\n# test_a.py\ndef test() -> None:\n    assert 0\n```\n",
    "a script that is not there": "```sh\nscripts/nothing\n```\n",
    "a verb that is none": "```sh\nportico fly server.py\n```\n",
    "an option that is none": "```sh\nportico serve server.py --wings 2\n```\n",
    "a stranger": "```sh\nnpm install\n```\n",
    "what nothing prints": "```\n$ portico ls prompts.py\ntools\n  none\n```\n",
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_does_not_work_is_found(text: str, tmp_path: Path) -> None:
    assert len(problems(text, tmp_path)) == 1


GOOD = """
```python
# shop.py
from portico import Server

server = Server("shop")


@server.tool
def price(item: str) -> int:
    return len(item)


if __name__ == "__main__":
    server.run()
```

```python
# test_shop.py
from shop import price


def test_a_price() -> None:
    assert price("pear") == 4
```

```python
import shop

shop.price()  # raises TypeError
```

```sh
portico serve shop.py --port 8000   # a comment
PORT=1 scripts/demo
```
"""


def test_what_works_is_not_complained_of(tmp_path: Path) -> None:
    assert problems(GOOD, tmp_path) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_no_figure_is_left_to_be_filled_in(path: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text("utf-8"), flags=re.DOTALL)
    assert re.findall(r"\{\w+\}", prose) == []
