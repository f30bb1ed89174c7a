"""One protocol type for one revision: what is left out, what is said otherwise, and what stays as it is."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

import type_strategies
from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import to_builtins
from colonnade.protocol.codec.downgrade import RULES, inside, reserved
from colonnade.protocol.codec.encode import RESULT_TYPES, Encoder
from colonnade.protocol.revision import (
    ALL,
    NOVEMBER_2025,
    Revision,
)

ICONS = [t.Icon(src="data:,")]
SCHEMA: dict[str, Any] = {"type": "object"}


def shape(instance: t.ProtocolType, revision: Revision, origin: Revision | None = None) -> Any:
    return Encoder(revision).downgrade(instance, origin)


# ---------------------------------------------------------------- since and until

TASK = t.TaskMetadata(ttl=1)
FORM = t.ElicitSchema(properties={})


def tool(**more: Any) -> t.Tool:
    return t.Tool(name="n", input_schema=SCHEMA, **more)


def resource(**more: Any) -> t.Resource:
    return t.Resource(uri="a:b", name="n", **more)


def template(**more: Any) -> t.ResourceTemplate:
    return t.ResourceTemplate(uri_template="a:{b}", name="n", **more)


def who(**more: Any) -> t.Implementation:
    return t.Implementation(name="n", version="1", **more)


def question(**more: Any) -> t.ElicitRequestParams:
    return t.ElicitRequestParams(message="m", requested_schema=FORM, **more)


def field(**more: Any) -> t.PrimitiveSchema:
    return t.PrimitiveSchema(type="array", **more)


def sampling(**more: Any) -> t.CreateMessageRequestParams:
    return t.CreateMessageRequestParams(messages=[], max_tokens=1, **more)


# A protocol type, one of its fields, and the first and the last revision that know it.
SPANS: list[tuple[t.ProtocolType, str, str | None, str | None]] = [
    (t.ProgressNotificationParams(progress_token=1, progress=1, message="m"), "message", "2025-03-26", None),
    (tool(annotations=t.ToolAnnotations(read_only_hint=True)), "annotations", "2025-03-26", None),
    (t.ServerCapabilities(completions={}), "completions", "2025-03-26", None),
    (t.Annotations(last_modified="2025-01-01T00:00:00Z"), "last_modified", "2025-06-18", None),
    (who(title="t"), "title", "2025-06-18", None),
    (tool(title="t"), "title", "2025-06-18", None),
    (tool(output_schema=SCHEMA), "output_schema", "2025-06-18", None),
    (resource(title="t"), "title", "2025-06-18", None),
    (template(title="t"), "title", "2025-06-18", None),
    (t.Prompt(name="n", title="t"), "title", "2025-06-18", None),
    (t.PromptArgument(name="n", title="t"), "title", "2025-06-18", None),
    (t.PromptReference(name="n", title="t"), "title", "2025-06-18", None),
    (tool(meta={"a/b": 1}), "meta", "2025-06-18", None),
    (resource(meta={"a/b": 1}), "meta", "2025-06-18", None),
    (template(meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.Prompt(name="n", meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.Root(uri="file:///a", meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.TextContent(text="t", meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.ImageContent(data="", mime_type="a/b", meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.AudioContent(data="", mime_type="a/b", meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.ResourceContents(uri="a:b", text="t", meta={"a/b": 1}), "meta", "2025-06-18", None),
    (t.CallToolResult(content=[], structured_content={}), "structured_content", "2025-06-18", None),
    (t.ClientCapabilities(elicitation=t.ElicitationCapability()), "elicitation", "2025-06-18", None),
    (who(description="d"), "description", "2025-11-25", None),
    (who(website_url="https://a.example/"), "website_url", "2025-11-25", None),
    (who(icons=ICONS), "icons", "2025-11-25", None),
    (tool(icons=ICONS), "icons", "2025-11-25", None),
    (resource(icons=ICONS), "icons", "2025-11-25", None),
    (template(icons=ICONS), "icons", "2025-11-25", None),
    (t.Prompt(name="n", icons=ICONS), "icons", "2025-11-25", None),
    (t.ResourceLink(uri="a:b", name="n", icons=ICONS), "icons", "2025-11-25", None),
    (t.SamplingCapability(context={}), "context", "2025-11-25", None),
    (t.SamplingCapability(tools={}), "tools", "2025-11-25", None),
    (t.ElicitationCapability(form={}), "form", "2025-11-25", None),
    (t.ElicitationCapability(url={}), "url", "2025-11-25", None),
    (sampling(tools=[]), "tools", "2025-11-25", None),
    (sampling(tool_choice=t.ToolChoice(mode="auto")), "tool_choice", "2025-11-25", None),
    (t.SamplingMessage(role="user", content=[], meta={"a/b": 1}), "meta", "2025-11-25", None),
    (field(items=t.EnumItems(enum=["a"])), "items", "2025-11-25", None),
    (field(min_items=1), "min_items", "2025-11-25", None),
    (field(max_items=1), "max_items", "2025-11-25", None),
    (t.ElicitSchema(properties={}, dialect="d"), "dialect", "2025-11-25", None),
    (tool(execution=t.ToolExecution(task_support="required")), "execution", "2025-11-25", "2025-11-25"),
    (t.CallToolRequestParams(name="n", task=TASK), "task", "2025-11-25", "2025-11-25"),
    (sampling(task=TASK), "task", "2025-11-25", "2025-11-25"),
    (t.ClientCapabilities(tasks=t.ClientTasksCapability()), "tasks", "2025-11-25", "2025-11-25"),
    (t.ServerCapabilities(tasks=t.ServerTasksCapability()), "tasks", "2025-11-25", "2025-11-25"),
    (t.RootsCapability(list_changed=True), "list_changed", None, "2025-11-25"),
    (sampling(meta={"a/b": 1}), "meta", None, "2025-11-25"),
    (t.ListRootsResult(roots=[], meta={"a/b": 1}), "meta", None, "2025-11-25"),
    (t.CallToolRequestParams(name="n", input_responses={}), "input_responses", "2026-07-28", None),
    (t.GetPromptRequestParams(name="n", request_state="s"), "request_state", "2026-07-28", None),
    (t.EmptyResult(result_type="complete"), "result_type", "2026-07-28", None),
    (t.ListToolsResult(tools=[], ttl_ms=1), "ttl_ms", "2026-07-28", None),
    (t.ReadResourceResult(contents=[], cache_scope="public"), "cache_scope", "2026-07-28", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("instance", "name", "since", "until"),
    SPANS,
    ids=lambda value: type(value).__name__ if isinstance(value, t.ProtocolType) else value,
)
def test_a_field_is_said_from_its_first_revision_to_its_last(
    instance: t.ProtocolType, name: str, since: str | None, until: str | None, revision: Revision
) -> None:
    given = copy.deepcopy(to_builtins(instance))
    shaped = shape(instance, revision)
    if revision.knows(since, until):
        assert getattr(shaped, name) == getattr(instance, name)
    else:
        default = next(one.default for one in structs.fields(instance) if one.name == name)
        assert getattr(shaped, name) is default
    assert to_builtins(instance) == given


def test_only_some_elicitations_know_their_id_and_their_task(revision: Revision) -> None:
    if not revision.elicitation.modes:
        return
    shaped = shape(question(task=TASK, meta={"a/b": 1}), revision)
    assert (shaped.task is not None) == (revision is NOVEMBER_2025)
    assert (shaped.meta is not None) == revision.handshake
    if "url" in revision.elicitation.modes:
        url = t.ElicitRequestParams(message="m", mode="url", url="a:b", elicitation_id="e")
        assert (shape(url, revision).elicitation_id is not None) == (revision is NOVEMBER_2025)


def every_type() -> list[type[t.ProtocolType]]:
    found: list[type[t.ProtocolType]] = []
    rest: list[type[t.ProtocolType]] = [t.ProtocolType]
    while rest:
        for kind in rest.pop().__subclasses__():
            found.append(kind)
            rest.append(kind)
    return [kind for kind in found if kind.__module__.startswith("colonnade.")]


def test_a_field_never_outlives_the_type_in_it() -> None:
    """Or a revision would be sent a protocol type that it does not know."""
    for kind in every_type():
        for name, inner in inside(kind).items():
            mark = t.field_ranges(kind).get(name, t.RevisionRange())
            for revision in ALL:
                if not (revision.knows(*kind.available) and revision.knows(*mark)):
                    continue
                kinds = [instance for instance in inner if not instance.__struct_config__.tag_field]
                assert all(revision.knows(*instance.available) for instance in kinds), (
                    f"{kind.__name__}.{name}"
                )


def test_a_field_that_may_be_left_out_can_be() -> None:
    for kind in every_type():
        required = {one.name for one in structs.fields(kind) if one.required}
        assert required.isdisjoint(t.field_ranges(kind)), kind.__name__


def test_capabilities_are_no_closed_set(revision: Revision) -> None:  # D33
    for kind in (t.ClientCapabilities, t.ServerCapabilities):
        instance = kind(extensions={"com.example/x": {}}, experimental={"y": {}})
        assert shape(instance, revision) is instance


def test_a_rule_or_a_word_that_goes_by_the_name_of_a_type_has_its_type() -> None:
    for name in (*RULES, *RESULT_TYPES):
        assert issubclass(getattr(t, name), t.ProtocolType)


def test_names_that_the_protocol_gives_a_meaning_are_those_of_its_types() -> None:
    keys = {getattr(t, name) for name in t.__all__ if name.endswith("_KEY")}
    traced = {t.TRACEPARENT_KEY, t.TRACESTATE_KEY, t.BAGGAGE_KEY}
    assert set(reserved()) == keys - traced - {t.MODEL_IMMEDIATE_RESPONSE_KEY}


# ---------------------------------------------------------------- all of them, at random


def outgoing(revision: Revision) -> list[type[t.ProtocolType]]:
    kinds: set[type[t.ProtocolType]] = set()
    for row in revision.methods.values():
        kinds |= {row.params} | ({row.result} if row.result else set())
    if not revision.handshake:
        kinds |= {t.InputRequiredResult, t.ElicitResult, t.CreateMessageResult, t.ListRootsResult}
    return sorted(kinds, key=lambda kind: kind.__name__)


def unknown_names(value: Any, revision: Revision) -> list[str]:
    """What is still there and should not be."""
    found: list[str] = []
    if isinstance(value, t.ProtocolType):
        kind = type(value)
        if not revision.knows(*kind.available):
            found.append(kind.__name__)
        for one in structs.fields(value):
            inner = getattr(value, one.name)
            mark = t.field_ranges(kind).get(one.name)
            if mark is not None and not revision.knows(*mark) and inner is not one.default:
                found.append(f"{kind.__name__}.{one.name}")
            found += unknown_names(inner, revision)
    elif isinstance(value, list):
        found = [name for item in value for name in unknown_names(item, revision)]
    elif isinstance(value, dict):
        found = [name for item in value.values() for name in unknown_names(item, revision)]
    return found


# Drawing a whole protocol type is slow and may be large; neither is what is tested.
CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


def test_whatever_is_shaped_is_known_is_shaped_once_and_was_not_touched(revision: Revision) -> None:
    writer = Encoder(revision)
    drawn = st.one_of([type_strategies.instances(kind) for kind in outgoing(revision)])

    @settings(max_examples=250, suppress_health_check=CHECKS, derandomize=True)
    @given(drawn)
    def run(instance: t.ProtocolType) -> None:
        before = copy.deepcopy(to_builtins(instance))
        try:
            shaped = writer.downgrade(instance)
        except LocalProtocolError:
            assert isinstance(instance, t.ElicitRequestParams)
            assert instance.mode not in revision.elicitation.modes
            return
        assert to_builtins(instance) == before
        assert unknown_names(shaped, revision) == []
        assert writer.downgrade(shaped) is shaped
        if shaped == instance:
            assert shaped is instance

    run()
