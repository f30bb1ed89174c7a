"""A server with state for its one client, whose tools write their effects into a ledger.

    python gateway_child.py LEDGER

A line of the ledger has an effect, the process and the time.
"""

import asyncio
import os
import sys
import time
from itertools import count

from colonnade import Context, Server
from colonnade.errors import Declined

# So that a process can be killed between the effect and the response.
STEP_S = 0.02

server = Server("child")
numbers = count(1)


def write_effect(effect: str) -> str:
    """Add a line to the ledger, in one write; the response."""
    line = f"{effect} {os.getpid()} {time.time()}\n".encode()
    descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        assert os.write(descriptor, line) == len(line)
    finally:
        os.close(descriptor)
    return f"{effect} {os.getpid()} {next(numbers)}"


@server.tool
async def plain(effect: str) -> str:
    said = write_effect(effect)
    await asyncio.sleep(STEP_S)
    return said


@server.tool
async def steps(effect: str, ctx: Context) -> str:
    for step in range(3):
        await ctx.progress(step + 1)
        await asyncio.sleep(STEP_S)
    said = write_effect(effect)
    await ctx.progress(4)
    return said


@server.tool
async def ask(effect: str, ctx: Context) -> str:
    """Two rounds, then the effect."""
    try:
        await ctx.elicit("Shall it be done?", str)
        await ctx.elicit("Really?", str)
    except Declined:
        return "declined"
    said = write_effect(effect)
    await asyncio.sleep(STEP_S)
    return said


if __name__ == "__main__":
    server.run()
