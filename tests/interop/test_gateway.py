"""The official Python SDK, 2.x and 1.x, on both sides of a gateway.

The other clients and servers are played by `scripts/interop gateway`.

Rules: real processes, pipes and sockets; the SDK is the one that people install.
"""

from collections.abc import Mapping

import pytest

from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from interop import peers, third_party_servers
from interop.gateway.counterparts import CLIENTS, UPSTREAMS, Upstream, configuration
from interop.gateway.everything import EVERYTHING_PLAN
from interop.gateway.steps import EQUIVALENT
from interop.gateway.table import Pair, main, run_http, show
from interop.table import Cell

MCP_2 = Upstream("mcp2", third_party_servers.MCP_2, "http", JULY_2026)
MCP_1 = Upstream("mcp1", third_party_servers.MCP_1, "stdio", NOVEMBER_2025)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "revision", "server"),
    [(peers.MCP_2, JULY_2026, MCP_1), (peers.MCP_1, NOVEMBER_2025, MCP_2)],
    ids=["2026-07-28 to 2025-11-25", "2025-11-25 to 2026-07-28"],
)
def test_the_two_generations_of_the_official_sdk_reach_each_other(
    client: peers.Peer, revision: Revision, server: Upstream
) -> None:
    (pair,) = run_http([(client, revision)], [server])
    assert failed(pair.cells) == {}
    assert pair.cells.keys() >= EQUIVALENT.checks.keys()


def failed(cells: Mapping[str, Cell]) -> dict[str, str]:
    return {name: cell.why for name, cell in cells.items() if not cell.ok}


def test_each_step_has_a_check() -> None:
    for plan in (EQUIVALENT, EVERYTHING_PLAN):
        assert [step["scenario"] for step in plan.steps("s")] == [*plan.checks]


def test_a_header_that_does_not_match_is_a_failure_of_every_step() -> None:
    seen = {"error": {"code": -32020, "message": "no"}}
    for plan in (EQUIVALENT, EVERYTHING_PLAN):
        for name in plan.checks:
            with pytest.raises(AssertionError, match="headers were not made anew"):
                plan.check(name, seen, "s", JULY_2026, JULY_2026)


def test_each_client_and_server_is_pinned() -> None:
    assert [str(client).strip() for client in CLIENTS] == [
        "Colonnade",
        "Python 2.3.0",
        "Python 1.30.0",
        "TypeScript 2.4.0",
        "TypeScript 1.32.2",
        "Go 1.8.0",
        "Rust 3.8.0",
    ]
    assert list(dict.fromkeys(str(one.server) for one in UPSTREAMS)) == [
        "Python mcp 2.3.0",
        "Python mcp 1.30.0",
        "TypeScript 2.4.0",
        "Go 1.8.0",
        "Rust 3.8.0",
        "server-everything 2026.8.31",
    ]


def test_a_server_in_an_older_revision_has_it_in_the_configuration() -> None:
    older = Upstream("old", third_party_servers.MCP_2, "stdio", NOVEMBER_2025)
    text = configuration({MCP_2: "http://127.0.0.1:1/mcp", older: ["python", "server.py"]})
    assert text.count("revision = ") == 1
    assert 'command = "python"\nargs = ["server.py"]' in text
    assert '[gateway.views.old]\nservers = ["old"]' in text


def test_a_failure_is_in_the_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    pair = Pair("one", "two", {"call": Cell("FAILED", "no"), "url": Cell("-", "has none")})
    assert [cell.ok for cell in show([pair])] == [False, True]
    printed = capsys.readouterr().out
    assert "FAILED: call, one, two\nno" in printed
    assert "- has none" in printed
    assert "1 pairs: 0 ok, 1 failed, 1 not applicable" in printed
    assert main("cobol") == 1
