"""The Streamable HTTP server transport as an ASGI application: routing, POST, GET and DELETE.

A request that stands for itself (2026-07-28) is handled in the task that the web server made for
it: security checks, body, JSON-RPC request, protocol rules, handler, one JSON response. Only a
handler that sends notifications turns its response into an event stream. Requests of a session go
to `session_registry`, those of the HTTP+SSE transport (2024-11-05) to `legacy_sse`.

    app = HttpApp(service)                            # POST /mcp, can be mounted anywhere
    app = HttpApp(service, around=fastapi_app)        # other paths go to the other application

Rules: every request for one of our paths passes one gate before anything is read or kept. A refused
request leaves nothing behind. Limits on connections, which no application can see, are those of
`runner`.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from colonnade.errors import (
    EFFECT_UNKNOWN,
    AuthError,
    ConnectionLost,
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
    LoginRequired,
)
from colonnade.ports import SERVER_PRINCIPAL, Caller, Guard, Service, Store, Verify
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import LISTEN, Exchange, Network, RequestFields
from colonnade.protocol.http import rules
from colonnade.protocol.http.client_address import TrustedProxies
from colonnade.protocol.http.param_headers import check_params
from colonnade.protocol.http.security import (
    CONTENT_TOO_LARGE,
    NOT_FOUND,
    AuthorizationChecks,
    EndpointChecks,
    Headers,
    HostPolicy,
    HttpError,
    RouteChecks,
    combine_headers,
    cors_headers,
    endpoint_methods,
    name_list,
    preflight_headers,
    require_events,
)
from colonnade.protocol.http.sse import encode_event
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import Batch, Frame, Request, decode, encode_error
from colonnade.protocol.link.link import PING
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Callers, Identity, Peer, PeerDetector
from colonnade.protocol.revision import HttpBinding, Revision, error_code
from colonnade.protocol.types import CallToolRequestParams
from colonnade.transport.http_server.authentication import (
    RefusalLog,
    admit,
    respond_endpoint,
    respond_metadata,
    unverified_words,
)
from colonnade.transport.http_server.custom_routes import Route
from colonnade.transport.http_server.legacy_sse import MESSAGES_PATH, SSE_PATH, SseSessions
from colonnade.transport.http_server.lifespan import Lifespan, OnDemandLifespan
from colonnade.transport.http_server.request import (
    CLOSE_HEADER,
    CONNECTION_KEY,
    DEFAULT_LIMITS,
    READING_BODY,
    SMALL_BODY_BYTES,
    App,
    BufferedBodies,
    ClientDisconnected,
    IncomingRequest,
    Limits,
    Pairs,
    Receive,
    RequestReaper,
    Scope,
    Send,
    overload,
    too_slow,
    unexpected,
)
from colonnade.transport.http_server.sessions.registry import (
    NO_BATCHES,
    SessionRegistry,
    answer_initialize,
    answer_ping,
    peers_without_session,
)
from colonnade.transport.http_server.sessions.session import HttpSession
from colonnade.transport.signals import Signals

if TYPE_CHECKING:  # imported on use
    from colonnade.replicas.replica import Replica
    from colonnade.transport.http_server.sessions.shared_registry import SharedSessionRegistry

log: logging.Logger = logging.getLogger("colonnade.transport")
# `middleware.log` writes there, too.
access: logging.Logger = logging.getLogger("colonnade.requests")

# How long cancelled calls may clean up at shutdown.
ENDING_S = 1.0
# Of the protected resource metadata (RFC 9728); the path of the endpoint follows.
WELL_KNOWN = "/.well-known/oauth-"
METADATA_PATH = "/.well-known/oauth-protected-resource"


class HttpRequestContext(IncomingRequest, RequestFields):  # pyright: ignore[reportIncompatibleVariableOverride]
    """The context of a request that stands for itself: the HTTP request and its exchange."""

    exchange: Exchange
    fault: Fault | None = None
    root: str = ""
    # The address of a client that sent credentials; empty if it sent none.
    client: str = ""

    @property
    def network(self) -> Network:
        """The connection of the request."""
        return self.network_in("")

    @property
    def session(self) -> None:
        """There is none."""
        return None

    async def send(self, frame: bytes) -> None:
        """Send a notification; it is left out if the client accepts no event stream."""
        if self.accept.events:
            await self.write(encode_event(frame))

    def post(self, frame: bytes) -> bool:
        """Send it if that needs no waiting; False if it was not sent."""
        return self.accept.events and self.try_write(encode_event(frame))

    async def ask(self, input_request: InputRequest) -> Raw:
        """R0858: a server sends no requests to the client in this revision."""
        raise LocalProtocolError(
            f"{input_request.kind.method} is sent in an input_required result in this revision"
        )

    async def hang_up(self) -> None:
        """Nothing: a stream that cannot be resumed stays open."""


class HttpApp:
    """A service as an ASGI application, for clients of every revision that it accepts."""

    def __init__(
        self,
        service: Service,
        *,
        path: str = "/mcp",
        policy: HostPolicy | None = None,
        around: App | None = None,
        limits: Limits = DEFAULT_LIMITS,
        verify: Verify | None = None,
        guard: Guard | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        stateless: bool = False,
        routes: Callable[[], Sequence[Route]] = tuple,
        access_log: bool = False,
        trusted_proxies: Iterable[str] = (),
    ) -> None:
        named, pages = name_list("hosts", hosts), name_list("origins", origins)
        # Whether host names were given, and not only origins.
        self.has_names: bool = bool(named) or policy is not None
        if named or pages:
            policy = HostPolicy.for_mount(*named, origins=pages)
        if not path.startswith("/"):
            raise InvalidArgument(f"{path!r} is not a path; begin it with a slash", argument="path")
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgumentType(
                "limits= takes Limits(...); RunLimits(...) are run_limits=", argument="limits"
            )
        self.service = service
        self.path: str = path.rstrip("/") or "/"
        # 404 also if another application around this one would respond with a page of its own.
        self._metadata = METADATA_PATH + path.rstrip("/")
        self.limits = limits
        self.reaper: RequestReaper = RequestReaper()
        # Requests that have come, and are handled once their credentials are verified.
        self._in_authentication: set[IncomingRequest] = set()
        self._buffered_bodies = BufferedBodies()
        self.draining: bool = False
        # Whether SIGTERM and SIGINT are handled here; our own server handles them itself.
        self.handles_signals = True
        # Called for other paths first, by a server that has health checks; None to go on.
        self.on_other_path: Callable[[Scope, Send], Awaitable[None] | None] | None = None
        self._around = around
        self._verify = verify
        self._guard = guard
        self._proxies = TrustedProxies.of(trusted_proxies)
        self.is_guarded: bool = guard is not None or verify is not None
        self._given_policy = policy
        self._peer_detector = PeerDetector(service.accepts)
        self.stateless: bool = stateless
        # The peers of the handshake revisions without a session, by their version header.
        self._stateless_peers = peers_without_session(service.accepts) if stateless else {}
        self._set_gates(policy or HostPolicy.for_mount())
        # For methods of extensions: without and with authentication.
        self._identities: tuple[Callable[[], Identity], ...] = (
            lambda: service.identity.for_callers(Callers.ANONYMOUS),
            lambda: service.identity.for_callers(Callers.AUTHENTICATED),
        )
        self._identity: Identity | None = None
        self._logs = False
        self._encoders: dict[Revision, Encoder] = {}
        self._routes = routes
        self._access_log = access_log
        self._load: dict[str, int] = {}
        self._refusals = RefusalLog()
        # The store that replicas of this server share; None if there are no others.
        self._store = service.shared_store
        self._shared_sessions: SharedSessionRegistry | None = self._make_shared_sessions()
        self._replica: Replica | None = None
        self._owns_replica = False
        self._sessions: SessionRegistry = (
            SessionRegistry(service, limits, self.reaper)
            if self._shared_sessions is None
            else self._shared_sessions
        )
        # Around another application only paths below our own are taken from it.
        below = self.path.rstrip("/") if around is not None else ""
        self._sse_path = below + SSE_PATH
        self._messages_path = below + MESSAGES_PATH
        self._sse = SseSessions(service, limits, self._messages_path, self._sessions.shared)
        self._open = (
            partial(answer_initialize, service=service) if stateless else self._sessions.open
        )
        self._has_sessions = bool(service.accepts.handshakes) and not stateless
        self._has_sse = not stateless and any(
            r.http.binding is HttpBinding.HTTP_SSE for r in service.accepts
        )
        self._check_routes()
        self._on_demand = OnDemandLifespan(self.start, self.stop)
        self._signals = Signals(self._begin_shutdown)
        self._shutting_down: asyncio.Task[None] | None = None
        self._remove_gauge: Callable[[], None] | None = None

    # ------------------------------------------------------------ ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        kind = scope["type"]
        if kind == "http":
            if self._proxies is not None:  # before anything reads the address
                scope = self._proxies.with_client(scope)
            path = whole = scope["path"]
            root: str = scope.get("root_path", "")
            if root and path.startswith(root):
                path = path[len(root) :]
            if path == self.path:
                await self._serve(scope, receive, send, self._gate, self._endpoint)
                return
            path = path.rstrip("/") or "/"
            # `app.mount("/mcp", …)` at its own path serves it there, too.
            if self.path in (path, whole.rstrip("/")):
                await self._serve(scope, receive, send, self._gate, self._endpoint)
                return
            if self._has_sse and path == self._sse_path:
                await self._serve(scope, receive, send, self._gate_get, self._sse_get)
                return
            if self._has_sse and path == self._messages_path:
                await self._serve(scope, receive, send, self._gate_post, self._sse_post)
                return
            if self._guard is not None and (methods := self._guard.endpoint_methods(path)):
                await self._serve_authorization(methods, path, scope, receive, send)
                return
            if path.startswith(WELL_KNOWN) and await self._serve_metadata(
                path, scope, receive, send
            ):
                return
        await self._serve_other(kind, scope, receive, send)

    async def _serve_other(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if kind == "http" and self.on_other_path is not None:
            served = self.on_other_path(scope, send)
            if served is not None:
                await served
                return
        if kind == "lifespan":
            await Lifespan(self.start, self.stop, receive, send).run(scope, self._around)
        elif kind == "http" and (found := self.route_for(scope)) is not None:
            await self._serve_route(*found, scope, receive, send)
        elif self._around is not None:
            await self._around(scope, receive, send)
        elif kind == "http":
            await self._not_found(receive, send, f"not found; the MCP endpoint is {self.path}")
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    def route_for(self, scope: Scope) -> tuple[Route, str] | None:
        """The custom route for a request, and its path below the mount point."""
        routes = self._routes()
        if not routes:
            return None
        path, root = scope["path"], scope.get("root_path", "")
        path = path[len(root) :] if root and path.startswith(root) else path
        path = path.rstrip("/") or "/"
        matching = [route for route in routes if route.match(path) is not None]
        allowed = [route for route in matching if scope["method"] in route.methods]
        return ((allowed or matching)[0], path) if matching else None

    def _check_routes(self) -> None:
        """Refuse a route that would never be reached. One with a parameter in the place of our path
        is reached by all other paths."""
        for path in {route.path for route in self._routes()}:
            if path == self.path:
                raise InvalidArgument(f"a route is at {path}, the path of the endpoint; move one")
            if self._has_sse and path in (self._sse_path, self._messages_path):
                raise InvalidArgument(
                    f"a route is at {path}, which this server uses for clients of 2024-11-05; "
                    "move it"
                )

    async def _serve_route(
        self, route: Route, path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        def serve(request: HttpRequestContext, scope: Scope) -> Awaitable[None]:
            return route.serve(request, scope, path, (receive, send), self._access_log)

        gate = RouteChecks(self._gate.policy, route.methods)
        await self._serve(scope, receive, send, gate, serve)

    async def _serve_metadata(self, path: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Serve the protected resource metadata; False if the path is not ours."""
        incoming = IncomingRequest(receive, send, {}, self.limits)
        if self._guard is not None:
            try:
                if await respond_metadata(incoming, self._guard, path, scope):
                    return True
            except (ClientDisconnected, ConnectionLost):
                return True
            except Exception as error:
                await self._refuse(incoming, _unverified("guard", error))
                return True
        if path == self._metadata:
            await self._not_found(receive, send, "this resource has no metadata document")
        return path == self._metadata

    async def _serve_authorization(
        self, methods: tuple[str, ...], path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Serve an endpoint of the authorization server that is a part of this server."""

        async def serve(request: HttpRequestContext, scope: Scope) -> None:
            assert self._guard is not None
            try:
                behind = self._proxies is not None
                await respond_endpoint(request, self._guard, path, scope, send, behind)
            except Fault as fault:
                await self._refuse(request, fault)
            except (ClientDisconnected, ConnectionLost):
                raise
            except Exception as error:
                await self._refuse(request, _unverified("authorization server", error))

        gate = AuthorizationChecks(self._gate.policy, methods)
        await self._serve(scope, receive, send, gate, serve)

    async def _not_found(self, receive: Receive, send: Send, message: str) -> None:
        await self._refuse(
            IncomingRequest(receive, send, {}, self.limits), HttpError(NOT_FOUND, message)
        )

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        gate: EndpointChecks,
        serve: "Callable[[HttpRequestContext, Scope], Awaitable[None]]",
    ) -> None:
        """Check a request, and serve it until its response is complete."""
        headers = combine_headers(scope["headers"])
        request = HttpRequestContext(receive, send, headers, self.limits, scope.get(CONNECTION_KEY))
        request.buffered_bodies = self._buffered_bodies
        request.before_stream_end = self._shutdown_task
        request.scope = scope
        try:
            if b"origin" in headers and not gate.any_origin:  # which only browsers send
                request.extra_headers = cors_headers(headers, gate.policy)
                allowed = preflight_headers(scope["method"], headers, gate.policy, gate.methods)
                if allowed is not None:
                    request.extra_headers = allowed
                    await request.respond(rules.OK, b"")
                    return
            request.accept = gate.check(scope["method"], headers)
            if self.draining:
                raise overload("this server is shutting down; try another one")
            if self.reaper.count >= self.limits.max_concurrent_requests:
                raise overload("too many requests at once; try again later")
            if self.is_guarded and not gate.public:
                await self._authenticate(request, scope, gate)
            if self._identity is None:
                await self._on_demand.started()
        except (Fault, AuthError) as refused:
            await self._refuse(request, refused)
            return
        self.reaper.add(request)
        if request.principal:
            self._count(request.principal, 1)
        try:
            await serve(request, scope)
        except asyncio.CancelledError:
            if not request.absorb_cancellation():
                raise
            if request.abort_with_response:
                await self._respond_aborted(request)
            request.drop_connection()
        except (ClientDisconnected, ConnectionLost):
            request.drop_connection()
        finally:
            self.reaper.remove(request)
            if request.principal or request.counted_body_bytes:
                self._uncount(request)

    async def _authenticate(
        self, request: HttpRequestContext, scope: Scope, gate: EndpointChecks
    ) -> None:
        """Authenticate the client. Raises `AuthError` or `HttpError`, also if the request is
        aborted meanwhile."""
        if b"authorization" in request.headers:
            request.client = _address(scope.get("client"))
        self._in_authentication.add(request)
        try:
            if self._guard is not None:
                request.root = scope.get("root_path", "")
                place = "" if gate is self._gate else scope["path"]
                await admit(request, self._guard, scope["method"], place, request.root)
            else:
                caller = await self._verified(request.headers)
                request.principal, request.scopes = caller.principal, caller.scopes
                request.claims = caller.claims
        except (Fault, AuthError):
            raise
        except asyncio.CancelledError:
            if not request.absorb_cancellation():
                raise
        except Exception as error:  # of the guard
            raise _unverified("guard", error) from None
        finally:
            self._in_authentication.discard(request)
        if request.abort_reason:  # also if the guard or the verifier has caught the cancellation
            raise overload(request.abort_reason)
        if request.connection is not None:
            request.connection.belongs_to(request.principal)
        if (
            self._load.get(request.principal, 0)
            >= self.limits.max_concurrent_requests_per_principal
        ):
            raise overload("too many concurrent requests of this principal; wait for some")

    async def _verified(self, headers: Headers) -> Caller:
        """The principal of a request. Raises `AuthError` or `HttpError`."""
        assert self._verify is not None
        try:
            found: object = self._verify(headers)
            caller = await found if inspect.isawaitable(found) else found
        except (Fault, AuthError):
            raise
        except Exception as error:
            raise _unverified("verifier", error) from None
        name = caller.principal if isinstance(caller, Caller) else caller
        if not isinstance(name, str) or name == SERVER_PRINCIPAL:  # pyright: ignore[reportUnnecessaryIsInstance]
            # A lookup returns None for an unknown token, which must not authenticate anything.
            words = "the verifier returned %s, and not the name of a caller"
            log.error(words, type(name).__name__)
            raise LoginRequired("authentication required")
        return caller if isinstance(caller, Caller) else Caller(name)

    def _count(self, principal: str, step: int) -> None:
        """Count the running requests of a principal."""
        load = self._load.get(principal, 0) + step
        if load:
            self._load[principal] = load
        else:
            del self._load[principal]

    def _uncount(self, request: HttpRequestContext) -> None:
        """A request is over: neither it nor its body counts any more."""
        if request.principal:
            self._count(request.principal, -1)
        if request.counted_body_bytes:
            self._sessions.shared.bodies.release(request.principal, request.counted_body_bytes)

    async def _respond_aborted(self, request: HttpRequestContext) -> None:
        """Tell a client that is still connected why its request was aborted."""
        if request.state is READING_BODY:
            await self._refuse(request, too_slow(f"{request.abort_reason}; send it again"))
        elif not request.has_started:
            await self._refuse(request, overload(request.abort_reason))
        elif request.is_streaming:
            await request.end_stream()

    def _endpoint(self, request: "HttpRequestContext", scope: Scope) -> Awaitable[None]:
        method: str = scope["method"]
        return self._post(request) if method == "POST" else self._without_body(request, method)

    # ------------------------------------------------------------ POST

    async def _post(self, request: HttpRequestContext) -> None:
        headers = request.headers
        session: HttpSession | None = None
        session_peer: Peer | None = None
        raw_id = b""
        frame: Frame | Batch | None = None
        try:
            body = await request.body()
            if len(body) > SMALL_BODY_BYTES:
                self._sessions.shared.hold_body(request, len(body))
            if b"mcp-session-id" in headers and self._has_sessions:
                sessions, principal = self._sessions, request.principal
                session = sessions.named(headers, principal) or await sessions.restore(
                    rules.session_id(headers), principal
                )
                session_peer = session.peer if session is not None else rules.ENDED
            frame = decode(body)
            if not isinstance(frame, Request):
                await self._post_other(request, frame, session, session_peer)
                return
            raw_id = frame.raw_id
            if self._guard is not None:
                self._guard.check(frame, request.scopes or frozenset(), request.root)
            if self._stateless_peers and frame.method != HANDSHAKE_METHOD:  # nothing of it is kept
                session_peer = self._stateless_peers.get(headers.get(b"mcp-protocol-version"))
            identity = self._identities[request.principal != ""]
            admission = rules.admit(frame, headers, self._peer_detector, session_peer, identity)
            if admission is None:
                await self._open(request, frame)
                return
            peer = admission.peer
            if session is not None and peer is session_peer:
                if admission.warning:
                    session.note(admission.warning)
                await session.post(request, frame, admission.params)
                return
            row, head = admission.method, admission.params
            if (
                peer is not session_peer
                and row.params is CallToolRequestParams
                and isinstance(head.name, str)
                and (params := self.service.param_headers(head.name))
            ):
                check_params(params, headers, head.arguments)
            elif row.name == LISTEN:
                require_events(request.accept)
                request.ends_at = request.token_expires_at
            encoder = self._encoder(peer.revision)
            logs = self._logs and peer is not session_peer
            exchange = Exchange(frame, head, row, peer, encoder, request.principal, logs=logs)
            if request.scopes is not None:
                exchange.scopes = request.scopes
        except Fault as fault:
            await self._refuse_post(request, frame, session, session_peer, fault, raw_id)
            return
        request.exchange = exchange
        request.handled_here = True
        if peer is session_peer and row.name == PING:
            await answer_ping(request, frame, peer, self.service)
            return
        # So that what the exchange releases while it is handled is freed.
        del body, frame, admission, head, exchange
        await self._respond(request)

    async def _refuse_post(
        self,
        request: HttpRequestContext,
        frame: Frame | Batch | None,
        session: HttpSession | None,
        session_peer: Peer | None,
        fault: Fault,
        raw_id: bytes,
    ) -> None:
        """Refuse what no handler gets; `frame` is None if it could not be read."""
        peer = session_peer if session_peer is not rules.ENDED else None
        if self.service.telemetry is not None:
            unhandled = frame if isinstance(frame, Request) else None
            network = request.network_in(session.id if session is not None else "")
            self.service.telemetry.answered(network, unhandled, peer, fault)
        revision = peer.revision if peer is not None else None
        await self._refuse(request, fault, fault.raw_id or raw_id, revision, recorded=True)

    async def _respond(self, request: HttpRequestContext) -> None:
        exchange = request.exchange
        cancelled: asyncio.CancelledError | None = None
        try:
            data = await self.service.respond(request)
        except asyncio.CancelledError as error:
            if request.cancelled:
                if request.abort_with_response and request.is_streaming:
                    data = exchange.fail(Fault(FaultKind.INTERNAL, request.abort_reason))
                    await request.end_stream(encode_event(data) if data is not None else b"")
                exchange.abandon()  # R0862: the client has disconnected, and gets no response
                raise
            # The client waits, and we cancelled nothing: a handler cancelled its own task, or the
            # web server did. Either gets a response, and the task is cancelled all the same.
            cancelled = error
            request.fault = unexpected(error)
            data = exchange.fail(request.fault)
        except Exception as error:
            if isinstance(error, ConnectionLost):
                raise
            request.fault = unexpected(error)
            data = exchange.fail(request.fault)
        status = rules.status_of(request.fault, exchange.peer.revision)
        if request.is_streaming:
            await request.end_stream(encode_event(data) if data is not None else b"")
        elif data is None:
            await request.respond(rules.ACCEPTED, b"")
        elif request.accept.json or status != rules.OK:
            more = _own_headers(request.fault) if request.fault else None
            if not request.try_respond(status, data, more):
                await request.respond(status, data, more)
        else:
            await request.end_stream(encode_event(data))
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled  # it refers to this frame

    async def _post_other(
        self,
        request: HttpRequestContext,
        frame: Frame | Batch,
        session: HttpSession | None,
        session_peer: Peer | None,
    ) -> None:
        """A batch, a notification or a response."""
        if session_peer is rules.ENDED:
            raise rules.unknown_session()
        revision = session.peer.revision if session is not None else None
        if isinstance(frame, Batch):
            if self.stateless:
                raise Fault(FaultKind.INVALID_REQUEST, NO_BATCHES)
            rules.admit_batch(frame, revision)
            if self._guard is not None:
                self._guard.check(frame, request.scopes or frozenset(), request.root)
            assert session is not None
            await session.post(request, frame)
            return
        assert not isinstance(frame, Request)
        ruling = rules.session_revision(request.headers, self._peer_detector.accepts, revision)
        status = rules.accept_post(frame, ruling.revision)
        if session is not None:
            await session.take(frame)
        elif ruling.revision.handshake and not self.stateless:
            rules.require_session(request.headers)
        await request.respond(status, b"")

    def _encoder(self, revision: Revision) -> Encoder:
        encoder = self._encoders.get(revision)
        if encoder is None:
            assert self._identity is not None
            encoder = self._encoders[revision] = self._identity.encoder(revision)
        return encoder

    # ------------------------------------------------------------ GET and DELETE

    async def _without_body(self, request: HttpRequestContext, method: str) -> None:
        try:
            named = rules.require_session(request.headers)
            session = self._sessions.find(named, request.principal)
            if self._shared_sessions is not None:
                session = await self._shared_sessions.current(request.headers, request.principal)
            if session is None:
                raise rules.unknown_session()
            revision = session.peer.revision
            rules.session_revision(request.headers, self._peer_detector.accepts, revision)
            if method == "DELETE":
                await self._sessions.delete(session)
                await request.respond(rules.OK, b"")
                return
            after = rules.last_event_id(request.headers, revision)
            await session.listen(request, after)
        except Fault as fault:
            await self._refuse(request, fault)

    # ------------------------------------------------------------ HTTP+SSE (2024-11-05)

    async def _sse_get(self, request: HttpRequestContext, scope: Scope) -> None:
        try:
            await self._sse.listen(request, request.principal, scope.get("root_path", ""))
        except Fault as fault:
            await self._refuse(request, fault)

    async def _sse_post(self, request: HttpRequestContext, scope: Scope) -> None:
        try:
            await self._sse.post(request, request.principal, scope.get("query_string", b""))
        except Fault as fault:
            await self._refuse(request, fault, fault.raw_id)

    # ------------------------------------------------------------ refusals

    async def _refuse(
        self,
        incoming: IncomingRequest,
        refused: Fault | AuthError,
        raw_id: bytes = b"",
        revision: Revision | None = None,
        *,
        recorded: bool = False,
    ) -> None:
        """Respond with the status of a refusal, and its JSON-RPC error if it has one. `recorded` is
        whether telemetry has it already."""
        status = rules.status_of(refused, revision, admitted=False)
        if self._access_log:
            reason = unverified_words(refused) if isinstance(refused, AuthError) else str(refused)
            facts = {"outcome": "refused", "status": status, "reason": reason}
            access.info("refused with %d: %s", status, reason, extra={"request": facts})
        if isinstance(incoming, HttpRequestContext) and incoming.client:
            self._refusals.note(refused, incoming.client, self._sessions.shared.clock())
        if self.service.telemetry is not None and not recorded:
            self.service.telemetry.refused(refused, status)
        headers = _own_headers(refused) or []
        body = b""
        if isinstance(refused, Fault):
            null_id = revision is not None and revision.error_id_required  # D2
            code = error_code(refused, revision)
            body = encode_error(raw_id, code, refused.message, refused.data, null_id=null_id)
        if self.draining or status == CONTENT_TOO_LARGE:
            headers.append(CLOSE_HEADER)
        if not incoming.has_started:
            await incoming.respond(status, body, headers)

    # ------------------------------------------------------------ startup and shutdown

    def use_policy(self, policy: HostPolicy) -> None:
        """Set the allowed host names if none were given; the runner knows the bound address."""
        if self._given_policy is None:
            self._set_gates(policy)

    def _set_gates(self, policy: HostPolicy) -> None:
        methods = ("POST",) if self.stateless else endpoint_methods(self.service.accepts)
        self._gate = EndpointChecks(policy, methods)
        self._gate_get = EndpointChecks(policy, ("GET",))
        self._gate_post = EndpointChecks(policy, ("POST",))

    @property
    def policy(self) -> HostPolicy:
        """The allowed hosts and origins."""
        return self._gate.policy

    @property
    def has_policy(self) -> bool:
        """Whether hosts or origins were given, so that `use_policy` changes nothing."""
        return self._given_policy is not None

    @property
    def has_around(self) -> bool:
        """Whether other paths go to another application."""
        return self._around is not None

    @property
    def has_routes_of_others(self) -> bool:
        """Whether an application given as `around=` may serve /health itself."""
        return self.has_around

    async def start(self) -> None:
        """Start the service, once."""
        if self._store is not None and (self._has_sessions or self._has_sse):
            self._join_replica(self._store)
        await self.service.start()
        if self._replica is not None and not self._replica.is_started:
            self._owns_replica = True
            await self._replica.start()
        identity = self.service.identity
        self._logs = identity.logs
        self._identity = identity
        self.draining = False
        if self.service.telemetry is not None and self._remove_gauge is None:
            self._remove_gauge = self.service.telemetry.add_gauge("streams", self._count_streams)
        if self.handles_signals:
            # Web servers wait for open streams before they send the shutdown event: for ever.
            self._signals.listen()

    def _count_streams(self) -> int:
        return sum(incoming.is_streaming for incoming in self.reaper)

    def _make_shared_sessions(self) -> "SharedSessionRegistry | None":
        if self._store is None:
            return None
        # On use: most servers have no replicas.
        from colonnade.transport.http_server.sessions.shared_registry import SharedSessionRegistry

        return SharedSessionRegistry(self.service, self.limits, self.reaper, self._store)

    def make_replica(self, store: Store) -> "Replica":
        """The replica that this application is. One that the service does not start itself is
        started and closed with the application."""
        from colonnade.replicas.replica import Replica

        return Replica(store, seal=self.service.shared_seal)

    def _join_replica(self, store: Store) -> None:
        replica = self._replica = self.make_replica(store)
        if replica.seal is None and not getattr(store, "is_file", False):
            log.warning(
                "%s has no keys, so its replicas do not encrypt their messages: anyone who can "
                "publish on the store can answer forms in the name of users; give all replicas the "
                "same keys=[...]",
                self.service.identity.info.name,
            )
        assert self._shared_sessions is not None
        self._shared_sessions.join(replica)
        self._sse.join(replica)

    def _begin_shutdown(self) -> None:
        if self._shutting_down is None:
            self._shutting_down = asyncio.get_running_loop().create_task(self._shut_down())

    async def _shut_down(self) -> None:
        await self.drain()
        self._on_demand.end()

    def _shutdown_task(self) -> asyncio.Task[None] | None:
        """The task that must end before the last stream does, once a shutdown has begun, if this
        application is mounted.

        With the last stream a web server ends its loop, whatever else still runs there.
        """
        return self._on_demand.task if self._shutting_down is not None else None

    async def drain(self, deadline_s: float | None = None) -> None:
        """Refuse new requests, end streams that wait for notifications, and let calls finish until
        the deadline."""
        self.draining = True
        self.service.drain()
        self._sessions.drain()
        self._sse.drain()
        await _settled(
            self._running(), self.limits.drain_timeout_s if deadline_s is None else deadline_s
        )
        await self._abort_all()

    async def _abort_all(self) -> None:
        """Abort all requests; clients that are still connected get an error, which says of those
        that were handled that they may have had an effect."""
        self._sessions.close("the server is shutting down and has ended the request")
        for incoming in list(self._in_authentication):
            incoming.abort("the server is shutting down; try again", respond=True)
        for incoming in self.reaper:
            if incoming.handled_here:
                incoming.abort(_ended_by_shutdown(incoming), respond=True)
        await _settled(self._running(), ENDING_S)  # streams of the sessions end by themselves
        for incoming in self.reaper:
            incoming.abort(_ended_by_shutdown(incoming), respond=True)
        await _settled(self._running(), ENDING_S)

    def _running(self) -> set[asyncio.Future[Any]]:
        handled = (incoming.handled() for incoming in [*self.reaper, *self._in_authentication])
        return {one for one in handled if one is not None} | self._sessions.shared.tasks

    async def stop(self) -> None:
        """Abort all requests, then stop the service."""
        self._signals.stop()
        await self._abort_all()
        if self._shutting_down is not None:
            self._shutting_down.cancel()
            self._shutting_down = None
        self.reaper.stop()
        if self._remove_gauge is not None:
            self._remove_gauge()
            self._remove_gauge = None
        self._identity = None
        if self._replica is not None:
            if self._owns_replica:
                await self._replica.close()
            self._replica, self._owns_replica = None, False
        await self.service.stop()


def _own_headers(refused: Fault | AuthError | None) -> Pairs | None:
    """The headers of a refusal."""
    if isinstance(refused, HttpError):
        return [(name.lower().encode(), value.encode()) for name, value in refused.headers]
    return [(b"www-authenticate", b"Bearer")] if isinstance(refused, LoginRequired) else None


def _address(client: Any) -> str:
    """The address of the client in an ASGI scope. Behind an untrusted proxy server, the address of
    the proxy server."""
    return str(client[0])[:64] if client else "an unknown address"


def _unverified(what: str, error: Exception) -> HttpError:
    """503 for a guard or a verifier that raised. Its message may contain a token: the log has the
    type of the error and the place where it was raised."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = f"{last.filename}:{last.lineno or 0}"
    log.error("the %s raised %s at %s", what, type(error).__name__, place)
    return overload("the credentials cannot be verified now; try again later")


def _ended_by_shutdown(incoming: IncomingRequest) -> str:
    """Why a request is aborted that has not ended when the time for that is over."""
    if incoming.state is READING_BODY:
        return "the server is shutting down"
    return f"the server is shutting down and has ended the request; {EFFECT_UNKNOWN}"


async def _settled(tasks: set[asyncio.Future[Any]], timeout_s: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)
