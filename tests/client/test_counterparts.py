"""What servers of other implementations send, and a client of ours must live with."""

from typing import Any

import pytest

from client.scripted_server import JSON, Refusal, scripted_server
from colonnade.client import request as asking
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.protocol import types as t
from colonnade.protocol.link.link import SET_LEVEL
from colonnade.protocol.revision import ALL, InputRequests, LogControl, Revision
from live import Records, live, until

DONE: JSON = {"content": [{"type": "text", "text": "done"}]}
LEVEL_KEY = "io.modelcontextprotocol/logLevel"
BY_METHOD = [one for one in ALL if one.log_control is LogControl.BY_METHOD]
ELICITING = [one for one in ALL if one.elicitation.modes]


async def put(revision: Revision, answers: InputCallbacks, method: str, params: JSON) -> JSON:
    """A question of a server, in the way of its revision; the client's whole reply to it."""
    if revision.input_requests is InputRequests.IN_RESULT:

        def call(given: JSON) -> JSON:
            if "inputResponses" in given:
                return DONE
            asked = {"q": {"method": method, "params": params}}
            return {"resultType": "input_required", "inputRequests": asked}

        async with scripted_server(revision, {"tools/call": call}, answers=answers) as (
            client,
            server,
        ):
            assert (await client.call_tool("ask")).text == "done"
            return {"result": server.requests("tools/call")[-1]["params"]["inputResponses"]["q"]}
    async with scripted_server(revision, answers=answers) as (_, server):
        server.send({"jsonrpc": "2.0", "id": 77, "method": method, "params": params})

        def replies() -> list[JSON]:
            return [one for one in server.received if one.get("id") == 77 and "method" not in one]

        await until(lambda: bool(replies()))
        return replies()[0]


@pytest.mark.parametrize("context", ["thisServer", "allServers"])
@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
@live
async def test_sampling_that_asks_for_a_context_is_answered_without_one(
    revision: Revision, context: str
) -> None:
    params: JSON = {
        "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
        "maxTokens": 5,
        "includeContext": context,
    }
    reply = await put(
        revision, InputCallbacks(on_sample=lambda asked: "a word"), "sampling/createMessage", params
    )
    assert reply["result"]["content"]["text"] == "a word"


@pytest.mark.parametrize("revision", ELICITING, ids=lambda one: one.date)
@live
async def test_a_form_whose_optional_fields_may_be_null_is_filled_in(revision: Revision) -> None:
    asked: list[t.ElicitRequestParams] = []

    def answer(question: t.ElicitRequestParams) -> Any:
        asked.append(question)
        return {"name": "Ada", "nick": None}

    nick = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Nick"}
    form = {"properties": {"name": {"type": "string"}, "nick": nick}, "required": ["name"]}
    params = {"message": "Who?", "requestedSchema": {"type": "object"} | form}
    reply = await put(revision, InputCallbacks(on_elicit=answer), "elicitation/create", params)
    assert reply["result"] == {"action": "accept", "content": {"name": "Ada"}}
    assert asked[0].requested_schema is not None
    assert asked[0].requested_schema.properties["nick"].type == "string"


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
@live
async def test_a_server_that_logs_nothing_until_a_level_is_set_is_heard(revision: Revision) -> None:
    heard: list[Any] = []
    by_method = revision.log_control is LogControl.BY_METHOD

    def call(params: JSON) -> JSON:
        wanted = LEVEL_KEY in (params.get("_meta") or {})
        if wanted or server.requests(SET_LEVEL):
            server.notify("notifications/message", {"level": "info", "data": "hello"})
        return DONE

    replies = {"tools/call": call, SET_LEVEL: lambda params: {}}
    async with scripted_server(revision, replies, on_log=heard.append) as (client, server):
        await client.call_tool("talk")
        assert [one.data for one in heard] == ["hello"]
        levels = [one["params"]["level"] for one in server.requests(SET_LEVEL)]
        assert levels == (["info"] if by_method else [])
    async with scripted_server(revision, replies) as (client, server):
        await client.call_tool("talk")
        assert server.requests(SET_LEVEL) == []  # without a callback nothing is set
    silent = {"tools": {}}
    async with scripted_server(revision, replies, capabilities=silent, on_log=print) as (
        client,
        server,
    ):
        assert server.requests(SET_LEVEL) == []  # nor where the server declares no logging


@pytest.mark.parametrize("reply", ["refused", "none"])
@pytest.mark.parametrize("revision", BY_METHOD, ids=lambda one: one.date)
@live
async def test_a_server_that_does_not_take_a_level_is_used_all_the_same(
    revision: Revision, reply: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "RESTORE_S", 0.01)

    def refuse(params: JSON) -> JSON | None:
        if reply == "none":
            return None
        raise Refusal(-32601, "no such method")

    replies = {"tools/call": lambda params: DONE, SET_LEVEL: refuse}
    with Records("colonnade.client") as records:
        async with scripted_server(revision, replies, on_log=print) as (client, _):
            assert (await client.call_tool("t")).text == "done"
    assert len(records.lines) == 1
    assert "refused logging/setLevel" in records.lines[0]


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
@live
async def test_a_result_with_structured_content_alone_is_a_result(revision: Revision) -> None:
    replies = {
        "tools/call": lambda params: {"structuredContent": {"degrees": 7}},
        "tools/list": lambda params: {"tools": [], "ttlMs": 0, "cacheScope": "private"},
    }
    async with scripted_server(revision, replies) as (client, _):
        result = await client.call_tool("forecast")
        assert (result.data, result.text, result.content) == ({"degrees": 7}, "", [])
