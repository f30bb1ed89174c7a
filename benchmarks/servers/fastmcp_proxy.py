"""A proxy on FastMCP, 4.x, as its documentation shows it.

    python fastmcp_proxy.py default | shared http | session SERVER_REVISION URL

`default` makes a client for each request, `shared` uses one that is connected; `http` keeps nothing,
`session` has sessions. It mirrors the revision of its client, and negotiates only where the server
has another one. Rules: run by the Python of FastMCP's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false

import asyncio
import sys
from typing import Any

from fastmcp import Client
from fastmcp.server import create_proxy
from serving import serve, serve_in_loop

MODERN = "2026-07-28"


def application(proxy: Any, way: str) -> Any:
    return proxy.http_app(path="/mcp", json_response=True, stateless_http=way == "http")


async def shared(way: str, url: str) -> None:
    async with Client(url) as client:
        await serve_in_loop(application(create_proxy(client, name="proxy"), way))


if __name__ == "__main__":
    kind, way, revision, url = sys.argv[1:]
    if kind == "shared":
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(shared(way, url))
    else:
        crosses = (way == "http") is not (revision == MODERN)
        mode = {"mode": "auto"} if crosses else {}
        serve(application(create_proxy(url, name="proxy", **mode), way))
