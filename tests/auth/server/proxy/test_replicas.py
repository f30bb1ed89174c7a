"""Several replicas of a server with a proxy on one store are one authorization server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from auth.proxied import REDIRECT, Clock, ProxySetup, proxied
from auth.upstream import ISSUER, UpstreamReplica, query_of
from colonnade.ports import Store
from colonnade.store.redis import RedisStore
from colonnade.store.sqlite import SqliteStore
from live import live
from store.redis_server import redis_server


@asynccontextmanager
async def replicas(kind: str, folder: Path) -> AsyncGenerator[tuple[ProxySetup, ProxySetup]]:
    """Two replicas, each with its own connection to one store."""
    clock = Clock()
    upstream = UpstreamReplica("https://notes.example/oauth/callback", life_s=60.0)
    async with AsyncExitStack() as stack:
        url = stack.enter_context(redis_server(folder)).url if kind == "redis" else ""
        setups: list[ProxySetup] = []
        for _ in range(2):
            store: Store = RedisStore(url) if url else SqliteStore(folder / "store.db")
            stack.push_async_callback(store.close)
            same: Any = {"clock": clock, "store": store, "replica": upstream}
            setups.append(await stack.enter_async_context(proxied(**same)))
        yield setups[0], setups[1]


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@live
async def test_a_login_begins_at_one_replica_and_ends_at_another(kind: str, tmp_path: Path) -> None:
    async with replicas(kind, tmp_path) as (one, two):
        client = await one.register()
        browser, elsewhere = one.browser(), two.browser()
        elsewhere.cookies = browser.cookies
        page = await elsewhere.get(one.authorization_url(client))
        asked = (await browser.decide(page)).next_url
        back = await elsewhere.get(two.replica.log_in(asked))
        assert back.next_url.startswith(REDIRECT)
        tokens = (await one.exchange(client, query_of(back.next_url)["code"])).json
        assert await two.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert (await two.refresh(client, tokens["refresh_token"])).status == 200


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@live
async def test_of_two_uses_of_one_code_or_state_at_once_one_succeeds_at_most(
    kind: str, tmp_path: Path
) -> None:
    async with replicas(kind, tmp_path) as (one, two):
        client = await one.register()
        for _ in range(5):
            browser, elsewhere = one.browser(), two.browser()
            elsewhere.cookies = browser.cookies
            page = await browser.get(one.authorization_url(client))
            asked = (await browser.decide(page)).next_url
            back = one.replica.log_in(asked)
            replies = await asyncio.gather(browser.get(back), elsewhere.get(back))
            assert sorted(reply.status for reply in replies) == [200, 400]
            place = next(reply.next_url for reply in replies if reply.status == 200)
            code = query_of(place)["code"]
            found = await asyncio.gather(one.exchange(client, code), two.exchange(client, code))
            assert sorted(reply.status for reply in found) in ([200, 400], [400, 400])
            for reply in found:
                if reply.status == 200:  # and what it gave was taken back
                    assert (await two.refresh(client, reply.json["refresh_token"])).status == 400


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
@live
async def test_replicas_refresh_the_provider_token_once_and_agree_on_keys(
    kind: str, tmp_path: Path
) -> None:
    async with replicas(kind, tmp_path) as (one, two):
        client = await one.register()
        tokens = await one.log_in(client, one.browser())
        for times in range(1, 6):
            one.clock.forward(61)
            calls = [setup.whoami(tokens["access_token"]) for setup in (one, two, one, two)]
            assert set(await asyncio.gather(*calls)) == {f"{ISSUER}#ann"}
            assert one.replica.counts["refreshes"] == times
        for _ in range(20):  # clients that refresh at both at once stay logged in
            found = await asyncio.gather(
                *(setup.refresh(client, tokens["refresh_token"]) for setup in (one, two))
            )
            assert [reply.status for reply in found] == [200, 200]
            tokens = found[0].json
            assert await two.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
