"""Client and server capabilities, implementation info, and the `_meta` envelope of a request.

Rules: as in `base`. Capabilities are not a closed set: an `extensions` member goes to peers of
every revision (D33), although only the newest names it.
"""

from typing import Annotated, Any, ClassVar

from msgspec import field

from colonnade.protocol.types.base import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROGRESS_TOKEN_KEY,
    PROTOCOL_VERSION_KEY,
    LoggingLevel,
    ProgressToken,
    ProtocolType,
    RevisionRange,
    since,
    until,
)
from colonnade.protocol.types.content import Icon

# The settings of a capability, an experimental feature or an extension; `{}` means supported.
Settings = dict[str, Any]


class Implementation(ProtocolType, kw_only=True):
    """Name and version of a client or server: self-reported, for people and logs, never for
    decisions (R0767)."""

    name: str
    version: str
    title: Annotated[str | None, since("2025-06-18")] = None
    description: Annotated[str | None, since("2025-11-25")] = None
    website_url: Annotated[str | None, since("2025-11-25")] = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None


# --- client capabilities ---


class RootsCapability(ProtocolType, kw_only=True):
    list_changed: Annotated[bool | None, until("2025-11-25")] = None


class SamplingCapability(ProtocolType, kw_only=True):
    context: Annotated[Settings | None, since("2025-11-25")] = None
    tools: Annotated[Settings | None, since("2025-11-25")] = None


class ElicitationCapability(ProtocolType, kw_only=True):
    """The elicitation modes that a client supports; `{}` means form mode only."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")

    form: Annotated[Settings | None, since("2025-11-25")] = None
    url: Annotated[Settings | None, since("2025-11-25")] = None

    @property
    def may_show_form(self) -> bool:
        return self.form is not None or self.url is None

    @property
    def may_open_url(self) -> bool:
        return self.url is not None


class TasksOfElicitation(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    create: Settings | None = None


class TasksOfSampling(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    create_message: Settings | None = None


class ClientTaskRequests(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    elicitation: TasksOfElicitation | None = None
    sampling: TasksOfSampling | None = None


class ClientTasksCapability(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    listing: Settings | None = field(default=None, name="list")
    cancel: Settings | None = None
    requests: ClientTaskRequests | None = None


class ClientCapabilities(ProtocolType, kw_only=True):
    experimental: dict[str, Settings] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: Annotated[ElicitationCapability | None, since("2025-06-18")] = None
    tasks: Annotated[ClientTasksCapability | None, since("2025-11-25", until="2025-11-25")] = None
    extensions: dict[str, Settings] | None = None


# --- server capabilities ---


class ToolsCapability(ProtocolType, kw_only=True):
    list_changed: bool | None = None


class PromptsCapability(ProtocolType, kw_only=True):
    list_changed: bool | None = None


class ResourcesCapability(ProtocolType, kw_only=True):
    list_changed: bool | None = None
    subscribe: bool | None = None


class TasksOfTools(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    call: Settings | None = None


class ServerTaskRequests(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    tools: TasksOfTools | None = None


class ServerTasksCapability(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    listing: Settings | None = field(default=None, name="list")
    cancel: Settings | None = None
    requests: ServerTaskRequests | None = None


class ServerCapabilities(ProtocolType, kw_only=True):
    experimental: dict[str, Settings] | None = None
    logging: Settings | None = None
    completions: Annotated[Settings | None, since("2025-03-26")] = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: Annotated[ServerTasksCapability | None, since("2025-11-25", until="2025-11-25")] = None
    extensions: dict[str, Settings] | None = None


# --- envelope ---


class Envelope(ProtocolType, kw_only=True):
    """What each request carries about its sender in `_meta`, in revisions without a handshake."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2026-07-28")

    version: str = field(name=PROTOCOL_VERSION_KEY)
    capabilities: ClientCapabilities = field(name=CLIENT_CAPABILITIES_KEY)
    client_info: Implementation | None = field(default=None, name=CLIENT_INFO_KEY)
    log_level: LoggingLevel | None = field(default=None, name=LOG_LEVEL_KEY)
    progress_token: ProgressToken | None = field(default=None, name=PROGRESS_TOKEN_KEY)
