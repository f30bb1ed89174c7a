"""The table of containment has a row for each member of each message of a server: for our own types,
and for the official schemas of each revision."""

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import pytest
from msgspec import UNSET, Raw

from colonnade.host.policy.containment_pass import ContainmentPass
from colonnade.host.policy.hidden_text import find_hidden
from colonnade.host.policy.members import MEMBERS, Treatment
from colonnade.protocol import types as t
from colonnade.protocol.methods import (
    EXT_CANCEL_TASK,
    EXT_GET_TASK,
    EXT_TASK_STATUS,
    EXT_UPDATE_TASK,
    Side,
)
from colonnade.protocol.revision import EVERY
from colonnade.protocol.types.base import field_annotations

SPEC = Path(__file__).parents[4] / "shared" / "spec"
BAD = "x\u202ey"


# ---------------------------------------------------------------- our own types


def messages_of_servers() -> Iterator[type[t.ProtocolType]]:
    """The params of what servers send, and the results of what clients send."""
    yield from (t.InputRequiredResult, t.ErrorObject, t.ExtCreateTaskResult, t.CreateTaskResult)
    for method in (EXT_GET_TASK, EXT_UPDATE_TASK, EXT_CANCEL_TASK):
        assert method.result is not None
        yield method.result
    yield EXT_TASK_STATUS.params
    for revision in EVERY:
        for method in revision.methods.values():
            if Side.SERVER in method.senders:
                yield method.params
            if Side.CLIENT in method.senders and method.result is not None:
                yield method.result


def types_in(annotation: Any) -> Iterator[type[t.ProtocolType]]:
    """The types of the protocol in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, t.ProtocolType):
        yield annotation
    for one in get_args(annotation):
        yield from types_in(one)


# What a host reads itself.
UNUSED = {t.ServerCapabilities, t.Implementation, t.SubscriptionFilter}


def types_of_servers() -> set[type[t.ProtocolType]]:
    found, left = set[type[t.ProtocolType]](), list(messages_of_servers())
    while left:
        one = left.pop()
        if one not in found and one not in UNUSED:
            found.add(one)
            for annotation in field_annotations(one).values():
                left += types_in(annotation)
    return found


def test_each_member_of_each_message_of_a_server_has_a_row() -> None:
    missing = {
        f"{one.__name__}.{member}"
        for one in types_of_servers()
        for member in one.__struct_fields__
        if member not in MEMBERS.get(one, {})
    }
    assert missing == set()


def test_no_row_is_for_a_type_or_a_member_that_servers_do_not_send() -> None:
    known = types_of_servers()
    stale = {
        f"{one.__name__}.{member}"
        for one, rows in MEMBERS.items()
        for member in rows
        if one not in known or member not in one.__struct_fields__
    }
    assert stale == set()


def test_a_member_with_any_string_is_not_a_closed_one() -> None:
    def is_open(annotation: Any) -> bool:
        if annotation in (str, Any):
            return True
        if get_origin(annotation) is typing.Literal:
            return False
        return any(map(is_open, get_args(annotation)))

    known = {"result_type"}  # any other than those of the revision is an error
    wrong = {
        f"{one.__name__}.{member}"
        for one, rows in MEMBERS.items()
        for member, how in rows.items()
        if how is Treatment.CLOSED
        and member not in known
        and is_open(field_annotations(one)[member])
    }
    assert wrong == set()


# ---------------------------------------------------------------- what happens to a member


def sample(annotation: Any) -> Any:
    """A value with hidden text for an annotation; None if it has no place for text."""
    if annotation is str:
        return BAD
    if annotation is Any:
        return {"a": [BAD]}
    if annotation is Raw:
        return Raw(json.dumps(BAD).encode())
    if isinstance(annotation, type) and issubclass(annotation, t.ProtocolType):
        return filled(annotation) if annotation is not t.UnknownContent else None
    if annotation is t.UnknownMembers:
        return t.UnknownMembers({"type": "new", "words": [BAD]})
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is typing.Literal:
        return inner[0]
    if origin is list:
        return [sample(inner[0])]
    if origin is dict:
        return {"a": sample(inner[1])}
    if origin is typing.Annotated:
        return sample(inner[0])
    if origin in (typing.Union, UnionType):
        return sample(inner[0])
    return {int: 1, float: 1.0, bool: True}.get(annotation)


def filled(kind: type[t.ProtocolType]) -> Any:
    """An instance in which each member has hidden text that may have it. Where a call would be
    refused for one, that one has none."""
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        how = MEMBERS[kind][name]
        value = None if how is Treatment.UNUSED else sample(field_annotations(kind)[name])
        if how is Treatment.EXACT:
            value = ["a"] if isinstance(value, list) else "a"
        elif how is Treatment.CLOSED and value == BAD:
            value = "complete"
        elif how is Treatment.SCHEMA:
            value = {"description": BAD, "properties": {"a": {"title": BAD}}}
        if value is not None:
            values[name] = value
    if kind is t.ResourceContents:
        del values["blob"]
    if kind in (t.ExtGetTaskResult, t.ExtTaskStatusNotificationParams):
        values |= {"input_requests": {}, "error": t.ErrorObject(code=1, message=BAD)}
    if kind in (t.InitializeResult, t.DiscoverResult):
        values["capabilities"] = t.ServerCapabilities()
    if kind is t.InitializeResult:
        values["server_info"] = t.Implementation(name="a", version="1")
    if kind is t.SubscriptionsAcknowledgedNotificationParams:
        values["notifications"] = t.SubscriptionFilter()
    return kind(**values)


def hidden_members(kind: type[t.ProtocolType], given: t.ProtocolType) -> set[str]:
    return {
        name
        for name, how in MEMBERS[kind].items()
        if how not in (Treatment.OPAQUE, Treatment.UNUSED, Treatment.STRUCTURED)
        if any(map(find_hidden, strings(getattr(given, name))))
    }


def strings(value: Any) -> Iterator[str]:
    """Each string in a value, but those of members that stay as they are."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)
    elif isinstance(value, t.UnknownMembers):
        yield from strings(value.members)
    elif isinstance(value, t.ProtocolType):
        stay = (Treatment.OPAQUE, Treatment.UNUSED, Treatment.STRUCTURED)
        for name, how in MEMBERS[type(value)].items():
            if how not in stay and getattr(value, name) is not UNSET:
                yield from strings(getattr(value, name))


@pytest.mark.parametrize("kind", MEMBERS, ids=lambda kind: kind.__name__)
def test_no_hidden_text_is_left_in_a_member(kind: type[t.ProtocolType]) -> None:
    given = filled(kind)
    shown = ContainmentPass("neutralise", 10_000).part(given)
    assert hidden_members(kind, shown) == set()
    assert ContainmentPass("mark", 10_000).part(given) == given


# ---------------------------------------------------------------- the official schemas

# Definitions that have another name here, or are several.
NAMES: dict[str, type[t.ProtocolType] | None] = {
    "BlobResourceContents": t.ResourceContents,
    "TextResourceContents": t.ResourceContents,
    "BooleanSchema": t.PrimitiveSchema,
    "NumberSchema": t.PrimitiveSchema,
    "StringSchema": t.PrimitiveSchema,
    "EnumSchema": t.PrimitiveSchema,
    "LegacyTitledEnumSchema": t.PrimitiveSchema,
    "TitledMultiSelectEnumSchema": t.PrimitiveSchema,
    "TitledSingleSelectEnumSchema": t.PrimitiveSchema,
    "UntitledMultiSelectEnumSchema": t.PrimitiveSchema,
    "UntitledSingleSelectEnumSchema": t.PrimitiveSchema,
    "ElicitRequestFormParams": t.ElicitRequestParams,
    "ElicitRequestURLParams": t.ElicitRequestParams,
    "Error": t.ErrorObject,
    "Result": t.EmptyResult,
    # Envelopes, and what the host reads itself.
    "JSONRPCError": None,
    "JSONRPCErrorResponse": None,
    "Implementation": None,
    "ServerCapabilities": None,
    "SubscriptionFilter": None,
    "NotificationMetaObject": None,
    "ResultMetaObject": None,
    "SubscriptionsListenResultMetaObject": None,
}
ROOTS = (
    "ServerResult",
    "ServerRequest",
    "ServerNotification",
    "InputRequiredResult",
    "JSONRPCError",
    "JSONRPCErrorResponse",
)
# What requests and notifications have around their params.
AROUND = {"jsonrpc", "id", "method", "params"}


def schema_members(revision: str) -> Iterator[tuple[str, str]]:
    """Each member of each definition that a server sends: the name of the definition, and its own.
    In the first revisions params are part of the definition of their request."""
    document = json.loads((SPEC / revision / "schema.json").read_text())
    definitions = document.get("$defs") or document["definitions"]
    seen, left = set[str](), [one for one in ROOTS if one in definitions]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        left += references(definitions[name])
        for member, schema in definitions[name].get("properties", {}).items():
            if member == "params":
                method = definitions[name]["properties"]["method"]["const"]
                for param in schema.get("properties", {}):
                    yield method, param
            yield name, member


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for one in node.values():
            yield from references(one)
    elif isinstance(node, list):
        for one in node:
            yield from references(one)


def type_for(name: str, revision: str) -> type[t.ProtocolType] | None:
    """The type of a definition, or of the params of a method."""
    if "/" in name or name == "ping":
        # In the newest revision, some requests are carried in results and are no methods.
        every = sorted(EVERY, key=lambda one: one.date != revision)
        return next(one.methods[name].params for one in every if name in one.methods)
    return NAMES[name] if name in NAMES else getattr(t, name)


@pytest.mark.parametrize("revision", [one.date for one in EVERY])
def test_each_member_of_the_official_schema_has_a_row(revision: str) -> None:
    """Without the official schemas, only our own types are compared."""
    if not SPEC.exists():
        return
    missing, compared = set[str](), 0
    for name, member in schema_members(revision):
        is_around = name.endswith(("Request", "Notification")) and member in AROUND
        kind = None if is_around else type_for(name, revision)
        if kind is None or (member == "type" and hasattr(kind, "type")):
            continue
        compared += 1
        own = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        if member == "type" and kind is t.ElicitSchema:
            continue
        if own.get(member) not in MEMBERS.get(kind, {}):
            missing.add(f"{name}.{member}")
    assert missing == set()
    assert compared > 80
