"""The experimental tasks of the official Python SDK 1.x, as a client of our_server.py.

    python client_mcp_1.py '{"era": "2025-11-25", "http": "http://..."}'

or with "stdio", a command. Run by the Python of the SDK's environment. Plays every scenario and
prints what it saw, a line of JSON for each: {"scenario", "seen"} or {"scenario", "failed"}.

Rules: judges nothing. Imports nothing of ours.
"""

# pyright: reportMissingImports=false

import contextlib
import json
import sys
import traceback
import warnings
from collections.abc import AsyncGenerator
from typing import Any

import anyio
from mcp import ClientSession, McpError, StdioServerParameters
from mcp import types as t
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

SCENARIO_S = 30.0
asked: list[str] = []


def wire(value: Any) -> Any:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


async def elicited(context: Any, params: Any) -> Any:
    asked.append(params.message)
    return t.ElicitResult(action="accept", content={"value": 3})


def result_of(result: Any) -> dict[str, Any]:
    return {
        "text": result.content[0].text,
        "isError": bool(result.isError),
        "related": ((result.meta or {}).get("io.modelcontextprotocol/related-task") or {}),
    }


class Scenarios:
    """Each method is a scenario; what it returns is what was seen."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.tasks = session.experimental

    async def start(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return (await self.tasks.call_tool_as_task(name, arguments or {})).task

    async def statuses(self, task_id: str) -> list[str]:
        return [state.status async for state in self.tasks.poll_task(task_id)]

    async def created(self) -> Any:
        return wire(await self.start("book", {"topic": "tea"}))

    async def result(self) -> Any:
        task = await self.start("book", {"topic": "tea"})
        statuses = await self.statuses(task.taskId)
        result = await self.tasks.get_task_result(task.taskId, t.CallToolResult)
        return {"taskId": task.taskId, "statuses": statuses, **result_of(result)}

    async def input(self) -> Any:
        asked.clear()
        task = await self.start("order", {"title": "Tea"})
        statuses: list[str] = []
        async for state in self.tasks.poll_task(task.taskId):
            statuses.append(state.status)
            if state.status == "input_required":
                break
        result = await self.tasks.get_task_result(task.taskId, t.CallToolResult)
        statuses.append((await self.tasks.get_task(task.taskId)).status)
        return {"taskId": task.taskId, "statuses": statuses, "asked": asked, **result_of(result)}

    async def cancelled(self) -> Any:
        task = await self.start("forever")
        status = (await self.tasks.cancel_task(task.taskId)).status
        return {"statuses": [status, (await self.tasks.get_task(task.taskId)).status]}

    async def error(self) -> Any:
        task = await self.start("misprint")
        statuses = await self.statuses(task.taskId)
        result = await self.tasks.get_task_result(task.taskId, t.CallToolResult)
        return {"taskId": task.taskId, "statuses": statuses, **result_of(result)}

    async def unknown(self) -> Any:
        try:
            return wire(await self.tasks.get_task("no-such-task"))
        except McpError as error:
            return {"code": error.error.code}

    async def plain(self) -> Any:
        try:
            return wire(await self.session.call_tool("order", {"title": "Tea"}))
        except McpError as error:
            return {"code": error.error.code}

    async def list(self) -> Any:
        task = await self.start("book", {"topic": "tea"})
        found = await self.tasks.list_tasks()
        return {"found": task.taskId in [one.taskId for one in found.tasks]}


@contextlib.asynccontextmanager
async def connected(spec: dict[str, Any]) -> AsyncGenerator[Any]:
    if "stdio" in spec:
        command, *args = spec["stdio"]
        way: Any = stdio_client(StdioServerParameters(command=command, args=args))
    else:
        way = streamable_http_client(spec["http"])
    async with (
        way as (read, write, *_),
        ClientSession(read, write, elicitation_callback=elicited) as session,
    ):
        await session.initialize()
        yield session


async def main(spec: dict[str, Any]) -> None:
    async with connected(spec) as session:
        played = Scenarios(session)
        for name in spec["scenarios"]:
            try:
                with anyio.fail_after(SCENARIO_S):
                    line = {"scenario": name, "seen": await getattr(played, name)()}
            except Exception:
                line = {"scenario": name, "failed": traceback.format_exc()}
            print(json.dumps(line), flush=True)


warnings.simplefilter("ignore")
anyio.run(main, json.loads(sys.argv[1]))
