"""How the id of a task gets to a worker: `TaskQueue`, for fleets of workers.

Without a queue the store does it: workers look into the index of unfinished tasks when a
message of a topic arrives. That is a look at every unfinished task from every worker. A queue hands
each task to one of them instead.

Rules: the store is the truth, and the queue only delivers. What is delivered is a reference: one
string, without arguments or results. A worker takes the lease of the task in the store, so what is
delivered twice runs once; what a queue has lost is found in the store, some minutes later.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from msgspec import DecodeError, ValidationError
from msgspec.json import decode, encode


class TaskReference(NamedTuple):
    """The server, the owner and the id of a task: what a queue delivers."""

    server: str
    principal: str
    id: str

    def encode(self) -> str:
        """The reference as one string."""
        return encode(tuple(self)).decode()


def decode_reference(text: str) -> TaskReference | None:
    """The reference that a string has; None if it is none."""
    try:
        return TaskReference(*decode(text, type=tuple[str, str, str]))
    except (DecodeError, ValidationError):
        return None


class TaskQueue(Protocol):
    """Delivers references of tasks to workers, each to one of them, at least once."""

    async def submit(self, server: str, reference: str) -> None:
        """Deliver a reference to one worker of the server with this name.

        It must not be lost after this returns. Raises `ChannelError`.
        """
        ...

    async def serve(
        self, server: str, run: Callable[[str], Awaitable[None]], max_running: int
    ) -> None:
        """Await `run` with each reference that is delivered here, `max_running` at once, until this
        is cancelled.

        If the process ends before `run` returns, another worker gets the reference. Raises
        `ChannelError`, after which it is called again.
        """
        ...

    async def close(self) -> None:
        """Close connections; the next call opens them again."""
        ...
