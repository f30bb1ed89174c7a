"""The way to a host by its name: of several addresses the first that answers (RFC 8305, in small).

Rules: an address that does not answer costs a moment, never the time that the whole takes. Whatever
was tried besides is closed. No name is resolved twice at once for one connection, and none is kept,
but for the end of the process, when nobody resolves any more.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any, TypeAlias, TypeVar

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
