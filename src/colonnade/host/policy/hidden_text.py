"""Hidden text in one string, and in JSON as a server wrote it: found, counted, and shown.

Rules: pure. Each step is short, also for a text of megabytes: while one search of the regular
expression engine runs, no other thread does.
"""

import re
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Raw

from colonnade.text import has_hidden, hidden_in, visible

# Bytes of JSON that one search covers, in about two milliseconds.
WINDOW: Final = 65_536
# Bytes that two windows share: more than an emoji with its joiners and styles as escapes of JSON,
# so a character is seen with its neighbours in one of the two; and more than the characters at both
# edges, which may have four bytes each.
OVERLAP: Final = 128
# Characters at an edge of a window are judged in the other window, which has their neighbours.
MARGIN: Final = 8

# A carriage return that no line feed follows overwrites the line in a terminal.
_LONE_RETURN: Final = re.compile("\r(?!\n)")

_CLASSES: Final[dict[str, "re.Pattern[str]"]] = {
    "escapes": re.compile("[\x1b\x80-\x9f]+"),
    "bidi": re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+"),
    "tags": re.compile("[\U000e0000-\U000e0fff]+"),
}


def is_plain(text: str) -> bool:
    """Whether a string has no invisible character, not even one that belongs to an emoji."""
    return not has_hidden(text) and ("\r" not in text or _LONE_RETURN.search(text) is None)


def neutralise(text: str) -> str:
    """The string with each hidden character as its escape; line breaks and tabs stay, and what an
    emoji or a letter needs."""
    shown = visible(text)
    return _LONE_RETURN.sub(r"\\r", shown) if "\r" in shown else shown


def percent_encoded(uri: str) -> str:
    """The URI with what is hidden in it percent-encoded, which means the same."""
    hidden = {*hidden_in(uri), *_LONE_RETURN.findall(uri)}
    return uri.translate({ord(one): quote(one, errors="replace") for one in hidden})


def find_hidden(text: str) -> dict[str, int]:
    """The number of hidden characters of each kind; empty if nothing is hidden."""
    hidden = hidden_in(text)
    left = len(hidden)
    found = dict[str, int]()
    for name, pattern in _CLASSES.items():
        found[name] = len(hidden) - len(pattern.sub("", hidden))
        left -= found[name]
    found["invisible"] = left + (len(_LONE_RETURN.findall(text)) if "\r" in text else 0)
    return {name: count for name, count in found.items() if count}


# Characters that JSON may have as an escape.
_ESCAPES: Final = re.compile(r"\\[ubfr]")
_ESCAPED: Final = re.compile(r"\\r\\n|(?:\\u[0-9a-fA-F]{4})+|\\.", re.DOTALL)
_HARMLESS: Final = frozenset({"\\r\\n", '\\"', "\\\\", "\\/", "\\n", "\\t"})


def hides_text(raw: Raw | bytes) -> bool:
    """Whether JSON of a server has hidden text anywhere, including members that no type has.
    Escapes at the end of a window may be misread, so the result may be a false positive."""
    written = memoryview(raw)
    start = 0
    for at in range(0, len(written), WINDOW):
        piece = bytes(written[start : at + WINDOW + OVERLAP])
        left = MARGIN if at + WINDOW < len(written) else 0
        if _window_hides(piece.decode(errors="ignore"), MARGIN if at else 0, left):
            return True
        # A backslash at the end of this window may escape what follows. The next window begins with
        # it then: else the escapes in that one would be read one character off.
        whole = piece[: at + WINDOW - start]
        start = at + WINDOW - (len(whole) - len(whole.rstrip(b"\\"))) % 2
    return False


def _window_hides(text: str, skipped: int, left: int) -> bool:
    if hidden_in(text, skipped, len(text) - left):
        return True
    if _ESCAPES.search(text) is None:
        return False
    return any(_escape_hides(text, found) for found in _ESCAPED.finditer(text))


def _escape_hides(text: str, found: re.Match[str]) -> bool:
    """Whether the escapes of JSON at a place hide text, with the characters next to them."""
    escape = found[0]
    if escape in _HARMLESS:
        return False
    try:
        value: str = msgspec.json.decode(f'"{escape}"')
    except msgspec.DecodeError:  # half of a pair
        return True
    before = text[max(0, found.start() - 1) : found.start()]
    return bool(find_hidden(f"{before}{value}{text[found.end() : found.end() + 1]}"))
