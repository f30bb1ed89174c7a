"""Rules of the specification that a server keeps for its author, each seen from a client."""

import asyncio
import base64
import contextlib
import inspect
import logging
from typing import Any

import pytest

from colonnade import Audio, Context, Image, LocalProtocolError, Server
from colonnade.errors import ProtocolError
from colonnade.middleware import rate_limit
from colonnade.protocol.revision import Revision
from colonnade.server.context.context import BURST
from colonnade.transport.http_server.runner import HttpRunner
from http_client import META, Caller
from live import live
from server.raw_client import JSON, Rejected, raw_client, text_content


def shop() -> Server:
    server = Server("shop")

    @server.tool
    async def order(what: str) -> str:
        """Order something."""
        return f"ordered {what}"

    @server.resource("orders://open")
    def orders() -> str:
        return "none"

    @server.prompt
    def greet(name: str, times: int = 1) -> str:
        """Greet somebody."""
        return f"Hello {name}! " * times

    return server


# ---------------------------------------------------------------- what is offered


@pytest.mark.spec("R0876", "R0881")
@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        ({"type": "string", "x-mcp-header": "My Region"}, "is not a header name"),
        ({"type": "string", "x-mcp-header": "Region\r\nX: 1"}, "is not a header name"),
        (
            {"type": "array", "items": {"type": "string", "x-mcp-header": "Region"}},
            "reached through `properties` only",
        ),
        ({"anyOf": [{"type": "string", "x-mcp-header": "Region"}]}, "through `properties` only"),
    ],
    ids=["space", "line break", "items", "anyOf"],
)
@live
async def test_a_tool_whose_header_no_request_could_have_is_not_offered(
    revision: Revision, parameter: JSON, words: str
) -> None:
    server = Server("shop")

    @server.tool
    def order(what: str) -> str:
        return what

    schema = {"type": "object", "properties": {"region": parameter}}
    with pytest.raises(ProtocolError, match=words):

        @server.tool(input_schema=schema)
        def find(region: Any) -> str:
            return "found"

    async with raw_client(server, revision) as client:
        found = await client.ask("tools/list")
        assert [tool["name"] for tool in found["tools"]] == ["order"]


# ---------------------------------------------------------------- no state but what is passed on


@pytest.mark.spec("R0752", "R0753", "R0755")
@live
async def test_a_handle_made_on_one_connection_is_used_on_another_meanwhile(
    revision: Revision,
) -> None:
    server = Server("shop")
    baskets = server.handles("basket", list[str])

    @server.tool
    async def create(ctx: Context) -> str:
        return await baskets.create(ctx, [])

    @server.tool
    async def add(basket: str, item: str, ctx: Context) -> list[str]:
        items = [*await baskets.get(ctx, basket), item]
        await baskets.put(ctx, basket, items)
        return items

    async with raw_client(server, revision) as one, raw_client(server, revision) as two:
        first, second = await one.text("create"), await two.text("create")
        assert await two.text("add", {"basket": first, "item": "hat"}) == '["hat"]'
        assert await one.text("add", {"basket": second, "item": "shoe"}) == '["shoe"]'
        assert await one.text("add", {"basket": first, "item": "coat"}) == '["hat","coat"]'


@pytest.mark.spec("R0957", "R0964", "R0975")
@live
async def test_lists_are_the_same_on_every_connection_whatever_was_asked_before(
    revision: Revision,
) -> None:
    server = shop()
    async with raw_client(server, revision) as one, raw_client(server, revision, can={}) as two:
        await one.call("order", {"what": "tea"})
        await one.read("orders://open")
        await one.ask("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}})
        for method in ("tools/list", "resources/list", "prompts/list"):
            assert await one.ask(method) == await two.ask(method)


@pytest.mark.spec("R1131")
@live
async def test_what_a_client_calls_itself_changes_no_answer(revision: Revision) -> None:
    key = "io.modelcontextprotocol/clientInfo"
    seen: list[str] = []
    server = shop()

    @server.tool
    async def who(ctx: Context) -> None:
        seen.append(ctx.client.name if ctx.client is not None else "")

    answers: list[JSON] = []
    for name in ("known-client", "'; drop table", "admin"):
        meta = {key: {"name": name, "version": "1"}}
        async with raw_client(server, revision, meta=meta) as client:
            await client.call("who")
            answers.append(
                {
                    "tools": await client.ask("tools/list"),
                    "call": await client.call("order", {"what": "tea"}),
                }
            )
    assert answers[0] == answers[1] == answers[2]
    assert seen == ["known-client", "'; drop table", "admin"]  # for logs and people


# ---------------------------------------------------------------- names and addresses


@pytest.mark.spec("R0659", "R0661", "R0662", "R0663")
def test_a_tools_name_that_clients_may_hide_is_warned_about_and_offered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("s")
    for name in ("", "x" * 129, "a b", "a,b", "naïve", "a/b"):
        server.tool(name=name or " ")(lambda: None)
        assert "some clients hide names" in caplog.text, name
        caplog.clear()
    for name in ("x", "x" * 128, "A.b-C_9"):
        server.tool(name=name)(lambda: None)
        assert caplog.text == ""
    server.tool(name="x")(lambda: None)
    assert "'x' is registered twice" in caplog.text


@pytest.mark.spec("R0660")
@live
async def test_names_that_differ_in_case_are_different_tools(revision: Revision) -> None:
    server = Server("s")
    server.tool(name="Get")(lambda: "big")
    server.tool(name="get")(lambda: "small")
    async with raw_client(server, revision) as client:
        assert (await client.text("Get"), await client.text("get")) == ("big", "small")
        with pytest.raises(Rejected):
            await client.call("GET")


@pytest.mark.spec("R0372")
@pytest.mark.parametrize(
    ("uri", "better"),
    [
        ("notes", "'notes://today'"),
        ("my notes://a", "'notes://today'"),
        ("notes://a b", "'notes://a%20b'"),
        ("notes://ä/{name}", "'notes://%C3%A4/{name}'"),
        ("1notes://a", "'notes://today'"),
        ("notes://100%", "'notes://today'"),
    ],
)
def test_an_address_that_is_none_is_refused_at_registration(uri: str, better: str) -> None:
    with pytest.raises(LocalProtocolError, match="is not a valid URI") as caught:
        Server("s").resource(uri)(lambda name="": "x")
    assert str(caught.value).endswith(f"write one like {better}")


# ---------------------------------------------------------------- prompts and completions


@pytest.mark.spec("R0126")
@live
async def test_arguments_of_a_prompt_are_checked_before_its_function_sees_them(
    revision: Revision,
) -> None:
    async with raw_client(shop(), revision) as client:
        for arguments in ({"name": "Ann", "times": "many"}, {"name": "Ann", "extra": "x"}, {}):
            with pytest.raises(Rejected, match="greet") as caught:
                await client.ask("prompts/get", {"name": "greet", "arguments": arguments})
            assert caught.value.code == -32602


@pytest.mark.spec("R0297")
@live
async def test_completions_of_an_unknown_prompt_are_invalid_params(revision: Revision) -> None:
    server = shop()

    @server.completion("greet", "name")
    def names(prefix: str) -> list[str]:
        return ["Ann"]

    async with raw_client(server, revision) as client:
        ref = {"type": "ref/prompt", "name": "nobody"}
        params = {"ref": ref, "argument": {"name": "name", "value": "A"}}
        with pytest.raises(Rejected, match="no prompt 'nobody'") as caught:
            await client.ask("completion/complete", params)
        assert caught.value.code == -32602


# ---------------------------------------------------------------- results


@pytest.mark.spec("R0166")
@live
async def test_what_goes_wrong_in_a_tool_is_a_result_that_says_so(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")

    @server.tool
    async def divide(a: int, b: int) -> float:
        return a / b

    async with raw_client(server, revision) as client:
        result = await client.call("divide", {"a": 1, "b": 0})
        assert result["isError"] is True
        assert text_content(result).startswith("divide failed (id ")


@pytest.mark.spec("R0376")
@live
async def test_structured_data_has_a_copy_in_words(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    async with raw_client(server, revision) as client:
        result = await client.call("add", {"a": 1, "b": 2})
        assert result["structuredContent"] == {"sum": 3}
        assert text_content(result) == '{"sum":3}'


@pytest.mark.spec("R0293")
@live
async def test_pictures_and_sounds_are_encoded_and_say_their_type(revision: Revision) -> None:
    server = Server("s")

    @server.prompt
    def listen() -> list[Any]:
        return [Audio(b"sound", format="mpeg"), Image(b"picture", format="png")]

    async with raw_client(server, revision) as client:
        result = await client.ask("prompts/get", {"name": "listen"})
    sound, picture = (message["content"] for message in result["messages"])
    assert (sound["type"], sound["mimeType"]) == ("audio", "audio/mpeg")
    assert base64.b64decode(sound["data"], validate=True) == b"sound"
    assert (picture["type"], picture["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(picture["data"], validate=True) == b"picture"


def test_a_file_that_is_no_picture_is_not_called_one(tmp_path: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("words")
    for kind in (Image, Audio):
        with pytest.raises(LocalProtocolError, match=r"notes\.txt.*text/plain.*format="):
            kind(path=path)


@pytest.mark.spec("R1027", "R1028")
@live
async def test_all_pages_of_a_list_have_one_cache_scope(revision: Revision) -> None:
    for scope in ("public", "private"):
        server = Server("s", page_size=1, ttl_s=5, cache_scope=scope)
        for name in "abc":
            server.tool(name=name)(lambda: None)
        async with raw_client(server, revision) as client:
            page = await client.ask("tools/list")
            scopes = [page["cacheScope"]]
            while "nextCursor" in page:
                page = await client.ask("tools/list", {"cursor": page["nextCursor"]})
                scopes.append(page["cacheScope"])
        assert scopes == [scope] * 3


# ---------------------------------------------------------------- while a call runs


@pytest.mark.spec("R0061", "R0168", "R1055")
@live
async def test_a_cancelled_call_stops_its_function_and_its_reason_is_logged(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "colonnade.transport")
    server = Server("s")
    begun, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow() -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "slow"})
        await begun.wait()
        client.notify("notifications/cancelled", {"requestId": id, "reason": "enough"})
        async with asyncio.timeout(60):
            await stopped.wait()
        assert "tools/call cancelled: 'enough'" in caplog.text
        assert not [one for one in client.received if one.get("id") == id]


@pytest.mark.spec("R0603")
@live
async def test_only_who_was_sent_to_an_address_hears_that_the_url_elicitation_is_over(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def link(ctx: Context) -> None:
        await ctx.elicitation_complete("visit-1")

    async with raw_client(server, revision) as one, raw_client(server, revision) as two:
        await one.call("link")
        method = "notifications/elicitation/complete"
        assert one.notifications(method) == [{"elicitationId": "visit-1"}]
        assert two.notifications(method) == []


@pytest.mark.spec("R0095")
@live
async def test_roots_are_asked_of_who_has_them_and_anew_for_every_call(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def look(ctx: Context) -> list[str]:
        return [root.uri for root in await ctx.roots()]

    folders = ["file:///a"]

    def answer(method: str, params: JSON) -> JSON:
        return {"roots": [{"uri": uri} for uri in folders]}

    async with raw_client(server, revision, answer=answer) as client:
        assert "file:///a" in text_content(await client.call("look"))
        folders[:] = ["file:///b"]
        assert "file:///b" in text_content(await client.call("look"))
    async with raw_client(server, revision, can={}) as client:
        with contextlib.suppress(Rejected):  # told as an error where the revision has one for it
            assert (await client.call("look"))["isError"] is True
        assert client.asked == []


@pytest.mark.spec("R0085", "R0157", "R0160")
@live
async def test_a_flood_of_progress_and_log_is_thinned_out_and_the_last_is_seen(
    revision: Revision, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("s")
    many = 20 * BURST

    @server.tool
    async def flood(ctx: Context) -> None:
        for n in range(many):
            await ctx.progress(n + 1, many)

    @server.tool
    async def chatter(ctx: Context) -> None:
        for n in range(many):
            await ctx.info(n)

    meta: JSON = {"progressToken": 1}
    if not revision.handshake:
        meta["io.modelcontextprotocol/logLevel"] = "debug"
    async with raw_client(server, revision) as client:
        await client.call("flood", _meta=meta)
        seen = client.notifications("notifications/progress")
        assert BURST <= len(seen) < many / 2
        assert seen[-1]["progress"] == many
        await client.call("chatter", _meta=meta)
        assert BURST <= len(client.notifications("notifications/message")) < many / 2
    warned = [one for one in caplog.messages if "are dropped" in one]
    assert len(warned) == 2  # once a call, not once a message


@pytest.mark.spec("R0157")
@live
async def test_a_log_message_carries_its_data_and_the_name_of_its_logger(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def order(ctx: Context) -> None:
        await ctx.warning({"basket": 7, "left": [1, 2]}, logger="stock")
        await ctx.error("sold out", logger="stock")

    meta: JSON = {"io.modelcontextprotocol/logLevel": "debug"} if not revision.handshake else {}
    async with raw_client(server, revision) as client:
        await client.call("order", _meta=meta)
        told = client.notifications("notifications/message")
    assert [(one["logger"], one["data"]) for one in told] == [
        ("stock", {"basket": 7, "left": [1, 2]}),
        ("stock", "sold out"),
    ]


@pytest.mark.spec("R0157", "R0159", "R0160")
@live
async def test_what_looks_like_a_credential_does_not_reach_the_clients_log(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def leak(ctx: Context) -> None:
        await ctx.warning("sent with Authorization: Bearer abcdefghijklmnop1234567890")
        await ctx.warning({"user": "ann", "password": "hunter2", "inner": [{"api_key": "k-123"}]})

    meta: JSON = {"io.modelcontextprotocol/logLevel": "debug"} if not revision.handshake else {}
    async with raw_client(server, revision) as client:
        await client.call("leak", _meta=meta)
        said = str(client.notifications("notifications/message"))
    assert "ann" in said
    for secret in ("abcdefghijklmnop1234567890", "hunter2", "k-123"):
        assert secret not in said


@pytest.mark.spec("R0145")
@live
async def test_a_server_validates_admits_limits_and_sanitises(revision: Revision) -> None:
    server = Server("s")
    server.add_middleware(rate_limit(per_s=1, burst=4, clock=lambda: 0.0, methods=["tools/call"]))
    ran: list[int] = []

    @server.tool
    async def take(n: int) -> str:
        ran.append(n)
        return "half \ud800"

    @server.tool
    async def crash() -> str:
        raise RuntimeError("password is hunter2")

    @server.tool(scopes={"admin"})
    async def secret() -> str:
        return "never"

    async with raw_client(server, revision, principal="ann") as client:
        await client.refused("take", {"n": "many"})  # validated
        with pytest.raises(Rejected):
            await client.call("secret")  # access controlled
        assert await client.text("take", {"n": 1}) == "half \ufffd"  # sanitised
        failed = await client.failure("crash")
        assert "failed" in failed
        assert "hunter2" not in failed
        assert "try again" in await client.failure("take", {"n": 2})  # rate limited
    assert ran == [1]


# ---------------------------------------------------------------- what every server has


@pytest.mark.spec("R0924")
@live
async def test_every_server_answers_server_discover(revision: Revision) -> None:
    for server, offered in ((Server("empty"), set[str]()), (shop(), {"tools", "prompts"})):
        async with raw_client(server, revision) as client:
            found = await client.ask("server/discover", {})
            assert revision.date in found["supportedVersions"]
            assert found["capabilities"].keys() >= offered
        site = HttpRunner(server.asgi(), port=0)
        await site.start()
        try:
            async with Caller(site.port) as caller:
                body = {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}
                answer = await caller.post(
                    body | {"params": {"_meta": META}},
                    mcp_protocol_version=revision.date,
                    mcp_method="server/discover",
                )
                assert answer.status == 200
                assert revision.date in answer.json["result"]["supportedVersions"]
        finally:
            await site.stop(0.0)


# ---------------------------------------------------------------- who can reach it


@pytest.mark.spec("R1317")
def test_a_server_runs_on_stdio_unless_it_is_told_otherwise() -> None:
    parameter = inspect.signature(Server.run).parameters["transport"]
    assert parameter.default == "stdio"


@pytest.mark.spec("R1318")
@live
async def test_over_http_only_this_machine_reaches_it_and_no_page_of_another_site() -> None:
    site = HttpRunner(shop().asgi(), port=0)
    await site.start()
    try:
        assert site.host == "127.0.0.1"
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        async with Caller(site.port) as caller:
            for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
                answer = await caller.post(
                    body, mcp_protocol_version="2026-07-28", mcp_method="tools/list", **headers
                )
                assert answer.status == 403
            answer = await caller.post(
                body, mcp_protocol_version="2026-07-28", mcp_method="tools/list"
            )
            assert answer.status == 200
    finally:
        await site.stop(0.0)
