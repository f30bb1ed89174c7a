"""Homes: which replica of a gateway has the session of a caller with a server that keeps state.

A home is an entry in the store: the replica, the number of its session there, and how often it was
confirmed. The lease of the replica says whether the home lives. A replica that wants the session of
another one's home is connected to it (`home_connection`), and its requests run there.

Rules: the entry is changed by compare and swap only, and is encrypted with the keys of the gateway:
an entry that cannot be decrypted is not taken over. A replica that may have been given up by the
others sends nothing to its sessions before it has changed the entry again; if it cannot, another
one is the home, and the session is closed. After a home has ended, the next call of its caller is
refused once, so that the caller learns that the state is gone.
"""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from colonnade.client.tasks.task import ClientTask
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    Fault,
    Refused,
    RemoteError,
)
from colonnade.gateway.home_connection import HomeConnection, HomeFailure, HomeIdentity
from colonnade.host.servers.callers import CallerKey
from colonnade.host.servers.homes import (
    HomeElsewhere,
    HomeLost,
    OpenedSession,
    SessionHome,
    StateLost,
)
from colonnade.ports import (
    SERVER_PRINCIPAL,
    RequestContext,
    Seal,
    TaskRelay,
    WatchedTask,
    WrappedRequest,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.forwarded import ResultOrigin, forwardable_meta
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.link.events import NotificationReceived
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskHandle
from colonnade.replicas.remote_messages import REMOTE_VERSION, decode_remote, encode_remote
from colonnade.replicas.remote_request import RemoteRequests
from colonnade.replicas.remote_run import RemoteRequestContext
from colonnade.replicas.replica import Replica, ReplicaLost

log: logging.Logger = logging.getLogger("colonnade.gateway")

# Of an entry, renewed at a third: for so long after a replica has died, a caller is told that its
# state is gone. Whether a home lives is said by the lease of its replica, which is much shorter.
HOME_S = 600.0
# Homes of one replica: as many as a host may have processes, for a hundred servers.
MAX_HOMES = 10_000
# For a home to be found, or to be free: longer than the lease of a replica that was stopped.
FIND_S = 20.0
# A replica responds within this that its session is open, or is being opened.
OPEN_S = 1.0
RETRY_S = 0.05
# For a replica that was stopped, or had no store, to have its lease again.
LEASE_WAIT_S = 2.0
CONFIRM_S = 3.0
# For requests of other replicas that run here when the gateway stops.
DRAIN_S = 10.0
# Other replicas that are notified of changes in one session.
MAX_FOLLOWERS = 256
# Different changes of one session that wait to be sent to them, and the pause between two times:
# a server may notify as often as it likes.
MAX_CHANGES = 256
CHANGE_INTERVAL_S = 0.1

KEY_PREFIX = "home "
OPEN, CHANGE = "home open", "home change"
# The notifications of a session that other replicas get, beside those of its calls.
CHANGES = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)

UNREADABLE = (
    "which replica has its session cannot be read: the store is used by a gateway of the same name "
    "with other keys, or of another release"
)
STATE_GONE = (
    "the process that kept the state of this caller has ended, and its state is gone; this request "
    "was not started: repeat it to begin anew"
)


# What a search ends with.
FoundHome: TypeAlias = SessionHome | HomeElsewhere | Literal["stateless"]


class HomeRecord(Struct, frozen=True, array_like=True):
    """The entry of a home: the replica, empty if it has ended; the session there; and a number that
    is another one each time that the replica has confirmed it."""

    version: int
    replica: str
    session: int
    fence: str


class OpenHome(Struct, frozen=True, array_like=True):
    """The request of another replica for a session."""

    version: int
    id: str


class OpenedHome(Struct, frozen=True, array_like=True):
    """The response: `later` while a session is being opened or closed, `gone` if this replica is
    not the home, `stateless` if there needs to be none."""

    version: int
    state: Literal["open", "later", "gone", "stateless"]
    session: int = 0
    identity: bytes = b""


class HomeChange(Struct, frozen=True, array_like=True):
    """A notification of a server, for the replicas that are connected to its session."""

    version: int
    id: str
    method: str
    params: bytes


def home_id(scope: str, server: str, caller: CallerKey) -> str:
    """What a home is of: a server of a gateway, and a caller. A digest, since it is no secret that
    a store needs to know."""
    parts = [scope, server, caller.principal, caller.session, list(caller.input)]
    return hashlib.sha256(encode(parts)).hexdigest()


def _store_key(id: str) -> str:
    return f"home {id}"


class OwnHome:
    """A home at this replica: implements `SessionHome`."""

    def __init__(
        self, homes: "GatewayHomes", id: str, server: str, principal: str, number: int
    ) -> None:
        self.id = id
        self.server = server
        self.principal = principal
        self.number = number
        self.value: bytes = b""
        # Whether the caller must be told that its state is gone.
        self.state_lost: bool = False
        self.is_stateless = False
        # How often another replica may have taken it over, and of these what was found out.
        self.doubts = 0
        self._settled_doubts = 0
        self.is_lost: bool = False
        self.open: OpenedSession | None = None
        self.settled: asyncio.Event = asyncio.Event()
        self.released: asyncio.Event = asyncio.Event()
        self.followers: dict[str, None] = {}
        # The changes that wait to be sent to them, each once: the method, and its params.
        self.changes: dict[tuple[str, bytes], None] = {}
        self.sends_changes = False
        self._homes = homes
        self._tried: list[bytes] = []
        self._lock = asyncio.Lock()

    def new_value(self) -> bytes:
        """Another value of the entry."""
        record = HomeRecord(1, self._homes.replica.name, self.number, secrets.token_hex(8))
        return self._homes.write(self.id, record)

    def opened(self, opened: OpenedSession) -> None:
        """The session is open."""
        self.open = opened
        self.settled.set()

    async def check(self, *, lists: bool) -> None:
        """See `SessionHome.check`."""
        while self.doubts > self._settled_doubts or not self._homes.replica.holds_lease:
            await self.confirm()
        if self.state_lost and not lists:
            self.state_lost = False
            raise StateLost(STATE_GONE)

    async def confirm(self) -> None:
        """Change the entry, so that a replica that has read it before cannot take it over any more.
        Raises `HomeLost` if one has, and `ChannelError` if it cannot be known."""
        async with self._lock:
            try:
                await self._homes.wait_for_lease()
                doubts = self.doubts
                self.is_lost = self.is_lost or not await self._renewed()
            except (ChannelError, TimeoutError) as error:
                # Where the store is does not concern clients.
                log.warning("a session of server %r is not used: %s", self.server, error)
                raise _store_away() from None
            if self.is_lost:
                raise self.open.close() if self.open is not None else _lost(self.server)
            self._settled_doubts = doubts  # a lapse of the lease meanwhile is a new one

    async def _renewed(self) -> bool:
        """Whether the entry was that of this home, and is another one of it now."""
        store = self._homes.replica.store
        async with asyncio.timeout(CONFIRM_S):
            found = await store.get(SERVER_PRINCIPAL, _store_key(self.id))
            # A change whose response was lost may have taken place.
            if found is not None and found not in (self.value, *self._tried):
                return False
            after = self.new_value()
            self._tried = [*self._tried[-3:], after]
            if not await store.swap(SERVER_PRINCIPAL, _store_key(self.id), found, after, HOME_S):
                return False
            self.value, self._tried = after, []
            return True

    async def leave(self, after: bytes | None) -> None:
        """Change the entry for the last time. Raises `ColonnadeError` and `TimeoutError`."""
        if self.is_lost:
            return
        self.is_lost = True  # no later renewal makes it again
        store, key = self._homes.replica.store, _store_key(self.id)
        async with asyncio.timeout(CONFIRM_S):
            # A change that is under way, or whose response was lost, may have taken place.
            for before in (self.value, *self._tried):
                if await store.swap(SERVER_PRINCIPAL, key, before, after, HOME_S):
                    return

    def notified(self, notification: NotificationReceived) -> None:
        """Pass a change on to the replicas that are connected to this session."""
        if self.followers and notification.method.name in CHANGES:
            self._homes.send_change(self, notification.method.name, bytes(notification.params))

    async def release(self, *, is_stateless: bool = False) -> None:
        """See `SessionHome.release`."""
        await self._homes.release(self, is_stateless=is_stateless)


class GatewayHomes:
    """The homes of this replica, and the connections to those of others.

    `scope` is the name of the gateway: replicas of another one have other homes in the same store.
    `seal` encrypts the entries.
    """

    def __init__(self, replica: Replica, remote: RemoteRequests, scope: str, seal: Seal) -> None:
        self.replica: Replica = replica
        self._scope = scope
        self._seal = seal
        self._remote = remote
        self._own: dict[str, OwnHome] = {}
        self._connections: dict[HomeConnection, None] = {}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewer: asyncio.Task[None] | None = None
        self._closing = False
        replica.handle(OPEN, self._on_open)
        replica.handle(CHANGE, self._on_change)
        replica.on_missed(self._on_missed)

    def start(self) -> None:
        """Renew the homes, until `close`."""
        self._renewer = asyncio.get_running_loop().create_task(self._renew_all())

    async def close(self) -> None:
        """Take no requests of other replicas any more, and wait for those that run; sessions end
        with the host."""
        self._closing = True
        await self._remote.drain(DRAIN_S)
        tasks = [*self._tasks, *([self._renewer] if self._renewer is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=OPEN_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ entries

    def write(self, id: str, record: HomeRecord) -> bytes:
        """The value of an entry."""
        return self._seal.encrypt(encode_remote(record), _store_key(id).encode())

    def _read(self, id: str, value: bytes) -> HomeRecord | None:
        """The entry of a value; None if this replica cannot read it."""
        try:
            return decode_remote(HomeRecord, self._seal.decrypt(value, _store_key(id).encode()))
        except Fault:
            return None

    # ------------------------------------------------------------ finding a home

    async def find(self, server: str, caller: CallerKey) -> SessionHome | HomeElsewhere | None:
        """See `SessionHomes.find`."""
        id = home_id(self._scope, server, caller)
        try:
            async with asyncio.timeout(FIND_S):
                while (found := await self._try(id, server, caller)) is None:
                    await asyncio.sleep(RETRY_S)
                return None if found == "stateless" else found
        except TimeoutError:
            why = "the replica that has its session does not respond"
        except ChannelError as error:
            # Where the store is does not concern clients.
            log.warning("which replica has a session of server %r is not known: %s", server, error)
            why = "which replica has its session is not known, since the store is away"
        raise Refused(f"{why}; nothing was started", hint="try again later", server=server)

    async def _try(self, id: str, server: str, caller: CallerKey) -> FoundHome | None:
        """A home; None to try again."""
        if self._closing:
            raise Refused("this replica stops; nothing was started", server=server)
        closing = self._own.get(id)
        if closing is not None:  # a session is opened once at a time
            await closing.released.wait()
            return None
        if len(self._own) >= MAX_HOMES:
            raise Refused(f"this replica has {MAX_HOMES} sessions", hint="try again later")
        store = self.replica.store
        await self.wait_for_lease()
        before = await store.get(SERVER_PRINCIPAL, _store_key(id))
        record = self._read(id, before) if before is not None else None
        if before is not None and record is None:
            # Its home may live: to start another process would be a second one.
            log.warning("server %r: %s", server, UNREADABLE)
            raise Refused(f"{UNREADABLE}; nothing was started", server=server)
        is_other = record is not None and record.replica not in ("", self.replica.name)
        if record is not None and is_other and await self.replica.is_alive(record.replica):
            found = await self._connect(id, server, caller, record)
            if found == "gone":
                # It had the right, and not the session: a write whose response it has not got.
                await store.swap(SERVER_PRINCIPAL, _store_key(id), before, None, None)
            return None if found == "gone" else found
        home = OwnHome(self, id, server, caller.principal, next(self._numbers))
        home.value = home.new_value()
        # The entry of another process, which had the state.
        home.state_lost = record is not None and record.replica != self.replica.name
        self._own[id] = home
        taken = False
        try:
            taken = await store.swap(SERVER_PRINCIPAL, _store_key(id), before, home.value, HOME_S)
        finally:
            if not taken:
                self._forget(home)
        return home if taken else None

    async def _connect(
        self, id: str, server: str, caller: CallerKey, record: HomeRecord
    ) -> FoundHome | Literal["gone"] | None:
        """The session of another replica; None if it is not open, "gone" if it is not there."""
        body = encode_remote(OpenHome(REMOTE_VERSION, id))
        try:
            response = await self.replica.request(record.replica, OPEN, body, 2 * OPEN_S)
        except ReplicaLost:
            return None
        opened = decode_remote(OpenedHome, response)
        if opened is None or opened.state == "later":
            return None
        if opened.state != "open":
            return opened.state
        identity = HomeIdentity.read(opened.identity)
        if identity is None:
            raise Refused("the replica that has its session is of another release", server=server)
        key = f"{KEY_PREFIX}{id} {opened.session}"
        connection = HomeConnection(
            self._remote, record.replica, key, identity, server, caller.principal, self._left
        )
        connection.id = id
        self._connections[connection] = None
        connection.on_closed = self._disconnected
        return HomeElsewhere(connection, connection.revision)

    def _disconnected(self, connection: HomeConnection) -> None:
        self._connections.pop(connection, None)

    async def _left(self, connection: HomeConnection) -> bool:
        """A request to a home has no outcome: whether that has ended. Its caller is told now, so
        that it need not be told once more."""
        try:
            async with asyncio.timeout(CONFIRM_S):
                store, key = self.replica.store, _store_key(connection.id)
                # The entry first: a home that is back has its lease before it confirms the entry.
                before = await store.get(SERVER_PRINCIPAL, key)
                if await self.replica.is_alive(connection.replica):
                    return False
                record = self._read(connection.id, before) if before is not None else None
                if record is not None and record.replica == connection.replica:
                    await store.swap(SERVER_PRINCIPAL, key, before, None, None)
                return True
        except (ColonnadeError, TimeoutError):
            return False

    # ------------------------------------------------------------ the homes of this replica

    async def wait_for_lease(self) -> None:
        """Wait until this replica has its lease again. Raises `ChannelError`."""
        try:
            async with asyncio.timeout(LEASE_WAIT_S):
                while not self.replica.holds_lease:
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise _store_away() from None

    def _forget(self, home: OwnHome) -> None:
        if self._own.get(home.id) is home:
            del self._own[home.id]
        home.settled.set()
        home.released.set()

    async def release(self, home: OwnHome, *, is_stateless: bool) -> None:
        """The session of a home has ended. Its entry is removed; if it ends with this replica, the
        entry stays without a replica, so that the caller is told that the state is gone."""
        if self._own.get(home.id) is not home:
            return
        after: bytes | None = None
        ends_here = self._closing and home.open is not None and home.open.session.had_calls
        if ends_here or home.state_lost:
            after = self.write(home.id, HomeRecord(1, "", 0, ""))
        home.is_stateless = is_stateless
        try:
            await home.leave(after)
        except (ColonnadeError, TimeoutError) as error:
            log.info("the home of a session is left to its lease: %s", error)
        finally:
            self._forget(home)

    async def _renew_all(self) -> None:
        while True:
            await asyncio.sleep(HOME_S / 3)
            await self._confirm_all()

    async def _confirm_all(self) -> None:
        for home in list(self._own.values()):
            is_held = self._own.get(home.id) is home  # not released while others were confirmed
            if home.open is not None and is_held:
                try:
                    await home.confirm()
                except HomeLost:
                    log.warning("server %r: another replica has taken a session over", home.server)
                except ColonnadeError as error:
                    log.info("homes are not confirmed: %s", error)
                    return  # they are in doubt until the store is back

    def _on_missed(self) -> None:
        """This replica may have been taken for dead, and messages may be lost."""
        for home in self._own.values():
            home.doubts += 1
        if self._own:
            self._spawn(self._confirm_all())
        for connection in self._connections:
            connection.missed()

    # ------------------------------------------------------------ requests of other replicas

    async def _on_open(self, sender: str, body: bytes) -> bytes:
        wanted = decode_remote(OpenHome, body)
        home = self._own.get(wanted.id) if wanted is not None else None
        if home is None:
            return encode_remote(OpenedHome(REMOTE_VERSION, "gone"))
        with suppress(TimeoutError):
            async with asyncio.timeout(OPEN_S / 2):
                await home.settled.wait()
        if home.is_stateless:
            return encode_remote(OpenedHome(REMOTE_VERSION, "stateless"))
        session = home.open.session if home.open is not None else None
        if session is None or not session.accepts_calls or self._closing:
            return encode_remote(OpenedHome(REMOTE_VERSION, "later"))
        if len(home.followers) >= MAX_FOLLOWERS:
            del home.followers[next(iter(home.followers))]
        home.followers[sender] = None
        identity = HomeIdentity.of(session.client).write()
        return encode_remote(OpenedHome(REMOTE_VERSION, "open", home.number, identity))

    def is_carried(self, request: RequestContext) -> bool:
        """See `SessionHomes.is_carried`."""
        return isinstance(request, CarriedRequest)

    async def respond(self, request: RequestContext) -> bytes | None:
        """The response to a request that another replica has sent to a session here."""
        assert isinstance(request, RemoteRequestContext)
        id, _, number = request.key.removeprefix(KEY_PREFIX).partition(" ")
        try:
            home = self._own.get(id)
            if home is None or str(home.number) != number or self._closing:
                raise _lost(home.server if home is not None else "")
            if request.exchange.principal != home.principal:
                log.warning("server %r: a request of another caller was sent here", home.server)
                raise _lost(home.server)
            return await self._forward(home, request)
        except ChannelError as error:
            request.fault = HomeFailure.of(error).fault()
            return request.exchange.fail(request.fault)
        except Fault as fault:
            request.fault = HomeFailure("failed", fault.message).fault()
            return request.exchange.fail(request.fault)

    async def _forward(self, home: OwnHome, request: RemoteRequestContext) -> bytes | None:
        if home.open is None:
            raise _lost(home.server)
        exchange = request.exchange
        method, params = exchange.method.name, exchange.method.params
        assert params is not None
        typed = decode_as(params, exchange.request.params)
        assert isinstance(typed, t.RequestParams)
        if typed.meta:
            typed = msgspec.structs.replace(typed, meta=forwardable_meta(typed.meta) or None)
        origin = exchange.origin = ResultOrigin(home.server)
        carried = CarriedRequest(
            request, _task_of(typed, home.server, exchange.peer.revision.tasks)
        )
        # A call that asks for a task becomes one here; the other replica relays it or awaits it.
        wants_task = isinstance(typed, t.CallToolRequestParams) and typed.task is not None
        created: t.ProtocolType | None = None

        async def on_task(_: str, task: ClientTask) -> bool:
            nonlocal created
            created = task.created if wants_task else None
            return wants_task

        try:
            async with home.open.carry(carried) as call:
                result = await call.request(
                    method,
                    typed,
                    on_progress=carried.report_progress,
                    wants_task=wants_task,
                    on_task=on_task,
                    origin=origin,
                )
        except RemoteError as error:
            return exchange.pass_error(error.code, error.message, error.data)
        if created is not None:
            return exchange.settle(created)
        origin.settle(result, result)
        return exchange.settle_forwarded(result, origin, is_inspected=False)

    # ------------------------------------------------------------ changes

    def send_change(self, home: OwnHome, method: str, params: bytes) -> None:
        """Pass a notification of a server on to the replicas that use its session, soon."""
        if len(home.changes) >= MAX_CHANGES:
            log.info("server %r: more than %d changes at once", home.server, MAX_CHANGES)
            return
        home.changes[method, params] = None
        if not home.sends_changes:
            home.sends_changes = True
            self._spawn(self._send_changes(home))

    async def _send_changes(self, home: OwnHome) -> None:
        try:
            while home.changes:
                changes, home.changes = home.changes, {}
                for method, params in changes:
                    body = encode_remote(HomeChange(REMOTE_VERSION, home.id, method, params))
                    for replica in list(home.followers):
                        await self._send_to_follower(home, replica, body)
                await asyncio.sleep(CHANGE_INTERVAL_S)
        finally:
            home.sends_changes = False

    async def _send_to_follower(self, home: OwnHome, replica: str, body: bytes) -> None:
        try:
            if await self.replica.is_alive(replica):
                await self.replica.send(replica, CHANGE, body)
            else:
                home.followers.pop(replica, None)
        except ColonnadeError as error:
            log.info("a change was not passed on to replica %s: %s", replica, error)

    async def _on_change(self, sender: str, body: bytes) -> None:
        change = decode_remote(HomeChange, body)
        if change is None or change.method not in CHANGES:
            return
        for connection in list(self._connections):
            if connection.replica == sender and connection.id == change.id:
                connection.changed(change.method, change.params)


class CarriedTask:
    """The task that a carried request is about, under the id that its server gave it: the other
    replica knows the one of the client."""

    def __init__(self, target: TaskHandle) -> None:
        self.target: TaskHandle = target
        self.generation: Tasks = target.generation
        self.task_id: str = target.task_id

    async def created(
        self, handle: TaskHandle, task: WatchedTask, contain: Callable[[str], str] | None
    ) -> str:
        """Not used: a request about a task creates none."""
        raise AssertionError("a request about a task creates none")


def _task_of(params: t.RequestParams, server: str, generation: Tasks) -> CarriedTask | None:
    id: object = getattr(params, "task_id", None)
    return CarriedTask(TaskHandle(server, id, "", generation)) if isinstance(id, str) else None


class CarriedInput:
    """How the input requests of a carried request are handled: they go to the other replica, and
    errors that require input are passed on."""

    in_results: bool = False

    def __init__(self, tasks: TaskRelay | None = None) -> None:
        self.tasks: TaskRelay | None = tasks

    def check_server(self, server: str) -> None:
        """Nothing: the other replica has."""

    def relayed(self, server: str, answered: Mapping[str, Raw]) -> None:
        """Nothing: a server with a home sends requests."""

    @property
    def under_review(self) -> Mapping[str, t.AnyInputRequest]:
        """None: the other replica has asked its people."""
        return {}

    def review_next(self, requests: Mapping[str, t.AnyInputRequest]) -> None:
        """Nothing: a server with a home sends requests."""


class CarriedRequest(WrappedRequest):
    """A request of another replica that runs on a session here. Its policy is that replica's."""

    def __init__(self, request: RequestContext, task: CarriedTask | None) -> None:
        super().__init__(request)
        self._input = CarriedInput(task)

    @property
    def input_relay(self) -> CarriedInput:
        """What takes the input requests of the server."""
        return self._input

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Send progress to the caller."""
        with suppress(ColonnadeError):  # it decreased, or the caller is gone
            frame = self.exchange.progress(progress, total, message)
            if frame is not None:
                await self.send(frame)


def _store_away() -> ChannelError:
    error = ChannelError("this replica has no lease, since the store is away; nothing was started")
    error.not_sent = True
    return error


def _lost(server: str) -> HomeLost:
    lost = HomeLost("its session is at another replica now")
    lost.not_sent = True
    return lost.with_server(server) if server else lost
