"""How long the event loop was blocked while something ran."""

import asyncio
import time


class LoopGaps:
    """The longest time for which nothing else could run in the loop, and the processor time that
    its thread used in such a gap, which other programs on the machine do not change."""

    def __init__(self) -> None:
        self.longest = self.used = 0.0

    async def watch(self) -> None:
        """Measure until it is cancelled."""
        last, last_used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, now_used = time.perf_counter(), time.thread_time()
            self.longest = max(self.longest, now - last)
            self.used = max(self.used, now_used - last_used)
            last, last_used = now, now_used
