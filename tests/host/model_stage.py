"""A model from a script, and a host of small servers for it.

    async with hosted() as host:
        model = Scripted([calls(("shop__price", {"fruit": "plum"})), "25 cents."])
        await host.run(model, "What is a plum?")

Rules: the servers are real ones, in memory. A script that ends too early fails the test.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from portico import Client, Server, ToolError, connect
from portico.client.offered import Tool
from portico.client.results import ToolResult

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


# ---------------------------------------------------------------- a host


class Listed(Tool, kw_only=True):
    server: str
    original: str
    aliases: tuple[str, ...] = ()


class Bench:
    """Servers under one roof."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients

    async def list_tools(self, *, caller: str | None = None) -> list[Listed]:
        from msgspec.structs import asdict

        found: list[Listed] = []
        for key, client in self._clients.items():
            for tool in await client.list_tools():
                fields: JSON = asdict(tool) | {"name": f"{key}__{tool.name}"}
                found.append(Listed(**fields, server=key, original=tool.name))
        return found

    async def search(
        self, words: str, limit: int = 5, *, caller: str | None = None
    ) -> list[Listed]:
        tools = await self.list_tools()
        return [one for one in tools if any(w in (one.description or "") for w in words.split())][
            :limit
        ]

    async def call_tool(
        self, name: str, arguments: Any = None, *, caller: str | None = None
    ) -> ToolResult[Any]:
        key, _, own = name.partition("__")
        return await self._clients[key].call_tool(own, arguments)

    async def list_prompts(self) -> list[Any]:
        from msgspec.structs import replace

        return [
            replace(one, name=f"{key}__{one.name}")
            for key, client in self._clients.items()
            for one in await client.list_prompts()
        ]

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        key, _, own = name.partition("__")
        return await self._clients[key].get_prompt(own, arguments)

    async def read_resource(self, uri: str, *, server: str | None = None) -> Any:
        return await self._clients[server or "shop"].read_resource(uri)

    async def run(self, model: Any, messages: Any, **options: Any) -> Any:
        from portico.host.running import run

        return await run(self, model, messages, **options)


@asynccontextmanager
async def hosted(servers: Mapping[str, Any] | None = None) -> AsyncGenerator[Bench]:
    async with AsyncExitStack() as stack:
        clients = {
            key: await stack.enter_async_context(connect(server))
            for key, server in (servers or {"shop": shop()}).items()
        }
        yield Bench(clients)
