"""The script: what a client says to a server that offers everything, on every wire alike.

One client goes through all steps in order. The docstring of a step is its title in the transcript.
What is sent depends on what the client's revision can say; what comes back is never judged here.

Rules: no waits but for messages. A step leaves the server as it found it.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from colonnade.protocol.revision import ChangeNotifications, InputRequests
from wire.clients import INFO, Call, Duplex, Pipe, WireClient
from wire.clients_http import PostCall, Posts
from wire.transcript import JSON

Step = Callable[[WireClient], Awaitable[None]]

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


def in_words(client: WireClient, answer: JSON) -> JSON:
    """An answer to a form whose several choices were asked for in words."""
    if client.revision.elicitation.multi_select:
        return answer
    content = {
        key: ", ".join(value) if isinstance(value, list) else value
        for key, value in answer["content"].items()
    }
    return answer | {"content": content}


# ---------------------------------------------------------------- who is there


async def meeting(client: WireClient) -> None:
    """They meet, and a sign of life"""
    await client.open()
    await client.ask("ping")
    await client.call("who")
    await client.call("maps_route", {"to": "Oslo"})


async def lists(client: WireClient) -> None:
    """All that there is, page after page"""
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        params: JSON = {}
        while True:
            result = (await client.ask(method, params))["result"]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
    await client.ask("tools/list", {"cursor": "b3RoZXI"})


# ---------------------------------------------------------------- tools


async def content(client: WireClient) -> None:
    """Every kind of content"""
    for tool in ("short_blocks", "every_block", "nothing", "half"):
        await client.call(tool)


async def structured(client: WireClient) -> None:
    """Structured results: objects, others, none"""
    await client.call("forecast", {"city": "Oslo", "days": "2"})
    await client.call("count")
    await client.call("several", {})
    await client.call("perhaps")
    await client.call("perhaps", {"given": True})
    await client.call("bare")
    await client.call("anything", {"any": {"deep": [1]}})
    await client.call("full")


async def failures(client: WireClient) -> None:
    """Every way to fail"""
    for tool in ("refuse", "crash", "slow", "broken_promise"):
        await client.call(tool)
    await client.call("nobody")
    await client.call("forecast", {"city": "Oslo", "days": "soon"})
    await client.call("forecast", {"town": "Oslo"})
    await client.call("forecast", {"city": ["Oslo"], "unit": "K"})
    await client.ask("tools/call", {"name": "forecast", "arguments": ["Oslo"]})
    await client.ask("tools/call", {"arguments": {}})
    await client.ask("tools/juggle")


async def reports(client: WireClient) -> None:
    """Progress and log"""
    await client.call("report")
    if client.revision.handshake:
        await client.ask("logging/setLevel", {"level": "loud"})
        await client.ask("logging/setLevel", {"level": "warning"})
        await client.call("report", meta={"progressToken": "p1"})
        await client.ask("logging/setLevel", {"level": "debug"})
        await client.call("report", meta={"progressToken": 7})
        await client.ask("logging/setLevel", {"level": "emergency"})
    else:
        level = "io.modelcontextprotocol/logLevel"
        await client.ask("logging/setLevel", {"level": "warning"})
        await client.call("report", meta={level: "loud"})
        await client.call("report", meta={level: "warning", "progressToken": "p1"})
        await client.call("report", meta={level: "debug", "progressToken": 7})
    await client.call("report", meta={"progressToken": 1.5})


# ---------------------------------------------------------------- questions


async def forms(client: WireClient) -> None:
    """The user is asked: filled in, declined, left, wrong"""
    await client.call("order", answers={"order": in_words(client, ORDER)})
    await client.call("order", answers={"order": {"action": "decline"}})
    await client.call("order", answers={"order": {"action": "cancel"}})
    await client.call("order", answers={"order": accept(name="Ada", amount=99)})
    chosen = in_words(client, accept(titled="b", several=["x", "y"], mail="b@example.com", old="2"))
    await client.call("choose", answers={"choice": chosen})
    await client.call("book", {"flight": "F7"}, answers={"seat": accept(value="12A")})
    await client.call("maybe_book", answers={"seat": {"action": "decline"}})
    if (
        client.revision.input_requests is InputRequests.AS_REQUEST
        and client.revision.elicitation.modes
    ):
        await client.call("order", answers={"order": {"code": -32603, "message": "no window"}})


async def visits(client: WireClient) -> None:
    """The user is sent somewhere"""
    await client.call("visit", answers={"visit": {"action": "accept"}})
    await client.call("visit", answers={"visit": {"action": "decline"}})
    await client.call("visit_first", answers={"pay": {"action": "accept"}})


async def models(client: WireClient) -> None:
    """The client's model is asked, and its folders"""
    await client.call("write", answers={"write": written("Fine")})
    if client.revision.input_requests is InputRequests.AS_REQUEST:
        await client.call("write", answers={"write": {"code": -1, "message": "User rejected"}})
    await client.call("write_with_tools", answers={"first": USED, "last": written("A porch")})
    await client.call("folders", answers={"roots": ROOTS})


async def rounds(client: WireClient) -> None:
    """Several questions: in a row, together, in prompts and resources"""
    key = f"{client.revision.date} {type(client).__name__}"
    yes, name = accept(value=True), accept(value="Ada")
    await client.call("pay", {"key": key}, answers={"sure": yes, "name": name})
    together = {"name": name, "greeting": written("Hi"), "roots": ROOTS}
    await client.call("all_at_once", answers=together)
    await client.call("hasty", answers={})
    await client.ask("prompts/get", {"name": "asking_prompt"}, answers={"about": name})
    await client.ask("resources/read", {"uri": "notes://asks"}, answers={"whom": name})
    if client.revision.input_requests is InputRequests.IN_RESULT:
        await _states(client)


async def _states(client: WireClient) -> None:
    """State that comes back changed, for something else, too often, or not at all."""
    asked = (await client.call("order"))["result"]
    params = {"name": "order", "inputResponses": {"order": ORDER}}
    for name, state in (("order", "A" + asked["requestState"]), ("choose", asked["requestState"])):
        await client.ask("tools/call", params | {"name": name, "requestState": state})
    await client.ask("tools/call", params)
    asked = (await client.call("vote"))["result"]
    again = client.retried({"name": "vote"}, asked, {"vote": accept(value=True)})
    await client.ask("tools/call", again)
    await client.ask("tools/call", again)


# ---------------------------------------------------------------- state, resources, news


async def handles(client: WireClient) -> None:
    """State that outlives a call"""
    opened = await client.call("open_basket")
    basket = opened["result"]["content"][0]["text"]
    await client.call("fill_basket", {"basket": basket, "item": "apple"})
    await client.call("fill_basket", {"basket": "basket_of_another", "item": "apple"})


async def resources(client: WireClient) -> None:
    """Resources: every kind of contents, and none"""
    for name in ("plain", "pixel", "several", "record", "crash", "nowhere"):
        await client.ask("resources/read", {"uri": f"notes://{name}"})
    for uri in ("shelf://oak/top", "shelf://oak/side", "files://first.txt", "files://../server.py"):
        await client.ask("resources/read", {"uri": uri})
    await client.ask("resources/read", {})
    await client.call("look", {"uri": "notes://plain"})
    await client.call("look", {"uri": "notes://nowhere"})


async def news(client: WireClient) -> None:
    """Changes: of a resource, of one below it, of what is offered"""
    watched = ["notes://plain", "box://oak"]
    listening: Call | None = None
    if client.revision.change_notifications is ChangeNotifications.SESSION:
        for uri in watched:
            await client.ask("resources/subscribe", {"uri": uri})
        await client.ask("resources/subscribe", {"uri": "nothing://here"})
    else:
        listening = await listen(client, watched)
    for uri in ("notes://plain", "box://oak/lid"):
        await client.call("touch", {"uri": uri})
        await client.notifications(1)
    await client.call("touch", {"uri": "notes://pixel"})
    for what in ("tools", "prompts", "resources"):
        for _ in ("added", "removed"):
            await client.call("change", {"what": what})
            await client.notifications(1)
    if listening is not None:
        await client.give_up(listening)
    else:
        for uri in watched:
            await client.ask("resources/unsubscribe", {"uri": uri})
    await client.call("touch", {"uri": "notes://plain"})
    await client.call("who")


async def listen(client: WireClient, uris: list[str]) -> Call:
    """Ask for all news, and hear that it was agreed to."""
    wanted = {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
        "resourceSubscriptions": uris,
    }
    call = await client.begin("subscriptions/listen", {"notifications": wanted})
    if isinstance(call, PostCall):
        assert isinstance(client, Posts)
        client.listening = call.stream
    await call.next()
    return call


async def prompts(client: WireClient) -> None:
    """Prompts: arguments, messages of every kind, failures"""
    get = "prompts/get"
    for arguments in ({"code": "x = 1"}, {"code": "x", "language": "go", "strict": "true"}):
        await client.ask(get, {"name": "review", "arguments": arguments})
    await client.ask(get, {"name": "every_message"})
    await client.ask(get, {"name": "review"})
    await client.ask(get, {"name": "review", "arguments": {"code": "x", "language": "perl"}})
    await client.ask(get, {"name": "nobody"})
    await client.ask(get, {"name": "crashing_prompt"})
    await client.ask(get, {"name": "refusing_prompt"})


async def completions(client: WireClient) -> None:
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
        await client.ask("completion/complete", {"ref": ref, "argument": argument})
    known = {"context": {"arguments": {"part": "top"}}}
    argument = {"name": "name", "value": ""}
    await client.ask("completion/complete", {"ref": template, "argument": argument} | known)


# ---------------------------------------------------------------- in each other's way


async def cancelling(client: WireClient) -> None:
    """A call is given up; an id is used twice at once"""
    key = f"{client.revision.date} {type(client).__name__}"
    waiting = {"name": "wait", "arguments": {"key": key}}
    call = await client.begin("tools/call", waiting, meta={"progressToken": "w"})
    await call.next()
    _, twice = client.request("tools/call", {"name": "who"}, id=call.id)
    await client.send_bytes(json.dumps(twice).encode())
    await client.give_up(call)
    await client.call("was_stopped", {"key": key})
    await client.notify("notifications/cancelled", {"requestId": 999})


async def batches(client: WireClient) -> None:
    """Several messages at once"""
    items = [client.request("tools/call", {"name": name})[1] for name in ("count", "nobody")]
    items.append(client.request("ping", None)[1])
    items.append({"jsonrpc": "2.0", "method": "notifications/unknown"})
    await client.send_bytes(json.dumps(items).encode())
    await client.send_bytes(b"[]")
    if client.revision.batches:
        await client.send_bytes(json.dumps([1, items[-1]]).encode())
        opening = {"protocolVersion": client.revision.date, "capabilities": {}, "clientInfo": INFO}
        items = [client.request("initialize", opening)[1], client.request("ping", None)[1]]
        await client.send_bytes(json.dumps(items).encode())
        await client.send([{"jsonrpc": "2.0", "method": "notifications/unknown"}])


async def oddities(client: WireClient) -> None:
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
        await client.send_bytes(data)
    await client.notify("notifications/unknown", {"x": 1})
    if client.revision.handshake:
        await client.notify("notifications/roots/list_changed")
        await client.send({"jsonrpc": "2.0", "id": 999, "result": {}})
        opening = {"protocolVersion": client.revision.date, "capabilities": {}, "clientInfo": INFO}
        _, again = client.request("initialize", opening)
        await client.send_bytes(json.dumps(again).encode())
    await client.ask("tools/call", {"name": "count", "task": {"ttl": 1000}})
    await client.call("count", meta={"example.com/mine": [1]})
    await client.call("region", {"where": "north"})


MAIN: tuple[Step, ...] = (
    *(meeting, lists, content, structured, failures, reports),
    *(forms, visits, models, rounds, handles, resources, news, prompts, completions),
    *(cancelling, batches, oddities),
)


# ---------------------------------------------------------------- other clients


async def able_to_do_nothing(client: WireClient) -> None:
    """A client that declares nothing is asked nothing"""
    await client.open()
    for tool in ("order", "book", "maybe_book", "visit", "visit_first", "write", "folders"):
        await client.call(tool)
    await client.ask("prompts/get", {"name": "asking_prompt"})
    await client.ask("resources/read", {"uri": "notes://asks"})


async def able_to_do_everything(client: WireClient) -> None:
    """A client that declares more than its revision has gets no more than that"""
    await client.open()
    await client.call("order", answers={"order": in_words(client, ORDER)})
    await client.call("visit", answers={"visit": {"action": "accept"}})
    await client.call("write_with_tools", answers={"first": USED, "last": written("A porch")})


async def ending(client: WireClient) -> None:
    """The server is told to end while somebody listens"""
    assert isinstance(client, Pipe)
    call = await listen(client, [])
    client.process.terminate()
    client.transcript.remark("the server is told to end")
    await client.outcome(call)


async def early(client: WireClient) -> None:
    """Before anything else: what a client may say, and what not"""
    assert isinstance(client, Duplex)
    await client.send_bytes(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    await client.send_bytes(b"not even JSON")
    if client.revision.handshake:
        await client.send_bytes(b'{"jsonrpc":"2.0","id":2,"method":"ping"}')
        await client.send_bytes(b'{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}')
