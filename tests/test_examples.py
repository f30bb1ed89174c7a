"""Every example runs without a terminal: some play themselves through, the others are servers.

What the servers do is asserted in `tests/examples`, one file for each.
"""

import http.client
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.process import WAIT_S
from cli.terminal import END_OF_INPUT, INTERRUPT, PseudoTerminal
from pictures import said

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PLAYS = ("conversation", "hosting", "interrupted", "walk")
# No servers on a pipe: one is served over HTTP alone, the others are clients.
ELSEWHERE = {
    "fastapi_app": "integration/test_fastapi.py",
    "agent_openai": "examples/test_agents.py",
    "agent_anthropic": "examples/test_agents.py",
    "machine_client": "auth/client/test_login_commands.py",
    "person_client": "auth/client/test_login_commands.py",
}
SERVERS = sorted({path.stem for path in EXAMPLES.glob("*.py")} - {*PLAYS, *ELSEWHERE})


def run(name: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        env={**os.environ, "FORCE_COLOR": "1"},
    )


@pytest.mark.parametrize("name", PLAYS)
def test_the_example_plays_itself_through(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_whose_input_is_at_its_end_ends_and_has_said_nothing(name: str) -> None:
    ended = run(name)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_every_example_has_tests_of_what_it_does() -> None:
    tests = ROOT / "tests"
    for name in SERVERS:
        assert (tests / "examples" / f"test_{name}.py").is_file(), name
    for name, path in ELSEWHERE.items():
        assert name in (tests / path).read_text("utf-8")


def test_a_task_whose_process_is_killed_goes_on_in_another() -> None:
    done = run("interrupted")
    assert done.returncode == 0, done.stderr
    killed, other = re.findall(r"^process (\d+) serves ", done.stdout, re.M)
    assert killed != other
    shown, _, after = done.stdout.partition(f"process {killed} was killed\n")
    assert "  working: chapter " in shown
    assert "  completed: " in after
    written = re.findall(r"^chapter (\d) on tea, by process (\d+)$", after, re.M)
    assert [number for number, _ in written] == ["1", "2", "3", "4", "5", "6"]
    by = [process for _, process in written]
    # What was recorded is not done again, and the rest is done by the other process.
    recorded = by.count(killed)
    assert recorded >= 2
    assert by == [killed] * recorded + [other] * (6 - recorded)
    assert by[-1] == other


def test_the_host_shows_what_it_promises() -> None:
    done = run("hosting").stdout
    assert "\033" not in done  # no colours where there is no terminal
    for words in (
        "  weather  2025-06-18  a process (stdio)",
        "  travel   2025-11-25  http://127.0.0.1:",
        "  booking  2026-07-28  in memory",
        "tools for the model (1): find_tools\n",
        "-> find_tools(words='weather forecast for a city'): weather__forecast\n",
        "<- error: weather__forecast: No city 'Olso'. Did you mean 'Oslo'?",
        "-> weather__forecast(city='Oslo', days=1)",
        "?? elicitation from travel, for travel__book: Which seat on TGV 6607?",
        "?? elicitation from booking, for booking__book: Which seat on SK1?",
        '<- travel__book: {"train":"TGV 6607","seat":{"car":12,"window":true}}',
        "\nTGV 6607 to Lyon, car 12; then SK1 to Oslo, row 7. It is 4 degrees there: take a coat.\n",
        "travel still works: ",
        'weather was restarted: {"city":"Cairo"',
        "  travel stderr: the office is closed\n",
        "\nThe code\n",
        '  examples/booking.py  seat: Annotated[Seat, Ask("Which seat on {flight}?")],\n',
    ):
        assert words in done
    assert done.splitlines()[-1].startswith("  examples/hosting.py  async with Host(servers, ")
    # The picture shows the same, whatever the numbers, and whichever call is over first.
    command, *drawn = said((ROOT / "docs" / "demo.svg").read_text("utf-8"))
    assert command == "$ scripts/demo"
    renew = "scripts/demo | .venv/bin/python tests/support/pictures.py scripts/demo docs/demo.svg"
    assert sorted(map(_plain, drawn)) == sorted(map(_plain, done.strip().splitlines())), renew


def _demo() -> PseudoTerminal:
    return PseudoTerminal(ROOT, start=[sys.executable, str(EXAMPLES / "hosting.py")], NO_COLOR="1")


def test_the_host_asks_again_for_what_does_not_fit_and_shows_what_does() -> None:
    with _demo() as demo:
        demo.answer("car (a number; Ctrl-D declines) [12] ", "abc")
        demo.until("'abc' is not a number")
        demo.answer("car (a number; Ctrl-D declines) [12] ", "3")
        demo.answer("window (yes or no; Ctrl-D declines) [yes] ", "n")
        demo.answer("row (a number; Ctrl-D declines) [7] ", "")
        demo.answer("place (window or aisle; Ctrl-D declines) [window] ", "y")
        demo.until("'y' is not window or aisle")
        demo.answer("place (window or aisle; Ctrl-D declines) [window] ", "aisle")
        code, shown = demo.end()
    assert code == 0, shown
    assert '!! {"car": 3, "window": false}' in shown
    assert '!! {"row": 7, "place": "aisle"}' in shown
    assert "TGV 6607 to Lyon, car 3; then SK1 to Oslo, row 7." in shown


def test_what_the_servers_do_meanwhile_is_not_shown_in_the_middle_of_a_question() -> None:
    with _demo() as demo:
        demo.answer("car (a number; Ctrl-D declines) [12] ", "")
        demo.answer("window (yes or no; Ctrl-D declines) [yes] ", "")
        demo.until("row (a number; Ctrl-D declines) [7] ")
        # By the time that this is answered the train was booked, which is shown below the answers.
        demo.answer("", "8")
        demo.answer("place (window or aisle; Ctrl-D declines) [window] ", "")
        code, shown = demo.end()
    assert code == 0, shown
    for words in ("<- travel__book", "<- booking__book"):
        (told,) = [one for one in shown.splitlines() if words in one]
        assert told.startswith(f"  {words}: ")


def test_the_host_goes_on_where_whoever_is_asked_ends_the_input() -> None:
    with _demo() as demo:
        for question in (" [12] ", " [7] "):
            demo.until(question)
            demo.type(END_OF_INPUT)
        code, shown = demo.end()
    assert code == 0, shown
    assert "Traceback" not in shown
    assert "No train to Lyon; no flight to Oslo. It is 4 degrees there" in shown
    assert "weather was restarted" in shown


def test_the_host_serves_on_while_it_asks_and_is_interrupted_quietly() -> None:
    with _demo() as demo:
        demo.until("travel   2025-11-25  http://127.0.0.1:")
        port = demo.until("/mcp").removesuffix("/mcp")
        demo.until(" [12] ")
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=WAIT_S)
        connection.request("GET", "/nowhere")
        assert connection.getresponse().status == 404
        connection.close()
        demo.type(INTERRUPT)
        code, shown = demo.end()
    assert code == 130, shown
    assert "Traceback" not in shown


def _plain(line: str) -> str:
    """A line without what is another each time."""
    return re.sub(r"127\.0\.0\.1:\d+/mcp +|pid \d+", "#", line)


def test_the_walk_shows_what_it_promises() -> None:
    walked = run("walk").stdout
    assert "\033" not in walked  # no colours where there is no terminal
    for words in (
        "travel 1.0 on http://127.0.0.1:",
        "versions      2026-07-28 2025-11-25 2025-06-18 2025-03-26 2024-11-05",
        "find(start: string, end: string, at_most: integer = 1)",
        '{"number":"TGV 6607","leaves":"08:00","euros":59}',
        "isError: find: missing required argument 'end'; at_most: expected at most 9, got 20",
        "2 of 2: asking for Berlin to Prague",
        "<- notifications/resources/updated: trips://mine",
        '2025-11-25  1 text block, data {"result":[{"number":"EC 171"',
        '2026-07-28  1 text block, data [{"number":"EC 171"',
        "the call finished, the lifespan was closed, the process exited with 0",
    ):
        assert words in walked
    # Asked by result and by request, answered alike.
    assert walked.count("<- elicitation/create: Which seat on TGV 6607?") == 2
    assert walked.count('<- {"train":"TGV 6607","seat":{"car":12,"window":true}}') == 2
    caller = next(line for line in walked.splitlines() if line.startswith("  the caller  "))
    assert f"  the log     {caller.removeprefix('  the caller  ')}: ZeroDivisionError" in walked
