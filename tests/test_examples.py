"""Every example runs to its end without a terminal."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_example_plays_itself_through(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout
    assert run.stderr == ""
