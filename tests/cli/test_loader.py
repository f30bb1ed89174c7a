"""How a file is loaded, and which server in it is served."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.process import COMMAND, SCRIPT, Process, call, written

FACTS = """
import os, pickle, sys
from dataclasses import dataclass
from colonnade import Server

server = Server("facts")


@dataclass
class City:
    name: str


FOUND = {
    "name": __name__,
    "file": __file__,
    "path": sys.path[0],
    "argv": sys.argv,
    "cwd": os.getcwd(),
    "itself": sys.modules[__name__].__dict__ is globals(),
    "bin": any(p.endswith("/bin") for p in sys.path),
}


@server.tool
def facts() -> dict:
    return FOUND | {"pickled": pickle.loads(pickle.dumps(City("Oslo"))) == City("Oslo")}
"""
NAMED = """
from colonnade import Server
{lines}


for one in list(vars().values()):
    if isinstance(one, Server):
        one.tool(name="which")(lambda name=one.info.name: name)
"""


def facts(folder: Path, target: str, start: list[str] = COMMAND) -> dict[str, Any]:
    with Process(folder, "run", target, start=start) as process:
        return json.loads(process.ask(call("facts"))["result"]["content"][0]["text"])


def which(folder: Path, lines: str, target: str) -> str:
    path = folder / target.partition(":")[0]
    path.write_text(NAMED.format(lines=lines))
    with Process(folder, "run", target) as process:
        answer = process.ask(call("which"))
        return answer["result"]["content"][0]["text"]


# ---------------------------------------------------------------- loading


@pytest.mark.parametrize("start", [COMMAND, SCRIPT], ids=["module", "script"])
def test_a_file_sees_what_a_script_sees_but_another_name(tmp_path: Path, start: list[str]) -> None:
    written(tmp_path, tools__facts=FACTS)
    found = facts(tmp_path, "tools/facts.py", start)
    assert found == {
        "name": "facts",
        "file": str(tmp_path / "tools" / "facts.py"),
        "path": str(tmp_path / "tools"),
        "argv": ["tools/facts.py"],
        "cwd": str(tmp_path),
        "itself": True,
        "bin": False,
        "pickled": True,
    }


def test_a_module_is_found_from_the_folder_where_we_are(tmp_path: Path) -> None:
    written(tmp_path, tools____init__="", tools__facts=FACTS)
    found = facts(tmp_path, "tools.facts")
    assert (found["name"], found["path"]) == ("tools.facts", str(tmp_path))
    assert found["file"] == str(tmp_path / "tools" / "facts.py")


@pytest.mark.parametrize("name", ["json", "colonnade", "my-server"])
def test_a_file_may_be_called_as_it_likes(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(FACTS)
    found = facts(tmp_path, f"{name}.py", SCRIPT)
    assert found["name"] == ("my-server" if name == "my-server" else f"{name}_")
    assert found["pickled"]


def test_a_file_needs_no_ending(tmp_path: Path) -> None:
    (tmp_path / "facts").write_text("#!/usr/bin/env python\n" + FACTS)
    assert facts(tmp_path, "./facts")["name"] == "facts"


def test_files_beside_it_see_the_same_module(tmp_path: Path) -> None:
    lines = 'from colonnade import Server\n\nmade = Server("made")\nimport tools\n'
    tools = "from server import made\n\n\n@made.tool\ndef which() -> str:\n    return 'beside'\n"
    written(tmp_path, server=lines, tools=tools)
    with Process(tmp_path, "run", "server.py") as process:
        assert process.ask(call("which"))["result"]["content"][0]["text"] == "beside"


def test_nothing_of_the_file_is_kept_for_later(tmp_path: Path) -> None:
    written(tmp_path, facts=FACTS)
    facts(tmp_path, "facts.py")
    assert [path.name for path in tmp_path.iterdir()] == ["facts.py"]


# ---------------------------------------------------------------- choosing

CHOICES = {
    "the only one": ('city = Server("city")', "s.py", "city"),
    "server before others": ('mcp = Server("b")\nserver = Server("a")', "s.py", "a"),
    "mcp before app": ('app = Server("c")\nmcp = Server("b")\nx = Server("x")', "s.py", "b"),
    "app before others": ('x = Server("x")\napp = Server("c")', "s.py", "c"),
    "not what is called so and is none": ('app = 3\nx = Server("x")', "s.py", "x"),
    "one with two names": ('x = Server("x")\ny = x', "s.py", "x"),
    "the one that the others are mounted in": (
        'x = Server("x")\ny = Server("y")\ny.mount(x, "x")',
        "s.py",
        "y",
    ),
    "the one that is named": ('server = Server("a")\nx = Server("x")', "s.py:x", "x"),
    "one inside something": (
        'class Box:\n    inner = Server("inside")\n\n\ninner = Box.inner',
        "s.py:Box.inner",
        "inside",
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_the_server_that_is_meant_is_served(tmp_path: Path, choice: str) -> None:
    lines, target, name = CHOICES[choice]
    assert which(tmp_path, lines, target) == name
