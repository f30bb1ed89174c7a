"""The settings of the proxy, and what it never logs."""

import logging
from typing import Any

import pytest

from auth.proxied import live_proxy, proxied, send_http
from auth.upstream import CANARY, UpstreamReplica
from colonnade import InvalidArgument, InvalidArgumentType, LocalProtocolError
from colonnade.auth import OAuthProxy, Protection, github
from live import live

URL = "https://notes.example/mcp"


@pytest.mark.parametrize(
    "settings",
    [
        {"access_token_s": 10},
        {"access_token_s": 7200},
        {"login_idle_s": 0},
        {"key_rotation_s": 60},
        {"scopes": "notes:read"},
        {"redirect_schemes": ["javascript"]},
        {"redirect_schemes": ["https"]},
        {"redirect_schemes": ["*"]},
        {"introspection": ("notes", "")},
        {"issuer": "http://notes.example"},
        {"issuer": "https://notes.example/?a=1"},
    ],
    ids=str,
)
def test_settings_that_are_not_safe_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        OAuthProxy(github("id", "secret"), **settings)


def test_the_provider_is_an_object_and_its_secret_is_never_shown() -> None:
    wrong: Any = "secret-value"
    with pytest.raises(InvalidArgumentType, match="github") as failed:
        OAuthProxy(wrong)
    assert "secret-value" not in str(failed.value)
    assert "hidden" not in repr(OAuthProxy(github("id", "hidden")))


def test_a_proxy_belongs_to_one_server_and_a_server_has_one() -> None:
    proxy = OAuthProxy(github("id", "secret"))
    with pytest.raises(InvalidArgument, match="Protection"):
        _ = proxy.issuer
    Protection(URL, proxy)
    assert proxy.callback_url == "https://notes.example/oauth/callback"
    with pytest.raises(InvalidArgument, match="belongs to"):
        Protection("https://other.example/mcp", proxy)
    with pytest.raises(InvalidArgument, match="one OAuthProxy"):
        Protection(URL, proxy, OAuthProxy(github("id", "secret")))


@live
async def test_a_scheme_that_is_configured_may_be_registered() -> None:
    async with proxied(redirect_schemes=["cursor"]) as setup:
        client = await setup.register("cursor://app/callback")
        assert (await setup.browser().get(setup.authorization_url(client))).form


@live
async def test_cookies_on_a_loopback_host_without_tls_are_not_marked_secure() -> None:
    async with live_proxy() as site:
        body = b'{"redirect_uris": ["http://127.0.0.1/cb"], "token_endpoint_auth_method": "none"}'
        kind = {"content-type": "application/json"}
        made = await send_http("POST", f"{site.origin}/oauth/register", kind, body)
        query = f"client_id={made.json['client_id']}&redirect_uri=http://127.0.0.1/cb"
        query += f"&response_type=code&code_challenge_method=S256&code_challenge={'c' * 43}"
        page = await send_http("GET", f"{site.origin}/oauth/authorize?{query}", {}, b"")
        (line,) = page.cookies.values()
        assert line.startswith("colonnade-session-")
        assert "Secure" not in line
        assert "HttpOnly; SameSite=Lax" in line
        head = await send_http("HEAD", f"{site.origin}/oauth/jwks", {}, b"")
        assert (head.status, head.body) == (200, b"")


@live
async def test_no_token_code_or_secret_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "colonnade")
    async with proxied(life_s=60.0) as setup:
        client = await setup.register()
        code = await setup.code(client, setup.browser())
        tokens = (await setup.exchange(client, code)).json
        setup.clock.forward(61)
        again = (await setup.refresh(client, tokens["refresh_token"])).json
        await setup.call(again["access_token"])
        await setup.refresh(client, tokens["refresh_token"])  # ends the grant, which is logged
        setup.replica.reachable = False
        await setup.browser().authorize(setup.authorization_url(client))
        assert "has ended" in caplog.text
        for secret in (CANARY, code, *(one["refresh_token"] for one in (tokens, again))):
            assert secret not in caplog.text
        assert UpstreamReplica.client_secret not in caplog.text
