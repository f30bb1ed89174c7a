"""What peers say when all is well: every method of every revision, both ways. Mutations start here.

Rules: valid messages only, small ones; each says something that the code looks at. Whatever is
wrong comes from `fuzz.mutate`. A new method without a seed here fails a test.
"""

import json
from typing import Any, NamedTuple

from colonnade.protocol import types as t
from colonnade.protocol.methods import Method
from colonnade.protocol.revision import ALL, Revision

JSON = Any  # a decoded JSON value: the mutations look at all of it, and know nothing of its shape


class Seed(NamedTuple):
    """One message as it travels, and as the value it stands for; other bytes have no tree."""

    body: bytes
    tree: JSON = None


def seed(tree: JSON) -> Seed:
    return Seed(json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode(), tree)


# ---------------------------------------------------------------- who speaks

CLIENT_INFO = {"name": "reader", "version": "1.0", "title": "The Reader"}
SERVER_INFO = {"name": "library", "version": "2.1", "websiteUrl": "https://library.example"}
CLIENT_CAN = {
    "experimental": {"shelves": {"height": 3}},
    "roots": {"listChanged": True},
    "sampling": {"context": {}, "tools": {}},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}},
    "extensions": {t.TASKS_EXTENSION_ID: {}},
}
SERVER_CAN = {
    "logging": {},
    "completions": {},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "tools": {"listChanged": True},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    "extensions": {t.TASKS_EXTENSION_ID: {}},
}


def envelope(date: str) -> dict[str, JSON]:
    """What a request says of its sender where there is no handshake."""
    return {
        t.PROTOCOL_VERSION_KEY: date,
        t.CLIENT_CAPABILITIES_KEY: CLIENT_CAN,
        t.CLIENT_INFO_KEY: CLIENT_INFO,
        t.LOG_LEVEL_KEY: "info",
    }


# ---------------------------------------------------------------- nouns

ICON = {"src": "https://library.example/l.png", "mimeType": "image/png", "sizes": ["48x48"]}
TOOL_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "x-mcp-header": "City", "maxLength": 40},
        "days": {"type": ["integer", "null"], "minimum": 1, "x-mcp-header": "Days"},
        "where": {
            "type": "object",
            "properties": {"indoors": {"type": "boolean", "x-mcp-header": "In-Doors"}},
        },
    },
    "required": ["city"],
}
TOOL = {
    "name": "forecast",
    "title": "Forecast",
    "inputSchema": TOOL_SCHEMA,
    "outputSchema": {"type": "object", "properties": {"degrees": {"type": "number"}}},
    "annotations": {"readOnlyHint": True, "destructiveHint": False},
    "execution": {"taskSupport": "optional"},
    "icons": [ICON],
    "_meta": {"com.example/shelf": 4},
}
BLOCKS: list[JSON] = [
    {"type": "text", "text": "words", "annotations": {"audience": ["user"], "priority": 0.5}},
    {"type": "image", "data": "aW1hZ2U=", "mimeType": "image/png"},
    {"type": "audio", "data": "YXVkaW8=", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///b.txt", "name": "b.txt", "size": 12},
    {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "ä", "_meta": {"a/b": 2}}},
    {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAE="}},
    {"type": "hologram", "depth": 3},
]
FORM: JSON = {
    "message": "What will you eat?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "seat": {"type": "string", "minLength": 2, "maxLength": 3, "default": "12A"},
            "main": {"type": "string", "oneOf": [{"const": "f", "title": "Fish"}]},
            "sides": {"type": "array", "items": {"anyOf": [{"const": "b", "title": "Bread"}]}},
            "drink": {"type": "string", "enum": ["tea"], "enumNames": ["Tea"]},
            "spice": {"type": "number", "minimum": 0, "maximum": 10},
            "window": {"type": "boolean", "default": True},
        },
        "required": ["seat"],
    },
}
VISIT: JSON = {
    "mode": "url",
    "message": "Log in.",
    "url": "https://airline.example/login",
    "elicitationId": "e-1",
}
SAMPLE: JSON = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Pick a seat."}}],
    "maxTokens": 10,
    "systemPrompt": "Be brief.",
    "temperature": 0.2,
    "modelPreferences": {"hints": [{"name": "small"}], "costPriority": 0.5},
    "includeContext": "none",
}
SAMPLE_TOOLS: JSON = {
    "messages": [
        {"role": "user", "content": {"type": "text", "text": "How warm is it?"}},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "u1", "name": "forecast", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "toolUseId": "u1", "content": BLOCKS[:1]}],
        },
    ],
    "maxTokens": 10,
    "tools": [TOOL],
    "toolChoice": {"mode": "auto"},
}
TASK = {
    "taskId": "t-1",
    "status": "working",
    "createdAt": "2025-11-25T10:00:00Z",
    "lastUpdatedAt": "2025-11-25T10:01:00Z",
    "ttl": None,
    "pollInterval": 500,
}
EXT_TASK: JSON = {
    "taskId": "t-1",
    "status": "completed",
    "createdAt": "2026-07-28T10:00:00Z",
    "lastUpdatedAt": "2026-07-28T10:01:00Z",
    "ttlMs": 60000,
    "result": {"content": BLOCKS[:1]},
}
QUESTIONS: JSON = {
    "seat": {"method": "elicitation/create", "params": FORM},
    "words": {"method": "sampling/createMessage", "params": SAMPLE},
    "roots": {"method": "roots/list"},
}
ANSWERS: JSON = {
    "seat": {"action": "accept", "content": {"seat": "12A", "window": False, "sides": ["b"]}},
    "words": {
        "role": "assistant",
        "content": {"type": "text", "text": "12A"},
        "model": "small-1",
        "stopReason": "endTurn",
    },
    "roots": {"roots": [{"uri": "file:///home/ada", "name": "Home"}]},
}
FILTER = {
    "toolsListChanged": True,
    "resourceSubscriptions": ["file:///a.txt"],
    "taskIds": ["t-1"],
}
SUBSCRIBED = {t.SUBSCRIPTION_ID_KEY: 5}

# ---------------------------------------------------------------- one row a method

NO_PARAMS: tuple[JSON, ...] = ({}, None)
PAGE: tuple[JSON, ...] = ({"cursor": "page-2"}, None)

PARAMS: dict[str, tuple[JSON, ...]] = {
    "initialize": (),  # differs by revision: see `_opening`
    "notifications/initialized": NO_PARAMS,
    "ping": ({"_meta": {"progressToken": "p-1"}}, None),
    "server/discover": NO_PARAMS,
    "notifications/cancelled": (
        {"requestId": 7, "reason": "no longer needed"},
        {"requestId": "a-7"},
        {"requestId": 5, "_meta": SUBSCRIBED},
        {"reason": "nothing"},
    ),
    "notifications/progress": (
        {"progressToken": 1, "progress": 0.5, "total": 1, "message": "half"},
        {"progressToken": 2, "progress": 7},
        {"progressToken": "1", "progress": 3},
    ),
    "tools/list": PAGE,
    "tools/call": (
        {"name": "forecast", "arguments": {"city": "Oslo", "days": 3, "where": {"indoors": True}}},
        {"name": "forecast", "_meta": {"progressToken": 9}, "task": {"ttl": 1000}},
        {"name": "book", "inputResponses": ANSWERS, "requestState": "c2VhbGVk"},
    ),
    "notifications/tools/list_changed": ({"_meta": SUBSCRIBED}, None),
    "resources/list": PAGE,
    "resources/templates/list": PAGE,
    "resources/read": ({"uri": "file:///a%20b.txt"},),
    "resources/subscribe": ({"uri": "file:///a.txt"},),
    "resources/unsubscribe": ({"uri": "file:///a.txt"},),
    "notifications/resources/list_changed": NO_PARAMS,
    "notifications/resources/updated": ({"uri": "file:///a.txt", "_meta": SUBSCRIBED},),
    "prompts/list": PAGE,
    "prompts/get": ({"name": "review", "arguments": {"book": "B"}},),
    "notifications/prompts/list_changed": NO_PARAMS,
    "completion/complete": (
        {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "book", "value": "A"},
            "context": {"arguments": {"shelf": "1"}},
        },
        {
            "ref": {"type": "ref/resource", "uri": "file:///{name}"},
            "argument": {"name": "name", "value": ""},
        },
    ),
    "logging/setLevel": ({"level": "warning"},),
    "notifications/message": ({"level": "error", "logger": "db", "data": {"lost": [1, None]}},),
    "subscriptions/listen": ({"notifications": FILTER},),
    "notifications/subscriptions/acknowledged": ({"notifications": FILTER, "_meta": SUBSCRIBED},),
    "sampling/createMessage": (SAMPLE, SAMPLE_TOOLS),
    "roots/list": NO_PARAMS,
    "notifications/roots/list_changed": NO_PARAMS,
    "elicitation/create": (FORM, VISIT),
    "notifications/elicitation/complete": ({"elicitationId": "e-1"},),
    "tasks/get": ({"taskId": "t-1"},),
    "tasks/result": ({"taskId": "t-1"},),
    "tasks/list": PAGE,
    "tasks/cancel": ({"taskId": "t-1"},),
    "tasks/update": ({"taskId": "t-1", "inputResponses": ANSWERS},),
    "notifications/tasks/status": (TASK,),
    "notifications/tasks": (EXT_TASK,),
}

RESULTS: dict[str, tuple[JSON, ...]] = {
    "initialize": (),
    "server/discover": (
        {
            "supportedVersions": [revision.date for revision in ALL],
            "capabilities": SERVER_CAN,
            "ttlMs": 1000,
            "cacheScope": "public",
            "_meta": {t.SERVER_INFO_KEY: SERVER_INFO},
        },
    ),
    "tools/list": ({"tools": [TOOL], "nextCursor": "page-2", "ttlMs": 5, "cacheScope": "public"},),
    "tools/call": (
        {"content": BLOCKS, "structuredContent": {"degrees": 21.5}, "isError": False},
        {"content": [], "structuredContent": [1, 2.0, None], "resultType": "complete"},
        {"resultType": "input_required", "inputRequests": QUESTIONS, "requestState": "c2Vh"},
    ),
    "resources/list": ({"resources": [{"uri": "file:///a.txt", "name": "a", "icons": [ICON]}]},),
    "resources/templates/list": (
        {"resourceTemplates": [{"uriTemplate": "file:///{name}.txt", "name": "book"}]},
    ),
    "resources/read": ({"contents": [{"uri": "file:///a.txt", "text": "hello"}], "ttlMs": 0},),
    "prompts/list": ({"prompts": [{"name": "review", "arguments": [{"name": "book"}]}]},),
    "prompts/get": (
        {"messages": [{"role": "user", "content": block} for block in BLOCKS[:5]]},
        {"resultType": "input_required", "requestState": "c2Vh"},
    ),
    "completion/complete": ({"completion": {"values": ["Ada"], "total": 1, "hasMore": False}},),
    "subscriptions/listen": ({"_meta": SUBSCRIBED},),
    "sampling/createMessage": (ANSWERS["words"],),
    "roots/list": (ANSWERS["roots"],),
    "elicitation/create": (ANSWERS["seat"], {"action": "decline"}),
    "tasks/get": (TASK,),
    "tasks/result": ({"content": BLOCKS[:2]},),
    "tasks/list": ({"tasks": [TASK]},),
    "tasks/cancel": (TASK,),
}
EXTENSION_RESULTS: dict[str, tuple[JSON, ...]] = {
    "tasks/get": (EXT_TASK,),
    "tasks/update": ({"resultType": "complete"},),
    "tasks/cancel": ({},),
}

ERRORS: tuple[JSON, ...] = (
    {"code": -32601, "message": "there is no such method"},
    {"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"], "requested": "1"}},
    {"code": -32021, "message": "no", "data": {"requiredCapabilities": {"sampling": {}}}},
    {"code": -32042, "message": "visit", "data": {"elicitations": [VISIT]}},
)

# ---------------------------------------------------------------- messages

# Those that `fuzz.links` has running, one that looks like one of them, and rare but rightful ones.
IDS: tuple[JSON, ...] = (7, "a-7", 1, "1", 2, "☃", -1, 2**53 + 1)
# Links count their own requests from 1: these are, and are not, waiting for an answer.
AWAITED: tuple[JSON, ...] = (1, 2, 3, 4, 5, 6, 40, "1")


def rows(revision: Revision) -> list[Method]:
    """Every method of a revision, those of its extensions among them."""
    extensions = [row for table in revision.extensions.values() for row in table.values()]
    return [*revision.methods.values(), *extensions]


def params_of(row: Method, revision: Revision) -> tuple[JSON, ...]:
    """Params for a method, with the envelope where there is no handshake."""
    if row.name == "initialize":
        return (_opening(revision),)
    found = PARAMS[row.name]
    if revision.handshake or row.is_notification:
        return found
    return tuple(_enveloped(params, revision) for params in found)


def _opening(revision: Revision) -> JSON:
    return {
        "protocolVersion": revision.date,
        "capabilities": CLIENT_CAN,
        "clientInfo": CLIENT_INFO,
    }


def _enveloped(params: JSON, revision: Revision) -> JSON:
    params = params or {}
    return {**params, "_meta": envelope(revision.date) | params.get("_meta", {})}


def results_of(row: Method, revision: Revision) -> tuple[JSON, ...]:
    """Results of a method; an acknowledgement where nothing else is said."""
    if row.name == "initialize":
        opened = {"protocolVersion": revision.date, "serverInfo": SERVER_INFO}
        return (opened | {"capabilities": SERVER_CAN, "instructions": "Ask first."},)
    if revision.methods.get(row.name) is not row:
        return EXTENSION_RESULTS[row.name]
    return RESULTS.get(row.name, ({},))


def requests(revision: Revision) -> list[JSON]:
    """Requests and notifications, those of both sides."""
    found: list[JSON] = []
    for row in rows(revision):
        for params in params_of(row, revision):
            tree: JSON = {"jsonrpc": "2.0", "id": IDS[len(found) % len(IDS)], "method": row.name}
            if row.is_notification:
                del tree["id"]
            if params is not None:
                tree["params"] = params
            found.append(tree)
    return found


def outcomes(revision: Revision) -> list[JSON]:
    """Replies and failures."""
    found: list[JSON] = []
    for row in rows(revision):
        for result in results_of(row, revision) if row.result else ():
            # The first request of a client is its initialize.
            id = 1 if row.name == "initialize" else AWAITED[len(found) % len(AWAITED)]
            found.append({"jsonrpc": "2.0", "id": id, "result": result})
    for n, error in enumerate(ERRORS):
        found.append({"jsonrpc": "2.0", "id": AWAITED[n], "error": error})
        found.append({"jsonrpc": "2.0", "error": error} | ({"id": None} if n % 2 else {}))
    return found


def batches(revision: Revision) -> list[JSON]:
    """Arrays of messages; all but one revision refuse them, and that is an answer too."""
    asked, answered = requests(revision), outcomes(revision)
    return [
        asked[:2],
        [asked[2], answered[0], asked[-1]],
        answered[-2:],
        [asked[1], {"jsonrpc": "2.0", "method": "notifications/initialized"}],
        [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2, 1)],
        [{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}],
    ]


def messages(revision: Revision) -> tuple[Seed, ...]:
    """All of them, as seeds."""
    trees = [*requests(revision), *outcomes(revision), *batches(revision)]
    return tuple(seed(tree) for tree in trees)


MESSAGES = {revision.date: messages(revision) for revision in ALL}
EVERY_MESSAGE = tuple(each for found in MESSAGES.values() for each in found)
