"""A server whose tools write their effect into a ledger, as a program over HTTP.

    python ledger_server.py STORE FOLDER SHUTDOWN_DELAY_S PORT

Prints its URL. STORE is the path of an SQLite file, or a `redis://` URL. The ledger is a file of FOLDER
with the id of an effect in each line.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from colonnade import Context, RunLimits, Server
from colonnade.transport.http_server.request import Limits
from replica_server import open_store

LEDGER = "ledger"
# Between the steps of a tool, so that a process can be killed there.
STEP_S = 0.005
# Of one call of `events`.
EVENTS = 12
# Between them: less than some writes to the store take.
EVENT_S = 0.001
# Calls that take longer are ended at a shutdown: some must be.
DRAIN_S = 1.0


@dataclass
class Consent:
    agreed: bool


def write_effect(folder: Path, effect: str) -> None:
    """Add a line to the ledger, in one write."""
    line = f"{effect}\n".encode()
    descriptor = os.open(folder / LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        assert os.write(descriptor, line) == len(line)
    finally:
        os.close(descriptor)


def make_server(store: str, folder: Path) -> Server:
    server = Server("ledger", store=open_store(store), keys=[b"k" * 32])

    @server.tool
    async def plain(effect: str) -> str:
        await asyncio.sleep(STEP_S)
        write_effect(folder, effect)
        await asyncio.sleep(STEP_S)
        return effect

    @server.tool
    async def once(effect: str, ctx: Context) -> str:
        """The effect comes before the elicitation, whose response may be another request."""
        await ctx.once("effect", lambda: write_effect(folder, effect))
        await ctx.elicit("Is it right?", Consent)
        return effect

    @server.tool
    async def consent(effect: str, ctx: Context) -> str:
        await ctx.elicit(f"Shall it be done? {effect}", Consent)
        write_effect(folder, effect)
        await asyncio.sleep(STEP_S)
        return effect

    @server.tool
    async def stream(effect: str, ctx: Context) -> str:
        """Send events, of which a client gets the rest elsewhere if it loses the connection."""
        for step in range(3):
            await ctx.progress(step + 1)
            await asyncio.sleep(STEP_S)
        write_effect(folder, effect)
        await ctx.progress(4)
        await asyncio.sleep(STEP_S)
        return effect

    @server.tool
    async def events(effect: str, ctx: Context) -> str:
        """Send events for a moment, with the effect among them."""
        for step in range(EVENTS):
            await ctx.progress(step + 1)
            await asyncio.sleep(EVENT_S)
            if step == EVENTS // 2:
                write_effect(folder, effect)
        return effect

    @server.tool
    def touch(uri: str, tool: str) -> None:
        """Change a resource, and the list of tools in this process."""
        server.updated(uri)
        server.tool(name=tool)(lambda: None)

    @server.resource("file:///{name}")
    def file(name: str) -> str:
        return name

    @server.tool
    async def resumed(effect: str, ctx: Context) -> str:
        """Close the stream, which the client resumes."""
        await ctx.progress(1)
        await ctx.hang_up()
        await asyncio.sleep(1.0)
        write_effect(folder, effect)
        await asyncio.sleep(1.0)
        return effect

    return server


if __name__ == "__main__":
    server = make_server(sys.argv[1], Path(sys.argv[2]))
    limits = Limits(
        max_sessions=1_000_000, max_concurrent_requests=100_000, drain_timeout_s=DRAIN_S
    )
    delay_s, port = sys.argv[3:]
    run_limits = RunLimits(shutdown_delay_s=float(delay_s))
    server.run("http", port=int(port), limits=limits, run_limits=run_limits)
