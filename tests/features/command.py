"""The command of `scripts/features`: run every cell, then print the table.

Rules: a cell shows its verdict only after its test has passed in this very run; a failed one shows
FAILED, one that did not run says so. The page is written only after all have passed.
"""

import contextlib
import sys
from pathlib import Path

import pytest

CELLS = Path(__file__).with_name("test_features.py")


class Outcomes:
    """The outcome of each cell in one run of pytest, by the name of the cell."""

    def __init__(self) -> None:
        self._by_name: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of each phase of each test."""
        name = report.nodeid.partition("[")[2].removesuffix("]")
        if report.failed:
            self._by_name[name] = "FAILED"
        elif report.passed and report.when == "call":
            self._by_name.setdefault(name, "passed")

    def shown(self, name: str, verdict: str) -> str:
        """The text of a cell with this expected verdict."""
        outcome = self._by_name.get(name, "not run")
        return verdict if outcome == "passed" else outcome


def main(arguments: list[str]) -> int:
    """Run every cell, then print the table; returns the exit code of pytest."""
    outcomes = Outcomes()
    more = [argument for argument in arguments if argument != "--write"]
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(["-q", "--no-header", "--tb=short", str(CELLS), *more], [outcomes])

    # Imported here, because pytest rewrites assertions only in modules that it imports itself.
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
