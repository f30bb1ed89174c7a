"""Takes one check out of a copy of the package, and sees whether a test fails.

A line that is no longer there fails, too: then look whether its check still is.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent.parent
WAIT_S = 120.0
# What a test is selected by in an expression of `pytest -k`.
WORDS = re.compile(r"\b(?!(?:and|or|not)\b)[\w.-]+")


class Cut(NamedTuple):
    """A check that is taken out: where, what, what is there instead, and the tests that must fail."""

    file: str
    old: str
    new: str
    tests: str
    only: str


def check_fits(name: str, cut: Cut, tests: str) -> None:
    """Fail unless the check is in its file once, what is there instead is Python, and the tests that
    must fail have not been renamed."""
    source = (ROOT / "src" / "colonnade" / cut.file).read_text("utf-8")
    assert source.count(cut.old) == 1, f"{name}: {cut.file} has not one of {cut.old!r}"
    compile(source.replace(cut.old, cut.new), cut.file, "exec")
    file = ROOT / tests / cut.tests
    assert file.is_file(), f"{name}: no {cut.tests}"
    names = f"{file} {file.read_text('utf-8')}".lower()
    for word in WORDS.findall(cut.only.lower()):
        assert word in names, (
            f"{name}: -k {cut.only!r} selects no test, {cut.tests} has no {word!r}"
        )


def check_missed(cut: Cut, folder: Path, tests: str = "tests/auth") -> None:
    """Fail unless a test fails without the check. `cut.tests` is a file in the folder `tests`."""
    shutil.copytree(ROOT / "src" / "colonnade", folder / "colonnade")
    path = folder / "colonnade" / cut.file
    text = path.read_text("utf-8")
    assert text.count(cut.old) == 1, f"{cut.file} has {text.count(cut.old)} of {cut.old!r}"
    path.write_text(text.replace(cut.old, cut.new), "utf-8")
    compile(path.read_text("utf-8"), str(path), "exec")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-qx", f"{tests}/{cut.tests}", "-k", cut.only],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        encoding="utf-8",
        timeout=WAIT_S,
    )
    assert ran.returncode == 1, f"no test failed:\n{ran.stdout[-2000:]}{ran.stderr[-500:]}"
