"""`[pins]` of colonnade.toml, and the settings of a server."""

import json
from pathlib import Path

import pytest

from colonnade import Host, Pins, Refused
from colonnade.host.config.reader import read_config
from colonnade.host.config.settings import PinsTable
from host.drifting import FileServer
from live import live


def written(folder: Path, text: str, name: str = "colonnade.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("[pins]", PinsTable()),
        ('[pins]\nmode = "warn"\nfirst = "review"', PinsTable(mode="warn", first="review")),
        ("[servers]", None),
    ],
)
def test_the_table_of_pins(tmp_path: Path, text: str, table: PinsTable | None) -> None:
    config = read_config(written(tmp_path, text), trust=True)
    assert (config.pins, config.problems, config.warnings) == (table, (), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[pins]\nmode = "of"', 'expected one of "strict", "warn" and "off"'),
        ('[pins]\nfirst = "tofu"', 'expected one of "accept" and "review"'),
        ("[pins]\nfist = 1", "unknown key; known keys: mode, first"),
        ("pins = 1", "expected a table with mode and first"),
    ],
)
def test_what_is_wrong_has_a_place_and_counts_as_the_strictest_value(
    tmp_path: Path, text: str, message: str
) -> None:
    config = read_config(written(tmp_path, text), trust=True)
    (problem,) = config.problems
    assert message in problem.message
    assert problem.place is not None
    assert problem.place.line == text.count("\n") + 1
    assert config.pins is not None
    assert config.pins.mode == "strict"
    assert config.pins.first == ("review" if "tofu" in text else "accept")


def test_of_several_files_the_strictest_counts(tmp_path: Path) -> None:
    one = written(tmp_path, '[pins]\nmode = "off"\nfirst = "review"', "one.toml")
    other = written(tmp_path, '[pins]\nmode = "strict"', "other.toml")
    assert read_config([one, other], trust=True).pins == PinsTable(mode="strict", first="review")
    assert read_config([other, one], trust=True).pins == PinsTable(mode="strict", first="review")


def test_an_included_file_has_no_pins(tmp_path: Path) -> None:
    written(tmp_path, "[pins]", "part.toml")
    config = read_config(written(tmp_path, 'include = ["./part.toml"]'), trust=True)
    assert config.pins is None
    assert any("cannot have pins" in one.message for one in config.problems)


@live
async def test_a_host_of_a_file_pins_its_servers_and_reload_uses_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "state"))
    server = FileServer(tmp_path)
    head = f"command = {json.dumps(server.command[0])}\nargs = {json.dumps(server.command[1:])}"
    entry = f'[servers.a]\n{head}\nrevision = "2025-11-25"\n'
    path = written(tmp_path, f"[pins]\n{entry}")
    async with Host.from_config(path, trust=True) as host:
        assert len(await host.list_tools()) == 3
    server.lists["tools"][0]["description"] = "Other."
    server.save()
    async with Host.from_config(path, trust=True) as host:
        assert len(await host.list_tools()) == 2
        path.write_text(f'[pins]\nmode = "warn"\n{entry}')
        await host.reload()
        assert len(await host.list_tools(fresh=True)) == 3
    path.write_text(f'{entry}pins = "strict"\n')
    async with Host.from_config(path, trust=True) as host:
        assert len(await host.list_tools()) == 2
    path.write_text(f'[pins]\n{entry}pins = "off"\n')
    async with Host.from_config(path, trust=True) as host:
        assert len(await host.list_tools()) == 3
    path.write_text(f'{entry}pins = "sometimes"\n')
    host = Host.from_config(path, trust=True)
    assert 'expected one of "strict", "warn" and "off"' in host.problems[0].message


@pytest.mark.parametrize("name", ["our servers.toml", ".mcp.json"])
@live
async def test_the_command_that_is_logged_names_the_file_unless_it_is_found_without(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "state"))
    server = FileServer(tmp_path)
    command, *args = server.command
    if name == ".mcp.json":
        text = json.dumps({"mcpServers": {"a": {"command": command, "args": args}}})
    else:
        text = f"[servers.a]\ncommand = {json.dumps(command)}\nargs = {json.dumps(args)}\n"
    path = written(tmp_path, text, name)
    async with Host.from_config(path, trust=True, pins=Pins()) as host:
        await host.list_tools()
    server.lists["tools"][0]["description"] = "Other."
    server.save()
    async with Host.from_config(path, trust=True, pins=Pins()) as host:
        await host.list_tools()
        with pytest.raises(Refused) as refused:
            await host.call_tool(f"a__{server.lists['tools'][0]['name']}")
    (message,) = [one.getMessage() for one in caplog.records if "is not used" in one.getMessage()]
    option = "" if name == ".mcp.json" else f" --config '{path}'"
    assert message.endswith(f"see what changed with: colonnade pins diff a{option}")
    assert str(tmp_path) not in str(refused.value)  # a caller on another machine may get it
