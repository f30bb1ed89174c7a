"""How the HTTP client connects: URLs and requests, Happy Eyeballs (RFC 8305), proxies and CONNECT.

Rules: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, lowercase first, as other programs
read them. Loopback addresses are never reached through a proxy. A password in a proxy's URL is sent
to that proxy alone, and is in no error.
"""

import asyncio
import base64
import contextlib
import ipaddress
import os
import re
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import SplitResult, unquote, urlsplit

from colonnade.errors import InvalidArgument

# RFC 8305, 5 and 8: when the next address is tried beside one that has not answered.
NEXT_S = 0.25
# More addresses of one host are not tried.
MAX_ADDRESSES = 16
# Hosts whose last address is cached; a client has one or two.
MAX_REMEMBERED = 64

P = TypeVar("P", bound=asyncio.BaseProtocol)
# Family, type, protocol and socket address.
Address: TypeAlias = tuple[int, int, int, Any]


class HappyEyeballs:
    """Connects to the first address of a host that answers, for one pool."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Address] = {}

    async def connect(
        self,
        make: Callable[[], P],
        host: str,
        port: int,
        context: ssl.SSLContext | None = None,
        named: str | None = None,
    ) -> tuple[asyncio.BaseTransport, P]:
        """Connect, with TLS if there is a context; `named` is the name in the certificate. Raises
        `OSError`."""
        loop = asyncio.get_running_loop()
        name = (named or host) if context is not None else None
        if _is_address(host):
            return await loop.create_connection(make, host, port, ssl=context, server_hostname=name)
        sock = await self._reach(host, port)
        try:
            return await loop.create_connection(make, sock=sock, ssl=context, server_hostname=name)
        except BaseException:
            sock.close()
            raise

    async def _reach(self, host: str, port: int) -> socket.socket:
        sock, address = await _race(await self._addresses(host, port))
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[host, port] = address
        return sock

    async def _addresses(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except RuntimeError:
            # At interpreter shutdown no thread resolves names any more; a session is still deleted.
            last = self._last.get((host, port))
            if last is None:
                raise OSError("the process is about to end") from None
            return [last]
        return interleaved([(family, kind, proto, to) for family, kind, proto, _, to in found])


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """In the order of the system, with alternating families: one of them may be unreachable."""
    families: dict[int, deque[Address]] = {}
    for address in addresses:
        families.setdefault(address[0], deque()).append(address)
    found: list[Address] = []
    while families and len(found) < MAX_ADDRESSES:
        for family, waiting in list(families.items()):
            found.append(waiting.popleft())
            if not waiting:
                del families[family]
    return found


async def _race(addresses: list[Address]) -> tuple[socket.socket, Address]:
    """Connect to the first address that answers; the next one is tried after `NEXT_S`."""
    if len(addresses) == 1:
        return await _connect_socket(addresses[0])
    race = _Race()
    waiting = deque(addresses)
    try:
        while True:
            if waiting:
                race.enter(waiting.popleft())
            winner = await race.winner(NEXT_S if waiting else None)
            if winner is not None:
                return winner
            if not waiting and not race.running:
                raise race.error
    finally:
        race.end()


class _Race:
    """Concurrent connection attempts."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[tuple[socket.socket, Address]]] = set()
        self._errors: list[OSError] = []
        self._over = False

    def enter(self, address: Address) -> None:
        """Start an attempt."""
        task = asyncio.get_running_loop().create_task(_connect_socket(address))
        task.add_done_callback(self._late)
        self.running.add(task)

    async def winner(self, seconds: float | None) -> tuple[socket.socket, Address] | None:
        """The first connection within a time; None then, or as soon as an attempt has failed."""
        done, self.running = await asyncio.wait(
            self.running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        winners: list[tuple[socket.socket, Address]] = []
        for task in done:
            error = task.exception()
            if error is None:
                winners.append(task.result())
            elif isinstance(error, OSError):
                self._errors.append(error)
            else:
                raise error
        for sock, _ in winners[1:]:
            sock.close()
        return winners[0] if winners else None

    @property
    def error(self) -> OSError:
        """The error if all attempts have failed."""
        return self._errors[-1] if self._errors else OSError("no address")

    def end(self) -> None:
        """Cancel the other attempts."""
        self._over = True
        for task in self.running:
            if task.done():
                self._late(task)
            else:
                task.cancel()

    def _late(self, task: "asyncio.Task[tuple[socket.socket, Address]]") -> None:
        if self._over and not task.cancelled() and task.exception() is None:
            task.result()[0].close()


async def _connect_socket(address: Address) -> tuple[socket.socket, Address]:
    family, kind, proto, where = address
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock, address


def _is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ip_address(host.partition("%")[0]))
    return False


# The response of a proxy to CONNECT.
MAX_REPLY_BYTES = 8 * 1024
# Of its status, for the message of an error: three digits, if it speaks HTTP.
SHOWN_CHARACTERS = 20

Q = TypeVar("Q", bound=asyncio.Protocol)


class Proxy:
    """An HTTP proxy and its credentials. `named` is the environment variable that has its URL."""

    def __init__(self, url: str, named: str = "the proxy") -> None:
        words = f"{named} is not the URL of an HTTP proxy; write http://host:port"
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise InvalidArgument(words) from None
        if parts.scheme != "http" or not host or port == 0:
            raise InvalidArgument(words)
        self.host: str = host
        self.port: int = port or 80
        self.headers: list[tuple[str, str]] = []
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            word = base64.b64encode(pair.encode()).decode()
            self.headers.append(("proxy-authorization", f"Basic {word}"))

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"

    async def connect(
        self,
        origin: tuple[str, str, int],
        make: Callable[[], Q],
        context: Callable[[], ssl.SSLContext],
        routes: HappyEyeballs,
        named: str,
    ) -> Q:
        """Connect through it; `named` is the name in the certificate. Raises `OSError` if it
        refuses."""
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        if scheme == "http":
            _, protocol = await routes.connect(make, self.host, self.port)
            return protocol
        reached, handshake = await routes.connect(_TunnelHandshake, self.host, self.port)
        transport = cast("asyncio.Transport", reached)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {shown} HTTP/1.1", f"host: {shown}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        try:
            transport.write("\r\n".join(lines).encode() + b"\r\n\r\n")
            await handshake.established
            protocol = make()
            through = await loop.start_tls(transport, protocol, context(), server_hostname=named)
        except BaseException:
            transport.abort()
            raise
        protocol.connection_made(cast("asyncio.BaseTransport", through))
        return protocol


class _TunnelHandshake(asyncio.Protocol):
    """Waits for the response to CONNECT."""

    def __init__(self) -> None:
        self.established: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._received = b""

    def data_received(self, data: bytes) -> None:
        if self.established.done():
            return
        self._received += data
        if b"\r\n\r\n" in self._received:
            status = self._received.split(b"\r\n", 1)[0].split(b" ")
            word = status[1].decode("latin-1") if len(status) > 1 else "nothing"
            if word.startswith("2") and self._received.startswith(b"HTTP/"):
                self.established.set_result(None)
            elif word == "407":
                self._refuse("the proxy requires other credentials (407)")
            else:
                self._refuse(f"the proxy answered {word[:SHOWN_CHARACTERS]!a}")
        elif len(self._received) > MAX_REPLY_BYTES:
            self._refuse("the proxy does not speak HTTP")

    def connection_lost(self, exc: Exception | None) -> None:
        self._refuse("the proxy closed the connection")

    def _refuse(self, why: str) -> None:
        if not self.established.done():
            self.established.set_exception(OSError(why))


def proxy_for(
    scheme: str, host: str, port: int, environ: Mapping[str, str] | None = None
) -> Proxy | None:
    """The proxy for a server; None if it is reached directly."""
    environ = os.environ if environ is None else environ
    address = _address(host)
    if host == "localhost" or host.endswith(".localhost") or (address and address.is_loopback):
        return None
    for name in (f"{scheme}_proxy", "all_proxy"):
        for spelling in (name, name.upper()):
            url = environ.get(spelling)
            # In a CGI process this is the header `Proxy:` of a request (httpoxy).
            forged = spelling == "HTTP_PROXY" and "REQUEST_METHOD" in environ
            if url and not forged:
                excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
                direct = _is_excluded(host, address, port, excluded)
                return None if direct else Proxy(url, spelling)
    return None


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_excluded(host: str, address: IpAddress | None, port: int, listed: str) -> bool:
    """Whether NO_PROXY has this host: its name, a parent domain, its network, or `*`."""
    for entry in re.split(r"[\s,]+", listed.lower()):
        name, number = _named(entry)
        if number and number != str(port):
            continue
        if name == "*":
            return True
        name = name.removeprefix("*").removeprefix(".").removesuffix(".")
        if name and (host.removesuffix(".") == name or host.endswith(f".{name}")):
            return True
        if address is not None and _covers(name, address):
            return True
    return False


def _named(entry: str) -> tuple[str, str]:
    """A host and its port, empty for any; an IPv6 address with a port is in brackets."""
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    if entry.count(":") == 1:
        name, _, number = entry.partition(":")
        return name, number
    return entry, ""


def _covers(name: str, address: IpAddress) -> bool:
    try:
        return address in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False


Origin = tuple[str, str, int]
PORTS: Final = {"http": 80, "https": 443}

# Header names and values (RFC 9110, 5.1 and 5.5), joined by separators that neither may contain, so
# that no value can inject another header.
_LINES = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+\x01[\t\x20-\x7e\x80-\xff]*\n)*")
# A second one of these would be read differently by a proxy (request smuggling).
_FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"}
)


class RequestTarget:
    """A parsed URL: its origin, its path and the proxy for it.

    `address` is an IP address that was resolved before, and the only one to connect to; its
    connections are not shared with requests that resolve the host themselves.
    """

    __slots__ = ("address", "authority", "host", "origin", "path", "proxy")

    def __init__(
        self, url: str, environ: Mapping[str, str] | None = None, address: str | None = None
    ) -> None:
        parts = _split(url)
        host = cast("str", parts.hostname)
        port = parts.port or PORTS[parts.scheme]
        self.host: str = host
        self.address: str = address or host
        # No host has a space in it.
        known_as = host if address is None else f"{host} at {address}"
        self.origin: Origin = (parts.scheme, known_as, port)
        shown = f"[{host}]" if ":" in host else host
        self.authority: str = shown if port == PORTS[parts.scheme] else f"{shown}:{port}"
        self.path: str = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.proxy: Proxy | None = proxy_for(parts.scheme, host, port, environ)
        if address is not None and parts.scheme == "http":
            self.proxy = None  # which would resolve the host itself


def _split(url: str) -> SplitResult:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgument("a URL has only visible ASCII characters; encode the others")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise InvalidArgument("this is not a URL: its host or its port is invalid") from None
    if parts.username is not None:
        raise InvalidArgument("a URL must not hold a password; send it in a header")
    if parts.scheme not in PORTS or not host or port == 0:
        raise InvalidArgument("a server's URL looks like https://example.com/mcp")
    return parts


class HeaderLines:
    """Headers as they are written. Raises `InvalidArgument` for those that would break the framing
    of a request."""

    __slots__ = ("text",)

    def __init__(self, headers: Iterable[tuple[str, str]], before: str = "") -> None:
        pairs = list(headers)
        text = "".join([f"{name}\x01{value}\n" for name, value in pairs])
        if not _LINES.fullmatch(text) or not _FRAMING.isdisjoint([n.lower() for n, _ in pairs]):
            raise InvalidArgument(
                "a header has invalid characters, or is one that the client writes itself "
                "(host, content-length, connection); leave it out",
                argument="headers",
            )
        self.text: str = before + text.replace("\x01", ": ").replace("\n", "\r\n")

    def with_more(self, headers: Iterable[tuple[str, str]]) -> "HeaderLines":
        """The same, and others after them."""
        return HeaderLines(headers, self.text)


def encode_request(
    method: str,
    target: RequestTarget,
    headers: HeaderLines | Iterable[tuple[str, str]],
    body: bytes,
) -> bytes:
    """The bytes of a request. Raises `InvalidArgument` for headers that would break its framing."""
    path = target.path
    lines = headers if isinstance(headers, HeaderLines) else HeaderLines(headers)
    if target.proxy is not None and target.origin[0] == "http":
        path = f"http://{target.authority}{path}"
        lines = lines.with_more(target.proxy.headers)
    text = lines.text
    length = f"content-length: {len(body)}\r\n" if body or method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: {target.authority}\r\n{text}{length}\r\n"
    return head.encode("latin-1") + body
