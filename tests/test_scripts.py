"""scripts/test with commands that stand in for pytest and the checks: what it runs, and reports.

Rules: the scripts run as they are, in a folder of their own; only what they start is replaced.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
WAIT_S = 60.0
LANES = ("checks", "core", "pages", "slow", "fast")
# Each stand-in notes its lane when it starts, prints pytest's closing line, and ends as it is told.
STAND_IN = """#!/usr/bin/env bash
case "$*" in
    *"coverage report"*) lane=coverage ;;
    *"coverage run"*) lane=core ;;
    *"slow and not battery"*) lane=slow ;;
    *"not slow tests/docs"*) lane=pages ;;
    *"-m pytest"*) lane=fast ;;
    *"scripts/check ") lane=checks ;;
    *) exit 0 ;;
esac
echo "$lane" >> started
echo "this is what $lane has to say"
[ "$lane" = checks ] || echo "== 12 passed, 3 deselected in 4.56s =="
if [ -e "hang-$lane" ]; then echo "$$" > "sleeps-$lane"; exec sleep 3600; fi
[ ! -e "fail-$lane" ] || exit "$(cat "fail-$lane")"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose Python and whose checks are stand-ins."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    for name in ("test", "_env"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts" / name)
    for name in (".venv/bin/python", "scripts/check"):
        (tmp_path / name).write_text(STAND_IN.replace('"$*"', '"$0 $*"'), "utf-8")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(clone: Path) -> tuple[int, list[str]]:
    """The exit code, and the lines that were printed."""
    command = [str(clone / "scripts" / "test")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


def summary(lines: list[str]) -> dict[str, str]:
    """The word for each lane, of the lines after the last heading."""
    table = lines[lines.index("== summary") + 1 :]
    return {line.split()[0]: line.split()[1] for line in table}


def test_every_lane_reports_and_the_last_lines_are_a_table(clone: Path) -> None:
    code, lines = run(clone)
    assert code == 0
    assert summary(lines) == dict.fromkeys(LANES, "passed")
    assert all(f"this is what {lane} has to say" in lines for lane in LANES)
    assert lines[-1].startswith("fast")
    assert lines[-1].endswith(" s  12 passed, 3 deselected in 4.56s")


@pytest.mark.parametrize("failing", LANES)
def test_a_lane_that_fails_stops_no_other_lane(failing: str, clone: Path) -> None:
    (clone / f"fail-{failing}").write_text("1")
    code, lines = run(clone)
    assert code == 1
    assert summary(lines) == dict.fromkeys(LANES, "passed") | {failing: "FAILED"}
    assert all(f"this is what {lane} has to say" in lines for lane in LANES)


def test_coverage_that_is_not_full_fails_its_lane(clone: Path) -> None:
    (clone / "fail-coverage").write_text("2")
    code, lines = run(clone)
    assert code == 1
    assert summary(lines) == dict.fromkeys(LANES, "passed") | {"core": "FAILED"}


def test_a_clone_without_slow_tests_passes(clone: Path) -> None:
    (clone / "fail-slow").write_text("5")
    code, lines = run(clone)
    assert (code, summary(lines)["slow"]) == (0, "passed")


@contextmanager
def started(clone: Path) -> Generator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [str(clone / "scripts" / "test")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # As at a terminal; a shell that was started with Ctrl-C ignored cannot hear it any more.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_every_lane_that_runs_and_starts_no_other(
    number: signal.Signals, clone: Path
) -> None:
    for lane in ("core", "fast"):
        (clone / f"hang-{lane}").touch()
        os.mkfifo(clone / f"sleeps-{lane}")
    with started(clone) as process:
        # Reading waits until both lanes hang.
        sleepers = [int((clone / f"sleeps-{lane}").read_text()) for lane in ("core", "fast")]
        process.send_signal(number)
        printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + number
    assert "== summary" not in printed
    assert sorted((clone / "started").read_text().split()) == ["checks", "core", "fast"]
    for pid in sleepers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
