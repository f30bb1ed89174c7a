"""What was measured, and the few numbers that are said of it.

A figure is one thing measured of several entrants in turns, a sample for each in each round. Other
work on the machine only ever makes a round worse, so what is compared is the best round and the
better quarter (the 75th percentile of rates, the 25th of times), never the middle.

Rules: pure; nothing is rounded in our favour.
"""

import math
import statistics
from dataclasses import dataclass, field
from typing import Any, Literal

OURS = "colonnade"
LIMIT = "limit"

Better = Literal["more", "less"]


@dataclass(frozen=True)
class Ratio:
    """Ours against another's: of the best rounds, of the better quarters, and of each round."""

    best: float
    quarter: float
    least: float
    most: float


@dataclass
class Figure:
    """One thing measured, a list of samples for each entrant, and who could not be measured."""

    name: str
    title: str
    unit: str
    better: Better
    samples: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    # Who is compared with the others.
    ours: str = OURS
    # What the server's process took of its core for each call, in microseconds.
    cpu: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    # The same of the load; on stdio with the checking, which is outside of what is measured.
    load: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    notes: list[str] = field(default_factory=list[str])

    def best(self, entrant: str) -> float:
        """The best round."""
        samples = self.samples[entrant]
        return max(samples) if self.better == "more" else min(samples)

    def quarter(self, entrant: str) -> float:
        """What the better quarter of the rounds reached."""
        return quarter(self.samples[entrant], self.better)

    def ratio(self, against: str) -> Ratio | None:
        """Ours against another's; None where either was not measured."""
        ours = self.ours
        if not self.samples.get(ours) or not self.samples.get(against):
            return None
        rounds = [
            our / their
            for our, their in zip(self.samples[ours], self.samples[against], strict=False)
        ]
        return Ratio(
            self.best(ours) / self.best(against),
            self.quarter(ours) / self.quarter(against),
            min(rounds),
            max(rounds),
        )

    def to_json(self, *, rounds: bool = True) -> dict[str, Any]:
        """What was measured, with every round of it or without, and the ratios."""
        ratios = {
            other: {"best": ratio.best, "p75": ratio.quarter, "spread": [ratio.least, ratio.most]}
            for other in self.samples
            if other != self.ours and (ratio := self.ratio(other)) is not None
        }
        entrants: dict[str, dict[str, Any]] = {
            name: {"best": self.best(name), "p75": self.quarter(name)} for name in self.samples
        }
        for name, samples in self.samples.items() if rounds else ():
            entrants[name]["rounds"] = samples
        said: dict[str, Any] = {"title": self.title, "unit": self.unit, "better": self.better}
        for name, taken in self.cpu.items():
            entrants[name]["cpu_us"] = min(taken)
        for name, taken in self.load.items():
            entrants[name]["load_us"] = min(taken)
        said |= {"entrants": entrants, "ratios": ratios}
        if self.missing:
            said["missing"] = self.missing
        if self.notes:
            said["notes"] = self.notes
        return said


def quarter(samples: list[float], better: Better) -> float:
    """The 75th percentile of rates, the 25th of times."""
    if len(samples) == 1:
        return samples[0]
    cuts = statistics.quantiles(samples, n=4, method="inclusive")
    return cuts[2] if better == "more" else cuts[0]


def shown(number: float, *, up: bool = False) -> str:
    """A number with three digits or so, cut off and never rounded up (`up`: never down)."""
    size = abs(number)
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    scale = 10**places
    cut = (math.ceil if up else math.floor)(round(number * scale, 6)) / scale
    return f"{cut:,.{places}f}"
