"""One conversation with a server that may be broken, and what it shows: does it run, which revision
is spoken, what it lists, whether models and clients can use that.

Rules: nothing of a server is called; its lists are read. Nobody is asked anything, and no browser
is opened. Every wait ends, and the server is left before anything is said about it.
"""

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from colonnade.cli.commands.inspect import Finding, lint, supported
from colonnade.cli.connections import Offer, One
from colonnade.cli.doctor.check import Check, failed, fine, warned
from colonnade.cli.doctor.command import MAX_LINES, PROCESS, ended_check, littered_check, meaning
from colonnade.cli.errors import PROTOCOL, UNREACHABLE, code_of
from colonnade.cli.session import sentence
from colonnade.client.connect import Surroundings, accepted, made, way_to
from colonnade.client.input_callbacks import Answers
from colonnade.client.transports import ChildWay, Way
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    LocalProtocolError,
    Output,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.ports import Carry
from colonnade.protocol.schema.validate import Validator
from colonnade.text import one_line
from colonnade.transport.process.child import Child

REVISION, LISTS, SCHEMA = "revision", "lists", "schema"
SPOKEN = (REVISION, LISTS, SCHEMA)
# All pages of four lists, each of which has the time of one answer.
LISTS_FACTOR: Final = 4
# Findings that are named in the table; `inspect` shows all of them.
MAX_FOUND: Final = 5
# Of an error, in a table.
MAX_WORDS: Final = 300
# What `inspect` finds that a provider or a client refuses; the rest is advice.
REFUSED = frozenset(
    {"name", "root", "duplicate", "name-clash", "parameter-name", "count", "ref", "items"}
)


class Watched:
    """A way to a child that remembers which children were started on it."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self.children: list[Child] = []

    @property
    def name(self) -> str:
        """As the way has it."""
        return self._way.name

    @property
    def key(self) -> Hashable | None:
        """Nobody remembers what was broken."""
        return None

    @property
    def repeats(self) -> bool:
        """As the way has it."""
        return self._way.repeats

    @property
    def restarts(self) -> bool:
        """As the way has it."""
        return self._way.restarts

    @property
    def mirrors(self) -> bool:
        """As the way has it."""
        return self._way.mirrors

    @property
    def greets(self) -> bool:
        """As the way has it."""
        return self._way.greets

    @property
    def older(self) -> Way | None:
        """As the way has it."""
        return self._way.older

    async def reach(self, timeout_s: float) -> Carry:
        """What carries a new conversation."""
        carry = await self._way.reach(timeout_s)
        child = getattr(carry, "__self__", None)
        if isinstance(child, Child):
            self.children.append(child)
        return carry

    async def close(self) -> None:
        """Nobody goes this way any more."""
        await self._way.close()


@dataclass
class Talk:
    """What came of a conversation."""

    # Why it was not opened, and why its lists were not read.
    error: ColonnadeError | None = None
    listing: ColonnadeError | None = None
    revision: str = ""
    handshake: bool = False
    spoken: list[str] | None = None
    server: str = ""
    found: Offer | None = None
    children: list[Child] = field(default_factory=list[Child])
    # How many lines of its standard output were no messages, and the first that was kept.
    rubbish: int = 0

    @property
    def refused(self) -> AuthError | None:
        """Who may not come in, at the door or at the first list."""
        for error in (self.error, self.listing):
            if isinstance(error, AuthError):
                return error
        return None


async def converse(
    target: Any, around: Mapping[str, Any], revision: str | None, timeout_s: float
) -> Talk:
    """Speak to a server as a client does, as far as it goes. Raises `LocalProtocolError` for a
    target that is none."""
    way = way_to(target, Surroundings(**around))
    watched = Watched(way) if isinstance(way, ChildWay) else None
    client = made(watched or way, Answers(), accepts=accepted(revision), timeout_s=timeout_s)
    talk = Talk(children=watched.children if watched is not None else [])
    try:
        try:
            await client.open()
        except ColonnadeError as error:
            talk.error = error
            return talk
        talk.revision, talk.handshake = client.revision, client.peer.revision.handshake
        if client.server is not None:
            talk.server = f"{client.server.name} {client.server.version}"
        try:
            async with asyncio.timeout(LISTS_FACTOR * timeout_s):
                talk.spoken = await supported(client)
                talk.found = await One(client).offer()
        except ColonnadeError as error:
            talk.listing = error
        except TimeoutError:
            talk.listing = TimedOut(f"its lists took longer than {LISTS_FACTOR * timeout_s:g} s")
        return talk
    finally:
        talk.rubbish = sum(child.rubbish for child in talk.children)
        await client.close()


# ---------------------------------------------------------------- a process


def process_check(talk: Talk, mend: str) -> Check:
    """Whether a server that was started runs, and keeps its standard output clean."""
    error = talk.error
    child = talk.children[-1] if talk.children else None
    if error is None:
        if talk.rubbish:
            return littered_check(talk.rubbish, _printed(talk), works=True)
        return fine(PROCESS, "it runs, and prints nothing else to standard output")
    if child is None or (isinstance(error, CannotConnect) and child.failure is None):
        return failed(PROCESS, UNREACHABLE, one_line(error.summary), one_line(error.hint) or mend)
    if talk.rubbish and isinstance(error, ChannelError) and not _has_failed(child):
        return littered_check(talk.rubbish, _printed(talk), works=False)
    if isinstance(error, CannotConnect | ConnectionLost) and child.failure is not None:
        return ended_check(child.failure, _lines(error.output), mend)
    return fine(PROCESS, "it runs")


def _has_failed(child: Child) -> bool:
    """Whether it ended with an error, which says more than what it printed before."""
    return child.exit_status not in (None, 0)


def _lines(output: Output) -> list[str]:
    return [one_line(line) for line in output.stderr or output.stdout]


def _printed(talk: Talk) -> str:
    return next((line for child in talk.children for line in child.printed), "")


# ---------------------------------------------------------------- what is spoken


def revision_check(talk: Talk, wanted: str) -> Check:
    """Which revision is spoken, and which others could be."""
    error = talk.error
    if error is not None:
        lines = _lines(talk.children[-1].output) if talk.children else []
        return _not_spoken(error, wanted, lines[-MAX_LINES:])
    who = f"{one_line(talk.server)} speaks" if talk.server else "it speaks"
    if talk.spoken is not None:
        others = [one_line(date) for date in talk.spoken if date != talk.revision]
        more = f", and {', '.join(others)}" if others else ", and names no other"
        return fine(REVISION, f"{who} {talk.revision}{more}")
    newer = "as it was asked to" if wanted else "and nothing newer"
    return fine(REVISION, f"{who} {talk.revision}, after a handshake, {newer}")


def _not_spoken(error: ColonnadeError, wanted: str, lines: list[str]) -> Check:
    words = one_line(error.sentence)[:MAX_WORDS]
    if isinstance(error, TimedOut):
        mend = "is it an MCP server? --timeout waits longer, for one that is slow to start"
        return failed(REVISION, UNREACHABLE, words, meaning(lines) or mend, lines)
    if isinstance(error, ChannelError):
        return failed(REVISION, UNREACHABLE, words, "see what its log says", lines)
    if wanted:
        mend = f"leave out --as {wanted}, to see what it speaks"
        return failed(REVISION, PROTOCOL, words, mend)
    mend = "its author mends it; --as REVISION shows whether it speaks an older one"
    return failed(REVISION, PROTOCOL, words, mend)


def lists_check(talk: Talk) -> Check:
    """Whether all that it offers can be listed."""
    if talk.listing is not None or talk.found is None:
        error = talk.listing or RemoteProtocolError("it gave no lists")
        told = error.sentence if isinstance(error, ChannelError) else sentence(error)
        words = one_line(told)[:MAX_WORDS]
        return failed(LISTS, code_of(error), words, "its author mends it; see what its log says")
    found = talk.found
    counts = [
        (len(found.tools), "tool"),
        (len(found.prompts), "prompt"),
        (len(found.resources), "resource"),
        (len(found.templates), "template"),
    ]
    named = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count]
    if not named:
        return warned(LISTS, "it offers nothing", "see whether it was given all that it needs")
    return fine(LISTS, ", ".join(named))


def schema_check(found: Offer, more: str) -> Check:
    """Whether clients and models can use what is listed. `more` is what shows all of it."""
    broken = [
        f"{one_line(tool.name)}: {one_line(words)[:MAX_WORDS]}"
        for tool in found.tools
        if (words := _unusable(tool.input_schema))
    ]
    if broken:
        words = f"{_tools(len(broken))} an input schema that no client can use"
        return failed(SCHEMA, PROTOCOL, words, "its author mends the schema", broken[:MAX_FOUND])
    findings = [one for one in lint(*found) if one.rule in REFUSED and one.level == "warning"]
    if findings:
        words = f"{len(findings)} of what it lists {_is(findings)} refused by some model or client"
        return warned(SCHEMA, words, more, [_told(one) for one in findings[:MAX_FOUND]])
    return fine(SCHEMA, "names and schemas fit every client and model that is known here")


def _unusable(schema: Mapping[str, Any]) -> str:
    try:
        Validator(schema).compile()
    except (Fault, LocalProtocolError) as error:
        return str(error)
    return ""


def _tools(count: int) -> str:
    return "1 tool has" if count == 1 else f"{count} tools have"


def _is(findings: Sequence[Finding]) -> str:
    return "is" if len(findings) == 1 else "are"


def _told(one: Finding) -> str:
    return f"{one_line(one.where)}: {one.message}"
