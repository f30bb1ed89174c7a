"""What a server sends on the stream of a call belongs to that call: input requests and log messages
of servers over HTTP, with several calls and several callers in one session."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from colonnade import Context, Gateway, Host, Server, connect
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.protocol import types as t
from gateway.rounds import Desk, Rounds, answered, can_elicit, text
from gateway.served import by_header, served
from live import live, until

OLD, NEW = "2025-11-25", "2026-07-28"


@live
async def test_a_question_is_put_on_the_call_on_whose_stream_it_came() -> None:
    desk = Desk()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(desk.server))
        entry = entry_of("s", url, Settings(revision=OLD))
        host = await stack.enter_async_context(Host({"s": entry}))
        options: dict[str, Any] = {"on_elicit": can_elicit()._on_elicit, "revision": NEW}
        client = await stack.enter_async_context(connect(Gateway(host), **options))
        rounds = Rounds(client)
        first = asyncio.ensure_future(rounds.begin("later", who="Ada"))
        await until(lambda: desk.begun == ["Ada"])
        second = asyncio.ensure_future(rounds.begin("later", who="Bob"))
        await until(lambda: desk.begun == ["Ada", "Bob"])
        assert host.status()[0].sessions == 1
        for who, call in (("Ada", first), ("Bob", second)):
            desk.go[who].set()
            asked = await call
            responses = answered(asked, lambda message: message)
            (response,) = responses.values()
            assert list(response["content"].values()) == [f"Which seat for {who}?"]
            result = await rounds.send("later", {"who": who}, asked.request_state, responses)
            assert text(result) == f"{who}: Which seat for {who}?"


@live
async def test_a_question_is_asked_of_the_client_of_its_call() -> None:
    """Two clients of one principal that were connected with a handshake: each has a session of its
    own, and each of its calls a stream."""
    desk, asked = Desk(), list[str]()

    def answer(params: t.ElicitRequestParams) -> Any:
        asked.append(params.message)
        return params.message[-4:-1]

    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(desk.server))
        entry = entry_of("s", url, Settings(revision=OLD))
        host = await stack.enter_async_context(Host({"s": entry}))
        client = await stack.enter_async_context(
            connect(Gateway(host), on_elicit=answer, revision=OLD)
        )
        names = ["Ada", "Bob", "Eve"]
        calls = [asyncio.ensure_future(client.call_tool("s__later", {"who": n})) for n in names]
        await until(lambda: sorted(desk.begun) == names)
        for name, call in zip(names, calls, strict=True):
            desk.go[name].set()
            assert (await call).text == f"{name}: {name}"
        assert asked == [f"Which seat for {name}?" for name in names]


class Chatter:
    """A server that logs what it was called with, when the test lets it."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = asyncio.Event()
        self.server = Server("chatter")
        self.server.tool(self.chatter)

    async def chatter(self, who: str, ctx: Context) -> str:
        self.begun.append(who)
        await self.go.wait()
        for level in ("debug", "info"):
            await ctx.log(level, {"said by": who})
        return who


@pytest.mark.parametrize("downstream", [OLD, NEW])
@pytest.mark.parametrize(("upstream", "sharing"), [(OLD, "shared"), (NEW, "caller")])
@live
async def test_log_messages_of_a_shared_session_reach_the_caller_of_their_call(
    upstream: str, sharing: Any, downstream: str
) -> None:
    chatter, names = Chatter(), ["ann", "bob", "eve"]
    heard: dict[str, list[Any]] = {name: [] for name in names}
    async with AsyncExitStack() as stack:
        target = await stack.enter_async_context(served(chatter.server))
        entry = entry_of("s", target, Settings(revision=upstream, sharing=sharing))
        host = await stack.enter_async_context(Host({"s": entry}))
        url = await stack.enter_async_context(served(Gateway(host), verify=by_header))
        calls: list[asyncio.Future[Any]] = []
        for name in names:

            def on_log(
                message: t.LoggingMessageNotificationParams, own: list[Any] = heard[name]
            ) -> None:
                own.append((message.level, message.data))

            target_of = {"url": url, "headers": {"x-user": name}}
            client = await stack.enter_async_context(
                connect(target_of, revision=downstream, on_log=on_log)
            )
            await client.set_log_level("info" if name == "eve" else "debug")
            calls.append(asyncio.ensure_future(client.call_tool("s__chatter", {"who": name})))
        await until(lambda: sorted(chatter.begun) == names)
        assert host.status()[0].sessions == 1
        chatter.go.set()
        await asyncio.gather(*calls)
        both = [("debug", {"said by": "ann"}), ("info", {"said by": "ann"})]
        await until(lambda: sum(map(len, heard.values())) == 5)
    assert heard["ann"] == both
    assert heard["bob"] == [(level, {"said by": "bob"}) for level in ("debug", "info")]
    assert heard["eve"] == [("info", {"said by": "eve"})]
