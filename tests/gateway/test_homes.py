"""Homes: a session with state is at one replica of a gateway, and the others send requests there."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from colonnade.client.input_callbacks import InputCallbacks
from colonnade.errors import RemoteError, says_effect_unknown, says_not_sent
from colonnade.gateway.homes import CHANGE, HomeChange
from colonnade.ports import SERVER_PRINCIPAL
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.replicas.remote_messages import REMOTE_VERSION, encode_remote
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from gateway.recorded import NEW, OLD
from gateway.replicas import Notebook, replicas, said
from live import live

GONE = "its state is gone"


def seat(params: t.ElicitRequestParams) -> t.ElicitResult:
    return t.ElicitResult(action="accept", content={"value": "12A"})


# ---------------------------------------------------------------- one session for a caller


@live
async def test_calls_at_three_replicas_reach_one_session() -> None:
    async with replicas(Notebook()) as fleet:
        numbers = [await fleet.call("add", note=str(number)) for number in range(6)]
        assert numbers == ["1", "2", "3", "4", "5", "6"]
        assert sorted(fleet.opened) == [0, 0, 1]
        for cell in fleet.cells:
            cell.check()


@live
async def test_the_same_holds_on_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "gateway.db")
    try:
        async with replicas(Notebook(), store=store) as fleet:
            numbers = [await fleet.call("add", note=str(number)) for number in range(4)]
            assert numbers == ["1", "2", "3", "4"]
            assert sum(fleet.opened) == 1
    finally:
        await store.close()


class SameMoment(MemoryStore):
    """A store in which three replicas read the entry of a home before any of them writes it."""

    def __init__(self) -> None:
        super().__init__(is_shared=True)
        self.reads = 0
        self.all_have_read = asyncio.Event()

    async def get(self, principal: str, key: str) -> bytes | None:
        found = await super().get(principal, key)
        if key.startswith("home "):
            self.reads += 1
            if self.reads == 3:
                self.all_have_read.set()
            await self.all_have_read.wait()
        return found


@live
async def test_calls_that_begin_at_three_replicas_at_once_have_one_home() -> None:
    async with replicas(Notebook(), store=SameMoment()) as fleet:
        calls = (fleet.call("add", one, note=str(one)) for one in fleet.clients)
        assert sorted(await asyncio.gather(*calls)) == ["1", "2", "3"]
        assert sum(fleet.opened) == 1


@live
async def test_the_entry_of_a_home_that_is_back_is_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replicas(Notebook()) as fleet:
        assert [await fleet.call("add", note="x") for _ in range(3)] == ["1", "2", "3"]
        (home,) = fleet.homes(fleet.home)._own.values()
        other = (fleet.home + 1) % 3
        homes = fleet.homes(other)
        (connection,) = homes._connections

        async def was_dead(_: str) -> bool:
            """It had no lease when it was looked up, and has confirmed its home since then."""
            await home.confirm()
            return False

        monkeypatch.setattr(fleet.replica(other), "is_alive", was_dead)
        assert await homes._left(connection)
        assert await fleet.store.get(SERVER_PRINCIPAL, f"home {home.id}") == home.value


@live
async def test_two_callers_have_two_sessions() -> None:
    async with replicas(Notebook()) as fleet:
        bob = await fleet.cells[1].connect(principal="bob")
        assert await fleet.call("add", note="x") == "1"
        assert await fleet.call("add", bob, note="y") == "1"
        assert await fleet.call("add", note="z") == "2"
        assert sum(fleet.opened) == 2


@live
async def test_a_session_of_a_client_has_one_home_and_another_session_another() -> None:
    async with replicas(Notebook(), downstream=OLD, session="one") as fleet:
        numbers = [await fleet.call("add", note=str(number)) for number in range(4)]
        assert numbers == ["1", "2", "3", "4"]
        other = await fleet.cells[2].connect(principal="ada", session="two")
        assert await fleet.call("add", other, note="x") == "1"
        assert await fleet.call("add", note="y") == "5"


@live
async def test_a_server_of_the_newest_revision_needs_no_home() -> None:
    async with replicas(Notebook(), upstream=NEW) as fleet:
        for number in range(3):
            await fleet.call("add", note=str(number))
        assert all(not fleet.homes(number)._own for number in range(3))
        assert fleet.opened == [1, 1, 1]


@live
async def test_a_pooled_server_needs_no_home() -> None:
    async with replicas(Notebook(), sharing="pooled") as fleet:
        for number in range(3):
            await fleet.call("add", note=str(number))
        assert all(not fleet.homes(number)._own for number in range(3))


@live
async def test_lists_are_read_from_the_home() -> None:
    async with replicas(Notebook()) as fleet:
        for client in fleet.clients:
            names = [tool.name for tool in await client.list_tools()]
            assert "s__add" in names
        assert sum(fleet.opened) == 1


# ---------------------------------------------------------------- what goes through


@pytest.mark.parametrize("downstream", [OLD, NEW])
def test_progress_and_log_messages_come_from_the_home(downstream: str) -> None:
    @live
    async def exercise() -> None:
        async with replicas(Notebook(), downstream=downstream, session="one") as fleet:
            for number, client in enumerate(fleet.clients):
                await client.set_log_level("debug")
                seen: list[Any] = []
                result = await client.call_tool(
                    "s__report", {}, on_progress=lambda *one, seen=seen: seen.append(one)
                )
                assert result.text == "reported"
                assert seen == [(1, 2, "half"), (2, 2, "whole")]
                logs = fleet.cells[number].client_wire.said(Side.SERVER, "notifications/message")
                assert [one["data"] for one in logs] == ["almost"]

    exercise()


@pytest.mark.parametrize("downstream", [OLD, NEW])
def test_an_input_request_of_the_home_reaches_the_client(downstream: str) -> None:
    @live
    async def exercise() -> None:
        answers = InputCallbacks(on_elicit=seat)
        making = replicas(Notebook(), downstream=downstream, answers=answers, session="one")
        async with making as fleet:
            for client in fleet.clients:
                assert await fleet.call("ask", client) == "12A"
            for cell in fleet.cells:
                cell.check()

    exercise()


@live
async def test_a_cancelled_call_is_cancelled_at_the_home() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        task = asyncio.create_task(fleet.call("slow", fleet.clients[1], note="y"))
        assert await notebook.begun.get() == "y"
        task.cancel()
        await asyncio.wait([task])
        while not notebook.cancelled:
            await asyncio.sleep(0)
        assert notebook.cancelled == ["y"]
        assert await fleet.call("add", fleet.clients[2], note="z") == "3"


@live
async def test_errors_of_the_server_are_the_same_at_every_replica() -> None:
    async with replicas(Notebook(), owns=("note://*",)) as fleet:
        results = [await fleet.send("add", client, wrong=1) for client in fleet.clients]
        assert all(one.is_error for one in results)
        assert len({said(one) for one in results}) == 1
        errors: set[tuple[int, str]] = set()
        for client in fleet.clients:
            with pytest.raises(RemoteError) as caught:
                await client.read_resource("note://nothing")
            errors.add((caught.value.code, caught.value.message))
        assert len(errors) == 1


@live
async def test_an_error_of_the_server_is_never_taken_for_one_of_the_home() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        with pytest.raises(RemoteError, match="not started"):
            await fleet.call("lie", fleet.clients[1], note="y")
        assert notebook.effects == ["x", "y"]


@live
async def test_an_input_request_moves_to_the_call_of_another_replica() -> None:
    notebook, asked = Notebook(), asyncio.Event()

    async def never(params: t.ElicitRequestParams) -> t.ElicitResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("it is cancelled")

    async with replicas(notebook, answers=InputCallbacks(on_elicit=seat)) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        silent = await fleet.cells[2].connect(InputCallbacks(on_elicit=never), principal="ada")
        first = asyncio.create_task(fleet.call("ask_later", fleet.clients[1], note="first"))
        assert await notebook.begun.get() == "first"
        latest = asyncio.create_task(fleet.call("slow", silent, note="latest"))
        assert await notebook.begun.get() == "latest"
        notebook.may_ask.set()
        await asked.wait()  # it was put on the latest call
        notebook.go.set()  # which ends
        assert await first == "first: 12A"
        latest.cancel()
        await asyncio.wait([latest])


@live
async def test_a_change_of_a_list_at_the_home_is_seen_at_every_replica() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        for client in fleet.clients:
            await fleet.call("add", client, note="x")
            await client.list_tools()
        assert fleet.home == 0

        def added() -> str:
            return "new"

        notebook.server.tool(added)
        for client in fleet.clients:
            while True:
                names = [tool.name for tool in await client.list_tools(fresh=True)]
                if "s__added" in names:
                    break
        assert sum(fleet.opened) == 1


@live
async def test_a_change_that_another_replica_than_the_home_sends_is_ignored() -> None:
    async with replicas(Notebook()) as fleet:
        for client in fleet.clients:
            await fleet.call("add", client, note="x")
        (home,) = fleet.homes(0)._own.values()
        (connection,) = fleet.homes(1)._connections
        seen: list[str] = []
        connection.watch_changes(lambda method, _: seen.append(method), "ada")
        method = "notifications/tools/list_changed"
        body = encode_remote(HomeChange(REMOTE_VERSION, home.id, method, b""))
        await fleet.replica(2).request(fleet.replica(1).name, CHANGE, body)
        assert seen == []
        await fleet.replica(0).request(fleet.replica(1).name, CHANGE, body)
        assert seen == [method]


# ---------------------------------------------------------------- a home that ends


@live
async def test_a_caller_is_told_once_that_its_state_is_gone() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        assert [await fleet.call("add", note=one) for one in "abc"] == ["1", "2", "3"]
        home = fleet.home
        await fleet.kill(home)
        told = await fleet.send("add", fleet.turn(home), note="d")
        assert told.is_error
        assert GONE in said(told)
        assert "was not started" in said(told)
        assert says_not_sent(told.meta)
        assert "d" not in notebook.effects
        left = [client for number, client in enumerate(fleet.clients) if number != home]
        assert [await fleet.call("add", client, note="e") for client in left] == ["1", "2"]
        assert sum(fleet.opened) == 2


@live
async def test_a_call_whose_home_ends_may_have_had_an_effect() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        assert fleet.home == 0
        task = asyncio.create_task(fleet.send("slow", fleet.clients[1], note="y"))
        await notebook.begun.get()
        await fleet.kill(0)
        told = await task
        assert told.is_error
        assert "whether it had an effect is unknown" in said(told)
        assert says_effect_unknown(told.meta)
        assert "the state of the server is gone" in said(told)
        # It was told, so the next one begins anew.
        assert await fleet.call("add", fleet.clients[2], note="z") == "1"
        assert notebook.effects == ["x", "y", "z"]
        notebook.go.set()


@live
async def test_a_home_that_was_stopped_ends_its_session_and_runs_nothing() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        await fleet.stop(0)
        assert GONE in await fleet.call("add", fleet.clients[1], note="y")
        assert await fleet.call("add", fleet.clients[1], note="z") == "1"
        # A request that the stopped one had received before.
        late = asyncio.create_task(fleet.call("add", fleet.clients[0], note="late"))
        await asyncio.sleep(0)
        await fleet.resume(0)
        assert await late == "2"
        assert fleet.home == 1
        assert notebook.notes == {0: ["x"], 1: ["z", "late"]}


@live
async def test_a_home_that_was_stopped_and_not_replaced_goes_on() -> None:
    async with replicas(Notebook()) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        await fleet.stop(0)
        await fleet.resume(0)
        assert await fleet.call("add", fleet.clients[1], note="y") == "2"
        assert await fleet.call("add", fleet.clients[0], note="z") == "3"
        assert fleet.home == 0


@live
async def test_a_stopped_home_that_is_back_cannot_be_replaced_by_one_that_saw_it_stopped() -> None:
    async with replicas(Notebook()) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        (home,) = fleet.homes(0)._own.values()
        before = home.value
        await fleet.stop(0)
        await fleet.resume(0)
        await fleet.call("add", fleet.clients[0], note="y")
        assert home.value != before
        swapped = await fleet.store.swap("\x01server", f"home {home.id}", before, b"another", 600.0)
        assert not swapped


@live
async def test_a_replica_that_stops_lets_the_next_call_say_that_the_state_is_gone() -> None:
    async with replicas(Notebook()) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        await fleet.cells[0].gateway.stop()
        await fleet.cells[0].host.close()
        assert GONE in await fleet.call("add", fleet.clients[1], note="y")
        assert await fleet.call("add", fleet.clients[2], note="z") == "1"
        await fleet.cells[0].gateway.start()


@live
async def test_a_session_that_its_home_has_closed_is_opened_at_the_next_replica() -> None:
    async with replicas(Notebook()) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        await fleet.call("add", fleet.clients[1], note="y")
        fleet.cells[0].host.restart("s")
        assert await fleet.call("add", fleet.clients[1], note="z") == "1"
        assert await fleet.call("add", fleet.clients[0], note="w") == "2"
        assert fleet.home == 1


@live
async def test_a_request_for_an_earlier_session_of_a_home_is_not_run() -> None:
    notebook = Notebook()
    async with replicas(notebook) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        await fleet.call("add", fleet.clients[1], note="y")
        (connection,) = fleet.homes(1)._connections
        connection._key = connection._key.rpartition(" ")[0] + " 999"
        # It is opened again, and sent there.
        assert await fleet.call("add", fleet.clients[1], note="z") == "3"
        assert notebook.effects == ["x", "y", "z"]
        assert connection not in fleet.homes(1)._connections


@live
async def test_an_entry_of_a_replica_that_has_no_such_session_is_removed() -> None:
    async with replicas(Notebook()) as fleet:
        await fleet.call("add", fleet.clients[0], note="x")
        (home,) = fleet.homes(0)._own.values()
        fleet.cells[0].host.restart("s")
        await home.released.wait()
        await fleet.store.put("\x01server", f"home {home.id}", home.value, 600.0)
        assert await fleet.call("add", fleet.clients[1], note="y") == "1"
        assert fleet.home == 1
