"""Tools that run as tasks on FastMCP 4.x, with its tasks package.

    python server_fastmcp_4.py stdio | http

Rules: run by the Python of the package's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as t
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp.shared.exceptions import MCPError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "servers"))

from loopback import serve

CHAPTER_S = 0.2
COPIES = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
server: Any = FastMCP("press", version="1.0")
server.add_extension(TasksExtension())


@server.tool(task=True)
async def book(topic: str) -> str:
    """Write a book."""
    await asyncio.sleep(CHAPTER_S)
    return f"a book about {topic}"


@server.tool(task=TaskConfig(mode="required"))
async def order(title: str, ctx: Context) -> Any:
    """Order printed copies; the question is a result, since `ctx.elicit` is refused in a task."""
    answers = ctx.input_responses
    if not answers:
        params = t.ElicitRequestFormParams(
            message=f"How many copies of {title}?", requested_schema=COPIES
        )
        return t.InputRequiredResult(input_requests={"copies": t.ElicitRequest(params=params)})
    answer: Any = answers["copies"]
    return f"{answer.content['value']} copies of {title}"


@server.tool(task=TaskConfig(mode="required"))
async def forever() -> str:
    """Write until it is cancelled."""
    await asyncio.Event().wait()
    return "never"


@server.tool(task=TaskConfig(mode="required"))
async def misprint() -> str:
    """Fail."""
    raise ToolError("out of paper")


@server.tool(task=TaskConfig(mode="required"))
async def fire() -> str:
    """End with a protocol error."""
    raise MCPError(code=-32603, message="the press burns")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
    else:
        serve(server.http_app(path="/mcp"), "/mcp")
