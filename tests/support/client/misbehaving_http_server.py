"""An HTTP server that opens a conversation correctly, and then does what a test wants.

    async with misbehaving_server(revision, respond) as (client, server):

Rules: the handshake, notifications, DELETE and GET get correct responses unless a test replaces them
with `overrides`; `respond` gets every other request. At the end no task, connection or descriptor of
the client is left.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from client.scripted_server import ALL_OF_IT, INFO
from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision, Revisions
from colonnade.transport.http_client.conversation import HttpConversation
from colonnade.transport.http_client.pool import HttpPool
from live import until
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    ScriptedHttpServer,
    descriptors,
    http_response,
    response_head,
    scripted_http_server,
)

JSON = dict[str, Any]
Responder = Callable[[AcceptedConnection, ReceivedRequest], Awaitable[None]]
SESSION = "session-1"
# Enough for everything on a busy machine; what is to time out has a time-out of its own.
PATIENT_S = 60.0


def result(request: ReceivedRequest, said: JSON | None = None) -> JSON:
    """The answer to a request: of a tool, where a test does not say otherwise."""
    words = {"content": [{"type": "text", "text": "done"}], "resultType": "complete"}
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": said or words}


def as_json(message: Any, status: int = 200, *lines: str) -> bytes:
    """A message as a whole answer."""
    return http_response(status, json.dumps(message).encode(), "application/json", *lines)


def opening(revision: Revision) -> JSON:
    """The result of `initialize`, or of `server/discover`."""
    if revision.handshake:
        opened = {"protocolVersion": revision.date, "serverInfo": INFO}
        return opened | {"capabilities": ALL_OF_IT}
    kept = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
    return kept | {"supportedVersions": [revision.date], "capabilities": ALL_OF_IT}


class MisbehavingHttpServer:
    """Responds to the handshake, and passes every later request to a function of the test."""

    def __init__(
        self, revision: Revision, respond: Responder, overrides: Mapping[str, Responder]
    ) -> None:
        self.revision = revision
        self.respond = respond
        self.overrides = overrides

    async def serve(self, connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            method = request.message.get("method", "answer") if request.body else request.method
            part = self.overrides.get(method)
            if part is not None:
                await part(connection, request)
            elif method in ("initialize", "server/discover"):
                lines = [f"Mcp-Session-Id: {SESSION}"] if method == "initialize" else []
                await connection.send(as_json(result(request, opening(self.revision)), 200, *lines))
            elif request.method == "GET":
                await connection.send(http_response(405))
            elif request.method == "DELETE" or "id" not in request.message or method == "answer":
                await connection.send(response_head(202, "Content-Length: 0"))
            else:
                await self.respond(connection, request)


async def no_response(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    """Send no response."""
    await connection.wait_closed()


async def tool_result(connection: AcceptedConnection, request: ReceivedRequest) -> None:
    """Send the result of a tool."""
    await connection.send(as_json(result(request)))


@asynccontextmanager
async def misbehaving_server(
    revision: Revision,
    respond: Responder = tool_result,
    *,
    answers: InputCallbacks | None = None,
    headers: Mapping[str, str] | None = None,
    opened: bool = True,
    timeout_s: float = PATIENT_S,
    overrides: Mapping[str, Responder] | None = None,
) -> AsyncGenerator[tuple[Client, ScriptedHttpServer]]:
    """A client of such a server, which is open unless a test wants to see it open.

    `overrides` are responders by method of the protocol or of HTTP; `answer` is for responses.
    """
    pool = HttpPool(environ={})
    before = 0
    async with scripted_http_server(
        MisbehavingHttpServer(revision, respond, overrides or {}).serve
    ) as server:
        before = descriptors()
        given = list((headers or {}).items())
        client = Client(
            lambda link, hearer: HttpConversation(link, hearer, pool, server.url, headers=given),
            answers,
            info=t.Implementation(name="c", version="1"),
            accepts=Revisions([revision]),
            timeout_s=timeout_s,
        )
        try:
            if opened:
                await client.open(revision)
            yield client, server
        finally:
            await client.close()
            left = conversation_of(client)
            await pool.close()
        await until(
            lambda: left is None or not (left._calls or left._tasks or left._best_effort_posts)
        )
        await until(lambda: server.open == 0)
        await until(lambda: descriptors() <= before)


def conversation_of(client: Client) -> HttpConversation | None:
    """What is held, if anything is."""
    held = client._connection._conversation
    assert held is None or isinstance(held, HttpConversation)
    return held


async def outcome(work: Awaitable[Any]) -> Any:
    """What came of something: its value, or its error."""
    try:
        async with asyncio.timeout(PATIENT_S):
            return await work
    except Exception as error:
        return error
