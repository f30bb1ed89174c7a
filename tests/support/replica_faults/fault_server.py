"""A server for tests that injects faults into replicas, as a program over HTTP.

    python fault_server.py STORE LEDGER [PORT]

Prints its URL. STORE is a `redis://` URL. Every effect is a line of the file LEDGER, written when it
happens: its kind, its id, a detail, the process id and the time.

A home is one replica that serves all calls with its name, as the process of a stateful server is: an
entry of the store with an expiry, that its replica renews. Calls that arrive elsewhere are carried
there.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from colonnade import Context, RunLimits, Server, TaskOptions
from colonnade.auth.server.dpop import DpopProof
from colonnade.errors import ColonnadeError, Fault, FaultKind
from colonnade.ports import SERVER_PRINCIPAL, RequestContext, Store
from colonnade.replicas.remote_request import RemoteRequests
from colonnade.replicas.remote_run import RemoteRequestContext
from colonnade.replicas.replica import LEASE_S, Replica
from colonnade.store.limits import StoreLimits
from colonnade.store.redis import RedisStore
from colonnade.transport.http_server.request import Limits

# What DPoP proofs of the tests are for.
PROOF_URL = "http://127.0.0.1/mcp"
PROOF_TOKEN = "token"
# Shorter than by default, so that a task goes on elsewhere while a fault lasts.
TASK_LEASE_S = 3.0
STEP_S = 0.05
# How often homes are renewed.
RENEWAL_S = LEASE_S / 3


class Ledger:
    """A file with one line for each effect."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, id: str, detail: str = "-") -> str:
        """Record an effect, which is this line."""
        os.write(self._file, f"{kind} {id} {detail} {os.getpid()} {time.time():.6f}\n".encode())
        return id


class Homes:
    """The homes that this replica has, and where the others are."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._replica = ""
        # The value in the store, and until when it is ours, by the clock of this process.
        self._held: dict[str, tuple[bytes, float]] = {}
        self._renewing: asyncio.Task[None] | None = None

    def start(self, replica: str) -> None:
        self._replica = replica
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def stop(self) -> None:
        assert self._renewing is not None
        self._renewing.cancel()
        await asyncio.wait([self._renewing])

    def term(self, name: str) -> str | None:
        """What names the time since this replica is the home; None if it is not."""
        value, until = self._held.get(name, (b"", 0.0))
        return value.decode().split()[1] if time.monotonic() < until else None

    async def find(self, name: str) -> str:
        """The replica that is the home of a name: this one, if there was none. Raises
        `ChannelError` and `Fault`."""
        if self.term(name) is not None:
            return self._replica
        key = f"home {name}"
        for _ in range(2):
            value = f"{self._replica} {secrets.token_hex(4)}".encode()
            # The store counts from a later moment.
            until = time.monotonic() + LEASE_S
            if await self._store.add(SERVER_PRINCIPAL, key, value, LEASE_S):
                self._held[name] = (value, until)
                return self._replica
            found = await self._store.get(SERVER_PRINCIPAL, key)
            if found is not None and found.decode().split()[0] != self._replica:
                return found.decode().split()[0]
        raise Fault(FaultKind.INTERNAL, f"no replica is the home of {name} now")

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEWAL_S)
            for name, (value, _) in list(self._held.items()):
                until = time.monotonic() + LEASE_S
                try:
                    ours = await self._store.swap(
                        SERVER_PRINCIPAL, f"home {name}", value, value, LEASE_S
                    )
                except ColonnadeError:
                    continue
                if ours:
                    self._held[name] = (value, until)
                else:
                    del self._held[name]


class FaultServer(Server):
    """A server that carries calls of `visit` to the home that they name."""

    homes: Homes
    remote: RemoteRequests

    async def respond(self, request: RequestContext) -> bytes | None:
        if request.tool == "visit" and not isinstance(request, RemoteRequestContext):
            name = str(request.arguments["home"])
            try:
                home = await self.homes.find(name)
            except (ColonnadeError, Fault) as error:
                request.fault = Fault(FaultKind.INTERNAL, str(error), {"effectUnknown": False})
                return request.exchange.fail(request.fault)
            if self.homes.term(name) is None:
                return await self.remote.run(request, home, name)
        return await super().respond(request)


def make_server(url: str, path: Path) -> Server:
    limits = StoreLimits(principal_bytes=2**33, principal_entries=10_000_000)
    store = RedisStore(url, limits=limits)
    ledger = Ledger(path)
    replica = Replica(store)

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[None]:
        await replica.start()
        server.homes.start(replica.name)
        yield
        await server.homes.stop()
        await server.remote.close()
        await replica.close()
        await store.close()

    tasks = TaskOptions(
        lease_s=TASK_LEASE_S,
        max_unfinished=10_000,
        max_kept=100_000,
        max_attempts=1000,
        requests_per_s=None,
    )
    server = FaultServer("faults", store=store, keys=[b"k" * 32], tasks=tasks, lifespan=lifespan)
    server.homes = Homes(store)
    server.remote = RemoteRequests(replica, server)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def effect(id: str) -> str:
        return ledger.write("effect", id)

    @server.tool
    async def slow(id: str, ctx: Context) -> str:
        """Close the stream of the call, which the client resumes."""
        await ctx.progress(1, 2)
        await ctx.hang_up()
        await asyncio.sleep(0.2)
        return ledger.write("slow", id)

    @server.tool
    async def visit(home: str, id: str) -> str:
        term = server.homes.term(home)
        if term is None:
            raise Fault(
                FaultKind.INTERNAL, "this replica is not the home", {"effectUnknown": False}
            )
        return ledger.write("visit", id, f"{home}/{term}")

    @server.tool(single_use=True)
    async def confirm(id: str, ctx: Context) -> str:
        await ctx.elicit("Go on?", str)
        return ledger.write("confirm", id)

    @server.tool
    async def paint(id: str, ctx: Context) -> str:
        await ctx.elicit("Which color?", str)
        return ledger.write("paint", id)

    @server.tool
    async def redeem(code: str) -> str:
        """Use a code once."""
        if not await store.add("", f"code {code}", b"", 600.0):
            return "refused"
        return ledger.write("redeem", code)

    @server.tool
    async def prove(proof: str) -> str:
        """Use a DPoP proof, as a protected server does."""
        now = time.time()
        read = DpopProof(proof, "POST", PROOF_URL, PROOF_TOKEN, now)
        await read.use("", store, now)
        return ledger.write("prove", read.id)

    @server.tool(task=True)
    async def steps(name: str, count: int, ctx: Context) -> list[str]:
        """Do so many things, each once."""
        done: list[str] = []
        for number in range(count):
            done.append(
                await ctx.once(str(number), lambda n=number: ledger.write("step", f"{name}/{n}"))
            )
            await asyncio.sleep(STEP_S)
        return done

    @server.tool
    async def touch(uri: str) -> None:
        server.updated(uri)

    @server.resource("file:///{name}")
    def file(name: str) -> str:
        return name

    return server


if __name__ == "__main__":
    url, path, *port = sys.argv[1:]
    make_server(url, Path(path)).run(
        "http",
        port=int(port[0]) if port else 0,
        limits=Limits(
            max_sessions=100_000,
            max_concurrent_requests=10_000,
            store_wait_s=float(os.environ.get("STORE_WAIT_S", "20")),
        ),
        run_limits=RunLimits(),
    )
