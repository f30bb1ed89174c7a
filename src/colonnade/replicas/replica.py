"""A replica: one process of several that share a store, its lease, and messages between them.

Each replica draws a name and keeps an entry in the store while it lives, the lease. It listens to
two topics: its inbox, for messages that are directed to it, and one that all replicas listen to.

Rules: a message is delivered at most once, and its loss is never silent: `request` raises, and
`on_missed` is called. A handler is started in the order of arrival, and runs beside the next one.
What another replica controls (sizes, numbers, names, versions) is bounded and checked: two releases
may run side by side. Without the store nothing here crashes; what needs it raises `ChannelError`.
"""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    ConnectionLost,
    Fault,
    InvalidArgument,
    LocalProtocolError,
    Refused,
)
from colonnade.ports import SERVER_PRINCIPAL, Seal, Store

log: logging.Logger = logging.getLogger("colonnade.replicas")

# Raised with a change that older releases cannot read; they ignore such messages, and read again in
# the store what these may have been about. A new member at the end of a message is not such a
# change. The body of a message has a version of its own, that of its kind (`Replica.handle`).
MESSAGE_VERSION = 1
LEASE_VERSION = 1

# What a store accepts as one message, less the fields beside the body.
MAX_BODY_BYTES = 8 * 1024 * 1024 - 4096
MAX_KIND_CHARACTERS = 64
# Handlers of messages that run at once, and the bytes of their messages.
MAX_HANDLERS = 1024
MAX_HANDLED_BYTES = 64 * 1024 * 1024
# Requests to other replicas that wait for a response.
MAX_WAITING_REQUESTS = 4096
# Replicas whose leases are known; their names may come from clients.
MAX_KNOWN_LEASES = 1024
MAX_COUNTED_REPLICAS = 1000
# Different problems that are logged, once each.
MAX_LOGGED = 256

LEASE_S = 5.0
REQUEST_TIMEOUT_S = 1.0
# How long a look at a lease is believed, and how often a waiting request looks.
LEASE_CHECK_S = 1.0
# The pauses before listening again, each twice as long as the last; the first follows at once.
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
# The first and the longest pause before a message is sent again to an unreachable replica.
FIRST_RESEND_S = 0.05
LONGEST_RESEND_S = 0.5
# The time between two messages that nobody receives, after which their replica counts as ended. A
# replica that has only lost a connection listens again at once.
UNHEARD_S = 0.3
# How long cancelled handlers may clean up.
CLEAN_UP_S = 1.0

# The message for callers of remote requests. The store's own error, which may name its address, is
# only attached as the cause.
STORE_AWAY = "cannot be reached: the store does not respond"
BROADCAST_TOPIC = "replicas"
_NAME_BYTES = 10
_NAME = re.compile("[a-z2-7]{16}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"

MessageForm: TypeAlias = Literal["message", "request", "response", "refused", "failed"]
MessageHandler: TypeAlias = Callable[[str, bytes], Awaitable[bytes | None]]


class ReplicaLost(ConnectionLost):
    """Another replica did not respond: it has ended, it is too busy, or it does not know the
    request.

    `not_sent` is set if the request certainly had no effect there, `effect_unknown` if it may have
    had one. `has_ended` is set if the replica will never respond. `is_unheard` is set if the
    request was sent, but the store reports that nobody received it.
    """

    has_ended: bool = False
    is_unheard: bool = False

    def __init__(self, message: str, *, had_no_effect: bool) -> None:
        super().__init__(message)
        self.not_sent = had_no_effect
        self.effect_unknown: bool = not had_no_effect


class ReplicaMessage(Struct, frozen=True, array_like=True):
    """A message between replicas, in MessagePack.

    `id` is that of a request, in its request and in its response. A failure is the response of a
    replica that did not run the handler (`refused`), or whose handler raised (`failed`).
    `body_version` is that of the kind at the sender.
    """

    version: int
    sender: str
    form: MessageForm
    kind: str
    id: int
    body: bytes
    body_version: int = 1


class _MessageVersion(Struct, array_like=True):
    """What every version of a message begins with."""

    version: int


class ReplicaLease(Struct, frozen=True):
    """The entry of a live replica in the store. `started_at` is in seconds since 1970."""

    version: int
    started_at: float


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ReplicaMessage).decode
_decode_version = msgspec.msgpack.Decoder(_MessageVersion).decode


def draw_replica_name() -> str:
    """A new name: 80 random bits as 16 characters of a-z and 2-7."""
    bits = int.from_bytes(secrets.token_bytes(_NAME_BYTES))
    return "".join(_ALPHABET[bits >> shift & 31] for shift in range(0, 80, 5))


def is_replica_name(text: str) -> bool:
    """Whether a text can be the name of a replica. Others are never looked up."""
    return _NAME.fullmatch(text) is not None


def decode_message(data: bytes) -> ReplicaMessage | str:
    """Decode a message; if it is ignored, the reason. Raises nothing."""
    try:
        version = _decode_version(data).version
        if version > MESSAGE_VERSION:
            return f"messages of version {version} of a newer release"
        message = _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return "messages that are malformed"
    if not is_replica_name(message.sender) or len(message.kind) > MAX_KIND_CHARACTERS:
        return "messages that are malformed"
    return message


async def follow_topic(
    store: Store,
    topic: str,
    on_message: Callable[[bytes], None],
    on_missed: Callable[[], None],
    tried: "asyncio.Future[None] | None" = None,
    on_lost: Callable[[], None] | None = None,
) -> None:
    """Listen to a topic of the server's own until the store is closed, again after each failure.

    `on_lost` is called when the topic's connection is lost, and `on_missed` when messages arrive
    again after some may have been missed. `tried` is set when the first attempt to listen is over.
    """
    pause_s, missed = 0.0, False
    try:
        while True:
            try:
                async with store.listen(SERVER_PRINCIPAL, topic) as messages:
                    if missed:
                        _guarded(on_missed)
                    pause_s, missed = 0.0, True
                    _settle(tried)
                    async for data in messages:
                        _guarded(on_message, data)
                return  # the store was closed
            except LocalProtocolError:
                return  # it was closed before
            except Exception as error:  # also those that a store should not raise
                missed = True
                if on_lost is not None:
                    on_lost()
                if not pause_s:
                    log.warning("listening to %r again, since %s", topic, error)
            _settle(tried)
            await asyncio.sleep(pause_s)
            pause_s = min(max(2 * pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
    finally:
        _settle(tried)


async def count_replicas(store: Store) -> int:
    """How many replicas have a lease in a store; at least 1."""
    prefix = _lease_key("")
    names = await store.names(SERVER_PRINCIPAL, prefix, "", MAX_COUNTED_REPLICAS)
    return max(1, sum(is_replica_name(name.removeprefix(prefix)) for name in names))


def _lease_key(replica: str) -> str:
    return f"replica {replica}"


def _inbox_topic(replica: str) -> str:
    return f"replica {replica}"


class Replica:
    """One process of several that share a store: its name, its lease, and messages to the others.

    With `seal` its messages are encrypted for the topic that they are published to, and others are
    ignored: write access to the store is not enough to send one. `group` names the replicas that
    broadcasts are for; those of other groups have another topic. `clock` is a monotonic clock. A
    replica that does not renew its lease for `lease_s` is taken for dead by the others.
    """

    def __init__(
        self,
        store: Store,
        *,
        seal: Seal | None = None,
        group: str = "",
        clock: Callable[[], float] = time.monotonic,
        lease_s: float = LEASE_S,
    ) -> None:
        self.name: str = draw_replica_name()
        self.store: Store = store
        self.seal: Seal | None = seal
        self.lease_s: float = lease_s
        self._broadcast_topic = f"{BROADCAST_TOPIC} {group}" if group else BROADCAST_TOPIC
        self._clock = clock
        self._lease = b""
        self._lease_until = float("-inf")
        # The last time when the store was known to be unavailable, or this process to be stopped.
        self._disturbed_at = float("-inf")
        self._leases: dict[str, float] = {}  # when others were seen alive; oldest first
        self._handlers: dict[str, MessageHandler] = {}
        self._versions: dict[str, int] = {}
        self._on_missed: list[Callable[[], None]] = []
        self._ids = count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[bytes]]] = {}
        self._services: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[None]] = set()
        self._running_bytes = 0
        self._logged: set[str] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"Replica({self.name!r})"

    # ------------------------------------------------------------ start and close

    @property
    def is_started(self) -> bool:
        """Whether it was started, and is not closed."""
        return bool(self._services) and not self._closed

    async def start(self) -> None:
        """Take the lease, and listen. Returns when both were tried: without the store, it goes on
        trying."""
        if self._services or self._closed:
            raise InvalidArgument("a replica is started once; make a new one")
        self._lease = _encode(ReplicaLease(LEASE_VERSION, time.time()))
        loop = asyncio.get_running_loop()
        tried: list[asyncio.Future[None]] = []
        # Listen first: a lease says that messages are received.
        for topic in (_inbox_topic(self.name), self._broadcast_topic):
            tried.append(loop.create_future())
            receive = partial(self._receive, topic)
            work = follow_topic(
                self.store, topic, receive, self._missed, tried[-1], self._note_outage
            )
            self._services.append(loop.create_task(work))
        await asyncio.wait(tried)
        tried.append(loop.create_future())
        self._services.append(loop.create_task(self._keep_lease(tried[-1])))
        await asyncio.wait(tried)

    async def close(self) -> None:
        """Give the lease back and stop listening; requests that wait fail. The store stays open."""
        if self._closed:
            return
        self._closed = True
        tasks = [*self._services, *self._running]
        for task in tasks:
            task.cancel()
        for replica, future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    _lost(replica, "was not waited for, since this one was closed", effect=True)
                )
        if tasks:
            await asyncio.wait(tasks, timeout=CLEAN_UP_S)
        self._lease_until = float("-inf")
        if self._services:
            with suppress(ColonnadeError):  # it lapses
                await self.store.delete(SERVER_PRINCIPAL, _lease_key(self.name))

    def handle(self, kind: str, handler: MessageHandler, version: int = 1) -> None:
        """Call `handler(sender, body)` for messages of this kind; the bytes that it returns are the
        response to a `request`.

        `version` is the newest version of the body that the handler can read, and that of what is
        sent. A newer message is not passed to it: a request is refused, and others are missed
        (`on_missed`).
        """
        if kind in self._handlers or not 0 < len(kind) <= MAX_KIND_CHARACTERS:
            raise InvalidArgument(
                f"the kind {kind!r} has a handler already, or is not 1 to "
                f"{MAX_KIND_CHARACTERS} characters",
                argument="kind",
            )
        self._handlers[kind] = handler
        self._versions[kind] = version

    def on_missed(self, callback: Callable[[], None]) -> None:
        """Call `callback` when messages may have been missed, once they are received again.

        That is after the store was away, after this process was too slow or was stopped, and if
        others took it for dead since its lease had lapsed.
        """
        self._on_missed.append(callback)

    # ------------------------------------------------------------ messages to others

    async def send(self, replica: str, kind: str, body: bytes) -> None:
        """Send a message to one replica, at most once. Raises `ReplicaLost` if there can be no such
        replica, `ChannelError` without the store."""
        if not is_replica_name(replica):
            raise _lost(replica, "does not exist", effect=False)
        await self._publish(_inbox_topic(replica), "message", kind, 0, body)

    async def broadcast(self, kind: str, body: bytes) -> None:
        """Send a message to all other replicas, at most once. Raises `ChannelError` without the
        store."""
        await self._publish(self._broadcast_topic, "message", kind, 0, body)

    async def request(
        self, replica: str, kind: str, body: bytes, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> bytes:
        """Send a message to one replica and wait for the response of its handler.

        Raises `ReplicaLost` if the lease of the replica lapsed, or no response came in time, and
        `Refused` for a body that is too large, or if too many requests wait; nothing was sent then.
        """
        try:
            alive = is_replica_name(replica) and await self.is_alive(replica)
        except ColonnadeError as error:
            why = f"cannot be reached: {error}" if isinstance(error, Refused) else STORE_AWAY
            raise _lost(replica, why, effect=False) from error
        if not alive:
            raise self._lapsed(replica, effect=False)
        if self._closed:
            raise _lost(replica, "cannot be reached, since this one was closed", effect=False)
        if len(self._waiting) >= MAX_WAITING_REQUESTS:
            raise Refused(f"{len(self._waiting)} requests wait for other replicas; try again later")
        id = next(self._ids)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (replica, future)
        try:
            try:
                heard = await self._publish(_inbox_topic(replica), "request", kind, id, body)
            except ChannelError as error:
                raise _lost(replica, STORE_AWAY, effect=True) from error
            if heard == 0:  # it has lost its connection to the store, or has just ended
                lost = _lost(replica, "does not receive messages now", effect=False)
                lost.is_unheard = True
                raise lost
            return await self._response(replica, future, timeout_s)
        finally:
            del self._waiting[id]

    async def _response(
        self, replica: str, future: "asyncio.Future[bytes]", timeout_s: float
    ) -> bytes:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            left_s = deadline - loop.time()
            await asyncio.wait((future,), timeout=max(min(left_s, LEASE_CHECK_S), 0.0))
            if future.done():
                return future.result()
            if left_s <= LEASE_CHECK_S:
                raise _lost(replica, f"did not respond within {timeout_s:g} s", effect=True)
            try:
                alive = await self.is_alive(replica)
            except ColonnadeError:
                continue  # a response may still come
            if not alive and not future.done():
                raise self._lapsed(replica, effect=True)

    async def request_again(
        self, replica: str, kind: str, body: bytes, timeout_s: float, *, once: bool = False
    ) -> bytes:
        """Repeat `request` while the replica cannot be reached, as during an outage of the store
        and until the replica listens again.

        The message may arrive several times; with `once`, a message that may have arrived is not
        sent again. Raises `ReplicaLost` if the replica has ended, or when the time is over, and
        `Refused` as `request` does.
        """
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + timeout_s, FIRST_RESEND_S
        while True:
            try:
                return await self.request(replica, kind, body)
            except ReplicaLost as error:
                is_final = error.has_ended or self._closed or (once and error.effect_unknown)
                if is_final or loop.time() + pause_s >= deadline:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RESEND_S)

    async def probe(self, replica: str, kind: str, body: bytes, timeout_s: float) -> bytes:
        """Send `request`, to learn whether a replica is alive.

        `has_ended` of the error is also set if nobody receives two messages to the replica: its
        connections are closed. Its lease may be valid for a few more seconds; do not take over its
        work before the lease ends.
        """
        try:
            return await self.request(replica, kind, body, timeout_s)
        except ReplicaLost as error:
            if not error.is_unheard:
                raise
        await asyncio.sleep(UNHEARD_S)
        try:
            return await self.request(replica, kind, body, timeout_s)
        except ReplicaLost as error:
            error.has_ended = error.has_ended or (error.is_unheard and self._is_settled)
            raise

    @property
    def _is_settled(self) -> bool:
        """Whether every live replica has had time to recover from an outage."""
        return self._clock() - self._disturbed_at >= self.lease_s

    def _lapsed(self, replica: str, *, effect: bool) -> ReplicaLost:
        """The error for a replica without a lease.

        Right after an outage of the store, leases of live replicas may have lapsed; each live
        replica renews its lease within the length of one lease.
        """
        error = _lost(replica, "has ended: its lease has lapsed", effect=effect)
        error.has_ended = self._is_settled or not is_replica_name(replica)
        return error

    async def _publish(
        self,
        topic: str,
        form: MessageForm,
        kind: str,
        id: int,
        body: bytes,
    ) -> int | None:
        """Returns the number of receivers; None if the store cannot tell."""
        if len(body) > MAX_BODY_BYTES:
            raise Refused(f"a message of {len(body)} bytes is too large; {MAX_BODY_BYTES} at most")
        version = self._versions.get(kind, 1)
        message = ReplicaMessage(MESSAGE_VERSION, self.name, form, kind, id, body, version)
        data = _encode(message)
        if self.seal is not None:
            data = self.seal.encrypt(data, topic.encode())
        return await self.store.publish(SERVER_PRINCIPAL, topic, data)

    # ------------------------------------------------------------ messages of others

    def _receive(self, topic: str, data: bytes) -> None:
        if self.seal is not None:
            try:
                data = self.seal.decrypt(data, topic.encode())
            except Fault:
                # Nothing was missed: it is of another service, or forged, or was sent elsewhere.
                self._log_once("messages that were not encrypted with its keys are ignored")
                return
        message = decode_message(data)
        if isinstance(message, str):
            self._log_once(f"{message} are ignored")
            self._missed()
        elif message.form in ("message", "request"):
            if topic != self._broadcast_topic or message.sender != self.name:
                self._start_handler(message)
        elif message.id in self._waiting:
            self._take_response(message)

    def _start_handler(self, message: ReplicaMessage) -> None:
        handler = self._handlers.get(message.kind)
        if handler is None:
            self._log_once(f"messages of the unknown kind {message.kind!r} are ignored")
            self._refuse(message, "does not know this request")
        elif message.body_version > self._versions[message.kind]:
            words = f"{message.kind!r} of version {message.body_version} of a newer release"
            self._log_once(f"messages {words} are ignored")
            self._refuse(message, "is of an older release, and cannot read this request")
            if message.form == "message":
                self._missed()
        elif (
            len(self._running) >= MAX_HANDLERS
            or self._running_bytes + len(message.body) > MAX_HANDLED_BYTES
        ):
            self._log_once("there are too many messages of other replicas, and some are dropped")
            self._refuse(message, "is too busy")
            if message.form == "message":
                self._missed()
        else:
            self._spawn(self._run(handler, message), len(message.body))

    def _spawn(self, work: Coroutine[Any, Any, None], size: int) -> None:
        self._running_bytes += size
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)

        def ended(task: "asyncio.Task[None]") -> None:
            self._running.discard(task)
            self._running_bytes -= size

        task.add_done_callback(ended)

    def _refuse(self, message: ReplicaMessage, why: str) -> None:
        # Refusals that wait for the store are bounded, too; beyond that there is the timeout.
        if message.form == "request" and len(self._running) < 2 * MAX_HANDLERS:
            self._spawn(self._respond(message, "refused", why.encode()), 0)

    async def _run(self, handler: MessageHandler, message: ReplicaMessage) -> None:
        form: MessageForm = "response"
        try:
            body = await handler(message.sender, message.body) or b""
        except Exception:
            log.exception("the handler of %r from replica %s failed", message.kind, message.sender)
            form, body = "failed", b"failed, and its log says why"
        if message.form == "request":
            await self._respond(message, form, body)

    async def _respond(self, request: ReplicaMessage, form: MessageForm, body: bytes) -> None:
        if len(body) > MAX_BODY_BYTES:
            form, body = "failed", b"has a response that is too large"
        topic = _inbox_topic(request.sender)
        try:
            await self._publish(topic, form, request.kind, request.id, body)
        except ColonnadeError as error:  # the other replica waits until its timeout
            self._log_once(f"a response to another replica was not sent: {error}")

    def _take_response(self, message: ReplicaMessage) -> None:
        replica, future = self._waiting[message.id]
        if message.sender != replica or future.done():
            return
        if message.form == "response":
            future.set_result(message.body)
        else:
            why = message.body[:MAX_LOGGED].decode(errors="replace")
            future.set_exception(_lost(replica, why, effect=message.form == "failed"))

    def _note_outage(self) -> None:
        self._disturbed_at = self._clock()

    def _missed(self) -> None:
        self._note_outage()
        for callback in self._on_missed:
            _guarded(callback)

    # ------------------------------------------------------------ leases

    @property
    def holds_lease(self) -> bool:
        """Whether the others take this replica for alive. What must not happen after they have
        given it up is not done without it."""
        return self._clock() < self._lease_until

    async def is_alive(self, replica: str) -> bool:
        """Whether a replica has a lease in the store; that it has one, as of at most a second ago.
        Raises `ChannelError` without the store."""
        if replica == self.name:
            return self.holds_lease
        if not is_replica_name(replica):
            return False
        now = self._clock()
        if now - self._leases.get(replica, float("-inf")) < LEASE_CHECK_S:
            return True
        alive = await self.store.get(SERVER_PRINCIPAL, _lease_key(replica)) is not None
        self._leases.pop(replica, None)
        # That it is dead is not remembered: it may be back, and what it has confirmed since then
        # must not be taken over.
        if alive:
            self._leases[replica] = now
        if len(self._leases) > MAX_KNOWN_LEASES:
            del self._leases[next(iter(self._leases))]
        return alive

    async def _keep_lease(self, tried: "asyncio.Future[None]") -> None:
        """Renew the lease while this replica lives."""
        had_lease, failed = False, False
        key = _lease_key(self.name)
        try:
            while True:
                lapsed = had_lease and not self.holds_lease
                # The store counts from a later moment, so the lease ends there after it ends here.
                start = self._clock()
                try:
                    # The store may have lost it: its clock was set, or its data is gone. Others
                    # may have given this replica up then.
                    if not had_lease or not await self._renew_lease(key):
                        lapsed = had_lease
                        start = self._clock()
                        await self.store.put(SERVER_PRINCIPAL, key, self._lease, self.lease_s)
                except LocalProtocolError:
                    return  # the store was closed
                except Exception as error:  # also those that a store should not raise
                    if not failed:
                        log.warning("the lease of replica %s was not renewed: %s", self.name, error)
                    failed = True
                    self._note_outage()
                else:
                    self._lease_until = start + self.lease_s
                    had_lease, failed = True, False
                    if lapsed:
                        self._missed()
                _settle(tried)
                await asyncio.sleep(self.lease_s / 3)
        finally:
            _settle(tried)

    async def _renew_lease(self, key: str) -> bool:
        """Whether the lease was in the store, and is for longer."""
        lease = self._lease
        return await self.store.swap(SERVER_PRINCIPAL, key, lease, lease, self.lease_s)

    def _log_once(self, words: str) -> None:
        if words not in self._logged and len(self._logged) < MAX_LOGGED:
            self._logged.add(words)
            log.warning("replica %s: %s", self.name, words)


def _lost(replica: str, why: str, *, effect: bool) -> ReplicaLost:
    """The error for a request that got no response; `effect` is whether it may have had one."""
    shown = replica if is_replica_name(replica) else ascii(replica[:32])
    return ReplicaLost(f"replica {shown} {why}", had_no_effect=not effect)


def _guarded(callback: Callable[..., None], *arguments: Any) -> None:
    """Call a callback; one that fails must not end what calls it."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback for messages of other replicas failed")


def _settle(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)
