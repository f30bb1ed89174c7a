"""Golden conversations of a gateway: every frame on both of its wires, kept in a file for each
feature and each cell.

    @crosses("call")
    @live
    async def test_a_call_crosses(golden: Golden, rewrite_transcripts: bool) -> None: ...

    scripts/test tests/gateway --rewrite-transcripts      writes them anew; `git diff` is the review

    client --> gateway             {"jsonrpc":"2.0","id":1,"method":"tools/call",…}
               gateway --> server  {"jsonrpc":"2.0","id":3,"method":"tools/call",…}

Rules: what differs from run to run (what is sealed, ids of elicitations and tasks, times, our version, where this
clone is) is replaced by a name that says what it is; nothing else is. A file is compared as a whole.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from colonnade import __version__
from colonnade.protocol.methods import Side
from gateway.recorded import NEW, OLD, Cell

FOLDER = Path(__file__).parents[2] / "gateway" / "conversations"

REPOSITORY = Path(__file__).parents[3].as_uri()

# The client and the server of each cell, by its name.
CELLS = {
    "new-new": (NEW, NEW),
    "new-old": (NEW, OLD),
    "old-new": (OLD, NEW),
    "old-old": (OLD, OLD),
}

# In the order of the table in docs/gateway-cells.md.
FEATURES = (
    "call",
    "errors",
    "progress",
    "log messages",
    "cancellation",
    "changes of lists",
    "updates of resources",
    "completion",
    "three pages",
    "form",
    "URL by request",
    "URL by error",
    "sampling",
    "sampling with tools",
    "roots",
    "a task",
)

# Members whose values are sealed or drawn, and the names that stand for them.
DRAWN = {
    "cursor": "cursor",
    "nextCursor": "cursor",
    "requestState": "state",
    "elicitationId": "elicitation",
    "taskId": "task",
}
# Members that are lists of such values.
LISTS = {"taskIds": "taskId"}
# Members with times, and with the milliseconds for which an ended task is kept.
TIMES = ("createdAt", "lastUpdatedAt")
DURATIONS = ("ttl", "ttlMs")
_ARROWS = {
    ("front", Side.CLIENT): "client --> gateway            ",
    ("front", Side.SERVER): "client <-- gateway            ",
    ("back", Side.CLIENT): "           gateway --> server ",
    ("back", Side.SERVER): "           gateway <-- server ",
}


class CrossingTest(NamedTuple):
    """A test of one feature in all four cells."""

    feature: str
    module: str
    name: str

    def golden(self, cell: str) -> Path:
        """The file with the frames of one cell."""
        return FOLDER / f"{self.feature.replace(' ', '-')}.{cell}.txt"


Test = Callable[..., None]


def crosses(feature: str) -> Callable[[Test], Test]:
    """Run a test in all four cells, as that of one feature; `golden` is then given to it."""

    def declare(test: Test) -> Test:
        crossing = CrossingTest(feature, test.__module__, test.__name__)
        goldens = [Golden(crossing, cell, *CELLS[cell]) for cell in CELLS]
        return pytest.mark.parametrize("golden", goldens, ids=CELLS)(test)

    return declare


class Golden(NamedTuple):
    """The golden conversation of a test in one cell."""

    crossing: CrossingTest
    cell: str
    downstream: str
    upstream: str

    def compare(self, cell: Cell, *, rewrite: bool) -> None:
        """Check every frame of a conversation, and compare all of them with the file."""
        cell.check()
        path, text = self.crossing.golden(self.cell), shown(cell)
        if rewrite:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert text == path.read_text("utf-8")


def shown(cell: Cell) -> str:
    """The frames on all wires of a gateway, in their order."""
    names = DrawnNames()
    frames: list[tuple[int, str, int, Side, Any]] = []
    for where, wires in (("front", cell.front), ("back", cell.back)):
        for number, wire in enumerate(wires, 1):
            for place, (side, frame) in zip(wire.places, wire.frames, strict=True):
                frames.append((place, where, number, side, frame))
    several = {"front": len(cell.front) > 1, "back": len(cell.back) > 1}
    lines: list[str] = []
    for _, where, number, side, frame in sorted(frames, key=lambda one: one[0]):
        which = f"#{number} " if several[where] else ""
        text = json.dumps(names.replaced(frame), ensure_ascii=False, separators=(",", ":"))
        lines.append(f"{_ARROWS[where, side]} {which}{text}\n")
    return "".join(lines)


class DrawnNames:
    """Names for what is drawn or sealed, the same for the same value."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def replaced(self, value: Any, member: str = "") -> Any:
        """A value with names in the place of what differs from run to run."""
        if isinstance(value, dict):
            return {key: self.replaced(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [self.replaced(one, LISTS.get(member, "")) for one in value]
        if member in TIMES:
            return "$time"
        if member in DURATIONS and value:
            return "$duration"
        if member == "version" and value == __version__:
            return "$version"
        if isinstance(value, str) and REPOSITORY in value:
            return value.replace(REPOSITORY, "file:///$repository")
        if member in DRAWN and isinstance(value, str) and not re.fullmatch(r"[\w-]{0,8}", value):
            return self._name(DRAWN[member], value)
        return value

    def _name(self, kind: str, value: str) -> str:
        if value not in self._names:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            self._names[value] = f"${kind}-{number}"
        return self._names[value]
