"""A request whose connection ended before it was written is sent again in the same session."""

import asyncio

from client.misbehaving_http_server import MisbehavingHttpServer, conversation_of, tool_result
from colonnade import connect
from colonnade.errors import ConnectionLost
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.transport.http_client.connect import HeaderLines
from colonnade.transport.http_client.pool import ClientResponse
from live import live
from scripted_http_server import AcceptedConnection, ReceivedRequest, scripted_http_server


@live
async def test_a_request_that_was_not_sent_is_sent_again_and_the_session_goes_on() -> None:
    """What else is in flight there would be lost with the session."""
    going, running = asyncio.Event(), asyncio.Event()

    async def handler(connection: AcceptedConnection, request: ReceivedRequest) -> None:
        if request.message["params"]["name"] == "slow":
            running.set()
            await going.wait()
        await tool_result(connection, request)

    async with (
        scripted_http_server(MisbehavingHttpServer(NOVEMBER_2025, handler, {}).serve) as server,
        connect(server.url, revision="2025-11-25") as client,
    ):
        conversation = conversation_of(client)
        assert conversation is not None
        slow = asyncio.create_task(client.call_tool("slow"))
        await running.wait()
        post, failures = conversation._endpoint.post, 1

        async def fail_once(headers: HeaderLines, data: bytes) -> ClientResponse:
            nonlocal failures
            if failures:
                failures -= 1
                lost = ConnectionLost("the connection ended before the request was sent")
                lost.not_sent = True
                raise lost
            return await post(headers, data)

        conversation._endpoint.post = fail_once
        assert (await client.call_tool("quick")).text == "done"
        going.set()
        assert (await slow).text == "done"
        assert conversation_of(client) is conversation
    methods = [one.message.get("method") for one in server.received if one.method == "POST"]
    assert methods.count("initialize") == 1
