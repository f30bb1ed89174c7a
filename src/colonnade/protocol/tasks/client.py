"""The client of a task: the handle that finds it again, when to poll, and what to do next.

A client sees a task of either generation as a `TaskState`; `next_step` says what to do about it.

Rules: no I/O, no clock. What a server sends is untrusted: intervals and ttls have bounds, and no
arithmetic on them raises.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from typing import Final, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct

from colonnade.errors import InvalidArgument, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.input_requests import (
    AnyInputResponse,
    InputRequest,
    check_outgoing_response,
)
from colonnade.protocol.jsonrpc import encode
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.record import TERMINAL

# ---------------------------------------------------------------- handles


# An endpoint, a task id and the name of a tool; those in use are far shorter.
MAX_HANDLE_CHARACTERS = 4096
_HANDLE_PREFIX: Final = "task1."
_GENERATIONS: Final[Mapping[str, Tasks]] = {"core": Tasks.CORE, "extension": Tasks.EXTENSION}


class TaskHandle(Struct, frozen=True):
    """What finds a task again in another process: the server, the id, the tool, the generation.

    A task id means nothing at another server, so the handle names its own: an endpoint, or a name
    in the configuration of a host. It holds no credentials; at a server without authentication it
    is all that is needed to read the task, so keep it as safe as the result.
    """

    server: str
    task_id: str
    tool: str
    generation: Tasks

    def encode(self) -> str:
        """The handle as one string. Raises `InvalidArgument` if it is too long, or there are no
        tasks."""
        words = [word for word, kind in _GENERATIONS.items() if kind is self.generation]
        if not words:
            raise InvalidArgument("a revision without tasks has no task handles")
        body = encode([self.server, self.task_id, self.tool, words[0]])
        text = _HANDLE_PREFIX + urlsafe_b64encode(body).rstrip(b"=").decode()
        if len(text) > MAX_HANDLE_CHARACTERS:
            raise InvalidArgument(f"a task handle has at most {MAX_HANDLE_CHARACTERS} characters")
        return text

    @classmethod
    def decode(cls, text: str) -> "TaskHandle":
        """The handle that `encode` wrote. Raises `InvalidArgument` for anything else."""
        text = text.strip()  # as it is copied from a terminal or a file
        if len(text) > MAX_HANDLE_CHARACTERS or not text.startswith(_HANDLE_PREFIX):
            raise _invalid_handle()
        body = text.removeprefix(_HANDLE_PREFIX)
        try:
            raw = urlsafe_b64decode(body + "=" * (-len(body) % 4))
            server, task_id, tool, word = _handle_decoder.decode(raw)
        except (ValueError, RecursionError):
            raise _invalid_handle() from None
        if word not in _GENERATIONS:
            words = f"a task handle of another generation of tasks: {word[:20]!r}"
            raise InvalidArgument(words, hint="use a newer version of Colonnade")
        return cls(server, task_id, tool, _GENERATIONS[word])


_handle_decoder = msgspec.json.Decoder(tuple[str, str, str, str])


def _invalid_handle() -> InvalidArgument:
    return InvalidArgument("this is not a task handle; use the string that `task.handle` returned")


# ---------------------------------------------------------------- states


# What is left of a longer ttl or interval: a hundred years.
MAX_MS = 100 * 365 * 24 * 3600 * 1000


class TaskState(Struct, frozen=True):
    """A task as the client last saw it, in either generation. Times are in seconds.

    `created_at` is None if the server sent no valid time. `result` and `error` are those of the
    extension; core has them in `tasks/result`.
    """

    task_id: str
    status: t.TaskStatus
    generation: Tasks
    message: str | None = None
    created_at: float | None = None
    last_updated_at: str = ""
    ttl_s: float | None = None
    poll_interval_s: float | None = None
    input_requests: dict[str, t.AnyInputRequest] = {}
    result: Raw = t.ABSENT
    error: t.ErrorObject | None = None

    @property
    def ended(self) -> bool:
        """Whether its status is terminal."""
        return self.status in TERMINAL


CoreTask: TypeAlias = t.Task | t.GetTaskResult | t.TaskStatusNotificationParams
FlatTask: TypeAlias = t.ExtCreateTaskResult | t.ExtTaskStatusNotificationParams


def state_of(received: "CoreTask | t.CreateTaskResult | FlatTask") -> TaskState:
    """The state that a result or a notification of either generation has."""
    if isinstance(received, t.CreateTaskResult):
        return state_of(received.task)
    if isinstance(received, CoreTask):
        return TaskState(
            task_id=received.task_id,
            status=received.status,
            generation=Tasks.CORE,
            message=received.status_message,
            created_at=_seconds_of(received.created_at),
            last_updated_at=received.last_updated_at,
            ttl_s=_from_ms(received.ttl),
            poll_interval_s=_from_ms(received.poll_interval),
        )
    state = TaskState(
        task_id=received.task_id,
        status=received.status,
        generation=Tasks.EXTENSION,
        message=received.status_message,
        created_at=_seconds_of(received.created_at),
        last_updated_at=received.last_updated_at,
        ttl_s=_from_ms(received.ttl_ms),
        poll_interval_s=_from_ms(received.poll_interval_ms),
    )
    if isinstance(received, t.ExtGetTaskResult | t.ExtTaskStatusNotificationParams):
        return msgspec.structs.replace(
            state,
            input_requests=received.input_requests or {},
            result=received.result,
            error=received.error,
        )
    return state


def _from_ms(milliseconds: int | None) -> float | None:
    """Seconds; None for what is not given, or not positive. Integers of JSON have no bound."""
    if milliseconds is None or milliseconds <= 0:
        return None
    return min(milliseconds, MAX_MS) / 1000


def _seconds_of(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return zoned.timestamp()
    except (ValueError, OverflowError):
        return None


# ---------------------------------------------------------------- polls


# Never faster than this, whatever a server says.
MIN_POLL_S = 0.1
# Without an interval of the server: the first delay, its growth, and its end.
FIRST_POLL_S = 0.5
POLL_GROWTH = 1.5
MAX_QUIET_POLL_S = 30.0
# An interval above this is taken for a mistake of its unit (D57).
MAX_POLL_S = 3600.0
# The clocks of client and server may differ by this much before a ttl is taken to be over.
CLOCK_DIFFERENCE_S = 60.0


def poll_delay_s(interval_s: float | None, quiet_polls: int) -> float:
    """How long to wait before the next poll (R0513, R1162).

    That is the interval of the server. Without one it grows with the number of polls that have
    shown nothing new.
    """
    if interval_s is not None:
        return min(max(interval_s, MIN_POLL_S), MAX_POLL_S)
    grown = FIRST_POLL_S
    for _ in range(quiet_polls):
        grown *= POLL_GROWTH
        if grown >= MAX_QUIET_POLL_S:
            return MAX_QUIET_POLL_S
    return grown


# ---------------------------------------------------------------- steps


class PollAfter(Struct, frozen=True):
    """Send `tasks/get` after this delay; a notification may bring the next state before."""

    delay_s: float


class RespondToInput(Struct, frozen=True):
    """Respond to these input requests with `tasks/update`, then go on polling (R1177, R1178)."""

    requests: dict[str, t.AnyInputRequest]


class FetchResult(Struct, frozen=True):
    """Send `tasks/result`: it has the outcome of a task of core, and its input requests (R0534)."""


class HasResult(Struct, frozen=True):
    """The task is completed; this is the result of the call, which may have `isError`."""

    result: Raw


class HasError(Struct, frozen=True):
    """The call ended with this JSON-RPC error."""

    error: t.ErrorObject


class WasCancelled(Struct, frozen=True):
    """The task was cancelled."""

    message: str | None


class HasExpired(Struct, frozen=True):
    """The ttl is over and the task has not ended: it is not to be expected any more (R1174)."""


TaskStep: TypeAlias = (
    PollAfter | RespondToInput | FetchResult | HasResult | HasError | WasCancelled | HasExpired
)


def next_step(state: TaskState, answered: Set[str], quiet_polls: int, now: float) -> TaskStep:
    """What the client of a task does next.

    `answered` has the keys of all input requests that were responded to or are being shown to a
    user: none is shown twice (R1180, R1186). `quiet_polls` counts the polls since the state last
    changed.
    """
    if state.status == "cancelled":
        return WasCancelled(state.message)
    if state.generation is Tasks.CORE and (state.ended or state.status == "input_required"):
        return FetchResult()
    if state.error is not None:
        return HasError(state.error)
    if state.result:
        return HasResult(state.result)
    if state.ended:  # created so: `tasks/get` has the rest
        return PollAfter(0.0)
    if _is_over(state, now):
        return HasExpired()
    open_requests = {
        key: request for key, request in state.input_requests.items() if key not in answered
    }
    if open_requests:
        return RespondToInput(open_requests)
    return PollAfter(poll_delay_s(state.poll_interval_s, quiet_polls))


def _is_over(state: TaskState, now: float) -> bool:
    if state.ttl_s is None or state.created_at is None:
        return False
    return now > state.created_at + state.ttl_s + CLOCK_DIFFERENCE_S


def update_task_params(
    task_id: str,
    requests: "Mapping[str, t.AnyInputRequest]",
    responses: Mapping[str, AnyInputResponse],
    encoder: Encoder,
) -> "t.ExtUpdateTaskRequestParams":
    """The params of `tasks/update`, for some of the input requests or all of them.

    Raises `LocalProtocolError` for a response that does not fit its input request, or has none.
    """
    raw: dict[str, Raw] = {}
    for key, response in responses.items():
        if key not in requests:
            raise LocalProtocolError(f"the task has no input request {key!r}")
        asked = InputRequest(requests[key].params or t.ListRootsRequestParams())
        fit = cast("AnyInputResponse", encoder.downgrade(response))
        check_outgoing_response(asked, fit)
        raw[key] = Raw(encode(fit))
    return t.ExtUpdateTaskRequestParams(task_id=task_id, input_responses=raw)
