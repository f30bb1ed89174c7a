"""What our client must see at a server of tests/interop/servers, whichever SDK it is made with.

Rules: one check for a scene, for every SDK, transport and era; where an SDK or a revision has no
such thing, `absent` says why. A check makes real calls, and raises `AssertionError`.
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
from interop.server_runs import CALL_S, HEARD_S, MODEL_SAYS, Visit, complete_all, get_all, list_all
from interop.servers.shared_data import INSTRUCTIONS, NAME, PIXEL, SILENCE
from interop.third_party_servers import FASTMCP, JAVA, MCP_1, MCP_2, RUST, Stranger

Scene = Callable[[Visit], Awaitable[None]]
SCENES: dict[str, Scene] = {}

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
# Tools that only one scene calls.
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


def absent(scene: str, stranger: Stranger, revision: Revision, transport: str) -> str | None:
    """Why there is nothing to see of a scene here, if there is not."""
    if scene == "news of a resource":
        if stranger is FASTMCP:
            return "FastMCP has no subscriptions to resources"
        if stranger in (MCP_1, MCP_2) and revision.handshake:
            return "the Python SDK's server has no subscriptions with a handshake"
    if scene == "news of a list" and stranger is FASTMCP and not revision.handshake:
        return f"FastMCP has no subscriptions in {revision.date}"
    if scene == "reconnect" and stranger in (RUST, JAVA):
        return f"the {stranger.name} SDK gives a tool no way to drop its stream"
    if scene == "cancel" and stranger is JAVA:
        return "the Java SDK cancels nothing"
    if scene == "elicit" and not revision.elicitation.modes:
        return f"{revision.date} has no elicitation"
    if transport == "json" and scene in ALONGSIDE | QUESTIONS:
        return "a server that answers with plain JSON says nothing beside its answers"
    if transport == "stateless" and scene in SESSION | QUESTIONS:
        return "a server without sessions has nowhere to say it"
    return None


def scene(name: str) -> Callable[[Scene], Scene]:
    """The name of a scene."""

    def kept(check: Scene) -> Scene:
        SCENES[name] = check
        return check

    return kept


async def plan(visit: Visit) -> None:
    """Every scene that there is, one after the other, and then: was every tool called?"""
    for name, check in SCENES.items():
        why = absent(name, visit.stranger, visit.revision, visit.transport)
        if why is not None:
            visit.left_out[name] = why
        else:
            visit.seen.append(name)
            await visit.check(name, check(visit))
    visit.calls += 1
    for tool in await visit.client.list_tools(fresh=True):
        if tool.name not in visit.called and CALLED_IN.get(tool.name) not in visit.left_out:
            visit.failures[tool.name] = "it was never called"


# ---------------------------------------------------------------- what there is


@scene("meet")
async def meets(visit: Visit) -> None:
    client = visit.client
    assert client.server is not None
    assert client.server.name == NAME
    assert client.instructions == INSTRUCTIONS
    visit.calls += 1
    await client.ping()


@scene("list")
async def lists(visit: Visit) -> None:
    await list_all(visit)
    tools = {tool.name: tool for tool in await visit.client.list_tools()}
    assert set(tools) - {"touch", "extra"} == TOOLS
    assert all(tool.description for tool in tools.values())
    resources = {one.uri: one for one in await visit.client.list_resources()}
    assert resources.keys() == {"test://text", "test://pixel"}
    assert resources["test://pixel"].mime_type == "image/png"
    [template] = await visit.client.list_resource_templates()
    assert template.uri_template == "test://notes/{name}"
    prompts = {one.name: one for one in await visit.client.list_prompts()}
    arguments = prompts["review"].arguments or []
    assert [(one.name, bool(one.required)) for one in arguments] == [
        ("code", True),
        ("language", False),
    ]


# ---------------------------------------------------------------- tools


def value(visit: Visit, result: ToolResult[Any]) -> Any:
    """A plain value. With some SDKs an author writes the object around it by hand, and where values
    need none, that object is what the tool gives."""
    by_hand = visit.stranger.name in ("TypeScript", "Go", "Rust", "Java")
    bare = visit.revision.output_root is OutputRoot.ANY
    return result.data["result"] if by_hand and bare else result.data


@scene("plain values")
async def plain_values(visit: Visit) -> None:
    assert value(visit, await visit.call("add", {"a": 2, "b": 3})) == 5
    assert (await visit.call("greet", {"name": "Ada"})).data == "Hello, Ada"
    assert value(visit, await visit.call("numbers")) == [1, 2, 3]
    assert (await visit.call("forecast", {"city": "Turin"})).data == {
        "city": "Turin",
        "celsius": 21.5,
    }
    assert (await visit.call("add", {"a": 2, "b": 3}, returns=int)).data == 5
    assert (await visit.call("numbers", returns=tuple[int, ...])).data == (1, 2, 3)


@scene("content")
async def content(visit: Visit) -> None:
    [picture] = (await visit.call("picture")).content
    assert isinstance(picture, t.ImageContent)
    assert (base64.b64decode(picture.data), picture.mime_type) == (PIXEL, "image/png")
    [sound] = (await visit.call("sound")).content
    assert isinstance(sound, t.AudioContent)
    assert (base64.b64decode(sound.data), sound.mime_type) == (SILENCE, "audio/wav")
    [document] = (await visit.call("document")).content
    assert isinstance(document, t.EmbeddedResource)
    inside = document.resource
    assert (inside.uri, inside.text) == ("test://inside", "Inside.")
    [link] = (await visit.call("link")).content
    assert isinstance(link, t.ResourceLink)
    assert (link.uri, link.name) == ("test://text", "text")


@scene("errors")
async def errors(visit: Visit) -> None:
    client = visit.client
    visit.called.add("fail")
    visit.calls += 3
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


@scene("mirrored header")
async def mirrored(visit: Visit) -> None:
    """The SDKs refuse a call whose header does not say what the argument says."""
    assert (await visit.call("region", {"region": "Zürich, west "})).text == "Region Zürich, west "


@scene("at once")
async def at_once(visit: Visit) -> None:
    calls = [visit.call("add", {"a": nth, "b": 1000}) for nth in range(AT_ONCE)]
    results = await asyncio.gather(*calls)
    assert [value(visit, result) for result in results] == [1000 + nth for nth in range(AT_ONCE)]


# ---------------------------------------------------------------- resources and prompts


@scene("read")
async def reads(visit: Visit) -> None:
    visit.calls += 4
    read = visit.client.read_resource
    [text] = (await read("test://text")).contents
    assert (text.uri, text.text, text.mime_type) == ("test://text", "A text.", "text/plain")
    [pixel] = (await read("test://pixel")).contents
    assert base64.b64decode(pixel.blob or "") == PIXEL
    [note] = (await read("test://notes/ada")).contents
    assert note.text == "Note ada."
    said = await _refused(read("test://nowhere"))
    assert said


@scene("prompt")
async def prompts(visit: Visit) -> None:
    await get_all(visit, {"code": "x = 1", "language": "go"})
    visit.calls += 2
    [hello] = (await visit.client.get_prompt("hello")).messages
    assert hello.role == "user"
    assert hello.content == t.TextContent(text="Say hello.")
    got = await visit.client.get_prompt("review", {"code": "x = 1", "language": "go"})
    [review] = got.messages
    assert review.content == t.TextContent(text="Review this go: x = 1")


@scene("complete")
async def completes(visit: Visit) -> None:
    await complete_all(visit)
    visit.calls += 1
    found = await visit.client.complete("language", "p", prompt="review")
    assert list(found.values) == ["pascal", "python"]


# ---------------------------------------------------------------- while a call runs


@scene("progress")
async def progresses(visit: Visit) -> None:
    seen: list[tuple[float, float | None, str | None]] = []

    def step(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))
        visit.stir()

    assert (await visit.call("steps", on_progress=step)).text == "done"
    await visit.heard(lambda: len(seen) >= 3, "progress")
    assert seen == [(step, 3, f"step {step}") for step in (1, 2, 3)]


@scene("logging")
async def logs(visit: Visit) -> None:
    assert (await visit.call("talk")).text == "said"
    await visit.heard(lambda: "a word" in map(_words, visit.logged), "the word")


def _words(said: Any) -> Any:
    """What was logged; FastMCP wraps it."""
    return said["msg"] if isinstance(said, dict) else said


@scene("reconnect")
async def reconnects(visit: Visit) -> None:
    """The stream of the call is dropped before the answer, where there are streams to resume."""
    assert (await visit.call("drop")).text == "back"
    resumed = visit.transport == "http" and visit.revision.http.prime_and_poll
    assert (value(visit, await visit.call("replays")) > 0) is resumed


@scene("cancel")
async def cancels(visit: Visit) -> None:
    begun = asyncio.Event()
    visit.calls += 1
    visit.called.add("wait")
    waiting = asyncio.ensure_future(
        visit.client.call_tool("wait", on_progress=lambda *step: begun.set())
    )
    await asyncio.wait_for(begun.wait(), CALL_S)
    waiting.cancel()
    await asyncio.wait([waiting], timeout=CALL_S)
    assert waiting.cancelled()
    assert (await visit.call("waited")).text == "was cancelled"


# ---------------------------------------------------------------- news


@scene("news of a list")
async def list_changes(visit: Visit) -> None:
    async with visit.client.listen(tools=True) as changes:
        await visit.call("change")
        assert await asyncio.wait_for(anext(changes), HEARD_S) == Change("tools")


@scene("news of a resource")
async def updates(visit: Visit) -> None:
    async with visit.client.listen(resources=["test://text"]) as changes:
        await visit.call("touch")
        change = await asyncio.wait_for(anext(changes), HEARD_S)
        assert change == Change("resource", "test://text")


@scene("a new tool")
async def new_tool(visit: Visit) -> None:
    if "change" not in visit.called:
        await visit.call("change")
    assert "extra" in [tool.name for tool in await visit.client.list_tools(fresh=True)]
    assert (await visit.call("extra")).text == "extra"


# ---------------------------------------------------------------- questions


@scene("elicit")
async def elicits(visit: Visit) -> None:
    """The user typed a name and left the rest, which has a default."""
    visit.asked.clear()
    assert (await visit.call("ask_name")).text == "Hello, Ada, polite"
    assert visit.asked == ["Who are you?"]


@scene("sample")
async def samples(visit: Visit) -> None:
    visit.asked.clear()
    assert (await visit.call("ask_model")).text == f"The model says: {MODEL_SAYS}"
    assert visit.asked == ["a model"]


@scene("roots")
async def roots(visit: Visit) -> None:
    visit.asked.clear()
    assert (await visit.call("ask_roots")).text == f"Roots: {visit.folder.as_uri()}"
    assert visit.asked == ["roots"]
