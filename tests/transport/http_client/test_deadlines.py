"""The deadlines of requests, without any request: they are on one timer, and hold as those of
`asyncio.timeout_at` do."""

import asyncio

import pytest

from colonnade.protocol.jsonrpc import RequestId
from colonnade.transport.http_client.conversation import PendingRequest, RequestTimeouts
from live import live

SOON_S = 0.02


class Deadlines:
    """Requests of one conversation."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.requests: dict[RequestId, PendingRequest] = {}
        self.timeouts = RequestTimeouts(self.loop, self.requests)

    def request(self, timeout_s: float) -> PendingRequest:
        id = len(self.requests)
        one = self.requests[id] = PendingRequest(self.timeouts, id, "ping", timeout_s)
        one.deadline = self.loop.time() + timeout_s
        return one

    async def wait(self, request: PendingRequest) -> None:
        try:
            with request:
                await self.loop.create_future()
        finally:
            del self.requests[request.id]


@live
async def test_requests_with_the_same_deadline_end_together_and_others_later() -> None:
    all = Deadlines()
    at = all.loop.time() + SOON_S
    requests = [all.request(SOON_S) for _ in range(3)]
    for one in requests[:2]:
        one.deadline = at
    requests[2].deadline = at + SOON_S
    waits = [asyncio.create_task(all.wait(one)) for one in requests]
    await asyncio.wait(waits[:2])
    assert not waits[2].done()
    for one in waits:
        with pytest.raises(TimeoutError):
            await one
    all.timeouts.close()


@live
async def test_a_request_whose_task_is_cancelled_when_its_time_is_over_is_cancelled() -> None:
    """The owner of the task did not time out, and must not be told so."""
    all = Deadlines()
    request = all.request(60.0)
    wait = asyncio.create_task(all.wait(request))
    await asyncio.sleep(0)
    request.expire()
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    all.timeouts.close()


@live
async def test_a_deadline_that_is_removed_before_the_request_is_waited_for_does_not_hold() -> None:
    """A user logs in for another request, between the start of a task and its first step."""
    all = Deadlines()
    request = all.request(SOON_S)
    request.set_deadline(None)
    wait = asyncio.create_task(all.wait(request))
    await asyncio.sleep(3 * SOON_S)
    assert not wait.done()
    request.set_deadline(all.loop.time())
    with pytest.raises(TimeoutError):
        await wait
    all.timeouts.close()
