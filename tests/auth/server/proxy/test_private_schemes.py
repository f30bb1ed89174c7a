"""Redirects to programs of the user's computer by a private-use URI scheme (RFC 8252, 7.1).

They are for schemes that the server allows. The code gets there by a page that stays open in the
browser: it has a link, and goes on by itself.
"""

import html
import re
from typing import Any

import pytest

from auth.proxied import ORIGIN, HttpReply, proxied
from auth.upstream import ISSUER, query_of
from colonnade import InvalidArgument
from colonnade.auth import OAuthProxy, github
from colonnade.auth.server.client_metadata import FORBIDDEN_SCHEMES
from colonnade.auth.server.proxy.consent import PAGE_HEADERS
from live import live

# As editors and mobile applications have them.
URIS = (
    "cursor://anysphere.cursor-mcp/oauth/callback",
    "com.example.app:/callback",
    "com.example.app:/callback?window=1",
    "com.example.app://callback",
    "com.example.app:callback",
    "vscode://publisher.extension/did-authenticate?windowid=2",
)
SCHEMES = ("cursor", "com.example.app", "vscode")


def assert_leads_to(reply: HttpReply, uri: str) -> dict[str, str]:
    """See that a page leads to a URI, by itself and by a link, and in no other way; the query."""
    assert (reply.status, reply.header("location")) == (200, "")
    kept = set(PAGE_HEADERS)
    assert kept <= set(reply.headers), "the headers of every page: no script, no frame, no cache"
    assert {name for name, _ in set(reply.headers) - kept} <= {"set-cookie", "content-length"}
    (link,) = re.findall(r'<a href="([^"]*)">Back to the application</a>', reply.text)
    (refresh,) = re.findall(r'<meta http-equiv="refresh" content="0;url=([^"]*)">', reply.text)
    assert link == refresh
    assert html.unescape(link).startswith(f"{uri}{'&' if '?' in uri else '?'}")
    assert "you can close this page" in reply.text
    assert not re.search(r"<script|<form|<img|<iframe|<link|<base|\son\w+=|src=", reply.text)
    return query_of(html.unescape(link))


@pytest.mark.parametrize("uri", URIS)
@live
async def test_a_login_leads_to_a_program_by_a_page_that_stays(uri: str) -> None:
    async with proxied(redirect_schemes=SCHEMES) as setup:
        client, browser = await setup.register(uri), setup.browser()
        shown = await browser.get(setup.authorization_url(client))
        assert f"<strong>{uri.partition(':')[0]}:</strong>" in shown.text
        assert f"<code>{html.escape(uri)}</code>" in shown.text
        assert "runs on this computer" in shown.text
        asked = (await browser.decide(shown)).next_url
        answer = assert_leads_to(await browser.get(setup.replica.log_in(asked)), uri)
        assert (answer["state"], answer["iss"]) == ("client-state", ORIGIN)
        tokens = await setup.exchange(client, answer["code"])
        assert await setup.whoami(tokens.json["access_token"]) == f"{ISSUER}#ann"


@pytest.mark.parametrize("uri", URIS)
@live
async def test_a_login_that_fails_leads_to_a_program_in_the_same_way(uri: str) -> None:
    async with proxied(redirect_schemes=SCHEMES) as setup:
        client, browser = await setup.register(uri), setup.browser()
        shown = await browser.get(setup.authorization_url(client))
        answer = assert_leads_to(await browser.decide(shown, "deny"), uri)
        assert (answer["error"], "code" in answer) == ("access_denied", False)
        shown = await browser.get(setup.authorization_url(client))
        asked = (await browser.decide(shown)).next_url
        refused = setup.replica.log_in(asked, error="server_error", code="")
        answer = assert_leads_to(await browser.get(refused), uri)
        assert (answer["error"], answer["state"]) == ("server_error", "client-state")


@live
async def test_a_page_of_the_provider_or_of_a_website_is_not_said_to_stay() -> None:
    async with proxied() as setup:
        client, browser = await setup.register(), setup.browser()
        on = await browser.decide(await browser.get(setup.authorization_url(client)))
        back = await browser.get(setup.replica.log_in(on.next_url))
        assert back.next_url.startswith("https://app.example/")
        assert "close this page" not in on.text + back.text


@pytest.mark.parametrize(
    "other",
    [
        "com.example.app:/callback/",
        "com.example.app:/Callback",
        "com.example.app:///callback",
        "com.example.app://callback",
        "com.example.app:callback",
        "com.example.app:/callback?a=1",
        "com.example.app:/callback#x",
        "Com.example.app:/callback",
        "com.example.app2:/callback",
        "cursor:/callback",
        "javascript:/callback",
    ],
)
@live
async def test_a_private_redirect_is_compared_as_a_whole_string(other: str) -> None:
    async with proxied(redirect_schemes=SCHEMES) as setup:
        client = await setup.register("com.example.app:/callback")
        reply = await setup.browser().get(setup.authorization_url(client, redirect_uri=other))
        assert (reply.status, reply.next_url, reply.form) == (400, "", {})
        assert "is not one that the application has registered" in reply.text


@pytest.mark.parametrize(
    "uri",
    [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "java\tscript:alert(1)",
        " javascript:alert(1)",
        "javascript://cursor/%0aalert(1)",
        "data:text/html,x",
        "vbscript:msgbox(1)",
        "file:///etc/passwd",
        "blob:https://app.example/x",
        "about:blank",
        "filesystem:https://app.example/x",
        "view-source:https://app.example/",
        "intent://callback#Intent;scheme=cursor;end",
        "mailto:ann@example.com",
        "urn:ietf:wg:oauth:2.0:oob",
        "com.example.other:/callback",
        "CURSOR://callback",
        "cursor",
        "cursor:",
        "cursor:/call back",
        "cursor:/callback#x",
        "cursor:/callback\nx",
        'cursor:/"><script>alert(1)</script>',
        "cursor:/<svg>",
        "cursor:\\callback",
        "cursor://ann@host/callback",
        "cursor:/callback?code=x",
        "cursor:/callback?iss=https://evil.example",
    ],
)
@live
async def test_no_other_scheme_and_no_odd_form_of_one_is_registered(uri: Any) -> None:
    async with proxied(redirect_schemes=SCHEMES) as setup:
        reply = await setup.try_register(uri)
        assert (reply.status, reply.json["error"]) == (400, "invalid_redirect_uri")


@pytest.mark.parametrize(
    "scheme",
    [
        *sorted(FORBIDDEN_SCHEMES),
        *("http", "https", "JavaScript", "Cursor", "cursor:", "cursor://", "cursor/", "*"),
        *("", "c", "1cursor", "cur sor", "cursör", "cursor\n", "c" * 254),
    ],
)
def test_a_scheme_that_browsers_use_themselves_cannot_be_allowed(scheme: str) -> None:
    with pytest.raises(InvalidArgument, match="redirect_schemes"):
        OAuthProxy(github("id", "secret"), redirect_schemes=[scheme])


def test_browsers_run_or_read_these_schemes() -> None:
    assert {"javascript", "data", "file", "vbscript", "blob", "about", "intent"} < FORBIDDEN_SCHEMES


def test_a_scheme_may_be_a_long_domain_name_in_reverse() -> None:
    long = "com.googleusercontent.apps.123456789012-abcdefghijklmnopqrstuvwxyz012345"
    OAuthProxy(github("id", "secret"), redirect_schemes=[long])
