"""Run a test in every revision that has the rules it names: `parametrize_revision` for conftest.

Rules: the index decides, never a list of dates in a test. A test asks for the argument
`revision`, directly or through a fixture, and gets one run for each revision of its ids.
"""

from collections.abc import Iterable, Iterator
from functools import cache

import pytest

from colonnade.protocol import revision as revisions
from requirements.index import DATES, Row, read_index


@cache
def rows_by_id() -> dict[str, Row]:
    return {row.id: row for row in read_index()}


def revisions_of(ids: Iterable[str]) -> tuple[str, ...]:
    """The dates that have at least one of these rules, oldest first.

    The union: each id's own revisions are all run. A test whose ids differ in their revisions
    must hold in all of them, or be two tests.
    """
    rows = rows_by_id()
    wanted: set[str] = set()
    for id_ in ids:
        if id_ not in rows:
            raise ValueError(f"{id_} is not in tests/requirements/*.tsv; see scripts/trace {id_}")
        wanted.update(rows[id_].dates)
    return tuple(date for date in DATES if date in wanted)


def ids_of(definition: pytest.Item) -> Iterator[str]:
    """The ids that a test names: on itself, its class, its module, and on its parameter sets."""
    for mark in definition.iter_markers("spec"):
        yield from mark.args
    for mark in definition.iter_markers("parametrize"):
        for values in mark.args[1] if len(mark.args) > 1 else mark.kwargs.get("argvalues", ()):
            for inner in getattr(values, "marks", ()):
                if inner.name == "spec":
                    yield from inner.args


def _names_revision(mark: pytest.Mark) -> bool:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", "")
    return "revision" in (
        [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    )


def parametrize_revision(metafunc: pytest.Metafunc) -> None:
    """Call this from `pytest_generate_tests`: one run for each revision of the test's ids.

    A test without ids runs in all revisions. A revision that the index does not know yet owes
    what the newest one there owes. A test that parametrises `revision` itself is left alone;
    `tests/test_requirements.py` then checks that it ran in enough of them.
    """
    if "revision" not in metafunc.fixturenames:
        return
    if any(_names_revision(mark) for mark in metafunc.definition.iter_markers("parametrize")):
        return
    ids = tuple(ids_of(metafunc.definition))
    dates = revisions_of(ids) if ids else DATES
    chosen = [
        revision
        for revision in revisions.ALL
        if (revision.date if revision.date in DATES else DATES[-1]) in dates
    ]
    metafunc.parametrize("revision", chosen, ids=[revision.date for revision in chosen])
