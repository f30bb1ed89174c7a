"""Faults in three replicas on one Redis server, in a few seconds; `scripts/replicas faults` has more."""

import sys
from pathlib import Path

import pytest

from live import live
from replica_faults.partition import partition_replicas
from replica_faults.processes import Partition
from replica_faults.redis_kill import kill_redis
from replica_faults.refresh import refresh_once
from replica_faults.stop import stop_replicas
from replica_faults.store_away import store_away

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="SIGSTOP and a Redis server"),
]


@live
async def test_a_replica_that_was_stopped_beyond_its_lease_does_nothing_twice(
    tmp_path: Path,
) -> None:
    report = await stop_replicas(tmp_path, rounds=1, stopped_s=6.0, calls=20)
    assert not report.problems, report.problems


@live
async def test_nothing_is_used_twice_while_a_replica_does_not_reach_the_store(
    tmp_path: Path,
) -> None:
    report = await partition_replicas(
        tmp_path, kinds=(Partition.REPLIES,), everyone=(False,), partition_s=6.0, calls=20
    )
    assert not report.problems, report.problems


@live
async def test_what_was_acknowledged_is_there_after_redis_was_killed(tmp_path: Path) -> None:
    report = await kill_redis(tmp_path, kills=1, calls=20)
    assert not report.problems, report.problems


@live
async def test_calls_at_three_replicas_cause_one_refresh_of_the_token_that_they_share(
    tmp_path: Path,
) -> None:
    report = await refresh_once(tmp_path, calls=50, life_s=6.0)
    assert not report.problems, report.problems


@live
async def test_what_is_refused_without_the_store_is_as_documented(tmp_path: Path) -> None:
    report = await store_away(tmp_path, away_s=0.0, ways=("SIGKILL",))
    assert not report.problems, report.problems
