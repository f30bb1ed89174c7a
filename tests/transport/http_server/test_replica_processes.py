"""Three processes on one SQLite file, each request to the next of them, in every revision."""

from pathlib import Path

import pytest

from live import live
from replica_processes import REVISIONS, ReplicaProcesses


@pytest.mark.parametrize("revision", REVISIONS)
@live
async def test_a_conversation_goes_through_three_processes(revision: str, tmp_path: Path) -> None:
    async with ReplicaProcesses(str(tmp_path / "store.db"), tmp_path) as processes:
        await processes.converse(revision)
        relay = processes.relay
        assert len(relay.by_port) == 3
        assert not relay.failures
