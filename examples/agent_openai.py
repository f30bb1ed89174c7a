"""An agent: a model of OpenAI, or with a compatible Chat Completions API, with a server's tools.

OPENAI_API_KEY=… python examples/agent_openai.py examples/weather.py "Is it warm in Oslo?"
"""

import json
import os
import sys
from typing import Any
from urllib.request import Request, urlopen

from colonnade.sync import connect

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions"
MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")


def ask(messages: list[Any], tools: list[Any]) -> Any:
    key = os.environ["OPENAI_API_KEY"]
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = {"model": MODEL, "messages": messages, "tools": tools}
    with urlopen(Request(URL, json.dumps(body).encode(), headers), timeout=300) as answer:
        return json.load(answer)["choices"][0]["message"]


def run(target: str, question: str, turns: int = 20) -> str:
    messages: list[Any] = [{"role": "user", "content": question}]
    with connect(target) as client:
        tools = [tool.to_openai() for tool in client.list_tools()]
        for _ in range(turns):
            message = ask(messages, tools)
            messages.append(message)
            if not message.get("tool_calls"):
                return message["content"]
            messages += [client.call_openai(call).to_openai() for call in message["tool_calls"]]
    return f"There was no answer after {turns} turns."


if __name__ == "__main__":
    if len(sys.argv) != 3 or "OPENAI_API_KEY" not in os.environ:
        sys.exit(__doc__)
    print(run(sys.argv[1], sys.argv[2]))
