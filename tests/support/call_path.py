"""The modules that one tool call enters, by a trace: what ARCHITECTURE.md draws.

    python tests/support/call_path.py --write    draw them again

A call is traced after others like it, so that nothing is loaded, compiled or learned while it runs.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import colonnade
from colonnade import Host, Server
from colonnade.transport.http_server.runner import listening

PAGE = Path(__file__).resolve().parent.parent.parent / "ARCHITECTURE.md"
PACKAGE = f"{Path(colonnade.__file__).parent}/"
WARM_CALLS = 5
# A timer of the process may run during a call; the shortest of these is the call alone.
TRACED_CALLS = 5

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "trace", "version": "1"},
}
SERVER = """
from colonnade import Server

server = Server("adder")

@server.tool
async def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


class Step(NamedTuple):
    """A module, and the first function in it that the call enters."""

    module: str
    function: str


async def traced(call: Callable[[], Awaitable[None]]) -> list[Step]:
    """The steps of a call, in the order in which they are entered first."""
    for _ in range(WARM_CALLS):
        await call()
    return min([await _trace(call) for _ in range(TRACED_CALLS)], key=len)


async def _trace(call: Callable[[], Awaitable[None]]) -> list[Step]:
    found: dict[str, str] = {}

    def enter(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            found.setdefault(name.removeprefix(PACKAGE), frame.f_code.co_qualname)

    sys.setprofile(enter)
    try:
        await call()
    finally:
        sys.setprofile(None)
    return [Step(*one) for one in found.items()]


async def over_http() -> list[Step]:
    """A call of a client that keeps its connection, in the newest revision: the server's side."""
    server = Server("adder")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with listening(server.asgi(), port=0) as runner:
        reader, writer = await asyncio.open_connection("127.0.0.1", runner.port)

        async def call() -> None:
            params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            body = json.dumps(message, separators=(",", ":")).encode()
            lines = [
                "POST /mcp HTTP/1.1",
                f"Host: 127.0.0.1:{runner.port}",
                "Content-Type: application/json",
                "Accept: application/json, text/event-stream",
                "MCP-Protocol-Version: 2026-07-28",
                "Mcp-Method: tools/call",
                "Mcp-Name: add",
                f"Content-Length: {len(body)}",
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            size = head.lower().partition(b"content-length: ")[2].split()[0]
            result = json.loads(await reader.readexactly(int(size)))["result"]
            assert result["structuredContent"] == 3

        steps = await traced(call)
        writer.close()
        await writer.wait_closed()
    return steps


async def through_a_host() -> list[Step]:
    """A call of a host's tool, whose server is a child process: the host's side."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "adder.py")
        script.write_text(SERVER, "utf-8")
        async with Host({"adder": [sys.executable, str(script)]}) as host:

            async def call() -> None:
                result = await host.call_tool("adder__add", {"a": 1, "b": 2})
                assert not result.is_error

            return await traced(call)


def drawing(title: str, steps: list[Step]) -> str:
    """Steps as the page has them."""
    width = max(len(one.module) for one in steps)
    rows = [
        f"{number:2}  {one.module:{width}}  {one.function}" for number, one in enumerate(steps, 1)
    ]
    return "\n".join([f"{title}: {len(steps)} modules", "", *rows])


async def drawings() -> list[str]:
    """Both drawings."""
    return [
        drawing("tools/call over HTTP, in the server", await over_http()),
        drawing("tools/call through a host, to a child process", await through_a_host()),
    ]


def drawn() -> list[str]:
    """The drawings that the page has."""
    blocks = PAGE.read_text("utf-8").split("```")[1::2]
    return [block.strip("\n") for block in blocks if block.lstrip("\n").startswith("tools/call")]


def write() -> None:
    """Replace the drawings of the page."""
    text = PAGE.read_text("utf-8")
    for old, new in zip(drawn(), asyncio.run(drawings()), strict=True):
        text = text.replace(old, new)
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        print("\n\n".join(asyncio.run(drawings())))
