"""Values in headers and `x-mcp-header`: encoded, decoded, compared, and refused."""

import base64
import json
import string
import timeit
from enum import StrEnum
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from colonnade.errors import Fault, FaultKind, LocalProtocolError, ProtocolError
from colonnade.protocol.http.param_headers import (
    MAX_NAME_LENGTH,
    MAX_PARAM_HEADERS,
    MAX_SAFE_INTEGER,
    MAX_SCHEMA_NODES,
    MAX_VALUE_BYTES,
    ParamHeader,
    ParamType,
    check_params,
    decode_text,
    encode_param,
    encode_text,
    headers_for_call,
    param_headers,
    read_text,
    unknown_params,
)
from colonnade.protocol.http.rules import status_of
from colonnade.protocol.http.security import Headers, combine_headers, lowercase_headers
from colonnade.protocol.jsonrpc import MAX_DEPTH
from colonnade.protocol.revision import JULY_2026, error_code

Schema = dict[str, Any]


def an_object(**properties: object) -> Schema:
    return {"type": "object", "properties": properties}


def mirrored(name: object = "Region", type_: object = "string", **more: object) -> Schema:
    return {"type": type_, "x-mcp-header": name, **more}


REGION = param_headers(an_object(region=mirrored()))
COUNT = param_headers(an_object(count=mirrored("Count", "integer")))
DRY = param_headers(an_object(dry=mirrored("Dry", "boolean")))


def invalid(schema: object) -> str:
    """The words with which a tool with this input schema is rejected."""
    with pytest.raises(ProtocolError) as caught:
        param_headers(schema)
    assert len(str(caught.value)) < 300
    return str(caught.value)


def agree(params: tuple[ParamHeader, ...], headers: Headers, arguments: object) -> None:
    check_params(params, headers, Raw(json.dumps(arguments).encode()))


def disagree(params: tuple[ParamHeader, ...], headers: Headers, arguments: object) -> str:
    """The words with which the request is refused: HTTP 400 and -32020, in every case."""
    with pytest.raises(Fault) as caught:
        agree(params, headers, arguments)
    fault = caught.value
    assert fault.kind is FaultKind.HEADER_MISMATCH
    assert (status_of(fault, JULY_2026), error_code(fault, JULY_2026)) == (400, -32020)
    return fault.message


# ---------------------------------------------------------------- one value


@pytest.mark.spec("R0887", "R0888", "R0893", "R0897")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("us-west1", "us-west1"),
        ("", ""),
        ("two words", "two words"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("=?base64?open", "=?base64?open"),
        ("=?BASE64?literal?=", "=?BASE64?literal?="),
        ("\ttab", "=?base64?CXRhYg==?="),
        ("in\tside", "=?base64?aW4Jc2lkZQ==?="),
        ("\x7f", "=?base64?fw==?="),
        ("a\r\nHost: evil", "=?base64?YQ0KSG9zdDogZXZpbA==?="),
        (42, "42"),
        (-7, "-7"),
        (0, "0"),
        (42.0, "42"),
        (True, "true"),
        (False, "false"),
        (MAX_SAFE_INTEGER, "9007199254740991"),
        (-MAX_SAFE_INTEGER, "-9007199254740991"),
    ],
)
def test_a_value_is_written_so_that_a_header_can_carry_it(value: object, header: str) -> None:
    assert encode_param(value) == header


class Colour(StrEnum):
    RED = "red"


@pytest.mark.spec("R0880", "R0989")
@pytest.mark.parametrize("value", [MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1, 2.0**53, 10**400])
def test_an_integer_that_javascript_would_change_is_not_mirrored(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="9007199254740991"):
        encode_param(value)


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), None, [], {}, b"x", Colour.RED])
def test_what_is_no_plain_value_is_not_mirrored(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="not a string, a boolean or an integer"):
        encode_param(value)


def test_a_text_without_utf_8_or_without_end_is_not_mirrored() -> None:
    with pytest.raises(LocalProtocolError, match="surrogate"):
        encode_text("\ud800")
    assert encode_text("x" * MAX_VALUE_BYTES) == "x" * MAX_VALUE_BYTES
    for long in ("x" * (MAX_VALUE_BYTES + 1), "ü" * (MAX_VALUE_BYTES // 2)):
        with pytest.raises(LocalProtocolError, match="longer than a header value may be"):
            encode_text(long)


@pytest.mark.spec("R0887", "R0888", "R0893")
@given(st.text() | st.text(string.printable) | st.from_regex(r"=\?base64\?.*\?=", fullmatch=True))
def test_every_text_comes_back_and_none_can_leave_its_header(text: str) -> None:
    header = encode_text(text)
    assert header.isascii()
    assert header.isprintable()
    assert header.strip() == header
    assert decode_text("Mcp-Name", header.encode()) == text
    assert decode_text("Mcp-Name", b" \t" + header.encode() + b"\t ") == text


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda raw: b"=?base64?" + raw + b"?="))
def test_a_header_value_is_one_text_or_refused_and_never_two_texts(value: bytes) -> None:
    try:
        text = decode_text("Mcp-Name", value)
    except Fault as fault:
        assert fault.kind is FaultKind.HEADER_MISMATCH  # noqa: PT017
        return
    # What is plain stands for itself; what is marked has exactly one spelling.
    assert text == value.strip(b" \t").decode() or base64.b64encode(text.encode()) in value


@pytest.mark.spec("R0890")
@pytest.mark.parametrize(
    "value",
    ["=?Base64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?=", "=?base64?SGVsbG8=", "SGVsbG8=", "SGVsbG8=?="],
)
def test_only_the_exact_markers_mark_base64(value: str) -> None:
    assert decode_text("Mcp-Name", value.encode()) == value
    assert decode_text("Mcp-Name", b"=?base64?SGVsbG8=?=") == "Hello"
    assert encode_text("Grüße") == "=?base64?R3LDvMOfZQ==?="


@pytest.mark.parametrize(
    "payload",
    [
        b"SGVsbG8",  # no padding
        b"SGVs!!!bG8=",
        b"SGVsbG8==",
        b"SGVs bG8=",
        b"SGVsbG9=",  # spare bits
        b"SGVsbG8=SGVsbG8=",
        b"=",
        b"_-8=",  # the other alphabet
        b"/w==",  # 0xff, no UTF-8
        b"7aCA",  # a surrogate
    ],
)
def test_bad_base64_is_refused(payload: bytes) -> None:
    with pytest.raises(Fault, match="is not base64 of UTF-8"):
        decode_text("Mcp-Name", b"=?base64?" + payload + b"?=")


def test_markers_that_overlap_are_refused() -> None:
    with pytest.raises(Fault, match="is not base64"):
        decode_text("Mcp-Name", b"=?base64?=")
    assert decode_text("Mcp-Name", b"=?base64??=") == ""


@pytest.mark.parametrize(
    "bad", [b"\x00", b"a\nb", b"a\rb", b"\x7f", b"\x80", "ü".encode(), b"\x1b"]
)
def test_characters_that_no_header_may_have_are_refused(bad: bytes) -> None:
    for read in (read_text, decode_text):
        with pytest.raises(Fault, match="invalid characters"):
            read("Mcp-Name", bad)
    assert read_text("Mcp-Name", b" a\tb ") == "a\tb"


def test_a_value_without_end_is_refused() -> None:
    assert len(decode_text("Mcp-Name", b"x" * MAX_VALUE_BYTES)) == MAX_VALUE_BYTES
    with pytest.raises(Fault, match="longer than"):
        decode_text("Mcp-Name", b"x" * (MAX_VALUE_BYTES + 1))


# ---------------------------------------------------------------- x-mcp-header


@pytest.mark.spec("R0873", "R0874", "R0879", "R0881", "R0988", "R0990")
def test_annotated_parameters_are_found_at_any_depth_of_properties() -> None:
    schema = an_object(
        region=mirrored(),
        query={"type": "string"},
        nested=an_object(deep=an_object(count=mirrored("Count", "integer"))),
        dry=mirrored("X-Dry!#$%&'*+.^_`|~9", "boolean"),
    )
    assert param_headers(schema) == (
        ParamHeader("Region", ("region",), ParamType.STRING, b"mcp-param-region"),
        ParamHeader(
            "X-Dry!#$%&'*+.^_`|~9", ("dry",), ParamType.BOOLEAN, b"mcp-param-x-dry!#$%&'*+.^_`|~9"
        ),
        ParamHeader("Count", ("nested", "deep", "count"), ParamType.INTEGER, b"mcp-param-count"),
    )
    assert param_headers(schema)[0].header == "Mcp-Param-Region"


@pytest.mark.parametrize(
    "schema", [{}, an_object(), True, None, [], "x", {"properties": []}, {"properties": 1}]
)
def test_a_schema_without_annotations_mirrors_nothing(schema: object) -> None:
    assert param_headers(schema) == ()


@pytest.mark.parametrize(
    "declared", [["integer", "null"], ["null", "integer"], ["integer"], "integer"]
)
def test_a_parameter_that_may_be_null_counts_as_what_it_is_otherwise(declared: object) -> None:
    (param,) = param_headers(an_object(count=mirrored("Count", declared)))
    assert param.type is ParamType.INTEGER


@pytest.mark.spec("R0875", "R0984", "R0883", "R0991")
@pytest.mark.parametrize("name", ["", None, 1, True, [], {}, ["Region"]])
def test_a_name_that_is_empty_or_no_text_makes_the_tool_invalid(name: object) -> None:
    assert "at 'region' must be a non-empty string" in invalid(an_object(region=mirrored(name)))


@pytest.mark.spec("R0876", "R0985", "R0883", "R0991")
@pytest.mark.parametrize(
    "name",
    [
        "My Region",
        "Region:",
        "a/b",
        "a(b)",
        "Région",
        "a,b",
        'a"b',
        "{a}",
        "a=b",
        " a",
        "a ",
        "x" * 129,
    ],
)
def test_a_name_that_is_no_token_makes_the_tool_invalid(name: str) -> None:
    assert "is not a header name" in invalid(an_object(region=mirrored(name)))


@pytest.mark.spec("R0877", "R0986", "R0883", "R0991")
@pytest.mark.parametrize("name", ["a\r", "a\n", "a\r\nHost: evil", "\x00", "\x7f", "a\tb", "\n"])
def test_a_name_with_control_characters_makes_the_tool_invalid(name: str) -> None:
    words = invalid(an_object(region=mirrored(name)))
    assert "is not a header name" in words
    assert words.isprintable()


def test_the_longest_name_is_still_a_name() -> None:
    assert len(param_headers(an_object(a=mirrored("x" * MAX_NAME_LENGTH)))) == 1


@pytest.mark.spec("R0878", "R0987", "R0883", "R0991")
@pytest.mark.parametrize("second", ["Region", "region", "REGION"])
def test_two_names_that_differ_by_case_at_most_make_the_tool_invalid(second: str) -> None:
    words = invalid(an_object(a=mirrored(), b=an_object(c=mirrored(second))))
    assert "is taken by 'a'" in words


@pytest.mark.spec("R0879", "R0988", "R0883", "R0991")
@pytest.mark.parametrize(
    "declared",
    [
        "number",
        "array",
        "object",
        "null",
        "String",
        None,
        1,
        [],
        ["null"],
        ["string", "integer"],
        ["number", "null"],
        ["integer", "number"],
        [["string"]],
        {"type": "string"},
    ],
)
def test_a_parameter_that_is_not_plain_makes_the_tool_invalid(declared: object) -> None:
    assert "string, integer or boolean" in invalid(an_object(a=mirrored("A", declared)))
    assert "string, integer or boolean" in invalid(an_object(a={"x-mcp-header": "A"}))


HIDDEN = mirrored("Hidden")
PLACES: dict[str, Schema] = {
    "the root": {**an_object(), **HIDDEN},
    "items": an_object(a={"type": "array", "items": HIDDEN}),
    "items of a property of items": an_object(a={"items": an_object(b=HIDDEN)}),
    "prefixItems": an_object(a={"prefixItems": [HIDDEN]}),
    "contains": an_object(a={"contains": HIDDEN}),
    "unevaluatedItems": an_object(a={"unevaluatedItems": HIDDEN}),
    "oneOf": {"oneOf": [an_object(a=HIDDEN)]},
    "anyOf": an_object(a={"anyOf": [HIDDEN, {"type": "null"}]}),
    "allOf": {"allOf": [an_object(a=HIDDEN)]},
    "not": {"not": an_object(a=HIDDEN)},
    "if": {"if": an_object(a=HIDDEN)},
    "then": {"then": an_object(a=HIDDEN)},
    "else": {"else": an_object(a=HIDDEN)},
    "$defs": {"$defs": {"A": HIDDEN}, **an_object(a={"$ref": "#/$defs/A"})},
    "properties of $defs": {"$defs": {"A": an_object(a=HIDDEN)}},
    "definitions": {"definitions": {"A": HIDDEN}},
    "additionalProperties": {"additionalProperties": HIDDEN},
    "unevaluatedProperties": {"unevaluatedProperties": HIDDEN},
    "patternProperties": {"patternProperties": {"^a": HIDDEN}},
    "propertyNames": {"propertyNames": HIDDEN},
    "dependentSchemas": {"dependentSchemas": {"a": an_object(b=HIDDEN)}},
    "dependencies": {"dependencies": {"a": an_object(b=HIDDEN)}},
    "contentSchema": an_object(a={"contentSchema": HIDDEN}),
    "a keyword of somebody's": an_object(a={"x-own": {"deep": [HIDDEN]}}),
    "lists in lists": {"items": [[[HIDDEN]]]},
    "properties that are a list": {"properties": [HIDDEN]},
    "$ref": an_object(a={"$ref": HIDDEN}),
}


@pytest.mark.spec("R0881", "R0882", "R0990", "R0883", "R0991")
@pytest.mark.parametrize("place", PLACES)
def test_an_annotation_anywhere_but_on_the_straight_way_makes_the_tool_invalid(place: str) -> None:
    assert "reached through `properties` only" in invalid(PLACES[place])


def test_what_is_only_called_like_the_annotation_is_none() -> None:
    schema = {
        **an_object(
            **{"x-mcp-header": {"type": "string"}},
            a={
                "default": HIDDEN,
                "const": HIDDEN,
                "enum": [HIDDEN],
                "examples": [HIDDEN],
                "example": HIDDEN,
            },
            b=an_object(**{"x-mcp-header": mirrored("Odd")}),
        ),
        "dependentRequired": {"x-mcp-header": ["a"]},
        "$defs": {"x-mcp-header": {"type": "string"}},
        "patternProperties": {"x-mcp-header": {"type": "string"}},
    }
    assert [param.path for param in param_headers(schema)] == [("b", "x-mcp-header")]


def test_a_schema_is_bounded_in_depth_and_size() -> None:
    deep: Schema = mirrored()
    for _ in range(MAX_DEPTH - 1):
        deep = an_object(a=deep)
    assert len(param_headers(an_object(a=deep))[0].path) == MAX_DEPTH
    assert "nests deeper" in invalid(an_object(a=an_object(a=deep)))
    endless: Schema = {}
    endless["not"] = endless
    assert "nests deeper" in invalid(endless)
    assert "more than" in invalid({"allOf": [{}] * (MAX_SCHEMA_NODES + 1)})
    assert param_headers({"allOf": [{}] * (MAX_SCHEMA_NODES - 2)}) == ()


def test_the_number_of_mirrored_parameters_is_bounded() -> None:
    many = {f"p{n}": mirrored(f"P{n}") for n in range(MAX_PARAM_HEADERS + 1)}
    assert "more than 64" in invalid(an_object(**many))
    many.popitem()
    assert len(param_headers(an_object(**many))) == MAX_PARAM_HEADERS


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "x-mcp-header", "items", "$defs", "enum", "a"]),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON_VALUES)
def test_any_json_is_read_as_a_schema_or_refused(schema: object) -> None:
    try:
        params = param_headers(schema)
    except ProtocolError as error:
        assert str(error).isprintable()  # noqa: PT017
        return
    for param in params:
        node: Any = schema
        for step in param.path:
            node = node["properties"][step]
        assert node["x-mcp-header"] == param.name


def test_a_parameter_that_takes_anything_or_nothing_names_no_header() -> None:
    named = {"type": "string", "x-mcp-header": "Region"}
    (found,) = param_headers(an_object(any=True, none=False, region=named))
    assert found.path == ("region",)


def test_reading_a_schema_takes_linear_time() -> None:
    def best(size: int) -> float:
        schema = an_object(**{f"p{n}": an_object(a={"anyOf": [{}, {}]}) for n in range(size)})

        def reading() -> object:
            return param_headers(schema)

        return min(timeit.repeat(reading, timer=process_time, number=1, repeat=5))

    assert best(8000) < 30 * best(1000)


# ---------------------------------------------------------------- the client

CALL = param_headers(
    an_object(
        region=mirrored(),
        dry=mirrored("Dry", "boolean"),
        deep=an_object(count=mirrored("Count", "integer")),
    )
)


@pytest.mark.spec("R0874", "R0896", "R0897", "R0898", "R0904")
def test_the_values_at_the_annotated_paths_become_headers() -> None:
    arguments = {
        "region": "Zürich",
        "dry": False,
        "deep": {"count": 7, "region": "no"},
        "count": 8,
        "query": "x",
    }
    assert headers_for_call(CALL, arguments) == [
        ("Mcp-Param-Region", "=?base64?WsO8cmljaA==?="),
        ("Mcp-Param-Dry", "false"),
        ("Mcp-Param-Count", "7"),
    ]


@pytest.mark.spec("R0905", "R0906")
@pytest.mark.parametrize(
    "arguments",
    [
        None,
        {},
        {"region": None, "dry": None, "deep": None},
        {"deep": {"count": None}},
        {"deep": []},
        {"deep": "count"},
        {"count": 8},
    ],
)
def test_what_is_null_or_absent_gets_no_header(arguments: dict[str, object] | None) -> None:
    assert headers_for_call(CALL, arguments) == []


def test_a_value_that_cannot_be_mirrored_is_named() -> None:
    with pytest.raises(
        LocalProtocolError, match=r"'deep.count' goes into Mcp-Param-Count: not a string"
    ):
        headers_for_call(CALL, {"deep": {"count": 1.5}})


# ---------------------------------------------------------------- the server


@pytest.mark.spec("R0891", "R0892", "R0902", "R0904", "R0912")
@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"us-west1", "us-west1"),
        (b" us-west1\t", "us-west1"),
        (b"=?base64?SGVsbG8=?=", "Hello"),
        (b"=?base64?SGVsbG8sIOS4lueVjA==?=", "Hello, 世界"),
        (b"SGVsbG8=", "SGVsbG8="),
        (b"=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        (b"=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", "=?base64?literal?="),
        (b"", ""),
        (b"a\tb", "a\tb"),
    ],
)
def test_a_header_that_says_what_the_body_says_passes(header: bytes, value: str) -> None:
    agree(REGION, {b"mcp-param-region": header}, {"region": value})


@pytest.mark.spec("R0902", "R0903", "R0909", "R0911", "R1071")
@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"us-west1", "us-west2"),
        (b"US-WEST1", "us-west1"),
        (b"SGVsbG8=", "Hello"),
        (b"", "x"),
        (b"x", ""),
        (b"=?base64?eA==?=", "y"),
        (b"=?base64?literal?=", "=?base64?literal?="),
        (b"a, b", "a"),
        (b"[]", []),
        (b"{}", {}),
        (b"1.5", 1.5),
        (b"42.0", 42),
        (b"True", True),
        (b"1", True),
    ],
)
def test_a_header_that_says_something_else_is_refused(header: bytes, value: object) -> None:
    words = disagree(REGION, {b"mcp-param-region": header}, {"region": value})
    assert "Mcp-Param-Region" in words
    assert "us-west" not in words.lower()


@pytest.mark.spec("R0901", "R0903", "R0911")
@pytest.mark.parametrize(
    "header",
    [
        "Zürich".encode(),
        b"a\x00",
        b"a\nb",
        b"\x7f",
        b"=?base64?SGVsbG8?=",
        b"=?base64?SGVs!!!bG8=?=",
    ],
)
def test_a_header_with_bad_characters_or_bad_base64_is_refused(header: bytes) -> None:
    disagree(REGION, {b"mcp-param-region": header}, {"region": "Zürich"})
    disagree(REGION, {b"mcp-param-region": header}, {"region": header.decode("latin-1")})


@pytest.mark.spec("R0903", "R0907")
def test_a_value_without_its_header_is_refused() -> None:
    assert "is missing" in disagree(REGION, {}, {"region": "us-west1"})
    assert "is missing" in disagree(REGION, {}, {"region": ""})
    assert "is missing" in disagree(
        REGION, {b"mcp-param-regions": b"us-west1"}, {"region": "us-west1"}
    )


@pytest.mark.spec("R0905", "R0906")
@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"other": 1}, [], "region", 1, None])
def test_where_the_body_has_no_value_none_is_expected_and_none_accepted(arguments: object) -> None:
    agree(REGION, {}, arguments)
    assert "the body has no value" in disagree(REGION, {b"mcp-param-region": b"x"}, arguments)


@pytest.mark.spec("R0907", "R0909")
@pytest.mark.parametrize("header", [{}, {b"mcp-param-id": b"a"}])
def test_a_value_in_an_object_that_is_text_cannot_pass_by_its_header(
    header: dict[bytes, bytes],
) -> None:
    schema = {"type": "string", "x-mcp-header": "Id"}
    params = param_headers({"properties": {"who": {"properties": {"id": schema}}}})
    agree(params, {b"mcp-param-id": b"a"}, {"who": {"id": "a"}})
    assert "string in the body" in disagree(params, header, {"who": ' {"id":"b"}'})
    agree(params, {}, {"who": "nobody"})


def test_no_arguments_at_all_are_no_value() -> None:
    check_params(REGION, {}, Raw(b""))
    with pytest.raises(Fault, match="the body has no value"):
        check_params(REGION, {b"mcp-param-region": b"x"}, Raw(b""))


@pytest.mark.spec("R0910")
@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"42", "42"),
        (b"42.0", "42"),
        (b"42", "42.0"),
        (b"42.000", "42.00"),
        (b"42", "4.2e1"),
        (b"-7", "-7"),
        (b"-0", "0"),
        (b"0.0", "-0"),
        (b"=?base64?NDI=?=", "42"),
        (b"9007199254740991", "9007199254740991"),
    ],
)
def test_integers_are_compared_as_numbers(header: bytes, value: str) -> None:
    check_params(COUNT, {b"mcp-param-count": header}, Raw(b'{"count":%b}' % value.encode()))


@pytest.mark.spec("R0880", "R0902", "R0989")
@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"42", "43"),
        (b"42.5", "42"),
        (b"42.", "42"),
        (b"042", "42"),
        (b"+42", "42"),
        (b"0x2a", "42"),
        (b"4.2e1", "42"),
        (b"4_2", "42"),
        ("٤٢".encode(), "42"),
        (b"", "0"),
        (b"true", "1"),
        (b"1", "true"),
        (b"42", "42.5"),
        (b"42.0", '"42"'),
        (b"9007199254740993", "9007199254740992"),
        (b"9007199254740992", "9007199254740992"),
        (b"9007199254740992", "9007199254740992.0"),
        (b"9" * 400, "9" * 400),
    ],
)
def test_integers_that_differ_or_are_not_safe_are_refused(header: bytes, value: str) -> None:
    with pytest.raises(Fault) as caught:
        check_params(COUNT, {b"mcp-param-count": header}, Raw(b'{"count":%b}' % value.encode()))
    assert caught.value.kind is FaultKind.HEADER_MISMATCH


def test_booleans_are_true_or_false() -> None:
    agree(DRY, {b"mcp-param-dry": b"true"}, {"dry": True})
    agree(DRY, {b"mcp-param-dry": b"false"}, {"dry": False})
    for wrong in (b"false", b"TRUE", b"1", b"yes"):
        disagree(DRY, {b"mcp-param-dry": wrong}, {"dry": True})


def test_a_value_of_another_type_is_left_to_the_schema_when_the_header_agrees() -> None:
    agree(COUNT, {b"mcp-param-count": b"many"}, {"count": "many"})
    agree(REGION, {b"mcp-param-region": b"7"}, {"region": 7})


@pytest.mark.spec("R0908")
def test_the_annotation_and_the_header_may_differ_by_case() -> None:
    agree(REGION, lowercase_headers([(b"MCP-PARAM-REGION", b"x")]), {"region": "x"})
    agree(
        param_headers(an_object(region=mirrored("rEGION"))),
        {b"mcp-param-region": b"x"},
        {"region": "x"},
    )


def test_headers_of_parameters_that_are_not_mirrored_mean_nothing() -> None:
    agree(REGION, {b"mcp-param-region": b"x", b"mcp-param-other": b"\xff"}, {"region": "x"})
    check_params((), {b"mcp-param-region": b"x"}, Raw(b"rubbish"))


@pytest.mark.parametrize("second", [b"a", b"b", b""])
def test_a_header_that_came_twice_must_have_said_the_same(second: bytes) -> None:
    headers = combine_headers([(b"mcp-param-region", b"a"), (b"mcp-param-region", second)])
    if second == b"a":
        agree(REGION, headers, {"region": "a"})
    else:
        for value in ("a", "b", "a, b", "", "\x00", None):
            assert "sent twice" in disagree(
                REGION, headers, {"region": value} if value is not None else {"region": "x"}
            )


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"region":"a","region":"b"}',
        b'{"x":1e999}',
        b'{"region":"\xff"}',
        b"{",
        b'{"region":1e999}',
    ],
)
def test_arguments_that_two_readers_could_read_differently_are_refused(arguments: bytes) -> None:
    with pytest.raises(Fault) as caught:
        check_params(REGION, {b"mcp-param-region": b"b"}, Raw(arguments))
    assert caught.value.kind in (FaultKind.INVALID_PARAMS, FaultKind.PARSE)


PLAIN = st.none() | st.booleans() | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER) | st.text()


@pytest.mark.spec("R0898", "R0902", "R0904", "R0905", "R0906")
@given(PLAIN, PLAIN, PLAIN)
def test_what_a_client_sends_every_server_accepts_and_nothing_is_injected(
    region: object, dry: object, count: object
) -> None:
    arguments: dict[str, object] = {"region": region, "dry": dry, "deep": {"count": count}}
    sent = headers_for_call(CALL, arguments)
    # As it goes over the wire: one line each, and the reader finds the same lines.
    wire = "".join(f"{name}: {value}\r\n" for name, value in sent).encode("ascii")
    lines = [line.split(b":", 1) for line in wire.split(b"\r\n")[:-1]]
    assert [(name.decode(), value.strip().decode()) for name, value in lines] == sent
    agree(CALL, lowercase_headers([(name, value.strip()) for name, value in lines]), arguments)


@pytest.mark.spec("R0902", "R0909")
@given(PLAIN, PLAIN)
def test_a_server_accepts_the_header_of_no_other_value(said: object, meant: object) -> None:
    sent = lowercase_headers(
        [
            (name.encode(), value.encode())
            for name, value in headers_for_call(REGION, {"region": said})
        ]
    )
    same = said == meant and type(said) is type(meant)
    if same or (
        said is not None and meant is not None and encode_param(said) == encode_param(meant)
    ):
        agree(REGION, sent, {"region": meant})
    else:
        disagree(REGION, sent, {"region": meant})


# ---------------------------------------------------------------- intermediaries


@pytest.mark.spec("R0900")
def test_headers_that_mirror_no_known_parameter_are_found_for_forwarding() -> None:
    known = (ParamHeader("City", ("city",), ParamType.STRING, b"mcp-param-city"),)
    headers = {
        b"host": b"example.com",
        b"mcp-name": b"look",
        b"mcp-param-city": b"Oslo",
        b"mcp-param-region": b" eu ",
        b"mcp-param-": b"no name",
        b"mcp-param-line": b"a\r\nX-Other: b",
        b"mcp-param-long": b"x" * (MAX_VALUE_BYTES + 1),
    }
    assert unknown_params(headers, known) == [("Mcp-Param-region", "eu")]
    assert ("Mcp-Param-city", "Oslo") in unknown_params(headers, ())
    assert unknown_params({b"mcp-name": b"mcp-param-x"}, ()) == []


def test_no_more_unknown_headers_are_forwarded_than_a_request_may_have() -> None:
    headers = {b"mcp-param-%d" % number: b"1" for number in range(MAX_PARAM_HEADERS + 5)}
    assert len(unknown_params(headers, ())) == MAX_PARAM_HEADERS
