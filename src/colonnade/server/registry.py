"""The registry of a server: tools, resources, templates and prompts, in order of registration.

Rules: a look-up is a dict; a page is a slice of the order of registration. Every change calls the
observers. Nothing here runs a handler.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from colonnade.errors import Fault, FaultKind, InvalidArgument
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.server.notifications import ChangeNotifier

if TYPE_CHECKING:
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.protocol.uritemplate import UriTemplate
    from colonnade.server.context.context import Context
    from colonnade.server.handlers.completion import CompletionFunction
    from colonnade.server.tasks.options import TaskTool

# The default page size; longer lists are continued by a cursor.
PAGE_SIZE = 1000
# Cursors of `_make_cursor` have about twenty characters.
MAX_CURSOR_CHARACTERS = 64

Values = dict[str, str | list[str]]


class RunTool(Protocol):
    """Handles `tools/call`. Refuses duplicate members when it decodes the arguments."""

    def __call__(
        self, request: RequestContext, params: t.CallToolRequestParams, /
    ) -> Awaitable[t.ProtocolType]: ...


class RunPrompt(Protocol):
    """Handles `prompts/get`."""

    def __call__(
        self, request: RequestContext, params: "t.GetPromptRequestParams", /
    ) -> Awaitable[t.ProtocolType]: ...


class RunResource(Protocol):
    """Handles `resources/read`; `context` is that of a handler that reads a resource itself."""

    def __call__(
        self,
        request: RequestContext,
        params: "t.ReadResourceRequestParams",
        values: Values,
        context: "Context | None" = None,
        /,
    ) -> Awaitable[t.ProtocolType]: ...


class Entry(Struct, kw_only=True, eq=False):
    """One registered item, its tags and the scopes that it needs.

    `logs` is whether its function can send log messages; `completers` complete its arguments.
    """

    serial: int = 0
    tags: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    enabled: bool = True
    logs: bool = False
    completers: "dict[str, CompletionFunction]" = {}


class ToolEntry(Entry, kw_only=True, eq=False):
    """A tool. `wraps`: its output schema is not of an object, so older revisions wrap it. `task`:
    it can run as a task."""

    definition: t.Tool
    run: RunTool
    headers: "tuple[ParamHeader, ...]" = ()
    wraps: bool | None = None
    task: "TaskTool | None" = None


class ResourceEntry(Entry, kw_only=True, eq=False):
    """A resource with a fixed URI."""

    definition: "t.Resource"
    run: RunResource


class TemplateEntry(Entry, kw_only=True, eq=False):
    """A resource template."""

    definition: "t.ResourceTemplate"
    template: "UriTemplate"
    run: RunResource


class PromptEntry(Entry, kw_only=True, eq=False):
    """A prompt."""

    definition: "t.Prompt"
    run: RunPrompt


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """Entries of one kind by name, in order of registration."""

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
        """The names of enabled entries, in order."""
        return [name for name, entry in self._entries.items() if entry.enabled]

    def get(self, name: str) -> E | None:
        """The entry of this name, if it is enabled."""
        entry = self._entries.get(name)
        return entry if entry is not None and entry.enabled else None

    def add(self, name: str, entry: E) -> None:
        """Add an entry; it takes the place of one with the same name."""
        before = self._entries.get(name)
        entry.serial = before.serial if before is not None else self._next
        self._next += before is None
        self._entries[name] = entry
        self._changed()

    def remove(self, name: str) -> E:
        """Remove an entry. Raises `KeyError` if there is none."""
        entry = self._entries.pop(name)
        self._changed()
        return entry

    def set_enabled(self, entries: Iterable[E], *, enabled: bool) -> None:
        """Enable or disable entries; one notification, and only if something changed."""
        chosen = [entry for entry in entries if entry.enabled is not enabled]
        for entry in chosen:
            entry.enabled = enabled
        if chosen:
            self._changed()

    def page(
        self, cursor: str | None, size: int, visible: Callable[[E], bool], *, shared: bool = False
    ) -> "Page[E]":
        """The entries after a cursor, and the next cursor.

        A cursor is the serial number of the last entry of a page, so additions and removals do not
        shift the next page. `shared` is whether the page is the same for all callers. It is the
        same for all pages of a list (R1027): a list that began private stays private (R1028), and
        one that is no longer shared must begin again. Raises `Fault` for that, and for an invalid
        cursor.
        """
        after = 0
        if cursor is not None:
            after, began_shared = _parse_cursor(cursor)
            if began_shared and not shared:
                raise _invalid_cursor()
            shared = began_shared
        rest = [entry for entry in self if entry.serial > after and visible(entry)]
        if len(rest) <= size:
            return Page(rest, None, shared)
        return Page(rest[:size], _make_cursor(rest[size - 1].serial, shared), shared)


class Page(Struct, Generic[E], frozen=True):
    """A page of a list, the next cursor, and whether it is the same for all callers."""

    entries: list[E]
    cursor: str | None
    shared: bool


_AFTER, _SHARED_AFTER = b"after", b"shared-after"


def _make_cursor(serial: int, shared: bool) -> str:
    label = _SHARED_AFTER if shared else _AFTER
    return base64.urlsafe_b64encode(b"%b:%d" % (label, serial)).decode().rstrip("=")


def _parse_cursor(cursor: str) -> tuple[int, bool]:
    try:
        if len(cursor) > MAX_CURSOR_CHARACTERS:
            raise ValueError
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        label, _, digits = text.partition(b":")
        if label not in (_AFTER, _SHARED_AFTER) or not digits.isdigit():
            raise ValueError
        return int(digits), label == _SHARED_AFTER
    except (ValueError, binascii.Error):
        raise _invalid_cursor() from None


def _invalid_cursor() -> Fault:
    message = "invalid cursor; list again without one"
    return Fault(FaultKind.INVALID_PARAMS, message)


class ServerRegistry:
    """All registries of a server, and the observers of changes."""

    def __init__(self) -> None:
        self.changes: ChangeNotifier = ChangeNotifier()
        self.tools: Registry[ToolEntry] = Registry(self._changes("tools"))
        self.resources: Registry[ResourceEntry] = Registry(self._changes("resources"))
        self.templates: Registry[TemplateEntry] = Registry(self._changes("resources"))
        self.prompts: Registry[PromptEntry] = Registry(self._changes("prompts"))
        self._templates_by_rank: list[TemplateEntry] | None = None
        self.observers: list[Callable[[], None]] = []

    def _changes(self, kind: str) -> Callable[[], None]:
        def changed() -> None:
            self._templates_by_rank = None
            self.notify_observers()
            self.changes.publish(f"notifications/{kind}/list_changed", t.NotificationParams())

        return changed

    def notify_observers(self) -> None:
        """Call the observers, also for a change that no list shows."""
        for observer in self.observers:
            observer()

    def entries(self) -> Iterator[Entry]:
        """All entries."""
        for registry in (self.tools, self.resources, self.templates, self.prompts):
            yield from registry

    def set_enabled(self, names: Collection[str], tags: Iterable[str], *, enabled: bool) -> None:
        """Enable or disable entries, by name, URI or tag. Raises `InvalidArgument` for a name that
        there is not."""
        wanted = frozenset(tags)
        registries: list[Registry[Any]] = [self.tools, self.resources, self.templates, self.prompts]
        for name in names:
            if not any(name in registry for registry in registries):
                raise InvalidArgument(f"no tool, resource or prompt {name!r}", argument="name")
        for registry in registries:
            chosen = [registry[name] for name in names if name in registry]
            chosen += [entry for entry in registry if entry.tags & wanted]
            registry.set_enabled(chosen, enabled=enabled)

    def find_resource(self, uri: str) -> tuple[ResourceEntry | TemplateEntry, Values] | None:
        """The resource of a URI: a fixed one first, then the most literal template."""
        entry = self.resources.get(uri)
        if entry is not None:
            return entry, {}
        if self._templates_by_rank is None:
            self._templates_by_rank = sorted(self.templates, key=lambda entry: entry.template.rank)
        for template in self._templates_by_rank:
            if template.enabled:
                values = template.template.match(uri)
                if values is not None:
                    return template, values
        return None


# ---------------------------------------------------------------- scopes


def granted_scopes(request: RequestContext) -> frozenset[str] | None:
    """The scopes of the caller's credentials; None if callers are not authenticated.

    A caller that was authenticated without scopes has none.
    """
    exchange = request.exchange
    if exchange.scopes is None and exchange.principal:
        return frozenset()
    return exchange.scopes


def check_scopes(entry: Entry, request: RequestContext) -> None:
    """Raise `HttpError` (403) if the caller lacks scopes of an entry."""
    if entry.scopes:
        granted = granted_scopes(request)
        lacking = sorted(entry.scopes - granted) if granted is not None else []
        if lacking:
            from colonnade.protocol.http.security import FORBIDDEN, HttpError

            raise HttpError(FORBIDDEN, f"this needs the scope {' '.join(lacking)}")
