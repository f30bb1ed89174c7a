"""Docstrings: their text, and the description of each parameter.

Google, NumPy and Sphinx (reST fields) styles are parsed, also mixed in one docstring. Rules: this
is free text of an author, so nothing is ever refused; what is not understood stays text.
"""

import inspect
import re

from msgspec import Struct

# Compiled on use: most docstrings are one sentence, and most servers have few of them.
_GOOGLE_HEAD = r"(?i)(args|arguments|parameters|params|keyword args|keyword arguments):\s*$"
_GOOGLE_ITEM = r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:(?:\s+(.*)|$)"
_NUMPY_HEAD = r"(?i)(parameters|other parameters|keyword arguments)\s*$"
_NUMPY_ITEM = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"
_SPHINX_ITEM = (
    r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
)
_SPHINX_TYPE = r":(?:type|rtype)\b[^:]*:"
_RULE = r"-{3,}\s*$"


class ParsedDocstring(Struct, frozen=True):
    """A parsed docstring: all text but the parameters, its first paragraph, the parameters."""

    text: str
    summary: str
    parameters: dict[str, str]


def parse_docstring(docstring: str | None) -> ParsedDocstring:
    """Parse a docstring of any of the three styles; an absent one is empty."""
    whole = inspect.cleandoc(docstring or "")
    parameters: dict[str, str] = {}
    if ":" not in whole and "---" not in whole:  # without these no style names a parameter
        text = _spaced(whole)
        return ParsedDocstring(text, _paragraph(text), parameters)
    lines = whole.splitlines()
    kept: list[str] = []
    position = 0
    while position < len(lines):
        line = lines[position]
        ruled = position + 1 < len(lines) and re.match(_RULE, lines[position + 1].strip())
        if ruled and re.match(_NUMPY_HEAD, line.strip()) and not line.startswith(" "):
            position = _read_numpy(lines, position + 2, parameters)
        elif re.match(_GOOGLE_HEAD, line):
            position = _read_google(lines, position + 1, parameters)
        elif match := re.match(_SPHINX_ITEM, line.strip()):
            block, position = _block(lines, position + 1, _indent(line))
            _keep(parameters, match[1], [match[2], *block])
        elif re.match(_SPHINX_TYPE, line.strip()):
            _, position = _block(lines, position + 1, _indent(line))
        else:
            kept.append(line)
            position += 1
    text = _spaced("\n".join(kept))
    return ParsedDocstring(text, _paragraph(text), parameters)


def _read_google(lines: list[str], start: int, parameters: dict[str, str]) -> int:
    """Items one level in, their further lines two; the section ends at text without indentation."""
    # A docstring that starts with the section has lost its indentation to the first line.
    section, end = _block(lines, start, -1 if start == 1 else 0)
    depth = min((_indent(line) for line in section if line.strip()), default=0)
    name, words = "", list[str]()
    for line in section:
        match = re.match(_GOOGLE_ITEM, line.strip()) if _indent(line) == depth else None
        if match:
            _keep(parameters, name, words)
            name, words = match[1], [match[2] or ""]
        else:
            words.append(line)
    _keep(parameters, name, words)
    return end


def _read_numpy(lines: list[str], start: int, parameters: dict[str, str]) -> int:
    """Names without indentation, `a, b : int`; their text one level in; the next rule or a gap
    ends it."""
    position = start
    while position < len(lines):
        head = lines[position]
        if not head.strip():
            position += 1
            continue
        ruled = position + 1 < len(lines) and re.match(_RULE, lines[position + 1].strip())
        match = re.match(_NUMPY_ITEM, head)
        if ruled or not match:
            break
        block, after = _block(lines, position + 1, 0)
        if not any(line.strip() for line in block) and ":" not in head:
            break  # a sentence of one word, not a parameter
        for name in match[1].split(","):
            _keep(parameters, name.strip().lstrip("*"), block)
        position = after
    return position


def _block(lines: list[str], start: int, indent: int) -> tuple[list[str], int]:
    """The lines that belong to one at `indent`: indented deeper, or empty before such a line."""
    end = start
    for position in range(start, len(lines)):
        if lines[position].strip():
            if _indent(lines[position]) <= indent:
                break
            end = position + 1
    return lines[start:end], end


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _keep(parameters: dict[str, str], name: str, words: list[str]) -> None:
    text = " ".join(" ".join(words).split())
    if name and text:
        parameters.setdefault(name, text)


def _spaced(text: str) -> str:
    return (re.sub(r"\n{3,}", "\n\n", text) if "\n\n\n" in text else text).strip()


def _paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())
