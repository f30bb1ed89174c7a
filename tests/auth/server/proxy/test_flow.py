"""Clients log in through the proxy to a provider without registration, and stay logged in."""

from auth.proxied import READ, live_proxy, proxied
from auth.upstream import ISSUER
from colonnade import connect
from live import live


@live
async def test_a_client_registers_and_its_user_logs_in_once() -> None:
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert tokens["scope"] == READ
        assert setup.replica.counts["logins"] == 1


@live
async def test_our_own_client_finds_registers_and_logs_in_over_sockets() -> None:
    async with live_proxy() as live_setup:
        auth = live_setup.login()
        for _ in range(2):
            async with connect(live_setup.url, auth=auth) as client:
                assert (await client.call_tool("whoami", {})).text == f"{ISSUER}#ann"
        assert live_setup.logins == 1
        async with connect(live_setup.url, auth=auth) as client:
            assert (await client.call_tool("erase", {})).text == "erased"  # step-up
        assert live_setup.logins == 2
