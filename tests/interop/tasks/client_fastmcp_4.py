"""The tasks package of FastMCP 4.x, as a client of our_server.py.

    python client_fastmcp_4.py '{"era": "2026-07-28", "http": "http://...", "scenarios": []}'

or with "stdio", a command. Run by the Python of the package's environment. Plays the scenarios of
client_mcp_1.py under the same names, and prints the same lines.

Rules: judges nothing. Imports nothing of ours.
"""

# pyright: reportMissingImports=false

import asyncio
import json
import sys
import traceback
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp_tasks import ToolTask, call_tool_task
from fastmcp_tasks.client_models import ClientCreateTaskResult
from mcp.shared.exceptions import MCPError

SCENARIO_S = 30.0
MODERN = "2026-07-28"
asked: list[str] = []


async def elicited(message: str, response_type: Any, params: Any, context: Any) -> Any:
    asked.append(message)
    return {"value": 3}


def connected(spec: dict[str, Any]) -> Any:
    if "stdio" in spec:
        command, *args = spec["stdio"]
        way: Any = StdioTransport(command=command, args=args)
    else:
        way = StreamableHttpTransport(spec["http"])
    return Client(way, elicitation_handler=elicited)


def wire(value: Any) -> Any:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def result_of(result: Any) -> dict[str, Any]:
    return {"text": result.content[0].text, "isError": result.is_error}


class Scenarios:
    """Each method is a scenario; what it returns is what was seen."""

    def __init__(self, client: Any, spec: dict[str, Any]) -> None:
        self.client, self.spec = client, spec

    async def start(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        return await call_tool_task(self.client, name, arguments, raise_on_error=False)

    async def created(self) -> Any:
        return wire((await self.start("book", {"topic": "tea"})).create_result)

    async def result(self) -> Any:
        task = await self.start("book", {"topic": "tea"})
        statuses = [(await task.status()).status]
        statuses.append((await task.wait()).status)
        return {"statuses": statuses, **result_of(await task.result())}

    async def input(self) -> Any:
        asked.clear()
        task = await self.start("order", {"title": "Tea"})
        statuses = [(await task.wait(state="input_required")).status]
        result = await task.result()
        statuses.append((await task.status()).status)
        return {"statuses": statuses, "asked": list(asked), **result_of(result)}

    async def call(self) -> Any:
        asked.clear()
        result = await self.client.call_tool("order", {"title": "Tea"})
        return {"asked": list(asked), **result_of(result)}

    async def cancelled(self) -> Any:
        task = await self.start("forever")
        await task.cancel()
        return {"statuses": [(await task.wait()).status]}

    async def error(self) -> Any:
        task = await self.start("misprint")
        statuses = [(await task.wait()).status]
        return {"statuses": statuses, **result_of(await task.result())}

    async def unknown(self) -> Any:
        now = "2026-01-01T00:00:00Z"
        lost = ClientCreateTaskResult(
            resultType="task",
            taskId="no-such-task",
            status="working",
            createdAt=now,
            lastUpdatedAt=now,
        )
        try:
            return wire(await ToolTask(self.client, "book", lost).status())
        except MCPError as error:
            return {"code": error.error.code}

    async def resumed(self) -> Any:
        task = await self.start("book", {"topic": "tea"})
        async with connected(self.spec) as other:
            return result_of(await ToolTask(other, "book", task.create_result).result())


async def main(spec: dict[str, Any]) -> None:
    async with connected(spec) as client:
        played = Scenarios(client, spec)
        for name in spec["scenarios"]:
            try:
                seen = await asyncio.wait_for(getattr(played, name)(), SCENARIO_S)
                line = {"scenario": name, "seen": seen}
            except Exception:
                line = {"scenario": name, "failed": traceback.format_exc()}
            print(json.dumps(line), flush=True)


asyncio.run(main(json.loads(sys.argv[1])))
