"""Tests of the library with the SDK's client in memory; docs/migrate-mcp.md moves them, too."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportAttributeAccessIssue=false, reportUnknownArgumentType=false

from library import mcp
from mcp import Client


async def test_a_book_is_found_by_how_its_title_begins() -> None:
    async with Client(mcp) as client:
        found = await client.call_tool("find", {"title": "Iv"})
        assert found.structured_content["pages"] == 519


async def test_a_book_that_is_not_there_is_an_error_in_words() -> None:
    async with Client(mcp) as client:
        found = await client.call_tool("find", {"title": "Ulysses"})
        assert found.is_error
        assert found.content[0].text.endswith("There is no 'Ulysses'.")


async def test_there_are_six_tools() -> None:
    async with Client(mcp) as client:
        assert len((await client.list_tools()).tools) == 6


async def test_a_resource_is_read() -> None:
    async with Client(mcp) as client:
        assert (await client.read_resource("library://books")).contents[0].text == "Emma, Ivanhoe"
