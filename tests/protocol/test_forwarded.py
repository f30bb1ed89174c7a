"""Results and errors of one server, for the client of another connection."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from colonnade.errors import FaultKind, RemoteProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.forwarded import (
    MAX_HOP_BYTES,
    RawItem,
    RelayedToolResult,
    ResultOrigin,
    code_for,
    forwardable_meta,
    kind_of,
    raw_item_steps,
    unread_tool_result,
    unreserved_meta,
)
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision

INFO = t.Implementation(name="gateway", version="1")


def forwarded(
    raw: bytes,
    kind: type[t.ProtocolType],
    origin: Revision = JULY_2026,
    target: Revision = JULY_2026,
    info: t.Implementation | None = INFO,
    **more: Any,
) -> dict[str, Any]:
    result = msgspec.json.decode(raw, type=kind)
    found = ResultOrigin("s", **more)
    found.received(origin, Raw(raw), result)
    found.settle(result, result)
    data = found.encode(Encoder(target, info), b"1", result, is_inspected=True)
    return msgspec.json.decode(data)["result"]


def test_the_meta_of_a_hop_is_made_anew_and_other_keys_are_kept() -> None:
    raw = b'{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"},"a/b":1.0}}'
    found = forwarded(raw, RelayedToolResult)
    assert found["_meta"] == {t.SERVER_INFO_KEY: {"name": "gateway", "version": "1"}, "a/b": 1.0}
    assert found["resultType"] == "complete"
    plain = forwarded(raw, RelayedToolResult, info=None)
    assert plain["_meta"] == {"a/b": 1.0}
    older = forwarded(raw, RelayedToolResult, NOVEMBER_2025, NOVEMBER_2025)
    assert older == {"content": [], "_meta": {"a/b": 1.0}}


def test_a_number_that_python_cannot_hold_is_an_error_of_the_server() -> None:
    result = RelayedToolResult(content=[], structured_content=Raw(b"1" * 5000))
    with pytest.raises(RemoteProtocolError, match="the structured content of a tool result cannot"):
        _ = result.structured_content


def test_a_result_without_a_meta_has_none_in_an_older_revision() -> None:
    raw = b'{"content":[],"x":1}'
    assert forwarded(raw, RelayedToolResult, NOVEMBER_2025, NOVEMBER_2025) == {
        "content": [],
        "x": 1,
    }


def test_a_result_whose_meta_is_null_is_encoded() -> None:
    raw = b'{"content":[],"_meta":null,"x":1}'
    found = forwarded(raw, RelayedToolResult)
    assert "x" not in found
    assert found["_meta"][t.SERVER_INFO_KEY]["name"] == "gateway"


def test_a_large_meta_is_read_as_a_small_one_is() -> None:
    version = "x" * MAX_HOP_BYTES
    info = b'"io.modelcontextprotocol/serverInfo":{"name":"s","version":"%b"}' % version.encode()
    large = b'{"content":[],"x":1,"_meta":{%b%b}}'
    found = forwarded(large % (info, b""), RelayedToolResult)
    assert (found["x"], found["_meta"]) == (1, {t.SERVER_INFO_KEY: msgspec.to_builtins(INFO)})
    found = forwarded(large % (info, b',"a/b":1'), RelayedToolResult)
    assert found["_meta"] == {t.SERVER_INFO_KEY: msgspec.to_builtins(INFO), "a/b": 1}


def test_content_that_is_missing_is_empty() -> None:
    raw = b'{"structuredContent":{"a":1}}'
    result = RelayedToolResult(content=[], structured_content=Raw(b'{"a":1}'))
    origin = ResultOrigin("s")
    origin.received(JULY_2026, Raw(raw), result)
    origin.settle(result, result)
    data = origin.encode(Encoder(JULY_2026, INFO), b"1", result, is_inspected=False)
    assert msgspec.json.decode(data)["result"]["content"] == []


# ---------------------------------------------------------------- results that nothing reads


def split(raw: bytes) -> dict[str, Raw]:
    return msgspec.json.decode(raw, type=dict[str, Raw])


def test_a_result_that_nothing_reads_is_passed_on_by_its_members() -> None:
    raw = Raw(b'{"x":1e2,"content":[{"type":"text"}],"_meta":{"a/b":1.0,"dev.colonnade/c":2}}')
    members = split(bytes(raw))
    result = unread_tool_result(members, JULY_2026)
    assert result is not None
    assert (result.is_error, result.result_type) == (None, None)
    assert result.meta == {"a/b": 1.0, "dev.colonnade/c": 2}
    assert result.structured_content is msgspec.UNSET
    origin = ResultOrigin("s", reader=JULY_2026)
    origin.found_members(raw, members)
    assert origin.members_of(raw) is members
    assert origin.members_of(Raw(bytes(raw))) is None  # another response
    origin.received(JULY_2026, raw, result)
    origin.settle(result, result)
    for _ in range(2):
        encoder = Encoder(JULY_2026, INFO)
        data = origin.encode(encoder, b"1", result, is_inspected=False)
        head = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"a/b":1.0,'
        assert data.startswith(head)
        assert data.endswith(b'},"x":1e2,"content":[{"type":"text"}]}}')


def test_the_blocks_of_a_result_that_nothing_has_read_are_decoded_on_use() -> None:
    raw = b'{"content":[{"type":"text","text":"a"},{"type":"hologram"}],"isError":true}'
    result = unread_tool_result(split(raw), NOVEMBER_2025)
    assert result is not None
    assert result.is_error is True
    assert [block.type for block in result.content] == ["text", "hologram"]
    assert [block.type for block in result.plain.content] == ["text", "hologram"]
    invalid = unread_tool_result(split(b'{"content":[{"type":"text"}]}'), NOVEMBER_2025)
    assert invalid is not None
    with pytest.raises(RemoteProtocolError, match="text"):
        _ = invalid.content


@pytest.mark.parametrize(
    ("raw", "is_unread"),
    [
        (b'{"content":[],"resultType":"complete"}', True),
        (b'{"content":[],"isError":false}', True),
        (b'{"content":[],"isError":null}', True),
        (b'{"content":[],"structuredContent":null}', True),
        (b'{"structuredContent":{}}', False),
        (b'{"content":{}}', False),
        (b'{"content":[],"isError":"true"}', False),
        (b'{"content":[],"resultType":"input_required"}', False),
        (b'{"content":[],"resultType":"c\\u006fmplete"}', False),
        (b'{"content":[],"_meta":null}', False),
        (b'{"content":[],"_meta":[]}', False),
    ],
)
def test_a_result_that_is_not_complete_or_not_valid_is_decoded(raw: bytes, is_unread: bool) -> None:
    assert (unread_tool_result(split(raw), JULY_2026) is not None) == is_unread


def test_a_result_type_of_an_older_revision_is_decoded() -> None:
    raw = b'{"content":[],"resultType":"complete"}'
    assert unread_tool_result(split(raw), NOVEMBER_2025) is None


@pytest.mark.parametrize("target", [JULY_2026, NOVEMBER_2025])
def test_a_result_for_one_caller_is_private(target: Revision) -> None:
    raw = b'{"contents":[],"ttlMs":-5,"cacheScope":"public"}'
    kind = t.ReadResourceResult
    public = forwarded(raw, kind, target=target)
    private = forwarded(raw, kind, target=target, is_private=True)
    if target is JULY_2026:
        assert (public["ttlMs"], public["cacheScope"]) == (0, "public")
        assert private["cacheScope"] == "private"
    else:
        assert "cacheScope" not in private


def test_a_result_that_was_made_from_several_responses_has_no_bytes() -> None:
    origin = ResultOrigin("s")
    created, result = object(), t.CallToolResult(content=[])
    origin.received(JULY_2026, Raw(b'{"x":1}'), created)
    origin.settle(result, result)
    assert not origin.raw
    data = origin.encode(Encoder(JULY_2026, INFO), b"1", result, is_inspected=False)
    assert "x" not in msgspec.json.decode(data)["result"]


def test_a_value_is_wrapped_only_if_the_tool_that_is_listed_says_so() -> None:
    raw = b'{"content":[],"structuredContent":{"a":1}}'
    array = t.Tool(name="x", input_schema={}, output_schema={"type": "array"})
    kind = RelayedToolResult
    for find, wrapped in ((lambda: array, True), (lambda: None, False), (None, False)):
        found = forwarded(raw, kind, target=NOVEMBER_2025, find_tool=find)
        assert ("result" in found["structuredContent"]) == wrapped


@pytest.mark.parametrize(
    ("code", "data", "method", "origin", "kind"),
    [
        (-32002, None, "resources/read", NOVEMBER_2025, FaultKind.RESOURCE_MISSING),
        (-32002, None, "tools/call", NOVEMBER_2025, None),
        (-32602, {"uri": "a"}, "resources/read", JULY_2026, FaultKind.RESOURCE_MISSING),
        (-32602, {"uri": "a"}, "tools/call", JULY_2026, FaultKind.INVALID_PARAMS),
        (-32602, None, "resources/read", JULY_2026, FaultKind.INVALID_PARAMS),
        (-32602, "uri", "resources/read", JULY_2026, FaultKind.INVALID_PARAMS),
        (-32021, None, "tools/call", JULY_2026, FaultKind.CAPABILITY_MISSING),
        (-32042, None, "tools/call", NOVEMBER_2025, FaultKind.URL_ELICITATION_REQUIRED),
        (-1234, None, "tools/call", JULY_2026, None),
    ],
)
def test_a_code_means_what_its_revision_says(
    code: int, data: object, method: str, origin: Revision, kind: FaultKind | None
) -> None:
    assert kind_of(code, data, method, origin) is kind
    if kind is None:
        assert code_for(kind, code, JULY_2026) == code


def test_only_trace_context_and_unreserved_keys_are_forwarded() -> None:
    meta = {"traceparent": 1, "progressToken": 2, "a/b": 3, "io.modelcontextprotocol/x": 4, "k": 5}
    assert forwardable_meta(meta) == {"traceparent": 1, "a/b": 3, "k": 5}


def test_trace_context_is_passed_on_and_is_no_part_of_what_a_person_approves() -> None:
    meta = {t.TRACEPARENT_KEY: "00-1", "example.com/force": True, t.PROGRESS_TOKEN_KEY: 1}
    assert forwardable_meta(meta).keys() == {t.TRACEPARENT_KEY, "example.com/force"}
    assert unreserved_meta(meta) == {"example.com/force": True}


def test_a_meta_of_one_hop_has_nothing_to_pass_on() -> None:
    assert forwardable_meta({t.PROTOCOL_VERSION_KEY: "2026-07-28", t.CLIENT_INFO_KEY: {}}) == {}


def test_keys_of_this_package_are_those_of_one_hop() -> None:
    meta = {"dev.colonnade/server": "a", "dev.colonnade.other/key": 1, "example.com/kept": 2}
    assert forwardable_meta(meta).keys() == {"dev.colonnade.other/key", "example.com/kept"}


# ---------------------------------------------------------------- items of lists


def steps(pages: list[bytes], result: type[t.ProtocolType]) -> dict[str, Raw]:
    made = raw_item_steps([Raw(page) for page in pages], result)
    while True:
        try:
            next(made)
        except StopIteration as end:
            return end.value


def test_the_items_of_all_pages_are_found_by_name() -> None:
    pages = [b'{"tools":[{"name":"a"},{"name": 1},{}]}', b"{}", b'{"tools":[{"x":1,"name":"b"}]}']
    assert {name: bytes(raw) for name, raw in steps(pages, t.ListToolsResult).items()} == {
        "a": b'{"name":"a"}',
        "b": b'{"x":1,"name":"b"}',
    }


def test_of_a_name_that_occurs_twice_there_is_none() -> None:
    pages = [b'{"resources":[{"uri":"a:b","x":1}]}', b'{"resources":[{"uri":"a:b","x":2}]}']
    assert steps(pages, t.ListResourcesResult) == {}


def listed(
    encoder: Encoder, *written: tuple[t.Tool, RawItem | None], is_inspected: bool = False
) -> Any:
    tools = t.ListToolsResult(tools=[tool for tool, _ in written])
    items = {id(tool): raw for tool, raw in written if raw is not None}
    origin = ResultOrigin("", items=items)
    frame = origin.encode(encoder, b"1", tools, is_inspected=is_inspected)
    return msgspec.json.decode(frame)["result"]["tools"]


def test_unchanged_items_of_the_same_revision_are_passed_on_with_their_names() -> None:
    revision, other = JULY_2026, NOVEMBER_2025
    first, second = (t.Tool(name=f"s__{name}", input_schema={}) for name in "ab")
    raw = Raw(b'{"v":1,"name":"a","execution":{},"inputSchema":{}}')
    item = RawItem(first, raw, revision, "s__a")
    encoder = Encoder(revision)
    plain = {"name": "s__b", "inputSchema": {}}
    found = listed(encoder, (first, item), (second, None))
    assert found == [{"v": 1, "name": "s__a", "execution": {}, "inputSchema": {}}, plain]
    (found,) = listed(encoder, (first, item.replaced(first, "execution", None)))
    assert found == {"v": 1, "name": "s__a", "inputSchema": {}}
    (found,) = listed(encoder, (first, item._replace(name=None)))
    assert found["name"] == "a"
    (found,) = listed(encoder, (first, item._replace(name=None).replaced(first, "execution", None)))
    assert found == {"v": 1, "name": "a", "inputSchema": {}}
    (found,) = listed(encoder, (first, item._replace(revision=other)))
    assert found == {"name": "s__a", "inputSchema": {}}
    double = item._replace(raw=Raw(b'{"name":"a","v":1,"v":2}'))
    (found,) = listed(encoder, (first, double), is_inspected=True)
    assert "v" not in found
    assert listed(encoder) == []
