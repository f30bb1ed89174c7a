"""Tools, calls and results as OpenAI writes them, in both of its interfaces.

`chat` is Chat Completions, which many other providers speak as well; `responses` is Responses,
where a tool may answer with pictures and documents.

Rules: pure; nothing of OpenAI's own library is needed.
"""

from contextlib import suppress
from typing import Any, Literal, TypeAlias

from colonnade.errors import InvalidArgument
from colonnade.providers.schemas import OPENAI, Schema, Unfit, accepted, strict
from colonnade.providers.tool_calls import (
    PDF,
    Call,
    Document,
    Part,
    Picture,
    arguments_of,
    in_words,
    plain,
    safe_name,
    text_of,
)

Api: TypeAlias = Literal["chat", "responses"]

CALL = "tool call of OpenAI"


def tool_entry(
    name: str, description: str | None, schema: Schema, api: Api, want_strict: bool
) -> dict[str, Any]:
    """One entry of `tools`. `strict` in it says whether it could be."""
    parameters, is_strict = accepted(schema), False
    if want_strict:
        with suppress(Unfit):
            parameters, is_strict = strict(schema, OPENAI), True
    function: dict[str, Any] = {"name": safe_name(name)}
    if description:
        function["description"] = description
    function |= {"parameters": parameters, "strict": is_strict}
    if api == "chat":
        return {"type": "function", "function": function}
    return {"type": "function", **function}


def read_call(given: object) -> Call:
    """A tool call of either interface. Raises `LocalProtocolError` for what is none."""
    found = plain(given, CALL)
    if found.get("type") == "function_call":
        arguments, problem = arguments_of(found.get("arguments"))
        id, name = text_of(found, "call_id", CALL), text_of(found, "name", CALL)
        return Call(id, name, arguments, problem, "responses")
    if "function" not in found:
        raise InvalidArgument(f"this is no {CALL}: it is of the type {found.get('type')!r}")
    function = plain(found["function"], CALL)
    arguments, problem = arguments_of(function.get("arguments"))
    return Call(
        text_of(found, "id", CALL), text_of(function, "name", CALL), arguments, problem, "chat"
    )


def result_entry(parts: list[Part], is_error: bool, call_id: str, api: str) -> dict[str, Any]:
    """What answers a call: a message of Chat Completions, or an item of Responses.

    There is no place for an error in either, so its words begin with "Error: ".
    """
    if api == "chat":
        words = "\n".join(map(in_words, parts))
        content = f"Error: {words}" if is_error else words
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    output: Any
    if any(isinstance(part, Picture | Document) for part in parts):
        output = [_item(part) for part in parts]
        if is_error:
            output.insert(0, {"type": "input_text", "text": "Error:"})
    else:
        words = "\n".join(map(in_words, parts))
        output = f"Error: {words}" if is_error else words
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _item(part: Part) -> dict[str, Any]:
    if isinstance(part, Picture):
        url = f"data:{part.mime_type};base64,{part.data}"
        return {"type": "input_image", "image_url": url}
    if isinstance(part, Document):
        data = f"data:{PDF};base64,{part.data}"
        return {"type": "input_file", "filename": part.name, "file_data": data}
    return {"type": "input_text", "text": part.text}
