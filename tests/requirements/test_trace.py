"""The tool behind `scripts/trace` sees every mistake that an index or a mark can have.

Rules: small made-up files only; the real index is checked by tests/test_requirements.py.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from requirements.index import (
    COLUMNS,
    DATES,
    REVISIONS,
    ROOT,
    BadIndex,
    Official,
    Row,
    digest,
    read_index,
    read_official,
)
from requirements.report import main
from requirements.trace import (
    Mark,
    Marks,
    check_extensions,
    check_marks,
    check_official,
    check_rows,
    count,
    read_marks,
)

ALL_DATES = ",".join(DATES)
CASES = "@pytest.mark.parametrize('x', ["
AT = "tests/test_x.py::test_a:7"


def row(id_: str = "R0001", **changed: str) -> Row:
    cells = {
        "level": "MUST",
        "revisions": ALL_DATES,
        "page": "basic",
        "words": "says it shortly",
        "status": "tested",
        "reason": "",
        "file": "made-up.tsv:2",
    }
    return Row(id=id_, **(cells | changed))


def official(id_: str = "R0001", **changed: str) -> Official:
    cells = {
        "level": "MUST",
        "revisions": ALL_DATES,
        "page": "basic",
        "section": "Here",
        "text": "A long sentence that MUST be obeyed by all.",
    }
    return Official(id=id_, **(cells | changed))


@pytest.fixture
def marks_in(tmp_path: Path) -> Callable[[str], Marks]:
    """Read the marks of one made-up test file."""

    def read(text: str) -> Marks:
        folder = tmp_path / "tests"
        folder.mkdir(exist_ok=True)
        (folder / "test_made_up.py").write_text(text, encoding="utf-8")
        return read_marks(folder)

    return read


# Reading rows


def test_a_row_is_read_with_its_dates(tmp_path: Path) -> None:
    cells = ("R0001", "MUST", "2025-11-25,2026-07-28", "basic", 'a "quoted" word', "open", "server")
    text = "\n".join("\t".join(line) for line in (COLUMNS, cells))
    (tmp_path / "one.tsv").write_text(text + "\n", encoding="utf-8")
    (read,) = read_index(tmp_path)
    assert read.words == 'a "quoted" word'
    assert read.dates == ("2025-11-25", "2026-07-28")
    assert read.file == "one.tsv:2"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id\tlevel\n", "one.tsv:1: no column revisions"),
        ("\t".join(COLUMNS) + "\nR0001\tMUST\n", "one.tsv:2: 2 columns, the header has 7"),
        ("\t".join((*COLUMNS, "more")) + "\n" + "x\t" * 7, "one.tsv:1: columns must be"),
    ],
)
def test_a_line_that_is_no_row_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "one.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(BadIndex, match=complaint):
        read_index(tmp_path)


@pytest.mark.parametrize(
    ("group", "dates"),
    [("ext-tasks", DATES[-1:]), ("ext-auth", DATES[-1:]), ("best-practices", DATES)],
)
def test_a_group_without_a_date_stands_for_revisions(group: str, dates: tuple[str, ...]) -> None:
    assert row(revisions=group).dates == dates


# Rows alone


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"status": "done"}, "R0001: status 'done' is none of"),
        ({"status": "open"}, "R0001: open needs a reason"),
        ({"status": "not-ours", "reason": " "}, "R0001: not-ours needs a reason"),
        ({"status": "deliberate", "reason": "D21"}, "R0001: only a SHOULD can be done otherwise"),
        ({"level": "MAY"}, "R0001: level 'MAY' is none of"),
        ({"revisions": "2024-11-05,2023-01-01"}, "R0001: unknown revision 2023-01-01"),
        ({"words": ""}, "R0001: 1 to 14 words of our own, not 0"),
        ({"words": "w " * 15}, "R0001: 1 to 14 words of our own, not 15"),
    ],
)
def test_a_bad_row_is_named(changed: dict[str, str], complaint: str) -> None:
    (found,) = check_rows([row(**changed)])
    assert found.startswith(f"made-up.tsv:2: {complaint}")


def test_an_id_twice_is_named() -> None:
    (found,) = check_rows([row(), row(file="other.tsv:9")])
    assert found == "other.tsv:9: R0001 is also in made-up.tsv:2; keep one"


def test_a_should_done_otherwise_on_purpose_is_fine() -> None:
    assert list(check_rows([row(level="SHOULD NOT", status="deliberate", reason="D21")])) == []


# Rows and the official list


def against(rows: list[Row], *theirs: Official) -> list[str]:
    """Complaints other than that the made-up list is not the real one."""
    found = list(check_official(rows, {one.id: one for one in theirs}))
    assert found.pop().startswith("the official list has changed")
    return found


def test_an_id_missing_in_the_index_is_named() -> None:
    assert against([], official()) == ["R0001 (MUST, basic) is missing in the index"]


def test_a_may_need_not_be_indexed() -> None:
    assert against([], official(level="MAY")) == []


def test_an_indexed_row_that_the_list_does_not_have_is_named() -> None:
    words = "R0001 is no MUST or SHOULD of the official list; take it out"
    assert against([row()]) == [f"made-up.tsv:2: {words}"]
    assert against([row()], official(level="MAY")) == [f"made-up.tsv:2: {words}"]


@pytest.mark.parametrize(
    "changed", [{"level": "SHOULD"}, {"revisions": "2024-11-05"}, {"page": "index"}]
)
def test_a_row_that_disagrees_with_the_list_is_named(changed: dict[str, str]) -> None:
    (found,) = against([row(**changed)], official())
    assert found.startswith("made-up.tsv:2: R0001 says ")


def test_a_copied_sentence_is_named() -> None:
    (found,) = against([row(words="long sentence that MUST be obeyed by")], official())
    assert found == "made-up.tsv:2: R0001 repeats the sentence; say it in our own words"


def test_rules_of_extensions_are_compared_with_their_own_list() -> None:
    own = row("T01")
    assert list(check_extensions([own, row("R0001")], {"T01": "MUST"})) == []
    assert list(check_extensions([own], None)) == []
    assert list(check_extensions([], {"T01": "MUST"})) == [
        "T01 (MUST) of the extensions is missing in the index"
    ]
    assert list(check_extensions([own], {"T01": "SHOULD"})) == [
        "made-up.tsv:2: T01 says MUST, the list of the extensions SHOULD"
    ]
    assert list(check_extensions([own], {})) == [
        "made-up.tsv:2: T01 is no rule of an indexed extension; take it out"
    ]


def test_without_the_list_the_digest_still_tells_a_lost_row() -> None:
    rows = [row for row in read_index() if not row.of_extension]
    assert list(check_official(rows, None)) == []
    (found,) = check_official(rows[1:], None)
    assert found.startswith("the index (1152 rows) is not the official list")


# Reading marks


@pytest.mark.parametrize(
    "text",
    [
        "@pytest.mark.spec('R0001')\ndef test_a(): ...",
        "@mark.spec('R0001')\nasync def test_a(): ...",
        "pytestmark = pytest.mark.spec('R0001')\ndef test_a(): ...",
        "def test_a(): ...\npytestmark = [pytest.mark.slow, pytest.mark.spec('R0001')]",
        f"{CASES}pytest.param(1, marks=pytest.mark.spec('R0001'))])\ndef test_a(x): ...",
        f"{CASES}pytest.param(1, marks=[pytest.mark.spec('R0001')])])\ndef test_a(x): ...",
        f"ONE = pytest.param(1, marks=(pytest.mark.spec('R0001'),))\n{CASES}ONE])\ndef test_a(x): ...",
        "ids = pytest.mark.spec('R0001')\n@ids\ndef test_a(): ...",
        (
            "def cases(): return [pytest.param(1, marks=pytest.mark.spec('R0001'))]\n"
            f"MORE: list = cases()\n{CASES}*MORE])\ndef test_a(x): ..."
        ),
        "@pytest.mark.spec('R0001')\n@pytest.mark.spec('R0001')\ndef test_a(): ...",
    ],
)
def test_a_mark_is_found_wherever_pytest_finds_it(
    marks_in: Callable[[str], Marks], text: str
) -> None:
    marks = marks_in(text)
    assert marks.problems == []
    assert [(mark.id, mark.test) for mark in marks.found] == [("R0001", "test_a")]


def test_a_mark_on_a_class_is_on_each_of_its_tests(marks_in: Callable[[str], Marks]) -> None:
    marks = marks_in(
        "@pytest.mark.spec('R0001')\n"
        "class TestOne:\n"
        "    pytestmark = pytest.mark.spec('R0002')\n"
        "    def test_a(self): ...\n"
        "    def test_b(self): ...\n"
        "def test_c(): ...\n"
    )
    assert marks.problems == []
    assert sorted(f"{mark.id} {mark}" for mark in marks.found) == [
        "R0001 tests/test_made_up.py::TestOne::test_a:4",
        "R0001 tests/test_made_up.py::TestOne::test_b:5",
        "R0002 tests/test_made_up.py::TestOne::test_a:4",
        "R0002 tests/test_made_up.py::TestOne::test_b:5",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("IDS = ('R0001',)\n@pytest.mark.spec(*IDS)\ndef test_a(): ...", "2: write the ids out"),
        ("@pytest.mark.spec()\ndef test_a(): ...", "1: spec takes ids and nothing else"),
        ("@pytest.mark.spec('R0001', x=1)\ndef test_a(): ...", "1: spec takes ids and nothing"),
        ("@pytest.mark.spec\ndef test_a(): ...", "1: spec is used without ids"),
        ("@pytest.mark.spec('R0001')\ndef build(): ...", "1: this mark is on no test"),
        ("LOST = pytest.mark.spec('R0001')\ndef test_a(): ...", "1: this mark is on no test"),
    ],
)
def test_a_mark_that_cannot_count_is_named(
    marks_in: Callable[[str], Marks], text: str, complaint: str
) -> None:
    (found,) = marks_in(text).problems
    assert found.startswith(f"tests/test_made_up.py:{complaint}")


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("def test_a(): parse()", None),
        ("def test_a(revision): use(revision, JULY_2026)", None),
        ("def test_a(*, revision): use(JULY_2026)", None),
        ("def test_a(): use(JULY_2026)", {"2026-07-28"}),
        ("def test_a(): use(revision.JUNE_2025, JULY_2026)", {"2025-06-18", "2026-07-28"}),
        ("@pytest.mark.parametrize('r', [MARCH_2025])\ndef test_a(r): use(r)", {"2025-03-26"}),
    ],
)
def test_a_test_that_names_revisions_counts_for_those(
    marks_in: Callable[[str], Marks], text: str, dates: set[str] | None
) -> None:
    (mark,) = marks_in(f"@pytest.mark.spec('R0001')\n{text}\n").found
    assert mark.dates == dates


# Rows and marks


def mark(id_: str = "R0001", *names: str) -> Mark:
    dates = frozenset(REVISIONS[name] for name in names) or None
    return Mark(id_, "tests/test_x.py", "test_a", 7, dates)


@pytest.mark.parametrize(
    ("rows", "marks", "complaint"),
    [
        ([row()], [], "made-up.tsv:2: R0001 is called tested and no test names it"),
        (
            [row(status="open", reason="server")],
            [mark()],
            f"{AT}: R0001 is open in the index; a test proves it, so call it tested",
        ),
        ([], [mark("R0009")], f"{AT}: R0009 is no id of the index"),
        (
            [],
            [mark("R0001")],
            f"{AT}: R0001 is a MAY, which the index leaves out; take the mark away",
        ),
        (
            [row(revisions="2024-11-05,2025-03-26,2026-07-28")],
            [mark("R0001", "MARCH_2025"), mark("R0001", "JULY_2026")],
            f"{AT}: R0001 is a rule of 2024-11-05 too; let the test take `revision` instead of naming one",
        ),
    ],
)
def test_a_disagreement_of_index_and_marks_is_named(
    rows: list[Row], marks: list[Mark], complaint: str
) -> None:
    assert check_marks(rows, Marks(found=marks), {"R0001": official(level="MAY")}) == [complaint]


def test_a_test_without_a_named_revision_covers_its_rule() -> None:
    assert check_marks([row()], Marks(found=[mark("R0001", "JULY_2026"), mark()]), None) == []


# What is printed


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tests folder with two rules and one mark."""
    tests = tmp_path / "tests"
    (tests / "requirements").mkdir(parents=True)
    lines = [
        COLUMNS,
        ("R0001", "MUST", "2025-11-25,2026-07-28", "basic", "ids are read", "tested", ""),
        ("R0002", "SHOULD", "ext-tasks", "tasks", "tasks end", "open", "tasks"),
    ]
    text = "".join("\t".join(line) + "\n" for line in lines)
    (tests / "requirements" / "one.tsv").write_text(text, encoding="utf-8")
    (tests / "test_x.py").write_text("@pytest.mark.spec('R0001')\ndef test_a(): ...\n")
    head = ("id", "level", "revisions", "who", "page", "section", "text")
    listed = [
        head,
        ("R0001", "MUST", "2025-11-25,2026-07-28", "both", "basic", "Ids", "Ids MUST."),
        ("R0002", "SHOULD", "ext-tasks", "both", "tasks", "End", "Tasks SHOULD."),
        ("R0003", "MAY", "2026-07-28", "both", "basic", "", "Others MAY."),
    ]
    (tmp_path / "list.tsv").write_text("".join("\t".join(line) + "\n" for line in listed))
    return tests


def test_the_summary_counts_by_revision_and_level(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], small, small.parent / "list.tsv") == 1
    out = capsys.readouterr().out.splitlines()
    assert "".join(out[0].split()) == "testednot-oursdeliberateopenall"
    assert [line.split() for line in out[1:4]] == [
        ["2025-11-25", "MUST", "1", "0", "0", "0", "1"],
        ["2026-07-28", "MUST", "1", "0", "0", "0", "1"],
        ["ext-tasks", "SHOULD", "0", "0", "0", "1", "1"],
    ]
    assert "2 rules, 1 of them named by 1 tests" in out
    assert out[-2:] == [
        "the official list has changed; index the change, then set OFFICIAL_DIGEST",
        "1 problems",
    ]


def test_the_summary_says_when_the_official_list_is_absent(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], small, small.parent / "nowhere.tsv") == 1
    assert "the official list is not here: compared with its digest" in capsys.readouterr().out


@pytest.mark.parametrize("written", ["R0001", "r1"])
def test_one_rule_is_shown_with_its_tests(
    small: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    assert main([written], small, small.parent / "list.tsv") == 0
    assert capsys.readouterr().out.splitlines() == [
        "R0001  MUST  2025-11-25,2026-07-28",
        "  page     basic",
        "  section  Ids",
        "  words    ids are read",
        "  status   tested",
        "  test     tests/test_x.py::test_a:2",
    ]


def test_an_open_rule_is_shown_with_its_reason_and_without_the_list(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["R0002"], small, small.parent / "nowhere.tsv") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2] == "  section  (official list not here)"
    assert out[4:] == ["  status   open: tasks", "  test     none"]


def test_a_may_is_shown_as_not_indexed(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["R0003"], small, small.parent / "list.tsv") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2:] == ["  section  (top of the page)", "  status   not indexed: a MAY"]


def test_an_unknown_rule_fails(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["R9999"], small, small.parent / "list.tsv") == 1
    assert capsys.readouterr().out == "R9999: no such rule in the index\n"


def test_the_work_left_is_listed_by_page(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--missing"], small) == 0
    (small / "test_x.py").unlink()
    assert main(["--missing"], small) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [
        "basic",
        "  R0001 MUST       ids are read  [2025-11-25,2026-07-28]",
        "1 rules called tested that no test names",
    ]


def test_the_digest_is_printed_where_there_is_a_list(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = small.parent / "list.tsv"
    theirs = read_official(listed)
    assert theirs is not None
    assert main(["--digest"], small, listed) == 0
    assert main(["--digest"], small, small.parent / "nowhere.tsv") == 1
    assert capsys.readouterr().out.splitlines() == [
        digest(theirs.values()),
        "the official list is not here",
    ]


def test_a_question_that_cannot_be_read_gets_the_usage(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--all"], small) == 2
    assert capsys.readouterr().out.startswith("usage: scripts/trace")


def test_a_broken_index_fails_with_its_line(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small / "requirements" / "two.tsv").write_text("nothing\n")
    assert main([], small) == 1
    assert capsys.readouterr().out.startswith("two.tsv:1: no column")


def test_the_script_runs_without_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", ROOT / "scripts" / "trace", "R0031"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "page     basic" in done.stdout


def test_rows_are_counted_once_for_each_of_their_revisions() -> None:
    counts = count([row(), row("R0002", level="SHOULD", revisions="best-practices")])
    assert all(counts[date, "MUST"] == {"tested": 1} for date in DATES)
    assert counts["best-practices", "SHOULD"].total() == 1
