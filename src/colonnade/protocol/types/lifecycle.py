"""Types of the life of a connection: initialize, server/discover, progress, cancellation,
subscriptions/listen, and the metadata of requests and results.
"""

from typing import Annotated, Any, ClassVar

from msgspec import UNSET, field

from colonnade.protocol.types.base import (
    PROGRESS_TOKEN_KEY,
    RELATED_TASK_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_ID_KEY,
    CacheableResult,
    NotificationParams,
    Number,
    ProgressToken,
    ProtocolType,
    RequestId,
    RequestParams,
    Result,
    RevisionRange,
    since,
)
from colonnade.protocol.types.capabilities import (
    ClientCapabilities,
    Envelope,
    Implementation,
    ServerCapabilities,
)


class InitializeRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(until="2025-11-25")

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(until="2025-11-25")

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class EnvelopedParams(ProtocolType, kw_only=True):
    """The params of any request as far as its envelope: `decode_as(EnvelopedParams, params)`."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    meta: Envelope = field(name="_meta")


class RelatedTaskMetadata(ProtocolType, kw_only=True):
    """The task that a message belongs to (tasks of 2025-11-25)."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    task_id: str


class RequestMeta(ProtocolType, kw_only=True):
    """The `_meta` of a request in revisions with a handshake."""

    available: ClassVar[RevisionRange] = RevisionRange(until="2025-11-25")

    progress_token: ProgressToken | None = field(default=None, name=PROGRESS_TOKEN_KEY)
    related_task: Annotated[RelatedTaskMetadata | None, since("2025-11-25")] = field(
        default=None, name=RELATED_TASK_KEY
    )


class NotificationMeta(ProtocolType, kw_only=True):
    """The `_meta` of a notification: the subscription that it belongs to."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    subscription_id: RequestId | None = field(default=None, name=SUBSCRIPTION_ID_KEY)


class ResultMeta(ProtocolType, kw_only=True):
    """The `_meta` of a result: the server, and the subscription that it ends."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    server_info: Implementation | None = field(default=None, name=SERVER_INFO_KEY)
    subscription_id: RequestId | None = field(default=None, name=SUBSCRIPTION_ID_KEY)


class CancelledNotificationParams(NotificationParams, kw_only=True):
    """`request_id` may be absent in 2025-11-25 only, where tasks are cancelled in another way."""

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressNotificationParams(NotificationParams, kw_only=True):
    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: Annotated[str | None, since("2025-03-26")] = None


class SubscriptionFilter(ProtocolType, kw_only=True):
    """The notifications that a client subscribes to; `task_ids` belongs to the tasks extension."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None
    task_ids: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    notifications: SubscriptionFilter


class SubscriptionsListenResult(Result, kw_only=True):
    """The end of a subscription; its `_meta` names it."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")


class EmptyResult(Result, kw_only=True):
    """An acknowledgement."""


class ErrorObject(ProtocolType, kw_only=True):
    """A JSON-RPC error as data, where one is part of a result."""

    code: int
    message: str
    data: Any = UNSET


class UnsupportedProtocolVersionData(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    supported: list[str]
    requested: str


class MissingRequiredClientCapabilityData(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    required_capabilities: ClientCapabilities
