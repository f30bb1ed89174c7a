"""Many callers of a gateway, one of whom crashes the server whenever it can: what the others notice.

    PYTHONPATH=tests:tests/support python tests/support/gateway/crashing.py [--principals N] [--calls N]

Each client has a principal of its own, or with `anonymous` a session of its own without one. One of
them calls a tool that ends its process until all others are done. A call of another client has
succeeded, was refused (nothing was sent), or was lost (it was in a process that ended).

Rules: children on pipes, and nothing else; bounded in count, and ends by itself.
"""

import argparse
import asyncio
import itertools
import logging
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from colonnade import Gateway, Host
from colonnade.client.client import Client
from colonnade.host.servers.session import Status
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revisions
from colonnade.transport.memory import connected_pair, serve_end
from host.supervised import HANDSHAKE, command, entry

INFO = t.Implementation(name="crashing", version="1")
# Between two attempts of the caller that crashes: it is refused at once, in the same process.
PAUSE_S = 0.005
# Attempts of the caller that crashes before the others come.
ALONE = 8
# Others that have calls at the same time, and the most sessions: some for those that are ending.
AT_ONCE, SESSIONS = 20, 40
# What begins the text of a call that was refused, and that of one that was lost.
REFUSED, LOST = "failed", "exited"


class Figures(NamedTuple):
    """What became of the calls of the others, how often the server was crashed, and its status."""

    succeeded: int
    refused: int
    lost: int
    crashes: int
    status: Status
    texts: Counter[str]

    def __str__(self) -> str:
        total = self.succeeded + self.refused + self.lost
        return (
            f"{total:,} calls of others: {self.refused:,} refused, {self.lost:,} lost; "
            f"{self.crashes:,} crashes"
        )


async def crashing(
    sharing: str = "caller",
    *,
    principals: int = 200,
    calls: int = 30,
    kind: str = "legacy",
    anonymous: bool = False,
    tool: str = "die",
    **settings: Any,
) -> Figures:
    """Let all clients call, and one of them crash the server with `tool`."""
    if kind != "modern":
        settings["revision"] = HANDSHAKE
    target = entry(command(kind), key="s", sharing=sharing, max_sessions=SESSIONS, **settings)
    kinds: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(Host({"s": target}))
        gateway = Gateway(host)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        (revision,) = Revisions.of(HANDSHAKE)
        numbers = itertools.count()

        @asynccontextmanager
        async def connected(number: int) -> AsyncGenerator[Client]:
            near, far = connected_pair()
            far_end = serve_end(far, gateway, principal="" if anonymous else f"p{number}")
            far_end.id = f"session-{next(numbers)}"
            client = Client(near.open_conversation, None, info=INFO)
            await client.open(revision)
            try:
                yield client
            finally:
                await client.close()

        is_done = asyncio.Event()
        first = asyncio.Event()

        async def crash() -> None:
            async with connected(0) as client:
                for attempt in itertools.count():
                    if is_done.is_set():
                        break
                    await client.call_tool(f"s__{tool}")
                    if attempt >= ALONE:
                        first.set()
                    await asyncio.sleep(PAUSE_S)

        at_once = asyncio.Semaphore(AT_ONCE)

        async def use(number: int) -> None:
            async with at_once, connected(number) as client:
                for _ in range(calls):
                    result = await client.call_tool("s__who")
                    if not result.is_error:
                        kinds["succeeded"] += 1
                        continue
                    kinds["refused" if REFUSED in result.text else "lost"] += 1
                    texts[result.text[:200]] += 1

        attack = asyncio.create_task(crash())
        try:
            await first.wait()
            await asyncio.gather(*(use(one) for one in range(1, principals)))
            (status,) = host.status()
        finally:
            is_done.set()
            await attack
    return Figures(
        kinds["succeeded"], kinds["refused"], kinds["lost"], status.crashes, status, texts
    )


PRINCIPALS, ANONYMOUS = "a process for each principal", "a process for each anonymous session"
CASES: dict[str, Any] = {
    PRINCIPALS: {},
    "the same, max_crashes = 100000": {"max_crashes": 100_000},
    ANONYMOUS: {"anonymous": True},
    "one pool": {"sharing": "pooled"},
    "one process for all": {"sharing": "shared"},
    "one process for all, 2026-07-28": {"kind": "modern"},
}


def main() -> None:
    """Print the figures of all cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--principals", type=int, default=200)
    parser.add_argument("--calls", type=int, default=30)
    chosen = parser.parse_args()
    logging.getLogger("colonnade").setLevel(logging.CRITICAL)
    for name, more in CASES.items():
        found = asyncio.run(crashing(principals=chosen.principals, calls=chosen.calls, **more))
        print(f"{name}: {found}")
        for text, times in found.texts.most_common(3):
            print(f"    {times} x {text}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
