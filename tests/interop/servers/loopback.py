"""Lets an application of a server that we did not write listen on a free port of this machine.

Run by the Python of the server's own environment, with its own uvicorn. Prints the address.

Rules: imports nothing of ours.
"""

import socket
from typing import Any


def serve(app: Any, path: str) -> None:
    """Serve until told to end."""
    import uvicorn

    # With the protocol named, or asyncio leaves Nagle's algorithm on for what is accepted.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # who reads the address may come at once
        print(f"http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])
