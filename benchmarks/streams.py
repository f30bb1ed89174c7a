"""Thousands of `subscriptions/listen` streams, held open and listened to at once.

Rules: raw sockets; imports nothing of ours.
"""

import resource
import select
import socket
import time
from urllib.parse import urlsplit

from benchmarks.load_http import PATIENCE_S
from benchmarks.wire import MODERN, Ask, Wrong, body

# Opened at once; more than fit into the queue of a server that accepts wait for seconds.
AT_ONCE = 200
# For everything else that a process has open.
SPARE = 500

LISTEN = Ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, lambda _: None)
CHANGED = b"notifications/tools/list_changed"


def room() -> int:
    """How many sockets this process and those that it starts may have, once it is allowed all."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard - SPARE


class Streams:
    """So many streams of one server."""

    def __init__(self, url: str, count: int) -> None:
        parts = urlsplit(url)
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        before, after = body(LISTEN, MODERN)
        self._sockets: dict[int, socket.socket] = {}
        self._epoll = select.epoll()
        for first in range(0, count, AT_ONCE):
            new: dict[int, bytes] = {}
            for nth in range(first, min(count, first + AT_ONCE)):
                data = before + b"%d" % (10_000_000 + nth) + after
                head = (
                    f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\n"
                    "content-type: application/json\r\n"
                    "accept: application/json, text/event-stream\r\n"
                    f"mcp-protocol-version: {MODERN}\r\nmcp-method: {LISTEN.method}\r\n"
                    f"content-length: {len(data)}\r\n\r\n"
                ).encode()
                sock = socket.create_connection(address, timeout=PATIENCE_S)
                sock.sendall(head + data)
                self._sockets[sock.fileno()] = sock
                self._epoll.register(sock, select.EPOLLIN)
                new[sock.fileno()] = b""
            self._acknowledged(new)

    def _acknowledged(self, new: dict[int, bytes]) -> None:
        """Wait until each of them has begun."""
        while new:
            ready = self._epoll.poll(PATIENCE_S)
            if not ready:
                raise Wrong(f"{len(new)} streams did not begin within {PATIENCE_S:.0f} s")
            for fd, _ in ready:
                said = new.get(fd, b"") + self._sockets[fd].recv(65536)
                if fd not in new:
                    continue
                new[fd] = said
                if b"\r\n\r\n" in said and not said.startswith(b"HTTP/1.1 200"):
                    raise Wrong(f"a stream was refused: {said[:300]!r}")
                if b"notifications/subscriptions/acknowledged" in said:
                    del new[fd]

    def all_told(self, begun: float) -> float:
        """How long after that time the last of them was told that the tools have changed."""
        waiting = set(self._sockets)
        while waiting:
            ready = self._epoll.poll(PATIENCE_S)
            if not ready:
                raise Wrong(f"{len(waiting)} streams were told nothing in {PATIENCE_S:.0f} s")
            for fd, _ in ready:
                said = self._sockets[fd].recv(65536)
                if not said:
                    raise Wrong("a stream was ended by the server")
                if CHANGED in said:
                    waiting.discard(fd)
        return time.perf_counter() - begun

    def close(self) -> None:
        """Leave them all."""
        self._epoll.close()
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()
