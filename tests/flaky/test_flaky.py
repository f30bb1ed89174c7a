"""scripts/flaky on a few small tests: which it runs again and again, and what it says of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flaky import command
from flaky.command import Known, shards_of

TESTS = Path(__file__).resolve().parent.parent
WAIT_S = 120.0
SMALL = """
import asyncio, pathlib, socket, subprocess, threading, time

def test_nothing(): pass
async def nothing(): pass
def test_a_loop_alone(): asyncio.run(nothing())
def test_thread(): threading.Thread(target=int).start()
def test_socket():
    with socket.socket() as one: one.bind(("127.0.0.1", 0))
def test_process(): subprocess.run(["true"])
def test_sleep(): time.sleep(0)
def test_timer(): asyncio.run(asyncio.sleep(0.001))
def test_clock(): time.monotonic()
"""
USED = {
    "test_nothing": [],
    "test_a_loop_alone": [],
    "test_thread": ["thread"],
    "test_socket": ["socket"],
    "test_process": ["process"],
    "test_sleep": ["time"],
    "test_timer": ["time"],
}


def test_what_a_test_uses_is_observed(tmp_path: Path) -> None:
    (tmp_path / "test_small.py").write_text(SMALL)
    report = tmp_path / "report"
    pytest_run = [sys.executable, "-m", "pytest", "-p", "flaky.watch", "--flaky-report"]
    done = subprocess.run(
        [*pytest_run, str(report), "test_small.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS / "support")])},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    found = {line["end"].partition("::")[2]: line["used"] for line in lines if "end" in line}
    # The clock counts where a file of our own tests reads it, and this one is elsewhere.
    assert found == USED | {"test_clock": []}


SOMETIMES = """
import pathlib, threading

def test_never(): pass
def test_always_well(): threading.Thread(target=int).start()
def test_sometimes():
    threading.Thread(target=int).start()
    runs = pathlib.Path(__file__).with_name("runs")
    with runs.open("a") as file: file.write("x")
    assert len(runs.read_text()) != 4
"""


def test_a_test_that_fails_in_one_of_many_runs_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_sometimes.py").write_text(SOMETIMES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = battery: as in our own tests\n")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS / "support")]))
    assert command.main(["--runs", "4", "--busy", "1", "--shards", "1"]) == 1
    printed = capsys.readouterr().out
    assert "2 of 3 tests" in printed
    *_, total, name, log = printed.splitlines()
    assert total == "2 tests, 4 runs, 1 failures"
    assert name == "1 x test_sometimes.py::test_sometimes"
    assert "run-03-busy-shard-1.log" in log  # the first of all was to find what they use
    assert "assert len" in (tmp_path / log.strip()).read_text()
    (tmp_path / "runs").write_text("xxxx")
    assert command.main(["--runs", "2", "--busy", "0", "--shards", "1"]) == 0
    assert "2 tests, 2 runs, 0 failures" in capsys.readouterr().out


def test_recorded_runs_go_on_where_earlier_ones_ended_and_a_failure_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steady = tmp_path / "test_steady.py"
    steady.write_text("import threading\ndef test_it(): threading.Thread(target=int).start()\n")
    (tmp_path / "test_sometimes.py").write_text(SOMETIMES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = battery: as in our own tests\n")
    passes = tmp_path / "passes.json"
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(command, "PASSES", passes)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS), str(TESTS / "support")]))

    def record(runs: int) -> tuple[int, dict[str, list[int]]]:
        code = command.main(["--record", "--runs", str(runs), "--busy", "1", "--shards", "1"])
        return code, {file: row[1:] for file, row in json.loads(passes.read_text()).items()}

    assert record(2) == (0, {"test_sometimes.py": [1, 1], "test_steady.py": [1, 1]})
    assert record(4) == (1, {"test_steady.py": [2, 2]})
    assert "1 files have passed 4 times" in capsys.readouterr().out
    assert record(4) == (0, {"test_sometimes.py": [2, 2], "test_steady.py": [2, 2]})
    assert "2 files have passed 4 times, each at least 4 times" in capsys.readouterr().out
    (tmp_path / "cache").unlink()  # as in another clone: what is counted is not observed again
    assert record(4)[0] == 0
    assert "to observe" not in capsys.readouterr().out
    steady.write_text(steady.read_text() + "# changed\n")
    assert record(2)[1] == {"test_sometimes.py": [2, 2], "test_steady.py": [1, 1]}


def test_shards_take_about_as_long_and_a_file_is_in_one_of_them() -> None:
    known = {f"{file}::{n}": Known([], 1.0) for file in ("a", "b", "c", "d") for n in range(5)}
    known["a::0"] = Known([], 12.0)
    shards = shards_of(list(known), known, 2)
    files = [{name[0] for name in shard} for shard in shards]
    assert files == [{"a"}, {"b", "c", "d"}]
    assert shards_of([], {}, 3) == []
