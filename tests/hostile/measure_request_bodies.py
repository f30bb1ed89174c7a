"""Memory that calls with large bodies hold while their tool waits for an answer to an elicitation,
with their client connected and after it has hung up.

    .venv/bin/python tests/hostile/measure_request_bodies.py

Rules: loopback only, any free port. Sends at most 100 calls of 3.5 MiB, and ends by itself.
"""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "support"
sys.path[:0] = [str(SUPPORT)]

from hostile.child import child  # noqa: E402
from http_client import Caller  # noqa: E402

MIB = 1024 * 1024
CALLS = 100
# Below the limit on one session's streams.
PER_SESSION = 50
BODY_BYTES = 7 * MIB // 2
# The server looks for clients that have gone once a second.
HANG_UP_S = 5.0
TIME_S = 300.0


async def measure() -> None:
    async with asyncio.timeout(TIME_S):
        with child("http") as server:
            port = int(server.line())
            callers: list[Caller] = []
            statuses: Counter[int] = Counter()
            before = server.memory()
            text = json.dumps({"text": "x" * BODY_BYTES})
            arguments = json.loads(text)
            for n in range(CALLS):
                if n % PER_SESSION == 0:
                    callers.append(Caller(port))
                    await callers[-1].initialize("2025-11-25", {"elicitation": {}})
                params = {"name": "confirm", "arguments": arguments}
                _, response = await callers[-1].asking("tools/call", params, id=n)
                statuses[response.status] += 1
                if response.is_stream:
                    await response.message()
                elif n == CALLS - 1:
                    print(f"  refused: {(await response.read()).decode()}")
            print(f"{CALLS} calls with bodies of {BODY_BYTES / MIB:.1f} MiB: {dict(statuses)}")
            print(f"  memory while they wait: +{(server.memory() - before) / MIB:.0f} MiB")
            for caller in callers:
                for wire in caller.wires:
                    wire.abort()
            await asyncio.sleep(HANG_UP_S)
            print(
                f"  memory {HANG_UP_S:g} s after all clients hung up: "
                f"+{(server.memory() - before) / MIB:.0f} MiB"
            )


if __name__ == "__main__":
    asyncio.run(measure())
