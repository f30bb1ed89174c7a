"""Whatever a model or its provider says is read, or is an error that says so; nothing else."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import LocalProtocolError, ProtocolError
from colonnade.host.agent.openai_model import (
    conversation,
    read_reply,
    shorten,
    text_of,
    with_tool_results,
)
from colonnade.providers.openai import read_call
from host.scripted_model import calls

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
CALL = st.fixed_dictionaries(
    {},
    optional={
        "id": JSON | st.sampled_from(["a", "b", "call_0"]),
        "function": st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON}) | JSON,
    },
)
MESSAGE = st.fixed_dictionaries(
    {}, optional={"role": JSON, "content": JSON, "tool_calls": st.lists(CALL, max_size=4) | JSON}
)
REPLY = (
    MESSAGE
    | JSON
    | st.fixed_dictionaries(
        {"choices": JSON | st.lists(st.fixed_dictionaries({"message": MESSAGE}), max_size=2)}
    )
)


@given(REPLY)
def test_any_reply_is_read_or_refused_and_every_call_in_it_can_be_answered(reply: Any) -> None:
    try:
        message, _ = read_reply(reply)
    except ProtocolError:
        return
    assert message["role"] == "assistant"
    assert isinstance(text_of(message), str)
    wanted = [read_call(call) for call in message.get("tool_calls", ())]
    ids = [call.id for call in wanted]
    assert len(set(ids)) == len(ids)
    whole = with_tool_results([message], "nobody")
    assert [one["tool_call_id"] for one in whole[1:]] == ids


ROLES = st.sampled_from(["user", "assistant", "tool"])
CONVERSATION = st.lists(
    st.builds(
        lambda role, ids: (
            {"role": "assistant", "tool_calls": [{"id": one} for one in ids]}
            if role == "assistant"
            else {"role": role, "content": "", **({"tool_call_id": ids[0]} if ids else {})}
        ),
        ROLES,
        st.lists(st.sampled_from("abc"), max_size=2, unique=True),
    ),
    max_size=8,
)


@given(CONVERSATION)
def test_a_conversation_that_was_repaired_has_an_answer_for_every_call(messages: list[Any]) -> None:
    waiting: list[str] = []
    for message in with_tool_results(messages, "nobody"):
        if message["role"] == "tool":
            if message.get("tool_call_id") in waiting:
                waiting.remove(message["tool_call_id"])
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting
    assert with_tool_results(with_tool_results(messages, "nobody"), "else") == with_tool_results(
        messages, "nobody"
    )


def test_words_are_what_a_user_says_and_what_is_no_message_is_refused() -> None:
    assert conversation("Hello.") == [{"role": "user", "content": "Hello."}]
    assert conversation([calls(("a", {}))])[0]["tool_calls"]
    with pytest.raises(LocalProtocolError, match="not a message of a conversation"):
        conversation([3])


def test_what_is_cut_says_how_much() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "abc\n[truncated: 1 more characters; request less of it]"
