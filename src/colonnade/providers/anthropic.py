"""Tools, tool calls and results in the format of Anthropic's Messages API.

Rules: no I/O; Anthropic's library is not needed.
"""

from contextlib import suppress
from typing import Any

from colonnade.errors import InvalidArgument
from colonnade.providers.schemas import (
    ANTHROPIC,
    NoStrictForm,
    Schema,
    provider_schema,
    strict_schema,
)
from colonnade.providers.tool_calls import (
    PDF,
    ContentPart,
    ImagePart,
    ModelToolCall,
    PdfPart,
    as_object,
    parse_arguments,
    required_string,
    safe_name,
)

FORM = "anthropic"
CALL = "tool_use block of Anthropic"


def tool_entry(
    name: str, description: str | None, schema: Schema, want_strict: bool
) -> dict[str, Any]:
    """One entry of `tools`; with `strict` if the schema is strict."""
    made: dict[str, Any] = {"name": safe_name(name)}
    if description:
        made["description"] = description
    made["input_schema"] = provider_schema(schema)
    if want_strict:
        with suppress(NoStrictForm):
            made |= {"input_schema": strict_schema(schema, ANTHROPIC), "strict": True}
    return made


def read_call(given: object) -> ModelToolCall:
    """A `tool_use` block. Raises `LocalProtocolError` for anything else."""
    found = as_object(given, CALL)
    if found.get("type") != "tool_use":
        raise InvalidArgument(f"this is not a {CALL}: it is of the type {found.get('type')!r}")
    arguments, problem = parse_arguments(found.get("input"))
    id, name = required_string(found, "id", CALL), required_string(found, "name", CALL)
    return ModelToolCall(id, name, arguments, problem, FORM)


def result_entry(parts: list[ContentPart], is_error: bool, call_id: str) -> dict[str, Any]:
    """A `tool_result` block for the content of a user message."""
    made: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id}
    if parts:
        made["content"] = [_block(part) for part in parts]
    return made | {"is_error": True} if is_error else made


def _block(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
        return {"type": "image", "source": source}
    if isinstance(part, PdfPart):
        source = {"type": "base64", "media_type": PDF, "data": part.data}
        return {"type": "document", "source": source, "title": part.name}
    return {"type": "text", "text": part.text}
