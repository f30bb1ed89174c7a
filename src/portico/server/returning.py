"""From a function to a resource or a prompt: what it returns, as the protocol wants it.

Rules: pure but for running the function; nothing is fetched.
"""

import base64
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec

from portico.ports import Turn
from portico.protocol import types as t
from portico.server.binding import Bound, Surroundings
from portico.server.catalogue import Values
from portico.server.content import blocks_of
from portico.server.context import Context

Reader = Callable[[Turn, t.ReadResourceRequestParams, Values], Awaitable[t.Noun]]
Prompter = Callable[[Turn, t.GetPromptRequestParams], Awaitable[t.Noun]]


def reader(bound: Bound, mime_type: str | None, surroundings: Surroundings) -> Reader:
    """What answers `resources/read` for a function."""

    async def run(turn: Turn, params: t.ReadResourceRequestParams, values: Values) -> t.Noun:
        arguments = bound.signature.decode(msgspec.json.encode(values))

        async def body(context: Context | None) -> t.Noun:
            value = await bound.call(arguments, context, surroundings)
            return _contents(value, params.uri, mime_type)

        if bound.alone:
            return await body(None)
        return await surroundings.interviewed(turn, params, body)

    return run


def _contents(value: Any, uri: str, mime_type: str | None) -> t.ReadResourceResult:
    if isinstance(value, t.ReadResourceResult):
        return value
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return t.ReadResourceResult(contents=[_content(item, uri, mime_type) for item in items])


def _content(value: Any, uri: str, mime_type: str | None) -> t.ResourceContents:
    if isinstance(value, t.ResourceContents):
        return value
    if isinstance(value, bytes):
        blob = base64.b64encode(value).decode()
        kind = mime_type or "application/octet-stream"
        return t.ResourceContents(uri=uri, mime_type=kind, blob=blob)
    if isinstance(value, str):
        return t.ResourceContents(uri=uri, mime_type=mime_type or "text/plain", text=value)
    text = msgspec.json.encode(value).decode()
    return t.ResourceContents(uri=uri, mime_type=mime_type or "application/json", text=text)


def prompter(bound: Bound, noun: t.Prompt, surroundings: Surroundings) -> Prompter:
    """What answers `prompts/get` for a function."""

    async def run(turn: Turn, params: t.GetPromptRequestParams) -> t.Noun:
        arguments = bound.signature.decode(msgspec.json.encode(params.arguments or {}))

        async def body(context: Context | None) -> t.Noun:
            value = await bound.call(arguments, context, surroundings)
            return _prompted(value, noun)

        if bound.alone:
            return await body(None)
        return await surroundings.interviewed(turn, params, body)

    return run


def _prompted(value: Any, noun: t.Prompt) -> t.GetPromptResult:
    if isinstance(value, t.GetPromptResult):
        return value
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    messages: list[t.PromptMessage] = []
    for item in items:
        if isinstance(item, t.PromptMessage):
            messages.append(item)
        else:
            messages += [t.PromptMessage(role="user", content=block) for block in blocks_of(item)]
    return t.GetPromptResult(messages=messages, description=noun.description)
