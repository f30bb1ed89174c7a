"""How a Python file with a server in it is started: `server.py`, or `server.py:name`.

A file that imports this package is started as `colonnade run` starts it, whether or not it calls
`server.run()`; any other file as Python itself does. `connect`, `Host` and the command line share
this, so that one string means one thing.

Rules: a file is parsed here, never run, and nothing is started.
"""

import ast
import os
import sys

# What finds this package, where it is set, must find it again in the child.
PATH = "PYTHONPATH"
# -P: a file or folder called colonnade in the working directory is not this package.
RUN = ("-P", "-m", "colonnade.cli.main", "run")


def split_name(text: str) -> tuple[str, str]:
    """A file, and the name of a server in it; no name where none is written."""
    if not os.path.exists(text):
        file, colon, name = text.rpartition(":")
        if colon and all(part.isidentifier() for part in name.split(".")):
            return file, name
    return text, ""


def run_command(target: str, *, debug: bool = False) -> list[str]:
    """The command that serves a target (`server.py:name`) on standard input and output."""
    return [sys.executable, *RUN, *(["--debug"] if debug else []), target]


def python_command(file: str, name: str = "") -> list[str]:
    """The command that starts the server of a file; with a name, always by `colonnade run`."""
    if name or imports_colonnade(file):
        return run_command(f"{file}:{name}" if name else file)
    return [sys.executable, file]


def search_path() -> dict[str, str]:
    """The variable of the environment that lets a child import what this process can."""
    return {PATH: os.environ[PATH]} if PATH in os.environ else {}


def imports_colonnade(file: str) -> bool:
    """Whether a file imports this package. One that cannot be parsed counts, because `colonnade
    run` says what is wrong with it."""
    try:
        with open(file, "rb") as opened:
            tree = ast.parse(opened.read())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else []
        else:
            continue
        if any(name.partition(".")[0] == "colonnade" for name in names):
            return True
    return False
