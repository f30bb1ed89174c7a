"""Which server is meant, how it is reached, and what its end means for the exit code."""

import http.server
import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.commands.test_call import told
from cli.commands.test_ls import EXAMPLES, said
from cli.process import COMMAND, Process, command, written
from cli.scripted_server import scripted_program, tool

SECRET = "s3cret-t0ken"
PYTHON = COMMAND[0]
VERBS: dict[str, tuple[str, ...]] = {
    "ls": (),
    "inspect": (),
    "call": ("look",),
    "read": ("a://b",),
    "prompt": ("ask",),
    "complete": ("prompt:ask", "who"),
}


# ---------------------------------------------------------------- what is typed

USAGE: dict[tuple[str, ...], str] = {
    ("inspect",): "missing argument TARGET; for example: colonnade inspect server.py",
    ("call",): "missing argument TARGET; for example: colonnade call server.py",
    ("call", "server.py"): (
        "missing argument TOOL; for example: colonnade call server.py TOOL key=value; "
        "colonnade ls server.py lists the tools"
    ),
    ("call", "--", "python", "server.py"): (
        "missing argument TOOL; for example: colonnade call server.py TOOL key=value; "
        "colonnade ls server.py lists the tools"
    ),
    ("read", "server.py"): (
        "missing argument URI; for example: colonnade read server.py URI; "
        "colonnade ls server.py lists the resources"
    ),
    ("prompt", "server.py"): (
        "missing argument NAME; for example: colonnade prompt server.py NAME key=value; "
        "colonnade ls server.py lists the prompts"
    ),
    ("complete", "server.py"): (
        "missing argument prompt:NAME|template:URI; for example: "
        "colonnade complete server.py prompt:NAME ARGUMENT PREFIX"
    ),
    ("complete", "server.py", "prompt:a"): (
        "missing argument ARGUMENT; for example: "
        "colonnade complete server.py prompt:NAME ARGUMENT PREFIX"
    ),
    ("ls", "sever.py"): "there is no file sever.py; did you mean server.py?",
    ("ls", "tools"): "tools is a directory; give a file, such as tools/server.py",
    ("ls", "mcp.json"): "mcp.json has no servers",
    ("run", "mcp.json"): (
        "mcp.json is a configuration file, not a server; give the file of a server; "
        "colonnade ls mcp.json lists the servers"
    ),
    ("serve", "mcp.json"): (
        "mcp.json is a configuration file, not a server; give the file of a server; "
        "colonnade ls mcp.json lists the servers"
    ),
    ("ls", "server.py", "--server", "notes"): (
        "--server is for configuration files; this target is a single server"
    ),
    ("ls", "mcp.json", "-H", "a: b"): (
        "--header is for URLs; add headers to the entry of the server"
    ),
    ("ls", "mcp.json", "--env", "A=b"): (
        "--env is for single servers; add env to the entry of the server"
    ),
    ("ls", "ftp://example.com/mcp"): "ftp is not a URL scheme of MCP; use https:// or http://",
    ("ls", "http://[/mcp"): "invalid URL: its host or port cannot be parsed",
    (
        "ls",
        "--",
    ): "-- must be followed by the command that starts the server; for example -- uvx mcp-server-git",
    (
        "ls",
        "--",
        "",
    ): "-- must be followed by the command that starts the server; for example -- uvx mcp-server-git",
    ("ls", "server.py", "--as", "2020-01-01"): (
        "--as 2020-01-01: unknown revision; known revisions are 2026-07-28, 2025-11-25, "
        "2025-06-18, 2025-03-26 and 2024-11-05"
    ),
    ("ls", "server.py", "--timeout", "soon"): (
        "--timeout soon: expected a number of seconds greater than 0"
    ),
    (
        "ls",
        "server.py",
        "--timeout",
        "0",
    ): "--timeout 0: expected a number of seconds greater than 0",
    ("ls", "server.py", "-H", "a: b"): (
        "--header is for URLs; use --env for a server that is started as a process"
    ),
    ("ls", "http://127.0.0.1:9/mcp", "--env", "A=b"): (
        "--env is for servers that are started as a process; this target is a URL"
    ),
    ("ls", "server.py", "--env", "NO_SUCH_ONE"): (
        "--env NO_SUCH_ONE: the environment variable is not set; give NO_SUCH_ONE=VALUE"
    ),
    ("ls", "server.py", "--env", "=x"): "--env: expected NAME or NAME=VALUE",
    ("call", "server.py", "add", "--json", "--out", "x"): (
        "--out and --json exclude each other: the JSON has all of the content"
    ),
    ("ls", "server.py", "--jsn"): "there is no option --jsn; did you mean --json?",
    ("call", "add", "server.py"): "TARGET comes before TOOL; colonnade call server.py add",
    ("call", "add", "server.py:server", "a=1"): (
        "TARGET comes before TOOL; colonnade call server.py:server add"
    ),
    ("call", "add", "http://127.0.0.1:9/mcp"): (
        "TARGET comes before TOOL; colonnade call http://127.0.0.1:9/mcp add"
    ),
    (
        "prompt",
        "review",
        "server.py",
    ): "TARGET comes before NAME; colonnade prompt server.py review",
    ("read", "notes", "server.py"): "TARGET comes before URI; colonnade read server.py notes",
    ("call", "server.py", "add", "--number", "1"): (
        "there is no option --number; arguments are given as key=value: number=VALUE"
    ),
    ("call", "server.py", "add", "--number=1"): (
        "there is no option --number; arguments are given as key=value: number=VALUE"
    ),
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = written(tmp_path_factory.mktemp("shelf"), server=ADDS, tools__server=ADDS)
    (folder / "mcp.json").write_text("{}")
    return folder


ADDS = """
import os
from colonnade import Server

server = Server("adds")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def variables() -> list[str]:
    return sorted(os.environ)
"""


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_what_is_typed_wrongly_is_told_what_it_should_be(
    shelf: Path, arguments: tuple[str, ...]
) -> None:
    assert told(shelf, *arguments) == (2, f"colonnade: {USAGE[arguments]}\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_takes_the_same_targets_and_flags(tmp_path: Path, verb: str) -> None:
    written(tmp_path, hand=scripted_program())
    target = ("--", PYTHON, "hand.py")
    flags = ("--json", "--as", "2025-06-18", "--timeout", "20", "--debug", "--env", "A=b")
    first, last = VERBS[verb][:1], VERBS[verb][1:]
    codes = [
        command(tmp_path, verb, "hand.py", *VERBS[verb]).returncode,
        command(tmp_path, verb, *VERBS[verb], *target).returncode,
        command(tmp_path, verb, *first, *flags, *last, *target).returncode,
    ]
    assert len(set(codes)) == 1
    shown = command(tmp_path, verb, "--help").stdout
    for flag in ("--json", "--as", "--header", "--header-env", "--env", "--timeout", "--debug"):
        assert f"{flag} " in shown
    assert f"colonnade {verb} server.py" in shown


def test_verbs_are_listed_in_the_order_in_which_people_meet_them(tmp_path: Path) -> None:
    shown = command(tmp_path, "--help").stdout.partition("Commands:\n")[2]
    verbs = [
        line.split()[0] for line in shown.splitlines() if line.startswith("  ") and line[2:3] != " "
    ]
    first = ["run", "serve", "gateway", "work", "ls", "inspect", "call", "read", "prompt"]
    assert verbs[:9] == first


# ---------------------------------------------------------------- files


def test_a_file_needs_no_line_that_runs_it(shelf: Path) -> None:
    assert said(shelf, "call", "server.py", "add", "a=1", "b=2") == "3\n"


def test_a_folder_with_something_called_colonnade_in_it_is_no_trap(tmp_path: Path) -> None:
    written(tmp_path, server=ADDS, colonnade="raise SystemExit('not this one')", click="1 / 0")
    done = Process(tmp_path, "call", "server.py", "add", "a=1", "b=2", start=[PYTHON, SCRIPT])
    with done as process:
        assert process.out.next() == "3"
        assert process.end() == 0


SCRIPT = str(Path(sys.executable).with_name("colonnade"))


def test_a_server_gets_few_variables_and_those_that_it_is_given(shelf: Path) -> None:
    arguments = ("call", "server.py", "variables", "--env", "GIVEN=1", "--env", "PASSED")
    found = json.loads(said(shelf, *arguments, PASSED="2", KEPT_BACK="3"))
    assert {"GIVEN", "PASSED", "PATH"} <= set(found)
    assert "KEPT_BACK" not in found


def test_what_is_wrong_with_a_file_is_told_in_its_own_lines(tmp_path: Path) -> None:
    written(tmp_path, server="from colonnade import Server\nimport nothing_like_this\n")
    code, words = told(tmp_path, "ls", "server.py")
    assert code == 4
    assert words.startswith("colonnade: server 'server.py' (pid ")
    assert "    ModuleNotFoundError: No module named 'nothing_like_this'\n" in words
    assert "nothing_like_this; install it: " in words.replace("\n", " ").replace("'", "")


# ---------------------------------------------------------------- exit codes


def test_a_command_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    assert told(tmp_path, "ls", "--", "no-such-server") == (
        4,
        (
            "colonnade: cannot start server 'no-such-server': there is no command 'no-such-server'; "
            "install it, or give its full path\n"
        ),
    )


def test_an_address_where_nobody_is_is_unreachable(tmp_path: Path) -> None:
    assert told(tmp_path, "ls", "http://127.0.0.1:9/mcp") == (
        4,
        "colonnade: 127.0.0.1:9 cannot be reached: Connection refused; is the server running?\n",
    )


def test_a_server_that_dies_is_told_with_its_last_lines(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool(), tools_call="die"))
    code, words = told(tmp_path, "call", "hand.py", "look")
    assert code == 4
    assert "exited with 3 during 'look'" in words
    assert "its last lines:\n    the server is awake\n    Traceback: no more memory\n" in words


def test_a_server_that_is_silent_is_given_up(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool(), tools_call="silence"))
    words = "no answer to tools/call within 2 s; whether it had an effect is unknown"
    assert told(tmp_path, "call", "hand.py", "look", "--timeout", "2") == (
        4,
        f"colonnade: server 'hand': {words}\n",
    )


def test_a_server_that_breaks_the_protocol_is_told_so(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list="rubbish"))
    code, words = told(tmp_path, "ls", "hand.py")
    assert (code, words.count("\n")) == (5, 1)
    assert words.startswith("colonnade: server 'hand': ")


def test_a_revision_that_a_server_does_not_speak_is_told(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program())
    code, words = told(tmp_path, "ls", "hand.py", "--as", "2026-07-28")
    assert (code, words.count("\n")) == (5, 1)


def test_an_error_of_the_server_is_told_with_its_number(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program())
    assert told(tmp_path, "complete", "hand.py", "prompt:ask", "name") == (
        5,
        "colonnade: no such method: completion/complete (-32601)\n",
    )


def test_with_debug_our_own_lines_are_shown(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program())
    code, words = told(tmp_path, "complete", "hand.py", "prompt:ask", "name", "--debug")
    assert code == 5
    assert "Traceback" in words
    assert words.endswith("colonnade: no such method: completion/complete (-32601)\n")


def test_with_debug_what_a_server_writes_beside_its_messages_is_shown(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool(), tools_call="die"))
    _, words = told(tmp_path, "call", "hand.py", "look", "--debug")
    assert "hand.py stderr: the server is awake\n" in words
    assert "hand.py stderr: Traceback: no more memory\n" in words
    assert "writes:" not in told(tmp_path, "call", "hand.py", "look")[1]


def test_an_interrupt_is_an_exit_code_of_its_own(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool(), tools_call="silence"))
    with Process(tmp_path, "call", "hand.py", "look", "--timeout", "60") as process:
        _wait_for(tmp_path / "silent")
        process.signal(signal.SIGINT)
        assert process.end() == 130
        assert process.err.rest() == []


def _wait_for(path: Path) -> None:
    """Until a file is there, which another process makes."""
    waited = threading.Event()
    for _ in range(3000):
        if path.exists():
            return
        waited.wait(0.01)
    raise AssertionError(f"no {path}")


# ---------------------------------------------------------------- headers


class Refusing(http.server.BaseHTTPRequestHandler):
    """Answers every request with one status, and keeps the headers that it was sent."""

    status = 401
    seen: list[dict[str, str]]

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.rfile.read(int(self.headers.get("content-length", 0)))
        type(self).seen.append(dict(self.headers.items()))
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def refusing(status: int) -> Generator[tuple[str, list[dict[str, str]]]]:
    """An address where everything is refused, and what was sent there."""
    seen: list[dict[str, str]] = []
    handler = type("Handler", (Refusing,), {"status": status, "seen": seen})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp?key={SECRET}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


STATUSES = {
    401: (3, "requires authentication; log in: colonnade login http://127.0.0.1:"),
    403: (3, "permission denied"),
    503: (4, "try again later"),
    404: (5, "is http://127.0.0.1:"),
}


@pytest.mark.parametrize("status", STATUSES)
def test_what_an_address_refuses_is_an_exit_code(tmp_path: Path, status: int) -> None:
    with refusing(status) as (url, _):
        code, words = told(tmp_path, "ls", url)
    assert (code, words.count("\n")) == (STATUSES[status][0], 1)
    assert STATUSES[status][1] in words
    assert SECRET not in words


def test_headers_are_sent_and_never_shown(tmp_path: Path) -> None:
    with refusing(401) as (url, seen):
        given = ("-H", f"X-Key: {SECRET}", "--header-env", "Authorization=TOKEN")
        for debug in ((), ("--debug",)):
            code, words = told(tmp_path, "ls", url, *given, *debug, TOKEN=f"Bearer {SECRET}")
            assert code == 3
            assert SECRET not in words
    assert {one["X-Key"] for one in seen} == {SECRET}
    assert {one["Authorization"] for one in seen} == {f"Bearer {SECRET}"}


BAD_HEADERS = {
    ("-H", SECRET): "--header: expected NAME:VALUE",
    (
        "-H",
        f": {SECRET}",
    ): "--header: expected NAME:VALUE",
    ("-H", f"X Y: {SECRET}"): "'X Y' is not a header name",
    ("-H", f"X: {SECRET}\r\nHost: b"): "the value of X has characters that a header cannot have",
    ("-H", f"Host: {SECRET}"): "Host is set by the client itself; leave it out",
    ("--header-env", SECRET): "--header-env: expected NAME=VARIABLE, such as Authorization=TOKEN",
    ("--header-env", f"X={SECRET}"): "--header-env X: the environment variable is not set",
}


@pytest.mark.parametrize("given", BAD_HEADERS, ids=lambda given: given[1].replace(SECRET, "…"))
def test_a_header_that_is_none_is_told_without_its_value(
    tmp_path: Path, given: tuple[str, str]
) -> None:
    code, words = told(tmp_path, "ls", "http://127.0.0.1:9/mcp", *given)
    assert (code, words) == (2, f"colonnade: {BAD_HEADERS[given]}\n")


def test_a_variable_of_a_server_is_not_shown_when_it_dies(tmp_path: Path) -> None:
    written(tmp_path, hand="import os, sys\nsys.exit(os.environ['TOKEN'])\n")
    code, words = told(tmp_path, "ls", "hand.py", "--env", "TOKEN", TOKEN=SECRET)
    assert code == 4
    assert "exited with 1" in words
    assert SECRET not in words


def test_an_address_is_reached_over_http_with_its_headers(tmp_path: Path) -> None:
    with Process(EXAMPLES, "serve", "weather.py", "--port", "0") as served:
        served.up()
        url = f"http://127.0.0.1:{served.port}/mcp"
        arguments = ("call", url, "record", "station=roof", "celsius=2.5", "-H", "X-Any: thing")
        assert float(said(tmp_path, *arguments)) > 0


def test_nothing_is_left_of_a_server_that_was_started(tmp_path: Path) -> None:
    written(tmp_path, hand=scripted_program(tools_list=tool()))
    assert said(tmp_path, "ls", "hand.py") == "tools\n  look\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize("path", ["", "/", "/weather"])
def test_a_path_that_is_not_found_has_the_usual_one_as_a_hint(path: str) -> None:
    with Process(EXAMPLES, "serve", "notes.py", "--port", "0") as served:
        served.up()
        url = f"http://127.0.0.1:{served.port}"
        code, words = told(EXAMPLES, "ls", url + path)
        assert code == 5
        assert words.endswith(f"; check the path of the URL; try {url}/mcp\n")
