"""The server under test, as a user writes it: public names, defaults, every check on.

    python colonnade_server.py http | stdio [TOOLS]

With TOOLS there are so many more, alike, for lists. Rules: imports nothing private.
"""

import sys
from itertools import count

from colonnade import Context, Server

server = Server("bench", version="1.0")
BLOB = "x" * 1024 * 1024
STEPS = 10
numbers = count()


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_sync(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


@server.tool
async def length(text: str) -> int:
    """How long a text is."""
    return len(text)


@server.tool
async def blob() -> str:
    """A mebibyte."""
    return BLOB


@server.tool
async def steps(ctx: Context) -> str:
    """Ten steps, each reported."""
    for step in range(1, STEPS + 1):
        await ctx.progress(step, STEPS)
    return "done"


@server.tool
async def grow() -> int:
    """Have a tool more, which everybody who listens is told."""
    number = next(numbers)
    more(number)
    return number


def more(number: int) -> None:
    """One more tool, like the others."""

    async def tool(city: str, days: int = 3) -> str:
        """The highest temperatures of the coming days."""
        return f"{city}: {days}"

    server.tool(name=f"tool_{number:05}")(tool)


if __name__ == "__main__":
    for _ in range(int(sys.argv[2]) if sys.argv[2:] else 0):
        more(next(numbers))
    if sys.argv[1] == "http":
        server.run("http", port=0)
    else:
        server.run()
