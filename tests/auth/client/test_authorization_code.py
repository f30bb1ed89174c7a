"""A person logs in: what binds a code to us, and what is made of every answer."""

import base64
import hashlib

import msgspec
import pytest

from auth.fake_network import (
    ISSUER,
    NONE,
    REDIRECT_URI,
    SERVER,
    FakeNetwork,
    asks,
    issuer_metadata,
    json,
)
from colonnade.auth.client.credentials import RejectedRequest, authorize, renew
from colonnade.auth.client.login import Auth, Login
from colonnade.auth.client.steps import FlowResponse, SendRequest
from colonnade.auth.client.storage import StoredLogin
from colonnade.errors import AuthError, ConnectionLost, LoginRequired, ScopeRequired

TOKEN = f"{ISSUER}/token"
PRM = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
EVIL = "https://evil.example"


def log_in(
    network: FakeNetwork, auth: Auth | None = None, *lines: str, **refusal: object
) -> StoredLogin:
    given = RejectedRequest(**{"challenges": asks(*lines), **refusal})  # pyright: ignore[reportArgumentType]
    return network.run(authorize(auth or Login(), SERVER, given, network.context))


def refreshed(network: FakeNetwork, held: StoredLogin) -> StoredLogin | None:
    return network.run(renew(Login(), SERVER, held.tokens.generation, network.context))


# ---------------------------------------------------------------- what is asked


@pytest.mark.spec("R0219", "R0334", "R0439", "R0218", "R0326", "R0735")
def test_cl_18_cl_19_every_login_has_a_verifier_of_its_own_and_shows_its_s256() -> None:
    network = FakeNetwork()
    held = log_in(network)
    log_in(network, generation=held.tokens.generation)
    forms = [form for form in network.posted(TOKEN) if form["grant_type"] == "authorization_code"]
    verifiers = [form["code_verifier"] for form in forms]
    assert len(set(verifiers)) == 2
    assert len({page["state"] for page in network.pages}) == 2  # CL-20
    for page, verifier in zip(network.pages, verifiers, strict=True):
        digest = hashlib.sha256(verifier.encode()).digest()
        assert page["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
        assert page["code_challenge_method"] == "S256"
        assert 43 <= len(verifier) <= 128


@pytest.mark.spec("R0326", "R0438", "R0440")
@pytest.mark.parametrize("methods", [None, [], ["plain"], "S256"])
def test_cl_21_an_issuer_that_does_not_say_s256_is_refused(methods: object) -> None:
    network = FakeNetwork(code_challenge_methods_supported=methods)
    with pytest.raises(AuthError, match="PKCE"):
        log_in(network)
    assert network.pages == []
    assert network.posted(TOKEN) == []


@pytest.mark.spec("R0441", "R0442")
@pytest.mark.parametrize("methods", [None, ["plain"], ["S256"]])
def test_cl_21_the_same_holds_for_a_document_of_openid(methods: list[str] | None) -> None:
    network = FakeNetwork(code_challenge_methods_supported=methods)
    known = f"{ISSUER}/.well-known/"
    document = network.responses.pop(f"{known}oauth-authorization-server")
    network.responses[f"{known}openid-configuration"] = document
    if methods == ["S256"]:
        assert log_in(network).tokens.issuer == ISSUER
        return
    with pytest.raises(AuthError, match="PKCE"):
        log_in(network)
    assert network.pages == []


def test_cl_21_by_the_older_rules_nobody_had_to_say_so_and_it_is_sent_all_the_same() -> None:
    network = FakeNetwork()
    network.responses.clear()
    base = "https://mcp.example"
    network.responses[f"{base}/register"] = json({"client_id": "c"}, 201)
    network.responses[f"{base}/token"] = network.grant
    log_in(network)
    assert network.pages[0]["code_challenge_method"] == "S256"


@pytest.mark.spec("R0311", "R0312", "R0313", "R0318", "R0327", "R0346", "R0314")
def test_cl_22_the_resource_is_in_every_request_byte_for_byte() -> None:
    network = FakeNetwork()
    resource = "https://mcp.example"
    network.responses[PRM] = json({"resource": resource, "authorization_servers": [ISSUER]})
    network.grants = [{"refresh_token": "r"}]
    held = log_in(network)
    refreshed(network, held)
    assert [page["resource"] for page in network.pages] == [resource]
    assert [form["resource"] for form in network.posted(TOKEN)] == [resource, resource]


def test_the_code_goes_with_the_redirect_uri_that_it_was_asked_with() -> None:
    network = FakeNetwork()
    log_in(network)
    [form] = network.posted(TOKEN)
    assert form["redirect_uri"] == network.pages[0]["redirect_uri"] == REDIRECT_URI
    assert (form["code"], form["client_id"]) == ("the-code", f"of {ISSUER}")


def test_what_the_authorization_endpoint_had_in_its_query_stays() -> None:
    network = FakeNetwork(authorization_endpoint=f"{ISSUER}/authorize?tenant=7")
    log_in(network)
    assert network.pages[0]["tenant"] == "7"


# ---------------------------------------------------------------- scopes


def scope(network: FakeNetwork) -> str | None:
    return network.pages[-1].get("scope")


@pytest.mark.spec("R0391", "R0392", "R0422", "R0714", "R0421")
def test_cl_10_the_scopes_of_the_refusal_count_and_nothing_is_assumed_of_others() -> None:
    network = FakeNetwork()
    supported = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["x"]}
    network.responses[PRM] = json(supported)
    log_in(network, None, 'Bearer scope="b a b"')
    assert scope(network) == "b a"


@pytest.mark.spec("R0394", "R0423")
def test_cl_10_without_them_all_that_the_server_lists_and_without_a_list_none() -> None:
    network = FakeNetwork()
    listed = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["x", "y"]}
    network.responses[PRM] = json(listed)
    log_in(network)
    assert scope(network) == "x y"
    other = FakeNetwork()
    log_in(other)
    assert scope(other) is None


def test_a_program_may_ask_for_more() -> None:
    network = FakeNetwork()
    log_in(network, Login(scopes=["mine"]), 'Bearer scope="a"')
    assert scope(network) == "mine a"


@pytest.mark.parametrize(("known", "asked"), [(["offline_access"], "a offline_access"), ([], "a")])
def test_cl_29_offline_access_is_asked_for_only_where_the_issuer_knows_it(
    known: list[str], asked: str
) -> None:
    network = FakeNetwork(scopes_supported=known)
    log_in(network, None, 'Bearer scope="a offline_access"')
    assert scope(network) == asked


@pytest.mark.spec("R0727")
def test_cl_29_no_refresh_token_is_no_error() -> None:
    network = FakeNetwork()
    held = log_in(network)
    assert held.tokens.refresh_token == ""
    assert refreshed(network, held) is None


@pytest.mark.spec("R0434", "R0435", "R0715", "R1343")
def test_cl_30_a_step_up_asks_for_what_was_asked_before_and_what_is_wanted_now() -> None:
    network = FakeNetwork()
    held = log_in(network, None, 'Bearer scope="a"')
    challenge = 'Bearer error="insufficient_scope", scope="b"'
    up = log_in(network, None, challenge, generation=held.tokens.generation, needs_scope=True)
    assert scope(network) == "a b"
    assert up.tokens.requested == ("a", "b")


@pytest.mark.spec("R0437")
@pytest.mark.parametrize("wanted", ['scope="a b"', 'scope="b"', 'scope=""', ""])
def test_cl_30_what_was_asked_for_and_is_not_enough_is_not_asked_for_again(wanted: str) -> None:
    network = FakeNetwork()
    held = log_in(network, None, 'Bearer scope="a b"')
    lines = f'Bearer error="insufficient_scope", {wanted}'
    with pytest.raises(ScopeRequired, match="is not sufficient"):
        log_in(network, None, lines, generation=held.tokens.generation, needs_scope=True)
    assert len(network.pages) == 1


def test_a_token_that_was_just_got_and_is_refused_is_not_got_again() -> None:
    network = FakeNetwork()
    held = log_in(network)
    with pytest.raises(LoginRequired, match="has just issued"):
        log_in(network, generation=held.tokens.generation, fresh=True)
    assert len(network.pages) == 1


def test_a_token_that_was_renewed_and_is_refused_means_that_somebody_logs_in() -> None:
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r"}]
    first = log_in(network)
    second = log_in(network, generation=first.tokens.generation)
    assert len(network.pages) == 1
    third = log_in(network, generation=second.tokens.generation, fresh=True)
    assert len(network.pages) == 2
    assert not third.tokens.renewed


# ---------------------------------------------------------------- what comes back


@pytest.mark.spec("R0337", "R0218", "R0326", "R0735")
@pytest.mark.parametrize("state", ["", "other", None, "secret-0001"])
def test_cl_20_an_answer_to_another_question_is_nothing(state: str | None) -> None:
    network = FakeNetwork()
    said = {"code": "evil-code", "error": "evil-error"}
    network.answer = lambda page: said if state is None else {**said, "state": state}
    with pytest.raises(AuthError, match="another state") as raised:
        log_in(network)
    assert "evil" not in str(raised.value)
    assert network.posted(TOKEN) == []


@pytest.mark.spec("R0326", "R0716", "R0719", "R0733", "R0734")
@pytest.mark.parametrize("advertised", [True, False, None])
@pytest.mark.parametrize("said", [ISSUER, None])
def test_cl_23_who_answers_is_compared_in_all_its_cases(
    advertised: bool | None, said: str | None
) -> None:
    network = FakeNetwork(authorization_response_iss_parameter_supported=advertised)
    network.says_iss = said
    if advertised and said is None:
        with pytest.raises(AuthError, match="has no iss"):
            log_in(network)
        assert network.posted(TOKEN) == []
    else:
        assert log_in(network).tokens.issuer == ISSUER


@pytest.mark.spec("R0326", "R0721")
@pytest.mark.parametrize(("said", "right"), [(f"{ISSUER}/", True), (ISSUER, False)])
def test_cl_24_an_answer_names_the_issuer_as_its_document_does_and_not_as_the_server_does(
    said: str, right: bool
) -> None:
    """D42: a slash is forgiven between documents, and in no answer."""
    document = issuer_metadata() | {"issuer": f"{ISSUER}/"}
    document["authorization_response_iss_parameter_supported"] = True
    network = FakeNetwork()
    network.responses[f"{ISSUER}/.well-known/oauth-authorization-server"] = json(document)
    network.says_iss = said
    if right:
        assert log_in(network).tokens.issuer == f"{ISSUER}/"
        return
    with pytest.raises(AuthError, match="another issuer"):
        log_in(network)
    assert network.posted(TOKEN) == []


@pytest.mark.spec("R0326", "R0721")
@pytest.mark.parametrize("advertised", [True, None])
@pytest.mark.parametrize(
    "said",
    [
        EVIL,
        f"{ISSUER}/",
        "https://AS.example",
        "HTTPS://as.example",
        "https://as.example:443",
        "https://as.example/.",
        "https://as.exampl%65",
        "https%3A%2F%2Fas.example",
        " https://as.example",
        "",
    ],
)
def test_cl_24_nothing_is_made_equal_before_it_is_compared(
    said: str, advertised: bool | None
) -> None:
    network = FakeNetwork(authorization_response_iss_parameter_supported=advertised)
    network.says_iss = said
    with pytest.raises(AuthError, match="another issuer"):
        log_in(network)
    assert network.posted(TOKEN) == []


@pytest.mark.spec("R0326", "R0722")
@pytest.mark.parametrize("said", [EVIL, None])
def test_cl_25_of_an_answer_of_somebody_else_nothing_is_shown(said: str | None) -> None:
    network = FakeNetwork(authorization_response_iss_parameter_supported=True)
    evil = {"error": "evil-error", "error_description": "evil words", "error_uri": EVIL}
    network.answer = lambda page: {
        **evil,
        "state": page["state"],
        **({} if said is None else {"iss": said}),
    }
    with pytest.raises(AuthError) as raised:
        log_in(network)
    assert not isinstance(raised.value, LoginRequired)
    assert "evil" not in str(raised.value)


def test_an_error_of_the_right_issuer_is_told_cleanly() -> None:
    network = FakeNetwork()
    said = {"error": "access_denied", "error_description": "not\x1b[31m you\n" + "x" * 900}
    network.answer = lambda page: {**said, "state": page["state"]}
    with pytest.raises(LoginRequired, match="access_denied: not") as raised:
        log_in(network)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("answer", [{}, {"code": ""}])
def test_an_answer_without_a_code_is_an_error(answer: dict[str, str]) -> None:
    network = FakeNetwork()
    network.answer = lambda page: {**answer, "state": page["state"]}
    with pytest.raises(AuthError, match="has no code"):
        log_in(network)


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"access_token": ""},
        {"access_token": 7},
        {"access_token": "a b"},
        {"access_token": "a\r\nX-Evil: 1"},
        {"access_token": "ä"},
        {"access_token": "x" * 40_000},
        {"access_token": "x", "token_type": "mac"},
        {"access_token": "x", "token_type": "DPoP"},
        {"access_token": "x"},
    ],
)
def test_an_answer_without_a_token_that_could_be_shown_is_an_error(
    answer: dict[str, object],
) -> None:
    network = FakeNetwork()
    network.responses[TOKEN] = json(
        {"token_type": "Bearer", **answer}
        if len(answer) == 1 and answer.get("access_token") != "x"
        else answer
    )
    with pytest.raises(AuthError):
        log_in(network)


@pytest.mark.parametrize("reply", [FlowResponse(500), FlowResponse(503), FlowResponse(429)])
def test_an_issuer_that_is_busy_is_tried_later(reply: FlowResponse) -> None:
    network = FakeNetwork()
    network.responses[TOKEN] = reply
    with pytest.raises(ConnectionLost):
        log_in(network)


@pytest.mark.parametrize(
    ("life", "left"),
    [(3600, 3600), ("3600", 3600), (-5, 0), (None, None), (True, None), ([], None)],
)
def test_a_token_ends_when_the_issuer_says_so(life: object, left: float | None) -> None:
    network = FakeNetwork()
    network.grants = [{"expires_in": life}]
    tokens = log_in(network).tokens
    assert tokens.expires_at == (0.0 if left is None else network.now + left)
    assert tokens.is_valid(network.now) is (left != 0)


def test_a_token_is_renewed_before_it_ends() -> None:
    network = FakeNetwork()
    network.grants = [{"expires_in": 100, "refresh_token": "r"}]
    tokens = log_in(network).tokens
    assert tokens.is_fresh(network.now + 89)
    assert not tokens.is_fresh(network.now + 91)
    assert tokens.is_valid(network.now + 99)
    assert not tokens.is_valid(network.now + 100)


@pytest.mark.spec("R0220")
def test_cl_31_a_renewal_keeps_what_the_issuer_does_not_change() -> None:
    network = FakeNetwork()
    network.grants = [
        {"refresh_token": "r1", "scope": "a"},
        {"expires_in": 60},
        {"refresh_token": "r3"},
    ]
    first = log_in(network, None, 'Bearer scope="a b"')
    assert (first.tokens.requested, first.tokens.granted) == (("a", "b"), ("a",))
    second = refreshed(network, first)
    assert second is not None
    assert second.tokens.refresh_token == "r1"
    third = refreshed(network, second)
    assert third is not None
    assert third.tokens.refresh_token == "r3"
    assert [f.get("refresh_token") for f in network.posted(TOKEN)] == [None, "r1", "r1"]


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_client"])
def test_cl_31_what_the_issuer_calls_invalid_is_forgotten(error: str) -> None:
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r"}, {"error": error}]
    held = log_in(network)
    assert refreshed(network, held) is None
    assert not [name for name in network.records if name.startswith("oauth tokens")]


@pytest.mark.parametrize(
    "reply", [FlowResponse(500), FlowResponse(503), FlowResponse(429), ConnectionLost("cut")]
)
def test_cl_31_what_only_passes_forgets_nothing(reply: FlowResponse | ConnectionLost) -> None:
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r"}]
    held = log_in(network)
    kept = dict(network.records)
    network.responses[TOKEN] = reply
    with pytest.raises(ConnectionLost):
        refreshed(network, held)
    assert network.records == kept


def test_cl_31_only_the_generation_that_failed_is_forgotten() -> None:
    """While we were told that it is invalid, another process has got a newer one."""
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r1"}]
    first = log_in(network)
    newer = StoredLogin(
        first.discovery, first.client, msgspec.structs.replace(first.tokens, generation="new")
    )
    name = next(name for name in network.records if name.startswith("oauth tokens"))

    def meanwhile(asked: SendRequest) -> FlowResponse:
        network.records[name] = msgspec.json.encode(newer)
        return json({"error": "invalid_grant"}, 400)

    network.responses[TOKEN] = meanwhile
    assert refreshed(network, first) is None
    assert msgspec.json.decode(network.records[name], type=StoredLogin).tokens.generation == "new"


def test_cl_31_what_somebody_else_has_got_meanwhile_is_taken() -> None:
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r"}]
    held = log_in(network)
    network.requests.clear()
    assert log_in(network, generation="an older one").tokens == held.tokens
    assert network.run(renew(Login(), SERVER, "an older one", network.context)) == held
    assert network.requests == []


@pytest.mark.spec("R1230", "R1232")
def test_nothing_secret_is_in_a_repr() -> None:
    """CL-17."""
    network = FakeNetwork()
    network.responses[f"{ISSUER}/register"] = json(
        {"client_id": "c", "client_secret": "hidden"}, 201
    )
    network.grants = [{"access_token": "hidden", "refresh_token": "hidden"}]
    held = log_in(network)
    for step in [*network.requests, held, held.tokens, held.client, RejectedRequest(NONE)]:
        assert "hidden" not in repr(step)
        assert "the-code" not in repr(step)
    assert "hidden" not in repr(Login(client_id="a", client_secret="hidden", issuer=ISSUER))


@pytest.mark.parametrize("error", ["temporarily_unavailable", "invalid_target", "slow_down"])
def test_cl_31_a_refusal_of_another_kind_is_told_and_kept_is_what_we_have(error: str) -> None:
    network = FakeNetwork()
    network.grants = [{"refresh_token": "r"}, {"error": error}]
    held = log_in(network)
    kept = dict(network.records)
    with pytest.raises(AuthError, match=error):
        refreshed(network, held)
    assert network.records == kept
