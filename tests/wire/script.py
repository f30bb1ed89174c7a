"""The script: what a client says to a server that offers everything, on every wire alike.

One talk goes through all scenes in order. The docstring of a scene is its title in the transcript.
What is sent depends on what the client's revision can say; what comes back is never judged here.

Rules: no waits but for messages. A scene leaves the server as it found it.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from colonnade.protocol.revision import ChangeNotifications, InputRequests
from wire.clients import INFO, Call, Duplex, Pipe, Talk
from wire.clients_http import PostCall, Posts
from wire.transcript import JSON

Scene = Callable[[Talk], Awaitable[None]]

# What a client of each revision can declare, and what one that says too much declares.
_ROOTS: JSON = {"roots": {"listChanged": True}, "sampling": {}}
_ASKED: JSON = {"sampling": {"tools": {}, "context": {}}, "elicitation": {"form": {}, "url": {}}}
CAN: dict[str, JSON] = {
    "2024-11-05": _ROOTS,
    "2025-03-26": _ROOTS,
    "2025-06-18": _ROOTS | {"elicitation": {}},
    "2025-11-25": _ROOTS | _ASKED,
    "2026-07-28": {"roots": {}} | _ASKED,
}
EVERYTHING: JSON = _ROOTS | _ASKED | {"tasks": {"cancel": {}}, "extensions": {"example.com/x": {}}}


def accept(**content: Any) -> JSON:
    """A form that was filled in."""
    return {"action": "accept", "content": content}


def written(text: str) -> JSON:
    """What a model wrote."""
    block = {"type": "text", "text": text}
    return {"role": "assistant", "content": block, "model": "m1", "stopReason": "endTurn"}


ROOTS: JSON = {"roots": [{"uri": "file:///home/ada", "name": "home"}, {"uri": "file:///srv"}]}
USE: JSON = {"type": "tool_use", "id": "u1", "name": "look_up", "input": {"word": "colonnade"}}
USED: JSON = {"role": "assistant", "content": [USE], "model": "m1", "stopReason": "toolUse"}
ORDER = accept(name="Ada", amount=2, price=1.5, gift=True, size="L", colours=["red"])


def in_words(talk: Talk, answer: JSON) -> JSON:
    """An answer to a form whose several choices were asked for in words."""
    if talk.revision.elicitation.multi_select:
        return answer
    content = {
        key: ", ".join(value) if isinstance(value, list) else value
        for key, value in answer["content"].items()
    }
    return answer | {"content": content}


# ---------------------------------------------------------------- who is there


async def meeting(talk: Talk) -> None:
    """They meet, and a sign of life"""
    await talk.open()
    await talk.ask("ping")
    await talk.call("who")
    await talk.call("maps_route", {"to": "Oslo"})


async def lists(talk: Talk) -> None:
    """All that there is, page after page"""
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        params: JSON = {}
        while True:
            result = (await talk.ask(method, params))["result"]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
    await talk.ask("tools/list", {"cursor": "b3RoZXI"})


# ---------------------------------------------------------------- tools


async def content(talk: Talk) -> None:
    """Every kind of content"""
    for tool in ("short_blocks", "every_block", "nothing", "half"):
        await talk.call(tool)


async def structured(talk: Talk) -> None:
    """Structured results: objects, others, none"""
    await talk.call("forecast", {"city": "Oslo", "days": "2"})
    await talk.call("count")
    await talk.call("several", {})
    await talk.call("perhaps")
    await talk.call("perhaps", {"given": True})
    await talk.call("bare")
    await talk.call("anything", {"any": {"deep": [1]}})
    await talk.call("full")


async def failures(talk: Talk) -> None:
    """Every way to fail"""
    for tool in ("refuse", "crash", "slow", "broken_promise"):
        await talk.call(tool)
    await talk.call("nobody")
    await talk.call("forecast", {"city": "Oslo", "days": "soon"})
    await talk.call("forecast", {"town": "Oslo"})
    await talk.call("forecast", {"city": ["Oslo"], "unit": "K"})
    await talk.ask("tools/call", {"name": "forecast", "arguments": ["Oslo"]})
    await talk.ask("tools/call", {"arguments": {}})
    await talk.ask("tools/juggle")


async def reports(talk: Talk) -> None:
    """Progress and log"""
    await talk.call("report")
    if talk.revision.handshake:
        await talk.ask("logging/setLevel", {"level": "loud"})
        await talk.ask("logging/setLevel", {"level": "warning"})
        await talk.call("report", meta={"progressToken": "p1"})
        await talk.ask("logging/setLevel", {"level": "debug"})
        await talk.call("report", meta={"progressToken": 7})
        await talk.ask("logging/setLevel", {"level": "emergency"})
    else:
        level = "io.modelcontextprotocol/logLevel"
        await talk.ask("logging/setLevel", {"level": "warning"})
        await talk.call("report", meta={level: "loud"})
        await talk.call("report", meta={level: "warning", "progressToken": "p1"})
        await talk.call("report", meta={level: "debug", "progressToken": 7})
    await talk.call("report", meta={"progressToken": 1.5})


# ---------------------------------------------------------------- questions


async def forms(talk: Talk) -> None:
    """The user is asked: filled in, declined, left, wrong"""
    await talk.call("order", answers={"order": in_words(talk, ORDER)})
    await talk.call("order", answers={"order": {"action": "decline"}})
    await talk.call("order", answers={"order": {"action": "cancel"}})
    await talk.call("order", answers={"order": accept(name="Ada", amount=99)})
    chosen = in_words(talk, accept(titled="b", several=["x", "y"], mail="b@example.com", old="2"))
    await talk.call("choose", answers={"choice": chosen})
    await talk.call("book", {"flight": "F7"}, answers={"seat": accept(value="12A")})
    await talk.call("maybe_book", answers={"seat": {"action": "decline"}})
    if talk.revision.input_requests is InputRequests.AS_REQUEST and talk.revision.elicitation.modes:
        await talk.call("order", answers={"order": {"code": -32603, "message": "no window"}})


async def visits(talk: Talk) -> None:
    """The user is sent somewhere"""
    await talk.call("visit", answers={"visit": {"action": "accept"}})
    await talk.call("visit", answers={"visit": {"action": "decline"}})
    await talk.call("visit_first", answers={"pay": {"action": "accept"}})


async def models(talk: Talk) -> None:
    """The client's model is asked, and its folders"""
    await talk.call("write", answers={"write": written("Fine")})
    if talk.revision.input_requests is InputRequests.AS_REQUEST:
        await talk.call("write", answers={"write": {"code": -1, "message": "User rejected"}})
    await talk.call("write_with_tools", answers={"first": USED, "last": written("A porch")})
    await talk.call("folders", answers={"roots": ROOTS})


async def rounds(talk: Talk) -> None:
    """Several questions: in a row, together, in prompts and resources"""
    key = f"{talk.revision.date} {type(talk).__name__}"
    yes, name = accept(value=True), accept(value="Ada")
    await talk.call("pay", {"key": key}, answers={"sure": yes, "name": name})
    together = {"name": name, "greeting": written("Hi"), "roots": ROOTS}
    await talk.call("all_at_once", answers=together)
    await talk.call("hasty", answers={})
    await talk.ask("prompts/get", {"name": "asking_prompt"}, answers={"about": name})
    await talk.ask("resources/read", {"uri": "notes://asks"}, answers={"whom": name})
    if talk.revision.input_requests is InputRequests.IN_RESULT:
        await _states(talk)


async def _states(talk: Talk) -> None:
    """State that comes back changed, for something else, too often, or not at all."""
    asked = (await talk.call("order"))["result"]
    params = {"name": "order", "inputResponses": {"order": ORDER}}
    for name, state in (("order", "A" + asked["requestState"]), ("choose", asked["requestState"])):
        await talk.ask("tools/call", params | {"name": name, "requestState": state})
    await talk.ask("tools/call", params)
    asked = (await talk.call("vote"))["result"]
    again = talk.retried({"name": "vote"}, asked, {"vote": accept(value=True)})
    await talk.ask("tools/call", again)
    await talk.ask("tools/call", again)


# ---------------------------------------------------------------- state, resources, news


async def handles(talk: Talk) -> None:
    """State that outlives a call"""
    opened = await talk.call("open_basket")
    basket = opened["result"]["content"][0]["text"]
    await talk.call("fill_basket", {"basket": basket, "item": "apple"})
    await talk.call("fill_basket", {"basket": "basket_of_another", "item": "apple"})


async def resources(talk: Talk) -> None:
    """Resources: every kind of contents, and none"""
    for name in ("plain", "pixel", "several", "record", "crash", "nowhere"):
        await talk.ask("resources/read", {"uri": f"notes://{name}"})
    for uri in ("shelf://oak/top", "shelf://oak/side", "files://first.txt", "files://../server.py"):
        await talk.ask("resources/read", {"uri": uri})
    await talk.ask("resources/read", {})
    await talk.call("look", {"uri": "notes://plain"})
    await talk.call("look", {"uri": "notes://nowhere"})


async def news(talk: Talk) -> None:
    """Changes: of a resource, of one below it, of what is offered"""
    watched = ["notes://plain", "box://oak"]
    listening: Call | None = None
    if talk.revision.change_notifications is ChangeNotifications.SESSION:
        for uri in watched:
            await talk.ask("resources/subscribe", {"uri": uri})
        await talk.ask("resources/subscribe", {"uri": "nothing://here"})
    else:
        listening = await listen(talk, watched)
    for uri in ("notes://plain", "box://oak/lid"):
        await talk.call("touch", {"uri": uri})
        await talk.news(1)
    await talk.call("touch", {"uri": "notes://pixel"})
    for what in ("tools", "prompts", "resources"):
        for _ in ("added", "removed"):
            await talk.call("change", {"what": what})
            await talk.news(1)
    if listening is not None:
        await talk.give_up(listening)
    else:
        for uri in watched:
            await talk.ask("resources/unsubscribe", {"uri": uri})
    await talk.call("touch", {"uri": "notes://plain"})
    await talk.call("who")


async def listen(talk: Talk, uris: list[str]) -> Call:
    """Ask for all news, and hear that it was agreed to."""
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": uris,
    }
    call = await talk.begin("subscriptions/listen", {"notifications": wanted})
    if isinstance(call, PostCall):
        assert isinstance(talk, Posts)
        talk.listening = call.stream
    await call.next()
    return call


async def prompts(talk: Talk) -> None:
    """Prompts: arguments, messages of every kind, failures"""
    get = "prompts/get"
    for arguments in ({"code": "x = 1"}, {"code": "x", "language": "go", "strict": "true"}):
        await talk.ask(get, {"name": "review", "arguments": arguments})
    await talk.ask(get, {"name": "every_message"})
    await talk.ask(get, {"name": "review"})
    await talk.ask(get, {"name": "review", "arguments": {"code": "x", "language": "perl"}})
    await talk.ask(get, {"name": "nobody"})
    await talk.ask(get, {"name": "crashing_prompt"})
    await talk.ask(get, {"name": "refusing_prompt"})


async def completions(talk: Talk) -> None:
    """Completions: of types, of functions, with what is known already"""
    review, shelf = {"type": "ref/prompt", "name": "review"}, "shelf://{name}/{part}"
    template = {"type": "ref/resource", "uri": shelf}
    asked: list[tuple[JSON, str, str]] = [
        (review, "language", "g"),
        (review, "strict", ""),
        (review, "code", "x"),
        (template, "part", "t"),
        (template, "name", "ok"),
        (review, "nobody", ""),
        ({"type": "ref/prompt", "name": "nobody"}, "code", ""),
        ({"type": "ref/resource", "uri": "nothing://{here}"}, "here", ""),
    ]
    for ref, name, value in asked:
        argument = {"name": name, "value": value}
        await talk.ask("completion/complete", {"ref": ref, "argument": argument})
    known = {"context": {"arguments": {"part": "top"}}}
    argument = {"name": "name", "value": ""}
    await talk.ask("completion/complete", {"ref": template, "argument": argument} | known)


# ---------------------------------------------------------------- in each other's way


async def cancelling(talk: Talk) -> None:
    """A call is given up; an id is used twice at once"""
    key = f"{talk.revision.date} {type(talk).__name__}"
    waiting = {"name": "wait", "arguments": {"key": key}}
    call = await talk.begin("tools/call", waiting, meta={"progressToken": "w"})
    await call.next()
    _, twice = talk.request("tools/call", {"name": "who"}, id=call.id)
    await talk.blurt(json.dumps(twice).encode())
    await talk.give_up(call)
    await talk.call("was_stopped", {"key": key})
    await talk.tell("notifications/cancelled", {"requestId": 999})


async def batches(talk: Talk) -> None:
    """Several messages at once"""
    items = [talk.request("tools/call", {"name": name})[1] for name in ("count", "nobody")]
    items.append(talk.request("ping", None)[1])
    items.append({"jsonrpc": "2.0", "method": "notifications/unknown"})
    await talk.blurt(json.dumps(items).encode())
    await talk.blurt(b"[]")
    if talk.revision.batches:
        await talk.blurt(json.dumps([1, items[-1]]).encode())
        opening = {"protocolVersion": talk.revision.date, "capabilities": {}, "clientInfo": INFO}
        items = [talk.request("initialize", opening)[1], talk.request("ping", None)[1]]
        await talk.blurt(json.dumps(items).encode())
        await talk.say([{"jsonrpc": "2.0", "method": "notifications/unknown"}])


async def oddities(talk: Talk) -> None:
    """What a client should not say, and what it may say in vain"""
    for data in (
        b'{"jsonrpc":"2.0","id":70,"method":',
        b'{"jsonrpc":"1.0","id":71,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":72.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":73,"id":74,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":75,"method":"tools/list","params":[]}',
        b'"hello"',
        b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}',
    ):
        await talk.blurt(data)
    await talk.tell("notifications/unknown", {"x": 1})
    if talk.revision.handshake:
        await talk.tell("notifications/roots/list_changed")
        await talk.say({"jsonrpc": "2.0", "id": 999, "result": {}})
        opening = {"protocolVersion": talk.revision.date, "capabilities": {}, "clientInfo": INFO}
        _, again = talk.request("initialize", opening)
        await talk.blurt(json.dumps(again).encode())
    await talk.ask("tools/call", {"name": "count", "task": {"ttl": 1000}})
    await talk.call("count", meta={"example.com/mine": [1]})
    await talk.call("region", {"where": "north"})


MAIN: tuple[Scene, ...] = (
    *(meeting, lists, content, structured, failures, reports),
    *(forms, visits, models, rounds, handles, resources, news, prompts, completions),
    *(cancelling, batches, oddities),
)


# ---------------------------------------------------------------- other clients


async def able_to_do_nothing(talk: Talk) -> None:
    """A client that declares nothing is asked nothing"""
    await talk.open()
    for tool in ("order", "book", "maybe_book", "visit", "visit_first", "write", "folders"):
        await talk.call(tool)
    await talk.ask("prompts/get", {"name": "asking_prompt"})
    await talk.ask("resources/read", {"uri": "notes://asks"})


async def able_to_do_everything(talk: Talk) -> None:
    """A client that declares more than its revision has gets no more than that"""
    await talk.open()
    await talk.call("order", answers={"order": in_words(talk, ORDER)})
    await talk.call("visit", answers={"visit": {"action": "accept"}})
    await talk.call("write_with_tools", answers={"first": USED, "last": written("A porch")})


async def ending(talk: Talk) -> None:
    """The server is told to end while somebody listens"""
    assert isinstance(talk, Pipe)
    call = await listen(talk, [])
    talk.process.terminate()
    talk.transcript.remark("the server is told to end")
    await talk.outcome(call)


async def early(talk: Talk) -> None:
    """Before anything else: what a client may say, and what not"""
    assert isinstance(talk, Duplex)
    await talk.blurt(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    await talk.blurt(b"not even JSON")
    if talk.revision.handshake:
        await talk.blurt(b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
        await talk.blurt(b'{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}')
