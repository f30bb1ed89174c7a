"""Clients log in through the proxy to a provider without registration, and stay logged in."""

import asyncio
import base64
import json
from typing import Any

import pytest

from auth.proxied import ORIGIN, READ, RESOURCE, WRITE, live_proxy, proxied, send
from auth.upstream import CANARY, ISSUER, query_of
from colonnade import connect
from colonnade.auth.server.proxy.grants import RETRY_S
from colonnade.auth.server.proxy.signing_keys import PUBLISHED_AFTER_S, PUBLISHED_AHEAD_S, rotate
from colonnade.ports import SERVER_PRINCIPAL
from live import live

DAY_S = 24 * 3600.0


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.spec("R0223", "R0225", "R0300")
@live
async def test_a_client_registers_and_its_user_logs_in_once() -> None:
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert tokens["scope"] == READ
        assert setup.replica.counts["logins"] == 1
        said = (await setup.call(tokens["access_token"], "claims")).json
        assert said["result"]["structuredContent"]["email"] == "ann@example.com"


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


@live
async def test_tokens_are_bound_to_a_key_if_the_server_requires_that() -> None:
    required = {"dpop": "required", "nonces": True}
    async with live_proxy(protection_options=required) as live_setup:
        auth = live_setup.login()
        for _ in range(2):
            async with connect(live_setup.url, auth=auth) as client:
                assert (await client.call_tool("whoami", {})).text == f"{ISSUER}#ann"
        assert live_setup.logins == 1


@pytest.mark.spec("R0304", "R0382", "R0718")
@pytest.mark.parametrize("name", ["oauth-authorization-server", "openid-configuration"])
@live
async def test_the_metadata_is_at_both_well_known_places_and_says_what_there_is(name: str) -> None:
    async with proxied() as setup:
        reply = await send(setup.app, "GET", f"{ORIGIN}/.well-known/{name}")
        assert reply.status == 200
        assert reply.header("access-control-allow-origin") == "*"
        found = reply.json
        assert found["issuer"] == ORIGIN
        assert found["code_challenge_methods_supported"] == ["S256"]
        assert found["authorization_response_iss_parameter_supported"] is True
        assert found["client_id_metadata_document_supported"] is True
        assert found["scopes_supported"] == [READ, WRITE]
        keys = (await send(setup.app, "GET", found["jwks_uri"])).json["keys"]
        assert [set(one) & {"d", "k"} for one in keys] == [set()]
        described = f"{ORIGIN}/.well-known/oauth-protected-resource/mcp"
        resource = (await send(setup.app, "GET", described)).json
        assert resource["authorization_servers"] == [ORIGIN]


@live
async def test_an_issuer_with_a_path_works_behind_a_proxy_that_keeps_or_removes_it() -> None:
    async with proxied(issuer=f"{ORIGIN}/notes") as setup:
        for path in (
            "/.well-known/oauth-authorization-server/notes",
            "/notes/.well-known/openid-configuration",
            "/.well-known/oauth-authorization-server",
        ):
            found = (await send(setup.app, "GET", ORIGIN + path)).json
            assert found["issuer"] == f"{ORIGIN}/notes"
            assert found["token_endpoint"] == f"{ORIGIN}/notes/oauth/token"
        for path in ("/notes/oauth/jwks", "/oauth/jwks"):
            assert (await send(setup.app, "GET", ORIGIN + path)).json["keys"]


@pytest.mark.spec("R0221", "R0330")
@live
async def test_an_access_token_is_for_this_server_and_for_minutes() -> None:
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        claims = claims_of(tokens["access_token"])
        assert (claims["iss"], claims["aud"], claims["sub"]) == (ORIGIN, RESOURCE, "ann")
        assert claims["client_id"] == client["client_id"]
        assert claims["exp"] - claims["iat"] == tokens["expires_in"] == 900
        setup.clock.forward(901)
        assert (await setup.call(tokens["access_token"])).status == 401


@pytest.mark.spec("R0228", "R0230")
@live
async def test_tokens_of_the_provider_are_sealed_in_the_store_and_never_sent_to_a_client() -> None:
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        said = await setup.call(tokens["access_token"], "claims")
        assert CANARY not in json.dumps(tokens) + said.text
        names = await setup.store.names(SERVER_PRINCIPAL, "oauth proxy ", "", 1000)
        values = [await setup.store.get(SERVER_PRINCIPAL, name) or b"" for name in names]
        assert len(names) > 4
        for hidden in (CANARY, "ann", client["client_id"], tokens["refresh_token"]):
            assert hidden.encode() not in b"".join(values) + "".join(names).encode()


@pytest.mark.spec("R0224", "R0226", "R0331")
@live
async def test_a_login_lasts_thirty_days_with_upstream_tokens_of_a_minute() -> None:
    async with proxied(life_s=60.0) as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        for _ in range(30 * 4):
            setup.clock.forward(DAY_S / 4)
            reply = await setup.refresh(client, tokens["refresh_token"])
            assert reply.status == 200, reply.text
            assert reply.json["refresh_token"] != tokens["refresh_token"]
            tokens = reply.json
            assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
            setup.clock.forward(70)
            assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert setup.replica.counts["logins"] == 1
        assert setup.replica.counts["refreshes"] == 30 * 4 * 2


@pytest.mark.spec("R0224", "R0231")
@live
async def test_a_login_that_the_provider_ends_is_one_clear_login_again() -> None:
    async with proxied(life_s=60.0) as setup:
        client, browser = await setup.register(), setup.browser()
        tokens = await setup.log_in(client, browser)
        setup.replica.end_logins("ann")
        setup.clock.forward(61)
        refused = await setup.call(tokens["access_token"])
        assert refused.status == 401
        assert 'error="invalid_token"' in refused.header("www-authenticate")
        again = await setup.refresh(client, tokens["refresh_token"])
        assert (again.status, again.json["error"]) == (400, "invalid_grant")
        setup.replica.ended.clear()
        assert await setup.whoami((await setup.log_in(client, browser))["access_token"])


@pytest.mark.spec("R0231")
@live
async def test_a_provider_that_does_not_respond_ends_no_login() -> None:
    async with proxied(life_s=60.0) as setup:
        client, browser = await setup.register(), setup.browser()
        tokens = await setup.log_in(client, browser)
        setup.replica.reachable = False
        setup.clock.forward(61)
        assert (await setup.call(tokens["access_token"])).status == 503
        # Clients of other SDKs begin a login if a refresh fails: they get a token for later.
        tokens = (await setup.refresh(client, tokens["refresh_token"])).json
        assert (await setup.call(tokens["access_token"])).status == 503
        url = setup.authorization_url(client)
        answer = query_of(await browser.authorize(url))
        assert answer["error"] == "temporarily_unavailable"
        setup.replica.reachable = True
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert (await setup.refresh(client, tokens["refresh_token"])).status == 200


@pytest.mark.spec("R0224")
@live
async def test_a_provider_token_without_expiry_is_checked_every_hour() -> None:
    async with proxied(life_s=None) as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        setup.clock.forward(3700)
        setup.replica.reachable = False  # for a while that is no reason to end a login
        assert (await setup.refresh(client, tokens["refresh_token"])).status == 200
        setup.replica.reachable = True
        setup.replica.end_logins("ann")
        setup.clock.forward(RETRY_S)
        refused = await setup.refresh(client, tokens["refresh_token"])
        assert refused.json["error"] == "invalid_grant"


@pytest.mark.spec("R0229")
@live
async def test_a_login_that_is_not_used_ends() -> None:
    async with proxied(login_idle_s=1000.0) as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        setup.clock.forward(1001)
        refused = await setup.refresh(client, tokens["refresh_token"])
        assert refused.json["error"] == "invalid_grant"


@pytest.mark.spec("R0226")
@live
async def test_two_processes_refresh_the_provider_token_once() -> None:
    async with proxied(life_s=60.0) as one:
        same: Any = {"clock": one.clock, "store": one.store, "replica": one.replica}
        async with proxied(**same) as two:
            client = await one.register()
            tokens = await two.log_in(client, one.browser())
            one.clock.forward(61)
            held = asyncio.Event()
            one.replica.during_refresh = held.wait
            calls = [
                asyncio.create_task(setup.whoami(tokens["access_token"])) for setup in (one, two)
            ]
            for _ in range(50):
                await asyncio.sleep(0)
            assert not any(call.done() for call in calls)
            held.set()
            assert await asyncio.gather(*calls) == [f"{ISSUER}#ann"] * 2
            assert one.replica.counts["refreshes"] == 1


@live
async def test_another_process_with_the_same_store_and_keys_goes_on_after_a_restart() -> None:
    async with proxied(life_s=60.0) as one:
        client = await one.register()
        code = await one.code(client, one.browser())
        same: Any = {"clock": one.clock, "store": one.store, "replica": one.replica}
    async with proxied(**same) as two:
        tokens = (await two.exchange(client, code)).json
        assert await two.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
    async with proxied(**same, keys=(b"x" * 32,)) as other:  # the keys were lost
        assert (await other.call(tokens["access_token"])).status == 401
        refused = await other.refresh(client, tokens["refresh_token"])
        assert refused.json["error"] == "invalid_client"


@live
async def test_a_client_that_revokes_a_token_ends_its_login_here_and_there() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        first = await setup.log_in(client, browser)
        second = await setup.log_in(client, browser)
        for tokens, revoked in ((first, 0), (second, 1)):
            done = await setup.post_form("revoke", client, token=tokens["refresh_token"])
            assert done.status == 200
            # Another login of the user is left: some providers would end that, too.
            assert setup.replica.counts["revoked"] == revoked
            assert (await setup.call(tokens["access_token"])).status == 401
            refused = await setup.refresh(client, tokens["refresh_token"])
            assert refused.json["error"] == "invalid_grant"
        unknown = await setup.post_form("revoke", client, token="unknown")
        assert unknown.status == 200


@live
async def test_introspection_is_for_the_resource_with_its_credentials_alone() -> None:
    async with proxied() as plain:
        assert (await plain.post_form("introspect", {"client_id": "x"}, token="t")).status == 404
    async with proxied(introspection=("notes", "secret")) as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())

        async def ask(pair: str, token: str) -> Any:
            headers = {
                "authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
                "content-type": "application/x-www-form-urlencoded",
            }
            url, body = f"{ORIGIN}/oauth/introspect", f"token={token}".encode()
            return await send(setup.app, "POST", url, headers, body)

        assert (await ask("notes:wrong", tokens["access_token"])).status == 401
        assert (await setup.post_form("introspect", client, token="t")).status == 401
        found = (await ask("notes:secret", tokens["access_token"])).json
        assert (found["active"], found["sub"], found["aud"]) == (True, "ann", RESOURCE)
        assert (await ask("notes:secret", tokens["refresh_token"])).json == {"active": False}
        await setup.post_form("revoke", client, token=tokens["access_token"])
        assert (await ask("notes:secret", tokens["access_token"])).json == {"active": False}


@live
async def test_who_may_log_in_and_with_which_scopes_is_the_servers_decision() -> None:
    async def allow(user: Any) -> Any:
        return {"ann": True, "bob": [READ]}.get(user.subject, False)

    async with proxied(allow=allow) as setup:
        client = await setup.register()
        both = f"{READ} {WRITE}"
        ann = await setup.log_in(client, setup.browser(), "ann", scope=both)
        assert ann["scope"] == both
        bob = await setup.log_in(client, setup.browser(), "bob", scope=both)
        assert bob["scope"] == READ
        url = setup.authorization_url(client)
        answer = query_of(await setup.browser().authorize(url, "eve"))
        assert answer["error"] == "access_denied"


def test_a_signing_key_is_published_before_it_signs_and_until_its_tokens_expire() -> None:
    first = rotate((), 0.0, 30 * DAY_S)
    assert len(first) == 1
    assert rotate(first, 28 * DAY_S, 30 * DAY_S) == first
    both = rotate(first, 30 * DAY_S - PUBLISHED_AHEAD_S, 30 * DAY_S)
    assert [one.signs_from for one in both] == [0.0, 30 * DAY_S]
    assert rotate(both, 30 * DAY_S + PUBLISHED_AFTER_S - 1, 30 * DAY_S) == both
    assert rotate(both, 30 * DAY_S + PUBLISHED_AFTER_S, 30 * DAY_S) == both[1:]


@live
async def test_tokens_stay_valid_while_keys_rotate() -> None:
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        seen: set[str] = set()
        for _ in range(70):
            setup.clock.forward(DAY_S)
            tokens = (await setup.refresh(client, tokens["refresh_token"])).json
            assert await setup.whoami(tokens["access_token"])
            keys = (await send(setup.app, "GET", f"{ORIGIN}/oauth/jwks")).json["keys"]
            assert len(keys) <= 2
            seen |= {one["kid"] for one in keys}
        assert len(seen) == 3


@live
async def test_a_login_at_the_provider_leads_to_the_client_by_a_page_and_not_by_a_redirect() -> (
    None
):
    """A provider's form may allow redirects to this server only, and browsers apply that to all
    redirects that follow."""
    async with proxied() as setup:
        for more in ({}, {"error": "access_denied", "code": ""}):
            client, browser = await setup.register(), setup.browser()
            page = await browser.decide(await browser.get(setup.authorization_url(client)))
            reply = await browser.get(setup.replica.log_in(page.next_url, **more))
            assert (reply.status, reply.header("location")) == (200, "")
            assert reply.next_url.startswith(f"{client['redirect_uris'][0]}?")
            assert ("error" in query_of(reply.next_url)) is bool(more)
