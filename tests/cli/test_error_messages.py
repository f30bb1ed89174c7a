"""The first mistakes that people make, each with the sentence that it gets, in full.

Nine are mistakes: each gets one sentence, with what to do. Three are manners: every help has an
example, nothing is said or coloured where nobody asked for it, and NO_COLOR is heard.

Rules: real processes; an old Python is this one with another number.
"""

import ast
import http.server
import re
import shlex
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import colonnade as package
from cli.process import WAIT_S, WEATHER, Process, call, command, environment, written
from cli.terminal import INTERRUPT, PseudoTerminal
from colonnade.__main__ import OLDEST
from colonnade.cli.app import COMMANDS

VERBS = list(COMMANDS)
ROOT = Path(__file__).resolve().parent.parent.parent
ESCAPE = "\x1b"
IN_A_LOOP = (
    WEATHER
    + """

import asyncio


async def main() -> None:
    server.run()


asyncio.run(main())
"""
)
OLD = "import sys; sys.version_info = (3, 9, 2, 'final', 0); sys.hexversion = 0x030902F0; "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=WEATHER)


def told(folder: Path, *arguments: str) -> tuple[int, str]:
    done = command(folder, *arguments)
    assert done.stdout == ""
    return done.returncode, done.stderr


# ---------------------------------------------------------------- nine mistakes


def test_1_a_server_that_is_run_by_hand_says_what_it_waits_for(folder: Path) -> None:
    with PseudoTerminal(folder, "run", "server.py") as terminal:
        terminal.until("Ctrl-C stops it\n")
        terminal.type(INTERRUPT)
        code, shown = terminal.end()
    assert code == 130
    assert shown.removesuffix("^C") == (
        "weather 1.0 is waiting for an MCP client on standard input; clients start it themselves; "
        "for HTTP, use colonnade serve server.py; Ctrl-C stops it\n"
    )


def test_2_a_server_that_is_run_in_a_loop_says_what_to_write_instead(folder: Path) -> None:
    written(folder, looped=IN_A_LOOP)
    done = subprocess.run(
        [sys.executable, "looped.py"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment(),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "colonnade.errors.LocalProtocolError: an event loop is already running: "
        "use `await server.serve('stdio')`"
    )


def test_3_a_file_that_is_not_there(folder: Path) -> None:
    assert told(folder, "run", "sever.py") == (
        2,
        "colonnade: there is no file sever.py; did you mean server.py?\n",
    )


def test_4_a_name_that_the_file_has_not(folder: Path) -> None:
    assert told(folder, "run", "server.py:sever") == (
        2,
        "colonnade: server.py has no 'sever'; did you mean 'server'?\n",
    )


def test_5_a_module_that_cannot_be_imported(folder: Path) -> None:
    written(folder, needs="import nothing_like_this\n")
    code, words = told(folder, "run", "needs.py")
    assert code == 1
    assert words == (
        f'Traceback (most recent call last):\n  File "{folder}/needs.py", line 1, in <module>\n'
        "    import nothing_like_this\n"
        "ModuleNotFoundError: No module named 'nothing_like_this'\n"
        "colonnade: needs.py could not be loaded: ModuleNotFoundError: No module named "
        f"'nothing_like_this'; install it: {sys.executable} -m pip install nothing_like_this\n"
    )


def test_6_a_port_that_is_in_use(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert told(folder, "serve", "server.py", "--port", str(port)) == (
            4,
            (
                f"colonnade: port {port} on 127.0.0.1 is in use; "
                "choose another port, or 0 for any free one\n"
            ),
        )


def test_7_a_server_that_dies(folder: Path) -> None:
    written(folder, dies="import sys\n\nsys.exit('no database at 127.0.0.1:5432')\n")
    code, words = told(folder, "ls", "--", sys.executable, "dies.py")
    assert code == 4
    assert re.sub(r"pid \d+", "pid 4711", words) == (
        "colonnade: server 'dies' (pid 4711) exited with 1 during initialize; "
        "it had sent no message; its last lines: no database at 127.0.0.1:5432\n"
    )


class Page(http.server.BaseHTTPRequestHandler):
    """A web page, whatever is asked."""

    def answer(self) -> None:
        body = b"<!doctype html><title>Weather</title>"
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def page() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(WAIT_S)


def test_8_an_address_that_is_a_web_page(folder: Path, page: int) -> None:
    code, words = told(folder, "ls", f"http://127.0.0.1:{page}/")
    assert code == 5
    assert words == (
        f"colonnade: 127.0.0.1:{page} answered initialize with 200 and text/html, which is a web "
        f"page and not MCP; is http://127.0.0.1:{page}/ the endpoint? Its path is often /mcp. "
        "It begins: '<!doctype html><title>Weather</title>'\n"
    )


START = {
    "python -m colonnade": "import runpy; runpy.run_module('colonnade', run_name='__main__')",
    "colonnade": "from colonnade.__main__ import main; raise SystemExit(main())",
}


@pytest.mark.parametrize("way", START)
def test_9_a_python_that_is_too_old(folder: Path, way: str) -> None:
    done = _with_code(folder, OLD + START[way])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("colonnade: this is Python 3.9, and 3.11 or newer is required\n")


def test_9_a_python_that_is_too_old_for_a_script_of_ones_own(folder: Path) -> None:
    done = _with_code(folder, OLD + "from colonnade import Server")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == (
        "ImportError: colonnade needs Python 3.11 or newer, and this is Python 3.9"
    )


def _with_code(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=environment(),
    )


@pytest.mark.parametrize("name", ["__init__", "__main__"])
def test_9_an_old_python_can_read_what_tells_it_so(name: str) -> None:
    source = Path(package.__file__).parent / f"{name}.py"
    tree = ast.parse(source.read_text(), feature_version=(3, 7))
    # Annotations are looked at when a function is defined, and `list[str]` is new in 3.9.
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            said = [node.returns, *(argument.annotation for argument in node.args.args)]
            assert not [one for one in said if isinstance(one, ast.Subscript | ast.BinOp)]


def test_9_an_installer_knows_it_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=" + ".".join(map(str, OLDEST))


# ---------------------------------------------------------------- three manners


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_10_every_help_has_an_example_that_can_be_typed(tmp_path: Path, verb: str) -> None:
    done = command(tmp_path, *[verb] * bool(verb), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    options = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", done.stdout.partition("Example")[0]))
    lines = done.stdout.partition("Example")[2].replace(": colonnade", "\ncolonnade").splitlines()
    examples = [re.split(r"\s{2,}", line.strip())[0] for line in lines if "colonnade " in line]
    assert examples
    for example in examples:
        words = shlex.split(example)
        assert words[:2] == ["colonnade", verb or "run"]
        before = words[: words.index("--")] if "--" in words else words
        assert {word for word in before if word.startswith("-")} <= options, example


TALK = {
    "ls": ("ls", "server.py"),
    "inspect": ("inspect", "server.py"),
    "call": ("call", "server.py", "add", "a=2", "b=3"),
    "a mistake": ("run", "sever.py"),
    "help": ("--help",),
    "add": ("add", "server.py", "--to", "cursor"),
}


@pytest.mark.parametrize("what", TALK)
def test_11_nothing_is_styled_where_there_is_no_terminal(folder: Path, what: str) -> None:
    done = command(folder, *TALK[what], TERM="xterm-256color", FORCE_COLOR="1", HOME=str(folder))
    assert ESCAPE not in done.stdout + done.stderr
    assert done.stdout + done.stderr


def test_11_there_is_no_banner(folder: Path) -> None:
    with Process(folder, "run", "server.py") as process:
        assert "result" in process.ask(call("add", a=2, b=3))
        process.input.close()
        assert process.end() == 0
        assert process.err.rest() == []
    with Process(folder, "serve", "server.py", "--port", "0") as process:
        line = process.up()
        assert line == f"weather 1.0 on http://127.0.0.1:{process.port}/mcp"
        process.process.terminate()
        assert process.end() == 0
        assert (process.out.rest(), process.err.rest()) == ([line], [])
    done = command(folder, "call", "server.py", "add", "a=2", "b=3")
    assert (done.stdout, done.stderr) == ("5\n", "")


@pytest.mark.parametrize("what", TALK)
def test_12_no_color_is_heard_at_a_terminal(folder: Path, what: str) -> None:
    with PseudoTerminal(folder, *TALK[what], NO_COLOR="1", HOME=str(folder)) as terminal:
        assert ESCAPE not in terminal.end()[1]


def test_12_without_it_headings_stand_out(folder: Path) -> None:
    with PseudoTerminal(folder, "ls", "server.py") as terminal:
        assert f"{ESCAPE}[1mtools{ESCAPE}[0m" in terminal.end()[1]
