"""Variables in a file of their own, as VS Code and Cursor read one: `NAME=value`, a line each.

Rules: text in, pairs out; nothing in a value is looked up, and no value is ever in an error.
"""

import re

_NAME = re.compile(r"(?:export[ \t]+)?([A-Za-z_][\w.-]*)")
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
        named = _NAME.fullmatch(name.strip())
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
