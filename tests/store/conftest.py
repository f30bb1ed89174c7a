"""The stage on which the contract is played, once with each store."""

from pathlib import Path

import pytest

from store.store_fixture import MemoryStage, SqliteStage, Stage


@pytest.fixture(params=["memory", "sqlite"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return MemoryStage() if request.param == "memory" else SqliteStage(tmp_path)
