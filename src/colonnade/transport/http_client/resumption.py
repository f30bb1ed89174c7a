"""Coming back for a stream that ended before its time: when, how often, and when no more.

Rules: as long as the server said, else longer each time and never in step with others. A server
that says less than a minimum is asked after that minimum. What a server refuses is not asked for
again; what only stands in the way is, up to a bound.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from colonnade.errors import ChannelError, ColonnadeError, ConnectionLost
from colonnade.protocol.http.sse import EventStreamParser
from colonnade.transport.http_client.endpoint import PASSING
from colonnade.transport.http_client.pool import Answer

# To come back: at first and at most, where the server has not said when.
RETRY_S = 0.5
MAX_RETRY_S = 30.0
# The least pause where the server's `retry` field says less (R0490 asks for no less than that):
# ten requests a second of one stream are fast enough to be polled, and no load.
MIN_RETRY_S = 0.1
# The most that a server may ask for. A stream that is to be asked for later than that is given up
# at once, instead of earlier than the server said.
LONGEST_S = 3600.0
# What is added for each time that the server had nothing to say, although it asks for more.
PATIENCE_S = 0.05
# Failures in a row, some 30 seconds: a server that is exchanged for a newer one takes less.
MAX_FAILURES = 6


class Resuming:
    """One stream, through all its connections. `failures` is None where nobody gives up."""

    def __init__(self, failures: int | None = MAX_FAILURES) -> None:
        self._most = failures
        self._silent = 0

    def heard(self) -> None:
        """It has said something."""
        self._silent = 0

    async def take_up(
        self, fetch: Callable[[], Awaitable[Answer]], parser: EventStreamParser
    ) -> Answer:
        """Its next connection, after a while. Raises what `fetch` raises, if it must be, and
        `ConnectionLost` where the server says to wait for longer than `LONGEST_S`."""
        failures = 0
        while True:
            await asyncio.sleep(self._pause(parser.retry_ms))
            self._silent += 1
            try:
                return await fetch()
            except ColonnadeError as error:
                failures += 1
                if not passes(error) or failures == self._most:
                    raise

    def _pause(self, retry_ms: int | None) -> float:
        if retry_ms is not None:  # R0490: never less
            if retry_ms > LONGEST_S * 1000:
                raise ConnectionLost(
                    f"the server's retry field says {retry_ms} ms before the stream may be asked "
                    f"for again; the most is {LONGEST_S * 1000:.0f}"
                )
            return max(retry_ms / 1000, MIN_RETRY_S, min(PATIENCE_S * self._silent, RETRY_S))
        longest = min(RETRY_S * 2.0 ** min(self._silent, 10), MAX_RETRY_S)
        return longest * (0.5 + random.random() / 2)


def passes(error: ColonnadeError) -> bool:
    """Whether it may be different another time."""
    status = error.status
    if status is None:
        return isinstance(error, ChannelError)
    return status >= 500 or status in PASSING


def resumed(parser: EventStreamParser) -> EventStreamParser:
    """The reader of a stream that goes on where another one ended."""
    after = EventStreamParser(last_event_id=parser.last_event_id)
    after.retry_ms = parser.retry_ms
    return after
