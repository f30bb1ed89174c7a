"""What a provider may answer that is wrong, hostile or late: each is a clear error, without a secret."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from auth.provider_login import NONCE, VERIFIER, ProviderLogin, provider_login
from auth.provider_replicas import CLIENT_SECRET, TENANT, sent
from auth.token_issuer import SigningKey, packed
from colonnade.auth.server.proxy.provider import (
    MAX_RESPONSE_BYTES,
    Provider,
    UpstreamRefused,
    UpstreamTokens,
    UpstreamUnavailable,
    UpstreamUser,
)
from colonnade.auth.ssrf import Fetcher
from colonnade.errors import CannotFetch, ChannelError, InvalidArgument
from live import Records, live
from scripted_http_server import http_response, pooled

TOKEN_PATH = "/oauth2/default/v1/token"
METADATA_PATH = "/oauth2/default/.well-known/openid-configuration"
KEYS_PATH = "/oauth2/default/v1/keys"
FORM = "application/x-www-form-urlencoded"


async def refused(login: ProviderLogin, error: str, words: str = ".") -> None:
    """A whole login is refused."""
    with pytest.raises(UpstreamRefused, match=words) as caught:
        await login.identify(await login.log_in())
    assert caught.value.error == error


# ---------------------------------------------------------------- ID tokens

WRONG_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": ({"iss": "https://evil.example"}, "it is from another issuer"),
    "an issuer below this one": ({"iss": "{issuer}/more"}, "it is from another issuer"),
    "no issuer": ({"iss": None}, "it is from another issuer"),
    "another client": ({"aud": "client-2"}, "it is for another client"),
    "no client": ({"aud": None}, "it is for another client"),
    "several clients, for another": ({"aud": ["client-1", "x"], "azp": "x"}, "another client"),
    "several clients, for none": ({"aud": ["client-1", "x"]}, "it is for another client"),
    "issued to another client": ({"azp": "client-2"}, "it is for another client"),
    "expired": ({"exp": 1_699_999_000}, "it has expired"),
    "without an end": ({"exp": None}, "it has expired"),
    "an end that is a word": ({"exp": "tomorrow"}, "malformed"),
    "from tomorrow": ({"iat": 1_700_086_400}, "it is not valid yet"),
    "valid from tomorrow": ({"nbf": 1_700_086_400}, "it is not valid yet"),
    "another nonce": ({"nonce": "nonce-of-another-login"}, "its nonce is not the one"),
    "no nonce": ({"nonce": None}, "its nonce is not the one"),
    "a nonce that is a list": ({"nonce": [NONCE]}, "its nonce is not the one"),
}


@pytest.mark.parametrize(("claims", "words"), WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
@live
async def test_an_id_token_with_a_wrong_claim_is_refused(
    claims: dict[str, Any], words: str
) -> None:
    async with provider_login("okta") as login:
        issuer = login.replica.issuer
        login.replica.claims = {
            name: value.replace("{issuer}", issuer) if isinstance(value, str) else value
            for name, value in claims.items()
        }
        await refused(login, "invalid_id_token", words)


@live
async def test_an_id_token_for_several_clients_that_was_issued_to_this_one_is_accepted() -> None:
    async with provider_login("okta") as login:
        login.replica.claims = {"aud": ["x", "client-1"], "azp": "client-1"}
        assert (await login.identify(await login.log_in())).subject == "sub-ann"


@live
async def test_the_nonce_of_another_login_is_refused() -> None:
    async with provider_login("okta") as login:
        code = (await login.authorize())["code"]
        with pytest.raises(UpstreamRefused, match="nonce") as caught:
            await login.exchange(code, nonce="nonce-of-another-login")
        assert caught.value.error == "invalid_id_token"


@live
async def test_an_id_token_that_another_key_signed_is_refused() -> None:
    async with provider_login("okta") as login:
        published = sent({"keys": [SigningKey("RS256", "rsa").jwk]})
        login.replica.answers[KEYS_PATH] = published
        await refused(login, "invalid_id_token", "the signature of the token is invalid")


@live
async def test_an_id_token_without_a_signature_or_with_a_shared_secret_is_refused() -> None:
    async with provider_login("okta") as login:
        claims = login.replica.id_claims("ann") | {"exp": int(login.now) + 60, "nonce": NONCE}
        for algorithm in ("none", "HS256"):
            forged = f"{packed({'alg': algorithm, 'kid': 'rsa'})}.{packed(claims)}.AAAA"
            login.replica.answers[TOKEN_PATH] = sent({"access_token": "a", "id_token": forged})
            await refused(login, "invalid_id_token")


@live
async def test_an_access_token_is_not_taken_for_an_id_token() -> None:
    async with provider_login("okta") as login:
        claims = login.replica.id_claims("ann") | {"exp": int(login.now) + 60, "nonce": NONCE}
        token = login.replica.key.sign(claims, typ="at+jwt")
        login.replica.answers[TOKEN_PATH] = sent({"access_token": "a", "id_token": token})
        await refused(login, "invalid_id_token", "another kind of JWT")


@live
async def test_a_response_without_an_id_token_is_no_login() -> None:
    async with provider_login("okta") as login:
        login.replica.answers[TOKEN_PATH] = sent({"access_token": "a"})
        with pytest.raises(UpstreamUnavailable, match="has no id_token"):
            await login.log_in()


@live
async def test_keys_that_cannot_be_fetched_do_not_refuse_a_login_for_good() -> None:
    async with provider_login("okta") as login:
        login.replica.answers[KEYS_PATH] = http_response(503)
        with pytest.raises(ChannelError) as caught:
            await login.log_in()
        assert not isinstance(caught.value, UpstreamRefused)


@live
async def test_a_refreshed_login_stays_the_login_of_the_same_user() -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.claims = {"sub": "sub-bob"}
        with pytest.raises(UpstreamRefused) as caught:
            await login.refresh(tokens)
        assert caught.value.error == "other_user"


@live
async def test_the_id_token_of_a_refresh_needs_no_nonce_and_may_be_missing() -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.answers[TOKEN_PATH] = sent({"access_token": "new", "expires_in": 60})
        new = await login.refresh(tokens)
        assert new.access_token == "new"
        kept = (new.refresh_token, new.id_token, new.scopes)
        assert kept == (tokens.refresh_token, tokens.id_token, tokens.scopes)


# ---------------------------------------------------------------- responses

MALFORMED = {
    "HTML": http_response(200, b"<html>Sign in</html>", "text/html"),
    "nothing": http_response(200, b""),
    "a list": sent([1]),
    "JSON that is cut off": http_response(200, b'{"access_token": "a'),
    "one member twice": http_response(200, b'{"access_token": "a", "access_token": "b"}'),
    "deep nesting": http_response(200, b"[" * 100_000),
    "no UTF-8": http_response(200, b'{"access_token": "\xff"}'),
    "no token": sent({"token_type": "Bearer"}),
    "an empty token": sent({"access_token": ""}),
    "a token that is a number": sent({"access_token": 7}),
    "a token with a line break": sent({"access_token": "a\r\nx: y"}),
    "a token that is too long": sent({"access_token": "a" * 40_000}),
    "a refresh token with a space": sent({"access_token": "a", "refresh_token": "b c"}),
    "a form without values": http_response(200, b"access_token", FORM),
    "a form with one member twice": http_response(200, b"access_token=a&access_token=b", FORM),
    "a form with too many members": http_response(200, b"a=1&" * 1000, FORM),
    "another status": http_response(302, b"", "", "Location: https://evil.example/"),
    "no content": http_response(204),
    "a page that blocks": http_response(403, b"<html>blocked</html>", "text/html"),
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
@live
async def test_a_malformed_token_response_ends_no_login(answer: bytes) -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.answers[TOKEN_PATH] = answer
        for step in (login.refresh(tokens), login.exchange("code")):
            with pytest.raises(ChannelError) as caught:
                await step
            assert "Okta" in str(caught.value) or isinstance(caught.value, CannotFetch)


@live
async def test_a_response_that_is_too_large_is_not_read() -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        large = {"access_token": "a", "more": "x" * MAX_RESPONSE_BYTES}
        login.replica.answers[TOKEN_PATH] = sent(large)
        with pytest.raises(CannotFetch):
            await login.refresh(tokens)


@live
async def test_a_provider_that_does_not_answer_is_given_up_and_ends_no_login() -> None:
    async with provider_login("github", total_s=0.2) as login:
        login.replica.silent = True
        tokens = UpstreamTokens("access", None, "refresh")
        for step in (
            login.refresh(tokens),
            login.exchange("code"),
            login.identify(tokens),
            login.revoke(tokens),
        ):
            with pytest.raises(CannotFetch) as caught:
                await step
            assert "longer than" in caught.value.why


@pytest.mark.parametrize("status", [500, 502, 503, 408, 425, 429])
@live
async def test_a_provider_that_is_down_or_busy_ends_no_login(status: int) -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.answers[TOKEN_PATH] = sent({"error": "invalid_grant"}, status)
        with pytest.raises(UpstreamUnavailable) as caught:
            await login.refresh(tokens)
        assert (caught.value.status, caught.value.hint) == (status, "try again later")


@pytest.mark.parametrize("error", ["temporarily_unavailable", "server_error", "slow_down"])
@live
async def test_an_error_that_passes_ends_no_login(error: str) -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.answers[TOKEN_PATH] = sent({"error": error}, 400)
        with pytest.raises(UpstreamUnavailable) as caught:
            await login.refresh(tokens)
        assert caught.value.error == error


@pytest.mark.parametrize(
    "error", ["invalid_grant", "invalid_request", "interaction_required", "consent_required", "x"]
)
@pytest.mark.parametrize("status", [200, 400, 401, 403])
@live
async def test_any_other_error_needs_a_login_whatever_its_status(error: str, status: int) -> None:
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        login.replica.answers[TOKEN_PATH] = sent({"error": error}, status)
        with pytest.raises(UpstreamRefused) as caught:
            await login.refresh(tokens)
        assert caught.value.error == error


@live
async def test_a_lifetime_may_be_a_string_or_nonsense() -> None:
    async with provider_login("github") as login:
        now = login.now
        for life, expected in (
            ("60", now + 60),
            (60, now + 60),
            (-5, now),
            ("soon", None),
            ([], None),
        ):
            found = {"access_token": "a", "expires_in": life}
            login.replica.answers["/login/oauth/access_token"] = sent(found)
            assert (await login.exchange("code")).expires_at == expected


# ---------------------------------------------------------------- users

WRONG_USERS = {
    "no id": {"login": "ann"},
    "an empty id": {"id": ""},
    "a boolean": {"id": True},
    "null": {"id": None},
    "a list": {"id": [1]},
    "a float": {"id": 1.5},
    "a line break": {"id": "a\nb"},
    "too long": {"id": "a" * 300},
}


@pytest.mark.parametrize("document", WRONG_USERS.values(), ids=WRONG_USERS)
@live
async def test_a_user_without_a_usable_subject_is_nobody(document: dict[str, Any]) -> None:
    async with provider_login("github") as login:
        login.replica.answers["/user"] = sent(document)
        with pytest.raises(UpstreamUnavailable, match="no usable id"):
            await login.identify(UpstreamTokens("access", None))


@live
async def test_parts_of_a_subject_cannot_be_moved_from_one_to_another() -> None:
    async with provider_login("slack") as login:
        for team, user in (("T/U", "1"), ("T", ""), ("", "U")):
            found = {"ok": True, "team_id": team, "user_id": user}
            login.replica.answers["/api/auth.test"] = sent(found)
            with pytest.raises(UpstreamUnavailable):
                await login.identify(UpstreamTokens("access", None))


@live
async def test_a_response_about_the_user_that_is_no_object_is_an_error() -> None:
    async with provider_login("github") as login:
        for answer in (sent([]), http_response(200, b"<html>", "text/html"), sent({}, 500)):
            login.replica.answers["/user"] = answer
            with pytest.raises(UpstreamUnavailable):
                await login.identify(UpstreamTokens("access", None))


@live
async def test_the_name_of_a_user_is_one_short_line() -> None:
    async with provider_login("github") as login:
        name = "Ann\u202e\n<script>" + "x" * 1000
        login.replica.answers["/user"] = sent({"id": 1, "login": "ann", "name": name})
        user = await login.identify(UpstreamTokens("access", None))
        assert len(user.name) <= 200
        assert "\n" not in user.name
        assert "\u202e" not in user.name
        login.replica.answers["/user"] = sent({"id": 1, "name": None})
        assert (await login.identify(UpstreamTokens("access", None))).name == ""


# ---------------------------------------------------------------- discovery


@live
async def test_metadata_of_another_issuer_is_not_used() -> None:
    async with provider_login("okta") as login:
        other = login.replica.metadata() | {"issuer": "https://evil.example"}
        login.replica.answers[METADATA_PATH] = sent(other)
        with Records("colonnade.auth") as records, pytest.raises(ChannelError):
            await login.authorize()
        assert any("the metadata of another issuer" in line for line in records.lines)
        assert TOKEN_PATH not in login.replica.paths


@live
async def test_metadata_is_fetched_once_and_keys_are_followed_as_they_change() -> None:
    async with provider_login("okta") as login:
        await login.log_in()
        await login.log_in()
        assert login.replica.paths.count(METADATA_PATH) == 1
        assert login.replica.paths.count(KEYS_PATH) == 1
        login.replica.key = SigningKey("ES256", "next")
        login.replica.now += 60
        assert (await login.identify(await login.log_in())).subject == "sub-ann"
        assert login.replica.paths.count(KEYS_PATH) == 2


@live
async def test_metadata_is_fetched_once_for_all_who_come_at_once() -> None:
    async with provider_login("okta") as login:
        await asyncio.gather(*(login.authorize() for _ in range(20)))
        assert login.replica.paths.count(METADATA_PATH) == 1


@live
async def test_a_copy_with_other_settings_does_not_use_what_the_first_has_fetched() -> None:
    async with provider_login("okta") as login:
        await login.log_in()
        login.change(scopes=("openid",))
        await login.log_in()
        assert login.replica.paths.count(METADATA_PATH) == 2


@live
async def test_an_endpoint_that_the_metadata_does_not_name_is_an_error_that_names_it() -> None:
    async with provider_login("okta") as login:
        for name in ("authorization_endpoint", "token_endpoint"):
            found = login.replica.metadata()
            del found[name]
            login.replica.answers[METADATA_PATH] = sent(found)
            login.change()
            with pytest.raises(UpstreamUnavailable, match=f"Okta has no {name}"):
                await login.log_in()


@pytest.mark.parametrize(
    "url", ["http://evil.example/authorize", "javascript:alert(1)", "https://a b", "//evil", "x"]
)
@live
async def test_a_browser_is_sent_to_https_only(url: str) -> None:
    async with provider_login("okta") as login:
        found = login.replica.metadata() | {"authorization_endpoint": url}
        login.replica.answers[METADATA_PATH] = sent(found)
        with pytest.raises(UpstreamUnavailable):
            await login.authorize()


@live
async def test_metadata_cannot_lead_a_public_provider_to_the_inside() -> None:
    """SF-01: the provider is public, and its token endpoint is not."""
    async with provider_login("okta") as login, pooled() as pool:
        provider = Provider(
            name="Acme",
            issuer="https://login.acme.example",
            client_id="a",
            client_secret=CLIENT_SECRET,
            discovers=False,
            token_endpoint=login.replica.url + TOKEN_PATH,
        )
        with pytest.raises(CannotFetch):
            await provider.refresh(
                Fetcher(pool.send), login.now, UpstreamTokens("access", None, "refresh")
            )
        assert login.replica.paths == []


@pytest.mark.parametrize("always", [True, False])
@live
async def test_a_response_names_its_issuer_if_the_provider_always_does(always: bool) -> None:
    """RFC 9207, 2.4."""
    async with provider_login("okta") as login:
        found = login.replica.metadata() | {
            "authorization_response_iss_parameter_supported": always
        }
        login.replica.answers[METADATA_PATH] = sent(found)
        provider = login.provider
        await provider.check_response(login.fetcher, login.now, provider.issuer)
        with pytest.raises(UpstreamRefused):
            await provider.check_response(login.fetcher, login.now, "https://evil.example")
        if always:
            with pytest.raises(UpstreamRefused, match="does not name its issuer"):
                await provider.check_response(login.fetcher, login.now, "")
        else:
            await provider.check_response(login.fetcher, login.now, "")


@live
async def test_a_key_of_one_tenant_signs_for_that_tenant_alone() -> None:
    """The keys of many tenants of Entra have a member `issuer`."""
    async with provider_login("entra for many tenants") as login:
        base = login.replica.issuer.partition("/v2.0")[0].rpartition("/")[0]
        keys_path = login.replica.base_path + login.replica.keys_path
        jwk = login.replica.key.jwk | {"alg": login.replica.key.algorithm}
        other = "99999999-2222-3333-4444-555555555555"
        for issuer, good in (
            (f"{base}/{{tenantid}}/v2.0", True),
            (f"{base}/{TENANT}/v2.0", True),
            (f"{base}/{other}/v2.0", False),
            ("https://evil.example/{tenantid}/v2.0", False),
            (7, False),
        ):
            login.replica.answers[keys_path] = sent({"keys": [jwk | {"issuer": issuer}]})
            login.change()
            if good:
                await login.log_in()
            else:
                with pytest.raises(UpstreamRefused):
                    await login.log_in()


@live
async def test_a_client_without_a_secret_sends_its_id_alone() -> None:
    async with provider_login("okta") as login:
        login.change(client_secret="")
        login.replica.answers[TOKEN_PATH] = sent({"error": "invalid_grant"}, 400)
        with pytest.raises(UpstreamRefused):
            await login.exchange("code")
        (form,) = login.replica.forms(TOKEN_PATH)
        assert form["client_id"] == "client-1"
        assert "client_secret" not in form
        assert "authorization" not in login.replica.server.received[-1].headers


# ---------------------------------------------------------------- revocation


@live
async def test_a_revocation_that_fails_is_an_error_and_one_of_a_dead_token_is_not() -> None:
    path = "/oauth2/default/v1/revoke"
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        for answer in (sent({"error": "invalid_token"}, 400), http_response(200)):
            login.replica.answers[path] = answer
            await login.revoke(tokens)
        for answer in (http_response(503), sent({"error": "invalid_client"}, 401)):
            login.replica.answers[path] = answer
            with pytest.raises(UpstreamUnavailable):
                await login.revoke(tokens)


@live
async def test_the_refresh_token_is_revoked_and_without_one_the_access_token() -> None:
    path = "/oauth2/default/v1/revoke"
    async with provider_login("okta") as login:
        tokens = await login.log_in()
        await login.revoke(tokens)
        await login.revoke(msgspec.structs.replace(tokens, refresh_token=""))
        sent_forms = [(one["token"], one["token_type_hint"]) for one in login.replica.forms(path)]
        assert sent_forms == [
            (tokens.refresh_token, "refresh_token"),
            (tokens.access_token, "access_token"),
        ]


# ---------------------------------------------------------------- secrets


@live
async def test_what_a_provider_quotes_of_a_secret_is_not_in_an_error_or_the_log() -> None:
    async with provider_login("auth0") as login:
        tokens = await login.log_in()
        canaries = (
            CLIENT_SECRET,
            VERIFIER,
            "code-canary",
            tokens.refresh_token,
            tokens.access_token,
        )
        said = {"error": "invalid_grant", "error_description": "bad: " + " ".join(canaries)}
        client = said | {"error": "invalid_client"}
        errors: list[BaseException] = []
        with Records("colonnade.auth", "colonnade") as records:
            for answer in (sent(said, 400), sent(client, 401), sent(said, 503)):
                login.replica.answers["/oauth/token"] = answer
                login.replica.answers["/oauth/revoke"] = answer
                # Each request has secrets of its own, and only those can be quoted.
                for step, known in (
                    (login.exchange("code-canary"), (CLIENT_SECRET, VERIFIER, "code-canary")),
                    (login.refresh(tokens), (CLIENT_SECRET, tokens.refresh_token)),
                ):
                    with pytest.raises((UpstreamRefused, UpstreamUnavailable)) as caught:
                        await step
                    errors.append(caught.value)
                    assert not any(one in str(caught.value) for one in known)
                    assert not any(one in repr(caught.value) for one in known)
        assert not any(one in line for one in canaries for line in records.lines)


def test_tokens_are_not_in_a_repr() -> None:
    tokens = UpstreamTokens("access-canary", 1.0, "refresh-canary", frozenset({"a"}), "id-canary")
    user = UpstreamUser("ann", "Ann", {"email": "canary@example.com"})
    for one in (tokens, user, [tokens], {"a": user}):
        assert "canary" not in repr(one)
        assert "canary" not in str(one)
    assert "canary" not in str([*tokens.__rich_repr__(), *user.__rich_repr__()])


def test_tokens_can_be_stored_and_read_again() -> None:
    tokens = UpstreamTokens("a", 1.5, "r", frozenset({"x", "y"}), "i")
    data = msgspec.json.encode(tokens)
    assert msgspec.json.decode(data, type=UpstreamTokens) == tokens
    assert set(json.loads(data)["scopes"]) == {"x", "y"}


@pytest.mark.parametrize(
    "settings",
    [
        {"issuer": "http://login.example"},
        {"issuer": "https://login.example#x"},
        {"issuer": "https://ann@login.example"},
        {"token_endpoint": "http://login.example/token"},
        {"algorithms": ("none",)},
        {"algorithms": ("HS256",)},
        {"networks": ("here",)},
        {"client_id": ""},
    ],
)
def test_wrong_settings_are_refused_when_they_are_made(settings: dict[str, Any]) -> None:
    good: dict[str, Any] = {"name": "Acme", "issuer": "https://login.example", "client_id": "a"}
    Provider(**good)
    with pytest.raises(InvalidArgument):
        Provider(**(good | settings))
