"""The things of a server on the official Python SDK, 1.x, by its public decorators.

    python mcp_1.py stdio | http | sse | json | stateless

Rules: run by the Python of the SDK's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import asyncio
import sys
from typing import Annotated, Any

from events import RETRY_MS, Events
from loopback import serve
from mcp.server.fastmcp import Audio, Context, FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import (
    Completion,
    EmbeddedResource,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import AnyUrl, BaseModel, Field
from shared_data import INSTRUCTIONS, NAME, PIXEL, SILENCE, Waits, starting_with

way = sys.argv[1]
waits = Waits()
events = Events()
server = FastMCP(
    NAME,
    instructions=INSTRUCTIONS,
    log_level="WARNING",
    event_store=events if way == "http" else None,
    retry_interval=RETRY_MS,
    json_response=way == "json",
    stateless_http=way == "stateless",
)


class Forecast(BaseModel):
    city: str
    celsius: float


class Person(BaseModel):
    name: str
    polite: bool = True


# ---------------------------------------------------------------- tools: what they return


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}"


@server.tool()
def forecast(city: str) -> Forecast:
    """A forecast."""
    return Forecast(city=city, celsius=21.5)


@server.tool()
def numbers() -> list[int]:
    """Three numbers."""
    return [1, 2, 3]


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool()
def sound() -> Audio:
    """A sound."""
    return Audio(data=SILENCE, format="wav")


@server.tool()
def document() -> EmbeddedResource:
    """A text that comes along."""
    text = TextResourceContents(uri=AnyUrl("test://inside"), mimeType="text/plain", text="Inside.")
    return EmbeddedResource(type="resource", resource=text)


@server.tool()
def link() -> ResourceLink:
    """Where a text is."""
    return ResourceLink(type="resource_link", name="text", uri=AnyUrl("test://text"))


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("It cannot be done")


@server.tool()
def region(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Say where; the argument is mirrored in a header where there are such."""
    return f"Region {region}"


# ---------------------------------------------------------------- tools: while they run


@server.tool()
async def steps(ctx: Context) -> str:
    """Three steps."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


@server.tool()
async def talk(ctx: Context) -> str:
    """Say a word on the side."""
    await ctx.info("a word")
    return "said"


@server.tool()
async def wait(ctx: Context) -> str:
    """Wait to be cancelled."""
    await ctx.report_progress(1, 2, "waiting")
    return await waits.one()


@server.tool()
async def waited() -> str:
    """How the last call that waited has ended."""
    return await waits.last()


@server.tool()
async def drop(ctx: Context) -> str:
    """Drop the stream, and answer to whoever comes back for it."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return "back"


@server.tool()
def replays() -> int:
    """How often somebody came back."""
    return events.replays


def extra() -> str:
    """Came later."""
    return "extra"


@server.tool()
async def change(ctx: Context) -> str:
    """Have a tool more."""
    server.add_tool(extra)
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.tool()
async def touch(ctx: Context) -> str:
    """Change a text."""
    await ctx.session.send_resource_updated(AnyUrl("test://text"))
    return "touched"


# ---------------------------------------------------------------- tools that ask


@server.tool()
async def ask_name(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("Who are you?", Person)
    if answer.action != "accept":
        raise ToolError(f"They chose to {answer.action}")
    who = answer.data
    return f"Hello, {who.name}, {'polite' if who.polite else 'rude'}"


@server.tool()
async def ask_model(ctx: Context) -> str:
    """Ask a model."""
    words = TextContent(type="text", text="Which city?")
    message = SamplingMessage(role="user", content=words)
    said = await ctx.session.create_message([message], max_tokens=100)
    content: Any = said.content
    return f"The model says: {content.text}"


@server.tool()
async def ask_roots(ctx: Context) -> str:
    """Ask for folders."""
    found = await ctx.session.list_roots()
    return f"Roots: {', '.join(str(root.uri) for root in found.roots)}"


# ---------------------------------------------------------------- resources and prompts


@server.resource("test://text", mime_type="text/plain")
def text() -> str:
    """A text."""
    return "A text."


@server.resource("test://pixel", mime_type="image/png")
def pixel() -> bytes:
    """A picture."""
    return PIXEL


@server.resource("test://notes/{name}", mime_type="text/plain")
def note(name: str) -> str:
    """A note."""
    return f"Note {name}."


@server.prompt()
def hello() -> str:
    """Say hello."""
    return "Say hello."


@server.prompt()
def review(code: str, language: str = "python") -> str:
    """Review some code."""
    return f"Review this {language}: {code}"


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> Completion | None:
    return Completion(values=starting_with(argument.value), hasMore=False)


if __name__ == "__main__":
    if way == "stdio":
        server.run("stdio")
    elif way == "sse":
        serve(server.sse_app(), "/sse")
    else:
        serve(server.streamable_http_app(), "/mcp")
