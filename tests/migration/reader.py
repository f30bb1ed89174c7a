"""A reader at the library: one client test, whoever wrote the server and with what.

Rules: it knows no library by name. What a server cannot have (questions in a revision, a server in a
server) is said by who calls, never found out by trying.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from colonnade import Client, connect
from colonnade.protocol import types as t

CALL_S = 60.0


class Reader:
    """What one reader does."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def text(self, tool: str, **arguments: Any) -> str:
        """What a tool says that goes well."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.text
        return result.text

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """What a tool says that does not."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.text
        return result.text

    async def read(self, uri: str) -> str | None:
        (contents,) = (await self.client.read_resource(uri)).contents
        return contents.text


async def visit(
    command: Sequence[str | Path], revision: str, *, asks: bool = True, mounts: bool = True
) -> None:
    """Use everything that the library has; raises for what is not as it should be."""
    questions: list[str] = []

    def weeks(asked: t.ElicitRequestParams) -> dict[str, int]:
        questions.append(asked.message)
        return {"value": 3}

    words = [str(word) for word in command]
    opening = connect(
        words, revision=revision, timeout_s=CALL_S, on_elicit=weeks, server_name="library"
    )
    async with opening as client:
        reader = Reader(client)
        await finds(reader)
        await lends(reader)
        await looks(reader)
        if asks:
            assert await reader.text("renew", title="Emma") == "Emma: 3 more weeks"
            assert questions == ["For how many weeks?"]
        if mounts:
            owed = await client.call_tool("fines_owed", {"reader": "Ada", "days": 3})
            assert owed.data == 1.5


async def finds(reader: Reader) -> None:
    """Who it is, what it lists, and values of every kind."""
    client = reader.client
    assert client.server is not None
    assert (client.server.name, client.server.version) == ("library", "1.0")
    tools = {tool.name: tool for tool in await client.list_tools()}
    assert {"find", "lend", "sort_by", "cover", "summary", "renew"} <= set(tools)
    find = tools["find"]
    assert set(find.input_schema["properties"]) == {"title"}
    assert (find.description or "").startswith("Find a book.")
    assert find.annotations is not None
    assert find.annotations.read_only_hint is True
    assert tools["lend"].input_schema["properties"]["reader"]["minLength"] == 2
    assert set(tools["renew"].input_schema["properties"]) == {"title"}
    found = await client.call_tool("find", {"title": "Iv"})
    assert found.data == {"title": "Ivanhoe", "pages": 519, "lent_to": None}
    assert "There is no 'Ulysses'." in await reader.refusal("find", title="Ulysses")
    in_order = await client.call_tool("sort_by", {"by": "pages"}, returns=list[str])
    assert in_order.data == ["Emma", "Ivanhoe"]
    assert await reader.refusal("sort_by", by="colour")
    (picture,) = (await client.call_tool("cover", {"title": "Emma"})).content
    assert isinstance(picture, t.ImageContent)
    assert picture.mime_type == "image/png"
    summary = await client.call_tool("summary")
    assert (summary.text, summary.structured) == ("2 books", {"books": 2})


async def lends(reader: Reader) -> None:
    """Progress on the way, state in the server, and errors in words."""
    steps: list[str | None] = []

    def step(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message)

    wanted = {"title": "Emma", "reader": "Ada"}
    lent = await reader.client.call_tool("lend", wanted, on_progress=step)
    assert lent.text == "Ada has Emma, from the ground floor"
    assert steps == ["looking for it", "stamped"]
    assert "Ada has it." in await reader.refusal("lend", title="Emma", reader="Bob")
    assert await reader.refusal("lend", title="Ivanhoe", reader="B")


async def looks(reader: Reader) -> None:
    """Resources, templates, and a prompt."""
    assert await reader.read("library://books") == "Emma, Ivanhoe"
    assert await reader.read("library://books/Emma") == "Emma has 474 pages"
    assert await reader.read("library://scans/emma/1/a.png") == "scan of emma/1/a.png"
    prompt = await reader.client.get_prompt("review", {"title": "Emma"})
    said = [(one.role, getattr(one.content, "text", None)) for one in prompt.messages]
    assert said == [("user", "Review Emma, and be kind."), ("assistant", "With pleasure.")]
