"""Memory that large responses hold while their clients hardly read them.

    .venv/bin/python tests/hostile/measure_unread_responses.py

Rules: loopback only, any free port. Sends 250 calls of 4 MiB, and ends by itself.
"""

import asyncio
import json
import socket
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from hostile.child import child  # noqa: E402
from http_client import META, Wire, written  # noqa: E402

MIB = 1024 * 1024
CALLS = 250
RESULT_BYTES = 4 * MIB
READ_BYTES = 100
# Below the write timeout, which ends them all.
LOOKS, LOOK_S = 60, 0.25
TIME_S = 300.0


async def ask(port: int) -> Wire:
    """Call for a large result, and read the first bytes of it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    wire = Wire(*await asyncio.open_connection(sock=client, limit=4096))
    params = {"name": "huge", "arguments": {"size": RESULT_BYTES}, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers: dict[str, str | None] = {
        "host": f"127.0.0.1:{port}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "huge",
    }
    await wire.send(written("POST", "/mcp", headers, json.dumps(message).encode()))
    await wire.reader.readexactly(READ_BYTES)
    return wire


async def measure() -> None:
    async with asyncio.timeout(TIME_S):
        with child("http") as server:
            port = int(server.line())
            before, highest = server.memory(), 0
            calls = [asyncio.create_task(ask(port)) for _ in range(CALLS)]
            for _ in range(LOOKS):
                await asyncio.sleep(LOOK_S)
                highest = max(highest, server.memory() - before)
            left = server.memory() - before
            done = [call.result() for call in calls if call.done() and call.exception() is None]
            print(
                f"{CALLS} calls of {RESULT_BYTES // MIB} MiB, of which {READ_BYTES} bytes are read: "
                f"memory +{highest / MIB:.0f} MiB at most, +{left / MIB:.0f} MiB after "
                f"{LOOKS * LOOK_S:g} s; {len(done)} of the responses have begun"
            )
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            for wire in done:
                wire.abort()


if __name__ == "__main__":
    asyncio.run(measure())
