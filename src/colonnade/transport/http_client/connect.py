"""Which proxy leads to a server, as the environment says, and how to pass through it.

Rules: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in small letters first, as other
programs read them. This machine itself is never asked for through a proxy. A password in a proxy's
address goes to that proxy alone, and into no error.
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

# RFC 8305, 5 and 8: when the next address is tried beside one that says nothing.
NEXT_S = 0.25
# Nobody has more that are worth a try.
MAX_ADDRESSES = 16
# Hosts whose last address is remembered; a client has one or two.
MAX_REMEMBERED = 64

P = TypeVar("P", bound=asyncio.BaseProtocol)
# Family, kind, protocol, and where.
Address: TypeAlias = tuple[int, int, int, Any]


class Routes:
    """Ways to hosts, for one pool of connections."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Address] = {}

    async def connect(
        self,
        made: Callable[[], P],
        host: str,
        port: int,
        context: ssl.SSLContext | None = None,
        named: str | None = None,
    ) -> tuple[asyncio.BaseTransport, P]:
        """A connection, with TLS where there is a context, to who is named. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        name = (named or host) if context is not None else None
        if _is_address(host):
            return await loop.create_connection(made, host, port, ssl=context, server_hostname=name)
        line = await self._reach(host, port)
        try:
            return await loop.create_connection(made, sock=line, ssl=context, server_hostname=name)
        except BaseException:
            line.close()
            raise

    async def _reach(self, host: str, port: int) -> socket.socket:
        line, address = await _first(await self._addresses(host, port))
        if len(self._last) >= MAX_REMEMBERED:
            self._last.clear()
        self._last[host, port] = address
        return line

    async def _addresses(self, host: str, port: int) -> list[Address]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except RuntimeError:
            # At the end of the process no thread resolves any more; a session is left all the same.
            last = self._last.get((host, port))
            if last is None:
                raise OSError("the process is about to end") from None
            return [last]
        return interleaved([(family, kind, proto, to) for family, kind, proto, _, to in found])


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """In the order of the system, with the families in turn: one of them may lead nowhere."""
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


async def _first(addresses: list[Address]) -> tuple[socket.socket, Address]:
    """The first of these that answers: each has a moment to itself, and then one more is tried."""
    if len(addresses) == 1:
        return await _line_to(addresses[0])
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
    """Addresses that are tried at the same time."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[tuple[socket.socket, Address]]] = set()
        self._errors: list[OSError] = []
        self._over = False

    def enter(self, address: Address) -> None:
        """One more."""
        task = asyncio.get_running_loop().create_task(_line_to(address))
        task.add_done_callback(self._late)
        self.running.add(task)

    async def winner(self, seconds: float | None) -> tuple[socket.socket, Address] | None:
        """Who has answered, if anybody has by then; nobody as soon as one has failed."""
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
        for line, _ in winners[1:]:
            line.close()
        return winners[0] if winners else None

    @property
    def error(self) -> OSError:
        """What to say where none has answered."""
        return self._errors[-1] if self._errors else OSError("no address")

    def end(self) -> None:
        """Whoever is still on the way is not needed."""
        self._over = True
        for task in self.running:
            if task.done():
                self._late(task)
            else:
                task.cancel()

    def _late(self, task: "asyncio.Task[tuple[socket.socket, Address]]") -> None:
        if self._over and not task.cancelled() and task.exception() is None:
            task.result()[0].close()


async def _line_to(address: Address) -> tuple[socket.socket, Address]:
    family, kind, proto, where = address
    line = socket.socket(family, kind, proto)
    try:
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, where)
    except BaseException:
        line.close()
        raise
    return line, address


def _is_address(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(ip_address(host.partition("%")[0]))
    return False


# What a proxy says before it lets us through.
MAX_REPLY_BYTES = 8 * 1024
# Of what it says, for the words of an error: three digits, if it speaks HTTP.
SHOWN_CHARACTERS = 20

Q = TypeVar("Q", bound=asyncio.Protocol)


class Proxy:
    """A proxy: where it is, and what it wants to be told. `named` is the variable that says so."""

    def __init__(self, url: str, named: str = "the proxy") -> None:
        words = f"{named} is no proxy that is known here; they look like http://host:port"
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
        made: Callable[[], Q],
        context: Callable[[], ssl.SSLContext],
        routes: Routes,
        named: str,
    ) -> Q:
        """A connection through it, TLS with who is named. Raises `OSError` where it says no."""
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        if scheme == "http":
            _, protocol = await routes.connect(made, self.host, self.port)
            return protocol
        reached, gate = await routes.connect(_Gate, self.host, self.port)
        transport = cast("asyncio.Transport", reached)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {shown} HTTP/1.1", f"host: {shown}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        try:
            transport.write("\r\n".join(lines).encode() + b"\r\n\r\n")
            await gate.passed
            protocol = made()
            through = await loop.start_tls(transport, protocol, context(), server_hostname=named)
        except BaseException:
            transport.abort()
            raise
        protocol.connection_made(cast("asyncio.BaseTransport", through))
        return protocol


class _Gate(asyncio.Protocol):
    """Waits for the proxy's word."""

    def __init__(self) -> None:
        self.passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._said = b""

    def data_received(self, data: bytes) -> None:
        if self.passed.done():
            return
        self._said += data
        if b"\r\n\r\n" in self._said:
            status = self._said.split(b"\r\n", 1)[0].split(b" ")
            word = status[1].decode("latin-1") if len(status) > 1 else "nothing"
            if word.startswith("2") and self._said.startswith(b"HTTP/"):
                self.passed.set_result(None)
            elif word == "407":
                self._refuse("the proxy wants another name or password (407)")
            else:
                self._refuse(f"the proxy answered {word[:SHOWN_CHARACTERS]!a}")
        elif len(self._said) > MAX_REPLY_BYTES:
            self._refuse("the proxy does not speak HTTP")

    def connection_lost(self, exc: Exception | None) -> None:
        self._refuse("the proxy closed the connection")

    def _refuse(self, why: str) -> None:
        if not self.passed.done():
            self.passed.set_exception(OSError(why))


def proxy_for(
    scheme: str, host: str, port: int, environ: Mapping[str, str] | None = None
) -> Proxy | None:
    """The proxy for a server, None where it is reached directly."""
    environ = os.environ if environ is None else environ
    address = _address(host)
    if host == "localhost" or host.endswith(".localhost") or (address and address.is_loopback):
        return None
    for name in (f"{scheme}_proxy", "all_proxy"):
        for spelling in (name, name.upper()):
            url = environ.get(spelling)
            # In a web server's child this one is a header that a stranger sent (`Proxy:`).
            forged = spelling == "HTTP_PROXY" and "REQUEST_METHOD" in environ
            if url and not forged:
                excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
                direct = _excepted(host, address, port, excepted)
                return None if direct else Proxy(url, spelling)
    return None


IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _excepted(host: str, address: IpAddress | None, port: int, listed: str) -> bool:
    """Whether a list names this host: itself, a domain above it, its network, or everything."""
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
    """A host and its port, empty for any; an IPv6 address with a port stands in brackets."""
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

# What headers may be (RFC 9110, 5.1 and 5.5), with separators that no part of one may have, so that
# none can forge another.
_LINES = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+\x01[\t\x20-\x7e\x80-\xff]*\n)*")
# A second one of these would make it another request to somebody in between.
_FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"}
)


class Target:
    """Where a request goes: an origin, and what is asked of it.

    `address` is where the host was found by whoever asks, and the only place to connect to;
    connections to it are shared with no request that would look for itself.
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
            self.proxy = None  # which would look for the host itself


def _split(url: str) -> SplitResult:
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgument("a URL has only visible ASCII characters; encode the others")
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise InvalidArgument("this is no URL: its host or its port cannot be read") from None
    if parts.username is not None:
        raise InvalidArgument("a URL must not hold a password; send it in a header")
    if parts.scheme not in PORTS or not host or port == 0:
        raise InvalidArgument("a server's URL looks like https://example.com/mcp")
    return parts


def written(method: str, target: Target, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    """A request as it is written. Raises `LocalProtocolError` for what would break its frame."""
    path, pairs = target.path, list(headers)
    if target.proxy is not None and target.origin[0] == "http":
        path = f"http://{target.authority}{path}"
        pairs += target.proxy.headers
    text = "".join([f"{name}\x01{value}\n" for name, value in pairs])
    if not _LINES.fullmatch(text) or not _FRAMING.isdisjoint([n.lower() for n, _ in pairs]):
        raise InvalidArgument(
            "a header has characters that none can carry, or is one that the client writes itself "
            "(host, content-length, connection); leave it out",
            argument="headers",
        )
    text = text.replace("\x01", ": ").replace("\n", "\r\n")
    length = f"content-length: {len(body)}\r\n" if body or method == "POST" else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: {target.authority}\r\n{text}{length}\r\n"
    return head.encode("latin-1") + body
