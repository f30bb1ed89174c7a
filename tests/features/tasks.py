"""Tasks: tools that go on after the response to their call, in both generations."""

import asyncio

from colonnade import Context, Server, ToolError
from colonnade.protocol.revision import Revision, Tasks
from features.feature import WORKS, Group, Verdict, failure, fallback, refusal, refused
from server.raw_client import accept, text_content
from server.tasks import RELATED, accepted, client_of, ended, get, reached, start, update

TASKS = Group("Tasks")

NORMAL = fallback("a normal call")
NONE = refused(-32601)
UNABLE = fallback("`isError` result")


def workshop() -> Server:
    server = Server("workshop")
    server.state = asyncio.Event()

    @server.tool(task=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool(task="required")
    async def long(ctx: Context) -> str:
        await ctx.state.wait()
        return "done"

    @server.tool(task=True)
    async def fail() -> str:
        raise ToolError("no tea")

    @server.tool(task=True)
    async def confirm(ctx: Context) -> str:
        return "yes" if await ctx.elicit("Sure?", bool) else "no"

    @server.tool(task=True)
    async def count(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.state.wait()
        return "done"

    return server


@TASKS.feature("`@server.tool(task=True)`: the result of a task", *3 * [NORMAL], WORKS, WORKS)
async def result(revision: Revision) -> Verdict:
    async with client_of(workshop(), revision) as client:
        if revision.tasks is Tasks.NONE:
            assert text_content(await client.call("add", {"a": 1, "b": 2}, task={})) == "3"
            return NORMAL
        id = (await start(client, "add", {"a": 1, "b": 2}))["taskId"]
        state = await ended(client, id)
        assert state["status"] == "completed"
        if revision.tasks is Tasks.CORE:
            found = await client.ask("tasks/result", {"taskId": id})
        else:
            found = state["result"]
        assert text_content(found) == "3"
    return WORKS


@TASKS.feature(
    '`@server.tool(task="required")`, called without a task',
    *3 * [refused(-32600)],
    NONE,
    refused(-32021),
)
async def required(revision: Revision) -> Verdict:
    async with client_of(workshop(), revision, can={}) as client:
        return await refusal(client.call("long", {}))


@TASKS.feature(
    "`raise ToolError(...)` in a task",
    *3 * [fallback("`isError` result")],
    fallback("`failed`, with an `isError` result"),
    fallback("`completed`, with an `isError` result"),
)
async def tool_error(revision: Revision) -> Verdict:
    async with client_of(workshop(), revision) as client:
        if revision.tasks is Tasks.NONE:
            assert (await client.call("fail", {}))["isError"] is True
            return fallback("`isError` result")
        id = (await start(client, "fail"))["taskId"]
        state = await ended(client, id)
        if revision.tasks is Tasks.CORE:
            found = await client.ask("tasks/result", {"taskId": id})
        else:
            found = state["result"]
        assert found["isError"] is True
        return fallback(f"`{state['status']}`, with an `isError` result")


@TASKS.feature("elicitation in a task", UNABLE, UNABLE, NORMAL, WORKS, WORKS)
async def elicitation(revision: Revision) -> Verdict:
    async with client_of(workshop(), revision, answer=accept(value=True)) as client:
        if revision.tasks is Tasks.NONE:
            if not revision.elicitation.modes:
                return await failure(client.call("confirm", {}), "elicitation")
            assert text_content(await client.call("confirm", {})) == "yes"
            return NORMAL
        id = (await start(client, "confirm"))["taskId"]
        state = await reached(client, id, "input_required")
        if revision.tasks is Tasks.CORE:
            found = await client.ask("tasks/result", {"taskId": id})
        else:
            [key] = state["inputRequests"]
            await update(client, id, {key: accepted(value=True)})
            found = (await ended(client, id))["result"]
        assert text_content(found) == "yes"
    return WORKS


@TASKS.feature(
    "`ctx.progress` in a task",
    *3 * [NORMAL],
    WORKS,
    fallback("the status message"),
)
async def progress(revision: Revision) -> Verdict:
    server = workshop()
    async with client_of(server, revision) as client:
        token = {"progressToken": "p"}
        if revision.tasks is Tasks.NONE:
            server.state.set()
            await client.call("count", {}, _meta=token)
            assert client.notifications("notifications/progress")[0]["progress"] == 1
            return NORMAL
        id = (await start(client, "count", _meta=token))["taskId"]
        while (state := await get(client, id)).get("statusMessage") is None:
            await asyncio.sleep(0)
        assert state["statusMessage"] == "half"
        told = client.notifications("notifications/progress")
        if not told:
            return fallback("the status message")
        assert told[0]["_meta"][RELATED] == {"taskId": id}
    return WORKS


@TASKS.feature("`tasks/cancel`", *3 * [NONE], WORKS, WORKS)
async def cancel(revision: Revision) -> Verdict:
    async with client_of(workshop(), revision) as client:
        if revision.tasks is Tasks.NONE:
            return await refusal(client.ask("tasks/cancel", {"taskId": "x"}))
        id = (await start(client, "long"))["taskId"]
        await client.ask("tasks/cancel", {"taskId": id})
        assert (await get(client, id))["status"] == "cancelled"
    return WORKS


@TASKS.feature("`tasks/list`, on stdio or with authentication", *3 * [NONE], WORKS, NONE)
async def listing(revision: Revision) -> Verdict:
    async with client_of(workshop(), revision) as client:
        if revision.tasks is not Tasks.CORE:
            return await refusal(client.ask("tasks/list"))
        id = (await start(client, "long"))["taskId"]
        assert [one["taskId"] for one in (await client.ask("tasks/list"))["tasks"]] == [id]
    return WORKS


@TASKS.feature(
    "notifications of a task's status",
    *3 * [fallback("none")],
    WORKS,
    fallback("with a subscription"),
)
async def status(revision: Revision) -> Verdict:
    server = workshop()
    async with client_of(server, revision) as client:
        if revision.tasks is Tasks.NONE:
            await client.call("add", {"a": 1, "b": 2})
            assert not [one for one in client.received if "tasks" in one.get("method", "")]
            return fallback("none")
        id = (await start(client, "long"))["taskId"]
        if revision.tasks is Tasks.CORE:
            server.state.set()
            await client.until(lambda: client.notifications("notifications/tasks/status"))
            return WORKS
        client.send("subscriptions/listen", {"notifications": {"taskIds": [id]}})
        await client.until(lambda: client.notifications("notifications/subscriptions/acknowledged"))
        server.state.set()
        await client.until(lambda: client.notifications("notifications/tasks"))
    return fallback("with a subscription")
