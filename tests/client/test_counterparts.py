"""What servers of other implementations send, and a client of ours must live with."""

from typing import Any

import pytest

from client.hand import JSON, by_hand
from live import live, until
from portico.client.answers import Answers
from portico.protocol import types as t
from portico.protocol.revision import ALL, Asking, Revision

DONE: JSON = {"content": [{"type": "text", "text": "done"}]}
ELICITING = [one for one in ALL if one.elicitation.modes]


async def put(revision: Revision, answers: Answers, method: str, params: JSON) -> JSON:
    """A question of a server, in the way of its revision; the client's whole reply to it."""
    if revision.asking is Asking.BY_RESULT:

        def call(given: JSON) -> JSON:
            if "inputResponses" in given:
                return DONE
            asked = {"q": {"method": method, "params": params}}
            return {"resultType": "input_required", "inputRequests": asked}

        async with by_hand(revision, {"tools/call": call}, answers=answers) as (client, hand):
            assert (await client.call_tool("ask")).text == "done"
            return {"result": hand.requests("tools/call")[-1]["params"]["inputResponses"]["q"]}
    async with by_hand(revision, answers=answers) as (_, hand):
        hand.say({"jsonrpc": "2.0", "id": 77, "method": method, "params": params})

        def replies() -> list[JSON]:
            return [one for one in hand.heard if one.get("id") == 77 and "method" not in one]

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
        revision, Answers(on_sample=lambda asked: "a word"), "sampling/createMessage", params
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
    reply = await put(revision, Answers(on_elicit=answer), "elicitation/create", params)
    assert reply["result"] == {"action": "accept", "content": {"name": "Ada"}}
    assert asked[0].requested_schema is not None
    assert asked[0].requested_schema.properties["nick"].type == "string"
