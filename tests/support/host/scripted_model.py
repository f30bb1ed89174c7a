"""A model from a script, and a host of small servers for it.

    async with hosted() as host:
        model = Scripted([calls(("shop__price", {"fruit": "plum"})), "25 cents."])
        await host.run(model, "What is a plum?")

Rules: the servers are real ones, in memory. A script that ends too early fails the test.
"""

import json
from collections.abc import Mapping
from typing import Any

from colonnade import Host, Server, ToolError

JSON = dict[str, Any]


def calls(*wanted: tuple[str, Any]) -> JSON:
    """A reply that wants calls: (name, arguments), each with an id of its own."""
    made = [
        {
            "id": f"id{number}",
            "type": "function",
            "function": {"name": name, "arguments": _written(arguments)},
        }
        for number, (name, arguments) in enumerate(wanted)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


class Scripted:
    """A model that says one thing after another, and remembers what it was shown."""

    def __init__(self, script: list[Any]) -> None:
        self.script = list(script)
        self.asked: list[list[JSON]] = []
        self.shown: list[list[str]] = []

    def __call__(self, messages: list[JSON], tools: list[JSON]) -> Any:
        self.asked.append(messages)
        self.shown.append([tool["function"]["name"] for tool in tools])
        assert self.script, "nobody expected the model to be asked again"
        reply = self.script.pop(0)
        return reply(messages) if callable(reply) else reply

    @property
    def told(self) -> list[str]:
        """What the last request said of the calls before it."""
        last = self.asked[-1]
        return [message["content"] for message in last if message["role"] == "tool"]


# ---------------------------------------------------------------- servers


def shop() -> Server:
    """Sells two kinds of fruit."""
    server = Server("shop", instructions="Prices are in cents.")
    prices = {"pear": 40, "plum": 25}

    @server.tool(read_only=True)
    def price(fruit: str, count: int = 1) -> int:
        """What fruit costs, in cents."""
        if fruit not in prices:
            raise ToolError(f"No {fruit!r}; there is {', '.join(prices)}.")
        return prices[fruit] * count

    @server.tool
    def essay(characters: int) -> str:
        """So many letters."""
        return "a" * characters

    @server.prompt
    def haggle(fruit: str, tone: str = "friendly") -> str:
        """Ask for a better price."""
        return f"Write a {tone} line that asks for cheaper {fruit}s."

    @server.resource("shop://list", mime_type="text/plain")
    def listed() -> str:
        """All that there is."""
        return "pear 40\nplum 25\n"

    return server


def many(count: int) -> Server:
    """A server with many tools, each for a number of its own."""
    server = Server("many")
    for number in range(count):
        word = f"{'abcdefghij'[number % 10]}{number}"

        def tool(number: int = number) -> str:
            return f"it is {number}"

        server.tool(name=f"count_{word}", description=f"Count the {word} things.")(tool)
    return server


def hosted(servers: Mapping[str, Any] | None = None, **options: Any) -> Host:
    """A host of these, or of the shop alone."""
    return Host(servers or {"shop": shop()}, **options)
