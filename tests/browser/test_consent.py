"""The consent page in a real browser: whole logins, and what clients try with their metadata.

Rules: these tests need a Chromium and run by `scripts/browser` only. The server, the provider and the
application of the user are real servers on loopback ports.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from auth.provider_replicas import ProviderReplica, replicated
from auth.proxied import (
    READ,
    REDIRECT,
    WRITE,
    LiveProxy,
    challenge_of,
    live_proxy,
    proxied,
    send,
    send_http,
)
from auth.upstream import LOGIN_PAGE, query_of
from certificates import Authority
from colonnade.auth.server.issuer import PROXY_CLIENT, DevelopmentIssuer
from colonnade.auth.server.proxy.consent import PAGE_HEADERS
from colonnade.auth.server.proxy.provider import Provider
from colonnade.cli.commands.issuer import issuer_server
from colonnade.transport.http_client.pool import HttpPool
from colonnade.transport.http_server.runner import HttpRunner, bind
from devtools import Chromium, Page, chromium
from live import live
from scripted_http_server import (
    AcceptedConnection,
    ReceivedRequest,
    ScriptedHttpServer,
    http_response,
    scripted_http_server,
)

pytestmark = [pytest.mark.slow, pytest.mark.battery]

HTML = "text/html; charset=utf-8"
ALLOW, DENY = 'button[value="approve"]', 'button[value="deny"]'
VERIFIER = "v" * 43
QUOTE = "'"
# The picture in the documentation.
MAX_PICTURE_BYTES = 80_000
# Each script says that it ran; {app} is a server that notices what is loaded.
SCRIPTS = (
    "<script>alert('ran')</script>",
    "</title><script>alert('ran')</script>",
    "</style><script>alert('ran')</script>",
    "</bdi></dd></dl><script>alert('ran')</script>",
    "<script src={app}/script.js></script>",
    "<script/src='{app}/script.js'></script>",
    "<ScRiPt>alert('ran')</sCrIpT>",
    "<scr<script>ipt>alert('ran')</scr</script>ipt>",
    "<img src=x onerror=alert('ran')>",
    "<img src={app}/picture.png>",
    "\"><img src=x onerror=alert('ran')>",
    "'><img src=x onerror=alert('ran')>",
    '" autofocus onfocus="alert(\'ran\')" x="',
    "' autofocus onfocus='alert(1)' x='",
    "` onfocus=alert('ran') autofocus x=`",
    "<svg onload=alert('ran')>",
    "<svg/onload=alert('ran')//",
    "<svg><script>alert&#40;'ran')</script>",
    "<svg><animate onbegin=alert('ran') attributeName=x dur=1s>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=alert('ran')>",
    "<body onload=alert('ran')>",
    "<iframe src=\"javascript:alert('ran')\"></iframe>",
    "<iframe srcdoc=\"<script>alert('ran')</script>\"></iframe>",
    "<iframe src={app}/frame></iframe>",
    "<object data=\"javascript:alert('ran')\"></object>",
    "<embed src=\"javascript:alert('ran')\">",
    "<a href=\"javascript:alert('ran')\">Allow</a>",
    "<base href={app}/>",
    "<link rel=stylesheet href={app}/style.css>",
    "<style>@import '{app}/style.css';</style>",
    "<meta http-equiv=refresh content='0;url={app}/refresh'>",
    "<meta http-equiv=refresh content=\"0;url=javascript:alert('ran')\">",
    "</form><form action={app}/form><button>Allow</button></form>",
    "<button formaction={app}/form value=approve>Allow</button>",
    "<input name=decision value=approve>",
    "<details open ontoggle=alert('ran')>",
    "<video><source onerror=alert('ran')></video>",
    "<audio src={app}/sound onloadstart=alert('ran')>",
    "<marquee onstart=alert('ran')>",
    "<template><script>alert('ran')</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert('ran')>\">",
    "<textarea><script>alert('ran')</script></textarea>",
    "<!--><img src=x onerror=alert('ran')>-->",
    "<![CDATA[><script>alert('ran')</script>]]>",
    "<?xml version='1.0'?><script>alert('ran')</script>",
    "&lt;script&gt;alert('ran')&lt;/script&gt;",
    "&#60;script&#62;alert('ran')&#60;/script&#62;",
    "&amp;lt;b&amp;gt;&quot;&apos;&nbsp;&copy",
    "\\u003cscript\\u003ealert('ran')\\u003c/script\\u003e",
    "%3Cscript%3Ealert('ran')%3C/script%3E",
    "+ADw-script+AD4-alert('ran')+ADw-/script+AD4-",
    "＜script＞alert('ran')＜/script＞",
    "javascript:alert('ran')",
    "${{alert('ran')}} {{{{alert('ran')}}}} <%= alert('ran') %>",
)
# Signs that a redirect URI can have (RFC 3986).
REDIRECT_TAILS = (
    "/'onmouseover='alert('ran')'",
    "/?x='%3E%3C'",
    "/?a=1&lt;script&gt;alert('ran')&lt;/script&gt;",
    "/?x=&quot;onfocus=alert('ran')&quot",
    "/%3Cscript%3Ealert('ran')%3C/script%3E",
    "/;url=javascript:alert('ran')",
    "/?0;url=javascript:alert('ran')//",
    "/,javascript:alert('ran')",
    "/?u=javascript:alert('ran')&copy;&notit;",
    "/[x](javascript:alert('ran'))",
)
UNUSABLE_REDIRECTS = (
    "javascript:alert('ran')",
    "JavaScript:alert('ran')",
    " javascript:alert('ran')",
    "data:text/html,<script>alert('ran')</script>",
    "vbscript:alert('ran')",
    "blob:https://app.example/x",
    'https://app.example/"><script>alert(1)</script>',
    "https://app.example/<svg onload=alert(1)>",
    "https://app.example/\nx",
    "https://app.example/?x=&#34;onfocus=alert('ran')",
)


# ---------------------------------------------------------------- servers


class UserApplication:
    """The application of the user: its redirect URI, and pages of a test; it notices all requests."""

    def __init__(self, server: ScriptedHttpServer) -> None:
        self.origin = f"http://127.0.0.1:{server.port}"
        self.server = server
        # Content and policy of pages, and whole responses, by path.
        self.pages: dict[str, tuple[str, str]] = {}
        self.answers: dict[str, bytes] = {}

    @property
    def redirect_uri(self) -> str:
        return f"{self.origin}/callback"

    def answer(self, request: ReceivedRequest) -> bytes:
        if request.path in self.answers:
            return self.answers[request.path]
        content, policy = self.pages.get(request.path, ("<title>application</title>", ""))
        lines = [f"Content-Security-Policy: {policy}"] if policy else []
        return http_response(200, content.encode(), HTML, *lines)

    @property
    def requests(self) -> list[str]:
        """The paths of the requests so far, without those for an icon."""
        paths = [one.path for one in self.server.received]
        return [path for path in paths if path != "/favicon.ico"]


@asynccontextmanager
async def user_application() -> AsyncGenerator[UserApplication]:
    """An application on a loopback port."""
    made: list[UserApplication] = []

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            await connection.send(made[0].answer(await connection.receive()))

    async with scripted_http_server(handler) as server:
        made.append(UserApplication(server))
        yield made[0]


class BrowserSetup:
    """A server with a proxy, an application, and a browser."""

    def __init__(self, live: LiveProxy, app: UserApplication, browser: Chromium) -> None:
        self.live = live
        self.app = app
        self.browser = browser

    async def try_register(self, *uris: str, **stated: Any) -> tuple[int, dict[str, Any]]:
        """Register a client; the status and the response."""
        wanted = {
            "redirect_uris": uris or [self.app.redirect_uri],
            "client_name": "Notes for Desktop",
            "token_endpoint_auth_method": "none",
            **stated,
        }
        kind = {"content-type": "application/json"}
        url = f"{self.live.origin}/oauth/register"
        reply = await send_http("POST", url, kind, json.dumps(wanted).encode())
        return reply.status, reply.json

    async def register(self, *uris: str, **stated: Any) -> dict[str, Any]:
        status, client = await self.try_register(*uris, **stated)
        assert status == 201, client
        return client

    def authorization_url(self, client: dict[str, Any], scope: str = READ) -> str:
        asked = {
            "response_type": "code",
            "client_id": client["client_id"],
            "redirect_uri": client["redirect_uris"][0],
            "code_challenge": challenge_of(VERIFIER),
            "code_challenge_method": "S256",
            "state": "client-state",
            "resource": self.live.url,
            "scope": scope,
        }
        return f"{self.live.origin}/oauth/authorize?{urlencode(asked)}"

    async def exchange(self, client: dict[str, Any], code: str) -> dict[str, Any]:
        """The tokens for a code."""
        form = {
            "grant_type": "authorization_code",
            "client_id": client["client_id"],
            "code": code,
            "redirect_uri": client["redirect_uris"][0],
            "code_verifier": VERIFIER,
        }
        kind = {"content-type": "application/x-www-form-urlencoded"}
        url = f"{self.live.origin}/oauth/token"
        reply = await send_http("POST", url, kind, urlencode(form).encode())
        assert reply.status == 200, reply.text
        return reply.json


class ReplicaSetup(BrowserSetup):
    """The same, with the replica of a provider, which logs a user in without a page."""

    def __init__(
        self, live: LiveProxy, app: UserApplication, browser: Chromium, replica: ProviderReplica
    ) -> None:
        super().__init__(live, app, browser)
        self.replica = replica

    @property
    def provider_logins(self) -> int:
        return self.replica.paths.count(self.replica.base_path + self.replica.authorize_path)


@asynccontextmanager
async def set_up(**proxy: Any) -> AsyncGenerator[ReplicaSetup]:
    async with (
        replicated("okta") as replica,
        live_proxy(provider=replica.provider, **proxy) as live,
        user_application() as app,
        chromium() as browser,
    ):
        replica.now = time.time()
        yield ReplicaSetup(live, app, browser, replica)


def policy_for(style: str) -> str:
    """The only policy that the page may have: its own style, its own form, nothing else."""
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{hashed}'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    )


async def shape(page: Page) -> Any:
    """The elements of a page with the names of their attributes."""
    names = "[...one.attributes].map(a => a.name)"
    return await page.evaluate(
        f"[...document.querySelectorAll('*')].map(one => [one.tagName, ...{names}].join(' '))"
    )


async def row(page: Page, term: str) -> Any:
    """What the page shows for a term."""
    found = (
        f"[...document.querySelectorAll('dt')].find(one => one.textContent === {json.dumps(term)})"
    )
    return await page.evaluate(f"{found}.nextElementSibling.textContent")


# ---------------------------------------------------------------- logins


@live
async def test_a_user_allows_a_client_once_and_is_asked_for_every_other_client() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page()
        client = await setup.register()
        asked = setup.authorization_url(client)

        await page.open(asked)
        assert await row(page, "Application") == "Notes for Desktop"
        assert await row(page, "Redirect URI") == setup.app.redirect_uri
        assert await row(page, "Permissions on this server") == READ
        assert setup.provider_logins == 0
        await page.click(ALLOW)
        await page.reach(setup.app.redirect_uri)
        answer = query_of(page.url)
        assert (answer["state"], answer["iss"]) == ("client-state", setup.live.origin)
        assert (await setup.exchange(client, answer["code"]))["token_type"] == "Bearer"
        assert setup.provider_logins == 1

        # The same client in the same browser: no page of ours is shown.
        page.requested.clear()
        await page.open(asked, setup.app.redirect_uri)
        assert "code" in query_of(page.url)
        assert not [url for url in page.requested if "/oauth/consent" in url]
        assert setup.provider_logins == 2

        # Another client, and another user of the same client, are asked.
        other = await setup.register(client_name="Another")
        await page.open(setup.authorization_url(other))
        assert await row(page, "Application") == "Another"
        second = await setup.browser.new_page()
        await second.open(asked)
        assert await row(second, "Application") == "Notes for Desktop"
        assert setup.provider_logins == 2
        assert page.problems == second.problems == []


@live
async def test_a_user_who_denies_is_sent_back_and_the_provider_is_not_asked() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page()
        client = await setup.register()
        for _ in range(2):  # a refusal is not remembered
            await page.open(setup.authorization_url(client))
            await page.click(DENY)
            await page.reach(setup.app.redirect_uri)
            answer = query_of(page.url)
            assert answer["error"] == "access_denied"
            assert answer["state"] == "client-state"
            assert "code" not in answer
        assert setup.provider_logins == 0
        assert page.problems == []


@live
async def test_a_form_is_used_once_also_with_the_back_button() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page()
        await page.open(setup.authorization_url(await setup.register()))
        sealed = await page.evaluate("document.querySelector('input').value")
        await page.click(ALLOW)
        await page.reach(setup.app.redirect_uri)
        await page.open(setup.authorization_url(await setup.register(client_name="Another")))
        await page.evaluate(f"document.querySelector('input').value = {json.dumps(sealed)}")
        await page.click(ALLOW)
        await page.reach(f"{setup.live.origin}/oauth/consent")
        assert "used before" in await page.evaluate("document.body.textContent")
        assert setup.provider_logins == 1


@live
async def test_a_login_form_with_a_policy_that_names_only_the_proxy_leads_to_the_client() -> None:
    """Browsers apply `form-action` of the provider's page to every redirect after its form."""
    bound = bind("127.0.0.1", 0)
    port: int = bound.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = issuer_server(DevelopmentIssuer(url, ["ann", "bob"]), HttpPool())
    site = HttpRunner(server.asgi(), port=port, bound=bound)
    await site.start()
    provider = Provider(name="Test", issuer=url, client_id=PROXY_CLIENT, scopes=("openid",))
    try:
        async with (
            live_proxy(provider=provider) as proxy,
            user_application() as app,
            chromium() as browser,
        ):
            setup = BrowserSetup(proxy, app, browser)
            page = await browser.new_page()
            asked = setup.authorization_url(await setup.register())
            await page.open(asked)
            await page.click(ALLOW)
            await page.reach(f"{url}/authorize")
            await page.click('button[value="bob"]')
            await page.reach(app.redirect_uri)
            assert "code" in query_of(page.url)
            # The client is approved now, and the user does not sign in at the provider.
            await page.open(asked, f"{url}/authorize")
            await page.click(DENY)
            await page.reach(app.redirect_uri)
            assert query_of(page.url)["error"] == "access_denied"
            assert page.problems == []
    finally:
        await site.stop()


@pytest.mark.parametrize("uri", ["cursor://oauth/callback?window=1", "com.example.app:/callback"])
@live
async def test_a_login_is_handed_to_a_program_by_its_scheme_and_the_page_stays(uri: str) -> None:
    """There is no such program here: what counts is what the browser wants to open, and why."""
    async with set_up(redirect_schemes=["cursor", "com.example.app"]) as setup:
        client = await setup.register(uri)
        codes: list[str] = []

        def targets(page: Page) -> list[str]:
            """The URLs that the program has to open, which the page goes to by itself."""
            found = [url for reason, url in page.navigations if reason == "metaTagRefresh"]
            return [url for url in found if url.startswith(uri)]

        for decision, place in ((ALLOW, "callback"), (DENY, "consent")):
            page = await setup.browser.new_page()
            await page.open(f"{setup.authorization_url(client)}&prompt=consent")
            assert await row(page, "Sends you back to") == f"{urlsplit(uri).scheme}:"
            await page.click(decision)
            await page.reach(f"{setup.live.origin}/oauth/{place}")
            await page.until(lambda page=page: bool(targets(page)), uri)
            (target,) = targets(page)
            status, headers = page.documents[page.url]
            style = await page.evaluate("document.querySelector('style').textContent")
            assert (status, headers["content-security-policy"]) == (200, policy_for(style))
            assert "you can close this page" in await page.evaluate("document.body.textContent")
            assert await page.evaluate("document.querySelector('a').href") == target
            assert page.url.startswith(f"{setup.live.origin}/oauth/{place}")
            assert page.problems == []
            codes.append(query_of(target).get("code", ""))
        assert (bool(codes[0]), codes[1]) == (True, "")
        assert (await setup.exchange(client, codes[0]))["token_type"] == "Bearer"


@live
async def test_a_login_over_https_has_host_cookies_and_its_page_has_a_picture(
    tmp_path: Path,
) -> None:
    """All hosts are one TLS server on a loopback port; the application is that of the tests."""
    async with proxied() as setup:

        async def handler(connection: AcceptedConnection) -> None:
            while True:
                request = await connection.receive()
                url = f"https://{request.headers['host']}{request.path}"
                if url.startswith(LOGIN_PAGE):
                    place = f"Location: {setup.replica.log_in(url)}"
                    await connection.send(http_response(302, b"", "", place))
                elif request.headers["host"] == "app.example":
                    await connection.send(http_response(200, b"back", HTML))
                else:
                    reply = await send(
                        setup.app, request.method, url, request.headers, request.body
                    )
                    lines = [f"{name}: {value}" for name, value in reply.headers]
                    kept = [line for line in lines if not line.startswith("content-length:")]
                    await connection.send(http_response(reply.status, reply.body, "", *kept))

        context = Authority(tmp_path).serving("notes.example")
        async with scripted_http_server(handler, context=context) as server:
            names = ("notes.example", "login.provider.example", "app.example")
            async with chromium(dict.fromkeys(names, server.port)) as browser:
                page = await browser.new_page()
                client = await setup.register(client_name="Notes for Desktop")
                asked = setup.authorization_url(client, scope=f"{READ} {WRITE}")
                await page.open(asked)
                picture = await page.picture(640, 760)
                assert picture.startswith(b"\x89PNG")
                assert 5_000 < len(picture) < MAX_PICTURE_BYTES
                if place := os.environ.get("CONSENT_PICTURE"):
                    Path(place).write_bytes(picture)
                await page.click(ALLOW)
                await page.reach(REDIRECT)
                code = query_of(page.url)["code"]
                assert (await setup.exchange(client, code)).status == 200
                cookies = (await page.send("Network.getCookies", urls=[asked]))["cookies"]
                assert cookies
                for cookie in cookies:
                    assert cookie["name"].startswith("__Host-colonnade-")
                    assert cookie["secure"]
                    assert cookie["httpOnly"]
                    assert cookie["sameSite"] == "Lax"
                # Not asked again: the browser has accepted the cookie of the session.
                await page.open(asked, REDIRECT)
                assert "code" in query_of(page.url)
                assert page.problems == []


# ---------------------------------------------------------------- policy, frames, forms


@live
async def test_the_page_has_no_script_loads_nothing_and_has_exactly_this_policy() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page()
        asked = setup.authorization_url(await setup.register())
        await page.open(asked)
        assert page.requested == [asked]
        status, headers = page.documents[asked]
        assert status == 200
        style = await page.evaluate("document.querySelector('style').textContent")
        assert headers["content-security-policy"] == policy_for(style)
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert await page.evaluate("document.scripts.length") == 0
        assert not [one for one in await shape(page) if " on" in one or " style" in one]
        assert await page.evaluate("getComputedStyle(document.body).margin") == "0px"
        # The script of a test is refused, too: the browser does apply the policy.
        await page.evaluate(
            "document.body.appendChild(document.createElement('script')).textContent = 'alert(1)'"
        )
        await page.until(lambda: bool(page.problems))
        assert page.dialogs == []
        assert [one for one in page.problems if "script-src" in one]


@live
async def test_the_page_cannot_be_framed() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page()
        asked = setup.authorization_url(await setup.register())
        frame = f'<iframe src="{asked.replace("&", "&amp;")}"></iframe>'
        setup.app.pages["/frame"] = frame, ""
        setup.app.pages["/control"] = f'<iframe src="{setup.app.origin}/x"></iframe>', ""
        await page.open(f"{setup.app.origin}/frame")
        await page.until(lambda: bool(page.problems))
        assert any("frame-ancestors" in one for one in page.problems), page.problems
        tree = (await page.send("Page.getFrameTree"))["frameTree"]
        (child,) = tree["childFrames"]
        assert child["frame"]["url"].startswith("chrome-error:")
        assert child["frame"]["unreachableUrl"] == asked
        # The page of another server is shown, so the browser does show frames.
        await page.open(f"{setup.app.origin}/control")
        tree = (await page.send("Page.getFrameTree"))["frameTree"]
        assert tree["childFrames"][0]["frame"]["url"] == f"{setup.app.origin}/x"


@live
async def test_the_form_is_refused_from_a_page_of_another_origin_in_the_same_browser() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page()
        await page.open(setup.authorization_url(await setup.register()))
        sealed = await page.evaluate("document.querySelector('input').value")
        action = f"{setup.live.origin}/oauth/consent"
        field = f'<input name="request" value="{sealed}">'
        button = '<button name="decision" value="approve">Win</button>'
        form = f'<form method="post" action="{action}">{field}{button}</form>'
        setup.app.pages["/form"] = form, ""
        await page.open(f"{setup.app.origin}/form")
        await page.click("button")
        await page.reach(action)
        assert page.documents[action][0] == 403
        assert "another page" in await page.evaluate("document.body.textContent")
        assert setup.provider_logins == 0


# ---------------------------------------------------------------- scripts


@live
async def test_the_browser_of_these_tests_notices_scripts_and_the_policy_alone_stops_them() -> None:
    """So that the tests below can fail, and so that the policy is a second line of defence."""
    policy = dict(PAGE_HEADERS)["content-security-policy"]
    async with set_up() as setup:
        unprotected, protected = await setup.browser.new_page(), await setup.browser.new_page()
        ran = 0
        for number, one in enumerate(SCRIPTS):
            content = f"<p>{one.replace('{app}', setup.app.origin)}</p>"
            setup.app.pages[f"/open/{number}"] = content, ""
            setup.app.pages[f"/closed/{number}"] = content, policy
            before = len(unprotected.dialogs)
            # Some of them lead to another page.
            await unprotected.open(f"{setup.app.origin}/open/{number}", setup.app.origin)
            ran += len(unprotected.dialogs) > before
            await protected.open(f"{setup.app.origin}/closed/{number}", setup.app.origin)
            assert protected.dialogs == [], one
        assert ran >= 15


@pytest.mark.parametrize("bypass_csp", [False, True], ids=["with policy", "without policy"])
@live
async def test_no_script_in_the_metadata_of_a_client_runs(bypass_csp: bool) -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page(bypass_csp=bypass_csp)
        await page.open(setup.authorization_url(await setup.register()))
        usual = await shape(page)
        for one in SCRIPTS:
            script = one.replace("{app}", setup.app.origin)
            # The longest name is 200 characters.
            client = await setup.register(
                client_name=script,
                client_uri=f"https://app.example/{script}",
                logo_uri=script if "{app}" in one else f"{setup.app.origin}/logo.png?{script}",
                policy_uri=script,
                tos_uri=script,
                contacts=[script],
                software_id=script,
                scope=script,
            )
            asked = setup.authorization_url(client, scope=f"{READ} {script}")
            if not one.isascii():  # not in a parameter of OAuth
                asked = setup.authorization_url(client)
            page.requested.clear()
            await page.open(asked)
            assert await row(page, "Application") == script
            assert await row(page, "Permissions on this server") == READ
            assert await page.evaluate("document.querySelector('main p bdi').textContent") == script
            assert await shape(page) == usual, script
            assert page.requested == [asked], script
        assert setup.app.requests == []
        assert page.problems == []


@live
async def test_no_script_in_a_redirect_uri_runs_and_a_denial_goes_to_exactly_that_uri() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page(bypass_csp=True)
        await page.open(setup.authorization_url(await setup.register()))
        usual = await shape(page)
        for tail in REDIRECT_TAILS:
            uri = setup.app.origin + tail
            client = await setup.register(uri)
            await page.open(setup.authorization_url(client))
            assert await row(page, "Redirect URI") == uri
            assert await row(page, "Sends you back to") == urlsplit(uri).netloc
            assert await shape(page) == usual
            await page.click(DENY)
            await page.reach(setup.app.origin)
            # Browsers encode this character in a query, and in no path.
            path, mark, query = uri.partition("?")
            start = f"{path}?{query.replace(QUOTE, '%27')}{'&' if mark else ''}error=access_denied&"
            assert page.url.startswith(start)
        for uri in UNUSABLE_REDIRECTS:
            status, answer = await setup.try_register(uri)
            assert (status, answer["error"]) == (400, "invalid_redirect_uri"), uri
        assert page.problems == []


@live
async def test_no_script_in_the_settings_of_the_server_runs() -> None:
    """Scopes and the name of the provider are the operator's: escaped all the same."""
    scope = "<script>alert('ran')</script>"
    async with set_up(scopes=[scope]) as setup:
        page = await setup.browser.new_page(bypass_csp=True)
        await page.open(setup.authorization_url(await setup.register(), scope=scope))
        assert await row(page, "Permissions on this server") == scope
        assert await page.evaluate("document.scripts.length") == 0
        assert page.problems == []


@live
async def test_no_script_in_the_parameters_of_a_request_runs_on_an_error_page() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page(bypass_csp=True)
        client = await setup.register()
        usual: Any = None
        pages = 0
        for one in SCRIPTS[:20]:
            script = quote(one.replace("{app}", setup.app.origin))
            for path in (
                f"authorize?client_id={script}",
                f"authorize?client_id={client['client_id']}&redirect_uri={script}",
                f"callback?state={script}&code={script}",
                f"callback?error={script}&error_description={script}",
            ):
                url = f"{setup.live.origin}/oauth/{path}"
                await page.open(url, setup.live.origin)
                found = await shape(page)
                usual = usual or found
                assert found == usual, url
                status, headers = page.documents[page.url]
                assert status == 400
                style = await page.evaluate("document.querySelector('style').textContent")
                assert headers["content-security-policy"] == policy_for(style)
                pages += 1
        assert pages == 80
        assert not [one for one in page.problems if "status of 400" not in one]
        assert setup.app.requests == []


@live
async def test_no_script_in_the_document_of_a_client_runs() -> None:
    async with set_up() as setup:
        page = await setup.browser.new_page(bypass_csp=True)
        for number, one in enumerate(SCRIPTS[:12]):
            script = one.replace("{app}", setup.app.origin)
            path = f"/client-{number}.json"
            url = setup.app.origin + path
            document = {
                "client_id": url,
                "client_name": script,
                "logo_uri": f"{setup.app.origin}/logo.png",
                "redirect_uris": [setup.app.redirect_uri],
                "token_endpoint_auth_method": "none",
            }
            setup.app.answers[path] = http_response(200, json.dumps(document).encode())
            await page.open(setup.authorization_url(document))
            assert await row(page, "Application") == script
            assert await row(page, "Published by") == urlsplit(setup.app.origin).netloc
            assert await page.evaluate("document.scripts.length") == 0
        assert all(path.endswith(".json") for path in setup.app.requests)
        assert page.problems == []
