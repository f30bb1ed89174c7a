"""Client transports: in memory, child process, Streamable HTTP, HTTP+SSE, and a given channel.

Each `open_channel` opens a new channel for one conversation. Whatever outlives a conversation (a
connection pool, a server that was started) belongs to the transport, and is closed by `close`.

Rules: no message is encoded or decoded here. Transport modules are imported on first use.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from colonnade.client.input_callbacks import CallbackQueue
from colonnade.errors import ConnectionLost
from colonnade.ports import (
    ClientTransport,
    ConnectionEvents,
    Conversation,
    Credentials,
    HttpSend,
    OpenConversation,
    Service,
)
from colonnade.protocol.link.link import DuplexLink

if TYPE_CHECKING:  # a client of a child process does not import the HTTP stack
    from colonnade.transport.http_client.pool import HttpPool
    from colonnade.transport.process.child import Child
    from colonnade.transport.process.sandbox import Sandbox

Headers = Sequence[tuple[str, str]]
# Makes the credentials for a server, with a function that sends HTTP requests.
CredentialsFactory = Callable[[HttpSend], Credentials]
# Called with every line that a child process writes to its standard error.
OnStderr: TypeAlias = Callable[[str], Any]

# Timeout for the `on_stderr` calls of the last lines.
STDERR_DRAIN_S = 1.0


class ChannelTransport:
    """A channel that was given to `connect`, for one conversation."""

    key: Hashable | None = None
    can_reconnect: bool = False
    restarts: bool = False
    mirrors: bool = False
    always_handshakes: bool = False
    legacy_sse: ClientTransport | None = None

    def __init__(self, carry: OpenConversation, name: str = "") -> None:
        self.name: str = name
        self._carry: OpenConversation | None = carry

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """The channel, once."""
        carry, self._carry = self._carry, None
        if carry is None:
            raise ConnectionLost("the connection ended; connect with a new channel")
        return carry

    async def close(self) -> None:
        """The channel is closed with its conversation."""


def is_service(target: object) -> TypeGuard[Service]:
    """Whether this is a server in this process, judged by its methods and not by its class."""
    names = ("accepts", "identity", "respond", "on_notification", "watch_changes", "start", "stop")
    return not isinstance(target, type) and all(hasattr(target, name) for name in names)


class MemoryTransport:
    """A server in this process."""

    key: Hashable | None = None
    can_reconnect: bool = True
    restarts: bool = False
    mirrors: bool = False
    always_handshakes: bool = False
    legacy_sse: ClientTransport | None = None

    def __init__(self, service: Service, name: str = "") -> None:
        self.name: str = name or service.identity.info.name
        self._service = service
        self._started = False

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """A pair of memory channels, one of them served; starts the server the first time."""
        from colonnade.transport.memory import connected_pair, serve_end

        if not self._started:
            await self._service.start()
            self._started = True
        near, far = connected_pair()
        serve_end(far, self._service, debug=True)
        return near.open_conversation

    async def close(self) -> None:
        """Stop the server, if it was started here."""
        if self._started:
            self._started = False
            await self._service.stop()


class ProcessTransport:
    """A child process that is started, and restarted if it has exited."""

    can_reconnect: bool = True
    restarts: bool = True
    mirrors: bool = False
    always_handshakes: bool = False
    legacy_sse: ClientTransport | None = None

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str = "",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        on_stderr: OnStderr | None = None,
        sandbox: "Sandbox | None" = None,
    ) -> None:
        self._callback_queue = CallbackQueue()
        self._on_stderr = on_stderr
        # Whether the program gets the child's stderr itself.
        self.has_stderr_handler: bool = on_stderr is not None
        self.name: str = name or os.path.basename(argv[0]) or argv[0]
        self._argv = tuple(argv)
        self._cwd = cwd
        self._env = dict(env or {})
        self.sandbox: Sandbox | None = sandbox
        # The one that was started last, for supervisors.
        self.child: Child | None = None
        self.key: Hashable | None = (self._argv, cwd, tuple(sorted(self._env.items())))

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """Start the child process."""
        from colonnade.transport.process.child import start_child

        handler = self._on_stderr
        child = self.child = await start_child(
            self._argv,
            name=self.name,
            cwd=self._cwd,
            env=self._env,
            sandbox=self.sandbox,
            on_stderr=None if handler is None else partial(self._callback_queue.call, handler),
        )
        return child.open_conversation

    async def close(self) -> None:
        """Wait for the `on_stderr` calls of the last lines, which say why the child exited; the
        child itself exits with its conversation."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STDERR_DRAIN_S):
                await self._callback_queue.wait_for_callbacks()
        await self._callback_queue.close()


class HttpTransport:
    """A server at a URL, over Streamable HTTP."""

    can_reconnect: bool = True
    restarts: bool = False
    mirrors: bool = True
    always_handshakes: bool = False

    def __init__(
        self,
        url: str,
        headers: Headers = (),
        *,
        name: str = "",
        credentials_factory: CredentialsFactory | None = None,
    ) -> None:
        self.name: str = name or urlsplit(url).netloc
        self.key: Hashable | None = url
        self._url = url
        self._headers = tuple(headers)
        self._pool: HttpPool | None = None
        self._credentials_factory = credentials_factory
        self._credentials: Credentials | None = None
        self.legacy_sse: ClientTransport | None = LegacySseTransport(
            url, headers, name=self.name, credentials_factory=credentials_factory
        )

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """A conversation over the connection pool."""
        from colonnade.transport.http_client.conversation import HttpConversation
        from colonnade.transport.http_client.pool import HttpPool

        pool = self._pool = self._pool or HttpPool()
        if self._credentials is None and self._credentials_factory is not None:
            self._credentials = self._credentials_factory(pool.send)
        url, headers, credentials = self._url, self._headers, self._credentials

        def carry(link: DuplexLink, events: ConnectionEvents) -> Conversation:
            return HttpConversation(
                link, events, pool, url, headers=headers, credentials=credentials
            )

        return carry

    async def close(self) -> None:
        """Close every connection."""
        if self.legacy_sse is not None:
            await self.legacy_sse.close()
        if self._credentials is not None:
            await self._credentials.close()
        if self._pool is not None:
            await self._pool.close()


class LegacySseTransport:
    """A server at a URL, over the HTTP+SSE transport of the first revision."""

    key: Hashable | None = None  # nothing to negotiate
    can_reconnect: bool = True
    restarts: bool = False
    mirrors: bool = False
    always_handshakes: bool = True
    legacy_sse: ClientTransport | None = None

    def __init__(
        self,
        url: str,
        headers: Headers = (),
        *,
        name: str = "",
        credentials_factory: CredentialsFactory | None = None,
    ) -> None:
        self.name: str = name or urlsplit(url).netloc
        self._url = url
        self._headers = tuple(headers)
        self._pool: HttpPool | None = None
        self._credentials_factory = credentials_factory
        self._credentials: Credentials | None = None

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        """Open the stream and get its endpoint. Raises `ChannelError`, `RemoteProtocolError`."""
        from colonnade.transport.http_client.legacy_sse import SseStream
        from colonnade.transport.http_client.pool import HttpPool

        pool = self._pool = self._pool or HttpPool()
        if self._credentials is None and self._credentials_factory is not None:
            self._credentials = self._credentials_factory(pool.send)
        stream = await SseStream.open(
            pool,
            self._url,
            headers=self._headers,
            timeout_s=timeout_s,
            credentials=self._credentials,
        )
        return stream.open_conversation

    async def close(self) -> None:
        """Close every connection."""
        if self._credentials is not None:
            await self._credentials.close()
        if self._pool is not None:
            await self._pool.close()
