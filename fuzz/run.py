"""Runs the targets: `python -m fuzz.run --count 200000 --seed 1 [--only links]`.

Prints, for each target, how many inputs it took, how many a second, and what they were answered
with. What it finds is shrunk and printed as a file for `fuzz/regressions/`.

Rules: as many inputs as asked for, to the one. The clock is for the report alone.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from fuzz.frames import Frames
from fuzz.links import Links
from fuzz.posts import Posts
from fuzz.streams import Streams
from fuzz.target import Case, Finding, Target, attempt
from fuzz.tasks import StoredTasks
from fuzz.texts import Answers, Nouns, Schemas, Templates

DEFAULT_COUNT: Final = 200_000
DEFAULT_SEED: Final = 20_260_728
# A finding is for people to read: shorter, but not at any price.
MAX_SHRINKING: Final = 3_000


class Ran(NamedTuple):
    """What a target took, and what it answered, by kind."""

    target: str
    inputs: int
    seconds: float
    answers: Counter[str]

    def __str__(self) -> str:
        rate = self.inputs / self.seconds if self.seconds else 0
        lines = [f"{self.target:<10}{self.inputs:>8} inputs {rate:>10,.0f} a second of CPU"]
        lines += [f"{count:>14}  {kind}" for kind, count in self.answers.most_common()]
        return "\n".join(lines)


def run(target: Target, count: int, seed: int) -> Ran:
    """Exactly `count` inputs. Raises `Finding`."""
    rng = Random(f"{target.name} {seed}")
    answers: Counter[str] = Counter()
    taken = 0
    began = time.process_time()
    while taken < count:
        found = attempt(target, target.draw(rng, count - taken))
        answers.update(found)
        taken += len(found)
    return Ran(target.name, taken, time.process_time() - began, answers)


# ---------------------------------------------------------------- smaller


def shrink(target: Target, finding: Finding) -> Finding:
    """A finding with the same words from less: fewer inputs, then fewer bytes in each."""
    tries = 0
    size = max(map(len, finding.case.parts), default=0)
    while size and tries < MAX_SHRINKING:
        part, start, again = 0, 0, False
        while part < len(parts := finding.case.parts) and tries < MAX_SHRINKING:
            tries += 1
            smaller = _smaller(finding.case, part, start, size)
            found = _finds(target, smaller, finding.words) if smaller != finding.case else None
            if found is not None:
                finding, again = found, True
            elif start + size < len(parts[part]):
                start += size
            else:
                part, start = part + 1, 0
        if not again:
            size //= 2
    return finding


def _smaller(case: Case, part: int, start: int, size: int) -> Case:
    """Without some bytes of one input; without the input, where that is all of it."""
    body = case.parts[part]
    shorter = body[:start] + body[start + size :]
    return Case(
        case.where, (*case.parts[:part], *[shorter][: len(shorter)], *case.parts[part + 1 :])
    )


def _finds(target: Target, case: Case, words: str) -> Finding | None:
    try:
        attempt(target, case)
    except Finding as finding:
        return finding if finding.words[:40] == words[:40] else None
    return None


# ---------------------------------------------------------------- the command


def targets() -> list[tuple[Target, float]]:
    """Every target, and its share of the inputs."""
    return [
        (Frames(), 0.33),
        (Links(), 0.34),
        (Streams(), 0.10),
        (Posts(), 0.15),
        (Nouns(), 0.015),
        (Answers(), 0.015),
        (Templates(), 0.015),
        (Schemas(), 0.015),
        (StoredTasks(), 0.02),
    ]


def counts(total: int) -> list[tuple[Target, int]]:
    """How many inputs each target gets; together exactly as many as asked for."""
    shares = [(target, int(total * share)) for target, share in targets()]
    first, count = shares[0]
    return [(first, count + total - sum(each for _, each in shares)), *shares[1:]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__)
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT)
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--only", help="the name of one target")
    chosen = parser.parse_args(arguments)
    total = 0
    for target, count in counts(chosen.count):
        if chosen.only is not None:
            if target.name != chosen.only:
                continue
            count = chosen.count
        try:
            ran = run(target, count, chosen.seed)
        except Finding as finding:
            print(f"{target.name}, seed {chosen.seed}: {shrink(target, finding)}")
            return 1
        total += ran.inputs
        print(ran)
    print(f"{total} inputs, seed {chosen.seed}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
