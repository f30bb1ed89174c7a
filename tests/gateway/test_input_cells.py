"""Elicitation, sampling and roots cross a gateway between clients and servers of any revision."""

from pathlib import Path
from typing import Any, Literal

import pytest

from colonnade import Context, Server
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL
from gateway.cell_pictures import picture
from gateway.conversations import Golden, crosses
from gateway.recorded import NEW, OLD, Cell, recorded
from live import live

URL = "https://pay.example.com/card"
FOLDER = Path(__file__).parent
OTHER = FOLDER.parent / "support"
CELLS = [(down, up) for down in (NEW, OLD) for up in (NEW, OLD)]


def asking() -> Server:
    """A server that requests everything that a server can request."""
    server = Server("asking")
    paid: set[str] = set()

    @server.tool
    async def book(who: str, ctx: Context) -> str:
        return f"{who}: {await ctx.elicit(f'Which seat for {who}?', str)}"

    @server.tool
    async def pay(ctx: Context) -> str:
        await ctx.elicit_url("Enter your card.", URL, id="card-7")
        await ctx.elicitation_complete("card-7")
        return "paid"

    @server.tool
    async def pay_first(ctx: Context) -> str:
        if "card" not in paid:
            paid.add("card")
            await ctx.elicit_url("Enter your card.", URL, id="card-7", by_error=True)
        return "paid"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("Think.")).text

    @server.tool
    async def use(mode: Literal["required", "none"], ctx: Context) -> str:
        tool = t.Tool(name="look", input_schema={"type": "object"})
        choice = t.ToolChoice(mode=mode)
        made = await ctx.sample("Look it up.", tools=[tool], tool_choice=choice)
        return made.text

    @server.tool
    async def where(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    _ = book, pay, pay_first, think, use, where
    return server


class User:
    """What a user answers, and what it was asked."""

    def __init__(self) -> None:
        self.forms: list[str] = []
        self.urls: list[str | None] = []
        self.samples: list[t.CreateMessageRequestParams] = []

    def elicit(self, params: t.ElicitRequestParams) -> Any:
        if params.mode == "url":
            self.urls.append(params.url)
            return True
        self.forms.append(params.message)
        return "12A"

    def sample(self, params: t.CreateMessageRequestParams) -> Any:
        self.samples.append(params)
        if params.tools is None or params.tool_choice == t.ToolChoice(mode="none"):
            return "a thought"
        content: list[t.SamplingMessageContentBlock] = [
            t.ToolUseContent(id="1", name="look", input={})
        ]
        return t.CreateMessageResult(role="assistant", content=content, model="m")

    def callbacks(self, folder: Path = FOLDER) -> InputCallbacks:
        return InputCallbacks(
            on_elicit=self.elicit, on_sample=self.sample, sample_tools=True, roots=[str(folder)]
        )


SETTINGS: dict[str, Any] = {"sampling": True, "roots": "caller"}


async def called(cell: Cell, client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(f"s__{tool}", arguments)
    assert not result.is_error, result.text
    cell.check()
    return result.text


@crosses("form")
@live
async def test_a_form_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    user = User()
    async with recorded(
        asking(), upstream=golden.upstream, downstream=golden.downstream, **SETTINGS
    ) as cell:
        client = await cell.connect(user.callbacks())
        assert await called(cell, client, "book", who="Ada") == "Ada: 12A"
        assert user.forms == ["Which seat for Ada?"]
        by_request = bool(cell.client_wire.said(Side.SERVER, "elicitation/create"))
        assert by_request == (golden.downstream == OLD)
        by_request = bool(cell.server_wire.said(Side.SERVER, "elicitation/create"))
        assert by_request == (golden.upstream == OLD)
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("URL by request")
@live
async def test_a_url_elicitation_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    user = User()
    async with recorded(
        asking(), upstream=golden.upstream, downstream=golden.downstream, **SETTINGS
    ) as cell:
        client = await cell.connect(user.callbacks())
        assert await called(cell, client, "pay") == "paid"
        assert user.urls == [URL]
        sent = cell.client_wire.said(Side.SERVER, "elicitation/create")
        done = cell.client_wire.said(Side.SERVER, "notifications/elicitation/complete")
        if golden.downstream == OLD:  # where it has an id, and its completion is notified
            assert sent[0]["elicitationId"].startswith("s/")
            assert done == [{"elicitationId": sent[0]["elicitationId"]}]
        else:
            assert sent == done == []
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("URL by error")
@live
async def test_a_url_elicitation_that_an_error_requires_crosses(
    golden: Golden, rewrite_transcripts: bool
) -> None:
    user = User()
    async with recorded(
        asking(), upstream=golden.upstream, downstream=golden.downstream, **SETTINGS
    ) as cell:
        client = await cell.connect(user.callbacks())
        assert await called(cell, client, "pay_first") == "paid"
        assert user.urls == [URL]
        errors = [error["code"] for error in cell.server_wire.errors(Side.SERVER)]
        assert errors == ([-32042] if golden.upstream == OLD else [])
        # A client of the same revision gets the error; one that is asked in results gets a result.
        passed = [error["code"] for error in cell.client_wire.errors(Side.SERVER)]
        assert passed == ([-32042] if golden.upstream == golden.downstream == OLD else [])
        assert cell.gateway._bridge.held.count == 0
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("sampling")
@live
async def test_sampling_crosses(golden: Golden, rewrite_transcripts: bool) -> None:
    user = User()
    async with recorded(
        asking(), upstream=golden.upstream, downstream=golden.downstream, **SETTINGS
    ) as cell:
        client = await cell.connect(user.callbacks())
        assert await called(cell, client, "think") == "a thought"
        assert len(user.samples) == 1
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("sampling with tools")
@pytest.mark.spec("R0650", "R0651", "R0687", "R0688")
@live
async def test_sampling_with_tools_crosses_with_its_tool_choice(
    golden: Golden, rewrite_transcripts: bool
) -> None:
    user = User()
    cells = recorded(asking(), upstream=golden.upstream, downstream=golden.downstream, **SETTINGS)
    modes: tuple[Literal["required", "none"], ...] = ("required", "none")
    async with cells as cell:
        client = await cell.connect(user.callbacks())
        for mode in modes:
            await called(cell, client, "use", mode=mode)
            asked = user.samples.pop()
            assert user.samples == []
            assert [tool.name for tool in asked.tools or ()] == ["look"]
            assert asked.tool_choice == t.ToolChoice(mode=mode)
        golden.compare(cell, rewrite=rewrite_transcripts)


@crosses("roots")
@live
async def test_roots_of_the_caller_cross(golden: Golden, rewrite_transcripts: bool) -> None:
    async with recorded(
        asking(), upstream=golden.upstream, downstream=golden.downstream, **SETTINGS
    ) as cell:
        client = await cell.connect(User().callbacks())
        assert FOLDER.as_uri() in await called(cell, client, "where")
        golden.compare(cell, rewrite=rewrite_transcripts)


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
@live
async def test_roots_are_those_of_the_configuration_unless_it_says_otherwise(
    downstream: str, upstream: str
) -> None:
    settings: dict[str, Any] = SETTINGS | {"roots": (str(OTHER),)}
    async with recorded(asking(), upstream=upstream, downstream=downstream, **settings) as cell:
        client = await cell.connect(User().callbacks())
        text = await called(cell, client, "where")
        assert OTHER.as_uri() in text
        assert FOLDER.as_uri() not in text
        assert cell.client_wire.said(Side.SERVER, "roots/list") == []


# ---------------------------------------------------------------- what a server may ask


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
@live
async def test_a_server_is_offered_what_the_client_of_the_call_declared(
    downstream: str, upstream: str
) -> None:
    server = Server("able")

    @server.tool
    async def able(ctx: Context) -> str:
        declared = ctx.capabilities
        found = [name for name in ("elicitation", "sampling", "roots") if getattr(declared, name)]
        if declared.elicitation is not None and declared.elicitation.may_open_url:
            found.append("url")
        if declared.sampling is not None and declared.sampling.tools is not None:
            found.append("tools")
        return " ".join(found)

    _ = able
    user = User()
    async with recorded(server, upstream=upstream, downstream=downstream, **SETTINGS) as cell:
        full = await cell.connect(user.callbacks())
        forms = await cell.connect(InputCallbacks(on_elicit=user.elicit))
        none = await cell.connect(None)
        expected = "elicitation sampling roots url tools"
        for client, offered in [(full, expected), (forms, "elicitation url"), (none, "")] * 2:
            assert await called(cell, client, "able") == offered
        # One conversation for each where it declares for all of its requests, and one for all.
        assert len(cell.back) == (3 if upstream == OLD else 1)


@pytest.mark.parametrize(("downstream", "upstream"), CELLS)
@live
async def test_the_settings_of_a_server_limit_what_it_is_offered(
    downstream: str, upstream: str
) -> None:
    settings: dict[str, Any] = {"elicitation": False, "sampling": False}
    async with recorded(asking(), upstream=upstream, downstream=downstream, **settings) as cell:
        client = await cell.connect(User().callbacks())
        for tool, arguments in (("book", {"who": "Ada"}), ("think", {})):
            with_error: Any = None
            try:
                result = await client.call_tool(f"s__{tool}", arguments)
                assert result.is_error
                with_error = result.text
            except Exception as error:
                with_error = str(error)
            assert "does not support" in with_error
        cell.check()


@pytest.mark.parametrize("upstream", [NEW, OLD])
@live
async def test_a_client_without_url_mode_reads_the_url(upstream: str) -> None:
    """2025-06-18 has elicitation, but no URL mode (D10)."""
    user = User()
    async with recorded(asking(), upstream=upstream, downstream="2025-06-18", **SETTINGS) as cell:
        client = await cell.connect(user.callbacks())
        result = await client.call_tool("s__pay")
        assert result.is_error
        assert "URL elicitation, which the client does not support" in result.text
        assert user.urls == []
        cell.check()


# ---------------------------------------------------------------- all pairs of revisions

DATES = [revision.date for revision in ALL]


@pytest.mark.parametrize("upstream", DATES)
@pytest.mark.parametrize("downstream", DATES)
@live
async def test_a_form_crosses_between_all_revisions_that_have_it(
    downstream: str, upstream: str
) -> None:
    user = User()
    async with recorded(asking(), upstream=upstream, downstream=downstream, **SETTINGS) as cell:
        client = await cell.connect(user.callbacks())
        both = all("form" in one.elicitation.modes for one in (cell.downstream, cell.upstream))
        if both:
            assert await called(cell, client, "book", who="Ada") == "Ada: 12A"
            assert user.forms == ["Which seat for Ada?"]
            return
        # Otherwise it was not declared, and the server says what it needs (D10).
        try:
            result = await client.call_tool("s__book", {"who": "Ada"})
        except RemoteError as error:
            said = error.message
        else:
            assert result.is_error
            said = result.text
        assert "this needs elicitation, which the client does not support" in said
        assert user.forms == []
        cell.check()


@live
async def test_the_picture_of_the_four_cells_shows_the_frames_of_today() -> None:
    drawn = (Path(__file__).parents[2] / "docs" / "gateway-cells.svg").read_text("utf-8")
    module = "PYTHONPATH=tests:tests/support .venv/bin/python -m gateway.cell_pictures"
    assert drawn == await picture(), f"{module} docs/gateway-cells.svg"
