"""One request's life: what may be said while it runs, and exactly one answer."""

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from colonnade.errors import Fault, FaultKind, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import (
    Exchange,
    NonHttpRequestFields,
    RequestFields,
    check_task_support,
    decode_result,
)
from colonnade.protocol.forwarded import RelayedToolResult, ResultOrigin
from colonnade.protocol.methods import (
    CALL_TOOL,
    GET_PROMPT,
    replace,
)
from colonnade.protocol.negotiation import MAX_TOKEN_CHARACTERS, Callers, Peer
from colonnade.protocol.revision import ALL, BadToolInput, LogControl, Revision, Tasks
from protocol.input_requests import ROOTS, SEAT, text
from protocol.links import (
    ABLE_CLIENT,
    ABLE_SERVER,
    JSON,
    call,
    decoded,
    envelope,
    line,
    opened,
    refusal,
    request,
    served,
    state,
)

DONE = text("done")
ENVELOPED = [revision for revision in ALL if not revision.handshake][-1]
TASKS = {"extensions": {t.TASKS_EXTENSION_ID: {}}}
LOUD: JSON = {t.LOG_LEVEL_KEY: "debug"}


def running(revision: Revision, can: Any = None, id: Any = 1, **meta: Any) -> Exchange:
    """A call that a stranger made."""
    return call(served(revision), request(revision, id, "tools/call", {"name": "n"}, can, **meta))


def raw_call(revision: Revision, meta: str) -> bytes:
    """A call whose `_meta` is written by hand, the envelope put before it."""
    before = json.dumps(envelope(revision))[1:-1]
    inside = f"{before},{meta}" if before else meta
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","_meta":{%b}}}'
        % inside.encode()
    )


# ---------------------------------------------------------------- what it says


class Fields(NonHttpRequestFields):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange


class FieldsOverHttp(RequestFields):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange


def test_a_request_is_read_by_fields_and_nothing_that_is_changed_in_them_stays(
    revision: Revision,
) -> None:
    params = {"name": "n", "arguments": {"a": 1}}
    fields = Fields(call(served(revision), request(revision, 1, "tools/call", params)))
    assert (fields.method, fields.tool, fields.principal) == ("tools/call", "n", "")
    assert fields.peer.revision is revision
    assert (dict(fields.claims), dict(fields.headers), fields.debug) == ({}, {}, False)
    assert (fields.task_journal, fields.input_relay) == (None, None)
    assert fields.callers is Callers.SINGLE
    assert FieldsOverHttp(fields.exchange).callers is Callers.ANONYMOUS
    fields.arguments["a"] = 2
    assert fields.arguments == {"a": 1}
    assert fields.params["name"] == "n"
    listed = Fields(call(served(revision), request(revision, 1, "tools/list")))
    assert (listed.tool, listed.arguments) == (None, {})
    assert listed.params.keys() <= {"_meta"}


def test_a_response_that_was_encoded_elsewhere_settles_a_request_once(revision: Revision) -> None:
    server = served(revision)
    exchange = call(server, request(revision, 1, "tools/call", {"name": "n"}))
    response = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert exchange.settle_encoded(response) == response
    assert exchange.settled
    assert exchange.settle_encoded(response) is None


def test_a_result_of_another_server_settles_a_request_once(revision: Revision) -> None:
    raw = Raw(b'{"content":[],"vendor":1}')
    for kind in (t.CallToolResult, RelayedToolResult):
        exchange = running(revision)
        result = decode_result(CALL_TOOL, raw, exchange.peer, tool_result=kind)
        origin = ResultOrigin("s")
        origin.received(revision, raw, result)
        origin.settle(result, result)
        response = decoded(exchange.settle_forwarded(result, origin))
        assert (response["id"], response["result"]["vendor"]) == (1, 1)
        assert exchange.settle_forwarded(result, origin) is None


def test_a_relayed_result_of_another_method_is_no_answer(revision: Revision) -> None:
    exchange = call(served(revision), request(revision, 1, "prompts/get", {"name": "n"}))
    with pytest.raises(LocalProtocolError):
        exchange.settle_forwarded(RelayedToolResult(content=[]), ResultOrigin("s"))


def test_structured_content_of_a_relayed_result_is_decoded_when_it_is_read() -> None:
    raw = Raw(b'{"content":[],"structuredContent":{"a":1}}')
    peer = Peer(ENVELOPED, t.ServerCapabilities())
    result = decode_result(CALL_TOOL, raw, peer, tool_result=RelayedToolResult)
    assert isinstance(result, RelayedToolResult)
    assert result.structured_content == {"a": 1}
    assert RelayedToolResult(content=[]).structured_content is UNSET
    members: dict[str, Any] = {"structured_content": {"a": 2}}  # as a middleware sets it
    changed = RelayedToolResult(content=[], **members)
    assert changed.structured_content == {"a": 2}


def test_a_result_that_nothing_reads_is_made_of_its_members(revision: Revision) -> None:
    raw = Raw(b'{"content":[{"type":"text"}]}')  # which is not valid, and not looked at
    members = {"content": Raw(b'[{"type":"text"}]')}
    origin = ResultOrigin("s", reader=revision)
    assert origin.unread(raw, revision) is None  # its members were not found
    origin.found_members(raw, members)
    assert isinstance(origin.unread(raw, revision), RelayedToolResult)
    assert origin.unread(Raw(bytes(raw)), revision) is None  # another response
    for reader in {None, *ALL} - {revision}:  # something else reads it, too
        assert ResultOrigin("s", reader=reader, split=(raw, members)).unread(raw, revision) is None
    members["content"] = Raw(b"{}")
    assert origin.unread(raw, revision) is None


def test_an_error_of_another_server_settles_a_request_once(revision: Revision) -> None:
    exchange = running(revision)
    error = decoded(exchange.pass_error(-32099, "no", {"a": 1}))["error"]
    assert error == {"code": -32099, "message": "no", "data": {"a": 1}}
    assert exchange.pass_error(-32099, "no", None) is None
    assert "data" not in decoded(running(revision).pass_error(-32099, "no", None))["error"]


# ---------------------------------------------------------------- progress


@pytest.mark.spec("R0075")
def test_a_progress_token_is_a_string_or_an_integer(revision: Revision) -> None:
    for token in (7, "7", "", 0, -1, 2**70, "x" * MAX_TOKEN_CHARACTERS):
        exchange = running(revision, progressToken=token)
        assert decoded(exchange.progress(1))["params"]["progressToken"] == token
    server = served(revision)
    for bad in (
        "1.5",
        "true",
        "[]",
        "{}",
        f'"{"x" * (MAX_TOKEN_CHARACTERS + 1)}"',
        "1" + "0" * 5000,
    ):
        before = state(server)
        error = refusal(server.receive(raw_call(revision, f'"progressToken":{bad}'), 0.0))
        assert error["code"] == -32602
        assert state(server) == before


def test_a_progress_token_is_read_however_it_is_written(revision: Revision) -> None:
    server = served(revision)
    exchange = call(server, raw_call(revision, '"progress\\u0054oken":"a"'))
    assert exchange.progress_token == "a"
    twice = '"progressToken":"a","progress\\u0054oken":"b"'
    assert refusal(served(revision).receive(raw_call(revision, twice), 0.0))["code"] == -32602
    assert running(revision, progressToken=None).progress_token is None
    assert call(served(revision), raw_call(revision, '"a":"\\u0041"')).progress_token is None


@pytest.mark.spec("R0080")
def test_progress_that_is_sent_goes_up(revision: Revision) -> None:
    exchange = running(revision, progressToken="p")
    sent = [
        decoded(exchange.progress(value, 10))["params"]["progress"] for value in (-1, 0, 0.5, 7)
    ]
    assert sent == [-1, 0, 0.5, 7]
    for value in (7, 6.9, -5):
        with pytest.raises(LocalProtocolError, match="must increase"):
            exchange.progress(value)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(LocalProtocolError, match="finite"):
            exchange.progress(wrong)
        with pytest.raises(LocalProtocolError, match="finite"):
            exchange.progress(8, wrong)
    if revision.knows("2025-03-26", None):
        with pytest.raises(LocalProtocolError, match="JSON"):
            exchange.progress(8, message="\ud800")
    assert decoded(exchange.progress(8))["params"]["progress"] == 8  # none of them counted
    assert decoded(exchange.progress(10**400)) is not None


@pytest.mark.spec("R0082", "R0086")
def test_progress_goes_to_a_token_of_a_running_request_and_to_no_other(revision: Revision) -> None:
    assert running(revision).progress(1) is None
    for end in ("settle", "fail", "abandon"):
        exchange = running(revision, progressToken="p")
        assert exchange.progress(1) is not None
        {
            "settle": lambda e=exchange: e.settle(DONE),
            "fail": lambda e=exchange: e.fail(Fault(FaultKind.INTERNAL, "no")),
            "abandon": exchange.abandon,
        }[end]()
        assert exchange.progress(2) is None


def test_words_of_progress_go_where_they_are_known(revision: Revision) -> None:
    exchange = running(revision, progressToken="p")
    params = decoded(exchange.progress(1, 2, "half"))["params"]
    words = {"message": "half"} if revision.knows("2025-03-26", None) else {}
    assert params == {"progressToken": "p", "progress": 1, "total": 2} | words


# ---------------------------------------------------------------- log messages


def level_of(revision: Revision, level: str | None) -> Exchange:
    """A call of somebody who wants this level, said the way that the revision has."""
    if revision.log_control is LogControl.PER_REQUEST:
        return running(revision, **({t.LOG_LEVEL_KEY: level} if level else {}))
    server = served(revision)
    if level is not None:
        server.receive(line(id=0, method="logging/setLevel", params={"level": level}), 0.0)
    return call(server, request(revision, 1, "tools/call", {"name": "n"}))


@pytest.mark.spec("R1033", "R1132")
def test_without_a_level_in_the_request_nothing_is_logged_to_its_sender(revision: Revision) -> None:
    exchange = level_of(revision, None)
    assert [exchange.log(level, "x") for level in t.LOGGING_LEVELS] == [None] * 8
    for at, wanted in enumerate(t.LOGGING_LEVELS):
        exchange = level_of(revision, wanted)
        heard = [level for level in t.LOGGING_LEVELS if exchange.log(level, "x") is not None]
        assert heard == list(t.LOGGING_LEVELS[at:])


def test_a_session_hears_what_it_asked_for_and_the_usual_before(revision: Revision) -> None:
    if revision.log_control is LogControl.BY_METHOD:
        quiet = level_of(revision, None)
        assert (quiet.log("debug", "x"), quiet.wants("info")) == (None, True)
        assert level_of(revision, "error").log("warning", "x") is None
        assert decoded(level_of(revision, "debug").log("debug", {"a": [1]}, "db"))["params"] == {
            "level": "debug",
            "data": {"a": [1]},
            "logger": "db",
        }


@pytest.mark.spec("R1035")
def test_a_log_message_goes_with_the_request_that_asked_for_it_and_never_to_a_listener(
    revision: Revision,
) -> None:
    server = served(revision)
    loud = call(server, request(revision, 1, "tools/call", {"name": "n"}, **LOUD))
    quiet = call(server, request(revision, 2, "tools/call", {"name": "n"}))
    listen = request(
        revision,
        3,
        "subscriptions/listen",
        {"notifications": {"toolsListChanged": True}},
        **LOUD,
    )
    listener = call(server, listen)
    assert loud.log("info", "x") is not None
    assert quiet.log("emergency", "x") is None
    assert listener.log("emergency", "x") is None
    with pytest.raises(LocalProtocolError):
        server.notify(
            "notifications/message", t.LoggingMessageNotificationParams(level="error", data=1)
        )


@pytest.mark.spec("R1199")
def test_a_listener_for_tasks_hears_neither_progress_nor_log() -> None:
    params = {"notifications": {"taskIds": ["t1"]}}
    meta = {t.LOG_LEVEL_KEY: "debug", "progressToken": "p"}
    listen = request(ENVELOPED, 1, "subscriptions/listen", params, TASKS, **meta)
    exchange = call(served(ENVELOPED), listen)
    assert exchange.progress(1) is None
    assert exchange.log("emergency", "x") is None


@pytest.mark.spec("R0153")
def test_a_server_that_did_not_declare_logging_logs_to_nobody(revision: Revision) -> None:
    server = served(revision, server_can=t.ServerCapabilities(tools=t.ToolsCapability()))
    loud: JSON = {} if revision.handshake else LOUD
    exchange = call(server, request(revision, 1, "tools/call", {"name": "n"}, **loud))
    assert [exchange.log(level, "x") for level in t.LOGGING_LEVELS] == [None] * 8
    declared = call(served(revision), request(revision, 1, "tools/call", {"name": "n"}, **loud))
    assert declared.log("emergency", "x") is not None
    if revision.handshake:
        message = t.LoggingMessageNotificationParams(level="error", data=1)
        with pytest.raises(LocalProtocolError, match="needs logging"):
            server.notify("notifications/message", message)
        client, asking = opened(revision)
        asked = call(client, asking.request("roots/list", now=0.0)[1])
        assert asked.log("emergency", "x") is None  # a client has nobody to log to


def test_an_unknown_block_is_passed_on_to_the_revision_that_it_came_from(
    revision: Revision,
) -> None:
    """D18: to others it is words."""
    block = t.UnknownContent(whole=t.UnknownMembers({"type": "hologram", "data": 7}))
    result = t.CallToolResult(content=[block])
    kept = decoded(running(revision).settle(result, origin=revision))["result"]["content"]
    assert kept == [{"type": "hologram", "data": 7}]
    words = decoded(running(revision).settle(result))["result"]["content"]
    assert words[0]["type"] == "text"


def test_nothing_is_logged_after_the_end(revision: Revision) -> None:
    exchange = level_of(revision, "debug")
    exchange.settle(DONE)
    assert exchange.log("emergency", "x") is None


# ---------------------------------------------------------------- one answer


@pytest.mark.spec("R0034")
@pytest.mark.parametrize(
    "raw_id", ["7", '"7"', "7.0", '"\\u0041"', '"a\\/b"', "-0", '""', str(2**70)]
)
def test_an_answer_has_the_id_of_its_request_byte_for_byte(revision: Revision, raw_id: str) -> None:
    body = request(revision, "ID", "tools/call", {"name": "n"}).replace(b'"ID"', raw_id.encode())
    start = b'{"jsonrpc":"2.0","id":%b,' % raw_id.encode()
    for end in (lambda e: e.settle(DONE), lambda e: e.fail(Fault(FaultKind.INTERNAL, "no"))):
        answer = end(call(served(revision), body))
        assert answer.startswith(start)


def test_the_first_answer_is_the_only_one(revision: Revision) -> None:
    fault = Fault(FaultKind.INTERNAL, "no")
    exchange = running(revision)
    assert exchange.settle(DONE) is not None
    assert (exchange.settle(DONE), exchange.fail(fault), exchange.abandon()) == (None, None, None)
    assert exchange.refuse_arguments(fault) is None
    exchange = running(revision)
    assert exchange.fail(fault) is not None
    assert exchange.settle(DONE) is None
    exchange = running(revision)
    assert exchange.abandon() is None
    assert exchange.settle(DONE) is None


def test_what_cannot_be_written_leaves_the_request_open(revision: Revision) -> None:
    exchange = running(revision)
    with pytest.raises(LocalProtocolError, match="JSON"):
        exchange.settle(t.CallToolResult(content=[], meta={"a": object()}))
    with pytest.raises(LocalProtocolError, match="JSON"):
        exchange.fail(Fault(FaultKind.INTERNAL, "no", {"a": object()}))
    assert not exchange.settled
    assert exchange.settle(DONE) is not None


def test_an_exchange_without_a_link_writes_its_own_answer(revision: Revision) -> None:
    linked = running(revision)
    alone = Exchange(
        linked.request, linked.params, linked.method, linked.peer, linked.encoder, "ada"
    )
    assert alone.principal == "ada"
    assert alone.settle(DONE) == linked.settle(DONE)
    fault = Fault(FaultKind.INTERNAL, "no")
    assert (alone.settle(DONE), alone.fail(fault), alone.abandon()) == (None, None, None)
    gone = Exchange(linked.request, linked.params, linked.method, linked.peer, linked.encoder)
    assert gone.abandon() is None
    assert gone.settled
    assert gone.fail(fault) is None


def test_a_result_of_another_method_is_no_answer(revision: Revision) -> None:
    exchange = running(revision)
    for wrong in (t.EmptyResult(), t.ListToolsResult(tools=[]), t.ElicitResult(action="accept")):
        with pytest.raises(LocalProtocolError, match="is not a result of"):
            exchange.settle(wrong)
    assert not exchange.settled


@pytest.mark.spec("R0347", "R1110")
def test_a_reserved_key_that_we_do_not_know_may_hold_anything(revision: Revision) -> None:
    for key in ("io.modelcontextprotocol/made-up", "com.mcp.tools/x", t.RELATED_TASK_KEY):
        for value in (None, 7, [], {}, "x", True, {"taskId": 7}):
            exchange = running(revision, **{key: value})
            assert json.loads(bytes(exchange.params.meta))[key] == value
            assert exchange.settle(DONE) is not None


def test_data_of_an_error_fits_the_revision(revision: Revision) -> None:
    instance = t.Tool(name="n", input_schema={"type": "object"}, title="N")
    error = decoded(running(revision).fail(Fault(FaultKind.INTERNAL, "no", instance)))["error"]
    titled = {"title": "N"} if revision.knows("2025-06-18", None) else {}
    assert error["data"].items() >= titled.items()
    assert ("title" in error["data"]) is bool(titled)
    assert error["code"] == -32603


def test_arguments_that_do_not_fit_are_refused_as_the_revision_wants(revision: Revision) -> None:
    answer = decoded(running(revision).refuse_arguments(Fault(FaultKind.INVALID_PARAMS, "no n")))
    if revision.bad_tool_input is BadToolInput.ERROR:
        assert (answer["error"]["code"], answer["error"]["message"]) == (-32602, "no n")
    else:
        assert answer["result"]["isError"] is True
        assert answer["result"]["content"] == [{"type": "text", "text": "no n"}]


# ---------------------------------------------------------------- demands


def demand(**more: Any) -> t.InputRequiredResult:
    return t.InputRequiredResult(result_type="input_required", **more)


@pytest.mark.spec("R0785")
def test_only_calls_prompts_and_reads_are_answered_with_a_demand(revision: Revision) -> None:
    asks = demand(request_state="s")
    for method, params in (
        ("tools/call", {"name": "n"}),
        ("prompts/get", {"name": "n"}),
        ("resources/read", {"uri": "file:///a"}),
    ):
        exchange = call(served(revision), request(revision, 1, method, params))
        assert decoded(exchange.settle(asks))["result"]["resultType"] == "input_required"
    for method, params in (
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("server/discover", {}),
        ("completion/complete", {}),
        ("subscriptions/listen", {"notifications": {}}),
    ):
        exchange = call(served(revision), request(revision, 1, method, params))
        with pytest.raises(LocalProtocolError, match="input_required"):
            exchange.settle(asks)


def test_a_session_is_never_answered_with_a_demand(revision: Revision) -> None:
    if revision.handshake:
        with pytest.raises(LocalProtocolError, match="input_required"):
            running(revision).settle(demand(request_state="s"))


@pytest.mark.spec("R0797")
def test_a_demand_has_questions_or_a_state(revision: Revision) -> None:
    with pytest.raises(ValueError, match="inputRequests"):
        demand()
    able = {"roots": {}}
    for good in (
        demand(request_state="s"),
        demand(input_requests={"k": ROOTS.as_input()}),
        demand(input_requests={"k": ROOTS.as_input()}, request_state="s"),
    ):
        result = decoded(running(revision, able).settle(good))["result"]
        assert result.keys() & {"inputRequests", "requestState"}


@pytest.mark.spec("R0798", "R0799")
def test_a_demand_written_by_hand_asks_for_nothing_undeclared_either(revision: Revision) -> None:
    asks = demand(input_requests={"a": ROOTS.as_input(), "b": SEAT.as_input()})
    for can in ({}, {"roots": {}}, {"elicitation": {"url": {}}, "roots": {}}):
        exchange = running(revision, can)
        with pytest.raises(LocalProtocolError, match="has not declared"):
            exchange.settle(asks)
        assert not exchange.settled
    assert running(revision, {"roots": {}, "elicitation": {}}).settle(asks) is not None


# ---------------------------------------------------------------- tasks

TASK = {
    "task_id": "t1",
    "status": "working",
    "created_at": "2026-01-01T00:00:00Z",
    "last_updated_at": "2026-01-01T00:00:00Z",
}
HANDLE = t.ExtCreateTaskResult(result_type="task", ttl_ms=None, **TASK)  # type: ignore[arg-type]
CORE_HANDLE = t.CreateTaskResult(task=t.Task(ttl=None, **TASK))  # type: ignore[arg-type]


@pytest.mark.spec("R1151")
def test_a_task_goes_only_to_a_request_that_declared_the_extension_itself() -> None:
    server = served(ENVELOPED)
    declared = call(server, request(ENVELOPED, 1, "tools/call", {"name": "n"}, TASKS))
    silent = call(server, request(ENVELOPED, 2, "tools/call", {"name": "n"}))
    with pytest.raises(LocalProtocolError, match="cannot become a task"):
        silent.settle(HANDLE)
    assert decoded(declared.settle(HANDLE))["result"]["resultType"] == "task"
    with pytest.raises(LocalProtocolError, match="cannot become a task"):
        silent.settle(HANDLE)  # whatever was declared before
    assert silent.settle(DONE) is not None


@pytest.mark.spec("R1153", "R1155")
def test_which_requests_may_become_tasks_is_said_by_their_row() -> None:
    peer = Peer(ENVELOPED, ABLE_SERVER)
    ours = frozenset({t.TASKS_EXTENSION_ID})
    raw = Raw(served(ENVELOPED).encoder(ENVELOPED).result(HANDLE))
    rows = {**ENVELOPED.methods, **ENVELOPED.extensions[t.TASKS_EXTENSION_ID]}
    deferring = [row.name for row in rows.values() if row.may_become_task]
    assert deferring == ["tools/call"]
    for row in rows.values():
        if row.result is not None and not row.may_become_task:
            with pytest.raises(Fault, match="resultType"):
                decode_result(row, raw, peer, ours)
    later = replace(GET_PROMPT, may_become_task=True)
    assert isinstance(decode_result(later, raw, peer, ours), t.ExtCreateTaskResult)
    listing = call(served(ENVELOPED), request(ENVELOPED, 1, "tools/list", can=TASKS))
    with pytest.raises(LocalProtocolError, match="cannot become a task"):
        listing.settle(HANDLE)


@pytest.mark.spec("R1152")
def test_a_call_comes_to_a_result_or_to_a_task_as_its_result_type_says() -> None:
    peer, ours = Peer(ENVELOPED, ABLE_SERVER), frozenset({t.TASKS_EXTENSION_ID})
    shaper = served(ENVELOPED).encoder(ENVELOPED)
    done = decode_result(CALL_TOOL, Raw(shaper.result(DONE)), peer, ours)
    assert isinstance(done, t.CallToolResult)
    task = decode_result(CALL_TOOL, Raw(shaper.result(HANDLE)), peer, ours)
    assert isinstance(task, t.ExtCreateTaskResult)
    assert task.task_id == "t1"


@pytest.mark.spec("R1190")
def test_a_call_that_became_a_task_is_not_cancelled_by_its_id() -> None:
    client, server = opened(ENVELOPED)
    id, data = client.request("tools/call", t.CallToolRequestParams(name="n"), now=0.0)
    handle = call(server, data).settle(HANDLE)
    assert handle is not None
    assert client.receive(handle, 0.0)
    assert client.cancel(id) is None
    before = state(server)
    late = line(method="notifications/cancelled", params={"requestId": id})
    assert [type(event).__name__ for event in server.receive(late, 0.0)] == ["MessageIgnored"]
    assert state(server) == before


def test_a_task_of_the_core_is_an_answer_where_the_core_has_tasks(revision: Revision) -> None:
    exchange = running(revision)
    if revision.tasks is Tasks.CORE:
        assert decoded(exchange.settle(CORE_HANDLE))["result"]["task"]["taskId"] == "t1"
    else:
        with pytest.raises(LocalProtocolError, match="cannot become a task"):
            exchange.settle(CORE_HANDLE)
        with pytest.raises(LocalProtocolError, match="cannot become a task"):
            exchange.settle(HANDLE)
    if revision.handshake:  # where an extension is declared, and not the revision's own
        session = served(revision, can=TASKS)
        with pytest.raises(LocalProtocolError, match="cannot become a task"):
            call(session, request(revision, 1, "tools/call", {"name": "n"})).settle(HANDLE)
        client, server = opened(revision)
        question = call(client, server.request("roots/list", now=0.0)[1])
        if revision.tasks is Tasks.CORE:
            assert question.settle(CORE_HANDLE) is not None


def test_the_payload_of_a_task_is_the_result_of_whatever_became_it() -> None:
    core = [revision for revision in ALL if revision.tasks is Tasks.CORE][-1]
    exchange = call(served(core), line(id=1, method="tasks/result", params={"taskId": "t1"}))
    assert decoded(exchange.settle(DONE))["result"]["content"]


@pytest.mark.spec("R1183", "R1191")
@pytest.mark.parametrize(
    ("method", "params", "done"),
    [
        ("tasks/update", {"taskId": "t1", "inputResponses": {}}, t.ExtUpdateTaskResult()),
        ("tasks/cancel", {"taskId": "t1"}, t.ExtCancelTaskResult()),
    ],
)
def test_an_answer_or_an_end_given_to_a_task_is_acknowledged_and_no_more(
    method: str, params: JSON, done: t.Result
) -> None:
    exchange = call(served(ENVELOPED), request(ENVELOPED, 1, method, params, TASKS))
    with pytest.raises(LocalProtocolError, match="is not a result of"):
        exchange.settle(t.ExtGetTaskResult(ttl_ms=None, **TASK))  # type: ignore[arg-type]
    assert decoded(exchange.settle(done))["result"].keys() == {"resultType", "_meta"}


def test_a_tool_is_called_as_a_task_only_if_it_wants_that(revision: Revision) -> None:
    """D35: one that runs only as a task is unknown to who calls it otherwise."""
    plain, tasked = {"name": "n"}, {"name": "n", "task": {"ttl": 1}}
    refused = {
        (support, asked is tasked)
        for support in ("required", "optional", "forbidden", None)
        for asked in (plain, tasked)
        if _refuses(call(served(revision), request(revision, 1, "tools/call", asked)), support)
    }
    core = {("required", False), ("forbidden", True), (None, True)}
    assert refused == (core if revision.tasks is Tasks.CORE else set())


def _refuses(exchange: Exchange, support: Any) -> bool:
    try:
        check_task_support(exchange, support)
    except Fault as fault:
        return decoded(exchange.fail(fault))["error"]["code"] == -32601
    return False


def test_a_client_s_answer_is_checked_against_the_question_that_it_was_asked() -> None:
    for revision in (r for r in ALL if r.elicitation.modes and r.handshake):
        client, server = opened(revision, ABLE_CLIENT)
        exchange = call(client, server.request("elicitation/create", SEAT.params, now=0.0)[1])
        assert exchange.input_request is not None
        for wrong in (t.ListRootsResult(roots=[]), t.ElicitResult(action="accept")):
            with pytest.raises(LocalProtocolError):
                exchange.settle(wrong)
        assert exchange.settle(t.ElicitResult(action="decline")) is not None


def test_an_exchange_shows_what_it_is_and_nothing_of_its_params(revision: Revision) -> None:
    exchange = running(revision)
    assert repr(exchange).startswith("Exchange(tools/call, id=")
    assert "params" not in repr(exchange)
