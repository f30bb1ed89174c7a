"""Replicas of one gateway in one loop, on one store, behind a round robin of their clients.

    async with replicas(Notebook()) as fleet:
        assert await fleet.call("add", note="x") == "1"   # at the first replica
        assert await fleet.call("add", note="y") == "2"   # at the second

Rules: nothing waits for time to pass. A replica is killed as others see it: it has no lease and
listens to nothing. One that is stopped has no lease, and goes on as before.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from msgspec import Raw

from colonnade import Context, Server
from colonnade.client.client import Client
from colonnade.errors import Fault, FaultKind
from colonnade.gateway.homes import GatewayHomes
from colonnade.ports import SERVER_PRINCIPAL, Store
from colonnade.protocol import types as t
from colonnade.protocol.jsonrpc import encode
from colonnade.replicas.replica import Replica
from colonnade.store.memory import MemoryStore
from gateway.recorded import OLD, Cell, recorded

KEYS = [bytes(range(32))]


class Notebook:
    """A server with state for each session, and all that happened in it."""

    def __init__(self) -> None:
        self.notes: dict[int, list[str]] = {}
        self.sessions: list[Any] = []
        self.effects: list[str] = []
        self.cancelled: list[str] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()
        self.may_ask = asyncio.Event()
        self.server = Server("notebook")
        for tool in (self.add, self.slow, self.report, self.ask, self.ask_later, self.lie):
            self.server.tool(tool)

    def _notes(self, ctx: Context) -> list[str]:
        session = ctx.session
        if session not in self.sessions:
            self.sessions.append(session)
        return self.notes.setdefault(self.sessions.index(session), [])

    async def add(self, note: str, ctx: Context) -> str:
        self.effects.append(note)
        notes = self._notes(ctx)
        notes.append(note)
        return f"{len(notes)}"

    async def slow(self, note: str, ctx: Context) -> str:
        """Ends when the test lets it."""
        self.effects.append(note)
        self._notes(ctx).append(note)
        self.begun.put_nowait(note)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(note)
            raise
        return f"done {note}"

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.warning("almost")
        await ctx.progress(2, 2, "whole")
        return "reported"

    async def ask(self, ctx: Context) -> str:
        return await ctx.elicit("Which seat?", str)

    async def ask_later(self, note: str, ctx: Context) -> str:
        """Asks when the test lets it."""
        self.begun.put_nowait(note)
        await self.may_ask.wait()
        return f"{note}: {await ctx.elicit('Which seat?', str)}"

    async def lie(self, note: str, ctx: Context) -> str:
        """Fails as if it were a replica that did not start the call."""
        self.effects.append(note)
        data = {"home": "moved", "effectUnknown": False}
        raise Fault(FaultKind.INTERNAL, "not started", data)


class Fleet:
    """Replicas of one gateway, and a client of each for a principal."""

    def __init__(self, notebook: Notebook, store: Store) -> None:
        self.notebook = notebook
        self.store = store
        self.cells: list[Cell] = []
        self.clients: list[Client] = []
        self._next = 0

    def replica(self, number: int) -> Replica:
        found = self.cells[number].gateway._bridge._replica
        assert found is not None
        return found

    def homes(self, number: int) -> GatewayHomes:
        found = self.cells[number].host._runtime.homes
        assert isinstance(found, GatewayHomes)
        return found

    @property
    def opened(self) -> list[int]:
        """How many sessions of the server each replica has opened."""
        return [sum(bool(wire.frames) for wire in cell.back) for cell in self.cells]

    @property
    def home(self) -> int:
        """The replica that has a session."""
        (found,) = [number for number in range(len(self.cells)) if self.homes(number)._own]
        return found

    def turn(self, *without: int) -> Client:
        """The client of the next replica, round robin."""
        while True:
            number = self._next % len(self.clients)
            self._next += 1
            if number not in without:
                return self.clients[number]

    async def send(self, tool: str, client: Client | None = None, **arguments: Any) -> Any:
        params = t.CallToolRequestParams(name=f"s__{tool}", arguments=Raw(encode(arguments)))
        return await (client or self.turn()).ask("tools/call", params)

    async def call(self, tool: str, client: Client | None = None, **arguments: Any) -> str:
        return said(await self.send(tool, client, **arguments))

    async def kill(self, number: int) -> None:
        """It has ended, as the others see it."""
        replica = self.replica(number)
        for task in (*replica._services, *replica._running):
            task.cancel()
        await self._lapse(number)

    async def _lapse(self, number: int) -> None:
        replica = self.replica(number)
        replica._services[-1].cancel()
        with suppress(asyncio.CancelledError):
            await replica._services[-1]
        replica._lease_until = float("-inf")
        await self.store.delete(SERVER_PRINCIPAL, f"replica {replica.name}")
        for other in range(len(self.cells)):
            self.replica(other)._leases.clear()

    async def stop(self, number: int) -> None:
        """Its lease has lapsed, and it does not know."""
        await self._lapse(number)

    async def resume(self, number: int) -> None:
        """It renews its lease, and notices that it had lapsed."""
        replica = self.replica(number)
        tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work = replica._keep_lease(tried)
        replica._services.append(asyncio.get_running_loop().create_task(work))
        await tried
        for other in range(len(self.cells)):
            self.replica(other)._leases.clear()
        replica._missed()


@asynccontextmanager
async def replicas(
    notebook: Notebook,
    *,
    count: int = 3,
    downstream: str = "2026-07-28",
    upstream: str = OLD,
    store: Store | None = None,
    answers: Any = None,
    principal: str = "ada",
    session: str | None = None,
    **options: Any,
) -> AsyncGenerator[Fleet]:
    fleet = Fleet(notebook, store or MemoryStore(is_shared=True))
    async with AsyncExitStack() as stack:
        for _ in range(count):
            making = recorded(
                notebook.server,
                upstream=upstream,
                downstream=downstream,
                store=fleet.store,
                keys=KEYS,
                **options,
            )
            cell = await stack.enter_async_context(making)
            fleet.cells.append(cell)
            fleet.clients.append(await cell.connect(answers, principal=principal, session=session))
        yield fleet


def said(result: Any) -> str:
    """The text of a result, that of an error included."""
    assert isinstance(result, t.CallToolResult), result
    (block,) = result.content
    assert isinstance(block, t.TextContent)
    return block.text
