"""Tasks of a server, as the client sees them: follow one to its end, find it again, cancel it.

    task = await client.start_task("book", {"topic": "tea"})
    async for state in task:
        print(state.status, state.message)
    book = (await task.result(returns=Book)).data

A task is polled as often as its server says. Beside that, the extension of 2026-07-28 may send its
states on a subscription, and 2025-11-25 returns the result to a request that stays open
(`tasks/result`), on which its input requests arrive. `colonnade.protocol.tasks.client` decides what
to do next; this module does it.

Rules: at most one poll in an interval, whatever else happens. A server that does not respond is
asked again, with growing delays, as long as its task may live. A task is cancelled with
`tasks/cancel`, never with `notifications/cancelled`. Imported on use: most calls are no tasks.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeAlias, TypeVar, overload

from msgspec import UNSET, Raw
from msgspec.structs import replace

from colonnade.client.input_callbacks import InputResponder
from colonnade.client.results import ToolResult
from colonnade.client.subscriptions import retry_delay_s
from colonnade.client.tasks.requests import TaskRequests, TaskStream
from colonnade.errors import (
    ChannelError,
    ColonnadeError,
    FaultKind,
    RemoteError,
    RemoteProtocolError,
    TaskEnded,
    TimedOut,
)
from colonnade.ports import ProgressCallback
from colonnade.protocol import types as t
from colonnade.protocol.input_requests import InputCapabilities, InputRequest
from colonnade.protocol.link.in_flight import MAX_PAUSED_S
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import (
    FetchResult,
    HasError,
    HasExpired,
    HasResult,
    PollAfter,
    RespondToInput,
    TaskHandle,
    TaskState,
    WasCancelled,
    next_step,
    poll_delay_s,
)
from colonnade.protocol.tasks.record import short_digest

log: logging.Logger = logging.getLogger("colonnade.client")

# How long a server with a task may be away (D67): longer than an update or a restart takes. After
# that, the task can be resumed by its handle.
MAX_AWAY_S = 3600.0
# Polls of one task that end with an internal error, one after the other.
MAX_FAILED_POLLS = 3
# A request that waits for the end of a task. It is lost earlier with most proxies, and sent again.
HELD_S = 24 * 3600.0
# The interval of polls while the states arrive on a subscription.
LISTENING_POLL_S = 60.0
# Input requests of one task.
MAX_ANSWERED = 1000

T = TypeVar("T")

OnProgress: TypeAlias = Callable[[float, float | None, str | None], Any]
# Makes the result for the program, of a tool with this name.
MakeResult: TypeAlias = Callable[[str, t.CallToolResult, Any], Awaitable[ToolResult[Any]]]


class ClientTask:
    """A task of a server: iterate over its states, or wait for its `result`.

    `handle` finds it again in another process, with `client.resume_task`; it is None if the server
    has no tasks for this call, which is done already then.
    """

    def __init__(
        self,
        requests: TaskRequests,
        tool: str,
        make_result: MakeResult,
        timeout_s: float,
        *,
        task_id: str = "",
        state: TaskState | None = None,
        result: t.CallToolResult | None = None,
        responder: InputResponder | None = None,
        declared: InputCapabilities | None = None,
        on_progress: OnProgress | None = None,
        resumed: bool = False,
    ) -> None:
        self.tool = tool
        # The text for a model until there is a result, if the server sent one.
        self.immediate_response: str | None = None
        # What the server returned for the call, if this is the task that it has become.
        self.created: t.ProtocolType | None = None
        self._requests = requests
        self._make_result = make_result
        self._timeout_s = timeout_s
        self._responder: InputResponder = responder or requests.callbacks
        self._declared = declared
        self._on_progress = on_progress
        self._resumed = resumed
        self._task_id = state.task_id if state is not None else task_id
        self._state = state
        self._outcome: t.CallToolResult | ColonnadeError | None = result
        # The keys of input requests that have a response, or are being shown to a user.
        self._answered: set[str] = set()
        self._quiet_polls = 0
        self._messages = 0
        self._progress: float | None = None
        # Counts what was observed; one waiter polls at a time, and the others see what it got.
        self._version = 0
        self._polling = asyncio.Lock()
        self._changed = asyncio.Event()
        # Since when the server has not responded, and how often.
        self._away_since: float | None = None
        self._away_polls = 0
        self._failed_polls = 0
        # The subscription, or the open `tasks/result`, while there is a waiter.
        self._waiters = 0
        self._beside: asyncio.Task[None] | None = None
        self._is_connected = False
        self._is_caught_up = False
        self._polled_at = 0.0
        # Why `tasks/result` has not returned a result.
        self._held_error: RemoteError | RemoteProtocolError | ChannelError | None = None
        self._has_given_up = False
        # The time of day by the clock of the loop, which a test may have replaced.
        self._epoch = time.time() - asyncio.get_running_loop().time()
        if state is not None:
            self._log_state(state)

    def __repr__(self) -> str:
        return f"ClientTask({self.tool!r}, {self.status or 'unknown'})"

    # ------------------------------------------------------------ what is known

    @property
    def handle(self) -> str | None:
        """The task as one string, for `client.resume_task`; None without a task.

        It holds no credentials. Keep it as safe as the result: at a server without authentication
        it is all that is needed to read it.
        """
        if not self._task_id:
            return None
        generation = self._state.generation if self._state is not None else None
        return TaskHandle(
            server=self._requests.endpoint,
            task_id=self._task_id,
            tool=self.tool,
            generation=generation or self._requests.generation,
        ).encode()

    @property
    def state(self) -> TaskState | None:
        """The state as it was last received; None if it was not yet."""
        return self._state

    @property
    def status(self) -> t.TaskStatus | None:
        """The status as it was last received; None if it was not yet."""
        if self._state is not None:
            return self._state.status
        return "completed" if isinstance(self._outcome, t.CallToolResult) else None

    @property
    def message(self) -> str | None:
        """What the server says about the status."""
        return self._state.message if self._state is not None else None

    @property
    def done(self) -> bool:
        """Whether the task has ended, as far as is known."""
        ended = self._state is not None and self._state.ended
        return ended or self._outcome is not None

    def watch(
        self, on_status: Callable[[], None], on_progress: ProgressCallback
    ) -> Callable[[], None]:
        """Call these when the server sends a status or progress of it, until the returned function
        is called: for gateways. Nothing is polled, and it is not said what the status is."""
        return self._requests.watch(self._task_id, on_status, on_progress)

    # ------------------------------------------------------------ following

    async def __aiter__(self) -> AsyncIterator[TaskState]:
        """Its states, from the present one to the last; input requests go to the callbacks of the
        client. Raises `TaskEnded` if there is no last one."""
        shown: TaskState | None = None
        async with self._waiting():
            while True:
                state = self._state
                if state is not None and (shown is None or not _is_same(shown, state)):
                    shown = state
                    yield state
                if self.done:
                    break
                await self._advance(self._version)
        if isinstance(self._outcome, TaskEnded) and self._outcome.reason != "cancelled":
            raise self._outcome.copy()

    @overload
    async def result(self, *, returns: type[T]) -> ToolResult[T]: ...
    @overload
    async def result(self, *, returns: Any = None) -> ToolResult[Any]: ...
    async def result(self, *, returns: Any = None) -> ToolResult[Any]:
        """Wait for the result, which is that of `call_tool`: an error of the tool is a result too.

        Raises `RemoteError` if the call ended with a protocol error, `TaskEnded` if the task was
        cancelled, has expired or is not known any more, and `ChannelError` if the server was away
        for too long. Cancelling the wait does not cancel the task.
        """
        return await self._make_result(self.tool, await self.outcome(), returns)

    async def outcome(self) -> t.CallToolResult:
        """Wait for the protocol's result. Raises as `result` does."""
        async with self._waiting():
            while self._outcome is None:
                await self._advance(self._version)
        if self._requests.queue.task is not None:
            await self._requests.queue.wait_for_callbacks()
        if isinstance(self._outcome, ColonnadeError):
            raise self._outcome.copy()
        return self._outcome

    def immediate_result(self) -> t.CallToolResult:
        """A result for a caller that does not wait: what the server says to a model until then, or
        that the tool runs."""
        words = self.immediate_response or f"{self.tool} runs as a task; there is no result yet"
        return t.CallToolResult(content=[t.TextContent(text=words)])

    async def abandon(self) -> None:
        """Cancel it, because no caller waits for it; errors are only logged."""
        await self._requests.cancel_quietly(self._task_id)

    async def outcome_or_cancel(self) -> t.CallToolResult:
        """Wait for the protocol's result; the task is cancelled if the wait ends without one."""
        async with self._waiting():
            try:
                return await self.outcome()
            except BaseException:
                if self._outcome is None and not self._has_given_up:
                    await self.abandon()
                raise

    async def refresh(self) -> TaskState | None:
        """Ask for the present state once, and return it. Raises `TaskEnded` if the server does not
        know the task any more; None if the call was no task."""
        if self._task_id and not self.done:
            async with self._polling:
                await self._poll()
        if isinstance(self._outcome, TaskEnded) and self._outcome.reason != "cancelled":
            raise self._outcome.copy()
        return self._state

    async def cancel(self) -> None:
        """Cancel the task, with `tasks/cancel`; a task that has ended stays as it is.

        Fetch what is needed of it before: a server need not keep a cancelled task. Raises
        `RemoteError` if the server refuses.
        """
        if self.done or not self._task_id:
            return
        await self._requests.cancel(self._task_id, self._timeout_s)

    # ------------------------------------------------------------ one step

    async def _advance(self, seen: int) -> None:
        """Do the next step. Returns when the state may have changed; at once, if another waiter
        has seen a change."""
        async with self._polling:
            if self._version != seen or self._outcome is not None:
                return
            if self._state is None:
                if self._away_polls:
                    await self._sleep(retry_delay_s(self._away_polls))
                await self._poll()
                return
            self._start_beside(self._state)
            now = self._epoch + asyncio.get_running_loop().time()
            step = next_step(self._state, self._answered, self._quiet_polls, now)
            match step:
                case HasResult():
                    self._settle(self._decoded(step.result))
                case HasError():
                    self._settle(_remote_error(step.error))
                case WasCancelled():
                    why = f": {step.message}" if step.message else ""
                    self._end("cancelled", f"the task of {self.tool!r} was cancelled{why}")
                case HasExpired():
                    words = f"the task of {self.tool!r} has not ended within its time"
                    self._end("expired", f"{words}, which {self._requests.label} set")
                case RespondToInput():
                    await self._respond(step.requests, self._state)
                case FetchResult():
                    await self._wait_for_result(self._state)
                case PollAfter():
                    await self._poll_after(step.delay_s)

    async def _poll_after(self, delay_s: float) -> None:
        if self._away_polls:
            delay_s = max(delay_s, retry_delay_s(self._away_polls))
        version = self._version
        if self._is_connected and self._is_caught_up:
            await self._sleep(max(delay_s, LISTENING_POLL_S))
            # If the subscription was lost, the poll is due in its time.
            delay_s -= asyncio.get_running_loop().time() - self._polled_at
        if self._version == version:
            await self._sleep(max(delay_s, 0.0))
        if self._version == version and self._outcome is None:
            await self._poll()

    async def _sleep(self, delay_s: float) -> None:
        """Wait so long, or until the state may have changed."""
        self._changed.clear()
        limit = asyncio.timeout(delay_s)
        try:
            async with limit:
                await self._changed.wait()
        except TimeoutError:
            if not limit.expired():
                raise

    async def _poll(self) -> None:
        """Send `tasks/get` once."""
        connected = self._is_connected
        self._polled_at = asyncio.get_running_loop().time()
        try:
            state = await self._requests.get(self._task_id, self._timeout_s)
        except RemoteError as error:
            self._refused(error)
        except ChannelError as error:
            self._lost(error)
        else:
            self._away_since, self._away_polls, self._failed_polls = None, 0, 0
            self._is_caught_up = connected
            if not self._observe(state):
                self._quiet_polls += 1
                self._state = state  # the interval and the ttl may change

    def _refused(self, error: RemoteError) -> None:
        codes = self._requests.peer.revision.codes
        if error.code == codes[FaultKind.TOO_MANY]:
            self._lost(error, can_wait=True)
            return
        self._failed_polls += 1
        if error.code == codes[FaultKind.INTERNAL] and self._failed_polls < MAX_FAILED_POLLS:
            self._away_polls += 1
            return
        if error.code == codes[FaultKind.INVALID_PARAMS]:
            label = self._requests.label
            words = f"{label} does not know the task of {self.tool!r} any more: {error.message}"
            self._end("unknown", words)
            return
        raise error

    def _lost(self, error: ColonnadeError, *, can_wait: bool | None = None) -> None:
        """The server did not respond: try again later, if that may help."""
        now = asyncio.get_running_loop().time()
        if self._away_since is None:
            self._away_since = now
        self._away_polls += 1
        if can_wait is None:
            can_wait = self._requests.can_wait
        if not can_wait or now - self._away_since > MAX_AWAY_S:
            self._has_given_up = True
            error.hint = error.hint or "the task may still run; resume it by its handle"
            raise error
        if self._away_polls == 1:
            log.warning("%s: a task is polled again later: %s", self._requests.label, error)

    def _observe(self, state: TaskState) -> bool:
        """Take a state that was received; False if it is nothing new."""
        before = self._state
        if before is not None and before.ended and not state.ended:
            return False  # an older one
        if before is not None and _is_same(before, state):
            return False
        self._state = state
        self._quiet_polls = 0
        self._version += 1
        self._changed.set()
        self._log_state(state)
        if state.message and (before is None or state.message != before.message):
            self._report(state.message)
        return True

    def _progressed(self, params: t.ProgressNotificationParams) -> None:
        """Pass a progress notification of the task on, if it is the next one (R0500)."""
        if self._on_progress is None or self.done:
            return
        if self._progress is None or params.progress > self._progress:
            self._progress = params.progress
            self._requests.queue.call(
                self._on_progress,
                params.progress,
                params.total,
                params.message,
                size=len(params.message or ""),
            )

    def _report(self, message: str) -> None:
        """Pass a message of the server to `on_progress`; the number only counts them."""
        if self._on_progress is not None and self._progress is None:
            self._messages += 1
            count = float(self._messages)
            self._requests.queue.call(self._on_progress, count, None, message, size=len(message))

    def _log_state(self, state: TaskState) -> None:
        """R0586: what becomes of a task is in the log. Its id is not: it may be all that is needed
        to read the result."""
        name = short_digest(state.task_id)
        log.info("%s: task %s is %s", self._requests.label, name, state.status)

    def _decoded(self, raw: Raw) -> "t.CallToolResult | ColonnadeError":
        try:
            return self._requests.decode(raw)
        except RemoteProtocolError as error:
            return error

    def _settle(self, outcome: "t.CallToolResult | ColonnadeError") -> None:
        self._outcome = outcome
        self._version += 1
        self._changed.set()

    def _end(self, reason: Literal["cancelled", "expired", "unknown"], words: str) -> None:
        self._settle(TaskEnded(words, reason=reason))

    # ------------------------------------------------------------ input requests

    async def respond(self) -> bool:
        """Respond to the input requests that the task waits for now, with the callbacks of the
        client; False if there are none."""
        state = await self.refresh()
        if state is None or state.status != "input_required":
            return False
        self._requests.check(state.input_requests, self._declared)
        async with self._waiting():
            while self._state is not None and self._state.status == "input_required":
                before = len(self._answered)
                await self._advance(self._version)
                if len(self._answered) > before:
                    break
        return True

    async def _respond(self, requests: dict[str, t.AnyInputRequest], state: TaskState) -> None:
        """Respond to input requests, each once (R1177, R1180)."""
        if len(self._answered) + len(requests) > MAX_ANSWERED:
            raise self._requests.invalid(f"a task has more than {MAX_ANSWERED} input requests")
        try:
            checked = self._requests.check(requests, self._declared)
        except RemoteProtocolError:
            if not self._resumed:
                raise
            # Asked of the program that began the task, and this one cannot respond.
            await self._poll_after(poll_delay_s(state.poll_interval_s, self._quiet_polls))
            return
        self._answered |= requests.keys()
        try:
            responses = await self._ask_user(checked)
            await self._update(requests, responses)
        except BaseException:
            self._answered -= requests.keys()
            raise

    async def _ask_user(self, checked: dict[str, InputRequest]) -> dict[str, Any]:
        limit = asyncio.timeout(MAX_PAUSED_S)
        try:
            async with limit:
                return await self._responder.respond_all(checked)
        except TimeoutError:
            if not limit.expired():
                raise
            words = f"the input requests of {self.tool!r} got no response"
            raise TimedOut(f"{words} within {MAX_PAUSED_S:g} s") from None

    async def _update(
        self, requests: dict[str, t.AnyInputRequest], responses: Mapping[str, Any]
    ) -> None:
        while True:
            try:
                await self._requests.update(self._task_id, requests, responses, self._timeout_s)
            except ChannelError as error:
                self._lost(error)
                await asyncio.sleep(retry_delay_s(self._away_polls))
            except RemoteError as error:
                await self._poll()  # it may have ended in the meantime
                state = self._state
                pending = state.input_requests.keys() if state is not None else ()
                if not self.done and not requests.keys().isdisjoint(pending):
                    raise error
                return
            else:
                return

    # ------------------------------------------------------------ beside the polls

    @asynccontextmanager
    async def _waiting(self) -> AsyncGenerator[None]:
        """Listen, or hold `tasks/result` open, while there is a waiter."""
        self._waiters += 1
        if self._task_id and self._on_progress is not None:
            self._requests.watch_progress(self._task_id, self._progressed)
        try:
            yield
        finally:
            self._waiters -= 1
            if not self._waiters:
                self._requests.unwatch_progress(self._task_id)
            if not self._waiters and self._beside is not None:
                beside, self._beside = self._beside, None
                beside.cancel()
                await asyncio.wait([beside])

    def _start_beside(self, state: TaskState) -> None:
        if self._beside is not None or not self._waiters:
            return
        core = self._requests.generation is Tasks.CORE
        if state.ended and not core:
            return
        work = self._hold() if core else self._listen()
        self._beside = asyncio.get_running_loop().create_task(work)

    async def _listen(self) -> None:
        stream = TaskStream(self._task_id, self._observe, self._set_connected)
        await self._requests.listen(stream, self._timeout_s)

    def _set_connected(self, is_connected: bool) -> None:
        if self._is_caught_up:
            self._changed.set()  # states may have been missed
        self._is_connected, self._is_caught_up = is_connected, False

    async def _hold(self) -> None:
        """Wait for `tasks/result`, on which input requests arrive (R0534)."""
        try:
            outcome = self._requests.decode(await self._requests.fetch(self._task_id, HELD_S))
        except (RemoteError, RemoteProtocolError, ChannelError) as error:
            log.debug("%s: tasks/result: %s", self._requests.label, error)
            self._held_error = error
            if self._state is not None and self._state.ended:
                self._changed.set()  # otherwise the next poll is due in its time
        else:
            self._settle(outcome)
            if self._state is not None and not self._state.ended:  # the next poll would show it
                status: t.TaskStatus = "failed" if outcome.is_error else "completed"
                self._state = replace(self._state, status=status)

    async def _wait_for_result(self, state: TaskState) -> None:
        """Wait for the open `tasks/result`, and poll beside it until the task has ended (R0515)."""
        error = self._held_error
        if not state.ended:
            if error is not None:  # sent again after the next poll
                self._held_error = self._beside = None
            await self._poll_after(poll_delay_s(state.poll_interval_s, self._quiet_polls))
        elif error is None:
            await self._sleep(self._timeout_s)
            if self._outcome is None and self._held_error is None:
                words = f"{self._requests.label} did not return the result of {self.tool!r}"
                raise TimedOut(
                    f"{words} within {self._timeout_s:g} s", server=self._requests.server
                )
        elif isinstance(error, ChannelError):
            self._lost(error)
            self._held_error = self._beside = None
            await self._sleep(retry_delay_s(self._away_polls))
        elif isinstance(error, RemoteProtocolError):
            self._settle(self._without_result(error, state))
        elif state.status == "failed" or self._failed_polls:
            self._settle(error)
        else:  # from before its end: sent again, once
            self._failed_polls += 1
            self._held_error = self._beside = None

    def _without_result(self, error: RemoteProtocolError, state: TaskState) -> RemoteProtocolError:
        """Why an ended task has no valid result. `mcp` 1.x has none for a failed one (D72)."""
        if state.status != "failed" or not state.message:
            return error
        return self._requests.invalid(f"the task of {self.tool!r} failed: {state.message}")


def _is_same(one: TaskState, other: TaskState) -> bool:
    return (
        one.status == other.status
        and one.message == other.message
        and one.last_updated_at == other.last_updated_at
        and one.input_requests.keys() == other.input_requests.keys()
    )


def _remote_error(error: t.ErrorObject) -> RemoteError:
    data: object = None if error.data is UNSET else error.data
    return RemoteError(error.code, error.message, data)
