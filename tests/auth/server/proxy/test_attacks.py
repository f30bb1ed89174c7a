"""Attacks on the proxy: each is refused, and nothing of it is stored.

Consent that is skipped, redirect tricks, fixation of state, injected and replayed codes, mix-up,
reused refresh tokens, codes and tokens of others, CSRF, framing, scripts in the names of clients.
"""

import asyncio
import base64
import html
import itertools
import secrets
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from auth.proxied import ORIGIN, READ, REDIRECT, Browser, HttpReply, ProxySetup, proxied, send
from auth.upstream import ISSUER, LOGIN_PAGE, UpstreamReplica, query_of
from colonnade import Protection
from colonnade.auth.client.steps import FlowContext
from colonnade.auth.client.tokens import dpop_proof
from colonnade.auth.jose import SigningKey, generate_key
from colonnade.auth.server.proxy.authorize import AuthorizationDetails, LoginState
from colonnade.auth.server.proxy.grants import REUSE_S, UpstreamLogin
from colonnade.auth.server.proxy.provider import UpstreamTokens
from colonnade.auth.server.proxy.proxy import OAuthProxy
from colonnade.auth.server.proxy.signing_keys import SigningKeyRecord, SigningKeyRecords
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.store.memory import MemoryStore
from live import live

EVIL = "https://evil.example/callback"


def is_page(reply: HttpReply) -> bool:
    """Whether it is an error page, which leads nowhere."""
    return reply.status in (400, 403) and not reply.next_url and "text/html" in str(reply.headers)


# ---------------------------------------------------------------- consent


@pytest.mark.spec("R0341", "R1262", "R1264", "R1274")
@live
async def test_the_provider_is_asked_only_after_the_user_approved_this_client() -> None:
    async with proxied() as setup:
        browser = setup.browser()
        await setup.log_in(await setup.register(), browser)
        # The confused deputy: the provider would skip its own page in this browser.
        evil = await setup.register(EVIL)
        reply = await browser.get(setup.authorization_url(evil))
        assert reply.form
        assert not reply.next_url
        assert LOGIN_PAGE not in reply.text
        assert setup.replica.counts["logins"] == 1


@pytest.mark.spec("R0339", "R1263", "R1265", "R1274")
@live
async def test_an_approval_is_remembered_for_its_client_redirect_scopes_browser_and_user() -> None:
    async with proxied() as setup:
        browser = setup.browser()
        other_uri = "https://app.example/other"
        client = await setup.register(REDIRECT, other_uri)
        await setup.log_in(client, browser)
        url = setup.authorization_url(client)
        assert (await browser.get(url)).next_url.startswith(LOGIN_PAGE)
        assert (await browser.get(f"{url}&prompt=consent")).form
        assert (await setup.browser().get(url)).form
        assert (await browser.get(setup.authorization_url(client, redirect_uri=other_uri))).form
        assert (await browser.get(setup.authorization_url(client, scope="notes:write"))).form
        # Another user of the same browser: the approval of ann does not count for bob.
        reply = await browser.get(url)
        reply = await browser.get(setup.replica.log_in(reply.next_url, "bob"))
        assert reply.form
        assert "another user" in reply.text
        assert (await browser.get(url)).form
        tokens = await setup.log_in(client, browser, "bob")
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#bob"
        setup.clock.forward(31 * 24 * 3600)
        assert (await browser.get(url)).status in (200, 400)


@live
async def test_a_denied_request_goes_back_to_the_client_and_not_to_the_provider() -> None:
    async with proxied() as setup:
        client = await setup.register()
        url = setup.authorization_url(client)
        answer = query_of(await setup.browser().authorize(url, decision="deny"))
        assert answer["error"] == "access_denied"
        assert (answer["state"], answer["iss"]) == ("client-state", ORIGIN)
        assert setup.replica.counts["logins"] == 0
        browser = setup.browser()
        await setup.log_in(client, browser)
        await browser.decide(await browser.get(f"{url}&prompt=consent"), "deny")
        assert (await browser.get(url)).form  # what was approved before is not any more


@pytest.mark.spec("R1269")
@live
async def test_a_decision_needs_the_form_of_this_browser_from_this_origin_once() -> None:
    async with proxied() as setup:
        client = await setup.register()
        url = setup.authorization_url(client)
        mine, theirs = setup.browser(), setup.browser()
        page, other = await mine.get(url), await theirs.get(url)
        for browser, form in ((mine, other), (theirs, page)):  # the form of another browser
            again = await browser.decide(form)
            assert (again.next_url, "decide once more" in again.text) == ("", True)
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            assert is_page(await mine.decide(page, **headers))
        stranger = setup.browser()
        assert is_page(await stranger.decide(page))  # without any cookie
        empty = HttpReply(200, [], page.body.replace(page.form["request"].encode(), b"x" * 40))
        assert is_page(await mine.decide(empty))
        assert is_page(await mine.decide(page, decision="maybe"))
        assert (await mine.decide(page)).next_url.startswith(LOGIN_PAGE)
        assert is_page(await mine.decide(page))  # used before
        late = await mine.get(url)
        setup.clock.forward(541)
        assert is_page(await mine.decide(late))
        assert setup.replica.counts["logins"] == 0


@live
async def test_pages_that_a_new_browser_loads_at_once_can_all_be_approved() -> None:
    async with proxied() as setup:
        clients = [await setup.register() for _ in range(2)]
        browser = setup.browser()
        pages = await asyncio.gather(
            *(browser.get(setup.authorization_url(client)) for client in clients)
        )
        for page in pages:  # the cookie of one of them has replaced that of the other
            reply = await browser.decide(page)
            if reply.form:
                reply = await browser.decide(reply)
            assert reply.next_url.startswith(LOGIN_PAGE)
            assert (await browser.get(setup.replica.log_in(reply.next_url))).status == 200
        for client in clients:
            assert (await browser.get(setup.authorization_url(client))).status == 303


@pytest.mark.spec("R1270", "R1271", "R1272", "R1273")
@live
async def test_pages_cannot_be_framed_run_nothing_and_have_guarded_cookies() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        page = await browser.get(setup.authorization_url(client))
        decided = await browser.decide(page)
        broken = await browser.get(f"{ORIGIN}/oauth/authorize")
        for reply in (page, decided, broken):
            policy = reply.header("content-security-policy")
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "form-action 'self'" in policy
            assert "script" not in policy + reply.text
            assert "unsafe" not in policy
            assert reply.header("x-frame-options") == "DENY"
            assert reply.header("cache-control") == "no-store"
            assert reply.header("access-control-allow-origin") == ""
        for line in [*page.cookies.values(), *decided.cookies.values()]:
            assert line.startswith("__Host-colonnade-")
            assert "Path=/;" in line
            for word in ("Secure", "HttpOnly", "SameSite=Lax"):
                assert f" {word}" in line
            # Random, with nothing of the request in it.
            assert client["client_id"] not in line


NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><script>alert(1)</script>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "javascript:alert(1)",
    "a\u202egnp.exe",
    "a\u200bb\x00\x1b[31m",
    "<svg/onload=alert(1)>",
    "&lt;script&gt;",
    "x" * 10_000,
]


@pytest.mark.spec("R0448", "R1266", "R1267", "R1268")
@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@live
async def test_the_page_shows_what_a_client_says_and_never_runs_it(name: str) -> None:
    async with proxied() as setup:
        uri = "https://app.example/callback?a=%3Cscript%3E&b='onload=x"
        client = await setup.register(uri, client_name=name, logo_uri="https://evil.example/x.png")
        page = await setup.browser().get(setup.authorization_url(client))
        assert "<bdi>" in page.text
        for bad in (
            "<script",
            "<img",
            "<svg",
            "onerror=alert(1)>",
            "' onmouseover",
            "evil.example",
        ):
            assert bad not in page.text
        assert not any(ord(one) < 32 or one in "\u202e\u200b" for one in page.text)
        assert "app.example" in page.text
        assert "https://app.example/callback?a=%3Cscript%3E&amp;b=&#x27;onload=x" in page.text
        assert all(word in page.text for word in ("Example ID", "openid", "profile", READ))
        assert len(page.body) < 8000


@pytest.mark.spec("R1266")
@live
async def test_the_page_names_the_client_and_no_other() -> None:
    async with proxied() as setup:
        for name in ("Notes & Co", "Ünicode Reader"):
            client = await setup.register(client_name=name)
            page = await setup.browser().get(setup.authorization_url(client))
            shown = f"<bdi>{html.escape(name)}</bdi>"
            assert page.text.count(shown) == page.text.count("<bdi>") == 2
        unnamed = await setup.browser().get(
            setup.authorization_url(await setup.register(client_name=""))
        )
        assert "An application without a name" in unnamed.text


@pytest.mark.spec("R0446")
@live
async def test_the_page_warns_of_a_redirect_that_stays_on_the_computer() -> None:
    async with proxied() as setup:
        local = await setup.register("http://127.0.0.1:4000/callback")
        page = await setup.browser().get(setup.authorization_url(local))
        assert "runs on this computer" in page.text
        remote = await setup.browser().get(setup.authorization_url(await setup.register()))
        assert "runs on this computer" not in remote.text
    async with proxied(redirect_schemes=["cursor"]) as setup:
        # What stands after a private-use scheme is no host that receives the code.
        program = await setup.register("cursor://accounts.google.com/callback")
        page = await setup.browser().get(setup.authorization_url(program))
        assert "runs on this computer" in page.text
        assert "<strong>cursor:</strong>" in page.text


# ---------------------------------------------------------------- redirects


def tricks() -> list[str]:
    """URLs that some parser reads as the registered one, or that begin or end like it."""
    hosts = ["app.example", "evil.example", "app.example.evil.example", "evilapp.example"]
    schemes = ["https://", "http://", "HTTPS://", "https:", "https:/", "https:///", "//", "ftp://"]
    schemes += [
        "javascript:",
        "data:text/html,",
        "file:///",
        "blob:https://",
        "view-source:https://",
    ]
    users = ["", "app.example@", "app.example:443@", "app.example%40", "app.example\\@", "@"]
    ends = ["", ":443", ":444", ":0443", ".", "%00", "%2e", "\t", " ", "\\", "#", "?", ";"]
    paths = ["/callback", "/callback/", "/Callback", "/callback%2f", "/callback/../callback"]
    paths += ["/callback?x=1", "/callback#x", "//callback", "/./callback", "/callback;x", "", "/"]
    parts = itertools.product(schemes, users, hosts, ends, paths)
    return [url for one in parts if (url := "".join(one)) != REDIRECT]


@pytest.mark.spec("R0215", "R0227", "R0326", "R0336", "R0338", "R1275", "R1276", "R1277")
@live
async def test_no_redirect_but_the_registered_one_is_ever_used() -> None:
    forms = tricks()
    assert len(forms) > 4000
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        sample = forms[:: max(1, len(forms) // 4500)]
        for uri in sample:
            reply = await browser.get(setup.authorization_url(client, redirect_uri=uri))
            assert reply.status == 400, uri
            assert not reply.next_url
            assert not reply.form
        for error in ({"response_type": "token"}, {"scope": "x" * 3000, "state": "s" * 3000}):
            wrong = setup.authorization_url(client, redirect_uri=EVIL, **error)
            assert is_page(await browser.get(wrong))
        missing = await browser.get(setup.authorization_url(client, redirect_uri=""))
        assert is_page(missing)


@pytest.mark.spec("R0336")
@live
async def test_only_the_port_of_a_loopback_redirect_may_differ() -> None:
    async with proxied() as setup:
        client = await setup.register("http://127.0.0.1:4000/cb?a=1")
        browser = setup.browser()
        for uri, good in (
            ("http://127.0.0.1:4001/cb?a=1", True),
            ("http://127.0.0.1/cb?a=1", True),
            ("http://127.0.0.1:0/cb?a=1", False),
            ("http://127.0.0.1:70000/cb?a=1", False),
            ("http://127.0.0.1:4000/cb?a=2", False),
            ("http://127.0.0.1:4000/cb/x?a=1", False),
            ("http://localhost:4000/cb?a=1", False),
            ("https://127.0.0.1:4000/cb?a=1", False),
            ("http://127.0.0.1:4000@evil.example/cb?a=1", False),
            ("http://127.0.0.1:4000.evil.example/cb?a=1", False),
        ):
            reply = await browser.get(setup.authorization_url(client, redirect_uri=uri))
            assert bool(reply.form) is good, uri


@pytest.mark.spec("R0215")
@pytest.mark.parametrize(
    "uri",
    [
        "http://app.example/cb",
        "javascript:alert(1)",
        "data:text/html,x",
        "cursor://cb",
        "https://app.example/cb#x",
        "https://ann@app.example/cb",
        "https://app.example\\@evil.example/",
        "https://app.example/ cb",
        "https:///cb",
        "https://app.example:0/",
        "https://app.example:99999/",
        "//app.example/cb",
        "/cb",
        "https://ex\u00e4mple.example/",
        "https://app.example/" + "x" * 2048,
        "https://app.example/cb?code=x",
        "https://app.example/cb?a=b&%69ss=https://evil.example",
        "https://app.example/cb?state",
        7,
    ],
)
@live
async def test_a_redirect_that_is_neither_https_nor_loopback_is_not_registered(uri: Any) -> None:
    async with proxied() as setup:
        reply = await setup.try_register(uri)
        assert (reply.status, reply.json["error"]) == (400, "invalid_redirect_uri")


@live
async def test_what_strangers_register_is_bounded_and_expires() -> None:
    async with proxied(max_registrations_per_hour=3) as setup:
        many = await setup.try_register(*[f"https://app.example/{n}" for n in range(11)])
        assert many.status == 400
        large = await setup.try_register(client_name="x" * 70_000)
        assert large.status == 413
        client = await setup.register(client_name="x" * 5000)
        assert len(client["client_name"]) <= 200
        used = await setup.register()
        await setup.log_in(used, setup.browser())
        await setup.register()
        full = await setup.try_register()
        assert (full.status, full.header("retry-after")) == (503, "5")
        setup.clock.forward(25 * 3600)
        assert is_page(await setup.browser().get(setup.authorization_url(client)))
        assert (await setup.browser().get(setup.authorization_url(used))).form
        await setup.register()
    async with proxied(registration=False) as closed:
        assert (await closed.try_register()).status == 403


@live
async def test_a_confidential_client_proves_its_secret() -> None:
    async with proxied() as setup:
        client = await setup.register(token_endpoint_auth_method="client_secret_post")
        assert client["client_secret"]
        for secret in ("", "wrong"):
            code = await setup.code(client, setup.browser())
            reply = await setup.exchange({**client, "client_secret": secret}, code)
            assert (reply.status, reply.json["error"]) == (401, "invalid_client")
        assert (await setup.exchange(client, code)).status == 200


# ---------------------------------------------------------------- the request


@pytest.mark.spec("R0300", "R0717")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"response_type": ""}, "unsupported_response_type"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": ""}, "invalid_request"),
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"resource": f"{ORIGIN}/mcp/../other"}, "invalid_target"),
        ({"request": "x"}, "request_not_supported"),
        ({"request_uri": "https://evil.example"}, "request_uri_not_supported"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"prompt": "none"}, "interaction_required"),
    ],
)
@live
async def test_a_wrong_request_is_answered_at_the_verified_redirect(
    change: dict[str, str], error: str
) -> None:
    async with proxied() as setup:
        client = await setup.register("http://127.0.0.1:4000/callback")
        reply = await setup.browser().get(setup.authorization_url(client, **change))
        assert reply.status == 303
        assert reply.next_url.startswith("http://127.0.0.1:4000/callback?")
        answer = query_of(reply.next_url)
        assert (answer["error"], answer["iss"]) == (error, ORIGIN)
        assert answer["state"] == "client-state"
        # Anyone can register a page elsewhere: the user decides whether to go there.
        client = await setup.register()
        reply = await setup.browser().get(setup.authorization_url(client, **change))
        assert is_page(reply)
        link = html.unescape(reply.text.partition('<a href="')[2].partition('"')[0])
        assert link.startswith(f"{REDIRECT}?")
        assert query_of(link) == answer
        assert "Back to the application at app.example" in reply.text


@pytest.mark.spec("R0339")
@live
async def test_a_browser_that_approved_a_client_is_sent_back_to_it_with_errors() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        await setup.log_in(client, browser)
        reply = await browser.get(setup.authorization_url(client, prompt="none"))
        assert query_of(reply.header("location"))["error"] == "interaction_required"


@live
async def test_parameters_that_are_not_known_are_ignored_whatever_they_contain() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        url = setup.authorization_url(client) + "&login_hint=j%C3%BCrgen&ui_locales=%FF"
        page = await browser.get(url)
        assert page.form
        asked = query_of((await browser.decide(page)).next_url)
        # As Microsoft describes an error.
        told = "AADSTS65004: User declined to consent.\r\nTrace ID: 1\r\nTimestamp: 2"
        fields = {"error": "access_denied", "error_description": told, "state": asked["state"]}
        reply = await browser.get(f"{ORIGIN}/oauth/callback?{urlencode(fields)}")
        answer = query_of(reply.next_url)
        assert answer["error"] == "access_denied"
        assert "AADSTS" not in str(answer)


def test_no_record_and_no_settings_show_a_secret() -> None:
    proxy = OAuthProxy(
        UpstreamReplica(f"{ORIGIN}/oauth/callback").provider(),
        introspection=("notes", "canary-secret"),
    )
    Protection(f"{ORIGIN}/mcp", proxy)
    key = SigningKeyRecord("one", "canary-secret", 0.0)
    tokens = UpstreamTokens("canary-secret", None, "canary-secret")
    details = AuthorizationDetails(
        client_id="x", redirect_uri=REDIRECT, state="canary-secret", challenge="", scopes=()
    )
    for one in (
        proxy.settings,
        key,
        SigningKeyRecords(keys=(key,), expires_at=0.0),
        UpstreamLogin(tokens=tokens, checked_at=0.0, issued_at=0.0, expires_at=0.0),
        LoginState(
            details=details,
            session="canary-secret",
            browser="canary-secret",
            verifier="canary-secret",
            nonce="canary-secret",
            expires_at=0.0,
        ),
    ):
        assert "canary" not in repr(one)
        assert "canary" not in repr(list(one.__rich_repr__()))


@live
async def test_a_parameter_that_is_there_twice_and_unknown_clients_get_a_page() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        url = setup.authorization_url(client)
        for more in (f"&redirect_uri={quote(EVIL, safe='')}", "&client_id=x", "&state=%ff"):
            assert is_page(await browser.get(url + more))
        for id in ("", "unknown", "x" * 4000):
            assert is_page(await browser.get(setup.authorization_url({**client, "client_id": id})))


# ---------------------------------------------------------------- state


async def stored(setup: ProxySetup) -> set[str]:
    """The names of all that the proxy has stored."""
    return set(await setup.store.names(SERVER_PRINCIPAL, "", "", 1000))


async def started(setup: ProxySetup, client: dict[str, Any], browser: Any) -> str:
    """The URL of the provider's page, after the user's approval."""
    page = await browser.get(setup.authorization_url(client))
    return (await browser.decide(page)).next_url if page.form else page.next_url


@pytest.mark.spec("R1278", "R1279", "R1280", "R1284")
@live
async def test_state_is_random_and_exists_only_after_the_approval() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        before = await stored(setup)
        await browser.get(setup.authorization_url(client))
        page = await browser.get(setup.authorization_url(client))  # the browser is known
        assert all("-login-" not in name for name in browser.cookies)
        assert await stored(setup) == before
        decided = await browser.decide(page)
        assert any("-login-" in name for name in decided.cookies)
        assert any(" state " in name for name in await stored(setup) - before)
        states = {query_of(decided.next_url)["state"]}
        for other in (browser, browser, setup.browser(), setup.browser()):
            states.add(query_of(await started(setup, client, other))["state"])
        assert len(states) == 5  # one for each request, not for each browser
        assert all(len(state) == 43 for state in states)


@pytest.mark.spec("R1281", "R1282", "R1283")
@live
async def test_a_state_is_good_once_in_its_own_browser_for_ten_minutes() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        back = setup.replica.log_in(await started(setup, client, browser))
        # Fixation: the victim's browser is sent to the attacker's callback.
        assert is_page(await setup.browser().get(back))
        victim = setup.browser()
        await started(setup, client, victim)
        assert is_page(await victim.get(back))
        for state in ("", "wrong", "x" * 43):
            code = query_of(back)["code"]
            query = urlencode({"code": code, "state": state})
            assert is_page(await browser.get(f"{ORIGIN}/oauth/callback?{query}"))
        kept = dict(browser.cookies)
        assert (await browser.get(back)).next_url.startswith(REDIRECT)
        browser.cookies = kept
        assert is_page(await browser.get(back))  # used
        late = setup.replica.log_in(await started(setup, client, browser))
        setup.clock.forward(601)
        assert is_page(await browser.get(late))
        assert setup.replica.counts["codes"] == 1


@live
async def test_an_upstream_code_of_another_login_is_refused() -> None:
    """Code injection at the callback: PKCE and the nonce bind a code to its state."""
    async with proxied() as setup:
        client, attacker, victim = await setup.register(), setup.browser(), setup.browser()
        stolen = query_of(setup.replica.log_in(await started(setup, client, victim)))["code"]
        mine = query_of(setup.replica.log_in(await started(setup, client, attacker), "eve"))
        query = urlencode({"code": stolen, "state": mine["state"]})
        reply = await attacker.get(f"{ORIGIN}/oauth/callback?{query}")
        assert query_of(reply.next_url)["error"] == "access_denied"


@live
async def test_a_response_of_another_provider_is_refused() -> None:
    """Mix-up: `iss` of the response names another issuer."""
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        url = await started(setup, client, browser)
        reply = await browser.get(setup.replica.log_in(url, iss="https://evil.example"))
        assert query_of(reply.next_url)["error"] == "server_error"
        assert setup.replica.counts["codes"] == 0
        url = await started(setup, client, browser)
        reply = await browser.get(setup.replica.log_in(url, iss=ISSUER))
        assert query_of(reply.next_url)["code"]


# ---------------------------------------------------------------- codes and tokens


@live
async def test_a_code_is_good_once_for_its_client_redirect_and_verifier() -> None:
    async with proxied() as setup:
        client, other = await setup.register(), await setup.register()
        for change in (
            {"client": other},
            {"redirect_uri": "https://app.example/other"},
            {"verifier": "w" * 43},
            {"verifier": ""},
            {"resource": "https://other.example/mcp"},
            {"code": "x" * 43},
        ):
            good: dict[str, Any] = {"client": client, "verifier": "v" * 43}
            good["code"] = await setup.code(client, setup.browser())
            sent: dict[str, Any] = {**good, **change}
            reply = await setup.exchange(**sent)
            assert reply.status == 400, change
            assert "access_token" not in reply.json
        late = await setup.code(client, setup.browser())
        setup.clock.forward(61)
        assert (await setup.exchange(client, late)).json["error"] == "invalid_grant"


@pytest.mark.spec("R0225")
@live
async def test_a_code_that_is_used_twice_takes_back_what_it_gave(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxied() as setup:
        client = await setup.register()
        code = await setup.code(client, setup.browser())
        tokens = (await setup.exchange(client, code)).json
        assert (await setup.exchange(client, code)).json["error"] == "invalid_grant"
        assert "an authorization code was used twice; its grant has ended" in caplog.text
        refused = await setup.refresh(client, tokens["refresh_token"])
        assert refused.json["error"] == "invalid_grant"
        assert (await setup.call(tokens["access_token"])).status == 401


class PausingStore(MemoryStore):
    """Of two requests with one code, the second reads the grant before the first makes it active,
    and once more afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first_reads, self.second_has_read, self.first_is_done = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self.reads = -1  # before the code is used

    async def get(self, principal: str, key: str) -> bytes | None:
        if " grant " in key and self.reads >= 0:
            self.reads += 1
            if self.reads == 1:
                self.first_reads.set()
                await self.second_has_read.wait()
            elif self.reads == 2:
                found = await super().get(principal, key)
                self.second_has_read.set()
                await self.first_is_done.wait()
                return found
        return await super().get(principal, key)


@live
async def test_a_code_that_is_used_twice_at_the_same_moment_gives_tokens_once_at_most() -> None:
    store = PausingStore()
    async with proxied(store=store) as setup:
        client = await setup.register()
        code = await setup.code(client, setup.browser())
        store.reads = 0
        first = asyncio.create_task(setup.exchange(client, code))
        await store.first_reads.wait()
        second = asyncio.create_task(setup.exchange(client, code))
        tokens = (await first).json
        store.first_is_done.set()
        assert (await second).json["error"] == "invalid_grant"
        refused = await setup.refresh(client, tokens["refresh_token"])
        assert refused.json["error"] == "invalid_grant"


@pytest.mark.spec("R0331")
@live
async def test_a_refresh_token_that_was_replaced_ends_the_grant_once_its_successor_was_used() -> (
    None
):
    async with proxied() as setup:
        client = await setup.register()
        first = await setup.log_in(client, setup.browser())
        await setup.call(first["access_token"])
        second = (await setup.refresh(client, first["refresh_token"])).json
        # The response was lost: the client tries again, and goes on.
        again = (await setup.refresh(client, first["refresh_token"])).json
        assert await setup.whoami(again["access_token"])
        setup.clock.forward(REUSE_S)
        stolen = await setup.refresh(client, first["refresh_token"])
        assert stolen.json["error"] == "invalid_grant"
        setup.clock.forward(11)  # replicas cache a verified token for ten seconds
        for tokens in (second, again):
            assert (await setup.call(tokens["access_token"])).status == 401
            refused = await setup.refresh(client, tokens["refresh_token"])
            assert refused.json["error"] == "invalid_grant"


@live
async def test_a_client_that_refreshes_for_each_of_several_calls_at_once_stays_logged_in() -> None:
    """The TypeScript SDK does; what the first of them got is used before the last of them begins."""
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        used = ""
        for _ in range(3):
            setup.clock.forward(901)
            assert (await setup.call(tokens["access_token"])).status == 401
            used = tokens["refresh_token"]
            # Some have read the token of before, and some the one that was just stored.
            for each in (used, used, "", used, "", used):
                reply = await setup.refresh(client, each or tokens["refresh_token"])
                assert reply.status == 200, reply.text
                tokens = reply.json
                assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        # A minute after the first of them they are not accepted, though others came later.
        setup.clock.forward(REUSE_S - 1)
        assert (await setup.refresh(client, used)).status == 200
        tokens = (await setup.refresh(client, tokens["refresh_token"])).json
        setup.clock.forward(1)
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert (await setup.refresh(client, used)).json["error"] == "invalid_grant"
        assert (await setup.refresh(client, tokens["refresh_token"])).status == 400


@pytest.mark.parametrize("last", range(4))
@live
async def test_responses_of_several_refreshes_at_once_may_arrive_in_any_order(last: int) -> None:
    """A client keeps the refresh token of the response that arrives last, whenever it was sent."""
    async with proxied() as setup:
        client = await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        for _ in range(3):
            setup.clock.forward(901)
            replies = [(await setup.refresh(client, tokens["refresh_token"])).json]
            replies += [(await setup.refresh(client, tokens["refresh_token"])).json]
            # Another call has read what the first one has stored.
            for _ in range(2):
                replies += [(await setup.refresh(client, replies[-1]["refresh_token"])).json]
            for reply in replies:
                assert await setup.whoami(reply["access_token"]) == f"{ISSUER}#ann"
            tokens = replies[last]


@live
async def test_a_refresh_token_of_an_earlier_minute_is_not_accepted() -> None:
    async with proxied() as setup:
        client = await setup.register()
        first = await setup.log_in(client, setup.browser())
        second = (await setup.refresh(client, first["refresh_token"])).json
        setup.clock.forward(REUSE_S)
        third = (await setup.refresh(client, second["refresh_token"])).json
        assert (await setup.refresh(client, second["refresh_token"])).status == 200
        stolen = await setup.refresh(client, first["refresh_token"])
        assert stolen.json["error"] == "invalid_grant"
        assert (await setup.refresh(client, third["refresh_token"])).status == 400


@live
async def test_tokens_of_another_client_or_with_more_scopes_are_refused() -> None:
    async with proxied() as setup:
        client, other = await setup.register(), await setup.register()
        tokens = await setup.log_in(client, setup.browser())
        refused = await setup.refresh(other, tokens["refresh_token"])
        assert refused.json["error"] == "invalid_grant"
        wider = await setup.refresh(client, tokens["refresh_token"], scope="notes:write")
        assert wider.json["error"] == "invalid_scope"
        revoked = await setup.post_form("revoke", other, token=tokens["refresh_token"])
        assert revoked.json["error"] == "unauthorized_client"
        for token in ("", "x", tokens["access_token"], tokens["refresh_token"][:-2] + "AA"):
            assert (await setup.refresh(client, token)).status == 400
        assert (await setup.refresh(client, tokens["refresh_token"])).status == 200
        assert (await setup.call(tokens["refresh_token"])).status == 401


@live
async def test_codes_and_tokens_that_are_bound_to_a_key_need_its_proof() -> None:
    async with proxied(introspection=("notes", "secret")) as setup:
        client = await setup.register()
        flow = FlowContext(setup.clock, lambda: secrets.token_urlsafe(32))
        mine, other = generate_key(), generate_key()

        def proof(key: SigningKey, url: str = f"{ORIGIN}/oauth/token") -> str:
            return dpop_proof(key, flow, "POST", url)

        for wrong in ("", proof(other), proof(mine, f"{ORIGIN}/oauth/revoke"), "x"):
            code = await setup.code(client, setup.browser(), dpop_jkt=mine.thumbprint)
            assert (await setup.exchange(client, code, proof=wrong)).status == 400
        code = await setup.code(client, setup.browser(), dpop_jkt=mine.thumbprint)
        used = proof(mine)
        tokens = (await setup.exchange(client, code, proof=used)).json
        assert tokens["token_type"] == "DPoP"
        assert (await setup.call(tokens["access_token"])).status == 401  # as a bearer token
        for wrong in ("", proof(other), used):
            refused = await setup.refresh(client, tokens["refresh_token"], proof=wrong)
            assert refused.status == 400
        again = await setup.refresh(client, tokens["refresh_token"], proof=proof(mine))
        assert again.status == 200
        headers = {
            "authorization": "Basic " + base64.b64encode(b"notes:secret").decode(),
            "content-type": "application/x-www-form-urlencoded",
        }
        body = f"token={tokens['access_token']}".encode()
        known = await send(setup.app, "POST", f"{ORIGIN}/oauth/introspect", headers, body)
        assert known.json["cnf"] == {"jkt": mine.thumbprint}  # RFC 9449, 6.2


@live
async def test_a_token_of_another_server_on_the_same_store_and_keys_is_refused() -> None:
    async with proxied() as one:
        same: Any = {"clock": one.clock, "store": one.store, "replica": one.replica}
        other_place: Any = {"resource": f"{ORIGIN}/other", "options": {"path": "/other"}}
        client = await one.register()
        tokens = await one.log_in(client, one.browser())
        async with proxied(**same, **other_place) as two:
            url = f"{ORIGIN}/other"
            headers = {
                "authorization": f"Bearer {tokens['access_token']}",
                "content-type": "application/json",
                "accept": "application/json, text/event-stream",
            }
            reply = await send(two.app, "POST", url, headers, b"{}")
            assert reply.status == 401
            assert "not for this server" in reply.header("www-authenticate")


def browser_at(setup: ProxySetup, browser: Browser) -> Browser:
    """The same browser, at another replica of the server."""
    same = setup.browser()
    same.cookies = browser.cookies
    return same


@live
async def test_a_login_at_one_provider_is_none_at_another_that_is_configured_later() -> None:
    async with proxied() as one:
        client, browser = await one.register(), one.browser()
        tokens = await one.log_in(client, browser)
        other = UpstreamReplica(f"{ORIGIN}/oauth/callback")
        other.issuer = "https://other.example"  # which has a user of the same name
        async with proxied(store=one.store, clock=one.clock, replica=other) as two:
            assert (await two.call(tokens["access_token"])).status == 401
            refused = await two.refresh(client, tokens["refresh_token"])
            assert refused.json["error"] == "invalid_grant"
            page = await browser_at(two, browser).get(two.authorization_url(client))
            assert page.form  # the approval was for a login at the first
            assert not other.counts  # no token of the first was sent there
        assert await one.whoami(tokens["access_token"]) == f"{ISSUER}#ann"


@live
async def test_browser_clients_may_call_the_token_endpoint_and_no_page() -> None:
    async with proxied() as setup:
        headers = {"origin": "https://web.example", "access-control-request-method": "POST"}
        allowed = await send(setup.app, "OPTIONS", f"{ORIGIN}/oauth/token", headers)
        assert (allowed.status, allowed.header("access-control-allow-origin")) == (204, "*")
        for path in ("authorize", "consent", "callback"):
            reply = await send(setup.app, "OPTIONS", f"{ORIGIN}/oauth/{path}", headers)
            assert reply.status == 405
            assert reply.header("access-control-allow-origin") == ""
        foreign = await send(setup.app, "GET", "https://evil.example/oauth/jwks")
        assert foreign.status == 403
