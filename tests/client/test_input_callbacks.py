"""What handlers say becomes the answer that it means, whichever way the question came."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from client.scripted_server import scripted_server
from colonnade import Context, Declined, Server
from colonnade.client import request as asking_module
from colonnade.client.input_callbacks import InputCallbacks, elicit_result, sampling_result
from colonnade.client.roots import to_root
from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, InputRequests, Revision
from colonnade.testing import connect
from live import Records, live, until

FORMS = [one for one in ALL if "form" in one.elicitation.modes]
URLS = [one for one in ALL if "url" in one.elicitation.modes]
BY_REQUEST = [one for one in ALL if one.input_requests is InputRequests.AS_REQUEST]


@dataclass
class Seat:
    row: int
    window: bool = True
    meal: Literal["fish", "none"] | None = None


def asking() -> Server:
    server = Server("s")

    @server.tool
    async def seat(ctx: Context) -> str:
        found = await ctx.elicit("Which seat?", Seat)
        return f"{found.row} {found.window} {found.meal}"

    @server.tool
    async def name(ctx: Context) -> str:
        return await ctx.elicit("Your name?", str)

    @server.tool
    async def visit(ctx: Context) -> str:
        await ctx.elicit_url("Please pay", "https://pay.example/1")
        return "paid, perhaps"

    @server.tool
    async def model(ctx: Context) -> str:
        said = await ctx.sample("Say hi")
        return f"{said.text} by {said.model}"

    @server.tool
    async def folders(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())

    return server


Handler = Callable[[t.ElicitRequestParams], Any | Awaitable[Any]]


async def later(asked: t.ElicitRequestParams) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"row": 7}


@pytest.mark.parametrize("revision", FORMS, ids=lambda one: one.date)
@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (lambda asked: {"row": 7, "window": False, "meal": "fish"}, "7 False fish"),
        (lambda asked: {"row": 7}, "7 True None"),
        (lambda asked: {"row": 7, "meal": None}, "7 True None"),
        (lambda asked: Seat(7), "7 True None"),
        (lambda asked: t.ElicitResult(action="accept", content={"row": 7}), "7 True None"),
        (later, "7 True None"),
    ],
)
@live
async def test_a_form_is_filled_in_with_anything_that_has_its_fields(
    revision: Revision, handler: Handler, words: str
) -> None:
    async with connect(asking(), revision.date, on_elicit=handler) as client:
        assert (await client.call_tool("seat")).text == words


@pytest.mark.parametrize("revision", FORMS, ids=lambda one: one.date)
@live
async def test_the_only_field_of_a_form_may_be_said_bare(revision: Revision) -> None:
    async with connect(asking(), revision.date, on_elicit=lambda asked: "Ann") as client:
        assert (await client.call_tool("name")).text == "Ann"


@pytest.mark.parametrize("revision", FORMS, ids=lambda one: one.date)
@live
async def test_a_user_may_decline_or_go_away(revision: Revision) -> None:
    def no(asked: t.ElicitRequestParams) -> None:
        raise Declined("not today")

    async with connect(asking(), revision.date, on_elicit=no) as client:
        assert (await client.call_tool("name")).text == "the user declined the request"
    async with connect(asking(), revision.date, on_elicit=lambda asked: None) as client:
        words = (await client.call_tool("name")).text
        assert words == "the user cancelled the request"

    def leave(asked: t.ElicitRequestParams) -> None:
        raise Declined("not now", action="cancel")

    async with connect(asking(), revision.date, on_elicit=leave) as client:
        assert (await client.call_tool("name")).text == words


@pytest.mark.parametrize("revision", URLS, ids=lambda one: one.date)
@live
async def test_a_url_elicitation_is_consented_to_or_not(revision: Revision) -> None:
    shown: list[str | None] = []

    def consent(asked: t.ElicitRequestParams) -> bool:
        shown.append(asked.url)
        return len(shown) == 1

    async with connect(asking(), revision.date, on_elicit=consent) as client:
        assert (await client.call_tool("visit")).text == "paid, perhaps"
        assert (await client.call_tool("visit")).is_error
    assert shown == ["https://pay.example/1"] * 2


@live
async def test_a_model_s_words_are_a_string_or_a_whole_answer(revision: Revision) -> None:
    async def model(asked: t.CreateMessageRequestParams) -> str:
        return "hi"

    async with connect(asking(), revision.date, on_sample=model) as client:
        assert (await client.call_tool("model")).text == "hi by colonnade.testing"
    content = t.TextContent(text="ho")
    whole = t.CreateMessageResult(role="assistant", content=content, model="parrot")
    async with connect(asking(), revision.date, on_sample=lambda asked: whole) as client:
        assert (await client.call_tool("model")).text == "ho by parrot"


@live
async def test_a_user_who_does_not_want_a_model_asked_ends_the_call(revision: Revision) -> None:
    def no(asked: t.CreateMessageRequestParams) -> str:
        raise Declined("not with my words")

    async with connect(asking(), revision.date, on_sample=no) as client:
        if revision.input_requests is InputRequests.AS_REQUEST:
            result = await client.call_tool("model")
            assert (result.is_error, result.text) == (True, "the user declined the request")
            (refusal,) = [one for one in client.record.said("client") if "error" in one]
            assert refusal["error"] == {"code": -1, "message": "not with my words"}
        else:  # there no answer says no: the call is not made again
            with pytest.raises(Declined, match="not with my words"):
                await client.call_tool("model")
            assert len(client.record.said("client", "tools/call")) == 1


@live
async def test_roots_are_paths_addresses_or_both_and_may_be_asked_for_anew(
    revision: Revision, tmp_path: Path
) -> None:
    now: list[str | Path | t.Root] = [tmp_path, "file:///b", t.Root(uri="file:///c", name="c")]
    async with connect(asking(), revision.date, roots=lambda: list(now)) as client:
        words = (await client.call_tool("folders")).text
        assert words == f"{tmp_path.as_uri()} file:///b file:///c"
        now.clear()
        assert (await client.call_tool("folders")).text == ""


@pytest.mark.parametrize("revision", BY_REQUEST, ids=lambda one: one.date)
@live
async def test_a_handler_that_fails_is_logged_and_the_server_learns_no_reason(
    revision: Revision,
) -> None:
    def fail(asked: t.CreateMessageRequestParams) -> str:
        raise ValueError("my password is 123")

    answers = InputCallbacks(on_sample=fail)
    with Records("colonnade.client") as records:
        async with scripted_server(revision, answers=answers) as (_, server):
            message = {"role": "user", "content": {"type": "text", "text": "hi"}}
            params = {"messages": [message], "maxTokens": 5}
            asked = {"jsonrpc": "2.0", "id": 9, "method": "sampling/createMessage"}
            server.send(asked | {"params": params})
            await until(lambda: "error" in server.received[-1])
            said = server.received[-1]["error"]
    assert said == {"code": -32603, "message": "a callback of the client failed"}
    assert records.lines == ["ERROR the callback for sampling/createMessage raised ValueError"]


FORM = t.ElicitRequestParams(
    message="?",
    requested_schema=t.ElicitSchema(
        properties={
            "a": t.PrimitiveSchema(type="string"),
            "b": t.PrimitiveSchema(type="integer", default=3),
        }
    ),
)


@pytest.mark.spec("R0599")
def test_the_defaults_of_a_form_stand_where_nothing_was_said() -> None:
    assert elicit_result(FORM, {"a": "x"}).content == {"a": "x", "b": 3}
    assert elicit_result(FORM, {"a": "x", "b": 4}).content == {"a": "x", "b": 4}


def test_what_answers_no_question_says_what_to_return() -> None:
    with pytest.raises(LocalProtocolError, match="return a dict with a, b"):
        elicit_result(FORM, "x")
    visit = t.ElicitRequestParams(message="?", mode="url", url="https://a.example/")
    with pytest.raises(LocalProtocolError, match="True or False"):
        elicit_result(visit, {"a": 1})
    with pytest.raises(LocalProtocolError, match="a str or a CreateMessageResult, not int"):
        sampling_result(5, "m")  # type: ignore[arg-type]
    with pytest.raises(Declined):
        sampling_result(None, "m")


def test_a_root_has_an_address_and_a_name(tmp_path: Path) -> None:
    assert to_root(str(tmp_path)) == t.Root(uri=tmp_path.as_uri(), name=tmp_path.name)
    assert to_root(Path("/")) == t.Root(uri="file:///")
    assert to_root("FILE:///x") == t.Root(uri="FILE:///x")


@pytest.mark.parametrize("revision", BY_REQUEST, ids=lambda one: one.date)
@live
async def test_questions_that_are_many_bytes_at_once_are_refused_until_others_are_answered(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking_module, "MAX_INPUT_REQUEST_BYTES", 3_000)
    gate, waiting = asyncio.Event(), list[str]()

    async def on_sample(params: t.CreateMessageRequestParams) -> str:
        waiting.append("one more")
        await gate.wait()
        return "yes"

    message = {"role": "user", "content": {"type": "text", "text": "x" * 2_000}}
    params = {"messages": [message], "maxTokens": 5}

    async with scripted_server(revision, answers=InputCallbacks(on_sample=on_sample)) as (
        _,
        server,
    ):

        def ask(id: int) -> None:
            method = "sampling/createMessage"
            server.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

        def answers() -> dict[int, Any]:
            return {one["id"]: one for one in server.received if "method" not in one}

        ask(1)
        await until(lambda: len(waiting) == 1)
        ask(2)
        await until(lambda: 2 in answers())
        assert "try again when others are finished" in answers()[2]["error"]["message"]
        gate.set()
        await until(lambda: 1 in answers())
        ask(3)
        await until(lambda: 3 in answers())
        assert answers()[3]["result"]["content"]["text"] == "yes"
        assert len(waiting) == 2
