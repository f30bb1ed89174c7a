"""Rounds of calls that a client makes, as it is told on stdin.

A line of JSON says how long and how many calls are under way at once, {"seconds": 0.5, "flight":
16}; a line comes back, {"calls": 1234, "seconds": 0.5}. The first line out says which revision the
client and the server agreed on. Run by the Python of a client's own environment.

Rules: imports nothing of ours; every answer is looked at.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

ARGUMENTS = {"a": 3, "b": 4}
EXPECTED = "7"

# Calls the tool once, and gives the text that came back.
Call = Callable[[], Awaitable[str]]


async def drive(call: Call, revision: str) -> None:
    """Make rounds until there are no more lines."""
    print(json.dumps({"revision": revision}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        print(json.dumps(await one_round(call, asked["seconds"], asked["flight"])), flush=True)


async def one_round(call: Call, seconds: float, flight: int) -> dict[str, Any]:
    """So many loops that call and call again, until the time is over."""
    begun = time.perf_counter()
    end = begun + seconds
    calls = 0

    async def loop() -> None:
        nonlocal calls
        while True:
            said = await call()
            if said != EXPECTED:
                raise SystemExit(f"{said!r} instead of {EXPECTED!r}")
            calls += 1
            if time.perf_counter() >= end:
                return

    if flight == 1:
        await loop()
    else:
        await asyncio.gather(*(loop() for _ in range(flight)))
    return {"calls": calls, "seconds": time.perf_counter() - begun}
