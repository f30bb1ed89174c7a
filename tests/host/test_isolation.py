"""No server sees anything of another: not its name, its environment, its token, its results."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from colonnade import Host, HostInputRequest, RemoteError, Server
from colonnade.host.config.inline import entry_of
from colonnade.host.config.settings import ServerEntry, Settings
from colonnade.protocol import types as t
from colonnade.transport.http_server.runner import HttpRunner
from host.secretive import secretive
from live import live, live_for

TESTS = Path(__file__).resolve().parents[1]
HERE = TESTS / "support/host"
OLD, NEW = "2025-06-18", "2026-07-28"
# By key: its revision, and whether it is a process or at a URL.
SERVERS = {
    "alder": (OLD, "process"),
    "birch": (NEW, "process"),
    "cedar": (OLD, "url"),
    "dogwood": (NEW, "url"),
}


def secret_of(key: str) -> str:
    return f"canary-of-{key[::-1]}-4711"


class Overheard:
    """An application, and all that it is sent."""

    def __init__(self, app: Any, record: Path) -> None:
        self._app = app
        self._record = record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    def note(self, seen: bytes) -> None:
        with self._record.open("ab") as file:
            file.write(seen + b"\n")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def heard() -> Any:
            event = await receive()
            self.note(event.get("body", b""))
            return event

        self.note(repr(scope).encode())
        await self._app(scope, heard, send)


@asynccontextmanager
async def overheard(key: str, record: Path) -> AsyncGenerator[str]:
    """A server at a URL, and all that it is sent."""
    app: Any = Overheard(secretive(key, secret_of(key)).asgi(), record)
    site = HttpRunner(app, port=0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site.port}/mcp"
    finally:
        await site.stop(0.0)


async def entry(key: str, record: Path, stack: AsyncExitStack) -> ServerEntry:
    revision, kind = SERVERS[key]
    target: dict[str, Any]
    if kind == "process":
        command = [str(HERE / "relay.py"), str(record), sys.executable, str(HERE / "secretive.py")]
        env = {"CANARY": secret_of(key)}
        target = {"command": sys.executable, "args": [*command, key], "env": env}
    else:
        url = await stack.enter_async_context(overheard(key, record))
        target = {"url": url, "headers": {"Authorization": f"Bearer {secret_of(key)}"}}
    return entry_of(key, target, Settings(revision=revision))


async def everything(folder: Path) -> dict[str, bytes]:
    """Everything that each server saw, after each was asked for everything by two callers."""
    records = {key: folder / f"seen-{number}" for number, key in enumerate(SERVERS)}
    asked: list[str] = []

    def on_input_request(question: HostInputRequest) -> str:
        assert isinstance(question.params, t.ElicitRequestParams)
        asked.append(f"{question.server}: {question.params.message}")
        return f"answer for {question.server[::-1]}"

    async with AsyncExitStack() as stack:
        entries = {key: await entry(key, record, stack) for key, record in records.items()}
        host = await stack.enter_async_context(Host(entries, on_input_request=on_input_request))
        for who in ("ada-7f31", "bob-9c55"):
            caller = host.caller(who)
            assert len(await caller.list_tools(fresh=True)) == 8
            assert len(await caller.list_prompts(fresh=True)) == 4
            for resource in await caller.list_resources(fresh=True):
                await caller.read_resource(resource.uri)
            for key in SERVERS:
                given = await caller.call_tool(
                    f"{key}__give", on_progress=lambda *_: None, on_log=lambda _: None
                )
                assert given.text == secret_of(key)
                said = await caller.call_tool(f"{key}__ask")
                assert said.text == f"answer for {key[::-1]}"
                await caller.get_prompt(f"{key}__say")
        assert host.problems == []
        assert set(asked) == {f"{key}: Say {secret_of(key)}" for key in SERVERS}
    return {key: record.read_bytes() for key, record in records.items()}


def test_a_server_sees_nothing_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "canary-of-the-host")
    seen: Any = {}

    @live_for(600)
    async def exercise() -> None:
        seen.update(await everything(tmp_path))

    exercise()
    for key, bytes_seen in seen.items():
        assert secret_of(key).encode() in bytes_seen  # or nothing was written down
        assert b"canary-of-the-host" not in bytes_seen
        for other in SERVERS:
            if other != key:
                assert secret_of(other).encode() not in bytes_seen, (key, other)
                assert other.encode() not in bytes_seen, (key, other)
                assert f"answer for {other[::-1]}".encode() not in bytes_seen, (key, other)
        for caller in (b"ada-7f31", b"bob-9c55"):
            assert caller not in bytes_seen


def own_things() -> Server:
    """A server that keeps state in a conversation, and shows it in its lists."""
    server = Server("own")

    @server.tool
    def add(name: str) -> str:
        def secret() -> str:
            return name

        server.tool(name=f"tool_of_{name}")(secret)
        server.resource(f"things://{name}")(secret)
        return name

    @server.resource("things://all")
    def everything_there_is() -> str:
        return "nothing"

    _ = add, everything_there_is
    return server


@live_for(600)
async def test_what_a_caller_did_in_a_conversation_of_its_own_is_in_no_other_callers_lists(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from host.test_isolation import own_things\nserver = own_things()\nserver.run()\n"
    )
    env = {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "support")])}
    target = {"command": sys.executable, "args": [str(file)], "env": env}
    entry = entry_of("own", target, Settings(revision=OLD))
    async with Host({"own": entry}) as host:
        ada, bob = host.caller("ada"), host.caller("bob")
        both = await asyncio.gather(ada.list_tools(), bob.list_tools(), host.list_tools())
        assert [[tool.name for tool in tools] for tools in both] == [["own__add"]] * 3
        await ada.call_tool("own__add", {"name": "ada"})
        names = [tool.name for tool in await ada.list_tools(fresh=True)]
        assert names == ["own__add", "own__tool_of_ada"]
        uris = [one.uri for one in await ada.list_resources()]
        assert uris == ["things://all", "things://ada"]
        assert [tool.name for tool in await bob.list_tools()] == ["own__add"]
        assert [one.uri for one in await bob.list_resources(fresh=True)] == ["things://all"]
        for name in ("own__tool_of_ada", "tool_of_ada"):
            with pytest.raises(RemoteError) as caught:
                await bob.call_tool(name)
            assert "did you mean" not in str(caught.value)
        with pytest.raises(RemoteError, match="no server lists"):
            await bob.read_resource("things://ada")
        found = await ada.read_resource("things://ada")
        assert found.contents[0].text == "ada"
        assert (await ada.call_tool("own__tool_of_ada")).text == "ada"


PROCESS = """\
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        info = {"name": "p", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": f"of-{os.getpid()}", "inputSchema": {"type": "object"}}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@live
async def test_callers_who_look_first_and_at_once_are_each_shown_their_own_lists() -> None:
    made = entry_of("p", [sys.executable, "-I", "-S", "-c", PROCESS], Settings(revision=OLD))
    async with Host({"p": made}) as host:
        callers = [host.caller(name) for name in ("alice", "bob", "carol")]
        listed = await asyncio.gather(*(caller.list_tools() for caller in callers))
        assert len({tool.name for tools in listed for tool in tools}) == 3
        again = [await caller.list_tools() for caller in callers]
        assert again == listed
