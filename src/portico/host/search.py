"""Which of many tools a few words are about, so that a model need not be shown all of them.

    index = Index([("files", read), ("files", write), ("git", log)])
    index.best("open a text file", limit=2)       # [0, 1]: positions in what was given

Ranking is lexical (BM25 over fields): a word counts more the fewer tools have it, more in a name
than in a description, and hardly more the tenth time than the third, so that a server gains little
by repeating itself. Beginnings of words and other words for the same count, too, but less. What can
be scored before is scored when the index is made; a query adds up.

Rules: pure; the same tools and words give the same answer, and of equals the first listed is first.
What servers wrote is a stranger's: of each tool only so much is read.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import pairwise
from math import log, sqrt
from typing import Any, Final, cast

from portico.host.words import others, plain_words, stem, words_of
from portico.protocol import types as t

# Longer than any description that helps somebody choose; the rest is not read.
MAX_TEXT: Final = 4_000
MAX_PARAMETERS: Final = 100
# Of a query: who pastes a page is served by its beginning.
MAX_QUERY: Final = 1_000
# Words of the tools that one word of a query may be the beginning of.
MAX_KIN: Final = 20

# What a word weighs, by where it stands.
_WEIGHTS: Final = {"name": 3.0, "title": 2.0, "server": 1.5, "description": 1.0, "parameters": 0.7}
# How soon more of the same word is worth little, and how far a long text is held to be wordy.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.5
# What it is worth that a word is the beginning of another, and how long it has to be for that.
_KIN: Final = 0.4
_KIN_LENGTH: Final = 4
# What another word for the same is worth.
_SAME: Final = 0.25


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
        met: dict[int, int] = {}
        for meant in self._asked(words[:MAX_QUERY]):
            hits: set[int] = set()
            for word, worth in meant.items():
                row = self._rows[word]
                hits.update(row)
                for at, score in row.items():
                    scores[at] = scores.get(at, 0.0) + worth * score
            for at in hits:
                met[at] = met.get(at, 0) + 1
        # One rare word is not as good as several that fit.
        ranks = {at: (-score * sqrt(met[at]), at) for at, score in scores.items()}
        return nsmallest(limit, ranks, key=ranks.__getitem__)

    def _asked(self, text: str) -> Iterator[dict[str, float]]:
        """For each word of a query, the words of the index that it is about, and their worth."""
        plain = list(dict.fromkeys(plain_words(text)))
        joined = [first + second for first, second in pairwise(plain)]  # time zone, timezone
        for word in plain + [word for word in joined if stem(word) in self._rows]:
            meant: dict[str, float] = {}
            for found, worth in self._known(word):
                meant[found] = max(meant.get(found, 0.0), worth)
            yield meant

    def _known(self, word: str) -> Iterator[tuple[str, float]]:
        stemmed = stem(word)
        is_known = stemmed in self._rows
        if is_known:
            yield stemmed, 1.0
        if len(stemmed) >= _KIN_LENGTH:
            start = bisect_left(self._words, stemmed)
            for other in self._words[start : start + MAX_KIN]:
                if other != stemmed and other.startswith(stemmed):
                    yield other, _KIN
        for other in others(stemmed):
            if other in self._rows:
                yield other, _SAME
        if not is_known:
            for cut in range(3, len(word) - 2):
                parts = stem(word[:cut]), stem(word[cut:])
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
