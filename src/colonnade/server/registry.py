"""What a server offers: its tools, resources, templates and prompts, in the order of their making.

Rules: a look-up is a dict; a list is a slice of the order of registration. Every change is told to
whoever watches. Nothing here runs a handler.
"""

import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, InvalidArgument
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.server.handlers.completion import CompletionFunction
from colonnade.server.notifications import News

if TYPE_CHECKING:
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.protocol.uritemplate import UriTemplate
    from colonnade.server.context.context import Context
    from colonnade.server.handlers.completion import CompletionFunction

# A page that a client shows at once; larger lists are cut, and the cursor goes on.
PAGE_SIZE = 1000
# Ours are some twenty characters long.
MAX_CURSOR_CHARACTERS = 64

Values = dict[str, str | list[str]]


class RunTool(Protocol):
    """Answers `tools/call`. Who reads the arguments looks whether a member is there twice."""

    def __call__(
        self, request: RequestContext, params: t.CallToolRequestParams, /
    ) -> Awaitable[t.ProtocolType]: ...


class RunPrompt(Protocol):
    """Answers `prompts/get`."""

    def __call__(
        self, request: RequestContext, params: "t.GetPromptRequestParams", /
    ) -> Awaitable[t.ProtocolType]: ...


class RunResource(Protocol):
    """Answers `resources/read`; a handler that reads for itself lends its context."""

    def __call__(
        self,
        request: RequestContext,
        params: "t.ReadResourceRequestParams",
        values: Values,
        context: "Context | None" = None,
        /,
    ) -> Awaitable[t.ProtocolType]: ...


class Entry(Struct, kw_only=True, eq=False):
    """One thing that is offered, and who may see it.

    `logs` is whether what runs can send log messages; `completers` complete its arguments.
    """

    serial: int = 0
    tags: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    enabled: bool = True
    logs: bool = False
    completers: "dict[str, CompletionFunction]" = {}


class ToolEntry(Entry, kw_only=True, eq=False):
    """A tool: what is said of it, and what runs. `wraps`: its result is no object by its schema."""

    noun: t.Tool
    run: RunTool
    headers: "tuple[ParamHeader, ...]" = ()
    wraps: bool | None = None


class ResourceEntry(Entry, kw_only=True, eq=False):
    """A resource of a fixed address."""

    noun: "t.Resource"
    run: RunResource


class TemplateEntry(Entry, kw_only=True, eq=False):
    """Many resources, by a template."""

    noun: "t.ResourceTemplate"
    template: "UriTemplate"
    run: RunResource


class PromptEntry(Entry, kw_only=True, eq=False):
    """A prompt."""

    noun: "t.Prompt"
    run: RunPrompt


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
        return iter(list(self._entries.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> E:
        return self._entries[name]

    @property
    def names(self) -> list[str]:
        """The names, in order."""
        return list(self._entries)

    @property
    def shown(self) -> list[str]:
        """The names of what is enabled, in order."""
        return [name for name, entry in self._entries.items() if entry.enabled]

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

    def page(
        self, cursor: str | None, size: int, visible: Callable[[E], bool], *, shared: bool = False
    ) -> "Page[E]":
        """The entries after a cursor, and the cursor to go on with.

        A cursor is the number of the last entry seen, so that neither additions nor removals
        move what comes after. `shared` is whether everybody may see the page; all pages of a list
        are alike in that (R1027), so a list that began for one caller stays theirs (R1028), and
        one that was everybody's and is no longer begins anew. Raises `Fault` for that, and for a
        cursor that is none of ours.
        """
        after = 0
        if cursor is not None:
            after, began_shared = _read(cursor)
            if began_shared and not shared:
                raise _no_cursor()
            shared = began_shared
        rest = [entry for entry in self if entry.serial > after and visible(entry)]
        if len(rest) <= size:
            return Page(rest, None, shared)
        return Page(rest[:size], _cursor(rest[size - 1].serial, shared), shared)


class Page(Struct, Generic[E], frozen=True):
    """A part of a list, the cursor that leads to the next one, and whether it is everybody's."""

    entries: list[E]
    cursor: str | None
    shared: bool


_AFTER, _SHARED_AFTER = b"after", b"shared-after"


def _cursor(serial: int, shared: bool) -> str:
    word = _SHARED_AFTER if shared else _AFTER
    return base64.urlsafe_b64encode(b"%b:%d" % (word, serial)).decode().rstrip("=")


def _read(cursor: str) -> tuple[int, bool]:
    try:
        if len(cursor) > MAX_CURSOR_CHARACTERS:
            raise ValueError
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        word, _, digits = text.partition(b":")
        if word not in (_AFTER, _SHARED_AFTER) or not digits.isdigit():
            raise ValueError
        return int(digits), word == _SHARED_AFTER
    except (ValueError, binascii.Error):
        raise _no_cursor() from None


def _no_cursor() -> Fault:
    words = "this cursor is none of ours; list again without one"
    return Fault(FaultKind.INVALID_PARAMS, words)


class Catalogue:
    """All that a server offers, and who wants to hear of changes."""

    def __init__(self) -> None:
        self.news: News = News()
        self.tools: Shelf[ToolEntry] = Shelf(self._changes("tools"))
        self.resources: Shelf[ResourceEntry] = Shelf(self._changes("resources"))
        self.templates: Shelf[TemplateEntry] = Shelf(self._changes("resources"))
        self.prompts: Shelf[PromptEntry] = Shelf(self._changes("prompts"))
        self._ranked: list[TemplateEntry] | None = None
        self.followers: list[Callable[[], None]] = []

    def _changes(self, kind: str) -> Callable[[], None]:
        def changed() -> None:
            self._ranked = None
            self.touched()
            self.news.announce(f"notifications/{kind}/list_changed", t.NotificationParams())

        return changed

    def touched(self) -> None:
        """Something has changed that no list shows, if nothing else has."""
        for follower in self.followers:
            follower()

    def entries(self) -> Iterator[Entry]:
        """Everything."""
        for shelf in (self.tools, self.resources, self.templates, self.prompts):
            yield from shelf

    def find_resource(self, uri: str) -> tuple[ResourceEntry | TemplateEntry, Values] | None:
        """The resource of this address: a fixed one first, then the most literal template."""
        entry = self.resources.get(uri)
        if entry is not None:
            return entry, {}
        if self._ranked is None:
            self._ranked = sorted(self.templates, key=lambda entry: entry.template.rank)
        for template in self._ranked:
            if template.enabled:
                values = template.template.match(uri)
                if values is not None:
                    return template, values
        return None


# ---------------------------------------------------------------- mount


log: logging.Logger = logging.getLogger("colonnade.server")


def _address(entry: ResourceEntry) -> str:
    return entry.noun.uri


def _template(entry: TemplateEntry) -> str:
    return entry.noun.uri_template


class Shown(NamedTuple):
    """An inner entry as it was when it was copied, its copy, and whether that may be seen here."""

    entry: Entry
    enabled: bool
    completers: dict[str, CompletionFunction]
    copy: Entry
    allowed: bool


class Pair(NamedTuple):
    """The shelves of one kind, inside and outside, and what an inner entry is called outside."""

    inside: Shelf[Any]
    outside: Shelf[Any]
    name: Callable[[Any], str]
    shown: dict[str, Shown | None]


class Mount:
    """A catalogue that is offered inside another one."""

    def __init__(
        self,
        inner: Catalogue,
        outer: Catalogue,
        layers: Sequence[Middleware],
        namespace: str | None,
    ) -> None:
        self._layers = layers
        self._prefix = f"{namespace}_" if namespace else ""
        self._outer = outer
        self._pairs = [
            Pair(inner.tools, outer.tools, self._named, {}),
            Pair(inner.prompts, outer.prompts, self._named, {}),
            Pair(inner.resources, outer.resources, _address, {}),
            Pair(inner.templates, outer.templates, _template, {}),
        ]
        self._refuse_twins()
        self._follow()
        inner.followers.append(self._follow)
        inner.news.followers.append(self._pass_on)

    def _named(self, entry: ToolEntry | PromptEntry) -> str:
        return self._prefix + entry.noun.name

    def _refuse_twins(self) -> None:
        for pair in self._pairs:
            for entry in pair.inside:
                if pair.name(entry) in pair.outside:
                    raise InvalidArgument(
                        f"{pair.name(entry)!r} is offered here already; mount with a namespace "
                        "of its own",
                        argument="namespace",
                    )

    def _pass_on(self, method: str, params: t.NotificationParams) -> None:
        """News of a resource; what changed in a list is told by the list itself."""
        if isinstance(params, t.ResourceUpdatedNotificationParams):
            self._outer.news.announce(method, params)

    def _follow(self) -> None:
        """Make the outer catalogue show what the inner one has now."""
        for pair in self._pairs:
            wanted: dict[str, Entry] = {pair.name(entry): entry for entry in pair.inside}
            for key in [key for key in pair.shown if key not in wanted]:
                shown = pair.shown.pop(key)
                if shown is not None and self._is_ours(pair, key, shown):
                    pair.outside.remove(key)
            for key, entry in wanted.items():
                self._show(pair, key, entry)

    def _show(self, pair: Pair, key: str, entry: Entry) -> None:
        shown = pair.shown.get(key)
        if shown is not None and shown[:3] == (entry, entry.enabled, entry.completers):
            return
        if shown is not None and shown.entry is entry and key not in pair.outside:
            return  # somebody took it out there
        if key in pair.outside and not (shown and self._is_ours(pair, key, shown)):
            if key not in pair.shown:
                log.warning("%r is offered already; the one that is mounted is not shown", key)
            pair.shown[key] = None
            return
        allowed = True
        if shown is not None:  # what was hidden here stays hidden, whatever happens inside
            switched = shown.copy.enabled is not (shown.enabled and shown.allowed)
            allowed = shown.copy.enabled if switched else shown.allowed
        copy = self._copy(key, entry)
        copy.enabled = entry.enabled and allowed
        pair.shown[key] = Shown(entry, entry.enabled, entry.completers, copy, allowed)
        pair.outside.add(key, copy)

    def _is_ours(self, pair: Pair, key: str, shown: Shown) -> bool:
        """Whether what is offered outside under this name is still the copy."""
        return key in pair.outside and pair.outside[key] is shown.copy

    def _copy(self, key: str, entry: Any) -> Entry:
        noun = entry.noun
        if isinstance(noun, t.Tool | t.Prompt):
            noun = replace(noun, name=key)
        return replace(entry, noun=noun, run=self._layered(entry.run))

    def _layered(
        self, run: Callable[..., Awaitable[t.ProtocolType]]
    ) -> Callable[..., Awaitable[t.ProtocolType]]:
        """What runs, inside the layers that the mounted server has by then."""

        def layered(request: RequestContext, *arguments: Any) -> Awaitable[t.ProtocolType]:
            if not self._layers:
                return run(request, *arguments)
            inner: Handler = lambda request: run(request, *arguments)  # noqa: E731
            return stack(inner, self._layers)(request)

        return layered
