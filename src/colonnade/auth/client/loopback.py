"""A listener on this machine that waits for one browser to come back, and the browser itself.

Rules: on the loopback address alone. It answers nothing but the state that it waits for, and that
once: anybody on this machine, and any web page, can send a browser here. Its pages are fixed and
hold nothing of what came in; nothing of it is logged. Sizes and times of what comes in are bounded.
"""

import asyncio
import contextlib
import hmac
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from colonnade.errors import AuthError, LocalProtocolError, LoginRequired

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
# A code of some kilobytes is the longest that is met; a browser sends cookies beside it.
MAX_HEAD_BYTES = 64 * 1024
# Whoever connects has something to say.
HEAD_S = 10.0
# Browsers open some connections ahead; more are somebody else's.
MAX_CONNECTIONS = 32

_PAGE = (
    "<!doctype html><meta charset=utf-8><title>{title}</title>"
    "<p style='font-family:sans-serif'>{words}</p>"
)
_DONE = _PAGE.format(title="Logged in", words="You can close this window.")
_NOTHING = _PAGE.format(title="Nothing here", words="Nobody waits for this.")
_HEADERS = (
    "content-type: text/html; charset=utf-8\r\n"
    "cache-control: no-store\r\n"
    "content-security-policy: default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'none'\r\n"
    "referrer-policy: no-referrer\r\n"
    "x-content-type-options: nosniff\r\n"
    "connection: close\r\n"
)


class Loopback:
    """Waits for one answer of an authorization server."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._hosts: frozenset[str] = frozenset()
        self._path = PATH
        self._state = ""
        self._answer: asyncio.Future[str] | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self, again: str = "", *, insist: bool = False) -> str:
        """Begin to listen; the redirect URI. `again` is one to use if its port is free, with
        `insist` it must be. Raises `AuthError`."""
        parts = urlsplit(again)
        host, port = parts.hostname or HOST, parts.port or 0
        self._path = parts.path or (PATH if not again else "/")
        # The name is resolved by nobody: whatever it says, this is the address.
        address = "::1" if host == "::1" else HOST
        try:
            self._server = await asyncio.start_server(self._take, address, port)
        except OSError as error:
            if insist:
                raise AuthError(
                    f"port {port} of this machine is taken, and the redirect URI needs it"
                ) from error
            self._path, host = PATH, HOST
            self._server = await asyncio.start_server(self._take, HOST, 0)
        bound = self._server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self._hosts = frozenset({f"{shown}:{bound}", f"{HOST}:{bound}", f"localhost:{bound}"})
        if insist and parts.port is None:
            return again  # any port will do there (RFC 8252, 7.3)
        return f"http://{shown}:{bound}{self._path}"

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        return self._server.sockets[0].getsockname()[1]

    async def wait(self, state: str, timeout_s: float) -> str:
        """The query that the browser comes back with. Raises `LoginRequired`."""
        self._state = state
        self._answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answer
        except TimeoutError:
            words = f"nobody logged in within {timeout_s:g} s; try again"
            raise LoginRequired(words) from None

    async def close(self) -> None:
        """Listen no more."""
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
                async with asyncio.timeout(HEAD_S):
                    head = await _head(reader)
                    status, page = self._judge(head)
                    data = page.encode()
                    first = f"HTTP/1.1 {status}\r\ncontent-length: {len(data)}\r\n{_HEADERS}\r\n"
                    writer.write(first.encode() + data)
                    await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()

    def _judge(self, head: list[str]) -> tuple[str, str]:
        """What to answer to a request, and whether it is the one."""
        words = head[0].split(" ") if head else []
        if len(words) != 3 or words[0] != "GET":
            return "405 Method Not Allowed", _NOTHING
        names = [line.partition(":")[2].strip() for line in head[1:] if line[:5].lower() == "host:"]
        path, _, query = words[1].partition("?")
        # A name that leads here is no name of ours: a page could have sent a browser by it.
        if len(names) != 1 or names[0].lower() not in self._hosts or path != self._path:
            return "404 Not Found", _NOTHING
        answer = self._answer
        if answer is None or answer.done() or not self._is_ours(query):
            return "400 Bad Request", _NOTHING
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


async def _head(reader: asyncio.StreamReader) -> list[str]:
    data = b""
    while b"\r\n\r\n" not in data:
        more = await reader.read(MAX_HEAD_BYTES)
        if not more or len(data) + len(more) > MAX_HEAD_BYTES:
            return []
        data += more
    return data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")


async def open_browser(url: str) -> bool:
    """Open a page in the person's browser, without a shell; whether there is one."""
    import webbrowser

    if not url.startswith(("https://", "http://")):  # CL-09, which python -O must not take away
        raise LocalProtocolError("what was to be opened is no web page")
    try:
        return await asyncio.to_thread(webbrowser.open, url)
    except (OSError, webbrowser.Error):
        return False
