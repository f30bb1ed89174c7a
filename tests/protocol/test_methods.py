"""The rows of methods: each revision's official schema says who may send what, and we agree.

The comparison needs the schemas beside the repository; the run's header says whether they are
there, and each test says so where they are not.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from colonnade.protocol import methods as m
from colonnade.protocol import types as t
from colonnade.protocol.methods import Method, Side

OFFICIAL = Path(__file__).resolve().parents[3] / "shared" / "spec"

TABLES: Mapping[str, Mapping[str, Method]] = {
    "2024-11-05": m.FIRST,
    "2025-03-26": m.FIRST | m.COMPLETIONS_DECLARED,
    "2025-06-18": m.FIRST | m.COMPLETIONS_DECLARED | m.ELICITATION,
    "2025-11-25": m.FIRST | m.COMPLETIONS_DECLARED | m.ELICITATION | m.URL_ELICITATION | m.TASKS,
    "2026-07-28": m.STATELESS,
}
ROWS = [row for row in vars(m).values() if isinstance(row, Method)]

Definitions = dict[str, dict[str, Any]]


@cache
def definitions(date: str) -> Definitions:
    path = OFFICIAL / date / "schema.json"
    if not path.is_file():
        print(f"no official schema at {path}: nothing was compared with it")
        return {}
    schema = json.loads(path.read_text("utf-8"))
    return schema.get("$defs") or schema["definitions"]


def messages(union: str, date: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages that a union of the schema lists: each one's name and definition."""
    defs = definitions(date)
    if union in defs:
        listed = defs[union].get("anyOf")
        if listed is None:
            yield union, defs[union]
        for one in listed or ():
            name = one["$ref"].rpartition("/")[2]
            yield name, defs[name]


def method_of(message: dict[str, Any]) -> str:
    return message["properties"]["method"]["const"]


def reference(schema: dict[str, Any]) -> str:
    return schema.get("$ref", "").rpartition("/")[2]


@pytest.mark.parametrize("date", TABLES)
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("kind", ["Request", "Notification"])
def test_each_side_may_send_what_the_schema_lists_for_it(kind: str, side: Side, date: str) -> None:
    theirs = {method_of(message) for _, message in messages(f"{side.value.title()}{kind}", date)}
    ours = {
        row.name
        for row in TABLES[date].values()
        if side in row.senders and row.is_notification is (kind == "Notification")
    }
    if definitions(date):
        assert ours == theirs


@pytest.mark.parametrize("date", TABLES)
@pytest.mark.parametrize("side", ["Client", "Server"])
@pytest.mark.parametrize("kind", ["Request", "Notification"])
def test_a_row_carries_the_params_that_the_schema_names(kind: str, side: str, date: str) -> None:
    for name, message in messages(f"{side}{kind}", date):
        row = TABLES[date][method_of(message)]
        named = reference(message["properties"].get("params", {}))
        ours = {instance.__name__ for instance in row.params.__mro__}
        assert named in ours or (not named and ours & {f"{name}Params", *GENERIC})


# What carries nothing of its own: the older schemas write it out in place.
GENERIC = {"RequestParams", "NotificationParams", "PaginatedRequestParams"}


def test_a_row_promises_the_result_that_the_schema_names() -> None:
    date = "2026-07-28"
    for name, message in messages("ClientRequest", date):
        row = TABLES[date][method_of(message)]
        response = name.removesuffix("Request") + "ResultResponse"
        result = definitions(date)[response]["properties"]["result"]
        named = {reference(one) for one in result.get("anyOf", [result])}
        assert row.result is not None
        assert row.result.__name__ in named
        assert row.may_require_input is ("InputRequiredResult" in named)
        body = definitions(date)[row.result.__name__]["properties"]
        assert row.cacheable is ("ttlMs" in body) is issubclass(row.result, t.CacheableResult)


@pytest.mark.spec("R0785")
def test_only_calls_prompts_and_reads_may_answer_with_questions() -> None:
    asking = {row.name for row in ROWS if row.may_require_input}
    assert asking == {"tools/call", "prompts/get", "resources/read"}


def test_there_are_thirty_four_methods_and_four_of_the_tasks_extension() -> None:
    assert len({name for table in TABLES.values() for name in table}) == 34
    assert m.TASKS_EXTENSION.keys() == {
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
        "notifications/tasks",
    }


def test_every_row_is_in_a_table_under_its_own_name() -> None:
    tables = [*TABLES.values(), m.TASKS_EXTENSION]
    placed = [row for table in tables for row in table.values()]
    assert all(any(row is one for one in placed) for row in ROWS)
    assert all(name == row.name for table in tables for name, row in table.items())


def test_tasks_of_the_core_and_of_the_extension_are_different_rows() -> None:
    for name in ("tasks/get", "tasks/cancel"):
        assert m.TASKS[name].params is not m.TASKS_EXTENSION[name].params
        assert m.TASKS[name].result is not m.TASKS_EXTENSION[name].result


def test_names_in_headers_come_from_members_of_the_params() -> None:
    named = {row.name: row.name_param for row in m.STATELESS.values() if row.name_param}
    assert named == {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
    for row in ROWS:
        assert row.name_param is None or row.name_param in row.params.__struct_encode_fields__


@pytest.mark.spec("R1200")
def test_requests_about_a_task_of_the_extension_are_named_by_the_task() -> None:
    requests = [row for row in m.TASKS_EXTENSION.values() if not row.is_notification]
    assert [row.name_param for row in requests] == ["taskId"] * 3


@pytest.mark.parametrize("date", TABLES)
def test_a_need_is_a_capability_that_the_revision_has(date: str) -> None:
    for row in TABLES[date].values():
        sides = {row.needed_of(sender) for sender in row.senders}
        for side in sides if row.needs and definitions(date) else ():
            here = definitions(date)[f"{side.value.title()}Capabilities"]
            for step in (row.needs or "").split("."):
                assert step in here["properties"], row.name
                here = here["properties"][step]


def test_a_row_that_either_side_may_send_needs_the_receivers_capability() -> None:
    assert m.GET_TASK.needed_of(Side.CLIENT) is Side.SERVER
    assert m.GET_TASK.needed_of(Side.SERVER) is Side.CLIENT
    assert m.CREATE_MESSAGE.needed_of(Side.SERVER) is Side.CLIENT
    assert m.ROOTS_CHANGED.needed_of(Side.CLIENT) is Side.CLIENT
    assert m.LOG_MESSAGE.needed_of(Side.SERVER) is Side.SERVER


def test_a_need_has_an_owner_and_an_owner_a_need() -> None:
    for row in ROWS:
        assert (row.needs is None) <= (row.needs_of is None)
        assert row.needs is None or row.needs_of or row.senders == {Side.CLIENT, Side.SERVER}


def test_rows_are_kept_by_name_and_a_later_one_takes_the_place_of_an_earlier() -> None:
    assert m.by_name() == {}
    assert m.by_name(m.PROGRESS, m.PROGRESS_OF_SERVER) == {
        "notifications/progress": replace(m.PROGRESS, senders=m.SERVER)
    }


@pytest.mark.parametrize(
    ("capabilities", "path", "declared"),
    [
        (t.ServerCapabilities(tools=t.ToolsCapability()), "tools", True),
        (t.ServerCapabilities(), "tools", False),
        (t.ServerCapabilities(), "tools.listChanged", False),
        (t.ServerCapabilities(tools=t.ToolsCapability()), "tools.listChanged", False),
        (
            t.ServerCapabilities(tools=t.ToolsCapability(list_changed=False)),
            "tools.listChanged",
            False,
        ),
        (
            t.ServerCapabilities(tools=t.ToolsCapability(list_changed=True)),
            "tools.listChanged",
            True,
        ),
        (t.ServerCapabilities(completions={}), "completions", True),
        (t.ServerCapabilities(tasks=t.ServerTasksCapability(listing={})), "tasks.list", True),
        (t.ServerCapabilities(tasks=t.ServerTasksCapability(listing={})), "tasks.cancel", False),
        (t.ClientCapabilities(roots=t.RootsCapability()), "roots", True),
        (t.ClientCapabilities(roots=t.RootsCapability()), "telepathy", False),
        (t.ClientCapabilities(roots=t.RootsCapability(list_changed=True)), "roots.x", False),
        (
            t.ClientCapabilities(roots=t.RootsCapability(list_changed=True)),
            "roots.listChanged.x",
            False,
        ),
        (
            t.ClientCapabilities(extensions={t.TASKS_EXTENSION_ID: {}}),
            f"extensions.{t.TASKS_EXTENSION_ID}",
            True,
        ),
        (
            t.ClientCapabilities(extensions={"com.example/x": {}}),
            f"extensions.{t.TASKS_EXTENSION_ID}",
            False,
        ),
        (t.ClientCapabilities(), f"extensions.{t.TASKS_EXTENSION_ID}", False),
    ],
)
def test_capabilities_say_yes_to_a_path(
    capabilities: t.ClientCapabilities | t.ServerCapabilities, path: str, declared: bool
) -> None:
    assert m.declares(capabilities, path) is declared


def test_the_other_side_of_each_side_is_the_other() -> None:
    assert (Side.CLIENT.other, Side.SERVER.other) == (Side.SERVER, Side.CLIENT)
