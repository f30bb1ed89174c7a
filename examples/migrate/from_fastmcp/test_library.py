"""Tests of the library with FastMCP's client in memory; docs/migrate-fastmcp.md moves them, too."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false

from fastmcp import Client
from library import mcp


async def test_a_book_is_found_by_how_its_title_begins() -> None:
    async with Client(mcp) as client:
        found = await client.call_tool("find", {"title": "Iv"}, raise_on_error=False)
        assert found.structured_content["pages"] == 519


async def test_a_book_that_is_not_there_is_an_error_in_words() -> None:
    async with Client(mcp) as client:
        found = await client.call_tool("find", {"title": "Ulysses"}, raise_on_error=False)
        assert found.is_error
        assert found.content[0].text == "There is no 'Ulysses'."


async def test_titles_are_sorted() -> None:
    async with Client(mcp) as client:
        titles = await client.call_tool("sort_by", {"by": "pages"})
        assert titles.data == ["Emma", "Ivanhoe"]
        assert titles.structured_content["result"] == ["Emma", "Ivanhoe"]


async def test_a_resource_is_read() -> None:
    async with Client(mcp) as client:
        assert (await client.read_resource("library://books"))[0].text == "Emma, Ivanhoe"
