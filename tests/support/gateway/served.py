"""A gateway or a server on a free port of the loopback interface, for tests with real sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from colonnade import Gateway, Server
from colonnade.ports import Caller
from colonnade.protocol.http.security import Headers
from colonnade.transport.http_server.runner import HttpRunner


@asynccontextmanager
async def served(service: Gateway | Server, **options: Any) -> AsyncGenerator[str]:
    """The URL of a service that is served as long as this is entered."""
    site = HttpRunner(service.asgi(**options), port=0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}/mcp"
    finally:
        await site.stop(0.0)


async def by_header(headers: Headers) -> Caller:
    """A verifier that takes the caller from a header."""
    return Caller(headers.get(b"x-user", b"").decode())
