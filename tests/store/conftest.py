"""The fixture `stores`: each test of the contract runs once with each kind of store."""

from collections.abc import Generator
from pathlib import Path

import pytest

from store.redis_server import RedisServer, redis_server
from store.store_fixture import (
    MemoryStoreFixture,
    RedisStoreFixture,
    SqliteStoreFixture,
    StoreFixture,
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer, None, None]:
    """A Redis server for all tests that leave it as it is."""
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(params=["memory", "sqlite", "redis"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[StoreFixture, None, None]:
    if request.param == "redis":
        fixture = RedisStoreFixture(request.getfixturevalue("server"))
        yield fixture
        fixture.close()
    else:
        yield _embedded(request.param, tmp_path)


@pytest.fixture(params=["memory", "sqlite"])
def embedded_stores(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFixture:
    """The stores that limit all principals together by themselves."""
    return _embedded(request.param, tmp_path)


def _embedded(kind: str, folder: Path) -> StoreFixture:
    return MemoryStoreFixture() if kind == "memory" else SqliteStoreFixture(folder)
