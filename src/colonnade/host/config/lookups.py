"""What references stand for, looked up when a server is about to be reached, and not before.

Rules: a value that was looked up goes to whoever asked, and is kept by nobody. Errors name the
reference and never what was found.
"""

import asyncio
import contextlib
import inspect
import os
import shlex
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from msgspec import Struct

from colonnade.errors import Refused
from colonnade.host.config.entry import Node, Origin
from colonnade.host.config.references import Reference, Template
from colonnade.host.config.settings import Problem

InputKind: TypeAlias = Literal["promptString", "pickString", "command"]


class Input(Struct, frozen=True, kw_only=True):
    """A question of a file. Of a `password` the answer is never shown, not while it is typed."""

    id: str
    file: str
    kind: InputKind = "promptString"
    description: str = ""
    password: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


# Gives the answer, or None where nobody gives one.
OnInput: TypeAlias = Callable[[Input], "str | Awaitable[str | None] | None"]


class Inputs:
    """The answers so far; given to `read_config` again, it asks nothing twice."""

    def __init__(self, on_input: OnInput | None = None) -> None:
        self._on_input = on_input
        self._answers: dict[Input, str] = {}
        self._asking: dict[Input, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"Inputs({len(self._answers)} answered)"

    @property
    def can_ask(self) -> bool:
        """Whether there is somebody to ask."""
        return self._on_input is not None

    async def answer(self, question: Input) -> str:
        """The answer to a question. Raises `Refused` where there is none."""
        async with self._asking.setdefault(question, asyncio.Lock()):
            if question not in self._answers:
                self._answers[question] = await self._ask(question)
        return self._answers[question]

    async def _ask(self, question: Input) -> str:
        if self._on_input is None:
            raise Refused(f"nobody is there to answer the input {question.id!r}; pass on_input=")
        found: Any = self._on_input(question)
        if inspect.isawaitable(found):
            found = await cast("Awaitable[str | None]", found)
        if not isinstance(found, str):
            raise Refused(f"the input {question.id!r} was not answered")
        return found


def inputs_of(root: Node, problems: list[Problem]) -> dict[str, Input]:
    """The questions of a file of VS Code, by their ids."""
    found: dict[str, Input] = {}
    node = root.get("inputs")
    if node is None:
        return found
    if node.items is None:
        problems.append(Problem("", "inputs should be a list of objects", node.place))
        return found
    for item in node.items:
        words = _wrong(item)
        if words:
            problems.append(Problem("", words, item.place))
            continue
        value = item.value
        if value["id"] in found:
            problems.append(Problem("", "there is another input of this id", item.place))
            continue
        found[value["id"]] = Input(
            id=value["id"],
            file=root.document.file,
            kind=value["type"],
            description=str(value.get("description", "")),
            password=value.get("password") is True,
            default=value["default"] if isinstance(value.get("default"), str) else None,
            options=tuple(_option(one) for one in value.get("options", ())),
        )
    return found


def _option(value: Any) -> str:
    return str(cast("dict[str, Any]", value).get("value", "") if isinstance(value, dict) else value)


def _wrong(item: Node) -> str:
    if item.members is None or not isinstance(item.value.get("id"), str):
        return "an input is an object with an id and a type"
    kind = item.value.get("type")
    if kind == "command":
        return "an input of the type command asks an editor; there is none here"
    if kind not in ("promptString", "pickString"):
        return 'an input has the type "promptString" or "pickString"'
    if kind == "pickString" and not isinstance(item.value.get("options"), list):
        return "an input of the type pickString has a list of options"
    return ""


# What Claude Code gives such a command; a password manager that asks a person is not done by then.
HELPER_S: Final = 10.0
# A token, or a page of headers; what is longer is no such thing.
MAX_BYTES: Final = 64 * 1024

# What has a meaning for a shell, and none without one.
_SHELL: Final = frozenset("|&;<>()$`\\\"'*?[]#~=%!{}\n\r")


def words_of(line: str, platform: str = sys.platform) -> list[str]:
    """The words of a line that is written for a shell: one goes along only where it is needed."""
    if platform == "win32":
        return ["cmd", "/d", "/s", "/c", line]
    if line.strip() and not _SHELL & set(line):
        return shlex.split(line)
    return ["/bin/sh", "-c", line]


async def printed(
    words: Sequence[str], *, cwd: str | None, env: Mapping[str, str], limit_s: float = HELPER_S
) -> str:
    """What a program prints. Raises `Refused` where it fails, or takes too long."""
    name = os.path.basename(words[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=cwd,
            env=dict(env),
            start_new_session=sys.platform != "win32",
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise Refused(f"{name!r} cannot be started: {why}") from None
    try:
        async with asyncio.timeout(limit_s):
            data = await _read(process)
            code = await process.wait() if len(data) <= MAX_BYTES else await _end(process)
    except TimeoutError:
        await _end(process)
        raise Refused(f"{name!r} was not done within {limit_s:g} s, and was ended") from None
    except BaseException:
        await _end(process)
        raise
    if len(data) > MAX_BYTES:
        raise Refused(f"{name!r} printed more than {MAX_BYTES >> 10} KiB, which is no value")
    if code:
        raise Refused(f"{name!r} failed with exit code {code}; run it by hand to see why")
    return data.decode("utf-8", "replace").rstrip("\r\n")


async def _read(process: asyncio.subprocess.Process) -> bytes:
    data = b""
    if process.stdout is not None:
        while len(data) <= MAX_BYTES and (more := await process.stdout.read(MAX_BYTES)):
            data += more
    return data


async def _end(process: asyncio.subprocess.Process) -> int:
    """Leave nothing of it: not even what it has started itself."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            if process.returncode is None:
                process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()


# A key or a token in a file; what is longer is no such thing.
MAX_FILE_BYTES = 64 * 1024
# Where a variable may have a default, and what stands before its name there.
_DEFAULTED = {"claude-code": "", "colonnade": "env:"}
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Surroundings(NamedTuple):
    """What a lookup is made in: variables, a home, a person, and the questions of each file."""

    env: Mapping[str, str]
    home: str
    inputs: Inputs
    questions: Mapping[str, Mapping[str, Input]]

    def folder(self, name: str, origin: Origin) -> str:
        """What the editors call the folder that is open, and what goes with it."""
        return {
            "workspaceFolder": origin.folder,
            "workspaceFolderBasename": os.path.basename(origin.folder),
            "userHome": self.home,
            "pathSeparator": os.sep,
            "/": os.sep,
        }[name]

    def path(self, text: str, origin: Origin) -> str:
        """A path that a file names: from its own folder, or from the home."""
        if text == "~" or text.startswith(("~/", "~\\")):
            text = self.home + text[1:]
        return os.path.normpath(os.path.join(os.path.dirname(origin.file), text))


async def text_of(template: Template, origin: Origin, around: Surroundings) -> str | None:
    """A value as it is used; None where it is left out. Raises `Refused`."""
    found: list[str] = []
    for part in template.parts:
        one = part if isinstance(part, str) else await _looked_up(part, origin, around)
        if one is None:
            return None
        found.append(one)
    return "".join(found)


async def _looked_up(part: Reference, origin: Origin, around: Surroundings) -> str | None:
    if part.kind == "folder":
        return around.folder(part.name, origin)
    if part.kind == "env":
        return _variable(part, around)
    if part.kind == "input":
        return await around.inputs.answer(around.questions[origin.file][part.name])
    if part.kind == "keyring":
        from colonnade.auth.client.keyring import keyring_password

        service, _, name = part.name.rpartition("/")
        return await asyncio.to_thread(keyring_password, service, name)
    if part.kind == "file":
        return await asyncio.to_thread(_first_line, around.path(part.name, origin))
    return await printed(part.words, cwd=os.path.dirname(origin.file) or None, env=around.env)


def _variable(part: Reference, around: Surroundings) -> str | None:
    found = around.env.get(part.name)
    if part.optional:
        return found or None
    if found is None:
        found = part.default  # which is not for an empty variable, unlike in a shell
    if found is None:
        raise Refused(f"the variable {part.name} is not set")
    return found


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8").removeprefix("\ufeff").partition("\n")[0].rstrip("\r")
    except UnicodeDecodeError:
        raise Refused(f"{path} is no text") from None


# ---------------------------------------------------------------- before anything is looked up


def missing(template: Template, origin: Origin, around: Surroundings) -> Iterator[tuple[str, str]]:
    """References that cannot be resolved: what is wrong with each, and what to do."""
    for part in template.references:
        if part.kind == "env":
            is_needed = part.default is None and not part.optional
            if is_needed and part.name not in around.env:
                kind = _DEFAULTED.get(origin.dialect)
                more = f", or write ${{{kind}{part.name}:-default}}" if kind is not None else ""
                yield f"the variable {part.name} is not set", f"set it{more}"
        elif part.kind == "input":
            if part.name not in around.questions.get(origin.file, {}):
                yield f"there is no input {part.name} in this file", "add one to its inputs"
            elif not around.inputs.can_ask:
                yield f"there is no terminal to ask for the input {part.name}", ""
        elif part.kind == "file":
            path = around.path(part.name, origin)
            if not os.path.isfile(path):
                yield f"there is no file {path}", ""


def remarks(template: Template, origin: Origin, around: Surroundings) -> Iterator[str]:
    """What is odd about references, and does no harm here."""
    for part in template.references:
        if part.kind == "env" and part.name not in around.env and part.default == "":
            yield f"the variable {part.name} is not set, and so it is empty"
        elif part.kind == "file" and sys.platform != "win32":
            path = around.path(part.name, origin)
            if os.path.isfile(path) and os.stat(path).st_mode & _OTHERS:
                yield f"others than you may read {path}; chmod 600 it"
