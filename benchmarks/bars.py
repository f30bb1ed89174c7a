"""What the suite must show: a bar for each figure, and whether it was reached.

Rules: pure. A bar is reached by the worse of two ratios, that of the best rounds and that of the
better quarters; what was not measured is not reached.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.figures import LIMIT, Figure, shown

MCP = "mcp"
FASTMCP = "FastMCP"
TYPESCRIPT = "TypeScript"
# Of a client and a server behind a gateway: 2026-07-28, or a revision with a handshake.
CELLS = ("new-new", "new-old", "old-new", "old-old")


@dataclass(frozen=True)
class Bar:
    """How many times another's ours must be (or may be at most), or a number for ours alone."""

    figure: str
    bar: float
    against: str | None = None


def against(figure: str, **bars: float) -> list[Bar]:
    """Bars of one figure, by who they are against."""
    names = {"mcp": MCP, "fastmcp": FASTMCP, "limit": LIMIT, "typescript": TYPESCRIPT}
    return [Bar(figure, bar, names[name]) for name, bar in bars.items()]


BARS: tuple[Bar, ...] = (
    *against("http-async", mcp=10, fastmcp=24, limit=0.90),
    *against("http-sync", mcp=8, fastmcp=20),
    *against("session-async", mcp=9, fastmcp=16),
    *against("http-stream", mcp=8),
    *against("http-64k", mcp=2.5),
    *against("http-1m", mcp=5),
    *against("stdio-16", mcp=40, fastmcp=70),
    *against("stdio-1", mcp=7, fastmcp=10),
    *against("memory", typescript=1),
    Bar("client-1", 4.5, "mcp to mcp"),
    Bar("client-16", 11, "mcp to mcp"),
    *against("list-10", mcp=8),
    *against("list-1000", mcp=150, fastmcp=200),
    *against("start", mcp=0.13, fastmcp=0.10),
    *against("resident", mcp=0.38, fastmcp=0.30),
    Bar("listen-memory", 13),
    Bar("listen-fan-out", 250),
    Bar("task-create", 0.5, "inserts"),
    Bar("task-create-direct", 0.5, "store alone"),
    Bar("task-poll", 1.5, "plain call"),
    Bar("replicas-session", 0.9, "memory store"),
    Bar("replicas-session-cpu", 0.9, "memory store"),
    Bar("replicas-operations", 0),
    Bar("replicas-throughput-cpu", 0.8, "1 replica"),
    *(Bar(f"gateway-{cell}", 0.4, "direct") for cell in CELLS),
    *(Bar(f"gateway-{cell}", 10, "FastMCP shared client") for cell in CELLS),
    *(Bar(f"gateway-{cell}", 60, "FastMCP default") for cell in CELLS),
    Bar("gateway-1m", 1.3, "direct"),
    Bar("gateway-1m-old", 1.3, "direct"),
)


@dataclass(frozen=True)
class Verdict:
    """A bar, and what was reached; None where it was not measured."""

    bar: Bar
    title: str
    reached: float | None
    unit: str
    at_least: bool

    @property
    def passes(self) -> bool:
        if self.reached is None:
            return False
        bar = self.bar.bar
        return self.reached >= bar if self.at_least else self.reached <= bar

    def to_json(self) -> dict[str, Any]:
        """The same for a machine."""
        bar = self.bar
        said: dict[str, Any] = {"figure": bar.figure, "against": bar.against, "bar": bar.bar}
        return said | {"reached": self.reached, "passes": self.passes}

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        reached = "not measured"
        if self.reached is not None:
            reached = shown(self.reached, up=not self.at_least) + self.unit
        whom = f"against {self.bar.against}" if self.bar.against else ""
        return (
            f"  {self.title:<48} {whom:<20} {reached:>12}   {sign} {self.bar.bar:g}{self.unit}"
            f"   {'pass' if self.passes else 'MISS'}"
        )


def judge(figures: Mapping[str, Figure], bars: Iterable[Bar] = BARS) -> list[Verdict]:
    """Whether each bar is reached, for those figures that were to be measured."""
    return [verdict(bar, figures[bar.figure]) for bar in bars if bar.figure in figures]


def verdict(bar: Bar, figure: Figure) -> Verdict:
    """One bar."""
    at_least = figure.better == "more"
    worse = min if at_least else max
    reached: float | None = None
    unit = "×"
    if bar.against is None:
        unit = f" {figure.unit}"
        if figure.samples.get(figure.ours):
            reached = worse(figure.best(figure.ours), figure.quarter(figure.ours))
    elif (ratio := figure.ratio(bar.against)) is not None:
        reached = worse(ratio.best, ratio.quarter)
    return Verdict(bar, figure.title, reached, unit, at_least)
