"""A replica, as a user writes it: the server under test on a store, public names, every check on.

    python replica_server.py memory | redis://…

Rules: imports nothing private.
"""

import sys

from colonnade import Server
from colonnade.store.memory import MemoryStore


def make_server(store: str) -> Server:
    """The server on this store."""
    if store == "memory":
        server = Server("bench", version="1.0", store=MemoryStore())
    else:
        from colonnade.store.redis import RedisStore

        server = Server("bench", version="1.0", store=RedisStore(store))

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return server


if __name__ == "__main__":
    make_server(sys.argv[1]).run("http", port=0)
