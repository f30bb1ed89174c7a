"""Which server has a resource: the search through the lists of all servers.

    read "notes://a"
        resources of every server       a list that has it ends the search
        resource templates              of one that matches it
        lists that are late             waited for, only if no list that was read has it

A server that hangs must not delay a request to another. So the search ends with the first list
that has the URI, and only a URI that no list has waits for the servers that are late.

Rules: lists are requested and read here. Functions of the generation decide which items a caller
may see.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from colonnade.errors import LocalProtocolError
from colonnade.host.servers.listings import (
    ListedItems,
    Listing,
    ListKind,
    Steps,
    run_cooperatively,
)
from colonnade.protocol import types as t
from colonnade.protocol.uritemplate import UriTemplate

# Servers get this long to list their resources before any is asked for its templates, which few
# URIs need.
SETTLE_S = 0.1
# Templates of one server whose literal prefix matches a URI: this many characters of them are
# tried. A typical one has 60, so a thousand are tried; the most expensive take a millisecond each,
# and this many a tenth of a second.
MAX_TRIED = 128 * 1024
# Characters counted for each template in addition to its length, to limit the number of short
# templates.
TEMPLATE_COST = 64

S = TypeVar("S")
AnyListing: TypeAlias = Listing[ListedItems[Any, Any]]


class ResourceOwners(NamedTuple, Generic[S]):
    """The servers that have a URI, the servers whose lists failed, and the servers with too many
    templates."""

    servers: list[S]
    failed: list[S]
    untried: list[S]


class ResourceSearch(Generic[S]):
    """The search for the servers of one URI. `listings` returns one listing for each server,
    `visible` the part of a listing that the caller may see, and `shows` whether the caller may see
    this URI of a server."""

    def __init__(
        self,
        uri: str,
        listings: Callable[[ListKind], Mapping[S, AnyListing]],
        visible: Callable[[S, ListKind, AnyListing], ListedItems[Any, Any] | None],
        shows: Callable[[S], bool],
    ) -> None:
        self._uri = uri
        self._listings = listings
        self._visible = visible
        self._shows = shows
        # Each list is requested once. A list that changes all the time is not requested again.
        self._requests: dict[AnyListing, asyncio.Task[None] | None] = {}

    async def run(self, caller: str, wait_s: float, *, below: bool) -> ResourceOwners[S]:
        """The servers that list the URI, a template that matches it, or (with `below`) resources
        below it. If no list has the URI, waits for late lists, up to `wait_s`."""
        until, patience_s = _now() + wait_s, min(wait_s, SETTLE_S)
        while True:
            resources, late = await self._settle("resources", caller, patience_s)
            servers, untried = [one for one in resources if self._has(one, resources)], list[S]()
            if not servers:
                templates, more = await self._settle("templates", caller, patience_s)
                late |= more
                for one, listing in templates.items():
                    listed = self._visible(one, "templates", listing)
                    matches = await run_cooperatively(_matches(listed, self._uri))
                    if matches is None:
                        untried.append(one)
                    elif matches:
                        servers.append(one)
            if not servers and below:
                servers = [one for one in resources if self._has_below(one, resources)]
            servers = [one for one in servers if self._shows(one)]
            left = until - _now()
            if servers or not late or left <= 0:
                failed = [one for one, listing in resources.items() if listing.has_failed]
                return ResourceOwners(servers, failed, untried)
            await asyncio.wait(late, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            patience_s = 0.0

    async def _settle(
        self, kind: ListKind, caller: str, wait_s: float
    ) -> tuple[Mapping[S, AnyListing], set[asyncio.Task[None]]]:
        """The listing of every server, and the requests for missing lists. Waits until all lists
        have arrived, one list has the URI, or `wait_s` is over."""
        until = _now() + wait_s
        while True:
            listings = self._listings(kind)
            late: set[asyncio.Task[None]] = set()
            for listing in listings.values():
                if listing not in self._requests:
                    self._requests[listing] = listing.request(caller)
                task = self._requests[listing]
                if task is not None and not task.done():
                    late.add(task)
            left = until - _now()
            if not late or left <= 0 or any(self._has(one, listings, kind) for one in listings):
                return listings, late
            await asyncio.wait(late, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _has(
        self, server: S, listings: Mapping[S, AnyListing], kind: ListKind = "resources"
    ) -> bool:
        listed = self._visible(server, kind, listings[server])
        return listed is not None and self._uri in listed.known

    def _has_below(self, server: S, listings: Mapping[S, AnyListing]) -> bool:
        listed, start = self._visible(server, "resources", listings[server]), self._uri
        start = start.rstrip("/") + "/"
        return listed is not None and any(one.startswith(start) for one in listed.items)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _matches(listed: ListedItems[Any, t.ResourceTemplate] | None, uri: str) -> Steps[bool | None]:
    """Whether a URI matches a template, or is a listed template itself; None if there are too many
    templates to try."""
    if listed is None or uri in listed.known:
        return listed is not None
    left = MAX_TRIED
    for text in listed.known:
        yield
        if not _may_match(text, uri):
            continue
        left -= len(text) + TEMPLATE_COST
        if left < 0:
            return None
        with contextlib.suppress(LocalProtocolError):  # an invalid template matches nothing
            if UriTemplate(text).match(uri) is not None:
                return True
    return False


def _may_match(template: str, uri: str) -> bool:
    """Whether a URI and a template have the same literal prefix, up to the first percent-encoded
    character."""
    literal = template.partition("{")[0].partition("%")[0]
    if uri.startswith(literal):
        return True
    plain, encoded, _ = uri.partition("%")
    return bool(encoded) and literal.startswith(plain)
