"""Keys that are rotated while clients are in the middle of something: two processes, as far as a client
can tell, with different rings on one file."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from colonnade import ColonnadeError, Context, Server, connect
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.runner import listening
from live import live
from relay import Relay

OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)
STEPS = {
    "old, then old and new": ([OLD], [OLD, NEW]),
    "old and new, then new and old": ([OLD, NEW], [NEW, OLD]),
    "new and old, then old and new": ([NEW, OLD], [OLD, NEW]),
    "new and old, then new": ([NEW, OLD], [NEW]),
    "old, then new and old": ([OLD], [NEW, OLD]),
}


def press(store: SqliteStore, keys: list[bytes]) -> Server:
    server = Server("press", store=store, keys=keys)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def paint(ctx: Context) -> str:
        return await ctx.elicit("Which color?", str)

    @server.tool(task=True)
    async def write(topic: str) -> str:
        return f"a book on {topic}"

    return server


class KeyStep:
    """A relay that leads to the first ring, until `next` leads it to the second."""

    def __init__(self, relay: Relay, ports: list[int]) -> None:
        self._relay = relay
        self._ports = ports
        self.url = relay.url + "/mcp"

    def next(self) -> None:
        self._relay.ports[:] = self._ports[1:]


@asynccontextmanager
async def rotated(folder: Path, *rings: list[bytes]) -> AsyncGenerator[KeyStep]:
    async with AsyncExitStack() as stack:
        ports: list[int] = []
        for ring in rings:
            store = SqliteStore(folder / "press.db")
            stack.push_async_callback(store.close)
            app = press(store, ring).asgi(hosts=["127.0.0.1"])
            ports.append((await stack.enter_async_context(listening(app, port=0))).port)
        relay = await stack.enter_async_context(Relay(ports[:1]))
        yield KeyStep(relay, ports)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@live
async def test_sessions_and_tasks_survive_each_step(
    step: str, revision: str, tmp_path: Path
) -> None:
    async with (
        rotated(tmp_path, *STEPS[step]) as keys,
        connect(keys.url, revision=revision) as client,
    ):
        task = await client.start_task("write", {"topic": "tea"})
        assert (await task.result()).text == "a book on tea"
        assert task.handle is not None
        keys.next()
        assert (await client.call_tool("add", {"a": 1, "b": 2}, returns=int)).data == 3
        assert (await client.resume_task(task.handle).result()).text == "a book on tea"


@pytest.mark.parametrize("step", STEPS)
@live
async def test_request_state_of_one_ring_is_accepted_with_the_next(
    step: str, tmp_path: Path
) -> None:
    async with rotated(tmp_path, *STEPS[step]) as keys:

        def color(_: object) -> str:
            keys.next()  # the retry reaches the other ring
            return "blue"

        async with connect(keys.url, revision="2026-07-28", on_elicit=color) as client:
            assert (await client.call_tool("paint")).text == "blue"


@live
async def test_request_state_of_a_key_that_is_gone_is_rejected(tmp_path: Path) -> None:
    async with rotated(tmp_path, [OLD], [NEW]) as keys:

        def color(_: object) -> str:
            keys.next()
            return "blue"

        async with connect(keys.url, revision="2026-07-28", on_elicit=color) as client:
            with pytest.raises(ColonnadeError, match="requestState"):
                await client.call_tool("paint")
