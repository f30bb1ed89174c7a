"""Tools, tool calls and results in the formats of OpenAI's APIs.

`chat` is Chat Completions, which many other providers support as well; `responses` is Responses,
where a tool may return images and documents.

Rules: no I/O; OpenAI's library is not needed.
"""

from contextlib import suppress
from typing import Any, Literal, TypeAlias

from colonnade.errors import InvalidArgument
from colonnade.providers.schemas import OPENAI, NoStrictForm, Schema, provider_schema, strict_schema
from colonnade.providers.tool_calls import (
    PDF,
    ContentPart,
    ImagePart,
    ModelToolCall,
    PdfPart,
    as_object,
    parse_arguments,
    part_as_text,
    required_string,
    safe_name,
)

Api: TypeAlias = Literal["chat", "responses"]

CALL = "tool call of OpenAI"


def tool_entry(
    name: str, description: str | None, schema: Schema, api: Api, want_strict: bool
) -> dict[str, Any]:
    """One entry of `tools`. Its `strict` says whether the schema is strict."""
    parameters, is_strict = provider_schema(schema), False
    if want_strict:
        with suppress(NoStrictForm):
            parameters, is_strict = strict_schema(schema, OPENAI), True
    function: dict[str, Any] = {"name": safe_name(name)}
    if description:
        function["description"] = description
    function |= {"parameters": parameters, "strict": is_strict}
    if api == "chat":
        return {"type": "function", "function": function}
    return {"type": "function", **function}


def read_call(given: object) -> ModelToolCall:
    """A tool call of either interface. Raises `LocalProtocolError` for anything else."""
    found = as_object(given, CALL)
    if found.get("type") == "function_call":
        arguments, problem = parse_arguments(found.get("arguments"))
        id, name = required_string(found, "call_id", CALL), required_string(found, "name", CALL)
        return ModelToolCall(id, name, arguments, problem, "responses")
    if "function" not in found:
        raise InvalidArgument(f"this is not a {CALL}: it is of the type {found.get('type')!r}")
    function = as_object(found["function"], CALL)
    arguments, problem = parse_arguments(function.get("arguments"))
    return ModelToolCall(
        required_string(found, "id", CALL),
        required_string(function, "name", CALL),
        arguments,
        problem,
        "chat",
    )


def result_entry(
    parts: list[ContentPart], is_error: bool, call_id: str, api: str
) -> dict[str, Any]:
    """The result of a call: a message of Chat Completions, or an item of Responses.

    Neither has a field for errors, so the text of an error begins with "Error: ".
    """
    if api == "chat":
        words = "\n".join(map(part_as_text, parts))
        content = f"Error: {words}" if is_error else words
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    output: Any
    if any(isinstance(part, ImagePart | PdfPart) for part in parts):
        output = [_item(part) for part in parts]
        if is_error:
            output.insert(0, {"type": "input_text", "text": "Error:"})
    else:
        words = "\n".join(map(part_as_text, parts))
        output = f"Error: {words}" if is_error else words
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _item(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, ImagePart):
        url = f"data:{part.mime_type};base64,{part.data}"
        return {"type": "input_image", "image_url": url}
    if isinstance(part, PdfPart):
        data = f"data:{PDF};base64,{part.data}"
        return {"type": "input_file", "filename": part.name, "file_data": data}
    return {"type": "input_text", "text": part.text}
