"""Every seam of Colonnade on one page: what the layers above and below agree on.

Rules: types only, no behaviour but `stack`. A new seam is added here or not at all.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Raw, Struct

from colonnade.errors import Fault
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Batch, Request, RequestId
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import Revision, Revisions
from colonnade.protocol.types import NotificationParams, ProtocolType, RequestParams

if TYPE_CHECKING:  # whoever has one of these has loaded it
    from colonnade.protocol.http.param_headers import ParamHeader
    from colonnade.protocol.http.security import Headers
    from colonnade.protocol.input_requests import InputRequest
    from colonnade.protocol.types import ProgressNotificationParams


class Session(Protocol):
    """What outlives a request where the revision has sessions, or a pipe is one."""

    @property
    def subscriptions(self) -> set[str]:
        """The resources whose updates this client has asked for."""
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
    def session(self) -> Session | None:
        """The session; None in revisions where each request is independent."""
        ...

    @property
    def debug(self) -> bool:
        """Whether the caller is sent the exception of a handler that failed."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send a notification that belongs to this request."""
        ...

    def post(self, frame: bytes) -> bool:
        """Send it without waiting; False if that is not possible, and nothing was sent."""
        ...

    async def ask(self, question: "InputRequest") -> Raw:
        """Send a request to the caller and wait for its raw result, in revisions that have such
        requests.

        Raises `RemoteError` if the response is an error, `ChannelError` if there is none.
        """
        ...

    async def hang_up(self) -> None:
        """Close the connection; the caller resumes. Does nothing where it could not."""
        ...


# The one callable, the whole height: server, gateway, cache, limits, policy.
Handler: TypeAlias = Callable[[RequestContext], Awaitable[ProtocolType]]
Middleware: TypeAlias = Callable[[RequestContext, Handler], Awaitable[ProtocolType]]


# What turns a request into the bytes of its answer, errors included; None for silence.
Answer: TypeAlias = Callable[[RequestContext], Awaitable[bytes | None]]


def stack(handler: Handler, layers: Sequence[Middleware]) -> Handler:
    """A handler with layers around it, the first outermost; without layers, itself."""
    for layer in reversed(layers):
        handler = _wrapped(layer, handler)
    return handler


def _wrapped(layer: Middleware, inner: Handler) -> Handler:
    # A plain function that hands out the layer's coroutine: cheaper than one more coroutine.
    def wrapped(request: RequestContext) -> Awaitable[ProtocolType]:
        return layer(request, inner)

    return wrapped


class Hearer(Protocol):
    """Who holds a conversation as a client: what the server asks, tells and reports comes here."""

    def answer(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The bytes of the answer to a question that went by request."""
        ...

    def told(self, told: NotificationReceived) -> None:
        """A notification that belongs to no call of ours, or to a subscription."""
        ...

    def missed(self) -> None:
        """The conversation goes on, but what it told for a while nobody has heard."""
        ...

    def gone(self) -> None:
        """The conversation has ended."""
        ...


# Hears of the progress of one call.
Progressing: TypeAlias = Callable[["ProgressNotificationParams"], None]


class Conversation(Protocol):
    """One conversation as a client holds it, whatever carries it.

    Everything here raises `ChannelError` where nothing was answered, `RemoteError` where the
    answer is an error, `LocalProtocolError` for what may not be sent.
    """

    @property
    def link(self) -> DuplexLink: ...

    async def request(
        self,
        method: str,
        params: RequestParams,
        timeout_s: float,
        *,
        progressed: Progressing | None = None,
        headers: Iterable[tuple[str, str]] = (),
        probing: Revision | None = None,
    ) -> Raw:
        """Ask the server and wait for its raw answer; giving up tells it so.

        `progressed` is told how it is getting on, which begins the time-out anew; `headers`
        mirror arguments where there are headers; `probing` is a revision that it may not speak.
        """
        ...

    def begin(
        self, method: str, params: RequestParams, timeout_s: float
    ) -> tuple[RequestId, Future[Raw]]:
        """Ask for what stays open, as a subscription does; whoever begins calls `give_up`."""
        ...

    def give_up(self, id: RequestId) -> None:
        """Nobody waits for this any more; nothing where it is over."""
        ...

    async def initialize(self, revision: Revision, timeout_s: float) -> Raw:
        """Open the conversation with a handshake."""
        ...

    async def notify(self, method: str, params: NotificationParams | None = None) -> None:
        """Tell the server something."""
        ...

    async def leave(self, why: str) -> None:
        """End it, and wait until nothing of it is left; at any time, and twice."""
        ...


# What carries a conversation for its hearer: a pipe, a child's streams, HTTP, memory.
Carry: TypeAlias = Callable[[DuplexLink, Hearer], Conversation]


class Service(Protocol):
    """What a transport serves: who it is, what it speaks, and how it answers."""

    @property
    def accepts(self) -> Revisions: ...

    @property
    def identity(self) -> Identity:
        """Capabilities are computed from what is registered now."""
        ...

    def answer(self, request: RequestContext) -> Awaitable[bytes | None]:
        """The bytes of the answer, errors included; None for silence. Raises nothing but
        `CancelledError` and `ConnectionLost`."""
        ...

    def told(self, told: NotificationReceived, peer: Peer | None) -> None:
        """A client's notification that belongs to no exchange."""
        ...

    def param_headers(self, tool: str) -> "tuple[ParamHeader, ...]":
        """The arguments of a tool that are mirrored in headers; empty for most and for none."""
        ...

    def may_hear(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """Whether credentials with these scopes may hear that a resource has changed; None where
        no credentials are looked at."""
        ...

    def watch(self, news: Callable[[str, NotificationParams], None]) -> Callable[[], None]:
        """Be told of every change (method and params of a notification) until the returned
        function is called. For sessions, whose clients are told without asking."""
        ...

    async def start(self) -> None:
        """Enter the lifespan, once; later calls wait for the first."""
        ...

    def drain(self) -> None:
        """The end is near: what only waits for news ends now, with its result; calls go on."""
        ...

    async def stop(self) -> None:
        """Leave the lifespan, with the last who started it."""
        ...


class Caller(Struct, frozen=True):
    """Who sent a request: their name, what they may do, and until when, by the time of day.

    `scopes` has also what the granted ones imply. `claims` is what else their token says, after it
    was verified: `ctx.claims`.
    """

    principal: str
    scopes: frozenset[str] = frozenset()
    expires_at: float | None = None
    claims: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"Caller({self.principal!r}, scopes={sorted(self.scopes)})"


# Who sent a request, from its headers. Raises `AuthError`, or a `Refusal` with headers of its own.
# A name alone has no scopes.
Verify: TypeAlias = Callable[["Headers"], Awaitable[str | Caller]]


class Guard(Protocol):
    """Who may come in over HTTP, and what strangers are told about the way.

    `root` is where the application is mounted, empty at the top; `place` is the path of a request,
    empty for the one endpoint.
    """

    async def admit(self, method: str, place: str, root: str, headers: "Headers") -> Caller:
        """Who sent a request. Raises `Refusal`: 401, 403, 400, and 503 where nobody knows."""
        ...

    def check(self, frame: Request | Batch, granted: frozenset[str], root: str) -> None:
        """Raise `Refusal` (403) where a message needs more than was granted."""
        ...

    async def document(self, path: str, root: str) -> bytes | None:
        """A document for clients that look for the way in; None where there is none."""
        ...


class HttpAnswer(Protocol):
    """What a server answered: its status, its headers by name in small letters, and its body."""

    status: int
    headers: dict[str, str]

    async def whole(self, limit: int) -> bytes:
        """The whole body. Raises `RemoteProtocolError` for more than a limit."""
        ...

    def close(self) -> None:
        """Read no more."""
        ...


class HttpSend(Protocol):
    """Sends one HTTP request to one address: no look-up, no redirect, no retry.

    Only the guarded fetcher of `auth` is given one, and it has checked the address.
    """

    async def __call__(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[str, str]],
        body: bytes = b"",
        *,
        address: str,
    ) -> HttpAnswer: ...


class RequestCredentials(Struct, frozen=True):
    """What a request showed of who we are: which credentials, and the headers; none where none
    were. `nonce` is the server's own, that they were made with."""

    generation: str
    headers: tuple[tuple[str, str], ...]
    nonce: str = ""

    def __repr__(self) -> str:
        return f"RequestCredentials({len(self.headers)} headers)"


class Credentials(Protocol):
    """Who a client is to one server, shown with every request to it."""

    def cached(self, method: str, url: str) -> RequestCredentials | None:
        """What to send along, if that is known without waiting for anybody."""
        ...

    async def obtain(self, method: str, url: str) -> RequestCredentials:
        """What to send along. Raises `AuthError`, `ChannelError`."""
        ...

    async def handle_rejection(
        self,
        sent_before: Sequence[RequestCredentials],
        status: int,
        lines: Sequence[str],
        nonce: str,
    ) -> bool:
        """Whether to send a request again that was refused (401, 403), after what was shown each
        time so far. `lines` are its `WWW-Authenticate`. Raises `AuthError`, `ChannelError`."""
        ...

    def set_nonce(self, nonce: str) -> None:
        """The server gave a nonce for the next time."""
        ...

    async def close(self) -> None:
        """Nobody shows anything any more."""
        ...


class Seal(Protocol):
    """Protects what travels through a stranger's hands."""

    def seal(self, secret: bytes) -> str:
        """Raises `Fault` for more than may travel."""
        ...

    def unseal(self, text: str) -> bytes:
        """Raises `Fault` for what this did not seal, or can no longer open."""
        ...


class Store(Protocol):
    """State that outlives a request, of one principal at a time.

    Names are text, values are bytes. What belongs to one principal is nothing to another;
    callers without a name are together the principal "". Entries, logs and topics do not share
    their names. A `ttl_s` is in seconds, None for ever.

    Everything here raises `Refused` for a name or a size beyond the limits of the store, and
    `ChannelError` where the store does not answer; whether a write took place is then unknown.
    """

    async def get(self, principal: str, key: str) -> bytes | None: ...

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None: ...

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        """Put where nothing was; False where something is: the base of all that is single-use."""
        ...

    async def delete(self, principal: str, key: str) -> None: ...

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        """Whether this is the first use of a mark of at most 64 bytes, in every process.

        For what each request brings, such as a proof of possession: marks have limits of their
        own, far above those of entries, and live for minutes at most. One may be remembered for
        some seconds longer than `ttl_s`, never for less.
        """
        ...

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        """Add to an ordered log; the number of the entry, counting from 1.

        The whole log lives for `ttl_s` from now. It is bounded: its oldest entries make room.
        """
        ...

    async def read(self, principal: str, log: str, after: int) -> list[tuple[int, bytes]]:
        """The entries of a log after this one, oldest first.

        Where the first number is not `after + 1`, those between made room and are gone.
        """
        ...

    async def drop(self, principal: str, log: str) -> None:
        """Forget a log; its numbers begin again."""
        ...

    async def publish(self, principal: str, topic: str, message: bytes) -> None:
        """Tell all who listen now, in every process. Waits for none of them."""
        ...

    def listen(
        self, principal: str, topic: str
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """What is published from the moment the context is entered, until it is left.

        Ends when the store is closed. Raises `ConnectionLost` where messages were missed, as
        with a listener that is too slow: look anew at what they were about, and listen again.
        """
        ...

    async def close(self) -> None: ...
