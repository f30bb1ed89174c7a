"""The log of a crash is shown where a server was started here, and only to who runs the program."""

import logging
import sys
from pathlib import Path

import pytest

from colonnade import Host, RemoteError, connect
from live import live

SERVER = """
import sys

from colonnade import Server, ToolError

server = Server("kitchen")


@server.tool
def burn(dish: str) -> str:
    sys.stderr.write("the oven is at 300 degrees\\n")
    raise ValueError(f"{dish} is burnt, and the key was hunter2-hunter2")


@server.resource("menu://today")
def menu() -> str:
    raise ValueError("the menu is burnt")


@server.prompt
def order() -> str:
    raise ValueError("the order is burnt")


@server.tool
def refuse() -> str:
    sys.stderr.write("no guests\\n")
    raise ToolError("The kitchen is closed.")
"""


def written(folder: Path) -> str:
    file = folder / "kitchen.py"
    file.write_text(SERVER)
    return str(file)


@live
async def test_the_traceback_of_a_tool_that_crashed_in_a_child_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(written(tmp_path), env={"KEY": "hunter2-hunter2"}) as client:
        for _ in range(3):
            caplog.clear()
            result = await client.call_tool("burn", {"dish": "rice"})
            assert result.is_error
            assert result.text.startswith("burn failed (id ")
            id = result.text[-7:-1]
            (record,) = caplog.records
            said = record.getMessage()
            assert (record.name, record.levelno) == ("colonnade.client", logging.WARNING)
            assert said.startswith("server 'kitchen' (pid ")
            first, *_, last = said.splitlines()[1:]
            assert f"(id {id})" in first
            assert last == "    ValueError: rice is burnt, and the key was [redacted]"
            assert "the oven" not in said


@live
async def test_the_traceback_of_a_resource_and_of_a_prompt_is_logged_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path)
    async with connect(file) as client, Host({"kitchen": file}) as host:
        for caller in (client, host):
            name = "order" if caller is client else "kitchen__order"
            reads = (caller.read_resource("menu://today"), caller.get_prompt(name))
            for number, read in enumerate(reads):
                caplog.clear()
                with pytest.raises(RemoteError) as raised:
                    await read
                assert "burnt" not in str(raised.value)
                (record,) = caplog.records
                *_, last = record.getMessage().splitlines()
                assert last == f"    ValueError: the {('menu', 'order')[number]} is burnt"


@live
async def test_an_error_that_the_tool_chose_itself_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(written(tmp_path)) as client:
        assert (await client.call_tool("refuse")).is_error
    assert caplog.records == []


@live
async def test_a_program_that_hears_standard_error_is_told_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    async with connect(written(tmp_path), on_stderr=heard.append) as client:
        assert (await client.call_tool("burn", {"dish": "rice"})).is_error
    assert "ValueError: rice is burnt, and the key was hunter2-hunter2" in heard
    assert caplog.records == []


@live
async def test_a_host_logs_it_and_no_caller_is_given_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-m", "colonnade", "run", written(tmp_path)]
    async with Host({"kitchen": command}) as host:
        for caller in ("ada", "ben"):
            result = await host.caller(caller).call_tool("kitchen__burn", {"dish": "rice"})
            assert result.is_error
            assert "burnt" not in result.text
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert record.getMessage().startswith("server 'kitchen' (pid ")
        assert record.getMessage().count("ValueError: rice is burnt") == 1
