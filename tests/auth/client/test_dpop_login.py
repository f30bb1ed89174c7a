"""Logins whose tokens are bound to a key, live: an issuer and a server that both want nonces.

Rules: the issuer is a process of its own that judges proofs by itself (`bound_keys.py`).
"""

from collections.abc import Generator
from typing import Any

import pytest
from msgspec.structs import replace

from auth.client.test_login import Browser, person, serving
from auth.issuer import Issuer, issuing
from auth.login_process import ended
from colonnade import Client, ClientCredentials, LoginRequired, connect
from colonnade.auth.client.credentials import ServerCredentials
from colonnade.auth.client.storage import save_login
from colonnade.auth.jose import generate_key
from live import live

REQUIRED: dict[str, Any] = {"dpop": "required", "nonces": True}


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        one.tell("nonce")
        yield one


def credentials_of(client: Client) -> ServerCredentials:
    way: Any = client._connection.transport
    return way._credentials


async def who(client: Client) -> str:
    return (await client.call_tool("whoami", {})).text.rpartition("#")[2]


@live
async def test_tokens_are_bound_and_both_sides_get_the_nonce_that_they_want(
    issuer: Issuer,
) -> None:
    async with serving(issuer, protection_options=REQUIRED) as url:
        browser = Browser()
        async with connect(url, auth=person(browser)) as client:
            for _ in range(3):
                assert await who(client) == "ann"
            credentials = credentials_of(client)
            held = credentials._login
            assert held is not None
            assert held.tokens.token_type == "dpop"
            assert credentials._nonce  # the server's own, which is no nonce of the issuer
        assert "dpop_jkt=" in browser.opened[0]
        assert len(browser.opened) == 1
        assert issuer.count("use_dpop_nonce") == 1
        assert (issuer.count("authorization_code"), issuer.count("keys")) == (1, 1)


@live
async def test_bound_tokens_are_renewed_with_the_same_key_and_the_nonce_of_the_day(
    issuer: Issuer,
) -> None:
    async with serving(issuer, protection_options=REQUIRED) as url:
        browser = Browser()
        async with connect(url, auth=person(browser)) as client:
            assert await who(client) == "ann"
            credentials = credentials_of(client)
            for renewal in (1, 2):
                issuer.tell("nonce")  # the last one is worth nothing any more
                before = credentials._login
                assert before is not None
                credentials._set_login(ended(before))
                assert await who(client) == "ann"
                after = credentials._login
                assert after is not None
                assert after.tokens.access_token != before.tokens.access_token
                assert after.tokens.key == before.tokens.key
                assert issuer.count("refresh_token") == renewal
                assert issuer.count("use_dpop_nonce") == renewal + 1
        assert (issuer.count("keys"), issuer.count("other key")) == (1, 0)
        assert len(browser.opened) == 1


@live
async def test_with_another_key_a_refresh_token_is_worth_nothing(issuer: Issuer) -> None:
    """What makes a stolen one useless; here the one who lost the key logs in again."""
    async with serving(issuer, protection_options=REQUIRED) as url:
        browser = Browser()
        async with connect(url, auth=person(browser)) as client:
            assert await who(client) == "ann"
            credentials = credentials_of(client)
            held = credentials._login
            assert held is not None
            stolen = replace(held, tokens=replace(held.tokens, key=generate_key().pem()))
            await credentials._drive(save_login(ended(stolen), credentials._auth.account))
            credentials._set_login(ended(stolen))
            assert await who(client) == "ann"
        assert issuer.count("other key") == 1
        assert issuer.count("authorization_code") == len(browser.opened) == 2


@live
async def test_a_server_whose_nonces_are_over_gives_another_and_nobody_notices(
    issuer: Issuer,
) -> None:
    async with serving(issuer, protection_options=REQUIRED) as url:
        browser = Browser()
        async with connect(url, auth=person(browser)) as client:
            assert await who(client) == "ann"
            credentials = credentials_of(client)
            first = credentials._nonce
            for nonce in ("", "made up", first[:-2]):
                credentials._nonce = nonce
                assert await who(client) == "ann"
                assert credentials._nonce not in ("", nonce)
        assert len(browser.opened) == 1
        assert issuer.count("refresh_token") == 0


@live
async def test_a_program_binds_its_tokens_where_it_wants_that_or_the_server_does(
    issuer: Issuer,
) -> None:
    for wanted, protection_options in ((True, {}), (False, REQUIRED)):
        async with serving(issuer, protection_options=protection_options) as url:
            auth = ClientCredentials(
                issuer=issuer.url, client_id="robot", client_secret="robot-secret", dpop=wanted
            )
            async with connect(url, auth=auth) as client:
                assert await who(client) == "robot"
                held = credentials_of(client)._login
                assert held is not None
                assert held.tokens.token_type == "dpop"
    assert issuer.count("keys") == 2


@live
async def test_a_bound_token_without_its_key_lets_nobody_in(issuer: Issuer) -> None:
    async with serving(issuer, protection_options=REQUIRED) as url:
        auth = person(Browser())
        async with connect(url, auth=auth) as client:
            assert await who(client) == "ann"
            held = credentials_of(client)._login
            assert held is not None
            token = held.tokens.access_token
        for scheme in ("Bearer", "DPoP"):
            with pytest.raises(LoginRequired):
                await connect(url, headers={"Authorization": f"{scheme} {token}"})


@live
async def test_who_wants_no_bound_token_gets_none(issuer: Issuer) -> None:
    auth = person(Browser())
    async with serving(issuer) as url, connect(url, auth=auth) as client:
        assert await who(client) == "ann"
    assert (issuer.count("keys"), issuer.count("use_dpop_nonce")) == (0, 0)
