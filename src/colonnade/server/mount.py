"""One catalogue inside another: what it offers is offered here, too, as it is at every moment.

Rules: the mounted one is not changed, and its own layers stay around its own handlers. Names of
tools and prompts get the namespace in front; addresses stay as they are, because what handlers
return points to them.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from colonnade.errors import InvalidArgument
from colonnade.ports import Handler, Middleware, RequestContext, stack
from colonnade.protocol import types as t
from colonnade.server.handlers.completion import CompletionFunction
from colonnade.server.registry import (
    Catalogue,
    Entry,
    PromptEntry,
    ResourceEntry,
    Shelf,
    TemplateEntry,
    ToolEntry,
)

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
