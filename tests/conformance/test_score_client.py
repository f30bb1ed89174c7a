"""The score of a client in the conformance suite: what passes, and above all what does not."""

import json
import sys
from pathlib import Path

import pytest

from conformance.checks_auth import AUTH_CHECKS, EXTENSIONS, OLDER
from conformance.everything_client import SCENARIOS, STOPS
from conformance.score import Check, required
from conformance.score_client import (
    BESIDE,
    CHECKS,
    FINISHED,
    REQUIRED,
    SKIPPED,
    ScenarioRun,
    judge,
    main,
    read_run,
)

# Writes what the suite would: everything that is in a scenario, but for what `told` says of it.
SUITE = """
import json, pathlib, sys
told = json.loads(pathlib.Path(sys.argv[0]).with_name("told.json").read_text())
arguments = [one for one in sys.argv if one != "--force"]
given = dict(zip(arguments[2::2], arguments[3::2]))
scenario = given["--scenario"]
mine = told["changed"].get(f"{given['--spec-version']} {scenario}", {})
checks = [
    {"id": id, "status": mine.get("status", "SUCCESS")}
    for id, times in told["checks"][scenario].items()
    for _ in range(times)
]
folder = pathlib.Path(given["--output-dir"]) / f"{scenario.replace('/', '-')}-2026"
folder.mkdir(parents=True)
(folder / "checks.json").write_text(json.dumps(checks))
(folder / "stdout.txt").write_text(mine.get("said", "finished"))
(folder / "stderr.txt").write_text(mine.get("complained", ""))
sys.exit(mine.get("ended", 0))
"""


def succeeded(scenario: str) -> list[Check]:
    """Every check of a scenario, as often as it is in it."""
    return [
        Check(id=id, status="SUCCESS")
        for id, times in CHECKS[scenario].items()
        for _ in range(times)
    ]


def scenario_run(scenario: str, *more: str) -> ScenarioRun:
    others = [Check(id="other", status=status) for status in more]
    return ScenarioRun(0, [*succeeded(scenario), *others], f"{FINISHED}\n", "")


@pytest.mark.parametrize("scenario", CHECKS)
def test_a_client_that_does_everything_passes(scenario: str) -> None:
    assert judge(scenario, scenario_run(scenario, "INFO")).reasons == []


@pytest.mark.parametrize("scenario", CHECKS)
@pytest.mark.parametrize("skipped", [0, 11])
def test_a_client_that_does_nothing_passes_nowhere(scenario: str, skipped: int) -> None:
    """Not even where the suite itself has nothing against it."""
    checks = [Check(id="any", status="SKIPPED")] * skipped
    assert judge(scenario, ScenarioRun(0, checks, FINISHED, "")).reasons


@pytest.mark.parametrize("scenario", CHECKS)
def test_each_check_that_is_missing_once_is_named(scenario: str) -> None:
    for missing in CHECKS[scenario]:
        left = succeeded(scenario)
        left.remove(next(check for check in left if check.id == missing))
        [reason] = judge(scenario, ScenarioRun(0, left, FINISHED, "")).reasons
        assert reason.startswith(f"{missing} succeeded")


@pytest.mark.parametrize("bad", ["FAILURE", "WARNING", "SKIPPED"])
def test_what_failed_warned_or_was_skipped_fails(bad: str) -> None:
    assert len(judge("tools_call", scenario_run("tools_call", bad)).reasons) == 1


def test_only_the_two_messages_of_a_handshake_may_be_skipped() -> None:
    assert SKIPPED == {"http-standard-headers": 2}
    skips = ("SKIPPED",) * 2
    assert (
        judge("http-standard-headers", scenario_run("http-standard-headers", *skips)).reasons == []
    )
    assert judge(
        "http-standard-headers", scenario_run("http-standard-headers", *skips, "SKIPPED")
    ).reasons


@pytest.mark.parametrize(
    "change",
    [{"ended": 1}, {"said": ""}, {"said": "finished\nnot quite"}, {"complained": "Warning: x"}],
)
def test_a_client_that_did_not_end_in_silence_fails(change: dict[str, object]) -> None:
    fine = scenario_run("tools_call")
    assert len(judge("tools_call", fine._replace(**change)).reasons) == 1


def test_a_scenario_that_did_not_run_or_that_nobody_knows_fails() -> None:
    assert judge("tools_call", None).reasons == ["did not run"]
    unknown = judge("new-one", ScenarioRun(0, [Check(id="own", status="SUCCESS")], FINISHED, ""))
    assert unknown.reasons == ["nobody has said here what is in it"]


def test_a_folder_without_results_is_no_result(tmp_path: Path) -> None:
    assert read_run(tmp_path, 0) is None


def test_every_scenario_that_is_scored_is_run_by_our_client() -> None:
    assert SCENARIOS.keys() | AUTH_CHECKS.keys() == CHECKS.keys()
    assert STOPS.keys() | {*EXTENSIONS, *OLDER} < AUTH_CHECKS.keys()


def test_the_list_of_a_client_is_read() -> None:
    text = "server:\n  - ping\nclient:\n  - tools_call  # first\n\n  - auth/x\nnot_scored:\n"
    assert required(text, "client") == ["tools_call", "auth/x"]


# ---------------------------------------------------------------- the whole score

NEWEST_ONLY = ("resource-mismatch", "offline-", "authorization-server-", "iss-", "metadata-issuer")
AUTH = tuple(name for name in AUTH_CHECKS if name not in (*EXTENSIONS, *OLDER))
OF = {
    "2025-11-25": (
        "initialize",
        "tools_call",
        "elicitation-sep1034-client-defaults",
        "sse-retry",
        *(name for name in AUTH if not name.removeprefix("auth/").startswith(NEWEST_ONLY)),
    ),
    "2026-07-28": (
        *AUTH,
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ),
}


class Suite:
    """A suite that says what it is told to say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "dist").mkdir()
        (folder / "dist" / "index.js").write_text(SUITE, "utf-8")
        (folder / "requirements").mkdir()
        for revision, all_of_them in REQUIRED.items():
            assert len(OF[revision]) == all_of_them
            self.list(revision, list(OF[revision]))

    def list(self, revision: str, names: list[str]) -> None:
        text = "client:\n" + "".join(f"  - {name}\n" for name in names)
        (self.folder / "requirements" / f"{revision}.yaml").write_text(text, "utf-8")

    def score(self, **changed: dict[str, object]) -> int:
        told = {"checks": CHECKS, "changed": {**changed}}
        (self.folder / "dist" / "told.json").write_text(json.dumps(told), "utf-8")
        return main([sys.executable, str(self.folder), str(self.folder / "results"), "client"])


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_all_that_a_revision_requires_is_run_and_the_extensions_beside_it(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.score() == 0
    printed = capsys.readouterr().out
    assert "18/18 scenarios" in printed
    assert "32/32 scenarios" in printed
    assert printed.count(f"passed  {BESIDE}") == 2
    for scenario in EXTENSIONS:
        assert printed.count(f"passed  {scenario} ") == 2
    for scenario in OLDER:
        assert printed.count(f"passed  {scenario} ") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "change"),
    [
        ("2025-11-25 sse-retry", {"ended": 1}),
        (f"2026-07-28 {BESIDE}", {"status": "WARNING"}),
        ("2026-07-28 auth/dpop", {"said": ""}),
        (f"2025-03-26 {OLDER[0]}", {"complained": "x"}),
    ],
)
def test_one_scenario_that_fails_fails_all(
    suite: Suite, scenario: str, change: dict[str, object]
) -> None:
    assert suite.score(**{scenario: change}) == 1


def test_a_list_that_became_another_fails_all(suite: Suite) -> None:
    suite.list("2025-11-25", ["tools_call", "auth/x"])
    assert suite.score() == 1
