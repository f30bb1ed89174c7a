"""A handler that cancels its own task, or raises as if it had been: its client is answered.

Nobody else cancelled the request, so its client waits for a response. A request that its client did
cancel gets none; that is tested with each transport.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, cast

import pytest

from colonnade import Server
from colonnade.errors import RemoteError
from colonnade.protocol.revision import ALL, HttpBinding, Revision
from colonnade.testing import connect
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import Records, live
from server.raw_client import Rejected, raw_client

JSON = dict[str, Any]
Ask = Callable[[str, JSON], Awaitable[JSON]]
LOGS = ("colonnade.transport", "colonnade.server")


def cancelling() -> Server:
    """A server with handlers that cancel themselves in several ways."""
    server = Server("s")

    def cancel() -> None:
        cast("asyncio.Task[Any]", asyncio.current_task()).cancel()

    @server.tool
    async def cancels() -> str:
        cancel()
        await asyncio.sleep(0)
        return "never"

    @server.tool
    async def cancels_later() -> str:
        await asyncio.sleep(0)
        cancel()
        cancel()
        await asyncio.sleep(3600)
        return "never"

    @server.tool
    async def cancelled_by_a_child() -> str:
        own = cast("asyncio.Task[Any]", asyncio.current_task())
        asyncio.get_running_loop().call_soon(own.cancel)
        await asyncio.sleep(3600)
        return "never"

    @server.tool
    async def fine() -> str:
        return "fine"

    @server.resource("a://cancels")
    async def read() -> str:
        cancel()
        await asyncio.sleep(0)
        return "never"

    @server.resource("a://raises")
    async def raises() -> str:
        raise asyncio.CancelledError

    @server.prompt
    async def greet() -> str:
        cancel()
        await asyncio.sleep(0)
        return "never"

    return server


REQUESTS: list[tuple[str, JSON]] = [
    ("tools/call", {"name": "cancels", "arguments": {}}),
    ("tools/call", {"name": "cancels_later", "arguments": {}}),
    ("tools/call", {"name": "cancelled_by_a_child", "arguments": {}}),
    ("resources/read", {"uri": "a://cancels"}),
    ("resources/read", {"uri": "a://raises"}),
    ("prompts/get", {"name": "greet"}),
]


async def every_request_is_answered(ask: Ask) -> None:
    with Records(*LOGS):
        for method, params in REQUESTS:
            answer = await ask(method, params)
            assert answer["error"]["code"] == -32603, (params, answer)
        answer = await ask("tools/call", {"name": "fine", "arguments": {}})
        assert answer["result"]["content"][0]["text"] == "fine"


@live
async def test_it_is_answered_on_a_pipe(revision: Revision) -> None:
    async with raw_client(cancelling(), revision) as client:

        async def ask(method: str, params: JSON) -> JSON:
            try:
                return {"result": await client.ask(method, params)}
            except Rejected as error:
                return {"error": {"code": error.code}}

        await every_request_is_answered(ask)


@live
async def test_it_is_answered_in_memory() -> None:
    async with connect(cancelling()) as client:
        with Records(*LOGS):
            for name in ("cancels", "cancels_later", "cancelled_by_a_child"):
                with pytest.raises(RemoteError, match="-32603"):
                    await client.call_tool(name)
            assert (await client.call_tool("fine")).text == "fine"


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[Caller]:
    site = HttpRunner(cancelling().asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            yield caller
    finally:
        await site.stop(0.0)


@live
async def test_it_is_answered_over_http() -> None:
    async with serving() as caller:

        async def ask(method: str, params: JSON) -> JSON:
            response = await caller.modern(method, params)
            assert response.status == 200
            return response.json

        await every_request_is_answered(ask)


@pytest.mark.parametrize(
    "revision",
    [r for r in ALL if r.handshake and r.http.binding is not HttpBinding.HTTP_SSE],
    ids=lambda r: r.date,
)
@live
async def test_it_is_answered_in_a_session_over_http(revision: Revision) -> None:
    async with serving() as caller:
        await caller.initialize(revision.date)
        ids = iter(range(10, 100))

        async def ask(method: str, params: JSON) -> JSON:
            response = await caller.ask(method, params, id=next(ids))
            assert response.status == 200
            return response.json

        await every_request_is_answered(ask)


@live
async def test_one_request_of_a_batch_is_answered_with_the_others() -> None:
    async with serving() as caller:
        await caller.initialize("2025-03-26")
        frames = [
            {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": name}}
            for n, name in enumerate(("cancels", "fine", "cancels_later"))
        ]
        with Records(*LOGS):
            response = await caller.post(frames)
        outcomes = {one["id"]: "error" in one for one in response.json}
        assert outcomes == {0: True, 1: False, 2: True}
