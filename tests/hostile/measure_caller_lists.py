"""What a gateway keeps for each principal of a server with many tools.

    python tests/hostile/measure_caller_lists.py            every case, each in a process of its own
    python tests/hostile/measure_caller_lists.py same 20    one of them, with 20 principals

- `same`: all principals see the same 5,000 tools.
- `own`: each sees one tool of its own among them.

A server of 2025-11-25 has a session, and lists, for each principal. Each principal is a process of
the server here, which is not counted: what grows is the memory of the gateway. Before equal lists
were kept once, each further principal took 16.3 MiB in both cases.

Rules: children on pipes, bounded in count, ends by itself; nothing is asserted here.
"""

import asyncio
import ctypes
import gc
import json
import os
import subprocess
import sys
from typing import Any

from colonnade import Gateway, Host
from colonnade.client.client import Client
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revisions
from colonnade.transport.memory import connected_pair, serve_end

CASES = ("same", "own")
PRINCIPALS = 20
TOOLS = 5_000
DATE = "2025-11-25"
MIB = 1024 * 1024


# ---------------------------------------------------------------- the server, in a child


def tool(number: int, own: int) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": f"The {name} of item {number}."}
            for name in ("city", "country", "day")
        },
        "required": ["city"],
    }
    name = f"tool_of_{own}" if number == 0 else f"tool_{number}"
    return {"name": name, "description": f"Does number {number}. " * 5, "inputSchema": schema}


def serve(case: str) -> None:
    """Answer on standard output until standard input ends."""
    own = os.getpid() if case == "own" else 0
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            info = {"name": "many", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            result = {"protocolVersion": DATE, "capabilities": capabilities, "serverInfo": info}
        elif message["method"] == "tools/list":
            result = {"tools": [tool(number, own) for number in range(TOOLS)]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


# ---------------------------------------------------------------- the gateway


def memory() -> float:
    """The memory of this process in MiB, after what is free was given back."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / MIB


async def measure(case: str, principals: int) -> None:
    command = [sys.executable, __file__, "--serve", case]

    async def resolve() -> Any:
        return command

    settings = Settings(revision=DATE, max_sessions=principals + 2)
    entry = ServerEntry(key="many", resolve=resolve, fingerprint="many", settings=settings)
    (revision,) = Revisions.of(DATE)
    async with Host({"many": entry}) as host:
        gateway = Gateway(host, page_size=TOOLS)
        await gateway.start()
        before = first = 0.0
        for number in range(principals):
            near, far = connected_pair()
            serve_end(far, gateway, principal=f"p{number}").id = f"session-{number}"
            client = Client(
                near.open_conversation, None, info=t.Implementation(name="m", version="1")
            )
            await client.open(revision)
            before = before or memory()
            listed = len(await client.list_tools())
            await client.close()
            del client, near, far
            first = first or memory()
            assert listed == TOOLS
        each = (memory() - first) / (principals - 1)
        print(
            f"{case}: the first principal takes {first - before:.1f} MiB, "
            f"each of {principals - 1} others {each:.2f} MiB"
        )
        await gateway.stop()


def main() -> None:
    """Measure the cases that were asked for."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    elif len(sys.argv) > 1:
        principals = int(sys.argv[2]) if len(sys.argv) > 2 else PRINCIPALS
        asyncio.run(measure(sys.argv[1], principals))
    else:
        for case in CASES:
            subprocess.run([sys.executable, __file__, case], check=True)


if __name__ == "__main__":
    main()
