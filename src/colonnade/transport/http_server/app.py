"""MCP over HTTP as an ASGI application: both ways of opening a conversation on one path.

A request that says it all itself (2026-07-28) goes one straight line, in the task that the web
server made for it: the gate, the body, the frame, the rules, the handler, one JSON answer. Only a
handler that reports on the way turns its answer into a stream. What belongs to a session goes to
`http_sessions`, the first revision's own transport to `http_sse`.

    app = HttpApp(service)                            # POST /mcp, mounts anywhere
    app = HttpApp(service, around=fastapi_app)        # our paths are ours, the rest is theirs

Rules: every request for one of our paths passes one gate before anything is read or kept. What is
refused leaves nothing behind. Limits on connections, which no application can see, are those of
`http_run`.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Raw

from colonnade.errors import (
    AuthError,
    ConnectionLost,
    Fault,
    FaultKind,
    LocalProtocolError,
    LoginRequired,
)
from colonnade.ports import Caller, Guard, Service, Verify
from colonnade.protocol.codec.encode import Shaper
from colonnade.protocol.exchange import LISTEN, Exchange, RequestFields
from colonnade.protocol.http import rules
from colonnade.protocol.http.param_headers import check_params
from colonnade.protocol.http.security import (
    CONTENT_TOO_LARGE,
    NOT_FOUND,
    Gate,
    Headers,
    HostPolicy,
    Refusal,
    RouteGate,
    beside,
    endpoint_methods,
    gather,
    name_list,
    preflight,
    require_events,
)
from colonnade.protocol.http.sse import write
from colonnade.protocol.input_requests import Question
from colonnade.protocol.jsonrpc import Batch, Frame, Request, decode, encode_failure
from colonnade.protocol.link.link import PING
from colonnade.protocol.negotiation import HANDSHAKE_METHOD, Identity, Peer, Recogniser
from colonnade.protocol.revision import Binding, Revision, number
from colonnade.protocol.types import CallToolRequestParams
from colonnade.transport.http_server.authentication import (
    RefusalLog,
    admit,
    described,
    unverified_words,
)
from colonnade.transport.http_server.custom_routes import Route
from colonnade.transport.http_server.legacy_sse import MESSAGES_PATH, SSE_PATH, SseSessions
from colonnade.transport.http_server.lifespan import Keeper, Lifespan
from colonnade.transport.http_server.request import (
    CLOSE_HEADER,
    DEFAULT_LIMITS,
    LINE_KEY,
    SMALL_BODY_BYTES,
    App,
    Gone,
    Intake,
    Limits,
    Pairs,
    Receive,
    Scope,
    Send,
    Sweep,
    Visit,
    overload,
    too_slow,
    unexpected,
)
from colonnade.transport.http_server.session import Session
from colonnade.transport.http_server.session_registry import Sessions
from colonnade.transport.http_server.stateless import (
    NO_BATCHES,
    answer_initialize,
    answer_ping,
    peers_without_session,
)
from colonnade.transport.signals import Signals

log: logging.Logger = logging.getLogger("colonnade.transport")
# Where `middleware.log` writes of each request, too.
access: logging.Logger = logging.getLogger("colonnade.requests")

# After the end of everything was said, what still runs may clean up for so long.
ENDING_S = 1.0
# Where clients look for how to get in (RFC 9728); the path of the endpoint follows.
WELL_KNOWN = "/.well-known/oauth-"
METADATA_PATH = "/.well-known/oauth-protected-resource"


class HttpTurn(Visit, RequestFields):  # pyright: ignore[reportIncompatibleVariableOverride]
    """One request that stands for itself: a visit, its exchange, and the way back."""

    exchange: Exchange
    fault: Fault | None = None
    root: str = ""
    # Whose connection this is, where a guard stands; empty where nothing was shown to it.
    client: str = ""

    @property
    def wire(self) -> "HttpTurn":
        """The answer is the only way back, so it is the turn itself."""
        return self

    @property
    def session(self) -> None:
        """There is none."""
        return None

    async def send(self, frame: bytes) -> None:
        """Write a notification; one that the client takes no stream for is left out."""
        if self.answers.events:
            await self.write(write(frame))

    def post(self, frame: bytes) -> bool:
        """Write it if nobody has to wait for that."""
        return self.answers.events and self.write_at_once(write(frame))

    async def ask(self, question: Question) -> Raw:
        """R0858: no request ever goes to the client here."""
        raise LocalProtocolError(f"{question.kind.method} is asked by result in this revision")

    async def hang_up(self) -> None:
        """A stream that is not resumed cannot be left."""


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
    ) -> None:
        named, pages = name_list("hosts", hosts), name_list("origins", origins)
        # Whether it was said by which names this is reached, and not only which pages may use it.
        self.has_names: bool = bool(named) or policy is not None
        if named or pages:
            policy = HostPolicy.for_mount(*named, origins=pages)
        if not path.startswith("/"):
            raise LocalProtocolError(f"{path!r} is no path; begin it with a slash")
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LocalProtocolError("limits= takes Limits(...); RunLimits(...) are run_limits=")
        self.service = service
        self.path: str = path.rstrip("/") or "/"
        # Also where another application would answer with its page for lost visitors.
        self._metadata = METADATA_PATH + path.rstrip("/")
        self.limits = limits
        self.sweep: Sweep = Sweep()
        self._intake = Intake()
        self.draining: bool = False
        # Whether the wish to end is to be heard here; our own server hears it itself.
        self.heeds_signals = True
        self._around = around
        self._verify = verify
        self._guard = guard
        self.is_guarded: bool = guard is not None or verify is not None
        self._given_policy = policy
        self._recogniser = Recogniser(service.accepts)
        self.stateless: bool = stateless
        # By version header, who sends requests of the handshake revisions without a session.
        self._alone = peers_without_session(service.accepts) if stateless else {}
        self._set_gates(policy or HostPolicy.for_mount())
        self._identity: Identity | None = None
        self._logs = False
        self._extensions: frozenset[str] = frozenset()
        self._shapers: dict[Revision, Shaper] = {}
        self._routes = routes
        self._access_log = access_log
        self._load: dict[str, int] = {}
        self._refusals = RefusalLog()
        self._sessions = Sessions(service, limits, self.sweep)
        # Around another application only what is ours by name is taken from it.
        below = self.path.rstrip("/") if around is not None else ""
        self._sse_path = below + SSE_PATH
        self._messages_path = below + MESSAGES_PATH
        self._sse = SseSessions(service, limits, self._messages_path, self._sessions.shared)
        self._open = (
            partial(answer_initialize, service=service) if stateless else self._sessions.open
        )
        self._has_sessions = bool(service.accepts.handshakes) and not stateless
        self._has_sse = not stateless and any(
            r.http.binding is Binding.HTTP_SSE for r in service.accepts
        )
        self._check_routes()
        self._keeper = Keeper(self.start, self.stop)
        self._signals = Signals(self._begin_to_end)
        self._ending: asyncio.Task[None] | None = None

    # ------------------------------------------------------------ ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        kind = scope["type"]
        if kind == "http":
            path = whole = scope["path"]
            root: str = scope.get("root_path", "")
            if root and path.startswith(root):
                path = path[len(root) :]
            if path == self.path:
                await self._serve(scope, receive, send, self._gate, self._endpoint)
                return
            path = path.rstrip("/") or "/"
            # Who mounts it at its own path, `app.mount("/mcp", …)`, wants it there, too.
            if self.path in (path, whole.rstrip("/")):
                await self._serve(scope, receive, send, self._gate, self._endpoint)
                return
            if self._has_sse and path == self._sse_path:
                await self._serve(scope, receive, send, self._gate_get, self._first_get)
                return
            if self._has_sse and path == self._messages_path:
                await self._serve(scope, receive, send, self._gate_post, self._first_post)
                return
            if path.startswith(WELL_KNOWN) and await self._described(path, scope, receive, send):
                return
        await self._elsewhere(kind, scope, receive, send)

    async def _elsewhere(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        if kind == "lifespan":
            await Lifespan(self.start, self.stop, receive, send).run(scope, self._around)
        elif kind == "http" and (found := self.route_for(scope)) is not None:
            await self._serve_route(*found, scope, receive, send)
        elif self._around is not None:
            await self._around(scope, receive, send)
        elif kind == "http":
            await self._nothing(receive, send, f"nothing is here; use {self.path}")
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    def route_for(self, scope: Scope) -> tuple[Route, str] | None:
        """The program's own route that a request is for, and the path below where we are."""
        routes = self._routes()
        if not routes:
            return None
        path, root = scope["path"], scope.get("root_path", "")
        path = path[len(root) :] if root and path.startswith(root) else path
        path = path.rstrip("/") or "/"
        fitting = [route for route in routes if route.match(path) is not None]
        answered = [route for route in fitting if scope["method"] in route.methods]
        return ((answered or fitting)[0], path) if fitting else None

    def _check_routes(self) -> None:
        """Refuse a route that would never be asked. One with a parameter in the place of our path
        is asked for all others."""
        for path in {route.path for route in self._routes()}:
            if path == self.path:
                raise LocalProtocolError(f"a route is at {path}, where the endpoint is; move one")
            if self._has_sse and path in (self._sse_path, self._messages_path):
                raise LocalProtocolError(
                    f"a route is at {path}, which this server answers itself for clients of "
                    "2024-11-05; move it"
                )

    async def _serve_route(
        self, route: Route, path: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        def answer(turn: HttpTurn, scope: Scope) -> Awaitable[None]:
            return route.serve(turn, scope, path, (receive, send), self._access_log)

        gate = RouteGate(self._gate.policy, route.methods)
        await self._serve(scope, receive, send, gate, answer)

    async def _described(self, path: str, scope: Scope, receive: Receive, send: Send) -> bool:
        """Answer with a document for those who look for the way in; False where it is not ours."""
        visit = Visit(receive, send, {}, self.limits)
        if self._guard is not None:
            try:
                if await described(visit, self._guard, path, scope):
                    return True
            except (Gone, ConnectionLost):
                return True
            except Exception as error:
                await self._refuse(visit, _unverified("guard", error))
                return True
        if path == self._metadata:
            await self._nothing(receive, send, "no document describes this resource")
        return path == self._metadata

    async def _nothing(self, receive: Receive, send: Send, words: str) -> None:
        await self._refuse(Visit(receive, send, {}, self.limits), Refusal(NOT_FOUND, words))

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        gate: Gate,
        serve: "Callable[[HttpTurn, Scope], Awaitable[None]]",
    ) -> None:
        """Let a request in, and look after it until it is answered."""
        headers = gather(scope["headers"])
        turn = HttpTurn(receive, send, headers, self.limits, scope.get(LINE_KEY))
        turn.intake = self._intake
        turn.leaving = self._leaving
        try:
            if b"origin" in headers:  # which only browsers send
                turn.beside = beside(headers, gate.policy)
                told = preflight(scope["method"], headers, gate.policy, gate.methods)
                if told is not None:
                    turn.beside = told
                    await turn.reply(rules.OK, b"")
                    return
            turn.answers = gate.check(scope["method"], headers)
            if self.draining:
                raise overload("this server is shutting down; try another one")
            if self.sweep.count >= self.limits.visits:
                raise overload("too many requests at once; try again later")
            if self.is_guarded and not gate.public:
                await self._admit(turn, scope, gate)
            if self._identity is None:
                await self._keeper.started()
        except (Fault, AuthError) as refused:
            await self._refuse(turn, refused)
            return
        self.sweep.add(turn)
        if turn.principal:
            self._count(turn.principal, 1)
        try:
            await serve(turn, scope)
        except asyncio.CancelledError:
            if not turn.is_ours():
                raise
            if turn.told:
                await self._cut(turn)
            turn.drop()
        except (Gone, ConnectionLost):
            turn.drop()
        finally:
            self.sweep.remove(turn)
            if turn.principal or turn.body_bytes:
                self._uncount(turn)

    async def _admit(self, turn: HttpTurn, scope: Scope, gate: Gate) -> None:
        """Who sent this, and may. Raises `AuthError` or `Refusal`."""
        if b"authorization" in turn.headers:
            turn.client = _address(scope.get("client"))
        if self._guard is not None:
            turn.root = scope.get("root_path", "")
            place = "" if gate is self._gate else scope["path"]
            try:
                await admit(turn, self._guard, scope["method"], place, turn.root)
            except (Fault, AuthError):
                raise
            except Exception as error:
                raise _unverified("guard", error) from None
        else:
            caller = await self._verified(turn.headers)
            turn.principal, turn.scopes = caller.principal, caller.scopes
            turn.claims = caller.claims
        if self._load.get(turn.principal, 0) >= self.limits.visits_per_principal:
            raise overload("too many requests of yours at once; wait for some")

    async def _verified(self, headers: Headers) -> Caller:
        """Who sent this. Raises `AuthError` or `Refusal`."""
        assert self._verify is not None
        try:
            found: object = self._verify(headers)
            caller = await found if inspect.isawaitable(found) else found
        except (Fault, AuthError):
            raise
        except Exception as error:
            raise _unverified("verifier", error) from None
        name = caller.principal if isinstance(caller, Caller) else caller
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            # None is what a look-up finds for a stranger; nobody is let in by that.
            log.error("the verifier returned %s, and not a name", type(name).__name__)
            raise LoginRequired("nobody knows who you are")
        return caller if isinstance(caller, Caller) else Caller(name)

    def _count(self, principal: str, step: int) -> None:
        """How much of one principal is being served."""
        load = self._load.get(principal, 0) + step
        if load:
            self._load[principal] = load
        else:
            del self._load[principal]

    def _uncount(self, turn: HttpTurn) -> None:
        """A request is over: neither it nor its body is held any more."""
        if turn.principal:
            self._count(turn.principal, -1)
        if turn.body_bytes:
            self._sessions.shared.bodies.give(turn.principal, turn.body_bytes)

    async def _cut(self, turn: HttpTurn) -> None:
        """Tell a client that is still there why it gets no more."""
        if turn.reading:
            await self._refuse(turn, too_slow(f"{turn.gone}; send it again"))
        elif not turn.started:
            await self._refuse(turn, overload(turn.gone))
        elif turn.streaming:
            await turn.end()

    def _endpoint(self, turn: "HttpTurn", scope: Scope) -> Awaitable[None]:
        method: str = scope["method"]
        return self._post(turn) if method == "POST" else self._without_body(turn, method)

    # ------------------------------------------------------------ POST

    async def _post(self, turn: HttpTurn) -> None:
        headers = turn.headers
        session: Session | None = None
        known: Peer | None = None
        raw_id = b""
        try:
            body = await turn.body()
            if len(body) > SMALL_BODY_BYTES:
                self._sessions.shared.hold_body(turn, len(body))
            if b"mcp-session-id" in headers and self._has_sessions:
                session = self._sessions.named(headers, turn.principal)
                known = session.peer if session is not None else rules.ENDED
            frame = decode(body)
            if not isinstance(frame, Request):
                await self._post_other(turn, frame, session, known)
                return
            raw_id = frame.raw_id
            if self._guard is not None:
                self._guard.check(frame, turn.scopes or frozenset(), turn.root)
            if self._alone and frame.method != HANDSHAKE_METHOD:  # of which nothing is kept
                known = self._alone.get(headers.get(b"mcp-protocol-version"))
            admission = rules.admit(frame, headers, self._recogniser, known, self._extensions)
            if admission is None:
                await self._open(turn, frame)
                return
            peer = admission.peer
            if session is not None and peer is known:
                if admission.warning:
                    session.note(admission.warning)
                await session.post(turn, frame, admission.head)
                return
            row, head = admission.row, admission.head
            if (
                peer is not known
                and row.params is CallToolRequestParams
                and isinstance(head.name, str)
            ):
                check_params(self.service.param_headers(head.name), headers, head.arguments)
            elif row.name == LISTEN:
                require_events(turn.answers)
                turn.until = turn.expires
            shaper = self._shaper(peer.revision)
            logs = self._logs and peer is not known
            exchange = Exchange(frame, head, row, peer, shaper, turn.principal, logs=logs)
            if turn.scopes is not None:
                exchange.scopes = turn.scopes
        except Fault as fault:
            known_revision = known.revision if known not in (None, rules.ENDED) else None
            await self._refuse(turn, fault, fault.raw_id or raw_id, known_revision)
            return
        turn.exchange = exchange
        turn.working = True
        if peer is known and row.name == PING:
            await answer_ping(turn, frame)
            return
        # What the exchange lets go of while it is answered is not kept here.
        del body, frame, admission, head, exchange
        await self._answer(turn)

    async def _answer(self, turn: HttpTurn) -> None:
        exchange = turn.exchange
        cancelled: asyncio.CancelledError | None = None
        try:
            data = await self.service.answer(turn)
        except asyncio.CancelledError as error:
            if turn.cancelled:
                if turn.told and turn.streaming:
                    data = exchange.fail(Fault(FaultKind.INTERNAL, turn.gone))
                    await turn.end(write(data) if data is not None else b"")
                exchange.abandon()  # R0862: the caller has gone, and nothing more is said
                raise
            # The client waits, and we cancelled nothing: a handler cancelled its own task, or the
            # web server did. Both are answered, and the task is cancelled all the same.
            cancelled = error
            turn.fault = unexpected(error)
            data = exchange.fail(turn.fault)
        except Exception as error:
            if isinstance(error, ConnectionLost):
                raise
            turn.fault = unexpected(error)
            data = exchange.fail(turn.fault)
        status = rules.status_of(turn.fault, exchange.peer.revision)
        if turn.streaming:
            await turn.end(write(data) if data is not None else b"")
        elif data is None:
            await turn.reply(rules.ACCEPTED, b"")
        elif turn.answers.json or status != rules.OK:
            more = _own_headers(turn.fault) if turn.fault else None
            if not turn.reply_at_once(status, data, more):
                await turn.reply(status, data, more)
        else:
            await turn.end(write(data))
        if cancelled is not None:
            raise cancelled

    async def _post_other(
        self,
        turn: HttpTurn,
        frame: Frame | Batch,
        session: Session | None,
        known: Peer | None,
    ) -> None:
        """A batch, or a frame that gets no answer."""
        if known is rules.ENDED:
            raise rules.unknown_session()
        revision = session.peer.revision if session is not None else None
        if isinstance(frame, Batch):
            if self.stateless:
                raise Fault(FaultKind.INVALID_REQUEST, NO_BATCHES)
            rules.admit_batch(frame, revision)
            if self._guard is not None:
                self._guard.check(frame, turn.scopes or frozenset(), turn.root)
            assert session is not None
            await session.post(turn, frame)
            return
        assert not isinstance(frame, Request)
        ruling = rules.session_revision(turn.headers, self._recogniser.accepts, revision)
        status = rules.accept_post(frame, ruling.revision)
        if session is not None:
            session.take(frame)
        elif ruling.revision.handshake and not self.stateless:
            rules.require_session(turn.headers)
        await turn.reply(status, b"")

    def _shaper(self, revision: Revision) -> Shaper:
        shaper = self._shapers.get(revision)
        if shaper is None:
            assert self._identity is not None
            shaper = self._shapers[revision] = self._identity.shaper(revision)
        return shaper

    # ------------------------------------------------------------ GET and DELETE

    async def _without_body(self, turn: HttpTurn, method: str) -> None:
        try:
            named = rules.require_session(turn.headers)
            session = self._sessions.find(named, turn.principal)
            if session is None:
                raise rules.unknown_session()
            revision = session.peer.revision
            rules.session_revision(turn.headers, self._recogniser.accepts, revision)
            if method == "DELETE":
                self._sessions.end(session, "the client ended the session")
                await turn.reply(rules.OK, b"")
                return
            after = rules.last_event_id(turn.headers, revision)
            await session.listen(turn, after)
        except Fault as fault:
            await self._refuse(turn, fault)

    # ------------------------------------------------------------ the first revision's own way

    async def _first_get(self, turn: HttpTurn, scope: Scope) -> None:
        try:
            await self._sse.listen(turn, turn.principal, scope.get("root_path", ""))
        except Fault as fault:
            await self._refuse(turn, fault)

    async def _first_post(self, turn: HttpTurn, scope: Scope) -> None:
        try:
            await self._sse.post(turn, turn.principal, scope.get("query_string", b""))
        except Fault as fault:
            await self._refuse(turn, fault, fault.raw_id)

    # ------------------------------------------------------------ refusals

    async def _refuse(
        self,
        visit: Visit,
        refused: Fault | AuthError,
        raw_id: bytes = b"",
        revision: Revision | None = None,
    ) -> None:
        """Say no: the status, and an error where there is something to say."""
        status = rules.status_of(refused, revision, admitted=False)
        if self._access_log:
            reason = unverified_words(refused) if isinstance(refused, AuthError) else str(refused)
            facts = {"outcome": "refused", "status": status, "reason": reason}
            access.info("refused with %d: %s", status, reason, extra={"request": facts})
        if isinstance(visit, HttpTurn) and visit.client:
            self._refusals.note(refused, visit.client, self._sessions.shared.clock())
        headers = _own_headers(refused) or []
        body = b""
        if isinstance(refused, Fault):
            null_id = revision is not None and revision.error_id_required  # D2
            code = number(refused, revision)
            body = encode_failure(raw_id, code, refused.message, refused.data, null_id=null_id)
        if self.draining or status == CONTENT_TOO_LARGE:
            headers.append(CLOSE_HEADER)
        if not visit.started:
            await visit.reply(status, body, headers)

    # ------------------------------------------------------------ beginning and end

    def use_policy(self, policy: HostPolicy) -> None:
        """By which names this is reached, where none were given: whoever binds the port knows."""
        if self._given_policy is None:
            self._set_gates(policy)

    def _set_gates(self, policy: HostPolicy) -> None:
        methods = ("POST",) if self.stateless else endpoint_methods(self.service.accepts)
        self._gate = Gate(policy, methods)
        self._gate_get = Gate(policy, ("GET",))
        self._gate_post = Gate(policy, ("POST",))

    @property
    def policy(self) -> HostPolicy:
        """By which names this is reached."""
        return self._gate.policy

    @property
    def has_policy(self) -> bool:
        """Whether names or origins were given, so that `use_policy` changes nothing."""
        return self._given_policy is not None

    @property
    def has_around(self) -> bool:
        """Whether other paths are somebody else's."""
        return self._around is not None

    async def start(self) -> None:
        """Start the service, once, and be ready."""
        await self.service.start()
        identity = self.service.identity
        self._extensions = frozenset(identity.capabilities.extensions or ())
        self._logs = identity.logs
        self._identity = identity
        self.draining = False
        if self.heeds_signals:
            # Web servers wait for open streams before they say that it is over: for ever.
            self._signals.listen()

    def _begin_to_end(self) -> None:
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._end_by_signal())

    async def _end_by_signal(self) -> None:
        await self.drain()
        self._keeper.end()

    def _leaving(self) -> asyncio.Task[None] | None:
        """What ends before any stream does, once somebody wished the end, where we are mounted.

        With the last stream a web server is free to end its loop, whatever else is going on there.
        """
        return self._keeper.task if self._ending is not None else None

    async def drain(self, deadline_s: float | None = None) -> None:
        """Refuse what is new, end what waits for news, let calls finish until the deadline."""
        self.draining = True
        self.service.drain()
        self._sessions.drain()
        self._sse.drain()
        await _settled(self._running(), self.limits.drain_s if deadline_s is None else deadline_s)
        await self._cut_all()

    async def _cut_all(self) -> None:
        """End everything, and tell who is still there."""
        words = "the server is shutting down; try again"
        self._sessions.close(words)
        for visit in self.sweep:
            if visit.working:
                visit.leave(words, told=True)
        await _settled(self._running(), ENDING_S)  # what was a session's ends by itself
        for visit in self.sweep:
            visit.leave(words, told=True)
        await _settled(self._running(), ENDING_S)

    def _running(self) -> set[asyncio.Future[Any]]:
        resting = (visit.rest() for visit in self.sweep)
        return {one for one in resting if one is not None} | self._sessions.shared.tasks

    async def stop(self) -> None:
        """End everything, then leave the service."""
        self._signals.stop()
        await self._cut_all()
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self.sweep.stop()
        self._identity = None
        await self.service.stop()


def _own_headers(refused: Fault | AuthError | None) -> Pairs | None:
    """The headers that go with a refusal."""
    if isinstance(refused, Refusal):
        return [(name.lower().encode(), value.encode()) for name, value in refused.headers]
    return [(b"www-authenticate", b"Bearer")] if isinstance(refused, LoginRequired) else None


def _address(client: Any) -> str:
    """The address of a connection as ASGI has it; that of a proxy, where one stands in front."""
    return str(client[0])[:64] if client else "an unknown address"


def _unverified(what: str, error: Exception) -> Refusal:
    """503 for a guard or a verifier that raised. Its message may contain a token: the log has the
    type of the error and the place where it was raised."""
    *_, last = traceback.extract_tb(error.__traceback__)
    place = f"{last.filename}:{last.lineno or 0}"
    log.error("the %s raised %s at %s", what, type(error).__name__, place)
    return overload("who you are cannot be verified now; try again later")


async def _settled(tasks: set[asyncio.Future[Any]], timeout_s: float) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=timeout_s)
