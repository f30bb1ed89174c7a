"""Notifications of tasks on `subscriptions/listen`, to their owner alone."""

import asyncio
from typing import Any

import pytest

from colonnade import Context, Server
from colonnade.protocol.revision import JULY_2026
from live import live
from server.raw_client import Client, Rejected, raw_client, text_content
from server.tasks import RELATED, accepted, client_of, ended, get, reached, start, update

STATUS = "notifications/tasks"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def workshop() -> Server:
    server = Server("workshop")
    server.state = asyncio.Event()

    @server.tool(task=True)
    async def confirm(ctx: Context) -> str:
        await ctx.state.wait()
        return "yes" if await ctx.elicit("Sure?", bool) else "no"

    @server.tool(task=True)
    async def count(ctx: Context) -> str:
        await ctx.state.wait()
        for n in range(3):
            await ctx.progress(n + 1, 3, f"step {n + 1}")
        return "done"

    return server


async def listen(client: Client, *ids: str) -> Any:
    """Open a subscription and wait for its acknowledgement."""
    before = len(client.notifications(ACKNOWLEDGED))
    asked = client.send("subscriptions/listen", {"notifications": {"taskIds": list(ids)}})
    await client.until(lambda: len(client.notifications(ACKNOWLEDGED)) > before)
    return asked


def bare(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name not in ("_meta", "resultType")}


@live
async def test_each_change_is_sent_as_tasks_get_would_return_it() -> None:
    server = workshop()
    async with client_of(server) as client:
        id = (await start(client, "confirm"))["taskId"]
        await listen(client, id)
        assert client.notifications(ACKNOWLEDGED)[0]["notifications"] == {"taskIds": [id]}
        server.state.set()
        await client.until(lambda: client.notifications(STATUS))
        [told] = client.notifications(STATUS)
        assert told["status"] == "input_required"
        assert bare(told) == bare(await get(client, id))
        [key] = told["inputRequests"]
        await update(client, id, {key: accepted(value=True)})
        await client.until(lambda: client.notifications(STATUS)[-1]["status"] == "completed")
        told = client.notifications(STATUS)[-1]
        assert text_content(told["result"]) == "yes"
        assert RELATED not in told["result"].get("_meta", {})
        state = await get(client, id)
        assert bare(told) == bare(state)


@pytest.mark.spec("R1199")
@live
async def test_progress_is_a_status_message_and_no_notification_of_its_own() -> None:
    server = workshop()
    async with client_of(server) as client:
        id = (await start(client, "count", _meta={"progressToken": 1}))["taskId"]
        await listen(client, id)
        server.state.set()
        await client.until(
            lambda: (
                client.notifications(STATUS)[-1:]
                and client.notifications(STATUS)[-1]["status"] == "completed"
            )
        )
        assert not client.notifications("notifications/progress")
        assert not client.notifications("notifications/message")


@live
async def test_a_task_that_has_ended_before_is_sent_at_once() -> None:
    server = workshop()
    server.state.set()
    async with client_of(server) as client:
        id = (await start(client, "count"))["taskId"]
        await ended(client, id)
        await listen(client, id)
        await client.until(lambda: client.notifications(STATUS))
        assert client.notifications(STATUS)[0]["status"] == "completed"


@pytest.mark.spec("R1216")
@live
async def test_tasks_of_others_and_unknown_ones_are_left_out_without_a_word() -> None:
    server = workshop()
    unknown = "0" * 12 + "-" + "0" * 32
    async with (
        client_of(server, principal="ann") as ann,
        client_of(server, principal="bob") as bob,
    ):
        of_ann = (await start(ann, "confirm"))["taskId"]
        of_bob = (await start(bob, "confirm"))["taskId"]
        await listen(bob, of_ann, unknown, "x", of_bob)
        assert bob.notifications(ACKNOWLEDGED)[0]["notifications"] == {"taskIds": [of_bob]}
        await listen(bob, of_ann)
        assert bob.notifications(ACKNOWLEDGED)[1]["notifications"] == {"taskIds": []}
        server.state.set()
        await bob.until(lambda: bob.notifications(STATUS))
        await reached(ann, of_ann, "input_required")
        assert {one["taskId"] for one in bob.notifications(STATUS)} == {of_bob}
        assert not ann.notifications(STATUS)


@pytest.mark.spec("R1206")
@live
async def test_a_client_that_did_not_declare_tasks_cannot_listen_to_them() -> None:
    async with raw_client(workshop(), JULY_2026) as client:
        with pytest.raises(Rejected) as caught:
            await client.ask("subscriptions/listen", {"notifications": {"taskIds": ["x"]}})
        assert caught.value.code == -32021


@live
async def test_a_subscription_ends_when_its_client_cancels_it() -> None:
    server = workshop()
    async with client_of(server) as client:
        id = (await start(client, "confirm"))["taskId"]
        asked = await listen(client, id)
        client.notify("notifications/cancelled", {"requestId": asked})
        server.state.set()
        await reached(client, id, "input_required")
        assert not client.notifications(STATUS)
