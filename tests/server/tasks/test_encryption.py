"""Tasks in the store of a server with keys: nothing of them can be read there, or moved."""

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

import pytest

from colonnade import Context, Server
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025, Revision
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from live import live
from server.raw_client import Rejected
from server.tasks import accepted, client_of, ended, get, reached, start, update

KEY, OTHER_KEY = secrets.token_bytes(32), secrets.token_bytes(32)
TEXTS = ("the-argument", "the-effect", "the-message", "the-response", "the-result")


def press(store: MemoryStore | SqliteStore, keys: Sequence[bytes] = (KEY,)) -> Server:
    server = Server("press", store=store, keys=keys)

    @server.tool(task=True)
    async def book(topic: str, ctx: Context) -> str:
        await ctx.once("effect", lambda: "the-effect")
        await ctx.progress(1, 2, "the-message")
        await ctx.elicit("Which title?", str)
        return f"the-result on {topic}"

    return server


async def write(server: Server) -> str:
    """A task with every text; its id."""
    async with client_of(server) as client:
        id: str = (await start(client, "book", {"topic": "the-argument"}))["taskId"]
        [key] = (await reached(client, id, "input_required"))["inputRequests"]
        await update(client, id, {key: accepted(value="the-response")})
        assert (await ended(client, id))["status"] == "completed"
    return id


@pytest.mark.parametrize("keys", [(), (KEY,)], ids=["without keys", "with keys"])
@live
async def test_with_keys_nothing_of_a_task_can_be_read_in_the_file(
    tmp_path: Path, keys: tuple[bytes, ...]
) -> None:
    store = SqliteStore(tmp_path / "tasks.db")
    await write(press(store, keys))
    stored = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    await store.close()
    found = [text for text in TEXTS if text.encode() in stored]
    assert found == ([] if keys else list(TEXTS))


@pytest.mark.parametrize("revision", [NOVEMBER_2025, JULY_2026], ids=lambda one: one.date)
@live
async def test_a_process_with_the_same_keys_reads_the_task_and_goes_on(revision: Revision) -> None:
    store = MemoryStore()
    id = await write(press(store))
    newer = press(store, [OTHER_KEY, KEY])  # the keys were changed
    async with client_of(newer, revision) as client:
        assert (await get(client, id))["status"] == "completed"
        if revision is NOVEMBER_2025:
            result = await client.ask("tasks/result", {"taskId": id})
        else:
            result = (await get(client, id))["result"]
        assert result["content"][0]["text"] == "the-result on the-argument"


@pytest.mark.parametrize("keys", [(OTHER_KEY,), ()], ids=["another key", "no key"])
@live
async def test_without_its_key_a_task_is_an_internal_error_that_tells_nothing(
    keys: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    id = await write(press(store))
    async with client_of(press(store, keys)) as client:
        with caplog.at_level(logging.ERROR, "colonnade.tasks"), pytest.raises(Rejected) as caught:
            await get(client, id)
    assert (caught.value.code, caught.value.message) == (
        -32603,
        "the task cannot be read; the log says why",
    )
    assert id in caplog.text


@live
async def test_a_task_that_was_stored_without_keys_is_not_read_with_them() -> None:
    """Who can write to the store could run a tool as any caller."""
    store = MemoryStore()
    id = await write(press(store, ()))
    async with client_of(press(store)) as client:
        with pytest.raises(Rejected) as caught:
            await get(client, id)
    assert caught.value.code == -32603


@live
async def test_a_record_or_result_at_the_place_of_another_is_not_read() -> None:
    store = MemoryStore()
    server = press(store)
    one, two = await write(server), await write(server)
    names = await store.names("", "task", "", 100)
    for wrong in ("task-result/", "task/"):
        (source,) = [name for name in names if name.startswith(wrong) and one in name]
        (target,) = [name for name in names if name.startswith(wrong) and two in name]
        moved = await store.get("", source)
        assert moved is not None
        await store.put("", target, moved, None)
        async with client_of(server) as client:
            assert (await get(client, one))["status"] == "completed"
            with pytest.raises(Rejected) as caught:
                await get(client, two)
        assert caught.value.code == -32603
        assert caught.value.message.endswith("cannot be read; the log says why")
