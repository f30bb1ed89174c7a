"""Three processes on one SQLite file, each request to the next of them, in every revision."""

from pathlib import Path

import pytest

from colonnade import connect
from live import live, live_for
from replica_processes import REVISIONS, ReplicaProcesses
from replicas.kill import kill
from replicas.releases import next_release
from replicas.rolling import roll
from replicas.streams import streams


@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_a_conversation_goes_through_three_processes(revision: str, tmp_path: Path) -> None:
    async with ReplicaProcesses(str(tmp_path / "store.db"), tmp_path) as processes:
        await processes.converse(revision)
        relay = processes.relay
        assert len(relay.by_port) == 3
        assert not relay.failures


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", "2026-07-28"])
@live
async def test_a_conversation_survives_the_processes_that_are_killed(
    revision: str, tmp_path: Path
) -> None:
    async with ReplicaProcesses(str(tmp_path / "store.db"), tmp_path) as processes:
        url = processes.relay.url + "/mcp"
        async with connect(url, revision=revision, on_elicit=lambda _: {"name": "blue"}) as client:
            for killed in range(3):
                for _ in range(3):
                    result = await client.call_tool("add", {"a": 1, "b": 2})
                    assert not result.is_error
                assert (await client.call_tool("paint")).text == "blue"
                if killed < 2:
                    await processes.kill()
        assert len(processes.relay.ports) == 1


@pytest.mark.slow
@live_for(300)
async def test_a_ledger_has_each_effect_once_while_processes_are_killed() -> None:
    assert await kill(kills=3, store="", at_once=5, seed=19) == []


@pytest.mark.slow
@live_for(300)
@pytest.mark.parametrize(("what", "times"), [("quiet", 100), ("ends", 4), ("follow", 4)])
async def test_streams_are_resumed_without_a_fault_and_while_processes_end(
    what: str, times: int
) -> None:
    assert not await streams(what, store="", times=times, seed=1)


@pytest.mark.slow
@live_for(300)
async def test_no_call_fails_while_each_process_is_restarted() -> None:
    assert await roll(restarts=3, store="", at_once=5, calls_between=50) == 0


@pytest.mark.slow
@live_for(300)
async def test_a_release_that_adds_members_to_all_records_and_messages_runs_beside_this_one(
    tmp_path: Path,
) -> None:
    other = next_release(tmp_path)
    assert await roll(restarts=4, store="", at_once=5, calls_between=20, other=other) == 0
