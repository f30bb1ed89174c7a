"""Tools, calls and results as Anthropic's Messages interface writes them.

Rules: pure; nothing of Anthropic's own library is needed.
"""

from contextlib import suppress
from typing import Any

from colonnade.errors import InvalidArgument
from colonnade.providers.schemas import ANTHROPIC, Schema, Unfit, accepted, strict
from colonnade.providers.tool_calls import (
    PDF,
    Call,
    Document,
    Part,
    Picture,
    arguments_of,
    plain,
    safe_name,
    text_of,
)

FORM = "anthropic"
CALL = "tool_use block of Anthropic"


def tool_entry(
    name: str, description: str | None, schema: Schema, want_strict: bool
) -> dict[str, Any]:
    """One entry of `tools`; `strict` is in it where it could be."""
    made: dict[str, Any] = {"name": safe_name(name)}
    if description:
        made["description"] = description
    made["input_schema"] = accepted(schema)
    if want_strict:
        with suppress(Unfit):
            made |= {"input_schema": strict(schema, ANTHROPIC), "strict": True}
    return made


def read_call(given: object) -> Call:
    """A `tool_use` block. Raises `LocalProtocolError` for what is none."""
    found = plain(given, CALL)
    if found.get("type") != "tool_use":
        raise InvalidArgument(f"this is no {CALL}: it is of the type {found.get('type')!r}")
    arguments, problem = arguments_of(found.get("input"))
    id, name = text_of(found, "id", CALL), text_of(found, "name", CALL)
    return Call(id, name, arguments, problem, FORM)


def result_entry(parts: list[Part], is_error: bool, call_id: str) -> dict[str, Any]:
    """A `tool_result` block, for the content of a user's message."""
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    if parts:
        made["content"] = [_block(part) for part in parts]
    return made | {"is_error": True} if is_error else made


def _block(part: Part) -> dict[str, Any]:
    if isinstance(part, Picture):
        source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
        return {"type": "image", "source": source}
    if isinstance(part, Document):
        source = {"type": "base64", "media_type": PDF, "data": part.data}
        return {"type": "document", "source": source, "title": part.name}
    return {"type": "text", "text": part.text}
