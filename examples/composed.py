"""A composed server: dependency injection, lifespan, middleware, a mounted server, `list_changed`.

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
requests: Counter[str] = Counter()


@asynccontextmanager
async def open_library(server: Server) -> AsyncGenerator[str]:
    """Startup before the first call, shutdown after the last. It yields `ctx.state`."""
    path = "file:library?mode=memory&cache=shared"
    with closing(sqlite3.connect(path, uri=True)) as db, db:
        db.execute("create table books (title text primary key, lent text)")
        db.executemany("insert into books values (?, null)", [("Emma",), ("Ulysses",)])
        db.commit()
        yield path
    log.warning("the library is closed")


server = Server("library", version="1.0", lifespan=open_library)
fines = Server("fines", version="1.0")


@server.middleware
async def counted(request: RequestContext, call_next: Handler) -> ProtocolType:
    """Middleware: wraps every request, and may change or refuse it."""
    requests[request.method] += 1
    return await call_next(request)


@server.resource("library://requests")
def seen() -> dict[str, int]:
    """How often each method was called."""
    return requests


async def get_db(ctx: Context) -> AsyncGenerator[sqlite3.Connection]:
    """A connection for one call: committed on success, always closed."""
    db = sqlite3.connect(ctx.state, uri=True)
    try:
        yield db
        db.commit()
    finally:
        db.close()


def get_rates() -> Generator[dict[str, float]]:
    """Created once for all calls, and cleaned up at shutdown."""
    yield {"day": 0.2}
    log.warning("the rates are closed")


Db = Annotated[sqlite3.Connection, Depends(get_db)]


@server.tool
async def lend(title: str, reader: str, db: Db) -> str:
    """Lend a book to a reader."""
    change = "update books set lent = ? where title = ? and lent is null"
    if not db.execute(change, (reader, title)).rowcount:
        raise ToolError(f"{title!r} is not available.")
    return f"{reader} has {title!r}"


@server.tool(tags={"staff"})
async def shelve(title: str, db: Db) -> int:
    """Add a book; gives how many there are."""
    db.execute("insert or ignore into books values (?, null)", (title,))
    (books,) = db.execute("select count(*) from books").fetchone()
    return books


@server.tool
def sign_in(password: str) -> str:
    """Enable the tools for the staff, and add one; clients are sent `list_changed`."""
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


server.mount(fines, namespace="fines")  # its tool is `fines_due`
server.disable(tags={"staff"})

if __name__ == "__main__":
    server.run()
