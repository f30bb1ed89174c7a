"""The two generations of tasks side by side: what a client declares for one means nothing in the
other."""

import json
import subprocess
import sys
from typing import Any

import pytest

from colonnade import Server
from colonnade.protocol.revision import JULY_2026, NOVEMBER_2025
from live import live
from server.raw_client import Rejected, raw_client, text_content
from server.tasks import DECLARED, EXTENSION, client_of, start

CORE_TASKS = {"tasks": {"list": {}, "cancel": {}, "requests": {"elicitation": {"create": {}}}}}


def adder() -> Server:
    server = Server("adder")

    @server.tool(task=True)
    def add(a: int, b: int) -> int:
        return a + b

    return server


@pytest.mark.spec("T01")
@live
async def test_the_extension_in_an_initialize_enables_nothing() -> None:
    async with raw_client(adder(), NOVEMBER_2025, can=DECLARED) as client:
        assert "extensions" not in client.received[0]["result"]["capabilities"]
        assert text_content(await client.call("add", {"a": 1, "b": 2})) == "3"
        created = (await client.call("add", {"a": 1, "b": 2}, task={}))["task"]
        with pytest.raises(Rejected) as caught:
            await client.ask("tasks/update", {"taskId": created["taskId"], "inputResponses": {}})
        assert caught.value.code == -32601


@pytest.mark.spec("T02")
@live
async def test_the_capability_of_core_is_no_declaration_of_the_extension() -> None:
    async with raw_client(adder(), JULY_2026, can=CORE_TASKS) as client:
        assert text_content(await client.call("add", {"a": 1, "b": 2}, task={})) == "3"
        with pytest.raises(Rejected) as caught:
            await client.ask("tasks/get", {"taskId": "x"})
        assert caught.value.code == -32021


@pytest.mark.spec("T03")
@live
async def test_tasks_result_is_an_unknown_method_beside_the_extension() -> None:
    async with client_of(adder()) as client:
        id = (await start(client, "add", {"a": 1, "b": 2}))["taskId"]
        with pytest.raises(Rejected) as caught:
            await client.ask("tasks/result", {"taskId": id})
        assert caught.value.code == -32601


@pytest.mark.spec("T04")
@live
async def test_task_in_params_decides_nothing_beside_the_extension() -> None:
    async with client_of(adder()) as client:
        created = await client.call("add", {"a": 1, "b": 2}, task={"ttl": 60_000})
        assert created["resultType"] == "task"
        assert created["ttlMs"] is None
    async with raw_client(adder(), JULY_2026, can={}) as client:
        assert text_content(await client.call("add", {"a": 1, "b": 2}, task={"ttl": 60_000})) == "3"


@pytest.mark.spec("T05")
@live
async def test_each_revision_is_told_of_its_own_generation() -> None:
    async with client_of(adder()) as client:
        capabilities = (await client.ask("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {EXTENSION: {}}
        assert "tasks" not in capabilities


def test_a_server_without_tasks_loads_nothing_of_them() -> None:
    program = """
import asyncio, sys
from colonnade import Server
from colonnade.testing import connect
server = Server("s")
server.tool(name="plain")(lambda: "x")
async def main():
    async with connect(server) as client:
        assert (await client.call_tool("plain")).text == "x"
asyncio.run(main())
print([name for name in sys.modules if name.startswith("colonnade.server.tasks")])
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


PROGRAM = """
from colonnade import Server
server = Server("s")
@server.tool(task=True)
async def add(a: int, b: int) -> int:
    return a + b
server.run()
"""


def test_on_stdio_tasks_work_as_everywhere_and_are_listed() -> None:
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        print(json.dumps(message), file=process.stdin, flush=True)
        while (said := json.loads(process.stdout.readline())).get("id") != id:
            pass
        return said["result"]

    with process:
        opened = ask(1, "initialize", hello)
        assert opened["capabilities"]["tasks"]["list"] == {}
        call = {"name": "add", "arguments": {"a": 1, "b": 2}, "task": {}}
        id = ask(2, "tools/call", call)["task"]["taskId"]
        assert text_content(ask(3, "tasks/result", {"taskId": id})) == "3"
        assert [one["taskId"] for one in ask(4, "tasks/list", {})["tasks"]] == [id]
        process.stdin.close()
        assert process.wait(60) == 0
