"""Memory of a gateway while one client calls a tool with large results, one call after the other.

    .venv/bin/python tests/hostile/measure_held_calls.py

The client is of 2026-07-28 and the server of 2025-11-25. A client that declares elicitation may be
asked for input, so its calls may be held; the same calls without elicitation are the comparison.

Rules: loopback only, any free port. Sends at most 80 calls, and ends by itself.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from hostile.child import TARGET  # noqa: E402
from http_client import Caller  # noqa: E402

MIB = 1024 * 1024
CALLS = 40
RESULT_BYTES = 16 * MIB
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


async def serve() -> None:
    """A gateway in this process, until it is ended."""
    from colonnade import Gateway, Host

    server: Any = {
        "command": sys.executable,
        "args": [str(TARGET), "stdio"],
        "env": {"PYTHONPATH": os.pathsep.join(sys.path)},
        "revision": "2025-11-25",
    }
    async with Host({"s": server}) as host:
        await Gateway(host).serve("http", port=0, started=lambda site: print(site.port, flush=True))


@contextmanager
def gateway() -> Generator[subprocess.Popen[bytes]]:
    """A gateway in a process of its own."""
    process = subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def resident_mib(process: subprocess.Popen[bytes]) -> float:
    """The memory of the process at this moment."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


async def measure(capabilities: dict[str, Any]) -> None:
    with gateway() as process:
        port = int(cast("IO[bytes]", process.stdout).readline())
        async with Caller(port) as caller:
            highest = 0.0
            for _ in range(CALLS + 1):
                params = {"name": "s__huge", "arguments": {"size": RESULT_BYTES}}
                declared = {CAPABILITIES: capabilities}
                response = await caller.modern("tools/call", params, meta=declared)
                assert response.status == 200, response.body[:200]
                highest = max(highest, resident_mib(process))
            now = resident_mib(process)
    print(
        f"{CALLS} calls of {RESULT_BYTES // MIB} MiB, the client declares {capabilities}: "
        f"{now:.0f} MiB afterwards, {highest:.0f} MiB at most"
    )


async def main() -> None:
    await measure({})
    await measure({"elicitation": {}})


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1:] == ["--serve"] else main())
