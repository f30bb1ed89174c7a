"""Answers that are kept as long, and for whom, the server said; and what makes them stale."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from client.scripted_server import JSON, Refusal, ScriptedTransport, connected_client
from colonnade import Server, connect
from colonnade.client.cache import MAX_TTL_S, Cache
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.client.subscriptions import Change, ChangeStream
from colonnade.errors import RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, NEWEST, Revision
from colonnade.testing import Clock, played
from live import live, until

FIRST = t.PaginatedRequestParams()
ANSWER = Raw(b'{"tools":[]}')


def hints(ttl_ms: int | None, scope: t.CacheScope | None = "private") -> t.CacheableResult:
    return t.CacheableResult(ttl_ms=ttl_ms, cache_scope=scope)


# ---------------------------------------------------------------- by itself


@pytest.mark.spec("R1002")
def test_only_the_very_same_request_is_answered() -> None:
    cache = Cache()
    read = t.ReadResourceRequestParams(uri="a://b")
    cache.put("me", "resources/read", read, ANSWER, hints(1000), 0.0)
    assert cache.get("me", "resources/read", read, 0.5) == ANSWER
    named = t.ReadResourceRequestParams(uri="a://b", meta={"progressToken": 7})
    assert cache.get("me", "resources/read", named, 0.5) == ANSWER, "who asks is no part of it"
    other = t.ReadResourceRequestParams(uri="a://c")
    assert cache.get("me", "resources/read", other, 0.5) is None
    assert cache.get("me", "resources/list", read, 0.5) is None
    cache.put("me", "tools/list", FIRST, ANSWER, hints(1000), 0.0)
    page = t.PaginatedRequestParams(cursor="")
    assert cache.get("me", "tools/list", page, 0.5) is None


@pytest.mark.spec("R1020", "R1042")
def test_what_is_private_is_nothing_to_another_principal() -> None:
    cache = Cache()
    cache.put("me", "tools/list", FIRST, ANSWER, hints(1000, "private"), 0.0)
    cache.put("me", "prompts/list", FIRST, ANSWER, hints(1000, None), 0.0)
    cache.put("me", "resources/list", FIRST, ANSWER, hints(1000, "public"), 0.0)
    assert cache.get("you", "tools/list", FIRST, 0.5) is None
    assert cache.get("you", "prompts/list", FIRST, 0.5) is None
    assert cache.get("you", "resources/list", FIRST, 0.5) == ANSWER
    assert cache.get("me", "tools/list", FIRST, 0.5) == ANSWER


@pytest.mark.spec("R1006", "R1009", "R1010", "R1046")
@pytest.mark.parametrize("ttl_ms", [0, None, -1, -(10**9)])
def test_what_says_no_time_or_none_that_is_left_is_stale_at_once(ttl_ms: int | None) -> None:
    cache = Cache()
    cache.put("", "tools/list", FIRST, ANSWER, hints(ttl_ms), 0.0)
    assert len(cache) == 0


@pytest.mark.spec("R1008", "R1047")
def test_what_says_how_long_is_fresh_so_long_and_a_day_at_most() -> None:
    cache = Cache()
    cache.put("", "tools/list", FIRST, ANSWER, hints(1500), 10.0)
    assert cache.get("", "tools/list", FIRST, 11.4) == ANSWER
    assert cache.get("", "tools/list", FIRST, 11.5) is None
    assert len(cache) == 0
    cache.put("", "tools/list", FIRST, ANSWER, hints(10**15), 0.0)
    assert cache.get("", "tools/list", FIRST, MAX_TTL_S - 1) == ANSWER
    assert cache.get("", "tools/list", FIRST, MAX_TTL_S) is None


def test_what_is_kept_is_bounded_and_the_oldest_makes_room() -> None:
    cache = Cache(max_bytes=100)
    for number in range(10):
        params = t.ReadResourceRequestParams(uri=f"a://{number}")
        cache.put("", "resources/read", params, Raw(b"x" * 30), hints(1000), 0.0)
    kept = [
        cache.get("", "resources/read", t.ReadResourceRequestParams(uri=f"a://{number}"), 0.5)
        for number in range(10)
    ]
    assert [one is not None for one in kept] == [False] * 7 + [True] * 3
    cache.put("", "tools/list", FIRST, Raw(b"x" * 101), hints(1000), 0.0)
    assert cache.get("", "tools/list", FIRST, 0.5) is None


def test_a_resource_that_changed_makes_stale_what_it_is_part_of() -> None:
    cache = Cache()
    for uri in ("a://b", "a://b/c", "a://bc", "a://d"):
        params = t.ReadResourceRequestParams(uri=uri)
        cache.put("", "resources/read", params, ANSWER, hints(1000), 0.0)
    cache.invalidate_resource("a://b/c")
    left = [
        uri
        for uri in ("a://b", "a://b/c", "a://bc", "a://d")
        if cache.get("", "resources/read", t.ReadResourceRequestParams(uri=uri), 0.5)
    ]
    assert left == ["a://bc", "a://d"]


# ---------------------------------------------------------------- in a client

Ask = Callable[[Client], Any]
OFFERS: dict[str, tuple[JSON, Ask]] = {
    "tools/list": ({"tools": []}, lambda client: client.list_tools()),
    "prompts/list": ({"prompts": []}, lambda client: client.list_prompts()),
    "resources/list": ({"resources": []}, lambda client: client.list_resources()),
    "resources/templates/list": (
        {"resourceTemplates": []},
        lambda client: client.list_resource_templates(),
    ),
    "resources/read": ({"contents": []}, lambda client: client.read_resource("a://b")),
}


def keeping(ttl_ms: int) -> ScriptedTransport:
    kept = {"ttlMs": ttl_ms, "cacheScope": "private"}

    def answer(said: JSON) -> Callable[[JSON], JSON]:
        return lambda params: kept | said

    return ScriptedTransport(NEWEST, {method: answer(said) for method, (said, _) in OFFERS.items()})


@pytest.mark.spec("R1013", "R1014", "R1015", "R1085", "R1093", "R1101", "R1109", "R1128")
@pytest.mark.parametrize("method", OFFERS)
@played
async def test_what_is_fresh_is_not_asked_for_and_what_is_stale_when_it_is_needed(
    method: str,
) -> None:
    clock, transport = Clock(), keeping(60_000)
    ask = OFFERS[method][1]
    with clock:
        async with connected_client(transport) as client:
            first = await ask(client)
            await clock.advance(59)
            assert await ask(client) == first
            assert len(transport.server.requests(method)) == 1
            await clock.advance(24 * 3600)
            assert len(transport.server.requests(method)) == 1, (
                "nothing is fetched before it is needed"
            )
            await ask(client)
            assert len(transport.server.requests(method)) == 2


@pytest.mark.spec("R1084", "R1092", "R1100", "R1108", "R1127")
@pytest.mark.parametrize("method", OFFERS)
@live
async def test_what_is_not_to_be_kept_is_asked_for_each_time(method: str) -> None:
    transport, ask = keeping(0), OFFERS[method][1]
    async with connected_client(transport) as client:
        await ask(client)
        await ask(client)
        assert len(transport.server.requests(method)) == 2


@pytest.mark.spec("R1080", "R1088", "R1096", "R1104", "R1123", "R1063")
@pytest.mark.parametrize("method", OFFERS)
@live
async def test_two_clients_share_nothing(method: str) -> None:
    transport, ask = keeping(60_000), OFFERS[method][1]
    async with connected_client(transport) as mine, connected_client(transport) as yours:
        await ask(mine)
        await ask(yours)
        asked = [server.requests(method) for server in transport.servers]
        assert [len(one) for one in asked] == [1, 1]
        assert [len(server.requests("server/discover")) for server in transport.servers] == [1, 1]


@pytest.mark.parametrize("method", OFFERS)
@live
async def test_who_wants_it_fresh_is_given_what_the_server_says_now(method: str) -> None:
    transport = keeping(60_000)
    async with connected_client(transport) as client:
        asks: dict[str, Ask] = {
            "tools/list": lambda client: client.list_tools(fresh=True),
            "prompts/list": lambda client: client.list_prompts(fresh=True),
            "resources/list": lambda client: client.list_resources(fresh=True),
            "resources/templates/list": lambda client: client.list_resource_templates(fresh=True),
            "resources/read": lambda client: client.read_resource("a://b", fresh=True),
        }
        await asks[method](client)
        await asks[method](client)
        assert len(transport.server.requests(method)) == 2


@pytest.mark.parametrize(
    "revision", [one for one in ALL if one.handshake], ids=lambda one: one.date
)
@live
async def test_older_revisions_have_no_such_hints_and_nothing_is_kept(revision: Revision) -> None:
    kept = {"ttlMs": 60_000, "cacheScope": "private", "tools": []}
    transport = ScriptedTransport(revision, {"tools/list": lambda params: kept})
    async with connected_client(transport) as client:
        await client.list_tools()
        await client.list_tools()
        assert len(transport.server.requests("tools/list")) == 2


@pytest.mark.spec("R1067", "R1068")
@live
async def test_what_discovery_said_holds_until_somebody_asks_whether_the_server_is_there() -> None:
    transport = keeping(0)
    async with connected_client(transport) as client:
        for _ in range(3):
            assert client.capabilities.tools is not None
            await client.list_tools()
        assert len(transport.server.requests("server/discover")) == 1
        await client.ping()  # D23
        assert len(transport.server.requests("server/discover")) == 2


@live
async def test_nobody_can_change_what_is_kept() -> None:
    tool = {"name": "a", "inputSchema": {"type": "object", "properties": {}}}
    kept = {"ttlMs": 60_000, "cacheScope": "private", "tools": [tool]}
    async with connected_client(
        ScriptedTransport(NEWEST, {"tools/list": lambda params: kept})
    ) as client:
        (one,) = await client.list_tools()
        one.input_schema["properties"]["b"] = {}
        (other,) = await client.list_tools()
        assert other.input_schema == {"type": "object", "properties": {}}


# ---------------------------------------------------------------- pages


class TwoPages:
    """A list of two pages, each with its own time."""

    def __init__(self, first_ms: int, second_ms: int) -> None:
        self.times = {None: first_ms, "two": second_ms}
        self.names = {None: "a", "two": "b"}
        self.bad: set[str] = set()
        self.next = "two"

    def answer(self, params: JSON) -> JSON:
        cursor = params.get("cursor")
        if cursor in self.bad:
            raise Refusal(-32602, "no such page")
        prompts = [{"name": self.names[cursor]}]
        said = {"prompts": prompts, "ttlMs": self.times[cursor], "cacheScope": "private"}
        return said | ({"nextCursor": self.next} if cursor is None else {})


def cursors(transport: ScriptedTransport) -> list[str | None]:
    return [one["params"].get("cursor") for one in transport.server.requests("prompts/list")]


@pytest.mark.spec("R1024")
@played
async def test_a_page_that_is_stale_is_fetched_by_its_cursor_and_no_other_one() -> None:
    clock, two_pages = Clock(), TwoPages(100_000, 10_000)
    transport = ScriptedTransport(NEWEST, {"prompts/list": two_pages.answer})
    with clock:
        async with connected_client(transport) as client:
            assert [one.name for one in await client.list_prompts()] == ["a", "b"]
            await clock.advance(50)
            two_pages.names["two"] = "c"
            assert [one.name for one in await client.list_prompts()] == ["a", "c"]
            assert cursors(transport) == [None, "two", "two"]


@pytest.mark.spec("R1025")
@live
async def test_who_wants_one_picture_of_it_all_begins_with_the_first_page() -> None:
    two_pages = TwoPages(100_000, 100_000)
    transport = ScriptedTransport(NEWEST, {"prompts/list": two_pages.answer})
    async with connected_client(transport) as client:
        await client.list_prompts()
        await client.list_prompts(fresh=True)
        assert cursors(transport) == [None, "two", None, "two"]


@pytest.mark.spec("R1026")
@live
async def test_a_cursor_that_is_none_any_more_drops_every_page_that_was_kept() -> None:
    two_pages = TwoPages(100_000, 0)
    transport = ScriptedTransport(NEWEST, {"prompts/list": two_pages.answer})
    async with connected_client(transport) as client:
        await client.list_prompts()
        two_pages.bad, two_pages.next = {"two"}, "three"
        two_pages.names["three"], two_pages.times["three"] = "c", 0
        assert [one.name for one in await client.list_prompts()] == ["a", "c"]
        assert cursors(transport) == [None, "two", "two", None, "three"]
        two_pages.bad = {"three"}
        two_pages.times[None] = 0
        with pytest.raises(RemoteError, match="no such page"):
            await client.list_prompts(fresh=True)


# ---------------------------------------------------------------- what makes stale


@live
async def test_a_notification_makes_stale_what_it_is_about() -> None:
    server = Server("s", ttl_s=3600)

    @server.tool
    def one() -> None: ...

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    async with (
        connect(server) as client,
        client.listen(tools=True, resources=["notes://a"]) as changes,
    ):
        assert len(await client.list_tools()) == 1

        @server.tool
        def two() -> None: ...

        await anext(changes)
        assert len(await client.list_tools()) == 2


@played
async def test_a_result_that_is_older_than_the_last_notification_is_not_cached() -> None:
    transport = keeping(3_600_000)
    async with connected_client(transport) as client:
        answer = transport.replies["tools/list"]

        def changing(params: JSON) -> Any:
            client._cache.invalidate(["tools/list"])  # the news overtakes the answer
            return answer(params)

        transport.server.replies = {"tools/list": changing}
        await client.list_tools()
        await client.list_tools()
        assert len(transport.server.requests("tools/list")) == 2


@played
async def test_after_a_gap_nothing_that_was_kept_is_fresh() -> None:
    transport = keeping(3_600_000)
    async with connected_client(transport) as client:
        await client.list_tools()
        listening = ChangeStream(t.SubscriptionFilter(tools_list_changed=True))
        client._change_streams.mark_gap(listening)
        assert await anext(listening) == Change("tools")
        await client.list_tools()
        assert len(transport.server.requests("tools/list")) == 2


@live
async def test_another_conversation_begins_with_nothing() -> None:
    transport = keeping(60_000)
    async with connected_client(transport) as client:
        await client.list_tools()
        transport.drop()
        await until(lambda: client.conversation.link.phase.name == "CLOSED")
        await client.ping()
        await client.list_tools()
        assert len(transport.server.requests("tools/list")) == 1


@pytest.mark.spec("R1003")
@live
async def test_an_answer_that_took_questions_is_not_kept() -> None:
    kept = {"ttlMs": 60_000, "cacheScope": "private"}
    asked: list[JSON] = []

    def answer(params: JSON) -> JSON:
        asked.append(params)
        if "requestState" not in params:
            return {"resultType": "input_required", "requestState": "s"}
        return kept | {"contents": []}

    transport = ScriptedTransport(NEWEST, {"resources/read": answer})
    async with connected_client(transport, answers=InputCallbacks()) as client:
        await client.read_resource("a://b")
        await client.read_resource("a://b")
        assert len(asked) == 4
        assert len(vars(client)["_cache"]) == 0


@live
async def test_a_client_that_was_closed_answers_nothing_from_memory() -> None:
    transport = keeping(60_000)
    async with connected_client(transport) as client:
        await client.list_tools()
        await client.close()
        with pytest.raises(Exception, match="the client was closed"):
            await client.list_tools()
        await asyncio.sleep(0)
