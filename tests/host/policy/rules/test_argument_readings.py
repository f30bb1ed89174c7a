"""Arguments that servers read otherwise than they are written: rules judge each reading."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from colonnade.host.policy.request import Action, PolicyRequest, digest_of
from colonnade.host.policy.rules.rules import Policy, Rule
from colonnade.protocol import types as t
from colonnade.signatures import readings
from host.policies import asked


def denied(condition: dict[str, Any], arguments: dict[str, Any] | bytes) -> bool:
    """Whether a rule that denies what meets the condition denies these arguments."""
    policy = Policy([Rule("deny", arguments=condition)], default="allow")
    return policy.decide(asked(arguments=arguments)).action == "deny"


def allowed(condition: dict[str, Any], arguments: dict[str, Any] | bytes) -> bool:
    """Whether a rule that allows what meets the condition allows these arguments."""
    policy = Policy([Rule("allow", arguments=condition)], default="deny")
    return policy.decide(asked(arguments=arguments)).action == "allow"


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        ({"user.name": "admin"}, {"user": '{"name": "admin"}'}),
        ({"user.name": "admin"}, {"user": '\u2003\n{"name": "admin"} '}),
        ({"user.name": "admin"}, {"user": '{"name": "\\"admin\\""}'}),
        ({"a.b.c": "x"}, {"a": '{"b": "{\\"c\\": \\"x\\"}"}'}),
        ({"paths.*": "/etc/**"}, {"paths": '["/srv", "/etc/x"]'}),
        ({"paths": "/etc/**"}, {"paths": '["/srv", "/etc/x"]'}),
        ({"paths": "/etc/**"}, {"paths": ["/srv", '["/etc/x"]']}),
        ({"paths.1": "/etc/**"}, {"paths": '["/srv", "/etc/x"]'}),
        ({"user.admin": {"present": True}}, {"user": '{"admin": 1}'}),
        ({"user.name": "admin"}, {"user": '{"name": "admin", "limit": NaN}'}),
        ({"user.name": "admin"}, {"user": '{"name": "admin", "note": "a\x01b"}'}),
        ({"env": {"not": "*dev*"}}, {"env": '["prod", "dev"]'}),
        ({"name": "admin"}, {"name": '"admin"'}),
        # More than one server would read: repeated members, and what is too long or too deep.
        ({"user.name": "admin"}, {"user": '{"name": "bob", "name": "ann"}'}),
        ({"user.name": "admin"}, {"user": '{"name": "bob", "name": "ann", "limit": NaN}'}),
        ({"user.name": "admin"}, {"user": '{"name": "' + "x" * 70_000 + '"}'}),
        ({"user.name": "admin"}, {"user": "[" * 1000 + "]" * 1000}),
    ],
)
def test_json_in_a_string_is_judged_as_what_a_server_makes_of_it(
    condition: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert denied(condition, arguments)


@pytest.mark.parametrize(
    "text",
    [
        *("101", " 101 ", "+101", "0101", "1_01", "101.0", "1.01e2", "１０１", "0x65", "\ufeff101"),
        *("0" * 150 + "101", "101." + "0" * 300, "0" * 5000 + "101", "100." + "0" * 30 + "1"),
        *("inf", "Infinity", '"101"', "[101]"),
    ],
)
def test_a_number_in_a_string_is_judged_however_it_is_written(text: str) -> None:
    assert denied({"amount": {"above": 100}}, {"amount": text})
    assert not allowed({"amount": {"above": 100}}, {"amount": text})


def test_an_integer_that_no_float_holds_is_compared_exactly_and_as_a_float() -> None:
    odd = 2**53 + 1
    for value in (odd, str(odd), f"{odd}.0"):
        assert denied({"id": odd}, {"id": value}), value
        assert denied({"id": float(2**53)}, {"id": value}), value
    assert denied({"id": {"above": 1}}, {"id": 10**400})
    assert not denied({"id": odd}, {"id": odd + 1})


@pytest.mark.parametrize(
    ("expected", "values"),
    [
        (True, [1, 1.0, "1", "yes", "YES", "y", "on", "t", " True ", "1.0", '"on"', True]),
        (False, [0, 0.0, -0.0, "0", "no", "N", "off", "f", "FALSE", "false ", False]),
    ],
)
def test_a_boolean_is_judged_however_it_is_written(expected: bool, values: list[Any]) -> None:
    for value in values:
        assert denied({"force": expected}, {"force": value}), value
        assert not denied({"force": not expected}, {"force": value}), value
        assert allowed({"force": expected}, {"force": value}) is (value is expected), value


def test_a_boolean_is_judged_as_a_number_and_a_number_as_text() -> None:
    assert denied({"count": {"min": 1}}, {"count": True})
    assert denied({"count": 0}, {"count": False})
    assert denied({"port": "22"}, {"port": 22})
    assert denied({"port": "22"}, {"port": 22.0})
    assert denied({"port": "2*"}, {"port": ["22"]})
    assert denied({"force": "true"}, {"force": True})
    assert not denied({"port": "22"}, {"port": 23})


ID = "8d8ac610-566d-4ef0-9c22-186b2a5ed793"


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        (ID, ID.upper()),
        (ID, f"urn:uuid:{ID}"),
        (ID, f"{{{ID}}}"),
        (ID, ID.replace("-", "")),
        (ID.replace("-", ""), ID),
        ("2026-12-24", "2026-12-24T00:00:00Z"),
        ("2026-12-24", "2026-12-24 00:00"),
        ("2026-12-24", 1798070400),
        ("2026-12-24", "1798070400"),
        ("2026-12-24T00:00:00*", 1798070400000),
        ("2026-12-24T00:00:00", "2026-12-24"),
    ],
)
def test_another_form_of_an_id_or_a_date_is_judged_as_the_one_that_a_server_reads(
    expected: str, value: Any
) -> None:
    assert denied({"value": expected}, {"value": value})


@pytest.mark.parametrize(
    "arguments", [b'["/etc/x"]', b'"{\\"path\\": \\"/etc/x\\"}"', b"1", b"true", b' "x"']
)
def test_arguments_that_are_no_object_match_deny_and_never_allow(arguments: bytes) -> None:
    assert denied({"path": "/etc/**"}, arguments)
    assert not allowed({"path": {"present": False}}, arguments)


def test_arguments_that_are_null_are_none() -> None:
    assert not denied({"path": "/etc/**"}, b"null")
    assert allowed({"path": {"present": False}}, b" null ")


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        ({"path": "**report**"}, {"path": '["/etc/passwd", "report"]'}),
        ({"path": "**report**"}, {"path": '{"report": 1, "report": 2}'}),
        ({"text": {"not": "*secret*"}}, {"text": '["secr\\u0065t"]'}),
        ({"text": {"not": "secret"}}, {"text": {"a": ["secret"]}}),
        ({"text": {"not": "secret"}}, {"text": '"secret"'}),
        ({"count": {"not": 5}}, {"count": "5"}),
        ({"count": {"not": 5}}, {"count": "0" * 500 + "5"}),
        ({"force": {"not": True}}, {"force": "on"}),
        ({"force": {"not": True}}, {"force": 1}),
        ({"user.admin": {"present": False}}, {"user": '{"admin": 1}'}),
        ({"text": {"not": "secret"}}, {"text": '{"a": 1, "a": 2}'}),
    ],
)
def test_allow_needs_that_every_reading_matches(
    condition: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert not allowed(condition, arguments)


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        ({"text": {"not": "*secret*"}}, {"text": '{"a": [1, "b"]}'}),
        ({"text": "*"}, {"text": '"two words" and more'}),
        ({"text": "*"}, {"text": '"two words"'}),
        ({"text": "**"}, {"text": "[a link](https://example.com)"}),
        ({"user.name": "ann"}, {"user": {"name": "ann"}}),
        ({"count": {"not": 5}}, {"count": 6}),
        ({"day": "2026-12-24T*"}, {"day": "2026-12-24T00:00:00Z"}),
        ({"id": "urn:uuid:*"}, {"id": f"urn:uuid:{ID}"}),
    ],
)
def test_allow_takes_what_reads_in_one_way(
    condition: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert allowed(condition, arguments)


def test_text_that_only_begins_as_json_is_text() -> None:
    for text in ("[a link](https://example.com)", "{name}", '"a" or "b"', "[[wiki]]", "{"):
        assert not denied({"text.name": "admin"}, {"text": text}), text
        assert not denied({"text": {"above": 1}}, {"text": text}), text


def test_an_empty_object_is_none_of_the_values_that_are_excepted() -> None:
    for empty in ({}, [], [{}], "{}", None):
        assert denied({"env": {"not": "dev"}}, {"env": empty}), empty


def test_an_explanation_reads_arguments_as_a_decision_does() -> None:
    policy = Policy([Rule("deny", arguments={"user.name": "admin"})], default="allow")
    (step,) = policy.explain(asked(arguments={"user": '{"name": "admin"}'}))
    expected: Action = "deny"
    assert (step.action, step.why) == (expected, "")


# ---------------------------------------------------------------- defaults of the input schema


def called(schema: dict[str, Any], arguments: dict[str, Any], **changes: Any) -> PolicyRequest:
    """A call of a tool with this input schema."""
    definition = t.Tool(name="read", input_schema=schema)
    request = asked(arguments=arguments)
    return replace(
        request, definition=definition, definition_digest=digest_of(definition), **changes
    )


def has_default(condition: dict[str, Any], schema: dict[str, Any], sent: dict[str, Any]) -> bool:
    policy = Policy([Rule("deny", arguments=condition)], default="allow")
    return policy.decide(called(schema, sent)).action == "deny"


MODE = {"properties": {"mode": {"type": "string", "default": "all"}}}
USER = {
    "properties": {"user": {"$ref": "#/$defs/User"}, "users": {"items": {"$ref": "#/$defs/User"}}},
    "$defs": {
        "User": {
            "properties": {
                "role": {"anyOf": [{"type": "null"}, {"type": "string", "default": "admin"}]},
                "boss": {"$ref": "#/$defs/User"},
            }
        }
    },
}


@pytest.mark.parametrize(
    ("condition", "schema", "sent"),
    [
        ({"mode": "all"}, MODE, {}),
        ({"mode": {"not": "some"}}, MODE, {"other": 1}),
        ({"*": "all"}, MODE, {}),
        ({"user.role": "admin"}, USER, {}),
        ({"user.role": "admin"}, USER, {"user": {}}),
        ({"user.role": "admin"}, USER, {"user": "{}"}),
        ({"user": "admin"}, USER, {"user": {"boss": {"role": "none"}}}),
        ({"user.boss.boss.role": "admin"}, USER, {"user": {}}),
        ({"users.*.role": "admin"}, USER, {"users": [{"role": "none"}, {}]}),
        ({"users.1.role": "admin"}, USER, {"users": [{"role": "none"}, {}]}),
        ({"n.a": 1}, {"properties": {"n": {"default": {"a": 1}}}}, {}),
        (
            {"n.a": 1},
            {"properties": {"n": {"default": {}, "properties": {"a": {"default": 1}}}}},
            {},
        ),
        ({"n.n.mode": "all"}, {"properties": {"n": {"$ref": "#"}, **MODE["properties"]}}, {}),
    ],
)
def test_the_default_of_an_argument_that_was_not_sent_is_judged(
    condition: dict[str, Any], schema: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert has_default(condition, schema, sent)


@pytest.mark.parametrize(
    ("condition", "schema", "sent"),
    [
        ({"mode": "all"}, MODE, {"mode": "some"}),
        ({"mode": "all"}, {"properties": {"mode": True, "other": {"default": "all"}}}, {}),
        ({"mode": "all"}, {"properties": [{"mode": {"default": "all"}}]}, {}),
        ({"mode": {"present": True}}, MODE, {}),
        ({"user.role": "admin"}, USER, {"user": {"role": "none"}}),
        ({"users.*.role": "admin"}, USER, {"users": []}),
        ({"user.role": "admin"}, USER, {"user": 1}),
        ({"user.role": "x"}, {"properties": {"user": {"$ref": "https://x.example/#/default"}}}, {}),
    ],
)
def test_an_argument_without_a_denied_default_is_not_denied(
    condition: dict[str, Any], schema: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert not has_default(condition, schema, sent)


def test_allow_does_not_count_a_default_as_a_value_and_excludes_one_inside() -> None:
    policy = Policy([Rule("allow", arguments={"mode": "all"})], default="deny")
    assert policy.decide(called(MODE, {})).action == "deny"
    policy = Policy([Rule("allow", arguments={"user": {"not": "admin"}})], default="deny")
    assert policy.decide(called(USER, {"user": {"name": "ann"}})).action == "deny"
    assert policy.decide(called(USER, {"user": {"role": "none"}})).action == "allow"
    plain = {"properties": {"user": {"properties": {"role": {"default": "none"}}}}}
    assert policy.decide(called(plain, {"user": {"name": "ann"}})).action == "allow"


def test_defaults_are_those_of_the_call_and_not_of_what_its_server_asks() -> None:
    rule = Rule("deny", requests="elicitation", arguments={"mode": "all"})
    policy = Policy([rule], default="allow")
    assert policy.decide(called(MODE, {}, method="elicitation/create")).action == "allow"
    steps = Policy([Rule("deny", arguments={"mode": "all"})]).explain(called(MODE, {}))
    assert steps[0].action == "deny"


def test_a_schema_that_costs_too_much_to_search_counts_for_deny() -> None:
    wide = {
        "properties": {"a": {"anyOf": [{"default": 1}] + [{"type": "null"} for _ in range(99)]}}
    }
    assert has_default({"a": "x"}, wide, {})
    endless = {"$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "default": 1}}}
    deep = {**endless, "properties": {"a": {"$ref": "#/$defs/a"}}}
    assert not has_default({"a.b": "x"}, deep, {})
    many = {"a": [{}] * 20_000}
    schema = {"properties": {"a": {"items": {"properties": {"b": {"default": 1}}}}}}
    assert has_default({"a.*.b": "x"}, schema, many)


def test_json_in_strings_is_read_in_a_few_levels_and_then_counts_for_deny() -> None:
    text: Any = {"name": "bob"}
    for _ in range(8):
        text = msgspec.json.encode([text]).decode()
    assert denied({"user": "admin"}, {"user": text})
    assert denied({"user.0.0.0.0.0.0.0.0.name": "admin"}, {"user": text})


def test_an_object_with_too_many_numbered_members_counts_for_deny() -> None:
    assert denied({"rows.1": "x"}, {"rows": {f"{number:06}": 0 for number in range(20_000)}})
    assert denied({"rows.1": "x"}, {"rows": {"01": "x"}})
    assert not denied({"rows.1": "x"}, {"rows": {"02": "x"}})
    assert not allowed({"rows.1": "x"}, {"rows": {"01": "x"}})


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        # A server with numbers as keys takes the last of these.
        ({"map.1": "x"}, {"map": {"1": "ok", "01": "x"}}),
        ({"map.1": "x"}, {"map": '{"1": "ok", " 1": "x"}'}),
        ({"map.10": "x"}, {"map": {"10": "ok", "1_0": "x"}}),
        ({"map.1": "x"}, {"map": {"1": "ok", "0" * 500 + "1": "x"}}),
        ({"paths.*": "x"}, {"paths": {"*": "ok", "a": "x"}}),
        # pydantic reads an object as a named tuple, whose schema is that of an array.
        ({"user.0": "admin"}, {"user": {"name": "admin"}}),
        ({"user.0": "admin"}, {"user": '{"name": "admin"}'}),
    ],
)
def test_every_member_that_a_step_of_a_path_may_mean_is_judged(
    condition: dict[str, Any], arguments: dict[str, Any]
) -> None:
    assert denied(condition, arguments)


def test_a_member_with_the_number_of_another_is_not_allowed_by_that() -> None:
    assert allowed({"map.1": "ok"}, {"map": {"1": "ok", "2": "x"}})
    assert not allowed({"map.1": "ok"}, {"map": {"1": "ok", "01": "x"}})
    assert not allowed({"map.1": "ok"}, {"map": {"01": "ok"}})
    assert not allowed({"map.*": "ok"}, {"map": {"*": "ok", "a": "x"}})
    assert not denied({"map.1": "x"}, {"map": {"1": "ok", "2": "x"}})


@pytest.mark.parametrize(
    ("expected", "sent"),
    [
        *(
            ("2024-01-01", f"2024-01-01T00:00:00{end}")
            for end in ("z", "+0000", "-00:00", "+05:00")
        ),
        ("2024-01-01", "2024-01-01_00:00:00,000"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00+00:00"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00.000Z"),
        ("2024-01-01T10:00:00Z", "2024-01-01T12:00:00+0200"),
        ("2024-01-01T12:00:00+02:00", "2024-01-01T10:00Z"),
        ("2024-01-01T12:00:00+02:00", 1704103200),
        ("2024-01-01T10:00:00.5Z", 1704103200.5),
        ("2024-01-01T10:00:00", "2024-01-01 10:00:00.000000"),
        ("10:00:00", "10:00"),
        ("10:00:00", "10:00:00.000"),
        ("10:00:00Z", "10:00:00+00:00"),
    ],
)
def test_a_moment_is_denied_however_it_is_written(expected: str, sent: object) -> None:
    assert denied({"at": expected}, {"at": sent})


@pytest.mark.parametrize(
    ("pattern", "number"),
    [
        *(("2023-*", 1700000000), ("*T22:13:20Z", 1700000000), ("*-11-14t*", "1700000000")),
        *(("10.*", 167772161), ("[!x]0.0.0.1", 167772161), ("2001:DB8::*", 0x20010DB8 << 96)),
        *(("**", 5), ("x/../10.0.0.1", 167772161), ("%31%30.*", 167772161)),
    ],
)
def test_a_pattern_that_may_match_the_date_of_a_number_is_compared_with_it(
    pattern: str, number: object
) -> None:
    assert denied({"at": pattern}, {"at": number})


def test_dates_of_numbers_are_not_made_for_a_pattern_that_matches_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []

    def moments(numbers: object) -> list[str]:
        made.append(numbers)
        return []

    monkeypatch.setattr(readings, "_moments", moments)
    for pattern in ("/etc/**", "admin", "*.EXE"):
        assert not denied({"at": pattern}, {"at": [1700000000, 1.5, "1700000000"]})
    assert made == []
    assert not denied({"at": "2024-*"}, {"at": [1, 1.5, "1"]})
    assert len(made) == 3


def test_dates_that_no_calendar_has_are_texts() -> None:
    for text in ("2024-02-30T10:00:00Z", "0001-01-01T00:00:00+23:00", "99:99:99"):
        assert denied({"at": text}, {"at": text})
        assert not denied({"at": "2024-01-01T10:00:00Z"}, {"at": text})


@pytest.mark.parametrize(
    ("place", "sent"),
    [
        ({"type": "array", "prefixItems": [{}, {"$ref": "#/$defs/User"}]}, [1, {}]),
        ({"type": "array", "prefixItems": [{}], "items": {"$ref": "#/$defs/User"}}, [1, {}]),
        ({"type": "object", "additionalProperties": {"$ref": "#/$defs/User"}}, {"1": {}}),
        ({"type": "object", "patternProperties": {"^": {"$ref": "#/$defs/User"}}}, {"1": {}}),
    ],
)
@pytest.mark.parametrize("path", ["users.1.role", "users.*.role", "users"])
def test_defaults_inside_of_tuples_and_maps_count(
    place: dict[str, Any], sent: object, path: str
) -> None:
    user = {"properties": {"role": {"default": "admin"}}}
    schema = {"$defs": {"User": user}, "properties": {"users": place}}
    request = replace(
        asked(arguments={"users": sent}), definition=t.Tool(name="x", input_schema=schema)
    )
    policy = Policy([Rule("deny", arguments={path: "admin"})], default="allow")
    assert policy.decide(request).action == "deny"
