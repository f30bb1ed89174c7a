"""A server with tasks on SQLite, as a user writes it: public names, every check on.

    python task_server.py http

One task runs and the others wait for it, so that only their creation is measured. Its file is on a
disk, in the folder of the environment, and is deleted at the end. Rules: imports nothing private.
"""

import asyncio
import tempfile
from itertools import count
from pathlib import Path

from colonnade import Context, Server, TaskOptions
from colonnade.store.limits import StoreLimits
from colonnade.store.sqlite import SqliteStore

ENVIRONMENT = Path(__file__).resolve().parent.parent.parent / ".venv"
MANY = 10_000_000
# As large as the record of a new task.
RECORD = b"x" * 430
numbers = count()


def make_server(folder: str) -> Server:
    """The server, with its file in this folder."""
    limits = StoreLimits(principal_entries=MANY, principal_bytes=2**34, total_bytes=2**34)
    store = SqliteStore(Path(folder) / "tasks.db", limits=limits)
    options = TaskOptions(
        max_unfinished=MANY, max_kept=MANY, max_running=1, lease_s=600.0, requests_per_s=1e9
    )
    server = Server("bench", version="1.0", store=store, tasks=options)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def insert(ctx: Context) -> str:
        """Insert one entry into the same file; it is on disk when this returns."""
        await store.add(ctx.principal, f"insert/{next(numbers):012}", RECORD, 3600.0)
        return "inserted"

    @server.tool(task=True)
    async def job() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    return server


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=ENVIRONMENT) as folder:
        make_server(folder).run("http", port=0)
