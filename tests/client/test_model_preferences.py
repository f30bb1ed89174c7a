"""Which model a server's wishes lead to, and how much may be asked of one."""

from typing import Any

import pytest
from msgspec.structs import replace

from client.scripted_server import ScriptedTransport, connected_client
from colonnade import Context, Server
from colonnade.client import input_callbacks as answers_module
from colonnade.client.input_callbacks import InputCallbacks, Model, choose_model
from colonnade.errors import LocalProtocolError, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from colonnade.testing import connect, words_of
from live import live

MODELS = {
    "claude-3-5-sonnet-20241022": Model(cheapness=0.5, speed=0.6, intelligence=0.9),
    "claude-3-haiku-20240307": Model(cheapness=0.9, speed=0.9, intelligence=0.4),
    "gpt-4o": Model(cheapness=0.3, speed=0.7, intelligence=0.8),
}


def wishes(*hints: str, **priorities: float) -> t.ModelPreferences:
    return t.ModelPreferences(hints=[t.ModelHint(name=hint) for hint in hints], **priorities)


@pytest.mark.spec("R0105", "R0181", "R0184", "R0185")
def test_the_first_hint_that_is_part_of_a_name_decides(revision: Revision) -> None:
    assert choose_model(wishes("sonnet"), MODELS) == "claude-3-5-sonnet-20241022"
    assert choose_model(wishes("claude-3-5-sonnet"), MODELS) == "claude-3-5-sonnet-20241022"
    assert choose_model(wishes("GPT"), MODELS) == "gpt-4o"
    assert choose_model(wishes("gemini", "haiku", "sonnet"), MODELS) == "claude-3-haiku-20240307"
    fast = wishes("sonnet", "gpt", speed_priority=1.0)
    assert choose_model(fast, MODELS) == "claude-3-5-sonnet-20241022"
    clever = wishes("claude", intelligence_priority=1.0)
    assert choose_model(clever, MODELS) == "claude-3-5-sonnet-20241022"
    cheap = wishes("claude", cost_priority=1.0)
    assert choose_model(cheap, MODELS) == "claude-3-haiku-20240307"


def test_without_a_hint_that_fits_priorities_choose_and_without_any_the_first() -> None:
    assert choose_model(wishes("gemini", cost_priority=1.0), MODELS) == "claude-3-haiku-20240307"
    assert choose_model(wishes("", intelligence_priority=0.1), MODELS).endswith("20241022")
    assert choose_model(None, ["b", "a"]) == "b"
    assert choose_model(wishes(), ["b", "a"]) == "b"
    with pytest.raises(LocalProtocolError, match="no model to choose from"):
        choose_model(None, [])


# ---------------------------------------------------------------- how much


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context, words: str = "Say") -> str:
        return (await ctx.sample(words)).text

    return server


@pytest.mark.spec("R0106", "R0371")
@live
async def test_a_server_may_ask_a_model_only_so_often(
    revision: Revision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "MAX_SAMPLES", 2)
    asked: list[Any] = []

    def say(params: t.CreateMessageRequestParams) -> str:
        asked.append(params)
        return "words"

    async with connect(asking(), revision.date, on_sample=say) as client:
        for _ in range(2):
            assert (await client.call_tool("ask")).text == "words"
        if revision.handshake:
            assert (await client.call_tool("ask")).is_error
        else:
            with pytest.raises(RemoteProtocolError, match="more than 2 sampling requests"):
                await client.call_tool("ask")
        assert len(asked) == 2


@pytest.mark.spec("R0944")
@live
async def test_what_was_said_in_one_question_is_no_part_of_the_next() -> None:
    heard: list[list[str]] = []

    def say(params: t.CreateMessageRequestParams) -> str:
        heard.append([words_of(replace(params, messages=[one])) for one in params.messages])
        return "words"

    async with connect(asking(), on_sample=say) as client:
        await client.call_tool("ask", {"words": "one"})
        await client.call_tool("ask", {"words": "two"})
    assert heard == [["one"], ["two"]]


@live
async def test_tools_and_context_are_advertised_where_a_handler_says_so(
    revision: Revision,
) -> None:
    answers = InputCallbacks(on_sample=lambda asked: "", sample_tools=True, sample_context=True)
    transport = ScriptedTransport(revision)
    async with connected_client(transport, answers=answers):
        if revision.handshake:
            said = transport.server.requests("initialize")[0]["params"]["capabilities"]
        else:
            meta = transport.server.received[0]["params"]["_meta"]
            said = meta["io.modelcontextprotocol/clientCapabilities"]
        knows = "tool_use" in revision.sampling.blocks
        assert said["sampling"] == ({"tools": {}, "context": {}} if knows else {})
    with pytest.raises(LocalProtocolError, match="on_sample="):
        InputCallbacks(sample_tools=True)
