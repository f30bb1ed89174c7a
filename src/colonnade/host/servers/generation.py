"""Everything that all servers offer, and whose each thing is, in one generation of a configuration.

A snapshot never changes in which servers it has; what each of them offers is on its shelves. A call
takes one snapshot and uses nothing else.

Rules: a name leads to its server without asking any other one. An address that several servers list
leads nowhere until somebody says which is meant. No server's silence keeps another's list back.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from colonnade.client.client import Client
from colonnade.client.subscriptions import Change
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    LocalProtocolError,
    RemoteError,
)
from colonnade.host.config.settings import Entry, Problem, Settings
from colonnade.host.servers.listings import (
    SILENT,
    HostTool,
    Kind,
    Offer,
    Offers,
    Shelf,
    Steps,
    in_slices,
    told,
)
from colonnade.host.servers.naming import BETWEEN, catalogue_name, is_shown
from colonnade.host.servers.session import Seat, Sitting
from colonnade.host.servers.supervisor import DRAIN_S, Supervised
from colonnade.ports import Turn
from colonnade.protocol import types as t
from colonnade.protocol.revision import OutputRoot
from colonnade.protocol.schema.error_messages import cut
from colonnade.protocol.uritemplate import Template

# Callers whose lists are kept, of one server; who has not looked for longest looks anew.
MAX_CALLERS = 1000

# What a server may tell of, and the lists that it is about.
TOLD: dict[str, tuple[Kind, ...]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}

N = TypeVar("N", bound=t.Noun)


def telling(said: str) -> str:
    """The capability of a server that tells of this."""
    return f"{said}.listChanged"


class Claim(NamedTuple):
    """What is a server's of the names of the catalogue: what is before all of them, and aliases."""

    namespace: str
    aliases: dict[str, str]


# Makes the turn in which a list is asked for: by which method, and for whom.
Asking = Callable[[str, str], Turn]
# Told of lists of a server that are others now.
Changed = Callable[[str, Sequence[Kind]], None]
# Looks after a server, and says when a seat was opened.
Supervise = Callable[[Entry, Callable[[Supervised, Seat], None]], Supervised]


class Hosted:
    """One server of one generation."""

    def __init__(
        self, entry: Entry, claim: Claim, supervise: Supervise, asking: Asking, changed: Changed
    ) -> None:
        self.key: str = entry.key
        self.entry = entry
        self.claim = claim
        self.settings: Settings = replace(entry.settings, aliases=claim.aliases)
        self.supervised: Supervised = supervise(entry, self._opened)
        self.instructions: str | None = None
        self._asking = asking
        self._changed = changed
        # Whether all callers see the same, which takes a start to know, and who looked before.
        self._is_common = True
        self._early: set[str] | None = set()
        self._is_bare = True
        # Lists that it tells of; and whether it is a process, which changes nothing when stopped.
        self._told: frozenset[Kind] = frozenset()
        self._is_process = False
        # By caller; under None what is for all of them.
        self._offers: dict[str | None, Offers] = {}
        self._watches: dict[Client, asyncio.Task[None]] = {}
        self._held = 0
        self._free = asyncio.Event()
        self._free.set()

    # ------------------------------------------------------------ who is with it

    def hold(self) -> None:
        """Somebody is about to speak to it: it stays until they have."""
        self._held += 1
        self._free.clear()

    def release(self) -> None:
        """They have."""
        self._held -= 1
        if not self._held:
            self._free.set()

    def restart(self) -> None:
        """Start it anew for the next call, and for whoever looks, whatever came before."""
        self.supervised.restart()
        for offers in self._offers.values():
            offers.doubt()

    async def leave(self) -> None:
        """Go, when the last who is with it is done, or has had time enough."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._free.wait()
        await self._look_no_more()
        await self.supervised.drain(0.0)

    async def close(self) -> None:
        """End at once."""
        await self._look_no_more()
        await self.supervised.close()

    async def _look_no_more(self) -> None:
        for offers in list(self._offers.values()):
            await offers.close()
        watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        if watches:
            await asyncio.wait(watches)

    # ------------------------------------------------------------ what it offers

    def offers(self, caller: str) -> Offers:
        """What it offers to a caller."""
        if self._early is not None and len(self._early) < 2:  # whether it is one, is all
            self._early.add(caller)
        whose = None if self._is_common else caller
        found = self._offers.get(whose)
        if found is None:
            self._forget_one()
            found = self._offers[whose] = Offers(
                self.key,
                self.settings,
                self._listed,
                self._needs_no_wrapper,
                self._came,
                self._tells_of,
            )
        return found

    def _forget_one(self) -> None:
        if len(self._offers) >= MAX_CALLERS:
            idle = (whose for whose, offers in self._offers.items() if not offers.is_busy)
            self._offers.pop(next(idle, None), None)

    def _needs_no_wrapper(self) -> bool:
        return self._is_bare

    def _tells_of(self, kind: Kind) -> bool:
        return kind in self._told or (self._is_process and not self.supervised.seats)

    def _came(self, kind: Kind) -> None:
        self._changed(self.key, (kind,))

    @property
    def problems(self) -> list[str]:
        """What is the matter with it, for people, each once."""
        every = list(self._offers.values())
        found = [words for one in every for words in one.problems]
        if isinstance(self.failure, SILENT):  # which is one thing, however often it was seen
            found.insert(0, told(self.failure, self.key))
        return list(dict.fromkeys(found))

    @property
    def failure(self) -> ColonnadeError | None:
        """Why a list of it did not come: the last time that it did not answer, if it was that."""
        found = [one for offers in self._offers.values() for one in offers.failures]
        last = max(found, key=lambda one: (isinstance(one[1], SILENT), one[0]), default=None)
        return last[1] if last is not None else None

    def plain_name(self, name: str) -> str | None:
        """The server's own name for one of the catalogue, where no list is needed to tell."""
        own = name.partition("__")[2]
        is_it = catalogue_name(self.claim.namespace, own) == name and is_shown(self.settings, own)
        return own if is_it else None

    async def _listed(
        self, method: str, caller: str, ask: Callable[[Client], Awaitable[Sequence[N]]]
    ) -> Sequence[N]:
        async def look(sitting: Sitting) -> Sequence[N]:
            client = sitting.client
            self._attend(client, sitting.seat.caller)
            revision = client.peer.revision
            self._is_bare = revision.output_root is OutputRoot.ANY
            needed = revision.methods[method].needs
            if revision.handshake and needed is not None and not client.peer.offers(needed):
                return ()
            try:
                return await ask(client)
            except RemoteError as error:
                if error.code != revision.codes[FaultKind.METHOD_NOT_FOUND]:
                    raise
                return ()  # it has none

        return await self.supervised.look(self._asking(method, caller), look)

    # ------------------------------------------------------------ what it tells

    def _opened(self, supervised: Supervised, seat: Seat) -> None:
        """Somebody was let in: what it offers may be another than when they were last there."""
        self.instructions = seat.client.instructions
        self._is_process = seat.child is not None
        whose = self._settle_whose(seat)
        others = (one for one in supervised.seats if one is not seat)
        if not any(whose in (None, one.caller) for one in others):
            self._doubt(whose)
        self._attend(seat.client, seat.caller)

    def _settle_whose(self, seat: Seat) -> str | None:
        """Whose lists those of a conversation are, which its revision tells."""
        common = self.settings.sharing != "caller" or seat.common
        if self._is_common and not common:
            early = self._offers.pop(None, None)
            if early is not None and self._early == {seat.caller}:
                # It was looked at before anybody knew, but by this one alone.
                self._offers[seat.caller] = early
        self._is_common, self._early = common, None
        return None if common else seat.caller

    def _attend(self, client: Client, caller: str | None) -> None:
        """Hear what it tells of its lists, if it does and nobody hears it yet."""
        offered = [kinds for said, kinds in TOLD.items() if client.peer.offers(telling(said))]
        self._told = frozenset(kind for kinds in offered for kind in kinds)
        if client not in self._watches and offered:
            watch = asyncio.get_running_loop().create_task(self._watch(client, caller))
            self._watches[client] = watch
            watch.add_done_callback(lambda _: self._watches.pop(client, None))

    async def _watch(self, client: Client, caller: str | None) -> None:
        """Hear of changed lists for as long as the conversation lasts."""
        tools, prompts, resources = (client.peer.offers(telling(said)) for said in TOLD)
        whose = None if self._is_common else caller
        with contextlib.suppress(ColonnadeError):  # it has ended, or does not tell after all
            async with client.listen(
                tools=tools, prompts=prompts, resource_list=resources
            ) as changes:
                async for change in changes:
                    self._heard(change, whose)
        if any(seat.client is client for seat in self.supervised.seats):  # it goes on, unheard
            self._doubt(whose)

    def _doubt(self, whose: str | None) -> None:
        if whose in self._offers:
            self._offers[whose].doubt()

    def _heard(self, change: Change, whose: str | None) -> None:
        kinds = TOLD.get(change.kind, ())
        for kind in kinds if whose in self._offers else ():
            self._offers[whose].shelves[kind].expire()
        if kinds:
            self._changed(self.key, kinds)


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
            words = f"{names} all have the resource {cut(uri)!r}"
            raise Fault(FaultKind.INVALID_PARAMS, words, hint="pass server= to choose one")
        silent = [one.key for one, shelf in listed.items() if shelf.problem is not None]
        more = f"; {_told(silent)} could not be asked" if silent else ""
        if untried:
            more += f"; {_told(untried)} has more templates than are tried"
        words = f"no server lists the resource {cut(uri)!r}{more}"
        hint = "pass server= to read it from one that may have it"
        raise Fault(FaultKind.RESOURCE_MISSING, words, {"uri": uri}, hint=hint)

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
