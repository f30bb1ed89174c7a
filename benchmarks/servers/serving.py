"""Lets an application listen on a free port under uvicorn, set up for speed. Prints the address.

Run by the Python of the application's own environment. Rules: imports nothing of ours.
"""

import socket
from typing import Any


def serve(app: Any, lifespan: Any = "on") -> None:
    """Serve until told to end: uvloop, httptools, no access log, nothing that is not needed."""
    with listen() as listener:
        make_server(app, lifespan).run(sockets=[listener])


async def serve_in_loop(app: Any) -> None:
    """The same in the event loop that runs."""
    with listen() as listener:
        await make_server(app, "on").serve(sockets=[listener])


def listen() -> socket.socket:
    """A listener on a free port, whose address is printed."""
    # With the protocol named, or asyncio leaves Nagle's algorithm on for what is accepted.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(2048)  # who reads the address may come at once
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    return listener


def make_server(app: Any, lifespan: Any) -> Any:
    """A server of uvicorn, set up for speed."""
    import uvicorn

    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan=lifespan,
        interface="asgi3",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
