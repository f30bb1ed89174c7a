"""What runs in a client's conversation over HTTP: requests of ours that wait, questions of theirs.

Rules: plain records. Who sends and reads is `http_conversation`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Raw

from colonnade.errors import ColonnadeError, Fault, RemoteProtocolError
from colonnade.ports import Progressing
from colonnade.protocol.exchange import Exchange, RequestFields
from colonnade.protocol.jsonrpc import RequestId
from colonnade.protocol.questions import Question


class Waiting:
    """One request of ours: what became of it. How long it may take is known to the link."""

    __slots__ = (
        "id",
        "limit",
        "method",
        "name",
        "outcome",
        "progressed",
        "runs",
        "task",
        "timeout_s",
    )

    def __init__(
        self, id: RequestId, method: str, timeout_s: float, name: str | None = None
    ) -> None:
        self.id: RequestId = id
        self.method: str = method
        self.name: str | None = name
        self.timeout_s: float = timeout_s
        self.outcome: Raw | ColonnadeError | None = None
        # Whether the server may still be at work on it, for all that we know.
        self.runs: bool = True
        self.progressed: Progressing | None = None
        self.limit: asyncio.Timeout | None = None
        self.task: asyncio.Task[Raw] | None = None

    @property
    def label(self) -> str:
        """What it is called in an error: the tool or prompt that it is about, or its method."""
        return self.method if self.name is None else repr(self.name)

    def ends(self, when: float | None) -> None:
        """Its time runs out then, by what the link knows of it; None for what may stay open."""
        if self.outcome is None:
            self._set(when)

    def wake(self, now: float) -> None:
        """It is over, and whoever waits for it in a task of their own learns so."""
        self._set(now)

    def _set(self, when: float | None) -> None:
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(when)


class HttpClientTurn(RequestFields):
    """One question of the server, with the way back: POSTs of our own."""

    __slots__ = ("_tell", "exchange", "fault")

    def __init__(self, exchange: Exchange, tell: Callable[[bytes], Awaitable[None]]) -> None:
        self.exchange: Exchange = exchange
        self.fault: Fault | None = None
        self._tell = tell

    @property
    def wire(self) -> "HttpClientTurn":
        """The way back is the turn itself."""
        return self

    @property
    def session(self) -> None:
        """A client keeps nothing for its server."""
        return None

    async def send(self, frame: bytes) -> None:
        """POST a notification."""
        await self._tell(frame)

    def post(self, frame: bytes) -> bool:
        """Whoever writes here may have to wait."""
        return False

    async def ask(self, question: Question) -> Raw:
        """A client does not ask while it answers."""
        raise RemoteProtocolError(f"{question.kind.method} is asked by servers")

    async def hang_up(self) -> None:
        """There is nothing to hang up."""
