"""What `scripts/features` runs: every cell, and then the table of what was seen.

Rules: a cell shows its verdict only after its test has passed in this very run; a failed one shows
FAILED, one that did not run says so. The page is written only after all have passed.
"""

import contextlib
import sys
from pathlib import Path

import pytest

CELLS = Path(__file__).with_name("test_features.py")


class Outcomes:
    """What became of each cell in one run of pytest, by the cell's name."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear of each step of each test."""
        name = report.nodeid.partition("[")[2].removesuffix("]")
        if report.failed:
            self._by_name[name] = "FAILED"
        elif report.passed and report.when == "call":
            self._by_name.setdefault(name, "passed")

    def shown(self, name: str, verdict: str) -> str:
        """What may be shown of a cell that promises this verdict."""
        outcome = self._by_name.get(name, "not run")
        return verdict if outcome == "passed" else outcome


def main(arguments: list[str]) -> int:
    """Run every cell, then print what was seen; the exit code of pytest."""
    outcomes = Outcomes()
    more = [argument for argument in arguments if argument != "--write"]
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(["-q", "--no-header", "--tb=short", str(CELLS), *more], [outcomes])

    # Not before: pytest explains only what is asserted in modules that it has loaded itself.
    from features import table

    seen = table.render(
        lambda row, revision: outcomes.shown(
            table.name_of(row, revision), str(table.promised(row, revision))
        )
    )
    print(seen)
    if "--write" in arguments and code == 0 and "not run" not in seen:
        page = table.PAGE
        page.write_text(table.written(page.read_text("utf-8"), seen), "utf-8")
        print(f"written to {page.relative_to(table.ROOT)}", file=sys.stderr)
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
