"""The files of `transcripts/scripts`: what each shows, where it holds, and what happens in it.

Rules: reading only; nothing is run here. A script that cannot be read fails at once.
"""

import ast
import json
import re
from collections.abc import Callable
from typing import NamedTuple

from colonnade.protocol.methods import Side
from colonnade.protocol.revision import Revision

FACTS: dict[str, Callable[[Revision], bool]] = {
    "all": lambda revision: True,
    "handshake": lambda revision: revision.handshake,
    "enveloped": lambda revision: not revision.handshake,
    "elicits": lambda revision: bool(revision.elicitation.modes),
}


class Script(NamedTuple):
    """One file of `scripts/`: what it shows, where it holds, who is ours, and what happens."""

    name: str
    words: tuple[str, ...]
    facts: tuple[str, ...]
    ours: tuple[Side, ...]
    steps: tuple[str, ...]

    def holds_in(self, revision: Revision) -> bool:
        return holds(self.facts, revision)


def holds(facts: tuple[str, ...], revision: Revision) -> bool:
    """Whether one of these names of facts, or dates, is true of a revision."""
    return any(FACTS[fact](revision) if fact in FACTS else fact == revision.date for fact in facts)


def parse(name: str, text: str) -> Script:
    lines = text.strip().splitlines()
    first = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    facts, ours = lines[first].split(), lines[first + 1].split()
    assert (facts[0], ours[0]) == ("revisions", "ours"), f"{name}: {lines[first : first + 2]}"
    sides = tuple(side for side in Side if ours[1] in (side.value, "both"))
    heads = tuple(line[2:] for line in lines[:first])
    return Script(name, heads, tuple(facts[1:]), sides, tuple(lines[first + 2 :]))


def tokens(text: str) -> list[str]:
    """Words, and JSON values with whatever spaces they have."""
    found: list[str] = []
    while text := text.strip():
        if text[0] in '{["':
            _, end = json.JSONDecoder().raw_decode(text)
        else:
            end = len(text.split(maxsplit=1)[0])
        found.append(text[:end])
        text = text[end:]
    return found


def spelled(text: str) -> bytes:
    """The bytes of a line of a script."""
    if re.match("b['\"]", text):
        return ast.literal_eval(text)
    repeat = re.compile(r"⟨(.+?)\*(\d+)⟩")
    return repeat.sub(lambda found: found[1] * int(found[2]), text).encode()


def shown(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return text if text.isprintable() else repr(data)
