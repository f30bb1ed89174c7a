"""Who we are to an authorization server, and that one's credentials are never shown to another."""

import msgspec
import pytest
from msgspec.structs import replace

from auth.fake_network import ISSUER, NONE, REDIRECT_URI, SERVER, World, asks, json
from colonnade.auth.client.credentials import RejectedRequest, authorize, renew
from colonnade.auth.client.login import ClientCredentials, EnterpriseLogin, Login, WorkloadIdentity
from colonnade.auth.client.registration import RegisteredClient
from colonnade.auth.client.steps import FlowResponse
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
    world: World, auth: Login | ClientCredentials | None = None, **refusal: object
) -> StoredLogin:
    given = RejectedRequest(**{"challenges": NONE, **refusal})  # pyright: ignore[reportArgumentType]
    return world.run(authorize(auth or Login(), SERVER, given, world.context))


def registered(world: World) -> dict[str, object]:
    [asked] = [step for step in world.asked if step.url == f"{ISSUER}/register"]
    return msgspec.json.decode(asked.body)


def move(world: World, issuer: str = OTHER) -> None:
    """The server names another issuer from now on."""
    world.issue(issuer)
    world.places[PRM] = json({"resource": SERVER, "authorization_servers": [issuer]})


# ---------------------------------------------------------------- which client


@pytest.mark.spec("R0408")
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
    world = World(client_id_metadata_document_supported=True)
    auth = Login(client_id="mine", issuer=ISSUER, client_metadata_url=DOCUMENT)
    assert log_in(world, auth).client.client_id == "mine"
    assert f"{ISSUER}/register" not in world.urls


@pytest.mark.spec("R0380", "R0402", "R0405", "R0418", "R0698", "R0701")
def test_cl_13_then_a_document_where_the_issuer_takes_them() -> None:
    world = World(client_id_metadata_document_supported=True)
    assert log_in(world, Login(client_metadata_url=DOCUMENT)).client.client_id == DOCUMENT
    assert world.pages[0]["client_id"] == DOCUMENT
    assert world.posted(f"{ISSUER}/token")[0]["client_id"] == DOCUMENT
    assert f"{ISSUER}/register" not in world.urls


@pytest.mark.spec("R0191", "R0204", "R0301", "R0403", "R0699")
def test_cl_13_then_registration() -> None:
    world = World()
    assert log_in(world, Login(client_metadata_url=DOCUMENT)).client.client_id == f"of {ISSUER}"


@pytest.mark.spec("R0404", "R0700", "R0713")
def test_cl_13_and_where_there_is_none_a_person_is_told_what_to_do() -> None:
    world = World(registration_endpoint=None)
    with pytest.raises(LoginRequired, match="client_id= and issuer="):
        log_in(world)
    assert world.pages == []


@pytest.mark.spec("R0335", "R0703", "R0725")
def test_cl_14_a_registration_says_what_kind_of_program_it_is() -> None:
    world = World()
    log_in(world, Login(client_name="Weather desk"))
    assert registered(world) == {
        "client_name": "Weather desk",
        "redirect_uris": [REDIRECT_URI],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }


def test_cl_14_a_program_on_the_web_says_so() -> None:
    world = World()
    uri = "https://app.example/back"
    log_in(world, Login(redirect_uri=uri, on_redirect=lambda url: url))
    assert (registered(world)["application_type"], registered(world)["redirect_uris"]) == (
        "web",
        [uri],
    )


@pytest.mark.spec("R0706", "R0707")
def test_cl_14_a_rejection_is_told() -> None:
    world = World()
    said = {"error": "invalid_redirect_uri", "error_description": "no loopback\x1b[2J here"}
    world.places[f"{ISSUER}/register"] = json(said, 400)
    with pytest.raises(AuthError, match="invalid_redirect_uri: no loopback") as raised:
        log_in(world)
    assert "\x1b" not in str(raised.value)
    world.places[f"{ISSUER}/register"] = FlowResponse(503)
    with pytest.raises(ConnectionLost):
        log_in(world)


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"client_id": 7}', b'{"client_id": ""}'])
def test_a_registration_without_a_client_is_none(answer: bytes) -> None:
    world = World()
    world.places[f"{ISSUER}/register"] = FlowResponse(201, (), answer)
    with pytest.raises(AuthError):
        log_in(world)
    assert world.pages == []


@pytest.mark.parametrize(
    ("offered", "asked"),
    [(None, "none"), (["client_secret_basic"], "client_secret_basic"), (["x"], "none")],
)
def test_a_client_asks_to_authenticate_as_the_issuer_can(
    offered: list[str] | None, asked: str
) -> None:
    world = World(token_endpoint_auth_methods_supported=offered)
    log_in(world)
    assert registered(world)["token_endpoint_auth_method"] == asked


def test_a_client_is_registered_once_and_used_again() -> None:
    world = World()
    held = log_in(world)
    log_in(world, generation=held.tokens.generation)
    assert world.urls.count(f"{ISSUER}/register") == 1
    assert world.listened == ["", REDIRECT_URI]  # the port that was registered, if it is free


def test_a_client_is_registered_anew_where_its_redirect_uri_is_another() -> None:
    world = World()
    old = RegisteredClient(ISSUER, "old", redirect_uri="http://127.0.0.1:1/callback", dynamic=True)
    world.kept[client_key(SERVER, ISSUER)] = encode_record(old)
    auth = Login(redirect_uri="http://127.0.0.1:2/callback")
    assert log_in(world, auth).client.client_id == f"of {ISSUER}"


def test_a_client_whose_secret_has_ended_is_registered_anew() -> None:
    world = World()
    old = RegisteredClient(
        ISSUER, "old", "s", "client_secret_basic", REDIRECT_URI, world.now - 1, True
    )
    world.kept[client_key(SERVER, ISSUER)] = encode_record(old)
    assert log_in(world).client.client_id == f"of {ISSUER}"


def test_a_client_that_the_issuer_forgot_is_registered_anew_once() -> None:
    world = World()
    old = RegisteredClient(ISSUER, "forgotten", redirect_uri=REDIRECT_URI, dynamic=True)
    world.kept[client_key(SERVER, ISSUER)] = encode_record(old)
    world.grants = [{"error": "invalid_client"}]
    assert log_in(world).client.client_id == f"of {ISSUER}"
    other = World()
    other.grants = [{"error": "invalid_client"}] * 5
    with pytest.raises(AuthError, match="invalid_client"):
        log_in(other)
    assert len(other.pages) == 1


# ---------------------------------------------------------------- and whose


@pytest.mark.spec("R0323", "R0693", "R0709", "R0710")
def test_cl_15_where_the_issuer_changes_nothing_of_the_old_one_goes_to_the_new_one() -> None:
    world = World()
    world.places[f"{ISSUER}/register"] = json(
        {"client_id": "old-client", "client_secret": "old-secret"}, 201
    )
    world.grants = [{"refresh_token": "old-refresh"}]
    held = log_in(world)
    move(world)
    world.asked.clear()
    new = log_in(world, generation=held.tokens.generation)
    assert new.client.client_id == f"of {OTHER}"
    assert new.tokens.issuer == OTHER
    sent = world.sent_to(OTHER)
    for secret in (b"old-client", b"old-secret", b"old-refresh", b"token-"):
        assert secret not in sent
    assert not world.sent_to(ISSUER)


def test_cl_15_and_the_old_one_is_there_when_the_server_comes_back() -> None:
    world = World()
    first = log_in(world)
    move(world)
    second = log_in(world, generation=first.tokens.generation)
    world.serve()
    third = log_in(world, generation=second.tokens.generation)
    assert third.client == first.client
    assert world.urls.count(f"{ISSUER}/register") == 1


def test_cl_15_a_document_is_the_same_client_everywhere() -> None:
    world = World(client_id_metadata_document_supported=True)
    auth = Login(client_metadata_url=DOCUMENT)
    held = log_in(world, auth)
    world.issue(OTHER, client_id_metadata_document_supported=True)
    world.places[PRM] = json({"resource": SERVER, "authorization_servers": [OTHER]})
    new = log_in(world, auth, generation=held.tokens.generation)
    assert (new.client.client_id, new.tokens.issuer) == (DOCUMENT, OTHER)


def test_cl_07_of_several_issuers_each_has_a_client_and_tokens_of_its_own() -> None:
    """What one gave goes to no other, and both are there beside each other."""
    world = World()
    world.issue(OTHER)
    listed = {"resource": SERVER, "authorization_servers": [ISSUER, OTHER]}
    world.places[PRM] = json(listed)
    for issuer in (ISSUER, OTHER):
        made = {"client_id": f"client of {issuer}", "client_secret": f"secret of {issuer}"}
        world.places[f"{issuer}/register"] = json(made, 201)
    world.grants = [{"refresh_token": "first-refresh"}, {"refresh_token": "second-refresh"}]
    first = log_in(world, Login(issuer=ISSUER))
    asked = len(world.asked)
    second = log_in(world, Login(issuer=OTHER), generation=first.tokens.generation)
    for held, issuer in ((first, ISSUER), (second, OTHER)):
        assert (held.client.client_id, held.client.issuer) == (f"client of {issuer}", issuer)
        assert held.tokens.issuer == held.discovery.issuer.issuer == issuer
    assert not any(step.url.startswith(ISSUER) for step in world.asked[asked:])
    sent = world.sent_to(OTHER)
    for secret in (ISSUER.encode(), b"first-refresh", first.tokens.access_token.encode()):
        assert secret not in sent
    for held in (first, second):
        at = (SERVER, held.client.issuer)
        assert (
            msgspec.json.decode(world.kept[client_key(*at)], type=RegisteredClient) == held.client
        )
        kept = world.kept[login_key(*at, held.client.client_id)]
        assert msgspec.json.decode(kept, type=StoredLogin) == held


def test_cl_28_a_login_that_was_got_for_another_server_is_never_taken() -> None:
    """Not even where it lies under this server's name, by mistake or by malice."""
    world = World()
    held = log_in(world)
    there = "https://other.example/mcp"
    world.kept[current_login_key(there, "")] = world.kept[current_login_key(SERVER, "")]
    name = login_key(there, held.client.issuer, held.client.client_id)
    world.kept[name] = encode_record(held)
    assert world.run(load_login(SERVER, "")) == held
    assert world.run(load_login(there, "")) is None


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
    world = World()
    move(world)
    lines = asks('Bearer error="insufficient_scope", scope="x"') if scoped else NONE
    with pytest.raises(AuthError, match="belongs to the issuer"):
        log_in(world, auth, challenges=lines, needs_scope=scoped)
    sent = b"".join(world.sent_to(one) for one in (OTHER, "https://idp.example"))
    assert b"mine" not in sent
    assert world.pages == []


def test_cl_15_one_slash_at_the_end_makes_no_other_issuer() -> None:
    """D42."""
    auth = ClientCredentials(issuer=f"{ISSUER}/", client_id="mine", client_secret="mine-secret")
    assert log_in(World(), auth).tokens.issuer == ISSUER
    auth = ClientCredentials(issuer=f"{ISSUER}//", client_id="mine", client_secret="mine-secret")
    with pytest.raises(AuthError, match="belongs to the issuer"):
        log_in(World(), auth)


def test_cl_15_by_the_older_rules_too() -> None:
    world = World()
    world.places.clear()
    auth = ClientCredentials(issuer=ISSUER, client_id="mine", client_secret="mine-secret")
    with pytest.raises(AuthError, match="belongs to the issuer"):
        log_in(world, auth)
    assert b"mine-secret" not in world.sent_to("https://")


def test_cl_15_what_is_kept_and_not_of_one_issuer_is_not_used() -> None:
    world = World()
    world.grants = [{"refresh_token": "r"}]
    held = log_in(world)
    stolen = StoredLogin(held.discovery, RegisteredClient(OTHER, "x", "secret"), held.tokens)
    name = next(name for name in world.kept if name.startswith("oauth tokens"))
    world.kept[name] = encode_record(stolen)
    world.asked.clear()
    assert world.run(renew(Login(), SERVER, "", world.context)) is None
    assert world.asked == []


def test_cl_16_what_is_kept_and_names_no_issuer_is_dead() -> None:
    world = World()
    held = log_in(world)
    nobodys = StoredLogin(
        replace(held.discovery, issuer=replace(held.discovery.issuer, issuer="")),
        replace(held.client, issuer=""),
        replace(held.tokens, issuer="", refresh_token="r"),
    )
    world.run(save_login(nobodys, ""))
    world.asked.clear()
    assert world.run(load_login(SERVER, "")) is None
    assert world.run(renew(Login(), SERVER, "", world.context)) is None
    assert world.asked == []


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
