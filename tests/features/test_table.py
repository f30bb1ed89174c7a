"""The feature table is complete, equal to the page, and shows only what its tests have observed."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from colonnade.protocol.revision import ALL
from features.command import Outcomes
from features.feature import WORKS, Group, Kind, fallback
from features.table import BEGIN, END, GROUPS, PAGE, ROOT, ROWS, name_of, render, written

# A minimum, so that a table without rows fails.
LEAST_ROWS = 150


def test_the_page_has_the_table_that_the_rows_promise() -> None:
    page = PAGE.read_text("utf-8")
    assert (page.count(BEGIN), page.count(END)) == (1, 1)
    assert page == written(page, render()), "run scripts/features --write"


def test_every_row_is_there_once_and_has_a_verdict_for_each_revision() -> None:
    assert len(ROWS) >= LEAST_ROWS
    names = Counter(name_of(row, revision) for row in ROWS for revision in ALL)
    assert names.most_common(1)[0][1] == 1
    assert all(name.isascii() for name in names)  # pytest spells other names anew
    assert all(len(row.promised) == len(ALL) for row in ROWS)
    assert all(group.rows for group in GROUPS)


def test_a_verdict_that_is_not_plain_says_how() -> None:
    verdicts = [verdict for row in ROWS for verdict in row.promised]
    assert all(bool(verdict.how) is (verdict.kind is not Kind.WORKS) for verdict in verdicts)
    assert {verdict.kind for verdict in verdicts} == set(Kind)


def test_a_row_with_too_few_verdicts_is_refused() -> None:
    with pytest.raises(ValueError, match=f"2 verdicts for {len(ALL)} revisions"):
        Group("g").feature("f", WORKS, fallback("x"))


def test_every_question_that_was_asked_for_has_its_row() -> None:
    groups = "Input requests in a handler", "Elicitation, sampling and roots"
    names = " ".join(row.name for row in ROWS if row.group in groups)
    for words in (
        *("two in a row", "conditional", "in a dependency", "declines", "gathered"),
        *("inside a `TaskGroup`", "under a bare `except:`", "with a `finally` that awaits"),
        *("a replay that takes another branch", "a side effect before the request", "a sync tool"),
    ):
        assert words in names, words


def report(name: str, when: str, outcome: str) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=f"tests/features/test_features.py::test_a_client_gets[{name}]",
        location=("", 0, ""),
        keywords={},
        outcome=outcome,  # type: ignore[arg-type]
        longrepr=None,
        when=when,  # type: ignore[arg-type]
    )


def test_a_cell_shows_its_verdict_only_after_its_test_has_passed() -> None:
    outcomes = Outcomes()
    steps = {
        "good": ("passed", "passed", "passed"),
        "bad": ("passed", "failed", "passed"),
        "bad at its end": ("passed", "passed", "failed"),
        "never begun": ("failed",),
        "left out": ("skipped",),
    }
    for name, found in steps.items():
        for when, outcome in zip(("setup", "call", "teardown"), found, strict=False):
            outcomes.pytest_runtest_logreport(report(name, when, outcome))
    assert {name: outcomes.shown(name, "works") for name in (*steps, "unheard of")} == {
        "good": "works",
        "bad": "FAILED",
        "bad at its end": "FAILED",
        "never begun": "FAILED",
        "left out": "not run",
        "unheard of": "not run",
    }


LIE = """
def pytest_collection_modifyitems(items):
    for item in items:
        row = item.callspec.params["row"]
        item.callspec.params["row"] = row._replace(promised=row.promised[::-1])
"""


def test_the_command_prints_what_failed_and_fails_and_leaves_the_page_alone(tmp_path: Path) -> None:
    """Runs one row with reversed verdicts, in another process."""
    before = PAGE.read_bytes()
    (tmp_path / "lie.py").write_text(LIE)
    (row,) = [row for row in ROWS if name_of(row, ALL[0]).startswith("Tools: icons")]
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tests"), str(ROOT)])
    command = [
        sys.executable,
        "-m",
        "features.command",
        "--write",
        "-p",
        "lie",
        "-k",
        "Tools and icons",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths},
        timeout=60,
    )
    assert done.returncode == 1, done.stderr
    (line,) = [one for one in done.stdout.splitlines() if one.startswith(f"| {row.name} |")][:1]
    verdicts = list(row.promised)
    lies = sum(one != other for one, other in zip(verdicts, verdicts[::-1], strict=True))
    assert (line.count("FAILED"), lies) == (4, 4)
    assert done.stdout.count("not run") == (len(ROWS) - 1) * len(ALL)
    assert PAGE.read_bytes() == before
