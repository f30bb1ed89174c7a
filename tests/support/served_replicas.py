"""A program as three processes on one store, behind the round-robin relay, as one URL.

    python tests/support/served_replicas.py PROGRAM [STORE]

Prints the URL. STORE is the path of an SQLite file, a `redis://` URL, or `redis` for a server of its
own; by default `COLONNADE_STORE`, and without it an SQLite file. The program gets the path or the URL
as `COLONNADE_STORE`, and a port as its argument. After SIGTERM the exit code is 0 if all processes
ended by themselves and each of them got requests.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from relay import RelayedProcesses
from store.redis_server import redis_server

VARIABLE = "COLONNADE_STORE"


async def serve(program: Path, store: str) -> list[str]:
    """Serve until SIGTERM or SIGINT; what went wrong."""
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    replicas = RelayedProcesses(program, environment={**os.environ, VARIABLE: store})
    async with replicas:
        relay = replicas.relay
        print(relay.url + "/mcp", flush=True)
        await ending.wait()
    codes = [process.returncode for process in replicas.processes]
    problems = [f"a process ended with {code}" for code in codes if code]
    if len(relay.by_port) < replicas.count:
        problems.append(f"only {len(relay.by_port)} of the processes got a request")
    return problems


def main(program: str, store: str = "") -> int:
    store = store or os.environ.get(VARIABLE, "")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if store == "redis":
            store = stack.enter_context(redis_server(folder / "redis")).url
        problems = asyncio.run(serve(Path(program), store or str(folder / "store.db")))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
