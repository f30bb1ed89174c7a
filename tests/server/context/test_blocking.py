"""The context of functions that are not async: the same names, and a thread that is let go."""

import asyncio
import inspect
import threading

from colonnade import BlockingContext, Context, Server
from colonnade.protocol.revision import InputRequests, Revision
from colonnade.server.context.blocking import CallEnded
from live import live
from server.raw_client import raw_client


def test_both_contexts_have_the_same_names() -> None:
    own = {
        "current_request",
        "raise_url_elicitation",
        "request_input",
        "resolve_inputs",
        "saved_result",
        "save_result",
        "keep_result",
        "rounds",
        "close",
        "deadline",
    }
    names = {name for name in vars(Context) if not name.startswith("_")} - own
    assert names == {name for name in vars(BlockingContext) if not name.startswith("_")} - {
        "close",
        "wait",
    }
    for name in names:
        ours, theirs = vars(Context)[name], vars(BlockingContext)[name]
        if inspect.isfunction(ours):
            assert list(inspect.signature(ours).parameters) == list(
                inspect.signature(theirs).parameters
            ), name


@live
async def test_everything_is_there_and_waits(revision: Revision) -> None:
    server = Server("s")
    server.resource("a://b")(lambda: "read")

    @server.tool
    def everything(ctx: BlockingContext) -> str:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert"):
            getattr(ctx, level)(level)
        ctx.emergency("emergency")
        ctx.progress(1, 2, "half")
        ctx.hang_up()
        read = ctx.read("a://b").contents[0].text
        said = (ctx.principal, ctx.revision, ctx.state, ctx.session is not None)
        client = ctx.client.name if ctx.client is not None else None
        return f"{read} {said} {client} {ctx.capabilities.roots is not None}"

    async with raw_client(server, revision, meta={"progressToken": 1}) as client:
        known = "client" if revision.handshake else None
        said = ("", revision.date, None, revision.handshake)
        assert await client.text("everything") == f"read {said} {known} True"
        levels = [one["level"] for one in client.notifications("notifications/message")]
        assert len(levels) == (7 if revision.handshake else 0)
        assert len(client.notifications("notifications/progress")) == 1


@live
async def test_a_thread_whose_caller_gave_up_is_let_go_at_its_next_word(
    revision: Revision,
) -> None:
    server = Server("s")
    begun, gate, unwound = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    @server.tool
    def slow(ctx: BlockingContext) -> str:
        loop.call_soon_threadsafe(begun.set)
        try:
            assert gate.wait(60)
            ctx.info("are you there?")
        except CallEnded:
            unwound.append("unwound")
            raise
        finally:
            loop.call_soon_threadsafe(over.set)
        return "never"

    async with raw_client(server, revision) as client:
        id = client.send("tools/call", {"name": "slow"})
        await begun.wait()
        client.notify("notifications/cancelled", {"requestId": id})
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        async with asyncio.timeout(60):
            await over.wait()
    assert unwound == ["unwound"]


@live
async def test_a_thread_that_waits_for_an_answer_is_let_go_with_its_call(
    revision: Revision,
) -> None:
    if revision.input_requests is not InputRequests.AS_REQUEST:
        return  # there nobody waits
    server = Server("s")
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    @server.tool(timeout_s=60)
    def ask(ctx: BlockingContext) -> str:
        try:
            ctx.roots()
        finally:
            loop.call_soon_threadsafe(over.set)
        return "never"

    async with raw_client(server, revision, answer=lambda method, params: None) as client:
        id = client.send("tools/call", {"name": "ask"})
        await client.until(lambda: client.asked)
        client.notify("notifications/cancelled", {"requestId": id})
        async with asyncio.timeout(60):
            await over.wait()


@live
async def test_many_threads_that_wait_for_answers_do_not_use_up_the_others(
    revision: Revision,
) -> None:
    if revision.input_requests is not InputRequests.AS_REQUEST:
        return
    server = Server("s")

    @server.tool
    def ask(ctx: BlockingContext) -> int:
        return len(ctx.roots())

    @server.tool
    def quick() -> str:
        return "quick"

    async with raw_client(server, revision, answer=lambda method, params: None) as client:
        ids = [client.send("tools/call", {"name": "ask"}) for _ in range(20)]
        await client.until(lambda: len(client.asked) == 20)
        assert await client.text("quick") == "quick"
        for one in [one for one in client.received if one.get("method") == "roots/list"]:
            client.send_raw({"jsonrpc": "2.0", "id": one["id"], "result": {"roots": []}})
        for id in ids:
            assert (await client.outcome(id))["content"][0]["text"] == "0"


@live
async def test_a_time_out_answers_while_the_thread_goes_on(revision: Revision) -> None:
    server = Server("s")
    gate, begun, done = threading.Event(), threading.Event(), threading.Event()

    @server.tool(timeout_s=0.1)
    def slow() -> str:
        begun.set()
        assert gate.wait(60)
        done.set()
        return "late"

    async with raw_client(server, revision) as client:
        while not begun.is_set():  # a call that no thread has begun by then is never begun
            assert "did not finish within" in await client.failure("slow")
        gate.set()
        assert await asyncio.to_thread(done.wait, 60)
