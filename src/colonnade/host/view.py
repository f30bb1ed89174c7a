"""A view of a host: some of its servers, as if there were no others.

Rules: a view has no sessions and no lists of its own. A name or URI of a server that it does not
show is unknown in it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Raw

from colonnade.errors import ColonnadeError, InvalidArgument
from colonnade.host.runtime import (
    CallerFilter,
    HostRuntime,
    ListChanges,
    OnChange,
    ResourceFilter,
)
from colonnade.host.servers.generation import Generation
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputCapabilities
from colonnade.protocol.revision import Revision, Tasks
from colonnade.text import closest

if TYPE_CHECKING:
    from colonnade.host.policy.request import RuleSet
    from colonnade.host.resource_updates import ResourceUpdates
    from colonnade.host.servers.homes import SessionHomes
    from colonnade.host.servers.listings import ListKind
    from colonnade.protocol.http.param_headers import ParamHeader


class HostView:
    """Some servers of a host, for a gateway. Raises `InvalidArgument` for a server that there is
    not."""

    def __init__(self, runtime: HostRuntime, servers: Iterable[str]) -> None:
        self._runtime = runtime
        self._keys = tuple(servers)
        known = tuple(runtime.generation.servers)
        for key in self._keys:
            if key not in known:
                near = closest(key, known)
                hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(known)}"
                raise InvalidArgument(f"there is no server {key!r}{hint}", argument="servers")
        self._limited: tuple[Generation, Generation] | None = None
        self._route = runtime.client_handler(runtime.make_router(self._generation))

    def __repr__(self) -> str:
        return f"<HostView of {', '.join(map(repr, self._keys))}>"

    def _generation(self) -> Generation:
        whole = self._runtime.current()
        if self._limited is None or self._limited[0] is not whole:
            self._limited = whole, whole.limited_to(self._keys)
        return self._limited[1]

    @property
    def handler(self) -> Handler:
        """The handler of all requests, inside the middleware of the host."""
        return self._runtime.wrap(self._route)

    @property
    def is_entered(self) -> bool:
        """True: the host is closed by those that it belongs to."""
        return True

    @property
    def inspects_results(self) -> bool:
        """Whether a middleware or the guard may have looked at a result."""
        return self._runtime.has_middleware or self._runtime.guard is not None

    def roots_changed(self, session: object) -> None:
        """See `Host.roots_changed`."""
        self._runtime.roots_changed(session, self._keys)

    async def hides_text(self, server: str, raw: Raw) -> bool:
        """See `Host.hides_text`."""
        return await self._runtime.hides_text(server, raw)

    @property
    def policy(self) -> "RuleSet | None":
        """The rules that are in force; None if there are none."""
        return self._runtime.guard.rules if self._runtime.guard is not None else None

    @property
    def servers(self) -> tuple[str, ...]:
        """The keys of its servers."""
        return self._keys

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server, by key, as far as they are known."""
        found = self._runtime.instructions
        return {key: found[key] for key in self._keys if key in found}

    @property
    def failures(self) -> dict[str, ColonnadeError]:
        """Why servers could not be listed the last time, by key."""
        return self._generation().failures

    @property
    def capabilities(self) -> dict[str, t.ServerCapabilities | None]:
        """What each server offers, by key; None if that is not known yet."""
        servers = self._runtime.generation.servers
        return {key: servers[key].capabilities for key in self._keys if key in servers}

    @property
    def capabilities_version(self) -> int:
        """Changes with `capabilities` and `instructions`."""
        return self._runtime.capabilities_version

    def input_target(
        self, request: RequestContext
    ) -> tuple[Revision | None, InputCapabilities, Tasks] | None:
        """See `Host.input_target`."""
        return self._runtime.input_target(request, self._generation())

    def limit_names(self, limit: int) -> None:
        """Let names have at most this many characters, in the whole host."""
        self._runtime.limit_names(limit)

    def limit_list_wait(self, wait_s: float) -> None:
        """See `Host.limit_list_wait`; the limit applies to the whole host."""
        self._runtime.limit_list_wait(wait_s)

    def use_homes(self, homes: "SessionHomes | None") -> bool:
        """See `Host.use_homes`."""
        return self._runtime.use_homes(homes)

    def is_home(self, server: str, caller: str) -> bool:
        """See `Host.is_home`."""
        return server in self._keys and self._runtime.is_home(server, caller)

    def expire_lists(self, server: str, caller: str, kinds: "Sequence[ListKind]") -> bool:
        """See `Host.expire_lists`."""
        return server in self._keys and self._runtime.expire_lists(server, caller, kinds)

    def listed_param_headers(
        self, name: str, request: RequestContext
    ) -> "tuple[ParamHeader, ...] | None":
        """See `Host.listed_param_headers`."""
        view = self._runtime.view(request)
        return self._generation().listed_param_headers(name, request.principal, view)

    async def param_headers(self, name: str, request: RequestContext) -> "tuple[ParamHeader, ...]":
        """See `Host.param_headers`."""
        view = self._runtime.view(request)
        return await self._generation().param_headers(name, request.principal, view)

    def is_common(self, server: str) -> bool:
        """See `Host.is_common`."""
        return self._generation().server(server).is_common

    def resource_updates(
        self, server: str, uris: frozenset[str], caller: str, on_update: Callable[[str], None]
    ) -> "ResourceUpdates":
        """See `Host.resource_updates`."""
        return self._runtime.resource_updates(server, uris, caller, on_update)

    def task_updates(
        self, server: str, ids: frozenset[str], caller: str, on_update: Callable[[str], None]
    ) -> "ResourceUpdates":
        """Changes of some tasks of a server, by their ids there, once it is started."""
        return self._runtime.task_updates(server, ids, caller, on_update)

    def resource_filter(self, request: RequestContext) -> ResourceFilter:
        """See `Host.resource_filter`."""
        return self._runtime.resource_filter(request)

    def caller_filter(self, request: RequestContext) -> CallerFilter:
        """See `Host.caller_filter`."""
        return self._runtime.caller_filter(request)

    def watch(self, callback: OnChange, *, all_callers: bool = False) -> Callable[[], None]:
        """Call a callback when lists of its servers change. See `Host.watch`."""

        def filtered(changes: ListChanges) -> object:
            return callback(changes) if set(self._keys) & set(changes.servers) else None

        return self._runtime.watch(filtered, all_callers=all_callers)
