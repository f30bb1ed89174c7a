"""A pytest plugin for scripts/flaky: records what each test uses, or runs only a list of tests.

`--flaky-select FILE` keeps only the tests whose ids are in that file, one a line.
`--flaky-report FILE` writes one line of JSON for each test that starts or ends, with what it used.
Rules: observes and never changes what a test does; needs nothing that pytest does not bring.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pytest
import uvloop

TESTS = str(Path(__file__).resolve().parent.parent)
# Audit events, and the kind of resource whose use each of them shows. An event loop has a pair of
# sockets for itself, so that `socket.__new__` alone would show nothing.
EVENTS = {
    "socket.bind": "socket",
    "socket.connect": "socket",
    "socket.getaddrinfo": "socket",
    "subprocess.Popen": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "os.system": "process",
}
# uvloop does without Python's sockets and raises no audit events.
UVLOOP = {
    "create_server": "socket",
    "create_connection": "socket",
    "create_unix_server": "socket",
    "create_unix_connection": "socket",
    "create_datagram_endpoint": "socket",
    "subprocess_exec": "process",
    "subprocess_shell": "process",
    "run_in_executor": "thread",
    "call_later": "time",
    "call_at": "time",
}
CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns")


class Watch:
    """What the test that runs now has used so far."""

    def __init__(self, report: TextIO) -> None:
        self.report = report
        self.used: set[str] = set()
        self.failed = False
        self.seconds = 0.0

    def install(self) -> None:
        """For the rest of this process: an audit hook cannot be removed."""

        def hear(event: str, _: object) -> None:
            if kind := EVENTS.get(event):
                self.used.add(kind)

        sys.addaudithook(hear)
        self._wrap(threading.Thread, "start", "thread")  # no audit event before Python 3.12
        self._wrap(time, "sleep", "time")
        for name in ("call_later", "call_at"):
            self._wrap(asyncio.BaseEventLoop, name, "time")
        for name, kind in UVLOOP.items():
            self._wrap(uvloop.Loop, name, kind)
        for name in CLOCKS:
            self._wrap_clock(name)

    def _wrap(self, owner: Any, name: str, kind: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.used.add(kind)
            return real(*args, **kwargs)

        setattr(owner, name, watched)

    def _wrap_clock(self, name: str) -> None:
        """A clock that a test itself reads: it may hold what it reads against a bound."""
        real: Callable[[], float] = getattr(time, name)

        def watched() -> float:
            if sys._getframe(1).f_code.co_filename.startswith(TESTS):
                self.used.add("time")
            return real()

        setattr(time, name, watched)

    def write(self, **line: object) -> None:
        self.report.write(json.dumps(line) + "\n")
        self.report.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.used.clear()
        self.failed, self.seconds = False, 0.0
        self.write(start=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or report.failed
        self.seconds += report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        used, seconds = sorted(self.used), round(self.seconds, 3)
        self.write(end=nodeid, failed=self.failed, used=used, seconds=seconds)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(end=report.nodeid, failed=True, used=[], seconds=0.0)


class Select:
    def __init__(self, wanted: frozenset[str]) -> None:
        self.wanted = wanted

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        left = [item for item in items if item.nodeid not in self.wanted]
        items[:] = [item for item in items if item.nodeid in self.wanted]
        config.hook.pytest_deselected(items=left)


class Names:
    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.path.write_text("".join(f"{item.nodeid}\n" for item in session.items), "utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flaky")
    group.addoption("--flaky-select", metavar="FILE", help="run only the tests listed there")
    group.addoption("--flaky-names", metavar="FILE", help="write the ids of the tests there")
    group.addoption("--flaky-report", metavar="FILE", help="write what each test used there")


def pytest_configure(config: pytest.Config) -> None:
    select: str | None = config.getoption("--flaky-select")
    if select is not None:
        wanted = frozenset(Path(select).read_text("utf-8").split("\n"))
        config.pluginmanager.register(Select(wanted), "flaky-selection")
    names: str | None = config.getoption("--flaky-names")
    if names is not None:
        config.pluginmanager.register(Names(Path(names)), "flaky-names")
    report: str | None = config.getoption("--flaky-report")
    if report is not None:
        opened = Path(report).open("w", encoding="utf-8")  # noqa: SIM115 (open for the whole run)
        config.add_cleanup(opened.close)
        watch = Watch(opened)
        watch.install()
        config.pluginmanager.register(watch, "flaky-watch")
