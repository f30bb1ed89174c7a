"""A tool that asks before the client has sent `notifications/initialized`: an error that says so."""

import asyncio
import json
from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.protocol.revision import ALL, Revision
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from colonnade.transport.memory import connected_pair, serve_end
from live import Records, live, until

HANDSHAKES = [one for one in ALL if one.handshake]
JSON = dict[str, Any]


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("Say hi")).text

    return server


def opening(revision: Revision) -> JSON:
    return {
        "protocolVersion": revision.date,
        "capabilities": {"sampling": {}},
        "clientInfo": {"name": "c", "version": "1"},
    }


CALL: JSON = {"name": "sample", "arguments": {}}


def request(id: int, method: str, params: JSON) -> bytes:
    said = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    return json.dumps(said).encode()


def check(message: JSON, records: Records) -> None:
    assert message["result"]["isError"] is True
    assert "notifications/initialized" in message["result"]["content"][0]["text"]
    assert records.lines == []  # it is the client's mistake, and no crash


class MessageCollector:
    """Keeps what the server says."""

    def __init__(self) -> None:
        self.heard: list[JSON] = []

    def receive(self, frame: bytes) -> None:
        self.heard.append(json.loads(frame))

    def close(self, why: str) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


@pytest.mark.parametrize("revision", HANDSHAKES, ids=lambda one: one.date)
@live
async def test_sampling_before_the_client_is_ready_is_an_error_and_no_crash(
    revision: Revision,
) -> None:
    server = asking()
    await server.start()
    near, far = connected_pair()
    serve_end(far, server)
    collector = MessageCollector()
    near.join(collector)
    try:
        with Records("colonnade.server") as records:
            near.write(request(1, "initialize", opening(revision)))
            await until(lambda: len(collector.heard) == 1)
            near.write(request(2, "tools/call", CALL))
            await until(lambda: len(collector.heard) == 2)
        check(collector.heard[1], records)
    finally:
        await near.close("over")
        await server.stop()


@live
async def test_the_same_over_http() -> None:
    server = asking()
    await server.start()
    site = HttpRunner(HttpApp(server), port=0)
    await site.start()

    async def post(body: bytes, session: str = "") -> tuple[str, str]:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
            f"{session}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        said = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        top, _, rest = said.partition("\r\n\r\n")
        return top, rest

    try:
        with Records("colonnade.server") as records:
            top, _ = await post(request(1, "initialize", opening(HANDSHAKES[-1])))
            lines = [line for line in top.split("\r\n") if line.lower().startswith("mcp-session")]
            _, body = await post(request(2, "tools/call", CALL), f"{lines[0]}\r\n")
        message = next(line for line in body.splitlines() if '"result"' in line)
        check(json.loads(message.removeprefix("data: ")), records)
    finally:
        await site.stop(0.0)
        await server.stop()
