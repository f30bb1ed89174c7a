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
# In the order of the queue.
LANES = ("slow", "rest", "cli", "transport", "server", "pages", "pythons", "core", "checks")
# Each stand-in notes its lane when it starts, prints pytest's closing line, and ends as it is told:
# it hangs, waits for the end of another lane, lets one go on that waits, or fails.
STAND_IN = """#!/usr/bin/env bash
case "$*" in
    *"coverage report"*) lane=coverage ;;
    *"coverage run"*) lane=core ;;
    *"slow and not battery"*) lane=slow ;;
    *"not slow tests/docs"*) lane=pages ;;
    *"not slow tests/transport"*) lane=transport ;;
    *"not slow tests/server"*) lane=server ;;
    *"not slow tests/cli"*) lane=cli ;;
    *"-m pytest"*) lane=rest ;;
    *"scripts/check ") lane=checks ;;
    *"scripts/versions others") lane=pythons ;;
    *"scripts/redis ") [ ! -e no-redis ] || { echo "no redis-server here" >&2; exit 1; }; echo /redis && exit 0 ;;
    *platform.python_version*) echo 3.11.9 && exit 0 ;;
    *) exit 0 ;;
esac
echo "$lane" >> started
echo "$*" > "arguments-$lane"
echo "this is what $lane has to say"
[ "$lane" != pythons ] || printf '%s\\n' "3.12     passed  Python 3.12.1: 12 passed in 4s" "3.13     not found, not run"
[ "$lane" = checks ] || echo "== 12 passed, 3 deselected in 4.56s =="
if [ -e "hang-$lane" ]; then echo "$$" > "sleeps-$lane"; exec sleep 3600; fi
[ ! -p "waits-$lane" ] || read -r _ < "waits-$lane"
[ ! -e "releases-$lane" ] || echo > "$(cat "releases-$lane")"
[ ! -e "fail-$lane" ] || exit "$(cat "fail-$lane")"
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone whose Python and whose checks are stand-ins."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tests").mkdir()
    for name, text in (("slow", "@pytest.mark.slow"), ("loops", "@on_both_loops"), ("fast", "")):
        (tmp_path / "tests" / f"test_{name}.py").write_text(text, "utf-8")
    for name in ("test", "_env"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts" / name)
    for name in (".venv/bin/python", "scripts/check", "scripts/versions", "scripts/redis"):
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
    table = lines[lines.index("== summary") + 1 : -1]
    return {line.split()[0]: line.split()[1] for line in table}


def test_every_lane_reports_and_the_last_lines_are_a_table(clone: Path) -> None:
    code, lines = run(clone)
    assert code == 0
    assert summary(lines) == dict.fromkeys(LANES, "passed")
    assert all(f"this is what {lane} has to say" in lines for lane in LANES)
    (rest,) = (line for line in lines[lines.index("== summary") :] if line.startswith("rest"))
    assert rest.endswith(" s  12 passed, 3 deselected in 4.56s")


def test_what_a_lane_prints_is_shown_whole(clone: Path) -> None:
    _, lines = run(clone)
    for lane in LANES:
        after = lines.index(f"== {lane}") + 1
        assert lines[after] == f"this is what {lane} has to say"


def test_every_lane_runs_once(clone: Path) -> None:
    run(clone)
    assert sorted((clone / "started").read_text().split()) == sorted((*LANES, "coverage"))


def test_while_one_lane_runs_the_other_runner_takes_all_that_are_left(clone: Path) -> None:
    os.mkfifo(clone / f"waits-{LANES[0]}")
    (clone / f"releases-{LANES[-1]}").write_text(f"waits-{LANES[0]}")
    code, lines = run(clone)
    assert (code, summary(lines)) == (0, dict.fromkeys(LANES, "passed"))
    begun = [lane for lane in (clone / "started").read_text().split() if lane != "coverage"]
    # The first looks for its files before it begins, and the others do not wait for it.
    assert LANES[0] in begun
    assert [lane for lane in begun if lane != LANES[0]] == list(LANES[1:])


def test_the_rest_is_what_no_other_lane_runs(clone: Path) -> None:
    run(clone)
    paths = [
        word
        for lane in ("core", "pages", "transport", "server", "cli")
        for word in (clone / f"arguments-{lane}").read_text().split()
        if word.startswith("tests/")
    ]
    assert len(paths) == len(set(paths))
    assert [path for path in paths if not (SCRIPTS.parent / path).exists()] == []
    rest = (clone / "arguments-rest").read_text().split()
    assert [word for word in rest if "tests/" in word] == [f"--ignore={path}" for path in paths]


def test_the_last_line_says_which_pythons_were_run(clone: Path) -> None:
    _, lines = run(clone)
    assert lines[-1] == (
        "Python    3.11.9 ran all of this; the short set on others: 3.12 passed, 3.13 not found"
    )


def test_the_last_line_says_that_the_tests_of_redis_did_not_run(clone: Path) -> None:
    (clone / "no-redis").touch()
    code, lines = run(clone)
    assert code == 0
    assert lines[-1] == "Redis     its tests did NOT run: no redis-server here"


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


def test_of_the_slow_tests_only_the_files_are_collected(clone: Path) -> None:
    run(clone)
    words = (clone / "arguments-slow").read_text().split()
    files = {word for word in words if word.startswith("tests/")}
    assert files == {"tests/test_slow.py", "tests/test_loops.py"}


def test_no_helper_marks_a_test_as_slow_but_the_one_that_scripts_test_looks_for() -> None:
    tests = SCRIPTS.parent / "tests"
    marking = {
        path.relative_to(tests).as_posix()
        for path in tests.rglob("*.py")
        if not path.name.startswith("test_") and "mark.slow" in path.read_text("utf-8")
    }
    assert marking == {"support/transport/child_processes.py"}


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
    for lane in ("cli", "transport"):
        (clone / f"hang-{lane}").touch()
        os.mkfifo(clone / f"sleeps-{lane}")
    with started(clone) as process:
        # Reading waits until both lanes hang.
        sleepers = [int((clone / f"sleeps-{lane}").read_text()) for lane in ("cli", "transport")]
        process.send_signal(number)
        printed, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 128 + number
    assert "== summary" not in printed
    begun = (clone / "started").read_text().split()
    assert sorted(begun) == ["cli", "rest", "slow", "transport"]
    for pid in sleepers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


# ---------------------------------------------------------------- scripts/versions

# A Python that says which it is, makes environments of its own kind, and runs no test.
PYTHON = """#!/usr/bin/env bash
case "$*" in
    *"print("*version_info*) echo VERSION ;;
    --version) echo "Python VERSION.7" ;;
    "-m venv "*) there="${@: -1}" && mkdir -p "$there/bin" && cp "$0" "$there/bin/python" ;;
    *"-m pip --python "*) echo "$*" >> installed ;;
    *"-m pytest"*) echo "VERSION $*" >> tested && echo "12 passed in 3.45s" && [ ! -e "fail-VERSION" ] ;;
esac
"""


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """A clone with Python 3.11, on a machine that has 3.12 on its path and 3.13 in pyenv."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "pyproject.toml").touch()
    for name in ("versions", "_env"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts" / name)
    for version, place in (
        ("3.11", ".venv/bin/python"),
        ("3.12", "path/python3.12"),
        ("3.13", "pyenv/versions/3.13.7/bin/python3.13"),
        ("3.13", "path/python3.14"),  # which is called another than it is
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(PYTHON.replace("VERSION", version), "utf-8")
        (tmp_path / place).chmod(0o755)
    return tmp_path


def run_versions(clone: Path, *arguments: str) -> tuple[int, list[str]]:
    env = {"PATH": f"{clone}/path:/usr/bin:/bin", "PYENV_ROOT": f"{clone}/pyenv"}
    done = subprocess.run(
        [str(clone / "scripts" / "versions"), *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=env,
    )
    assert done.stderr == ""
    return done.returncode, [line for line in done.stdout.splitlines() if line[:2] != "=="]


def test_every_python_that_is_found_is_tested_and_the_others_are_named(versions: Path) -> None:
    code, lines = run_versions(versions, "others")
    assert (code, lines) == (
        0,
        [
            "3.12     passed  Python 3.12.7: 12 passed in 3.45s",
            "3.13     passed  Python 3.13.7: 12 passed in 3.45s",
            "3.14     not found, not run",
        ],
    )
    assert [line.split()[0] for line in (versions / "tested").read_text().splitlines()] == [
        "3.12",
        "3.13",
    ]
    assert "@tests/every_python.txt" in (versions / "tested").read_text()


def test_an_environment_is_made_once(versions: Path) -> None:
    for _ in range(2):
        assert run_versions(versions, "3.13")[0] == 0
    lines = (versions / "installed").read_text().splitlines()
    assert len([line for line in lines if "--group test" in line]) == 1


def test_a_version_that_fails_stops_no_other(versions: Path) -> None:
    (versions / "fail-3.12").touch()
    code, lines = run_versions(versions, "3.12", "3.13")
    assert code == 1
    assert [line.split()[:2] for line in lines if line.startswith("3.")] == [
        ["3.12", "FAILED"],
        ["3.13", "passed"],
    ]


def test_the_python_of_the_clone_needs_no_environment_of_its_own(versions: Path) -> None:
    code, lines = run_versions(versions, "3.11")
    assert (code, lines) == (0, ["3.11     passed  Python 3.11.7: 12 passed in 3.45s"])
    assert not (versions / ".venv" / "python3.11").exists()


def test_what_every_python_runs_is_there() -> None:
    lines = (SCRIPTS.parent / "tests" / "every_python.txt").read_text("utf-8").splitlines()
    paths = [line for line in lines if line.startswith("tests/")]
    assert len(paths) > 10
    assert [path for path in paths if not (SCRIPTS.parent / path).exists()] == []
