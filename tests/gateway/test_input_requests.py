"""How input requests cross a gateway, and the states that clients carry: decisions without a loop."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from colonnade.errors import Fault, RemoteError
from colonnade.gateway.input_requests import (
    MAX_ROUNDS,
    PATHS,
    GatewayState,
    GivenRound,
    InputPath,
    exchange_with_round,
    input_path,
    open_state,
    required_capabilities,
    required_urls,
    round_of,
    url_round,
    with_params,
    words_for_urls,
)
from colonnade.protocol import types as t
from colonnade.protocol.codec.encode import Encoder
from colonnade.protocol.exchange import Exchange
from colonnade.protocol.jsonrpc import Request, decode, encode, split_params
from colonnade.protocol.negotiation import Peer
from colonnade.protocol.revision import ALL, NEWEST, InputRequests, Revision

OLD, NEW = InputRequests.AS_REQUEST, InputRequests.IN_RESULT


def test_the_path_of_an_input_request_is_known_from_both_revisions() -> None:
    assert {
        (NEW, NEW): InputPath.RELAY,
        (NEW, OLD): InputPath.HELD,
        (OLD, NEW): InputPath.LOOP,
        (OLD, OLD): InputPath.PASS_THROUGH,
    } == PATHS


@pytest.mark.parametrize("server", ALL, ids=lambda one: one.date)
@pytest.mark.parametrize("client", ALL, ids=lambda one: one.date)
def test_every_pair_of_revisions_has_a_path(client: Revision, server: Revision) -> None:
    expected = {
        (False, False): InputPath.RELAY,
        (False, True): InputPath.HELD,
        (True, False): InputPath.LOOP,
        (True, True): InputPath.PASS_THROUGH,
    }
    assert input_path(client, server) is expected[client.handshake, server.handshake]


# ---------------------------------------------------------------- states

STATE = GatewayState(
    kind="relay",
    principal="ada",
    method="tools/call",
    subject="digest",
    expires_at=100.0,
    round=1,
    server="s",
    state="of the server",
)
GIVEN: dict[str, Any] = {
    "principal": "ada",
    "method": "tools/call",
    "subject": "digest",
    "now": 99.0,
}


def test_a_state_is_what_was_kept() -> None:
    assert open_state(encode(STATE), **GIVEN) == STATE


@pytest.mark.parametrize(
    "other",
    [
        {"principal": "bob"},
        {"principal": ""},
        {"method": "prompts/get"},
        {"subject": "another digest"},
        {"now": 100.0},
    ],
)
def test_a_state_of_another_request_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(Fault, match="requestState was not given for this request"):
        open_state(encode(STATE), **GIVEN | other)


@pytest.mark.parametrize("round", [-1, 0, MAX_ROUNDS + 1])
def test_a_state_of_no_round_is_refused(round: int) -> None:
    with pytest.raises(Fault, match="requestState was not given for this request"):
        open_state(encode(replace(STATE, round=round)), **GIVEN)


@pytest.mark.parametrize("secret", [b"", b"{}", b"[]", b'{"kind":"other"}', b"\xff"])
def test_what_is_no_state_is_refused_in_the_same_words(secret: bytes) -> None:
    with pytest.raises(Fault, match="requestState was not given for this request"):
        open_state(secret, **GIVEN)


# ---------------------------------------------------------------- rounds


def call(**params: Any) -> Exchange:
    raw = encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    request = decode(raw)
    assert isinstance(request, Request)
    parts = request.split_params or split_params(request.params)
    peer = Peer(NEWEST, t.ClientCapabilities())
    return Exchange(request, parts, NEWEST.methods["tools/call"], peer, Encoder(NEWEST))


def test_most_requests_have_no_round() -> None:
    exchange = call(name="a", arguments={"b": 1})
    assert round_of(exchange.request, exchange.params) == GivenRound()


def test_the_round_of_a_request_is_replaced_for_the_next_hop() -> None:
    exchange = call(
        name="a",
        arguments={"b": 1},
        requestState="ours",
        inputResponses={"k": {"action": "accept"}},
    )
    given = round_of(exchange.request, exchange.params)
    assert given.state == "ours"
    assert set(given.responses or ()) == {"k"}
    forwarded = exchange_with_round(exchange, GivenRound({"x": Raw(b"{}")}, "theirs"))
    assert round_of(forwarded.request, forwarded.params) == GivenRound({"x": Raw(b"{}")}, "theirs")
    assert forwarded.params.arguments == exchange.params.arguments
    assert b"ours" not in bytes(forwarded.request.params)
    none = exchange_with_round(exchange, GivenRound())
    assert round_of(none.request, none.params) == GivenRound()


# ---------------------------------------------------------------- errors


def url_error(**more: Any) -> RemoteError:
    elicitation = {
        "mode": "url",
        "message": "Card.",
        "url": "https://pay.example.com/",
        "elicitationId": "7",
    }
    return RemoteError(-32042, "first", {"elicitations": [elicitation | more]})


def test_the_urls_that_an_error_requires_become_input_requests_without_an_id() -> None:
    urls = required_urls(url_error())
    (request,) = url_round(urls).values()
    assert isinstance(request, t.ElicitRequest)
    assert (request.params.url, request.params.elicitation_id) == ("https://pay.example.com/", None)
    assert "open https://pay.example.com/ and retry" in words_for_urls(urls)


@pytest.mark.parametrize(
    "error",
    [
        RemoteError(-32603, "other", {"elicitations": []}),
        RemoteError(-32042, "no data"),
        RemoteError(-32042, "none", {"elicitations": []}),
        url_error(url="javascript:alert(1)"),
        url_error(mode="form"),
    ],
)
def test_other_errors_require_no_urls(error: RemoteError) -> None:
    assert required_urls(error) == []


def test_an_error_about_capabilities_is_recognised_by_its_code_and_data() -> None:
    data = {"requiredCapabilities": {"elicitation": {"form": {}}}}
    assert required_capabilities(RemoteError(-32021, "x", data)) == {"elicitation": {"form": {}}}
    assert required_capabilities(RemoteError(-32603, "x", data)) is None
    assert required_capabilities(RemoteError(-32021, "x", "other")) is None


def test_a_client_gets_the_params_of_roots_although_they_are_optional() -> None:
    assert with_params(t.ListRootsRequest()) == t.ListRootsRequest(
        params=t.ListRootsRequestParams()
    )
    url = t.ElicitRequestParams(message="Go.", mode="url", url="https://example.com")
    visit = t.ElicitRequest(params=url)
    assert with_params(visit) is visit
