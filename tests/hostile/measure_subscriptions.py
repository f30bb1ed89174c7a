"""Memory that `subscriptions/listen` requests with many URIs hold while their streams are open.

    .venv/bin/python tests/hostile/measure_subscriptions.py

Rules: loopback only, any free port. Opens at most 20 streams, and ends by itself.
"""

import asyncio
import json
import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from hostile.child import Child, child  # noqa: E402
from http_client import Caller  # noqa: E402

MIB = 1024 * 1024
STREAMS = 20
# Short URIs cost most: 230,000 of them fit into a body below the limit of 4 MiB.
SHORT = 230_000
# The largest filter that is accepted now.
ACCEPTED = 1000
TIME_S = 120.0


async def opened(port: int, server: Child, uris: list[str]) -> None:
    async with Caller(port) as caller:
        params = {"notifications": {"resourceSubscriptions": uris}}
        size = len(json.dumps(params))
        before, accepted, one = server.memory(), 0, 0
        for count in range(STREAMS):
            _, response = await caller.stream("subscriptions/listen", params)
            accepted += response.is_stream
            if response.is_stream:
                await response.event()
            else:
                await response.read()
            one = one or server.memory() - before
            if count == STREAMS - 1 and not response.is_stream:
                print(f"  refused: {response.json['error']}")
        held = server.memory() - before
        print(f"  {len(uris)} URIs, body {size / MIB:.2f} MiB: {accepted} of {STREAMS} accepted")
        print(f"  memory after the first: +{one / MIB:.1f} MiB; after all: +{held / MIB:.1f} MiB")


async def measure() -> None:
    async with asyncio.timeout(TIME_S):
        for uris in (
            [f"huge://{n}" for n in range(SHORT)],
            [f"huge://{n}/{'x' * 100}" for n in range(ACCEPTED)],
        ):
            with child("http") as server:
                port = int(server.line())
                print("subscriptions/listen")
                await opened(port, server, uris)


if __name__ == "__main__":
    asyncio.run(measure())
