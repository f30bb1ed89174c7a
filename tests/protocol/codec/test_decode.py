"""Bytes to protocol types and back: what is mended, what is refused, and in which words."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, inspect, structs

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import (
    MAX_EXACT,
    convert_to,
    decode_as,
    decode_unchecked,
    encode_any,
    readable_items,
    to_builtins,
)
from colonnade.protocol.revision import Revision, error_code

TYPES = sorted(
    {
        struct
        for struct in (getattr(t, name) for name in t.__all__)
        if isinstance(struct, type) and issubclass(struct, t.ProtocolType)
    },
    key=lambda struct: struct.__name__,
)

SECRET = "hunter2"


def refused(kind: type, raw: bytes) -> str:
    """The words with which these bytes are refused."""
    with pytest.raises(Fault) as caught:
        decode_as(kind, raw)
    assert caught.value.kind is FaultKind.INVALID_PARAMS
    assert SECRET not in caught.value.message
    return caught.value.message


def sample(shape: inspect.Type, full: bool) -> Any:
    """A plain value of this shape: with all optional members, or without any."""
    match shape:
        case inspect.Metadata():
            return sample(shape.type, full)
        case inspect.UnionType():
            return sample(shape.types[0], full)
        case inspect.StructType():
            tag = {shape.tag_field: shape.tag} if shape.tag_field else {}
            wanted = {
                field.encode_name: sample(field.type, full)
                for field in shape.fields
                if full or field.required
            }
            return with_its_promise(shape.cls, tag | wanted)
        case inspect.ListType():
            return [sample(shape.item_type, full)]
        case inspect.DictType():
            return {"key": sample(shape.value_type, full)}
        case inspect.LiteralType():
            return shape.values[0]
        case inspect.StrType():
            return "word"
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return 1
        case _:  # anything, or raw
            return {"any": ["thing", 1, None]}


def with_its_promise(struct: type, members: dict[str, Any]) -> dict[str, Any]:
    """The members, and what the protocol type insists on beyond its required ones."""
    if struct is t.ResourceContents:
        return {**members, "text": "word"} if "blob" not in members else drop(members, "blob")
    if struct is t.ElicitRequestParams:
        return {"requestedSchema": {"type": "object", "properties": {}}, **members}
    if struct is t.InputRequiredResult:
        return {"requestState": "word", **members}
    for field in structs.fields(struct):
        if field.default_factory is not msgspec.NODEFAULT:  # always sent (D70)
            members = {field.encode_name: None, **members}
    if members.get("status") == "cancelled" and issubclass(struct, t.ExtTask | t.ExtGetTaskResult):
        return {**members, "status": "working"}
    return members


def drop(members: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in members.items() if key != name}


# --- what is read ---


@pytest.mark.parametrize("full", [True, False], ids=["full", "bare"])
@pytest.mark.parametrize("struct", [struct for struct in TYPES if struct is not t.UnknownContent])
def test_what_a_type_was_read_from_it_is_written_as(
    struct: type[t.ProtocolType], full: bool
) -> None:
    members = sample(inspect.type_info(struct), full)
    read_once = decode_as(struct, msgspec.json.encode(members))
    assert to_builtins(read_once) == members
    assert msgspec.json.decode(encode_any(read_once)) == members
    assert to_builtins(decode_as(struct, encode_any(read_once))) == members


def test_absent_params_are_read_as_an_empty_object() -> None:
    assert decode_as(t.PaginatedRequestParams, b"") == t.PaginatedRequestParams()
    assert decode_as(t.PaginatedRequestParams, Raw(b"")) == t.PaginatedRequestParams()
    assert "missing required field `name`" in refused(t.CallToolRequestParams, b"")


def test_members_that_no_revision_knows_are_passed_over() -> None:
    assert decode_as(t.Root, b'{"uri":"file:///a","colour":"red"}') == t.Root(uri="file:///a")


def test_arguments_and_answers_stay_as_they_came() -> None:
    params = decode_as(
        t.CallToolRequestParams,
        b'{"name":"a","arguments":{ "x" : 1.0 },"inputResponses":{"q":{ "action" : "accept"}}}',
    )
    assert bytes(params.arguments) == b'{ "x" : 1.0 }'
    assert params.input_responses is not None
    assert bytes(params.input_responses["q"]) == b'{ "action" : "accept"}'
    assert not decode_as(t.CallToolRequestParams, b'{"name":"a"}').arguments


def test_any_result_type_is_read_and_left_to_its_reader() -> None:
    assert decode_as(t.EmptyResult, b'{"resultType":"hologram"}').result_type == "hologram"


def test_a_negative_time_to_live_is_readable() -> None:
    assert decode_as(t.ListToolsResult, b'{"tools":[],"ttlMs":-1}').ttl_ms == -1


def test_structured_content_may_be_any_json_and_null_is_not_absence() -> None:
    for value in (b"null", b"[]", b"1", b'"a"', b"{}"):
        result = decode_as(t.CallToolResult, b'{"content":[],"structuredContent":' + value + b"}")
        assert encode_any(result) == b'{"content":[],"structuredContent":' + value + b"}"
    assert decode_as(t.CallToolResult, b'{"content":[]}').structured_content is msgspec.UNSET


def test_a_number_leaves_as_it_came() -> None:
    for raw in (b'{"progressToken":1,"progress":5}', b'{"progressToken":1,"progress":0.5}'):
        assert encode_any(decode_as(t.ProgressNotificationParams, raw)) == raw


def test_a_decoded_value_can_be_read_as_a_type() -> None:
    meta = {t.SERVER_INFO_KEY: {"name": "a", "version": "1"}, "com.example/x": 1}
    server = decode_as(t.EmptyResult, encode_any({"_meta": meta})).meta
    assert convert_to(t.ResultMeta, server).server_info == t.Implementation(name="a", version="1")


@pytest.mark.spec("R0075")
@pytest.mark.parametrize("token", [b'"a"', b"7", b"0"])
def test_a_progress_token_is_text_or_an_integer(token: bytes) -> None:
    raw = b'{"progressToken":' + token + b',"progress":1}'
    assert encode_any(decode_as(t.ProgressNotificationParams, raw)) == raw


@pytest.mark.spec("R0075")
@pytest.mark.parametrize("token", [b"1.5", b"true", b"null", b"{}", b"[]"])
def test_anything_else_is_no_progress_token(token: bytes) -> None:
    raw = b'{"progressToken":' + token + b',"progress":1}'
    assert "`progressToken`: expected `int | str`" in refused(t.ProgressNotificationParams, raw)
    if token != b"null":
        assert "`progressToken`" in refused(t.RequestMeta, raw)


# --- unknown content ---


def test_an_unknown_block_is_kept_whole_among_known_ones() -> None:
    raw = (
        b'{"content":[{"type":"text","text":"a"},{"type":"hologram","x":[1.0,{"y":null}]}],'
        b'"isError":false}'
    )
    result = decode_as(t.CallToolResult, raw)
    assert result.content == [
        t.TextContent(text="a"),
        t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "x": [1.0, {"y": None}]})),
    ]
    assert encode_any(result) == raw
    assert to_builtins(result) == msgspec.json.decode(raw)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (t.PromptMessage, b'{"role":"user","content":{"type":"hologram"}}'),
        (t.SamplingMessage, b'{"role":"user","content":{"type":"hologram"}}'),
        (t.SamplingMessage, b'{"role":"user","content":[{"type":"hologram"}]}'),
        (t.CreateMessageResult, b'{"role":"user","content":{"type":"hologram"},"model":"m"}'),
        (t.GetPromptResult, b'{"messages":[{"role":"user","content":{"type":"hologram"}}]}'),
        (
            t.SamplingMessage,
            (
                b'{"role":"user","content":{"type":"tool_result","toolUseId":"a",'
                b'"content":[{"type":"hologram"}]}}'
            ),
        ),
        (
            t.InputRequiredResult,
            (
                b'{"inputRequests":{"q":{"method":"sampling/createMessage","params":{"messages":'
                b'[{"role":"user","content":{"type":"hologram"}}],"maxTokens":9}}}}'
            ),
        ),
    ],
)
def test_an_unknown_block_is_kept_wherever_blocks_may_stand(
    kind: type[t.ProtocolType], raw: bytes
) -> None:
    struct = decode_as(kind, raw)
    assert "UnknownContent" in repr(struct)
    assert to_builtins(struct) == msgspec.json.decode(raw)
    assert msgspec.json.decode(encode_any(struct)) == msgspec.json.decode(raw)


def test_a_block_that_may_not_stand_here_is_as_unknown_as_a_new_one() -> None:
    raw = b'{"content":[{"type":"tool_use","id":"a","name":"n","input":{}}]}'
    (block,) = decode_as(t.CallToolResult, raw).content
    assert isinstance(block, t.UnknownContent)
    assert block.type == "tool_use"


def test_what_is_no_block_is_not_taken_for_one() -> None:
    raw = (
        b'{"content":[{"type":"hologram"}],"structuredContent":{"type":"hologram"},'
        b'"_meta":{"a":{"type":"hologram"}}}'
    )
    result = decode_as(t.CallToolResult, raw)
    assert result.structured_content == {"type": "hologram"}
    assert result.meta == {"a": {"type": "hologram"}}


def test_no_block_can_pose_as_an_unknown_one_that_holds_another() -> None:
    posing = {"type": "*", "whole": {"type": "text", "text": "a"}}
    result = decode_as(t.CallToolResult, msgspec.json.encode({"content": [posing]}))
    assert result.content == [t.UnknownContent(whole=t.UnknownMembers(posing))]
    assert to_builtins(result) == {"content": [posing]}


def test_a_known_block_that_is_wrong_is_refused_and_not_kept() -> None:
    raw = b'{"content":[{"type":"hologram"},{"type":"text","text":5}]}'
    assert refused(t.CallToolResult, raw) == (
        "CallToolResult, at `content[1].text`: expected `str`, got `int`; send what is expected"
    )


@pytest.mark.parametrize("block", [b'{"type":5}', b'{"text":"a"}', b"7", b"null", b"[]"])
def test_what_has_no_type_is_no_block(block: bytes) -> None:
    assert "`content[0]" in refused(t.CallToolResult, b'{"content":[' + block + b"]}")


@pytest.mark.spec("R0789")
def test_a_question_of_an_unknown_kind_is_refused() -> None:
    raw = b'{"inputRequests":{"hunter2":{"method":"hunter2","params":{}}}}'
    assert refused(t.InputRequiredResult, raw) == (
        "InputRequiredResult, at `inputRequests[...].method`: not an allowed value; "
        "send one of elicitation/create, roots/list, sampling/createMessage"
    )


# --- integers ---


@pytest.mark.parametrize(
    ("kind", "raw", "integer"),
    [
        (t.CacheableResult, b'{"ttlMs":%s}', "ttl_ms"),
        (t.ProgressNotificationParams, b'{"progressToken":%s,"progress":1.5}', "progress_token"),
        (t.CancelledNotificationParams, b'{"requestId":%s}', "request_id"),
        (t.Resource, b'{"uri":"a:b","name":"a","size":%s}', "size"),
    ],
)
def test_an_integral_float_is_an_integer(
    kind: type[t.ProtocolType], raw: bytes, integer: str
) -> None:
    for text, value in ((b"1.0", 1), (b"-0.0", 0), (b"1e3", 1000), (b"9007199254740992.0", 2**53)):
        found = getattr(decode_as(kind, raw % text), integer)
        assert (found, type(found)) == (value, int)


@pytest.mark.parametrize("text", [b"1.5", b"true", b'"1"', b"9007199254740994.0", b"1e300"])
def test_what_is_not_surely_an_integer_is_refused(text: bytes) -> None:
    assert MAX_EXACT == 2**53
    message = refused(t.CacheableResult, b'{"ttlMs":' + text + b"}")
    assert "at `ttlMs`: expected `int | null`" in message


def test_an_integral_float_deep_inside_is_corrected_and_raw_members_are_not_touched() -> None:
    task = decode_as(
        t.ExtGetTaskResult,
        b'{"taskId":"a","status":"completed","createdAt":"","lastUpdatedAt":"","ttlMs":5.0,'
        b'"result":{ "n" : 1.0 }}',
    )
    assert task.ttl_ms == 5
    assert bytes(task.result) == b'{ "n" : 1.0 }'
    call = decode_as(
        t.CallToolRequestParams, b'{"name":"a","arguments":{"n":1.0},"task":{"ttl":2.0}}'
    )
    assert (bytes(call.arguments), call.task) == (b'{"n":1.0}', t.TaskMetadata(ttl=2))


def test_a_float_stays_one_where_a_float_may_stand() -> None:
    params = decode_as(
        t.CreateMessageRequestParams, b'{"messages":[],"maxTokens":5.0,"temperature":1.0}'
    )
    assert (params.max_tokens, params.temperature) == (5, 1.0)
    assert isinstance(params.temperature, float)


def test_a_form_is_corrected_in_each_of_its_fields() -> None:
    form = b'{"type":"object","properties":{"a":{"type":"string","maxLength":3.0}}}'
    assert decode_as(t.ElicitSchema, form).properties["a"].max_length == 3


def test_structured_content_may_come_without_content() -> None:
    result = decode_as(t.CallToolResult, b'{"structuredContent":{"degrees":7},"isError":false}')
    assert (result.content, result.structured_content) == ([], {"degrees": 7})
    assert "missing required field `content`" in refused(t.CallToolResult, b'{"isError":false}')
    assert "content" in refused(t.CallToolResult, b'{"structuredContent":1,"content":null}')


FIELDS_OR_NULL = [
    (b'{"anyOf":[{"type":"string"},{"type":"null"}],"default":null,"title":"Nick"}', "string"),
    (b'{"anyOf":[{"type":"null"},{"maximum":9.0,"type":"integer"}],"default":3}', "integer"),
    (b'{"anyOf":[{"enum":["a","b"],"type":"string"},{"type":"null"}]}', "string"),
    (b'{"type":["number","null"],"minimum":0}', "number"),
    (b'{"type":["null","boolean"]}', "boolean"),
]


@pytest.mark.parametrize(("field", "kind"), FIELDS_OR_NULL)
def test_a_field_of_a_form_that_may_be_null_is_a_field_that_may_be_left_out(
    field: bytes, kind: str
) -> None:
    """As `mcp` up to 1.30 writes `nick: str | None = None`."""
    form = b'{"type":"object","properties":{"a":%s,"b":{"type":"string"}}}' % field
    read_as = decode_as(t.ElicitSchema, form).properties
    assert read_as["a"].type == kind
    assert read_as["b"].type == "string"


def test_what_stands_inside_and_beside_the_alternatives_is_kept() -> None:
    one, two, three = (decode_as(t.PrimitiveSchema, field) for field, _ in FIELDS_OR_NULL[:3])
    assert (one.title, one.default) == ("Nick", None)
    assert (two.maximum, two.default) == (9, 3)
    assert three.enum == ["a", "b"]


@pytest.mark.parametrize(
    "field",
    [
        b'{"anyOf":[{"type":"string"},{"type":"integer"},{"type":"null"}]}',
        b'{"anyOf":[{"type":"string"},{"type":"integer"}]}',
        b'{"anyOf":[{"type":"null"}]}',
        b'{"anyOf":[true,{"type":"null"}]}',
        b'{"anyOf":{"type":"string"}}',
        b'{"anyOf":[{"type":"object"},{"type":"null"}]}',
        b'{"type":"string","minLength":"1","anyOf":[{"type":"string"},{"type":"null"}]}',
        b'{"type":["string","integer","null"]}',
        b'{"type":["string"]}',
        b"{}",
    ],
)
def test_alternatives_that_are_more_than_a_type_or_null_are_refused(field: bytes) -> None:
    refused(t.PrimitiveSchema, field)


# --- what is refused, and how ---


@pytest.mark.parametrize(
    "raw",
    [b"{", b"nope", b'{"name":"\xff"}', b"{}{}", b'{"name":"\\ud800"}', b"[" * 200_000, b"\x00"],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    assert refused(t.CallToolRequestParams, raw) == (
        "CallToolRequestParams is not valid JSON; send UTF-8 JSON that is not nested too deeply"
    )


@pytest.mark.parametrize("number", [b"1e400", b"9" * 6000])
def test_a_number_that_nothing_can_hold_is_refused(number: bytes) -> None:
    message = refused(t.CacheableResult, b'{"ttlMs":' + number + b"}")
    assert "out of range; correct it" in message


def test_bytes_that_only_the_second_look_decodes_are_refused_all_the_same() -> None:
    bad = b'{"content":[{"type":"hologram","x":"\xff"}]}'
    assert "not valid JSON" in refused(t.CallToolResult, bad)
    deep = b'{"content":[{"type":"hologram","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}]}"
    assert "not valid JSON" in refused(t.CallToolResult, deep)


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        (t.CallToolRequestParams, b"[]", "at the top: expected `object`, got `array`"),
        (t.CallToolRequestParams, b"null", "at the top: expected `object`, got `null`"),
        (t.CallToolRequestParams, b'{"name":5}', "at `name`: expected `str`, got `int`"),
        (t.CallToolResult, b'{"content":5}', "at `content`: expected `array`, got `int`"),
        (t.CallToolResult, b'{"content":{}}', "at `content`: expected `array`, got `object`"),
        (t.Tool, b'{"name":"a","inputSchema":[]}', "at `inputSchema`: expected `object`"),
        (t.Tool, b'{"name":[1],"inputSchema":{}}', "at `name`: expected `str`, got `array`"),
        (t.Annotations, b'{"priority":2}', "at `priority`: expected `int` <= 1"),
        (t.GetPromptRequestParams, b'{"name":"a","arguments":{"hunter2":1}}', "`arguments[...]`"),
        (
            t.EmbeddedResource,
            b'{"type":"resource","resource":{"uri":"hunter2"}}',
            "at `resource`: resource contents need either `text` or `blob`, and not both; correct",
        ),
    ],
)
def test_a_refusal_names_the_place_and_the_types(kind: type, raw: bytes, words: str) -> None:
    assert words in refused(kind, raw)


@pytest.mark.parametrize(
    ("kind", "raw", "words"),
    [
        (
            t.Annotations,
            b'{"audience":["hunter2"]}',
            "`audience[0]`: not an allowed value; send one of assistant, user",
        ),
        (
            t.CompleteRequestParams,
            b'{"ref":{"type":"hunter2"},"argument":{"name":"a","value":"b"}}',
            "`ref.type`: not an allowed value; send one of ref/prompt, ref/resource",
        ),
        (
            t.ElicitSchema,
            b'{"properties":{"hunter2":{"type":"hunter2"}}}',
            (
                "`properties[...].type`: not an allowed value; "
                "send one of array, boolean, integer, number, string"
            ),
        ),
        (t.ElicitSchema, b'{"type":"hunter2","properties":{}}', "send one of object"),
        (
            t.ElicitRequestParams,
            b'{"message":"a","mode":"hunter2"}',
            "`mode`: not an allowed value; send one of form, url",
        ),
    ],
)
def test_a_refusal_lists_what_is_allowed_and_never_what_was_sent(
    kind: type, raw: bytes, words: str
) -> None:
    assert words in refused(kind, raw)


@pytest.mark.spec("R0155")
def test_an_unknown_level_is_refused_with_the_ones_there_are() -> None:
    assert refused(t.SetLevelRequestParams, b'{"level":"hunter2"}') == (
        "SetLevelRequestParams, at `level`: not an allowed value; "
        "send one of alert, critical, debug, emergency, error, info, notice, warning"
    )


@pytest.mark.spec("R0761")
@pytest.mark.parametrize("missing", [t.PROTOCOL_VERSION_KEY, t.CLIENT_CAPABILITIES_KEY])
def test_an_envelope_without_what_it_must_hold_is_refused(missing: str) -> None:
    whole: dict[str, Any] = {t.PROTOCOL_VERSION_KEY: "2026-07-28", t.CLIENT_CAPABILITIES_KEY: {}}
    assert decode_as(t.EnvelopedParams, encode_any({"_meta": whole})).meta.version == "2026-07-28"
    message = refused(t.EnvelopedParams, encode_any({"_meta": drop(whole, missing)}))
    assert message == (f"EnvelopedParams, at `_meta`: missing required field `{missing}`; add it")


@pytest.mark.spec("R1036")
def test_an_unknown_level_in_an_envelope_is_refused() -> None:
    meta = {
        t.PROTOCOL_VERSION_KEY: "2026-07-28",
        t.CLIENT_CAPABILITIES_KEY: {},
        t.LOG_LEVEL_KEY: SECRET,
    }
    message = refused(t.EnvelopedParams, encode_any({"_meta": meta}))
    assert f"at `_meta.{t.LOG_LEVEL_KEY}`: not an allowed value; send one of alert," in message


@pytest.mark.spec("R0943")
@pytest.mark.parametrize(
    "message", [{"content": []}, {"role": "user"}, {"role": "system", "content": []}]
)
def test_a_sampling_message_has_one_of_two_roles_and_content(message: dict[str, Any]) -> None:
    assert decode_as(t.SamplingMessage, b'{"role":"assistant","content":[]}').content == []
    refused(t.SamplingMessage, encode_any(message))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["text", "tool_result", "hologram", "*", "user", "ref/prompt", "object"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "content", "role", "text", "whole", "ref", "argument", "properties", "a"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def value_or_fault(struct: type[t.ProtocolType], raw: bytes) -> t.ProtocolType | Fault:
    try:
        return decode_as(struct, raw)
    except Fault as fault:
        return fault


@given(value=JSON, struct=st.sampled_from(TYPES))
def test_whatever_comes_is_a_value_or_a_refusal(
    value: object, struct: type[t.ProtocolType]
) -> None:
    found = value_or_fault(struct, msgspec.json.encode(value))
    if isinstance(found, Fault):
        assert found.kind is FaultKind.INVALID_PARAMS
    else:
        assert to_builtins(decode_as(struct, encode_any(found))) == to_builtins(found)


@given(raw=st.binary(max_size=40), struct=st.sampled_from(TYPES))
def test_whatever_bytes_come_nothing_else_is_raised(
    raw: bytes, struct: type[t.ProtocolType]
) -> None:
    assert isinstance(value_or_fault(struct, raw), struct | Fault)


def test_a_refusal_costs_no_more_than_a_few_readings() -> None:
    blocks = b",".join([b'{"type":"hologram","n":1.0}'] * 50_000)
    result = decode_as(t.CallToolResult, b'{"content":[' + blocks + b"]}")
    assert len(result.content) == 50_000


# --- what is written ---


def test_types_are_written_wherever_they_stand_in_a_value() -> None:
    unknown = t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "x": None}))
    value = {
        "a": [t.TextContent(text="a"), unknown],
        "b": (unknown, None, 1),
        "c": t.Task(task_id="1", status="working", created_at="", last_updated_at="", ttl=None),
        "d": Raw(b'{ "r" : 1.0 }'),
    }
    written = to_builtins(value)
    assert written == {
        "a": [{"type": "text", "text": "a"}, {"type": "hologram", "x": None}],
        "b": [{"type": "hologram", "x": None}, None, 1],
        "c": {
            "taskId": "1",
            "status": "working",
            "createdAt": "",
            "lastUpdatedAt": "",
            "ttl": None,
        },
        "d": {"r": 1.0},
    }
    assert msgspec.json.decode(encode_any(value)) == written
    assert b'{ "r" : 1.0 }' in encode_any(value)


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [object(), "\ud800", {(1, 2): 3}, endless()], ids=["object", "text", "key", "endless"]
)
def test_what_json_cannot_hold_is_our_own_mistake(value: object) -> None:
    unknown = t.UnknownContent(whole=t.UnknownMembers({"type": "hologram"}))
    for wrapped in (value, [unknown, value]):
        with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
            encode_any(wrapped)
    if not isinstance(value, str):
        with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
            to_builtins(value)


def test_raw_bytes_that_are_not_json_have_no_plain_form() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
        to_builtins({"a": Raw(b"nope")})


def test_an_integer_of_any_size_leaves_as_it_came() -> None:
    raw = b'{"completion":{"values":[],"total":' + b"9" * 30 + b"}}"
    assert encode_any(decode_as(t.CompleteResult, raw)) == raw


@pytest.mark.spec("R0298")
@pytest.mark.parametrize("missing", ["ref", "argument"])
def test_a_completion_that_lacks_what_it_completes_is_refused_as_invalid_params(
    missing: str, revision: Revision
) -> None:
    whole = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}}
    assert decode_as(t.CompleteRequestParams, msgspec.json.encode(whole)).argument.name == "a"
    del whole[missing]
    with pytest.raises(Fault) as caught:
        decode_as(t.CompleteRequestParams, msgspec.json.encode(whole))
    assert missing in caught.value.message
    assert error_code(caught.value, revision) == -32602


@pytest.mark.spec("R0523")
@pytest.mark.parametrize("id", [7, None, ["a"]])
def test_a_task_is_named_by_a_string_and_nothing_else(id: object, revision: Revision) -> None:
    params = revision.methods["tasks/get"].params
    assert decode_as(params, b'{"taskId":"a"}') == t.GetTaskRequestParams(task_id="a")
    with pytest.raises(Fault):
        decode_as(params, msgspec.json.encode({"taskId": id}))


# ---------------------------------------------------------------- pages with items that are wrong


def test_a_page_is_read_without_the_items_that_cannot_be() -> None:
    good: dict[str, Any] = {"name": "good", "inputSchema": {"type": "object"}, "_x": [1.0]}
    bad = [{"name": SECRET}, 7, {**good, "name": None}]
    page = {"tools": [good, *bad, {**good, "name": "well"}], "nextCursor": "c", "more": {"a": 1}}
    kept, wrong = readable_items(t.ListToolsResult, msgspec.json.encode(page))
    result = decode_unchecked(t.ListToolsResult, kept)
    assert [one.name for one in result.tools] == ["good", "well"]
    assert result.next_cursor == "c"
    assert msgspec.json.decode(kept) == {**page, "tools": [good, {**good, "name": "well"}]}
    assert len(wrong) == 3
    assert wrong[0] == "Tool, at the top: missing required field `inputSchema`; add it"
    assert SECRET not in str(wrong)


@pytest.mark.parametrize(
    "page",
    [
        b"[1]",
        b"no JSON",
        b'{"tools": 7}',
        b'{"tools": [], "nextCursor": 7}',
        b'{"tools": [7]}',
        b"{}",
    ],
)
def test_a_page_that_is_wrong_elsewhere_stays_as_it_is(page: bytes) -> None:
    assert readable_items(t.ListToolsResult, page) == (Raw(page), [])
