"""Every question that a revision can be asked, and its answer in each of the five.

The page that answers is named beside each row. Where the official schemas stand beside the
repository, the answers that a schema can give are compared with it as well.
"""

import pickle
from collections.abc import Callable
from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import fields, replace

import official
from colonnade.errors import FastEnum, Fault, FaultKind
from colonnade.protocol import methods
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.protocol.negotiation import Peer, require_extension
from colonnade.protocol.revision import (
    ALL,
    EVERY,
    JULY_2026,
    MARCH_2025,
    NEWEST,
    NOVEMBER_2024,
    NOVEMBER_2025,
    BadToolInput,
    ChangeNotifications,
    HttpBinding,
    HttpCancellation,
    Initialization,
    InputRequests,
    LogControl,
    OutputRoot,
    RequestIds,
    Revision,
    Revisions,
    Tasks,
    error_code,
)

Five = tuple[Any, Any, Any, Any, Any]

HANDSHAKE, ENVELOPE = Initialization.HANDSHAKE, Initialization.ENVELOPE
BY_REQUEST, BY_RESULT = InputRequests.AS_REQUEST, InputRequests.IN_RESULT
SESSION, LISTEN = ChangeNotifications.SESSION, ChangeNotifications.LISTEN
SET_LEVEL, PER_REQUEST = LogControl.BY_METHOD, LogControl.PER_REQUEST
NOTICE, CLOSE = HttpCancellation.NOTIFICATION, HttpCancellation.CLOSE
STREAMABLE = HttpBinding.STREAMABLE
BOTH, SERVER = methods.EITHER, methods.SERVER
NONE = frozenset[str]()
FORM, URL = frozenset({"form"}), frozenset({"form", "url"})
PLAIN = frozenset({"text", "image"})
SOUND = PLAIN | {"audio"}
WITH_TOOLS = SOUND | {"tool_use", "tool_result"}
OLD_BLOCKS = PLAIN | {"resource"}
SOUND_BLOCKS = OLD_BLOCKS | {"audio"}
NEW_BLOCKS = SOUND_BLOCKS | {"resource_link"}
ERROR, RESULT = BadToolInput.ERROR, BadToolInput.RESULT
SAME_SESSION, IN_FLIGHT = RequestIds.NEVER_REUSED, RequestIds.UNIQUE_IN_FLIGHT


def needs_completions(revision: Revision) -> str | None:
    return revision.methods["completion/complete"].needs


def reports_progress(revision: Revision) -> frozenset[Side]:
    return revision.methods["notifications/progress"].senders


def has(method: str) -> Callable[[Revision], bool]:
    return lambda revision: method in revision.methods


# One row a question, five cells, oldest first; the page that says so is in the comment.
# fmt: off
TABLE: dict[str, tuple[Callable[[Revision], Any], Five]] = {
    # basic/lifecycle; 2026-07-28 basic/versioning
    "initialization": (lambda r: r.initialization, (HANDSHAKE, HANDSHAKE, HANDSHAKE, HANDSHAKE, ENVELOPE)),
    "handshake": (lambda r: r.handshake, (True, True, True, True, False)),
    # client/sampling, client/roots, client/elicitation; 2026-07-28 basic/patterns/mrtr
    "input_requests": (lambda r: r.input_requests, (BY_REQUEST, BY_REQUEST, BY_REQUEST, BY_REQUEST, BY_RESULT)),
    # server/resources, server/tools (list_changed); 2026-07-28 basic/patterns/subscriptions
    "change_notifications": (lambda r: r.change_notifications, (SESSION, SESSION, SESSION, SESSION, LISTEN)),
    # server/utilities/logging
    "log_control": (lambda r: r.log_control, (SET_LEVEL, SET_LEVEL, SET_LEVEL, SET_LEVEL, PER_REQUEST)),
    # 2025-03-26 basic (Batching); 2025-06-18 changelog takes them away
    "batches": (lambda r: r.batches, (False, True, False, False, False)),
    # basic/messages, then basic (Requests)
    "request_ids": (lambda r: r.request_ids, (SAME_SESSION, SAME_SESSION, SAME_SESSION, SAME_SESSION, IN_FLIGHT)),
    # schema: JSONRPCError, then JSONRPCErrorResponse
    "error_id_required": (lambda r: r.error_id_required, (True, True, True, False, False)),
    # server/tools (Error Handling); 2025-11-25 changelog, SEP-1303
    "bad_tool_input": (lambda r: r.bad_tool_input, (ERROR, ERROR, ERROR, RESULT, RESULT)),
    # server/tools (Structured Content); 2026-07-28 changelog, SEP-2106
    "output_root": (lambda r: r.output_root, (OutputRoot.NONE, OutputRoot.NONE, OutputRoot.OBJECT, OutputRoot.OBJECT, OutputRoot.ANY)),
    # schema: Tool.inputSchema.properties
    "boolean_schemas": (lambda r: r.boolean_schemas, (False, False, False, False, True)),
    # server/tools, server/prompts (Content Types); schema: ContentBlock
    "blocks": (lambda r: r.blocks, (OLD_BLOCKS, SOUND_BLOCKS, NEW_BLOCKS, NEW_BLOCKS, NEW_BLOCKS)),
    # client/sampling; schema: SamplingMessage
    "sampling.blocks": (lambda r: r.sampling.blocks, (PLAIN, SOUND, SOUND, WITH_TOOLS, WITH_TOOLS)),
    "sampling.arrays": (lambda r: r.sampling.arrays, (False, False, False, True, True)),
    # client/elicitation; 2025-11-25 changelog, SEP-1036, SEP-1330, SEP-1034
    "elicitation.modes": (lambda r: r.elicitation.modes, (NONE, NONE, FORM, URL, URL)),
    "elicitation.titled_enums": (lambda r: r.elicitation.titled_enums, (False, False, False, True, True)),
    "elicitation.multi_select": (lambda r: r.elicitation.multi_select, (False, False, False, True, True)),
    "elicitation.all_defaults": (lambda r: r.elicitation.all_defaults, (False, False, False, True, True)),
    # 2025-11-25 client/elicitation (URL Elicitation Required Error); 2026-07-28 basic (Error Codes)
    "elicitation.url_required_error": (lambda r: r.elicitation.url_required_error, (False, False, False, True, False)),
    # 2025-11-25 basic/utilities/tasks; extensions/tasks
    "tasks": (lambda r: r.tasks, (Tasks.NONE, Tasks.NONE, Tasks.NONE, Tasks.CORE, Tasks.EXTENSION)),
    "extensions": (lambda r: set(r.extensions), (set(), set(), set(), set(), {"io.modelcontextprotocol/tasks"})),
    # SEP-2663 (Backward Compatibility)
    "undefined_extensions": (lambda r: len(r.undefined_extensions), (1, 1, 1, 1, 0)),
    # 2026-07-28 basic (Result Responses, _meta), server/utilities/caching
    "typed_results": (lambda r: r.typed_results, (False, False, False, False, True)),
    # basic/transports
    "http.binding": (lambda r: r.http.binding, (HttpBinding.HTTP_SSE, STREAMABLE, STREAMABLE, STREAMABLE, HttpBinding.POST_ONLY)),
    # basic/transports (Session Management)
    "http.sessions": (lambda r: r.http.sessions, (False, True, True, True, False)),
    # basic/transports (Resumability and Redelivery)
    "http.resumable": (lambda r: r.http.resumable, (False, True, True, True, False)),
    # 2025-11-25 basic/transports (Sending Messages to the Server)
    "http.prime_and_poll": (lambda r: r.http.prime_and_poll, (False, False, False, True, False)),
    # basic/transports (Protocol Version Header)
    "http.version_header": (lambda r: r.http.version_header, (False, False, True, True, True)),
    # 2026-07-28 basic/transports/streamable-http (Request Metadata)
    "http.routing_headers": (lambda r: r.http.routing_headers, (False, False, False, False, True)),
    "http.unknown_method_status": (lambda r: r.http.unknown_method_status, (200, 200, 200, 200, 404)),
    # basic/transports; 2026-07-28 basic/patterns/cancellation
    "http.cancellation": (lambda r: r.http.cancellation, (NOTICE, NOTICE, NOTICE, NOTICE, CLOSE)),
    # server/utilities/completion (Capabilities)
    "completions capability": (needs_completions, (None, "completions", "completions", "completions", "completions")),
    # basic/utilities/progress; 2026-07-28 basic/patterns/progress
    "progress": (reports_progress, (BOTH, BOTH, BOTH, BOTH, SERVER)),
    # 2026-07-28 changelog, major changes 2 to 7
    "initialize": (has("initialize"), (True, True, True, True, False)),
    "ping": (has("ping"), (True, True, True, True, False)),
    "logging/setLevel": (has("logging/setLevel"), (True, True, True, True, False)),
    "roots changed": (has("notifications/roots/list_changed"), (True, True, True, True, False)),
    "resources/subscribe": (has("resources/subscribe"), (True, True, True, True, False)),
    "roots/list as a request": (has("roots/list"), (True, True, True, True, False)),
    "sampling as a request": (has("sampling/createMessage"), (True, True, True, True, False)),
    "server/discover": (has("server/discover"), (False, False, False, False, True)),
    "subscriptions/listen": (has("subscriptions/listen"), (False, False, False, False, True)),
    # client/elicitation
    "elicitation as a request": (has("elicitation/create"), (False, False, True, True, False)),
    "elicitation/complete": (has("notifications/elicitation/complete"), (False, False, False, True, False)),
    # 2025-11-25 basic/utilities/tasks
    "tasks/result": (has("tasks/result"), (False, False, False, True, False)),
}

# What a peer is told of each kind of fault.
CODES: dict[FaultKind, Five] = {
    # JSON-RPC 2.0, section 5.1; 2026-07-28 basic (Error Codes)
    FaultKind.PARSE: (-32700, -32700, -32700, -32700, -32700),
    FaultKind.INVALID_REQUEST: (-32600, -32600, -32600, -32600, -32600),
    FaultKind.METHOD_NOT_FOUND: (-32601, -32601, -32601, -32601, -32601),
    FaultKind.INVALID_PARAMS: (-32602, -32602, -32602, -32602, -32602),
    FaultKind.INTERNAL: (-32603, -32603, -32603, -32603, -32603),
    # server/resources (Error Handling)
    FaultKind.RESOURCE_MISSING: (-32002, -32002, -32002, -32002, -32602),
    # client/sampling (Error Handling); 2026-07-28 answers questions by retrying, never by error
    FaultKind.USER_REJECTED: (-1, -1, -1, -1, -1),
    # 2026-07-28 basic (Error Codes); before, the nearest that JSON-RPC has
    FaultKind.HEADER_MISMATCH: (-32600, -32600, -32600, -32600, -32020),
    FaultKind.CAPABILITY_MISSING: (-32603, -32603, -32603, -32603, -32021),
    FaultKind.EXTENSION_MISSING: (-32021, -32021, -32021, -32021, -32021),
    # D9: `initialize` to a server without it gets this number too
    FaultKind.VERSION_UNSUPPORTED: (-32022, -32022, -32022, -32022, -32022),
    # 2025-11-25 client/elicitation
    FaultKind.URL_ELICITATION_REQUIRED: (-32603, -32603, -32603, -32042, -32603),
    # 2026-07-28 basic (Error Codes): what it does not define is outside of what JSON-RPC reserves
    FaultKind.TOO_MANY: (429, 429, 429, 429, 429),
}
# fmt: on


@pytest.mark.parametrize("question", TABLE)
def test_a_revision_answers_as_its_pages_say(question: str) -> None:
    ask, cells = TABLE[question]
    assert tuple(ask(revision) for revision in ALL) == cells


@pytest.mark.parametrize("kind", FaultKind.members(), ids=lambda kind: kind.name)
def test_a_fault_has_the_number_that_the_pages_give_it(kind: FaultKind) -> None:
    fault = Fault(kind, "words")
    assert tuple(error_code(fault, revision) for revision in ALL) == CODES[kind]


def test_no_question_is_left_out_of_the_table() -> None:
    asked = {name.partition(".")[0] for name in TABLE}
    tables = {"date", "methods", "codes"}
    assert {field.name for field in fields(Revision)} <= asked | tables
    for part in ("http", "elicitation", "sampling"):
        names = {field.name for field in fields(getattr(NEWEST, part))}
        assert names == {name.partition(".")[2] for name in TABLE if name.startswith(f"{part}.")}


def test_before_a_revision_is_known_faults_are_numbered_as_by_the_newest() -> None:
    for kind in FaultKind.members():
        assert error_code(Fault(kind, "words"), None) == NEWEST.codes[kind]


# ---------------------------------------------------------------- compared with the schemas


def definitions(revision: Revision) -> dict[str, Any]:
    return official.definitions(official.published(revision.date))


def kinds(schema: dict[str, Any], table: dict[str, Any]) -> set[str]:
    """The content blocks that a schema admits, by their type."""
    if "$ref" in schema:
        return kinds(table[schema["$ref"].rpartition("/")[2]], table)
    if "anyOf" in schema:
        return set[str]().union(*(kinds(option, table) for option in schema["anyOf"]))
    if "items" in schema:
        return kinds(schema["items"], table)
    return {schema["properties"]["type"]["const"]}


def test_the_schema_of_a_revision_gives_the_same_answers(revision: Revision) -> None:
    if not official.available(revision.date):
        print(f"no official schema of {revision.date}: the table alone was checked")
        return
    table = definitions(revision)
    assert revision.batches == ("JSONRPCBatchRequest" in table)
    error = table["JSONRPCError" if "JSONRPCError" in table else "JSONRPCErrorResponse"]
    assert revision.error_id_required == ("id" in error["required"])
    assert revision.handshake == ("InitializeRequest" in table)
    assert bool(revision.elicitation.modes) == ("ElicitRequest" in table)
    assert revision.elicitation.url_required_error == ("URLElicitationRequiredError" in table)
    assert revision.elicitation.multi_select == ("MultiSelectEnumSchema" in table)
    assert (revision.tasks is Tasks.CORE) == ("Task" in table)
    blocks = table["CallToolResult"]["properties"]["content"]
    assert revision.blocks == kinds(blocks, table)
    said = table["SamplingMessage"]["properties"]["content"]
    assert revision.sampling.blocks == kinds(said, table)
    assert revision.sampling.arrays == any("items" in option for option in said["anyOf"])
    output = table["CallToolResult"]["properties"].get("structuredContent")
    assert (revision.output_root is OutputRoot.NONE) == (output is None)
    if output is not None:
        assert (revision.output_root is OutputRoot.OBJECT) == (output.get("type") == "object")


# ---------------------------------------------------------------- numbers


def code(kind: FaultKind, revision: Revision) -> int:
    return error_code(Fault(kind, "words"), revision)


@pytest.mark.spec("R0091", "R0122", "R0133", "R0299", "R0969", "R1037", "R1204")
def test_an_internal_failure_has_the_number_of_json_rpc(revision: Revision) -> None:
    assert code(FaultKind.INTERNAL, revision) == -32603


@pytest.mark.spec("R0102", "R0653")
def test_a_user_who_says_no_is_minus_one(revision: Revision) -> None:
    assert code(FaultKind.USER_REJECTED, revision) == -1


@pytest.mark.spec("R0132")
def test_a_missing_resource_had_a_number_of_its_own(revision: Revision) -> None:
    assert code(FaultKind.RESOURCE_MISSING, revision) == -32002


@pytest.mark.spec("R0968")
def test_a_missing_resource_is_a_bad_parameter_now(revision: Revision) -> None:
    assert code(FaultKind.RESOURCE_MISSING, revision) == -32602


@pytest.mark.spec("R0621")
def test_an_address_to_visit_first_has_a_number_of_its_own(revision: Revision) -> None:
    assert code(FaultKind.URL_ELICITATION_REQUIRED, revision) == -32042


@pytest.mark.spec("R0749")
def test_numbers_of_older_revisions_are_never_sent_to_the_newest(revision: Revision) -> None:
    assert {-32002, -32042}.isdisjoint(revision.codes.values())


@pytest.mark.spec("R0745", "R0747", "R0750")
def test_reserved_ranges_hold_what_the_specification_defines_and_nothing_else(
    revision: Revision,
) -> None:
    for kind, given in revision.codes.items():
        assert not -32019 <= given <= -32000, kind
        if -32768 <= given <= -32000:
            assert given in {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}
    reserved = {kind for kind, given in revision.codes.items() if -32099 <= given <= -32020}
    assert {kind: code(kind, revision) for kind in reserved} == {
        FaultKind.HEADER_MISMATCH: -32020,
        FaultKind.CAPABILITY_MISSING: -32021,
        FaultKind.EXTENSION_MISSING: -32021,
        FaultKind.VERSION_UNSUPPORTED: -32022,
    }


@pytest.mark.spec("R1205")
def test_a_missing_extension_is_named_under_its_own_number(revision: Revision) -> None:
    peer = Peer(revision, t.ClientCapabilities())
    with pytest.raises(Fault) as caught:
        require_extension("io.modelcontextprotocol/tasks", peer)
    assert error_code(caught.value, revision) == -32021
    required = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert caught.value.data == {"requiredCapabilities": required}


# ---------------------------------------------------------------- spans and methods


def test_a_span_is_known_from_its_first_day_to_its_last() -> None:
    assert [revision.knows(None, None) for revision in ALL] == [True] * 5
    since = [revision.knows("2025-06-18", None) for revision in ALL]
    assert since == [False, False, True, True, True]
    assert [revision.knows(None, "2025-03-26") for revision in ALL] == [True, True] + [False] * 3
    only = [revision.knows("2025-11-25", "2025-11-25") for revision in ALL]
    assert only == [False, False, False, True, False]


def test_a_method_of_an_extension_exists_for_those_who_speak_it() -> None:
    spoken = frozenset({t.TASKS_EXTENSION_ID, "com.example/other"})
    assert JULY_2026.method("tasks/update") is None
    assert JULY_2026.method("tasks/update", frozenset({"com.example/other"})) is None
    assert JULY_2026.method("tasks/update", spoken) is methods.EXT_UPDATE_TASK
    assert JULY_2026.method("tools/call", spoken) is methods.CALL_TOOL
    assert JULY_2026.method("no/such", spoken) is None
    assert NOVEMBER_2025.method("tasks/update", spoken) is None
    assert NOVEMBER_2025.method("tasks/get", spoken) is methods.GET_TASK


def test_of_two_extensions_with_one_method_the_first_listed_counts_whatever_was_declared_first() -> (
    None
):
    names = ("com.example/a", "com.example/b", "com.example/c", "com.example/d")
    rows = [replace_row(methods.PING, name) for name in names]
    tables = [methods.by_name(row) for row in rows]
    made = replace(JULY_2026, date="2027-01-01", extensions=dict(zip(names, tables, strict=True)))
    for order in permutations(names):
        assert made.method("ping", frozenset(order)) is rows[0]
        assert made.method("ping", frozenset(order[:2])) is rows[min(map(names.index, order[:2]))]


def replace_row(row: methods.Method, needs: str) -> methods.Method:
    return methods.Method(
        name=row.name,
        senders=row.senders,
        load_params=row.load_params,
        load_result=row.load_result,
        needs=needs,
    )


def test_a_row_of_the_revision_itself_wins_over_an_extension() -> None:
    other = methods.by_name(replace_row(methods.CALL_TOOL, "com.example/a"))
    made = replace(JULY_2026, date="2027-01-01", extensions={"com.example/a": other})
    assert made.method("tools/call", frozenset({"com.example/a"})) is methods.CALL_TOOL


def test_the_words_of_a_kind_are_as_many_as_it_names_and_each_is_itself_alone() -> None:
    for kind in FastEnum.__subclasses__():
        words = kind.members()
        assert len(set(words)) == len(words) >= 2
        assert all(type(word) is kind for word in words)
        assert all(deepcopy(word) is word for word in words)
        assert all(pickle.loads(pickle.dumps(word)) is word for word in words)
        assert [repr(word) for word in words] == [
            f"{kind.__name__}.{name}" for name in kind.__annotations__
        ]


def test_revisions_are_the_same_only_if_they_are_the_same_object() -> None:
    twin = replace(JULY_2026)
    assert twin != JULY_2026
    assert len({twin, JULY_2026}) == 2


def test_what_a_revision_says_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        JULY_2026.codes[FaultKind.PARSE] = 1  # type: ignore[index]
    with pytest.raises(TypeError):
        NOVEMBER_2024.methods["x"] = methods.PING  # type: ignore[index]
    with pytest.raises(AttributeError):
        JULY_2026.batches = True  # type: ignore[misc]


# ---------------------------------------------------------------- sets of revisions


def test_the_accepted_revisions_are_chosen_by_date() -> None:
    chosen = Revisions.of("2026-07-28", "2025-03-26")
    assert chosen == (MARCH_2025, JULY_2026)
    assert chosen.dates == ["2026-07-28", "2025-03-26"]
    assert chosen.handshakes == (MARCH_2025,)
    assert chosen.enveloped == (JULY_2026,)
    assert chosen.get("2025-03-26") is MARCH_2025
    assert chosen.get("2024-11-05") is None


def test_a_date_that_is_no_revision_is_refused_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"2025-01-01.*2024-11-05"):
        Revisions.of("2025-01-01")
    with pytest.raises(ValueError, match="none"):
        Revisions.of()


def test_revisions_are_put_in_order_and_each_counts_once() -> None:
    assert Revisions((JULY_2026, MARCH_2025, JULY_2026)) == (MARCH_2025, JULY_2026)
    assert tuple(EVERY) == ALL
    assert EVERY.dates == [revision.date for revision in reversed(ALL)]
    assert EVERY.handshakes == tuple(reversed(ALL[:-1]))


def test_no_revision_at_all_and_two_of_one_date_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Revisions(())
    with pytest.raises(ValueError, match="same date"):
        Revisions((JULY_2026, replace(JULY_2026, batches=True)))


def test_a_revision_is_shown_by_its_date(revision: Revision) -> None:
    assert repr(revision) == f"Revision({revision.date!r})"
