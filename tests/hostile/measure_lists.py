"""What a server's lists cost a client and a host: memory, the longest block of the loop, time.

    python tests/hostile/measure_lists.py            every case, each in a process of its own
    python tests/hostile/measure_lists.py pages      one of them

- `pages`: a list of 40 pages of 8 MiB, each with another cursor.
- `repeated`: a list whose cursor is always the same.
- `items`: a list of 600,000 resources in pages of 20,000.
- `templates`: 5,000 URI templates of 2,000 characters, and an address that none of them fits.
- `search`: 3,500 tools with 14 MB of descriptions that never use a word twice, and a search.
- `honest`: 1,000 tools with descriptions of 60 words of a vocabulary of 2,000, and a search.

Rules: loopback only (a child on pipes), bounded in count, ends by itself; nothing is asserted here.
"""

import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from colonnade import ColonnadeError, Host, connect  # noqa: E402
from hostile.loop_gaps import LoopGaps  # noqa: E402

CASES = ("pages", "repeated", "items", "templates", "search", "honest")
PAGE_BYTES = 8 * 1024 * 1024
PAGES = 40
MIB = 1024 * 1024


# ---------------------------------------------------------------- the server, in a child


def words(seed: int, count: int, vocabulary: int = 0) -> str:
    """Words that are all different, or from a vocabulary."""
    made = random.Random(seed)
    if vocabulary:
        return " ".join(f"w{made.randrange(vocabulary)}" for _ in range(count))
    return " ".join(f"{made.randrange(36**6):x}" for _ in range(count))


def listed(case: str, method: str, cursor: str | None) -> dict[str, Any]:
    """The page of a list."""
    page = int(cursor or 0)
    if method == "tools/list":
        schema = {"type": "object"}
        if case == "pages":
            tool = {"name": f"t{page}", "description": "x" * PAGE_BYTES, "inputSchema": schema}
            return {"tools": [tool]} | ({"nextCursor": str(page + 1)} if page < PAGES - 1 else {})
        if case == "repeated":
            tool = {"name": f"t{page}", "description": "x" * 1000, "inputSchema": schema}
            return {"tools": [tool], "nextCursor": "1"}
        count, long, few = {"search": (3500, 500, 0), "honest": (1000, 60, 2000)}.get(
            case, (0, 0, 0)
        )
        return {
            "tools": [
                {"name": f"t{nth}", "description": words(nth, long, few), "inputSchema": schema}
                for nth in range(count)
            ]
        }
    if method == "resources/list" and case == "items":
        first = page * 20_000
        found = [{"uri": f"a:{nth}", "name": "n"} for nth in range(first, first + 20_000)]
        return {"resources": found} | ({"nextCursor": str(page + 1)} if page < 29 else {})
    if method == "resources/templates/list" and case == "templates":
        expressions = "".join(f"/{{variable_with_a_long_name_{nth}}}" for nth in range(60))
        found = [{"uriTemplate": f"{{+a}}{nth}{expressions}", "name": "n"} for nth in range(5000)]
        return {"resourceTemplates": found}
    return {"tools": [], "resources": [], "resourceTemplates": [], "prompts": []}


def serve(case: str) -> None:
    """Answer on standard output until standard input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "lists", "version": "1"},
            }
        elif method.endswith("/list"):
            result = listed(case, method, params.get("cursor"))
        else:
            error = {"code": -32601, "message": "no such method"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


# ---------------------------------------------------------------- who reads it


def peak() -> float:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measured(what: str, work: Awaitable[Any]) -> None:
    gaps, before, began = LoopGaps(), peak(), time.perf_counter()
    watch = asyncio.create_task(gaps.watch())
    await asyncio.sleep(0.01)
    try:
        found = await work
        outcome = f"{len(found)} items" if isinstance(found, list) else "found"
    except ColonnadeError as error:
        outcome = f"{type(error).__name__}: {str(error)[:200]}"
    await asyncio.sleep(0.01)
    watch.cancel()
    seconds = time.perf_counter() - began
    print(
        f"{what:24} {seconds:7.2f} s   longest block {gaps.longest * 1e3:6.0f} ms "
        f"(processor {gaps.used * 1e3:6.0f} ms)   "
        f"memory +{peak() - before:5.0f} MiB   {outcome}",
        flush=True,
    )


async def read(case: str) -> None:
    command = [sys.executable, __file__, "--serve", case]
    if case in ("pages", "repeated"):
        async with connect(command, revision="2025-11-25", server_name=case) as client:
            await measured(f"{case}: list", client.list_tools())
        return
    entry = {"command": command[0], "args": command[1:]}
    async with Host({case: entry}) as host:
        if case == "items":
            await measured("items: list", host.list_resources())
        elif case == "templates":
            await measured("templates: list", host.list_resource_templates())
            await measured("templates: read", host.read_resource("x://nothing/fits/this"))
        else:
            await measured(f"{case}: list", host.list_tools())
            await measured(f"{case}: first search", host.search("read a file"))
            await measured(f"{case}: second search", host.search("read another file"))
        for problem in host.problems:
            print(f"{case}: {str(problem)[:300]}")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    if len(sys.argv) > 1:
        asyncio.run(read(sys.argv[1]))
        return
    for case in CASES:
        subprocess.run([sys.executable, __file__, case], check=False, timeout=600)


if __name__ == "__main__":
    main()
