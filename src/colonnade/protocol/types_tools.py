"""A tool, and a call of one.

Rules: as in `types_noun`. A JSON Schema is a plain dict: what it may hold is a matter of
`schema`; how each revision wants it shaped, of `revision`.
"""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Raw, field

from colonnade.protocol.types_content import ContentBlock, Icon
from colonnade.protocol.types_noun import (
    ABSENT,
    InputResponseRequestParams,
    Noun,
    Result,
    Span,
    since,
)

TaskSupport = Literal["forbidden", "optional", "required"]


class ToolAnnotations(Noun, kw_only=True):
    """What a tool says of its own behaviour: hints, not to be trusted from a stranger."""

    span: ClassVar[Span] = Span(since="2025-03-26")

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Noun, kw_only=True):
    span: ClassVar[Span] = Span(since="2025-11-25", until="2025-11-25")

    task_support: TaskSupport | None = None


class Tool(Noun, kw_only=True):
    name: str
    input_schema: dict[str, Any]
    title: Annotated[str | None, since("2025-06-18")] = None
    description: str | None = None
    output_schema: Annotated[dict[str, Any] | None, since("2025-06-18")] = None
    annotations: Annotated[ToolAnnotations | None, since("2025-03-26")] = None
    execution: Annotated[ToolExecution | None, since("2025-11-25", until="2025-11-25")] = None
    icons: Annotated[list[Icon] | None, since("2025-11-25")] = None
    meta: Annotated[dict[str, Any] | None, since("2025-06-18")] = field(default=None, name="_meta")


class TaskMetadata(Noun, kw_only=True):
    """The wish that a request become a task (tasks of 2025-11-25)."""

    span: ClassVar[Span] = Span(since="2025-11-25", until="2025-11-25")

    ttl: int | None = None


class CallToolRequestParams(InputResponseRequestParams, kw_only=True):
    """The arguments stay raw: the tool's own types decode them, once."""

    name: str
    arguments: Raw = ABSENT
    task: Annotated[TaskMetadata | None, since("2025-11-25", until="2025-11-25")] = None


class CallToolResult(Result, kw_only=True):
    content: list[ContentBlock]
    structured_content: Annotated[Any, since("2025-06-18")] = UNSET
    is_error: bool | None = None
