"""Tasks and `kill -9`: two real processes on one SQLite file. `scripts/kill` does it for longer."""

import asyncio
from pathlib import Path

import pytest

from live import live
from server.kill_tasks import END_S, Works, battery
from server.tasks import accepted
from store.redis_server import redis_server

LEASE_S = 1.0


@pytest.mark.spec("R1159")
@live
async def test_a_task_goes_on_in_another_process_right_after_it_was_acknowledged(
    tmp_path: Path,
) -> None:
    async with Works(tmp_path, LEASE_S) as works:
        one, two = works.workers
        id = await works.create(one, "steps", "a", count=4)
        assert id is not None
        await one.kill()
        state = await works.reached(id, "completed")
        works.check("a", state, 4)
        assert await works.get(id, two) == state


@live
async def test_a_response_is_never_lost_and_the_question_keeps_its_key(tmp_path: Path) -> None:
    async with Works(tmp_path, LEASE_S) as works:
        one, two = works.workers
        id = await works.create(one, "confirm", "a")
        assert id is not None
        asked = (await works.reached(id, "input_required"))["inputRequests"]
        await one.kill()
        assert (await works.get(id, two))["inputRequests"] == asked
        await one.start()
        assert (await works.get(id, one))["inputRequests"] == asked
        [key] = asked
        answered = {"taskId": id, "inputResponses": {key: accepted(value="yes")}}
        assert await one.ask("tasks/update", answered) is not None
        await one.kill()  # after it was acknowledged
        state = await works.reached(id, "completed")
        before, answer, _ = state["result"]["structuredContent"]
        assert answer == "yes"
        assert before in [effect.value for effect in works.effects()["a"] if effect.number == 0]


@live
async def test_a_task_that_was_committed_and_not_acknowledged_is_run_all_the_same(
    tmp_path: Path,
) -> None:
    async with Works(tmp_path, LEASE_S) as works:
        one, _ = works.workers
        await one.kill()
        await one.start("created")
        assert await works.create(one, "steps", "a", count=3) is None  # no response
        async with asyncio.timeout(END_S):
            while len({effect.number for effect in works.effects()["a"]}) < 3:
                await asyncio.sleep(0.05)


@live
async def test_a_response_that_was_committed_and_not_acknowledged_is_taken(tmp_path: Path) -> None:
    async with Works(tmp_path, LEASE_S) as works:
        one, two = works.workers
        id = await works.create(two, "confirm", "a")
        assert id is not None
        [key] = (await works.reached(id, "input_required"))["inputRequests"]
        await one.kill()
        await one.start("answered")
        answered = {"taskId": id, "inputResponses": {key: accepted(value="yes")}}
        assert await one.ask("tasks/update", answered) is None
        state = await works.reached(id, "completed")
        assert state["result"]["structuredContent"][1] == "yes"
        # Sent again by a client that got no response: acknowledged, and without an effect.
        assert await two.ask("tasks/update", answered) is not None
        assert await works.get(id, two) == state


@live
async def test_sigterm_hands_the_tasks_over(tmp_path: Path) -> None:
    async with Works(tmp_path, END_S * 2) as works:  # nothing goes on by a lapsed lease here
        one, _ = works.workers
        names = [f"t{number}" for number in range(10)]
        await asyncio.gather(*(works.create(one, "steps", name, count=20) for name in names))
        pid = one.pid
        assert await one.terminate() == 0
        for name in names:
            works.check(name, await works.reached(works.made[name], "completed"), 20)
        done = [effect for effects in works.effects().values() for effect in effects]
        assert {effect.process for effect in done} > {pid}


@live
async def test_processes_are_killed_while_they_run_tasks(tmp_path: Path) -> None:
    for line in await battery(tmp_path, tasks=12, kills=3, lease_s=LEASE_S, timed=False):
        print(line)


@live
async def test_workers_are_killed_beside_a_process_that_only_serves(tmp_path: Path) -> None:
    await battery(tmp_path, tasks=8, kills=2, lease_s=LEASE_S, timed=False, apart=True)


@live
async def test_workers_are_killed_that_a_queue_delivers_tasks_to(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as redis:
        await battery(
            tmp_path, tasks=8, kills=2, lease_s=LEASE_S, timed=False, apart=True, queue=redis.url
        )
