"""The scripts beside this file that measure what hostile clients and servers cost."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted(Path(__file__).parent.glob("measure_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_measuring_script_finds_what_it_imports(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = Path(__file__).resolve().parent.parent / "support"
    # As when it is started: without what the tests add to the path.
    elsewhere = [one for one in sys.path if Path(one).resolve() != support]
    monkeypatch.setattr(sys, "path", elsewhere)
    for name in [one for one in sys.modules if one.split(".")[0] in ("hostile", "http_client")]:
        monkeypatch.delitem(sys.modules, name)
    assert script.name in runpy.run_path(str(script))["__doc__"]
