"""What `scripts/trace` prints: counts, one rule, or the work that is left.

Rules: standard library only; prints and returns an exit code, decides nothing itself.
"""

import re
from collections import Counter
from itertools import groupby
from pathlib import Path

from requirements.index import (
    DATES,
    EXTENSIONS,
    GROUPS,
    LEVELS,
    OFFICIAL,
    STATUSES,
    BadIndex,
    Official,
    Row,
    digest,
    read_extensions,
    read_index,
    read_official,
)
from requirements.trace import Marks, count, missing, problems_of, read_marks

USAGE = "usage: scripts/trace [R0001 ... | T01 ... | --missing | --digest]"


def main(arguments: list[str], tests: Path, official_list: Path = OFFICIAL) -> int:
    """0 when all is well, 1 when something is wrong, 2 for a question that cannot be read."""
    try:
        rows = read_index(tests / "requirements")
        official = read_official(official_list)
    except BadIndex as error:
        print(error)
        return 1
    marks = read_marks(tests)
    match arguments:
        case []:
            extensions = read_extensions(official_list.with_name(EXTENSIONS.name))
            return _summary(rows, marks, official, extensions)
        case ["--missing"]:
            return _missing(rows, marks)
        case ["--digest"]:
            return _digest(official)
        case [*ids] if all(re.fullmatch("[A-Za-z][0-9]+", id_) for id_ in ids):
            shown = [_rule(_padded(id_), rows, marks, official) for id_ in ids]
            return 0 if all(shown) else 1
        case _:
            print(USAGE)
            return 2


def _padded(id_: str) -> str:
    """An id with all its digits: those of the official list have four, those of extensions two."""
    list_ = id_[0].upper()
    return f"{list_}{int(id_[1:]):0{4 if list_ == 'R' else 2}}"


def _summary(
    rows: list[Row],
    marks: Marks,
    official: dict[str, Official] | None,
    extensions: dict[str, str] | None,
) -> int:
    counts = count(rows)
    print(f"{'':15}{'':11}" + "".join(f"{status:>11}" for status in STATUSES) + f"{'all':>7}")
    for group in (*DATES, *GROUPS):
        for level in LEVELS:
            if counts[group, level]:
                print(_line(group, level, counts[group, level]))
    for level in LEVELS:
        print(_line("each once", level, Counter(r.status for r in rows if r.level == level)))
    tests = {(mark.file, mark.test) for mark in marks.found}
    print(f"\n{len(rows)} rules, {len(marks.by_id())} of them named by {len(tests)} tests")
    if official is None:
        print("the official list is not here: compared with its digest only, not row by row")
    problems = problems_of(rows, marks, official, extensions)
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "no problems")
    return 1 if problems else 0


def _line(group: str, level: str, counts: Counter[str]) -> str:
    cells = "".join(f"{counts[status]:>11}" for status in STATUSES)
    return f"{group:15}{level:11}{cells}{counts.total():>7}"


def _missing(rows: list[Row], marks: Marks) -> int:
    left = missing(rows, marks)
    for page, found in groupby(sorted(left, key=lambda row: (row.page, row.id)), lambda r: r.page):
        print(page)
        for row in found:
            print(f"  {row.id} {row.level:10} {row.words}  [{row.revisions}]")
    print(f"{len(left)} rules called tested that no test names")
    return 1 if left else 0


def _digest(official: dict[str, Official] | None) -> int:
    print("the official list is not here" if official is None else digest(official.values()))
    return 1 if official is None else 0


def _rule(id_: str, rows: list[Row], marks: Marks, official: dict[str, Official] | None) -> bool:
    """Print one rule; False if there is none of this id."""
    row = next((row for row in rows if row.id == id_), None)
    theirs = official.get(id_) if official else None
    if row is None and theirs is None:
        print(
            f"{id_}: no such rule in the index" + ("" if official else " (no official list here)")
        )
        return False
    source = row or theirs
    assert source is not None
    print(f"{id_}  {source.level}  {source.revisions}")
    print(f"  page     {source.page}")
    print(
        f"  section  {(theirs.section or '(top of the page)') if theirs else '(official list not here)'}"
    )
    if row is None:
        print(f"  status   not indexed: a {source.level}")
        return True
    print(f"  words    {row.words}")
    print(f"  status   {row.status}" + (f": {row.reason}" if row.reason else ""))
    found = marks.by_id().get(id_, [])
    for mark in found:
        print(f"  test     {mark}")
    if not found:
        print("  test     none")
    return True
