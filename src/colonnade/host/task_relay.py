"""Tasks of a server that a gateway hands back to its client: the call that creates one, and the
requests about it.

The client knows a task by an id of the gateway, which the gateway has opened before a request comes
here (`TaskRelay`). Both sides are of one generation of tasks; a task of another one is awaited.

Rules: what a server says about a task goes through here alone, so that the id of the server never
leaves, and hidden text is contained. Loaded for the first call of a client that has tasks.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from colonnade.client.tasks.task import HELD_S, ClientTask
from colonnade.errors import Fault, FaultKind, RemoteError, RemoteProtocolError
from colonnade.host.servers.generation import Generation, HostedServer
from colonnade.host.servers.supervisor import BeforeSend
from colonnade.ports import RequestContext, TaskRelay
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as, decode_unchecked
from colonnade.protocol.exchange import Exchange, check_task_support
from colonnade.protocol.forwarded import RelayedToolResult, forwardable_meta
from colonnade.protocol.jsonrpc import NOTHING, encode
from colonnade.protocol.revision import Tasks
from colonnade.protocol.tasks.client import TaskHandle, state_of
from colonnade.protocol.tasks.record import unknown_task
from colonnade.protocol.tasks.results import related

if TYPE_CHECKING:  # many hosts have no policy
    from colonnade.host.policy.containment import Containment

# Ids in use have some 40 characters; the gateway's own id of a task has this one in it.
MAX_ID_CHARACTERS = 512

GET, UPDATE = "tasks/get", "tasks/update"
CANCEL, RESULT = "tasks/cancel", "tasks/result"


def task_support(tool: t.Tool | None, server: HostedServer) -> t.TaskSupport | None:
    """Whether a tool can be called as a task, in the revision where the client decides that; never
    `required`, since the host waits for the task of a plain call. A process of a pool serves other
    callers after the call, who must not be asked for the input of the task."""
    execution = tool.execution if tool is not None else None
    support = execution.task_support if execution is not None else None
    if support not in ("optional", "required") or server.tasks is not Tasks.CORE:
        return None
    return None if server.entry.settings.sharing == "pooled" else "optional"


def with_task_support(
    tools: Iterable[t.Tool], generation: Generation, exchange: Exchange
) -> list[t.Tool]:
    """Tools of several servers with what their callers can do: see `task_support`. The other
    members of a tool are passed on as its server wrote them."""
    origin = exchange.origin
    written = dict(origin.items) if origin is not None and origin.items is not None else {}

    def shown(tool: t.Tool) -> t.Tool:
        support = task_support(tool, generation.server_for("tools", tool.name, exchange.principal))
        if tool.execution is None or support == tool.execution.task_support:
            return tool
        execution = None if support is None else t.ToolExecution(task_support=support)
        found, raw = replace(tool, execution=execution), written.get(id(tool))
        if raw is not None:
            value = None if execution is None else Raw(encode(execution))
            written[id(found)] = raw.replaced(found, "execution", value)
        return found

    found = [tool if tool.execution is None else shown(tool) for tool in tools]
    if origin is not None:
        origin.items = written
    return found


# ---------------------------------------------------------------- calls


class RelayedCall:
    """A call of a client that has tasks. `wants_task` is whether the client asks for one; `task` is
    what the call has become."""

    def __init__(
        self,
        tasks: TaskRelay,
        server: HostedServer,
        tool: t.Tool | None,
        own: str,
        exchange: Exchange,
    ) -> None:
        self._tasks = tasks
        self._server = server
        self._own = own
        self.wants_task: bool = tasks.generation is Tasks.CORE
        if self.wants_task:
            check_task_support(exchange, task_support(tool, server))  # R0506
        self.task: ClientTask | None = None

    async def on_task(self, _: str, task: ClientTask) -> bool:
        """Note the task of a call. Returns False if the relay waits for the task itself."""
        state = task.state
        if state is None or state.generation is not self._tasks.generation:
            return False
        if len(state.task_id) > MAX_ID_CHARACTERS:
            message = f"the id of a task has more than {MAX_ID_CHARACTERS} characters"
            raise RemoteProtocolError(message).with_server(self._server.key)
        self.task = task
        return True

    async def hand_back(
        self, task: ClientTask, contain: Callable[[str], str] | None
    ) -> t.ProtocolType:
        """The result for the client, with its id of the task. `contain` contains the task's
        progress messages; the guard contains the result."""
        assert task.state is not None
        handle = TaskHandle(self._server.key, task.state.task_id, self._own, self._tasks.generation)
        try:
            id = await self._tasks.created(handle, task, contain)
        except BaseException:
            await task.abandon()  # no party has its id
            raise
        created = task.created
        if isinstance(created, t.CreateTaskResult):
            shown = replace(created.task, task_id=id)
            return replace(created, task=shown, meta=_created_meta(created.meta))
        assert isinstance(created, t.ExtCreateTaskResult)
        return replace(created, task_id=id)


def _created_meta(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """The `_meta` of the result that creates a task, with what its server says to the model."""
    given: dict[str, Any] = meta or {}
    kept = forwardable_meta(given)
    immediate: object = given.get(t.MODEL_IMMEDIATE_RESPONSE_KEY)
    if isinstance(immediate, str):
        kept[t.MODEL_IMMEDIATE_RESPONSE_KEY] = immediate
    return kept or None


# ---------------------------------------------------------------- requests about a task


class Forward(Protocol):
    """Forwards a request to the server of the task."""

    def __call__(
        self,
        method: str,
        params: t.RequestParams,
        before_send: BeforeSend | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Awaitable[t.ProtocolType]: ...


# The responses to the input requests of a task that its server may get.
ReviewResponses: TypeAlias = Callable[
    [t.ExtGetTaskResult, Mapping[str, Raw]], Awaitable[Mapping[str, Raw]]
]


class RelayedTask:
    """One request of a client about a task. `id` is that of the client, `handle` has that of the
    server."""

    def __init__(
        self, request: RequestContext, id: str, handle: TaskHandle, forward: Forward
    ) -> None:
        self._request = request
        self._method = request.exchange.method.name
        self._id = id
        self._handle = handle
        self._forward = forward
        # Those of `tasks/update` that were reviewed.
        self._responses: Mapping[str, Raw] | None = None

    async def send_reviewed(
        self, review: ReviewResponses, before_send: BeforeSend, contain: "Containment | None"
    ) -> t.ProtocolType:
        """The result of `tasks/update`, with the responses that `review` lets through: they are to
        the input requests that the task has now. Raises what `send` and `review` raise."""
        given = self._given_responses()
        if given:
            params = t.ExtGetTaskRequestParams(task_id=self._handle.task_id)
            state = await self._forward(GET, params, before_send)
            if contain is not None:
                state = await _contained_state(state, contain)
            assert isinstance(state, t.ExtGetTaskResult), "the type of a result of tasks/get"
            self._responses = await review(state, given)
        return await self.send(before_send, contain)

    def _given_responses(self) -> Mapping[str, Raw]:
        given = self._request.exchange.request.params
        return decode_as(t.ExtUpdateTaskRequestParams, given).input_responses or {}

    async def send(
        self, before_send: BeforeSend | None = None, contain: "Containment | None" = None
    ) -> t.ProtocolType:
        """The result, without hidden text. Raises `Fault` for a task that its server does not know
        any more, and what the request raises."""
        timeout_s = HELD_S if self._method == RESULT else None
        try:
            params = self._params()
            result = await self._forward(self._method, params, before_send, timeout_s=timeout_s)
        except RemoteError as error:
            if self._is_invalid(error) and not await self._is_known(before_send):
                raise unknown_task() from None
            raise
        if self._method == RESULT:
            return self._payload()
        if contain is not None:
            result = await _contained_state(result, contain)
        return result

    def _params(self) -> t.RequestParams:
        """The params for the server: its own id of the task, and nothing of the hop."""
        own = self._handle.task_id
        if self._handle.generation is Tasks.CORE:
            if self._method == GET:
                return t.GetTaskRequestParams(task_id=own)
            if self._method == RESULT:
                return t.GetTaskPayloadRequestParams(task_id=own)
            return t.CancelTaskRequestParams(task_id=own)
        if self._method == GET:
            return t.ExtGetTaskRequestParams(task_id=own)
        if self._method == UPDATE:
            given = self._given_responses() if self._responses is None else self._responses
            return t.ExtUpdateTaskRequestParams(task_id=own, input_responses=dict(given))
        return t.ExtCancelTaskRequestParams(task_id=own)

    def _is_invalid(self, error: RemoteError) -> bool:
        revision = self._request.exchange.peer.revision
        return error.code == revision.codes[FaultKind.INVALID_PARAMS]

    async def _is_known(self, before_send: BeforeSend | None) -> bool:
        """Whether the server knows the task: params of another kind may be invalid, too."""
        if self._method == GET:
            return False
        core = self._handle.generation is Tasks.CORE
        kind = t.GetTaskRequestParams if core else t.ExtGetTaskRequestParams
        origin = self._request.exchange.origin
        outcome = origin.outcome if origin is not None else None
        try:
            await self._forward(GET, kind(task_id=self._handle.task_id), before_send)
        except RemoteError as error:
            return not self._is_invalid(error)
        finally:
            if origin is not None:
                origin.outcome = outcome
        return True

    def _payload(self) -> t.CallToolResult:
        """The result of the call that became the task."""
        origin = self._request.exchange.origin
        try:
            result = decode_unchecked(RelayedToolResult, origin.raw if origin else NOTHING)
        except Fault as fault:
            server = self._handle.server
            message = f"tasks/result returned no result of a tool: {fault.message}"
            raise RemoteProtocolError(message).with_server(server) from None
        return replace(result, meta=forwardable_meta(result.meta or {}) or None)

    def with_id(self, result: t.ProtocolType) -> t.ProtocolType:
        """A result for the client, with its id of the task."""
        if isinstance(result, t.CallToolResult):
            return related(result, self._id)  # R0548
        if isinstance(result, t.ExtGetTaskResult):
            return replace(result, task_id=self._id, result=_without_hop(result.result))
        if isinstance(result, t.GetTaskResult):
            return replace(result, task_id=self._id)
        return result


def _without_hop(raw: Raw) -> Raw:
    """The result of a tool inside of a state, without the `_meta` of the hop."""
    if not raw:
        return raw
    members = msgspec.json.decode(raw, type=dict[str, Raw])
    given = members.get("_meta")
    if given is None:
        return raw
    meta = forwardable_meta(msgspec.json.decode(given, type=dict[str, Raw]))
    del members["_meta"]
    return Raw(encode({"_meta": meta, **members} if meta else members))


async def _contained_state(result: t.ProtocolType, contain: "Containment") -> t.ProtocolType:
    """The state of a task, without hidden text."""
    if not isinstance(result, t.GetTaskResult | t.ExtGetTaskResult):
        return result
    state = state_of(result)
    from colonnade.host.policy.containment import aside

    contained = await aside(contain.task_state, state)
    # The times of a task are strings.
    result = replace(
        result,
        created_at=contain.text(result.created_at),
        last_updated_at=contain.text(result.last_updated_at),
    )
    if contained is state:
        return result
    changed: dict[str, Any] = {"status_message": contained.message}
    if isinstance(result, t.ExtGetTaskResult):
        if result.result and not contained.result:
            raise RemoteProtocolError("the result of a task is no result of a tool")
        changed |= {
            "input_requests": contained.input_requests or None,
            "result": contained.result,
            "error": contained.error,
        }
    return cast("t.ProtocolType", replace(result, **changed))
