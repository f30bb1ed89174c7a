"""What can be wrong with a server that is started, each with its sentence and its remedy, in full.

Rules: real files and real children; no network.
"""

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.process import WEATHER
from cli.scripted_server import scripted_program, tool
from colonnade.cli.doctor.check import Check, ServerReport
from colonnade.cli.doctor.command import INSTALLING, command_check, meaning
from colonnade.cli.doctor.report import run_doctor
from colonnade.cli.doctor.targets import doctor_targets
from colonnade.cli.options import ConnectionOptions
from colonnade.cli.terminal import Terminal
from live import live_for

# Some children one after the other, on a busy machine.
TEST_S = 600.0
PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def looked_at(*target: str, **terms: Any) -> ServerReport:
    named = target[0] if len(target) == 1 else target
    (report,) = await run_doctor(
        doctor_targets(ConnectionOptions(named, **terms), Terminal()), Terminal()
    )
    return report


def failure(report: ServerReport) -> tuple[str, str, str, int]:
    found = report.failure
    assert found is not None, report
    return found.name, found.message, found.fix, found.code


def row(report: ServerReport, name: str) -> Check:
    return next(one for one in report.checks if one.name == name)


# ---------------------------------------------------------------- file

FILES: dict[str, tuple[str, str, str]] = {
    "sever.py": ("", "there is no file sever.py", "did you mean server.py?"),
    "tools": ("", "tools is a directory", "give a file, such as tools/server.py"),
    "broken.py": (
        "import os\n\ndef f(:\n    pass\n",
        "broken.py:3:7: invalid syntax",
        "fix the syntax of that line",
    ),
}


@pytest.mark.parametrize("name", FILES)
@live_for(TEST_S)
async def test_a_file_that_cannot_be_read(folder: Path, name: str) -> None:
    (folder / "tools").mkdir()
    (folder / "tools" / "server.py").write_text(WEATHER)
    (folder / "server.py").write_text(WEATHER)
    text, words, fix = FILES[name]
    if text:
        (folder / name).write_text(text)
    report = await looked_at(name)
    assert failure(report) == ("file", words, fix, 2)
    assert [one.state for one in report.checks[1:]] == ["skipped"] * 5


# ---------------------------------------------------------------- command


@live_for(TEST_S)
async def test_a_command_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "mcp-server-git"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    assert failure(await looked_at("mcp-serve-git", "-x")) == (
        "command",
        "there is no command mcp-serve-git on PATH",
        "did you mean mcp-server-git?",
        4,
    )
    assert failure(await looked_at("zzz", "-x"))[2] == "install it, or use its full path"
    for word in ("uvx", "npx", "docker"):
        found = failure(await looked_at(word, "server"))
        assert found[1:3] == (f"there is no command {word} on PATH", INSTALLING[word])
    assert failure(await looked_at("uvx mcp-server-git", "x"))[1:3] == (
        "there is no command 'uvx mcp-server-git'",
        "command is the program alone; the rest goes into args",
    )


@live_for(TEST_S)
async def test_a_program_that_cannot_be_run(folder: Path) -> None:
    (folder / "here").mkdir()
    (folder / "plain").write_text("#!/bin/sh\n")
    assert failure(await looked_at("./here", "x"))[1:3] == (
        "./here is a directory",
        "give a program in it",
    )
    assert failure(await looked_at("./plain", "x"))[1:3] == (
        "./plain is not executable",
        "chmod +x ./plain, or put its interpreter before it",
    )
    (folder / "plain").chmod(stat.S_IRWXU)
    assert failure(await looked_at("./plian", "x"))[1:3] == (
        "there is no program ./plian",
        "did you mean ./plain?",
    )


@live_for(TEST_S)
async def test_a_script_whose_interpreter_is_not_there(folder: Path) -> None:
    (folder / "script").write_text(f"#!{folder}/gone/python -I\n")
    (folder / "script").chmod(stat.S_IRWXU)
    assert failure(await looked_at("./script", "x")) == (
        "command",
        f"./script needs {folder}/gone/python, which does not exist",
        "reinstall it; a virtual environment cannot be moved",
        4,
    )


@live_for(TEST_S)
async def test_a_program_that_is_none_for_this_machine(folder: Path) -> None:
    (folder / "odd").write_bytes(b"\x00\x01\x02\x03")
    (folder / "odd").chmod(stat.S_IRWXU)
    assert failure(await looked_at("./odd", "x")) == (
        "process",
        "cannot start server 'odd': './odd' is no program for this machine",
        "if it is a script, name its interpreter first",
        4,
    )


@live_for(TEST_S)
async def test_a_script_that_an_interpreter_does_not_find(folder: Path) -> None:
    (folder / "server.py").write_text(WEATHER)
    name = os.path.basename(PYTHON)
    assert failure(await looked_at(PYTHON, "sever.py"))[:3] == (
        "command",
        f"there is no file sever.py, which {name} should run",
        "did you mean server.py?",
    )
    (folder / "elsewhere").mkdir()
    told = command_check([PYTHON, "server.py"], {}, str(folder / "elsewhere"))
    assert told.fix == f"see {folder / 'elsewhere'}"
    assert command_check([PYTHON, "server.py"], {}, str(folder)).state == "ok"


def test_the_variables_that_it_gets_decide_where_it_is_looked_for(tmp_path: Path) -> None:
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert command_check(["mine"], {}, None).state == "failed"
    found = command_check(["mine"], {"PATH": str(tmp_path)}, None)
    assert (found.state, found.message) == ("ok", f"found: {program}")
    gone = command_check(["mine"], {"PATH": str(tmp_path)}, str(tmp_path / "gone"))
    assert gone.message == f"there is no directory {tmp_path / 'gone'} to start it in"
    assert gone.fix == "fix cwd, or create the directory"


# ---------------------------------------------------------------- process


@live_for(TEST_S)
async def test_a_process_that_ends_is_told_with_its_last_lines(folder: Path) -> None:
    (folder / "dies.py").write_text("import sys\nsys.exit('no key was given')\n")
    report = await looked_at("dies.py")
    assert failure(report) == (
        "process",
        "it exited with 1; it had sent no message",
        "run it in a terminal: python dies.py",
        4,
    )
    assert row(report, "process").lines == ("no key was given",)


@live_for(TEST_S)
async def test_what_a_process_lacks_is_named(folder: Path) -> None:
    (folder / "server.py").write_text("import nothing_here\n" + WEATHER)
    report = await looked_at("server.py")
    assert failure(report)[:3] == (
        "process",
        "it exited with 1; it had sent no message",
        "install nothing_here for the Python that runs it",
    )


@live_for(TEST_S)
async def test_a_process_that_is_killed(folder: Path) -> None:
    (folder / "dies.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    words = failure(await looked_at("dies.py"))[1]
    assert words == "it was killed by SIGKILL; it had sent no message"


MEND_OUTPUT = (
    "stdout is for MCP messages only: in Python, use print(…, file=sys.stderr); "
    "in JavaScript, console.error(…)"
)


@live_for(TEST_S)
async def test_a_process_that_prints_to_standard_output_and_is_no_server(folder: Path) -> None:
    (folder / "prints.py").write_text(
        "print('Hello, World', flush=True)\nimport sys\nsys.stdin.read()\n"
    )
    report = await looked_at("prints.py", timeout_s=3.0)
    assert failure(report) == (
        "process",
        "it prints to stdout: a line that is not a message",
        MEND_OUTPUT,
        4,
    )
    assert row(report, "process").lines == ("Hello, World",)


@live_for(TEST_S)
async def test_a_server_that_prints_between_its_messages_works_and_is_warned_of(
    folder: Path,
) -> None:
    server = scripted_program(tools_list=tool(description="Look."))
    server = server.replace("for line in sys.stdin:", "print('ready')\nfor line in sys.stdin:")
    (folder / "hand.py").write_text(server)
    report = await looked_at("hand.py")
    assert report.failure is None
    process = row(report, "process")
    assert (process.state, process.fix, process.lines) == ("warning", MEND_OUTPUT, ("ready",))
    assert process.message == (
        "it prints to stdout: a line that is not a message; other clients may fail here"
    )


@live_for(TEST_S)
async def test_a_process_that_never_answers(folder: Path) -> None:
    (folder / "mute.py").write_text(
        "import sys\nprint('Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C)', "
        "file=sys.stderr, flush=True)\nsys.stdin.read()\n"
    )
    report = await looked_at("mute.py", timeout_s=3.0)
    assert row(report, "process").message == "it runs"
    assert failure(report) == (
        "revision",
        "server 'mute': no answer to initialize within 3 s",
        "it serves HTTP: use its URL as the target, http://127.0.0.1:8000 with its path",
        4,
    )
    assert row(report, "revision").lines == (
        "Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C)",
    )


def test_last_words_that_are_known_have_a_remedy() -> None:
    known = {
        "Error: Cannot find module 'zod'": "install zod with npm",
        "npm error code E404": "there is no such package; check its name",
        "python: can't open file '/x/y.py': [Errno 2]": "there is no file /x/y.py; fix its path",
        "OSError: [Errno 98] Address already in use": "another program uses its port; stop it",
        "KeyError: 'API_KEY'": (
            "it needs the environment variable API_KEY, and inherits few: use --env, or its entry"
        ),
        "all checks passed": "",
    }
    assert {line: meaning(["…", line]) for line in known} == known


# ---------------------------------------------------------------- what is spoken


@live_for(TEST_S)
async def test_a_server_that_is_well(folder: Path) -> None:
    (folder / "server.py").write_text(
        WEATHER.replace(
            "-> int:",
            '-> int:\n    """Add.\n\n    Args:\n        a: One.\n        b: Two.\n    """',
        )
    )
    report = await looked_at("server.py")
    assert [(one.name, one.state, one.message) for one in report.checks] == [
        ("file", "ok", "server.py is valid Python"),
        ("command", "ok", "found: this Python"),
        ("process", "ok", "it runs, and its stdout has only messages"),
        (
            "revision",
            "ok",
            "weather 1.0 uses 2026-07-28, and supports 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ),
        ("lists", "ok", "1 tool"),
        ("schema", "ok", "names and schemas are valid for all known clients and models"),
    ]


@live_for(TEST_S)
async def test_a_revision_that_it_does_not_speak(folder: Path) -> None:
    (folder / "hand.py").write_text(scripted_program())
    name, words, fix, code = failure(await looked_at("hand.py", revision="2026-07-28"))
    assert (name, code) == ("revision", 5)
    assert "it has no server/discover, so it does not support 2026-07-28" in words
    assert fix == "leave out --as 2026-07-28 to see which revision it uses"


@live_for(TEST_S)
async def test_an_older_revision_is_spoken_where_that_is_wanted(folder: Path) -> None:
    (folder / "server.py").write_text(WEATHER)
    revision = row(await looked_at("server.py:server", revision="2025-06-18"), "revision")
    assert revision.message == "weather 1.0 uses 2025-06-18 (with a handshake), as requested"


@live_for(TEST_S)
async def test_a_list_that_it_cannot_give(folder: Path) -> None:
    (folder / "hand.py").write_text(scripted_program(tools_list="rubbish"))
    assert failure(await looked_at("hand.py")) == (
        "lists",
        "server 'hand': ListToolsResult, at the top: missing required field `tools`; add it",
        "report it to the author; see its log",
        5,
    )


@live_for(TEST_S)
async def test_a_schema_that_no_client_can_use(folder: Path) -> None:
    listed = tool(properties={"a": {"type": "strnig"}})
    (folder / "hand.py").write_text(
        scripted_program(tools_list=listed, prompts_list={"prompts": []})
    )
    report = await looked_at("hand.py")
    assert failure(report) == (
        "schema",
        "1 tool has an invalid input schema",
        "fix the schema in the server",
        5,
    )
    assert row(report, "schema").lines[0].startswith("look: ")


@live_for(TEST_S)
async def test_names_that_models_refuse_are_a_warning(folder: Path) -> None:
    (folder / "hand.py").write_text(scripted_program(tools_list=tool("look around!")))
    report = await looked_at("hand.py")
    schema = row(report, "schema")
    assert (schema.state, schema.message) == (
        "warning",
        "some model provider or client rejects 1 item",
    )
    assert schema.fix == "see colonnade inspect hand.py"
    assert schema.lines[0].startswith("look around!: model providers reject its name")


@live_for(TEST_S)
async def test_an_array_without_items_which_some_clients_refuse_is_a_warning(folder: Path) -> None:
    listed = tool(properties={"days": {"type": "array"}})
    (folder / "hand.py").write_text(scripted_program(tools_list=listed))
    schema = row(await looked_at("hand.py"), "schema")
    assert (schema.state, schema.message) == (
        "warning",
        "some model provider or client rejects 1 item",
    )
    assert schema.lines[0] == "look: VS Code rejects arrays without `items`: parameter `days`"
