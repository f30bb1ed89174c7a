"""Asking the user: forms from types, declared questions, visits; in every revision that can."""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, assert_type

import pytest

from colonnade import (
    Ask,
    BlockingContext,
    Context,
    Declined,
    Depends,
    LocalProtocolError,
    Root,
    Roots,
    Sample,
    Sampled,
    Server,
)
from colonnade.protocol import types as t
from colonnade.protocol.input_rounds import invalid_request_state
from colonnade.protocol.revision import ALL, InputRequests, Revision
from live import live
from server.raw_client import EVERYTHING, JSON, Rejected, accept, decline, raw_client

ELICITING = pytest.mark.parametrize(
    "revision", [one for one in ALL if one.elicitation.modes], ids=lambda one: one.date
)
VISITING = pytest.mark.parametrize(
    "revision", [one for one in ALL if "url" in one.elicitation.modes], ids=lambda one: one.date
)


class Meal(Enum):
    WITH_MEAT = "meat"
    NO_MEAT = "veg"


@dataclass
class Seat:
    row: int
    side: Literal["window", "aisle"] = "aisle"


def booking() -> Server:
    server = Server("s")

    @server.tool
    async def book(ctx: Context) -> str:
        seat = await ctx.elicit("Which seat?", Seat)
        return f"{type(seat).__name__} {seat.row} {seat.side}"

    @server.tool
    def book_in_a_thread(ctx: BlockingContext) -> str:
        seat = ctx.elicit("Which seat?", Seat)
        return f"{seat.row} {seat.side}"

    @server.tool
    async def declared(flight: str, seat: Annotated[Seat, Ask("Which seat on {flight}?")]) -> str:
        return f"{flight} {seat.row}"

    return server


# ---------------------------------------------------------------- forms


@ELICITING
@live
async def test_a_form_is_made_of_a_type_and_the_answer_is_a_value_of_it(
    revision: Revision,
) -> None:
    async with raw_client(booking(), revision, answer=accept(row=12, side="window")) as client:
        assert await client.text("book") == "Seat 12 window"
        assert await client.text("book_in_a_thread") == "12 window"
        form = client.asked[0][1]["requestedSchema"]
        assert form["required"] == ["row"]
        assert form["properties"]["side"]["enum"] == ["window", "aisle"]
        assert ("default" in form["properties"]["side"]) is revision.elicitation.all_defaults
        client.answer = accept(row=3)
        assert await client.text("book") == "Seat 3 aisle"


@live
async def test_where_nobody_can_be_asked_the_caller_is_told(revision: Revision) -> None:
    """D10."""
    can: JSON = {"sampling": {}, "roots": {}}
    async with raw_client(booking(), revision, can=can) as client:
        for tool, arguments in (
            ("book", {}),
            ("book_in_a_thread", {}),
            ("declared", {"flight": "x"}),
        ):
            if revision.input_requests is InputRequests.AS_REQUEST:
                assert "elicitation" in await client.failure(tool, arguments)
            else:
                with pytest.raises(Rejected) as caught:
                    await client.call(tool, arguments)
                assert caught.value.code == -32021
                wanted = {"elicitation": {"form": {}}}
                assert caught.value.data == {"requiredCapabilities": wanted}


@ELICITING
@live
async def test_a_user_who_declines_or_goes_away_raises_declined(revision: Revision) -> None:
    server = booking()

    @server.tool
    async def offer(ctx: Context) -> str:
        try:
            return str(await ctx.elicit("Anything else?", str))
        except Declined:
            return "nothing else"

    async with raw_client(server, revision, answer=decline) as client:
        assert await client.failure("book") == "the user declined the request"
        assert await client.failure("book_in_a_thread") == "the user declined the request"
        assert await client.failure("declared", {"flight": "x"}) == "the user declined the request"
        assert await client.text("offer") == "nothing else"
        client.answer = lambda method, params: {"action": "cancel"}
        assert "cancelled the request" in await client.failure("book")


@ELICITING
@live
async def test_an_answer_that_does_not_fit_never_reaches_the_handler(revision: Revision) -> None:
    async with raw_client(booking(), revision, answer=accept(row="many")) as client:
        if revision.input_requests is InputRequests.AS_REQUEST:
            assert "does not fit" in await client.failure("book")
        else:
            with pytest.raises(Rejected, match="does not fit") as caught:
                await client.call("book")
            assert caught.value.code == -32602


@ELICITING
@live
async def test_a_form_may_be_written_out_and_named(revision: Revision) -> None:
    server = Server("s")
    form = t.ElicitSchema(properties={"name": t.PrimitiveSchema(type="string")}, required=["name"])

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit_form("What is your name?", form, key="user_name")
        meal = await ctx.elicit("Which meal?", Meal, key="meal")
        return f"{answer['name']} {meal}"

    def reply(method: str, params: JSON) -> JSON:
        fields = params["requestedSchema"]["properties"]
        return {
            "action": "accept",
            "content": {"name": "Ann"} if "name" in fields else {"value": "veg"},
        }

    async with raw_client(server, revision, answer=reply) as client:
        assert await client.text("greet") == "Ann Meal.NO_MEAT"
        if revision.input_requests is InputRequests.IN_RESULT:
            demands = [one["result"] for one in client.received if "inputRequests" in str(one)]
            assert [list(one["inputRequests"]) for one in demands] == [["user_name"], ["meal"]]


def test_a_type_that_no_form_can_ask_for_is_refused_with_a_way_out() -> None:
    server = Server("s")
    with pytest.raises(LocalProtocolError, match="more than a form can hold"):

        @server.tool
        async def bad(a: Annotated[dict[str, list[int]], Ask("What?")]) -> None: ...

    with pytest.raises(LocalProtocolError, match="Sample needs the type str"):

        @server.tool
        async def worse(a: Annotated[int, Sample("What?")]) -> None: ...


def test_words_that_name_what_is_never_sent_are_refused_at_registration() -> None:
    server = Server("s")

    async def account(name: Annotated[str, Ask("Whose, {who}?")]) -> str:
        return name

    with pytest.raises(LocalProtocolError, match=r"names \['flght'\]; there are \['flight'\]"):

        @server.tool
        async def misspelt(flight: str, seat: Annotated[str, Ask("Seat on {flght}?")]) -> None: ...

    with pytest.raises(LocalProtocolError, match="the message for 'name'"):

        @server.tool
        async def inherited(me: Annotated[str, Depends(account)]) -> None: ...

    with pytest.raises(LocalProtocolError, match="for a brace"):

        @server.tool
        async def unclosed(seat: Annotated[str, Ask("Seat {")]) -> None: ...

    with pytest.raises(LocalProtocolError, match=r"names \['x'\]"):

        @server.tool
        async def computed(seat: Annotated[str, Ask(lambda x: f"{x}?")]) -> None: ...

    assert len(server.tools) == 0


def test_what_is_asked_has_the_type_that_was_asked_for() -> None:
    async def body(ctx: Context, blocking: BlockingContext) -> None:
        assert_type(await ctx.elicit("?", Seat), Seat)
        assert_type(await ctx.elicit("?", Literal["a", "b"]), Any)
        assert_type(blocking.elicit("?", int), int)
        one, two = await ctx.ask(Ask("?", Seat), Roots())
        assert_type(one, Seat)
        assert_type(two, list[Root])
        assert_type((await ctx.sample("?")).text, str)

    assert body is not None


# ---------------------------------------------------------------- declared


@ELICITING
@live
async def test_a_declared_question_is_answered_before_the_body_which_runs_once(
    revision: Revision,
) -> None:
    server = booking()
    ran: list[str] = []

    @server.tool
    def count(n: Annotated[int, Ask("How many?")], what: str = "apples") -> str:
        ran.append(what)
        return f"{n} {what}"

    async with raw_client(server, revision, answer=accept(row=1, side="aisle")) as client:
        (tool,) = [x for x in (await client.ask("tools/list"))["tools"] if x["name"] == "declared"]
        assert list(tool["inputSchema"]["properties"]) == ["flight"]
        assert await client.text("declared", {"flight": "DY1"}) == "DY1 1"
        assert client.asked[0][1]["message"] == "Which seat on DY1?"
        client.answer = accept(value=3)
        assert await client.text("count") == "3 apples"
    assert ran == ["apples"]


@ELICITING
@live
async def test_declared_questions_of_a_tool_and_its_dependencies_make_one_round(
    revision: Revision,
) -> None:
    server = Server("s")

    async def account(name: Annotated[str, Ask("Account for {item}?")]) -> str:
        return name.upper()

    def limit(ctx: Context, most: int = 3, word: str = Ask("Word?", str)) -> str:  # type: ignore[assignment]
        return f"{word}{most}"

    @server.tool
    async def buy(
        item: str,
        size: Annotated[str, Ask("Size?")],
        owner: Annotated[str, Depends(account)],
        most: Annotated[str, Depends(limit)],
    ) -> str:
        return f"{item} {size} {owner} {most}"

    answers = {"Size?": "xl", "Account for hat?": "ann", "Word?": "w"}

    def reply(method: str, params: JSON) -> JSON:
        return {"action": "accept", "content": {"value": answers[params["message"]]}}

    async with raw_client(server, revision, answer=reply) as client:
        assert await client.text("buy", {"item": "hat"}) == "hat xl ANN w3"
        assert client.rounds == (0 if revision.input_requests is InputRequests.AS_REQUEST else 1)


@live
async def test_an_optional_question_gets_none_where_nobody_answers(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def book(seat: Annotated[str | None, Ask("Seat?")]) -> str:
        return repr(seat)

    @server.tool
    async def with_default(seat: Annotated[str, Ask("Seat?")] = "any") -> str:
        return repr(seat)

    async with raw_client(server, revision, can={}, answer=decline) as client:
        assert await client.text("book") == "None"
        assert await client.text("with_default") == "'any'"
        assert client.asked == []
    if revision.elicitation.modes:
        async with raw_client(server, revision, answer=decline) as client:
            assert await client.text("book") == "None"
            # A person who said no is not taken to have said what a default says.
            assert "declined" in await client.failure("with_default")


@ELICITING
@live
async def test_a_function_words_the_question_or_says_that_there_is_none(
    revision: Revision,
) -> None:
    server = Server("s")

    def confirm(path: str, force: bool) -> str | None:
        return None if force else f"Delete {path}?"

    @server.tool
    async def delete(
        path: str, sure: Annotated[bool | None, Ask(confirm)], force: bool = False
    ) -> str:
        return f"{path} {sure}"

    async with raw_client(server, revision, answer=accept(value=True)) as client:
        assert await client.text("delete", {"path": "a"}) == "a True"
        assert client.asked[0][1]["message"] == "Delete a?"
        assert await client.text("delete", {"path": "a", "force": True}) == "a None"
        assert len(client.asked) == 1


@live
async def test_models_and_roots_are_declared_too(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def sum_up(
        text: str,
        short: Annotated[str, Sample("Sum up: {text}", max_tokens=10)],
        all: Annotated[Sampled, Sample("And {text}")],
        roots: Annotated[list[Root], Roots()],
    ) -> str:
        return f"{short} {all.model} {roots[0].uri}"

    def reply(method: str, params: JSON) -> JSON:
        if method == "roots/list":
            return {"roots": [{"uri": "file:///x"}]}
        said = params["messages"][0]["content"]["text"]
        content = {"type": "text", "text": f"<{said}>"}
        return {"role": "assistant", "content": content, "model": "m"}

    async with raw_client(server, revision, answer=reply) as client:
        assert await client.text("sum_up", {"text": "abc"}) == "<Sum up: abc> m file:///x"


# ---------------------------------------------------------------- visits


def visiting() -> Server:
    server = Server("s")

    @server.tool
    async def log_in(ctx: Context, by_error: bool = False) -> str:
        await ctx.elicit_url("Log in", "https://example.com/in", id="e1", by_error=by_error)
        await ctx.elicitation_complete("e1")
        return "consented"

    @server.tool
    def log_in_in_a_thread(ctx: BlockingContext, by_error: bool = False) -> str:
        ctx.elicit_url("Log in", "https://example.com/in", by_error=by_error)
        ctx.elicitation_complete("e1")
        return "consented"

    return server


def agree(method: str, params: JSON) -> JSON:
    assert params["url"] == "https://example.com/in"
    return {"action": "accept"}


@VISITING
@live
async def test_a_user_is_sent_to_an_address(revision: Revision) -> None:
    async with raw_client(visiting(), revision, answer=agree) as client:
        assert await client.text("log_in") == "consented"
        assert await client.text("log_in_in_a_thread") == "consented"
        by_id = revision.elicitation.url_required_error
        assert ("elicitationId" in client.asked[0][1]) is by_id
        assert len(client.notifications("notifications/elicitation/complete")) == (
            2 if by_id else 0
        )


@VISITING
@live
async def test_a_url_elicitation_is_asked_by_error_where_the_revision_has_that(
    revision: Revision,
) -> None:
    async with raw_client(visiting(), revision, answer=agree) as client:
        for tool in ("log_in", "log_in_in_a_thread"):
            if not revision.elicitation.url_required_error:
                assert await client.text(tool, {"by_error": True}) == "consented"
                continue
            with pytest.raises(Rejected) as caught:
                await client.call(tool, {"by_error": True})
            assert caught.value.code == -32042
            assert caught.value.data["elicitations"][0]["url"] == "https://example.com/in"


@live
async def test_a_client_that_opens_no_addresses_is_told(revision: Revision) -> None:
    can: JSON = {"elicitation": {"form": {}}}
    async with raw_client(visiting(), revision, can=can) as client:
        if revision.input_requests is InputRequests.AS_REQUEST:
            assert "URL elicitation" in await client.failure("log_in", {"by_error": True})
        else:
            with pytest.raises(Rejected) as caught:
                await client.call("log_in")
            assert caught.value.code == -32021


# ---------------------------------------------------------------- time and state


@live
async def test_a_person_may_take_longer_than_the_function_has(revision: Revision) -> None:
    server = Server("s")

    @server.tool(timeout_s=1)
    async def patient(ctx: Context) -> str:
        found = await ctx.roots()
        return str(len(found))

    @server.tool(timeout_s=1)
    async def slow_afterwards(ctx: Context) -> str:
        await ctx.roots()
        await asyncio.sleep(3600)
        return "never"

    late: list[Any] = []

    def reply(method: str, params: JSON) -> JSON | None:
        if revision.input_requests is InputRequests.IN_RESULT:
            return {"roots": []}
        id = (
            client.received[-1]["id"]
            if client.received and "method" in client.received[-1]
            else None
        )
        late.append(id)
        return None

    async with raw_client(server, revision, can=EVERYTHING, answer=reply) as client:
        for tool in ("patient", "slow_afterwards"):
            if revision.input_requests is InputRequests.AS_REQUEST:
                id = client.send("tools/call", {"name": tool})
                await client.until(lambda: client.received[-1].get("method") == "roots/list")
                await asyncio.sleep(1.2)  # longer than each function has
                asked = client.received[-1]["id"]
                client.send_raw({"jsonrpc": "2.0", "id": asked, "result": {"roots": []}})
                result = await client.outcome(id)
            else:
                result = await client.call(tool)
            assert bool(result.get("isError")) is (tool == "slow_afterwards"), result


@pytest.mark.spec("R0793", "R0795", "R0813")
@live
async def test_a_state_that_was_tampered_with_or_is_another_callers_is_refused(
    revision: Revision,
) -> None:
    server = booking()
    async with raw_client(server, revision) as client:
        first = await client.outcome(client.send("tools/call", {"name": "book"}))
        state = first["requestState"]
        (key,) = first["inputRequests"]
        answers = {key: {"action": "accept", "content": {"row": 1, "side": "aisle"}}}
        for params in (
            {"name": "book", "requestState": state + "x"},
            {"name": "book", "requestState": state[:-4] + "AAAA"},
            {"name": "book_in_a_thread", "requestState": state},
        ):
            with pytest.raises(Rejected) as caught:
                await client.outcome(
                    client.send("tools/call", params | {"inputResponses": answers})
                )
            assert caught.value.code == -32602
            assert caught.value.message == str(invalid_request_state())
        good = {"name": "book", "requestState": state, "inputResponses": answers}
        result = await client.outcome(client.send("tools/call", good))
        assert result["content"][0]["text"] == "Seat 1 aisle"
    async with raw_client(server, revision, principal="eve") as client:
        with pytest.raises(Rejected, match=str(invalid_request_state())):
            await client.outcome(client.send("tools/call", good))


@live
async def test_replicas_that_share_keys_go_on_for_each_other(revision: Revision) -> None:
    if revision.input_requests is not InputRequests.IN_RESULT:
        return  # there a question waits in one process
    keys = [b"k" * 32]

    def replica() -> Server:
        server = Server("s", keys=keys)

        @server.tool
        async def ask(ctx: Context) -> int:
            return await ctx.elicit("n?", int)

        return server

    async with raw_client(replica(), revision) as client:
        first = await client.outcome(client.send("tools/call", {"name": "ask"}))
    (key,) = first["inputRequests"]
    params = {
        "name": "ask",
        "requestState": first["requestState"],
        "inputResponses": {key: {"action": "accept", "content": {"value": 7}}},
    }
    async with raw_client(replica(), revision) as client:
        result = await client.outcome(client.send("tools/call", params))
        assert result["content"][0]["text"] == "7"
