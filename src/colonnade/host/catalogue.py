"""Everything that all servers offer, and whose each thing is, in one generation of a configuration.

A snapshot never changes in which servers it has; what each of them offers is on its shelves. A call
takes one snapshot and uses nothing else.

Rules: a name leads to its server without asking any other one. An address that several servers list
leads nowhere until somebody says which is meant. No server's silence keeps another's list back.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal

from colonnade.errors import ChannelError, ColonnadeError, Fault, FaultKind, LocalProtocolError
from colonnade.host.hosted import Hosted
from colonnade.host.naming import BETWEEN, catalogue_name
from colonnade.host.offered import HostTool
from colonnade.host.offers import Offer
from colonnade.host.settings import Problem
from colonnade.host.shelves import Kind, Shelf
from colonnade.host.slices import Steps, in_slices
from colonnade.protocol import types as t
from colonnade.protocol.problems import cut
from colonnade.protocol.uritemplate import Template

# Names that are offered to whoever took a wrong one.
MAX_NEAR = 2
# Servers in one sentence.
MAX_TOLD = 20
# Of those a server may list any number; so many are compared with a wrong one.
MAX_COMPARED = 2000
# Of the templates of one server, those that may fit an address by their beginning: so many
# characters of them are tried. A usual one has 60, of which a thousand are tried; the costliest
# take a millisecond each, and so many a tenth of a second.
MAX_TRIED = 128 * 1024
# What each counts beside its length, so that there are not many short ones.
TEMPLATE_COST = 64

Nameable = Literal["tools", "prompts"]
ONE: dict[Nameable, str] = {"tools": "tool", "prompts": "prompt"}


class Snapshot:
    """The servers of one generation, in the order of their configuration.

    `aliases` lead to a server and its own name for a thing; `problems` are those of the
    configuration.
    """

    def __init__(
        self,
        generation: int,
        hosted: Mapping[str, Hosted],
        aliases: Mapping[str, tuple[str, str]],
        problems: Iterable[Problem] = (),
    ) -> None:
        self.generation = generation
        self.hosted = hosted
        self._aliases = aliases
        self._configured = tuple(problems)
        self._first = {
            catalogue_name(one.claim.namespace, "x").partition(BETWEEN)[0]: one
            for one in hosted.values()
        }

    # ------------------------------------------------------------ whose is it?

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the names of each server begin with."""
        return tuple(self._first)

    def holder(self, kind: Nameable, name: str, caller: str) -> Hosted:
        """The server that a name is of, whether it has such a thing or not. Raises `Fault`."""
        alias = self._aliases.get(name)
        found = (
            self.hosted.get(alias[0])
            if alias is not None
            else self._first.get(name.partition(BETWEEN)[0])
        )
        if found is None:
            near = _near(name, [*self._known(kind, caller), *self._aliases])
            more = near or f"; names begin with their server and '{BETWEEN}': {_some(self._first)}"
            words = f"there is no {ONE[kind]} {cut(name)!r}{more}"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        return found

    def tool(self, name: str, caller: str) -> HostTool | None:
        """The tool of this name or alias, where it was listed for this caller."""
        try:
            offer = self.holder("tools", name, caller).offers(caller).tools.content
        except Fault:
            return None
        named = offer.find(name) if offer is not None else None
        return offer.hosted[named.name] if offer is not None and named is not None else None

    def known(self, kind: Nameable, name: str, holder: Hosted, caller: str) -> str | None:
        """What its server calls it, where that was listed."""
        offer = holder.offers(caller).shelves[kind].content
        named = offer.find(name) if offer is not None else None
        return named.own if named is not None else None

    async def asked_for(self, kind: Nameable, name: str, holder: Hosted, caller: str) -> str:
        """The same from a list that is asked for now. Raises `Fault` where there is no such thing,
        `ColonnadeError` where the server does not say what there is."""
        try:
            offer = await holder.offers(caller).shelves[kind].come(caller)
        except ChannelError:
            raise
        except ColonnadeError:  # its list is no good; what is in it may be
            own = holder.plain_name(name)
            if own is None:
                raise
            return own
        named = offer.find(name)
        if named is None:
            near = _near_own(name, offer) or f"; list the {kind} to see their names"
            words = f"server {holder.key!r} has no {ONE[kind]} {cut(name)!r}{near}"
            raise Fault(FaultKind.INVALID_PARAMS, words)
        return named.own

    def server(self, key: str) -> Hosted:
        """The server of this key. Raises `Fault`."""
        found = self.hosted.get(key)
        if found is None:
            near = _near(key, self.hosted) or f"; {_some(self.hosted)}"
            raise Fault(FaultKind.INVALID_PARAMS, f"there is no server {cut(key)!r}{near}")
        return found

    async def reader(self, uri: str, caller: str, wait_s: float) -> Hosted:
        """The server that has the resource at an address, or a template for it. Raises `Fault`
        where there is none, or more than one."""
        untried: list[str] = []
        listed = await self.gather("resources", caller, wait_s)
        found = [one for one, shelf in listed.items() if _lists(shelf.content, uri)]
        if not found:
            templates = await self.gather("templates", caller, wait_s)
            fits = {
                one: await in_slices(_fits(shelf.content, uri)) for one, shelf in templates.items()
            }
            found = [one for one, fit in fits.items() if fit]
            untried = [one.key for one, fit in fits.items() if fit is None]
        if len(found) == 1:
            return found[0]
        if found:
            names = _told([one.key for one in found])
            words = f"{names} all have the resource {cut(uri)!r}; say which is meant: server="
            raise Fault(FaultKind.INVALID_PARAMS, words)
        silent = [one.key for one, shelf in listed.items() if shelf.problem is not None]
        more = f"; {_told(silent)} could not be asked" if silent else ""
        if untried:
            more += f"; {_told(untried)} has more templates than are tried"
        words = f"no server lists the resource {cut(uri)!r}{more}; server= asks one that may"
        raise Fault(FaultKind.RESOURCE_MISSING, words, {"uri": uri})

    # ------------------------------------------------------------ all of it

    async def gather(
        self, kind: Kind, caller: str, wait_s: float, *, fresh: bool = False
    ) -> dict[Hosted, Shelf[Offer[Any, Any]]]:
        """One list of every server, asked of all of them at once; some may not have come."""
        seen = await self._seen(kind, caller, wait_s, fresh=fresh)
        if any(one.offers(caller).shelves[kind] is not shelf for one, shelf in seen.items()):
            # A server was started by this, and has other lists for each caller.
            seen = await self._seen(kind, caller, wait_s)
        return seen

    async def _seen(
        self, kind: Kind, caller: str, wait_s: float, *, fresh: bool = False
    ) -> dict[Hosted, Shelf[Offer[Any, Any]]]:
        shelves = {one: one.offers(caller).shelves[kind] for one in self.hosted.values()}
        missing = [shelf for shelf in shelves.values() if fresh or not shelf.is_fresh]
        if len(missing) == 1:
            await missing[0].seen(caller, wait_s, fresh=fresh)
        elif missing:
            await asyncio.gather(*(one.seen(caller, wait_s, fresh=fresh) for one in missing))
        return shelves

    def lists(self, kind: Kind, caller: str) -> list[Offer[Any, Any]]:
        """One list of every server, as far as it was read before; no server is asked."""
        found = (one.offers(caller).shelves[kind].content for one in self.hosted.values())
        return [offer for offer in found if offer is not None]

    @property
    def problems(self) -> list[Problem]:
        """What is the matter, of the configuration and of each server."""
        told = {problem.words for problem in self._configured}
        found = list(self._configured)
        for one in self.hosted.values():
            news = [words for words in one.problems if words not in told]
            if news:
                found.append(Problem(one.key, "; ".join(news), one.entry.place))
        return found

    def _known(self, kind: Nameable, caller: str) -> list[str]:
        return [name for offer in self.lists(kind, caller) for name in offer.nouns]


def _near(wanted: str, names: Iterable[str]) -> str:
    near = get_close_matches(cut(wanted), list(names)[:MAX_COMPARED], n=MAX_NEAR)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _near_own(wanted: str, offer: Offer[Any, Any]) -> str:
    """The same in one server, where all names begin alike."""
    rests = {name.partition(BETWEEN)[2]: name for name in offer.nouns}
    near = get_close_matches(cut(wanted.partition(BETWEEN)[2]), list(rests)[:MAX_COMPARED], n=1)
    return f"; did you mean {rests[near[0]]!r}?" if near else ""


def _told(keys: Collection[str]) -> str:
    """Some keys, for people, and for models who pay for every word."""
    told = ", ".join(map(repr, islice(keys, MAX_TOLD)))
    return told if len(keys) <= MAX_TOLD else f"{told} and {len(keys) - MAX_TOLD} others"


def _some(keys: Collection[str]) -> str:
    return f"there is {_told(keys) or 'no server at all'}"


def _lists(offer: Offer[Any, Any] | None, uri: str) -> bool:
    return offer is not None and uri in offer.nouns


def _fits(offer: Offer[Any, t.ResourceTemplate] | None, uri: str) -> Steps[bool | None]:
    """Whether an address is one of a template, or is a template that is listed; None where there
    are too many to tell."""
    if offer is None or uri in offer.nouns:
        return offer is not None
    left = MAX_TRIED
    for text in offer.nouns:
        yield
        if not _may_fit(text, uri):
            continue
        left -= len(text) + TEMPLATE_COST
        if left < 0:
            return None
        with suppress(LocalProtocolError):  # what is no template fits nothing
            if Template(text).match(uri) is not None:
                return True
    return False


def _may_fit(template: str, uri: str) -> bool:
    """Whether both begin alike, as far as the one is literal and the other is not encoded."""
    literal = template.partition("{")[0].partition("%")[0]
    if uri.startswith(literal):
        return True
    plain, encoded, _ = uri.partition("%")
    return bool(encoded) and literal.startswith(plain)
