"""Lets an application listen on a free port under uvicorn, set up for speed. Prints the address.

Run by the Python of the application's own environment. Rules: imports nothing of ours.
"""

import socket
from typing import Any


def serve(app: Any, lifespan: Any = "on") -> None:
    """Serve until told to end: uvloop, httptools, no access log, nothing that is not needed."""
    import uvicorn

    # With the protocol named, or asyncio leaves Nagle's algorithm on for what is accepted.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)  # who reads the address may come at once
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
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
        uvicorn.Server(config).run(sockets=[listener])
