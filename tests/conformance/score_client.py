"""Plays the official suite's scenarios of a client, one at a time, and scores them strictly.

    python tests/conformance/score_client.py NODE SUITE RESULTS COMMAND...

SUITE is the folder of the suite's package, RESULTS an empty one, COMMAND the client under test.

A scenario passes with the suite's own word for it, with no FAILURE and no WARNING, with a SUCCESS
for everything that is in it, with nothing SKIPPED, and with a client that finished in silence: that
a client which does nothing has also done nothing wrong is no pass.

Beside what a revision requires, the scenarios of the authorization extensions are played in each,
and those of the revision that finds its authorization server in another way.

Rules: nothing is expected to fail, and nothing is left out: what a revision requires and is not
known here has failed.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))  # as pytest has it
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.checks_auth import AUTH_CHECKS, BACK_COMPATIBLE, EXTENSIONS, OLDER
from conformance.score import MAX_REASON_CHARACTERS, Check, Verdict, report, required

# How many scenarios of a client each revision requires by the suite's own lists.
REQUIRED = {"2025-11-25": 18, "2026-07-28": 32}
# Not scored by the suite, and required here.
BESIDE = "json-schema-2020-12-preservation"
# A scenario takes two seconds; the suite and the client have waits of their own within this.
SUITE_MS = 60_000
RUN_S = 120
# The last word of a client that has seen what it should.
FINISHED = "finished"

SCHEMA = "wire-schema-valid"
KEPT = (
    "json-schema-2020-12-client-tool-found",
    "json-schema-2020-12-client-echo-completed",
    "json-schema-2020-12-client-$schema-preserved",
    "json-schema-2020-12-client-$defs-preserved",
    "json-schema-2020-12-client-additionalProperties-preserved",
    "sep-2106-client-composition-keywords-preserved",
    "sep-2106-client-conditional-keywords-preserved",
    "sep-2106-client-anchor-keyword-preserved",
    SCHEMA,
)
ENVELOPE = "sep-2575-client-"
HEADERS = "sep-2243-client-"
TOOL_HEADER = "sep-2243-x-mcp-header-"
# How often each check must succeed: as often as a client that does everything makes it.
CHECKS: Mapping[str, Mapping[str, int]] = {
    "initialize": {"mcp-client-initialization": 1},
    "tools_call": {"tool-add-numbers": 1, SCHEMA: 1},
    "elicitation-sep1034-client-defaults": {
        f"client-elicitation-sep1034-{kind}-default": 1
        for kind in ("string", "integer", "number", "enum", "boolean")
    },
    "sse-retry": {
        "client-sse-graceful-reconnect": 1,
        "client-sse-retry-timing": 1,
        "client-sse-last-event-id": 1,
    },
    "request-metadata": {
        "sep-2575-http-client-sends-version-header": 1,
        "sep-2575-http-version-header-matches-meta": 1,
        f"{ENVELOPE}populates-meta": 1,
        f"{ENVELOPE}sends-client-info": 1,
        f"{ENVELOPE}declares-roots-capability": 1,
        f"{ENVELOPE}declares-sampling-capability": 1,
        f"{ENVELOPE}declares-elicitation-capability": 1,
        f"{ENVELOPE}retry-supported-version": 1,
    },
    "sep-2322-client-request-state": {
        "sep-2322-client-request-state-echoed": 1,
        "sep-2322-client-jsonrpc-id-different": 1,
        "sep-2322-client-no-state-omitted": 1,
        "sep-2322-client-parallel-isolation": 1,
        "sep-2322-default-result-type-complete": 1,
    },
    # Mcp-Method on six methods, and Mcp-Name on the three that have one.
    "http-standard-headers": {f"{HEADERS}includes-standard-headers": 9},
    "http-custom-headers": {
        f"{HEADERS}supports-custom-headers": 1,
        f"{HEADERS}mirrors-designated-params": 6,
        f"{HEADERS}encode-values": 3,
        f"{HEADERS}base64-unsafe": 7,
        f"{HEADERS}omit-null": 1,
    },
    "http-invalid-tool-headers": {
        f"{HEADERS}reject-invalid-tool": 1,
        f"{TOOL_HEADER}not-empty": 1,
        f"{TOOL_HEADER}primitive-only": 4,
        f"{TOOL_HEADER}unique": 2,
        f"{TOOL_HEADER}charset": 4,
    },
    "json-schema-ref-no-deref": {"sep-2106-no-network-ref-deref": 1},
    BESIDE: dict.fromkeys(KEPT, 1),
    **AUTH_CHECKS,
}
# What may be skipped: a revision without a handshake sends neither of its two messages.
SKIPPED = {"http-standard-headers": 2}


class ScenarioRun(NamedTuple):
    """One scenario as the suite left it: what it ended with, what it saw, what the client wrote."""

    ended: int
    checks: list[Check]
    said: str
    complained: str


class Suite(NamedTuple):
    """The suite, and the client that it plays with."""

    node: str
    package: Path
    results: Path
    command: str

    def play(self, scenario: str, revision: str) -> ScenarioRun | None:
        """Play one scenario alone; None where the suite has left nothing."""
        folder = self.results / revision / scenario
        folder.mkdir(parents=True)
        command = [self.node, str(self.package / "dist" / "index.js"), "client"]
        command += ["--command", self.command, "--scenario", scenario]
        command += ["--spec-version", revision, "--timeout", str(SUITE_MS)]
        if scenario in EXTENSIONS:
            command += ["--force"]  # which belong to no revision
        with (folder / "suite.log").open("w") as log:
            try:
                ended = subprocess.run(
                    [*command, "--output-dir", str(folder)], stdout=log, stderr=log, timeout=RUN_S
                ).returncode
            except subprocess.TimeoutExpired:
                return None
        return read_run(folder, ended)


def read_run(folder: Path, ended: int) -> ScenarioRun | None:
    """What the suite wrote into the folder of one scenario."""
    found = list(folder.rglob("checks.json"))
    if len(found) != 1:
        return None
    checks = msgspec.json.decode(found[0].read_bytes(), type=list[Check])
    said, complained = (found[0].with_name(f"{one}.txt") for one in ("stdout", "stderr"))
    return ScenarioRun(ended, checks, said.read_text("utf-8"), complained.read_text("utf-8"))


def judge(scenario: str, run: ScenarioRun | None) -> Verdict:
    """The verdict on a scenario; None is for one that did not run."""
    if run is None:
        return Verdict(scenario, {}, ["did not run"])
    reasons = [
        f"{check.status} {check.id}: {check.error_message or ''}"
        for check in run.checks
        if check.status in ("FAILURE", "WARNING")
    ]
    counts = Counter(check.status for check in run.checks)
    if counts["SKIPPED"] > SKIPPED.get(scenario, 0):
        reasons.append(f"{counts['SKIPPED']} checks were skipped")
    done = Counter(check.id for check in run.checks if check.status == "SUCCESS")
    wanted = CHECKS.get(scenario)
    if wanted is None:
        reasons.append("nobody has said here what is in it")
    for id, times in (wanted or {}).items():
        if done[id] < times:
            reasons.append(f"{id} succeeded {done[id]} times, and {times} are in it")
    if run.ended:
        reasons.append(f"the suite ended with {run.ended}")
    if run.said.strip() != FINISHED:
        reasons.append(f"the client did not finish: {run.said.strip()}")
    if run.complained.strip():
        reasons.append(f"the client complained: {run.complained.strip().splitlines()[-1]}")
    return Verdict(scenario, counts, [reason[:MAX_REASON_CHARACTERS] for reason in reasons])


def score(revision: str, suite: Suite) -> bool:
    """Play and print one revision; whether all has passed."""
    text = (suite.package / "requirements" / f"{revision}.yaml").read_text("utf-8")
    listed = required(text, "client")
    whole = len(set(listed)) == REQUIRED[revision]
    if not whole:
        print(f"{revision}: {REQUIRED[revision]} are required, the suite has {listed}")
    scored = report(
        f"{revision}, required", [judge(name, suite.play(name, revision)) for name in listed]
    )
    beside = [judge(name, suite.play(name, revision)) for name in (BESIDE, *EXTENSIONS)]
    others = report(f"{revision}, not scored", beside)
    return whole and scored and others


def score_older(suite: Suite) -> bool:
    """The same for the authorization of the one revision that differs."""
    verdicts = [judge(name, suite.play(name, BACK_COMPATIBLE)) for name in OLDER]
    return report(f"{BACK_COMPATIBLE}, not scored", verdicts)


def main(arguments: list[str]) -> int:
    """0 where everything has passed."""
    node, package, results, *command = arguments
    suite = Suite(node, Path(package), Path(results), " ".join(command))
    fine = [*(score(revision, suite) for revision in REQUIRED), score_older(suite)]
    print("\nall passed" if all(fine) else "\nNOT all passed")
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
