"""Tools that run as tasks on the official Python SDK 1.x, by its experimental API.

    python server_mcp_1.py stdio | http

Rules: run by the Python of the SDK's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import contextlib
import sys
import warnings
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
from mcp import types as t
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "servers"))
warnings.simplefilter("ignore")

CHAPTER_S = 0.2
COPIES = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
server: Any = Server("press", version="1.0")
server.experimental.enable_tasks()


def said(words: str, is_error: bool = False) -> Any:
    return t.CallToolResult(content=[t.TextContent(type="text", text=words)], isError=is_error)


@server.list_tools()
async def list_tools() -> list[Any]:
    modes = {"book": "optional", "order": "required", "forever": "required"}
    modes |= {"misprint": "required", "fire": "required"}
    return [
        t.Tool(
            name=name, inputSchema={"type": "object"}, execution=t.ToolExecution(taskSupport=mode)
        )
        for name, mode in modes.items()
    ]


@server.call_tool()
async def call_tool(name: str, given: dict[str, Any]) -> Any:
    asked = server.request_context.experimental
    if not asked.is_task:
        return said("without a task")

    async def work(task: Any) -> Any:
        if name == "book":
            await task.update_status("chapter 1")
            await anyio.sleep(CHAPTER_S)
            return said(f"a book about {given['topic']}")
        if name == "order":
            answer = await task.elicit(f"How many copies of {given['title']}?", COPIES)
            return said(f"{answer.content['value']} copies of {given['title']}")
        if name == "misprint":
            return said("out of paper", True)
        if name == "fire":
            raise RuntimeError("the press burns")
        return await anyio.sleep_forever()

    return await asked.run_task(work)


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def over_http() -> None:
    from loopback import serve
    from starlette.applications import Starlette
    from starlette.routing import Mount

    manager = StreamableHTTPSessionManager(app=server)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncGenerator[None]:
        async with manager.run():
            yield

    serve(Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan), "/mcp/")


if sys.argv[1] == "stdio":
    anyio.run(over_stdio)
else:
    over_http()
