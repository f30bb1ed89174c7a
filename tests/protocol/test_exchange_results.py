"""What a request came to: the result that its type says, or a fault."""

import json
from typing import Any

import pytest
from msgspec import Raw

from colonnade.errors import Fault, LocalProtocolError
from colonnade.protocol import types as t
from colonnade.protocol.exchange import decode_result
from colonnade.protocol.methods import (
    CALL_TOOL,
    CREATE_MESSAGE,
    EXT_GET_TASK,
    LIST_TOOLS,
    TOOLS_CHANGED,
    Method,
)
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, Revision, Tasks
from protocol.links import ABLE_SERVER

ENVELOPED = [revision for revision in ALL if not revision.handshake][-1]
DECLARED = frozenset({t.TASKS_EXTENSION_ID})


def outcome(row: Method, revision: Revision, members: Any, **more: Any) -> t.ProtocolType:
    peer = Peer(revision, ABLE_SERVER)
    return decode_result(row, Raw(json.dumps(members).encode()), peer, **more)


@pytest.mark.spec("R0743")
def test_a_result_without_a_type_is_complete(revision: Revision) -> None:
    assert outcome(CALL_TOOL, revision, {"content": []}) == t.CallToolResult(content=[])
    named = outcome(CALL_TOOL, revision, {"resultType": "complete", "content": []})
    assert isinstance(named, t.CallToolResult)


@pytest.mark.spec("R0741", "R0742")
def test_a_result_type_is_one_of_the_core_or_of_a_declared_extension(revision: Revision) -> None:
    asks = {"resultType": "input_required", "requestState": "s"}
    assert isinstance(outcome(CALL_TOOL, revision, asks), t.InputRequiredResult)
    with pytest.raises(Fault, match="not recognised"):
        outcome(LIST_TOOLS, revision, asks | {"tools": []})
    task = {"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": None}
    task |= {"createdAt": "x", "lastUpdatedAt": "y"}
    declared = frozenset({t.TASKS_EXTENSION_ID})
    assert isinstance(
        outcome(CALL_TOOL, revision, task, own_extensions=declared), t.ExtCreateTaskResult
    )
    with pytest.raises(Fault, match="not recognised"):
        outcome(CALL_TOOL, revision, task)
    for kind in ("", "Complete", "partial", 7, ["complete"], {}, True):
        with pytest.raises(Fault, match="not recognised"):
            outcome(
                CALL_TOOL, revision, {"resultType": kind, "content": []}, own_extensions=declared
            )


def test_where_results_have_no_type_a_member_of_that_name_means_nothing(revision: Revision) -> None:
    if not revision.typed_results:
        result = outcome(CALL_TOOL, revision, {"resultType": "whatever", "content": []})
        assert isinstance(result, t.CallToolResult)


def test_a_request_that_asked_to_become_a_task_comes_to_one_where_the_core_has_tasks(
    revision: Revision,
) -> None:
    task = {"taskId": "t", "status": "working", "createdAt": "x", "lastUpdatedAt": "y", "ttl": 1}
    members = {"task": task, "content": []}
    expected = t.CreateTaskResult if revision.tasks is Tasks.CORE else t.CallToolResult
    assert type(outcome(CALL_TOOL, revision, members, as_task=True)) is expected
    assert type(outcome(CALL_TOOL, revision, members)) is t.CallToolResult


def test_a_result_that_cannot_be_read_is_a_fault(revision: Revision) -> None:
    peer = Peer(revision, ABLE_SERVER)
    for raw in (b"[]", b"7", b'{"content":1}', b'{"content":[}'):
        with pytest.raises(Fault):
            decode_result(CALL_TOOL, Raw(raw), peer)
    twice = Raw(b'{"content":1,"content":[]}')  # nobody else reads it: the last counts
    assert decode_result(CALL_TOOL, twice, peer) == t.CallToolResult(content=[])
    with pytest.raises(LocalProtocolError, match="no result"):
        decode_result(TOOLS_CHANGED, Raw(b"{}"), peer)
    assert isinstance(outcome(EXT_GET_TASK, ENVELOPED, _task()), t.ExtGetTaskResult)
    sampled = {"role": "user", "model": "m", "content": {"type": "text", "text": "x"}}
    assert isinstance(outcome(CREATE_MESSAGE, revision, sampled), t.CreateMessageResult)


def _task() -> dict[str, Any]:
    times = {"createdAt": "x", "lastUpdatedAt": "y", "ttlMs": None}
    return {"resultType": "complete", "taskId": "t", "status": "working"} | times


SMALLEST: dict[str, dict[str, Any]] = {
    "tools/list": {"tools": []},
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "server/discover": {"supportedVersions": [], "capabilities": {}},
    "tools/call": {"content": []},
    "prompts/get": {"messages": []},
    "completion/complete": {"completion": {"values": []}},
    "subscriptions/listen": {},
    "tasks/update": {},
    "tasks/cancel": {},
}
CACHEABLE = [name for name, row in ENVELOPED.methods.items() if row.cacheable]
PAGED = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


@pytest.mark.parametrize(
    "methods",
    [
        pytest.param(tuple(CACHEABLE), marks=pytest.mark.spec("R1044"), id="cacheable"),
        pytest.param(("tools/call",), marks=pytest.mark.spec("R1049"), id="call"),
        pytest.param(("completion/complete",), marks=pytest.mark.spec("R1057"), id="complete"),
        pytest.param(("server/discover",), marks=pytest.mark.spec("R1065"), id="discover"),
        pytest.param(("prompts/get",), marks=pytest.mark.spec("R1070"), id="prompt"),
        pytest.param(("prompts/list",), marks=pytest.mark.spec("R1082"), id="prompts"),
        pytest.param(
            ("resources/templates/list",), marks=pytest.mark.spec("R1090"), id="templates"
        ),
        pytest.param(("resources/list",), marks=pytest.mark.spec("R1098"), id="resources"),
        pytest.param(("tools/list",), marks=pytest.mark.spec("R1106"), id="tools"),
        pytest.param(tuple(PAGED), marks=pytest.mark.spec("R1119"), id="paged"),
        pytest.param(("resources/read",), marks=pytest.mark.spec("R1125"), id="read"),
        pytest.param(tuple(SMALLEST), marks=pytest.mark.spec("R1136"), id="every"),
        pytest.param(("subscriptions/listen",), marks=pytest.mark.spec("R1146"), id="listen"),
    ],
)
def test_each_result_without_a_type_is_complete_and_one_of_an_unknown_type_is_none(
    revision: Revision, methods: tuple[str, ...]
) -> None:
    for name in methods:
        row = revision.method(name, DECLARED)
        assert row is not None
        assert row.result is not None
        bare = outcome(row, revision, SMALLEST[name], own_extensions=DECLARED)
        assert type(bare) is row.result
        complete = outcome(row, revision, SMALLEST[name] | {"resultType": "complete"})
        assert type(complete) is row.result
        for older in (older for older in ALL if not older.typed_results):
            before = older.methods.get(name)
            if before is not None and before.result is row.result:
                found = outcome(before, older, SMALLEST[name], own_extensions=DECLARED)
                assert type(found) is row.result
        for kind in ("done", "", 1):
            with pytest.raises(Fault, match="not recognised"):
                outcome(
                    row, revision, SMALLEST[name] | {"resultType": kind}, own_extensions=DECLARED
                )


@pytest.mark.spec("R1074")
def test_questions_alone_do_not_make_a_result_a_demand(revision: Revision) -> None:
    for name in ("tools/call", "prompts/get", "resources/read"):
        row = revision.methods[name]
        asks = {"inputRequests": {"k": {"method": "roots/list"}}, "requestState": "s"}
        result = outcome(row, revision, SMALLEST[name] | asks)
        assert type(result) is row.result
        demand = outcome(row, revision, asks | {"resultType": "input_required"})
        assert isinstance(demand, t.InputRequiredResult)


def test_every_method_with_a_result_is_among_the_smallest() -> None:
    tables = (ENVELOPED.methods, *ENVELOPED.extensions.values())
    rows = {row.name for table in tables for row in table.values() if row.result is not None}
    assert rows - {"tasks/get"} == SMALLEST.keys()
