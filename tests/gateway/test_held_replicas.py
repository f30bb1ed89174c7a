"""A held call whose rounds reach several replicas of a gateway, on one store."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from colonnade.errors import RemoteError
from colonnade.protocol import types as t
from colonnade.protocol.methods import Side
from colonnade.store.memory import MemoryStore
from gateway.recorded import NEW, OLD, Cell, recorded
from gateway.rounds import Desk, Rounds, answered, can_elicit, text
from live import live

KEYS = [bytes(range(32))]


class Fleet:
    """Replicas of one gateway, and a client of each."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.store = MemoryStore(is_shared=True)
        self.cells: list[Cell] = []
        self.clients: list[Rounds] = []

    @property
    def held(self) -> list[int]:
        return [cell.gateway._bridge.held.count for cell in self.cells]


@asynccontextmanager
async def fleet(count: int = 3, **options: Any) -> AsyncGenerator[Fleet]:
    made = Fleet()
    async with AsyncExitStack() as stack:
        for _ in range(count):
            making = recorded(
                made.desk.server,
                upstream=OLD,
                downstream=NEW,
                store=made.store,
                keys=KEYS,
                **options,
            )
            cell = await stack.enter_async_context(making)
            made.cells.append(cell)
            made.clients.append(Rounds(await cell.connect(can_elicit(), principal="ada")))
        yield made


@live
async def test_the_rounds_of_a_call_reach_three_replicas() -> None:
    async with fleet() as made:
        first = await made.clients[0].begin("trip")
        assert made.held == [1, 0, 0]
        given = answered(first, lambda _: "12A")
        second = await made.clients[1].send("trip", {}, first.request_state, given)
        assert isinstance(second, t.InputRequiredResult)
        given = answered(second, lambda _: "soup")
        last = await made.clients[2].send("trip", {}, second.request_state, given)
        assert text(last) == "12A, soup"
        assert made.held == [0, 0, 0]
        assert [len(cell.back) for cell in made.cells] == [1, 0, 0]  # it ran at the first alone
        for cell in made.cells:
            cell.check()


@live
async def test_a_retry_that_is_sent_to_all_replicas_has_one_effect_and_one_result() -> None:
    async with fleet() as made:
        first = await made.clients[0].begin("book", who="ada")
        given = answered(first, lambda _: "12A")
        sending = [
            one.send("book", {"who": "ada"}, first.request_state, given) for one in made.clients
        ]
        assert {text(one) for one in await asyncio.gather(*sending)} == {"ada: 12A"}
        assert made.desk.ended == ["ada"]


@live
async def test_the_outcome_is_read_from_the_store_when_the_replica_of_the_call_is_gone() -> None:
    async with fleet(2) as made:
        first = await made.clients[0].begin("book", who="ada")
        given = answered(first, lambda _: "12A")
        assert text(await made.clients[0].send("book", {"who": "ada"}, first.request_state, given))
        replica = made.cells[0].gateway._bridge._replica
        assert replica is not None
        await replica.close()
        again = await made.clients[1].send("book", {"who": "ada"}, first.request_state, given)
        assert text(again) == "ada: 12A"
        assert made.desk.ended == ["ada"]


@live
async def test_a_call_whose_replica_is_gone_is_said_to_be_interrupted() -> None:
    async with fleet(2) as made:
        first = await made.clients[0].begin("book", who="ada")
        replica = made.cells[0].gateway._bridge._replica
        assert replica is not None
        await replica.close()
        given = answered(first, lambda _: "12A")
        result = await made.clients[1].send("book", {"who": "ada"}, first.request_state, given)
        assert result.is_error
        assert "was interrupted while it waited for input" in text(result)
        # It was not called again: only its own server has seen it.
        assert made.desk.begun == ["ada"]
        assert made.cells[1].back == []


@live
async def test_a_round_whose_replica_does_not_respond_says_that_the_effect_is_unknown() -> None:
    async with fleet(2) as made:
        first = await made.clients[0].begin("book", who="ada")
        replica = made.cells[0].gateway._bridge._replica
        assert replica is not None
        for task in replica._services[:-1]:  # it listens no more, and its lease has not lapsed yet
            task.cancel()
        given = answered(first, lambda _: "12A")
        result = await made.clients[1].send("book", {"who": "ada"}, first.request_state, given)
        assert result.is_error
        assert "whether it had an effect is unknown" in text(result)
        assert "not started" not in text(result)
        assert made.desk.ended == []


@live
async def test_a_replica_that_stops_leaves_its_outcome_for_the_others() -> None:
    async with fleet(2) as made:
        first = await made.clients[0].begin("stubborn")
        await made.cells[0].gateway._bridge.held.close()
        given = answered(first, lambda _: "12A")
        result = await made.clients[1].send("stubborn", {}, first.request_state, given)
        assert result.is_error
        assert "was interrupted while it waited for input" in text(result)


@live
async def test_another_principal_cannot_continue_a_call_at_any_replica() -> None:
    async with fleet(2) as made:
        first = await made.clients[0].begin("book", who="ada")
        given = answered(first, lambda _: "12A")
        for cell in made.cells:
            bob = Rounds(await cell.connect(can_elicit(), principal="bob"))
            with pytest.raises(RemoteError, match="requestState was not given for this request"):
                await bob.send("book", {"who": "ada"}, first.request_state, given)
        assert made.held == [1, 0]
        assert made.desk.ended == []
        assert not made.cells[0].server_wire.results(Side.CLIENT)
