"""Extensions in the protocol: what is declared, which methods exist for whom, and their messages."""

import json
from typing import Any

import pytest
from msgspec import Raw

from colonnade.errors import (
    Fault,
    FaultKind,
    InvalidArgument,
    InvalidArgumentType,
    LocalProtocolError,
)
from colonnade.protocol import types as t
from colonnade.protocol.exchange import Exchange, NonHttpRequestFields, RequestFields
from colonnade.protocol.extensions import (
    DEFINED,
    MAX_EXTENSIONS,
    MAX_SETTINGS_BYTES,
    OFFICIAL,
    ExtensionNotificationParams,
    ExtensionParams,
    ExtensionResult,
    check_extension_id,
    check_extensions,
    check_own_method,
    check_settings,
    decode_extension_result,
    decode_members,
    extension_notification,
    extension_request,
    notification_params,
)
from colonnade.protocol.jsonrpc import Request, decode, split_params
from colonnade.protocol.link.events import NotificationReceived, RequestFinished, RequestReceived
from colonnade.protocol.link.handshake import MethodRules
from colonnade.protocol.link.link import DuplexLink, sends
from colonnade.protocol.methods import CALL_TOOL, EXT_GET_TASK, LIST_TOOLS, ROOTS_CHANGED, Side
from colonnade.protocol.negotiation import (
    Callers,
    Identity,
    Peer,
    callers_of,
    defined_in,
    extension_of,
    require_declared,
)
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision, Tasks
from protocol.links import LIBRARY, READER

SEARCH = "com.example/search"
QUERY = extension_request("search/query", SEARCH)
FOUND = extension_notification("search/found", SEARCH)
SERVER = Identity(
    LIBRARY,
    t.ServerCapabilities(extensions={SEARCH: {}}),
    extension_methods={QUERY.name: QUERY},
)
CLIENT = Identity(
    READER,
    t.ClientCapabilities(extensions={SEARCH: {}}),
    extension_methods={FOUND.name: FOUND},
)


def linked(revision: Revision, client: Identity = CLIENT) -> tuple[DuplexLink, DuplexLink]:
    """A client and a server that know each other."""
    near, far = DuplexLink(Side.CLIENT, client), DuplexLink(Side.SERVER, SERVER)
    if not revision.handshake:
        near.adopt(Peer(revision, SERVER.capabilities, LIBRARY))
        return near, far
    (answer,) = sends(far.receive(near.initialize(0.0, revision=revision).data, 0.0))
    (ready,) = sends(near.receive(answer, 0.0))
    far.receive(ready, 0.0)
    return near, far


# ---------------------------------------------------------------- declarations


@pytest.mark.spec("R0926", "R1052", "R1139")
@pytest.mark.parametrize("id", ["x", "", "/x", "a.b/", "a b/x", "a.b/x/y", "a." * 200 + "b/x"])
def test_an_identifier_has_a_prefix_and_a_name(id: str) -> None:
    with pytest.raises(ValueError, match="is not the identifier"):
        check_extension_id(id)


def test_an_identifier_is_a_string_and_no_reserved_one() -> None:
    with pytest.raises(TypeError, match="is a string"):
        check_extension_id(1)
    for id in ("io.modelcontextprotocol/x", "dev.mcp/tools"):
        with pytest.raises(InvalidArgument, match="reserved"):
            check_extension_id(id)
    assert {check_extension_id(id) for id in OFFICIAL} == OFFICIAL
    assert check_extension_id(SEARCH) == SEARCH


def test_settings_are_a_small_object_of_json_values() -> None:
    for wrong in ([], "x", None):
        with pytest.raises(InvalidArgumentType, match="an object"):
            check_settings(SEARCH, wrong)
    for value in (object(), float("inf")):
        with pytest.raises(InvalidArgument, match="settings"):
            check_settings(SEARCH, {"a": value})
    with pytest.raises(InvalidArgument, match="bytes"):
        check_settings(SEARCH, {"a": "x" * MAX_SETTINGS_BYTES})
    given = {"a": [1]}
    kept = check_settings(SEARCH, given)
    given["a"].append(2)
    assert kept == {"a": [1]}


def test_declared_extensions_are_settings_by_identifier_and_not_too_many() -> None:
    assert check_extensions({SEARCH: {"a": 1}}) == {SEARCH: {"a": 1}}
    with pytest.raises(InvalidArgumentType, match="by its identifier"):
        check_extensions([SEARCH])
    with pytest.raises(InvalidArgument, match="at most"):
        check_extensions({f"com.example/x{n}": {} for n in range(MAX_EXTENSIONS + 1)})


@pytest.mark.parametrize("name", ["", "query", "a b/c", "/x", "x/", "x" * 200 + "/y"])
def test_the_method_of_an_extension_has_names_with_slashes(name: str) -> None:
    with pytest.raises(InvalidArgument, match="not the name"):
        check_own_method(name)


def test_the_method_of_an_extension_is_none_of_the_protocol() -> None:
    with pytest.raises(InvalidArgumentType, match="a string"):
        check_own_method(None)
    for name in sorted(DEFINED):
        with pytest.raises(InvalidArgument):
            check_own_method(name)
    assert check_own_method("search/query") == "search/query"
    with pytest.raises(InvalidArgumentType, match="an object"):
        notification_params("search/found", [1])
    assert notification_params("search/found", {"a": 1}).members == {"a": 1}


# ---------------------------------------------------------------- messages


def test_a_result_keeps_its_members_apart_from_those_of_every_result() -> None:
    raw = b'{"_meta":{"a.b/c":1},"resultType":"complete","titles":["x"]}'
    assert decode_extension_result(raw, "m") == ExtensionResult(
        meta={"a.b/c": 1}, result_type="complete", members={"titles": Raw(b'["x"]')}
    )
    assert decode_members(Raw(b""), "params") == {}
    for wrong in (b"[]", b'"x"', b'{"_meta":1}'):
        with pytest.raises(Fault):
            decode_extension_result(wrong, "m")


def test_messages_of_an_extension_are_written_with_their_members_in_place(
    revision: Revision,
) -> None:
    near, _ = linked(revision)
    encoder = near.encoder(revision)
    params = ExtensionParams(extension=SEARCH, members={"words": "tea"})
    sent = json.loads(encoder.params(params, 7))
    assert sent.pop("_meta")["progressToken"] == 7
    assert sent == {"words": "tea"}
    tagged = ExtensionParams(extension=SEARCH, members={"words": "tea"}, meta={"a.b/c": 1})
    assert json.loads(encoder.params(tagged))["_meta"]["a.b/c"] == 1
    told = ExtensionNotificationParams(members={"words": "tea"})
    assert json.loads(encoder.params(told)) == {"words": "tea"}
    encoder = SERVER.encoder(revision)
    for result in (
        ExtensionResult(members={"titles": []}),
        ExtensionResult(members={"titles": []}, meta={"a.b/c": 1}),
        ExtensionResult(members={}),
    ):
        whole = json.loads(encoder.result(result))
        assert whole.get("titles", []) == []
        assert whole.get("resultType") == ("complete" if revision.typed_results else None)
        assert (whole.get("_meta") or {}).get("a.b/c") == (result.meta or {}).get("a.b/c")
        assert json.loads(encoder.response(b"1", result))["result"] == whole
    with pytest.raises(LocalProtocolError, match="NaN"):
        encoder.result(ExtensionResult(members={"n": float("nan")}))


# ---------------------------------------------------------------- methods


def test_a_request_of_an_extension_goes_through_and_its_notification_comes_back(
    revision: Revision,
) -> None:
    near, far = linked(revision)
    params = ExtensionParams(extension=SEARCH, members={"words": "tea"})
    for id in (1, 2):  # what was found once is found again
        number, data = near.request(QUERY.name, params, now=0.0)
        (received,) = far.receive(data, 0.0)
        assert isinstance(received, RequestReceived), id
        exchange = received.exchange
        assert exchange.method is QUERY
        told = exchange.notify_extension(
            SEARCH, FOUND.name, ExtensionNotificationParams(members={"n": 1})
        )
        assert told is not None
        assert exchange.notify_extension("com.example/x", FOUND.name, told) is None  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (event,) = near.receive(told, 0.0)
        assert isinstance(event, NotificationReceived)
        assert (event.method, json.loads(bytes(event.params))) == (FOUND, {"n": 1})
        answer = exchange.settle(ExtensionResult(members={"titles": []}))
        assert answer is not None
        assert (
            exchange.notify_extension(SEARCH, FOUND.name, ExtensionNotificationParams(members={}))
            is None
        )
        (finished,) = near.receive(answer, 0.0)
        assert isinstance(finished, RequestFinished)
        assert finished.id == number


def test_a_caller_that_did_not_declare_it_is_refused_by_name(revision: Revision) -> None:
    rules = MethodRules(SERVER)
    for capabilities in (
        t.ClientCapabilities(),
        t.ClientCapabilities(extensions={"com.example/other": {}}),
    ):
        with pytest.raises(Fault) as caught:
            rules.receivable(QUERY.name, Peer(revision, capabilities))
        assert revision.codes[caught.value.kind] == -32021
        assert caught.value.data == {"requiredCapabilities": {"extensions": {SEARCH: {}}}}
    with pytest.raises(Fault) as caught:
        rules.receivable("search/other", Peer(revision, CLIENT.capabilities))
    assert caught.value.kind is FaultKind.METHOD_NOT_FOUND


def test_a_request_of_an_extension_that_one_side_lacks_is_not_sent(revision: Revision) -> None:
    plain = Identity(READER, t.ClientCapabilities())
    both = {"notification": False, "informed": True}
    for mine, theirs in (
        (plain, SERVER.capabilities),
        (CLIENT, t.ServerCapabilities()),
    ):
        with pytest.raises(LocalProtocolError, match="sends in"):
            MethodRules(mine).sendable(QUERY.name, Peer(revision, theirs), extension=SEARCH, **both)
    unknown = Peer(revision, t.ServerCapabilities())
    sent = MethodRules(CLIENT).sendable(
        QUERY.name, unknown, notification=False, informed=False, extension=SEARCH
    )
    assert sent.name == QUERY.name


def test_an_extension_that_is_added_later_exists_for_requests_without_a_handshake(
    revision: Revision,
) -> None:
    now = [Identity(LIBRARY, t.ServerCapabilities())]
    rules = MethodRules(now[0], lambda: now[0])
    peer = Peer(revision, CLIENT.capabilities)
    with pytest.raises(Fault):
        rules.receivable(QUERY.name, peer)
    now[0] = SERVER
    if revision.handshake:  # what was negotiated holds
        with pytest.raises(Fault):
            rules.receivable(QUERY.name, peer)
    else:
        assert rules.receivable(QUERY.name, peer) is QUERY


def test_a_method_exists_for_those_that_its_extension_is_declared_to() -> None:
    hidden = Identity(
        LIBRARY,
        t.ServerCapabilities(extensions={"com.example/other": {}}),
        extension_methods={QUERY.name: QUERY},
        by_callers={Callers.SINGLE: t.ServerCapabilities(extensions={SEARCH: {}})},
    )
    assert hidden.extension_method(QUERY.name, JULY_2026) is None
    assert Identity(LIBRARY, t.ServerCapabilities()).extension_method("x/y", JULY_2026) is None
    assert hidden.for_callers(Callers.ANONYMOUS) is hidden
    single = hidden.for_callers(Callers.SINGLE)
    assert single.callers is Callers.SINGLE
    assert single.extension_method(QUERY.name, JULY_2026) is QUERY
    known = hidden.for_callers(Callers.AUTHENTICATED)
    assert (known.callers, known.capabilities) == (Callers.AUTHENTICATED, hidden.capabilities)
    assert (callers_of(""), callers_of("ann")) == (Callers.ANONYMOUS, Callers.AUTHENTICATED)


def test_methods_say_which_extension_they_belong_to() -> None:
    assert extension_of(QUERY) == SEARCH
    assert extension_of(EXT_GET_TASK) == t.TASKS_EXTENSION_ID
    assert (extension_of(LIST_TOOLS), extension_of(ROOTS_CHANGED)) == ("", "")
    require_declared(LIST_TOOLS, Peer(JULY_2026, t.ClientCapabilities()))
    fields = [CALL_TOOL.name_field, EXT_GET_TASK.name_field, LIST_TOOLS.name_field]
    assert fields == ["name", "task_id", None]


class Http(RequestFields):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange


class Pipe(NonHttpRequestFields):
    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange


def test_a_request_knows_the_callers_of_its_connection() -> None:
    frame = decode(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    assert isinstance(frame, Request)
    peer = Peer(NOVEMBER_2025, t.ClientCapabilities())
    for principal, callers in (("", Callers.ANONYMOUS), ("ann", Callers.AUTHENTICATED)):
        encoder = SERVER.encoder(NOVEMBER_2025)
        split = split_params(frame.params)
        exchange = Exchange(frame, split, LIST_TOOLS, peer, encoder, principal)
        assert (Http(exchange).callers, Pipe(exchange).callers) == (callers, Callers.SINGLE)


# ---------------------------------------------------------------- tasks


def test_tasks_are_declared_where_they_are_defined(revision: Revision) -> None:
    other: dict[str, dict[str, Any]] = {SEARCH: {}}
    tasks: dict[str, dict[str, Any]] = {t.TASKS_EXTENSION_ID: {}}
    server = t.ServerCapabilities(
        extensions=tasks | other, tasks=t.ServerTasksCapability(cancel={})
    )
    client = t.ClientCapabilities(
        extensions=tasks | other, tasks=t.ClientTasksCapability(cancel={})
    )
    for capabilities in (server, client):
        found = defined_in(revision, capabilities)
        assert found.extensions == (tasks | other if revision.extensions else other)
        assert (found.tasks is not None) is (revision.tasks is Tasks.CORE)
        assert defined_in(revision, found) is found
    alone = defined_in(revision, t.ServerCapabilities(extensions=tasks))
    assert alone.extensions == (tasks if revision.extensions else None)
    sent = Identity(LIBRARY, server).initialize_result(revision).capabilities
    assert (t.TASKS_EXTENSION_ID in (sent.extensions or ())) is bool(revision.extensions)
