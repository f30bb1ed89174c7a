"""What a client does at the published `server-everything` through a gateway, and what it must see.

The server speaks revisions with a handshake only, and requests input with requests of its own. A
client of 2026-07-28 is asked in results instead: the gateway holds the call.

Rules: those of `steps`.
"""

from typing import Any

from colonnade.protocol.revision import Revision
from interop.gateway.steps import MODEL_SAYS, Check, Plan, Seen, text_of

URL = "https://example.com/consent"


def steps(key: str) -> list[dict[str, Any]]:
    """The steps at the server of this key, under the names that a gateway gives."""

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"do": "call", "params": {"name": f"{key}__{name}", "arguments": arguments}}

    prompt = f"{key}__completable-prompt"
    department = {
        "ref": {"type": "ref/prompt", "name": prompt},
        "argument": {"name": "department", "value": "S"},
    }
    team = {"department": "Sales", "name": "Eve"}
    found = {
        "list": {"do": "list"},
        "call": call("get-sum", a=2, b=40),
        "structured": call("get-structured-content", location="Chicago"),
        "progress": {**call("trigger-long-running-operation", duration=1, steps=2), "progress": 2},
        "bad argument": call("get-sum", a="two"),
        "read": {"do": "read", "params": {"uri": "demo://resource/dynamic/text/1"}},
        "prompt": {"do": "prompt", "params": {"name": prompt, "arguments": team}},
        "complete": {"do": "complete", "params": department},
        "form": call("trigger-elicitation-request"),
        "sampling": call("trigger-sampling-request", prompt="Which city?", maxTokens=20),
        "url": call("trigger-url-elicitation", url=URL),
        "url by error": call("trigger-url-elicitation", url=URL, errorPath=True),
    }
    return [{"scenario": name, **step} for name, step in found.items()]


def lists(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    """The server shows the tools that ask only to clients that can be asked."""
    names = {tool["name"].removeprefix(f"{key}__") for tool in seen["tools"]}
    asking = {"trigger-elicitation-request", "trigger-sampling-request", "trigger-url-elicitation"}
    assert names >= asking | {"echo", "get-sum", "get-roots-list"}, names
    assert all(tool["name"].startswith(f"{key}__") for tool in seen["tools"])
    assert seen["resources"]
    assert {one["name"] for one in seen["prompts"]} >= {f"{key}__completable-prompt"}


def calls(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert "42" in text_of(seen)


def structured(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert seen["result"]["structuredContent"].keys() == {"temperature", "conditions", "humidity"}


def progresses(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    # TypeScript reports each round of input as progress of its own, without a total: the server asks
    # for roots once after its start, which may fall into this call.
    reported = [step[:2] for step in seen["steps"] if step[1] is not None]
    found = sorted(reported) if seen.get("unordered") else reported
    assert found[:1] == [[1, 2]]
    assert "completed" in text_of(seen)


def bad_argument(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert seen["result"]["isError"] is True, seen["result"]


def reads(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    [text] = seen["result"]["contents"]
    assert "Resource 1" in text["text"]


def prompts(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    [message] = seen["result"]["messages"]
    assert "Eve" in message["content"]["text"]


def completes(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert seen["result"]["completion"]["values"] == ["Sales", "Support"]


def asked(seen: Seen) -> list[dict[str, Any]]:
    """What the client was asked, but for roots: the server requests them when a session begins,
    and so in the middle of any call."""
    return [one for one in seen["questions"] if one["method"] != "roots/list"]


def elicits(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert [one["method"] for one in asked(seen)] == ["elicitation/create"]
    assert "Ada" in str(seen["result"]["content"])


def samples(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert [one["method"] for one in asked(seen)] == ["sampling/createMessage"]
    assert MODEL_SAYS in str(seen["result"]["content"])


def opens(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    assert [one["params"]["url"] for one in asked(seen)] == [URL]
    assert "User completed" in str(seen["result"]["content"]), seen["result"]


def opens_by_error(seen: Seen, key: str, client: Revision, server: Revision) -> None:
    """A client of a revision with the error gets it, unless it handles it itself."""
    if client.elicitation.url_required_error and "error" in seen:
        assert seen["error"]["code"] == -32042, seen["error"]
        return
    urls = [one["params"]["url"] for one in asked(seen)]
    assert urls == ["https://modelcontextprotocol.io", URL]
    assert not seen["result"].get("isError"), seen["result"]


CHECKS: dict[str, Check] = {
    "list": lists,
    "call": calls,
    "structured": structured,
    "progress": progresses,
    "bad argument": bad_argument,
    "read": reads,
    "prompt": prompts,
    "complete": completes,
    "form": elicits,
    "sampling": samples,
    "url": opens,
    "url by error": opens_by_error,
}
EVERYTHING_PLAN = Plan(steps, CHECKS)
