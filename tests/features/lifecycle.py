"""Handshake, version negotiation, JSON-RPC messages, and stdio with real processes."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from colonnade import Server
from colonnade.protocol.jsonrpc import MAX_LINE_BYTES
from colonnade.protocol.link.link import DuplexLink
from colonnade.protocol.methods import Side
from colonnade.protocol.revision import ALL, ChangeNotifications, Revision
from colonnade.transport.duplex import Duplex
from features.feature import JSON, WORKS, Group, Verdict, fallback, refusal, refused, tried
from server.raw_client import Client, Rejected, no_input_expected, raw_client, text_content
from transport.test_stdio import WAIT_S, serving

LIFECYCLE = Group("Lifecycle, version negotiation and JSON-RPC")
STDIO = Group("stdio")
TOOLS = "notifications/tools/list_changed"


def plain(*revisions: Revision) -> Server:
    """A server that supports these revisions."""
    server = Server("s", revisions=[one.date for one in revisions or ALL])
    server.tool(name="a")(lambda: "x")
    return server


@asynccontextmanager
async def unopened(server: Server, revision: Revision) -> AsyncGenerator[Client]:
    """A client that has sent nothing yet."""
    client = Client(revision, {}, no_input_expected, {})
    await server.start()
    try:
        link = DuplexLink(Side.SERVER, server.identity, server.accepts)
        client.duplex = Duplex(link, client, server.respond)
        yield client
        client.duplex.close("the test is over")
        await client.duplex.ended(WAIT_S)
    finally:
        await server.stop()


# ---------------------------------------------------------------- handshake


@LIFECYCLE.feature("request without a handshake", *4 * [refused(-32602)], WORKS)
async def first_request(revision: Revision) -> Verdict:
    async with unopened(plain(), revision) as client:
        result = await tried(client.ask("tools/list"))
        if isinstance(result, Rejected):
            assert "before initialize" in result.message
            return refused(result.code)
    assert result["tools"][0]["name"] == "a"
    return WORKS


@LIFECYCLE.feature("request without a protocol version", *4 * [WORKS], refused(-32602))
async def without_envelope(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        before = len(client.received)
        client._methods["bare"] = "tools/list"
        client.send_raw({"jsonrpc": "2.0", "id": "bare", "method": "tools/list"})
        await client.until(lambda: len(client.received) > before)
        answer = client.received[before]
    if "error" in answer:
        return refused(answer["error"]["code"])
    assert answer["result"]["tools"][0]["name"] == "a"
    return WORKS


@LIFECYCLE.feature("second `initialize`", *4 * [refused(-32600)], refused(-32601))
async def second_initialize(revision: Revision) -> Verdict:
    params = {
        "protocolVersion": revision.date,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    async with raw_client(plain(), revision) as client:
        seen = await refusal(client.ask("initialize", params))
        assert await client.text("a") == "x"  # the connection is unchanged
    return seen


@LIFECYCLE.feature(
    "version negotiation: unsupported revision",
    *4 * [fallback("another revision is offered")],
    refused(-32022),
)
async def other_revision(revision: Revision) -> Verdict:
    others = [one for one in ALL if one is not revision]
    async with raw_client(plain(*others), revision) as client:
        if revision.handshake:
            offered = client.received[0]["result"]["protocolVersion"]
            assert offered == [one.date for one in others if one.handshake][-1]
            return fallback("another revision is offered")
        found = await tried(client.ask("tools/list"))
    assert isinstance(found, Rejected)
    assert found.data["supported"] == [one.date for one in reversed(others)]
    assert found.data["requested"] == revision.date
    return refused(found.code)


@LIFECYCLE.feature("server with only the newest revision", *4 * [refused(-32022)], WORKS)
async def modern_only(revision: Revision) -> Verdict:
    async def spoken() -> JSON:
        async with raw_client(plain(ALL[-1]), revision) as client:
            return await client.call("a")

    found = await tried(spoken())
    if isinstance(found, Rejected):
        assert found.data["supported"] == [ALL[-1].date]
        return refused(found.code)
    assert text_content(found) == "x"
    return WORKS


@LIFECYCLE.feature("`server/discover`", *4 * [refused(-32602)], WORKS)
async def discover(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        result = await tried(client.ask("server/discover"))
    if isinstance(result, Rejected):
        return refused(result.code)
    assert result["supportedVersions"] == [one.date for one in reversed(ALL)]
    assert result["capabilities"] == {"tools": {"listChanged": True}}
    return WORKS


@LIFECYCLE.feature("`ping`", *4 * [WORKS], refused(-32601))
async def ping(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        found = await tried(client.ask("ping"))
    if isinstance(found, Rejected):
        return refused(found.code)
    assert found == {}
    return WORKS


@LIFECYCLE.feature("`subscriptions/listen`", *4 * [refused(-32602)], WORKS)
async def listen(revision: Revision) -> Verdict:
    server = plain()
    async with raw_client(server, revision) as client:
        wanted = {"toolsListChanged": True, "promptsListChanged": True}
        id = client.send("subscriptions/listen", {"notifications": wanted})
        if revision.change_notifications is ChangeNotifications.SESSION:
            return await refusal(client.outcome(id))
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))
        (agreed,) = client.notifications("notifications/subscriptions/acknowledged")
        assert agreed["notifications"] == {"toolsListChanged": True}  # there are no prompts
        server.tool(name="b")(lambda: "x")
        await client.until(lambda: client.notifications(TOOLS))
        assert client.notifications(TOOLS)[0]["_meta"] == {
            "io.modelcontextprotocol/subscriptionId": id
        }
        server.drain()  # it ends with its result
        assert (await client.outcome(id))["resultType"] == "complete"
    return WORKS


# ---------------------------------------------------------------- messages


@LIFECYCLE.feature("unknown method", refused(-32601))
async def unknown_method(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        return await refusal(client.ask("tools/sing"), "tools/sing")


@LIFECYCLE.feature("unknown notification", WORKS)
async def unknown_notification(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        before = len(client.received)
        client.notify("notifications/singing", {"song": "x"})
        assert await client.text("a") == "x"
        assert len(client.received) == before + 1  # there is no response to it
    return WORKS


@LIFECYCLE.feature(
    "invalid JSON", *3 * [refused(-32700, "`id: null`")], *2 * [refused(-32700, "no `id`")]
)
async def not_json(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        client.send_raw(b"{nonsense")
        error = client.received[-1]
        assert await client.text("a") == "x"
    return refused(error["error"]["code"], "`id: null`" if "id" in error else "no `id`")


@LIFECYCLE.feature("duplicate request id: the first call continues", refused(-32600))
async def id_in_use(revision: Revision) -> Verdict:
    server, go = plain(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        await go.wait()
        return "waited"

    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "wait"})
        first = client._waiting[id]
        client.send("tools/call", {"name": "a"}, id=id)
        await client.until(lambda: [one for one in client.received if "error" in one])
        error = client.received[-1]
        assert error.get("id") is None  # an id would end the first call
        client._waiting[id] = first
        go.set()
        assert text_content(await client.outcome(id)) == "waited"
    return refused(error["error"]["code"])


@LIFECYCLE.feature("JSON-RPC batch", refused(-32600), WORKS, *3 * [refused(-32600)])
async def batch(revision: Revision) -> Verdict:
    async with raw_client(plain(), revision) as client:
        calls: list[JSON] = [
            {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a"}}
            for id in ("one", "two")
        ]
        client._methods |= {"one": "tools/call", "two": "tools/call"}
        before = len(client.received)
        client.send_raw(calls)
        await client.until(lambda: len(client.received) > before)
        found = client.received[before:]
        if "error" in found[0]:
            assert len(found) == 1
            return refused(found[0]["error"]["code"])
        assert {one["id"]: text_content(one["result"]) for one in found} == {"one": "x", "two": "x"}
    return WORKS


# ---------------------------------------------------------------- stdio


@STDIO.feature("`print`, in Python or a child process, does not corrupt the stream", WORKS)
async def stray_print(revision: Revision) -> Verdict:
    with serving(revision) as server:
        server.open()
        assert server.call("noisy") == "silent"
        assert server.call("echo", text="still there") == "still there"
        server.end()
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b""
        errors = server.errors()
    for printed in ("a stray print", "below Python", "from a child"):
        assert printed in errors
    return WORKS


@STDIO.feature("end of the input ends the process, even during a call", WORKS)
async def end_of_input(revision: Revision) -> Verdict:
    with serving(revision) as server:
        server.open()
        server.send("tools/call", {"name": "waits"})
        server.waiting()
        server.end()  # with exit code 0
        assert "lifespan left" in server.errors()
    return WORKS


@STDIO.feature("invalid or too long line: an error, and the next line is served", WORKS)
async def bad_lines(revision: Revision) -> Verdict:
    with serving(revision) as server:
        server.open()
        for line, code in ((b"{nonsense\n", -32700), (b'{"jsonrpc":"1.0"}\n', -32600)):
            server.write(line)
            assert server.read()["error"]["code"] == code
        server.write(b'{"a":"' + b"x" * MAX_LINE_BYTES + b'"}\n')
        assert "error" in server.read()
        server.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/x"}).encode() + b"\n")
        assert server.call("echo", text="fine") == "fine"
        server.end()
    return WORKS
