"""The audit of the marks: its changes still fit the package, and its tool tells red from green.

Rules: runs no other test; `scripts/mutate requirements` does.
"""

from pathlib import Path

import pytest

from requirements.audit import (
    COUNT,
    DRAWS,
    ERROR,
    GREEN,
    PACKAGE,
    RED,
    BadMutation,
    Edit,
    Mutation,
    Result,
    draw,
    read_drawn,
    read_mutations,
    share_of,
    table_of,
    verdict_of,
)
from requirements.index import Row, read_index

TABLE = '[[mutation]]\nid = "R0001"\nfile = "f.py"\nold = "a"\nnew = "b"\n'


def row(id_: str, level: str = "MUST", status: str = "tested") -> Row:
    return Row(id_, level, "2024-11-05", "basic", "says it shortly", status, "why", "made-up.tsv:2")


def mutation(id_: str = "R0001", mended: str = "") -> Mutation:
    return Mutation(
        id_, (Edit("f.py", "a", "b"),), "b for a", GREEN if mended else RED, mended, "here"
    )


def test_every_change_fits_its_file_once_and_names_a_tested_rule() -> None:
    rows = {row.id: row for row in read_index()}
    for mutation in read_mutations():
        assert mutation.id in rows, mutation.source
        assert rows[mutation.id].status == "tested", mutation.source
        for edit in mutation.edits:
            assert edit.problem(PACKAGE) == "", mutation.source
            assert edit.old != edit.new, mutation.source


def test_the_recorded_draw_is_of_the_index() -> None:
    drawn = [id_ for path in DRAWS for id_ in read_drawn(path)]
    assert len(set(drawn)) == len(drawn) == COUNT * len(DRAWS)
    assert set(drawn) <= {row.id for row in read_index()}


def test_a_draw_is_the_same_for_the_same_rows_and_seed() -> None:
    rows = [row(f"R{number:04}") for number in range(50)]
    rows += [row("R0900", level="SHOULD"), row("R0901", status="not-ours")]
    assert draw(rows, "seed", 20) == draw(reversed(rows), "seed", 20) != draw(rows, "other", 20)
    assert not {"R0900", "R0901"} & set(draw(rows, "seed", 50))


def test_a_change_is_read_with_what_it_needs_beside(tmp_path: Path) -> None:
    more = 'also = [{ file = "g.py", old = "c", new = "d" }]\nfirst = "green"\nmended = "a test"\n'
    (tmp_path / "one.toml").write_text(TABLE + more, "utf-8")
    (read,) = read_mutations(tmp_path)
    assert read.edits == (Edit("f.py", "a", "b"), Edit("g.py", "c", "d"))
    assert (read.first, read.mended) == (GREEN, "a test")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[[mutation]]\nid = "R0001"\n', "one.toml: mutation 1: needs file, old, new, first"),
        (TABLE + 'first = "red"\nmaybe = "x"\n', "unknown field or not a string: maybe"),
        (TABLE + 'first = "blue"\n', 'first is "red", or "green" with'),
        (TABLE + 'first = "green"\n', 'first is "red", or "green" with'),
        (TABLE + 'first = "red"\nalso = [{ file = "f.py" }]\n', "also is a list of"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "one.toml").write_text(text, "utf-8")
    with pytest.raises(BadMutation, match=complaint):
        read_mutations(tmp_path)


def test_a_change_that_does_not_fit_exactly_once_says_so(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("a = 1\na = 2\n", "utf-8")
    assert Edit("f.py", "a = 1", "b").problem(tmp_path) == ""
    assert Edit("f.py", "a = ", "b").problem(tmp_path) == "f.py has 2 times, not once: 'a = '"
    assert Edit("g.py", "a", "b").problem(tmp_path) == "g.py does not exist"


@pytest.mark.parametrize(
    ("code", "stdout", "verdict"),
    [
        (1, "FAILED tests/test_x.py::test_a\n1 failed", RED),
        (0, "1 passed", GREEN),
        (1, "ERROR collecting tests/test_x.py\n1 error", ERROR),
        (2, "Interrupted", ERROR),
        (4, "", ERROR),
        (5, "no tests ran", ERROR),
    ],
)
def test_only_a_failed_test_is_red(code: int, stdout: str, verdict: str) -> None:
    assert verdict_of(code, stdout, "")[0] == verdict


def test_a_rule_counts_as_red_when_each_of_its_changes_is() -> None:
    results = [
        Result(mutation("R0001"), RED, ""),
        Result(mutation("R0002"), RED, ""),
        Result(mutation("R0002"), GREEN, ""),
    ]
    assert share_of(results) == "1 of 2 red"


def test_the_table_has_every_drawn_row_and_those_beside_the_draw() -> None:
    rows = {one.id: one for one in (row("R0001"), row("R0002", status="not-ours"), row("R0003"))}
    table = table_of(
        [mutation("R0003", "a new test"), mutation("R0001")], [["R0001", "R0002"]], rows
    )
    assert table.splitlines()[2:5] == [
        "| R0001 | says it shortly | b for a | red |  |",
        "| R0002 | says it shortly | now not-ours: why | | |",
        "| R0003 | says it shortly | b for a | green | a new test |",
    ]
    assert table.endswith("Draw 1: at first 1 of 1 drawn rows were red for each of their changes.")
