"""What tests of tasks share: a client of either generation, and waiting for a status.

    async with client_of(server) as client:
        id = (await client.call("add", {"a": 1, "b": 2}))["taskId"]
        assert (await ended(client, id))["status"] == "completed"

Rules: as in `talk`, whose schemas include that of the extension. Every wait ends.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from colonnade import Server
from colonnade.protocol import types as t
from colonnade.protocol.negotiation import Callers
from colonnade.protocol.revision import JULY_2026, Revision, Tasks
from server.raw_client import EVERYTHING, Client, Reply, no_input_expected, raw_client

JSON = dict[str, Any]
EXTENSION = t.TASKS_EXTENSION_ID
DECLARED: JSON = {**EVERYTHING, "extensions": {EXTENSION: {}}}
TERMINAL = ("completed", "failed", "cancelled")
WAIT_S = 60.0
RELATED = "io.modelcontextprotocol/related-task"


@asynccontextmanager
async def client_of(
    server: Server,
    revision: Revision = JULY_2026,
    *,
    answer: Reply = no_input_expected,
    principal: str = "",
    scopes: frozenset[str] | None = None,
    callers: Callers = Callers.SINGLE,
    can: JSON | None = None,
) -> AsyncGenerator[Client]:
    """A client that declares tasks, in memory."""
    declared = DECLARED if revision.tasks is Tasks.EXTENSION else EVERYTHING
    async with raw_client(
        server,
        revision,
        can=declared if can is None else can,
        answer=answer,
        principal=principal,
        callers=callers,
    ) as client:
        client.duplex.link.scopes = scopes
        yield client


async def start(client: Client, tool: str, arguments: JSON | None = None, **params: Any) -> JSON:
    """Call a tool as a task, in the generation of the client; the task as it was created."""
    if client.revision.tasks is Tasks.CORE:
        params.setdefault("task", {})
        return (await client.call(tool, arguments or {}, **params))["task"]
    return await client.call(tool, arguments or {}, **params)


async def get(client: Client, id: str) -> JSON:
    return await client.ask("tasks/get", {"taskId": id})


# Polls without a pause.
AT_ONCE = 20


async def until(client: Client, id: str, true: Callable[[JSON], bool]) -> JSON:
    """Poll until the task is as wanted."""
    async with asyncio.timeout(WAIT_S):
        polls = 0
        while not true(state := await get(client, id)):
            # At once first, also for a clock that stands still; then within the limit of requests
            # per second.
            await asyncio.sleep(0 if polls < AT_ONCE else 0.005)
            polls += 1
    return state


async def reached(client: Client, id: str, *statuses: str) -> JSON:
    """Poll until the task has one of these statuses."""
    return await until(client, id, lambda state: state["status"] in statuses)


async def ended(client: Client, id: str) -> JSON:
    """Poll until the task has ended."""
    return await reached(client, id, *TERMINAL)


async def update(client: Client, id: str, responses: JSON) -> JSON:
    return await client.ask("tasks/update", {"taskId": id, "inputResponses": responses})


def accepted(**content: Any) -> JSON:
    """The response to a form."""
    return {"action": "accept", "content": content}
