"""What a client does at a server of tests/interop/servers through a gateway, and what it must see.

Rules: one check for a step, for every client, server, transport and revision. A check takes what a
driver printed and raises `AssertionError`. What is between gateway and server never reaches a
client: no result of any step names `-32020`, the error for headers that do not match.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from colonnade.errors import FaultKind
from colonnade.protocol.revision import Revision
from interop.server_checks import TOOLS

Seen = dict[str, Any]
# What was seen, the key of the server, and the revisions of client and server.
Check = Callable[[Seen, str, Revision, Revision], None]

MODEL_SAYS = "Paris, of course"
ROOT = "file:///projects/interop"
CITY = "Zürich, west "
HEADER_MISMATCH = "-32020"


def steps(key: str) -> list[dict[str, Any]]:
    """The steps at the server of this key, under the names that a gateway gives."""

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"do": "call", "params": {"name": f"{key}__{name}", "arguments": arguments}}

    def read(uri: str) -> dict[str, Any]:
        return {"do": "read", "params": {"uri": uri}}

    review = f"{key}__review"
    language = {
        "ref": {"type": "ref/prompt", "name": review},
        "argument": {"name": "language", "value": "p"},
    }
    code = {"code": "x = 1", "language": "go"}
    found = {
        "list": {"do": "list"},
        "call": call("add", a=2, b=40),
        "structured": call("forecast", city="Oslo"),
        "header": call("region", region=CITY),
        "lost stream": call("drop"),
        "progress": {**call("steps"), "progress": 3},
        "tool error": call("fail"),
        "bad argument": call("add", a=2),
        "unknown tool": call("no_such_tool"),
        "read": read("test://text"),
        "template": read("test://notes/ada"),
        "unknown resource": read("test://nowhere"),
        "prompt": {"do": "prompt", "params": {"name": review, "arguments": code}},
        "complete": {"do": "complete", "params": language},
        "form": call("ask_name"),
        "sampling": call("ask_model"),
        "roots": call("ask_roots"),
    }
    return [{"scenario": name, **step} for name, step in found.items()]


# ---------------------------------------------------------------- what must be seen

CHECKS: dict[str, Check] = {}


def seen_in(*names: str) -> Callable[[Check], Check]:
    """The check of these steps."""

    def kept(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return kept


class Plan(NamedTuple):
    """The steps at the server of a key, and a check for each."""

    steps: Callable[[str], list[dict[str, Any]]]
    checks: Mapping[str, Check]

    def check(self, name: str, seen: Seen, key: str, client: Revision, server: Revision) -> None:
        """Raise `AssertionError` if a step went wrong."""
        assert HEADER_MISMATCH not in json.dumps(seen), "headers were not made anew"
        self.checks[name](seen, key, client, server)


def text_of(seen: Seen) -> str:
    """The only text of a result that is no error."""
    result = seen["result"]
    assert not result.get("isError"), result
    [block] = result["content"]
    return block["text"]


@seen_in("list")
def lists(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    names = {tool["name"] for tool in seen["tools"]}
    assert names - {f"{key}__touch", f"{key}__extra"} == {f"{key}__{name}" for name in TOOLS}
    assert {one["uri"] for one in seen["resources"]} == {"test://text", "test://pixel"}
    assert [one["uriTemplate"] for one in seen["templates"]] == ["test://notes/{name}"]
    prompts = {one["name"]: one for one in seen["prompts"]}
    assert prompts.keys() == {f"{key}__hello", f"{key}__review"}
    given = {one["name"] for one in prompts[f"{key}__review"]["arguments"]}
    assert given == {"code", "language"}


@seen_in("call")
def calls(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert text_of(seen) in ("42", '{"result":42}', '{"result": 42}')
    # A server of an older revision has wrapped it; some SDKs do so in all of them.
    assert seen["result"]["structuredContent"] in (42, {"result": 42})


@seen_in("structured")
def structured(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert seen["result"]["structuredContent"] == {"city": "Oslo", "celsius": 21.5}
    assert json.loads(text_of(seen)) == {"city": "Oslo", "celsius": 21.5}


@seen_in("header")
def mirrored(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert text_of(seen) == f"Region {CITY}"


@seen_in("lost stream")
def resumes(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    """The server ends the stream of the call before it responds, where streams can be resumed."""
    assert text_of(seen) == "back"


@seen_in("progress")
def progresses(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    found = sorted(seen["steps"]) if seen.get("unordered") else seen["steps"]
    expected = [[step, 3, f"step {step}"] for step in (1, 2, 3)]
    # The TypeScript SDK drops progress that it has received, but not handled, before the result.
    assert found == expected or (seen.get("drops") and found == expected[: len(found)]), found
    assert text_of(seen) == "done"


@seen_in("tool error")
def tool_error(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert seen["result"]["isError"] is True
    assert "It cannot be done" in seen["result"]["content"][0]["text"]


@seen_in("bad argument")
def bad_argument(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    if "error" in seen:
        assert seen["error"]["code"] == -32602, seen["error"]
        assert "b" in seen["error"]["message"]
    else:
        assert seen["result"]["isError"] is True, seen["result"]
        assert "b" in seen["result"]["content"][0]["text"]


@seen_in("unknown tool")
def unknown_tool(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    """The gateway has no such name, so that no server is asked."""
    assert seen["error"]["code"] == -32602, seen
    assert f"{key}__no_such_tool" in seen["error"]["message"]


@seen_in("read")
def reads(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    [text] = seen["result"]["contents"]
    assert (text["uri"], text["text"], text["mimeType"]) == ("test://text", "A text.", "text/plain")


@seen_in("template")
def reads_template(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    [note] = seen["result"]["contents"]
    assert (note["uri"], note["text"]) == ("test://notes/ada", "Note ada.")


@seen_in("unknown resource")
def unknown_resource(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    error = seen["error"]
    renumbered = error.get("renumbered", False)  # TypeScript 2.x has one number for both
    assert renumbered or error["code"] == client.codes[FaultKind.RESOURCE_MISSING], error


@seen_in("prompt")
def prompts(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    [message] = seen["result"]["messages"]
    assert message["role"] == "user"
    assert message["content"]["text"] == "Review this go: x = 1"


@seen_in("complete")
def completes(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert seen["result"]["completion"]["values"] == ["pascal", "python"]


def asked(seen: Seen) -> list[str]:
    """The methods of the input requests that the client was sent."""
    return [one["method"] for one in seen["questions"]]


@seen_in("form")
def elicits(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert text_of(seen) == "Hello, Ada, polite"
    assert asked(seen) == ["elicitation/create"]
    assert seen["questions"][0]["params"]["message"] == "Who are you?"


@seen_in("sampling")
def samples(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert text_of(seen) == f"The model says: {MODEL_SAYS}"
    assert asked(seen) == ["sampling/createMessage"]


@seen_in("roots")
def roots(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert text_of(seen) == f"Roots: {ROOT}"
    assert asked(seen) == ([] if "roots/list" in seen.get("unseen", ()) else ["roots/list"])


EQUIVALENT = Plan(steps, CHECKS)
