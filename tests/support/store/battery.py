"""Long runs of the Redis store: cancelled calls, a server that is killed, and what a call costs.

    python tests/support/store/battery.py cancel [COMMANDS]      # scripts/store

Rules: a real server. Each reply is checked against what only its caller can expect. A call that was
cancelled or failed may have had an effect or none.
"""

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import redis.asyncio

from colonnade.errors import ChannelError
from colonnade.store.limits import StoreLimits
from colonnade.store.redis import RedisStore
from store.redis_server import RedisServer, redis_server

CALLERS = 200
LIMITS = StoreLimits(
    principal_entries=10**7, principal_bytes=10**10, log_entries=10**6, log_bytes=10**9
)


class BatteryCaller:
    """A caller with names of its own, that knows what each of its calls may return."""

    def __init__(self, store: RedisStore, number: int, dice: random.Random) -> None:
        self.store = store
        self.dice = dice
        self.principal = f"principal {number % 7}"
        self.name = f"caller {number:04}"
        self.value = b"%d:" % number
        self.least = 0
        self.most = 0
        self.turn = 0
        self.foreign: list[str] = []

    async def once(self) -> None:
        """One call; notes a reply that cannot be its own."""
        self.turn += 1
        store, who, name = self.store, self.principal, self.name
        match self.dice.randrange(7):
            case 0:
                reply = await store.get(who, name)
                self._expect(reply is None or reply.startswith(self.value), reply)
            case 1:
                await store.put(who, name, self.value + b"%d" % self.turn, 600.0)
            case 2:
                self.most += 1
                counted = await store.count(who, f"{name} counts", 1, None)
                self._expect(self.least < counted <= self.most, counted)
                self.least = counted
            case 3:
                found = await store.names(who, name, "", 5)
                self._expect(all(one.startswith(name) for one in found), found)
            case 4:
                mine = await store.swap(who, name, self.value + b"no such", b"", None)
                self._expect(mine is False, mine)
            case 5:
                new = await store.use_once(who, self.value + b"%d" % self.turn, 5.0)
                self._expect(new is True, new)
            case _:
                read = await store.read(who, f"{name} log", 0)
                self._expect(read == [(1, self.value)], read)

    def _expect(self, is_own: bool, reply: object) -> None:
        if not is_own:
            self.foreign.append(f"{self.name}, call {self.turn}: {reply!r}")


async def cancel(server: RedisServer, commands: int) -> list[str]:
    """Random calls, every tenth of them cancelled at a random moment."""
    dice = random.Random(7)
    store = RedisStore(server.url, limits=LIMITS, timeout_s=30.0)
    callers = [BatteryCaller(store, number, dice) for number in range(CALLERS)]
    for one in callers:
        await store.append(one.principal, f"{one.name} log", one.value, None)
    done = cancelled = 0
    began = time.monotonic()

    async def work(one: BatteryCaller) -> None:
        nonlocal done, cancelled
        while done < commands:
            done += 1
            if dice.random() < 0.9:
                await one.once()
                continue
            task = asyncio.ensure_future(one.once())
            for _ in range(dice.randrange(6)):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            cancelled += task.cancelled()

    await asyncio.gather(*(work(one) for one in callers))
    await store.close()
    foreign = [reply for one in callers for reply in one.foreign]
    assert not foreign, foreign[:5]
    took = time.monotonic() - began
    return [f"{done:,} calls in {took:.0f} s, {cancelled:,} of them cancelled: no foreign reply"]


async def kill(server: RedisServer, kills: int) -> list[str]:
    """Kill the server during writes, and compare what is there with what was acknowledged."""
    dice = random.Random(3)
    store = RedisStore(server.url, limits=LIMITS, timeout_s=2.0)
    entries: dict[tuple[str, str], bytes] = {}
    logs: dict[str, list[bytes]] = {}
    counted: dict[str, tuple[int, int]] = {}
    failed = 0
    ending = False

    async def work(number: int) -> None:
        nonlocal failed
        who, turn = f"principal {number % 5}", 0
        while not ending:
            turn += 1
            name = f"{number} {turn}"
            least, most = counted.get(f"{number}", (0, 0))
            try:
                await store.add(who, name, name.encode(), None)
                entries[who, name] = name.encode()
                counted[f"{number}"] = (least, most + 1)
                counted[f"{number}"] = (await store.count(who, f"n{number}", 1, None), most + 1)
                await store.append(who, f"log {number}", name.encode(), None)
                logs.setdefault(f"{number}", []).append(name.encode())
            except ChannelError:
                failed += 1
                await asyncio.sleep(0.01)

    workers = [asyncio.ensure_future(work(number)) for number in range(32)]
    for _ in range(kills):
        await asyncio.sleep(dice.uniform(0.05, 0.5))
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
    ending = True
    await asyncio.gather(*workers)
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    await store.close()

    store = RedisStore(server.url, limits=LIMITS, timeout_s=30.0)
    lost = [key for key, value in entries.items() if await store.get(*key) != value]
    assert not lost, (len(lost), lost[:5])
    for number, appended in logs.items():
        who = f"principal {int(number) % 5}"
        found = [entry for _, entry in await store.read(who, f"log {number}", 0)]
        assert set(appended) <= set(found)
        assert len(set(found)) == len(found)
    for number, (least, most) in counted.items():
        value = int(await store.get(f"principal {int(number) % 5}", f"n{number}") or b"0")
        assert least <= value <= most, (least, value, most)
    await store.close()
    _check_costs(server)
    writes = len(entries) + sum(map(len, logs.values())) + sum(one for one, _ in counted.values())
    return [
        f"{kills} kills, {writes:,} acknowledged writes, {failed:,} calls that failed: nothing lost"
    ]


def _check_costs(server: RedisServer) -> None:
    """The sum of costs is what its parts are."""
    with server.client() as client:
        for key in client.keys("*:costs"):
            costs = {name: int(cost) for name, cost in client.hgetall(key).items()}
            assert costs.pop(b"") == sum(costs.values())


async def measure(server: RedisServer) -> list[str]:
    """CPU time of this process, and latency, of calls that are made at once."""
    store = RedisStore(server.url, limits=LIMITS, timeout_s=30.0)
    client: Any = redis.asyncio.Redis(port=server.port, protocol=2)
    value = b"x" * 200
    await store.put("ada", "k", value, 600.0)
    await store.append("ada", "log", value, 600.0)
    with server.client() as asked:
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "redis-py get": lambda: client.get("k"),
            "get": lambda: store.get("ada", "k"),
            "put": lambda: store.put("ada", "k", value, 600.0),
            "swap": lambda: store.swap("ada", "k", value, value, 600.0),
            "count": lambda: store.count("ada", "n", 1, 600.0),
            "use_once": lambda: store.use_once("ada", random.randbytes(16), 60.0),
            "append": lambda: store.append("ada", "log", value, 600.0),
            "publish": lambda: store.publish("ada", "t", value),
        }
        lines = [
            await _measure(name, call, at_once, asked)
            for name, call in calls.items()
            for at_once in (1, 64)
        ]
    await store.close()
    await client.aclose()
    return lines


async def _measure(
    name: str, call: Callable[[], Awaitable[object]], at_once: int, asked: Any
) -> str:
    each = 2000 if at_once == 1 else 200
    waits: list[float] = []

    async def work() -> None:
        for _ in range(each):
            began = time.perf_counter()
            await call()
            waits.append(time.perf_counter() - began)

    rounds: list[tuple[float, float]] = []
    for _ in range(5):
        cpu, theirs = time.process_time(), _server_cpu(asked)
        await asyncio.gather(*(work() for _ in range(at_once)))
        number = each * at_once
        ours = (time.process_time() - cpu) / number
        rounds.append((ours, (_server_cpu(asked) - theirs) / number))
    ours, theirs = (statistics.median(column) * 1e6 for column in zip(*rounds, strict=True))
    waits.sort()
    half, late = (waits[int(len(waits) * share)] * 1e6 for share in (0.5, 0.99))
    return (
        f"{name:14} {at_once:3} at once: {ours:6.1f} us CPU a call, {theirs:5.1f} us of the server,"
        f" latency {half:7.0f} us (p50) {late:7.0f} us (p99)"
    )


def _server_cpu(asked: Any) -> float:
    used = asked.info("cpu")
    return used["used_cpu_user"] + used["used_cpu_sys"]


def main(what: str = "", number: str = "") -> None:
    durable = ["--appendonly", "yes", "--appendfsync", "always"]
    with tempfile.TemporaryDirectory() as folder:
        match what:
            case "cancel":
                with redis_server(Path(folder)) as server:
                    lines = asyncio.run(cancel(server, int(number or 1_000_000)))
            case "kill":
                with redis_server(Path(folder), durable) as server:
                    lines = asyncio.run(kill(server, int(number or 20)))
            case "measure":
                with redis_server(Path(folder)) as server:
                    lines = asyncio.run(measure(server))
            case _:
                sys.exit("usage: scripts/store cancel|kill|measure [NUMBER]")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
