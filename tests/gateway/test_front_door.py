"""Who calls a gateway, and what goes on to its servers: the token of a client never does."""

import json
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from auth.issuer import Issuer, issuing
from auth.upstream_setup import LINK, UserBrowser, upstream_setup
from colonnade import (
    Context,
    Gateway,
    Host,
    LoginRequired,
    Protection,
    RemoteError,
    Server,
    StaticTokens,
    connect,
)
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol import types as t
from colonnade.store.memory import MemoryStore
from gateway.raw_server import REVISIONS
from gateway.served import by_header, served
from gateway.tcp_record import recorded_port
from http_client import Caller
from live import Records, live

CANARY = "canary-0123456789abcdef"
OTHER = "other-0123456789abcdef"


def port_of(url: str) -> int:
    return int(url.split(":")[2].partition("/")[0])


def protection(url: str) -> Protection:
    return Protection(url, StaticTokens({CANARY: "ann", OTHER: "bob"}))


class Recording(MemoryStore):
    """A store that remembers every value."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    async def put(self, principal: str, key: str, value: bytes, ttl_s: float | None) -> None:
        self.written += [principal.encode(), key.encode(), value]
        await super().put(principal, key, value, ttl_s)


def upstream(seen: list[Mapping[str, Any]]) -> Server:
    server = Server("up")

    @server.tool
    async def look(word: str, ctx: Context) -> str:
        seen.append({"headers": dict(ctx.headers), "principal": ctx.principal, "word": word})
        await ctx.info("looking")
        await ctx.progress(1.0)
        return word

    @server.resource("up://a")
    def a() -> str:
        return "a"

    _ = look, a
    return server


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("downstream", ["2025-11-25", "2026-07-28"])
def test_the_token_of_a_client_is_in_nothing_that_leaves_the_gateway(
    downstream: str, revision: str
) -> None:
    @live
    async def exercise() -> None:
        seen: list[Mapping[str, Any]] = []
        sent: list[bytes] = []
        store = Recording()
        front_url = "http://127.0.0.1:8000/mcp"
        async with served(upstream(seen)) as target, recorded_port(port_of(target), sent) as port:
            settings = Settings(revision=revision)
            entry = entry_of("up", f"http://127.0.0.1:{port}/mcp", settings)
            with Records("colonnade") as records:
                async with Host({"up": entry}) as host:
                    gateway = Gateway(host, auth=protection(front_url), store=store)
                    headers = {"Authorization": f"Bearer {CANARY}"}
                    async with (
                        served(gateway) as url,
                        connect({"url": url, "headers": headers}, revision=downstream) as client,
                    ):
                        await client.list_tools()
                        result = await client.call_tool("up__look", {"word": "hello"})
                        assert result.text == "hello"
                        async with client.listen(tools=True, resources=["up://a"]):
                            pass
        assert seen
        assert b"hello" in b"".join(sent)
        for data in (*sent, *store.written, str(records.lines).encode()):
            assert CANARY.encode() not in data

    exercise()


@live
async def test_a_request_without_a_token_reaches_no_server() -> None:
    seen: list[Mapping[str, Any]] = []
    async with Host({"up": upstream(seen)}) as host:
        gateway = Gateway(host, auth=protection("http://127.0.0.1:8000/mcp"))
        async with served(gateway) as url:
            port = port_of(url)
            async with Caller(port) as caller:
                call = {"name": "up__look", "arguments": {"word": "x"}}
                refused = await caller.modern("tools/call", call)
                assert refused.status == 401
                assert refused.headers["www-authenticate"].startswith("Bearer")
            for revision in REVISIONS[1:]:
                with pytest.raises((LoginRequired, RemoteError)):
                    async with connect(url, revision=revision) as client:
                        await client.call_tool("up__look", {"word": "x"})
    assert seen == []
    assert host.status()[0].sessions == 0


@live
async def test_a_view_is_protected_as_its_gateway_is() -> None:
    seen: list[Mapping[str, Any]] = []
    servers = {"up": upstream(seen), "other": upstream([])}
    async with Host(servers) as host:
        gateway = Gateway(
            host, auth=protection("http://127.0.0.1:8000/mcp"), views={"some": ["up"]}
        )
        async with served(gateway) as url:
            port = port_of(url)
            async with Caller(port, "/mcp/some") as caller:
                assert (await caller.modern("tools/list")).status == 401
            headers = {"Authorization": f"Bearer {CANARY}"}
            async with connect({"url": f"{url}/some", "headers": headers}) as client:
                assert [tool.name for tool in await client.list_tools()] == ["up__look"]
                with pytest.raises(RemoteError, match="no tool 'other__look'"):
                    await client.call_tool("other__look", {"word": "x"})
            async with connect({"url": url, "headers": headers}) as client:
                assert len(await client.list_tools()) == 2


@live
async def test_the_principal_of_a_client_is_that_of_its_token() -> None:
    principals: list[str] = []

    async def note(request: Any, call_next: Any) -> t.ProtocolType:
        principals.append(request.principal)
        return await call_next(request)

    async with Host({"up": upstream([])}, middleware=[note]) as host:
        gateway = Gateway(host, auth=protection("http://127.0.0.1:8000/mcp"))
        async with served(gateway) as url:
            for token in (CANARY, OTHER):
                headers = {"Authorization": f"Bearer {token}"}
                async with connect({"url": url, "headers": headers}) as client:
                    await client.call_tool("up__look", {"word": json.dumps(token)})
    assert set(principals) == {"ann", "bob"}


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


@pytest.mark.parametrize("revision", ["2025-06-18", "2026-07-28"])
def test_each_client_uses_the_account_that_it_has_connected(issuer: Issuer, revision: str) -> None:
    @live
    async def exercise() -> None:
        async with upstream_setup(issuer) as setup:
            host = await setup.host(await setup.upstream())
            gateway = Gateway(host)
            async with served(gateway, verify=by_header) as url:
                for user in ("ann", "bob"):
                    target = {"url": url, "headers": {"X-User": user}}
                    async with connect(target, revision=revision) as client:
                        refused = await client.call_tool("notes__whoami")
                        assert refused.is_error
                        link = LINK.search(refused.text)
                        assert link is not None, refused.text
                        issuer.tell("subject", user)
                        page = await UserBrowser(user).connect(link[0])
                        assert page.status == 200
                        text = (await client.call_tool("notes__whoami")).text
                        assert text.rpartition("#")[2] == user
                target = {"url": url, "headers": {"X-User": "eve"}}
                async with connect(target, revision=revision) as client:
                    assert (await client.call_tool("notes__whoami")).is_error
                    assert await client.list_tools() == []

    exercise()


# ---------------------------------------------------------------- tasks


@pytest.mark.parametrize("downstream", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_tool_that_runs_as_a_task_has_a_result(downstream: str, revision: str) -> None:
    """Whether it is relayed or awaited, a call of such a tool has its result."""

    @live
    async def exercise() -> None:
        server = Server("s")

        @server.tool(task="required")
        async def work(ctx: Context) -> str:
            return "worked"

        _ = work
        entry = entry_of("s", server, Settings(revision=revision))
        async with (
            Host({"s": entry}) as host,
            connect(Gateway(host), revision=downstream) as client,
        ):
            assert (await client.call_tool("s__work")).text == "worked"

    exercise()
