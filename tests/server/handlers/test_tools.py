"""Tools: what an author writes, what each revision is told of it, and every way to fail."""

import time
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from colonnade import (
    Audio,
    Context,
    File,
    Image,
    InvalidArgument,
    Link,
    LocalProtocolError,
    Server,
    ToolError,
    ToolReturn,
)
from colonnade.protocol import types as t
from colonnade.protocol.revision import OutputRoot, Revision
from live import live
from server.raw_client import raw_client, text_content
from server.weather import Forecast, listed, weather


def nothing() -> None: ...


# ---------------------------------------------------------------- what is said of a tool


@pytest.mark.spec("R0142", "R0974")
@live
async def test_a_tool_is_listed_as_its_revision_knows_tools(revision: Revision) -> None:
    (tool,) = await listed(weather(), revision)
    assert tool["name"] == "forecast"
    assert tool["description"].startswith("Forecast for a city.\n\nA second paragraph")
    assert tool["inputSchema"]["properties"]["city"]["description"] == "Name of the city."
    assert tool["inputSchema"]["properties"]["days"]["maximum"] == 10
    assert tool["inputSchema"]["required"] == ["city"]
    shown = {"title", "annotations", "outputSchema", "icons", "_meta"}
    known = {
        "2024-11-05": set[str](),
        "2025-03-26": {"annotations"},
        "2025-06-18": {"title", "annotations", "outputSchema", "_meta"},
    }.get(revision.date, shown)
    assert shown & tool.keys() == known
    if "annotations" in known:
        assert tool["annotations"]["readOnlyHint"] is True
        older = "title" not in known
        assert tool["annotations"].get("title") == ("Forecast" if older else None)


@live
async def test_an_output_that_is_no_object_is_wrapped_where_only_objects_may_be(
    revision: Revision,
) -> None:
    """D17."""
    server = Server("s")

    @server.tool
    async def count() -> list[int]:
        return [1, 2]

    async with raw_client(server, revision) as client:
        (tool,) = (await client.ask("tools/list"))["tools"]
        result = await client.call("count")
        assert text_content(result) == "[1,2]"
        if revision.output_root is OutputRoot.NONE:
            assert "outputSchema" not in tool
            assert "structuredContent" not in result
        elif revision.output_root is OutputRoot.OBJECT:
            assert tool["outputSchema"]["properties"]["result"]["type"] == "array"
            assert result["structuredContent"] == {"result": [1, 2]}
        else:
            assert tool["outputSchema"]["type"] == "array"
            assert result["structuredContent"] == [1, 2]


@live
async def test_structured_only_leaves_the_copy_in_words_out(revision: Revision) -> None:
    server = Server("s")

    @server.tool(structured_only=True)
    async def forecast() -> Forecast:
        return Forecast("Oslo", 3)

    async with raw_client(server, revision) as client:
        content = (await client.call("forecast"))["content"]
        # Where there is nothing but words, there are words.
        assert bool(content) is (revision.output_root is OutputRoot.NONE)


@live
async def test_content_of_every_kind_reaches_each_revision_as_it_knows_it(
    revision: Revision,
) -> None:
    server = Server("s")

    class Plot:
        def _repr_png_(self) -> bytes:
            return b"png"

    @server.tool
    async def everything() -> list[Any]:
        return [
            "words",
            Image(b"i", format="png"),
            Audio(b"a", format="wav"),
            File("text", uri="notes://a"),
            Link("notes://b", "b"),
            b"raw",
            Plot(),
            {"a": 1},
        ]

    async with raw_client(server, revision) as client:
        content = (await client.call("everything"))["content"]
    types = [block["type"] for block in content]
    audio = "audio" if "audio" in revision.blocks else "resource"
    link = "resource_link" if "resource_link" in revision.blocks else "text"
    assert types == ["text", "image", audio, "resource", link, "resource", "image", "text"]
    assert "notes://b" in str(content[4])
    assert content[-1]["text"] == '{"a":1}'


@live
async def test_a_link_says_all_that_the_protocol_has_for_one(revision: Revision) -> None:
    server = Server("s")
    icon = t.Icon(src="https://example.com/i.png")

    @server.tool
    async def link() -> Link:
        notes = t.Annotations(audience=["user"], priority=0.5)
        meta = {"example.com/colour": "red"}
        return Link("notes://b", "b", size=7, annotations=notes, icons=[icon], meta=meta)

    async with raw_client(server, revision) as client:
        (block,) = (await client.call("link"))["content"]
    if "resource_link" in revision.blocks:
        assert block["size"] == 7
        assert block["annotations"] == {"audience": ["user"], "priority": 0.5}
        assert block["_meta"] == {"example.com/colour": "red"}
        knows_icons = revision.knows(*t.field_ranges(t.ResourceLink)["icons"])
        assert block.get("icons") == ([{"src": icon.src}] if knows_icons else None)
    with pytest.raises(LocalProtocolError, match="size is -1; give a number of bytes"):
        Link("notes://b", size=-1)


@pytest.mark.parametrize(("kind", "name"), [(Image, "logo.gif"), (Audio, "bell.wav")])
def test_a_path_is_read_as_a_file(kind: Any, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"data")
    blocks = [kind(str(path)).block(), kind(path).block(), kind(path=path).block()]
    assert [block.data for block in blocks] == ["ZGF0YQ=="] * 3
    assert all(block.mime_type in ("image/gif", "audio/x-wav", "audio/wav") for block in blocks)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        kind(tmp_path / "nowhere")


LONG = 'a "long" text. ' * 2000


@live
async def test_a_string_is_text_alone(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def title() -> str:
        return '# Title\n"quoted" line'

    @server.tool
    async def long() -> str:
        return LONG

    @server.tool
    async def perhaps(there: bool) -> str | None:
        return "here" if there else None

    async with raw_client(server, revision) as client:
        listed = {tool["name"]: tool for tool in (await client.ask("tools/list"))["tools"]}
        results = [await client.call("title"), await client.call("long")]
        results += [await client.call("perhaps", {"there": there}) for there in (True, False)]
    assert not any("outputSchema" in tool for tool in listed.values())
    assert not any("structuredContent" in result for result in results)
    texts = [[block["text"] for block in result["content"]] for result in results]
    assert texts == [['# Title\n"quoted" line'], [LONG], ["here"], []]


@live
async def test_a_string_that_a_schema_describes_keeps_its_schema(revision: Revision) -> None:
    if revision.output_root is OutputRoot.NONE:
        return
    server = Server("s")

    @server.tool
    async def level() -> Literal["low", "high"]:
        return "low"

    @server.tool
    async def code() -> Annotated[str, Meta(pattern="^[A-Z]+$")]:
        return "OSL"

    @server.tool(structured_only=True)
    async def only_data() -> str:
        return "data"

    @server.tool(output_schema={"type": "string", "maxLength": 9})
    async def given() -> str:
        return "given"

    async with raw_client(server, revision) as client:
        listed = {tool["name"]: tool for tool in (await client.ask("tools/list"))["tools"]}
        results = {name: await client.call(name) for name in listed}
    assert all("outputSchema" in tool for tool in listed.values())
    values = {name: result["structuredContent"] for name, result in results.items()}
    if revision.output_root is OutputRoot.OBJECT:
        values = {name: value["result"] for name, value in values.items()}
    assert values == {"level": "low", "code": "OSL", "only_data": "data", "given": "given"}
    assert results["only_data"]["content"] == []


@live
async def test_a_tool_without_an_output_schema_returns_text(revision: Revision) -> None:
    server = Server("s")

    @server.tool(output_schema=None)
    async def numbers() -> list[int]:
        return [1, 2]

    async with raw_client(server, revision) as client:
        (listed,) = (await client.ask("tools/list"))["tools"]
        result = await client.call("numbers")
    assert "outputSchema" not in listed
    assert "structuredContent" not in result
    assert [block["text"] for block in result["content"]] == ["[1,2]"]


def test_structured_content_alone_needs_an_output_schema() -> None:
    server = Server("s")
    with pytest.raises(InvalidArgument, match="numbers: structured_only=True needs an output"):

        @server.tool(output_schema=None, structured_only=True)
        def numbers() -> list[int]:
            return [1, 2]


@live
async def test_a_result_says_it_all(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def full() -> ToolReturn:
        return ToolReturn("words", data={"a": 1}, meta={"example.com/x": 1}, is_error=False)

    @server.tool
    async def only_data() -> ToolReturn:
        return ToolReturn(data=[1, 2])

    @server.tool
    async def bad() -> ToolReturn:
        return ToolReturn("no", is_error=True)

    @server.tool
    async def nothing() -> None:
        return None

    async with raw_client(server, revision) as client:
        result = await client.call("full")
        assert text_content(result) == "words"
        assert result["_meta"]["example.com/x"] == 1
        if revision.output_root is not OutputRoot.NONE:
            assert result["structuredContent"] == {"a": 1}
        assert text_content(await client.call("only_data")) == "[1,2]"
        assert await client.failure("bad") == "no"
        assert (await client.call("nothing"))["content"] == []


@live
async def test_what_cannot_be_sent_is_put_right(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def text() -> str:
        return "half \ud800 whole \ud83d\ude00"

    @server.tool
    async def data() -> dict[str, list[str]]:
        return {"a": ["\udfff"]}

    @server.tool
    async def fails(ctx: Context) -> str:
        await ctx.error({"what": object()})
        raise ToolError("half \ud800")

    async with raw_client(server, revision) as client:
        assert await client.text("text") == "half \ufffd whole 😀"
        assert await client.text("data") == '{"a":["\ufffd"]}'
        assert await client.failure("fails") == "half \ufffd"
        logged = client.notifications("notifications/message")
        assert [("object object" in one["data"]) for one in logged] == [True] * revision.handshake


# ---------------------------------------------------------------- schemas that are given

RAW = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
    "required": ["kind"],
}


@live
async def test_a_schema_that_is_given_is_listed_as_it_is_and_enforced(revision: Revision) -> None:
    server = Server("s")

    @server.tool(input_schema=RAW)
    async def rest(kind: str, **others: Any) -> str:
        return f"{kind} {others}"

    async with raw_client(server, revision) as client:
        (tool,) = (await client.ask("tools/list"))["tools"]
        assert tool["inputSchema"] == RAW
        assert await client.text("rest", {"kind": "a", "n": 1, "x": [2]}) == "a {'n': 1, 'x': [2]}"
        assert "'a', 'b'" in await client.refused("rest", {"kind": "c"})
        assert "kind" in await client.refused("rest", {})


@pytest.mark.spec("R0377", "R0690")
@live
async def test_a_result_that_breaks_its_promise_is_a_crash_and_not_sent(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    promise = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @server.tool(output_schema=promise)
    async def promised(value: Any) -> Any:
        return value

    @server.tool(output_schema=promise)
    async def by_hand(value: Any) -> Any:
        return ToolReturn("x", data=value)

    @server.tool(output_schema=promise)
    async def without() -> Any:
        return ToolReturn("x")

    @server.tool
    async def wrong() -> Forecast:
        return Forecast("Oslo", "three")  # type: ignore[arg-type]

    async with raw_client(server, revision) as client:
        for tool in ("promised", "by_hand"):
            result = await client.call(tool, {"value": {"n": 1}})
            if revision.output_root is not OutputRoot.NONE:
                assert result["structuredContent"] == {"n": 1}
            assert "failed (id" in await client.failure(tool, {"value": {"n": "x"}})
        assert "failed (id" in await client.failure("without")
        assert "failed (id" in await client.failure("wrong")
    assert "has an output schema; pass data=" in caplog.text


# ---------------------------------------------------------------- registration


def test_a_decorated_function_stays_a_plain_function() -> None:
    server = Server("s")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool(name="sum", tags={"maths"})
    def other(a: int) -> int:
        return a

    assert add(1, 2) == 3
    assert other(4) == 4
    assert server.tools["add"].definition.name == "add"
    assert server.tools["sum"].tags == {"maths"}
    assert server.tools.names == ["add", "sum"]


def test_what_cannot_work_is_refused_at_registration_with_a_way_out() -> None:
    server = Server("s")
    with pytest.raises(LocalProtocolError, match=r"write @server.tool\(name='x'\)"):
        server.tool("x")  # type: ignore[call-overload]
    with pytest.raises(LocalProtocolError, match="has no name"):
        server.tool(lambda: 1)
    with pytest.raises(LocalProtocolError, match="above 0"):
        server.tool(timeout_s=0)(nothing)
    with pytest.raises(LocalProtocolError, match="parameter 'args'"):

        @server.tool
        def stars(*args: int) -> None: ...

    with pytest.raises(LocalProtocolError, match="page_size"):
        Server("s", page_size=0)
    assert len(server.tools) == 0


def test_strange_names_and_twins_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.tool(name="a b")(nothing)
    assert "some clients hide names" in caplog.text
    server.tool(name="a b")(nothing)
    assert "registered twice" in caplog.text


@live
async def test_many_calls_at_once_are_each_answered(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def wait(n: int) -> int:
        time.sleep(0.001)
        return n

    async with raw_client(server, revision) as client:
        ids = [
            client.send("tools/call", {"name": "wait", "arguments": {"n": n}}) for n in range(60)
        ]
        found = [text_content(await client.outcome(id)) for id in ids]
        assert found == [str(n) for n in range(60)]


@live
async def test_methods_callables_and_partials_are_tools_too(revision: Revision) -> None:
    from functools import partial

    class Counter:
        def __init__(self) -> None:
            self.n = 0

        def add(self, step: int) -> int:
            self.n += step
            return self.n

        async def __call__(self, step: int) -> int:
            return self.add(step)

    server, counter = Server("s"), Counter()
    server.tool(counter.add)
    server.tool(name="call")(counter)
    server.tool(name="part")(partial(counter.add, step=7))
    async with raw_client(server, revision) as client:
        assert await client.text("add", {"step": 1}) == "1"
        assert await client.text("call", {"step": 2}) == "3"
        assert await client.text("part") == "10"


@live
async def test_structs_and_models_are_read_and_written(revision: Revision) -> None:
    import pydantic

    class Point(msgspec.Struct):
        x: int
        y: int = 0

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(min_length=2)

    server = Server("s")

    @server.tool
    async def move(point: Point, by: Point) -> Point:
        return Point(point.x + by.x, point.y + by.y)

    @server.tool
    async def greet(person: Person) -> Person:
        return Person(name=person.name.upper())

    async with raw_client(server, revision) as client:
        found = await client.text("move", {"point": {"x": 1}, "by": {"x": 2, "y": 3}})
        assert found == '{"x":3,"y":3}'
        assert await client.text("greet", {"person": {"name": "ann"}}) == '{"name":"ANN"}'
        assert "person.name" in await client.refused("greet", {"person": {"name": "a"}})


# ---------------------------------------------------------------- a member twice


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"city":"Oslo","city":"Bergen"}',
        b'{"city": "Oslo", "city": "Oslo"}',
        b'{"city":"Oslo","days":3,"days":4}',
        b'{"city":"Oslo","place":{"x":1,"x":2}}',
    ],
)
@pytest.mark.parametrize("name", ["forecast", "loose", "guarded", "unknown"])
@live
async def test_arguments_with_a_member_twice_reach_no_function(
    revision: Revision, name: str, arguments: bytes
) -> None:
    server, ran = Server("twice"), list[str]()

    @server.tool
    async def forecast(city: str, days: int = 3) -> None:
        ran.append(city)

    @server.tool(input_schema={"type": "object"})
    async def loose(city: str, **others: Any) -> None:
        ran.append(city)

    @server.tool(scopes={"weather"})
    async def guarded(city: str) -> None:
        ran.append(city)

    async with raw_client(server, revision) as client:
        meta = b"{}"
        if not revision.handshake:
            meta = (
                b'{"io.modelcontextprotocol/protocolVersion":"%b",'
                b'"io.modelcontextprotocol/clientCapabilities":{}}' % revision.date.encode()
            )
        client.send_raw(
            b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":'
            b'{"name":"%b","arguments":%b,"_meta":%b}}' % (name.encode(), arguments, meta)
        )
        await client.until(lambda: any(one.get("id") == 7 for one in client.received))
        error = client.received[-1]["error"]
    assert (error["code"], ran) == (-32602, [])
    assert error["message"] == "an object has the same member twice; send each once"
