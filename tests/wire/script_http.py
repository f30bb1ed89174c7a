"""The part of the script that only HTTP has: sessions, streams that break, headers, refusals.

Rules: as in `script`.
"""

import json
from typing import Any

from colonnade.protocol.revision import HttpBinding
from wire.clients import WireClient
from wire.clients_http import EVENTS_TYPE, JSON_TYPE, Events, HttpClient, PostCall, Posts
from wire.script import Step
from wire.transcript import JSON

LIST: JSON = {"jsonrpc": "2.0", "id": 900, "method": "prompts/list"}


def said(message: Any) -> bytes:
    return json.dumps(message).encode()


# ---------------------------------------------------------------- sessions


async def sessions(client: WireClient) -> None:
    """Sessions: none, an unknown one, another revision, too much"""
    assert isinstance(client, Posts)
    own = client.headers_for(None)
    client.method_of[900] = "prompts/list"

    async def post(**headers: str | None) -> None:
        await client.whole("POST", client.path, said(LIST), **(own | headers))

    await post(mcp_session_id=None)
    await post(mcp_session_id="nobody-knows-it")
    await post(mcp_session_id="not visible")
    await post(mcp_protocol_version="2023-01-01")
    await post(mcp_protocol_version="2024-11-05")
    await post(mcp_protocol_version=None)
    await client.whole("GET", client.path, accept=EVENTS_TYPE)
    await client.whole("GET", client.path, accept=EVENTS_TYPE, mcp_session_id="nobody-knows-it")
    await client.whole("DELETE", client.path)
    await client.whole("DELETE", client.path, mcp_session_id="nobody-knows-it")


async def resuming(client: WireClient) -> None:
    """A connection is lost in the middle of a call, and the rest is fetched"""
    assert isinstance(client, Posts)
    key = f"{client.revision.date} resumed"
    call = await client.begin(
        "tools/call", {"name": "wait", "arguments": {"key": key}}, meta={"progressToken": "r"}
    )
    assert isinstance(call, PostCall)
    await call.next()
    last = call.stream.last_id
    call.stream.leave()
    await client.call("release", {"key": key})
    if last is not None:
        again = await client.get(last_event_id=last)
        rest = await again.message(client)
        assert rest is not None
        assert rest["id"] == call.id
        await again.message(client)
        await client.whole(
            "GET",
            client.path,
            **client.headers_for(None),
            accept=EVENTS_TYPE,
            last_event_id="x-1-1",
        )


async def streamed_batch(client: WireClient) -> None:
    """Several messages at once, some of which report on their way"""
    assert isinstance(client, Posts)
    items = [
        client.request("tools/call", {"name": name}, meta={"progressToken": name})[1]
        for name in ("report", "count")
    ]
    stream = await client.exchange("POST", client.path, said(items), **client.headers_for(None))
    while await stream.messages(client):
        pass


async def polling(client: WireClient) -> None:
    """The server lets the connection go, and the client comes back for the rest"""
    assert isinstance(client, Posts)
    key = f"{client.revision.date} polled"
    call = await client.begin("tools/call", {"name": "let_go", "arguments": {"key": key}})
    assert isinstance(call, PostCall)
    assert await call.stream.message(client) is None
    await client.call("release", {"key": key})
    again = await client.get(last_event_id=call.stream.last_id)
    rest = await again.message(client)
    assert rest is not None
    assert rest["id"] == call.id
    await again.message(client)


async def plain_answers(client: WireClient) -> None:
    """A client that takes JSON alone hears nothing on the way, and one that takes events alone"""
    meta = {"progressToken": "j"}
    await client.call("report", meta=meta, headers={"accept": JSON_TYPE})
    await client.call("folders", headers={"accept": JSON_TYPE})
    await client.call("count", headers={"accept": EVENTS_TYPE})
    await client.call("count", headers={"accept": "*/*"})
    await client.call("count", headers={"accept": None})


async def refusals(client: WireClient) -> None:
    """What is refused before anything is read"""
    assert isinstance(client, HttpClient)
    path = client.endpoint if isinstance(client, Events) else "/mcp"
    own = client.headers_for(LIST) if isinstance(client, Posts) else {}
    body = said(LIST)
    await client.whole("POST", path, body, **(own | {"origin": "https://evil.example"}))
    await client.whole("POST", path, body, **(own | {"host": "evil.example"}))
    await client.whole("POST", path, body, **(own | {"accept": "text/html"}))
    await client.whole("POST", path, body, **(own | {"content-type": "text/plain"}))
    await client.whole("PUT", path, body, **own)
    await client.whole("GET", "/nowhere")
    if isinstance(client, Events):
        for query in ("", "?session_id=nobody", "?session_id=a&session_id=b", "?" + "&a=1" * 12):
            await client.whole("POST", f"/messages{query}", body)
        await client.whole("GET", "/sse", accept=EVENTS_TYPE, origin="https://evil.example")
        await client.whole("GET", "/sse", accept=JSON_TYPE)


# ---------------------------------------------------------------- posts that say it all


async def envelopes(client: WireClient) -> None:
    """Headers and envelope: missing, wrong, of another revision"""
    assert isinstance(client, Posts)
    _, good = client.request("tools/call", {"name": "who"}, id=901)
    headers = client.headers_for(good)

    async def post(message: JSON, **changed: str | None) -> None:
        await client.whole("POST", client.path, said(message), **(headers | changed))

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
        meta = client.envelope | {version: date}
        other = good | {"params": {"name": "who", "_meta": meta}}
        await post(other, mcp_protocol_version=date)
    await post(good, mcp_session_id="of-no-use", last_event_id="x-1-1")
    _, where = client.request("tools/call", {"name": "region", "arguments": {"where": "a"}}, id=902)
    await post(where, mcp_name="region")
    await post(where, mcp_name="region", mcp_param_region="b")
    await post(where, mcp_name="region", mcp_param_region="a")
    await post({"jsonrpc": "2.0", "id": 1, "result": {}}, mcp_method=None, mcp_name=None)
    await client.whole("GET", client.path, accept=EVENTS_TYPE, mcp_protocol_version="2026-07-28")
    await client.whole("DELETE", client.path, mcp_protocol_version="2026-07-28")


def steps_for(client: HttpClient) -> tuple[Step, ...]:
    """What this wire has beside the scenes of every wire."""
    if isinstance(client, Events):
        return (refusals,)
    http = client.revision.http
    if http.binding is HttpBinding.POST_ONLY:
        return (plain_answers, refusals, envelopes)
    own: tuple[Step, ...] = (plain_answers, sessions, resuming)
    return (
        *own,
        *((polling,) if http.prime_and_poll else ()),
        *((streamed_batch,) if client.revision.batches else ()),
        refusals,
    )
