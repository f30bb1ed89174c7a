"""What a client must have seen in each scenario, whichever official SDK it is made of.

Rules: one check for a scenario, for every client, transport and era; where eras differ, the
revision is asked. A check takes what a driver printed and raises `AssertionError`.
"""

import base64
from collections.abc import Callable
from typing import Any

from colonnade.errors import FaultKind
from colonnade.protocol.revision import (
    JULY_2026,
    NOVEMBER_2024,
    NOVEMBER_2025,
    BadToolInput,
    InputRequests,
    OutputRoot,
    Revision,
)
from conformance.everything_server import PIXEL, SILENCE, WATCHED, server

Check = Callable[[Any, Revision], None]
CHECKS: dict[str, Check] = {}

MODEL_SAYS = "Paris, of course"
FOLDER = "file:///projects/interop"
# Scenarios in which the user is asked, beside those named after it.
ASKS_USER = ("prompt that asks", "ask together")
STAMP = "io.modelcontextprotocol/serverInfo"


def absent(scenario: str, revision: Revision, transport: str) -> str | None:
    """Why there is nothing to see of a scenario here, if there is not."""
    if (scenario.startswith("elicit") or scenario in ASKS_USER) and not revision.elicitation.modes:
        return f"{revision.date} has no elicitation"
    if scenario == "elicit, url" and "url" not in revision.elicitation.modes:
        return f"{revision.date} has no elicitation by URL"
    if scenario in ("structured", "large", "at once") and revision.output_root is OutputRoot.NONE:
        return f"{revision.date} has no structured content"
    if scenario == "ping" and "ping" not in revision.methods:
        return f"{revision.date} has no ping"
    if scenario == "reconnect" and not (transport == "http" and revision.http.prime_and_poll):
        return "a lost stream is resumed over HTTP up to 2025-11-25"
    if scenario == "mirrored header" and not (
        transport == "http" and revision.http.routing_headers
    ):
        return "arguments are mirrored in headers over HTTP from 2026-07-28"
    return None


def seen_in(*names: str) -> Callable[[Check], Check]:
    """The check of these scenarios."""

    def kept(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return kept


def text_of(result: dict[str, Any]) -> str:
    """The only text of a result that is no error."""
    assert not result.get("isError"), result
    [block] = result["content"]
    return block["text"]


def bad_input_of(result: dict[str, Any], revision: Revision) -> str:
    """What was said of arguments that do not fit: by a result, or by an error before there was one
    (D16)."""
    if revision.bad_tool_input is BadToolInput.RESULT:
        return failure_of(result)
    assert result["code"] == -32602, result
    return result["message"]


def failure_of(result: dict[str, Any]) -> str:
    """The only text of a result that is one."""
    assert result["isError"] is True, result
    [block] = result["content"]
    return block["text"]


# ---------------------------------------------------------------- what there is


@seen_in("meet")
def meets(seen: Any, revision: Revision) -> None:
    assert seen["revision"] == revision.date
    assert seen["server"] == {"name": "colonnade-everything", "version": "1.0"}
    assert seen["instructions"] == server.instructions
    capabilities: dict[str, Any] = {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "logging": {},
    }
    if revision is not NOVEMBER_2024:  # which has no name for it
        capabilities["completions"] = {}
    declared = dict(seen["capabilities"])
    # Not every SDK keeps what it does not support.
    extensions = declared.pop("extensions", None) or {}
    assert extensions in (
        {},
        {"io.modelcontextprotocol/tasks": {}} if revision is JULY_2026 else {},
    )
    tasks = declared.pop("tasks", None) or {}
    tasks.pop("list", None)  # on stdio alone: over HTTP without authentication there is none
    served = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert tasks in ({}, served if revision is NOVEMBER_2025 else {})
    assert declared == capabilities


@seen_in("list")
def lists(seen: Any, revision: Revision) -> None:
    assert [tool["name"] for tool in seen["tools"]] == [one.definition.name for one in server.tools]
    assert [one["name"] for one in seen["prompts"]] == [
        one.definition.name for one in server.prompts
    ]
    uris = ["test://static-text", "test://static-binary", WATCHED]
    assert [one["uri"] for one in seen["resources"]] == uris
    assert [one["uriTemplate"] for one in seen["templates"]] == ["test://template/{id}/data"]
    tools = {tool["name"]: tool for tool in seen["tools"]}
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools.values())
    bare = {"type": "array", "items": {"type": "integer"}}
    wrapped = {"type": "object", "properties": {"result": bare}, "required": ["result"]}
    by_root = {OutputRoot.ANY: bare, OutputRoot.OBJECT: wrapped, OutputRoot.NONE: None}
    assert tools["test_structured_list"].get("outputSchema") == by_root[revision.output_root]


# ---------------------------------------------------------------- tools


@seen_in("call")
def calls(seen: Any, revision: Revision) -> None:
    assert text_of(seen) == "This is a simple text response for testing."
    assert (STAMP in seen.get("_meta", {})) is revision.typed_results


@seen_in("content")
def content(seen: Any, revision: Revision) -> None:
    pixel, silence = base64.b64encode(PIXEL).decode(), base64.b64encode(SILENCE).decode()
    picture = {"type": "image", "data": pixel, "mimeType": "image/png"}
    assert seen["image_content"]["content"] == [picture]
    [sound] = seen["audio_content"]["content"]
    if "audio" in revision.blocks:
        assert sound == {"type": "audio", "data": silence, "mimeType": "audio/wav"}
    else:  # D18
        assert (sound["type"], sound["resource"]["blob"]) == ("resource", silence)
    [file] = seen["embedded_resource"]["content"]
    assert file["type"] == "resource"
    assert file["resource"]["uri"] == "test://embedded-resource"
    assert file["resource"]["text"] == "This is an embedded resource content."
    mixed = seen["multiple_content_types"]["content"]
    assert [block["type"] for block in mixed] == ["text", "image", "resource"]


@seen_in("structured")
def structured(seen: Any, revision: Revision) -> None:
    assert seen["object"]["structuredContent"] == {"place": "Turin", "celsius": 21.5}
    numbers = [1, 2, 3]
    wanted = numbers if revision.output_root is OutputRoot.ANY else {"result": numbers}
    assert seen["list"]["structuredContent"] == wanted
    assert text_of(seen["list"]) == "[1,2,3]"


@seen_in("raw schema")
def raw_schema(seen: Any, revision: Revision) -> None:
    assert "'email': 'ada@example.com'" in text_of(seen["fits"])
    assert "missing required 'email'" in bad_input_of(seen["does not"], revision)


@seen_in("mirrored header")
def mirrored(seen: Any, revision: Revision) -> None:
    assert text_of(seen) == "Region: Zürich, west"


@seen_in("large")
def large(seen: Any, revision: Revision) -> None:
    assert seen == [400_000 + len('{"place":"","celsius":21.5}'), 400_000]


@seen_in("at once")
def at_once(seen: Any, revision: Revision) -> None:
    assert seen == {str(nth): str(nth) for nth in range(20)}, "each call has its own answer"


@seen_in("tool error")
def tool_error(seen: Any, revision: Revision) -> None:
    assert failure_of(seen) == "This tool intentionally returns an error for testing"


@seen_in("unknown tool")
def unknown_tool(seen: Any, revision: Revision) -> None:
    assert seen["code"] == -32602
    assert "no_such_tool" in seen["message"]


@seen_in("bad argument")
def bad_argument(seen: Any, revision: Revision) -> None:
    said = bad_input_of(seen, revision)
    assert said == "test_structured_content: place: expected a string, got an integer"


# ---------------------------------------------------------------- resources, prompts, completion


@seen_in("read")
def reads(seen: Any, revision: Revision) -> None:
    [text], [binary], [record] = seen
    assert text["uri"] == "test://static-text"
    assert text["text"] == "This is the content of the static text resource."
    assert base64.b64decode(binary["blob"]) == PIXEL
    assert binary["mimeType"] == "image/png"
    assert '"id":"42"' in record["text"]


@seen_in("unknown resource")
def unknown_resource(seen: Any, revision: Revision) -> None:
    renumbered = seen.get("renumbered", False)  # the TypeScript SDK has one number for both eras
    assert renumbered or seen["code"] == revision.codes[FaultKind.RESOURCE_MISSING]
    assert seen["data"] == {"uri": "test://nowhere"}


@seen_in("prompt")
def prompts(seen: Any, revision: Revision) -> None:
    [words] = seen["words"]["messages"]
    said = "Prompt with arguments: arg1='one', arg2='two'"
    assert words == {"role": "user", "content": {"type": "text", "text": said}}
    assert [one["content"]["type"] for one in seen["image"]["messages"]] == ["image", "text"]
    shown, _ = seen["resource"]["messages"]
    assert shown["content"]["resource"]["uri"] == "test://shown"


@seen_in("prompt that asks")
def prompt_asks(seen: Any, revision: Revision) -> None:
    [message] = seen["result"]["messages"]
    assert message["content"]["text"] == "Use this context: interop"
    assert methods_of(seen) == ["elicitation/create"]


@seen_in("complete")
def completes(seen: Any, revision: Revision) -> None:
    assert seen["completion"]["values"] == ["testable", "tested", "tester"]


# ---------------------------------------------------------------- while a call runs


@seen_in("progress")
def progresses(seen: Any, revision: Revision) -> None:
    has_words = revision is not NOVEMBER_2024
    # Some SDKs run a handler for each step at once.
    steps = sorted(seen["steps"]) if seen.get("unordered") else seen["steps"]
    assert [step[:2] for step in steps] == [[done, 100] for done in (0, 50, 100)]
    words = [f"{done} of 100" if has_words else "" for done in (0, 50, 100)]
    assert [step[2] or "" for step in steps] == words
    assert text_of(seen["result"]) == "Progress was reported"


@seen_in("logging")
def logs(seen: Any, revision: Revision) -> None:
    heard = [(line["level"], line["data"]) for line in seen["logs"]]
    if seen.get("unordered"):
        heard.sort(reverse=True)
    assert heard == [("info", "an event"), ("error", "a failure")], "asked for info and above"


@seen_in("cancel")
def cancels(seen: Any, revision: Revision) -> None:
    assert text_of(seen["server"]) == "Cancelled"
    assert seen["answered"] == [], "a cancelled call has no result"


@seen_in("reconnect")
def reconnects(seen: Any, revision: Revision) -> None:
    assert text_of(seen) == "Reconnection test completed successfully"


@seen_in("ping")
def pings(seen: Any, revision: Revision) -> None:
    assert not seen.keys() - {"resultType"}  # which an SDK fills in


@seen_in("subscribe")
def subscribes(seen: Any, revision: Revision) -> None:
    changed = ["notifications/tools/list_changed", None]
    first, *others = seen["notices"]
    assert first == ["notifications/resources/updated", WATCHED]
    assert set(map(tuple, others)) == {tuple(changed)}
    # Each process whose list has changed says so.
    assert len(others) == 2 or (seen.get("replicas") and len(others) > 2)
    assert seen["new tool"] is True


@seen_in("leave")
def leaves(seen: Any, revision: Revision) -> None:
    assert seen == "left"


# ---------------------------------------------------------------- questions


def methods_of(seen: Any) -> list[str]:
    """What was asked; an SDK may answer some of it itself, and say that nobody sees it."""
    return [question["method"] for question in seen["questions"]]


def asked_of(seen: Any, *methods: str) -> bool:
    """Whether exactly this was asked, in any order, but for what nobody sees."""
    unseen = seen.get("unseen", [])
    return sorted(methods_of(seen)) == sorted(one for one in methods if one not in unseen)


@seen_in("elicit")
def elicits(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == "User response: ada, ada@example.com"
    [question] = seen["questions"]
    form = question["params"]["requestedSchema"]
    assert question["params"]["message"] == "Who are you?"
    assert form["properties"] == {"username": {"type": "string"}, "email": {"type": "string"}}


@seen_in("elicit, declined")
def elicits_nothing(seen: Any, revision: Revision) -> None:
    assert failure_of(seen["result"]) == "the user declined the request"
    assert methods_of(seen) == ["elicitation/create"]


@seen_in("elicit, defaults")
def elicits_defaults(seen: Any, revision: Revision) -> None:
    said = text_of(seen["result"])
    assert "name='Ada', age=36, score=95.5, status='active', verified=True" in said
    [question] = seen["questions"]
    fields = question["params"]["requestedSchema"]["properties"]
    defaults = {"name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": True}
    if not revision.elicitation.all_defaults:
        defaults = {"verified": True}
    found = {name: field["default"] for name, field in fields.items() if "default" in field}
    assert found == defaults


@seen_in("elicit, choices")
def elicits_choices(seen: Any, revision: Revision) -> None:
    said = text_of(seen["result"])
    for chosen in ("option2", "value2", "opt2", "['option1', 'option3']", "['value1', 'value3']"):
        assert chosen in said
    [question] = seen["questions"]
    fields = question["params"]["requestedSchema"]["properties"]
    if not revision.elicitation.multi_select:
        assert fields["titledSingle"]["enumNames"][1] == "Second"
        assert fields["titledMulti"]["type"] == "string"
        return
    assert fields["titledSingle"]["oneOf"][1] == {"const": "value2", "title": "Second"}
    assert fields["titledMulti"]["items"]["anyOf"][2] == {"const": "value3", "title": "Third"}


@seen_in("elicit, url")
def elicits_url(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == "The user agreed to go"
    [question] = seen["questions"]
    assert question["params"]["mode"] == "url"
    assert question["params"]["url"] == "https://example.com/sign-in"
    assert ("elicitationId" in question["params"]) is revision.handshake


@seen_in("elicit, twice")
def elicits_twice(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == "Ada likes green"
    asked = [question["params"]["message"] for question in seen["questions"]]
    assert asked == ["Step 1: What is your name?", "Step 2: What is your favorite color, Ada?"]


@seen_in("elicit, streaming")
def elicits_while_streaming(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == "Confirmed"


@seen_in("sample")
def samples(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == f"LLM response: {MODEL_SAYS}"
    [question] = seen["questions"]
    assert question["params"]["maxTokens"] == 100
    [message] = question["params"]["messages"]
    assert message == {"role": "user", "content": {"type": "text", "text": "Which city?"}}


@seen_in("roots")
def roots(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == f"Folders: {FOLDER}"
    assert asked_of(seen, "roots/list")


@seen_in("ask together")
def asks_together(seen: Any, revision: Revision) -> None:
    assert text_of(seen["result"]) == f"{MODEL_SAYS} to Ada with 1 folders"
    assert asked_of(seen, "elicitation/create", "roots/list", "sampling/createMessage")


@seen_in("ask the unable")
def asks_the_unable(seen: Any, revision: Revision) -> None:
    words = "which the client does not support"
    if revision.input_requests is InputRequests.AS_REQUEST:
        assert words in failure_of(seen["result"])
    else:
        assert seen["error"]["code"] == revision.codes[FaultKind.CAPABILITY_MISSING]
        assert seen["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}
        assert words in seen["error"]["message"]
