"""What every noun of the protocol is made of, and how it says which revisions know it.

A noun is one struct for all revisions: the union of the fields that any of them has. What a
revision does not know is written beside the field:

    title: Annotated[str | None, since("2025-06-18")] = None
    elicitation_id: Annotated[str | None, since("2025-11-25", until="2025-11-25")] = None

`until` names the last revision that has the field. A whole noun that came later or ended earlier
says so once, in its class variable `span`. `known(noun)` gives the marks back. A noun's own span
narrows those of its fields: a field of `Icon` needs no mark for what `Icon` already says.

Rules: the dates here are labels; nothing in the `types` files compares them. No file of `types`
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

# The reserved keys that have no prefix.
BARE_RESERVED_KEYS: Final = frozenset(
    {PROGRESS_TOKEN_KEY, TRACEPARENT_KEY, TRACESTATE_KEY, BAGGAGE_KEY}
)
_RESERVED_LABELS = frozenset({"modelcontextprotocol", "mcp"})

# Compiled on use: most servers have no keys of their own.
_LABEL = "[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_PREFIX = rf"{_LABEL}(?:\.{_LABEL})*"
_NAME = "[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"


def valid_meta_key(key: str) -> bool:
    """Whether `key` is an optional dotted prefix with its slash, and a name or nothing."""
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_PREFIX, prefix):  # R0348, R0349
        return False
    return not name or re.fullmatch(_NAME, name) is not None  # R0350, R0351


def reserved_meta_key(key: str, *, anywhere: bool = False) -> bool:
    """Whether only the protocol itself may give `key` a meaning.

    The rule of today looks at the second label of the prefix (`io.modelcontextprotocol/`,
    `com.mcp.tools/`). `anywhere` asks by the rule of 2025-06-18, where one of the two words may
    stand at any place but the last (`mcp.dev/`, `tools.mcp.com/`).
    """
    if key in BARE_RESERVED_KEYS:
        return True
    prefix, slash, _ = key.partition("/")
    if not slash:
        return False
    labels = prefix.split(".")
    return not _RESERVED_LABELS.isdisjoint(labels[:-1] if anywhere else labels[1:2])


def valid_extension_id(identifier: str) -> bool:
    """Whether `identifier` is a `_meta` key that has both a prefix and a name (R0926)."""
    _, slash, name = identifier.partition("/")
    return bool(slash and name) and valid_meta_key(identifier)


RequestId = int | str
ProgressToken = int | str

LoggingLevel = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]

# `5` must leave as `5`: a plain `float` would send it on as `5.0`.
Number = int | float

# A member that was not sent. Leave the field out, or pass this very object: the encoder knows it
# by identity, and any other empty Raw would be written as nothing at all, which is not JSON.
ABSENT = Raw(b"")


class RevisionRange(Struct, frozen=True):
    """The first and the last revision that know something; `None` is an open end."""

    since: str | None = None
    until: str | None = None

    def __iter__(self) -> Iterator[str | None]:
        """Both, for `revision.knows(*span)`."""
        yield self.since
        yield self.until


def since(first: str, *, until: str | None = None) -> Meta:
    """Mark a field that `first` introduced (and that `until` was the last to have)."""
    return Meta(extra={"since": first, "until": until})


def until(last: str) -> Meta:
    """Mark a field that `last` was the last revision to have."""
    return Meta(extra={"since": None, "until": last})


@dataclass_transform(field_specifiers=(field,), kw_only_default=True, frozen_default=True)
class ProtocolType(Struct, kw_only=True, rename="camel", omit_defaults=True, frozen=True):
    """Anything that the protocol names. `None` and `UNSET` mean absent, and are not sent.

    Fields are given by name only. Each subclass says so again: msgspec does not hand that
    setting down, and a metaclass that did would double the time of making a noun.
    """

    available: ClassVar[RevisionRange] = RevisionRange()
    # Whether it is a page of a list: asked for again and again while nothing in it changes.
    is_list_page: ClassVar[bool] = False


def field_annotations(noun: type[ProtocolType]) -> dict[str, Any]:
    """What is written beside the fields of `noun`: values, as no file of nouns has them as text."""
    written: dict[str, Any] = {}
    for base in reversed(noun.__mro__):
        written |= getattr(base, "__annotations__", {})
    return written


@cache
def field_ranges(noun: type[ProtocolType]) -> Mapping[str, RevisionRange]:
    """The fields of `noun` that some revision lacks, by attribute name, each with its span.

    Fields that are not in the mapping live as long as the noun itself (`noun.span`).
    """
    marks: dict[str, RevisionRange] = {}
    written = field_annotations(noun)
    for name in noun.__struct_fields__:
        for mark in getattr(written[name], "__metadata__", ()):
            if isinstance(mark, Meta) and mark.extra is not None:
                marks[name] = RevisionRange(mark.extra["since"], mark.extra["until"])
    return MappingProxyType(marks)


class RequestParams(ProtocolType, kw_only=True):
    """What the params of every request may hold."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class NotificationParams(ProtocolType, kw_only=True):
    """What the params of every notification may hold."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")


class InputResponseRequestParams(RequestParams, kw_only=True):
    """Params of a request that may be answered with questions, and is then sent again.

    The answers stay raw: only who asked knows what kind each must be.
    """

    input_responses: Annotated[dict[str, Raw] | None, since("2026-07-28")] = None
    request_state: Annotated[str | None, since("2026-07-28")] = None


class Result(ProtocolType, kw_only=True):
    """What every result may hold. `result_type` is any string here: who reads it judges it."""

    meta: dict[str, Any] | None = field(default=None, name="_meta")
    result_type: Annotated[str | None, since("2026-07-28")] = None


class InputResponse(ProtocolType, kw_only=True):
    """What a client answers to a question.

    Not a `Result`: where answers travel inside the retried request they carry no `resultType`.
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

    A negative `ttl_ms` is readable, and counts as 0 (R1010).
    """

    ttl_ms: Annotated[int | None, since("2026-07-28")] = None
    cache_scope: Annotated[CacheScope | None, since("2026-07-28")] = None


class ListResult(CacheableResult, kw_only=True):
    """One page of a list that may be kept."""

    is_list_page: ClassVar[bool] = True

    next_cursor: Cursor | None = None
