"""What every test run shares: it says which proof it can give, and leaves time out of hypothesis.

Rules: no fixtures that hide what a test does; a test builds what it needs.
"""

import gc
import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from colonnade import Gateway
from requirements.marks import parametrize_revision

OFFICIAL = Path(__file__).resolve().parent.parent.parent / "shared" / "spec"

# A busy machine is not a defect; a case that is too slow has its own test with its own bound.
settings.register_profile("colonnade", deadline=None)
settings.load_profile("colonnade")


# Whoever runs the tests in the background of a script has Ctrl-C ignored, and every process that
# they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The same under nohup. A handler that does nothing is not inherited by commands, as ignoring is.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_configure(config: pytest.Config) -> None:
    # A child process may take long to start on a busy machine. Lists of gateways wait for it, so
    # that no test depends on the speed of the machine.
    defaults = Gateway.__init__.__kwdefaults__
    assert defaults is not None
    defaults["wait_s"] = 30.0
    # What a test, or a command that it starts, keeps for later is never kept in the home of whoever
    # runs the tests. A test that looks at what is kept has a folder of its own.
    kept = tempfile.TemporaryDirectory(prefix="colonnade-tests-")
    config.add_cleanup(kept.cleanup)
    os.environ["COLONNADE_HOME"] = kept.name


def pytest_report_header() -> str:
    if OFFICIAL.is_dir():
        return f"official specification: found at {OFFICIAL}, schemas and requirements are compared"
    return f"official specification: none at {OFFICIAL}, golden transcripts carry the proof"


def pytest_collection_finish() -> None:
    # What was loaded stays for the whole run; a test that looks for what is left behind by
    # `gc.collect()` need not walk through all of it each time.
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_revision(metafunc)


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "write tests/transcripts anew; read what changed before you keep it"
    parser.addoption("--rewrite-transcripts", action="store_true", help=words)
    words = "run only the tests that name this rule of the specification (R0234)"
    parser.addoption("--spec", metavar="ID", help=words)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not (wanted := config.getoption("--spec")):
        return
    naming, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        named = any(wanted in mark.args for mark in item.iter_markers("spec"))
        (naming if named else others).append(item)
    items[:] = naming
    config.hook.pytest_deselected(items=others)


@pytest.fixture
def rewrite_transcripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite-transcripts"))
