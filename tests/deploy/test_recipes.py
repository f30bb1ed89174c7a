"""The files of `examples/deploy` say the same as README and docs, and their commands work.

That nginx, systemd and a container take them is shown by `scripts/deploy`, where those are there.
"""

import os
import re
import select
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from colonnade import Limits, RunLimits
from deploy.recipes import (
    DEPLOY,
    REPLICAS,
    ROOT,
    compose,
    container,
    container_check,
    manifest,
    only,
    pod,
    readme_command,
    redis_options,
    replica_addresses,
    replica_command,
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
    names = shlex.split("--allow-host mcp.example.com --trusted-proxy 127.0.0.1")
    assert rest == [*readme, *names, "--log-json"]


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


# ---------------------------------------------------------------- replicas


PAGE = (ROOT / "docs" / "replicas.md").read_text("utf-8")
REPLICAS_NGINX = (REPLICAS / "nginx.conf").read_text("utf-8")


def test_a_replica_of_kubernetes_starts_as_the_image_does_and_drains() -> None:
    (replica,) = pod("Deployment", "trip")["containers"]
    delay = shlex.split("--limit shutdown_delay_s=10")
    assert replica["command"] == [*replica_command()[:-1], *delay, replica_command()[-1]]
    grace_s = pod("Deployment", "trip")["terminationGracePeriodSeconds"]
    assert grace_s > 10 + Limits().drain_timeout_s
    probe = replica["readinessProbe"]
    # Not ready is noticed while requests are still accepted.
    assert probe["periodSeconds"] * probe["failureThreshold"] < 10
    assert probe["httpGet"]["path"] == "/ready"
    assert replica["livenessProbe"]["httpGet"]["path"] == "/health"
    (port,) = replica["ports"]
    assert str(port["containerPort"]) in replica["command"]


def test_an_update_of_kubernetes_takes_no_replica_away_first() -> None:
    spec = manifest("Deployment", "trip")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert manifest("PodDisruptionBudget", "trip")["spec"]["minAvailable"] < spec["replicas"]


def test_compose_has_the_replicas_of_nginx_and_waits_until_calls_have_finished() -> None:
    services = compose()["services"]
    replicas = [services[name] for name in sorted(services) if name.startswith("replica")]
    addresses = [one["networks"]["trip"]["ipv4_address"] for one in replicas]
    assert [f"{address}:8000" for address in addresses] == replica_addresses()
    for one in replicas:
        assert float(one["stop_grace_period"].rstrip("s")) > Limits().drain_timeout_s
        assert one["build"]["dockerfile"] == "examples/deploy/replicas/Dockerfile"
    assert replica_command()[:5] == ["colonnade", "serve", "trip.py", "--port", "8000"]


def test_nginx_sends_a_refused_request_to_the_other_replicas() -> None:
    everyone = replica_addresses()
    for number, left_out in enumerate(everyone, 1):
        group = REPLICAS_NGINX.partition(f"upstream all_but_{number} {{")[2].partition("}")[0]
        others = re.findall(r"server (\S+) ", group)
        assert others == [address for address in everyone if address != left_out]
        assert f'"~{left_out}$" all_but_{number};' in REPLICAS_NGINX
    assert "non_idempotent" not in re.sub("#.*", "", REPLICAS_NGINX)


def test_nginx_streams_to_replicas_as_to_one_server() -> None:
    own = dict(re.findall(r"^ +((?:proxy_set_header )?\w+) (.+);$", REPLICAS_NGINX, re.MULTILINE))
    for name in ("proxy_buffering", "proxy_cache", "gzip", "proxy_read_timeout"):
        assert own[name] == setting(name)
    assert own["client_max_body_size"] == setting("client_max_body_size")


def test_redis_keeps_what_it_has_acknowledged_in_every_recipe_and_on_the_page() -> None:
    options = redis_options()
    (redis,) = pod("StatefulSet", "trip-redis")["containers"]
    assert redis["command"][1 : 1 + len(options)] == options
    settings = dict(zip(options[::2], options[1::2], strict=True))
    assert settings["--appendonly"] == "yes"
    assert settings["--appendfsync"] == "always"
    assert settings["--maxmemory-policy"] == "noeviction"
    for page in (PAGE, (ROOT / "docs" / "stores.md").read_text("utf-8")):
        for name, value in settings.items():
            assert f"{name.removeprefix('--')} {value}\n" in page


def test_the_recipes_have_no_secret_of_their_own() -> None:
    assert set(manifest("Secret", "trip")["stringData"].values()) == {"to be replaced"}
    for service in compose()["services"].values():
        assert service.get("environment", {}).get("TRIP_KEYS", "${").startswith("${")


def test_what_a_replica_s_container_copies_is_there_and_not_ignored() -> None:
    ignored = (REPLICAS / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = [
        word for one in container(REPLICAS) if one.what == "COPY" for word in one.words.split()[:-1]
    ]
    for name in copied:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored


def test_the_page_names_every_file_and_every_check_of_the_recipes() -> None:
    for file in REPLICAS.iterdir():
        if file.is_file():
            assert f"replicas/{file.name.partition('.dockerignore')[0]}" in PAGE, file.name
    for part in ("compose", "kubernetes", "replicas"):
        assert f"scripts/deploy {part}" in PAGE
    script = (ROOT / "scripts" / "deploy").read_text("utf-8")
    for validator in re.findall(r"scripts/_peers ([\w-]+ [\d.]+)", script):
        assert validator in PAGE


# ---------------------------------------------------------------- the commands, run


@contextmanager
def started(
    command: list[str], folder: Path = ROOT / "examples", environ: dict[str, str] | None = None
) -> Generator[str]:
    """A command of a recipe on this machine: on loopback, and on a port that is free."""
    assert command[0].endswith("colonnade")
    words = ["127.0.0.1" if word == "0.0.0.0" else word for word in command[1:]]
    words[words.index("--port") + 1] = "0"
    with subprocess.Popen(
        [*COLONNADE, *words],
        cwd=folder,
        env={**os.environ, **(environ or {})},
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


def test_the_command_of_a_replica_serves_on_a_store_and_keys_of_the_environment(
    tmp_path: Path,
) -> None:
    environ = {"STORE_URL": str(tmp_path / "trip.db"), "TRIP_KEYS": f"{'0' * 64},{'1' * 64}"}
    with started(replica_command(), REPLICAS, environ) as url:
        assert status(url, "mcp.example.com") == 400
        with urllib.request.urlopen(url.replace("/mcp", "/ready"), timeout=START_S) as answer:
            assert answer.read() == b"ok"


def test_the_check_of_the_container_says_whether_it_is_well() -> None:
    program, *check, address = container_check()
    assert (program, address) == ("python", "127.0.0.1:8000")
    with started(only("CMD").listed) as url:
        command = [sys.executable, *check, urlsplit(url).netloc]
        asked = subprocess.run(command, capture_output=True, timeout=START_S)
        assert asked.returncode == 0, asked.stderr
    assert subprocess.run(command, capture_output=True, timeout=START_S).returncode == 1
