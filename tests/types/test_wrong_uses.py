"""What a type checker must report: every wrong use of `wrong_uses.txt`, at its line, by its rule.

Rules: pyright runs as our users run it, with our package and nothing of this project's settings.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import colonnade

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "src"
WRONG = (HERE / "wrong_uses.txt").read_text("utf-8")
MARK = re.compile(r"# expect-error: (\w+)$")
CHECK_S = 120


def expected() -> dict[int, str]:
    """The lines that are marked, and the rule that each breaks."""
    lines = enumerate(WRONG.splitlines(), 1)
    return {number: found[1] for number, line in lines if (found := MARK.search(line))}


def reported(folder: Path) -> dict[int, set[str]]:
    """What pyright says of a copy, line by line."""
    (folder / "wrong_uses.py").write_text(WRONG, "utf-8")
    settings = {
        "include": ["wrong_uses.py"],
        "extraPaths": [str(SOURCE)],
        "pythonVersion": "3.11",
        # What is wrong with a line must not be hidden by what is unused in it.
        "reportUnusedExpression": "none",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=CHECK_S,
    )
    found: dict[int, set[str]] = {}
    for one in json.loads(run.stdout)["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        found.setdefault(line, set()).add(one.get("rule", one["message"]))
    return found


def test_every_wrong_use_is_reported_and_nothing_else_is(tmp_path: Path) -> None:
    wanted, found = expected(), reported(tmp_path)
    assert len(wanted) > 80
    missed = {line: rule for line, rule in wanted.items() if rule not in found.get(line, ())}
    beyond = {line: rules for line, rules in found.items() if line not in wanted}
    assert (missed, beyond) == ({}, {})


def test_every_public_name_has_its_types_tested() -> None:
    said = "".join(path.read_text("utf-8") for path in HERE.glob("test_*.py"))
    public: tuple[str, ...] = vars(colonnade)["__all__"]
    assert [name for name in public if not re.search(rf"\b{name}\b", said)] == []
