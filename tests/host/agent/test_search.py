"""Finding a tool among many by a few words."""

from typing import Any

import pytest

from colonnade.host.agent.search import MAX_QUERY, MAX_TEXT, Index, synonyms, terms_of
from colonnade.protocol import types as t


def tool(name: str, description: str = "", *parameters: str, title: str | None = None) -> t.Tool:
    schema: dict[str, Any] = {"type": "object", "properties": {one: {} for one in parameters}}
    return t.Tool(name=name, description=description or None, title=title, input_schema=schema)


def found(tools: list[tuple[str, t.Tool]], words: str, limit: int = 5) -> list[str]:
    return [tools[at][1].name for at in Index(tools).best(words, limit)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("readFile", ["read", "fil"]),
        ("HTTPServer.list_dirs-now", ["http", "server", "list", "dir"]),
        ("base64 x2", ["base64", "x2"]),
        ("Größe der Datei", ["größ".casefold(), "der", "datei"]),
        ("読み込む", ["読み", "み込", "込む"]),
        ("git 提交", ["git", "提交"]),
        ("木", ["木"]),
        ("\uff26\uff49\uff4c\uff45", ["fil"]),
        ("", []),
        ("how do I get the", ["get"]),
        ("🗂 ___", []),
    ],
)
def test_a_text_is_split_where_a_person_sees_words(text: str, words: list[str]) -> None:
    assert terms_of(text) == words


@pytest.mark.parametrize(
    "alike",
    [
        "create creates created creating",
        "query queries",
        "branch branches",
        "stop stopped stopping",
        "add added adding adds",
        "log logs logged logging",
        "status statuses",
        "process processes processing",
        "move moved moving moves",
        "list listing listed lists",
    ],
)
def test_endings_make_no_difference(alike: str) -> None:
    assert len(set(terms_of(alike))) == 1


@pytest.mark.parametrize("word", ["string", "feed", "speed", "bus", "is_", "thing", "less", "red"])
def test_what_only_looks_like_an_ending_stays(word: str) -> None:
    assert terms_of(word) in ([word], [])


def test_a_word_in_a_name_is_worth_more_than_in_a_description() -> None:
    tools = [("s", tool("other", "It can move a file.")), ("s", tool("move", "Does it."))]
    assert found(tools, "move") == ["move", "other"]


def test_a_rare_word_is_worth_more_than_a_common_one() -> None:
    tools = [("s", tool(f"file_{nth}", "Works on a file.")) for nth in range(20)]
    tools.append(("s", tool("blame", "Who wrote each line.")))
    assert found(tools, "file blame", 1) == ["blame"]


def test_words_are_found_in_titles_parameters_and_the_key_of_the_server() -> None:
    tools = [
        ("weather", tool("look")),
        ("s", tool("b", "", "latitude", "longitude")),
        ("s", tool("c", title="Sunrise")),
    ]
    assert found(tools, "weather") == ["look"]
    assert found(tools, "longitude") == ["b"]
    assert found(tools, "sunrise") == ["c"]


def test_of_equals_the_first_listed_is_first() -> None:
    tools = [(f"s{nth}", tool(f"read_{nth}", "Reads.")) for nth in range(9)]
    assert found(tools, "read", 4) == ["read_0", "read_1", "read_2", "read_3"]


def test_a_tool_without_any_of_the_words_is_not_found() -> None:
    tools = [("s", tool("read")), ("s", tool("write"))]
    assert found(tools, "read") == ["read"]
    assert found(tools, "paint") == found(tools, "the") == found(tools, "") == []
    assert Index([]).best("read") == []
    assert found(tools, "read", 0) == []


def test_the_beginning_of_a_word_is_found_but_after_the_word() -> None:
    tools = [("s", tool("repository")), ("s", tool("repo"))]
    assert found(tools, "repo") == ["repo", "repository"]
    assert found(tools[:1], "repo") == ["repository"]


def test_words_that_are_written_as_one_or_as_two_are_the_same() -> None:
    assert found([("s", tool("timezone"))], "time zone") == ["timezone"]
    assert found([("s", tool("time_zone"))], "timezone") == ["time_zone"]


def test_another_word_for_the_same_is_found_but_after_the_word() -> None:
    tools = [("s", tool("erase_page")), ("s", tool("delete_page"))]
    assert found(tools, "delete page") == ["delete_page", "erase_page"]
    assert found(tools[:1], "removing") == ["erase_page"]
    assert "eras" in synonyms("delet")
    assert synonyms("pag") == ()


def test_several_words_that_fit_are_better_than_one_that_is_rare() -> None:
    tools = [("s", tool("quokka")), ("s", tool("feed_animal", "Feed an animal at home."))]
    assert found(tools, "feed my animal, a quokka, at home", 1) == ["feed_animal"]


def test_repeating_a_word_gains_little() -> None:
    tools = [
        ("spam", tool("spam", "weather " * 500)),
        ("sky", tool("forecast", "The weather of the next days in a city.")),
    ]
    assert found(tools, "weather forecast", 1) == ["forecast"]


def test_only_so_much_of_a_text_is_read() -> None:
    tools = [("s", tool("a", "x " * MAX_TEXT + "needle")), ("s", tool("b", "hay"))]
    assert found(tools, "needle") == []
    assert found(tools, "x " * MAX_QUERY + "hay") == ["a"]


def test_a_schema_that_is_strange_is_no_trouble() -> None:
    strange: Any = {"type": "object", "properties": ["no"]}
    tools = [("s", t.Tool(name="read", input_schema=strange))]
    assert found(tools, "read") == ["read"]
