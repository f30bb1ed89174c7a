"""Held definitions in the inbox: one item for each server and list, and what an answer does.

The item shows what waits in the record of the pins, as `colonnade pins diff` does; to accept it is
what `colonnade pins accept` does. A list that is held again with something else replaces it.

Rules: what is accepted is what was shown, all of it or nothing. The items are of the operator, who
has the pins: they are accepted for all callers of a host, so no queue of a caller has them. A list
never waits for an answer, and never fails because the inbox does. Items, definitions in one of them
and their texts have limits.
"""

import logging
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import ColonnadeError, InvalidArgument
from colonnade.host.policy.approvals.inbox import CHANGED, Inbox, InboxItem, new_item, new_key
from colonnade.host.policy.pins.definitions import ItemKind
from colonnade.host.policy.pins.pins import ListReview, PinnedServer, Pins
from colonnade.host.policy.pins.records import PendingDefinition
from colonnade.protocol.jsonrpc import encode

log: logging.Logger = logging.getLogger("colonnade.host")

# How long an item waits: for a person who is away. A list that is still held is shown again then.
WAITS_S: Final = 7 * 24 * 3600.0
# Definitions in one item: more than a person reads at once. The next item has others.
MAX_DEFINITIONS: Final = 200
# Of all of them, as an item has them: less than it may have. The texts of one fit.
MAX_BYTES: Final = 768 * 1024
# Lines that say what has happened, in a list of items.
MAX_CHANGES: Final = 20

_METHODS: Final[dict[ItemKind, str]] = {
    "tool": "tools/list",
    "prompt": "prompts/list",
    "resource": "resources/list",
    "template": "resources/templates/list",
    "instructions": "initialize",
}


class ShownDefinitions(Struct, frozen=True, omit_defaults=True):
    """What an item shows: definitions of one list, and how many more wait."""

    kind: ItemKind
    definitions: tuple[PendingDefinition, ...]
    left_off: int = 0


_decoder: Final = msgspec.json.Decoder(ShownDefinitions)


def shown_definitions(item: InboxItem) -> ShownDefinitions:
    """What an item of kind `definitions` shows. Raises `InvalidArgument` if it cannot be read."""
    try:
        return _decoder.decode(item.content)
    except msgspec.MsgspecError:
        raise InvalidArgument(f"the item {item.id} has no definitions that can be read") from None


class HeldDefinitions:
    """The items of a host for definitions that are held. `has_server` says whether a server, by
    its key and its identity, is of the host; `accepted` is called after an acceptance."""

    def __init__(
        self,
        pins: Pins,
        inbox: Inbox,
        has_server: Callable[[str, str], bool],
        accepted: Callable[[str, ItemKind], None],
    ) -> None:
        self._pins = pins
        self._inbox = inbox
        self._has_server = has_server
        self._accepted = accepted
        # The records that were last looked at, by server and kind, and until when an item shows
        # them.
        self._seen: dict[tuple[str, ItemKind], tuple[bytes | None, float]] = {}
        self.close: Callable[[], None] = inbox.attach_pins(self)

    async def note(self, server: PinnedServer, kind: ItemKind, review: ListReview) -> None:
        """A list was compared: show what is held, or withdraw what was. Never raises."""
        if server.mode != "strict":
            return
        place = server.identity, kind
        seen, until = self._seen.get(place, (None, 0.0))
        if seen == review.seen and self._inbox.clock() < until:
            return
        try:
            until = await self._post(server, kind)
        except ColonnadeError as error:
            log.warning("held definitions of server %r are not in the inbox: %s", server.key, error)
            return
        self._seen[place] = review.seen, until

    async def _post(self, server: PinnedServer, kind: ItemKind) -> float:
        """Show what waits. Returns until when there is nothing to do if the record stays."""
        shown = _shown(kind, *await self._pins.pending(server, kind))
        key = new_key("", encode(["definitions", server.identity, kind]))
        if shown.definitions:
            return (await self._inbox.post(self._item(server, key, shown))).deadline
        before = await self._inbox.read(key)
        if before is not None:
            await self._inbox.withdraw(before)
        return inf

    def _item(self, server: PinnedServer, key: str, shown: ShownDefinitions) -> InboxItem:
        content = msgspec.json.encode(shown).decode()
        now = self._inbox.clock()
        item = new_item("definitions", server.key, content, key=key, now=now, deadline_s=WAITS_S)
        lines = [f"{one.item.subject}: {one.item.reason}" for one in shown.definitions]
        more = len(lines) - MAX_CHANGES + shown.left_off
        if len(lines) > MAX_CHANGES or shown.left_off:
            lines = [*lines[:MAX_CHANGES], f"and {more} more"]
        return replace(
            item,
            identity=server.identity,
            method=_METHODS[shown.kind],
            changes=tuple(lines),
        )

    # ------------------------------------------------------------ answers

    def has(self, item: InboxItem) -> bool:
        """Whether the definitions are of a server of this host."""
        return self._has_server(item.server, item.identity)

    async def accept(self, item: InboxItem) -> str:
        """Accept exactly what an item shows. Returns why it was not; empty if it was."""
        shown = shown_definitions(item)
        server = PinnedServer(item.server, item.identity)
        held = [one.item for one in shown.definitions]
        # Before it may fail: the item is answered, and what is still held needs another one.
        self._seen.pop((server.identity, shown.kind), None)
        done = await self._pins.accept(server, held, all_or_none=True)
        if len(done) < len(held):
            await self._post(server, shown.kind)
            return f"nothing was accepted: {CHANGED}"
        count, by = len(done), item.answered_by or "an answer"
        log.info("server %r: %d definitions accepted by %s", item.server, count, by)
        if shown.left_off:
            await self._post(server, shown.kind)
        self._accepted(item.server, shown.kind)
        return ""


def _shown(kind: ItemKind, pending: Iterable[PendingDefinition], total: int) -> ShownDefinitions:
    """As many definitions as a person reads and an item has room for."""
    found: list[PendingDefinition] = []
    left = MAX_BYTES
    for one in pending:
        size = _size(one)
        if size > MAX_BYTES:  # of a URI of a megabyte: `colonnade pins` shows it
            continue
        if size > left or len(found) == MAX_DEFINITIONS:
            break
        found.append(one)
        left -= size
    return ShownDefinitions(kind, tuple(found), total - len(found))


def _size(one: PendingDefinition) -> int:
    """The bytes of a definition in an item, where it is text in a text."""
    return len(encode(encode(one).decode()))
