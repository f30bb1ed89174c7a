"""What a type checker makes of those who are let in, on both sides, and that it is so when run.

Rules: every public name of authorization stands here; nothing is asked of any network.
"""

from typing import assert_type

from colonnade import (
    Caller,
    CannotFetch,
    ClientCredentials,
    EnterpriseLogin,
    Introspection,
    Jwt,
    Login,
    Protection,
    Server,
    StaticTokens,
    WorkloadIdentity,
    connect,
)
from colonnade.client.connect import PendingClient
from colonnade.errors import ConnectionLost

RESOURCE, ISSUER = "https://mcp.example.com/mcp", "https://login.example.com"


def test_a_server_takes_every_way_to_know_its_callers() -> None:
    for trust in (
        assert_type(Jwt(ISSUER, audience=RESOURCE), Jwt),
        assert_type(Introspection(ISSUER, "us", "secret"), Introspection),
        assert_type(StaticTokens({"token": ("ada", ["read"])}), StaticTokens),
    ):
        auth = Protection(RESOURCE, trust, scopes=["read"], implies={"write": ["read"]})
        assert_type(auth, Protection)
        assert isinstance(Server("diary", auth=auth), Server)


def test_a_caller_is_a_name_and_what_it_may() -> None:
    caller = Caller("ada", frozenset({"read"}))
    assert_type(caller.principal, str)
    assert_type(caller.scopes, frozenset[str])
    assert_type(caller.expires_at, float | None)
    assert caller == Caller("ada", frozenset({"read"}), None)


def test_a_client_takes_every_way_to_log_in() -> None:
    for auth in (
        assert_type(Login(), Login),
        assert_type(
            ClientCredentials(issuer=ISSUER, client_id="us", client_secret="secret"),
            ClientCredentials,
        ),
        assert_type(
            EnterpriseLogin(
                issuer=ISSUER,
                client_id="us",
                idp_token_endpoint=f"{ISSUER}/token",
                idp_client_id="us",
                identity="assertion",
            ),
            EnterpriseLogin,
        ),
        assert_type(WorkloadIdentity(issuer=ISSUER, assertion=lambda: "jwt"), WorkloadIdentity),
    ):
        assert_type(connect(RESOURCE, auth=auth), PendingClient)


def test_what_cannot_be_fetched_says_why_to_us_alone() -> None:
    error = CannotFetch("the document cannot be fetched", "it is a private address")
    assert_type(error.why, str)
    assert not isinstance(error, ConnectionLost)
    assert error.why not in str(error)
