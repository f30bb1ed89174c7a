"""What a server offers: its tools, resources, templates and prompts, in the order of their making.

Rules: a look-up is a dict; a list is a slice of the order of registration. Every change bumps a
number and tells whoever watches. Nothing here runs a handler.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct

from portico.errors import Fault, FaultKind
from portico.ports import Turn
from portico.protocol import types as t
from portico.protocol.httprules_params import ParamHeader
from portico.protocol.uritemplate import Template

# A page that a client shows at once; larger lists are cut, and the cursor goes on.
PAGE_SIZE = 1000
# Ours are some ten characters long.
MAX_CURSOR_CHARACTERS = 64

Values = dict[str, str | list[str]]


class Entry(Struct, kw_only=True, eq=False):
    """One thing that is offered, and who may see it."""

    serial: int = 0
    tags: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    enabled: bool = True


class ToolEntry(Entry, kw_only=True, eq=False):
    """A tool: what is said of it, and what runs. `wraps`: its result is no object by its schema."""

    noun: t.Tool
    run: Callable[[Turn, t.CallToolRequestParams], Awaitable[t.Noun]]
    headers: tuple[ParamHeader, ...] = ()
    wraps: bool | None = None


class ResourceEntry(Entry, kw_only=True, eq=False):
    """A resource of a fixed address."""

    noun: t.Resource
    run: Callable[[Turn, t.ReadResourceRequestParams, Values], Awaitable[t.Noun]]


class TemplateEntry(Entry, kw_only=True, eq=False):
    """Many resources, by a template."""

    noun: t.ResourceTemplate
    template: Template
    run: Callable[[Turn, t.ReadResourceRequestParams, Values], Awaitable[t.Noun]]


class PromptEntry(Entry, kw_only=True, eq=False):
    """A prompt."""

    noun: t.Prompt
    run: Callable[[Turn, t.GetPromptRequestParams], Awaitable[t.Noun]]


E = TypeVar("E", bound=Entry)


class Shelf(Generic[E]):
    """Entries of one kind by name, in the order of their making."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._entries: dict[str, E] = {}
        self._changed = changed
        self._next = 1

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[E]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> E:
        return self._entries[name]

    def get(self, name: str) -> E | None:
        """The entry of this name that is enabled."""
        entry = self._entries.get(name)
        return entry if entry is not None and entry.enabled else None

    def add(self, name: str, entry: E) -> None:
        """Put an entry under a name; one that was there is replaced and keeps its place."""
        before = self._entries.get(name)
        entry.serial = before.serial if before is not None else self._next
        self._next += before is None
        self._entries[name] = entry
        self._changed()

    def remove(self, name: str) -> E:
        """Take an entry out. Raises `KeyError` where there is none."""
        entry = self._entries.pop(name)
        self._changed()
        return entry

    def switch(self, entries: Iterable[E], *, enabled: bool) -> None:
        """Show or hide entries; told once, and only where something changed."""
        chosen = [entry for entry in entries if entry.enabled is not enabled]
        for entry in chosen:
            entry.enabled = enabled
        if chosen:
            self._changed()

    def page(self, cursor: str | None, visible: Callable[[E], bool]) -> tuple[list[E], str | None]:
        """The entries after a cursor, and the cursor to go on with.

        A cursor is the number of the last entry seen, so that neither additions nor removals
        move what comes after. Raises `Fault` for one that is none of ours.
        """
        after = _number(cursor) if cursor is not None else 0
        rest = [entry for entry in self if entry.serial > after and visible(entry)]
        if len(rest) <= PAGE_SIZE:
            return rest, None
        return rest[:PAGE_SIZE], _cursor(rest[PAGE_SIZE - 1].serial)


def _cursor(serial: int) -> str:
    return base64.urlsafe_b64encode(b"after:%d" % serial).decode().rstrip("=")


def _number(cursor: str) -> int:
    try:
        if len(cursor) > MAX_CURSOR_CHARACTERS:
            raise ValueError
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        word, _, digits = text.partition(b":")
        if word != b"after" or not digits.isdigit():
            raise ValueError
        return int(digits)
    except (ValueError, binascii.Error):
        words = "this cursor is none of ours; list again without one"
        raise Fault(FaultKind.INVALID_PARAMS, words) from None


class Catalogue:
    """All that a server offers, and who wants to hear of changes."""

    def __init__(self) -> None:
        self._watchers: list[Callable[[str, t.NotificationParams], None]] = []
        self.tools: Shelf[ToolEntry] = Shelf(self._changes("tools"))
        self.resources: Shelf[ResourceEntry] = Shelf(self._changes("resources"))
        self.templates: Shelf[TemplateEntry] = Shelf(self._changes("resources"))
        self.prompts: Shelf[PromptEntry] = Shelf(self._changes("prompts"))

    def _changes(self, kind: str) -> Callable[[], None]:
        def changed() -> None:
            self.announce(f"notifications/{kind}/list_changed", t.NotificationParams())

        return changed

    def announce(self, method: str, params: t.NotificationParams) -> None:
        """Tell everybody who watches."""
        for watcher in tuple(self._watchers):
            watcher(method, params)

    def watch(self, watcher: Callable[[str, t.NotificationParams], None]) -> Callable[[], None]:
        """Be told of every change until the returned function is called."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def find_resource(self, uri: str) -> tuple[ResourceEntry | TemplateEntry, Values] | None:
        """The resource of this address: a fixed one first, then the most literal template."""
        entry = self.resources.get(uri)
        if entry is not None:
            return entry, {}
        for template in sorted(self.templates, key=lambda entry: entry.template.rank):
            if template.enabled:
                values = template.template.match(uri)
                if values is not None:
                    return template, values
        return None
