"""Which of many tools a few words are about, so that a model need not be shown all of them.

    index = Index([("files", read), ("files", write), ("git", log)])
    index.best("open a text file", limit=2)       # [0, 1]: positions in what was given

Ranking is lexical (BM25 over fields): a word counts more the fewer tools have it, more in a name
than in a description, and hardly more the tenth time than the third, so that a server gains little
by repeating itself. What can be scored before is scored when the index is made; a query adds up.

Rules: pure; the same tools and words give the same answer, and of equals the first listed is first.
What servers wrote is a stranger's: of each tool only so much is read.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from heapq import nsmallest
from itertools import pairwise
from math import log
from typing import Any, Final, cast

from portico.protocol import types as t

# Longer than any description that helps somebody choose; the rest is not read.
MAX_TEXT: Final = 4_000
MAX_PARAMETERS: Final = 100
# Of a query: who pastes a page is served by its beginning.
MAX_QUERY: Final = 1_000
# Words of the tools that one word of a query may be the beginning of.
MAX_KIN: Final = 20
# Of a word: longer ones are keys and data, and their beginning tells them apart. In a script
# without spaces it is a sentence.
MAX_WORD: Final = 200
# Words that were taken apart lately: a thousand tools use fewer.
MAX_KEPT: Final = 8_192

# What a word weighs, by where it stands.
_WEIGHTS: Final = {"name": 3.0, "title": 2.0, "server": 1.5, "description": 1.0, "parameters": 0.7}
# How soon more of the same word is worth little, and how far a long text is held to be wordy.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.5
# What it is worth that a word is the beginning of another, and how long it has to be for that.
_KIN: Final = 0.4
_KIN_LENGTH: Final = 4

# Words that are in every sentence and say nothing of what it is about.
_EMPTY: Final = frozenset(
    """
    a about all am an and any are as at be by can could do does for from had has have how i if in
    into is it its let like me my need no not now of on or our out please should so some that the
    their them then there these they this to up us use using want was we what when where which who
    will with would you your
    """.split()  # noqa: SIM905
)

# Scripts that are written without spaces between words: pairs of letters stand for words.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
_ASCII_RUN = re.compile(r"[A-Za-z0-9]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
# HTTPServer is two words, and so is readFile.
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]|[^\x00-\x7f]")


class Index:
    """Tools, ready to be searched; it does not change."""

    def __init__(self, tools: Iterable[tuple[str, t.Tool]]) -> None:
        """Of each tool, the key of its server, and what is told of it."""
        fields = [_counted(key, tool) for key, tool in tools]
        usual = _usual_lengths(fields)
        weights: dict[str, dict[int, float]] = {}
        for at, tool in enumerate(fields):
            for place, words in tool.items():
                spread = 1 - _LENGTH + _LENGTH * sum(words.values()) / usual[place]
                for word, count in words.items():
                    row = weights.setdefault(word, {})
                    row[at] = row.get(at, 0.0) + _WEIGHTS[place] * count / spread
        self._rows: dict[str, dict[int, float]] = {
            word: _scored(row, len(fields)) for word, row in weights.items()
        }
        self._words: list[str] = sorted(self._rows)

    def best(self, words: str, limit: int = 5) -> list[int]:
        """Which of the tools these words fit best, the best first, by their place in the list.

        A tool that has none of the words is not among them, so there may be fewer.
        """
        scores: dict[int, float] = {}
        for word, worth in self._asked(words[:MAX_QUERY]).items():
            for at, score in self._rows[word].items():
                scores[at] = scores.get(at, 0.0) + worth * score
        return nsmallest(limit, scores, key=lambda at: (-scores[at], at))

    def _asked(self, text: str) -> dict[str, float]:
        """The words of the index that a query is about, and what each is worth."""
        asked: dict[str, float] = {}
        plain = list(_plain_words(text))
        joined = [first + second for first, second in pairwise(plain)]  # time zone, timezone
        for word in plain + [word for word in joined if _stem(word) in self._rows]:
            for found, worth in self._known(word):
                asked[found] = max(asked.get(found, 0.0), worth)
        return asked

    def _known(self, word: str) -> Iterator[tuple[str, float]]:
        stem = _stem(word)
        is_known = stem in self._rows
        if is_known:
            yield stem, 1.0
        if len(stem) >= _KIN_LENGTH:
            start = bisect_left(self._words, stem)
            for other in self._words[start : start + MAX_KIN]:
                if other != stem and other.startswith(stem):
                    yield other, _KIN
        if not is_known:
            for cut in range(3, len(word) - 2):
                parts = _stem(word[:cut]), _stem(word[cut:])
                if all(part in self._rows for part in parts):
                    yield from ((part, _KIN) for part in parts)


def _counted(key: str, tool: t.Tool) -> dict[str, dict[str, int]]:
    """How often each word stands where."""
    said = {
        "name": tool.name,
        "title": t.display_name(tool) if t.display_name(tool) != tool.name else "",
        "server": key,
        "description": tool.description or "",
        "parameters": " ".join(_parameters(tool.input_schema)),
    }
    counted: dict[str, dict[str, int]] = {}
    for place, text in said.items():
        words = counted.setdefault(place, {})
        for word in words_of(text[:MAX_TEXT]):
            words[word] = words.get(word, 0) + 1
    return counted


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    properties: object = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    return list(cast("dict[str, Any]", properties))[:MAX_PARAMETERS]


def _usual_lengths(fields: list[dict[str, dict[str, int]]]) -> dict[str, float]:
    """How many words are in each place where there are any."""
    usual: dict[str, float] = {}
    for place in _WEIGHTS:
        lengths = [sum(tool[place].values()) for tool in fields if tool[place]]
        usual[place] = sum(lengths) / len(lengths) if lengths else 1.0
    return usual


def _scored(row: dict[int, float], tools: int) -> dict[int, float]:
    rarity = log(1 + (tools - len(row) + 0.5) / (len(row) + 0.5))
    return {at: rarity * weight / (weight + _SATURATION) for at, weight in row.items()}


def words_of(text: str) -> list[str]:
    """The words of a text or a name, each in the form in which it is looked up."""
    return [_stem(word) for word in _plain_words(text)]


def _plain_words(text: str) -> Iterator[str]:
    runs = _ASCII_RUN if text.isascii() else _RUN
    for run in runs.findall(unicodedata.normalize("NFKC", text)):
        yield from _split(run[:MAX_WORD])


@lru_cache(MAX_KEPT)
def _split(run: str) -> tuple[str, ...]:
    """The words in what has no space or sign in it."""
    if _IS_UNSPACED.match(run):
        return tuple(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    words = [part.casefold() for part in _HUMP.split(run)]
    return tuple(word for word in words if word not in _EMPTY)


@lru_cache(MAX_KEPT)
def _stem(word: str) -> str:
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
