"""A server whose tools run as tasks until a test lets them go on, and what its tests ask of them."""

import asyncio
from collections.abc import Callable
from typing import Any

from colonnade import Context, Server, ToolError
from colonnade.client.client import Client
from colonnade.errors import Fault, FaultKind
from colonnade.ports import Handler, RequestContext
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import Tasks
from colonnade.store.memory import MemoryStore
from gateway.recorded import Cell


class Press:
    """A server with tools that run as tasks until a test lets them go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        # Whether its tasks are lost, which it says in words of its own.
        self.is_lost = False
        # Changes results of the server.
        self.change: Callable[[t.ProtocolType], t.ProtocolType] = lambda result: result
        self.server = server = Server("press", store=MemoryStore(), middleware=[self._changed])
        server.tool(task=True)(self.book)
        server.tool(task="required")(self.must)
        server.tool(task=True)(self.ask)
        server.tool(task=True)(self.fail)
        server.tool(self.plain)

    async def _changed(self, request: RequestContext, call_next: Handler) -> t.ProtocolType:
        if self.is_lost and request.method.startswith("tasks/"):
            raise Fault(FaultKind.INVALID_PARAMS, "Task 12 not found")
        return self.change(await call_next(request))

    async def book(self, ctx: Context) -> str:
        await ctx.progress(1, 2, "chapter 1")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        await ctx.progress(2, 2, "chapter 2")
        return "a book"

    async def must(self) -> dict[str, int]:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return {"pages": 7}

    async def ask(self, ctx: Context) -> str:
        return f"{await ctx.elicit('How many pages?', int)} pages"

    async def fail(self) -> str:
        raise ToolError("no paper")

    async def plain(self) -> str:
        return "at once"


def pages(_: Any) -> int:
    return 20


def ids_of(cell: Cell) -> tuple[str, str]:
    """The id of the first task, as the client and the server know it."""
    found: list[str] = []
    for wire in (cell.client_wire, cell.server_wire):
        made = [one.get("task", one) for one in wire.results(Side.SERVER)]
        found.append(next(one["taskId"] for one in made if "taskId" in one))
    return found[0], found[1]


def about(client: Client, id: str) -> dict[str, Any]:
    """Every request about one task that the revision of a client has."""
    if client.peer.revision.tasks is Tasks.CORE:
        return {
            "tasks/get": t.GetTaskRequestParams(task_id=id),
            "tasks/result": t.GetTaskPayloadRequestParams(task_id=id),
            "tasks/cancel": t.CancelTaskRequestParams(task_id=id),
        }
    return {
        "tasks/get": t.ExtGetTaskRequestParams(task_id=id),
        "tasks/update": t.ExtUpdateTaskRequestParams(task_id=id, input_responses={}),
        "tasks/cancel": t.ExtCancelTaskRequestParams(task_id=id),
    }
