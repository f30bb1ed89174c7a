"""The load over HTTP: raw sockets, bytes made beforehand, every answer checked.

    with Load(url, ask, connections=32) as load:
        rate = load.round(0.5)      # calls a second

One request at a time on each connection. What an answer must be is read out of the first one, which
is checked as JSON; the others are compared with it as bytes, and read again where they differ. This
is the only load, also where `wrk` is installed: every row is checked and counted alike. What it can do
itself is a row, `ceiling`, and what each call takes of its core is in every table.

Rules: nothing is counted that was not checked; imports nothing of ours.
"""

import contextlib
import gc
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle
from types import TracebackType
from urllib.parse import urlsplit

from benchmarks.wire import (
    FIRST_ID,
    INITIALIZE,
    MODERN,
    SESSIONS,
    Answer,
    Ask,
    Wrong,
    body,
    read_answer,
    verify,
)

# A server that says nothing for so long is broken, whatever the machine is doing.
PATIENCE_S = 60.0
# What is taken from a socket at once.
RECEIVE = 1 << 20
# No head of an answer is longer.
HEAD = 2000
# The C library learns from the first large block that it gets back how much it may keep. Without, it
# gives the memory of each large answer back to the system, and the load is slower than the servers.
KEPT = 16 << 20


class Line:
    """One connection, and the request that is asked on it."""

    __slots__ = (
        "address",
        "after",
        "ask",
        "before",
        "kept",
        "known",
        "number",
        "recv",
        "send",
        "sock",
    )

    def __init__(self, address: tuple[str, int], ask: Ask, before: bytes, after: bytes) -> None:
        self.sock = socket.socket()
        self.address = address
        self.open()
        self.ask, self.before, self.after = ask, before, after
        self.number = 0
        self.kept = bytearray()
        # What follows the head of a right answer, before and after the id.
        self.known: tuple[bytes, bytes] | None = None

    def open(self) -> None:
        """Connect, once more where the server has closed what was idle."""
        self.sock.close()
        self.sock = socket.create_connection(self.address, timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send, self.recv = self.sock.send, self.sock.recv
        self.sock.setblocking(False)

    def begin(self, number: int) -> None:
        """Send the request under this id."""
        self.number = number
        data = self.before + b"%d" % number + self.after
        sent = self.send(data)
        if sent < len(data):
            # Only bodies of many KiB; the server reads them while we wait.
            self.sock.settimeout(PATIENCE_S)
            self.sock.sendall(data[sent:])
            self.sock.setblocking(False)

    def takes(self, data: bytes) -> bool:
        """Whether the answer is whole with this; raises `Wrong` where it is not right."""
        kept = self.kept
        if not data:
            raise Wrong(f"{self.ask.method}: the server closed the connection")
        known = self.known
        if known is not None:
            if kept:
                kept += data
            whole = kept or data
            start, end = known
            id = b"%d" % self.number
            # Where the answer begins, past its head. Nothing is put together for a look at it: of
            # a large one that comes in pieces, that would cost more than the server takes.
            at = len(whole) - len(start) - len(id) - len(end)
            if at < 0:
                if not kept:
                    kept += data
                return False
            if (
                whole.endswith(end)
                and whole.startswith(start, at)
                and whole.startswith(id, at + len(start))
                and whole.startswith(b"HTTP/1.1 200")
            ):
                if at < HEAD:
                    kept.clear()
                    return True
            elif not kept:
                kept += data
        else:
            kept += data
        return self._read()

    def _read(self) -> bool:
        answer = read_answer(self.kept)
        if answer is None:
            return False
        if answer.status != 200:
            raise Wrong(f"{self.ask.method}: {answer.status} {answer.body[:300]!r}")
        if answer.size != len(self.kept):
            raise Wrong(f"{self.ask.method}: {len(self.kept) - answer.size} bytes too many")
        verify(self.ask, self.number, answer.frames)
        after_head = bytes(self.kept).split(b"\r\n\r\n", 1)[1]
        parts = after_head.split(b"%d" % self.number)
        self.known = (parts[0], parts[1]) if len(parts) == 2 else None
        self.kept.clear()
        return True


class Load:
    """Connections to one server, each asking the same thing."""

    def __init__(
        self,
        url: str,
        ask: Ask,
        *,
        era: str = MODERN,
        connections: int = 32,
        session: bool = True,
    ) -> None:
        self._turn_to(url)
        self.ids: Iterator[int] = count(FIRST_ID)
        self.lines: list[Line] = []
        bytes(KEPT)
        # Answered in the last round, with those that came after its end.
        self.calls = 0
        try:
            self._open_lines(ask, era, connections, session=session)
            self._epoll = select.epoll()
        except BaseException:
            self.close()
            raise
        for line in self.lines:
            self._epoll.register(line.sock, select.EPOLLIN)
        self._table = {line.sock.fileno(): line for line in self.lines}

    def _turn_to(self, url: str) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.path = parts.path
        self.host = parts.netloc

    def _open_lines(self, ask: Ask, era: str, connections: int, *, session: bool) -> None:
        for _ in range(connections):
            opened = self.open_session() if era == SESSIONS and session else None
            before, after = self.request(ask, era, opened)
            self.lines.append(Line(self.address, ask, before, after))

    def __enter__(self) -> "Load":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        for line in self.lines:
            line.sock.close()
        if hasattr(self, "_epoll"):
            self._epoll.close()

    # ------------------------------------------------------------ requests

    def request(self, ask: Ask, era: str, session: str | None) -> tuple[bytes, bytes]:
        """A whole request, before and after its id."""
        before, after = body(ask, era)
        length = len(before) + len(b"%d" % FIRST_ID) + len(after)
        more = f"mcp-protocol-version: {era}\r\n"
        if era == MODERN:
            more += f"mcp-method: {ask.method}\r\n"
            more += f"mcp-name: {ask.name}\r\n" if ask.name else ""
        if session:
            more += f"mcp-session-id: {session}\r\n"
        return self._post(more, length) + before, after

    def _post(self, more: str, length: int) -> bytes:
        return (
            f"POST {self.path} HTTP/1.1\r\nhost: {self.host}\r\n"
            "content-type: application/json\r\naccept: application/json, text/event-stream\r\n"
            f"{more}content-length: {length}\r\n\r\n"
        ).encode()

    def open_session(self) -> str:
        """Open a session, as a client does; its id."""
        ask = Ask("initialize", INITIALIZE, lambda result: None)
        before, after = body(ask, SESSIONS)
        data = before + b"%d" % FIRST_ID + after
        opened = post(self.address, self._post("", len(data)) + data)
        session = opened.headers.get("mcp-session-id", "")
        if opened.status != 200 or not session:
            raise Wrong(f"initialize: {opened.status} {opened.body[:300]!r}")
        told = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        more = f"mcp-protocol-version: {SESSIONS}\r\nmcp-session-id: {session}\r\n"
        answer = post(self.address, self._post(more, len(told)) + told)
        if answer.status != 202:
            raise Wrong(f"initialized: {answer.status} {answer.body[:300]!r}")
        return session

    # ------------------------------------------------------------ rounds

    def round(self, seconds: float, least: int = 0) -> float:
        """Ask for so long; how many answers came in a second.

        As many as there are connections at least, or as many as are wanted, however slow it is.
        """
        least = max(least, len(self.lines))
        poll, table, ids = self._epoll.poll, self._table, self.ids
        done = 0
        for fd, _ in poll(0.0):
            # Nothing was asked, so this is the end of a connection that was idle for long.
            line = table.pop(fd)
            line.open()
            table[line.sock.fileno()] = line
            self._epoll.register(line.sock, select.EPOLLIN)
        gc.disable()
        try:
            begun = time.perf_counter()
            end = begun + seconds
            for line in self.lines:
                line.begin(next(ids))
            now = begun
            while now < end or done < least:
                ready = poll(PATIENCE_S)
                if not ready:
                    raise Wrong(f"no answer within {PATIENCE_S:.0f} s")
                for fd, _ in ready:
                    line = table[fd]
                    if line.takes(line.recv(RECEIVE)):
                        done += 1
                        line.begin(next(ids))
                now = time.perf_counter()
            rate = done / (now - begun)
            self._drain(poll)
            self.calls = done + len(self.lines)
        finally:
            gc.enable()
        return rate

    def _drain(self, poll: Callable[[float], list[tuple[int, int]]]) -> None:
        """Wait for what is still asked, so that the next round finds the server idle."""
        waiting = set(self._table)
        while waiting:
            ready = poll(PATIENCE_S)
            if not ready:
                raise Wrong(f"no answer within {PATIENCE_S:.0f} s")
            for fd, _ in ready:
                line = self._table[fd]
                if line.takes(line.recv(RECEIVE)):
                    waiting.discard(fd)


class RoundRobinLoad(Load):
    """Connections to several replicas; each session is used at all of them at once, as behind a
    balancer without stickiness."""

    def __init__(
        self, urls: Sequence[str], ask: Ask, *, connections: int, connections_per_session: int
    ) -> None:
        self._urls = urls
        self._per_session = connections_per_session
        super().__init__(urls[0], ask, era=SESSIONS, connections=connections)

    def _open_lines(self, ask: Ask, era: str, connections: int, *, session: bool) -> None:
        urls = cycle(self._urls)
        for _ in range(connections // self._per_session):
            self._turn_to(next(urls))
            opened = self.open_session()
            for _ in range(self._per_session):
                self._turn_to(next(urls))
                before, after = self.request(ask, era, opened)
                self.lines.append(Line(self.address, ask, before, after))


def post(address: tuple[str, int], data: bytes) -> Answer:
    """One request on a connection of its own, and its answer."""
    kept = bytearray()
    with contextlib.closing(socket.create_connection(address, timeout=PATIENCE_S)) as sock:
        sock.sendall(data)
        while (answer := read_answer(kept)) is None:
            piece = sock.recv(RECEIVE)
            if not piece:
                raise Wrong(f"the server closed the connection after {bytes(kept)!r}")
            kept += piece
    return answer
