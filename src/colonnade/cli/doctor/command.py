"""Checks of a command that starts a server: it is found, it keeps running, its stdout is clean.

Rules: nothing is started here. A command is looked up as the system does it, with the environment
and in the directory that it will have. Only its first word, and the script that an interpreter
runs, are repeated in messages.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from colonnade.cli.doctor.check import Check, failed, ok, warned
from colonnade.cli.errors import UNREACHABLE
from colonnade.text import closest, one_line
from colonnade.transport.process.command import (
    ALONE,
    ALONE_HINT,
    is_whole_line,
    minimal_environment,
)

# Programs that are compared with a mistyped name: a PATH may have many thousands.
MAX_PROGRAMS: Final = 20_000
# The length of a shebang line.
MAX_FIRST_LINE: Final = 256
# Lines of output in the table; a traceback of Python takes about ten.
MAX_LINES: Final = 12

COMMAND, PROCESS = "command", "process"

# How to install the most common launchers.
INSTALLING: Final = {
    "uvx": "install uv, which includes it: https://docs.astral.sh/uv",
    "uv": "install it: https://docs.astral.sh/uv",
    "npx": "install Node.js, which includes it: https://nodejs.org",
    "npm": "install Node.js, which includes it: https://nodejs.org",
    "node": "install Node.js: https://nodejs.org",
    "bun": "install it: https://bun.sh",
    "bunx": "install Bun, which includes it: https://bun.sh",
    "deno": "install it: https://deno.com",
    "docker": "install it: https://docs.docker.com/get-docker",
    "pipx": "install it: https://pipx.pypa.io",
    "python": "install Python, or use python3",
    "python3": "install Python: https://www.python.org",
}
_PYTHON = re.compile(r"python[0-9.]*(?:\.exe)?")
_SCRIPTS = (".py", ".js", ".mjs", ".cjs")

# What the output of common programs means; the first match counts.
_MEANINGS: Final = (
    (
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "install {0} for the Python that runs it",
    ),
    (re.compile(r"Cannot find (?:module|package) '([^']+)'"), "install {0} with npm"),
    (
        re.compile(
            r"not found in the package registry|E404|No matching distribution|could not be"
            r" found on the registry"
        ),
        "there is no such package; check its name",
    ),
    (re.compile(r"can't open file '([^']+)'"), "there is no file {0}; fix its path"),
    (
        re.compile(
            r"(?:[Rr]unning|[Ll]istening|[Ss]erving|started) (?:on|at) .*(https?://[\w.:\[\]/-]+)"
        ),
        "it serves HTTP: use its URL as the target, {0} with its path",
    ),
    (re.compile(r"[Aa]ddress already in use|EADDRINUSE"), "another program uses its port; stop it"),
    (
        re.compile(r"KeyError: '([A-Z][A-Z0-9_]+)'"),
        "it needs the environment variable {0}, and inherits few: use --env, or its entry",
    ),
)


# ---------------------------------------------------------------- command


def command_check(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Check:
    """Check that the program exists, in the environment that it will have."""
    program = argv[0]
    if cwd is not None and not os.path.isdir(cwd):
        message = f"there is no directory {one_line(cwd)} to start it in"
        return failed(COMMAND, UNREACHABLE, message, "fix cwd, or create the directory")
    path = {**minimal_environment(os.environ), **env}.get("PATH") or os.defpath
    if os.path.dirname(program):
        place = os.path.join(cwd or "", program)
        is_line = not os.path.exists(place) and is_whole_line(program, path, cwd)
        return _not_a_command_line(program) if is_line else _at(place, argv, cwd)
    found = shutil.which(program, path=path)
    if found is None:
        return _not_a_command_line(program) if " " in program.strip() else _missing(program, path)
    return _script(found, argv, cwd)


def _at(place: str, argv: Sequence[str], cwd: str | None) -> Check:
    shown = one_line(argv[0])
    if os.path.isdir(place):
        fix = "give a program in it"
        return failed(COMMAND, UNREACHABLE, f"{shown} is a directory", fix)
    if not os.path.exists(place):
        near = _near(os.path.basename(place), _listed([os.path.dirname(place) or "."]))
        hint = f"did you mean {os.path.join(os.path.dirname(argv[0]), near)}?" if near else ""
        fix = hint or "install it, or fix its path"
        return failed(COMMAND, UNREACHABLE, f"there is no program {shown}", fix)
    if not os.access(place, os.X_OK):
        fix = f"chmod +x {shown}, or put its interpreter before it"
        return failed(COMMAND, UNREACHABLE, f"{shown} is not executable", fix)
    return _script(argv[0], argv, cwd)


def _not_a_command_line(program: str) -> Check:
    fix = f"{ALONE}; {ALONE_HINT}"
    return failed(COMMAND, UNREACHABLE, f"there is no command '{one_line(program)}'", fix)


def _missing(program: str, path: str) -> Check:
    shown = one_line(program)
    message = f"there is no command {shown} on PATH"
    known = INSTALLING.get(program.removesuffix(".exe"))
    near = "" if known else _near(program, _listed(path.split(os.pathsep)))
    hint = f"did you mean {near}?" if near else "install it, or use its full path"
    return failed(COMMAND, UNREACHABLE, message, known or hint)


def _near(program: str, names: Iterable[str]) -> str:
    return one_line(closest(program, names, cutoff=0.75))


def _listed(folders: Iterable[str]) -> list[str]:
    programs: dict[str, None] = {}
    for folder in folders:
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    if len(programs) >= MAX_PROGRAMS:
                        return list(programs)
                    if os.access(entry.path, os.X_OK) and not entry.is_dir():
                        programs[entry.name] = None
        except OSError:
            continue
    return list(programs)


def _script(program: str, argv: Sequence[str], cwd: str | None) -> Check:
    """Check a program that was found, and the script that it runs, if that is known."""
    name = os.path.basename(program)
    runner = _runner(os.path.join(cwd or "", program))
    if runner and not os.path.exists(runner):
        message = f"{one_line(program)} needs {one_line(runner)}, which does not exist"
        fix = "reinstall it; a virtual environment cannot be moved"
        return failed(COMMAND, UNREACHABLE, message, fix)
    runs = _PYTHON.fullmatch(name) is not None or name in ("node", "node.exe", "deno", "bun")
    first = argv[1] if len(argv) > 1 else ""
    if runs and first.endswith(_SCRIPTS):
        place = os.path.join(cwd or "", first)
        if not os.path.exists(place):
            near = _near(os.path.basename(first), _files(os.path.dirname(place) or "."))
            beside = os.path.join(os.path.dirname(first), near) if near else ""
            where = os.path.abspath(os.path.dirname(place) or ".")
            hint = f"did you mean {beside}?" if near else f"see {one_line(where)}"
            message = f"there is no file {one_line(first)}, which {one_line(name)} should run"
            return failed(COMMAND, UNREACHABLE, message, hint)
    shown = "this Python" if program == sys.executable else one_line(program)
    return ok(COMMAND, f"found: {shown}")


def _runner(path: str) -> str:
    """The interpreter in the shebang line; empty if there is none."""
    try:
        with open(path, "rb") as file:
            first = file.read(MAX_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return ""
    message = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    return message[0] if message else ""


def _files(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))[:MAX_PROGRAMS]
    except OSError:
        return []


# ---------------------------------------------------------------- process


def exited_check(what: str, lines: Sequence[str], fix: str) -> Check:
    """A process that has exited: how, and its last lines of output."""
    output = [one_line(line) for line in lines][-MAX_LINES:]
    return failed(PROCESS, UNREACHABLE, f"it {what}", meaning(output) or fix, output)


def meaning(lines: Sequence[str]) -> str:
    """The fix for the last lines of a program; empty if they are not known."""
    for pattern, message in _MEANINGS:
        for line in reversed(lines):
            found = pattern.search(line)
            if found is not None:
                return message.format(*found.groups())
    return ""


STDOUT_FIX: Final = (
    "stdout is for MCP messages only: in Python, use print(…, file=sys.stderr); in JavaScript, "
    "console.error(…)"
)


def polluted_check(count: int, first: str, *, works: bool) -> Check:
    """A process that prints lines to stdout that are not messages."""
    what = "a line that is not a message" if count == 1 else f"{count} lines that are not messages"
    message = f"it prints to stdout: {what}"
    lines = [one_line(first)] if first else []
    if works:
        message += "; other clients may fail here"
        return warned(PROCESS, message, STDOUT_FIX, lines)
    return failed(PROCESS, UNREACHABLE, message, STDOUT_FIX, lines)
