"""A refresh at the provider that is interrupted, slow, or answered in part loses no login."""

import asyncio
import contextlib
from typing import Any

import pytest

from auth.provider_login import provider_login
from auth.proxied import ProxySetup, proxied
from auth.token_issuer import SigningKey
from auth.upstream import ISSUER
from colonnade.auth.server.proxy.grants import LEASE_S
from colonnade.auth.server.proxy.provider import UpstreamRefused, UpstreamTokens
from colonnade.auth.ssrf import Fetcher
from live import live
from scripted_http_server import http_response


async def refresh_begun(setup: ProxySetup, token: str) -> tuple["asyncio.Task[str]", asyncio.Event]:
    """A call whose refresh at the provider is under way, and the event that lets it go on."""
    begun, held = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        setup.replica.during_refresh = None
        begun.set()
        await held.wait()

    setup.replica.during_refresh = hold
    call = asyncio.create_task(setup.whoami(token))
    await begun.wait()
    return call, held


@live
async def test_a_client_that_disconnects_during_a_refresh_does_not_lose_the_new_refresh_token() -> (
    None
):
    async with proxied(life_s=60.0) as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        setup.clock.forward(61)
        begun, held, refresh = asyncio.Event(), asyncio.Event(), setup.replica.refresh

        async def respond_late(
            fetcher: Fetcher, now: float, tokens: UpstreamTokens
        ) -> UpstreamTokens:
            new = await refresh(fetcher, now, tokens)
            begun.set()
            await held.wait()
            return new

        setup.replica.refresh = respond_late
        call = asyncio.create_task(setup.whoami(tokens["access_token"]))
        await begun.wait()
        call.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        held.set()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        setup.clock.forward(61)
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"


@live
async def test_a_slow_refresh_does_not_replace_the_tokens_of_a_later_one() -> None:
    async with proxied(life_s=60.0) as one:
        same: Any = {"clock": one.clock, "store": one.store, "replica": one.replica}
        async with proxied(**same) as two:
            client = await one.register()
            tokens = await one.log_in(client, one.browser())
            one.clock.forward(61)
            call, held = await refresh_begun(one, tokens["access_token"])
            one.clock.forward(LEASE_S + 1)  # the lease of a process that hangs
            assert await two.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
            held.set()  # and is refused now, since its refresh token was used
            assert await call == f"{ISSUER}#ann"
            one.clock.forward(61)
            assert await two.whoami(tokens["access_token"]) == f"{ISSUER}#ann"


@live
async def test_keys_that_cannot_be_fetched_do_not_lose_the_refresh_token_of_a_refresh() -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.now += 2 * 24 * 3600  # the keys in memory are too old
        keys = "/oauth2/default/v1/keys"
        login.replica.answers[keys] = http_response(503)
        login.replica.key = SigningKey("ES256", "two")
        new = await login.refresh(tokens)
        assert new.refresh_token != tokens.refresh_token
        assert new.id_token == tokens.id_token  # the new one is not verified
        login.replica.claims = {"sub": "sub-bob"}
        with pytest.raises(UpstreamRefused) as refused:
            await login.refresh(new)
        assert refused.value.error == "other_user"


@live
async def test_a_login_whose_access_token_does_not_expire_outlives_its_id_token() -> None:
    async with provider_login("sign in with slack") as login:
        tokens = await login.log_in()
        subject = (await login.identify(tokens)).subject
        login.replica.now += 7200
        await login.provider.confirm(login.fetcher, login.now, tokens, subject)
        asked = f"{login.replica.url}/api/openid.connect.userInfo"
        login.change(userinfo_endpoint=asked)
        for answer, error in (
            (b'{"ok": true, "sub": "UANN"}', ""),
            (b'{"ok": true, "sub": "UBOB"}', "other_user"),
            (b'{"ok": false, "error": "token_revoked"}', "token_revoked"),
        ):
            login.replica.answers["/api/openid.connect.userInfo"] = http_response(200, answer)
            found = ""
            try:
                await login.provider.confirm(login.fetcher, login.now, tokens, subject)
            except UpstreamRefused as refused:
                found = refused.error
            assert found == error
