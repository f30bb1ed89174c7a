"""One HTTP/1.1 connection of our own server: what is read there becomes requests, one by one.

httptools parses. What it puts no limit on has one here: the time for headers and their size,
silence, responses that are not read, requests that come before the last response. A head that comes
again on its connection, but for the length of its body, is compared instead of parsed.

Rules: no request is read before the response to the last one is complete. Nothing lasts longer than
its limit. Each request has a task and a scope of its own.
"""

import asyncio
import logging
from enum import Enum
from functools import lru_cache
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
from msgspec import Struct

from colonnade.transport.http_server.asgi_cycle import (
    PENDING,
    SENT,
    ConnectionWriter,
    RequestCycle,
    ServerState,
    header_lines,
)
from colonnade.transport.http_server.request import (
    CLOSE_HEADER,
    CONNECTION_KEY,
    Pairs,
    check_numbers,
)
from colonnade.transport.http_server.unread_responses import MAX_BYTES, MAX_BYTES_PER_PRINCIPAL

log: logging.Logger = logging.getLogger("colonnade.transport")

# A response that is not read must shrink by so much to count as read.
PROGRESS_BYTES = 1024
# Most requests are for the same few URLs; so many are cached, none longer than this.
KNOWN_URLS = 64
KNOWN_URL_BYTES = 256
# So much of a body is read before the application takes it.
READ_BYTES = 256 * 1024
# A chunk of one byte has five bytes of framing; more framing than this is padding.
FRAMING = 8
# The size of a token and some headers. A longer head is parsed each time: keeping its bytes as well
# would double the memory of an idle connection, of which there may be thousands.
KNOWN_BYTES = 4 * 1024
# After so many heads in a row that were unlike the one before, no more are compared.
MISSES = 8
# More digits than the length of any accepted body; the parser rejects them.
LENGTH_DIGITS = 12

BAD_REQUEST: Final = 400
REQUEST_TIMEOUT: Final = 408
HEADERS_TOO_LARGE: Final = 431
NOT_IMPLEMENTED: Final = 501


class RunLimits(Struct, frozen=True, kw_only=True):
    """Limits of Colonnade's own HTTP server on connections: sizes in bytes, times in seconds."""

    # Proxies allow 8 KiB of headers, browsers send 2; tokens and mirrored arguments need some.
    max_header_bytes: int = 16 * 1024
    max_header_count: int = 100
    # From the first byte, or from the connection, to the end of the headers.
    header_timeout_s: float = 10.0
    # Between two requests on one connection.
    keep_alive_timeout_s: float = 60.0
    # A connection whose client reads nothing of its response for so long is closed.
    write_stall_timeout_s: float = 30.0
    # Maximum unread bytes of responses, in total and for one principal. Beyond these limits, the
    # connections with the most unread bytes are closed. A single response may be larger.
    max_unread_bytes: int = MAX_BYTES
    max_unread_bytes_per_principal: int = MAX_BYTES_PER_PRINCIPAL
    # 20,000 streams and as many callers as a machine can serve.
    max_connections: int = 30_000
    # At shutdown, for so long requests are still accepted while /ready responds with 503: load
    # balancers that check every few seconds send no more requests then. 0 without such checks.
    shutdown_delay_s: float = 0.0
    # After that the port is closed. For so long a connection that is open may still send a request:
    # it may be under way. What is idle for longer is closed.
    last_request_timeout_s: float = 1.0

    def __post_init__(self) -> None:
        check_numbers(self)


DEFAULT_LIMITS: Final = RunLimits()


class Reading(Enum):
    """How far the request has come that is being read, or was read last."""

    HEADERS = "its headers are awaited"
    UPGRADE = "it has an Upgrade header, and is read again without it"
    BODY = "its body is awaited"
    RECEIVED = "all of it is here"
    STOPPED = "nothing more is read"


# The members by themselves: before Python 3.12 a look-up in the class takes ten times as long.
HEADERS, UPGRADE, BODY, RECEIVED, STOPPED = Reading

# Which state follows which; a test checks the code against it.
READING: Final[dict[Reading, frozenset[Reading]]] = {
    HEADERS: frozenset({UPGRADE, BODY, STOPPED}),
    UPGRADE: frozenset({HEADERS}),
    BODY: frozenset({RECEIVED, STOPPED}),
    RECEIVED: frozenset({HEADERS, STOPPED}),
    STOPPED: frozenset(),
}


class _Refused(Exception):
    """Stops the parser in the middle of a request that is refused."""

    def __init__(self, status: int = BAD_REQUEST) -> None:
        self.status = status


class ServerConnection(ConnectionWriter):
    """One connection, with a timeout for everything that could last.

    asyncio calls it with bytes, httptools with the parsed parts of a request.
    """

    __slots__ = (
        "_body_bytes",
        "_connections",
        "_cycle",
        "_expects_continue",
        "_headers",
        "_known",
        "_limits",
        "_misses",
        "_parser",
        "_piece_bytes",
        "_postponed",
        "_received_bytes",
        "_unread",
        "_url",
        "client",
        "reading",
        "scheme",
        "server",
    )

    def __init__(
        self, state: ServerState, limits: RunLimits, connections: "set[ServerConnection]"
    ) -> None:
        super().__init__(state)
        self._limits = limits
        self._connections = connections
        self.server: tuple[str, int] | None = None
        self.client: tuple[str, int] | None = None
        self.scheme: str = "http"
        self._parser = httptools.HttpRequestParser(self)
        self.reading: Reading = HEADERS
        self._url = b""
        self._headers: Pairs = []
        self._expects_continue = False
        # What came with this request, how much of that was its body, and what came last.
        self._received_bytes = 0
        self._body_bytes = 0
        self._piece_bytes = 0
        self._cycle: RequestCycle | None = None
        # How the last request began, where the connection is used again, and how many in a row
        # began otherwise.
        self._known: KnownHead | None = None
        self._misses = 0
        # The next request, which waits until the client has read the last response.
        self._postponed = b""
        # Since when the client has not read, and how much.
        self._unread = (0.0, 0)

    def __repr__(self) -> str:
        return f"ServerConnection({self.client}, {self.reading.name})"

    # ------------------------------------------------------------ asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the header timeout."""
        # uvloop has classes of its own.
        self.transport: asyncio.Transport = cast("asyncio.Transport", transport)
        self.server = _address(transport.get_extra_info("sockname"))
        self.client = _address(transport.get_extra_info("peername"))
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._connections.add(self)
        if len(self._connections) > self._limits.max_connections:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the request that is being served that its client has disconnected."""
        super().connection_lost(exc)
        self._connections.discard(self)
        self.reading = STOPPED
        del self._parser  # which refers to this connection, as this one to it
        self._known = None
        self._postponed = b""
        if self._cycle is not None:
            self._cycle.disconnect()
            self._cycle = None  # it refers to this connection, too

    def resume_writing(self) -> None:
        """The client has read the last response: serve its next request."""
        super().resume_writing()
        if self._postponed and not self.lost:
            data, self._postponed = self._postponed, b""
            self.transport.resume_reading()
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        """Read headers, a body, or what comes after the last request."""
        if self.reading is STOPPED:
            return
        cycle = self._cycle
        again = self.reading is RECEIVED and cycle is not None and cycle.responding is SENT
        if again and self.write_paused:
            # A connection has at most one unread response.
            if not self._postponed:
                self.transport.pause_reading()
            self._postponed += data
            return
        if again and self._known is not None and self._serve_known(self._known, data):
            return
        self._piece_bytes = len(data)
        self._received_bytes += self._piece_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.reading is UPGRADE:
                self._read_without_upgrade(data[upgrade.args[0] :])
            else:
                self._stop_reading()
        except httptools.HttpParserError as error:
            self._cannot_read(error)
        else:
            if self._received_bytes > self._limits.max_header_bytes and self._is_padded():
                self._refuse(HEADERS_TOO_LARGE)
            elif again and self.reading is RECEIVED:
                self._learn(data)

    # ------------------------------------------------------------ httptools

    def on_message_begin(self) -> None:
        """A request begins; one that comes before the last response is complete is not read."""
        if self._is_responding:
            # A disconnect would be reported to the newer request only. A client that gets no
            # response sends the request again, on another connection.
            raise _Refused
        self.reading = HEADERS
        self._url, self._headers, self._expects_continue = b"", [], False
        self.quiet_since = 0.0
        self._received_bytes, self._body_bytes = self._piece_bytes, 0

    def on_url(self, url: bytes) -> None:
        """Some of the request target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; trailers are left out."""
        if self.reading is HEADERS:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self._expects_continue = True
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Let the application work on the request, if it is one."""
        parser, url, headers, limits = self._parser, self._url, self._headers, self._limits
        if len(headers) > limits.max_header_count or (
            self._received_bytes > limits.max_header_bytes
            and sum(len(name) + len(value) + 4 for name, value in headers) + len(url)
            > limits.max_header_bytes
        ):
            raise _Refused(HEADERS_TOO_LARGE)
        version = parser.get_http_version()
        if refusal := _refusal_of_coding(headers):
            raise _Refused(refusal)
        if version != "1.1" and (version != "1.0" or _is_framed_twice(headers)):
            raise _Refused
        if url[:1] != b"/" and _names_another_host(url, headers):
            raise _Refused
        if parser.should_upgrade() and b"upgrade" in dict(headers):
            self.reading = UPGRADE
            return
        read = read_url if len(url) > KNOWN_URL_BYTES else _read_url_once
        path, raw_path, query = read(url)
        method = parser.get_method().decode("ascii")
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": headers,
            "state": self.state.lifespan_state.copy(),
            "method": method,
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
        }
        self.reading = BODY
        self._headers = _NO_HEADERS
        keep_alive = (
            version == "1.1" and parser.should_keep_alive() and not self.state.closes_connections
        )
        is_head, expects_continue = method == "HEAD", self._expects_continue
        self._serve(RequestCycle(self, scope, keep_alive, is_head, expects_continue), scope)

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._body_bytes += len(body)
        if self._cycle is not None and self._cycle.feed_data(body) > READ_BYTES:
            self.read_paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.reading is BODY:
            self.reading = RECEIVED
            if self._cycle is not None:
                self._cycle.feed_eof()

    # ------------------------------------------------------------ requests

    @property
    def _is_responding(self) -> bool:
        return self._cycle is not None and self._cycle.responding is not SENT

    def _serve(self, cycle: RequestCycle, scope: dict[str, Any]) -> None:
        self._cycle = scope[CONNECTION_KEY] = cycle
        task = self.loop.create_task(cycle.run(self.state.app))
        if not task.done():  # as an eager task may be
            self.state.running[cycle] = task

    def _serve_known(self, known: "KnownHead", data: bytes) -> bool:
        """Serve a request that begins as the last one did, as if the parser had read it; False
        if it does not."""
        found = known.read(data)
        if found is None:
            return False
        scope, body = found
        scope["state"] = self.state.lifespan_state.copy()
        self._misses = 0
        self.quiet_since = 0.0
        self._serve(RequestCycle(self, scope, True, False, False, body), scope)
        return True

    def _learn(self, data: bytes) -> None:
        """Cache the head of a request that came in one piece; the next one may have the same."""
        # With eager tasks the application has the scope by now: what it added there must not be
        # taken for something that the client sent.
        scope = self._cycle.scope if self._cycle is not None else None
        if self._misses < MISSES and scope is not None:
            self._misses += 1
            self._known = learn(data, self._body_bytes, scope, self._limits.max_header_bytes)

    def _read_without_upgrade(self, rest: bytes) -> None:
        """Read a request again without its Upgrade header, which a server may ignore (RFC 9110,
        7.8): the parser takes all data after such a head for the other protocol, also a body. The
        data after the request may really be that, so the connection is closed."""
        parser, self._parser = self._parser, httptools.HttpRequestParser(self)
        version = parser.get_http_version().encode()
        line = b"%b %b HTTP/%b\r\n" % (parser.get_method(), self._url, version)
        kept = [pair for pair in self._headers if pair[0] not in (b"upgrade", b"connection")]
        self.reading = HEADERS
        self.data_received(b"%b%b\r\n%b" % (line, header_lines([*kept, CLOSE_HEADER]), rest))

    def _is_padded(self) -> bool:
        """Whether too much was received beside the body: headers, chunk extensions, trailers."""
        limit = self._limits.max_header_bytes
        beside = self._received_bytes - self._body_bytes
        if self.reading is HEADERS:
            return beside > limit
        return beside > 2 * limit + FRAMING * self._body_bytes

    # ------------------------------------------------------------ the end

    def _stop_reading(self) -> None:
        """Stop reading; the response that is being written is the last."""
        self.reading = STOPPED
        if self._cycle is not None:
            self._cycle.keep_alive = False

    def _cannot_read(self, error: httptools.HttpParserError) -> None:
        """Refuse data that is not HTTP, or exceeds a limit."""
        cause = error.__context__
        if cause is not None and not isinstance(cause, _Refused):
            log.error("a request could not be read", exc_info=cause)
        if self._is_responding and self._cycle is not None and not self._cycle.more_body:
            self._stop_reading()  # it follows a whole request, whose response is still wanted
        else:
            self._refuse(cause.status if isinstance(cause, _Refused) else BAD_REQUEST)

    def _refuse(self, status: int) -> None:
        """Respond to a request that cannot be parsed, unless a response is being written, and close
        the connection."""
        cycle, is_responding = self._cycle, self._is_responding
        self._stop_reading()
        if cycle is not None and is_responding:
            has_begun = cycle.responding is not PENDING
            cycle.disconnect()
            if has_begun:
                self.transport.abort()
                return
        self.refuse(status)

    @property
    def awaits_request(self) -> bool:
        """Whether no request has come yet, or none since the last response."""
        return not self.lost and self.reading is not STOPPED and not self._is_responding

    def end_keep_alive(self) -> None:
        """Say in the next response that it is the last; `ServerState.closes_connections` is set."""
        self._known = None  # such a head is served without a look at the state
        if self._cycle is not None and self._cycle.responding is PENDING:
            self._cycle.keep_alive = False

    def shutdown(self) -> None:
        """Close the connection at shutdown, after the response that is being written."""
        if self._cycle is not None and self._is_responding:
            self._cycle.keep_alive = False
        else:
            self.close()

    def check(self, now: float) -> None:
        """Apply the timeouts."""
        self._check_silence(now)
        self._check_unread(now)
        if self._known is not None and self._cycle is not None and self._cycle.incoming is not None:
            # A client that waits for this response sends nothing meanwhile, and thousands may
            # wait: it is a kilobyte each.
            self._known, self._misses = None, 0

    def _check_silence(self, now: float) -> None:
        in_headers = self.reading is HEADERS
        if self.reading is STOPPED or (self._is_responding and not in_headers):
            return
        if not self.quiet_since:
            self.quiet_since: float = now
        elif in_headers and now - self.quiet_since > self._limits.header_timeout_s:
            self._refuse(REQUEST_TIMEOUT)
        elif not in_headers and now - self.quiet_since > self._limits.keep_alive_timeout_s:
            self.close()

    def _check_unread(self, now: float) -> None:
        unread = self.transport.get_write_buffer_size()
        since, size = self._unread
        if not unread:
            self._unread = (0.0, 0)
        elif not since or unread <= size - PROGRESS_BYTES:
            self._unread = (now, unread)
        elif now - since > self._limits.write_stall_timeout_s:
            self.transport.abort()
        else:
            self._unread = (since, max(size, unread))


# Never appended to: `on_message_begin` makes a list for each request.
_NO_HEADERS: Pairs = []


def read_url(url: bytes) -> tuple[str, bytes, bytes]:
    """The path, decoded and as it is written, and the query. Raises `_Refused`."""
    try:
        parsed = httptools.parse_url(url)
        raw_path: bytes | None = parsed.path
        path = (raw_path or b"").decode("ascii")
    except (httptools.HttpParserError, UnicodeDecodeError):
        raise _Refused from None
    if not raw_path:
        raise _Refused
    return unquote(path) if "%" in path else path, raw_path, parsed.query or b""


_read_url_once = lru_cache(KNOWN_URLS)(read_url)


def _address(info: Any) -> tuple[str, int] | None:
    """The address of a socket as ASGI has it."""
    match info:
        case (str(host), int(port), *_):
            return host, port
        case _:
            return None


def _names_another_host(url: bytes, headers: Pairs) -> bool:
    """Whether a target has another host in it than the one that is checked; it would count for
    more (RFC 9112, 3.2.2)."""
    named = url.partition(b"?")[0].partition(b"://")[2].partition(b"/")[0]
    return bool(named) and named != dict(headers).get(b"host")


def _is_framed_twice(headers: Pairs) -> bool:
    """Whether a request has chunks in a version that has none: a proxy that does not know them
    takes the rest for a second request (RFC 9112, 6.1)."""
    return b"transfer-encoding" in dict(headers)


def _refusal_of_coding(headers: Pairs) -> int:
    """The error status for a body with a transfer coding other than `chunked`, which would be read
    undecoded; 0 for any other body (RFC 9112, 6.1 and 6.3)."""
    codings = b""
    for name, value in headers:
        if name == b"transfer-encoding":
            codings += value + b","
    if not codings:
        return 0
    names = [coding.strip().lower() for coding in codings.split(b",") if coding.strip()]
    if names == [b"chunked"]:
        return 0
    if names[-1:] != [b"chunked"] or b"chunked" in names[:-1]:
        return BAD_REQUEST  # the end of the body is unknown
    return NOT_IMPLEMENTED


# ---------------------------------------------------------------- heads that come again

_LENGTH = b"content-length"
_LENGTH_LINE = b"\r\n" + _LENGTH + b":"
_END = b"\r\n\r\n"
# A client that sends one of these wants more than a response.
_SPECIAL = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
# What a scope has of the request line and of the connection. All but `asgi` are values that cannot
# change; of that one, as of the headers, each request has its own.
_KEPT = (
    "type",
    "asgi",
    "http_version",
    "server",
    "client",
    "scheme",
    "root_path",
    "method",
    "path",
    "raw_path",
    "query_string",
)


class KnownHead:
    """A head that was parsed, under all limits: its bytes around the length of the body, and what
    they mean. What is not exactly like it, or comes in pieces, is for the parser.

    Without it a call takes an eighth more of the processor (decisions/0013).
    """

    __slots__ = ("_after", "_before", "_headers", "_place", "_scope")

    def __init__(
        self, before: bytes, after: bytes, scope: dict[str, Any], headers: Pairs, place: int
    ) -> None:
        self._before = before
        self._after = after
        self._scope = scope
        self._headers = headers
        self._place = place

    def read(self, data: bytes) -> tuple[dict[str, Any], bytes] | None:
        """The scope (without the state) and the body, as the parser would have read them, if this
        is one whole request with this head; else None."""
        if not data.startswith(self._before) or len(data) > READ_BYTES:
            return None
        at = len(self._before)
        end = data.find(b"\r", at, at + LENGTH_DIGITS)
        if end < 0 or not data.startswith(self._after, end):
            return None
        length, body = data[at:end], data[end + len(self._after) :]
        if length != b"%d" % len(body):
            return None
        headers = self._headers.copy()
        headers[self._place] = (_LENGTH, length)
        scope = self._scope.copy()
        scope["asgi"] = scope["asgi"].copy()
        scope["headers"] = headers
        return scope, body


def learn(data: bytes, size: int, scope: dict[str, Any], limit: int) -> KnownHead | None:
    """The head of a request that came in one piece, and was parsed; None for one that is special.

    `size` is that of its body, `limit` what the head may have.
    """
    end = data.find(_END) + len(_END)
    headers: Pairs = scope["headers"]
    names = [name for name, _ in headers]
    if (
        len(data) - end != size
        or end + LENGTH_DIGITS > min(limit, KNOWN_BYTES)
        or scope["method"] != "POST"
        or scope["http_version"] != "1.1"
        or names.count(_LENGTH) != 1
        or not _SPECIAL.isdisjoint(names)
    ):
        return None
    place = names.index(_LENGTH)
    length = headers[place][1]
    at = data[:end].lower().find(_LENGTH_LINE)
    at = data.find(length, at + len(_LENGTH_LINE), end) if at > 0 else -1
    if at < 0 or length != b"%d" % size or data[at + len(length) : at + len(length) + 1] != b"\r":
        return None
    kept = {key: scope[key] for key in _KEPT}
    kept["asgi"] = kept["asgi"].copy()
    return KnownHead(data[:at], data[at + len(length) : end], kept, headers.copy(), place)
