"""The server of the benchmarks on the official Python SDK, 2.x, by its public decorators.

    python mcp_server.py http | http-stream | session | session-stream | stdio [TOOLS]

`http` keeps nothing, `session` has sessions; they answer in JSON, or in event streams. Rules: run by the Python of the SDK's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("bench", version="1.0", log_level="WARNING")
BLOB = "x" * 1024 * 1024
STEPS = 10


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def add_sync(a: int, b: int) -> int:
    """Add two numbers, in a thread."""
    return a + b


@server.tool()
async def length(text: str) -> int:
    """How long a text is."""
    return len(text)


@server.tool()
async def blob() -> str:
    """A mebibyte."""
    return BLOB


@server.tool()
async def steps(ctx: Context) -> str:
    """Ten steps, each reported."""
    for step in range(1, STEPS + 1):
        await ctx.report_progress(step, STEPS)
    return "done"


def more(number: int) -> None:
    """One more tool, like the others."""

    async def tool(city: str, days: int = 3) -> str:
        """The highest temperatures of the coming days."""
        return f"{city}: {days}"

    server.add_tool(tool, name=f"tool_{number:05}")


if __name__ == "__main__":
    for number in range(int(sys.argv[2]) if sys.argv[2:] else 0):
        more(number)
    way = sys.argv[1]
    if way == "stdio":
        server.run("stdio")
    else:
        from serving import serve

        app = server.streamable_http_app(
            json_response="stream" not in way, stateless_http="http" in way
        )
        serve(app)
