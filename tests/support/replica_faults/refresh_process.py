"""A replica whose tool calls another server with a login that all replicas share.

    python refresh_process.py STORE URL

Prints its URL. STORE is a `redis://` URL with the stored login of the server at URL.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from colonnade import Login, Server, connect
from colonnade.store.redis import RedisStore

KEY = b"l" * 32


def shared_login(store: RedisStore, **options: Any) -> Login:
    """A login whose tokens are in the store, encrypted."""
    return Login(store=store, keys=[KEY], browser=False, **options)


def refuse(page: str) -> None:
    raise RuntimeError("a user was asked to log in")


def make_server(store_url: str, upstream: str) -> Server:
    store = RedisStore(store_url)
    clients: list[Any] = []

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None]:
        auth = shared_login(store, on_show=refuse)
        async with connect(upstream, auth=auth) as client:
            clients.append(client)
            yield
        await store.close()

    server = Server("front", store=store, keys=[KEY], lifespan=lifespan)

    @server.tool
    async def whoami() -> str:
        return (await clients[0].call_tool("whoami", {})).text

    return server


if __name__ == "__main__":
    make_server(sys.argv[1], sys.argv[2]).run("http", port=0)
