"""How two sides meet and keep each other informed: the opening, notices, what was refused.

Rules: as in `types_noun`.
"""

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, field

from colonnade.protocol.types_meta import (
    PROGRESS_TOKEN_KEY,
    RELATED_TASK_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
)
from colonnade.protocol.types_noun import (
    NotificationParams,
    Noun,
    Number,
    ProgressToken,
    RequestId,
    RequestParams,
    Result,
    Span,
    since,
)
from colonnade.protocol.types_pages import CacheableResult
from colonnade.protocol.types_peers import (
    ClientCapabilities,
    Envelope,
    Implementation,
    ServerCapabilities,
)

# --- opening ---


class InitializeRequestParams(RequestParams, kw_only=True):
    span: ClassVar[Span] = Span(until="2025-11-25")

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    span: ClassVar[Span] = Span(until="2025-11-25")

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    span: ClassVar[Span] = Span(since="2026-07-28")

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class EnvelopedParams(Noun, kw_only=True):
    """The params of any request as far as its envelope: `read(EnvelopedParams, params)`."""

    span: ClassVar[Span] = Span(since="2026-07-28")

    meta: Envelope = field(name="_meta")


class RelatedTaskMetadata(Noun, kw_only=True):
    """The task that a message belongs to (tasks of 2025-11-25)."""

    span: ClassVar[Span] = Span(since="2025-11-25", until="2025-11-25")

    task_id: str


class RequestMeta(Noun, kw_only=True):
    """What the `_meta` of a request may say where there is a handshake."""

    span: ClassVar[Span] = Span(until="2025-11-25")

    progress_token: ProgressToken | None = field(default=None, name=PROGRESS_TOKEN_KEY)
    related_task: Annotated[RelatedTaskMetadata | None, since("2025-11-25")] = field(
        default=None, name=RELATED_TASK_KEY
    )


class NotificationMeta(Noun, kw_only=True):
    """What the `_meta` of a notification says of the subscription that it belongs to."""

    span: ClassVar[Span] = Span(since="2026-07-28")

    subscription_id: RequestId | None = field(default=None, name=SUBSCRIPTION_ID_KEY)


class ResultMeta(Noun, kw_only=True):
    """What the `_meta` of a result says of the server, and of the subscription that it ends."""

    span: ClassVar[Span] = Span(since="2026-07-28")

    server_info: Implementation | None = field(default=None, name=SERVER_INFO_KEY)
    subscription_id: RequestId | None = field(default=None, name=SUBSCRIPTION_ID_KEY)


# --- while a request runs ---


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """`request_id` may be missing in 2025-11-25 alone, where tasks are cancelled otherwise."""

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressNotificationParams(NotificationParams, kw_only=True):
    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: Annotated[str | None, since("2025-03-26")] = None


# --- subscriptions ---


class SubscriptionFilter(Noun, kw_only=True):
    """What a client wants to hear of; `task_ids` belongs to the tasks extension."""

    span: ClassVar[Span] = Span(since="2026-07-28")

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    span: ClassVar[Span] = Span(since="2026-07-28")

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    span: ClassVar[Span] = Span(since="2026-07-28")

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """The end of a subscription; its `_meta` names it."""

    span: ClassVar[Span] = Span(since="2026-07-28")


# --- answers without a result ---


class EmptyResult(Result, kw_only=True):
    """An acknowledgement."""


# --- errors ---


class ErrorObject(Noun, kw_only=True):
    """A JSON-RPC error as data, for places where one is part of a result."""

    code: int
    message: str
    data: Any = UNSET


class UnsupportedProtocolVersionData(Noun, kw_only=True):
    span: ClassVar[Span] = Span(since="2026-07-28")

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(Noun, kw_only=True):
    span: ClassVar[Span] = Span(since="2026-07-28")

    required_capabilities: ClientCapabilities
