"""Elicitation, sampling and roots: what a server may request from a client.

Rules: as in `base`. The same structs serve where these are requests of their own and where they are
carried in an `input_required` result; `codec.downgrade` drops what a peer does not know.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, field

from colonnade.protocol.types.base import (
    InputResponse,
    NotificationParams,
    Number,
    ProtocolType,
    RequestParams,
    Result,
    RevisionRange,
    since,
    until,
)
from colonnade.protocol.types.content import (
    AudioContent,
    ContentBlock,
    ImageContent,
    Priority,
    Role,
    TaskMetadata,
    TextContent,
    Tool,
    UnknownContent,
)

# --- sampling ---

IncludeContext = Literal["none", "thisServer", "allServers"]
ToolChoiceMode = Literal["auto", "required", "none"]


class ToolUseContent(ProtocolType, kw_only=True, tag_field="type", tag="tool_use"):
    """A model's request to call a tool."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25")
    type: ClassVar[Literal["tool_use"]] = "tool_use"

    id: str
    name: str
    input: dict[str, Any]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ToolResultContent(ProtocolType, kw_only=True, tag_field="type", tag="tool_result"):
    """The result of a tool that a model requested."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25")
    type: ClassVar[Literal["tool_result"]] = "tool_result"

    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = UNSET
    is_error: bool | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


SamplingMessageContentBlock = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)

Block = ContentBlock | ToolUseContent | ToolResultContent


class ModelHint(ProtocolType, kw_only=True):
    name: str | None = None


class ModelPreferences(ProtocolType, kw_only=True):
    hints: list[ModelHint] | None = None
    cost_priority: Priority | None = None
    speed_priority: Priority | None = None
    intelligence_priority: Priority | None = None


class SamplingMessage(ProtocolType, kw_only=True):
    """One message; a list of blocks only since 2025-11-25."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    meta: Annotated[dict[str, Any] | None, since("2025-11-25")] = field(default=None, name="_meta")


class ToolChoice(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25")

    mode: ToolChoiceMode | None = None


class CreateMessageRequestParams(RequestParams, kw_only=True):
    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: ModelPreferences | None = None
    system_prompt: str | None = None
    include_context: IncludeContext | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: Annotated[list[Tool] | None, since("2025-11-25")] = None
    tool_choice: Annotated[ToolChoice | None, since("2025-11-25")] = None
    task: Annotated[TaskMetadata | None, since("2025-11-25", until="2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, until("2025-11-25")] = field(default=None, name="_meta")


class CreateMessageResult(InputResponse, kw_only=True):
    """`stop_reason` is an open set; a list of blocks only since 2025-11-25."""

    role: Role
    content: SamplingMessageContentBlock | list[SamplingMessageContentBlock]
    model: str
    stop_reason: str | None = None


# --- elicitation ---

ElicitMode = Literal["form", "url"]
ElicitAction = Literal["accept", "decline", "cancel"]
ElicitValue = str | int | float | bool | list[str]
PrimitiveType = Literal["string", "number", "integer", "boolean", "array"]
StringFormat = Literal["email", "uri", "date", "date-time"]


class EnumOption(ProtocolType, kw_only=True):
    """A choice with its title."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25")

    const: str
    title: str


class EnumItems(ProtocolType, kw_only=True):
    """The choices of a multi-select: bare (`enum`) or with titles (`any_of`)."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25")

    type: Literal["string"] | None = None
    enum: list[str] | None = None
    any_of: list[EnumOption] | None = None


class PrimitiveSchema(ProtocolType, kw_only=True):
    """One field of an elicitation form: the union of what the revisions allow.

    `default` was first allowed for booleans only, and for all types since 2025-11-25; `enum_names`
    is the old way to give choices a title, `one_of` the new one.
    """

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    type: PrimitiveType
    title: str | None = None
    description: str | None = None
    default: ElicitValue | None = None
    format: StringFormat | None = None
    min_length: int | None = None
    max_length: int | None = None
    minimum: Number | None = None
    maximum: Number | None = None
    enum: list[str] | None = None
    enum_names: list[str] | None = None
    one_of: Annotated[list[EnumOption] | None, since("2025-11-25")] = None
    items: Annotated[EnumItems | None, since("2025-11-25")] = None
    min_items: Annotated[int | None, since("2025-11-25")] = None
    max_items: Annotated[int | None, since("2025-11-25")] = None


class ElicitSchema(ProtocolType, kw_only=True, tag_field="type", tag="object"):
    """The schema of an elicitation form: a flat object of primitive fields."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    properties: dict[str, PrimitiveSchema]
    required: list[str] | None = None
    dialect: Annotated[str | None, since("2025-11-25")] = field(default=None, name="$schema")


class ElicitRequestParams(RequestParams, kw_only=True):
    """Form or URL elicitation; without a `mode` it is a form."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    message: str
    mode: Annotated[ElicitMode | None, since("2025-11-25")] = None
    requested_schema: ElicitSchema | None = None
    url: Annotated[str | None, since("2025-11-25")] = None
    elicitation_id: Annotated[str | None, since("2025-11-25", until="2025-11-25")] = None
    task: Annotated[TaskMetadata | None, since("2025-11-25", until="2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, until("2025-11-25")] = field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if self.mode == "url":
            if self.url is None:
                raise ValueError("an elicitation of mode `url` needs `url`")
        elif self.requested_schema is None:
            raise ValueError("an elicitation of mode `form` needs `requestedSchema`")


class ElicitResult(InputResponse, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    action: ElicitAction
    content: dict[str, ElicitValue] | None = None
    meta: Annotated[dict[str, Any] | None, until("2025-11-25")] = field(default=None, name="_meta")


class ElicitationCompleteNotificationParams(NotificationParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    elicitation_id: str


class URLElicitationRequiredData(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    elicitations: list[ElicitRequestParams]


# --- roots ---


class Root(ProtocolType, kw_only=True):
    uri: str
    name: str | None = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class ListRootsRequestParams(RequestParams, kw_only=True):
    """Nothing but `_meta`."""


class ListRootsResult(InputResponse, kw_only=True):
    roots: list[Root]
    meta: Annotated[dict[str, Any] | None, until("2025-11-25")] = field(default=None, name="_meta")


# --- input requests carried in an input_required result ---


class CreateMessageRequest(
    ProtocolType, kw_only=True, tag_field="method", tag="sampling/createMessage"
):
    params: CreateMessageRequestParams


class ElicitRequest(ProtocolType, kw_only=True, tag_field="method", tag="elicitation/create"):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    params: ElicitRequestParams


class ListRootsRequest(ProtocolType, kw_only=True, tag_field="method", tag="roots/list"):
    params: ListRootsRequestParams | None = None


AnyInputRequest = CreateMessageRequest | ElicitRequest | ListRootsRequest


class InputRequiredResult(Result, kw_only=True):
    """An interim result: answer the input requests, and send the request again."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    input_requests: dict[str, AnyInputRequest] | None = None
    request_state: str | None = None

    def __post_init__(self) -> None:
        if self.input_requests is None and self.request_state is None:  # R0797
            raise ValueError(
                "an input_required result needs `inputRequests`, `requestState`, or both"
            )
