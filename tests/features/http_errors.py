"""HTTP errors and their status: Origin and Host, headers, sizes, principals, limits."""

import asyncio
from typing import Any

from colonnade import Server
from colonnade.protocol.http.security import Headers
from colonnade.protocol.revision import ALL, Revision
from colonnade.transport.http_server.request import Limits
from features.feature import JSON, WORKS, Group, Verdict, fallback, refused
from features.http_clients import EnvelopeClient, SseClient, http_client, serving, settled
from features.http_streams import Working
from http_client import Response

GATE = Group("HTTP errors")
QUICK: JSON = {"name": "quick"}


async def met(client: Any, response: Response) -> Verdict:
    """The error of a POST: status and code; on an SSE stream only the code."""
    if response.status == 202:
        return refused(client.check(await client.stream.message())["error"]["code"])
    assert response.status >= 400 or "error" in response.json, response.body
    return refused(response.status, response.code)


# ---------------------------------------------------------------- Origin, Host and principal


@GATE.feature("foreign `Origin`, with the setting in the message", refused(403))
async def origin(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", QUICK)
        response = await client.say(message, origin="https://evil.example")
        assert "add it to origins" in response.json["error"]["message"]
        if isinstance(client, SseClient):  # the GET of its stream is checked, too
            _, stream = await client.get(origin="https://evil.example")
            assert stream.status == response.status
        own = await client.say(message, origin=f"http://127.0.0.1:{site.port}")
        assert own.status in (200, 202)
    return refused(response.status)


@GATE.feature("foreign `Host`, with the setting in the message", refused(403))
async def host(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", QUICK)
        response = await client.say(message, host="evil.example")
        assert "add it to hosts" in response.json["error"]["message"]
    return refused(response.status)


async def verify(headers: Headers) -> str:
    """Accept any name as the principal."""
    return headers.get(b"authorization", b"").decode()


@GATE.feature("session of another principal", *4 * [refused(404)], fallback("no sessions"))
async def stolen(revision: Revision) -> Verdict:
    async with (
        serving(Working().server, verify=verify) as site,
        http_client(site.port, revision, authorization="ann") as ann,
    ):
        message = ann.request("tools/call", QUICK)
        response = await ann.say(message, authorization="eve")
        if isinstance(ann, EnvelopeClient):
            assert response.text == "quick"
            assert "mcp-session-id" not in response.headers
            return fallback("no sessions")
        assert await ann.call("quick") == "quick"
    return refused(response.status)


# ---------------------------------------------------------------- bodies and headers


@GATE.feature("body that is not JSON", refused(400, -32700))
async def not_json(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        seen = await met(client, await client.say(b"{nonsense"))
        assert await client.call("quick") == "quick"
    return seen


@GATE.feature("body that is too large", refused(413))
async def too_large(revision: Revision) -> Verdict:
    limits = Limits(max_body_bytes=10_000)
    async with (
        serving(Working().server, limits=limits) as site,
        http_client(site.port, revision) as client,
    ):
        message = client.request("tools/call", QUICK | {"arguments": {"x": "x" * 20_000}})
        response = await client.say(message)
        assert await client.call("quick") == "quick"
    return refused(response.status)


@GATE.feature("body with another `Content-Type`", refused(415))
async def other_type(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", QUICK)
        return refused((await client.say(message, content_type="text/plain")).status)


@GATE.feature("unknown method", refused(-32601), *3 * [refused(200, -32601)], refused(404, -32601))
async def unknown_method(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        return await met(client, await client.say(client.request("tools/sing")))


@GATE.feature("unknown tool", refused(-32602), *4 * [refused(200, -32602)])
async def unknown_tool(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        return await met(client, await client.say(client.request("tools/call", {"name": "x"})))


@GATE.feature(
    "unknown `MCP-Protocol-Version`",
    fallback("the header is ignored"),
    *3 * [refused(400, -32602)],
    refused(400, -32020),
)
async def version_header(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        message = client.request("tools/call", QUICK)
        response = await client.say(message, mcp_protocol_version="1999-01-01")
        if response.status == 202:
            assert client.check(await client.stream.message())["result"]
            return fallback("the header is ignored")
        return await met(client, response)


@GATE.feature(
    "`Mcp-Method` or `Mcp-Name` missing, or different from the body",
    *4 * [fallback("not required")],
    refused(400, -32020),
)
async def routing(revision: Revision) -> Verdict:
    async with serving(Working().server) as site, http_client(site.port, revision) as client:
        if not isinstance(client, EnvelopeClient):
            assert await client.call("quick") == "quick"
            return fallback("not required")
        message = client.request("tools/call", QUICK)
        seen = {
            await met(client, await client.say(message, **headers))
            for headers in (
                {"mcp_method": None},
                {"mcp_method": "tools/list"},
                {"mcp_name": None},
                {"mcp_name": "slow"},
            )
        }
        assert (await client.say(message)).text == "quick"
    (verdict,) = seen
    return verdict


@GATE.feature(
    "argument without its required header (`x-mcp-header`)",
    *4 * [fallback("not required")],
    refused(400, -32020),
)
async def param_header(revision: Revision) -> Verdict:
    server = Server("s")
    region = {"type": "string", "x-mcp-header": "Region"}

    @server.tool(input_schema={"type": "object", "properties": {"region": region}})
    async def query(region: str) -> str:
        return region

    async with serving(server) as site, http_client(site.port, revision) as client:
        params = {"name": "query", "arguments": {"region": "north"}}
        if not isinstance(client, EnvelopeClient):
            assert await client.call("query", region="north") == "north"
            return fallback("not required")
        message = client.request("tools/call", params)
        seen = {
            await met(client, await client.say(message)),
            await met(client, await client.say(message, mcp_param_region="south")),
        }
        assert (await client.say(message, mcp_param_region="north")).text == "north"
    (verdict,) = seen
    return verdict


@GATE.feature(
    "client without the capability", *4 * [fallback("`isError` result")], refused(400, -32021)
)
async def no_capability(revision: Revision) -> Verdict:
    async with (
        serving(Working().server) as site,
        http_client(site.port, revision, can={}) as client,
    ):
        answer = await client.ask("tools/call", {"name": "folders"})
        if "error" in answer:
            assert answer["error"]["data"] == {"requiredCapabilities": {"roots": {}}}
            return refused(client.status, answer["error"]["code"])
        assert answer["result"]["isError"] is True
        assert "this needs roots" in answer["result"]["content"][0]["text"]
    return fallback("`isError` result")


# ---------------------------------------------------------------- servers with limits


@GATE.feature(
    "server with only the newest revision", refused(404), *3 * [refused(400, -32022)], WORKS
)
async def modern_only(revision: Revision) -> Verdict:
    server = Server("s", revisions=[ALL[-1].date])
    server.tool(name="quick")(lambda: "quick")
    async with serving(server) as site, http_client(site.port, revision, opened=False) as client:
        response = await client.open()
        for method in ("GET", "DELETE"):
            assert (await client.caller.request(method, accept="text/event-stream")).status == 405
        if isinstance(client, SseClient):
            return refused(response.status)
        if response.status != 200:
            assert response.json["error"]["data"]["supported"] == [ALL[-1].date]
            return refused(response.status, response.code)
        assert await client.call("quick") == "quick"
    return WORKS


@GATE.feature("too many concurrent requests of one principal", refused(503))
async def too_much(revision: Revision) -> Verdict:
    work = Working()
    sessions = revision.handshake
    limits = (
        Limits(max_sessions_per_principal=1)
        if sessions
        else Limits(max_concurrent_requests_per_principal=1)
    )
    async with (
        serving(work.server, verify=verify, limits=limits) as site,
        http_client(site.port, revision, authorization="ann") as client,
        http_client(site.port, revision, authorization="ann", opened=False) as again,
    ):
        calling = asyncio.create_task(client.ask("tools/call", {"name": "wait"}))
        await settled(work.begun)
        response = await again.open()
        async with http_client(site.port, revision, authorization="bob") as bob:
            assert await bob.call("quick") == "quick"
        work.go.set()
        assert (await calling)["result"]["content"][0]["text"] == "waited"
    return refused(response.status)


@GATE.feature("new requests during graceful shutdown", refused(503))
async def draining(revision: Revision) -> Verdict:
    work = Working()
    async with serving(work.server) as site, http_client(site.port, revision) as client:
        calling = asyncio.create_task(client.ask("tools/call", {"name": "wait"}))
        await settled(work.begun)
        ending = asyncio.create_task(site.app.drain(5.0))
        while not site.app.draining:
            await asyncio.sleep(0)
        response = await client.say(client.request("tools/call", QUICK))
        work.go.set()
        assert (await calling)["result"]["content"][0]["text"] == "waited"
        client.lose()
        await ending
    return refused(response.status)
