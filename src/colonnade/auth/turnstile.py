"""One at a time: whoever waits finds that the one before has done the work.

Rules: of the loop that runs now; a server that is started again in another loop waits for nobody.
"""

import asyncio


class Turnstile:
    """A lock that belongs to no loop before it is used: `async with turnstile():`."""

    def __init__(self) -> None:
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def __call__(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]
