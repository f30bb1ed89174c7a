"""How often a server may ask back before it answers one call, and for how long (RQ-11).

Rules: the server's time and the people's are counted apart, as in revisions where questions come
by request: while somebody answers, the server's time stands still, and both have an end.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from colonnade.errors import TimedOut
from colonnade.protocol.flight import MAX_HELD_S
from colonnade.protocol.link import MAX_S

# A server that asks again and again never answers; ours stop at so many themselves.
MAX_ROUNDS = 10
# The first is no round of questions.
NUMBERS = range(MAX_ROUNDS + 1)

T = TypeVar("T")


class Rounds:
    """What is left of the time of one call that is answered with questions, since it `began`."""

    def __init__(self, method: str, server: str, timeout_s: float, began: float) -> None:
        self._method = method
        self._server = server
        # A call that was given more time than all calls have is given it once, not in each round.
        self._server_s = max(MAX_S, timeout_s)
        self._people_s = MAX_HELD_S
        self._ends_at = began + self._server_s

    @property
    def _call(self) -> str:
        return f"{self._method} of server {self._server!r}" if self._server else self._method

    async def of_server(self, asking: Awaitable[T]) -> T:
        """What the server says, while it has time. Raises `TimedOut`, and what that raises."""
        words = f"{self._call} was not done within {self._server_s:g} s, in all its rounds"
        return await _until(self._ends_at, asking, words, self._server)

    async def of_people(self, answering: Awaitable[T]) -> T:
        """What people say, while they have time. Raises `TimedOut`, and what that raises."""
        began = asyncio.get_running_loop().time()
        words = f"nobody answered the questions of {self._call} within {MAX_HELD_S:g} s"
        try:
            return await _until(began + self._people_s, answering, words, self._server)
        finally:
            took_s = asyncio.get_running_loop().time() - began
            self._people_s -= took_s
            self._ends_at += took_s


async def _until(end: float, waiting: Awaitable[T], words: str, server: str) -> T:
    bound = asyncio.timeout_at(end)
    try:
        async with bound:
            return await waiting
    except TimeoutError:
        if bound.expired():
            raise TimedOut(words, server=server or None) from None
        raise
