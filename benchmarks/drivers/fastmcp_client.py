"""The client of FastMCP, 4.x: over HTTP, or on a server in memory.

    python fastmcp_client.py URL | memory

Rules: run by the Python of FastMCP's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import asyncio
import logging
import sys
from typing import Any

from driving import ARGUMENTS, drive
from fastmcp import Client, FastMCP

server = FastMCP("bench", version="1.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    logging.disable(logging.INFO)
    async with Client(server if sys.argv[1] == "memory" else sys.argv[1]) as client:

        async def call() -> str:
            content: Any = (await client.call_tool("add", ARGUMENTS)).content[0]
            return content.text

        await drive(call, "its own choice")


if __name__ == "__main__":
    asyncio.run(main())
