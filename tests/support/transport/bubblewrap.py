"""bubblewrap for the tests of sandboxes: that of the PATH, or that of `scripts/bubblewrap`."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@cache
def _find() -> tuple[str, str]:
    """The path of a bwrap that can make a sandbox, or why there is none."""
    program = shutil.which("bwrap")
    if program is None:
        script = ROOT / "scripts" / "bubblewrap"
        done = subprocess.run([script], capture_output=True, text=True, check=False)
        if done.returncode:
            return "", done.stderr.strip()
        program = done.stdout.strip()
    argv = [program, "--unshare-user", "--unshare-pid", "--unshare-net", "--disable-userns"]
    argv += ["--ro-bind", "/", "/", "--proc", "/proc", "--", "/bin/sh", "-c", ":"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return (program, "") if done.returncode == 0 else ("", done.stderr.strip())


def need_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a bwrap on the PATH. Without one the test is skipped, or fails if it is required."""
    program, problem = _find()
    if not program:
        if os.environ.get("COLONNADE_REQUIRE_SANDBOX"):
            pytest.fail(f"no sandbox: {problem}")
        pytest.skip(f"no sandbox: {problem}")
    path = os.pathsep.join((os.path.dirname(program), os.environ.get("PATH", os.defpath)))
    monkeypatch.setenv("PATH", path)
    return program
