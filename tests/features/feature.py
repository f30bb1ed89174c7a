"""One row of the table of features: what a client of each revision gets, and how that is seen.

    TOOLS = Group("Tools")

    @TOOLS.feature("a title", told("in its description"), told("in its annotations"), *3 * [WORKS])
    async def title(revision: Revision) -> Verdict: ...

The function looks at a real conversation of that revision and says what it saw; whether that is
what the row promises is decided elsewhere. So a cell cannot claim what nobody has seen.

Rules: what was promised is not known to the function that looks. One verdict for all revisions,
or one for each, the oldest first.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple

from colonnade.protocol.revision import ALL, Revision
from server.talk import Client, Rejected, words

JSON = dict[str, Any]


class Kind(Enum):
    """What became of a feature."""

    WORKS = "works"
    TOLD = "told"
    REFUSED = "refused"


class Verdict(NamedTuple):
    """What became of a feature for a client of one revision, and how."""

    kind: Kind
    how: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.how}" if self.how else self.kind.value


WORKS = Verdict(Kind.WORKS)


def told(how: str) -> Verdict:
    """The revision has no place for it: the client gets this instead."""
    return Verdict(Kind.TOLD, how)


def refused(*how: int | str) -> Verdict:
    """The client gets an error: its code, or its HTTP status and its code."""
    return Verdict(Kind.REFUSED, " ".join(map(str, how)))


Look = Callable[[Revision], Awaitable[Verdict]]


class Row(NamedTuple):
    """A feature, what is promised of it in each revision, and how to look."""

    group: str
    name: str
    promised: tuple[Verdict, ...]
    look: Look


class Group:
    """The features of one heading."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Row] = []

    def feature(self, name: str, *verdicts: Verdict) -> Callable[[Look], Look]:
        """A row of this group."""
        promised = verdicts * len(ALL) if len(verdicts) == 1 else verdicts
        if len(promised) != len(ALL):
            raise ValueError(f"{name}: {len(promised)} verdicts for {len(ALL)} revisions")

        def decorate(look: Look) -> Look:
            self.rows.append(Row(self.name, name, promised, look))
            return look

        return decorate


# ---------------------------------------------------------------- how verdicts are seen

Asking = Awaitable[JSON]


async def tried(asking: Asking) -> JSON | Rejected:
    """What something is answered with: the result, or the error."""
    try:
        return await asking
    except Rejected as error:
        return error


async def refusal(asking: Asking, mentions: str = "") -> Verdict:
    """The error that something must be answered with, in words that have these."""
    found = await tried(asking)
    assert isinstance(found, Rejected), f"this was not refused: {found}"
    assert mentions in found.message, found
    return refused(found.code)


async def failure(asking: Asking, mentions: str) -> Verdict:
    """A result that is an error which the model reads, in words that have these; or an error."""
    result = await tried(asking)
    if isinstance(result, Rejected):
        assert mentions in result.message, result
        return refused(result.code)
    assert result.get("isError") is True, result
    assert mentions in words(result), result
    return told("isError, in words")


async def tool_of(client: Client, name: str) -> JSON:
    """A tool as it is listed."""
    tools = (await client.ask("tools/list"))["tools"]
    return next(tool for tool in tools if tool["name"] == name)
