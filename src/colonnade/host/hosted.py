"""One server under the roof: whoever looks after it, what it offers to whom, and who is with it.

Rules: what a server offers never depends on another server. Where each caller has a conversation of
their own, each has lists of their own: what one of them did may be in them. A server that has left
goes when the last who was with it is done.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from colonnade.client.client import Client
from colonnade.client.listening import Change
from colonnade.errors import ColonnadeError, FaultKind, RemoteError
from colonnade.host.naming import catalogue_name, is_shown
from colonnade.host.offers import SILENT, Offers
from colonnade.host.seats import Seat, Sitting
from colonnade.host.settings import Entry, Settings
from colonnade.host.shelves import Kind, told
from colonnade.host.supervisor import DRAIN_S, Supervised
from colonnade.ports import Turn
from colonnade.protocol import types as t
from colonnade.protocol.revision import OutputRoot

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
