"""The client's connection to one server: revision negotiation, retries, and reconnecting.

Rules: every wait has a timeout. A request that may have had an effect is never sent again: only one
that the server has certainly not received, or that is idempotent (D19). Messages of a closed
conversation are ignored. One task reconnects at a time, and others wait for it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from msgspec import Raw

from colonnade.client.probe import (
    ERA_CACHE,
    Attempt,
    Discover,
    EraCache,
    KnownServer,
    Opening,
    Outcome,
    ProbeOptions,
    negotiate,
)
from colonnade.client.transports import ProcessTransport
from colonnade.errors import (
    CannotConnect,
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    FaultKind,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
)
from colonnade.ports import (
    ClientTelemetry,
    ClientTransport,
    ConnectionEvents,
    Conversation,
    InputResponder,
    OnMembers,
    ProgressCallback,
    RequestContext,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.input_requests import RequestDeclaration
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.link.handshake import Phase
from colonnade.protocol.link.link import DISCOVER, PING, SET_LEVEL, DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Identity
from colonnade.protocol.revision import NEWEST, Revisions

log: logging.Logger = logging.getLogger("colonnade.client")

# For a server that ignores unknown methods. One that is started by a package manager may take as
# long before it responds; it then gets `initialize`, and is probed once more if it refuses that.
# Not shorter: eight FastMCP servers that a host starts at once on two cores respond after 6 s, and
# would be used in an older revision. Python `mcp` 2.3 and rmcp 3.8 wait as long. The wait happens
# once for a command that does not respond (twice if it stays alive), and is remembered.
PROBE_S = 10.0

# The statuses of a server that does not understand a request at all (D13).
UNKNOWN_STATUSES = frozenset({400, 404, 405, 406, 415})

# Idempotent methods: sent again if the response was lost (D19).
IDEMPOTENT = frozenset(
    {
        DISCOVER,
        PING,
        SET_LEVEL,
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "tasks/get",
        "tasks/result",
        "tasks/list",
        "tasks/update",  # responses to input requests that have one are ignored (R1187)
        "tasks/cancel",
    }
)

# Looking up an enum member is slow, and this one is needed for every request.
CLOSED = Phase.CLOSED

Headers = Iterable[tuple[str, str]]
# Called after a reconnect, before other requests are sent.
OnReconnect: TypeAlias = Callable[[Conversation, Opening], Awaitable[None]]


class DetachableListener:
    """Passes messages of one conversation to the client until it is detached."""

    def __init__(self, events: ConnectionEvents) -> None:
        self._events = events
        self.detached = False

    def handle_request(self, request: RequestContext) -> Awaitable[bytes | None]:
        """Respond to a request of the server."""
        return self._events.handle_request(request)

    def on_notification(self, notification: NotificationReceived) -> None:
        """Pass on a notification."""
        if not self.detached:
            self._events.on_notification(notification)

    def on_missed_notifications(self) -> None:
        """Notifications were missed."""
        if not self.detached:
            self._events.on_missed_notifications()

    def on_closed(self) -> None:
        """The conversation has ended."""
        if not self.detached:
            self._events.on_closed()


class ManagedConnection:
    """A connection to one server that negotiates the revision, and reconnects if it is lost."""

    def __init__(
        self,
        transport: ClientTransport,
        events: ConnectionEvents,
        identity: Identity,
        accepts: Revisions,
        timeout_s: float,
        on_reconnect: OnReconnect,
        era_cache: EraCache = ERA_CACHE,
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        self.transport = transport
        self._events = events
        self._identity = identity
        self._accepts = accepts
        self._timeout_s = timeout_s
        self._on_reconnect = on_reconnect
        self._era_cache = era_cache
        self._telemetry = telemetry
        self._conversation: Conversation | None = None
        # The conversation that is being opened, not used for requests yet.
        self._candidate: Conversation | None = None
        self._listener: DetachableListener | None = None
        self._candidate_transport: ClientTransport = transport
        self._lock = asyncio.Lock()
        # Whether `busy` and `last_received_at` are needed, for pings.
        self.pinged: bool = False
        # Pending requests, and when the last message of the server was received.
        self.busy: int = 0
        self.last_received_at: float = 0.0
        self._closed: str | None = None

    @property
    def conversation(self) -> Conversation:
        """The current conversation, or the one that is being opened. Raises before there is any."""
        conversation = self._conversation or self._candidate
        if conversation is None:
            raise LocalProtocolError("this client is not open yet")
        return conversation

    @property
    def closed(self) -> bool:
        """Whether it was closed by the client."""
        return self._closed is not None

    @property
    def ended(self) -> bool:
        """Whether there is no open conversation, whichever side closed it."""
        return self._conversation is None or self._conversation.link.phase is Phase.CLOSED

    def touch(self) -> None:
        """Note that the server is alive now."""
        self.last_received_at = asyncio.get_running_loop().time()

    # ------------------------------------------------------------ opening

    def limit(self, accepts: Revisions) -> None:
        """Accept only these revisions from the next connection on."""
        self._accepts = accepts

    async def open(self) -> Opening:
        """Negotiate the revision and connect. Raises if there is no common one, or no server."""
        opening = await self._negotiate()
        self._conversation = self._candidate
        return opening

    async def _negotiate(self) -> Opening:
        known = self._era_cache.get(self.transport.key)
        options = ProbeOptions(
            restarts=self.transport.restarts, legacy_sse=self.transport.legacy_sse is not None
        )
        negotiation = negotiate(self._revisions(), options, known)
        try:
            attempt = next(negotiation)
            while True:
                attempt = negotiation.send(await self._run_attempt(attempt))
        except StopIteration as found:
            opening: Opening = found.value
        except ConnectionLost as lost:
            raise self._as_cannot_connect(lost) from lost.__cause__
        assert self._candidate is not None
        if not opening.revision.handshake:
            # Only the revision: the capabilities of such a server may change with every request,
            # so that nothing is refused because of earlier ones.
            self._candidate.link.adopt(opening.revision)
        if self._accepts.enveloped:  # otherwise the server was not probed
            # A second timeout counts as certain: or a server that ignores the probe would cost the
            # wait each time.
            sure = opening.sure or (known is not None and not known.sure)
            kept = KnownServer(opening.revision.handshake, opening.legacy_sse, sure)
            self._era_cache.put(self.transport.key, kept)
        return opening

    def _as_cannot_connect(self, lost: ConnectionLost) -> ColonnadeError:
        """A connection that was lost before it was open, such as a child process that exits at
        once, is `CannotConnect`, unless the client closed it."""
        if self._closed is not None:
            return lost
        error = CannotConnect(*lost.args, server=lost.server, hint=lost.hint, output=lost.output)
        error.status = lost.status
        return error

    def _revisions(self) -> Revisions:
        """The accepted revisions that the transport supports."""
        if not self.transport.always_handshakes:
            return self._accepts
        if not self._accepts.handshakes:
            dates = ", ".join(self._accepts.dates)
            message = f"{dates} has no HTTP+SSE transport; leave out revision=, or the type sse"
            raise LocalProtocolError(message)
        return Revisions(self._accepts.handshakes)

    async def _run_attempt(self, attempt: Attempt) -> Outcome:
        try:
            if isinstance(attempt, Discover):
                conversation = await self._new_conversation(self.transport)
                seconds = self._timeout_s if attempt.patient else probe_s(self._timeout_s)
                params = t.RequestParams()
                return await conversation.request(
                    DISCOVER, params, seconds, probing=attempt.revision
                )
            transport = self.transport.legacy_sse if attempt.legacy_sse else self.transport
            conversation = await self._new_conversation(transport or self.transport)
            return await conversation.initialize(attempt.revision, self._timeout_s)
        except ColonnadeError as error:
            return error

    async def _new_conversation(self, transport: ClientTransport) -> Conversation:
        """A conversation in which nothing was negotiated yet."""
        candidate = self._candidate
        if (
            candidate is not None
            and transport is self._candidate_transport
            and candidate.link.phase is Phase.NEW
        ):
            return candidate
        await self._close_candidate("the connection is retried")
        if self._closed is not None:
            raise _not_sent(self._closed)
        carry = await transport.open_channel(self._timeout_s)
        if self._telemetry is not None:
            carry = self._telemetry.instrument(carry)
        link = DuplexLink(Side.CLIENT, self._identity, self._accepts)
        self._listener, self._candidate_transport = DetachableListener(self._events), transport
        candidate = self._candidate = carry(link, self._listener)
        if self._closed is not None:  # while connecting
            await candidate.aclose(self._closed)
            raise _not_sent(self._closed)
        return candidate

    async def _close_candidate(self, why: str) -> None:
        """Close the last opened conversation, which is the current one if there is one."""
        if self._candidate is not None and self._listener is not None:
            self._listener.detached = True
            await self._candidate.aclose(why)

    async def close(self, why: str) -> None:
        """Close it and the transport. May be called at any time, from any task, more than once."""
        self._closed = self._closed or why
        if self._candidate is not None:
            await self._candidate.aclose(why)
        await self.transport.close()

    # ------------------------------------------------------------ requests

    async def request(
        self,
        method: str,
        params: t.RequestParams,
        timeout_s: float,
        on_progress: ProgressCallback | None = None,
        headers: Headers = (),
        declared: RequestDeclaration | None = None,
        owner: InputResponder | None = None,
        on_members: OnMembers | None = None,
    ) -> Raw:
        """Send a request and return the raw result; reconnects and retries if that is safe.
        `declared` are the input capabilities of this request, if they are not the client's;
        `owner` is whose request it is. `on_members` is that of `Conversation.request`."""
        pinged = self.pinged
        if pinged:
            self.busy += 1
        try:
            conversation = self._conversation
            if (
                conversation is None
                or self._closed is not None
                or conversation.link.phase is CLOSED
            ):
                conversation = await self.ensure_open(method)
            try:
                return await conversation.request(
                    method,
                    params,
                    timeout_s,
                    on_progress=on_progress,
                    headers=headers,
                    declared=declared,
                    owner=owner,
                    on_members=on_members,
                )
            except ColonnadeError as error:
                if not await self._recover(method, conversation, error):
                    raise
            return await self.conversation.request(
                method,
                params,
                timeout_s,
                on_progress=on_progress,
                headers=headers,
                declared=declared,
                owner=owner,
                on_members=on_members,
            )
        finally:
            if pinged:
                self.busy -= 1
                self.touch()

    async def _recover(
        self, method: str, conversation: Conversation, error: ColonnadeError
    ) -> bool:
        """Prepare a retry after an error. Returns False if a retry is not safe."""
        if self._closed is not None or not self.transport.can_reconnect:
            return False
        if not (may_repeat(method, error) or await self._was_replaced(conversation, error)):
            return False
        log.info("%s: retrying %s: %s", self.transport.name, method, error)
        # With a status the server has said that the session has ended. Without one perhaps one of
        # several connections was closed before the request was sent, and the others go on.
        if not isinstance(error, ConnectionLost) or error.status is not None or self.ended:
            await self.reconnect(conversation)
        return True

    async def _was_replaced(self, conversation: Conversation, error: ColonnadeError) -> bool:
        """Whether the server was replaced by one that does not support the negotiated revision.

        Such a server has not executed the request; but the replacement must be confirmed.
        """
        peer = conversation.link.peer
        if peer is None or peer.revision.handshake:
            return False
        if isinstance(error, RemoteError):
            suspect = error.code == NEWEST.codes[FaultKind.VERSION_UNSUPPORTED]
        else:
            suspect = isinstance(error, RemoteProtocolError) and error.status in UNKNOWN_STATUSES
        if not suspect:
            return False
        try:
            raw = await conversation.request(DISCOVER, t.RequestParams(), self._timeout_s)
            return peer.revision.date not in decode_as(t.DiscoverResult, raw).supported_versions
        except (RemoteError, RemoteProtocolError):
            return True
        except ColonnadeError:  # no reason to reconnect
            return False

    async def ensure_open(self, method: str) -> Conversation:
        """The current conversation, or a new one if it has ended."""
        if self._closed is not None:
            raise _not_sent(f"{self._closed} before {method}")
        if self._conversation is None:
            raise LocalProtocolError(f"{method} before this client is open")
        if self.ended:
            if not self.transport.can_reconnect:
                raise _not_sent(f"the connection ended before {method}")
            await self.reconnect(self.conversation)
            if self.ended:
                raise _not_sent(f"the connection ended once more before {method}")
        return self.conversation

    async def reconnect(self, seen: Conversation) -> None:
        """Reconnect after this conversation, unless another task has."""
        async with self._lock:
            if self._closed is not None:
                raise _not_sent(self._closed)
            if self._conversation is not seen:
                return
            child = self.transport.child if isinstance(self.transport, ProcessTransport) else None
            why = child.lost if child is not None else None
            await self._close_candidate("the connection is opened again")
            opening = await self._negotiate()
            if why is not None:
                message = "%s; it was restarted, and its state in memory is lost%s"
                log.warning(message, why.sentence, why.output)
            assert self._candidate is not None
            await self._on_reconnect(self._candidate, opening)
            self._conversation = self._candidate


def _not_sent(message: str) -> ConnectionLost:
    """The error for a request that was not sent, since there is no connection."""
    lost = ConnectionLost(message)
    lost.not_sent = True
    return lost


def probe_s(limit_s: float) -> float:
    """The timeout of a probe: at most half of the limit (a host's `start_s`, say), so that time is
    left for the handshake after it."""
    return min(PROBE_S, limit_s / 2)


def may_repeat(method: str, error: ColonnadeError) -> bool:
    """Whether a request may be retried: it was not received, or it is idempotent (D19)."""
    if not isinstance(error, ConnectionLost):
        return False
    return error.not_sent or (error.status is None and method in IDEMPOTENT)


# ---------------------------------------------------------------- ping


# A sleep may end this much early because of floating-point rounding.
ROUNDING_S = 1e-6


class PingLoop:
    """Pings one server while it is idle, in its own task."""

    def __init__(self, connection: ManagedConnection, every_s: float, timeout_s: float) -> None:
        self._connection = connection
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        if self._task is None:
            self._connection.pinged = True
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop the task. May be called at any time, and more than once."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._connection.closed:
            quiet_s = (
                0.0 if self._connection.busy else loop.time() - self._connection.last_received_at
            )
            if quiet_s < self._every_s - ROUNDING_S:  # R0071
                await asyncio.sleep(self._every_s - quiet_s)
            elif not await self._ping():
                await asyncio.sleep(self._every_s)

    async def _ping(self) -> bool:
        """Whether the server responded; False also if there is no connection, or no `ping`."""
        conversation = self._connection.conversation
        peer = conversation.link.peer
        if self._connection.ended or peer is None or PING not in peer.revision.methods:
            return False
        try:
            await conversation.request(PING, t.RequestParams(), self._timeout_s)
        except ColonnadeError as error:
            name = self._connection.transport.name
            if not isinstance(error, ChannelError) or (error.status and not error.not_sent):
                log.debug("server %r refused a ping: %s", name, error)
                self._connection.touch()  # a refusal is a response
                return True
            log.warning("server %r did not respond to a ping: %s", name, error)  # R0074
            await conversation.aclose("it did not respond to a ping")  # R0072
            return False
        self._connection.touch()
        return True
