"""One server that offers everything, for clients of every revision: run as a process of its own.

    cd tests && python -m wire.server          on its standard streams
    cd tests && python -m wire.server http     on a free port, which it prints

Rules: the public decorators alone, and richer than any revision: every field that some revision
knows is set somewhere. Nothing here looks at the revision of its caller.
"""

import asyncio
import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from colonnade import (
    Annotations,
    Audio,
    Context,
    File,
    Image,
    Link,
    Message,
    Server,
    ToolError,
    ToolReturn,
)
from colonnade.protocol import types as t
from wire.server_content import FOLDER, ICON, MARKS, PIXEL, SILENCE, blocks, contents
from wire.server_input_requests import asking

if TYPE_CHECKING:  # on a pipe nothing of HTTP is loaded
    from colonnade.transport.http_server.runner import HttpRunner

server = Server(
    "wire",
    version="1.0",
    title="The wire",
    description="Offers everything.",
    website_url="https://example.com/wire",
    icons=[ICON],
    instructions="Call anything.",
    page_size=12,
    ttl_s=60,
    cache_scope="public",
)


# ---------------------------------------------------------------- tools: what they return


@dataclass
class Weather:
    city: str
    degrees: float
    winds: list[str] = field(default_factory=lambda: ["north"])


@server.tool(
    title="Forecast",
    icons=[ICON],
    read_only=True,
    destructive=False,
    idempotent=True,
    open_world=False,
    meta={"example.com/cost": 1},
    tags={"weather"},
)
async def forecast(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> Weather:
    """Forecast for a city.

    Args:
        city: Name of the city.
        days: How many days ahead.
    """
    return Weather(city, 4.5)


@server.tool(title="Count")
async def count() -> int:
    """A result that is no object."""
    return 3


@server.tool
async def several() -> list[str]:
    """A result that is a list."""
    return ["one", "two"]


@server.tool
async def perhaps(given: bool = False) -> Weather | None:
    """A result that is an object, or nothing at all."""
    return Weather("Oslo", 1) if given else None


@server.tool(structured_only=True)
async def bare() -> Weather:
    """Structured, without a copy in words."""
    return Weather("Oslo", 2)


@server.tool(
    input_schema={"type": "object", "properties": {"any": True, "none": False}},
    output_schema={"type": "array", "items": True},
)
async def anything(**given: Any) -> list[Any]:
    """Schemas that are written out, with true and false in them."""
    return [given, None, 1.5]


@server.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
async def full() -> ToolReturn:
    """All that a result can say."""
    return ToolReturn("in words", data={"n": 1}, meta={"example.com/trace": "t1"})


@server.tool
async def every_block() -> list[Any]:
    """One block of every kind, with all that each can say."""
    return blocks()


@server.tool
async def short_blocks() -> list[str | Image | Audio | File | Link]:
    """One block of every kind, the short way."""
    return [
        "words",
        Image(PIXEL, format="png"),
        Audio(SILENCE, format="wav"),
        File("some text", uri="notes://embedded"),
        File(PIXEL, uri="notes://pixel", mime_type="image/png"),
        Link("notes://plain", title="Plain", mime_type="text/plain"),
    ]


@server.tool
async def nothing() -> None:
    """Returns nothing."""


@server.tool
async def half() -> str:
    """Text with half a character, which cannot be sent as it is."""
    return "half \ud83d"


# ---------------------------------------------------------------- tools: how they fail


@server.tool
async def refuse() -> str:
    """Fails in words."""
    raise ToolError("No city 'Olso'. Did you mean 'Oslo'?")


@server.tool
async def crash() -> str:
    """Fails in a way that nobody wrote words for."""
    raise RuntimeError("the password is swordfish")


@server.tool(timeout_s=0.05)
async def slow() -> str:
    """Takes longer than it may."""
    await asyncio.Event().wait()
    return "never"


@server.tool
async def broken_promise() -> Weather:
    """Returns what its schema does not say."""
    return {"city": 1}  # type: ignore[return-value]


# ---------------------------------------------------------------- tools: while they run


@server.tool
async def report(ctx: Context) -> str:
    """Reports progress and logs on its way."""
    await ctx.progress(1, 4)
    await ctx.debug("a detail")
    await ctx.info({"city": "Oslo"}, logger="wire")
    await ctx.progress(2.5, 4, "half way")
    await ctx.warning("careful")
    await ctx.emergency("the end")
    await ctx.progress(4, 4, "done")
    return "reported"


stopped: dict[str, asyncio.Event] = {}
released: dict[str, asyncio.Event] = {}


@server.tool
async def wait(key: str, ctx: Context) -> str:
    """Says that it runs, then waits until it is released or stopped."""
    stopped[key], released[key] = asyncio.Event(), asyncio.Event()
    await ctx.progress(1)
    try:
        await released[key].wait()
    except asyncio.CancelledError:
        stopped[key].set()
        raise
    return f"{key}: released"


@server.tool
async def release(key: str) -> str:
    """Lets what waits go on."""
    released[key].set()
    return f"{key}: go on"


@server.tool
async def was_stopped(key: str) -> str:
    """Waits until what waited was stopped."""
    await stopped[key].wait()
    return f"{key}: stopped"


@server.tool
async def let_go(key: str, ctx: Context) -> str:
    """Lets the connection go before it is done, and goes on when it is told to."""
    released[key] = asyncio.Event()
    await ctx.hang_up()
    await released[key].wait()
    return f"{key}: done"


@server.tool
async def who(ctx: Context) -> str:
    """Who calls."""
    name = ctx.client.name if ctx.client else "somebody"
    return f"{name} speaks {ctx.revision}"


@server.tool
async def look(uri: str, ctx: Context) -> str:
    """Reads one of the server's own resources."""
    return (await ctx.read(uri)).contents[0].text or ""


server.mount(asking)


# ---------------------------------------------------------------- tools: state and news


@dataclass
class Basket:
    items: list[str] = field(default_factory=list[str])


baskets = server.handles("basket", Basket)


@server.tool
async def open_basket(ctx: Context) -> str:
    """A new basket; gives its handle."""
    return await baskets.create(ctx, Basket())


@server.tool
async def fill_basket(basket: str, item: str, ctx: Context) -> Basket:
    """Puts something into a basket."""
    found = await baskets.get(ctx, basket)
    found.items.append(item)
    await baskets.put(ctx, basket, found)
    return found


async def fleeting() -> str:
    """Comes and goes."""
    return "here"


@server.tool
async def change(what: Literal["tools", "prompts", "resources"]) -> str:
    """Adds something, or takes it away again; clients are told."""
    shelves: dict[str, Any] = {
        "tools": (server.tools, "fleeting", server.tool),
        "prompts": (server.prompts, "fleeting", server.prompt),
        "resources": (server.resources, "notes://fleeting", server.resource("notes://fleeting")),
    }
    shelf, name, offer = shelves[what]
    there = name in shelf
    shelf.remove(name) if there else offer(fleeting)
    return f"{what} {'removed' if there else 'added'}"


@server.tool
async def touch(uri: str) -> str:
    """Says that a resource has changed."""
    server.updated(uri)
    return f"{uri} touched"


@server.tool
async def region(
    where: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    """Takes an argument that newer clients repeat in a header."""
    return where


maps = Server("maps")


@maps.tool
async def route(to: str) -> str:
    """Belongs to another server, which is mounted here."""
    return f"to {to}"


server.mount(maps, namespace="maps")


# ---------------------------------------------------------------- resources


@server.resource(
    "notes://plain",
    title="Plain",
    description="A plain note.",
    mime_type="text/markdown",
    size=6,
    icons=[ICON],
    annotations=MARKS,
    ttl_s=5,
    cache_scope="public",
    meta={"example.com/shelf": 1},
)
async def plain() -> str:
    return "# Note"


@server.resource("notes://pixel", mime_type="image/png", size=len(PIXEL))
async def pixel() -> bytes:
    """A picture."""
    return PIXEL


@server.resource("notes://several")
async def several_notes() -> list[Any]:
    """Several contents."""
    return [*contents(), "text", b"bytes"]


@server.resource("notes://record")
async def record() -> dict[str, Any]:
    """A record, as JSON."""
    return {"n": 1}


@server.resource("notes://asks")
async def asking_note(ctx: Context) -> str:
    """A note that depends on the user."""
    return f"for {await ctx.elicit('For whom?', str, key='whom')}"


@server.resource("notes://crash")
async def crashing_note() -> str:
    """A note that cannot be read."""
    raise RuntimeError("the password is swordfish")


@server.resource(
    "shelf://{name}/{part}",
    title="Shelf",
    mime_type="text/plain",
    icons=[ICON],
    annotations=Annotations(audience=["user"], last_modified="2025-01-01T00:00:00Z"),
    meta={"example.com/shelf": 2},
)
async def shelf(name: str, part: Literal["top", "bottom"]) -> str:
    """A part of a shelf."""
    return f"{part} of {name}"


@server.completion(shelf, "name")
async def shelf_names(typed: str, part: str = "any") -> list[str]:
    return [f"{part}-{number}" for number in range(120)] if typed == "" else ["oak", "okapi"]


@server.resource("box://oak/{part}")
async def box(part: str) -> str:
    """What is in a part of the box."""
    return f"{part} of the box"


server.files("files://", FOLDER, title="Files")


# ---------------------------------------------------------------- prompts


@server.prompt(title="Review", icons=[ICON], meta={"example.com/prompt": 1})
async def review(
    code: Annotated[str, Meta(title="Code", description="What to look at.")],
    language: Literal["python", "go"] = "python",
    strict: bool = False,
) -> str:
    """Asks for a review."""
    return f"Review this {language}{', strictly' if strict else ''}: {code}"


@server.prompt
async def every_message() -> list[Message | t.PromptMessage]:
    """A message of every kind."""
    said = [t.PromptMessage(role="user", content=block) for block in blocks()]
    return [Message("Hello"), Message("Hello yourself", role="assistant"), *said]


@server.prompt
async def asking_prompt(ctx: Context) -> str:
    """A prompt that depends on the user."""
    return f"about {await ctx.elicit('About what?', str, key='about')}"


@server.prompt
async def crashing_prompt() -> str:
    """A prompt that fails."""
    raise RuntimeError("the password is swordfish")


@server.prompt
async def refusing_prompt() -> str:
    """A prompt that fails in words."""
    raise ToolError("there is nothing to review today")


def announce(site: "HttpRunner") -> None:
    """Say where it is, for whoever started it."""
    print(site.url, flush=True)


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr)
    if sys.argv[1:] == ["http"]:
        server.run("http", port=0, started=announce)
    else:
        server.run()
