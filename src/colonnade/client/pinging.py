"""Asks from time to time whether a server is still there, where a conversation lasts.

Rules: nobody is asked while something else is going on, or was a moment ago. A ping that is not
answered ends the conversation, which is logged; the next one begins when somebody needs it.
"""

import asyncio
import logging

from colonnade.client.speaking import Speaker
from colonnade.errors import ChannelError, ColonnadeError
from colonnade.protocol import types as t
from colonnade.protocol.link import PING

log: logging.Logger = logging.getLogger("colonnade.client")

# A sleep may end that much early, by the last digit of the time alone; nobody sleeps for so little.
ROUNDING_S = 1e-6


class Pinging:
    """Pings one server while nothing else is said, in a task of its own."""

    def __init__(self, speaker: Speaker, every_s: float, timeout_s: float) -> None:
        self._speaker = speaker
        self._every_s = every_s
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on."""
        if self._task is None:
            self._speaker.watched = True
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """No more; at any time, and twice."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._speaker.closed:
            quiet_s = 0.0 if self._speaker.busy else loop.time() - self._speaker.heard_at
            if quiet_s < self._every_s - ROUNDING_S:  # R0071
                await asyncio.sleep(self._every_s - quiet_s)
            elif not await self._ping():
                await asyncio.sleep(self._every_s)

    async def _ping(self) -> bool:
        """Whether the server answered; there may be nobody to ask, or no such question."""
        conversation = self._speaker.conversation
        peer = conversation.link.peer
        if self._speaker.over or peer is None or PING not in peer.revision.methods:
            return False
        try:
            await conversation.request(PING, t.RequestParams(), self._timeout_s)
        except ColonnadeError as error:
            name = self._speaker.way.name
            if not isinstance(error, ChannelError) or (error.status and not error.unheard):
                log.debug("server %r refuses to be pinged: %s", name, error)
                self._speaker.note()  # it is there, and said so
                return True
            log.warning("server %r did not answer a ping: %s", name, error)  # R0074
            await conversation.leave("it did not answer a ping")  # R0072
            return False
        self._speaker.note()
        return True
