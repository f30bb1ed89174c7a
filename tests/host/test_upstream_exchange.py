"""Tokens of callers that are exchanged for one of a server: nothing that they present is passed on.

Rules: the front server, the host, the server behind it and the issuer are on real sockets. Canaries
are the tokens that callers present to the front server.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from auth.issuer import Issuer, claims_of, issuing
from auth.protected import Bearer
from auth.token_issuer import SigningKey
from auth.upstream_setup import UpstreamSetup, upstream_setup
from colonnade import Context, Host, Protection, Server, ToolError
from colonnade.auth.client.machine_grants import IdentityType
from colonnade.auth.client.upstream import UpstreamClient
from colonnade.auth.presented import PresentedTokens
from colonnade.auth.server.verifier import StaticTokens
from colonnade.errors import AuthError, CannotConnect, ChannelError
from colonnade.host.credentials import UpstreamCredentials
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.runner import HttpRunner
from live import live

KEY = secrets.token_bytes(32)
SIGNER = SigningKey()
FRONT = "http://127.0.0.1:8000/mcp"


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


def canary(user: str) -> str:
    """A token for the front server alone."""
    claims = {"iss": "https://front.example", "sub": user, "aud": FRONT, "jti": secrets.token_hex()}
    return SIGNER.sign(claims)


def client_at(issuer: Issuer, **more: Any) -> UpstreamClient:
    return UpstreamClient(
        issuer=issuer.url, client_id="robot", client_secret="robot-secret", **more
    )


def clients_for(issuer: Issuer, mode: str) -> dict[str, UpstreamClient]:
    provider: dict[str, str] = {}
    if mode == "id-jag":
        provider = {"idp_token_endpoint": f"{issuer.url}/token", "idp_client_id": "public"}
    return {"notes": client_at(issuer, **provider)}


@asynccontextmanager
async def front(
    host: Host, tokens: dict[str, str], presented: PresentedTokens
) -> AsyncGenerator[int]:
    """A server in front of a host, which calls it for its own callers; its port."""
    server = Server(
        "front", auth=Protection(FRONT, StaticTokens(tokens), presented=presented), version="1"
    )

    @server.tool
    async def whoami(ctx: Context) -> str:
        try:
            found = await host.caller(ctx.principal).call_tool("notes__whoami")
        except AuthError as error:
            raise ToolError(str(error)) from error
        return found.text

    site = HttpRunner(server.asgi(), port=0)
    await site.start()
    try:
        yield site.port
    finally:
        await site.stop(0.0)


async def ask(port: int, token: str) -> str:
    """What the tool of the front server says to the holder of a token."""
    caller = Bearer(port, token)
    try:
        params = {"name": "whoami", "arguments": {}}
        answer = await caller.modern("tools/call", params)
        assert answer.status == 200, answer
        return str(answer.json["result"]["content"][0]["text"])
    finally:
        await caller.__aexit__()


async def exchanging(
    setup: UpstreamSetup, presented: PresentedTokens, mode: str, **options: Any
) -> Host:
    upstream = UpstreamCredentials(
        clients=clients_for(setup.issuer, mode), presented=presented, **options
    )
    return await setup.host(upstream, mode)


@pytest.mark.parametrize("mode", ["exchange", "id-jag"])
@live
async def test_a_token_is_exchanged_and_passed_on_to_nothing(
    mode: str, issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = {canary(user): user for user in ("ann", "bob")}
    presented = PresentedTokens()
    async with upstream_setup(issuer) as setup:
        store = SqliteStore(tmp_path / "tokens.db")
        host = await exchanging(setup, presented, mode, store=store, keys=[KEY])
        async with front(host, tokens, presented) as port:
            for _ in range(2):
                said = await asyncio.gather(*(ask(port, token) for token in tokens))
                assert [one.rpartition("#")[2] for one in said] == ["ann", "bob"]
        await setup.stack.aclose()
        await store.close()
        requests = issuer.seen()
    kept = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    assert len(setup.sent) > 1000
    for token in tokens:
        for part in (token, *token.split(".")[1:]):
            assert part.encode() not in setup.sent
            assert part.encode() not in kept
            assert part not in caplog.text
        # The issuer of the exchange alone gets it, once, as the subject.
        holders = [one for one in requests if token in one]
        assert len(holders) == 1
        assert f"subject_token={token}" in holders[0]
        assert "token-exchange" in holders[0]


@live
async def test_processes_that_share_a_store_exchange_a_token_once(
    issuer: Issuer, tmp_path: Path
) -> None:
    token, presented = canary("ann"), PresentedTokens()
    presented.put("ann", token, None)
    async with upstream_setup(issuer) as setup:
        stores = [SqliteStore(tmp_path / "tokens.db") for _ in range(3)]
        hosts = [
            await exchanging(setup, presented, "exchange", store=store, keys=[KEY])
            for store in stores
        ]
        calls = (host.caller("ann").call_tool("notes__whoami") for host in hosts)
        assert {one.text.rpartition("#")[2] for one in await asyncio.gather(*calls)} == {"ann"}
        assert len([one for one in issuer.seen() if token in one]) == 1
        await setup.stack.aclose()
        for store in stores:
            await store.close()


@live
async def test_an_issuer_that_returns_the_same_token_is_refused(issuer: Issuer) -> None:
    presented = PresentedTokens()
    token = canary("ann")
    presented.put("ann", token, None)
    issuer.tell("echo")
    async with upstream_setup(issuer) as setup:
        host = await exchanging(setup, presented, "exchange")
        with pytest.raises(AuthError, match="it is not passed on"):
            await host.caller("ann").call_tool("notes__whoami")
        assert token.encode() not in setup.sent


@live
async def test_a_caller_that_presented_nothing_has_nothing_exchanged(issuer: Issuer) -> None:
    presented = PresentedTokens()
    presented.put("ann", canary("ann"), None)
    async with upstream_setup(issuer) as setup:
        host = await exchanging(setup, presented, "exchange")
        with pytest.raises(AuthError, match="has presented no valid access token"):
            await host.caller("bob").call_tool("notes__whoami")
        assert not any("POST /token" in one for one in issuer.seen())


@live
async def test_what_one_caller_lacks_does_not_stop_another_at_the_same_time(
    issuer: Issuer,
) -> None:
    presented = PresentedTokens()
    presented.put("bob", canary("bob"), None)
    async with upstream_setup(issuer) as setup:
        host = await exchanging(setup, presented, "exchange")
        calls = (host.caller(user).call_tool("notes__whoami") for user in ("ann", "bob"))
        first, second = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(first, AuthError)
        assert not isinstance(second, BaseException)
        assert second.text.endswith("bob")


@live
async def test_a_token_is_sent_to_the_configured_issuer_alone(issuer: Issuer) -> None:
    presented = PresentedTokens()
    token = canary("ann")
    presented.put("ann", token, None)
    with issuing() as other:
        async with upstream_setup(issuer) as setup:
            upstream = UpstreamCredentials(clients={"notes": client_at(other)}, presented=presented)
            host = await setup.host(upstream, "exchange")
            with pytest.raises(AuthError, match="belongs to the issuer"):
                await host.caller("ann").call_tool("notes__whoami")
            assert not any(token in one for one in (*issuer.seen(), *other.seen()))


def test_claims_of_a_canary_name_its_user() -> None:
    assert claims_of(canary("ann"))["sub"] == "ann"


@live
async def test_a_token_that_the_issuer_quotes_is_in_no_error_and_no_log(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    presented, token = PresentedTokens(), canary("ann")
    presented.put("ann", token, None)
    issuer.tell("quote", "ann")
    async with upstream_setup(issuer) as setup:
        host = await exchanging(setup, presented, "exchange")
        with pytest.raises(AuthError, match=r"invalid_grant: cannot use") as raised:
            await host.caller("ann").call_tool("notes__whoami")
        shown = f"{raised.value} {host.status()} {host.problems} {caplog.text}"
        for part in (token[:20], *token.split(".")):
            assert part not in shown


@live
async def test_an_issuer_that_fails_for_one_caller_does_not_stop_the_server_for_another(
    issuer: Issuer,
) -> None:
    presented = PresentedTokens()
    for user in ("ann", "bob"):
        presented.put(user, canary(user), None)
    issuer.tell("break", "ann")
    async with upstream_setup(issuer) as setup:
        clients = clients_for(issuer, "exchange")
        upstream = UpstreamCredentials(clients=clients, presented=presented)
        host = await setup.host(upstream, "exchange", {"max_crashes": 1})
        with pytest.raises(ChannelError, match="responded with 500"):
            await host.caller("ann").call_tool("notes__whoami")
        with pytest.raises(CannotConnect, match="it failed once within"):
            await host.caller("ann").call_tool("notes__whoami")
        result = await host.caller("bob").call_tool("notes__whoami")
        assert result.text.endswith("bob")


@pytest.mark.parametrize("kind", ["access_token", "id_token", "saml2"])
@live
async def test_an_identity_provider_is_told_what_kind_of_assertion_it_gets(
    kind: IdentityType, issuer: Issuer
) -> None:
    presented = PresentedTokens()
    presented.put("ann", canary("ann"), None)
    endpoint = f"{issuer.url}/token"
    client = client_at(
        issuer, idp_token_endpoint=endpoint, idp_client_id="public", identity_type=kind
    )
    async with upstream_setup(issuer) as setup:
        upstream = UpstreamCredentials(clients={"notes": client}, presented=presented)
        host = await setup.host(upstream, "id-jag")
        assert (await host.caller("ann").call_tool("notes__whoami")).text.endswith("ann")
        (exchange,) = [one for one in issuer.seen() if "subject_token=" in one]
        assert f"token-type%3A{kind}" in exchange.partition("subject_token_type=")[2]
