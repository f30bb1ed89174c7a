"""How a server is reached: through memory, as a child, at a URL, by what somebody else carries.

A way is tried as often as it takes: each `reach` is a fresh channel for one conversation. Whatever
belongs to no conversation alone (connections that are kept, a server that was started) belongs to
the way, and ends with `close`.

Rules: no message is written or read here. A transport is loaded when somebody goes that way.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard
from urllib.parse import urlsplit

from colonnade.client.input_callbacks import Hearing
from colonnade.errors import ConnectionLost
from colonnade.ports import Carry, Conversation, Credentials, Hearer, HttpSend, Service
from colonnade.protocol.link.link import DuplexLink

if TYPE_CHECKING:  # a client of a child never pays for an HTTP stack
    from colonnade.transport.http_client.pool import HttpPool
    from colonnade.transport.process.child import Child

Headers = Sequence[tuple[str, str]]
# Gives a passport for a server, over connections of this kind.
Issuing = Callable[[HttpSend], Credentials]
# Hears every line that a child writes to its standard error.
OnStderr: TypeAlias = Callable[[str], Any]

# For handlers of what a child wrote last.
LAST_WORDS_S = 1.0


class Way(Protocol):
    """How one server is reached."""

    @property
    def name(self) -> str:
        """What errors call the server; empty for what nobody has named."""
        ...

    @property
    def key(self) -> Hashable | None:
        """What it is remembered under, in this process; None for what nobody meets again."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether a conversation that ended can be followed by another one."""
        ...

    @property
    def restarts(self) -> bool:
        """Whether reaching it again starts it again."""
        ...

    @property
    def mirrors(self) -> bool:
        """Whether arguments are mirrored into headers on this way."""
        ...

    @property
    def greets(self) -> bool:
        """Whether a conversation on this way always begins with a handshake."""
        ...

    @property
    def older(self) -> "Way | None":
        """The same server by the transport of the first revision, where that is another one."""
        ...

    async def reach(self, timeout_s: float) -> Carry:
        """What carries a new conversation. Raises `ChannelError`."""
        ...

    async def close(self) -> None:
        """Nobody goes this way any more; at any time, and twice."""
        ...


class OneWay:
    """A channel that somebody else has made. There is only this one."""

    key: Hashable | None = None
    repeats: bool = False
    restarts: bool = False
    mirrors: bool = False
    greets: bool = False
    older: Way | None = None

    def __init__(self, carry: Carry, name: str = "") -> None:
        self.name: str = name
        self._carry: Carry | None = carry

    async def reach(self, timeout_s: float) -> Carry:
        """The channel, once."""
        carry, self._carry = self._carry, None
        if carry is None:
            raise ConnectionLost("the connection ended; whoever made it must make another one")
        return carry

    async def close(self) -> None:
        """It ends with its conversation."""


def is_service(target: object) -> TypeGuard[Service]:
    """Whether this is a server in this process, told by what it does rather than by its class."""
    names = ("accepts", "identity", "answer", "told", "watch", "start", "stop")
    return not isinstance(target, type) and all(hasattr(target, name) for name in names)


class MemoryWay:
    """A server in this process."""

    key: Hashable | None = None
    repeats: bool = True
    restarts: bool = False
    mirrors: bool = False
    greets: bool = False
    older: Way | None = None

    def __init__(self, service: Service, name: str = "") -> None:
        self.name: str = name or service.identity.info.name
        self._service = service
        self._started = False

    async def reach(self, timeout_s: float) -> Carry:
        """Two ends, one of them served; the server is started for the first."""
        from colonnade.transport.memory import pair, serve_end

        if not self._started:
            await self._service.start()
            self._started = True
        near, far = pair()
        serve_end(far, self._service, debug=True)
        return near.carry

    async def close(self) -> None:
        """Stop the server, if it was started here."""
        if self._started:
            self._started = False
            await self._service.stop()


class ChildWay:
    """A command that is started, and started again where it has died."""

    repeats: bool = True
    restarts: bool = True
    mirrors: bool = False
    greets: bool = False
    older: Way | None = None

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str = "",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        on_stderr: OnStderr | None = None,
    ) -> None:
        self._hearing = Hearing()
        self._on_stderr = on_stderr
        # Whether a program hears by itself what the child writes.
        self.is_heard: bool = on_stderr is not None
        self.name: str = name or os.path.basename(argv[0]) or argv[0]
        self._argv = tuple(argv)
        self._cwd = cwd
        self._env = dict(env or {})
        # The one that was started last: for those who watch over it.
        self.child: Child | None = None
        self.key: Hashable | None = (self._argv, cwd, tuple(sorted(self._env.items())))

    async def reach(self, timeout_s: float) -> Carry:
        """A child that has just been started."""
        from colonnade.transport.process.child import start_child

        handler = self._on_stderr
        child = self.child = await start_child(
            self._argv,
            name=self.name,
            cwd=self._cwd,
            env=self._env,
            on_stderr=None if handler is None else partial(self._hearing.tell, handler),
        )
        return child.carry

    async def close(self) -> None:
        """A child ends with its conversation; whoever hears what it wrote may hear its last words,
        which say why it ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._hearing.caught_up()
        await self._hearing.close()


class HttpWay:
    """A server at a URL, by Streamable HTTP."""

    repeats: bool = True
    restarts: bool = False
    mirrors: bool = True
    greets: bool = False

    def __init__(
        self, url: str, headers: Headers = (), *, name: str = "", issuing: Issuing | None = None
    ) -> None:
        self.name: str = name or urlsplit(url).netloc
        self.key: Hashable | None = url
        self._url = url
        self._headers = tuple(headers)
        self._pool: HttpPool | None = None
        self._issuing = issuing
        self._credentials: Credentials | None = None
        self.older: Way | None = SseWay(url, headers, name=self.name, issuing=issuing)

    async def reach(self, timeout_s: float) -> Carry:
        """A conversation of its own over connections that are kept for the next one."""
        from colonnade.transport.http_client.conversation import HttpConversation
        from colonnade.transport.http_client.pool import HttpPool

        pool = self._pool = self._pool or HttpPool()
        if self._credentials is None and self._issuing is not None:
            self._credentials = self._issuing(pool.send)
        url, headers, credentials = self._url, self._headers, self._credentials

        def carry(link: DuplexLink, hearer: Hearer) -> Conversation:
            return HttpConversation(
                link, hearer, pool, url, headers=headers, credentials=credentials
            )

        return carry

    async def close(self) -> None:
        """Close every connection."""
        if self.older is not None:
            await self.older.close()
        if self._credentials is not None:
            await self._credentials.close()
        if self._pool is not None:
            await self._pool.close()


class SseWay:
    """A server at a URL, by the transport of the first revision: a stream, and POSTs beside it."""

    key: Hashable | None = None  # there is one way to begin, and nothing to remember
    repeats: bool = True
    restarts: bool = False
    mirrors: bool = False
    greets: bool = True
    older: Way | None = None

    def __init__(
        self, url: str, headers: Headers = (), *, name: str = "", issuing: Issuing | None = None
    ) -> None:
        self.name: str = name or urlsplit(url).netloc
        self._url = url
        self._headers = tuple(headers)
        self._pool: HttpPool | None = None
        self._issuing = issuing
        self._credentials: Credentials | None = None

    async def reach(self, timeout_s: float) -> Carry:
        """A stream that has said where to POST. Raises `ChannelError`, `RemoteProtocolError`."""
        from colonnade.transport.http_client.legacy_sse import SseStream
        from colonnade.transport.http_client.pool import HttpPool

        pool = self._pool = self._pool or HttpPool()
        if self._credentials is None and self._issuing is not None:
            self._credentials = self._issuing(pool.send)
        stream = await SseStream.open(
            pool,
            self._url,
            headers=self._headers,
            timeout_s=timeout_s,
            credentials=self._credentials,
        )
        return stream.carry

    async def close(self) -> None:
        """Close every connection."""
        if self._credentials is not None:
            await self._credentials.close()
        if self._pool is not None:
            await self._pool.close()
