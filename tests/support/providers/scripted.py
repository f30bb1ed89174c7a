"""A provider of models for tests: real HTTP on loopback, answers from a script, and the refusals of
the real ones.

    with Scripted([calls(("forecast", {"city": "Oslo"})), "It is 4 degrees."]) as provider:
        provider.url, provider.asked

It speaks OpenAI's Chat Completions and Responses, and Anthropic's Messages. A request that one of
those would refuse (a name, a schema, a call without its answer) is answered with 400 and the words.

Rules: there is no model. What is refused here is what their documentation or their answers say.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

JSON = dict[str, Any]
# What a model says: words, or calls (name, arguments), each with an id of its own.
RequestContext = str | list[tuple[str, Any]]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
# What strict mode says "is not permitted" of.
NOT_PERMITTED = ("default", "oneOf", "allOf", "not", "if", "patternProperties", "minLength")


class Refused(Exception):
    """What a provider answers with 400."""


def need(holds: object, words: str) -> None:
    if not holds:
        raise Refused(words)


def check_schema(name: str, schema: JSON) -> None:
    need(NAME.fullmatch(name), f"invalid tool name {name!r}")
    plain = schema.get("type") == "object" and not any(word in schema for word in AT_ROOT)
    need(plain, f"schema of {name} must have type 'object' and none of {AT_ROOT} at the top level")
    need(all(KEY.fullmatch(key) for key in schema.get("properties", {})), "invalid property keys")


def check_strict(schema: Any, fills: bool) -> None:
    """The rules of strict mode, all the way down; `fills` is that everything is required."""
    if isinstance(schema, list):
        for one in cast("list[Any]", schema):
            check_strict(one, fills)
    if not isinstance(schema, dict):
        return
    document = cast("JSON", schema)
    for word in NOT_PERMITTED:
        need(word not in document, f"{word!r} is not permitted")
    if "properties" in document:
        need(document.get("additionalProperties") is False, "additionalProperties must be false")
        if fills:
            need(set(document["required"]) == set(document["properties"]), "'required' lacks some")
    need("type" in document or "anyOf" in document, "schema must have a 'type' key")
    for one in document.get("properties", {}).values():
        check_strict(one, fills)
    check_strict(document.get("items"), fills)
    check_strict(document.get("anyOf"), fills)


# ---------------------------------------------------------------- the three interfaces


def chat(body: JSON, request: RequestContext, turns: int) -> JSON:
    need(body.get("tools") != [], "[] is too short - 'tools'")
    for tool in body.get("tools", ()):
        function = tool["function"]
        check_schema(function["name"], function["parameters"])
        if function["strict"]:
            check_strict(function["parameters"], True)
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            need(message["tool_call_id"] in waiting, "an answer to no call")
            need(isinstance(message["content"], str), "a tool's content is text")
            waiting.remove(message["tool_call_id"])
        else:
            need(not waiting, f"tool_calls must be followed by tool messages: {waiting}")
        waiting += [call["id"] for call in message.get("tool_calls") or []]
    need(not waiting, f"tool_calls must be followed by tool messages: {waiting}")
    if isinstance(request, str):
        message: JSON = {"role": "assistant", "content": request}
    else:
        calls = [
            {
                "id": f"call_{turns}_{n}",
                "type": "function",
                "function": {"name": name, "arguments": written(arguments)},
            }
            for n, (name, arguments) in enumerate(request)
        ]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    return {"choices": [{"index": 0, "message": message}]}


def responses(body: JSON, request: RequestContext, turns: int) -> JSON:
    for tool in body["tools"]:
        check_schema(tool["name"], tool["parameters"])
        if tool["strict"]:
            check_strict(tool["parameters"], True)
    asked = {one["call_id"] for one in body["input"] if one.get("type") == "function_call"}
    outputs = [one for one in body["input"] if one.get("type") == "function_call_output"]
    need(asked == {one["call_id"] for one in outputs}, "No tool output found for function call")
    for one in outputs:
        for part in one["output"] if isinstance(one["output"], list) else []:
            need(part["type"] in ("input_text", "input_image", "input_file"), "invalid part")
    if isinstance(request, str):
        content = [{"type": "output_text", "text": request}]
        return {"output": [{"type": "message", "role": "assistant", "content": content}]}
    return {
        "output": [
            {
                "type": "function_call",
                "call_id": f"call_{turns}_{n}",
                "name": name,
                "arguments": written(arguments),
            }
            for n, (name, arguments) in enumerate(request)
        ]
    }


def messages(body: JSON, request: RequestContext, turns: int) -> JSON:
    need(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
    for tool in body["tools"]:
        check_schema(tool["name"], tool["input_schema"])
        if tool.get("strict"):
            check_strict(tool["input_schema"], False)
    waiting: set[str] = set()
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block for block in blocks if block["type"] == "tool_result"]
        told = {block["tool_use_id"] for block in results}
        need(told == waiting, "tool_use ids without tool_result blocks immediately after")
        for part in (part for block in results for part in block.get("content", [])):
            need(part["type"] in ("text", "image", "document"), "invalid part")
            need(part["type"] != "text" or part["text"], "text content blocks must be non-empty")
            if part["type"] == "image":
                need(part["source"]["media_type"] in PICTURES, "invalid media type")
        waiting = {block["id"] for block in blocks if block["type"] == "tool_use"}
    need(not waiting, "tool_use ids without tool_result blocks")
    if isinstance(request, str):
        return {"content": [{"type": "text", "text": request}], "stop_reason": "end_turn"}
    calls = [
        {"type": "tool_use", "id": f"toolu_{turns}_{n}", "name": name, "input": arguments}
        for n, (name, arguments) in enumerate(request)
    ]
    said = [{"type": "text", "text": "I shall look."}, *calls]
    return {"content": said, "stop_reason": "tool_use"}


def written(arguments: Any) -> str:
    """OpenAI's models write JSON in a string; what is a string already may be no JSON."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


PATHS = {
    "/v1/chat/completions": (chat, "authorization", "Bearer secret"),
    "/v1/responses": (responses, "authorization", "Bearer secret"),
    "/v1/messages": (messages, "x-api-key", "secret"),
}


class Scripted:
    """A provider that says what its script says, one turn a request."""

    def __init__(self, script: list[RequestContext]) -> None:
        self.asked: list[JSON] = []
        self.refused: list[str] = []
        self._script = list(script)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                speak, header, key = PATHS[self.path]
                try:
                    need(self.headers[header] == key, "invalid key")
                    status, answer = 200, outer.answer(speak, body)
                except Refused as refused:
                    outer.refused.append(str(refused))
                    status, answer = 400, {"error": {"message": str(refused)}}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def answer(self, speak: Any, body: JSON) -> JSON:
        self.asked.append(body)
        said = speak(body, self._script[0], len(self.asked))
        self._script.pop(0)
        return said

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Scripted":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()
