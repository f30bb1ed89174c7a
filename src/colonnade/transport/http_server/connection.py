"""One HTTP/1.1 connection: uvicorn's protocol under limits that no application could keep.

uvicorn puts no limit on the time or the size of headers, keeps silent connections open, keeps
answers that nobody reads, and never tells a pipelined request that its client has gone. An
application that is mounted elsewhere lives with that; here each has an end.

Rules: no request is read before the one before it was answered. Nothing lasts longer than its
limit, whoever is at the other end.
"""

import asyncio
import logging
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import httptools
from msgspec import Struct
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from colonnade.transport.http_server.head_cache import KnownHead, learn
from colonnade.transport.http_server.request import (
    CLIENT_DISCONNECTED,
    CLOSE_HEADER,
    CONNECTION_KEY,
    IncomingRequest,
    Pairs,
    Receive,
    Send,
    check_numbers,
)
from colonnade.transport.http_server.write_buffer import (
    OF_JSON,
    OF_NOTHING,
    Bell,
    Flow,
    Outbox,
    lines_of,
)

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope

# An unread answer must shrink by so much to count as read.
PROGRESS_BYTES = 1024
# Of so many requests at once the answers leave together.
TOGETHER = 8
# From here on a second write costs less than a copy.
LARGE_BODY = 64 * 1024
# Most requests are to the same few addresses; so many are known, none longer than this.
KNOWN_URLS = 64
KNOWN_URL_BYTES = 256
# Of a body so much is read before somebody takes it.
READ_BYTES = 256 * 1024
# Who began so many requests in a row otherwise than the one before is not studied any further.
MISSES = 8
# A chunk of one byte takes five more around it; what takes more is not there for its body.
FRAMING = 8


class RunLimits(Struct, frozen=True, kw_only=True):
    """What a stranger may take of our own server: sizes in bytes, times in seconds."""

    # Proxies allow 8 KiB of headers, browsers send 2; tokens and mirrored arguments need some.
    max_header_bytes: int = 16 * 1024
    max_header_count: int = 100
    # From the first byte, or from the connection, to the end of the headers.
    header_timeout_s: float = 10.0
    # Between two requests on one connection.
    keep_alive_timeout_s: float = 60.0
    # An answer of which nothing is taken for so long is dropped, and the connection with it.
    write_stall_timeout_s: float = 30.0
    # 20,000 streams and as many callers as a machine can answer.
    max_connections: int = 30_000
    # After a wish to end, for so long requests are still taken and /ready says 503: balancers that
    # look every few seconds send nothing more by then. 0 where none looks.
    shutdown_delay_s: float = 0.0

    def __post_init__(self) -> None:
        check_numbers(self)


DEFAULT_LIMITS: Final = RunLimits()


# No request is ever put here, and an empty one for each connection takes 700 bytes.
_NO_PIPELINE: deque[Any] = deque(maxlen=0)


def _read_url(url: bytes) -> tuple[str, bytes, bytes]:
    """The path, as it is written and as it is meant, and the query."""
    parsed = httptools.parse_url(url)
    raw_path = parsed.path
    path = raw_path.decode("ascii")
    return unquote(path) if "%" in path else path, raw_path, parsed.query or b""


_read_url_once = lru_cache(KNOWN_URLS)(_read_url)


class _Cycle(RequestResponseCycle):
    """One request and its answer, as uvicorn has it. What most never change are defaults here."""

    logger = logging.getLogger("uvicorn.error")
    access_logger = logging.getLogger("uvicorn.access")
    disconnected = False
    body: Any = b""
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    def __init__(self, line: "Connection", keep_alive: bool) -> None:
        self.scope = line.scope
        self.transport = line.transport
        self.flow = line.flow
        self.access_log = line.access_log
        self.default_headers = line.server_state.default_headers
        self.message_event = cast("asyncio.Event", Bell())
        self.on_response = line.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = line.expect_100_continue


class _Cut(Exception):
    """Stops the parser in the middle of what must not be read."""


class Connection(HttpToolsProtocol):
    """One connection, with an end to everything that could last."""

    # In slots: with them, uvicorn's own would no longer share one table of names, at 1.5 KiB each.
    __slots__ = (
        "_body_bytes",
        "_chunk_bytes",
        "_deaf",
        "_head_bytes",
        "_idle",
        "_in_head",
        "_known",
        "_limits",
        "_misses",
        "_outbox",
        "_quiet_since",
        "_refusal",
        "_unread",
        "_upgrade",
        "incoming",
        "lost",
    )

    def __init__(
        self,
        config: Config,
        state: ServerState,
        app_state: dict[str, Any],
        limits: RunLimits,
        outbox: Outbox,
    ) -> None:
        super().__init__(config, state, app_state)
        self._limits = limits
        self._outbox = outbox
        # Whether headers are awaited, or a next request; since when, as far as `check` has seen.
        self._in_head = True
        self._idle = False
        self._quiet_since = 0.0
        # Of this request: all that came, and how much of it was its body.
        self._head_bytes = 0
        self._body_bytes = 0
        self._chunk_bytes = 0
        self._deaf = False
        # Whether the request asks for another protocol, and is read once more without that.
        self._upgrade = False
        # How the last request began, on a connection that is used again, and how many since the
        # last that came again began otherwise.
        self._known: KnownHead | None = None
        self._misses = 0
        self._refusal = 400
        self._unread = (0.0, 0)
        self.incoming: IncomingRequest | None = None
        self.lost: bool = False
        self.pipeline = _NO_PIPELINE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has come; the time for headers runs."""
        super().connection_made(transport)
        self.flow: FlowControl = Flow(transport)
        if len(self.connections) > self._limits.max_connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody has gone; whoever answers them hears of it now."""
        super().connection_lost(exc)
        self.lost = True
        self._known = None
        if self.incoming is not None:
            self.incoming.abort(CLIENT_DISCONNECTED)
            self.incoming = None
        if self.scope is not None:  # type: ignore[redundant-expr]
            self.scope.pop(CONNECTION_KEY, None)  # type: ignore[typeddict-item]

    def data_received(self, data: bytes) -> None:
        """Some bytes: headers within their limit, a body, or more than was asked for."""
        if self._deaf or self.parser is None:
            return
        self._chunk_bytes = len(data)
        rests, before = self._rests, self.cycle
        if rests and self._known is not None and len(data) <= READ_BYTES:
            start = self._known.body_at(data)
            if start:
                self._begin_again(self._known, data[start:])
                return
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
            if self._head_bytes > self._limits.max_header_bytes and self._is_padded():
                self._refuse(431)
            elif rests and self.cycle is not before and not self.cycle.more_body:
                self._study(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._upgrade:
                self._read_without_upgrade(data[upgrade.args[0] :])
            else:
                self._deafen()
        except httptools.HttpParserError:
            if self._answering and not self.cycle.more_body:
                self._deafen()  # it comes after a whole request, which is still answered
            elif not self._deaf:
                self._refuse(self._refusal)

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a request again as if it had not asked for another protocol, which a server may
        ignore (RFC 9110, 7.8): the parser takes all that follows such a head for that protocol,
        also a body. What comes after it may really be that, so the connection is closed."""
        self._upgrade = False
        parser: Any = self.parser
        line = b"%b %b HTTP/%b\r\n" % (
            parser.get_method(),
            self.url,
            parser.get_http_version().encode(),
        )
        kept = [pair for pair in self.headers if pair[0] not in (b"upgrade", b"connection")]
        lines = b"".join([b"%b: %b\r\n" % pair for pair in [*kept, CLOSE_HEADER]])
        cast("Any", self).parser = httptools.HttpRequestParser(self)
        self.data_received(b"%b%b\r\n%b" % (line, lines, rest))

    @property
    def _rests(self) -> bool:
        """Whether a request was answered here, and of the next one nothing has come yet."""
        cycle = self.cycle
        return (
            cycle is not None  # type: ignore[redundant-expr]
            and cycle.response_complete
            and not (cycle.more_body or self._in_head)
        )

    def _study(self, data: bytes) -> None:
        """Remember how a request began that came in one piece; the next one may begin alike."""
        # Where tasks are begun at once, as a factory may, the application has changed the scope by
        # now; what it put there must not come back as if the client had said it.
        if self._misses < MISSES and self.loop.get_task_factory() is None:
            self._misses += 1
            scope = cast("dict[str, Any]", self.scope)
            self._known = learn(data, self._body_bytes, scope, self._limits.max_header_bytes)

    def _begin_again(self, known: KnownHead, body: bytes) -> None:
        """A request that begins as the last one did: what the parser would have said of it."""
        self._misses = 0
        scope = known.scope(len(body))
        scope["state"] = self.app_state.copy()
        self._open(scope)
        self._in_head = False
        self.expect_100_continue: bool = False
        cycle = self._start(keep_alive=True)
        cycle.body, cycle.more_body, self._body_bytes = body, False, len(body)
        cycle.message_event.set()

    def _open(self, scope: dict[str, Any]) -> None:
        """A request begins, and the time for it."""
        scope[CONNECTION_KEY] = self
        self.scope: HTTPScope = cast("HTTPScope", scope)
        self._in_head, self._idle, self._quiet_since = True, False, 0.0
        self._head_bytes, self._body_bytes = self._chunk_bytes, 0

    def _is_padded(self) -> bool:
        """Whether too much came that is no body: headers, extensions of chunks, trailers."""
        beside = self._head_bytes - self._body_bytes
        if self._in_head:
            return beside > self._limits.max_header_bytes
        return beside > 2 * self._limits.max_header_bytes + FRAMING * self._body_bytes

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; what follows a body is nothing to us."""
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        """Some of the body; one that comes in one piece is kept as it is."""
        self._body_bytes += len(body)
        cycle: Any = self.cycle
        if cycle.response_complete:
            return
        before = cycle.body
        cycle.body = bytearray().join((before, body)) if before else body
        if len(cycle.body) > READ_BYTES:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """All of it is there."""
        if not self._upgrade and not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]

    def on_message_begin(self) -> None:
        """A request begins; one that comes before the last was answered is not read."""
        if self._answering:
            # Its disconnect would be told to the newer one. A client that gets no answer
            # sends the request again, on another connection.
            self._deafen()
            raise _Cut
        super().on_message_begin()
        self._open(cast("dict[str, Any]", self.scope))

    def on_headers_complete(self) -> None:
        """All headers are there."""
        limits = self._limits
        large = self._head_bytes > limits.max_header_bytes and (
            sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url)
            > limits.max_header_bytes
        )
        if large or len(self.headers) > limits.max_header_count:
            self._refusal = 431
            raise _Cut
        if not self._is_addressed() or self._is_framed_twice():
            raise _Cut
        if cast("Any", self.parser).should_upgrade() and b"upgrade" in dict(self.headers):
            self._upgrade = True
            return
        self._in_head = False
        self._begin()

    def _begin(self) -> None:
        """Let the application work on it; `on_message_begin` has seen that nothing else runs."""
        parser: Any = self.parser
        scope, url = cast("dict[str, Any]", self.scope), self.url
        version = parser.get_http_version()
        if version != "1.1":
            scope["http_version"] = version
        scope["method"] = parser.get_method().decode("ascii")
        if parser.should_upgrade() and self._should_upgrade():
            return
        read = _read_url if len(url) > KNOWN_URL_BYTES else _read_url_once
        path, raw_path, scope["query_string"] = read(url)
        root = self.root_path
        scope["path"] = root + path if root else path
        scope["raw_path"] = root.encode("ascii") + raw_path if root else raw_path
        self._start(keep_alive=version != "1.0" and parser.should_keep_alive())

    def _start(self, *, keep_alive: bool) -> _Cycle:
        cycle = _Cycle(self, keep_alive)
        self.cycle: RequestResponseCycle = cycle
        self._start_asgi_task(cycle, cast("Any", self).app)
        return cycle

    def whole_body(self, receive: Receive) -> bytes | None:
        """The body, where all of it has come already; None where it must be awaited."""
        cycle = self.cycle
        if (
            getattr(receive, "__self__", None) is not cycle
            or cycle.more_body
            or cycle.disconnected
            or cycle.response_complete
            or cycle.waiting_for_100_continue
        ):
            return None
        cycle.message_event.clear()
        if self.flow.read_paused:
            self.flow.resume_reading()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    def _is_addressed(self) -> bool:
        """Whether it is in a version that is spoken here, and to the host that is checked: a
        target with another one in it would count for more (RFC 9112, 3.2.2)."""
        if self.parser is None or self.parser.get_http_version() not in ("1.1", "1.0"):
            return False
        if self.url[:1] == b"/":
            return True
        named = self.url.partition(b"?")[0].partition(b"://")[2].partition(b"/")[0]
        return not named or named == dict(self.headers).get(b"host")

    def _is_framed_twice(self) -> bool:
        """Whether it has chunks in a version that has none: who does not know them takes the rest
        for a second request (RFC 9112, 6.1)."""
        if self.parser is None or self.parser.get_http_version() != "1.0":
            return False
        return b"transfer-encoding" in dict(self.headers)

    def on_response_complete(self) -> None:
        """It was answered; `check` ends the connection if nothing more comes, without a timer."""
        self._idle, self._quiet_since = True, 0.0
        if self.flow.read_paused:
            self.flow.resume_reading()

    def respond(self, send: Send, status: int, body: bytes, more: Pairs | None) -> bool:
        """Write a whole answer in one piece, which by `send` takes two writes and much looking.

        Only where `send` is the server's own: whoever wraps it wants to see what passes.
        """
        cycle = self.cycle
        if not self._takes(send) or cycle.response_started:
            return False
        if cycle.disconnected:
            return True
        head = self._outbox.opening(status, self.server_state.default_headers)
        head += OF_JSON % len(body) if body else OF_NOTHING
        if more:
            head += lines_of(more)
            if CLOSE_HEADER in more:
                cycle.keep_alive = False
        if not cycle.keep_alive and not (more and CLOSE_HEADER in more):
            head += b"connection: close\r\n"
        if len(body) > LARGE_BODY:
            self.transport.write(head + b"\r\n")
            self.transport.write(body)
        else:
            data = b"%b\r\n%b" % (head, body)
            if cycle.keep_alive and len(self.tasks) >= TOGETHER:
                self._outbox.put(self.transport, data, self.loop)
            else:
                self.transport.write(data)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def _takes(self, send: Send) -> bool:
        """Whether what is written by this `send` may go past it."""
        cycle = self.cycle
        return (
            getattr(send, "__self__", None) is cycle
            and not self.flow.write_paused
            and cycle.scope["method"] != "HEAD"
        )

    def start_stream(self, send: Send, headers: Pairs, first: bytes) -> bool:
        """Begin a stream with its first piece; False where it must go the usual way, by `send`."""
        cycle = self.cycle
        if (
            not self._takes(send)
            or cycle.response_started
            or not cycle.keep_alive
            or cycle.disconnected
            or CLOSE_HEADER in headers
        ):
            return False
        head = self._outbox.opening(200, self.server_state.default_headers)
        data = head + lines_of(headers) + b"transfer-encoding: chunked\r\n\r\n"
        if first:
            data += b"%x\r\n%b\r\n" % (len(first), first)
        cycle.response_started = cycle.chunked_encoding = True
        cycle.waiting_for_100_continue = False
        self._outbox.put(self.transport, data, self.loop)
        return True

    def write_chunk(self, send: Send, data: bytes, *, last: bool = False) -> bool:
        """One more piece of a stream, which leaves with others at the end of this turn.

        False where it must go the usual way, by `send`: what is here already goes first then.
        """
        cycle = self.cycle
        if (
            not self._takes(send)
            or not cycle.chunked_encoding
            or cycle.response_complete
            or cycle.disconnected
            or (last and not cycle.keep_alive)
        ):
            self._outbox.flush()
            return False
        framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._outbox.put(self.transport, framed + b"0\r\n\r\n" if last else framed, self.loop)
        if last:
            cycle.response_complete = True
            cycle.message_event.set()
            cycle.on_response()
        return True

    def drop(self, send: Send) -> None:
        """End the connection without another word, if this answer is still on it."""
        if getattr(send, "__self__", None) is self.cycle and not self.cycle.disconnected:
            self.cycle.disconnected = True
            self.transport.abort()

    def _deafen(self) -> None:
        """Read no more; what is being answered is the last."""
        self._deaf = True
        if self.cycle is not None:  # type: ignore[redundant-expr]
            self.cycle.keep_alive = False

    def _refuse(self, status: int) -> None:
        """Answer what cannot be read, unless an answer is under way, and hang up."""
        self._deafen()
        if self._answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        self._outbox.flush()
        head = b"content-length: 0\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head)
        self.transport.close()

    def shutdown(self) -> None:
        """The server ends: what was answered leaves before the connection closes."""
        self._outbox.flush()
        super().shutdown()

    def check(self, now: float) -> None:
        """End what has lasted too long."""
        limits = self._limits
        if self.incoming is not None and self._known is not None:
            # Who stays asks nothing else meanwhile, and thousands stay: it is a kilobyte each.
            self._known, self._misses = None, 0
        if (self._in_head or self._idle) and not self._deaf:
            if not self._quiet_since:
                self._quiet_since = now
            elif self._in_head and now - self._quiet_since > limits.header_timeout_s:
                self._refuse(408)
                return
            elif self._idle and now - self._quiet_since > limits.keep_alive_timeout_s:
                self.transport.close()
        unread = self.transport.get_write_buffer_size()
        since, size = self._unread
        if not unread:
            self._unread = (0.0, 0)
        elif not since or unread <= size - PROGRESS_BYTES:
            self._unread = (now, unread)
        elif now - since > limits.write_stall_timeout_s:
            self.transport.abort()
        else:
            self._unread = (since, max(size, unread))

    def _unsupported_upgrade_warning(self) -> None:
        """Nobody can write into our log by asking for what we do not have."""
