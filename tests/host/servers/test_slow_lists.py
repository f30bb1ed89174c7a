"""A server that does not respond delays a caller once, not for each of its lists."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from colonnade.errors import TimedOut
from colonnade.host.config.settings import Settings
from colonnade.host.servers import listings
from colonnade.host.servers.listings import ListKind, ServerListings
from live import live

# Longer than a test may take.
FOREVER_S = 3600.0


class Server:
    """A server that answers when it is told to, or fails."""

    def __init__(self) -> None:
        self.responds = asyncio.Event()
        self.error: Exception | None = None
        self.changed: list[ListKind] = []

    async def fetch(self, method: str, caller: str, fetch: Any, source: Any) -> Sequence[Any]:
        if self.error is not None:
            raise self.error
        await self.responds.wait()
        return []

    def listings(self) -> ServerListings:
        return ServerListings(
            "slow", Settings(), self.fetch, lambda: True, self.changed.append, lambda _: True
        )


@live
async def test_a_list_does_not_wait_long_for_a_server_that_another_list_has_waited_for() -> None:
    server = Server()
    lists = server.listings()
    assert await lists.tools.get("", 0.0) is None
    assert await lists.prompts.get("", FOREVER_S) is None
    assert await lists.resources.get("", FOREVER_S) is None
    server.responds.set()
    while len(server.changed) < 3:  # callers are notified of what they have missed
        await asyncio.sleep(0.01)
    assert (await lists.templates.get("", FOREVER_S)) is not None
    await lists.close()


@live
async def test_a_list_whose_last_attempt_timed_out_is_requested_again_without_a_long_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listings, "RETRY_S", 0.0)
    server = Server()
    lists = server.listings()
    server.error = TimedOut("it does not respond", server="slow")
    assert await lists.tools.get("", FOREVER_S) is None
    server.error = None
    assert await lists.tools.get("", FOREVER_S) is None
    server.responds.set()
    assert await lists.tools.get("", FOREVER_S, fresh=True) is not None
    await lists.close()
