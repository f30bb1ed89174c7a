"""An agent: a model of Anthropic with a server's tools.

ANTHROPIC_API_KEY=… python examples/agent_anthropic.py examples/weather.py "Is it warm in Oslo?"
"""

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

from colonnade.sync import connect

URL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages"
MODEL = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-4-5")
VERSION = "2023-06-01"


def ask(messages: list[Any], tools: list[Any]) -> Any:
    key = os.environ["ANTHROPIC_API_KEY"]
    headers = {"Content-Type": "application/json", "x-api-key": key, "anthropic-version": VERSION}
    body = {"model": MODEL, "max_tokens": 4096, "messages": messages, "tools": tools}
    with urlopen(Request(URL, json.dumps(body).encode(), headers), timeout=300) as answer:
        return json.load(answer)["content"]


def run(target: str, question: str, turns: int = 20) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with connect(target) as client:
        tools = [tool.to_anthropic() for tool in client.list_tools()]
        for _ in range(turns):
            blocks = ask(messages, tools)
            calls = [block for block in blocks if block["type"] == "tool_use"]
            if not calls:
                return "".join(block["text"] for block in blocks if block["type"] == "text")
            results = [client.call_anthropic(call).to_anthropic() for call in calls]
            messages.append({"role": "assistant", "content": blocks})
            messages.append({"role": "user", "content": results})
    return f"There was no answer after {turns} turns."


if __name__ == "__main__":
    if len(sys.argv) != 3 or "ANTHROPIC_API_KEY" not in os.environ:
        sys.exit(__doc__)
    print(run(sys.argv[1], sys.argv[2]))
