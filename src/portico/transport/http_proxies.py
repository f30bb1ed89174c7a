"""Which proxy leads to a server, as the environment says, and how to pass through it.

Rules: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in small letters first, as other
programs read them. This machine itself is never asked for through a proxy. A password in a proxy's
address goes to that proxy alone, and into no error.
"""

import asyncio
import base64
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TypeVar, cast
from urllib.parse import unquote, urlsplit

from portico.errors import LocalProtocolError

# What a proxy says before it lets us through.
MAX_REPLY_BYTES = 8 * 1024
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


P = TypeVar("P", bound=asyncio.Protocol)


class Proxy:
    """A proxy: where it is, and what it wants to be told."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise LocalProtocolError("only proxies like http://host:port are known here")
        self.host: str = parts.hostname
        self.port: int = parts.port or 80
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
    ) -> P:
        """A connection through it. Raises `OSError` where it does not let us."""
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        if scheme == "http":
            _, protocol = await loop.create_connection(made, self.host, self.port)
            return protocol
        transport, gate = await loop.create_connection(_Gate, self.host, self.port)
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {shown} HTTP/1.1", f"host: {shown}"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        try:
            transport.write("\r\n".join(lines).encode() + b"\r\n\r\n")
            await gate.passed
            protocol = made()
            through = await loop.start_tls(transport, protocol, context(), server_hostname=host)
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
        self._said += data
        if self.passed.done():
            return
        if b"\r\n\r\n" in self._said:
            status = self._said.split(b"\r\n", 1)[0].split(b" ")
            if len(status) > 1 and status[1][:1] == b"2":
                self.passed.set_result(None)
            else:
                word = status[1].decode("latin-1") if len(status) > 1 else "nothing"
                self.passed.set_exception(OSError(f"the proxy answered {word[:20]}"))
        elif len(self._said) > MAX_REPLY_BYTES:
            self.passed.set_exception(OSError("the proxy does not speak HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.passed.done():
            self.passed.set_exception(OSError("the proxy closed the connection"))


def proxy_for(
    scheme: str, host: str, port: int, environ: Mapping[str, str] | None = None
) -> Proxy | None:
    """The proxy for a server, None where it is reached directly."""
    environ = os.environ if environ is None else environ
    if host in LOCAL or host.startswith("127."):
        return None

    def named(name: str) -> str:
        return environ.get(name.lower()) or environ.get(name) or ""

    url = named(f"{scheme.upper()}_PROXY") or named("ALL_PROXY")
    if not url or _excepted(host, port, named("NO_PROXY")):
        return None
    return Proxy(url)


def _excepted(host: str, port: int, listed: str) -> bool:
    for entry in listed.split(","):
        name = entry.strip().lower().lstrip(".")
        if name == "*":
            return True
        bare, colon, number = name.rpartition(":")
        if colon and number.isdecimal() and "]" not in number:
            if int(number) != port:
                continue
            name = bare
        if name and (host == name or host.endswith(f".{name}")):
            return True
    return False
