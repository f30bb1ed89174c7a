"""A replica in a process of its own, on a file: prints its name, then each effect of its tools.

It runs requests for others until its input ends. The lines of its input are what else it does:
`broadcast`, `change` a list, `take` tokens of a limit until there are no more.
"""

import asyncio
import sys
import time

from colonnade.protocol import types as t
from colonnade.replicas.changes import SharedChanges
from colonnade.replicas.replica import Replica
from colonnade.replicas.shared_tokens import SharedTokens
from colonnade.store.sqlite import SqliteStore
from replicas.remote import RemoteReplica


def say(*words: str) -> None:
    """Print a line at once."""
    print(*words, flush=True)


def shared_tokens(store: SqliteStore, now: float) -> SharedTokens:
    """The tokens of a limit of 100 in the window at this time."""
    return SharedTokens(store, "", 1.0, 100, lambda: now, 10)


async def main(path: str) -> None:
    """Serve until the input ends."""
    store = SqliteStore(path)
    replica = Replica(store)
    own = RemoteReplica(replica, time.time, lambda effect: say("effect", effect))

    async def echo(sender: str, body: bytes) -> bytes:
        say("asked", body.decode())
        return body * 2

    replica.handle("double", echo)
    await replica.start()
    say("name", replica.name)
    changes = SharedChanges(store, "shop", lambda method, _: say("changed", method))
    await changes.start()
    while line := await asyncio.to_thread(sys.stdin.readline):
        match line.split():
            case ["broadcast", word]:
                await replica.broadcast("line", word.encode())
            case ["change", method]:
                changes.publish(method, t.NotificationParams())
            case ["take", now]:
                tokens = shared_tokens(store, float(now))
                taken = 0
                while not await tokens.take("ada"):
                    taken += 1
                say("taken", str(taken))
            case words:
                say("unknown", *words)
    await changes.stop()
    await own.remote.close()
    await replica.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
