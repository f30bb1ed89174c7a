"""A generation: the servers of one configuration of a host, and the index from a name to a server.

The set of servers in a generation never changes; what each of them offers is in its listings. A
call takes one generation and uses no other.

Rules: a name leads to its server without a request to any other server. A URI that several servers
list is refused until the caller names one. A server that does not respond does not delay the lists
of others beyond the time limit.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.client import Client
from colonnade.client.subscriptions import Change
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    FaultKind,
    RemoteError,
)
from colonnade.host.config.settings import HostProblem, ServerEntry, Settings
from colonnade.host.servers.listings import (
    NO_RESPONSE,
    UNNOTIFIED_S,
    HostTool,
    ListedItems,
    Listing,
    ListKind,
    ListSource,
    ReviewedItems,
    ServerListings,
    describe_error,
)
from colonnade.host.servers.manifest import ServerManifest
from colonnade.host.servers.naming import BETWEEN, NAME_LIMIT, is_shown, qualified_name
from colonnade.host.servers.resource_search import ResourceSearch
from colonnade.host.servers.session import HostedSession, SessionCall
from colonnade.host.servers.supervisor import DRAIN_S, ServerSupervisor
from colonnade.ports import RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.methods import declares
from colonnade.protocol.revision import ChangeNotifications, OutputRoot, Tasks
from colonnade.protocol.schema.error_messages import truncate
from colonnade.text import close_matches, closest

if TYPE_CHECKING:  # few tools mirror arguments
    from colonnade.protocol.http.param_headers import ParamHeader

log: logging.Logger = logging.getLogger("colonnade.host")

# Callers of one server whose lists are cached; for further ones the oldest are read again.
MAX_CALLERS = 1000

# Lists of a caller that has no session, and has not used them for this long, are dropped: within
# twice this time. With a store they are read from there, else from the server.
LISTS_IDLE_S = 600.0

# Warnings of one server that are kept.
MAX_WARNINGS = 10

# Qualified names of one server that are remembered: it takes microseconds to make one.
MAX_QUALIFIED = 10_000
# Names of tools under which they are found again.
MAX_FOUND = 10_000

# The `list_changed` notifications, and the lists that each of them is about.
LIST_CHANGED: dict[str, tuple[ListKind, ...]] = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "templates"),
}

N = TypeVar("N", bound=t.ProtocolType)


def list_changed_capability(name: str) -> str:
    """The capability of a server that sends this `list_changed` notification."""
    return f"{name}.listChanged"


# ---------------------------------------------------------------- one server


class NameClaim(NamedTuple):
    """The names that belong to a server: the namespace before all of its names, aliases, and how
    long a name may be."""

    namespace: str
    aliases: dict[str, str]
    name_limit: int = NAME_LIMIT

    def qualified(self, own: str) -> str:
        """The qualified name of an item, by its name on the server."""
        return qualified_name(self.namespace, own, self.name_limit)


# Makes the request for a list: of which method, and for which caller.
MakeListRequest = Callable[[str, str], RequestContext]
# Called with the key of a server, the lists of it that have changed, and the caller that sees them;
# None for all callers.
OnListChange = Callable[[str, Sequence[ListKind], str | None], None]
# Makes the supervisor of a server; the callback is called with each session that it opens.
MakeSupervisor = Callable[
    [ServerEntry, Callable[[ServerSupervisor, HostedSession], None]], ServerSupervisor
]


# Reviews a list that has just been read from a server, for a caller, before it is used.
ReviewListing = Callable[
    ["HostedServer", ListKind, str, Sequence[Any], ListSource], Awaitable[ReviewedItems]
]


class HostedServer:
    """One server of a generation: its supervisor and its listings."""

    def __init__(
        self,
        entry: ServerEntry,
        claim: NameClaim,
        make_supervisor: MakeSupervisor,
        make_request: MakeListRequest,
        on_change: OnListChange,
        on_opened: Callable[[], None] = lambda: None,
        review: ReviewListing | None = None,
    ) -> None:
        self._on_opened = on_opened
        self.key: str = entry.key
        self.entry = entry
        self.claim = claim
        self.settings: Settings = replace(entry.settings, aliases=claim.aliases)
        self.supervisor: ServerSupervisor = make_supervisor(entry, self._session_opened)
        self.instructions: str | None = None
        # What it offers; None before it was started.
        self.capabilities: t.ServerCapabilities | None = None
        self._warnings: dict[str, None] = {}
        self._make_request = make_request
        self._on_change = on_change
        self._review = review
        # Whether all callers see the same lists, which is known once a session was opened, and the
        # callers that used the lists before.
        self._is_common = not entry.settings.is_per_caller
        self._early_callers: set[str] | None = set() if self._is_common else None
        self._has_bare_output = True
        # Lists for which it sends `list_changed`; and whether it is a child process, which changes
        # nothing while it is stopped.
        self._notified: frozenset[ListKind] = frozenset()
        self._is_process = False
        # By caller; under None those for all callers.
        self._listings: dict[str | None, ServerListings] = {}
        self._kept: WeakValueDictionary[bytes, ListedItems[Any, Any]] = WeakValueDictionary()
        self._lists_timer: asyncio.TimerHandle | None = None
        self._qualified: dict[str, str] = {}
        self._subscriptions: dict[Client, asyncio.Task[None]] = {}
        self._held = 0
        self._free = asyncio.Event()
        self._free.set()

    # ------------------------------------------------------------ life

    def hold(self) -> None:
        """Keep it open while a request is about to use it."""
        if not self._held:
            self._free.clear()
        self._held += 1

    def release(self) -> None:
        """Undo one `hold`."""
        self._held -= 1
        if not self._held:
            self._free.set()

    def restart(self) -> None:
        """Start it again for the next call or list, whatever happened before."""
        self.supervisor.restart()
        for listings in self._listings.values():
            listings.mark_stale()

    async def drain(self) -> None:
        """Close it when the last request is done, or after `DRAIN_S`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._free.wait()
        await self._close_listings()
        await self.supervisor.drain(0.0)

    async def close(self) -> None:
        """Close it at once."""
        await self._close_listings()
        await self.supervisor.close()

    async def _close_listings(self) -> None:
        if self._lists_timer is not None:
            self._lists_timer.cancel()
        for listings in list(self._listings.values()):
            await listings.close()
        tasks = list(self._subscriptions.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # ------------------------------------------------------------ listings

    def listings(self, caller: str) -> ServerListings:
        """Its lists, as a caller sees them."""
        if self._early_callers is not None and len(self._early_callers) < 2:
            self._early_callers.add(caller)  # two are enough to know that it is not one
        owner = None if self._is_common else caller
        listings = self._listings.get(owner)
        if listings is None:
            self._forget_one()
            if owner is not None and self._lists_timer is None:
                self._check_lists_later()
            listings = self._listings[owner] = ServerListings(
                self.key,
                self.settings,
                self._fetch,
                lambda: self._has_bare_output,
                lambda kind: self._on_change(self.key, (kind,), owner),
                self._is_notified,
                None if self._review is None else partial(self._review, self),
                self.claim.name_limit,
            )
            listings.kept = self._kept
        listings.was_used = True
        return listings

    @property
    def is_common(self) -> bool:
        """Whether all callers see the same lists, as far as is known."""
        return self._is_common

    @property
    def tasks(self) -> Tasks:
        """The tasks that it has, as far as is known. It has declared only what its revision
        defines."""
        offered = self.capabilities
        if offered is None:
            return Tasks.NONE
        if t.TASKS_EXTENSION_ID in (offered.extensions or ()):
            return Tasks.EXTENSION
        return Tasks.CORE if declares(offered, "tasks.requests.tools.call") else Tasks.NONE

    def owns(self, uri: str) -> bool:
        """Whether the configuration says that a URI is its own."""
        return any(fnmatchcase(uri, pattern) for pattern in self.settings.owns)

    def manifest(self, caller: str) -> ServerManifest | None:
        """What it offers to a caller; None if nothing is known."""
        capabilities = self.capabilities
        if capabilities is None:
            return None
        listings = self.listings(caller)
        return ServerManifest(
            capabilities=capabilities,
            instructions=self.instructions,
            is_common=self._is_common,
            is_process=self._is_process,
            has_bare_output=self._has_bare_output,
            revision=listings.revision,
            tools=listings.own_items("tools"),
            prompts=listings.own_items("prompts"),
            resources=listings.own_items("resources"),
            templates=listings.own_items("templates"),
        )

    def use_manifest(self, manifest: ServerManifest, caller: str | None) -> None:
        """Use what it offered earlier, to a caller or to all, until it is connected."""
        if manifest.is_common != (caller is None) or self.supervisor.sessions:
            return
        if self.settings.is_per_caller and manifest.is_common:
            return  # its configuration has changed
        if self.capabilities is None:
            self.capabilities = manifest.capabilities
            if not self.settings.is_per_caller:
                self.instructions = manifest.instructions
            self._on_opened()
        if self._early_callers is not None:
            self._is_common, self._early_callers = manifest.is_common, None
        self._is_process = self._is_process or manifest.is_process
        self._has_bare_output = manifest.has_bare_output
        self.listings(caller or "").preload(manifest)

    def forget_lists(self) -> None:
        """Use no list that was read before."""
        for owner, one in list(self._listings.items()):
            if one.is_loading:
                one.forget()
            else:
                del self._listings[owner]

    def _check_lists_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._lists_timer = loop.call_later(LISTS_IDLE_S, self._drop_unused_lists)

    def _drop_unused_lists(self) -> None:
        """Drop the lists of callers that are gone. One timer, while there are lists of callers."""
        self._lists_timer = None
        connected = {session.caller for session in self.supervisor.sessions}
        for owner, one in list(self._listings.items()):
            if owner is None or owner in connected or one.is_loading:
                continue
            if one.was_used:
                one.was_used = False
            else:
                del self._listings[owner]
        if any(owner is not None for owner in self._listings):
            self._check_lists_later()

    def _forget_one(self) -> None:
        if len(self._listings) >= MAX_CALLERS:
            idle = (owner for owner, one in self._listings.items() if not one.is_loading)
            self._listings.pop(next(idle, None), None)

    def _is_notified(self, kind: ListKind) -> bool:
        return kind in self._notified or (self._is_process and not self.supervisor.sessions)

    @property
    def problems(self) -> list[str]:
        """What is wrong with it, for people, each once."""
        every = list(self._listings.values())
        found = [*self._warnings, *(message for one in every for message in one.problems)]
        if isinstance(self.failure, NO_RESPONSE):  # one problem, however many lists it affects
            found.insert(0, describe_error(self.failure, self.key))
        return list(dict.fromkeys(found))

    @property
    def failure(self) -> ColonnadeError | None:
        """Why a list failed: the last time that it did not respond, if that is why."""
        found = [one for listings in self._listings.values() for one in listings.failures]
        last = max(found, key=lambda one: (isinstance(one[1], NO_RESPONSE), one[0]), default=None)
        return last[1] if last is not None else None

    def warn(self, message: str) -> None:
        """Add a problem that it goes on with, once."""
        if message not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            log.warning("server %r: %s", self.key, message)
            self._warnings[message] = None

    def plain_name(self, name: str) -> str | None:
        """The name on the server of a qualified name, if that is known without a list."""
        own = name.partition("__")[2]
        is_it = self.claim.qualified(own) == name and is_shown(self.settings, own)
        return own if is_it else None

    @property
    def qualified_prefix(self) -> str:
        """The prefix of all qualified names of this server."""
        return self.claim.qualified("x").partition(BETWEEN)[0] + BETWEEN

    def qualified(self, own: str) -> str:
        """The qualified name of an item, by its name on the server."""
        found = self._qualified.get(own)
        if found is None:
            if len(self._qualified) >= MAX_QUALIFIED:
                self._qualified.clear()
            found = self._qualified[own] = self.claim.qualified(own)
        return found

    def needs_read(self, session: HostedSession, kind: ListKind) -> bool:
        """Whether a list was not reviewed in this very session, or may have changed since: the
        session may be another process than the one that the list was read from."""
        found = session.reviews.get(kind)
        if found is None:
            return True
        if kind in self._notified:
            return False
        return asyncio.get_running_loop().time() >= found[1] + UNNOTIFIED_S

    async def _fetch(
        self,
        method: str,
        caller: str,
        fetch: Callable[[Client, list[Raw]], Awaitable[Sequence[N]]],
        source: ListSource,
    ) -> Sequence[N]:
        async def read_list(call: SessionCall) -> Sequence[N]:
            client = call.client
            self._subscribe(client, call.session.caller)
            pages = source.begin(call.session)
            revision = client.peer.revision
            self._has_bare_output = revision.output_root is OutputRoot.ANY
            needed = revision.methods[method].needs
            if revision.handshake and needed is not None and not client.peer.offers(needed):
                return ()
            try:
                return await fetch(client, pages)
            except RemoteError as error:
                if error.code != revision.codes[FaultKind.METHOD_NOT_FOUND]:
                    raise
                pages.clear()
                return ()  # it has none

        if source.call is not None:
            return await read_list(source.call)
        return await self.supervisor.run_read_only(self._make_request(method, caller), read_list)

    # ------------------------------------------------------------ list_changed

    def _session_opened(self, supervisor: ServerSupervisor, session: HostedSession) -> None:
        """A new session may have other lists than the previous one."""
        if not self.settings.is_per_caller:  # those of one account are not for another
            self.instructions = session.client.instructions
        offered = session.client.peer.capabilities
        if isinstance(offered, t.ServerCapabilities):
            self.capabilities = offered
        self._on_opened()
        self._is_process = session.child is not None
        owner = self._settle_owner(session)
        others = (one for one in supervisor.sessions if one is not session)
        if not any(owner in (None, one.caller) for one in others):
            self._mark_stale(owner)
        self._subscribe(session.client, session.caller)

    def _settle_owner(self, session: HostedSession) -> str | None:
        """Whose lists those of a session are; the revision decides whether they are common."""
        common = self.settings.sharing != "caller" or session.is_shared
        common = common and not self.settings.is_per_caller
        if self._is_common and not common:
            early = self._listings.pop(None, None)
            if early is not None and self._early_callers == {session.caller}:
                # They were read before this was known, but by this caller alone.
                self._listings[session.caller] = early
        self._is_common, self._early_callers = common, None
        return None if common else session.caller

    def _subscribe(self, client: Client, caller: str | None) -> None:
        """Subscribe to `list_changed`, if the server sends it and there is no subscription yet."""
        offered = [
            kinds
            for name, kinds in LIST_CHANGED.items()
            if client.peer.offers(list_changed_capability(name))
        ]
        self._notified = frozenset(kind for kinds in offered for kind in kinds)
        if client not in self._subscriptions and offered:
            task = asyncio.get_running_loop().create_task(self._follow(client, caller))
            self._subscriptions[client] = task
            task.add_done_callback(lambda _: self._subscriptions.pop(client, None))

    async def _follow(self, client: Client, caller: str | None) -> None:
        """Receive `list_changed` for as long as the connection lasts."""
        tools, prompts, resources = (
            client.peer.offers(list_changed_capability(name)) for name in LIST_CHANGED
        )
        owner = None if self._is_common else caller
        with contextlib.suppress(ColonnadeError):  # it has ended, or is not sent after all
            async with client.listen(
                tools=tools, prompts=prompts, resource_list=resources
            ) as changes:
                if client.peer.revision.change_notifications is ChangeNotifications.LISTEN:
                    self._forget_reviews(client)  # a change before this was not announced
                async for change in changes:
                    self._forget_reviews(client)
                    self._list_changed(change, owner)
        self._forget_reviews(client)
        if any(session.client is client for session in self.supervisor.sessions):
            self._mark_stale(owner)  # the connection goes on without the subscription

    def _forget_reviews(self, client: Client) -> None:
        for session in self.supervisor.sessions:
            if session.client is client:
                session.forget_reviews()

    def is_home(self, caller: str) -> bool:
        """Whether this replica has the session of a caller that others are connected to."""
        sessions = self.supervisor.sessions
        return any(one.home is not None and one.caller == caller for one in sessions)

    def expire_lists(self, caller: str, kinds: Sequence[ListKind]) -> bool:
        """Another replica has noticed that lists of a caller have changed: read them again when
        they are next used. False if a session here notices that itself."""
        if any(one.caller == caller for one in self.supervisor.sessions):
            return False
        listings = self._listings.get(None if self._is_common else caller)
        for kind in kinds if listings is not None else ():
            assert listings is not None
            listings.by_kind[kind].expire()
        return True

    def _mark_stale(self, owner: str | None) -> None:
        if owner in self._listings:
            self._listings[owner].mark_stale()

    def _list_changed(self, change: Change, owner: str | None) -> None:
        kinds = LIST_CHANGED.get(change.kind, ())
        for kind in kinds if owner in self._listings else ():
            self._listings[owner].by_kind[kind].expire()
        if kinds:
            self._on_change(self.key, kinds, owner)


# ---------------------------------------------------------------- all servers

# Suggestions for a name that does not exist.
MAX_NEAR = 2
# Servers that one message names.
MAX_NAMED = 20
# A server may list any number of names; this many are compared with one that does not exist.
MAX_COMPARED = 2000

Nameable = Literal["tools", "prompts"]
SINGULAR: dict[Nameable, str] = {"tools": "tool", "prompts": "prompt"}


class ListView(Protocol):
    """What one caller may see. Everything else does not exist for it: errors for what is hidden
    and for what is unknown are the same."""

    def shows_server(self, server: HostedServer) -> bool:
        """Whether the caller may see a server at all."""
        ...

    def shows_item(self, server: HostedServer, kind: ListKind, name: str) -> bool:
        """Whether the caller may see an item, by its name on the server or its URI, as far as that
        is known without its definition."""
        ...

    def visible(
        self, server: HostedServer, kind: ListKind, listed: ListedItems[Any, Any]
    ) -> ListedItems[Any, Any]:
        """The items of a list that the caller may see."""
        ...


class FoundTool(NamedTuple):
    """A tool by its name for a caller: its server, the lists in which it was found, its name there,
    and its arguments that are mirrored in headers."""

    server: HostedServer
    listings: ServerListings
    listed: ListedItems[Any, Any]
    own: str
    param_headers: "tuple[ParamHeader, ...]"


class Generation:
    """The servers of one configuration, in its order, by key.

    `aliases` lead to the key of a server and the name on that server; `problems` are those of the
    configuration.
    """

    def __init__(
        self,
        number: int,
        servers: Mapping[str, HostedServer],
        aliases: Mapping[str, tuple[str, str]],
        problems: Iterable[HostProblem] = (),
    ) -> None:
        self.number = number
        self.servers = servers
        self._aliases = aliases
        self._config_problems = tuple(problems)
        # Of callers who see everything, and of those with a view, for as long as that is kept: a
        # view has its lists, and one client can have a view for each name that it gives itself.
        self._found: dict[str, FoundTool] = {}
        self._found_in: WeakKeyDictionary[ListView, dict[str, FoundTool]] = WeakKeyDictionary()
        self._found_count = 0
        self._by_prefix = {
            one.claim.qualified("x").partition(BETWEEN)[0]: one for one in servers.values()
        }

    def limited_to(self, keys: Collection[str]) -> "Generation":
        """The same with these servers only."""
        return Generation(
            self.number,
            {key: one for key, one in self.servers.items() if key in keys},
            {alias: found for alias, found in self._aliases.items() if found[0] in keys},
            [one for one in self._config_problems if one.server in keys],
        )

    # ------------------------------------------------------------ from a name to a server

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of the qualified names, one for each server."""
        return tuple(self._by_prefix)

    def server_for(
        self, kind: Nameable, name: str, caller: str, view: ListView | None = None
    ) -> HostedServer:
        """The server of a qualified name or alias, whether it has such an item or not. Raises
        `Fault`."""
        alias = self._aliases.get(name)
        server = (
            self.servers.get(alias[0])
            if alias is not None
            else self._by_prefix.get(name.partition(BETWEEN)[0])
        )
        if server is None or view is None:
            is_hidden = False
        else:
            hides_alias = alias is not None and not view.shows_item(server, kind, alias[1])
            is_hidden = hides_alias or not view.shows_server(server)
        if server is None or is_hidden:
            raise self._unknown_name(kind, name, caller, view)
        return server

    def _unknown_name(self, kind: Nameable, name: str, caller: str, view: ListView | None) -> Fault:
        aliases = self._known_aliases(kind, caller, view)
        near = _suggest(name, [*self._known(kind, caller, view), *aliases])
        shown = self._shown(view)
        prefixes = _list_keys([key for key, one in self._by_prefix.items() if one in shown])
        more = near or f"; names begin with the server and '{BETWEEN}'; servers: {prefixes}"
        message = f"there is no {SINGULAR[kind]} {truncate(name)!r}{more}"
        return Fault(FaultKind.INVALID_PARAMS, message)

    def _known_aliases(self, kind: Nameable, caller: str, view: ListView | None) -> list[str]:
        """The aliases, for suggestions: with a view those of items that the caller can see."""
        if view is None:
            return list(self._aliases)
        return [
            alias
            for alias, (key, _) in self._aliases.items()
            if key in self.servers and self._sees(kind, alias, self.servers[key], caller, view)
        ]

    def _sees(
        self, kind: Nameable, name: str, server: HostedServer, caller: str, view: ListView
    ) -> bool:
        if not view.shows_server(server):
            return False
        return self.listed_name(kind, name, server, server.listings(caller), view) is not None

    def tool(self, name: str, caller: str, view: ListView | None = None) -> HostTool | None:
        """The tool of this name or alias, if it has been listed for this caller."""
        try:
            server = self.server_for("tools", name, caller, view)
        except Fault:
            return None
        listed = _content(server, server.listings(caller).tools, "tools", view)
        found = listed.find(name) if listed is not None else None
        return listed.hosted.get(found.name) if listed is not None and found is not None else None

    def find_tool(self, name: str, caller: str, view: ListView | None = None) -> "FoundTool | None":
        """The tool that a caller means, if it is in the present list of its server, as far as the
        caller may see that. Raises `Fault` if there is no such server.

        Nearly all calls name a tool that was called before: what was found in a list of all callers
        is kept for as long as the list is the same: for one view, which does not change.
        """
        kept = self._found_for(view)
        found = kept.get(name)
        if found is not None:
            listings = found.server.listings(caller)
            if listings is found.listings and listings.tools.content is found.listed:
                return found
            self._forget_found()
        server = self.server_for("tools", name, caller, view)
        listings = server.listings(caller)
        listed = listings.tools.content
        visible = _content(server, listings.tools, "tools", view)
        named = visible.find(name) if visible is not None else None
        if listed is None or named is None:
            return None
        found = FoundTool(server, listings, listed, named.own, listed.param_headers(named.name))
        if server.is_common:
            if self._found_count >= MAX_FOUND:
                self._forget_found()
            self._found_count += 1
            self._found_for(view)[name] = found
        return found

    def _found_for(self, view: ListView | None) -> "dict[str, FoundTool]":
        if view is None:
            return self._found
        found = self._found_in.get(view)
        if found is None:
            found = self._found_in[view] = {}
        return found

    def _forget_found(self) -> None:
        self._found.clear()
        self._found_in.clear()
        self._found_count = 0

    def listed_param_headers(
        self, name: str, caller: str, view: "ListView | None" = None
    ) -> "tuple[ParamHeader, ...] | None":
        """The arguments of a tool that are mirrored in headers; empty for a tool that there is not,
        None if its server has to be listed first."""
        try:
            if view is None and (tool := self.find_tool(name, caller)) is not None:
                return tool.param_headers
            server = self.server_for("tools", name, caller, view)
        except Fault:
            return ()
        listed = _content(server, server.listings(caller).tools, "tools", view)
        found = listed.find(name) if listed is not None else None
        return (
            listed.param_headers(found.name) if listed is not None and found is not None else None
        )

    async def param_headers(
        self, name: str, caller: str, view: "ListView | None" = None
    ) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that are mirrored in headers; its server is listed if it was not.
        Empty for a tool that there is not, and if the list fails: the call says why."""
        known = self.listed_param_headers(name, caller, view)
        if known is not None:
            return known
        server = self.server_for("tools", name, caller, view)
        server.hold()
        try:
            await server.listings(caller).tools.fetch(caller)
        except ColonnadeError:
            return ()
        finally:
            server.release()
        return self.listed_param_headers(name, caller, view) or ()

    def listed_name(
        self,
        kind: Nameable,
        name: str,
        server: HostedServer,
        listings: ServerListings,
        view: ListView | None = None,
    ) -> str | None:
        """The name on the server, if the item is in these lists of it."""
        listed = _content(server, listings.by_kind[kind], kind, view)
        found = listed.find(name) if listed is not None else None
        return found.own if found is not None else None

    async def fetch_name(
        self,
        kind: Nameable,
        name: str,
        server: HostedServer,
        caller: str,
        view: ListView | None = None,
    ) -> str:
        """The name on the server, from a list that is requested now. Raises `Fault` if there is
        no such item, `ColonnadeError` if the list fails."""
        unknown: Fault | None = None
        if view is not None and name in self._aliases:
            # An alias of a hidden item must look like a name that no server could have.
            unknown = self._unknown_name(kind, name, caller, view)
        try:
            listed = await server.listings(caller).by_kind[kind].fetch(caller)
        except ChannelError:
            raise
        except ColonnadeError:  # the list is invalid; the item may work all the same
            own = server.plain_name(name)
            # With a view, what is not listed is not called: nothing is known of it.
            if own is None or view is not None:
                raise
            return own
        if view is not None:
            listed = view.visible(server, kind, listed)
        found = listed.find(name)
        if found is None:
            raise unknown or _unlisted(kind, name, server, listed)
        return found.own

    def unknown_item(
        self, kind: Nameable, name: str, server: HostedServer, caller: str, view: ListView
    ) -> Fault:
        """The error for an item that its caller could see when its name was resolved, and cannot
        any more: that of a name which does not exist."""
        listed = _content(server, server.listings(caller).by_kind[kind], kind, view)
        if name in self._aliases or listed is None or not view.shows_server(server):
            return self._unknown_name(kind, name, caller, view)
        return _unlisted(kind, name, server, listed)

    def server(self, key: str, view: ListView | None = None) -> HostedServer:
        """The server of this key. Raises `Fault`."""
        found = self.servers.get(key)
        if found is None or not (view is None or view.shows_server(found)):
            keys = [one.key for one in self._shown(view)]
            near = _suggest(key, keys) or f"; servers: {_list_keys(keys)}"
            raise Fault(FaultKind.INVALID_PARAMS, f"there is no server {truncate(key)!r}{near}")
        return found

    async def server_for_uri(
        self,
        uri: str,
        caller: str,
        wait_s: float,
        view: ListView | None = None,
        *,
        below: bool = False,
    ) -> HostedServer:
        """The server that lists a resource, or a template that matches its URI, or with `below`
        resources below it. Raises `Fault` if there is none, or more than one."""
        owners = [one for one in self.servers.values() if one.owns(uri)]
        if len(owners) == 1 and (
            view is None
            or (view.shows_server(owners[0]) and view.shows_item(owners[0], "resources", uri))
        ):
            return owners[0]
        search = ResourceSearch(
            uri,
            lambda kind: {one: one.listings(caller).by_kind[kind] for one in self._shown(view)},
            lambda server, kind, listing: _content(server, listing, kind, view),
            lambda server: view is None or view.shows_item(server, "resources", uri),
        )
        found = await search.run(caller, wait_s, below=below)
        servers = found.servers
        if len(servers) == 1:
            return servers[0]
        if servers:
            keys = _list_keys([one.key for one in servers])
            message = f"several servers have the resource {truncate(uri)!r}: {keys}"
            raise Fault(FaultKind.INVALID_PARAMS, message, hint="pass server= to choose one")
        more = (
            f"; could not be listed: {_list_keys([one.key for one in found.failed])}"
            if found.failed
            else ""
        )
        if found.untried:
            keys = _list_keys([one.key for one in found.untried])
            more += f"; has too many templates to search: {keys}"
        raise unlisted_resource(uri, more)

    # ------------------------------------------------------------ lists of all servers

    def _shown(self, view: ListView | None) -> list[HostedServer]:
        servers = self.servers.values()
        return [one for one in servers if view is None or view.shows_server(one)]

    async def gather(
        self,
        kind: ListKind,
        caller: str,
        wait_s: float,
        *,
        fresh: bool = False,
        view: ListView | None = None,
    ) -> dict[HostedServer, Listing[ListedItems[Any, Any]]]:
        """One list of every server that the caller may see, requested concurrently; some may have
        no content. The content is that of all callers: `visible_lists` is for one."""
        servers = self._shown(view)
        found = await self._gather_once(servers, kind, caller, wait_s, fresh=fresh)
        if any(one.listings(caller).by_kind[kind] is not listing for one, listing in found.items()):
            # This has started a server which has separate lists for each caller.
            found = await self._gather_once(servers, kind, caller, wait_s)
        return found

    def visible_lists(
        self,
        gathered: Mapping[HostedServer, Listing[ListedItems[Any, Any]]],
        kind: ListKind,
        view: ListView | None,
    ) -> list[ListedItems[Any, Any]]:
        """What a caller may see of the lists that `gather` has returned."""
        found = (_content(one, listing, kind, view) for one, listing in gathered.items())
        return [listed for listed in found if listed is not None]

    async def _gather_once(
        self,
        servers: Sequence[HostedServer],
        kind: ListKind,
        caller: str,
        wait_s: float,
        *,
        fresh: bool = False,
    ) -> dict[HostedServer, Listing[ListedItems[Any, Any]]]:
        listings = {one: one.listings(caller).by_kind[kind] for one in servers}
        missing = [listing for listing in listings.values() if fresh or not listing.is_fresh]
        if len(missing) == 1:
            await missing[0].get(caller, wait_s, fresh=fresh)
        elif missing:
            await asyncio.gather(*(one.get(caller, wait_s, fresh=fresh) for one in missing))
        return listings

    def cached_lists(
        self, kind: ListKind, caller: str, view: ListView | None = None
    ) -> list[ListedItems[Any, Any]]:
        """One list of every server, if it has been read; without a request."""
        found = (
            _content(one, one.listings(caller).by_kind[kind], kind, view)
            for one in self._shown(view)
        )
        return [listed for listed in found if listed is not None]

    @property
    def failures(self) -> dict[str, ColonnadeError]:
        """Why servers could not be listed the last time, by key."""
        found = ((key, one.failure) for key, one in self.servers.items())
        return {key: failure for key, failure in found if failure is not None}

    @property
    def problems(self) -> list[HostProblem]:
        """What is wrong with the configuration and with each server."""
        known = {problem.message for problem in self._config_problems}
        found = list(self._config_problems)
        for one in self.servers.values():
            new = [message for message in one.problems if message not in known]
            if new:
                found.append(HostProblem(one.key, "; ".join(new), one.entry.place))
        return found

    def _known(self, kind: Nameable, caller: str, view: ListView | None) -> list[str]:
        return [name for listed in self.cached_lists(kind, caller, view) for name in listed.items]


def _unlisted(
    kind: Nameable, name: str, server: HostedServer, listed: ListedItems[Any, Any]
) -> Fault:
    near = _suggest_own(name, listed) or f"; list the {kind} to see their names"
    message = f"server {server.key!r} has no {SINGULAR[kind]} {truncate(name)!r}{near}"
    return Fault(FaultKind.INVALID_PARAMS, message)


def unlisted_resource(uri: str, more: str = "") -> Fault:
    """The error for a resource that no server lists, or that is hidden from the caller."""
    message = f"no server lists the resource {truncate(uri)!r}{more}"
    hint = "pass server= to read it anyway"
    return Fault(FaultKind.RESOURCE_MISSING, message, {"uri": uri}, hint=hint)


def _content(
    server: HostedServer,
    listing: Listing[ListedItems[Any, Any]],
    kind: ListKind,
    view: ListView | None,
) -> ListedItems[Any, Any] | None:
    """The content of a list, as far as the caller may see it."""
    content = listing.content
    return content if content is None or view is None else view.visible(server, kind, content)


def _suggest(wanted: str, names: Iterable[str]) -> str:
    near = close_matches(truncate(wanted), islice(names, MAX_COMPARED), MAX_NEAR)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def _suggest_own(wanted: str, listed: ListedItems[Any, Any]) -> str:
    """The same within one server, where all names have the same prefix."""
    rests = {name.partition(BETWEEN)[2]: name for name in listed.items}
    near = closest(truncate(wanted.partition(BETWEEN)[2]), islice(rests, MAX_COMPARED))
    return f"; did you mean {rests[near]!r}?" if near else ""


def _list_keys(keys: Collection[str]) -> str:
    """Some keys, for people, and for models that pay for every word."""
    named = ", ".join(map(repr, islice(keys, MAX_NAMED))) or "none"
    return named if len(keys) <= MAX_NAMED else f"{named} and {len(keys) - MAX_NAMED} others"
