"""A request that was never written is not cancelled at the server: it has not been issued there."""

import asyncio

import pytest

from client.misbehaving_http_server import conversation_of, misbehaving_server
from colonnade.errors import ConnectionLost
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.transport.http_client.connect import HeaderLines
from colonnade.transport.http_client.pool import ClientResponse
from live import live
from scripted_http_server import AcceptedConnection, ReceivedRequest


@live
async def test_a_request_that_was_not_sent_is_not_cancelled_at_the_server() -> None:
    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        raise AssertionError("the request was not sent")

    async def fail(headers: HeaderLines, data: bytes) -> ClientResponse:
        lost = ConnectionLost("the connection ended before the request was sent")
        lost.not_sent = True
        raise lost

    async with misbehaving_server(NOVEMBER_2025, handler) as (client, server):
        conversation = conversation_of(client)
        assert conversation is not None
        conversation._endpoint.post = fail
        with pytest.raises(ConnectionLost) as lost:
            await client.call_tool("echo")
        assert lost.value.not_sent
        await asyncio.sleep(0)
        assert not conversation._best_effort_posts
    methods = [one.message.get("method") for one in server.received if one.method == "POST"]
    assert "notifications/cancelled" not in methods
