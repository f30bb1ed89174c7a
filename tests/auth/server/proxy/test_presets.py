"""Each preset against a replica of its provider: login, user, refresh, end of a login, revocation."""

from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

import pytest

from auth.provider_login import NONCE, ProviderLogin, provider_login
from auth.provider_replicas import (
    CLIENT_ID,
    CLIENT_SECRET,
    REPLICAS,
    TENANT,
    EntraReplica,
    GitHubReplica,
    GoogleReplica,
    sent,
)
from colonnade.auth.server.proxy import presets
from colonnade.auth.server.proxy.provider import Provider, UpstreamRefused, UpstreamUnavailable
from colonnade.errors import InvalidArgument
from live import live
from scripted_http_server import http_response

# The subject and the name of ann, and the error code of a refresh token that is dead.
EXPECTED = {
    "github": ("583231", "Ann", "bad_refresh_token"),
    "google": ("sub-ann", "Ann", "invalid_grant"),
    "entra": ("sub-ann", "Ann", "invalid_grant"),
    "entra for many tenants": (f"{TENANT}/sub-ann", "Ann", "invalid_grant"),
    "okta": ("sub-ann", "Ann", "invalid_grant"),
    "auth0": ("sub-ann", "Ann", "invalid_grant"),
    "keycloak": ("sub-ann", "Ann", "invalid_grant"),
    "cognito": ("sub-ann", "ann", "invalid_grant"),
    "slack": ("T9TK3CUKW/UANN", "ann", "invalid_refresh_token"),
    "sign in with slack": ("T9TK3CUKW/UANN", "Ann", "invalid_refresh_token"),
    "discord": ("80351110224678912", "Ann", "invalid_grant"),
    "workos": ("sub-ann", "Ann", "invalid_grant"),
}
# They keep a refresh token; the others issue a new one for each.
KEPT = ("google", "cognito")
# They have nothing that ends one login alone.
NO_REVOCATION = (
    "google",
    "entra",
    "entra for many tenants",
    "slack",
    "sign in with slack",
    "discord",
)


def prepare(login: ProviderLogin) -> None:
    """A GitHub App: an OAuth app has no refresh tokens."""
    if isinstance(login.replica, GitHubReplica):
        login.replica.is_app = True


every = pytest.mark.parametrize("name", REPLICAS)


@every
@live
async def test_a_user_logs_in_and_is_known(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        tokens = await login.log_in()
        user = await login.identify(tokens)
        subject, shown, _ = EXPECTED[name]
        assert (user.subject, user.name) == (subject, shown)
        assert tokens.expires_at == login.now + 3600
        assert tokens.scopes == set(login.provider.scopes)
        assert tokens.access_token.startswith(("access-ann-", "eyJ"))


@every
@live
async def test_two_users_are_never_the_same(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        ann, bob = await login.log_in("ann"), await login.log_in("bob")
        subjects = [(await login.identify(one)).subject for one in (ann, bob, ann)]
        assert subjects[0] == subjects[2] != subjects[1]


@every
@live
async def test_a_login_is_refreshed_many_times(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        first = tokens = await login.log_in()
        subject = (await login.identify(first)).subject
        for _ in range(5):
            login.replica.now += 3500
            before, tokens = tokens, await login.refresh(tokens)
            assert tokens.access_token != before.access_token
            assert tokens.expires_at == login.now + 3600
            assert tokens.scopes == first.scopes
            assert (tokens.refresh_token == before.refresh_token) is (name in KEPT)
            assert (await login.identify(tokens)).subject == subject


@every
@live
async def test_a_login_that_was_ended_there_is_refused_for_good(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        tokens = await login.log_in()
        login.replica.end_logins()
        with pytest.raises(UpstreamRefused) as caught:
            await login.refresh(tokens)
        assert caught.value.error == EXPECTED[name][2]
        assert caught.value.provider == login.provider.name
        assert str(caught.value).startswith(
            f"{login.provider.name}: it refused the refresh of a login ({caught.value.error}"
        )


@every
@live
async def test_a_code_is_used_once(name: str) -> None:
    async with provider_login(name) as login:
        code = (await login.authorize())["code"]
        await login.exchange(code)
        with pytest.raises(UpstreamRefused) as caught:
            await login.exchange(code)
        assert caught.value.error in ("invalid_grant", "bad_verification_code", "invalid_code")


@every
@live
async def test_a_wrong_client_secret_is_not_taken_for_the_end_of_a_login(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        tokens = await login.log_in()
        login.change(client_secret="another-secret-canary")
        with pytest.raises(UpstreamUnavailable) as caught:
            await login.refresh(tokens)
        assert caught.value.error in (
            "invalid_client",
            "incorrect_client_credentials",
            "bad_client_secret",
        )
        assert "client_secret" in caught.value.hint
        assert "canary" not in str(caught.value)


@every
@live
async def test_a_token_is_revoked_if_that_ends_this_login_alone(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        tokens, other = await login.log_in(), await login.log_in()
        count = len(login.replica.server.received)
        await login.revoke(tokens)
        if name in NO_REVOCATION:
            assert len(login.replica.server.received) == count
            return
        assert len(login.replica.server.received) == count + 1
        if name == "github":  # where the access token is revoked
            with pytest.raises(UpstreamRefused):
                await login.identify(tokens)
        else:
            with pytest.raises(UpstreamRefused):
                await login.refresh(tokens)
        await login.refresh(other)
        await login.revoke(tokens)  # again: it is gone already


@every
@live
async def test_secrets_are_sent_to_the_provider_only_where_they_belong(name: str) -> None:
    async with provider_login(name) as login:
        prepare(login)
        tokens = await login.log_in()
        await login.identify(tokens)
        await login.refresh(tokens)
        for request in login.replica.server.received:
            assert CLIENT_SECRET not in request.path
            assert tokens.access_token not in request.path
            assert request.method != "GET" or CLIENT_SECRET not in str(request.headers)


# ---------------------------------------------------------------- what each does differently


async def asked(login: ProviderLogin) -> dict[str, str]:
    url = await login.provider.authorization_url(
        login.fetcher,
        login.now,
        redirect_uri="https://notes.example/cb",
        state="s",
        code_challenge="c",
        nonce=NONCE,
    )
    return dict(parse_qsl(urlsplit(url).query))


@live
async def test_github_without_an_accept_header_would_answer_with_a_form_which_is_read_too() -> None:
    async with provider_login("github") as login:
        form = b"access_token=gho_1&scope=repo%2Cgist&token_type=bearer"
        kind = "application/x-www-form-urlencoded; charset=utf-8"
        login.replica.answers["/login/oauth/access_token"] = http_response(200, form, kind)
        tokens = await login.exchange("any")
        assert (tokens.access_token, tokens.expires_at) == ("gho_1", None)
        assert tokens.scopes == {"repo", "gist"}


@live
async def test_an_oauth_app_of_github_has_tokens_that_do_not_expire_and_cannot_be_refreshed() -> (
    None
):
    async with provider_login("github") as login:
        login.change(scopes=("read:user", "repo"))
        tokens = await login.log_in()
        assert (tokens.expires_at, tokens.refresh_token) == (None, "")
        assert tokens.scopes == {"read:user", "repo"}
        count = len(login.replica.server.received)
        with pytest.raises(UpstreamRefused) as caught:
            await login.refresh(tokens)
        assert caught.value.error == "login_required"
        assert len(login.replica.server.received) == count


@live
async def test_a_rate_limit_of_github_is_not_taken_for_the_end_of_a_login() -> None:
    async with provider_login("github") as login:
        tokens = await login.log_in()
        login.replica.answers["/user"] = http_response(403, b'{"message": "rate limit exceeded"}')
        with pytest.raises(UpstreamUnavailable) as caught:
            await login.identify(tokens)
        assert caught.value.status == 403


def test_github_enterprise_server_has_its_api_below_the_same_host() -> None:
    provider = presets.github("id", "secret", server="https://git.example.com/")
    assert provider.issuer == "https://git.example.com"
    assert provider.userinfo_endpoint == "https://git.example.com/api/v3/user"
    assert provider.revocation_endpoint == "https://git.example.com/api/v3/applications/id/token"


@live
async def test_google_issues_a_refresh_token_at_every_login_because_consent_is_asked_for() -> None:
    async with provider_login("google") as login:
        assert (await login.log_in()).refresh_token
        assert (await login.log_in()).refresh_token
        login.change(authorization_parameters={"access_type": "offline"})
        assert not (await login.log_in()).refresh_token


@live
async def test_google_may_leave_the_scheme_out_of_its_issuer() -> None:
    async with provider_login("google") as login:
        assert isinstance(login.replica, GoogleReplica)
        login.replica.short_issuer = True
        assert (await login.identify(await login.log_in())).subject == "sub-ann"


@live
async def test_a_hosted_domain_of_google_is_asked_for_and_checked() -> None:
    async with provider_login("google") as login:
        given = presets.google("a", "b", hosted_domain="example.com")
        login.change(
            authorization_parameters=given.authorization_parameters,
            required_claims=given.required_claims,
        )
        assert (await asked(login))["hd"] == "example.com"
        assert (await login.identify(await login.log_in())).claims["hd"] == "example.com"
        for found in ("example.com.evil", None):
            login.replica.claims = {"hd": found}
            with pytest.raises(UpstreamRefused) as caught:
                await login.identify(await login.log_in())
            assert caught.value.error == "access_denied"


@live
async def test_entra_signs_in_users_of_many_tenants_each_by_the_issuer_of_the_own() -> None:
    async with provider_login("entra for many tenants") as login:
        assert isinstance(login.replica, EntraReplica)
        other = "99999999-2222-3333-4444-555555555555"
        first = await login.identify(await login.log_in())
        login.replica.tenant = other
        second = await login.identify(await login.log_in())
        assert (first.subject, second.subject) == (f"{TENANT}/sub-ann", f"{other}/sub-ann")
        # One tenant cannot speak for another.
        for claims in ({"tid": TENANT}, {"tid": None}, {"tid": "../x"}, {"tid": "{tenantid}"}):
            login.replica.claims = claims
            with pytest.raises(UpstreamRefused) as caught:
                await login.log_in()
            assert caught.value.error == "invalid_id_token"


@live
async def test_entra_accepts_the_tenants_that_are_listed() -> None:
    async with provider_login("entra for many tenants") as login:
        assert isinstance(login.replica, EntraReplica)
        given = presets.entra("a", "b", tenant="common", tenants=[TENANT.upper()])
        login.change(required_claims=given.required_claims)
        await login.identify(await login.log_in())
        login.replica.tenant = "99999999-2222-3333-4444-555555555555"
        with pytest.raises(UpstreamRefused, match="this user is not accepted"):
            await login.identify(await login.log_in())


def test_entra_for_personal_accounts_is_one_tenant() -> None:
    provider = presets.entra("a", "b", tenant="consumers")
    assert "9188040d-6c67-4c5b-b112-36a304b66dad" in provider.issuer
    assert presets.entra("a", "b", tenant=TENANT.upper()).issuer.endswith(f"/{TENANT}/v2.0")


def test_the_authorization_server_of_an_okta_organization_has_no_path() -> None:
    assert presets.okta("a", "b", domain="acme.okta.com", authorization_server="").issuer == (
        "https://acme.okta.com"
    )
    assert presets.okta(
        "a", "b", domain="https://acme.okta.com/", authorization_server="x"
    ).issuer == ("https://acme.okta.com/oauth2/x")


@live
async def test_auth0_is_asked_for_an_audience_and_then_issues_a_jwt() -> None:
    async with provider_login("auth0") as login:
        assert (await asked(login))["audience"] == "https://api.example.com"
        assert (await login.log_in()).access_token.count(".") == 2
        assert (
            "audience" not in presets.auth0("a", "b", domain="x.example").authorization_parameters
        )


@live
async def test_an_access_token_of_cognito_is_no_id_token() -> None:
    async with provider_login("cognito") as login:
        login.replica.claims = {"token_use": "access"}
        tokens = await login.log_in()
        with pytest.raises(UpstreamRefused, match="token_use is 'access', not id"):
            await login.identify(tokens)


@live
async def test_slack_is_asked_for_user_scopes_with_commas_and_the_bot_token_is_ignored() -> None:
    async with provider_login("slack") as login:
        query = await asked(login)
        assert query["user_scope"] == "users:read,chat:write"
        assert not {"scope", "nonce"} & query.keys()
        tokens = await login.log_in()
        assert "xoxb" not in tokens.access_token
        # Only the bot was granted something.
        login.replica.answers["/api/oauth.v2.access"] = sent(
            {"ok": True, "access_token": "xoxb-1", "authed_user": {"id": "UANN"}}
        )
        with pytest.raises(UpstreamUnavailable, match="no usable access_token in authed_user"):
            await login.exchange("code")


@live
async def test_a_workspace_of_slack_is_asked_for_and_checked() -> None:
    async with provider_login("slack") as login:
        given = presets.slack("a", "b", user_scopes=["x"], team="T9TK3CUKW")
        login.change(required_claims=given.required_claims)
        await login.identify(await login.log_in())
        login.change(required_claims={"team_id": ("TOTHER",)})
        with pytest.raises(UpstreamRefused, match="TOTHER"):
            await login.identify(await login.log_in())
        assert given.authorization_parameters == {"team": "T9TK3CUKW"}
        assert presets.slack("a", "b", team="T1").authorization_parameters == {"team": "T1"}


@live
async def test_errors_of_slack_that_pass_do_not_end_a_login() -> None:
    async with provider_login("slack") as login:
        tokens = await login.log_in()
        for error in ("internal_error", "ratelimited", "fatal_error"):
            for path in ("/api/oauth.v2.access", "/api/auth.test"):
                login.replica.answers[path] = sent({"ok": False, "error": error})
            with pytest.raises(UpstreamUnavailable):
                await login.refresh(tokens)
            with pytest.raises(UpstreamUnavailable):
                await login.identify(tokens)
        login.replica.answers.clear()
        login.replica.end_logins()
        with pytest.raises(UpstreamRefused) as caught:
            await login.identify(tokens)
        assert caught.value.error == "invalid_auth"


@live
async def test_discord_would_end_every_login_with_one_revocation() -> None:
    async with provider_login("discord") as login:
        assert login.provider.revokes_every_login
        login.change(revocation_endpoint=f"{login.replica.url}/api/oauth2/token/revoke")
        tokens, other = await login.log_in(), await login.log_in()
        await login.revoke(tokens)
        await login.refresh(other)


# ---------------------------------------------------------------- settings

WRONG: dict[str, Callable[[], Provider]] = {
    "no client id": lambda: presets.github("", "secret-canary"),
    "a tenant by its domain": lambda: presets.entra("a", "secret-canary", tenant="acme.com"),
    "a user pool without a region": lambda: presets.cognito(
        "a", "secret-canary", user_pool="pool", domain="x.example"
    ),
    "plain http": lambda: presets.keycloak(
        "a", "secret-canary", server="http://sso.example", realm="r"
    ),
    "a host with a password": lambda: presets.okta("a", "secret-canary", domain="ann:pw@okta.com"),
    "a host with a query": lambda: presets.auth0("a", "secret-canary", domain="x.example?y"),
    "no host": lambda: presets.workos("a", "secret-canary", domain=""),
    "scopes as one string": lambda: presets.google("a", "secret-canary", scopes="openid"),
    "a network that is none": lambda: presets.keycloak(
        "a", "secret-canary", server="https://sso.example", realm="r", networks=["ten"]
    ),
    "a secret of bytes": lambda: presets.discord("a", b"secret-canary"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_wrong_settings_are_refused_without_the_secret(make: Callable[[], Provider]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make()
    assert "canary" not in str(caught.value)


def test_a_realm_cannot_leave_its_path() -> None:
    provider = presets.keycloak("a", "b", server="https://sso.example", realm="../x")
    assert provider.issuer == "https://sso.example/realms/..%2Fx"


@pytest.mark.parametrize("name", REPLICAS)
def test_every_preset_names_itself_and_hides_its_secret(name: str) -> None:
    provider = REPLICAS[name].preset
    assert provider.client_id == CLIENT_ID
    assert CLIENT_SECRET not in repr(provider)
    assert CLIENT_SECRET not in str(provider.__rich_repr__())
    assert provider.name in repr(provider)
