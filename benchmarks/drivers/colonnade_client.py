"""Our client, as a user writes it: over HTTP, or on a server in memory.

    python colonnade_client.py URL | memory

Rules: imports nothing private.
"""

import asyncio
import sys

from driving import ARGUMENTS, drive

from colonnade import Server, connect

server = Server("bench", version="1.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    async with connect(server if sys.argv[1] == "memory" else sys.argv[1]) as client:

        async def call() -> str:
            return (await client.call_tool("add", ARGUMENTS)).text

        await drive(call, str(client.revision))


if __name__ == "__main__":
    asyncio.run(main())
