"""A task whose server is killed (`kill -9`), and that goes on in another process.

    python examples/interrupted.py

Starts this file as a server with a store on disk, calls a tool that runs as a task, kills the
server in the middle of it and starts another one on the same store. That one goes on with the task,
and the client finds it again by its handle. Needs no terminal and no network but the loopback.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from colonnade import Context, Server, TaskOptions, connect
from colonnade.store.sqlite import SqliteStore

CHAPTERS = 6
CHAPTER_S = 0.3
# A server that has not renewed its leases for so long has died. The default is ten seconds.
LEASE_S = 1.0


def make_server(database: Path) -> Server:
    """A server whose tasks are in this file."""
    options = TaskOptions(lease_s=LEASE_S)
    server = Server("press", version="1.0", store=SqliteStore(database), tasks=options)

    async def write(topic: str, chapter: int) -> str:
        await asyncio.sleep(CHAPTER_S)
        return f"chapter {chapter} on {topic}, by process {os.getpid()}"

    @server.tool(task="required")
    async def book(topic: str, ctx: Context) -> list[str]:
        """Write a book."""
        written: list[str] = []
        for n in range(1, CHAPTERS + 1):
            await ctx.progress(n, CHAPTERS, f"chapter {n} of {CHAPTERS}")
            # Another process that runs this from the beginning gets what was recorded here.
            written.append(await ctx.once(f"chapter {n}", lambda n=n: write(topic, n)))
        return written

    return server


def start(database: Path, port: int) -> "tuple[subprocess.Popen[str], str]":
    """A process that serves the file, and its URL."""
    command = [sys.executable, __file__, str(database), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    print(f"process {process.pid} serves {url}", flush=True)
    return process, url


async def begin(url: str) -> str:
    """Start a task, and watch it until it has written two chapters; its handle."""
    async with connect(url) as client:
        task = await client.start_task("book", {"topic": "tea"})
        async for state in task:
            print(f"  {state.status}: {state.message}", flush=True)
            if (state.message or "") > "chapter 3":
                break
        assert task.handle is not None
        return task.handle


async def finish(url: str, handle: str) -> list[str]:
    """The result of a task that another program started."""
    async with connect(url) as client:
        task = client.resume_task(handle)
        async for state in task:
            print(f"  {state.status}: {state.message}", flush=True)
        return (await task.result(returns=list[str])).data


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "press.db"
        process, url = start(database, 0)
        try:
            handle = await begin(url)
        finally:
            process.kill()  # SIGKILL: it cannot hand the task over
            process.communicate()
        print(f"process {process.pid} was killed")
        # The same address, since a handle names its server.
        port = int(url.rpartition(":")[2].partition("/")[0])
        process, url = start(database, port)
        try:
            written = await finish(url, handle)
        finally:
            process.terminate()
            process.communicate()
    print("\n".join(written))


if __name__ == "__main__":
    if sys.argv[1:]:
        make_server(Path(sys.argv[1])).run("http", port=int(sys.argv[2]))
    else:
        asyncio.run(main())
