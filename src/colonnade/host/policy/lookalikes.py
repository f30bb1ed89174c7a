"""Names of servers and tools that look alike, although they are different.

Rules: pure.
"""

import re
from collections.abc import Iterable
from typing import Final
from unicodedata import normalize

from colonnade.text import has_hidden

# Maximum characters of a name that are compared.
MAX_NAME: Final = 256

# Letters that look like an ASCII letter, from scripts that occur in names of servers and tools:
# Cyrillic, Greek, Armenian; and in ASCII itself: 1, I and | look like l, and 0 like O.
_ALIKE: Final = str.maketrans(
    "аеорсухіјѕԁԛԝһɡɩıιοανρτυκχγηωЅІЈАВЕКМНОРСТУХΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոց1I|0",
    "aeopcyxijsdqwhgiiioavptukxynwSlJABEKMHOPCTYXABEZHlKMNOPTYXounglllO",
)
_DASHES: Final = re.compile("[\u2010-\u2015\u2212\ufe58\ufe63\uff0d]")


def skeleton(name: str) -> str:
    """A key that is equal for two names that a person may confuse."""
    shown = name[:MAX_NAME]
    if not shown.isascii():
        decomposed = normalize("NFKD", shown)
        shown = "".join(one for one in decomposed if not _is_mark(one) and not has_hidden(one))
        shown = _DASHES.sub("-", shown)
    return shown.translate(_ALIKE).replace("rn", "m").replace("vv", "w")


def _is_mark(character: str) -> bool:
    return "\u0300" <= character <= "\u036f"


def confusable(names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of different names that look alike, each with the one before it."""
    first: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for name in dict.fromkeys(names):
        other = first.setdefault(skeleton(name), name)
        if other != name:
            pairs.append((name, other))
    return pairs
