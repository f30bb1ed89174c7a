"""Encoding: results and params as JSON, for the revision of the receiver.

`downgrade` drops what the revision does not know and narrows what it knows less of (D17, D18); here
whole messages get the members that the revision requires, and become bytes.

Rules: no I/O; the argument is never changed; what the revision of the peer cannot express, or JSON
cannot hold, raises `LocalProtocolError` and is never sent as something else.
"""

import re
from collections.abc import Callable
from math import isfinite
from typing import Any, TypeAlias, cast

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import to_builtins
from colonnade.protocol.codec.downgrade import (
    OWN,
    WRAPPED,
    WRAPPING,
    DowngradeContext,
    downgrader,
    is_object,
    wraps,
)
from colonnade.protocol.jsonrpc import (
    NOTHING,
    RequestId,
    SplitParams,
    encode,
    encode_large,
    encode_result,
    is_plainly_valid,
    line,
)
from colonnade.protocol.revision import OutputRoot, Revision
from colonnade.protocol.types import CallToolRequestParams, CallToolResult, TextContent

# The cache hints of a result that has none, where every result must have them.
STALE_MS = 0
PRIVATE: "t.CacheScope" = "private"

COMPLETE = "complete"
# The `resultType` of a result, by the name of its type (so that none is created here); subclasses
# are not included.
RESULT_TYPES = {
    "InputRequiredResult": "input_required",  # R1073
    "ExtCreateTaskResult": "task",  # R1156
}
# Result types that no other type may use (R1157).
RESERVED_RESULT_TYPES = frozenset({COMPLETE, *RESULT_TYPES.values()})

# NaN or infinity, as MessagePack writes it: no string contains these bytes in a row.
_NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
# How many encoded lists are kept: they grow with the registry, and are requested again and again
# while nothing changes.
MAX_KEPT = 32

# A text, an image or a blob of at least this size is encoded so that a lack of memory raises an
# error.
HUGE = 1024 * 1024
# Above this size a message is not searched or copied, if that can be avoided.
LARGE = 16 * 1024
_WRITTEN = (Raw, msgspec.UnsetType)
_WORDS = (TextContent, t.ImageContent, t.AudioContent)

_TOKEN = t.PROGRESS_TOKEN_KEY.encode()
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class ResultPrefix(Struct, frozen=True):
    """The constant start of results of one type: their `resultType`, as a member and as bytes.

    `message` is a whole response, with room for the id and for what follows the prefix.
    """

    word: str
    head: bytes
    message: bytes
    cacheable: bool


# Members that a revision does not have, with their defaults.
AbsentMembers: TypeAlias = tuple[tuple[str, Any], ...]
ParamsType: TypeAlias = tuple[bool, AbsentMembers | None, bool]


class Encoder:
    """Encodes protocol types for peers of one revision.

    `info` is our implementation info: it goes into the `_meta` of results if the revision requires
    that. `envelope` is the envelope of our requests, without a handshake.
    """

    def __init__(
        self,
        revision: Revision,
        info: t.Implementation | None = None,
        envelope: t.Envelope | None = None,
    ) -> None:
        self.revision = revision
        own = downgrader(revision)
        self._downgrade = own.downgrade
        self._absent_members = own.absent_members
        self._plain_blocks = own.plain
        self._output_root = revision.output_root
        self._prefixes: dict[type[t.ProtocolType], ResultPrefix | None] = {}
        # For each type of params that was used: whether it is that of a request, the members that
        # this revision lacks, if that is all that may have to change, and whether it is open.
        self._params_types: dict[type[t.ProtocolType], ParamsType] = {}
        # By the identity of a list, which is kept with its bytes so that the identity stays unique.
        self._kept: dict[int, tuple[t.ProtocolType, bytes]] = {}
        self._info = Raw(encode_finite(self.downgrade(info))) if info is not None else None
        # The same, for the `_meta` of results that are not encoded here.
        self.encoded_info: Raw | None = self._info
        self._envelope: dict[str, Any] = {}
        # The `_meta` of a request without one of its own: alone, and as it begins before a progress
        # token.
        self._meta, self._token_meta = NOTHING, b'{"%b":' % _TOKEN
        # The response to `tools/call`, with room for the id and for what follows the prefix.
        self._tool_frame = b""
        self._tasks = envelope is None or _declares_tasks(envelope.capabilities)
        if envelope is not None and not revision.handshake:
            self._envelope = {
                name: Raw(encode_finite(own.value(value)))
                for name, value in _members(envelope)
                if value is not None
            }
            written = encode(self._envelope)
            self._meta, self._token_meta = Raw(written), b'%b,"%b":' % (written[:-1], _TOKEN)

    # ------------------------------------------------------------ whole messages

    def result(
        self, obj: t.ProtocolType, origin: Revision | None = None, wrap: bool | None = None
    ) -> bytes:
        """Encode a result. `origin` is the revision of the server that it is passed on from.

        `wrap` is `wraps(tool)` for the result of a tool: a value follows its schema (D17). What is
        not an object is wrapped in any case, where only objects may be results. The very same list
        again gives the very same bytes.
        """
        kind = type(obj)
        if kind.is_list_page and origin is None:
            return self._list_bytes(kind, obj)
        prefix, downgraded = self._prepare(kind, obj, origin, wrap)
        return _with_prefix(prefix, encode_finite(downgraded, _writer_of(downgraded)))

    def response(
        self,
        raw_id: bytes,
        obj: t.ProtocolType,
        origin: Revision | None = None,
        wrap: bool | None = None,
    ) -> bytes:
        """Encode the whole response; a large one is encoded in one piece."""
        kind = type(obj)
        if type(obj) is CallToolResult:
            plain = self._plain_tool_result(obj, wrap)
            if plain is not None:
                message = self._tool_frame or self._make_tool_frame()
                return line(message % (raw_id, encode_finite(plain)[1:]))
            if _is_large(obj):
                _, downgraded = self._prepare(kind, obj, origin, wrap, whole=True)
                message = ToolResultMessage(Raw(raw_id), downgraded)
                return line(encode_finite(message, _writer_of(downgraded)))
        elif kind.is_list_page and origin is None:
            return encode_result(raw_id, self._list_bytes(kind, obj))
        prefix, downgraded = self._prepare(kind, obj, origin, wrap)
        body = encode_finite(downgraded, _writer_of(downgraded))
        if prefix is not None and len(body) > 2:
            return line(prefix.message % (raw_id, body[1:]))
        return encode_result(raw_id, _with_prefix(prefix, body))

    def _plain_tool_result(self, result: Any, wrap: bool | None) -> t.CallToolResult | None:
        """The result of a tool, if it has only small blocks that stay unchanged, and a small value;
        else None.

        This is the hot path, guarded by `benchmarks/core.py`; `downgrade` would return the same.
        """
        if result.meta is not None or result.result_type is not None:
            return None
        plain = self._plain_blocks
        for block in result.content:
            if not plain[type(block)]:
                return None
            if type(block) is TextContent:
                if len(block.text) > LARGE:
                    return None
            elif _size_of(block) > HUGE:
                return None
        value = result.structured_content
        if type(value) is Raw and len(value) > LARGE:
            return None
        if value is UNSET or self._output_root is OutputRoot.ANY:
            return result
        if self._output_root is not OutputRoot.OBJECT:
            return None
        if not wrap and is_object(value):
            return result
        return CallToolResult(
            content=result.content, structured_content={WRAPPED: value}, is_error=result.is_error
        )

    def _list_bytes(self, kind: type[t.ProtocolType], obj: t.ProtocolType) -> bytes:
        kept = self._kept.get(id(obj))
        if kept is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            prefix, downgraded = self._prepare(kind, obj, None, None)
            kept = self._kept[id(obj)] = (obj, _with_prefix(prefix, encode_finite(downgraded)))
        return kept[1]

    def _prepare(
        self,
        kind: type[t.ProtocolType],
        obj: t.ProtocolType,
        origin: Revision | None,
        wrap: bool | None,
        *,
        whole: bool = False,
    ) -> tuple[ResultPrefix | None, Any]:
        """Return the prefix, for the bytes that are always the same, and the object to encode.

        With `whole` there is no prefix, and all is in the object.
        """
        try:
            prefix = self._prefixes[kind]
        except KeyError:
            prefix = self._make_prefix(kind)
        context = (
            (WRAPPING if wrap else OWN) if origin is None else DowngradeContext(origin, bool(wrap))
        )
        result: Any = self._downgrade(obj, context)
        flat = _flattened if kind.is_open else _unchanged
        if prefix is None:
            return None, flat(result)
        if prefix.cacheable:
            result = _with_cache_hints(result)
        if result.meta is None and result.result_type is None and not whole:
            return prefix, flat(result)
        given, word = result.result_type, prefix.word
        if given is not None and given != word and given in RESERVED_RESULT_TYPES:
            raise LocalProtocolError(f"the resultType of {kind.__name__} is {word}, not {given}")
        meta = dict(result.meta or {})
        if self._info is not None:
            meta.setdefault(t.SERVER_INFO_KEY, self._info)
        return None, flat(replace(result, meta=meta or None, result_type=given or word))

    def params(self, obj: t.ProtocolType, progress_token: RequestId | None = None) -> bytes:
        """Encode params; those of a request get the envelope if there is one."""
        kind = type(obj)
        is_request, absent, is_open = self._params_types.get(kind) or self._check_available(kind)
        downgraded: Any = obj
        if absent is None or downgraded.meta is not None or (absent and _has_any(obj, absent)):
            downgraded = self._downgrade(obj, OWN)
        if not self._tasks and kind is t.SubscriptionsListenRequestParams:
            # Only clients that declare the extension may subscribe to tasks.
            wanted = replace(downgraded.notifications, task_ids=None)
            downgraded = replace(downgraded, notifications=wanted)
        meta: bytes | Raw = NOTHING
        if is_request:
            if downgraded.meta is not None:
                downgraded = self._with_envelope(downgraded, progress_token)
            else:
                meta = self._meta
                if progress_token is not None:
                    meta = b"%b%b}" % (self._token_meta, encode(progress_token))
        body = encode_finite(_flattened(downgraded) if is_open else downgraded)
        if meta:
            return b'{"_meta":%b%b%b' % (meta, b"," if len(body) > 2 else b"", body[1:])
        return body if body != b"{}" else b""

    def split_call(
        self, obj: t.ProtocolType, progress_token: RequestId | None
    ) -> SplitParams | None:
        """The params of a tool call that has nothing but a name and arguments, as `decode` would
        split them after `params` has encoded them. None for all others."""
        if (
            type(obj) is not CallToolRequestParams
            or type(obj.name) is not str
            or not obj.name.isascii()
            or obj.meta is not None
            or obj.task is not None
            or obj.request_state is not None
            or obj.input_responses is not None
            or not is_plainly_valid(bytes(obj.arguments))
        ):
            return None
        meta = self._meta
        if progress_token is not None:
            meta = Raw(b"%b%b}" % (self._token_meta, encode(progress_token)))
        return SplitParams(meta, obj.name, None, obj.arguments)

    def _with_envelope(
        self, params: t.RequestParams, progress_token: RequestId | None
    ) -> t.RequestParams:
        """Add the envelope to params with a `_meta` of their own; the envelope takes precedence."""
        extra = dict(self._envelope)
        if progress_token is not None:
            extra[t.PROGRESS_TOKEN_KEY] = progress_token
        return replace(params, meta=(params.meta or {}) | extra) if extra else params

    # ------------------------------------------------------------ single values

    def downgrade(
        self, obj: t.ProtocolType, origin: Revision | None = None, wrap: bool | None = None
    ) -> t.ProtocolType:
        """Return the value as this revision knows it; the very same one if nothing had to
        change."""
        return self._downgrade(obj, DowngradeContext(origin, bool(wrap)))

    def wraps(self, tool: t.Tool) -> bool:
        """Whether the results of a tool are wrapped here, as its output schema is."""
        return wraps(tool, self.revision)

    # ------------------------------------------------------------ once for each type

    def _check_available(self, kind: type[t.ProtocolType]) -> ParamsType:
        if not self.revision.knows(*kind.available):
            raise LocalProtocolError(f"{kind.__name__} does not exist in {self.revision.date}")
        is_request = issubclass(kind, t.RequestParams)
        known = is_request, self._absent_members(kind), kind.is_open
        self._params_types[kind] = known
        return known

    def _make_prefix(self, kind: type[t.ProtocolType]) -> ResultPrefix | None:
        self._check_available(kind)
        prefix = None
        if self.revision.typed_results and issubclass(kind, t.Result):
            word = RESULT_TYPES.get(kind.__name__, COMPLETE)
            members: dict[str, Any] = {"resultType": word}
            if self._info is not None:
                members["_meta"] = {t.SERVER_INFO_KEY: self._info}
            head = encode(members)[:-1] + b","
            message = encode_result(b"%b", head.replace(b"%", b"%%") + b"%b")
            prefix = ResultPrefix(word, head, message, "cache_scope" in kind.__struct_fields__)
        self._prefixes[kind] = prefix
        return prefix

    def _make_tool_frame(self) -> bytes:
        prefix = self._make_prefix(t.CallToolResult)
        self._tool_frame = prefix.message if prefix is not None else encode_result(b"%b", b"{%b")
        return self._tool_frame


def _has_any(obj: t.ProtocolType, absent: AbsentMembers) -> bool:
    """Whether any of these members is not its default."""
    for name, default in absent:  # noqa: SIM110 - a generator takes three times as long
        if getattr(obj, name) is not default:
            return True
    return False


def _members(obj: t.ProtocolType) -> list[tuple[str, Any]]:
    names = zip(obj.__struct_encode_fields__, obj.__struct_fields__, strict=True)
    return [(wire, getattr(obj, name)) for wire, name in names]


def _unchanged(obj: Any) -> Any:
    return obj


def _flattened(obj: Any) -> dict[str, Any]:
    """All members of a message of an extension, in one object."""
    own = {"_meta": obj.meta, "resultType": getattr(obj, "result_type", None)}
    return {name: value for name, value in own.items() if value is not None} | obj.members


def _declares_tasks(capabilities: t.ClientCapabilities) -> bool:
    return t.TASKS_EXTENSION_ID in (capabilities.extensions or ())


def _with_cache_hints(result: "t.CacheableResult") -> "t.CacheableResult":
    """R0996: a list, a read or a discovery says how long and for whom it may be cached."""
    ttl_ms = STALE_MS if result.ttl_ms is None else max(result.ttl_ms, 0)  # R1011
    return replace(result, ttl_ms=ttl_ms, cache_scope=result.cache_scope or PRIVATE)


# ---------------------------------------------------------------- NaN and infinity


def encode_finite(obj: object, write: Callable[[object], bytes] = _encode) -> bytes:
    """Encode a value as JSON. Raises `LocalProtocolError`, for NaN and infinity too.

    The encoder writes those as null, so only a body with a null is searched for them.
    """
    try:
        body = write(obj)
    except MemoryError:
        raise
    except Exception:
        return encode(obj)  # raises with a message
    if len(body) > LARGE and type(obj) is ToolResultMessage:
        obj = obj.result
        if _has_no_numbers(obj):
            return body
    if body.find(b"null") >= 0:  # much faster than `in`
        _refuse_non_finite(obj)
    return body


class ToolResultMessage(Struct, frozen=True, gc=False):
    """The response to `tools/call`, as it is encoded."""

    id: Raw
    result: CallToolResult
    jsonrpc: str = "2.0"


def _writer_of(result: Any) -> Callable[[object], bytes]:
    """The encoder for a result: `encode_large` if the result has a huge text, image or blob."""
    parts = getattr(result, "content", None) or getattr(result, "contents", None)
    if isinstance(parts, list) and any(_size_of(one) > HUGE for one in cast("list[Any]", parts)):
        return encode_large
    data = getattr(result, "structured_content", None)
    return encode_large if type(data) is Raw and len(data) > HUGE else _encode


def _size_of(part: Any) -> int:
    """The size of a content block, or of the contents of a resource."""
    part = getattr(part, "resource", part)
    for name in ("text", "data", "blob"):
        value = getattr(part, name, None)
        if isinstance(value, str | Raw):
            return len(value)
    return 0


def _with_prefix(prefix: ResultPrefix | None, body: bytes) -> bytes:
    if prefix is None:
        return body
    return prefix.head + body[1:] if len(body) > 2 else prefix.head[:-1] + b"}"


def _is_large(result: CallToolResult) -> bool:
    """Whether it is worth special handling; many small blocks are not."""
    data, content = result.structured_content, result.content
    if type(data) is Raw and len(data) > LARGE:
        return True
    first = content[0] if len(content) == 1 else None
    return type(first) is TextContent and len(first.text) > LARGE


def _has_no_numbers(obj: CallToolResult) -> bool:
    """Whether a tool result is text, images, and data that is already encoded."""
    data: Any = obj.structured_content
    if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1:
        data = next(iter(cast("dict[str, Any]", data).values()))
    if type(cast("object", data)) not in _WRITTEN:
        return False
    if any(type(item) is not Raw for item in (obj.meta or {}).values()):
        return False
    blocks = cast("list[Any]", obj.content)
    return all(
        type(block) in _WORDS and block.annotations is None and block.meta is None
        for block in blocks
    )


def _refuse_non_finite(obj: object) -> None:
    try:
        if _NOT_FINITE.search(_pack(obj)) is None:
            return
    except (TypeError, ValueError, OverflowError):
        pass  # MessagePack cannot hold everything that JSON can
    place = _non_finite_place(to_builtins(obj))
    if place is not None:
        raise LocalProtocolError(
            f"{type(obj).__name__}, at `{place.lstrip('.')}`: JSON has no NaN and no infinity; "
            "send None, or a string"
        )


def _non_finite_place(value: Any, place: str = "") -> str | None:
    """The path of the first NaN or infinity, if there is one."""
    if isinstance(value, float):
        return place if not isfinite(value) else None
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(f"{place}.{key}", item) for key, item in cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        inner = [(f"{place}[{index}]", item) for index, item in items]
    found = (_non_finite_place(item, where) for where, item in inner)
    return next((where for where in found if where is not None), None)
