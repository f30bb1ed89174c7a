"""Loopback redirect listener (RFC 8252, 7.3): receives the redirect of the browser after a login.

Rules: bound to the loopback address only. It accepts the expected `state`, once: any program on
this machine, and any web page, can send requests here. Its pages are static and contain nothing of
the request; no request is logged. Sizes and times are limited.
"""

import asyncio
import contextlib
import hmac
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from colonnade.auth.client.steps import LoginTimedOut
from colonnade.errors import AuthError, InvalidArgument

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
# The longest codes have some kilobytes; a browser sends cookies beside them.
MAX_HEAD_BYTES = 64 * 1024
HEADER_TIMEOUT_S = 10.0
# Browsers open a few connections in advance.
MAX_CONNECTIONS = 32

_PAGE = (
    "<!doctype html><meta charset=utf-8><title>{title}</title>"
    "<p style='font-family:sans-serif'>{words}</p>"
)
_DONE = _PAGE.format(title="Logged in", words="You can close this window.")
_NOT_FOUND = _PAGE.format(title="Not found", words="No login is waiting for this request.")
_HEADERS = (
    "content-type: text/html; charset=utf-8\r\n"
    "cache-control: no-store\r\n"
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'\r\n"
    "referrer-policy: no-referrer\r\n"
    "x-content-type-options: nosniff\r\n"
    "connection: close\r\n"
)


class RedirectListener:
    """Waits for one authorization response."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._hosts: frozenset[str] = frozenset()
        self._path = PATH
        self._state = ""
        self._answer: asyncio.Future[str] | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self, preferred: str = "", *, required: bool = False) -> str:
        """Start to listen; the redirect URI. `preferred` is used if its port is free; if it is
        `required`, another port is an error. Raises `AuthError`."""
        parts = urlsplit(preferred)
        host, port = parts.hostname or HOST, parts.port or 0
        self._path = parts.path or (PATH if not preferred else "/")
        # The host name is not resolved: the listener is always on the loopback address.
        address = "::1" if host == "::1" else HOST
        try:
            self._server = await asyncio.start_server(self._take, address, port)
        except OSError as error:
            if required:
                raise AuthError(f"port {port} is in use, and the redirect URI needs it") from error
            self._path, host = PATH, HOST
            self._server = await asyncio.start_server(self._take, HOST, 0)
        bound = self._server.sockets[0].getsockname()[1]
        displayed = f"[{host}]" if ":" in host else host
        self._hosts = frozenset({f"{displayed}:{bound}", f"{HOST}:{bound}", f"localhost:{bound}"})
        if required and parts.port is None:
            return preferred  # any port is allowed (RFC 8252, 7.3)
        return f"http://{displayed}:{bound}{self._path}"

    @property
    def port(self) -> int:
        """The port of the listener."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def wait(self, state: str, timeout_s: float) -> str:
        """The query of the redirect. Raises `LoginTimedOut` after the timeout."""
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            message = f"the login was not completed within {timeout_s:g} s; try again"
            raise LoginTimedOut(message) from None

    async def close(self) -> None:
        """Stop listening."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for writer in list(self._writers):
                writer.close()
            await server.wait_closed()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(HEADER_TIMEOUT_S):
                    head = await _read_head(reader)
                    status, page = self._judge(head)
                    data = page.encode()
                    first = f"HTTP/1.1 {status}\r\ncontent-length: {len(data)}\r\n{_HEADERS}\r\n"
                    writer.write(first.encode() + data)
                    await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()

    def _judge(self, head: list[str]) -> tuple[str, str]:
        """The status and page for a request; sets the result if it is the expected redirect."""
        request_line = head[0].split(" ") if head else []
        if len(request_line) != 3 or request_line[0] != "GET":
            return "405 Method Not Allowed", _NOT_FOUND
        names = [line.partition(":")[2].strip() for line in head[1:] if line[:5].lower() == "host:"]
        path, _, query = request_line[1].partition("?")
        # DNS rebinding: a web page may use a host name of its own that resolves to loopback.
        if len(names) != 1 or names[0].lower() not in self._hosts or path != self._path:
            return "404 Not Found", _NOT_FOUND
        answer = self._answer
        if answer is None or answer.done() or not self._is_ours(query):
            return "400 Bad Request", _NOT_FOUND
        answer.set_result(query)
        return "200 OK", _DONE

    def _is_ours(self, query: str) -> bool:
        try:
            states = [
                value for name, value in parse_qsl(query, max_num_fields=64) if name == "state"
            ]
        except ValueError:
            return False
        expected = self._state.encode()
        return len(states) == 1 and hmac.compare_digest(states[0].encode(), expected)


async def _read_head(reader: asyncio.StreamReader) -> list[str]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await reader.read(MAX_HEAD_BYTES)
        if not more or len(data) + len(more) > MAX_HEAD_BYTES:
            return []
        data += more
    return data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")


async def open_browser(url: str) -> bool:
    """Open a page in the user's browser, without a shell; whether that was possible."""
    import webbrowser

    if not url.startswith(("https://", "http://")):  # CL-09, which python -O must not take away
        raise InvalidArgument("only http and https URLs are opened in a browser")
    try:
        return await asyncio.to_thread(webbrowser.open, url)
    except (OSError, webbrowser.Error):
        return False
