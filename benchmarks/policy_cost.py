"""CPU time of a call through a host with rules, pins and an audit log, against one without.

    python benchmarks/policy_cost.py

Measured in turns in one process, each pair gives a ratio, and the median of the ratios is printed,
and the ratio of the fastest rounds, which is less disturbed by other programs. In memory the server is in this process; the child process is measured by the time that passes.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from colonnade import Host, Policy, Rule, Server
from colonnade.host.policy.audit.log import AuditLog
from colonnade.host.policy.pins.pins import Pins
from colonnade.store.memory import MemoryStore

WARM_UP = 200
RULES = 20

SERVER = """
from colonnade import Server

server = Server("cost")


@server.tool
async def add(a: int, b: int, path: str = "") -> int:
    return a + b


server.run()
"""


def make_server() -> Server:
    """A server with one tool, in this process."""
    server = Server("cost")

    @server.tool
    async def add(a: int, b: int, path: str = "") -> int:
        return a + b

    return server


def policy() -> Policy:
    """Twenty rules, four of which look at the arguments of each call."""
    rules = [Rule("deny", tools=f"other{number}__*") for number in range(RULES - 5)]
    rules += [
        Rule("deny", servers="cost", arguments={"path": f"/etc/{number}/**"}) for number in range(2)
    ]
    rules += [Rule("ask", servers="cost", arguments={"a": {"above": 100}}) for _ in range(2)]
    rules.append(Rule("allow", servers="cost"))
    assert len(rules) == RULES
    return Policy(rules, default="deny")


async def calls(host: Host, count: int, clock: Callable[[], float]) -> float:
    """Microseconds of a call."""
    began = clock()
    for _ in range(count):
        await host.call_tool("cost__add", {"a": 1, "b": 2, "path": "/srv/shared/notes.txt"})
    return (clock() - began) / count * 1e6


async def compare(
    name: str, target: Any, clock: Callable[[], float], count: int, rounds: int, folder: Path
) -> None:
    """Measure each host against the bare one, in turns, and print the ratios."""
    options: dict[str, dict[str, Any]] = {
        "bare": {},
        "20 rules": {"policy": policy()},
        "20 rules, pins and audit": {
            "policy": policy(),
            "pins": Pins(MemoryStore()),
            "audit": AuditLog(folder / name.replace(" ", "-")),
        },
    }
    async with AsyncExitStack() as stack:
        hosts = {
            key: await stack.enter_async_context(Host({"cost": target()}, **given))
            for key, given in options.items()
        }
        for host in hosts.values():
            await host.list_tools()
            await calls(host, WARM_UP, clock)
        found: dict[str, list[float]] = {key: [] for key in hosts}
        for number in range(rounds):
            order = list(hosts) if number % 2 else list(reversed(hosts))
            for key in order:
                found[key].append(await calls(hosts[key], count, clock))
    bare = found.pop("bare")
    print(f"{name}: {statistics.median(bare):.0f} µs without a guard")
    for key, times in found.items():
        ratio = statistics.median(b / a for a, b in zip(bare, times, strict=True))
        fastest = min(times) / min(bare)
        median = statistics.median(times)
        print(f"{name}, {key}: {median:.0f} µs, ratio {ratio:.2f}; fastest rounds {fastest:.2f}")


async def main() -> None:
    """Measure in memory and with a child process."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        await compare("in memory", make_server, time.process_time, 200, 40, folder)
        script = folder / "server.py"
        script.write_text(SERVER)
        await compare(
            "child process",
            lambda: [sys.executable, str(script)],
            time.perf_counter,
            100,
            40,
            folder,
        )


if __name__ == "__main__":
    asyncio.run(main())
