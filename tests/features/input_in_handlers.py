"""Input requests in handlers of every form: the same code as a request or an `input_required` result.

Sampling is used here, because every revision has it; the response is the prompt in brackets, so that
a response to another request is noticed. Elicitation is in `input_requests`.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Annotated

from colonnade import BlockingContext, Context, Depends, Sample, Server
from colonnade.protocol.revision import InputRequests, Revision
from features.feature import JSON, WORKS, Group, Verdict, fallback, refused, tried
from server.raw_client import Client, Rejected, raw_client, text_content

QUESTIONS = Group("Input requests in a handler")


def model(method: str, params: JSON) -> JSON:
    """The client's model: it repeats the prompt."""
    assert method == "sampling/createMessage"
    content = {"type": "text", "text": f"<{params['messages'][-1]['content']['text']}>"}
    return {"role": "assistant", "content": content, "model": "parrot"}


async def word(ctx: Context, question: str) -> str:
    return (await ctx.sample(question)).text


def runs(revision: Revision, rounds: int) -> int:
    """How often a handler with so many rounds runs from the beginning."""
    return 1 if revision.input_requests is InputRequests.AS_REQUEST else rounds + 1


def rounds(client: Client, asked: int) -> int:
    """How many rounds so many input requests take, in revisions with rounds."""
    return client.rounds if client.revision.input_requests is InputRequests.IN_RESULT else asked


@QUESTIONS.feature("two in a row", WORKS)
async def two_in_a_row(revision: Revision) -> Verdict:
    server, ran = Server("s"), list[int]()

    @server.tool
    async def both(ctx: Context) -> str:
        ran.append(1)
        first = await word(ctx, "first")
        return f"{first} {await word(ctx, f'second after {first}')}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<first> <second after <first>>"
        assert rounds(client, 2) == len(client.asked) == 2
    assert len(ran) == runs(revision, 2)
    return WORKS


@QUESTIONS.feature("a conditional one", WORKS)
async def conditional(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def perhaps(ctx: Context, more: bool) -> str:
        first = await word(ctx, "first")
        return f"{first} {await word(ctx, 'more')}" if more else first

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("perhaps", {"more": False}) == "<first>"
        assert len(client.asked) == 1
        assert await client.text("perhaps", {"more": True}) == "<first> <more>"
        assert len(client.asked) == 3
    return WORKS


@QUESTIONS.feature("in a dependency, with clean-up in each round", WORKS)
async def in_a_dependency(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()

    async def account(ctx: Context) -> AsyncGenerator[str]:
        did.append("open")
        try:
            yield await word(ctx, "account")
        finally:
            did.append("close")

    @server.tool
    async def pay(name: Annotated[str, Depends(account)], ctx: Context) -> str:
        return f"{name} {await word(ctx, 'amount')}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("pay") == "<account> <amount>"
    assert did == ["open", "close"] * runs(revision, 2)
    return WORKS


@QUESTIONS.feature("declared: `Annotated[str, Sample(...)]`, not in the input schema", WORKS)
async def declared(revision: Revision) -> Verdict:
    server, ran = Server("s"), list[str]()

    @server.tool
    async def sum_up(text: str, short: Annotated[str, Sample("Sum up: {text}")]) -> str:
        ran.append(text)
        return short

    async with raw_client(server, revision, answer=model) as client:
        (tool,) = (await client.ask("tools/list"))["tools"]
        assert list(tool["inputSchema"]["properties"]) == ["text"]
        assert await client.text("sum_up", {"text": "abc"}) == "<Sum up: abc>"
    assert ran == ["abc"]
    return WORKS


@QUESTIONS.feature("gathered: one round", WORKS)
async def gathered(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> str:
        return " ".join(await asyncio.gather(word(ctx, "a"), word(ctx, "b")))

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"
        assert rounds(client, 1) == 1
    return WORKS


@QUESTIONS.feature("several at once (`ctx.ask`): one round", WORKS)
async def at_once(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> str:
        one, two = await ctx.ask(Sample("a"), Sample("b"))
        return f"{one.text} {two.text}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"
        assert rounds(client, 1) == 1
    return WORKS


@QUESTIONS.feature("inside a `TaskGroup`: one round", WORKS)
async def in_a_task_group(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def both(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            a = group.create_task(word(ctx, "a"))
            b = group.create_task(word(ctx, "b"))
        return f"{a.result()} {b.result()}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"
        assert rounds(client, 1) == 1
    return WORKS


@QUESTIONS.feature("under a bare `except:`", WORKS)
async def under_a_bare_except(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def stubborn(ctx: Context) -> str:
        try:
            return await word(ctx, "a")
        except:  # noqa: E722
            return "rubbish"

    @server.tool
    def stubborn_in_a_thread(ctx: BlockingContext) -> str:
        try:
            return ctx.sample("a").text
        except:  # noqa: E722
            return "rubbish"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("stubborn") == "<a>"
        assert await client.text("stubborn_in_a_thread") == "<a>"
    return WORKS


@QUESTIONS.feature("with a `finally` that awaits", WORKS)
async def awaiting_finally(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()

    @server.tool
    async def tidy(ctx: Context) -> str:
        try:
            return await word(ctx, "a")
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            did.append("tidied")

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("tidy") == "<a>"
    assert did == ["tidied"] * runs(revision, 1)
    return WORKS


@QUESTIONS.feature("a replay that takes another branch gets no response to another request", WORKS)
async def another_branch(revision: Revision) -> Verdict:
    server = Server("s")
    targets = iter("ABBBBBB")

    @server.tool
    async def delete(ctx: Context) -> str:
        target = next(targets)
        return f"{target} {await word(ctx, f'delete {target}?')}"

    @server.tool
    async def delete_by_name(ctx: Context) -> str:
        target = next(targets)
        sure = await ctx.sample(f"delete {target}?", key="sure")
        return f"{target} {sure.text}"

    async with raw_client(server, revision, answer=model) as client:
        for tool in ("delete", "delete_by_name"):
            found = await client.text(tool)
            assert found == f"{found[0]} <delete {found[0]}?>"
    return WORKS


@QUESTIONS.feature("a side effect before the request runs once (`ctx.once`)", WORKS)
async def effect_before(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()

    @server.tool
    async def order(ctx: Context) -> str:
        receipt = await ctx.once("pay", lambda: did.append("paid") or len(did))
        return f"{receipt} {await word(ctx, 'a')} {await word(ctx, 'b')}"

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("order") == "1 <a> <b>"
    assert did == ["paid"]
    return WORKS


@QUESTIONS.feature(
    "a side effect before the request, without `ctx.once`", *4 * [WORKS], fallback("runs again")
)
async def bare_effect_before(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()

    @server.tool
    async def order(ctx: Context) -> str:
        did.append("paid")
        return await word(ctx, "a")

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("order") == "<a>"
    if len(did) == 1:
        return WORKS
    assert len(did) == 2
    return fallback("runs again")


@QUESTIONS.feature("a sync tool, in its thread", WORKS)
async def sync_tool(revision: Revision) -> Verdict:
    server, did = Server("s"), list[str]()
    here = threading.get_ident()

    @server.tool
    def both(ctx: BlockingContext) -> str:
        assert threading.get_ident() != here
        try:
            return f"{ctx.sample('a').text} {ctx.sample('b').text}"
        except Exception:
            return "rubbish"
        finally:
            did.append("finally")

    async with raw_client(server, revision, answer=model) as client:
        assert await client.text("both") == "<a> <b>"
    assert did == ["finally"] * runs(revision, 2)
    return WORKS


@QUESTIONS.feature("in a prompt and in a resource", WORKS)
async def elsewhere(revision: Revision) -> Verdict:
    server = Server("s")

    @server.prompt
    async def poem(ctx: Context) -> str:
        return await word(ctx, "a poem")

    @server.resource("poems://{name}")
    async def kept(name: str, ctx: Context) -> str:
        return await word(ctx, name)

    async with raw_client(server, revision, answer=model) as client:
        result = await client.ask("prompts/get", {"name": "poem"})
        assert result["messages"][0]["content"]["text"] == "<a poem>"
        assert (await client.read("poems://x"))[0]["text"] == "<x>"
    return WORKS


@QUESTIONS.feature(
    "cancellation during an input request", *4 * [WORKS], fallback("no call is pending")
)
async def given_up(revision: Revision) -> Verdict:
    server, stopped = Server("s"), asyncio.Event()

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            return await word(ctx, "a")
        finally:
            stopped.set()

    async with raw_client(server, revision, answer=lambda method, params: None) as client:
        id = client.send("tools/call", {"name": "ask"})
        await client.until(lambda: client.asked or id in [one.get("id") for one in client.received])
        if not client.asked:
            # The result was `input_required`: call and handler have ended.
            assert (await client.outcome(id))["resultType"] == "input_required"
            assert stopped.is_set()
            return fallback("no call is pending")
        client.notify("notifications/cancelled", {"requestId": id})
        async with asyncio.timeout(60):
            await stopped.wait()
        # The server cancels its own request, too.
        await client.until(lambda: client.notifications("notifications/cancelled"))
        assert not [one for one in client.received if one.get("id") == id and "method" not in one]
    return WORKS


@QUESTIONS.feature(
    "client without the capability", *4 * [fallback("`isError` result")], refused(-32021)
)
async def no_capability(revision: Revision) -> Verdict:
    server = Server("s")

    @server.tool
    async def needs(ctx: Context) -> str:
        return await word(ctx, "a")

    async with raw_client(server, revision, can={}) as client:
        result = await tried(client.call("needs"))
    if isinstance(result, Rejected):
        assert result.data == {"requiredCapabilities": {"sampling": {}}}
        return refused(result.code)
    assert result["isError"] is True
    assert "which the client does not support" in text_content(result)
    return fallback("`isError` result")
