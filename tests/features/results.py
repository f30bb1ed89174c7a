"""Tool results: structured content, images, audio, embedded resources, resource links."""

import base64
from dataclasses import dataclass
from typing import Any

from colonnade import Audio, File, Image, Link, Server, ToolReturn
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from features.feature import JSON, WORKS, Group, Verdict, fallback, tool_of
from server.raw_client import raw_client, text_content

RESULTS = Group("Tool results, structured output and content")
AS_TEXT = fallback("as text")
WRAPPED = fallback("as `{result: …}`")


@dataclass
class Forecast:
    city: str
    days: int


async def returned(value: Any, revision: Revision, **options: Any) -> JSON:
    """The result of a tool without a return type that returns this value."""
    server = Server("s")

    @server.tool(**options)
    async def give() -> Any:
        return value

    async with raw_client(server, revision) as client:
        return await client.call("give")


async def block(value: Any, revision: Revision) -> JSON:
    """The content block of a returned value."""
    (found,) = (await returned(value, revision))["content"]
    return found


def decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


# ---------------------------------------------------------------- structured content


@RESULTS.feature("output schema from the return type", *2 * [fallback("omitted")], *3 * [WORKS])
async def output_schema(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with raw_client(server, revision) as client:
        tool = await tool_of(client, "forecast")
        assert text_content(await client.call("forecast")) == '{"city":"Oslo","days":3}'
    if "outputSchema" not in tool:
        return fallback("omitted")
    assert tool["outputSchema"]["type"] == "object"
    assert tool["outputSchema"]["properties"]["days"] == {"type": "integer"}
    assert tool["outputSchema"]["required"] == ["city", "days"]
    return WORKS


@RESULTS.feature(
    "structured content, and the same as text", *2 * [fallback("text only")], *3 * [WORKS]
)
async def structured(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with raw_client(server, revision) as client:
        result = await client.call("forecast")
    assert text_content(result) == '{"city":"Oslo","days":3}'
    if "structuredContent" not in result:
        return fallback("text only")
    assert result["structuredContent"] == {"city": "Oslo", "days": 3}
    return WORKS


@RESULTS.feature(
    "structured content only (`structured_only=True`)", *2 * [fallback("text only")], *3 * [WORKS]
)
async def one_copy(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool(structured_only=True)
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with raw_client(server, revision) as client:
        result = await client.call("forecast")
    if "structuredContent" not in result:
        assert text_content(result) == '{"city":"Oslo","days":3}'
        return fallback("text only")
    assert result["structuredContent"] == {"city": "Oslo", "days": 3}
    assert result["content"] == []
    return WORKS


@RESULTS.feature("structured content that is not an object", *2 * [AS_TEXT], *2 * [WRAPPED], WORKS)
async def no_object(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def count() -> list[int]:
        return [1, 2]

    @server.tool
    async def count_freely() -> ToolReturn:
        return ToolReturn(data=[1, 2])

    async with raw_client(server, revision) as client:
        tool = await tool_of(client, "count")
        result = await client.call("count")
        free = await client.call("count_freely")
    assert text_content(result) == text_content(free) == "[1,2]"
    assert free.get("structuredContent") == result.get("structuredContent")
    if "structuredContent" not in result:
        assert "outputSchema" not in tool
        return AS_TEXT
    schema = tool["outputSchema"]
    if isinstance(result["structuredContent"], dict):
        assert result["structuredContent"] == {"result": [1, 2]}
        assert schema["type"] == "object"
        assert schema["required"] == ["result"]
        assert schema["properties"]["result"]["items"] == {"type": "integer"}
        return WRAPPED
    assert result["structuredContent"] == [1, 2]
    assert (schema["type"], schema["items"]) == ("array", {"type": "integer"})
    return WORKS


@RESULTS.feature(
    "`ToolReturn(...)`: content, structured content and `_meta`",
    *2 * [fallback("without structured content")],
    *3 * [WORKS],
)
async def whole(revision: Revision) -> Verdict:
    value = ToolReturn("fine", data={"days": 3}, meta={"example.com/cost": 3})
    result = await returned(value, revision)
    assert text_content(result) == "fine"
    assert result["_meta"]["example.com/cost"] == 3
    if "structuredContent" not in result:
        return fallback("without structured content")
    assert result["structuredContent"] == {"days": 3}
    return WORKS


@RESULTS.feature(
    "result that does not match the output schema", fallback("`isError` result with an id")
)
async def broken_promise(revision: Revision) -> Verdict:
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    seen = await returned({"days": 3}, revision, output_schema=schema)
    assert seen.get("structuredContent") in (None, {"days": 3})
    assert text_content(seen) == '{"days":3}'
    result = await returned({"days": "many"}, revision, output_schema=schema)
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert text_content(result).startswith("give failed (id ")
    return fallback("`isError` result with an id")


# ---------------------------------------------------------------- content


@RESULTS.feature("image", WORKS)
async def image(revision: Revision) -> Verdict:
    found = await block(Image(b"\x89PNG", format="png"), revision)
    assert (found["type"], found["mimeType"]) == ("image", "image/png")
    assert decoded(found["data"]) == b"\x89PNG"
    return WORKS


class Plot:
    """An object with a rich display."""

    def _repr_png_(self) -> bytes:
        return b"\x89PNG"


@RESULTS.feature("object with a rich display (`_repr_png_`)", WORKS)
async def shown(revision: Revision) -> Verdict:
    found = await block(Plot(), revision)
    assert (found["type"], decoded(found["data"])) == ("image", b"\x89PNG")
    return WORKS


@RESULTS.feature("audio", fallback("as an embedded resource"), *4 * [WORKS])
async def audio(revision: Revision) -> Verdict:
    found = await block(Audio(b"RIFF", format="wav"), revision)
    if found["type"] == "audio":
        assert (found["mimeType"], decoded(found["data"])) == ("audio/wav", b"RIFF")
        return WORKS
    assert found["type"] == "resource"
    inside = found["resource"]
    assert (inside["mimeType"], decoded(inside["blob"])) == ("audio/wav", b"RIFF")
    return fallback("as an embedded resource")


@RESULTS.feature("embedded resource, text or binary", WORKS)
async def embedded(revision: Revision) -> Verdict:
    text = File("# Hi", uri="notes://a", mime_type="text/markdown")
    raw = File(b"\x00\xff", uri="notes://b", mime_type="application/x-thing")
    one, two = (await returned([text, raw], revision))["content"]
    assert one["type"] == two["type"] == "resource"
    assert one["resource"] == {"uri": "notes://a", "mimeType": "text/markdown", "text": "# Hi"}
    assert (two["resource"]["uri"], decoded(two["resource"]["blob"])) == ("notes://b", b"\x00\xff")
    return WORKS


@RESULTS.feature("resource link", *2 * [fallback("as text with the URI")], *3 * [WORKS])
async def link(revision: Revision) -> Verdict:
    found = await block(Link("notes://b", "b", title="Note B", mime_type="text/plain"), revision)
    if found["type"] == "resource_link":
        assert (found["uri"], found["name"], found["title"]) == ("notes://b", "b", "Note B")
        return WORKS
    assert found == {"type": "text", "text": "Note B: notes://b"}
    return fallback("as text with the URI")


@RESULTS.feature("several content blocks", WORKS)
async def several(revision: Revision) -> Verdict:
    value = ["words", Image(b"i"), File("text"), b"raw", {"a": 1}]
    content = (await returned(value, revision))["content"]
    assert [one["type"] for one in content] == ["text", "image", "resource", "resource", "text"]
    assert (content[0]["text"], content[-1]["text"]) == ("words", '{"a":1}')
    return WORKS


@RESULTS.feature("content annotations (`audience`, `priority`)", WORKS)
async def audience(revision: Revision) -> Verdict:
    notes = t.Annotations(audience=["user"], priority=0.5)
    found = await block(t.TextContent(text="x", annotations=notes), revision)
    assert found["annotations"] == {"audience": ["user"], "priority": 0.5}
    return WORKS


@RESULTS.feature("content annotation `lastModified`", *2 * [fallback("omitted")], *3 * [WORKS])
async def last_modified(revision: Revision) -> Verdict:
    notes = t.Annotations(priority=1, last_modified="2026-01-02T03:04:05Z")
    found = await block(t.TextContent(text="x", annotations=notes), revision)
    assert found["annotations"]["priority"] == 1
    if "lastModified" not in found["annotations"]:
        return fallback("omitted")
    assert found["annotations"]["lastModified"] == "2026-01-02T03:04:05Z"
    return WORKS


@RESULTS.feature("lone surrogates in text are replaced", WORKS)
async def put_right(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def give() -> dict[str, list[str]]:
        return {"a": ["half \ud800", "whole \ud83d\ude00"]}

    async with raw_client(server, revision) as client:
        assert await client.text("give") == '{"a":["half \ufffd","whole 😀"]}'
    return WORKS
