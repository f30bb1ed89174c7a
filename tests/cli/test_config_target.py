"""A configuration as the target of a command: all its servers, each beside the others.

Rules: real files and real children; a server that was started leaves a file behind, so that it is
seen which ones were.
"""

import asyncio
import http.server
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.commands.test_ls import EXAMPLES
from cli.process import COMMAND, command, written
from cli.scripted_server import scripted_program, tool
from cli.terminal import PseudoTerminal
from cli.test_inbox_prompt import Person
from colonnade.cli.connections import input_request_handler
from colonnade.host.input_requests import HostInputRequest
from colonnade.protocol import types as t
from live import live

PYTHON = COMMAND[0]
RUN = COMMAND[1:]

NOTES = """
from pathlib import Path

from colonnade import Server

Path("NAME was started").touch()
server = Server("notes", version="1")


@server.tool
def write(name: str, count: int = 1) -> str:
    "Write a note."
    return f"{name} {count}"


@server.resource("notes://all")
def everything() -> str:
    "Every note."
    return "NAME has all"


@server.resource("notes://NAME/{name}")
def one(name: str) -> str:
    "One note."
    return f"NAME has {name}"


@server.prompt
def review(code: str, language: str = "python") -> str:
    "Review code."
    return f"NAME: {code}"


@server.completion(review, "language")
def languages(prefix: str) -> list[str]:
    return ["python", "pascal"]
"""


def started(*args: str, **more: Any) -> dict[str, Any]:
    return {"command": PYTHON, "args": [*args], **more}


def noted(name: str) -> dict[str, Any]:
    return started(*RUN, "run", f"{name}.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two servers that work, one that is not there and one that dies."""
    monkeypatch.setenv("COLONNADE_HOME", str(tmp_path / "home"))
    written(
        tmp_path,
        mine=NOTES.replace("NAME", "mine"),
        other=NOTES.replace("NAME", "other").replace("def write", "def scribble"),
        dies="raise SystemExit('no key was given')",
    )
    configure(
        tmp_path / "mcp.json",
        mine=noted("mine"),
        gone={"command": "no-such-program-here"},
        other=noted("other"),
        dies=started("dies.py"),
    )
    return tmp_path


def configure(file: Path, **servers: Any) -> str:
    """A file of servers that somebody trusts."""
    file.write_text(json.dumps({"mcpServers": servers}, indent=1))
    return trusted(file)


def trusted(file: Path) -> str:
    done = command(file.parent, "config", "trust", file.name, "--yes")
    assert done.returncode == 0, done.stderr
    return file.name


def were_started(folder: Path) -> list[str]:
    return sorted(path.name.partition(" ")[0] for path in folder.glob("* was started"))


GONE = (
    "colonnade: cannot start server 'gone': there is no command 'no-such-program-here'; install it, "
    "or give its full path\n"
)


@pytest.mark.parametrize("verb", ["ls", "inspect", "doctor", "call"])
def test_a_server_that_is_switched_off_is_started_by_no_command(verb: str, folder: Path) -> None:
    off = noted("other") | {"disabled": True}
    file = configure(folder / "mcp.json", mine=noted("mine"), other=off)
    more = ["other__scribble", "name=a"] if verb == "call" else []
    done = command(folder, verb, file, *more)
    assert done.returncode == (2 if verb == "call" else 0), done.stderr
    assert were_started(folder) == ([] if verb == "call" else ["mine"])


# ---------------------------------------------------------------- ls


def test_every_server_is_listed_and_a_broken_one_is_told_beside_the_list(folder: Path) -> None:
    done = command(folder, "ls", "mcp.json")
    assert done.returncode == 0
    assert done.stdout == (
        "mine\n"
        "  tools\n"
        "    mine__write  name [count]  Write a note.\n"
        "\n"
        "  prompts\n"
        "    mine__review  code [language]  Review code.\n"
        "\n"
        "  resources\n"
        "    notes://all  everything  Every note.\n"
        "\n"
        "  templates\n"
        "    notes://mine/{name}  one  One note.\n"
        "\n"
        "other\n"
        "  tools\n"
        "    other__scribble  name [count]  Write a note.\n"
        "\n"
        "  prompts\n"
        "    other__review  code [language]  Review code.\n"
        "\n"
        "  resources\n"
        "    notes://all  everything  Every note.\n"
        "\n"
        "  templates\n"
        "    notes://other/{name}  one  One note.\n"
    )
    gone, dies = done.stderr.splitlines(keepends=True)
    assert gone == GONE
    assert dies.startswith("colonnade: server 'dies' (pid ")
    assert dies.endswith("its last lines: no key was given\n")


def test_the_json_has_servers_by_their_keys_and_problems(folder: Path) -> None:
    done = command(folder, "ls", "mcp.json", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found) == ["servers", "problems"]
    assert list(found["servers"]) == ["mine", "other"]
    mine = found["servers"]["mine"]
    assert list(mine) == ["tools", "prompts", "resources", "resourceTemplates"]
    (write,) = mine["tools"]
    assert (write["name"], write["original"], write["server"]) == ("mine__write", "write", "mine")
    assert [one["server"] for one in found["problems"]] == ["gone", "dies"]


def test_one_server_of_several_is_listed_alone(folder: Path) -> None:
    done = command(folder, "ls", "mcp.json", "--server", "other")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "other"
    assert were_started(folder) == ["other"]


def test_where_nothing_works_the_first_failure_is_the_exit_code(folder: Path) -> None:
    file = configure(folder / "none.json", gone={"command": "no-such-program-here"})
    for verb in ("ls", "inspect"):
        done = command(folder, verb, file)
        assert (done.returncode, done.stdout, done.stderr) == (4, "", GONE)


def test_a_file_that_is_broken_is_told_with_its_place(folder: Path) -> None:
    (folder / "broken.json").write_text('{"mcpServers": {"git": {"command" "uvx"}}}')
    done = command(folder, "ls", "broken.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "broken.json:1:35: " in done.stderr


def test_a_server_that_hangs_keeps_nothing_of_the_others_back(folder: Path) -> None:
    (folder / "mute.py").write_text("import sys\nsys.stdin.read()\n")
    file = configure(folder / "hung.json", mute=started("mute.py"), mine=noted("mine"))
    done = command(folder, "ls", file, "--timeout", "4")
    assert done.returncode == 0
    assert "mine__write" in done.stdout
    assert done.stderr == "colonnade: server 'mute': it did not start within 4 s\n"


@contextmanager
def guarded() -> Generator[str]:
    """The address of a server that lets nobody in."""

    class Guard(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(401)
            self.send_header("content-length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/mcp"
        finally:
            server.shutdown()
            thread.join()


def test_a_server_that_wants_a_login_says_what_to_type(folder: Path) -> None:
    with guarded() as url:
        file = configure(folder / "web.json", web={"type": "http", "url": url})
        done = command(folder, "ls", file)
        assert (done.returncode, done.stdout) == (3, "")
        assert f"log in: colonnade login {url}" in done.stderr
        done = command(folder, "call", file, "web__look")
        assert (done.returncode, done.stdout) == (3, "")
        assert f"log in: colonnade login {url}" in done.stderr
        file = configure(folder / "both.json", web={"url": url}, mine=noted("mine"))
        done = command(folder, "ls", file)
        assert done.returncode == 0
        assert "mine__write" in done.stdout
        assert f"log in: colonnade login {url}" in done.stderr


# ---------------------------------------------------------------- call


def test_a_call_starts_the_server_of_its_name_and_no_other(folder: Path) -> None:
    done = command(folder, "call", "mcp.json", "other__scribble", "name=tea", "count=2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "tea 2\n", "")
    assert were_started(folder) == ["other"]


def told(folder: Path, *arguments: str) -> tuple[int, str]:
    done = command(folder, *arguments)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_a_name_that_is_none_is_told_what_there_is(folder: Path) -> None:
    begin = (
        "names start with the server: mine__…, gone__…, other__…, dies__…; "
        "colonnade ls mcp.json lists them\n"
    )
    assert told(folder, "call", "mcp.json", "write") == (
        2,
        f"colonnade: there is no write in mcp.json; {begin}",
    )
    assert were_started(folder) == []
    assert told(folder, "call", "mcp.json", "mine__wriet") == (
        2,
        "colonnade: there is no tool mine__wriet; did you mean mine__write?\n",
    )
    assert told(folder, "call", "mcp.json", "mine__write", "nam=x")[0] == 2
    assert told(folder, "prompt", "mcp.json", "mine__view") == (
        2,
        "colonnade: there is no prompt mine__view; did you mean mine__review?\n",
    )


def test_a_call_of_a_broken_server_says_what_is_wrong_with_it(folder: Path) -> None:
    assert told(folder, "call", "mcp.json", "gone__look") == (4, GONE)
    code, words = told(folder, "call", "mcp.json", "dies__look")
    assert code == 4
    assert words.endswith("its last lines: no key was given\n")
    wanting = noted("mine") | {"env": {"KEY": "${NO_SUCH_ONE}"}}
    file = configure(folder / "wants.json", wants=wanting, mine=noted("mine"))
    code, words = told(folder, "call", file, "wants__look")
    assert code == 2
    assert "the environment variable NO_SUCH_ONE is not set" in words
    assert command(folder, "call", file, "mine__write", "name=x").stdout == "x 1\n"


def test_our_own_file_gives_names_of_its_own(folder: Path) -> None:
    (folder / "colonnade.toml").write_text(
        f"""
[servers.mine]
command = {json.dumps(PYTHON)}
args = {json.dumps([*RUN, "run", "mine.py"])}
namespace = "notes"
aliases = {{ jot = "write" }}
"""
    )
    trusted(folder / "colonnade.toml")
    assert command(folder, "call", "colonnade.toml", "notes__write", "name=a").stdout == "a 1\n"
    assert command(folder, "call", "colonnade.toml", "jot", "name=b").stdout == "b 1\n"


# ---------------------------------------------------------------- read, prompt, complete


def test_a_resource_is_read_of_the_server_that_has_it(folder: Path) -> None:
    done = command(folder, "read", "mcp.json", "notes://mine/tea")
    assert (done.returncode, done.stdout) == (0, "mine has tea")


def test_an_address_that_several_have_needs_a_server(folder: Path) -> None:
    code, words = told(folder, "read", "mcp.json", "notes://all")
    assert code == 5
    assert words == (
        "colonnade: several servers have the resource 'notes://all': 'mine', 'other' (-32602); "
        "choose the server with --server KEY\n"
    )
    done = command(folder, "read", "mcp.json", "notes://all", "--server", "other")
    assert (done.returncode, done.stdout) == (0, "other has all")


def test_a_prompt_and_its_completion_are_those_of_their_server(folder: Path) -> None:
    done = command(folder, "prompt", "mcp.json", "other__review", "code=x", "--json")
    (message,) = json.loads(done.stdout)["messages"]
    assert message["content"]["text"] == "other: x"
    done = command(folder, "complete", "mcp.json", "prompt:mine__review", "language", "p")
    assert done.stdout == "python\npascal\n"
    assert were_started(folder) == ["mine", "other"]


# ---------------------------------------------------------------- inspect


def test_every_server_is_inspected_in_its_own_words(folder: Path) -> None:
    done = command(folder, "inspect", "mcp.json")
    assert done.returncode == 0
    assert "mine: notes 1\n  revision      2026-07-28\n" in done.stdout
    assert "\nother: notes 1\n" in done.stdout
    assert "  write(name: string, count: integer = 1)\n" in done.stdout
    assert done.stderr.startswith(GONE)


def test_an_inspection_in_an_older_revision_and_as_json(folder: Path) -> None:
    (folder / "hand.py").write_text(scripted_program(tools_list=tool()))
    file = configure(folder / "two.json", mine=noted("mine"), hand=started("hand.py"))
    done = command(folder, "inspect", file, "--json", "--as", "2025-06-18")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["problems"] == []
    assert {key: one["revision"] for key, one in found["servers"].items()} == {
        "mine": "2025-06-18",
        "hand": "2025-06-18",
    }
    assert command(folder, "inspect", file, "--strict").returncode == 1


# ---------------------------------------------------------------- trust, questions, logins


@pytest.mark.parametrize("name", ["mcp.json", ".mcp.json"])
def test_a_file_is_not_started_before_somebody_trusts_it(folder: Path, name: str) -> None:
    file = folder / name
    servers = {"mine": noted("mine"), "other": noted("other")}
    file.write_text(json.dumps({"mcpServers": servers}))
    for verb in (
        ("ls",),
        ("ls", "--server", "mine"),
        ("call", "mine__write"),
        ("inspect",),
        ("read", "notes://all"),
        ("prompt", "mine__review", "code=x"),
        ("doctor",),
        ("chat", "--model", "tiny", "--url", "http://127.0.0.1:9/v1", "--yes"),
    ):
        done = command(folder, verb[0], name, *verb[1:])
        assert done.returncode == 2, verb
        told = done.stdout if verb == ("doctor",) else done.stderr
        assert f"colonnade config trust {file}" in told, verb
    assert were_started(folder) == []
    with PseudoTerminal(folder, "ls", name) as terminal:
        shown = terminal.answer("Trust it? [y/N] ", "n")
        assert terminal.end()[0] == 2
    for one in ("mine", "other"):
        line = f"starts: {PYTHON} -m colonnade run {one}.py"
        assert f"  {one}\n    {line}\n" in shown
    assert were_started(folder) == []
    with PseudoTerminal(folder, "ls", name) as terminal:
        terminal.answer("Trust it? [y/N] ", "y")
        code, everything = terminal.end()
    assert (code, "mine__write" in everything) == (0, True)
    with PseudoTerminal(folder, "call", name, "mine__write", "name=x") as terminal:
        code, everything = terminal.end()  # nobody is asked again
    assert (code, everything) == (0, "x 1\n")


def test_a_question_says_which_server_asks_and_for_which_call(folder: Path) -> None:
    trip = started(*RUN, "run", str(EXAMPLES / "travel.py"))
    file = configure(folder / "trip.json", trip=trip, mine=noted("mine"))
    with PseudoTerminal(folder, "call", file, "trip__book", "train=EC 171") as terminal:
        shown = terminal.answer("car", "3")
        terminal.answer("window", "")
        terminal.answer("[send] ", "")
        code, rest = terminal.end()
    assert "trip (for trip__book) asks:" in shown
    assert (code, '"seat":{"car":3,"window":true}' in rest) == (0, True)


class Thinking(Person):
    """Somebody who lets others go on before an answer."""

    async def ask(self, prompt: str) -> str | None:
        await asyncio.sleep(0)
        return await super().ask(prompt)


@live
async def test_questions_of_several_servers_each_say_their_own() -> None:
    person = Thinking("1", "", "2", "", "3", "")
    answer = input_request_handler(person)
    form = t.ElicitSchema(properties={"seat": t.PrimitiveSchema(type="integer")})
    params = t.ElicitRequestParams(message="Which seat?", requested_schema=form)
    names = ("bus", "train", "ship")
    answers = await asyncio.gather(
        *(answer(HostInputRequest(one, "elicit", params)) for one in names)
    )
    assert answers == [{"seat": 1}, {"seat": 2}, {"seat": 3}]
    told = person.shown
    assert [line.partition(" asks")[0] for line in told.splitlines() if " asks" in line] == [*names]


def test_an_input_of_a_file_is_asked_for_and_a_password_is_not_shown(folder: Path) -> None:
    secret = "s3cret-t0ken"
    (folder / "tells.py").write_text(
        NOTES.replace("NAME", "tells").replace("{name} {count}", "{len(os.environ['KEY'])}")
        + "\nimport os\n"
    )
    vscode = {
        "inputs": [
            {"id": "key", "type": "promptString", "description": "The key", "password": True}
        ],
        "servers": {"tells": {**noted("tells"), "env": {"KEY": "${input:key}"}}},
    }
    (folder / "vs.json").write_text(json.dumps(vscode))
    trusted(folder / "vs.json")
    with PseudoTerminal(folder, "call", "vs.json", "tells__write", "name=x") as terminal:
        terminal.answer("The key: ", secret)
        code, shown = terminal.end()
    assert (code, secret in shown) == (0, False)
    assert str(len(secret)) in shown
    assert told(folder, "call", "vs.json", "tells__write", "name=x")[0] == 2


def test_logins_are_of_one_server_with_an_address(folder: Path) -> None:
    away = {"type": "http", "url": "http://127.0.0.1:9/mcp"}
    file = configure(folder / "web.json", web=away, mine=noted("mine"))
    for verb in ("login", "logout", "whoami"):
        done = command(folder, verb, file)
        assert (done.returncode, done.stderr) == (
            2,
            (
                f"colonnade: web.json has several servers; choose one: {verb} web.json --server KEY; "
                "servers are web, mine\n"
            ),
        )
        done = command(folder, verb, file, "--server", "mine")
        assert done.returncode == 2
        assert f"{verb} is for URLs" in done.stderr
    done = command(folder, "whoami", file, "--server", "web")
    assert (done.returncode, done.stderr) == (
        3,
        (
            "colonnade: not logged in to http://127.0.0.1:9/mcp; "
            "run colonnade login http://127.0.0.1:9/mcp\n"
        ),
    )


def test_nothing_else_takes_a_configuration(folder: Path) -> None:
    for verb in (("run",), ("serve",), ("add", "--to", "cursor")):
        code, words = told(folder, verb[0], "mcp.json", *verb[1:])
        assert code == 2
        assert words.startswith("colonnade: mcp.json is a configuration")


def test_what_a_server_wrote_never_acts_on_a_terminal(folder: Path) -> None:
    evil = "import sys\nsys.exit('\\x1b[2Jcolonnade: all checks passed')\n"
    (folder / "evil.py").write_text(evil)
    file = configure(folder / "evil.json", evil=started("evil.py"))
    with PseudoTerminal(folder, "ls", file, NO_COLOR="1") as terminal:
        code, shown = terminal.end()
    assert code == 4
    assert "\x1b" not in shown
