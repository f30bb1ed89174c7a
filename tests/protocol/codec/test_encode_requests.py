"""What a request says of its sender: the envelope, on every method that has one."""

import json
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.jsonrpc import Request, split_params
from colonnade.protocol.methods import TASKS_EXTENSION, Method, Side
from colonnade.protocol.negotiation import PeerDetector
from colonnade.protocol.revision import ALL, JULY_2026, Revision, error_code

INFO = t.Implementation(name="us", version="1", title="Us", icons=[t.Icon(src="data:,")])
CAPABILITIES = t.ClientCapabilities(
    roots=t.RootsCapability(list_changed=True),
    sampling=t.SamplingCapability(tools={}),
    elicitation=t.ElicitationCapability(form={}, url={}),
)


def client(revision: Revision, **more: Any) -> Encoder:
    envelope = t.Envelope(
        version=revision.date, capabilities=CAPABILITIES, client_info=INFO, **more
    )
    return Encoder(revision, None, envelope)


def params(instance: t.ProtocolType, revision: Revision, **options: Any) -> dict[str, Any]:
    return json.loads(client(revision).params(instance, **options) or b"{}")


# ---------------------------------------------------------------- what a request says of its sender


def asked(row: Method) -> t.RequestParams:
    """The least that a request of this method may hold."""
    least: dict[str, Any] = {
        "tools/call": {"name": "add"},
        "prompts/get": {"name": "add"},
        "resources/read": {"uri": "a:b"},
        "completion/complete": {
            "ref": t.PromptReference(name="p"),
            "argument": t.CompletionArgument(name="a", value=""),
        },
        "subscriptions/listen": {"notifications": t.SubscriptionFilter()},
        "tasks/get": {"task_id": "t"},
        "tasks/cancel": {"task_id": "t"},
        "tasks/update": {"task_id": "t", "input_responses": {}},
    }.get(row.name, {})
    made = row.params(**least)
    assert isinstance(made, t.RequestParams)
    return made


def requests(revision: Revision, *names: str) -> list[Method]:
    rows = [*revision.methods.values(), *TASKS_EXTENSION.values()]
    mine = [row for row in rows if row.result and Side.CLIENT in row.senders]
    return [row for row in mine if row.name in names] if names else mine


def stamped_and_needed(revision: Revision, rows: list[Method]) -> None:
    """Each request says what it must, and one that does not is refused."""
    assert rows
    for row in rows:
        body = client(revision).params(asked(row))
        meta = json.loads(body)["_meta"]
        assert meta[t.PROTOCOL_VERSION_KEY] == revision.date
        assert set(meta[t.CLIENT_CAPABILITIES_KEY]) == {"roots", "sampling", "elicitation"}
        whole = Request(1, row.name, Raw(body))
        found = PeerDetector().detect(whole, split_params(whole.params).meta)
        assert found is not None
        assert found.revision is revision
        for key in (t.PROTOCOL_VERSION_KEY, t.CLIENT_CAPABILITIES_KEY):
            rest = {name: value for name, value in meta.items() if name != key}
            with pytest.raises(Fault) as caught:
                PeerDetector().detect(whole, Raw(json.dumps(rest).encode()))
            assert error_code(caught.value, revision) == -32602
        with pytest.raises(Fault) as caught:
            PeerDetector().detect(Request(1, row.name), Raw(b""))
        assert error_code(caught.value, revision) == -32602


@pytest.mark.spec("R0760", "R0761")
def test_every_request_carries_the_envelope(revision: Revision) -> None:
    rows = requests(revision)
    assert len(rows) >= 13
    stamped_and_needed(revision, rows)


@pytest.mark.spec("R0954")
def test_requests_for_prompts_carry_the_envelope(revision: Revision) -> None:
    stamped_and_needed(revision, requests(revision, "prompts/list", "prompts/get"))


@pytest.mark.spec("R0962")
def test_requests_for_resources_carry_the_envelope(revision: Revision) -> None:
    names = ("resources/list", "resources/templates/list", "resources/read")
    stamped_and_needed(revision, requests(revision, *names))


@pytest.mark.spec("R0973")
def test_requests_for_tools_carry_the_envelope(revision: Revision) -> None:
    stamped_and_needed(revision, requests(revision, "tools/list", "tools/call"))


@pytest.mark.spec("R1031")
def test_requests_for_completions_carry_the_envelope(revision: Revision) -> None:
    stamped_and_needed(revision, requests(revision, "completion/complete"))


@pytest.mark.spec("R1038")
def test_the_request_for_the_next_page_carries_the_envelope_too(revision: Revision) -> None:
    for row in requests(revision):
        if row.params is t.PaginatedRequestParams:
            found = params(t.PaginatedRequestParams(cursor="c"), revision)
            assert found["cursor"] == "c"
            assert found["_meta"][t.PROTOCOL_VERSION_KEY] == revision.date
            assert t.CLIENT_CAPABILITIES_KEY in found["_meta"]
    stamped_and_needed(
        revision, [row for row in requests(revision) if row.params is t.PaginatedRequestParams]
    )


@pytest.mark.spec("R0782")
def test_a_request_that_brings_answers_carries_the_envelope_too(revision: Revision) -> None:
    again = t.CallToolRequestParams(
        name="add", input_responses={"who": Raw(b'{"action":"decline"}')}, request_state="s"
    )
    found = params(again, revision)
    assert found["_meta"][t.PROTOCOL_VERSION_KEY] == revision.date
    assert t.CLIENT_CAPABILITIES_KEY in found["_meta"]
    assert found["inputResponses"] == {"who": {"action": "decline"}}


@pytest.mark.spec("R0934", "R0940", "R0942")
@pytest.mark.parametrize("name", ["elicitation", "roots", "sampling"])
def test_what_the_client_can_do_is_said_on_each_request(revision: Revision, name: str) -> None:
    only = t.ClientCapabilities(**{name: getattr(CAPABILITIES, name)})
    writer = Encoder(revision, None, t.Envelope(version=revision.date, capabilities=only))
    for row in requests(revision):
        meta = json.loads(writer.params(asked(row)))["_meta"]
        assert list(meta[t.CLIENT_CAPABILITIES_KEY]) == [name]


@pytest.mark.spec("R0763", "R1130")
def test_a_request_says_who_asks_unless_told_not_to(revision: Revision) -> None:
    silent = t.Envelope(version=revision.date, capabilities=CAPABILITIES)
    for row in requests(revision):
        meta = json.loads(client(revision).params(asked(row)))["_meta"]
        assert meta[t.CLIENT_INFO_KEY]["name"] == "us"
        unnamed = json.loads(Encoder(revision, None, silent).params(asked(row)))["_meta"]
        assert t.CLIENT_INFO_KEY not in unnamed


def test_what_ended_is_not_among_the_capabilities_of_an_envelope() -> None:
    tasks = t.ClientTasksCapability(listing={})
    more = replace(CAPABILITIES, tasks=tasks, extensions={"com.example/x": {}})
    writer = Encoder(JULY_2026, None, t.Envelope(version="2026-07-28", capabilities=more))
    said = json.loads(writer.params(t.RequestParams()))["_meta"][t.CLIENT_CAPABILITIES_KEY]
    assert said == {
        "roots": {},
        "sampling": {"tools": {}},
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"com.example/x": {}},
    }


def test_meta_of_a_request_is_kept_but_not_where_it_would_contradict_the_envelope() -> None:
    mine = {"com.example/a": 1, t.PROTOCOL_VERSION_KEY: "1999-01-01", t.LOG_LEVEL_KEY: "debug"}
    meta = params(t.RequestParams(meta=mine), JULY_2026)["_meta"]
    assert meta["com.example/a"] == 1
    assert meta[t.LOG_LEVEL_KEY] == "debug"
    assert meta[t.PROTOCOL_VERSION_KEY] == "2026-07-28"
    assert mine[t.PROTOCOL_VERSION_KEY] == "1999-01-01"
    leveled = json.loads(client(JULY_2026, log_level="error").params(t.RequestParams()))
    assert leveled["_meta"][t.LOG_LEVEL_KEY] == "error"


def test_a_progress_token_is_said_in_every_revision(revision: Revision) -> None:
    for token in (7, "7"):
        found = params(t.RequestParams(meta={"com.example/a": 1}), revision, progress_token=token)
        assert found["_meta"][t.PROGRESS_TOKEN_KEY] == token
        assert found["_meta"]["com.example/a"] == 1


@pytest.mark.parametrize("older", ALL[:-1], ids=lambda revision: revision.date)
def test_older_revisions_get_no_envelope_and_no_empty_params(older: Revision) -> None:
    assert client(older).params(t.RequestParams()) == b""
    assert client(older).params(t.NotificationParams()) == b""
    assert params(t.PaginatedRequestParams(cursor="c"), older) == {"cursor": "c"}


def test_a_notification_carries_no_envelope(revision: Revision) -> None:
    told = t.LoggingMessageNotificationParams(level="info", data=[1, None])
    assert params(told, revision) == {"level": "info", "data": [1, None]}
    assert client(revision).params(t.NotificationParams()) == b""
