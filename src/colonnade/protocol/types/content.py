"""Content blocks and tools: text, image, audio, resources, and what they are made of.

Rules: as in `base`. A block of an unknown type is kept whole, as `UnknownContent`; `codec.decode`
creates those, and they are encoded as they came.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, Raw, field

from colonnade.protocol.types.base import (
    ABSENT,
    InputResponseRequestParams,
    ProtocolType,
    Result,
    RevisionRange,
    since,
)

Role = Literal["user", "assistant"]
IconTheme = Literal["light", "dark"]

# A priority between 0 and 1, written as each revision writes it.
Priority = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]


class Annotations(ProtocolType, kw_only=True):
    """Hints for the client: audience, priority, last modification."""

    audience: list[Role] | None = None
    priority: Priority | None = None
    last_modified: Annotated[str | None, since("2025-06-18")] = None


class Icon(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25")

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: IconTheme | None = None


class ResourceContents(ProtocolType, kw_only=True):
    """The contents of one resource: text, or a blob in base64, never both (R0119)."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")

    def __post_init__(self) -> None:
        if (self.text is None) is (self.blob is None):
            raise ValueError("resource contents need either `text` or `blob`, and not both")


class TextContent(ProtocolType, kw_only=True, tag_field="type", tag="text"):
    type: ClassVar[Literal["text"]] = "text"

    text: str
    annotations: Annotations | None = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class ImageContent(ProtocolType, kw_only=True, tag_field="type", tag="image"):
    type: ClassVar[Literal["image"]] = "image"

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class AudioContent(ProtocolType, kw_only=True, tag_field="type", tag="audio"):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-03-26")
    type: ClassVar[Literal["audio"]] = "audio"

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class ResourceLink(ProtocolType, kw_only=True, tag_field="type", tag="resource_link"):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-06-18")
    type: ClassVar[Literal["resource_link"]] = "resource_link"

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class EmbeddedResource(ProtocolType, kw_only=True, tag_field="type", tag="resource"):
    type: ClassVar[Literal["resource"]] = "resource"

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class UnknownMembers:
    """The members of a content block of unknown type, unchanged.

    A class of its own, so that nothing on the wire can pose as one: no JSON decodes to it.
    """

    __slots__ = ("members",)

    def __init__(self, members: dict[str, Any]) -> None:
        self.members: dict[str, Any] = members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnknownMembers) and other.members == self.members

    def __repr__(self) -> str:
        return f"UnknownMembers({self.members!r})"


class UnknownContent(ProtocolType, kw_only=True, tag_field="type", tag="*"):
    """A content block of a type that is unknown to this version, or unknown in this place."""

    whole: UnknownMembers

    @property
    def type(self) -> str:
        return str(self.whole.members["type"])


ContentBlock = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
)


TaskSupport = Literal["forbidden", "optional", "required"]


class ToolAnnotations(ProtocolType, kw_only=True):
    """Hints of a tool about its behaviour, not to be trusted from an untrusted server."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-03-26")

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(ProtocolType, kw_only=True):
    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    task_support: TaskSupport | None = None


class Tool(ProtocolType, kw_only=True):
    name: str
    input_schema: dict[str, Any]
    title: Annotated[str | None, since("2025-06-18")] = None
    description: str | None = None
    output_schema: Annotated[dict[str, Any] | None, since("2025-06-18")] = None
    annotations: Annotated[ToolAnnotations | None, since("2025-03-26")] = None
    execution: Annotated[ToolExecution | None, since("2025-11-25", until="2025-11-25")] = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class TaskMetadata(ProtocolType, kw_only=True):
    """Asks that a request be run as a task (tasks of 2025-11-25)."""

    available: ClassVar[RevisionRange] = RevisionRange(since="2025-11-25", until="2025-11-25")

    ttl: int | None = None


class CallToolRequestParams(InputResponseRequestParams, kw_only=True):
    """The arguments stay raw: the types of the tool decode them, once."""

    name: str
    arguments: Raw = ABSENT
    task: Annotated[TaskMetadata | None, since("2025-11-25", until="2025-11-25")] = None


class CallToolResult(Result, kw_only=True):
    content: list[ContentBlock]
    structured_content: Annotated[Any, since("2025-06-18")] = UNSET
    is_error: bool | None = None
