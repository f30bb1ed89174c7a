"""Tests of the library with Colonnade's client in memory, in every revision."""

from library import server

from colonnade.testing import connect, every_revision


@every_revision(since="2025-06-18")
async def test_a_book_is_found_by_how_its_title_begins(revision: str) -> None:
    async with connect(server, revision) as client:
        found = await client.call_tool("find", {"title": "Iv"})
        assert found.data["pages"] == 519


@every_revision
async def test_a_book_that_is_not_there_is_an_error_in_words(revision: str) -> None:
    async with connect(server, revision) as client:
        found = await client.call_tool("find", {"title": "Ulysses"})
        assert found.is_error
        assert found.text == "There is no 'Ulysses'."


@every_revision(since="2025-06-18")
async def test_a_reader_says_for_how_long(revision: str) -> None:
    async with connect(server, revision, answers=[3]) as client:
        renewed = await client.call_tool("renew", {"title": "Emma"})
        assert renewed.text == "Emma: 3 more weeks"
