"""Where credentials live: sealed, in their place, and renewed by one at a time (CL-17)."""

import ast
import asyncio
import stat
from pathlib import Path

import pytest

import colonnade
from colonnade.auth.client.storage import LeaseLost, TokenStorage
from colonnade.client.auth import FILE, KEY_FILE, FileTokenStorage, machine_key
from colonnade.errors import ConnectionLost, Refused
from colonnade.store.memory import MemoryStore
from live import live

KEY, OTHER = bytes(range(32)), bytes(32)


@pytest.mark.spec("R0212", "R0724")
@live
async def test_cl_17_what_is_kept_is_sealed_for_its_name_and_its_principal() -> None:
    store = MemoryStore()
    storage = TokenStorage(store, "ann", [KEY])
    await storage.save("a", b"secret")
    assert await storage.load("a") == b"secret"
    raw = await store.get("ann", "a")
    assert raw is not None
    assert b"secret" not in raw
    await store.put("ann", "b", raw, None)
    await store.put("bob", "a", raw, None)
    assert await storage.load("b") is None
    assert await TokenStorage(store, "bob", [KEY]).load("a") is None
    assert await TokenStorage(store, "ann", [OTHER]).load("a") is None


@pytest.mark.parametrize("raw", [b"", b"\xff", b"{}", b"A" * 100])
@live
async def test_cl_17_what_does_not_open_is_nothing(raw: bytes) -> None:
    store = MemoryStore()
    await store.put("", "a", raw, None)
    assert await TokenStorage(store, "", [KEY]).load("a") is None


@pytest.mark.spec("R0212", "R0329", "R0724")
@live
async def test_cl_17_the_file_and_its_key_are_ours_alone_and_not_made_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "deep" / "home"
    monkeypatch.setenv("COLONNADE_HOME", str(home))
    storage = FileTokenStorage("")
    assert await storage.load("a") is None
    assert not home.exists()
    await storage.save("a", b"secret")
    assert await storage.load("a") == b"secret"
    await storage.close()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for file in (home / FILE, home / KEY_FILE):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"secret" not in file.read_bytes()
    again = FileTokenStorage("")
    assert await again.load("a") == b"secret"
    await again.close()


def test_cl_17_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = machine_key(tmp_path)
    assert machine_key(tmp_path) == key
    assert [file.name for file in tmp_path.iterdir()] == [KEY_FILE]
    (tmp_path / KEY_FILE).chmod(0o644)
    with pytest.raises(Refused, match="is readable by other users"):
        machine_key(tmp_path)
    (tmp_path / KEY_FILE).chmod(0o600)
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(Refused, match="is not a valid key"):
        machine_key(tmp_path)


@live
async def test_one_at_a_time_has_a_lease_and_it_ends_with_its_holder() -> None:
    store = MemoryStore()
    one, two = TokenStorage(store), TokenStorage(store)
    async with one.lease("x") as first:
        assert first
        async with two.lease("x") as second:
            assert not second
        async with two.lease("y") as other:
            assert other
    async with two.lease("x") as again:
        assert again


@live
async def test_a_lease_of_somebody_who_died_ends_by_itself() -> None:
    now = [0.0]
    store = MemoryStore(clock=lambda: now[0])
    storage = TokenStorage(store)
    assert await storage.claim("x", b"dead")
    assert not await storage.claim("x", b"alive")
    now[0] = 60.0
    assert await storage.claim("x", b"alive")


@live
async def test_a_lease_that_went_to_somebody_else_is_left_alone() -> None:
    store = MemoryStore()
    storage = TokenStorage(store)
    async with storage.lease("x") as ours:
        assert ours
        await store.put("", "x", b"somebody else", None)
    assert await store.get("", "x") == b"somebody else"


@live
async def test_a_lease_is_given_back_also_where_its_holder_is_cancelled() -> None:
    store = MemoryStore()
    storage = TokenStorage(store)
    held = asyncio.Event()

    async def hold() -> None:
        async with storage.lease("x"):
            held.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(hold())
    await held.wait()
    task.cancel()
    await asyncio.wait([task])
    assert await store.get("", "x") is None


def test_nothing_of_it_is_in_its_repr() -> None:
    assert repr(TokenStorage(MemoryStore(), "ann", [KEY])) == "TokenStorage(MemoryStore)"


def test_nothing_that_was_stored_is_ever_unpickled() -> None:
    """1E-59: no module of ours knows how to make objects out of what somebody kept."""
    source = Path(colonnade.__file__).parent
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found = {name.partition(".")[0] for name in names}
            assert not found & {"pickle", "marshal", "shelve", "dill", "yaml", "dbm"}, path


@live
async def test_what_a_holder_saves_after_its_lease_went_to_another_process_is_refused() -> None:
    store = MemoryStore()
    storage = TokenStorage(store, "ann", [KEY])
    async with storage.lease("x") as lease:
        assert lease is not None
        await storage.save("login", b"first", lease=lease)
        await store.put("ann", "x", b"another process", None)
        await TokenStorage(store, "ann", [KEY]).save("login", b"newer")
        with pytest.raises(LeaseLost):
            await storage.save("login", b"late", lease=lease)
        with pytest.raises(LeaseLost):
            await storage.erase("login", lease)
    assert await storage.load("login") == b"newer"


@live
async def test_a_holder_replaces_what_was_changed_without_the_lease() -> None:
    store = MemoryStore()
    storage = TokenStorage(store, "ann", [KEY])
    async with storage.lease("x") as lease:
        await storage.save("login", b"by a log out")
        await storage.save("login", b"by the holder", lease=lease)
        assert await storage.load("login") == b"by the holder"
        await storage.erase("login", lease)
        await storage.erase("login", lease)
    assert await storage.load("login") is None


@live
async def test_a_record_is_taken_once() -> None:
    store = MemoryStore()
    storage = TokenStorage(store, "ann", [KEY])
    await storage.save("state", b"value")
    assert await TokenStorage(store, "ann", [OTHER]).take("state") is None
    taken = await asyncio.gather(*(storage.take("state") for _ in range(3)))
    assert sorted(taken, key=str) == [None, None, b"value"]
    assert await storage.take("state") is None


class UnsteadyStore(MemoryStore):
    """A store that does not respond to the first swap."""

    def __init__(self) -> None:
        super().__init__()
        self.swaps = 0
        self.responded = asyncio.Event()

    async def swap(
        self,
        principal: str,
        key: str,
        before: bytes | None,
        after: bytes | None,
        ttl_s: float | None,
    ) -> bool:
        self.swaps += 1
        if self.swaps == 1:
            raise ConnectionLost("the store does not respond")
        self.responded.set()
        return await super().swap(principal, key, before, after, ttl_s)


@live
async def test_a_lease_is_extended_also_after_the_store_did_not_respond_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("colonnade.auth.client.storage.LEASE_RENEWAL_S", 0.0)
    store = UnsteadyStore()
    async with TokenStorage(store).lease("x") as lease:
        assert lease is not None
        await store.responded.wait()
