"""Each revision's official schema says what the protocol types hold, and our marks agree with it.

The comparison needs the schemas beside the repository; the run's header says whether they are
there, and each test says so where they are not.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from msgspec import inspect, structs

from colonnade.protocol import methods
from colonnade.protocol import types as t

OFFICIAL = Path(__file__).resolve().parents[4] / "shared" / "spec"
DATES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
TASKS = "extensions/tasks"

Definitions = dict[str, dict[str, Any]]

TYPES = sorted(
    (
        kind
        for kind in (getattr(t, name) for name in t.__all__)
        if isinstance(kind, type)
        and issubclass(kind, t.ProtocolType)
        and kind is not t.ProtocolType
    ),
    key=lambda kind: kind.__name__,
)

# Structs that no schema defines, each with its reason.
OURS: Mapping[type[t.ProtocolType], str] = {
    t.InputResponse: "the root of what clients answer",
    t.ListResult: "the root of lists that are both paginated and cacheable",
    t.EnvelopedParams: "RequestParams, with its _meta decoded",
    t.UnknownContent: "the block that no schema knows",
}

# Where a protocol type stands in a schema, if not under its own name: `.` goes to a property, `[]` to the
# items of an array. All places that a revision has are taken together.
PLACES: Mapping[type[t.ProtocolType], tuple[str, ...]] = {
    t.Annotations: ("Annotations", "Annotated.annotations"),
    t.ClientTaskRequests: ("ClientCapabilities.tasks.requests",),
    t.ClientTasksCapability: ("ClientCapabilities.tasks",),
    t.Completion: ("CompleteResult.completion",),
    t.CompletionArgument: ("CompleteRequest.params.argument",),
    t.CompletionContext: ("CompleteRequest.params.context",),
    t.ElicitSchema: (
        "ElicitRequest.params.requestedSchema",
        "ElicitRequestFormParams.requestedSchema",
    ),
    t.ElicitationCapability: ("ClientCapabilities.elicitation",),
    t.EnumItems: ("TitledMultiSelectEnumSchema.items", "UntitledMultiSelectEnumSchema.items"),
    t.EnumOption: (
        "TitledMultiSelectEnumSchema.items.anyOf[]",
        "TitledSingleSelectEnumSchema.oneOf[]",
    ),
    t.Envelope: ("RequestMetaObject",),
    t.ErrorObject: ("Error", "JSONRPCError.error"),
    t.MissingRequiredClientCapabilityData: ("MissingRequiredClientCapabilityError.error.data",),
    t.NotificationMeta: ("NotificationMetaObject",),
    t.PrimitiveSchema: ("PrimitiveSchemaDefinition",),
    t.PromptsCapability: ("ServerCapabilities.prompts",),
    t.RequestMeta: ("JSONRPCRequest.params._meta", "PingRequest.params._meta"),
    t.ResourceContents: ("ResourceContents", "TextResourceContents", "BlobResourceContents"),
    t.ResourceTemplateReference: ("ResourceTemplateReference", "ResourceReference"),
    t.ResourcesCapability: ("ServerCapabilities.resources",),
    t.ResultMeta: ("ResultMetaObject", "SubscriptionsListenResultMetaObject"),
    t.RootsCapability: ("ClientCapabilities.roots",),
    t.SamplingCapability: ("ClientCapabilities.sampling",),
    t.ServerTaskRequests: ("ServerCapabilities.tasks.requests",),
    t.ServerTasksCapability: ("ServerCapabilities.tasks",),
    t.TasksOfElicitation: ("ClientCapabilities.tasks.requests.elicitation",),
    t.TasksOfSampling: ("ClientCapabilities.tasks.requests.sampling",),
    t.TasksOfTools: ("ServerCapabilities.tasks.requests.tools",),
    t.ToolsCapability: ("ServerCapabilities.tools",),
    t.URLElicitationRequiredData: ("URLElicitationRequiredError.error.data",),
    t.UnsupportedProtocolVersionData: ("UnsupportedProtocolVersionError.error.data",),
}

# Protocol types that a later revision named, for what older ones have too: roots of older protocol types.
NAMED_LATER = frozenset({t.CacheableResult, t.InputResponseRequestParams})

# Members of ours that a revision's schema leaves out, each with its reason.
BESIDE_THE_SCHEMA: Mapping[tuple[type[t.ProtocolType], str], str] = {
    (t.ClientCapabilities, "extensions"): "kept for every peer (D33)",
    (t.ServerCapabilities, "extensions"): "kept for every peer (D33)",
    (t.RequestMeta, t.RELATED_TASK_KEY): "reserved by the page on tasks, in no schema",
    (t.SubscriptionFilter, "taskIds"): "added by the tasks extension",
}

# What belongs to a frame and not to the protocol type that it carries.
FRAME_MEMBERS = frozenset({"jsonrpc", "id"})

# Definitions that are no struct, each with what stands for it here.
ALIASES: Mapping[str, object] = {
    "ContentBlock": t.ContentBlock,
    "Cursor": t.Cursor,
    "InputRequest": t.AnyInputRequest,
    "LoggingLevel": t.LoggingLevel,
    "ProgressToken": t.ProgressToken,
    "RequestId": t.RequestId,
    "Role": t.Role,
    "SamplingMessageContentBlock": t.SamplingMessageContentBlock,
    "TaskStatus": t.TaskStatus,
}
NOT_TYPES: Mapping[str, str] = {
    "BaseMetadata": "name and title are written out in each type that has them",
    "Icons": "icons are written out in each type that has them",
    "ClientNotification": "a table of methods",
    "ClientRequest": "a table of methods",
    "ClientResult": "a table of methods",
    "ServerNotification": "a table of methods",
    "ServerRequest": "a table of methods",
    "ServerResult": "a table of methods",
    "EnumSchema": "a form of PrimitiveSchema",
    "MultiSelectEnumSchema": "a form of PrimitiveSchema",
    "SingleSelectEnumSchema": "a form of PrimitiveSchema",
    "HeaderMismatchError": "a code without data",
    "InternalError": "a code without data",
    "InvalidParamsError": "a code without data",
    "InvalidRequestError": "a code without data",
    "MethodNotFoundError": "a code without data",
    "ParseError": "a code without data",
    "InputRequests": "a dict of InputRequest",
    "InputResponse": "raw, until it is known what was asked",
    "InputResponses": "a dict of raw answers",
    "JSONArray": "any JSON",
    "JSONObject": "any JSON",
    "JSONValue": "any JSON",
    "MetaObject": "any JSON object; its keys have rules of their own",
    "ResultType": "any string; who reads it judges it",
    "JSONRPCBatchRequest": "a frame",
    "JSONRPCBatchResponse": "a frame",
    "JSONRPCErrorResponse": "a frame",
    "JSONRPCMessage": "a frame",
    "JSONRPCNotification": "a frame",
    "JSONRPCResponse": "a frame",
    "JSONRPCResultResponse": "a frame",
    "Notification": "a frame",
    "PaginatedRequest": "a frame",
    "Request": "a frame",
    "TaskAugmentedRequestParams": "task is written out in each type that has it",
    "ResourceRequestParams": "uri is written out in each type that has it",
}

# --- reading a schema ---


@cache
def definitions(name: str) -> Definitions:
    """The definitions of an official schema; none, and a word about it, where there is no such."""
    path = OFFICIAL / name / "schema.json"
    if not path.is_file():
        print(f"no official schema at {path}: nothing was compared with it")
        return {}
    schema = json.loads(path.read_text("utf-8"))
    return schema.get("$defs") or schema["definitions"]


def parts(schema: dict[str, Any], defs: Definitions) -> Iterator[dict[str, Any]]:
    """The schema and everything that it is an alternative or a conjunction of."""
    if "$ref" in schema:
        yield from parts(defs[schema["$ref"].rpartition("/")[2]], defs)
    yield schema
    for part in [*schema.get("anyOf", ()), *schema.get("allOf", ())]:
        yield from parts(part, defs)


def found(place: str, defs: Definitions) -> list[dict[str, Any]]:
    """The schemas at a place; none if it is not there."""
    root, *steps = place.replace("[]", ".[]").split(".")
    here = [defs[root]] if root in defs else []
    for step in steps:
        flat = [part for schema in here for part in parts(schema, defs)]
        if step == "[]":
            here = [part["items"] for part in flat if "items" in part]
        else:
            here = [part["properties"][step] for part in flat if step in part.get("properties", {})]
    return here


def places(kind: type[t.ProtocolType]) -> tuple[str, ...]:
    name = kind.__name__
    if kind in PLACES:
        return PLACES[kind]
    return (name, f"{name.removesuffix('Params')}.params") if name.endswith("Params") else (name,)


def objects(kind: type[t.ProtocolType], defs: Definitions) -> list[dict[str, Any]]:
    return [schema for place in places(kind) for schema in found(place, defs)]


def members(kind: type[t.ProtocolType], defs: Definitions) -> dict[str, list[dict[str, Any]]]:
    """What the schema says that the protocol type holds: the schemas of each member, by its name."""
    said: dict[str, list[dict[str, Any]]] = {}
    for schema in objects(kind, defs):
        for part in parts(schema, defs):
            for name, member in part.get("properties", {}).items():
                said.setdefault(name, []).append(member)
    if "method" in said:
        said = {name: member for name, member in said.items() if name not in FRAME_MEMBERS}
    # The older schemas write `_meta` once, for all requests and notifications.
    inline = issubclass(kind, t.RequestParams | t.NotificationParams) and kind.__name__ not in defs
    if inline and "_meta" not in said:
        said["_meta"] = []
    return said


def lives(span: t.RevisionRange, date: str) -> bool:
    return (span.since or date) <= date <= (span.until or date)


def kept(kind: type[t.ProtocolType], date: str) -> set[str]:
    """What our marks say that the protocol type holds in a revision."""
    spans = t.field_ranges(kind)
    tag = kind.__struct_config__.tag_field
    return ({tag} if tag else set[str]()) | {
        field.encode_name
        for field in structs.fields(kind)
        if lives(spans.get(field.name, t.RevisionRange()), date)
    }


def is_ours(kind: type[t.ProtocolType]) -> bool:
    return kind in OURS or kind.__name__.startswith("Ext") or kind is t.TasksExtensionCapability


# --- the comparison ---


@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("kind", [kind for kind in TYPES if not is_ours(kind)])
def test_a_type_holds_in_each_revision_what_its_schema_says(
    kind: type[t.ProtocolType], date: str
) -> None:
    defs = definitions(date)
    if defs:
        named = bool(objects(kind, defs))
        assert named == lives(kind.available, date) or (kind in NAMED_LATER and not named)
    if objects(kind, defs):
        said = members(kind, defs).keys()
        beside = {member for one, member in BESIDE_THE_SCHEMA if one is kind}
        assert kept(kind, date) - (beside - said) == said


@pytest.mark.parametrize("date", DATES)
def test_every_definition_of_a_schema_is_a_type_or_has_a_reason_not_to_be(date: str) -> None:
    placed = {
        place.partition(".")[0] for kind in TYPES if not is_ours(kind) for place in places(kind)
    }
    rows = {row.name for row in ALL_ROWS}
    for name, schema in definitions(date).items():
        method = schema.get("properties", {}).get("method", {}).get("const")
        response = name.removesuffix("Response")
        assert (
            name in placed | ALIASES.keys() | NOT_TYPES.keys()
            or method in rows
            or (response != name and response in placed)
            or any(name in _forms(place, definitions(date)) for place in placed)
        ), name


def _forms(place: str, defs: Definitions) -> set[str]:
    """The names of the alternatives that a definition unites."""
    schemas = [part for schema in found(place, defs) for part in parts(schema, defs)]
    return {part["$ref"].rpartition("/")[2] for part in schemas if "$ref" in part}


ALL_ROWS = [row for row in vars(methods).values() if isinstance(row, methods.Method)]


def test_no_exception_is_listed_in_vain() -> None:
    known = {name for date in DATES for name in definitions(date)} or NOT_TYPES.keys()
    assert known >= NOT_TYPES.keys()
    assert set(TYPES) >= OURS.keys() | PLACES.keys()
    for kind, member in BESIDE_THE_SCHEMA:
        assert member in kind.__struct_encode_fields__


KINDS: Mapping[type[inspect.Type], set[str]] = {
    inspect.StrType: {"string"},
    inspect.IntType: {"integer"},
    inspect.FloatType: {"number"},
    inspect.BoolType: {"boolean"},
    inspect.NoneType: {"null"},
    inspect.ListType: {"array"},
    inspect.DictType: {"object"},
    inspect.StructType: {"object"},
    inspect.LiteralType: {"string"},
}
ANY = {"string", "integer", "number", "boolean", "null", "array", "object"}


def our_kinds(shape: inspect.Type) -> set[str]:
    if isinstance(shape, inspect.Metadata):
        return our_kinds(shape.type)
    if isinstance(shape, inspect.UnionType):
        return set[str]().union(*map(our_kinds, shape.types))
    return KINDS.get(type(shape), ANY)


def their_kinds(schema: dict[str, Any], defs: Definitions) -> set[str]:
    kinds: set[str] = set()
    for part in parts(schema, defs):
        declared = part.get("type", ())
        kinds |= {declared} if isinstance(declared, str) else set(declared)
    return kinds | ({"integer"} if "number" in kinds else set()) or ANY


# Members whose kinds differ from the schemas', each with its reason.
OTHER_KINDS: Mapping[tuple[type[t.ProtocolType], str], str] = {
    (t.CallToolResult, "structuredContent"): "any JSON since 2026-07-28, an object before",
    (t.ToolResultContent, "structuredContent"): "any JSON since 2026-07-28, an object before",
    (t.CallToolRequestParams, "arguments"): "raw: the tool's own types decode them",
}


@pytest.mark.parametrize("kind", [kind for kind in TYPES if not is_ours(kind)])
def test_the_members_of_a_type_are_of_the_kinds_that_the_schemas_say(
    kind: type[t.ProtocolType],
) -> None:
    shape = inspect.type_info(kind)
    assert isinstance(shape, inspect.StructType)
    for field in shape.fields:
        theirs: set[str] = set()
        for date in DATES:
            for schema in members(kind, definitions(date)).get(field.encode_name, ()):
                theirs |= their_kinds(schema, definitions(date))
        if theirs and (kind, field.encode_name) not in OTHER_KINDS:
            ours = our_kinds(field.type)
            may_be_null = field.required or ours == ANY or "null" in theirs
            assert (ours if may_be_null else ours - {"null"}) == theirs, field.encode_name


# Members that some revision demands and that our structs let be absent, each with its reason.
LENIENT: Mapping[tuple[type[t.ProtocolType] | None, str], str] = {
    (None, "_meta"): "read leniently; `shape` and the envelope see to it",
    (None, "resultType"): "absent means complete; `shape` adds it",
    (None, "ttl"): "absent means null, which is always sent (D70)",
    (None, "ttlMs"): "absent means stale, `shape` adds it; of a task as `ttl`",
    (None, "cacheScope"): "absent means private; `shape` adds it",
    (t.CancelledNotificationParams, "requestId"): "one revision lets it be absent",
    (t.EnumItems, "anyOf"): "one of two forms",
    (t.EnumItems, "enum"): "one of two forms",
    (t.EnumItems, "type"): "one of two forms",
    (t.ResultMeta, t.SUBSCRIPTION_ID_KEY): "only the end of a subscription has it",
    (t.ResourceContents, "text"): "one of two forms, checked",
    (t.ResourceContents, "blob"): "one of two forms, checked",
    (t.ElicitRequestParams, "requestedSchema"): "one of two forms, checked",
    (t.ElicitRequestParams, "mode"): "one of two forms, checked",
    (t.ElicitRequestParams, "url"): "one of two forms, checked",
    (t.ElicitRequestParams, "elicitationId"): "one of two forms",
    (t.PrimitiveSchema, "enum"): "one of many forms",
    (t.PrimitiveSchema, "oneOf"): "one of many forms",
    (t.PrimitiveSchema, "items"): "one of many forms",
}


@pytest.mark.parametrize("kind", [kind for kind in TYPES if not is_ours(kind)])
def test_what_every_schema_demands_of_a_type_it_cannot_be_without(
    kind: type[t.ProtocolType],
) -> None:
    for field in structs.fields(kind):
        demanded = {
            field.encode_name in part.get("required", ())
            for date in DATES
            for schema in objects(kind, definitions(date))
            for part in parts(schema, definitions(date))
            if field.encode_name in part.get("properties", {})
        }
        lenient = {(kind, field.encode_name), (None, field.encode_name)} & LENIENT.keys()
        if demanded and not lenient:
            assert demanded == {field.required}, field.encode_name


EXTENSION_PLACES: Sequence[tuple[type[t.ProtocolType], str]] = [
    (t.ExtTask, "Task"),
    (t.ExtDetailedTask, "DetailedTask"),
    (t.ExtCreateTaskResult, "CreateTaskResult"),
    (t.ExtGetTaskResult, "GetTaskResult"),
    (t.ExtUpdateTaskResult, "UpdateTaskResult"),
    (t.ExtCancelTaskResult, "CancelTaskResult"),
    (t.ExtGetTaskRequestParams, "GetTaskRequest.params"),
    (t.ExtUpdateTaskRequestParams, "UpdateTaskRequest.params"),
    (t.ExtCancelTaskRequestParams, "CancelTaskRequest.params"),
    (t.ExtTaskStatusNotificationParams, "TaskStatusNotificationParams"),
    (t.TasksExtensionCapability, "TasksExtensionCapability"),
]


@pytest.mark.parametrize(("kind", "place"), EXTENSION_PLACES)
def test_a_type_of_the_tasks_extension_holds_what_its_schema_says(
    kind: type[t.ProtocolType], place: str
) -> None:
    defs = definitions(TASKS)
    said = {
        name
        for schema in found(place, defs)
        for part in parts(schema, defs)
        for name in part.get("properties", {})
    }
    if defs:
        beside = {"_meta"} if place.endswith(".params") else set[str]()
        assert set(kind.__struct_encode_fields__) == said | beside
        assert kind.available == t.RevisionRange(since="2026-07-28")


def test_what_the_tasks_extension_adds_to_a_subscription_is_in_its_filter() -> None:
    for name in ("TaskSubscriptionNotifications", "TaskSubscriptionAcknowledgedNotifications"):
        for schema in found(name, definitions(TASKS)):
            assert schema["properties"].keys() == {"taskIds"}
    assert "taskIds" in t.SubscriptionFilter.__struct_encode_fields__


@pytest.mark.parametrize(
    ("alias", "name"),
    [(t.LoggingLevel, "LoggingLevel"), (t.Role, "Role"), (t.TaskStatus, "TaskStatus")],
)
def test_a_set_of_words_is_the_schemas_own(alias: object, name: str) -> None:
    for date in DATES:
        for schema in found(name, definitions(date)):
            assert set(get_args(alias)) == set(schema["enum"])


# What the extension's schema has of its own, and no struct stands for, each with its reason.
EXTENSION_NOT_TYPES: Mapping[str, str] = {
    "CancelTaskRequest": "a row of methods",
    "GetTaskRequest": "a row of methods",
    "UpdateTaskRequest": "a row of methods",
    "TaskStatusNotification": "a row of methods",
    "TaskStatus": "an alias, the same as the core's",
    "TaskSubscriptionNotifications": "taskIds of SubscriptionFilter",
    "TaskSubscriptionAcknowledgedNotifications": "taskIds of SubscriptionFilter",
    "WorkingTask": "a form of ExtDetailedTask",
    "InputRequiredTask": "a form of ExtDetailedTask",
    "CompletedTask": "a form of ExtDetailedTask",
    "FailedTask": "a form of ExtDetailedTask",
    "CancelledTask": "a form of ExtDetailedTask",
}


def test_every_definition_of_the_tasks_extension_is_a_type_of_its_own_or_the_cores() -> None:
    placed = {place for _, place in EXTENSION_PLACES}
    core = definitions("2026-07-28").keys()
    for name in definitions(TASKS):
        assert name in placed | core | EXTENSION_NOT_TYPES.keys()
