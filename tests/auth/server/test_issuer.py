"""The authorization server for development: lenient about who you are, strict about the rest."""

import asyncio
import base64
import hashlib
import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from colonnade.auth.jose import parse_jwk, parse_jwt, verify_signature
from colonnade.auth.server.issuer import (
    MAX_CLIENTS,
    DevelopmentIssuer,
    IssuerRequest,
    IssuerResponse,
)
from colonnade.auth.ssrf import FetchedResponse
from colonnade.errors import CannotFetch, InvalidArgument

URL = "http://127.0.0.1:9000"
RESOURCE = "http://127.0.0.1:8000/mcp"
REDIRECT = "http://127.0.0.1:5000/callback"
VERIFIER = "v" * 43
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
)
DOCUMENT = "https://app.example/client.json"


class DocumentFetcher:
    """Documents by URL."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.fetched: list[str] = []

    async def fetch(self, method: str, url: str, *_: Any, **__: Any) -> FetchedResponse:
        self.fetched.append(url)
        if url not in self.documents:
            raise CannotFetch(f"{url} cannot be fetched", "there is none")
        return FetchedResponse(url, 200, {}, json.dumps(self.documents[url]).encode())


class IssuerSetup:
    """An issuer, one client, and a clock."""

    def __init__(self, **options: Any) -> None:
        self.now = 1_000_000.0
        self.issuer = DevelopmentIssuer(URL, ["ann", "bob"], clock=lambda: self.now, **options)
        self.fetcher = DocumentFetcher()
        self.client_id = self.register()["client_id"]

    def send(self, method: str, path: str, query: str = "", body: bytes = b"") -> IssuerResponse:
        fetcher: Any = self.fetcher
        return asyncio.run(self.issuer.respond(IssuerRequest(method, path, query, body), fetcher))

    def post(self, path: str, **form: str) -> IssuerResponse:
        return self.send("POST", path, body=urlencode(form).encode())

    def register(self, **wanted: Any) -> dict[str, Any]:
        body = json.dumps({"client_name": "notes", "redirect_uris": [REDIRECT]} | wanted).encode()
        return json.loads(self.send("POST", "/register", body=body).body)

    def asked(self, **more: str | None) -> dict[str, str]:
        found = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": REDIRECT,
            "state": "s",
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "resource": RESOURCE,
            "scope": "notes:read",
            **more,
        }
        return {name: value for name, value in found.items() if value is not None}

    def code(self, user: str = "ann", **more: str) -> str:
        return location(self.post("/authorize", **self.asked(**more), user=user))["code"]

    def exchange(self, code: str, **more: str) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "client_id": self.client_id,
            "redirect_uri": REDIRECT,
            "code_verifier": VERIFIER,
            "resource": RESOURCE,
        }
        return json.loads(self.post("/token", **(form | more)).body)

    def refresh(self, token: str, **more: str) -> dict[str, Any]:
        form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": self.client_id}
        return json.loads(self.post("/token", **(form | more)).body)


def location(response: IssuerResponse) -> dict[str, str]:
    assert response.status == 303, response.body
    return dict(parse_qsl(urlsplit(response.headers["location"]).query))


def test_a_user_is_signed_in_and_the_token_is_for_the_resource() -> None:
    setup = IssuerSetup(ttl_s=60)
    back = location(setup.post("/authorize", **setup.asked(), user="bob"))
    assert (back["state"], back["iss"]) == ("s", URL)
    tokens = setup.exchange(back["code"])
    signed = parse_jwt(tokens["access_token"])
    (jwk,) = json.loads(setup.send("GET", "/keys").body)["keys"]
    key = parse_jwk(jwk)
    assert key is not None
    verify_signature(signed, key, ["ES256"])
    expected = {"iss": URL, "sub": "bob", "aud": RESOURCE, "exp": 1_000_060, "scope": "notes:read"}
    assert expected.items() <= signed.claims.items()
    assert signed.header["typ"] == "at+jwt"
    assert tokens["expires_in"] == 60


def test_the_page_has_a_button_for_each_user_and_its_form_signs_in() -> None:
    setup = IssuerSetup()
    page = setup.send("GET", "/authorize", urlencode(setup.asked()))
    text = page.body.decode()
    assert re.findall(r'name="user" value="(\w+)"', text) == ["ann", "bob", "deny"]
    hidden = re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', text)
    form = {name: unescape(value) for name, value in hidden}
    assert form == setup.asked()
    assert "code" in location(setup.post("/authorize", **form, user="ann"))
    assert location(setup.post("/authorize", **form, user="deny"))["error"] == "access_denied"
    assert location(setup.post("/authorize", **form, user="eve"))["error"] == "access_denied"


def test_the_page_runs_no_script_and_shows_names_as_text() -> None:
    setup = IssuerSetup()
    name = "<script>alert(1)</script>\"'>"
    id = setup.register(client_name=name)["client_id"]
    evil = {"client_id": id, "state": name, "resource": f"{RESOURCE}?<b>"}
    page = setup.send("GET", "/authorize", urlencode(setup.asked(**evil)))
    text = page.body.decode()
    assert "<script" not in text
    assert "<b>" not in text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert policy.endswith("form-action 'self' http://127.0.0.1:5000")
    assert page.headers["x-frame-options"] == "DENY"


def test_auto_signs_in_the_first_user_without_a_page() -> None:
    setup = IssuerSetup(auto=True)
    back = location(setup.send("GET", "/authorize", urlencode(setup.asked())))
    token = setup.exchange(back["code"])["access_token"]
    assert parse_jwt(token).claims["sub"] == "ann"


def test_both_documents_name_the_issuer_and_what_it_supports() -> None:
    setup = IssuerSetup()
    for name in ("oauth-authorization-server", "openid-configuration"):
        found = json.loads(setup.send("GET", f"/.well-known/{name}").body)
        assert found["issuer"] == URL
        assert found["code_challenge_methods_supported"] == ["S256"]
        assert found["client_id_metadata_document_supported"] is True
    assert setup.send("GET", "/.well-known/other").status == 404
    assert setup.send("GET", "/token").status == 404


# Each error goes to the redirect URI, which was verified.
REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "another response type": ({"response_type": "token"}, "unsupported_response_type"),
    "no PKCE": ({"code_challenge_method": None, "code_challenge": None}, "invalid_request"),
    "a plain challenge": ({"code_challenge_method": "plain"}, "invalid_request"),
    "a short challenge": ({"code_challenge": "x"}, "invalid_request"),
    "no resource": ({"resource": None}, "invalid_target"),
    "a resource that is no URL": ({"resource": "notes"}, "invalid_target"),
    "a resource with a fragment": ({"resource": f"{RESOURCE}#x"}, "invalid_target"),
    "a scope with a line break": ({"scope": "a\nb"}, "invalid_scope"),
}


@pytest.mark.parametrize(("more", "error"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_authorization_request_is_refused(more: dict[str, str | None], error: str) -> None:
    setup = IssuerSetup()
    back = location(setup.send("GET", "/authorize", urlencode(setup.asked(**more))))
    assert (back["error"], back["iss"], back["state"]) == (error, URL, "s")


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/callback",
        "http://127.0.0.1:5000/callback/",
        "http://127.0.0.1:5000/callback?x",
        "http://127.0.0.1:5000/other",
        "http://127.0.0.1.evil.example:5000/callback",
        "http://localhost:5000/callback",
        "http://evil@127.0.0.1:5000/callback",
        "",
    ],
)
def test_a_redirect_uri_that_is_not_registered_gets_a_page_and_no_redirect(uri: str) -> None:
    setup = IssuerSetup(auto=True)
    found = setup.send("GET", "/authorize", urlencode(setup.asked(redirect_uri=uri)))
    assert found.status == 400
    assert "location" not in found.headers


def test_a_loopback_redirect_may_have_any_port() -> None:
    setup = IssuerSetup()
    assert setup.code(redirect_uri="http://127.0.0.1:6123/callback")


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["http://app.example/callback"],
        ["javascript:alert(1)"],
        ["data:text/html,x"],
        ["https://a.example/#x"],
        ["https://a.example/; script-src *"],
        ["https://ann:pw@a.example/"],
        [REDIRECT] * 11,
        [7],
        "https://a.example",
    ],
)
def test_a_redirect_uri_that_is_not_safe_cannot_be_registered(uris: Any) -> None:
    assert IssuerSetup().register(redirect_uris=uris)["error"] == "invalid_redirect_uri"


def test_programs_may_have_a_scheme_of_their_own() -> None:
    setup = IssuerSetup()
    found = setup.register(redirect_uris=["cursor://anysphere.cursor-mcp/callback"])
    assert found["token_endpoint_auth_method"] == "none"
    more = {"client_id": found["client_id"], "redirect_uri": found["redirect_uris"][0]}
    page = setup.send("GET", "/authorize", urlencode(setup.asked(**more)))
    assert page.headers["content-security-policy"].endswith("'self' cursor://anysphere.cursor-mcp")


@pytest.mark.parametrize(
    "more",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:5001/callback"},
        {"resource": "http://127.0.0.1:8001/mcp"},
    ],
)
def test_a_code_is_bound_to_its_login(more: dict[str, str]) -> None:
    setup = IssuerSetup()
    found = setup.exchange(setup.code(), **more)
    assert found["error"] in ("invalid_grant", "invalid_target")


def test_a_code_is_used_once_soon_and_by_its_own_client() -> None:
    setup = IssuerSetup()
    code = setup.code()
    assert "access_token" in setup.exchange(code)
    assert setup.exchange(code)["error"] == "invalid_grant"
    code = setup.code()
    setup.now += 61
    assert setup.exchange(code)["error"] == "invalid_grant"
    other = setup.register()["client_id"]
    assert setup.exchange(setup.code(), client_id=other)["error"] == "invalid_grant"
    assert setup.exchange(setup.code(), client_id="unknown")["error"] == "invalid_client"


def test_a_refresh_token_is_used_once_and_twice_ends_the_login() -> None:
    setup = IssuerSetup()
    first = setup.exchange(setup.code())["refresh_token"]
    second = setup.refresh(first)["refresh_token"]
    third = setup.refresh(second, resource=RESOURCE)["refresh_token"]
    assert setup.refresh(first)["error"] == "invalid_grant"
    assert setup.refresh(third)["error"] == "invalid_grant"


def test_a_refresh_cannot_have_more_than_the_login() -> None:
    setup = IssuerSetup()
    token = setup.exchange(setup.code())["refresh_token"]
    other = setup.register()["client_id"]
    assert setup.refresh(token, scope="notes:read notes:write")["error"] == "invalid_scope"
    assert setup.refresh(token, resource="http://127.0.0.1:1/mcp")["error"] == "invalid_target"
    assert setup.refresh(token, client_id=other)["error"] == "invalid_grant"
    assert "access_token" in setup.refresh(token)


def test_a_revoked_refresh_token_is_refused() -> None:
    setup = IssuerSetup()
    token = setup.exchange(setup.code())["refresh_token"]
    assert setup.post("/revoke", token=token, client_id="another").status == 200
    token = setup.refresh(token)["refresh_token"]
    assert setup.post("/revoke", token=token, client_id=setup.client_id).status == 200
    assert setup.refresh(token)["error"] == "invalid_grant"


def test_a_client_may_be_the_url_of_a_document_about_it() -> None:
    setup = IssuerSetup()
    setup.fetcher.documents[DOCUMENT] = {"client_id": DOCUMENT, "redirect_uris": [REDIRECT]}
    setup.client_id = DOCUMENT
    assert "access_token" in setup.exchange(setup.code())
    assert setup.fetcher.fetched == [DOCUMENT]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {"client_id": "https://other.example/client.json", "redirect_uris": [REDIRECT]},
        {"redirect_uris": [REDIRECT]},
        {"client_id": DOCUMENT},
    ],
)
def test_a_document_that_is_not_about_this_client_is_refused(document: Any) -> None:
    setup = IssuerSetup(auto=True)
    if document is not None:
        setup.fetcher.documents[DOCUMENT] = document
    found = setup.send("GET", "/authorize", urlencode(setup.asked(client_id=DOCUMENT)))
    assert (found.status, "location" in found.headers) == (400, False)


def test_what_cannot_be_read_is_an_error_and_what_is_remembered_is_bounded() -> None:
    setup = IssuerSetup()
    for body in (b"\xff", b"a=1&a=2", b"a=1&" * 100, b"x" * 100_000):
        found = setup.send("POST", "/token", body=body)
        assert (found.status, json.loads(found.body)["error"]) == (400, "invalid_request")
    assert json.loads(setup.send("POST", "/register", body=b"[]").body)["error"] == (
        "invalid_client_metadata"
    )
    for _ in range(MAX_CLIENTS):
        setup.register()
    assert setup.exchange("x")["error"] == "invalid_client"  # the oldest is forgotten


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://0.0.0.0:9000", {}),
        ("http://192.168.0.7:9000", {}),
        ("https://login.example.com", {}),
        (URL, {"users": []}),
        (URL, {"users": ["a b"]}),
        (URL, {"users": ["<b>"]}),
        (URL, {"users": ["deny"]}),
        (URL, {"ttl_s": 0}),
    ],
)
def test_another_host_and_unusable_settings_are_refused(url: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        DevelopmentIssuer(url, **options)


def test_an_authorization_proxy_on_this_machine_is_a_known_client_and_gets_id_tokens() -> None:
    setup = IssuerSetup(ttl_s=60)
    redirect = "http://127.0.0.1:8000/oauth/callback"
    proxy: dict[str, Any] = {"client_id": "proxy", "redirect_uri": redirect}
    more: dict[str, Any] = proxy | {"resource": None, "scope": "openid", "nonce": "n"}
    page = setup.send("GET", "/authorize", urlencode(setup.asked(**more))).body.decode()
    assert 'name="nonce" value="n"' in page
    code = setup.code("bob", **more)
    form = {"grant_type": "authorization_code", "code": code, "code_verifier": VERIFIER} | proxy
    tokens = json.loads(setup.post("/token", **form).body)
    signed = parse_jwt(tokens["id_token"])
    assert signed.header["typ"] == "JWT"
    expected = {"iss": URL, "sub": "bob", "aud": "proxy", "nonce": "n"}
    assert signed.claims == expected | {"iat": 1_000_000, "exp": 1_000_060}
    # Its access token is for no server.
    assert parse_jwt(tokens["access_token"]).claims["aud"] == URL
    again = setup.refresh(tokens["refresh_token"], client_id="proxy")
    assert again["token_type"] == "Bearer"
    elsewhere = more | {"redirect_uri": "http://127.0.0.1:8000/other"}
    refused = setup.send("GET", "/authorize", urlencode(setup.asked(**elsewhere)))
    assert refused.status == 400


def test_a_client_that_does_not_ask_for_openid_gets_no_id_token() -> None:
    setup = IssuerSetup()
    assert "id_token" not in setup.exchange(setup.code())
    assert "nonce" not in parse_jwt(setup.exchange(setup.code(scope="openid"))["id_token"]).claims
