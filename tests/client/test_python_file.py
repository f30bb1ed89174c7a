"""A Python file as a target means the same in `connect`, in `Host` and on the command line."""

import sys
from pathlib import Path

import pytest

from colonnade import Host, connect
from colonnade.errors import ColonnadeError, LocalProtocolError
from colonnade.transport.process.command import imports_colonnade, python_command, split_name
from live import live

SERVER = """
from colonnade import Server

server = Server("travel")
other = Server("other")


@server.tool
def book(flight: str) -> str:
    return f"{flight}: booked"


@other.tool
def cancel(flight: str) -> str:
    return f"{flight}: cancelled"
"""

FORMS = {
    "that never calls run": SERVER,
    "that calls run below the usual line": SERVER
    + '\nif __name__ == "__main__":\n    server.run()\n',
    "that calls run while it is loaded": SERVER + "\nserver.run()\nassert server\n",
    "that serves in a loop while it is loaded": SERVER
    + "\nimport asyncio\nasyncio.run(server.serve())\n",
    "that makes its server as a program": """
from colonnade import Server


def main() -> None:
    server = Server("travel")

    @server.tool
    def book(flight: str) -> str:
        return f"{flight}: booked"

    server.run()


if __name__ == "__main__":
    main()
""",
}
GUARDED = ["that never calls run", "that calls run below the usual line"]


def written(folder: Path, text: str) -> str:
    file = folder / "booking.py"
    file.write_text(text)
    return str(file)


@live
@pytest.mark.parametrize("form", FORMS)
async def test_connect_reaches_the_server_of_a_file(form: str, tmp_path: Path) -> None:
    async with connect(written(tmp_path, FORMS[form])) as client:
        assert [tool.name for tool in await client.list_tools()] == ["book"]
        assert (await client.call_tool("book", {"flight": "SK1"})).text == "SK1: booked"


@live
@pytest.mark.parametrize("form", GUARDED)
async def test_connect_reaches_the_server_of_a_name(form: str, tmp_path: Path) -> None:
    async with connect(written(tmp_path, FORMS[form]) + ":other") as client:
        assert [tool.name for tool in await client.list_tools()] == ["cancel"]


@live
@pytest.mark.parametrize("form", FORMS)
async def test_a_host_reaches_the_server_of_a_file(form: str, tmp_path: Path) -> None:
    file = written(tmp_path, FORMS[form])
    async with Host({"travel": file}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["travel__book"]
        assert host.problems == []


@live
async def test_a_host_reaches_the_server_of_a_name(tmp_path: Path) -> None:
    async with Host({"travel": written(tmp_path, SERVER) + ":other"}) as host:
        assert [tool.name for tool in await host.list_tools()] == ["travel__cancel"]


@live
async def test_a_file_that_serves_while_it_is_loaded_has_no_server_of_a_name(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, FORMS["that calls run while it is loaded"])
    with pytest.raises(ColonnadeError, match=r"move run\(\) below"):
        await connect(f"{file}:server")


@live
async def test_a_file_with_no_server_says_what_to_write(tmp_path: Path) -> None:
    file = written(tmp_path, "from colonnade import Server\n\ndef main():\n    Server('x').run()\n")
    with pytest.raises(ColonnadeError, match=r"has no colonnade\.Server; add one"):
        await connect(file)


@live
async def test_a_program_that_exits_with_0_and_says_nothing_gets_a_hint(tmp_path: Path) -> None:
    file = written(tmp_path, "print\n")
    with pytest.raises(ColonnadeError, match=r"exited with 0 .*does it call run\(\)\?"):
        await connect(file)


@live
async def test_the_hint_is_in_the_problems_of_a_host(tmp_path: Path) -> None:
    async with Host({"travel": written(tmp_path, "print\n")}) as host:
        assert await host.list_tools() == []
        assert "does it call run()?" in str(host.problems)


@live
async def test_a_program_that_says_why_it_exits_gets_no_hint(tmp_path: Path) -> None:
    file = written(tmp_path, "import sys\nsys.stderr.write('no licence\\n')\n")
    with pytest.raises(ColonnadeError, match="no licence") as raised:
        await connect(file)
    assert "call run()" not in str(raised.value)


def test_a_file_of_another_library_is_started_by_python(tmp_path: Path) -> None:
    file = written(tmp_path, "from fastmcp import FastMCP\n")
    assert not imports_colonnade(file)
    assert python_command(file) == [sys.executable, file]
    assert python_command(file, "mcp")[-1] == f"{file}:mcp"


@pytest.mark.parametrize(
    "text", ["import colonnade.testing\n", "from colonnade.sync import connect\n", "def broken(:\n"]
)
def test_a_file_that_imports_the_package_or_cannot_be_parsed_is_run(
    text: str, tmp_path: Path
) -> None:
    file = written(tmp_path, text)
    assert python_command(file)[-2:] == ["run", file]


def test_a_name_is_split_from_a_file_that_is_not_there_under_the_whole_text(tmp_path: Path) -> None:
    odd = tmp_path / "a.py:b"
    odd.write_text("")
    assert split_name(str(odd)) == (str(odd), "")
    assert split_name("a.py:b.c") == ("a.py", "b.c")
    assert split_name("a.py:1") == ("a.py:1", "")
    assert split_name("localhost:8000") == ("localhost:8000", "")


def test_a_name_in_a_file_of_javascript_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "server.js"
    file.write_text("")
    with pytest.raises(LocalProtocolError, match=r"only a \.py file has servers with names"):
        connect(f"{file}:server")


def test_a_missing_file_is_named_without_the_server_in_it() -> None:
    with pytest.raises(LocalProtocolError, match=r"there is no file 'nothing\.py'; look into"):
        connect("nothing.py:server")
