"""Mounted servers: copies of their entries in the registry of the outer server.

Loaded when a server is mounted. Rules: a copy follows its entry; an entry that is registered in the
outer server itself is never replaced. Nothing here runs a handler.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from colonnade.errors import InvalidArgument
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.server.registry import (
    Entry,
    PromptEntry,
    Registry,
    ResourceEntry,
    RunTool,
    ServerRegistry,
    TemplateEntry,
    ToolEntry,
)

if TYPE_CHECKING:
    from colonnade.server.handlers.completion import CompletionFunction
    from colonnade.server.tasks.options import TaskTool

log: logging.Logger = logging.getLogger("colonnade.server")


def _uri_of(entry: ResourceEntry) -> str:
    return entry.definition.uri


def _template_of(entry: TemplateEntry) -> str:
    return entry.definition.uri_template


class MountedEntry(NamedTuple):
    """An inner entry as it was when copied, its copy, and whether the copy may be enabled."""

    entry: Entry
    enabled: bool
    completers: "dict[str, CompletionFunction]"
    copy: Entry
    allowed: bool


class MountedRegistry(NamedTuple):
    """The inner and outer registry of one kind; `name` gives the outer name of an entry."""

    inner: Registry[Any]
    outer: Registry[Any]
    name: Callable[[Any], str]
    known: dict[str, MountedEntry | None]


class Mount:
    """Keeps copies of a mounted server's entries in the registry of the outer server."""

    def __init__(
        self,
        inner: ServerRegistry,
        outer: ServerRegistry,
        middleware: Sequence[Middleware],
        namespace: str | None,
        run_task_tool: "Callable[[TaskTool], RunTool]",
    ) -> None:
        self._middleware = middleware
        # The tasks of mounted tools are those of the outer server.
        self._run_task_tool = run_task_tool
        self._prefix = f"{namespace}_" if namespace else ""
        self._outer = outer
        self._registries = [
            MountedRegistry(inner.tools, outer.tools, self._prefixed_name, {}),
            MountedRegistry(inner.prompts, outer.prompts, self._prefixed_name, {}),
            MountedRegistry(inner.resources, outer.resources, _uri_of, {}),
            MountedRegistry(inner.templates, outer.templates, _template_of, {}),
        ]
        self._refuse_duplicates()
        self._sync()
        inner.observers.append(self._sync)
        inner.changes.observers.append(self._forward)

    def _prefixed_name(self, entry: ToolEntry | PromptEntry) -> str:
        return self._prefix + entry.definition.name

    def _refuse_duplicates(self) -> None:
        for mounted in self._registries:
            for entry in mounted.inner:
                if mounted.name(entry) in mounted.outer:
                    raise InvalidArgument(
                        f"{mounted.name(entry)!r} is already registered; mount with another "
                        "namespace",
                        argument="namespace",
                    )

    def _forward(self, method: str, params: t.NotificationParams) -> None:
        """Forward resource updates; the outer registry sends its own `list_changed`."""
        if isinstance(params, t.ResourceUpdatedNotificationParams):
            self._outer.changes.publish(method, params)

    def _sync(self) -> None:
        """Bring the outer registry up to date with the inner one."""
        for mounted in self._registries:
            wanted: dict[str, Entry] = {mounted.name(entry): entry for entry in mounted.inner}
            for key in [key for key in mounted.known if key not in wanted]:
                known = mounted.known.pop(key)
                if known is not None and self._is_ours(mounted, key, known):
                    mounted.outer.remove(key)
            for key, entry in wanted.items():
                self._sync_entry(mounted, key, entry)

    def _sync_entry(self, mounted: MountedRegistry, key: str, entry: Entry) -> None:
        known = mounted.known.get(key)
        if known is not None and known[:3] == (entry, entry.enabled, entry.completers):
            return
        if known is not None and known.entry is entry and key not in mounted.outer:
            return  # it was removed from the outer registry
        if key in mounted.outer and not (known and self._is_ours(mounted, key, known)):
            if key not in mounted.known:
                log.warning("%r is already registered; the mounted one is not shown", key)
            mounted.known[key] = None
            return
        allowed = True
        if known is not None:  # an entry disabled in the outer registry stays disabled
            switched = known.copy.enabled is not (known.enabled and known.allowed)
            allowed = known.copy.enabled if switched else known.allowed
        copy = self._copy(key, entry)
        copy.enabled = entry.enabled and allowed
        mounted.known[key] = MountedEntry(entry, entry.enabled, entry.completers, copy, allowed)
        mounted.outer.add(key, copy)

    def _is_ours(self, mounted: MountedRegistry, key: str, known: MountedEntry) -> bool:
        """Whether the outer entry of this name is still the copy."""
        return key in mounted.outer and mounted.outer[key] is known.copy

    def _copy(self, key: str, entry: Any) -> Entry:
        definition = entry.definition
        if isinstance(definition, t.Tool | t.Prompt):
            definition = replace(definition, name=key)
        run = entry.run
        if isinstance(entry, ToolEntry) and entry.task is not None:
            run = self._run_task_tool(entry.task)
        return replace(entry, definition=definition, run=self._with_middleware(run))

    def _with_middleware(
        self, run: Callable[..., Awaitable[t.ProtocolType]]
    ) -> Callable[..., Awaitable[t.ProtocolType]]:
        """Wrap a handler in the middleware that the mounted server has at the time of the call."""

        def run_with_middleware(
            request: RequestContext, *arguments: Any
        ) -> Awaitable[t.ProtocolType]:
            if not self._middleware:
                return run(request, *arguments)
            inner: Handler = lambda request: run(request, *arguments)  # noqa: E731
            return stack(inner, self._middleware)(request)

        return run_with_middleware
