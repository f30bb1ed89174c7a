"""Logins that are not completed: the client is told, and no token is left at the provider."""

from typing import Any

import pytest

from auth.failing_store import FailingStore
from auth.proxied import REDIRECT, Clock, proxied
from auth.upstream import ISSUER, query_of
from colonnade.auth.server.proxy.callback import MAX_LOGINS_OF_USER
from colonnade.auth.server.proxy.grants import ABANDONED_S, MAX_LOGINS_PER_USER, SWEEP_S
from live import live


@pytest.mark.parametrize("failing", [" upstream ", " grant ", " code "])
@live
async def test_a_login_that_cannot_be_stored_is_an_error_for_the_client(failing: str) -> None:
    clock = Clock()
    store = FailingStore(clock)
    async with proxied(clock=clock, store=store) as setup:
        client, browser = await setup.register(), setup.browser()
        page = await browser.get(setup.authorization_url(client))
        asked = (await browser.decide(page)).next_url
        store.failing = failing
        reply = await browser.get(setup.replica.log_in(asked))
        assert reply.next_url.startswith(REDIRECT)
        assert query_of(reply.next_url)["error"] == "temporarily_unavailable"
        assert query_of(reply.next_url)["state"] == "client-state"
        assert setup.replica.counts["revoked"] == 1
        store.failing = ""
        assert await setup.log_in(client, browser)  # and trying again helps


@pytest.mark.parametrize("failing", [" upstream ", " grant "])
@live
async def test_a_code_can_be_used_again_if_the_store_failed_before_a_token_was_issued(
    failing: str,
) -> None:
    clock = Clock()
    store = FailingStore(clock)
    async with proxied(clock=clock, store=store) as setup:
        client = await setup.register()
        code = await setup.code(client, setup.browser())
        store.failing = failing
        assert (await setup.exchange(client, code)).status == 503
        store.failing = ""
        reply = await setup.exchange(client, code)
        assert await setup.whoami(reply.json["access_token"]) == f"{ISSUER}#ann"
        assert (await setup.exchange(client, code)).status == 400  # now it was used
        assert (await setup.refresh(client, reply.json["refresh_token"])).status == 400


@live
async def test_an_approval_that_cannot_be_remembered_does_not_end_a_login() -> None:
    clock = Clock()
    store = FailingStore(clock)
    async with proxied(clock=clock, store=store) as setup:
        store.failing = " approval "
        tokens = await setup.log_in(await setup.register(), setup.browser())
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"


@live
async def test_tokens_of_a_login_that_is_not_completed_are_revoked_at_the_provider() -> None:
    async def broken(user: Any) -> bool:
        raise LookupError("the directory does not respond")

    async with proxied(allow=lambda user: user.subject != "eve") as setup:
        client, browser = await setup.register(), setup.browser()
        answer = query_of(await browser.authorize(setup.authorization_url(client), "eve"))
        assert answer["error"] == "access_denied"
        assert setup.replica.counts["revoked"] == 1
        await setup.log_in(client, browser)
        reply = await browser.get(setup.authorization_url(client))
        reply = await browser.get(setup.replica.log_in(reply.next_url, "bob"))
        assert reply.form  # another user is asked, and logs in again
        assert setup.replica.counts["revoked"] == 2
    async with proxied(allow=broken) as setup:
        browser = setup.browser()
        page = await browser.get(setup.authorization_url(await setup.register()))
        asked = (await browser.decide(page)).next_url
        assert (await browser.get(setup.replica.log_in(asked))).status == 503
        assert setup.replica.counts["revoked"] == 1


@live
async def test_tokens_of_a_code_that_is_never_used_are_revoked_at_the_provider() -> None:
    async with proxied() as setup:
        client = await setup.register()
        await setup.code(client, setup.browser(), "ann")
        bob = await setup.log_in(client, setup.browser(), "bob")
        await setup.code(client, setup.browser(), "bob")
        assert setup.replica.counts["revoked"] == 0
        setup.clock.forward(max(ABANDONED_S, SWEEP_S) + 1)
        bob = (await setup.refresh(client, bob["refresh_token"])).json
        # Not that of bob, who has another login: some providers would end that, too.
        assert setup.replica.counts["revoked"] == 1
        assert await setup.whoami(bob["access_token"]) == f"{ISSUER}#bob"
        setup.clock.forward(ABANDONED_S)
        assert (await setup.refresh(client, bob["refresh_token"])).status == 200
        assert setup.replica.counts["revoked"] == 1


@live
async def test_tokens_of_a_grant_that_ends_by_misuse_are_revoked_at_the_provider() -> None:
    async with proxied() as setup:
        client = await setup.register()
        code = await setup.code(client, setup.browser())
        assert (await setup.exchange(client, code)).status == 200
        assert (await setup.exchange(client, code)).status == 400
        assert setup.replica.counts["revoked"] == 1
        code = await setup.code(client, setup.browser())
        assert (await setup.exchange(client, code, "w" * 43)).status == 400
        assert setup.replica.counts["revoked"] == 2


@live
async def test_a_user_has_so_many_logins_and_the_one_unused_for_longest_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_LOGINS_PER_USER <= MAX_LOGINS_OF_USER
    monkeypatch.setattr("colonnade.auth.server.proxy.grants.MAX_LOGINS_PER_USER", 3)
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        logins: list[dict[str, Any]] = []
        for _ in range(3):
            logins.append(await setup.log_in(client, browser))
            setup.clock.forward(1)
        setup.clock.forward(60)
        logins[0] = (await setup.refresh(client, logins[0]["refresh_token"])).json
        logins.append(await setup.log_in(client, browser))
        found = [(await setup.refresh(client, one["refresh_token"])).status for one in logins]
        assert found == [200, 400, 200, 200]
        assert setup.replica.counts["revoked"] == 0


@live
async def test_one_user_cannot_log_in_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.auth.server.proxy.callback.MAX_LOGINS_OF_USER", 2)
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        for _ in range(2):
            await setup.log_in(client, browser)
        answer = query_of(await browser.authorize(setup.authorization_url(client)))
        assert answer["error"] == "temporarily_unavailable"
        assert await setup.log_in(client, setup.browser(), "bob")
        setup.clock.forward(600)
        assert await setup.log_in(client, browser)
