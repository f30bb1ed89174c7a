"""Nothing of one caller reaches another, and what one client declared is not declared for another."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import Declined, Fault, FaultKind, RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputRequest
from colonnade.protocol.methods import Side
from gateway.recorded import NEW, OLD, recorded
from live import live, live_for

REVISIONS = [NEW, OLD]


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def book(who: str, ctx: Context) -> str:
        return f"{who}: {await ctx.elicit(f'Which seat for {who}?', str)}"

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit_url("Card.", "https://pay.example.com/", id="7", by_error=True)
        return "paid"

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    _ = book, pay, where
    return server


def answers(who: str) -> InputCallbacks:
    def elicit(params: t.ElicitRequestParams) -> str:
        assert params.message == f"Which seat for {who}?"  # or it is the form of another caller
        return f"seat of {who}"

    return InputCallbacks(on_elicit=elicit)


@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", REVISIONS)
@live_for(600)
async def test_forms_of_many_principals_at_once_never_cross(downstream: str, upstream: str) -> None:
    names = [f"user{number}" for number in range(12)]
    async with recorded(
        asking(), upstream=upstream, downstream=downstream, max_sessions=100
    ) as cell:
        clients = {who: await cell.connect(answers(who), principal=who) for who in names}

        async def calls(who: str) -> None:
            for _ in range(5):
                result = await clients[who].call_tool("s__book", {"who": who})
                assert result.text == f"{who}: seat of {who}"

        await asyncio.gather(*map(calls, names))
        assert len(cell.back) == (len(names) if upstream == OLD else 1)
        assert cell.gateway._bridge.held.count == 0


@live
async def test_two_sessions_without_authentication_never_share_a_conversation() -> None:
    async with recorded(asking(), upstream=OLD, downstream=OLD) as cell:
        for who in ("ada", "bob"):
            client = await cell.connect(answers(who))
            assert (await client.call_tool("s__book", {"who": who})).text == f"{who}: seat of {who}"
        assert len(cell.back) == 2
        for wire, who in zip(cell.back, ("ada", "bob"), strict=True):
            assert [call["arguments"]["who"] for call in wire.said(Side.CLIENT, "tools/call")] == [
                who
            ]


@pytest.mark.parametrize("downstream", REVISIONS)
@live
async def test_a_session_that_was_opened_to_list_the_tools_is_the_one_that_calls_use(
    downstream: str,
) -> None:
    async with recorded(asking(), upstream=OLD, downstream=downstream) as cell:
        client = await cell.connect(answers("ada"))
        assert len(await client.list_tools()) == 3
        await client.call_tool("s__book", {"who": "ada"})
        assert len(await client.list_tools(fresh=True)) == 3
        assert len(cell.back) == 1
        (opened,) = cell.server_wire.said(Side.CLIENT, "initialize")
        assert set(opened["capabilities"]) == {"elicitation"}


@live
async def test_a_client_that_declares_less_than_another_of_its_principal_is_asked_no_more() -> None:
    """On a server where each request declares its capabilities, all callers share a connection."""
    async with recorded(asking(), upstream=NEW, downstream=NEW) as cell:
        able = await cell.connect(answers("ada"), principal="ada")
        await able.call_tool("s__book", {"who": "ada"})
        unable = await cell.connect(None, principal="ada")
        with pytest.raises(RemoteError) as refused:
            await unable.call_tool("s__book", {"who": "ada"})
        assert refused.value.code == -32021
        assert refused.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}
        cell.check()


@live
async def test_a_client_of_a_session_without_elicitation_reads_what_is_missing() -> None:
    async with recorded(asking(), upstream=NEW, downstream=OLD) as cell:
        client = await cell.connect(None)
        result = await client.call_tool("s__book", {"who": "ada"})
        assert result.is_error
        assert "needs elicitation, which the client does not support" in result.text
        cell.check()


# ---------------------------------------------------------------- URLs


@pytest.mark.parametrize(("downstream", "upstream"), [(NEW, OLD), (OLD, OLD)])
@live
async def test_a_url_that_the_user_declines_to_open_ends_the_call(
    downstream: str, upstream: str
) -> None:
    def decline(params: t.ElicitRequestParams) -> bool:
        return False

    async with recorded(asking(), upstream=upstream, downstream=downstream) as cell:
        client = await cell.connect(InputCallbacks(on_elicit=decline))
        if downstream == OLD:  # the client has got the error, and has asked its user
            with pytest.raises(Declined):
                await client.call_tool("s__pay")
        else:
            result = await client.call_tool("s__pay")
            assert result.is_error
            assert "declined to open the URL" in result.text
        assert len(cell.server_wire.said(Side.CLIENT, "tools/call")) == 1
        cell.check()


@live
async def test_urls_that_are_never_opened_are_required_at_most_ten_times() -> None:
    opened: list[str | None] = []

    def accept(params: t.ElicitRequestParams) -> bool:
        opened.append(params.url)
        return True

    async with recorded(asking(), upstream=OLD, downstream=NEW) as cell:
        client = await cell.connect(InputCallbacks(on_elicit=accept))
        with pytest.raises(RemoteError, match="required input 10 times"):
            await client.call_tool("s__pay")
        assert len(opened) == 10
        assert cell.gateway._bridge.held.count == 0


@live
async def test_a_completion_goes_to_the_client_that_was_sent_the_url_and_to_no_other() -> None:
    server = Server("pages")
    seen: list[Context] = []

    @server.tool
    async def open_page(ctx: Context) -> str:
        await ctx.elicit_url("Card.", "https://pay.example.com/", id="same")
        seen.append(ctx)
        await ctx.elicitation_complete("same")
        return "done"

    _ = open_page
    async with recorded(server, upstream=OLD, downstream=OLD) as cell:
        first = await cell.connect(InputCallbacks(on_elicit=lambda _: True), principal="ada")
        await cell.connect(InputCallbacks(on_elicit=lambda _: True), principal="bob")
        assert (await first.call_tool("s__open_page")).text == "done"
        complete = "notifications/elicitation/complete"
        assert [len(wire.said(Side.SERVER, complete)) for wire in cell.front] == [1, 0]


# ---------------------------------------------------------------- roots


def with_roots(folder: Path) -> InputCallbacks:
    folder.mkdir()
    return InputCallbacks(roots=[str(folder)])


@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", REVISIONS)
@live
async def test_roots_of_one_caller_are_not_those_of_another(
    downstream: str, upstream: str, tmp_path: Path
) -> None:
    async with recorded(asking(), upstream=upstream, downstream=downstream, roots="caller") as cell:
        for who in ("ada", "bob"):
            client = await cell.connect(with_roots(tmp_path / who), principal=who)
            result = await client.call_tool("s__where")
            assert (tmp_path / who).as_uri() in result.text
            assert result.text.count("file://") == 1
        cell.check()


@live
async def test_roots_outside_of_a_call_are_those_that_the_last_call_brought(
    tmp_path: Path,
) -> None:
    request, asked = InputRequest(t.ListRootsRequestParams()), list[Any]()
    async with recorded(asking(), upstream=OLD, downstream=OLD, roots="caller") as cell:
        client = await cell.connect(with_roots(tmp_path / "ada"))
        await client.list_tools()
        (hosted,) = cell.host._runtime.generation.servers.values()
        (session,) = hosted.supervisor.sessions
        asked.append(await session.input_requests.respond(request))
        await client.call_tool("s__where")
        asked.append(await session.input_requests.respond(request))
        found = [[root.uri for root in one.roots] for one in asked]
        assert found == [[], [(tmp_path / "ada").as_uri()]]


@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", REVISIONS)
@live
async def test_roots_of_a_caller_are_not_offered_unless_the_settings_say_so(
    downstream: str, upstream: str, tmp_path: Path
) -> None:
    async with recorded(asking(), upstream=upstream, downstream=downstream) as cell:
        client = await cell.connect(with_roots(tmp_path / "ada"))
        try:
            result = await client.call_tool("s__where")
        except RemoteError as error:
            said = error.message
        else:
            assert result.is_error
            said = result.text
        assert "this needs roots, which the client does not support" in said
        assert not any("ada" in str(frame) for wire in cell.back for _, frame in wire.frames)


# ---------------------------------------------------------------- sessions and counts


@live
async def test_a_conversation_of_requests_without_a_session_is_not_given_to_a_session() -> None:
    async with recorded(asking(), upstream=OLD, downstream=NEW) as cell:
        await (await cell.connect(answers("ada"))).call_tool("s__book", {"who": "ada"})
        older = await cell.connect(answers("bob"), revision=OLD)
        await older.call_tool("s__book", {"who": "bob"})
        assert len(cell.back) == 2


@pytest.mark.parametrize("upstream", REVISIONS)
@pytest.mark.parametrize("downstream", REVISIONS)
@live
async def test_sampling_is_counted_for_each_principal(downstream: str, upstream: str) -> None:
    server = Server("thinking")

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think.")).text

    _ = think
    model = InputCallbacks(on_sample=lambda _: "a thought")
    async with recorded(server, upstream=upstream, downstream=downstream, sampling=True) as cell:
        # The client has a limit of its own, so each call has another client.
        for number in range(60):
            again = InputCallbacks(on_sample=lambda _: "a thought")
            client = await cell.connect(again, principal="ada")
            assert (await client.call_tool("s__think")).text == "a thought", number
        client = await cell.connect(model, principal="ada")
        result = await client.call_tool("s__think")
        assert result.is_error
        other = await cell.connect(model, principal="bob")
        assert (await other.call_tool("s__think")).text == "a thought"


@live
async def test_a_client_that_cannot_open_urls_reads_the_url_that_an_error_requires() -> None:
    """A server may require a URL although it was not declared; the client is asked for nothing."""
    server = Server("pays")

    @server.tool
    async def pay() -> str:
        elicitation = t.ElicitRequestParams(
            mode="url", message="Card.", url="https://pay.example.com/", elicitation_id="7"
        )
        data = t.URLElicitationRequiredData(elicitations=[elicitation])
        raise Fault(FaultKind.URL_ELICITATION_REQUIRED, "first", data)

    _ = pay
    async with recorded(server, upstream=OLD, downstream=NEW) as cell:
        client = await cell.connect(None)
        with pytest.raises(RemoteError) as refused:
            await client.call_tool("s__pay")
        assert refused.value.code == -32021
        assert "open https://pay.example.com/ and retry" in refused.value.message
        older = await cell.connect(None, revision="2025-06-18")
        result = await older.call_tool("s__pay")
        assert result.is_error
        assert "open https://pay.example.com/ and retry" in result.text
        cell.check()
