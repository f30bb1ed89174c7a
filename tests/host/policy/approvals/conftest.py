"""The fixture `stores`: each kind of store that an inbox may have."""

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer, None, None]:
    """A Redis server for all tests of an inbox. It ends with them: other tests of hosts count the
    child processes."""
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(params=["memory", "sqlite", "redis"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[StoreFixture, None, None]:
    """Stores of one kind."""
    if request.param == "memory":
        yield MemoryStoreFixture()
    else:
        yield from _shared(request, tmp_path)


@pytest.fixture(params=["sqlite", "redis"])
def shared_stores(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Generator[StoreFixture, None, None]:
    """Stores that several processes share."""
    yield from _shared(request, tmp_path)


def _shared(request: pytest.FixtureRequest, folder: Path) -> Generator[StoreFixture, None, None]:
    if request.param == "sqlite":
        yield SqliteStoreFixture(folder)
        return
    fixture = RedisStoreFixture(request.getfixturevalue("server"))
    yield fixture
    fixture.close()
