"""The table of containment: each member of each message of a server, and what happens to hidden
text in it.

A member that a newer revision adds needs a row here: a test compares the rows with the types of the
protocol and with the official schemas.

Rules: data only. `containment` does what the table says.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from colonnade.protocol import types as t


class Treatment(Enum):
    """What happens to hidden text in a member, in the mode `neutralise`."""

    TEXT = auto()
    """Words for people and models: shown as escapes, and cut beyond the limit."""
    URI = auto()
    """Percent-encoded, which means the same."""
    DATA = auto()
    """A JSON value, whose strings and names are shown as escapes."""
    STRUCTURED = auto()
    """As `JSON`, but left out with an error if the contained value does not fit its output
    schema."""
    SCHEMA = auto()
    """A JSON Schema: its words as `TEXT`, all else as `EXACT`."""
    EXACT = auto()
    """Sent back to the server as it is, so it is not changed: the item is left out of its list, and
    the request is refused."""
    CHOICES = auto()
    """Suggestions that are sent back: those with hidden text are left out."""
    BASE64 = auto()
    """Shown as escapes, and never cut, since it is not text."""
    PARTS = auto()
    """Types with rows of their own."""
    OPAQUE = auto()
    """Compared or sent back by this program alone, and never shown: stays as it is."""
    CLOSED = auto()
    """A number, a boolean or a word of a fixed set: the decoder accepts nothing else."""
    UNUSED = auto()
    """Read by the host alone, for what it supports; neither shown nor passed on."""


TEXT, URI, DATA, STRUCTURED = Treatment.TEXT, Treatment.URI, Treatment.DATA, Treatment.STRUCTURED
SCHEMA, EXACT, CHOICES, BASE64 = (
    Treatment.SCHEMA,
    Treatment.EXACT,
    Treatment.CHOICES,
    Treatment.BASE64,
)
PARTS, OPAQUE, CLOSED, UNUSED = (
    Treatment.PARTS,
    Treatment.OPAQUE,
    Treatment.CLOSED,
    Treatment.UNUSED,
)

Rows = dict[str, Treatment]

_META: Rows = {"meta": DATA}
_RESULT: Rows = {"meta": DATA, "result_type": CLOSED}
_CACHED: Rows = {**_RESULT, "ttl_ms": CLOSED, "cache_scope": CLOSED}
_PAGE: Rows = {**_CACHED, "next_cursor": OPAQUE}
_WORDS: Rows = {"title": TEXT, "description": TEXT, "icons": PARTS, "meta": DATA}
_BLOCK: Rows = {"annotations": PARTS, "meta": DATA}
_TASK: Rows = {
    "task_id": OPAQUE,
    "status": CLOSED,
    "created_at": TEXT,
    "last_updated_at": TEXT,
    "poll_interval": CLOSED,
    "status_message": TEXT,
    "ttl": CLOSED,
}
_EXT_TASK: Rows = {
    **{name: row for name, row in _TASK.items() if name not in ("poll_interval", "ttl")},
    "poll_interval_ms": CLOSED,
    "ttl_ms": CLOSED,
}
_TASK_OUTCOME: Rows = {"input_requests": PARTS, "result": PARTS, "error": PARTS}

# By type, and by attribute of the type.
MEMBERS: Final[Mapping[type[t.ProtocolType], Rows]] = {
    # ------------------------------------------------------------ content
    t.Annotations: {"audience": CLOSED, "priority": CLOSED, "last_modified": TEXT},
    t.Icon: {"src": URI, "mime_type": TEXT, "sizes": TEXT, "theme": CLOSED},
    t.TextContent: {"text": TEXT, **_BLOCK},
    t.ImageContent: {"data": BASE64, "mime_type": TEXT, **_BLOCK},
    t.AudioContent: {"data": BASE64, "mime_type": TEXT, **_BLOCK},
    t.ResourceContents: {
        "uri": URI,
        "mime_type": TEXT,
        "text": TEXT,
        "blob": BASE64,
        "meta": DATA,
    },
    t.EmbeddedResource: {"resource": PARTS, **_BLOCK},
    t.ResourceLink: {
        "uri": URI,
        "name": TEXT,
        "mime_type": TEXT,
        "size": CLOSED,
        "annotations": PARTS,
        **_WORDS,
    },
    t.UnknownContent: {"whole": DATA},
    t.ToolUseContent: {"id": TEXT, "name": TEXT, "input": DATA, "meta": DATA},
    t.ToolResultContent: {
        "tool_use_id": TEXT,
        "content": PARTS,
        "structured_content": DATA,
        "is_error": CLOSED,
        "meta": DATA,
    },
    # ------------------------------------------------------------ lists
    t.ListToolsResult: {"tools": PARTS, **_PAGE},
    t.Tool: {
        "name": EXACT,
        "input_schema": SCHEMA,
        "output_schema": SCHEMA,
        "annotations": PARTS,
        "execution": PARTS,
        **_WORDS,
    },
    t.ToolAnnotations: {
        "title": TEXT,
        "read_only_hint": CLOSED,
        "destructive_hint": CLOSED,
        "idempotent_hint": CLOSED,
        "open_world_hint": CLOSED,
    },
    t.ToolExecution: {"task_support": CLOSED},
    t.ListResourcesResult: {"resources": PARTS, **_PAGE},
    t.Resource: {
        "uri": EXACT,
        "name": TEXT,
        "mime_type": TEXT,
        "size": CLOSED,
        "annotations": PARTS,
        **_WORDS,
    },
    t.ListResourceTemplatesResult: {"resource_templates": PARTS, **_PAGE},
    t.ResourceTemplate: {
        "uri_template": EXACT,
        "name": TEXT,
        "mime_type": TEXT,
        "annotations": PARTS,
        **_WORDS,
    },
    t.ListPromptsResult: {"prompts": PARTS, **_PAGE},
    t.Prompt: {"name": EXACT, "arguments": PARTS, **_WORDS},
    t.PromptArgument: {"name": EXACT, "title": TEXT, "description": TEXT, "required": CLOSED},
    # ------------------------------------------------------------ results
    t.CallToolResult: {
        "content": PARTS,
        "structured_content": STRUCTURED,
        "is_error": CLOSED,
        **_RESULT,
    },
    t.ReadResourceResult: {"contents": PARTS, **_CACHED},
    t.GetPromptResult: {"messages": PARTS, "description": TEXT, **_RESULT},
    t.PromptMessage: {"role": CLOSED, "content": PARTS},
    t.CompleteResult: {"completion": PARTS, **_RESULT},
    t.Completion: {"values": CHOICES, "total": CLOSED, "has_more": CLOSED},
    t.EmptyResult: _RESULT,
    t.ErrorObject: {"code": CLOSED, "message": TEXT, "data": DATA},
    # ------------------------------------------------------------ what a server asks for
    t.InputRequiredResult: {"input_requests": PARTS, "request_state": OPAQUE, **_RESULT},
    t.ElicitRequest: {"params": PARTS},
    t.CreateMessageRequest: {"params": PARTS},
    t.ListRootsRequest: {"params": PARTS},
    t.ListRootsRequestParams: _META,
    t.RequestParams: _META,
    t.ElicitRequestParams: {
        "message": TEXT,
        "mode": CLOSED,
        "requested_schema": PARTS,
        "url": URI,
        "elicitation_id": OPAQUE,
        "task": PARTS,
        "meta": DATA,
    },
    t.ElicitSchema: {"properties": PARTS, "required": EXACT, "dialect": EXACT},
    t.PrimitiveSchema: {
        "type": CLOSED,
        "title": TEXT,
        "description": TEXT,
        "default": EXACT,
        "format": CLOSED,
        "min_length": CLOSED,
        "max_length": CLOSED,
        "minimum": CLOSED,
        "maximum": CLOSED,
        "enum": EXACT,
        "enum_names": TEXT,
        "one_of": PARTS,
        "items": PARTS,
        "min_items": CLOSED,
        "max_items": CLOSED,
    },
    t.EnumOption: {"const": EXACT, "title": TEXT},
    t.EnumItems: {"type": CLOSED, "enum": EXACT, "any_of": PARTS},
    t.CreateMessageRequestParams: {
        "messages": PARTS,
        "max_tokens": CLOSED,
        "model_preferences": PARTS,
        "system_prompt": TEXT,
        "include_context": CLOSED,
        "temperature": CLOSED,
        "stop_sequences": OPAQUE,  # for the interface of a model, which does not read them
        "metadata": DATA,
        "tools": PARTS,
        "tool_choice": PARTS,
        "task": PARTS,
        "meta": DATA,
    },
    t.SamplingMessage: {"role": CLOSED, "content": PARTS, "meta": DATA},
    t.ModelPreferences: {
        "hints": PARTS,
        "cost_priority": CLOSED,
        "speed_priority": CLOSED,
        "intelligence_priority": CLOSED,
    },
    t.ModelHint: {"name": TEXT},
    t.ToolChoice: {"mode": CLOSED},
    # ------------------------------------------------------------ tasks
    t.TaskMetadata: {"ttl": CLOSED},
    t.Task: _TASK,
    t.CreateTaskResult: {"task": PARTS, **_RESULT},
    t.GetTaskResult: {**_TASK, **_RESULT},
    t.CancelTaskResult: {**_TASK, **_RESULT},
    t.GetTaskPayloadResult: _RESULT,
    t.ListTasksResult: {"tasks": PARTS, "next_cursor": OPAQUE, **_RESULT},
    t.TaskStatusNotificationParams: {**_TASK, **_META},
    t.GetTaskRequestParams: {"task_id": OPAQUE, **_META},
    t.GetTaskPayloadRequestParams: {"task_id": OPAQUE, **_META},
    t.CancelTaskRequestParams: {"task_id": OPAQUE, **_META},
    t.PaginatedRequestParams: {"cursor": OPAQUE, **_META},
    t.ExtCreateTaskResult: {**_EXT_TASK, **_RESULT},
    t.ExtGetTaskResult: {**_EXT_TASK, **_TASK_OUTCOME, **_RESULT},
    t.ExtUpdateTaskResult: _RESULT,
    t.ExtCancelTaskResult: _RESULT,
    t.ExtTaskStatusNotificationParams: {**_EXT_TASK, **_TASK_OUTCOME, **_META},
    # ------------------------------------------------------------ notifications
    # Notifications with an unused `_meta` are created again for each client.
    t.NotificationParams: {"meta": UNUSED},
    t.LoggingMessageNotificationParams: {
        "level": CLOSED,
        "logger": TEXT,
        "data": DATA,
        "meta": UNUSED,
    },
    t.ProgressNotificationParams: {
        "progress_token": OPAQUE,
        "progress": CLOSED,
        "total": CLOSED,
        "message": TEXT,
        "meta": UNUSED,
    },
    t.CancelledNotificationParams: {"request_id": OPAQUE, "reason": UNUSED, "meta": UNUSED},
    t.ResourceUpdatedNotificationParams: {"uri": OPAQUE, "meta": UNUSED},
    t.ElicitationCompleteNotificationParams: {"elicitation_id": OPAQUE, "meta": UNUSED},
    t.SubscriptionsAcknowledgedNotificationParams: {"notifications": UNUSED, "meta": UNUSED},
    t.SubscriptionsListenResult: dict.fromkeys(_RESULT, UNUSED),
    # ------------------------------------------------------------ how a server describes itself
    t.InitializeResult: {
        "protocol_version": OPAQUE,
        "capabilities": UNUSED,
        "server_info": UNUSED,
        "instructions": TEXT,
        "meta": UNUSED,
        "result_type": UNUSED,
    },
    t.DiscoverResult: {
        "supported_versions": OPAQUE,
        "capabilities": UNUSED,
        "instructions": TEXT,
        "meta": UNUSED,
        "result_type": UNUSED,
        "ttl_ms": CLOSED,
        "cache_scope": CLOSED,
    },
}


def rows_of(kind: type[t.ProtocolType]) -> Rows | None:
    """The rows of a type, or of its base class: the classes of forwarded results are derived."""
    return next((MEMBERS[base] for base in kind.__mro__ if base in MEMBERS), None)
