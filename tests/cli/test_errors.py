"""What is typed or written wrongly is told in one sentence, with the right exit code."""

import ast
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import colonnade
from cli.process import WEATHER, command, written
from colonnade.__main__ import too_old

BROKEN = "def broken(:\n    pass\n"
TWO = 'from colonnade import Server\n\nmaps = Server("maps")\nweather = Server("weather")\n'
ODD = """
from colonnade import Server

city = Server("weather")
days = 3


class FastMCP: ...


mcp = FastMCP()


def make() -> Server:
    return Server("made")
"""
UNGUARDED = WEATHER + "\n\nserver.run()\n"
LOOPED = WEATHER + '\n\nimport asyncio\nasyncio.run(server.serve("http", port=0))\n'
NEEDS = "import nothing_like_this\n"
FAILS = "\n\ndef inner() -> None:\n    raise ValueError('no\\nkey')\n\n\ninner()\n"
BAD_TOOL = """
from colonnade import Server

server = Server("weather")


@server.tool
def add(a, *rest: int) -> int:
    return 1
"""

LIFESPAN = """
from contextlib import asynccontextmanager
from colonnade import Server


@asynccontextmanager
async def database(server: Server):
    raise ConnectionRefusedError("no database at 127.0.0.1:5432")
    yield


server = Server("weather", version="1.0", lifespan=database)
"""
LEAVES_BADLY = LIFESPAN.replace("    yield\n", "").replace("    raise", "    yield\n    raise")
# What the user wrote, as a traceback shows it.
SHOWN = 'Traceback (most recent call last):\n  File "{folder}/server.py", line '


def told(folder: Path, *arguments: str, **more: str) -> tuple[int, str]:
    done = command(folder, *arguments, **more)
    assert done.stdout == ""
    words = done.stderr.replace(str(folder), "{folder}").replace(sys.executable, "{python}")
    # From 3.13 on Python underlines a call in a traceback.
    return done.returncode, re.sub(r"^ +~+\^+\n", "", words, flags=re.MULTILINE)


USAGE = {
    "": "missing argument TARGET; for example: colonnade run server.py",
    "sever.py": "there is no file sever.py; did you mean server.py?",
    "unlike.py": "there is no file unlike.py; see {folder}",
    "localhost:8000/mcp": "there is no file localhost:8000/mcp; did you mean http://localhost:8000/mcp?",
    "127.0.0.1:8000": "there is no file 127.0.0.1:8000; did you mean http://127.0.0.1:8000?",
    "example.com/mcp": "there is no file example.com/mcp; did you mean https://example.com/mcp?",
    "here/server.py": "there is no directory here, and so no file here/server.py",
    "tools": "tools is a directory; give a file, such as tools/server.py",
    "notes.md": "notes.md is not a Python file; give the file that defines the server",
    "no.such.module": "there is no module no.such.module in {folder} or on sys.path",
    "not a module": "there is no file not a module; see {folder}",
    "http://127.0.0.1:9/mcp": (
        "http://127.0.0.1:9/mcp is a URL, and this command starts a server; give a Python file"
    ),
    "server.py:sever": "server.py has no 'sever'; did you mean 'server'?",
    "two.py:unlike": "two.py has no 'unlike'; its servers are maps, weather",
    "two.py": "two.py has several servers (maps, weather); choose one: two.py:maps",
    "odd.py:days": "'days' in odd.py is an int, not a colonnade.Server; its servers are city",
    "odd.py:mcp": "'mcp' in odd.py is an odd.FastMCP, not a colonnade.Server; its servers are city",
    "odd.py:make": (
        "'make' in odd.py is a function, not a colonnade.Server; "
        "if it makes one, assign the result to a name in the file: server = make()"
    ),
    "none.py": 'none.py has no colonnade.Server; add one: server = Server("name")',
    "other.py": "other.py has no colonnade.Server; its 'app' is an other.App",
}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shelf")
    (folder / "notes.md").write_text("{}")
    none, other = "x = 1\n", "class App: ...\n\n\napp = App()\n"
    return written(
        folder, server=WEATHER, two=TWO, odd=ODD, none=none, other=other, tools__server=WEATHER
    )


@pytest.mark.parametrize("target", USAGE)
def test_a_target_that_is_none_is_told_what_it_should_be(shelf: Path, target: str) -> None:
    assert told(shelf, "run", *[target] * bool(target)) == (2, f"colonnade: {USAGE[target]}\n")


def test_both_commands_say_the_same(shelf: Path) -> None:
    assert told(shelf, "serve", "sever.py") == (2, f"colonnade: {USAGE['sever.py']}\n")


OPTIONS: dict[tuple[str, ...], str] = {
    ("sreve", "server.py"): "there is no command sreve; did you mean serve?",
    ("list", "server.py"): "there is no command list; did you mean ls?",
    ("fly", "server.py"): (
        "there is no command fly; commands are run, serve, gateway, work, ls, inspect, call, read, prompt, complete, tasks, "
        "inbox, login, logout, whoami, issuer, chat, doctor, add, remove, pins, config, policy, audit"
    ),
    ("serve", "--prot", "1"): "there is no option --prot; did you mean --port?",
    ("serve", "server.py", "--quic"): "there is no option --quic; see colonnade serve --help",
    ("run", "server.py", "more"): (
        "got unexpected extra argument (more); see colonnade run --help"
    ),
    ("serve", "server.py", "--port", "70000"): (
        "70000 is not a port; use 1 to 65535, or 0 for any free one"
    ),
    ("serve", "server.py", "--port", "http"): (
        "http is not a port; use 1 to 65535, or 0 for any free one"
    ),
    ("serve", "server.py", "--path", "mcp"): "'mcp' is not a path; begin it with a slash",
    ("serve", "server.py", "--port", "0", "--host", "0.0.0.0"): (
        "0.0.0.0 is reachable from other machines, so the allowed Host headers must be given; --allow-host mcp.example.com, "
        "once for each name; or use --host 127.0.0.1"
    ),
    ("serve", "server.py", "--port", "0", "--allow-host", "http://a"): (
        "'http://a' is not a host; write 'example.com', 'example.com:8080' or '[::1]:8080', "
        "and other scripts in Punycode"
    ),
    ("serve", "server.py", "--port", "0", "--allow-origin", "a.com"): (
        "'a.com' is not an origin; write 'https://app.example.com' or 'http://localhost:5173'"
    ),
}


@pytest.mark.parametrize("arguments", OPTIONS, ids=" ".join)
def test_an_option_that_is_none_is_told_what_it_should_be(
    shelf: Path, arguments: tuple[str, ...]
) -> None:
    assert told(shelf, *arguments) == (2, f"colonnade: {OPTIONS[arguments]}\n")


# ---------------------------------------------------------------- a file that cannot be loaded


def test_a_library_that_is_not_there_is_said_with_a_way_to_get_it(tmp_path: Path) -> None:
    written(tmp_path, server=NEEDS)
    assert told(tmp_path, "run", "server.py") == (
        1,
        SHOWN + "1, in <module>\n    import nothing_like_this\n"
        "ModuleNotFoundError: No module named 'nothing_like_this'\n"
        "colonnade: server.py could not be loaded: ModuleNotFoundError: No module named "
        "'nothing_like_this'; install it: {python} -m pip install nothing_like_this\n",
    )


def test_a_part_of_an_own_package_that_is_not_there_is_not_to_be_installed(
    tmp_path: Path,
) -> None:
    written(tmp_path, server="import own.part\n", own____init__="")
    code, words = told(tmp_path, "run", "server.py")
    assert code == 1
    assert words.endswith(
        "colonnade: server.py could not be loaded: ModuleNotFoundError: No module named 'own.part'\n"
    )


def test_a_file_of_a_package_is_to_be_named_as_a_module(tmp_path: Path) -> None:
    written(tmp_path, tools__server="from . import other\n", tools__other="")
    code, words = told(tmp_path, "run", "tools/server.py")
    assert code == 1
    assert words.endswith(
        "colonnade: tools/server.py could not be loaded: ImportError: attempted relative import "
        "with no known parent package; give it as a module, tools.server, from {folder}\n"
    )


def test_what_a_file_raises_is_shown_in_its_own_lines_alone(tmp_path: Path) -> None:
    written(tmp_path, server=FAILS)
    assert told(tmp_path, "run", "server.py") == (
        1,
        SHOWN + "7, in <module>\n    inner()\n"
        '  File "{folder}/server.py", line 4, in inner\n'
        "    raise ValueError('no\\nkey')\n"
        "ValueError: no\nkey\n"
        "colonnade: server.py could not be loaded: ValueError: no key\n",
    )


def test_with_debug_our_lines_are_shown_too(tmp_path: Path) -> None:
    written(tmp_path, server=FAILS)
    code, words = told(tmp_path, "run", "server.py", "--debug")
    assert code == 1
    assert "colonnade/cli/loader.py" in words


def test_a_tool_that_cannot_be_is_shown_where_it_stands(tmp_path: Path) -> None:
    written(tmp_path, server=BAD_TOOL)
    code, words = told(tmp_path, "run", "server.py")
    assert code == 1
    assert words.startswith(SHOWN + "7, in <module>\n    @server.tool\n")
    assert "offering.py" not in words
    assert words.splitlines()[-1].startswith("colonnade: server.py could not be loaded: ")


def test_a_file_that_python_cannot_read_is_shown_where_it_is_wrong(tmp_path: Path) -> None:
    written(tmp_path, server=BROKEN)
    assert told(tmp_path, "serve", "server.py") == (
        1,
        (
            '  File "{folder}/server.py", line 1\n    def broken(:\n               ^\n'
            "SyntaxError: invalid syntax\n"
            "colonnade: server.py has a syntax error in line 1: invalid syntax\n"
        ),
    )


def test_the_file_that_is_wrong_is_named_where_it_is_another_one(tmp_path: Path) -> None:
    written(tmp_path, server="import other\n", other=BROKEN)
    code, words = told(tmp_path, "run", "server.py")
    assert code == 1
    assert words.startswith(SHOWN + "1, in <module>\n    import other\n")
    assert words.endswith("colonnade: other.py has a syntax error in line 1: invalid syntax\n")


@pytest.mark.parametrize(
    ("text", "target"),
    [(LOOPED, "server.py"), (UNGUARDED, "server.py:server")],
    ids=["over HTTP", "with a name"],
)
def test_a_file_that_serves_while_it_is_loaded_is_told_to_wait(
    tmp_path: Path, text: str, target: str
) -> None:
    written(tmp_path, server=text)
    assert told(tmp_path, "run", target) == (
        1,
        (
            "colonnade: server.py calls run() while it is loaded; move run() below "
            '`if __name__ == "__main__":`, or start it with `python server.py`\n'
        ),
    )


def test_a_file_that_exits_while_it_is_loaded_is_told_to_wait(tmp_path: Path) -> None:
    written(tmp_path, server="import sys\nsys.exit(3)\n")
    code, words = told(tmp_path, "run", "server.py")
    assert code == 1
    assert words.endswith(
        "colonnade: server.py exited with status 3 while it was loaded; "
        'move the code that exits below `if __name__ == "__main__":`\n'
    )


# ---------------------------------------------------------------- a server that cannot be served


@pytest.mark.parametrize("arguments", [("run",), ("serve", "--port", "0")], ids=" ".join)
def test_a_lifespan_that_fails_is_shown_in_its_own_lines(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    written(tmp_path, server=LIFESPAN)
    assert told(tmp_path, *arguments, "server.py") == (
        1,
        SHOWN + "8, in database\n"
        '    raise ConnectionRefusedError("no database at 127.0.0.1:5432")\n'
        "ConnectionRefusedError: no database at 127.0.0.1:5432\n"
        "colonnade: weather could not start: "
        "ConnectionRefusedError: no database at 127.0.0.1:5432\n",
    )


def test_a_lifespan_that_fails_at_the_end_is_shown_too(tmp_path: Path) -> None:
    written(tmp_path, server=LEAVES_BADLY)
    code, words = told(tmp_path, "run", "server.py")
    assert code == 1
    assert words.startswith(SHOWN)
    assert words.endswith(
        "colonnade: weather failed during shutdown: ConnectionRefusedError: no database at 127.0.0.1:5432\n"
    )


def test_a_port_in_use_is_said_so(shelf: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert told(shelf, "serve", "server.py", "--port", str(port)) == (
            4,
            (
                f"colonnade: port {port} on 127.0.0.1 is in use; "
                "choose another port, or 0 for any free one\n"
            ),
        )


HOSTS = {
    # 192.0.2.0/24 is for documentation, and so the address of no machine.
    "192.0.2.1": (
        "'192.0.2.1' is no address of this machine; serve one that is, such as 127.0.0.1"
    ),
}


@pytest.mark.parametrize("host", HOSTS)
def test_an_address_that_cannot_be_served_is_said_so(shelf: Path, host: str) -> None:
    arguments = ("serve", "server.py", "--host", host, "--port", "0")
    assert told(shelf, *arguments) == (4, f"colonnade: {HOSTS[host]}\n")


def test_a_host_that_has_no_address_is_said_so(shelf: Path) -> None:
    code, words = told(shelf, "serve", "server.py", "--host", "a b", "--port", "0")
    assert code == 4
    assert words.startswith("colonnade: 'a b' is no address to serve on: ")
    assert words.count("\n") == 1


# ---------------------------------------------------------------- the command itself


def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    code, words = told(tmp_path)
    assert code == 2
    assert words.startswith("Usage: colonnade")


def test_the_version_is_told(tmp_path: Path) -> None:
    done = command(tmp_path, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"colonnade {colonnade.__version__}\n"  # type: ignore[attr-defined]


def test_an_old_python_is_told_so() -> None:
    assert too_old((3, 9, 2)) == ("colonnade: this is Python 3.9, and 3.11 or newer is required\n")
    assert too_old(sys.version_info[:3]) == ""


def test_nothing_heavy_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    words = (
        "import sys, colonnade.__main__; print(sorted({n.partition('.')[0] for n in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    found = set(ast.literal_eval(done.stdout))
    assert not found & {"click", "msgspec", "asyncio", "uvicorn", "cryptography", "pydantic"}


def test_a_server_never_pays_for_a_client(tmp_path: Path) -> None:
    words = "import sys, colonnade.cli.app; print([n for n in sys.modules if 'colonnade' in n])"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert not [name for name in ast.literal_eval(done.stdout) if "client" in name]
