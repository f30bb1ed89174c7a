"""Tools: definitions, calls, errors."""

import asyncio
import threading
from typing import Annotated, Any, Literal

from msgspec import Meta

from colonnade import Context, Icon, Server, ToolError
from colonnade.protocol.revision import Revision
from features.feature import (
    JSON,
    WORKS,
    Group,
    Verdict,
    failure,
    fallback,
    refusal,
    refused,
    tool_of,
)
from live import Records
from server.raw_client import Client, raw_client, text_content

TOOLS = Group("Tools")
FAILED = fallback("`isError` result")
WITHOUT = fallback("omitted")


def weather(**options: Any) -> Server:
    """A server with one tool with these options."""
    server = Server("weather")

    @server.tool(**options)
    async def forecast(city: str, days: Annotated[int, Meta(ge=1, le=10)] = 3) -> str:
        """Forecast for a city.

        Args:
            city: Name of the city.
        """
        return f"{city} {days}"

    return server


async def listed(server: Server, revision: Revision) -> JSON:
    """The listed tool of a server, after a call of it."""
    async with raw_client(server, revision) as client:
        (tool,) = (await client.ask("tools/list"))["tools"]
        assert await client.text(tool["name"], {"city": "Oslo"}) == "Oslo 3"
    return tool


@TOOLS.feature("tool name that some clients hide: listed, with a warning in the log", WORKS)
async def strange_name(revision: Revision) -> Verdict:
    with Records("colonnade.server") as log:
        server = weather(name="fore cast/now")
    assert "some clients hide names" in "".join(log.lines)
    assert (await listed(server, revision))["name"] == "fore cast/now"
    return WORKS


@TOOLS.feature(
    "title", fallback("in the description"), fallback("in the annotations"), *3 * [WORKS]
)
async def title(revision: Revision) -> Verdict:
    tool = await listed(weather(title="Weather ahead"), revision)
    if "title" in tool:
        assert tool["title"] == "Weather ahead"
        return WORKS
    if "annotations" in tool:
        assert tool["annotations"] == {"title": "Weather ahead"}
        return fallback("in the annotations")
    assert tool["description"] == "Weather ahead: Forecast for a city."
    return fallback("in the description")


@TOOLS.feature("icons", *3 * [WITHOUT], *2 * [WORKS])
async def icons(revision: Revision) -> Verdict:
    tool = await listed(weather(icons=[Icon(src="https://example.com/i.png")]), revision)
    if "icons" not in tool:
        return WITHOUT
    assert tool["icons"] == [{"src": "https://example.com/i.png"}]
    return WORKS


@TOOLS.feature("tool annotations as keywords (`read_only=True`)", WITHOUT, *4 * [WORKS])
async def annotations(revision: Revision) -> Verdict:
    server = weather(read_only=True, destructive=False, idempotent=True, open_world=False)
    tool = await listed(server, revision)
    if "annotations" not in tool:
        return WITHOUT
    hints = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    assert [tool["annotations"][hint] for hint in hints] == [True, False, True, False]
    return WORKS


@TOOLS.feature("`_meta`", *2 * [WITHOUT], *3 * [WORKS])
async def meta(revision: Revision) -> Verdict:
    tool = await listed(weather(meta={"example.com/cost": 3}), revision)
    if "_meta" not in tool:
        return WITHOUT
    assert tool["_meta"] == {"example.com/cost": 3}
    return WORKS


@TOOLS.feature("input schema from signature and docstring", WORKS)
async def input_schema(revision: Revision) -> Verdict:
    tool = await listed(weather(), revision)
    schema = tool["inputSchema"]
    assert tool["description"] == "Forecast for a city."
    assert schema["type"] == "object"
    assert schema["properties"]["city"] == {"type": "string", "description": "Name of the city."}
    days = schema["properties"]["days"]
    assert [days[word] for word in ("type", "minimum", "maximum", "default")] == [
        "integer",
        1,
        10,
        3,
    ]
    assert schema["required"] == ["city"]
    return WORKS


RAW: JSON = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"enum": [3, 5]}},
    "required": ["city"],
}


@TOOLS.feature("input schema as a raw JSON Schema, listed unchanged and validated", WORKS)
async def raw_schema(revision: Revision) -> Verdict:
    server = weather(input_schema=RAW)
    assert (await listed(server, revision))["inputSchema"] == RAW
    async with raw_client(server, revision) as client:
        assert "days" in await client.refused("forecast", {"city": "Oslo", "days": 4})
    return WORKS


@TOOLS.feature(
    "boolean subschemas in a raw JSON Schema", *4 * [fallback("as `{}`, `{not: {}}`")], WORKS
)
async def boolean_schemas(revision: Revision) -> Verdict:
    given = RAW | {"properties": {"city": True, "days": {"type": "integer"}, "never": False}}
    properties = (await listed(weather(input_schema=given), revision))["inputSchema"]["properties"]
    if (properties["city"], properties["never"]) == (True, False):
        return WORKS
    assert (properties["city"], properties["never"]) == ({}, {"not": {}})
    return fallback("as `{}`, `{not: {}}`")


# ---------------------------------------------------------------- calls


@TOOLS.feature("lenient values: a number as a string, `4.0` for an integer", WORKS)
async def loose(revision: Revision) -> Verdict:
    async with raw_client(weather(), revision) as client:
        assert await client.text("forecast", {"city": "Oslo", "days": "4"}) == "Oslo 4"
        assert await client.text("forecast", {"city": "Oslo", "days": 4.0}) == "Oslo 4"
        # A string stays one, whatever it looks like.
        assert await client.text("forecast", {"city": "12"}) == "12 3"
    return WORKS


@TOOLS.feature("timeout of a tool (`timeout_s`)", FAILED)
async def time_out(revision: Revision) -> Verdict:
    server, stopped = Server("s"), asyncio.Event()

    @server.tool(timeout_s=0.01)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with raw_client(server, revision) as client:
        seen = await failure(client.call("slow"), "slow did not finish within 0.01 s")
        assert stopped.is_set()
    return seen


@TOOLS.feature("sync function, in a thread and inline", WORKS)
async def inline(revision: Revision) -> Verdict:
    server, here = Server("s"), threading.get_ident()

    @server.tool
    def threaded() -> bool:
        return threading.get_ident() == here

    @server.tool(inline=True)
    def inline() -> bool:
        return threading.get_ident() == here

    async with raw_client(server, revision) as client:
        assert await client.text("threaded") == "false"
        assert await client.text("inline") == "true"
    return WORKS


# ---------------------------------------------------------------- errors


async def bad(client: Client, arguments: Any, mentions: str) -> Verdict:
    return await failure(client.call("forecast", arguments), mentions)


@TOOLS.feature(
    "invalid arguments, with a message for the model", *3 * [refused(-32602)], *2 * [FAILED]
)
async def bad_arguments(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast(city: str, unit: Literal["C", "F"] = "C") -> None: ...

    async with raw_client(server, revision) as client:
        seen = [
            await bad(client, {}, "forecast: missing required argument 'city'"),
            await bad(client, {"city": 3.5}, "forecast: city: expected a string, got a number"),
            await bad(client, {"city": "Oslo", "unti": "C"}, "did you mean 'unit'?"),
            await bad(client, {"city": "Oslo", "unit": "K"}, "unit: expected one of 'C', 'F'"),
        ]
    assert len(set(seen)) == 1
    return seen[0]


@TOOLS.feature("arguments that are not an object", refused(-32602))
async def no_object(revision: Revision) -> Verdict:
    async with raw_client(weather(), revision) as client:
        return await bad(client, ["Oslo"], "arguments")


@TOOLS.feature("unknown tool", refused(-32602))
async def unknown_tool(revision: Revision) -> Verdict:
    async with raw_client(weather(), revision) as client:
        return await refusal(client.call("forcast"), "'forcast'")


@TOOLS.feature("`raise ToolError(...)`", FAILED)
async def tool_error(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast() -> str:
        raise ToolError("No city 'Olso'. Did you mean 'Oslo'?")

    async with raw_client(server, revision) as client:
        return await failure(client.call("forecast"), "No city 'Olso'. Did you mean 'Oslo'?")


@TOOLS.feature(
    "unhandled exception: an error id that is in the log, no details",
    fallback("`isError` result with the id"),
)
async def crash(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast(ctx: Context) -> str:
        raise ValueError("the password is swordfish")

    meta = {} if revision.handshake else {"io.modelcontextprotocol/logLevel": "debug"}
    with Records("colonnade.server") as log:
        async with raw_client(server, revision, meta=meta) as client:
            if revision.handshake:
                await client.ask("logging/setLevel", {"level": "debug"})
            result = await client.call("forecast")
            assert "swordfish" not in str(client.received)
    assert result["isError"] is True
    said = text_content(result)
    assert said.startswith("forecast failed (id ")
    id = said.removeprefix("forecast failed (id ").removesuffix(")")
    assert len(id) >= 6
    assert id in "".join(log.lines)
    return fallback("`isError` result with the id")


@TOOLS.feature("call without the tool's scopes", refused(-32600))
async def scopes(revision: Revision) -> Verdict:
    server = weather(scopes={"weather:read"})
    async with raw_client(server, revision, principal="ann") as client:
        return await refusal(client.call("forecast", {"city": "Oslo"}), "weather:read")


# ---------------------------------------------------------------- a server without tasks


@TOOLS.feature("`task` parameter, without the tasks capability", fallback("a normal call"))
async def task_parameter(revision: Revision) -> Verdict:
    server = weather()
    async with raw_client(server, revision) as client:
        tool = await tool_of(client, "forecast")
        assert "execution" not in tool
        if revision.handshake:
            offered = client.received[0]["result"]["capabilities"]
        else:
            offered = (await client.ask("server/discover"))["capabilities"]
        assert "tasks" not in offered
        assert "extensions" not in offered
        result = await client.call("forecast", {"city": "Oslo"}, task={"ttl": 60_000})
        assert text_content(result) == "Oslo 3"
    return fallback("a normal call")


@TOOLS.feature("`tasks/get`, without the tasks capability", refused(-32601))
async def task_methods(revision: Revision) -> Verdict:
    async with raw_client(weather(), revision) as client:
        return await refusal(client.ask("tasks/get", {"taskId": "x"}))
