"""Replicas: a server that any number of processes serve, behind a round-robin balancer.

`STORE_URL` is the Redis or Valkey that they share, or the path of an SQLite file for processes of
one machine. `TRIP_KEYS` are keys of 32 bytes in hex (`openssl rand -hex 32`), separated by commas,
the newest first: that one encrypts, and all of them decrypt.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from colonnade import Context, Server
from colonnade.ports import Store
from colonnade.store.redis import RedisStore
from colonnade.store.sqlite import SqliteStore

PRICES = {"Oslo": 120, "Lisbon": 80, "Cairo": 150}


def open_store(url: str) -> Store:
    return RedisStore(url) if "://" in url else SqliteStore(url)


store = open_store(os.environ["STORE_URL"])
keys = [bytes.fromhex(key) for key in os.environ["TRIP_KEYS"].split(",")]


@asynccontextmanager
async def opened(server: Server) -> AsyncGenerator[None]:
    yield
    await store.close()


server = Server("trip", version="1.0", store=store, keys=keys, lifespan=opened)


@dataclass
class Traveller:
    name: str


@server.tool(read_only=True)
def price(city: str) -> int:
    """What a trip costs."""
    return PRICES[city]


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a trip for a traveller, whose name the user is asked for."""
    traveller = await ctx.elicit(f"Who travels to {city} for {PRICES[city]}?", Traveller)
    return f"{traveller.name} to {city}"


@server.tool(task=True)
async def brochure(city: str, ctx: Context) -> str:
    """Write a brochure, which goes on if the process that writes it is stopped."""
    for page in range(3):
        await ctx.progress(page + 1, 3, f"page {page + 1}")
    return f"{city} on three pages"


if __name__ == "__main__":
    server.run()
