"""Input requests in the middle of a handler, in every revision: what `tests/features` does not show.

The same tool waits for the response of a request, or runs again with the responses of a result.
Sampling is used, because every revision has it; the model repeats its prompt in brackets, so that a
response that reaches another request shows.
"""

import asyncio
import threading
from collections.abc import Generator
from typing import Annotated, Any

import pytest

from colonnade import BlockingContext, Context, Declined, Depends, Sample, Server, ToolError
from colonnade.protocol.revision import InputRequests, Revision
from live import live
from server.raw_client import EVERYTHING, JSON, Refusal, Rejected, raw_client


def model(method: str, params: JSON) -> JSON:
    """The client's model: it repeats what it was asked."""
    assert method == "sampling/createMessage"
    asked = params["messages"][-1]["content"]["text"]
    content = {"type": "text", "text": f"<{asked}>"}
    return {"role": "assistant", "content": content, "model": "parrot"}


async def word(ctx: Context, question: str) -> str:
    return (await ctx.sample(question)).text


class Counted:
    """What a tool did, in order, over all its runs."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def __call__(self, what: str) -> None:
        self.done.append(what)

    def times(self, what: str) -> int:
        return self.done.count(what)


def runs(revision: Revision, rounds: int) -> int:
    """How often a handler runs from the top that asks in so many rounds."""
    return 1 if revision.input_requests is InputRequests.AS_REQUEST else rounds + 1


@live
async def test_gathered_with_their_exceptions_they_are_questions_still(
    revision: Revision,
) -> None:
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> str:
        found = await asyncio.gather(word(ctx, "a"), word(ctx, "b"), return_exceptions=True)
        return " ".join(map(str, found))

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"


@live
async def test_several_in_one_round_by_ask(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> str:
        one, two = await ctx.ask(Sample("a"), Sample("b"))
        return f"{one.text} {two.text}"

    @server.tool
    def both_in_a_thread(ctx: BlockingContext) -> str:
        one, two = ctx.ask(Sample("a"), Sample("b"))
        return f"{one.text} {two.text}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"
        assert await client.text("both_in_a_thread") == "<a> <b>"
        assert client.rounds == (0 if revision.input_requests is InputRequests.AS_REQUEST else 2)


@live
async def test_a_question_under_except_exception(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def careful(ctx: Context) -> str:
        try:
            return await word(ctx, "a")
        except Exception:
            return "rubbish"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("careful") == "<a>"


@live
async def test_a_question_inside_a_finally_comes_after_the_first(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def last_word(ctx: Context) -> str:
        found: list[str] = []
        try:
            found.append(await word(ctx, "a"))
        finally:
            found.append(await word(ctx, "b"))
        return " ".join(found)

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("last_word") == "<a> <b>"
        assert client.rounds == (0 if revision.input_requests is InputRequests.AS_REQUEST else 2)


@live
async def test_an_effect_before_a_question_happens_once_with_once(revision: Revision) -> None:
    server, did = Server("s"), Counted()

    def pay() -> dict[str, int]:
        did("paid")
        return {"receipt": did.times("paid")}

    async def pay_later() -> int:
        await asyncio.sleep(0)
        did("paid later")
        return 7

    @server.tool
    async def order(ctx: Context) -> str:
        did("ran")
        receipt = await ctx.once("pay", pay)
        number, same = await asyncio.gather(ctx.once("n", pay_later), ctx.once("n", pay_later))
        first = await word(ctx, "a")
        second = await word(ctx, "b")
        return f"{receipt['receipt']} {number} {same} {first} {second}"

    @server.tool
    def order_in_a_thread(ctx: BlockingContext) -> str:
        receipt = ctx.once("pay", lambda: did("paid in a thread") or 1)
        return f"{receipt} {ctx.sample('a').text}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("order") == "1 7 7 <a> <b>"
        assert await client.text("order_in_a_thread") == "1 <a>"
    assert did.times("ran") == runs(revision, 2)
    assert [did.times(what) for what in ("paid", "paid later", "paid in a thread")] == [1, 1, 1]


@live
async def test_a_sync_tool_asks_in_its_thread_and_finally_runs(revision: Revision) -> None:
    server, did = Server("s"), Counted()
    here = threading.get_ident()

    @server.tool
    def both(ctx: BlockingContext) -> str:
        assert threading.get_ident() != here
        try:
            return f"{ctx.sample('a').text} {ctx.sample('b').text}"
        except Exception:
            return "rubbish"
        finally:
            did("finally")

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"
    assert did.times("finally") == runs(revision, 2)


@live
async def test_a_sync_tool_with_a_bare_except_is_overruled(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    def stubborn(ctx: Context) -> str:
        blocking: Any = ctx  # in a function that is not async, the context waits
        try:
            return blocking.sample("a").text
        except:  # noqa: E722
            return "rubbish"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("stubborn") == "<a>"


@live
async def test_a_sync_dependency_asks_and_is_cleaned_up(revision: Revision) -> None:
    server, did = Server("s"), Counted()

    def account(ctx: BlockingContext) -> Generator[str]:
        try:
            yield ctx.sample("account").text
        finally:
            did("closed")

    @server.tool
    def pay(name: Annotated[str, Depends(account)]) -> str:
        return name

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("pay") == "<account>"
    assert did.times("closed") == runs(revision, 1)


@live
async def test_a_sibling_at_work_is_stopped_with_its_question(revision: Revision) -> None:
    server, did = Server("s"), Counted()
    gate = asyncio.Event()

    async def sibling() -> None:
        did("sibling began")
        await gate.wait()
        did("sibling ended")

    def answer(method: str, params: JSON) -> JSON:
        if revision.input_requests is InputRequests.AS_REQUEST:
            gate.set()
        return model(method, params)

    @server.tool
    async def busy(ctx: Context) -> str:
        if did.times("sibling began"):
            gate.set()
        found, _ = await asyncio.gather(word(ctx, "a"), sibling())
        return found

    async with raw_client(server, revision, answer=answer) as client:
        assert await client.text("busy") == "<a>"
    assert did.times("sibling ended") == 1


@live
async def test_a_question_in_a_forgotten_task_is_asked(revision: Revision) -> None:
    server = Server("s")
    tasks: list[asyncio.Task[str]] = []

    @server.tool
    async def careless(ctx: Context) -> str:
        tasks.append(asyncio.get_running_loop().create_task(word(ctx, "a")))
        await asyncio.sleep(0)
        return "done"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("careless") == "done"
        assert client.asked
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                assert isinstance(task.exception(), Exception) or task.result() == "<a>"


@live
async def test_an_error_before_the_round_ends_is_the_outcome(revision: Revision) -> None:
    server = Server("s")

    async def fails() -> None:
        raise ToolError("no such flight")

    @server.tool
    async def both(ctx: Context) -> str:
        await asyncio.gather(word(ctx, "a"), fails())
        return "never"

    @server.tool
    async def grouped(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(word(ctx, "a"))
            group.create_task(fails())
        return "never"

    async with raw_client(server, revision, answer=lambda method, params: None) as client:
        assert await client.failure("both") == "no such flight"
        assert await client.failure("grouped") == "no such flight"


@live
async def test_a_caller_who_gives_up_while_being_asked_stops_the_handler(
    revision: Revision,
) -> None:
    server, did = Server("s"), Counted()
    begun, gone = asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow(ctx: Context) -> str:
        try:
            begun.set()
            if revision.input_requests is InputRequests.AS_REQUEST:
                await word(ctx, "a")
            await asyncio.Event().wait()
        finally:
            did("stopped")
            gone.set()
        return "never"

    async with raw_client(server, revision, answer=lambda method, params: None) as client:
        id = client.send("tools/call", {"name": "slow"})
        await begun.wait()
        await asyncio.sleep(0)
        client.notify("notifications/cancelled", {"requestId": id})
        async with asyncio.timeout(60):
            await gone.wait()
        assert not [one for one in client.received if one.get("id") == id and "method" not in one]


@live
async def test_a_model_that_is_not_offered_is_told_in_each_way(revision: Revision) -> None:
    """D10."""
    server = Server("s")

    @server.tool
    async def needs(ctx: Context) -> str:
        return await word(ctx, "a")

    @server.prompt
    async def prompt_needs(ctx: Context) -> str:
        return await word(ctx, "a")

    async with raw_client(server, revision, can={}) as client:
        if revision.input_requests is InputRequests.AS_REQUEST:
            assert "this needs sampling" in await client.failure("needs")
            with pytest.raises(Rejected) as caught:
                await client.ask("prompts/get", {"name": "prompt_needs"})
            assert caught.value.code == -32603
        else:
            with pytest.raises(Rejected) as caught:
                await client.call("needs")
            assert caught.value.code == -32021
            assert caught.value.data == {"requiredCapabilities": {"sampling": {}}}


@live
async def test_a_client_that_answers_with_an_error_ends_the_call_with_its_words(
    revision: Revision,
) -> None:
    if revision.input_requests is not InputRequests.AS_REQUEST:
        return  # answers by result have no errors
    server = Server("s")

    @server.tool
    async def needs(ctx: Context) -> str:
        try:
            return await word(ctx, "a")
        except Declined:
            return "declined"

    def answer(method: str, params: JSON) -> JSON:
        raise Refusal(refusals.pop(), "no")

    async with raw_client(server, revision, answer=answer) as client:
        refusals = [-32603, -1]
        assert await client.text("needs") == "declined"
        assert "the client returned an error" in await client.failure("needs")


@live
async def test_roots_are_asked_in_every_revision(revision: Revision) -> None:
    server = Server("s")

    @server.tool
    async def folders(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.roots())

    @server.tool
    def folders_in_a_thread(ctx: BlockingContext) -> str:
        return " ".join(root.uri for root in ctx.roots())

    def answer(method: str, params: JSON) -> JSON:
        assert method == "roots/list"
        return {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}

    async with raw_client(server, revision, can=EVERYTHING, answer=answer) as client:
        assert await client.text("folders") == "file:///a file:///b"
        assert await client.text("folders_in_a_thread") == "file:///a file:///b"
