"""Servers of a gateway that hang, start slowly or crash: the lists and the calls of the others."""

import sys
from pathlib import Path

import pytest

from colonnade import Gateway, Host, RemoteError, Server, connect
from colonnade.errors import InvalidArgument
from gateway.served import served
from live import live

OLD, NEW = "2025-11-25", "2026-07-28"
# No test gets to the end of this wait.
FOREVER_S = 10_000.0
HUNG = [sys.executable, "-c", "import sys; sys.stdin.read()"]
CRASHING = [sys.executable, "-c", "raise SystemExit(3)"]
SLOW = """
import pathlib, time

while not pathlib.Path({go!r}).exists():
    time.sleep(0.01)
from colonnade import Server

server = Server("slow")


@server.tool
def late() -> str:
    return "late"


@server.resource("slow://a")
def resource() -> str:
    return "a"


server.run()
"""


def healthy(number: int) -> Server:
    server = Server(f"s{number}")

    @server.tool
    def ok() -> str:
        return f"ok from {number}"

    @server.prompt
    def hello() -> str:
        return "hello"

    @server.resource(f"s{number}://a")
    def resource() -> str:
        return f"a of {number}"

    @server.resource(f"s{number}://items/{{key}}")
    def item(key: str) -> str:
        return f"{key} of {number}"

    return server


def twelve(go: Path) -> Host:
    """Nine healthy servers, one that hangs, one that waits for a file, and one that crashes."""
    program = go.with_suffix(".py")
    program.write_text(SLOW.format(go=str(go)))
    servers = {f"s{number}": healthy(number) for number in range(9)}
    others = {"hung": HUNG, "slow": [sys.executable, str(program)], "crashing": CRASHING}
    return Host({**servers, **others}, wait_s=FOREVER_S)


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_lists_are_answered_without_the_servers_that_are_late(
    revision: str, tmp_path: Path
) -> None:
    @live
    async def exercise() -> None:
        go = tmp_path / "go"
        gateway = Gateway(twelve(go), wait_s=0.5)
        async with (
            served(gateway) as url,
            connect(url, revision=revision) as client,
            client.listen(tools=True) as changes,
        ):
            tools = {tool.name for tool in await client.list_tools()}
            assert tools == {f"s{number}__ok" for number in range(9)}
            assert len(await client.list_prompts()) == 9
            assert len(await client.list_resources()) == 9
            assert len(await client.list_resource_templates()) == 9
            go.write_text("")
            async for _ in changes:
                break
            names = {tool.name for tool in await client.list_tools(fresh=True)}
            assert names == tools | {"slow__late"}

    exercise()


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_no_request_to_a_healthy_server_waits_for_another(revision: str, tmp_path: Path) -> None:
    @live
    async def exercise() -> None:
        gateway = Gateway(twelve(tmp_path / "go"), wait_s=FOREVER_S)
        async with served(gateway) as url, connect(url, revision=revision) as client:
            assert (await client.call_tool("s3__ok")).text == "ok from 3"
            (content,) = (await client.read_resource("s4://a")).contents
            assert content.text == "a of 4"
            (content,) = (await client.read_resource("s5://items/tea")).contents
            assert content.text == "tea of 5"
            (message,) = (await client.get_prompt("s6__hello")).messages
            assert message.content.text == "hello"  # type: ignore[union-attr]

    exercise()


@live
async def test_a_resource_of_a_server_that_starts_slowly_is_waited_for(tmp_path: Path) -> None:
    go = tmp_path / "go"
    gateway = Gateway(twelve(go), wait_s=0.5)
    async with served(gateway) as url, connect(url) as client:
        assert len(await client.list_resources()) == 9
        go.write_text("")
        (content,) = (await client.read_resource("slow://a")).contents
        assert content.text == "a"


@live
async def test_a_uri_that_no_server_has_names_those_that_were_not_asked() -> None:
    host = Host({"s0": healthy(0), "crashing": CRASHING}, wait_s=FOREVER_S)
    async with served(Gateway(host)) as url, connect(url) as client:
        with pytest.raises(RemoteError, match=r"no server lists.*could not be listed: 'crashing'"):
            await client.read_resource("nowhere://a")


def test_a_wait_is_more_than_nothing() -> None:
    with pytest.raises(InvalidArgument, match="wait_s is 0; give seconds above 0"):
        Gateway(Host({"s0": healthy(0)}), wait_s=0)
