"""A connection to a session that another replica has: a transport of the client of a host.

    client of a host here -- memory --> `HomeConnection` -- requests between replicas --> the home

The client of this host opens it like any other connection, in the revision of the server, so that
results pass as bytes. Each request runs at the home, with its progress, log messages, input
requests and cancellation; notifications that belong to no request come as messages of the home.

Rules: a request that has no outcome is an exception of the client, never an error response: whether
it was started is known here, and a server cannot say it.
"""

import secrets
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct

from colonnade.client.client import Client
from colonnade.errors import (
    CannotConnect,
    ChannelError,
    ConnectionLost,
    Fault,
    FaultKind,
    RemoteError,
    TimedOut,
)
from colonnade.host.servers.homes import HomeLost, StateLost
from colonnade.host.servers.session_input import CALLER_LOST
from colonnade.ports import (
    ClientTransport,
    ConnectionEvents,
    Conversation,
    OpenConversation,
    RequestContext,
    ServerTelemetry,
    Store,
    WrappedRequest,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.exchange import CallerLost, Exchange
from colonnade.protocol.http.param_headers import ParamHeader
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.jsonrpc import encode, encode_error
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.negotiation import Identity, Peer
from colonnade.protocol.revision import EVERY, Revision, Revisions
from colonnade.replicas.remote_request import RemoteRequests
from colonnade.transport.memory import End, MemoryConversation, connected_pair, serve_end

# Failures that the client has not read: it reads each at once, unless the request was cancelled.
MAX_FAILURES = 1024
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
UPDATED = "notifications/resources/updated"
LIST_CHANGES = (
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
)
HAS_ENDED = "the replica with its session has ended, and the state of the server is gone"
DOES_NOT_RESPOND = "the replica with its session did not respond, and the request was given up"


class HomeIdentity(Struct, frozen=True):
    """What a server said of itself at its home, in JSON."""

    revision: str
    info: t.Implementation
    capabilities: t.ServerCapabilities
    instructions: str | None = None

    @classmethod
    def of(cls, client: Client) -> "HomeIdentity":
        """That of the server of a client."""
        peer = client.peer
        assert isinstance(peer.capabilities, t.ServerCapabilities)
        info = peer.info or t.Implementation(name=client.name, version="0")
        return cls(peer.revision.date, info, peer.capabilities, client.instructions)

    @classmethod
    def read(cls, data: bytes) -> "HomeIdentity | None":
        """What another replica has written; None if this release cannot read it."""
        try:
            found = msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return found if EVERY.get(found.revision) is not None else None

    def write(self) -> bytes:
        """For another replica."""
        return encode(self)


class HomeFailure(Struct, frozen=True):
    """A request at a home has no outcome: in the data of an error that the home itself sends.

    `moved` is not started, and is repeated at the next home; `state` is not started, since the
    state of the caller is gone; the others say what happened to the request there.
    """

    what: Literal["moved", "state", "refused", "timed out", "failed"]
    message: str

    @classmethod
    def of(cls, error: ChannelError) -> "HomeFailure":
        """That of an error at the home."""
        if isinstance(error, StateLost):
            return cls("state", error.sentence)
        if isinstance(error, HomeLost) and error.not_sent:
            return cls("moved", error.sentence)
        if isinstance(error, TimedOut):
            return cls("timed out", error.sentence)
        return cls("refused" if error.not_sent else "failed", error.sentence)

    def fault(self) -> Fault:
        """The error of the home."""
        return Fault(FaultKind.INTERNAL, self.message, {"home": self.what})

    def error(self) -> ChannelError:
        """The exception for the client here."""
        match self.what:
            case "moved":
                return _not_started(HomeLost(self.message))
            case "state":
                return StateLost(self.message)
            case "refused":
                return CannotConnect(self.message)
            case "timed out":
                return TimedOut(self.message)
            case "failed":
                return HomeLost(self.message)


class _FailureData(Struct, frozen=True):
    home: Literal["moved", "state", "refused", "timed out", "failed"] | None = None
    effectUnknown: bool = True  # noqa: N815 - a member of JSON


class _ErrorOf(Struct, frozen=True):
    data: _FailureData = _FailureData()


class _ErrorResponse(Struct, frozen=True):
    error: _ErrorOf


class HomeConnection:
    """A transport to the session of another replica, and the service at its other end."""

    key: Hashable | None = None
    can_reconnect: bool = False
    restarts: bool = False
    mirrors: bool = False
    always_handshakes: bool = True
    legacy_sse: ClientTransport | None = None
    telemetry: ServerTelemetry | None = None
    shared_store: Store | None = None
    shared_seal: None = None

    def __init__(
        self,
        remote: RemoteRequests,
        replica: str,
        key: str,
        identity: HomeIdentity,
        server: str,
        principal: str,
        has_ended: "Callable[[HomeConnection], Awaitable[bool]]",
    ) -> None:
        self.name: str = server
        self.replica: str = replica
        self.id: str = ""
        self.on_closed: Callable[[HomeConnection], None] | None = None
        revision = EVERY.get(identity.revision)
        assert revision is not None
        self.revision: Revision = revision
        self.accepts: Revisions = Revisions([revision])
        self.identity: Identity = Identity(
            identity.info, identity.capabilities, identity.instructions
        )
        self._remote = remote
        self._key = key
        self._principal = principal
        self._has_ended = has_ended
        self._watchers: dict[object, Callable[[str, t.NotificationParams], None]] = {}
        # A secret of this connection: a server cannot make an error that is taken for one of these.
        self._mark = secrets.token_hex(16)
        self._failures: dict[int, ChannelError] = {}
        self._numbers = 0

    # ------------------------------------------------------------ the transport

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """A pair of memory channels, one of them served here."""
        near, far = connected_pair()
        serve_end(far, self, principal=self._principal)

        def open_conversation(link: DuplexLink, events: ConnectionEvents) -> Conversation:
            conversation = HomeConversation(link, near, events, self)
            near.join(conversation, events.on_closed)
            return conversation

        return open_conversation

    async def close(self) -> None:
        """Nothing at the home: its session lives as long as it is used."""
        if self.on_closed is not None:
            self.on_closed(self)

    def failure(self, error: RemoteError) -> ChannelError | None:
        """The exception in place of an error response; None for one of the server."""
        data: object = error.data
        if not isinstance(data, dict):
            return None
        number: object = cast("dict[str, object]", data).get(self._mark)
        return self._failures.pop(number, None) if isinstance(number, int) else None

    # ------------------------------------------------------------ the service

    async def respond(self, request: RequestContext) -> bytes | None:
        """The response of the home, encoded."""
        exchange = request.exchange
        if exchange.method.name in (SUBSCRIBE, UNSUBSCRIBE) and request.session is not None:
            uri = decode_as(t.SubscribeRequestParams, exchange.request.params).uri
            if exchange.method.name == UNSUBSCRIBE:
                # Others may follow it on the same session; what is not wanted here is dropped.
                request.session.subscriptions.discard(uri)
                return exchange.settle(t.EmptyResult())
            request.session.subscriptions.add(uri)
        sent = HomeRequest(request)
        response = await self._remote.run(sent, self.replica, self._key)
        fault = sent.fault
        if fault is None or response is None:
            return response
        self._numbers += 1
        self._failures.pop(self._numbers - MAX_FAILURES, None)
        self._failures[self._numbers] = await self._failed(fault, response)
        code = self.revision.codes[FaultKind.INTERNAL]
        data = {self._mark: self._numbers}
        return encode_error(exchange.request.raw_id, code, fault.message, data)

    async def _failed(self, fault: Fault, response: bytes) -> ChannelError:
        """Why a request has no outcome."""
        try:
            found = msgspec.json.decode(response, type=_ErrorResponse).error.data
        except msgspec.MsgspecError:
            found = _FailureData()
        if found.home is not None:
            error = HomeFailure(found.home, fault.message).error()
            error.server = self.name  # the home has named it
            return error
        if not found.effectUnknown:
            return _not_started(HomeLost(fault.message))
        return HomeLost(HAS_ENDED if await self._has_ended(self) else DOES_NOT_RESPOND)

    def on_notification(self, notification: NotificationReceived, peer: Peer | None) -> None:
        """Nothing: the client of the home sends its own."""

    def param_headers(self, tool: str) -> tuple[ParamHeader, ...]:
        """None: these are for HTTP."""
        return ()

    def may_subscribe(self, uri: str, scopes: frozenset[str] | None) -> bool:
        """The server decides."""
        return True

    def watch_changes(
        self, on_change: Callable[[str, t.NotificationParams], None], principal: str
    ) -> Callable[[], None]:
        """Call `on_change` with the notifications of the home."""
        mark = object()
        self._watchers[mark] = on_change

        def unwatch() -> None:
            self._watchers.pop(mark, None)

        return unwatch

    def changed(self, method: str, params: bytes) -> None:
        """The server has sent this notification to its home."""
        typed: t.NotificationParams = t.NotificationParams()
        if method == UPDATED:
            try:
                typed = decode_as(t.ResourceUpdatedNotificationParams, Raw(params))
            except Fault:
                return
        for watcher in list(self._watchers.values()):
            watcher(method, typed)

    def missed(self) -> None:
        """Notifications may have been lost: any list may have changed."""
        for method in LIST_CHANGES:
            self.changed(method, b"")

    async def start(self) -> None:
        """Nothing."""

    def drain(self) -> None:
        """Nothing."""

    async def stop(self) -> None:
        """Nothing."""


class HomeRequest(WrappedRequest):
    """A request on its way to the home."""

    def __init__(self, request: RequestContext) -> None:
        super().__init__(request)
        self.exchange: Exchange = request.exchange

    async def ask(self, input_request: InputRequest) -> Raw:
        """Let the client of this request respond. Raises `CallerLost` if the request has ended, so
        that the home asks another one of the same caller."""
        try:
            return await super().ask(input_request)
        except RemoteError as error:
            if error.data == CALLER_LOST:
                raise CallerLost("the request that was asked has ended") from None
            raise


class HomeConversation(MemoryConversation):
    """The client's side of a connection to a home."""

    def __init__(
        self, link: DuplexLink, end: End, events: ConnectionEvents, home: HomeConnection
    ) -> None:
        super().__init__(link, end, events)
        self._home = home

    async def request(
        self, method: str, params: t.RequestParams, *args: Any, **options: Any
    ) -> Raw:
        """As every conversation; what has no outcome at the home is an exception."""
        try:
            return await super().request(method, params, *args, **options)
        except RemoteError as error:
            failure = self._home.failure(error)
            if failure is None:
                raise
            raise failure from None


def _not_started(lost: ConnectionLost) -> ConnectionLost:
    lost.not_sent = True
    return lost
