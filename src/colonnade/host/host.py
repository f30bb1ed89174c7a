"""`Host`: many servers behind one set of tools, prompts and resources.

Rules: requests are in `requests`; here are the servers, their configuration and their status.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, get_args

from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.connect import Target, client_info
from colonnade.errors import ColonnadeError, Fault, LocalProtocolError
from colonnade.host.caller import HostCaller
from colonnade.host.config.inline import configured, has_parts, is_broken
from colonnade.host.config.settings import (
    Config,
    GatewaySettings,
    HostProblem,
    ServerEntry,
)
from colonnade.host.input_requests import InputRequestHandler, OnInputRequest
from colonnade.host.requests import HostRequests
from colonnade.host.runtime import CallerFilter, HostRuntime, OnChange, OnEvent, ResourceFilter
from colonnade.host.servers.listings import WAIT_S, HostTool
from colonnade.host.servers.session import State, Status
from colonnade.ports import Handler, Middleware, RequestContext, Store
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputCapabilities
from colonnade.protocol.revision import Revision, Tasks

if TYPE_CHECKING:  # most servers need no authorization, and many hosts no files
    from colonnade.auth.client.login import Auth
    from colonnade.host.config.lookups import Inputs, OnInput
    from colonnade.host.config.reader import File
    from colonnade.host.config.trust import Trust
    from colonnade.host.credentials import UpstreamCredentials
    from colonnade.host.policy.approvals.inbox import Inbox
    from colonnade.host.policy.containment import Containment
    from colonnade.host.policy.parts import PolicyParts
    from colonnade.host.policy.pins.definitions import ItemKind
    from colonnade.host.policy.pins.pins import PinnedServer, Pins
    from colonnade.host.policy.pins.records import HeldItem
    from colonnade.host.policy.request import Approver, AuditSink, RuleSet
    from colonnade.host.resource_updates import ResourceUpdates
    from colonnade.host.servers.homes import SessionHomes
    from colonnade.host.servers.listings import ListKind
    from colonnade.host.servers.manifest import ServerManifest
    from colonnade.host.view import HostView
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.telemetry.telemetry import Telemetry

log: logging.Logger = logging.getLogger("colonnade.host")


class Host(HostRequests):
    """Servers by their keys, and everything that they offer.

    - A server is whatever `connect` takes, or an `ServerEntry` with settings of its own.
    - `on_input_request` answers elicitation and sampling of all servers; without it neither is
      advertised.
    - `on_event` is called when a server starts, stops or fails.
    - `middleware` is called for every request, the first outermost.
    - `auth` gives the credentials for a URL, and `upstream` those of each caller, for servers whose
      setting `credentials` is not `own`.
    - `policy` are the rules for calls and lists, `pins` the definitions that were accepted, `audit`
      the log of calls, `inbox` where a person is asked, and `containment` what is done about hidden
      text; each is None if it is not wanted.
    - `wait_s` is how long a list of all servers waits for one server.
    - `store` keeps the tasks that calls have become, so that `tasks` finds them after a restart;
      without it they are known as long as the host is.
    - `name`, `version` and `title` are the `clientInfo` that servers are sent, as with `connect`.
    - `telemetry=True` records spans and metrics with OpenTelemetry, if its SDK is configured; a
      `Telemetry` with `metrics=` serves them for Prometheus while the host is entered.

    Most methods take `caller=`, the name of the user that a request is made for. A server that
    keeps state for a connection never serves two callers on one connection.
    """

    def __init__(
        self,
        servers: Mapping[str, Target | ServerEntry] | Config,
        *,
        on_input_request: OnInputRequest | None = None,
        on_event: OnEvent | None = None,
        middleware: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        upstream: "UpstreamCredentials | None" = None,
        wait_s: float = WAIT_S,
        store: Store | None = None,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
        telemetry: "bool | Telemetry" = False,
        policy: "RuleSet | None" = None,
        pins: "Pins | None" = None,
        audit: "AuditSink | None" = None,
        inbox: "Inbox | Approver | None" = None,
        containment: "Containment | None" = None,
    ) -> None:
        self._read: Callable[[], Config] | None = None
        # The last configuration that was valid.
        self._valid: Config = configured(servers)
        self._exit_stack = AsyncExitStack()
        self._reloading = asyncio.Lock()
        self._telemetry = self._watched(telemetry) if telemetry is not False else None
        self._own_policy = policy
        self._has_callback = on_input_request is not None
        self._given = (pins, audit, inbox, containment)
        policy = self._combined(self._valid)
        # None while there are no parts, so that they are imported if they are needed.
        self._parts: PolicyParts | None = None
        if any(one is not None for one in (policy, *self._given)) or has_parts(self._valid):
            self._parts = self._make_parts(self._valid, policy)
        input_requests = self._input_handler(on_input_request)
        runtime = HostRuntime(
            self._valid,
            input_requests,
            middleware=middleware,
            wait_s=wait_s,
            on_event=on_event,
            auth=auth,
            upstream=upstream,
            info=client_info(name, version, title),
            telemetry=telemetry,
            guard=self._parts.guard if self._parts is not None else None,
        )
        super().__init__(runtime, store)
        self._exit_stack.push_async_callback(self._close_parts)
        self._show_held_definitions()
        self._is_entered = False

    @classmethod
    def from_config(
        cls,
        paths: "File | Sequence[File]",
        *,
        trust: "Trust" = None,
        on_input: "OnInput | Inputs | None" = None,
        folder: "File | None" = None,
        on_input_request: OnInputRequest | None = None,
        on_event: OnEvent | None = None,
        middleware: Iterable[Middleware] = (),
        auth: "Callable[[str], Auth | None] | None" = None,
        upstream: "UpstreamCredentials | None" = None,
        wait_s: float = WAIT_S,
        store: Store | None = None,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
        telemetry: "bool | Telemetry" = False,
        policy: "RuleSet | None" = None,
        pins: "Pins | None" = None,
        audit: "AuditSink | None" = None,
        inbox: "Inbox | Approver | None" = None,
        containment: "Containment | None" = None,
    ) -> "Host":
        """A host with the servers of one or several configuration files: of Claude Desktop, Claude
        Code, VS Code, Cursor, Codex, or `colonnade.toml`. Errors in a file, or a missing file, are
        in `problems` and are logged; nothing is raised.

        A project's file is used only if it is trusted: `trust` is called to decide, or is True.
        `on_input` answers the inputs of VS Code, and `folder` is the working folder, by default the
        current one. The other arguments are those of `Host`.
        """
        from colonnade.host.config.lookups import Inputs
        from colonnade.host.config.reader import read_config

        # Keeps the answers, so that a reload does not prompt again.
        inputs = on_input if isinstance(on_input, Inputs) else Inputs(on_input)

        logged: set[HostProblem] = set()

        def read() -> Config:
            config = read_config(paths, trust=trust, on_input=inputs, folder=folder)
            for problem in config.problems:
                if problem not in logged:
                    log.warning("%s", problem)
            logged.clear()  # a problem that was fixed is logged again when it comes back
            logged.update(config.problems)
            return config

        host = cls(
            read(),
            on_input_request=on_input_request,
            on_event=on_event,
            middleware=middleware,
            auth=auth,
            upstream=upstream,
            wait_s=wait_s,
            store=store,
            name=name,
            version=version,
            title=title,
            telemetry=telemetry,
            policy=policy,
            pins=pins,
            audit=audit,
            inbox=inbox,
            containment=containment,
        )
        host._read = read
        return host

    def __repr__(self) -> str:
        return f"<Host of {', '.join(map(repr, self.servers)) or 'no servers'}>"

    def _watched(self, given: "bool | Telemetry") -> "Telemetry | None":
        """The telemetry of this host, which shows the state of its servers."""
        from colonnade.telemetry.telemetry import as_telemetry

        telemetry = as_telemetry(given)
        if telemetry is not None:

            def read() -> list[tuple[str, str, int]]:
                return [(one.key, one.state, one.crashes) for one in self.status()]

            self._exit_stack.callback(telemetry.watch_host(read, get_args(State)))
        return telemetry

    @property
    def is_entered(self) -> bool:
        """Whether a program has entered this host with `async with`, and so closes it."""
        return self._is_entered

    async def __aenter__(self) -> "Host":
        if self._parts is not None:
            self._parts.check_audit()
        self._is_entered = True
        telemetry = self._telemetry
        if telemetry is not None and telemetry.metrics_address is not None:
            from colonnade.transport.http_server.runner import AppListener

            listener = AppListener(telemetry.metrics_app, telemetry.metrics_address)
            await self._exit_stack.enter_async_context(listener)
        if self._parts is not None:
            await self._parts.serve()
            self._parts.check_approver(self.policy)
        return self

    # ------------------------------------------------------------ parts of the guard

    def _make_parts(self, config: Config, rules: "RuleSet | None") -> "PolicyParts":
        from colonnade.host.policy.parts import GivenParts, PolicyParts  # on use

        return PolicyParts(GivenParts(*self._given), config, rules)

    async def _close_parts(self) -> None:
        self._hide_held_definitions()
        if self._parts is not None:
            await self._parts.close()

    def _input_handler(self, on_input_request: OnInputRequest | None = None) -> InputRequestHandler:
        """What answers input requests: the callback, or without one the inbox."""
        parts = self._parts
        if on_input_request is not None or parts is None or parts.approver is None:
            return InputRequestHandler(on_input_request)
        handler = InputRequestHandler(parts.approver.answer_input)
        if parts.guard is not None:
            parts.guard.answer_forms_of(handler.peer, handler.peer_with_logs)
        return handler

    def _show_held_definitions(self) -> None:
        """Show definitions that are held in the inbox, if there are pins and an inbox."""
        guard, parts = self._runtime.guard, self._parts
        if guard is None or guard.pins is None or parts is None:
            return
        pins, runtime, approvals = guard.pins, self._runtime, parts.approvals
        self._hide_held_definitions()
        if approvals is None:
            return
        from colonnade.host.policy.items import KINDS  # on use
        from colonnade.host.policy.pins.held_definitions import HeldDefinitions

        def has_server(key: str, identity: str) -> bool:
            server = runtime.generation.servers.get(key)
            return server is not None and pins.server(server).identity == identity

        def accepted(key: str, kind: "ItemKind") -> None:
            runtime.definitions_accepted(key, None if kind == "instructions" else KINDS[kind])

        pins.held_definitions = HeldDefinitions(pins.pins, approvals.inbox, has_server, accepted)

    def _hide_held_definitions(self) -> None:
        guard = self._runtime.guard
        if guard is not None and guard.pins is not None and guard.pins.held_definitions is not None:
            guard.pins.held_definitions.close()
            guard.pins.held_definitions = None

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every server; calls in flight fail. May be called at any time, and twice."""
        await self._runtime.close()
        await self._exit_stack.aclose()

    # ------------------------------------------------------------ servers and callers

    def caller(self, name: str) -> "HostCaller":
        """The same tools, prompts and resources, with `caller=name` in every request."""
        return HostCaller(self, name)

    @property
    def servers(self) -> tuple[str, ...]:
        """The keys of all servers, in the order of the configuration."""
        return tuple(self._runtime.generation.servers)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of the qualified names of each server, up to the `__`."""
        return self._runtime.generation.prefixes

    @property
    def gateway_settings(self) -> GatewaySettings | None:
        """The table `[gateway]` of the configuration; None without one."""
        return self._valid.gateway

    @property
    def problems(self) -> list[HostProblem]:
        """Errors in the configuration, and lists that failed the last time; everything else
        works."""
        return self._runtime.generation.problems

    @property
    def failures(self) -> dict[str, ColonnadeError]:
        """Why servers could not be listed the last time, by key: the exceptions behind
        `problems`."""
        return self._runtime.generation.failures

    @property
    def instructions(self) -> dict[str, str]:
        """The instructions of each server, by key; of those that were started."""
        return self._runtime.instructions

    @property
    def policy(self) -> "RuleSet | None":
        """The rules that are in force, of this program and of its files; None if there are none."""
        return self._runtime.guard.rules if self._runtime.guard is not None else None

    @property
    def capabilities(self) -> dict[str, t.ServerCapabilities | None]:
        """What each server offers, by key; None if that is not known yet."""
        servers = self._runtime.generation.servers
        return {key: one.capabilities for key, one in servers.items()}

    @property
    def capabilities_version(self) -> int:
        """Changes with `capabilities` and `instructions`."""
        return self._runtime.capabilities_version

    def fingerprint(self, server: str) -> str:
        """What changes with the configuration of a server."""
        return self._runtime.generation.server(server).entry.fingerprint

    def manifest(self, server: str, caller: str) -> "ServerManifest | None":
        """What a server offers to a caller, as far as it is known; None if it is not."""
        return self._runtime.generation.server(server).manifest(caller)

    def use_manifest(self, server: str, manifest: "ServerManifest", caller: str | None) -> None:
        """Use what a server offered earlier, to a caller or to all (None), until it is
        connected. Of a host with a policy only the capabilities: what it shows was reviewed in a
        session of the server."""
        if self._runtime.guard is not None:
            manifest = manifest.without_lists()
        self._runtime.generation.server(server).use_manifest(manifest, caller)

    def view(self, servers: Iterable[str]) -> "HostView":
        """Some of the servers, for a gateway that shows no others. Raises `InvalidArgument` for one
        that there is not."""
        from colonnade.host.view import HostView

        return HostView(self._runtime, servers)

    def tool(self, name: str, caller: str = "") -> HostTool | None:
        """The tool of a qualified name or an alias, as it was last listed for this caller; None if
        it was not listed. For middleware that decides by the tool, under whichever name it was
        called."""
        view = self._runtime.view_of(caller)
        return self._runtime.generation.tool(name, caller, view)

    def listed_param_headers(
        self, name: str, request: RequestContext
    ) -> "tuple[ParamHeader, ...] | None":
        """`param_headers` without a wait: None if the server of the tool has to be listed first."""
        runtime = self._runtime
        view = None if runtime.guard is None else runtime.view(request)
        return runtime.generation.listed_param_headers(name, request.principal, view)

    async def param_headers(self, name: str, request: RequestContext) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that are mirrored in HTTP headers, by its qualified name or an
        alias, for the caller of a request; its server is listed if it was not. Empty for a tool
        that there is not."""
        view = self._runtime.view(request)
        return await self._runtime.generation.param_headers(name, request.principal, view)

    def is_common(self, server: str) -> bool:
        """Whether all callers see the same lists of a server, and share its sessions."""
        return self._runtime.generation.server(server).is_common

    def resource_updates(
        self, server: str, uris: frozenset[str], caller: str, on_update: Callable[[str], None]
    ) -> "ResourceUpdates":
        """Updates of some resources of a server, once it is started."""
        return self._runtime.resource_updates(server, uris, caller, on_update)

    def task_updates(
        self, server: str, ids: frozenset[str], caller: str, on_update: Callable[[str], None]
    ) -> "ResourceUpdates":
        """Changes of some tasks of a server, by their ids there, once it is started."""
        return self._runtime.task_updates(server, ids, caller, on_update)

    def resource_filter(self, request: RequestContext) -> ResourceFilter:
        """Whether the caller of a request may see a resource of a server, by the rules that are
        in force whenever it is asked."""
        return self._runtime.resource_filter(request)

    def caller_filter(self, request: RequestContext) -> CallerFilter:
        """What the caller of a request may see, by the rules that are in force whenever it is
        asked."""
        return self._runtime.caller_filter(request)

    def status(self) -> list[Status]:
        """The status of every server."""
        return [one.supervisor.status for one in self._runtime.generation.servers.values()]

    def restart(self, server: str) -> None:
        """Start a server again for its next call, also one that was given up."""
        try:
            self._runtime.generation.server(server).restart()
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None

    # ------------------------------------------------------------ pins

    async def held_definitions(self, server: str) -> "list[HeldItem]":
        """The definitions of a server that were seen and are not accepted; empty without pins."""
        found = self._pinned(server)
        if found is None:
            return []
        pins, pinned = found
        return [one for status in await pins.status(pinned) for one in status.held]

    async def accept_definitions(self, server: str, held: "Iterable[HeldItem]") -> "list[HeldItem]":
        """Accept definitions that `held_definitions` returned: exactly these, not what the server
        has sent meanwhile. Returns those that were accepted."""
        found = self._pinned(server)
        return [] if found is None else await found[0].accept(found[1], held)

    def _pinned(self, server: str) -> "tuple[Pins, PinnedServer] | None":
        try:
            hosted = self._runtime.generation.server(server)
        except Fault as fault:
            raise LocalProtocolError(fault.message) from None
        guard = self._runtime.guard
        if guard is None or guard.pins is None:
            return None
        return guard.pins.pins, guard.pins.server(hosted)

    # ------------------------------------------------------------ middleware

    def limit_names(self, limit: int) -> None:
        """Let the names of tools and prompts have at most this many characters; before the first
        request. Raises `InvalidArgument`, and `LocalProtocolError` after a request."""
        self._runtime.limit_names(limit)

    def limit_list_wait(self, wait_s: float) -> None:
        """Limit how long the lists of newly connected clients wait for a server that has not
        answered yet. When the missing items arrive, the client gets `list_changed`."""
        self._runtime.limit_list_wait(wait_s)

    def input_target(
        self, request: RequestContext
    ) -> tuple[Revision | None, InputCapabilities, Tasks] | None:
        """The revision of the server that a call of a client is for, None if it is not known yet,
        and the input requests that it may send to the client. None for a request that has no
        server before it was handled, such as one about a URI."""
        return self._runtime.input_target(request)

    def use_homes(self, homes: "SessionHomes | None") -> bool:
        """Let these say which of several replicas has the session of a caller; None for none. False
        if the host has some already."""
        return self._runtime.use_homes(homes)

    def is_home(self, server: str, caller: str) -> bool:
        """Whether this replica has the session of a caller with a server that keeps state."""
        return self._runtime.is_home(server, caller)

    def expire_lists(self, server: str, caller: str, kinds: "Sequence[ListKind]") -> bool:
        """The home of a session of a caller says that its lists have changed: they are read again
        when they are next used. False if a session here notices it, too."""
        return self._runtime.expire_lists(server, caller, kinds)

    @property
    def handler(self) -> Handler:
        """The handler of all requests, inside the middleware: to serve this host to clients."""
        return self._runtime.handler

    @property
    def inspects_results(self) -> bool:
        """Whether a middleware or the guard may have looked at a result: what they saw is what is
        passed on."""
        return self._runtime.has_middleware or self._runtime.guard is not None

    def roots_changed(self, session: object) -> None:
        """The roots of the client in a session have changed: notify the servers that have a
        session for it, as far as they may know its roots."""
        self._runtime.roots_changed(session)

    async def hides_text(self, server: str, raw: Raw) -> bool:
        """Whether what a server wrote has hidden text in it that is contained, in any member: such
        bytes are not passed on."""
        return await self._runtime.hides_text(server, raw)

    def add_middleware(self, middleware: Middleware) -> Middleware:
        """Add a middleware inside those that are there."""
        self._runtime.add_middleware(middleware)
        return middleware

    # ------------------------------------------------------------ changes

    async def reload(
        self, servers: Mapping[str, Target | ServerEntry] | Config | None = None
    ) -> None:
        """Use other servers from now on; without an argument, read the files of `from_config`
        again. Servers with an unchanged entry go on; the others are stopped after their calls in
        flight. A file that cannot be read any more changes nothing but `problems`. Rules, pins, the
        audit log and the inbox of files are in force when this returns; for pins or an inbox that
        is new, all servers are connected anew."""
        if servers is not None:
            config = self._valid = configured(servers)
        elif self._read is None:
            raise LocalProtocolError("this host has no files; pass the servers to reload(…)")
        else:
            config = self._read()
            if is_broken(config, self._valid):
                valid = self._valid
                config = replace(
                    config,
                    entries=valid.entries,
                    policy=valid.policy,
                    pins=valid.pins,
                    audit=valid.audit,
                    approvals=valid.approvals,
                )
            else:
                self._valid = config
        async with self._reloading:
            await self._use(config)

    async def _use(self, config: Config) -> None:
        """Use another configuration: rules, parts of the guard, and servers."""
        self._runtime.check_open()
        rules, problems, renews = self._combined(config), config.problems, False
        if self._parts is None and (rules is not None or has_parts(config)):
            self._parts = self._make_parts(Config(entries={}), None)
            if self._is_entered:
                await self._parts.serve()
        if self._parts is not None:
            approver = self._parts.approver
            more, renews = await self._parts.reload(config, rules)
            for one in more:
                log.warning("%s", one)
            problems = (*problems, *more)
            if self._runtime.guard is None and self._parts.guard is not None:
                self._runtime.use_guard(self._parts.guard)
            if self._parts.approver is not approver and not self._has_callback:
                self._runtime.input_requests = self._input_handler()
            self._show_held_definitions()
            if self._is_entered:
                self._parts.check_approver(rules)
        self._runtime.reload(replace(config, problems=problems), rules, renews=renews)

    def _combined(self, config: Config) -> "RuleSet | None":
        """The rules of this program and those of the files: the strictest decision counts."""
        both = [one for one in (self._own_policy, config.policy) if one is not None]
        if len(both) < 2:
            return both[0] if both else None
        from colonnade.host.policy.rules.rules import CombinedPolicy

        return CombinedPolicy(both)

    def watch(self, callback: OnChange, *, all_callers: bool = False) -> Callable[[], None]:
        """Call a callback when lists change: a server sent `list_changed`, or there was a reload.
        Ends when the returned function is called. With `all_callers`, as a gateway needs it, also
        for servers that the policy hides from this program."""
        return self._runtime.watch(callback, all_callers=all_callers)
