"""Programs that log in by themselves: secrets, keys, assertions, and tokens bound to a key."""

import base64
import hashlib
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from auth.fake_network import ISSUER, SERVER, FakeNetwork, asks, json
from colonnade.auth.client.credentials import RejectedRequest, authorize, renew
from colonnade.auth.client.login import (
    Auth,
    ClientCredentials,
    EnterpriseLogin,
    Login,
    WorkloadIdentity,
)
from colonnade.auth.client.steps import FlowResponse, SendRequest
from colonnade.auth.client.storage import StoredLogin
from colonnade.auth.client.tokens import dpop_proof
from colonnade.auth.jose import generate_key, parse_jwt, read_private_key
from colonnade.errors import AuthError, InvalidArgument, LocalProtocolError

TOKEN = f"{ISSUER}/token"
IDP = "https://idp.example/token"


def pem(key: Any) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def log_in(network: FakeNetwork, auth: Auth, *lines: str, **refusal: object) -> StoredLogin:
    given = RejectedRequest(**{"challenges": asks(*lines), **refusal})  # pyright: ignore[reportArgumentType]
    return network.run(authorize(auth, SERVER, given, network.context))


def read(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and the claims of a signed text."""
    head, claims, _ = token.split(".")
    padded = [part + "=" * (-len(part) % 4) for part in (head, claims)]
    found = [msgspec.json.decode(base64.urlsafe_b64decode(part)) for part in padded]
    return found[0], found[1]


# ---------------------------------------------------------------- client credentials


def robot(**more: Any) -> ClientCredentials:
    given: dict[str, Any] = {"client_secret": "s:ü/", **more}
    return ClientCredentials(issuer=ISSUER, client_id="ro bot", **given)


@pytest.mark.spec("R1219", "R1220", "R1223")
@pytest.mark.parametrize("offered", [None, ["client_secret_basic", "client_secret_post"]])
def test_a_secret_goes_into_the_header_form_encoded(offered: list[str] | None) -> None:
    network = FakeNetwork(token_endpoint_auth_methods_supported=offered)
    log_in(network, robot(), 'Bearer scope="a"')
    [asked] = [step for step in network.requests if step.url == TOKEN]
    header = dict(asked.headers)["authorization"].removeprefix("Basic ")
    assert base64.b64decode(header) == b"ro+bot:s%3A%C3%BC%2F"
    [form] = network.posted(TOKEN)
    assert form == {"grant_type": "client_credentials", "resource": SERVER, "scope": "a"}


@pytest.mark.spec("R1224")
def test_or_into_the_body_where_the_issuer_wants_that() -> None:
    network = FakeNetwork(token_endpoint_auth_methods_supported=["client_secret_post"])
    log_in(network, robot())
    [form] = network.posted(TOKEN)
    assert (form["client_id"], form["client_secret"]) == ("ro bot", "s:ü/")
    assert not any(name == "authorization" for step in network.requests for name, _ in step.headers)


KEYS = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS256": lambda: rsa.generate_private_key(65537, 2048),
}


@pytest.mark.spec("R1222", "R1219", "R1221")
@pytest.mark.parametrize("algorithm", KEYS)
def test_a_key_signs_who_we_are_for_this_issuer_once_and_not_for_long(algorithm: str) -> None:
    key: Any = KEYS[algorithm]()
    network = FakeNetwork(
        token_endpoint_auth_methods_supported=["private_key_jwt"],
        token_endpoint_auth_signing_alg_values_supported=[algorithm],
    )
    auth = robot(client_secret="", private_key=pem(key), algorithm=algorithm, key_id="k1")
    held = log_in(network, auth)
    log_in(network, auth, generation=held.tokens.generation)
    forms = network.posted(TOKEN)
    assert "client_id" not in forms[0]  # RFC 7523: the assertion says it
    head, claims = read(forms[0]["client_assertion"])
    assert (head["alg"], head["kid"]) == (algorithm, "k1")
    assert claims["iss"] == claims["sub"] == "ro bot"
    assert claims["aud"] == ISSUER
    assert 0 < claims["exp"] - claims["iat"] <= 300
    assert claims["jti"] != read(forms[1]["client_assertion"])[1]["jti"]
    assert parse_jwt(forms[0]["client_assertion"])  # as our own server reads it
    assert pem(key)[30:60] not in repr(auth)


def test_a_key_whose_signature_the_issuer_does_not_read_is_an_error() -> None:
    network = FakeNetwork(token_endpoint_auth_signing_alg_values_supported=["RS256"])
    auth = robot(client_secret="", private_key=pem(KEYS["ES256"]()))
    with pytest.raises(AuthError, match="signed with RS256"):
        log_in(network, auth)
    assert network.posted(TOKEN) == []


@pytest.mark.spec("R1229")
@pytest.mark.parametrize(
    ("methods", "auth"),
    [
        (["private_key_jwt"], robot()),
        (["client_secret_basic"], robot(client_secret="", private_key=pem(KEYS["ES256"]()))),
    ],
)
def test_what_the_issuer_does_not_take_is_not_sent(methods: list[str], auth: Auth) -> None:
    network = FakeNetwork(token_endpoint_auth_methods_supported=methods)
    with pytest.raises(AuthError, match="does not support"):
        log_in(network, auth)
    assert network.posted(TOKEN) == []


@pytest.mark.spec("R1229")
@pytest.mark.parametrize(
    "key",
    [
        lambda: rsa.generate_private_key(65537, 1024),
        lambda: ec.generate_private_key(ec.SECP192R1()),
    ],
)
def test_a_weak_key_is_refused(key: Any) -> None:
    with pytest.raises(LocalProtocolError, match="unsupported private key"):
        read_private_key(pem(key()))
    with pytest.raises(LocalProtocolError, match="signs with ES256, not RS256"):
        read_private_key(pem(KEYS["ES256"]()), "RS256")


@pytest.mark.spec("R1230")
def test_a_program_renews_by_asking_again_and_keeps_no_refresh_token() -> None:
    network = FakeNetwork()
    network.grants = [{"expires_in": 10, "refresh_token": "not for programs"}]
    held = log_in(network, robot(), 'Bearer scope="a"')
    assert held.tokens.refresh_token == ""
    network.requests.clear()
    again = network.run(renew(robot(), SERVER, held.tokens.generation, network.context))
    assert again is not None
    assert again.tokens.generation != held.tokens.generation
    assert network.urls == [TOKEN]
    assert network.posted(TOKEN)[0]["scope"] == "a"


@pytest.mark.spec("R1219", "R1220")
def test_a_program_is_never_sent_to_a_page_and_asks_for_no_offline_access() -> None:
    network = FakeNetwork(scopes_supported=["offline_access"])
    log_in(network, robot(), 'Bearer scope="a"')
    assert network.pages == []
    assert network.posted(TOKEN)[0]["scope"] == "a"


# ---------------------------------------------------------------- enterprise, workload


def enterprise(**more: Any) -> EnterpriseLogin:
    given: dict[str, Any] = {"identity": "the-id-token", **more}
    return EnterpriseLogin(
        issuer=ISSUER,
        client_id="app",
        client_secret="app-secret",
        idp_token_endpoint=IDP,
        idp_client_id="app-at-idp",
        **given,
    )


def vouching(**more: Any) -> FlowResponse:
    kind = "urn:ietf:params:oauth:token-type:id-jag"
    return json({"issued_token_type": kind, "access_token": "jag", "token_type": "N_A", **more})


@pytest.mark.spec("R1233", "R1234", "R1238", "R1239", "R1258", "R1259", "R1235", "R1236")
def test_an_enterprise_vouches_for_its_user() -> None:
    network = FakeNetwork()
    network.responses[IDP] = vouching()
    log_in(network, enterprise(identity=lambda: "fresh-id-token"), 'Bearer scope="a b"')
    [exchange] = network.posted(IDP)
    assert exchange == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": ISSUER,
        "resource": SERVER,
        "subject_token": "fresh-id-token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "scope": "a b",
        "client_id": "app-at-idp",
    }
    [form] = network.posted(TOKEN)
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert form["assertion"] == "jag"
    assert b"the-id-token" not in network.sent_to(ISSUER)
    assert b"app-secret" not in network.sent_to("https://idp.example")


def test_an_enterprise_with_saml_and_a_secret_of_its_own() -> None:
    network = FakeNetwork()
    network.responses[IDP] = vouching()
    log_in(network, enterprise(identity_type="saml2", idp_client_secret="idp-secret"))
    [exchange] = network.posted(IDP)
    assert exchange["subject_token_type"] == "urn:ietf:params:oauth:token-type:saml2"
    assert exchange["client_secret"] == "idp-secret"
    assert b"idp-secret" not in network.sent_to(ISSUER)


@pytest.mark.spec("R1241", "R1242", "R1243")
@pytest.mark.parametrize(
    "reply",
    [
        vouching(issued_token_type="urn:ietf:params:oauth:token-type:access_token"),
        vouching(access_token=""),
        vouching(token_type="Bearer"),
        vouching(token_type=None),
        json({"error": "invalid_grant", "error_description": "policy"}, 400),
    ],
)
def test_an_enterprise_that_does_not_vouch_ends_it(reply: FlowResponse) -> None:
    network = FakeNetwork()
    network.responses[IDP] = reply
    with pytest.raises(AuthError):
        log_in(network, enterprise())
    assert network.posted(TOKEN) == []


def test_a_workload_is_vouched_for_by_its_platform_each_time_anew() -> None:
    network = FakeNetwork()
    given = iter(["jwt-1", "jwt-2"])
    auth = WorkloadIdentity(issuer=ISSUER, client_id="job", assertion=lambda: next(given))
    held = log_in(network, auth)
    network.run(renew(auth, SERVER, held.tokens.generation + "x", network.context))
    log_in(network, auth, generation=held.tokens.generation)
    assert [form["assertion"] for form in network.posted(TOKEN)] == ["jwt-1", "jwt-2"]


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
def test_a_workload_that_is_refused_tries_nothing_else(error: str) -> None:
    network = FakeNetwork()
    network.grants = [{"error": error}] * 3
    auth = WorkloadIdentity(issuer=ISSUER, client_id="job", assertion="jwt-of-the-job")
    with pytest.raises(AuthError, match=error) as raised:
        log_in(network, auth)
    assert len(network.posted(TOKEN)) == 1
    assert "jwt-of-the-job" not in str(raised.value)


@pytest.mark.parametrize(
    "quoted",
    ["the-jwt.of-the-job.signed", "the-jwt.of-the-job...", "'of-the-job.sig'", "job-secret-of-it"],
)
def test_what_an_issuer_quotes_of_a_secret_is_not_shown(quoted: str) -> None:
    network = FakeNetwork()
    network.grants = [{"error": "invalid_grant", "error_description": f"cannot use {quoted} now"}]
    auth = WorkloadIdentity(
        issuer=ISSUER,
        client_id="job",
        client_secret="job-secret-of-it",
        assertion="the-jwt.of-the-job.signed",
    )
    with pytest.raises(AuthError, match=r"invalid_grant: cannot use '?…'? now"):
        log_in(network, auth)


def test_an_identity_of_an_unknown_type_is_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match="id_token, saml2, access_token"):
        enterprise(identity_type="password")


@pytest.mark.parametrize("text", ["", None, 7])
def test_an_assertion_that_is_no_text_is_an_error(text: Any) -> None:
    with pytest.raises(AuthError, match="non-empty string"):
        log_in(FakeNetwork(), WorkloadIdentity(issuer=ISSUER, assertion=lambda: text))


# ---------------------------------------------------------------- DPoP


def proofs(network: FakeNetwork) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        read(value) for step in network.requests for name, value in step.headers if name == "dpop"
    ]


@pytest.mark.parametrize("how", ["challenge", "document", "program"])
def test_tokens_are_bound_where_server_or_program_want_it(how: str) -> None:
    network = FakeNetwork(dpop_signing_alg_values_supported=["ES256"])
    if how == "document":
        place = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
        described = {"resource": SERVER, "authorization_servers": [ISSUER]}
        network.responses[place] = json({**described, "dpop_bound_access_tokens_required": True})
    lines = ['DPoP algs="ES256 PS256"'] if how == "challenge" else []
    held = log_in(network, Login(dpop=how == "program"), *lines)
    assert held.tokens.token_type == "dpop"
    [(head, claims)] = proofs(network)
    assert (head["typ"], head["alg"]) == ("dpop+jwt", "ES256")
    assert "d" not in head["jwk"]
    assert (claims["htm"], claims["htu"]) == ("POST", TOKEN)
    assert abs(claims["iat"] - network.now) <= 1
    assert network.pages[0]["dpop_jkt"] == read_private_key(held.tokens.key).thumbprint


def test_a_nonce_of_the_issuer_is_used_once_more_and_not_for_ever() -> None:
    network = FakeNetwork(dpop_signing_alg_values_supported=["ES256"])
    nonces = iter(["n1", "n2", "n3"])

    def asking(asked: SendRequest) -> FlowResponse:
        return json({"error": "use_dpop_nonce"}, 400, **{"dpop-nonce": next(nonces)})

    network.responses[TOKEN] = asking
    with pytest.raises(AuthError, match="use_dpop_nonce"):
        log_in(network, Login(dpop=True))
    assert [claims.get("nonce") for _, claims in proofs(network)] == [None, "n1"]
    assert len({claims["jti"] for _, claims in proofs(network)}) == 2


def test_a_renewal_is_proven_with_the_key_that_the_tokens_are_bound_to() -> None:
    network = FakeNetwork(dpop_signing_alg_values_supported=["ES256"])
    network.grants = [{"refresh_token": "r"}]
    held = log_in(network, Login(dpop=True))
    new = network.run(renew(Login(dpop=True), SERVER, held.tokens.generation, network.context))
    assert new is not None
    keys = [head["jwk"] for head, _ in proofs(network)]
    assert keys[0] == keys[1]
    assert new.tokens.key == held.tokens.key


@pytest.mark.parametrize("kind", ["Bearer", "bearer"])
def test_a_token_that_is_not_bound_though_it_should_be_is_refused(kind: str) -> None:
    network = FakeNetwork(dpop_signing_alg_values_supported=["ES256"])
    network.grants = [{"token_type": kind}]
    with pytest.raises(AuthError, match="bound to a key"):
        log_in(network, Login(dpop=True))


@pytest.mark.parametrize(
    ("lines", "known"), [(['DPoP algs="RS256"'], ["ES256"]), (["DPoP"], ["RS256"]), (["DPoP"], [])]
)
def test_where_nobody_reads_our_proofs_nothing_is_begun(lines: list[str], known: list[str]) -> None:
    network = FakeNetwork(dpop_signing_alg_values_supported=known)
    with pytest.raises(AuthError, match="ES256"):
        log_in(network, Login(), *lines)
    assert network.pages == []


def test_a_proof_names_the_request_the_token_and_the_nonce_and_no_query() -> None:
    network = FakeNetwork()
    key = generate_key()
    text = dpop_proof(key, network.context, "GET", f"{SERVER}?a=1#b", nonce="n", token="t")
    _, claims = read(text)
    assert (claims["htm"], claims["htu"], claims["nonce"]) == ("GET", SERVER, "n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"t").digest()).decode().rstrip("=")
    assert claims["ath"] == digest
