"""The `_meta` of an input request belongs to one hop, as that of any other request."""

import sys
from typing import Any

import pytest

from colonnade import Gateway, Host, connect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol import types as t
from gateway.recorded import NEW, OLD
from live import live_for

# A server that requests progress of its input requests, as the official TypeScript SDK does.
SCRIPT = """
import json, sys

ASKED = {
    "form": ("elicitation/create", {"message": "Who?", "requestedSchema":
             {"type": "object", "properties": {"name": {"type": "string"}}}}),
    "model": ("sampling/createMessage", {"maxTokens": 9, "messages":
              [{"role": "user", "content": {"type": "text", "text": "Where?"}}]}),
    "folders": ("roots/list", {}),
}
HOP = {"progressToken": 7, "io.modelcontextprotocol/x": 1, "com.example/kept": 2}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                            "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ASKED]
        send(id=id, result={"tools": tools})
    elif method == "tools/call":
        asked, params = ASKED[message["params"]["name"]]
        send(id="asked", method=asked, params=params | {"_meta": HOP})
        answer = json.loads(sys.stdin.readline())
        text = json.dumps(answer.get("result", answer.get("error")))
        send(id=id, result={"content": [{"type": "text", "text": text}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "method not found"})
"""


@pytest.mark.parametrize("downstream", [OLD, NEW])
@live_for(600)
async def test_a_progress_token_of_a_server_is_not_passed_on_with_its_input_requests(
    downstream: str,
) -> None:
    seen: list[dict[str, Any] | None] = []

    def elicit(params: t.ElicitRequestParams) -> dict[str, str]:
        seen.append(params.meta)
        return {"name": "Ada"}

    def sample(params: t.CreateMessageRequestParams) -> str:
        seen.append(params.meta)
        return "in Turin"

    settings = Settings(revision=OLD, sampling=True, roots="caller")
    entry = entry_of("s", [sys.executable, "-c", SCRIPT], settings)
    async with (
        Host({"s": entry}) as host,
        connect(
            Gateway(host),
            revision=downstream,
            on_elicit=elicit,
            on_sample=sample,
            roots=["file:///projects/one"],
        ) as client,
    ):
        assert '"name": "Ada"' in (await client.call_tool("s__form")).text
        assert "in Turin" in (await client.call_tool("s__model")).text
        assert "file:///projects/one" in (await client.call_tool("s__folders")).text
    # What stands in an `input_required` result has no `_meta` in its schema.
    kept = {"com.example/kept": 2} if downstream == OLD else None
    assert seen == [kept, kept]
