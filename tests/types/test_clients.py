"""What a type checker makes of a client and of its blocking twin, and that it is so when run.

Rules: every method stands here once in each of the two; each value is also looked at.
"""

from dataclasses import dataclass
from typing import Any, assert_type

from client.shop import shop
from colonnade import Client, ClientTask, TaskEnded, connect
from colonnade.client.client import Completer
from colonnade.client.connect import PendingClient
from colonnade.client.results import ToolResult
from colonnade.client.subscriptions import Change, ChangeStream
from colonnade.client.tools import ListedTool
from colonnade.protocol import types as t
from colonnade.protocol.revision import Revision
from colonnade.protocol.tasks.client import TaskState
from colonnade.sync import Changes, SyncClient, SyncCompleter, SyncTask
from colonnade.sync import connect as connect_and_wait
from live import live

# What models ask for.
CALL = {"id": "c1", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
USE = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1, "b": 2}}


@dataclass
class Place:
    cwd: str
    word: str


@live
async def test_a_client_has_the_types_that_it_says(revision: Revision) -> None:
    connecting = connect(shop(), revision=revision.date, roots=[])
    assert_type(connecting, PendingClient)
    async with connecting as client:
        assert_type(client, Client)
        assert_type(client.revision, str)
        assert_type(client.name, str)
        assert_type(client.server, t.Implementation | None)
        assert_type(client.capabilities, t.ServerCapabilities)
        assert_type(client.instructions, str | None)
        assert_type(await client.list_tools(), list[ListedTool])
        assert_type(await client.list_resources(), list[t.Resource])
        assert_type(await client.list_resource_templates(), list[t.ResourceTemplate])
        assert_type(await client.list_prompts(), list[t.Prompt])
        plain = await client.call_tool("add", {"a": 1, "b": 2})
        assert_type(plain, ToolResult[Any])
        assert_type(plain.text, str)
        assert_type(plain.is_error, bool)
        typed = await client.call_tool("where", returns=Place)
        assert_type(typed, ToolResult[Place])
        assert_type(typed.data, Place)
        assert isinstance(typed.data, Place)
        assert_type(await client.call_openai(CALL), ToolResult[Any])
        assert_type(await client.call_anthropic(USE), ToolResult[Any])
        assert_type(plain.to_openai("c1"), dict[str, Any])
        assert_type(plain.to_anthropic("c1"), dict[str, Any])
        assert_type(await client.read_resource("shop://hat"), t.ReadResourceResult)
        assert_type(await client.get_prompt("haggle", {"price": "1"}), t.GetPromptResult)
        assert_type(await client.complete("mood", prompt="haggle"), t.Completion)
        assert_type(client.completer("mood", prompt="haggle"), Completer)
        assert_type(await client.ping(), None)
        assert_type(await client.roots_changed([]), None)
        async with client.listen(tools=True) as changes:
            assert_type(changes, ChangeStream)
        assert_type(await client.close(), None)
    waited = await connect(shop())
    assert_type(waited, Client)
    async with waited as same:
        assert_type(same, Client)
        assert same is waited


def test_the_one_that_waits_has_the_same(revision: Revision) -> None:
    with connect_and_wait(shop(), revision=revision.date, roots=[]) as client:
        assert_type(client, SyncClient)
        assert_type(client.list_tools(), list[ListedTool])
        typed = client.call_tool("where", returns=Place)
        assert_type(typed, ToolResult[Place])
        assert isinstance(typed.data, Place)
        assert_type(client.call_openai(CALL), ToolResult[Any])
        assert_type(client.call_anthropic(USE), ToolResult[Any])
        assert_type(client.call_tool("where"), ToolResult[Any])
        assert_type(client.read_resource("shop://hat"), t.ReadResourceResult)
        assert_type(client.get_prompt("haggle", {"price": "1"}), t.GetPromptResult)
        completer = client.completer("mood", prompt="haggle")
        assert_type(completer, SyncCompleter)
        found = completer("k")
        assert_type(found, t.Completion | None)
        assert found is not None
        assert_type(client.roots_changed([]), None)
        with client.listen(tools=True) as changes:
            assert_type(changes, Changes)
            assert_type(iter(changes), Changes)
    assert Change("tools").uri is None


@live
async def test_a_task_has_the_types_that_it_says(revision: Revision) -> None:
    async with connect(shop(), revision=revision.date) as client:
        task = await client.start_task("add", {"a": 1, "b": 2})
        assert_type(task, ClientTask)
        assert_type(task.handle, str | None)
        assert_type(task.state, TaskState | None)
        assert_type(task.status, t.TaskStatus | None)
        assert_type(task.done, bool)
        assert_type([state async for state in task], list[TaskState])
        assert_type(await task.result(), ToolResult[Any])
        assert_type(await task.result(returns=int), ToolResult[int])
        assert_type(await task.refresh(), TaskState | None)
    assert TaskEnded("gone", reason="unknown").reason == "unknown"


def test_a_blocking_task_has_the_same_types(revision: Revision) -> None:
    with connect_and_wait(shop(), revision=revision.date) as client:
        task = client.start_task("add", {"a": 1, "b": 2})
        assert_type(task, SyncTask)
        assert_type(list(task), list[TaskState])
        assert_type(task.result(returns=int), ToolResult[int])
        assert_type(task.refresh(), TaskState | None)
