"""Work with the lists of strangers: in slices, and bounded."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Any, TypeVar

import pytest

from colonnade import Handler, Host, RemoteError, RequestContext, Server
from colonnade.host.agent import search
from colonnade.host.agent import search as looking
from colonnade.host.agent.search import MAX_TEXT, MAX_TOTAL, Index, ToolSearch, fair_share
from colonnade.host.servers import listings as slices
from colonnade.host.servers import resource_search as catalogue
from colonnade.host.servers.listings import HostTool, Steps, run_cooperatively, run_to_completion
from colonnade.host.servers.resource_search import MAX_TRIED
from colonnade.protocol import types as t
from colonnade.protocol.uritemplate import UriTemplate
from live import live

T = TypeVar("T")


def counting(to: int) -> Steps[int]:
    for _ in range(to):
        yield
    return to


async def turns_beside(work: Awaitable[T]) -> tuple[T, int]:
    """The result, and how often something else came to its turn in the loop meanwhile."""
    turns = 0

    async def take() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    beside = asyncio.create_task(take())
    try:
        return await work, turns
    finally:
        beside.cancel()


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a slice, however fast the machine is."""
    monkeypatch.setattr(slices, "SLICE_S", 0.0)


@live
async def test_steps_give_their_result_at_once_or_with_other_work_in_between(
    every_step: None,
) -> None:
    assert run_to_completion(counting(100)) == 100
    found, turns = await turns_beside(run_cooperatively(counting(100)))
    assert found == 100
    assert turns >= 99


@live
async def test_short_work_is_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 3600.0)
    assert await turns_beside(run_cooperatively(counting(100))) == (100, 0)


# ---------------------------------------------------------------- search


def tool(name: str, description: str, server: str = "s") -> HostTool:
    made = t.Tool(name=name, description=description, input_schema={"type": "object"})
    return HostTool.from_listed(made, server, name)


def strange(count: int, words: int, server: str = "strange") -> list[HostTool]:
    """Tools whose descriptions never use a word twice."""
    made = random.Random(7)
    said = (" ".join(f"{made.randrange(36**6):x}" for _ in range(words)) for _ in range(count))
    return [tool(f"t{nth}", text, server) for nth, text in enumerate(said)]


@live
async def test_the_loop_goes_on_while_an_index_is_made_and_searched(every_step: None) -> None:
    tools = strange(200, 50)
    found, turns = await turns_beside(ToolSearch().best(tools, "t7", 1))
    assert [one.name for one in found] == ["t7"]
    assert turns >= len(tools)


def test_what_is_read_of_all_tools_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_TOTAL", 10_000)
    index = Index((one.server, one) for one in strange(100, 500))
    assert 5_000 < index.size <= 10_000
    assert MAX_TOTAL == 2_000_000


def test_a_server_with_much_text_does_not_shorten_what_is_read_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MAX_TOTAL", 10_000)
    plain = tool("plain", "word " * 300 + "needle", "honest")
    tools = [*strange(100, 500), plain]
    index = Index((one.server, one) for one in tools)
    assert index.best("needle") == [100]
    assert index.best("t7") == [7]  # names come first, and are read of all


def test_a_text_of_many_bytes_is_shortened_between_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MAX_TOTAL", 30)
    index = Index([("s", tool("name", "読み込む\ud800" * 10))])
    assert index.size <= 30
    assert index.best("読み") == [0]


@pytest.mark.parametrize(
    ("wanted", "total", "share"),
    [
        ([], 10, 10),
        ([3, 4], 10, 4),
        ([100, 100], 10, 5),
        ([1, 100, 100], 11, 5),
        ([100, 2, 8], 20, 10),
        ([1, 1, 1], 2, 0),
    ],
)
def test_each_has_an_equal_share_and_what_others_leave(
    wanted: list[int], total: int, share: int
) -> None:
    assert fair_share(wanted, total) == share
    assert sum(min(one, share) for one in wanted) <= total


def test_many_words_are_sorted_in_runs_as_they_would_be_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tools = strange(20, 100)
    whole = Index((one.server, one) for one in tools)
    monkeypatch.setattr(search, "_RUN", 50)
    assert Index((one.server, one) for one in tools)._words == whole._words
    assert whole._words == sorted(whole._rows)


def test_one_character_that_stands_for_a_sentence_does_not_make_a_text_much_longer() -> None:
    index = Index([("s", tool("name", "\ufdfa" * MAX_TEXT))])
    assert len(index._rows) < 10


@live
async def test_two_who_search_at_the_same_time_make_one_index(
    every_step: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    class Counted(Index):
        def __init__(self, tools: Any = ()) -> None:
            nonlocal made
            made += 1
            super().__init__(tools)

    monkeypatch.setattr(looking, "Index", Counted)
    kept, tools = ToolSearch(), strange(20, 10)
    both = await asyncio.gather(kept.best(tools, "t1", 1), kept.best(tools, "t2", 1))
    assert [[one.name for one in found] for found in both] == [["t1"], ["t2"]]
    assert made == 1


@live
async def test_indexes_are_kept_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, lists = ToolSearch(), [strange(10, 50) for _ in range(4)]
    one = Index((one.server, one) for one in lists[0]).size
    monkeypatch.setattr(looking, "MAX_KEPT_BYTES", 2 * one + one // 2)
    for tools in lists:
        assert (await kept.best(tools, "t1", 1))[0] is tools[1]
    assert len(kept._kept) == 2
    assert (await kept.best(lists[-1], "t2", 1))[0] is lists[-1][2]


# ---------------------------------------------------------------- templates


def listing(*templates: str) -> Server:
    """A server that lists these templates, whatever they are, and can read everything."""
    server = Server("listing")

    @server.resource("placeholder://{name}")
    def read(name: str) -> str:
        return name

    @server.middleware
    async def answer(request: RequestContext, handler: Handler) -> t.ProtocolType:
        if request.exchange.method.name == "resources/templates/list":
            found = [t.ResourceTemplate(uri_template=text, name="r") for text in templates]
            return t.ListResourceTemplatesResult(resource_templates=found)
        if request.exchange.method.name == "resources/read":
            return t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", text="read")])
        return await handler(request)

    _ = read, answer
    return server


@live
async def test_only_templates_that_begin_like_an_address_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    class Counted(UriTemplate):
        def __init__(self, text: str, *, expand_only: bool = False) -> None:
            compiled.append(text)
            super().__init__(text, expand_only=expand_only)

    texts = [f"a{nth}://x/{{name}}" for nth in range(200)]
    async with Host({"one": listing(*texts, "b%C3%BC://{name}")}) as host:
        await host.list_resource_templates()
        monkeypatch.setattr(catalogue, "UriTemplate", Counted)
        assert (await host.read_resource("a7://x/me")).contents
        assert compiled == ["a7://x/{name}"]
        for uri in ("bü://me", "b%C3%BC://me", "%617://x/me"):  # encoded or not, it is the same
            assert (await host.read_resource(uri)).contents


@live
async def test_the_loop_goes_on_while_templates_are_tried_and_so_many_are(
    every_step: None,
) -> None:
    wide = "".join(f"/{{variable_with_a_long_name_{nth}}}" for nth in range(60))
    texts = [f"{{+a}}{nth}{wide}" for nth in range(MAX_TRIED // len(wide) + 5)]
    async with Host({"many": listing(*texts), "few": listing("few://{name}")}) as host:
        await host.list_resource_templates()

        async def missed() -> str:
            with pytest.raises(RemoteError) as raised:
                await host.read_resource("x://nothing/fits")
            return str(raised.value)

        words, turns = await turns_beside(missed())
        assert "has too many templates to search: 'many'" in words
        assert words.endswith("; pass server= to read it anyway")
        assert turns >= MAX_TRIED // len(texts[-1]) - 5
        # What another server has is found all the same.
        assert (await host.read_resource("few://me")).contents
