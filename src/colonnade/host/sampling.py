"""A server's wish for a model's words, as Chat Completions has it, and the answer as MCP has it.

Rules: pure. How long the answer may be is the server's to say, and passed on (R0947). Tools are
not: a host does not offer servers a model with tools. Whether a server may have a model's words at
all is decided elsewhere, by a person.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET

from colonnade.errors import RemoteProtocolError
from colonnade.host.replies import Message, read_reply, seen, words_of
from colonnade.protocol import types as t
from colonnade.providers.content import Picture, in_words, parts

# Of one part of what a server says, as of a result.
MAX_CHARACTERS: Final = 50_000
# Why a model stopped, in the words of the protocol.
REASONS: Final = {"stop": "endTurn", "length": "maxTokens"}


def asked_of_model(params: t.CreateMessageRequestParams, length: str) -> dict[str, Any]:
    """The members of a request. `length` is what the endpoint calls the bound of an answer."""
    messages: list[Message] = []
    if params.system_prompt:
        messages.append({"role": "system", "content": params.system_prompt})
    messages += [_message(one) for one in params.messages]
    asked: dict[str, Any] = {"messages": messages, length: params.max_tokens}
    if params.temperature is not None:
        asked["temperature"] = params.temperature
    if params.stop_sequences:
        asked["stop"] = params.stop_sequences
    return asked


def _message(one: t.SamplingMessage) -> Message:
    blocks: list[Any] = one.content if isinstance(one.content, list) else [one.content]
    found = parts(blocks, UNSET)
    if one.role != "user" or not any(isinstance(part, Picture) for part in found):
        return {"role": one.role, "content": "\n".join(map(in_words, found))}
    return {"role": one.role, "content": [seen(part, MAX_CHARACTERS) for part in found]}


def said_by_model(completion: Mapping[str, Any], model: str) -> t.CreateMessageResult:
    """The answer to a server. Raises `RemoteProtocolError` where a model did not just speak."""
    message, reason = read_reply(completion)
    if message.get("tool_calls"):
        raise RemoteProtocolError("the model wants tools called, and was offered none")
    return t.CreateMessageResult(
        role="assistant",
        content=t.TextContent(text=words_of(message)),
        model=str(completion.get("model") or model),
        stop_reason=REASONS.get(reason, reason or None),
    )
