"""Text from other parties, made safe to show: invisible characters, one line, display width; and
similar names for "did you mean".

A letter can be followed by any number of variation selectors, tags or fillers, and a terminal shows
the letter alone. A whole text fits behind it, which a person does not see and a model reads.

Rules: imports nothing of the package, so that every module that shows text of another party can use
it.
"""

import re
from collections.abc import Iterable
from typing import Final
from unicodedata import category, combining, east_asian_width

# Default_Ignorable_Code_Point (Unicode 16, DerivedCoreProperties.txt), and the Braille blank.
_RANGES: Final = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800)),
    *((0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
_HIDDEN = re.compile(f"[{''.join(f'{chr(a)}-{chr(b)}' for a, b in _RANGES)}]")

# They join letters in some scripts, and the parts of one emoji.
_JOINERS = "\u200c\u200d"
# Select the text or the emoji form of a character.
_STYLES = "\ufe0e\ufe0f"
_KEYCAP = "\u20e3"
# Emoji whose category is not a symbol: ‼ ⁉ ℹ 〰 〽
_EMOJI = "\u203c\u2049\u2139\u3030\u303d"


def has_hidden(text: str) -> bool:
    """Whether a string contains an invisible character."""
    return not text.isascii() and _HIDDEN.search(text) is not None


def visible(text: str) -> str:
    """Return the string with each invisible character replaced by its escape, such as `\\u200b`.

    Characters that an emoji or a letter needs are kept: one joiner between two characters outside
    ASCII, one variation selector after an emoji.
    """
    if not has_hidden(text):
        return text
    found: list[str] = []
    before = " "
    for one, after in zip(text, f"{text[1:]} ", strict=True):
        if has_hidden(one) and not _belongs(before, one, after):
            found.append(escaped(one))
            before = " "
        else:
            found.append(one)
            before = one
    return "".join(found)


def escaped(character: str) -> str:
    """Return the Python escape of a character."""
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def _belongs(before: str, one: str, after: str) -> bool:
    if one in _STYLES:
        if before in "0123456789#*":
            return after == _KEYCAP
        return not before.isascii() and (category(before)[0] == "S" or before in _EMOJI)
    return one in _JOINERS and (before in _STYLES or _is_joined(before)) and _is_joined(after)


def _is_joined(character: str) -> bool:
    """Whether a joiner may stand beside this: letters, marks and symbols outside ASCII."""
    if character.isascii() or has_hidden(character):
        return False
    return category(character)[0] in "LMS"


# They join letters and the parts of one emoji; `visible` keeps only those that do.
JOINERS = "\u200c\u200d"
# Categories that are not shown as they are: controls, invisible marks and those that change the
# direction of text, lone surrogates, and line separators that a terminal does not know.
UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
ELLIPSIS = "…"


def clean(text: str, *, lines: bool = False) -> str:
    """Return the string as a terminal may show it; with its line breaks and tabs, if `lines`."""
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
    """Return all of a string as one line."""
    return clean(" ".join((text or "").split()))


def first_line(text: str | None) -> str:
    """Return the first line of a string that is not blank."""
    lines = (text or "").strip().splitlines()
    return one_line(lines[0]) if lines else ""


def width(text: str) -> int:
    """Return the number of terminal columns that a string takes."""
    if text.isascii():
        return len(text)
    return sum(_places(character) for character in text)


def _places(character: str) -> int:
    if combining(character) or category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in ("W", "F") else 1


def cut(text: str, places: int) -> str:
    """Return as much of a string as fits into `places` columns, with an ellipsis if some is
    missing."""
    if width(text) <= places:
        return text
    kept, left = "", places - 1
    for character in text:
        left -= _places(character)
        if left < 0:
            break
        kept += character
    return kept.rstrip() + ELLIPSIS if places > 0 else ""


def close_matches(
    name: str, options: Iterable[str], limit: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the options most similar to a name, for "did you mean"; empty if none is similar."""
    from difflib import get_close_matches  # on use: most names are valid

    return get_close_matches(name, list(options), n=limit, cutoff=cutoff)


def closest(name: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the option most similar to a name; empty if none is similar."""
    return next(iter(close_matches(name, options, cutoff=cutoff)), "")
