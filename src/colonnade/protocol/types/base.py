"""Protocol types: the base struct, and how a type says which revisions have it.

A protocol type is one struct for all revisions: the union of the fields that any of them has. The
revisions of a field are annotated beside it:

    title: Annotated[str | None, since("2025-06-18")] = None
    elicitation_id: Annotated[str | None, since("2025-11-25", until="2025-11-25")] = None

`until` names the last revision that has the field. A type that was added later or removed earlier
says so once, in its class variable `available`. `field_ranges(cls)` returns the ranges of the
fields. The range of a type limits those of its fields: a field of `Icon` needs no annotation for
what `Icon` already says.

Rules: the dates here are labels; nothing in the `types` package compares them. No module of `types`
uses `from __future__ import annotations`: building decoders gets four times slower.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    dataclass_transform,
)

from msgspec import Meta, Raw, Struct, field

PROGRESS_TOKEN_KEY: Final = "progressToken"
PROTOCOL_VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID_KEY: Final = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"
RELATED_TASK_KEY: Final = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE_KEY: Final = "io.modelcontextprotocol/model-immediate-response"
TRACEPARENT_KEY: Final = "traceparent"
TRACESTATE_KEY: Final = "tracestate"
BAGGAGE_KEY: Final = "baggage"

TASKS_EXTENSION_ID: Final = "io.modelcontextprotocol/tasks"

# Reserved keys without a prefix.
BARE_RESERVED_KEYS: Final = frozenset(
    {PROGRESS_TOKEN_KEY, TRACEPARENT_KEY, TRACESTATE_KEY, BAGGAGE_KEY}
)
_RESERVED_LABELS = frozenset({"modelcontextprotocol", "mcp"})

# Compiled on use: most servers define no `_meta` keys.
_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PREFIX = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def valid_meta_key(key: str) -> bool:
    """Whether `key` is a valid `_meta` key: an optional dotted prefix with a slash, then a name or
    nothing."""
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_PREFIX, prefix):  # R0348, R0349
        return False
    return not name or re.fullmatch(_NAME, name) is not None  # R0350, R0351


def reserved_meta_key(key: str, *, anywhere: bool = False) -> bool:
    """Whether `key` is reserved for the protocol.

    The current rule looks at the second label of the prefix (`io.modelcontextprotocol/`,
    `com.mcp.tools/`). With `anywhere`, the rule of 2025-06-18 is used, where one of the two labels
    may stand at any position but the last (`mcp.dev/`, `tools.mcp.com/`).
    """
    if key in BARE_RESERVED_KEYS:
        return True
    prefix, slash, _ = key.partition("/")
    if not slash:
        return False
    labels = prefix.split(".")
    return not _RESERVED_LABELS.isdisjoint(labels[:-1] if anywhere else labels[1:2])


def valid_extension_id(identifier: str) -> bool:
    """Whether `identifier` is a `_meta` key with both a prefix and a name (R0926)."""
    _, slash, name = identifier.partition("/")
    return bool(slash and name) and valid_meta_key(identifier)


RequestId = int | str
ProgressToken = int | str

LoggingLevel = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]

# `5` must leave as `5`: a plain `float` would send it on as `5.0`.
Number = int | float

# An absent member. Leave the field out, or pass this very object: the encoder knows it by identity,
# and any other empty Raw would be written as nothing at all, which is not JSON.
ABSENT = Raw(b"")


class RevisionRange(Struct, frozen=True):
    """The first and the last revision that have something; `None` is an open end."""

    since: str | None = None
    until: str | None = None

    def __iter__(self) -> Iterator[str | None]:
        """Both ends, for `revision.knows(*range)`."""
        yield self.since
        yield self.until


def since(first: str, *, until: str | None = None) -> Meta:
    """Annotate a field that was added in `first` (and removed after `until`)."""
    return Meta(extra={"since": first, "until": until})


def until(last: str) -> Meta:
    """Annotate a field that was removed after `last`."""
    return Meta(extra={"since": None, "until": last})


@dataclass_transform(field_specifiers=(field,), kw_only_default=True, frozen_default=True)
class ProtocolType(Struct, kw_only=True, rename="camel", omit_defaults=True, frozen=True):
    """Base class of the protocol types. `None` and `UNSET` mean absent, and are not sent.

    Fields are keyword-only. Each subclass repeats `kw_only`: msgspec does not inherit that setting,
    and a metaclass that passed it on would double the time to create a type.
    """

    available: ClassVar[RevisionRange] = RevisionRange()
    # Whether it is a page of a list, which is requested again and again while nothing in it
    # changes.
    is_list_page: ClassVar[bool] = False
    # Whether it has members that only an extension knows, in its field `members`.
    is_open: ClassVar[bool] = False


def field_annotations(cls: type[ProtocolType]) -> dict[str, Any]:
    """The annotations of the fields of `cls`, as values."""
    annotations: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        annotations |= getattr(base, "__annotations__", {})
    return annotations


@cache
def field_ranges(cls: type[ProtocolType]) -> Mapping[str, RevisionRange]:
    """The fields of `cls` that some revision lacks, by attribute name, each with its range.

    Fields that are not in the mapping exist in every revision that has the type (`cls.available`).
    """
    ranges: dict[str, RevisionRange] = {}
    annotations = field_annotations(cls)
    for name in cls.__struct_fields__:
        for mark in getattr(annotations[name], "__metadata__", ()):
            if isinstance(mark, Meta) and mark.extra is not None:
                ranges[name] = RevisionRange(mark.extra["since"], mark.extra["until"])
    return MappingProxyType(ranges)


class RequestParams(ProtocolType, kw_only=True):
    """Members that the params of every request may have."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class NotificationParams(ProtocolType, kw_only=True):
    """Members that the params of every notification may have."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class InputResponseRequestParams(RequestParams, kw_only=True):
    """Params of a request that may get an `input_required` result, and is then sent again.

    The input responses stay raw: only the server that sent the input requests knows their types.
    """

    input_responses: Annotated[dict[str, Raw] | None, since("2026-07-28")] = None
    request_state: Annotated[str | None, since("2026-07-28")] = None


class Result(ProtocolType, kw_only=True):
    """Members that every result may have. The receiver checks `result_type`, any string here."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")
    result_type: Annotated[str | None, since("2026-07-28")] = None


class InputResponse(ProtocolType, kw_only=True):
    """The result of an input request: elicitation, sampling or roots.

    Not a `Result`: inside the retried request these carry no `resultType`.
    """

    meta: dict[str, Any] | None = field(default=None, name="_meta")


Cursor = str
CacheScope = Literal["public", "private"]


class PaginatedRequestParams(RequestParams, kw_only=True):
    cursor: Cursor | None = None


class PaginatedResult(Result, kw_only=True):
    next_cursor: Cursor | None = None


class CacheableResult(Result, kw_only=True):
    """A result that says how long, and for whom, it stays fresh.

    A negative `ttl_ms` is accepted and counts as 0 (R1010).
    """

    ttl_ms: Annotated[int | None, since("2026-07-28")] = None
    cache_scope: Annotated[CacheScope | None, since("2026-07-28")] = None


class ListResult(CacheableResult, kw_only=True):
    """One page of a list that may be cached."""

    is_list_page: ClassVar[bool] = True

    next_cursor: Cursor | None = None
