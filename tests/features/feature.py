"""One row of the feature table: what a client of each revision receives, and how that is observed.

    TOOLS = Group("Tools")

    @TOOLS.feature("title", fallback("in its description"), fallback("in its annotations"), *3 * [WORKS])
    async def title(revision: Revision) -> Verdict: ...

The function runs a real conversation of that revision and returns what it observed; the comparison
with the expected verdict is made elsewhere, so that a cell cannot claim what was not observed.

Rules: the observing function does not know the expected verdict. One verdict for all revisions, or
one for each, the oldest first.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, NamedTuple

from colonnade.protocol.revision import ALL, Revision
from server.raw_client import Client, Rejected, text_content

JSON = dict[str, Any]


class Kind(Enum):
    """The kinds of verdicts."""

    WORKS = "works"
    FALLBACK = "fallback"
    REFUSED = "error"


class Verdict(NamedTuple):
    """What a client of one revision receives of a feature."""

    kind: Kind
    how: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.how}" if self.how else self.kind.value


WORKS = Verdict(Kind.WORKS)


def fallback(how: str) -> Verdict:
    """The revision does not have the feature: the client receives this instead."""
    return Verdict(Kind.FALLBACK, how)


def refused(*how: int | str) -> Verdict:
    """The client receives an error: its code, or its HTTP status and its code."""
    return Verdict(Kind.REFUSED, " ".join(map(str, how)))


Look = Callable[[Revision], Awaitable[Verdict]]


class Row(NamedTuple):
    """A feature, its expected verdict in each revision, and the function that observes it."""

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


# ---------------------------------------------------------------- how verdicts are observed

Asking = Awaitable[JSON]


async def tried(asking: Asking) -> JSON | Rejected:
    """The result of a request, or its error."""
    try:
        return await asking
    except Rejected as error:
        return error


async def refusal(asking: Asking, mentions: str = "") -> Verdict:
    """The expected error of a request, whose message contains `mentions`."""
    found = await tried(asking)
    assert isinstance(found, Rejected), f"expected an error: {found}"
    assert mentions in found.message, found
    return refused(found.code)


async def failure(asking: Asking, mentions: str) -> Verdict:
    """An `isError` result, or an error, whose message contains `mentions`."""
    result = await tried(asking)
    if isinstance(result, Rejected):
        assert mentions in result.message, result
        return refused(result.code)
    assert result.get("isError") is True, result
    assert mentions in text_content(result), result
    return fallback("`isError` result")


async def tool_of(client: Client, name: str) -> JSON:
    """A tool as it is listed."""
    tools = (await client.ask("tools/list"))["tools"]
    return next(tool for tool in tools if tool["name"] == name)
