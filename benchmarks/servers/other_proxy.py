"""Becomes the program of a proxy that wants a port, after it has printed where that will listen.

    python other_proxy.py rust PROGRAM URL              the crate `mcp-proxy`, in front of a URL
    python other_proxy.py pypi PYTHON COMMAND...        `mcp-proxy` of PyPI, in front of a command

Rules: imports nothing of ours. The reader of the address waits until the port listens.
"""

import os
import socket
import sys
import tempfile

CONFIG = """
[proxy]
name = "proxy"
separator = "__"
[proxy.listen]
host = "127.0.0.1"
port = %d
[[backends]]
name = "bench"
transport = "http"
url = "%s"
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


if __name__ == "__main__":
    kind, program, *rest = sys.argv[1:]
    port = free_port()
    if kind == "rust":
        with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as file:
            file.write(CONFIG % (port, rest[0]))
        command, path = [program, "--config", file.name], "/"
    else:
        command = [program, "-m", "mcp_proxy", "--port", str(port), "--log-level", "WARNING"]
        command, path = [*command, "--", *rest], "/mcp"
    print(f"http://127.0.0.1:{port}{path}", flush=True)
    os.dup2(2, 1)  # what it prints is no address
    os.execv(command[0], command)
