"""Errors pass through a gateway: those of servers with the code that they have in the revision of
the client, those of the gateway itself in words that name the server."""

import sys

import pytest

from colonnade import Client, Gateway, Host, Refused, RemoteError, RequestContext, connect
from colonnade.errors import ColonnadeError, ConnectionLost
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.ports import Handler
from colonnade.protocol import types as t
from gateway.raw_server import REVISIONS, RawServer
from live import live

OLD, NEW = "2025-11-25", "2026-07-28"
NOT_SENT = {"notSent": True, "effectUnknown": False}


async def call_error(client: Client) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await client.call_tool("s__odd")
    return caught.value


async def read_error(client: Client) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await client.conversation.request(
            "resources/read", t.ReadResourceRequestParams(uri="odd://one"), 30.0
        )
    return caught.value


@pytest.mark.parametrize("downstream", REVISIONS)
@pytest.mark.parametrize("upstream", REVISIONS)
def test_an_error_keeps_its_meaning_between_any_two_revisions(
    upstream: str, downstream: str
) -> None:
    @live
    async def exercise() -> None:
        server = RawServer()
        async with (
            Host({"s": server.entry(upstream)}) as host,
            connect(Gateway(host), revision=downstream) as client,
        ):
            for own in (-32603, -32602, -32601, 7, -32050, -31999):
                server.error = (own, "no", {"why": [1.5]})
                error = await call_error(client)
                assert (error.code, error.message, error.data) == (own, "no", {"why": [1.5]})
            server.error = (-32602 if upstream == NEW else -32002, "gone", {"uri": "odd://one"})
            error = await read_error(client)
            assert error.code == (-32602 if downstream == NEW else -32002)
            assert error.data == {"uri": "odd://one"}
            server.error = (-32002, "not initialized", None)
            assert (await call_error(client)).code == -32002

    exercise()


@live
async def test_a_bad_argument_of_a_read_is_not_a_missing_resource() -> None:
    server = RawServer()
    server.error = (-32602, "bad", None)
    async with (
        Host({"s": server.entry(NEW)}) as host,
        connect(Gateway(host), revision=OLD) as client,
    ):
        assert (await read_error(client)).code == -32602


@live
async def test_a_url_that_the_user_must_open_is_an_error_of_its_revision() -> None:
    server = RawServer()
    server.error = (-32042, "open it", {"elicitations": []})
    async with Host({"s": server.entry(OLD)}) as host:
        async with connect(Gateway(host), revision=OLD) as client:
            assert (await call_error(client)).code == -32042
        async with connect(Gateway(host), revision=NEW) as client:
            assert (await call_error(client)).code == -32603


@live
async def test_a_missing_capability_is_words_for_a_client_without_such_an_error() -> None:
    server = RawServer()
    data = {"requiredCapabilities": {"elicitation": {}}}
    server.error = (-32021, "needs elicitation", data)
    async with Host({"s": server.entry(NEW)}) as host:
        async with connect(Gateway(host), revision=NEW) as client:
            error = await call_error(client)
            assert (error.code, error.data) == (-32021, data)
        async with connect(Gateway(host), revision=OLD) as client:
            result = await client.call_tool("s__odd")
            assert result.is_error
            assert result.text == "server 's': needs elicitation"
            assert (await read_error(client)).code == -32603


@pytest.mark.parametrize("code", [-32020, -32022])
@pytest.mark.parametrize("downstream", [OLD, NEW])
def test_an_error_between_gateway_and_server_is_not_one_of_the_client(
    downstream: str, code: int
) -> None:
    @live
    async def exercise() -> None:
        server = RawServer()
        server.error = (code, "Mcp-Name differs", None)
        async with (
            Host({"s": server.entry(NEW)}) as host,
            connect(Gateway(host), revision=downstream) as client,
        ):
            result = await client.call_tool("s__odd")
            assert result.is_error
            assert "server 's' refused the gateway: Mcp-Name differs" in result.text
            assert (await read_error(client)).code == -32603

    exercise()


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_server_that_cannot_be_started_is_named(revision: str) -> None:
    @live
    async def exercise() -> None:
        secret = "print what only the operator reads"
        command = [sys.executable, "-c", f"import sys; sys.exit({secret!r})"]
        entry = entry_of("broken", command, Settings())
        async with (
            Host({"broken": entry}) as host,
            connect(Gateway(host), revision=revision) as client,
        ):
            result = await client.call_tool("broken__x")
            assert result.is_error
            assert "server 'broken'" in result.text
            with pytest.raises(RemoteError) as caught:
                await client.get_prompt("broken__x")
            assert caught.value.code == -32603
            assert "server 'broken'" in caught.value.message

    exercise()


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_request_that_was_not_sent_says_so_for_programs(revision: str) -> None:
    @live
    async def exercise() -> None:
        entry = entry_of("broken", [sys.executable, "-c", "raise SystemExit(1)"], Settings())
        async with (
            Host({"broken": entry}) as host,
            connect(Gateway(host), revision=revision) as client,
        ):
            result = await client.call_tool("broken__x")
            assert {key: result.meta.get(key) for key in NOT_SENT} == NOT_SENT
            assert (result.not_sent, result.effect_unknown) == (True, False)
            with pytest.raises(RemoteError) as caught:
                await client.get_prompt("broken__x")
            assert caught.value.data == NOT_SENT
            assert (caught.value.not_sent, caught.value.effect_unknown) == (True, False)

    exercise()


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_call_that_may_have_had_an_effect_says_so_for_programs(revision: str) -> None:
    lost = ConnectionLost("the connection ended", server="s")
    errors: list[ColonnadeError] = [lost, Refused("no"), ColonnadeError("something else")]

    async def fail(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        if request.method in ("tools/call", "prompts/get"):
            raise errors[0]
        return await call_next(request)

    @live
    async def exercise() -> None:
        async with (
            Host({"s": RawServer().entry(NEW)}, middleware=[fail]) as host,
            Host({"inner": Gateway(host)}) as outer,
            connect(Gateway(host), revision=revision) as client,
            connect(Gateway(outer), revision=revision) as far,
        ):
            unknown = {"notSent": False, "effectUnknown": True}
            for one, name in ((client, "s__odd"), (far, "inner__s__odd")):
                result = await one.call_tool(name)
                assert {key: result.meta.get(key) for key in unknown} == unknown
                assert (result.not_sent, result.effect_unknown) == (False, True)
            with pytest.raises(RemoteError) as caught:
                await client.get_prompt("s__odd")
            assert caught.value.data is None  # a prompt has no effect
            for _ in range(2):
                errors.pop(0)
                result = await client.call_tool("s__odd")
                assert not result.meta.keys() & unknown.keys()
                assert (result.not_sent, result.effect_unknown) == (False, False)

    exercise()


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_a_call_of_an_unknown_tool_is_a_protocol_error(revision: str) -> None:
    @live
    async def exercise() -> None:
        async with (
            Host({"s": RawServer().entry(NEW)}) as host,
            connect(Gateway(host), revision=revision) as client,
        ):
            for name in ("s__none", "none", "t__odd"):
                with pytest.raises(RemoteError) as caught:
                    await client.call_tool(name)
                assert caught.value.code == -32602

    exercise()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Refused("not on Sundays"), "not on Sundays"),
        (ConnectionLost("the connection ended", server="s"), "the connection ended"),
        (ColonnadeError("something else"), "something else"),
    ],
)
def test_what_a_middleware_raises_is_words_for_a_model(error: Exception, words: str) -> None:
    async def refuse(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        if request.method in ("tools/call", "prompts/get"):
            raise error
        return await call_next(request)

    @live
    async def exercise() -> None:
        server = RawServer()
        async with (
            Host({"s": server.entry(NEW)}, middleware=[refuse]) as host,
            connect(Gateway(host)) as client,
        ):
            result = await client.call_tool("s__odd")
            assert result.is_error
            assert words in result.text
            with pytest.raises(RemoteError) as caught:
                await client.get_prompt("s__odd")
            assert words in caught.value.message

    exercise()


@live
async def test_an_exception_of_a_middleware_is_an_internal_error() -> None:
    async def fail(request: RequestContext, call_next: Handler) -> t.ProtocolType:
        if request.method == "tools/call":
            raise KeyError("secret")
        return await call_next(request)

    server = RawServer()
    async with (
        Host({"s": server.entry(NEW)}, middleware=[fail]) as host,
        connect(Gateway(host)) as client,
    ):
        error = await call_error(client)
    assert error.code == -32603
    assert "tools/call failed (id " in error.message
