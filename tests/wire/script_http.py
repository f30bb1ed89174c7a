"""The part of the script that only HTTP has: sessions, streams that break, headers, refusals.

Rules: as in `scenes`.
"""

import json
from typing import Any

from colonnade.protocol.revision import HttpBinding
from wire.clients import Talk
from wire.clients_http import EVENTS_TYPE, JSON_TYPE, Events, PostCall, Posts, Visitor
from wire.script import Scene
from wire.transcript import JSON

LIST: JSON = {"jsonrpc": "2.0", "id": 900, "method": "prompts/list"}


def said(message: Any) -> bytes:
    return json.dumps(message).encode()


# ---------------------------------------------------------------- sessions


async def sessions(talk: Talk) -> None:
    """Sessions: none, an unknown one, another revision, too much"""
    assert isinstance(talk, Posts)
    own = talk.headers_for(None)
    talk.method_of[900] = "prompts/list"

    async def post(**headers: str | None) -> None:
        await talk.whole("POST", talk.path, said(LIST), **(own | headers))

    await post(mcp_session_id=None)
    await post(mcp_session_id="nobody-knows-it")
    await post(mcp_session_id="not visible")
    await post(mcp_protocol_version="2023-01-01")
    await post(mcp_protocol_version="2024-11-05")
    await post(mcp_protocol_version=None)
    await talk.whole("GET", talk.path, accept=EVENTS_TYPE)
    await talk.whole("GET", talk.path, accept=EVENTS_TYPE, mcp_session_id="nobody-knows-it")
    await talk.whole("DELETE", talk.path)
    await talk.whole("DELETE", talk.path, mcp_session_id="nobody-knows-it")


async def resuming(talk: Talk) -> None:
    """A connection is lost in the middle of a call, and the rest is fetched"""
    assert isinstance(talk, Posts)
    key = f"{talk.revision.date} resumed"
    call = await talk.begin(
        "tools/call", {"name": "wait", "arguments": {"key": key}}, meta={"progressToken": "r"}
    )
    assert isinstance(call, PostCall)
    await call.next()
    last = call.stream.last_id
    call.stream.leave()
    await talk.call("release", {"key": key})
    if last is not None:
        again = await talk.get(last_event_id=last)
        rest = await again.message(talk)
        assert rest is not None
        assert rest["id"] == call.id
        await again.message(talk)
        await talk.whole(
            "GET", talk.path, **talk.headers_for(None), accept=EVENTS_TYPE, last_event_id="x-1-1"
        )


async def streamed_batch(talk: Talk) -> None:
    """Several messages at once, some of which report on their way"""
    assert isinstance(talk, Posts)
    items = [
        talk.request("tools/call", {"name": name}, meta={"progressToken": name})[1]
        for name in ("report", "count")
    ]
    stream = await talk.visit("POST", talk.path, said(items), **talk.headers_for(None))
    while await stream.messages(talk):
        pass


async def polling(talk: Talk) -> None:
    """The server lets the connection go, and the client comes back for the rest"""
    assert isinstance(talk, Posts)
    key = f"{talk.revision.date} polled"
    call = await talk.begin("tools/call", {"name": "let_go", "arguments": {"key": key}})
    assert isinstance(call, PostCall)
    assert await call.stream.message(talk) is None
    await talk.call("release", {"key": key})
    again = await talk.get(last_event_id=call.stream.last_id)
    rest = await again.message(talk)
    assert rest is not None
    assert rest["id"] == call.id
    await again.message(talk)


async def plain_answers(talk: Talk) -> None:
    """A client that takes JSON alone hears nothing on the way, and one that takes events alone"""
    meta = {"progressToken": "j"}
    await talk.call("report", meta=meta, headers={"accept": JSON_TYPE})
    await talk.call("folders", headers={"accept": JSON_TYPE})
    await talk.call("count", headers={"accept": EVENTS_TYPE})
    await talk.call("count", headers={"accept": "*/*"})
    await talk.call("count", headers={"accept": None})


async def refusals(talk: Talk) -> None:
    """What is refused before anything is read"""
    assert isinstance(talk, Visitor)
    path = talk.endpoint if isinstance(talk, Events) else "/mcp"
    own = talk.headers_for(LIST) if isinstance(talk, Posts) else {}
    body = said(LIST)
    await talk.whole("POST", path, body, **(own | {"origin": "https://evil.example"}))
    await talk.whole("POST", path, body, **(own | {"host": "evil.example"}))
    await talk.whole("POST", path, body, **(own | {"accept": "text/html"}))
    await talk.whole("POST", path, body, **(own | {"content-type": "text/plain"}))
    await talk.whole("PUT", path, body, **own)
    await talk.whole("GET", "/nowhere")
    if isinstance(talk, Events):
        for query in ("", "?session_id=nobody", "?session_id=a&session_id=b", "?" + "&a=1" * 12):
            await talk.whole("POST", f"/messages{query}", body)
        await talk.whole("GET", "/sse", accept=EVENTS_TYPE, origin="https://evil.example")
        await talk.whole("GET", "/sse", accept=JSON_TYPE)


# ---------------------------------------------------------------- posts that say it all


async def envelopes(talk: Talk) -> None:
    """Headers and envelope: missing, wrong, of another revision"""
    assert isinstance(talk, Posts)
    _, good = talk.request("tools/call", {"name": "who"}, id=901)
    headers = talk.headers_for(good)

    async def post(message: JSON, **changed: str | None) -> None:
        await talk.whole("POST", talk.path, said(message), **(headers | changed))

    await post(good, mcp_method=None)
    await post(good, mcp_method="tools/list")
    await post(good, mcp_name=None)
    await post(good, mcp_name="count")
    await post(good, mcp_protocol_version=None)
    await post(good, mcp_protocol_version="2025-11-25")
    await post(good | {"params": {"name": "who"}})
    await post(good | {"params": {"name": "who", "_meta": {}}})
    version = "io.modelcontextprotocol/protocolVersion"
    for date in ("2099-01-01", "2025-11-25"):
        meta = talk.envelope | {version: date}
        other = good | {"params": {"name": "who", "_meta": meta}}
        await post(other, mcp_protocol_version=date)
    await post(good, mcp_session_id="of-no-use", last_event_id="x-1-1")
    _, where = talk.request("tools/call", {"name": "region", "arguments": {"where": "a"}}, id=902)
    await post(where, mcp_name="region")
    await post(where, mcp_name="region", mcp_param_region="b")
    await post(where, mcp_name="region", mcp_param_region="a")
    await post({"jsonrpc": "2.0", "id": 1, "result": {}}, mcp_method=None, mcp_name=None)
    await talk.whole("GET", talk.path, accept=EVENTS_TYPE, mcp_protocol_version="2026-07-28")
    await talk.whole("DELETE", talk.path, mcp_protocol_version="2026-07-28")


def scenes_for(talk: Visitor) -> tuple[Scene, ...]:
    """What this wire has beside the scenes of every wire."""
    if isinstance(talk, Events):
        return (refusals,)
    http = talk.revision.http
    if http.binding is HttpBinding.POST_ONLY:
        return (plain_answers, refusals, envelopes)
    own: tuple[Scene, ...] = (plain_answers, sessions, resuming)
    return (
        *own,
        *((polling,) if http.prime_and_poll else ()),
        *((streamed_batch,) if talk.revision.batches else ()),
        refusals,
    )
