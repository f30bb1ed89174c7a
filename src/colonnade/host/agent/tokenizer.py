"""The words of a name or a sentence, in the form in which they are looked up.

    words_of("readFile, listing directories")       # ["read", "fil", "list", "directory"]

Rules: pure. It knows the endings of English, a few words for the same deed, and scripts without
spaces; nothing of what is searched.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

# Of a word: longer ones are keys and data, and their beginning tells them apart. In a script
# without spaces it is a sentence.
MAX_WORD: Final = 200
# Words that were taken apart lately: a thousand tools use fewer.
MAX_KEPT: Final = 8_192
# One character may stand for a sentence of 18, which NFKC writes out; usual text hardly grows.
MAX_GROWTH: Final = 4

# Words that are in every sentence and say nothing of what it is about.
_EMPTY_TEXT = """
    a about all am an and any are as at be by can could do does for from had has have how i if in
    into is it its let like me my need no not now of on or our out please should so some that the
    their them then there these they this to up us use using want was we what when where which who
    will with would you your
"""
_EMPTY: Final = frozenset(_EMPTY_TEXT.split())

# What people and servers call the same deeds and things. Few and common ones only: each makes
# every query that has it a little less exact.
_SAME: Final = """
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

# Scripts that are written without spaces between words: pairs of letters stand for words.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# HTTPServer is two words, and so is readFile.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]|[^\x00-\x7f]")


def words_of(text: str) -> list[str]:
    """The words of a text or a name, each as it is looked up."""
    return [stem(word) for word in plain_words(text)]


def plain_words(text: str) -> Iterator[str]:
    """The words as they were written, but for capitals; those that say nothing are left out."""
    runs = _ASCII_RUN if text.isascii() else _RUN
    plain = unicodedata.normalize("NFKC", text)[: MAX_GROWTH * len(text)]
    for run in runs.findall(plain):
        yield from _split(run[:MAX_WORD])


@lru_cache(MAX_KEPT)
def _split(run: str) -> tuple[str, ...]:
    """The words in what has no space or sign in it."""
    if _IS_UNSPACED.match(run):
        return tuple(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    words = [part.casefold() for part in _HUMP.split(run)]
    return tuple(word for word in words if word not in _EMPTY)


@lru_cache(MAX_KEPT)
def stem(word: str) -> str:
    """The word without the endings that English gives to one thing or deed."""
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


def others(stemmed: str) -> tuple[str, ...]:
    """Other words for the same, as they are looked up."""
    return _OTHERS.get(stemmed, ())


def _others() -> dict[str, tuple[str, ...]]:
    groups = [[stem(word) for word in line.split()] for line in _SAME.strip().splitlines()]
    found: dict[str, dict[str, None]] = {}
    for group in groups:
        for word in group:
            found.setdefault(word, {}).update(dict.fromkeys(one for one in group if one != word))
    return {word: tuple(same) for word, same in found.items()}


_OTHERS: Final = _others()
