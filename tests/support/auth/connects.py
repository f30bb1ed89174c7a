"""Records the addresses that this process connects to, and replaces DNS with a table.

Rules: sockets are real, and what is watched is the interpreter's own report of each connect.
"""

import ipaddress
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

_recordings: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _recordings and isinstance(arguments[1], tuple):
        address = str(arguments[1][0])
        for seen in _recordings:
            seen.append(address)
        # A check that is missing must fail its test, and still send nothing to anybody.
        if address != "::1" and not address.startswith("127."):
            raise OSError(f"{address} is not for tests")


# A hook is never taken out again, so there is one, which is idle unless somebody watches.
sys.addaudithook(_hook)


@contextmanager
def connects() -> Generator[list[str]]:
    """The addresses that are connected to inside."""
    seen: list[str] = []
    _recordings.append(seen)
    try:
        yield seen
    finally:
        _recordings.remove(seen)


Answers = Callable[[str], list[str]]


def dns(monkeypatch: pytest.MonkeyPatch, answers: Answers) -> list[str]:
    """Answer look-ups: numbers as the system reads them, `0x7f.1` too, names as a test says.

    Gives the names that were asked for.
    """
    asked: list[str] = []
    real = socket.getaddrinfo

    def looked_up(
        host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        text = host.decode() if isinstance(host, bytes) else str(host)
        try:
            return real(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        except OSError:
            asked.append(text)
        found = answers(text)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [_info(address, port) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return asked


def _info(address: str, port: int) -> tuple[Any, ...]:
    plain = address.partition("%")[0]
    if ipaddress.ip_address(plain).version == 4:
        return socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)
    return socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, port, 0, 0)
