"""Whole messages as they go out: the stamps of results, the envelope of requests, and no NaN."""

import json
from itertools import product
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import LARGE, MAX_KEPT, Encoder, encode_finite
from colonnade.protocol.revision import ALL, JULY_2026, NOVEMBER_2025, Revision

INFO = t.Implementation(name="us", version="1", title="Us", icons=[t.Icon(src="data:,")])
CAPABILITIES = t.ClientCapabilities(
    roots=t.RootsCapability(list_changed=True),
    sampling=t.SamplingCapability(tools={}),
    elicitation=t.ElicitationCapability(form={}, url={}),
)


def client(revision: Revision) -> Encoder:
    envelope = t.Envelope(version=revision.date, capabilities=CAPABILITIES, client_info=INFO)
    return Encoder(revision, None, envelope)


def server(revision: Revision) -> Encoder:
    return Encoder(revision, INFO)


def result(instance: t.ProtocolType, revision: Revision, **options: Any) -> dict[str, Any]:
    return json.loads(server(revision).result(instance, **options))


def params(instance: t.ProtocolType, revision: Revision) -> dict[str, Any]:
    return json.loads(client(revision).params(instance) or b"{}")


TASK: dict[str, Any] = {
    "task_id": "t",
    "status": "working",
    "created_at": "2026-01-01T00:00:00Z",
    "last_updated_at": "2026-01-01T00:00:00Z",
    "ttl_ms": None,
}
QUESTION = t.ElicitRequest(
    params=t.ElicitRequestParams(message="Who?", requested_schema=t.ElicitSchema(properties={}))
)

CALLED = t.CallToolResult(content=[t.TextContent(text="hello")])
TOOLS = t.ListToolsResult(tools=[])
PROMPTS = t.ListPromptsResult(prompts=[])
RESOURCES = t.ListResourcesResult(resources=[])
TEMPLATES = t.ListResourceTemplatesResult(resource_templates=[])
READ = t.ReadResourceResult(contents=[t.ResourceContents(uri="a:b", text="c")])
PROMPT = t.GetPromptResult(messages=[])
COMPLETED = t.CompleteResult(completion=t.Completion(values=[]))
DISCOVERED = t.DiscoverResult(
    supported_versions=["2026-07-28"], capabilities=t.ServerCapabilities()
)
LISTENED = t.SubscriptionsListenResult(meta={t.SUBSCRIPTION_ID_KEY: 7})
ASKING = t.InputRequiredResult(input_requests={"who": QUESTION})

COMPLETE = (
    CALLED,
    TOOLS,
    PROMPTS,
    RESOURCES,
    TEMPLATES,
    READ,
    PROMPT,
    COMPLETED,
    DISCOVERED,
    LISTENED,
    t.EmptyResult(),
)
CACHEABLE = (DISCOVERED, TOOLS, PROMPTS, RESOURCES, TEMPLATES, READ)


# ---------------------------------------------------------------- what a result is


@pytest.mark.spec("R0739", "R1043", "R1048", "R1056", "R1064", "R1069", "R1081", "R1089", "R1097")
@pytest.mark.spec("R1105", "R1118", "R1124", "R1135", "R1145")
@pytest.mark.parametrize("instance", COMPLETE, ids=lambda instance: type(instance).__name__)
def test_a_result_says_that_it_is_complete(revision: Revision, instance: t.Result) -> None:
    noted = replace(instance, meta=(instance.meta or {}) | {"com.example/note": 1})
    for given in (instance, noted, replace(instance, result_type="complete")):
        assert result(given, revision)["resultType"] == "complete"


@pytest.mark.spec("R0739", "R1073")
def test_a_result_that_asks_says_so(revision: Revision) -> None:
    for given in (
        ASKING,
        replace(ASKING, result_type="input_required"),
        replace(ASKING, meta={"a/b": 1}),
    ):
        assert result(given, revision)["resultType"] == "input_required"


@pytest.mark.spec("R1156")
def test_a_task_in_place_of_a_result_says_so(revision: Revision) -> None:
    task = t.ExtCreateTaskResult(**TASK)
    for given in (task, replace(task, result_type="task"), replace(task, meta={"a/b": 1})):
        shaped = result(given, revision)
        assert shaped["resultType"] == "task"
        assert shaped["taskId"] == "t"


@pytest.mark.spec("R1173", "R1189", "R1195")
def test_what_the_task_methods_answer_is_complete_whatever_the_task_is(revision: Revision) -> None:
    states: list[dict[str, Any]] = [
        {"status": "working"},
        {"status": "cancelled"},
        {"status": "input_required", "input_requests": {"who": QUESTION}},
        {"status": "completed", "result": Raw(b"{}")},
        {"status": "failed", "error": t.ErrorObject(code=1, message="m")},
    ]
    for state in states:
        found = result(t.ExtGetTaskResult(**(TASK | state)), revision)
        assert (found["resultType"], found["status"]) == ("complete", state["status"])
    for acknowledged in (t.ExtUpdateTaskResult(), t.ExtCancelTaskResult()):
        found = result(acknowledged, revision)
        assert set(found) == {"resultType", "_meta"}
        assert found["resultType"] == "complete"


@pytest.mark.spec("R1157")
@pytest.mark.parametrize(
    "instance", [*COMPLETE, ASKING], ids=lambda instance: type(instance).__name__
)
def test_no_other_result_passes_for_a_task(revision: Revision, instance: t.Result) -> None:
    with pytest.raises(LocalProtocolError, match="resultType"):
        server(revision).result(replace(instance, result_type="task"))


@pytest.mark.parametrize(
    ("instance", "word"),
    [
        (CALLED, "input_required"),
        (ASKING, "complete"),
        (t.ExtCreateTaskResult(**TASK), "complete"),
        (t.ExtGetTaskResult(**TASK), "task"),
    ],
)
def test_a_result_cannot_say_that_it_is_another(instance: t.Result, word: str) -> None:
    with pytest.raises(LocalProtocolError, match=word):
        server(JULY_2026).result(replace(instance, result_type=word))


def test_an_extension_may_have_its_own_kind_of_result() -> None:
    given = replace(CALLED, result_type="com.example/partial")
    assert result(given, JULY_2026)["resultType"] == "com.example/partial"


@pytest.mark.parametrize("older", ALL[:-1], ids=lambda revision: revision.date)
def test_older_revisions_get_no_stamps(older: Revision) -> None:
    for instance in (CALLED, TOOLS, PROMPTS, RESOURCES, TEMPLATES, READ, PROMPT, COMPLETED):
        stamped = replace(instance, result_type="complete", meta={t.SERVER_INFO_KEY: {}, "a/b": 1})
        if isinstance(stamped, t.CacheableResult):
            stamped = replace(stamped, ttl_ms=5, cache_scope="public")
        found = result(stamped, older)
        assert found == result(instance, older) | {"_meta": {"a/b": 1}}
        assert {"resultType", "ttlMs", "cacheScope"}.isdisjoint(found)
    assert result(t.EmptyResult(), older) == {}


# ---------------------------------------------------------------- who answers


@pytest.mark.spec("R0766", "R0952", "R1137", "R1147")
@pytest.mark.parametrize(
    "instance", [*COMPLETE, ASKING], ids=lambda instance: type(instance).__name__
)
def test_a_result_says_who_answers_unless_told_not_to(
    revision: Revision, instance: t.Result
) -> None:
    found = result(instance, revision)["_meta"]
    assert found[t.SERVER_INFO_KEY] == {
        "name": "us",
        "version": "1",
        "title": "Us",
        "icons": [{"src": "data:,"}],
    }
    if instance is LISTENED:
        assert found[t.SUBSCRIPTION_ID_KEY] == 7
    unnamed = json.loads(Encoder(revision).result(instance))
    assert t.SERVER_INFO_KEY not in unnamed.get("_meta", {})
    assert unnamed["resultType"]


def test_what_a_handler_says_in_meta_is_kept_beside_the_stamp() -> None:
    meta = {"com.example/a": {"b": None}, t.SERVER_INFO_KEY: {"name": "behind", "version": "2"}}
    instance = replace(CALLED, meta=meta)
    assert result(instance, JULY_2026)["_meta"] == meta
    assert instance.meta == meta


# ---------------------------------------------------------------- how long it keeps


@pytest.mark.spec("R0996", "R0997", "R0998", "R0999", "R1000", "R1001")
@pytest.mark.parametrize("instance", CACHEABLE, ids=lambda instance: type(instance).__name__)
def test_a_result_that_may_be_kept_says_how_long_and_for_whom(
    revision: Revision, instance: t.CacheableResult
) -> None:
    plain = result(instance, revision)
    assert (plain["ttlMs"], plain["cacheScope"]) == (0, "private")
    given = result(replace(instance, ttl_ms=5000, cache_scope="public", meta={"a/b": 1}), revision)
    assert (given["ttlMs"], given["cacheScope"]) == (5000, "public")
    assert {"ttlMs", "cacheScope"}.isdisjoint(result(ASKING, revision))


@pytest.mark.spec("R0996", "R0997", "R0998", "R0999", "R1000", "R1001")
def test_the_methods_whose_results_may_be_kept_are_those_whose_types_say_so(
    revision: Revision,
) -> None:
    kept = {name for name, row in revision.methods.items() if row.cacheable}
    protocol_types = {type(instance) for instance in CACHEABLE}
    assert kept == {name for name, row in revision.methods.items() if row.result in protocol_types}
    assert len(kept) == 6


@pytest.mark.spec("R1011")
@pytest.mark.parametrize("instance", CACHEABLE, ids=lambda instance: type(instance).__name__)
def test_a_result_never_keeps_for_less_than_no_time(
    revision: Revision, instance: t.CacheableResult
) -> None:
    for ttl_ms, sent in ((None, 0), (-1, 0), (-(2**40), 0), (0, 0), (1, 1)):
        assert result(replace(instance, ttl_ms=ttl_ms), revision)["ttlMs"] == sent


# ---------------------------------------------------------------- names of the protocol in `_meta`


@pytest.mark.parametrize("older", ALL[:-1], ids=lambda revision: revision.date)
def test_an_older_peer_never_sees_what_would_make_a_message_look_modern(older: Revision) -> None:
    modern = {
        t.PROTOCOL_VERSION_KEY: "2026-07-28",
        t.CLIENT_CAPABILITIES_KEY: {},
        t.CLIENT_INFO_KEY: {},
        t.LOG_LEVEL_KEY: "info",
        t.SUBSCRIPTION_ID_KEY: 1,
        t.SERVER_INFO_KEY: {},
    }
    kept = {"com.example/a": 1, t.PROGRESS_TOKEN_KEY: 3, "traceparent": "00"}
    for made in (t.RequestParams, t.NotificationParams):
        assert params(made(meta=modern | kept), older) == {"_meta": kept}
        assert client(older).params(made(meta=dict(modern))) == b""
    assert result(replace(CALLED, meta=modern | kept), older)["_meta"] == kept
    root = t.ListRootsResult(roots=[], meta=modern | kept)
    assert json.loads(client(older).result(root))["_meta"] == kept


def test_a_related_task_is_named_only_where_there_are_such_tasks(revision: Revision) -> None:
    instance = t.RequestParams(meta={t.RELATED_TASK_KEY: {"taskId": "t"}, "a/b": 1})
    found = params(instance, revision)["_meta"]
    assert (t.RELATED_TASK_KEY in found) == (revision is NOVEMBER_2025)
    assert found["a/b"] == 1


# ---------------------------------------------------------------- what cannot be said


@pytest.mark.parametrize(
    ("instance", "dates"),
    [
        (DISCOVERED, ["2026-07-28"]),
        (ASKING, ["2026-07-28"]),
        (LISTENED, ["2026-07-28"]),
        (t.ExtCreateTaskResult(**TASK), ["2026-07-28"]),
        (t.ListTasksResult(tasks=[]), ["2025-11-25"]),
        (t.ElicitResult(action="decline"), ["2025-06-18", "2025-11-25", "2026-07-28"]),
        (t.EmptyResult(), [revision.date for revision in ALL]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, t.ProtocolType) else "",
)
def test_a_result_that_a_revision_does_not_have_is_not_sent(
    instance: t.ProtocolType, dates: list[str]
) -> None:
    for revision in ALL:
        if revision.date in dates:
            assert server(revision).result(instance)
        else:
            with pytest.raises(LocalProtocolError, match=f"in {revision.date}"):
                server(revision).result(instance)


def test_params_that_a_revision_does_not_have_are_not_sent(revision: Revision) -> None:
    hello = t.InitializeRequestParams(
        protocol_version=revision.date, capabilities=CAPABILITIES, client_info=INFO
    )
    listen = t.SubscriptionsListenRequestParams(notifications=t.SubscriptionFilter())
    good, bad = (hello, listen) if revision.handshake else (listen, hello)
    for _ in range(2):
        assert client(revision).params(good)
        with pytest.raises(LocalProtocolError):
            client(revision).params(bad)


def test_a_notification_of_tasks_is_asked_for_only_by_who_speaks_of_tasks() -> None:
    wish = t.SubscriptionsListenRequestParams(
        notifications=t.SubscriptionFilter(tools_list_changed=True, task_ids=["t"])
    )
    assert params(wish, JULY_2026)["notifications"] == {"toolsListChanged": True}
    assert wish.notifications.task_ids == ["t"]
    speaks = replace(CAPABILITIES, extensions={t.TASKS_EXTENSION_ID: {}})
    writer = Encoder(JULY_2026, None, t.Envelope(version="2026-07-28", capabilities=speaks))
    assert json.loads(writer.params(wish))["notifications"]["taskIds"] == ["t"]
    # A server says what it agreed to, which its subscription has looked at.
    agreed = t.SubscriptionsAcknowledgedNotificationParams(notifications=wish.notifications)
    assert json.loads(server(JULY_2026).params(agreed))["notifications"]["taskIds"] == ["t"]


STRANGE = (float("nan"), float("inf"), float("-inf"))


@pytest.mark.parametrize("number", STRANGE, ids=str)
def test_a_number_that_is_none_is_refused_with_its_place(revision: Revision, number: float) -> None:
    deep = {"rows": [{"a": None}, {"b": [1.5, number]}]}
    if revision.output_root.name != "NONE":
        called = t.CallToolResult(content=[], structured_content=deep)
        with pytest.raises(LocalProtocolError, match=r"rows\[1\]\.b\[1\].*NaN"):
            server(revision).result(called)
    told = t.LoggingMessageNotificationParams(level="info", data=number)
    with pytest.raises(LocalProtocolError, match="at `data`"):
        server(revision).params(told)
    with pytest.raises(LocalProtocolError, match="_meta"):
        server(revision).result(t.CallToolResult(content=[], meta={"a/b": deep}))


def test_null_and_text_that_speaks_of_null_are_sent() -> None:
    good = {"null": None, "b": [1.5, -0.0, 1e308, 2**70, "NaN"], "c": "null"}
    called = t.CallToolResult(content=[t.TextContent(text="null")], structured_content=good)
    assert result(called, JULY_2026)["structuredContent"] == good


def test_a_strange_number_beside_what_message_pack_cannot_hold_is_found_all_the_same() -> None:
    with pytest.raises(LocalProtocolError, match=r"structuredContent\[1\]"):
        result(t.CallToolResult(content=[], structured_content=[2**70, float("nan")]), JULY_2026)


def test_a_whole_number_with_the_bytes_of_a_strange_one_is_sent() -> None:
    value = [None, int.from_bytes(b"\x00\xcb\x7f\xf0\x00\x00\x00\x01", "big")]
    called = t.CallToolResult(content=[], structured_content=value)
    assert result(called, JULY_2026)["structuredContent"] == value


def test_what_json_cannot_hold_is_refused_in_words() -> None:
    for value in (object(), {1: object()}, "\ud800"):
        with pytest.raises(LocalProtocolError, match="cannot be encoded as JSON"):
            encode_finite(t.CallToolResult(content=[], structured_content=value))


# ---------------------------------------------------------------- large results

LONG = "x" * (LARGE + 1)
WORDS = 'x\n"é' * LARGE


@pytest.mark.parametrize(
    "instance",
    [
        t.CallToolResult(content=[t.TextContent(text=LONG)]),
        t.CallToolResult(content=[], structured_content=Raw(b'{"a":"%b"}' % LONG.encode())),
        t.CallToolResult(content=[t.TextContent(text=LONG)], meta={"com.example/a": 1}),
        t.CallToolResult(content=[t.TextContent(text=LONG)], structured_content={"a": None}),
        t.CallToolResult(content=[t.TextContent(text=LONG), t.TextContent(text="b")]),
        t.CallToolResult(content=[t.TextContent(text=WORDS)], structured_content=WORDS),
        t.CallToolResult(
            content=[t.TextContent(text=WORDS, annotations=t.Annotations(priority=0.5))],
            structured_content=WORDS,
        ),
        t.CallToolResult(content=[t.TextContent(text=WORDS)], structured_content={"result": WORDS}),
        t.CallToolResult(content=[t.TextContent(text=WORDS)], structured_content={"other": WORDS}),
        t.CallToolResult(content=[t.TextContent(text=WORDS)], structured_content=WORDS[:-1] + "y"),
        t.CallToolResult(
            content=[t.TextContent(text=LONG, annotations=t.Annotations(priority=0.5))]
        ),
    ],
)
def test_a_large_result_says_what_a_small_one_says(
    revision: Revision, instance: t.CallToolResult
) -> None:
    message = json.loads(server(revision).response(b"7", instance))
    assert message == {"jsonrpc": "2.0", "id": 7, "result": result(instance, revision)}


@pytest.mark.parametrize("number", STRANGE, ids=str)
def test_a_number_that_is_none_is_found_in_a_large_result(number: float) -> None:
    for instance in (
        t.CallToolResult(content=[t.TextContent(text=LONG)], structured_content=[number]),
        t.CallToolResult(content=[t.TextContent(text=LONG)], meta={"com.example/a": number}),
    ):
        with pytest.raises(LocalProtocolError, match="NaN"):
            server(JULY_2026).response(b"7", instance)


def test_a_line_break_in_data_that_was_written_already_does_not_break_the_line() -> None:
    data = Raw(b'{"a":\n"%b"}' % LONG.encode())
    line = server(JULY_2026).response(b"7", t.CallToolResult(content=[], structured_content=data))
    assert b"\n" not in line


# ---------------------------------------------------------------- what a shaper costs


def test_the_usual_result_is_written_as_it_came() -> None:
    for revision in ALL:
        if revision.knows("2025-06-18", None):
            assert server(revision).downgrade(CALLED) is CALLED


# ---------------------------------------------------------------- lists that are asked for again


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_the_very_same_list_again_is_the_very_same_bytes(revision: Revision) -> None:
    shaper = Encoder(revision, t.Implementation(name="s", version="1"))
    tool = t.Tool(name="a", input_schema={"type": "object"})
    listed = t.ListToolsResult(tools=[tool])
    first = shaper.result(listed)
    assert shaper.result(listed) is first
    assert shaper.result(t.ListToolsResult(tools=[tool])) == first
    other = t.ListToolsResult(tools=[tool], next_cursor="x")
    assert shaper.result(other) != first
    assert shaper.result(listed, JULY_2026) == Encoder(
        revision, t.Implementation(name="s", version="1")
    ).result(listed, JULY_2026)


def test_so_many_lists_are_kept_and_no_more() -> None:
    shaper = Encoder(JULY_2026)
    lists = [t.ListPromptsResult(prompts=[], next_cursor=str(n)) for n in range(2 * MAX_KEPT)]
    for listed in lists:
        shaper.result(listed)
        assert len(shaper._kept) <= MAX_KEPT
    assert json.loads(shaper.result(lists[0]))["nextCursor"] == "0"


@pytest.mark.parametrize("revision", ALL, ids=lambda one: one.date)
def test_a_whole_response_has_the_result_that_a_result_alone_has(revision: Revision) -> None:
    contents: list[list[t.ContentBlock]] = [[], [t.TextContent(text="3")]]
    values: list[Any] = [3, {"sum": 3}]
    for content, value in product(contents, values):
        called = t.CallToolResult(content=content, structured_content=value)
        response = json.loads(server(revision).response(b"7", called))
        assert response["id"] == 7
        assert response["result"] == result(called, revision)
