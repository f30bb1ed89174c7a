"""What tools return: data with and without a schema, pictures, sound, files, links."""

import base64
from dataclasses import dataclass
from typing import Any

from colonnade import Audio, File, Image, Link, Server, ToolReturn
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from features.feature import JSON, WORKS, Group, Verdict, told, tool_of
from server.talk import talk, words

RESULTS = Group("Results of tools")
AS_TEXT = told("as text")
WRAPPED = told("as `{result: …}`")


@dataclass
class Forecast:
    city: str
    days: int


async def returned(value: Any, revision: Revision, **options: Any) -> JSON:
    """What a call comes to whose function returns this, and has no type for it."""
    server = Server("s")

    @server.tool(**options)
    async def give() -> Any:
        return value

    async with talk(server, revision) as client:
        return await client.call("give")


async def block(value: Any, revision: Revision) -> JSON:
    """The one content block that a value becomes."""
    (found,) = (await returned(value, revision))["content"]
    return found


def decoded(data: str) -> bytes:
    return base64.b64decode(data, validate=True)


# ---------------------------------------------------------------- data


@RESULTS.feature(
    "an output schema from the return type", *2 * [told("listed without")], *3 * [WORKS]
)
async def output_schema(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with talk(server, revision) as client:
        tool = await tool_of(client, "forecast")
        assert words(await client.call("forecast")) == '{"city":"Oslo","days":3}'
    if "outputSchema" not in tool:
        return told("listed without")
    assert tool["outputSchema"]["type"] == "object"
    assert tool["outputSchema"]["properties"]["days"] == {"type": "integer"}
    assert tool["outputSchema"]["required"] == ["city", "days"]
    return WORKS


@RESULTS.feature(
    "structured content, with its copy as text", *2 * [told("the text alone")], *3 * [WORKS]
)
async def structured(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with talk(server, revision) as client:
        result = await client.call("forecast")
    assert words(result) == '{"city":"Oslo","days":3}'
    if "structuredContent" not in result:
        return told("the text alone")
    assert result["structuredContent"] == {"city": "Oslo", "days": 3}
    return WORKS


@RESULTS.feature(
    "one copy alone (`structured_only=True`)", *2 * [told("the text alone")], *3 * [WORKS]
)
async def one_copy(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool(structured_only=True)
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with talk(server, revision) as client:
        result = await client.call("forecast")
    if "structuredContent" not in result:
        assert words(result) == '{"city":"Oslo","days":3}'
        return told("the text alone")
    assert result["structuredContent"] == {"city": "Oslo", "days": 3}
    assert result["content"] == []
    return WORKS


@RESULTS.feature("a result that is no object", *2 * [AS_TEXT], *2 * [WRAPPED], WORKS)
async def no_object(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def count() -> list[int]:
        return [1, 2]

    @server.tool
    async def count_freely() -> ToolReturn:
        return ToolReturn(data=[1, 2])

    async with talk(server, revision) as client:
        tool = await tool_of(client, "count")
        result = await client.call("count")
        free = await client.call("count_freely")
    assert words(result) == words(free) == "[1,2]"
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
    "`ToolReturn(...)`: words, data and `_meta`", *2 * [told("without the data")], *3 * [WORKS]
)
async def whole(revision: Revision) -> Verdict:
    value = ToolReturn("fine", data={"days": 3}, meta={"example.com/cost": 3})
    result = await returned(value, revision)
    assert words(result) == "fine"
    assert result["_meta"]["example.com/cost"] == 3
    if "structuredContent" not in result:
        return told("without the data")
    assert result["structuredContent"] == {"days": 3}
    return WORKS


@RESULTS.feature("a result that breaks the schema that was promised", told("isError, with an id"))
async def broken_promise(revision: Revision) -> Verdict:
    schema = {"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]}
    seen = await returned({"days": 3}, revision, output_schema=schema)
    assert seen.get("structuredContent") in (None, {"days": 3})
    assert words(seen) == '{"days":3}'
    result = await returned({"days": "many"}, revision, output_schema=schema)
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert words(result).startswith("give failed (id ")
    return told("isError, with an id")


# ---------------------------------------------------------------- content


@RESULTS.feature("an image", WORKS)
async def image(revision: Revision) -> Verdict:
    found = await block(Image(b"\x89PNG", format="png"), revision)
    assert (found["type"], found["mimeType"]) == ("image", "image/png")
    assert decoded(found["data"]) == b"\x89PNG"
    return WORKS


class Plot:
    """Something that shows itself."""

    def _repr_png_(self) -> bytes:
        return b"\x89PNG"


@RESULTS.feature("something that shows itself (`_repr_png_`)", WORKS)
async def shown(revision: Revision) -> Verdict:
    found = await block(Plot(), revision)
    assert (found["type"], decoded(found["data"])) == ("image", b"\x89PNG")
    return WORKS


@RESULTS.feature("sound", told("as an embedded resource"), *4 * [WORKS])
async def audio(revision: Revision) -> Verdict:
    found = await block(Audio(b"RIFF", format="wav"), revision)
    if found["type"] == "audio":
        assert (found["mimeType"], decoded(found["data"])) == ("audio/wav", b"RIFF")
        return WORKS
    assert found["type"] == "resource"
    inside = found["resource"]
    assert (inside["mimeType"], decoded(inside["blob"])) == ("audio/wav", b"RIFF")
    return told("as an embedded resource")


@RESULTS.feature("a file: an embedded resource, of text or of bytes", WORKS)
async def embedded(revision: Revision) -> Verdict:
    text = File("# Hi", uri="notes://a", mime_type="text/markdown")
    raw = File(b"\x00\xff", uri="notes://b", mime_type="application/x-thing")
    one, two = (await returned([text, raw], revision))["content"]
    assert one["type"] == two["type"] == "resource"
    assert one["resource"] == {"uri": "notes://a", "mimeType": "text/markdown", "text": "# Hi"}
    assert (two["resource"]["uri"], decoded(two["resource"]["blob"])) == ("notes://b", b"\x00\xff")
    return WORKS


@RESULTS.feature("a link to a resource", *2 * [told("as text, with its address")], *3 * [WORKS])
async def link(revision: Revision) -> Verdict:
    found = await block(Link("notes://b", "b", title="Note B", mime_type="text/plain"), revision)
    if found["type"] == "resource_link":
        assert (found["uri"], found["name"], found["title"]) == ("notes://b", "b", "Note B")
        return WORKS
    assert found == {"type": "text", "text": "Note B: notes://b"}
    return told("as text, with its address")


@RESULTS.feature("several blocks at once", WORKS)
async def several(revision: Revision) -> Verdict:
    value = ["words", Image(b"i"), File("text"), b"raw", {"a": 1}]
    content = (await returned(value, revision))["content"]
    assert [one["type"] for one in content] == ["text", "image", "resource", "resource", "text"]
    assert (content[0]["text"], content[-1]["text"]) == ("words", '{"a":1}')
    return WORKS


@RESULTS.feature("for whom a block is (`audience`, `priority`)", WORKS)
async def audience(revision: Revision) -> Verdict:
    notes = t.Annotations(audience=["user"], priority=0.5)
    found = await block(t.TextContent(text="x", annotations=notes), revision)
    assert found["annotations"] == {"audience": ["user"], "priority": 0.5}
    return WORKS


@RESULTS.feature("when a block was last modified", *2 * [told("sent without")], *3 * [WORKS])
async def last_modified(revision: Revision) -> Verdict:
    notes = t.Annotations(priority=1, last_modified="2026-01-02T03:04:05Z")
    found = await block(t.TextContent(text="x", annotations=notes), revision)
    assert found["annotations"]["priority"] == 1
    if "lastModified" not in found["annotations"]:
        return told("sent without")
    assert found["annotations"]["lastModified"] == "2026-01-02T03:04:05Z"
    return WORKS


@RESULTS.feature("what cannot be sent (half of a character) is put right", WORKS)
async def put_right(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def give() -> dict[str, list[str]]:
        return {"a": ["half \ud800", "whole \ud83d\ude00"]}

    async with talk(server, revision) as client:
        assert await client.text("give") == '{"a":["half \ufffd","whole 😀"]}'
    return WORKS
