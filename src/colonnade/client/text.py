"""Other people's words made safe for people: nothing hidden, nothing that acts, cut to a width.

Rules: nothing that a server wrote moves a cursor, changes a colour or hides a word: what would is
shown as its escape. Widths are those of a terminal, where some characters take two places.
"""

from unicodedata import category, combining, east_asian_width

from colonnade.text import escaped, has_hidden, visible

# Join letters and parts of one picture; `visible` leaves only those that do.
JOINERS = "\u200c\u200d"
# What is not shown as it is: controls, marks that turn the direction of text or are never seen,
# halves of characters, and breaks of lines that are none to a terminal.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
ELLIPSIS = "…"


def clean(text: str, *, lines: bool = False) -> str:
    """The text as a terminal may show it; with its line breaks and tabs, if `lines`."""
    if lines:
        text = text.replace("\r\n", "\n")
    if text.isprintable() and not has_hidden(text):
        return text
    kept = "\n\t" if lines else ""
    seen = visible(text)
    return "".join(one if one in kept or not _is_unsafe(one) else escaped(one) for one in seen)


def _is_unsafe(character: str) -> bool:
    return category(character) in UNSAFE and character not in JOINERS


def one_line(text: str | None) -> str:
    """All of a text in one line."""
    return clean(" ".join((text or "").split()))


def first_line(text: str | None) -> str:
    """The first line of a text that says anything."""
    lines = (text or "").strip().splitlines()
    return one_line(lines[0]) if lines else ""


def width(text: str) -> int:
    """How many places a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_places(character) for character in text)


def _places(character: str) -> int:
    if combining(character) or category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


def cut(text: str, places: int) -> str:
    """As much of a text as fits, with a mark where some is missing."""
    if width(text) <= places:
        return text
    kept, left = "", places - 1
    for character in text:
        left -= _places(character)
        if left < 0:
            break
        kept += character
    return kept.rstrip() + ELLIPSIS if places > 0 else ""
