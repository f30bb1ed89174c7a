"""`colonnade gateway`: one command on a configuration file, over HTTP and on stdio."""

import json
import signal
import socket
import sys
from pathlib import Path

import pytest

from cli.process import COMMAND, HUNG_UP, Process, call, command
from colonnade import Gateway, Host, Server, connect
from colonnade.cli.commands.gateway import decode_key, describe_servers, open_store, require_keys
from colonnade.cli.errors import CliError
from colonnade.host.config.reader import read_config
from colonnade.store.memory import MemoryStore
from colonnade.store.sqlite import SqliteStore
from live import live

SERVER = """
from colonnade import Server

server = Server("NAME", version="1", instructions="Use NAME with care.")


@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""
TOML = """
[servers.one]
command = "PYTHON"
args = ["-m", "colonnade", "run", "one.py"]

[servers.two]
command = "PYTHON"
args = ["-m", "colonnade", "run", "two.py"]

[gateway]
name = "house"
instructions = "gathered"

[gateway.views.dev]
servers = ["two"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("COLONNADE_HOME", str(home))
    entries = {}
    for name in ("one", "two"):
        file = tmp_path / f"{name}.py"
        file.write_text(SERVER.replace("NAME", name))
        arguments = ["-m", "colonnade", "run", str(file)]
        entries[name] = {"command": sys.executable, "args": arguments}
    config = tmp_path / "claude_desktop_config.json"
    config.write_text(json.dumps({"mcpServers": entries}))
    toml = TOML.replace("PYTHON", sys.executable)
    for name in ("one", "two"):
        toml = toml.replace(f'"{name}.py"', json.dumps(str(tmp_path / f"{name}.py")))
    (tmp_path / "colonnade.toml").write_text(toml)
    for file in ("claude_desktop_config.json", "colonnade.toml"):
        done = command(tmp_path, "config", "trust", file, "--yes", COLONNADE_HOME=str(home))
        assert done.returncode == 0, done.stderr
    return tmp_path


def test_a_file_of_claude_desktop_is_served_over_http(folder: Path) -> None:
    home = str(folder / "home")
    with Process(
        folder, "gateway", "claude_desktop_config.json", "--port", "0", COLONNADE_HOME=home
    ) as process:
        line = process.out.next()
        assert line.startswith("gateway on http://127.0.0.1:")
        url = line.rpartition(" ")[2]

        @live
        async def exercise() -> None:
            for revision in ("2025-06-18", "2026-07-28"):
                async with connect(url, revision=revision) as client:
                    names = [tool.name for tool in await client.list_tools()]
                    assert names == ["one__add", "two__add"]
                    assert (await client.call_tool("two__add", {"a": 1, "b": 2})).text == "3"

        exercise()


@pytest.mark.parametrize("transport", [("--port", "0"), ("--stdio",)], ids=["http", "stdio"])
def test_a_hangup_ends_a_gateway_and_says_so(folder: Path, transport: tuple[str, ...]) -> None:
    home = str(folder / "home")
    with Process(
        folder, "gateway", "claude_desktop_config.json", *transport, COLONNADE_HOME=home
    ) as process:
        if transport == ("--stdio",):
            process.ask(call("one__add", a=2, b=3))
        else:
            process.out.next()
        process.signal(signal.SIGHUP)
        assert process.end() == 0
        assert [line.endswith(HUNG_UP) for line in process.err.rest() if "SIGHUP" in line] == [True]


def test_views_of_a_gateway_are_endpoints_of_their_own(folder: Path) -> None:
    home = str(folder / "home")
    with Process(
        folder, "gateway", "colonnade.toml", "--port", "0", COLONNADE_HOME=home
    ) as process:
        line = process.out.next()
        assert line.startswith("house on http://127.0.0.1:")
        url = line.rpartition(" ")[2]

        @live
        async def exercise() -> None:
            async with connect(url) as client:
                assert len(await client.list_tools()) == 2
            async with connect(f"{url}/dev") as client:
                assert [tool.name for tool in await client.list_tools()] == ["two__add"]
                assert (await client.call_tool("two__add", {"a": 1, "b": 2})).text == "3"
            async with connect(url) as client:
                assert client.instructions is not None
                assert "## one\n\nUse one with care." in client.instructions

        exercise()


@live
async def stdio(folder: Path, *arguments: str) -> None:
    target = {
        "command": COMMAND[0],
        "args": [*COMMAND[1:], "gateway", *arguments],
        "env": {"COLONNADE_HOME": str(folder / "home")},
        "cwd": str(folder),
    }
    async with connect(target) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == (["two__add"] if "--view" in arguments else ["one__add", "two__add"])
        assert (await client.call_tool("two__add", {"a": 1, "b": 2})).text == "3"


def test_a_client_starts_a_gateway_on_stdio(folder: Path) -> None:
    stdio(folder, "claude_desktop_config.json", "--stdio")


def test_a_view_is_served_alone_on_stdio(folder: Path) -> None:
    stdio(folder, "colonnade.toml", "--stdio", "--view", "dev", "--store", "sqlite:state.db")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "has no authentication"),
        (["--stdio", "--port", "0"], "--stdio has no port"),
        (["--view", "none"], "there is no view none"),
        (["--store", "postgres:x"], "expected memory, sqlite:PATH or redis://HOST"),
    ],
)
def test_what_cannot_be_served_is_refused(folder: Path, arguments: list[str], words: str) -> None:
    home = str(folder / "home")
    done = command(folder, "gateway", "colonnade.toml", *arguments, COLONNADE_HOME=home)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def with_gateway(folder: Path, lines: str) -> None:
    """Add lines to the table `[gateway]`, and trust the file."""
    file = folder / "colonnade.toml"
    file.write_text(file.read_text().replace('name = "house"', f'name = "house"\n{lines}'))
    home = str(folder / "home")
    done = command(folder, "config", "trust", file.name, "--yes", COLONNADE_HOME=home)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("", "needs keys"),
        ('keys = ["${env:NO_SUCH_KEY}"]', "NO_SUCH_KEY is not set"),
        ('keys = ["${env:SHORT_KEY}"]', "key 1 has not 32 bytes"),
    ],
)
def test_a_shared_store_without_a_valid_key_is_refused(
    folder: Path, lines: str, words: str
) -> None:
    with_gateway(folder, f'store = "sqlite:state.db"\n{lines}')
    home = str(folder / "home")
    done = command(folder, "gateway", "colonnade.toml", COLONNADE_HOME=home, SHORT_KEY="c2hvcnQ=")
    assert done.returncode == 2
    assert words in done.stderr
    assert "c2hvcnQ" not in done.stderr


@pytest.mark.parametrize("key", ["A" * 43 + "=", "ab" * 32])
def test_keys_and_the_store_are_looked_up_by_reference(folder: Path, key: str) -> None:
    with_gateway(folder, 'store = "${env:STATE}"\nkeys = ["${env:GATEWAY_KEY}"]')
    home = str(folder / "home")
    with Process(
        folder,
        "gateway",
        "colonnade.toml",
        "--port",
        "0",
        COLONNADE_HOME=home,
        GATEWAY_KEY=key,
        STATE="sqlite:state.db",
    ) as process:
        assert process.out.next().startswith("house on http://127.0.0.1:")
    assert (folder / "state.db").exists()


def test_what_a_key_must_be() -> None:
    store = MemoryStore(is_shared=True)
    with pytest.raises(CliError, match="needs keys"):
        require_keys("colonnade.toml", store, [])
    require_keys("colonnade.toml", MemoryStore(), [])
    require_keys("colonnade.toml", store, [bytes(32)])
    assert decode_key("colonnade.toml", 1, "A" * 43 + "=") == bytes(32)
    assert decode_key("colonnade.toml", 1, "00" * 32) == bytes(32)
    for wrong in ("", "c2hvcnQ=", "A" * 42, "zz" * 32, "ü" * 43):
        with pytest.raises(CliError, match="key 2 has not 32 bytes"):
            decode_key("colonnade.toml", 2, wrong)


@pytest.mark.parametrize("key", ["ab" * 32, "a ${env:KEY}", "${env:ONE}${env:TWO}"])
def test_a_key_in_the_file_itself_is_a_problem(tmp_path: Path, key: str) -> None:
    file = tmp_path / "colonnade.toml"
    file.write_text(f'[gateway]\nkeys = ["{key}"]\n')
    config = read_config(file, trust=True)
    (problem,) = config.problems
    assert "a key is a reference, and not in the file itself" in problem.message
    assert key not in problem.message


def test_a_file_without_servers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "claude_desktop_config.json").write_text('{"mcpServers": {}}')
    done = command(tmp_path, "gateway", "claude_desktop_config.json")
    assert done.returncode == 2
    assert "has no servers" in done.stderr


def test_a_store_is_named_by_its_kind(tmp_path: Path) -> None:
    assert open_store(None) is None
    assert open_store("memory") is None
    assert isinstance(open_store(f"sqlite:{tmp_path / 'x.db'}"), SqliteStore)
    for wrong in ("sqlite:", "x", "redis:"):
        with pytest.raises(CliError, match="--store"):
            open_store(wrong)


def test_what_is_wrong_with_the_store_of_a_file_is_said_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE", "postgres://ada:canary@db")
    monkeypatch.setenv("KEY", "00" * 32)
    file = folder / "colonnade.toml"
    more = '[gateway]\nkeys = ["${env:KEY}"]\nstore = "${env:STORE}"\n'
    file.write_text(file.read_text().replace("[gateway]\n", more))
    command(folder, "config", "trust", str(file), "--yes")
    done = command(folder, "gateway", "colonnade.toml", "--port", "0")
    assert done.returncode == 2
    line = file.read_text().splitlines().index('store = "${env:STORE}"') + 1
    assert f"colonnade.toml:{line}:1: gateway.store: expected memory" in done.stderr
    assert "canary" not in done.stderr
    assert "--store" not in done.stderr


@pytest.mark.parametrize("transport", [["--port", "0"], ["--stdio"]])
def test_a_gateway_whose_store_cannot_be_reached_does_not_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch, transport: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    monkeypatch.setenv("STORE", f"redis://ada:canary@127.0.0.1:{port}")
    monkeypatch.setenv("KEY", "00" * 32)
    file = folder / "colonnade.toml"
    more = '[gateway]\nkeys = ["${env:KEY}"]\nstore = "${env:STORE}"\n'
    file.write_text(file.read_text().replace("[gateway]\n", more))
    command(folder, "config", "trust", str(file), "--yes")
    done = command(folder, "gateway", "colonnade.toml", *transport)
    assert done.returncode == 4
    assert f"the gateway cannot start: the store redis://127.0.0.1:{port} cannot be" in done.stderr
    assert "start the store, or correct its address: store of [gateway], or --store" in done.stderr
    assert "canary" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_command_that_is_allowed_by_an_unknown_name_is_an_error(folder: Path) -> None:
    name = "claude_desktop_config.json"
    done = command(folder, "gateway", name, "--port", "0", "--allow-command", "tow")
    assert done.returncode == 2
    assert "--allow-command: there is no server tow" in done.stderr
    assert "did you mean two?" in done.stderr
    done = command(folder, "gateway", name, "--port", "0", "--allow-command", "files")
    assert "servers are one, two" in done.stderr


def test_the_person_who_starts_a_gateway_is_told_what_is_behind_it() -> None:
    host = Host({"one": Server("one"), "two": Server("two")})
    made = Gateway(host, views={"dev": ["two"]})
    assert describe_servers(made, "http://127.0.0.1:8000/mcp") == (
        "2 servers, started when needed: one, two\n"
        "http://127.0.0.1:8000/mcp/dev: two\n"
        "Enter the URL in a client, or stop with Ctrl-C."
    )
    alone = Gateway(Host({"one": Server("one")}))
    assert describe_servers(alone, "http://127.0.0.1:8000/mcp").startswith("1 server, started")
