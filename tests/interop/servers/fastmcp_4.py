"""The things of a server on FastMCP, 4.x, by its public decorators.

    python fastmcp_4.py stdio | http | sse

Rules: run by the Python of FastMCP's environment; imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import asyncio
import sys
from typing import Annotated, Any

from events import RETRY_MS, Events
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.utilities.types import Audio, Image
from loopback import serve
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    InputRequiredResult,
    ListRootsRequest,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel, Field
from shared_data import INSTRUCTIONS, NAME, PIXEL, SILENCE, VERSION, Waits, starting_with

server = FastMCP(NAME, version=VERSION, instructions=INSTRUCTIONS, list_page_size=5)
waits = Waits()
events = Events()
MODERN = "2026-07-28"


class Forecast(BaseModel):
    city: str
    celsius: float


class Person(BaseModel):
    name: str
    polite: bool = True


# ---------------------------------------------------------------- tools: what they return


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}"


@server.tool
def forecast(city: str) -> Forecast:
    """A forecast."""
    return Forecast(city=city, celsius=21.5)


@server.tool
def numbers() -> list[int]:
    """Three numbers."""
    return [1, 2, 3]


@server.tool
def picture() -> Image:
    """A picture."""
    return Image(data=PIXEL, format="png")


@server.tool
def sound() -> Audio:
    """A sound."""
    return Audio(data=SILENCE, format="wav")


@server.tool
def document() -> EmbeddedResource:
    """A text that comes along."""
    text = TextResourceContents(uri="test://inside", mime_type="text/plain", text="Inside.")
    return EmbeddedResource(type="resource", resource=text)


@server.tool
def link() -> ResourceLink:
    """Where a text is."""
    return ResourceLink(type="resource_link", name="text", uri="test://text")


@server.tool
def fail() -> str:
    """Fail."""
    raise ToolError("It cannot be done")


@server.tool
def region(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Say where; the argument is mirrored in a header where there are such."""
    return f"Region {region}"


# ---------------------------------------------------------------- tools: while they run


@server.tool
async def steps(ctx: Context) -> str:
    """Three steps."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    return "done"


@server.tool
async def talk(ctx: Context) -> str:
    """Say a word on the side."""
    await ctx.info("a word")
    return "said"


@server.tool
async def wait(ctx: Context) -> str:
    """Wait to be cancelled."""
    await ctx.report_progress(1, 2, "waiting")
    return await waits.one()


@server.tool
async def waited() -> str:
    """How the last call that waited has ended."""
    return await waits.last()


@server.tool
async def drop(ctx: Context) -> str:
    """Drop the stream, and answer to whoever comes back for it."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return "back"


@server.tool
def replays() -> int:
    """How often somebody came back."""
    return events.replays


def extra() -> str:
    """Came later."""
    return "extra"


@server.tool
async def change(ctx: Context) -> str:
    """Have a tool more."""
    server.tool(extra)
    await ctx.session.send_tool_list_changed()
    return "changed"


# ---------------------------------------------------------------- tools that ask


# A question by result where the revision has those, else by request: FastMCP has two roads.


def modern(ctx: Context) -> bool:
    context: Any = ctx.request_context
    return context.protocol_version == MODERN


def answer(ctx: Context) -> Any:
    return (ctx.input_responses or {}).get("asked")


def asking(request: Any) -> InputRequiredResult:
    return InputRequiredResult(input_requests={"asked": request}, request_state="asked once")


@server.tool
async def ask_name(ctx: Context) -> str | InputRequiredResult:
    """Ask for a name."""
    if not modern(ctx):
        asked: Any = await ctx.elicit("Who are you?", Person)
        who = asked.data
    elif answer(ctx) is None:
        schema = Person.model_json_schema()
        params = ElicitRequestFormParams(message="Who are you?", requested_schema=schema)
        return asking(ElicitRequest(params=params))
    else:
        who = Person(**answer(ctx).content)
    return f"Hello, {who.name}, {'polite' if who.polite else 'rude'}"


@server.tool
async def ask_model(ctx: Context) -> str | InputRequiredResult:
    """Ask a model."""
    words = TextContent(type="text", text="Which city?")
    messages = [SamplingMessage(role="user", content=words)]
    if not modern(ctx):
        said: Any = await ctx.session.create_message(messages, max_tokens=100)
    elif answer(ctx) is None:
        params = CreateMessageRequestParams(messages=messages, max_tokens=100)
        return asking(CreateMessageRequest(params=params))
    else:
        said = answer(ctx)
    return f"The model says: {said.content.text}"


@server.tool
async def ask_roots(ctx: Context) -> str | InputRequiredResult:
    """Ask for folders."""
    if not modern(ctx):
        found: Any = await ctx.session.list_roots()
    elif answer(ctx) is None:
        return asking(ListRootsRequest())
    else:
        found = answer(ctx)
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


@server.prompt
def hello() -> str:
    """Say hello."""
    return "Say hello."


@server.prompt
def review(code: str, language: str = "python") -> str:
    """Review some code."""
    return f"Review this {language}: {code}"


@server.completion
def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    return starting_with(argument.value)


if __name__ == "__main__":
    way = sys.argv[1]
    if way == "stdio":
        server.run("stdio", show_banner=False)
    elif way == "sse":
        serve(server.http_app(path="/sse", transport="sse"), "/sse")
    else:
        app = server.http_app(path="/mcp", event_store=events, retry_interval=RETRY_MS)
        serve(app, "/mcp")
