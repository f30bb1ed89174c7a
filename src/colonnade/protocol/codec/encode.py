"""What goes out, made to fit the revision of whoever will read it, and written.

`shape_noun` leaves out what the revision does not know and narrows what it knows less of (D17,
D18); here whole messages get the stamps that the revision wants, and become bytes.

Rules: no I/O; what comes in is never changed; what the peer's revision cannot say, or JSON cannot
hold, raises `LocalProtocolError` and is never sent as something else.
"""

import re
from math import isfinite
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct
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
    wraps,
)
from colonnade.protocol.jsonrpc import NOTHING, SplitParams, encode, encode_result, line
from colonnade.protocol.revision import Revision
from colonnade.protocol.types import CallToolRequestParams, CallToolResult, TextContent

# How a result that nobody may keep is marked where every result must say something.
STALE_MS = 0
PRIVATE: "t.CacheScope" = "private"

COMPLETE = "complete"
# What a result says that it is, by the name of its noun (which is made by whoever needs one); a
# noun below one of these is none of them.
RESULT_TYPES = {
    "InputRequiredResult": "input_required",  # R1073
    "ExtCreateTaskResult": "task",  # R1156
}
# What nobody else may say (R1157).
TAKEN = frozenset({COMPLETE, *RESULT_TYPES.values()})

# A float that is no number, as MessagePack writes it: no text has these bytes in a row.
_NOT_FINITE = rb"\xcb[\x7f\xff][\xf0-\xff]"
# The bytes of so many lists are kept: they grow with the catalogue, and are asked for again and
# again while nothing changes.
MAX_KEPT = 32

# Above this a message is not looked through, nor copied, where that can be helped.
LARGE = 16 * 1024
_WRITTEN = (Raw, msgspec.UnsetType)
_WORDS = (TextContent, t.ImageContent, t.AudioContent)

_TOKEN = t.PROGRESS_TOKEN_KEY.encode()
_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode


class ResultPrefix(Struct, frozen=True):
    """What the results of one type get: their own word, as a member and as the first bytes.

    `message` is a whole reply, with room for the id and for what follows those first bytes.
    """

    word: str
    head: bytes
    message: bytes
    cacheable: bool


class Encoder:
    """Writes nouns for peers of one revision.

    `info` is who we are: it goes into the `_meta` of results where the revision wants that.
    `envelope` is what our requests say of us where there is no handshake.
    """

    def __init__(
        self,
        revision: Revision,
        info: t.Implementation | None = None,
        envelope: t.Envelope | None = None,
    ) -> None:
        self.revision = revision
        own = downgrader(revision)
        self._fit = own.downgrade
        self._usual = own.plain_tool_result
        self._stamps: dict[type[t.ProtocolType], ResultPrefix | None] = {}
        # Whether it is said by a request, for each noun that was.
        self._spoken: dict[type[t.ProtocolType], bool] = {}
        # By the identity of a noun, which is kept with its bytes so that it stays the only one.
        self._kept: dict[int, tuple[t.ProtocolType, bytes]] = {}
        self._info = Raw(encode_finite(self.downgrade(info))) if info is not None else None
        self._envelope: dict[str, Any] = {}
        # The `_meta` of a request that has none of its own: alone, and as it begins before a token.
        self._meta, self._token_meta = NOTHING, b'{"%b":' % _TOKEN
        # The answer to a call, with room for the id and for what follows the stamp.
        self._called = b""
        self._tasks = envelope is None or _speaks_tasks(envelope.capabilities)
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
        self, noun: t.ProtocolType, origin: Revision | None = None, wrap: bool | None = None
    ) -> bytes:
        """The bytes of a result. `origin` is the revision of whoever it is passed on from.

        `wrap` is `wraps(tool)` for the result of a tool: a value follows its schema (D17). What
        is no object is wrapped in any case, where only objects may be results. The very same
        list again is the very same bytes.
        """
        kind = type(noun)
        if kind.is_list_page and origin is None:
            return self._list(kind, noun)
        stamp, shaped = self._made(kind, noun, origin, wrap)
        return _headed(stamp, encode_finite(shaped))

    def reply(
        self,
        raw_id: bytes,
        noun: t.ProtocolType,
        origin: Revision | None = None,
        wrap: bool | None = None,
    ) -> bytes:
        """The same as a whole message; a large one is written in one piece."""
        kind = type(noun)
        if kind is CallToolResult:
            if _is_large(cast("t.CallToolResult", noun)):
                _, shaped = self._made(kind, noun, origin, wrap, whole=True)
                shaped = _written_once(cast("t.CallToolResult", shaped))
                return line(encode_finite(ToolResultMessage(Raw(raw_id), shaped)))
            usual = self._usual(noun, wrap)
            if usual is not None:
                message = self._called or self._message()
                return line(message % (raw_id, encode_finite(usual)[1:]))
        elif kind.is_list_page and origin is None:
            return encode_result(raw_id, self._list(kind, noun))
        stamp, shaped = self._made(kind, noun, origin, wrap)
        body = encode_finite(shaped)
        if stamp is not None and len(body) > 2:
            return line(stamp.message % (raw_id, body[1:]))
        return encode_result(raw_id, _headed(stamp, body))

    def _list(self, kind: type[t.ProtocolType], noun: t.ProtocolType) -> bytes:
        kept = self._kept.get(id(noun))
        if kept is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            stamp, shaped = self._made(kind, noun, None, None)
            kept = self._kept[id(noun)] = (noun, _headed(stamp, encode_finite(shaped)))
        return kept[1]

    def _made(
        self,
        kind: type[t.ProtocolType],
        noun: t.ProtocolType,
        origin: Revision | None,
        wrap: bool | None,
        *,
        whole: bool = False,
    ) -> tuple[ResultPrefix | None, t.ProtocolType]:
        """What to write: a stamp, for the first bytes that are always the same, and a noun.

        With `whole` there are no such bytes, and all is in the noun.
        """
        try:
            stamp = self._stamps[kind]
        except KeyError:
            stamp = self._stamp(kind)
        passing = (
            (WRAPPING if wrap else OWN) if origin is None else DowngradeContext(origin, bool(wrap))
        )
        result: Any = self._fit(noun, passing)
        if stamp is None:
            return None, result
        if stamp.cacheable:
            result = _with_cache_hints(result)
        if result.meta is None and result.result_type is None and not whole:
            return stamp, result
        given, word = result.result_type, stamp.word
        if given is not None and given != word and given in TAKEN:
            raise LocalProtocolError(f"{kind.__name__} is of resultType {word}, not {given}")
        meta = dict(result.meta or {})
        if self._info is not None:
            meta.setdefault(t.SERVER_INFO_KEY, self._info)
        return None, replace(result, meta=meta or None, result_type=given or word)

    def params(self, noun: t.ProtocolType, progress_token: int | None = None) -> bytes:
        """The bytes of params; those of a request get the envelope where there is one."""
        kind = type(noun)
        asks = self._spoken.get(kind)
        if asks is None:
            asks = self._check_spoken(kind)
        shaped: Any = self._fit(noun, OWN)
        if not self._tasks and kind is t.SubscriptionsListenRequestParams:
            # Only who speaks the extension may ask for news of tasks.
            wanted = replace(shaped.notifications, task_ids=None)
            shaped = replace(shaped, notifications=wanted)
        meta = NOTHING
        if asks:
            if shaped.meta is not None:
                shaped = self._with_envelope(shaped, progress_token)
            else:
                meta = self._own_meta(progress_token)
        body = encode_finite(shaped)
        if meta:
            return b'{"_meta":%b%b%b' % (meta, b"," if len(body) > 2 else b"", body[1:])
        return body if body != b"{}" else b""

    def _own_meta(self, progress_token: int | None) -> Raw:
        if progress_token is None:
            return self._meta
        return Raw(b"%b%d}" % (self._token_meta, progress_token))

    def call(self, noun: t.ProtocolType, progress_token: int | None) -> SplitParams | None:
        """The params of a call that says nothing but which tool, and with which arguments: what
        `params` would write, before it is. None for any other, and for a name that may be none:
        nothing is to be found wrong with it later, when somebody waits already."""
        if (
            type(noun) is not CallToolRequestParams
            or type(noun.name) is not str
            or not noun.name.isascii()
            or not noun.arguments
            or noun.meta is not None
            or noun.task is not None
            or noun.request_state is not None
            or noun.input_responses is not None
        ):
            return None
        return SplitParams(self._own_meta(progress_token), noun.name, None, noun.arguments)

    def _with_envelope(
        self, params: t.RequestParams, progress_token: int | None
    ) -> t.RequestParams:
        """Params that have a `_meta` of their own; the envelope counts for more."""
        extra = dict(self._envelope)
        if progress_token is not None:
            extra[t.PROGRESS_TOKEN_KEY] = progress_token
        return replace(params, meta=(params.meta or {}) | extra) if extra else params

    # ------------------------------------------------------------ one noun

    def downgrade(
        self, noun: t.ProtocolType, origin: Revision | None = None, wrap: bool | None = None
    ) -> t.ProtocolType:
        """The noun as this revision knows it; the very same one where nothing had to change."""
        return self._fit(noun, DowngradeContext(origin, bool(wrap)))

    def wraps(self, tool: t.Tool) -> bool:
        """Whether the results of a tool are wrapped here, as its output schema is."""
        return wraps(tool, self.revision)

    # ------------------------------------------------------------ once for each type

    def _check_spoken(self, kind: type[t.ProtocolType]) -> bool:
        if not self.revision.knows(*kind.available):
            raise LocalProtocolError(f"there is no {kind.__name__} in {self.revision.date}")
        asks = self._spoken[kind] = issubclass(kind, t.RequestParams)
        return asks

    def _stamp(self, kind: type[t.ProtocolType]) -> ResultPrefix | None:
        self._check_spoken(kind)
        stamp = None
        if self.revision.typed_results and issubclass(kind, t.Result):
            word = RESULT_TYPES.get(kind.__name__, COMPLETE)
            members: dict[str, Any] = {"resultType": word}
            if self._info is not None:
                members["_meta"] = {t.SERVER_INFO_KEY: self._info}
            head = encode(members)[:-1] + b","
            message = encode_result(b"%b", head.replace(b"%", b"%%") + b"%b")
            stamp = ResultPrefix(word, head, message, "cache_scope" in kind.__struct_fields__)
        self._stamps[kind] = stamp
        return stamp

    def _message(self) -> bytes:
        stamp = self._stamp(t.CallToolResult)
        self._called = stamp.message if stamp is not None else encode_result(b"%b", b"{%b")
        return self._called


def _members(noun: t.ProtocolType) -> list[tuple[str, Any]]:
    names = zip(noun.__struct_encode_fields__, noun.__struct_fields__, strict=True)
    return [(wire, getattr(noun, name)) for wire, name in names]


def _speaks_tasks(capabilities: t.ClientCapabilities) -> bool:
    return t.TASKS_EXTENSION_ID in (capabilities.extensions or ())


def _with_cache_hints(result: "t.CacheableResult") -> "t.CacheableResult":
    """R0996: a list, a read or a discovery says how long and for whom it keeps."""
    ttl_ms = STALE_MS if result.ttl_ms is None else max(result.ttl_ms, 0)  # R1011
    return replace(result, ttl_ms=ttl_ms, cache_scope=result.cache_scope or PRIVATE)


# ---------------------------------------------------------------- numbers that are none


def encode_finite(noun: object) -> bytes:
    """A noun, or a value, as JSON. Raises `LocalProtocolError`, for NaN and infinity too.

    The encoder writes those as null, and so only what has a null is looked at: quickly at first.
    """
    try:
        body = _encode(noun)
    except Exception:
        return encode(noun)  # which says what is wrong
    if len(body) > LARGE and type(noun) is ToolResultMessage:
        noun = noun.result
        if _has_no_numbers(noun):
            return body
    if body.find(b"null") >= 0:  # a good deal faster than `in`
        _refuse_strange_numbers(noun)
    return body


class ToolResultMessage(Struct, frozen=True, gc=False):
    """The answer of a tool, as it is written."""

    id: Raw
    result: CallToolResult
    jsonrpc: str = "2.0"


def _headed(stamp: ResultPrefix | None, body: bytes) -> bytes:
    if stamp is None:
        return body
    return stamp.head + body[1:] if len(body) > 2 else stamp.head[:-1] + b"}"


def _is_large(result: CallToolResult) -> bool:
    """Whether it is worth a closer look; many small blocks are not."""
    data, content = result.structured_content, result.content
    if type(data) is Raw and len(data) > LARGE:
        return True
    first = content[0] if len(content) == 1 else None
    return type(first) is TextContent and len(first.text) > LARGE


class EncodedText(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """A block of text that is written already."""

    text: Raw


def _written_once(result: CallToolResult) -> CallToolResult:
    """The same, where one text is both what is said and what is data."""
    data: Any = result.structured_content
    wrapped = isinstance(data, dict) and list(cast("dict[str, Any]", data)) == [WRAPPED]
    value = cast("Any", data)[WRAPPED] if wrapped else cast("Any", data)
    block: Any = result.content[0] if len(result.content) == 1 else None
    if type(value) is not str or type(block) is not TextContent or block.text is not value:
        return result
    if block.annotations is not None or block.meta is not None:
        return result
    raw = Raw(encode(value))
    content: Any = [EncodedText(raw)]
    return replace(result, content=content, structured_content={WRAPPED: raw} if wrapped else raw)


def _has_no_numbers(noun: CallToolResult) -> bool:
    """Whether a tool's result is words, pictures, and data that was written already."""
    data: Any = noun.structured_content
    if isinstance(data, dict) and len(cast("dict[str, Any]", data)) == 1:
        data = next(iter(cast("dict[str, Any]", data).values()))
    if type(cast("object", data)) not in _WRITTEN:
        return False
    if any(type(item) is not Raw for item in (noun.meta or {}).values()):
        return False
    blocks = cast("list[Any]", noun.content)
    return all(
        type(block) is EncodedText
        or (type(block) in _WORDS and block.annotations is None and block.meta is None)
        for block in blocks
    )


def _refuse_strange_numbers(noun: object) -> None:
    try:
        if re.search(_NOT_FINITE, _pack(noun)) is None:
            return
    except (TypeError, ValueError, OverflowError):
        pass  # there is more that MessagePack cannot hold
    place = _strange_place(to_builtins(noun))
    if place is not None:
        raise LocalProtocolError(
            f"{type(noun).__name__}, at `{place.lstrip('.')}`: JSON has no NaN and no infinity; "
            "send None, or say it in words"
        )


def _strange_place(value: Any, place: str = "") -> str | None:
    """Where the first float is that is no number, if there is one."""
    if isinstance(value, float):
        return place if not isfinite(value) else None
    inner: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        inner = [(f"{place}.{key}", item) for key, item in cast("dict[str, Any]", value).items()]
    elif isinstance(value, list):
        items = enumerate(cast("list[Any]", value))
        inner = [(f"{place}[{index}]", item) for index, item in items]
    found = (_strange_place(item, where) for where, item in inner)
    return next((where for where in found if where is not None), None)
