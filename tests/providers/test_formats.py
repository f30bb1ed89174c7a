"""Tools, calls and results in the forms of both providers, from a server to its scripted model."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import Request, urlopen

import msgspec
import pytest

from colonnade import Audio, File, Image, Link, Server, ToolError, connect
from colonnade.client.results import ToolResult
from colonnade.errors import ConnectionLost, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.sync import connect as connect_sync
from colonnade.testing import connect as connect_memory
from colonnade.testing import every_revision
from providers.scripted import Scripted

JSON = dict[str, Any]
PNG = b"\x89PNG\r\n\x1a\n"

server = Server("studio")


@server.tool(name="notes.write")
def write(name: str, text: str = "empty") -> str:
    """Write a note."""
    if name == "bad":
        raise ToolError("No such name.")
    return f"{name}: {text}"


@server.tool(title="Show it")
def show() -> list[str | Image | Audio | File | Link]:
    svg = Image(b"<svg/>", format="svg+xml")
    return [
        "Here.",
        Image(PNG, format="png"),
        svg,
        Audio(b"abc", format="wav"),
        File("a,b", uri="sales://week.csv", mime_type="text/csv"),
        File(b"%PDF-", uri="sales://week.pdf", mime_type="application/pdf"),
        Link("sales://thu", title="Thursday"),
    ]


@server.tool
def anything(values: dict[str, int]) -> dict[str, int]:
    """Any numbers."""
    return values


def chat_call(name: str, arguments: Any = "{}") -> JSON:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": text}}


def tool_use(tool: str, **arguments: Any) -> JSON:
    return {"type": "tool_use", "id": "t1", "name": tool, "input": arguments}


@every_revision
async def test_a_tool_is_told_to_a_model_and_found_again_by_its_call(revision: str) -> None:
    async with connect_memory(server, revision) as client:
        write, _, anything = await client.list_tools()
        entry = write.to_openai()["function"]
        assert entry["name"] == "notes_write_80c18f42e2d6"
        assert entry["description"] == "Write a note."
        assert entry["strict"] is True
        assert write.to_openai("responses") == {"type": "function", **entry}
        assert write.to_openai(strict=False)["function"]["parameters"]["required"] == ["name"]
        assert anything.to_openai()["function"]["strict"] is False
        assert "strict" not in write.to_anthropic()
        assert write.to_anthropic(strict=True)["strict"] is True
        assert "strict" not in anything.to_anthropic(strict=True)
        assert write.to_anthropic()["name"] == entry["name"]
        call = chat_call(entry["name"], {"name": "a", "text": None})
        result = await client.call_openai(call)
        assert result.to_openai() == {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "a: empty",
        }
        result = await client.call_anthropic(tool_use(entry["name"], name="bad"))
        assert result.to_anthropic() == {
            "type": "tool_result",
            "tool_use_id": "t1",
            "content": [{"type": "text", "text": "No such name."}],
            "is_error": True,
        }


@every_revision(since="2026-07-28")
async def test_each_provider_is_sent_what_it_takes_and_told_of_the_rest(revision: str) -> None:
    async with connect_memory(server, revision) as client:
        (_, show, _) = await client.list_tools()
        assert show.to_anthropic()["description"] == "Show it"
        result = await client.call_tool("show")
    words = [
        "Here.",
        "[image image/png, 8 bytes: not shown here]",
        "[image image/svg+xml, 6 bytes: not shown here]",
        "[audio audio/wav, 3 bytes: not shown here]",
        "sales://week.csv:\na,b",
        "[document week.pdf application/pdf, 5 bytes: not shown here]",
        "[link Thursday: sales://thu]",
    ]
    assert result.to_openai("c1")["content"] == "\n".join(words)
    items = result.to_openai("c1", "responses")
    assert (items["type"], items["call_id"]) == ("function_call_output", "c1")
    picture, document = items["output"][1], items["output"][5]
    assert picture == {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    assert (document["type"], document["filename"]) == ("input_file", "week.pdf")
    blocks = result.to_anthropic("t1")["content"]
    assert [block["type"] for block in blocks] == ["text", "image"] + ["text"] * 3 + [
        "document",
        "text",
    ]
    assert blocks[1]["source"] == {
        "type": "base64",
        "media_type": "image/png",
        "data": "iVBORw0KGgo=",
    }
    with pytest.raises(LocalProtocolError, match="is missing for this result of show"):
        result.to_openai()


def test_what_only_programs_are_told_is_told_to_models_as_well() -> None:
    bare = t.CallToolResult(content=[], structured_content={"a": 1})
    assert ToolResult("look", bare).to_openai("c1")["content"] == '{"a":1}'
    nothing = ToolResult[Any]("look", t.CallToolResult(content=[t.TextContent(text="")]))
    assert nothing.to_openai("c1")["content"] == ""
    assert nothing.to_anthropic("t1") == {"type": "tool_result", "tool_use_id": "t1"}


@pytest.mark.parametrize("data", ["", "no base64!", "abc", "äöü="])
def test_what_is_no_base64_is_never_passed_on(data: str) -> None:
    block = t.ImageContent(data=data, mime_type="image/png")
    result = ToolResult[Any]("look", t.CallToolResult(content=[block]))
    assert result.to_anthropic("t1")["content"][0]["type"] == "text"
    assert isinstance(result.to_openai("c1", "responses")["output"], str)


# ---------------------------------------------------------------- calls


@every_revision(since="2026-07-28")
async def test_what_a_model_did_wrong_is_a_result_that_tells_it_so(revision: str) -> None:
    async with connect_memory(server, revision) as client:
        for call, words in (
            (chat_call("shew"), "Error: there is no tool 'shew'; there is show"),
            (chat_call("show", "{"), "Error: show: the arguments are not valid JSON ("),
            (chat_call("show", "[1]"), "Error: show: the arguments are not a JSON object"),
            (chat_call("anything", {}), "Error: anything: missing required argument"),
        ):
            said = (await client.call_openai(call)).to_openai()["content"]
            assert said.startswith(words), said
        assert (await client.call_openai(chat_call("show", ""))).is_error is False


@pytest.mark.parametrize(
    "call",
    [{}, {"type": "function_call"}, {"type": "custom"}, {"function": {}}, 7, tool_use("show")],
)
def test_what_is_no_call_is_the_programs_mistake(call: object) -> None:
    with (
        connect_sync(server) as client,
        pytest.raises(LocalProtocolError, match="this is not a tool"),
    ):
        client.call_openai(call)


def test_what_is_no_tool_use_is_the_programs_mistake() -> None:
    with connect_sync(server) as client, pytest.raises(LocalProtocolError, match="tool_use"):
        client.call_anthropic(chat_call("show"))


def test_what_a_providers_own_library_gives_is_a_call() -> None:
    """Its objects are models of pydantic."""
    given = SimpleNamespace(model_dump=lambda: chat_call("anything", {"values": {"a": 1}}))
    with connect_sync(server) as client:
        assert json.loads(client.call_openai(given).to_openai()["content"]) == {"a": 1}
        used = SimpleNamespace(model_dump=lambda: tool_use("anything", values={"a": 1}))
        assert client.call_anthropic(used).to_anthropic()["tool_use_id"] == "t1"


async def _gone() -> None:
    client = await connect(server)
    await client.list_tools()
    await client.close()
    await client.call_openai(chat_call("show"))


def test_what_a_model_cannot_correct_is_raised() -> None:
    with pytest.raises(ConnectionLost):
        asyncio.run(_gone())


def test_a_conversation_in_responses_has_its_pictures() -> None:
    """Over HTTP, as a program would write it."""
    with Scripted([[("show", {})], "A small one."]) as provider, connect_sync(server) as client:
        items: list[Any] = [{"role": "user", "content": "What is in it?"}]
        tools = [tool.to_openai("responses") for tool in client.list_tools()]
        said = ""
        while not said:
            body = json.dumps({"model": "m", "input": items, "tools": tools}).encode()
            headers = {"authorization": "Bearer secret", "content-type": "application/json"}
            request = Request(f"{provider.url}/v1/responses", body, headers)
            with urlopen(request, timeout=30) as answer:
                output = json.load(answer)["output"]
            items += output
            for item in output:
                if item["type"] == "function_call":
                    items.append(client.call_openai(item).to_openai())
                else:
                    said = item["content"][0]["text"]
    assert (said, provider.refused) == ("A small one.", [])
    kinds = [part["type"] for part in provider.asked[1]["input"][-1]["output"]]
    assert kinds[:2] == ["input_text", "input_image"]


def test_a_listed_tool_is_the_type_that_was_sent() -> None:
    with connect_sync(server) as client:
        listed = client.list_tools()[0]
    plain = t.Tool(**msgspec.structs.asdict(listed))
    assert msgspec.json.encode(listed) == msgspec.json.encode(plain)
    assert isinstance(cast("object", listed), t.Tool)
