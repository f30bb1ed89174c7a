"""The server behind every gateway of the benchmarks: ours, of one revision.

    python gateway_upstream.py http | stdio REVISION

Its results are text alone, which every gateway carries. Rules: imports nothing private.
"""

import sys

from colonnade import Server, ToolReturn

server = Server("upstream", version="1.0", revisions=[sys.argv[2]])
BLOB = "x" * 1024 * 1024


@server.tool
async def add(a: int, b: int) -> ToolReturn:
    """Add two numbers."""
    return ToolReturn(str(a + b))


@server.tool
async def blob() -> ToolReturn:
    """A mebibyte."""
    return ToolReturn(BLOB)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=0)
    else:
        server.run()
