"""Users log in through the proxy at a replica of each provider that there is a preset for."""

from types import SimpleNamespace
from typing import Any

import pytest

from auth.provider_replicas import REPLICAS, replicated
from auth.proxied import Clock, proxied, send_http
from auth.upstream import query_of
from live import live


@pytest.mark.parametrize("name", sorted(REPLICAS))
@live
async def test_a_user_of_each_provider_logs_in_stays_and_is_logged_out(name: str) -> None:
    async with replicated(name) as replica:
        clock = Clock()
        clock.now = replica.now
        upstream: Any = SimpleNamespace(provider=lambda: replica.provider)
        async with proxied(clock=clock, replica=upstream) as setup:
            client, browser = await setup.register(), setup.browser()
            page = await browser.get(setup.authorization_url(client))
            assert replica.provider.name in page.text
            asked = (await browser.decide(page)).next_url
            assert asked.startswith(replica.url)
            back = (await send_http("GET", asked, {}, b"")).header("location")
            answer = query_of((await browser.get(back)).next_url)
            assert "code" in answer, answer
            tokens = (await setup.exchange(client, answer["code"])).json
            who = await setup.whoami(tokens["access_token"])
            assert who.startswith(f"{replica.provider.issuer}#")
            for _ in range(3):
                clock.forward(replica.life_s + 1)
                replica.now = clock.now
                reply = await setup.refresh(client, tokens["refresh_token"])
                assert reply.status == 200, reply.text
                tokens = reply.json
                assert await setup.whoami(tokens["access_token"]) == who
            replica.end_logins()
            clock.forward(replica.life_s + 1)
            replica.now = clock.now
            ended = await setup.refresh(client, tokens["refresh_token"])
            assert (ended.status, ended.json["error"]) == (400, "invalid_grant")
            sent = b"".join(one.body for one in replica.server.received).decode()
            assert tokens["access_token"] not in sent
            assert client["client_id"] not in sent
