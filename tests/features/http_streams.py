"""HTTP on real sockets: responses, streams, sessions, resumption, cancellation, batches."""

import asyncio
import json
from typing import Any

from colonnade import Context, Server
from colonnade.protocol.revision import ALL, ChangeNotifications, Revision
from colonnade.transport.http_server.request import Limits
from features.feature import JSON, WORKS, Group, Verdict, fallback, refused
from features.http_clients import ROOTS, SessionClient, SseClient, http_client, serving, settled
from http_client import cancelled

HTTP = Group("Streamable HTTP and HTTP+SSE: sessions, streams, resumption")
TOOLS = "notifications/tools/list_changed"


class Working:
    """A server whose tools wait for an event, and record what they did."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.stopped = asyncio.Event()
        self.done = asyncio.Event()
        self.server = Server("s")
        self.server.tool(name="quick")(lambda: "quick")
        for tool in (self.wait, self.report, self.folders, self.leave):
            self.server.tool(tool)

    async def wait(self) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        self.done.set()
        return "waited"

    async def report(self, ctx: Context, wait: bool = False) -> str:
        for step in (1, 2):
            await ctx.progress(step, 3)
        if wait:
            await self.go.wait()
        await ctx.progress(3, 3)
        return "reported"

    async def folders(self, ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())

    async def leave(self, ctx: Context) -> str:
        self.begun.set()
        await ctx.hang_up()
        await self.go.wait()
        return "the rest"

    def grow(self) -> None:
        """Add a tool."""
        self.server.tool(name=f"new{len(self.server.tools)}")(lambda: "new")


REPORT: JSON = {"name": "report", "_meta": {"progressToken": "p"}}
REPORT_AND_WAIT: JSON = REPORT | {"arguments": {"wait": True}}


def steps(messages: list[JSON]) -> list[float]:
    return [one["params"]["progress"] for one in messages if "params" in one]


# ---------------------------------------------------------------- responses


@HTTP.feature("response as JSON", fallback("as an SSE event"), *4 * [WORKS])
async def plain(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", {"name": "quick"})
        response = await client.post(message)
        found = await anext(client.messages(response))
        assert found["result"]["content"][0]["text"] == "quick"
        if response.body == b"":
            return fallback("as an SSE event")
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
    return WORKS


@HTTP.feature("notifications during a call, as unbuffered SSE events", WORKS)
async def reports(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", REPORT)
        response = await client.post(message)
        stream = client.stream if isinstance(client, SseClient) else response
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["x-accel-buffering"] == "no"
        found = [await anext(client.messages(response)) for _ in range(4)]
        assert steps(found) == [1, 2, 3]
        assert found[-1]["result"]["content"][0]["text"] == "reported"
    return WORKS


@HTTP.feature("keep-alive comments on an idle stream", WORKS)
async def kept_alive(revision: Revision) -> Verdict:
    work = Working()
    limits = Limits(keep_alive_interval_s=0.01)
    async with (
        serving(work.server, limits=limits) as site,
        http_client(site.port, revision) as client,
    ):
        stream = await client.listen()
        async with asyncio.timeout(60):
            chunk = await stream._chunk()
            while chunk.startswith(b"id:"):  # the event for resumption, if there is one
                chunk = await stream._chunk()
            assert chunk == b":\n\n"
    return WORKS


@HTTP.feature("input request and response", WORKS)
async def question(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        assert await client.call("folders") == ROOTS["roots"][0]["uri"]
    return WORKS


@HTTP.feature("clients of all revisions on one port", WORKS)
async def at_once(revision: Revision) -> Verdict:
    async with serving(Working().server) as site:

        async def other(one: Revision) -> str:
            async with http_client(site.port, one) as client:
                return await client.call("folders")

        others = [one for one in ALL if one is not revision]
        async with http_client(site.port, revision) as client:
            found = await asyncio.gather(client.call("folders"), *map(other, others))
            assert found == ["file:///a"] * len(ALL)
            assert await client.call("quick") == "quick"
    return WORKS


@HTTP.feature("HTTP+SSE (`/sse`)", *4 * [WORKS], refused(-32022))
async def first_transport(revision: Revision) -> Verdict:
    async with serving(Working().server) as site:
        client = SseClient(site.port, revision)
        async with client.caller:
            if revision.handshake:
                await client.open()
                assert client.heard[0]["result"]["protocolVersion"] == revision.date
                assert await client.call("quick") == "quick"
                return WORKS
            await client.connect()
            meta = {
                "io.modelcontextprotocol/protocolVersion": revision.date,
                "io.modelcontextprotocol/clientCapabilities": {},
            }
            answer = await client.ask("tools/list", {"_meta": meta})
    assert revision.date not in answer["error"]["data"]["supported"]
    return refused(answer["error"]["code"])


# ---------------------------------------------------------------- notifications


@HTTP.feature("`list_changed` on its stream", WORKS)
async def changes(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        stream = await client.listen()
        work.grow()
        assert client.check(await stream.message())["method"] == TOOLS
    return WORKS


@HTTP.feature("GET stream for notifications", *4 * [WORKS], refused(400))
async def get(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        if isinstance(client, SseClient):
            stream = client.stream
        else:
            _, stream = await client.caller.get()
        if stream.status != 200:
            return refused(stream.status)
        assert stream.is_stream
        work.grow()
        assert client.check(await stream.message())["method"] == TOOLS
    return WORKS


@HTTP.feature("`subscriptions/listen`", refused(-32601), *3 * [refused(400, -32602)], WORKS)
async def listen(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        wanted = {"notifications": {"toolsListChanged": True}}
        response = await client.post(client.request("subscriptions/listen", wanted))
        first = await anext(client.messages(response))
        if "error" in first:
            code = first["error"]["code"]
            return refused(code) if response.status == 202 else refused(response.status, code)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        work.grow()
        assert (await anext(client.messages(response)))["method"] == TOOLS
    return WORKS


@HTTP.feature(
    "two streams of one client: each notification once",
    fallback("each is a session"),
    *3 * [WORKS],
    fallback("each has a subscription id"),
)
async def one_stream_only(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        if isinstance(client, SseClient):
            async with http_client(site.port, revision) as again:
                assert again.endpoint != client.endpoint
                work.grow()
                for stream in (client.stream, again.stream):
                    assert (await stream.message())["method"] == TOOLS
            return fallback("each is a session")
        one, two = await client.listen(), await client.listen()
        work.grow()
        newest = await two.message()
        assert newest["method"] == TOOLS
        if revision.change_notifications is ChangeNotifications.LISTEN:
            ids = {(await one.message())["params"]["_meta"].popitem()[1]}
            ids.add(newest["params"]["_meta"].popitem()[1])
            assert len(ids) == 2
            return fallback("each has a subscription id")
        client.caller.wires[-1].abort()
        await _gone(site, 1)
        work.grow()
        assert (await one.message())["method"] == TOOLS
    return WORKS


async def _gone(site: Any, left: int) -> None:
    """Wait until so many streams are open."""
    async with asyncio.timeout(60):
        while len(site.app.reaper) > left:
            await asyncio.sleep(0.005)


# ---------------------------------------------------------------- sessions


@HTTP.feature(
    "session (`Mcp-Session-Id`)",
    fallback("the SSE stream"),
    *3 * [WORKS],
    fallback("no session id"),
)
async def session(revision: Revision) -> Verdict:
    async with (
        serving(Working().server) as site,
        http_client(site.port, revision, opened=False) as client,
    ):
        response = await client.open()
        name = response.headers.get("mcp-session-id")
        if isinstance(client, SseClient):
            assert name is None
            assert "session_id=" in client.endpoint
            return fallback("the SSE stream")
        if name is None:
            return fallback("no session id")
        assert len(name) >= 32
        assert await client.call("quick") == "quick"
    return WORKS


@HTTP.feature("request without `Mcp-Session-Id`", refused(404), *3 * [refused(400)], WORKS)
async def without_session(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", {"name": "quick"})
        if isinstance(client, SseClient):
            client.endpoint = "/messages"
        client.caller.session = None
        response = await client.say(message)
        if response.status != 200:
            return refused(response.status)
        assert response.text == "quick"
    return WORKS


@HTTP.feature("unknown session", *4 * [refused(404)], fallback("the header is ignored"))
async def unknown_session(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", {"name": "quick"})
        if isinstance(client, SseClient):
            client.endpoint = "/messages?session_id=" + "x" * 32
            return refused((await client.say(message)).status)
        response = await client.say(message, mcp_session_id="x" * 32)
        if response.status == 200:
            assert response.text == "quick"
            assert "mcp-session-id" not in response.headers
            return fallback("the header is ignored")
    return refused(response.status)


@HTTP.feature("DELETE ends the session", fallback("close the stream"), *3 * [WORKS], refused(400))
async def delete(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", {"name": "quick"})
        if isinstance(client, SseClient):
            client.wire.abort()
            await _gone(site, 0)
            assert (await client.say(message)).status == 404
            return fallback("close the stream")
        response = await client.caller.request("DELETE")
        if response.status != 200:
            return refused(response.status)
        assert (await client.say(message)).status == 404
        assert len(site.app._sessions) == 0
    return WORKS


# ---------------------------------------------------------------- resumption


@HTTP.feature(
    "resumption of a stream (`Last-Event-ID`)",
    fallback("a new stream"),
    *3 * [WORKS],
    fallback("the header is ignored"),
)
async def resumed(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        if isinstance(client, SseClient):
            _, again = await client.get(last_event_id="1")
            first = await again.event()
            assert (first.event, first.id) == ("endpoint", None)
            return fallback("a new stream")
        response = await client.post(client.request("tools/call", REPORT_AND_WAIT))
        event = await response.numbered()
        assert json.loads(event.data)["params"]["progress"] == 1
        if not isinstance(client, SessionClient):
            assert event.id is None
            work.go.set()
            said = client.request("tools/call", {"name": "quick"})
            assert (await client.say(said, last_event_id="1")).text == "quick"
            return fallback("the header is ignored")
        client.lose()
        work.go.set()
        stream = await client.get(last_event_id=event.id)
        found = [client.check(json.loads(one.data)) for one in await stream.rest()]
        assert steps(found) == [2, 3]
        assert found[-1]["result"]["content"][0]["text"] == "reported"
    return WORKS


@HTTP.feature(
    "resumption of another session's stream",
    fallback("a new stream"),
    *3 * [refused(400)],
    fallback("the header is ignored"),
)
async def resumed_by_another(revision: Revision) -> Verdict:
    async with (
        serving(Working().server) as site,
        http_client(site.port, revision) as ann,
        http_client(site.port, revision) as eve,
    ):
        if isinstance(eve, SseClient):
            _, again = await eve.get(last_event_id="1")
            assert (await again.event()).event == "endpoint"
            return fallback("a new stream")
        response = await ann.post(ann.request("tools/call", REPORT))
        event = await response.numbered()
        if not isinstance(eve, SessionClient):
            said = eve.request("tools/call", {"name": "quick"})
            assert (await eve.say(said, last_event_id="1")).text == "quick"
            return fallback("the header is ignored")
        stream = await eve.get(last_event_id=event.id)
        assert not stream.is_stream
        assert (await ann.get(last_event_id=event.id)).status == 200
    return refused(stream.status)


KEPT = fallback("the connection stays open")


@HTTP.feature(
    "polling: the server closes the stream, the client reconnects", *3 * [KEPT], WORKS, KEPT
)
async def polling(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        if not revision.http.prime_and_poll:
            calling = asyncio.create_task(client.ask("tools/call", {"name": "leave"}))
            await settled(work.begun)
            work.go.set()
            assert (await calling)["result"]["content"][0]["text"] == "the rest"
            return KEPT
        response = await client.post(client.request("tools/call", {"name": "leave"}))
        first, last = await response.rest()
        assert (first.data, last.data) == (b"", b"")
        assert last.retry_ms is not None
        stream = await client.get(last_event_id=last.id or first.id)
        work.go.set()
        answer = client.check(await stream.message())
        assert answer["result"]["content"][0]["text"] == "the rest"
    return WORKS


# ---------------------------------------------------------------- cancellation


@HTTP.feature("cancellation by `notifications/cancelled`", *4 * [WORKS], fallback("202, ignored"))
async def by_notification(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        calling = asyncio.create_task(client.ask("tools/call", {"name": "wait"}, id=7))
        await settled(work.begun)
        assert (await client.say(cancelled(7))).status == 202
        if revision.change_notifications is ChangeNotifications.LISTEN:
            work.go.set()
            assert (await calling)["result"]["content"][0]["text"] == "waited"
            return fallback("202, ignored")
        await settled(work.stopped)
        calling.cancel()
        await asyncio.wait([calling])
        assert client.heard[-1].get("id") != 7
    return WORKS


@HTTP.feature(
    "cancellation by closing the stream", WORKS, *3 * [fallback("the call continues")], WORKS
)
async def by_disconnect(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        calling = asyncio.create_task(client.ask("tools/call", {"name": "wait"}))
        await settled(work.begun)
        client.lose()
        calling.cancel()
        await asyncio.wait([calling])
        if isinstance(client, SessionClient):
            async with asyncio.timeout(60):
                while not all(incoming.abort_reason for incoming in site.app.reaper):
                    await asyncio.sleep(0.005)
            assert not work.stopped.is_set()
            work.go.set()
            await settled(work.done)
            return fallback("the call continues")
        await settled(work.stopped)
    return WORKS


# ---------------------------------------------------------------- batches


@HTTP.feature("JSON-RPC batch", refused(-32600), WORKS, *3 * [refused(400, -32600)])
async def batch(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        calls = [client.request("tools/call", {"name": "quick"}, id) for id in ("one", "two")]
        response = await client.say([*calls, {"jsonrpc": "2.0", "method": "notifications/x"}])
        if response.status == 202:
            answer = client.check(await client.stream.message())
            return refused(answer["error"]["code"])
        if response.status != 200:
            return refused(response.status, response.code)
        found = {one["id"]: one["result"] for one in response.json}
        assert {id: one["content"][0]["text"] for id, one in found.items()} == {
            "one": "quick",
            "two": "quick",
        }
    return WORKS


@HTTP.feature("notification: 202 without a body", WORKS)
async def notification(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        response = await client.say({"jsonrpc": "2.0", "method": "notifications/x"})
        assert (response.status, response.body) == (202, b"")
    return WORKS
