"""scripts/flaky: runs the tests that use sockets, processes, threads or time many times in a row.

Rules: only processes that were started here are ended. A shard in which nothing starts or ends for
HANGING_S seconds is ended and counted as a failure of the test that ran.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from threading import Event
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
CACHE = ROOT / ".venv" / "flaky.json"
# How often each test file has passed as a whole, as it is now: --record.
PASSES = ROOT / "tests" / "flaky" / "passes.json"
# With --record a run is cut into so many parts for each shard: what has passed is kept when the
# command is ended.
PARTS = 8
# The slowest single test takes some minutes beside busy processes.
HANGING_S = 1800.0
# With --stall a shard runs for at most so long, is stopped for at most so long, and runs on.
RUN_S = 0.4
STALL_S = 0.5
# Of a file that has not been run yet the time is unknown; most take some seconds.
UNKNOWN = 5.0
# Set where Ctrl-C ends the command: every shard is ended then.
stopping = Event()
BURN = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))\n"


@dataclass
class Known:
    """What was observed of a test: what it used, and how long it took."""

    used: list[str]
    seconds: float


@dataclass
class Passes:
    """How often a test file has passed: alone, and beside busy processes."""

    digest: str
    alone: int = 0
    busy: int = 0


@dataclass
class Outcome:
    """What one pytest process did."""

    log: Path
    ended: dict[str, Known] = field(default_factory=dict[str, Known])
    failed: list[str] = field(default_factory=list[str])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/flaky", allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--stall", action="store_true")
    parser.add_argument("--find", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--record", action="store_true")
    options, limits = parser.parse_known_args(arguments)
    (ROOT / "build" / "flaky").mkdir(parents=True, exist_ok=True)
    logs = Path(mkdtemp("", time.strftime("%Y%m%d-%H%M%S-"), ROOT / "build" / "flaky"))
    names = collect(limits, logs)
    known = {} if options.fresh else read_cache()
    if options.record and not options.fresh:
        known = of_recorded(names) | known
    outcomes: list[Outcome] = []
    if missing := [name for name in names if name not in known]:
        print(f"{len(missing)} tests to observe in {files(missing)} files", flush=True)
        parts = PARTS if options.record else 1
        found = run_shards(missing, known, options.shards, logs, ["find"], parts=parts)
        for outcome in found:
            outcomes.append(outcome)
            known.update(outcome.ended)
            write_cache(known)
            if options.record:  # it is a run as any other
                keep_passes(read_passes(), outcome, missing, beside=False)
    wanted = [name for name in names if name in known and known[name].used]
    if options.find:
        for name in wanted:
            print(f"{'+'.join(known[name].used):30} {known[name].seconds:8.2f} s  {name}")
    elif options.record:
        outcomes += run_recorded(wanted, known, options, logs)
    else:
        plain = options.runs if options.busy == 0 else options.runs - options.runs // 2
        total = sum(known[name].seconds for name in wanted)
        print(f"{len(wanted)} of {len(names)} tests, {total:.0f} s a run, {options.runs} runs")
        labels = [f"run-{number:02}" for number in range(1, plain + 1)]
        outcomes += run_shards(wanted, known, options.shards, logs, labels, options.stall)
        with busy(options.busy):
            labels = [f"run-{number:02}-busy" for number in range(plain + 1, options.runs + 1)]
            outcomes += run_shards(wanted, known, options.shards, logs, labels, options.stall)
    return report(len(wanted), 0 if options.find else options.runs, outcomes)


def run_recorded(
    wanted: list[str], known: dict[str, Known], options: argparse.Namespace, logs: Path
) -> Iterator[Outcome]:
    """Run what has not passed often enough yet, and keep what passes, file by file."""
    alone = options.runs - options.runs // 2
    passes = read_passes()
    print_passes(wanted, passes, options.runs)
    for number in range(1, options.runs + 1):
        beside = number > alone
        short = [
            name
            for name in wanted
            if count(passes, file_of(name), beside) < number - (alone if beside else 0)
        ]
        label = f"run-{number:02}{'-busy' if beside else ''}"
        with busy(options.busy if beside and short else 0):
            for outcome in run_shards(
                short, known, options.shards, logs, [label], options.stall, PARTS
            ):
                yield outcome
                known.update(outcome.ended)
                write_cache(known)
                keep_passes(passes, outcome, short, beside)
    print_passes(wanted, passes, options.runs)


def count(passes: dict[str, Passes], file: str, beside: bool) -> int:
    kept = passes.get(file)
    return 0 if kept is None else kept.busy if beside else kept.alone


def keep_passes(
    passes: dict[str, Passes], outcome: Outcome, names: list[str], beside: bool
) -> None:
    """Count the files of which every test has ended, and none has failed; one that failed begins
    again."""
    failed = {file_of(name) for name in outcome.failed}
    # A file of which no test uses anything is not run again.
    for file in {file_of(name) for name, one in outcome.ended.items() if one.used}:
        if file in failed:
            passes.pop(file, None)
        elif all(name in outcome.ended for name in names if file_of(name) == file):
            kept = passes.setdefault(file, Passes(digest_of(file)))
            if beside:
                kept.busy += 1
            else:
                kept.alone += 1
    rows = {file: [one.digest, one.alone, one.busy] for file, one in sorted(passes.items())}
    text = ",\n".join(f"{json.dumps(file)}: {json.dumps(row)}" for file, row in rows.items())
    PASSES.write_text(f"{{\n{text}\n}}\n", "utf-8")


def read_passes() -> dict[str, Passes]:
    """How often the files have passed that are as they were then."""
    try:
        rows: dict[str, tuple[str, int, int]] = json.loads(PASSES.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    kept = {file: Passes(*row) for file, row in rows.items()}
    return {file: one for file, one in kept.items() if one.digest == digest_of(file)}


def print_passes(wanted: list[str], passes: dict[str, Passes], runs: int) -> None:
    alone = runs - runs // 2
    every = {file_of(name) for name in wanted}
    both = [(count(passes, one, False), count(passes, one, True)) for one in every]
    done = sum(by_itself >= alone and beside >= runs // 2 for by_itself, beside in both)
    least = min((by_itself + beside for by_itself, beside in both), default=0)
    print(
        f"{len(wanted)} tests in {len(every)} files: {done} files have passed {runs} times, "
        f"each at least {least} times",
        flush=True,
    )


def collect(limits: list[str], logs: Path) -> list[str]:
    """The ids of all tests that pytest finds with these arguments."""
    found = logs / "collected"
    marks = [] if "-m" in limits else ["-m", "not battery"]
    command = [*pytest(), "--collect-only", "-qq", "--flaky-names", str(found), *marks, *limits]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0 or not found.exists():
        sys.exit(done.stdout[-4000:] + "scripts/flaky: pytest cannot collect these tests")
    return found.read_text("utf-8").splitlines()


def pytest() -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "flaky.watch"]


def file_of(name: str) -> str:
    return name.split("::", 1)[0]


def files(names: Iterable[str]) -> int:
    return len({file_of(name) for name in names})


def read_cache() -> dict[str, Known]:
    """What is known of the tests whose files are as they were then."""
    try:
        kept: dict[str, Any] = json.loads(CACHE.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {
        name: Known(used, seconds)
        for file, (digest, tests) in kept.items()
        if digest == digest_of(file)
        for name, (used, seconds) in tests.items()
    }


def of_recorded(names: list[str]) -> dict[str, Known]:
    """The tests of the files whose runs have been counted: they were observed then, perhaps in
    another clone, and need no run to find what they use."""
    passes = read_passes()
    in_file = Counter(map(file_of, names))
    return {
        name: Known(["recorded"], UNKNOWN / in_file[file_of(name)])
        for name in names
        if file_of(name) in passes
    }


def write_cache(known: dict[str, Known]) -> None:
    kept: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, one in known.items():
        file = file_of(name)
        _, tests = kept.setdefault(file, (digest_of(file), {}))
        tests[name] = (one.used, one.seconds)
    CACHE.write_text(json.dumps(kept), "utf-8")


def digest_of(file: str) -> str:
    with suppress(OSError):
        return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
    return ""


def shards_of(names: list[str], known: dict[str, Known], count: int) -> list[list[str]]:
    """The tests in so many parts that take about as long; a file is never split."""
    by_file: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_file[file_of(name)].append(name)
    times = {
        file: sum(known[name].seconds if name in known else UNKNOWN / len(tests) for name in tests)
        for file, tests in by_file.items()
    }
    shards: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for file in sorted(by_file, key=lambda file: -times[file]):
        least = loads.index(min(loads))
        shards[least] += by_file[file]
        loads[least] += times[file]
    return [shard for shard in shards if shard]


def run_shards(
    names: list[str],
    known: dict[str, Known],
    count: int,
    logs: Path,
    labels: list[str],
    stall: bool = False,
    parts: int = 1,
) -> Iterator[Outcome]:
    """Each shard once for each label, `count` at once; each is cut into `parts`."""
    shards = shards_of(names, known, count * parts)
    if not shards or not labels:
        return
    with ThreadPoolExecutor(count) as pool:
        running: list[Future[Outcome]] = [
            pool.submit(run_shard, shard, logs / f"{label}-shard-{number}", stall)
            for label in labels
            for number, shard in enumerate(shards, 1)
        ]
        try:
            for done in as_completed(running):
                outcome = done.result()
                failed = f"{len(outcome.failed)} failed" if outcome.failed else "passed"
                print(f"{outcome.log.name}: {len(outcome.ended)} tests, {failed}", flush=True)
                yield outcome
        except BaseException:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_shard(names: list[str], path: Path, stall: bool) -> Outcome:
    select, report, log = (path.with_suffix(end) for end in (".tests", ".json", ".log"))
    select.write_text("\n".join(names), "utf-8")
    command = [*pytest(), "-q", "-rfE", "--flaky-select", str(select), "--flaky-report"]
    command += [str(report), *sorted({file_of(name) for name in names})]
    report.touch()
    with log.open("wb") as out:
        # A group of its own, so that what a test that stalls has started can be ended with it.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait(process, report, stall)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return read_report(report, log, process.returncode)


def wait(process: subprocess.Popen[bytes], report: Path, stall: bool) -> None:
    while not stopping.is_set() and time.time() - report.stat().st_mtime < HANGING_S:
        with suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0.0, RUN_S) if stall else 1.0)
            return
        if stall:
            os.killpg(process.pid, signal.SIGSTOP)
            time.sleep(random.uniform(0.0, STALL_S))
            os.killpg(process.pid, signal.SIGCONT)


def read_report(report: Path, log: Path, code: int) -> Outcome:
    outcome = Outcome(log)
    running = ""
    for text in report.read_text("utf-8").splitlines():
        line: dict[str, Any] = json.loads(text)
        running = line.get("start", "")
        if name := line.get("end"):
            outcome.ended[name] = Known(line["used"], line["seconds"])
            if line["failed"]:
                outcome.failed.append(name)
    if code not in (0, 1) or (code == 1 and not outcome.failed):
        outcome.failed.append(running or f"pytest itself, which ended with {code}")
    return outcome


@contextmanager
def busy(count: int) -> Generator[None]:
    """So many processes that only use their core, until the end of the block."""
    command = [sys.executable, "-c", BURN, str(os.getpid())]
    burning = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def report(tests: int, runs: int, outcomes: list[Outcome]) -> int:
    failures: dict[str, list[Path]] = defaultdict(list)
    for outcome in outcomes:
        for name in outcome.failed:
            failures[name].append(outcome.log)
    total = sum(len(logs) for logs in failures.values())
    print(f"{tests} tests, {runs} runs, {total} failures")
    for name, logs in sorted(failures.items(), key=lambda one: -len(one[1])):
        places = " ".join(str(log.relative_to(ROOT)) for log in logs)
        print(f"{len(logs)} x {name}\n    {places}")
    return 1 if total else 0


if __name__ == "__main__":
    # Started in the background of a script Ctrl-C would be ignored; `kill` ends it in the same way.
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.default_int_handler)
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `scripts/flaky --find | head` is no failure
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
