"""What a server asks is decided by the call that it belongs to: of a task as well, and by the
strictest rule if it may belong to several."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from colonnade import Context, Host, HostInputRequest, Server
from colonnade.errors import RemoteError, ToolError
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import Settings
from colonnade.host.policy.rules.rules import Policy, Rule
from host.audited import lines, opened
from live import live


class Asking:
    """A server whose tools ask, and the events of a test."""

    def __init__(self) -> None:
        self.server = server = Server("asking")
        self.first_runs = asyncio.Event()
        self.second_runs = asyncio.Event()
        self.first_ended = asyncio.Event()

        @server.tool(task="required")
        async def slow(ctx: Context) -> str:
            return str(await ctx.elicit("Password?", str))

        @server.tool(task="required")
        async def endless() -> str:
            await asyncio.Event().wait()
            return "never"

        @server.tool
        async def first(ctx: Context) -> str:
            self.first_runs.set()
            await self.second_runs.wait()
            try:
                return str(await ctx.elicit("Password?", str))
            finally:
                self.first_ended.set()

        @server.tool
        async def second() -> str:
            self.second_runs.set()
            await self.first_ended.wait()
            return "done"

        _ = slow, endless, first, second


def hosted(revision: str, asking: Asking, asked: list[Any], **options: Any) -> Host:
    async def answer(request: HostInputRequest) -> object:
        asked.append(request)
        return "secret"

    entry = entry_of("n", asking.server, Settings(revision=revision))
    return Host({"n": entry}, on_input_request=answer, **options)


def denying(tools: str) -> Policy:
    return Policy([Rule("deny", requests="elicitation", tools=tools), Rule("allow")])


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("denied", [True, False])
@live
async def test_what_a_task_asks_is_decided_as_what_its_tool_asks(
    revision: str, denied: bool
) -> None:
    asked: list[Any] = []
    rules = denying("n__slow" if denied else "n__other")
    async with hosted(revision, Asking(), asked, policy=rules) as host:
        task = await host.start_task("n__slow")
        try:
            text = (await task.result()).text
        except (ToolError, RemoteError):
            text = ""
    assert len(asked) == (0 if denied else 1)
    assert ("secret" in text) is not denied


@pytest.mark.parametrize("denied", ["n__first", "n__second"])
@live
async def test_what_may_belong_to_two_calls_is_denied_if_it_is_denied_for_one(denied: str) -> None:
    asked: list[Any] = []
    asking = Asking()
    async with hosted("2025-06-18", asking, asked, policy=denying(denied)) as host:
        first = asyncio.ensure_future(host.call_tool("n__first"))
        await asking.first_runs.wait()
        second = asyncio.ensure_future(host.call_tool("n__second"))
        results = await asyncio.gather(first, second, return_exceptions=True)
    assert asked == []
    assert "secret" not in str(results)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
@live
async def test_a_task_that_is_cancelled_is_recorded(tmp_path: Path, revision: str) -> None:
    async with hosted(revision, Asking(), [], audit=opened(tmp_path)) as host:
        task = await host.start_task("n__endless")
        await task.refresh()
        await task.cancel()
    found = [json.loads(line) for line in lines(tmp_path)]
    events = [one["event"] for one in found if one.get("method") == "tasks/cancel"]
    assert events == ["proposed", "executed", "returned"]
    assert {one["name"] for one in found if "method" in one} == {"endless"}
