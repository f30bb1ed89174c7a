"""Listings: the cached lists of one server (tools, prompts, resources, resource templates).

Each list is read for one caller, or for all callers that see the same. It is read again when the
server sends `list_changed`, after a while if it does not send that, and when a caller asks for a
fresh one.

Rules: nothing that a server lists is changed but names. What the configuration hides has no name,
and so cannot be called. What one caller is shown was listed for that caller.
"""

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from hashlib import sha256
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
)
from weakref import WeakValueDictionary

from msgspec import Raw
from msgspec.structs import asdict, replace

from colonnade.client.cache import NO_HINTS, CacheHints, cache_hints
from colonnade.client.client import SCHEMAS_S, Client
from colonnade.client.tools import ListedTool, ToolSchemas
from colonnade.errors import (
    AuthError,
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    LocalProtocolError,
    Refused,
    RemoteError,
    RemoteProtocolError,
    TimedOut,
)
from colonnade.host.config.settings import Settings
from colonnade.host.servers.manifest import ServerManifest
from colonnade.host.servers.naming import NAME_LIMIT, NameIndex, QualifiedName
from colonnade.host.servers.session import HostedSession, SessionCall
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.forwarded import RawItem, raw_item_steps
from colonnade.protocol.json_checks import DECODE_ERRORS
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.revision import EVERY, Revision
from colonnade.protocol.schema.validate import Validator

if TYPE_CHECKING:  # few tools mirror arguments
    from colonnade.protocol.http.param_headers import ParamHeader

log: logging.Logger = logging.getLogger("colonnade.host")

ListKind: TypeAlias = Literal["tools", "prompts", "resources", "templates"]

LIST_TYPES: Mapping[ListKind, type[t.ProtocolType]] = {
    "tools": t.ListToolsResult,
    "prompts": t.ListPromptsResult,
    "resources": t.ListResourcesResult,
    "templates": t.ListResourceTemplatesResult,
}

# How long a list of all servers waits for one server. A server that has to be installed first goes
# on starting, and is there the next time.
WAIT_S = 20.0
# The same limit for clients of a gateway: they wait for several lists before they begin, and
# `list_changed` announces later items.
CLIENT_WAIT_S = 2.0
# A server that could not be listed is not asked again for this long, unless a fresh list is wanted.
RETRY_S = 30.0
# The lifetime of a list of a server that does not send `list_changed`.
UNNOTIFIED_S = 60.0
# A name that is not in a list causes no further request within this time: models invent names
# faster than servers add tools.
REFETCH_S = 5.0

# Items of one list that are held and named in `problems`.
MAX_PROBLEMS = 10
# A list that changes while it is read is read this often before a call is refused.
MAX_READS = 3

# The server is not reachable, whichever list is requested.
UNREACHABLE = (CannotConnect, ConnectionLost, AuthError, LocalProtocolError, Refused)
# The same and other transport errors: one message is enough for all lists.
NO_RESPONSE = (*UNREACHABLE, ChannelError)


# ---------------------------------------------------------------- public types


class HostTool(ListedTool, kw_only=True):
    """A tool of one of the servers of a host. `name` is its qualified name, `server` the key of its
    server, `original` its name on that server; `aliases` are further names for it."""

    server: str
    original: str
    aliases: tuple[str, ...] = ()

    @classmethod
    def from_listed(
        cls, tool: t.Tool, server: str, original: str, aliases: tuple[str, ...] = ()
    ) -> "HostTool":
        """The tool that a server lists, with its server."""
        return cls(**asdict(tool), server=server, original=original, aliases=aliases)


class HostPrompt(t.Prompt, kw_only=True):
    """A prompt of one of the servers of a host; the names are as those of a tool."""

    server: str
    original: str
    aliases: tuple[str, ...] = ()

    @classmethod
    def from_listed(
        cls, prompt: t.Prompt, server: str, original: str, aliases: tuple[str, ...] = ()
    ) -> "HostPrompt":
        """The prompt that a server lists, with its server."""
        return cls(**asdict(prompt), server=server, original=original, aliases=aliases)


class HostResource(t.Resource, kw_only=True):
    """A resource of one of the servers of a host, under the URI that the server gave it."""

    server: str

    @classmethod
    def from_listed(cls, resource: t.Resource, server: str) -> "HostResource":
        """The resource that a server lists, with its server."""
        return cls(**asdict(resource), server=server)


class HostResourceTemplate(t.ResourceTemplate, kw_only=True):
    """A resource template of one of the servers of a host."""

    server: str

    @classmethod
    def from_listed(cls, template: t.ResourceTemplate, server: str) -> "HostResourceTemplate":
        """The resource template that a server lists, with its server."""
        return cls(**asdict(template), server=server)


# By list: the type of its items, and that for programs.
_ITEM_TYPES: Mapping[ListKind, tuple[type[t.ProtocolType], Any]] = {
    "tools": (t.Tool, HostTool),
    "prompts": (t.Prompt, HostPrompt),
    "resources": (t.Resource, HostResource),
    "templates": (t.ResourceTemplate, HostResourceTemplate),
}


def _key_of(kind: ListKind, item: Any) -> str:
    """What names an item on its server."""
    if kind == "templates":
        return item.uri_template
    return item.uri if kind == "resources" else item.name


# ---------------------------------------------------------------- cooperative steps

# How long the event loop is blocked at a time; a timer may be late by two of them.
SLICE_S = 0.002

S = TypeVar("S")
# Work that yields between its steps.
Steps: TypeAlias = Generator[None, None, S]


def run_to_completion(steps: Steps[S]) -> S:
    """Do all steps without a pause and return the result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: S = end.value
        return result


async def run_cooperatively(steps: Steps[S]) -> S:
    """Do all steps in time slices, between which the event loop runs, and return the result."""
    now = asyncio.get_running_loop().time
    until = now() + SLICE_S
    try:
        while True:
            next(steps)
            if now() >= until:
                await asyncio.sleep(0)
                until = now() + SLICE_S
    except StopIteration as end:
        result: S = end.value
        return result


# ---------------------------------------------------------------- one list


class Comparable(Protocol):
    """The content of a listing."""

    def equals(self, other: Any) -> bool:
        """Whether the other has the same items."""
        ...


T = TypeVar("T", bound=Comparable)


class ServerWait:
    """The time since which callers wait for a server that has not answered; None if no caller
    waits. The lists of a server share this object, so a server that hangs delays a client once, not
    once for each list."""

    __slots__ = ("since",)

    def __init__(self) -> None:
        self.since: float | None = None


class Listing(Generic[T]):
    """The cached list of one server. `what` names it in errors; `fetch` requests it from the server
    for a caller, within `limit_s`, on the session of a call if one is given; `on_change` is called
    when a new list differs from the one that callers have seen; `is_notified` is whether the server
    sends `list_changed` for it; `wait` is shared by all lists of the server."""

    def __init__(
        self,
        server: str,
        what: str,
        fetch: Callable[[str, SessionCall | None], Awaitable[T]],
        limit_s: float,
        on_change: Callable[[], None],
        is_notified: Callable[[], bool],
        wait: ServerWait,
    ) -> None:
        self.content: T | None = None
        self.error: ColonnadeError | None = None
        self._server = server
        self._what = f"the {what} of server {server!r}"
        self._fetch = fetch
        self._limit_s = limit_s
        self._on_change = on_change
        self._is_notified = is_notified
        self._wait = wait
        self._is_stale = True
        # A caller wanted it and did not get it; `on_change` was called for the change already.
        self._was_missed = False
        self._was_notified = False
        self._changes = 0
        self.failed_at: float = 0.0
        self._fetched_at = -REFETCH_S
        self._started_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used without a request."""
        if self._is_stale:
            return False
        return self._is_notified() or _now() < self._fetched_at + UNNOTIFIED_S  # R1006, R1013

    @property
    def is_loading(self) -> bool:
        """Whether it is being requested."""
        return self._task is not None

    def preload(self, content: T) -> None:
        """Use a list that was read earlier, if there is none yet."""
        if self.content is None and self._task is None:
            self.content = content
            self._is_stale = False
            self._fetched_at = _now()

    def expire(self) -> None:
        """The server has sent `list_changed`, and `on_change` callbacks know: read it again when it
        is next used."""
        self._is_stale = self._was_notified = True
        self._changes += 1
        self.error = None

    def mark_stale(self) -> None:
        """It may have changed without a notification: read it again when it is next used."""
        self._is_stale = True
        self.error = None

    def request(self, caller: str, *, fresh: bool = False) -> "asyncio.Task[None] | None":
        """The task that requests the list; None if a usable list is cached, or the last request
        failed recently."""
        if self.is_fresh and not fresh:
            return None
        if self._task is None:
            if self.error is not None and not fresh and _now() < self.failed_at + RETRY_S:
                return None
            self._start(caller)
        return self._task

    async def get(self, caller: str, wait_s: float, *, fresh: bool = False) -> T | None:
        """The list, within a time limit; the previous list if no newer one has arrived by then. The
        time counts from the first request to a server that has not answered yet.

        Never raises: `problem` says what went wrong.
        """
        task = self.request(caller, fresh=fresh)
        if task is None:
            return self.content
        since = self._started_at if self._wait.since is None else self._wait.since
        seconds = min(since, self._started_at) + wait_s - _now()
        if seconds > 0:
            await asyncio.wait([task], timeout=seconds)
        if self.content is None:
            self._was_missed = True
        return self.content

    async def fetch(self, caller: str) -> T:
        """The current list, however long it takes; one that was read within `REFETCH_S` counts as
        current. Raises what went wrong."""
        if self._is_stale or _now() >= self._fetched_at + REFETCH_S:
            if self._task is None:
                self._start(caller)
            assert self._task is not None
            await asyncio.wait([self._task])
        if self.error is not None or self.content is None:
            message = f"{self._what} cannot be listed: the server was closed meanwhile"
            error = self.error or ConnectionLost(message, server=self._server)
            raise error.with_traceback(None)
        return self.content

    async def fetch_on(self, call: SessionCall, caller: str, kind: ListKind) -> None:
        """Read the list on the session of a call, until that has been reviewed there. Raises what
        went wrong, and `Refused` if the list changes all the time."""
        for _ in range(MAX_READS):
            if self._task is None:
                self._start(caller, call)
            assert self._task is not None
            await asyncio.wait([self._task])
            if kind in call.session.reviews:
                return
            if self.error is not None:
                raise self.error.with_traceback(None)
        message = f"{self._what} changed each time that they were read"
        raise Refused(message, server=self._server, reason="definition")

    def share_error(self, error: ColonnadeError) -> None:
        """Another list of the server failed because it is not reachable: do not request this one
        either."""
        if self._is_stale and self._task is None:
            self._fail(error)

    @property
    def is_late(self) -> bool:
        """Whether a caller has gone on without it, and it may still arrive."""
        return self.error is None and self.content is None and self._was_missed

    @property
    def has_failed(self) -> bool:
        """Whether the list is missing, or was not renewed."""
        return self.error is not None or self.content is None

    @property
    def problem(self) -> str | None:
        """What is wrong, for people; None if nothing is."""
        if self.is_late:
            return f"{self._what} are not available yet; list them again later"
        return describe_error(self.error, self._server) if self.error is not None else None

    def _start(self, caller: str, call: SessionCall | None = None) -> None:
        self._started_at = _now()
        if self._wait.since is None:
            self._wait.since = self._started_at
        self._task = asyncio.get_running_loop().create_task(self._run(caller, call))

    async def _run(self, caller: str, call: SessionCall | None) -> None:
        changes = self._changes
        try:
            async with asyncio.timeout(self._limit_s):
                content = await self._fetch(caller, call)
        except TimeoutError:
            message = f"{self._what} could not be listed within {self._limit_s:g} s"
            self._fail(TimedOut(message, server=self._server))
        except Fault as fault:
            message = f"{self._what} cannot be decoded: {fault.message}"
            self._fail(RemoteProtocolError(message, server=self._server))
        except RemoteError as error:
            self._fail(self._named(error))
        except ColonnadeError as error:
            self._fail(error)
        except Exception as error:
            log.error("%s cannot be listed", self._what, exc_info=error)
            message = f"{self._what} cannot be listed: {error}"
            self._fail(ColonnadeError(message, server=self._server))
        else:
            self._keep(content, changes)
        finally:
            self._task = self._wait.since = None

    def _named(self, error: RemoteError) -> RemoteError:
        """The error with the list and the server in its message, which seldom has them itself."""
        if error.server is not None:
            return error
        named = error.copy()  # several lists may have the same error
        named.args = (f"{self._what} cannot be listed: {error.summary}",)
        named.server = self._server
        return named

    def _keep(self, content: T, changes: int) -> None:
        differs = self._was_missed if self.content is None else not content.equals(self.content)
        should_notify = differs and not self._was_notified
        self.content, self.error = content, None
        self._is_stale = changes != self._changes
        self._was_missed, self._was_notified = False, self._is_stale
        self._fetched_at = _now()
        if should_notify:
            self._on_change()

    def _fail(self, error: ColonnadeError) -> None:
        self.error = error
        self.failed_at = _now()

    async def close(self) -> None:
        """Cancel the request, if there is one."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def describe_error(error: ColonnadeError, server: str) -> str:
    """The message of an error, with the key of its server."""
    return str(error) if error.server == server else f"server {server!r}: {error}"


def _now() -> float:
    return asyncio.get_running_loop().time()


# ---------------------------------------------------------------- the lists of a server

N = TypeVar("N", bound=t.ProtocolType)
H = TypeVar("H", bound=t.ProtocolType)


class DefinitionReview(Protocol):
    """What the review of pinned definitions found in a list."""

    @property
    def held(self) -> Mapping[str, object]:
        """The items that are not used, by their names on the server."""
        ...

    def problems(self, server: str) -> list[str]:
        """What is held, for people."""
        ...


class ListedItems(Generic[H, N]):
    """The items of one list: `items` for clients that connect to the host, `hosted` for programs,
    both by qualified name or URI. `names` has the qualified names, for tools and prompts, and
    `definitions` the items as the server wrote them, if the list was reviewed; `review` is what
    the review of pinned definitions found. `hints` are the cache hints that came with the list.
    `raw` has the bytes of items that are shown as the server wrote them, by the identity of the
    item."""

    def __init__(
        self,
        hosted: Mapping[str, H],
        items: Mapping[str, N],
        names: NameIndex | None = None,
        hints: CacheHints = NO_HINTS,
        definitions: Mapping[str, N] | None = None,
        review: DefinitionReview | None = None,
    ) -> None:
        self.hosted = hosted
        self.items = items
        self.review: DefinitionReview | None = review
        self.names = names
        self.definitions: Mapping[str, N] = items if definitions is None else definitions
        self.hints = hints
        self.raw: Mapping[int, RawItem] = {}
        # In a list of tools: the schemas of all tools of the server.
        self.schemas: ToolSchemas | None = None
        # When it was read, for the age of the hints.
        self.read_at: float = _now()
        self._param_headers: dict[str, tuple[ParamHeader, ...]] = {}
        self._first: ListedItems[H, N] | None = None

    def digest_steps(self, listed: Sequence[Any]) -> Steps[bytes]:
        """The digest of these items, of the list that they were made from, and of their bytes.
        Lists with the same digest differ only in `review` and `hints`."""
        found = sha256()
        for one in listed:
            found.update(encode(one) + b"\n")
            yield
        problems = self.names.problems if self.names is not None else ()
        found.update(encode([one.message for one in problems]))
        for name, item in self.items.items():
            raw = self.raw.get(id(item))
            written = [raw.revision.date, raw.raw] if raw is not None else None
            found.update(encode([name, self.hosted[name], written]) + b"\n")
            yield
        return found.digest()

    def shared_by(self, other: "ListedItems[H, N]") -> "ListedItems[H, N]":
        """A copy of `other`, an equal list, that shares the items of this list."""
        shared = ListedItems(
            self.hosted, self.items, self.names, other.hints, self.definitions, other.review
        )
        shared.raw, shared.schemas = self.raw, self.schemas
        shared._param_headers, shared._first = self._param_headers, self
        return shared

    def keep_raw(
        self,
        written: Mapping[str, Raw],
        revision: Revision,
        may_pass: Callable[[Raw], bool] | None,
    ) -> Steps[None]:
        """Keep the bytes of items, by their names or URIs on the server."""
        found: dict[int, RawItem] = {}
        own = {uri: uri for uri in self.items}
        if self.names is not None:
            own = {name.name: name.own for name in self.names}
        for name, item in self.items.items():
            raw = written.get(own[name])
            if raw is not None and (may_pass is None or may_pass(raw)):
                qualified = name if self.names is not None else None
                found[id(item)] = RawItem(item, raw, revision, qualified)
            yield
        self.raw = found

    def param_headers(self, name: str) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that are mirrored in headers, by its qualified name."""
        found = self._param_headers.get(name)
        if found is None:
            from colonnade.protocol.http.param_headers import param_headers

            schema: Any = getattr(self.items.get(name), "input_schema", None)
            found = self._param_headers[name] = param_headers(schema) if schema else ()
        return found

    def find(self, name: str) -> QualifiedName | None:
        """What a qualified name or an alias stands for."""
        return self.names.find(name) if self.names is not None else None

    def equals(self, other: "ListedItems[H, N]") -> bool:
        """Whether the other has the same items, and the same of them are held."""
        return self.items == other.items and self._held == other._held

    @property
    def _held(self) -> Mapping[str, object]:
        return self.review.held if self.review is not None else {}

    @property
    def known(self) -> Collection[str]:
        """The names or URIs that the caller may know of."""
        return self.items


class VisibleItems(ListedItems[H, N]):
    """The items of one list that a caller may see (`shown`), and the names that it knows (`named`);
    the others do not exist for it."""

    def __init__(
        self, listed: ListedItems[H, N], shown: Collection[str], named: Collection[str]
    ) -> None:
        self._named = named
        hosted = {name: one for name, one in listed.hosted.items() if name in shown}
        items = {name: one for name, one in listed.items.items() if name in shown}
        super().__init__(
            hosted, items, listed.names, listed.hints, listed.definitions, listed.review
        )
        self.read_at: float = listed.read_at
        self.raw: Mapping[int, RawItem] = listed.raw

    def find(self, name: str) -> QualifiedName | None:
        """What a qualified name or an alias stands for, if the caller knows it."""
        found = super().find(name)
        return found if found is not None and found.name in self._named else None

    @property
    def known(self) -> Collection[str]:
        """Those that the caller may see, and those whose definition is not accepted."""
        return self._named


def with_servers(
    items: Iterable[N], lists: Iterable[ListedItems[H, N]], key: Callable[[N], str]
) -> list[H]:
    """The items of a result with their servers; items that a middleware has changed stay changed,
    and items that no server lists are left out. `key` is the name or URI of an item."""
    unchanged: dict[int, H] = {}
    hosted: dict[str, H] = {}
    for listed in lists:
        unchanged |= {id(item): listed.hosted[name] for name, item in listed.items.items()}
        hosted = {**listed.hosted, **hosted}
    result: list[H] = []
    for item in items:
        same = unchanged.get(id(item))
        if same is not None:
            result.append(same)
        elif (origin := hosted.get(key(item))) is not None:
            result.append(replace(origin, **asdict(item)))
    return result


class ListSource:
    """Where a list was read: its pages, as they were sent, and the session. If a `call` is given,
    it is read on the session of that."""

    def __init__(self, call: SessionCall | None = None) -> None:
        self.call = call
        self.pages: list[Raw] = []
        self.session: HostedSession | None = None
        self._changes = 0

    def begin(self, session: HostedSession) -> list[Raw]:
        """It is about to be read on a session; returns the list for its pages."""
        self.session, self._changes = session, session.list_changes
        self.pages.clear()
        return self.pages

    def reviewed(self, kind: ListKind, review: object) -> None:
        """The list of this session has been reviewed, unless it has changed meanwhile."""
        session = self.session
        if session is not None and session.list_changes == self._changes and review is not None:
            session.reviews[kind] = review, _now()


class ReviewedItems(NamedTuple):
    """A list after its review: the items to show in its place, and what the review of pinned
    definitions found. `may_pass` is whether the bytes of an item may be passed on in its place; all
    of them without it."""

    items: Sequence[Any]
    review: DefinitionReview | None = None
    may_pass: Callable[[Raw], bool] | None = None


# Reviews a list that has just been read, for a caller.
ReviewList: TypeAlias = Callable[
    [ListKind, str, Sequence[Any], ListSource], Awaitable[ReviewedItems]
]


class FetchList(Protocol):
    """Requests a list from a server: by which method, for which caller, and how a client does
    it."""

    def __call__(
        self,
        method: str,
        caller: str,
        fetch: Callable[[Client, list[Raw]], Awaitable[Sequence[N]]],
        source: ListSource,
    ) -> Awaitable[Sequence[N]]: ...


class ServerListings:
    """The four lists of a server. `has_bare_output` is whether its structured content needs no
    wrapper; `on_change` is called when a list differs from the one that callers have seen, and
    `is_notified` is for which lists the server sends `list_changed`. `review` is called with each
    list before it is used. No name is longer than `name_limit`."""

    def __init__(
        self,
        key: str,
        settings: Settings,
        fetch: FetchList,
        has_bare_output: Callable[[], bool],
        on_change: Callable[[ListKind], None],
        is_notified: Callable[[ListKind], bool],
        review: ReviewList | None = None,
        name_limit: int = NAME_LIMIT,
    ) -> None:
        self._key = key
        self._name_limit = name_limit
        self._settings = settings
        self._review = review
        self._fetch = fetch
        self._has_bare_output = has_bare_output
        self._on_change = on_change
        self._is_notified = is_notified
        # Lists of this server that are in use, by digest: callers with equal lists share one. A
        # server with thousands of tools sends the same list to nearly all callers.
        self.kept: WeakValueDictionary[bytes, ListedItems[Any, Any]] = WeakValueDictionary()
        self._schemas = ToolSchemas(key)
        self._wait = ServerWait()
        # Whether it was used since the last look for lists that are not.
        self.was_used: bool = True
        self.tools: Listing[ListedItems[HostTool, t.Tool]]
        self.prompts: Listing[ListedItems[HostPrompt, t.Prompt]]
        self.resources: Listing[ListedItems[HostResource, t.Resource]]
        self.templates: Listing[ListedItems[HostResourceTemplate, t.ResourceTemplate]]
        self.tools = self._listing("tools", "tools", self._list_tools)
        self.prompts = self._listing("prompts", "prompts", self._list_prompts)
        self.resources = self._listing("resources", "resources", self._list_resources)
        self.templates = self._listing("templates", "resource templates", self._list_templates)
        self.by_kind: Mapping[ListKind, Listing[ListedItems[Any, Any]]] = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "templates": self.templates,
        }

    def _listing(
        self, kind: ListKind, what: str, fetch: Callable[[str, ListSource], Awaitable[Any]]
    ) -> Listing[Any]:
        async def fetch_or_share_error(caller: str, call: SessionCall | None) -> Any:
            try:
                return await fetch(caller, ListSource(call))
            except UNREACHABLE as error:  # one attempt to start it is enough for all lists
                for listing in self.by_kind.values():
                    listing.share_error(error)
                raise

        limit_s = self._settings.start_s + self._settings.timeout_s
        return Listing(
            self._key,
            what,
            fetch_or_share_error,
            limit_s,
            lambda: self._on_change(kind),
            lambda: self._is_notified(kind),
            self._wait,
        )

    # ------------------------------------------------------------ manifests

    def own_items(self, kind: ListKind) -> list[Raw] | None:
        """A list as the server has sent it, as far as it is shown; None if it was not read."""
        listed = self.by_kind[kind].content
        if listed is None:
            return None
        found: list[Raw] = []
        for name, item in listed.items.items():
            written = listed.raw.get(id(item))
            if written is not None:
                found.append(written.raw)
                continue
            if listed.names is not None:
                item = replace(item, name=listed.hosted[name].original)
            found.append(Raw(encode(item)))
        return found

    @property
    def revision(self) -> str | None:
        """The revision of the server that wrote the items of all lists; None if it is not one."""
        contents = [one.content for one in self.by_kind.values() if one.content is not None]
        found = {raw.revision.date for content in contents for raw in content.raw.values()}
        return found.pop() if len(found) == 1 else None

    def preload(self, manifest: ServerManifest) -> None:
        """Use the lists of a manifest, until the server is asked. Raises `Fault` for an item that
        is not valid."""
        revision = EVERY.get(manifest.revision) if manifest.revision is not None else None
        for kind, (item_type, host_type) in _ITEM_TYPES.items():
            written: list[Raw] | None = getattr(manifest, kind)
            if written is None:
                continue
            items: list[Any] = [decode_as(item_type, raw) for raw in written]
            named = kind in ("tools", "prompts")
            steps = self._name_steps if named else partial(self._uri_steps, kind)
            listed: ListedItems[Any, Any] = run_to_completion(steps(items, host_type))
            if revision is not None:
                raws = {_key_of(kind, one): raw for one, raw in zip(items, written, strict=True)}
                run_to_completion(listed.keep_raw(raws, revision, None))
            listed = run_to_completion(self._kept_once(listed, items))
            if kind == "tools":
                self._keep_schemas(listed, items)
            self.by_kind[kind].preload(listed)

    # ------------------------------------------------------------ all lists

    def mark_stale(self) -> None:
        """All lists may have changed."""
        for listing in self.by_kind.values():
            listing.mark_stale()

    def forget(self) -> None:
        """Drop all lists that were read; those that are being requested are not."""
        for listing in self.by_kind.values():
            listing.content = None
            listing.mark_stale()

    @property
    def is_loading(self) -> bool:
        """Whether a list is being requested."""
        return any(listing.is_loading for listing in self.by_kind.values())

    async def close(self) -> None:
        """Cancel all requests."""
        for listing in self.by_kind.values():
            await listing.close()

    @property
    def failures(self) -> list[tuple[float, ColonnadeError]]:
        """The errors of the lists that failed, and when they did."""
        every = self.by_kind.values()
        return [(one.failed_at, one.error) for one in every if one.error is not None]

    @property
    def problems(self) -> list[str]:
        """What is wrong apart from a server that does not respond, for people."""
        responding = [
            one for one in self.by_kind.values() if not isinstance(one.error, NO_RESPONSE)
        ]
        found = [one.problem for one in responding if one.problem is not None]
        if sum(one.is_late for one in responding) > 1:
            late = f"server {self._key!r} has not answered yet; list it again later"
            failed = [one.error for one in responding if one.error is not None]
            found = [late, *(describe_error(error, self._key) for error in failed)]
        for listing in (self.tools, self.prompts):
            names = listing.content.names if listing.content is not None else None
            found += [one.message for one in (names.problems if names is not None else ())]
        for listing in self.by_kind.values():
            review = listing.content.review if listing.content is not None else None
            found += review.problems(self._key)[:MAX_PROBLEMS] if review is not None else ()
        return found

    # ------------------------------------------------------------ results of tools

    def tool(self, own: str) -> t.Tool | None:
        """The tool of this name on the server, as it was last listed; None if it was not."""
        listed = self.tools.content
        found = listed.names.of(self._key, own) if listed is not None and listed.names else None
        return listed.items[found.name] if listed is not None and found is not None else None

    def output(self, tool: str) -> Validator | None:
        """The validator of the output schema of a tool, by its name on the server."""
        return self._schemas.output(tool)

    async def learn_schemas(self, caller: str) -> None:
        """List the tools for their output schemas, if they have not been listed."""
        if not self._schemas.listed:
            await self.tools.get(caller, min(SCHEMAS_S, self._settings.timeout_s))

    def is_wrapped(self, tool: str, result: t.CallToolResult) -> bool:
        """Whether the value of a result that looks wrapped is wrapped, by the output schema."""
        return self._schemas.wraps(tool, result.meta or {}, bare=self._has_bare_output())

    # ------------------------------------------------------------ requests

    async def _list_tools(self, caller: str, source: ListSource) -> ListedItems[HostTool, t.Tool]:
        def fetch(client: Client, pages: list[Raw]) -> Awaitable[Sequence[ListedTool]]:
            return client.list_tools(fresh=True, pages=pages)

        tools = await self._fetch("tools/list", caller, fetch, source)
        items = await self._by_name("tools", caller, tools, HostTool, source)
        schemas = self._keep_schemas(items, tools)
        if source.session is not None:
            source.session.client.share_schemas(tools, schemas)
        return items

    def _keep_schemas(
        self, items: ListedItems[HostTool, t.Tool], tools: Sequence[t.Tool]
    ) -> ToolSchemas:
        """Use the tool schemas of this list from now on, or the schemas of an equal list in
        memory."""
        if items.schemas is None:
            items.schemas = ToolSchemas(self._key)
            items.schemas.update(tools, mirrors=False)
        self._schemas = items.schemas
        return self._schemas

    def _kept_once(
        self, items: ListedItems[Any, Any], listed: Sequence[Any]
    ) -> Steps[ListedItems[Any, Any]]:
        """The list, sharing the items of an equal list if one is in memory. `listed` is the
        server's result that the items were made from."""
        digest = yield from items.digest_steps(listed)
        first = self.kept.setdefault(digest, items)
        return items if first is items else first.shared_by(items)

    async def _list_prompts(
        self, caller: str, source: ListSource
    ) -> ListedItems[HostPrompt, t.Prompt]:
        def fetch(client: Client, pages: list[Raw]) -> Awaitable[Sequence[t.Prompt]]:
            return client.list_prompts(fresh=True, pages=pages)

        prompts = await self._fetch("prompts/list", caller, fetch, source)
        return await self._by_name("prompts", caller, prompts, HostPrompt, source)

    async def _list_resources(
        self, caller: str, source: ListSource
    ) -> ListedItems[HostResource, t.Resource]:
        def fetch(client: Client, pages: list[Raw]) -> Awaitable[Sequence[t.Resource]]:
            return client.list_resources(fresh=True, pages=pages)

        found = await self._fetch("resources/list", caller, fetch, source)
        return await self._by_uri("resources", caller, found, HostResource, source)

    async def _list_templates(
        self, caller: str, source: ListSource
    ) -> ListedItems[HostResourceTemplate, t.ResourceTemplate]:
        def fetch(client: Client, pages: list[Raw]) -> Awaitable[Sequence[t.ResourceTemplate]]:
            return client.list_resource_templates(fresh=True, pages=pages)

        found = await self._fetch("resources/templates/list", caller, fetch, source)
        return await self._by_uri("templates", caller, found, HostResourceTemplate, source)

    async def _reviewed(
        self, kind: ListKind, caller: str, listed: Sequence[Any], source: ListSource
    ) -> ReviewedItems:
        if self._review is None:
            return ReviewedItems(listed)
        reviewed = await self._review(kind, caller, listed, source)
        source.reviewed(kind, reviewed.review)
        return reviewed

    async def _keep_raw(
        self,
        kind: ListKind,
        items: ListedItems[Any, Any],
        listed: Sequence[Any],
        reviewed: ReviewedItems,
        source: ListSource,
    ) -> None:
        """Keep the bytes of the items that the review has not changed."""
        if source.session is None:
            return
        revision = source.session.client.peer.revision
        try:
            written = await run_cooperatively(raw_item_steps(source.pages, LIST_TYPES[kind]))
        except DECODE_ERRORS:  # in a member that no type has, which the decoder has skipped
            return
        unchanged = set(map(id, listed))
        for one in reviewed.items:
            if id(one) not in unchanged:
                written.pop(_key_of(kind, one), None)
        await run_cooperatively(items.keep_raw(written, revision, reviewed.may_pass))

    async def _by_uri(
        self,
        kind: ListKind,
        caller: str,
        listed: Sequence[N],
        host_type: Any,
        source: ListSource,
    ) -> ListedItems[Any, N]:
        reviewed = await self._reviewed(kind, caller, listed, source)
        items = await run_cooperatively(self._uri_steps(kind, reviewed.items, host_type))
        items.review, items.hints = reviewed.review, cache_hints(listed)
        if self._review is not None:
            items.definitions = {_key_of(kind, one): one for one in reversed(listed)}
        await self._keep_raw(kind, items, listed, reviewed, source)
        return await run_cooperatively(self._kept_once(items, listed))

    def _uri_steps(
        self, kind: ListKind, listed: Sequence[N], host_type: Any
    ) -> Steps[ListedItems[Any, N]]:
        items: dict[str, N] = {}
        hosted: dict[str, Any] = {}
        for one in listed:
            uri = _key_of(kind, one)
            if uri not in items:
                items[uri] = one
                hosted[uri] = host_type.from_listed(one, self._key)
            yield
        return ListedItems(hosted, items)

    async def _by_name(
        self,
        kind: ListKind,
        caller: str,
        listed: Sequence[Any],
        host_type: Any,
        source: ListSource,
    ) -> ListedItems[Any, Any]:
        reviewed = await self._reviewed(kind, caller, listed, source)
        items = await run_cooperatively(self._name_steps(reviewed.items, host_type))
        items.review, items.hints = reviewed.review, cache_hints(listed)
        first = {one.name: one for one in reversed(listed)}
        if self._review is not None and items.names is not None:
            items.definitions = {name.name: first[name.own] for name in items.names}
        await self._keep_raw(kind, items, listed, reviewed, source)
        return await run_cooperatively(self._kept_once(items, listed))

    def _name_steps(self, listed: Sequence[Any], host_type: Any) -> Steps[ListedItems[Any, Any]]:
        first = {one.name: one for one in reversed(listed)}
        names = NameIndex(
            [(self._key, self._settings, [one.name for one in listed])], self._name_limit
        )
        yield
        items: dict[str, Any] = {}
        hosted: dict[str, Any] = {}
        for name in names:
            item = items[name.name] = replace(first[name.own], name=name.name)
            hosted[name.name] = host_type.from_listed(item, self._key, name.own, name.aliases)
            yield
        return ListedItems(hosted, items, names)
