"""Results and errors of one server that are passed on to the client of another connection.

Between equal revisions the bytes of a result are passed on, so that members which this version does
not know arrive unchanged, and a large result is never decoded as a whole. Between others the result
is encoded for the revision of the client. The `_meta` of a hop is made anew either way. The same
holds for each item of a list, which has the name that it has here.

Rules: no I/O. Bytes are passed on only for the very result, or item, that they were decoded as: one
that a middleware has replaced is encoded.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, cast

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from colonnade.errors import Fault, FaultKind, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_unchecked
from colonnade.protocol.codec.downgrade import wraps
from colonnade.protocol.codec.encode import COMPLETE, PRIVATE, STALE_MS, Encoder, encode_finite
from colonnade.protocol.json_checks import DECODE_ERRORS, has_duplicate_members
from colonnade.protocol.jsonrpc import NOTHING, encode, encode_members
from colonnade.protocol.revision import OutputRoot, Revision

_members = msgspec.json.Decoder(dict[str, Raw])
_COMPLETE = Raw(msgspec.json.encode(COMPLETE))
_TRACE = frozenset({t.TRACEPARENT_KEY, t.TRACESTATE_KEY, t.BAGGAGE_KEY})
# What a client says to this gateway, and what this gateway says to its client: neither is for, nor
# from, a server.
HOP_PREFIX = "dev.colonnade/"


# The keys of one hop that nearly every `_meta` has, and nothing else.
_HOP = frozenset(
    {
        t.PROTOCOL_VERSION_KEY,
        t.CLIENT_INFO_KEY,
        t.CLIENT_CAPABILITIES_KEY,
        t.SERVER_INFO_KEY,
        t.PROGRESS_TOKEN_KEY,
    }
)


# Of a `_meta` that has these keys alone: peers repeat it in each message, so it is decoded once.
MAX_HOPS = 256
MAX_HOP_BYTES = 1024


def is_hop_meta(meta: Raw) -> bool:
    """Whether nothing of a `_meta` is passed on. Raises what its decoder does."""
    if len(meta) > MAX_HOP_BYTES:
        return _HOP.issuperset(_members.decode(meta))
    return _is_hop(bytes(meta))


@lru_cache(MAX_HOPS)
def _is_hop(meta: bytes) -> bool:
    return _HOP.issuperset(_members.decode(meta))


def forwardable_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a `_meta` that are passed on: trace context, and unreserved keys. The others are
    those of one hop, as are those of this package."""
    if _HOP.issuperset(meta):
        return {}
    return {
        key: value
        for key, value in meta.items()
        if key in _TRACE or not (t.reserved_meta_key(key) or key.startswith(HOP_PREFIX))
    }


def unreserved_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The same without trace context, which is different for each request."""
    return {key: value for key, value in forwardable_meta(meta).items() if key not in _TRACE}


# ---------------------------------------------------------------- results of tools


class RawToolResult(t.CallToolResult, kw_only=True):
    """The result of a tool whose structured content is not decoded."""

    structured_content: Raw = t.ABSENT


_raw_blocks: Any = vars(t.CallToolResult)["content"]
_raw_content: Any = vars(t.CallToolResult)["structured_content"]


class RelayedToolResult(RawToolResult, kw_only=True):
    """The result of a tool that is passed on: its structured content is decoded when it is read,
    which most results are not, and so are the blocks of one that `unread_tool_result` made."""

    # The type in whose place it is decoded.
    decodes: ClassVar[str] = "CallToolResult"

    @property
    def content(self) -> list[t.ContentBlock]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The blocks. Raises `RemoteProtocolError` if they are not valid."""
        value: Any = _raw_blocks.__get__(self)
        if isinstance(value, Raw):
            try:
                value = decode_unchecked(t.CallToolResult, b'{"content":%b}' % value).content
            except Fault as fault:
                raise RemoteProtocolError(fault.message) from None
        return value

    @property
    def structured_content(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The structured content, or UNSET. Raises `RemoteProtocolError` if the content has a
        number that Python cannot hold."""
        value = self.written_content
        try:
            return msgspec.json.decode(value) if isinstance(value, Raw) else value
        except DECODE_ERRORS as error:
            words = "the structured content of a tool result cannot be read"
            raise RemoteProtocolError(f"{words}: {error}") from None

    @property
    def written_content(self) -> Any:
        """The structured content as the server wrote it, or as a middleware has set it; otherwise
        UNSET."""
        value: Any = _raw_content.__get__(self)
        return UNSET if isinstance(value, Raw) and not value else value

    @property
    def plain(self) -> t.CallToolResult:
        """The same result as a type of the protocol, with the structured content as it was
        written."""
        return t.CallToolResult(
            content=self.content,
            structured_content=self.written_content,
            is_error=self.is_error,
            meta=self.meta,
            # Without this word it means the same, and most encoders write it themselves.
            result_type=None if self.result_type == COMPLETE else self.result_type,
        )


_meta = msgspec.json.Decoder(dict[str, Any])
_BRACKET = ord("[")
_FLAGS: Final[dict[bytes, bool | None]] = {b"true": True, b"false": False, b"null": None}


def unread_tool_result(members: Mapping[str, Raw], revision: Revision) -> RelayedToolResult | None:
    """The result of a tool by its members, whose blocks nothing looks at: they are passed on as
    they were written. None for one that must be decoded: it is not complete, or not valid."""
    content, flag, given = members.get("content"), members.get("isError"), members.get("resultType")
    if content is None or memoryview(content)[0] != _BRACKET:
        return None
    if given is not None and not (revision.typed_results and given == _COMPLETE):
        return None
    is_error = None
    if flag is not None:
        is_error = _FLAGS.get(bytes(flag), UNSET)
        if is_error is UNSET:
            return None
    meta = members.get("_meta")
    try:
        return RelayedToolResult(
            content=cast("Any", content),
            structured_content=members.get("structuredContent", t.ABSENT),
            is_error=is_error,
            meta=None if meta is None or is_hop_meta(meta) else _meta.decode(meta),
            result_type=COMPLETE if given is not None else None,
        )
    except DECODE_ERRORS:
        return None


# ---------------------------------------------------------------- origin


class ResultOrigin(Struct):
    """Where the outcome of a forwarded request comes from.

    `outcome` is the result or the exception that this is about; `raw` is the result as the server
    wrote it, and `decoded` what it was decoded as. `find_tool` returns the tool that was called, as
    it is listed. With `is_private` a result is for one caller only, whatever its server says.
    `items` has those of a list as their servers wrote them, by the identity of the decoded item;
    a list of several servers has no `server`.

    `reader` is the revision of the client that the result is for, None if something else reads it
    as well. `split` has the members of a result, if they were found when the response was decoded.
    """

    # The type that the result of a tool is decoded as.
    tool_result: ClassVar[type[t.CallToolResult]] = RelayedToolResult

    server: str
    revision: Revision | None = None
    raw: Raw = NOTHING
    decoded: object = None
    outcome: object = None
    find_tool: Callable[[], t.Tool | None] | None = None
    is_private: bool = False
    items: "Mapping[int, RawItem] | None" = None
    reader: Revision | None = None
    split: tuple[Raw, dict[str, Raw]] | None = None

    def found_members(self, raw: Raw, members: dict[str, Raw]) -> None:
        """The members of this result were found when its response was decoded."""
        self.split = raw, members

    def unread(self, raw: Raw, revision: Revision) -> RelayedToolResult | None:
        """This result of a tool, if nothing but a client of this revision reads it; None if it has
        to be decoded."""
        split = self.split
        if split is None or split[0] is not raw or self.reader is not revision:
            return None
        return unread_tool_result(split[1], revision)

    def members_of(self, raw: Raw) -> dict[str, Raw] | None:
        """The members of this very result, if they were found."""
        return self.split[1] if self.split is not None and self.split[0] is raw else None

    def received(self, revision: Revision, raw: Raw, result: object) -> None:
        """The server has responded with this result."""
        self.revision, self.raw, self.decoded = revision, raw, result

    def settle(self, result: object, outcome: object) -> None:
        """Note what the handler returns for `result`, which was received last."""
        if result is not self.decoded:  # made from several responses, such as that of a task
            self.raw = NOTHING
        self.outcome = outcome

    def encode(
        self, encoder: Encoder, raw_id: bytes, result: t.ProtocolType, *, is_inspected: bool
    ) -> bytes:
        """The response with a result that has come from here. `is_inspected` is whether something
        has looked at it: what another decoder could read differently is then encoded anew."""
        if self.items is not None:
            return encode_list(encoder, raw_id, result, self.items, is_inspected=is_inspected)
        if (
            self.raw
            and self.outcome is result
            and self.revision is encoder.revision
            and not (is_inspected and has_duplicate_members(self.raw))
        ):
            passed = _pass_on(encoder, result, self)
            if passed is not None:
                return encode_members(raw_id, passed, len(self.raw))
        if isinstance(result, RelayedToolResult):
            result = result.plain
        if self.is_private and isinstance(result, t.CacheableResult):
            result = replace(result, cache_scope=PRIVATE)
        return encoder.response(raw_id, result, self.revision, _wraps(encoder, result, self))


def _pass_on(
    encoder: Encoder, result: t.ProtocolType, origin: ResultOrigin
) -> dict[str, Any] | None:
    """The members of a result as they were written, with the `_meta` of this hop and those that the
    revision requires; None if they cannot be split."""
    try:
        found = origin.members_of(origin.raw)
        members = _members.decode(origin.raw) if found is None else dict(found)
        own = members.pop("_meta", None)
        meta: dict[str, Any] = {}
        if own is not None and not is_hop_meta(own):
            meta = forwardable_meta(_members.decode(own))
    except DECODE_ERRORS:
        return None
    head: dict[str, Any] = {}
    if encoder.revision.typed_results:
        head["resultType"] = members.pop("resultType", _COMPLETE)
        if encoder.encoded_info is not None:
            meta[t.SERVER_INFO_KEY] = encoder.encoded_info
        if isinstance(result, t.CacheableResult):
            ttl_ms, scope = result.ttl_ms, result.cache_scope
            members["ttlMs"] = Raw(b"%d" % max(STALE_MS if ttl_ms is None else ttl_ms, 0))
            shown = PRIVATE if origin.is_private or scope is None else scope
            members["cacheScope"] = Raw(encode(shown))
    if meta:
        head["_meta"] = meta
    if "content" not in members and isinstance(result, t.CallToolResult):
        members["content"] = Raw(b"[]")  # D46
    return head | members


def _wraps(encoder: Encoder, result: t.ProtocolType, origin: ResultOrigin) -> bool | None:
    """Whether the value of a tool is wrapped for this client, as the schema in its list is: only
    where the server had no need to do so itself."""
    if (
        not isinstance(result, t.CallToolResult)
        or result.structured_content is UNSET
        or encoder.revision.output_root is not OutputRoot.OBJECT
        or origin.find_tool is None
        or origin.revision is None
        or origin.revision.output_root is not OutputRoot.ANY
    ):
        return None
    tool = origin.find_tool()
    return wraps(tool, encoder.revision) if tool is not None else None


# ---------------------------------------------------------------- items of lists

# By the type of a list: the field of its items, their member on the wire, and what names an item.
LIST_MEMBERS: Final[dict[type[t.ProtocolType], tuple[str, str, str]]] = {
    t.ListToolsResult: ("tools", "tools", "name"),
    t.ListPromptsResult: ("prompts", "prompts", "name"),
    t.ListResourcesResult: ("resources", "resources", "uri"),
    t.ListResourceTemplatesResult: ("resource_templates", "resourceTemplates", "uriTemplate"),
}
_items = msgspec.json.Decoder(list[Raw])


class RawItem(NamedTuple):
    """An item of a list as its server wrote it: `item` is what it was decoded as, and `name` its
    name here, None for that of the server. `members` has what replaces members, None for those that
    are not passed on."""

    item: t.ProtocolType
    raw: Raw
    revision: Revision
    name: str | None = None
    members: Mapping[str, Raw | None] = MappingProxyType({})

    def replaced(self, item: t.ProtocolType, member: str, value: Raw | None) -> "RawItem":
        """The same for an item with another member, and that is the same otherwise."""
        return self._replace(item=item, members={**self.members, member: value})

    def encoded(self) -> bytes:
        """The bytes, with the name and the members that it has here."""
        if self.name is None and not self.members:
            return bytes(self.raw)
        members: dict[str, Any] = {**_members.decode(self.raw), **self.members}
        if self.name is not None:
            members["name"] = self.name
        return encode({name: one for name, one in members.items() if one is not None})


def raw_item_steps(
    pages: Iterable[Raw], result: type[t.ProtocolType]
) -> Generator[None, None, dict[str, Raw]]:
    """The items in the pages of a list, as they were written, by their names on the server, with a
    pause after each. Of a name that occurs twice there is none: which of them was decoded is not
    known here."""
    _, member, key = LIST_MEMBERS[result]
    found: dict[str, Raw | None] = {}
    for page in pages:
        listed = _members.decode(page).get(member)
        for raw in _items.decode(listed) if listed is not None else ():
            name: object = msgspec.json.decode(_members.decode(raw).get(key, b"null"))
            if isinstance(name, str):
                found[name] = None if name in found else Raw(bytes(raw))
            yield
    return {name: raw for name, raw in found.items() if raw is not None}


def encode_list(
    encoder: Encoder,
    raw_id: bytes,
    result: t.ProtocolType,
    items: "Mapping[int, RawItem]",
    *,
    is_inspected: bool,
) -> bytes:
    """The response with a list, in which unchanged items of servers of the same revision are as
    they were written."""
    field, member, _ = LIST_MEMBERS[type(result)]
    listed: list[t.ProtocolType] = getattr(result, field)
    found = [items.get(id(one)) for one in listed]
    passed = [
        one.encoded()
        if one is not None
        and one.revision is encoder.revision
        and not (is_inspected and has_duplicate_members(one.raw))
        else None
        for one in found
    ]
    if not any(passed):
        return encoder.response(raw_id, result)
    written = [
        encode_finite(encoder.downgrade(one)) if raw is None else raw
        for one, raw in zip(listed, passed, strict=True)
    ]
    members: dict[str, Any] = dict(_members.decode(encoder.result(replace(result, **{field: []}))))
    members[member] = Raw(b"[%b]" % b",".join(written))
    return encode_members(raw_id, members)


# ---------------------------------------------------------------- errors

# Of several kinds with one code in a revision, the one that the code stands for.
_KINDS = (
    FaultKind.PARSE,
    FaultKind.INVALID_REQUEST,
    FaultKind.METHOD_NOT_FOUND,
    FaultKind.INVALID_PARAMS,
    FaultKind.INTERNAL,
    FaultKind.CAPABILITY_MISSING,
    FaultKind.HEADER_MISMATCH,
    FaultKind.VERSION_UNSUPPORTED,
    FaultKind.URL_ELICITATION_REQUIRED,
    FaultKind.USER_REJECTED,
)
_READ = "resources/read"


def kind_of(code: int, data: object, method: str, origin: Revision) -> FaultKind | None:
    """The kind of an error of a server of this revision, for a method; None for codes of its own.

    `-32002` means a missing resource only where one was read: servers use it for other things. A
    revision where that is `-32602` names the resource in the data (R0748).
    """
    if method == _READ:
        missing = origin.codes[FaultKind.RESOURCE_MISSING]
        is_named = isinstance(data, dict) and "uri" in cast("dict[str, Any]", data)
        if code == missing and (is_named or missing != origin.codes[FaultKind.INVALID_PARAMS]):
            return FaultKind.RESOURCE_MISSING
    return next((kind for kind in _KINDS if origin.codes[kind] == code), None)


def code_for(kind: FaultKind | None, code: int, revision: Revision) -> int:
    """The code of an error of this kind for a client of this revision; that of the server if the
    protocol does not define it."""
    return code if kind is None else revision.codes[kind]
