"""What a client of each revision can know, written by hand from the pages of its revision.

Every member of every message that a server may send, with the first and the last revision that has
it. Anything else is something that the client cannot know: a field, a block, a method, a number.

Rules: nothing here asks the code under test. What is not listed is complained of, so a forgotten
line is a red test, never a hole.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from official import DATES

JSON = dict[str, Any]

# A protocol type and its members. `member:protocol type` holds one, `member:protocol type*` a list, `member:protocol type%` an object
# of them by name, `member:=text` a constant; without, it may be anything. `@` and a date: since;
# `~` and a date: the last to have it. What a protocol type says of itself stands first, before the bar.
TYPES = """
initialize           ~2025-11-25 | protocolVersion capabilities:server-can serverInfo:implementation instructions _meta:meta
server/discover      @2026-07-28 | supportedVersions capabilities:server-can instructions
ping                 ~2025-11-25 |
tools/list           | tools:tool* nextCursor
tools/call           | content:block* isError structuredContent@2025-06-18
resources/list       | resources:resource* nextCursor
resources/templates/list | resourceTemplates:template* nextCursor
resources/read       | contents:contents*
resources/subscribe  ~2025-11-25 |
resources/unsubscribe ~2025-11-25 |
prompts/list         | prompts:prompt* nextCursor
prompts/get          | description messages:message*
completion/complete  | completion:completion
logging/setLevel     ~2025-11-25 |
subscriptions/listen @2026-07-28 |
input_required       @2026-07-28 | inputRequests:question% requestState

implementation       | name version title@2025-06-18 description@2025-11-25 websiteUrl@2025-11-25 icons:icon*@2025-11-25
icon                 @2025-11-25 | src mimeType sizes theme
server-can           | experimental logging completions@2025-03-26 prompts:can-list resources:can-resources tools:can-list extensions
can-list             | listChanged
can-resources        | listChanged subscribe

tool                 | name description inputSchema:schema annotations:hints@2025-03-26 title@2025-06-18 outputSchema:schema@2025-06-18 _meta:meta@2025-06-18 icons:icon*@2025-11-25
hints                @2025-03-26 | title readOnlyHint destructiveHint idempotentHint openWorldHint
resource             | uri name description mimeType size annotations:annotations title@2025-06-18 _meta:meta@2025-06-18 icons:icon*@2025-11-25
template             | uriTemplate name description mimeType annotations:annotations title@2025-06-18 _meta:meta@2025-06-18 icons:icon*@2025-11-25
contents             | uri mimeType text blob _meta:meta@2025-06-18
annotations          | audience priority lastModified@2025-06-18
prompt               | name description arguments:argument* title@2025-06-18 _meta:meta@2025-06-18 icons:icon*@2025-11-25
argument             | name description required title@2025-06-18
message              | role content:block
completion           | values total hasMore

block.text           | type text annotations:annotations _meta:meta@2025-06-18
block.image          | type data mimeType annotations:annotations _meta:meta@2025-06-18
block.audio          @2025-03-26 | type data mimeType annotations:annotations _meta:meta@2025-06-18
block.resource       | type resource:contents annotations:annotations _meta:meta@2025-06-18
block.resource_link  @2025-06-18 | type uri name title description mimeType size annotations:annotations _meta:meta icons:icon*@2025-11-25

question.elicitation/create     @2026-07-28 | method params:elicitation/create
question.sampling/createMessage @2026-07-28 | method params:sampling/createMessage
question.roots/list             @2026-07-28 | method params:roots/list
roots/list           | _meta:meta
sampling/createMessage | messages:turn* maxTokens modelPreferences:preferences systemPrompt includeContext temperature stopSequences metadata tools:tool*@2025-11-25 toolChoice:tool-choice@2025-11-25 _meta:meta~2025-11-25
preferences          | hints:hint* costPriority speedPriority intelligencePriority
hint                 | name
tool-choice          @2025-11-25 | mode
turn                 | role content:said _meta:meta@2025-11-25
said.text            | type text annotations:annotations _meta:meta@2025-06-18
said.image           | type data mimeType annotations:annotations _meta:meta@2025-06-18
said.audio           @2025-03-26 | type data mimeType annotations:annotations _meta:meta@2025-06-18
said.tool_use        @2025-11-25 | type id name input _meta:meta
said.tool_result     @2025-11-25 | type toolUseId content:block* structuredContent isError _meta:meta
elicitation/create   @2025-06-18 | message requestedSchema:form mode@2025-11-25 url@2025-11-25 elicitationId@2025-11-25~2025-11-25 _meta:meta~2025-11-25
form                 @2025-06-18 | type properties:field% required $schema@2025-11-25
field                @2025-06-18 | type title description default format minLength maxLength minimum maximum enum enumNames oneOf:option*@2025-11-25 items:items@2025-11-25 minItems@2025-11-25 maxItems@2025-11-25
items                @2025-11-25 | type enum anyOf:option*
option               @2025-11-25 | const title

error -32042         @2025-11-25~2025-11-25 | elicitations:elicitation/create*
error -32021         @2026-07-28 | requiredCapabilities
error -32022         @2026-07-28 | supported requested

notifications/cancelled   | requestId reason _meta:meta
notifications/progress    | progressToken progress total message@2025-03-26 _meta:meta
notifications/message     | level data logger _meta:meta
notifications/resources/updated | uri _meta:meta
notifications/resources/list_changed | _meta:meta
notifications/tools/list_changed | _meta:meta
notifications/prompts/list_changed | _meta:meta
notifications/elicitation/complete @2025-11-25~2025-11-25 | elicitationId _meta:meta
notifications/subscriptions/acknowledged @2026-07-28 | notifications:filter _meta:meta
filter               @2026-07-28 | toolsListChanged promptsListChanged resourcesListChanged resourceSubscriptions
"""
# What any result may hold, and what lists, reads and discoveries may hold besides.
EVERY_RESULT = "_meta:meta resultType@2026-07-28"
CACHED = "ttlMs@2026-07-28 cacheScope@2026-07-28"
CACHEABLE = (
    *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
    *("resources/read", "server/discover"),
)
# Requests that a server sends, where it asks by request.
ASKED = ("ping", "roots/list", "sampling/createMessage", "elicitation/create")
ASKED_UNTIL = "2025-11-25"
# The numbers of errors, beyond those of JSON-RPC itself.
NUMBERS = {
    -32002: ("2024-11-05", "2025-11-25"),
    -32042: ("2025-11-25", "2025-11-25"),
    -32020: ("2026-07-28", None),
    -32021: ("2026-07-28", None),
    -32022: ("2026-07-28", None),
}
JSON_RPC = (-32700, -32600, -32601, -32602, -32603)
# Of what nobody knows.
NEVER = ("2026-07-28", "2024-11-05")
# The names in `_meta` that the protocol gives a meaning; anybody may add others.
META = {
    "io.modelcontextprotocol/serverInfo": ("2026-07-28", None, "implementation"),
    "io.modelcontextprotocol/subscriptionId": ("2026-07-28", None, None),
}


class Member(NamedTuple):
    """A member of a protocol type: what it holds, and who knows it."""

    name: str
    holds: str | None
    many: str
    since: str | None
    until: str | None


class TypeLine(NamedTuple):
    """A line of the table."""

    name: str
    since: str | None
    until: str | None
    members: dict[str, Member]


_MEMBER = re.compile(
    r"(?P<name>[$\w]+)(?::(?P<holds>[a-zA-Z/_-]+)(?P<many>[*%]?))?"
    r"(?:@(?P<since>[\d-]+))?(?:~(?P<until>[\d-]+))?"
)
_SPAN = re.compile(r"(?:@(?P<since>[\d-]+))?(?:~(?P<until>[\d-]+))?")


def member(text: str) -> Member:
    found = _MEMBER.fullmatch(text)
    assert found is not None, text
    return Member(
        found["name"], found["holds"], found["many"] or "", found["since"], found["until"]
    )


def _table() -> dict[str, TypeLine]:
    table: dict[str, TypeLine] = {}
    for line in TYPES.strip().splitlines():
        if not line:
            continue
        head, _, rest = line.partition("|")
        words = head.split()
        span = _SPAN.fullmatch(words.pop() if words[-1][0] in "@~" else "")
        assert span is not None, head
        name, members = " ".join(words), {one.name: one for one in map(member, rest.split())}
        table[name] = TypeLine(name, span["since"], span["until"], members)
    return table


TABLE = _table()


def knows(date: str, since: str | None, until: str | None) -> bool:
    """Whether a revision has what lived from one to another."""
    first = DATES.index(since) if since else 0
    last = DATES.index(until) if until else len(DATES) - 1
    return first <= DATES.index(date) <= last


class Reader:
    """Reads messages as a client of one revision, and complains of all that it cannot know.

    `seen` is what it did know and met: a protocol type and a member of it.
    """

    def __init__(self, date: str) -> None:
        self.date = date
        self.seen: set[tuple[str, str]] = set()

    def read(self, message: JSON, answers: str | None) -> list[str]:
        """What this client cannot know in a message; `answers` is the method of its request."""
        if "error" in message:
            return list(self._error(message))
        if "method" in message:
            return list(self._said(message))
        return list(self._result(message, answers or "nothing"))

    # ------------------------------------------------------------ whole messages

    def _frame(self, message: JSON, *members: str) -> Iterator[str]:
        for name in message.keys() - {"jsonrpc", *members}:
            yield f"a message with {name}"

    def _error(self, message: JSON) -> Iterator[str]:
        yield from self._frame(message, "id", "error")
        error: JSON = message["error"]
        for name in error.keys() - {"code", "message", "data"}:
            yield f"an error with {name}"
        code = error["code"]
        since, until = NUMBERS.get(code, NEVER)
        if code not in JSON_RPC and not knows(self.date, since, until):
            yield f"the error {code}"
            return
        self.seen.add(("error", str(code)))
        if f"error {code}" in TABLE:
            yield from self._type(f"error {code}", error["data"], f"error {code}")

    def _said(self, message: JSON) -> Iterator[str]:
        method = message["method"]
        yield from self._frame(message, "id", "method", "params")
        is_request = "id" in message
        if is_request and (method not in ASKED or not knows(self.date, None, ASKED_UNTIL)):
            yield f"a request of {method}"
        if not is_request and not method.startswith("notifications/"):
            yield f"a notification of {method}"
        yield from self._type(method, message.get("params", {}), method)

    def _result(self, message: JSON, method: str) -> Iterator[str]:
        yield from self._frame(message, "id", "result")
        result: JSON = dict(message["result"])
        name = "input_required" if result.get("resultType") == "input_required" else method
        shared = EVERY_RESULT.split() + (CACHED.split() if name in CACHEABLE else [])
        for one in map(member, shared):
            if one.name in result and one.name not in TABLE[name].members:
                yield from self._member(one, result.pop(one.name), "result", method)
        if method == "tools/call" and "structuredContent" in result:
            structured = result["structuredContent"]
            if not isinstance(structured, dict) and not knows(self.date, "2026-07-28", None):
                yield f"structured content that is no object: {structured!r}"
        yield from self._type(name, result, method)

    # ------------------------------------------------------------ protocol types

    def _type(self, name: str, value: Any, place: str) -> Iterator[str]:
        if name == "meta":
            yield from self._meta(value, place)
            return
        if name == "schema":
            yield from self._schema(value, place)
            return
        if not isinstance(value, dict):
            yield f"{place}: {value!r} where a {name} belongs"
            return
        if name in ("block", "said", "question"):
            name = f"{name}.{value.get('method' if name == 'question' else 'type')}"
        line = TABLE.get(name)
        if line is None or not knows(self.date, line.since, line.until):
            yield f"{place}: {name}"
            return
        if not line.members:
            self.seen.add((name, ""))
        for key, item in value.items():
            member = line.members.get(key)
            if member is None:
                yield f"{place}: {key} of {name}"
            else:
                yield from self._member(member, item, name, place)
        yield from self._narrow(name, value, place)

    def _member(self, member: Member, value: Any, kind: str, place: str) -> Iterator[str]:
        if not knows(self.date, member.since, member.until):
            yield f"{place}: {member.name} of {kind}"
            return
        self.seen.add((kind, member.name))
        if member.holds is None:
            return
        place = f"{place}.{member.name}"
        if member.many == "%":
            for item in value.values():
                yield from self._type(member.holds, item, place)
        elif member.many == "*" or (member.holds == "said" and self._is_turns(value)):
            for item in value:
                yield from self._type(member.holds, item, place)
        else:
            yield from self._type(member.holds, value, place)

    def _is_turns(self, value: Any) -> bool:
        """Several blocks in one message to a model came with its tools."""
        return isinstance(value, list) and knows(self.date, "2025-11-25", None)

    def _meta(self, value: JSON, place: str) -> Iterator[str]:
        for key, item in value.items():
            if "modelcontextprotocol" not in key:
                continue
            since, until, holds = META.get(key, (*NEVER, None))
            if not knows(self.date, since, until):
                yield f"{place}: {key}"
            elif holds is not None:
                self.seen.add(("meta", key))
                yield from self._type(holds, item, place)
            else:
                self.seen.add(("meta", key))

    def _schema(self, value: JSON, place: str) -> Iterator[str]:
        """A schema of any keyword; of an object, and without true and false, until the last."""
        if knows(self.date, "2026-07-28", None):
            return
        if value.get("type") != "object":
            yield f"{place}: a schema of {value.get('type')}"
        for name, inner in value.get("properties", {}).items():
            if isinstance(inner, bool):
                yield f"{place}: {name} is {inner}"

    def _narrow(self, name: str, value: JSON, place: str) -> Iterator[str]:
        """Members that are older than some of the values that they may have."""
        if name == "field" and not knows(self.date, "2025-11-25", None):
            if value["type"] == "array":
                yield f"{place}: several choices"
            if "default" in value and value["type"] != "boolean":
                yield f"{place}: the default of a {value['type']}"
