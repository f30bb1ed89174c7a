"""SSE reconnection: when and how often an event stream that ended early is resumed.

Rules: after the `retry` of the server, else with exponential backoff and jitter; never sooner than
a minimum. A request that the server refuses is not repeated; transient failures are, up to a bound.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from colonnade.errors import ChannelError, ColonnadeError, ConnectionLost
from colonnade.protocol.http.sse import EventStreamParser
from colonnade.transport.http_client.endpoint import TRANSIENT_STATUSES
from colonnade.transport.http_client.pool import ClientResponse

# The first and the longest delay, if the server has sent no `retry`.
RETRY_S = 0.5
MAX_RETRY_S = 30.0
# The least delay, also for a smaller `retry` (R0490 forbids only less than that): ten requests a
# second are enough for a stream that is polled, and no load.
MIN_RETRY_S = 0.1
# The largest `retry`. A stream with a larger one fails at once, instead of being resumed too early.
LONGEST_S = 3600.0
# Added for each connection without an event.
SILENT_CONNECTION_S = 0.05
# Consecutive failures, in some 30 seconds: a rolling update of a server takes less.
MAX_FAILURES = 6


class StreamResumption:
    """One stream over several connections. `failures` is None to retry without end."""

    def __init__(self, failures: int | None = MAX_FAILURES) -> None:
        self._most = failures
        self._silent = 0

    def on_event(self) -> None:
        """An event has arrived."""
        self._silent = 0

    async def reconnect(
        self, fetch: Callable[[], Awaitable[ClientResponse]], parser: EventStreamParser
    ) -> ClientResponse:
        """Wait, and reconnect. Raises what `fetch` raises in the end, and `ConnectionLost` for a
        `retry` above `LONGEST_S`."""
        failures = 0
        while True:
            await asyncio.sleep(self._pause(parser.retry_ms))
            self._silent += 1
            try:
                return await fetch()
            except ColonnadeError as error:
                failures += 1
                if not is_transient(error) or failures == self._most:
                    raise

    def _pause(self, retry_ms: int | None) -> float:
        if retry_ms is not None:  # R0490: never less
            if retry_ms > LONGEST_S * 1000:
                raise ConnectionLost(
                    f"the server's retry field is {retry_ms} ms; the most is {LONGEST_S * 1000:.0f}"
                )
            return max(
                retry_ms / 1000, MIN_RETRY_S, min(SILENT_CONNECTION_S * self._silent, RETRY_S)
            )
        longest = min(RETRY_S * 2.0 ** min(self._silent, 10), MAX_RETRY_S)
        return longest * (0.5 + random.random() / 2)


def is_transient(error: ColonnadeError) -> bool:
    """Whether a request may succeed if it is sent again."""
    status = error.status
    if status is None:
        return isinstance(error, ChannelError)
    return status >= 500 or status in TRANSIENT_STATUSES


def resumed_parser(parser: EventStreamParser) -> EventStreamParser:
    """The parser of the connection that resumes a stream."""
    after = EventStreamParser(last_event_id=parser.last_event_id)
    after.retry_ms = parser.retry_ms
    return after
