"""Lists of tasks while tasks come and go: each task that stays is listed once."""

import asyncio
import random

from colonnade import Server, TaskOptions
from colonnade.protocol.revision import NOVEMBER_2025
from colonnade.store.memory import MemoryStore
from colonnade.testing import Clock
from live import live_for
from server.raw_client import Client
from server.tasks import client_of, start

TASKS = 150


async def listed(client: Client) -> list[str]:
    """All pages, with a pause between them in which others do what they like."""
    ids: list[str] = []
    params: dict[str, str] = {}
    while True:
        page = await client.ask("tasks/list", params)
        ids += [one["taskId"] for one in page["tasks"]]
        await asyncio.sleep(0)
        if "nextCursor" not in page:
            return ids
        params = {"cursor": page["nextCursor"]}


@live_for(None)
async def test_each_task_that_stays_is_listed_once_while_others_come_go_and_expire() -> None:
    chance = random.Random(1)
    clock = Clock()
    with clock:
        options = TaskOptions(max_unfinished=10_000, max_kept=10_000)
        server = Server("s", store=MemoryStore(), tasks=options)

        @server.tool(task=True, keep_s=60)
        async def wait() -> str:
            await asyncio.Event().wait()
            return ""

        clock.rule(server)
        async with client_of(server, NOVEMBER_2025) as client:
            made = [(await start(client, "wait"))["taskId"] for _ in range(TASKS)]
            going = set(chance.sample(made, TASKS // 3))
            stays = [id for id in made if id not in going]

            async def churn() -> None:
                for id in going:
                    await client.ask("tasks/cancel", {"taskId": id})
                    await start(client, "wait")
                    await clock.advance(1)

            churning = asyncio.ensure_future(churn())
            lists = 0
            while not churning.done():
                found = await listed(client)
                assert set(stays) <= set(found)
                assert len(found) == len(set(found))
                lists += 1
            await churning
            await clock.advance(120)  # what was cancelled has expired
            assert not going & set(await listed(client))
            assert lists > 1
