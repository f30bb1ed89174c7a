"""Whether a message is one that the official schema of its revision allows, closed first.

A request or a notification is looked up by its method, a result by the method that it answers.

Rules: what we send on purpose against a schema's letter is in `exceptions`, with its sentence;
it is named here by the number of its decision, taken out, and the rest still has to fit.
"""

from functools import cache
from typing import Any

from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from official import definitions, problems, published
from script_runner import Message

TASKS = "extensions/tasks"


def complaints(message: Message) -> list[str]:
    """What the official schema has against a message; nothing, if all is well."""
    revision = message.revision
    members = excused(message.members, revision)
    if "taskIds" in members.get("params", {}).get("notifications", {}):  # the extension adds it
        notifications = dict(members["params"]["notifications"])
        added = {"taskIds": notifications.pop("taskIds")}
        members["params"] = members["params"] | {"notifications": notifications}
        return problems(TASKS, "TaskSubscriptionNotifications", added) + _said(members, revision)
    if "error" in members:
        return problems(
            revision.date, frame_of(revision, "JSONRPCErrorResponse", "JSONRPCError"), members
        )
    if "method" in members:
        return _said(members, revision)
    return _answered(members, message.answers, revision)


def excused(members: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """The message without the members that stand in `exceptions`."""
    members = dict(members)
    if "error" in members and revision.error_id_required and members.get("id") is None:
        members["id"] = 0  # D2: there was none to repeat
    if revision.handshake:  # D33: capabilities are not a closed set
        for place in ("params", "result"):
            inner = members.get(place)
            if isinstance(inner, dict) and "protocolVersion" in inner:
                capabilities = {k: v for k, v in inner["capabilities"].items() if k != "extensions"}
                members[place] = inner | {"capabilities": capabilities}
    return members


def frame_of(revision: Revision, *names: str) -> str:
    """The first of these definitions that the revision has."""
    return next(name for name in names if name in definitions(published(revision.date)))


@cache
def by_method(schema: str) -> dict[str, str]:
    """The definition of each method that a schema has."""
    return {
        definition["properties"]["method"]["const"]: name
        for name, definition in definitions(published(schema)).items()
        if name not in ("ClientNotification", "ServerNotification")
        and "const" in definition.get("properties", {}).get("method", {})
    }


def _said(members: dict[str, Any], revision: Revision) -> list[str]:
    kind = "JSONRPCRequest" if "id" in members else "JSONRPCNotification"
    found = problems(revision.date, kind, members)
    name = by_method(revision.date).get(members["method"])
    if name is None:
        return found + _said_by_extension(members)
    known = definitions(published(revision.date))[name]["properties"]
    return found + problems(
        revision.date,
        name,
        {key: members[key] for key in members if key in known or key == "params"},
    )


EXTENSION_PARAMS = {
    "tasks/get": "GetTaskRequest",
    "tasks/update": "UpdateTaskRequest",
    "tasks/cancel": "CancelTaskRequest",
    "notifications/tasks": "TaskStatusNotification",
}


def _said_by_extension(members: dict[str, Any]) -> list[str]:
    name = EXTENSION_PARAMS.get(members["method"])
    return problems(TASKS, name, members) if name else [f"no method {members['method']}"]


def _answered(members: dict[str, Any], method: str | None, revision: Revision) -> list[str]:
    frame = frame_of(revision, "JSONRPCResultResponse", "JSONRPCResponse")
    found = problems(revision.date, frame, members)
    row = revision.method(method or "", frozenset({t.TASKS_EXTENSION_ID}))
    if row is None or row.result is None:
        return [*found, f"an answer to {method}"]
    name, result = row.result.__name__, members["result"]
    schema = revision.date
    if result.get("resultType") == "input_required":
        name = "InputRequiredResult"
    elif result.get("resultType") == "task":
        schema, name = TASKS, "CreateTaskResult"
    elif name.startswith("Ext"):
        schema, name = TASKS, name.removeprefix("Ext")
    elif "task" in result:
        name = "CreateTaskResult"
    return found + problems(schema, name, result)
