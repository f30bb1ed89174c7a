"""Search over tools: BM25 ranking, so that a model need not be shown all tools.

    index = Index([("files", read), ("files", write), ("git", log)])
    index.best("open a text file", limit=2)       # [0, 1]: positions in the list

Ranking is lexical (BM25 over fields): a term counts more the fewer tools have it, more in a name
than in a description, and hardly more the tenth time than the third, so that a server gains little
by repetition. Prefixes and synonyms count as well, but less. Scores that do not depend on the query
are computed when the index is built.

Rules: pure; the same tools and query give the same result, and of equal tools the first listed is
first. Descriptions are untrusted: the length that is read of each tool, and of all tools, is
limited, and the text of one server does not reduce what is read of another. Nothing blocks for
long: `in_steps` and `search` can be interrupted.
"""

import asyncio
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge, nsmallest
from itertools import islice, pairwise
from math import log, sqrt
from typing import Any, Final, TypeAlias, cast

from colonnade.host.servers.listings import HostTool, Steps, run_cooperatively, run_to_completion
from colonnade.protocol import types as t

# Longer words are keys and data, and differ in their beginning. In a script without spaces
# it is a sentence.
MAX_WORD: Final = 200
# The size of the caches: a thousand tools use fewer words.
MAX_KEPT_TOKENS: Final = 8_192
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
_TOKEN_RUN = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])[^\W_])+")
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
    runs = _ASCII_RUN if text.isascii() else _TOKEN_RUN
    plain = unicodedata.normalize("NFKC", text)[: MAX_GROWTH * len(text)]
    for run in runs.findall(plain):
        yield from _split(run[:MAX_WORD])


@lru_cache(MAX_KEPT_TOKENS)
def _split(run: str) -> tuple[str, ...]:
    """The words of a run of letters and digits."""
    if _IS_UNSPACED.match(run):
        return tuple(run[at : at + 2] for at in range(max(len(run) - 1, 1)))
    words = [part.casefold() for part in _HUMP.split(run)]
    return tuple(word for word in words if word not in _STOP_WORDS)


@lru_cache(MAX_KEPT_TOKENS)
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


# ---------------------------------------------------------------- search


# Longer than any useful description; the rest is not read.
MAX_TEXT: Final = 4_000
MAX_PARAMETERS: Final = 100
# Of all tools together, in UTF-8: some 4,000 well described tools. If there is more, each server
# has an equal share, and in it each of its tools; what one does not need is left to others. A term
# that only one tool has takes some 250 bytes, so an index has at most 150 MB.
MAX_TOTAL: Final = 2_000_000
# Of a query.
MAX_QUERY: Final = 1_000
# Terms that one term of a query may be a prefix of.
MAX_PREFIXED: Final = 20

# The weight of a term, by field.
_WEIGHTS: Final = {"name": 3.0, "title": 2.0, "server": 1.5, "description": 1.0, "parameters": 0.7}
# The BM25 parameters k1 (saturation) and b (length normalisation).
_SATURATION: Final = 1.2
_LENGTH: Final = 0.5
# The weight of a prefix match, and the minimum length of a prefix.
_PREFIX: Final = 0.4
_MIN_PREFIX: Final = 4
# The weight of a synonym.
_SYNONYM: Final = 0.25


# Terms that are handled in one step, and sorted in one step.
_STEP: Final = 200
_RUN: Final = 20_000

# The tools that have a term, by position, with the score of each.
_Row: TypeAlias = tuple[tuple[int, float], ...]
# The frequency of each term in each field of a tool.
_Counted: TypeAlias = dict[str, dict[str, int]]


class Index:
    """A search index of tools, which does not change. `size` is the number of bytes that were
    read."""

    def __init__(self, tools: Iterable[tuple[str, t.Tool]] = ()) -> None:
        """Build the index. Each tool comes with the key of its server."""
        self._rows: dict[str, _Row] = {}
        self._words: list[str] = []
        self.size: int = 0
        run_to_completion(self._read(tools))

    @classmethod
    def in_steps(cls, tools: Iterable[tuple[str, t.Tool]]) -> "Steps[Index]":
        """Build the index in steps."""
        index = cls()
        yield from index._read(tools)
        return index

    def _read(self, tools: Iterable[tuple[str, t.Tool]]) -> Steps[None]:
        fields: list[_Counted] = []
        lengths = _Lengths()
        for texts in (yield from _bounded(tools)):
            self.size += _cost(texts)
            counted: _Counted = {}
            for place, text in texts.items():
                counted[place] = _counts(text)
                lengths.add(place, counted[place])
                yield
            fields.append(counted)
        weights: dict[str, dict[int, float]] = {}
        for at, tool in enumerate(fields):
            for place, words in tool.items():
                spread = 1 - _LENGTH + _LENGTH * sum(words.values()) / lengths.mean(place)
                for word, count in words.items():
                    row = weights.setdefault(word, {})
                    row[at] = row.get(at, 0.0) + _WEIGHTS[place] * count / spread
            fields[at] = {}
            yield
        while weights:
            for _ in range(min(_STEP, len(weights))):
                word, row = weights.popitem()
                self._rows[word] = _scored(row, len(fields))
            yield
        self._words = yield from _sort(list(self._rows))

    def best(self, words: str, limit: int = 5) -> list[int]:
        """The positions of the tools that match the query best, the best first.

        A tool that has none of the terms is left out, so there may be fewer than `limit`.
        """
        return run_to_completion(self.search(words, limit))

    def search(self, words: str, limit: int = 5) -> Steps[list[int]]:
        """`best` in steps."""
        scores: dict[int, float] = {}
        met: dict[int, int] = {}
        for meant in self._query_terms(words[:MAX_QUERY]):
            hits: set[int] = set()
            for word, worth in meant.items():
                for at, score in self._rows[word]:
                    hits.add(at)
                    scores[at] = scores.get(at, 0.0) + worth * score
                yield
            for at in hits:
                met[at] = met.get(at, 0) + 1
        # Several matching terms are better than one rare term.
        ranks = {at: (-score * sqrt(met[at]), at) for at, score in scores.items()}
        yield
        return nsmallest(limit, ranks, key=ranks.__getitem__)

    def _query_terms(self, text: str) -> Iterator[dict[str, float]]:
        """For each term of a query, the terms of the index that it matches, and their weights."""
        plain = list(dict.fromkeys(tokens(text)))
        joined = [first + second for first, second in pairwise(plain)]  # time zone, timezone
        for word in plain + [word for word in joined if stem(word) in self._rows]:
            meant: dict[str, float] = {}
            for found, worth in self._matching_terms(word):
                meant[found] = max(meant.get(found, 0.0), worth)
            yield meant

    def _matching_terms(self, word: str) -> Iterator[tuple[str, float]]:
        stemmed = stem(word)
        is_known = stemmed in self._rows
        if is_known:
            yield stemmed, 1.0
        if len(stemmed) >= _MIN_PREFIX:
            start = bisect_left(self._words, stemmed)
            for other in self._words[start : start + MAX_PREFIXED]:
                if other != stemmed and other.startswith(stemmed):
                    yield other, _PREFIX
        for other in synonyms(stemmed):
            if other in self._rows:
                yield other, _SYNONYM
        if not is_known:
            for cut in range(3, len(word) - 2):
                parts = stem(word[:cut]), stem(word[cut:])
                if all(part in self._rows for part in parts):
                    yield from ((part, _PREFIX) for part in parts)


def _texts(key: str, tool: t.Tool) -> dict[str, str]:
    """The fields of a tool; the most important first."""
    fields = {
        "name": tool.name,
        "title": t.display_name(tool) if t.display_name(tool) != tool.name else "",
        "server": key,
        "description": tool.description or "",
        "parameters": " ".join(_parameters(tool.input_schema)),
    }
    return {place: text[:MAX_TEXT] for place, text in fields.items()}


def _cost(texts: Mapping[str, str]) -> int:
    return sum(len(text.encode(errors="replace")) for text in texts.values())


def _bounded(tools: Iterable[tuple[str, t.Tool]]) -> Steps[list[dict[str, str]]]:
    """The fields of all tools, shortened if they are too large for one index."""
    costs: dict[str, list[int]] = {}
    whole: list[tuple[str, dict[str, str]]] = []
    for key, tool in tools:
        texts = _texts(key, tool)
        costs.setdefault(key, []).append(_cost(texts))
        whole.append((key, texts))
        yield
    share = fair_share([sum(some) for some in costs.values()], MAX_TOTAL)
    shares = {key: fair_share(some, share) for key, some in costs.items()}
    bounded: list[dict[str, str]] = []
    for key, texts in whole:
        bounded.append(_shortened(texts, shares[key]))
        yield
    return bounded


def fair_share(wanted: Iterable[int], total: int) -> int:
    """The most that each may have, so that all together do not exceed the total; what one does not
    need is left to others."""
    ascending = sorted(wanted)
    left, count = total, len(ascending)
    for one in ascending:
        if one * count > left:
            return left // count
        left -= one
        count -= 1
    return ascending[-1] if ascending else total


def _shortened(texts: dict[str, str], most: int) -> dict[str, str]:
    if _cost(texts) <= most:
        return texts
    shortened: dict[str, str] = {}
    for place, text in texts.items():
        data = text.encode(errors="replace")[:most]
        shortened[place] = data.decode(errors="ignore")
        most -= len(data)
    return shortened


def _counts(text: str) -> dict[str, int]:
    """The frequency of each term."""
    counts: dict[str, int] = {}
    for word in terms_of(text):
        counts[word] = counts.get(word, 0) + 1
    return counts


def _parameters(schema: Mapping[str, Any]) -> list[str]:
    properties: object = schema.get("properties")
    if not isinstance(properties, dict):
        return []
    names = islice(cast("dict[str, Any]", properties), MAX_PARAMETERS)
    return [name[:MAX_TEXT] for name in names]


class _Lengths:
    """The mean length of each field."""

    def __init__(self) -> None:
        self._words: dict[str, int] = {}
        self._tools: dict[str, int] = {}

    def add(self, place: str, counts: Mapping[str, int]) -> None:
        """Add the terms of one tool."""
        if counts:
            self._words[place] = self._words.get(place, 0) + sum(counts.values())
            self._tools[place] = self._tools.get(place, 0) + 1

    def mean(self, place: str) -> float:
        """The mean."""
        return self._words[place] / self._tools[place] if place in self._tools else 1.0


def _scored(row: dict[int, float], tools: int) -> _Row:
    rarity = log(1 + (tools - len(row) + 0.5) / (len(row) + 0.5))
    return tuple((at, rarity * weight / (weight + _SATURATION)) for at, weight in row.items())


def _sort(words: list[str]) -> Steps[list[str]]:
    """The terms, sorted."""
    runs: list[list[str]] = []
    for start in range(0, len(words), _RUN):
        runs.append(sorted(words[start : start + _RUN]))
        yield
    if len(runs) == 1:
        return runs[0]
    ordered: list[str] = []
    for word in merge(*runs):
        ordered.append(word)
        if not len(ordered) % _STEP:
            yield
    return ordered


# Lists differ because callers may see different tools; the index of each is kept.
MAX_KEPT = 8
# Bytes of all kept indexes: two of the largest, or eight of typical size.
MAX_KEPT_BYTES = 2 * MAX_TOTAL


class ToolSearch:
    """A cache of search indexes, by list of tools."""

    def __init__(self) -> None:
        # By the identities of the tools, which are kept with the index and so stay unique.
        self._kept: dict[tuple[int, ...], tuple[Sequence[HostTool], Index]] = {}
        self._building = asyncio.Lock()

    async def best(self, tools: Sequence[HostTool], words: str, limit: int) -> list[HostTool]:
        """The tools that match the query best, the best first."""
        key = tuple(map(id, tools))
        index = self._find(key)
        if index is None:
            async with self._building:
                index = self._find(key)  # it may have been built meanwhile
                if index is None:
                    index = await run_cooperatively(
                        Index.in_steps((one.server, one) for one in tools)
                    )
                    self._keep(key, tools, index)
        return [tools[at] for at in await run_cooperatively(index.search(words, limit))]

    def _find(self, key: tuple[int, ...]) -> Index | None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._kept[key] = kept  # least recently used first
        return kept[1]

    def _keep(self, key: tuple[int, ...], tools: Sequence[HostTool], index: Index) -> None:
        self._kept[key] = tuple(tools), index
        size = sum(kept.size for _, kept in self._kept.values())
        while len(self._kept) > MAX_KEPT or size > MAX_KEPT_BYTES:
            _, oldest = self._kept.pop(next(iter(self._kept)))
            size -= oldest.size
