"""The same server over HTTP, for clients of every revision, on real sockets."""

import asyncio
import json
import signal
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.protocol.link.in_flight import ByteBudget
from colonnade.protocol.revision import ALL, JULY_2026, ChangeNotifications, InputRequests, Revision
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller
from live import live, until

JSON = dict[str, Any]
CAN = {"roots": {}, "sampling": {}}


def everything() -> Server:
    server = Server("http", version="1.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def folders(ctx: Context) -> str:
        return f"{len(await ctx.roots(key='client_roots'))} roots"

    @server.tool
    async def report(ctx: Context) -> str:
        for step in range(1, 4):
            await ctx.progress(step, 3)
        return "done"

    @server.tool
    def grow() -> str:
        server.tool(name="grown")(lambda: "x")
        return "grew"

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return f"note {name}"

    return server


class Client:
    """A caller that opens and asks as its revision does."""

    def __init__(self, caller: Caller, revision: Revision) -> None:
        self.caller = caller
        self.revision = revision
        self._next = 0

    async def open(self) -> None:
        if self.revision.handshake:
            response = await self.caller.initialize(self.revision.date, CAN)
            assert response.json["result"]["protocolVersion"] == self.revision.date

    async def ask(self, method: str, params: JSON | None = None) -> list[JSON]:
        """Everything that came back: what was said on the way, and the answer last."""
        self._next += 1
        params = dict(params or {})
        if self.revision.handshake:
            wire, response = await self.caller.asking(method, params, id=self._next)
        else:
            meta = params.pop("_meta", {}) | {"io.modelcontextprotocol/clientCapabilities": CAN}
            wire, response = await self.caller.stream(method, params, id=self._next, meta=meta)
        if not response.is_stream:
            await response.read()
            wire.close()
            return [response.json]
        found: list[JSON] = []
        while not found or "method" in found[-1]:
            found.append(await response.message())
            if "method" in found[-1] and "id" in found[-1]:
                assert found[-1]["method"] == "roots/list"
                answer = {"jsonrpc": "2.0", "id": found[-1]["id"], "result": {"roots": []}}
                assert (await self.caller.post(answer)).status == 202
        wire.close()
        return found

    async def call(self, tool: str, **params: Any) -> str:
        messages = await self.ask("tools/call", {"name": tool, **params})
        return messages[-1]["result"]["content"][0]["text"]


@asynccontextmanager
async def serving(server: Server, revision: Revision) -> AsyncGenerator[Client]:
    site = HttpRunner(server.asgi(), port=0)
    await site.start()
    try:
        async with Caller(site.port) as caller:
            client = Client(caller, revision)
            await client.open()
            yield client
    finally:
        await site.stop(0.0)


@pytest.mark.spec("R0827")
@live
async def test_tools_resources_and_progress_over_http(revision: Revision) -> None:
    async with serving(everything(), revision) as client:
        assert await client.call("add", arguments={"a": 1, "b": 2}) == "3"
        (read,) = await client.ask("resources/read", {"uri": "notes://a"})
        assert read["result"]["contents"][0]["text"] == "note a"
        said = await client.ask("tools/call", {"name": "report", "_meta": {"progressToken": 1}})
        progress = [one["params"]["progress"] for one in said[:-1]]
        assert progress == [1, 2, 3]
        (error,) = await client.ask("tools/call", {"name": "nope"})
        assert error["error"]["code"] == -32602


@pytest.mark.spec("R0857")
@live
async def test_calls_side_by_side_each_hear_of_themselves_alone(revision: Revision) -> None:
    async with serving(everything(), revision) as client:
        tokens = [f"token-{n}" for n in range(8)]
        heard = await asyncio.gather(
            *(
                client.ask("tools/call", {"name": "report", "_meta": {"progressToken": token}})
                for token in tokens
            )
        )
        for token, said in zip(tokens, heard, strict=True):
            assert [one["params"]["progressToken"] for one in said[:-1]] == [token] * 3


@live
async def test_questions_over_http(revision: Revision) -> None:
    async with serving(everything(), revision) as client:
        if revision.input_requests is InputRequests.AS_REQUEST:
            assert await client.call("folders") == "0 roots"
            return
        (first,) = await client.ask("tools/call", {"name": "folders"})
        assert list(first["result"]["inputRequests"]) == ["client_roots"]
        answers = {"client_roots": {"roots": []}}
        state = first["result"]["requestState"]
        found = await client.call("folders", requestState=state, inputResponses=answers)
        assert found == "0 roots"
        (bad,) = await client.ask(
            "tools/call",
            {"name": "folders", "requestState": state + "-TAMPERED", "inputResponses": answers},
        )
        assert bad["error"]["code"] == -32602


@pytest.mark.spec("R0818")
@live
async def test_the_first_message_of_a_subscription_is_its_acknowledgement(
    revision: Revision,
) -> None:
    async with serving(everything(), revision) as client:
        wire, stream = await client.caller.stream(
            "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s"
        )
        await client.call("grow")
        first, second = await stream.message(), await stream.message()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "s"
        assert second["method"] == "notifications/tools/list_changed"
        wire.close()


@live
async def test_changes_over_http(revision: Revision) -> None:
    async with serving(everything(), revision) as client:
        if revision.change_notifications is ChangeNotifications.SESSION:
            wire, stream = await client.caller.get()
        else:
            wire, stream = await client.caller.stream(
                "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="s"
            )
            first = await stream.message()
            assert first["method"] == "notifications/subscriptions/acknowledged"
        await client.call("grow")
        changed = await stream.message()
        assert changed["method"] == "notifications/tools/list_changed"
        wire.close()
        (tools,) = await client.ask("tools/list")
        assert "grown" in json.dumps(tools)


@live
async def test_many_callers_of_many_eras_at_once() -> None:
    server = everything()
    site = HttpRunner(server.asgi(), port=0)
    await site.start()

    async def one(revision: Revision) -> str:
        async with Caller(site.port) as caller:
            client = Client(caller, revision)
            await client.open()
            return await client.call("add", arguments={"a": 1, "b": 1})

    try:
        found = await asyncio.gather(*(one(revision) for revision in ALL * 5))
        assert found == ["2"] * len(ALL) * 5
    finally:
        await site.stop(0.0)


@pytest.mark.parametrize("path", ["/mcp", "/other"])
@live
async def test_serve_runs_until_it_is_told_to_end(path: str) -> None:
    server = everything()
    started: asyncio.Future[HttpRunner] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        server.serve("http", port=0, path=path, started=started.set_result)
    )
    site = await started
    async with Caller(site.port, path) as caller:
        response = await caller.call("add", a=2, b=3)
        assert response.text == "5"
    signal.raise_signal(signal.SIGTERM)
    async with asyncio.timeout(60):
        await serving


# ---------------------------------------------------------------- what subscriptions hold


def many(count: int) -> JSON:
    """A filter with this many resources."""
    return {"notifications": {"resourceSubscriptions": [f"notes://{n}" for n in range(count)]}}


@live
async def test_a_listen_with_too_many_resources_is_refused_with_the_limit() -> None:
    async with serving(everything(), JULY_2026) as client:
        caller = client.caller
        wire, stream = await caller.stream("subscriptions/listen", many(1000))
        told = (await stream.message())["params"]["notifications"]
        assert len(told["resourceSubscriptions"]) == 1000
        wire.abort()
        refused = await caller.modern("subscriptions/listen", many(1001))
        assert (refused.code, "more than 1000 entries" in refused.json["error"]["message"]) == (
            -32602,
            True,
        )
        refused = await caller.modern("subscriptions/listen", many(200_000))
        assert refused.code == -32602
        assert "more than 262144 bytes" in refused.json["error"]["message"]


@live
async def test_what_all_subscriptions_together_hold_is_bounded() -> None:
    server = everything()
    budget = server._dispatch._listen_bytes = ByteBudget(250_000, 250_000)
    async with serving(server, JULY_2026) as client:
        caller = client.caller
        streams = [await caller.stream("subscriptions/listen", many(900)) for _ in range(2)]
        for _, stream in streams:
            assert "acknowledged" in (await stream.message())["method"]
        assert 2 * 900 * 100 < budget.used < 250_000
        refused = await caller.modern("subscriptions/listen", many(900))
        assert (refused.status, refused.headers["retry-after"]) == (503, "60")
        assert "too many open subscriptions" in refused.json["error"]["message"]
        streams[0][0].abort()
        await until(lambda: budget.used < 150_000)
        _, stream = await caller.stream("subscriptions/listen", many(900))
        assert stream.is_stream
        for wire in caller.wires:
            wire.abort()
        await until(lambda: budget.used == 0)


@live
async def test_an_open_listen_does_not_hold_its_body() -> None:
    """Of eight bodies of 200 KB nothing is left while their streams are open."""
    async with serving(everything(), JULY_2026) as client:
        caller = client.caller
        held: list[int] = []
        tracemalloc.start()
        try:
            for _ in range(9):
                params = many(3) | {"unknown": "x" * 200_000}
                _, stream = await caller.stream("subscriptions/listen", params)
                await stream.message()
                del params
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
        assert held[-1] - held[0] < 2 * 200_000
