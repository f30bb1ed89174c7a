"""The official Python SDK as a client of our server: both eras, on stdio and over HTTP, and over
the older HTTP+SSE.

One run plays all scenarios on one connection; each test looks at one of them. The other official
clients are played by `scripts/interop`.

Rules: real processes, pipes and sockets; the SDK is the one that people install.
"""

from functools import partial
from itertools import product

import pytest

from interop.peers import MCP_1, MCP_2, TRANSPORTS, TYPESCRIPT, Play, lacking, played
from interop.scenarios import CHECKS, absent
from interop.table import Cell, cell, ending
from portico.protocol.revision import NOVEMBER_2025, Revision

WAYS = pytest.mark.parametrize(
    ("era", "transport"),
    [
        pytest.param(era, transport, id=f"{era.date}-{transport}")
        for era, transport in product(MCP_2.eras, TRANSPORTS)
        if not lacking(MCP_2, era, transport)
    ],
)


@pytest.mark.parametrize("scenario", CHECKS)
@WAYS
def test_the_official_client_sees_what_it_should(
    scenario: str, era: Revision, transport: str
) -> None:
    play = played(MCP_2, era, transport)
    if absent(scenario, era, transport):
        assert scenario not in play.lines
        return
    assert scenario in play.lines, play.errors
    line = play.lines[scenario]
    assert "seen" in line, line["failed"]
    CHECKS[scenario](line["seen"], era)


@WAYS
def test_no_scenario_is_played_that_nobody_checks(era: Revision, transport: str) -> None:
    assert played(MCP_2, era, transport).lines.keys() <= CHECKS.keys()


@WAYS
def test_the_server_has_nothing_to_complain_of_and_ends_by_itself(
    era: Revision, transport: str
) -> None:
    play = played(MCP_2, era, transport)
    assert play.errors == ""
    assert (play.driver_ended, play.server_ended) == (0, 0)


def test_a_cell_of_the_table_says_what_happened() -> None:
    play = Play(lines={"call": {"failed": "no"}, "ping": {"seen": {}}}, errors="it crashed")
    judge = partial(cell, play, era=NOVEMBER_2025, transport="stdio")
    assert judge("ping").word == "ok"
    assert judge("call") == Cell("FAILED", "no")
    assert judge("list") == Cell("FAILED", "it was never played\nit crashed")
    assert judge("reconnect").word == "-"
    assert not ending(play).ok


def test_each_sdk_is_pinned() -> None:
    assert (MCP_2.version, TYPESCRIPT.version) == ("2.3.0", "2.4.0")
    assert MCP_1.version.startswith("1.")
