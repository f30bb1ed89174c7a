"""The checks of these plays, checked: what is wrong is seen, and the table by hand is whole.

Rules: no server. What a play would have to show to be red stands here as a value.
"""

from typing import Any

import pytest
from msgspec.structs import fields

from colonnade.protocol import types as t
from colonnade.protocol.revision import ALL, Revision
from wire.http_rules import breaches
from wire.known_members import CACHEABLE, CACHED, EVERY_RESULT, TABLE, Member, Reader, knows, member
from wire.transcript import Frame, HttpExchange

JSON = dict[str, Any]
OLDEST, MARCH, JUNE, NOVEMBER, NEWEST = (revision.date for revision in ALL)


# ---------------------------------------------------------------- the table by hand

TYPES: dict[str, type[t.ProtocolType]] = {
    "initialize": t.InitializeResult,
    "server/discover": t.DiscoverResult,
    "tools/list": t.ListToolsResult,
    "tools/call": t.CallToolResult,
    "resources/list": t.ListResourcesResult,
    "resources/templates/list": t.ListResourceTemplatesResult,
    "resources/read": t.ReadResourceResult,
    "prompts/list": t.ListPromptsResult,
    "prompts/get": t.GetPromptResult,
    "completion/complete": t.CompleteResult,
    "subscriptions/listen": t.SubscriptionsListenResult,
    "input_required": t.InputRequiredResult,
    "implementation": t.Implementation,
    "icon": t.Icon,
    "server-can": t.ServerCapabilities,
    "can-list": t.ToolsCapability,
    "can-resources": t.ResourcesCapability,
    "tool": t.Tool,
    "hints": t.ToolAnnotations,
    "resource": t.Resource,
    "template": t.ResourceTemplate,
    "contents": t.ResourceContents,
    "annotations": t.Annotations,
    "prompt": t.Prompt,
    "argument": t.PromptArgument,
    "message": t.PromptMessage,
    "completion": t.Completion,
    "block.text": t.TextContent,
    "block.image": t.ImageContent,
    "block.audio": t.AudioContent,
    "block.resource": t.EmbeddedResource,
    "block.resource_link": t.ResourceLink,
    "roots/list": t.ListRootsRequestParams,
    "sampling/createMessage": t.CreateMessageRequestParams,
    "preferences": t.ModelPreferences,
    "hint": t.ModelHint,
    "tool-choice": t.ToolChoice,
    "turn": t.SamplingMessage,
    "said.text": t.TextContent,
    "said.image": t.ImageContent,
    "said.audio": t.AudioContent,
    "said.tool_use": t.ToolUseContent,
    "said.tool_result": t.ToolResultContent,
    "elicitation/create": t.ElicitRequestParams,
    "form": t.ElicitSchema,
    "field": t.PrimitiveSchema,
    "items": t.EnumItems,
    "option": t.EnumOption,
    "error -32042": t.URLElicitationRequiredData,
    "error -32021": t.MissingRequiredClientCapabilityData,
    "error -32022": t.UnsupportedProtocolVersionData,
    "notifications/cancelled": t.CancelledNotificationParams,
    "notifications/progress": t.ProgressNotificationParams,
    "notifications/message": t.LoggingMessageNotificationParams,
    "notifications/resources/updated": t.ResourceUpdatedNotificationParams,
    "notifications/elicitation/complete": t.ElicitationCompleteNotificationParams,
    "notifications/subscriptions/acknowledged": t.SubscriptionsAcknowledgedNotificationParams,
    "filter": t.SubscriptionFilter,
}
# Not offered yet, so nobody may be sent them: they come with tasks.
TASKS = {"task", "tasks", "execution", "taskIds"}


def by_hand(name: str, date: str) -> set[str]:
    """The members that a protocol type has in a revision, as the table says."""
    line = TABLE[name]
    members: list[Member] = list(line.members.values())
    if issubclass(TYPES[name], t.Result):
        members += map(member, EVERY_RESULT.split() + (CACHED.split() if name in CACHEABLE else []))
    if not knows(date, line.since, line.until):
        return set()
    return {one.name for one in members if knows(date, one.since, one.until)}


def by_marks(kind: type[t.ProtocolType], revision: Revision) -> set[str]:
    """The same, as the marks beside our protocol types say."""
    if not revision.knows(*kind.available):
        return set()
    marks = t.field_ranges(kind)
    tag = kind.__struct_config__.tag_field
    return {tag} - {None} | {
        one.encode_name
        for one in fields(kind)
        if one.encode_name not in TASKS and revision.knows(*marks.get(one.name, t.RevisionRange()))
    }  # type: ignore[return-value]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("played_in", ALL, ids=[revision.date for revision in ALL])
def test_the_table_by_hand_and_the_marks_beside_our_types_agree(
    name: str, played_in: Revision
) -> None:
    assert by_hand(name, played_in.date) == by_marks(TYPES[name], played_in)


def test_every_line_of_the_table_is_compared_or_has_nothing_of_its_own() -> None:
    rest = {name for name in TABLE.keys() - TYPES.keys() if TABLE[name].members}
    # The same members as its neighbours, and the requests inside a result.
    alike = {name for name in rest if name.endswith("list_changed") or name.startswith("question.")}
    assert rest - alike == set()


# ---------------------------------------------------------------- what a client cannot know


def result(**members: Any) -> JSON:
    return {"jsonrpc": "2.0", "id": 1, "result": members}


def tool(**members: Any) -> JSON:
    return result(tools=[{"name": "a", "inputSchema": {"type": "object"}, **members}])


def said(method: str, **params: Any) -> JSON:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def asked(method: str, **params: Any) -> JSON:
    return said(method, **params) | {"id": 1}


def turn(content: Any) -> JSON:
    return asked(
        "sampling/createMessage", maxTokens=1, messages=[{"role": "user", "content": content}]
    )


def form(**field: Any) -> JSON:
    schema = {"type": "object", "properties": {"a": field}}
    return asked("elicitation/create", message="?", requestedSchema=schema)


AUDIO = {"type": "audio", "data": "", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "a:b", "name": "b"}
WORDS = {"type": "text", "text": ""}
# A message, the method that it answers, and the revisions whose clients can know all of it.
MESSAGES: list[tuple[JSON, str | None, set[str]]] = [
    (tool(), "tools/list", {OLDEST, MARCH, JUNE, NOVEMBER, NEWEST}),
    (tool(annotations={"title": "A"}), "tools/list", {MARCH, JUNE, NOVEMBER, NEWEST}),
    (tool(title="A"), "tools/list", {JUNE, NOVEMBER, NEWEST}),
    (tool(outputSchema={"type": "object"}), "tools/list", {JUNE, NOVEMBER, NEWEST}),
    (tool(outputSchema={"type": "string"}), "tools/list", {NEWEST}),
    (tool(icons=[{"src": "a:b"}]), "tools/list", {NOVEMBER, NEWEST}),
    (tool(execution={}), "tools/list", set()),
    (tool(colour="red"), "tools/list", set()),
    (result(tools=[], ttlMs=0), "tools/list", {NEWEST}),
    (result(content=[], resultType="complete"), "tools/call", {NEWEST}),
    (result(content=[AUDIO]), "tools/call", {MARCH, JUNE, NOVEMBER, NEWEST}),
    (result(content=[LINK]), "tools/call", {JUNE, NOVEMBER, NEWEST}),
    (result(content=[WORDS | {"_meta": {}}]), "tools/call", {JUNE, NOVEMBER, NEWEST}),
    (result(content=[WORDS | {"type": "hologram"}]), "tools/call", set()),
    (result(content=[], structuredContent={}), "tools/call", {JUNE, NOVEMBER, NEWEST}),
    (result(content=[], structuredContent=3), "tools/call", {NEWEST}),
    (result(messages=[{"role": "user", "content": LINK}]), "prompts/get", {JUNE, NOVEMBER, NEWEST}),
    (result(_meta={"io.modelcontextprotocol/serverInfo": {}}), "ping", set()),
    (result(), "ping", {OLDEST, MARCH, JUNE, NOVEMBER}),
    (result(capabilities={"completions": {}}), "initialize", {MARCH, JUNE, NOVEMBER}),
    (result(capabilities={"tasks": {}}), "initialize", set()),
    (result(serverInfo={"name": "a", "title": "A"}), "initialize", {JUNE, NOVEMBER}),
    (said("notifications/progress", message="a"), None, {MARCH, JUNE, NOVEMBER, NEWEST}),
    (said("notifications/elicitation/complete", elicitationId="a"), None, {NOVEMBER}),
    (said("notifications/subscriptions/acknowledged"), None, {NEWEST}),
    (said("roots/list"), None, set()),
    (asked("roots/list"), None, {OLDEST, MARCH, JUNE, NOVEMBER}),
    (asked("tools/list"), None, set()),
    (turn(WORDS), None, {OLDEST, MARCH, JUNE, NOVEMBER}),
    (turn(AUDIO), None, {MARCH, JUNE, NOVEMBER}),
    (turn([WORDS]), None, {NOVEMBER}),
    (turn(LINK), None, set()),
    (turn({"type": "tool_use", "id": "a", "name": "b", "input": {}}), None, {NOVEMBER}),
    (form(type="string"), None, {JUNE, NOVEMBER}),
    (form(type="string", default="a"), None, {NOVEMBER}),
    (form(type="boolean", default=True), None, {JUNE, NOVEMBER}),
    (form(type="array", items={"enum": ["a"]}), None, {NOVEMBER}),
    (asked("elicitation/create", message="?", mode="url", url="a:b"), None, {NOVEMBER}),
    (
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32002, "message": ""}},
        None,
        {OLDEST, MARCH, JUNE, NOVEMBER},
    ),
    ({"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": ""}}, None, {NEWEST}),
    (
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "", "hint": ""}},
        None,
        set(),
    ),
    (result() | {"extra": 1}, "ping", set()),
]


@pytest.mark.parametrize(("message", "answers", "known_in"), MESSAGES)
def test_what_came_later_or_ended_earlier_is_complained_of(
    message: JSON, answers: str | None, known_in: set[str]
) -> None:
    dates = [revision.date for revision in ALL]
    assert {date for date in dates if Reader(date).read(message, answers) == []} == known_in


# ---------------------------------------------------------------- rules of HTTP

POST = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'
TOLD = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
OPENS = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}'
ANSWER = '{"jsonrpc":"2.0","id":1,"result":{}}'
NEWS = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
PLAIN = {"content-type": "application/json"}
STREAM = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}


def posted(
    body: bytes, status: int, headers: JSON, answer: bytes = b"", *frames: Frame
) -> HttpExchange:
    """A POST and all that came back."""
    return HttpExchange("POST", "/mcp", body, {}, status, headers, list(frames), answer, whole=True)


def streamed(*frames: Frame, **headers: str) -> HttpExchange:
    return posted(
        POST, 200, STREAM | {k.replace("_", "-"): v for k, v in headers.items()}, b"", *frames
    )


PRIME = Frame(id="t-1-0", retry="1000", data="")
NUMBERED = Frame(id="t-1-1", data=ANSWER)
ID = "a-session-that-nobody-guesses"
# An exchange, on which wire, and the revisions in which it is correct.
EXCHANGES: list[tuple[HttpExchange, str, set[str]]] = [
    (posted(POST, 200, PLAIN, ANSWER.encode()), "http", {OLDEST, MARCH, JUNE, NOVEMBER, NEWEST}),
    (posted(POST, 200, {}, ANSWER.encode()), "http", set()),
    (posted(POST, 202, {}), "http", set()),
    (posted(POST, 202, {}), "sse", {OLDEST}),
    (posted(TOLD, 202, {}), "http", {OLDEST, MARCH, JUNE, NOVEMBER, NEWEST}),
    (posted(TOLD, 200, PLAIN, ANSWER.encode()), "http", set()),
    (posted(POST, 400, PLAIN, ANSWER.encode()), "http", set()),
    (
        posted(POST, 200, PLAIN, b'{"error":{"code":-32601}}'),
        "http",
        {OLDEST, MARCH, JUNE, NOVEMBER},
    ),
    (
        posted(OPENS, 200, PLAIN | {"mcp-session-id": ID}, b"{}"),
        "http",
        {OLDEST, MARCH, JUNE, NOVEMBER},
    ),
    (posted(OPENS, 200, PLAIN | {"mcp-session-id": "1"}, b"{}"), "http", set()),
    (posted(POST, 200, PLAIN | {"mcp-session-id": ID}, b"{}"), "http", set()),
    (streamed(Frame(data=ANSWER)), "http", {OLDEST, NEWEST}),
    (streamed(NUMBERED), "http", {MARCH, JUNE}),
    (streamed(PRIME, NUMBERED), "http", {NOVEMBER}),
    (streamed(PRIME, NUMBERED, NUMBERED), "http", set()),
    (streamed(PRIME, Frame(id="t-2-1", data=ANSWER)), "http", set()),
    (streamed(Frame(data=ANSWER), Frame(data=NEWS)), "http", set()),
    (streamed(Frame(data=ANSWER.replace("1,", "2,"))), "http", set()),
    (streamed(Frame(data=NEWS), Frame(data=ANSWER)), "http", set()),
    (streamed(Frame(data=ANSWER, event="message")), "http", set()),
    (streamed(Frame(data=ANSWER), x_accel_buffering="yes"), "http", set()),
    (streamed(Frame(data=ANSWER), cache_control="public"), "http", set()),
]


@pytest.mark.parametrize(("exchange", "wire", "correct_in"), EXCHANGES)
def test_a_broken_rule_of_http_is_seen(
    exchange: HttpExchange, wire: str, correct_in: set[str]
) -> None:
    dates = [OLDEST] if wire == "sse" else [revision.date for revision in ALL]
    assert {date for date in dates if breaches(date, wire, [exchange]) == []} == correct_in


@pytest.mark.parametrize(
    "frames",
    [
        [Frame(event="message", data=ANSWER)],
        [Frame(event="endpoint", data="https://elsewhere.example/messages")],
        [Frame(event="endpoint", data="/messages"), Frame(data=ANSWER)],
        [Frame(event="endpoint", data="/messages"), Frame(event="message", data=ANSWER, id="1")],
    ],
)
def test_bad_correct_in_the_first_transport_are_seen(frames: list[Frame]) -> None:
    exchange = HttpExchange("GET", "/sse", b"", {}, 200, dict(STREAM), frames)
    assert breaches(OLDEST, "sse", [exchange])
