"""What our client must see at a server of tests/interop/servers, whichever SDK it is made with.

Rules: one check by name, for every SDK, transport and era; if an SDK or a revision has no such
thing, `absent` says why. A check makes real calls, and raises `AssertionError`.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from colonnade import ToolError
from colonnade.client.results import ToolResult
from colonnade.client.subscriptions import Change
from colonnade.errors import RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.revision import OutputRoot, Revision
from interop.server_runs import (
    CALL_S,
    MODEL_SAYS,
    NOTIFICATION_S,
    ServerRun,
    complete_all,
    get_all,
    list_all,
)
from interop.servers.shared_data import INSTRUCTIONS, NAME, PIXEL, SILENCE
from interop.third_party_servers import FASTMCP, JAVA, MCP_1, MCP_2, RUST, ThirdPartyServer

Check = Callable[[ServerRun], Awaitable[None]]
CHECKS: dict[str, Check] = {}

# What each has, in no order.
TOOLS = {
    *("add", "greet", "forecast", "numbers", "picture", "sound", "document", "link", "fail"),
    *("steps", "talk", "wait", "waited", "change", "ask_name", "ask_model", "ask_roots"),
    *("region", "drop", "replays"),
}
AT_ONCE = 20
# What comes beside answers, what needs a session, and what asks back.
ALONGSIDE = {"progress", "logging", "cancel"}
SESSION = {"news of a list", "news of a resource", "cancel"}
QUESTIONS = {"elicit", "sample", "roots"}
# Tools that only one check calls.
CALLED_IN = {
    "touch": "news of a resource",
    "drop": "reconnect",
    "replays": "reconnect",
    "wait": "cancel",
    "waited": "cancel",
    "steps": "progress",
    "talk": "logging",
    "ask_name": "elicit",
    "ask_model": "sample",
    "ask_roots": "roots",
}


def absent(name: str, server: ThirdPartyServer, revision: Revision, transport: str) -> str | None:
    """Why a check cannot be made here, if it cannot."""
    if name == "news of a resource":
        if server is FASTMCP:
            return "FastMCP has no subscriptions to resources"
        if server in (MCP_1, MCP_2) and revision.handshake:
            return "the Python SDK's server has no subscriptions with a handshake"
    if name == "news of a list" and server is FASTMCP and not revision.handshake:
        return f"FastMCP has no subscriptions in {revision.date}"
    if name == "reconnect" and server in (RUST, JAVA):
        return f"the {server.name} SDK gives a tool no way to drop its stream"
    if name == "cancel" and server is JAVA:
        return "the Java SDK cancels nothing"
    if name == "elicit" and not revision.elicitation.modes:
        return f"{revision.date} has no elicitation"
    if transport == "json" and name in ALONGSIDE | QUESTIONS:
        return "a server that answers with plain JSON says nothing beside its answers"
    if transport == "stateless" and name in SESSION | QUESTIONS:
        return "a server without sessions has nowhere to say it"
    return None


def check(name: str) -> Callable[[Check], Check]:
    """Add a check by its name."""

    def kept(check: Check) -> Check:
        CHECKS[name] = check
        return check

    return kept


async def plan(run: ServerRun) -> None:
    """Every check, one after the other, and then: was every tool called?"""
    for name, check in CHECKS.items():
        why = absent(name, run.server, run.revision, run.transport)
        if why is not None:
            run.left_out[name] = why
        else:
            run.seen.append(name)
            await run.check(name, check(run))
    run.calls += 1
    for tool in await run.client.list_tools(fresh=True):
        if tool.name not in run.called and CALLED_IN.get(tool.name) not in run.left_out:
            run.failures[tool.name] = "it was never called"


# ---------------------------------------------------------------- what there is


@check("meet")
async def meets(run: ServerRun) -> None:
    client = run.client
    assert client.server is not None
    assert client.server.name == NAME
    assert client.instructions == INSTRUCTIONS
    run.calls += 1
    await client.ping()


@check("list")
async def lists(run: ServerRun) -> None:
    await list_all(run)
    tools = {tool.name: tool for tool in await run.client.list_tools()}
    assert set(tools) - {"touch", "extra"} == TOOLS
    assert all(tool.description for tool in tools.values())
    resources = {one.uri: one for one in await run.client.list_resources()}
    assert resources.keys() == {"test://text", "test://pixel"}
    assert resources["test://pixel"].mime_type == "image/png"
    [template] = await run.client.list_resource_templates()
    assert template.uri_template == "test://notes/{name}"
    prompts = {one.name: one for one in await run.client.list_prompts()}
    arguments = prompts["review"].arguments or []
    assert [(one.name, bool(one.required)) for one in arguments] == [
        ("code", True),
        ("language", False),
    ]


# ---------------------------------------------------------------- tools


def value(run: ServerRun, result: ToolResult[Any]) -> Any:
    """A plain value. With some SDKs an author writes the object around it by hand, and where values
    need none, that object is what the tool gives."""
    by_hand = run.server.name in ("TypeScript", "Go", "Rust", "Java")
    bare = run.revision.output_root is OutputRoot.ANY
    return result.data["result"] if by_hand and bare else result.data


@check("plain values")
async def plain_values(run: ServerRun) -> None:
    assert value(run, await run.call("add", {"a": 2, "b": 3})) == 5
    assert (await run.call("greet", {"name": "Ada"})).data == "Hello, Ada"
    assert value(run, await run.call("numbers")) == [1, 2, 3]
    assert (await run.call("forecast", {"city": "Turin"})).data == {
        "city": "Turin",
        "celsius": 21.5,
    }
    assert (await run.call("add", {"a": 2, "b": 3}, returns=int)).data == 5
    assert (await run.call("numbers", returns=tuple[int, ...])).data == (1, 2, 3)


@check("content")
async def content(run: ServerRun) -> None:
    [picture] = (await run.call("picture")).content
    assert isinstance(picture, t.ImageContent)
    assert (base64.b64decode(picture.data), picture.mime_type) == (PIXEL, "image/png")
    [sound] = (await run.call("sound")).content
    assert isinstance(sound, t.AudioContent)
    assert (base64.b64decode(sound.data), sound.mime_type) == (SILENCE, "audio/wav")
    [document] = (await run.call("document")).content
    assert isinstance(document, t.EmbeddedResource)
    inside = document.resource
    assert (inside.uri, inside.text) == ("test://inside", "Inside.")
    [link] = (await run.call("link")).content
    assert isinstance(link, t.ResourceLink)
    assert (link.uri, link.name) == ("test://text", "text")


@check("errors")
async def errors(run: ServerRun) -> None:
    client = run.client
    run.called.add("fail")
    run.calls += 3
    failed = await client.call_tool("fail")
    assert failed.is_error
    assert "It cannot be done" in failed.text
    with pytest.raises(ToolError, match="It cannot be done"):
        failed.data  # noqa: B018
    wrong = await _refused(client.call_tool("add", {"a": 2}))
    assert "b" in wrong, wrong
    unknown = await _refused(client.call_tool("no_such_tool"))
    assert "no_such_tool" in unknown, unknown


async def _refused(call: Awaitable[object]) -> str:
    """What a server says that does not do it: by an error, or by a result that is one."""
    try:
        result = await call
    except RemoteError as error:
        return f"{error.message} {error.data}"
    assert getattr(result, "is_error", False), result
    return str(getattr(result, "text", ""))


@check("mirrored header")
async def mirrored(run: ServerRun) -> None:
    """The SDKs refuse a call whose header does not say what the argument says."""
    assert (await run.call("region", {"region": "Zürich, west "})).text == "Region Zürich, west "


@check("at once")
async def at_once(run: ServerRun) -> None:
    calls = [run.call("add", {"a": nth, "b": 1000}) for nth in range(AT_ONCE)]
    results = await asyncio.gather(*calls)
    assert [value(run, result) for result in results] == [1000 + nth for nth in range(AT_ONCE)]


# ---------------------------------------------------------------- resources and prompts


@check("read")
async def reads(run: ServerRun) -> None:
    run.calls += 4
    read = run.client.read_resource
    [text] = (await read("test://text")).contents
    assert (text.uri, text.text, text.mime_type) == ("test://text", "A text.", "text/plain")
    [pixel] = (await read("test://pixel")).contents
    assert base64.b64decode(pixel.blob or "") == PIXEL
    [note] = (await read("test://notes/ada")).contents
    assert note.text == "Note ada."
    said = await _refused(read("test://nowhere"))
    assert said


@check("prompt")
async def prompts(run: ServerRun) -> None:
    await get_all(run, {"code": "x = 1", "language": "go"})
    run.calls += 2
    [hello] = (await run.client.get_prompt("hello")).messages
    assert hello.role == "user"
    assert hello.content == t.TextContent(text="Say hello.")
    got = await run.client.get_prompt("review", {"code": "x = 1", "language": "go"})
    [review] = got.messages
    assert review.content == t.TextContent(text="Review this go: x = 1")


@check("complete")
async def completes(run: ServerRun) -> None:
    await complete_all(run)
    run.calls += 1
    found = await run.client.complete("language", "p", prompt="review")
    assert list(found.values) == ["pascal", "python"]


# ---------------------------------------------------------------- while a call runs


@check("progress")
async def progresses(run: ServerRun) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    def step(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))
        run.stir()

    assert (await run.call("steps", on_progress=step)).text == "done"
    await run.heard(lambda: len(seen) >= 3, "progress")
    assert seen == [(step, 3, f"step {step}") for step in (1, 2, 3)]


@check("logging")
async def logs(run: ServerRun) -> None:
    assert (await run.call("talk")).text == "said"
    await run.heard(lambda: "a word" in map(_words, run.logged), "the word")


def _words(said: Any) -> Any:
    """What was logged; FastMCP wraps it."""
    return said["msg"] if isinstance(said, dict) else said


@check("reconnect")
async def reconnects(run: ServerRun) -> None:
    """The stream of the call is dropped before the answer, where there are streams to resume."""
    assert (await run.call("drop")).text == "back"
    resumed = run.transport == "http" and run.revision.http.prime_and_poll
    assert (value(run, await run.call("replays")) > 0) is resumed


@check("cancel")
async def cancels(run: ServerRun) -> None:
    begun = asyncio.Event()
    run.calls += 1
    run.called.add("wait")
    waiting = asyncio.ensure_future(
        run.client.call_tool("wait", on_progress=lambda *step: begun.set())
    )
    await asyncio.wait_for(begun.wait(), CALL_S)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=CALL_S)
    assert waiting.cancelled()
    assert (await run.call("waited")).text == "was cancelled"


# ---------------------------------------------------------------- news


@check("news of a list")
async def list_changes(run: ServerRun) -> None:
    async with run.client.listen(tools=True) as changes:
        await run.call("change")
        assert await asyncio.wait_for(anext(changes), NOTIFICATION_S) == Change("tools")


@check("news of a resource")
async def updates(run: ServerRun) -> None:
    async with run.client.listen(resources=["test://text"]) as changes:
        await run.call("touch")
        change = await asyncio.wait_for(anext(changes), NOTIFICATION_S)
        assert change == Change("resource", "test://text")


@check("a new tool")
async def new_tool(run: ServerRun) -> None:
    if "change" not in run.called:
        await run.call("change")
    assert "extra" in [tool.name for tool in await run.client.list_tools(fresh=True)]
    assert (await run.call("extra")).text == "extra"


# ---------------------------------------------------------------- questions


@check("elicit")
async def elicits(run: ServerRun) -> None:
    """The user typed a name and left the rest, which has a default."""
    run.asked.clear()
    assert (await run.call("ask_name")).text == "Hello, Ada, polite"
    assert run.asked == ["Who are you?"]


@check("sample")
async def samples(run: ServerRun) -> None:
    run.asked.clear()
    assert (await run.call("ask_model")).text == f"The model says: {MODEL_SAYS}"
    assert run.asked == ["a model"]


@check("roots")
async def roots(run: ServerRun) -> None:
    run.asked.clear()
    assert (await run.call("ask_roots")).text == f"Roots: {run.folder.as_uri()}"
    assert run.asked == ["roots"]
