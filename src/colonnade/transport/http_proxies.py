"""Which proxy leads to a server, as the environment says, and how to pass through it.

Rules: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in small letters first, as other
programs read them. This machine itself is never asked for through a proxy. A password in a proxy's
address goes to that proxy alone, and into no error.
"""

import asyncio
import base64
import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Mapping
from typing import TypeVar, cast
from urllib.parse import unquote, urlsplit

from colonnade.errors import LocalProtocolError
from colonnade.transport.http_routes import Routes

# What a proxy says before it lets us through.
MAX_REPLY_BYTES = 8 * 1024
# Of what it says, for the words of an error: three digits, if it speaks HTTP.
SHOWN_CHARACTERS = 20

P = TypeVar("P", bound=asyncio.Protocol)


class Proxy:
    """A proxy: where it is, and what it wants to be told. `named` is the variable that says so."""

    def __init__(self, url: str, named: str = "the proxy") -> None:
        words = f"{named} is no proxy that is known here; they look like http://host:port"
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise LocalProtocolError(words) from None
        if parts.scheme != "http" or not host or port == 0:
            raise LocalProtocolError(words)
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
        made: Callable[[], P],
        context: Callable[[], ssl.SSLContext],
        routes: Routes,
        named: str,
    ) -> P:
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


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _excepted(host: str, address: Address | None, port: int, listed: str) -> bool:
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


def _covers(name: str, address: Address) -> bool:
    try:
        return address in ipaddress.ip_network(name, strict=False)
    except ValueError:
        return False
