"""Client ID metadata documents: fetched safely, checked, cached as HTTP says."""

import json
from typing import Any

import pytest

from auth.proxied import ORIGIN, ProxySetup, proxied
from auth.upstream import ISSUER
from colonnade.auth.server.proxy.registration import fresh_seconds
from colonnade.auth.ssrf import FetchedResponse, Fetcher
from live import live

# A public address, so that nothing is resolved.
CLIENT = "https://93.184.216.34/app/client.json"
REDIRECT = "https://app.example/callback"


class DocumentReply:
    """The response of a document's host."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self._body = body

    async def read_all(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise ValueError("too large")
        return self._body

    def close(self) -> None: ...


class DocumentHost:
    """Hosts one document, and counts how often it is fetched."""

    def __init__(self, **stated: Any) -> None:
        self.document: dict[str, Any] = {
            "client_id": CLIENT,
            "client_name": "Documented",
            "redirect_uris": [REDIRECT],
            **stated,
        }
        self.status = 200
        self.headers = {"content-type": "application/json"}
        self.body: bytes | None = None
        self.fetched: list[str] = []

    async def send(
        self, method: str, url: str, headers: Any, body: bytes = b"", *, address: str
    ) -> DocumentReply:
        self.fetched.append(url)
        content = json.dumps(self.document).encode() if self.body is None else self.body
        return DocumentReply(self.status, self.headers, content)

    def serve(self, setup: ProxySetup) -> dict[str, Any]:
        """Make the proxy fetch from here; the client."""
        guard: Any = setup.app._guard
        guard._fetcher = lambda: Fetcher(self.send)
        return {"client_id": CLIENT, "redirect_uris": [REDIRECT]}


@pytest.mark.spec("R0412", "R0415", "R0444")
@live
async def test_a_client_with_a_document_logs_in_without_registration() -> None:
    async with proxied() as setup:
        client = DocumentHost().serve(setup)
        browser = setup.browser()
        page = await browser.get(setup.authorization_url(client))
        assert "Documented" in page.text
        assert "93.184.216.34" in page.text  # who publishes it
        tokens = await setup.log_in(client, browser)
        assert await setup.whoami(tokens["access_token"]) == f"{ISSUER}#ann"
        assert (await setup.refresh(client, tokens["refresh_token"])).status == 200
        other = setup.authorization_url(client, redirect_uri="https://evil.example/callback")
        assert (await browser.get(other)).status == 400


@pytest.mark.spec("R0413", "R0416", "R0417", "R0702")
@pytest.mark.parametrize(
    "change",
    [
        {"stated": {"client_id": "https://93.184.216.34/other.json"}},
        {"stated": {"client_id": CLIENT + "/"}},
        {"stated": {"client_secret": "x"}},
        {"stated": {"token_endpoint_auth_method": "client_secret_post"}},
        {"stated": {"redirect_uris": []}},
        {"stated": {"redirect_uris": "https://app.example/callback"}},
        {"stated": {"redirect_uris": ["javascript:alert(1)"]}},
        {"body": b'{"client_id"'},
        {"body": b"[]"},
        {"body": b'{"client_id": "a", "client_id": "b"}'},
        {"body": b"x" * 20_000},
        {"status": 404},
        {"status": 201},
        {"headers": {"content-type": "text/html"}},
        {"status": 302, "headers": {"location": "https://93.184.216.34/else.json"}},
    ],
    ids=str,
)
@live
async def test_a_document_that_is_not_right_is_not_used_or_cached(change: dict[str, Any]) -> None:
    async with proxied() as setup:
        host = DocumentHost(**change.get("stated", {}))
        host.status = change.get("status", 200)
        host.headers = change.get("headers", host.headers)
        host.body = change.get("body")
        client = host.serve(setup)
        for times in (1, 2):
            reply = await setup.browser().get(setup.authorization_url(client))
            assert reply.status in (400, 503)
            assert not reply.form
            assert len(host.fetched) >= times


@pytest.mark.spec("R0445")
@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/client.json",
        "https://10.0.0.1/client.json",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/client.json",
        "https://[::ffff:10.0.0.1]/client.json",
        "http://93.184.216.34/client.json",
        "https://93.184.216.34",
        "https://93.184.216.34/",
        "https://93.184.216.34/a/../client.json",
        "https://ann@93.184.216.34/client.json",
        "https://93.184.216.34/client.json#x",
        "https://0x7f.1/client.json",
        f"{ORIGIN}:99999/x",
    ],
)
@live
async def test_a_document_in_a_private_place_is_never_fetched(url: str) -> None:
    async with proxied() as setup:
        host = DocumentHost(client_id=url)
        client = {**host.serve(setup), "client_id": url}
        reply = await setup.browser().get(setup.authorization_url(client))
        assert reply.status in (400, 503)
        assert host.fetched == []


@pytest.mark.spec("R0414")
@pytest.mark.parametrize(
    ("control", "seconds"),
    [("", 300), ("max-age=1000", 1000), ("no-store", 0), ("max-age=99999999", 86400)],
)
@live
async def test_a_document_is_cached_as_its_host_says(control: str, seconds: int) -> None:
    async with proxied() as setup:
        host = DocumentHost()
        if control:
            host.headers["cache-control"] = control
        client = host.serve(setup)
        url = setup.authorization_url(client)
        await setup.browser().get(url)
        setup.clock.forward(max(seconds - 1, 0))
        await setup.browser().get(url)
        assert len(host.fetched) == (1 if seconds else 2)
        host.document["redirect_uris"] = ["https://new.example/callback"]
        setup.clock.forward(2)
        assert (await setup.browser().get(url)).status == 400


def test_the_age_of_a_cached_response_counts() -> None:
    headers = {"cache-control": 'public, max-age="60"', "age": "50"}
    assert fresh_seconds(FetchedResponse(CLIENT, 200, headers, b"")) == 10


@pytest.mark.spec("R0339")
@live
async def test_an_approval_of_a_public_name_on_a_loopback_port_is_asked_for_each_time() -> None:
    async with proxied() as setup:
        local = "http://127.0.0.1:4000/callback"
        client = {**DocumentHost(redirect_uris=[local]).serve(setup), "redirect_uris": [local]}
        browser = setup.browser()
        await setup.log_in(client, browser)
        assert (await browser.get(setup.authorization_url(client))).form
    async with proxied(redirect_schemes=["cursor"]) as setup:
        local = "cursor://anysphere/callback"  # which another program may have taken
        client = {**DocumentHost(redirect_uris=[local]).serve(setup), "redirect_uris": [local]}
        browser = setup.browser()
        await setup.log_in(client, browser)
        assert (await browser.get(setup.authorization_url(client))).form


@live
async def test_documents_can_be_switched_off() -> None:
    async with proxied(client_documents=False) as setup:
        host = DocumentHost()
        url = setup.authorization_url(host.serve(setup))
        assert (await setup.browser().get(url)).status == 400
        assert host.fetched == []
