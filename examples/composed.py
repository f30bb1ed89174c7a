"""A server of parts: dependencies, a lifespan, a layer around everything, another server inside.

Run it with `python examples/composed.py` (stdio) or `colonnade serve examples/composed.py` (HTTP).
"""

import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from typing import Annotated

from colonnade import Context, Depends, Server, ToolError
from colonnade.ports import Handler, RequestContext
from colonnade.protocol.types import ProtocolType

log = logging.getLogger("library")
visits: Counter[str] = Counter()


@asynccontextmanager
async def open_shelves(server: Server) -> AsyncGenerator[str]:
    """Entered once, before the first call; left after the last. What it gives is `ctx.state`."""
    path = "file:library?mode=memory&cache=shared"
    with closing(sqlite3.connect(path, uri=True)) as keeper, keeper:
        keeper.execute("create table books (title text primary key, lent text)")
        keeper.executemany("insert into books values (?, null)", [("Emma",), ("Ulysses",)])
        keeper.commit()
        yield path
    log.warning("the shelves are closed")


server = Server("library", version="1.0", lifespan=open_shelves)
fines = Server("fines", version="1.0")


@server.middleware
async def counted(request: RequestContext, call_next: Handler) -> ProtocolType:
    """Middleware sees every request and every result, and may change or refuse them."""
    visits[request.method] += 1
    return await call_next(request)


@server.resource("library://visits")
def seen() -> dict[str, int]:
    """How often each method was called."""
    return visits


async def get_db(ctx: Context) -> AsyncGenerator[sqlite3.Connection]:
    """A connection for one call: committed if it went well, closed in any case."""
    db = sqlite3.connect(ctx.state, uri=True)
    try:
        yield db
        db.commit()
    finally:
        db.close()


def get_rates() -> Generator[dict[str, float]]:
    """Made once for all calls, and cleaned up with the server."""
    yield {"day": 0.2}
    log.warning("the rates are put away")


Db = Annotated[sqlite3.Connection, Depends(get_db)]


@server.tool
async def lend(title: str, reader: str, db: Db) -> str:
    """Lend a book to a reader."""
    change = "update books set lent = ? where title = ? and lent is null"
    if not db.execute(change, (reader, title)).rowcount:
        raise ToolError(f"{title!r} is not on the shelf.")
    return f"{reader} has {title!r}"


@server.tool(tags={"staff"})
async def shelve(title: str, db: Db) -> int:
    """Add a book; gives how many there are."""
    db.execute("insert or ignore into books values (?, null)", (title,))
    (books,) = db.execute("select count(*) from books").fetchone()
    return books


@server.tool
def sign_in(password: str) -> str:
    """Show what is for the staff, and offer one thing more; every client is told by itself."""
    if password != "open sesame":
        raise ToolError("That is not the password.")
    server.enable(tags={"staff"})
    server.tool(inventory)
    return "Welcome."


async def inventory(db: Db) -> list[str]:
    """Every title, in the order of the alphabet."""
    return [title for (title,) in db.execute("select title from books order by title")]


@fines.tool
def due(days: int, rates: Annotated[dict[str, float], Depends(get_rates, scope="server")]) -> float:
    """What is owed for a book that is so many days late."""
    return round(days * rates["day"], 2)


server.mount(fines, namespace="fines")  # its tool is `fines_due` here
server.disable(tags={"staff"})

if __name__ == "__main__":
    server.run()
