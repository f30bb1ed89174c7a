"""The interfaces between the packages of Colonnade: protocols and type aliases.

Rules: types only, no behaviour but `stack`, `WrappedRequest` and the check of `Caller`. A new
interface between packages is added here.
"""

from asyncio import Future
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from msgspec import Raw, Struct

from colonnade.errors import AuthError, Fault, InvalidArgument
from colonnade.protocol.exchange import Exchange, Network, RequestFields
from colonnade.protocol.jsonrpc import Batch, Request, RequestId
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.negotiation import Callers, Identity, Peer
from colonnade.protocol.revision import Revision, Revisions, Tasks
from colonnade.protocol.types import NotificationParams, ProtocolType, RequestParams

if TYPE_CHECKING:  # an object of these types exists only if its module is loaded
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.protocol.http.security import Headers
    from colonnade.protocol.input_requests import (
        AnyInputResponse,
        InputRequest,
        RequestDeclaration,
    )
    from colonnade.protocol.tasks.client import TaskHandle
    from colonnade.protocol.types import AnyInputRequest, ProgressNotificationParams


class Session(Protocol):
    """State that outlives a request: of a session, or of a connection over a pipe."""

    @property
    def id(self) -> str:
        """The id that clients send with requests in the session; empty for a connection."""
        ...

    @property
    def subscriptions(self) -> set[str]:
        """The URIs of the resources that this client has subscribed to."""
        ...

    def post_notification(self, frame: bytes, subject: str, scopes: frozenset[str]) -> None:
        """Send an encoded notification that belongs to no request, now or when the client reads.

        While it waits, a later one of the same subject replaces it. `scopes` are those that the
        reader needs.
        """
        ...

    async def request_input(self, input_request: "InputRequest", scopes: frozenset[str]) -> Raw:
        """Send an input request that belongs to no open request, on a stream that the client reads
        beside its requests, and wait for the result. `scopes` are those that the reader needs.
        Raises `ConnectionLost` if there is no such stream."""
        ...


class TaskJournal(Protocol):
    """The durable state of a request that runs as a task: what its handler did and received."""

    @property
    def effects(self) -> Mapping[str, Raw]:
        """The results of `ctx.once` in earlier runs, by key."""
        ...

    async def check_lease(self) -> None:
        """Before a side effect: end this run if another worker may run the task by now."""
        ...

    async def record_effect(self, key: str, value: bytes) -> None:
        """Keep the JSON result of a side effect; it is durable when this returns."""
        ...

    async def request_input(self, key: str, input_request: "InputRequest") -> Raw:
        """Wait for the response to an input request, which an earlier run may have sent.

        Raises `RemoteError` if the response is an error.
        """
        ...

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Show the progress to the client."""
        ...


class InputRelay(Protocol):
    """The caller of a request that a gateway forwards: it handles the input requests of servers in
    its own revision. `in_results` is whether `input_required` results are handed back to it; the
    error that requires URL elicitations always is."""

    @property
    def in_results(self) -> bool: ...

    def check_server(self, server: str) -> None:
        """Called with the key of the server before the request is forwarded to it. Raises `Fault`
        if it has the state of another one."""
        ...

    def relayed(self, server: str, answered: "Mapping[str, Raw]") -> None:
        """Called before an `input_required` result is handed back: with the key of its server, and
        the input responses that are to be added to the next round."""
        ...

    @property
    def under_review(self) -> "Mapping[str, AnyInputRequest]":
        """Of the round before: the input requests whose responses a person sees before the server
        gets them, by key."""
        ...

    def review_next(self, requests: "Mapping[str, AnyInputRequest]") -> None:
        """The same for the next round."""
        ...

    @property
    def tasks(self) -> "TaskRelay | None":
        """The tasks of the caller; None if it has none, and a call that becomes one is awaited."""
        ...


class TaskRelay(Protocol):
    """The tasks of the caller of a request that a gateway forwards: the caller knows them by ids of
    the gateway."""

    @property
    def generation(self) -> Tasks:
        """The tasks that are handed back to the caller; a task of another generation is awaited."""
        ...

    @property
    def target(self) -> "TaskHandle | None":
        """The task that the request is about, by the key of its server; None for a call."""
        ...

    @property
    def task_id(self) -> str:
        """The id of that task that the caller knows."""
        ...

    async def created(
        self, handle: "TaskHandle", task: "WatchedTask", contain: Callable[[str], str] | None
    ) -> str:
        """Called with the task that the call has become, before it is handed back. Returns the id
        for the caller. `contain` contains hidden text in what its server says."""
        ...


class WatchedTask(Protocol):
    """A task of a server, in the session that it was created in."""

    def watch(
        self, on_status: Callable[[], None], on_progress: "ProgressCallback"
    ) -> Callable[[], None]:
        """Call these when its server sends a status or progress of it, until the returned function
        is called."""
        ...


class RequestContext(Protocol):
    """One request as handlers and middleware see it: its fields, its caller, and the connection
    back to the caller for what is sent beside the response.

    `fault` is set if the response is an error, for transports that also send a status.
    """

    fault: Fault | None

    @property
    def exchange(self) -> Exchange:
        """The protocol's record of the request."""
        ...

    @property
    def method(self) -> str:
        """The method: `tools/call`."""
        ...

    @property
    def params(self) -> dict[str, Any]:
        """The params, decoded on each access; empty if there are none."""
        ...

    @property
    def tool(self) -> str | None:
        """The name of the tool that is called; None for other methods."""
        ...

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a tool or a prompt, not validated yet; empty if there are none."""
        ...

    @property
    def principal(self) -> str:
        """The authenticated caller; empty without authentication."""
        ...

    @property
    def claims(self) -> Mapping[str, Any]:
        """The claims of the caller's verified token; empty without one."""
        ...

    @property
    def headers(self) -> "Headers":
        """The headers of the HTTP request; empty without HTTP."""
        ...

    @property
    def peer(self) -> Peer:
        """The client: its revision, its implementation info and its capabilities."""
        ...

    @property
    def callers(self) -> Callers:
        """The callers of the connection: one, authenticated ones, or anonymous ones."""
        ...

    @property
    def session(self) -> Session | None:
        """The session; None in revisions where each request is independent."""
        ...

    @property
    def network(self) -> Network:
        """How the caller is connected: transport, protocol, address, session id."""
        ...

    @property
    def next_id(self) -> int | None:
        """The id of the next request that `ask` sends; None in revisions without such requests."""
        ...

    @property
    def debug(self) -> bool:
        """Whether the caller is sent the exception of a handler that failed."""
        ...

    @property
    def task_journal(self) -> TaskJournal | None:
        """The journal of the task that the request runs in; None outside of a task."""
        ...

    @property
    def input_relay(self) -> InputRelay | None:
        """What takes the input requests of servers that this request is forwarded to; None if they
        are sent with `ask`."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send a notification that belongs to this request."""
        ...

    def post(self, frame: bytes) -> bool:
        """Send it without waiting; False if that is not possible, and nothing was sent."""
        ...

    async def ask(self, input_request: "InputRequest") -> Raw:
        """Send a request to the caller and wait for its raw result, in revisions that have such
        requests.

        Raises `RemoteError` if the response is an error, `ChannelError` if there is none.
        """
        ...

    async def hang_up(self) -> None:
        """Close the connection; the client reconnects and resumes. Does nothing if it cannot."""
        ...


class WrappedRequest(RequestFields):
    """A request that a middleware passes on in place of its own: everything is that of the wrapped
    request, but for what a subclass overrides."""

    def __init__(self, request: RequestContext) -> None:
        self.fault: Fault | None = None  # set on the request that the transport made
        self.exchange: Exchange = request.exchange
        self._request = request

    @property
    def claims(self) -> Mapping[str, Any]:
        return self._request.claims

    @property
    def headers(self) -> "Headers":
        return self._request.headers

    @property
    def callers(self) -> Callers:
        return self._request.callers

    @property
    def session(self) -> Session | None:
        return self._request.session

    @property
    def network(self) -> Network:
        return self._request.network

    @property
    def next_id(self) -> int | None:
        return self._request.next_id

    @property
    def debug(self) -> bool:
        return self._request.debug

    @property
    def task_journal(self) -> TaskJournal | None:
        return self._request.task_journal

    @property
    def input_relay(self) -> InputRelay | None:
        return self._request.input_relay

    async def send(self, frame: bytes) -> None:
        await self._request.send(frame)

    def post(self, frame: bytes) -> bool:
        return self._request.post(frame)

    async def ask(self, input_request: "InputRequest") -> Raw:
        return await self._request.ask(input_request)

    async def hang_up(self) -> None:
        await self._request.hang_up()


# A handler of requests, and middleware around one: of servers, hosts, caches and limits alike.
Handler: TypeAlias = Callable[[RequestContext], Awaitable[ProtocolType]]
Middleware: TypeAlias = Callable[[RequestContext, Handler], Awaitable[ProtocolType]]


# Encodes the response to a request, errors included; None if no response is sent.
Responder: TypeAlias = Callable[[RequestContext], Awaitable[bytes | None]]


def stack(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Wrap a handler in middleware, the first outermost; without middleware, the handler itself."""
    for one in reversed(middleware):
        handler = _wrap(one, handler)
    return handler


def _wrap(middleware: Middleware, call_next: Handler) -> Handler:
    # A plain function that returns the middleware's coroutine: cheaper than one more coroutine.
    def handle(request: RequestContext) -> Awaitable[ProtocolType]:
        return middleware(request, call_next)

    return handle


class ConnectionEvents(Protocol):
    """Callbacks of a client for one connection: requests and notifications of the server, and the
    end of the connection."""

    def handle_request(self, request: RequestContext) -> Awaitable[bytes | None]:
        """Respond to a request of the server, such as `sampling/createMessage`: the encoded
        response."""
        ...

    def on_notification(self, notification: NotificationReceived, /) -> None:
        """Handle a notification that belongs to no request, or to a subscription."""
        ...

    def on_missed_notifications(self) -> None:
        """Handle a gap: the connection was resumed, but notifications may have been lost."""
        ...

    def on_closed(self) -> None:
        """Handle the end of the connection."""
        ...


# Called with each progress notification of one request.
ProgressCallback: TypeAlias = Callable[["ProgressNotificationParams"], None]
# Called with a raw result and its members.
OnMembers: TypeAlias = Callable[[Raw, dict[str, Raw]], None]


class Conversation(Protocol):
    """A client's side of one connection to a server, over any transport.

    Every method raises `ChannelError` if there is no response, `RemoteError` if the response is an
    error, `LocalProtocolError` for a message that may not be sent.
    """

    @property
    def link(self) -> DuplexLink: ...

    @property
    def network(self) -> Network:
        """How the server is connected."""
        ...

    def request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        *,
        on_progress: ProgressCallback | None = None,
        headers: Iterable[tuple[str, str]] = (),
        probing: Revision | None = None,
        declared: "RequestDeclaration | None" = None,
        owner: "InputResponder | None" = None,
        on_members: OnMembers | None = None,
    ) -> Coroutine[Any, Any, Raw]:
        """Send a request and wait for its raw result; cancelling the call cancels the request.

        Each progress notification is passed to `on_progress` and restarts the timeout; `headers`
        mirror arguments and are sent over HTTP only; `probing` is a revision that the server may
        not support; `declared` are the input capabilities of this request, if they are not those of
        the client. Requests and notifications of the server that come on the stream of this request
        alone, over HTTP, have its `owner`. `on_members` is called with the raw result and its
        members, if they are known without another pass over it.
        """
        ...

    def start_request(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, Future[Raw]]:
        """Send a request that stays open (a subscription); the caller calls `cancel_request`."""
        ...

    def cancel_request(self, id: RequestId) -> None:
        """Cancel a request; does nothing if it has finished."""
        ...

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the connection with a handshake."""
        ...

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Send a notification to the server."""
        ...

    async def aclose(self, why: str) -> None:
        """Close the connection and wait until its tasks have ended; may be called at any time, and
        more than once."""
        ...


# Opens a connection on a transport (a pipe, a child process, HTTP, memory) that reports to these
# callbacks.
OpenConversation: TypeAlias = Callable[[DuplexLink, ConnectionEvents], Conversation]


class ClientChannel(Protocol):
    """A channel for one conversation: an end of a memory pair, a child process, a stream."""

    @property
    def open_conversation(self) -> OpenConversation: ...


class ClientTransport(Protocol):
    """The transport of a client to one server."""

    @property
    def name(self) -> str:
        """The server's name in errors; empty without one."""
        ...

    @property
    def key(self) -> Hashable | None:
        """The key of the server in the negotiation cache; None if it is not cached."""
        ...

    @property
    def can_reconnect(self) -> bool:
        """Whether another conversation can be opened after one has ended."""
        ...

    @property
    def restarts(self) -> bool:
        """Whether opening another channel restarts the server."""
        ...

    @property
    def mirrors(self) -> bool:
        """Whether arguments are mirrored into headers."""
        ...

    @property
    def always_handshakes(self) -> bool:
        """Whether conversations always begin with `initialize`."""
        ...

    @property
    def legacy_sse(self) -> "ClientTransport | None":
        """The same server over HTTP+SSE; None if there is no such transport."""
        ...

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """Open a channel for a new conversation. Raises `ChannelError`."""
        ...

    async def close(self) -> None:
        """Close the transport. May be called at any time, and more than once."""
        ...


class InputResponder(Protocol):
    """Responds to the input requests of a result or an error: of one call, or of a client."""

    async def respond(self, request: "InputRequest") -> "AnyInputResponse":
        """Respond to one input request. Raises `Declined` if the result cannot express that."""
        ...

    async def respond_all(
        self, requests: "Mapping[str, InputRequest]"
    ) -> "dict[str, AnyInputResponse]":
        """Respond to several, by their keys."""
        ...


class ServerTelemetry(Protocol):
    """Records what a transport does for a server outside of its handlers."""

    def answered(
        self, network: Network, request: Request | None, peer: Peer | None, fault: Fault | None
    ) -> None:
        """Record a request that no handler got: one that the protocol answers itself (`ping`), or
        refuses. `request` is None if it could not be read."""
        ...

    def refused(self, refusal: Fault | AuthError, status: int) -> None:
        """Count an HTTP request that was refused with this status."""
        ...

    def session_opened(self, revision: Revision, network: Network) -> Callable[[], None]:
        """Record a session, from now until the returned function is called."""
        ...

    def add_gauge(self, name: str, read: Callable[[], int]) -> Callable[[], None]:
        """Read a number whenever metrics are collected, until the returned function is called."""
        ...


class ClientTelemetry(Protocol):
    """Records the requests of clients, and those that they receive."""

    def instrument(self, open_conversation: OpenConversation) -> OpenConversation:
        """The same conversation, recorded."""
        ...


class Service(Protocol):
    """A server as transports see it: its identity, its revisions and its request handler."""

    @property
    def accepts(self) -> Revisions: ...

    @property
    def telemetry(self) -> ServerTelemetry | None:
        """What records spans and metrics; None without telemetry."""
        ...

    @property
    def identity(self) -> Identity:
        """Implementation info and capabilities, computed from what is registered now."""
        ...

    def respond(self, request: RequestContext) -> Awaitable[bytes | None]:
        """Encode the response, errors included; None if no response is sent. Raises nothing but
        `CancelledError` and `ConnectionLost`."""
        ...

    def on_notification(self, notification: NotificationReceived, peer: Peer | None, /) -> None:
        """Handle a client's notification that belongs to no exchange."""
        ...

    def param_headers(self, tool: str) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that are mirrored in headers; empty for an unknown tool."""
        ...

    def may_subscribe(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """Whether credentials with these scopes may subscribe to a resource; `scopes` is None if no
        credentials are checked."""
        ...

    @property
    def shared_store(self) -> "Store | None":
        """The store that other processes of this server use, too; None without one."""
        ...

    @property
    def shared_seal(self) -> "Seal | None":
        """The keys that encrypt messages between these processes; None if the processes share no
        keys."""
        ...

    def watch_changes(
        self, on_change: Callable[[str, NotificationParams], None], principal: str
    ) -> Callable[[], None]:
        """Call `on_change` with the method and params of every change notification for a
        principal, until the returned function is called. For sessions: their clients get list
        changes without a subscription."""
        ...

    async def start(self) -> None:
        """Enter the lifespan, once; later calls wait for the first."""
        ...

    def drain(self) -> None:
        """Prepare for shutdown: subscriptions end now, with their results; calls go on."""
        ...

    async def stop(self) -> None:
        """Exit the lifespan, once it was called as often as `start`."""
        ...


# The principal of the server's own state in a store, such as an index of unfinished work of all
# callers. No caller can have this name: `Caller` refuses it, and HTTP allows no such character in a
# header that a verifier could take a name from.
SERVER_PRINCIPAL: Final = "\x01server"


class Caller(Struct, frozen=True):
    """The authenticated caller of a request: name, scopes, and the Unix time at which the
    credentials expire.

    `scopes` includes the scopes that the granted ones imply. `claims` are the other claims of the
    verified token: `ctx.claims`. Raises `InvalidArgument` for the name `SERVER_PRINCIPAL`.
    """

    principal: str
    scopes: frozenset[str] = frozenset()
    expires_at: float | None = None
    claims: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if self.principal == SERVER_PRINCIPAL:
            raise InvalidArgument("no caller can have the name of the server's own principal")

    def __repr__(self) -> str:
        return f"Caller({self.principal!r}, scopes={sorted(self.scopes)})"


# Authenticates a request by its headers. Raises `AuthError`, or `HttpError` with its own headers. A
# plain string is a principal without scopes.
Verify: TypeAlias = Callable[["Headers"], Awaitable[str | Caller]]


class EndpointRequest(Struct, frozen=True):
    """An HTTP request for an endpoint of an authorization server: `path` is below the mount point,
    `query` is encoded, `client` is the address of the client, if known. `proxies_known` is whether
    trusted proxy servers are configured; if not, `client` may be the address of a proxy server."""

    method: str
    path: str
    query: str
    headers: "Headers"
    body: bytes = b""
    client: str = ""
    proxies_known: bool = False


class EndpointResponse(Struct, frozen=True):
    """The response of an endpoint of an authorization server."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Guard(Protocol):
    """Authentication and authorization of HTTP requests, the metadata that clients need for them,
    and the endpoints of the authorization server if that is a part of the server.

    `root` is the path where the application is mounted, empty at the top; `place` is the path of a
    request, empty for the MCP endpoint.
    """

    async def authenticate(self, method: str, place: str, root: str, headers: "Headers") -> Caller:
        """The caller of a request. Raises `HttpError`: 401, 403, 400, and 503 if the credentials
        cannot be verified at the moment."""
        ...

    def check(self, frame: Request | Batch, granted: frozenset[str], root: str) -> None:
        """Raise `HttpError` (403) if a message needs a scope that was not granted."""
        ...

    async def metadata(self, path: str, root: str) -> bytes | None:
        """The protected resource metadata (RFC 9728) at a path; None if there is none."""
        ...

    def endpoint_methods(self, path: str) -> tuple[str, ...]:
        """The HTTP methods of the authorization server's endpoint at a path; empty if there is no
        such endpoint."""
        ...

    async def respond(self, request: EndpointRequest) -> EndpointResponse:
        """The response of that endpoint. It checks the origin of the request itself."""
        ...


class HttpClientResponse(Protocol):
    """The response of an HTTP server: status, headers by their names in lower case, and body."""

    status: int
    headers: dict[str, str]

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises `RemoteProtocolError` if it is larger than `limit`."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class HttpSend(Protocol):
    """Sends one HTTP request to one IP address: no DNS lookup, no redirect, no retry.

    Only the fetcher of `auth` is given one, and it has checked the address.
    """

    def __call__(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        address: str,
    ) -> Awaitable[HttpClientResponse]: ...


class RequestCredentials(Struct, frozen=True):
    """The credentials that were sent with a request: which generation of them, and their headers,
    empty without credentials. `nonce` is the server's DPoP nonce that they were made with."""

    generation: str
    headers: tuple[tuple[str, str], ...]
    nonce: str = ""

    def __repr__(self) -> str:
        return f"RequestCredentials({len(self.headers)} headers)"


class Credentials(Protocol):
    """The credentials of a client for one server, sent with every request."""

    def cached(self, method: str, url: str) -> RequestCredentials | None:
        """The credentials to send, if they are available without waiting."""
        ...

    async def obtain(self, method: str, url: str) -> RequestCredentials:
        """The credentials to send. Raises `AuthError`, `ChannelError`."""
        ...

    async def handle_rejection(
        self,
        sent_before: Sequence[RequestCredentials],
        status: int,
        lines: Sequence[str],
        nonce: str,
    ) -> bool:
        """Whether to send a rejected request (401, 403) again. `sent_before` are the credentials of
        each attempt so far, `lines` the `WWW-Authenticate` headers. Raises `AuthError`,
        `ChannelError`."""
        ...

    def set_nonce(self, nonce: str) -> None:
        """Set the nonce for the next request."""
        ...

    async def close(self) -> None:
        """Release what these credentials hold; they are not used afterwards."""
        ...


class Seal(Protocol):
    """Encrypts and authenticates state that is kept by the client, and values in a store.

    `private` is set if its key is random: after a restart, and in other replicas, nothing of it can
    be decrypted.
    """

    private: bool

    def seal(self, secret: bytes) -> str:
        """Raises `Fault` if it is too large to be sent."""
        ...

    def unseal(self, text: str) -> bytes:
        """Raises `Fault` for what this did not seal, or can no longer decrypt."""
        ...

    def encrypt(self, secret: bytes, place: bytes) -> bytes:
        """Encrypt a value of any size for one place of a store."""
        ...

    def decrypt(self, data: bytes, place: bytes) -> bytes:
        """Raises `Fault` for what this did not encrypt for the place, or can no longer decrypt."""
        ...


class Swap(NamedTuple):
    """One compare and swap, of several that are one change: see `Store.swap`."""

    principal: str
    key: str
    before: bytes | None
    after: bytes | None
    ttl_s: float | None


class Store(Protocol):
    """State that outlives a request, of one principal at a time.

    Names are strings, values are bytes. The state of one principal is not visible to another;
    callers without a name are together the principal "". `SERVER_PRINCIPAL` has what belongs to no
    caller. Entries, logs and topics have separate names. A `ttl_s` is in seconds, None for no
    expiry.

    Every method raises `Refused` for a name or a size beyond the limits of the store, and
    `ChannelError` if the store does not respond; whether a write took place is then unknown.
    """

    @property
    def is_shared(self) -> bool:
        """Whether another application can have the same state: in another process, or in this one
        with the same store. If not, what is found here was stored by this application."""
        ...

    async def get(self, principal: str, key: str) -> bytes | None: ...

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None: ...

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        """Put a value if there is none; False if there is one. The base of all single-use state.

        The same as `swap` from None to the value.
        """
        ...

    async def delete(self, principal: str, key: str) -> None: ...

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        """Compare and swap: put `after` if the value is `before`; False, and no change, if not.

        `before` is None for no value, or an expired one; `after` is None to delete. Atomic, in
        every process. The entry expires `ttl_s` from now, also if `after` is equal to `before`.
        """
        ...

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        """Several swaps as one, each of another entry: all take place, or none; False, and no
        change, if any value is not its `before`. One that is refused refuses all of them.
        """
        ...

    async def count(self, principal: str, key: str, by: int, ttl_s: float | None) -> int:
        """Add to a counter, atomically in every process; its new value.

        A counter is an entry with a number of at most 64 bits in decimal digits: `get` returns
        them, `delete` sets it back. One that is absent or expired counts from 0, and expires
        `ttl_s` after this call; a call that finds it does not change its expiry. Raises
        `LocalProtocolError` if the entry is not a number.
        """
        ...

    async def names(self, principal: str, prefix: str, after: str, limit: int) -> list[str]:
        """The keys of entries that have this prefix and are greater than `after`, in the order of
        their code points: at most `limit`, which is 1 to 1,000.

        Start with `after=""`, and go on with the last key of each page until a page has less than
        `limit`. A key that is there all the time is then in exactly one page, whatever is added and
        removed meanwhile.
        """
        ...

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        """Whether this is the first use of a mark of at most 64 bytes, in every process.

        For a value of each request, such as a proof of possession: marks have limits of their own,
        far above those of entries, and live for minutes at most. A mark may be kept for some
        seconds longer than `ttl_s`, never for less.
        """
        ...

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        """Add to an ordered log; the number of the entry, counting from 1.

        The whole log expires `ttl_s` from now. It is bounded: its oldest entries are dropped.
        """
        ...

    async def read(self, principal: str, log: str, after: int) -> list[tuple[int, bytes]]:
        """The entries of a log after this one, oldest first.

        If the first number is not `after + 1`, the entries between were dropped.
        """
        ...

    async def drop(self, principal: str, log: str) -> None:
        """Delete a log; its numbers begin again at 1."""
        ...

    async def publish(self, principal: str, topic: str, message: bytes) -> int | None:
        """Send a message to all current listeners, in every process, without waiting for them.

        Returns how many listeners, or processes with listeners, get the message; None if the store
        cannot tell.
        """
        ...

    def listen(
        self, principal: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The messages that are published from entering the context until its exit.

        Ends when the store is closed. Raises `ConnectionLost` if messages were missed, such as by a
        listener that is too slow: read the state again, and listen again.
        """
        ...

    async def close(self) -> None: ...
