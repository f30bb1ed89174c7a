"""Tokenizer and stemmer for the search: the terms of a name or a sentence.

    terms_of("readFile, listing directories")       # ["read", "fil", "list", "directory"]

Rules: pure. It knows English suffixes, a few synonyms, and scripts without spaces; nothing of what
is searched.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

# Longer words are keys and data, and differ in their beginning. In a script without spaces
# it is a sentence.
MAX_WORD: Final = 200
# The size of the caches: a thousand tools use fewer words.
MAX_KEPT: Final = 8_192
# NFKC may expand one character to 18; ordinary text hardly grows.
MAX_GROWTH: Final = 4

# Stop words.
_STOP_WORDS_TEXT = """
    a about all am an and any are as at be by can could do does for from had has have how i if in
    into is it its let like me my need no not now of on or our out please should so some that the
    their them then there these they this to up us use using want was we what when where which who
    will with would you your
"""
_STOP_WORDS: Final = frozenset(_STOP_WORDS_TEXT.split())

# Synonyms of verbs and nouns. Few and common ones only: each makes every query that has it a little
# less precise.
_SYNONYM_GROUPS: Final = """
    show view read get display open fetch load print
    delete remove erase drop clear
    create make add new start open
    find search look locate
    change update edit modify replace
    send post write say
    save write store keep
    run execute query
    stop end cancel abort close
    move rename
    compare diff
    folder directory
    picture image photo
    mail email message
    repo repository project
"""

# Scripts without spaces between words: bigrams are used as terms.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# HTTPServer is two words, and so is readFile.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]|[^\x00-\x7f]")


def terms_of(text: str) -> list[str]:
    """The stemmed terms of a text or a name."""
    return [stem(word) for word in tokens(text)]


def tokens(text: str) -> Iterator[str]:
    """The words in lower case, without stop words."""
    runs = _ASCII_RUN if text.isascii() else _RUN
    plain = unicodedata.normalize("NFKC", text)[: MAX_GROWTH * len(text)]
    for run in runs.findall(plain):
        yield from _split(run[:MAX_WORD])


@lru_cache(MAX_KEPT)
def _split(run: str) -> tuple[str, ...]:
    """The words of a run of letters and digits."""
    if _IS_UNSPACED.match(run):
        return tuple(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    words = [part.casefold() for part in _HUMP.split(run)]
    return tuple(word for word in words if word not in _STOP_WORDS)


@lru_cache(MAX_KEPT)
def stem(word: str) -> str:
    """The word without English suffixes."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word[: -len(ending)]
        if len(rest) > 2 and word.endswith(ending) and _VOWEL.search(rest) and rest[-1] != "e":
            is_doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if is_doubled else rest
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def synonyms(stemmed: str) -> tuple[str, ...]:
    """The synonyms of a term, stemmed."""
    return _SYNONYMS.get(stemmed, ())


def _synonyms() -> dict[str, tuple[str, ...]]:
    groups = [
        [stem(word) for word in line.split()] for line in _SYNONYM_GROUPS.strip().splitlines()
    ]
    found: dict[str, dict[str, None]] = {}
    for group in groups:
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(one for one in group if one != word))
    return {word: tuple(same) for word, same in found.items()}


_SYNONYMS: Final = _synonyms()
