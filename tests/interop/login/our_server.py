"""A server whose users log in through an `OAuthProxy`, as one of several processes on one store.

    python our_server.py SPEC PORT

SPEC is JSON: `resource` and `issuer` as clients see them, the `path` of the MCP endpoint, the
issuer of the `provider` with its `client`, the `store` (an SQLite file or a redis:// URL), and the
file of the `clock`, if time is simulated.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from colonnade import Context, Server
from colonnade.auth import OAuthProxy, Protection, Provider
from colonnade.ports import Store
from colonnade.store.sqlite import SqliteStore
from interop.login.simulated_clock import SimulatedClock

READ, WRITE = "notes:read", "notes:write"


def open_store(url: str, clock: SimulatedClock) -> Store:
    """The store; Redis has a clock of its own, which is not simulated."""
    if url.startswith("redis"):
        redis: Any = importlib.import_module("colonnade.store.redis")
        return redis.RedisStore(url)
    return SqliteStore(url, clock=clock)


def make_server(spec: dict[str, Any]) -> Server:
    clock = SimulatedClock(Path(spec["clock"]))
    client_id, client_secret = spec["client"]
    provider = Provider(
        name="Example ID",
        issuer=spec["provider"],
        client_id=client_id,
        client_secret=client_secret,
        scopes=("openid", "profile", "offline_access"),
    )
    proxy = OAuthProxy(provider, scopes=[WRITE], issuer=spec["issuer"])
    protection = Protection(spec["resource"], proxy, scopes=[READ], clock=clock)
    store = open_store(spec["store"], clock)
    server = Server("notes", version="1", auth=protection, store=store, keys=[b"k" * 32])

    @server.tool
    def whoami(ctx: Context) -> str:
        """The user and the client of the token, and the process."""
        found = {"user": ctx.claims["sub"], "client": ctx.claims["client_id"], "pid": os.getpid()}
        assert ctx.principal == f"{spec['provider']}#{found['user']}"
        return json.dumps(found)

    return server


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    make_server(given).run("http", port=int(sys.argv[2]), path=given["path"])
