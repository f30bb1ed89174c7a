"""The fixture `stores`: each test of the contract runs once with each kind of store."""

from pathlib import Path

import pytest

from store.store_fixture import MemoryStoreFixture, SqliteStoreFixture, StoreFixture


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFixture:
    return MemoryStoreFixture() if request.param == "memory" else SqliteStoreFixture(tmp_path)
