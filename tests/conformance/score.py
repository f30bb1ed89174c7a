"""Scores what the official conformance suite wrote, more strictly than the suite does.

    python tests/conformance/score.py RESULTS REQUIREMENTS [gateway]

RESULTS has a folder for each revision, REQUIREMENTS are the suite's own lists.

A scenario passes with no FAILURE and no WARNING, and with a SUCCESS that is its own: that what was
sent fits the schema says nothing of a server that does nothing. A tool that answered an error has
not done what its scenario is about.

Rules: nothing is expected to fail. A scenario that did not run has failed, and so has a list of
scenarios that is not as long as it should be.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

# How many scenarios of a server each revision requires, by the suite's own lists.
REQUIRED = {"2025-11-25": 30, "2026-07-28": 37}
# Not scored by the suite, and required here.
BESIDE = {
    "2025-11-25": ("server-session-lifecycle", "server-sse-polling", "json-schema-2020-12"),
    "2026-07-28": (
        "json-schema-2020-12",
        "http-header-validation",
        "http-custom-header-server-validation",
        "tasks-lifecycle",
        "tasks-capability-negotiation",
        "tasks-wire-fields",
        "tasks-request-state-removal",
        "tasks-mrtr-input",
        "tasks-request-headers",
        "tasks-dispatch-and-envelope",
        "tasks-required-task-error",
        "tasks-mrtr-composition",
    ),
}
# Scenarios that a gateway cannot pass as a server does, and why; by the kind of what is served.
EXEMPT = {
    "": dict[str, str](),
    "gateway": {
        "tasks-required-task-error": "a gateway waits for the task of a client that has no tasks",
        # R0487: a server MAY end a connection that it holds. That of the client is held by the
        # gateway; what the server ends is resumed by the gateway.
        "server-sse-polling": "the connection that the server ends is that of the gateway",
        # R0804: a gateway gives a state with all that it asks, which a client MUST send back. That
        # other responses are ignored (R0811) is tested with it, in test_held_calls.py.
        "input-required-result-ignore-extra-params": "it answers in its first request, without the "
        "state that a gateway gives with what it asks",
    },
}
# Made by the suite for nearly every scenario, whatever else happened.
BY_THE_WAY = "wire-schema-valid"
# The scenarios whose tool is to fail.
FAILS = frozenset({"tools-call-error", "tasks-lifecycle"})
# What the suite calls the folder of a scenario: with the time of its run.
FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
# What is shown of a reason; the rest is in the results.
MAX_REASON_CHARACTERS = 300


class Check(msgspec.Struct, rename="camel"):
    """One thing that the suite looked at."""

    id: str
    status: str
    error_message: str | None = None
    details: Any = None


class Verdict(NamedTuple):
    """One scenario: how many checks ended how, and why it has failed, if it has."""

    scenario: str
    counts: Mapping[str, int]
    reasons: list[str]


def required(text: str, side: str = "server") -> list[str]:
    """The scenarios of a server, or of a client, in a list of requirements of the suite."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        if line[:1] not in ("", " ", "#"):
            inside = line.rstrip() == f"{side}:"
        elif inside and line.startswith("  - "):
            found.append(line[4:].partition(" #")[0].strip())
    return found


def read_results(folder: Path) -> dict[str, list[Check]]:
    """The checks of every scenario that ran, by its name."""
    found: dict[str, list[Check]] = {}
    for path in sorted(folder.glob("*/checks.json")):
        name = FOLDER.fullmatch(path.parent.name)
        if name is not None:
            found[name[1]] = msgspec.json.decode(path.read_bytes(), type=list[Check])
    return found


def judge(scenario: str, checks: list[Check] | None) -> Verdict:
    """The verdict on a scenario by its checks; None where it did not run."""
    if checks is None:
        return Verdict(scenario, {}, ["did not run"])
    reasons = [
        f"{check.status} {check.id}: {check.error_message or ''}"[:MAX_REASON_CHARACTERS]
        for check in checks
        if check.status in ("FAILURE", "WARNING")
    ]
    if not any(check.status == "SUCCESS" and check.id != BY_THE_WAY for check in checks):
        reasons.append("nothing of its own succeeded")
    if scenario not in FAILS and any(_is_error(check.details) for check in checks):
        reasons.append("a tool answered an error")
    return Verdict(scenario, Counter(check.status for check in checks), reasons)


def _is_error(details: object) -> bool:
    """Whether there is a tool's error somewhere in what a check has seen."""
    waiting = [details]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            if members.get("isError") is True:
                return True
            waiting += members.values()
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
    return False


# ---------------------------------------------------------------- what is printed


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """One line for each scenario, and one for each reason."""
    for scenario, counts, reasons in verdicts:
        numbers = [counts.get(status, 0) for status in ("SUCCESS", "FAILURE", "WARNING", "SKIPPED")]
        shown = "".join(f"{number or '.':>9}" for number in numbers)
        yield f"{'FAILED' if reasons else 'passed':8}{scenario:48}{shown}"
        for reason in reasons:
            yield f"        {reason}"


def report(title: str, verdicts: list[Verdict]) -> bool:
    """Print a table and its total; whether all have passed."""
    passed = sum(not verdict.reasons for verdict in verdicts)
    heads = "".join(f"{head:>9}" for head in ("success", "failure", "warning", "skipped"))
    print(f"\n{title:56}{heads}", *table(verdicts), sep="\n")
    checks = sum((Counter(verdict.counts) for verdict in verdicts), Counter[str]())
    print(f"{passed}/{len(verdicts)} scenarios, {checks['SUCCESS']} checks succeeded")
    return passed == len(verdicts)


def score(revision: str, results: Path, requirements: Path, kind: str = "") -> bool:
    """Print how a server did in one revision; whether it has all that is required of it. `kind` is
    what is served, if it is not a server."""
    names = required((requirements / f"{revision}.yaml").read_text("utf-8"))
    beside = BESIDE[revision]
    ran = read_results(results / revision)
    whole = len(set(names)) == REQUIRED[revision]
    if not whole:
        print(f"{revision}: {REQUIRED[revision]} scenarios are required, the suite has {names}")
    exempt = EXEMPT[kind]

    def judged(some: Iterable[str]) -> list[Verdict]:
        return [judge(name, ran.get(name)) for name in some if name not in exempt]

    scored = report(f"{revision}, required", judged(names))
    others = report(f"{revision}, not scored", judged(beside))
    for name in exempt:
        if name in {*names, *beside}:
            print(f"exempt  {name}: {exempt[name]}")
    left = [name for name in ran if name not in {*names, *beside}]
    if left:
        print(f"ran too, and do not count here: {', '.join(left)}")
    return whole and scored and others


def main(arguments: list[str]) -> int:
    """0 where everything has passed."""
    results, requirements, *kind = arguments
    fine = [score(one, Path(results), Path(requirements), *kind) for one in REQUIRED]
    print("\nall passed" if all(fine) else "\nNOT all passed")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
