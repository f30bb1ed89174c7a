"""A server in memory for tests of clients: a table of functions decides its results.

    async with scripted_server(revision, {"tools/list": lambda params: {"tools": []}}) as (
        client,
        server,
    ):

Rules: only the handshake, or `server/discover`, is done here. `server.received` has every message of
the client.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from colonnade.client.client import Client
from colonnade.client.input_callbacks import InputCallbacks
from colonnade.ports import OpenConversation
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision, Revisions
from colonnade.transport.memory import End, connected_pair
from live import until

JSON = dict[str, Any]
Replies = Mapping[str, Callable[[JSON], JSON | None]]

ALL_OF_IT: JSON = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "completions": {},
    "logging": {},
}
INFO = {"name": "scripted", "version": "2"}


class Refusal(Exception):
    """A reply that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.data: JSON | None = None


class ScriptedServer:
    """The server's end of a connection in memory."""

    def __init__(self, end: End, revision: Revision, replies: Replies, capabilities: JSON) -> None:
        self.end = end
        self.revision = revision
        self.replies = replies
        self.capabilities = capabilities
        self.received: list[JSON] = []

    def receive(self, frame: bytes) -> None:
        message: JSON = json.loads(frame)
        self.received.append(message)
        if "method" in message and "id" in message:
            self._reply(message)

    def _reply(self, message: JSON) -> None:
        method, params = message["method"], message.get("params") or {}
        try:
            if method in self.replies:
                result = self.replies[method](params)
            else:
                result = self._opening(method)
        except Refusal as no:
            error: JSON = {"code": no.code, "message": str(no)}
            if no.data is not None:
                error["data"] = no.data
            self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        if result is not None:
            if not self.revision.handshake:
                result = {"resultType": "complete"} | result
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _opening(self, method: str) -> JSON | None:
        if method == "initialize":
            opened = {"protocolVersion": self.revision.date, "serverInfo": INFO}
            return opened | {"capabilities": self.capabilities, "instructions": "be kind"}
        if method == "server/discover":
            kept = {"ttlMs": 0, "cacheScope": "private", "instructions": "be kind"}
            found = {"supportedVersions": [self.revision.date], "capabilities": self.capabilities}
            meta = {"io.modelcontextprotocol/serverInfo": INFO}
            return kept | found | {"_meta": meta}
        return None

    def send(self, message: JSON) -> None:
        self.end.write(json.dumps(message).encode())

    def notify(self, method: str, params: JSON | None = None) -> None:
        message: JSON = {"jsonrpc": "2.0", "method": method}
        self.send(message | ({"params": params} if params is not None else {}))

    def requests(self, method: str) -> list[JSON]:
        """The requests and notifications of one method so far."""
        return [one for one in self.received if one.get("method") == method]

    async def wait_for(self, method: str, times: int = 1) -> JSON:
        """Wait for a message of the client; the last of this method."""
        await until(lambda: len(self.requests(method)) >= times)
        return self.requests(method)[-1]

    def close(self, why: str) -> None: ...

    async def ended(self, timeout_s: float) -> None: ...


class ScriptedTransport:
    """A transport to scripted servers: each connection is to a new one."""

    key = None
    can_reconnect = True
    restarts = False
    mirrors = False
    always_handshakes = False
    legacy_sse = None

    def __init__(self, revision: Revision, replies: Replies | None = None) -> None:
        self.name = "scripted"
        self.revision = revision
        self.replies: Replies = replies or {}
        self.servers: list[ScriptedServer] = []
        self._closing: set[asyncio.Future[None]] = set()
        self.open_error: Exception | None = None
        self.closed = 0

    @property
    def server(self) -> ScriptedServer:
        """The server of the last connection."""
        return self.servers[-1]

    async def open_channel(self, timeout_s: float) -> OpenConversation:
        if self.open_error is not None:
            raise self.open_error
        near, far = connected_pair()
        replies = {"ping": lambda params: {}, **self.replies}
        self.servers.append(ScriptedServer(far, self.revision, replies, ALL_OF_IT))
        far.join(self.server)
        return near.open_conversation

    def drop(self, why: str = "the server fell over") -> None:
        """Close the last connection soon."""
        falling = asyncio.ensure_future(self.server.end.close(why))
        self._closing.add(falling)
        falling.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        self.closed += 1


@asynccontextmanager
async def connected_client(transport: ScriptedTransport, **options: Any) -> AsyncGenerator[Client]:
    """A client that is connected by this transport."""
    answers = options.pop("answers", None)
    client = Client(transport, answers, info=t.Implementation(name="c", version="1"), **options)
    try:
        await client.open()
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def scripted_server(
    revision: Revision,
    replies: Replies | None = None,
    *,
    capabilities: JSON | None = None,
    answers: InputCallbacks | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """A connected client, and its server."""
    near, far = connected_pair()
    server = ScriptedServer(
        far, revision, replies or {}, ALL_OF_IT if capabilities is None else capabilities
    )
    far.join(server)
    client = Client(
        near.open_conversation,
        answers,
        info=t.Implementation(name="c", version="1"),
        accepts=Revisions([revision]),
        **options,
    )
    try:
        await client.open(revision)
        yield client, server
    finally:
        await client.close()
