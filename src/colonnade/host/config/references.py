"""What a value refers to, in the way of each program: `${NAME}`, `${env:NAME}`, `${input:id}` …

A value is taken apart where it is read, and put together where it is used: in between there are
only names. Where a program has no reference of a kind, the text stays as it is, as it does there.

Rules: nothing is looked up here, and nothing is guessed. The same text means one thing in one
dialect, and may mean another in the next.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

_VARIABLE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][\w.-]*)")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*$")
_ESCAPES = {r"\n": "\n", r"\r": "\r", r"\"": '"', r"\\": "\\"}


class OddLine(Exception):
    """A line that is none, and its number."""

    def __init__(self, line: int) -> None:
        self.line: int = line
        super().__init__(f"line {line} is no NAME=value")


def variables(text: str) -> dict[str, str]:
    """What a file of variables says; the last one of a name counts. Raises `OddLine`."""
    found: dict[str, str] = {}
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        line = text[at:end]
        if not line.strip() or line.lstrip().startswith("#"):
            at = end + 1
            continue
        name, equals, rest = line.partition("=")
        named = _VARIABLE.fullmatch(name.strip())
        if not equals or named is None:
            raise OddLine(text.count("\n", 0, at) + 1)
        found[named[1]], at = _value(text, at + line.index("=") + 1, end, rest)
    return found


def _value(text: str, start: int, end: int, rest: str) -> tuple[str, int]:
    """The value that begins here, and where the next line does; in quotes it may have lines."""
    first = rest.strip()[:1]
    if first in ('"', "'", "`"):
        opened = text.index(first, start)
        closed = _closing(text, opened, first)
        if closed > 0:
            inner = text[opened + 1 : closed]
            if first == '"':
                inner = re.sub(r'\\[nr"\\]', lambda found: _ESCAPES[found[0]], inner)
            after = text.find("\n", closed)
            return inner, len(text) if after < 0 else after + 1
    return _COMMENT.sub("", rest).strip(), end + 1


def _closing(text: str, opened: int, quote: str) -> int:
    at = opened + 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 2
            continue
        if text[at] == quote:
            return at
        at += 1
    return -1


Kind: TypeAlias = Literal["env", "input", "keyring", "file", "folder", "command"]

_BRACED = re.compile(r"\$\{([^}]+)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What VS Code and Cursor know of the folder that is open.
FOLDERS: Final = (
    "workspaceFolder",
    "workspaceFolderBasename",
    "userHome",
    "pathSeparator",
    "/",
)
# What only an editor with a file in it can say.
EDITORS = re.compile(
    r"(?:config|command|workspaceFolder|workspaceFolderBasename):.*|file\w*|relativeFile\w*"
    r"|selectedText|lineNumber|columnNumber|execPath|defaultBuildTask|extensionInstallFolder:.*"
)


class Reference(NamedTuple):
    """One name for something that is looked up later; as it is written, it is `text`."""

    kind: Kind
    name: str
    text: str
    default: str | None = None
    # Whether the whole value is left out where there is nothing to be found.
    optional: bool = False
    # For a command: its words.
    words: tuple[str, ...] = ()


Part: TypeAlias = str | Reference


class Template(NamedTuple):
    """A value as it is written, and what it is made of."""

    text: str
    parts: tuple[Part, ...]

    @property
    def references(self) -> list[Reference]:
        """What has to be looked up."""
        return [part for part in self.parts if isinstance(part, Reference)]


class Odd(Exception):
    """A reference that cannot be one, and why."""


# Gives the parts of a text, and adds what a person should know.
Reader: TypeAlias = Callable[[str, list[str]], Sequence[Part]]


def template(text: str, dialect: str, remarks: list[str]) -> Template:
    """A value of a dialect, taken apart. Raises `Odd`."""
    if "${" not in text:
        return Template(text, (text,))
    return Template(text, tuple(part for part in READERS[dialect](text, remarks) if part != ""))


def plain(text: str) -> Template:
    """A value in which nothing is a reference."""
    return Template(text, (text,))


def _taken_apart(text: str, meaning: Callable[[str, str], Part]) -> list[Part]:
    parts: list[Part] = []
    at = 0
    for found in _BRACED.finditer(text):
        parts += [text[at : found.start()], meaning(found[1], found[0])]
        at = found.end()
    return [*parts, text[at:]]


# ---------------------------------------------------------------- the dialects


def _claude_code(text: str, remarks: list[str]) -> list[Part]:
    def meaning(inner: str, whole: str) -> Part:
        name, found, default = inner.partition(":-")
        if not _NAME.fullmatch(name):
            kind, _, rest = name.partition(":")
            here = f"; here it is ${{{rest}}}" if kind == "env" and _NAME.fullmatch(rest) else ""
            raise Odd(f"{whole} names no variable{here}")
        return Reference("env", name, whole, default if found else None)

    return _taken_apart(text, meaning)


def _vscode(text: str, remarks: list[str]) -> list[Part]:
    def meaning(inner: str, whole: str) -> Part:
        kind, colon, name = inner.partition(":")
        if colon and kind == "env":
            # It takes a variable that is not set for an empty text.
            return Reference("env", name, whole, "")
        if colon and kind == "input":
            return Reference("input", name, whole)
        if inner == "cwd":
            return Reference("folder", "workspaceFolder", whole)
        if inner in FOLDERS:
            return Reference("folder", inner, whole)
        if EDITORS.fullmatch(inner):
            raise Odd(f"{whole} is something that only an editor knows; write it out")
        remarks.append(f"{whole} is no reference of VS Code, and stays as it is")
        return whole

    return _taken_apart(text, meaning)


def _cursor(text: str, remarks: list[str]) -> list[Part]:
    def meaning(inner: str, whole: str) -> Part:
        kind, colon, name = inner.partition(":")
        if colon and kind == "env":
            return Reference("env", name, whole)
        if inner in FOLDERS:
            return Reference("folder", inner, whole)
        here = f"; it writes ${{env:{inner}}}" if _NAME.fullmatch(inner) else ""
        remarks.append(f"{whole} is no reference of Cursor, and stays as it is{here}")
        return whole

    return _taken_apart(text, meaning)


def _nothing(text: str, remarks: list[str]) -> list[Part]:
    if _BRACED.search(text):
        remarks.append("this program looks nothing up: what stands in braces stays as it is")
    return [text]


_OURS: Final = "there are ${env:NAME}, ${env:NAME:-default}, ${keyring:service/name}, ${file:path}"


def _colonnade(text: str, remarks: list[str]) -> list[Part]:
    parts: list[Part] = []
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found and text[found - 1] == "$":  # said twice, it is only itself
            parts += [text[at : found - 1], "${"]
            at = found + 2
            continue
        end = text.find("}", found)
        if end < 0:
            raise Odd("a ${ has no } after it; a ${ that is meant as such is $${")
        parts += [text[at:found], _own(text[found + 2 : end], text[found : end + 1])]
        at = end + 1
    return [*parts, text[at:]]


def _own(inner: str, whole: str) -> Reference:
    kind, _, rest = inner.partition(":")
    if kind == "env":
        name, found, default = rest.partition(":-")
        if _NAME.fullmatch(name):
            return Reference("env", name, whole, default if found else None)
    elif kind == "keyring":
        service, _, name = rest.rpartition("/")
        if service and name:
            return Reference("keyring", rest, whole)
    elif kind == "file" and rest:
        return Reference("file", rest, whole)
    elif _NAME.fullmatch(inner):
        raise Odd(f"{whole} is not known here; a variable is ${{env:{inner}}}")
    raise Odd(f"{whole} refers to nothing; {_OURS}")


READERS: Final[dict[str, Reader]] = {
    "claude-desktop": _nothing,
    "claude-code": _claude_code,
    "vscode": _vscode,
    "cursor": _cursor,
    "codex": _nothing,
    "colonnade": _colonnade,
}
