"""Text from other parties, made safe to show: invisible characters, one line, display width; and
similar names for "did you mean".

A letter can be followed by any number of variation selectors, tags or fillers, and a terminal shows
the letter alone. A whole text fits behind it, which a person does not see and a model reads.

`INVISIBLE` is the one definition of an invisible character. Terminals, containment and the patterns
of rules use it. Tab, line feed and carriage return are not invisible characters: each caller
decides whether they are allowed.

Rules: imports nothing of the package, so that every module that shows text of another party can use
it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from unicodedata import category, combining, east_asian_width

# Each table has ranges of code points, in hexadecimal. Python's own tables of Unicode differ from
# version to version, and would escape a letter that is newer than the interpreter.

# Default_Ignorable_Code_Point (Unicode 16, DerivedCoreProperties.txt), and the Braille blank.
_IGNORABLE = """
    ad 34f 61c 115f-1160 17b4-17b5 180b-180f 200b-200f 202a-202e 2060-206f 2800 3164 fe00-fe0f feff
    ffa0 fff0-fff8 1bca0-1bca3 1d173-1d17a e0000-e0fff
"""
# Controls (Cc) except tab and line breaks; line separators; surrogates; private use.
_CONTROLS = "0-8 b-c e-1f 7f-9f 2028-2029 d800-f8ff f0000-10ffff"
# Format characters (Cf) that are not ignorable: annotations, Egyptian joiners. Those that are drawn
# around or above numbers, such as U+06DD, are visible.
_FORMATS = "fff9-fffb 13430-1343f"
# Unassigned in Unicode 18, and noncharacters. Beyond U+FFFF only stretches of 16 and more, since
# fonts show a box for the gaps of an alphabet and a comparison with 400 ranges is slow; and none of
# the blocks of pictographs, which get new emoji each year.
_UNASSIGNED = """
    378-379 380-383 38b 38d 3a2 530 557 590 5ca-5cf 5eb-5ee 5f5-5ff 70e 74b-74c 7b2-7bf 7fb-7fc
    82e-82f 83f 85c-85d 85f 86b-86f 892-896 984 98d-98e 991-992 9a9 9b1 9b3-9b5 9ba-9bb 9c5-9c6
    9c9-9ca 9cf-9d6 9d8-9db 9de 9e4-9e5 9ff-a00 a04 a0b-a0e a11-a12 a29 a31 a34 a37 a3a-a3b a3d
    a43-a46 a49-a4a a4e-a50 a52-a58 a5d a5f-a65 a77-a80 a84 a8e a92 aa9 ab1 ab4 aba-abb ac6 aca
    ace-acf ad1-adf ae4-ae5 af2-af8 b00 b04 b0d-b0e b11-b12 b29 b31 b34 b3a-b3b b45-b46 b49-b4a
    b4e-b52 b58-b5b b5e b64-b65 b78-b81 b84 b8b-b8d b91 b96-b98 b9b b9d ba0-ba2 ba5-ba7 bab-bad
    bba-bbd bc3-bc5 bc9 bce-bcf bd1-bd6 bd8-be5 bfb-bff c0d c11 c29 c3a-c3b c45 c49 c4e-c54 c57
    c5b c5e-c5f c64-c65 c70-c76 c8d c91 ca9 cb4 cba-cbb cc5 cc9 cce-cd4 cd7-cdb cdf ce4-ce5 cf0
    cf4-cff d0d d11 d45 d49 d50-d53 d64-d65 d80 d84 d97-d99 db2 dbc dbe-dbf dc7-dc9 dcb-dce dd5
    dd7 de0-de5 df0-df1 df5-e00 e3b-e3e e5c-e80 e83 e85 e8b ea4 ea6 ebe-ebf ec5 ec7 ecf eda-edb
    ee0-eff f48 f6d-f70 f98 fbd fcd fdb-fff 10c6 10c8-10cc 10ce-10cf 1249 124e-124f 1257 1259
    125e-125f 1289 128e-128f 12b1 12b6-12b7 12bf 12c1 12c6-12c7 12d7 1311 1316-1317 135b-135c
    137d-137f 139a-139f 13f6-13f7 13fe-13ff 169d-169f 16f9-16ff 1716-171e 1737-173f 1754-175f 176d
    1771 1774-177f 17de-17df 17ea-17ef 17fa-17ff 181a-181f 1879-187f 18ab-18af 18f6-18ff 191f
    192c-192f 193c-193f 1941-1943 196e-196f 1975-197f 19ac-19af 19ca-19cf 19db-19dd 1a1c-1a1d 1a5f
    1a7d-1a7e 1a8a-1a8f 1a9a-1a9f 1aae-1aaf 1af1-1aff 1b4d 1bf4-1bfb 1c38-1c3a 1c4a-1c4c 1c8b-1c8f
    1cbb-1cbc 1cc8-1ccf 1cfb-1cff 1f16-1f17 1f1e-1f1f 1f46-1f47 1f4e-1f4f 1f58 1f5a 1f5c 1f5e
    1f7e-1f7f 1fb5 1fc5 1fd4-1fd5 1fdc 1ff0-1ff1 1ff5 1fff 2072-2073 20c5-20cf 20f1-20ff 218c-218f
    242a-243f 244b-245f 2b74-2b75 2cf4-2cf8 2d26 2d28-2d2c 2d2e-2d2f 2d68-2d6e 2d71-2d7e 2d97-2d9f
    2da7 2daf 2db7 2dbf 2dc7 2dcf 2dd7 2ddf 2e5e-2e5f 2e64-2e7f 2e9a 2ef4-2eff 2fd6-2fef 3040
    3097-3098 3100-3104 3130 318f 31e6-31ee 321f a48d-a48f a4c7-a4cf a62c-a63f a6f8-a6ff a7de-a7e1
    a7e3-a7f0 a82d-a82f a83a-a83f a878-a87f a8c6-a8cd a8da-a8df a954-a95e a97d-a97f a9ce a9da-a9dd
    a9ff aa37-aa3f aa4e-aa4f aa5a-aa5b aac3-aada aaf7-ab00 ab07-ab08 ab0f-ab10 ab17-ab1f ab27 ab2f
    ab6e-ab6f abee-abef abfa-abff d7a4-d7af d7c7-d7ca d7fc-d7ff fa6e-fa6f fada-faff fb07-fb12
    fb18-fb1c fb37 fb3d fb3f fb42 fb45 fdd0-fdef fe1a-fe1f fe53 fe67 fe6c-fe6f fe75 fefd-fefe ff00
    ffbf-ffc1 ffc8-ffc9 ffd0-ffd1 ffd8-ffd9 ffdd-ffdf ffe7 ffef fffe-ffff 1005e-1007f 101a1-101cf
    101fe-1027f 103d6-103ff 10768-1077f 107c0-107ff 108b0-108df 1095a-1097f 10aa0-10abf
    10bb0-10bff 10c49-10c7f 10d90-10e5f 10eb2-10ec1 10f5a-10f6f 10f8a-10faf 10fcc-10fdf
    11242-1127f 113e3-113ff 11462-1147f 114da-1157f 115de-115ff 1166d-1167f 116e4-116ff
    11747-117ff 1183c-1189f 1195a-1199f 119e5-119ff 11b0b-11b5f 11b68-11bbf 11cb7-11cff
    11df2-11edf 11f5b-11faf 1239a-123ff 12687-12f8f 14647-160ff 1613a-167ff 16b90-16d3f
    16d7a-16e3f 16ed4-16eff 16fa0-16fdf 18cdb-18cfe 18d21-18d7f 191d3-1afef 1b133-1b14f
    1b2fc-1bbff 1bca4-1cbff 1cfc4-1cfff 1d282-1d2bf 1d379-1d3ff 1dab0-1daff 1db1d-1deff
    1df97-1dfcc 1e06e-1e08e 1e090-1e0ff 1e150-1e28f 1e2af-1e2bf 1e300-1e4cf 1e4fa-1e5cf
    1e600-1e6bf 1e700-1e7df 1e8d7-1e8ff 1e960-1ec70 1ecb5-1ed00 1ed3e-1edff 1eebc-1eeef
    1eef2-1efff 1fbfb-1ffff 2a6e0-2a6ff 2ee5e-2f7ff
    2fa1e-2ffff 3347a-3cfff 3fc40-dffff e1000-effff
"""


def _class_of(tables: Iterable[str], last_code: int = 0x10FFFF) -> str:
    """The ranges of tables, up to a code point, as the inside of a character class."""
    pairs = [one.partition("-") for table in tables for one in table.split()]
    ranges = [(int(first, 16), int(last or first, 16)) for first, _, last in pairs]
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges if b <= last_code)


_TABLES: Final = (_IGNORABLE, _CONTROLS, _FORMATS, _UNASSIGNED)
# The inside of a character class of a regular expression.
INVISIBLE: Final = _class_of(_TABLES)
_ALL = re.compile(f"[{INVISIBLE}]+")
# For texts without a character beyond U+FFFF: 6 ns for each character instead of 90.
_SHORT = re.compile(f"[{_class_of(_TABLES, 0xFFFF)}]+")
_BEYOND = re.compile("[\U00010000-\U0010ffff]")
# Characters per search, which takes about six milliseconds. Until a search has ended, no other
# thread runs.
SLICE: Final = 65_536
# Strings joined in one step, for the same reason.
MAX_PARTS: Final = 10_000
_ASCII_CONTROLS = bytes(one for one in (*range(32), 127) if one not in b"\t\n\r")

# They join letters in some scripts, and the parts of one emoji.
_JOINERS = "\u200c\u200d"
# Select the text or the emoji form of a character.
_STYLES = "\ufe0e\ufe0f"
_KEPT = frozenset(_JOINERS + _STYLES)
_KEYCAP = "\u20e3"
# Emoji whose category is not a symbol: ‼ ⁉ ℹ 〰 〽
_EMOJI = "\u203c\u2049\u2139\u3030\u303d"


def has_hidden(text: str) -> bool:
    """Whether a string contains an invisible character."""
    if text.isascii():
        raw = text.encode("ascii")
        return len(raw.translate(None, _ASCII_CONTROLS)) != len(raw)
    pattern, end = _pattern(text), len(text)
    return any(pattern.search(text, at, at + SLICE) for at in range(0, end, SLICE))


def _pattern(text: str) -> "re.Pattern[str]":
    return _SHORT if _BEYOND.search(text) is None else _ALL


def visible(text: str) -> str:
    """Return the string with each invisible character replaced by its escape, such as `\\u200b`.

    Characters that an emoji or a letter needs are kept: one joiner between two characters outside
    ASCII, one variation selector after an emoji.
    """
    if not has_hidden(text):
        return text
    done, parts, last = list[str](), list[str](), 0
    for found, kept in _runs(text, 0, len(text)):
        parts += (text[last : found.start()], kept, escaped(found[0][len(kept) :]))
        last = found.end()
        if len(parts) > MAX_PARTS:
            done.append("".join(parts))
            parts.clear()
    return "".join((*done, *parts, text[last:]))


def hidden_in(text: str, start: int = 0, end: int | None = None) -> str:
    """Return the characters of a part of a string that `visible` replaces."""
    if not has_hidden(text):
        return ""
    runs = _runs(text, start, len(text) if end is None else end)
    return "".join(found[0][len(kept) :] for found, kept in runs)


def _runs(text: str, start: int, end: int) -> Iterator[tuple["re.Match[str]", str]]:
    """Runs of invisible characters, each with its leading characters that belong to an emoji or a
    letter."""
    pattern = _pattern(text)
    for at in range(start, end, SLICE):
        for found in pattern.finditer(text, at, min(at + SLICE, end)):
            kept, first = "", found.start()
            if text[first] not in _KEPT:
                yield found, kept
                continue
            # A variation selector and a joiner can follow each other; a third character belongs to
            # nothing.
            before = text[first - 1] if first else " "
            for place in range(first, min(found.end(), first + 2)):
                one = text[place]
                if not _belongs(before, one, text[place + 1 : place + 2] or " "):
                    break
                kept += one
                before = one
            yield found, kept


def escaped(characters: str) -> str:
    """Return the Python escapes of characters."""
    return characters.encode("unicode_escape", "backslashreplace").decode("ascii")


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


ELLIPSIS = "…"


def clean(text: str, *, lines: bool = False) -> str:
    """Return the string as a terminal may show it; with its line breaks and tabs, if `lines`."""
    if text.isascii() and text.isprintable():
        return text
    if lines:
        text = text.replace("\r\n", "\n")
    text = visible(text)
    for one in "\r" if lines else "\t\n\r":
        if one in text:
            text = text.replace(one, escaped(one))
    return text


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


# A second name is suggested too if its similarity is at least this share of the best one.
NEARLY = 0.9


def nearest(name: str, options: Iterable[str]) -> list[str]:
    """Return the option most similar to a name, and a second option if it is about as similar."""
    from difflib import SequenceMatcher  # on use

    found = close_matches(name, options, limit=2)
    likeness = [SequenceMatcher(None, option, name).ratio() for option in found]
    return found[:1] if len(found) == 2 and likeness[1] < NEARLY * likeness[0] else found


def closest(name: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the option most similar to a name; empty if none is similar."""
    return next(iter(close_matches(name, options, cutoff=cutoff)), "")
