"""A port to serve on: bound, or a sentence that says why it cannot be.

Rules: one address, never a guess at another one.
"""

import errno
import socket
import sys

from colonnade.errors import LocalProtocolError

MAX_PORT = 65535


class AddressError(LocalProtocolError):
    """This address cannot be had: there is none, it is not ours, or it is taken."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that is bound, but does not listen yet. Raises `AddressError`."""
    if not isinstance(port, int) or not 0 <= port <= MAX_PORT:  # pyright: ignore[reportUnnecessaryIsInstance]
        words = f"{port!r} is no port; there are 1 to {MAX_PORT}, and 0 for any free one"
        raise AddressError(words)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a host name"
        raise AddressError(f"{host!r} is no address to serve on: {why}") from None
    try:
        if sys.platform != "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise AddressError(_why(error, host, port)) from None
    return bound


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; choose another port, or 0 for any free one"
    if error.errno == errno.EACCES:
        return f"port {port} on {host} is not open to this user; choose another port, above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host!r} is no address of this machine; serve one that is, such as 127.0.0.1"
    return f"{host}:{port} cannot be served: {error.strerror}; choose another port or address"
