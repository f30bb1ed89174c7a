"""Server features beside tools: resources, prompts, completion, logging, initialize, subscriptions.

Rules: as in `base`.
"""

from typing import Annotated, Any, ClassVar, Protocol

from msgspec import field

from colonnade.protocol.types.base import (
    CacheableResult,
    InputResponseRequestParams,
    ListResult,
    LoggingLevel,
    NotificationParams,
    ProtocolType,
    RequestParams,
    Result,
    RevisionRange,
    since,
)
from colonnade.protocol.types.content import (
    Annotations,
    ContentBlock,
    Icon,
    ResourceContents,
    Role,
    Tool,
)

LOGGING_LEVELS: tuple[LoggingLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
_RANK = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}

# The most values of one completion result; all revisions say so, the newest in its schema.
MAX_COMPLETIONS = 100


def severe_enough(level: LoggingLevel, wanted: LoggingLevel) -> bool:
    """Whether a message of `level` passes the minimum level `wanted`."""
    return _RANK[level] >= _RANK[wanted]


# --- tools ---


class ListToolsResult(ListResult, kw_only=True):
    tools: list[Tool]


# --- resources ---


class Resource(ProtocolType, kw_only=True):
    uri: str
    name: str
    title: Annotated[str | None, since("2025-06-18")] = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class ResourceTemplate(ProtocolType, kw_only=True):
    uri_template: str
    name: str
    title: Annotated[str | None, since("2025-06-18")] = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class ListResourcesResult(ListResult, kw_only=True):
    resources: list[Resource]


class ListResourceTemplatesResult(ListResult, kw_only=True):
    resource_templates: list[ResourceTemplate]


class ReadResourceRequestParams(InputResponseRequestParams, kw_only=True):
    uri: str


class ReadResourceResult(CacheableResult, kw_only=True):
    contents: list[ResourceContents]


class SubscribeRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(until="2025-11-25")

    uri: str


class UnsubscribeRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(until="2025-11-25")

    uri: str


class ResourceUpdatedNotificationParams(NotificationParams, kw_only=True):
    uri: str


# --- prompts ---


class PromptArgument(ProtocolType, kw_only=True):
    name: str
    title: Annotated[str | None, since("2025-06-18")] = None
    description: str | None = None
    required: bool | None = None


class Prompt(ProtocolType, kw_only=True):
    name: str
    title: Annotated[str | None, since("2025-06-18")] = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class PromptMessage(ProtocolType, kw_only=True):
    role: Role
    content: ContentBlock


class ListPromptsResult(ListResult, kw_only=True):
    prompts: list[Prompt]


class GetPromptRequestParams(InputResponseRequestParams, kw_only=True):
    name: str
    arguments: dict[str, str] | None = None


class GetPromptResult(Result, kw_only=True):
    messages: list[PromptMessage]
    description: str | None = None


# --- completions ---


class PromptReference(ProtocolType, kw_only=True, tag_field="type", tag="ref/prompt"):
    name: str
    title: Annotated[str | None, since("2025-06-18")] = None


class ResourceTemplateReference(ProtocolType, kw_only=True, tag_field="type", tag="ref/resource"):
    """A resource or a resource template; the first two revisions call it ResourceReference."""

    uri: str


class CompletionArgument(ProtocolType, kw_only=True):
    name: str
    value: str


class CompletionContext(ProtocolType, kw_only=True):
    """The arguments that are already filled in."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    arguments: dict[str, str] | None = None


class CompleteRequestParams(RequestParams, kw_only=True):
    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: Annotated[CompletionContext | None, since("2025-06-18")] = None


class Completion(ProtocolType, kw_only=True):
    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    completion: Completion


# --- log messages ---


class SetLevelRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(until="2025-11-25")

    level: LoggingLevel


class LoggingMessageNotificationParams(NotificationParams, kw_only=True):
    level: LoggingLevel
    data: Any
    logger: str | None = None


class HasTitle(Protocol):
    """Anything with a name and, perhaps, a title to display."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str | None: ...


def display_name(item: HasTitle) -> str:
    """The name to show to a person: the title, a tool's annotated title, or else the name."""
    if item.title is not None:
        return item.title
    if isinstance(item, Tool) and item.annotations is not None:
        return item.annotations.title or item.name
    return item.name


# --- initialize and discover ---


# --- empty result ---


# --- errors ---
