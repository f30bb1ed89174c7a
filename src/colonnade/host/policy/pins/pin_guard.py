"""The pins of a host at work: each list is compared when it arrives, and each request once more on
the session that it is about to be sent on.

The list that a caller was shown may have been read from another process than the one that a request
is sent to: a server restarts, a pool has several of them. So a session counts as reviewed only if
its own list was, and is read again before the next request after `list_changed`, after a while
without that notification, and in each new session.

Rules: nothing is sent on a session whose list was not reviewed. A warm request takes a few lookups,
and no request to the server or the store.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from colonnade.errors import ColonnadeError, LocalProtocolError, Refused, RemoteProtocolError
from colonnade.host.config.settings import PinsTable, ServerEntry
from colonnade.host.policy.lookalikes import skeleton
from colonnade.host.policy.pins.definitions import ItemKind, definition_steps
from colonnade.host.policy.pins.pins import (
    ListReview,
    PinMode,
    PinnedServer,
    Pins,
    refusal_hint,
    refusal_text,
)
from colonnade.host.policy.request import server_identity
from colonnade.host.servers.generation import HostedServer
from colonnade.host.servers.listings import ListedItems, ListKind, ListSource, run_cooperatively
from colonnade.host.servers.session import SessionCall
from colonnade.protocol.uritemplate import UriTemplate
from colonnade.text import clean, cut

if TYPE_CHECKING:  # pins need no inbox
    from colonnade.host.policy.pins.held_definitions import HeldDefinitions

log: logging.Logger = logging.getLogger("colonnade.host")

ITEM_KINDS: Final[Mapping[ListKind, ItemKind]] = {
    "tools": "tool",
    "prompts": "prompt",
    "resources": "resource",
    "templates": "template",
}
# The lists in which an item is looked for: a resource that is not listed may be of a template.
_LISTS: Final[Mapping[str, tuple[ListKind, ...]]] = {
    "tool": ("tools",),
    "prompt": ("prompts",),
    "resource": ("resources", "templates"),
    "template": ("templates",),
}
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
# Characters of templates that are tried for one URI, as the index of names does.
MAX_TRIED: Final = 128 * 1024
MAX_SHOWN: Final = 80


def pinned_identity(entry: ServerEntry) -> str:
    """The identity of a server for its pins: its command or URL, and its key, since two servers of
    one command may differ in their environment."""
    return sha256(f"{entry.key}\n{server_identity(entry)}".encode()).hexdigest()


class PinGuard:
    """Compares lists and requests with the accepted definitions."""

    def __init__(self, pins: Pins) -> None:
        self.pins = pins
        # Shows what is held in the inbox, if there is one.
        self.held_definitions: HeldDefinitions | None = None
        self._servers: WeakKeyDictionary[HostedServer, PinnedServer] = WeakKeyDictionary()
        # How servers call themselves, by key.
        self._titles: dict[str, set[str]] = {}

    def server(self, server: HostedServer) -> PinnedServer:
        """A server, with its mode."""
        found = self._servers.get(server)
        if found is None:
            entry = server.entry
            file = entry.place.file if entry.place is not None else ""
            found = PinnedServer(server.key, pinned_identity(entry), self.mode(server), file)
            self._servers[server] = found
        return found

    def mode(self, server: HostedServer) -> PinMode:
        """What happens to definitions of a server that are not accepted."""
        return server.settings.pins or self.pins.mode

    def use(self, table: PinsTable) -> None:
        """Use the settings of another configuration from now on."""
        self.pins.mode, self.pins.first = table.mode, table.first
        self._servers.clear()

    # ------------------------------------------------------------ lists

    async def review(
        self, server: HostedServer, kind: ListKind, source: ListSource
    ) -> ListReview | None:
        """Compare a list that has just been read; None for a server without pins."""
        pinned = self.server(server)
        if pinned.mode == "off":
            return None
        item_kind = ITEM_KINDS[kind]
        try:
            definitions = await run_cooperatively(definition_steps(item_kind, source.pages))
        except _UNREADABLE:
            # In a member that no type has: the decoder of the list has skipped it.
            message = f"the {kind} of server {server.key!r} have a member that is not valid JSON"
            raise RemoteProtocolError(message, server=server.key) from None
        review = await self.pins.review(pinned, item_kind, definitions)
        if self.held_definitions is not None:
            await self.held_definitions.note(pinned, item_kind, review)
        if server.instructions:
            await self._review_instructions(pinned, server.instructions)
        return review

    async def _review_instructions(self, server: PinnedServer, text: str) -> None:
        review = await self.pins.review_instructions(server, text)
        if review is not None and self.held_definitions is not None:
            await self.held_definitions.note(server, "instructions", review)

    def note_titles(self, server: HostedServer, source: ListSource, keys: Iterable[str]) -> None:
        """Warn of a server that calls itself almost like another one: the same letters in another
        script."""
        info = source.session.client.server if source.session is not None else None
        if info is None:
            return
        own = {name for name in (info.name, info.title) if name}
        if self._titles.get(server.key) == own:
            return
        self._titles[server.key] = own
        others = {key: key for key in keys if key != server.key}
        for key, titles in self._titles.items():
            if key != server.key:
                others |= dict.fromkeys(titles, key)
        shapes = {skeleton(name): (name, key) for name, key in others.items()}
        for name in sorted(own - {server.key}):  # its user calls it so, too
            other, key = shapes.get(skeleton(name), (name, ""))
            if other != name:
                shown = repr(cut(clean(name), MAX_SHOWN))
                server.warn(f"it calls itself {shown}, which looks like {clean(other)!r} ({key})")

    def shows(self, listed: ListedItems[Any, Any], own: str) -> bool:
        """Whether an item of a list is shown."""
        review = listed.review
        return not isinstance(review, ListReview) or review.allows(own)

    async def recheck(self, server: HostedServer, kind: ListKind, caller: str) -> None:
        """Have a list read again in which something is held that has been accepted since. If the
        store does not respond, it stays held."""
        pinned, listing = self.server(server), server.listings(caller).by_kind[kind]
        review = listing.content.review if listing.content is not None else None
        try:
            if await self._is_outdated(pinned, kind, review):
                listing.mark_stale()
            if server.instructions and not self.shows_instructions(server, server.instructions):
                await self._review_instructions(pinned, server.instructions)
        except ColonnadeError as error:
            log.warning("the accepted definitions of server %r: %s", server.key, error)

    async def _is_outdated(self, server: PinnedServer, kind: ListKind, review: object) -> bool:
        """Whether something is held that may have been accepted since."""
        if not isinstance(review, ListReview) or not review.held:
            return False
        return await self.pins.is_outdated(server, ITEM_KINDS[kind], review)

    def shows_instructions(self, server: HostedServer, text: str) -> bool:
        """Whether these instructions are accepted."""
        pinned = self.server(server)
        return pinned.mode == "off" or self.pins.accepts_instructions(pinned, text)

    # ------------------------------------------------------------ requests

    def holds_any(self, server: HostedServer, kind: str, caller: str) -> bool:
        """Whether an item of this kind is held in the lists that were last read for a caller."""
        if self.mode(server) != "strict":
            return False
        lists = server.listings(caller).by_kind
        for one in _LISTS[kind]:
            content = lists[one].content
            if content is not None and content.review is not None and content.review.held:
                return True
        return False

    async def check(self, server: HostedServer, kind: str, name: str, caller: str) -> None:
        """Check an item by the lists that were last read for its caller, which `holds_any`.
        Raises `Refused`."""
        pinned, listings = self.server(server), server.listings(caller)
        problem = self._problem(pinned, kind, name, self._cached(server, kind, caller))
        if not problem:
            return
        for one in _LISTS[kind]:  # it may have been accepted meanwhile
            await self.recheck(server, one, caller)
            if not listings.by_kind[one].is_fresh:
                await listings.by_kind[one].fetch(caller)
        problem = self._problem(pinned, kind, name, self._cached(server, kind, caller))
        if problem:
            raise _refused(pinned, problem)

    def accepts(self, call: SessionCall, server: HostedServer, kind: str, name: str) -> bool:
        """Whether an item needs no check: its server has no pins, or the list of the session has
        it as it was accepted, and need not be read again."""
        if self.mode(server) != "strict":
            return True
        if kind != "tool" or server.needs_read(call.session, "tools"):
            return False
        review = call.session.reviews["tools"][0]
        return isinstance(review, ListReview) and review.allows(name)

    async def check_session(
        self, call: SessionCall, server: HostedServer, kind: str, name: str, caller: str
    ) -> None:
        """Check an item by the lists of the session that a request is about to be sent on, which
        are read if they were not, or may have changed. Raises `Refused`."""
        if self.accepts(call, server, kind, name):
            return
        problem = await self._session_problem(call, server, kind, name, caller)
        if not problem:
            return
        pinned = self.server(server)
        for one in _LISTS[kind]:
            review = call.session.reviews.get(one, (None, 0.0))[0]
            if await self._is_outdated(pinned, one, review):
                call.session.reviews.pop(one, None)
        problem = await self._session_problem(call, server, kind, name, caller)
        if problem:
            raise _refused(pinned, problem)

    async def _session_problem(
        self, call: SessionCall, server: HostedServer, kind: str, name: str, caller: str
    ) -> str:
        session, lists = call.session, _LISTS[kind]
        reviews: dict[ListKind, object] = {}
        for one in lists:
            if server.needs_read(session, one):
                await server.listings(caller).by_kind[one].fetch_on(call, caller, one)
            reviews[one] = session.reviews.get(one, (None, 0.0))[0]
        problem = self._problem(self.server(server), kind, name, reviews)
        if problem or kind not in ("tool", "prompt"):
            return problem
        review = reviews[lists[0]]
        if isinstance(review, ListReview) and name in review.digests:
            return ""
        return f"{kind} {cut(clean(name), MAX_SHOWN)!r} of server {server.key!r} is not listed now"

    def _cached(self, server: HostedServer, kind: str, caller: str) -> dict[ListKind, object]:
        listings = server.listings(caller)
        found: dict[ListKind, object] = {}
        for one in _LISTS[kind]:
            content = listings.by_kind[one].content
            found[one] = content.review if content is not None else None
        return found

    def _problem(
        self, server: PinnedServer, kind: str, name: str, reviews: Mapping[ListKind, object]
    ) -> str:
        """Why an item may not be used, by these reviews; empty if it may."""
        first, *rest = _LISTS[kind]
        review = reviews.get(first)
        if not isinstance(review, ListReview):
            return ""
        if name in review.digests or not rest:
            held = review.held.get(name)
            return refusal_text(server.key, held) if held is not None else ""
        templates = reviews.get(rest[0])
        if not isinstance(templates, ListReview) or not templates.held:
            return ""
        matching = _matching(templates.digests, name)
        held_ones = [templates.held[one] for one in matching if one in templates.held]
        if not held_ones or len(held_ones) < len(matching):
            return ""
        return refusal_text(server.key, held_ones[0])


def _refused(server: PinnedServer, problem: str) -> Refused:
    hint = refusal_hint(server.key)
    return Refused(problem, server=server.key, hint=hint, reason="definition")


def _matching(templates: Iterable[str], uri: str) -> Sequence[str]:
    """The templates that a URI matches, as far as they are tried."""
    left, found = MAX_TRIED, list[str]()
    for text in templates:
        left -= len(text)
        if left < 0:
            break
        with suppress(LocalProtocolError):  # an invalid template matches nothing
            if text == uri or UriTemplate(text).match(uri) is not None:
                found.append(text)
    return found
