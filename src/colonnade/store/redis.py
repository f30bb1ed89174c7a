"""The Redis store: one Redis or Valkey server, or a cluster of them, for processes on any number of
machines.

Rules: one task sends the calls, in order; those of one event loop iteration leave together, and
the replies are read by that task alone, so a caller that is cancelled never moves the reply of
another. A connection with an unfinished reply is closed and never used again. Nothing is sent
twice: a write whose reply is missing may have taken place. Credentials are in no message. Only this
file imports redis-py. For one event loop; other threads use their own store.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from colonnade.errors import (
    CannotConnect,
    ChannelError,
    ConnectionLost,
    InvalidArgument,
    Refused,
    TimedOut,
)
from colonnade.ports import SERVER_PRINCIPAL, Swap
from colonnade.store.limits import (
    OVERHEAD_BYTES,
    StoreLimits,
    TopicListener,
    Topics,
    check_bytes,
    check_increment,
    check_listing,
    check_names,
    check_ttl,
    check_waiting,
    counter_out_of_range,
    not_a_counter,
    reserved_calls,
    reserved_for,
    store_full,
)
from colonnade.store.memory import check_mark, check_mark_limits, mark_digest
from colonnade.store.redis_checks import CHECKS, ServerChecks
from colonnade.store.redis_scripts import (
    APPEND,
    COUNT,
    NAMES,
    NOT_A_COUNTER,
    OUT_OF_RANGE,
    PUBLISH,
    READ,
    REMOVE,
    SWAP_ALL,
    TOO_MANY_ENTRIES,
    USE_ONCE,
    WRITE,
    LuaScript,
)
from colonnade.store.redis_url import RedisUrl, parse_redis_url

try:
    import hiredis
    import redis.asyncio as redis_asyncio
    from redis.asyncio.cluster import ClusterNode
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.credentials import CredentialProvider
    from redis.exceptions import (
        AuthenticationError,
        BusyLoadingError,
        NoPermissionError,
        NoScriptError,
        OutOfMemoryError,
        ReadOnlyError,
        RedisClusterException,
        RedisError,
        ResponseError,
    )
except ImportError as _missing:  # pragma: no cover
    raise ImportError(
        "the Redis store needs redis-py; install it: pip install 'colonnade[redis]'"
    ) from _missing

# Calls that leave together: enough to hide the network, few enough that the first returns soon.
BATCH_CALLS = 512
# The first and the longest delay before another attempt to connect.
FIRST_DELAY_S = 0.02
LONGEST_DELAY_S = 1.0
# A connection that was idle for so long may have been closed by now; it is checked before a call.
IDLE_S = 1.0
# A subscription that is silent for so long is asked whether it is still there.
SILENCE_S = 5.0
# Three thousand years: a script can count with it.
LONGEST_TTL_MS = 10**14

_LAST_NUMBER = 2**62

# What redis-py raises if a server cannot be reached, or a connection is lost.
_FAILURES = (RedisError, RedisClusterException, OSError)

_Argument: TypeAlias = str | bytes | int
_pack: Callable[[tuple[_Argument, ...]], bytes] = cast("Any", hiredis).pack_command
# Returns the user (empty for the default one) and the password, for each new connection.
RedisCredentials: TypeAlias = Callable[[], tuple[str, str]]
# Keyword arguments of redis-py.
_Options: TypeAlias = dict[str, Any]


class _CredentialFunction(CredentialProvider):
    """Credentials from a function: a rotated password is used by the next connection."""

    def __init__(self, function: RedisCredentials) -> None:
        self._function = function

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        try:
            user, password = self._function()
        except Exception as error:
            name = type(error).__name__
            raise AuthenticationError(f"the function of the credentials raised {name}") from error
        return (user, password) if user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


@dataclass(slots=True)
class _Command:
    """A command that waits for its reply: a script and its arguments, or the arguments alone."""

    script: LuaScript | None
    arguments: tuple[_Argument, ...]
    deadline: float
    future: "asyncio.Future[Any]"

    def encoded(self, *, with_source: bool) -> tuple[_Argument, ...]:
        if self.script is None:
            return self.arguments
        if with_source:
            return "EVAL", self.script.source, *self.arguments
        return "EVALSHA", self.script.sha, *self.arguments

    def settle(self, outcome: object) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class _RedisServers(Protocol):
    """Connections to one server or to a cluster; closed after any failure, and then not reused."""

    async def connect(self) -> None: ...

    async def execute(self, commands: Sequence[tuple[_Argument, ...]]) -> list[Any]:
        """The replies in order; an error reply is an exception in its place."""
        ...

    async def open_connection(self) -> Any:
        """One more connection, for a subscription."""
        ...

    async def close(self) -> None: ...


class _OneServer:
    """One server, or the primary that sentinels name."""

    def __init__(self, url: RedisUrl, options: _Options) -> None:
        self._clients: list[Any]
        options = {**options, "db": url.database}
        if url.service:
            # Sentinels have no databases, and credentials of their own, if any.
            names = {"retry", "protocol", *(name for name in options if name.startswith("s"))}
            own = {name: options[name] for name in names if name in options}
            sentinel: Any = redis_asyncio.Sentinel(
                list(url.servers), sentinel_kwargs=own, **options
            )
            client = sentinel.master_for(url.service)
            self._clients = [client, *sentinel.sentinels]
        else:
            ((host, port),) = url.servers
            client = redis_asyncio.Redis(host=host, port=port, **options)
            self._clients = [client]
        self._pool: Any = client.connection_pool
        self._connection: Any = None

    async def connect(self) -> None:
        self._connection = await self._pool.get_connection()
        (reply,) = await self.execute([("PING",)])  # which a server without credentials rejects
        if isinstance(reply, Exception):
            raise reply

    async def execute(self, commands: Sequence[tuple[_Argument, ...]]) -> list[Any]:
        connection = self._connection
        # In C; the one of redis-py takes as long as the rest of a call.
        packed = b"".join([_pack(command) for command in commands])
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as reply:
                replies.append(reply)
        return replies

    async def open_connection(self) -> Any:
        return await self._pool.get_connection()

    async def close(self) -> None:
        await self._pool.disconnect(inuse_connections=True)
        for client in self._clients:
            await client.aclose()


class _RedisCluster:
    """The servers of a cluster. Commands for the same node leave together."""

    def __init__(self, url: RedisUrl, options: _Options) -> None:
        self._options = options
        nodes = [ClusterNode(host, port) for host, port in url.servers]
        self._client: Any = redis_asyncio.RedisCluster(startup_nodes=nodes, **options)
        self._others: list[Any] = []

    async def connect(self) -> None:
        await self._client.initialize()

    async def execute(self, commands: Sequence[tuple[_Argument, ...]]) -> list[Any]:
        pipeline = self._client.pipeline()
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute(raise_on_error=False)

    async def open_connection(self) -> Any:
        await self._client.initialize()
        node = self._client.get_random_node()  # each passes on all messages
        client: Any = redis_asyncio.Redis(host=node.host, port=node.port, **self._options)
        self._others.append(client)
        return await client.connection_pool.get_connection()

    async def close(self) -> None:
        for client in self._others:
            await client.connection_pool.disconnect(inuse_connections=True)
            await client.aclose()
        await self._client.aclose()


class _Subscription:
    """The connection that topics arrive on; not used again after a failure.

    Every listener subscribes, also to a channel that another one listens to: what arrives before
    the confirmation was published before.
    """

    def __init__(self, servers: _RedisServers, timeout_s: float) -> None:
        self._servers = servers
        self._timeout_s = timeout_s
        self._connection: Any = None
        self._listeners: dict[bytes, set[TopicListener]] = {}
        self._joins: dict[bytes, deque[tuple[asyncio.Future[None], TopicListener]]] = {}
        self._pongs: deque[asyncio.Future[None] | None] = deque()
        self._outgoing: list[tuple[_Argument, ...]] = []
        self._writer: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self.is_lost = False

    async def open(self) -> None:
        async with asyncio.timeout(self._timeout_s):
            self._connection = await self._servers.open_connection()
        self._reader = asyncio.get_running_loop().create_task(self._read_all())

    async def join(self, channel: bytes, listener: TopicListener) -> None:
        """Wait until the listener receives what is published. Raises `ChannelError`."""
        if self.is_lost:
            raise ConnectionLost("the connection of the topics was lost; listen again")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._joins.setdefault(channel, deque()).append((future, listener))
        self._send("SUBSCRIBE", channel)
        try:
            async with asyncio.timeout(self._timeout_s):
                await future
        except TimeoutError:
            raise TimedOut(f"no subscription within {self._timeout_s:g} s; listen again") from None

    def leave(self, channel: bytes, listener: TopicListener) -> None:
        listeners = self._listeners.get(channel, set())
        listeners.discard(listener)
        if not listeners and not self._joins.get(channel) and not self.is_lost:
            self._listeners.pop(channel, None)
            self._send("UNSUBSCRIBE", channel)

    async def close(self) -> None:
        """Deliver what was published until now, and end all listeners."""
        if not self.is_lost:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._pongs.append(future)
            self._send("PING")
            with suppress(TimeoutError, ChannelError):
                async with asyncio.timeout(self._timeout_s):
                    await future
        for listener in self._all_listeners():
            listener.end()
        await self._end("the store was closed")

    def _all_listeners(self) -> list[TopicListener]:
        return [one for listeners in self._listeners.values() for one in listeners]

    def _send(self, *command: _Argument) -> None:
        self._outgoing.append(command)
        if self._writer is None:
            # A task of its own: redis-py closes a connection whose write was cancelled.
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._outgoing and not self.is_lost:
                commands, self._outgoing = self._outgoing, []
                packed = self._connection.pack_commands(commands)
                await self._connection.send_packed_command(packed, check_health=False)
        except _FAILURES:
            await self._end("the connection of the topics was lost")
        finally:
            self._writer = None

    async def _read_all(self) -> None:
        try:
            while True:
                asked = bool(self._pongs)
                wait_s = self._timeout_s if asked else SILENCE_S
                reply = await self._connection.read_response(
                    timeout=wait_s, disconnect_on_error=False
                )
                if reply is not None:
                    self._handle(reply)
                elif asked:
                    raise TimedOut("no reply")
                else:
                    self._pongs.append(None)
                    self._send("PING")
        except (*_FAILURES, ChannelError):
            await self._end("the connection of the topics was lost")

    def _handle(self, reply: Any) -> None:
        # The reply to PING is a string if there is no subscription, and has two parts if there is.
        parts = cast("list[Any]", reply) if isinstance(reply, list) else []
        kind, channel, content = parts if len(parts) == 3 else (b"pong", b"", b"")
        if kind == b"message":
            for listener in self._listeners.get(channel, ()):
                listener.offer(content)
        elif kind == b"subscribe":
            future, listener = self._joins[channel].popleft()
            if not self._joins[channel]:
                del self._joins[channel]
            if not future.done():
                self._listeners.setdefault(channel, set()).add(listener)
                future.set_result(None)
            else:
                self.leave(channel, listener)
        elif kind == b"pong" and self._pongs:
            waits = self._pongs.popleft()
            if waits is not None and not waits.done():
                waits.set_result(None)

    async def _end(self, why: str) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        for listener in self._all_listeners():
            listener.cut(why)
        waiting = [future for joins in self._joins.values() for future, _ in joins]
        for future in (*waiting, *self._pongs):
            if future is not None and not future.done():
                future.set_exception(ConnectionLost(f"{why}; listen again"))
        me = asyncio.current_task()
        for task in (self._reader, self._writer):
            if task is not None and task is not me:
                task.cancel()
        await _close_quietly(self._servers, self._timeout_s)


class RedisStore:
    """A store on a Redis or Valkey server, for any number of processes on any machines.

    The first call connects. A call takes `timeout_s` at most, connecting included. All keys begin
    with `prefix`. With `cluster=True` the URL names nodes of a cluster, separated by commas.
    `credentials` returns the user and the password of each new connection, instead of the URL.

    Durability is that of the server: with `appendonly yes` and `appendfsync always` what was
    acknowledged is on its disk. `maxmemory` limits all principals together; the limits
    `total_bytes` and `total_marks` are not used. The policy must be `noeviction`.
    """

    def __init__(
        self,
        url: str,
        *,
        limits: StoreLimits | None = None,
        timeout_s: float = 2.0,
        prefix: str = "colonnade",
        cluster: bool = False,
        credentials: RedisCredentials | None = None,
    ) -> None:
        self._url = parse_redis_url(url)
        if not cluster and not self._url.service and len(self._url.servers) > 1:
            raise InvalidArgument("the URL names several servers; set cluster=True, or name one")
        if cluster and (self._url.service or self._url.database):
            raise InvalidArgument("a cluster has neither sentinels nor databases", argument="url")
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise InvalidArgument("timeout_s must be above 0", argument="timeout_s")
        if not prefix or "{" in prefix or not prefix.isprintable():
            raise InvalidArgument("prefix must be printable text without {", argument="prefix")
        self._limits = limits or StoreLimits()
        self._timeout_s = timeout_s
        self._prefix = prefix
        self._is_cluster = cluster
        self._options = _connection_options(self._url, timeout_s, credentials)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[_Command] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._servers: _RedisServers | None = None
        self._used_at = 0.0
        self._outage = _Outage()
        self._checks = ServerChecks(str(self._url))
        self._topics = Topics(self._limits.principal_listeners)
        self._subscribing: asyncio.Task[_Subscription] | None = None
        self._closing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"RedisStore({str(self._url)!r}, prefix={self._prefix!r})"

    @property
    def is_shared(self) -> bool:
        return True

    # ------------------------------------------------------------ entries

    async def get(self, principal: str, key: str) -> bytes | None:
        check_names(principal, key)
        return await self._call(None, "GET", f"{self._home(principal)}:e:{key}")

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        check_bytes(value)
        await self._write(principal, key, "put", b"", value, ttl_s)

    async def add(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> bool:
        check_bytes(value)
        return await self.swap(principal, key, None, value, ttl_s)

    async def delete(self, principal: str, key: str) -> None:
        reserved = reserved_calls(principal)
        await self._change(REMOVE, principal, "e", key, reserved=reserved)

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        if before is not None:
            check_bytes(before)
        expected = "none" if before is None else "value"
        return bool(await self._write(principal, key, expected, before or b"", after, ttl_s))

    async def swap_all(self, swaps: Sequence[Swap]) -> bool:
        """In a cluster the principals are one change each: they may be on different servers. A swap
        that fails then undoes those of the principals before it."""
        for swap in swaps:
            if swap.before is not None:
                check_bytes(swap.before)
        groups: list[list[Swap]] = [[*swaps]] if swaps else []
        if self._is_cluster:
            by_principal: dict[str, list[Swap]] = {}
            for swap in swaps:
                by_principal.setdefault(swap.principal, []).append(swap)
            groups = list(by_principal.values())
        for number, group in enumerate(groups):
            try:
                swapped = await self._swap_together(group)
            except Refused:
                await self._undo(groups[:number])
                raise
            if not swapped:
                await self._undo(groups[:number])
                return False
        return True

    async def _undo(self, groups: list[list[Swap]]) -> None:
        for group in groups:
            await self._swap_together(
                [swap._replace(before=swap.after, after=swap.before) for swap in group]
            )

    async def _swap_together(self, swaps: list[Swap]) -> bool:
        keys: list[str] = []
        arguments: list[_Argument] = []
        for principal, key, before, after, ttl_s in swaps:
            span = self._span(b"" if after is None else after, ttl_s)
            own_keys, own_arguments = self._change_arguments(principal, "e", key, span)
            keys += own_keys
            arguments += own_arguments
            arguments += ("none", b"") if before is None else ("value", before)
            arguments += ("delete", b"") if after is None else ("set", after)
        reserved = reserved_for(swaps)
        outcome = await self._call(SWAP_ALL, len(keys), *keys, *arguments, reserved=reserved)
        return bool(self._checked(outcome))

    async def _write(
        self,
        principal: str,
        key: str,
        expected: str,
        before: bytes,
        after: bytes | None,
        ttl_s: float | None,
    ) -> int:
        span = self._span(b"" if after is None else after, ttl_s)
        change = ("delete", b"") if after is None else ("set", after)
        written = (expected, before, *change)
        reserved = reserved_calls(principal, is_new=expected == "none")
        return await self._change(WRITE, principal, "e", key, span, *written, reserved=reserved)

    async def count(self, principal: str, key: str, by: int, ttl_s: float | None) -> int:
        span = self._span(b"", ttl_s)
        check_increment(by)
        half = by // 2  # two numbers of 64 bits
        return int(await self._change(COUNT, principal, "e", key, span, half, by - half))

    async def names(self, principal: str, prefix: str, after: str, limit: int) -> list[str]:
        check_listing(principal, prefix, after, limit)
        # UTF-8 has no byte FF, and names have no NUL: the least bytes above `after`, and bytes that
        # are above all names with the prefix.
        first = max(prefix.encode(), after.encode() + b"\0")
        bounds = (b"[" + first, b"(" + prefix.encode() + b"\xff")
        keys = _index(self._home(principal))
        found = await self._call(NAMES, len(keys), *keys, "", *bounds, limit)
        return [name.decode() for name in found]

    async def use_once(self, principal: str, mark: bytes, ttl_s: float) -> bool:
        check_names(principal, "mark")
        check_mark(mark, ttl_s)
        known, most = mark_digest(principal, mark), self._limits.principal_marks
        marks = f"{self._home(principal)}:marks"
        outcome = await self._call(USE_ONCE, 1, marks, known, self._milliseconds(ttl_s), most)
        if outcome < 0:
            check_mark_limits(self._limits, most + 1, 0)
        return outcome == 1

    # ------------------------------------------------------------ logs

    async def append(self, principal: str, log: str, entry: bytes, ttl_s: float | None) -> int:
        span = self._span(entry, ttl_s)
        bounds = (OVERHEAD_BYTES, self._limits.log_entries, self._limits.log_bytes)
        return await self._change(APPEND, principal, "l", log, span, *bounds, entry)

    async def read(self, principal: str, log: str, after: int) -> list[tuple[int, bytes]]:
        check_names(principal, log)
        first = f"{max(0, min(after, _LAST_NUMBER)) + 1}-0"
        records = await self._call(READ, 1, f"{self._home(principal)}:l:{log}", first)
        return [(int(id.partition(b"-")[0]), fields[1]) for id, fields in records]

    async def drop(self, principal: str, log: str) -> None:
        await self._change(REMOVE, principal, "l", log)

    # ------------------------------------------------------------ topics

    async def publish(self, principal: str, topic: str, message: bytes) -> int | None:
        check_names(principal, topic)
        self._limits.check_value(message)
        channel = f"{self._home(principal)}:t:{topic}"
        if self._is_cluster:  # each node of a cluster counts only its own listeners
            await self._call(PUBLISH, 1, channel, message)
            return None
        return await self._call(None, "PUBLISH", channel, message)

    @asynccontextmanager
    async def listen(
        self, principal: str, topic: str
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        check_names(principal, topic)
        self._open()
        channel = f"{self._home(principal)}:t:{topic}".encode()
        listener = TopicListener()
        self._topics.join(principal, topic, listener)
        subscription: _Subscription | None = None
        try:
            subscription = await self._subscription()
            await subscription.join(channel, listener)
            yield listener
        finally:
            listener.end()
            self._topics.leave(principal, topic, listener)
            if subscription is not None:
                subscription.leave(channel, listener)

    async def _subscription(self) -> _Subscription:
        task = self._subscribing
        if task is None or (task.done() and (task.exception() or task.result().is_lost)):
            task = self._subscribing = asyncio.get_running_loop().create_task(self._subscribe())
            # Its error is read also if the caller was cancelled.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _subscribe(self) -> _Subscription:
        """Raises `CannotConnect`."""
        servers = self._make_servers()
        subscription = _Subscription(servers, self._timeout_s)
        try:
            await subscription.open()
        except _FAILURES as error:
            await _close_quietly(servers, self._timeout_s)
            raise CannotConnect(self._unreachable(error)) from None
        return subscription

    async def close(self) -> None:
        """Finish the waiting calls, end the listeners, and close the connections."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._sender is not None:
            await asyncio.wait([self._sender])
        if self._subscribing is not None:
            with suppress(ChannelError):
                await (await self._subscribing).close()
        await self._disconnect()

    # ------------------------------------------------------------ keys, limits and replies

    def _home(self, principal: str) -> str:
        """The beginning of all keys of a principal: in one slot of a cluster, by its hash tag."""
        return f"{self._prefix}:{{{mark_digest(principal, b'principal').hex()}}}"

    def _span(self, value: bytes, ttl_s: float | None) -> int | str:
        """The lifetime in milliseconds, empty for no expiry."""
        check_ttl(ttl_s)
        self._limits.check_value(value)
        return "" if ttl_s is None else self._milliseconds(ttl_s)

    def _milliseconds(self, ttl_s: float) -> int:
        return min(math.ceil(ttl_s * 1000), LONGEST_TTL_MS)

    async def _change(
        self,
        script: LuaScript,
        principal: str,
        kind: str,
        name: str,
        span: int | str = "",
        *arguments: _Argument,
        reserved: int = 0,
    ) -> Any:
        """Change an entry or a log. Raises `Refused` if there is no room."""
        keys, own_arguments = self._change_arguments(principal, kind, name, span)
        sent = (len(keys), *keys, *own_arguments, *arguments)
        outcome = await self._call(script, *sent, reserved=reserved)
        return self._checked(outcome)

    def _change_arguments(
        self, principal: str, kind: str, name: str, span: int | str
    ) -> tuple[tuple[str, ...], tuple[_Argument, ...]]:
        """The keys and the first arguments of every script that changes an entry or a log."""
        check_names(principal, name)
        limits = self._limits
        most = (limits.principal_entries, limits.principal_bytes)
        if principal == SERVER_PRINCIPAL:
            most = (-1, -1)
        base = len(principal.encode()) + len(name.encode()) + OVERHEAD_BYTES
        home = self._home(principal)
        return (*_index(home), f"{home}:{kind}:{name}"), (kind + name, *most, base, span)

    def _checked(self, outcome: Any) -> Any:
        """The result of a script. Raises `Refused` and `LocalProtocolError`."""
        if not isinstance(outcome, int) or outcome >= 0:
            return outcome
        if outcome == NOT_A_COUNTER:
            raise not_a_counter()
        if outcome == OUT_OF_RANGE:
            raise counter_out_of_range()
        limits = self._limits
        refused = limits.too_many_entries if outcome == TOO_MANY_ENTRIES else limits.too_many_bytes
        raise refused()

    # ------------------------------------------------------------ calls and connections

    def _open(self) -> asyncio.AbstractEventLoop:
        if self._closing is not None:
            raise InvalidArgument("this store is closed; make a new one")
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                raise InvalidArgument("this store belongs to another event loop; make one for each")
            self._loop = loop
        return loop

    async def _call(
        self, script: LuaScript | None, *arguments: _Argument, reserved: int = 0
    ) -> Any:
        loop = self._open()
        check_waiting(len(self._queue), reserved)
        future: asyncio.Future[Any] = loop.create_future()
        deadline = loop.time() + self._timeout_s
        self._queue.append(_Command(script, arguments, deadline, future))
        if self._sender is None:
            # It starts in the next iteration of the event loop, with all calls of this one.
            self._sender = loop.create_task(self._send_all())
        return await future

    async def _send_all(self) -> None:
        batch: list[_Command] = []
        try:
            while self._queue:
                batch = self._take_batch()
                if batch:
                    await self._send(batch)
        finally:
            self._sender = None
            # There are some only if this task was cancelled, at the end of the event loop.
            for command in (*batch, *self._queue):
                command.settle(ConnectionLost(f"the store {self._url} was given up"))
            self._queue.clear()

    def _take_batch(self) -> list[_Command]:
        count = min(len(self._queue), BATCH_CALLS)
        commands = [self._queue.popleft() for _ in range(count)]
        now = asyncio.get_running_loop().time()
        for command in commands:
            if command.deadline <= now:
                command.settle(self._timed_out())
        return [command for command in commands if not command.future.done()]

    def _timed_out(self) -> TimedOut:
        return TimedOut(f"the store {self._url} did not respond within {self._timeout_s:g} s")

    async def _send(self, batch: list[_Command]) -> None:
        is_connected = False
        try:
            async with asyncio.timeout_at(batch[0].deadline):
                servers = await self._connected()
                is_connected = True
                for with_source in (False, True):
                    commands = [command.encoded(with_source=with_source) for command in batch]
                    replies = await servers.execute(commands)
                    batch = self._settle(batch, replies)
                    if not batch:
                        return
        except TimeoutError:
            if is_connected:
                failure: ChannelError = self._timed_out()
            else:
                # A server that accepts connections and does not respond: other calls do not wait.
                self._outage.record(self._outage.reason or self._unreachable(TimeoutError()))
                self._outage.is_long = True
                failure = CannotConnect(self._outage.reason)
        except ChannelError as error:
            failure = error
        except _FAILURES as error:
            # Without its words, which may be those of a command.
            failure = ConnectionLost(f"the store {self._url} failed: {type(error).__name__}")
        except BaseException:
            await self._disconnect()
            raise
        else:
            failure = ConnectionLost(f"the store {self._url} knows no scripts")
        await self._disconnect()
        for command in batch:  # a copy for each caller, since a traceback belongs to one
            command.settle(type(failure)(*failure.args))

    def _settle(self, batch: list[_Command], replies: list[Any]) -> list[_Command]:
        """Pass on the replies; the commands whose scripts the server has forgotten."""
        unknown: list[_Command] = []
        failed = False
        for command, reply in zip(batch, replies, strict=True):
            if isinstance(reply, NoScriptError):
                unknown.append(command)
            elif isinstance(reply, OutOfMemoryError):
                self._checks.note_full()
                command.settle(store_full())
            elif isinstance(reply, ResponseError) and _is_wrong_type(command, reply):
                # Another program has written a list or a hash here. The reader reports a damaged
                # entry; an error would mean that the server does not respond.
                command.settle(b"")
            elif isinstance(reply, Exception):
                failed = failed or isinstance(reply, ReadOnlyError | BusyLoadingError)
                failed = failed or not isinstance(reply, ResponseError)
                message = f"the store {self._url} rejected a command: {type(reply).__name__}"
                command.settle(ConnectionLost(message))
            else:
                command.settle(reply)
        # Another server may be the primary by now: the next call connects again.
        self._used_at = -math.inf if failed else asyncio.get_running_loop().time()
        return unknown

    async def _connected(self) -> _RedisServers:
        """Raises `CannotConnect`; waits for as long as its caller lets it."""
        servers = self._servers
        if servers is not None:
            if asyncio.get_running_loop().time() - self._used_at < IDLE_S:
                return servers
            with suppress(*_FAILURES):
                if self._used_at > 0:
                    await servers.execute([("PING",)])
                    return servers
            await self._disconnect()
        while True:
            await self._outage.wait()
            servers = self._make_servers()
            try:
                await servers.connect()
            except (AuthenticationError, NoPermissionError) as error:
                await _close_quietly(servers, self._timeout_s)
                raise CannotConnect(self._unreachable(error)) from None
            except _FAILURES as error:
                self._outage.record(self._unreachable(error))
                await _close_quietly(servers, self._timeout_s)
            except BaseException:
                await _close_quietly(servers, self._timeout_s)
                raise
            else:
                self._outage = _Outage()
                self._servers, self._used_at = servers, asyncio.get_running_loop().time()
                if not self._checks.is_checked and not self._is_cluster:
                    self._checks.check(await servers.execute(CHECKS))
                return servers

    def _make_servers(self) -> _RedisServers:
        kind = _RedisCluster if self._is_cluster else _OneServer
        return kind(self._url, self._options)

    async def _disconnect(self) -> None:
        servers, self._servers = self._servers, None
        if servers is not None:
            await _close_quietly(servers, self._timeout_s)

    def _unreachable(self, error: Exception) -> str:
        return f"the store {self._url} cannot be reached: {_describe(error)}"


@dataclass(slots=True)
class _Outage:
    """The attempts to connect that failed in a row."""

    reason: str = ""
    is_long: bool = False
    delay_s: float = 0.0
    next_at: float = 0.0

    def record(self, reason: str) -> None:
        self.reason = reason
        self.delay_s = min(self.delay_s * 2 or FIRST_DELAY_S, LONGEST_DELAY_S)
        # Not all processes at the same moment.
        wait_s = self.delay_s * random.uniform(0.5, 1.0)
        self.next_at = asyncio.get_running_loop().time() + wait_s

    async def wait(self) -> None:
        """Wait for the next attempt. Raises `CannotConnect` if the outage is longer than a call may
        take: calls then fail at once, and one of them tries to connect from time to time."""
        wait_s = self.next_at - asyncio.get_running_loop().time()
        if wait_s > 0:
            if self.is_long:
                raise CannotConnect(self.reason)
            await asyncio.sleep(wait_s)


def _connection_options(
    url: RedisUrl, timeout_s: float, credentials: RedisCredentials | None
) -> _Options:
    options: _Options = {
        "protocol": 2,
        # redis-py must not repeat a write: it may have taken place.
        "retry": Retry(NoBackoff(), 0),
        # A batch has one timeout; one for each read would cost more than the read.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_s,
        "socket_keepalive": True,
    }
    if credentials is None and (url.user or url.password):
        pair = (url.user, url.password)
        credentials = lambda: pair  # noqa: E731
    if credentials is not None:
        options["credential_provider"] = _CredentialFunction(credentials)
    if url.tls:
        files = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
        options |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True}
        options |= {files[name]: path for name, path in url.tls_files.items()}
    return options


def _index(home: str) -> tuple[str, str, str]:
    return f"{home}:names", f"{home}:ends", f"{home}:costs"


def _describe(error: Exception) -> str:
    """The words of an error of connecting."""
    return str(error) or type(error).__name__


async def _close_quietly(servers: _RedisServers, timeout_s: float) -> None:
    with suppress(*_FAILURES):
        async with asyncio.timeout(timeout_s):
            await servers.close()


def _is_wrong_type(command: _Command, reply: ResponseError) -> bool:
    """Whether a read has found an entry that is not a string. All other errors of a read have their
    own class."""
    return command.arguments[0] == "GET" and type(reply) is ResponseError
