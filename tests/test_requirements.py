"""The requirement index is whole, agrees with the marks of the tests, and each rule ran where it is.

Rules: this file judges the real index and the real tests; the tool has tests of its own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from colonnade.protocol import revision as revisions
from requirements.index import (
    DATES,
    OFFICIAL,
    OFFICIAL_DIGEST,
    REVISIONS,
    ROOT,
    digest,
    read_extensions,
    read_index,
    read_official,
)
from requirements.marks import revisions_of, rows_by_id
from requirements.trace import (
    check_extensions,
    check_marks,
    check_official,
    check_rows,
    read_marks,
)

TESTS = ROOT / "tests"


# The real index


def test_the_index_is_well_formed() -> None:
    assert list(check_rows(read_index())) == []


def test_the_index_agrees_with_the_official_list() -> None:
    theirs = read_official()
    if theirs is None:
        print(f"no official list at {OFFICIAL}: compared with its digest only")
    assert list(check_official(read_index(), theirs)) == []


def test_the_index_has_each_must_and_each_should_once() -> None:
    rows = [row for row in read_index() if not row.of_extension]
    musts = [r for r in rows if r.level.startswith("MUST")]
    assert (len(musts), len(rows) - len(musts)) == (731, 422)
    assert digest(rows) == OFFICIAL_DIGEST


def test_the_index_has_the_rules_of_the_extensions_that_are_built() -> None:
    rows = [row for row in read_index() if row.of_extension]
    assert [row.id for row in rows] == ["T01", "T02", "T03", "T04", "T05", "T06", "T07"]
    assert [row.id for row in rows if row.status != "tested"] == ["T07"]
    assert list(check_extensions(rows, read_extensions())) == []


def test_the_marks_of_all_tests_agree_with_the_index() -> None:
    assert check_marks(read_index(), read_marks(TESTS), read_official()) == []


def test_the_index_knows_the_revisions_of_the_package() -> None:
    assert tuple(r.date for r in revisions.ALL) == DATES
    assert {name: getattr(revisions, name).date for name in REVISIONS} == REVISIONS


def test_each_rule_ran_in_each_revision_that_has_it(request: pytest.FixtureRequest) -> None:
    """By what this very run collected; rules of which it did not collect every test are left out."""
    chosen = request.config.getoption("keyword") or request.config.getoption("markexpr")
    if chosen or any("[" in argument for argument in request.config.args):
        print("only some cases were chosen: nothing to judge")
        return
    ran: dict[str, set[str]] = {}
    present: set[tuple[str, str]] = set()
    for item in request.session.items:
        if not isinstance(item, pytest.Function):
            continue
        present.add((item.path.relative_to(ROOT).as_posix(), item.originalname))
        given = item.callspec.params.get("revision") if hasattr(item, "callspec") else None
        dates = {given.date} if isinstance(given, revisions.Revision) else set(DATES)
        for mark in item.iter_markers("spec"):
            for id_ in mark.args:
                ran.setdefault(id_, set()).update(dates)
    whole = {
        id_
        for id_, marks in read_marks(TESTS).by_id().items()
        if all((mark.file, mark.test.rpartition("::")[2]) in present for mark in marks)
    }
    print(f"{len(whole)} rules judged")
    narrow = {
        id_: sorted(set(rows_by_id()[id_].dates) - ran[id_])
        for id_ in whole & rows_by_id().keys()
        if not set(rows_by_id()[id_].dates) <= ran[id_]
    }
    assert narrow == {}


# Running a test in the revisions of its ids


def test_the_revisions_of_several_rules_are_all_of_them() -> None:
    old = next(r for r in rows_by_id().values() if r.revisions == "2024-11-05")
    new = next(r for r in rows_by_id().values() if r.revisions == "2026-07-28")
    assert revisions_of([new.id, old.id]) == ("2024-11-05", "2026-07-28")
    assert revisions_of([new.id]) == ("2026-07-28",)
    assert revisions_of([]) == ()


def test_the_revisions_of_an_unknown_rule_are_an_error() -> None:
    with pytest.raises(ValueError, match="R9999 is not in tests/requirements"):
        revisions_of(["R9999"])


def test_a_test_that_takes_a_revision_runs_in_those_of_its_rules(tmp_path: Path) -> None:
    one = {r.revisions: r.id for r in rows_by_id().values()}
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "from requirements.marks import parametrize_revision as pytest_generate_tests\n"
        "@pytest.fixture\n"
        "def link(revision): return revision\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_all(revision): ...\n"
        "def test_none(): ...\n"
        f"@pytest.mark.spec({one['2024-11-05']!r})\n"
        f"@pytest.mark.spec({one['2026-07-28']!r})\n"
        "def test_two(revision): ...\n"
        f"@pytest.mark.spec({one['2025-03-26']!r})\n"
        "def test_fixture(link): assert link.date == '2025-03-26'\n"
        "@pytest.mark.parametrize('x', [\n"
        f"    pytest.param(1, marks=pytest.mark.spec({one['2025-06-18']!r})), 2])\n"
        "def test_param(revision, x): ...\n"
        "@pytest.mark.parametrize('x, revision', [(1, 'own')])\n"
        "def test_own(revision, x): ...\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = spec(*ids)\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
        timeout=60,
    )
    lines = [line.partition("::")[2].split() for line in done.stdout.splitlines() if "::" in line]
    assert {name: outcome for name, outcome, *_ in lines} == dict.fromkeys(
        (
            *(f"test_all[{date}]" for date in DATES),
            "test_none",
            "test_two[2024-11-05]",
            "test_two[2026-07-28]",
            "test_fixture[2025-03-26]",
            "test_param[2025-06-18-1]",
            "test_param[2025-06-18-2]",
            "test_own[1-own]",
        ),
        "PASSED",
    )
