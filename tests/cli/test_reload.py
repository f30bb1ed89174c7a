"""`colonnade serve --reload`: a file that is being written."""

import os
import signal
import sys
from pathlib import Path

import pytest

from cli.process import COMMAND, SCRIPT, Process, call, written
from colonnade.cli.loader import WatchedFiles

SERVE = ("serve", "server.py", "--port", "0", "--reload")
SERVER = """
from colonnade import Server
from words import WORD

server = Server("writer", version="1.0")


@server.tool
def say() -> str:
    return "one " + WORD


@server.tool
def process() -> str:
    import os

    return str(os.getpid())


@server.tool(inline=True)
def stuck() -> str:
    import sys, time

    print("stuck", file=sys.stderr, flush=True)
    time.sleep(3600)
    return "never"
"""
BROKEN = "def broken(:\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(tmp_path, server=SERVER, words='WORD = "first"\n')


def said(process: Process, tool: str = "say") -> str:
    return process.post(call(tool))[1]["result"]["content"][0]["text"]


@pytest.mark.parametrize("start", [COMMAND, SCRIPT], ids=["module", "script"])
def test_a_change_of_the_file_is_served_in_the_same_process_on_the_same_port(
    folder: Path, start: list[str]
) -> None:
    with Process(folder, *SERVE, "--debug", start=start) as process:
        line = process.up()
        assert said(process) == "one first"
        written(folder, server=SERVER.replace('"one "', '"two "'))
        assert process.err.until("restarted") == (
            "colonnade: server.py changed; writer 1.0 was restarted"
        )
        assert said(process) == "two first"
        assert said(process, "process") == str(process.process.pid)
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert process.out.rest() == [line]


def test_a_server_without_a_version_is_called_by_its_name_alone(tmp_path: Path) -> None:
    plain = SERVER.replace(', version="1.0"', "")
    folder = written(tmp_path, server=plain, words='WORD = "first"\n')
    with Process(folder, *SERVE) as process:
        assert process.up().startswith("writer on http://")
        written(folder, words='WORD = "second"\n')
        process.err.until("colonnade: words.py changed; writer was restarted")
        process.signal(signal.SIGTERM)
        assert process.end() == 0


def test_a_change_of_what_it_imported_counts_too_and_again(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        for word in ("second", "third"):
            written(folder, words=f'WORD = "{word}"\n')
            process.err.until("colonnade: words.py changed; writer 1.0 was restarted")
            assert said(process) == f"one {word}"
        process.signal(signal.SIGINT)
        assert process.end() == 130


def test_a_change_that_python_cannot_read_leaves_the_old_one_serving(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        written(folder, words=BROKEN)
        assert process.err.next() == (
            "colonnade: words.py, line 1: invalid syntax; the server runs on without the change"
        )
        assert said(process) == "one first"
        written(folder, words='WORD = "mended"\n')
        assert process.err.next() == "colonnade: words.py changed; writer 1.0 was restarted"
        assert said(process) == "one mended"


def test_a_change_that_fails_is_told_and_the_next_one_is_tried(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        line = process.up()
        written(folder, words="import no_such_part\n")
        assert "waiting for a file to change" in process.err.until("colonnade: ")
        written(folder, no_such_part="", words='from no_such_part import *\nWORD = "mended"\n')
        process.err.until("was restarted")
        assert said(process) == "one mended"
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert process.out.rest() == [line]


def test_what_never_worked_is_served_once_it_does(folder: Path) -> None:
    written(folder, words=BROKEN)
    with Process(folder, *SERVE) as process:
        assert process.err.until("colonnade: ") == (
            "colonnade: words.py has a syntax error in line 1: invalid syntax; "
            "waiting for a file to change"
        )
        written(folder, words='WORD = "mended"\n')
        assert process.up() == f"writer 1.0 on http://127.0.0.1:{process.port}/mcp"
        assert said(process) == "one mended"


def test_a_file_that_is_missing_is_waited_for(folder: Path) -> None:
    (folder / "words.py").unlink()
    with Process(folder, *SERVE) as process:
        process.err.until("waiting for a file to change")
        written(folder, words='WORD = "new"\n')
        process.up()
        assert said(process) == "one new"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_ends_the_wait(folder: Path, number: signal.Signals, code: int) -> None:
    written(folder, server=BROKEN)
    with Process(folder, *SERVE) as process:
        process.err.until("waiting for a file to change")
        process.signal(number)
        assert process.end() == code
        assert process.out.rest() == []
        assert process.err.rest()[-1].endswith("waiting for a file to change")


def test_a_loop_that_is_stuck_begins_again_too(folder: Path) -> None:
    with Process(folder, *SERVE) as process:
        process.up()
        connection = process.begin(call("stuck"))
        process.err.until("stuck")
        written(folder, words='WORD = "free"\n')
        process.err.until("was restarted")
        connection.close()
        assert said(process) == "one free"


def test_what_no_change_fixes_is_not_waited_for(folder: Path) -> None:
    with Process(folder, *SERVE, "--path", "mcp") as process:
        assert process.end() == 2
        assert process.err.rest() == ["colonnade: 'mcp' is not a path; begin it with a slash"]


# ---------------------------------------------------------------- which files, and when


def change(path: Path, text: str, second: int) -> None:
    path.write_text(text)
    os.utime(path, (second, second))


def test_a_change_counts_once_it_has_stayed_the_same(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    change(path, "one", 1000)
    files = WatchedFiles(str(tmp_path), str(path))
    assert files.changed() == ""
    change(path, "", 1001)
    assert files.changed() == ""
    change(path, "two", 1002)
    assert files.changed() == ""
    assert files.changed() == str(path)
    assert files.changed() == ""


def test_a_file_that_is_away_for_a_moment_has_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "server.py"
    change(path, "one", 1000)
    files = WatchedFiles(str(tmp_path), str(path))
    path.unlink()
    assert [files.changed() for _ in range(3)] == [""] * 3
    change(path, "one", 1000)
    assert [files.changed() for _ in range(3)] == [""] * 3
    change(path, "two", 1001)
    assert [files.changed() for _ in range(2)] == ["", str(path)]


def test_what_is_installed_in_the_folder_is_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    own = tmp_path / "own.py"
    theirs = tmp_path / ".venv" / "bin" / "theirs.py"
    elsewhere = tmp_path.parent / "elsewhere.py"
    for path in (own, theirs, elsewhere):
        path.parent.mkdir(parents=True, exist_ok=True)
        change(path, "one", 1000)
    files = WatchedFiles(str(tmp_path), str(own), str(theirs), str(elsewhere))
    for path in (own, theirs, elsewhere):
        change(path, "two", 1001)
    found = {files.changed() for _ in range(5)}
    elsewhere.unlink()
    assert found == {"", str(own)}
