"""The methods of the protocol: params, result, sender and required capability of each.

A method that differs between revisions has a second definition beside it, named for the difference.
The tables at the end are what `revision` composes its own from.

Rules: data only. No dates, no comparison of revisions, no decoding of messages.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, cached_property
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from colonnade.protocol import types as t


class Side(Enum):
    """Client or server."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> "Side":
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


CLIENT: Final = frozenset({Side.CLIENT})
SERVER: Final = frozenset({Side.SERVER})
EITHER: Final = CLIENT | SERVER


class Method(Struct, frozen=True, kw_only=True, dict=True):
    """The definition of one method.

    `needs` is the path of the required capability, declared by `needs_of`; if either side may send
    the method, `needs_of` is `None` and the receiver is meant. `may_require_input` counts only in
    revisions with `input_required` results, `may_become_task` only if both sides declared the tasks
    extension. `name_param` is the member of params that `Mcp-Name` mirrors. `load_params` and
    `load_result` are called once, when `params` or `result` is first used: a type that is not used
    is never created.
    """

    name: str
    senders: frozenset[Side]
    load_params: Callable[[], type[t.ProtocolType]]
    load_result: Callable[[], type[t.ProtocolType]] | None = None
    needs: str | None = None
    needs_of: Side | None = None
    may_require_input: bool = False
    may_become_task: bool = False
    cacheable: bool = False
    name_param: str | None = None

    @cached_property
    def params(self) -> type[t.ProtocolType]:
        """The type of its params."""
        return self.load_params()

    @cached_property
    def result(self) -> type[t.ProtocolType] | None:
        """The type of its result; None for a notification."""
        return None if self.load_result is None else self.load_result()

    @cached_property
    def name_field(self) -> str | None:
        """The field of `params` that `name_param` names."""
        return None if self.name_param is None else _members(self.params)[self.name_param]

    @property
    def is_notification(self) -> bool:
        return self.load_result is None

    def needed_of(self, sender: Side) -> Side:
        """The side whose capabilities `needs` means when `sender` sends this."""
        return self.needs_of or sender.other


def by_name(*methods: Method) -> dict[str, Method]:
    """The methods by name."""
    return {method.name: method for method in methods}


@cache
def _members(cls: type[t.ProtocolType]) -> dict[str, str]:
    """The Python names of the members of a type, by their names on the wire."""
    return dict(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


def declares(capabilities: "t.ClientCapabilities | t.ServerCapabilities", path: str) -> bool:
    """Whether `capabilities` declare `path` (`tools`, `resources.subscribe`, `tasks.list`).

    An extension is `extensions.` and its identifier, dots and all.
    """
    found: object = capabilities
    rest = path
    while rest:
        if isinstance(found, Mapping):
            return rest in found
        if not isinstance(found, t.ProtocolType):
            return False
        name, _, rest = rest.partition(".")
        own = _members(type(found)).get(name)
        found = getattr(found, own) if own is not None else None
    return found is not None and found is not False


# --- lifecycle ---

INITIALIZE: Final = Method(
    name="initialize",
    senders=CLIENT,
    load_params=lambda: t.InitializeRequestParams,
    load_result=lambda: t.InitializeResult,
)
INITIALIZED: Final = Method(
    name="notifications/initialized", senders=CLIENT, load_params=lambda: t.NotificationParams
)
PING: Final = Method(
    name="ping",
    senders=EITHER,
    load_params=lambda: t.RequestParams,
    load_result=lambda: t.EmptyResult,
)
DISCOVER: Final = Method(
    name="server/discover",
    senders=CLIENT,
    load_params=lambda: t.RequestParams,
    load_result=lambda: t.DiscoverResult,
    cacheable=True,  # R0996
)

# --- cancellation and progress ---

CANCELLED: Final = Method(
    name="notifications/cancelled",
    senders=EITHER,
    load_params=lambda: t.CancelledNotificationParams,
)
PROGRESS: Final = Method(
    name="notifications/progress", senders=EITHER, load_params=lambda: t.ProgressNotificationParams
)
# If the server sends no requests, the client has no progress to report.
PROGRESS_OF_SERVER: Final = replace(PROGRESS, senders=SERVER)

# --- tools ---

LIST_TOOLS: Final = Method(
    name="tools/list",
    senders=CLIENT,
    load_params=lambda: t.PaginatedRequestParams,
    load_result=lambda: t.ListToolsResult,
    needs="tools",
    needs_of=Side.SERVER,
    cacheable=True,  # R0997
)
CALL_TOOL: Final = Method(
    name="tools/call",
    senders=CLIENT,
    load_params=lambda: t.CallToolRequestParams,
    load_result=lambda: t.CallToolResult,
    needs="tools",
    needs_of=Side.SERVER,
    may_require_input=True,
    may_become_task=True,  # R1155
    name_param="name",
)
TOOLS_CHANGED: Final = Method(
    name="notifications/tools/list_changed",
    senders=SERVER,
    load_params=lambda: t.NotificationParams,
    needs="tools.listChanged",
    needs_of=Side.SERVER,
)

# --- resources ---

LIST_RESOURCES: Final = Method(
    name="resources/list",
    senders=CLIENT,
    load_params=lambda: t.PaginatedRequestParams,
    load_result=lambda: t.ListResourcesResult,
    needs="resources",
    needs_of=Side.SERVER,
    cacheable=True,  # R0999
)
LIST_RESOURCE_TEMPLATES: Final = Method(
    name="resources/templates/list",
    senders=CLIENT,
    load_params=lambda: t.PaginatedRequestParams,
    load_result=lambda: t.ListResourceTemplatesResult,
    needs="resources",
    needs_of=Side.SERVER,
    cacheable=True,  # R1000
)
READ_RESOURCE: Final = Method(
    name="resources/read",
    senders=CLIENT,
    load_params=lambda: t.ReadResourceRequestParams,
    load_result=lambda: t.ReadResourceResult,
    needs="resources",
    needs_of=Side.SERVER,
    may_require_input=True,
    cacheable=True,  # R1001
    name_param="uri",
)
SUBSCRIBE: Final = Method(
    name="resources/subscribe",
    senders=CLIENT,
    load_params=lambda: t.SubscribeRequestParams,
    load_result=lambda: t.EmptyResult,
    needs="resources.subscribe",
    needs_of=Side.SERVER,
)
UNSUBSCRIBE: Final = Method(
    name="resources/unsubscribe",
    senders=CLIENT,
    load_params=lambda: t.UnsubscribeRequestParams,
    load_result=lambda: t.EmptyResult,
    needs="resources.subscribe",
    needs_of=Side.SERVER,
)
RESOURCES_CHANGED: Final = Method(
    name="notifications/resources/list_changed",
    senders=SERVER,
    load_params=lambda: t.NotificationParams,
    needs="resources.listChanged",
    needs_of=Side.SERVER,
)
RESOURCE_UPDATED: Final = Method(
    name="notifications/resources/updated",
    senders=SERVER,
    load_params=lambda: t.ResourceUpdatedNotificationParams,
    needs="resources.subscribe",
    needs_of=Side.SERVER,
)

# --- prompts ---

LIST_PROMPTS: Final = Method(
    name="prompts/list",
    senders=CLIENT,
    load_params=lambda: t.PaginatedRequestParams,
    load_result=lambda: t.ListPromptsResult,
    needs="prompts",
    needs_of=Side.SERVER,
    cacheable=True,  # R0998
)
GET_PROMPT: Final = Method(
    name="prompts/get",
    senders=CLIENT,
    load_params=lambda: t.GetPromptRequestParams,
    load_result=lambda: t.GetPromptResult,
    needs="prompts",
    needs_of=Side.SERVER,
    may_require_input=True,
    name_param="name",
)
PROMPTS_CHANGED: Final = Method(
    name="notifications/prompts/list_changed",
    senders=SERVER,
    load_params=lambda: t.NotificationParams,
    needs="prompts.listChanged",
    needs_of=Side.SERVER,
)

# --- completions and log messages ---

COMPLETE: Final = Method(
    name="completion/complete",
    senders=CLIENT,
    load_params=lambda: t.CompleteRequestParams,
    load_result=lambda: t.CompleteResult,
    needs="completions",  # R0295
    needs_of=Side.SERVER,
)
# The first revision has completions, but no capability for them.
COMPLETE_UNDECLARED: Final = replace(COMPLETE, needs=None, needs_of=None)
SET_LEVEL: Final = Method(
    name="logging/setLevel",
    senders=CLIENT,
    load_params=lambda: t.SetLevelRequestParams,
    load_result=lambda: t.EmptyResult,
    needs="logging",
    needs_of=Side.SERVER,
)
LOG_MESSAGE: Final = Method(
    name="notifications/message",
    senders=SERVER,
    load_params=lambda: t.LoggingMessageNotificationParams,
    needs="logging",  # R0153
    needs_of=Side.SERVER,
)

# --- subscriptions ---

LISTEN: Final = Method(
    name="subscriptions/listen",
    senders=CLIENT,
    load_params=lambda: t.SubscriptionsListenRequestParams,
    load_result=lambda: t.SubscriptionsListenResult,
)
ACKNOWLEDGED: Final = Method(
    name="notifications/subscriptions/acknowledged",
    senders=SERVER,
    load_params=lambda: t.SubscriptionsAcknowledgedNotificationParams,
)

# --- input requests that are requests of their own ---

CREATE_MESSAGE: Final = Method(
    name="sampling/createMessage",
    senders=SERVER,
    load_params=lambda: t.CreateMessageRequestParams,
    load_result=lambda: t.CreateMessageResult,
    needs="sampling",  # R0100
    needs_of=Side.CLIENT,
)
LIST_ROOTS: Final = Method(
    name="roots/list",
    senders=SERVER,
    load_params=lambda: t.ListRootsRequestParams,
    load_result=lambda: t.ListRootsResult,
    needs="roots",  # R0087
    needs_of=Side.CLIENT,
)
ROOTS_CHANGED: Final = Method(
    name="notifications/roots/list_changed",
    senders=CLIENT,
    load_params=lambda: t.NotificationParams,
    needs="roots.listChanged",
    needs_of=Side.CLIENT,
)
ELICIT: Final = Method(
    name="elicitation/create",
    senders=SERVER,
    load_params=lambda: t.ElicitRequestParams,
    load_result=lambda: t.ElicitResult,
    needs="elicitation",  # R0364
    needs_of=Side.CLIENT,
)
ELICITATION_COMPLETE: Final = Method(
    name="notifications/elicitation/complete",
    senders=SERVER,
    load_params=lambda: t.ElicitationCompleteNotificationParams,
    needs="elicitation.url",
    needs_of=Side.CLIENT,
)

# --- tasks of the core: the receiver of the request holds the task ---

GET_TASK: Final = Method(
    name="tasks/get",
    senders=EITHER,
    load_params=lambda: t.GetTaskRequestParams,
    load_result=lambda: t.GetTaskResult,
    needs="tasks",
)
GET_TASK_PAYLOAD: Final = Method(
    name="tasks/result",
    senders=EITHER,
    load_params=lambda: t.GetTaskPayloadRequestParams,
    load_result=lambda: t.GetTaskPayloadResult,
    needs="tasks",
)
LIST_TASKS: Final = Method(
    name="tasks/list",
    senders=EITHER,
    load_params=lambda: t.PaginatedRequestParams,
    load_result=lambda: t.ListTasksResult,
    needs="tasks.list",
)
CANCEL_TASK: Final = Method(
    name="tasks/cancel",
    senders=EITHER,
    load_params=lambda: t.CancelTaskRequestParams,
    load_result=lambda: t.CancelTaskResult,
    needs="tasks.cancel",
)
# Its sender holds the task, so the receiver needs no capability.
TASK_STATUS: Final = Method(
    name="notifications/tasks/status",
    senders=EITHER,
    load_params=lambda: t.TaskStatusNotificationParams,
)

# --- tasks of the extension: the server alone holds tasks, for clients that declare it (R1207) ---

_TASKS_EXTENSION: Final = f"extensions.{t.TASKS_EXTENSION_ID}"

EXT_GET_TASK: Final = Method(
    name="tasks/get",
    senders=CLIENT,
    load_params=lambda: t.ExtGetTaskRequestParams,
    load_result=lambda: t.ExtGetTaskResult,
    needs=_TASKS_EXTENSION,
    needs_of=Side.CLIENT,
    name_param="taskId",  # R1200
)
EXT_UPDATE_TASK: Final = Method(
    name="tasks/update",
    senders=CLIENT,
    load_params=lambda: t.ExtUpdateTaskRequestParams,
    load_result=lambda: t.ExtUpdateTaskResult,
    needs=_TASKS_EXTENSION,
    needs_of=Side.CLIENT,
    name_param="taskId",  # R1200
)
EXT_CANCEL_TASK: Final = Method(
    name="tasks/cancel",
    senders=CLIENT,
    load_params=lambda: t.ExtCancelTaskRequestParams,
    load_result=lambda: t.ExtCancelTaskResult,
    needs=_TASKS_EXTENSION,
    needs_of=Side.CLIENT,
    name_param="taskId",  # R1200
)
EXT_TASK_STATUS: Final = Method(
    name="notifications/tasks",
    senders=SERVER,
    load_params=lambda: t.ExtTaskStatusNotificationParams,
    needs=_TASKS_EXTENSION,
    needs_of=Side.CLIENT,
)

# --- the tables ---

# In every revision, with the same definition.
COMMON: Final = by_name(
    CANCELLED,
    LIST_TOOLS,
    CALL_TOOL,
    TOOLS_CHANGED,
    LIST_RESOURCES,
    LIST_RESOURCE_TEMPLATES,
    READ_RESOURCE,
    RESOURCES_CHANGED,
    RESOURCE_UPDATED,
    LIST_PROMPTS,
    GET_PROMPT,
    PROMPTS_CHANGED,
    LOG_MESSAGE,
)
# The first revision, and the base of all revisions with a handshake.
FIRST: Final = COMMON | by_name(
    INITIALIZE,
    INITIALIZED,
    PING,
    PROGRESS,
    SUBSCRIBE,
    UNSUBSCRIBE,
    COMPLETE_UNDECLARED,
    SET_LEVEL,
    CREATE_MESSAGE,
    LIST_ROOTS,
    ROOTS_CHANGED,
)
# Additions of later revisions, each joined to the ones before.
COMPLETIONS_DECLARED: Final = by_name(COMPLETE)
ELICITATION: Final = by_name(ELICIT)
URL_ELICITATION: Final = by_name(ELICITATION_COMPLETE)
TASKS: Final = by_name(GET_TASK, GET_TASK_PAYLOAD, LIST_TASKS, CANCEL_TASK, TASK_STATUS)
# Without a handshake: each request carries its envelope, and input requests are in results.
STATELESS: Final = COMMON | by_name(DISCOVER, PROGRESS_OF_SERVER, COMPLETE, LISTEN, ACKNOWLEDGED)
# Only if both sides declared the extension.
TASKS_EXTENSION: Final = by_name(EXT_GET_TASK, EXT_UPDATE_TASK, EXT_CANCEL_TASK, EXT_TASK_STATUS)
