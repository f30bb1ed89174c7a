"""The limit: what decodes, calls and encodes with msgspec, and checks nothing.

    python limit.py http | stdio

A bare ASGI function under the uvicorn settings of the other servers, or a bare loop on stdin. Its
answers are byte for byte those of the Colonnade server. Rules: imports nothing of ours, and on stdio
nothing but msgspec.
"""

import os
import sys
from typing import Any

import msgspec

BLOB = "x" * 1024 * 1024
META = {"io.modelcontextprotocol/serverInfo": {"name": "bench", "version": "1.0"}}
decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


async def add(a: int, b: int) -> int:
    return a + b


def add_sync(a: int, b: int) -> int:
    return a + b


async def length(text: str) -> int:
    return len(text)


async def blob() -> str:
    return BLOB


ASYNC: dict[str, Any] = {"add": add, "length": length, "blob": blob}
SYNC: dict[str, Any] = {"add_sync": add_sync}
# Without a loop nothing can be awaited, so on stdio the tools are plain functions.
PLAIN: dict[str, Any] = {"add": add_sync, "add_sync": add_sync, "length": len}


def reply(message: dict[str, Any], value: Any) -> bytes:
    """A result as the revision has it that the request names; without a name it has sessions."""
    text = value if isinstance(value, str) else str(value)
    content = [{"type": "text", "text": text}]
    if "_meta" in message["params"]:
        result = {
            "resultType": "complete",
            "_meta": META,
            "content": content,
            "structuredContent": value,
        }
    else:
        result = {"content": content, "structuredContent": {"result": value}}
    return encode({"jsonrpc": "2.0", "id": message["id"], "result": result})


# ---------------------------------------------------------------- HTTP

JSON = (b"content-type", b"application/json")


async def app(scope: Any, receive: Any, send: Any) -> None:
    event = await receive()
    body = event["body"]
    while event.get("more_body"):
        event = await receive()
        body += event["body"]
    message = decode(body)
    method = message["method"]
    if method == "tools/call":
        params = message["params"]
        name = params["name"]
        if name in SYNC:
            value = SYNC[name](**params["arguments"])
        else:
            value = await ASYNC[name](**params.get("arguments", {}))
        body = reply(message, value)
        headers = [JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    elif method == "initialize":
        info = META["io.modelcontextprotocol/serverInfo"]
        result: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = info
        body = encode({"jsonrpc": "2.0", "id": message["id"], "result": result})
        headers = [JSON, (b"content-length", b"%d" % len(body)), (b"mcp-session-id", b"0" * 32)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
    else:
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


# ---------------------------------------------------------------- stdio


def loop() -> None:
    """Whatever has come is read at once, and its answers are written at once."""
    rest = b""
    while piece := os.read(0, 1 << 16):
        *lines, rest = (rest + piece).split(b"\n")
        answers: list[bytes] = []
        for line in lines:
            message = decode(line)
            params = message["params"]
            answers.append(reply(message, PLAIN[params["name"]](**params["arguments"])))
        if answers:
            answers.append(b"")
            os.write(1, b"\n".join(answers))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        from serving import serve

        serve(app, lifespan="off")
    else:
        loop()
