"""From a refusal to an authorization server: every order, every fallback, and what is not used."""

import pytest

from auth.fake_network import ISSUER, NONE, SERVER, FakeNetwork, asks, issuer_metadata, json
from colonnade.auth.client.discovery import DiscoveryResult, discover
from colonnade.auth.client.steps import FlowResponse
from colonnade.errors import AuthError, CannotConnect, ColonnadeError, ConnectionLost
from colonnade.protocol.revision import NEWEST

PRM = "https://mcp.example/.well-known/oauth-protected-resource"
EVIL = "https://evil.example"


def found_in(network: FakeNetwork, server: str = SERVER, *lines: str) -> DiscoveryResult:
    return network.run(discover(server, asks(*lines)))


def fails(network: FakeNetwork, words: str, *lines: str, server: str = SERVER) -> AuthError:
    with pytest.raises(AuthError, match=words) as raised:
        found_in(network, server, *lines)
    return raised.value


# ---------------------------------------------------------------- the server's document


@pytest.mark.spec("R0303", "R0309", "R0388")
def test_cl_01_the_place_that_a_refusal_names_is_used_and_no_other() -> None:
    network = FakeNetwork()
    place = "https://mcp.example/custom/place.json"
    network.responses[place] = network.responses.pop(f"{PRM}/mcp")
    assert found_in(network, SERVER, f'Bearer resource_metadata="{place}"').issuer.issuer == ISSUER
    assert network.urls[0] == place
    assert PRM not in network.urls


@pytest.mark.spec("R0388")
def test_cl_02_without_a_word_it_is_looked_for_with_the_path_and_then_at_the_root() -> None:
    network = FakeNetwork()
    network.responses.clear()
    network.issue()
    network.responses[PRM] = json(
        {"resource": "https://mcp.example", "authorization_servers": [ISSUER]}
    )
    found = found_in(network)
    assert network.urls[:2] == [f"{PRM}/mcp", PRM]
    assert found.resource == "https://mcp.example"  # byte for byte, with no slash added


def test_cl_02_a_server_at_the_root_has_one_place() -> None:
    network = FakeNetwork()
    network.serve("https://root.example")
    assert found_in(network, "https://root.example/").resource == "https://root.example"
    assert network.urls[0] == "https://root.example/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    "resource",
    [
        "https://evil.example/mcp",
        "https://mcp.example/mc",
        "https://mcp.example/mcpx",
        "https://mcp.example/mcp/deeper",
        "https://mcp.example/other",
        "https://mcp.example:8443/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example.evil.example/mcp",
        "https://user@mcp.example/mcp",
        "https://mcp.example/mcp#x",
        "https://mcp.example/mcp?x=1",
        "https://mcp.example/%2e%2e/mcp",
        "https://mcp.example/mc%70",
        "mcp.example/mcp",
        "https://mcp.example\\@evil.example/mcp",
    ],
)
def test_cl_03_a_document_of_another_server_is_refused(resource: str) -> None:
    """CVE-2026-63127."""
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = json({"resource": resource, "authorization_servers": [EVIL]})
    fails(network, ".")
    assert network.urls == [f"{PRM}/mcp"]


@pytest.mark.parametrize(
    "resource", [SERVER, "https://mcp.example", "https://mcp.example/", "HTTPS://MCP.example/mcp"]
)
def test_cl_03_the_server_or_what_stands_above_it_is_taken_as_it_is_written(resource: str) -> None:
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = json(
        {"resource": resource, "authorization_servers": [ISSUER]}
    )
    assert found_in(network).resource == resource


@pytest.mark.parametrize("document", [{}, {"resource": 1}, {"resource": ""}])
def test_cl_03_a_document_that_names_no_resource_is_refused(document: object) -> None:
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = json(document)
    fails(network, "names no resource")


@pytest.mark.parametrize("servers", [None, [], "https://as.example", [1]])
def test_a_document_without_an_issuer_is_an_error(servers: object) -> None:
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = json({"resource": SERVER, "authorization_servers": servers})
    fails(network, "names no authorization server")


def test_a_place_that_a_refusal_names_and_is_empty_is_an_error_not_a_reason_to_look_elsewhere() -> (
    None
):
    network = FakeNetwork()
    fails(network, "has no metadata", 'Bearer resource_metadata="https://mcp.example/gone"')
    assert network.urls == ["https://mcp.example/gone"]


def test_a_page_for_people_is_no_document() -> None:
    """CL-11."""
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = FlowResponse(200, (("content-type", "text/html"),), b"<html>")
    network.responses[PRM] = json({"resource": SERVER, "authorization_servers": [ISSUER]})
    assert found_in(network).issuer.issuer == ISSUER


@pytest.mark.parametrize(
    "reply", [FlowResponse(500), FlowResponse(503), FlowResponse(429), CannotConnect("no")]
)
def test_what_does_not_answer_is_not_what_is_not_there(
    reply: FlowResponse | ColonnadeError,
) -> None:
    """Otherwise whoever can stop a document could choose the older rules."""
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = reply
    with pytest.raises((ConnectionLost, CannotConnect)):
        found_in(network)
    assert network.urls == [f"{PRM}/mcp"]


# ---------------------------------------------------------------- the issuer's document

OAUTH, OPENID = "oauth-authorization-server", "openid-configuration"
TENANT = "https://as.example/tenant1"


@pytest.mark.spec(
    "R0305", "R0310", "R0383", "R0395", "R0396", "R0397", "R0398", "R0399", "R0400", "R0712"
)
@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        (ISSUER, [f"{ISSUER}/.well-known/{OAUTH}", f"{ISSUER}/.well-known/{OPENID}"]),
        (
            TENANT,
            [
                f"{ISSUER}/.well-known/{OAUTH}/tenant1",
                f"{ISSUER}/.well-known/{OPENID}/tenant1",
                f"{TENANT}/.well-known/{OPENID}",
                f"{TENANT}/.well-known/{OAUTH}",  # D42: no RFC has it, and providers do
            ],
        ),
    ],
)
def test_cl_04_the_issuer_is_asked_at_every_place_in_order(issuer: str, places: list[str]) -> None:
    for last in range(len(places)):
        network = FakeNetwork()
        network.responses.clear()
        network.responses[f"{PRM}/mcp"] = json(
            {"resource": SERVER, "authorization_servers": [issuer]}
        )
        network.responses[places[last]] = json(issuer_metadata(issuer))
        assert found_in(network).issuer.issuer == issuer
        assert network.urls[1:] == places[: last + 1]


@pytest.mark.spec("R0694", "R0695", "R0696", "R0712")
@pytest.mark.parametrize(
    "named",
    [
        EVIL,
        f"{ISSUER}//",
        f"{ISSUER}/x",
        "https://AS.example",
        "https://as.example:443",
        "HTTPS://as.example",
        "https://as.example/.",
        "https://as.exampl%65",
        "",
        None,
        [ISSUER],
    ],
)
@pytest.mark.parametrize("place", [OAUTH, OPENID])
def test_cl_05_a_document_of_another_issuer_is_not_used(named: object, place: str) -> None:
    """GHSA-qx49-fqc8-xw99, CVE-2026-104850, spec 1721."""
    network = FakeNetwork()
    del network.responses[f"{ISSUER}/.well-known/{OAUTH}"]
    document = issuer_metadata() | {"issuer": named, "token_endpoint": f"{EVIL}/token"}
    network.responses[f"{ISSUER}/.well-known/{place}"] = json(document)
    fails(network, "another issuer")
    assert not network.sent_to(EVIL)


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        (ISSUER, f"{ISSUER}/"),
        (f"{ISSUER}/", ISSUER),
        (TENANT, f"{TENANT}/"),
        (f"{TENANT}/", TENANT),
        (f"{TENANT}/", f"{TENANT}/"),
    ],
)
def test_cl_05_one_slash_at_the_end_makes_no_other_issuer_and_it_is_called_as_it_calls_itself(
    listed: str, named: str
) -> None:
    """D42: what is compared later (RFC 9207, the audience of an assertion) is its own spelling."""
    network = FakeNetwork()
    network.responses.clear()
    network.responses[f"{PRM}/mcp"] = json({"resource": SERVER, "authorization_servers": [listed]})
    path = named.removeprefix(ISSUER).rstrip("/")
    network.responses[f"{ISSUER}/.well-known/{OAUTH}{path}"] = json(
        issuer_metadata() | {"issuer": named, "token_endpoint": f"{ISSUER}/token"}
    )
    assert found_in(network).issuer.issuer == named
    for wanted in (listed, named):
        assert network.run(discover(SERVER, NONE, [wanted])).issuer.issuer == named


def test_cl_05_a_slash_does_not_make_an_issuer_of_the_path_above_it() -> None:
    network = FakeNetwork()
    network.responses.clear()
    network.responses[f"{PRM}/mcp"] = json({"resource": SERVER, "authorization_servers": [TENANT]})
    for place in (f"{ISSUER}/.well-known/{OAUTH}/tenant1", f"{TENANT}/.well-known/{OAUTH}"):
        network.responses[place] = json(issuer_metadata() | {"issuer": f"{ISSUER}/"})
    fails(network, "another issuer")


def test_cl_05_a_document_of_its_own_at_a_later_place_is_used_after_all() -> None:
    network = FakeNetwork()
    network.responses[f"{ISSUER}/.well-known/{OAUTH}"] = json(issuer_metadata(EVIL))
    network.responses[f"{ISSUER}/.well-known/{OPENID}"] = json(issuer_metadata())
    assert found_in(network).issuer.token_endpoint == f"{ISSUER}/token"


def test_an_issuer_that_has_no_document_is_an_error() -> None:
    network = FakeNetwork()
    del network.responses[f"{ISSUER}/.well-known/{OAUTH}"]
    fails(network, "publishes no metadata")


def test_cl_07_the_issuer_that_is_wanted_is_chosen_among_several() -> None:
    network = FakeNetwork()
    network.issue("https://other.example")
    listed = [ISSUER, "https://other.example"]
    network.responses[f"{PRM}/mcp"] = json({"resource": SERVER, "authorization_servers": listed})
    first = network.run(discover(SERVER, NONE))
    second = network.run(discover(SERVER, NONE, ["https://gone.example", "https://other.example"]))
    assert (first.issuer.issuer, second.issuer.issuer) == (ISSUER, "https://other.example")
    # D42: as the program writes it, with one slash more.
    third = network.run(discover(SERVER, NONE, ["https://other.example/"]))
    assert third.issuer.issuer == "https://other.example"


# ---------------------------------------------------------------- 2025-03-26


@pytest.mark.spec("R0200", "R0202", "R0203")
def test_cl_06_without_any_document_the_origin_of_the_server_is_its_issuer() -> None:
    network = FakeNetwork()
    network.responses.clear()
    found = found_in(network, "https://old.example/v1/mcp")
    assert network.urls == [
        "https://old.example/.well-known/oauth-protected-resource/v1/mcp",
        "https://old.example/.well-known/oauth-protected-resource",
        "https://old.example/.well-known/oauth-authorization-server",
    ]
    issuer = found.issuer
    assert issuer.legacy
    assert issuer.authorization_endpoint == "https://old.example/authorize"
    assert issuer.token_endpoint == "https://old.example/token"
    assert issuer.registration_endpoint == "https://old.example/register"


@pytest.mark.spec("R0192", "R0196", "R0203")
@pytest.mark.parametrize("named", ["https://old.example", "https://old.example/"])
def test_cl_06_its_own_document_comes_before_the_usual_paths(named: str) -> None:
    network = FakeNetwork()
    network.responses.clear()
    place = "https://old.example/.well-known/oauth-authorization-server"
    network.responses[place] = json(
        {"issuer": named, "token_endpoint": "https://old.example/oauth/t"}
    )
    found = found_in(network, "https://old.example/mcp")
    assert found.issuer.token_endpoint == "https://old.example/oauth/t"
    assert found.issuer.issuer == named


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": EVIL},
        {"issuer": "https://old.example", "token_endpoint": f"{EVIL}/token"},
        {"issuer": "https://old.example", "registration_endpoint": f"{EVIL}/register"},
        {"issuer": "https://old.example", "authorization_endpoint": "https://old.example:1/a"},
        {},
    ],
)
def test_cl_06_by_the_older_rules_nobody_else_is_trusted(document: object) -> None:
    """GHSA-qx49-fqc8-xw99: the path without a document of the server."""
    network = FakeNetwork()
    network.responses.clear()
    network.responses["https://old.example/.well-known/oauth-authorization-server"] = json(document)
    fails(network, "another", server="https://old.example/mcp")
    assert not network.sent_to(EVIL)


# ---------------------------------------------------------------- which URLs


@pytest.mark.spec(
    "R0332", "R0724", "R1287", "R1288", "R1321", "R1323", "R1324", "R0214", "R1231", "R1322"
)
@pytest.mark.parametrize(
    "url",
    [
        "http://as.example",
        "ftp://as.example",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "//as.example",
        "as.example",
        "https://",
        "https://a b.example",
        "https://user:pw@as.example",
        "https://as.example:0",
        "https://as.example:99999",
        "https://as.example/\n",
    ],
)
def test_cl_08_only_https_and_this_machine_are_places_of_authorization(url: str) -> None:
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = json({"resource": SERVER, "authorization_servers": [url]})
    fails(network, ".")
    assert network.urls == [f"{PRM}/mcp"]
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint"):
        other = FakeNetwork(**{name: url})
        fails(other, ".")
    named = FakeNetwork()
    quoted = url.replace("\\", "\\\\").replace("\n", "")
    if quoted == url:
        fails(named, ".", f'Bearer resource_metadata="{quoted}"')
        assert named.urls == []


@pytest.mark.parametrize("issuer", [f"{ISSUER}?x=1", f"{ISSUER}#x", f"{ISSUER}/?"])
def test_cl_08_an_issuer_has_no_query_and_no_fragment(issuer: str) -> None:
    network = FakeNetwork()
    network.responses[f"{PRM}/mcp"] = json({"resource": SERVER, "authorization_servers": [issuer]})
    fails(network, "query or a fragment")


@pytest.mark.spec("R1289")
@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1:9", "[::1]:9"])
def test_cl_08_plain_http_is_for_this_machine(host: str) -> None:
    network = FakeNetwork()
    network.serve(f"http://{host}/mcp", f"http://{host}")
    assert found_in(network, f"http://{host}/mcp").issuer.issuer == f"http://{host}"


def test_no_error_repeats_a_query() -> None:
    network = FakeNetwork()
    secret = "https://mcp.example/x?key=hidden"
    error = fails(network, "has no metadata", f'Bearer resource_metadata="{secret}"')
    assert "hidden" not in str(error)


@pytest.mark.spec("R0199")
def test_the_revision_is_said_while_looking() -> None:
    network = FakeNetwork()
    found_in(network)
    assert {dict(step.headers)["MCP-Protocol-Version"] for step in network.requests} == {
        NEWEST.date
    }


@pytest.mark.spec("R0315", "R0317")
@pytest.mark.parametrize(
    ("server", "resource"),
    [
        ("https://old.example/", "https://old.example"),
        ("https://old.example", "https://old.example"),
        ("HTTPS://Old.example:443/v1/mcp#x", "https://old.example/v1/mcp"),
        ("https://old.example:8443/mcp/", "https://old.example:8443/mcp/"),
    ],
)
def test_a_server_without_a_document_is_its_own_resource(server: str, resource: str) -> None:
    network = FakeNetwork()
    network.responses.clear()
    assert found_in(network, server).resource == resource
