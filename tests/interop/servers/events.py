"""What a server of the Python SDK sent on its streams, for clients that come back for it.

Rules: imports nothing of ours.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from typing import Any

from mcp.server.streamable_http import EventMessage, EventStore

# How long a client waits before it comes back.
RETRY_MS = 50


class Events(EventStore):
    """Everything, in the order in which it was sent."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, Any]] = []
        self.replays = 0

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._sent.append((stream_id, message))
        return str(len(self._sent))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        self.replays += 1
        stream_id, _ = self._sent[int(last_event_id) - 1]
        for nth, (stream, message) in enumerate(self._sent[int(last_event_id) :]):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(int(last_event_id) + nth + 1)))
        return stream_id
