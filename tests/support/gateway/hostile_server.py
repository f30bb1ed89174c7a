"""A server that a test writes frame by frame, behind a gateway in this process.

    def handle(message, server):
        server.send({"jsonrpc": "2.0", "id": message["id"], "result": …})

Rules: it answers the handshake, discovery and `tools/list` itself; all else is up to the test.
"""

import json
from collections.abc import Callable
from typing import Any

from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.transport.memory import End, connected_pair

NEW = "2026-07-28"
INFO = {"name": "hostile", "version": "1"}
CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}
TOOLS = [{"name": "act", "inputSchema": {"type": "object"}}]

Handle = Callable[[dict[str, Any], "HostileServer"], None]


class HostileServer:
    """One server for all of its connections; `received` has all that it was sent."""

    def __init__(self, handle: Handle, revision: str, key: str = "s", **settings: Any) -> None:
        self._handle = handle
        self._revision = revision
        self._key = key
        self._settings = settings
        self.received: list[dict[str, Any]] = []
        self.connections: list[End] = []
        self._current: End | None = None

    def entry(self) -> ServerEntry:
        """This server, for a host."""

        async def resolve() -> End:
            near, far = connected_pair()
            self.connections.append(far)
            far.join(HostileReader(self, far))
            return near

        settings = Settings(revision=self._revision, **self._settings)
        return ServerEntry(key=self._key, resolve=resolve, fingerprint=self._key, settings=settings)

    def said(self, method: str) -> list[dict[str, Any]]:
        """The requests and notifications of a method that it has received."""
        return [message for message in self.received if message.get("method") == method]

    def send(self, message: dict[str, Any] | bytes) -> None:
        """Send a message, or any bytes, on the connection that it has received the last one on."""
        frame = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert self._current is not None
        self._current.write(frame)

    def respond(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        """Send the result of a request, as its revision writes it."""
        if self._revision == NEW:
            result = {"resultType": "complete", **result}
        self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def receive(self, message: dict[str, Any], end: End) -> None:
        """Handle a message of the gateway."""
        self.received.append(message)
        self._current = end
        method = message.get("method")
        if method == "initialize":
            self.respond(
                message,
                {
                    "protocolVersion": self._revision,
                    "capabilities": CAPABILITIES,
                    "serverInfo": INFO,
                },
            )
        elif method == "server/discover":
            self.respond(
                message,
                {
                    "supportedVersions": [NEW],
                    "capabilities": CAPABILITIES,
                    "_meta": {"io.modelcontextprotocol/serverInfo": INFO},
                    "ttlMs": 0,
                    "cacheScope": "private",
                },
            )
        elif method == "tools/list":
            self.respond(message, {"tools": TOOLS, "ttlMs": 0, "cacheScope": "private"})
        elif method in ("ping", "logging/setLevel", "resources/subscribe"):
            self.respond(message, {})
        elif method != "notifications/initialized":
            self._handle(message, self)


class HostileReader:
    """The reader of one connection."""

    def __init__(self, server: HostileServer, end: End) -> None:
        self._server = server
        self._end = end

    def receive(self, frame: bytes) -> None:
        self._server.receive(json.loads(frame), self._end)

    def close(self, why: str) -> None:
        """Nothing is left to do."""

    async def ended(self, timeout_s: float) -> None:
        """It has no tasks."""
