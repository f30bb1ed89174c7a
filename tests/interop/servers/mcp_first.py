"""A few things of a server on the official Python SDK as it was at first, 1.0 to 1.8, by the
decorators that all of these have.

    python mcp_first.py stdio

Rules: run by the Python of the SDK's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import asyncio
from typing import Any

import mcp.types as t
from mcp.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from shared_data import NAME, VERSION, starting_with

server: Any = Server(NAME)
NONE = {"type": "object", "properties": {}}
NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}


@server.list_tools()
async def list_tools() -> list[t.Tool]:
    schema = {"type": "object", "properties": NUMBERS, "required": ["a", "b"]}
    return [
        t.Tool(name="add", description="Add two numbers.", inputSchema=schema),
        t.Tool(name="fail", description="Fail.", inputSchema=NONE),
        t.Tool(name="steps", description="Three steps.", inputSchema=NONE),
        t.Tool(name="talk", description="Say a word on the side.", inputSchema=NONE),
        t.Tool(name="ask_model", description="Ask a model.", inputSchema=NONE),
        t.Tool(name="ask_roots", description="Ask for folders.", inputSchema=NONE),
    ]


@server.call_tool()
async def call_tool(name: str, arguments: dict[str, Any] | None) -> list[t.TextContent]:
    return [t.TextContent(type="text", text=await called(name, arguments or {}))]


async def called(name: str, arguments: dict[str, Any]) -> str:
    context = server.request_context
    session = context.session
    if name == "add":
        return str(arguments["a"] + arguments["b"])
    if name == "steps":
        for step in (1, 2, 3) if context.meta else ():  # 1.0 does not read it
            await session.send_progress_notification(context.meta.progressToken, step, 3)
        return "done"
    if name == "talk":
        await session.send_log_message("info", "a word")
        return "said"
    if name == "ask_model":
        words = t.TextContent(type="text", text="Which city?")
        message = t.SamplingMessage(role="user", content=words)
        said = await session.create_message([message], max_tokens=100)
        return f"The model says: {said.content.text}"
    if name == "ask_roots":
        found = await session.list_roots()
        return f"Roots: {', '.join(str(root.uri) for root in found.roots)}"
    raise ValueError("It cannot be done" if name == "fail" else f"there is no tool {name}")


@server.list_resources()
async def list_resources() -> list[t.Resource]:
    uri: Any = "test://text"
    return [t.Resource(uri=uri, name="text", mimeType="text/plain")]


async def list_resource_templates(_: Any) -> t.ServerResult:
    note = t.ResourceTemplate(uriTemplate="test://notes/{name}", name="note")
    return t.ServerResult(t.ListResourceTemplatesResult(resourceTemplates=[note]))


# 1.0 has no decorator for it.
server.request_handlers[t.ListResourceTemplatesRequest] = list_resource_templates


@server.read_resource()
async def read_resource(uri: Any) -> str:
    _, is_note, name = str(uri).partition("test://notes/")
    return f"Note {name}." if is_note else "A text."


@server.list_prompts()
async def list_prompts() -> list[t.Prompt]:
    argument = t.PromptArgument(name="language", required=False)
    return [t.Prompt(name="review", description="Review some code.", arguments=[argument])]


@server.get_prompt()
async def get_prompt(name: str, arguments: dict[str, str] | None) -> t.GetPromptResult:
    words = f"Review this {(arguments or {}).get('language', 'python')}"
    message = t.PromptMessage(role="user", content=t.TextContent(type="text", text=words))
    return t.GetPromptResult(messages=[message])


@server.completion()
async def complete(ref: Any, argument: Any) -> t.Completion:
    return t.Completion(values=starting_with(argument.value), hasMore=False)


@server.set_logging_level()
async def set_logging_level(level: str) -> None:
    """Every level is sent."""


async def main() -> None:
    options = InitializationOptions(
        server_name=NAME,
        server_version=VERSION,
        capabilities=server.get_capabilities(NotificationOptions(), {}),
    )
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


if __name__ == "__main__":
    asyncio.run(main())
