"""The container of `examples/deploy`: built and run by Docker, or its steps in a clean environment.

    python tests/deploy/container.py          # scripts/deploy container

Where no Docker daemon answers, the instructions of the Dockerfile are followed one after the other in
a new environment of Python, and it says so: what is installed, copied, started and checked is the
same; that the image builds, and its user, are not shown then.

Rules: all of it on loopback, and ended before this ends.
"""

import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "support")]

from deploy.recipes import container, container_check, only  # noqa: E402

START_S = 60.0
BUILD_S = 900.0
IMAGE = "colonnade-deploy-check"


def say(words: str) -> None:
    print(f"== {words}", flush=True)


def docker_answers() -> bool:
    """Whether there is a daemon to build with."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info"], capture_output=True, timeout=START_S)
    return asked.returncode == 0


def by_docker() -> None:
    """Build it, run it, and ask it."""
    dockerfile = str(ROOT / "examples" / "deploy" / "Dockerfile")
    build = ["docker", "build", "-f", dockerfile, "-t", IMAGE, str(ROOT)]
    subprocess.run(build, check=True, timeout=BUILD_S)
    run = ["docker", "run", "--rm", "--detach", IMAGE]
    started = subprocess.run(run, check=True, capture_output=True, text=True, timeout=START_S)
    name = started.stdout.strip()
    try:
        end = time.monotonic() + START_S
        while (asked := _asked(["docker", "exec", name, *container_check()])).returncode:
            if time.monotonic() > end:
                raise SystemExit(f"the container does not answer: {asked.stderr}")
            time.sleep(0.5)
        print(asked.stdout)
    finally:
        subprocess.run(["docker", "stop", "--time", "40", name], check=True, timeout=2 * START_S)


def _asked(
    command: list[str], environ: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, env=environ)


def by_hand(folder: Path) -> None:
    """Follow the instructions, one after the other."""
    home = folder / "environment"
    venv.create(home, with_pip=True)
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environ = {
        "PATH": path,
        "HOME": str(folder),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "1",
    }
    environ |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    here = folder
    for step in container():
        if step.what == "WORKDIR":
            here = folder / step.words.lstrip("/")
            here.mkdir(parents=True, exist_ok=True)
        elif step.what == "COPY":
            *names, to = step.words.split()
            for name in names:
                _copy(ROOT / name, here, to)
        elif step.what == "RUN":
            say(f"RUN {step.words}")
            words = shlex.split(step.words)
            subprocess.run(words, cwd=here, env=environ, check=True, timeout=BUILD_S)
    words = ["127.0.0.1" if word == "0.0.0.0" else word for word in only("CMD").listed]
    words[words.index("--port") + 1] = "0"
    say("CMD " + " ".join(words))
    serve(words, here, environ)


def _copy(source: Path, here: Path, to: str) -> None:
    if source.is_dir():
        shutil.copytree(source, here / to, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, here / to)


def serve(words: list[str], here: Path, environ: dict[str, str]) -> None:
    """Start the command, and ask it what the health check asks."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=here, env=environ, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            ready, _, _ = select.select([process.stdout], [], [], START_S)
            line = process.stdout.readline() if ready else ""
            print(line, end="")
            *check, _ = container_check()
            asked = _asked(
                [*check, urlsplit(line.split()[-1]).netloc if line else "nowhere"], environ
            )
            print(asked.stdout, end="")
            if asked.returncode:
                raise SystemExit(f"the health check says no: {asked.stderr}")
        finally:
            process.terminate()
            process.wait(START_S)
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}")


def main() -> None:
    if docker_answers():
        say("the container, by Docker")
        by_docker()
        return
    say("no Docker daemon answers here: its steps in a clean environment; no image was built")
    with tempfile.TemporaryDirectory() as folder:
        by_hand(Path(folder))


if __name__ == "__main__":
    main()
