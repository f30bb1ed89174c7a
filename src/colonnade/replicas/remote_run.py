"""A request of another replica that runs here: its context, and its messages to the caller.

Rules: messages are numbered in the order in which they are sent, and few are sent ahead of what the
caller has delivered to the client. What runs without a lease of this replica sends nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw

from colonnade.errors import ChannelError, ColonnadeError, Fault, Refused
from colonnade.protocol.exchange import CallerLost, Exchange, RequestFields
from colonnade.protocol.negotiation import Callers
from colonnade.replicas.remote_messages import (
    MAX_OPEN_INPUTS,
    REMOTE_VERSION,
    WINDOW_BYTES,
    WINDOW_MESSAGES,
    RemoteBegin,
    RunnerMessage,
    callers_named,
    encode_input_request,
    encode_remote,
)
from colonnade.replicas.replica import MAX_BODY_BYTES, Replica

if TYPE_CHECKING:
    from colonnade.protocol.input_requests import InputRequest

# What a carried frame may have: a message without its fields.
MAX_FRAME_BYTES = MAX_BODY_BYTES - 1024
# The kind of these messages.
MESSAGE = "remote message"

RunnerMessageForm = Literal["notification", "input_request", "withdrawal", "hang_up"]


class RemoteRun:
    """A request of another replica that runs here."""

    def __init__(
        self, begin: RemoteBegin, caller: str, exchange: Exchange, replica: Replica, now: float
    ) -> None:
        self._replica = replica
        self.begin = begin
        self.caller = caller
        self.exchange = exchange
        self.last_check = now
        self.sent: int = 0
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False
        self.inputs: dict[int, asyncio.Future[Raw]] = {}
        self._lock = asyncio.Lock()
        self._numbers = 0
        # The numbers and sizes of messages that the caller has not delivered yet.
        self._undelivered: deque[tuple[int, int]] = deque()
        self._undelivered_bytes = 0
        self._credited = asyncio.Event()

    def credit(self, delivered: int) -> None:
        """The caller has delivered the messages up to this one."""
        while self._undelivered and self._undelivered[0][0] <= delivered:
            self._undelivered_bytes -= self._undelivered.popleft()[1]
        self._credited.set()

    def end_inputs(self) -> None:
        """The request has ended: what still waits for its client must ask another one."""
        for future in self.inputs.values():
            if not future.done():
                future.set_exception(CallerLost("the request that was asked has ended"))

    async def send(self, form: RunnerMessageForm, body: bytes = b"", input: int = 0) -> None:
        """Send a numbered message, when the caller is ready for it. Raises `CallerLost`."""
        if len(body) > MAX_FRAME_BYTES:
            raise Refused(f"a message of {len(body)} bytes is too large for another replica")
        async with self._lock:
            while not self._has_room(len(body)):
                self._credited.clear()
                await self._credited.wait()
            if not self._replica.holds_lease:
                raise CallerLost("this replica lost its lease, so the request was given up")
            self._numbers += 1
            number = self._numbers
            message = RunnerMessage(REMOTE_VERSION, self.begin.id, number, form, input, body)
            self._undelivered.append((number, len(body)))
            self._undelivered_bytes += len(body)
            # A handler that stops waiting must not leave a gap in the numbers.
            error = await asyncio.shield(self._publish(number, encode_remote(message)))
        if error is not None:
            raise CallerLost("the replica of the caller cannot be reached") from error

    async def _publish(self, number: int, message: bytes) -> ChannelError | None:
        try:
            await self._replica.send(self.caller, MESSAGE, message)
        except ChannelError as error:
            return error
        self.sent = number
        return None

    def _has_room(self, size: int) -> bool:
        waiting = len(self._undelivered)
        fits = self._undelivered_bytes + size <= WINDOW_BYTES
        return not waiting or (waiting < WINDOW_MESSAGES and fits)


class RemoteRequestContext(RequestFields):
    """A request of another replica as its handler sees it. `key` is what it is for here."""

    def __init__(
        self, run: RemoteRun, spawn: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self.exchange: Exchange = run.exchange
        self.fault: Fault | None = None
        self.key: str = run.begin.key
        self._run = run
        self._spawn = spawn
        self._claims: Mapping[str, Any] | None = None
        self._inputs = 0

    def __repr__(self) -> str:
        return f"RemoteRequestContext({self.method}, from {self._run.caller})"

    @property
    def claims(self) -> Mapping[str, Any]:
        """The claims of the caller's verified token."""
        if self._claims is None:
            self._claims = msgspec.json.decode(self._run.begin.claims, type=dict[str, Any])
        return self._claims

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        """Empty: headers stay where they arrived."""
        return {}

    @property
    def callers(self) -> Callers:
        """The callers of the connection that the request arrived on."""
        return callers_named(self._run.begin.callers)

    @property
    def session(self) -> None:
        """None: a session belongs to the replica that the client has reached."""
        return None

    async def send(self, frame: bytes) -> None:
        """Send a notification to the caller."""
        await self._run.send("notification", frame)

    def post(self, frame: bytes) -> bool:
        """False: the caller may not be ready for it."""
        return False

    async def ask(self, input_request: "InputRequest") -> Raw:
        """Let the caller's replica send a request to the client, and wait for its response."""
        if len(self._run.inputs) >= MAX_OPEN_INPUTS:
            raise Refused(f"there are {MAX_OPEN_INPUTS} open input requests; wait for a response")
        self._inputs += 1
        number = self._inputs
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._run.inputs[number] = future
        try:
            body = encode_input_request(input_request)
            await self._run.send("input_request", body, number)
            return await future
        finally:
            del self._run.inputs[number]
            if not future.done() or future.cancelled():
                self._spawn(self._withdraw(number))

    async def _withdraw(self, number: int) -> None:
        """The handler does not wait for an input request any more."""
        with suppress(ColonnadeError):
            if not self._run.cancelled:
                await self._run.send("withdrawal", input=number)

    async def hang_up(self) -> None:
        """Let the caller's replica close the connection to the client."""
        await self._run.send("hang_up")
