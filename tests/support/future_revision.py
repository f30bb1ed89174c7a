"""A sixth revision, made up and published for one run of the tests: `pytest -p future_revision`.

It is one `replace` of the newest. Nothing else in the package is told of it; the tests that run in
every revision then run in this one too, and owe it what they owe the newest.

Rules: loaded as a plugin it publishes; imported by a test it only says what it is.
"""

from types import MappingProxyType

from msgspec.structs import replace

from colonnade.errors import FaultKind
from colonnade.protocol import methods
from colonnade.protocol import revision as revisions
from colonnade.protocol import types as t
from colonnade.protocol.methods import Method, Side
from colonnade.protocol.revision import ALL, JULY_2026, OutputRoot, Revisions


class ReadNotesResult(t.PaginatedResult, kw_only=True):
    """What the new method answers with."""

    notes: list[str]


READ_NOTES = Method(
    name="notes/read",
    senders=methods.CLIENT,
    load_params=lambda: t.PaginatedRequestParams,
    load_result=lambda: ReadNotesResult,
    needs="tools",
    needs_of=Side.SERVER,
)

SIXTH = replace(
    JULY_2026,
    date="2027-05-01",
    methods=MappingProxyType({**JULY_2026.methods, READ_NOTES.name: READ_NOTES}),
    codes=MappingProxyType({**JULY_2026.codes, FaultKind.USER_REJECTED: 1001}),
    output_root=OutputRoot.OBJECT,
)
SIX = Revisions((*ALL, SIXTH))


def pytest_load_initial_conftests() -> None:
    """Before any test is imported: from here on there are six."""
    revisions.ALL = tuple(SIX)
    revisions.EVERY = SIX
    revisions.NEWEST = SIXTH
    revisions.Revisions.of.__func__.__kwdefaults__["among"] = revisions.ALL  # type: ignore[attr-defined]
