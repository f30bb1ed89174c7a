"""What can be wrong with a server that wants to know who comes: its documents, its issuer, a login
or a token that it does not take. Each with its sentence and its remedy, in full.

Rules: real sockets on the loopback; a login is kept in a home of the test's own.
"""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from auth.client.test_login import Browser, serving
from auth.issuer import Issuer, issuing
from auth.protected import protected
from cli.doctor.test_url import SECRET, failure, looked_at, row, states
from colonnade import StaticTokens, connect
from colonnade.cli.connections import CommandLogin
from colonnade.cli.doctor.network import SentCredentials, authorization_check
from colonnade.cli.errors import TOKEN_OPTION
from colonnade.errors import AuthError, LoginRequired, ScopeRequired
from live import live, live_for
from scripted_http_server import (
    AcceptedConnection,
    ConnectionHandler,
    ScriptedHttpServer,
    http_response,
    scripted_http_server,
)

pytestmark = pytest.mark.slow
TEST_S = 600.0
DOCUMENT = "/.well-known/oauth-protected-resource/mcp"
ISSUER = "/.well-known/oauth-authorization-server"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def issuer() -> Generator[Issuer]:
    with issuing() as one:
        yield one


def guarded(documents: dict[str, Any], refusal: str = "Bearer") -> ConnectionHandler:
    """A server that lets nobody in, with these documents; `ORIGIN` in them is its own."""

    async def handler(connection: AcceptedConnection) -> None:
        while True:
            request = await connection.receive()
            if request.method == "POST":
                await connection.send(http_response(401, b"", "", f"WWW-Authenticate: {refusal}"))
            elif request.path in documents:
                origin = connection.server.url.removesuffix("/mcp")
                text = json.dumps(documents[request.path]).replace("ORIGIN", origin)
                await connection.send(http_response(200, text.encode()))
            else:
                await connection.send(http_response(404, b"", ""))

    return handler


def never_told(server: ScriptedHttpServer) -> bool:
    """Whether nobody but the endpoint itself was shown a credential."""
    return all("authorization" not in one.headers for one in server.received if one.path != "/mcp")


OPERATOR = "the operator must fix the metadata; a token of your own needs none"
GOOD: dict[str, Any] = {
    "issuer": "ORIGIN",
    "authorization_endpoint": "ORIGIN/authorize",
    "token_endpoint": "ORIGIN/token",
    "registration_endpoint": "ORIGIN/register",
    "code_challenge_methods_supported": ["S256"],
}
RESOURCE = {"resource": "ORIGIN/mcp", "authorization_servers": ["ORIGIN"]}
DOCUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "of another server": (
        {DOCUMENT: {**RESOURCE, "resource": "https://other.example/mcp"}},
        (
            f"ORIGIN{DOCUMENT} is the metadata of https://other.example/mcp, not of "
            "ORIGIN/mcp; a token for one must not be requested for the other"
        ),
    ),
    "names nobody": (
        {DOCUMENT: {"resource": "ORIGIN/mcp"}},
        f"ORIGIN{DOCUMENT} names no authorization server; ask its operator which one it is",
    ),
    "an issuer without a document": (
        {DOCUMENT: RESOURCE},
        "the authorization server ORIGIN publishes no metadata",
    ),
    "an issuer of another name": (
        {DOCUMENT: RESOURCE, ISSUER: {**GOOD, "issuer": "https://other.example"}},
        (
            f"ORIGIN{ISSUER} is the metadata of another issuer than ORIGIN, so it is not used; "
            "the server or its authorization server is misconfigured or malicious"
        ),
    ),
    "without PKCE": (
        {DOCUMENT: RESOURCE, ISSUER: {**GOOD, "code_challenge_methods_supported": ["plain"]}},
        (
            "ORIGIN does not announce PKCE with S256 "
            "(code_challenge_methods_supported), so the login is refused"
        ),
    ),
}


@pytest.mark.parametrize("how", DOCUMENTS)
@live
async def test_documents_that_lead_nowhere(how: str) -> None:
    documents, words = DOCUMENTS[how]
    async with scripted_http_server(guarded(documents)) as server:
        report = await looked_at(server.url)
        origin = server.url.removesuffix("/mcp")
        assert failure(report) == ("metadata", words.replace("ORIGIN", origin), OPERATOR, 3)
        assert row(report, "http").message == ("it responds with 401: authentication required")
        assert states(report)["authorization"] == "skipped"


@live
async def test_an_issuer_that_cannot_be_reached_is_not_searched_for_inside_a_network() -> None:
    inside = {**RESOURCE, "authorization_servers": ["https://10.0.0.1"]}
    async with scripted_http_server(guarded({DOCUMENT: inside})) as server:
        name, words, fix, code = failure(await looked_at(server.url))
    assert (name, code) == ("metadata", 4)
    assert words.startswith("https://10.0.0.1 cannot be fetched: 10.0.0.1 is not a public address")
    assert fix == "check that the host is up, and reachable from here"


@live
async def test_an_issuer_that_registers_nobody_is_a_warning_before_the_login() -> None:
    closed = {name: value for name, value in GOOD.items() if name != "registration_endpoint"}
    async with scripted_http_server(guarded({DOCUMENT: RESOURCE, ISSUER: closed})) as server:
        report = await looked_at(server.url)
    origin = server.url.removesuffix("/mcp")
    documents = row(report, "metadata")
    assert (documents.state, documents.message) == (
        "warning",
        f"the authorization server is {origin}, which has no dynamic client registration",
    )
    assert documents.fix == (
        f"register a client: colonnade login {server.url} --client-id ID --issuer URL"
    )
    assert failure(report) == (
        "authorization",
        "it requires authentication, and there is no stored login",
        f"log in: colonnade login {server.url}, or send a token: {TOKEN_OPTION}",
        3,
    )


@live
async def test_a_server_of_2025_03_26_needs_no_document() -> None:
    async with scripted_http_server(guarded({})) as server:
        report = await looked_at(server.url)
    origin = server.url.removesuffix("/mcp")
    assert row(report, "metadata").message == (
        f"none, as in 2025-03-26: the authorization server is {origin} itself"
    )
    assert failure(report)[0] == "authorization"


@live
async def test_a_token_that_is_refused_is_shown_to_the_server_alone() -> None:
    async with scripted_http_server(guarded({DOCUMENT: RESOURCE, ISSUER: GOOD})) as server:
        report = await looked_at(server.url, headers=(f"Authorization: {SECRET}",))
        assert failure(report) == (
            "authorization",
            "it rejects the Authorization header that you send",
            "it may have expired, or be for another server; get a new one",
            3,
        )
        assert row(report, "metadata").message == "you send a token of your own"
        assert never_told(server)
    assert SECRET.split()[1] not in repr(report)


@live
async def test_logins_that_others_could_read_are_not_used(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "credentials.db").touch()
    (home / "credentials.key").write_bytes(bytes(32))
    (home / "credentials.key").chmod(0o644)
    async with scripted_http_server(guarded({DOCUMENT: RESOURCE, ISSUER: GOOD})) as server:
        name, words, fix, _ = failure(await looked_at(server.url))
    assert name == "authorization"
    assert words == f"{home / 'credentials.key'} is readable by other users"
    assert fix == "chmod 600 it, or remove it and log in again"


@live
async def test_somebody_who_may_not_come() -> None:
    async def shut(connection: AcceptedConnection) -> None:
        while True:
            await connection.receive()
            await connection.send(http_response(403, b"", ""))

    async with scripted_http_server(shut) as server:
        report = await looked_at(server.url)
    assert failure(report) == (
        "authorization",
        "access is forbidden (403)",
        "ask the operator who has access, and from where",
        3,
    )


@live_for(TEST_S)
async def test_a_login_is_missing_and_then_kept(issuer: Issuer) -> None:
    async with serving(issuer) as url:
        report = await looked_at(url)
        assert row(report, "metadata").message == f"the authorization server is {issuer.url}"
        assert failure(report) == (
            "authorization",
            "it requires authentication, and there is no stored login",
            f"log in: colonnade login {url}, or send a token: {TOKEN_OPTION}",
            3,
        )
        login = CommandLogin(keep=True, browser=False, on_show=Browser())
        async with connect(url, auth=login):
            pass
        report = await looked_at(url)
        assert report.failure is None
        assert row(report, "authorization").message == "it accepts the stored login"
        assert row(report, "lists").message == "1 tool"  # the other one needs a scope


@live
async def test_a_static_token_is_accepted_or_unknown() -> None:
    async with protected(trust=lambda _: StaticTokens({"a-word": "ann"})) as stage:
        url = f"http://127.0.0.1:{stage.site.port}/mcp"
        report = await looked_at(url, headers=("Authorization: Bearer a-word",))
        assert report.failure is None
        assert row(report, "authorization").message == "it accepts your Authorization header"
        report = await looked_at(url, headers=("Authorization: Bearer another",))
        words = "it rejects the Authorization header that you send: invalid_token: unknown token"
        assert failure(report)[:2] == ("authorization", words)


def told(what: SentCredentials, error: AuthError, status: int) -> tuple[str, str]:
    error.status = status
    check = authorization_check("https://mcp.example/mcp?key=1", True, what, error)
    assert (check.name, check.state, check.code) == ("authorization", "failed", 3)
    return check.message, check.fix


def test_a_login_that_is_refused_and_one_that_may_not_do_this_are_told_apart() -> None:
    kept = SentCredentials(login=True)
    assert told(kept, LoginRequired("…"), 401) == (
        "it rejects the stored login",
        "log in again: colonnade login https://mcp.example/mcp",
    )
    assert told(kept, ScopeRequired("…"), 403) == (
        "the stored login is not sufficient (403): a scope is missing",
        "request more: colonnade login https://mcp.example/mcp --scope SCOPE",
    )
