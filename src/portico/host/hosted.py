"""One server under the roof: whoever looks after it, what it offers, and who is with it now.

Rules: what a server offers never depends on another server. What a configuration hides cannot be
called either. A server that has left goes when the last who was with it is done.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from portico.client.client import Client
from portico.client.listening import Change
from portico.client.tools import Tools
from portico.errors import FaultKind, PorticoError, RemoteError
from portico.host.naming import Named, Names, catalogue_name, is_shown
from portico.host.offered import HostPrompt, HostResource, HostResourceTemplate, HostTool
from portico.host.seats import Seat, Sitting
from portico.host.settings import Entry, Settings
from portico.host.shelves import Kind, Shelf
from portico.host.supervisor import DRAIN_S, Supervised
from portico.ports import Turn
from portico.protocol import types as t
from portico.protocol.revision import OutputRoot
from portico.protocol.schema import Validator

N = TypeVar("N", bound=t.Noun)
H = TypeVar("H", bound=t.Noun)

# What a server says that it tells of.
TELLING = ("tools.listChanged", "prompts.listChanged", "resources.listChanged")
# What is told of a list, and the lists that it is about.
TOLD: dict[str, tuple[Kind, ...]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}


class Offer(Generic[H, N]):
    """One list as it is shown: `nouns` to strangers, `hosted` to programs, both under the name or
    the address by which each is asked for. `names` are those of the catalogue, where it has any."""

    def __init__(
        self, hosted: Mapping[str, H], nouns: Mapping[str, N], names: Names | None = None
    ) -> None:
        self.hosted = hosted
        self.nouns = nouns
        self.names = names

    def find(self, name: str) -> Named | None:
        """What a name of the catalogue, or an alias, leads to."""
        return self.names.find(name) if self.names is not None else None

    def is_like(self, other: "Offer[H, N]") -> bool:
        """Whether the other says the same."""
        return self.nouns == other.nouns


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
        self._schemas = Tools(entry.key)
        self._bare = True
        self._was_open = False
        self._watches: dict[Client, asyncio.Task[None]] = {}
        self._held = 0
        self._free = asyncio.Event()
        self._free.set()
        self.tools: Shelf[Offer[HostTool, t.Tool]]
        self.prompts: Shelf[Offer[HostPrompt, t.Prompt]]
        self.resources: Shelf[Offer[HostResource, t.Resource]]
        self.templates: Shelf[Offer[HostResourceTemplate, t.ResourceTemplate]]
        self.tools = self._made("tools", "tools", self._list_tools)
        self.prompts = self._made("prompts", "prompts", self._list_prompts)
        self.resources = self._made("resources", "resources", self._list_resources)
        self.templates = self._made("templates", "resource templates", self._list_templates)
        self._shelves: dict[Kind, Shelf[Any]] = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "templates": self.templates,
        }

    def _made(self, kind: Kind, what: str, ask: Callable[[str], Awaitable[Any]]) -> Shelf[Any]:
        def came() -> None:
            self._changed(self.key, (kind,))

        words = f"the {what} of server {self.key!r}"
        limit_s = self.settings.start_s + self.settings.timeout_s
        return Shelf(words, ask, limit_s, came)

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
        for shelf in self._shelves.values():
            await shelf.close()
        watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        if watches:
            await asyncio.wait(watches)

    # ------------------------------------------------------------ what it tells

    def _opened(self, supervised: Supervised, seat: Seat) -> None:
        """Somebody was let in: what it offers may be another than before it was last stopped."""
        self.instructions = seat.client.instructions
        if self._was_open and len(supervised.seats) == 1:
            self._doubt()
        self._was_open = True
        self._attend(seat.client)

    def _attend(self, client: Client) -> None:
        """Hear what it tells of its lists, if it does and nobody hears it yet."""
        if client not in self._watches and any(map(client.peer.offers, TELLING)):
            watch = asyncio.get_running_loop().create_task(self._watch(client))
            self._watches[client] = watch
            watch.add_done_callback(lambda _: self._watches.pop(client, None))

    async def _watch(self, client: Client) -> None:
        """Hear of changed lists for as long as the conversation lasts."""
        tools, prompts, resources = map(client.peer.offers, TELLING)
        with contextlib.suppress(PorticoError):  # it has ended, or does not tell after all
            async with client.listen(
                tools=tools, prompts=prompts, resource_list=resources
            ) as changes:
                async for change in changes:
                    self._heard(change)
        if any(seat.client is client for seat in self.supervised.seats):  # it goes on, unheard
            self._doubt()

    def _doubt(self) -> None:
        for shelf in self._shelves.values():
            shelf.doubt()

    def _heard(self, change: Change) -> None:
        kinds = TOLD.get(change.kind, ())
        for kind in kinds:
            self._shelves[kind].expire()
        if kinds:
            self._changed(self.key, kinds)

    # ------------------------------------------------------------ what it offers

    def shelf(self, kind: Kind) -> Shelf[Offer[Any, Any]]:
        """One of its lists."""
        return self._shelves[kind]

    @property
    def problem(self) -> str | None:
        """What is the matter with it, for people; what can be shown all the same is shown."""
        found = [shelf.problem for shelf in self._shelves.values() if shelf.problem is not None]
        for shelf in (self.tools, self.prompts):
            names = shelf.content.names if shelf.content is not None else None
            found += [one.words for one in (names.problems if names is not None else ())]
        return "; ".join(dict.fromkeys(found)) or None

    @property
    def failure(self) -> PorticoError | None:
        """The first error that a list of it came to, if one did."""
        errors = (shelf.error for shelf in self._shelves.values())
        return next((error for error in errors if error is not None), None)

    def plain_name(self, name: str) -> str | None:
        """The server's own name for one of the catalogue, where no list is needed to tell."""
        own = name.partition("__")[2]
        is_it = catalogue_name(self.claim.namespace, own) == name and is_shown(self.settings, own)
        return own if is_it else None

    def output(self, tool: str) -> Validator | None:
        """What results of a tool, by the server's own name for it, must fit."""
        return self._schemas.output(tool)

    async def is_wrapped(self, tool: str, result: t.CallToolResult, caller: str) -> bool:
        """Whether the value of a result that looks so is in a wrapper, which the list tells."""
        meta = result.meta or {}
        wrapped = self._schemas.wraps(tool, meta, bare=self._bare)
        if wrapped is None:
            await self.tools.seen(caller, self.settings.timeout_s)
            wrapped = self._schemas.wraps(tool, meta, bare=self._bare)
        return bool(wrapped)

    # ------------------------------------------------------------ asking for it

    async def _list_tools(self, caller: str) -> Offer[HostTool, t.Tool]:
        tools = await self._listed("tools/list", caller, lambda one: one.list_tools(fresh=True))
        self._schemas.learn(tools, mirrors=False)
        return self._named(tools, HostTool)

    async def _list_prompts(self, caller: str) -> Offer[HostPrompt, t.Prompt]:
        prompts = await self._listed(
            "prompts/list", caller, lambda one: one.list_prompts(fresh=True)
        )
        return self._named(prompts, HostPrompt)

    async def _list_resources(self, caller: str) -> Offer[HostResource, t.Resource]:
        found = await self._listed(
            "resources/list", caller, lambda one: one.list_resources(fresh=True)
        )
        nouns: dict[str, t.Resource] = {}
        for one in found:
            nouns.setdefault(one.uri, one)
        return Offer({uri: HostResource.kept(one, self.key) for uri, one in nouns.items()}, nouns)

    async def _list_templates(self, caller: str) -> Offer[HostResourceTemplate, t.ResourceTemplate]:
        found = await self._listed(
            "resources/templates/list", caller, lambda one: one.list_resource_templates(fresh=True)
        )
        nouns: dict[str, t.ResourceTemplate] = {}
        for one in found:
            nouns.setdefault(one.uri_template, one)
        kept = HostResourceTemplate.kept
        return Offer({text: kept(one, self.key) for text, one in nouns.items()}, nouns)

    async def _listed(
        self, method: str, caller: str, ask: Callable[[Client], Awaitable[Sequence[N]]]
    ) -> Sequence[N]:
        async def look(sitting: Sitting) -> Sequence[N]:
            client = sitting.client
            self._attend(client)
            revision = client.peer.revision
            self._bare = revision.output_root is OutputRoot.ANY
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

    def _named(self, listed: Sequence[Any], hosted: Any) -> Offer[Any, Any]:
        first = {one.name: one for one in reversed(listed)}
        names = Names([(self.key, self.settings, [one.name for one in listed])])
        nouns = {named.name: replace(first[named.own], name=named.name) for named in names}
        shown = {
            named.name: hosted.kept(nouns[named.name], self.key, named.own, named.aliases)
            for named in names
        }
        return Offer(shown, nouns, names)
