"""`colonnade ls` and `colonnade inspect`: tables for people, JSON for programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.process import COMMAND, WAIT_S, Process, command, environment, written
from cli.scripted_server import scripted_program, tool
from cli.terminal import PseudoTerminal

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"

NOTES = """\
tools
  write  name text  Write a note; subscribers are notified.

resources
  notes://            All notes    application/json  Every note with its length.
  backup://notes.zip  A backup     application/zip   All notes in one archive, as binary contents.
  attachments://      attachments  inode/directory   The files of attachments, by their path.

templates
  notes://{name}         note         text/markdown  One note; None for an unknown name is 'not found'.
  attachments://{+path}  attachments                 The files of attachments, by their path.
"""
PROMPTS = """\
prompts
  review   code [language]            Ask for a review, with the house rules of the language at hand.
  shorten  text [words] [keep_names]  Ask for a shorter text. Arguments are sent as strings and decoded to their types.
  invite   team person [tone]         Ask for an invitation to a meeting.
"""
# What is said of three tools alike, in every revision.
MEND = """
warnings
  ! forecast: parameter `unit` has no description
  ! record: parameters `station`, `celsius` have no description
  ! close: parameter `station` has no description
  3 warnings; --json names the rules
"""
INSPECTED = f"""\
weather 1.0
  revision      2026-07-28
  supports      2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05
  capabilities  tools (listChanged)
  tokens        about 294 for the tools (estimated at 4 characters per token)
  instructions  Forecasts and stations. Cities by name.

tools
  forecast(city: string, days: integer 1 to 10 = 3, start: date = "2026-01-01", unit: "C" | "F" = "C") -> {{city, unit, days}}
      Forecast
      Forecast for a city.
        city   Name of the city, in English.
        days   How many days, from the first on.
        start  The first day.
      (read-only)
  record(station: string, celsius: number -90 to 60) -> number
      Record a measurement
      Keep what a station measured; gives the mean of all stations.
      (not destructive, idempotent)
  close(station: string)
      Close a station
      Forget a station and what it measured.
      (destructive, idempotent)
  spread() -> object of number
      How far the coldest and the warmest station are apart. It fails where none is left.
      (read-only)
{MEND}"""
OLD = f"""\
weather 1.0
  revision      2024-11-05
  supports      unknown in this revision
  capabilities  tools (listChanged)
  tokens        about 304 for the tools (estimated at 4 characters per token)
  instructions  Forecasts and stations. Cities by name.

tools
  forecast(city: string, days: integer 1 to 10 = 3, start: date = "2026-01-01", unit: "C" | "F" = "C")
      Forecast for a city.
        city   Name of the city, in English.
        days   How many days, from the first on.
        start  The first day.
  record(station: string, celsius: number -90 to 60)
      Record a measurement: Keep what a station measured; gives the mean of all stations.
  close(station: string)
      Close a station: Forget a station and what it measured.
  spread()
      How far the coldest and the warmest station are apart. It fails where none is left.
{MEND}"""
# What would clear a screen, paint it, or turn the direction of text.
HOSTILE = """
from colonnade import Server

server = Server("hostile", version="1\\x1b[2J", instructions="one\\n\\x1b]0;title\\x07two")


@server.tool(description="say \\x1b[31mred\\u202e and\\rback\\nmore")
def look(path: str) -> str:
    return "\\x1b[2Jgone\\n"


@server.tool(description="x")
def fail() -> str:
    from colonnade import ToolError

    raise ToolError("\\x1b[2Jgone")
"""


def said(folder: Path, *arguments: str, **more: str) -> str:
    """The output of a command that works, and says nothing else."""
    done = command(folder, *arguments, **more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_what_is_offered_is_listed_in_columns() -> None:
    assert said(EXAMPLES, "ls", "notes.py") == NOTES
    assert said(EXAMPLES, "ls", "prompts.py") == PROMPTS


def test_a_server_at_an_address_is_listed_in_the_same_way() -> None:
    with Process(EXAMPLES, "serve", "notes.py", "--port", "0") as served:
        served.up()
        url = f"http://127.0.0.1:{served.port}/mcp"
        assert said(EXAMPLES, "ls", url) == NOTES
        assert said(EXAMPLES, "ls", url, "--as", "2025-06-18") == NOTES


def test_a_command_line_after_two_dashes_is_the_target(tmp_path: Path) -> None:
    written(
        tmp_path, hand=scripted_program(tools_list=tool(properties={"path": {"type": "string"}}))
    )
    python = COMMAND[0]
    assert said(tmp_path, "ls", "--", python, "hand.py") == "tools\n  look  [path]\n"
    # Options of the command line are its own.
    assert said(tmp_path, "ls", "--", python, "-B", "hand.py") == "tools\n  look  [path]\n"


def test_a_list_that_a_server_does_not_know_is_empty(tmp_path: Path) -> None:
    one = {"resources": [{"uri": "a://b", "name": "b"}]}
    written(tmp_path, hand=scripted_program(resources_list=one))
    assert said(tmp_path, "ls", "hand.py") == "resources\n  a://b  b\n"


def test_a_server_with_nothing_says_so(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program())
    assert said(tmp_path, "ls", "hand.py") == "the server lists nothing\n"


def test_programs_are_given_all_of_it_in_the_words_of_the_protocol() -> None:
    found = json.loads(said(EXAMPLES, "ls", "notes.py", "--json"))
    assert list(found) == ["tools", "prompts", "resources", "resourceTemplates"]
    assert found["tools"][0]["inputSchema"]["required"] == ["name", "text"]
    assert [one["uriTemplate"] for one in found["resourceTemplates"]] == [
        "notes://{name}",
        "attachments://{+path}",
    ]
    about = json.loads(said(EXAMPLES, "inspect", "notes.py", "--json"))
    assert about["server"] == {"name": "notes", "version": "1.0"}
    assert about["revision"] == about["supported"][0]
    assert about["capabilities"]["completions"] == {}
    assert {name: about[name] for name in found} == found


def test_a_server_is_shown_with_all_that_it_says_of_itself() -> None:
    assert said(EXAMPLES, "inspect", "weather.py") == INSPECTED


def test_a_client_of_another_revision_sees_less() -> None:
    assert said(EXAMPLES, "inspect", "weather.py", "--as", "2024-11-05") == OLD


def test_a_server_by_hand_is_shown_as_far_as_it_says_anything(tmp_path: Path) -> None:
    prompt = {"name": "ask", "title": "Ask", "arguments": [{"name": "who", "required": True}]}
    text = scripted_program(tools_list=tool(), prompts_list={"prompts": [prompt]})
    written(tmp_path, hand=text)
    assert said(tmp_path, "inspect", "hand.py") == (
        "by hand 2, By hand\n"
        "  revision      2025-06-18\n"
        "  supports      unknown in this revision\n"
        "  capabilities  completions, prompts, resources, tools\n"
        "  tokens        about 16 for the tools (estimated at 4 characters per token)\n"
        "\ntools\n  look()\n\nprompts\n  ask(who)\n      Ask\n"
        "\nwarnings\n"
        "  ! look: has no description: a model knows the name only\n"
        "\nnotes\n"
        "  - ask: has no description\n"
        "  - ask: argument `who` has no description\n"
        "  1 warning, 2 notes; --json names the rules\n"
    )


def test_nothing_that_a_server_wrote_acts_on_a_terminal(tmp_path: Path) -> None:
    written(tmp_path, server=HOSTILE)
    with PseudoTerminal(tmp_path, "inspect", "server.py", NO_COLOR="1") as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert not set(shown) & {"\x1b", "\x07", "\u202e"}
    assert "hostile 1\\x1b[2J" in shown
    assert "one\n                \\x1b]0;title\\x07two\n" in shown
    assert "\n      say \\x1b[31mred\\u202e and\\rback\n      more\n" in shown
    # A table has one line for each.
    assert said(tmp_path, "ls", "server.py").splitlines()[1:] == [
        "  look  path  say \\x1b[31mred\\u202e and",
        "  fail        x",
    ]


def test_headings_stand_out_at_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool()))
    with PseudoTerminal(tmp_path, "ls", "hand.py") as terminal:
        assert terminal.end() == (0, "\x1b[1mtools\x1b[0m\n  look\n")
    with PseudoTerminal(tmp_path, "ls", "hand.py", NO_COLOR="1") as terminal:
        assert terminal.end() == (0, "tools\n  look\n")
    assert "\x1b" not in said(tmp_path, "ls", "hand.py")


def test_a_line_is_cut_at_the_edge_of_a_terminal() -> None:
    with PseudoTerminal(EXAMPLES, "ls", "prompts.py", size=(24, 60), NO_COLOR="1") as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert shown.splitlines()[1] == "  review   code [language]            Ask for a review, wit…"
    assert all(len(line) <= 60 for line in shown.splitlines())


def test_whoever_reads_no_more_is_no_error(tmp_path: Path) -> None:
    """As `colonnade ls server.py --json | head -1` does."""
    reading, writing = os.pipe()
    os.close(reading)
    written(tmp_path, hand=scripted_program(tools_list=tool()))
    try:
        done = subprocess.run(
            [*COMMAND, "ls", "hand.py"],
            cwd=tmp_path,
            stdout=writing,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=WAIT_S,
            env=environment(),
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_config_explain_ends_quietly_where_its_output_is_closed(tmp_path: Path) -> None:
    """As `colonnade config explain | head -1` does."""
    reading, writing = os.pipe()
    os.close(reading)
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"a": {"command": "a"}}}')
    try:
        done = subprocess.run(
            [*COMMAND, "config", "explain", "mcp.json"],
            cwd=tmp_path,
            stdout=writing,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=WAIT_S,
            env=environment(),
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
@pytest.mark.parametrize(
    "arguments", [["ls", "hand.py"], ["ls", "hand.py", "--json"], ["config", "explain"], ["--help"]]
)
def test_output_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, arguments: list[str]
) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool()))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=WAIT_S,
            env=environment(HOME=str(tmp_path)),
            text=True,
        )
    words = "colonnade: cannot write to stdout: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, words)


@pytest.mark.parametrize("verb", ["ls", "inspect"])
def test_both_take_the_name_of_one_server_in_a_file(tmp_path: Path, verb: str) -> None:
    two = 'from colonnade import Server\n\nmaps = Server("maps")\nweather = Server("weather")\n'
    written(tmp_path, two=two, tools__inner=two)
    done = command(tmp_path, verb, "two.py:maps", "--json")
    assert (done.returncode, json.loads(done.stdout)["tools"]) == (0, [])
    assert command(tmp_path, verb, "tools.inner:weather").returncode == 0
    done = command(tmp_path, verb, "two.py")
    assert done.returncode == 4
    assert "two.py has several servers (maps, weather)" in done.stderr


REFUSING = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        reply["result"] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "proxy", "version": "1"},
        }
    else:
        reply["error"] = {"code": -32603, "message": "fetch failed"}
    print(json.dumps(reply), flush=True)
"""


def test_an_error_of_the_server_says_which_server_and_which_list(tmp_path: Path) -> None:
    written(tmp_path, proxy=REFUSING)
    done = command(tmp_path, "ls", "proxy.py")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == "colonnade: proxy cannot list its tools: fetch failed (-32603)\n"
    server = {"command": sys.executable, "args": ["proxy.py"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"web": server}}))
    home = {"COLONNADE_HOME": str(tmp_path / "home")}
    assert command(tmp_path, "config", "trust", "mcp.json", "--yes", **home).returncode == 0
    done = command(tmp_path, "ls", "mcp.json", **home)
    assert (done.returncode, done.stdout) == (5, "")
    words = "colonnade: the tools of server 'web' cannot be listed: fetch failed (-32603)\n"
    assert done.stderr == words
