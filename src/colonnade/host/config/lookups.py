"""Resolves the references of configuration values: environment variables, VS Code inputs, the
keyring, files and helper commands.

Rules: references are resolved when a server is about to be started, and the values are not kept.
Errors name the reference and never its value.
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
from colonnade.host.config.entry import Origin, SourceNode
from colonnade.host.config.references import Reference, ValueTemplate
from colonnade.host.config.settings import HostProblem

InputKind: TypeAlias = Literal["promptString", "pickString", "command"]


class Input(Struct, frozen=True, kw_only=True):
    """An input of a VS Code configuration file. The value of a `password` is never shown, also
    while it is typed."""

    id: str
    file: str
    kind: InputKind = "promptString"
    description: str = ""
    password: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


# Returns the value, or None if there is none.
OnInput: TypeAlias = Callable[[Input], "str | Awaitable[str | None] | None"]


class Inputs:
    """The values of inputs so far; passed to `read_config` again, it prompts for nothing twice."""

    def __init__(self, on_input: OnInput | None = None) -> None:
        self._on_input = on_input
        self._answers: dict[Input, str] = {}
        self._locks: dict[Input, asyncio.Lock] = {}

    def __repr__(self) -> str:
        return f"Inputs({len(self._answers)} answered)"

    @property
    def can_ask(self) -> bool:
        """Whether there is a callback."""
        return self._on_input is not None

    async def answer(self, one: Input) -> str:
        """The value of an input. Raises `Refused` if there is none."""
        async with self._locks.setdefault(one, asyncio.Lock()):
            if one not in self._answers:
                self._answers[one] = await self._ask(one)
        return self._answers[one]

    async def _ask(self, one: Input) -> str:
        if self._on_input is None:
            raise Refused(f"the input {one.id!r} needs a value; pass on_input=")
        found: Any = self._on_input(one)
        if inspect.isawaitable(found):
            found = await cast("Awaitable[str | None]", found)
        if not isinstance(found, str):
            raise Refused(f"the input {one.id!r} was given no value")
        return found


def inputs_of(root: SourceNode, problems: list[HostProblem]) -> dict[str, Input]:
    """The inputs of a VS Code configuration file, by id."""
    inputs: dict[str, Input] = {}
    node = root.get("inputs")
    if node is None:
        return inputs
    if node.items is None:
        problems.append(HostProblem("", "expected a list of objects", node.place))
        return inputs
    for item in node.items:
        message = _input_error(item)
        if message:
            problems.append(HostProblem("", message, item.place))
            continue
        value = item.value
        if value["id"] in inputs:
            problems.append(HostProblem("", "duplicate input id", item.place))
            continue
        inputs[value["id"]] = Input(
            id=value["id"],
            file=root.document.file,
            kind=value["type"],
            description=str(value.get("description", "")),
            password=value.get("password") is True,
            default=value["default"] if isinstance(value.get("default"), str) else None,
            options=tuple(_option(one) for one in value.get("options", ())),
        )
    return inputs


def _option(value: Any) -> str:
    return str(cast("dict[str, Any]", value).get("value", "") if isinstance(value, dict) else value)


def _input_error(item: SourceNode) -> str:
    if item.members is None or not isinstance(item.value.get("id"), str):
        return "expected an object with an id and a type"
    kind = item.value.get("type")
    if kind == "command":
        return "inputs of the type command need an editor and are not supported"
    if kind not in ("promptString", "pickString"):
        return 'expected the type "promptString" or "pickString"'
    if kind == "pickString" and not isinstance(item.value.get("options"), list):
        return "an input of the type pickString needs a list of options"
    return ""


# The time limit of Claude Code for such a command; a password manager that prompts takes longer.
HELPER_S: Final = 10.0
# More than a token or a page of headers.
MAX_BYTES: Final = 64 * 1024

# Characters that are special in a shell.
_SHELL: Final = frozenset("|&;<>()$`\\\"'*?[]#~=%!{}\n\r")


def shell_words(line: str, platform: str = sys.platform) -> list[str]:
    """The argument list for a shell command line; a shell is used only if the line needs one."""
    if platform == "win32":
        return ["cmd", "/d", "/s", "/c", line]
    if line.strip() and not _SHELL & set(line):
        return shlex.split(line)
    return ["/bin/sh", "-c", line]


async def run_helper(
    argv: Sequence[str], *, cwd: str | None, env: Mapping[str, str], limit_s: float = HELPER_S
) -> str:
    """The output of a helper command. Raises `Refused` if it fails or takes too long."""
    name = os.path.basename(argv[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
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
            code = await process.wait() if len(data) <= MAX_BYTES else await _kill(process)
    except TimeoutError:
        await _kill(process)
        raise Refused(f"{name!r} did not finish within {limit_s:g} s and was stopped") from None
    except BaseException:
        await _kill(process)
        raise
    if len(data) > MAX_BYTES:
        raise Refused(f"{name!r} printed more than {MAX_BYTES >> 10} KiB")
    if code:
        raise Refused(f"{name!r} exited with {code}; run it in a terminal to see why")
    return data.decode("utf-8", "replace").rstrip("\r\n")


async def _read(process: asyncio.subprocess.Process) -> bytes:
    data = b""
    if process.stdout is not None:
        while len(data) <= MAX_BYTES and (more := await process.stdout.read(MAX_BYTES)):
            data += more
    return data


async def _kill(process: asyncio.subprocess.Process) -> int:
    """Kill its whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            if process.returncode is None:
                process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    return await process.wait()


# More than a key or a token.
MAX_FILE_BYTES = 64 * 1024
# Formats in which a variable may have a default, and the prefix of its name there.
_DEFAULTED = {"claude-code": "", "colonnade": "env:"}
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class LookupContext(NamedTuple):
    """What references are resolved with: the environment, the home folder, the inputs' callback,
    and the inputs that each file declares."""

    env: Mapping[str, str]
    home: str
    inputs: Inputs
    declared_inputs: Mapping[str, Mapping[str, Input]]

    def folder(self, name: str, origin: Origin) -> str:
        """The value of a folder variable of VS Code and Cursor."""
        return {
            "workspaceFolder": origin.folder,
            "workspaceFolderBasename": os.path.basename(origin.folder),
            "userHome": self.home,
            "pathSeparator": os.sep,
            "/": os.sep,
        }[name]

    def path(self, text: str, origin: Origin) -> str:
        """An absolute path: relative to the folder of the file that names it, or to the home
        folder."""
        if text == "~" or text.startswith(("~/", "~\\")):
            text = self.home + text[1:]
        return os.path.normpath(os.path.join(os.path.dirname(origin.file), text))


async def resolve_template(
    template: ValueTemplate, origin: Origin, context: LookupContext
) -> str | None:
    """The resolved value; None if it is left out. Raises `Refused`."""
    found: list[str] = []
    for part in template.parts:
        one = part if isinstance(part, str) else await _look_up(part, origin, context)
        if one is None:
            return None
        found.append(one)
    return "".join(found)


async def _look_up(part: Reference, origin: Origin, context: LookupContext) -> str | None:
    if part.kind == "folder":
        return context.folder(part.name, origin)
    if part.kind == "env":
        return _variable(part, context)
    if part.kind == "input":
        return await context.inputs.answer(context.declared_inputs[origin.file][part.name])
    if part.kind == "keyring":
        from colonnade.auth.client.storage import keyring_password

        service, _, name = part.name.rpartition("/")
        return await asyncio.to_thread(keyring_password, service, name)
    if part.kind == "file":
        return await asyncio.to_thread(_first_line, context.path(part.name, origin))
    return await run_helper(part.words, cwd=os.path.dirname(origin.file) or None, env=context.env)


def _variable(part: Reference, context: LookupContext) -> str | None:
    found = context.env.get(part.name)
    if part.optional:
        return found or None
    if found is None:
        found = part.default  # unlike in a shell, not for an empty variable
    if found is None:
        raise Refused(f"the environment variable {part.name} is not set")
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
        raise Refused(f"{path} is not UTF-8 text") from None


# ---------------------------------------------------------------- checks without resolving


def reference_errors(
    template: ValueTemplate, origin: Origin, context: LookupContext
) -> Iterator[tuple[str, str]]:
    """References that cannot be resolved, as far as that is known without resolving them: what is
    wrong with each, and what to do."""
    for part in template.references:
        if part.kind == "env":
            is_needed = part.default is None and not part.optional
            if is_needed and part.name not in context.env:
                kind = _DEFAULTED.get(origin.file_format)
                more = f", or write ${{{kind}{part.name}:-default}}" if kind is not None else ""
                yield f"the environment variable {part.name} is not set", f"set it{more}"
        elif part.kind == "input":
            if part.name not in context.declared_inputs.get(origin.file, {}):
                yield f"this file has no input {part.name}", "add it to its inputs"
            elif not context.inputs.can_ask:
                yield f"the input {part.name} needs a value, and there is no prompt for it", ""
        elif part.kind == "file":
            path = context.path(part.name, origin)
            if not os.path.isfile(path):
                yield f"file not found: {path}", ""


def reference_warnings(
    template: ValueTemplate, origin: Origin, context: LookupContext
) -> Iterator[str]:
    """Warnings about references."""
    for part in template.references:
        if part.kind == "env" and part.name not in context.env and part.default == "":
            yield f"the environment variable {part.name} is not set; an empty string is used"
        elif part.kind == "file" and sys.platform != "win32":
            path = context.path(part.name, origin)
            if os.path.isfile(path) and os.stat(path).st_mode & _OTHERS:
                yield f"other users can read {path}; run chmod 600"
