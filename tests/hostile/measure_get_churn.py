"""CPU per request of a session in which streams were opened by GET and left.

    .venv/bin/python tests/hostile/measure_get_churn.py

Rules: loopback only, any free port. Opens at most 3,000 streams one after the other, and ends by
itself.
"""

import asyncio
import os
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from hostile.child import Child, child  # noqa: E402
from http_client import Caller, Wire, written  # noqa: E402

MIB = 1024 * 1024
STEPS = (0, 1000, 3000)
CALLS = 500
PAUSE_S = 0.05
TIME_S = 300.0
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


def cpu_s(server: Child) -> float:
    """The processor time that the server has used, of all its threads."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def calls(caller: Caller, count: int) -> None:
    head: dict[str, str | None] = {
        "host": f"127.0.0.1:{caller.port}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-session-id": caller.session,
        "mcp-protocol-version": caller.revision,
    }
    wire = await Wire.open(caller.port)
    for _ in range(count):
        await wire.send(written("POST", "/mcp", head, PING))
        response = await wire.head()
        assert response.status == 200
        await response.read()
    wire.abort()


async def churn(caller: Caller, count: int) -> None:
    opened = 0
    while opened < count:
        wire, response = await caller.get()
        if response.status == 200:
            await response.event()
            opened += 1
        else:  # too many at once: the server learns of those that have gone within 0.1 s
            assert response.status == 503, response.status
            await asyncio.sleep(PAUSE_S)
        wire.abort()
        caller.wires.clear()


async def measure() -> None:
    async with asyncio.timeout(TIME_S):
        with child("http") as server:
            caller = Caller(int(server.line()))
            await caller.initialize("2025-11-25")
            left = 0
            print(f"ping in a session, {CALLS} calls on one connection")
            memory = server.memory()
            for step in STEPS:
                began = cpu_s(server)
                await churn(caller, step - left)
                opened, left = step - left, step
                spent = cpu_s(server) - began
                each = f"{1000 * spent / opened:.2f} ms of CPU each" if opened else "none"
                began = cpu_s(server)
                await calls(caller, CALLS)
                per_call = 1000 * (cpu_s(server) - began) / CALLS
                held = (server.memory() - memory) / MIB
                print(
                    f"  {left} streams opened and left ({each}): "
                    f"{per_call:.2f} ms of CPU per call, memory +{held:.1f} MiB"
                )


if __name__ == "__main__":
    asyncio.run(measure())
