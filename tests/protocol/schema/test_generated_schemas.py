"""Whatever we can say fits the official schema of its revision, and whatever that admits we read.

The schemas are closed first (`tests/support/official.py`). They stand beside the repository; a clone alone
proves the same ground by its golden transcripts, and these tests say so.
"""

import json
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

import exceptions
import official
import type_strategies
from colonnade.errors import Fault, FaultKind
from colonnade.protocol import types as t
from colonnade.protocol.codec.decode import decode_as
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.jsonrpc import (
    Batch,
    decode,
    encode_error,
    encode_notification,
    encode_request,
)
from colonnade.protocol.methods import TASKS_EXTENSION, Method
from colonnade.protocol.revision import ALL, EVERY, InputRequests, Revision, error_code
from official_values import value_of

pytestmark = pytest.mark.slow

# Enough for every optional field to be there and absent many times over, in about a minute.
CASES = 50
LEAST_CASES = 30
# Half of the optional fields are meant to be there, as far as chance has it.
LEAST_SHARE, MOST_SHARE = 0.25, 0.75
# Where there is little to leave out, each absence is drawn once and the rest is full.
LEAST_DRAWS = 250
# Drawing a whole protocol type is slow and may be large; neither is what is tested.
CHECKS = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.filter_too_much,
)
EVERY_CASE = settings(max_examples=CASES, suppress_health_check=CHECKS, derandomize=True)

INFO = t.Implementation(name="us", version="1", title="Us", icons=[t.Icon(src="data:,")])
CAPABILITIES = t.ClientCapabilities(
    roots=t.RootsCapability(list_changed=True),
    sampling=t.SamplingCapability(tools={}),
    elicitation=t.ElicitationCapability(form={}, url={}),
)

# The official name of a request or notification, by its method.
TITLES = {
    "initialize": "InitializeRequest",
    "notifications/initialized": "InitializedNotification",
    "ping": "PingRequest",
    "server/discover": "DiscoverRequest",
    "notifications/cancelled": "CancelledNotification",
    "notifications/progress": "ProgressNotification",
    "tools/list": "ListToolsRequest",
    "tools/call": "CallToolRequest",
    "notifications/tools/list_changed": "ToolListChangedNotification",
    "resources/list": "ListResourcesRequest",
    "resources/templates/list": "ListResourceTemplatesRequest",
    "resources/read": "ReadResourceRequest",
    "resources/subscribe": "SubscribeRequest",
    "resources/unsubscribe": "UnsubscribeRequest",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "prompts/list": "ListPromptsRequest",
    "prompts/get": "GetPromptRequest",
    "notifications/prompts/list_changed": "PromptListChangedNotification",
    "completion/complete": "CompleteRequest",
    "logging/setLevel": "SetLevelRequest",
    "notifications/message": "LoggingMessageNotification",
    "subscriptions/listen": "SubscriptionsListenRequest",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
    "notifications/roots/list_changed": "RootsListChangedNotification",
    "elicitation/create": "ElicitRequest",
    "notifications/elicitation/complete": "ElicitationCompleteNotification",
    "tasks/get": "GetTaskRequest",
    "tasks/result": "GetTaskPayloadRequest",
    "tasks/list": "ListTasksRequest",
    "tasks/cancel": "CancelTaskRequest",
    "tasks/update": "UpdateTaskRequest",
    "notifications/tasks/status": "TaskStatusNotification",
    "notifications/tasks": "TaskStatusNotification",
}

ROWS = [(revision, row) for revision in ALL for row in revision.methods.values()]
RESULTS = [(revision, row) for revision, row in ROWS if row.result is not None]
# Where questions go by result, what they carry has no row and stands in a result.
NO_SCHEMAS = "no official schemas beside the repository: nothing was compared with them"


def name_of(case: Any) -> str:
    return case.date if isinstance(case, Revision) else getattr(case, "name", str(case))


def shaper(revision: Revision) -> Encoder:
    envelope = t.Envelope(version=revision.date, capabilities=CAPABILITIES, client_info=INFO)
    return Encoder(revision, INFO, envelope)


def check(name: str, definition: str, data: bytes) -> None:
    found = official.problems(name, definition, json.loads(data))
    assert not found, f"{name} {definition}: {found}\n{data.decode()}"


def framed(revision: Revision, row: Method, params: bytes, name: str | None = None) -> None:
    """A whole frame against its own definition and against the one for all frames."""
    name = name or revision.date
    if row.is_notification:
        frame = encode_notification(row.name, params)
        check(revision.date, "JSONRPCNotification", frame)
    else:
        frame = encode_request(b"1", row.name, params)
        check(revision.date, "JSONRPCRequest", frame)
    title = TITLES[row.name]
    value = json.loads(frame)
    definition = official.definitions(official.published(name))[title]
    if "jsonrpc" not in definition.get("properties", {}) and "allOf" not in definition:
        value = {member: inner for member, inner in value.items() if member in ("method", "params")}
    check(name, title, json.dumps(value).encode())


class Line(NamedTuple):
    """How one definition was explored."""

    title: str
    cases: int
    share: float | None

    def __str__(self) -> str:
        share = "no optional fields" if self.share is None else f"{self.share:4.0%} of them"
        return f"{self.title:<62} {self.cases:>3} cases, {share}"


LINES: list[Line] = []


@pytest.fixture(scope="module", autouse=True)
def summary() -> Iterator[None]:
    """The table of all that was explored; `pytest -s` shows it."""
    yield
    if LINES:
        print("\n\ncases for each definition, and the share of its optional fields that were there")
        print("\n".join(map(str, LINES)))
        shares = [line.share for line in LINES if line.share is not None]
        cases = sum(line.cases for line in LINES)
        print(f"{len(LINES)} definitions, {cases} cases, {fmean(shares):.0%} on average")


def explore(
    title: str,
    strategy: st.SearchStrategy[Any],
    prove: Callable[[Any], None],
    seen: type_strategies.Presence,
) -> None:
    """Run a proof over many draws; there must have been enough of them, and full enough."""
    cases = 0

    @EVERY_CASE
    @given(strategy)
    def run(made: Any) -> None:
        nonlocal cases
        cases += 1
        prove(made)

    run()
    line = Line(title, cases, seen.share)
    LINES.append(line)
    print(line)
    # What has nothing optional in it may have only one value.
    assert cases >= LEAST_CASES or seen.share is None
    if seen.share is not None and seen.possible >= LEAST_DRAWS:
        assert LEAST_SHARE <= seen.share <= MOST_SHARE


@pytest.mark.parametrize(("revision", "row"), ROWS, ids=name_of)
def test_every_request_and_notification_that_we_send_fits_its_closed_schema(
    revision: Revision, row: Method
) -> None:
    if not official.available():
        print(NO_SCHEMAS)
        return
    writer, seen = shaper(revision), type_strategies.Presence()

    def prove(params: Any) -> None:
        type_strategies.count(writer.downgrade(params), seen, revision)
        token = 7 if not row.is_notification else None
        framed(revision, row, writer.params(params, token))

    strategy = type_strategies.instances(row.params)
    if row.name == "notifications/cancelled":
        strategy = strategy.filter(lambda params: params.request_id is not None)
    if row.name == "elicitation/create" and "url" not in revision.elicitation.modes:
        strategy = strategy.filter(lambda params: params.mode != "url")
    explore(f"{revision.date} {row.name}", strategy, prove, seen)


def result_title(result: type[t.ProtocolType]) -> str:
    return result.__name__.removeprefix("Ext")


@pytest.mark.parametrize(("revision", "row"), RESULTS, ids=name_of)
def test_every_result_that_we_send_fits_its_closed_schema(revision: Revision, row: Method) -> None:
    if not official.available():
        print(NO_SCHEMAS)
        return
    assert row.result is not None
    strategy = type_strategies.instances(row.result)
    if row.name == "subscriptions/listen":
        strategy = type_strategies.META.map(
            lambda meta: t.SubscriptionsListenResult(meta=meta | {t.SUBSCRIPTION_ID_KEY: 1})
        )
    explore_results(f"{revision.date} {row.name} result", strategy, revision)
    if row.may_require_input and revision.input_requests is InputRequests.IN_RESULT:
        demands = type_strategies.instances(t.InputRequiredResult)
        explore_results(f"{revision.date} {row.name} input_required", demands, revision)


def explore_results(
    title: str, strategy: st.SearchStrategy[Any], revision: Revision, name: str | None = None
) -> None:
    writer, seen = shaper(revision), type_strategies.Presence()

    def prove(result: Any) -> None:
        if not isinstance(result, t.SubscriptionsListenResult):  # its one field must be there
            type_strategies.count(writer.downgrade(result), seen, revision)
        check(name or revision.date, result_title(type(result)), writer.result(result))

    explore(title, strategy, prove, seen)


@pytest.mark.parametrize("row", TASKS_EXTENSION.values(), ids=name_of)
def test_what_the_tasks_extension_says_fits_its_schema(row: Method) -> None:
    if not official.available():
        print(NO_SCHEMAS)
        return
    revision = ALL[-1]
    writer, seen = shaper(revision), type_strategies.Presence()

    def prove(params: Any) -> None:
        type_strategies.count(writer.downgrade(params), seen, revision)
        framed(revision, row, writer.params(params), "extensions/tasks")

    explore(f"tasks extension {row.name}", _tasks(row.params), prove, seen)
    if row.result is not None:
        title = f"tasks extension {row.name} result"
        explore_results(title, _tasks(row.result), revision, "extensions/tasks")


def _tasks(kind: type[t.ProtocolType]) -> st.SearchStrategy[Any]:
    """Tasks whose payload is what their status promises."""
    names = kind.__struct_fields__
    if "status" not in names:
        return type_strategies.instances(kind)
    plain: dict[str, Any] = {
        "task_id": type_strategies.NAMES,
        "created_at": st.just("2026-01-01T00:00:00Z"),
        "last_updated_at": st.just("2026-01-01T00:00:00Z"),
        "ttl_ms": st.none() | st.integers(0, 9999),
    }
    optional = {"poll_interval_ms": st.integers(0, 99), "status_message": type_strategies.WORDS}
    if "meta" in names:
        optional |= {"meta": type_strategies.META}
    if "result_type" in names:
        optional |= {"result_type": st.just("complete")}
    payloads: list[dict[str, Any]] = [
        {"status": st.just("working")},
        {"status": st.just("cancelled")},
    ]
    if "input_requests" in names:
        requests = st.dictionaries(
            type_strategies.NAMES, type_strategies.instances(t.ElicitRequest), max_size=2
        )
        payloads += [
            {"status": st.just("input_required"), "input_requests": requests},
            {"status": st.just("completed"), "result": st.just(Raw(b"{}"))},
            {"status": st.just("failed"), "error": type_strategies.instances(t.ErrorObject)},
        ]
    return st.one_of(
        [type_strategies.half(kind, plain | payload, optional) for payload in payloads]
    )


# ---------------------------------------------------------------- errors


ERROR_TITLES = {
    FaultKind.HEADER_MISMATCH: "HeaderMismatchError",
    FaultKind.CAPABILITY_MISSING: "MissingRequiredClientCapabilityError",
    FaultKind.VERSION_UNSUPPORTED: "UnsupportedProtocolVersionError",
    FaultKind.URL_ELICITATION_REQUIRED: "URLElicitationRequiredError",
}
DATA: dict[FaultKind, Any] = {
    FaultKind.CAPABILITY_MISSING: {"requiredCapabilities": {"elicitation": {"form": {}}}},
    FaultKind.VERSION_UNSUPPORTED: {"supported": EVERY.dates, "requested": "1900-01-01"},
    FaultKind.URL_ELICITATION_REQUIRED: {
        "elicitations": [
            {"mode": "url", "message": "m", "url": "https://example.com/", "elicitationId": "e"}
        ]
    },
}


@pytest.mark.parametrize("kind", FaultKind.members(), ids=lambda kind: kind.name)
def test_every_error_that_we_send_fits_its_closed_schema(
    kind: FaultKind, revision: Revision
) -> None:
    if not official.available():
        print(NO_SCHEMAS)
        return
    fault = Fault(kind, "words", DATA.get(kind))
    frame = encode_error(b'"a"', error_code(fault, revision), fault.message, fault.data)
    titles = official.definitions(official.published(revision.date))
    general = "JSONRPCErrorResponse" if "JSONRPCErrorResponse" in titles else "JSONRPCError"
    check(revision.date, general, frame)
    own = ERROR_TITLES.get(kind)
    if own in titles:
        check(revision.date, own, frame)


# ---------------------------------------------------------------- what they may say


def test_everything_that_an_official_schema_admits_is_read(revision: Revision) -> None:
    if not official.available():
        print(NO_SCHEMAS)
        return
    schema = official.published(revision.date)
    for title, kind in readable(revision):
        seen = type_strategies.Presence()
        values = value_of(schema, title, seen)
        if kind is t.InputRequiredResult:  # an empty demand is one of the differences
            values = values.filter(
                lambda value: "inputRequests" in value or "requestState" in value
            )
        explore(f"reading {revision.date} {title}", values, reader(kind), seen)


def readable(revision: Revision) -> list[tuple[str, type[t.ProtocolType]]]:
    found: dict[str, type[t.ProtocolType]] = {}
    table = official.definitions(official.published(revision.date))
    for row in revision.methods.values():
        if row.result is not None and row.result.__name__ in table:
            found[row.result.__name__] = row.result
        if row.params.__name__ in table:
            found[row.params.__name__] = row.params
        title = TITLES[row.name]
        params = table[title].get("properties", {}).get("params")
        # Newer schemas refer to the definition of the params, which is read above.
        if params is not None and not params.get("$ref", "").endswith(f"/{row.params.__name__}"):
            found[f"{title}.params"] = row.params
    for kind in (
        t.Tool,
        t.Prompt,
        t.Resource,
        t.ResourceTemplate,
        t.SamplingMessage,
        t.PromptMessage,
        t.ClientCapabilities,
        t.ServerCapabilities,
        t.Implementation,
        t.InputRequiredResult,
        t.CreateMessageResult,
        t.ElicitResult,
        t.ListRootsResult,
    ):
        if kind.__name__ in table:
            found[kind.__name__] = kind
    return list(found.items())


def reader(kind: type[t.ProtocolType]) -> Callable[[Any], None]:
    def prove(value: Any) -> None:
        data = json.dumps(value).encode()
        try:
            decode_as(kind, data)
        except Fault as fault:
            raise AssertionError(f"refused: {fault.message}\n{data.decode()}") from fault

    return prove


# ---------------------------------------------------------------- the differences


def test_each_difference_has_a_sentence_and_names_a_definition_that_exists() -> None:
    for difference in exceptions.TOO_NARROW + exceptions.TOO_WIDE:
        assert difference.sentence.endswith(".")
        if official.available():
            for date in difference.dates:
                table = official.definitions(official.published(date))
                for name in difference.definition.split(", "):
                    assert name in table, f"{date} has no {name}"


def test_each_difference_is_one_still() -> None:
    if not official.available():
        print(NO_SCHEMAS)
        return
    for narrow in (True, False):
        for difference in exceptions.TOO_NARROW if narrow else exceptions.TOO_WIDE:
            for date in difference.dates:
                for example in difference.examples:
                    found = official.problems(date, difference.definition, example)
                    assert bool(found) is narrow, f"{date} {difference.definition}: {found}"


def test_an_empty_batch_is_refused_though_the_schema_admits_it() -> None:
    with pytest.raises(Fault, match="empty batch"):
        decode(b"[]")
    assert isinstance(decode(b'[{"jsonrpc":"2.0","method":"x"}]'), Batch)


def test_an_id_without_end_and_a_demand_for_nothing_are_refused_though_the_schema_admits_them() -> (
    None
):
    with pytest.raises(Fault, match="id"):
        decode(b'{"jsonrpc":"2.0","id":"%b","method":"x"}' % (b"x" * 9999))
    with pytest.raises(Fault):
        decode_as(t.InputRequiredResult, b'{"resultType":"input_required"}')


def test_a_fraction_in_a_form_is_sent_though_the_schema_refuses_it() -> None:
    answer = t.ElicitResult(action="accept", content={"price": 1.5})
    for revision in ALL:
        if revision.elicitation.modes:
            assert b'"price":1.5' in Encoder(revision).result(answer)


def test_null_and_fractions_in_structured_content_are_sent_and_read() -> None:
    result = t.CallToolResult(content=[], structured_content={"a": None, "b": 1.5})
    data = Encoder(ALL[-1]).result(result)
    assert decode_as(t.CallToolResult, data).structured_content == {"a": None, "b": 1.5}
