"""The official Python SDK as a client of our server: both eras, on stdio and over HTTP, and over
the older HTTP+SSE.

One run plays all scenarios on one connection; each test looks at one of them. The other official
clients are played by `scripts/interop`.

Rules: real processes, pipes and sockets; the SDK is the one that people install.
"""

from functools import partial
from itertools import product

import pytest

from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from interop import servers_table
from interop.peers import (
    GO,
    JAVA,
    MCP_1,
    MCP_2,
    RUST,
    TRANSPORTS,
    TYPESCRIPT,
    DriverRun,
    lacking,
    run_driver,
)
from interop.scenarios import CHECKS, absent
from interop.table import Cell, cell, ending, main

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
    run = run_driver(MCP_2, era, transport)
    if absent(scenario, era, transport):
        assert scenario not in run.lines
        return
    assert scenario in run.lines, run.errors
    line = run.lines[scenario]
    assert "seen" in line, line["failed"]
    CHECKS[scenario](line["seen"], era)


@WAYS
def test_no_scenario_is_run_without_a_check(era: Revision, transport: str) -> None:
    assert run_driver(MCP_2, era, transport).lines.keys() <= CHECKS.keys()


@WAYS
def test_the_server_has_nothing_to_complain_of_and_ends_by_itself(
    era: Revision, transport: str
) -> None:
    run = run_driver(MCP_2, era, transport)
    assert run.errors == ""
    assert (run.driver_ended, run.server_ended) == (0, 0)


def test_a_cell_of_the_table_says_what_happened() -> None:
    run = DriverRun(lines={"call": {"failed": "no"}, "ping": {"seen": {}}}, errors="it crashed")
    judge = partial(cell, run, peer=MCP_2, era=NOVEMBER_2025, transport="stdio")
    assert judge("ping").word == "ok"
    assert judge("call") == Cell("FAILED", "no")
    assert judge("list") == Cell("FAILED", "it was never played\nit crashed")
    assert judge("reconnect").word == "-"
    assert not ending(run).ok


def test_only_replicas_may_announce_a_change_more_than_once() -> None:
    changed = ["notifications/tools/list_changed", None]
    notices = [["notifications/resources/updated", "test://watched-resource"], *[changed] * 3]
    run = DriverRun(lines={"subscribe": {"seen": {"notices": notices, "new tool": True}}})
    judge = partial(cell, run, "subscribe", MCP_2, NOVEMBER_2025, "http")
    assert not judge().ok
    run.lines["subscribe"]["seen"]["replicas"] = True
    assert judge().ok
    notices.insert(1, notices[0])  # after it was unsubscribed
    assert not judge().ok


def test_each_sdk_is_pinned() -> None:
    assert (MCP_2.version, TYPESCRIPT.version) == ("2.3.0", "2.4.0")
    assert MCP_1.version.startswith("1.")
    assert [str(peer) for peer in (GO, RUST, JAVA)] == ["Go 1.8.0", "Rust 3.8.0", "Java 2.1.0"]


def test_a_counterpart_whose_tools_are_missing_is_skipped_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main("go") == 0
    assert "Go 1.8.0: skipped, there is no go on this machine" in capsys.readouterr().out
    assert servers_table.main("java") == 0
    assert "Java 2.1.0: skipped, there is no java on this machine" in capsys.readouterr().out
    assert main("cobol") == 1


def test_what_an_sdk_cannot_run_is_left_out_with_the_reason() -> None:
    url = "Rust 3.8.0: it demands an elicitationId, which 2026-07-28 has no more"
    assert RUST.absent("elicit, url", JULY_2026, "stdio") == url
    assert RUST.absent("elicit, url", NOVEMBER_2025, "stdio") is None
    assert JAVA.absent("quiet end", NOVEMBER_2025, "stdio") is not None
    assert JAVA.absent("quiet end", NOVEMBER_2025, "http") is None
    assert lacking(JAVA, JULY_2026, "stdio") == "Java 2.1.0 does not speak 2026-07-28"
    assert lacking(RUST, NOVEMBER_2025, "sse") == "Rust 3.8.0 has no client for sse"
