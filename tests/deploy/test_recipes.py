"""The files of `examples/deploy` say the same as README and docs, and their commands work.

That nginx, systemd and a container take them is shown by `scripts/deploy`, where those are there.
"""

import re
import select
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from colonnade import Limits, RunLimits
from deploy.recipes import (
    DEPLOY,
    ROOT,
    container,
    container_check,
    only,
    readme_command,
    unit,
    unit_command,
)

START_S = 60.0
COLONNADE = [sys.executable, "-m", "colonnade"]
NGINX = (DEPLOY / "nginx.conf").read_text("utf-8")


def test_the_container_s_command_is_that_of_readme_and_the_names_it_is_reached_by() -> None:
    command, readme = only("CMD").listed, readme_command()
    assert readme == ["colonnade", "serve", "weather.py", "--port", "8000"]
    assert command[: len(readme)] == readme
    names = shlex.split("--allow-host mcp.example.com")
    assert command[len(readme) :] == ["--host", "0.0.0.0", *names, "--log-json"]


def test_the_unit_s_command_is_that_of_readme_and_the_name_it_is_reached_by() -> None:
    program, *rest = unit_command()
    assert program == "/srv/weather/.venv/bin/colonnade"
    readme = readme_command()[1:]
    assert rest == [*readme, "--allow-host", "mcp.example.com", "--log-json"]


def test_what_the_container_copies_is_there_and_not_ignored() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert "*" in ignored
    copied = [
        word for step in container() if step.what == "COPY" for word in step.words.split()[:-1]
    ]
    assert set(copied) == {
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "src",
        "examples/weather.py",
    }
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_whoever_stops_it_waits_until_calls_have_finished() -> None:
    (timeout,) = unit()["TimeoutStopSec"]
    assert float(timeout) > Limits().drain_timeout_s
    assert f"--stop-timeout {timeout} " in (DEPLOY / "Dockerfile").read_text("utf-8")


def setting(name: str) -> str:
    """The value of a setting that nginx.conf has once."""
    (value,) = re.findall(rf"^\s*{name} (.+);$", NGINX, re.MULTILINE)
    return value


def test_the_numbers_of_nginx_fit_those_of_the_server() -> None:
    limits, run = Limits(), RunLimits()
    assert setting("client_max_body_size") == "5m"
    assert limits.max_body_bytes == 4 * 1024 * 1024
    assert setting("keepalive_timeout") == "30s"
    assert run.keep_alive_timeout_s > 30
    assert setting("large_client_header_buffers") == "4 16k"
    assert run.max_header_bytes == 16 * 1024
    assert setting("proxy_read_timeout") == "120s"
    assert limits.keep_alive_interval_s * 2 < 60


def test_every_setting_is_explained_on_the_page() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    names = set(re.findall(r"^        (proxy_(?!pass)\w+|gzip) ", NGINX, re.MULTILINE))
    names |= {"client_max_body_size", "large_client_header_buffers", "keepalive_timeout"}
    assert sorted(name for name in names if f"`{name}" not in page) == []


# ---------------------------------------------------------------- the commands, run


@contextmanager
def started(command: list[str]) -> Generator[str]:
    """A command of a recipe on this machine: on loopback, and on a port that is free."""
    assert command[0].endswith("colonnade")
    words = ["127.0.0.1" if word == "0.0.0.0" else word for word in command[1:]]
    words[words.index("--port") + 1] = "0"
    with subprocess.Popen(
        [*COLONNADE, *words],
        cwd=ROOT / "examples",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            ready, _, _ = select.select([process.stdout], [], [], START_S)
            line = process.stdout.readline() if ready else ""
            assert " on http://127.0.0.1:" in line, line
            yield line.split()[-1]
        finally:
            process.terminate()
            process.wait(START_S)
    assert process.returncode == 0


def status(url: str, host: str) -> int:
    request = urllib.request.Request(url, b"{}", {"Host": host, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("command", [only("CMD").listed, unit_command()], ids=["container", "unit"])
def test_the_command_serves_under_its_public_name_and_no_other(command: list[str]) -> None:
    with started(command) as url:
        assert status(url, "mcp.example.com") == 400  # it was let in, and no request
        assert status(url, "evil.example.com") == 403


def test_the_check_of_the_container_says_whether_it_is_well() -> None:
    program, *check, address = container_check()
    assert (program, address) == ("python", "127.0.0.1:8000")
    with started(only("CMD").listed) as url:
        command = [sys.executable, *check, urlsplit(url).netloc]
        asked = subprocess.run(command, capture_output=True, timeout=START_S)
        assert asked.returncode == 0, asked.stderr
    assert subprocess.run(command, capture_output=True, timeout=START_S).returncode == 1
