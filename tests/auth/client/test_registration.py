"""Who we are to an authorization server, and that one's credentials are never shown to another."""

import msgspec
import pytest
from msgspec.structs import replace

from auth.fake_network import ISSUER, NONE, REDIRECT_URI, SERVER, FakeNetwork, asks, json
from colonnade.auth.client.credentials import RejectedRequest, authorize, renew
from colonnade.auth.client.login import ClientCredentials, EnterpriseLogin, Login, WorkloadIdentity
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.steps import FlowResponse, LoginTimedOut
from colonnade.auth.client.storage import (
    StoredLogin,
    client_key,
    current_login_key,
    encode_record,
    load_login,
    login_key,
    save_login,
)
from colonnade.errors import AuthError, ConnectionLost, LocalProtocolError, LoginRequired
from colonnade.store.memory import MemoryStore

DOCUMENT = "https://app.example/client.json"
OTHER = "https://other.example"
PRM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
KNOWN = f"{ISSUER}/.well-known/oauth-authorization-server"


def log_in(
    network: FakeNetwork, auth: Login | ClientCredentials | None = None, **refusal: object
) -> StoredLogin:
    given = RejectedRequest(**{"challenges": NONE, **refusal})  # pyright: ignore[reportArgumentType]
    return network.run(authorize(auth or Login(), SERVER, given, network.context))


def registered(network: FakeNetwork) -> dict[str, object]:
    [asked] = [step for step in network.requests if step.url == f"{ISSUER}/register"]
    return msgspec.json.decode(asked.body)


def move(network: FakeNetwork, issuer: str = OTHER) -> None:
    """The server names another issuer from now on."""
    network.issue(issuer)
    network.responses[PRM] = json({"resource": SERVER, "authorization_servers": [issuer]})


# ---------------------------------------------------------------- which client


@pytest.mark.spec("R0408", "R0406")
@pytest.mark.parametrize(
    "url",
    [
        "http://app.example/c.json",
        "https://app.example",
        "https://app.example/",
        "client.json",
        "https://app.example/a/../c.json",
        "https://app.example/c#x",
        "https://u@app.example/c",
    ],
)
def test_cl_12_a_client_document_is_an_https_url_with_a_path(url: str) -> None:
    with pytest.raises(LocalProtocolError, match="client_metadata_url="):
        Login(client_metadata_url=url)


@pytest.mark.spec("R0401", "R0419", "R0697")
def test_cl_13_what_was_registered_beforehand_comes_first() -> None:
    network = FakeNetwork(client_id_metadata_document_supported=True)
    auth = Login(client_id="mine", issuer=ISSUER, client_metadata_url=DOCUMENT)
    assert log_in(network, auth).client.client_id == "mine"
    assert f"{ISSUER}/register" not in network.urls


@pytest.mark.spec("R0380", "R0402", "R0405", "R0418", "R0698", "R0701")
def test_cl_13_then_a_document_where_the_issuer_takes_them() -> None:
    network = FakeNetwork(client_id_metadata_document_supported=True)
    assert log_in(network, Login(client_metadata_url=DOCUMENT)).client.client_id == DOCUMENT
    assert network.pages[0]["client_id"] == DOCUMENT
    assert network.posted(f"{ISSUER}/token")[0]["client_id"] == DOCUMENT
    assert f"{ISSUER}/register" not in network.urls


@pytest.mark.spec("R0191", "R0204", "R0301", "R0403", "R0699")
def test_cl_13_then_registration() -> None:
    network = FakeNetwork()
    assert log_in(network, Login(client_metadata_url=DOCUMENT)).client.client_id == f"of {ISSUER}"


@pytest.mark.spec("R0404", "R0700", "R0713")
def test_cl_13_and_where_there_is_none_a_person_is_told_what_to_do() -> None:
    network = FakeNetwork(registration_endpoint=None)
    with pytest.raises(LoginRequired, match="client_id= and issuer="):
        log_in(network)
    assert network.pages == []


@pytest.mark.spec("R0335", "R0703", "R0725", "R0704")
def test_cl_14_a_registration_says_what_kind_of_program_it_is() -> None:
    network = FakeNetwork()
    log_in(network, Login(client_name="Weather desk"))
    assert registered(network) == {
        "client_name": "Weather desk",
        "redirect_uris": [REDIRECT_URI],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }


@pytest.mark.spec("R0705")
def test_cl_14_a_program_on_the_web_says_so() -> None:
    network = FakeNetwork()
    uri = "https://app.example/back"
    log_in(network, Login(redirect_uri=uri, on_redirect=lambda url: url))
    assert (registered(network)["application_type"], registered(network)["redirect_uris"]) == (
        "web",
        [uri],
    )


@pytest.mark.spec("R0706", "R0707")
def test_cl_14_a_rejection_is_told() -> None:
    network = FakeNetwork()
    said = {"error": "invalid_redirect_uri", "error_description": "no loopback\x1b[2J here"}
    network.responses[f"{ISSUER}/register"] = json(said, 400)
    with pytest.raises(AuthError, match="invalid_redirect_uri: no loopback") as raised:
        log_in(network)
    assert "\x1b" not in str(raised.value)
    network.responses[f"{ISSUER}/register"] = FlowResponse(503)
    with pytest.raises(ConnectionLost):
        log_in(network)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"client_id": 7}', b'{"client_id": ""}'])
def test_a_registration_without_a_client_is_none(answer: bytes) -> None:
    network = FakeNetwork()
    network.responses[f"{ISSUER}/register"] = FlowResponse(201, (), answer)
    with pytest.raises(AuthError):
        log_in(network)
    assert network.pages == []


@pytest.mark.spec("R0190")
@pytest.mark.parametrize(
    ("offered", "asked"),
    [(None, "none"), (["client_secret_basic"], "client_secret_basic"), (["x"], "none")],
)
def test_a_client_asks_to_authenticate_as_the_issuer_can(
    offered: list[str] | None, asked: str
) -> None:
    network = FakeNetwork(token_endpoint_auth_methods_supported=offered)
    log_in(network)
    assert registered(network)["token_endpoint_auth_method"] == asked


def test_a_client_is_registered_once_and_used_again() -> None:
    network = FakeNetwork()
    held = log_in(network)
    log_in(network, generation=held.tokens.generation)
    assert network.urls.count(f"{ISSUER}/register") == 1
    assert network.listened == ["", REDIRECT_URI]  # the port that was registered, if it is free


def test_a_client_is_registered_anew_where_its_redirect_uri_is_another() -> None:
    network = FakeNetwork()
    old = RegisteredClient(ISSUER, "old", redirect_uri="http://127.0.0.1:1/callback", dynamic=True)
    network.records[client_key(SERVER, ISSUER)] = encode_record(old)
    auth = Login(redirect_uri="http://127.0.0.1:2/callback")
    assert log_in(network, auth).client.client_id == f"of {ISSUER}"


def test_a_client_whose_secret_has_ended_is_registered_anew() -> None:
    network = FakeNetwork()
    old = RegisteredClient(
        ISSUER, "old", "s", "client_secret_basic", REDIRECT_URI, network.now - 1, True
    )
    network.records[client_key(SERVER, ISSUER)] = encode_record(old)
    assert log_in(network).client.client_id == f"of {ISSUER}"


def test_a_client_that_the_issuer_forgot_is_registered_anew_once() -> None:
    network = FakeNetwork()
    old = RegisteredClient(ISSUER, "forgotten", redirect_uri=REDIRECT_URI, dynamic=True)
    network.records[client_key(SERVER, ISSUER)] = encode_record(old)
    network.grants = [{"error": "invalid_client"}]
    assert log_in(network).client.client_id == f"of {ISSUER}"
    other = FakeNetwork()
    other.grants = [{"error": "invalid_client"}] * 5
    with pytest.raises(AuthError, match="invalid_client"):
        log_in(other)
    assert len(other.pages) == 1


@pytest.mark.parametrize("error", ["unauthorized_client", "invalid_client"])
def test_a_client_that_the_authorization_endpoint_refuses_is_registered_anew_once(
    error: str,
) -> None:
    network = FakeNetwork()
    old = RegisteredClient(ISSUER, "forgotten", redirect_uri=REDIRECT_URI, dynamic=True)
    network.records[client_key(SERVER, ISSUER)] = encode_record(old)

    def respond(page: dict[str, str]) -> dict[str, str]:
        if page["client_id"] == "forgotten":
            return {"error": error, "state": page["state"]}
        return network.approve(page)

    network.answer = respond
    assert log_in(network).client.client_id == f"of {ISSUER}"
    assert len(network.pages) == 2
    other = FakeNetwork()
    other.answer = lambda page: {"error": error, "state": page["state"]}
    with pytest.raises(LoginRequired, match=error):
        log_in(other)
    assert len(other.pages) == 1  # it was registered a moment ago
    denied = FakeNetwork()
    denied.records[client_key(SERVER, ISSUER)] = encode_record(old)
    denied.answer = lambda page: {"error": "access_denied", "state": page["state"]}
    with pytest.raises(LoginRequired, match="access_denied"):
        log_in(denied)
    assert len(denied.pages) == 1


def test_a_login_that_did_not_come_back_is_the_last_one_with_an_older_client() -> None:
    """An issuer that has forgotten a client shows a page, and redirects nowhere."""
    network = FakeNetwork()
    old = RegisteredClient(ISSUER, "forgotten", redirect_uri=REDIRECT_URI, dynamic=True)
    network.records[client_key(SERVER, ISSUER)] = encode_record(old)

    def wait(page: dict[str, str]) -> dict[str, str]:
        raise LoginTimedOut("the login was not completed")

    network.answer = wait
    with pytest.raises(LoginTimedOut):
        log_in(network)
    network.answer = network.approve
    assert log_in(network).client.client_id == f"of {ISSUER}"


def test_a_client_that_a_refresh_shows_to_be_forgotten_is_registered_anew() -> None:
    network = FakeNetwork()
    names = iter(["first", "second"])
    network.responses[f"{ISSUER}/register"] = lambda asked: json({"client_id": next(names)}, 201)
    network.grants = [{"refresh_token": "r"}, {"error": "invalid_client"}]
    held = log_in(network)
    assert held.client.client_id == "first"
    again = log_in(network, generation=held.tokens.generation)
    assert again.client.client_id == "second"
    assert [page["client_id"] for page in network.pages] == ["first", "second"]


# ---------------------------------------------------------------- and whose


@pytest.mark.spec("R0323", "R0693", "R0709", "R0710")
def test_cl_15_where_the_issuer_changes_nothing_of_the_old_one_goes_to_the_new_one() -> None:
    network = FakeNetwork()
    network.responses[f"{ISSUER}/register"] = json(
        {"client_id": "old-client", "client_secret": "old-secret"}, 201
    )
    network.grants = [{"refresh_token": "old-refresh"}]
    held = log_in(network)
    move(network)
    network.requests.clear()
    new = log_in(network, generation=held.tokens.generation)
    assert new.client.client_id == f"of {OTHER}"
    assert new.tokens.issuer == OTHER
    sent = network.sent_to(OTHER)
    for secret in (b"old-client", b"old-secret", b"old-refresh", b"token-"):
        assert secret not in sent
    assert not network.sent_to(ISSUER)


def test_cl_15_and_the_old_one_is_there_when_the_server_comes_back() -> None:
    network = FakeNetwork()
    first = log_in(network)
    move(network)
    second = log_in(network, generation=first.tokens.generation)
    network.serve()
    third = log_in(network, generation=second.tokens.generation)
    assert third.client == first.client
    assert network.urls.count(f"{ISSUER}/register") == 1


def test_cl_15_a_document_is_the_same_client_everywhere() -> None:
    network = FakeNetwork(client_id_metadata_document_supported=True)
    auth = Login(client_metadata_url=DOCUMENT)
    held = log_in(network, auth)
    network.issue(OTHER, client_id_metadata_document_supported=True)
    network.responses[PRM] = json({"resource": SERVER, "authorization_servers": [OTHER]})
    new = log_in(network, auth, generation=held.tokens.generation)
    assert (new.client.client_id, new.tokens.issuer) == (DOCUMENT, OTHER)


def test_cl_07_of_several_issuers_each_has_a_client_and_tokens_of_its_own() -> None:
    """What one gave goes to no other, and both are there beside each other."""
    network = FakeNetwork()
    network.issue(OTHER)
    listed = {"resource": SERVER, "authorization_servers": [ISSUER, OTHER]}
    network.responses[PRM] = json(listed)
    for issuer in (ISSUER, OTHER):
        made = {"client_id": f"client of {issuer}", "client_secret": f"secret of {issuer}"}
        network.responses[f"{issuer}/register"] = json(made, 201)
    network.grants = [{"refresh_token": "first-refresh"}, {"refresh_token": "second-refresh"}]
    first = log_in(network, Login(issuer=ISSUER))
    asked = len(network.requests)
    second = log_in(network, Login(issuer=OTHER), generation=first.tokens.generation)
    for held, issuer in ((first, ISSUER), (second, OTHER)):
        assert (held.client.client_id, held.client.issuer) == (f"client of {issuer}", issuer)
        assert held.tokens.issuer == held.discovery.issuer.issuer == issuer
    assert not any(step.url.startswith(ISSUER) for step in network.requests[asked:])
    sent = network.sent_to(OTHER)
    for secret in (ISSUER.encode(), b"first-refresh", first.tokens.access_token.encode()):
        assert secret not in sent
    for held in (first, second):
        at = (SERVER, held.client.issuer)
        assert (
            msgspec.json.decode(network.records[client_key(*at)], type=RegisteredClient)
            == held.client
        )
        kept = network.records[login_key(*at, held.client.client_id)]
        assert msgspec.json.decode(kept, type=StoredLogin) == held


def test_cl_28_a_login_that_was_got_for_another_server_is_never_taken() -> None:
    """Not even where it lies under this server's name, by mistake or by malice."""
    network = FakeNetwork()
    held = log_in(network)
    there = "https://other.example/mcp"
    network.records[current_login_key(there, "")] = network.records[current_login_key(SERVER, "")]
    name = login_key(there, held.client.issuer, held.client.client_id)
    network.records[name] = encode_record(held)
    assert network.run(load_login(SERVER, "")) == held
    assert network.run(load_login(there, "")) is None


@pytest.mark.spec("R0709", "R0711")
@pytest.mark.parametrize("scoped", [False, True])
@pytest.mark.parametrize(
    "auth",
    [
        Login(client_id="mine", client_secret="mine-secret", issuer=ISSUER),
        ClientCredentials(issuer=ISSUER, client_id="mine", client_secret="mine-secret"),
        WorkloadIdentity(issuer=ISSUER, assertion="mine-secret"),
        EnterpriseLogin(
            issuer=ISSUER,
            client_id="mine",
            client_secret="mine-secret",
            idp_token_endpoint="https://idp.example/token",
            idp_client_id="mine",
            identity="mine-secret",
        ),
    ],
    ids=lambda auth: type(auth).__name__,
)
def test_cl_15_credentials_of_one_issuer_are_an_error_at_another(auth: Login, scoped: bool) -> None:
    """GHSA-qx49-fqc8-xw99, CVE-2026-104850: on 401 and on 403."""
    network = FakeNetwork()
    move(network)
    lines = asks('Bearer error="insufficient_scope", scope="x"') if scoped else NONE
    with pytest.raises(AuthError, match="belongs to the issuer"):
        log_in(network, auth, challenges=lines, needs_scope=scoped)
    sent = b"".join(network.sent_to(one) for one in (OTHER, "https://idp.example"))
    assert b"mine" not in sent
    assert network.pages == []


def test_cl_15_one_slash_at_the_end_makes_no_other_issuer() -> None:
    """D42."""
    auth = ClientCredentials(issuer=f"{ISSUER}/", client_id="mine", client_secret="mine-secret")
    assert log_in(FakeNetwork(), auth).tokens.issuer == ISSUER
    auth = ClientCredentials(issuer=f"{ISSUER}//", client_id="mine", client_secret="mine-secret")
    with pytest.raises(AuthError, match="belongs to the issuer"):
        log_in(FakeNetwork(), auth)


def test_cl_15_by_the_older_rules_too() -> None:
    network = FakeNetwork()
    network.responses.clear()
    auth = ClientCredentials(issuer=ISSUER, client_id="mine", client_secret="mine-secret")
    with pytest.raises(AuthError, match="belongs to the issuer"):
        log_in(network, auth)
    assert b"mine-secret" not in network.sent_to("https://")


def test_cl_15_what_is_kept_and_not_of_one_issuer_is_not_used() -> None:
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r"}]
    held = log_in(network)
    stolen = StoredLogin(held.discovery, RegisteredClient(OTHER, "x", "secret"), held.tokens)
    name = next(name for name in network.records if name.startswith("oauth tokens"))
    network.records[name] = encode_record(stolen)
    network.requests.clear()
    assert network.run(renew(Login(), SERVER, "", network.context)) is None
    assert network.requests == []


def test_cl_16_what_is_kept_and_names_no_issuer_is_dead() -> None:
    network = FakeNetwork()
    held = log_in(network)
    nobodys = StoredLogin(
        replace(held.discovery, issuer=replace(held.discovery.issuer, issuer="")),
        replace(held.client, issuer=""),
        replace(held.tokens, issuer="", refresh_token="r"),
    )
    network.run(save_login(nobodys, ""))
    network.requests.clear()
    assert network.run(load_login(SERVER, "")) is None
    assert network.run(renew(Login(), SERVER, "", network.context)) is None
    assert network.requests == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: ClientCredentials(issuer="", client_id="a", client_secret="b"),
        lambda: WorkloadIdentity(issuer="", assertion="a"),
        lambda: Login(client_id="a"),
        lambda: Login(client_id="a", client_secret="b"),
        lambda: Login(client_secret="b", issuer=ISSUER),
        lambda: ClientCredentials(issuer="http://as.example", client_id="a", client_secret="b"),
    ],
)
def test_cl_16_credentials_that_name_no_issuer_are_refused_when_they_are_made(make: object) -> None:
    with pytest.raises(LocalProtocolError, match="issuer"):
        make()  # pyright: ignore[reportCallIssue, reportUnknownVariableType]


@pytest.mark.spec("R0216", "R0333")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Login(scopes="files:read"),
        lambda: Login(scopes=["a b"]),
        lambda: Login(scopes=[""]),
        lambda: Login(redirect_uri="https://app.example/back"),
        lambda: Login(redirect_uri="http://app.example/back", on_redirect=print),
        lambda: Login(redirect_uri="http://127.0.0.1:1/a#b"),
        lambda: Login(on_redirect=print),
        lambda: Login(keep=True, store=MemoryStore(), keys=[bytes(32)]),
        lambda: Login(store=MemoryStore()),
        lambda: ClientCredentials(issuer=ISSUER, client_id="a"),
        lambda: ClientCredentials(issuer=ISSUER, client_id="a", client_secret="b", method="x"),
        lambda: ClientCredentials(issuer=ISSUER, client_id="a", private_key="-----BEGIN"),
    ],
)
def test_what_cannot_be_right_is_refused_when_it_is_made(make: object) -> None:
    """CL-26, for redirect URIs."""
    with pytest.raises(LocalProtocolError):
        make()  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
