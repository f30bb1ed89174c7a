"""Our own client stays logged in for a month through two servers on one store that are restarted.

The clients of other SDKs do the same with processes, and with a simulated clock of their own, in
`scripts/interop login`.
"""

import contextlib
from collections import Counter

from auth.proxied import KEY, READ, WRITE, Clock, LiveProxy, notes
from auth.upstream import CANARY, ISSUER, UpstreamReplica
from colonnade import Protection, connect
from colonnade.auth import OAuthProxy
from colonnade.store.memory import MemoryStore
from colonnade.transport.http_server.runner import HttpRunner
from live import live
from relay import Relay

DAYS = 30
DAY_S = 24 * 3600.0
# Within the minute of the provider's token, after it, and after the quarter of an hour of ours.
PAUSES_S = (0.0, 30.0, 61.0, 1000.0)


class TwoServers:
    """Two servers with a proxy on one store, behind a relay."""

    def __init__(self, relay: Relay, stack: contextlib.AsyncExitStack) -> None:
        self.clock = Clock()
        self.store = MemoryStore(clock=self.clock, is_shared=True)
        self.replica = UpstreamReplica(f"{relay.url}/oauth/callback", life_s=60.0)
        self.relay = relay
        self.url = f"{relay.url}/mcp"
        self.stack = stack
        self.runners: list[HttpRunner] = []

    async def start(self) -> None:
        """Start one more server."""
        proxy = OAuthProxy(self.replica.provider(), scopes=[WRITE])
        protection = Protection(self.url, proxy, scopes=[READ], clock=self.clock)
        runner = HttpRunner(notes(protection, store=self.store, keys=(KEY,)).asgi(), port=0)
        await runner.start()
        self.stack.push_async_callback(runner.stop)
        self.runners.append(runner)
        self.relay.ports.append(runner.port)

    async def restart(self) -> None:
        """Replace the older server by a new one."""
        await self.start()
        self.relay.ports.pop(0)
        await self.runners.pop(0).stop()


@live
async def test_two_users_log_in_once_in_a_month_and_once_after_a_revocation() -> None:
    seen: Counter[str] = Counter()

    def note(line: str, headers: dict[str, str], body: bytes, response: bytes) -> None:
        seen["responses"] += 1
        seen["tokens of the provider"] += CANARY.encode() in response

    async with Relay([]) as relay, contextlib.AsyncExitStack() as stack:
        relay.on_response = note
        servers = TwoServers(relay, stack)
        for _ in range(2):
            await servers.start()
        users = {user: LiveProxy(servers.url, servers.replica) for user in ("ann", "bob")}
        logins = {user: live_proxy.login(user) for user, live_proxy in users.items()}

        async def call(user: str) -> None:
            async with connect(servers.url, auth=logins[user]) as client:
                assert (await client.call_tool("whoami", {})).text == f"{ISSUER}#{user}"

        for day in range(DAYS):
            if day % 10 == 5:
                await servers.restart()
            for pause_s in PAUSES_S if day % 10 == 0 else (0.0,):
                servers.clock.forward(pause_s)
                for user in users:
                    await call(user)
            servers.clock.forward(DAY_S)
        assert [one.logins for one in users.values()] == [1, 1]
        found = servers.replica.refreshes
        servers.replica.refreshes = {one: user for one, user in found.items() if user != "ann"}
        for user in (*users, *users):
            await call(user)
        assert [one.logins for one in users.values()] == [2, 1]
        assert seen["tokens of the provider"] == 0
        assert seen["responses"] > 2 * DAYS
        assert servers.replica.counts["logins"] == 3
