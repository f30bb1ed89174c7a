"""What one caller may see: servers, and the items of their lists.

Rules: what is denied is not shown, and a definition that is not accepted is not shown either. A
view is of one version of the rules; it is made anew with another.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from colonnade.host.policy.decisions import PolicyDecisions
from colonnade.host.policy.items import KINDS, LISTS, GuardedItem
from colonnade.host.policy.pins.pin_guard import PinGuard
from colonnade.host.policy.request import CallerFacts, ItemKind, PolicyRequest
from colonnade.host.servers.generation import HostedServer
from colonnade.host.servers.listings import ListedItems, ListKind, VisibleItems
from colonnade.protocol import types as t

# Callers whose views are kept: as many as servers keep lists of. The oldest are made again.
MAX_VIEWS = 1000
# Items of one view that are remembered; a host has fewer, or they are decided again.
MAX_SHOWN = 10_000
_NO_REQUEST: Final = None, None


class CallerView:
    """What one caller may see under one version of the policy: the `ListView` of the router."""

    def __init__(
        self, decisions: PolicyDecisions, pins: PinGuard | None, facts: CallerFacts
    ) -> None:
        self._decisions = decisions
        self._pins = pins
        self.facts = facts
        self._claims: Mapping[str, Any] = msgspec.json.decode(facts.claims) if facts.claims else {}
        self._servers: dict[str, bool] = {}
        self._visible: WeakKeyDictionary[ListedItems[Any, Any], VisibleItems[Any, Any]]
        self._visible = WeakKeyDictionary()
        self._shown: dict[tuple[str, ListKind, str], bool] = {}
        # Requests without arguments and metadata, by key of the server, method, kind and name. The
        # server is compared: a view is used until its request ends, also after a reload.
        self._requests: dict[
            tuple[str, str, ItemKind, str], tuple[HostedServer, PolicyRequest]
        ] = {}

    def request(
        self, server: HostedServer, item: GuardedItem, definition: t.ProtocolType | None = None
    ) -> PolicyRequest:
        """A request of this caller, as the rules see it."""
        key = server.key, item.method, item.kind, item.name
        of, known = self._requests.get(key, _NO_REQUEST)
        if known is None or of is not server or known.definition is not definition:
            if len(self._requests) >= MAX_SHOWN:  # URIs are what callers make of them
                self._requests.clear()
            known = self._bare_request(server, item, definition)
            self._requests[key] = server, known
        return replace(known, arguments=item.arguments, meta=item.meta)

    def _bare_request(
        self, server: HostedServer, item: GuardedItem, definition: t.ProtocolType | None
    ) -> PolicyRequest:
        """A request without its arguments and metadata."""
        facts = self.facts
        return PolicyRequest(
            principal=facts.principal,
            claims=self._claims,
            client=facts.client,
            revision=facts.revision,
            server=server.key,
            identity=self._decisions.identity(server),
            trusted=server.settings.trusted,
            method=item.method,
            kind=item.kind,
            name=item.name,
            qualified=item.qualified,
            definition=definition,
            definition_digest=self._decisions.digest(definition),
            namespace=server.claim.namespace,
        )

    # ------------------------------------------------------------ ListView

    def shows_server(self, server: HostedServer) -> bool:
        """Whether the caller may see a server at all."""
        known = self._servers.get(server.key)
        if known is None:
            request = self.request(server, GuardedItem("", "tool", "", server.qualified_prefix))
            known = not self._decisions.hide_server(request)
            self._servers[server.key] = known
        return known

    def shows_item(self, server: HostedServer, kind: ListKind, name: str) -> bool:
        """Whether the caller may see an item, by its name on the server or its URI."""
        key = server.key, kind, name
        known = self._shown.get(key)
        if known is None:
            if len(self._shown) >= MAX_SHOWN:  # URIs are what callers make of them
                self._shown.clear()
            qualified = server.qualified(name) if kind in ("tools", "prompts") else name
            request = self._listed(server, kind, name, qualified, None)
            known = self._shown[key] = not self._decisions.hide(request)
        return known

    def visible(
        self, server: HostedServer, kind: ListKind, listed: ListedItems[Any, Any]
    ) -> ListedItems[Any, Any]:
        """The items of a list that the caller may see. An item whose definition is not accepted is
        not shown; it keeps its name, so that a call of it is refused with the reason."""
        found = self._visible.get(listed)
        if found is None:
            shown: set[str] = set()
            named: set[str] = set()
            for name, own in _own_names(listed):
                request = self._listed(server, kind, own, name, listed.definitions.get(name))
                if not self._decisions.hide(request):
                    named.add(name)
                    if self._pins is None or self._pins.shows(listed, own):
                        shown.add(name)
            found = self._visible[listed] = VisibleItems(listed, shown, named)
        return found

    def _listed(
        self,
        server: HostedServer,
        kind: ListKind,
        own: str,
        qualified: str,
        definition: t.ProtocolType | None,
    ) -> PolicyRequest:
        method, item_kind = LISTS[kind]
        return self.request(server, GuardedItem(method, item_kind, own, qualified), definition)

    def definition(self, server: HostedServer, item: GuardedItem) -> t.ProtocolType | None:
        """The definition of an item, as it was last listed for this caller."""
        listing = server.listings(self.facts.principal).by_kind[KINDS[item.kind]]
        content = listing.content
        return content.definitions.get(item.qualified) if content is not None else None


class CallerViews:
    """The views of callers, under one version of the rules."""

    def __init__(self, decisions: PolicyDecisions, pins: PinGuard | None) -> None:
        self._decisions = decisions
        self.pins = pins
        self._views: OrderedDict[CallerFacts, CallerView] = OrderedDict()

    def of(self, facts: CallerFacts) -> CallerView:
        """What a caller may see."""
        found = self._views.get(facts)
        if found is None:
            if len(self._views) >= MAX_VIEWS:
                self._views.popitem(last=False)
            found = self._views[facts] = CallerView(self._decisions, self.pins, facts)
        return found

    def clear(self) -> None:
        """Decide anew what callers may see."""
        self._views.clear()


def _own_names(listed: ListedItems[Any, Any]) -> list[tuple[str, str]]:
    """The qualified name and the name on the server of each item; a URI is both."""
    if listed.names is None:
        return [(uri, uri) for uri in listed.items]
    return [(one.name, one.own) for one in listed.names if one.name in listed.items]
