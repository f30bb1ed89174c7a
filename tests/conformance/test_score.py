"""The score of the conformance suite: what passes, and above all what does not."""

from pathlib import Path

import msgspec
import pytest

from conformance.score import BESIDE, REQUIRED, Check, judge, main, read_results, required

OWN = Check(id="own", status="SUCCESS")
SCHEMA = Check(id="wire-schema-valid", status="SUCCESS")
FAILED_TOOL = Check(id="own", status="SUCCESS", details={"result": [{"isError": True}]})


def checked(*statuses: str) -> list[Check]:
    return [OWN, *(Check(id="other", status=status) for status in statuses)]


@pytest.mark.parametrize("checks", [[OWN], [OWN, SCHEMA], checked("INFO", "SKIPPED")])
def test_a_scenario_with_a_success_and_nothing_bad_passes(checks: list[Check]) -> None:
    assert judge("ping", checks).reasons == []


@pytest.mark.parametrize(
    "checks",
    [None, [], [SCHEMA], [FAILED_TOOL], checked("WARNING"), checked("FAILURE"), checked()[1:]],
)
def test_a_scenario_that_warned_did_nothing_or_did_not_run_fails(
    checks: list[Check] | None,
) -> None:
    assert len(judge("ping", checks).reasons) == 1


def test_a_tool_s_error_is_what_its_own_scenario_wants() -> None:
    assert judge("tools-call-error", [FAILED_TOOL]).reasons == []


def test_a_list_of_requirements_is_read_for_the_server_alone() -> None:
    text = "# a: word\nserver:\n  - ping  # first\n  # none\n\n  - tools-list\nclient:\n  - tools_call\n"
    assert required(text) == ["ping", "tools-list"]


class Suite:
    """What the suite leaves behind where everything has passed."""

    def __init__(self, folder: Path) -> None:
        self.results, self.lists = folder / "results", folder / "lists"
        self.lists.mkdir()
        for revision, number in REQUIRED.items():
            names = [f"scenario-{nth}" for nth in range(number)]
            lines = "".join(f"  - {name}\n" for name in names)
            (self.lists / f"{revision}.yaml").write_text(f"server:\n{lines}", "utf-8")
            for name in (*names, *BESIDE[revision]):
                self.write(revision, name, [OWN])

    def write(self, revision: str, name: str, checks: list[Check]) -> Path:
        folder = self.results / revision / f"server-{name}-2026-07-28T01-02-03-004Z"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "checks.json"
        path.write_bytes(msgspec.json.encode(checks))
        return path

    def score(self) -> int:
        return main([str(self.results), str(self.lists)])


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_all_scenarios_of_both_revisions_pass_together(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.write("2026-07-28", "tasks-status-notifications", checked("FAILURE"))
    assert suite.score() == 0
    printed = capsys.readouterr().out
    assert "30/30 scenarios" in printed
    assert "37/37 scenarios" in printed
    assert "do not count here: tasks-status-notifications" in printed


@pytest.mark.parametrize("name", ["scenario-7", "http-header-validation"])
def test_one_scenario_that_did_not_run_fails_all(suite: Suite, name: str) -> None:
    suite.write("2026-07-28", name, [OWN]).unlink()
    assert suite.score() == 1


def test_one_warning_fails_all_and_is_named(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = Check(id="order", status="WARNING", error_message="lists differ")
    suite.write("2025-11-25", "scenario-3", [OWN, warning])
    assert suite.score() == 1
    assert "WARNING order: lists differ" in capsys.readouterr().out


def test_a_list_that_became_shorter_fails_all(suite: Suite) -> None:
    (suite.lists / "2025-11-25.yaml").write_text("server:\n  - scenario-0\n", "utf-8")
    assert suite.score() == 1


def test_what_is_no_result_is_not_read(suite: Suite) -> None:
    stray = suite.results / "2025-11-25" / "notes" / "checks.json"
    stray.parent.mkdir()
    stray.write_text("no results", "utf-8")
    assert len(read_results(suite.results / "2025-11-25")) == REQUIRED["2025-11-25"] + 3
