"""A store that takes no more sessions."""

import asyncio
from pathlib import Path
from typing import Any

from colonnade import Server
from colonnade.errors import Refused
from colonnade.store.sqlite import SqliteStore
from colonnade.transport.http_server.app import HttpApp
from colonnade.transport.http_server.runner import HttpRunner
from http_client import Caller, opening
from live import Records, live


class FullStore(SqliteStore):
    async def put(self, *args: Any, **kwargs: Any) -> Any:
        raise Refused("the store is full")


def test_refused_sessions_are_logged_once_with_a_count(tmp_path: Path) -> None:
    @live
    async def exercise() -> None:
        server = Server("full", store=FullStore(str(tmp_path / "store.db")))
        site = HttpRunner(HttpApp(server), port=0)
        await site.start()
        try:
            async with Caller(site.port) as caller:
                with Records("colonnade.transport") as records:
                    responses = await asyncio.gather(
                        *(caller.post(opening("2025-11-25")) for _ in range(20))
                    )
            assert {response.status for response in responses} == {503}
            refused = [line for line in records.lines if "cannot be stored" in line]
            assert refused == ["WARNING a session cannot be stored: the store is full"]
        finally:
            await site.stop(0.0)

    exercise()
