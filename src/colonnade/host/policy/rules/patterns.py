"""Patterns of rules: globs in linear time, and the readings of a string that is compared with one.

A server may read a string otherwise than a rule: `/srv/../etc` is a path below `/srv` for a pattern
and not for an operating system, and `%2e%2e` becomes `..` on its way. So a string is compared in
three readings: as it is written, as a path or URI that was normalized, and without regard to case.
A pattern is normalized for the last two as well, since a person may write it in either way.
The rules decide each reading for itself, and the strictest decision counts.

Rules: no regular expressions of users, and no backtracking: a comparison takes time in proportion
to the length of the string. Nothing here knows what a request is.
"""

import re
import unicodedata
from typing import Final, NamedTuple
from urllib.parse import unquote

from colonnade.errors import InvalidArgument
from colonnade.text import INVISIBLE

# Names, paths and URLs are shorter; a list of names belongs into several patterns.
MAX_PATTERN_CHARACTERS = 500
# A comparison takes a quarter of a microsecond for each character: 16 ms for this many. Longer
# strings are not compared; they match `deny` and `ask`, and never `allow`.
MAX_COMPARED_CHARACTERS = 65_536
# Of characters that were seen; names and paths have few different ones.
MAX_MASKS = 1024
# `%252e` is `.` encoded twice; more than three rounds occur in attacks only.
MAX_DECODED = 3

# The readings of a string, as bits.
WRITTEN: Final = 1
NORMAL: Final = 2
FOLDED: Final = 4
EVERY_READING: Final = WRITTEN | NORMAL | FOLDED

_SEPARATORS = "/\\"
_LITERAL = re.compile(r"[*?\[]")
# Stand for `*`, `?` and classes while a pattern is normalized: one for each, in the order of the
# pattern. No step of `normalized` changes characters for private use.
_MARK = 0xF0000
_MARKS = "\U000f0000-\U000ffffd"
# Servers may drop invisible characters, so a reading is without them.
_INVISIBLE = re.compile(f"[{INVISIBLE}\t\n\r]+")
_INVISIBLE_BUT_MARKS = re.compile(f"(?:(?![{_MARKS}])[{INVISIBLE}\t\n\r])+")
_WILDCARD = re.compile(rf"\*+|\?|\[!?.[^]]*\]|[{_MARKS}]", re.DOTALL)
_SCHEME = re.compile(rf"([A-Za-z{_MARKS}][A-Za-z0-9+.{_MARKS}-]*:/)/+([^/]*)(.*)", re.DOTALL)
# A wildcard folder that is left again: what it stands for is not known.
_LEFT_AGAIN = re.compile(rf"[{_MARKS}][^/]*/+(?:\./+)*\.\.(?:/|$)")
# What no date and no IP address has: letters besides T, Z and those of hexadecimal digits.
_NO_MOMENT = re.compile(r"[g-su-yG-SU-Y]|^/[0-9A-Za-z]")
# A string that reads the same as a path: folders of printable ASCII in lower case without `%` and
# `\\`, none of which is empty, `.` or `..`.
_FOLDER = r"(?!\.\.?(?:/|\Z))[!-$&-.0-@\[\]^-~]+"
PLAIN: Final = re.compile(rf"/?(?:{_FOLDER}(?:/{_FOLDER})*)?")


# ---------------------------------------------------------------- globs


class CharacterClass(NamedTuple):
    """`[a-z_]` or `[!a-z]`: ranges of characters, and whether it stands for all others."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool

    def accepts(self, character: str) -> bool:
        """Whether it stands for this character."""
        return any(low <= character <= high for low, high in self.ranges) != self.negated


class AnyCharacter(NamedTuple):
    """`?`: one character, and whether that may be a separator of paths."""

    crosses: bool


GlobToken = str | CharacterClass | AnyCharacter


class Glob:
    """A pattern: `*` is any number of characters, `?` is one, `[a-z]` and `[!a-z]` are classes, and
    every other character is itself; `[*]` is a `*`.

    With `crosses`, `*` and `?` stand for `/` and `\\` as well, as they do in patterns of names.
    Without it only `**` does. `a/**/b` matches `a/b`, too; and with `crosses`, `a/**` matches `a`.
    Raises `InvalidArgument` for a pattern that is too long, or has a `[` without `]`.
    """

    def __init__(self, pattern: str, *, crosses: bool = True) -> None:
        self.text = pattern
        self.crosses = crosses
        self.is_plain: bool = not any(character in pattern for character in "*?[")
        self._parse(pattern)
        self._masks: dict[str, int] = {}
        literal = _LITERAL.split(pattern, 1)[0]
        stars = pattern[len(literal) :]
        # `/srv/**`, as most are: every text with this prefix.
        self._is_prefix = stars.strip("*") == "" and (crosses or len(stars) > 1)
        self._ends_in_folders = self._is_prefix and crosses and stars != "*"
        self._folder = literal.removesuffix("/") if literal[1:].endswith("/") else None
        self._prefix = literal

    def __repr__(self) -> str:
        return f"Glob({self.text!r})"

    def matches(self, text: str) -> bool:
        """Whether the whole text matches."""
        if self.is_plain:
            return text == self.text
        if not text.startswith(self._prefix):
            return self._ends_in_folders and text == self._folder
        if self._is_prefix:
            return True
        return bool(self._run(text) & self._accepting)

    def may_begin_with(self, prefix: str) -> bool:
        """Whether a text with this prefix can match."""
        return self._run(prefix) != 0

    def _run(self, text: str) -> int:
        """The states after a text: bit n is set if the first n tokens have been matched."""
        states, masks = 1 | self._skipped(1), self._masks
        for character in text:
            accepting = masks.get(character)
            if accepting is None:
                accepting = self._mask(character)
            loops = self._loops if character in _SEPARATORS else self._loops | self._name_loops
            moved = (states & accepting) << 1
            states = moved | self._skipped(moved) | (states & loops)
            if not states:
                return 0
        return states

    def _skipped(self, entered: int) -> int:
        return (entered & self._skips) << 1

    def _mask(self, character: str) -> int:
        """The tokens that accept a character, as bits."""
        mask = 0
        for number, token in enumerate(self._tokens):
            if isinstance(token, str):
                accepts = token == character
            elif isinstance(token, CharacterClass):
                accepts = token.accepts(character)
            else:
                accepts = token.crosses or character not in _SEPARATORS
            mask |= accepts << number
        if len(self._masks) < MAX_MASKS:
            self._masks[character] = mask
        return mask

    def _parse(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN_CHARACTERS:
            limit = f"a pattern has at most {MAX_PATTERN_CHARACTERS} characters"
            raise InvalidArgument(f"{limit}, this one has {len(pattern)}")
        self._tokens: list[GlobToken] = []
        # States that stay for any character, for any but a separator; and those that are left
        # without one.
        self._loops = self._name_loops = self._skips = 0
        at = 0
        while at < len(pattern):
            character = pattern[at]
            if character == "*":
                at = self._parse_stars(pattern, at)
                continue
            if character == "?":
                self._tokens.append(AnyCharacter(self.crosses))
            elif character == "[":
                found, at = _character_class(pattern, at)
                self._tokens.append(found)
            else:
                self._tokens.append(character)
            at += 1
        self._accepting = 1 << len(self._tokens)
        folder = pattern.rstrip("*")
        is_folder = pattern.endswith("**") and folder.endswith("/") and folder != "/"
        if self.crosses and is_folder:
            self._accepting |= self._accepting >> 1

    def _parse_stars(self, pattern: str, at: int) -> int:
        end = at
        while end < len(pattern) and pattern[end] == "*":
            end += 1
        state = 1 << len(self._tokens)
        if self.crosses or end - at > 1:
            self._loops |= state
        self._name_loops |= state
        is_folders = end - at > 1 and pattern[:at].endswith("/") and pattern[end:].startswith("/")
        if is_folders:
            self._skips |= state
        return end


def _character_class(pattern: str, at: int) -> tuple[CharacterClass, int]:
    start = at + 1
    negated = pattern[start : start + 1] == "!"
    start += negated
    end = pattern.find("]", start + 1)
    if end < 0:
        raise InvalidArgument(f"the '[' at character {at + 1} has no ']'; write '[[]' for a '['")
    ranges: list[tuple[str, str]] = []
    inner = pattern[start:end]
    number = 0
    while number < len(inner):
        if inner[number + 1 : number + 2] == "-" and number + 2 < len(inner):
            ranges.append((inner[number], inner[number + 2]))
            number += 3
        else:
            ranges.append((inner[number], inner[number]))
            number += 1
    return CharacterClass(tuple(ranges), negated), end


# ---------------------------------------------------------------- readings


def normalized(text: str, invisible: re.Pattern[str] = _INVISIBLE) -> str:
    """A path or URI as a program may read it: percent-decoded, `\\` as `/`, without `.`, `..`,
    repeated and trailing separators, without invisible characters, and up to a NUL."""
    text = _decoded(text)
    # Before the composition: an invisible character between a letter and its accent prevents it.
    text = invisible.sub("", text.partition("\0")[0])
    text = unicodedata.normalize("NFKC", text)
    text = text.replace("\\", "/").strip()
    head = ""
    url = _SCHEME.fullmatch(text)
    if url is not None:
        # `file:///a`: the part after two slashes is the host, if it has no third.
        slashes = len(text) - len(url[1]) - len(url[2]) - len(url[3])
        host = url[2].lower() if slashes == 1 else ""
        path = url[3] if slashes == 1 else f"/{url[2]}{url[3]}"
        head, text = f"{url[1].lower()}/{host}", path
    return head + _without_dots(text)


def _decoded(text: str) -> str:
    for _ in range(MAX_DECODED):
        decoded = unquote(text, errors="replace")
        if decoded == text:
            break
        text = decoded
    return text


def normalized_pattern(pattern: str) -> str:
    """A pattern, normalized as the texts are that it is compared with; its wildcards stay. One for
    relative paths that begin with a wildcard has a `./` before them: `**` is for absolute ones too.

    One that is about a way to write paths and not about a path (`*\\*`, `**/../**`, `*%00*`) has no
    normalized form, and is returned as it is.
    """
    composed = unicodedata.normalize("NFKC", pattern)
    wildcards = _WILDCARD.findall(pattern)
    numbers = iter(range(len(wildcards)))
    marked = _WILDCARD.sub(lambda _: chr(_MARK + next(numbers)), pattern)
    decoded = _decoded(marked).replace("\\", "/")
    if "\0" in decoded or _LEFT_AGAIN.search(decoded):
        return composed
    normal = normalized(marked, _INVISIBLE_BUT_MARKS)
    begins_anywhere = pattern.startswith("*")
    if begins_anywhere and all(one in "/." or ord(one) >= _MARK for one in normal):
        return composed
    found = "".join(_unmarked(one, wildcards) for one in normal)
    is_relative = not begins_anywhere and normal != marked and ord(normal[:1] or "/") >= _MARK
    return f"./{found}" if is_relative else found


def _unmarked(character: str, wildcards: list[str]) -> str:
    """What a character of a normalized pattern is in a glob."""
    number = ord(character) - _MARK
    if 0 <= number < len(wildcards):
        text = wildcards[number]
        # `[\\]` is for a separator, which is `/` in a normalized text.
        is_separator = text[0] == "[" and text[1] not in "!]" and "\\" in text
        return f"[/{text[1:]}" if is_separator else text
    return f"[{character}]" if character in "*?[" else character


def _without_dots(path: str) -> str:
    if "/" not in path and path not in (".", ".."):
        return path
    kept: list[str] = []
    is_absolute = path.startswith("/")
    for part in path.split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part == ".." and is_absolute:
            continue
        elif part not in ("", "."):
            kept.append(part)
    return ("/" if is_absolute else "") + "/".join(kept)


class TextPattern:
    """A pattern for a value of a request, which is compared in every reading."""

    def __init__(self, pattern: str, *, crosses: bool) -> None:
        self.text = pattern
        self._written = Glob(pattern, crosses=crosses)
        composed = normalized_pattern(pattern)
        same = composed == pattern
        self._normal = self._written if same else Glob(composed, crosses=crosses)
        folded = composed.casefold()
        self._folded = self._normal if folded == composed else Glob(folded, crosses=crosses)
        # Whether it can match a date or an address. To make those of a number takes 20 µs, and
        # there may be thousands of numbers.
        spellings = (pattern, composed, folded)
        self.may_be_moment: bool = "[" in pattern or not all(map(_NO_MOMENT.search, spellings))
        self._is_relative = composed.startswith("./")
        self._is_uniform = self._folded is self._written and not self._is_relative
        self._crosses = crosses

    def readings(self, text: str) -> int:
        """The readings in which a text matches, as bits."""
        if len(text) > MAX_COMPARED_CHARACTERS:
            return EVERY_READING if self._crosses else 0
        written, is_plain = self._written.matches(text), PLAIN.fullmatch(text) is not None
        if is_plain and self._is_uniform:
            return EVERY_READING if written else 0
        normal = text if is_plain else normalized(text)
        if self._is_relative and not normal.startswith("/"):
            normal = f"./{normal}"
        found = WRITTEN * written
        found |= NORMAL * self._normal.matches(normal)
        return found | FOLDED * self._folded.matches(normal.casefold())
