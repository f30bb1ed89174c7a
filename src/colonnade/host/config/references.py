"""References in values: `${NAME}`, `${env:NAME}`, `${input:id}` … in the syntax of each program.

A value is parsed into literal parts and references when its file is read, and resolved when it is
used. Where a program has no reference of a kind, the text stays as it is, as it does in that
program.

Rules: nothing is looked up here. The same text may mean different things in different formats.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

_VARIABLE = re.compile(r"(?:export[ \t]+)?([A-Za-z_][\w.-]*)")
_COMMENT = re.compile(r"(?:^|[ \t]+)#.*$")
_ESCAPES = {r"\n": "\n", r"\r": "\r", r"\"": '"', r"\\": "\\"}


class InvalidEnvLine(Exception):
    """A line of a `.env` file that cannot be parsed, and its number."""

    def __init__(self, line: int) -> None:
        self.line: int = line
        super().__init__(f"line {line} is not NAME=value")


def parse_env_file(text: str) -> dict[str, str]:
    """The variables of a `.env` file; of two of one name the last wins. Raises `InvalidEnvLine`."""
    variables: dict[str, str] = {}
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
            raise InvalidEnvLine(text.count("\n", 0, at) + 1)
        variables[named[1]], at = _value(text, at + line.index("=") + 1, end, rest)
    return variables


def _value(text: str, start: int, end: int, rest: str) -> tuple[str, int]:
    """The value that begins here, and where the next line begins; a quoted value may span lines."""
    first = rest.strip()[:1]
    if first in ('"', "'", "`"):
        opened = text.index(first, start)
        closed = _closing(text, opened, first)
        if closed > 0:
            inner = text[opened + 1 : closed]
            if first == '"':
                inner = re.sub(r'\\[nr"\\]', lambda match: _ESCAPES[match[0]], inner)
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


ReferenceKind: TypeAlias = Literal["env", "input", "keyring", "file", "folder", "command"]

_BRACED = re.compile(r"\$\{([^}]+)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The variables of VS Code and Cursor for the open folder.
FOLDERS: Final = (
    "workspaceFolder",
    "workspaceFolderBasename",
    "userHome",
    "pathSeparator",
    "/",
)
# Variables that need an open editor.
EDITORS = re.compile(
    r"(?:config|command|workspaceFolder|workspaceFolderBasename):.*|file\w*|relativeFile\w*"
    r"|selectedText|lineNumber|columnNumber|execPath|defaultBuildTask|extensionInstallFolder:.*"
)


class Reference(NamedTuple):
    """A reference, which is resolved later; `text` is how it is written."""

    kind: ReferenceKind
    name: str
    text: str
    default: str | None = None
    # Whether the whole value is left out if the reference cannot be resolved.
    optional: bool = False
    # The argument list of a command.
    words: tuple[str, ...] = ()


Part: TypeAlias = str | Reference


class ValueTemplate(NamedTuple):
    """A value as it is written, and its parts."""

    text: str
    parts: tuple[Part, ...]

    @property
    def references(self) -> list[Reference]:
        """The parts that have to be resolved."""
        return [part for part in self.parts if isinstance(part, Reference)]


class InvalidReference(Exception):
    """A reference that cannot be resolved in this format, and why."""


# Parses a text into parts, and adds warnings.
ParseReferences: TypeAlias = Callable[[str, list[str]], Sequence[Part]]


def template(text: str, file_format: str, warnings: list[str]) -> ValueTemplate:
    """Parse a value of a format. Raises `InvalidReference`."""
    if "${" not in text:
        return ValueTemplate(text, (text,))
    return ValueTemplate(
        text, tuple(part for part in PARSERS[file_format](text, warnings) if part != "")
    )


def literal(text: str) -> ValueTemplate:
    """A value without references."""
    return ValueTemplate(text, (text,))


def _split_references(text: str, parse: Callable[[str, str], Part]) -> list[Part]:
    parts: list[Part] = []
    at = 0
    for found in _BRACED.finditer(text):
        parts += [text[at : found.start()], parse(found[1], found[0])]
        at = found.end()
    return [*parts, text[at:]]


# ---------------------------------------------------------------- the formats


def _claude_code(text: str, warnings: list[str]) -> list[Part]:
    def parse(inner: str, whole: str) -> Part:
        name, found, default = inner.partition(":-")
        if not _NAME.fullmatch(name):
            kind, _, rest = name.partition(":")
            here = f"; write ${{{rest}}}" if kind == "env" and _NAME.fullmatch(rest) else ""
            raise InvalidReference(f"{whole} is not a variable name{here}")
        return Reference("env", name, whole, default if found else None)

    return _split_references(text, parse)


def _vscode(text: str, warnings: list[str]) -> list[Part]:
    def parse(inner: str, whole: str) -> Part:
        kind, colon, name = inner.partition(":")
        if colon and kind == "env":
            # VS Code takes a variable that is not set for an empty string.
            return Reference("env", name, whole, "")
        if colon and kind == "input":
            return Reference("input", name, whole)
        if inner == "cwd":
            return Reference("folder", "workspaceFolder", whole)
        if inner in FOLDERS:
            return Reference("folder", inner, whole)
        if EDITORS.fullmatch(inner):
            raise InvalidReference(f"{whole} is known only to an editor; write its value")
        warnings.append(f"{whole} is not a reference of VS Code and is not replaced")
        return whole

    return _split_references(text, parse)


def _cursor(text: str, warnings: list[str]) -> list[Part]:
    def parse(inner: str, whole: str) -> Part:
        kind, colon, name = inner.partition(":")
        if colon and kind == "env":
            return Reference("env", name, whole)
        if inner in FOLDERS:
            return Reference("folder", inner, whole)
        here = f"; write ${{env:{inner}}}" if _NAME.fullmatch(inner) else ""
        warnings.append(f"{whole} is not a reference of Cursor and is not replaced{here}")
        return whole

    return _split_references(text, parse)


def _no_references(text: str, warnings: list[str]) -> list[Part]:
    if _BRACED.search(text):
        warnings.append("this program has no references: the braces are not replaced")
    return [text]


_OURS: Final = "use ${env:NAME}, ${env:NAME:-default}, ${keyring:service/name}, ${file:path}"


def _colonnade(text: str, warnings: list[str]) -> list[Part]:
    parts: list[Part] = []
    at = 0
    while (found := text.find("${", at)) >= 0:
        if found and text[found - 1] == "$":  # $${ is a literal ${
            parts += [text[at : found - 1], "${"]
            at = found + 2
            continue
        end = text.find("}", found)
        if end < 0:
            raise InvalidReference("a ${ has no closing }; write $${ for a literal ${")
        parts += [text[at:found], _parse_own(text[found + 2 : end], text[found : end + 1])]
        at = end + 1
    return [*parts, text[at:]]


def _parse_own(inner: str, whole: str) -> Reference:
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
        raise InvalidReference(f"{whole} is not a reference here; a variable is ${{env:{inner}}}")
    raise InvalidReference(f"{whole} is not a reference; {_OURS}")


PARSERS: Final[dict[str, ParseReferences]] = {
    "claude-desktop": _no_references,
    "claude-code": _claude_code,
    "vscode": _vscode,
    "cursor": _cursor,
    "codex": _no_references,
    "colonnade": _colonnade,
}
