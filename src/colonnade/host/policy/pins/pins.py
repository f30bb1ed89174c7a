"""Pins: the definitions that a person has accepted, kept by server, and the review of each list.

    async with Host(servers, pins=Pins(store)) as host: ...

The first definition of an item is accepted, or waits for a person (`first`). Any other definition
is held: it is hidden in lists, and calls of it are refused, until it is accepted. With the mode
`warn` it is only logged.

Rules: what is held is decided when a list arrives, from the bytes of the list; a call looks it up.
The record of a server is changed by compare-and-swap, so that two processes lose nothing of each
other. If the record cannot be read or written, the list fails, and nothing of it is used.
"""

import asyncio
import logging
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from colonnade.errors import Refused
from colonnade.host.policy.lookalikes import skeleton
from colonnade.host.policy.pins.definitions import Definition, ItemKind, instructions_definition
from colonnade.host.policy.pins.records import (
    EMPTY,
    FirstSight,
    HeldItem,
    ListComparison,
    PendingDefinition,
    PinnedItem,
    PinRecord,
    accept_pending,
    compare,
    decode_record,
    drop_pending,
    encode_record,
    pending_in,
)
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.text import clean

log: logging.Logger = logging.getLogger("colonnade.host")

PinMode: TypeAlias = Literal["strict", "warn", "off"]

KINDS: Final[tuple[ItemKind, ...]] = ("tool", "prompt", "resource", "template", "instructions")
# In the folder of the user, if no store is given.
FILE: Final = "pins.db"
# Attempts to write a record that others write at the same time; each reads it again.
MAX_SWAPS: Final = 20
# Held items of one review that are logged, one line each.
MAX_LOGGED: Final = 10
# Held items that are known to have been logged, over all servers.
MAX_REMEMBERED: Final = 10_000


class PinnedServer(Struct, frozen=True):
    """A server whose definitions are pinned: its key, the digest of its command or URL, and what
    happens to what is not accepted."""

    key: str
    identity: str
    mode: PinMode = "strict"
    # The file of its entry; empty in a program.
    file: str = ""


class ListReview(Struct, frozen=True):
    """A list compared with what was accepted: the digests of its definitions, what is held, by the
    server's own names or URIs, and the record that it was compared with."""

    digests: Mapping[str, str]
    held: Mapping[str, HeldItem]
    seen: bytes | None

    def allows(self, name: str) -> bool:
        """Whether an item may be used: its definition was compared, and is not held."""
        return name in self.digests and name not in self.held

    def problems(self, server: str) -> list[str]:
        """What is held, for people."""
        return [refusal_text(server, one) for one in self.held.values()]


def refusal_text(server: str, held: HeldItem) -> str:
    """Why an item is not used, and what to do."""
    shown = clean(server)
    return f"{held.subject} of server {shown!r} is not used: {held.reason}"


def refusal_hint(server: str, file: str = "") -> str:
    """What to do about an item that is held; with the option for a file that the command does not
    find by itself. Only a log may have the file: callers must not learn it."""
    option = f" --config {shlex.quote(clean(file))}" if file and not _is_found(file) else ""
    return f"see what changed with: colonnade pins diff {clean(server)}{option}"


def _is_found(file: str) -> bool:
    """Whether commands in the folder of this process use a file without being told to."""
    from colonnade.host.config.formats import existing_files  # on use

    found = existing_files(home=os.path.expanduser("~"), folder=os.getcwd(), env=os.environ)
    real = os.path.realpath(file)
    return any(os.path.realpath(one) == real for _, files in found for one in files)


class PinStatus(Struct, frozen=True):
    """The pins of one kind of one server, for people: what was accepted, and what waits."""

    kind: ItemKind
    items: Mapping[str, PinnedItem]
    pending: tuple[PendingDefinition, ...]

    @property
    def held(self) -> tuple[HeldItem, ...]:
        """What waits, without its text."""
        return tuple(one.item for one in self.pending)


class Pins:
    """Accepted definitions.

    - `store` keeps them; without it they are in a file of the user, which `colonnade pins` reads.
    - `mode` is what happens to what was not accepted: `strict` hides and refuses it, `warn` logs
      it, `off` is for single servers, whose setting `pins` overrides this one.
    - `first` is what happens to what was never seen: `accept`, or `review` by a person.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        mode: PinMode = "strict",
        first: FirstSight = "accept",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.mode: PinMode = mode
        self.first: FirstSight = first
        self._given = store
        self._own: Store | None = None
        self._clock = clock
        self._opening = asyncio.Lock()
        # The accepted names of each server and kind, by what they look like.
        self._names: dict[tuple[str, ItemKind], dict[str, dict[str, str]]] = {}
        # The records that they are from.
        self._named: dict[tuple[str, ItemKind], bytes | None] = {}
        # The instructions of each server that were reviewed, and whether they were accepted.
        self._instructions: dict[str, tuple[str, bool]] = {}
        # What was logged, so that it is logged once.
        self._logged: set[tuple[str, HeldItem]] = set()

    def __repr__(self) -> str:
        return f"Pins(mode={self.mode!r}, first={self.first!r})"

    # ------------------------------------------------------------ review

    async def review(
        self, server: PinnedServer, kind: ItemKind, definitions: Mapping[str, Definition]
    ) -> ListReview:
        """Compare a list with what was accepted, and keep what is new. Raises `Refused` and
        `ChannelError` if that is not possible."""
        store = await self._store()
        key = _key(server.identity, kind)
        for _ in range(MAX_SWAPS):
            before = await store.get(SERVER_PRINCIPAL, key)
            record = self._decode(server, kind, before)
            found = compare(
                record,
                definitions,
                first=self.first,
                now=self._clock(),
                others=self._other_names(server, kind),
            )
            after = before if found.record is record else encode_record(found.record)
            if after is before or await store.swap(SERVER_PRINCIPAL, key, before, after, None):
                self._remember_names(server, kind, found.record, after)
                self._log(server, kind, found)
                digests = {name: one.digest for name, one in definitions.items()}
                held = found.held if server.mode == "strict" else {}
                return ListReview(digests, held, after)
        raise _busy(server)

    async def is_outdated(self, server: PinnedServer, kind: ItemKind, review: ListReview) -> bool:
        """Whether something was accepted since a review, so that the list is to be read again."""
        store = await self._store()
        return await store.get(SERVER_PRINCIPAL, _key(server.identity, kind)) != review.seen

    async def review_instructions(self, server: PinnedServer, text: str) -> ListReview | None:
        """Compare the instructions of a server with those that were accepted; None if these were
        reviewed and accepted before."""
        one = instructions_definition(text)
        if self._instructions.get(server.identity) == (one.digest, True):
            return None
        review = await self.review(server, "instructions", {one.name: one})
        self._instructions[server.identity] = one.digest, review.allows(one.name)
        return review

    def accepts_instructions(self, server: PinnedServer, text: str) -> bool:
        """Whether these instructions were reviewed and accepted."""
        return self._instructions.get(server.identity) == (
            instructions_definition(text).digest,
            True,
        )

    def _decode(self, server: PinnedServer, kind: ItemKind, data: bytes | None) -> PinRecord:
        try:
            return decode_record(data)
        except ValueError as error:
            message = f"the accepted definitions ({kind}) of {server.key!r} cannot be read: {error}"
            hint = f"delete them with: colonnade pins forget {clean(server.key)}"
            raise Refused(message, server=server.key, hint=hint) from None

    def _other_names(self, server: PinnedServer, kind: ItemKind) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for (key, of), names in self._names.items():
            if of == kind and key != server.key:
                for shape, own in names.items():
                    found.setdefault(shape, {}).update(own)
        return found

    def _remember_names(
        self, server: PinnedServer, kind: ItemKind, record: PinRecord, seen: bytes | None
    ) -> None:
        if kind not in ("tool", "prompt") or self._named.get((server.key, kind)) == seen:
            return
        self._named[server.key, kind] = seen
        names: dict[str, dict[str, str]] = {}
        for name, item in record.items.items():
            if item.accepted:
                names.setdefault(skeleton(name), {})[name] = server.key
        self._names[server.key, kind] = names

    def _log(self, server: PinnedServer, kind: ItemKind, found: ListComparison) -> None:
        if len(self._logged) > MAX_REMEMBERED:
            self._logged.clear()
        new = [one for one in found.held.values() if (server.identity, one) not in self._logged]
        for one in new[:MAX_LOGGED]:
            self._logged.add((server.identity, one))
            text, hint = refusal_text(server.key, one), refusal_hint(server.key, server.file)
            log.warning("%s; %s", text if server.mode == "strict" else _warned(server, one), hint)
        if len(new) > MAX_LOGGED:
            more = len(new) - MAX_LOGGED
            log.warning("%d more definitions of server %r are not accepted", more, server.key)
        if found.first_seen:
            log.info(
                "server %r: %d definitions (%s) accepted at first sight",
                server.key,
                len(found.first_seen),
                kind,
            )

    # ------------------------------------------------------------ people

    async def status(self, server: PinnedServer) -> list[PinStatus]:
        """The pins of a server, of each kind that has any."""
        found: list[PinStatus] = []
        for kind in KINDS:
            record = await self._read(server, kind)
            if record.items:
                found.append(PinStatus(kind, record.items, tuple(pending_in(record, kind))))
        return found

    async def pending(
        self, server: PinnedServer, kind: ItemKind
    ) -> tuple[Iterator[PendingDefinition], int]:
        """What waits of one kind, each compared when it is taken, and how many they are."""
        record = await self._read(server, kind)
        count = sum(len(one.pending) for one in record.items.values())
        return pending_in(record, kind), count

    async def accept(
        self, server: PinnedServer, held: Iterable[HeldItem], *, all_or_none: bool = False
    ) -> list[HeldItem]:
        """Accept these definitions. Returns those that were accepted: one that no longer waits is
        not, and another one that the server has sent meanwhile is not either. With `all_or_none`
        those of one kind are accepted only if all of them wait."""
        by_kind: dict[ItemKind, list[HeldItem]] = {}
        for one in held:
            by_kind.setdefault(one.kind, []).append(one)
        accepted: list[HeldItem] = []
        for kind, wanted in by_kind.items():
            pairs = [(one.name, one.digest) for one in wanted]
            done: list[tuple[str, str]] = []

            def change(
                record: PinRecord,
                pairs: list[tuple[str, str]] = pairs,
                done: list[tuple[str, str]] = done,
            ) -> PinRecord:
                changed, found = accept_pending(record, pairs, self._clock())
                if all_or_none and len(found) < len(pairs):
                    changed, found = record, []
                done[:] = found
                return changed

            await self._change(server, kind, change)
            accepted += [one for one in wanted if (one.name, one.digest) in done]
        return accepted

    async def drop_pending(self, server: PinnedServer) -> None:
        """Forget what waits for a person; it waits again if the server still sends it."""
        for kind in KINDS:
            await self._change(server, kind, drop_pending)

    async def forget(self, server: PinnedServer) -> bool:
        """Forget everything of a server: it is seen for the first time again. Returns whether
        there was anything."""
        store = await self._store()
        found = False
        for kind in KINDS:
            key = _key(server.identity, kind)
            found = await store.get(SERVER_PRINCIPAL, key) is not None or found
            await store.delete(SERVER_PRINCIPAL, key)
        return found

    async def _read(self, server: PinnedServer, kind: ItemKind) -> PinRecord:
        store = await self._store()
        data = await store.get(SERVER_PRINCIPAL, _key(server.identity, kind))
        return self._decode(server, kind, data)

    async def _change(
        self, server: PinnedServer, kind: ItemKind, change: Callable[[PinRecord], PinRecord]
    ) -> None:
        store = await self._store()
        key = _key(server.identity, kind)
        for _ in range(MAX_SWAPS):
            before = await store.get(SERVER_PRINCIPAL, key)
            record = self._decode(server, kind, before)
            changed = change(record)
            if changed == record:
                return
            after = encode_record(changed) if changed != EMPTY else None
            if await store.swap(SERVER_PRINCIPAL, key, before, after, None):
                return
        raise _busy(server)

    # ------------------------------------------------------------ store

    async def _store(self) -> Store:
        if self._given is not None:
            return self._given
        async with self._opening:
            if self._own is None:
                from colonnade.client.auth import storage_folder
                from colonnade.store.sqlite import SqliteStore

                folder = storage_folder()
                await asyncio.to_thread(_make_folder, folder)
                self._own = SqliteStore(folder / FILE)
        return self._own

    async def close(self) -> None:
        """Close the file of the user; a store that was given stays open."""
        own, self._own = self._own, None
        if own is not None:
            await own.close()


def _key(identity: str, kind: ItemKind) -> str:
    return f"pins {identity} {kind}"


def _make_folder(folder: Path) -> None:
    from colonnade.client.auth import make_private_folder  # on use

    try:
        make_private_folder(folder)
    except OSError as error:
        raise Refused(
            f"accepted definitions cannot be kept in {folder}: {error.strerror}"
        ) from None


def _warned(server: PinnedServer, held: HeldItem) -> str:
    return f"{held.subject} of server {clean(server.key)!r}: {held.reason}"


def _busy(server: PinnedServer) -> Refused:
    message = f"the accepted definitions of server {server.key!r} change too often"
    return Refused(message, server=server.key, hint="try again")
